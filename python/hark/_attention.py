"""Attention prepared once for a configuration and shapes, then run on addresses: what NumPy, PyTorch and JAX share.

A *layout* is the pair (shape, strides in elements) of a tensor. A *frame* has the plan and the filled ``hark_attention_args`` of one
configuration and one set of layouts. A call only sets the addresses in it, which keeps the time of a call short.
"""

import ctypes
import os
from ctypes import byref, c_void_p
from typing import NamedTuple, Optional

from . import _library as lib
from . import _structs as s

_ENUMS = {
    "structure": ("dense", "window", "hierarchical", "compressed"),
    "normalisation": ("softmax", "cme", "stick_breaking"),
    "kernel": ("exp", "rbf"),
    "partition": ("neighbour", "sibling"),
    "coarse_query": ("default", "mean", "first", "exact"),
    "interpolation": ("constant", "linear"),
    "solver": ("factor", "conjugate_gradients"),
}
ATTENTION_PURPOSE = 3  # HARK_RANDOM_ATTENTION, layer 0
INPUTS = (
    *("query", "key", "value", "mask", "attention_bias", "log_kernel", "forget", "hierarchical_bias", "query_mask", "ridge", "sigma"),
    *("contextual", "chunk_starts"),
)
# noise is an input of hark.posterior alone, after those of INPUTS
GRADIENTS = (
    *("query", "key", "value", "attention_bias", "log_kernel", "forget", "hierarchical_bias", "ridge", "sigma"),
    *("contextual", "noise"),
)
STATISTICS = ("variance", "log_determinant", "quadratic")
RANKS = dict(zip(INPUTS, (4, 4, 4, 4, 4, 2, 3, 2, 2, 1, 1, 3, 2)))  # numbers of dimensions
BYTES = ("mask", "query_mask", "chunk_starts")  # inputs of bool or uint8
_THREE = ["query", "key", "value"]
COMPRESSED = ("chunk", "chunk_slots", "selected_slots", "kept_chunks", "global_slots")  # words of structure compressed
HOST = ("key_lengths", "query_offsets", "key_offsets", "segments")


class Options(NamedTuple):
    """What attention computes, apart from tensors; the fields of ``hark_attention_desc``. Made by ``options()``."""

    structure: int
    causal: bool
    normalisation: int
    kernel: int
    scale: float
    sigma: float
    ridge: float
    ridge_power: float
    bound: float
    unit: bool
    window: int
    hierarchy_block: int
    partition: int
    coarse_query: int
    interpolation: int
    query_offset: Optional[int]
    dropout: float
    directed_kernel: bool
    grid_columns: int
    solver: int = 0
    solver_tolerance: float = 0.0
    chunk: int = 0
    chunk_slots: int = 0
    selected_slots: int = 0
    kept_chunks: int = 0
    global_slots: int = 0


def _word(name: str, value) -> int:
    words = _ENUMS[name]
    if value in words:
        return words.index(value)
    kind = ValueError if isinstance(value, str) else TypeError
    raise kind(f"attention: {name} is {value!r}, expected {', '.join(words[:-1])} or {words[-1]}")


def _number(name: str, value) -> float:
    if value is None:
        return 0.0
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"attention: {name} is {value!r}, expected a number") from None


def _truth(name: str, value) -> bool:
    if type(value) is bool:
        return value
    if type(value).__name__ in ("int", "bool", "bool_") and value in (0, 1):  # of NumPy too
        return bool(value)
    raise TypeError(f"attention: {name} is {value!r}, expected True or False")


def _whole(name: str, value) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"attention: {name} is {value!r}, expected a whole number")
    value = value.__index__()
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"attention: {name} is {value}, which needs more than 64 bits")
    return value


