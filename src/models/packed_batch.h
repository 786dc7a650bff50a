/* packed_batch.h - room in the backend's memory for packed examples, sequences one behind the other as a pass reads them, and how a pass
 * begins.
 *
 *   hark_packed_batch_create      for as many examples and tokens as a pass will have at most
 *   hark_packed_batch_write       the numbers of a batch
 *   hark_packed_batch_begin       forward and input of a pass over it
 */
#ifndef HARK_MODELS_PACKED_BATCH_H
#define HARK_MODELS_PACKED_BATCH_H

#include "models/example_batch.h"
#include "models/network.h"

/* A tensor with its memory, or its description alone, of which only sizes are asked. Errors: those of hark_tensor_create(). */
HARK_MUST_CHECK hark_status hark_tensor_make(hark_context *context, bool memory, hark_type type, int rank, const int64_t *shape,
                                             hark_tensor *out);

/* The most that a pass has. */
typedef struct hark_packed_extents {
  int64_t examples, tokens;
  int64_t parts;    /* sequences of an example */
  int64_t features; /* of a real vector; 0: tokens are read */
} hark_packed_extents;

typedef struct hark_packed_batch {
  hark_packed_extents most;
  hark_tensor tokens;    /* i32 [1, tokens] */
  hark_tensor positions; /* i32 [tokens] */
  hark_tensor ranges;    /* i64 [examples, parts, 2] */
  hark_tensor vectors;   /* f32 [1, tokens, features] */
  int64_t *segments;     /* host, [tokens] */
  /* Of the pass that was begun last. */
  hark_packing packing;
  hark_tensor positions_now, ranges_now;
} hark_packed_batch;

/* Without `memory` it is described only: passes of shapes alone can begin. Errors: HARK_OUT_OF_MEMORY. Whatever it says, destroy takes
 * it. */
HARK_MUST_CHECK hark_status hark_packed_batch_create(hark_context *context, const hark_packed_extents *most, bool memory,
                                                     hark_packed_batch *out);
void hark_packed_batch_destroy(hark_context *context, hark_packed_batch *batch);

/* Bytes that it takes, or would take. */
size_t hark_packed_batch_bytes(const hark_packed_batch *batch);

/* Errors: HARK_INVALID_ARGUMENT where there is no room for all of it. */
HARK_MUST_CHECK hark_status hark_packed_batch_write(hark_context *context, hark_packed_batch *batch, const hark_example_batch *from);

/* Fills what is of the batch in *forward and *input; `extent` tells how many rows and tokens there are and how long the longest sequence
 * is. All of it lies in the batch until the next pass begins. */
HARK_MUST_CHECK hark_status hark_packed_batch_begin(hark_packed_batch *batch, const hark_example_batch *extent, hark_forward *forward,
                                                    hark_network_input *input);

#endif
