/* attention_contextual.c - contextual positions in the definition of attention (CoPE, arXiv 2405.18719), and their errors.
 *
 *     g = sigmoid(scale q.k);   c[n,j] = min(sum over visible t from j on of g[n,t], N - 1);   T(c) = scale q.(e[c]), linear between rows
 *     S[n,j] += T(c);   dc[n,j] = dS[n,j] T'(c) below c = N - 1, else 0;   dg[n,t] = sum over visible j <= t of dc[n,j]
 *     gradient of scale q.k: dS + dg g (1 - g)
 *
 * Bounds in units of u, with e_p the error of scale q.k:
 *     g          g ((1 - g) e_p + 8): an exponential, a sum and a quotient
 *     c          sum of errors of g + (number of them + 4) c
 *     T          error of c times the largest |T'| nearby + (d + 4) (sizes of scale q e of both rows)
 *     T'         (d + 4) (sizes of both rows). T is continuous, T' is not: an entry whose c is nearer to a whole number than its error in
 *                f32 may have the slope of the piece on the other side
 *     dg         sum of errors of dc + (number of them + 4) sum |dc|
 */
#include <math.h>

#include "support/attention_matrices.h"

#define GATE 8.0
#define ROUNDOFF 0x1p-24 /* of f32: the largest that a result is computed with */

static double sigmoid(double s) { return s < 0 ? exp(s) / (1 + exp(s)) : 1 / (1 + exp(-s)); }

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* scale q.e of one row of the table, and its size. */
typedef struct table_product {
  double value, size;
} table_product;

static table_product product(const attention_problem *p, int64_t b, int64_t h, int64_t n, int64_t position) {
  const attention_case *c = &p->is;
  const double *q = p->array[ARRAY_QUERY].data + ((b * c->heads + h) * c->queries + n) * c->head_dim;
  const double *e = p->array[ARRAY_CONTEXTUAL].data + ((c->contextual_shared ? 0 : h) * c->positions + position) * c->head_dim;
  table_product sum = {0, 0};
  for (int64_t x = 0; x < c->head_dim; x++) {
    sum.value += p->scale * q[x] * e[x];
    sum.size += fabs(p->scale * q[x] * e[x]);
  }
  return sum;
}

/* T' of the piece from `row` to the next, 0 where there is none. */
static double slope_of_piece(const attention_problem *p, int64_t b, int64_t h, int64_t n, int64_t row) {
  if (row < 0 || row + 1 >= p->is.positions) return 0;
  return product(p, b, h, n, row + 1).value - product(p, b, h, n, row).value;
}

void attention_contextual_logits(const attention_problem *p, head_matrices *m, int64_t b, int64_t h, int64_t n) {
  const attention_case *c = &p->is;
  const double most = (double)(c->positions - 1), roundings = (double)c->head_dim + FEW_ROUNDINGS;
  double sum = 0, error = 0, count = 0;
  for (int64_t i = m->columns - 1; i >= 0; i--) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0) continue;
    const double gate = sigmoid(m->product[at]), rest = sigmoid(-m->product[at]);
    sum += gate;
    error += gate * (rest * m->product_error[at] + GATE);
    count++;
    m->position[at] = smaller(sum, most);
    m->position_error[at] = error + (count + FEW_ROUNDINGS) * sum;
    const int64_t row = (int64_t)m->position[at], next = row + 1 < c->positions ? row + 1 : row;
    const double fraction = m->position[at] - (double)row;
    const table_product here = product(p, b, h, n, row), there = product(p, b, h, n, next);
    double steepest = 0;
    for (int64_t near = row - 1; near <= row + 1; near++) steepest = larger(steepest, fabs(slope_of_piece(p, b, h, n, near)));
    m->logit[at] += (1 - fraction) * here.value + fraction * there.value;
    m->logit_error[at] += steepest * m->position_error[at] + roundings * (here.size + there.size) +
                          FEW_ROUNDINGS * (fabs(m->logit[at]) + here.size + there.size);
  }
}

