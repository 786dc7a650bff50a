"""Event files of `hark train --tensorboard` in TensorBoard's own reader: the numbers of metrics.jsonl, each step once, also after a stop."""

import json
import subprocess

import numpy
import pytest

from _files import COMMAND

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

WORDS = "--layers 1 --width 16 --heads 2 --context 8 --batch 2 --log-every 1 --evaluate-every 3 --threads 1"


def train(folder, *words):
    subprocess.run([COMMAND, "train", "--out", str(folder), *words], check=True, capture_output=True)


def scalars(folder):
    """All numbers as {(tag, step): number}; fails where a tag has a step twice."""
    events = accumulators.EventAccumulator(str(folder))
    events.Reload()
    found = [((tag, event.step), event.value) for tag in events.Tags()["scalars"] for event in events.Scalars(tag)]
    assert len(dict(found)) == len(found)
    return dict(found)


def lines(folder):
    numbers = {}
    for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        left_out = ("step", "time") if "train/loss" in line else ("step", "time", "tokens", "operations")
        for name, value in line.items():
            if name not in left_out and isinstance(value, (int, float)) and not isinstance(value, bool):
                numbers[name, line["step"]] = float(numpy.float32(value))
    return numbers


def test_numbers_are_those_of_the_metrics(tmp_path):
    text, run = tmp_path / "text.txt", tmp_path / "run"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 100)
    train(run, "--data", str(text), "--steps", "4", "--tensorboard", *WORDS.split())
    assert scalars(run) == lines(run)
    with open(run / "metrics.jsonl", "a") as metrics:  # of steps after the checkpoint, which a continued run takes back
        metrics.write('{"step": 5, "tokens": 80, "train/loss": 9.0, "time": 9.0}\n')
    train(run, "--resume", "--steps", "7")
    found = scalars(run)
    assert found == lines(run)
    assert [step for tag, step in found if tag == "train/loss"] == list(range(1, 8))
    assert len(list(run.glob("events.out.tfevents.*"))) == 1
