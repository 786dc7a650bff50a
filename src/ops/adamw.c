/* adamw.c - one step of AdamW, in place, on flat buffers of n numbers.
 *
 *   g = gradient_scale gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *   w = w - rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon) + decay w)
 *
 * About 15 n operations. Not differentiable. If gradient_scale is not finite, the step is skipped by a branch, so that weights and moments
 * keep their bits. Loshchilov, Hutter, arXiv 1711.05101, algorithm 2, with the rate as the schedule's multiplier.
 */
#include <inttypes.h>

#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_WEIGHT, INPUT_GRADIENT, INPUT_FIRST_MOMENT, INPUT_SECOND_MOMENT, INPUT_COUNT };

#define OPERATIONS_PER_NUMBER 15.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"weight", HARK_F32, 0, HARK_MAX_RANK},
                                                     {"gradient", HARK_F32, 0, HARK_MAX_RANK},
                                                     {"first_moment", HARK_F32, 0, HARK_MAX_RANK},
                                                     {"second_moment", HARK_F32, 0, HARK_MAX_RANK}};
  (void)out;
  HARK_TRY(hark_check_inputs(context, &hark_op_adamw, rules, attributes, inputs, input_count));
  for (int i = INPUT_GRADIENT; i < INPUT_COUNT; i++) {
    HARK_TRY(hark_check_same_shape(context, &hark_op_adamw, "weight", &inputs[INPUT_WEIGHT], rules[i].name, &inputs[i]));
  }
  const hark_adamw_attributes *step = attributes;
  if (step->step < 1) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "adamw: step is %" PRId64 ", expected 1 or more", step->step);
  }
  if (!(step->beta1 >= 0 && step->beta1 < 1) || !(step->beta2 >= 0 && step->beta2 < 1)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "adamw: betas are %s and %s, expected 0 or more and less than 1",
                     HARK_PRINTED(step->beta1), HARK_PRINTED(step->beta2));
  }
  if (!(step->epsilon >= 0) || !isfinite(step->epsilon) || !isfinite(step->rate) || !isfinite(step->decay)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "adamw: rate %s, decay %s, epsilon %s, expected finite numbers, epsilon 0 or more",
                     HARK_PRINTED(step->rate), HARK_PRINTED(step->decay), HARK_PRINTED(step->epsilon));
  }
  const hark_type type = inputs[INPUT_WEIGHT].type;
  const hark_range range = hark_range_of(type), up_to = {0, range.most}; /* a rate may fall to 0, and a scale of large gradients */
  HARK_TRY(hark_check_range(context, "adamw", "epsilon", step->epsilon, type, range));
  HARK_TRY(hark_check_range(context, "adamw", "rate", step->rate, type, up_to));
  HARK_TRY(hark_check_range(context, "adamw", "decay", step->decay, type, up_to));
  if (!isfinite(step->gradient_scale)) return HARK_OK; /* the step is skipped */
  return hark_check_range(context, "adamw", "gradient_scale", step->gradient_scale, type, up_to);
}

static void forward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_adamw_attributes *step = call->attributes;
  const hark_numbers weight = hark_numbers_of(&call->inputs[INPUT_WEIGHT]), gradient = hark_numbers_of(&call->inputs[INPUT_GRADIENT]);
  const hark_numbers first_moment = hark_numbers_of(&call->inputs[INPUT_FIRST_MOMENT]);
  const hark_numbers second_moment = hark_numbers_of(&call->inputs[INPUT_SECOND_MOMENT]);
  const double unbias1 = 1 - pow(step->beta1, (double)step->step), unbias2 = 1 - pow(step->beta2, (double)step->step);
  for (int64_t i = first; i < last; i++) {
    const double g = step->gradient_scale * hark_get(gradient, i), w = hark_get(weight, i);
    const double m = step->beta1 * hark_get(first_moment, i) + (1 - step->beta1) * g;
    const double v = step->beta2 * hark_get(second_moment, i) + (1 - step->beta2) * g * g;
    hark_put(first_moment, i, m);
    hark_put(second_moment, i, v);
    hark_put(weight, i, w - step->rate * (m / unbias1 / (sqrt(v / unbias2) + step->epsilon) + step->decay * w));
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_adamw_attributes *step = call->attributes;
  if (!isfinite(step->gradient_scale)) return HARK_OK;
  hark_range_for(context, call, hark_tensor_count(&call->inputs[INPUT_WEIGHT]), HARK_DEFINITION_GRAIN, forward_range);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? 0 : OPERATIONS_PER_NUMBER * (double)hark_tensor_count(&inputs[INPUT_WEIGHT]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 4;
}

static const hark_adamw_attributes first_step = {1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1}, later = {3e-2, 0.9, 0.999, 1e-8, 0.01, 0.37, 1000},
                                   without_decay = {1e-2, 0.8, 0.95, 1e-6, 0, 1, 7}, skipped = {1e-2, 0.9, 0.95, 1e-8, 0.1, NAN, 3};

#define BUFFERS(n)                                                                                                                         \
  {                                                                                                                                        \
    {HARK_F32, 1, {n}, -1, 1}, {HARK_F32, 1, {n}, -1, 1}, {HARK_F32, 1, {n}, -0.5, 0.5}, { HARK_F32, 1, {n}, 0.01, 1 }                     \
  }
static const hark_sample samples[] = {
    {"one", &first_step, BUFFERS(1)},
    {"odd", &later, BUFFERS(257)},
    {"without_decay", &without_decay, BUFFERS(67)},
    {"many", &later, BUFFERS(9001)},
    {"scale_not_finite", &skipped, BUFFERS(19)},
    {"matrix",
     &first_step,
     {{HARK_F32, 2, {5, 13}, -1, 1}, {HARK_F32, 2, {5, 13}, -1, 1}, {HARK_F32, 2, {5, 13}, 0, 0}, {HARK_F32, 2, {5, 13}, 0, 0}}},
};
#undef BUFFERS

const hark_operator hark_op_adamw = {
    .name = "adamw",
    .formula = "w -= rate (m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + epsilon) + decay w)",
    .attributes_size = sizeof(hark_adamw_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 0,
    .updates = 1u << INPUT_WEIGHT | 1u << INPUT_FIRST_MOMENT | 1u << INPUT_SECOND_MOMENT,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
