/* parts.h - calls of operators with very many rows, computed in parts of rows.
 *
 * Operators whose bits depend on the number of rows - products, whose pieces depend on it, and sums over rows: gradients of weights, gains
 * and rates, a loss - are computed in parts of hark_context.rows.part rows where a call has more than rows.most: y and dx part after part,
 * and sum = sum of part 0 + sum of part 1 + ..., each rounded. A caller that gives these operators slices of exactly such parts
 * (autograd/rows.h) gets the same bits. Operators without sums over rows need none of it.
 */
#ifndef HARK_OPS_PARTS_H
#define HARK_OPS_PARTS_H

#include <hark/operators.h>

#include "core/core.h"

/* Rows first .. first + count of a tensor of `rows` rows, which are contiguous: [1, count, ...] of [1, rows, ...], [count, ...] of
 * [rows, ...]. A tensor without data stays without. */
hark_tensor hark_tensor_rows(const hark_tensor *tensor, int64_t rows, int64_t first, int64_t count);

/* The rows of a call that is computed in parts; 0: it is computed at once. */
int64_t hark_rows_of_parts(const hark_context *context, const hark_call *call);

/* A part of a call, with its own attributes. */
typedef struct hark_call_part {
  hark_call call;
  hark_rotary_attributes rotary;
} hark_call_part;
void hark_part_of_call(const hark_call *call, int64_t first, int64_t count, hark_call_part *out);

/* Outputs that are sums over rows: numbers of the parts so far. */
typedef struct hark_part_sums {
  union {
    float f32;
    double f64;
    int64_t i64;
  } sum[HARK_MAX_OUTPUTS];
} hark_part_sums;
/* Adds the numbers that a part has written to the outputs, and writes the sums there. */
HARK_MUST_CHECK hark_status hark_part_add_sums(hark_context *context, const hark_call *call, hark_part_sums *sums);
HARK_MUST_CHECK hark_status hark_part_give_sums(hark_context *context, const hark_call *call, const hark_part_sums *sums);

#endif
