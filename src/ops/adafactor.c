/* adafactor.c - one step of Adafactor, in place, on one tensor. With g = gradient_scale gradient, element by element:
 *
 *   matrix [n, m] with column_moment:  r_i = beta2 r_i + (1 - beta2) mean_j (g_ij^2 + epsilon)         row moments, second_moment [n]
 *                                      c_j = beta2 c_j + (1 - beta2) mean_i (g_ij^2 + epsilon)         column moments [m]
 *                                      V_ij = r_i c_j / mean(r)
 *   any other tensor:                  V = v = beta2 v + (1 - beta2) (g^2 + epsilon)                   second_moment, of its shape
 *
 *   U = g / sqrt(V);  u = rate max(least_scale, RMS(w)) U / max(1, RMS(U) / most)
 *   with first_moment:  m = beta1 m + (1 - beta1) u;  u = m
 *   w = w - u - rate decay w
 *
 * RMS(x) is the root of the mean of x^2. least_scale 0: the rate is not multiplied by RMS(w); most 0: no bound. The means of the paper are
 * sums; V is the same. About 14 n m operations. Not differentiable. A moment that its type cannot store is the largest finite number. If
 * gradient_scale is not finite, nothing is changed. Shazeer, Stern, arXiv 1804.04235, algorithms 4 and 5; the average of updates is that
 * of its authors' program (tensor2tensor).
 */
#include "core/adafactor.h"

#include <float.h>

#include "core/range.h"
#include "io/number.h"
#include "ops/definition.h"

enum { INPUT_WEIGHT, INPUT_GRADIENT, INPUT_SECOND_MOMENT, INPUT_COLUMN_MOMENT, INPUT_FIRST_MOMENT, INPUT_COUNT };

#define INPUT_MINIMUM INPUT_COLUMN_MOMENT
#define OPERATIONS_PER_NUMBER 14.0

/* ---- checks ---- */

static bool is_factored(const hark_tensor *inputs, int count) { return hark_has_input(inputs, count, INPUT_COLUMN_MOMENT); }

static hark_status check_shapes(hark_context *context, const hark_tensor *inputs, int count) {
  const hark_operator *const op = &hark_op_adafactor;
  const hark_tensor *const weight = &inputs[INPUT_WEIGHT];
  HARK_TRY(hark_check_same_shape(context, op, "weight", weight, "gradient", &inputs[INPUT_GRADIENT]));
  if (hark_has_input(inputs, count, INPUT_FIRST_MOMENT))
    HARK_TRY(hark_check_same_shape(context, op, "weight", weight, "first_moment", &inputs[INPUT_FIRST_MOMENT]));
  if (!is_factored(inputs, count))
    return hark_check_same_shape(context, op, "weight", weight, "second_moment", &inputs[INPUT_SECOND_MOMENT]);
  if (weight->rank != 2)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "adafactor: weight has %d dimensions, expected 2 with column_moment", weight->rank);
  HARK_TRY(hark_check_vector(context, op, "second_moment", &inputs[INPUT_SECOND_MOMENT], weight->shape[0], "rows of weight"));
  return hark_check_vector(context, op, "column_moment", &inputs[INPUT_COLUMN_MOMENT], weight->shape[1], "columns of weight");
}

