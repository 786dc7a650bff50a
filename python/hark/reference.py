"""Attention from its definition in float64: what a kernel of one's own can be compared with, forward and gradients.

The computation is the library's backend ``reference``, which uses no instruction set, no tiles and no shortcuts.
"""

from . import _arrays

__all__ = ["attention", "attention_vjp"]


def attention(query, key, value, *, return_log_sum_exp=False, return_variance=False, **words):
    """As hark.attention, for arrays of any floating-point type, computed in float64. The result has the type of query."""
    return _arrays.attention(query, key, value, words, return_log_sum_exp, return_variance, "reference", "f8")


def attention_vjp(query, key, value, *, return_log_sum_exp=False, return_variance=False, **words):
    """As hark.attention_vjp, computed in float64. Results and gradients have the type of query."""
    return _arrays.attention_vjp(query, key, value, words, return_log_sum_exp, return_variance, "reference", "f8")
