/* segments.c - checks of ragged batches, rows grouped by index, ranks. */
#include "ops/segments.h"

#include <inttypes.h>
#include <string.h>

hark_status hark_check_offsets_shape(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *offsets) {
  if (offsets->shape[0] >= 1) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has no numbers, expected one more than there are segments", op->name, name);
}

hark_status hark_check_offsets(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *offsets, int64_t unit,
                               int64_t rows) {
  const int64_t *at = offsets->data, last = offsets->shape[0] - 1, limit = rows / hark_max(1, unit);
  if (at[0] < 0) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s[0] is %" PRId64 ", expected at least 0", op->name, name, at[0]);
  }
  for (int64_t s = 0; s < last; s++) {
    if (at[s + 1] >= at[s]) continue;
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "%s: %s[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected offsets that do not decrease", op->name, name, s + 1,
                     at[s + 1], at[s]);
  }
  if (at[last] <= limit) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s[%" PRId64 "] is %" PRId64 ", expected at most %" PRId64, op->name, name, last,
                   at[last], limit);
}

hark_status hark_check_number(hark_context *context, const hark_operator *op, const char *name, int64_t value, int64_t minimum,
                              int64_t maximum) {
  if (value >= minimum && value <= maximum) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64, op->name, name, value,
                   minimum, maximum);
}

hark_status hark_check_unit(hark_context *context, const hark_operator *op, int64_t unit, int64_t rows) {
  HARK_TRY(hark_check_number(context, op, "unit", unit, 0, INT32_MAX));
  if (unit <= 1 || rows % unit == 0) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: unit is %" PRId64 ", expected a divisor of the %" PRId64 " rows", op->name, unit,
                   rows);
}

hark_status hark_check_rows(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor, int64_t rows,
                            const char *origin) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (hark_row_count(tensor) == rows) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected %" PRId64 " rows (%s)", op->name, name,
                   hark_shape_text(tensor, text, sizeof text), rows, origin);
}

hark_status hark_check_numbers(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor, int64_t count,
                               const char *origin) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (hark_tensor_count(tensor) == count) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected %" PRId64 " numbers (%s)", op->name, name,
                   hark_shape_text(tensor, text, sizeof text), count, origin);
}

hark_status hark_check_index(hark_context *context, const hark_operator *op, const hark_tensor *index, int64_t rows) {
  const int32_t *at = index->data;
  const int64_t count = hark_tensor_count(index);
  for (int64_t i = 0; i < count; i++) {
    if (at[i] >= -1 && at[i] < rows) continue;
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: index %" PRId64 " is %" PRId32 ", expected -1 to %" PRId64, op->name, i, at[i],
                     rows - 1);
  }
  return HARK_OK;
}

void hark_clear_gaps(const hark_segments *segments, hark_numbers numbers, int64_t rows, int64_t width) {
  if (numbers.data == NULL || numbers.add) return;
  const int64_t first = segments->count > 0 ? hark_segment_first(segments, 0) : rows;
  const int64_t last = segments->count > 0 ? hark_segment_first(segments, segments->count) : rows;
  for (int64_t i = 0; i < first * width; i++) hark_put(numbers, i, 0);
  for (int64_t i = last * width; i < rows * width; i++) hark_put(numbers, i, 0);
}

hark_status hark_places_bytes(hark_context *context, int64_t rows, int64_t count, size_t *out) {
  size_t numbers = 0;
  HARK_TRY(hark_size_add(context, (size_t)rows + 1, (size_t)count, &numbers));
  return hark_size_multiply(context, numbers, sizeof(int64_t), out);
}

/* A counting sort: begin[n] is first the start of row n's places, then the next free one; at the end it is the start of n + 1. */
hark_places hark_places_make(const int32_t *index, int64_t count, int64_t rows, void *workspace) {
  const hark_places places = hark_places_at(workspace, rows);
  memset(places.begin, 0, (size_t)(rows + 1) * sizeof *places.begin);
  for (int64_t i = 0; i < count; i++)
    if (index[i] >= 0) places.begin[index[i] + 1]++;
  for (int64_t n = 0; n < rows; n++) places.begin[n + 1] += places.begin[n];
  for (int64_t i = 0; i < count; i++)
    if (index[i] >= 0) places.place[places.begin[index[i]]++] = i;
  for (int64_t n = rows; n > 0; n--) places.begin[n] = places.begin[n - 1];
  places.begin[0] = 0;
  return places;
}

static bool goes_before(const double *score, int64_t a, int64_t b) {
  if (isnan(score[a])) return false;
  return isnan(score[b]) || score[a] > score[b];
}

/* Merging runs of 1, 2, 4 .. numbers keeps the order of equal ones. */
void hark_order_by_score(const double *score, int64_t count, int64_t *order, int64_t *scratch) {
  for (int64_t i = 0; i < count; i++) order[i] = i;
  for (int64_t run = 1; run < count; run *= 2) {
    for (int64_t start = 0; start < count; start += 2 * run) {
      const int64_t middle = hark_min(start + run, count), end = hark_min(start + 2 * run, count);
      int64_t left = start, right = middle;
      for (int64_t i = start; i < end; i++) {
        const bool take_right = left == middle || (right < end && goes_before(score, order[right], order[left]));
        scratch[i] = take_right ? order[right++] : order[left++];
      }
    }
    memcpy(order, scratch, (size_t)count * sizeof *order);
  }
}

void hark_mark_starts(const hark_segments *chunks, int64_t rows, unsigned char *is_start) {
  memset(is_start, 0, (size_t)rows);
  for (int64_t k = 0; k < chunks->count; k++)
    if (hark_segment_rows(chunks, k) > 0) is_start[hark_segment_first(chunks, k)] = 1;
}

double hark_segment_operations(const hark_attention_desc *desc, const int64_t *ids, bool backward) {
  if (ids == NULL) return hark_attention_desc_operations(desc, backward);
  hark_attention_desc one = *desc;
  double sum = 0;
  one.batch = 1;
  for (int64_t item = 0; item < desc->batch; item++, ids += desc->key_length)
    for (int64_t row = 0, first; row < desc->key_length;) {
      for (first = row; row < desc->key_length && ids[row] == ids[first]; row++) continue;
      if (ids[first] < 0) continue;
      one.query_length = one.key_length = row - first;
      sum += hark_attention_desc_operations(&one, backward);
    }
  return sum;
}
