/* finite_trained.c - see finite_trained.h.
 *
 * With C [L, dc], R [L, dr] the features of the tokens and c that of the mask:
 *     G = C'C + rho I,   a = G^-1 c,   y^ = R'C a                                       (= zbar c)
 *     dy = d loss / d y^,   b = G^-1 C'R dy:    dc = b,   dR_l = (C_l.a) dy,   dC_l = (R_l.dy - C_l.b) a - (C_l.a) b
 */
#include "lab/finite_trained.h"

#include <string.h>

#include "lab/descent.h"
#include "lab/fit.h"
#include "lab/matrix.h"

enum {
  DR = HARK_FINITE_RESPONSES,
  DC = HARK_FINITE_COVARIATES,
  TOKEN = DC + DR,
  AT_RESPONSE = TOKEN * DC,          /* where in the weights W_r [TOKEN, dr] begins, behind W_c [TOKEN, dc] */
  AT_MASK = AT_RESPONSE + TOKEN * DR, /* W_m [dc, dc] */
  WEIGHTS = AT_MASK + DC * DC,
  BATCH = 64,
  LONGEST = 512,
  PER_SEQUENCE = DR * DC + (LONGEST + 1) * TOKEN /* normal numbers, at most */
};
#define RATE 0.01
#define MIXING 0.5 /* of M: the identity and MIXING / sqrt(size) times normal numbers */
#define QUICK_STEPS 3000
#define FULL_STEPS 10000

static const hark_lab_column columns[HARK_FINITE_COLUMNS] = {{"tokens", NULL, NULL},
                                                             {"excess", "trained", NULL},
                                                             {"excess", "Bayes, true features", NULL},
                                                             {"expected", "Bayes", NULL},
                                                             {"trained / Bayes", NULL, NULL}};

/* One sequence: what is behind it, and what is seen of it. */
typedef struct sequence {
  int64_t length;
  double covariate[LONGEST * DC], response[LONGEST * DR], token[LONGEST * TOKEN]; /* c_l, r_l, x_l */
  double at[DC], mask[DC], mean[DR], y[DR];                                        /* c, msk, z c, y */
} sequence;

/* The solution at one sequence. */
typedef struct solution {
  double factor[DC * DC], moments[DC * DR], a[DC], guess[DR]; /* G = factor factor', C'R, a, y^ */
} solution;

typedef struct trainer {
  hark_lab *lab;
  double mixing[TOKEN * TOKEN], mask_mixing[DC * DC];
  double *normal; /* [PER_SEQUENCE] */
  sequence *s;
  double *covariates, *responses; /* c_theta(X) [LONGEST, DC], r_theta(X) [LONGEST, DR] */
  uint32_t stream;                /* of the next sequence */
} trainer;

static void draw(trainer *t, uint32_t stream, int64_t length) {
  sequence *const s = t->s;
  const double *const z = t->normal, *normal = z + DR * DC, spread = sqrt(HARK_FINITE_PRIOR * DC);
  hark_lab_normal(t->lab, stream, DR * DC + (length + 1) * TOKEN, t->normal);
  s->length = length;
  for (int64_t l = 0; l <= length; l++, normal += TOKEN) {
    double plain[TOKEN];
    for (int r = 0; r < DR; r++) {
      const double mean = sqrt(HARK_FINITE_PRIOR) * hark_lab_dot(z + (ptrdiff_t)r * DC, normal, DC);
      const double response = mean + sqrt(HARK_FINITE_NOISE) * normal[DC + r];
      plain[DC + r] = response / spread;
      *(l < length ? &s->response[l * DR + r] : &s->y[r]) = response;
      if (l == length) s->mean[r] = mean;
    }
    memcpy(plain, normal, DC * sizeof *plain);
    memcpy(l < length ? s->covariate + l * DC : s->at, normal, DC * sizeof *normal);
    if (l < length) hark_lab_multiply(1, TOKEN, TOKEN, plain, t->mixing, s->token + l * TOKEN);
  }
  hark_lab_multiply(1, DC, DC, s->at, t->mask_mixing, s->mask);
}

