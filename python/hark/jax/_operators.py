"""Every operator of the library on JAX's arrays, with gradients in reverse mode where it is differentiable, made by walking the library's
table.

A call is a callback of XLA into hark.op (jax.pure_callback): shapes are found by the record's own function infer while tracing, and the
arrays are computed with when the program runs.
"""

import functools
from typing import Any, List, NamedTuple, Tuple

import jax
import jax.numpy as jnp
import numpy

from .. import _library as lib
from .. import _operators

_REAL = ("float32", "float64", "bfloat16")


class _Attributes:
    """Attributes, which may be lists and dicts, with a hash: equal ones need no second trace."""

    def __init__(self, given):
        self.given = given
        self._text = repr(sorted((name, x.tolist() if hasattr(x, "tolist") else x) for name, x in given.items()))

    def __eq__(self, other):
        return isinstance(other, _Attributes) and self._text == other._text

    def __hash__(self):
        return hash(self._text)


class _Static(NamedTuple):
    """What does not change between the runs of a traced call. present: whether each input was given."""

    name: str
    present: Tuple[bool, ...]
    attributes: _Attributes


def _inputs(static, arrays):
    """The inputs in their places, None for absent ones."""
    rest = iter(arrays)
    return [numpy.asarray(next(rest)) if there else None for there in static.present]


def _describe(static, arrays):
    """Shapes and types of the outputs and of what is saved; None: absent."""
    rest, shapes = iter(arrays), []
    for there in static.present:
        x = next(rest) if there else None
        if x is not None and x.dtype not in lib.TYPE_OF_DTYPE:
            expected = "float32, float64, float16, bfloat16, int32, int64, int8, uint8 or bool"
            raise TypeError(f"{static.name}: input {len(shapes)} is {x.dtype}, expected {expected}")
        shapes.append(None if x is None else (list(x.shape), lib.TYPE_OF_DTYPE[x.dtype]))
    outputs, saved = _operators.describe_results(_operators.op(static.name), shapes, static.attributes.given)
    for i, x in enumerate(outputs):
        if x is not None and x[1].itemsize == 8 and not jax.config.jax_enable_x64:
            raise TypeError(f"{static.name}: output {i} is {x[1]}, which JAX has only with jax_enable_x64")
    return outputs, saved


def _bytes(described) -> int:
    return int(numpy.prod(described[0], dtype=numpy.int64)) * described[1].itemsize


def _forward_on_host(static, kept, *arrays):
    run = _operators._Run(_operators.op(static.name), _inputs(static, arrays), static.attributes.given)
    run.forward()
    saved = [x.reshape(-1).view("u1") for x in run.saved if x is not None] if kept else []
    return tuple([x for x in run.outputs if x is not None] + saved)


@functools.lru_cache(maxsize=1024)
def _callback(function, *arguments):
    """The same object for the same arguments, so that JAX compiles nothing again."""
    return functools.partial(function, *arguments)


def _forward(static, kept, arrays):
    """(outputs that are present, what is saved as bytes)."""
    outputs, saved = _describe(static, arrays)
    results = [jax.ShapeDtypeStruct(*x) for x in outputs if x is not None]
    count = len(results)
    if kept:
        results += [jax.ShapeDtypeStruct((_bytes(x),), numpy.uint8) for x in saved if x is not None]
    found = jax.pure_callback(_callback(_forward_on_host, static, kept), tuple(results), *arrays, vmap_method="sequential")
    return found[:count], found[count:]


def _with_gradients(static, arrays):
    """Places, among the arrays, of those that have gradients."""
    inputs = [i for i, there in enumerate(static.present) if there]
    differentiable = _operators.op(static.name).differentiable
    return [at for at, (i, x) in enumerate(zip(inputs, arrays)) if i in differentiable and x.dtype.name in _REAL]


def _backward_on_host(static, counts, *numbers):
    """counts: whether each output that is there has a gradient, the number of these outputs and of what is saved."""
    with_gradient, outputs, saved = counts
    rest = iter([numpy.asarray(x) for x in numbers])
    given = iter([next(rest) if there else None for there in with_gradient])
    outputs, kept = [next(rest) for _ in range(outputs)], [next(rest) for _ in range(saved)]
    arrays = list(rest)
    run = _operators._Run(_operators.op(static.name), _inputs(static, arrays), static.attributes.given)
    described = [[t.type != 0 for t in x] for x in (run.inferred.outputs[: run.operator._record.output_count], run.inferred.saved)]
    run.restore(*[[next(found) if there else None for there in x] for x, found in zip(described, (iter(outputs), iter(kept)))])
    found = run.backward([next(given) if there else None for there in described[0]])
    found = [x for x, there in zip(found, static.present) if there]
    return tuple([found[i].astype(arrays[i].dtype) for i in _with_gradients(static, arrays)])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _call(static, arrays):
    return _forward(static, False, arrays)[0]


def _call_forward(static, arrays):
    outputs, saved = _forward(static, True, arrays)
    return outputs, (arrays, outputs, saved)


def _call_backward(static, kept, cotangents):
    arrays, outputs, saved = kept
    places = _with_gradients(static, arrays)
    results = tuple([jax.ShapeDtypeStruct(arrays[i].shape, arrays[i].dtype) for i in places])
    given = tuple([x.dtype != jax.dtypes.float0 for x in cotangents])
    counts = given, len(outputs), len(saved)
    numbers = [x for x, there in zip(cotangents, given) if there]
    found = jax.pure_callback(
        _callback(_backward_on_host, static, counts), results, *numbers, *outputs, *saved, *arrays, vmap_method="sequential"
    )
    gradients = [None] * len(arrays)
    for i, x in zip(places, found):
        gradients[i] = x
    return (tuple(gradients),)


_call.defvjp(_call_forward, _call_backward)


class Operator:
    """An operator of the library on JAX's arrays: ``op(*inputs, **attributes)``; as hark.op(name), inside jit, grad, vjp, vmap and scan."""

    def __init__(self, operator):
        self._operator = operator
        self.name, self.formula, self.attributes = operator.name, operator.formula, operator.attributes
        self.differentiable = operator.differentiable
        self.__doc__ = operator.__doc__

    def __repr__(self):
        return f"<hark.jax operator {self.name}: {self.formula}>"

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """The output, or the tuple of outputs. Operators that change their inputs (adamw, adafactor) are refused."""
        if self._operator._record.updates:
            raise ValueError(f"{self.name}: this operator changes its inputs, which JAX's arrays do not allow")
        arrays = tuple([jnp.asarray(x) for x in inputs if x is not None])
        static = _Static(self.name, tuple([x is not None for x in inputs]), _Attributes(attributes))
        if self.differentiable:
            outputs = _call(static, arrays)
        else:
            outputs = _forward(static, False, [jax.lax.stop_gradient(x) for x in arrays])[0]
        return outputs[0] if len(outputs) == 1 else outputs


class _Table:
    """``op(name)``: the operator of that name. ``op.names()``: all names, in the library's order."""

    def names(self) -> List[str]:
        return _operators.op.names()

    def __call__(self, name: str) -> Operator:
        return Operator(_operators.op(name))


op = _Table()
