"""The registered operators hark::attention and hark::attention_backward: for torch.compile, torch.export and torch.func.

Their arguments are tensors by name, then the words of hark.torch.attention. The fake kernels check them as the real ones do; where sizes
are symbols they describe the results only.
"""

import torch

from .. import _attention as core
from . import _frames
from ._eager import MESSAGE

_TENSORS = ", ".join(f"Tensor{'' if i < 3 else '?'} {name}" for i, name in enumerate(core.INPUTS))
_HOSTS = ", ".join(f"Tensor? {name}" for name in core.HOST)
_WORDS = (
    "str structure, bool causal, str normalisation, str kernel, float? scale, float? sigma_number, float? ridge_number, float ridge_power, "
    "float bound, bool unit, int? window, int? hierarchy_block, str partition, str coarse_query, str interpolation, int? query_offset, "
    "float dropout, bool directed_kernel, int grid_columns, str solver, float solver_tolerance, "
    "int? chunk, int? chunk_slots, int? selected_slots, int? kept_chunks, int? global_slots"
)
TENSORS, HOSTS, WORDS = len(core.INPUTS), len(core.HOST), _WORDS.count(",") + 1
TABLES = (5, 7, 9, 10, 11)  # of heads, without a batch dimension

library = torch.library.Library("hark", "FRAGMENT")
_tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
library.define(
    f"attention({_TENSORS}, {_HOSTS}, {_WORDS}, int seed, bool gradients, bool with_rows) -> (Tensor, Tensor, Tensor)", tags=_tags
)
library.define(
    f"attention_backward(Tensor dout, Tensor out, Tensor rows, Tensor saved, {_TENSORS}, {_HOSTS}, {_WORDS}, int seed, "
    "bool[] needs) -> Tensor[]",
    tags=_tags,
)


def _split(arguments):
    """(tensors, hosts, words) at the beginning of the arguments."""
    return arguments[:TENSORS], arguments[TENSORS : TENSORS + HOSTS], tuple(arguments[TENSORS + HOSTS : TENSORS + HOSTS + WORDS])


def _none_as_empty(tensor, dtype):
    return torch.empty(0, dtype=dtype) if tensor is None else tensor


@torch.library.impl(library, "attention", "CPU")
def _forward(*arguments):
    tensors, hosts, words = _split(arguments)
    seed, gradients, with_rows = arguments[-3:]
    frame = _frames.frame_of(words, tensors, hosts, gradients)
    out, rows, saved = _frames.forward(frame, tensors, hosts, seed, with_rows or (gradients and not frame.cme))
    return out, _none_as_empty(rows, out.dtype), _none_as_empty(saved, torch.uint8)


@torch.library.impl(library, "attention_backward", "CPU")
def _backward(dout, out, rows, saved, *arguments):
    tensors, hosts, words = _split(arguments)
    seed, needs = arguments[-2:]
    frame = _frames.frame_of(words, tensors, hosts, True)
    found = _frames.backward(
        frame, words, tensors, hosts, seed, out, rows if rows.numel() else None, saved if saved.numel() else None, dout, needs
    )
    return [_none_as_empty(x if needed else None, out.dtype) for x, needed in zip(found, needs)]


def _is_static(tensors) -> bool:
    return all(isinstance(n, int) for x in tensors if x is not None for n in (*x.shape, *x.stride()))


def _like_query(shape, like):
    """A fake result with the layout that layout_like gives."""
    if like.stride(1) < like.stride(2) and shape[1] > 1 and shape[2] > 1:
        return like.new_empty((shape[0], shape[2], shape[1], shape[3])).transpose(1, 2)
    return like.new_empty(shape)


def _frame_in_fake(words, tensors, hosts, gradients):
    """The frame of fake tensors, which checks the arguments."""
    if _frames.takes_sigma_as_number(words, tensors):
        words = (*words[: _frames.SIGMA_NUMBER], 1.0, *words[_frames.SIGMA_NUMBER + 1 :])
    return _frames.make_frame(_frames._threads.context(), words, tensors, hosts, gradients)


