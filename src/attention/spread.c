/* spread.c - see spread.h: the division of rows, checks, and the way to compute. */
#include "attention/spread.h"

#include <inttypes.h>
#include <stdio.h>

#include "attention/layer.h"
#include "attention/spread_rows.h"
#include "backend/kernel_table.h"
#include "core/cancel.h"

#define MOST_WHOLE_ROWS 8192 /* sequences of fewer rows may be computed by every process */
#define PARTS 8              /* of a process: unequal lengths cost at most an eighth */

/* Why an algorithm that cannot spread rows was chosen. */
static void explain(const hark_attention_plan *plan, char *why, size_t size) {
  const hark_attention_desc *desc = &plan->desc;
  if (desc->structure == HARK_STRUCTURE_DENSE)
    (void)snprintf(why, size, "structure is dense");
  else if (desc->normalisation != HARK_NORMALISATION_SOFTMAX)
    (void)snprintf(why, size, "normalisation is not softmax");
  else if (desc->grid_columns > 0)
    (void)snprintf(why, size, "grid_columns is %" PRId64, desc->grid_columns);
  else if (desc->type != HARK_F32)
    (void)snprintf(why, size, "type is not f32");
  else if (desc->structure == HARK_STRUCTURE_HIERARCHICAL && desc->interpolation != HARK_INTERPOLATION_CONSTANT)
    (void)snprintf(why, size, "interpolation is not constant");
  else
    (void)snprintf(why, size, "algorithm %s on backend %s", plan->algorithm->name, plan->backend->name);
}

/* 0 if the plan's algorithm has no way of its own; `why` names the reason. */
static int64_t own_unit(const hark_attention_plan *plan, int64_t total, char *why, size_t size) {
  explain(plan, why, size);
  return plan->algorithm->spread_unit == NULL ? 0 : plan->algorithm->spread_unit(&plan->desc, total, why, size);
}

hark_status hark_attention_spread_unit(hark_context *context, const hark_attention_plan *plan, int64_t total, int64_t *unit) {
  char why[128];
  *unit = own_unit(plan, total, why, sizeof why);
  if (*unit > 0) return plan->algorithm->spread != NULL ? HARK_OK : hark_spread_rows_check(context, plan);
  *unit = 1;
  if (total < MOST_WHOLE_ROWS) return hark_spread_rows_check(context, plan);
  return hark_fail(context, HARK_UNSUPPORTED, "attention: %" PRId64 " rows cannot be spread over processes: %s", total, why);
}

int64_t hark_attention_spread_grain(int64_t unit, int64_t total, int size) {
  while (unit < total && total / (2 * unit) / size >= PARTS) unit *= 2;
  while (unit < total && total % (2 * unit * size) == 0) unit *= 2; /* all are equal */
  return unit;
}

int64_t hark_attention_spread_full_grain(int64_t unit, int64_t total, int size) {
  int64_t grain = hark_attention_spread_grain(unit, total, size);
  while (grain > unit && hark_ceil_div(total, grain) < size) grain /= 2;
  return hark_ceil_div(total, grain) < size ? 0 : grain;
}

void hark_attention_spread_divide(int64_t unit, int64_t total, int size, int64_t *first) {
  const int64_t grain = hark_attention_spread_grain(unit, total, size);
  for (int rank = 0; rank < size; rank++) first[rank] = hark_group_share_units(total, grain, rank, size).first;
  first[size] = total;
}

