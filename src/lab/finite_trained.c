/* finite_trained.c - see finite_trained.h.
 *
 * With C [L, dc], R [L, dr] the features of the tokens and c_q those of the masks (every sequence has several):
 *     y^_q = R'C (C'C + I)^-1 c_q                    (= zbar c_q)
 * by hark's operator linear_ridge, as in model.architecture finite, with its gradients. The Bayes predictor that it is compared with is
 * computed here.
 */
#include "lab/finite_trained.h"

#include <hark/experimental.h>
#include <string.h>

#include "lab/descent.h"
#include "lab/fit.h"
#include "lab/matrix.h"

enum {
  DR = HARK_FINITE_RESPONSES,
  DC = HARK_FINITE_COVARIATES,
  TOKEN = DC + DR,
  AT_RESPONSE = TOKEN * DC,           /* offset of W_r [TOKEN, dr] in the weights, after W_c [TOKEN, dc] */
  AT_MASK = AT_RESPONSE + TOKEN * DR, /* W_m [dc, dc] */
  WEIGHTS = AT_MASK + DC * DC,
  CHUNK = 64, /* sequences in a call of the operator */
  MASKS = 16, /* of a training sequence; a test sequence has one */
  LONGEST = 512,
  PER_SEQUENCE = DR * DC + (LONGEST + MASKS) * TOKEN /* normal numbers, at most */
};
#define TOLERANCE 1e-6 /* of the gradient */
#define MIXING 0.5     /* of M: the identity and MIXING / sqrt(size) times normal numbers */

#define FEW 128 /* sequences for Adam, which finds the valley that L-BFGS follows */
#define RATE 0.02

/* L-BFGS on some more sequences, then steps of Gauss and Newton on many. The valley is narrow: at 32 tokens the kernel's scale in one of 36
 * directions has a ten thousandth of the curvature of others, but at 8 tokens it determines the result. L-BFGS does not converge there
 * within hundreds of evaluations. */
typedef struct sizes {
  int adam_steps;
  int64_t more, many;
  int evaluations, steps; /* of L-BFGS; of Gauss and Newton */
} sizes;
static const sizes quick_sizes = {900, 512, 4096, 60, 6}, full_sizes = {1500, 512, 24576, 60, 20};
#define CURVED 2048        /* sequences whose residuals' gradients give the second derivatives; the gradient is that of all */
#define DAMPING 1e-3       /* of each weight's curvature, at first; a tenth of it after a step downwards, ten times it after one upwards */
#define LEAST_DAMPING 1e-9 /* rotations of the features have no effect on the loss */
enum { TRIES = 8 };        /* of a step */

static const hark_lab_column columns[HARK_FINITE_COLUMNS] = {
    {"tokens", NULL, NULL},      {"excess", "trained", NULL},     {"excess", "Bayes, true features", NULL},
    {"expected", "Bayes", NULL}, {"trained / Bayes", NULL, NULL}, {"standard error", NULL, NULL}};

/* One sequence: its latent variables and its observed numbers. */
typedef struct sequence {
  int64_t length, masks;
  double covariate[LONGEST * DC], response[LONGEST * DR], token[LONGEST * TOKEN]; /* c_l, r_l, x_l */
  double at[MASKS * DC], mask[MASKS * DC], mean[MASKS * DR], y[MASKS * DR];       /* c_q, msk_q, z c_q, y_q */
} sequence;

/* Input and output of the operator for sequences of one length: features of tokens and masks, y^, and their gradients. */
typedef struct regressions {
  int64_t sequences, length, masks; /* at most */
  double *covariate, *response, *query, *y, *dcovariate, *dresponse, *dquery, *dy;
  int64_t *offsets;
  void *workspace;
  size_t workspace_bytes;
} regressions;

typedef struct trainer {
  hark_lab *lab;
  double mixing[TOKEN * TOKEN], mask_mixing[DC * DC];
  double *normal; /* [PER_SEQUENCE] */
  sequence *s;
  regressions learning, tested;
  int64_t count; /* training sequences, and their observed numbers: */
  double *tokens, *masks, *y;
} trainer;

