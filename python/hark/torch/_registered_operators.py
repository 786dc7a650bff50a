"""hark_op::NAME and hark_op::NAME_backward for every operator of the library's table: for torch.compile and torch.export.

    NAME(Tensor? input0, ..., int given_inputs, the attributes by name, bool with_gradients) -> (outputs, what is saved for the backward)

given_inputs: how many there are. An attribute that is None has its usual value; one that is a dict is the text of one. What is absent
among the results is an empty tensor. The fake kernels are the record's own function infer.
"""

import ast

import torch

from .. import _library as lib
from .. import _operators
from .. import _structs as s
from . import _threads

library = torch.library.Library("hark_op", "DEF")
_TYPES = {torch.from_numpy(_operators.numpy.empty(0, x)).dtype: x for x in map(_operators.numpy.dtype, ("f4", "f8", "i4", "i8", "u1", "f2", "i1", "?"))}
_EXPECTED = "expected float32, float64, float16, int32, int64, int8, uint8 or bool"
_OF_NUMPY = {x: kind for kind, x in _TYPES.items()}


def array(operator, index, x):
    """An array in the memory of a tensor."""
    if x is None:
        return None
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{operator}: input {index} is {type(x).__name__}, expected torch.Tensor or None")
    if x.device.type != "cpu":
        raise ValueError(f"{operator}: input {index} is on {x.device}, expected the CPU")
    try:
        return x.detach().numpy()
    except TypeError:
        raise TypeError(f"{operator}: input {index} is {x.dtype}, {_EXPECTED}") from None


def _text(value) -> str:
    """A dict as a text that ast.literal_eval reads; a scalar of NumPy as Python's number."""
    return "{" + ", ".join([f"{name!r}: {(x.item() if hasattr(x, 'item') else x)!r}" for name, x in value.items()]) + "}"


