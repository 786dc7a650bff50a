/* sigma_gradient.c - the gradient of sigma, of kernel rbf with softmax.
 *
 * With s = -|q - k|^2 / (2 sigma^2), ds/dsigma = -2 s / sigma, and since s is homogeneous of degree 2 in (q, k),
 *
 *     sum dS s = (<q, dq> + <k, dk>) / 2
 *
 * Shifting all rows of a key head by one vector changes nothing, because the gradients of a head cancel. So each head is shifted by the
 * mean of its rows weighted by their gradients, which makes the terms of the sum about as small as possible: rows without a gradient,
 * because no query read them or the output did not depend on them, have no effect, whatever their values are. All sums are in double, in
 * the order of items, heads and rows.
 */
#include <inttypes.h>
#include <math.h>

#include "attention/layer.h"
#include "io/number.h"

/* Rows [B, H, L, d] and their gradients. Query head h belongs to key head h / (H / Hkv): `group` of them to each. */
typedef struct side {
  const hark_tensor *x, *gradient;
  int64_t group;
} side;

static double number(const hark_tensor *x, int64_t at) {
  return x->type == HARK_F64 ? ((const double *)x->data)[at] : (double)((const float *)x->data)[at];
}

static int64_t first_of(const hark_tensor *x, int64_t item, int64_t head, int64_t row) {
  return item * x->stride[0] + head * x->stride[1] + row * x->stride[2];
}

/* Adds a row to the sums, weighted by the sum of the magnitudes of its gradient. sums: [d]. */
static void weigh_row(const side *s, int64_t item, int64_t head, int64_t row, double *weight, double *sums) {
  const int64_t of_x = first_of(s->x, item, head, row), of_gradient = first_of(s->gradient, item, head, row);
  double of_row = 0;
  for (int64_t c = 0; c < s->x->shape[3]; c++) of_row += fabs(number(s->gradient, of_gradient + c * s->gradient->stride[3]));
  if (of_row == 0) return; /* for any values of the row */
  *weight += of_row;
  for (int64_t c = 0; c < s->x->shape[3]; c++) sums[c] += of_row * number(s->x, of_x + c * s->x->stride[3]);
}

static void weigh(const side *s, int64_t item, int64_t key_head, double *weight, double *sums) {
  for (int64_t head = key_head * s->group; head < (key_head + 1) * s->group; head++)
    for (int64_t row = 0; row < s->x->shape[2]; row++) weigh_row(s, item, head, row, weight, sums);
}

/* *sum + the sum of (x - centre) times gradient over a row; the centre is sums / weight. */
static void add_row(const side *s, int64_t item, int64_t head, int64_t row, double weight, const double *sums, double *sum) {
  const int64_t of_x = first_of(s->x, item, head, row), of_gradient = first_of(s->gradient, item, head, row);
  for (int64_t c = 0; c < s->x->shape[3]; c++) {
    const double gradient = number(s->gradient, of_gradient + c * s->gradient->stride[3]);
    if (gradient != 0) *sum += (number(s->x, of_x + c * s->x->stride[3]) - sums[c] / weight) * gradient;
  }
}

static double product(const side *s, int64_t item, int64_t key_head, double weight, const double *sums) {
  double sum = 0;
  for (int64_t head = key_head * s->group; head < (key_head + 1) * s->group; head++)
    for (int64_t row = 0; row < s->x->shape[2]; row++) add_row(s, item, head, row, weight, sums, &sum);
  return sum;
}

/* sums: [d], memory. */
static double sum_of(const side *query, const side *key, double *sums) {
  double all = 0;
  for (int64_t item = 0; item < key->x->shape[0]; item++)
    for (int64_t head = 0; head < key->x->shape[1]; head++) {
      double weight = 0;
      for (int64_t c = 0; c < key->x->shape[3]; c++) sums[c] = 0;
      weigh(query, item, head, &weight, sums);
      weigh(key, item, head, &weight, sums);
      if (weight == 0) continue;
      all += product(query, item, head, weight, sums) + product(key, item, head, weight, sums);
    }
  return all;
}

static hark_status refuse(hark_context *context, const char *name, const hark_tensor *x, const char *expected) {
  char shape[HARK_SHAPE_TEXT_BYTES];
  return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: the gradient of sigma: %s is %s %s, expected %s", name,
                   hark_type_name(x->type), hark_shape_text(x, shape, sizeof shape), expected);
}

static hark_status check_side(hark_context *context, const char *name, const char *of_gradient, const hark_tensor *x,
                              const hark_tensor *gradient) {
  if ((x->type != HARK_F32 && x->type != HARK_F64) || x->rank != 4) return refuse(context, name, x, "f32 or f64 and four dimensions");
  bool same = gradient->type == x->type && gradient->rank == 4;
  for (int i = 0; i < 4 && same; i++) same = gradient->shape[i] == x->shape[i];
  return same ? HARK_OK : refuse(context, of_gradient, gradient, "the type and shape of what it is the gradient of");
}

static hark_status check(hark_context *context, double sigma, const hark_tensor *query, const hark_tensor *key) {
  if (!(sigma > 0 && sigma < INFINITY))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: the gradient of sigma: sigma is %s, expected a positive number",
                     HARK_PRINTED(sigma));
  const bool fits = key->type == query->type && key->shape[0] == query->shape[0] && key->shape[3] == query->shape[3] &&
                    (key->shape[1] > 0 ? query->shape[1] % key->shape[1] == 0 : query->shape[1] == 0);
  return fits ? HARK_OK : refuse(context, "key", key, "the type, batch and width of query, and heads that divide its heads");
}

hark_status hark_attention_sigma_gradient(hark_context *context, double sigma, const hark_tensor *query, const hark_tensor *dquery,
                                          const hark_tensor *key, const hark_tensor *dkey, double *gradient) {
  HARK_TRY(check_side(context, "query", "dquery", query, dquery));
  HARK_TRY(check_side(context, "key", "dkey", key, dkey));
  HARK_TRY(check(context, sigma, query, key));
  const size_t bytes = (size_t)key->shape[3] * sizeof(double);
  void *sums;
  HARK_TRY(hark_allocate(context, bytes, &sums));
  const side queries = {query, dquery, key->shape[1] > 0 ? query->shape[1] / key->shape[1] : 0}, keys = {key, dkey, 1};
  hark_backend_enter(context);
  *gradient = -sum_of(&queries, &keys, sums) / sigma;
  hark_backend_leave(context);
  hark_release(context, sums, bytes);
  return HARK_OK;
}
