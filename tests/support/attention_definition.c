/* attention_definition.c - forward and gradients from whole matrices, and how far a rounded computation may be off.
 *
 * Of one head, with all matrices [Lq, Lk] and hidden entries left out:
 *     S = logits,  P = softmax(S),  W = M * P (dropout),  O = W V
 *     G = M * (dO V^T),  D = rowsum(P * G),  dS = P * (G - D),  dV = W^T dO,  dQ, dK by the kernel
 *
 * Bounds, to first order in the roundoff u, for any order of summation (Higham, Accuracy and Stability, section 3.1: a sum of n products is
 * off by at most n u sum |a b|):
 *     logit      e_s <= (d + 4) u sum |scale q k| (+ the squares, with RBF, which may be expanded) + 4 u (all terms' sizes)
 *     weight     relative 2 max e_s over the row + (Lk + 16) u: numerator, normaliser, and an exponential good to a few u
 *     out        sum W |v| (relative error of W + Lk u)
 *     log_sum_exp  max e_s + (Lk + 16) u + u |lse|
 *     backward   P = exp(s - lse): relative e_s + error of lse + 16 u + u (|s| + |lse|)
 *     dS         |dS| relative + P (error of G + error of D) + 4 u P (|G| + |D|)
 * Stick-breaking (arXiv 2410.17980), b[n,i] = sigmoid(S[n,i]) of the keys before a query, P[n,i] = b[n,i] prod over i < j of (1 - b[n,j]):
 *     dS[n,j] = P[n,j] (1 - b[n,j]) G[n,j] - b[n,j] sum over i < j of P[n,i] G[n,i]
 *     weight     relative (1 - b) e_s + sum over j > i of (b e_s + 8): an exponential, a quotient and a product for every key
 *     log_sum_exp  is log(1 - sum P): sum of (b e_s + 8)
 *     sums       errors of what is summed + (number of terms + 4) u sum of sizes
 */
#include "support/attention_definition.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_matrices.h"

#define EXPONENTIAL 16.0 /* roundings in an exponential and the additions beside it, and of a logarithm */

