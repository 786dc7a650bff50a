/* kernel_ridge_decode.c - causal kernel ridge (CME) attention of new tokens with a cache of earlier ones: each adds a row to the factor.
 *
 * With M = kappa(K, K) + lambda I + diag(noise) = R R^T and U = R^-1 V of the n tokens in the cache, token n with key k, value v, query q
 * and noise s adds
 *
 *     r = R^-1 kappa(K, k),  rho = sqrt(kappa(k, k) + lambda + s - r.r)    R gets the row [r, rho]
 *     u = (v - U^T r) / rho                                                U gets the row u
 *     z = R^-1 kappa(K, q),  zeta = (kappa(k, q) - r.z) / rho              y = U^T z + u zeta
 *
 * This is the factorisation of the parallel attention (backend/reference/kernel_ridge.c) row after row: the same pivots, corrected by the
 * same rule. Legend: n tokens in the caches, d head_dim, dv value_dim. Cost per token and head: n^2 for two forward substitutions that read
 * R once, and 2 n (d + dv). Derivation: docs/mathematics/kernel-ridge.md.
 */
#include "backend/kernel_ridge_decode.h"

#include <float.h>
#include <inttypes.h>

#include "io/number.h"
#include "ops/definition.h"

/* ---- shapes ---- */

static hark_status refuse_number(hark_context *context, const char *name, double value, const char *least) {
  return hark_fail(context, HARK_INVALID_ARGUMENT, "kernel_ridge_decode: %s is %s, expected a finite number %s", name, HARK_PRINTED(value),
                   least);
}

static bool positive(double x) { return isfinite(x) && x > 0; }

static hark_status check_attributes(hark_context *context, const hark_kernel_ridge_decode_attributes *is, const hark_tensor *inputs,
                                    int input_count) {
  const double limit = hark_ridge_exponent_limit(inputs[HARK_RIDGE_DECODE_QUERY].type), bound = is->unit ? 1 : is->bound;
  if (is->heads < 1 || is->key_heads < 1 || is->heads % is->key_heads != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "kernel_ridge_decode: heads is %" PRId64 ", expected a multiple of key_heads = %" PRId64, is->heads, is->key_heads);
  if (is->first_position < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "kernel_ridge_decode: first_position is %" PRId64 ", expected 0 or more",
                     is->first_position);
  if (is->kernel != HARK_KERNEL_EXP && is->kernel != HARK_KERNEL_RBF)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "kernel_ridge_decode: kernel is %d, expected one of hark_attention_kernel",
                     (int)is->kernel);
  const bool may_be_zero = hark_has_input(inputs, input_count, HARK_RIDGE_DECODE_NOISE);
  if (!hark_has_input(inputs, input_count, HARK_RIDGE_DECODE_LOG_RIDGE) && !positive(is->ridge) && !(may_be_zero && is->ridge == 0))
    return refuse_number(context, "ridge", is->ridge, may_be_zero ? "from 0" : "above 0");
  if (is->kernel == HARK_KERNEL_RBF) {
    const bool given = hark_has_input(inputs, input_count, HARK_RIDGE_DECODE_LOG_SIGMA);
    return given || positive(is->sigma) ? HARK_OK : refuse_number(context, "sigma", is->sigma, "above 0");
  }
  if (!positive(is->scale)) return refuse_number(context, "scale", is->scale, "above 0");
  if (!isfinite(bound) || bound < 0 || bound * is->scale > 2 * limit)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "kernel_ridge_decode: bound is %s, expected 0 to %s, the range in which the ridge can be scaled in %s",
                     HARK_PRINTED(bound), HARK_PRINTED(2 * limit / is->scale), hark_type_name(inputs[HARK_RIDGE_DECODE_QUERY].type));
  return HARK_OK;
}

