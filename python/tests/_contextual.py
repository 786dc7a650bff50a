"""Contextual positions in float64 by their formulas (docs/mathematics/contextual-positions.md)."""

import numpy


def contextual_attention(q, k, v, table, window=None, visible=True, bias=0.0):
    """out [B, H, Lq, dv] of arrays as hark.attention takes them, causal; visible: also False for keys that are hidden."""
    group, scale = q.shape[1] // k.shape[1], q.shape[3] ** -0.5
    k, v = numpy.repeat(k, group, 1), numpy.repeat(v, group, 1)
    distance = numpy.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2] - numpy.arange(k.shape[2])
    seen = numpy.broadcast_to((distance >= 0) & (distance <= (window or k.shape[2])) & visible, (*q.shape[:3], k.shape[2]))
    product = scale * q @ k.swapaxes(2, 3)
    gates = seen / (1 + numpy.exp(-product))
    count = gates[..., ::-1].cumsum(-1)[..., ::-1]  # of the keys from j to the query
    rows = numpy.arange(table.shape[1])
    parts = numpy.maximum(1 - abs(numpy.minimum(count, rows[-1])[..., None] - rows), 0)  # of each row of the table
    weights = seen * numpy.exp(product + scale * numpy.einsum("bhnjr,bhnr->bhnj", parts, q @ table.swapaxes(1, 2)) + bias)
    return weights @ v / weights.sum(-1, keepdims=True)
