/* contextual.c - contextual positions by their definition, in double (CoPE, arXiv 2405.18719): see contextual.h.
 *
 *     dq[n] gets scale sum_i dS[n,i] ((1 - f) e[x] + f e[x + 1]);   de[x] = scale sum over entries with floor x of dS (1 - f) q_n, and
 *     de[x + 1] of dS f q_n
 *     dc[n,i] = dS[n,i] scale q_n.(e[x + 1] - e[x]), 0 from c = N - 1 on;   dg[n,t] = sum over visible i <= t of dc[n,i]
 *     gradient of scale q.k: dS + dg g (1 - g)
 *
 * The forward is that of dense.c, the other gradients are those of row_gradients.h. Cost: O(Lq Lk (d + dv)) per head, some of it several
 * times; scratch O(Lk (d + dv)) per worker.
 */
#include "backend/reference/contextual.h"

#include <math.h>
#include <stdio.h>

#include "backend/reference/row_gradients.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  if (desc->contextual_positions > 0) return true;
  snprintf(why, size, "contextual_positions is 0");
  return false;
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  size_t gradients;
  HARK_TRY(hark_reference_dense.sizes(context, desc, workers, out));
  HARK_TRY(hark_gradient_sizes(context, desc, workers, &gradients));
  out->backward_workspace = gradients;
  return HARK_OK;
}

/* Where e is interpolated for a position: row x with weight 1 - f, the next with f. */
typedef struct interpolation {
  int64_t row;
  double fraction; /* 0: the next row is not read. NaN for a position that is NaN, in row 0 */
} interpolation;

static interpolation interpolate(double position) {
  const double whole = isnan(position) ? 0 : floor(position);
  return (interpolation){(int64_t)whole, position - whole};
}

/* scale q.e[row] */
static double product(const dense_head *at, int64_t row, int64_t position) {
  const hark_tensor *query = &at->args->query, *table = &at->args->contextual;
  const int64_t q = dense_query_index(at, query, row), e = dense_contextual_index(at, table, position);
  double sum = 0;
  for (int64_t c = 0; c < at->desc->head_dim; c++) sum += dense_get(query, q + c) * dense_get(table, e + c);
  return at->desc->scale * sum;
}

static double term(const dense_head *at, int64_t row, double position) {
  const interpolation of = interpolate(position);
  const double here = product(at, row, of.row);
  return of.fraction == 0 ? here : (1 - of.fraction) * here + of.fraction * product(at, row, of.row + 1);
}

/* The derivative of the term by the position. */
static double slope(const dense_head *at, int64_t row, double position) {
  if (position >= (double)(at->desc->contextual_positions - 1)) return 0;
  const interpolation of = interpolate(position);
  return product(at, row, of.row + 1) - product(at, row, of.row);
}

static double sigmoid(double s) { return s < 0 ? exp(s) / (1 + exp(s)) : 1 / (1 + exp(-s)); }

/* The positions of a row's visible keys, and their terms, which are added to logits; hidden ones stay as they are. Either may be NULL. */
static void count(const dense_head *at, int64_t row, double *positions, double *logits) {
  const double most = (double)(at->desc->contextual_positions - 1);
  double sum = 0;
  for (int64_t i = at->sequence->key_count - 1; i >= 0; i--) {
    double logit;
    if (!hark_dense_logit(at, row, i, &logit)) continue;
    if (!(sum >= most)) sum += sigmoid(hark_dense_similarity(at, row, i)); /* farther gates change no position */
    const double position = sum > most ? most : sum;
    if (positions != NULL) positions[i] = position;
    if (logits != NULL && logit != -INFINITY) logits[i] += term(at, row, position);
  }
}

void hark_contextual_add(const dense_head *at, int64_t row, double *logits) { count(at, row, NULL, logits); }

/* P, positions as `extra`, dS, and gradients of scale q.k. */
static void differentiate(const dense_head *at, int64_t row, const gradient_row *of) {
  const int64_t keys = at->sequence->key_count;
  double mean = 0, passed = 0;
  (void)hark_dense_weights(at, row, of->weights);
  count(at, row, of->extra, NULL);
  for (int64_t i = 0; i < keys; i++) {
    const bool hidden = of->weights[i] == HARK_DENSE_HIDDEN;
    of->gradients[i] = hidden ? 0 : hark_gradient_of_weight(at, row, i);
    of->products[i] = 0;
    if (!hidden) mean += of->weights[i] * of->gradients[i];
  }
  for (int64_t i = 0; i < keys; i++) {
    if (of->weights[i] == HARK_DENSE_HIDDEN) continue;
    const double similarity = hark_dense_similarity(at, row, i);
    of->gradients[i] = of->weights[i] * (of->gradients[i] - mean);
    passed += of->gradients[i] * slope(at, row, of->extra[i]);
    of->products[i] = of->gradients[i] + passed * sigmoid(similarity) * sigmoid(-similarity);
  }
}