def options(
    structure="dense",
    causal=False,
    normalisation="softmax",
    kernel="exp",
    scale=None,
    sigma=None,
    ridge=None,
    ridge_power=0.0,
    bound=0.0,
    unit=False,
    window=None,
    hierarchy_block=None,
    partition="neighbour",
    coarse_query="default",
    interpolation="constant",
    query_offset=None,
    dropout=0.0,
    directed_kernel=False,
    grid_columns=0,
    solver="factor",
    solver_tolerance=0.0,
    chunk=None,
    chunk_slots=None,
    selected_slots=None,
    kept_chunks=None,
    global_slots=None,
) -> Options:
    """Checks words and numbers. Ridge and sigma are numbers here; given as tensors they are None here.

    What is given without having an effect is refused by name: by the library, and here where the library's zero means "not given".
    """
    if structure == "window" and window is None:
        raise ValueError("attention: structure 'window' needs window=W, the positions to each side of the query")
    if structure != "window" and window is not None:
        raise ValueError("attention: window has no effect without structure 'window'")
    hierarchical = structure == "hierarchical"
    if not hierarchical and (
        hierarchy_block not in (None, 16) or partition != "neighbour" or coarse_query != "default" or interpolation != "constant"
    ):
        raise ValueError(
            "attention: hierarchy_block, partition, coarse_query and interpolation have no effect without structure 'hierarchical'"
        )
    if not hierarchical and grid_columns not in (None, 0):
        raise ValueError("attention: grid_columns has no effect without structure 'hierarchical'")
    given = (chunk, chunk_slots, selected_slots, kept_chunks, global_slots)
    if structure == "compressed" and chunk is None:
        raise ValueError("attention: structure 'compressed' needs chunk=M, the rows of a chunk")
    for name, value in (("chunk_slots", chunk_slots), ("selected_slots", selected_slots)):
        if value is not None and _whole(name, value) == 0:
            raise ValueError(f"attention: {name} is 0, expected a whole number of at least 1")
    if structure != "compressed":
        for name, value in zip(COMPRESSED, given):
            if value is not None:
                raise ValueError(f"attention: {name} has no effect without structure 'compressed'")
    return Options(
        _word("structure", structure),
        _truth("causal", causal),
        _word("normalisation", normalisation),
        _word("kernel", kernel),
        _number("scale", scale),
        _number("sigma", sigma),
        _number("ridge", ridge),
        _number("ridge_power", ridge_power),
        _number("bound", bound),
        _truth("unit", unit),
        _whole("window", window),
        _whole("hierarchy_block", hierarchy_block) if hierarchical else 0,
        _word("partition", partition),
        _word("coarse_query", coarse_query),
        _word("interpolation", interpolation),
        None if query_offset is None else _whole("query_offset", query_offset),
        _number("dropout", dropout),
        _truth("directed_kernel", directed_kernel),
        _whole("grid_columns", grid_columns),
        _word("solver", solver),
        _number("solver_tolerance", solver_tolerance),
        *[_whole(name, value) for name, value in zip(COMPRESSED, given)],
    )


def check_shapes(query, key, value) -> None:
    """Refuses shapes that no descriptor can express; all others are checked by the library."""
    for name, shape, letters in (("query", query, "B, H, Lq, d"), ("key", key, "B, Hkv, Lk, d"), ("value", value, "B, Hkv, Lk, dv")):
        if len(shape) != 4:
            raise ValueError(f"attention: {name} has shape {list(shape)}, expected [{letters}]")


def check_terms(shapes, options: Options) -> None:
    """Refuses shapes of terms before a computation; shapes: by name, with all dimensions. The library checks them again when it
    computes.
    """
    batch, heads, queries, width = shapes["query"]
    keys = shapes["key"][2]
    block = options.hierarchy_block or 16
    expected = {
        "mask": (batch, heads, queries, keys),
        "attention_bias": (batch, heads, queries, keys),
        "log_kernel": (heads, None),
        "forget": (batch, heads, keys),
        "hierarchical_bias": (heads, 4 * block - 1),
        "query_mask": (batch, queries),
        "ridge": (heads,),
        "sigma": (heads,),
        "contextual": (heads, None, width),
        "chunk_starts": (batch, keys),
    }
    whole = {"forget": 3, "hierarchical_bias": 1, "contextual": 2, "chunk_starts": 1}  # as many of the last dimensions are not repeated
    for name, shape in shapes.items():
        for i, extent in enumerate(expected.get(name, ())):
            repeated = shape[i] == 1 and len(shape) - i > whole.get(name, 0)
            if extent is not None and shape[i] != extent and not repeated:
                raise ValueError(
                    f"attention: {name} has shape {list(shape)}, expected {['any' if n is None else n for n in expected[name]]}"
                )


