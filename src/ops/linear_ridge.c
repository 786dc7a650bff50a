/* linear_ridge.c - y[s,:] = R' C (C'C + lambda I)^-1 query[s,:]: in each sequence the responses R [L, r] are regressed on the covariates C [L, c],
 * and the regression is read at a query. The posterior mean of z in r_l = z c_l + noise with a Gaussian prior of z (X 3.7): kernel ridge attention
 * with the kernel k'q, in the c x c form, which is the cheaper one for L > c.
 *
 * covariate [T, c], response [T, r] (packed rows), query [S, c], offsets i64 [S + 1], log_ridge [1] (optional, lambda = e^x). y [S, r].
 * With A = C'C + lambda I, M = C'R, u = A^-1 q, y = M'u, and for dy: s = A^-1 M dy,
 *
 *     dq = s     dR_l = (c_l.u) dy     dC_l = (R_l.dy - c_l.s) u - (c_l.u) s     dlambda = - s.u
 *
 * since dA = - s u'. The last `held_out` rows of a sequence have no part in C and R. Cholesky in double; nothing is saved, the backward factors again. About 2 L c (c + r) + c^3 / 3 operations a sequence, four
 * times that backward.
 */
#include <float.h>
#include <inttypes.h>

#include "ops/segments.h"

enum { INPUT_COVARIATE, INPUT_RESPONSE, INPUT_QUERY, INPUT_OFFSETS, INPUT_LOG_RIDGE, INPUT_COUNT };

/* Doubles of a sequence: A [c, c], M [c, r], u [c], s [c], dlambda. */
static int64_t sequence_doubles(int64_t c, int64_t r) { return c * c + c * r + 2 * c + 1; }

static hark_status check_ridge(hark_context *context, double ridge) {
  if (ridge > 0 && isfinite(ridge)) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "linear_ridge: ridge is %g, expected a finite number above 0", ridge);
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"covariate", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"response", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"query", HARK_F32, 2, 2},
                                                     {"offsets", HARK_I64, 1, 1},
                                                     {"log_ridge", HARK_F32, 1, 1}};
  const hark_operator *const op = &hark_op_linear_ridge;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *covariate = &inputs[INPUT_COVARIATE], *query = &inputs[INPUT_QUERY], *offsets = &inputs[INPUT_OFFSETS];
  const int64_t rows = hark_row_count(covariate), c = hark_row_length(covariate), r = hark_row_length(&inputs[INPUT_RESPONSE]);
  HARK_TRY(hark_check_rows(context, op, "response", &inputs[INPUT_RESPONSE], rows, "rows of covariate"));
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", offsets));
  HARK_TRY(hark_check_rows(context, op, "query", query, offsets->shape[0] - 1, "segments of offsets"));
  if (query->shape[1] != c) {
    return hark_fail(context, HARK_SHAPE_MISMATCH, "linear_ridge: query has %" PRId64 " features, expected the %" PRId64 " of covariate",
                     query->shape[1], c);
  }
  HARK_TRY(hark_check_number(context, op, "held_out", ((const hark_linear_ridge_attributes *)attributes)->held_out, 0, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "features of covariate", c, 1, 1 << 15)); /* squares and products of two fit */
  HARK_TRY(hark_check_number(context, op, "features of response", r, 1, 1 << 15));
  if (hark_has_input(inputs, input_count, INPUT_LOG_RIDGE)) {
    HARK_TRY(hark_check_vector(context, op, "log_ridge", &inputs[INPUT_LOG_RIDGE], 1, "one ridge for all sequences"));
  } else {
    HARK_TRY(check_ridge(context, ((const hark_linear_ridge_attributes *)attributes)->ridge));
  }
  const int64_t shape[] = {query->shape[0], r};
  HARK_TRY(hark_tensor_describe(context, covariate->type, 2, shape, &out->outputs[0]));
  HARK_TRY(hark_size_multiply(context, (size_t)shape[0], (size_t)sequence_doubles(c, r) * sizeof(double), &out->forward_workspace));
  out->backward_workspace = out->forward_workspace;
  return HARK_OK;
}

