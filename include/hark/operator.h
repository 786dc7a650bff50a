/* operator.h - the record of an operator: everything that the tape, the tests, the benchmarks and the documentation need to know about it.
 *
 * One const record per operator. The built-in ones are listed in operators.h; a program may write its own and pass it to the tape.
 * A record's forward and backward are its portable definition on host memory, for both f32 and f64; a backend may have a faster kernel
 * for it, which is looked up by the record's name. All tensors of a call are contiguous unless the record says otherwise.
 */
#ifndef HARK_OPERATOR_H
#define HARK_OPERATOR_H

#include "random.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The maximum numbers of tensors of a call. */
#define HARK_MAX_INPUTS 16
#define HARK_MAX_OUTPUTS 4
#define HARK_MAX_SAVED 4

/* The record itself, below. */
typedef struct hark_operator hark_operator;

/* One execution of an operator. Absent tensors have type HARK_NONE.
 *
 * Forward reads inputs and writes outputs and saved. Backward reads saved, those inputs and outputs that the record names, and
 * output_gradients (absent: that gradient is zero), and writes every input_gradients[i] that is present: it overwrites it, or adds to it
 * where bit i of `accumulate` is set. Nothing is allocated: scratch memory is `workspace`, 64-byte aligned, of the size that infer
 * requested.
 *
 * What a call writes (forward: outputs, saved, workspace, the inputs that the record updates; backward: input_gradients, workspace) shares
 * no memory with anything else that it reads or writes. There are two exceptions: output 0 may be exactly in the memory of an input of the
 * record's in_place, and a gradient exactly in the memory of its input of gradient_in_place. Inputs may be identical. All memory is
 * caller-owned. */
typedef struct hark_call {
  const hark_operator *op;
  const void *attributes;
  int input_count;
  hark_tensor inputs[HARK_MAX_INPUTS];
  hark_tensor outputs[HARK_MAX_OUTPUTS];
  hark_tensor saved[HARK_MAX_SAVED];
  hark_tensor output_gradients[HARK_MAX_OUTPUTS];
  hark_tensor input_gradients[HARK_MAX_INPUTS];
  unsigned accumulate;
  void *workspace;
  size_t workspace_bytes;
} hark_call;

/* What infer derives from attributes and input shapes (their data may be NULL and must not be read). */
typedef struct hark_inferred {
  hark_tensor outputs[HARK_MAX_OUTPUTS]; /* described with hark_tensor_describe() */
  hark_tensor saved[HARK_MAX_SAVED];     /* kept from forward to backward; absent when not needed */
  size_t forward_workspace;              /* bytes */
  size_t backward_workspace;
} hark_inferred;

/* How the suite makes an input of a sample: uniform numbers in [low, high], whole numbers in [low, high] for integer types; these with low
 * > high: offsets, non-decreasing whole numbers, the first one `high` and the last one `low`. */
typedef struct hark_sample_input {
  hark_type type; /* HARK_NONE: left out. HARK_F32 means the type under test, f32 or f64 */
  int rank;
  int64_t shape[HARK_MAX_RANK];
  double low, high;
} hark_sample_input;

/* A case that the conformance and gradient suites run; its name is unique in its record and can be given to the test program to run it
 * again. */
typedef struct hark_sample {
  const char *name;
  const void *attributes;
  hark_sample_input inputs[HARK_MAX_INPUTS];
} hark_sample;

/* A forward or a backward. When it fails it sets its message with hark_context_fail(). */
typedef hark_status hark_kernel(hark_context *context, const hark_call *call);

struct hark_operator {
  const char *name;       /* "layer_norm" */
  const char *formula;    /* one line of text for messages and documentation: "y = gain (x - mean) / sqrt(variance + epsilon) + bias" */
  size_t attributes_size; /* plain data, copied into the tape; 0: none */
  int input_minimum;      /* inputs that must be present; those after it may be absent */
  int input_maximum;
  int output_count;
  unsigned differentiable;    /* bit i: input i may get a gradient; zero: the operator has no backward */
  unsigned backward_inputs;   /* bit i: the backward reads input i */
  unsigned backward_outputs;  /* bit i: the backward reads output i */
  unsigned in_place;          /* bit i: output 0 may be in the memory of input i, element over element */
  unsigned gradient_in_place; /* bit i: the gradient of input i may be written over input i */
  unsigned gradient_passes;   /* bit i: the gradient of input i is that of output 0, unchanged: no backward runs for it */
  unsigned updates;           /* bit i: forward changes input i (optimisers); such a record has no backward */

