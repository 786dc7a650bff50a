/* rotary.c - rotates pairs of features by an angle proportional to the position: y0 = x0 cos a - x1 sin a, y1 = x0 sin a + x1 cos a.
 *
 * x, y [B, L, H d], d even; pair j of a head rotates by a = p theta_j at position p = first_position + l, or positions[l]. interleaved: the
 * pair is (2j, 2j + 1); half: (j, j + d/2). theta_j = base^(-2j/d), or a given angle, from the attributes or rates[h R / H][j] of rates [R,
 * pairs], divided by stretch; with both, their product. The dot product of two rotated rows depends only on the difference of their
 * positions. Gradients: of x the inverse rotation, by -a; of a rate the sum of p f_j / stretch (dy1 y0 - dy0 y1) over all pairs with this
 * rate, f_j the attributes' number or 1, in parts of consecutive positions that depend on L alone. L R d/2 sines and cosines for a whole
 * batch, 6 operations per pair. Su et al., arXiv 2104.09864, eq. 34; learned rates: docs/mathematics/rotary.md.
 */
#include <inttypes.h>

#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_X, INPUT_RATES, INPUT_POSITIONS, INPUT_COUNT };

/* Number of positions of one piece of work. */
#define POSITIONS 4
#define OPERATIONS_PER_PAIR 6.0
#define OPERATIONS_OF_RATES 4.0 /* per pair, for the gradient by its rate */

static hark_status check_attributes(hark_context *context, const hark_rotary_attributes *rotary, const hark_tensor *x, bool has_rates) {
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
  if (!(rotary->base >= 1) || !isfinite(rotary->base)) { /* angles of many turns have no digits left */
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: base is %s, expected a finite number of at least 1: rates are at most 1",
                     HARK_PRINTED(rotary->base));
  }
  if (rotary->pairs != HARK_ROTARY_INTERLEAVED && rotary->pairs != HARK_ROTARY_HALF) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: pairs is %d, expected one of hark_rotary_pairs", (int)rotary->pairs);
  }
  const int64_t half = x->shape[2] / rotary->heads / 2;
  if (rotary->turned < 0 || rotary->turned > half) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: turned is %" PRId64 ", expected 0 to %" PRId64, rotary->turned, half);
  }
  if (rotary->stretch != 0 && !(rotary->stretch >= 1 && isfinite(rotary->stretch))) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: stretch is %s, expected 1 or more, or 0 for 1",
                     HARK_PRINTED(rotary->stretch));
  }
  const bool given = has_rates || rotary->rates != NULL;
  if (rotary->original_length < 0 || (rotary->original_length > 0 && given)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: original_length is %" PRId64 ", expected 0%s", rotary->original_length,
                     given ? " where rates are given" : " or more");
  }
  if (rotary->original_length > 0 && !(rotary->base > 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rotary: base is %s, expected more than 1 with an original_length",
                     HARK_PRINTED(rotary->base));
  return HARK_OK;
}

static int64_t head_width(const hark_rotary_attributes *rotary, const hark_tensor *x) { return x->shape[2] / rotary->heads; }

static int64_t turned_pairs(const hark_rotary_attributes *rotary, const hark_tensor *x) {
  return rotary->turned > 0 ? rotary->turned : head_width(rotary, x) / 2;
}

static hark_status check_rates(hark_context *context, const hark_rotary_attributes *rotary, const hark_tensor *x,
                               const hark_tensor *rates) {
  const int64_t pairs = turned_pairs(rotary, x);
  if (rates->shape[0] > 0 && rotary->heads % rates->shape[0] == 0 && rates->shape[1] == pairs) return HARK_OK;
  char text[HARK_SHAPE_TEXT_BYTES];
  return hark_fail(context, HARK_SHAPE_MISMATCH, "rotary: rates has %s, expected [R, %" PRId64 "] where R divides %" PRId64 " heads",
                   hark_shape_text(rates, text, sizeof text), pairs, rotary->heads);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}, {"rates", HARK_F32, 2, 2}, {"positions", HARK_I32, 1, 1}};
  HARK_TRY(hark_check_inputs(context, &hark_op_rotary, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X], *rates = &inputs[INPUT_RATES];
  const bool has_rates = hark_has_input(inputs, input_count, INPUT_RATES);
  HARK_TRY(check_attributes(context, attributes, x, has_rates));
  if (has_rates) {
    HARK_TRY(check_rates(context, attributes, x, rates));
    HARK_TRY(hark_partials_bytes(context, hark_tensor_count(rates), &out->backward_workspace));
  }
  if (hark_has_input(inputs, input_count, INPUT_POSITIONS))
    HARK_TRY(hark_check_vector(context, &hark_op_rotary, "positions", &inputs[INPUT_POSITIONS], x->shape[1], "the rows of x"));
  return hark_tensor_describe(context, x->type, 3, x->shape, &out->outputs[0]);
}