static double ridge_of(const hark_call *call) {
  if (!hark_has_input(call->inputs, call->input_count, INPUT_LOG_RIDGE)) {
    return ((const hark_linear_ridge_attributes *)call->attributes)->ridge;
  }
  return exp(hark_get(hark_numbers_of(&call->inputs[INPUT_LOG_RIDGE]), 0));
}

/* The numbers of one sequence. */
typedef struct regression {
  int64_t first, rows, all, c, r; /* rows of the packed inputs that are regressed, and with those held out */
  hark_numbers covariate, response;
  double *a, *m, *u, *s, *dridge;
} regression;

static regression regression_of(const hark_call *call, int64_t s) {
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  regression g = {.first = hark_segment_first(&segments, s),
                  .all = hark_segment_rows(&segments, s),
                  .c = hark_row_length(&call->inputs[INPUT_COVARIATE]),
                  .r = hark_row_length(&call->inputs[INPUT_RESPONSE]),
                  .covariate = hark_numbers_of(&call->inputs[INPUT_COVARIATE]),
                  .response = hark_numbers_of(&call->inputs[INPUT_RESPONSE])};
  g.rows = hark_max(0, g.all - ((const hark_linear_ridge_attributes *)call->attributes)->held_out);
  g.a = (double *)call->workspace + s * sequence_doubles(g.c, g.r);
  g.m = g.a + g.c * g.c;
  g.u = g.m + g.c * g.r;
  g.s = g.u + g.c;
  g.dridge = g.s + g.c;
  return g;
}

/* The lower triangle of A becomes L with A = L L'. A is positive definite by the ridge, but for rounding: of large covariates that depend on each
 * other a pivot may come out at zero or below. None is taken to be less than the rounding of the trace. */
static void factor(const regression *g) {
  double trace = 0;
  for (int64_t i = 0; i < g->c; i++) trace += g->a[i * g->c + i];
  const double least = DBL_EPSILON * trace;
  for (int64_t i = 0; i < g->c; i++) {
    for (int64_t j = 0; j <= i; j++) {
      double sum = g->a[i * g->c + j];
      for (int64_t k = 0; k < j; k++) sum -= g->a[i * g->c + k] * g->a[j * g->c + k];
      g->a[i * g->c + j] = i == j ? sqrt(fmax(sum, least)) : sum / g->a[j * g->c + j];
    }
  }
}

/* x <- A^-1 x */
static void solve(const regression *g, double *x) {
  for (int64_t i = 0; i < g->c; i++) {
    for (int64_t k = 0; k < i; k++) x[i] -= g->a[i * g->c + k] * x[k];
    x[i] /= g->a[i * g->c + i];
  }
  for (int64_t i = g->c - 1; i >= 0; i--) {
    for (int64_t k = i + 1; k < g->c; k++) x[i] -= g->a[k * g->c + i] * x[k];
    x[i] /= g->a[i * g->c + i];
  }
}

/* A, factored, M and u = A^-1 q. */
static void regress(const hark_call *call, const regression *g, double ridge, int64_t s) {
  for (int64_t i = 0; i < g->c * g->c; i++) g->a[i] = 0;
  for (int64_t i = 0; i < g->c * g->r; i++) g->m[i] = 0;
  for (int64_t l = g->first; l < g->first + g->rows; l++) {
    for (int64_t i = 0; i < g->c; i++) {
      const double x = hark_get(g->covariate, l * g->c + i);
      for (int64_t j = 0; j <= i; j++) g->a[i * g->c + j] += x * hark_get(g->covariate, l * g->c + j);
      for (int64_t j = 0; j < g->r; j++) g->m[i * g->r + j] += x * hark_get(g->response, l * g->r + j);
    }
  }
  for (int64_t i = 0; i < g->c; i++) {
    g->a[i * g->c + i] += ridge;
    g->u[i] = hark_get(hark_numbers_of(&call->inputs[INPUT_QUERY]), s * g->c + i);
  }
  factor(g);
  solve(g, g->u);
}

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  for (int64_t s = first; s < last; s++) {
    const regression g = regression_of(call, s);
    regress(call, &g, ridge_of(call), s);
    for (int64_t j = 0; j < g.r; j++) {
      double sum = 0;
      for (int64_t i = 0; i < g.c; i++) sum += g.m[i * g.r + j] * g.u[i];
      hark_put(y, s * g.r + j, sum);
    }
  }
}

