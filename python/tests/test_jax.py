"""hark.jax.attention: gradients, the bits of hark.attention, transformations, wrong arguments."""

import itertools

import numpy
import pytest
from _contextual import contextual_attention

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
import hark  # noqa: E402

hark_jax = pytest.importorskip("hark.jax")
import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

attention = hark_jax.attention
B, H, HKV, L, D, DV = 2, 2, 1, 12, 3, 2


def random(*shape, seed=5, dtype="f8"):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape).astype(dtype))


def rows(dtype="f8", key_heads=HKV):
    return (
        random(B, H, L, D, seed=1, dtype=dtype),
        random(B, key_heads, L, D, seed=2, dtype=dtype),
        random(B, key_heads, L, DV, seed=3, dtype=dtype),
    )


STRUCTURES = {
    "dense": {},
    "window": {"structure": "window", "window": 3},
    "neighbour": {"structure": "hierarchical", "hierarchy_block": 2},
    "sibling": {"structure": "hierarchical", "hierarchy_block": 4, "partition": "sibling"},
    "picture": {"structure": "hierarchical", "hierarchy_block": 4, "grid_columns": 3},
    "compressed": {"structure": "compressed", "chunk": 2, "selected_slots": 2, "kept_chunks": 2, "global_slots": 1},
    "cme": {"normalisation": "cme"},
    "stick": {"normalisation": "stick_breaking"},
}
NEEDS = {"cme": {"ridge": 0.5}, "stick": {"causal": True}, "compressed": {"causal": True}}
TERMS = (
    *("none", "rbf", "log_kernel", "directed_kernel", "attention_bias", "forget", "hierarchical_bias", "key_lengths", "segments"),
    *("contextual", "chunk_starts"),
)


def term(name, structure):
    table = 4 * STRUCTURES[structure].get("hierarchy_block", 2) - 1
    return {
        "rbf": ({"kernel": "rbf"}, {"sigma": jnp.array([1.3])}),
        "log_kernel": ({}, {"log_kernel": jnp.outer(jnp.linspace(-0.3, -0.1, H), jnp.arange(32.0))}),  # positive definite, as cme needs
        "directed_kernel": ({"directed_kernel": True}, {"log_kernel": -abs(random(H, 63))}),
        "attention_bias": ({}, {"attention_bias": random(1, H, L, L)}),
        "forget": ({}, {"forget": random(B, H, L) + 1}),
        "hierarchical_bias": ({}, {"hierarchical_bias": random(H, table)}),
        "contextual": ({}, {"contextual": random(H, 5, D)}),
        "chunk_starts": ({"chunk_starts": jnp.isin(jnp.arange(L), jnp.array([0, 2, 5, 9]))}, {}),
        "key_lengths": ({"key_lengths": jnp.array([L, L - 5])}, {}),
        "segments": ({"segments": jnp.array([[0] * 5 + [1] * 7, [0] * 8 + [-1] * 4])}, {}),
    }.get(name, ({}, {}))


def allowed(structure, name, causal) -> bool:
    hierarchical = structure in ("neighbour", "sibling")
    if structure == "picture" and (causal or name not in ("none", "rbf", "key_lengths", "segments")):
        return False
    if name == "chunk_starts" and structure != "compressed":
        return False
    if structure == "compressed":
        return causal and name in ("none", "key_lengths", "segments", "chunk_starts")
    if structure == "stick" and (not causal or name == "rbf"):
        return False
    if name == "directed_kernel":
        return not causal and structure not in ("cme", "stick")
    if name == "forget":
        return causal and not hierarchical and structure != "cme"
    if name == "contextual":
        return causal and structure in ("dense", "window")
    if name == "hierarchical_bias":
        return hierarchical
    return not (name == "attention_bias" and (hierarchical or structure == "cme"))


CASES = [case for case in itertools.product(STRUCTURES, TERMS, (False, True)) if allowed(*case)]


