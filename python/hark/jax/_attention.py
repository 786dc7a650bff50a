"""hark.jax.attention: checks while tracing, two foreign calls, their gradient and their rule for vmap."""

import functools
from typing import NamedTuple, Tuple

import jax
import jax.numpy as jnp
import numpy

from .. import _attention as core
from .. import _library as lib
from .. import _native
from .. import _structs as s

if _native.xla_forward is None:
    raise ImportError(
        "hark.jax: libhark_python was built without XLA's headers, which jaxlib has; install the wheel, or build the package again "
        "where jaxlib is installed"
    )
jax.ffi.register_ffi_target("hark_attention_forward", jax.ffi.pycapsule(_native.xla_forward), platform="cpu")
jax.ffi.register_ffi_target("hark_attention_backward", jax.ffi.pycapsule(_native.xla_backward), platform="cpu")

TENSOR, MEMORY, WHOLE, NUMBER, SIGMA, SIGMA_GRADIENT = range(6)  # kinds of native/xla.c
TABLES = ("log_kernel", "hierarchical_bias", "ridge", "sigma", "contextual", "sigma_number")  # of heads, without a batch dimension
# sigma_number: sigma of softmax where it is an array; a number of the descriptor, which the foreign call replaces
_KINDS = {"float32": lib.F32, "float64": lib.F64}
_HALVES = ("float16", "bfloat16")


class Static(NamedTuple):
    """What does not change between the runs of a traced call. names: the arrays in their order; the last one is the seed."""

    options: core.Options
    names: Tuple[str, ...]
    with_rows: bool


# ---- the foreign calls ----


def _place(name):
    if name.endswith("sigma_number"):
        return (SIGMA_GRADIENT if name[0] == "d" else SIGMA), 0
    if name == "seed":
        return NUMBER, s.AttentionArgs.dropout.offset + s.RandomStream.seed.offset
    return (WHOLE if name in core.HOST else TENSOR), getattr(s.AttentionArgs, name).offset


def _frame(static, shapes, kind, gradients):
    """Checks the call and knows its sizes; shapes: of the arrays, by name."""
    inputs = [(name, (shapes[name], core.contiguous(shapes[name]))) for name in core.INPUTS if name in shapes]
    sequences = shapes["query_offsets"][0] - 1 if "query_offsets" in shapes else 0
    return core.Frame(
        lib.context(), static.options, kind, inputs, [n for n in core.HOST if n in shapes], sequences, not gradients
    ), sequences


def _attributes(static, frame, sequences, inputs, results):
    offset = static.options.query_offset
    numbers = (0, core.ATTENTION_PURPOSE, offset is not None, offset or 0, sequences)
    return {
        "desc": numpy.frombuffer(bytes(frame.desc), numpy.uint8),
        "inputs": numpy.array(inputs, numpy.int64).reshape(-1),
        "results": numpy.array(results, numpy.int64).reshape(-1),
        "numbers": numpy.array(numbers, numpy.int64),
    }


def _rows_place(static):
    return TENSOR, getattr(s.AttentionArgs, "variance" if static.options.normalisation == 1 else "log_sum_exp").offset


def _forward_call(static, gradients, *arrays):
    shapes = {name: x.shape for name, x in zip(static.names, arrays)}
    dtype = arrays[0].dtype
    frame, sequences = _frame(static, shapes, _KINDS[dtype.name], gradients)
    results = [(jax.ShapeDtypeStruct(frame.out_shape, dtype), _place("out"))]
    if static.with_rows or (gradients and not frame.cme):
        results.append((jax.ShapeDtypeStruct(frame.row_shape, dtype), _rows_place(static)))
    if gradients:
        results.append((jax.ShapeDtypeStruct((frame.saved_bytes,), jnp.uint8), (MEMORY, s.AttentionArgs.saved.offset)))
    call = jax.ffi.ffi_call("hark_attention_forward", [x for x, _ in results])
    return call(*arrays, **_attributes(static, frame, sequences, [_place(n) for n in static.names], [place for _, place in results]))


def _differentiable(static):
    return [name for name in (*core.GRADIENTS, "sigma_number") if name in static.names]


def _backward_call(static, dout, out, rows, saved, *arrays):
    """Gradients of what _differentiable lists. rows: empty with cme."""
    shapes = {name: x.shape for name, x in zip(static.names, arrays)}
    frame, sequences = _frame(static, shapes, _KINDS[out.dtype.name], True)
    more = [(dout, _place("dout")), (out, _place("out")), (saved, (MEMORY, s.AttentionArgs.saved.offset))]
    if not frame.cme:
        more.append((rows, _rows_place(static)))
    names = _differentiable(static)
    call = jax.ffi.ffi_call("hark_attention_backward", [jax.ShapeDtypeStruct(shapes[name], out.dtype) for name in names])
    return call(
        *arrays,
        *[x for x, _ in more],
        **_attributes(
            static, frame, sequences, [_place(n) for n in static.names] + [p for _, p in more], [_place("d" + name) for name in names]
        ),
    )


