/* ratios.c - see ratios.h. */
#include "lab/ratios.h"

#include <string.h>

#include "lab/attention.h"
#include "lab/matrix.h"
#include "lab/search.h"
#include "lab/singular.h"

#define CHANGE 1e-4 /* of weights and inputs: the inequalities are sharpest where they are derivatives */
#define HIDDEN 2    /* of the ffn, times d */
#define RATE 0.05
#define SPAN HARK_LAB_LARGEST_LAYER

typedef struct problem {
  hark_lab *lab;
  hark_lab_lemma lemma;
  hark_lab_layer layer;
  int64_t width, dims;
  hark_lab_ratio best;
  double *x, *x_changed;         /* [L, d] */
  hark_lab_heads plain, changed; /* of an ffn query is A [d, 2 d] and value A' [2 d, d] */
  hark_attention_desc choice;
  double *out, *out_changed, *hidden; /* [L, d], [L, d], [L, 2 d] */
} problem;

static bool is_ffn(hark_lab_lemma lemma) { return lemma == HARK_LAB_C11 || lemma == HARK_LAB_G6_FFN; }
static bool is_softmax(hark_lab_lemma lemma) { return lemma == HARK_LAB_F5 || lemma == HARK_LAB_F6; }

/* ---- norms ---- */

/* |X|_{2,inf} of the transpose: the largest row. */
static double largest_row(const double *x, int64_t rows, int64_t width) {
  double largest = 0;
  for (int64_t i = 0; i < rows; i++) largest = hark_larger(largest, hark_lab_dot(x + i * width, x + i * width, width));
  return sqrt(largest);
}

static double operator_norm(const double *w, int64_t rows, int64_t columns) {
  double turned[SPAN * SPAN * HIDDEN], values[SPAN * HIDDEN];
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) turned[columns <= rows ? j * rows + i : i * columns + j] = w[i * columns + j];
  hark_singular_values(columns <= rows ? columns : rows, columns <= rows ? rows : columns, turned, values);
  return values[0];
}

static void scale_to(double *w, int64_t count, double norm, double bound) {
  for (int64_t i = 0; i < count; i++) w[i] *= bound / norm;
}

/* ---- layers ---- */

static void feed_forward(const problem *p, const double *x, const hark_lab_heads *w, double *out) {
  const int64_t d = p->width, hidden = HIDDEN * d, length = p->layer.length;
  hark_lab_multiply(length, d, hidden, x, w->query, p->hidden);
  for (int64_t i = 0; i < length * hidden; i++) p->hidden[i] = hark_larger(p->hidden[i], 0);
  hark_lab_multiply(length, hidden, d, p->hidden, w->value, out);
  for (int64_t i = 0; i < length * d; i++) out[i] += x[i];
}

static hark_status run_layer(const problem *p, const double *x, const hark_lab_heads *w, double *out) {
  if (!is_ffn(p->lemma)) return hark_lab_sum_heads(p->lab->context, &p->choice, w, x, out);
  feed_forward(p, x, w, out);
  return HARK_OK;
}

hark_status hark_lab_weights_distance(hark_lab *lab, double variance, int64_t length, int64_t dim, const double *q, const double *q_changed,
                                      const double *k, const double *k_changed, double *out) {
  double identity[SPAN * SPAN] = {0}, plain[SPAN], changed[SPAN];
  hark_attention_desc choice = hark_attention_desc_default();
  hark_lab_head head = {.length = length, .queries = 1, .head_dim = dim, .value_dim = length, .query = q, .key = k, .value = identity};
  choice.kernel = HARK_KERNEL_RBF;
  choice.sigma = sqrt(variance);
  for (int64_t i = 0; i < length; i++) identity[i * (length + 1)] = 1; /* values that return the weights themselves */
  HARK_TRY(hark_lab_attend(lab->context, &choice, &head, plain));
  head.query = q_changed;
  head.key = k_changed;
  HARK_TRY(hark_lab_attend(lab->context, &choice, &head, changed));
  *out = 0;
  for (int64_t i = 0; i < length; i++) *out += fabs(plain[i] - changed[i]);
  return HARK_OK;
}

/* ---- from numbers of a search to an instance ---- */

/* count matrices [rows, columns] of norm `norm`, and each with a change of Frobenius norm CHANGE (or none), from 2 count matrices of
 * numbers. */
static void make_matrices(const double **from, int64_t count, int64_t rows, int64_t columns, double norm, bool change, double *plain,
                          double *changed) {
  const int64_t size = rows * columns;
  for (int64_t m = 0; m < count; m++, plain += size, changed += size) {
    memcpy(plain, *from, (size_t)size * sizeof *plain);
    scale_to(plain, size, operator_norm(plain, rows, columns), norm);
    *from += size;
    const double length = sqrt(hark_lab_dot(*from, *from, size));
    for (int64_t i = 0; i < size; i++) changed[i] = plain[i] + (change ? CHANGE * (*from)[i] / length : 0);
    *from += size;
  }
}