static double *numbers(int64_t count) {
  double *memory = calloc((size_t)(count > 0 ? count : 1), sizeof *memory);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

static double log_sigmoid(double f) { return f < -30 ? f : -log1p(exp(-f)); }

/* Sum over t in (i, n] of log sigmoid(f_t), t in the sequence's keys; `first` is the row of its first key. */
static double gate_sum(const attention_problem *p, int64_t b, int64_t h, int64_t first, int64_t i, int64_t n, int64_t keys) {
  double sum = 0;
  for (int64_t t = i + 1; t <= n && t < keys; t++)
    sum += log_sigmoid(p->array[ARRAY_FORGET].data[(b * p->is.heads + h) * p->is.keys + first + t]);
  return sum;
}

/* Logit, its error and the distance of entry (n, i); weight < 0 when it is hidden. */
static void make_entry(const attention_problem *p, head_matrices *m, int64_t b, int64_t h, int64_t n, int64_t i) {
  const attention_case *c = &p->is;
  const int64_t at = n * m->columns + i;
  m->weight[at] = -1;
  const attention_place query = attention_query_place(p, b, n), key = attention_key_place(p, b, i);
  if (query.sequence < 0 || key.sequence != query.sequence) return;
  const int64_t position = query.row + query.offset, difference = position - key.row;
  if (c->causal && difference < (c->stick ? 1 : 0)) return;
  m->distance[at] = difference < 0 ? -difference : difference;
  if (c->is_window && m->distance[at] > c->window) return;
  if (c->mask && p->mask[attention_index(p->mask_shape, b, h, n, i)] == 0) return;
  const attention_numbers *a = p->array;
  double terms = 0, sizes = 0;
  if (c->bias) terms += a[ARRAY_BIAS].data[attention_index(a[ARRAY_BIAS].shape, b, h, n, i)];
  m->column[at] = attention_kernel_column(c, a[ARRAY_LOG_KERNEL].shape[1], difference);
  if (c->kernel || c->shared) terms += a[ARRAY_LOG_KERNEL].data[(c->shared ? 0 : h) * a[ARRAY_LOG_KERNEL].shape[1] + m->column[at]];
  if (terms == -INFINITY) return;
  sizes += fabs(terms) + (c->bias && (c->kernel || c->shared) ? 4 : 0); /* the two may cancel: they are at most 2 and 3 large */
  if (c->forget) {
    terms += gate_sum(p, b, h, i - key.row, key.row, position, key.keys);
    sizes -= 2 * gate_sum(p, b, h, i - key.row, -1, position, key.keys); /* computed as a difference of sums from the start */
  }
  const double *q = a[ARRAY_QUERY].data + ((b * c->heads + h) * c->queries + n) * c->head_dim;
  const double *k = a[ARRAY_KEY].data + ((b * c->key_heads + h / (c->heads / c->key_heads)) * c->keys + i) * c->head_dim;
  double similarity = 0, magnitude = 0;
  for (int64_t x = 0; x < c->head_dim; x++) {
    similarity += c->rbf ? -(q[x] - k[x]) * (q[x] - k[x]) / (2 * p->sigma * p->sigma) : p->scale * q[x] * k[x];
    magnitude += c->rbf ? (fabs(q[x]) + fabs(k[x])) * (fabs(q[x]) + fabs(k[x])) / (2 * p->sigma * p->sigma) : fabs(p->scale * q[x] * k[x]);
  }
  m->weight[at] = 0;
  m->product[at] = similarity;
  m->product_error[at] = ((double)c->head_dim + FEW_ROUNDINGS) * magnitude;
  m->logit[at] = similarity + terms;
  m->logit_error[at] = ((double)c->head_dim + FEW_ROUNDINGS) * magnitude + FEW_ROUNDINGS * (sizes + fabs(m->logit[at]));
  m->factor[at] = 1;
  if (c->dropout > 0) {
    const uint64_t counter = ((((uint64_t)(b * c->heads + h) << 23) + (uint64_t)n) << 21) + (uint64_t)i / 4;
    uint32_t words[4];
    hark_random_words(&p->dropout, counter, words);
    m->factor[at] = words[i % 4] >= hark_random_threshold(c->dropout) ? 1 / (1 - c->dropout) : 0;
  }
}

/* One head's results, and how many they add to. */
void attention_add_result(attention_expected *e, attention_array array, int64_t index, double value, double bound) {
  e->array[array].data[index] += value;
  e->bound[array][index] += bound;
}

/* Softmax of a row; returns log-sum-exp, and the relative error of its weights and the error of log-sum-exp in units of u. */
static double softmax_row(const head_matrices *m, int64_t n, double *relative, double *lse_error) {
  double largest = -INFINITY, sum = 0, error = 0;
  for (int64_t i = 0; i < m->columns; i++) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0) continue;
    if (m->logit[at] > largest) largest = m->logit[at];
    if (m->logit_error[at] > error) error = m->logit_error[at];
  }
  if (largest == -INFINITY) return -INFINITY;
  for (int64_t i = 0; i < m->columns; i++)
    if (m->weight[n * m->columns + i] >= 0) sum += exp(m->logit[n * m->columns + i] - largest);
  const double lse = largest + log(sum);
  for (int64_t i = 0; i < m->columns; i++)
    if (m->weight[n * m->columns + i] >= 0) m->weight[n * m->columns + i] = exp(m->logit[n * m->columns + i] - lse);
  *relative = 2 * error + (double)m->columns + EXPONENTIAL;
  *lse_error = error + (double)m->columns + EXPONENTIAL + fabs(lse);
  return lse;
}

