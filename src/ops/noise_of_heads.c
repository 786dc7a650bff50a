/* noise_of_heads.c - y[b, h, n] = least + log(1 + exp(x[b, n, h])): noises of keys or queries for every head, from rows of a linear layer.
 *
 * x [..., N, H]; y [B, H, N], the shape of `noise` in kernel_ridge, with the product B of the dimensions before N; or with `by_rows` the
 * shape of x, that of `noise` in kernel_ridge_decode. dx = dy / (1 + exp(-x)). About 6 operations per element forward, 5 backward.
 */
#include <hark/experimental.h>

#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

#define FORWARD_OPERATIONS 6.0 /* per element */
#define BACKWARD_OPERATIONS 5.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, HARK_MAX_RANK}};
  const hark_operator *const op = &hark_op_noise_of_heads;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const double least = ((const hark_noise_of_heads_attributes *)attributes)->least;
  const hark_type type = inputs[INPUT_X].type;
  if (!(least >= 0 && isfinite(least)))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "noise_of_heads: least is %s, expected a finite number from 0", HARK_PRINTED(least));
  HARK_TRY(hark_check_range(context, "noise_of_heads", "least", least, type, hark_range_of(type)));
  const hark_tensor *const x = &inputs[INPUT_X];
  const int64_t heads = hark_row_length(x), rows = x->shape[x->rank - 2], elements = rows * heads;
  const int64_t shape[] = {elements > 0 ? hark_tensor_count(x) / elements : 1, heads, rows};
  if (((const hark_noise_of_heads_attributes *)attributes)->by_rows)
    return hark_tensor_describe(context, type, x->rank, x->shape, &out->outputs[0]);
  return hark_tensor_describe(context, type, 3, shape, &out->outputs[0]);
}

/* The place in y of x[row, h], where row counts over the batch. */
typedef struct places {
  int64_t heads, rows;
  bool by_rows;
} places;

static places places_of(const hark_call *call) {
  const hark_tensor *const x = &call->inputs[INPUT_X];
  return (places){hark_row_length(x), x->shape[x->rank - 2], ((const hark_noise_of_heads_attributes *)call->attributes)->by_rows};
}

static int64_t place(const places *is, int64_t row, int64_t h) {
  return is->by_rows ? row * is->heads + h : (row / is->rows * is->heads + h) * is->rows + row % is->rows;
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const double least = ((const hark_noise_of_heads_attributes *)call->attributes)->least;
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), y = hark_numbers_of(&call->outputs[0]);
  const places is = places_of(call);
  for (int64_t n = first; n < last; n++)
    for (int64_t h = 0; h < is.heads; h++) { /* the larger of x and 0 taken out, so that nothing overflows */
      const double at = hark_get(x, n * is.heads + h);
      hark_put(y, place(&is, n, h), least + fmax(at, 0) + log1p(exp(-fabs(at))));
    }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_tensor *const x = &call->inputs[INPUT_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), forward_rows);
  return HARK_OK;
}

/* y = least + log(1 + exp(x)): dx = dy / (1 + exp(-x)) */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers x = hark_numbers_of(&call->inputs[INPUT_X]), dy = hark_numbers_of(&call->output_gradients[0]),
                     dx = hark_gradient_of(call, INPUT_X);
  const places is = places_of(call);
  for (int64_t n = first; n < last; n++)
    for (int64_t h = 0; h < is.heads; h++) {
      const double at = hark_get(x, n * is.heads + h), small = exp(-fabs(at));
      hark_give(dx, n * is.heads + h, hark_get(dy, place(&is, n, h)) * (at >= 0 ? 1 : small) / (1 + small));
    }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_tensor *const x = &call->inputs[INPUT_X];
  hark_range_for(context, call, hark_row_count(x), hark_row_grain(hark_row_length(x)), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 2;
}

static const hark_noise_of_heads_attributes none = {0, false}, some = {0.25, false}, rows = {0.25, true};

static const hark_sample samples[] = {
    {"one", &some, {{HARK_F32, 2, {1, 1}, -3, 3}}},        {"empty", &some, {{HARK_F32, 2, {0, 3}, -3, 3}}},
    {"primes", &none, {{HARK_F32, 3, {3, 5, 7}, -3, 3}}},  {"steep", &none, {{HARK_F32, 2, {33, 2}, -30, 30}}},
    {"by_rows", &rows, {{HARK_F32, 3, {2, 5, 3}, -3, 3}}}, {"many", &some, {{HARK_F32, 3, {1, 1031, 4}, -2, 2}}},
};

const hark_operator hark_op_noise_of_heads = {
    .name = "noise_of_heads",
    .formula = "y[b, h, n] = least + log(1 + exp(x[b, n, h])); with by_rows y[b, n, h]",
    .attributes_size = sizeof(hark_noise_of_heads_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .backward_inputs = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
