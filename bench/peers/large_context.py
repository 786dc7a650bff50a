"""Kernel ridge attention of many keys by conjugate gradients, compared with GPyTorch.

    large_context.py [--keys 32768] [--queries 64] [--dim 8] [--sigma 2.0] [--ridge 0.1] [--threads 2] [--factor-keys 8192]

The posterior mean of a Gaussian process: out = kappa(q, K) (kappa(K, K) + lambda I)^-1 V with the Gaussian kernel, in float32, keys uniform
in a cube and one value each.

    hark         hark.attention with solver="conjugate_gradients"
    gpytorch     ExactGP by conjugate gradients to --peer-tolerance (hark: 1e-6). Kernels are computed again in each iteration, in parts of
                 --part rows (checkpoint_kernel), without a preconditioner: with parts, that of GPyTorch 1.15 takes n^3 numbers. --part 0
                 stores the kernels, and has the preconditioner of rank 256
    factor       hark.attention with solver="factor", at --factor-keys: the largest difference of the two solvers, relative to the largest
                 number

Each is run in its own process; one line of JSON for each: seconds, those of all its threads together, the process's peak memory (MB), and
differences. Needs the Python package of hark (HARK_LIBRARY, HARK_PYTHON_LIBRARY and PYTHONPATH, as run.sh sets them), numpy, torch and
gpytorch.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time

import numpy as np

def problem(a, keys):
    generator = np.random.default_rng(0)
    x = generator.uniform(-2, 2, (keys, a.dim)).astype(np.float32)
    q = generator.uniform(-2, 2, (a.queries, a.dim)).astype(np.float32)
    y = (np.sin(x.sum(-1)) + np.sqrt(a.ridge) * generator.standard_normal(keys)).astype(np.float32)
    return x, q, y


def of_hark(a, keys, solver):
    import hark  # pylint: disable=import-outside-toplevel

    hark.set_threads(a.threads)
    x, q, y = problem(a, keys)
    words = {"normalisation": "cme", "kernel": "rbf", "sigma": a.sigma, "ridge": a.ridge, "solver": solver}
    start = time.perf_counter()
    out = hark.attention(q[None, None], x[None, None], y[None, None, :, None], **words)
    return time.perf_counter() - start, np.asarray(out)[0, 0, :, 0]


def of_gpytorch(a, keys, _):
    import gpytorch  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel

    torch.set_num_threads(a.threads)
    x, q, y = (torch.tensor(t) for t in problem(a, keys))

    class Process(gpytorch.models.ExactGP):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.mean, self.kernel = gpytorch.means.ZeroMean(), gpytorch.kernels.RBFKernel()

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    model.kernel.lengthscale, likelihood.noise = a.sigma, a.ridge
    model.eval()
    likelihood.eval()
    s = gpytorch.settings
    start = time.perf_counter()
    with torch.no_grad(), s.max_cholesky_size(0), s.eval_cg_tolerance(a.peer_tolerance), s.max_cg_iterations(a.peer_iterations), \
            s.max_lanczos_quadrature_iterations(min(20, a.peer_iterations)), \
            s.max_preconditioner_size(0 if a.part > 0 else 256), s.min_preconditioning_size(1), s.skip_posterior_variances(), \
            gpytorch.beta_features.checkpoint_kernel(a.part):
        out = model(q).mean
    return time.perf_counter() - start, out.numpy()


def child(compute, a, keys, solver, queue):
    before = time.process_time()
    seconds, out = compute(a, keys, solver)
    queue.put((seconds, time.process_time() - before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, out))


def run(compute, a, keys, solver=None):
    """In a new process, so that its peak memory is its own."""
    queue = multiprocessing.get_context("spawn").Queue()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(compute, a, keys, solver, queue))
    process.start()
    while queue.empty():
        if not process.is_alive() and queue.empty():
            sys.exit(f"large_context.py: {compute.__name__} failed")
        time.sleep(0.05)
    result = queue.get()
    process.join()
    return result


def report(name, keys, result, **more):
    print(json.dumps({"peer": name, "keys": keys, "seconds": round(result[0], 2), "processor_seconds": round(result[1], 2),
                      "peak_mb": round(result[2]), **more}), flush=True)


def difference(one, other):
    return float(np.abs(one - other).max() / np.abs(other).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=32768)
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--sigma", type=float, default=2.0)
    parser.add_argument("--ridge", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--factor-keys", type=int, default=8192)
    parser.add_argument("--part", type=int, default=4096, help="rows of a part of GPyTorch's kernels; 0: all of them are stored")
    parser.add_argument("--peer-tolerance", type=float, default=0.01, help="residual |M x - b| / |b| of GPyTorch; the default is its own")
    parser.add_argument("--peer-iterations", type=int, default=1000, help="iterations of GPyTorch at most")
    a = parser.parse_args()
    factor, iterated = (run(of_hark, a, a.factor_keys, solver) for solver in ("factor", "conjugate_gradients"))
    report("hark factor", a.factor_keys, factor)
    report("hark", a.factor_keys, iterated, difference_from_factor=difference(iterated[3], factor[3]))
    own = run(of_hark, a, a.keys, "conjugate_gradients")
    report("hark", a.keys, own)
    peer = run(of_gpytorch, a, a.keys)
    report("gpytorch", a.keys, peer, most_iterations=a.peer_iterations, difference_from_hark=difference(peer[3], own[3]))


if __name__ == "__main__":
    main()
