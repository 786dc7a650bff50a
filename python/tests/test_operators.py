"""hark.op: every record is there, computes, and has gradients; attributes by name."""

import ctypes

import numpy
import pytest

import hark
from hark import _library, _operators

RANDOM = numpy.random.default_rng(4)


def test_names_are_those_of_the_table():
    count = ctypes.c_int()
    table = _library.operators(ctypes.byref(count))
    assert hark.op.names() == [table[i].contents.name.decode() for i in range(count.value)]
    assert "segment_pool" in hark.op.names()
    assert all(hark.op(name).formula for name in hark.op.names())


def test_layer_norm():
    x, gain, bias = RANDOM.standard_normal((3, 5, 8)), RANDOM.standard_normal(8), RANDOM.standard_normal(8)
    norm = hark.op("layer_norm")
    y, vjp = norm.vjp(x, gain, bias, epsilon=1e-3)
    centred = x - x.mean(-1, keepdims=True)
    expected = centred / numpy.sqrt(x.var(-1, keepdims=True) + 1e-3)
    numpy.testing.assert_allclose(y, gain * expected + bias, rtol=1e-12, atol=1e-12)
    dy = RANDOM.standard_normal(y.shape)
    dx, dgain, dbias = vjp(dy)
    numpy.testing.assert_allclose(dbias, dy.sum((0, 1)), rtol=1e-12)
    numpy.testing.assert_allclose(dgain, (dy * expected).sum((0, 1)), rtol=1e-12)
    step = 1e-6 * RANDOM.standard_normal(x.shape)
    change = (norm(x + step, gain, bias, epsilon=1e-3) - norm(x - step, gain, bias, epsilon=1e-3)) / 2
    numpy.testing.assert_allclose((dx * step).sum(), (dy * change).sum(), rtol=1e-6)
    assert norm.infer(x, gain, bias) == [((3, 5, 8), numpy.dtype("f8"))]
    assert norm(x, gain, None, epsilon=1e-3).shape == x.shape


def test_segment_pool_with_words():
    x = RANDOM.standard_normal((6, 2)).astype("f4")
    y = hark.op("segment_pool")(x, numpy.array([0, 4, 6]), kind="max", slots=1)
    assert numpy.array_equal(y[:, 0], [x[:4].max(0), x[4:].max(0)])


def test_positional_table_of_a_text():
    parameters = numpy.log(numpy.array([[1.0, 3.0]]))  # height and length
    table = hark.op("positional")(parameters, text="decay", distances=5)
    assert table.shape == (1, 5) and table[0, 0] == 0 and numpy.all(numpy.diff(table[0]) < 0)


def test_attention_record_equals_hark_attention():
    q, k, v = (RANDOM.standard_normal((2, 9, 12)) for _ in range(3))
    desc = {"type": 2, "batch": 2, "heads": 3, "query_length": 9, "key_length": 9, "head_dim": 4, "causal": True}
    y = hark.op("attention")(q, k, v, own=desc)
    heads = [x.reshape(2, 9, 3, 4).transpose(0, 2, 1, 3) for x in (q, k, v)]
    assert numpy.array_equal(y, hark.attention(*heads, causal=True).transpose(0, 2, 1, 3).reshape(2, 9, 12))


def test_adamw_changes_its_inputs():
    w, g, m, v = numpy.ones(3), numpy.ones(3), numpy.zeros(3), numpy.zeros(3)
    hark.op("adamw")(w, g, m, v, rate=0.1)
    numpy.testing.assert_allclose(w, 0.9, rtol=1e-6)


def test_numbers_in_bf16():
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x, weight = RANDOM.standard_normal((5, 7)).astype("f4"), RANDOM.standard_normal((3, 7)).astype(bfloat16)
    assert hark.op("round_bf16").infer(x) == [((5, 7), numpy.dtype(bfloat16))]
    rounded = hark.op("round_bf16")(x)
    assert rounded.dtype == bfloat16 and numpy.array_equal(rounded, x.astype(bfloat16))
    y, vjp = hark.op("linear_bf16").vjp(rounded, weight)
    numpy.testing.assert_allclose(y, rounded.astype("f8") @ weight.astype("f8").T, rtol=1e-5, atol=1e-5)
    dy = RANDOM.integers(-4, 5, y.shape).astype("f4")
    dx, dweight = vjp(dy)
    assert dx.dtype == dweight.dtype == "f4"
    numpy.testing.assert_allclose(dx, dy @ weight.astype("f8"), rtol=1e-5, atol=1e-5)
    numpy.testing.assert_allclose(dweight, dy.T @ rounded.astype("f8"), rtol=1e-5, atol=1e-5)


def test_a_missing_type_is_named(monkeypatch):
    monkeypatch.delitem(_library.DTYPE_OF_TYPE, _library.BF16, raising=False)
    for call in (hark.op("round_bf16"), hark.op("round_bf16").infer):
        with pytest.raises(TypeError, match="round_bf16: bfloat16"):
            call(numpy.ones(3, "f4"))


@pytest.mark.parametrize("dtype", ["f2", "i1"])
def test_compact_tables_and_weights(dtype):
    table = RANDOM.integers(-100, 101, (6, 8)).astype(dtype)
    scale = numpy.linspace(0.1, 0.6, 6, dtype="f4") if dtype == "i1" else None
    dense = table.astype("f4") if scale is None else table * scale[:, None]
    ids, x = numpy.array([4, 0, 5], "i4"), RANDOM.standard_normal((2, 8)).astype("f4")
    numpy.testing.assert_allclose(hark.op("embedding_compact")(ids, table, scale), dense[ids], rtol=1e-6)
    y, expected = hark.op("linear_compact")(x, table, scale), x @ dense.T
    numpy.testing.assert_allclose(y, expected, atol=(0.02 if scale is not None else 1e-5) * abs(expected).max())


def test_gradients_of_one_call_are_apart():
    x = RANDOM.standard_normal(4)
    run = _operators._Run(hark.op("gelu"), [x], {})
    run.forward()
    before = bytes(run.call)
    run.backward([numpy.ones(4)])
    assert bytes(run.call) == before


@pytest.mark.parametrize(
    "name, inputs, attributes, kind, text",
    [
        ("nothing", [], {}, ValueError, "nothing"),
        ("gelu", [numpy.ones(3)], {"tanh": True}, TypeError, "tanh"),
        ("gelu", [numpy.ones(3)], {"tanh_approximation": 1.5}, TypeError, "tanh_approximation"),
        ("gelu", [], {}, TypeError, "inputs"),
        ("gelu", [numpy.ones(3, "c8")], {}, TypeError, "input 0"),
        ("pool", [numpy.ones((1, 2, 3))], {"kind": "median"}, ValueError, "median"),
        ("add", [numpy.ones(3), numpy.ones(4)], {}, ValueError, "add"),
        ("dropout", [numpy.ones(3)], {"stream": {"key": 1}}, TypeError, "stream"),
        ("gather_rows", [numpy.ones((3, 2)), numpy.zeros(1, "i4")], {"leading": 2**40}, ValueError, "leading"),
    ],
)
def test_wrong_calls_are_named(name, inputs, attributes, kind, text):
    with pytest.raises(kind, match=text):
        hark.op(name)(*inputs, **attributes)
