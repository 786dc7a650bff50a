/* gradient_sum.c - see gradient_sum.h. */
#include "train/gradient_sum.h"

#include <hark/operators.h>

#include "io/machine.h"
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

hark_sum_blocks hark_sum_blocks_of(hark_share share, int *most) {
  hark_sum_blocks blocks = {0};
  *most = 0;
  for (int64_t part = share.first; part < share.first + share.count; part++) {
    *most = blocks.count > *most ? blocks.count : *most;
    hark_sum_blocks_push(&blocks, (hark_sum_block){part, 1});
    while (hark_sum_blocks_join(&blocks)) hark_sum_blocks_merge(&blocks);
  }
  return blocks;
}

hark_status hark_gradient_sum_create(hark_context *context, const hark_tensor *gradients, int64_t parts, bool memory,
                                     hark_gradient_sum *out) {
  const int size = hark_group_size(context->group);
  int needed = 0;
  *out = (hark_gradient_sum){.gradients = *gradients, .parts = parts};
  const int ranks = hark_group_size(context->sequence), needed_parts = size / ranks;
  if (parts < size)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "train.accumulate is %lld: the micro-batches of a step are shared by %d processes%s, expected at least %d, and "
                     "train.batch smaller for it",
                     (long long)(parts / ranks), size, ranks > 1 ? " in groups of run.sequence_ranks" : "", needed_parts);
  out->share = hark_group_share(parts, hark_group_rank(context->group), size);
  (void)hark_sum_blocks_of(out->share, &needed);
  for (; out->saved_count < needed; out->saved_count++)
    HARK_TRY(hark_tensor_make(context, memory, gradients->type, 1, gradients->shape, &out->saved[out->saved_count]));
  if (size == 1) return HARK_OK;
  return hark_gradient_exchange_create(context, out, memory, &out->exchange, &out->exchange_bytes);
}

void hark_gradient_sum_destroy(hark_context *context, hark_gradient_sum *sum) {
  hark_gradient_exchange_destroy(context, &sum->exchange);
  for (int i = 0; i < HARK_GRADIENT_SUM_DEPTH; i++) hark_tensor_destroy(context, &sum->saved[i]);
}

static size_t bytes_of(const hark_tensor *tensor) { return (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type); }

size_t hark_gradient_sum_bytes(const hark_gradient_sum *sum) {
  return (sum->saved_count > 0 ? (size_t)sum->saved_count * bytes_of(&sum->gradients) : 0) + sum->exchange_bytes;
}

void hark_gradient_sum_begin(hark_gradient_sum *sum) {
  sum->blocks.count = 0;
  sum->next = sum->share.first;
  if (sum->exchange != NULL) hark_gradient_exchange_begin(sum->exchange);
}

static bool is_last(const hark_gradient_sum *sum) { return sum->next + 1 == sum->share.first + sum->share.count; }

hark_status hark_gradient_sum_open(hark_context *context, hark_gradient_sum *sum) {
  const int waiting = sum->blocks.count;
  if (waiting > sum->saved_count) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: more micro-batches than train.accumulate");
  if (waiting > 0) HARK_TRY(hark_backend_copy(context, sum->saved[waiting - 1].data, sum->gradients.data, bytes_of(&sum->gradients)));
  HARK_TRY(hark_tensor_zero(context, &sum->gradients));
  if (sum->exchange != NULL && is_last(sum)) hark_gradient_exchange_arm(sum->exchange);
  return HARK_OK;
}

/* Adds the subtree before the last one to it. */
static hark_status join(hark_context *context, hark_gradient_sum *sum) {
  const hark_call call = {
      .op = &hark_op_add, .input_count = 2, .inputs = {sum->saved[sum->blocks.count - 2], sum->gradients}, .outputs = {sum->gradients}};
  HARK_TRY(hark_operator_forward(context, &call));
  hark_sum_blocks_merge(&sum->blocks);
  return HARK_OK;
}

/* The exchange joins the last part with those before it, as far as it has not done so yet. */
static void close_last(hark_gradient_sum *sum) {
  while (hark_sum_blocks_join(&sum->blocks)) hark_sum_blocks_merge(&sum->blocks);
  hark_gradient_exchange_close(sum->exchange);
}

hark_status hark_gradient_sum_close(hark_context *context, hark_gradient_sum *sum) {
  const bool exchanged = sum->exchange != NULL && is_last(sum);
  hark_sum_blocks_push(&sum->blocks, (hark_sum_block){sum->next++, 1});
  if (exchanged) close_last(sum);
  while (hark_sum_blocks_join(&sum->blocks)) HARK_TRY(join(context, sum));
  return HARK_OK;
}

hark_status hark_gradient_sum_finish(hark_context *context, hark_gradient_sum *sum) {
  const double begin = hark_machine_seconds();
  if (sum->exchange != NULL) {
    HARK_TRY(hark_gradient_exchange_finish(sum->exchange));
    sum->blocks = (hark_sum_blocks){.list = {{0, sum->parts}}, .count = 1};
  }
  while (sum->blocks.count > 1) HARK_TRY(join(context, sum));
  sum->seconds += hark_machine_seconds() - begin;
  return HARK_OK;
}

/* ---- what the tape reports ---- */

/* Gradients are views into the flat ones. */
static void watch_leaf(void *user, const hark_tensor *gradient, int32_t node) {
  const hark_gradient_sum *const sum = user;
  const float *const all = sum->gradients.data, *const own = gradient->data;
  if (own < all || own >= all + sum->gradients.shape[0]) return;
  hark_gradient_exchange_leaf(sum->exchange, own - all, hark_tensor_count(gradient), node);
}

static hark_status watch_nodes(void *user, int32_t node) {
  return hark_gradient_exchange_advance(((const hark_gradient_sum *)user)->exchange, node);
}

hark_tape_watch hark_gradient_sum_watch(hark_gradient_sum *sum, const hark_parameters *parameters) {
  if (sum->exchange == NULL) return (hark_tape_watch){.user = NULL};
  for (int32_t i = 0; i < parameters->count; i++)
    hark_gradient_exchange_leaf(sum->exchange, parameters->list[i].first, parameters->list[i].count, i);
  return (hark_tape_watch){sum, watch_leaf, watch_nodes};
}