@torch.library.register_fake("hark::attention", lib=library)
def _forward_fake(*arguments):
    tensors, hosts, words = _split(arguments)
    gradients, with_rows = arguments[-2:]
    query, _, value = tensors[:3]
    cme = words[_frames.NORMALISATION] == "cme"
    if _is_static((*tensors, *hosts)):
        frame = _frame_in_fake(words, tensors, hosts, gradients)
        core.check_terms({name: tuple(x.shape) for name, x in zip(core.INPUTS, tensors) if x is not None}, frame.options)
        saved = frame.saved_bytes
    else:
        _frames.check(tensors, hosts)
        saved = torch.library.get_ctx().new_dynamic_size() if gradients else 0
    out = _like_query((*query.shape[:3], value.shape[3]), query)
    rows = query.new_empty(query.shape[:3] if with_rows or (gradients and not cme) else (0,))
    return out, rows, query.new_empty((saved,), dtype=torch.uint8)


@torch.library.register_fake("hark::attention_backward", lib=library)
def _backward_fake(dout, out, rows, saved, *arguments):
    tensors, needs = arguments[:TENSORS], arguments[-1]
    return [
        out.new_empty((0,)) if not needed else _like_query(x.shape, x) if i < 3 else out.new_empty(x.shape)
        for i, (x, needed) in enumerate(zip(tensors, needs))
    ]


def _setup(ctx, inputs, output):
    tensors, hosts, _ = _split(inputs)
    out, rows, saved = output
    ctx.prepared = inputs[-2]
    ctx.words, ctx.seed = tuple(inputs[TENSORS + HOSTS : TENSORS + HOSTS + WORDS]), inputs[-3]
    ctx.mark_non_differentiable(rows, saved)
    ctx.save_for_backward(*tensors, *hosts, out, rows, saved)


def _differentiate(ctx, dout, *_, call=torch.ops.hark.attention_backward):
    if not ctx.prepared:
        raise RuntimeError("hark::attention: gradients are requested of a call with gradients=False")
    *given, out, rows, saved = ctx.saved_tensors
    needs = [bool(x) for x in ctx.needs_input_grad[:TENSORS]]
    gradients = call(dout, out, rows, saved, *given, *ctx.words, ctx.seed, needs)
    return *[x if needed else None for x, needed in zip(gradients, needs)], *[None] * (HOSTS + WORDS + 3)


def _refuse(ctx, *_):
    raise RuntimeError(MESSAGE)


torch.library.register_autograd("hark::attention", _differentiate, setup_context=_setup, lib=library)
torch.library.register_autograd("hark::attention_backward", _refuse, lib=library)


# ---- torch.func: autograd of the dispatcher does not know its levels, functions with a setup_context do ----


class _Backward(torch.autograd.Function):
    """hark::attention_backward, whose own gradient is refused."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return tuple(torch.ops.hark.attention_backward(*arguments))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(_refuse)


class _Forward(torch.autograd.Function):
    """hark::attention."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return torch.ops.hark.attention(*arguments)

    setup_context = staticmethod(_setup)

    @staticmethod
    def backward(ctx, *gradients):
        return _differentiate(ctx, *gradients, call=_Backward.apply)


# ---- torch.vmap: the examples are folded into the batch where that is possible, else they are computed one by one ----


def _foldable(tensors, hosts) -> bool:
    return all(tensors[i] is None for i in TABLES) and hosts[1] is None


def _example(x, dim, index):
    return x if dim is None or x is None else x.select(dim, index)


def _first(x, dim, count):
    """The examples in front: [N, ...]; an argument without examples is repeated."""
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)


def _fold(x, dim, count, batch):
    """[N B, ...] of an argument [B or 1, ...] with or without examples."""
    if x is None or (dim is None and x.shape[0] == 1 and batch > 1):
        return x
    examples = _first(x, dim, count)
    if examples.shape[1] != batch:
        examples = examples.expand(count, batch, *examples.shape[2:])
    return examples.reshape(count * batch, *examples.shape[2:])


def _batch_of(query, dim):
    shape = list(query.shape)
    if dim is not None:
        del shape[dim]
    return shape[0]


def _fold_all(arguments, dims, count, gradients):
    """The tensors and hosts of a folded call."""
    batch = _batch_of(arguments[0], dims[0])
    folded = []
    for i in range(TENSORS + HOSTS):
        x, dim = arguments[i], dims[i]
        whole = x is not None and dim is None and i == _frames.BIAS and gradients  # each example has a gradient of the bias
        folded.append(_fold(x.expand(batch, *x.shape[1:]) if whole else x, dim, count, batch))
    return folded, batch