/* Tokens, then masks, from stream number `stream`. */
static void draw(trainer *t, uint32_t stream, int64_t length, int64_t masks) {
  sequence *const s = t->s;
  const double *const z = t->normal, *normal = z + (ptrdiff_t)DR * DC, spread = sqrt(HARK_FINITE_PRIOR * DC);
  hark_lab_normal(t->lab, stream, (int64_t)DR * DC + (length + masks) * TOKEN, t->normal);
  s->length = length;
  s->masks = masks;
  for (int64_t l = 0; l < length + masks; l++, normal += TOKEN) {
    const int64_t q = l - length;
    double plain[TOKEN];
    for (int r = 0; r < DR; r++) {
      const double mean = sqrt(HARK_FINITE_PRIOR) * hark_lab_dot(z + (ptrdiff_t)r * DC, normal, DC);
      const double response = mean + sqrt(HARK_FINITE_NOISE) * normal[DC + r];
      plain[DC + r] = response / spread;
      *(q < 0 ? &s->response[l * DR + r] : &s->y[q * DR + r]) = response;
      if (q >= 0) s->mean[q * DR + r] = mean;
    }
    memcpy(plain, normal, DC * sizeof *plain);
    memcpy(q < 0 ? s->covariate + l * DC : s->at + q * DC, normal, DC * sizeof *normal);
    if (q < 0)
      hark_lab_multiply(1, TOKEN, TOKEN, plain, t->mixing, s->token + l * TOKEN);
    else
      hark_lab_multiply(1, DC, DC, plain, t->mask_mixing, s->mask + q * DC);
  }
}

/* ---- the operator ---- */

enum { COVARIATE, RESPONSE, QUERY, OFFSETS, INPUTS }; /* of linear_ridge */
static const hark_linear_ridge_attributes unit_ridge = {1, 0};

static hark_status wrap(hark_context *context, double *data, int64_t rows, int64_t between, int64_t width, hark_tensor *out) {
  const int64_t shape[] = {rows, between, width};
  return hark_tensor_wrap(context, data, HARK_F64, 3, shape, NULL, out);
}

/* The call of `count` sequences of `length` tokens and `masks` masks, with its gradients. */
static hark_status call_of(hark_context *context, const regressions *r, int64_t count, int64_t length, int64_t masks, hark_call *call) {
  const int64_t ends = count + 1;
  *call = (hark_call){.op = &hark_op_linear_ridge,
                      .attributes = &unit_ridge,
                      .input_count = INPUTS,
                      .workspace = r->workspace,
                      .workspace_bytes = r->workspace_bytes};
  for (int64_t s = 0; s <= count; s++) r->offsets[s] = s * length;
  HARK_TRY(wrap(context, r->covariate, count, length, DC, &call->inputs[COVARIATE]));
  HARK_TRY(wrap(context, r->response, count, length, DR, &call->inputs[RESPONSE]));
  HARK_TRY(wrap(context, r->query, count, masks, DC, &call->inputs[QUERY]));
  HARK_TRY(hark_tensor_wrap(context, r->offsets, HARK_I64, 1, &ends, NULL, &call->inputs[OFFSETS]));
  HARK_TRY(wrap(context, r->y, count, masks, DR, &call->outputs[0]));
  HARK_TRY(wrap(context, r->dy, count, masks, DR, &call->output_gradients[0]));
  HARK_TRY(wrap(context, r->dcovariate, count, length, DC, &call->input_gradients[COVARIATE]));
  HARK_TRY(wrap(context, r->dresponse, count, length, DR, &call->input_gradients[RESPONSE]));
  return wrap(context, r->dquery, count, masks, DC, &call->input_gradients[QUERY]);
}

static hark_status make_regressions(hark_lab *lab, int64_t sequences, int64_t length, int64_t masks, regressions *out) {
  const int64_t tokens = sequences * length, queries = sequences * masks;
  void *memory;
  hark_call call;
  hark_inferred inferred = {0};
  *out = (regressions){.sequences = sequences, .length = length, .masks = masks};
  double **const arrays[] = {&out->covariate, &out->dcovariate, &out->response, &out->dresponse,
                             &out->query,     &out->dquery,     &out->y,        &out->dy};
  const int64_t counts[] = {tokens * DC, tokens * DC, tokens * DR, tokens * DR, queries * DC, queries * DC, queries * DR, queries * DR};
  for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) HARK_TRY(hark_lab_numbers(lab, counts[i], arrays[i]));
  HARK_TRY(hark_lab_allocate(lab, (size_t)(sequences + 1) * sizeof(int64_t), &memory));
  out->offsets = memory;
  HARK_TRY(call_of(lab->context, out, sequences, length, masks, &call));
  HARK_TRY(hark_op_linear_ridge.infer(lab->context, &unit_ridge, call.inputs, INPUTS, &inferred));
  out->workspace_bytes = inferred.forward_workspace; /* that of the backward is no larger */
  return hark_lab_allocate(lab, out->workspace_bytes, &out->workspace);
}

