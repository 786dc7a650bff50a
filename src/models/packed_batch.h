/* packed_batch.h - the backend's memory for packed examples (sequences one after the other, as a pass reads them), and how a pass begins.
 *
 *   hark_packed_batch_create      for the most examples and tokens that a pass will have
 *   hark_packed_batch_write       the numbers of a batch
 *   hark_packed_batch_begin       forward and input of a pass over it
 */
#ifndef HARK_MODELS_PACKED_BATCH_H
#define HARK_MODELS_PACKED_BATCH_H

#include "models/example_batch.h"
#include "models/network.h"

/* A tensor with its memory, or only its description, for computing sizes. Errors: those of hark_tensor_create(). */
HARK_MUST_CHECK hark_status hark_tensor_make(hark_context *context, bool memory, hark_type type, int rank, const int64_t *shape,
                                             hark_tensor *out);

/* The most that one pass can have. */
typedef struct hark_packed_extents {
  int64_t examples, tokens;
  int64_t parts;     /* sequences of an example */
  int64_t features;  /* of a real vector; 0: the model reads tokens */
  int64_t responses; /* targets of a row of a table; 0: no tables */
  bool types;        /* the model has token types */
} hark_packed_extents;

typedef struct hark_packed_batch {
  hark_packed_extents most;
  hark_tensor tokens;    /* i32 [1, tokens] */
  hark_tensor positions; /* i32 [tokens] */
  hark_tensor ranges;    /* i64 [examples, parts, 2] */
  hark_tensor types;     /* i32 [1, tokens] */
  hark_tensor vectors;   /* f32 [1, tokens, features] */
  /* Of tables. */
  hark_tensor targets;                        /* f32 [tokens, responses] */
  hark_tensor context_offsets, query_offsets; /* i64 [examples + 1] */
  hark_network_tables tables;                 /* of the latest pass */
  hark_value asked;                           /* targets of the queries on its tape [T - C, responses] */
  int64_t *segments;                          /* host, [tokens] */
  /* Of the latest pass. */
  hark_packing packing;
  hark_tensor positions_now, ranges_now, types_now;
} hark_packed_batch;

/* Without `memory` the tensors are only described, for shape-only passes. Errors: HARK_OUT_OF_MEMORY; the batch is to be destroyed after a
 * failure too. */
HARK_MUST_CHECK hark_status hark_packed_batch_create(hark_context *context, const hark_packed_extents *most, bool memory,
                                                     hark_packed_batch *out);
void hark_packed_batch_destroy(hark_context *context, hark_packed_batch *batch);

/* Bytes of its memory, also where only described. */
size_t hark_packed_batch_bytes(const hark_packed_batch *batch);

/* Writes a batch. Errors: HARK_INVALID_ARGUMENT where it does not fit. */
HARK_MUST_CHECK hark_status hark_packed_batch_write(hark_context *context, hark_packed_batch *batch, const hark_example_batch *from);

/* Sets the members of *forward and *input that refer to the batch. `extent` gives the numbers of rows and tokens and the length of the
 * longest sequence. The members point into the batch and are valid until the next pass begins. */
HARK_MUST_CHECK hark_status hark_packed_batch_begin(hark_packed_batch *batch, const hark_example_batch *extent, hark_forward *forward,
                                                    hark_network_input *input);

#endif
