/* finite_trained.c - see finite_trained.h.
 *
 * With C [L, dc], R [L, dr] the features of the tokens and c_q those of the masks, of which every sequence has some:
 *     G = C'C + rho I,   a_q = G^-1 c_q,   y^_q = R'C a_q                               (= zbar c_q)
 *     dy_q = d loss / d y^_q,   b_q = G^-1 C'R dy_q:    dc_q = b_q,   dR = C S,   dC = R S' - C (T + T'),   S = sum a_q dy_q',  T = sum b_q a_q'
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
  AT_RESPONSE = TOKEN * DC,           /* where in the weights W_r [TOKEN, dr] begins, behind W_c [TOKEN, dc] */
  AT_MASK = AT_RESPONSE + TOKEN * DR, /* W_m [dc, dc] */
  WEIGHTS = AT_MASK + DC * DC,
  MASKS = 16, /* of a sequence that is trained on; one that is tested has one */
  LONGEST = 512,
  PER_SEQUENCE = DR * DC + (LONGEST + MASKS) * TOKEN /* normal numbers, at most */
};
#define TOLERANCE 1e-6 /* of the gradient */
#define MIXING 0.5     /* of M: the identity and MIXING / sqrt(size) times normal numbers */

#define FEW 128 /* sequences for Adam, which finds the valley that L-BFGS follows */
#define RATE 0.02

/* L-BFGS on some more sequences, and from there on many. The kernel's scale is hardly seen at 32 tokens and is all at 8, where the minimiser on 4096
 * sequences loses a third beyond Bayes; what it loses falls like their number. */
typedef struct sizes {
  int adam_steps;
  int64_t more, many;
  int evaluations, last_evaluations;
} sizes;
static const sizes quick_sizes = {900, 512, 2048, 60, 60}, full_sizes = {1500, 512, 24576, 60, 200};

static const hark_lab_column columns[HARK_FINITE_COLUMNS] = {{"tokens", NULL, NULL},
                                                             {"excess", "trained", NULL},
                                                             {"excess", "Bayes, true features", NULL},
                                                             {"expected", "Bayes", NULL},
                                                             {"trained / Bayes", NULL, NULL}};

/* One sequence: what is behind it, and what is seen of it. */
typedef struct sequence {
  int64_t length, masks;
  double covariate[LONGEST * DC], response[LONGEST * DR], token[LONGEST * TOKEN]; /* c_l, r_l, x_l */
  double at[MASKS * DC], mask[MASKS * DC], mean[MASKS * DR], y[MASKS * DR];       /* c_q, msk_q, z c_q, y_q */
} sequence;

/* The solution at one sequence. */
typedef struct solution {
  double factor[DC * DC], moments[DC * DR]; /* G = factor factor', C'R */
  double a[MASKS * DC], guess[MASKS * DR];  /* a_q, y^_q */
} solution;

typedef struct trainer {
  hark_lab *lab;
  double mixing[TOKEN * TOKEN], mask_mixing[DC * DC];
  double *normal; /* [PER_SEQUENCE] */
  sequence *s;
  double *covariates, *responses; /* c_theta(X) [LONGEST, DC], r_theta(X) [LONGEST, DR] */
  int64_t count;                  /* sequences that are trained on, and what is seen of them: */
  double *tokens, *masks, *y;
} trainer;

/* Tokens, then masks, of stream number `stream`. */
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

/* y^_q = R'C (C'C + ridge I)^-1 c_q. False when G is not positive, which a ridge prevents. */
static bool solve(int64_t length, int64_t masks, const double *c, const double *r, const double *at, double ridge, solution *out) {
  memset(out, 0, sizeof *out);
  hark_lab_add_left_transposed(DC, length, DC, c, c, out->factor);
  hark_lab_add_left_transposed(DC, length, DR, c, r, out->moments);
  for (int i = 0; i < DC; i++) out->factor[(ptrdiff_t)i * (DC + 1)] += ridge;
  memcpy(out->a, at, (size_t)(masks * DC) * sizeof *at);
  if (!hark_lab_cholesky(DC, out->factor)) return false;
  for (int64_t q = 0; q < masks; q++) hark_lab_cholesky_solve(DC, out->factor, 1, out->a + q * DC);
  hark_lab_multiply(masks, DC, DR, out->a, out->moments, out->guess);
  return true;
}

static hark_status predict(trainer *t, const double *weights, const double *tokens, const double *masks, int64_t length, int64_t count,
                           solution *out) {
  double at[MASKS * DC];
  hark_lab_multiply(length, TOKEN, DC, tokens, weights, t->covariates);
  hark_lab_multiply(length, TOKEN, DR, tokens, weights + AT_RESPONSE, t->responses);
  hark_lab_multiply(count, DC, DC, masks, weights + AT_MASK, at);
  return solve(length, count, t->covariates, t->responses, at, 1, out)
             ? HARK_OK
             : hark_fail(t->lab->context, HARK_NOT_FINITE, "the features of a predictor that is trained are no numbers");
}

