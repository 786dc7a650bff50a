"""The direct path: autograd around a frame, without PyTorch's dispatcher, for plain tensors outside of transformations."""
import torch

from . import _frames

MESSAGE = "hark.torch.attention: second derivatives are not available; its gradients have none (create_graph, hessian, double backward)"


class _Once(torch.autograd.Function):
    """Passes a gradient on; differentiating it is refused."""

    @staticmethod
    def forward(ctx, gradient, *causes):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(MESSAGE)


class Attention(torch.autograd.Function):
    """(out, rows) of call = (frame, words, hosts, seed, with_rows) and the eleven tensors."""

    @staticmethod
    def forward(ctx, call, *tensors):
        frame, _, hosts, seed, with_rows = call
        out, rows, saved = _frames.forward(frame, tensors, hosts, seed, with_rows or not frame.cme)
        ctx.call = call
        ctx.save_for_backward(*tensors, out, rows, saved)
        if not with_rows:
            return out
        ctx.mark_non_differentiable(rows)
        return out, rows

    @staticmethod
    def backward(ctx, dout, *_):
        frame, words, hosts, seed, _ = ctx.call
        *tensors, out, rows, saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            with torch.no_grad():
                gradients = _gradients(ctx, frame, words, hosts, seed, tensors, out, rows, saved, dout)
            causes = [x for x in (dout, *tensors) if x is not None]
            return None, *[None if x is None else _Once.apply(x, *causes) for x in gradients]
        return None, *_gradients(ctx, frame, words, hosts, seed, tensors, out, rows, saved, dout)


def _gradients(ctx, frame, words, hosts, seed, tensors, out, rows, saved, dout):
    if frame.context is not _frames._threads.context():  # another thread, or another number of threads
        frame = _frames.frame_of(words, tensors, hosts, True)
    return _frames.backward(frame, words, tensors, hosts, seed, out, rows, saved, dout, ctx.needs_input_grad[1:])


def differentiates(tensors) -> bool:
    """Whether autograd records a call with these tensors."""
    return torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])


def run(frame, words, tensors, hosts, seed, with_rows):
    """Output and rows (or None) of a frame that was found for these arguments."""
    if frame.forward_only:
        return _frames.forward(frame, tensors, hosts, seed, with_rows)[:2]
    result = Attention.apply((frame, words, hosts, seed, with_rows), *tensors)
    return result if with_rows else (result, None)


def attention(words, tensors, hosts, seed, with_rows):
    """Output and rows (or None) of tensors that need no conversion."""
    return run(_frames.frame_of(words, tensors, hosts, differentiates(tensors)), words, tensors, hosts, seed, with_rows)
