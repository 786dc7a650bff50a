"""hark.attention and its gradients: the bits of hark attend, the definition in float64, and wrong arguments."""

import numpy
import pytest
from _contextual import contextual_attention
from _files import attend

import hark

B, H, HKV, L, D, DV = 2, 4, 2, 40, 6, 5


def tensors(dtype="f4", queries=L, keys=L, seed=1):
    random = numpy.random.default_rng(seed)
    shapes = {"q": (B, H, queries, D), "k": (B, HKV, keys, D), "v": (B, HKV, keys, DV), "dout": (B, H, queries, DV)}
    return {name: random.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}


def extra(name, dtype="f4"):
    random = numpy.random.default_rng(7)
    return {
        "attention_bias": random.standard_normal((1, H, L, L)).astype(dtype),
        "mask": (random.random((B, 1, L, L)) < 0.8).astype("u1"),
        "log_kernel": -numpy.abs(random.standard_normal((H, 127))).astype(dtype),
        "forget": random.standard_normal((B, H, L)).astype(dtype) + 2,
        "key_lengths": numpy.array([L, L - 7]),
        "segments": numpy.repeat([[0, 1, 2, -1]], L // 4, 1).reshape(1, L).repeat(B, 0),
        "hierarchical_bias": random.standard_normal((1, 31)).astype(dtype),
        "contextual": random.standard_normal((H, 9, D)).astype(dtype),
        "chunk_starts": numpy.isin(numpy.arange(L), [0, 5, 9, 16, 20, 31])[None].repeat(B, 0),
    }[name]


# Arguments of hark.attention, options of hark attend, names of more tensors.
CASES = {
    "dense": ({}, [], []),
    "causal": ({"causal": True}, ["--causal"], []),
    "scale": ({"scale": 0.25}, ["--scale", "0.25"], []),
    "window": ({"structure": "window", "window": 5}, ["--structure", "window", "--window", "5"], []),
    "hierarchical": ({"structure": "hierarchical", "hierarchy_block": 8}, ["--structure", "hierarchical", "--hierarchy-block", "8"], []),
    "sibling": (
        {"structure": "hierarchical", "partition": "sibling", "causal": True},
        ["--structure", "hierarchical", "--partition", "sibling", "--causal"],
        [],
    ),
    "exact": (
        {"structure": "hierarchical", "hierarchy_block": 4, "coarse_query": "exact"},
        ["--structure", "hierarchical", "--hierarchy-block", "4", "--coarse-query", "exact"],
        [],
    ),
    "levels": (
        {"structure": "hierarchical", "hierarchy_block": 8, "causal": True},
        ["--structure", "hierarchical", "--hierarchy-block", "8", "--causal"],
        ["hierarchical_bias", "log_kernel"],
    ),
    "picture": (
        {"structure": "hierarchical", "hierarchy_block": 4, "grid_columns": 3},
        ["--structure", "hierarchical", "--hierarchy-block", "4", "--grid-columns", "3"],
        ["key_lengths"],
    ),
    "compressed": (
        {"structure": "compressed", "causal": True, "chunk": 4, "chunk_slots": 2, "selected_slots": 3, "kept_chunks": 4, "global_slots": 2},
        ["--structure", "compressed", "--causal", "--chunk", "4", "--chunk-slots", "2", "--selected-slots", "3", "--kept-chunks", "4"]
        + ["--global-slots", "2"],
        ["key_lengths"],
    ),
    "chunk starts": (
        {"structure": "compressed", "causal": True, "chunk": 4, "chunk_slots": 2, "selected_slots": 2},
        ["--structure", "compressed", "--causal", "--chunk", "4", "--chunk-slots", "2", "--selected-slots", "2"],
        ["chunk_starts"],
    ),
    "rbf": ({"kernel": "rbf", "sigma": 1.5}, ["--kernel", "rbf", "--sigma", "1.5"], []),
    "bias": ({}, [], ["attention_bias", "mask"]),
    "kernel": ({"causal": True}, ["--causal"], ["log_kernel", "forget"]),
    "directed": ({"directed_kernel": True}, ["--directed-kernel"], ["log_kernel"]),
    "directed levels": (
        {"structure": "hierarchical", "hierarchy_block": 8, "directed_kernel": True},
        ["--structure", "hierarchical", "--hierarchy-block", "8", "--directed-kernel"],
        ["hierarchical_bias", "log_kernel"],
    ),
    "contextual": ({"causal": True}, ["--causal"], ["contextual", "attention_bias", "forget"]),
    "contextual window": (
        {"causal": True, "structure": "window", "window": 17},
        ["--causal", "--structure", "window", "--window", "17"],
        ["contextual", "key_lengths"],
    ),
    "lengths": ({}, [], ["key_lengths"]),
    "segments": ({"causal": True}, ["--causal"], ["segments"]),
    "dropout": ({"dropout": 0.3, "seed": 5}, ["--dropout", "0.3", "--seed", "5"], []),
}
OF_FILE = {"query": "dq", "key": "dk", "value": "dv"}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("case", CASES)
def test_bits_of_hark_attend(case, dtype, tmp_path):
    words, options, names = CASES[case]
    given = tensors(dtype)
    more = {name: extra(name, dtype) for name in names}
    expected = attend(tmp_path, {**given, **more}, *options)
    (out, rows), vjp = hark.attention_vjp(given["q"], given["k"], given["v"], return_log_sum_exp=True, **words, **more)
    assert numpy.array_equal(out, expected["out"])
    assert numpy.array_equal(rows, expected["log_sum_exp"])
    gradients = vjp(given["dout"])
    assert set(gradients) == {"query", "key", "value"} | (set(names) - {"mask", "key_lengths", "segments", "chunk_starts"})
    for name, gradient in gradients.items():
        assert numpy.array_equal(gradient, expected[OF_FILE.get(name, "d" + name)]), name
    assert numpy.array_equal(hark.attention(given["q"], given["k"], given["v"], **words, **more), expected["out"])


def test_definition_of_directed_kernels():
    given = tensors("f8", queries=9, keys=12)
    table = numpy.random.default_rng(5).standard_normal((H, 23))
    key, value = given["k"].repeat(H // HKV, 1), given["v"].repeat(H // HKV, 1)
    logits = given["q"] @ key.transpose(0, 1, 3, 2) / D**0.5 + table[:, 11 + numpy.arange(9)[:, None] - numpy.arange(12)]
    weights = numpy.exp(logits - logits.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ value
    found = hark.attention(given["q"], given["k"], given["v"], log_kernel=table, directed_kernel=True)
    numpy.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    for words, match in (({"causal": True}, "causal"), ({"normalisation": "cme", "ridge": 1.0}, "cme")):
        with pytest.raises(ValueError, match=f"directed_kernel is 1 with .*{match}"):
            hark.attention(given["q"], given["k"], given["v"], log_kernel=table, directed_kernel=True, **words)
    with pytest.raises(ValueError, match="odd number"):
        hark.attention(given["q"], given["k"], given["v"], log_kernel=table[:, 1:], directed_kernel=True)
    with pytest.raises(ValueError, match="without has_log_kernel"):
        hark.attention(given["q"], given["k"], given["v"], directed_kernel=True)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bits_of_hark_attend_with_kernel_ridge(dtype, tmp_path):
    given = tensors(dtype)
    options = ["--normalisation", "cme", "--kernel", "rbf", "--sigma", "1.5", "--ridge", "0.5"]
    expected = attend(tmp_path, given, *options)
    ridge, sigma = numpy.array([0.5], dtype), numpy.array([1.5], dtype)
    (out, variance), vjp = hark.attention_vjp(
        given["q"], given["k"], given["v"], normalization="cme", kernel="rbf", sigma=sigma, ridge=ridge, return_variance=True
    )
    assert numpy.array_equal(out, expected["out"])
    assert numpy.array_equal(variance, expected["variance"])
    for name, gradient in vjp(given["dout"]).items():
        assert numpy.array_equal(gradient, expected[OF_FILE.get(name, "d" + name)]), name


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bits_of_the_gradient_of_sigma(dtype, tmp_path):
    given = tensors(dtype)
    expected = attend(tmp_path, given, "--kernel", "rbf", "--sigma", "1.5")["dsigma"]
    assert expected.dtype == dtype and expected != 0
    rows = {name: numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for name, x in given.items()}
    for x in (given, rows):
        _, vjp = hark.attention_vjp(x["q"], x["k"], x["v"], kernel="rbf", sigma=numpy.array([1.5], dtype))
        assert numpy.array_equal(vjp(x["dout"])["sigma"], expected)


def test_gradient_of_sigma_is_that_of_differences():
    given = tensors("f8")

    def loss(sigma):
        return (hark.attention(given["q"], given["k"], given["v"], kernel="rbf", sigma=sigma) * given["dout"]).sum()

    _, vjp = hark.attention_vjp(given["q"], given["k"], given["v"], kernel="rbf", sigma=numpy.array([1.5]))
    expected = (loss(1.5 + 1e-5) - loss(1.5 - 1e-5)) / 2e-5
    numpy.testing.assert_allclose(vjp(given["dout"])["sigma"], expected, rtol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_reference(case):
    words, _, names = CASES[case]
    given = tensors("f8")
    more = {name: extra(name, "f8") for name in names}
    out, vjp = hark.attention_vjp(given["q"], given["k"], given["v"], **words, **more)
    expected, reference = hark.reference.attention_vjp(given["q"], given["k"], given["v"], **words, **more)
    numpy.testing.assert_allclose(out, expected, rtol=1e-11, atol=1e-12)
    for name, gradient in reference(given["dout"]).items():
        numpy.testing.assert_allclose(vjp(given["dout"])[name], gradient, rtol=1e-10, atol=1e-11, err_msg=name)


def test_definition():
    given = tensors("f8", keys=23)
    q, k, v = given["q"], *(numpy.repeat(given[name], H // HKV, 1) for name in "kv")
    weights = numpy.exp(numpy.einsum("bhnd,bhid->bhni", q, k) / numpy.sqrt(D))
    expected = weights @ v / weights.sum(-1, keepdims=True)
    numpy.testing.assert_allclose(hark.reference.attention(q, given["k"], given["v"]), expected, rtol=1e-12)


@pytest.mark.parametrize("tables, queries, window", [(H, L, None), (1, L, 9), (H, 7, None), (1, 1, 5)])
def test_definition_of_contextual_positions(tables, queries, window):
    """Values, and the gradient of the table, in which they are not linear, by differences."""
    given = tensors("f8", queries=queries)
    random = numpy.random.default_rng(9)
    table, direction = random.standard_normal((2, tables, 11, D))
    words = {"causal": True, **({"structure": "window", "window": window} if window else {})}
    three = given["q"], given["k"], given["v"]
    out, vjp = hark.attention_vjp(*three, contextual=table, **words)
    numpy.testing.assert_allclose(out, contextual_attention(*three, table, window), rtol=1e-11, atol=1e-12)
    gradient = vjp(given["dout"])["contextual"]
    ahead, back = (contextual_attention(*three, table + step * direction, window) for step in (1e-6, -1e-6))
    assert gradient.shape == table.shape
    numpy.testing.assert_allclose((gradient * direction).sum(), ((ahead - back) * given["dout"]).sum() / 2e-6, rtol=1e-7)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_tables_of_contextual_positions_in_other_forms(dtype):
    """[N, d] as [1, N, d]; a repeated table as one for every head, whose gradients are those of separate tables; a table of columns."""
    given, table = tensors(dtype), extra("contextual", dtype)[:1]
    three = given["q"], given["k"], given["v"]
    forms = {
        "one": table,
        "flat": table[0],
        "columns": numpy.asfortranarray(table),
        "every other row": numpy.repeat(table, 2, 1)[:, ::2],
        "repeated": numpy.broadcast_to(table, (H, *table.shape[1:])),
    }
    results = {name: hark.attention_vjp(*three, contextual=x, causal=True) for name, x in forms.items()}
    gradients = {name: vjp(given["dout"])["contextual"] for name, (_, vjp) in results.items()}
    for name, x in forms.items():
        assert numpy.array_equal(results[name][0], results["one"][0]), name
        assert gradients[name].shape == x.shape
        total = gradients[name].sum(0, keepdims=True) if name == "repeated" else gradients[name].reshape(table.shape)
        numpy.testing.assert_allclose(total, gradients["one"], rtol=2e-4 if dtype == "f4" else 1e-10, atol=1e-4 if dtype == "f4" else 1e-12)


def test_strides_need_no_copy():
    given = tensors()
    expected = hark.attention(given["q"], given["k"], given["v"], causal=True)
    rows = {name: numpy.ascontiguousarray(given[name].transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for name in "qkv"}
    assert numpy.array_equal(hark.attention(rows["q"], rows["k"], rows["v"], causal=True), expected)
    reversed_rows = given["k"][:, :, ::-1]  # negative strides are copied
    again = numpy.ascontiguousarray(reversed_rows)
    assert numpy.array_equal(hark.attention(given["q"], reversed_rows, given["v"]), hark.attention(given["q"], again, given["v"]))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_halves(name):
    dtype = numpy.dtype(name) if name == "float16" else numpy.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    q, k, v = (tensors()[x].astype(dtype) for x in "qkv")
    out = hark.attention(q, k, v)
    assert out.dtype == dtype
    assert numpy.array_equal(out, hark.attention(*(x.astype("f4") for x in (q, k, v))).astype(dtype))


def test_packed_batches():
    given = tensors(seed=3)
    one = {name: given[name][:1] for name in "qkv"}
    packed = hark.attention(one["q"], one["k"], one["v"], causal=True, offsets=[0, 13, L])
    for first, last in ((0, 13), (13, L)):
        alone = hark.attention(*(one[name][:, :, first:last] for name in "qkv"), causal=True)
        numpy.testing.assert_allclose(packed[:, :, first:last], alone, rtol=2e-6, atol=2e-6)


WRONG = [
    ({"structure": "sparse"}, ValueError, "structure"),
    ({"structure": 3}, TypeError, "structure"),
    ({"causal": "no"}, TypeError, "causal"),
    ({"directed_kernel": 2}, TypeError, "directed_kernel"),
    ({"grid_columns": 3}, ValueError, "grid_columns has no effect without structure 'hierarchical'"),
    ({"structure": "hierarchical", "grid_columns": -3}, ValueError, "grid_columns is -3"),
    ({"structure": "hierarchical", "grid_columns": 3, "hierarchy_block": 8}, ValueError, "hierarchy_block is 8 with grid_columns"),
    ({"structure": "hierarchical", "grid_columns": 1.5}, TypeError, "grid_columns is 1.5"),
    ({"chunk": 4}, ValueError, "chunk has no effect without structure 'compressed'"),
    ({"global_slots": 0}, ValueError, "global_slots has no effect without structure 'compressed'"),
    ({"structure": "compressed", "causal": True}, ValueError, "structure 'compressed' needs chunk"),
    ({"structure": "compressed", "chunk": 4}, ValueError, "without causal|causal is"),
    ({"structure": "compressed", "causal": True, "chunk": 0}, ValueError, "chunk is 0"),
    ({"structure": "compressed", "causal": True, "chunk": 4, "chunk_slots": 5}, ValueError, "chunk_slots is 5"),
    ({"structure": "compressed", "causal": True, "chunk": 4, "chunk_slots": 0}, ValueError, "chunk_slots is 0"),
    ({"structure": "compressed", "causal": True, "chunk": 4, "selected_slots": 0}, ValueError, "selected_slots is 0"),
    ({"structure": "compressed", "causal": True, "chunk": 4, "global_slots": 2}, ValueError, "kept_chunks"),
    ({"structure": "compressed", "causal": True, "chunk": 4, "selected_slots": 1.5}, TypeError, "selected_slots"),
    ({"structure": "compressed", "causal": True, "chunk": 4, "chunk_starts": numpy.ones((B, L), bool)}, ValueError, "row 1"),
    ({"structure": "compressed", "causal": True, "chunk": 1, "chunk_starts": numpy.ones((B, L), "i8")}, TypeError, "chunk_starts"),
    ({"structure": "compressed", "causal": True, "chunk": 1, "chunk_starts": numpy.ones((B, L + 1), bool)}, ValueError, "chunk_starts"),
    ({"chunk_starts": numpy.ones((B, L), bool)}, ValueError, "chunk_starts"),
    ({"window": 3}, ValueError, "window"),
    ({"structure": "window"}, ValueError, "window"),
    ({"kernel": "rbf"}, ValueError, "sigma"),
    ({"sigma": 1.0}, ValueError, "sigma"),
    ({"partition": "sibling"}, ValueError, "partition"),
    ({"scale": "x"}, TypeError, "scale"),
    ({"colour": 1}, TypeError, "colour"),
    ({"normalisation": "cme"}, ValueError, "ridge"),
    ({"mask": numpy.ones((L, L))}, TypeError, "mask"),
    ({"mask": numpy.ones((L + 1, L), bool)}, ValueError, "mask"),
    ({"attention_bias": numpy.ones((L, L))}, TypeError, "attention_bias"),
    ({"key_lengths": [1.5, 2]}, TypeError, "key_lengths"),
    ({"key_lengths": [1]}, ValueError, "key_lengths"),
    ({"key_lengths": [1, L + 1]}, ValueError, "key_lengths"),
    ({"dropout": 1.0}, ValueError, "dropout"),
    ({"seed": -1}, ValueError, "seed"),
    ({"forget": numpy.ones((B, H, L), "f4")}, ValueError, "forget"),
    ({"contextual": numpy.ones((1, 8, D), "f4")}, ValueError, "causal"),
    ({"contextual": numpy.ones((1, 8, D), "f4"), "causal": True, "structure": "hierarchical"}, ValueError, "contextual"),
    ({"contextual": numpy.ones((1, 8, D), "f8"), "causal": True}, TypeError, "contextual"),
    ({"contextual": numpy.ones((1, 1, D), "f4"), "causal": True}, ValueError, "contextual"),
    ({"contextual": numpy.ones((1, 8, D + 1), "f4"), "causal": True}, ValueError, "contextual"),
    ({"contextual": numpy.ones((3, 8, D), "f4"), "causal": True}, ValueError, "contextual"),
    ({"contextual": numpy.ones((1, 1, 8, D), "f4"), "causal": True}, ValueError, "contextual"),
    ({"return_variance": True}, ValueError, "return_variance"),
]


@pytest.mark.parametrize("words, kind, name", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_arguments_are_named(words, kind, name):
    given = tensors()
    with pytest.raises(kind, match=name):
        hark.attention(given["q"], given["k"], given["v"], **words)


def test_wrong_tensors_are_named():
    given = tensors()
    with pytest.raises(ValueError, match="key"):
        hark.attention(given["q"], given["k"][0], given["v"])
    with pytest.raises(ValueError, match="value"):
        hark.attention(given["q"], given["k"], given["v"][:, :, 1:])
    with pytest.raises(TypeError, match="key"):
        hark.attention(given["q"], given["k"].astype("f8"), given["v"])
    with pytest.raises(TypeError, match="query"):
        hark.attention(given["q"].astype("i4"), given["k"], given["v"])
    with pytest.raises(TypeError, match="complex"):
        hark.attention(given["q"].astype("c8"), given["k"], given["v"])


def test_not_finite_is_an_arithmetic_error():
    given = tensors()
    given["k"][0, 0, 3, 0] = numpy.nan
    with pytest.raises(FloatingPointError, match="key"):
        hark.attention(given["q"], given["k"], given["v"], normalisation="cme", ridge=0.5)


def test_numbers_of_threads_have_the_same_bits():
    given = tensors()
    try:
        results = []
        for count in (1, 2):
            hark.set_threads(count)
            assert hark.threads() == count
            results.append(hark.attention(given["q"], given["k"], given["v"]))
        assert numpy.array_equal(*results)
    finally:
        hark.set_threads(0)
    with pytest.raises(TypeError):
        hark.set_threads(1.5)