/* gradient += that of the loss, given its derivatives dy [MASKS, DR] by y^. */
static void go_back(const trainer *t, const double *tokens, const double *masks, const solution *at, const double *dy, double *gradient) {
  enum { L = HARK_FINITE_TRAINED_LENGTH };
  double b[MASKS * DC] = {0}, s[DC * DR] = {0}, both[DC * DC] = {0}, dc[L * DC] = {0}, dr[L * DR];
  hark_lab_add_right_transposed(MASKS, DR, DC, dy, at->moments, b);
  for (int q = 0; q < MASKS; q++) hark_lab_cholesky_solve(DC, at->factor, 1, b + (ptrdiff_t)q * DC);
  hark_lab_add_left_transposed(DC, MASKS, DR, at->a, dy, s);
  for (int i = 0; i < MASKS * DC; i++) b[i] = -b[i];
  hark_lab_add_left_transposed(DC, MASKS, DC, at->a, b, both); /* -(T + T') */
  hark_lab_add_left_transposed(DC, MASKS, DC, b, at->a, both);
  for (int i = 0; i < MASKS * DC; i++) b[i] = -b[i];
  hark_lab_multiply(L, DC, DR, t->covariates, s, dr);
  hark_lab_multiply(L, DC, DC, t->covariates, both, dc);
  hark_lab_add_right_transposed(L, DR, DC, t->responses, s, dc);
  hark_lab_add_left_transposed(TOKEN, L, DC, tokens, dc, gradient);
  hark_lab_add_left_transposed(TOKEN, L, DR, tokens, dr, gradient + AT_RESPONSE);
  hark_lab_add_left_transposed(DC, MASKS, DC, masks, b, gradient + AT_MASK);
}

/* Mean over sequences and masks of |y - y^|^2. */
static hark_status loss(void *user, const double *weights, double *value, double *gradient) {
  enum { L = HARK_FINITE_TRAINED_LENGTH };
  trainer *const t = user;
  const double count = (double)(t->count * MASKS);
  memset(gradient, 0, WEIGHTS * sizeof *gradient);
  *value = 0;
  for (int64_t i = 0; i < t->count; i++) {
    const double *const tokens = t->tokens + i * L * TOKEN, *const masks = t->masks + i * MASKS * DC, *const y = t->y + i * MASKS * DR;
    solution at;
    double dy[MASKS * DR];
    HARK_TRY(predict(t, weights, tokens, masks, L, MASKS, &at));
    for (int j = 0; j < MASKS * DR; j++) {
      const double error = at.guess[j] - y[j];
      *value += error * error / count;
      dy[j] = 2 * error / count;
    }
    go_back(t, tokens, masks, &at, dy, gradient);
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
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * DC, &t->covariates));
  HARK_TRY(hark_lab_numbers(lab, (int64_t)LONGEST * DR, &t->responses));
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

static hark_status train(trainer *t, const sizes *s, hark_lab_descent *descent) {
  const hark_lab_objective objective = {.dims = WEIGHTS, .evaluate = loss, .user = t};
  HARK_TRY(hark_lab_make_descent(t->lab, WEIGHTS, t->lab->quick ? HARK_LAB_PAIRS : HARK_LAB_MOST_PAIRS, descent));
  hark_lab_normal(t->lab, (1 << 20) - 3, WEIGHTS, descent->x);
  for (int i = 0; i < WEIGHTS; i++) descent->x[i] /= sqrt(i < AT_MASK ? TOKEN : DC);
  t->count = FEW;
  HARK_TRY(hark_lab_descend(t->lab, &objective, (hark_lab_adam){.steps = s->adam_steps, .rate = RATE}, descent));
  t->count = s->more;
  HARK_TRY(hark_lab_quasi_newton(&objective, s->evaluations, TOLERANCE, descent));
  t->count = s->many;
  return hark_lab_quasi_newton(&objective, s->last_evaluations, TOLERANCE, descent);
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
    draw(t, stream + (uint32_t)draws, length, 1);
    HARK_TRY(predict(t, weights, t->s->token, t->s->mask, length, 1, &at));
    hark_lab_mean_add(&trained, square_distance(at.guess, t->s->mean));
    if (!solve(length, 1, t->s->covariate, t->s->response, t->s->at, ridge, &at))
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
  const sizes *const s = lab->quick ? &quick_sizes : &full_sizes;
  HARK_TRY(make_trainer(lab, s->many, &t));
  HARK_TRY(train(&t, s, &descent));
  HARK_TRY(hark_lab_add_table(lab, "features learned at 32 tokens, tested at other lengths", columns, HARK_FINITE_COLUMNS, &table));
  for (int64_t length = 8; length <= (lab->quick ? 128 : LONGEST); length *= 2)
    HARK_TRY(measure_length(&t, descent.x, length, (uint32_t)(1 << 19) + 4096 * (uint32_t)length / 8, table));
  return HARK_OK;
}