def _unfold(x, count, batch, shape):
    """[N, ...] of a folded result for an argument of this shape, which may have had one row for the whole batch."""
    x = x.reshape(count, batch, *x.shape[1:])
    return x.sum(1, keepdim=True) if shape[0] == 1 and batch > 1 else x


@torch.library.register_vmap("hark::attention", lib=library)
def _forward_vmap(info, dims, *arguments):
    tensors, hosts, _ = _split(arguments)
    count, rest = info.batch_size, arguments[TENSORS + HOSTS :]
    if not _foldable(tensors, hosts):
        results = [
            torch.ops.hark.attention(*[_example(x, d, i) for x, d in zip(arguments[: TENSORS + HOSTS], dims)], *rest) for i in range(count)
        ]
        return tuple(torch.stack(x) for x in zip(*results)), (0, 0, 0)
    folded, batch = _fold_all(arguments, dims, count, rest[-2])
    out, rows, saved = torch.ops.hark.attention(*folded, *rest)
    rows = rows.reshape(count, batch, *rows.shape[1:]) if rows.dim() > 1 else rows.expand(count, 0)
    return (out.reshape(count, batch, *out.shape[1:]), rows, saved), (0, 0, None)


def _shape_of(x, dim):
    shape = list(x.shape)
    if dim is not None:
        del shape[dim]
    return shape


@torch.library.register_vmap("hark::attention_backward", lib=library)
def _backward_vmap(info, dims, *arguments):
    results, given, rest = arguments[:4], arguments[4 : 4 + TENSORS + HOSTS], arguments[4 + TENSORS + HOSTS :]
    tensors, hosts = given[:TENSORS], given[TENSORS:]
    count, needs = info.batch_size, rest[-1]
    of_given = dims[4 : 4 + TENSORS + HOSTS]
    if all(d is None for d in of_given) or not _foldable(tensors, hosts):
        one_by_one = [
            torch.ops.hark.attention_backward(*[_example(x, d, i) for x, d in zip(arguments[: 4 + TENSORS + HOSTS], dims)], *rest)
            for i in range(count)
        ]
        return [torch.stack(x) for x in zip(*one_by_one)], [0] * TENSORS
    folded, batch = _fold_all(given, of_given, count, True)
    dout, out, rows = [_fold(x, d, count, batch) if x.numel() else x.new_empty(0) for x, d in zip(results[:3], dims)]
    gradients = torch.ops.hark.attention_backward(dout, out, rows, results[3], *folded, *rest)
    return [
        _unfold(x, count, batch, _shape_of(tensors[i], of_given[i])) if needed else x.expand(count, 0)
        for i, (x, needed) in enumerate(zip(gradients, needs))
    ], [0] * TENSORS


torch.library.register_autocast("hark::attention", "cpu", torch.float32, lib=library)


_FLOATS = {"scale": 4, "sigma": 5, "ridge": 6, "ridge_power": 7, "bound": 8, "dropout": 16, "solver_tolerance": 20}
_WHOLE = {
    **{"window": 10, "hierarchy_block": 11, "query_offset": 15, "grid_columns": 18},
    **{name: 21 + i for i, name in enumerate(core.COMPRESSED)},
}


def words(given):
    """The words with the types that the operator's schema has; other types are refused here, values where the call is checked."""
    result = list(given)
    for name, i in _FLOATS.items():
        if result[i] is not None:
            result[i] = core._number(name, result[i])
    for name, i in _WHOLE.items():
        if result[i] is not None:
            result[i] = core._whole(name, result[i])
    enums = {"structure": 0, "normalisation": 2, "kernel": 3, "partition": 12, "coarse_query": 13, "interpolation": 14, "solver": 19}
    for name, i in enums.items():
        core._word(name, result[i])
    for name, i in (("causal", 1), ("unit", 9), ("directed_kernel", 17)):
        result[i] = core._truth(name, result[i])
    return tuple(result)


def attention(words, tensors, hosts, seed, with_rows):
    """Output and rows (or None), through PyTorch's dispatcher."""
    transformed = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
    gradients = transformed or (torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors]))
    call = _Forward.apply if transformed else torch.ops.hark.attention
    out, rows, _ = call(*tensors, *hosts, *words, seed, gradients, with_rows)
    return out, rows if with_rows else None
