/* linear_ridge.c - y[s,q,:] = R' C (C'C + lambda I)^-1 query[s,q,:]: in each sequence the responses R [L, r] are regressed on the
 * covariates C [L, c], and the regression is read at queries. This is the posterior mean of z in r_l = z c_l + noise with a Gaussian prior
 * of z (X 3.7): kernel ridge attention with the kernel k'q, in the c x c form, which is cheaper for L > c.
 *
 * covariate [T, c], response [T, r] (packed rows), query [S, c] or, with m of them for each sequence, [S, m, c], offsets i64 [S + 1],
 * log_ridge [1] (optional, lambda = e^x). y [S, r] or [S, m, r]. With A = C'C + lambda I, M = C'R, u_q = A^-1 query_q, y_q = M'u_q, and in
 * the backward s_q = A^-1 M dy_q:
 *
 *     dquery_q = s_q     dR_l = W'c_l     dC_l = W R_l - P c_l     dlambda = - sum_q s_q.u_q
 *     W = sum_q u_q dy_q'    P = sum_q (u_q s_q' + s_q u_q')
 *
 * since dA = - sum_q s_q u_q'. The last `held_out` rows of a sequence are not in C and R. Cholesky in double; nothing is saved, the
 * backward factors again. About L c (c + 2 r) + c^3 / 3 + 2 m c (c + r) operations per sequence, four times that backward.
 */
#include <float.h>
#include <hark/experimental.h>
#include <inttypes.h>

#include "io/number.h"
#include "ops/segments.h"

enum { INPUT_COVARIATE, INPUT_RESPONSE, INPUT_QUERY, INPUT_OFFSETS, INPUT_LOG_RIDGE, INPUT_COUNT };

/* Doubles of a sequence: A, P [c, c], M, W [c, r], u, s [m, c], a row of C and R, dlambda. */
static int64_t sequence_doubles(int64_t c, int64_t r, int64_t m) { return 2 * c * (c + r + m) + c + r + 1; }

/* m */
static int64_t queries_of(const hark_tensor *query) { return query->rank == 3 ? query->shape[1] : 1; }

static hark_status check_ridge(hark_context *context, double ridge) {
  if (ridge > 0 && isfinite(ridge)) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "linear_ridge: ridge is %s, expected a finite number above 0", HARK_PRINTED(ridge));
}

static hark_status infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"covariate", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"response", HARK_F32, 2, HARK_MAX_RANK},
                                                     {"query", HARK_F32, 2, 3},
                                                     {"offsets", HARK_I64, 1, 1},
                                                     {"log_ridge", HARK_F32, 1, 1}};
  const hark_operator *const op = &hark_op_linear_ridge;
  HARK_TRY(hark_check_inputs(context, op, rules, attributes, inputs, input_count));
  const hark_tensor *covariate = &inputs[INPUT_COVARIATE], *query = &inputs[INPUT_QUERY], *offsets = &inputs[INPUT_OFFSETS];
  const int64_t rows = hark_row_count(covariate), c = hark_row_length(covariate), r = hark_row_length(&inputs[INPUT_RESPONSE]);
  const int64_t sequences = offsets->shape[0] - 1, m = queries_of(query);
  HARK_TRY(hark_check_rows(context, op, "response", &inputs[INPUT_RESPONSE], rows, "rows of covariate"));
  HARK_TRY(hark_check_offsets_shape(context, op, "offsets", offsets));
  if (query->shape[0] != sequences) {
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "linear_ridge: query is of %" PRId64 " sequences, expected the %" PRId64 " segments of offsets", query->shape[0],
                     sequences);
  }
  if (hark_row_length(query) != c) {
    return hark_fail(context, HARK_SHAPE_MISMATCH, "linear_ridge: query has %" PRId64 " features, expected the %" PRId64 " of covariate",
                     hark_row_length(query), c);
  }
  HARK_TRY(hark_check_number(context, op, "queries of a sequence", m, 0, 1 << 15));
  HARK_TRY(hark_check_number(context, op, "held_out", ((const hark_linear_ridge_attributes *)attributes)->held_out, 0, INT32_MAX));
  HARK_TRY(hark_check_number(context, op, "features of covariate", c, 1, 1 << 15)); /* squares and products of two fit */
  HARK_TRY(hark_check_number(context, op, "features of response", r, 1, 1 << 15));
  if (hark_has_input(inputs, input_count, INPUT_LOG_RIDGE)) {
    HARK_TRY(hark_check_vector(context, op, "log_ridge", &inputs[INPUT_LOG_RIDGE], 1, "one ridge for all sequences"));
  } else {
    HARK_TRY(check_ridge(context, ((const hark_linear_ridge_attributes *)attributes)->ridge));
  }
  const int64_t one[] = {sequences, r}, more[] = {sequences, m, r};
  HARK_TRY(hark_tensor_describe(context, covariate->type, query->rank, query->rank == 3 ? more : one, &out->outputs[0]));
  HARK_TRY(hark_size_multiply(context, (size_t)sequences, (size_t)sequence_doubles(c, r, m) * sizeof(double), &out->forward_workspace));
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
  int64_t first, rows, all, c, r, m; /* first: index in the packed inputs; rows: regressed; all: including rows held out */
  hark_numbers covariate, response, query;
  double *a, *p, *mixed, *w, *u, *s, *row_c, *row_r, *dridge; /* mixed: M */
} regression;

