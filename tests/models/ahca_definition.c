/* ahca_definition.c - see ahca_definition.h. One function for each step of the definition, in the definition's order.
 *
 * Legend: M tokens, K chunks, C1 slots of a chunk, C2 global tokens, Cs of them selected, U units with `slots` rows each (chunks, or
 * selected tokens).
 */
#include "models/ahca_definition.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"

#define MOST_ROWS 64
#define MOST_WEIGHTS 1024 /* of one parameter */
#define MEMORY (1 << 17)
#define NAME 96

typedef struct matrix {
  int64_t rows, width;
  double *at;
} matrix;

/* All matrices of a sequence. */
static double memory[MEMORY];
static int64_t taken;

static matrix make(int64_t rows, int64_t width) {
  if (taken + rows * width > MEMORY) fail_msg("the definition needs more than %d numbers", MEMORY);
  const matrix m = {rows, width, memory + taken};
  memset(m.at, 0, (size_t)(rows * width) * sizeof *m.at);
  taken += rows * width;
  return m;
}

static matrix rows_of(matrix m, int64_t first, int64_t count) { return (matrix){count, m.width, m.at + first * m.width}; }
static double *row_of(matrix m, int64_t row) { return m.at + row * m.width; }

static void add_row(matrix m, int64_t row, matrix from, int64_t other, double factor) {
  for (int64_t i = 0; i < m.width; i++) row_of(m, row)[i] += factor * row_of(from, other)[i];
}

static matrix sum_of(matrix a, matrix b) {
  const matrix sum = make(a.rows, a.width);
  for (int64_t i = 0; i < a.rows * a.width; i++) sum.at[i] = a.at[i] + b.at[i];
  return sum;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double relu(double x) { return x > 0 ? x : 0; }
static double gelu(double x) { return x * 0.5 * (1 + erf(x / sqrt(2))); }
static double silu(double x) { return x * sigmoid(x); }

static matrix each(matrix m, double (*f)(double)) {
  for (int64_t i = 0; i < m.rows * m.width; i++) m.at[i] = f(m.at[i]);
  return m;
}

/* ---- parameters ---- */

static matrix find(ahca_definition *d, const char *prefix, const char *part) {
  const hark_parameters *parameters = &d->network->parameters;
  char name[NAME];
  (void)snprintf(name, sizeof name, "%s.%s", prefix, part);
  for (int32_t i = 0; i < parameters->count; i++) {
    const hark_parameter *parameter = &parameters->list[i];
    if (strcmp(parameter->name, name) != 0) continue;
    assert_true(i < AHCA_DEFINITION_PARAMETERS);
    const int64_t width = parameter->spec.shape[parameter->spec.rank - 1];
    const matrix m = make(parameter->count / width, width);
    d->read[i] = true;
    if (parameter->weight.type == HARK_F64) {
      assert_int_equal(hark_tensor_read(d->context, &parameter->weight, m.at), HARK_OK);
      return m;
    }
    float single[MOST_WEIGHTS];
    assert_true(parameter->count <= MOST_WEIGHTS);
    assert_int_equal(hark_tensor_read(d->context, &parameter->weight, single), HARK_OK);
    for (int64_t n = 0; n < parameter->count; n++) m.at[n] = (double)single[n];
    return m;
  }
  return (matrix){0};
}

static matrix weights(ahca_definition *d, const char *prefix) {
  const matrix m = find(d, prefix, "weight");
  if (m.at == NULL) fail_msg("the model has no %s.weight", prefix);
  return m;
}

/* x W' + b */
static matrix linear(ahca_definition *d, const char *prefix, matrix x) {
  const matrix w = weights(d, prefix), b = find(d, prefix, "bias"), y = make(x.rows, w.rows);
  assert_int_equal(x.width, w.width);
  for (int64_t n = 0; n < y.rows; n++) {
    for (int64_t o = 0; o < y.width; o++) {
      double sum = b.at != NULL ? b.at[o] : 0;
      for (int64_t i = 0; i < x.width; i++) sum += row_of(x, n)[i] * row_of(w, o)[i];
      row_of(y, n)[o] = sum;
    }
  }
  return y;
}

/* (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean square + epsilon), times the gain */
static matrix norm(ahca_definition *d, const char *prefix, matrix x) {
  const hark_network_config *config = &d->network->config;
  const matrix gain = weights(d, prefix), b = find(d, prefix, "bias"), y = make(x.rows, x.width);
  for (int64_t n = 0; n < x.rows; n++) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < x.width && config->norm == HARK_NORM_LAYER; i++) mean += row_of(x, n)[i] / (double)x.width;
    for (int64_t i = 0; i < x.width; i++) square += pow(row_of(x, n)[i] - mean, 2) / (double)x.width;
    for (int64_t i = 0; i < x.width; i++)
      row_of(y, n)[i] = gain.at[i] * (row_of(x, n)[i] - mean) / sqrt(square + config->norm_epsilon) + (b.at != NULL ? b.at[i] : 0);
  }
  return y;
}

/* ---- attention ---- */

/* What is special between row n of the queries and key j, at n * stride + j: with a stride of 0 between any row and key j. */
typedef struct pairs {
  int64_t stride;
  const double *term; /* added to the logit; NULL: nothing */
  const int *level;   /* rows and keys meet as means of cells of 2^level; NULL: as they are */
  int highest;        /* of the levels, with linear interpolation; otherwise 0 */
} pairs;
static const pairs plain = {0};