static hark_status check_numbers(hark_context *context, const hark_adafactor_attributes *step, bool averages, hark_type type) {
  const hark_range range = hark_range_of(type), up_to = {0, range.most}; /* a rate may fall to 0, and a scale of large gradients */
  if (!(step->beta1 >= 0 && step->beta1 < 1) || !(step->beta2 >= 0 && step->beta2 < 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "adafactor: betas are %s and %s, expected 0 or more and less than 1",
                     HARK_PRINTED(step->beta1), HARK_PRINTED(step->beta2));
  if (step->beta1 > 0 && !averages)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "adafactor: beta1 is %s, expected 0 without first_moment", HARK_PRINTED(step->beta1));
  if (!(step->epsilon > 0) || !(step->least_scale >= 0) || !(step->most >= 0))
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "adafactor: epsilon %s, least_scale %s, most %s, expected epsilon above 0 and the others 0 or more",
                     HARK_PRINTED(step->epsilon), HARK_PRINTED(step->least_scale), HARK_PRINTED(step->most));
  HARK_TRY(hark_check_range(context, "adafactor", "epsilon", step->epsilon, type, range));
  HARK_TRY(hark_check_range(context, "adafactor", "least_scale", step->least_scale, type, range));
  HARK_TRY(hark_check_range(context, "adafactor", "most", step->most, type, range));
  HARK_TRY(hark_check_range(context, "adafactor", "rate", step->rate, type, up_to));
  HARK_TRY(hark_check_range(context, "adafactor", "decay", step->decay, type, up_to));
  if (!isfinite(step->gradient_scale)) return HARK_OK; /* the step is skipped */
  return hark_check_range(context, "adafactor", "gradient_scale", step->gradient_scale, type, up_to);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"weight", HARK_F32, 0, HARK_MAX_RANK},
                                                     {"gradient", HARK_F32, 0, HARK_MAX_RANK},
                                                     {"second_moment", HARK_F32, 0, HARK_MAX_RANK},
                                                     {"column_moment", HARK_F32, 1, 1},
                                                     {"first_moment", HARK_F32, 0, HARK_MAX_RANK}};
  HARK_TRY(hark_check_inputs(context, &hark_op_adafactor, rules, attributes, inputs, input_count));
  HARK_TRY(check_shapes(context, inputs, input_count));
  HARK_TRY(check_numbers(context, attributes, hark_has_input(inputs, input_count, INPUT_FIRST_MOMENT), inputs[INPUT_WEIGHT].type));
  const int64_t *const shape = inputs[INPUT_WEIGHT].shape;
  size_t columns = 0;
  if (is_factored(inputs, input_count))
    HARK_TRY(
        hark_size_multiply(context, (size_t)shape[1], (size_t)(hark_adafactor_pieces(shape[0], shape[1]) + 1) * sizeof(double), &columns));
  return hark_size_add(context, sizeof(hark_adafactor_totals), columns, &out->forward_workspace);
}

/* ---- forward ---- */

typedef struct shape {
  int64_t rows, columns;
} shape;

static bool has_columns(const hark_call *call) { return hark_present(&call->inputs[INPUT_COLUMN_MOMENT]); }

static shape shape_of(const hark_call *call) {
  const hark_tensor *const weight = &call->inputs[INPUT_WEIGHT];
  return has_columns(call) ? (shape){weight->shape[0], weight->shape[1]} : (shape){hark_tensor_count(weight), 1};
}

static double gradient_at(const hark_call *call, int64_t i) {
  const hark_adafactor_attributes *step = call->attributes;
  return step->gradient_scale * hark_get(hark_numbers_of(&call->inputs[INPUT_GRADIENT]), i);
}

/* moment = beta2 moment + (1 - beta2) mean */
static void renew(const hark_call *call, int input, int64_t i, double mean) {
  const hark_adafactor_attributes *step = call->attributes;
  const hark_numbers moment = hark_numbers_of(&call->inputs[input]);
  const double largest = call->inputs[input].type == HARK_F64 ? DBL_MAX : (double)FLT_MAX;
  hark_put(moment, i, hark_adafactor_moment(step->beta2 * hark_get(moment, i) + (1 - step->beta2) * mean, largest));
}

/* Row moments, or the moments of single numbers; of a matrix also the piece's sums over columns. */
static void renew_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_adafactor_attributes *step = call->attributes;
  const shape s = shape_of(call);
  double *const columns = hark_adafactor_columns_of(call->workspace) + first / hark_adafactor_piece(s.rows, s.columns) * s.columns;
  for (int64_t j = 0; j < s.columns && has_columns(call); j++) columns[j] = 0;
  for (int64_t i = first; i < last; i++) {
    double sum = 0;
    for (int64_t j = 0; j < s.columns; j++) {
      const double g = gradient_at(call, i * s.columns + j), square = g * g + step->epsilon;
      sum += square;
      if (has_columns(call)) columns[j] += square;
    }
    renew(call, INPUT_SECOND_MOMENT, i, sum / (double)s.columns);
  }
}