@pytest.mark.parametrize("structure, name, causal", CASES, ids=["-".join(map(str, c)) for c in CASES])
def test_gradients(structure, name, causal):
    words, tensors = term(name, structure)
    words = {**STRUCTURES[structure], **words, "causal": causal}
    if structure == "cme":
        tensors["ridge"] = jnp.full((H,), 0.7)
    names = list(tensors)

    def run(q, k, v, *rest):
        return attention(q, k, v, **words, **dict(zip(names, rest)))

    check_grads(jax.jit(run), (*rows(), *tensors.values()), 1, ("rev",), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_bits_of_numpy(structure, dtype):
    words = dict(STRUCTURES[structure], **NEEDS.get(structure, {}))
    given = rows(dtype)
    expected, vjp = hark.attention_vjp(*map(numpy.asarray, given), **words)
    out, pull = jax.vjp(lambda *x: attention(*x, **words), *given)
    dout = random(*out.shape, dtype=dtype)
    assert numpy.array_equal(out, expected)
    for gradient, other in zip(pull(dout), vjp(numpy.asarray(dout)).values()):
        assert numpy.array_equal(gradient, other)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_bits_of_the_gradient_of_sigma(dtype):
    q, k, v = rows(dtype)
    sigma = jnp.array([1.3], dtype)
    _, vjp = hark.attention_vjp(*map(numpy.asarray, (q, k, v)), kernel="rbf", sigma=numpy.asarray(sigma))
    out, pull = jax.vjp(lambda sigma: attention(q, k, v, kernel="rbf", sigma=sigma), sigma)
    dout = random(*out.shape, dtype=dtype)
    assert numpy.array_equal(pull(dout)[0], vjp(numpy.asarray(dout))["sigma"])
    with pytest.raises(Exception, match="sigma"):
        attention(q, k, v, kernel="rbf", sigma=-sigma).block_until_ready()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("tables", [1, H])
def test_contextual_positions(tables, dtype):
    """The definition, and the bits of NumPy's gradients."""
    given = (*rows(dtype), random(tables, 5, D, seed=4, dtype=dtype))
    arrays = [numpy.asarray(x) for x in given]
    out, pull = jax.vjp(jax.jit(lambda q, k, v, table: attention(q, k, v, contextual=table, causal=True)), *given)
    bound = 1e-5 if dtype == "f4" else 1e-12
    numpy.testing.assert_allclose(out, contextual_attention(*[x.astype("f8") for x in arrays]), rtol=bound, atol=bound)
    _, vjp = hark.attention_vjp(*arrays[:3], contextual=arrays[3], causal=True)
    dout = random(*out.shape, dtype=dtype)
    gradients = vjp(numpy.asarray(dout))
    for name, gradient in zip(("query", "key", "value", "contextual"), pull(dout)):
        assert numpy.array_equal(gradient, gradients[name]), name


def test_vmap_folds_and_loops():
    q, k, v = (jnp.stack([x, 2 * x, x - 1]) for x in rows())
    bias, table = random(1, H, L, L), -abs(random(H, 16))
    for words in ({"attention_bias": bias}, {"log_kernel": table}, {"contextual": random(1, 5, D)}, {"key_lengths": [L, 5]}):
        run = lambda q, k, v: attention(q, k, v, causal=True, **words)  # noqa: E731, B023
        numpy.testing.assert_allclose(jax.vmap(run)(q, k, v), jnp.stack([run(*x) for x in zip(q, k, v)]), rtol=1e-12, atol=1e-13)
        numpy.testing.assert_allclose(
            jax.vmap(run, (0, None, None))(q, k[0], v[0]), jnp.stack([run(x, k[0], v[0]) for x in q]), rtol=1e-12, atol=1e-13
        )


@pytest.mark.parametrize("name", ["attention_bias", "log_kernel", "contextual"])
def test_gradients_of_examples(name):
    q, k, v = (jnp.stack([x, 2 * x, x - 1]) for x in rows())
    table = {"attention_bias": random(1, H, L, L), "log_kernel": -abs(random(H, 16)), "contextual": random(1, 5, D)}[name]

    def loss(table, q, k, v):
        return jnp.square(attention(q, k, v, causal=True, **{name: table})).sum()

    found = jax.vmap(jax.grad(loss, (0, 1)), (None, 0, 0, 0))(table, q, k, v)
    for i in range(3):
        for a, b in zip(found, jax.grad(loss, (0, 1))(table, q[i], k[i], v[i])):
            numpy.testing.assert_allclose(a[i], b, rtol=1e-10, atol=1e-12)


def test_jacobian():
    q, k, v = (x[:1, :1, :4] for x in rows())
    found = jax.jacrev(lambda q: attention(q, k, v))(q)
    step = 1e-6
    column = (attention(q.at[0, 0, 1, 2].add(step), k, v) - attention(q.at[0, 0, 1, 2].add(-step), k, v)) / (2 * step)
    numpy.testing.assert_allclose(found[..., 0, 0, 1, 2], column, atol=1e-8)


def test_scan_and_checkpoint():
    q, k, v = rows()

    def loss(q, wrap):
        step = wrap(lambda x, _: (x + attention(x, k, v, causal=True).sum(-1, keepdims=True), None))
        return jax.lax.scan(step, q, None, length=3)[0].sum()

    plain = jax.jit(jax.grad(lambda q: loss(q, lambda f: f)))(q)
    assert numpy.array_equal(plain, jax.jit(jax.grad(lambda q: loss(q, jax.checkpoint)))(q))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_halves(dtype):
    q, k, v = (x.astype(dtype) for x in rows("f4"))
    out = attention(q, k, v)
    assert out.dtype == dtype
    assert numpy.array_equal(out, attention(*(x.astype(jnp.float32) for x in (q, k, v))).astype(dtype))


def test_seeds_may_be_traced():
    q, k, v = rows()
    run = jax.jit(lambda seed: attention(q, k, v, dropout=0.4, seed=seed))
    assert numpy.array_equal(run(7), hark.attention(*map(numpy.asarray, (q, k, v)), dropout=0.4, seed=7))
    assert not numpy.array_equal(run(7), run(8))


def test_rows_and_packed_batches():
    q, k, v = rows()
    out, lse = attention(q[:1], k[:1], v[:1], offsets=jnp.array([0, 5, L]), return_log_sum_exp=True)
    expected = hark.attention(*(numpy.asarray(x[:1]) for x in (q, k, v)), offsets=[0, 5, L], return_log_sum_exp=True)
    assert numpy.array_equal(out, expected[0]) and numpy.array_equal(lse, expected[1])
    _, variance = attention(q, k, v, normalisation="cme", ridge=0.5, return_variance=True)
    assert numpy.array_equal(
        variance, hark.attention(*map(numpy.asarray, (q, k, v)), normalisation="cme", ridge=0.5, return_variance=True)[1]
    )


def test_many_threads_at_once():
    import threading

    q, k, v = (jnp.concatenate([x] * 16, 2) for x in rows("f4"))
    run = jax.jit(lambda q: attention(q, k, v, causal=True))
    expected = run(q)
    equal = []
    threads = [threading.Thread(target=lambda: equal.extend(numpy.array_equal(run(q), expected) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 80


def test_second_derivatives_are_refused():
    q, k, v = rows()
    loss = lambda q: attention(q, k, v).sum()  # noqa: E731
    for second in (jax.grad(lambda q: jax.grad(loss)(q).sum()), jax.hessian(loss)):
        with pytest.raises(TypeError, match="second derivatives"):
            second(q)


WRONG = [
    ({"structure": "sparse"}, ValueError, "structure"),
    ({"window": 3}, ValueError, "window"),
    ({"kernel": "rbf"}, ValueError, "sigma"),
    ({"scale": "x"}, TypeError, "scale"),
    ({"normalisation": "cme"}, ValueError, "ridge"),
    ({"mask": jnp.ones((L, L))}, TypeError, "mask"),
    ({"mask": jnp.ones((L + 1, L), bool)}, ValueError, "mask"),
    ({"attention_bias": jnp.ones((L, L), "f4")}, TypeError, "attention_bias"),
    ({"key_lengths": jnp.array([1.5, 2])}, TypeError, "key_lengths"),
    ({"key_lengths": [1]}, ValueError, "key_lengths"),
    ({"key_lengths": [1, L + 1]}, (ValueError, RuntimeError), "key_lengths"),  # found when the program runs
    ({"log_kernel": jnp.ones((3, 16))}, ValueError, "log_kernel"),
    ({"attention_bias": jnp.ones((3, L, L))}, ValueError, "attention_bias"),
    ({"offsets": [0]}, ValueError, "offsets"),
    ({"seed": -1}, ValueError, "seed"),
    ({"forget": jnp.ones((B, H, L))}, ValueError, "forget"),
    ({"contextual": jnp.ones((1, 8, D))}, ValueError, "causal"),
    ({"contextual": jnp.ones((1, 8, D), "f4"), "causal": True}, TypeError, "contextual"),
    ({"contextual": jnp.ones((1, 1, D)), "causal": True}, ValueError, "contextual"),
    ({"contextual": jnp.ones((1, 8, D + 1)), "causal": True}, ValueError, "contextual"),
    ({"contextual": jnp.ones((3, 8, D)), "causal": True}, ValueError, "contextual"),
    ({"return_variance": True}, ValueError, "return_variance"),
]


@pytest.mark.parametrize("words, kind, name", WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_arguments_are_named(words, kind, name):
    with pytest.raises(kind, match=name):
        jax.block_until_ready(attention(*rows(), **words))


def test_wrong_tensors_are_named():
    q, k, v = rows()
    with pytest.raises(ValueError, match="key"):
        attention(q, k[0], v)
    with pytest.raises(TypeError, match="key"):
        attention(q, k.astype("f4"), v)
    with pytest.raises(TypeError, match="query is int32"):
        attention(q.astype("i4"), k.astype("i4"), v.astype("i4"))
    with pytest.raises(TypeError, match="query is list"):
        attention([1.0], k, v)
