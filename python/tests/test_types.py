"""The type hints: mypy --strict accepts a program that uses the package, finds the types of its results, and refuses wrong words; the
stubs have the arguments of the functions.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

PACKAGE = pathlib.Path(__file__).parents[1]
NUMPY = """
import numpy
import hark
x = numpy.ones((1, 2, 8, 4), numpy.float32)
reveal_type(hark.attention(x, x, x, causal=True))
reveal_type(hark.attention(x, x, x, return_log_sum_exp=True))
out, vjp = hark.attention_vjp(x, x, x, structure="window", window=3)
reveal_type(vjp(out)["query"])
reveal_type(hark.load("run", weights="int8").logits("text"))
hark.op("gelu")(x)
"""
TORCH = """
import torch
import hark.torch
x = torch.ones(1, 2, 8, 4)
reveal_type(hark.torch.attention(x, x, x, structure="hierarchical", log_kernel=torch.zeros(1, 16)))
reveal_type(hark.torch.attention(x, x, x, normalisation="cme", ridge=0.5, return_variance=True))
reveal_type(hark.torch.scaled_dot_product_attention(x, x, x, is_causal=True))
reveal_type(hark.torch.nn.RotaryEmbedding(8))
hark.torch.op("gelu")(x)
"""
JAX = """
import jax.numpy as jnp
import hark.jax
x = jnp.ones((1, 2, 8, 4))
reveal_type(hark.jax.attention(x, x, x, causal=True))
reveal_type(hark.jax.attention(x, x, x, return_log_sum_exp=True))
hark.jax.op("gelu")(x)
"""
# Calls with a flag whose value is not known; each has two lines of reveal_type, of the pair and of what is none.
FLAGS = {
    "numpy": [
        "hark.attention(x, x, x, return_log_sum_exp=flag)",
        "hark.attention(x, x, x, return_variance=flag, normalisation='cme')",
        "hark.attention_vjp(x, x, x, return_log_sum_exp=flag)[0]",
        "hark.attention_vjp(x, x, x, return_variance=flag, normalisation='cme')[0]",
    ],
    "torch": ["hark.torch.attention(x, x, x, return_log_sum_exp=flag)", "hark.torch.attention(x, x, x, return_variance=flag)"],
    "jax": ["hark.jax.attention(x, x, x, return_log_sum_exp=flag)", "hark.jax.attention(x, x, x, return_variance=flag)"],
}


def with_flags(name):
    lines = "flag = len(x.shape) > 2\n"
    for call in FLAGS[name]:
        lines += f"both = {call}\nif isinstance(both, tuple):\n    reveal_type(both[1])\nelse:\n    reveal_type(both)\n"
    return lines


TENSOR, ARRAY = "torch._tensor.Tensor", "jax._src.basearray.Array"
PROGRAMS = {
    "numpy": (
        NUMPY + with_flags("numpy"),
        ["numpy.ndarray[", "tuple[numpy.ndarray[", "numpy.ndarray[", "numpy.ndarray[", *["numpy.ndarray["] * 8],
    ),
    "torch": (
        TORCH + with_flags("torch"),
        [TENSOR, f"tuple[{TENSOR}, {TENSOR}]", TENSOR, "hark.torch.nn.RotaryEmbedding", *[TENSOR] * 4],
    ),
    "jax": (JAX + with_flags("jax"), [ARRAY, f"tuple[{ARRAY}, {ARRAY}]", *[ARRAY] * 4]),
}


def wrong(name):
    """A program with two wrong calls."""
    front = {"numpy": "hark"}.get(name, f"hark.{name}")
    beginning = PROGRAMS[name][0].split("reveal_type")[0]
    return beginning + f'{front}.attention(x, x, x, structure="sparse")\n{front}.attention(x, x, x, colour=1)\n'


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """What mypy prints about each program, by the name of its file: of all programs in one run."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("without mypy")
    folder = tmp_path_factory.mktemp("types")
    files = []
    for name, (program, _) in PROGRAMS.items():
        if importlib.util.find_spec(name) is not None:
            files += [folder / f"right_{name}.py", folder / f"wrong_{name}.py"]
            files[-2].write_text(program)
            files[-1].write_text(wrong(name))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", "--hide-error-context"]
    environment = {**os.environ, "MYPYPATH": str(PACKAGE)}
    command += ["--cache-dir", str(folder / "cache"), *[x.name for x in files]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return {x.stem: [line for line in done.stdout.splitlines() if line.startswith(f"{x.name}:")] for x in files}


@pytest.mark.parametrize("name", PROGRAMS)
def test_types_of_results(name, lines):
    pytest.importorskip(name)
    found, expected = lines[f"right_{name}"], PROGRAMS[name][1]
    assert not [line for line in found if ": error:" in line], found
    revealed = [line.split('Revealed type is "')[1].lower() for line in found if "Revealed type" in line]
    assert len(revealed) == len(expected)
    for have, beginning in zip(revealed, expected):
        assert have.replace("builtins.", "").startswith(beginning.lower()), have


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_words_are_errors(name, lines):
    pytest.importorskip(name)
    errors = [line for line in lines[f"wrong_{name}"] if ": error:" in line]
    numbers = {int(line.split(":")[1]) for line in errors}
    last = len(wrong(name).splitlines())
    assert numbers == {last - 1, last}, errors


@pytest.mark.parametrize("name", ["hark", "hark.torch", "hark.jax"])
def test_stubs_have_the_arguments_of_the_functions(name):
    if "." in name:
        pytest.importorskip(name.split(".")[1])
    module = importlib.import_module(name)
    stub = ast.parse(pathlib.Path(module.__file__).with_suffix(".pyi").read_text())
    words = ast.parse((PACKAGE / "hark" / "_words.pyi").read_text())
    (fields,) = [x for x in words.body if isinstance(x, ast.ClassDef)]
    shared = [x.target.id for x in fields.body]
    for function in [x for x in stub.body if isinstance(x, ast.FunctionDef)]:
        found = [x.arg for x in (*function.args.args, *function.args.kwonlyargs)]
        parameters = inspect.signature(getattr(module, function.name)).parameters
        expected = [x.name for x in parameters.values() if x.kind != x.VAR_KEYWORD]
        if function.args.kwarg and len(expected) == len(found) + len(shared):
            found += shared
        assert sorted(found) == sorted(expected), function.name
    if hasattr(module, "__all__"):
        named = {x.name for x in stub.body if isinstance(x, ast.FunctionDef)}
        named |= {alias.asname for x in stub.body if isinstance(x, ast.ImportFrom) for alias in x.names if alias.asname}
        assert set(module.__all__) <= named