/* y^ = R'C (C'C + ridge I)^-1 c. False when G is not positive, which a ridge prevents. */
static bool solve(int64_t length, const double *c, const double *r, const double *at, double ridge, solution *out) {
  memset(out, 0, sizeof *out);
  hark_lab_add_left_transposed(DC, length, DC, c, c, out->factor);
  hark_lab_add_left_transposed(DC, length, DR, c, r, out->moments);
  for (int i = 0; i < DC; i++) out->factor[i * (DC + 1)] += ridge;
  memcpy(out->a, at, sizeof out->a);
  if (!hark_lab_cholesky(DC, out->factor)) return false;
  hark_lab_cholesky_solve(DC, out->factor, 1, out->a);
  hark_lab_add_left_transposed(DR, DC, 1, out->moments, out->a, out->guess);
  return true;
}

static hark_status predict(trainer *t, const double *weights, solution *out) {
  const sequence *const s = t->s;
  double at[DC];
  hark_lab_multiply(s->length, TOKEN, DC, s->token, weights, t->covariates);
  hark_lab_multiply(s->length, TOKEN, DR, s->token, weights + AT_RESPONSE, t->responses);
  hark_lab_multiply(1, DC, DC, s->mask, weights + AT_MASK, at);
  return solve(s->length, t->covariates, t->responses, at, 1, out)
             ? HARK_OK
             : hark_fail(t->lab->context, HARK_NOT_FINITE, "the features of a predictor that is trained are no numbers");
}

/* gradient += that of the loss, given its derivative dy by y^. */
static void go_back(const trainer *t, const solution *at, const double dy[DR], double *gradient) {
  const sequence *const s = t->s;
  double b[DC] = {0}, dc[DC], dr[DR];
  hark_lab_multiply(DC, DR, 1, at->moments, dy, b);
  hark_lab_cholesky_solve(DC, at->factor, 1, b);
  for (int64_t l = 0; l < s->length; l++) {
    const double *const c = t->covariates + l * DC, *const x = s->token + l * TOKEN;
    const double along = hark_lab_dot(c, at->a, DC);
    const double left = hark_lab_dot(t->responses + l * DR, dy, DR) - hark_lab_dot(c, b, DC);
    for (int i = 0; i < DC; i++) dc[i] = left * at->a[i] - along * b[i];
    for (int i = 0; i < DR; i++) dr[i] = along * dy[i];
    hark_lab_add_left_transposed(TOKEN, 1, DC, x, dc, gradient);
    hark_lab_add_left_transposed(TOKEN, 1, DR, x, dr, gradient + AT_RESPONSE);
  }
  hark_lab_add_left_transposed(DC, 1, DC, s->mask, b, gradient + AT_MASK);
}

/* Mean |y - y^|^2 over a fresh batch. */
static hark_status fresh_batch(void *user, const double *weights, double *value, double *gradient) {
  trainer *const t = user;
  memset(gradient, 0, WEIGHTS * sizeof *gradient);
  *value = 0;
  for (int i = 0; i < BATCH; i++) {
    solution at;
    double dy[DR];
    draw(t, t->stream++, HARK_FINITE_TRAINED_LENGTH);
    HARK_TRY(predict(t, weights, &at));
    for (int r = 0; r < DR; r++) {
      const double error = at.guess[r] - t->s->y[r];
      *value += error * error / BATCH;
      dy[r] = 2 * error / BATCH;
    }
    go_back(t, &at, dy, gradient);
  }
  return HARK_OK;
}

static void draw_mixing(const hark_lab *lab, uint32_t stream, int size, double *out) {
  hark_lab_normal(lab, stream, (int64_t)size * size, out);
  for (int i = 0; i < size * size; i++) out[i] = (i % (size + 1) == 0) + MIXING / sqrt(size) * out[i];
}