static void make_instance(problem *p, const double *from) {
  const hark_lab_layer *const l = &p->layer;
  const int64_t d = p->width, size = l->length * d;
  const bool changes_queries = p->lemma == HARK_LAB_C11 || p->lemma == HARK_LAB_C12 || p->lemma == HARK_LAB_C13;
  const bool changes_values = p->lemma == HARK_LAB_C11 || p->lemma == HARK_LAB_C13;
  memcpy(p->x, from, (size_t)size * sizeof *p->x);
  scale_to(p->x, size, largest_row(p->x, l->length, d), l->radius);
  from += size;
  const double row = largest_row(from, l->length, d);
  for (int64_t i = 0; i < size; i++) p->x_changed[i] = p->x[i] + (p->lemma == HARK_LAB_C14 ? CHANGE * from[i] / row : 0);
  from += size;
  if (is_ffn(p->lemma)) {
    make_matrices(&from, 1, d, HIDDEN * d, l->query_norm, changes_queries, p->plain.query, p->changed.query);
    make_matrices(&from, 1, HIDDEN * d, d, l->value_norm, changes_values, p->plain.value, p->changed.value);
    return;
  }
  make_matrices(&from, l->heads, d, l->head_dim, l->query_norm, changes_queries, p->plain.query, p->changed.query);
  make_matrices(&from, l->heads, d, l->head_dim, l->query_norm, changes_queries, p->plain.key, p->changed.key);
  make_matrices(&from, l->heads, d, d, l->value_norm, changes_values, p->plain.value, p->changed.value);
}

static int64_t count_numbers(const problem *p) {
  const int64_t d = p->width, heads = p->layer.heads, inputs = p->layer.length * d;
  if (is_softmax(p->lemma)) return 2 * (p->layer.head_dim + p->layer.length * p->layer.head_dim);
  return 2 * inputs + 2 * (is_ffn(p->lemma) ? d * d * 2 * HIDDEN : heads * (2 * d * p->layer.head_dim + d * d));
}

/* ---- right sides ---- */

/* Bounds w hold for the weights and for the changed ones: w + CHANGE. */
static hark_lab_ratio right_side(const problem *p) {
  const hark_lab_layer *const l = &p->layer;
  const double R = hark_larger(largest_row(p->x, l->length, p->width), largest_row(p->x_changed, l->length, p->width)),
               h = (double)l->heads;
  const double wq = l->query_norm + CHANGE, wv = l->value_norm + CHANGE, s2 = l->variance;
  switch (p->lemma) {
    case HARK_LAB_C11: return (hark_lab_ratio){R * CHANGE * (wq + wv), R * CHANGE * (wq + wv)};
    case HARK_LAB_C12: return (hark_lab_ratio){R * R * R * h * 2 * wq * 2 * CHANGE, R * R * R * h * 2 * wq * 2 * CHANGE * wv / s2};
    case HARK_LAB_C13:
      return (hark_lab_ratio){R * h * CHANGE + R * R * R * h * 2 * wq * 2 * CHANGE,
                              R * h * CHANGE + R * R * R * h * 2 * wq * 2 * CHANGE * wv / s2};
    case HARK_LAB_C14:
      return (hark_lab_ratio){(h * wv + R * R * h * 4 * wq * wq * wv) * CHANGE, (h * wv + R * R * h * 4 * wq * wq * wv / s2) * CHANGE};
    case HARK_LAB_G6_HEADS: return (hark_lab_ratio){(1 + h * wv) * R, (1 + h * wv) * R};
    default: return (hark_lab_ratio){(1 + wq * wv) * R, (1 + wq * wv) * R};
  }
}

/* Both sides of F.1: p changes with the keys or with the query. */
static hark_status softmax_ratio(problem *p, const double *from, hark_lab_ratio *out) {
  const hark_lab_layer *const l = &p->layer;
  const int64_t dim = l->head_dim, size = l->length * dim;
  const double *const q = from, *const q_changed = q + dim, *const k = q_changed + dim, *const k_changed = k + size;
  const bool keys = p->lemma == HARK_LAB_F5;
  double left, change = 0, row[SPAN];
  HARK_TRY(hark_lab_weights_distance(p->lab, l->variance, l->length, dim, q, keys ? q : q_changed, k, keys ? k_changed : k, &left));
  for (int64_t i = 0; i < (keys ? l->length : 1); i++) {
    for (int64_t c = 0; c < dim; c++) row[c] = keys ? k[i * dim + c] - k_changed[i * dim + c] : q[c] - q_changed[c];
    change = hark_larger(change, sqrt(hark_lab_dot(row, row, dim)));
  }
  const double of_q = sqrt(hark_lab_dot(q, q, dim)), of_k = largest_row(k, l->length, dim);
  const double of_both = keys ? hark_larger(of_k, largest_row(k_changed, l->length, dim)) : of_k;
  *out = (hark_lab_ratio){left / ((of_q + of_k) * change), left / ((of_q + of_both) / l->variance * change)};
  return HARK_OK;
}