/* r->y of `count` sequences: tokens [count, length, TOKEN], masks [count, masks, DC]. */
static hark_status predict(hark_context *context, const regressions *r, const double *weights, const double *tokens, const double *masks,
                           int64_t count, int64_t length, int64_t query_count, hark_call *call) {
  hark_lab_multiply(count * length, TOKEN, DC, tokens, weights, r->covariate);
  hark_lab_multiply(count * length, TOKEN, DR, tokens, weights + AT_RESPONSE, r->response);
  hark_lab_multiply(count * query_count, DC, DC, masks, weights + AT_MASK, r->query);
  HARK_TRY(call_of(context, r, count, length, query_count, call));
  return hark_operator_forward(context, call);
}

/* Mean over sequences and masks of |y - y^|^2. */
static hark_status loss(void *user, const double *weights, double *value, double *gradient) {
  enum { L = HARK_FINITE_TRAINED_LENGTH };
  trainer *const t = user;
  hark_context *const context = t->lab->context;
  const regressions *const r = &t->learning;
  const double all = (double)(t->count * MASKS);
  memset(gradient, 0, WEIGHTS * sizeof *gradient);
  *value = 0;
  for (int64_t first = 0; first < t->count; first += CHUNK) {
    const int64_t count = t->count - first < CHUNK ? t->count - first : CHUNK;
    const double *const tokens = t->tokens + first * L * TOKEN, *const masks = t->masks + first * MASKS * DC;
    hark_call call;
    hark_lab_tick(t->lab, 0, 0);
    HARK_TRY(predict(context, r, weights, tokens, masks, count, L, MASKS, &call));
    for (int64_t j = 0; j < count * MASKS * DR; j++) {
      const double error = r->y[j] - t->y[first * MASKS * DR + j];
      *value += error * error / all;
      r->dy[j] = 2 * error / all;
    }
    HARK_TRY(hark_operator_backward(context, &call));
    hark_lab_add_left_transposed(TOKEN, count * L, DC, tokens, r->dcovariate, gradient);
    hark_lab_add_left_transposed(TOKEN, count * L, DR, tokens, r->dresponse, gradient + AT_RESPONSE);
    hark_lab_add_left_transposed(DC, count * MASKS, DC, masks, r->dquery, gradient + AT_MASK);
  }
  return HARK_OK;
}

static void draw_mixing(const hark_lab *lab, uint32_t stream, int size, double *out) {
  hark_lab_normal(lab, stream, (int64_t)size * size, out);
  for (int i = 0; i < size * size; i++) out[i] = (i % (size + 1) == 0) + MIXING / sqrt(size) * out[i];
}

static hark_status make_trainer(hark_lab *lab, int64_t many, trainer *t) {
  enum { L = HARK_FINITE_TRAINED_LENGTH };
  void *memory;
  *t = (trainer){.lab = lab};
  HARK_TRY(hark_lab_numbers(lab, PER_SEQUENCE, &t->normal));
  HARK_TRY(hark_lab_allocate(lab, sizeof(sequence), &memory));
  t->s = memory;
  HARK_TRY(make_regressions(lab, CHUNK, L, MASKS, &t->learning));
  HARK_TRY(make_regressions(lab, 1, LONGEST, 1, &t->tested));
  HARK_TRY(hark_lab_numbers(lab, many * L * TOKEN, &t->tokens));
  HARK_TRY(hark_lab_numbers(lab, many * MASKS * DC, &t->masks));
  HARK_TRY(hark_lab_numbers(lab, many * MASKS * DR, &t->y));
  draw_mixing(lab, (1 << 20) - 1, TOKEN, t->mixing);
  draw_mixing(lab, (1 << 20) - 2, DC, t->mask_mixing);
  for (int64_t i = 0; i < many; i++) {
    draw(t, (1 << 20) + (uint32_t)i, L, MASKS);
    memcpy(t->tokens + i * L * TOKEN, t->s->token, sizeof(double) * L * TOKEN);
    memcpy(t->masks + i * MASKS * DC, t->s->mask, sizeof(double) * MASKS * DC);
    memcpy(t->y + i * MASKS * DR, t->s->y, sizeof(double) * MASKS * DR);
  }
  return HARK_OK;
}

