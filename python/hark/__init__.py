"""Structured attention with gradients, on CPUs.

    import hark
    out = hark.attention(query, key, value, structure="hierarchical", causal=True)

``hark.attention`` computes on NumPy arrays; ``hark.attention_vjp`` returns its gradients too; ``hark.posterior`` and
``hark.posterior_vjp`` are kernel ridge attention with its variance and log-determinant; ``hark.reference`` has ``attention`` and
``attention_vjp`` in float64 from the definition. ``hark.op(name)`` is every operator of the library. ``hark.load`` loads trained models, ``hark.runs`` reads metrics of runs,
``hark.train`` trains. ``hark.torch`` and ``hark.jax`` have attention for PyTorch and JAX; they are imported only when asked for.
"""

from typing import Any, Optional

from . import _arrays, _library, _posterior, reference
from ._models import load
from ._operators import op
from ._runs import runs
from ._train import train
from ._library import set_threads, threads

__version__ = _library.version().decode()
__all__ = ["attention", "attention_vjp", "load", "op", "posterior", "posterior_vjp", "reference", "runs", "set_threads", "threads", "train"]


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    structure: str = "dense",
    causal: bool = False,
    normalisation: str = "softmax",
    kernel: str = "exp",
    scale: Optional[float] = None,
    sigma: Any = None,
    ridge: Any = None,
    ridge_power: float = 0.0,
    bound: float = 0.0,
    unit: bool = False,
    solver: str = "factor",
    solver_tolerance: float = 0.0,
    window: Optional[int] = None,
    hierarchy_block: int = 16,
    partition: str = "neighbour",
    coarse_query: str = "default",
    interpolation: str = "constant",
    grid_columns: int = 0,
    chunk: Optional[int] = None,
    chunk_slots: Optional[int] = None,
    selected_slots: Optional[int] = None,
    kept_chunks: Optional[int] = None,
    global_slots: Optional[int] = None,
    key_lengths: Any = None,
    segments: Any = None,
    offsets: Any = None,
    mask: Any = None,
    query_mask: Any = None,
    chunk_starts: Any = None,
    attention_bias: Any = None,
    hierarchical_bias: Any = None,
    log_kernel: Any = None,
    directed_kernel: bool = False,
    forget: Any = None,
    contextual: Any = None,
    query_offset: Optional[int] = None,
    dropout: float = 0.0,
    seed: int = 0,
    return_log_sum_exp: bool = False,
    return_variance: bool = False,
    normalization: Optional[str] = None,
):
    """Attention of queries on keys and values.

    Arguments
        query           [B, H, Lq, d], float32 or float64; float16 and bfloat16 are computed in float32 and returned as they came
        key, value      [B, Hkv, Lk, d] and [B, Hkv, Lk, dv], of the type of query; H is a multiple of Hkv
        structure       "dense", "window" (needs window=W), "hierarchical", or "compressed" (needs chunk=M and causal)
        causal          a query sees no later key
        normalisation   "softmax", "cme" (kernel ridge regression; needs ridge) or "stick_breaking" (pieces of a stick from the nearest
                        key on; causal); also spelled normalization
        kernel          "exp", exp(scale q.k), or "rbf", exp(-|q - k|^2 / (2 sigma^2))
        scale           factor of q.k; default 1 / sqrt(d)
        sigma           width of rbf; cme also takes an array [H] or [1]
        ridge, ridge_power, bound, unit
                        cme: lambda, a number or an array [H] or [1]; or c of lambda = c L^p with ridge_power p; what q.k never exceeds;
                        rows are divided by their lengths first
        solver, solver_tolerance
                        cme: "factor", or "conjugate_gradients" for long contexts, whose memory grows with the number of keys; the residual
                        |M x - b| / |b| to which it solves, default 1e-6 (float32) or 1e-10 (float64); not causal, no log_kernel
        window          positions to each side of the query
        hierarchy_block, partition, coarse_query, interpolation
                        hierarchical: tokens of a block (16), "neighbour" or "sibling", "default", "mean", "first" or "exact",
                        "constant" or "linear"
        grid_columns    hierarchical: columns of a picture whose pixels are the rows, in the order of reading; 0: no picture.
                        hierarchy_block is then a power of 4; not causal, no hierarchical_bias, no log_kernel
        chunk, chunk_slots, selected_slots, kept_chunks, global_slots
                        compressed: rows of a chunk; slots of a chunk (1), which are means of keys and values; how many slots with the
                        highest logits a query sees (16); how many chunks keep separate slots (None or 0: all); and into how many
                        global slots older ones are merged (None or 0: older ones are not seen)
        key_lengths     [B], whole numbers: keys at and after them are padding
        segments        [B, L], whole numbers: every run of equal ids is a sequence; negative ids are padding
        offsets         [sequences + 1] into packed rows [1, H, rows, d]; or a pair, those of the queries and of the keys
        mask            bool or uint8, broadcastable to [B, H, Lq, Lk]; False masks the entry
        query_mask      hierarchical: [B or 1, Lq]; False: the row is no query
        chunk_starts    compressed: bool or uint8, [B or 1, Lk]; True where a chunk begins. chunk is then the least number of rows
                        from one start to the next
        attention_bias  added to the logits, broadcastable to [B, H, Lq, Lk]
        hierarchical_bias  [H or 1, 4 hierarchy_block - 1], added to the logits of every level
        log_kernel      [H or 1, T]: log G at distances 0 .. T - 1, added to the logits
        directed_kernel True: log_kernel is [H or 1, 2 T - 1], column T - 1 + d for d = position of the query less that of the key; not
                        causal, no cme
        forget          [B, H, Lk]: logits of forget gates; needs causal
        contextual      [H or 1, N, d]: a table of N contextual positions, counted by the gates sigmoid(scale q.k) from the query back to
                        the key (CoPE); needs causal, dense or window, exp, softmax
        query_offset    position of the first query among the keys; default: the last query meets the last key if causal, else 0
        dropout, seed   probability, on the normalised weights, and the seed of the random numbers
        return_log_sum_exp  softmax: also returns the logarithm of each row's sum, [B, H, Lq]
        return_variance     cme: also returns the posterior variance, [B, H, Lq]

    Returns the output [B, H, Lq, dv], or the pair of it and what was requested. No array is copied unless it has negative strides, is not
    aligned, or its last dimension is not contiguous.

    Raises ValueError (shapes, words, numbers, contradicting arguments), TypeError (types), MemoryError, and FloatingPointError where
    ``cme`` meets numbers that are not finite. The message names the argument.
    """
    words = {
        "structure": structure,
        "causal": causal,
        "normalisation": normalization or normalisation,
        "kernel": kernel,
        "scale": scale,
        "sigma": sigma,
        "ridge": ridge,
        "ridge_power": ridge_power,
        "bound": bound,
        "unit": unit,
        "solver": solver,
        "solver_tolerance": solver_tolerance,
        "window": window,
        "hierarchy_block": hierarchy_block,
        "partition": partition,
        "coarse_query": coarse_query,
        "interpolation": interpolation,
        "grid_columns": grid_columns,
        "chunk": chunk,
        "chunk_slots": chunk_slots,
        "selected_slots": selected_slots,
        "kept_chunks": kept_chunks,
        "global_slots": global_slots,
        "key_lengths": key_lengths,
        "segments": segments,
        "offsets": offsets,
        "mask": mask,
        "query_mask": query_mask,
        "chunk_starts": chunk_starts,
        "attention_bias": attention_bias,
        "hierarchical_bias": hierarchical_bias,
        "log_kernel": log_kernel,
        "forget": forget,
        "contextual": contextual,
        "query_offset": query_offset,
        "dropout": dropout,
        "directed_kernel": directed_kernel,
        "seed": seed,
    }
    return _arrays.attention(query, key, value, words, return_log_sum_exp, return_variance)


