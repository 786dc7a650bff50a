"""hark.torch.attention: gradients, the bits of hark.attention, PyTorch's own attention, transformations, wrong arguments."""

import inspect
import itertools

import numpy
import pytest
from _contextual import contextual_attention

torch = pytest.importorskip("torch")
import hark  # noqa: E402
import hark.torch  # noqa: E402
from hark._attention import HOST, INPUTS, options  # noqa: E402

torch.set_num_threads(1)  # of small tensors; test_torch_threads.py is about threads
attention = hark.torch.attention
sdpa = torch.nn.functional.scaled_dot_product_attention
B, H, HKV, L, D, DV = 2, 2, 1, 12, 3, 2


def rows(dtype=torch.float64, heads=H, key_heads=H, length=L, keys=None, width=D, values=D, seed=0, requires_grad=True):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, heads, length, width), (B, key_heads, keys or length, width), (B, key_heads, keys or length, values))
    return [torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_(requires_grad) for shape in shapes]


def random(*shape, seed=5):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


STRUCTURES = {
    "dense": {},
    "window": {"structure": "window", "window": 3},
    "neighbour": {"structure": "hierarchical", "hierarchy_block": 2},
    "sibling": {"structure": "hierarchical", "hierarchy_block": 4, "partition": "sibling"},
    "exact": {"structure": "hierarchical", "hierarchy_block": 2, "coarse_query": "exact"},
    "mean": {"structure": "hierarchical", "hierarchy_block": 2, "coarse_query": "mean"},
    "first": {"structure": "hierarchical", "hierarchy_block": 2, "coarse_query": "first"},
    "linear": {"structure": "hierarchical", "hierarchy_block": 2, "interpolation": "linear"},
    "picture": {"structure": "hierarchical", "hierarchy_block": 4, "grid_columns": 3},
    "compressed": {"structure": "compressed", "chunk": 2, "selected_slots": 2, "kept_chunks": 2, "global_slots": 1},
    "cme": {"normalisation": "cme"},
    "stick": {"normalisation": "stick_breaking"},
}
KERNELS = {"exp": {}, "rbf": {"kernel": "rbf"}}
NEEDS = {"cme": {"ridge": 0.5}, "stick": {"causal": True}, "compressed": {"causal": True}}
TERMS = (
    *("none", "log_kernel", "directed_kernel", "attention_bias", "mask", "forget", "hierarchical_bias", "contextual"),
    *("key_lengths", "segments", "offsets", "dropout", "chunk_starts"),
)


def table_of(structure):
    return 4 * STRUCTURES[structure].get("hierarchy_block", 2) - 1


def term(name, structure):
    """(words, differentiable tensors by name) of a term."""
    if name == "log_kernel":
        return {}, {"log_kernel": torch.outer(torch.linspace(-0.3, -0.1, H), torch.arange(32)).double()}  # positive definite, as cme needs
    if name == "directed_kernel":
        return {"directed_kernel": True}, {"log_kernel": -random(H, 63).abs()}
    if name == "attention_bias":
        return {}, {"attention_bias": random(1, H, L, L)}
    if name == "mask":
        visible = torch.ones(B, 1, 1, L, dtype=torch.bool)
        visible[1, :, :, 3:5] = False
        return {"mask": visible}, {}
    if name == "forget":
        return {}, {"forget": random(B, H, L) + 1}
    if name == "hierarchical_bias":
        return {}, {"hierarchical_bias": random(H, table_of(structure))}
    if name == "contextual":
        return {}, {"contextual": random(H, 5, D)}
    if name == "key_lengths":
        return {"key_lengths": torch.tensor([L, L - 5])}, {}
    if name == "segments":
        return {"segments": torch.tensor([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4])}, {}
    if name == "chunk_starts":
        return {"chunk_starts": torch.isin(torch.arange(L), torch.tensor([0, 2, 5, 9]))}, {}
    if name == "dropout":
        return {"dropout": 0.3, "seed": 11}, {}
    return {}, {}