static void renew_columns(const hark_call *call, int64_t first, int64_t last) {
  const shape s = shape_of(call);
  const double *const sums = hark_adafactor_columns_of(call->workspace);
  for (int64_t j = first; j < last; j++) {
    double sum = 0;
    for (int64_t piece = 0; piece < hark_adafactor_pieces(s.rows, s.columns); piece++) sum += sums[piece * s.columns + j];
    renew(call, INPUT_COLUMN_MOMENT, j, sum / (double)s.rows);
  }
}

static double row_mean(const hark_call *call) {
  const int64_t rows = shape_of(call).rows;
  const hark_numbers moments = hark_numbers_of(&call->inputs[INPUT_SECOND_MOMENT]);
  double sum = 0;
  for (int64_t i = 0; i < rows; i++) sum += hark_get(moments, i) / (double)rows; /* the sum may be too large where the mean is not */
  return sum;
}

/* U of element [i, j]. */
static double update_at(const hark_call *call, int64_t i, int64_t j) {
  const double row = hark_get(hark_numbers_of(&call->inputs[INPUT_SECOND_MOMENT]), i);
  if (!has_columns(call)) return gradient_at(call, i) / sqrt(row);
  const double column = hark_get(hark_numbers_of(&call->inputs[INPUT_COLUMN_MOMENT]), j);
  const double relative = row / hark_adafactor_totals_of(call->workspace)->row_mean;
  return gradient_at(call, i * shape_of(call).columns + j) / sqrt(relative * column);
}

static void add_squares(const hark_call *call, int64_t first, int64_t last) {
  const shape s = shape_of(call);
  hark_adafactor_totals *const totals = hark_adafactor_totals_of(call->workspace);
  const hark_numbers weight = hark_numbers_of(&call->inputs[INPUT_WEIGHT]);
  const int64_t piece = first / hark_adafactor_piece(s.rows, s.columns);
  double updates = 0, weights = 0;
  for (int64_t i = first; i < last; i++) {
    for (int64_t j = 0; j < s.columns; j++) {
      const double u = update_at(call, i, j), w = hark_get(weight, i * s.columns + j);
      updates += u * u;
      weights += w * w;
    }
  }
  totals->updates[piece] = updates;
  totals->weights[piece] = weights;
}