# ---- vmap: examples are folded into the batch where that is possible, else computed one by one ----


def _foldable(static) -> bool:
    return not any(name in static.names for name in (*TABLES, "query_offsets"))


def _fold(name, x, batched, count, batch):
    """[N B, ...] of an array with examples [N, B, ...] or without; one row for the whole batch is repeated."""
    if name == "seed":
        return x[0] if batched else x
    shape = x.shape[1:] if batched else x.shape
    x = jnp.broadcast_to(x.reshape((-1 if batched else 1, *shape)) if shape else x, (count, batch, *shape[1:]))
    return x.reshape(count * batch, *shape[1:])


def _unfold(x, count, batch, rows):
    """[N, ...] of a folded result; rows: extent of the argument's batch."""
    x = x.reshape(count, batch, *x.shape[1:])
    return x.sum(1, keepdims=True) if rows == 1 and batch > 1 else x


def _one_by_one(function, count, batched, arrays):
    def of(i):
        return function(*[x[i] if b else x for x, b in zip(arrays, batched)])

    outs = jax.lax.map(of, jnp.arange(count))
    return outs, [True] * len(outs)


def _batch(array, batched) -> int:
    return array.shape[1] if batched else array.shape[0]


@functools.lru_cache(maxsize=512)
def _forward(static, gradients):
    function = jax.custom_batching.custom_vmap(functools.partial(_forward_call, static, gradients))

    @function.def_vmap
    def rule(count, batched, *arrays):
        if not _foldable(static) or batched[-1]:
            return _one_by_one(function, count, batched, arrays)
        batch = _batch(arrays[0], batched[0])
        results = function(*[_fold(n, x, b, count, batch) for n, x, b in zip(static.names, arrays, batched)])
        last = len(results) - 1 if gradients else len(results)  # what is saved is one for all
        return [x.reshape(count, batch, *x.shape[1:]) if i < last else x for i, x in enumerate(results)], [
            i < last for i in range(len(results))
        ]

    return function


@functools.lru_cache(maxsize=512)
def _backward(static):
    function = jax.custom_batching.custom_vmap(functools.partial(_backward_call, static))

    @function.def_vmap
    def rule(count, batched, dout, out, rows, saved, *arrays):
        of_arrays = batched[4:]
        if not any(of_arrays) or not _foldable(static) or of_arrays[-1]:
            return _one_by_one(function, count, batched, (dout, out, rows, saved, *arrays))
        batch = _batch(arrays[0], of_arrays[0])
        folded = [_fold(n, x, b, count, batch) for n, x, b in zip(static.names, arrays, of_arrays)]
        more = [_fold("", x, b, count, batch) if x.ndim > 1 else jnp.zeros(0, x.dtype) for x, b in zip((dout, out, rows), batched)]
        extents = {n: _batch(x, b) for n, x, b in zip(static.names, arrays, of_arrays) if n != "seed"}
        gradients = function(*more, saved, *folded)
        return [_unfold(x, count, batch, extents[n]) for n, x in zip(_differentiable(static), gradients)], [True] * len(gradients)

    return function


# ---- the function with its gradient ----


def _refuse(static, arrays, tangents):
    raise TypeError("hark.jax.attention: second derivatives are not available; its gradients have none")


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _gradients(static, *arrays):
    """The gradients, which have none themselves."""
    return _backward(static)(*arrays)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _forward_of_gradients(static, *arrays):
    """The forward of a call whose gradients are requested: it is differentiated again only for second derivatives."""
    return _forward(static, True)(*arrays)


_gradients.defjvp(_refuse)
_forward_of_gradients.defjvp(_refuse)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(static, arrays):
    results = _forward(static, False)(*arrays)
    return results[0], results[1] if static.with_rows else None


def _attention_forward(static, arrays):
    results = _forward_of_gradients(static, *arrays)
    rows = results[1] if len(results) == 3 else jnp.zeros(0, results[0].dtype)
    return (results[0], rows if static.with_rows else None), (arrays, results[0], rows, results[-1])


def _attention_backward(static, kept, cotangents):
    arrays, out, rows, saved = kept
    found = _gradients(static, cotangents[0], out, rows, saved, *arrays)
    of_name = dict(zip(_differentiable(static), found))
    return (tuple(of_name.get(name) for name in static.names),)


_attention.defvjp(_attention_forward, _attention_backward)


# ---- arguments ----


def _array(name, x, dtype):
    """A tensor with all its dimensions, of the right type."""
    x = jnp.asarray(x)
    if name in core.BYTES:
        if x.dtype not in (jnp.bool_, jnp.uint8):
            raise TypeError(f"attention: {name} is {x.dtype}, expected bool or uint8")
    elif x.dtype.name in _HALVES:
        x = x.astype(dtype)
    elif x.dtype != dtype:
        raise TypeError(f"attention: {name} is {x.dtype}, expected {dtype}, the type of query")
    rank = core.RANKS[name]
    if x.ndim != rank:
        if x.ndim > rank or name in ("query", "key", "value", "forget"):
            raise ValueError(f"attention: {name} has shape {list(x.shape)}, expected {rank} dimensions")
        x = x.reshape((1,) * (rank - x.ndim) + x.shape)
    return x


