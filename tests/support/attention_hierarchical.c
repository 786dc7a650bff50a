/* attention_hierarchical.c - hierarchical attention from its definition: every pair of a query and a key with the logit of the cells it
 * lies in.
 *
 * A pair (n, i) belongs to one level l, to the cell a of its query and the cell b of its key (2^l tokens each). With constant interpolation
 * the operator is the dense softmax over single keys of
 *
 *     S[n,i] = scale q~_a . k~_b + bias[b - a] + log of the mean of G over the cells,      q~, k~ means over the cells' real tokens
 *
 * (a coarse entry counted once for every key under it), so that the gradient by S is the dense one, gathered by cells, and goes to single
 * tokens by their share of the mean. With linear interpolation a row has c(n,a) e^S from two cells a on every level, and a pair has as many
 * terms as there are such cells whose entry exists. Cost O(L^2): no tree, no recursion over sums, no weights per level.
 *
 * With grid=C rows are pixels of a picture, cells are squares of 2^l x 2^l pixels, and the level of a pair is the lowest on which the
 * square blocks of the two pixels are the same or touch.
 *
 * Bounds as in attention_definition.c, with magnitudes in place of values wherever a cell's sums may cancel, and the exponentials of M
 * levels between a row and its logits.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_definition.h"

#define MOST_LEVELS 16
#define FEW_ROUNDINGS 4.0
#define EXPONENTIAL 16.0

/* One term of a row: a key, the cells through which it is seen. */
typedef struct term {
  int64_t key, query_cell, key_cell;
  int level;
  double coefficient, logit, logit_error, factor, weight;
} term;

/* One head of one sequence of `rows` rows, the first being row `first` of item b. */
typedef struct head {
  const attention_problem *p;
  attention_expected *e;
  int64_t b, h, key_head, first, rows;
  int levels;
  int64_t cells[MOST_LEVELS];
  const uint8_t *is_query, *is_key; /* [rows] */
  double *share[2][MOST_LEVELS];    /* of a row in its query cell and of a key in its key cell, [rows] */
  double *token[2][MOST_LEVELS];    /* q~ and k~ [cells][d], */
  double *size[2][MOST_LEVELS];     /*   of magnitudes */
  double *gradient[2][MOST_LEVELS]; /* by q~ and k~, [cells][d] */
  double *gradient_size[2][MOST_LEVELS];
  double *mean[MOST_LEVELS], *dmean[MOST_LEVELS], *dmean_size[MOST_LEVELS]; /* of the kernel, by distance */
  int64_t distances, columns;                                               /* of the table: of a directed one in each direction, and all */
  double largest_lse;
  term *terms;
  int32_t *block; /* [2 rows + 2]: the block that a cell is in */
} head;

