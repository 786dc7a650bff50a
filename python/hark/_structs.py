"""The structs of hark's public headers as ctypes, field for field.

``tests/test_structs.py`` compares every size and offset with the table of ``tests/unit/test_abi.c``. Structs that begin with
``struct_size`` may grow in the library; then this copy, being smaller, is still accepted (docs/abi.md).
"""

import ctypes as c

MAX_RANK = 8
MAX_INPUTS, MAX_OUTPUTS, MAX_SAVED = 16, 4, 4

i64, size, f64, pointer = c.c_int64, c.c_size_t, c.c_double, c.c_void_p


class Tensor(c.Structure):
    _fields_ = [
        ("data", pointer),
        ("type", c.c_int),
        ("rank", c.c_int),
        ("shape", i64 * MAX_RANK),
        ("stride", i64 * MAX_RANK),
        ("owned_bytes", size),
    ]


class ContextOptions(c.Structure):
    _fields_ = [
        ("struct_size", size),
        ("allocator", pointer),
        ("parallel", pointer),
        ("threads", c.c_int),
        ("backend", c.c_char_p),
        ("instruction_set", c.c_char_p),
        ("seed", c.c_uint64),
        ("deterministic", c.c_bool),
        ("logger", pointer),
        ("logger_user", pointer),
        ("cancel", pointer),
        ("cancel_user", pointer),
    ]


class RandomStream(c.Structure):
    _fields_ = [("seed", c.c_uint64), ("first_index", c.c_uint64), ("micro_step", c.c_uint32), ("layer_purpose", c.c_uint32)]


class AttentionDesc(c.Structure):
    _fields_ = [
        ("struct_size", size),
        ("type", c.c_int),
        ("structure", c.c_int),
        ("kernel", c.c_int),
        ("normalisation", c.c_int),
        ("batch", i64),
        ("heads", i64),
        ("key_heads", i64),
        ("query_length", i64),
        ("key_length", i64),
        ("head_dim", i64),
        ("value_dim", i64),
        ("max_sequences", i64),
        ("causal", c.c_bool),
        ("scale", f64),
        ("sigma", f64),
        ("window", i64),
        ("dropout", f64),
        ("has_bias", c.c_bool),
        ("has_mask", c.c_bool),
        ("has_segments", c.c_bool),
        ("has_log_kernel", c.c_bool),
        ("has_forget", c.c_bool),
        ("forward_only", c.c_bool),
        ("hierarchy_block", i64),
        ("partition", c.c_int),
        ("coarse_query", c.c_int),
        ("interpolation", c.c_int),
        ("has_hierarchical_bias", c.c_bool),
        ("longest", i64),
        ("ridge", f64),
        ("ridge_power", f64),
        ("bound", f64),
        ("unit", c.c_bool),
        ("has_ridge", c.c_bool),
        ("has_sigma", c.c_bool),
        ("product_type", i64),
        ("contextual_positions", i64),
        ("directed_kernel", i64),
        ("grid_columns", i64),
        ("has_dvariance", i64),
        ("has_dlog_determinant", i64),
        ("has_noise", i64),
        ("has_dquadratic", i64),
        ("solver", i64),
        ("solver_tolerance", f64),
        ("solver_iterations", i64),
        ("chunk", i64),
        ("chunk_slots", i64),
        ("selected_slots", i64),
        ("kept_chunks", i64),
        ("global_slots", i64),
        ("has_chunk_starts", i64),
    ]


class AttentionSizes(c.Structure):
    _fields_ = [("saved", size), ("forward_workspace", size), ("backward_workspace", size)]


class AttentionReport(c.Structure):
    _fields_ = [("pivots", i64), ("item", i64), ("head", i64), ("row", i64), ("amount", f64), ("iterations", i64)]