/* A vector [heads] or [1]. */
static hark_status check_vector(hark_context *context, const char *name, const hark_tensor *inputs, int input_count, int input,
                                int64_t heads) {
  if (!hark_has_input(inputs, input_count, input) || inputs[input].shape[0] == 1) return HARK_OK;
  return hark_check_shape(context, &hark_op_kernel_ridge_decode, name, &inputs[input], 1, &heads);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[HARK_RIDGE_DECODE_INPUTS] = {
      {"query", HARK_F32, 3, 3},      {"key", HARK_F32, 3, 3},    {"value", HARK_F32, 3, 3},     {"cached_key", HARK_F32, 3, 3},
      {"solved", HARK_F32, 3, 3},     {"factor", HARK_F32, 3, 3}, {"log_ridge", HARK_F32, 1, 1}, {"log_sigma", HARK_F32, 1, 1},
      {"log_kernel", HARK_F32, 2, 2}, {"noise", HARK_F32, 3, 3}};
  const hark_operator *op = &hark_op_kernel_ridge_decode;
  const hark_kernel_ridge_decode_attributes *is = attributes;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  HARK_TRY(check_attributes(context, is, inputs, input_count));
  const hark_tensor *query = &inputs[HARK_RIDGE_DECODE_QUERY], *value = &inputs[HARK_RIDGE_DECODE_VALUE];
  const hark_tensor *cached = &inputs[HARK_RIDGE_DECODE_CACHED_KEY];
  const hark_tensor *key = &inputs[HARK_RIDGE_DECODE_KEY];
  HARK_TRY(hark_check_decoder_rows(context, op, query, key, value, is->heads, is->key_heads));
  const int64_t rows = query->shape[1], capacity = cached->shape[1], value_dim = value->shape[2] / is->key_heads;
  const int64_t cached_keys[] = {1, capacity, key->shape[2]};
  HARK_TRY(hark_check_shape(context, op, "cached_key", cached, 3, cached_keys));
  if (capacity > HARK_RIDGE_DECODE_CAPACITY || is->first_position > capacity - rows)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "kernel_ridge_decode: cached_key has room for %" PRId64 " tokens, expected %" PRId64 " + %" PRId64 " to %" PRId64,
                     capacity, is->first_position, rows, HARK_RIDGE_DECODE_CAPACITY);
  const int64_t solved[] = {1, capacity, is->heads * hark_ridge_decode_width(value_dim)};
  const int64_t factor[] = {hark_ridge_decode_tiles(capacity), is->heads, HARK_RIDGE_BAND_TILE};
  HARK_TRY(hark_check_shape(context, op, "solved", &inputs[HARK_RIDGE_DECODE_SOLVED], 3, solved));
  HARK_TRY(hark_check_shape(context, op, "factor", &inputs[HARK_RIDGE_DECODE_FACTOR], 3, factor));
  HARK_TRY(check_vector(context, "log_ridge", inputs, input_count, HARK_RIDGE_DECODE_LOG_RIDGE, is->heads));
  HARK_TRY(check_vector(context, "log_sigma", inputs, input_count, HARK_RIDGE_DECODE_LOG_SIGMA, is->heads));
  if (hark_has_input(inputs, input_count, HARK_RIDGE_DECODE_LOG_KERNEL)) {
    const hark_tensor *table = &inputs[HARK_RIDGE_DECODE_LOG_KERNEL];
    const int64_t expected[] = {table->shape[0] == 1 ? 1 : is->heads, hark_max(table->shape[1], is->first_position + rows)};
    HARK_TRY(hark_check_shape(context, op, "log_kernel", table, 2, expected));
  }
  const int64_t noise[] = {1, rows, is->heads};
  if (hark_has_input(inputs, input_count, HARK_RIDGE_DECODE_NOISE))
    HARK_TRY(hark_check_shape(context, op, "noise", &inputs[HARK_RIDGE_DECODE_NOISE], 3, noise));
  const int64_t shape[] = {1, rows, value_dim * is->heads};
  HARK_TRY(hark_ridge_decode_workspace(context, is, inputs, &out->forward_workspace));
  return hark_tensor_describe(context, query->type, 3, shape, &out->outputs[0]);
}

/* ---- the definition ---- */

static hark_numbers numbers_of(const hark_ridge_decode *d, int input, int64_t first) {
  return hark_numbers_from(hark_numbers_of(&d->call->inputs[input]), first);
}

static double square_of(const hark_ridge_decode *d, hark_numbers row, double by) {
  double sum = 0;
  for (int64_t c = 0; c < d->head_dim; c++) sum += hark_get(row, c) / by * (hark_get(row, c) / by);
  return sum;
}

/* Copies a row, divided by its norm where this is requested; false when a number is not finite, or its square where products need it. */
static bool take_row(const hark_ridge_decode *d, hark_numbers from, hark_numbers to) {
  double largest = 0, squares = square_of(d, from, 1);
  for (int64_t c = 0; c < d->head_dim; c++) {
    if (!isfinite(hark_get(from, c))) return false;
    largest = fmax(largest, fabs(hark_get(from, c)));
  }
  if (!d->rbf && !d->is->unit && squares > (from.wide ? DBL_MAX : (double)FLT_MAX)) return false;
  const double by = isfinite(squares) ? 1 : largest; /* the squares must be in range */
  if (by != 1) squares = square_of(d, from, by);
  const double gain = d->is->unit && squares > 0 ? 1 / sqrt(squares) : 1;
  for (int64_t c = 0; c < d->head_dim; c++) hark_put(to, c, gain * (d->is->unit ? hark_get(from, c) / by : hark_get(from, c)));
  return true;
}