/* The position of row l of every sequence. */
static int64_t position_of(const hark_call *call, int64_t l) {
  if (hark_has_input(call->inputs, call->input_count, INPUT_POSITIONS)) return ((const int32_t *)call->inputs[INPUT_POSITIONS].data)[l];
  return ((const hark_rotary_attributes *)call->attributes)->first_position + l;
}

static double stretch_of(const hark_rotary_attributes *rotary) { return rotary->stretch != 0 ? rotary->stretch : 1; }

/* Of the rate that an input gives for pair j. */
static double factor_of(const hark_rotary_attributes *rotary, int64_t j) { return rotary->rates != NULL ? rotary->rates[j] : 1; }

/* R, or 1 where no rates are given: the heads of row r begin at r H / R and end before those of the next row. */
static int64_t rate_rows(const hark_call *call) {
  return hark_has_input(call->inputs, call->input_count, INPUT_RATES) ? call->inputs[INPUT_RATES].shape[0] : 1;
}

/* The angle of pair j per position, in the heads of a row. */
static double rate_of(const hark_call *call, int64_t row, int64_t j) {
  const hark_rotary_attributes *rotary = call->attributes;
  if (!hark_has_input(call->inputs, call->input_count, INPUT_RATES))
    return hark_rotary_rate(rotary, head_width(rotary, &call->inputs[INPUT_X]), j);
  const hark_tensor *rates = &call->inputs[INPUT_RATES];
  return hark_get(hark_numbers_of(rates), row * rates->shape[1] + j) * factor_of(rotary, j) / stretch_of(rotary);
}

/* The two features of pair j in a head. */
static void places(const hark_rotary_attributes *rotary, int64_t width, int64_t j, int64_t *place_0, int64_t *place_1) {
  const bool interleaved = rotary->pairs == HARK_ROTARY_INTERLEAVED;
  *place_0 = interleaved ? 2 * j : j;
  *place_1 = interleaved ? 2 * j + 1 : j + width / 2;
}

/* to <- from, rotated by direction * angle, for the positions [first, last) of all sequences, in the heads of one row of rates */
static void turn_heads(const hark_call *call, hark_numbers to, hark_numbers from, double direction, int64_t first, int64_t last,
                       int64_t row) {
  const hark_rotary_attributes *rotary = call->attributes;
  const hark_tensor *x = &call->inputs[INPUT_X];
  const int64_t batch = x->shape[0], length = x->shape[1], heads = rotary->heads / rate_rows(call);
  const int64_t width = head_width(rotary, x), turned = turned_pairs(rotary, x);
  for (int64_t j = 0; j < width / 2; j++) {
    const double rate = j < turned ? rate_of(call, row, j) : 0;
    int64_t place_0, place_1;
    places(rotary, width, j, &place_0, &place_1);
    for (int64_t l = first; l < last; l++) {
      const double angle = (double)position_of(call, l) * rate;
      const double cosine = cos(angle), sine = direction * sin(angle);
      for (int64_t b = 0; b < batch; b++) {
        for (int64_t h = row * heads; h < (row + 1) * heads; h++) {
          const int64_t head = (b * length + l) * x->shape[2] + h * width;
          const double x0 = hark_get(from, head + place_0), x1 = hark_get(from, head + place_1);
          hark_give(to, head + place_0, j < turned ? x0 * cosine - x1 * sine : x0);
          hark_give(to, head + place_1, j < turned ? x0 * sine + x1 * cosine : x1);
        }
      }
    }
  }
}

static void turn(const hark_call *call, hark_numbers to, hark_numbers from, double direction, int64_t first, int64_t last) {
  for (int64_t row = 0; row < rate_rows(call); row++) turn_heads(call, to, from, direction, first, last, row);
}

static void forward_positions(const hark_call *call, int64_t first, int64_t last) {
  turn(call, hark_numbers_of(&call->outputs[0]), hark_numbers_of(&call->inputs[INPUT_X]), 1, first, last);
}

static hark_status forward(hark_context *context, const hark_call *call) {
  hark_range_for(context, call, call->inputs[INPUT_X].shape[1], POSITIONS, forward_positions);
  return HARK_OK;
}

/* y = R(a) x: dx = R(a)^T dy = R(-a) dy */
static void backward_positions(const hark_call *call, int64_t first, int64_t last) {
  turn(call, hark_gradient_of(call, INPUT_X), hark_numbers_of(&call->output_gradients[0]), -1, first, last);
}

