"""hark.attention for NumPy arrays, and its gradients."""

from typing import NamedTuple

import numpy

from . import _attention as core
from . import _library as lib

_BROADCAST = ("mask", "attention_bias", "query_mask", "log_kernel", "hierarchical_bias", "ridge", "sigma", "contextual", "chunk_starts")
_UNIT_STRIDE = ("query", "key", "value", "log_kernel", "hierarchical_bias", "ridge", "sigma", "contextual", "chunk_starts")
_HALVES = ("float16", "bfloat16")


def _address(array) -> int:
    return array.__array_interface__["data"][0]


def _strides(array):
    """Strides in elements, or None where the library cannot use the array in place."""
    size = array.itemsize
    if not array.flags.aligned:
        return None
    strides = array.strides
    for step in strides:
        if step < 0 or step % size:
            return None
    return tuple([step // size for step in strides])


class _Input(NamedTuple):
    """An argument: the array that the library reads, which must live as long as the call, and the array as it was given."""

    array: numpy.ndarray
    layout: tuple
    given_shape: tuple


def _input(name: str, given, dtype) -> _Input:
    array = given if isinstance(given, numpy.ndarray) else numpy.asarray(given)
    shape = array.shape
    if name in core.BYTES:
        if array.dtype.kind not in "b" and array.dtype != numpy.uint8:
            raise TypeError(f"attention: {name} is {array.dtype}, expected bool or uint8")
    elif array.dtype != dtype:
        if array.dtype.name not in _HALVES or name in ("query", "key", "value"):
            raise TypeError(f"attention: {name} is {array.dtype}, expected {dtype}, the type of query")
        array = array.astype(dtype)
    if not array.dtype.isnative:
        raise TypeError(f"attention: {name} is not in the byte order of this machine")
    rank = core.RANKS[name]
    if array.ndim != rank:
        if array.ndim > rank or name not in _BROADCAST:
            raise ValueError(f"attention: {name} has shape {list(shape)}, expected {rank} dimensions")
        array = array.reshape((1,) * (rank - array.ndim) + shape)
    strides = _strides(array)
    apart = strides is not None and name == "contextual" and strides[1:] != core.contiguous(array.shape)[1:]
    if strides is None or apart or (name in _UNIT_STRIDE and array.shape[-1] > 1 and strides[-1] != 1):
        array = numpy.ascontiguousarray(array)
        strides = core.contiguous(array.shape)
    if array.shape[-1] == 1 and strides[-1] != 1 and name in _UNIT_STRIDE:
        strides = (*strides[:-1], 1)
    return _Input(array, (array.shape, strides), shape)


def _host(name: str, given, shape) -> numpy.ndarray:
    array = numpy.asarray(given)
    if array.dtype.kind not in "iu":
        raise TypeError(f"attention: {name} is {array.dtype}, expected whole numbers")
    if len(shape) != array.ndim or any(expected not in (None, extent) for expected, extent in zip(shape, array.shape)):
        raise ValueError(f"attention: {name} has shape {list(array.shape)}, expected {['any' if x is None else x for x in shape]}")
    return numpy.ascontiguousarray(array, numpy.int64)


def _pair(offsets):
    if isinstance(offsets, tuple) and len(offsets) == 2 and not numpy.isscalar(offsets[0]):
        return offsets
    return offsets, offsets


def _is_number(value) -> bool:
    return value is None or isinstance(value, (int, float)) or (isinstance(value, numpy.generic) and value.ndim == 0)


class Prepared:
    """Checked arguments of one call."""

    def __init__(self, query, key, value, words, backend="cpu", compute=None, gradients=False, noise=None, statistics=False):
        words = dict(words)
        if "normalization" in words:
            words["normalisation"] = words.pop("normalization")
        tensors = {"query": query, "key": key, "value": value}
        hosts = {name: words.pop(name, None) for name in ("key_lengths", "segments")}
        offsets = words.pop("offsets", None)
        self.seed = core._whole("seed", words.pop("seed", 0))
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"attention: seed is {self.seed}, expected a whole number of at least 0")
        for name in core.INPUTS[3:]:
            if name not in ("ridge", "sigma"):
                tensors[name] = words.pop(name, None)
            elif not _is_number(words.get(name)):
                tensors[name] = words.pop(name)
        self.sigma = None  # of softmax, given as an array so that it has a gradient
        if tensors.get("sigma") is not None and words.get("normalisation", "softmax") == "softmax":
            array = numpy.asarray(tensors.pop("sigma"))
            if array.size != 1:
                raise ValueError(f"attention: sigma has shape {list(array.shape)}; normalisation 'softmax' takes one sigma")
            self.sigma, words["sigma"] = array, float(array.reshape(()))
        self.options = core.options(**words)
        self.given = {name: numpy.asarray(x) for name, x in tensors.items() if x is not None}
        first = self.given["query"].dtype
        self.result_dtype = first
        if first.name in _HALVES:
            dtype = numpy.dtype("f4")
        elif first in (numpy.dtype("f4"), numpy.dtype("f8")):
            dtype = first
        else:
            raise TypeError(f"attention: query is {first}, expected float32, float64, float16 or bfloat16")
        for name in ("key", "value"):
            if self.given[name].dtype != first:
                raise TypeError(f"attention: {name} is {self.given[name].dtype}, expected {first}, the type of query")
        if compute is not None:  # every floating-point argument is converted
            dtype = numpy.dtype(compute)
        self.dtype = dtype
        arrays = {
            name: (x if x.dtype.kind in "bui" or (x.dtype == dtype) or (compute is None and x.dtype != first) else x.astype(dtype))
            for name, x in self.given.items()
        }
        for name in ("query", "key", "value"):
            if arrays[name].ndim != 4:
                core.check_shapes(*[arrays[n].shape for n in ("query", "key", "value")])
        self.inputs = {name: _input(name, arrays[name], dtype) for name in core.INPUTS if name in arrays}
        self._take_hosts(hosts, offsets)
        if noise is not None:
            self.inputs["noise"] = self._noise(noise, first)
        layouts = tuple([(name, x.layout) for name, x in self.inputs.items()])
        self.key = (self.options, lib.TYPE_OF_DTYPE[dtype], layouts, tuple(self.hosts), self.sequences, not gradients, self.longest)
        if statistics:
            self.key = (*self.key, True)
        self.backend = backend
        # Once for the forward and the backward: asking an array for its address takes longer than setting it.
        self.addresses = [_address(x.array) for x in self.inputs.values()]
        self.host_addresses = [(name, _address(x)) for name, x in self.hosts.items()]

    def _noise(self, given, dtype):
        """noise, repeated to [B, H, Lk] without a copy."""
        array = numpy.asarray(given)
        if array.dtype != dtype:
            raise TypeError(f"attention: noise is {array.dtype}, expected {dtype}, the type of query")
        batch, heads = self.inputs["query"].layout[0][:2]
        shape = (batch, heads, self.inputs["key"].layout[0][2])
        try:
            repeated = numpy.broadcast_to(array.astype(self.dtype, copy=False), shape)
        except ValueError:
            raise ValueError(f"attention: noise has shape {list(array.shape)}, expected {list(shape)}, or 1 where it is repeated") from None
        strides = _strides(repeated)
        if strides is None:
            repeated = numpy.ascontiguousarray(repeated)
            strides = core.contiguous(shape)
        return _Input(repeated, (shape, strides), array.shape)

    def _take_hosts(self, hosts, offsets) -> None:
        batch, keys = self.inputs["query"].layout[0][0], self.inputs["key"].layout[0][2]
        self.hosts, self.sequences, self.longest = {}, 0, 0
        if hosts["key_lengths"] is not None:
            self.hosts["key_lengths"] = _host("key_lengths", hosts["key_lengths"], (batch,))
        if hosts["segments"] is not None:
            self.hosts["segments"] = _host("segments", hosts["segments"], (batch, keys))
        if offsets is not None:
            query_offsets, key_offsets = _pair(offsets)
            self.hosts["query_offsets"] = _host("offsets", query_offsets, (None,))
            self.hosts["key_offsets"] = _host("offsets", key_offsets, (len(self.hosts["query_offsets"]),))
            self.sequences = len(self.hosts["key_offsets"]) - 1
            if self.sequences < 1:
                raise ValueError("attention: offsets has fewer than two numbers, expected one more than there are sequences")

    def frame(self) -> core.Frame:
        return lib.context(self.backend).frame(self.key, core.Frame)

    def out_of(self, array):
        return array if array.dtype == self.result_dtype else array.astype(self.result_dtype)


def _empty(layout, dtype):
    """An array of a layout that layout_like made."""
    shape, strides = layout
    if strides == core.contiguous(shape):
        return numpy.empty(shape, dtype)
    batch, heads, length, width = shape
    return numpy.empty((batch, length, heads, width), dtype).transpose(0, 2, 1, 3)


def _run(prepared, with_rows, with_saved):
    frame = prepared.frame()
    out = _empty((frame.out_shape, frame.out_strides), prepared.dtype)
    rows = numpy.empty(frame.row_shape, prepared.dtype) if with_rows else None
    saved = lib.Memory(frame.saved_bytes if with_saved else 0)
    frame.forward(
        prepared.addresses, prepared.host_addresses, prepared.seed, _address(out), _address(rows) if with_rows else 0, saved.address
    )
    return out, rows, saved


def _results(prepared, out, rows, return_log_sum_exp, return_variance):
    out = prepared.out_of(out)
    return (out, prepared.out_of(rows)) if return_log_sum_exp or return_variance else out


def _check_returns(normalisation, return_log_sum_exp, return_variance) -> None:
    if return_log_sum_exp and normalisation == "cme":
        raise ValueError("attention: return_log_sum_exp: normalisation 'cme' has none")
    if return_variance and normalisation != "cme":
        raise ValueError("attention: return_variance needs normalisation 'cme'")


def attention(query, key, value, words, return_log_sum_exp, return_variance, backend="cpu", compute=None):
    """The forward; ``words``: all other arguments of hark.attention."""
    prepared = Prepared(query, key, value, words, backend, compute)
    _check_returns("cme" if prepared.options.normalisation == 1 else "softmax", return_log_sum_exp, return_variance)
    out, rows, _ = _run(prepared, return_log_sum_exp or return_variance, False)
    return _results(prepared, out, rows, return_log_sum_exp, return_variance)


def attention_vjp(query, key, value, words, return_log_sum_exp, return_variance, backend="cpu", compute=None):
    """The forward and the function that returns its gradients."""
    prepared = Prepared(query, key, value, words, backend, compute, gradients=True)
    _check_returns("cme" if prepared.options.normalisation == 1 else "softmax", return_log_sum_exp, return_variance)
    cme = prepared.options.normalisation == 1
    out, rows, saved = _run(prepared, not cme or return_variance, True)

    def vjp(dout):
        dout = numpy.asarray(dout)
        if dout.shape != out.shape:
            raise ValueError(f"attention: the gradient of the output has shape {list(dout.shape)}, expected {list(out.shape)}")
        if dout.dtype.kind in "ciub":
            raise TypeError(f"attention: the gradient of the output is {dout.dtype}, expected {prepared.result_dtype}")
        dout = numpy.ascontiguousarray(dout, prepared.dtype)
        frame = prepared.frame()
        names = list(frame.gradients)
        gradients = {name: _empty(frame.gradient_layouts[name], prepared.dtype) for name in names}
        frame.backward(
            prepared.addresses,
            prepared.host_addresses,
            prepared.seed,
            _address(out),
            0 if cme else _address(rows),
            saved.address,
            _address(dout),
            core.contiguous(dout.shape),
            [(name, _address(x)) for name, x in gradients.items()],
        )
        result = {name: prepared.out_of(x.reshape(prepared.inputs[name].given_shape)) for name, x in gradients.items()}
        if prepared.sigma is not None and prepared.options.kernel == 1:
            result["sigma"] = prepared.out_of(numpy.full(prepared.sigma.shape, frame.sigma_gradient(), prepared.dtype))
        return result

    return _results(prepared, out, rows, return_log_sum_exp, return_variance), vjp
