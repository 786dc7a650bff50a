/* engine_rows.c - see engine_rows.h. */
#include "train/engine_rows.h"

#include <inttypes.h>
#include <math.h>

#include "backend/backend.h"
#include "data/corpora/batches.h" /* HARK_TARGET_IGNORED */
#include "models/packed_batch.h"

#define RARE 1e-14 /* probability that a pass allocates memory for more masked tokens */

/* Whether the bound of the probability of at least k masked tokens is that small; k is above the mean. */
static bool is_rare(int64_t k, int64_t tokens, double fraction) {
  const double all = (double)tokens, masked = (double)k, shown = all - masked;
  const double of_shown = shown > 0 ? shown * log(shown / (all * (1 - fraction))) : 0;
  return masked * log(masked / (all * fraction)) + of_shown >= -log(RARE);
}

int64_t hark_engine_rows_masked(int64_t tokens, double fraction) {
  int64_t least = hark_max(1, (int64_t)ceil(fraction * (double)tokens)), most = tokens;
  while (least < most) {
    const int64_t middle = least + (most - least) / 2;
    if (is_rare(middle, tokens, fraction))
      most = middle;
    else
      least = middle + 1;
  }
  return hark_min(most, tokens);
}

hark_status hark_engine_rows_open(hark_context *context, int64_t tokens, bool memory, hark_engine_rows *out) {
  const int64_t most = hark_engine_rows_most(tokens);
  void *host = NULL;
  *out = (hark_engine_rows){.bytes = 2 * (size_t)most * sizeof *out->host};
  HARK_TRY(hark_tensor_make(context, memory, HARK_I32, 1, &most, &out->index));
  if (!memory) return HARK_OK;
  HARK_TRY(hark_allocate(context, out->bytes, &host));
  out->host = host;
  return HARK_OK;
}

void hark_engine_rows_close(hark_context *context, hark_engine_rows *rows) {
  hark_tensor_destroy(context, &rows->index);
  if (rows->host != NULL) hark_release(context, rows->host, rows->bytes);
  *rows = (hark_engine_rows){0};
}

void hark_engine_rows_assume(hark_engine_rows *rows, int64_t count) {
  rows->count = rows->index.type != HARK_NONE ? count : 0;
  if (rows->count > 0) rows->now = hark_tensor_front(&rows->index, 1, &rows->count);
}

hark_status hark_engine_rows_find(hark_context *context, hark_engine_rows *rows, const int32_t *targets, int64_t count) {
  const int64_t most = hark_engine_rows_most(count);
  int64_t found = 0;
  hark_engine_rows_assume(rows, 0);
  if (rows->index.type == HARK_NONE || targets == NULL) return HARK_OK;
  for (int64_t i = 0; i < count; i++) {
    if (targets[i] == HARK_TARGET_IGNORED) continue;
    if (found == most) return HARK_OK;
    rows->host[found++] = (int32_t)i;
  }
  if (found == 0) rows->host[found++] = 0; /* loss and gradients of its logits are 0 */
  hark_engine_rows_assume(rows, found);
  return hark_backend_write(context, rows->index.data, rows->host, (size_t)found * sizeof *rows->host);
}

hark_status hark_engine_rows_targets(hark_context *context, const hark_engine_rows *rows, const int32_t *targets, int64_t count,
                                     const int32_t **out) {
  int64_t next = 0;
  *out = targets;
  if (rows->count == 0) return HARK_OK;
  int32_t *const own = rows->host + rows->index.shape[0];
  for (int64_t i = 0; i < count; i++) {
    const bool has_logits = next < rows->count && rows->host[next] == i;
    if (has_logits) own[next++] = targets[i];
    if (!has_logits && targets[i] != HARK_TARGET_IGNORED)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: row %" PRId64 " has a target, and was predicted without one", i);
  }
  *out = own;
  return HARK_OK;
}

void hark_engine_rows_spread(const hark_engine_rows *rows, int64_t count, int32_t *numbers) {
  int64_t next = rows->count - 1;
  if (rows->count == 0) return;
  for (int64_t i = count - 1; i >= 0; i--) {
    const bool has_logits = next >= 0 && rows->host[next] == i; /* number `next` is at place `next`, which is at most i */
    numbers[i] = has_logits ? numbers[next--] : HARK_TARGET_IGNORED;
  }
}