  /* Checks attributes and shapes and describes the results. Errors: HARK_SHAPE_MISMATCH, HARK_INVALID_ARGUMENT with a message that names
   * the input and both shapes. */
  hark_status (*infer)(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out);
  hark_kernel *forward;
  hark_kernel *backward;

  /* Useful floating-point operations of a forward or backward on these shapes. */
  double (*operations)(const void *attributes, const hark_tensor *inputs, int input_count, bool backward);
  /* Length of the longest sum that any result needs (forward and backward): the error bound of f32 grows with it. */
  int64_t (*terms)(const void *attributes, const hark_tensor *inputs, int input_count);

  const hark_sample *samples;
  int sample_count;
};

/* Runs a record on the context's backend: the backend's kernel for it if there is one, else the record's definition.
 * `call` must have the tensors that infer described. Errors: those of the kernel; HARK_INVALID_ARGUMENT for a call that lacks inputs,
 * output 0, attributes or data, for memory that must not be shared (hark_call), as far as addresses and strides show it, and for tensors of
 * built-in records that are not contiguous; HARK_UNSUPPORTED (no backward). */
HARK_API HARK_MUST_CHECK hark_status hark_operator_forward(hark_context *context, const hark_call *call);
HARK_API HARK_MUST_CHECK hark_status hark_operator_backward(hark_context *context, const hark_call *call);

/* The built-in records, in the order of the table in operators.h; *count is their number. */
HARK_API const hark_operator *const *hark_operators(int *count);
/* The built-in record of that name, or NULL. */
HARK_API const hark_operator *hark_operator_find(const char *name);

/* How one attribute is stored in the attributes of a record. */
typedef enum hark_attribute_kind {
  HARK_ATTRIBUTE_BOOL,        /* bool */
  HARK_ATTRIBUTE_INT,         /* int */
  HARK_ATTRIBUTE_I32,         /* int32_t */
  HARK_ATTRIBUTE_I64,         /* int64_t */
  HARK_ATTRIBUTE_F64,         /* double */
  HARK_ATTRIBUTE_ENUM,        /* an enumeration of the size of int: the place of a word in `words` */
  HARK_ATTRIBUTE_F64_ARRAY,   /* `count` doubles in the struct */
  HARK_ATTRIBUTE_STREAM,      /* hark_random_stream */
  HARK_ATTRIBUTE_TEXT,        /* const char *, borrowed */
  HARK_ATTRIBUTE_F64_LIST,    /* const double *, borrowed; how many follows from the shapes of the inputs */
  HARK_ATTRIBUTE_I32_LIST,    /* const int32_t *, borrowed; the next attribute is their number, int64_t */
  HARK_ATTRIBUTE_I64_LIST,    /* const int64_t *, borrowed; how many follows from the shapes of the inputs */
  HARK_ATTRIBUTE_DESC,        /* const hark_attention_desc *, borrowed */
  HARK_ATTRIBUTE_DESC_INSIDE, /* hark_attention_own */
  HARK_ATTRIBUTE_HANDLE       /* a pointer to an object of the library or of the caller, which may be NULL */
} hark_attribute_kind;

/* One attribute of a built-in record, for programs that call operators by name, such as bindings of other languages. */
typedef struct hark_attribute {
  const char *name; /* of the field: "epsilon" */
  hark_attribute_kind kind;
  size_t offset;     /* in the attributes */
  int64_t count;     /* F64_ARRAY; else 1 */
  double usual;      /* a value for callers that give none; 0 where there is no better one */
  const char *words; /* ENUM: "mean|max|first|last"; else NULL */
} hark_attribute;

/* The attributes of a built-in record, in the order of their offsets; *count is their number. NULL and 0 for a record without attributes
 * and for records that are not built in. Static. */
HARK_API const hark_attribute *hark_operator_attributes(const hark_operator *op, int *count);

#ifdef __cplusplus
}
#endif
#endif
