"""Positional kernels of `hark attend` in float64 beside their formulas in PyTorch: values, and gradients by autograd.

    kernels.py --hark build/hark

Every kernel of the language alone, as a factor and as a term of sums and banks, in dense, window and hierarchical attention, causal and
not, and in kernel ridge attention where the kernel is positive definite. Every kernel also with a direction, where attention is not causal.
Kernels that this program does not know fail. Exit status 1 where a result is off by more than 1e-12 of its largest element.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

WITHIN = 1e-12
SIZE = 3  # of kernels that are written name[K]
BLOCK = 4  # of hierarchies
FLOAT = {"dtype": torch.float64}


def bucket(distance, buckets=32):
    exact = buckets // 2
    far = exact + torch.floor((buckets - exact) * torch.log(distance.clamp_min(1) / exact) / math.log(128 / exact) + 1e-12)
    return torch.where(distance < exact, distance, far.clamp_max(buckets - 1)).long()


def mlp(d, c, t, w):
    knees = torch.log((1 + c * d)[:, None, :] / (1 + c * t)[:, :, None]).clamp_min(0)
    return (w[:, :, None] * knees).sum(1)


def sandwich(d, a, base):
    i = torch.arange(1, 65, **FLOAT)
    return a * (torch.cos(d[None, None, :] / base[:, :, None] ** (i[None, :, None] / 64)).mean(1) - 1)


def xpos(d, sigma2, gamma, base):
    i = torch.arange(32, **FLOAT)[None, :, None]
    zeta = (i / 32 + gamma[:, :, None]) / (1 + gamma[:, :, None])
    return torch.log(sigma2 * (zeta ** (d[None, None, :] / base[:, :, None])).mean(1))


def matern(d, sigma2, x, polynomial):
    return torch.log(sigma2) + torch.log(polynomial) - x


def periodic(d, alpha, tau, mu=0.0):
    return -2 * alpha**2 * torch.sin((d - mu) / tau) ** 2


# log G of distances d [L], from parameters [components, values] to [components, L]; least and largest value of each parameter when drawn.
KERNELS = {
    "constant": (lambda d, sigma2: torch.log(sigma2) + 0 * d, {"sigma2": (0.5, 2)}),
    "decay": (lambda d, sigma2, l: torch.log(sigma2) - d / l, {"sigma2": (0.5, 2), "l": (3, 40)}),
    "periodic": (periodic, {"alpha": (0.4, 1.5), "tau": (1, 9)}),
    "canonical_periodic": (periodic, {"alpha": (0.4, 1.5), "tau": (1, 9)}),
    "rbf": (lambda d, sigma2, l: torch.log(sigma2) - d**2 / (2 * l**2), {"sigma2": (0.5, 2), "l": (4, 30)}),
    "rational_quadratic": (
        lambda d, sigma2, alpha, l: torch.log(sigma2) - alpha * torch.log1p(d**2 / (2 * alpha * l**2)),
        {"sigma2": (0.5, 2), "alpha": (0.5, 2), "l": (3, 20)},
    ),
    "matern32": (
        lambda d, sigma2, l: matern(d, sigma2, 3**0.5 * d / l, 1 + 3**0.5 * d / l),
        {"sigma2": (0.5, 2), "l": (4, 30)},
    ),
    "matern52": (
        lambda d, sigma2, l: matern(d, sigma2, 5**0.5 * d / l, 1 + 5**0.5 * d / l + 5 * d**2 / (3 * l**2)),
        {"sigma2": (0.5, 2), "l": (4, 30)},
    ),
    "bump": (
        lambda d, sigma2, mu, l: torch.log(sigma2) - (d - mu) ** 2 / (2 * l**2),
        {"sigma2": (0.5, 2), "mu": (1, 20), "l": (5, 20)},
    ),
    "lagged_periodic": (periodic, {"alpha": (0.4, 1.5), "tau": (1, 9), "mu": (1, 9)}),
    "spectral": (
        lambda d, a, l, tau: a * torch.exp(-(d**2) / (2 * l**2)) * torch.cos(d / tau),
        {"a": (0.5, 2), "l": (5, 30), "tau": (1, 9)},
    ),
    "alibi": (lambda d, m: -m * d, {"m": (0.01, 0.5)}),
    "kerple_log": (lambda d, r1, r2: -r1 * torch.log1p(r2 * d), {"r1": (0.3, 2), "r2": (0.1, 2)}),
    "kerple_power": (
        lambda d, r1, r2: -r1 * torch.where(d > 0, d.clamp_min(1) ** r2, 0 * r2),
        {"r1": (0.02, 0.3), "r2": (0.3, 1.5)},
    ),
    "t5": (lambda d, factor: torch.log(factor)[:, bucket(d)], {"factor": (0.3, 2, 32)}),
    "t5[16]": (lambda d, factor: torch.log(factor)[:, bucket(d, 16)], {"factor": (0.3, 2, 16)}),
    "table": (lambda d, factor: torch.log(factor)[:, d.clamp_max(SIZE - 1).long()], {"factor": (0.3, 2, SIZE)}),
    "mlp": (mlp, {"c": (0.1, 1), "t": (1, 20, SIZE), "w": (-1, 1, SIZE)}),
    "sandwich": (sandwich, {"a": (1, 8), "base": (50, 5000)}),
    "xpos": (xpos, {"sigma2": (0.5, 2), "gamma": (0.2, 0.6), "base": (20, 200)}),
    "window": (lambda d, w: torch.where(d <= w, 0 * d, -math.inf)[None, :], {}),
}
CONSTANTS = {"window": 12}
SIZED = ("table", "mlp")


class Leaf:
    """A kernel with drawn parameters, `copies` of them in a bank."""

    def __init__(self, name, generator, copies=1):
        self.name, self.values = name, {}
        for parameter, (low, high, *count) in KERNELS[name][1].items():
            shape = (copies, count[0] if count else 1)
            drawn = low + (high - low) * torch.rand(*shape, generator=generator, **FLOAT)
            self.values[parameter] = drawn.requires_grad_()

    def text(self):
        if self.name in CONSTANTS:
            return f"{self.name}({CONSTANTS[self.name]})"
        words = []
        for parameter, value in self.values.items():
            numbers = [repr(float(x)) for x in value.detach().reshape(-1)]
            words.append(f"{parameter}={numbers[0]}" if len(numbers) == 1 else f"{parameter}=[{','.join(numbers)}]")
        size = f"[{SIZE}]" if self.name in SIZED else ""
        return f"{self.name}{size}({','.join(words)})"

    def log(self, d):
        function, d = KERNELS[self.name][0], d.abs()
        return function(d, CONSTANTS[self.name]) if self.name in CONSTANTS else function(d, **self.values)

    def leaves(self):
        return list(self.values.values())


class Joined:
    """A product or a sum; in a bank the sum of the copies is taken around it."""

    def __init__(self, sign, *parts):
        self.sign, self.parts = sign, parts

    def text(self):
        return self.sign.join(part.text() for part in self.parts)

    def log(self, d):
        values = [part.log(d) for part in self.parts]
        return sum(values) if self.sign == "*" else torch.logsumexp(torch.stack(values), 0)

    def leaves(self):
        return [leaf for part in self.parts for leaf in part.leaves()]


class Bank:
    def __init__(self, copies, inside):
        self.copies, self.inside = copies, inside

    def text(self):
        return f"bank[{self.copies}]({self.inside.text()})"

    def log(self, d):
        return torch.logsumexp(self.inside.log(d), 0, keepdim=True)

    def leaves(self):
        return self.inside.leaves()


class Side:
    """left(...) or right(...): 1 on the other side as a factor, 0 as a term of a sum."""

    def __init__(self, word, sign, inside):
        self.word, self.sign, self.inside = word, sign, inside

    def text(self):
        return f"{self.word}({self.inside.text()})"

    def log(self, d):
        here = d >= 0 if self.word == "left" else d < 0
        return torch.where(here, self.inside.log(d), 0.0 if self.sign == "*" else -math.inf)

    def leaves(self):
        return self.inside.leaves()


def is_directed(text):
    return "left(" in text or "right(" in text


def expressions(generator):
    """Every kernel alone, times decay, and in a sum; banks of every kernel without sizes; every kernel on one side or both."""
    for name in KERNELS:
        yield Leaf(name, generator)
        yield Joined("*", Leaf(name, generator), Leaf("decay", generator))
        yield Joined("+", Leaf(name, generator), Joined("*", Leaf("rbf", generator), Leaf("periodic", generator)))
        if name not in SIZED and name not in ("t5", "t5[16]", "window"):
            yield Bank(3, Joined("*", Leaf(name, generator, 3), Leaf("decay", generator, 3)))
        yield Joined("*", Side("left", "*", Leaf("decay", generator)), Side("right", "*", Leaf(name, generator)))
        yield Joined("+", Side("left", "+", Leaf(name, generator)), Leaf("rbf", generator))


def random(generator, *shape):
    return torch.randn(*shape, generator=generator, **FLOAT)


def logits_of(q, k, log_kernel, causal, window):
    """log_kernel: of the distances from -(L - 1) to L - 1; below 0 the key is after the query."""
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None, :]
    logits = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + log_kernel[distance + k.shape[2] - 1]
    visible = torch.ones_like(distance, dtype=torch.bool)
    visible = visible & (distance >= 0) if causal else visible
    visible = visible & (distance.abs() <= window) if window else visible
    return logits.masked_fill(~visible, -math.inf)


def ridge_of(q, k, v, log_kernel, ridge):
    """Kernel ridge regression of the values on the keys with K = G exp(scale q.k): (K_qk)(K_kk + ridge L)^-1 v; hark's own scaling by the
    bound changes no result."""
    scale = q.shape[-1] ** -0.5
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])[None, :]
    table = torch.exp(log_kernel[distance + k.shape[2] - 1])
    of_keys = table * torch.exp(scale * k @ k.transpose(-1, -2))
    of_queries = table * torch.exp(scale * q @ k.transpose(-1, -2))
    return of_queries @ torch.linalg.solve(of_keys + ridge * torch.eye(k.shape[2], **FLOAT), v)


def log_mean(table, distances):
    """log of the mean of G over the last dimension; table: log G of the distances from -(T - 1) to T - 1. -inf where all G are 0."""
    mean = torch.exp(table)[distances + table.shape[0] // 2].mean(-1)
    return torch.where(mean > 0, torch.log(torch.where(mean > 0, mean, 1.0)), -math.inf)


def hierarchical_logits(q, k, log_kernel, causal, coarse, sibling):
    """One logit for every pair of rows: that of the cells of the finest level on which their blocks meet. log_kernel: as logits_of(), of the
    distances of all cells."""
    length, row = q.shape[2], torch.arange(q.shape[2])
    logits = torch.full((*q.shape[:2], length, length), -math.inf, **FLOAT)
    covered = torch.zeros(length, length, dtype=torch.bool)
    for level in range(levels_of(length)):
        size = 2**level
        cell, inside = row // size, torch.arange(size)
        members = (cell[None, :] == torch.arange(int(cell[-1]) + 1)[:, None]).double()
        means = members / members.sum(1, keepdim=True)
        keys = (means @ k)[:, :, cell]
        queries = {"mean": (means @ q)[:, :, cell], "first": q[:, :, cell * size], "exact": q}[coarse]
        rows = row[:, None] if coarse == "exact" else cell[:, None] * size + inside[None, :]
        columns = cell[:, None] * size + inside[None, :]
        distances = rows[:, None, :, None] - columns[None, :, None, :]
        here = queries @ keys.transpose(-1, -2) / q.shape[-1] ** 0.5 + log_mean(log_kernel, distances.flatten(2))
        block = row // (size * BLOCK * (2 if sibling else 1))
        meet = (block[:, None] - block[None, :]).abs() <= (0 if sibling else 1)
        logits = torch.where(meet & ~covered, here, logits)
        covered = covered | meet
    assert bool(covered.all())
    return logits.masked_fill(row[:, None] < row[None, :], -math.inf) if causal else logits


def levels_of(length):
    return max(1, math.ceil(math.log2(math.ceil(length / BLOCK))))


CASES = {
    "dense": {"causal": False},
    "dense, causal": {"causal": True},
    "window": {"causal": False, "window": 20},
    "window, causal": {"causal": True, "window": 20},
    "hierarchical": {"causal": False, "coarse": "mean"},
    "hierarchical, siblings": {"causal": False, "coarse": "mean", "sibling": True},
    "hierarchical, causal": {"causal": True, "coarse": "first"},
    "hierarchical, causal, exact": {"causal": True, "coarse": "exact"},
    "kernel ridge": {"causal": False, "ridge": 0.5},
}


def attend(a, given, text, case):
    with tempfile.TemporaryDirectory() as folder:
        source, output = os.path.join(folder, "in.safetensors"), os.path.join(folder, "out.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in given.items()}, source)
        command = [a.hark, "attend", "--input", source, "--output", output, "--positional", text]
        command += ["--causal"] if case["causal"] else []
        command += ["--structure", "window", "--window", str(case["window"])] if "window" in case else []
        if "coarse" in case:
            command += ["--structure", "hierarchical", "--hierarchy-block", str(BLOCK), "--coarse-query", case["coarse"]]
            command += ["--partition", "sibling"] if case.get("sibling") else []
        command += ["--normalisation", "cme", "--ridge", str(case["ridge"])] if "ridge" in case else []
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{text}: {done.stderr}")
        return load_file(output)


def compare(a, expression, name, case, generator):
    """The largest error over all results, of the largest element of each."""
    size = 0.3 if "ridge" in case else 1.0
    given = {
        "q": size * random(generator, 2, 2, a.length, a.dim),
        "k": size * random(generator, 2, 2, a.length, a.dim),
        "v": random(generator, 2, 2, a.length, a.dim),
        "dout": random(generator, 2, 2, a.length, a.dim),
    }
    have = attend(a, given, expression.text(), case)
    q, k, v = (given[key].clone().requires_grad_() for key in "qkv")
    reach = BLOCK * 2 ** levels_of(a.length) if "coarse" in case else a.length
    log_kernel = expression.log(torch.arange(1 - reach, reach, **FLOAT))[0]
    if "coarse" in case:
        logits = hierarchical_logits(q, k, log_kernel, case["causal"], case["coarse"], case.get("sibling", False))
        out = torch.softmax(logits, -1) @ v
    elif "ridge" in case:
        out = ridge_of(q, k, v, log_kernel, case["ridge"])
    else:
        out = torch.softmax(logits_of(q, k, log_kernel, case["causal"], case.get("window")), -1) @ v
    parameters = expression.leaves()
    gradients = torch.autograd.grad((out * given["dout"]).sum(), [q, k, v, *parameters], allow_unused=True)
    expected = {"out": out, "dq": gradients[0], "dk": gradients[1], "dv": gradients[2]}
    if parameters:
        parts = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients[3:])]
        expected["dpositional"] = torch.cat([part.reshape(-1) for part in parts])[None, :]
    worst = 0.0
    for key, tensor in expected.items():
        largest = tensor.detach().abs().max()
        if key == "dpositional":  # a common factor of G has no gradient: compared with the terms that cancel
            largest = torch.maximum(largest, (out.detach() * given["dout"]).abs().sum() * 1e-2)
        error = float((have[key] - tensor.detach()).abs().max() / largest.clamp_min(1e-300))
        worst = max(worst, math.inf if math.isnan(error) else error)
    return worst


def check_names(a):
    listed = json.loads(subprocess.run([a.hark, "positional", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    unknown = [kernel["name"] for kernel in listed["kernels"] if kernel["name"] not in KERNELS]
    if unknown:
        raise SystemExit(f"kernels.py has no formula of {', '.join(unknown)}")


def is_definite(a, text):
    done = subprocess.run([a.hark, "positional", text, "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)["positive_definite"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hark", default="build/hark")
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")
    a = parser.parse_args()
    check_names(a)
    generator = torch.Generator().manual_seed(7)
    found = {name: [0, 0.0, ""] for name in CASES}
    for expression in expressions(generator):
        for name, case in CASES.items():
            if ("ridge" in case and not is_definite(a, expression.text())) or (case["causal"] and is_directed(expression.text())):
                continue
            error = compare(a, expression, name, case, generator)
            if a.verbose:
                print(f"{name}: {expression.text()}: {error:.1e}", flush=True)
            found[name][0] += 1
            if error >= found[name][1]:
                found[name][1:] = error, expression.text()
    print("| attention | expressions | largest difference | of |\n|---|---|---|---|")
    for name, (count, error, text) in found.items():
        print(f"| {name} | {count} | {error:.1e} | `{text[:90]}` |")
    return 0 if all(error <= WITHIN for _, error, _ in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
