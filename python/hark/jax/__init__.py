"""hark.attention for JAX, with gradients in reverse mode; imported only when asked for: ``import hark.jax``.

    out = hark.jax.attention(query, key, value, structure="hierarchical", causal=True)

Works inside jit, grad, vmap, scan and checkpoint, on the CPU, through XLA's foreign functions and in XLA's threads.
"""

from ._attention import call as _call
from ._operators import op

__all__ = ["attention", "op"]


def attention(
    query,
    key,
    value,
    *,
    structure="dense",
    causal=False,
    normalisation="softmax",
    kernel="exp",
    scale=None,
    sigma=None,
    ridge=None,
    ridge_power=0.0,
    bound=0.0,
    unit=False,
    solver="factor",
    solver_tolerance=0.0,
    window=None,
    hierarchy_block=16,
    partition="neighbour",
    coarse_query="default",
    interpolation="constant",
    grid_columns=0,
    chunk=None,
    chunk_slots=None,
    selected_slots=None,
    kept_chunks=None,
    global_slots=None,
    key_lengths=None,
    segments=None,
    offsets=None,
    mask=None,
    query_mask=None,
    chunk_starts=None,
    attention_bias=None,
    hierarchical_bias=None,
    log_kernel=None,
    directed_kernel=False,
    forget=None,
    contextual=None,
    query_offset=None,
    dropout=0.0,
    seed=0,
    return_log_sum_exp=False,
    return_variance=False,
    normalization=None,
):
    """Attention of queries on keys and values, with gradients. Arguments as of hark.attention, as arrays:

        query           [B, H, Lq, d], float32, or float64 where it is enabled; float16 and bfloat16 are computed in float32 and returned as
                        they came
        key, value      [B, Hkv, Lk, d] and [B, Hkv, Lk, dv], of the type of query; H is a multiple of Hkv
        seed            a whole number, or an array of one, which may change without tracing again

    Words and numbers are static. Gradients (grad, vjp): query, key, value, attention_bias, hierarchical_bias, log_kernel,
    forget, contextual, and ridge and sigma where they are arrays. The log-sum-exp and the variance have none; neither do gradients (no
    second derivatives, no forward mode).

    Returns the output [B, H, Lq, dv], or the pair of it and what was requested, [B, H, Lq].

    Raises ValueError and TypeError while the call is traced; the message names the argument. Values that are refused when the program runs
    (key_lengths beyond the keys, a ridge that is not positive) raise JAX's own error with hark's message.
    """
    words = {
        "structure": structure,
        "causal": causal,
        "normalisation": normalization or normalisation,
        "kernel": kernel,
        "scale": scale,
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
        "query_offset": query_offset,
        "dropout": dropout,
        "directed_kernel": directed_kernel,
    }
    tensors = {
        "query": query,
        "key": key,
        "value": value,
        "mask": mask,
        "attention_bias": attention_bias,
        "log_kernel": log_kernel,
        "forget": forget,
        "hierarchical_bias": hierarchical_bias,
        "query_mask": query_mask,
        "contextual": contextual,
        "chunk_starts": chunk_starts,
    }
    for name, x in (("ridge", ridge), ("sigma", sigma)):
        (words if x is None or isinstance(x, (int, float)) else tensors)[name] = x
    hosts = {"key_lengths": key_lengths, "segments": segments, "offsets": offsets}
    return _call(words, tensors, hosts, seed, return_log_sum_exp, return_variance)
