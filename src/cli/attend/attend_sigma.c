/* attend_sigma.c - the gradient of sigma, of kernel rbf with softmax.
 *
 * With s = -|q - k|^2 / (2 sigma^2), ds/dsigma = -2 s / sigma, and since s is homogeneous of degree 2 in (q, k),
 *
 *     sum dS s = (<q, dq> + <k, dk>) / 2
 *
 * Shifting all rows of a key head by one vector changes nothing, because the gradients of a head cancel. So each head is shifted by the
 * mean of its rows weighted by their gradients, which makes the terms of the sum about as small as possible: rows without a gradient,
 * because no query read them or the output did not depend on them, have no effect, whatever their values are. All sums are in double.
 */
#include <math.h>

#include "cli/attend/attend.h"

/* Rows [B, H, L, d] and their gradients, in memory of the host. */
typedef struct side {
  hark_type type;
  int64_t items, heads, rows, d;
  void *x, *gradient;
  size_t bytes;
} side;

static double number(const side *s, const void *data, int64_t i) {
  return s->type == HARK_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static hark_status read_side(hark_context *context, const hark_tensor *x, const hark_tensor *gradient, side *out) {
  *out = (side){.type = x->type, .items = x->shape[0], .heads = x->shape[1], .rows = x->shape[2], .d = x->shape[3]};
  out->bytes = hark_type_bytes(x->type) * (size_t)hark_tensor_count(x);
  HARK_TRY(hark_allocate(context, out->bytes, &out->x));
  HARK_TRY(hark_allocate(context, out->bytes, &out->gradient));
  HARK_TRY(hark_tensor_read(context, x, out->x));
  return hark_tensor_read(context, gradient, out->gradient);
}

static void free_side(hark_context *context, side *s) {
  hark_release(context, s->x, s->bytes);
  hark_release(context, s->gradient, s->bytes);
}

/* Rows of query head h belong to key head h / (H / Hkv): the first element of each row of such heads, in turn. */
static int64_t first_of(const side *s, int64_t key_heads, int64_t item, int64_t key_head, int64_t row) {
  const int64_t group = s->heads / key_heads;
  return ((item * s->heads + key_head * group) * s->rows + row) *
         s->d; /* heads of a group follow each other: row goes up to group * rows */
}

static int64_t rows_of(const side *s, int64_t key_heads) { return s->heads / key_heads * s->rows; }

/* Adds every row to the sums, weighted by the sum of the magnitudes of its gradient. sums: [d]. */
static void weigh(const side *s, int64_t key_heads, int64_t item, int64_t key_head, double *weight, double *sums) {
  for (int64_t row = 0; row < rows_of(s, key_heads); row++) {
    const int64_t first = first_of(s, key_heads, item, key_head, row);
    double of_row = 0;
    for (int64_t c = 0; c < s->d; c++) of_row += fabs(number(s, s->gradient, first + c));
    if (of_row == 0) continue; /* for any values of the row */
    *weight += of_row;
    for (int64_t c = 0; c < s->d; c++) sums[c] += of_row * number(s, s->x, first + c);
  }
}

/* Sum of (x - centre) times gradient over the rows; the centre is sums / weight. */
static double product(const side *s, int64_t key_heads, int64_t item, int64_t key_head, double weight, const double *sums) {
  double sum = 0;
  for (int64_t row = 0; row < rows_of(s, key_heads); row++) {
    const int64_t first = first_of(s, key_heads, item, key_head, row);
    for (int64_t c = 0; c < s->d; c++) {
      const double gradient = number(s, s->gradient, first + c);
      if (gradient != 0) sum += (number(s, s->x, first + c) - sums[c] / weight) * gradient;
    }
  }
  return sum;
}

/* sums: [d], memory. */
static double sum_of(const side *query, const side *key, double *sums) {
  double all = 0;
  for (int64_t item = 0; item < key->items; item++)
    for (int64_t head = 0; head < key->heads; head++) {
      double weight = 0;
      for (int64_t c = 0; c < key->d; c++) sums[c] = 0;
      weigh(query, key->heads, item, head, &weight, sums);
      weigh(key, key->heads, item, head, &weight, sums);
      if (weight == 0) continue;
      all += product(query, key->heads, item, head, weight, sums) + product(key, key->heads, item, head, weight, sums);
    }
  return all;
}

hark_status hark_attend_sigma_gradient(hark_context *context, double sigma, const hark_tensor *query, const hark_tensor *key,
                                       hark_attend_tensors *t) {
  const int64_t one = 1;
  side queries = {0}, keys = {0};
  hark_status status = read_side(context, query, &t->dquery, &queries);
  if (status == HARK_OK) status = read_side(context, key, &t->dkey, &keys);
  const size_t bytes = (size_t)key->shape[3] * sizeof(double);
  void *sums = NULL;
  if (status == HARK_OK) status = hark_allocate(context, bytes, &sums);
  const double gradient = status == HARK_OK ? -sum_of(&queries, &keys, sums) / sigma : 0;
  hark_release(context, sums, bytes);
  free_side(context, &queries);
  free_side(context, &keys);
  HARK_TRY(status);
  HARK_TRY(hark_tensor_create(context, query->type, 1, &one, &t->dsigma));
  const float rounded = (float)gradient;
  return hark_tensor_write(context, &t->dsigma, query->type == HARK_F64 ? (const void *)&gradient : (const void *)&rounded);
}
