/* attention_compressed.c - compressed attention from its definition: every pair of a query and a key with the logit of the cell it lies in.
 *
 * A cell of query n is a key of its own chunk or of the one before it, a slot (a part of an earlier chunk), or a global slot (the keys of
 * all older slots with the same remainder). The operator is the dense softmax over single keys of
 *
 *     S[n,i] = scale q_n . mean of k over the cell of i
 *
 * over the near keys, the keys of the slots whose sums of e^S are the largest, and the older keys. So a key's gradient is its share of the
 * cell's. With a table of log G, the mean of G over the keys of the cell multiplies e^S. Cost O(L^2 d): every query makes its cells again,
 * without sums that grow from chunk to chunk.
 *
 * Bounds as in attention_definition.c, with magnitudes in place of values, because the keys of a cell may cancel.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_definition.h"

#define FEW_ROUNDINGS 4.0
#define EXPONENTIAL 16.0
#define MEAN_GROUP 64 /* numbers that may be added one after another in a mean */

typedef enum cell_kind { KIND_KEY, KIND_SLOT, KIND_GLOBAL } cell_kind;

typedef struct cell {
  cell_kind kind;
  int64_t index;                  /* of the key, of the slot, of the global */
  int64_t keys;                   /* real ones */
  double logit, logit_error, sum; /* scale q.k; sum: logit + log of the sum of G over the keys */
  double term, single;            /* that logarithm, and the logit of each single key: sum - log keys */
  double likely_error;            /* of a logit, if roundings are independent */
  bool is_seen;
  double factor, gradient, gradient_size;
} cell;

/* One head of one sequence of `rows` rows, the first being row `first` of item b. */
typedef struct head {
  const attention_problem *p;
  attention_expected *e;
  int64_t b, h, key_head, first, rows;
  const uint8_t *is_key; /* [rows] */
  int64_t *chunk, *slot; /* [rows]: of a row */
  int64_t *slot_row;     /* [slots]: the first row of a slot */
  int64_t slots, chunks;
  cell *cells; /* of the current query */
  int64_t cell_count;
  int64_t *cell_of;    /* [rows]: index of a key's cell, -1: not seen */
  double *mean, *size; /* [cells][d]: of keys and of their magnitudes */
} head;