/* With linear interpolation: the coefficient c(n,a) with which row n has the sums of cell a of a level, of `rows` rows. */
static double share_of(int64_t rows, int64_t n, int level, int64_t a) {
  if (level == 0) return n == a ? 1 : 0;
  const int64_t cells = (rows + (1 << level) - 1) >> level, below = (rows + (1 << (level - 1)) - 1) >> (level - 1);
  double share = share_of(rows, n, level - 1, 2 * a);
  if (2 * a + 1 < below) share += (a + 1 < cells ? 0.5 : 1) * share_of(rows, n, level - 1, 2 * a + 1);
  if (a > 0) share += 0.5 * share_of(rows, n, level - 1, 2 * a - 1);
  return share;
}

/* Features [from, to) of the mean of rows `first` .. of the cell of row n. */
static double of_cell(matrix m, int64_t n, int level, int64_t feature) {
  const int64_t first = n >> level << level, end = first + (1 << level) < m.rows ? first + (1 << level) : m.rows;
  double sum = 0;
  for (int64_t i = first; i < end; i++) sum += row_of(m, i)[feature];
  return sum / (double)(end - first);
}

/* q_i . k_j / sqrt(width of a head) + term_ij */
static double logit_of(const ahca_definition *d, matrix q, matrix k, pairs p, int64_t head, int64_t n, int64_t j) {
  const int64_t own = q.width / d->network->config.heads;
  const int level = p.level != NULL ? p.level[n * p.stride + j] : 0;
  double sum = 0;
  for (int64_t i = head * own; i < (head + 1) * own; i++) sum += of_cell(q, n, level, i) * of_cell(k, j, level, i);
  return sum / sqrt((double)own) + (p.term != NULL ? p.term[n * p.stride + j] : 0);
}

/* Every head: sum_j w_ij v_j / sum_j w_ij with w_ij = e^logit_ij; with linear interpolation, w_ij is the sum of c(i,a) e^logit_aj over all
 * cells a that meet j on their level. */
static matrix attention(const ahca_definition *d, matrix q, matrix k, matrix v, pairs p) {
  const int64_t heads = d->network->config.heads, values = v.width / heads;
  const matrix out = make(q.rows, v.width);
  for (int64_t h = 0; h < heads; h++) {
    for (int64_t n = 0; n < q.rows; n++) {
      double weight[MOST_ROWS] = {0}, total = 0;
      assert_true(k.rows <= MOST_ROWS);
      for (int64_t j = 0; j < k.rows; j++) {
        if (p.highest == 0) weight[j] = exp(logit_of(d, q, k, p, h, n, j));
        for (int level = 0; p.highest > 0 && level <= p.highest; level++)
          for (int64_t row = 0; row < q.rows; row += 1 << level)
            if (p.level[row * p.stride + j] == level)
              weight[j] += share_of(q.rows, n, level, row >> level) * exp(logit_of(d, q, k, p, h, row, j));
        total += weight[j];
      }
      for (int64_t j = 0; j < k.rows; j++)
        for (int64_t i = h * values; i < (h + 1) * values; i++) row_of(out, n)[i] += weight[j] / total * row_of(v, j)[i];
    }
  }
  return out;
}

static const char *part_of(char name[NAME], const char *prefix, const char *part) {
  const int length = snprintf(name, NAME, "%s.%s", prefix, part);
  assert_true(length > 0 && length < NAME);
  return name;
}

/* x attends to y with the four projections of `prefix`. */
static matrix attend(ahca_definition *d, const char *prefix, matrix x, matrix y, pairs p) {
  char name[NAME];
  const matrix q = linear(d, part_of(name, prefix, "query"), x), k = linear(d, part_of(name, prefix, "key"), y),
               v = linear(d, part_of(name, prefix, "value"), y);
  return linear(d, part_of(name, prefix, "output"), attention(d, q, k, v, p));
}

/* ---- chunks ---- */

typedef struct chunks {
  int64_t count, first[MOST_ROWS + 1];
  double p[MOST_ROWS]; /* of learned ones, settled */
} chunks;

static void decide(ahca_definition *d, double distance) { d->margin = fmin(d->margin, fabs(distance)); }

/* p_t = (1 - cos(Wq x_t, Wk x_{t-1})) / 2, and 1 of the first */
static void probabilities(ahca_definition *d, matrix x, double *p) {
  const matrix q = linear(d, "boundary.query", x), k = linear(d, "boundary.key", x);
  p[0] = 1;
  for (int64_t t = 1; t < x.rows; t++) {
    double product = 0, of_q = 0, of_k = 0;
    for (int64_t i = 0; i < q.width; i++) {
      product += row_of(q, t)[i] * row_of(k, t - 1)[i];
      of_q += row_of(q, t)[i] * row_of(q, t)[i];
      of_k += row_of(k, t - 1)[i] * row_of(k, t - 1)[i];
    }
    p[t] = (1 - product / sqrt(of_q * of_k)) / 2;
    decide(d, p[t] - 0.5);
  }
}

/* Whether `length` tokens, a chunk so far, end with a delimiter: one token, or several, of which all but the last are -1 - token. */
static bool is_delimiter(const hark_ahca_config *ahca, const int32_t *tokens, int64_t length) {
  bool found = tokens[length - 1] == ahca->delimiter;
  for (int32_t first = 0, last; first < ahca->other_delimiter_count; first = last + 1) {
    bool same = true;
    for (last = first; ahca->other_delimiters[last] < 0; last++) {
    }
    const int64_t before = length - 1 - last + first; /* tokens before the delimiter */
    for (int32_t i = first; i <= last && before >= 0; i++)
      same = same && tokens[before + i - first] == (i < last ? -1 - ahca->other_delimiters[i] : ahca->other_delimiters[i]);
    found = found || (same && before >= 0);
  }
  return found;
}

