/* tape_internal.h - the records of a tape: storages, values, nodes.
 *
 *   value ----> storage (counted)          counts its value if held, every node that saves it, every gradient in it
 *     ^            ^
 *     |            |
 *   node: operator, attributes, inputs, outputs, saved storages   in the order of application; the backward visits it from the end
 */
#ifndef HARK_AUTOGRAD_TAPE_INTERNAL_H
#define HARK_AUTOGRAD_TAPE_INTERNAL_H

#include <hark/tape.h>

#include "autograd/pool.h"
#include "autograd/rows.h"
#include "autograd/watch.h"

typedef struct tape_storage {
  hark_pool_memory memory;
  int32_t references;
} tape_storage;

typedef struct tape_value {
  hark_tensor tensor;
  hark_tensor gradient;     /* of a leaf: the caller's; otherwise allocated for the first contribution */
  int32_t storage;          /* 0: a leaf */
  int32_t gradient_storage; /* 0: none yet, or a leaf */
  bool held;                /* the caller may still use it */
  bool needs_gradient;
} tape_value;

typedef struct tape_node {
  const hark_operator *op; /* NULL: a segment, or a part by rows */
  hark_tape_segment_build *build;
  hark_tape_rows_build *build_rows; /* NULL: a segment */
  int64_t rows, slice;              /* of build_rows */
  void *attributes;                 /* the tape's copy of the operator's attributes, or of the segment's closure */
  int32_t input_count, output_count;
  hark_value inputs[HARK_MAX_INPUTS];
  hark_value outputs[HARK_MAX_OUTPUTS];
  int32_t kept[HARK_MAX_INPUTS + HARK_MAX_OUTPUTS]; /* storages of inputs and outputs that the backward reads */
  hark_tensor saved[HARK_MAX_SAVED];
  int32_t saved_storage[HARK_MAX_SAVED];
  size_t backward_workspace;
} tape_node;

/* Copied attributes are stored in chunks, so that they never move. */
typedef struct tape_chunk {
  struct tape_chunk *next;
  size_t used, capacity; /* bytes after the header */
} tape_chunk;

struct hark_tape {
  hark_context *context;
  hark_pool memory, shapes;
  hark_pool *pool; /* the current one */
  bool recording;
  hark_status failure;  /* of the calls in formulas (formula.c), since the last reset */
  hark_value first_own; /* values below it are inputs of the segment being built and cannot be released */
  bool rebuilding;      /* a segment is built again: its outputs are not needed (rows.c) */

  tape_storage *storages;
  int32_t storage_count, storage_capacity;
  tape_value *values;
  int32_t value_count, value_capacity;
  tape_node *nodes;
  int32_t node_count, node_capacity;
  tape_chunk *chunks;
  double operations;
  hark_tape_watch watch;
  int32_t inside; /* parts that the backward builds again, one in another */
  int32_t done;   /* nodes from here on are done, where inside is 0 */
  /* Of the operator that is being applied. Between operators all tensors are absent: clearing only the filled ones is much cheaper. */
  bool applying;
  hark_call call;
  hark_inferred inferred;
};

HARK_MUST_CHECK hark_status hark_tape_storage_take(hark_tape *tape, size_t bytes, int32_t *out);
void hark_tape_storage_hold(hark_tape *tape, int32_t storage);
void hark_tape_storage_drop(hark_tape *tape, int32_t storage);
static inline void *tape_storage_memory(const hark_tape *tape, int32_t storage) { return tape->storages[storage].memory.memory; }

HARK_MUST_CHECK hark_status hark_tape_value_new(hark_tape *tape, const tape_value *value, hark_value *out);
static inline tape_value *tape_value_at(const hark_tape *tape, hark_value value) { return &tape->values[value]; }
static inline size_t tape_tensor_bytes(const hark_tensor *tensor) {
  return (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type);
}

/* Gradients of numbers in bf16 are f32. */
static inline hark_tensor tape_gradient_like(const hark_tensor *tensor) {
  hark_tensor gradient = *tensor;
  if (gradient.type == HARK_BF16) gradient.type = HARK_F32;
  return gradient;
}

/* Copies plain data into the tape until the next reset; *out is NULL for 0 bytes. */
HARK_MUST_CHECK hark_status hark_tape_copy_bytes(hark_tape *tape, const void *data, size_t bytes, void **out);
HARK_MUST_CHECK hark_status hark_tape_node_add(hark_tape *tape, const tape_node *node);

/* gradient += extra */
HARK_MUST_CHECK hark_status hark_tape_add(hark_tape *tape, const hark_tensor *gradient, const hark_tensor *extra);
void hark_tape_gradient_drop(hark_tape *tape, hark_value number);
/* Makes the memory of an existing gradient private to the value. */
HARK_MUST_CHECK hark_status hark_tape_gradient_own(hark_tape *tape, hark_value number);
void hark_tape_gradient_set(hark_tape *tape, hark_value number, int32_t storage);

/* The backward of a node with build_rows (rows.c). */
HARK_MUST_CHECK hark_status hark_tape_rows_backward(hark_tape *tape, const tape_node *node);

/* Runs the nodes from `first` to the end of the list backwards and forgets them. */
HARK_MUST_CHECK hark_status hark_tape_backward_nodes(hark_tape *tape, int32_t first);

/* Releases everything that a node keeps. */
void hark_tape_node_drop(hark_tape *tape, tape_node *node);

#endif
