"""Values of other programs through Python: scikit-learn's Gaussian process and kernel ridge regression."""

import numpy
import pytest

import hark

sklearn = pytest.importorskip("sklearn")
from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: E402
from sklearn.gaussian_process.kernels import RBF  # noqa: E402
from sklearn.kernel_ridge import KernelRidge  # noqa: E402

RANDOM = numpy.random.default_rng(4)
KEYS, QUERIES, VALUES = RANDOM.standard_normal((30, 3)), RANDOM.standard_normal((11, 3)), RANDOM.standard_normal((30, 2))


def attention(**words):
    return hark.attention(QUERIES[None, None], KEYS[None, None], VALUES[None, None], normalisation="cme", **words)


def test_kernel_ridge_regression():
    expected = KernelRidge(alpha=0.3, kernel="rbf", gamma=1 / (2 * 1.2**2)).fit(KEYS, VALUES).predict(QUERIES)
    numpy.testing.assert_allclose(attention(kernel="rbf", sigma=1.2, ridge=0.3)[0, 0], expected, rtol=1e-9, atol=1e-11)


def test_gaussian_process():
    process = GaussianProcessRegressor(RBF(1.2, "fixed"), alpha=0.3, optimizer=None).fit(KEYS, VALUES[:, 0])
    mean, deviation = process.predict(QUERIES, return_std=True)
    out, variance = attention(kernel="rbf", sigma=1.2, ridge=0.3, return_variance=True)
    numpy.testing.assert_allclose(out[0, 0, :, 0], mean, rtol=1e-9, atol=1e-11)
    numpy.testing.assert_allclose(variance[0, 0], deviation**2, rtol=1e-9, atol=1e-11)


def test_nadaraya_watson():
    """softmax with kernel rbf is kernel smoothing: the weighted mean of all values."""
    from sklearn.metrics.pairwise import rbf_kernel

    weights = rbf_kernel(QUERIES, KEYS, gamma=1 / (2 * 0.8**2))
    out = hark.attention(QUERIES[None, None], KEYS[None, None], VALUES[None, None], kernel="rbf", sigma=0.8)
    numpy.testing.assert_allclose(out[0, 0], weights @ VALUES / weights.sum(1, keepdims=True), rtol=1e-11)


def test_gaussian_process_of_every_prefix():
    process = GaussianProcessRegressor(RBF(1.2, "fixed"), alpha=0.3, optimizer=None)
    out, variance = hark.attention(
        KEYS[None, None], KEYS[None, None], VALUES[None, None], normalisation="cme", kernel="rbf", sigma=1.2, ridge=0.3, causal=True,
        return_variance=True,
    )  # fmt: skip
    for last in (0, 1, 12, 29):
        mean, deviation = process.fit(KEYS[: last + 1], VALUES[: last + 1, 1]).predict(KEYS[last : last + 1], return_std=True)
        numpy.testing.assert_allclose(out[0, 0, last, 1], mean[0], rtol=1e-9, atol=1e-11)
        numpy.testing.assert_allclose(variance[0, 0, last], deviation[0] ** 2, rtol=1e-9, atol=1e-11)


def test_heads_with_their_own_ridges_and_widths():
    ridges, widths = numpy.array([0.1, 0.9]), numpy.array([0.8, 1.7])
    query, key, value = [numpy.stack([x, x])[None] for x in (QUERIES, KEYS, VALUES)]
    out = hark.attention(query, key, value, normalisation="cme", kernel="rbf", sigma=widths, ridge=ridges)
    for head in range(2):
        regression = KernelRidge(alpha=ridges[head], kernel="rbf", gamma=1 / (2 * widths[head] ** 2)).fit(KEYS, VALUES)
        numpy.testing.assert_allclose(out[0, head], regression.predict(QUERIES), rtol=1e-9, atol=1e-11)
