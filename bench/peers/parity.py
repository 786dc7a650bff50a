"""hark and PyTorch train the same model from the same weights on the same batches; their losses must agree.

hark trains, writes every step's loss, and exports the weights it began with. PyTorch takes these weights and repeats the run: batches in
sequential order, no dropout, AdamW with the same constants, warm-up and cosine, clipping by the global norm. The largest relative difference
of the losses over all steps is printed; above --bound the exit status is 1. With --double PyTorch computes in f64: what is left is then hark's
own rounding and what training makes of it.
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

from gpt import GPT, Shape

CLIP, BETAS, EPSILON, DECAY = 1.0, (0.9, 0.99), 1e-8, 0.1
NO_RATE = 1e-30  # moves no f32 weight that is not zero


def train(a, folder, steps, rate, minimum):
    shutil.rmtree(folder, ignore_errors=True)
    flags = {
        "data": a.text, "out": folder, "steps": steps, "layers": a.layers, "heads": a.heads, "width": a.width, "context": a.context,
        "batch": a.batch, "positions": "rotary", "model.rotary.pairs": "half", "activation": "gelu", "norm": "layer_norm",
        "order": "sequential", "epoch": "tokens", "validation-fraction": 0, "dropout": 0, "attention-dropout": 0, "lr": rate,
        "train.minimum_rate": minimum, "schedule": "cosine", "warmup": a.warmup, "beta1": BETAS[0], "beta2": BETAS[1],
        "train.epsilon": EPSILON, "weight-decay": DECAY, "clip": CLIP, "log-every": 1, "checkpoint-every": 0, "evaluate-every": 0,
        "seed": 1, "threads": a.threads,
    }  # fmt: skip
    command = [a.hark, "train", "--tie-embeddings", "--no-bias"]
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


def tokens_of(a, folder):
    vocabulary = json.loads((folder / "vocabulary.json").read_text(encoding="utf-8"))
    first = len(vocabulary["reserved"])
    numbers = {symbol: first + i for i, symbol in enumerate(vocabulary["symbols"])}
    text = Path(a.text).read_bytes().decode("utf-8")
    return torch.tensor([numbers[character] for character in text]), vocabulary["size"]


def main():
    parser = argparse.ArgumentParser(description="hark and PyTorch, the same run twice")
    parser.add_argument("--hark", required=True)
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

    train(a, a.folder / "start", 1, NO_RATE, NO_RATE)
    train(a, a.folder / "run", a.steps, a.rate, a.minimum)
    ours = losses_of(a.folder / "run")
    if len(ours) != a.steps:
        raise SystemExit(f"hark wrote {len(ours)} losses, expected {a.steps}")

    torch.set_num_threads(a.threads)
    torch.set_default_dtype(torch.float64 if a.double else torch.float32)
    tokens, vocabulary = tokens_of(a, a.folder / "run")
    model = GPT(Shape(vocabulary, a.layers, a.heads, a.width, a.context))
    model.load_hark(load_file(checkpoint_of(a.folder / "start") / "model.safetensors"))
    optimizer = model.optimizer(a.rate, BETAS, EPSILON, DECAY)
    windows = (len(tokens) - 1) // a.context
    worst, worst_step, lines = 0.0, 0, []
    for step in range(1, a.steps + 1):
        starts = [(((step - 1) * a.batch + row) % windows) * a.context for row in range(a.batch)]
        rows = torch.stack([tokens[s : s + a.context + 1] for s in starts])
        for group in optimizer.param_groups:
            group["lr"] = rate_at(a, step)
        optimizer.zero_grad(set_to_none=True)
        loss = model(rows[:, :-1], rows[:, 1:])
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
    print(f"parity over {a.steps} steps, PyTorch in {'f64' if a.double else 'f32'}: largest relative difference {worst:.2e} at step {worst_step}, bound {a.bound:.0e}: {'agree' if agree else 'DIFFER'}")
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
