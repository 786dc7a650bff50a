"""The programs of examples/python do what they state."""

import importlib.util
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parents[2] / "examples" / "python"


def example(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_check_a_kernel():
    pytest.importorskip("torch")
    example("check_a_kernel").main()


def test_gaussian_process():
    pytest.importorskip("sklearn")
    example("gaussian_process").main()


def test_learn_a_kernel(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    losses, period = example("learn_a_kernel").main(steps=150)
    assert losses[-1] < losses[0] / 10 and abs(period - 12) < 0.5


def test_flax_module():
    pytest.importorskip("flax")
    losses = example("flax_module").main(steps=150)
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("attention", ["sdpa", "hierarchical"])
def test_train_gpt(tmp_path, attention):
    pytest.importorskip("torch")
    (tmp_path / "book.txt").write_text("the dog sees the cat. " * 500)
    losses = example("train_gpt").main(
        [
            "--data",
            str(tmp_path / "book.txt"),
            "--attention",
            attention,
            "--context",
            "64",
            "--layers",
            "2",
            "--width",
            "32",
            "--steps",
            "40",
        ]
    )
    assert losses[-1] < losses[0] / 1.5