static double count_operations(const hark_tensor *inputs) {
  const double c = (double)hark_row_length(&inputs[INPUT_COVARIATE]), r = (double)hark_row_length(&inputs[INPUT_RESPONSE]);
  return 2 * (double)hark_row_count(&inputs[INPUT_COVARIATE]) * c * (c + r) + (double)inputs[INPUT_QUERY].shape[0] * c * c * c / 3;
}

static void over_sequences(hark_context *context, const hark_call *call, hark_range_body *body) {
  const int64_t sequences = call->inputs[INPUT_QUERY].shape[0];
  const double each = count_operations(call->inputs) / (double)hark_max(1, sequences);
  hark_range_for(context, call, sequences, hark_row_grain(each < INT32_MAX ? (int64_t)each : INT32_MAX), body);
}

static hark_status check_data(hark_context *context, const hark_call *call) {
  HARK_TRY(hark_check_offsets(context, &hark_op_linear_ridge, "offsets", &call->inputs[INPUT_OFFSETS], 1,
                              hark_row_count(&call->inputs[INPUT_COVARIATE])));
  return check_ridge(context, ridge_of(call));
}

static hark_status forward(hark_context *context, const hark_call *call) {
  HARK_TRY(check_data(context, call));
  over_sequences(context, call, forward_sequences);
  return HARK_OK;
}

static double dot(hark_numbers x, int64_t at, const double *with, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += hark_get(x, at + i) * with[i];
  return sum;
}

static void give_rows(const hark_call *call, const regression *g, hark_numbers dy) {
  const hark_numbers dcovariate = hark_gradient_of(call, INPUT_COVARIATE), dresponse = hark_gradient_of(call, INPUT_RESPONSE);
  for (int64_t l = g->first; l < g->first + g->rows; l++) {
    const double cu = dot(g->covariate, l * g->c, g->u, g->c), cs = dot(g->covariate, l * g->c, g->s, g->c);
    double rg = 0;
    for (int64_t j = 0; j < g->r; j++) rg += hark_get(g->response, l * g->r + j) * hark_get(dy, j);
    for (int64_t j = 0; dresponse.data != NULL && j < g->r; j++) hark_give(dresponse, l * g->r + j, cu * hark_get(dy, j));
    for (int64_t i = 0; dcovariate.data != NULL && i < g->c; i++) hark_give(dcovariate, l * g->c + i, (rg - cs) * g->u[i] - cu * g->s[i]);
  }
  for (int64_t l = g->first + g->rows; l < g->first + g->all; l++) {
    for (int64_t j = 0; dresponse.data != NULL && j < g->r; j++) hark_give(dresponse, l * g->r + j, 0);
    for (int64_t i = 0; dcovariate.data != NULL && i < g->c; i++) hark_give(dcovariate, l * g->c + i, 0);
  }
}

/* y = M'u, u = A^-1 q: s = A^-1 M dy; dq = s, dR_l = (c_l.u) dy, dC_l = (R_l.dy - c_l.s) u - (c_l.u) s, dlambda = - s.u */
static void backward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers dquery = hark_gradient_of(call, INPUT_QUERY);
  for (int64_t s = first; s < last; s++) {
    const regression g = regression_of(call, s);
    const hark_numbers dy = hark_numbers_from(hark_numbers_of(&call->output_gradients[0]), s * g.r);
    regress(call, &g, ridge_of(call), s);
    for (int64_t i = 0; i < g.c; i++) {
      g.s[i] = 0;
      for (int64_t j = 0; j < g.r; j++) g.s[i] += g.m[i * g.r + j] * hark_get(dy, j);
    }
    solve(&g, g.s);
    *g.dridge = 0;
    for (int64_t i = 0; i < g.c; i++) {
      *g.dridge -= g.s[i] * g.u[i];
      if (dquery.data != NULL) hark_give(dquery, s * g.c + i, g.s[i]);
    }
    give_rows(call, &g, dy);
  }
}