/* curvature [WEIGHTS, WEIGHTS] <- mean over masks of sum_r j j',  j = d y^_r / d weights, on CURVED sequences; its lower triangle. */
static hark_status measure_curvature(trainer *t, const double *weights, double *curvature) {
  enum { L = HARK_FINITE_TRAINED_LENGTH };
  const regressions *const r = &t->learning;
  const int64_t sequences = t->count < CURVED ? t->count : CURVED;
  memset(curvature, 0, sizeof(double) * WEIGHTS * WEIGHTS);
  for (int64_t first = 0; first < sequences; first += CHUNK) {
    const int64_t count = sequences - first < CHUNK ? sequences - first : CHUNK;
    hark_call call;
    hark_lab_tick(t->lab, 0, 0);
    HARK_TRY(predict(t->lab->context, r, weights, t->tokens + first * L * TOKEN, t->masks + first * MASKS * DC, count, L, MASKS, &call));
    for (int64_t output = 0; output < (int64_t)MASKS * DR; output++) { /* of every sequence one number at a time */
      for (int64_t j = 0; j < count * MASKS * DR; j++) r->dy[j] = j % ((int64_t)MASKS * DR) == output;
      HARK_TRY(hark_operator_backward(t->lab->context, &call));
      for (int64_t s = 0; s < count; s++) {
        const double *const tokens = t->tokens + (first + s) * L * TOKEN, *const masks = t->masks + (first + s) * MASKS * DC;
        double j[WEIGHTS] = {0};
        hark_lab_add_left_transposed(TOKEN, L, DC, tokens, r->dcovariate + s * L * DC, j);
        hark_lab_add_left_transposed(TOKEN, L, DR, tokens, r->dresponse + s * L * DR, j + AT_RESPONSE);
        hark_lab_add_left_transposed(DC, MASKS, DC, masks, r->dquery + s * MASKS * DC, j + AT_MASK);
        for (int a = 0; a < WEIGHTS; a++)
          for (int b = 0; b <= a; b++) curvature[a * WEIGHTS + b] += j[a] * j[b] / (double)(sequences * MASKS);
      }
    }
  }
  return HARK_OK;
}

/* One step x - (J'J + damping diag J'J)^-1 gradient / 2 (Levenberg, Marquardt), damped until it leads down. *down: it does. */
static hark_status step_down(trainer *t, double *curvature, double *from, double *damping, hark_lab_descent *d, bool *down) {
  double *const factor = curvature + (ptrdiff_t)WEIGHTS * WEIGHTS, *const slope = from + WEIGHTS, step[WEIGHTS];
  const double before = d->value;
  HARK_TRY(measure_curvature(t, d->x, curvature));
  memcpy(from, d->x, WEIGHTS * sizeof *from);
  memcpy(slope, d->gradient, WEIGHTS * sizeof *slope);
  *down = false;
  for (int attempt = 0; attempt < TRIES && !*down; attempt++) {
    memcpy(factor, curvature, sizeof(double) * WEIGHTS * WEIGHTS);
    for (int i = 0; i < WEIGHTS; i++) factor[(ptrdiff_t)i * (WEIGHTS + 1)] *= 1 + *damping;
    for (int i = 0; i < WEIGHTS; i++) step[i] = slope[i] / 2;
    if (hark_lab_cholesky(WEIGHTS, factor)) {
      hark_lab_cholesky_solve(WEIGHTS, factor, 1, step);
      for (int i = 0; i < WEIGHTS; i++) d->x[i] = from[i] - step[i];
      HARK_TRY(loss(t, d->x, &d->value, d->gradient));
      *down = d->value < before;
    }
    *damping = *down ? fmax(*damping / 10, LEAST_DAMPING) : *damping * 10;
  }
  if (*down) return HARK_OK;
  d->value = before;
  memcpy(d->x, from, WEIGHTS * sizeof *from);
  memcpy(d->gradient, slope, WEIGHTS * sizeof *slope);
  return HARK_OK;
}

