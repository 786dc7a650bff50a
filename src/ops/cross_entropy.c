/* cross_entropy.c - loss = weight sum over rows with target != ignore of lse - (1 - s) x[target] - s mean(x) + z lse^2, where lse =
 * log sum_v exp x[v], s is the label smoothing, and z the weight of the z-loss.
 *
 * logits x [N, V]; targets i32 [N]. Outputs: loss (rank 0), count of the rows that are not ignored (i64, rank 0). Saved: lse [N], 0 for
 * ignored rows, whose logits are not read. The rows' terms are summed in double, in the order of the rows.
 * dx[n, v] = dloss weight ((1 + 2 z lse_n) exp(x[n, v] - lse_n) - (1 - s) [v = target_n] - s / V), 0 in ignored rows; it may overwrite x.
 * About 5 N V operations forward, 4 N V backward. Smoothing: Szegedy et al., arXiv 1512.00567, section 7. z-loss: Chowdhery et al.,
 * arXiv 2204.02311, section 5.
 */
#include <inttypes.h>

#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_LOGITS, INPUT_TARGETS, INPUT_COUNT };
enum { OUTPUT_LOSS, OUTPUT_COUNT_OF_TARGETS, OUTPUT_COUNT };

#define FORWARD_OPERATIONS 5.0 /* per element */
#define BACKWARD_OPERATIONS 4.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"logits", HARK_F32, 1, HARK_MAX_RANK}, {"targets", HARK_I32, 0, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_cross_entropy, rules, attributes, inputs, input_count));
  const hark_cross_entropy_attributes *options = attributes;
  const hark_tensor *logits = &inputs[INPUT_LOGITS], *targets = &inputs[INPUT_TARGETS];
  if (!(options->smoothing >= 0 && options->smoothing < 1)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "cross_entropy: smoothing is %s, expected 0 or more and less than 1",
                     HARK_PRINTED(options->smoothing));
  }
  if (!(options->z >= 0 && isfinite(options->z))) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "cross_entropy: z is %s, expected a finite number of 0 or more",
                     HARK_PRINTED(options->z));
  }
  if (!isfinite(options->weight)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "cross_entropy: weight is %s, expected a finite number",
                     HARK_PRINTED(options->weight));
  }
  HARK_TRY(hark_check_range(context, "cross_entropy", "weight", options->weight, logits->type, hark_range_of(logits->type)));
  if (options->z != 0) HARK_TRY(hark_check_range(context, "cross_entropy", "z", options->z, logits->type, hark_range_of(logits->type)));
  bool fits = targets->rank == logits->rank - 1;
  for (int i = 0; fits && i < targets->rank; i++) fits = targets->shape[i] == logits->shape[i];
  if (!fits) {
    char text_logits[HARK_SHAPE_TEXT_BYTES], text_targets[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "cross_entropy: targets has %s and logits has %s, expected the same without the last",
                     hark_shape_text(targets, text_targets, sizeof text_targets), hark_shape_text(logits, text_logits, sizeof text_logits));
  }
  if (hark_row_length(logits) == 0) {
    return hark_fail(context, HARK_SHAPE_MISMATCH, "cross_entropy: logits have no classes, expected at least one");
  }
  const int64_t rows = hark_row_count(logits);
  HARK_TRY(hark_tensor_describe(context, logits->type, 0, NULL, &out->outputs[OUTPUT_LOSS]));
  HARK_TRY(hark_tensor_describe(context, HARK_I64, 0, NULL, &out->outputs[OUTPUT_COUNT_OF_TARGETS]));
  HARK_TRY(hark_tensor_describe(context, logits->type, 1, &rows, &out->saved[0]));
  return hark_size_multiply(context, (size_t)rows, sizeof(double), &out->forward_workspace); /* the rows' terms */
}