static hark_status check_division(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                  const hark_spread *spread) {
  const int size = hark_group_size(spread->group), rank = hark_group_rank(spread->group);
  const int64_t *first = spread->first, rows = first[rank + 1] - first[rank];
  int64_t unit;
  HARK_TRY(hark_attention_spread_unit(context, plan, spread->total, &unit));
  if (first[0] != 0 || first[size] != spread->total)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: rows %" PRId64 " to %" PRId64 " are spread, expected 0 to %" PRId64,
                     first[0], first[size], spread->total);
  for (int r = 0; r < size; r++)
    if (first[r] > first[r + 1] || (first[r] != spread->total && first[r] % unit != 0))
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: the rows of rank %d begin at %" PRId64 ", expected multiples of %" PRId64 " that do not decrease", r,
                       first[r], unit);
  if (args->query.rank != 4 || args->key.rank != 4 || args->query.shape[2] != rows || args->key.shape[2] != rows)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "attention: query has %" PRId64 " rows and key %" PRId64 ", expected %" PRId64 " of rank %d", args->query.shape[2],
                     args->key.shape[2], rows, rank);
  return HARK_OK;
}

static hark_status check_batch(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                               const hark_spread *spread) {
  const struct {
    const char *name;
    bool given;
  } refused[] = {{"key_lengths", args->key_lengths != NULL},
                 {"query_offsets", args->query_offsets != NULL},
                 {"key_offsets", args->key_offsets != NULL},
                 {"segments", args->segments != NULL},
                 {"query_offset", args->has_query_offset && args->query_offset != 0}};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (refused[i].given) return hark_fail(context, HARK_UNSUPPORTED, "attention: %s with rows spread over processes", refused[i].name);
  if (spread->total > plan->desc.longest || spread->total > plan->desc.query_length)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: %" PRId64 " rows are spread, expected at most the plan's %" PRId64,
                     spread->total, hark_min(plan->desc.longest, plan->desc.query_length));
  const int64_t farthest = hark_attention_farthest(&plan->desc, spread->total, spread->total, 0);
  const int64_t distances = plan->desc.has_log_kernel ? hark_kernel_distances(&plan->desc, args->log_kernel.shape[1]) : 0;
  if (plan->desc.has_log_kernel && distances <= farthest)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: log_kernel has %" PRId64 " distances, expected at least %" PRId64, distances,
                     farthest + 1);
  return HARK_OK;
}

/* The arguments of this process's rows, without workspace. */
static hark_status check(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *given, bool backward,
                         const hark_spread *spread, hark_attention_args *checked) {
  HARK_TRY(check_division(context, plan, given, spread));
  hark_attention_plan bare = *plan;
  bare.sizes = (hark_attention_sizes){0};
  HARK_TRY(hark_attention_check(context, &bare, given, backward, checked));
  return check_batch(context, plan, checked, spread);
}

/* ---- the algorithm's own way ---- */

typedef struct post {
  hark_group *group;
  hark_message *messages;
  bool given; /* memory: then no process fails before the exchanges, unless the caller ends the group */
} post;

static hark_status exchange(hark_context *context, void *user, const hark_attention_parcel *parcels, int count) {
  const post *to = user;
  for (int i = 0; i < count; i++) to->messages[i] = (hark_message){parcels[i].data, parcels[i].bytes, parcels[i].peer, parcels[i].sends};
  return hark_group_exchange(context, to->group, to->messages, count);
}

static hark_status agree(hark_context *context, void *user, hark_status status) {
  const post *to = user;
  return to->given ? status : hark_group_agree(context, to->group, status);
}

/* What the messages and the sequences of a call need: the first part of its memory. */
typedef struct lists {
  size_t messages, bytes;
} lists;

static lists lists_of(const hark_attention_args *args, const hark_spread *spread) {
  const size_t messages = hark_align_up(2 * (size_t)hark_group_size(spread->group) * sizeof(hark_message));
  return (lists){messages, messages + hark_align_up((size_t)args->query.shape[0] * sizeof(hark_attention_sequence))};
}

static hark_attention_peers peers_of(const hark_spread *spread, post *to) {
  return (hark_attention_peers){.rank = hark_group_rank(spread->group),
                                .size = hark_group_size(spread->group),
                                .total = spread->total,
                                .first = spread->first,
                                .user = to,
                                .exchange = exchange,
                                .agree = agree};
}