/* Cosine of the means of the up to `window` rows before and after the gap before row t. */
static double similarity(matrix x, int64_t t, int64_t window) {
  const matrix left = make(1, x.width), right = make(1, x.width);
  double product = 0, of_left = 0, of_right = 0;
  for (int64_t n = t > window ? t - window : 0; n < t; n++) add_row(left, 0, x, n, 1);
  for (int64_t n = t; n < t + window && n < x.rows; n++) add_row(right, 0, x, n, 1);
  for (int64_t i = 0; i < x.width; i++) {
    product += left.at[i] * right.at[i];
    of_left += left.at[i] * left.at[i];
    of_right += right.at[i] * right.at[i];
  }
  return product / sqrt(of_left * of_right);
}

/* ruled[t]: the valley of similarity before row t is a deepest one, and at least `threshold` deviations deeper than they are on average. */
static void find_valleys(ahca_definition *d, matrix x, bool *ruled) {
  const hark_ahca_config *ahca = &d->network->config.ahca;
  double alike[MOST_ROWS] = {0}, depth[MOST_ROWS] = {0}, mean = 0, square = 0;
  const double gaps = (double)(x.rows - 1);
  for (int64_t t = 1; t < x.rows; t++) alike[t] = similarity(x, t, ahca->window);
  for (int64_t t = 1; t + 1 < x.rows; t++) decide(d, alike[t] - alike[t + 1]);
  for (int64_t t = 1; t < x.rows; t++) {
    int64_t left = t, right = t;
    while (left > 1 && alike[left - 1] >= alike[left]) left--;
    while (right + 1 < x.rows && alike[right + 1] >= alike[right]) right++;
    depth[t] = alike[left] + alike[right] - 2 * alike[t];
    mean += depth[t] / gaps;
  }
  for (int64_t t = 1; t < x.rows; t++) square += pow(depth[t] - mean, 2) / gaps;
  for (int64_t t = 1; t < x.rows; t++) {
    const double least = mean + ahca->threshold * sqrt(square);
    ruled[t] = depth[t] > 0 && depth[t] >= least && (t == 1 || depth[t] >= depth[t - 1]) && (t + 1 == x.rows || depth[t] >= depth[t + 1]);
    if (depth[t] == 0) continue;
    decide(d, depth[t] - least);
    if (t > 1) decide(d, depth[t] - depth[t - 1]);
  }
}

/* A chunk ends where its rule says so and it has the minimum of tokens, and where it has the maximum; or where the caller says so. */
static chunks cut(ahca_definition *d, const ahca_sequence *sequence, matrix x) {
  const hark_ahca_config *ahca = &d->network->config.ahca;
  const bool learned = ahca->chunk == HARK_AHCA_CHUNK_LEARNED, fixed = ahca->chunk == HARK_AHCA_CHUNK_FIXED;
  chunks c = {.count = 1};
  bool ruled[MOST_ROWS] = {false};
  assert_true(x.rows <= MOST_ROWS);
  if (sequence->starts != NULL) {
    c.count = sequence->chunks;
    memcpy(c.first, sequence->starts, (size_t)(c.count + 1) * sizeof *c.first);
    for (int64_t k = 0; k < c.count; k++) c.p[c.first[k]] = 1;
    return c;
  }
  if (learned) probabilities(d, x, c.p);
  if (ahca->chunk == HARK_AHCA_CHUNK_SEMANTIC) find_valleys(d, x, ruled);
  for (int64_t t = 1; t < x.rows; t++) {
    const int64_t length = t - c.first[c.count - 1];
    if (learned) ruled[t] = c.p[t] >= 0.5;
    if (fixed) ruled[t] = length == ahca->chunk_size;
    if (ahca->chunk == HARK_AHCA_CHUNK_DELIMITER) ruled[t] = is_delimiter(ahca, sequence->tokens + t - length, length);
    const bool cuts = fixed ? ruled[t] : (ruled[t] && length >= ahca->chunk_minimum) || length == ahca->chunk_maximum;
    if (cuts) c.first[c.count++] = t;
    if (cuts && ruled[t]) d->by_rule++;
    if (cuts == ruled[t]) continue;
    c.p[t] = cuts ? 1 : 0;
    d->forced += cuts;
    d->suppressed += ruled[t];
  }
  c.first[c.count] = x.rows;
  if (learned && ahca->ratio_weight > 0) { /* N / (N - 1) ((N - 1) F G + (1 - F) (1 - G)) */
    const double n = (double)ahca->chunk_size, f = (double)c.count / (double)x.rows;
    double g = 0;
    for (int64_t t = 0; t < x.rows; t++) g += c.p[t] / (double)x.rows;
    d->penalty += ahca->ratio_weight * n / (n - 1) * ((n - 1) * f * g + (1 - f) * (1 - g));
  }
  return c;
}

/* ---- both compressions ---- */

/* One linear layer, or two with a gelu between them. */
static matrix compress(ahca_definition *d, const char *prefix, int64_t depth, matrix x) {
  char name[NAME];
  const matrix y = linear(d, prefix, x);
  return depth < 2 ? y : linear(d, part_of(name, prefix, "second"), each(y, gelu));
}

