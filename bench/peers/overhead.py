#!/usr/bin/env python3
"""What a call of hark.torch.attention costs beyond the library's own call, forward and backward, eager and compiled, on one thread.

    overhead.py [--shape 1,1,16,16] [--calls 3000] [--compile]

Needs the Python package and PyTorch. Prints microseconds, the shortest of all calls: of the library's two calls alone, of hark.torch.attention
with torch.autograd.grad, of PyTorch's own attention, of an addition of the three inputs, and of an autograd function that computes nothing.
"""

import argparse
import time

import torch

import hark.torch
from hark import _library
from hark.torch import _frames

WORDS = ("dense", True, "softmax", "exp", None, None, None, 0.0, 0.0, False, None, 16, "neighbour", "default", "constant", None, 0.0)


ROUND = 10  # calls of one function before those of the next: the caches are warm, and a change of the clock meets all


def shortest(functions, calls):
    """The shortest call of each function in microseconds; the functions are called in turn."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(max(1, calls // ROUND)):
        for name, function in functions.items():
            for _ in range(ROUND):
                begin = time.perf_counter()
                function()
                best[name] = min(best[name], time.perf_counter() - begin)
    return {name: seconds * 1e6 for name, seconds in best.items()}


def library_call(tensors, dout):
    """A function that calls the library's forward and backward with prepared arguments."""
    given = (*tensors, *[None] * 8)
    frame = _frames.frame_of(WORDS, given, _frames._NO_HOSTS, True)
    kept = _frames.forward(frame, given, _frames._NO_HOSTS, 0, True)
    gradients = _frames.backward(frame, WORDS, given, _frames._NO_HOSTS, 0, *kept, dout, [True] * 3 + [False] * 8)

    def call(kept=(kept, gradients)):  # the arrays whose addresses are in the frame
        _library.attention_forward(frame.handle, frame.plan_address, frame.address)
        _library.attention_backward(frame.handle, frame.plan_address, frame.address)

    return call


class Nothing(torch.autograd.Function):
    """The least that a function of autograd in Python does: it keeps its arguments, and makes its results without filling them."""

    @staticmethod
    def forward(ctx, q, k, v):
        out = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, _ = ctx.saved_tensors
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="1,1,16,16", help="B,H,L,d")
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--compile", action="store_true", help="also under torch.compile")
    a = parser.parse_args()
    torch.set_num_threads(1)
    shape = [int(n) for n in a.shape.split(",")]
    tensors = [torch.randn(shape, requires_grad=True) for _ in range(3)]
    dout = torch.randn(shape)

    def attention(q, k, v):
        return hark.torch.attention(q, k, v, causal=True)

    def step(function):
        return lambda: torch.autograd.grad(function(*tensors), tensors, dout)

    rows = {"the library": library_call(tensors, dout), "hark.torch.attention": step(attention)}
    if a.compile:
        rows["compiled"] = step(torch.compile(attention, fullgraph=True))
    rows["scaled_dot_product_attention"] = step(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    rows["addition"] = step(lambda q, k, v: q + k + v)
    rows["an autograd function, nothing computed"] = step(Nothing.apply)
    times = shortest(rows, a.calls)
    for name, microseconds in times.items():
        print(f"{name:38} {microseconds:10.1f} us   {microseconds - times['the library']:+9.1f}")


if __name__ == "__main__":
    main()