static void forward_row(const attention_problem *p, attention_expected *e, head_matrices *m, int64_t b, int64_t h, int64_t n,
                        double *relative_backward, double *out_error) {
  const attention_case *c = &p->is;
  double relative = 0, lse_error = 0;
  const double lse = softmax_row(m, n, &relative, &lse_error);
  const int64_t row = (b * c->heads + h) * c->queries + n;
  attention_add_result(e, ARRAY_LSE, row, lse, lse_error);
  const double *values = p->array[ARRAY_VALUE].data + (b * c->key_heads + h / (c->heads / c->key_heads)) * c->keys * c->value_dim;
  for (int64_t x = 0; x < c->value_dim; x++) {
    double sum = 0, size = 0;
    for (int64_t i = 0; lse != -INFINITY && i < m->columns; i++) {
      const int64_t at = n * m->columns + i;
      if (m->weight[at] < 0 || m->factor[at] == 0) continue;
      const double term = m->factor[at] * m->weight[at] * values[i * c->value_dim + x];
      sum += term;
      size += fabs(term);
    }
    out_error[x] = size * (relative + (double)m->columns + FEW_ROUNDINGS);
    attention_add_result(e, ARRAY_OUT, row * c->value_dim + x, sum, out_error[x]);
  }
  *relative_backward = lse_error + EXPONENTIAL + fabs(lse);
}

/* ---- stick-breaking ---- */

#define STICK_STEP 8.0     /* roundings of one key: e = exp S, 1 / (1 + e), e times it, the product with what is left */
#define STICK_END 0x1p-100 /* less than this is nothing: farther keys are hidden */

static double sigmoid(double s) { return s < 0 ? exp(s) / (1 + exp(s)) : 1 / (1 + exp(-s)); }

/* P of a row, from the nearest key on; keys after the stick is used up become hidden. `relative`: errors of P in units of u. Returns what
 * is left, and the relative error of that. */
static double stick_row(head_matrices *m, int64_t n, double *relative, double *left_error) {
  double left = 1, error = 0;
  for (int64_t i = m->columns - 1; i >= 0; i--) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0) continue;
    if (left == 0) m->weight[at] = -1;
    if (left == 0) continue;
    const double b = sigmoid(m->logit[at]), rest = sigmoid(-m->logit[at]);
    m->weight[at] = b * left;
    relative[i] = rest * m->logit_error[at] + error + STICK_STEP;
    left *= rest;
    error += b * m->logit_error[at] + STICK_STEP;
    if (left < STICK_END) left = 0;
  }
  *left_error = error;
  return left;
}

/* dS of a row, and its bounds. W[n,j] = sum over i < j of P[n,i] G[n,i] / prod over i >= j of (1 - b) is what the rest of the stick is
 * worth: a computation may use dS = P (1 - b) (G - W), W' = W + b (G - W). */
static void stick_gradients(const attention_problem *p, head_matrices *m, int64_t b, int64_t h, int64_t n, const double *relative) {
  const attention_case *c = &p->is;
  const int64_t row = (b * c->heads + h) * c->queries + n, key_head = b * c->key_heads + h / (c->heads / c->key_heads);
  const double *dout = p->array[ARRAY_DOUT].data + row * c->value_dim;
  double before = 0, worth = 0, worth_error = 0;
  for (int64_t i = 0; i < m->columns; i++) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0) continue;
    const double *value = p->array[ARRAY_VALUE].data + (key_head * c->keys + i) * c->value_dim;
    double product = 0, size = 0;
    for (int64_t x = 0; x < c->value_dim; x++) {
      product += m->factor[at] * dout[x] * value[x];
      size += m->factor[at] * fabs(dout[x] * value[x]);
    }
    const double share = sigmoid(m->logit[at]), rest = sigmoid(-m->logit[at]),
                 product_error = size * ((double)c->value_dim + FEW_ROUNDINGS);
    m->gradient[at] = m->weight[at] * rest * product - share * before;
    m->gradient_error[at] = fabs(m->gradient[at]) * (relative[i] + share * m->logit_error[at] + STICK_STEP) +
                            m->weight[at] * rest * (product_error + worth_error + FEW_ROUNDINGS * (fabs(product) + fabs(worth)));
    const double difference = fabs(product - worth);
    worth_error = rest * worth_error + share * product_error + share * (rest * m->logit_error[at] + STICK_STEP) * difference +
                  FEW_ROUNDINGS * fabs(worth);
    worth += share * (product - worth);
    before += m->weight[at] * product;
  }
}