def contiguous(shape):
    """Strides, in elements, of contiguous rows."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def layout_like(shape, strides):
    """The layout of a result [B, H, L, d]: rows of all heads together, as in [B, L, H, d], where those of the argument are; else
    contiguous.
    """
    batch, heads, length, width = shape
    if strides[1] < strides[2] and heads > 1 and length > 1:
        return shape, (max(length * heads * width, 1), max(width, 1), max(heads * width, 1), 1)
    return shape, contiguous(shape)


def _fill(tensor, kind, layout) -> None:
    shape, strides = layout
    tensor.type = kind
    tensor.rank = len(shape)
    tensor.shape[: len(shape)] = shape
    tensor.stride[: len(shape)] = strides


class Frame:
    """A plan and its arguments. ``inputs``: pairs (name, layout) of the tensors that are present, in the order of INPUTS.

    ``hosts``: names of the arrays of HOST that are present; ``sequences``: those of a packed batch, or 0. ``forward_only``: no backward.
    ``statistics``: the backward takes gradients by variance and log-determinant too.
    """

    def __init__(self, context, options, kind, inputs, hosts, sequences, forward_only, longest=0, statistics=False):
        layouts = dict(inputs)
        self.context, self.kind, self.layouts, self.options = context, kind, layouts, options
        query, key, value = layouts["query"][0], layouts["key"][0], layouts["value"][0]
        self.cme = options.normalisation == 1
        desc = s.AttentionDesc(struct_size=ctypes.sizeof(s.AttentionDesc), type=kind)
        for name in (
            "structure",
            "causal",
            "normalisation",
            "kernel",
            "scale",
            "sigma",
            "ridge",
            "ridge_power",
            "bound",
            "unit",
            "window",
            "hierarchy_block",
            "partition",
            "coarse_query",
            "interpolation",
            "dropout",
            "directed_kernel",
            "grid_columns",
            "solver",
            "solver_tolerance",
            *COMPRESSED,
        ):
            setattr(desc, name, getattr(options, name))
        desc.batch, desc.heads, desc.query_length, desc.head_dim = query
        desc.key_heads, desc.key_length, desc.value_dim = key[1], key[2], value[3]
        desc.max_sequences, desc.longest, desc.forward_only = sequences, longest, forward_only
        desc.has_bias = "attention_bias" in layouts
        desc.has_mask = "mask" in layouts or "query_mask" in layouts
        desc.has_segments = "segments" in hosts
        desc.has_log_kernel = "log_kernel" in layouts
        desc.has_forget = "forget" in layouts
        desc.has_hierarchical_bias = "hierarchical_bias" in layouts
        desc.has_ridge = "ridge" in layouts
        desc.has_sigma = "sigma" in layouts
        desc.has_noise = "noise" in layouts
        desc.has_chunk_starts = "chunk_starts" in layouts
        desc.has_dvariance = desc.has_dquadratic = statistics
        desc.has_dlog_determinant = statistics and options.solver == 0
        if "contextual" in layouts:
            desc.contextual_positions = layouts["contextual"][0][1]
        self.desc, self.plan = desc, c_void_p()
        context.check(lib.attention_plan_create(context.handle, byref(desc), byref(self.plan)))
        sizes = lib.attention_plan_sizes(self.plan)
        self.saved_bytes, self.forward_bytes, self.backward_bytes = sizes.saved, sizes.forward_workspace, sizes.backward_workspace
        self.handle, self.plan_address = context.handle.value, self.plan.value
        self._fill_arguments(query, value, sequences)
        self._fill_gradients()

    def _fill_arguments(self, query, value, sequences) -> None:
        self.args = args = s.AttentionArgs(struct_size=ctypes.sizeof(s.AttentionArgs), sequences=sequences)
        self.address = ctypes.addressof(args)
        for name, layout in self.layouts.items():
            _fill(getattr(args, name), lib.U8 if name in BYTES else self.kind, layout)
        self.tensors = [getattr(args, name) for name in self.layouts]
        self.out_shape = (*query[:3], value[3])
        self.row_shape = query[:3]
        self.out, self.rows = args.out, args.variance if self.cme else args.log_sum_exp
        self.out_strides = layout_like(self.out_shape, self.layouts["query"][1])[1]
        _fill(self.out, self.kind, (self.out_shape, self.out_strides))
        _fill(self.rows, self.kind, (self.row_shape, contiguous(self.row_shape)))
        self.dout = args.dout
        self.dout_strides = None
        if self.options.query_offset is not None:
            args.has_query_offset, args.query_offset = True, self.options.query_offset
        self.stream = args.dropout
        self.stream.layer_purpose = ATTENTION_PURPOSE
        if self.cme:
            of_rows, of_values = [(shape, contiguous(shape)) for shape in (self.row_shape, self.out_shape)]
            layouts = {"log_determinant": of_rows, "quadratic": of_values, "dvariance": of_rows, "dlog_determinant": of_rows}
            for name, layout in {**layouts, "dquadratic": of_values}.items():
                tensor = getattr(args, name)
                _fill(tensor, self.kind, layout)
                tensor.type = 0
            self.report = s.AttentionReport()
            args.report = ctypes.addressof(self.report)

    def _fill_gradients(self) -> None:
        self.gradients, self.gradient_layouts, self.requested = {}, {}, []
        for name in GRADIENTS:
            if name in self.layouts:
                shape, strides = self.layouts[name]
                layout = layout_like(shape, strides) if name in ("query", "key", "value") else (shape, contiguous(shape))
                gradient = getattr(self.args, "d" + name)
                _fill(gradient, self.kind, layout)
                gradient.type = 0
                self.gradients[name], self.gradient_layouts[name] = gradient, layout
        self.of_three = [self.gradients[name] for name in _THREE]

    def _set_inputs(self, addresses, hosts, seed) -> None:
        for tensor, address in zip(self.tensors, addresses):
            tensor.data = address
        args = self.args
        for name, address in hosts:
            setattr(args, name, address)
        if seed is not None:
            self.stream.seed = seed

    def forward(self, addresses, hosts, seed, out, rows, saved, determinant=0, quadratic=0) -> None:
        """Addresses of the inputs in the frame's order, of pairs (name, address) of HOST, of the results; 0 for what is absent."""
        self._set_inputs(addresses, hosts, seed)
        args = self.args
        self.out.data = out
        self.rows.data = rows
        self.rows.type = self.kind if rows else 0
        if self.cme:
            args.log_determinant.data = determinant
            args.log_determinant.type = self.kind if determinant else 0
            args.quadratic.data = quadratic
            args.quadratic.type = self.kind if quadratic else 0
        args.saved = saved
        memory = self.context.workspace(self.forward_bytes)
        args.workspace = memory.address
        status = lib.attention_forward(self.handle, self.plan_address, self.address)
        if status:
            self.context.complete(status, lib.attention_forward, self.handle, self.plan_address, self.address)

    def backward(self, addresses, hosts, seed, out, rows, saved, dout, dout_strides, gradients, statistics=()) -> None:
        """gradients: pairs (name, address) of results in the frame's gradient_layouts; the others are not computed. statistics: addresses
        of the gradients by those of STATISTICS, or 0, for a frame that takes them.
        """
        self._set_inputs(addresses, hosts, seed)
        args = self.args
        self.out.data = out
        self.rows.data = rows
        self.rows.type = 0 if self.cme else self.kind
        self.dout.data = dout
        if dout_strides != self.dout_strides:
            _fill(self.dout, self.kind, (self.out_shape, dout_strides))
            self.dout_strides = dout_strides
        for name, address in zip(STATISTICS, statistics):
            tensor = getattr(args, "d" + name)
            tensor.data = address
            tensor.type = self.kind if address else 0
        self._request([name for name, _ in gradients])
        for name, address in gradients:
            self.gradients[name].data = address
        args.saved = saved
        memory = self.context.workspace(self.backward_bytes)
        args.workspace = memory.address
        status = lib.attention_backward(self.handle, self.plan_address, self.address)
        if status:
            self.context.complete(status, lib.attention_backward, self.handle, self.plan_address, self.address)

    def sigma_gradient(self) -> float:
        """d/dsigma of kernel rbf with softmax, after a backward that computed the gradients of query and key."""
        number, args = ctypes.c_double(), self.args
        tensors = [byref(x) for x in (args.query, args.dquery, args.key, args.dkey)]
        self.context.check(lib.attention_sigma_gradient(self.handle, self.options.sigma, *tensors, byref(number)))
        return number.value

    def forward_of_three(self, query, key, value, seed, out, rows, saved) -> None:
        """forward() with rows of a frame whose inputs are query, key and value alone, in fewer steps."""
        first, second, third = self.tensors
        first.data, second.data, third.data = query, key, value
        self.out.data, self.rows.data, self.rows.type = out, rows, self.kind
        args = self.args
        self.stream.seed, args.saved = seed, saved
        args.workspace = self.context.workspace(self.forward_bytes).address if self.forward_bytes else 0
        status = lib.attention_forward(self.handle, self.plan_address, self.address)
        if status:
            self.context.complete(status, lib.attention_forward, self.handle, self.plan_address, self.address)

    def backward_of_three(self, query, key, value, seed, out, rows, saved, dout, dout_strides, dquery, dkey, dvalue) -> None:
        """backward() of the same, with all three gradients."""
        first, second, third = self.tensors
        first.data, second.data, third.data = query, key, value
        self.out.data, self.rows.data, self.rows.type, self.dout.data = out, rows, self.kind, dout
        if dout_strides != self.dout_strides:
            _fill(self.dout, self.kind, (self.out_shape, dout_strides))
            self.dout_strides = dout_strides
        if self.requested != _THREE:
            self._request(_THREE)
        of_query, of_key, of_value = self.of_three
        of_query.data, of_key.data, of_value.data = dquery, dkey, dvalue
        args = self.args
        self.stream.seed, args.saved = seed, saved
        args.workspace = self.context.workspace(self.backward_bytes).address if self.backward_bytes else 0
        status = lib.attention_backward(self.handle, self.plan_address, self.address)
        if status:
            self.context.complete(status, lib.attention_backward, self.handle, self.plan_address, self.address)

    def _request(self, names) -> None:
        """Which gradients the next backward computes."""
        if names != self.requested:
            for name, gradient in self.gradients.items():
                gradient.type = self.kind if name in names else 0
            self.requested = names

    def close(self) -> None:
        """Destroys the plan, once; called before the context is destroyed."""
        if getattr(self, "plan", None) and self.context.handle and self.context.process == os.getpid():
            lib.attention_plan_destroy(self.context.handle, byref(self.plan))

    __del__ = close