static double *numbers(int64_t count) {
  double *memory = calloc((size_t)(count > 0 ? count : 1), sizeof *memory);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

int attention_covering_level(int64_t block, bool sibling, int64_t n, int64_t i) {
  for (int level = 0;; level++) {
    const int64_t size = block << level, difference = n / size - i / size;
    if (sibling ? n / (2 * size) == i / (2 * size) : difference >= -1 && difference <= 1) return level;
  }
}

static bool exact(const head *t) { return t->p->is.exact; }

/* Of a picture: the side of a block of cells; cells of a level in a row of cells. */
static int64_t side_of(const head *t) { return llround(sqrt((double)t->p->is.block)); }
static int64_t extent_of(const head *t, bool columns) {
  if (columns) return t->rows < t->p->is.grid ? t->rows : t->p->is.grid;
  return (t->rows + t->p->is.grid - 1) / t->p->is.grid;
}
static int64_t halved(int64_t extent, int level) { return (extent + ((int64_t)1 << level) - 1) >> level; }

/* The cell of a level in which row n is, and the first row of a cell. */
static int64_t cell_of(const head *t, int level, int64_t n) {
  const int64_t columns = t->p->is.grid;
  if (columns == 0) return n >> level;
  return (n / columns >> level) * halved(extent_of(t, true), level) + (n % columns >> level);
}
static int64_t first_of_cell(const head *t, int level, int64_t cell) {
  if (t->p->is.grid == 0) return cell << level;
  const int64_t width = halved(extent_of(t, true), level);
  return (cell / width << level) * t->p->is.grid + (cell % width << level);
}

/* The lowest level on which the blocks of two pixels are the same or touch, at a side or at a corner. */
static int pixels_level(int64_t side, int64_t row, int64_t column, int64_t key_row, int64_t key_column) {
  for (int level = 0;; level++) {
    const int64_t size = side << level;
    if (llabs(row / size - key_row / size) <= 1 && llabs(column / size - key_column / size) <= 1) return level;
  }
}

/* Share of a row in its cell, and the cell's mean of the rows' features and of their magnitudes. */
static void make_cells(head *t, int side, int level, const double *rows, bool first_only) {
  const int64_t d = t->p->is.head_dim;
  const uint8_t *real = side == 0 ? t->is_query : t->is_key;
  t->share[side][level] = numbers(t->rows);
  t->token[side][level] = numbers(t->cells[level] * d);
  t->size[side][level] = numbers(t->cells[level] * d);
  t->gradient[side][level] = numbers(t->cells[level] * d);
  t->gradient_size[side][level] = numbers(t->cells[level] * d);
  double *count = numbers(t->cells[level]), *share = t->share[side][level];
  for (int64_t n = 0; n < t->rows; n++) {
    const int64_t cell = cell_of(t, level, n);
    if (!real[n] || (first_only && count[cell] > 0)) continue;
    share[n] = 1;
    count[cell]++;
  }
  for (int64_t n = 0; n < t->rows; n++) {
    const int64_t cell = cell_of(t, level, n);
    if (share[n] == 0) continue;
    share[n] /= count[cell];
    for (int64_t x = 0; x < d; x++) {
      t->token[side][level][cell * d + x] += share[n] * rows[n * d + x];
      t->size[side][level][cell * d + x] += share[n] * fabs(rows[n * d + x]);
    }
  }
  free(count);
}

static int64_t column_of(const head *t, int side, int64_t distance) {
  return attention_kernel_column(&t->p->is, t->columns, side == 0 ? distance : -distance);
}

/* Pairs of cells at[0] rows and at[1] keys: the distances between a query row and the keys of a cell, or between all rows of two cells, as
 * columns of the table. `side` 1: the keys are after the query. */
typedef void pair_visit(head *t, void *data, int64_t column);
static void visit_distances(head *t, int level, int64_t at, int side, pair_visit *visit, void *data) {
  const int64_t size = (int64_t)1 << level;
  for (int64_t i = 0; i < size; i++) {
    if (exact(t)) { /* at: distance of the farthest key */
      if (at - i >= 0 && at - i < t->distances) visit(t, data, column_of(t, side, at - i));
      continue;
    }
    for (int64_t n = 0; n < size; n++) { /* at: distance of the cells */
      const int64_t distance = llabs((long long)(at * size + n - i));
      if (distance < t->distances) visit(t, data, column_of(t, side, distance));
    }
  }
}

static const double *log_kernel(const head *t) { return t->p->array[ARRAY_LOG_KERNEL].data + (t->p->is.shared ? 0 : t->h) * t->columns; }

typedef struct mean_sums {
  double sum, count, gradient, gradient_size;
} mean_sums;

static void add_to_mean(head *t, void *data, int64_t column) {
  mean_sums *sums = data;
  sums->sum += exp(log_kernel(t)[column]);
  sums->count++;
}

/* d log(mean) / d log G(x) = G(x) / sum of G for every time that x occurs. */
static void add_kernel_gradient(head *t, void *data, int64_t column) {
  const mean_sums *sums = data;
  const double share = exp(log_kernel(t)[column]) / sums->sum;
  const int64_t to = (t->p->is.shared ? 0 : t->h) * t->columns + column;
  t->e->array[ARRAY_DLOG_KERNEL].data[to] += share * sums->gradient;
  t->e->bound[ARRAY_DLOG_KERNEL][to] += share * sums->gradient_size;
}

/* Of one side. */
static int64_t mean_count(const head *t, int level) { return exact(t) ? t->p->is.block << (level + 2) : t->cells[level]; }

/* A directed table has means for keys up to the query, and after them those for keys after it. */
static int64_t mean_index(const head *t, int level, int64_t n, int64_t a, int64_t b) {
  const int64_t first = t->p->is.directed && b > a ? mean_count(t, level) : 0;
  if (!exact(t)) return first + llabs((long long)(a - b));
  return first + (b < a ? n - (b << level) : ((b + 1) << level) - 1 - n);
}

static void make_means(head *t) {
  const int sides = t->p->is.directed ? 2 : 1;
  t->columns = t->p->array[ARRAY_LOG_KERNEL].shape[1];
  t->distances = sides == 2 ? (t->columns + 1) / 2 : t->columns;
  for (int level = 0; level < t->levels; level++) {
    const int64_t count = mean_count(t, level);
    t->mean[level] = numbers(sides * count);
    t->dmean[level] = numbers(sides * count);
    t->dmean_size[level] = numbers(sides * count);
    for (int64_t at = 0; at < sides * count; at++) {
      mean_sums sums = {0};
      visit_distances(t, level, at % count, (int)(at / count), add_to_mean, &sums);
      t->mean[level][at] = log(sums.sum / sums.count);
    }
  }
}

/* The logit of a term; false when it is hidden. */
static bool make_logit(head *t, int64_t n, term *m) {
  const attention_case *c = &t->p->is;
  const int64_t d = c->head_dim;
  const int query_level = exact(t) ? 0 : m->level;
  const int64_t query = exact(t) ? n : m->query_cell;
  const double *q = t->token[0][query_level] + query * d, *k = t->token[1][m->level] + m->key_cell * d;
  const double *q_size = t->size[0][query_level] + query * d, *k_size = t->size[1][m->level] + m->key_cell * d;
  double terms = 0, sizes = 0, similarity = 0, magnitude = 0;
  if (c->hierarchical_bias || c->hierarchical_shared) {
    const attention_numbers *bias = &t->p->array[ARRAY_HIERARCHICAL_BIAS];
    terms += bias->data[(c->hierarchical_shared ? 0 : t->h) * bias->shape[1] + m->key_cell - m->query_cell + 2 * c->block - 1];
  }
  if (c->kernel || c->shared) {
    terms += t->mean[m->level][mean_index(t, m->level, n, m->query_cell, m->key_cell)];
    sizes += 4;
  }
  if (terms == -INFINITY) return false;
  sizes += fabs(terms) + 1;
  for (int64_t x = 0; x < d; x++) {
    const double width = 2 * t->p->sigma * t->p->sigma;
    similarity += c->rbf ? -(q[x] - k[x]) * (q[x] - k[x]) / width : t->p->scale * q[x] * k[x];
    magnitude += c->rbf ? (q_size[x] + k_size[x]) * (q_size[x] + k_size[x]) / width : fabs(t->p->scale) * q_size[x] * k_size[x];
  }
  m->logit = similarity + terms;
  m->logit_error =
      ((double)d + (c->grid > 0 ? 8 : 4) * m->level + 2 * FEW_ROUNDINGS) * magnitude + FEW_ROUNDINGS * (sizes + fabs(m->logit));
  return true;
}

/* What is kept of an entry: the word of its first row and its first key, which no other entry has. */
static double dropout_factor(const head *t, int64_t n, const term *m) {
  const attention_case *c = &t->p->is;
  if (c->dropout == 0) return 1;
  const uint64_t row = (uint64_t)(t->first + (exact(t) ? n : first_of_cell(t, m->level, m->query_cell))),
                 key = (uint64_t)(t->first + first_of_cell(t, m->level, m->key_cell));
  uint32_t words[4];
  hark_random_words(&t->p->dropout, ((((uint64_t)(t->b * c->heads + t->h) << 23) + row) << 21) + key / 4, words);
  return words[key % 4] >= hark_random_threshold(c->dropout) ? 1 / (1 - c->dropout) : 0;
}

static bool cell_has_query(const head *t, int level, int64_t cell) {
  for (int64_t n = cell << level; n < (cell + 1) << level && n < t->rows; n++)
    if (t->is_query[n]) return true;
  return false;
}

/* Coefficients of row n in the cells of a level, from those of the level below: c(n, parent) from c(n, child). */
static void coefficients(const head *t, int64_t n, double *all[MOST_LEVELS]) {
  memset(all[0], 0, (size_t)t->cells[0] * sizeof(double));
  all[0][n] = 1;
  for (int level = 1; level < t->levels; level++) {
    memset(all[level], 0, (size_t)t->cells[level] * sizeof(double));
    for (int64_t child = 0; child < t->cells[level - 1]; child++) {
      const int64_t parent = child / 2;
      const bool two = t->p->is.linear && child % 2 == 1 && parent + 1 < t->cells[level] && cell_has_query(t, level, parent + 1);
      all[level][parent] += all[level - 1][child] * (two ? 0.5 : 1);
      if (two) all[level][parent + 1] += all[level - 1][child] * 0.5;
    }
  }
}

static bool blocks_meet(const head *t, int64_t a, int64_t b) {
  const int32_t difference = t->block[a] - t->block[b];
  return t->p->is.sibling ? t->block[a] / 2 == t->block[b] / 2 : difference >= -1 && difference <= 1;
}

/* Whether attention_covering_level() of the first rows of two cells of a level is that level: their blocks meet, and on the level below
 * those of their first halves do not. Blocks that meet do so on every level above. */
static bool meet_first(const head *t, int level, int64_t a, int64_t b) {
  return blocks_meet(t, a, b) && (level == 0 || !blocks_meet(t, 2 * a, 2 * b));
}

/* The same of pixel n: every real key through the one cell by which the pixel sees it. */
static int64_t make_pixel_terms(head *t, int64_t n) {
  const int64_t columns = t->p->is.grid;
  int64_t count = 0;
  for (int64_t i = 0; i < t->rows; i++) {
    if (!t->is_key[i]) continue;
    const int level = pixels_level(side_of(t), n / columns, n % columns, i / columns, i % columns);
    term m = {.key = i, .query_cell = cell_of(t, level, n), .key_cell = cell_of(t, level, i), .level = level, .coefficient = 1};
    if (!make_logit(t, n, &m)) continue;
    m.factor = dropout_factor(t, n, &m);
    t->terms[count++] = m;
  }
  return count;
}

/* The terms of row n: every real key through every cell by which the row sees it. */
static int64_t make_terms(head *t, int64_t n, double *all[MOST_LEVELS]) {
  const attention_case *c = &t->p->is;
  int64_t count = 0;
  if (c->grid > 0) return make_pixel_terms(t, n);
  coefficients(t, n, all);
  for (int64_t i = 0; i < t->rows; i++) {
    if (!t->is_key[i] || (c->causal && i > n)) continue;
    for (int level = 0; level < t->levels; level++)
      for (int64_t a = n >> level; a <= (n >> level) + 1 && a < t->cells[level]; a++) {
        term m = {.key = i, .query_cell = a, .key_cell = i >> level, .level = level, .coefficient = all[level][a]};
        if (m.coefficient == 0 || !meet_first(t, level, a, m.key_cell)) continue;
        if (!make_logit(t, n, &m)) continue;
        m.factor = dropout_factor(t, n, &m);
        t->terms[count++] = m;
      }
  }
  return count;
}

static double row_softmax(head *t, int64_t count, double *relative, double *lse_error) {
  double largest = -INFINITY, sum = 0, error = 0;
  for (int64_t j = 0; j < count; j++) {
    largest = fmax(largest, t->terms[j].logit);
    error = fmax(error, t->terms[j].logit_error);
  }
  if (largest == -INFINITY) return -INFINITY;
  for (int64_t j = 0; j < count; j++) sum += t->terms[j].coefficient * exp(t->terms[j].logit - largest);
  const double lse = largest + log(sum);
  for (int64_t j = 0; j < count; j++) t->terms[j].weight = t->terms[j].coefficient * exp(t->terms[j].logit - lse);
  /* Differences of maxima between levels are as large as the logits are. */
  double spread = 0;
  for (int64_t j = 0; j < count; j++) spread = fmax(spread, fabs(t->terms[j].logit));
  const double levels = t->levels * (EXPONENTIAL + 2 * spread);
  *relative = 2 * error + (double)count + EXPONENTIAL + levels;
  *lse_error = error + (double)count + EXPONENTIAL + fabs(lse) + levels;
  t->largest_lse = fmax(t->largest_lse, fabs(lse));
  return lse;
}

static void add(head *t, attention_array array, int64_t index, double value, double bound) {
  t->e->array[array].data[index] += value;
  t->e->bound[array][index] += bound;
}

/* Gradients of one term by q~, k~, bias and kernel. */
static void term_gradient(head *t, int64_t n, const term *m, double gradient, double size) {
  const attention_case *c = &t->p->is;
  const int64_t d = c->head_dim, query = exact(t) ? n : m->query_cell;
  const int query_level = exact(t) ? 0 : m->level;
  const double factor = c->rbf ? 1 / (t->p->sigma * t->p->sigma) : t->p->scale;
  const double *q = t->token[0][query_level] + query * d, *k = t->token[1][m->level] + m->key_cell * d;
  const double *q_size = t->size[0][query_level] + query * d, *k_size = t->size[1][m->level] + m->key_cell * d;
  for (int64_t x = 0; x < d; x++) {
    t->gradient[0][query_level][query * d + x] += factor * gradient * (k[x] - (c->rbf ? q[x] : 0));
    t->gradient[1][m->level][m->key_cell * d + x] += factor * gradient * (q[x] - (c->rbf ? k[x] : 0));
    t->gradient_size[0][query_level][query * d + x] += fabs(factor) * size * (k_size[x] + (c->rbf ? q_size[x] : 0));
    t->gradient_size[1][m->level][m->key_cell * d + x] += fabs(factor) * size * (q_size[x] + (c->rbf ? k_size[x] : 0));
  }
  if (c->hierarchical_bias || c->hierarchical_shared)
    add(t, ARRAY_DHIERARCHICAL_BIAS,
        (c->hierarchical_shared ? 0 : t->h) * (4 * c->block - 1) + m->key_cell - m->query_cell + 2 * c->block - 1, gradient,
        size * (double)(c->batch * c->heads));
  if (c->kernel || c->shared) {
    const int64_t at = mean_index(t, m->level, n, m->query_cell, m->key_cell);
    t->dmean[m->level][at] += gradient;
    t->dmean_size[m->level][at] += size * (double)(c->batch * c->heads);
  }
}

static void do_row(head *t, int64_t n, double *all[MOST_LEVELS], double *out_error) {
  const attention_case *c = &t->p->is;
  const int64_t row = (t->b * c->heads + t->h) * c->queries + t->first + n, dv = c->value_dim;
  const int64_t values = (t->b * c->key_heads + t->key_head) * c->keys + t->first;
  const double *v = t->p->array[ARRAY_VALUE].data, *dout = t->p->array[ARRAY_DOUT].data + row * dv;
  const int64_t count = t->is_query[n] ? make_terms(t, n, all) : 0;
  double relative = 0, lse_error = 0;
  const double lse = row_softmax(t, count, &relative, &lse_error);
  add(t, ARRAY_LSE, row, lse, lse_error);
  if (lse == -INFINITY) return;
  double mean = 0, mean_error = 0;
  for (int64_t x = 0; x < dv; x++) {
    double sum = 0, size = 0;
    for (int64_t j = 0; j < count; j++) {
      const double part = t->terms[j].factor * t->terms[j].weight * v[(values + t->terms[j].key) * dv + x];
      sum += part;
      size += fabs(part);
    }
    out_error[x] = size * (relative + (double)count + FEW_ROUNDINGS);
    add(t, ARRAY_OUT, row * dv + x, sum, out_error[x]);
    mean += dout[x] * sum;
    mean_error += fabs(dout[x]) * (out_error[x] + ((double)dv + FEW_ROUNDINGS) * size);
  }
  /* Rows of a cell are weighted by e^(m - lse), a product of one exponential a level. */
  const double backward = lse_error + EXPONENTIAL + fabs(lse) + t->levels * (EXPONENTIAL + 4 * t->largest_lse) +
                          (double)(t->rows * (c->heads / c->key_heads)) + FEW_ROUNDINGS;
  for (int64_t j = 0; j < count; j++) {
    const term *m = &t->terms[j];
    const double *value = v + (values + m->key) * dv;
    double product = 0, size = 0;
    for (int64_t x = 0; x < dv; x++) {
      product += dout[x] * value[x];
      size += fabs(dout[x] * value[x]);
      const double kept = m->factor * m->weight;
      add(t, ARRAY_DVALUE, (values + m->key) * dv + x, kept * dout[x], kept * fabs(dout[x]) * (backward + m->logit_error + fabs(m->logit)));
    }
    const double parts = m->factor * size + fabs(mean);
    const double error = parts * (backward + m->logit_error + fabs(m->logit) + (double)(dv + 2 * t->rows) + FEW_ROUNDINGS) + mean_error;
    term_gradient(t, n, m, m->weight * (m->factor * product - mean), m->weight * error);
  }
}

/* Gradients of cells to their rows by share, and of the kernel's means to the table. */
static void hand_down(head *t) {
  const attention_case *c = &t->p->is;
  const int64_t d = c->head_dim;
  const int64_t from[2] = {((t->b * c->heads + t->h) * c->queries + t->first) * d,
                           ((t->b * c->key_heads + t->key_head) * c->keys + t->first) * d};
  for (int side = 0; side < 2; side++)
    for (int level = 0; level < t->levels; level++) {
      for (int64_t n = 0; n < t->rows; n++)
        for (int64_t x = 0; x < d; x++)
          add(t, side == 0 ? ARRAY_DQUERY : ARRAY_DKEY, from[side] + n * d + x,
              t->share[side][level][n] * t->gradient[side][level][cell_of(t, level, n) * d + x],
              t->share[side][level][n] * t->gradient_size[side][level][cell_of(t, level, n) * d + x]);
    }
  if (!c->kernel && !c->shared) return;
  for (int level = 0; level < t->levels; level++)
    for (int64_t at = 0; at < (c->directed ? 2 : 1) * mean_count(t, level); at++) {
      const int64_t place = at % mean_count(t, level);
      const int side = (int)(at / mean_count(t, level));
      if (t->dmean_size[level][at] == 0) continue;
      mean_sums sums = {.gradient = t->dmean[level][at], .gradient_size = t->dmean_size[level][at]};
      visit_distances(t, level, place, side, add_to_mean, &sums);
      visit_distances(t, level, place, side, add_kernel_gradient, &sums);
    }
}

static void do_head(head *t) {
  const attention_case *c = &t->p->is;
  const double *q = t->p->array[ARRAY_QUERY].data + ((t->b * c->heads + t->h) * c->queries + t->first) * c->head_dim;
  const double *k = t->p->array[ARRAY_KEY].data + ((t->b * c->key_heads + t->key_head) * c->keys + t->first) * c->head_dim;
  double *all[MOST_LEVELS] = {NULL}, *out_error = numbers(c->value_dim);
  t->levels = c->grid > 0 ? 1 + pixels_level(side_of(t), 0, 0, extent_of(t, false) - 1, extent_of(t, true) - 1)
                          : 1 + attention_covering_level(c->block, c->sibling, 0, t->rows - 1);
  for (int level = 0; level < t->levels; level++) {
    t->cells[level] = halved(t->rows, level);
    if (c->grid > 0) t->cells[level] = halved(extent_of(t, false), level) * halved(extent_of(t, true), level);
    all[level] = numbers(t->cells[level]);
    make_cells(t, 0, level, q, c->first);
    make_cells(t, 1, level, k, false);
  }
  if (c->kernel || c->shared) make_means(t);
  t->terms = calloc((size_t)(t->rows * (c->linear ? 2 * t->levels : 1) + 1), sizeof *t->terms);
  if (t->terms == NULL) exit(EXIT_FAILURE);
  t->block = calloc((size_t)(2 * t->rows + 2), sizeof *t->block);
  if (t->block == NULL) exit(EXIT_FAILURE);
  for (int64_t cell = 0; cell < 2 * t->rows + 2; cell++) t->block[cell] = (int32_t)(cell / c->block);
  t->largest_lse = 0;
  for (int64_t n = 0; n < t->rows; n++) do_row(t, n, all, out_error);
  hand_down(t);
  for (int level = 0; level < t->levels; level++) {
    for (int side = 0; side < 2; side++) {
      free(t->share[side][level]);
      free(t->token[side][level]);
      free(t->size[side][level]);
      free(t->gradient[side][level]);
      free(t->gradient_size[side][level]);
    }
    free(t->mean[level]);
    free(t->dmean[level]);
    free(t->dmean_size[level]);
    free(all[level]);
    t->mean[level] = t->dmean[level] = t->dmean_size[level] = NULL;
  }
  free(t->terms);
  free(t->block);
  free(out_error);
}

void attention_expected_hierarchical(const attention_problem *problem, attention_expected *out) {
  const attention_case *c = &problem->is;
  uint8_t *is_query = calloc((size_t)c->queries + 1, 1), *is_key = calloc((size_t)c->queries + 1, 1);
  if (is_query == NULL || is_key == NULL) exit(EXIT_FAILURE);
  for (int64_t b = 0; b < c->batch; b++)
    for (int64_t first = 0; first < c->queries;) {
      const attention_place place = attention_query_place(problem, b, first);
      int64_t rows = 1;
      while (first + rows < c->queries && attention_query_place(problem, b, first + rows).sequence == place.sequence) rows++;
      for (int64_t n = 0; n < rows; n++) {
        const int64_t row = first + n;
        const bool belongs = place.sequence >= 0;
        is_query[n] = belongs && (!c->query_mask || problem->query_mask[b * c->queries + row] != 0);
        is_key[n] = belongs && attention_key_place(problem, b, row).sequence == place.sequence &&
                    (!c->mask || problem->mask[attention_index(problem->mask_shape, b, 0, 0, row)] != 0);
      }
      for (int64_t h = 0; h < c->heads; h++) {
        head t = {.p = problem, .e = out, .b = b, .h = h, .key_head = h / (c->heads / c->key_heads), .first = first, .rows = rows};
        t.is_query = is_query;
        t.is_key = is_key;
        do_head(&t);
      }
      first += rows;
    }
  free(is_query);
  free(is_key);
}