/* kappa of a row x at position n and key i; false, with a record of `kind`, where it is out of range. */
static bool kernel(const hark_ridge_decode *d, hark_numbers x, int64_t n, int64_t i, hark_ridge_kind kind, double *out) {
  const hark_numbers key = numbers_of(d, HARK_RIDGE_DECODE_CACHED_KEY, i * d->key_step + d->key_head * d->head_dim);
  double product = 0, square = 0;
  for (int64_t c = 0; c < d->head_dim; c++) {
    product += hark_get(x, c) * hark_get(key, c);
    square += (hark_get(x, c) - hark_get(key, c)) * (hark_get(x, c) - hark_get(key, c));
  }
  double exponent = d->rbf ? -square * d->parameters.scale / 2 : d->parameters.scale * product - d->parameters.shift;
  if (d->positional) exponent += hark_get(numbers_of(d, HARK_RIDGE_DECODE_LOG_KERNEL, d->table_row), n - i);
  *out = exp(exponent);
  if (exponent <= hark_ridge_exponent_limit(d->call->inputs[HARK_RIDGE_DECODE_QUERY].type)) return true;
  hark_ridge_trouble(d->record, d->head, kind, n, exponent);
  return false;
}

/* r, z <- R^-1 kappa(K, k_n), R^-1 kappa(K, q_n) over the n earlier keys, and the last entries of both, which complete the row of the
 * factor. */
static bool solve_row(const hark_ridge_decode *d, int64_t n, hark_numbers query, double *r, double *z) {
  double added;
  if (!hark_ridge_decode_added(d, n - d->is->first_position, &added)) return false;
  const hark_numbers key = numbers_of(d, HARK_RIDGE_DECODE_CACHED_KEY, n * d->key_step + d->key_head * d->head_dim);
  const bool wide = key.wide;
  for (int64_t i = 0; i <= n; i++)
    if (!kernel(d, key, n, i, HARK_RIDGE_KEY_RANGE, &r[i]) || !kernel(d, query, n, i, HARK_RIDGE_QUERY_RANGE, &z[i])) return false;
  for (int64_t i = 0; i < n; i++) {
    const hark_numbers row = numbers_of(d, HARK_RIDGE_DECODE_FACTOR, hark_ridge_decode_row(d->is->heads, d->head, i));
    for (int64_t k = 0; k < i; k++) {
      r[i] -= hark_get(row, k) * r[k];
      z[i] -= hark_get(row, k) * z[k];
    }
    r[i] /= hark_get(row, i);
    z[i] /= hark_get(row, i);
  }
  const hark_numbers row = numbers_of(d, HARK_RIDGE_DECODE_FACTOR, hark_ridge_decode_row(d->is->heads, d->head, n));
  const double diagonal = r[n] + added;
  double pivot = diagonal;
  for (int64_t i = 0; i < n; i++) {
    hark_put(row, i, r[i]);
    pivot -= r[i] * r[i];
    z[n] -= r[i] * z[i];
  }
  pivot = hark_ridge_pivot(d->record, d->head, n, pivot, diagonal, added, wide ? HARK_RIDGE_PIVOT_F64 : HARK_RIDGE_PIVOT_F32);
  r[n] = sqrt(pivot);
  z[n] /= r[n];
  hark_put(row, n, r[n]);
  for (int64_t i = n + 1; i < hark_ridge_decode_step(n); i++) hark_put(row, i, 0);
  return d->record->kind == HARK_RIDGE_FINE;
}