def attention_vjp(query, key, value, *, return_log_sum_exp=False, return_variance=False, **words):
    """The result of ``hark.attention`` with the same arguments, and a function of its gradient.

    Returns (result, vjp). ``vjp(dout)``, dout [B, H, Lq, dv] being the gradient of the output, returns a dict with the gradient of every
    floating-point array by its name: query, key, value, and those given of attention_bias, log_kernel, forget, hierarchical_bias,
    contextual, ridge and sigma. Each has the shape of its array. The log-sum-exp and the variance have no gradient.
    """
    return _arrays.attention_vjp(query, key, value, words, return_log_sum_exp, return_variance)


def posterior(query, key, value, *, noise=None, **words):
    """Kernel ridge attention as the posterior of a Gaussian process: a tuple of the fields out, variance, log_determinant and quadratic.

        out             [B, H, Lq, dv]: V^T M^-1 kappa(K, q), M = kappa(K, K) + lambda I + diag(noise) over the keys that the query sees
        variance        [B, H, Lq]: kappa(q, q) - kappa(q, K) M^-1 kappa(K, q), without noise
        log_determinant [B, H, Lq]: log det M
        quadratic       [B, H, Lq, dv]: V_c^T M^-1 V_c of each column c of the values

    The log-likelihood of L values y, a column of value, is -1/2 (quadratic + log_determinant + L log(2 pi)), in any row that sees all keys.

    noise: [B, H, Lk], of the type of query, or an array that can be repeated to it, such as [Lk]: numbers from 0, which are added to lambda.
    ridge may be left out with it. All other arguments are those of ``hark.attention`` with normalisation "cme", except return_variance and
    return_log_sum_exp, which are refused.

    Raises the exceptions of ``hark.attention``: ValueError (also for noise that is negative or not finite, and where the ridge and the noise
    of a key are 0), TypeError (noise is not of the type of query), MemoryError, and FloatingPointError (numbers that are not finite, or a
    kernel beyond the range of the type).
    """
    return _posterior.posterior(query, key, value, noise, words)


def posterior_vjp(query, key, value, *, noise=None, **words):
    """The result of ``hark.posterior`` with the same arguments, and a function of its gradients.

    Returns (result, vjp). ``vjp(dout=None, dvariance=None, dlog_determinant=None, dquadratic=None)``, the gradients of the four results,
    returns a dict as that of ``hark.attention_vjp``, with "noise" if it is given. A gradient that is None is zero.

    Raises the exceptions of ``hark.posterior``. ``vjp`` raises ValueError if a gradient does not have the shape of its result, and
    TypeError if it is not of a floating-point type.
    """
    return _posterior.posterior_vjp(query, key, value, noise, words)
