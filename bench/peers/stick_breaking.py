"""Stick-breaking attention of `hark attend` in float64 beside its formulas in PyTorch, values and gradients by autograd.

    stick_breaking.py --hark build/hark

Of arXiv 2410.17980: b = sigmoid(logits), P[n,i] = b[n,i] prod over i < j < n of (1 - b[n,j]), out = P v, over the keys before a query.
The twin takes logarithms, sums them with a matrix of ones, and knows nothing of tiles. Exit status 1 where a result is off by more than
1e-12 of its largest element.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

WITHIN = 1e-12
CASES = {
    "plain": {},
    "window": {"window": 20},
    "bias": {"bias": True},
    "forget gates": {"forget": True},
    "masked keys": {"mask": True},
    "large logits": {"factor": 12.0},
    "few queries": {"queries": 3},
    "everything": {"window": 40, "bias": True, "forget": True, "mask": True},
}
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "attention_bias": "dattention_bias", "forget": "dforget"}


def random(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def inputs(a, case, seed):
    generator = torch.Generator().manual_seed(seed)
    queries, factor = case.get("queries", a.length), case.get("factor", 1.0)
    given = {
        "q": factor * random(generator, a.batch, a.heads, queries, a.dim),
        "k": factor * random(generator, a.batch, a.key_heads, a.length, a.dim),
        "v": random(generator, a.batch, a.key_heads, a.length, a.dim),
        "dout": random(generator, a.batch, a.heads, queries, a.dim),
    }
    if case.get("bias"):
        given["attention_bias"] = random(generator, a.batch, a.heads, queries, a.length)
    if case.get("forget"):
        given["forget"] = random(generator, a.batch, a.heads, a.length) + 2
    if case.get("mask"):
        given["mask"] = (torch.rand(a.batch, 1, 1, a.length, generator=generator) > 0.3).to(torch.uint8)
    return given


def twin(given, window):
    """out and log(1 - sum of the weights) of the formulas."""
    q, k, v = given["q"], given["k"], given["v"]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    queries, keys = q.shape[2], k.shape[2]
    logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    position = torch.arange(queries)[:, None] + keys - queries
    distance = position - torch.arange(keys)[None, :]
    visible = (distance > 0) & (distance <= window if window else True)
    if "mask" in given:
        visible = visible & (given["mask"] != 0)
    if "attention_bias" in given:
        logits = logits + given["attention_bias"]
    if "forget" in given:
        gates = torch.nn.functional.logsigmoid(given["forget"])
        sums = torch.cumsum(gates, -1)
        logits = logits + sums[..., position[:, 0], None] - sums[..., None, :]
    taken = torch.nn.functional.logsigmoid(logits)
    kept = torch.nn.functional.logsigmoid(-logits).masked_fill(~visible, 0.0)
    nearer = kept @ torch.ones(keys, keys, dtype=torch.float64).tril(-1)  # column i: keys j > i
    weights = torch.exp(taken + nearer).masked_fill(~visible, 0.0)
    return weights @ v, kept.sum(-1)


def attend(a, given, window):
    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in given.items()}, source)
        command = [a.hark, "attend", "--input", source, "--output", output, "--causal", "--normalisation", "stick_breaking"]
        command += ["--structure", "window", "--window", str(window)] if window else []
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return load_file(output)


def compare(a, name, case):
    given = inputs(a, case, 7)
    have = attend(a, given, case.get("window"))
    leaves = {key: given[key].clone().requires_grad_() for key in GRADIENTS if key in given}
    out, left = twin({**given, **leaves}, case.get("window"))
    (out * given["dout"]).sum().backward()
    want = {"out": out, **{GRADIENTS[key]: leaf.grad for key, leaf in leaves.items()}}
    if (left > -69).all():  # shorter sticks are used up
        want["log_sum_exp"] = left
    worst = 0.0
    for key, tensor in want.items():
        error = float((have[key] - tensor.detach()).abs().max() / tensor.detach().abs().max().clamp_min(1e-300))
        worst = max(worst, error)
    print(f"| {name} | {', '.join(want)} | {worst:.1e} |", flush=True)
    return worst <= WITHIN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--length", type=int, default=150)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--key-heads", type=int, default=2)
    parser.add_argument("--dim", type=int, default=16)
    a = parser.parse_args()
    print("| case | results | largest difference |\n|---|---|---|")
    right = [compare(a, name, case) for name, case in CASES.items()]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