/* A row of stick-breaking attention, forward and backward. */
static void stick(const attention_problem *p, attention_expected *e, head_matrices *m, int64_t b, int64_t h, int64_t n) {
  const attention_case *c = &p->is;
  const int64_t row = (b * c->heads + h) * c->queries + n, key_head = b * c->key_heads + h / (c->heads / c->key_heads);
  const double *dout = p->array[ARRAY_DOUT].data + row * c->value_dim;
  const double summed = (double)(c->queries * (c->heads / c->key_heads)) + FEW_ROUNDINGS;
  double *relative = numbers(m->columns), left_error = 0;
  const double left = stick_row(m, n, relative, &left_error);
  const attention_place place = attention_query_place(p, b, n);
  const bool nowhere = place.sequence < 0 || place.keys == 0;
  attention_add_result(e, ARRAY_LSE, row, nowhere ? -INFINITY : log(left), left_error + EXPONENTIAL + (left > 0 ? fabs(log(left)) : 0));
  for (int64_t i = 0; i < m->columns; i++) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0 || m->factor[at] == 0) continue;
    const double weight = m->factor[at] * m->weight[at];
    for (int64_t x = 0; x < c->value_dim; x++) {
      const int64_t value = (key_head * c->keys + i) * c->value_dim + x;
      const double term = weight * p->array[ARRAY_VALUE].data[value];
      attention_add_result(e, ARRAY_OUT, row * c->value_dim + x, term, fabs(term) * (relative[i] + (double)m->columns + FEW_ROUNDINGS));
      attention_add_result(e, ARRAY_DVALUE, value, weight * dout[x], weight * fabs(dout[x]) * (relative[i] + summed));
    }
  }
  stick_gradients(p, m, b, h, n, relative);
  free(relative);
}

/* dS of a row, and dV's share of it. */
static void backward_row(const attention_problem *p, attention_expected *e, head_matrices *m, int64_t b, int64_t h, int64_t n,
                         double relative, const double *out_error) {
  const attention_case *c = &p->is;
  const int64_t row = (b * c->heads + h) * c->queries + n, key_head = b * c->key_heads + h / (c->heads / c->key_heads);
  const double *dout = p->array[ARRAY_DOUT].data + row * c->value_dim, *out = e->array[ARRAY_OUT].data + row * c->value_dim;
  const double summed = (double)(c->queries * (c->heads / c->key_heads)) + FEW_ROUNDINGS; /* terms of a sum over the rows of a group */
  double mean = 0, mean_error = 0;
  for (int64_t x = 0; x < c->value_dim; x++) {
    mean += dout[x] * out[x];
    mean_error += fabs(dout[x]) * (out_error[x] + ((double)c->value_dim + FEW_ROUNDINGS) * fabs(out[x]));
  }
  for (int64_t i = 0; i < m->columns; i++) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0) continue;
    const double *value = p->array[ARRAY_VALUE].data + (key_head * c->keys + i) * c->value_dim;
    const double entry_relative = relative + m->logit_error[at] + fabs(m->logit[at]), kept = m->factor[at] * m->weight[at];
    double product = 0, size = 0;
    for (int64_t x = 0; x < c->value_dim; x++) {
      product += dout[x] * value[x];
      size += fabs(dout[x] * value[x]);
      attention_add_result(e, ARRAY_DVALUE, (key_head * c->keys + i) * c->value_dim + x, kept * dout[x],
                           kept * fabs(dout[x]) * (entry_relative + summed));
    }
    const double gradient = m->factor[at] * product - mean;
    m->gradient[at] = m->weight[at] * gradient;
    m->gradient_error[at] = fabs(m->gradient[at]) * entry_relative +
                            m->weight[at] * (m->factor[at] * size * ((double)c->value_dim + FEW_ROUNDINGS) + mean_error +
                                             FEW_ROUNDINGS * (fabs(m->factor[at] * product) + fabs(mean)));
  }
}

