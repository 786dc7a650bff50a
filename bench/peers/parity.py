"""hark and PyTorch train the same model from the same weights on the same batches; their losses must agree.

hark trains, writes every step's loss, and exports the weights it began with. PyTorch takes these weights and repeats the run: batches in
sequential order, no dropout, AdamW with the same constants, warm-up and cosine, clipping by the global norm. With --optimiser adafactor both
have Adafactor, with rates relative to the weights and all matrices factored, as torch.optim.Adafactor has it. The largest relative difference
of the losses over all steps is printed; above --bound the exit status is 1. With --double PyTorch computes in f64: what is left is then hark's
own rounding and what training makes of it. --model gpt continues a text, --model encoder classifies lines of one length.
"""

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

import encoder
import gpt

CLIP, DECAY = 1.0, 0.1
NO_RATE = 1e-30  # moves no f32 weight that is not zero


class TextCase:
    """The GPT, on windows of a text."""

    betas, epsilon = (0.9, 0.99), 1e-8
    switches = ["--tie-embeddings", "--no-bias"]

    def __init__(self, a, text):
        self.a = a
        self.path = text
        self.flags = {"positions": "rotary", "model.rotary.pairs": "half", "epoch": "tokens"}

    def open(self, folder):
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        first = len(vocabulary["reserved"])
        numbers = {symbol: first + i for i, symbol in enumerate(vocabulary["symbols"])}
        text = Path(self.path).read_bytes().decode("utf-8")
        self.tokens = torch.tensor([numbers[character] for character in text])
        return gpt.GPT(gpt.Shape(vocabulary["size"], self.a.layers, self.a.heads, self.a.width, self.a.context))

    def batch(self, first):
        windows = (len(self.tokens) - 1) // self.a.context
        starts = [((first + row) % windows) * self.a.context for row in range(self.a.batch)]
        rows = torch.stack([self.tokens[s : s + self.a.context + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]


class ClassCase:
    """The encoder, on pieces of a text of `context` bytes each, whose class is whether the first half has more of the letter e."""

    betas, epsilon = (0.9, 0.98), 1e-9
    switches = ["--bias", "--model.attention.unbiased"]

    def __init__(self, a, text):
        self.a = a
        self.path = a.folder / "pieces.tsv"
        letters = bytes(b for b in Path(text).read_bytes() if 32 <= b < 127)
        pieces = [letters[i : i + a.context] for i in range(0, min(len(letters), 512 * a.context) - a.context + 1, a.context)]
        half = a.context // 2
        labels = [int(piece[:half].count(b"e") > piece[half:].count(b"e")) for piece in pieces]
        self.path.write_bytes(b"".join(b"%d\t%s\n" % line for line in zip(labels, pieces)))
        self.flags = {
            "format": "text", "architecture": "encoder", "positions": "sinusoidal", "pooling": "class", "model.feed_forward_width": 4 * a.width,
            "model.embedding_deviation": 1,
        }  # fmt: skip
        self.pieces, self.labels = pieces, labels

    def open(self, folder):
        vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
        first = len(vocabulary["reserved"])
        self.tokens = torch.tensor([list(piece) for piece in self.pieces]) + first
        self.classes = torch.tensor(self.labels)
        a = self.a
        return encoder.Encoder(encoder.Shape(vocabulary["size"], 2, a.layers, a.heads, a.width, 4 * a.width, a.context))

    def batch(self, first):
        rows = [(first + row) % len(self.pieces) for row in range(self.a.batch)]
        return self.tokens[rows], self.classes[rows]


def optimiser_flags(a, case):
    if a.optimiser == "adafactor":
        return {"optimiser": "adafactor", "train.adafactor.factor_from": 1}
    return {"beta1": case.betas[0], "beta2": case.betas[1], "train.epsilon": case.epsilon}


def train(a, case, folder, steps, rate, minimum):
    shutil.rmtree(folder, ignore_errors=True)
    flags = {
        "data": case.path, "out": folder, "steps": steps, "layers": a.layers, "heads": a.heads, "width": a.width, "context": a.context,
        "batch": a.batch, "activation": "gelu", "norm": "layer_norm", "order": "sequential", "validation-fraction": 0, "dropout": 0,
        "attention-dropout": 0, "lr": rate, "train.minimum_rate": minimum, "schedule": "cosine", "warmup": a.warmup,
        **optimiser_flags(a, case), "weight-decay": DECAY, "clip": CLIP,
        "log-every": 1, "checkpoint-every": 0, "evaluate-every": 0, "seed": 1, "threads": a.threads, **case.flags,
    }  # fmt: skip
    command = [a.hark, "train", *case.switches, *(["--train.adafactor.relative"] if a.optimiser == "adafactor" else [])]
    for name, value in flags.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")


def losses_of(folder):
    with open(folder / "metrics.jsonl", encoding="utf-8") as file:
        return [line["train/loss"] for line in map(json.loads, file) if "train/loss" in line]


def checkpoint_of(folder):
    return folder / "checkpoints" / (folder / "last").read_text(encoding="utf-8").strip()


def rate_at(a, step):
    if step < a.warmup:
        return a.rate * step / a.warmup
    return a.minimum + (a.rate - a.minimum) * 0.5 * (1 + math.cos(math.pi * (step - a.warmup) / (a.steps - a.warmup)))


def main():
    parser = argparse.ArgumentParser(description="hark and PyTorch, the same run twice")
    parser.add_argument("--hark", required=True)
    parser.add_argument("--model", choices=("gpt", "encoder"), default="gpt")
    parser.add_argument("--optimiser", choices=("adamw", "adafactor"), default="adamw")
    parser.add_argument("--folder", type=Path, required=True, help="for the runs; what is there is deleted")
    parser.add_argument("--text", help="UTF-8 text (default: hark's own sources)")
    parser.add_argument("--bound", type=float, default=1e-3, help="largest relative difference of a loss")
    for name, value in (("steps", 200), ("layers", 4), ("heads", 4), ("width", 256), ("context", 128), ("batch", 8), ("warmup", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--minimum", type=float, default=1e-4, help="the rate at the end")
    parser.add_argument("--double", action="store_true", help="PyTorch computes in f64")
    parser.add_argument("--losses", type=Path, help="file for the losses of every step, one JSON object a line")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    if a.text is None:
        root = Path(__file__).resolve().parents[2]
        a.text = a.folder / "text.txt"
        a.text.write_bytes(b"".join(path.read_bytes() for path in sorted(root.glob("src/**/*.[ch]"))))

    case = (TextCase if a.model == "gpt" else ClassCase)(a, a.text)
    train(a, case, a.folder / "start", 1, NO_RATE, NO_RATE)
    train(a, case, a.folder / "run", a.steps, a.rate, a.minimum)
    ours = losses_of(a.folder / "run")
    if len(ours) != a.steps:
        raise SystemExit(f"hark wrote {len(ours)} losses, expected {a.steps}")

    torch.set_num_threads(a.threads)
    torch.set_default_dtype(torch.float64 if a.double else torch.float32)
    model = case.open(a.folder / "run")
    model.load_hark(load_file(checkpoint_of(a.folder / "start") / "model.safetensors"))
    if a.optimiser == "adafactor":
        optimizer = gpt.Adafactor(model, a.rate, DECAY)
    else:
        optimizer = model.optimizer(a.rate, case.betas, case.epsilon, DECAY)
    worst, worst_step, lines = 0.0, 0, []
    for step in range(1, a.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(a, step)
        optimizer.zero_grad(set_to_none=True)
        loss = model(*case.batch((step - 1) * a.batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        difference = abs(loss.item() - ours[step - 1]) / abs(loss.item())
        lines.append({"step": step, "hark": ours[step - 1], "pytorch": loss.item()})
        if difference > worst or math.isnan(difference):
            worst, worst_step = difference, step
        if step in (1, 2, 5, 10, 20, 50, 100, 150, a.steps):
            print(f"step {step:4}: hark {ours[step - 1]:.6f}, PyTorch {loss.item():.6f}, relative difference {difference:.1e}", flush=True)
    if a.losses is not None:
        a.losses.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    agree = worst <= a.bound
    print(f"parity of the {a.model} with {a.optimiser} over {a.steps} steps, PyTorch in {'f64' if a.double else 'f32'}: largest relative difference {worst:.2e} at step {worst_step}, bound {a.bound:.0e}: {'agree' if agree else 'DIFFER'}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