/* Number of positions in one part of the sums for the rates. */
static int64_t part_positions(int64_t length) { return hark_max(1, hark_ceil_div(length, HARK_DEFINITION_PARTIALS)); }

/* y = R(a) x: dy . dy/da = dy1 y0 - dy0 y1, and da/drate = p factor / stretch, over the positions [first, last) and the heads of a row */
static double rate_gradient(const hark_call *call, int64_t row, int64_t j, int64_t first, int64_t last) {
  const hark_rotary_attributes *rotary = call->attributes;
  const hark_tensor *x = &call->inputs[INPUT_X];
  const hark_numbers y = hark_numbers_of(&call->outputs[0]), dy = hark_numbers_of(&call->output_gradients[0]);
  const int64_t width = head_width(rotary, x), heads = rotary->heads / rate_rows(call);
  int64_t place_0, place_1;
  places(rotary, width, j, &place_0, &place_1);
  double sum = 0;
  for (int64_t l = first; l < last; l++) {
    const double position = (double)position_of(call, l) * factor_of(rotary, j) / stretch_of(rotary);
    for (int64_t b = 0; b < x->shape[0]; b++) {
      for (int64_t h = row * heads; h < (row + 1) * heads; h++) {
        const int64_t head = (b * x->shape[1] + l) * x->shape[2] + h * width;
        sum += position *
               (hark_get(dy, head + place_1) * hark_get(y, head + place_0) - hark_get(dy, head + place_0) * hark_get(y, head + place_1));
      }
    }
  }
  return sum;
}

/* One part of the sums, [R, pairs], to its place in the workspace. */
static void backward_rates(const hark_call *call, int64_t first, int64_t last) {
  const hark_tensor *rates = &call->inputs[INPUT_RATES];
  const int64_t part = first / part_positions(call->inputs[INPUT_X].shape[1]), count = hark_tensor_count(rates);
  double *sums = (double *)call->workspace + part * count;
  for (int64_t i = 0; i < count; i++) sums[i] = rate_gradient(call, i / rates->shape[1], i % rates->shape[1], first, last);
}