/* T' at an entry, and its error; how far another slope is that it may have instead, in `jump`. */
static double slope_of(const attention_problem *p, const head_matrices *m, int64_t b, int64_t h, int64_t n, int64_t at, double *error,
                       double *jump) {
  const double position = m->position[at], near = 4 * ROUNDOFF * m->position_error[at];
  const int64_t row = (int64_t)position, whole = (int64_t)(position + 0.5);
  const double slope = slope_of_piece(p, b, h, n, row);
  *error = *jump = 0;
  if (row + 1 < p->is.positions)
    *error = ((double)p->is.head_dim + FEW_ROUNDINGS) * (product(p, b, h, n, row).size + product(p, b, h, n, row + 1).size);
  if (fabs(position - (double)whole) > near) return slope;
  *jump = larger(fabs(slope - slope_of_piece(p, b, h, n, whole - 1)), fabs(slope - slope_of_piece(p, b, h, n, whole)));
  return slope;
}

/* What the query and the table get from T of one entry. */
static void table_gradients(const attention_problem *p, attention_expected *e, const head_matrices *m, int64_t b, int64_t h, int64_t n,
                            int64_t at) {
  const attention_case *c = &p->is;
  const int64_t row = (int64_t)m->position[at], query = ((b * c->heads + h) * c->queries + n) * c->head_dim;
  const double fraction = m->position[at] - (double)row, g = m->gradient[at];
  const double by_row = (double)m->columns + FEW_ROUNDINGS;
  const double by_table = (double)(c->batch * c->heads) * (double)(m->rows + m->columns) + FEW_ROUNDINGS;
  for (int64_t next = 0; next < 2 && row + next < c->positions; next++) {
    const int64_t table = ((c->contextual_shared ? 0 : h) * c->positions + row + next) * c->head_dim;
    const double part = next == 0 ? 1 - fraction : fraction;
    const double error = m->gradient_error[at] * part + fabs(g) * (m->position_error[at] + FEW_ROUNDINGS * part);
    for (int64_t x = 0; x < c->head_dim; x++) {
      const double q = p->scale * p->array[ARRAY_QUERY].data[query + x], k = p->scale * p->array[ARRAY_CONTEXTUAL].data[table + x];
      attention_add_result(e, ARRAY_DQUERY, query + x, g * part * k, fabs(k) * (error + by_row * fabs(g) * part));
      attention_add_result(e, ARRAY_DCONTEXTUAL, table + x, g * part * q, fabs(q) * (error + by_table * fabs(g) * part));
    }
  }
  /* A position just below or above a whole number may be rounded to the piece beyond it: then a small part goes to another row. */
  const double beyond = fabs(g) * m->position_error[at];
  for (int64_t other = row - 1; other <= row + 2; other += 3) {
    const int64_t table = ((c->contextual_shared ? 0 : h) * c->positions + other) * c->head_dim;
    if (other < 0 || other >= c->positions) continue;
    for (int64_t x = 0; x < c->head_dim; x++) {
      e->bound[ARRAY_DCONTEXTUAL][table + x] += beyond * fabs(p->scale * p->array[ARRAY_QUERY].data[query + x]);
      e->bound[ARRAY_DQUERY][query + x] += beyond * fabs(p->scale * p->array[ARRAY_CONTEXTUAL].data[table + x]);
    }
  }
}

void attention_contextual_gradients(const attention_problem *p, attention_expected *e, head_matrices *m, int64_t b, int64_t h, int64_t n) {
  double passed = 0, passed_error = 0, size = 0, count = 0;
  for (int64_t i = 0; i < m->columns; i++) {
    const int64_t at = n * m->columns + i;
    if (m->weight[at] < 0) continue;
    double slope_error, jump;
    const double slope = slope_of(p, m, b, h, n, at, &slope_error, &jump), g = m->gradient[at];
    passed += g * slope;
    passed_error += m->gradient_error[at] * (fabs(slope) + jump) + fabs(g) * (slope_error + jump / ROUNDOFF);
    size += fabs(g * slope);
    count++;
    const double gate = sigmoid(m->product[at]), rest = sigmoid(-m->product[at]), factor = gate * rest;
    const double error = passed_error + (count + FEW_ROUNDINGS) * size;
    m->through[at] += passed * factor;
    m->through_error[at] +=
        factor * error + fabs(passed) * factor * (m->product_error[at] + 2 * GATE) + FEW_ROUNDINGS * fabs(passed * factor);
    table_gradients(p, e, m, b, h, n, at);
  }
}