/* `count` slots of the rows of x: bins floor(i M / C) .. ceil((i + 1) M / C) - 1, or what as many learned queries find in them. */
static matrix pool(ahca_definition *d, const char *prefix, int kind, int64_t count, matrix x) {
  char name[NAME];
  if (kind == HARK_AHCA_POOL_ATTENTION) {
    const matrix queries = rows_of(weights(d, part_of(name, prefix, "queries")), 0, count);
    return attention(d, queries, linear(d, part_of(name, prefix, "key"), x), x, plain);
  }
  const matrix y = make(count, x.width);
  for (int64_t i = 0; i < count; i++) {
    const int64_t first = i * x.rows / count, end = ((i + 1) * x.rows + count - 1) / count;
    for (int64_t w = 0; w < x.width; w++) {
      double most = -INFINITY, sum = 0;
      for (int64_t n = first; n < end; n++) {
        most = fmax(most, row_of(x, n)[w]);
        sum += row_of(x, n)[w];
      }
      row_of(y, i)[w] = kind == HARK_AHCA_POOL_MAX ? most : sum / (double)(end - first);
    }
  }
  return y;
}

/* C1 [K C1, d']; of learned chunks, where they are smoothed, y_k = p_k c_k + (1 - p_k) y_{k-1}. */
static matrix primary(ahca_definition *d, const chunks *c, matrix compressed, bool smoothed) {
  const hark_network_config *config = &d->network->config;
  const hark_ahca_config *ahca = &config->ahca;
  const matrix u = make(compressed.rows, compressed.width), out = make(c->count * ahca->primary_slots, u.width);
  for (int64_t t = 0; t < u.rows; t++) add_row(u, t, compressed, t, 1);
  if (config->positions == HARK_POSITIONS_LEARNED) {
    const matrix table = weights(d, "embedding.in_chunk");
    for (int64_t k = 0; k < c->count; k++)
      for (int64_t t = c->first[k]; t < c->first[k + 1]; t++) add_row(u, t, table, t - c->first[k], 1);
  }
  for (int64_t k = 0; k < c->count; k++) {
    const matrix slots =
        pool(d, "primary", ahca->primary_pool, ahca->primary_slots, rows_of(u, c->first[k], c->first[k + 1] - c->first[k]));
    const double p = ahca->chunk == HARK_AHCA_CHUNK_LEARNED && smoothed ? c->p[c->first[k]] : 1;
    for (int64_t i = 0; i < slots.rows; i++) {
      add_row(out, k * slots.rows + i, slots, i, p);
      if (k > 0) add_row(out, k * slots.rows + i, out, (k - 1) * slots.rows + i, 1 - p);
    }
  }
  return out;
}

/* C2 as pooled [min(C2, K C1), d'']. */
static matrix secondary(ahca_definition *d, matrix c1) {
  const hark_network_config *config = &d->network->config;
  const hark_ahca_config *ahca = &config->ahca;
  const matrix z = compress(d, "secondary", ahca->secondary_depth, c1);
  if (config->positions == HARK_POSITIONS_LEARNED) {
    const matrix of_chunk = weights(d, "embedding.chunk"), of_slot = weights(d, "embedding.slot");
    for (int64_t n = 0; n < z.rows; n++) {
      add_row(z, n, of_chunk, n / ahca->primary_slots, 1);
      add_row(z, n, of_slot, n % ahca->primary_slots, 1);
    }
  }
  return pool(d, "secondary", ahca->secondary_pool, z.rows < ahca->secondary_slots ? z.rows : ahca->secondary_slots, z);
}

/* ---- selection ---- */

/* How many of the scores come before number `i`: larger ones, and equal ones before it. */
static int64_t rank_of(const double *score, int64_t count, int64_t i) {
  int64_t rank = 0;
  for (int64_t j = 0; j < count; j++) rank += score[j] > score[i] || (score[j] == score[i] && j < i);
  return rank;
}

/* How near the first `most` are to the others. */
static void decide_ranks(ahca_definition *d, const double *score, int64_t count, int64_t most) {
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; j < count; j++)
      if (rank_of(score, count, i) < most && rank_of(score, count, j) >= most) decide(d, score[i] - score[j]);
}

static double length_of(const double *x, int64_t count) {
  double square = 0;
  for (int64_t i = 0; i < count; i++) square += x[i] * x[i];
  return sqrt(square);
}

/* Selects global tokens. pooled: C2 before its norm, global: after it. */
static void score_tokens(ahca_definition *d, matrix c1, matrix pooled, matrix global, double *score) {
  const int select = d->network->config.ahca.select;
  const matrix learned = select == HARK_AHCA_SELECT_SCORE ? linear(d, "select", global) : (matrix){0};
  for (int64_t n = 0; n < global.rows; n++) {
    score[n] = select == HARK_AHCA_SELECT_SCORE ? learned.at[n] : length_of(row_of(pooled, n), pooled.width);
    if (select != HARK_AHCA_SELECT_QUERY) continue;
    score[n] = 0;
    for (int64_t m = 0; m < c1.rows; m++)
      for (int64_t i = 0; i < c1.width; i++) score[n] += row_of(c1, m)[i] / (double)c1.rows * row_of(pooled, n)[i];
  }
}

static double distance_of(matrix a, int64_t row, matrix b, int64_t other) {
  double sum = 0;
  for (int64_t i = 0; i < a.width; i++) sum += pow(row_of(a, row)[i] - row_of(b, other)[i], 2);
  return sum;
}

/* The nearest of the rows of m to a point that are not taken; the second nearest determines the margin. */
static int64_t nearest_to(ahca_definition *d, matrix m, matrix point, int64_t row, const bool *is_taken) {
  int64_t best = -1;
  for (int64_t n = 0; n < m.rows; n++)
    if (!(is_taken != NULL && is_taken[n]) && (best < 0 || distance_of(m, n, point, row) < distance_of(m, best, point, row))) best = n;
  for (int64_t n = 0; n < m.rows; n++)
    if (n != best && !(is_taken != NULL && is_taken[n])) decide(d, distance_of(m, n, point, row) - distance_of(m, best, point, row));
  return best;
}

