/* engine_rows.h - which rows of a pass have logits. A row without a target needs none: where at least a quarter of the rows have no target,
 * only the others go through the final norm, the head and the loss. Otherwise all rows do, since a copy of the others would save little.
 * Where no row has a target, the first one goes, whose target is ignored.
 *
 * Not in passes with one result for each example, over windows that are spread over processes, or in slices of rows (models/stack.c).
 */
#ifndef HARK_TRAIN_ENGINE_ROWS_H
#define HARK_TRAIN_ENGINE_ROWS_H

#include "nn/forward.h"

/* Most rows of `count` that have logits where some have none. */
static inline int64_t hark_engine_rows_most(int64_t count) { return hark_max(1, 3 * count / 4); }
/* Most rows that all have logits if at most `targets` have targets. */
static inline int64_t hark_engine_rows_all(int64_t targets) { return (4 * targets + 2) / 3; }

/* The most masked tokens of `tokens` that a pass has memory for. Each is masked with probability `fraction` in (0, 1], independently of the
 * others. There are more with a probability of at most 1e-14. It is the least k above the mean with n KL(k / n || fraction) >= ln(1e14), or
 * n: P(at least k) <= exp(-n KL(k / n || fraction)) (Chernoff 1952, Hoeffding 1963). */
int64_t hark_engine_rows_masked(int64_t tokens, double fraction);

typedef struct hark_engine_rows {
  hark_tensor index; /* i32 [most rows]: the rows with logits, ascending; type HARK_NONE: all rows of every pass have logits */
  hark_tensor now;   /* of the latest pass: its front */
  int32_t *host;     /* [2, most rows]: the same, and room for their targets */
  size_t bytes;
  int64_t count; /* of the latest pass; 0: all rows have logits */
} hark_engine_rows;

/* For passes of at most `tokens` rows. Without `memory` it is only described. Errors: HARK_OUT_OF_MEMORY; it is to be closed after a
 * failure too. */
HARK_MUST_CHECK hark_status hark_engine_rows_open(hark_context *context, int64_t tokens, bool memory, hark_engine_rows *out);
void hark_engine_rows_close(hark_context *context, hark_engine_rows *rows);

/* Finds the rows of a pass by its targets [count]; targets NULL: all have logits. Errors: those of the backend. */
HARK_MUST_CHECK hark_status hark_engine_rows_find(hark_context *context, hark_engine_rows *rows, const int32_t *targets, int64_t count);
/* The same for a run of shapes alone: `count` rows have logits, and 0 means all. */
void hark_engine_rows_assume(hark_engine_rows *rows, int64_t count);

/* For hark_forward.logit_rows; NULL: all. */
static inline const hark_tensor *hark_engine_rows_now(const hark_engine_rows *rows) { return rows->count > 0 ? &rows->now : NULL; }

/* *out: the targets of the rows with logits, in the rows' own memory; where all have them, `targets` itself. Errors:
 * HARK_INVALID_ARGUMENT where a row without logits has a target. */
HARK_MUST_CHECK hark_status hark_engine_rows_targets(hark_context *context, const hark_engine_rows *rows, const int32_t *targets,
                                                     int64_t count, const int32_t **out);

/* Moves the numbers of the rows with logits to the places of these rows in numbers [count]; the other rows get -1. */
void hark_engine_rows_spread(const hark_engine_rows *rows, int64_t count, int32_t *numbers);

#endif