static regression regression_of(const hark_call *call, int64_t s) {
  const hark_segments segments = hark_segments_of(&call->inputs[INPUT_OFFSETS], 1);
  regression g = {.first = hark_segment_first(&segments, s),
                  .all = hark_segment_rows(&segments, s),
                  .c = hark_row_length(&call->inputs[INPUT_COVARIATE]),
                  .r = hark_row_length(&call->inputs[INPUT_RESPONSE]),
                  .m = queries_of(&call->inputs[INPUT_QUERY]),
                  .covariate = hark_numbers_of(&call->inputs[INPUT_COVARIATE]),
                  .response = hark_numbers_of(&call->inputs[INPUT_RESPONSE])};
  g.rows = hark_max(0, g.all - ((const hark_linear_ridge_attributes *)call->attributes)->held_out);
  g.query = hark_numbers_from(hark_numbers_of(&call->inputs[INPUT_QUERY]), s * g.m * g.c);
  g.a = (double *)call->workspace + s * sequence_doubles(g.c, g.r, g.m);
  g.p = g.a + g.c * g.c;
  g.mixed = g.p + g.c * g.c;
  g.w = g.mixed + g.c * g.r;
  g.u = g.w + g.c * g.r;
  g.s = g.u + g.m * g.c;
  g.row_c = g.s + g.m * g.c;
  g.row_r = g.row_c + g.c;
  g.dridge = g.row_r + g.r;
  return g;
}

static void read(hark_numbers from, int64_t at, int64_t count, double *out) {
  for (int64_t i = 0; i < count; i++) out[i] = hark_get(from, at + i);
}

static void clear(double *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = 0;
}

/* Row l of C and R, as doubles. */
static void read_row(const regression *g, int64_t l) {
  read(g->covariate, l * g->c, g->c, g->row_c);
  read(g->response, l * g->r, g->r, g->row_r);
}

/* The lower triangle of A becomes L with A = L L'. The ridge makes A positive definite, but with large and dependent covariates rounding
 * may make a pivot zero or negative. So pivots are at least the rounding error of the trace. */
