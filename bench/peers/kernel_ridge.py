"""Kernel ridge (CME) attention beside others: scikit-learn's GaussianProcessRegressor for the numbers, PyTorch's batched Cholesky for the time.

    python bench/peers/kernel_ridge.py build/hark [numbers|times]

Equality: `hark attend` in f32 against one regressor a head (full) and a prefix (causal), mean and variance, to 1e-4 of the largest value.
Time: one factorisation of a batch of matrices, with two threads, beside hark's with one query (kernels of the keys and the factor, little else)
and hark's whole forward (`hark bench attention cme:...`). `times` or `numbers` after the program: only that part. Needs numpy, scikit-learn,
safetensors and torch in an environment of its own (requirements.txt).
"""
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TOLERANCE = 1e-4
HEADS, LENGTH, DIM, RIDGE, SIGMA = 2, 96, 8, 0.05, 1.5
SIZES = ((8, 256), (8, 1024), (2, 4096))  # heads, length


def attend(hark, folder, tensors, *words):
    from safetensors.numpy import load_file, save_file

    source, target = folder / "in.safetensors", folder / "out.safetensors"
    save_file(tensors, source)
    subprocess.run([hark, "attend", "--input", source, "--output", target, "--normalisation", "cme", "--kernel", "rbf", "--ridge", str(RIDGE),
                    "--sigma", str(SIGMA), *words], check=True, stderr=subprocess.DEVNULL)
    return load_file(target)


def regress(keys, values, queries):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    model = GaussianProcessRegressor(RBF(SIGMA), alpha=RIDGE, optimizer=None).fit(keys, values)
    mean, deviation = model.predict(queries, return_std=True)
    return mean.reshape(len(queries), -1), (deviation.reshape(len(queries), -1)[:, 0]) ** 2


def compare_numbers(hark):
    generator = np.random.default_rng(1)
    q, k, v = (generator.standard_normal((1, HEADS, LENGTH, DIM)).astype(np.float32) for _ in range(3))
    with tempfile.TemporaryDirectory() as name:
        for causal in (False, True):
            have = attend(hark, Path(name), {"q": q, "k": k, "v": v}, *(["--causal"] if causal else []))
            worst = 0.0
            for head in range(HEADS):
                rows = range(LENGTH) if causal else [LENGTH - 1]
                for row in rows:
                    asked = q[0, head, row : row + 1] if causal else q[0, head]
                    mean, variance = regress(k[0, head, : row + 1].astype(float), v[0, head, : row + 1].astype(float), asked.astype(float))
                    part = slice(row, row + 1) if causal else slice(None)
                    worst = max(worst, np.abs(have["out"][0, head, part] - mean).max(), np.abs(have["variance"][0, head, part] - variance).max())
            print(json.dumps({"case": "causal" if causal else "full", "peer": "scikit-learn", "largest_difference": float(worst)}))
            if not worst <= TOLERANCE:
                sys.exit(f"kernel_ridge.py: {worst} apart from scikit-learn, expected at most {TOLERANCE}")


def compare_times(hark):
    import torch

    torch.set_num_threads(2)
    for heads, length in SIZES:
        x = torch.randn(heads, length, 64)
        gram = torch.exp(-torch.cdist(x, x) ** 2 / 16) + 0.01 * torch.eye(length)
        times = []
        for _ in range(5 if length > 2048 else 9):
            start = time.perf_counter()
            torch.linalg.cholesky(gram)
            times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps({"case": f"cholesky {heads} x {length}", "peer": "torch " + torch.__version__, "ms": float(np.median(times)),
                          "min_ms": min(times)}), flush=True)
        # one query: kernels of the keys, the factor, and little else; then the whole forward
        subprocess.run([hark, "bench", "--seconds", "1", "attention", f"cme:B1,H{heads},L1,M{length},D16,forward",
                        f"cme:B1,H{heads},L{length},D64,forward", f"cme:B1,H{heads},L{length},D64,causal,forward", "--json"], check=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    part = sys.argv[2] if len(sys.argv) == 3 else ""
    if part != "times":
        compare_numbers(sys.argv[1])
    if part != "numbers":
        compare_times(sys.argv[1])