def allowed(structure, name, causal) -> bool:
    hierarchical = STRUCTURES[structure].get("structure") == "hierarchical"
    if name == "chunk_starts" and structure != "compressed":
        return False
    if structure == "compressed":
        return causal and name in ("none", "mask", "key_lengths", "segments", "offsets", "dropout", "chunk_starts")
    if structure == "stick" and not causal:
        return False
    if structure == "picture" and (causal or name in ("log_kernel", "directed_kernel", "hierarchical_bias")):
        return False
    if name == "directed_kernel":
        return not causal and structure not in ("cme", "stick")
    if name == "forget":
        return causal and not hierarchical and structure != "cme"
    if structure in ("mean", "linear") and causal:
        return False  # refused: they would depend on later rows
    if name == "contextual":
        return causal and structure in ("dense", "window")
    if name == "hierarchical_bias":
        return hierarchical
    if name == "attention_bias":
        return not hierarchical and structure != "cme"
    return not (structure == "cme" and name == "dropout")


CASES = [
    case
    for case in itertools.product(STRUCTURES, KERNELS, TERMS, (False, True))
    if allowed(case[0], case[2], case[3]) and case[:2] not in (("stick", "rbf"), ("compressed", "rbf")) and case[1:3] != ("rbf", "contextual")
]