def _whole(name, x, shape):
    x = jnp.asarray(x)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"attention: {name} is {x.dtype}, expected whole numbers")
    if x.ndim != len(shape) or any(expected not in (None, extent) for expected, extent in zip(shape, x.shape)):
        raise ValueError(f"attention: {name} has shape {list(x.shape)}, expected {['any' if n is None else n for n in shape]}")
    return x if x.dtype in (jnp.int32, jnp.int64) else x.astype(jnp.int32)


def _hosts(given, query, key):
    result = {}
    if given["key_lengths"] is not None:
        result["key_lengths"] = _whole("key_lengths", given["key_lengths"], (query.shape[0],))
    if given["segments"] is not None:
        result["segments"] = _whole("segments", given["segments"], (query.shape[0], key.shape[2]))
    offsets = given["offsets"]
    if offsets is not None:
        pair = offsets if isinstance(offsets, tuple) and len(offsets) == 2 and numpy.ndim(offsets[0]) else (offsets, offsets)
        result["query_offsets"] = _whole("offsets", pair[0], (None,))
        result["key_offsets"] = _whole("offsets", pair[1], result["query_offsets"].shape)
        if result["query_offsets"].shape[0] < 2:
            raise ValueError("attention: offsets has fewer than two numbers, expected one more than there are sequences")
    return result


def _seed(seed):
    if isinstance(seed, (int, numpy.integer)) and not isinstance(seed, bool):
        if not 0 <= seed < 2**31:
            raise ValueError(f"attention: seed is {seed}, expected a whole number in [0, 2^31)")
        return jnp.full((1,), seed, jnp.int32)
    seed = jnp.asarray(seed)
    if not jnp.issubdtype(seed.dtype, jnp.integer):
        raise TypeError(f"attention: seed is {seed.dtype}, expected a whole number")
    return seed.reshape(1).astype(jnp.int32)


def _types(query, key, value):
    """The type to compute in and that of the result."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not hasattr(x, "dtype") or not hasattr(x, "shape"):
            raise TypeError(f"attention: {name} is {type(x).__name__}, expected an array")
    core.check_shapes(query.shape, key.shape, value.shape)
    for name, x in (("key", key), ("value", value)):
        if x.dtype != query.dtype:
            raise TypeError(f"attention: {name} is {x.dtype}, expected {query.dtype}, the type of query")
    result = jnp.asarray(query).dtype
    if result.name not in (*_KINDS, *_HALVES):
        raise TypeError(f"attention: query is {result}, expected float32, float64, float16 or bfloat16")
    return (jnp.dtype("float32") if result.name in _HALVES else result), result


def _check_returns(words, return_log_sum_exp, return_variance) -> None:
    if return_log_sum_exp and words["normalisation"] == "cme":
        raise ValueError("attention: return_log_sum_exp: normalisation 'cme' has none")
    if return_variance and words["normalisation"] != "cme":
        raise ValueError("attention: return_variance needs normalisation 'cme'")


def _take_sigma(words, tensors):
    """softmax with a sigma that is an array: (words with a sigma to be replaced, tensors without it, the array or None)."""
    sigma = tensors.get("sigma")
    if words["normalisation"] != "softmax" or sigma is None:
        return words, tensors, None
    if sigma.size != 1 or words["kernel"] != "rbf":
        raise ValueError(f"attention: sigma has shape {list(sigma.shape)}; normalisation 'softmax' takes one sigma, with kernel 'rbf'")
    return {**words, "sigma": 1.0}, {name: x for name, x in tensors.items() if name != "sigma"}, sigma.reshape(1)


def call(words, tensors, hosts, seed, return_log_sum_exp, return_variance):
    """The result of hark.jax.attention."""
    dtype, result_type = _types(tensors["query"], tensors["key"], tensors["value"])
    _check_returns(words, return_log_sum_exp, return_variance)
    tensors = {name: _array(name, x, dtype) for name, x in tensors.items() if x is not None}
    words, tensors, sigma = _take_sigma(words, tensors)
    numbers = _hosts(hosts, tensors["query"], tensors["key"])
    arrays = {
        **{n: tensors[n] for n in core.INPUTS if n in tensors},
        **{n: numbers[n] for n in core.HOST if n in numbers},
        **({} if sigma is None else {"sigma_number": sigma}),
        "seed": _seed(seed),
    }
    with_rows = return_log_sum_exp or return_variance
    static = Static(core.options(**words), tuple(arrays), with_rows)
    core.check_terms({name: x.shape for name, x in tensors.items()}, static.options)
    out, rows = _attention(static, tuple(arrays.values()))
    out = out.astype(result_type)
    return (out, jax.lax.stop_gradient(rows).astype(result_type)) if with_rows else out