/* New row `row` of the call; its key is already in the cache. */
static bool forward_row(const hark_ridge_decode *d, int64_t row) {
  const int64_t n = d->is->first_position + row;
  double *const r = d->memory, *const z = r + d->capacity, *const u = z + d->capacity, *const y = u + d->value_width;
  const hark_numbers query = {.data = y + d->value_width, .wide = true};
  if (!take_row(d, numbers_of(d, HARK_RIDGE_DECODE_QUERY, (row * d->is->heads + d->head) * d->head_dim), query)) {
    hark_ridge_trouble(d->record, d->head, HARK_RIDGE_BAD_QUERY, n, 0);
    return false;
  }
  if (!solve_row(d, n, query, r, z)) return false;
  const hark_numbers value = numbers_of(d, HARK_RIDGE_DECODE_VALUE, row * d->value_step + d->key_head * d->value_dim);
  const hark_numbers solved = numbers_of(d, HARK_RIDGE_DECODE_SOLVED, d->head * d->value_width);
  const hark_numbers out = hark_numbers_from(hark_numbers_of(&d->call->outputs[0]), (row * d->is->heads + d->head) * d->value_dim);
  for (int64_t c = 0; c < d->value_width; c++) {
    u[c] = c < d->value_dim ? hark_get(value, c) : 0;
    y[c] = 0;
  }
  for (int64_t i = 0; i < n; i++)
    for (int64_t c = 0; c < d->value_dim; c++) {
      const double x = hark_get(solved, i * d->solved_step + c);
      u[c] -= r[i] * x;
      y[c] += z[i] * x;
    }
  for (int64_t c = 0; c < d->value_width; c++) hark_put(solved, n * d->solved_step + c, u[c] / r[n]);
  for (int64_t c = 0; c < d->value_dim; c++) {
    hark_put(out, c, y[c] + z[n] * (u[c] / r[n]));
    if (isfinite(hark_get(out, c))) continue;
    hark_ridge_trouble(d->record, d->head, HARK_RIDGE_BAD_RESULT, n, 0);
    return false;
  }
  return true;
}

/* Writes the new keys and values of the key heads, and checks them, before the heads that share them run. */
static void append_keys(const hark_call *call) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  for (int64_t key_head = 0; key_head < is->key_heads; key_head++) {
    const hark_ridge_decode d = hark_ridge_decode_open(call, key_head * (is->heads / is->key_heads));
    for (int64_t row = 0; row < d.rows; row++) {
      const int64_t n = is->first_position + row, own = key_head * d.head_dim;
      if (!take_row(&d, numbers_of(&d, HARK_RIDGE_DECODE_KEY, row * d.key_step + own),
                    numbers_of(&d, HARK_RIDGE_DECODE_CACHED_KEY, n * d.key_step + own)))
        hark_ridge_trouble(d.record, d.head, HARK_RIDGE_BAD_KEY, n, 0);
      const hark_numbers value = numbers_of(&d, HARK_RIDGE_DECODE_VALUE, row * d.value_step + key_head * d.value_dim);
      for (int64_t c = 0; c < d.value_dim; c++)
        if (!isfinite(hark_get(value, c))) hark_ridge_trouble(d.record, d.head, HARK_RIDGE_BAD_VALUE, n, 0);
    }
  }
}

static void forward_heads(const hark_call *call, int64_t first, int64_t last) {
  for (int64_t head = first; head < last; head++) {
    hark_ridge_decode d = hark_ridge_decode_open(call, head);
    bool fine = d.record->kind == HARK_RIDGE_FINE && hark_ridge_decode_read(&d);
    for (int64_t row = 0; row < d.rows && fine; row++) fine = forward_row(&d, row);
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_kernel_ridge_decode_attributes *is = call->attributes;
  HARK_TRY(hark_ridge_decode_begin(context, call));
  append_keys(call);
  hark_range_for(context, call, is->heads, 1, forward_heads);
  return hark_ridge_decode_end(context, call);
}

/* ---- the operator ---- */

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_kernel_ridge_decode_attributes *is = attributes;
  (void)input_count;
  if (is_backward) return 0;
  const double rows = (double)inputs[HARK_RIDGE_DECODE_QUERY].shape[1], n = (double)is->first_position + rows / 2;
  const double features =
      (double)(inputs[HARK_RIDGE_DECODE_QUERY].shape[2] / is->heads + inputs[HARK_RIDGE_DECODE_VALUE].shape[2] / is->key_heads);
  return 2 * (double)is->heads * rows * (n * n + rows * rows / 12 + 2 * n * features);
}

