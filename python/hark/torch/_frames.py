"""Attention on PyTorch's tensors without autograd: frames by layout, a forward and a backward.

``tensors`` is always the tuple of the arguments named in ``core.INPUTS``, ``hosts`` that of those named in ``core.HOST``; absent ones are
None. ``words`` is the tuple of the other arguments of ``core.options``, in its order.
"""

from typing import Optional

import torch

from .. import _attention as core
from .. import _library as lib
from . import _threads

KINDS = {torch.float32: lib.F32, torch.float64: lib.F64}
HALVES = (torch.float16, torch.bfloat16)
RANKS = tuple(core.RANKS.values())
BYTES = tuple(core.INPUTS.index(name) for name in core.BYTES)
UNIT_STRIDE = (0, 1, 2, 5, 7, 9, 10, 11, 12)
BIAS = 4
SUMMED = (BIAS, 5, 7, 9, 10, 11)  # floating-point arguments that may have fewer dimensions: attention_bias and the tables of heads
SIGMA, CONTEXTUAL = 10, 11
_NO_HOSTS = (None, None, None, None)
NORMALISATION, KERNEL, SIGMA_NUMBER = 2, 3, 5  # places in words


def layouts_of(tensors):
    return tuple([None if x is None else (x.dtype, x.shape, x.stride()) for x in tensors])


def _check_type(index, tensor, dtype) -> None:
    name = core.INPUTS[index]
    if index in BYTES:
        if tensor.dtype not in (torch.bool, torch.uint8):
            raise TypeError(f"attention: {name} is {tensor.dtype}, expected torch.bool or torch.uint8")
    elif tensor.dtype != dtype:
        raise TypeError(f"attention: {name} is {tensor.dtype}, expected {dtype}, the type of query")


def check(tensors, hosts) -> None:
    """Devices, types and ranks of tensors; the library checks the rest."""
    dtype = tensors[0].dtype
    if dtype not in KINDS:
        raise TypeError(f"attention: query is {dtype}, expected float32, float64, float16 or bfloat16")
    for index, tensor in enumerate(tensors):
        if tensor is None:
            continue
        name = core.INPUTS[index]
        if tensor.device.type not in ("cpu", "meta"):
            raise ValueError(
                f"attention: {name} is on {tensor.device}, expected the CPU: hark computes on processors; {name}.cpu() moves it there"
            )
        if tensor.layout is not torch.strided:
            raise TypeError(f"attention: {name} has the layout {tensor.layout}, expected torch.strided")
        _check_type(index, tensor, dtype)
        if tensor.dim() != RANKS[index]:
            raise ValueError(f"attention: {name} has shape {list(tensor.shape)}, expected {RANKS[index]} dimensions")
    _check_hosts(tensors, hosts)


def _check_hosts(tensors, hosts) -> None:
    batch, keys = tensors[0].shape[0], tensors[1].shape[2]
    queries = hosts[1]
    expected = {"key_lengths": (batch,), "segments": (batch, keys), "key_offsets": None if queries is None else tuple(queries.shape)}
    for name, host in zip(core.HOST, hosts):
        if host is None:
            continue
        name_given = "offsets" if name.endswith("offsets") else name
        if expected.get(name) is not None and tuple(host.shape) != expected[name]:
            raise ValueError(f"attention: {name_given} has shape {list(host.shape)}, expected {list(expected[name])}")
        if name_given == "offsets" and (host.dim() != 1 or host.shape[0] < 2):
            raise ValueError(f"attention: offsets has shape {list(host.shape)}, expected one dimension of at least two numbers")


def _layout(index, tensor):
    shape, strides = tuple(tensor.shape), tensor.stride()
    if index in UNIT_STRIDE and shape[-1] <= 1:
        strides = (*strides[:-1], 1)
    return shape, strides


def takes_sigma_as_number(words, tensors) -> bool:
    """softmax takes sigma as a number; its gradient follows from those of query and key."""
    return tensors[SIGMA] is not None and words[NORMALISATION] == "softmax"


