"""Hierarchical attention against its definition (Zhu and Soricut, arXiv 2107.11906), written here as one weight for every pair of tokens.

A pair meets at the lowest level at which its blocks are the same or neighbours. There its weight is the exponential of the product of the
coarse query of the query's cell and the mean key of the key's cell, cells having 2^level tokens. These are the coarse queries of flaxformer,
the layer by the authors: means, and with causality the first query of the cell.
"""

import numpy
import pytest

import hark

LENGTH, BLOCK, WIDTH = 64, 4, 6
RANDOM = numpy.random.default_rng(3)
QUERY, KEY, VALUE = (RANDOM.standard_normal((LENGTH, WIDTH)) for _ in range(3))


def level_of(n, i) -> int:
    level = 0
    while abs(n // (BLOCK << level) - i // (BLOCK << level)) > 1:
        level += 1
    return level


def defined(coarse_query, causal):
    """(output, log-sum-exp) of one head."""
    logits = numpy.full((LENGTH, LENGTH), -numpy.inf)
    for n in range(LENGTH):
        for i in range(n + 1 if causal else LENGTH):
            cell = 1 << level_of(n, i)
            queries, keys = QUERY[n // cell * cell :][:cell], KEY[i // cell * cell :][:cell]
            query = queries.mean(0) if coarse_query == "mean" else queries[0] if coarse_query == "first" else QUERY[n]
            logits[n, i] = query @ keys.mean(0) / numpy.sqrt(WIDTH)
    weights = numpy.exp(logits)
    return weights @ VALUE / weights.sum(1, keepdims=True), numpy.log(weights.sum(1))


@pytest.mark.parametrize("coarse_query, causal", [("mean", False), ("first", False), ("first", True), ("exact", False), ("exact", True)])
def test_definition(coarse_query, causal):
    out, rows = hark.attention(
        *[x[None, None] for x in (QUERY, KEY, VALUE)],
        structure="hierarchical",
        hierarchy_block=BLOCK,
        coarse_query=coarse_query,
        causal=causal,
        return_log_sum_exp=True,
    )
    expected, sums = defined(coarse_query, causal)
    numpy.testing.assert_allclose(out[0, 0], expected, rtol=1e-11, atol=1e-12)
    numpy.testing.assert_allclose(rows[0, 0], sums, rtol=1e-11, atol=1e-12)


def test_levels_are_reached():
    """The definition above has coarse pairs of several levels, so that the comparison is one."""
    assert {level_of(n, i) for n in range(LENGTH) for i in range(LENGTH)} == {0, 1, 2, 3}