static hark_status check_targets(hark_context *context, const hark_call *call, int64_t rows, int64_t classes) {
  const int32_t ignore = ((const hark_cross_entropy_attributes *)call->attributes)->ignore;
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  for (int64_t n = 0; n < rows; n++) {
    if (target[n] != ignore && (target[n] < 0 || target[n] >= classes)) {
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "cross_entropy: target %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64 ", or %" PRId32 " to ignore it", n,
                       target[n], classes - 1, ignore);
    }
  }
  return HARK_OK;
}

static double log_sum_exp(hark_numbers x, int64_t count) {
  double maximum = hark_get(x, 0), sum = 0;
  for (int64_t v = 1; v < count; v++) maximum = hark_larger(maximum, hark_get(x, v));
  if (isinf(maximum)) return maximum; /* inf - inf is NaN */
  for (int64_t v = 0; v < count; v++) sum += exp(hark_get(x, v) - maximum);
  return maximum + log(sum);
}

static void forward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_cross_entropy_attributes *options = call->attributes;
  const hark_tensor *logits = &call->inputs[INPUT_LOGITS];
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  const hark_numbers saved = hark_numbers_of(&call->saved[0]);
  const int64_t classes = hark_row_length(logits);
  double *row_terms = call->workspace;
  for (int64_t n = first; n < last; n++) {
    const hark_numbers x = hark_numbers_from(hark_numbers_of(logits), n * classes);
    double lse = 0, term = 0;
    if (target[n] != options->ignore) {
      lse = log_sum_exp(x, classes);
      term = lse - (1 - options->smoothing) * hark_get(x, target[n]);
      if (options->smoothing > 0) {
        double sum = 0;
        for (int64_t v = 0; v < classes; v++) sum += hark_get(x, v);
        term -= options->smoothing * sum / (double)classes;
      }
      if (options->z > 0) term += options->z * lse * lse;
    }
    hark_put(saved, n, lse);
    row_terms[n] = term;
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_cross_entropy_attributes *options = call->attributes;
  const hark_tensor *logits = &call->inputs[INPUT_LOGITS];
  const int64_t rows = hark_row_count(logits), classes = hark_row_length(logits);
  HARK_TRY(check_targets(context, call, rows, classes));
  hark_range_for(context, call, rows, hark_row_grain(classes), forward_rows);
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  const double *row_terms = call->workspace;
  double sum = 0;
  int64_t count = 0;
  for (int64_t n = 0; n < rows; n++) {
    if (target[n] == options->ignore) continue;
    sum += row_terms[n];
    count++;
  }
  hark_put(hark_numbers_of(&call->outputs[OUTPUT_LOSS]), 0, options->weight * sum);
  *(int64_t *)call->outputs[OUTPUT_COUNT_OF_TARGETS].data = count;
  return HARK_OK;
}

/* loss = weight (lse - (1 - s) x[t] - s mean(x) + z lse^2):
 * dx[v] = dloss weight ((1 + 2 z lse) exp(x[v] - lse) - (1 - s) [v = t] - s / V) */
static void backward_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_cross_entropy_attributes *options = call->attributes;
  const hark_tensor *logits = &call->inputs[INPUT_LOGITS];
  const int32_t *target = call->inputs[INPUT_TARGETS].data;
  const int64_t classes = hark_row_length(logits);
  const hark_numbers x = hark_numbers_of(logits), dx = hark_gradient_of(call, INPUT_LOGITS), saved = hark_numbers_of(&call->saved[0]);
  const double factor = options->weight * hark_get(hark_numbers_of(&call->output_gradients[OUTPUT_LOSS]), 0);
  const double uniform = options->smoothing / (double)classes;
  for (int64_t n = first; n < last; n++) {
    const bool ignored = target[n] == options->ignore;
    const double lse = hark_get(saved, n), gain = options->z > 0 ? 1 + 2 * options->z * lse : 1;
    for (int64_t v = 0; v < classes; v++) {
      const int64_t i = n * classes + v;
      const double one = v == target[n] ? 1 - options->smoothing : 0;
      hark_give(dx, i, ignored ? 0 : factor * (gain * exp(hark_get(x, i) - lse) - one - uniform));
    }
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_LOGITS])) return HARK_OK;
  const hark_tensor *logits = &call->inputs[INPUT_LOGITS];
  const int64_t rows = hark_row_count(logits), classes = hark_row_length(logits);
  HARK_TRY(check_targets(context, call, rows, classes));
  hark_range_for(context, call, rows, hark_row_grain(classes), backward_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? BACKWARD_OPERATIONS : FORWARD_OPERATIONS) * (double)hark_tensor_count(&inputs[INPUT_LOGITS]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  return hark_row_length(&inputs[INPUT_LOGITS]) + hark_row_count(&inputs[INPUT_LOGITS]);
}