static hark_status make_trainer(hark_lab *lab, trainer *t) {
  void *memory;
  *t = (trainer){.lab = lab, .stream = 1 << 20};
  HARK_TRY(hark_lab_numbers(lab, PER_SEQUENCE, &t->normal));
  HARK_TRY(hark_lab_allocate(lab, sizeof(sequence), &memory));
  t->s = memory;
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * DC, &t->covariates));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * DR, &t->responses));
  draw_mixing(lab, (1 << 20) - 1, TOKEN, t->mixing);
  draw_mixing(lab, (1 << 20) - 2, DC, t->mask_mixing);
  return HARK_OK;
}

static hark_status train(trainer *t, hark_lab_descent *descent) {
  const hark_lab_objective objective = {.dims = WEIGHTS, .evaluate = fresh_batch, .user = t};
  const hark_lab_adam how = {.steps = t->lab->quick ? QUICK_STEPS : FULL_STEPS, .rate = RATE, .last = true};
  HARK_TRY(hark_lab_make_descent(t->lab, WEIGHTS, descent));
  hark_lab_normal(t->lab, (1 << 20) - 3, WEIGHTS, descent->x);
  for (int i = 0; i < WEIGHTS; i++) descent->x[i] /= sqrt(i < AT_MASK ? TOKEN : DC);
  return hark_lab_descend(t->lab, &objective, how, descent);
}

static double square_distance(const double a[DR], const double b[DR]) {
  double sum = 0;
  for (int r = 0; r < DR; r++) sum += (a[r] - b[r]) * (a[r] - b[r]);
  return sum;
}

static hark_status measure_length(trainer *t, const double *weights, int64_t length, uint32_t stream, hark_lab_table *table) {
  const double ridge = HARK_FINITE_NOISE / HARK_FINITE_PRIOR;
  hark_lab_mean trained = {0}, bayes = {0}, expected = {0};
  for (int draws = 0; draws < (t->lab->quick ? 1000 : 4000); draws++) {
    solution at;
    double inverse = 0;
    draw(t, stream + (uint32_t)draws, length);
    HARK_TRY(predict(t, weights, &at));
    hark_lab_mean_add(&trained, square_distance(at.guess, t->s->mean));
    if (!solve(length, t->s->covariate, t->s->response, t->s->at, ridge, &at))
      return hark_fail(t->lab->context, HARK_INTERNAL_ERROR, "a Gram matrix with a ridge is not positive");
    hark_lab_mean_add(&bayes, square_distance(at.guess, t->s->mean));
    for (int i = 0; i < DC; i++) { /* the trace of G^-1, column by column */
      double column[DC] = {0};
      column[i] = 1;
      hark_lab_cholesky_solve(DC, at.factor, 1, column);
      inverse += column[i];
    }
    hark_lab_mean_add(&expected, DR * HARK_FINITE_NOISE * inverse);
  }
  const double row[HARK_FINITE_COLUMNS] = {(double)length, trained.mean, bayes.mean, expected.mean, trained.mean / bayes.mean};
  return hark_lab_add_row(t->lab, table, row);
}

hark_status hark_finite_measure_trained(hark_lab *lab) {
  trainer t;
  hark_lab_descent descent;
  hark_lab_table *table;
  HARK_TRY(make_trainer(lab, &t));
  HARK_TRY(train(&t, &descent));
  HARK_TRY(hark_lab_add_table(lab, "features learned at 32 tokens, tested at other lengths", columns, HARK_FINITE_COLUMNS, &table));
  for (int64_t length = 8; length <= (lab->quick ? 128 : LONGEST); length *= 2)
    HARK_TRY(measure_length(&t, descent.x, length, (uint32_t)(1 << 19) + 4096 * (uint32_t)length / 8, table));
  return HARK_OK;
}