static hark_status train(trainer *t, const sizes *s, hark_lab_descent *descent) {
  const hark_lab_objective objective = {.dims = WEIGHTS, .evaluate = loss, .user = t};
  double *curvature, *from, damping = DAMPING;
  HARK_TRY(hark_lab_make_descent(t->lab, WEIGHTS, HARK_LAB_PAIRS, descent));
  HARK_TRY(hark_lab_numbers(t->lab, (int64_t)2 * WEIGHTS * WEIGHTS, &curvature));
  HARK_TRY(hark_lab_numbers(t->lab, (int64_t)2 * WEIGHTS, &from));
  hark_lab_normal(t->lab, (1 << 20) - 3, WEIGHTS, descent->x);
  for (int i = 0; i < WEIGHTS; i++) descent->x[i] /= sqrt(i < AT_MASK ? TOKEN : DC);
  t->count = FEW;
  HARK_TRY(hark_lab_descend(t->lab, &objective, (hark_lab_adam){.steps = s->adam_steps, .rate = RATE}, descent));
  t->count = s->more;
  HARK_TRY(hark_lab_quasi_newton(&objective, s->evaluations, TOLERANCE, descent));
  t->count = s->many;
  HARK_TRY(loss(t, descent->x, &descent->value, descent->gradient));
  bool down = true;
  for (int step = 0; step < s->steps && down; step++) {
    HARK_TRY(step_down(t, curvature, from, &damping, descent, &down));
    descent->norm = sqrt(hark_lab_dot(descent->gradient, descent->gradient, WEIGHTS));
    down = down && descent->norm > TOLERANCE;
  }
  return HARK_OK;
}

static double square_distance(const double a[DR], const double b[DR]) {
  double sum = 0;
  for (int r = 0; r < DR; r++) sum += (a[r] - b[r]) * (a[r] - b[r]);
  return sum;
}

/* The Bayes predictor on c and r themselves, guess = R'C (C'C + s2/t2 I)^-1 c, without an operator; *inverse <- tr (C'C + s2/t2 I)^-1. */
static hark_status predict_by_truth(const trainer *t, double guess[DR], double *inverse) {
  const sequence *const s = t->s;
  double factor[DC * DC] = {0}, moments[DC * DR] = {0}, at[DC];
  hark_lab_add_left_transposed(DC, s->length, DC, s->covariate, s->covariate, factor);
  hark_lab_add_left_transposed(DC, s->length, DR, s->covariate, s->response, moments);
  for (int i = 0; i < DC; i++) factor[(ptrdiff_t)i * (DC + 1)] += HARK_FINITE_NOISE / HARK_FINITE_PRIOR;
  if (!hark_lab_cholesky(DC, factor)) return hark_fail(t->lab->context, HARK_INTERNAL_ERROR, "a Gram matrix with a ridge is not positive");
  memcpy(at, s->at, sizeof at);
  hark_lab_cholesky_solve(DC, factor, 1, at);
  hark_lab_multiply(1, DC, DR, at, moments, guess);
  *inverse = 0;
  for (int i = 0; i < DC; i++) { /* the trace, column by column */
    double column[DC] = {0};
    column[i] = 1;
    hark_lab_cholesky_solve(DC, factor, 1, column);
    *inverse += column[i];
  }
  return HARK_OK;
}

static hark_status measure_length(trainer *t, const double *weights, int64_t length, uint32_t stream, hark_lab_table *table) {
  hark_lab_mean trained = {0}, bayes = {0}, expected = {0}, beyond = {0};
  for (int draws = 0; draws < (t->lab->quick ? 1000 : 4000); draws++) {
    double guess[DR], inverse = 0;
    hark_call call;
    draw(t, stream + (uint32_t)draws, length, 1);
    HARK_TRY(predict(t->lab->context, &t->tested, weights, t->s->token, t->s->mask, 1, length, 1, &call));
    HARK_TRY(predict_by_truth(t, guess, &inverse));
    hark_lab_mean_add(&trained, square_distance(t->tested.y, t->s->mean));
    hark_lab_mean_add(&bayes, square_distance(guess, t->s->mean));
    hark_lab_mean_add(&beyond, square_distance(t->tested.y, t->s->mean) - square_distance(guess, t->s->mean));
    hark_lab_mean_add(&expected, DR * HARK_FINITE_NOISE * inverse);
  }
  const double row[HARK_FINITE_COLUMNS] = {
      (double)length, trained.mean, bayes.mean, expected.mean, trained.mean / bayes.mean, hark_lab_mean_error(&beyond) / bayes.mean};
  return hark_lab_add_row(t->lab, table, row);
}

hark_status hark_finite_measure_trained(hark_lab *lab) {
  trainer t;
  hark_lab_descent descent;
  hark_lab_table *table;
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  HARK_TRY(make_trainer(lab, s->many, &t));
  HARK_TRY(train(&t, s, &descent));
  HARK_TRY(hark_lab_add_table(lab, "features learned at 32 tokens, tested at other lengths", columns, HARK_FINITE_COLUMNS, &table));
  for (int64_t length = 8; length <= (lab->quick ? 128 : LONGEST); length *= 2)
    HARK_TRY(measure_length(&t, descent.x, length, (uint32_t)(1 << 19) + 4096 * (uint32_t)length / 8, table));
  return HARK_OK;
}
