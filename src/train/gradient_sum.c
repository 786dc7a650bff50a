/* gradient_sum.c - see gradient_sum.h. */
#include "train/gradient_sum.h"

#include <hark/operators.h>
#include "models/packed_batch.h"

bool hark_sum_blocks_join(const hark_sum_blocks *blocks) {
  if (blocks->count < 2) return false;
  const hark_sum_block *left = &blocks->list[blocks->count - 2], *right = left + 1;
  return left->count == right->count && left->first % (2 * left->count) == 0;
}

void hark_sum_blocks_merge(hark_sum_blocks *blocks) {
  hark_sum_block *const left = &blocks->list[--blocks->count - 1];
  left->count += left[1].count;
}

void hark_sum_blocks_push(hark_sum_blocks *blocks, hark_sum_block block) { blocks->list[blocks->count++] = block; }

/* The largest number of subtrees that wait while a part is computed. */
static int most_waiting(int64_t first, int64_t count) {
  hark_sum_blocks blocks = {0};
  int most = 0;
  for (int64_t part = first; part < first + count; part++) {
    most = blocks.count > most ? blocks.count : most;
    hark_sum_blocks_push(&blocks, (hark_sum_block){part, 1});
    while (hark_sum_blocks_join(&blocks)) hark_sum_blocks_merge(&blocks);
  }
  return most;
}

hark_status hark_gradient_sum_create(hark_context *context, const hark_tensor *gradients, int64_t first, int64_t count, bool memory,
                                     hark_gradient_sum *out) {
  *out = (hark_gradient_sum){.gradients = *gradients};
  const int needed = most_waiting(first, count);
  for (; out->saved_count < needed; out->saved_count++)
    HARK_TRY(hark_tensor_make(context, memory, gradients->type, 1, gradients->shape, &out->saved[out->saved_count]));
  return HARK_OK;
}

void hark_gradient_sum_destroy(hark_context *context, hark_gradient_sum *sum) {
  for (int i = 0; i < HARK_GRADIENT_SUM_DEPTH; i++) hark_tensor_destroy(context, &sum->saved[i]);
}

static size_t bytes_of(const hark_tensor *tensor) { return (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type); }

size_t hark_gradient_sum_bytes(const hark_gradient_sum *sum) {
  return sum->saved_count > 0 ? (size_t)sum->saved_count * bytes_of(&sum->gradients) : 0;
}

void hark_gradient_sum_begin(hark_gradient_sum *sum, int64_t first) {
  sum->blocks.count = 0;
  sum->next = first;
}

hark_status hark_gradient_sum_open(hark_context *context, hark_gradient_sum *sum) {
  const int waiting = sum->blocks.count;
  if (waiting > sum->saved_count) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: more micro-batches than train.accumulate");
  if (waiting > 0) HARK_TRY(hark_backend_copy(context, sum->saved[waiting - 1].data, sum->gradients.data, bytes_of(&sum->gradients)));
  return hark_tensor_zero(context, &sum->gradients);
}

/* Adds the subtree before the last one to it. */
static hark_status join(hark_context *context, hark_gradient_sum *sum) {
  const hark_call call = {
      .op = &hark_op_add, .input_count = 2, .inputs = {sum->saved[sum->blocks.count - 2], sum->gradients}, .outputs = {sum->gradients}};
  HARK_TRY(hark_operator_forward(context, &call));
  hark_sum_blocks_merge(&sum->blocks);
  return HARK_OK;
}

hark_status hark_gradient_sum_close(hark_context *context, hark_gradient_sum *sum) {
  hark_sum_blocks_push(&sum->blocks, (hark_sum_block){sum->next++, 1});
  while (hark_sum_blocks_join(&sum->blocks)) HARK_TRY(join(context, sum));
  return HARK_OK;
}

hark_status hark_gradient_sum_finish(hark_context *context, hark_gradient_sum *sum) {
  while (sum->blocks.count > 1) HARK_TRY(join(context, sum));
  return HARK_OK;
}