static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call)) return HARK_OK;
  HARK_TRY(check_data(context, call));
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  for (int input = INPUT_COVARIATE; input <= INPUT_RESPONSE; input++) {
    const hark_tensor *rows = &call->inputs[input];
    if (hark_present(&call->input_gradients[input])) {
      hark_clear_gaps(&segments, hark_gradient_of(call, input), hark_row_count(rows), hark_row_length(rows));
    }
  }
  over_sequences(context, call, backward_sequences);
  if (!hark_present(&call->input_gradients[INPUT_LOG_RIDGE])) return HARK_OK;
  double sum = 0; /* lambda = e^x: dx = lambda dlambda */
  for (int64_t s = 0; s < segments.count; s++) sum += *regression_of(call, s).dridge;
  hark_give(hark_gradient_of(call, INPUT_LOG_RIDGE), 0, sum * ridge_of(call));
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)input_count;
  return (is_backward ? 4 : 1) * count_operations(inputs);
}

/* Sums over the rows, made larger by a solve whose condition is at most rows times c for covariates and ridges of about 1. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  const int64_t rows = hark_row_count(&inputs[INPUT_COVARIATE]), c = hark_row_length(&inputs[INPUT_COVARIATE]);
  return hark_max(1, rows + inputs[INPUT_QUERY].shape[0]) * (c + hark_row_length(&inputs[INPUT_RESPONSE]));
}

static const hark_linear_ridge_attributes one = {1, 0}, small = {0.0625, 0}, behind = {0.5, 1};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"empty", &one, {{HARK_F32, 2, {0, 2}, -1, 1}, {HARK_F32, 2, {0, 3}, -1, 1}, {HARK_F32, 2, {2, 2}, -1, 1}, {HARK_I64, 1, {3}, 0, 0}}},
    {"none", &one, {{HARK_F32, 2, {3, 2}, -1, 1}, {HARK_F32, 2, {3, 3}, -1, 1}, {HARK_F32, 2, {0, 2}, -1, 1}, {HARK_I64, 1, {1}, 0, 0}}},
    {"sequences",
     &small,
     {{HARK_F32, 3, {1, 37, 5}, -1, 1}, {HARK_F32, 3, {1, 37, 2}, -1, 1}, {HARK_F32, 2, {4, 5}, -1, 1}, {HARK_I64, 1, {5}, 35, 1}}},
    {"short", &one, {{HARK_F32, 2, {5, 8}, -1, 1}, {HARK_F32, 2, {5, 3}, -1, 1}, {HARK_F32, 2, {2, 8}, -1, 1}, {HARK_I64, 1, {3}, 5, 0}}},
    {"held_out",
     &behind,
     {{HARK_F32, 2, {29, 3}, -1, 1}, {HARK_F32, 2, {29, 4}, -1, 1}, {HARK_F32, 2, {5, 3}, -1, 1}, {HARK_I64, 1, {6}, 27, 0}}},
    {"learned",
     &one,
     {{HARK_F32, 2, {33, 7}, -1, 1},
      {HARK_F32, 2, {33, 3}, -1, 1},
      {HARK_F32, 2, {3, 7}, -1, 1},
      {HARK_I64, 1, {4}, 33, 0},
      {HARK_F32, 1, {1}, -1, 0.5}}},
};

const hark_operator hark_op_linear_ridge = {
    .name = "linear_ridge",
    .formula = "y[s] = R' C (C'C + lambda I)^-1 query[s]",
    .attributes_size = sizeof(hark_linear_ridge_attributes),
    .input_minimum = INPUT_OFFSETS + 1,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_COVARIATE | 1u << INPUT_RESPONSE | 1u << INPUT_QUERY | 1u << INPUT_LOG_RIDGE,
    .backward_inputs = (1u << INPUT_COUNT) - 1,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
