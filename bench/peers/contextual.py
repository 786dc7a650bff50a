"""Contextual positions of `hark attend` in float64 beside their formulas in PyTorch, values and gradients by autograd.

    contextual.py --hark build/hark

Of arXiv 2405.18719: gates sigmoid(scale q.k), positions their sums from a key to the query, at most N - 1, and scale q.e interpolated at
the position. The twin sums gates with a matrix of ones and interpolates with weights of all rows (hat functions), so it has no index.
Exit status 1 where a result is off by more than 1e-12 of its largest element.
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
    "two positions": {"positions": 2},
    "more positions than keys": {"positions": 90},
    "one table": {"shared": True},
    "window": {"window": 20},
    "bias": {"bias": True},
    "forget gates": {"forget": True},
    "masked keys": {"mask": True},
    "few queries": {"queries": 3},
    "everything": {"window": 40, "bias": True, "forget": True, "mask": True, "shared": True},
}
GRADIENTS = {"q": "dq", "k": "dk", "v": "dv", "contextual": "dcontextual", "attention_bias": "dattention_bias", "forget": "dforget"}


def random(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def inputs(a, case, seed):
    generator = torch.Generator().manual_seed(seed)
    queries = case.get("queries", a.length)
    given = {
        "q": random(generator, a.batch, a.heads, queries, a.dim),
        "k": random(generator, a.batch, a.key_heads, a.length, a.dim),
        "v": random(generator, a.batch, a.key_heads, a.length, a.dim),
        "dout": random(generator, a.batch, a.heads, queries, a.dim),
        "contextual": random(generator, 1 if case.get("shared") else a.heads, case.get("positions", 24), a.dim),
    }
    if case.get("bias"):
        given["attention_bias"] = random(generator, a.batch, a.heads, queries, a.length)
    if case.get("forget"):
        given["forget"] = random(generator, a.batch, a.heads, a.length) + 2
    if case.get("mask"):
        given["mask"] = (torch.rand(a.batch, 1, 1, a.length, generator=generator) > 0.3).to(torch.uint8)
        given["mask"][..., 0] = 1  # every query sees a key
    return given


def interpolate(table, position):
    """table [..., n, N] at position [..., n, k]: the sum over rows r of max(0, 1 - |position - r|) table[r]."""
    rows = torch.arange(table.shape[-1], dtype=torch.float64)
    hats = (1 - (position[..., None] - rows).abs()).clamp_min(0)
    return torch.einsum("...nkr,...nr->...nk", hats, table)


def twin(given, window):
    """out and log-sum-exp of the formulas."""
    q, k, v = given["q"], given["k"], given["v"]
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    queries, keys, scale = q.shape[2], k.shape[2], q.shape[-1] ** -0.5
    position = torch.arange(queries)[:, None] + keys - queries
    distance = position - torch.arange(keys)[None, :]
    visible = (distance >= 0) & (distance <= window if window else True)
    if "mask" in given:
        visible = visible & (given["mask"] != 0)
    product = scale * q @ k.transpose(-1, -2)
    gates = torch.sigmoid(product).masked_fill(~visible, 0.0)
    count = gates @ torch.ones(keys, keys, dtype=torch.float64).tril()  # column j: keys t >= j
    table = scale * q @ given["contextual"].transpose(-1, -2)
    logits = product + interpolate(table, count.clamp_max(table.shape[-1] - 1))
    if "attention_bias" in given:
        logits = logits + given["attention_bias"]
    if "forget" in given:
        sums = torch.cumsum(torch.nn.functional.logsigmoid(given["forget"]), -1)
        logits = logits + sums[..., position[:, 0], None] - sums[..., None, :]
    logits = logits.masked_fill(~visible, -torch.inf)
    seen = visible.expand_as(logits).any(-1, keepdim=True)
    weights = torch.softmax(logits.masked_fill(~seen, 0.0), -1) * seen
    return weights @ v, torch.logsumexp(logits, -1)


def attend(a, given, window):
    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in given.items()}, source)
        command = [a.hark, "attend", "--input", source, "--output", output, "--causal"]
        command += ["--structure", "window", "--window", str(window)] if window else []
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return load_file(output)


def compare(a, name, case):
    given = inputs(a, case, 7)
    have = attend(a, given, case.get("window"))
    leaves = {key: given[key].clone().requires_grad_() for key in GRADIENTS if key in given}
    out, total = twin({**given, **leaves}, case.get("window"))
    (out * given["dout"]).sum().backward()
    want = {"out": out, "log_sum_exp": total, **{GRADIENTS[key]: leaf.grad for key, leaf in leaves.items()}}
    worst = 0.0
    for key, tensor in want.items():
        tensor = tensor.detach()
        some = torch.isfinite(tensor)  # -infinity where a query sees nothing
        if not torch.equal(have[key][~some], tensor[~some]):
            worst = float("inf")
        error = float((have[key][some] - tensor[some]).abs().max() / tensor[some].abs().max().clamp_min(1e-300))
        worst = max(worst, error)
    print(f"| {name} | {', '.join(want)} | {worst:.1e} |", flush=True)
    return worst <= WITHIN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--length", type=int, default=60)
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