/* is_taken: the rows nearest to the centres of `count` clusters, from the row nearest to the mean and then those farthest from all before,
 * in 8 rounds. */
static void find_medoids(ahca_definition *d, matrix m, int64_t count, bool *is_taken) {
  enum { ROUNDS = 8 };
  const matrix centres = make(count, m.width), mean = make(1, m.width);
  bool starts[MOST_ROWS] = {false};
  for (int64_t n = 0; n < m.rows; n++) is_taken[n] = count >= m.rows;
  if (count >= m.rows) return; /* all, whatever the clusters are */
  for (int64_t n = 0; n < m.rows; n++) add_row(mean, 0, m, n, 1 / (double)m.rows);
  for (int64_t k = 0; k < count; k++) {
    int64_t next = k == 0 ? nearest_to(d, m, mean, 0, NULL) : -1;
    double far[MOST_ROWS] = {0};
    for (int64_t n = 0; n < m.rows && k > 0; n++) {
      far[n] = INFINITY;
      for (int64_t c = 0; c < k; c++) far[n] = fmin(far[n], distance_of(m, n, centres, c));
      if (!starts[n] && (next < 0 || far[n] > far[next])) next = n;
    }
    for (int64_t n = 0; n < m.rows && k > 0; n++)
      if (n != next && !starts[n]) decide(d, far[next] - far[n]);
    starts[next] = true;
    add_row(centres, k, m, next, 1);
  }
  for (int round = 0; round < ROUNDS; round++) {
    const matrix sums = make(count, m.width);
    double members[MOST_ROWS] = {0};
    for (int64_t n = 0; n < m.rows; n++) {
      const int64_t own = nearest_to(d, centres, m, n, NULL);
      add_row(sums, own, m, n, 1);
      members[own]++;
    }
    for (int64_t k = 0; k < count; k++)
      for (int64_t i = 0; i < m.width && members[k] > 0; i++) row_of(centres, k)[i] = row_of(sums, k)[i] / members[k];
  }
  for (int64_t k = 0; k < count; k++) is_taken[nearest_to(d, m, centres, k, is_taken)] = true;
}

typedef struct selection {
  matrix tokens; /* of C2's norm */
  bool scored;   /* their logits have a term: log sigmoid of the score */
  double term[MOST_ROWS];
  int64_t of[MOST_ROWS], all; /* which rows of C2, and how many that has */
} selection;

static void take(selection *s, int64_t row, matrix global, int64_t n, double score) {
  add_row(s->tokens, row, global, n, 1);
  s->term[row] = log(sigmoid(score));
  s->of[row] = n;
}

/* *all: every token of C2 with its term. */
static selection choose(ahca_definition *d, const ahca_sequence *sequence, matrix c1, matrix pooled, selection *all) {
  const hark_ahca_config *ahca = &d->network->config.ahca;
  const matrix global = norm(d, "secondary_norm", pooled);
  const int64_t most = sequence->chosen != NULL ? sequence->selected : ahca->selected, count = global.rows < most ? global.rows : most;
  const bool scored = ahca->select == HARK_AHCA_SELECT_SCORE;
  selection s = {.tokens = make(count, global.width), .scored = scored, .all = global.rows};
  double score[MOST_ROWS] = {0};
  bool is_taken[MOST_ROWS] = {false};
  *all = (selection){.tokens = make(global.rows, global.width), .scored = scored, .all = global.rows};
  if (ahca->select != HARK_AHCA_SELECT_MEDOIDS) score_tokens(d, c1, pooled, global, score);
  if (sequence->chosen != NULL) {
    for (int64_t i = 0; i < count; i++) is_taken[sequence->chosen[i]] = true;
  } else if (ahca->select == HARK_AHCA_SELECT_MEDOIDS) {
    find_medoids(d, pooled, count, is_taken);
  } else {
    decide_ranks(d, score, global.rows, count);
    for (int64_t n = 0; n < global.rows; n++) is_taken[n] = rank_of(score, global.rows, n) < count;
  }
  for (int64_t n = 0, row = 0; n < global.rows; n++) {
    take(all, n, global, n, score[n]);
    if (is_taken[n]) take(&s, row++, global, n, score[n]);
  }
  d->left_out += global.rows - count;
  return s;
}

static pairs terms_of(const selection *s) { return (pairs){.term = s->scored ? s->term : NULL}; }

/* ---- positional kernels and structures ---- */

static bool has_kernel(const ahca_definition *d) {
  const char *const expression = d->network->config.positional;
  return expression != NULL && expression[0] != '\0';
}

/* log G at a distance in chunks: sigma2 exp(-d / l), times exp(-2 alpha^2 sin^2(d / tau)); the parameters are logarithms. */
static double log_kernel(ahca_definition *d, double distance) {
  const bool periodic = strcmp(d->network->config.positional, "decay*periodic") == 0;
  assert_true(periodic || strcmp(d->network->config.positional, "decay") == 0);
  const matrix parameters = find(d, "positional", "parameters");
  assert_int_equal(parameters.width, periodic ? 4 : 2);
  const double *at = parameters.at;
  const double decay = at[0] - distance / exp(at[1]);
  return periodic ? decay - 2 * pow(exp(at[2]) * sin(distance / exp(at[3])), 2) : decay;
}

