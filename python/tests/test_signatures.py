"""The front ends take the same arguments, in the same order, with the same defaults."""

import importlib
import inspect

import hark
import pytest


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_front_ends_have_the_arguments_of_numpy(framework):
    pytest.importorskip(framework)
    front = importlib.import_module(f"hark.{framework}")
    expected = [(p.name, p.kind, p.default) for p in inspect.signature(hark.attention).parameters.values()]
    assert [(p.name, p.kind, p.default) for p in inspect.signature(front.attention).parameters.values()] == expected
