"""Every operator of the library on PyTorch's tensors, with autograd where it is differentiable, made by walking the library's table."""

from typing import Any, List

import torch

from .. import _operators
from . import _threads
from ._registered_operators import Registered
from ._registered_operators import array as _array


def _tensors(outputs):
    return tuple([torch.from_numpy(x) for x in (outputs if isinstance(outputs, tuple) else (outputs,))])


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, operator, attributes, *inputs):
        ctx.run = _operators._Run(operator, [_array(operator.name, i, x) for i, x in enumerate(inputs)], attributes, _threads.context)
        outputs = _tensors(ctx.run.forward())
        ctx.save_for_backward(*inputs)  # so that a change of an input in place is noticed
        ctx.mark_non_differentiable(*[x for x in outputs if not x.is_floating_point()])
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        ctx.saved_tensors  # noqa: B018
        given = [
            None if g is None or not x.is_floating_point() else g.contiguous().numpy()
            for g, x in zip(gradients, _tensors(tuple(ctx.run.outputs)))
        ]
        found = ctx.run.backward(given, ctx.needs_input_grad[2:])
        return None, None, *[None if x is None else torch.from_numpy(x) for x in found]


class Operator:
    """An operator of the library on tensors: ``op(*inputs, **attributes)``; as hark.op(name), with autograd."""

    def __init__(self, operator):
        self._operator = operator
        self.name, self.formula, self.attributes, self.differentiable = (
            operator.name,
            operator.formula,
            operator.attributes,
            operator.differentiable,
        )
        self.__doc__ = operator.__doc__
        self._registered = Registered(operator)
        self._is_updating = bool(operator._record.updates)

    def __repr__(self):
        return f"<hark.torch operator {self.name}: {self.formula}>"

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        """The output, or the tuple of outputs. Inputs that have no gradient here but require one are refused."""
        if torch.compiler.is_compiling():
            return self._traced(inputs, attributes)
        needs = [isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled() for x in inputs]
        wrong = [i for i, needed in enumerate(needs) if needed and i not in self.differentiable]
        if wrong and not self._is_updating:
            raise ValueError(f"{self.name}: input {wrong[0]} requires a gradient, which this operator does not have; detach() it")
        if any(needs) and not self._is_updating:
            return _Function.apply(self._operator, attributes, *inputs)
        run = _operators._Run(self._operator, [_array(self.name, i, x) for i, x in enumerate(inputs)], attributes, _threads.context)
        outputs = _tensors(run.forward())
        return outputs[0] if len(outputs) == 1 else outputs

    def _traced(self, inputs, attributes):
        """As __call__, through the registered operator."""
        needed = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad and torch.is_grad_enabled()]
        wrong = [i for i in needed if i not in self.differentiable]
        if wrong and not self._is_updating:
            raise ValueError(f"{self.name}: input {wrong[0]} requires a gradient, which this operator does not have; detach() it")
        found = self._registered.call(*self._registered.arguments(inputs, attributes), len(needed) > 0 and not self._is_updating)
        return found[0] if self._registered.outputs == 1 else found[: self._registered.outputs]


class _Table:
    """``op(name)``: the operator of that name. ``op.names()``: all names, in the library's order."""

    def __init__(self):
        self._all = {name: Operator(_operators.op(name)) for name in _operators.op.names()}

    def names(self) -> List[str]:
        return list(self._all)

    def __call__(self, name: str) -> Operator:
        if name in self._all:
            return self._all[name]
        return Operator(_operators.op(name))  # raises the error of an unknown name


op = _Table()
__all__ = ["op"]