/* One sequence per item, of the own rows. */
static hark_attention_call list_sequences(const hark_attention_plan *plan, const hark_attention_args *args,
                                          hark_attention_sequence *sequences) {
  const int64_t rows = args->query.shape[2], count = args->query.shape[0];
  for (int64_t item = 0; item < count; item++)
    sequences[item] = (hark_attention_sequence){.item = item, .query_count = rows, .key_count = rows};
  return (hark_attention_call){.plan = plan, .args = args, .sequences = sequences, .sequence_count = count};
}

static hark_status compute(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                           const hark_attention_peers *peers, hark_attention_sequence *sequences) {
  const hark_attention_call run = list_sequences(plan, args, sequences);
  hark_floating_point before;
  hark_backend_enter(context);
  hark_cancel_enter(context);
  hark_attention_hold(plan, backward, &before);
  hark_status status = hark_attention_clear(context, args, plan->desc.causal, backward);
  status = status != HARK_OK ? peers->agree(context, peers->user, status) : plan->algorithm->spread(context, &run, peers, backward);
  hark_floating_point_leave(&before);
  status = hark_cancel_leave(context, status);
  hark_backend_leave(context);
  return status;
}

static hark_status run_own(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                           const hark_spread *spread) {
  const lists sizes = lists_of(args, spread);
  void *memory = spread->memory;
  hark_status status = memory == NULL ? hark_allocate(context, sizes.bytes, &memory) : HARK_OK;
  if (status == HARK_OK) status = hark_group_reserve(context, spread->group, 4 * (int64_t)hark_group_size(spread->group));
  post to = {spread->group, memory, spread->memory != NULL};
  hark_attention_peers peers = peers_of(spread, &to);
  if (spread->memory != NULL) peers.memory = (char *)memory + sizes.bytes;
  if (status == HARK_OK)
    status = compute(context, plan, args, backward, &peers, (hark_attention_sequence *)(void *)((char *)memory + sizes.messages));
  else
    status = agree(context, &to, status);
  if (spread->memory == NULL) hark_release(context, memory, sizes.bytes);
  return status;
}

static hark_status own_bytes(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                             const hark_spread *spread, size_t *bytes) {
  const lists sizes = lists_of(args, spread);
  const hark_attention_peers peers = peers_of(spread, NULL);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, sizes.bytes, &memory));
  const hark_attention_call run = list_sequences(plan, args, memory);
  hark_status status = plan->algorithm->spread_bytes(context, &run, &peers, backward, bytes);
  if (status == HARK_OK) status = hark_size_add(context, *bytes, sizes.bytes, bytes);
  hark_release(context, memory, sizes.bytes);
  return status;
}

hark_status hark_attention_spread_bytes(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                        bool backward, const hark_spread *spread, size_t *bytes) {
  char why[128];
  const int64_t unit = own_unit(plan, spread->total, why, sizeof why);
  if (unit > 0 && plan->algorithm->spread != NULL) return own_bytes(context, plan, args, backward, spread, bytes);
  return hark_spread_rows_bytes(context, plan, args, backward, spread, unit > 0, unit, bytes);
}

static hark_status run(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *given, bool backward,
                       const hark_spread *spread) {
  hark_attention_args args;
  char why[128];
  const hark_status status = check(context, plan, given, backward, spread, &args);
  if (status != HARK_OK) return spread->memory != NULL ? status : hark_group_agree(context, spread->group, status);
  const int64_t unit = own_unit(plan, spread->total, why, sizeof why);
  if (unit > 0 && plan->algorithm->spread != NULL) return run_own(context, plan, &args, backward, spread);
  return hark_spread_rows(context, plan, &args, backward, spread, unit > 0, unit);
}

hark_status hark_attention_spread_forward(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                          const hark_spread *spread) {
  return run(context, plan, args, false, spread);
}

hark_status hark_attention_spread_backward(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                           const hark_spread *spread) {
  return run(context, plan, args, true, spread);
}
