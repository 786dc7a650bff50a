"""A trained regressor of hark beside exact Gaussian processes, on tables whose process is known, and beside scikit-learn on real tables.

    tables.py truth --hark build/hark --run RUN [--tables 200] [--sizes 10 20 50 100 200 500] [--noise 0.01] [--scales 0.1 1]
    tables.py real  --hark build/hark --run RUN [--splits 10]

truth: tables of one input, uniform in [-1, 1], with the kernel exp(-(x - x')^2 / (2 w^2)), variance 1, and noise; log w is uniform between
the scales, as `hark data make regression-tasks` makes them. For each number n of rows of context, 60 queries a table:

    known     the posterior with the table's w, noise and variance: no predictor is better on average
    bayes     noise and variance known, w averaged over its posterior: the best without knowing w
    hark      hark predict
    linear, mean   Bayesian linear regression; mean and deviation of the context

real: the table of diabetes that scikit-learn contains; nine tenths of the rows are context, at most 1,000, and the others queries.
Gaussian process with optimised hyperparameters (constant * RBF of each input + noise), gradient boosting with the deviation of its
training residuals by cross-validation, Bayesian ridge regression, and the mean.

One line of JSON for each n or predictor: negative log-likelihood in nats, root of the mean squared error, fraction of targets within the
interval of 90 %, milliseconds of a call. Needs numpy, scikit-learn.
"""

import argparse
import csv
import io
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

QUERIES = 60
NINETY = 1.6448536269514727
GRID = 41


def write_table(path, columns):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))


