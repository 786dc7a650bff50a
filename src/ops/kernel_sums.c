/* kernel_sums.c - sums of a positional kernel over 2^k distances: y[k, h, t] = log of the sum of G(t) .. G(t + 2^k - 1), as far as the
 * table goes. Each level adds pairs of sums of the level below. Gradients take the same way back, in proportion to the parts of a sum.
 * O(levels K T), in double.
 */
#include <hark/experimental.h>
#include <inttypes.h>
#include <math.h>

#include "ops/definition.h"

enum { INPUT_LOG_KERNEL, INPUT_COUNT };

#define MOST_LEVELS 40
#define OPERATIONS_PER_TERM 4.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"log_kernel", HARK_F32, 2, 2}};
  const hark_kernel_sums_attributes *sums = attributes;
  HARK_TRY(hark_check_inputs(context, &hark_op_kernel_sums, rules, attributes, inputs, input_count));
  if (sums->levels < 1 || sums->levels > MOST_LEVELS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "kernel_sums: levels is %" PRId64 ", expected 1 to %d", sums->levels, MOST_LEVELS);
  const hark_tensor *table = &inputs[INPUT_LOG_KERNEL];
  const int64_t shape[] = {sums->levels, table->shape[0], table->shape[1]};
  size_t doubles;
  HARK_TRY(hark_size_multiply(context, (size_t)table->shape[1], (size_t)sums->levels * sizeof(double), &doubles));
  out->forward_workspace = doubles;
  HARK_TRY(hark_size_multiply(context, 2, doubles, &out->backward_workspace));
  return hark_tensor_describe(context, table->type, 3, shape, &out->outputs[0]);
}

static double log_add(double a, double b) {
  const double top = a > b || isnan(a) ? a : b;
  return isfinite(top) ? top + log(exp(a - top) + exp(b - top)) : top;
}

/* y of row h of the table, [levels][T]. */
static void make_sums(const hark_call *call, int64_t row, double *y) {
  const hark_kernel_sums_attributes *sums = call->attributes;
  const int64_t distances = call->inputs[INPUT_LOG_KERNEL].shape[1];
  const hark_numbers table = hark_numbers_of(&call->inputs[INPUT_LOG_KERNEL]);
  for (int64_t t = 0; t < distances; t++) y[t] = hark_get(table, row * distances + t);
  for (int64_t level = 1; level < sums->levels; level++) {
    const double *half = y + (level - 1) * distances;
    const int64_t step = (int64_t)1 << (level - 1);
    for (int64_t t = 0; t < distances; t++) y[level * distances + t] = step < distances - t ? log_add(half[t], half[t + step]) : half[t];
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_kernel_sums_attributes *sums = call->attributes;
  const int64_t rows = call->inputs[INPUT_LOG_KERNEL].shape[0], distances = call->inputs[INPUT_LOG_KERNEL].shape[1];
  const hark_numbers to = hark_numbers_of(&call->outputs[0]);
  double *const y = call->workspace;
  (void)context;
  for (int64_t row = 0; row < rows; row++) {
    make_sums(call, row, y);
    for (int64_t level = 0; level < sums->levels; level++)
      for (int64_t t = 0; t < distances; t++) hark_put(to, (level * rows + row) * distances + t, y[level * distances + t]);
  }
  return HARK_OK;
}

static hark_status backward(hark_context *context, const hark_call *call) {
  const hark_kernel_sums_attributes *sums = call->attributes;
  const int64_t rows = call->inputs[INPUT_LOG_KERNEL].shape[0], distances = call->inputs[INPUT_LOG_KERNEL].shape[1];
  (void)context;
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_LOG_KERNEL])) return HARK_OK;
  const hark_numbers from = hark_numbers_of(&call->output_gradients[0]), to = hark_gradient_of(call, INPUT_LOG_KERNEL);
  double *const y = call->workspace, *const dy = y + sums->levels * distances;
  for (int64_t row = 0; row < rows; row++) {
    make_sums(call, row, y);
    for (int64_t level = 0; level < sums->levels; level++)
      for (int64_t t = 0; t < distances; t++) dy[level * distances + t] = hark_get(from, (level * rows + row) * distances + t);
    for (int64_t level = sums->levels - 1; level > 0; level--) {
      const double *all = y + level * distances, *half = all - distances, *dall = dy + level * distances;
      double *dhalf = dy + (level - 1) * distances;
      const int64_t step = (int64_t)1 << (level - 1);
      for (int64_t t = 0; t < distances; t++) {
        if (all[t] == -INFINITY) continue; /* as flat as a sum of nothing */
        dhalf[t] += dall[t] * (step < distances - t ? exp(half[t] - all[t]) : 1);
        if (step < distances - t) dhalf[t + step] += dall[t] * exp(half[t + step] - all[t]);
      }
    }
    for (int64_t t = 0; t < distances; t++) hark_give(to, row * distances + t, y[t] == -INFINITY ? 0 : dy[t]);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  const hark_kernel_sums_attributes *sums = attributes;
  (void)input_count, (void)is_backward;
  return OPERATIONS_PER_TERM * (double)(sums->levels - 1) * (double)inputs[INPUT_LOG_KERNEL].shape[0] *
         (double)inputs[INPUT_LOG_KERNEL].shape[1];
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const hark_kernel_sums_attributes *sums = attributes;
  (void)input_count;
  return 2 * sums->levels + inputs[INPUT_LOG_KERNEL].shape[1];
}

static const hark_kernel_sums_attributes four = {4}, one = {1}, many = {7};

static const hark_sample samples[] = {
    {"levels", &four, {{HARK_F32, 2, {2, 32}, -3, 0}}},
    {"one_level", &one, {{HARK_F32, 2, {3, 4}, -3, 0}}},
    {"beyond_the_table", &many, {{HARK_F32, 2, {1, 21}, -3, 0}}},
};

const hark_operator hark_op_kernel_sums = {
    .name = "kernel_sums",
    .formula = "y = log of the sum of G over 2^k distances",
    .attributes_size = sizeof(hark_kernel_sums_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_LOG_KERNEL,
    .backward_inputs = 1u << INPUT_LOG_KERNEL,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