def make_frame(context, words, tensors, hosts, gradients: bool) -> core.Frame:
    """Checks everything and makes the frame of one call."""
    check(tensors, hosts)
    as_number = takes_sigma_as_number(words, tensors)
    uses = [i for i, x in enumerate(tensors) if x is not None and not (as_number and i == SIGMA)]
    names = [name for name, host in zip(core.HOST, hosts) if host is not None]
    sequences = 0 if hosts[1] is None else hosts[1].shape[0] - 1
    frame = core.Frame(
        context,
        core.options(*words),
        KINDS[tensors[0].dtype],
        [(core.INPUTS[i], _layout(i, tensors[i])) for i in uses],
        names,
        sequences,
        not gradients,
    )
    frame.uses, frame.forward_only = uses, not gradients
    frame.dtype = tensors[0].dtype
    frame.out_contiguous = frame.out_strides == core.contiguous(frame.out_shape)
    # query, key and value alone, with softmax and results of contiguous rows: the shorter path of _eager.Three
    frame.is_plain = uses == [0, 1, 2] and not names and not frame.cme and tensors[SIGMA] is None
    layouts = [(frame.out_shape, frame.out_strides), *[frame.gradient_layouts[name] for name in core.INPUTS[:3]]]
    frame.is_plain = frame.is_plain and all(strides == core.contiguous(shape) for shape, strides in layouts)
    if frame.is_plain:
        frame.shapes_of_three = [shape for shape, _ in layouts[1:]]
        # empty_like(), the quickest allocation, gives these results: the tensors lie as their gradients do, and the output as the query
        frame.is_like = [frame.out_shape, *frame.shapes_of_three[1:]] == [x.shape for x in tensors[:3]] and all(
            x.is_contiguous() and frame.layouts[name][1] == core.contiguous(x.shape) for name, x in zip(core.INPUTS, tensors[:3])
        )
        size = tensors[0].element_size()
        rows = -(-tensors[0].shape[:3].numel() * size // lib.WORKSPACE_ALIGNMENT) * lib.WORKSPACE_ALIGNMENT
        frame.saved_at = rows if frame.saved_bytes else 0
        frame.kept_bytes = rows + frame.saved_bytes
    return frame


def _key(words, tensors, hosts, gradients):
    if tensors[SIGMA] is not None and takes_sigma_as_number(words, tensors):
        if tensors[SIGMA].numel() != 1:
            raise ValueError(f"attention: sigma has shape {list(tensors[SIGMA].shape)}; normalisation 'softmax' takes one sigma")
        words = (*words[:SIGMA_NUMBER], tensors[SIGMA].item(), *words[SIGMA_NUMBER + 1 :])
    of_hosts = None if hosts is _NO_HOSTS else tuple([None if x is None else x.shape for x in hosts])
    return words, layouts_of(tensors), of_hosts, gradients


def known(words, tensors, hosts, gradients: bool) -> Optional[core.Frame]:
    """The frame of these arguments in the calling thread's context if there is one."""
    return _threads.context().frames.get(_key(words, tensors, hosts, gradients))


def key_of_three(words, query, key, value, gradients: bool):
    """A shorter key of a frame of query, key and value alone."""
    return words, query.dtype, key.dtype, value.dtype, query.shape, key.shape, value.shape, query.stride(), key.stride(), value.stride(), gradients


def frame_of(words, tensors, hosts, gradients: bool) -> core.Frame:
    """The frame of these arguments in the calling thread's context."""
    context = _threads.context()
    key = _key(words, tensors, hosts, gradients)
    frame = context.frames.get(key)
    if frame is None:
        frame = context.add(key, make_frame(context, key[0], tensors, hosts, gradients))
    return frame


def _addresses(frame, tensors):
    return [tensors[i].data_ptr() for i in frame.uses]


def _host_addresses(hosts):
    return [(name, x.data_ptr()) for name, x in zip(core.HOST, hosts) if x is not None]


def empty(layout, dtype):
    return torch.empty_strided(*layout, dtype=dtype)


def forward(frame, tensors, hosts, seed, with_rows):
    """(out, rows or None, saved or None). with_rows: the log-sum-exp, or with cme the variance."""
    if frame.out_contiguous:
        out = torch.empty(frame.out_shape, dtype=frame.dtype)
    else:
        out = torch.empty_strided(frame.out_shape, frame.out_strides, dtype=frame.dtype)
    rows = torch.empty(frame.row_shape, dtype=frame.dtype) if with_rows else None
    saved = torch.empty(frame.saved_bytes, dtype=torch.uint8) if frame.saved_bytes else None
    frame.forward(
        _addresses(frame, tensors),
        () if hosts is _NO_HOSTS else _host_addresses(hosts),
        seed,
        out.data_ptr(),
        0 if rows is None else rows.data_ptr(),
        0 if saved is None else saved.data_ptr(),
    )
    return out, rows, saved


def backward(frame, words, tensors, hosts, seed, out, rows, saved, dout, needs):
    """The gradients in the order of tensors; None where not needed. needs: a flag for each."""
    if dout.stride(-1) != 1:
        dout = dout.contiguous()
    of_sigma = needs[SIGMA] and takes_sigma_as_number(words, tensors)
    result = [None] * len(tensors)
    pairs = []
    for index in frame.uses:
        name = core.INPUTS[index]
        if index not in BYTES and (needs[index] or (of_sigma and index < 2)):
            result[index] = gradient = empty(frame.gradient_layouts[name], frame.dtype)
            pairs.append((name, gradient.data_ptr()))
    frame.backward(
        _addresses(frame, tensors),
        () if hosts is _NO_HOSTS else _host_addresses(hosts),
        seed,
        out.data_ptr(),
        0 if rows is None or frame.cme else rows.data_ptr(),
        0 if saved is None else saved.data_ptr(),
        dout.data_ptr(),
        dout.stride(),
        pairs,
    )
    if of_sigma:
        result[SIGMA] = torch.full_like(tensors[SIGMA], frame.sigma_gradient() if words[KERNEL] == "rbf" else 0)
    return result