static void add_parts(const hark_call *call) {
  const hark_numbers gradient = hark_gradient_of(call, INPUT_RATES);
  const int64_t count = hark_tensor_count(&call->inputs[INPUT_RATES]), length = call->inputs[INPUT_X].shape[1];
  const int64_t parts = hark_ceil_div(length, part_positions(length));
  for (int64_t i = 0; i < count; i++) {
    double sum = 0;
    for (int64_t part = 0; part < parts; part++) sum += ((const double *)call->workspace)[part * count + i];
    hark_give(gradient, i, sum);
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  const int64_t length = call->output_gradients[0].shape[1];
  if (hark_present(&call->input_gradients[INPUT_X])) hark_range_for(context, call, length, POSITIONS, backward_positions);
  if (hark_present(&call->input_gradients[INPUT_RATES])) {
    hark_range_for(context, call, length, part_positions(length), backward_rates);
    add_parts(call);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes;
  const bool by_rates = is_backward && hark_has_input(inputs, input_count, INPUT_RATES);
  return (OPERATIONS_PER_PAIR + (by_rates ? OPERATIONS_OF_RATES : 0)) * (double)(hark_tensor_count(&inputs[INPUT_X]) / 2);
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  const int64_t heads = ((const hark_rotary_attributes *)attributes)->heads;
  if (!hark_has_input(inputs, input_count, INPUT_RATES)) return 2;
  return 2 * inputs[INPUT_X].shape[0] * inputs[INPUT_X].shape[1] * (heads / inputs[INPUT_RATES].shape[0]);
}

/* Not from a formula, like those of a published model. */
static const double table[] = {1, 0.7, 0.31, 0.2, -0.05, 0.0125, 1e-3, 0, 3e-5};

static const hark_rotary_attributes one_pair = {1, 0, 10000, HARK_ROTARY_INTERLEAVED, 0, 0, 0, NULL},
                                    interleaved = {3, 0, 10000, HARK_ROTARY_INTERLEAVED, 0, 0, 0, NULL},
                                    halves = {3, 0, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                    late = {2, 4093, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                    small_base = {1, 17, 100, HARK_ROTARY_INTERLEAVED, 0, 0, 0, NULL},
                                    wide = {4, 1, 10000, HARK_ROTARY_HALF, 0, 0, 0, NULL},
                                    some = {2, 5, 10000, HARK_ROTARY_INTERLEAVED, 3, 0, 0, NULL},
                                    some_halves = {3, 0, 10, HARK_ROTARY_HALF, 4, 0, 0, NULL},
                                    stretched = {2, 9, 10000, HARK_ROTARY_HALF, 0, 2.5, 0, NULL},
                                    by_parts = {1, 31, 10000, HARK_ROTARY_HALF, 0, 4, 16, NULL},
                                    grouped = {4, 2, 10000, HARK_ROTARY_HALF, 17, 3, 0, NULL},
                                    of_table = {2, 11, 10000, HARK_ROTARY_HALF, 0, 0, 0, table},
                                    some_of_table = {2, 11, 10000, HARK_ROTARY_INTERLEAVED, 3, 2.5, 0, table};

static const hark_sample samples[] = {
    {"one_pair", &one_pair, {{HARK_F32, 3, {1, 1, 2}, -2, 2}}},
    {"interleaved", &interleaved, {{HARK_F32, 3, {2, 7, 30}, -2, 2}}},
    {"half", &halves, {{HARK_F32, 3, {2, 7, 30}, -2, 2}}},
    {"late_positions", &late, {{HARK_F32, 3, {1, 5, 68}, -2, 2}}},
    {"small_base", &small_base, {{HARK_F32, 3, {3, 13, 34}, -2, 2}}},
    {"many_positions", &interleaved, {{HARK_F32, 3, {1, 257, 6}, -2, 2}}},
    {"some_pairs", &some, {{HARK_F32, 3, {2, 19, 20}, -2, 2}}},
    {"some_pairs_half", &some_halves, {{HARK_F32, 3, {2, 5, 30}, -2, 2}}},
    {"stretched", &stretched, {{HARK_F32, 3, {1, 21, 36}, -2, 2}}},
    {"by_parts", &by_parts, {{HARK_F32, 3, {1, 17, 64}, -2, 2}}},
    {"table", &of_table, {{HARK_F32, 3, {2, 13, 36}, -2, 2}}},
    {"table_of_some_stretched", &some_of_table, {{HARK_F32, 3, {2, 5, 20}, -2, 2}}},
    {"table_positions", &of_table, {{HARK_F32, 3, {1, 23, 36}, -2, 2}, {.type = HARK_NONE}, {HARK_I32, 1, {23}, 0, 400}}},
    {"rates_shared", &interleaved, {{HARK_F32, 3, {2, 7, 30}, -2, 2}, {HARK_F32, 2, {1, 5}, -1, 1}}},
    {"rates_of_heads", &halves, {{HARK_F32, 3, {2, 23, 30}, -2, 2}, {HARK_F32, 2, {3, 5}, -1, 1}}},
    {"rates_of_groups", &grouped, {{HARK_F32, 3, {2, 5, 160}, -2, 2}, {HARK_F32, 2, {2, 17}, -1, 1}}},
    {"rates_of_some", &some, {{HARK_F32, 3, {1, 37, 20}, -2, 2}, {HARK_F32, 2, {2, 3}, -1, 1}}},
    {"rates_many_positions", &interleaved, {{HARK_F32, 3, {1, 131, 6}, -2, 2}, {HARK_F32, 2, {1, 1}, -1, 1}}},
    {"rates_times_table", &of_table, {{HARK_F32, 3, {2, 21, 36}, -2, 2}, {HARK_F32, 2, {2, 9}, -1, 1}}},
    {"rates_of_some_times_table", &some_of_table, {{HARK_F32, 3, {1, 9, 20}, -2, 2}, {HARK_F32, 2, {1, 3}, -1, 1}}},
    {"wide", &wide, {{HARK_F32, 3, {2, 3, 256}, -2, 2}}},
    {"positions", &halves, {{HARK_F32, 3, {1, 37, 30}, -2, 2}, {.type = HARK_NONE}, {HARK_I32, 1, {37}, 0, 40}}},
    {"positions_rates", &grouped, {{HARK_F32, 3, {2, 19, 160}, -2, 2}, {HARK_F32, 2, {2, 17}, -1, 1}, {HARK_I32, 1, {19}, 0, 9}}},
    {"positions_some_pairs", &some, {{HARK_F32, 3, {1, 70, 20}, -2, 2}, {.type = HARK_NONE}, {HARK_I32, 1, {70}, 0, 2000}}},
};

const hark_operator hark_op_rotary = {
    .name = "rotary",
    .formula = "y = R(position rate) x on pairs of features, rate = base^(-2j/d) or learned",
    .attributes_size = sizeof(hark_rotary_attributes),
    .input_minimum = 1,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_X | 1u << INPUT_RATES,
    .backward_inputs = 1u << INPUT_RATES | 1u << INPUT_POSITIONS,
    .backward_outputs = 1u << 0,
    .in_place = 1u << INPUT_X,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