@pytest.mark.parametrize("structure, kernel, name, causal", CASES, ids=["-".join(map(str, c)) for c in CASES])
def test_gradients(structure, kernel, name, causal):
    """gradcheck in float64, with grouped heads and values of another width."""
    words, tensors = term(name, structure)
    words = {**STRUCTURES[structure], **KERNELS[kernel], **words, "causal": causal}
    if kernel == "rbf":
        tensors["sigma"] = torch.tensor([1.3], dtype=torch.float64)
    if structure == "cme":
        tensors["ridge"] = torch.full((H,), 0.7, dtype=torch.float64)
    q, k, v = rows(key_heads=HKV, values=DV, seed=3)
    if name == "offsets":
        q, k, v = [x[:1].detach().clone().requires_grad_() for x in (q, k, v)]
        words["offsets"] = torch.tensor([0, 5, L])
    names = list(tensors)
    given = [q, k, v, *[x.requires_grad_() for x in tensors.values()]]

    def run(q, k, v, *rest):
        return attention(q, k, v, **words, **dict(zip(names, rest)))

    assert torch.autograd.gradcheck(run, given, eps=1e-6, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_of_the_gradient_of_sigma(dtype):
    q, k, v = rows(dtype, key_heads=HKV, values=DV)
    sigma = torch.tensor([1.3], dtype=dtype, requires_grad=True)
    out = attention(q, k, v, kernel="rbf", sigma=sigma)
    dout = torch.randn(out.shape, dtype=dtype, generator=torch.Generator().manual_seed(9))
    arrays = [x.detach().numpy() for x in (q, k, v)]
    _, vjp = hark.attention_vjp(*arrays, kernel="rbf", sigma=sigma.detach().numpy())
    (gradient,) = torch.autograd.grad(out, sigma, dout)
    assert numpy.array_equal(gradient.numpy(), vjp(dout.numpy())["sigma"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_bits_of_numpy(structure, dtype):
    words = dict(STRUCTURES[structure], **NEEDS.get(structure, {}))
    q, k, v = rows(dtype, key_heads=HKV, values=DV)
    out = attention(q, k, v, **words)
    dout = torch.randn(out.shape, dtype=dtype, generator=torch.Generator().manual_seed(9))
    expected, vjp = hark.attention_vjp(*[x.detach().numpy() for x in (q, k, v)], **words)
    assert numpy.array_equal(out.detach().numpy(), expected)
    gradients = vjp(dout.numpy())
    for name, gradient in zip(("query", "key", "value"), torch.autograd.grad(out, (q, k, v), dout)):
        assert numpy.array_equal(gradient.numpy(), gradients[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tables", [1, H])
def test_contextual_positions(tables, dtype):
    """The definition, and the bits of NumPy's gradients."""
    q, k, v = rows(dtype, key_heads=HKV, values=DV)
    table = random(tables, 5, D).to(dtype).requires_grad_()
    out = attention(q, k, v, contextual=table, causal=True)
    dout = torch.randn(out.shape, dtype=dtype, generator=torch.Generator().manual_seed(9))
    arrays = [x.detach().numpy() for x in (q, k, v, table)]
    bound = 1e-5 if dtype is torch.float32 else 1e-12
    numpy.testing.assert_allclose(out.detach(), contextual_attention(*[x.astype("f8") for x in arrays]), rtol=bound, atol=bound)
    _, vjp = hark.attention_vjp(*arrays[:3], contextual=arrays[3], causal=True)
    gradients = vjp(dout.numpy())
    for name, gradient in zip(("query", "key", "value", "contextual"), torch.autograd.grad(out, (q, k, v, table), dout)):
        assert numpy.array_equal(gradient.numpy(), gradients[name]), name


@pytest.mark.parametrize("name", ["contextual", "log_kernel", "hierarchical_bias"])
def test_tables_may_be_repeated(name):
    """A table for all heads, or of one value, by expand(): results and gradients of the table written out."""
    given = {"contextual": random(1, 1, D), "log_kernel": -random(1, 1).abs(), "hierarchical_bias": random(1, 1)}[name]
    shape = {"contextual": (H, 5, D), "log_kernel": (H, 64), "hierarchical_bias": (H, 7)}[name]
    words = {"causal": True, **(STRUCTURES["neighbour"] if name == "hierarchical_bias" else {})}
    q, k, v = rows()
    results = []
    for form in (lambda x: x.expand(shape), lambda x: x.expand(shape).clone()):
        table = given.clone().requires_grad_()
        out = attention(q, k, v, **words, **{name: form(table)})
        results.append((out, torch.autograd.grad(out.square().sum(), table)[0]))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "causal, lengths, mask, grouped, scale",
    [
        (False, (L, L), None, False, None),
        (True, (L, L), None, False, None),
        (True, (L, L + 4), None, False, None),
        (True, (L + 4, L), None, False, None),
        (False, (L, 7), "bool", False, None),
        (False, (L, L), "float", False, None),
        (False, (L, L), None, True, None),
        (False, (L, L), "expanded", True, 0.3),
        (True, (L, L), None, True, 0.1),
    ],
)
def test_equals_sdpa(causal, lengths, mask, grouped, scale):
    q, k, v = rows(torch.float32, length=lengths[0], keys=lengths[1], key_heads=HKV if grouped else H, width=16, values=8)
    given = {
        "bool": random(B, 1, *lengths) < 0.8,
        "float": random(lengths[0], lengths[1]).float().requires_grad_(),
        "expanded": random(1, H, 1, lengths[1]).float().requires_grad_(),
        None: None,
    }[mask]
    used = given.expand(B, H, *lengths) if mask == "expanded" else given
    results = []
    for function in (hark.torch.scaled_dot_product_attention, sdpa):
        out = function(q, k, v, used, is_causal=causal, scale=scale, enable_gqa=grouped)
        wrt = [q, k, v] + ([given] if mask in ("float", "expanded") else [])
        results.append([out, *torch.autograd.grad((out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum(), wrt)])
    for a, b in zip(*results):
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


@pytest.mark.parametrize("shape", [(L, D), (H, L, D), (2, B, H, L, D)])
def test_sdpa_of_other_ranks(shape):
    q, k, v = (torch.randn(shape, generator=torch.Generator().manual_seed(i)) for i in range(3))
    torch.testing.assert_close(
        hark.torch.scaled_dot_product_attention(q, k, v, is_causal=True), sdpa(q, k, v, is_causal=True), rtol=1e-5, atol=1e-6
    )


def test_dropout_of_sdpa_follows_the_generator():
    q, k, v = rows(torch.float32)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(hark.torch.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_rows_of_heads_together_are_used_in_place():
    """[B, L, H, d] transposed: the same bits, and results laid out alike."""
    q, k, v = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in rows(torch.float32)]
    out = attention(q, k, v, causal=True)
    assert out.stride() == q.stride()
    plain = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]
    expected = attention(*plain, causal=True)
    assert torch.equal(out, expected)
    weight = torch.linspace(-1, 1, out.numel()).view(out.shape)
    for a, b in zip(torch.autograd.grad((out * weight).sum(), (q, k, v)), torch.autograd.grad((expected * weight).sum(), plain)):
        assert torch.equal(a, b) and a.stride() == q.stride()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype):
    q, k, v = rows(dtype)
    out = attention(q, k, v)
    assert out.dtype is dtype
    assert torch.equal(out, attention(q.float(), k.float(), v.float()).to(dtype))
    assert torch.autograd.grad(out.sum(), q)[0].dtype is dtype


def test_autocast():
    q, k, v = rows(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(q, k.to(torch.bfloat16), v)
        raw = torch.ops.hark.attention(q.to(torch.bfloat16), k, v, *ABSENT, *hark.torch._registered.words(PLAIN), 0, False, False)[0]
    assert out.dtype is torch.bfloat16 and raw.dtype is torch.float32


ABSENT = [None] * (len(INPUTS) - 3 + len(HOST))


def schema_words(**given):
    """The words of the operator's schema, in the order of options()."""
    return tuple(given.get(name, parameter.default) for name, parameter in inspect.signature(options).parameters.items())


PLAIN = schema_words()


def operator_arguments(words=PLAIN, gradients=True, **more):
    q, k, v = rows(torch.float64, key_heads=HKV, values=DV, requires_grad=gradients)
    given = {"query": q, "key": k, "value": v, **more}
    return [given.get(name) for name in (*INPUTS, *HOST)] + list(words) + [0, gradients, True]


CAUSAL = schema_words(causal=True)
HIERARCHICAL = schema_words(structure="hierarchical", causal=True, hierarchy_block=2)
COMPRESSED = schema_words(**STRUCTURES["compressed"], causal=True)
STARTS = torch.isin(torch.arange(L), torch.tensor([0, 2, 5, 9]))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # opcheck reads it
@pytest.mark.parametrize(
    "words, more",
    [
        pytest.param(PLAIN, {}, id="dense"),
        pytest.param(HIERARCHICAL, {"log_kernel": -random(H, 32).abs().requires_grad_()}, id="hierarchical"),
        pytest.param(PLAIN, {"attention_bias": random(1, H, L, L).requires_grad_()}, id="bias"),
        pytest.param(COMPRESSED, {"chunk_starts": STARTS[None]}, id="compressed"),
        pytest.param(CAUSAL, {"contextual": random(H, 5, D).requires_grad_()}, id="contextual"),
    ],
)
def test_opcheck_forward(words, more):
    torch.library.opcheck(torch.ops.hark.attention.default, operator_arguments(words, **more))


def test_vmap_and_compile_know_chunk_starts():
    words = {**STRUCTURES["compressed"], "causal": True, "chunk_starts": STARTS}
    q, k, v = rows(torch.float64, key_heads=HKV, values=DV, requires_grad=False)
    expected = attention(q, k, v, **words)
    mapped = torch.vmap(lambda q: attention(q, k, v, **words))(torch.stack([q, 2 * q]))
    assert torch.equal(mapped[0], expected)
    assert torch.equal(mapped[1], attention(2 * q, k, v, **words))
    compiled = torch.compile(lambda q: attention(q, k, v, **words), fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q), expected)


def test_opcheck_backward():
    arguments = operator_arguments(gradients=False)
    arguments[-2] = True
    out, lse, saved = torch.ops.hark.attention(*arguments)
    needs = [True] * 3 + [False] * (len(INPUTS) - 3)
    torch.library.opcheck(torch.ops.hark.attention_backward.default, [torch.ones_like(out), out, lse, saved, *arguments[:-2], needs])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(backend):
    q, k, v = rows(torch.float32)
    bias = random(1, H, L, L).float().requires_grad_()

    def run(q, k, v, bias):
        return attention(q * 2, k, v, attention_bias=bias, causal=True, return_log_sum_exp=True)[0].sin()

    compiled = torch.compile(run, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(q, k, v, bias), run(q, k, v, bias))
    for a, b in zip(
        torch.autograd.grad(compiled(q, k, v, bias).sum(), (q, k, v, bias)), torch.autograd.grad(run(q, k, v, bias).sum(), (q, k, v, bias))
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_with_contextual_positions(backend):
    q, k, v = rows(torch.float32)
    table = random(H, 5, D).float().requires_grad_()
    run = lambda *given: attention(given[0] * 2, *given[1:3], contextual=given[3], causal=True).sin()  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(q, k, v, table), run(q, k, v, table))
    of_compiled, expected = (torch.autograd.grad(f(q, k, v, table).sum(), (q, k, v, table)) for f in (compiled, run))
    for a, b in zip(of_compiled, expected):
        torch.testing.assert_close(a, b)


def test_compile_with_symbolic_lengths():
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, causal=True), fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (12, 17, 33):
        q, k, v = rows(torch.float32, length=length)
        torch.testing.assert_close(compiled(q, k, v), attention(q, k, v, causal=True))
        torch.testing.assert_close(
            torch.autograd.grad(compiled(q, k, v).sum(), q)[0], torch.autograd.grad(attention(q, k, v, causal=True).sum(), q)[0]
        )


def test_export():
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return attention(q, k, v, structure="hierarchical", hierarchy_block=2, causal=True)

    given = rows(torch.float32, requires_grad=False)
    assert torch.equal(torch.export.export(Model(), tuple(given)).module()(*given), Model()(*given))


def test_vmap_folds():
    q, k, v = (torch.randn(3, *x.shape[:1], *x.shape[1:], dtype=torch.float64) for x in rows())
    bias = random(1, H, L, L)
    run = lambda q, k, v: attention(q, k, v, attention_bias=bias, causal=True)  # noqa: E731
    expected = torch.stack([run(*x) for x in zip(q, k, v)])
    torch.testing.assert_close(torch.vmap(run)(q, k, v), expected)
    torch.testing.assert_close(torch.vmap(run, (0, None, None))(q, k[0], v[0]), torch.stack([run(x, k[0], v[0]) for x in q]))


@pytest.mark.parametrize("name", ["attention_bias", "log_kernel", "contextual"])
def test_examples_have_gradients(name):
    q, k, v = (torch.randn(3, *x.shape, dtype=torch.float64) for x in rows())
    table = {"attention_bias": random(1, H, L, L), "log_kernel": -random(H, 16).abs(), "contextual": random(1, 5, D)}[name]

    def loss(table, q, k, v):
        return attention(q, k, v, causal=True, **{name: table}).square().sum()

    per_example = torch.vmap(torch.func.grad(loss, (0, 1)), (None, 0, 0, 0))(table, q, k, v)
    for i in range(3):
        for a, b in zip(per_example, torch.func.grad(loss, (0, 1))(table, q[i], k[i], v[i])):
            torch.testing.assert_close(a[i], b)


def test_jacobian_by_vmap_over_gradients():
    q, k, v = (x.detach()[:1, :1, :4] for x in rows())
    run = lambda q: attention(q, k, v)  # noqa: E731
    torch.testing.assert_close(torch.func.jacrev(run)(q), torch.autograd.functional.jacobian(run, q))


def test_nested_tensors_are_packed_batches():
    lengths, generator = (5, 9), torch.Generator().manual_seed(0)
    parts = [[torch.randn(n, H, D, generator=generator, dtype=torch.float64) for n in lengths] for _ in range(3)]
    nested = [torch.nested.nested_tensor(x, layout=torch.jagged, requires_grad=True) for x in parts]
    out = attention(*[x.transpose(1, 2) for x in nested], causal=True)
    assert out.is_nested
    for i, piece in enumerate(out.unbind()):
        alone = attention(*[x[i].transpose(0, 1).unsqueeze(0) for x in parts], causal=True)[0]
        torch.testing.assert_close(piece, alone)
    gradient = torch.autograd.grad(out.values().sum(), nested[0])[0]
    assert gradient.is_nested and gradient.values().shape == nested[0].values().shape


def test_second_derivatives_are_refused():
    q, k, v = rows()
    (gradient,) = torch.autograd.grad(attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        gradient.sum().backward()
    torch._dynamo.reset()
    out = torch.ops.hark.attention(q, k, v, *ABSENT, *PLAIN, 0, True, False)[0]
    (gradient,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivatives"):
        gradient.sum().backward()


def test_meta_tensors_have_shapes():
    q, k, v = (x.to("meta") for x in rows(key_heads=HKV, values=DV))
    assert attention(q, k, v).shape == (B, H, L, DV)


WRONG = [
    ({"structure": "sparse"}, ValueError, "structure"),
    ({"structure": ["dense"]}, TypeError, "structure"),
    ({"window": 3}, ValueError, "window"),
    ({"kernel": "rbf"}, ValueError, "sigma"),
    ({"scale": "x"}, TypeError, "scale"),
    ({"normalisation": "cme"}, ValueError, "ridge"),
    ({"mask": torch.ones(L, L)}, TypeError, "mask"),
    ({"mask": torch.ones(L + 1, L, dtype=torch.bool)}, ValueError, "mask"),
    ({"attention_bias": torch.ones(L, L, dtype=torch.float32)}, TypeError, "attention_bias"),
    ({"key_lengths": torch.tensor([1.5, 2.0])}, TypeError, "key_lengths"),
    ({"key_lengths": [1]}, ValueError, "key_lengths"),
    ({"key_lengths": [1, L + 1]}, ValueError, "key_lengths"),
    ({"offsets": [0]}, ValueError, "offsets"),
    ({"dropout": 1.0}, ValueError, "dropout"),
    ({"seed": -1}, ValueError, "seed"),
    ({"seed": 1.5}, TypeError, "seed"),
    ({"forget": torch.ones(B, H, L, dtype=torch.float64)}, ValueError, "forget"),
    ({"contextual": torch.ones(1, 8, D, dtype=torch.float64)}, ValueError, "causal"),
    ({"contextual": torch.ones(1, 8, D, dtype=torch.float32), "causal": True}, TypeError, "contextual"),
    ({"contextual": torch.ones(1, 1, D, dtype=torch.float64), "causal": True}, ValueError, "contextual"),
    ({"contextual": torch.ones(1, 8, D + 1, dtype=torch.float64), "causal": True}, ValueError, "contextual"),
    ({"contextual": torch.ones(3, 8, D, dtype=torch.float64), "causal": True}, ValueError, "contextual"),
    ({"return_variance": True}, ValueError, "return_variance"),
    ({"sigma": torch.ones(2, dtype=torch.float64), "kernel": "rbf"}, ValueError, "sigma"),
]


@pytest.mark.parametrize("words, kind, name", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_arguments_are_named(words, kind, name):
    q, k, v = rows()
    with pytest.raises(kind, match=name):
        attention(q, k, v, **words)


def test_wrong_tensors_are_named():
    q, k, v = (x.detach() for x in rows())
    with pytest.raises(ValueError, match="key"):
        attention(q, k[0], v)
    with pytest.raises(ValueError, match="value"):
        attention(q, k, v[:, :, 1:])
    with pytest.raises(TypeError, match="key"):
        attention(q, k.float(), v)
    with pytest.raises(TypeError, match="query is torch.int64"):
        attention(q.long(), k.long(), v.long())
    with pytest.raises(TypeError, match="query is torch.complex128"):
        attention(q.to(torch.complex128), k.to(torch.complex128), v.to(torch.complex128))
    with pytest.raises(TypeError, match="query is ndarray"):
        attention(q.numpy(), k, v)
    with pytest.raises(ValueError, match="contradict"):
        hark.torch.scaled_dot_product_attention(q, k, v, torch.ones(L, L, dtype=torch.bool), is_causal=True)
    with pytest.raises(ValueError, match="enable_gqa"):
        hark.torch.scaled_dot_product_attention(q, k[:, :1], v[:, :1])


def test_other_devices_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():  # describes tensors of a GPU without one
        q = torch.empty(B, H, L, D, device="cuda")
        with pytest.raises(ValueError, match="query is on cuda"):
            attention(q, q, q)


def test_out_of_memory_is_a_memory_error():
    big = torch.zeros(8).expand(1, 1, 1 << 40, 8)
    q = torch.zeros(1, 1, 1, 8)
    with pytest.raises(MemoryError):
        attention(big, q, q)