/* How near chunk k of n is to the middle of the bin of row r of C, in whole chunks, halves upwards: |k - ((2 r + 1) n / (2 C) - 1/2)|. */
static double chunks_to(int64_t k, int64_t n, int64_t r, int64_t all) {
  const int64_t twice = 2 * all * k + all - (2 * r + 1) * n; /* of C times the distance */
  return (double)(((twice < 0 ? -twice : twice) + all) / (2 * all));
}

/* What is between the rows of one chunk's slots: the level on which they meet, log G of |i - j| / C1 chunks (of cells the mean of G between
 * all of their rows), and what a window hides. */
static pairs pairs_of_slots(ahca_definition *d, int64_t slots, double *term, int *level) {
  const hark_network_config *config = &d->network->config;
  const bool hierarchical = hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_HIERARCHICAL),
             window = hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_WINDOW);
  assert_true(hierarchical || window || hark_layer_choice_is(&config->attention.structure, HARK_STRUCTURE_DENSE));
  const bool linear = config->attention.interpolation == HARK_INTERPOLATION_LINEAR;
  int highest = 0;
  assert_true(slots * slots <= MOST_ROWS);
  for (int64_t i = 0; i < slots; i++) {
    for (int64_t j = 0; j < slots; j++) {
      const int64_t at = i * slots + j;
      int64_t a = i / (hierarchical ? config->attention.hierarchy_block : 1),
              b = j / (hierarchical ? config->attention.hierarchy_block : 1);
      level[at] = 0;
      for (; hierarchical && (a - b > 1 || b - a > 1); a /= 2, b /= 2) level[at]++;
      d->coarse += level[at] > 0;
      highest = level[at] > highest ? level[at] : highest;
      term[at] = 0;
      if (has_kernel(d)) {
        const int64_t cell = 1 << level[at], first = i / cell * cell, other = j / cell * cell;
        double sum = 0;
        for (int64_t n = first; n < first + cell; n++)
          for (int64_t m = other; m < other + cell; m++) sum += exp(log_kernel(d, (double)(n > m ? n - m : m - n) / (double)slots));
        term[at] = log(sum / (double)(cell * cell));
      }
      const bool masked = window && (i - j > config->attention.window || j - i > config->attention.window);
      d->masked += masked;
      if (masked) term[at] = -INFINITY;
    }
  }
  return (pairs){.stride = slots, .term = term, .level = level, .highest = linear ? highest : 0};
}

/* ---- layers ---- */

typedef struct units {
  int64_t count, slots;
  const double *given; /* scores given by the caller; NULL: computed */
  int64_t depth[MOST_ROWS];
  double gate[MOST_ROWS];
} units;

static const char *of_layer(char name[NAME], int64_t layer, const char *part) {
  (void)snprintf(name, NAME, "blocks.%d.%s", (int)layer, part);
  return name;
}

/* A = attention(norm(h), attended) Wo; a kernel adds log G of the distance between the unit, a chunk, and the place of the token attended
 * to. */
static matrix join(ahca_definition *d, int64_t layer, const units *u, matrix h, const selection *to) {
  char name[NAME];
  const matrix normed = norm(d, of_layer(name, layer, "join_norm"), h), out = make(h.rows, h.width);
  for (int64_t k = 0; k < u->count; k++) {
    double term[MOST_ROWS] = {0};
    for (int64_t j = 0; j < to->tokens.rows; j++)
      term[j] = (to->scored ? to->term[j] : 0) + (has_kernel(d) ? log_kernel(d, chunks_to(k, u->count, to->of[j], to->all)) : 0);
    const matrix attended =
        attend(d, of_layer(name, layer, "join"), rows_of(normed, k * u->slots, u->slots), to->tokens, (pairs){.term = term});
    for (int64_t i = 0; i < u->slots; i++) add_row(out, k * u->slots + i, attended, i, 1);
  }
  return out;
}

/* All layers for the first 40 % of the training, the capacities from 70 % on, and between them linearly. */
static double capacity_of(const ahca_definition *d, int64_t layer) {
  const hark_ahca_config *ahca = &d->network->config.ahca;
  const double end = ahca->capacity_count > 0 && layer > 0 ? ahca->layer_capacities[layer - 1] : pow(ahca->capacity, (double)layer);
  const double way = ((1 - d->remaining) - 0.4) / 0.3;
  return way <= 0 ? 1 : way >= 1 ? end : 1 + way * (end - 1);
}

static int64_t depth_by_paper(ahca_definition *d, double fraction, int64_t layers) {
  if (fraction < 1) decide(d, fraction * (double)layers - round(fraction * (double)layers));
  return (int64_t)fmin(fmax(floor(fraction * (double)layers), 1), (double)layers);
}