static void factor(const regression *g) {
  double trace = 0;
  for (int64_t i = 0; i < g->c; i++) trace += g->a[i * g->c + i];
  const double least = DBL_EPSILON * trace;
  for (int64_t i = 0; i < g->c; i++) {
    for (int64_t j = 0; j <= i; j++) {
      double sum = g->a[i * g->c + j];
      for (int64_t k = 0; k < j; k++) sum -= g->a[i * g->c + k] * g->a[j * g->c + k];
      g->a[i * g->c + j] = i == j ? sqrt(hark_larger(sum, least)) : sum / g->a[j * g->c + j];
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
static void regress(const regression *g, double ridge) {
  clear(g->a, g->c * g->c);
  clear(g->mixed, g->c * g->r);
  for (int64_t l = g->first; l < g->first + g->rows; l++) {
    read_row(g, l);
    for (int64_t i = 0; i < g->c; i++) {
      const double x = g->row_c[i];
      for (int64_t j = 0; j <= i; j++) g->a[i * g->c + j] += x * g->row_c[j];
      for (int64_t j = 0; j < g->r; j++) g->mixed[i * g->r + j] += x * g->row_r[j];
    }
  }
  for (int64_t i = 0; i < g->c; i++) g->a[i * g->c + i] += ridge;
  factor(g);
  read(g->query, 0, g->m * g->c, g->u);
  for (int64_t q = 0; q < g->m; q++) solve(g, g->u + q * g->c);
}

static void forward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers y = hark_numbers_of(&call->outputs[0]);
  for (int64_t s = first; s < last; s++) {
    const regression g = regression_of(call, s);
    regress(&g, ridge_of(call));
    for (int64_t q = 0; q < g.m; q++)
      for (int64_t j = 0; j < g.r; j++) {
        double sum = 0;
        for (int64_t i = 0; i < g.c; i++) sum += g.mixed[i * g.r + j] * g.u[q * g.c + i];
        hark_put(y, (s * g.m + q) * g.r + j, sum);
      }
  }
}

static double count_operations(const hark_tensor *inputs) {
  const double c = (double)hark_row_length(&inputs[INPUT_COVARIATE]), r = (double)hark_row_length(&inputs[INPUT_RESPONSE]);
  const double queries = (double)hark_row_count(&inputs[INPUT_QUERY]);
  return (double)hark_row_count(&inputs[INPUT_COVARIATE]) * c * (c + 2 * r) + (double)inputs[INPUT_QUERY].shape[0] * c * c * c / 3 +
         2 * queries * c * (c + r);
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

/* s = A^-1 M dy, W, P and dlambda. */
static void turn(const regression *g, hark_numbers dy) {
  clear(g->w, g->c * g->r);
  clear(g->p, g->c * g->c);
  clear(g->s, g->m * g->c);
  *g->dridge = 0;
  for (int64_t q = 0; q < g->m; q++) {
    const double *const u = g->u + q * g->c;
    double *const s = g->s + q * g->c;
    read(dy, q * g->r, g->r, g->row_r);
    for (int64_t i = 0; i < g->c; i++)
      for (int64_t j = 0; j < g->r; j++) {
        s[i] += g->mixed[i * g->r + j] * g->row_r[j];
        g->w[i * g->r + j] += u[i] * g->row_r[j];
      }
    solve(g, s);
    for (int64_t i = 0; i < g->c; i++) {
      *g->dridge -= s[i] * u[i];
      for (int64_t j = 0; j < g->c; j++) g->p[i * g->c + j] += u[i] * s[j] + s[i] * u[j];
    }
  }
}

/* dR_l = W'c_l, dC_l = W R_l - P c_l; zero for rows that are held out. */
static void give_rows(const hark_call *call, const regression *g) {
  const hark_numbers dcovariate = hark_gradient_of(call, INPUT_COVARIATE), dresponse = hark_gradient_of(call, INPUT_RESPONSE);
  for (int64_t l = g->first; l < g->first + g->all; l++) {
    const bool counts = l < g->first + g->rows;
    read_row(g, l);
    for (int64_t j = 0; dresponse.data != NULL && j < g->r; j++) {
      double sum = 0;
      for (int64_t i = 0; counts && i < g->c; i++) sum += g->w[i * g->r + j] * g->row_c[i];
      hark_give(dresponse, l * g->r + j, sum);
    }
    for (int64_t i = 0; dcovariate.data != NULL && i < g->c; i++) {
      double sum = 0;
      for (int64_t j = 0; counts && j < g->r; j++) sum += g->w[i * g->r + j] * g->row_r[j];
      for (int64_t j = 0; counts && j < g->c; j++) sum -= g->p[i * g->c + j] * g->row_c[j];
      hark_give(dcovariate, l * g->c + i, sum);
    }
  }
}

static void backward_sequences(const hark_call *call, int64_t first, int64_t last) {
  const hark_numbers dquery = hark_gradient_of(call, INPUT_QUERY);
  for (int64_t s = first; s < last; s++) {
    const regression g = regression_of(call, s);
    regress(&g, ridge_of(call));
    turn(&g, hark_numbers_from(hark_numbers_of(&call->output_gradients[0]), s * g.m * g.r));
    for (int64_t i = 0; dquery.data != NULL && i < g.m * g.c; i++) hark_give(dquery, s * g.m * g.c + i, g.s[i]);
    give_rows(call, &g);
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

/* Sums over the rows. Their errors are magnified by a solve whose condition is at most rows times c for covariates and ridges of about
 * 1. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)input_count;
  const int64_t rows = hark_row_count(&inputs[INPUT_COVARIATE]), c = hark_row_length(&inputs[INPUT_COVARIATE]);
  return hark_max(1, rows + hark_row_count(&inputs[INPUT_QUERY])) * (c + hark_row_length(&inputs[INPUT_RESPONSE]));
}

static const hark_linear_ridge_attributes one = {1, 0}, small = {0.0625, 0}, held_out = {0.5, 1};

static const hark_sample samples[] = {
    {"one", &one, {{HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_F32, 2, {1, 1}, -1, 1}, {HARK_I64, 1, {2}, 1, 0}}},
    {"empty", &one, {{HARK_F32, 2, {0, 2}, -1, 1}, {HARK_F32, 2, {0, 3}, -1, 1}, {HARK_F32, 2, {2, 2}, -1, 1}, {HARK_I64, 1, {3}, 0, 0}}},
    {"none", &one, {{HARK_F32, 2, {3, 2}, -1, 1}, {HARK_F32, 2, {3, 3}, -1, 1}, {HARK_F32, 2, {0, 2}, -1, 1}, {HARK_I64, 1, {1}, 0, 0}}},
    {"sequences",
     &small,
     {{HARK_F32, 3, {1, 37, 5}, -1, 1}, {HARK_F32, 3, {1, 37, 2}, -1, 1}, {HARK_F32, 2, {4, 5}, -1, 1}, {HARK_I64, 1, {5}, 35, 1}}},
    {"short", &one, {{HARK_F32, 2, {5, 8}, -1, 1}, {HARK_F32, 2, {5, 3}, -1, 1}, {HARK_F32, 2, {2, 8}, -1, 1}, {HARK_I64, 1, {3}, 5, 0}}},
    {"held_out",
     &held_out,
     {{HARK_F32, 2, {29, 3}, -1, 1}, {HARK_F32, 2, {29, 4}, -1, 1}, {HARK_F32, 2, {5, 3}, -1, 1}, {HARK_I64, 1, {6}, 27, 0}}},
    {"queries",
     &held_out,
     {{HARK_F32, 2, {31, 4}, -1, 1}, {HARK_F32, 2, {31, 3}, -1, 1}, {HARK_F32, 3, {3, 5, 4}, -1, 1}, {HARK_I64, 1, {4}, 30, 1}}},
    {"no_queries",
     &one,
     {{HARK_F32, 2, {6, 2}, -1, 1}, {HARK_F32, 2, {6, 3}, -1, 1}, {HARK_F32, 3, {2, 0, 2}, -1, 1}, {HARK_I64, 1, {3}, 6, 0}}},
    {"learned",
     &one,
     {{HARK_F32, 2, {33, 7}, -1, 1},
      {HARK_F32, 2, {33, 3}, -1, 1},
      {HARK_F32, 2, {3, 7}, -1, 1},
      {HARK_I64, 1, {4}, 33, 0},
      {HARK_F32, 1, {1}, -1, 0.5}}},
    {"learned_queries",
     &one,
     {{HARK_F32, 2, {20, 3}, -1, 1},
      {HARK_F32, 2, {20, 2}, -1, 1},
      {HARK_F32, 3, {2, 4, 3}, -1, 1},
      {HARK_I64, 1, {3}, 20, 0},
      {HARK_F32, 1, {1}, -1, 0.5}}},
};

const hark_operator hark_op_linear_ridge = {
    .name = "linear_ridge",
    .formula = "y[s,q] = R' C (C'C + lambda I)^-1 query[s,q]",
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
