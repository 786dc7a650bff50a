"""hark.torch.attention: from the arguments of a call to the direct path or to the registered operator."""

import torch

from .. import _attention as core
from . import _eager, _frames, _registered, _threads

_C = torch._C
# Whether something other than eager execution looks at every operator: torch.func, fake tensors, tracing. Where PyTorch does not have these
# questions every call goes through the registered operator.
_HAS_QUESTIONS = hasattr(_C, "_are_functorch_transforms_active") and hasattr(_C, "_len_torch_dispatch_stack")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _is_plain(tensors) -> bool:
    if not _HAS_QUESTIONS or _C._are_functorch_transforms_active() or _C._len_torch_dispatch_stack():
        return False
    for x in tensors:
        if x is not None and (type(x) not in _PLAIN or not x.is_cpu):
            return False
    return True


def _is_nested(x) -> bool:
    return isinstance(x, torch.Tensor) and x.is_nested


def _packed(name, nested):
    """Rows [1, H, total, d] of a jagged tensor [B, H, j, d], and its offsets."""
    if nested.layout is not torch.jagged or nested.dim() != 4 or nested._ragged_idx != 2:
        raise ValueError(
            f"attention: {name} is a nested tensor of shape {list(nested.shape)}, expected layout torch.jagged and [B, H, j, d], "
            "which transpose(1, 2) makes of [B, j, H, d]"
        )
    return nested.values().unsqueeze(0), nested.offsets()


def _as_tensor(name, x, like):
    """An argument that may be a number, a list or an array."""
    if isinstance(x, torch.Tensor):
        return x
    try:
        x = torch.as_tensor(x)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"attention: {name} is {type(x).__name__}, expected a tensor") from None
    return x if x.dtype in (torch.bool, torch.uint8) else x.to(like)


def _usable(index, x, dtype):
    """The argument as the library can use it; a view wherever that is possible."""
    if x is None:
        return None
    if index not in _frames.BYTES:
        if x.dtype in _frames.HALVES and index > 2:
            x = x.to(dtype)
        if x.dim() < _frames.RANKS[index] and (index in _frames.SUMMED):
            x = x.reshape((1,) * (_frames.RANKS[index] - x.dim()) + tuple(x.shape))
        if index in _frames.SUMMED:
            x = _unexpanded(x, x.dim() if index == _frames.BIAS else 1)
    elif x.dim() < _frames.RANKS[index]:
        x = x.reshape((1,) * (_frames.RANKS[index] - x.dim()) + tuple(x.shape))
    if index in _frames.UNIT_STRIDE and x.dim() and x.shape[-1] > 1 and x.stride(-1) != 1:
        x = x.contiguous()
    if index == _frames.CONTEXTUAL and x.dim() == 3 and x.stride()[1:] != (x.shape[2], 1):  # the library takes tables of packed rows
        x = x.contiguous()
    return x


def _unexpanded(x, dims):
    """Those of the first dimensions that are repeated as ones of extent 1, so that their gradient is computed once."""
    for dim in range(min(dims, x.dim())):
        if x.stride(dim) == 0 and x.shape[dim] > 1:
            x = x.narrow(dim, 0, 1)
    return x


def _host(name, x):
    if x is None:
        return None
    if not isinstance(x, torch.Tensor):
        try:
            x = torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"attention: {name} is {type(x).__name__}, expected whole numbers") from None
    if x.is_floating_point() or x.is_complex() or x.dtype is torch.bool:
        raise TypeError(f"attention: {name} is {x.dtype}, expected whole numbers")
    return x.to(torch.int64).contiguous()


def _hosts(key_lengths, segments, offsets):
    if key_lengths is None and segments is None and offsets is None:
        return _frames._NO_HOSTS
    queries, keys = offsets if isinstance(offsets, tuple) and len(offsets) == 2 and not isinstance(offsets[0], int) else (offsets, offsets)
    queries = _host("offsets", queries)
    keys = queries if keys is offsets else _host("offsets", keys)
    return _host("key_lengths", key_lengths), queries, keys, _host("segments", segments)


def _check_tensors(query, key, value) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"attention: {name} is {type(x).__name__}, expected torch.Tensor")
    core.check_shapes(query.shape, key.shape, value.shape)
    for name, x in (("key", key), ("value", value)):
        if x.dtype != query.dtype:
            raise TypeError(f"attention: {name} is {x.dtype}, expected {query.dtype}, the type of query")


def _convert(tensors):
    """Halves and what torch.autocast asks: the tensors to compute with, and the type of the result (None: as computed)."""
    query, key, value = tensors[:3]
    if torch.is_autocast_enabled("cpu") and not any(x.dtype is torch.float64 for x in (query, key, value)):
        result = torch.get_autocast_dtype("cpu")
        return (query.float(), key.float(), value.float(), *tensors[3:]), result
    _check_tensors(query, key, value)
    if query.dtype in _frames.HALVES:
        return (query.float(), key.float(), value.float(), *tensors[3:]), query.dtype
    return tensors, None