def by_hark(options, folder, context, queries):
    """Means, deviations and seconds. The last column of context is the target."""
    write_table(folder / "context.csv", context)
    write_table(folder / "queries.csv", queries)
    command = [options.hark, "predict", options.run, "--context-table", folder / "context.csv", "--query", folder / "queries.csv"]
    begin = time.perf_counter()
    done = subprocess.run([*command, "--target", list(context)[-1], "--threads", "2"], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begin
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    return np.array([float(row["predicted"]) for row in rows]), np.array([float(row["deviation"]) for row in rows]), seconds


class Sums:
    """What is measured of one predictor."""

    def __init__(self):
        self.loss, self.squares, self.covered, self.seconds = [], [], [], []

    def add(self, target, mean, deviation, seconds=0.0):
        error = (target - mean) / deviation
        self.loss.append(np.mean(0.5 * np.log(2 * np.pi) + np.log(deviation) + 0.5 * error**2))
        self.squares.append(np.mean((target - mean) ** 2))
        self.covered.append(np.mean(np.abs(error) <= NINETY))
        self.seconds.append(seconds)

    def result(self):
        return {
            "nats": round(float(np.mean(self.loss)), 4),
            "rmse": round(math.sqrt(np.mean(self.squares)), 5),
            "covered": round(float(np.mean(self.covered)), 4),
            "milliseconds": round(1000 * float(np.median(self.seconds)), 1),
        }


def posterior(x, y, queries, width, noise):
    """Log evidence, means and variances of observations at the queries."""
    def kernel(a, b):
        return np.exp(-((a[:, None] - b[None]) ** 2) / (2 * width**2))

    factor = np.linalg.cholesky(kernel(x, x) + noise * np.eye(len(x)))
    z, u = np.linalg.solve(factor, kernel(x, queries)), np.linalg.solve(factor, y)
    return -0.5 * u @ u - np.log(np.diag(factor)).sum(), z.T @ u, 1 + noise - (z * z).sum(0)


def average(x, y, queries, options):
    """The mixture over the widths of a grid, by their evidence."""
    found = [posterior(x, y, queries, w, options.noise) for w in np.geomspace(*options.scales, GRID)]
    evidence = np.array([one[0] for one in found])
    weight = np.exp(evidence - evidence.max())[:, None] / np.exp(evidence - evidence.max()).sum()
    mean, variance = np.array([one[1] for one in found]), np.array([one[2] for one in found])
    first = (weight * mean).sum(0)
    return first, np.sqrt((weight * (variance + (mean - first) ** 2)).sum(0))


def linear(x, y, queries):
    """As src/train/table_baselines.c has it, with standardised columns."""
    shift, scale, level, size = x.mean(0), x.std(0) + 1e-12, y.mean(), y.std() + 1e-12
    z = np.column_stack([np.ones(len(x)), (x - shift) / scale])
    q = np.column_stack([np.ones(len(queries)), (queries - shift) / scale])
    inverse = np.linalg.inv(np.eye(z.shape[1]) + z.T @ z)
    t = (y - level) / size
    fit = inverse @ z.T @ t
    s2 = (1 + (t @ t - t @ z @ fit) / 2) / (1 + len(t) / 2)
    return q @ fit * size + level, size * np.sqrt(s2 * (1 + np.einsum("ij,jk,ik->i", q, inverse, q)))


def truth(options):
    random = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as name:
        for n in options.sizes:
            sums = {predictor: Sums() for predictor in ("known", "bayes", "hark", "linear", "mean")}
            for _ in range(options.tables):
                width = math.exp(random.uniform(math.log(options.scales[0]), math.log(options.scales[1])))
                x = random.uniform(-1, 1, n + QUERIES)
                covariance = np.exp(-((x[:, None] - x[None]) ** 2) / (2 * width**2)) + 1e-9 * np.eye(len(x))
                y = np.linalg.cholesky(covariance) @ random.standard_normal(len(x)) + math.sqrt(options.noise) * random.standard_normal(len(x))
                known, asked, target = (x[:n], y[:n]), x[n:], y[n:]
                _, mean, variance = posterior(*known, asked, width, options.noise)
                sums["known"].add(target, mean, np.sqrt(variance))
                sums["bayes"].add(target, *average(*known, asked, options))
                sums["hark"].add(target, *by_hark(options, Path(name), {"x": x[:n], "y": y[:n]}, {"x": asked}))
                sums["linear"].add(target, *linear(x[:n, None], y[:n], asked[:, None]))
                sums["mean"].add(target, np.full(QUERIES, y[:n].mean()), np.full(QUERIES, y[:n].std() * math.sqrt(1 + 1 / n)))
            for predictor, one in sums.items():
                print(json.dumps({"rows": n, "predictor": predictor, "tables": options.tables, **one.result()}), flush=True)


def by_scikit_learn(x, y, queries):
    """Means, deviations and seconds of every predictor."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # pylint: disable=import-outside-toplevel
    from sklearn.gaussian_process import GaussianProcessRegressor  # pylint: disable=import-outside-toplevel
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel  # pylint: disable=import-outside-toplevel
    from sklearn.linear_model import BayesianRidge  # pylint: disable=import-outside-toplevel
    from sklearn.model_selection import cross_val_predict  # pylint: disable=import-outside-toplevel
    from sklearn.pipeline import make_pipeline  # pylint: disable=import-outside-toplevel
    from sklearn.preprocessing import StandardScaler  # pylint: disable=import-outside-toplevel

    kernel = ConstantKernel() * RBF(np.ones(x.shape[1]), (1e-2, 1e4)) + WhiteKernel()
    for name, model in (
        ("gaussian_process", make_pipeline(StandardScaler(), GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1))),
        ("bayesian_ridge", make_pipeline(StandardScaler(), BayesianRidge())),
    ):
        begin = time.perf_counter()
        mean, deviation = model.fit(x, y).predict(queries, return_std=True)
        yield name, mean, deviation, time.perf_counter() - begin
    begin = time.perf_counter()
    model = HistGradientBoostingRegressor()
    residuals = y - cross_val_predict(model, x, y, cv=5)
    mean = model.fit(x, y).predict(queries)
    yield "gradient_boosting", mean, np.full(len(queries), residuals.std()), time.perf_counter() - begin
    yield "mean", np.full(len(queries), y.mean()), np.full(len(queries), y.std()), 0.0


def real(options):
    from sklearn.datasets import load_diabetes  # pylint: disable=import-outside-toplevel

    x, y = load_diabetes(return_X_y=True, scaled=False)
    names = [f"x{i}" for i in range(x.shape[1])]
    sums = {}
    with tempfile.TemporaryDirectory() as folder:
        for split in range(options.splits):
            order = np.random.default_rng(split).permutation(len(y))
            known, asked = order[: min(1000, len(y) * 9 // 10)], order[len(y) * 9 // 10 :]
            context = {**dict(zip(names, x[known].T)), "y": y[known]}
            found = [("hark", *by_hark(options, Path(folder), context, dict(zip(names, x[asked].T))))]
            found += by_scikit_learn(x[known], y[known], x[asked])
            for name, *values in found:
                sums.setdefault(name, Sums()).add(y[asked], *values)
    for name, one in sums.items():
        print(json.dumps({"table": "diabetes", "predictor": name, "splits": options.splits, **one.result()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["truth", "real"])
    parser.add_argument("--hark", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 20, 50, 100, 200, 500])
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--scales", type=float, nargs=2, default=[0.1, 1.0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    {"truth": truth, "real": real}[options.what](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