static const hark_cross_entropy_attributes plain = {1, 0, -1, 0}, mean = {1.0 / 64, 0, -1, 0}, smooth = {0.125, 0.1, -1, 0},
                                           padding = {0.25, 0, 0, 0}, squared = {0.5, 0, -1, 0.25}, all = {0.125, 0.1, 0, 0.0625};

static const hark_sample samples[] = {
    {"one_class", &plain, {{HARK_F32, 2, {3, 1}, -2, 2}, {HARK_I32, 1, {3}, 0, 0}}},
    {"one_row", &plain, {{HARK_F32, 1, {37}, -2, 2}, {HARK_I32, 0, {0}, 0, 36}}},
    {"two_classes", &plain, {{HARK_F32, 2, {5, 2}, -4, 4}, {HARK_I32, 1, {5}, 0, 1}}},
    {"batch", &mean, {{HARK_F32, 3, {4, 16, 96}, -5, 5}, {HARK_I32, 2, {4, 16}, 0, 95}}},
    {"ignored", &mean, {{HARK_F32, 3, {3, 7, 5}, -5, 5}, {HARK_I32, 2, {3, 7}, -1, 4}}},
    {"all_ignored", &plain, {{HARK_F32, 2, {3, 7}, -5, 5}, {HARK_I32, 1, {3}, -1, -1}}},
    {"ignore_zero", &padding, {{HARK_F32, 2, {11, 3}, -5, 5}, {HARK_I32, 1, {11}, 0, 2}}},
    {"smoothed", &smooth, {{HARK_F32, 2, {8, 33}, -5, 5}, {HARK_I32, 1, {8}, -1, 32}}},
    {"large_logits", &smooth, {{HARK_F32, 2, {5, 19}, -1e4, 1e4}, {HARK_I32, 1, {5}, 0, 18}}},
    {"log_sum_squared", &squared, {{HARK_F32, 2, {9, 21}, -3, 3}, {HARK_I32, 1, {9}, -1, 20}}},
    {"smoothed_and_squared", &all, {{HARK_F32, 2, {7, 18}, -3, 3}, {HARK_I32, 1, {7}, 0, 17}}},
    {"many_rows", &mean, {{HARK_F32, 2, {257, 17}, -5, 5}, {HARK_I32, 1, {257}, 0, 16}}},
    {"wide", &plain, {{HARK_F32, 2, {3, 1031}, -5, 5}, {HARK_I32, 1, {3}, 0, 1030}}},
};

const hark_operator hark_op_cross_entropy = {
    .name = "cross_entropy",
    .formula = "loss = weight sum_n (lse_n - (1 - s) x[n,target] - s mean_v x[n,v] + z lse_n^2)",
    .attributes_size = sizeof(hark_cross_entropy_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = OUTPUT_COUNT,
    .differentiable = 1u << INPUT_LOGITS,
    .backward_inputs = 1u << INPUT_LOGITS | 1u << INPUT_TARGETS,
    .gradient_in_place = 1u << INPUT_LOGITS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
