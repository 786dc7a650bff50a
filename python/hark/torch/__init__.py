"""hark.attention for PyTorch, with autograd; imported only when asked for: ``import hark.torch``.

    out = hark.torch.attention(query, key, value, structure="hierarchical", causal=True)
    out = hark.torch.scaled_dot_product_attention(query, key, value, is_causal=True)   # in place of PyTorch's

Tensors are on the CPU; nothing is copied. Computation takes place in PyTorch's own threads (torch.set_num_threads). Gradients are those of
autograd; second derivatives are refused. torch.compile, torch.export, torch.func and torch.autocast know the operators.
"""

from . import _attention, _frames
from ._sdpa import hugging_face_attention, scaled_dot_product_attention
from ._threads import pool

__all__ = ["attention", "hugging_face_attention", "nn", "op", "pool", "scaled_dot_product_attention"]


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
    """Attention of queries on keys and values, with gradients. Arguments as of hark.attention, as tensors:

        query           [B, H, Lq, d], float32 or float64; float16 and bfloat16 are computed in float32 and returned as they came
        key, value      [B, Hkv, Lk, d] and [B, Hkv, Lk, dv], of the type of query; H is a multiple of Hkv

    Gradients: query, key, value, attention_bias, hierarchical_bias, log_kernel, forget, contextual, and ridge and sigma where they are
    tensors. The log-sum-exp and the variance have none. Nested tensors (layout torch.jagged, [B, H, j, d]) are computed as packed
    batches. Under torch.autocast the computation is in float32 and the result of autocast's type.

    Returns the output [B, H, Lq, dv], laid out as query is, or the pair of it and what was requested, [B, H, Lq].

    Raises ValueError (shapes, words, numbers, contradicting arguments, a device other than the CPU), TypeError (types), MemoryError. The
    message names the argument. RuntimeError where second derivatives are requested.
    """
    if normalization is not None:
        normalisation = normalization
    ridges = sigmas = None
    if ridge is not None and not isinstance(ridge, (int, float)):
        ridges, ridge = ridge, None
    if sigma is not None and not isinstance(sigma, (int, float)):
        sigmas, sigma = sigma, None
    words = (
        structure,
        causal,
        normalisation,
        kernel,
        scale,
        sigma,
        ridge,
        ridge_power,
        bound,
        unit,
        window,
        hierarchy_block,
        partition,
        coarse_query,
        interpolation,
        query_offset,
        dropout,
        directed_kernel,
        grid_columns,
        solver,
        solver_tolerance,
        chunk,
        chunk_slots,
        selected_slots,
        kept_chunks,
        global_slots,
    )
    tensors = (
        *(query, key, value, mask, attention_bias, log_kernel, forget, hierarchical_bias, query_mask, ridges, sigmas, contextual),
        chunk_starts,
    )
    with_rows = return_log_sum_exp or return_variance
    if with_rows:
        _check_returns(normalisation, return_log_sum_exp, return_variance)
    hosts = _frames._NO_HOSTS if key_lengths is None and segments is None and offsets is None else (key_lengths, segments, offsets)
    out, rows = _attention.attention(words, tensors, hosts, seed, with_rows)
    return (out, rows) if with_rows else out


def _check_returns(normalisation, return_log_sum_exp, return_variance) -> None:
    if return_log_sum_exp and normalisation == "cme":
        raise ValueError("attention: return_log_sum_exp: normalisation 'cme' has none")
    if return_variance and normalisation != "cme":
        raise ValueError("attention: return_variance needs normalisation 'cme'")


def __getattr__(name):
    if name == "nn":
        import importlib

        return importlib.import_module(".nn", __name__)
    if name == "op":
        from ._operators import op

        return op
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