def _seed(seed) -> int:
    seed = core._whole("seed", seed)
    if seed < 0:
        raise ValueError(f"attention: seed is {seed}, expected a whole number of at least 0")
    return seed


def attention(words, tensors, hosts, seed, with_rows):
    """Output and rows of any arguments. words: of core.options; tensors: of core.INPUTS; hosts: key_lengths, segments, offsets."""
    if type(seed) is not int or seed < 0:
        seed = _seed(seed)
    if torch.compiler.is_compiling():
        return _general(words, tensors, hosts, seed, with_rows, True)
    try:
        if not with_rows and hosts is _frames._NO_HOSTS:
            frame = _frame_of_three(words, tensors)
            if frame is not None:
                return _eager.Three.apply(frame, words, seed, *tensors[:3]), None
        return _run(words, tensors, hosts, seed, with_rows)
    except RuntimeError as error:
        if "can't allocate memory" in str(error):
            raise MemoryError(f"attention: {str(error).splitlines()[0]}") from error
        raise


def _run(words, tensors, hosts, seed, with_rows):
    if hosts is _frames._NO_HOSTS and _is_plain(tensors) and not torch.is_autocast_enabled("cpu"):
        found = _known(words, tensors)
        if found is not None:
            return _eager.run(found, words, tensors, _frames._NO_HOSTS, seed, with_rows)
    return _general(words, tensors, hosts, seed, with_rows, False)


def _frame_of_three(words, tensors):
    """The frame of query, key and value alone, of which a gradient is needed, like those of an earlier call; else None."""
    query, key, value, *terms = tensors
    for x in terms:
        if x is not None:
            return None
    if not (_HAS_QUESTIONS and type(query) in _PLAIN and type(key) in _PLAIN and type(value) in _PLAIN):
        return None
    if not (query.is_cpu and key.is_cpu and value.is_cpu):
        return None
    if not torch.is_grad_enabled() or not (query.requires_grad or key.requires_grad or value.requires_grad):
        return None
    if _C._are_functorch_transforms_active() or _C._len_torch_dispatch_stack() or torch.is_autocast_enabled("cpu"):
        return None
    context = _threads.context()
    short = _frames.key_of_three(words, query, key, value, True)
    try:
        frame = context.frames.get(short)
    except TypeError:  # a word without a hash is refused by the general path
        return None
    if frame is None:
        frame = _frames.known(words, tensors, _frames._NO_HOSTS, True)  # of an earlier call, which was checked
        if frame is not None and frame.is_plain:
            context.add(short, frame)
    return frame if frame is not None and frame.is_plain else None


def _known(words, tensors):
    """The frame of a call like an earlier one, or None."""
    try:
        return _frames.known(words, tensors, _frames._NO_HOSTS, _eager.differentiates(tensors))
    except TypeError:  # an argument without a hash is checked below
        return None


def _general(words, tensors, hosts, seed, with_rows, compiling):
    offsets_of_result = None
    if any(_is_nested(x) for x in tensors[:3]):
        tensors, hosts, offsets_of_result = _unpack(tensors, hosts)
    if hosts is not _frames._NO_HOSTS:
        hosts = _hosts(*hosts)
    for name, x in zip(core.INPUTS[:3], tensors):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"attention: {name} is {type(x).__name__}, expected torch.Tensor")
    words = _registered.words(words)
    tensors, result_type = _convert(tensors)
    dtype = tensors[0].dtype
    tensors = tuple([_usable(i, None if x is None else _as_tensor(core.INPUTS[i], x, dtype), dtype) for i, x in enumerate(tensors)])
    run = _eager.attention if not compiling and _is_plain((*tensors, *hosts)) else _registered.attention
    if run is _registered.attention:
        _frames.check(tensors, hosts)
    out, rows = run(words, tensors, hosts, seed, with_rows)
    if result_type is not None:
        out, rows = out.to(result_type), None if rows is None else rows.to(result_type)
    if offsets_of_result is not None:
        out = torch.nested.nested_tensor_from_jagged(out[0].transpose(0, 1), offsets_of_result).transpose(1, 2)
    return out, rows


def _unpack(tensors, hosts):
    """Packed rows of nested tensors, their offsets as hosts, and the offsets of the result."""
    if hosts is not _frames._NO_HOSTS:
        raise ValueError("attention: key_lengths, segments and offsets are not for nested tensors, which have their own")
    for name, x in zip(core.INPUTS, tensors[:3]):
        if not _is_nested(x):
            raise TypeError(f"attention: {name} is not nested, expected query, key and value to be nested tensors together")
    (query, queries), (key, keys), (value, values) = [_packed(n, x) for n, x in zip(core.INPUTS, tensors[:3])]
    if key.shape[2] != value.shape[2] or (keys is not values and not torch.equal(keys, values)):
        raise ValueError("attention: key and value are nested tensors of other lengths, expected equal ones")
    return (query, key, value, *tensors[3:]), (None, None, (queries, keys)), queries