/* dS as the gradient of scale q.k. */
static void take_gradients(head_matrices *m, int64_t n) {
  const size_t bytes = (size_t)m->columns * sizeof(double);
  memcpy(m->through + n * m->columns, m->gradient + n * m->columns, bytes);
  memcpy(m->through_error + n * m->columns, m->gradient_error + n * m->columns, bytes);
}

/* dQ, dK: S = scale q . k, or -|q - k|^2 / (2 sigma^2). */
static void kernel_gradients(const attention_problem *p, attention_expected *e, const head_matrices *m, int64_t b, int64_t h) {
  const attention_case *c = &p->is;
  const int64_t key_head = b * c->key_heads + h / (c->heads / c->key_heads);
  const double factor = c->rbf ? 1 / (p->sigma * p->sigma) : p->scale;
  const double by_row = (double)m->columns + FEW_ROUNDINGS, by_column = (double)(m->rows * (c->heads / c->key_heads)) + FEW_ROUNDINGS;
  for (int64_t n = 0; n < m->rows; n++)
    for (int64_t i = 0; i < m->columns; i++) {
      const int64_t at = n * m->columns + i;
      if (m->weight[at] < 0) continue;
      const int64_t query_row = ((b * c->heads + h) * c->queries + n) * c->head_dim, key_row = (key_head * c->keys + i) * c->head_dim;
      for (int64_t x = 0; x < c->head_dim; x++) {
        const double q = p->array[ARRAY_QUERY].data[query_row + x], k = p->array[ARRAY_KEY].data[key_row + x];
        const double size_q = c->rbf ? fabs(q) + fabs(k) : fabs(k), size_k = c->rbf ? fabs(q) + fabs(k) : fabs(q);
        const double g = m->through[at], g_error = m->through_error[at];
        attention_add_result(e, ARRAY_DQUERY, query_row + x, factor * g * (c->rbf ? k - q : k),
                             factor * size_q * (g_error + by_row * fabs(g)));
        attention_add_result(e, ARRAY_DKEY, key_row + x, factor * g * (c->rbf ? q - k : q),
                             factor * size_k * (g_error + by_column * fabs(g)));
      }
    }
}

static void term_gradients(const attention_problem *p, attention_expected *e, const head_matrices *m, int64_t b, int64_t h) {
  const attention_case *c = &p->is;
  /* At most all entries of the batch are summed into one element. */
  const double terms = (double)(c->batch * c->heads) * (double)(m->rows + m->columns) + FEW_ROUNDINGS;
  for (int64_t n = 0; n < m->rows; n++)
    for (int64_t i = 0; i < m->columns; i++) {
      const int64_t at = n * m->columns + i;
      if (m->weight[at] < 0) continue;
      const double g = m->gradient[at], bound = m->gradient_error[at] + terms * fabs(g);
      if (c->bias)
        attention_add_result(e, ARRAY_DBIAS, attention_index(e->array[ARRAY_DBIAS].shape, b, h, n, i), g,
                             m->gradient_error[at] + terms * (double)m->columns * fabs(g));
      if (c->kernel || c->shared)
        attention_add_result(e, ARRAY_DLOG_KERNEL, (c->shared ? 0 : h) * e->array[ARRAY_DLOG_KERNEL].shape[1] + m->column[at], g, bound);
      if (!c->forget) continue;
      const attention_place query = attention_query_place(p, b, n), key = attention_key_place(p, b, i);
      for (int64_t t = 0; t < key.keys; t++) {
        const int64_t gate = (b * c->heads + h) * c->keys + i - key.row + t;
        const double slope = 1 / (1 + exp(p->array[ARRAY_FORGET].data[gate]));
        if (t > key.row && t <= query.row + query.offset) e->array[ARRAY_DFORGET].data[gate] += g * slope;
        /* May be computed from sums of rows and columns, in which entries that pass no gate cancel, over the whole sequence. */
        e->bound[ARRAY_DFORGET][gate] += slope * 2 * (m->gradient_error[at] + 2 * (double)(m->rows + m->columns) * fabs(g));
      }
    }
}

