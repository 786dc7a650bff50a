"""Ctrl-C in the middle of a call: each program below computes for minutes unless SIGINT, which another process sends, ends its call."""

import importlib.util
import signal
import subprocess
import sys
import time

import pytest

BEGIN = """
import signal, sys, numpy, hark
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background, with SIGINT ignored
from hark import _attention
def small():
    x = numpy.random.default_rng(1).standard_normal((1, 2, 200, 8)).astype("f4")
    out, vjp = hark.attention_vjp(x, x, x, causal=True)
    return out, *vjp(x).values()
expected = small()
x = numpy.random.default_rng(2).standard_normal((1, 8, 1 << 18, 8)).astype("f4")
"""
# Only the backward computes: the numbers of the forward do not matter.
WITHOUT_FORWARD = "_attention.Frame.forward = lambda *_: None\n"
# Before the call: an interrupted import of PyTorch may end the program.
TORCH = """
if "torch" in sys.argv[1]:
    import torch, hark.torch
    torch.set_num_threads(2)
    q = torch.from_numpy(x.reshape(1, 512, 4096, 8) if "backward" in sys.argv[1] else x).requires_grad_()
"""
CALLS = {
    "numpy": "result = hark.attention(x, x, x)",
    "one thread": "hark.set_threads(1)\nresult = hark.attention(x, x, x, causal=True)",
    "hierarchy": "result = hark.attention(x, x, x, structure='hierarchical', hierarchy_block=1 << 14)",
    "operator": "rows = x[0]\ndesc = dict(type=1, batch=8, heads=1, query_length=1 << 18, key_length=1 << 18, head_dim=8)\n"
    "result = hark.op('attention')(rows, rows, rows, own=desc)",
    # heads of few rows: a piece of the backward may be a head
    "backward": WITHOUT_FORWARD + "x = x.reshape(1, 512, 4096, 8)\nwhile True:\n    hark.attention_vjp(x, x, x)[1](x)",
    "torch": "result = hark.torch.attention(q, q, q)",
    "torch without gradients": "with torch.no_grad():\n    result = hark.torch.attention(q, q, q)",
    "torch backward": WITHOUT_FORWARD
    + "_attention.Frame.forward_of_three = lambda *_: None\nwhile True:\n    hark.torch.attention(q, q, q).sum().backward()",
}
# An interrupted call has no result, and neither has a gradient; afterwards the context computes as before.
TRIED = """
forward, result = (_attention.Frame.forward, _attention.Frame.forward_of_three), None
print("begins", flush=True)
try:
{call}
    sys.exit("the call came to its end")
except KeyboardInterrupt:
    pass
assert result is None and ("backward" in sys.argv[1] or "q" not in globals() or q.grad is None)
_attention.Frame.forward, _attention.Frame.forward_of_three = forward
assert all(numpy.array_equal(a, b) for a, b in zip(small(), expected))
print("usable", flush=True)
"""


def interrupted(program, name=""):
    """The output of a program to which SIGINT is sent after it printed a line; fails where it does not end."""
    process = subprocess.Popen([sys.executable, "-c", program, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = process.stdout.readline()
        time.sleep(0.5)  # so that it is in its call
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return first + rest


@pytest.mark.parametrize("name", CALLS)
def test_a_call_ends_at_once(name):
    if "torch" in name and importlib.util.find_spec("torch") is None:
        pytest.skip("without torch")
    call = "\n".join("    " + line for line in CALLS[name].splitlines())
    assert interrupted(BEGIN + TORCH + TRIED.format(call=call), name).split() == ["begins", "usable"]


def test_a_handler_that_raises_nothing_lets_the_call_complete():
    program = (
        BEGIN
        + """
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
y = x[:, :2, : 1 << 14]
expected = hark.attention(y, y, y)
print("begins", flush=True)
while not came:
    assert numpy.array_equal(hark.attention(y, y, y), expected)
print(len(came))
"""
    )
    assert interrupted(program).split() == ["begins", "1"]


def test_calls_of_other_threads_are_not_interrupted():
    program = (
        BEGIN
        + """
import threading
y, results = x[:, :2, : 1 << 14], []
def work():
    results.append(hark.attention(y, y, y))
expected = hark.attention(y, y, y)
thread = threading.Thread(target=work)
thread.start()
print("begins", flush=True)
try:
    while True:
        hark.attention(y, y, y)
except KeyboardInterrupt:
    thread.join()
print(numpy.array_equal(results[0], expected))
"""
    )
    assert interrupted(program).split() == ["begins", "True"]