static hark_status ratio_at(problem *p, const double *from, hark_lab_ratio *out) {
  const bool is_size = p->lemma == HARK_LAB_G6_HEADS || p->lemma == HARK_LAB_G6_FFN;
  const int64_t size = p->layer.length * p->width;
  if (is_softmax(p->lemma)) return softmax_ratio(p, from, out);
  make_instance(p, from);
  HARK_TRY(run_layer(p, p->x, &p->plain, p->out));
  if (is_size) {
    for (int64_t i = 0; i < size; i++) p->out[i] += p->lemma == HARK_LAB_G6_HEADS ? p->x[i] : 0;
  } else {
    HARK_TRY(run_layer(p, p->x_changed, &p->changed, p->out_changed));
    for (int64_t i = 0; i < size; i++) p->out[i] -= p->out_changed[i];
  }
  const double left = largest_row(p->out, p->layer.length, p->width);
  const hark_lab_ratio right = right_side(p);
  *out = (hark_lab_ratio){left / right.printed, left / right.corrected};
  return HARK_OK;
}

/* ---- the search ---- */

static hark_status value_of(void *user, const double *x, double *out) {
  problem *const p = user;
  hark_lab_ratio ratio;
  HARK_TRY(ratio_at(p, x, &ratio));
  p->best.printed = hark_larger(p->best.printed, ratio.printed);
  p->best.corrected = hark_larger(p->best.corrected, ratio.corrected);
  *out = log(ratio.corrected);
  return HARK_OK;
}

/* For an ffn: [2, d, d] each, as many numbers as A and A' have. */
static hark_status make_weights(hark_lab *lab, const problem *p, hark_lab_heads *out) {
  *out = (hark_lab_heads){.heads = p->layer.heads, .width = p->width, .head_dim = p->layer.head_dim, .length = p->layer.length};
  if (is_ffn(p->lemma)) *out = (hark_lab_heads){.heads = HIDDEN, .width = p->width, .head_dim = p->width, .length = p->layer.length};
  return hark_lab_make_heads(lab, out);
}

static hark_status make_problem(hark_lab *lab, hark_lab_lemma lemma, const hark_lab_layer *layer, problem *p) {
  *p = (problem){.lab = lab, .lemma = lemma, .layer = *layer, .width = layer->heads * layer->head_dim};
  const int64_t size = layer->length * p->width;
  if (p->width > SPAN || layer->length > SPAN) return hark_fail(lab->context, HARK_TOO_LARGE, "a layer of more than %d", SPAN);
  p->dims = count_numbers(p);
  HARK_TRY(hark_lab_numbers(lab, size, &p->x));
  HARK_TRY(hark_lab_numbers(lab, size, &p->x_changed));
  HARK_TRY(hark_lab_numbers(lab, size, &p->out));
  HARK_TRY(hark_lab_numbers(lab, size, &p->out_changed));
  HARK_TRY(hark_lab_numbers(lab, HIDDEN * size, &p->hidden));
  p->choice = hark_attention_desc_default();
  p->choice.kernel = HARK_KERNEL_RBF;
  p->choice.sigma = sqrt(layer->variance);
  HARK_TRY(make_weights(lab, p, &p->plain));
  return make_weights(lab, p, &p->changed);
}

hark_status hark_lab_largest_ratio(hark_lab *lab, hark_lab_lemma lemma, const hark_lab_layer *layer, int restarts, int steps,
                                   uint32_t first, hark_lab_ratio *out) {
  problem p;
  double *x, best;
  HARK_TRY(make_problem(lab, lemma, layer, &p));
  HARK_TRY(hark_lab_numbers(lab, p.dims, &x));
  const hark_lab_search search = {.dims = p.dims, .steps = steps, .rate = RATE, .value = value_of, .user = &p};
  for (int i = 0; i < restarts; i++) {
    hark_lab_normal(lab, first + (uint32_t)i, p.dims, x);
    for (int64_t n = 0; n < p.dims; n++) x[n] *= is_softmax(lemma) ? sqrt(layer->variance) : 1; /* within the kernel's width */
    HARK_TRY(hark_lab_maximise(lab, &search, x, &best));
  }
  *out = p.best;
  return HARK_OK;
}