static void like(attention_expected *e, attention_array array, const attention_numbers *shape) {
  e->array[array] = *shape;
  e->array[array].data = numbers(shape->count);
  e->bound[array] = numbers(shape->count);
}

void attention_expected_make(const attention_problem *problem, attention_expected *out) {
  const attention_case *c = &problem->is;
  const attention_numbers *a = problem->array;
  memset(out, 0, sizeof *out);
  const attention_numbers rows = {.rank = 3, .shape = {c->batch, c->heads, c->queries, 1}, .count = c->batch * c->heads * c->queries};
  like(out, ARRAY_OUT, &a[ARRAY_DOUT]);
  like(out, ARRAY_LSE, &rows);
  like(out, ARRAY_DQUERY, &a[ARRAY_QUERY]);
  like(out, ARRAY_DKEY, &a[ARRAY_KEY]);
  like(out, ARRAY_DVALUE, &a[ARRAY_VALUE]);
  like(out, ARRAY_DBIAS, &a[ARRAY_BIAS]);
  like(out, ARRAY_DLOG_KERNEL, &a[ARRAY_LOG_KERNEL]);
  like(out, ARRAY_DFORGET, &a[ARRAY_FORGET]);
  like(out, ARRAY_DHIERARCHICAL_BIAS, &a[ARRAY_HIERARCHICAL_BIAS]);
  like(out, ARRAY_DCONTEXTUAL, &a[ARRAY_CONTEXTUAL]);
  if (c->is_hierarchical || c->is_compressed) {
    (c->is_hierarchical ? attention_expected_hierarchical : attention_expected_compressed)(problem, out);
    return;
  }
  const int64_t entries = c->queries * c->keys;
  head_matrices m = {.rows = c->queries, .columns = c->keys};
  double **const matrices[] = {&m.logit,   &m.weight,        &m.factor,  &m.gradient,      &m.logit_error, &m.gradient_error,
                               &m.product, &m.product_error, &m.through, &m.through_error, &m.position,    &m.position_error};
  for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) *matrices[i] = numbers(entries);
  m.distance = calloc((size_t)(entries > 0 ? entries : 1), sizeof *m.distance);
  m.column = calloc((size_t)(entries > 0 ? entries : 1), sizeof *m.column);
  double *out_error = numbers(c->value_dim);
  if (m.distance == NULL || m.column == NULL) exit(EXIT_FAILURE);
  for (int64_t b = 0; b < c->batch; b++)
    for (int64_t h = 0; h < c->heads; h++) {
      for (int64_t n = 0; n < c->queries; n++) {
        for (int64_t i = 0; i < c->keys; i++) make_entry(problem, &m, b, h, n, i);
        double relative = 0;
        if (c->stick) {
          stick(problem, out, &m, b, h, n);
        } else {
          if (c->positions > 0) attention_contextual_logits(problem, &m, b, h, n);
          forward_row(problem, out, &m, b, h, n, &relative, out_error);
          backward_row(problem, out, &m, b, h, n, relative, out_error);
        }
        take_gradients(&m, n);
        if (c->positions > 0) attention_contextual_gradients(problem, out, &m, b, h, n);
      }
      kernel_gradients(problem, out, &m, b, h);
      term_gradients(problem, out, &m, b, h);
    }
  for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) free(*matrices[i]);
  free(m.distance);
  free(m.column);
  free(out_error);
}

void attention_expected_free(attention_expected *expected) {
  for (int i = 0; i < ARRAY_COUNT; i++) {
    free(expected->array[i].data);
    free(expected->bound[i]);
  }
  memset(expected, 0, sizeof *expected);
}