/* Depth and gate of every unit, from what it begins with or from A. */
static void find_depths(ahca_definition *d, units *u, matrix begin, matrix a) {
  const hark_network_config *config = &d->network->config;
  const bool paper = config->ahca.depth == HARK_AHCA_DEPTH_PAPER,
             of_attention = config->ahca.depth_score == HARK_AHCA_DEPTH_SCORE_ATTENTION;
  double score[MOST_ROWS] = {0}, largest = 0;
  for (int64_t k = 0; k < u->count; k++) u->depth[k] = 1;
  if (config->layers < 2) return;
  if (u->given != NULL) {
    for (int64_t k = 0; k < u->count; k++) score[k] = u->given[k];
  } else if (paper || of_attention) {
    for (int64_t k = 0; k < u->count; k++) score[k] = length_of(row_of(of_attention ? a : begin, k * u->slots), u->slots * begin.width);
  } else {
    const matrix each_slot = linear(d, "depth", norm(d, "depth_norm", begin)); /* the mean's score is the mean of the scores */
    for (int64_t n = 0; n < begin.rows; n++) score[n / u->slots] += each_slot.at[n] / (double)u->slots;
  }
  for (int64_t k = 0; k < u->count; k++) largest = fmax(largest, score[k]);
  for (int64_t k = 0; k < u->count; k++) u->gate[k] = paper || u->given != NULL ? 1 : sigmoid(score[k]);
  for (int64_t k = 0; k < u->count && paper; k++) u->depth[k] = depth_by_paper(d, score[k] / largest, config->layers);
  for (int64_t l = 1; l < config->layers && !paper; l++) {
    const double have = ceil(capacity_of(d, l) * (double)u->count);
    decide_ranks(d, score, u->count, (int64_t)have);
    for (int64_t k = 0; k < u->count; k++) u->depth[k] += (double)rank_of(score, u->count, k) < have;
  }
  for (int64_t k = 0; k < u->count; k++) {
    d->shallow += u->depth[k] < config->layers;
    d->deep += u->depth[k] == config->layers;
    if (!paper && u->given == NULL) d->penalty += config->ahca.ponder_weight * u->gate[k] / (double)u->count;
  }
}

static matrix feed_forward(ahca_definition *d, const char *prefix, matrix x) {
  static double (*const functions[])(double) = {
      [HARK_ACTIVATION_GELU] = gelu, [HARK_ACTIVATION_RELU] = relu, [HARK_ACTIVATION_SILU] = silu};
  const hark_activation activation = d->network->config.activation;
  char name[NAME];
  assert_true(activation == HARK_ACTIVATION_GELU || activation == HARK_ACTIVATION_RELU || activation == HARK_ACTIVATION_SILU);
  const matrix inner = linear(d, part_of(name, prefix, "up"), x);
  return linear(d, part_of(name, prefix, "down"), each(inner, functions[activation]));
}

/* F(h) of one unit: what attention among its slots and the feed-forward layer add, or relu(W h + b) - h. */
static matrix branch(ahca_definition *d, int64_t layer, matrix h) {
  const hark_ahca_config *ahca = &d->network->config.ahca;
  char name[NAME], part[NAME];
  if (ahca->layer == HARK_AHCA_LAYER_LINEAR) {
    const matrix y = each(linear(d, of_layer(name, layer, "linear"), h), relu);
    for (int64_t n = 0; n < h.rows; n++) add_row(y, n, h, n, -1);
    return y;
  }
  const matrix normed = norm(d, of_layer(name, layer, "attention_norm"), h);
  matrix a;
  of_layer(name, layer, "attention");
  if (ahca->output == HARK_AHCA_OUTPUT_SELECTED) { /* alone: its own value */
    a = linear(d, part_of(part, name, "value"), normed);
    a = linear(d, part_of(part, name, "output"), a);
  } else {
    double term[MOST_ROWS];
    int level[MOST_ROWS];
    a = attend(d, name, normed, normed, pairs_of_slots(d, h.rows, term, level));
  }
  const matrix normed_sum = norm(d, of_layer(name, layer, "feed_forward_norm"), sum_of(h, a));
  return sum_of(a, feed_forward(d, of_layer(name, layer, "feed_forward"), normed_sum));
}

/* h = begin + A;  h += F_1(h);  l = 2 .. L_k: h_k += gate_k F_l(h_k), after another A if every layer joins */
static matrix run_layers(ahca_definition *d, units *u, matrix begin, const selection *to) {
  const hark_network_config *config = &d->network->config;
  const bool joins = config->ahca.selected > 0;
  const matrix a = joins ? join(d, 0, u, begin, to) : make(begin.rows, begin.width);
  matrix h = sum_of(begin, a);
  find_depths(d, u, begin, a);
  for (int64_t l = 0; l < config->layers; l++) {
    if (joins && l > 0 && config->ahca.join == HARK_AHCA_JOIN_EVERY) h = sum_of(h, join(d, l, u, h, to));
    for (int64_t k = 0; k < u->count; k++) {
      if (u->depth[k] <= l) continue;
      const matrix own = rows_of(h, k * u->slots, u->slots), f = branch(d, l, own);
      for (int64_t i = 0; i < u->slots; i++) add_row(own, i, f, i, l > 0 ? u->gate[k] : 1);
    }
  }
  return h;
}

/* ---- local layers ---- */

/* Every head's first half of features and its second are pairs; row t turns pair j by t 10000^(-2 j / features of a head). */
static void turn(const ahca_definition *d, matrix x) {
  const int64_t heads = d->network->config.heads, own = x.width / heads;
  if (d->network->config.positions == HARK_POSITIONS_NONE) return;
  for (int64_t t = 0; t < x.rows; t++) {
    for (int64_t h = 0; h < heads; h++) {
      for (int64_t j = 0; j < own / 2; j++) {
        double *const a = row_of(x, t) + h * own + j, *const b = a + own / 2, angle = (double)t * pow(10000, -2 * (double)j / (double)own);
        const double first = *a * cos(angle) - *b * sin(angle), second = *a * sin(angle) + *b * cos(angle);
        *a = first;
        *b = second;
      }
    }
  }
}

