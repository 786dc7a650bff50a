/* sinusoidal_positions.c - y[b, l, :] = x[b, l, :] + s[p, :], p = first_position + l or positions[l]: fixed absolute positions.
 *
 * s[p, 2j] = sin(p w_j), s[p, 2j + 1] = cos(p w_j), w_j = base^(-2j / D). x, y [B, L, D]; an odd D ends with a sine.
 * L D sines and cosines for a whole batch. Gradient: dx = dy. Vaswani et al., arXiv 1706.03762, section 3.5.
 */
#include <inttypes.h>

#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_X, INPUT_POSITIONS, INPUT_COUNT };

/* Number of positions of one piece of work. */
#define POSITIONS 8

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}, {"positions", HARK_I32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_sinusoidal_positions, rules, attributes, inputs, input_count));
  const hark_sinusoidal_positions_attributes *positions = attributes;
  if (positions->first_position < 0) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "sinusoidal_positions: first_position is %" PRId64 ", expected 0 or more",
                     positions->first_position);
  }
  if (!(positions->base >= 1) || !isfinite(positions->base)) { /* angles of many turns have no digits left */
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "sinusoidal_positions: base is %s, expected a finite number of at least 1: rates are at most 1",
                     HARK_PRINTED(positions->base));
  }
  if (hark_has_input(inputs, input_count, INPUT_POSITIONS))
    HARK_TRY(hark_check_vector(context, &hark_op_sinusoidal_positions, "positions", &inputs[INPUT_POSITIONS], inputs[INPUT_X].shape[1],
                               "the rows of x"));
  return hark_tensor_describe(context, inputs[INPUT_X].type, 3, inputs[INPUT_X].shape, &out->outputs[0]);
}

/* The position of row l of every sequence. */
static int64_t position_of(const hark_call *call, int64_t l) {
  if (hark_has_input(call->inputs, call->input_count, INPUT_POSITIONS)) return ((const int32_t *)call->inputs[INPUT_POSITIONS].data)[l];
  return ((const hark_sinusoidal_positions_attributes *)call->attributes)->first_position + l;
}

static void forward_positions(const hark_call *call, int64_t first, int64_t last) {
  const hark_sinusoidal_positions_attributes *attributes = call->attributes;
  const hark_tensor *input = &call->inputs[INPUT_X];
  const hark_numbers x = hark_numbers_of(input), y = hark_numbers_of(&call->outputs[0]);
  const int64_t batch = input->shape[0], length = input->shape[1], width = input->shape[2];
  for (int64_t d = 0; d < width; d++) {
    const double rate = pow(attributes->base, -(double)(d - d % 2) / (double)width);
    for (int64_t l = first; l < last; l++) {
      const double angle = (double)position_of(call, l) * rate;
      const double s = d % 2 == 0 ? sin(angle) : cos(angle);
      for (int64_t b = 0; b < batch; b++) {
        const int64_t i = (b * length + l) * width + d;
        hark_put(y, i, hark_get(x, i) + s);
      }
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_range_for(context, call, call->inputs[INPUT_X].shape[1], POSITIONS, forward_positions);
  return HARK_OK;
}

/* y = x + s: dx = dy */
static void backward_range(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers dy = hark_numbers_of(&call->output_gradients[0]), dx = hark_gradient_of(call, INPUT_X);
  for (int64_t i = first; i < last; i++) hark_give(dx, i, hark_get(dy, i));
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  hark_range_for(context, call, hark_tensor_count(&call->output_gradients[0]), HARK_DEFINITION_GRAIN, backward_range);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? 0 : (double)hark_tensor_count(&inputs[INPUT_X]);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 2;
}

static const hark_sinusoidal_positions_attributes usual = {0, 10000}, later = {1000, 10000}, small_base = {5, 100};

static const hark_sample samples[] = {
    {"one", &usual, {{HARK_F32, 3, {1, 1, 1}, -1, 1}}},
    {"even", &usual, {{HARK_F32, 3, {2, 7, 34}, -1, 1}}},
    {"odd_width", &usual, {{HARK_F32, 3, {3, 5, 19}, -1, 1}}},
    {"later", &later, {{HARK_F32, 3, {1, 257, 16}, -1, 1}}},
    {"small_base", &small_base, {{HARK_F32, 3, {2, 13, 65}, -1, 1}}},
    {"positions", &usual, {{HARK_F32, 3, {1, 41, 34}, -1, 1}, {HARK_I32, 1, {41}, 0, 50}}},
    {"positions_odd_width", &small_base, {{HARK_F32, 3, {2, 70, 19}, -1, 1}, {HARK_I32, 1, {70}, 0, 1000}}},
};

const hark_operator hark_op_sinusoidal_positions = {
    .name = "sinusoidal_positions",
    .formula = "y = x + s, s[l,2j] = sin(p w_j), s[l,2j+1] = cos(p w_j), p = first_position + l, w_j = base^(-2j/D)",
    .attributes_size = sizeof(hark_sinusoidal_positions_attributes),
    .input_minimum = 1,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .in_place = 1u << INPUT_X,
    .gradient_passes = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