static void *need(int64_t count, size_t size) {
  void *memory = calloc((size_t)(count > 0 ? count : 1), size);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

static bool begins(const head *t, int64_t row) {
  const attention_case *c = &t->p->is;
  if (row == 0) return true;
  if (!c->starts) return row % c->block == 0;
  /* rows without a key of the sequence continue the last chunk */
  return attention_key_place(t->p, t->b, t->first + row).sequence >= 0 && t->p->chunk_starts[t->b * c->keys + t->first + row] != 0;
}

/* Chunks, and the C parts of each. */
static void make_slots(head *t) {
  const int64_t parts = t->p->is.slots;
  t->chunks = 0;
  for (int64_t from = 0, to; from < t->rows; from = to) {
    for (to = from + 1; to < t->rows && !begins(t, to);) to++;
    for (int64_t i = 0; i < parts; i++) {
      const int64_t row = from + i * (to - from) / parts, end = from + (i + 1) * (to - from) / parts;
      t->slot_row[t->chunks * parts + i] = row;
      for (int64_t n = row; n < end; n++) t->slot[n] = t->chunks * parts + i;
    }
    for (int64_t n = from; n < to; n++) t->chunk[n] = t->chunks;
    t->chunks++;
  }
}

static bool same_cell(const cell *a, cell_kind kind, int64_t index) { return a->kind == kind && a->index == index; }

/* The cells of the keys that query n may see. */
static void make_cells(head *t, int64_t n) {
  const attention_case *c = &t->p->is;
  const double *k = t->p->array[ARRAY_KEY].data + ((t->b * c->key_heads + t->key_head) * c->keys + t->first) * c->head_dim;
  t->cell_count = 0;
  for (int64_t i = 0; i <= n; i++) {
    const int64_t before = t->chunk[n] - t->chunk[i];
    cell_kind kind = before <= 1 ? KIND_KEY : c->kept == 0 || before <= 1 + c->kept ? KIND_SLOT : KIND_GLOBAL;
    const int64_t index = kind == KIND_KEY ? i : kind == KIND_SLOT ? t->slot[i] : c->globals > 0 ? t->slot[i] % c->globals : 0;
    t->cell_of[i] = -1;
    if (!t->is_key[i] || (kind == KIND_GLOBAL && c->globals == 0)) continue;
    int64_t at = 0;
    while (at < t->cell_count && !same_cell(&t->cells[at], kind, index)) at++;
    if (at == t->cell_count) {
      t->cells[t->cell_count++] = (cell){.kind = kind, .index = index, .is_seen = true};
      memset(t->mean + at * c->head_dim, 0, (size_t)c->head_dim * sizeof(double));
      memset(t->size + at * c->head_dim, 0, (size_t)c->head_dim * sizeof(double));
    }
    t->cell_of[i] = at;
    t->cells[at].keys++;
    for (int64_t x = 0; x < c->head_dim; x++) {
      t->mean[at * c->head_dim + x] += k[i * c->head_dim + x];
      t->size[at * c->head_dim + x] += fabs(k[i * c->head_dim + x]);
    }
  }
}

static double dropout_factor(const head *t, int64_t n, const cell *m) {
  const attention_case *c = &t->p->is;
  if (c->dropout == 0) return 1;
  const uint64_t row = (uint64_t)(t->first + n), key = (uint64_t)(t->first + (m->kind == KIND_KEY ? m->index : t->slot_row[m->index]));
  uint32_t words[4];
  hark_random_words(&t->p->dropout, ((((uint64_t)(t->b * c->heads + t->h) << 23) + row) << 21) + key / 4, words);
  return words[key % 4] >= hark_random_threshold(c->dropout) ? 1 / (1 - c->dropout) : 0;
}

static bool has_kernel(const head *t) { return t->p->is.kernel || t->p->is.shared; }

/* The entry of the table, or of its gradient, for a query and a key. */
static int64_t table_entry(const head *t, int64_t n, int64_t i) {
  const int64_t columns = t->p->array[ARRAY_LOG_KERNEL].shape[1];
  return (t->p->is.shared ? 0 : t->h) * columns + attention_kernel_column(&t->p->is, columns, n - i);
}

static double log_kernel(const head *t, int64_t n, int64_t i) { return t->p->array[ARRAY_LOG_KERNEL].data[table_entry(t, n, i)]; }

/* The logarithm of the sum of G over each cell, whose number of keys it is without a table. */
static void make_terms(head *t, int64_t n) {
  for (int64_t at = 0; at < t->cell_count; at++) t->cells[at].term = has_kernel(t) ? 0 : log((double)t->cells[at].keys);
  if (!has_kernel(t)) return;
  for (int64_t i = 0; i <= n; i++)
    if (t->cell_of[i] >= 0) t->cells[t->cell_of[i]].term += exp(log_kernel(t, n, i));
  for (int64_t at = 0; at < t->cell_count; at++) {
    t->cells[at].term = log(t->cells[at].term);
    t->cells[at].is_seen = t->cells[at].term != -INFINITY;
  }
}

static void make_logits(head *t, int64_t n) {
  const attention_case *c = &t->p->is;
  const int64_t d = c->head_dim;
  const double *q = t->p->array[ARRAY_QUERY].data + ((t->b * c->heads + t->h) * c->queries + t->first + n) * d;
  for (int64_t at = 0; at < t->cell_count; at++) {
    cell *m = &t->cells[at];
    double magnitude = 0;
    m->logit = 0;
    for (int64_t x = 0; x < d; x++) {
      t->mean[at * d + x] /= (double)m->keys;
      t->size[at * d + x] /= (double)m->keys;
      m->logit += t->p->scale * q[x] * t->mean[at * d + x];
      magnitude += fabs(t->p->scale * q[x]) * t->size[at * d + x];
    }
    const double adding = m->keys == 1 ? 0 : (double)(m->keys < MEAN_GROUP ? m->keys : MEAN_GROUP + m->keys / MEAN_GROUP);
    const double term = m->is_seen ? m->term : 0, of_table = has_kernel(t) ? EXPONENTIAL * (2 + fabs(term)) : 0;
    m->sum = m->logit + term;
    m->single = has_kernel(t) ? m->sum - log((double)m->keys) : m->logit;
    m->logit_error = ((double)d + adding + 2 * FEW_ROUNDINGS) * magnitude + FEW_ROUNDINGS * (1 + fabs(m->sum) + fabs(m->logit)) + of_table;
    m->likely_error = 4 * sqrt((double)d + adding) * magnitude / sqrt((double)d) + FEW_ROUNDINGS * (1 + fabs(m->sum)) + of_table / 8;
    m->factor = dropout_factor(t, n, m);
  }
}

/* Leaves only the best slots. A case in which rounding could decide is none. */
static void select_slots(head *t, int64_t n) {
  const attention_case *c = &t->p->is;
  int64_t slots = 0;
  for (int64_t at = 0; at < t->cell_count; at++) slots += t->cells[at].kind == KIND_SLOT && t->cells[at].is_seen;
  if (slots <= c->select) return;
  for (int64_t at = 0; at < t->cell_count; at++) {
    if (t->cells[at].kind != KIND_SLOT || t->cells[at].term == -INFINITY) continue;
    int64_t better = 0, unsure = 0;
    for (int64_t other = 0; other < t->cell_count; other++) {
      const cell *m = &t->cells[at], *o = &t->cells[other];
      if (other == at || o->kind != KIND_SLOT || o->term == -INFINITY) continue;
      better += o->sum > m->sum || (o->sum == m->sum && o->index < m->index);
      unsure += fabs(o->sum - m->sum) <= (o->likely_error + m->likely_error) * 0x1p-24 && o->sum != m->sum;
    }
    t->cells[at].is_seen = better < c->select;
    if (unsure > 0 && better - unsure < c->select && better + unsure >= c->select) {
      fprintf(stderr, "case '%s': rounding decides what query %" PRId64 " selects, expected another seed\n", c->text, n);
      exit(EXIT_FAILURE);
    }
  }
}

static void add(head *t, attention_array array, int64_t index, double value, double bound) {
  t->e->array[array].data[index] += value;
  t->e->bound[array][index] += bound;
}

static void do_row(head *t, int64_t n, double *out_error) {
  const attention_case *c = &t->p->is;
  const int64_t row = (t->b * c->heads + t->h) * c->queries + t->first + n, d = c->head_dim, dv = c->value_dim;
  const int64_t keys = (t->b * c->key_heads + t->key_head) * c->keys + t->first;
  const double *q = t->p->array[ARRAY_QUERY].data + row * d, *v = t->p->array[ARRAY_VALUE].data;
  const double *dout = t->p->array[ARRAY_DOUT].data + row * dv;
  make_cells(t, n);
  make_terms(t, n);
  make_logits(t, n);
  select_slots(t, n);
  double largest = -INFINITY, error = 0, sum = 0, spread = 0, count = 0;
  for (int64_t at = 0; at < t->cell_count; at++) {
    if (!t->cells[at].is_seen) continue;
    largest = fmax(largest, t->cells[at].single);
    error = fmax(error, t->cells[at].logit_error);
    spread = fmax(spread, fabs(t->cells[at].sum));
    count += (double)t->cells[at].keys;
  }
  for (int64_t at = 0; at < t->cell_count; at++)
    if (t->cells[at].is_seen) sum += (double)t->cells[at].keys * exp(t->cells[at].single - largest);
  const double lse = largest + log(sum), lse_error = error + count + EXPONENTIAL + fabs(lse) + 2 * spread;
  const double relative = 2 * error + count + 2 * EXPONENTIAL + 4 * spread;
  add(t, ARRAY_LSE, row, count > 0 ? lse : -INFINITY, count > 0 ? lse_error : 0);
  if (count == 0) return;
  double mean = 0, mean_error = 0;
  for (int64_t x = 0; x < dv; x++) {
    double result = 0, size = 0;
    for (int64_t i = 0; i <= n; i++) {
      if (t->cell_of[i] < 0 || !t->cells[t->cell_of[i]].is_seen) continue;
      const cell *m = &t->cells[t->cell_of[i]];
      const double part = m->factor * exp(m->single - lse) * v[(keys + i) * dv + x];
      result += part;
      size += fabs(part);
    }
    out_error[x] = size * (relative + count + FEW_ROUNDINGS);
    add(t, ARRAY_OUT, row * dv + x, result, out_error[x]);
    mean += dout[x] * result;
    mean_error += fabs(dout[x]) * (out_error[x] + ((double)dv + FEW_ROUNDINGS) * size);
  }
  const double summed = relative + lse_error + (double)(t->rows * (c->heads / c->key_heads)) + FEW_ROUNDINGS;
  for (int64_t at = 0; at < t->cell_count; at++) t->cells[at].gradient = t->cells[at].gradient_size = 0;
  for (int64_t i = 0; i <= n; i++) {
    if (t->cell_of[i] < 0 || !t->cells[t->cell_of[i]].is_seen) continue;
    cell *m = &t->cells[t->cell_of[i]];
    const double weight = exp(m->single - lse);
    double product = 0, size = 0;
    for (int64_t x = 0; x < dv; x++) {
      product += dout[x] * v[(keys + i) * dv + x];
      size += fabs(dout[x] * v[(keys + i) * dv + x]);
      add(t, ARRAY_DVALUE, (keys + i) * dv + x, m->factor * weight * dout[x],
          m->factor * weight * fabs(dout[x]) * (summed + m->logit_error));
    }
    const double parts = m->factor * size + fabs(mean);
    m->gradient += weight * (m->factor * product - mean);
    m->gradient_size += weight * (parts * (summed + m->logit_error + (double)(dv + 2 * t->rows)) + mean_error);
  }
  for (int64_t at = 0; at < t->cell_count; at++)
    for (int64_t x = 0; x < d; x++)
      add(t, ARRAY_DQUERY, row * d + x, t->p->scale * t->cells[at].gradient * t->mean[at * d + x],
          fabs(t->p->scale) * t->cells[at].gradient_size * t->size[at * d + x]);
  for (int64_t i = 0; has_kernel(t) && i <= n; i++) {
    if (t->cell_of[i] < 0 || !t->cells[t->cell_of[i]].is_seen) continue;
    const cell *m = &t->cells[t->cell_of[i]];
    const double part = exp(log_kernel(t, n, i) - m->term), rounding = EXPONENTIAL * (2 + fabs(m->term));
    add(t, ARRAY_DLOG_KERNEL, table_entry(t, n, i), part * m->gradient, part * (m->gradient_size + rounding * fabs(m->gradient)));
  }
  for (int64_t i = 0; i <= n; i++) {
    if (t->cell_of[i] < 0) continue;
    const cell *m = &t->cells[t->cell_of[i]];
    for (int64_t x = 0; x < d; x++)
      add(t, ARRAY_DKEY, (keys + i) * d + x, t->p->scale * m->gradient / (double)m->keys * q[x],
          fabs(t->p->scale) * m->gradient_size / (double)m->keys * fabs(q[x]));
  }
}

static void do_head(head *t) {
  const attention_case *c = &t->p->is;
  double *out_error = need(c->value_dim, sizeof *out_error);
  t->slots = (t->rows + 1) * c->slots;
  t->chunk = need(t->rows, sizeof *t->chunk);
  t->slot = need(t->rows, sizeof *t->slot);
  t->slot_row = need(t->slots, sizeof *t->slot_row);
  t->cells = need(t->rows, sizeof *t->cells);
  t->cell_of = need(t->rows, sizeof *t->cell_of);
  t->mean = need(t->rows * c->head_dim, sizeof *t->mean);
  t->size = need(t->rows * c->head_dim, sizeof *t->size);
  make_slots(t);
  for (int64_t n = 0; n < t->rows; n++) do_row(t, n, out_error);
  free(t->chunk);
  free(t->slot);
  free(t->slot_row);
  free(t->cells);
  free(t->cell_of);
  free(t->mean);
  free(t->size);
  free(out_error);
}

void attention_expected_compressed(const attention_problem *problem, attention_expected *out) {
  const attention_case *c = &problem->is;
  uint8_t *is_key = need(c->queries + 1, 1);
  for (int64_t i = 0; i < out->array[ARRAY_LSE].count; i++) out->array[ARRAY_LSE].data[i] = -INFINITY;
  for (int64_t b = 0; b < c->batch; b++)
    for (int64_t first = 0; first < c->queries;) {
      const attention_place place = attention_query_place(problem, b, first);
      int64_t rows = 1;
      while (first + rows < c->queries && attention_query_place(problem, b, first + rows).sequence == place.sequence) rows++;
      for (int64_t n = 0; n < rows; n++)
        is_key[n] = place.sequence >= 0 && attention_key_place(problem, b, first + n).sequence == place.sequence &&
                    (!c->mask || problem->mask[attention_index(problem->mask_shape, b, 0, 0, first + n)] != 0);
      for (int64_t h = 0; h < c->heads && place.sequence >= 0; h++) {
        for (int64_t n = 0; n < rows; n++) out->array[ARRAY_LSE].data[(b * c->heads + h) * c->queries + first + n] = 0;
        head t = {.p = problem, .e = out, .b = b, .h = h, .key_head = h / (c->heads / c->key_heads), .first = first, .rows = rows};
        t.is_key = is_key;
        do_head(&t);
      }
      first += rows;
    }
  free(is_key);
}
