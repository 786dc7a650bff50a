"""A trained regressor of hark, compared with exact Gaussian processes on tables of a known process, and with scikit-learn on real tables.

    tables.py truth --hark build/hark --run RUN [--tables 200] [--sizes 10 20 50 100 200 500] [--noise 0.01] [--scales 0.1 1]
    tables.py real  --hark build/hark --run RUN --classes-run RUN [--splits 10] [--only NAME ...]
    tables.py fit   --hark build/hark --run RUN [--tables 5] [--context 1000] [--queries 200]

truth: tables of one input, uniform in [-1, 1], with the kernel exp(-(x - x')^2 / (2 w^2)), variance 1, and noise; log w is uniform between
the scales, as `hark data make regression-tasks` makes them. For each number n of rows of context, 60 queries a table:

    known     the posterior with the table's w, noise and variance: no predictor is better on average
    bayes     mean and variance over the posterior of w, noise and variance known: the best normal distribution without knowing w
    hark      hark predict
    linear, mean   Bayesian linear regression; mean and deviation of the context

For hark, also the mean difference of its nats from known and bayes, table by table, with its standard error.

real: tables that scikit-learn and statsmodels contain: numbers (diabetes; engel, star98, fair of statsmodels) by --run, classes
(breast_cancer, wine, digits; anes96) by --classes-run. Nine tenths of the rows, at most --context, are the context, and up to --queries of
the others the queries, the same for all predictors. Peers: Gaussian process with optimised hyperparameters (constant * RBF; for numbers
with noise and a length scale of each input; for classes with one length scale, and not for digits, where a split takes five minutes),
gradient boosting (for numbers with the deviation of its residuals in cross-validation), Bayesian ridge or logistic regression with a
cross-validated penalty, and the mean or the frequencies.

fit: tables of --context rows as in truth, and --queries: hark predict, compared with fit and prediction of a Gaussian process by GPyTorch
(100 steps of Adam with rate 0.1, float32, exact factors) and by scikit-learn (L-BFGS from two starts, float64).

hark and GPyTorch use --threads threads, scikit-learn those of OMP_NUM_THREADS. The time of hark includes the start of the program and the
reading of CSV files. Times are medians.

One line of JSON for each n or table and predictor: negative log-likelihood in nats, root of the mean squared error and fraction of targets
within the interval of 90 %, or accuracy, and milliseconds: of a call of the command, and of fit and prediction of the peers. Needs numpy,
scikit-learn, statsmodels; for fit also torch and gpytorch.
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
import warnings
from pathlib import Path

import numpy as np

QUERIES = 60
NINETY = 1.6448536269514727
GRID = 41
MOST_PROCESS_CLASSES = 5  # a split of digits takes five minutes


def write_table(path, columns):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))


def call_hark(options, run, folder, context, queries):
    """The rows that hark predict prints, and seconds. The last column of context is the target."""
    write_table(folder / "context.csv", context)
    write_table(folder / "queries.csv", queries)
    command = [options.hark, "predict", run, "--context-table", folder / "context.csv", "--query", folder / "queries.csv"]
    command += ["--target", list(context)[-1], "--threads", str(options.threads)]
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(csv.DictReader(io.StringIO(done.stdout))), time.perf_counter() - begin


def by_hark(options, folder, context, queries):
    """Means, deviations and seconds."""
    rows, seconds = call_hark(options, options.run, folder, context, queries)
    return np.array([float(row["predicted"]) for row in rows]), np.array([float(row["deviation"]) for row in rows]), seconds


def classes_by_hark(options, folder, context, queries, count):
    """Probabilities of the classes 0 .. count - 1, and seconds."""
    rows, seconds = call_hark(options, options.classes_run, folder, context, queries)
    return np.array([[float(row.get(f"probability_{c}", 0)) for c in range(count)] for row in rows]), seconds


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


def draw_table(random, rows, options):
    """Inputs, targets and the width of the kernel."""
    width = math.exp(random.uniform(math.log(options.scales[0]), math.log(options.scales[1])))
    x = random.uniform(-1, 1, rows)
    covariance = np.exp(-((x[:, None] - x[None]) ** 2) / (2 * width**2)) + 1e-9 * np.eye(rows)
    return x, np.linalg.cholesky(covariance) @ random.standard_normal(rows) + math.sqrt(options.noise) * random.standard_normal(rows), width


def truth(options):
    random = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as name:
        for n in options.sizes:
            sums = {predictor: Sums() for predictor in ("known", "bayes", "hark", "linear", "mean")}
            for _ in range(options.tables):
                x, y, width = draw_table(random, n + QUERIES, options)
                known, asked, target = (x[:n], y[:n]), x[n:], y[n:]
                _, mean, variance = posterior(*known, asked, width, options.noise)
                sums["known"].add(target, mean, np.sqrt(variance))
                sums["bayes"].add(target, *average(*known, asked, options))
                sums["hark"].add(target, *by_hark(options, Path(name), {"x": x[:n], "y": y[:n]}, {"x": asked}))
                sums["linear"].add(target, *linear(x[:n, None], y[:n], asked[:, None]))
                sums["mean"].add(target, np.full(QUERIES, y[:n].mean()), np.full(QUERIES, y[:n].std() * math.sqrt(1 + 1 / n)))
            for predictor, one in sums.items():
                line = {"rows": n, "predictor": predictor, "tables": options.tables, **one.result()}
                for other in ("known", "bayes") if predictor == "hark" else ():
                    above = np.array(one.loss) - np.array(sums[other].loss)
                    line[f"above_{other}"] = round(float(above.mean()), 4)
                    line[f"above_{other}_error"] = round(float(above.std(ddof=1) / math.sqrt(len(above))), 4)
                print(json.dumps(line), flush=True)


def by_gpytorch(options, x, y, queries):
    """Means, deviations and seconds of a process whose hyperparameters are fitted to the context."""
    import gpytorch  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel

    class Process(gpytorch.models.ExactGP):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.mean, self.kernel = gpytorch.means.ConstantMean(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))

    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    begin = time.perf_counter()
    x, y, queries = (torch.tensor(t, dtype=torch.float32) for t in (x, y, queries))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()
    with gpytorch.settings.fast_computations(False, False, False):
        for _ in range(100):
            optimiser.zero_grad()
            loss = -marginal(model(x), y)
            loss.backward()
            optimiser.step()
        model.eval()
        likelihood.eval()
        with torch.no_grad():
            found = likelihood(model(queries))
    return found.mean.numpy(), found.variance.sqrt().numpy(), time.perf_counter() - begin


def fit(options):
    warnings.filterwarnings("ignore")
    random = np.random.default_rng(options.seed)
    n, sums = options.context, {}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(options.tables):
            x, y, width = draw_table(random, n + options.queries, options)
            _, mean, variance = posterior(x[:n], y[:n], x[n:], width, options.noise)
            found = [("known", mean, np.sqrt(variance), 0.0)]
            found.append(("hark", *by_hark(options, Path(name), {"x": x[:n], "y": y[:n]}, {"x": x[n:]})))
            found.append(("gpytorch", *by_gpytorch(options, x[:n, None], y[:n], x[n:, None])))
            found.append(next(numbers_by_peers(x[:n, None], y[:n], x[n:, None])))
            for predictor, *values in found:
                sums.setdefault(predictor, Sums()).add(y[n:], *values)
    for predictor, one in sums.items():
        line = {"rows": n, "queries": options.queries, "predictor": predictor, "tables": options.tables}
        print(json.dumps({**line, **one.result()}), flush=True)


def gaussian_process_kernel(columns):
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel  # pylint: disable=import-outside-toplevel

    return ConstantKernel() * RBF(np.ones(columns), (1e-2, 1e4))


def numbers_by_peers(x, y, queries):
    """Means, deviations and seconds of every predictor of numbers."""
    from sklearn.ensemble import HistGradientBoostingRegressor  # pylint: disable=import-outside-toplevel
    from sklearn.gaussian_process import GaussianProcessRegressor  # pylint: disable=import-outside-toplevel
    from sklearn.gaussian_process.kernels import WhiteKernel  # pylint: disable=import-outside-toplevel
    from sklearn.linear_model import BayesianRidge  # pylint: disable=import-outside-toplevel
    from sklearn.model_selection import cross_val_predict  # pylint: disable=import-outside-toplevel
    from sklearn.pipeline import make_pipeline  # pylint: disable=import-outside-toplevel
    from sklearn.preprocessing import StandardScaler  # pylint: disable=import-outside-toplevel

    process = GaussianProcessRegressor(gaussian_process_kernel(x.shape[1]) + WhiteKernel(), normalize_y=True, n_restarts_optimizer=1)
    for name, model in (("gaussian_process", process), ("bayesian_ridge", BayesianRidge())):
        begin = time.perf_counter()
        mean, deviation = make_pipeline(StandardScaler(), model).fit(x, y).predict(queries, return_std=True)
        yield name, mean, deviation, time.perf_counter() - begin
    begin = time.perf_counter()
    model = HistGradientBoostingRegressor()
    residuals = y - cross_val_predict(model, x, y, cv=5)
    mean = model.fit(x, y).predict(queries)
    yield "gradient_boosting", mean, np.full(len(queries), residuals.std()), time.perf_counter() - begin
    yield "mean", np.full(len(queries), y.mean()), np.full(len(queries), y.std()), 0.0


def classes_by_peers(x, y, queries):
    """Probabilities of the classes 0, 1, ... and seconds of every predictor of classes."""
    from sklearn.ensemble import HistGradientBoostingClassifier  # pylint: disable=import-outside-toplevel
    from sklearn.gaussian_process import GaussianProcessClassifier  # pylint: disable=import-outside-toplevel
    from sklearn.linear_model import LogisticRegressionCV  # pylint: disable=import-outside-toplevel
    from sklearn.pipeline import make_pipeline  # pylint: disable=import-outside-toplevel
    from sklearn.preprocessing import StandardScaler  # pylint: disable=import-outside-toplevel

    models = {"logistic_regression": LogisticRegressionCV(max_iter=2000), "gradient_boosting": HistGradientBoostingClassifier()}
    if y.max() < MOST_PROCESS_CLASSES:  # one length scale: one for each input takes hours
        models["gaussian_process"] = GaussianProcessClassifier(gaussian_process_kernel(1))
    for name, model in models.items():
        begin = time.perf_counter()
        probability = make_pipeline(StandardScaler(), model).fit(x, y).predict_proba(queries)
        yield name, probability, time.perf_counter() - begin
    yield "frequencies", np.tile(np.bincount(y) / len(y), (len(queries), 1)), 0.0


class ClassSums:
    """What is measured of one predictor of classes."""

    def __init__(self):
        self.loss, self.right, self.seconds = [], [], []

    def add(self, target, probability, seconds=0.0):
        of_target = probability[np.arange(len(target)), target]
        self.loss.append(-np.mean(np.log(np.maximum(of_target, 1e-12))))
        self.right.append(np.mean(probability.argmax(1) == target))
        self.seconds.append(seconds)

    def result(self):
        return {
            "nats": round(float(np.mean(self.loss)), 4),
            "accuracy": round(float(np.mean(self.right)), 4),
            "milliseconds": round(1000 * float(np.median(self.seconds)), 1),
        }


def real_tables():
    """Name, inputs, target, whether the target is a class."""
    import statsmodels.api as sm  # pylint: disable=import-outside-toplevel
    from sklearn import datasets  # pylint: disable=import-outside-toplevel

    yield "diabetes", *datasets.load_diabetes(return_X_y=True, scaled=False), False
    engel = sm.datasets.engel.load_pandas().data
    yield "engel", engel[["income"]].to_numpy(), engel["foodexp"].to_numpy(), False
    star = sm.datasets.star98.load_pandas().data
    passed = star["NABOVE"] / (star["NABOVE"] + star["NBELOW"])
    yield "star98", star.drop(columns=["NABOVE", "NBELOW"]).to_numpy(), passed.to_numpy(), False
    fair = sm.datasets.fair.load_pandas().data
    yield "fair", fair.drop(columns="affairs").to_numpy(), fair["affairs"].to_numpy(), False
    for name in ("breast_cancer", "wine", "digits"):
        yield name, *getattr(datasets, f"load_{name}")(return_X_y=True), True
    votes = sm.datasets.anes96.load_pandas().data
    yield "anes96", votes.drop(columns="vote").to_numpy(), votes["vote"].to_numpy().astype(int), True


def measure_split(options, folder, table, order, sums):
    """Adds the predictions of the last tenth of the rows to the sums of every predictor."""
    _, x, y, classes = table
    known, asked = order[: min(options.context, len(y) * 9 // 10)], order[len(y) * 9 // 10 :][: options.queries]
    names = [f"x{i}" for i in range(x.shape[1])]
    context, queries = {**dict(zip(names, x[known].T)), "y": y[known]}, dict(zip(names, x[asked].T))
    if classes:
        probability, seconds = classes_by_hark(options, folder, context, queries, y.max() + 1)
        found = [("hark", probability, seconds), *(classes_by_peers(x[known], y[known], x[asked]) if options.peers else [])]
    else:
        found = [("hark", *by_hark(options, folder, context, queries))]
        found += numbers_by_peers(x[known], y[known], x[asked]) if options.peers else []
    for name, *values in found:
        sums.setdefault(name, ClassSums() if classes else Sums()).add(y[asked], *values)


def real(options):
    warnings.filterwarnings("ignore")
    for table in real_tables():
        name, x, y, _ = table
        if options.only and name not in options.only:
            continue
        sums = {}
        with tempfile.TemporaryDirectory() as folder:
            for split in range(options.splits):
                measure_split(options, Path(folder), table, np.random.default_rng(split).permutation(len(y)), sums)
        for predictor, one in sums.items():
            line = {"table": name, "rows": len(y), "inputs": x.shape[1], "predictor": predictor, "splits": options.splits}
            print(json.dumps({**line, **one.result()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["truth", "real", "fit"])
    parser.add_argument("--hark", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--tables", type=int, help="200, and 5 for fit")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 20, 50, 100, 200, 500])
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--scales", type=float, nargs=2, default=[0.1, 1.0])
    parser.add_argument("--classes-run")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--context", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="real: hark alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="those of scikit-learn are set by OMP_NUM_THREADS")
    options = parser.parse_args()
    if options.tables is None:
        options.tables = 5 if options.what == "fit" else 200
    {"truth": truth, "real": real, "fit": fit}[options.what](options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
