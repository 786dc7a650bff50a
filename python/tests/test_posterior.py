"""hark.posterior: kernel ridge attention as the posterior of a Gaussian process, against its closed form."""

import numpy
import pytest

import hark

RANDOM = numpy.random.default_rng(8)
BATCH, HEADS, QUERIES, KEYS, WIDTH, SIGMA, RIDGE = 2, 3, 5, 7, 4, 1.25, 0.5


def tensors(dtype="f8"):
    shapes = ((BATCH, HEADS, QUERIES, WIDTH), (BATCH, HEADS, KEYS, WIDTH), (BATCH, HEADS, KEYS, 2))
    return [RANDOM.standard_normal(shape).astype(dtype) for shape in shapes]


def kernel(x, y):
    return numpy.exp(-((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1) / (2 * SIGMA**2))


def closed_form(query, key, value, noise, ridge=RIDGE):
    matrix = kernel(key, key) + (ridge + numpy.broadcast_to(noise, key.shape[:3]))[..., None] * numpy.eye(KEYS)
    rows = kernel(query, key)
    solved = numpy.linalg.solve(matrix, rows.swapaxes(-1, -2))
    determinant = numpy.linalg.slogdet(matrix)[1]
    quadratic = (value * numpy.linalg.solve(matrix, value)).sum(-2)
    return (
        solved.swapaxes(-1, -2) @ value,
        1 - (rows.swapaxes(-1, -2) * solved).sum(-2),
        numpy.repeat(determinant[..., None], QUERIES, -1),
        numpy.repeat(quadratic[..., None, :], QUERIES, -2),
    )


@pytest.mark.parametrize("shape", [(), (KEYS,), (HEADS, 1), (BATCH, HEADS, KEYS)])
def test_closed_form(shape):
    query, key, value = tensors()
    noise = RANDOM.uniform(0.1, 1, shape)
    for ridge in (RIDGE, None):
        found = hark.posterior(query, key, value, noise=noise, kernel="rbf", sigma=SIGMA, ridge=ridge)
        expected = closed_form(query, key, value, noise, ridge or 0)
        for name, x, y in zip(found._fields, found, expected):
            numpy.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=name)


def test_conjugate_gradients():
    query, key, value = tensors()
    words = {"kernel": "rbf", "sigma": SIGMA, "ridge": RIDGE}
    expected = hark.posterior(query, key, value, **words)
    found = hark.posterior(query, key, value, solver="conjugate_gradients", solver_tolerance=1e-12, **words)
    for name, x, y in zip(found._fields, found, expected):
        numpy.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=name)
    with pytest.raises(ValueError, match="causal is set with solver conjugate gradients"):
        hark.posterior(query, key, value, solver="conjugate_gradients", causal=True, **words)
    with pytest.raises(ValueError, match="solver is 'lanczos', expected factor or conjugate_gradients"):
        hark.posterior(query, key, value, solver="lanczos", **words)


def test_gradients_are_those_of_differences():
    arrays = [*tensors(), RANDOM.uniform(0.5, 1, (HEADS, 1)), numpy.array([RIDGE])]
    names = ("query", "key", "value", "noise", "ridge")
    words = {"kernel": "rbf", "sigma": SIGMA}
    dresults = [RANDOM.standard_normal(shape) for shape in 2 * [(BATCH, HEADS, QUERIES), (BATCH, HEADS, QUERIES, 2)]]
    dresults = [dresults[1], dresults[0], dresults[2], dresults[3]]

    def loss(arrays, used):
        query, key, value, noise, ridge = arrays
        found = hark.posterior(query, key, value, noise=noise, ridge=ridge, **words)
        return sum((x * d).sum() for i, (x, d) in enumerate(zip(found, dresults)) if i in used)

    for used in ((0, 1, 2, 3), (1,), (2,), (3,)):
        query, key, value, noise, ridge = arrays
        _, vjp = hark.posterior_vjp(query, key, value, noise=noise, ridge=ridge, **words)
        gradients = vjp(*[d if i in used else None for i, d in enumerate(dresults)])
        for k, name in enumerate(names):
            assert gradients[name].shape == arrays[k].shape
            for at in (0, arrays[k].size - 1):
                sides = []
                for step in (1e-5, -1e-5):
                    moved = [x.copy() for x in arrays]
                    moved[k].reshape(-1)[at] += step
                    sides.append(loss(moved, used))
                expected = (sides[0] - sides[1]) / 2e-5
                numpy.testing.assert_allclose(gradients[name].reshape(-1)[at], expected, rtol=1e-6, atol=1e-8, err_msg=name)


def test_attention_is_the_same():
    query, key, value = tensors("f4")
    words = {"kernel": "rbf", "sigma": SIGMA, "ridge": RIDGE}
    out, variance = hark.attention(query, key, value, normalisation="cme", return_variance=True, **words)
    found = hark.posterior(query, key, value, **words)
    assert numpy.array_equal(found.out, out) and numpy.array_equal(found.variance, variance)


@pytest.mark.parametrize(
    "words, match",
    [
        ({"noise": numpy.zeros(KEYS + 1)}, "noise has shape"),
        ({"noise": numpy.full(KEYS, -1.0)}, "the noise of key row 0 is -1, expected a number from 0"),
        ({"noise": numpy.zeros(KEYS), "ridge": 0}, "ridge and noise of key row 0 are 0"),
        ({"normalisation": "softmax"}, "expected 'cme'"),
        ({"return_variance": True}, "posterior: return_variance is given"),
        ({"return_log_sum_exp": True}, "posterior: return_log_sum_exp is given"),
        ({"ridge": 0}, "expected a finite number above 0"),
    ],
)
def test_refusals(words, match):
    with pytest.raises(ValueError, match=match):
        hark.posterior(*tensors(), **{"kernel": "rbf", "sigma": SIGMA, "ridge": RIDGE, **words})
    with pytest.raises(ValueError, match=match):
        hark.posterior_vjp(*tensors(), **{"kernel": "rbf", "sigma": SIGMA, "ridge": RIDGE, **words})


def test_operator():
    """The record that other frameworks differentiate: hark.op, hark.torch.op, hark.jax.op."""
    query, key, value = tensors()
    noise = RANDOM.uniform(0.1, 1, (BATCH, HEADS, KEYS))
    desc = dict(batch=BATCH, heads=HEADS, query_length=QUERIES, key_length=KEYS, head_dim=WIDTH, value_dim=2, normalisation="cme")
    desc.update(kernel="rbf", sigma=SIGMA, ridge=RIDGE, has_noise=1, has_dvariance=1, has_dlog_determinant=1, has_dquadratic=1)
    rows = [numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(BATCH, x.shape[2], -1) for x in (query, key, value)]
    out, variance, determinant, quadratic = hark.op("kernel_ridge_posterior")(*rows, None, None, None, noise, desc=desc)
    expected = closed_form(query, key, value, noise)
    for found, of_values in ((out, expected[0]), (quadratic, expected[3])):
        numpy.testing.assert_allclose(found.reshape(BATCH, QUERIES, HEADS, 2).transpose(0, 2, 1, 3), of_values, rtol=1e-9, atol=1e-11)
    numpy.testing.assert_allclose(variance, expected[1], rtol=1e-9, atol=1e-11)
    numpy.testing.assert_allclose(determinant, expected[2], rtol=1e-9, atol=1e-11)
