/* segments.h - common parts of the operators on ragged batches: lists of segments, rows grouped by index, ranks.
 *
 *     offsets   0     3       7 7       rows of a tensor:  [0 0 0][1 1 1 1][][- - -]     segment 2 is empty, the last rows are in none
 */
#ifndef HARK_OPS_SEGMENTS_H
#define HARK_OPS_SEGMENTS_H

#include "ops/definition.h"

typedef struct hark_segments {
  const int64_t *offsets;
  int64_t count, unit; /* number of segments; rows per unit of the offsets */
} hark_segments;

static inline hark_segments hark_segments_of(const hark_tensor *offsets, int64_t unit) {
  return (hark_segments){.offsets = offsets->data, .count = offsets->shape[0] - 1, .unit = hark_max(1, unit)};
}
static inline int64_t hark_segment_first(const hark_segments *segments, int64_t s) { return segments->offsets[s] * segments->unit; }
static inline int64_t hark_segment_rows(const hark_segments *segments, int64_t s) {
  return (segments->offsets[s + 1] - segments->offsets[s]) * segments->unit;
}

/* Operations of attention over rows with segment ids [batch, key_length]: every run of equal ids is one segment, and ids below 0 cost
 * nothing. NULL: all rows of an item are one segment. */
double hark_segment_operations(const hark_attention_desc *desc, const int64_t *ids, bool backward);

/* Refuses a list of segments, called `name`, that has not even a first number. Errors: HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_offsets_shape(hark_context *context, const hark_operator *op, const char *name,
                                                     const hark_tensor *offsets);
/* Refuses offsets that begin below 0, decrease, or end beyond `rows` (an offset counts units of `unit` rows). For kernels: it reads the
 * data.
 * Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_offsets(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *offsets,
                                               int64_t unit, int64_t rows);
/* Refuses a unit below 0, and a number of rows that is not a multiple of it. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_unit(hark_context *context, const hark_operator *op, int64_t unit, int64_t rows);
/* Refuses a number of the attributes outside [minimum, maximum]. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_number(hark_context *context, const hark_operator *op, const char *name, int64_t value,
                                              int64_t minimum, int64_t maximum);
/* Refuses a tensor whose dimensions but the last do not make `rows` rows. Errors: HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_rows(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor,
                                            int64_t rows, const char *origin);
/* Refuses a tensor without exactly `count` numbers, in any shape. Errors: HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_numbers(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor,
                                               int64_t count, const char *origin);
/* Refuses an index outside [0, rows) that is not -1. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_index(hark_context *context, const hark_operator *op, const hark_tensor *index, int64_t rows);

/* Zeroes rows of `width` numbers that are in no segment; an accumulated gradient is not changed. */
void hark_clear_gaps(const hark_segments *segments, hark_numbers numbers, int64_t rows, int64_t width);

/* The positions of every row number in an index: row n occurs at place[begin[n]] .. place[begin[n + 1] - 1], ascending. begin [rows + 1],
 * place [count]; entries of -1 are skipped. */
typedef struct hark_places {
  int64_t *begin, *place;
} hark_places;
static inline hark_places hark_places_at(void *workspace, int64_t rows) {
  return (hark_places){.begin = workspace, .place = (int64_t *)workspace + rows + 1};
}
HARK_MUST_CHECK hark_status hark_places_bytes(hark_context *context, int64_t rows, int64_t count, size_t *out);
hark_places hark_places_make(const int32_t *index, int64_t count, int64_t rows, void *workspace);

/* order[0 .. count) <- 0 .. count - 1 by falling score; equal scores keep their order, and NaN is lowest. scratch [count]. */
void hark_order_by_score(const double *score, int64_t count, int64_t *order, int64_t *scratch);

/* is_start[t], for all rows: whether row t is the first of a chunk, from offsets. */
void hark_mark_starts(const hark_segments *chunks, int64_t rows, unsigned char *is_start);

#endif
