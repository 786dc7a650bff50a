"""hark.jax.op: operators against hark.op, gradients against differences, transformations of JAX."""

import numpy
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("hark.jax")
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import hark  # noqa: E402
import hark.jax  # noqa: E402

jax.config.update("jax_enable_x64", True)
RANDOM = numpy.random.default_rng(6)


def random(*shape):
    return jnp.array(RANDOM.standard_normal(shape))


CASES = {
    "linear": ((random(4, 3), random(2, 3), random(2)), {}),
    "layer_norm": ((random(4, 6), random(6), random(6)), {"epsilon": 1e-3}),
    "rms_norm": ((random(4, 6), random(6)), {}),
    "gelu": ((random(3, 5),), {"tanh_approximation": True}),
    "silu": ((random(3, 5),), {}),
    "scale": ((random(3, 5),), {"factor": 2.5}),
    "add": ((random(3, 5), random(3, 5)), {}),
    "rotary": ((random(2, 5, 8),), {"heads": 2}),
    "positional": ((jnp.log(jnp.array([[1.0, 3.0]])),), {"text": "decay", "distances": 5}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators_equal_numpy_and_have_gradients(name):
    inputs, attributes = CASES[name]
    op = hark.jax.op(name)

    def run(*inputs):
        return op(*inputs, **attributes)

    expected = hark.op(name)(*map(numpy.asarray, inputs), **attributes)
    assert numpy.array_equal(run(*inputs), expected)
    assert numpy.array_equal(jax.jit(run)(*inputs), expected)
    check_grads(jax.jit(run), inputs, 1, ("rev",), atol=1e-5, rtol=1e-5)


def test_whole_numbers_and_absent_inputs():
    x, offsets = random(6, 2), jnp.array([0, 4, 6])
    pool = hark.jax.op("segment_pool")
    check_grads(lambda x: pool(x, offsets, kind="average", slots=2), (x,), 1, ("rev",), atol=1e-5, rtol=1e-5)
    norm = hark.jax.op("layer_norm")
    assert numpy.array_equal(norm(x, jnp.ones(2), None), norm(x, jnp.ones(2), jnp.zeros(2)))


def test_vmap():
    x, gain = random(3, 4, 6), random(6)
    norm = hark.jax.op("rms_norm")
    expected = jnp.stack([norm(row, gain) for row in x])
    assert numpy.array_equal(jax.vmap(norm, (0, None))(x, gain), expected)
    by_example = jax.vmap(jax.grad(lambda x, gain: norm(x, gain).sum(), 1), (0, None))(x, gain)
    numpy.testing.assert_allclose(by_example.sum(0), jax.grad(lambda gain: norm(x, gain).sum())(gain), rtol=1e-12)


def test_large_arrays():
    """Arrays beyond what XLA passes by value, several at once."""
    x = jnp.array(RANDOM.standard_normal((2048, 512)))
    y = jax.jit(lambda x: hark.jax.op("gelu")(x) + hark.jax.op("silu")(x))(x)
    expected = hark.op("gelu")(numpy.asarray(x)) + hark.op("silu")(numpy.asarray(x))
    assert numpy.array_equal(y, expected)


def test_every_operator_is_there():
    assert hark.jax.op.names() == hark.op.names()
    assert all(hark.jax.op(name).formula == hark.op(name).formula for name in hark.op.names())


@pytest.mark.parametrize(
    "name, inputs, attributes, kind, text",
    [
        ("nothing", [], {}, ValueError, "nothing"),
        ("gelu", [numpy.ones(3)], {"tanh": True}, TypeError, "tanh"),
        ("gelu", [], {}, TypeError, "inputs"),
        (
            "gelu",
            [numpy.ones(3, "c8")],
            {},
            TypeError,
            "input 0 is complex64, expected float32, float64, float16, bfloat16, int32, int64, int8, uint8 or bool",
        ),
        ("add", [numpy.ones(3), numpy.ones(4)], {}, ValueError, "add"),
        ("adamw", [numpy.ones(3)] * 4, {}, ValueError, "changes its inputs"),
    ],
)
def test_wrong_calls_are_named(name, inputs, attributes, kind, text):
    with pytest.raises(kind, match=text):
        hark.jax.op(name)(*inputs, **attributes)
