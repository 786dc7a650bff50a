"""hark.posterior for NumPy arrays: the posterior of a Gaussian process by kernel ridge attention, and its gradients."""

from typing import Any, NamedTuple

import numpy

from . import _arrays
from . import _attention as core


class Posterior(NamedTuple):
    """Of every query row: the mean [B, H, Lq, dv], the variance of the latent function and the log-determinant, [B, H, Lq], and the
    quadratic form of each column of the values [B, H, Lq, dv]."""

    out: Any
    variance: Any
    log_determinant: Any
    quadratic: Any


def _prepare(query, key, value, noise, words, gradients, backend, compute):
    words = dict(words)
    normalisation = words.pop("normalization", words.pop("normalisation", "cme"))
    if normalisation != "cme":
        raise ValueError(f"posterior: normalisation is {normalisation!r}, expected 'cme'")
    for name in ("return_variance", "return_log_sum_exp"):
        if words.pop(name, False):
            raise ValueError(f"posterior: {name} is given, but the result is always out, variance, log_determinant and quadratic")
    return _arrays.Prepared(query, key, value, {**words, "normalisation": "cme"}, backend, compute, gradients, noise, gradients)


def _forward(prepared):
    frame = prepared.frame()
    out = _arrays._empty((frame.out_shape, frame.out_strides), prepared.dtype)
    variance, determinant = [numpy.empty(frame.row_shape, prepared.dtype) for _ in range(2)]
    quadratic = numpy.empty(frame.out_shape, prepared.dtype)
    addresses = [_arrays._address(x) for x in (out, variance, determinant, quadratic)]
    frame.forward(prepared.addresses, prepared.host_addresses, prepared.seed, *addresses[:2], 0, *addresses[2:])
    return out, Posterior(*[prepared.out_of(x) for x in (out, variance, determinant, quadratic)])


def _gradient(name, given, shape, prepared):
    """The gradient of a result as the library reads it; None where there is none."""
    if given is None:
        return None
    given = numpy.asarray(given)
    if given.shape != shape:
        raise ValueError(f"posterior: {name} has shape {list(given.shape)}, expected {list(shape)}")
    if given.dtype.kind in "ciub":
        raise TypeError(f"posterior: {name} is {given.dtype}, expected {prepared.result_dtype}")
    return numpy.ascontiguousarray(given, prepared.dtype)


def _summed(gradient, shape):
    """The gradient of an array that was repeated."""
    gradient = gradient.sum(axis=tuple(range(gradient.ndim - len(shape))))
    repeated = tuple(i for i, n in enumerate(shape) if n == 1 and gradient.shape[i] != 1)
    return gradient.sum(axis=repeated, keepdims=True) if repeated else gradient


def posterior(query, key, value, noise, words, backend="cpu", compute=None):
    """The forward; ``words``: all other arguments of hark.attention."""
    return _forward(_prepare(query, key, value, noise, words, False, backend, compute))[1]


def posterior_vjp(query, key, value, noise, words, backend="cpu", compute=None):
    """The forward and the function that returns its gradients."""
    prepared = _prepare(query, key, value, noise, words, True, backend, compute)
    out, result = _forward(prepared)

    def vjp(dout=None, dvariance=None, dlog_determinant=None, dquadratic=None):
        frame = prepared.frame()
        dout = numpy.zeros(out.shape, prepared.dtype) if dout is None else _gradient("dout", dout, out.shape, prepared)
        given = {"dvariance": dvariance, "dlog_determinant": dlog_determinant}
        rows = [_gradient(name, x, frame.row_shape, prepared) for name, x in given.items()]
        rows.append(_gradient("dquadratic", dquadratic, out.shape, prepared))
        gradients = {name: _arrays._empty(frame.gradient_layouts[name], prepared.dtype) for name in frame.gradients}
        frame.backward(
            prepared.addresses,
            prepared.host_addresses,
            prepared.seed,
            _arrays._address(out),
            0,
            0,
            _arrays._address(dout),
            core.contiguous(dout.shape),
            [(name, _arrays._address(x)) for name, x in gradients.items()],
            [0 if x is None else _arrays._address(x) for x in rows],
        )
        shapes = {name: prepared.inputs[name].given_shape for name in gradients}
        return {
            name: prepared.out_of(_summed(x, shapes[name]) if name == "noise" else x.reshape(shapes[name])) for name, x in gradients.items()
        }

    return result, vjp