/* x += attention(norm(x)) to the tokens at most `local_window` away;  x += feed_forward(norm(x)) */
static matrix mix_tokens(ahca_definition *d, matrix x) {
  const hark_ahca_config *ahca = &d->network->config.ahca;
  char prefix[NAME], name[NAME];
  double term[MOST_ROWS * MOST_ROWS];
  assert_true(x.rows <= MOST_ROWS);
  for (int64_t i = 0; i < x.rows; i++)
    for (int64_t j = 0; j < x.rows; j++) term[i * x.rows + j] = i - j > ahca->local_window || j - i > ahca->local_window ? -INFINITY : 0;
  for (int64_t layer = 0; layer < ahca->local_layers; layer++) {
    (void)snprintf(prefix, NAME, "local.%d", (int)layer);
    const matrix normed = norm(d, part_of(name, prefix, "attention_norm"), x);
    const matrix q = linear(d, part_of(name, prefix, "attention.query"), normed),
                 k = linear(d, part_of(name, prefix, "attention.key"), normed),
                 v = linear(d, part_of(name, prefix, "attention.value"), normed);
    turn(d, q);
    turn(d, k);
    const matrix mixed = attention(d, q, k, v, (pairs){.stride = x.rows, .term = term});
    x = sum_of(x, linear(d, part_of(name, prefix, "attention.output"), mixed));
    const matrix other = norm(d, part_of(name, prefix, "feed_forward_norm"), x);
    x = sum_of(x, feed_forward(d, part_of(name, prefix, "feed_forward"), other));
  }
  return x;
}

/* ---- heads ---- */

static matrix predict(ahca_definition *d, matrix x) { return linear(d, "head", each(linear(d, "head.hidden", x), relu)); }

/* q_t: the embedded token, or its place in its chunk and the chunk's number. */
static matrix queries_of(ahca_definition *d, const chunks *c, matrix x) {
  if (d->network->config.ahca.head == HARK_AHCA_HEAD_LABELS) return x;
  const matrix q = make(x.rows, x.width), place = weights(d, "head.position"), number = weights(d, "head.chunk");
  for (int64_t k = 0; k < c->count; k++) {
    for (int64_t t = c->first[k]; t < c->first[k + 1]; t++) {
      add_row(q, t, place, t - c->first[k], 1);
      add_row(q, t, number, k, 1);
    }
  }
  return q;
}

/* y_t = q_t + attention(norm(q_t), norm(H_k)) Wo + attention(norm(q_t), C2_S) Wo'; the value of the straight-through estimator is its
 * input. */
static matrix predict_tokens(ahca_definition *d, const chunks *c, matrix x, matrix normed, const selection *selected) {
  const int64_t slots = d->network->config.ahca.primary_slots;
  const matrix q = queries_of(d, c, x), query = norm(d, "head.query_norm", q);
  const bool global = d->network->config.ahca.selected > 0;
  const matrix of_sequence = global ? attend(d, "head.selected", query, selected->tokens, terms_of(selected)) : make(q.rows, q.width);
  const matrix y = sum_of(q, of_sequence);
  for (int64_t k = 0; k < c->count; k++) {
    const int64_t first = c->first[k], count = c->first[k + 1] - first;
    const matrix attended = attend(d, "head.slots", rows_of(query, first, count), rows_of(normed, k * slots, slots), plain);
    for (int64_t i = 0; i < count; i++) add_row(y, first + i, attended, i, 1);
  }
  return predict(d, norm(d, "head.norm", y));
}

static matrix predict_sequence(ahca_definition *d, matrix normed) {
  const matrix mean = make(1, normed.width);
  for (int64_t n = 0; n < normed.rows; n++) add_row(mean, 0, normed, n, 1 / (double)normed.rows);
  return predict(d, mean);
}

/* Rows of the table of tokens, or W v + b of real vectors. */
static matrix embed(ahca_definition *d, const ahca_sequence *sequence) {
  const hark_network_config *config = &d->network->config;
  if (sequence->vectors != NULL) {
    const matrix v = make(sequence->count, config->features);
    memcpy(v.at, sequence->vectors, (size_t)(v.rows * v.width) * sizeof *v.at);
    return linear(d, "embedding.features", v);
  }
  const matrix table = weights(d, "embedding.token"), x = make(sequence->count, config->width);
  for (int64_t t = 0; t < x.rows; t++) add_row(x, t, table, sequence->tokens[t], 1);
  return x;
}

void ahca_definition_logits(ahca_definition *d, const ahca_sequence *sequence, double *logits) {
  const hark_network_config *config = &d->network->config;
  const bool of_selected = config->ahca.output == HARK_AHCA_OUTPUT_SELECTED;
  taken = 0;
  const matrix x = mix_tokens(d, embed(d, sequence));
  const matrix compressed = compress(d, "primary", config->ahca.primary_depth, x);
  const chunks c = cut(d, sequence, config->ahca.boundary == HARK_AHCA_BOUNDARY_COMPRESSED ? compressed : x);
  const matrix c1 = primary(d, &c, compressed, !sequence->without_smoothing);
  selection all = {0}, selected = {0};
  if (config->ahca.selected > 0) selected = choose(d, sequence, c1, secondary(d, c1), &all);
  units u = {.given = sequence->depth_scores,
             .count = of_selected ? selected.tokens.rows : c.count,
             .slots = of_selected ? 1 : config->ahca.primary_slots};
  const matrix begin = of_selected ? linear(d, "from_selected", selected.tokens) : c1;
  const matrix normed = norm(d, "final_norm", run_layers(d, &u, begin, of_selected ? &all : &selected));
  const bool predicts_tokens = config->ahca.head == HARK_AHCA_HEAD_LABELS || config->ahca.head == HARK_AHCA_HEAD_RECONSTRUCTION;
  const matrix predicted = predicts_tokens ? predict_tokens(d, &c, x, normed, &selected) : predict_sequence(d, normed);
  memcpy(logits, predicted.at, (size_t)(predicted.rows * predicted.width) * sizeof *logits);
}