/* Of scale q.e: sum_i dS ((1 - f) e[x] + f e[x + 1]). */
static double add_to_query(const dense_head *at, int64_t row, const gradient_row *of, int64_t feature) {
  const hark_tensor *table = &at->args->contextual;
  double sum = 0;
  (void)row;
  for (int64_t i = 0; i < at->sequence->key_count; i++) {
    if (of->weights[i] == HARK_DENSE_HIDDEN) continue;
    const interpolation e = interpolate(of->extra[i]);
    sum += of->gradients[i] * (1 - e.fraction) * dense_get(table, dense_contextual_index(at, table, e.row) + feature);
    if (e.fraction != 0) sum += of->gradients[i] * e.fraction * dense_get(table, dense_contextual_index(at, table, e.row + 1) + feature);
  }
  return sum;
}

static const gradient_rule rule = {.has_paths = true, .differentiate = differentiate, .add_to_query = add_to_query};

/* Positions of a table that a sequence can reach. */
static int64_t reached(const hark_attention_desc *desc) { return hark_min(desc->contextual_positions, desc->key_length + 1); }

/* The rows of the table that a row with a NaN position depends on: one more than it sees keys, since every gate may be up to 1. 0: it has
 * none. The farthest of its keys then has such a position. */
static int64_t unknown_rows(const dense_head *at, const gradient_row *of) {
  int64_t seen = 0;
  bool unknown = false;
  for (int64_t i = 0; i < at->sequence->key_count; i++) {
    if (of->weights[i] == HARK_DENSE_HIDDEN) continue;
    unknown = unknown || isnan(of->extra[i]);
    seen++;
  }
  return unknown ? seen + 1 : 0;
}

/* sums [end][d] += the row's part of de / scale. */
static void add_to_table(const dense_head *at, int64_t row, const gradient_row *of, int64_t end) {
  const int64_t d = at->desc->head_dim, q = dense_query_index(at, &at->args->query, row), unknown = unknown_rows(at, of);
  for (int64_t c = 0; c < hark_min(end, unknown) * d; c++) of->sums[c] = NAN;
  for (int64_t i = 0; i < at->sequence->key_count; i++) {
    if (of->weights[i] == HARK_DENSE_HIDDEN || isnan(of->extra[i])) continue;
    const interpolation e = interpolate(of->extra[i]);
    for (int64_t next = 0; next < (e.fraction == 0 ? 1 : 2); next++) {
      const int64_t position = e.row + next;
      if (position >= end) continue;
      const double part = of->gradients[i] * (next == 0 ? 1 - e.fraction : e.fraction);
      for (int64_t c = 0; c < d; c++) of->sums[position * d + c] += part * dense_get(&at->args->query, q + c);
    }
  }
}

/* dcontextual of one head or of all: the rows that are reached. The others were cleared, or stay as they are. */
static void sum_table(void *data, int64_t table, int worker) {
  const gradient_task *task = data;
  const hark_attention_call *run = task->run;
  const hark_tensor *gradient = &run->args->dcontextual;
  const int64_t d = gradient->shape[2], end = reached(&run->plan->desc);
  const gradient_row of = hark_gradient_row(task, worker);
  for (int64_t c = 0; c < end * d; c++) of.sums[c] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++)
    for (int64_t h = 0; h < run->plan->desc.heads; h++) {
      if (gradient->stride[0] != 0 && h != table) continue;
      const dense_head at = hark_dense_head(run, task->gates, s, h);
      for (int64_t row = 0; row < at.sequence->query_count; row++) {
        differentiate(&at, row, &of);
        add_to_table(&at, row, &of, end);
      }
    }
  for (int64_t c = 0; c < end * d; c++)
    hark_gradient_store(gradient, table * gradient->stride[0] + c, run->plan->desc.scale * of.sums[c], true);
}

static hark_status forward(hark_context *context, const hark_attention_call *run) { return hark_reference_dense.forward(context, run); }

static hark_status backward(hark_context *context, const hark_attention_call *run) {
  const hark_tensor *table = &run->args->dcontextual;
  gradient_task task = hark_gradient_begin(context, run, &rule);
  hark_gradient_compute(context, &task);
  if (table->type == HARK_NONE) return HARK_OK;
  const int64_t tables = table->stride[0] == 0 ? 1 : table->shape[0];
  hark_parallel_for(context, tables, sum_table, &task);
  return HARK_OK;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "whole rows in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_contextual = {.name = "contextual positions by definition",
                                                            .supports = supports,
                                                            .sizes = sizes,
                                                            .forward = forward,
                                                            .backward = backward,
                                                            .print = print};
