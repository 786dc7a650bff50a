"""The likelihood of a Gaussian process by hark.posterior in float64, beside scikit-learn and GPyTorch.

    likelihood.py [--length 200] [--dim 3] [--seeds 3]

log N(y; 0, M) = -1/2 (quadratic + log_determinant + L log 2 pi) with M = kappa(K, K) + lambda I + diag(noise), kappa the Gaussian kernel.
One query is enough, because all rows of attention without a causal mask have the same two statistics.

    scikit-learn   GaussianProcessRegressor(RBF + WhiteKernel, alpha=noise): value, gradients by log sigma and log lambda; without and with
                   noise of each key
    GPyTorch       ExactMarginalLogLikelihood by Cholesky factors, times L: value, gradients by keys, values, sigma and lambda

One line of JSON a case: largest difference relative to the largest number of its kind. Exit status 1 if one exceeds 1e-8. Needs the Python
package of hark (HARK_LIBRARY, HARK_PYTHON_LIBRARY and PYTHONPATH, as run.sh sets them), numpy, scikit-learn, torch and gpytorch.
"""

import argparse
import json
import sys

import numpy as np

import hark

TOLERANCE = 1e-8
SIGMA, RIDGE = 0.8, 0.05


def hark_likelihood(x, y, noise):
    """The value, and its gradients by key [L, d], value [L], sigma and ridge."""
    words = {"kernel": "rbf", "sigma": np.array([SIGMA]), "ridge": np.array([RIDGE])}
    if noise is not None:
        words["noise"] = noise
    found, vjp = hark.posterior_vjp(x[None, None, :1], x[None, None], y[None, None, :, None], **words)
    half = np.full((1, 1, 1), -0.5)
    gradients = vjp(dlog_determinant=half, dquadratic=half[..., None])
    value = -0.5 * (found.quadratic[0, 0, 0, 0] + found.log_determinant[0, 0, 0] + len(y) * np.log(2 * np.pi))
    assert not gradients["query"].any()
    return {
        "value": value,
        "keys": gradients["key"][0, 0],
        "values": gradients["value"][0, 0, :, 0],
        "sigma": gradients["sigma"],
        "ridge": gradients["ridge"],
    }


def of_scikit_learn(x, y, noise):
    from sklearn.gaussian_process import GaussianProcessRegressor  # pylint: disable=import-outside-toplevel
    from sklearn.gaussian_process.kernels import RBF, WhiteKernel  # pylint: disable=import-outside-toplevel

    kernel = RBF(SIGMA) + WhiteKernel(RIDGE)
    model = GaussianProcessRegressor(kernel, alpha=0.0 if noise is None else noise, optimizer=None).fit(x, y)
    value, gradient = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
    return {"value": value, "sigma": gradient[:1] / SIGMA, "ridge": gradient[1:] / RIDGE}  # theta is the logarithm of both


def of_gpytorch(x, y, noise):
    import gpytorch  # pylint: disable=import-outside-toplevel
    import torch  # pylint: disable=import-outside-toplevel

    assert noise is None

    class Process(gpytorch.models.ExactGP):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.mean, self.kernel = gpytorch.means.ZeroMean(), gpytorch.kernels.RBFKernel()

        def forward(self, rows):
            return gpytorch.distributions.MultivariateNormal(self.mean(rows), self.kernel(rows))

    keys, values = (torch.tensor(t, requires_grad=True) for t in (x, y))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(keys, values, likelihood).double().train()
    model.kernel.lengthscale, likelihood.noise = (torch.tensor(number, dtype=torch.float64) for number in (SIGMA, RIDGE))
    with gpytorch.settings.fast_computations(False, False, False):
        value = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)(model(keys), values) * len(y)
        sigma, ridge = model.kernel.lengthscale, likelihood.noise
        gradients = torch.autograd.grad(value, [keys, values, model.kernel.raw_lengthscale, likelihood.noise_covar.raw_noise])
    # of the numbers themselves: their gradients by the raw parameters are the derivatives of the constraint
    raw = [torch.autograd.grad(number.sum(), parameter)[0] for number, parameter in
           ((sigma, model.kernel.raw_lengthscale), (ridge, likelihood.noise_covar.raw_noise))]
    return {
        "value": value.item(),
        "keys": gradients[0].numpy(),
        "values": gradients[1].numpy(),
        "sigma": (gradients[2] / raw[0]).numpy().ravel(),
        "ridge": (gradients[3] / raw[1]).numpy().ravel(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--dim", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    a = parser.parse_args()
    failed = False
    for peer, compute, noisy in (("scikit-learn", of_scikit_learn, False), ("scikit-learn", of_scikit_learn, True),
                                 ("gpytorch", of_gpytorch, False)):
        worst = {}
        for seed in range(a.seeds):
            generator = np.random.default_rng(seed)
            x = generator.uniform(-2, 2, (a.length, a.dim))
            noise = generator.uniform(0.01, 0.5, a.length) if noisy else None
            y = np.sin(x.sum(-1)) + 0.2 * generator.standard_normal(a.length)
            have = hark_likelihood(x, y, noise)
            for name, number in compute(x, y, noise).items():
                difference = np.abs(have[name] - number).max() / np.abs(number).max()
                worst[name] = max(worst.get(name, 0.0), float(difference))
        print(json.dumps({"peer": peer, "noise": noisy, "length": a.length, "largest_differences": worst}))
        failed = failed or not max(worst.values()) <= TOLERANCE
    if failed:
        sys.exit(f"likelihood.py: a difference is above {TOLERANCE}")


if __name__ == "__main__":
    main()
