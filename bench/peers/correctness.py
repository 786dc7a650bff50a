"""Programs of hierarchical attention beside dense attention in float64: what they approximate, and whether they are what they say.

    correctness.py --hark build/hark [--flaxformer FOLDER] [--length 512] [--heads 4] [--seeds 3]

Programs: hark (f32, by `hark attend`), h-transformer-1d (PyPI, PyTorch) and, with --flaxformer, the layer by the authors of the method
(Zhu and Soricut, arXiv 2107.11906; f32) from a checkout of github.com/google/flaxformer (read at commit 6254e11), all without projections
and biases. Inputs: queries, keys and values that are standard normal ("noise") or walks that change little from token to token ("walk",
which is what a hierarchy is for); queries and keys as they are and times 0.1, where attention is nearly uniform and every right
approximation close to it. One row a program, kind of input and factor:

    error      |out - dense| / |dense| over all rows, mean over the seeds
    ones       largest |out - 1| where all values are 1: rows of weights sum to one
    deaf rows  not causal: share of the rows of the first half that do not change when the second half of the input does (dense: none)
    future     causal: rows that change with later tokens (dense: none), and by how much at most; flaxformer subtracts one maximum of all
               logits of a head, those of later tokens included, so that its rows change by rounding

With --flaxformer a second table: |flaxformer - hark| / |hark|, the largest of the seeds, both with the same coarse queries.

Exit status 1 when one of hark's rows breaks a property that holds by definition (ones, deaf rows or future), or when hark and flaxformer
differ by more than rounding where logits are small (factor 0.1; large ones make flaxformer lose rows, as one maximum serves a whole head).
"""

import argparse
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

ROUNDING = 1e-5  # of f32 over some hundred terms
INPUTS = [(kind, factor) for kind in ("noise", "walk") for factor in (1.0, 0.1)]
AUTHORS = {False: "hark, mean queries", True: "hark, first queries"}  # the coarse queries of flaxformer
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


def pack(a, q, k, v):
    """[1, length, 3 * heads * dim]"""
    return torch.cat([t.transpose(0, 1).reshape(1, a.length, -1) for t in (q, k, v)], -1)


def package_program(a, causal):
    import h_transformer_1d.h_transformer_1d as package  # pylint: disable=import-outside-toplevel

    sizes = {"heads": a.heads, "dim_head": a.dim, "block_size": a.block}
    module = package.CausalHAttention1D(1, max_seq_len=a.length, **sizes) if causal else package.HAttention1D(1, **sizes)
    module.to_qkv = module.to_out = torch.nn.Identity()

    def run(q, k, v):
        with torch.no_grad():
            out = module.double()(pack(a, q, k, v))
        return out[0].reshape(a.length, a.heads, a.dim).transpose(0, 1)

    return run


def flaxformer_program(a, causal):
    """Query, key and value of all heads are the thirds of the layer's input; its projections pick them."""
    if a.flaxformer not in sys.path:
        sys.path.insert(0, a.flaxformer)
        # The layer uses flaxformer's own dense module only with axis names; it needs packages that nothing here needs.
        components = sys.modules["flaxformer.components"] = types.ModuleType("flaxformer.components")
        components.dense = types.ModuleType("flaxformer.components.dense")
    import jax  # pylint: disable=import-outside-toplevel
    from flaxformer.architectures.h_transformer import h_attention  # pylint: disable=import-outside-toplevel

    features = a.heads * a.dim
    layer = h_attention.OneDimDecoderSelfAttention if causal else h_attention.OneDimEncoderSelfAttention
    bare = {"use_bias": False, "use_rpb": False, "output_projection": False, "enable_param_axes": False}
    module = layer(num_heads=a.heads, num_clusters=a.block, qkv_features=features, **bare)
    thirds = np.split(np.eye(3 * features, dtype=np.float32), 3, axis=1)
    kernels = {name: third.reshape(-1, a.heads, a.dim) for name, third in zip(("query", "key", "value"), thirds)}
    parameters = {"params": {f"{name}_multihead_projection": {"kernel": kernel} for name, kernel in kernels.items()}}
    attend = jax.jit(lambda packed: module.apply(parameters, packed, None))

    def run(q, k, v):
        out = np.asarray(attend(pack(a, q, k, v).float().numpy()), np.float64)
        return torch.from_numpy(out)[0].reshape(a.length, a.heads, a.dim).transpose(0, 1)

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
    """Largest deviation from one where values are one; the column of deaf rows and of the future, and whether it is as it should be."""
    q, k, v = inputs(a, "noise", 1.0, 101)
    ones = float((run(q, k, torch.ones_like(v)) - 1).abs().max())
    half = a.length // 2
    other = inputs(a, "noise", 1.0, 102)
    changed = [torch.cat([t[:, :half], o[:, half:]], 1) for t, o in zip((q, k, v), other)]
    change = (run(q, k, v)[:, :half] - run(*changed)[:, :half]).abs().amax(-1)
    moved = int((change > 0).sum())
    if causal:
        return ones, f"{moved} rows" + (f", by {float(change.max()):.1g}" if moved else ""), moved == 0
    deaf = change.numel() - moved
    return ones, f"{100 * deaf / change.numel():.1f} %", deaf == 0


def measure(a, name, run, causal):
    ones, rows, right = properties(a, run, causal)
    for kind, factor in INPUTS:
        errors = []
        for seed in range(1, a.seeds + 1):
            q, k, v = inputs(a, kind, factor, seed)
            exact = dense(q, k, v, causal)
            errors.append(float((run(q, k, v) - exact).norm() / exact.norm()))
        print(f"| {'yes' if causal else 'no'} | {name} | {kind} x {factor:g} | {np.mean(errors):.4f} | {ones:.2g} | {rows} |", flush=True)
    return ones < ROUNDING and right


def beside_authors(a, causal):
    """Distance of flaxformer from hark; whether it is rounding where logits are small."""
    hark, authors = hark_program(a, HARK[causal][AUTHORS[causal]], causal), flaxformer_program(a, causal)
    right = True
    for kind, factor in INPUTS:
        distances = []
        for seed in range(1, a.seeds + 1):
            q, k, v = inputs(a, kind, factor, seed)
            ours = hark(q, k, v)
            distances.append(float((authors(q, k, v) - ours).norm() / ours.norm()))
        print(f"| {'yes' if causal else 'no'} | {AUTHORS[causal]} | {kind} x {factor:g} | {max(distances):.1e} |", flush=True)
        right = right and (factor == 1.0 or max(distances) < ROUNDING)
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--flaxformer", help="folder of a checkout of flaxformer; needs jax, flax and gin-config")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--block", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    a = parser.parse_args()
    a.hark = str(Path(a.hark).resolve())
    if a.flaxformer:
        a.flaxformer = str(Path(a.flaxformer).resolve())
        layer = "flaxformer/architectures/h_transformer/h_attention.py"
        if not Path(a.flaxformer, layer).is_file():
            parser.error(f"--flaxformer: no {layer} in {a.flaxformer}, expected a checkout of flaxformer")
    right = True
    print("| causal | program | input | error | ones | deaf rows; future |\n|---|---|---|---|---|---|")
    for causal in (False, True):
        for name, options in HARK[causal].items():
            right = measure(a, name, hark_program(a, options, causal), causal) and right
        measure(a, "h-transformer-1d", package_program(a, causal), causal)
        if a.flaxformer:
            measure(a, "flaxformer", flaxformer_program(a, causal), causal)
    if a.flaxformer:
        print("\n| causal | beside flaxformer | input | distance |\n|---|---|---|---|")
        for causal in (False, True):
            right = beside_authors(a, causal) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