class AttentionArgs(c.Structure):
    _fields_ = [
        ("struct_size", size),
        ("query", Tensor),
        ("key", Tensor),
        ("value", Tensor),
        ("out", Tensor),
        ("log_sum_exp", Tensor),
        ("key_lengths", pointer),
        ("query_offsets", pointer),
        ("key_offsets", pointer),
        ("sequences", i64),
        ("segments", pointer),
        ("has_query_offset", c.c_bool),
        ("query_offset", i64),
        ("mask", Tensor),
        ("attention_bias", Tensor),
        ("log_kernel", Tensor),
        ("forget", Tensor),
        ("dropout", RandomStream),
        ("dout", Tensor),
        ("dquery", Tensor),
        ("dkey", Tensor),
        ("dvalue", Tensor),
        ("dattention_bias", Tensor),
        ("dlog_kernel", Tensor),
        ("dforget", Tensor),
        ("accumulate", c.c_uint),
        ("saved", pointer),
        ("workspace", pointer),
        ("hierarchical_bias", Tensor),
        ("query_mask", Tensor),
        ("dhierarchical_bias", Tensor),
        ("ridge", Tensor),
        ("sigma", Tensor),
        ("variance", Tensor),
        ("dridge", Tensor),
        ("dsigma", Tensor),
        ("report", pointer),
        ("contextual", Tensor),
        ("dcontextual", Tensor),
        ("dvariance", Tensor),
        ("log_determinant", Tensor),
        ("dlog_determinant", Tensor),
        ("noise", Tensor),
        ("dnoise", Tensor),
        ("quadratic", Tensor),
        ("dquadratic", Tensor),
        ("chunk_starts", Tensor),
    ]


class Call(c.Structure):
    _fields_ = [
        ("op", pointer),
        ("attributes", pointer),
        ("input_count", c.c_int),
        ("inputs", Tensor * MAX_INPUTS),
        ("outputs", Tensor * MAX_OUTPUTS),
        ("saved", Tensor * MAX_SAVED),
        ("output_gradients", Tensor * MAX_OUTPUTS),
        ("input_gradients", Tensor * MAX_INPUTS),
        ("accumulate", c.c_uint),
        ("workspace", pointer),
        ("workspace_bytes", size),
    ]


class Inferred(c.Structure):
    _fields_ = [
        ("outputs", Tensor * MAX_OUTPUTS),
        ("saved", Tensor * MAX_SAVED),
        ("forward_workspace", size),
        ("backward_workspace", size),
    ]


Infer = c.CFUNCTYPE(c.c_int, pointer, pointer, c.POINTER(Tensor), c.c_int, c.POINTER(Inferred))


class Operator(c.Structure):
    _fields_ = [
        ("name", c.c_char_p),
        ("formula", c.c_char_p),
        ("attributes_size", size),
        ("input_minimum", c.c_int),
        ("input_maximum", c.c_int),
        ("output_count", c.c_int),
        ("differentiable", c.c_uint),
        ("backward_inputs", c.c_uint),
        ("backward_outputs", c.c_uint),
        ("in_place", c.c_uint),
        ("gradient_in_place", c.c_uint),
        ("gradient_passes", c.c_uint),
        ("updates", c.c_uint),
        ("infer", Infer),
        ("forward", pointer),
        ("backward", pointer),
        ("operations", pointer),
        ("terms", pointer),
        ("samples", pointer),
        ("sample_count", c.c_int),
    ]


class Attribute(c.Structure):
    _fields_ = [("name", c.c_char_p), ("kind", c.c_int), ("offset", size), ("count", i64), ("usual", f64), ("words", c.c_char_p)]


BY_NAME = {
    "hark_attribute": Attribute,
    "hark_tensor": Tensor,
    "hark_context_options": ContextOptions,
    "hark_random_stream": RandomStream,
    "hark_attention_desc": AttentionDesc,
    "hark_attention_sizes": AttentionSizes,
    "hark_attention_report": AttentionReport,
    "hark_attention_args": AttentionArgs,
    "hark_call": Call,
    "hark_inferred": Inferred,
    "hark_operator": Operator,
}
