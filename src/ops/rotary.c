/* rotary.c - turns pairs of features by an angle that grows with the position: y0 = x0 cos a - x1 sin a, y1 = x0 sin a + x1 cos a.
 *
 * x, y [B, L, H d], d even; pair j of a head turns by a = (first_position + l) base^(-2j/d). interleaved: the pair is (2j, 2j + 1); half:
 * (j, j + d/2). The dot product of two turned rows depends on the difference of their positions only.
 * Gradient: the inverse turn, by -a. L d/2 sines and cosines for a whole batch, 6 operations a pair. Su et al., arXiv 2104.09864, eq. 34.
 */
#include <inttypes.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

/* Positions that one piece of work takes. */
#define POSITIONS 4
#define OPERATIONS_PER_PAIR 6.0

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}};
  HARK_TRY(hark_check_inputs(context, &hark_op_rotary, rules, attributes, inputs, input_count));
  const hark_rotary_attributes *rotary = attributes;
  const hark_tensor *x = &inputs[INPUT_X];
  if (rotary->heads < 1 || x->shape[2] % rotary->heads != 0) {
    char text[HARK_SHAPE_TEXT_BYTES];
    return hark_fail(context, HARK_SHAPE_MISMATCH, "rotary: x has %s, expected a last dimension that %" PRId64 " heads divide",
                     hark_shape_text(x, text, sizeof text), rotary->heads);
  }
  if (x->shape[2] / rotary->heads % 2 != 0) {
    return hark_fail(context, HARK_UNSUPPORTED, "rotary: a head has %" PRId64 " features, expected an even number",
                     x->shape[2] / rotary->heads);
  }
  if (rotary->first_position < 0) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: first_position is %" PRId64 ", expected 0 or more", rotary->first_position);
  }
  if (!(rotary->base > 0) || !isfinite(rotary->base)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: base is %g, expected a positive number", rotary->base);
  }
  if (rotary->pairs != HARK_ROTARY_INTERLEAVED && rotary->pairs != HARK_ROTARY_HALF) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: pairs is %d, expected one of hark_rotary_pairs", (int)rotary->pairs);
  }
  return hark_tensor_describe(context, x->type, 3, x->shape, &out->outputs[0]);
}

/* to <- from turned by direction * angle, for the positions [first, last) of all sequences */
static void turn(const hark_rotary_attributes *rotary, const hark_tensor *shape, hark_numbers to, hark_numbers from, double direction,
                 int64_t first, int64_t last) {
  const int64_t batch = shape->shape[0], length = shape->shape[1], width = shape->shape[2];
  const int64_t head_width = width / rotary->heads, half = head_width / 2;
  const bool interleaved = rotary->pairs == HARK_ROTARY_INTERLEAVED;
  for (int64_t j = 0; j < half; j++) {
    const double rate = pow(rotary->base, -2 * (double)j / (double)head_width);
    const int64_t offset_0 = interleaved ? 2 * j : j, offset_1 = interleaved ? 2 * j + 1 : j + half;
    for (int64_t l = first; l < last; l++) {
      const double angle = (double)(rotary->first_position + l) * rate;
      const double cosine = cos(angle), sine = direction * sin(angle);
      for (int64_t b = 0; b < batch; b++) {
        for (int64_t h = 0; h < rotary->heads; h++) {
          const int64_t head = (b * length + l) * width + h * head_width;
          const double x0 = hark_get(from, head + offset_0), x1 = hark_get(from, head + offset_1);
          hark_give(to, head + offset_0, x0 * cosine - x1 * sine);
          hark_give(to, head + offset_1, x0 * sine + x1 * cosine);
        }
      }
    }
  }
}

static void forward_positions(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *x = &call->inputs[INPUT_X];
  turn(call->attributes, x, hark_numbers_of(&call->outputs[0]), hark_numbers_of(x), 1, first, last);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_range_for(context, call, call->inputs[INPUT_X].shape[1], POSITIONS, forward_positions);
  return HARK_OK;
}

/* y = R(a) x: dx = R(a)^T dy = R(-a) dy */
static void backward_positions(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *dy = &call->output_gradients[0];
  turn(call->attributes, dy, hark_gradient_of(call, INPUT_X), hark_numbers_of(dy), -1, first, last);
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  hark_range_for(context, call, call->output_gradients[0].shape[1], POSITIONS, backward_positions);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count, (void)is_backward;
  return OPERATIONS_PER_PAIR * (double)(hark_tensor_count(&inputs[INPUT_X]) / 2);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 2;
}

static const hark_rotary_attributes one_pair = {1, 0, 10000, HARK_ROTARY_INTERLEAVED}, interleaved = {3, 0, 10000, HARK_ROTARY_INTERLEAVED},
                                    halves = {3, 0, 10000, HARK_ROTARY_HALF}, late = {2, 4093, 10000, HARK_ROTARY_HALF},
                                    small_base = {1, 17, 100, HARK_ROTARY_INTERLEAVED}, wide = {4, 1, 10000, HARK_ROTARY_HALF};

static const hark_sample samples[] = {
    {"one_pair", &one_pair, {{HARK_F32, 3, {1, 1, 2}, -2, 2}}},
    {"interleaved", &interleaved, {{HARK_F32, 3, {2, 7, 30}, -2, 2}}},
    {"half", &halves, {{HARK_F32, 3, {2, 7, 30}, -2, 2}}},
    {"late_positions", &late, {{HARK_F32, 3, {1, 5, 68}, -2, 2}}},
    {"small_base", &small_base, {{HARK_F32, 3, {3, 13, 34}, -2, 2}}},
    {"many_positions", &interleaved, {{HARK_F32, 3, {1, 257, 6}, -2, 2}}},
    {"wide", &wide, {{HARK_F32, 3, {2, 3, 256}, -2, 2}}},
};

const hark_operator hark_op_rotary = {
    .name = "rotary",
    .formula = "y = R(position base^(-2j/d)) x on pairs of features",
    .attributes_size = sizeof(hark_rotary_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X,
    .in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