static void step_rows(const hark_call *call, int64_t first, int64_t last) {
  const hark_adafactor_attributes *step = call->attributes;
  const shape s = shape_of(call);
  const double factor = hark_adafactor_totals_of(call->workspace)->factor;
  const hark_numbers weight = hark_numbers_of(&call->inputs[INPUT_WEIGHT]), average = hark_numbers_of(&call->inputs[INPUT_FIRST_MOMENT]);
  for (int64_t i = first; i < last; i++) {
    for (int64_t j = 0; j < s.columns; j++) {
      const int64_t at = i * s.columns + j;
      const double w = hark_get(weight, at);
      double u = factor * update_at(call, i, j);
      if (hark_present(&call->inputs[INPUT_FIRST_MOMENT])) {
        u = step->beta1 * hark_get(average, at) + (1 - step->beta1) * u;
        hark_put(average, at, u);
      }
      hark_put(weight, at, w - u - step->rate * step->decay * w);
    }
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  const hark_adafactor_attributes *step = call->attributes;
  const shape s = shape_of(call);
  const int64_t piece = hark_adafactor_piece(s.rows, s.columns);
  hark_adafactor_totals *const totals = hark_adafactor_totals_of(call->workspace);
  if (!isfinite(step->gradient_scale) || s.rows == 0 || s.columns == 0) return HARK_OK;
  hark_range_for(context, call, s.rows, piece, renew_rows);
  if (has_columns(call)) {
    hark_range_for(context, call, s.columns, HARK_BLOCK, renew_columns);
    totals->row_mean = row_mean(call);
  }
  hark_range_for(context, call, s.rows, piece, add_squares);
  totals->factor = hark_adafactor_factor(step, totals, s.rows, s.columns);
  hark_range_for(context, call, s.rows, piece, step_rows);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return is_backward ? 0 : OPERATIONS_PER_NUMBER * (double)hark_tensor_count(&inputs[INPUT_WEIGHT]);
}

/* Sums have positive terms, and kernels add them in double. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 8;
}

/* ---- samples ---- */

static const hark_adafactor_attributes first_step = {1e-2, 0, 0, 1e-30, 1e-3, 1, 0, 1}, later = {3e-2, 0, 0.99, 1e-30, 0, 1, 0.1, 0.37},
                                       averaged = {1e-2, 0.9, 0.8, 1e-30, 1e-3, 0.25, 0.01, 1},
                                       unbounded = {1e-2, 0, 0.9, 1e-8, 0, 0, 0, 1}, skipped = {1e-2, 0.9, 0.9, 1e-30, 0, 1, 0.1, NAN};

#define VECTOR(n)                                                                                                                          \
  { {HARK_F32, 1, {n}, -1, 1}, {HARK_F32, 1, {n}, -1, 1}, {HARK_F32, 1, {n}, 0.01, 1}, }
#define AVERAGED_VECTOR(n)                                                                                                                 \
  {                                                                                                                                        \
    {HARK_F32, 1, {n}, -1, 1}, {HARK_F32, 1, {n}, -1, 1}, {HARK_F32, 1, {n}, 0.01, 1}, {HARK_NONE, 0, {0}, 0, 0},                          \
        {HARK_F32, 1, {n}, -0.01, 0.01},                                                                                                   \
  }
#define MATRIX(n, m)                                                                                                                       \
  { {HARK_F32, 2, {n, m}, -1, 1}, {HARK_F32, 2, {n, m}, -1, 1}, {HARK_F32, 1, {n}, 0.01, 1}, {HARK_F32, 1, {m}, 0.01, 1}, }
#define AVERAGED_MATRIX(n, m)                                                                                                              \
  {                                                                                                                                        \
    {HARK_F32, 2, {n, m}, -1, 1}, {HARK_F32, 2, {n, m}, -1, 1}, {HARK_F32, 1, {n}, 0.01, 1}, {HARK_F32, 1, {m}, 0.01, 1},                  \
        {HARK_F32, 2, {n, m}, -0.01, 0.01},                                                                                                \
  }
static const hark_sample samples[] = {
    {"matrix", &later, MATRIX(19, 5)},
    {"one", &first_step, VECTOR(1)},
    {"odd", &later, VECTOR(257)},
    {"unbounded", &unbounded, VECTOR(67)},
    {"averaged", &averaged, AVERAGED_VECTOR(33)},
    {"many", &later, VECTOR(32771)},
    {"scale_not_finite", &skipped, AVERAGED_MATRIX(3, 5)},
    {"full_matrix", &later, {{HARK_F32, 2, {5, 13}, -1, 1}, {HARK_F32, 2, {5, 13}, -1, 1}, {HARK_F32, 2, {5, 13}, 0.01, 1}}},
    {"first_matrix", &first_step, MATRIX(7, 17)},
    {"one_row", &later, MATRIX(1, 35)},
    {"one_column", &unbounded, MATRIX(31, 1)},
    {"averaged_matrix", &averaged, AVERAGED_MATRIX(11, 33)},
    {"many_rows", &later, MATRIX(1031, 71)},
};
#undef VECTOR
#undef AVERAGED_VECTOR
#undef MATRIX
#undef AVERAGED_MATRIX

const hark_operator hark_op_adafactor = {
    .name = "adafactor",
    .formula = "w -= rate max(least_scale, RMS(w)) U / max(1, RMS(U) / most) + rate decay w; U = g / sqrt(V), V = r c / mean(r) or v",
    .attributes_size = sizeof(hark_adafactor_attributes),
    .input_minimum = INPUT_MINIMUM,
    .input_maximum = INPUT_COUNT,
    .output_count = 0,
    .updates = 1u << INPUT_WEIGHT | 1u << INPUT_SECOND_MOMENT | 1u << INPUT_COLUMN_MOMENT | 1u << INPUT_FIRST_MOMENT,
    .infer = infer,
    .forward = forward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