/* Of a solve, whose condition depends on the samples. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const hark_kernel_ridge_decode_attributes *is = attributes;
  (void)input_count;
  const int64_t tokens = is->first_position + inputs[HARK_RIDGE_DECODE_QUERY].shape[1];
  return tokens * (tokens + inputs[HARK_RIDGE_DECODE_QUERY].shape[2] / is->heads);
}

#define DECODE(...)                                                                                                                        \
  { .kernel = HARK_KERNEL_RBF, .ridge = 1.5, .sigma = 1.25, __VA_ARGS__ }
static const hark_kernel_ridge_decode_attributes
    beginning = DECODE(.heads = 1, .key_heads = 1),
    grouped = DECODE(.heads = 4, .key_heads = 2), noisy = {.heads = 4, .key_heads = 2, .kernel = HARK_KERNEL_RBF, .sigma = 1.25},
    later = DECODE(.heads = 2, .key_heads = 1, .first_position = 19),
    unit = {.heads = 2, .key_heads = 2, .kernel = HARK_KERNEL_EXP, .unit = true, .ridge = 1, .scale = 1.5},
    plain = {.heads = 1, .key_heads = 1, .first_position = 3, .kernel = HARK_KERNEL_EXP, .ridge = 4, .scale = 0.25};

#define REAL(low, high, ...)                                                                                                               \
  { HARK_F32, 3, {__VA_ARGS__}, low, high }
/* A triangle whose entries are all near one is well-conditioned. */
#define TRIANGLE(...) REAL(0.98, 1, __VA_ARGS__)
static const hark_sample samples[] = {
    {"beginning",
     &beginning,
     {REAL(-2, 2, 1, 1, 3), REAL(-2, 2, 1, 1, 3), REAL(-2, 2, 1, 1, 5), REAL(-2, 2, 1, 4, 3), REAL(-2, 2, 1, 4, 16), TRIANGLE(1, 1, 256)}},
    {"few_rows",
     &grouped,
     {REAL(-1, 1, 1, 5, 12), REAL(-1, 1, 1, 5, 6), REAL(-1, 1, 1, 5, 4), REAL(-1, 1, 1, 17, 6), REAL(-1, 1, 1, 17, 64),
      TRIANGLE(3, 4, 256)}},
    {"many_rows_learned_kernel",
     &grouped,
     {REAL(-1, 1, 1, 41, 12),
      REAL(-1, 1, 1, 41, 6),
      REAL(-1, 1, 1, 41, 34),
      REAL(-1, 1, 1, 41, 6),
      REAL(-1, 1, 1, 41, 128),
      TRIANGLE(6, 4, 256),
      {HARK_F32, 1, {4}, 0, 0.5},
      {HARK_F32, 1, {1}, 0, 0.5},
      {HARK_F32, 2, {4, 43}, -0.2, 0}}},
    {"noise",
     &noisy,
     {REAL(-1, 1, 1, 5, 12),
      REAL(-1, 1, 1, 5, 6),
      REAL(-1, 1, 1, 5, 4),
      REAL(-1, 1, 1, 17, 6),
      REAL(-1, 1, 1, 17, 64),
      TRIANGLE(3, 4, 256),
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_NONE, 0, {0}, 0, 0},
      REAL(1, 2, 1, 5, 4)}},
    {"unit",
     &unit,
     {REAL(-1, 1, 1, 33, 40), REAL(-1, 1, 1, 33, 40), REAL(-1, 1, 1, 33, 14), REAL(-1, 1, 1, 50, 40), REAL(-1, 1, 1, 50, 32),
      TRIANGLE(10, 2, 256)}},
    {"one_later",
     &later,
     {REAL(-1, 1, 1, 1, 6), REAL(-1, 1, 1, 1, 3), REAL(-1, 1, 1, 1, 3), REAL(-1, 1, 1, 33, 3), REAL(-1, 1, 1, 33, 32),
      TRIANGLE(6, 2, 256)}},
    {"many_later",
     &later,
     {REAL(-1, 1, 1, 9, 6),
      REAL(-1, 1, 1, 9, 3),
      REAL(-1, 1, 1, 9, 3),
      REAL(-1, 1, 1, 33, 3),
      REAL(-1, 1, 1, 33, 32),
      TRIANGLE(6, 2, 256),
      {HARK_F32, 1, {1}, 1, 1.5},
      {HARK_NONE, 0, {0}, 0, 0},
      {HARK_F32, 2, {1, 28}, -0.2, 0}}},
    {"exponential",
     &plain,
     {REAL(-1, 1, 1, 10, 2), REAL(-1, 1, 1, 10, 2), REAL(-1, 1, 1, 10, 1), REAL(-1, 1, 1, 13, 2), REAL(-1, 1, 1, 13, 16),
      TRIANGLE(1, 1, 256)}},
};

const hark_operator hark_op_kernel_ridge_decode = {
    .name = "kernel_ridge_decode",
    .formula =
        "y = U^T R^-1 kappa(K, query) with a row more of R R^T = kappa(K, K) + lambda I + diag(noise) and of U = R^-1 V for every key and "
        "value",
    .attributes_size = sizeof(hark_kernel_ridge_decode_attributes),
    .input_minimum = HARK_RIDGE_DECODE_LOG_RIDGE,
    .input_maximum = HARK_RIDGE_DECODE_INPUTS,
    .output_count = 1,
    .updates = 1u << HARK_RIDGE_DECODE_CACHED_KEY | 1u << HARK_RIDGE_DECODE_SOLVED | 1u << HARK_RIDGE_DECODE_FACTOR,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
