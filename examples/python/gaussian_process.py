"""Gaussian-process regression is kernel ridge attention: queries are where to predict, keys where values are known. The mean and the
variance are compared with scikit-learn's."""

import numpy
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

import hark

SIGMA, NOISE = 0.6, 0.05


def attention(x, y, points):
    """The posterior mean and variance at the points: one head, one sequence."""
    rows = [numpy.asarray(a, "f8").reshape(1, 1, -1, 1) for a in (points, x, y)]
    mean, variance = hark.attention(*rows, normalisation="cme", kernel="rbf", sigma=SIGMA, ridge=NOISE, return_variance=True)
    return mean.reshape(-1), variance.reshape(-1)


def main():
    random = numpy.random.default_rng(0)
    x = random.uniform(0, 6, 30)
    y = numpy.sin(x) + random.normal(0, NOISE**0.5, 30)
    points = numpy.linspace(0, 6, 50)
    mean, variance = attention(x, y, points)

    process = GaussianProcessRegressor(RBF(SIGMA, "fixed"), alpha=NOISE, optimizer=None).fit(x[:, None], y)
    expected, deviation = process.predict(points[:, None], return_std=True)
    print(f"mean: largest difference {abs(mean - expected).max():.1e}, variance: {abs(variance - deviation**2).max():.1e}")
    assert abs(mean - expected).max() < 1e-9 and abs(variance - deviation**2).max() < 1e-9


if __name__ == "__main__":
    main()
