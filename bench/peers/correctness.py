"""Programs of hierarchical attention beside dense attention in float64: what they approximate, and whether they are what they say.

    correctness.py --hark build/hark [--length 512] [--heads 4] [--seeds 3]

Programs: hark (f32, by `hark attend`) and h-transformer-1d (PyPI, PyTorch), both without projections. Inputs: queries, keys and values that are
standard normal ("noise") or walks that change little from token to token ("walk", which is what a hierarchy is for); queries and keys as they are and
times 0.1, where attention is nearly uniform and every right approximation close to it. One row a program, kind of input and factor:

    error      |out - dense| / |dense| over all rows, mean over the seeds
    ones       largest |out - 1| where all values are 1: rows of weights sum to one
    deaf rows  share of the rows of the first half that do not change when the second half of the input does (not causal: dense attention has none)
    future     causal: rows that change with later tokens (dense attention has none)

Exit status 1 when one of hark's rows breaks a property that holds by definition: ones, deaf rows or future.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

ROUNDING = 1e-5  # of f32 over some hundred terms
HARK = {
    False: {
        "hark, mean queries": ["--coarse-query", "mean"],
        "hark, mean queries, siblings": ["--coarse-query", "mean", "--partition", "sibling"],
        "hark, exact queries": ["--coarse-query", "exact"],
    },
    True: {"hark, first queries": ["--coarse-query", "first"], "hark, exact queries": ["--coarse-query", "exact"]},
}


def dense(q, k, v, causal):
    """[heads, length, dim] in float64."""
    logits = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if causal:
        logits = logits.masked_fill(torch.ones(logits.shape[1:], dtype=torch.bool).triu(1), -torch.inf)
    return torch.softmax(logits, -1) @ v


def hark_program(a, options, causal):
    def run(q, k, v):
        with tempfile.TemporaryDirectory() as folder:
            inputs, output = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
            save_file({n: t[None].float().contiguous() for n, t in (("q", q), ("k", k), ("v", v))}, inputs)
            command = [a.hark, "attend", "--input", inputs, "--output", output, "--structure", "hierarchical"]
            command += ["--hierarchy-block", str(a.block), *options, *(["--causal"] if causal else [])]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            return load_file(output)["out"][0].double()

    return run


def package_program(a, causal):
    import h_transformer_1d.h_transformer_1d as package  # pylint: disable=import-outside-toplevel

    sizes = {"heads": a.heads, "dim_head": a.dim, "block_size": a.block}
    module = package.CausalHAttention1D(1, max_seq_len=a.length, **sizes) if causal else package.HAttention1D(1, **sizes)
    module.to_qkv = module.to_out = torch.nn.Identity()

    def run(q, k, v):
        packed = torch.cat([t.transpose(0, 1).reshape(1, a.length, -1) for t in (q, k, v)], -1)
        with torch.no_grad():
            out = module.double()(packed)
        return out[0].reshape(a.length, a.heads, a.dim).transpose(0, 1)

    return run


def inputs(a, kind, factor, seed):
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(a.heads, a.length, a.dim, generator=generator, dtype=torch.float64) for _ in range(3))
    if kind == "walk":  # a stationary walk that forgets over 64 tokens
        keep = float(np.exp(-1 / 64))
        for t in (q, k, v):
            for i in range(1, a.length):
                t[:, i] = keep * t[:, i - 1] + (1 - keep**2) ** 0.5 * t[:, i]
    return factor * q, factor * k, v


def properties(a, run, causal):
    """Largest deviation from one where values are one; share of deaf rows, or number of rows that know the future."""
    q, k, v = inputs(a, "noise", 1.0, 101)
    ones = float((run(q, k, torch.ones_like(v)) - 1).abs().max())
    half = a.length // 2
    other = inputs(a, "noise", 1.0, 102)
    changed = [torch.cat([t[:, :half], o[:, half:]], 1) for t, o in zip((q, k, v), other)]
    same = (run(q, k, v)[:, :half] == run(*changed)[:, :half]).all(-1)
    return ones, (int((~same).sum()) if causal else float(same.double().mean()))


def measure(a, name, run, causal):
    ones, rows = properties(a, run, causal)
    for kind in ("noise", "walk"):
        for factor in (1.0, 0.1):
            errors = []
            for seed in range(1, a.seeds + 1):
                q, k, v = inputs(a, kind, factor, seed)
                exact = dense(q, k, v, causal)
                errors.append(float((run(q, k, v) - exact).norm() / exact.norm()))
            rows_text = f"{rows} rows" if causal else f"{100 * rows:.1f} %"
            print(f"| {'yes' if causal else 'no'} | {name} | {kind} x {factor:g} | {np.mean(errors):.4f} | {ones:.2g} | {rows_text} |", flush=True)
    return ones < ROUNDING and rows == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    a = parser.parse_args()
    a.hark = str(Path(a.hark).resolve())
    right = True
    print("| causal | program | input | error | ones | deaf rows; future |\n|---|---|---|---|---|---|")
    for causal in (False, True):
        for name, options in HARK[causal].items():
            right = measure(a, name, hark_program(a, options, causal), causal) and right
        measure(a, "h-transformer-1d", package_program(a, causal), causal)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
