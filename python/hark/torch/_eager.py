"""The direct path: autograd around a frame, without PyTorch's dispatcher, for plain tensors outside of transformations."""

from typing import NamedTuple, Tuple

import torch

from .. import _attention as core
from . import _frames, _threads

MESSAGE = "hark.torch.attention: second derivatives are not available; its gradients have none (create_graph, hessian, double backward)"


class _Once(torch.autograd.Function):
    """Passes a gradient on; differentiating it is refused."""

    @staticmethod
    def forward(ctx, gradient, *causes):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(MESSAGE)


class Call(NamedTuple):
    """What is common to a forward and its backward, apart from tensors. present: the places of those that are there."""

    frame: core.Frame
    words: tuple
    hosts: tuple
    seed: int
    with_rows: bool
    present: Tuple[int, ...]


class Attention(torch.autograd.Function):
    """(out, rows) or out of a Call and of the tensors that are present."""

    @staticmethod
    def forward(ctx, call, *present):
        frame = call.frame
        out, rows, saved = _frames.forward(frame, _all(call.present, present), call.hosts, call.seed, call.with_rows or not frame.cme)
        ctx.call = call
        ctx.results = rows, saved  # without gradients, and of no use to anyone else
        ctx.save_for_backward(*present, out.detach())
        if not call.with_rows:
            return out
        ctx.mark_non_differentiable(rows)
        return out, rows

    @staticmethod
    def backward(ctx, dout, *_):
        if not torch.is_grad_enabled():
            return _gradients(ctx, dout, ctx.saved_tensors)
        saved = ctx.saved_tensors
        with torch.no_grad():
            gradients = _gradients(ctx, dout, saved)
        return tuple([None if x is None else _Once.apply(x, dout, *saved) for x in gradients])


class Three(torch.autograd.Function):
    """out of a frame with is_plain: Attention in fewer steps. The log-sum-exp and what the library saves are one block of memory."""

    @staticmethod
    def forward(ctx, frame, words, seed, query, key, value):
        out = torch.empty_like(query) if frame.is_like else torch.empty(frame.out_shape, dtype=frame.dtype)
        kept = torch.empty(frame.kept_bytes, dtype=torch.uint8)
        rows = kept.data_ptr()
        frame.forward_of_three(
            query.data_ptr(), key.data_ptr(), value.data_ptr(), seed, out.data_ptr(), rows, rows + frame.saved_at if frame.saved_at else 0
        )
        ctx.call = frame, words, seed, kept
        ctx.save_for_backward(query, key, value, out)
        return out

    @staticmethod
    def backward(ctx, dout):
        query, key, value, out = ctx.saved_tensors
        if torch.is_grad_enabled():
            with torch.no_grad():
                gradients = _gradients_of_three(ctx, query, key, value, out, dout)
            return None, None, None, *[None if x is None else _Once.apply(x, dout, query, key, value, out) for x in gradients]
        return None, None, None, *_gradients_of_three(ctx, query, key, value, out, dout)


def _gradients_of_three(ctx, query, key, value, out, dout):
    frame, words, seed, kept = ctx.call
    if frame.context is not _threads.context():  # another thread, or another number of threads
        frame = _frames.frame_of(words, (query, key, value, *_ABSENT), _frames._NO_HOSTS, True)
    _, _, _, of_query, of_key, of_value = ctx.needs_input_grad
    strides = dout.stride()
    if strides[-1] != 1:
        dout = dout.contiguous()
        strides = dout.stride()
    if frame.is_like:
        dquery, dkey, dvalue = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    else:
        dquery, dkey, dvalue = [torch.empty(shape, dtype=frame.dtype) for shape in frame.shapes_of_three]
    rows = kept.data_ptr()
    frame.backward_of_three(
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        seed,
        out.data_ptr(),
        rows,
        rows + frame.saved_at if frame.saved_at else 0,
        dout.data_ptr(),
        strides,
        dquery.data_ptr(),
        dkey.data_ptr(),
        dvalue.data_ptr(),
    )
    return dquery if of_query else None, dkey if of_key else None, dvalue if of_value else None


def _all(places, present):
    """The tuple of all tensors, None for absent ones."""
    if len(present) == 3:
        return (*present, *_ABSENT)
    tensors = [None] * len(core.INPUTS)
    for i, x in zip(places, present):
        tensors[i] = x
    return tensors


_THREE = (0, 1, 2)
_ABSENT = (None,) * (len(core.INPUTS) - 3)


def _gradients(ctx, dout, kept):
    """Gradients of the call (None) and of the tensors that are present."""
    call = ctx.call
    rows, saved = ctx.results
    tensors, needs = _all(call.present, kept[:-1]), _all(call.present, ctx.needs_input_grad[1:])
    frame = call.frame
    if frame.context is not _threads.context():  # another thread, or another number of threads
        frame = _frames.frame_of(call.words, tensors, call.hosts, True)
    found = _frames.backward(frame, call.words, tensors, call.hosts, call.seed, kept[-1], rows, saved, dout, needs)
    return None, *[found[i] for i in call.present]


def differentiates(tensors) -> bool:
    """Whether autograd records a call with these tensors."""
    return torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])


def run(frame, words, tensors, hosts, seed, with_rows):
    """Output and rows (or None) of a frame that was found for these arguments."""
    if frame.forward_only:
        return _frames.forward(frame, tensors, hosts, seed, with_rows)[:2]
    present = (
        _THREE if len(frame.uses) == 3 and tensors[_frames.SIGMA] is None else tuple([i for i, x in enumerate(tensors) if x is not None])
    )
    result = Attention.apply(Call(frame, words, hosts, seed, with_rows, present), *[tensors[i] for i in present])
    return result if with_rows else (result, None)


def attention(words, tensors, hosts, seed, with_rows):
    """Output and rows (or None) of tensors that need no conversion."""
    return run(_frames.frame_of(words, tensors, hosts, differentiates(tensors)), words, tensors, hosts, seed, with_rows)