class Registered:
    """The pair of registered operators of one operator."""

    def __init__(self, operator):
        self.operator, record = operator, operator._record
        self.name, self.most, self.outputs = operator.name, record.input_maximum, record.output_count
        self.attributes = tuple([x for x in operator.attributes.values() if x.schema])
        self.names = tuple([x.name for x in self.attributes])
        self.dicts = tuple([x.is_dict for x in self.attributes])
        self._define(record)
        self.call = getattr(torch.ops.hark_op, self.name).default

    def _define(self, record) -> None:
        inputs = [f"Tensor{f'(a{i}!)' if record.updates >> i & 1 else ''}? input{i}" for i in range(self.most)]
        words = ["int given_inputs", *[f"{x.schema}? {x.name}" for x in self.attributes]]
        results = ", ".join(["Tensor"] * (self.outputs + s.MAX_SAVED))
        library.define(f"{self.name}({', '.join([*inputs, *words])}, bool with_gradients) -> ({results})", tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(self.name, self._forward, "CPU")
        torch.library.register_fake(f"hark_op::{self.name}", self._forward_fake, lib=library)
        if record.updates or not record.differentiable:
            return
        before = [f"Tensor? gradient{i}" for i in range(self.outputs)] + [f"Tensor result{i}" for i in range(self.outputs + s.MAX_SAVED)]
        library.define(f"{self.name}_backward({', '.join([*before, *inputs, *words])}, bool[] needed_gradients) -> Tensor[]")
        library.impl(f"{self.name}_backward", self._backward, "CPU")
        torch.library.register_fake(f"hark_op::{self.name}_backward", self._backward_fake, lib=library)
        torch.library.register_autograd(f"hark_op::{self.name}", self._differentiate, setup_context=self._setup, lib=library)
        torch.library.register_autograd(f"hark_op::{self.name}_backward", self._refuse, lib=library)

    def arguments(self, inputs, attributes):
        """Those of the registered operator, but for the last one."""
        for name in attributes:
            if name not in self.names:
                raise TypeError(f"{self.name}: there is no attribute {name}, expected {', '.join(self.names) or 'none'}")
        values = [attributes.get(name) for name in self.names]
        values = [_text(x) if is_dict and x is not None else x for x, is_dict in zip(values, self.dicts)]
        return [*inputs, *[None] * (self.most - len(inputs)), len(inputs), *values]

    def _split(self, arguments):
        """The inputs that were given and the attributes by name."""
        values = arguments[self.most + 1 : self.most + 1 + len(self.names)]
        given = {
            name: ast.literal_eval(x) if is_dict else x for name, x, is_dict in zip(self.names, values, self.dicts) if x is not None
        }
        return arguments[: arguments[self.most]], given

    def _run(self, arguments):
        inputs, attributes = self._split(arguments)
        return _operators._Run(self.operator, [array(self.name, i, x) for i, x in enumerate(inputs)], attributes, _threads.context)

    def _forward(self, *arguments):
        run = self._run(arguments)
        run.forward()
        kept = run.saved if arguments[-1] else [None] * s.MAX_SAVED
        return tuple([torch.empty(0) if x is None else torch.from_numpy(x) for x in (*run.outputs, *kept)])

    def _forward_fake(self, *arguments):
        inputs, attributes = self._split(arguments)
        shapes = [None if x is None else ([int(n) for n in x.shape], self._kind(i, x)) for i, x in enumerate(inputs)]
        outputs, saved = _operators.describe_results(self.operator, shapes, attributes)
        kept = saved if arguments[-1] else [None] * s.MAX_SAVED
        return tuple([torch.empty(0) if x is None else torch.empty(x[0], dtype=_OF_NUMPY[x[1]]) for x in (*outputs, *kept)])

    def _kind(self, index, x):
        if x.dtype not in _TYPES:
            raise TypeError(f"{self.name}: input {index} is {x.dtype}, {_EXPECTED}")
        return lib.TYPE_OF_DTYPE[_TYPES[x.dtype]]

    def _setup(self, ctx, inputs, output):
        ctx.words, ctx.prepared = inputs[self.most : -1], inputs[-1]
        ctx.save_for_backward(*output, *inputs[: self.most])
        ctx.mark_non_differentiable(*[x for i, x in enumerate(output) if i >= self.outputs or not x.is_floating_point()])

    def _differentiate(self, ctx, *gradients):
        if not ctx.prepared:
            raise RuntimeError(f"hark_op::{self.name}: gradients are requested of a call with with_gradients=False")
        results, inputs = ctx.saved_tensors[: self.outputs + s.MAX_SAVED], ctx.saved_tensors[self.outputs + s.MAX_SAVED :]
        needs = [bool(x) and i in self.operator.differentiable for i, x in enumerate(ctx.needs_input_grad[: self.most])]
        given = [g if x.is_floating_point() else None for g, x in zip(gradients, results[: self.outputs])]
        found = getattr(torch.ops.hark_op, f"{self.name}_backward")(*given, *results, *inputs, *ctx.words, needs)
        return *[x if needed else None for x, needed in zip(found, needs)], *[None] * (len(ctx.words) + 1)

    def _refuse(self, ctx, *_):
        raise RuntimeError(f"hark.torch.op: {self.name}: second derivatives are not available")

    def _backward(self, *arguments):
        gradients, results = arguments[: self.outputs], arguments[self.outputs : 2 * self.outputs + s.MAX_SAVED]
        needs, run = arguments[-1], self._run(arguments[2 * self.outputs + s.MAX_SAVED : -1])
        present = [t.type != 0 for t in (*run.inferred.outputs[: self.outputs], *run.inferred.saved)]
        kept = [x.contiguous().numpy() if there else None for x, there in zip(results, present)]
        run.restore(kept[: self.outputs], kept[self.outputs :])
        found = run.backward([None if g is None else g.contiguous().numpy() for g in gradients], needs)
        return [torch.empty(0) if x is None else torch.from_numpy(x) for x in (*found, *[None] * (self.most - len(found)))]

    def _backward_fake(self, *arguments):
        inputs, needs = arguments[2 * self.outputs + s.MAX_SAVED :][: self.most], arguments[-1]
        return [torch.empty(0) if x is None or not needed else torch.empty(x.shape, dtype=x.dtype) for x, needed in zip(inputs, needs)]
