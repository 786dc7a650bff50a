/* rank_map.c - a matrix of full rank whose blocks away from the diagonal have a very low rank.
 *
 *     A[i, j] = exp(2 exp(-(i - j)^2) - 1)                                                                    (H eq. 11, 12)
 *
 * is divided as in H eq. 9: blocks of 4 x 4 on and next to the diagonal (level 0), and for every larger pair of siblings two blocks of
 * twice the size (level 1, 2, ...). The paper's example, 16 x 16, with the ranks at 1e-3 (H eq. 13):
 *
 *       4 2 |  2
 *       2 4 |
 *       ----+----        an n x n block of rank r is stored as n x r and r x n, or as it is where that is less: min(n^2, 2 r n)
 *           | 4 2
 *        2  | 2 4
 *
 * The numerical rank of a matrix is the least r with sum_{i > r} sigma_i below the tolerance.
 *
 * Heads of a trained model: P is the matrix of their attention weights, divided in the same way into diagonal blocks of 16 x 16 and, for a
 * causal model, the blocks below the diagonal. A block E of n x m entries has the rank r at eps if r is the least number with
 *
 *     sum_{i > r} sigma_i(E)^2 <= eps^2 |P|_F^2 n m / A,      A: entries of all blocks away from the diagonal
 *
 * so that all blocks together, each replaced by its best approximation of that rank, differ from P by at most eps |P|_F. Source: Zhu,
 * Soricut, "H-Transformer-1D", section 4.1.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lab/singular.h"
#include "lab/trained_heads.h"

#define LEAF 4 /* rows of a block of level 0 */
#define PAPER_LENGTH 16
#define BLOCK_TOLERANCE 1e-3
#define WHOLE_TOLERANCE 1e-1
#define DIAGONAL (-1) /* as a level */

enum { BLOCK_ROW, BLOCK_COLUMN, BLOCK_SIZE, BLOCK_LEVEL, BLOCK_RANK, BLOCK_TAIL, BLOCK_STORAGE, BLOCK_COLUMNS };
static const hark_lab_column block_columns[BLOCK_COLUMNS] = {
    {"first row", NULL, NULL}, {"first column", NULL, NULL},       {"size", "rows", NULL},      {"level", "-1: diagonal", NULL},
    {"rank", "at 1e-3", NULL}, {"left out", "sum of sigma", NULL}, {"storage", "entries", NULL}};

enum { LENGTH, LEVELS, WHOLE_RANK, LARGEST_RANK, STORED, PREDICTED, ENTRIES, COMPRESSION, LENGTH_COLUMNS };
static const hark_lab_column length_columns[LENGTH_COLUMNS] = {{"length", "rows", NULL},        {"levels", NULL, NULL},
                                                               {"whole rank", "at 1e-1", NULL}, {"largest rank", "off the diagonal", NULL},
                                                               {"storage", "entries", NULL},    {"predicted", "entries", NULL},
                                                               {"all", "entries", NULL},        {"compression", "all / storage", NULL}};

static double entry(int64_t i, int64_t j) {
  const double distance = (double)(i - j);
  return exp(2 * exp(-distance * distance) - 1);
}

typedef struct block {
  int64_t row, column, size, level;
} block;

/* Called for each block. */
typedef hark_status block_visitor(void *user, const block *b);

/* The blocks of the diagonal, of `leaf` rows, and on every level the two blocks of each pair of siblings (causal: the one below the
 * diagonal); coarser levels later. */
static hark_status visit_blocks(int64_t length, int64_t leaf, bool causal, block_visitor *visit, void *user) {
  for (int64_t at = 0; at < length; at += leaf) HARK_TRY(visit(user, &(block){at, at, leaf, DIAGONAL}));
  int64_t level = 0;
  for (int64_t size = leaf; 2 * size <= length; size *= 2, level++)
    for (int64_t at = 0; at < length; at += 2 * size) {
      if (!causal) HARK_TRY(visit(user, &(block){at, at + size, size, level}));
      HARK_TRY(visit(user, &(block){at + size, at, size, level}));
    }
  return HARK_OK;
}

/* Singular values of a block into values[size]. */
static void decompose(const block *b, double *matrix, double *values) {
  for (int64_t i = 0; i < b->size; i++)
    for (int64_t j = 0; j < b->size; j++) matrix[i * b->size + j] = entry(b->row + i, b->column + j);
  hark_singular_values(b->size, b->size, matrix, values);
}

static int64_t storage_of(int64_t size, int64_t rank) { return hark_min(size * size, 2 * rank * size); }

/* One length: data shared by its blocks. */
typedef struct map {
  hark_lab *lab;
  hark_lab_table *table; /* NULL: no rows */
  hark_lab_panel *panel; /* NULL: no picture */
  double *matrix, *values;
  int64_t stored, levels, largest; /* rank off the diagonal */
} map;

static hark_status draw_block(const map *m, const block *b, int64_t rank) {
  hark_lab_cell cell = {.left = (double)b->column,
                        .right = (double)(b->column + b->size),
                        .top = (double)b->row,
                        .bottom = (double)(b->row + b->size),
                        .shade = (double)rank / (double)b->size};
  (void)snprintf(cell.label, sizeof cell.label, "%lld", (long long)rank);
  return hark_lab_add_cell(m->panel, &cell);
}

static hark_status take_block(void *user, const block *b) {
  map *m = user;
  double tail = 0;
  decompose(b, m->matrix, m->values);
  const int64_t rank = hark_numerical_rank(m->values, b->size, BLOCK_TOLERANCE), storage = storage_of(b->size, rank);
  for (int64_t i = rank; i < b->size; i++) tail += m->values[i];
  m->stored += storage;
  m->levels = hark_max(m->levels, b->level + 1);
  if (b->level != DIAGONAL) m->largest = hark_max(m->largest, rank);
  if (m->panel != NULL) HARK_TRY(draw_block(m, b, rank));
  if (m->table == NULL) return HARK_OK;
  const double row[BLOCK_COLUMNS] = {(double)b->row, (double)b->column, (double)b->size, (double)b->level, (double)rank,
                                     tail,           (double)storage};
  return hark_lab_add_row(m->lab, m->table, row);
}

static hark_status open_map(hark_lab *lab, int64_t length, map *out) {
  *out = (map){.lab = lab};
  HARK_TRY(hark_lab_numbers(lab, length * length, &out->matrix));
  return hark_lab_numbers(lab, length, &out->values);
}

/* Curves of the singular values of the whole matrix and of its largest block off the diagonal. */
static hark_status draw_values(const map *m) {
  static const hark_lab_axes axes = {.title = "singular values", .x = "number", .y = "sigma", .log_y = true};
  const block parts[] = {{0, 0, PAPER_LENGTH, 0}, {0, PAPER_LENGTH / 2, PAPER_LENGTH / 2, 1}};
  static const char *const labels[] = {"the whole matrix", "its block of level 1"};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(m->lab, axes, &panel));
  for (int part = 0; part < 2; part++) {
    hark_lab_curve *curve;
    decompose(&parts[part], m->matrix, m->values);
    HARK_TRY(hark_lab_add_curve(m->lab, panel, part == 0 ? HARK_LAB_LINE : HARK_LAB_POINTS, &curve, "%s", labels[part]));
    for (int64_t i = 0; i < parts[part].size; i++) HARK_TRY(hark_lab_add_point(curve, (double)(i + 1), fmax(m->values[i], 1e-17)));
  }
  return HARK_OK;
}

/* H eq. 9 and 13. */
static hark_status measure_paper(hark_lab *lab) {
  static const hark_lab_axes axes = {.title = "numerical ranks at 1e-3", .x = "column", .y = "row", .is_map = true};
  map m;
  HARK_TRY(open_map(lab, PAPER_LENGTH, &m));
  HARK_TRY(hark_lab_add_panel(lab, axes, &m.panel));
  HARK_TRY(hark_lab_add_table(lab, "blocks of the 16 x 16 matrix", block_columns, BLOCK_COLUMNS, &m.table));
  HARK_TRY(visit_blocks(PAPER_LENGTH, LEAF, false, take_block, &m));
  return draw_values(&m);
}

/* The same matrix at more lengths. Blocks next to the diagonal differ from a constant in one corner only, where all of them are equal:
 * their rank does not grow with their size, each level takes 4 L entries, and all levels 4 L (1 + log2(L / 4)). */
static hark_status measure_lengths(hark_lab *lab) {
  const int64_t longest = lab->quick ? 128 : 512;
  hark_lab_table *table;
  map m;
  HARK_TRY(hark_lab_add_table(lab, "the same matrix at more lengths", length_columns, LENGTH_COLUMNS, &table));
  for (int64_t length = PAPER_LENGTH; length <= longest; length *= 2) {
    HARK_TRY(open_map(lab, length, &m));
    HARK_TRY(visit_blocks(length, LEAF, false, take_block, &m));
    decompose(&(block){0, 0, length, 0}, m.matrix, m.values);
    const double whole = (double)hark_numerical_rank(m.values, length, WHOLE_TOLERANCE);
    const double predicted = (double)(4 * length * (1 + m.levels)), all = (double)(length * length);
    const double row[LENGTH_COLUMNS] = {(double)length,   (double)m.levels, whole, (double)m.largest,
                                        (double)m.stored, predicted,        all,   all / (double)m.stored};
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* ---- heads of a trained model ---- */

#define TRAINED_LEAF INT64_C(16)
#define TRAINED_LENGTH 512
#define QUICK_TRAINED_LENGTH 128
#define LEVELS_LIMIT 6     /* of blocks away from the diagonal: 16, 32, .., 512 */
#define SHUFFLE_STREAM 100 /* the first of the streams that order keys, one a head */
#define HIERARCHY_BLOCK 16 /* Nr of the attention that is compared with a window */
enum { TENTH, HUNDREDTH, TOLERANCES };
static const double tolerances[TOLERANCES] = {0.1, 0.01};

enum {
  LEVEL_LAYER,
  LEVEL_HEAD,
  LEVEL,
  LEVEL_SIZE,
  LEVEL_BLOCKS,
  LEVEL_SHARE,
  LEVEL_TENTH,
  LEVEL_TENTH_SHUFFLED,
  LEVEL_HUNDREDTH,
  LEVEL_HUNDREDTH_SHUFFLED,
  LEVEL_COLUMNS
};
static const hark_lab_column level_columns[LEVEL_COLUMNS] = {
    {"layer", NULL, NULL},           {"head", NULL, NULL},
    {"level", "-1: diagonal", NULL}, {"size", "rows", NULL},
    {"blocks", NULL, NULL},          {"share", "of |P|^2", NULL},
    {"rank, eps .1", "mean", NULL},  {"keys shuffled", "mean rank, eps .1", NULL},
    {"rank, eps .01", "mean", NULL}, {"keys shuffled", "mean rank, eps .01", NULL}};

enum {
  HEAD_LAYER,
  HEAD_HEAD,
  HEAD_WHOLE_TENTH,
  HEAD_WHOLE_HUNDREDTH,
  HEAD_TENTH,
  HEAD_TENTH_SHUFFLED,
  HEAD_HUNDREDTH,
  HEAD_HUNDREDTH_SHUFFLED,
  HEAD_WINDOW,
  HEAD_WINDOW_ERROR,
  HEAD_FIRST_ERROR,
  HEAD_EXACT_ERROR,
  HEAD_COLUMNS
};
static const hark_lab_column head_columns[HEAD_COLUMNS] = {{"layer", NULL, NULL},
                                                           {"head", NULL, NULL},
                                                           {"whole rank", "eps .1", NULL},
                                                           {"whole rank", "eps .01", NULL},
                                                           {"storage", "share, eps .1", NULL},
                                                           {"keys shuffled", "share, eps .1", NULL},
                                                           {"storage", "share, eps .01", NULL},
                                                           {"keys shuffled", "share, eps .01", NULL},
                                                           {"window", "tokens", NULL},
                                                           {"window", "error", NULL},
                                                           {"hierarchical, first", "error", NULL},
                                                           {"hierarchical, exact", "error", NULL}};

/* Sums over the blocks of a level, of one matrix. */
typedef struct level_sums {
  int64_t size, blocks;
  double squares;
  double ranks[TOLERANCES];
} level_sums;

/* The weights of a head, in its own order or with keys in a random one. */
typedef struct weights {
  bool causal;
  int64_t length;
  double *entries; /* [length, length] */
  double squares;  /* |P|_F^2 */
  double *matrix, *values;
  double entries_off;                  /* A */
  level_sums levels[LEVELS_LIMIT + 1]; /* the first is the diagonal */
  double stored[TOLERANCES], all;      /* entries of all blocks */
  int64_t whole[TOLERANCES];           /* ranks of the whole matrix */
} weights;

typedef struct trained_study {
  hark_lab *lab;
  const hark_trained_heads *heads;
  hark_lab_table *levels, *table;
  int64_t length;
  weights own, shuffled;
  double *keys;                  /* [length, head_dim], shuffled */
  double *dense, *approximation; /* [length, head_dim] */
} trained_study;

/* The least r for which the squares of the values after the r-th have a sum of at most `left_out`. */
static int64_t rank_within(const double *values, int64_t count, double left_out) {
  int64_t rank = count;
  for (double sum = 0; rank > 0 && (sum += values[rank - 1] * values[rank - 1]) <= left_out;) rank--;
  return rank;
}

/* Row `row` of the weights; exp of a logit minus the largest one. */
static void fill_row(const hark_attention_desc *similarity, const double *query, const double *keys, int64_t head_dim, int64_t row,
                     weights *out) {
  const int64_t seen = out->causal ? row + 1 : out->length;
  double *const entries = out->entries + row * out->length, largest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < seen; j++) {
    double dot = 0, distance = 0;
    for (int64_t i = 0; i < head_dim; i++) {
      const double q = query[row * head_dim + i], k = keys[j * head_dim + i];
      dot += q * k;
      distance += (q - k) * (q - k);
    }
    entries[j] = similarity->kernel == HARK_KERNEL_RBF ? -distance / (2 * similarity->sigma * similarity->sigma) : similarity->scale * dot;
    largest = hark_lab_larger(largest, entries[j]);
  }
  for (int64_t j = 0; j < seen; j++) {
    entries[j] = exp(entries[j] - largest);
    sum += entries[j];
  }
  for (int64_t j = 0; j < seen; j++) {
    entries[j] /= sum;
    out->squares += entries[j] * entries[j];
  }
  for (int64_t j = seen; j < out->length; j++) entries[j] = 0;
}

static hark_status count_entries(void *user, const block *b) {
  weights *const w = user;
  const double count = (double)(b->size * b->size);
  w->all += count;
  if (b->level != DIAGONAL) w->entries_off += count;
  return HARK_OK;
}

static hark_status take_weights(void *user, const block *b) {
  weights *const w = user;
  level_sums *const sums = &w->levels[b->level + 1];
  const double count = (double)(b->size * b->size);
  sums->size = b->size;
  sums->blocks++;
  for (int64_t i = 0; i < b->size; i++)
    for (int64_t j = 0; j < b->size; j++) {
      const double entry = w->entries[(b->row + i) * w->length + b->column + j];
      w->matrix[i * b->size + j] = entry;
      sums->squares += entry * entry;
    }
  if (b->level != DIAGONAL) hark_singular_values(b->size, b->size, w->matrix, w->values);
  for (int t = 0; t < TOLERANCES; t++) {
    const double left_out = tolerances[t] * tolerances[t] * w->squares * count / w->entries_off;
    const int64_t rank = b->level == DIAGONAL ? b->size : rank_within(w->values, b->size, left_out);
    sums->ranks[t] += (double)rank;
    w->stored[t] += b->level == DIAGONAL ? count : (double)storage_of(b->size, rank);
  }
  return HARK_OK;
}

/* Measures the blocks of a head with these keys. */
static hark_status study_blocks(const hark_attention_desc *similarity, const double *query, const double *keys, int64_t head_dim,
                                weights *out) {
  out->squares = out->entries_off = out->all = 0;
  memset(out->levels, 0, sizeof out->levels);
  for (int t = 0; t < TOLERANCES; t++) out->stored[t] = 0;
  for (int64_t row = 0; row < out->length; row++) fill_row(similarity, query, keys, head_dim, row, out);
  HARK_TRY(visit_blocks(out->length, TRAINED_LEAF, out->causal, count_entries, out));
  return visit_blocks(out->length, TRAINED_LEAF, out->causal, take_weights, out);
}

static void study_whole(weights *w) {
  memcpy(w->matrix, w->entries, (size_t)(w->length * w->length) * sizeof *w->matrix);
  hark_singular_values(w->length, w->length, w->matrix, w->values);
  for (int t = 0; t < TOLERANCES; t++) w->whole[t] = rank_within(w->values, w->length, tolerances[t] * tolerances[t] * w->squares);
}

/* The keys of a head in a random order (Fisher and Yates). */
static void shuffle_keys(const trained_study *s, int64_t head, const double *keys) {
  const int64_t dim = s->heads->head_dim;
  hark_random_stream stream = hark_lab_stream(s->lab, (uint32_t)(SHUFFLE_STREAM + head));
  memcpy(s->keys, keys, (size_t)(s->length * dim) * sizeof *keys);
  for (int64_t i = s->length - 1; i > 0; i--) {
    const int64_t j = (int64_t)(((uint64_t)hark_random_word(&stream, (uint64_t)i) * (uint64_t)(i + 1)) >> 32);
    for (int64_t d = 0; d < dim; d++) {
      const double kept = s->keys[i * dim + d];
      s->keys[i * dim + d] = s->keys[j * dim + d];
      s->keys[j * dim + d] = kept;
    }
  }
}

/* |approximation - dense|_F / |dense|_F of the head's output with an attention. */
static hark_status measure_error(const trained_study *s, const hark_attention_desc *desc, const hark_lab_head *head, double *error) {
  double difference = 0, size = 0;
  HARK_TRY(hark_lab_attend(s->lab->context, desc, head, s->approximation));
  for (int64_t i = 0; i < s->length * s->heads->head_dim; i++) {
    difference += (s->approximation[i] - s->dense[i]) * (s->approximation[i] - s->dense[i]);
    size += s->dense[i] * s->dense[i];
  }
  *error = size > 0 ? sqrt(difference / size) : 0; /* a head whose values are all zero */
  return HARK_OK;
}

static double operations_of(const trained_study *s, hark_attention_desc desc) {
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = s->length;
  desc.head_dim = s->heads->head_dim;
  return hark_attention_desc_operations(&desc, false);
}

/* The errors of hierarchical attention and of the smallest window that does not take fewer operations. */
static hark_status measure_errors(const trained_study *s, const hark_attention_desc *similarity, const hark_lab_head *head,
                                  double row[HEAD_COLUMNS]) {
  hark_attention_desc dense = *similarity;
  dense.causal = s->heads->causal;
  hark_attention_desc tree = dense, window = dense;
  tree.structure = HARK_STRUCTURE_HIERARCHICAL;
  tree.hierarchy_block = HIERARCHY_BLOCK;
  tree.coarse_query = HARK_COARSE_QUERY_EXACT;
  window.structure = HARK_STRUCTURE_WINDOW;
  window.window = 1;
  const double operations = operations_of(s, tree);
  while (window.window < s->length && operations_of(s, window) < operations) window.window++;
  row[HEAD_WINDOW] = (double)window.window;
  HARK_TRY(hark_lab_attend(s->lab->context, &dense, head, s->dense));
  HARK_TRY(measure_error(s, &window, head, &row[HEAD_WINDOW_ERROR]));
  HARK_TRY(measure_error(s, &tree, head, &row[HEAD_EXACT_ERROR]));
  tree.coarse_query = HARK_COARSE_QUERY_FIRST;
  return measure_error(s, &tree, head, &row[HEAD_FIRST_ERROR]);
}

static hark_status add_levels(const trained_study *s, int64_t layer, int64_t head) {
  for (int64_t level = 0; level <= LEVELS_LIMIT; level++) {
    const level_sums *const own = &s->own.levels[level], *const shuffled = &s->shuffled.levels[level];
    const double blocks = (double)own->blocks;
    if (own->blocks == 0) continue;
    const double row[LEVEL_COLUMNS] = {(double)layer,
                                       (double)head,
                                       (double)(level - 1),
                                       (double)own->size,
                                       blocks,
                                       own->squares / s->own.squares,
                                       own->ranks[TENTH] / blocks,
                                       shuffled->ranks[TENTH] / blocks,
                                       own->ranks[HUNDREDTH] / blocks,
                                       shuffled->ranks[HUNDREDTH] / blocks};
    HARK_TRY(hark_lab_add_row(s->lab, s->levels, row));
  }
  return HARK_OK;
}

static hark_status study_head(trained_study *s, int64_t layer, int64_t head) {
  const hark_trained_heads *const heads = s->heads;
  const int64_t number = layer * heads->heads + head, first = number * heads->length * heads->head_dim;
  const hark_attention_desc *const similarity = &heads->similarities[layer];
  const hark_lab_head one = {.length = s->length,
                             .head_dim = heads->head_dim,
                             .value_dim = heads->head_dim,
                             .query = heads->query + first,
                             .key = heads->key + first,
                             .value = heads->value + first};
  shuffle_keys(s, number, one.key);
  HARK_TRY(study_blocks(similarity, one.query, one.key, heads->head_dim, &s->own));
  HARK_TRY(study_blocks(similarity, one.query, s->keys, heads->head_dim, &s->shuffled));
  study_whole(&s->own);
  HARK_TRY(add_levels(s, layer, head));
  double row[HEAD_COLUMNS] = {(double)layer,
                              (double)head,
                              (double)s->own.whole[TENTH],
                              (double)s->own.whole[HUNDREDTH],
                              s->own.stored[TENTH] / s->own.all,
                              s->shuffled.stored[TENTH] / s->shuffled.all,
                              s->own.stored[HUNDREDTH] / s->own.all,
                              s->shuffled.stored[HUNDREDTH] / s->shuffled.all};
  HARK_TRY(measure_errors(s, similarity, &one, row));
  hark_lab_tick(s->lab, number + 1, heads->layers * heads->heads);
  return hark_lab_add_row(s->lab, s->table, row);
}

static hark_status open_weights(hark_lab *lab, const hark_trained_heads *heads, int64_t length, weights *out) {
  *out = (weights){.causal = heads->causal, .length = length};
  HARK_TRY(hark_lab_numbers(lab, length * length, &out->entries));
  HARK_TRY(hark_lab_numbers(lab, length * length, &out->matrix));
  return hark_lab_numbers(lab, length, &out->values);
}

/* Mean of a column over the heads' rows of one level; the diagonal is no level. */
static double mean_of_level(const hark_lab_table *table, double level, int column) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[LEVEL] != level) continue;
    sum += row[column];
    count++;
  }
  return sum / (double)count;
}

static hark_status draw_ranks(const trained_study *s) {
  static const hark_lab_axes axes = {
      .title = "trained heads, mean rank of the blocks", .x = "rows of a block", .y = "rank", .log_x = true, .log_y = true};
  static const struct {
    int column;
    hark_lab_style style;
    const char *label;
  } curves[] = {{LEVEL_TENTH, HARK_LAB_LINE, "eps .1"},
                {LEVEL_TENTH_SHUFFLED, HARK_LAB_DASHES, "eps .1, keys shuffled"},
                {LEVEL_HUNDREDTH, HARK_LAB_LINE, "eps .01"},
                {LEVEL_HUNDREDTH_SHUFFLED, HARK_LAB_DASHES, "eps .01, keys shuffled"}};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  for (size_t c = 0; c < sizeof curves / sizeof *curves; c++) {
    hark_lab_curve *curve;
    HARK_TRY(hark_lab_add_curve(s->lab, panel, curves[c].style, &curve, "%s", curves[c].label));
    for (int64_t size = TRAINED_LEAF, level = 0; 2 * size <= s->length; size *= 2, level++) {
      const double mean = mean_of_level(s->levels, (double)level, curves[c].column);
      if (mean > 0) HARK_TRY(hark_lab_add_point(curve, (double)size, mean));
    }
  }
  return HARK_OK;
}

static hark_status draw_errors(const trained_study *s) {
  static const hark_lab_axes axes = {
      .title = "trained heads, relative error of the output", .x = "window of equal operations", .y = "hierarchical attention"};
  static const int columns[] = {HEAD_FIRST_ERROR, HEAD_EXACT_ERROR};
  static const char *const labels[] = {"query: first", "query: exact"};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  double largest = 0;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  for (int c = 0; c < 2; c++) {
    HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_POINTS, &curve, "%s", labels[c]));
    for (int64_t i = 0; i < hark_lab_row_count(s->table); i++) {
      const double *const row = hark_lab_row(s->table, i);
      HARK_TRY(hark_lab_add_point(curve, row[HEAD_WINDOW_ERROR], row[columns[c]]));
      largest = hark_lab_larger(largest, row[HEAD_WINDOW_ERROR]);
    }
  }
  HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_DASHES, &curve, "equal errors"));
  HARK_TRY(hark_lab_add_point(curve, 0, 0));
  return hark_lab_add_point(curve, largest, largest);
}

static hark_status measure_trained(hark_lab *lab, const hark_trained_heads *heads) {
  trained_study s = {.lab = lab, .heads = heads, .length = TRAINED_LEAF};
  while (2 * s.length <= heads->length) s.length *= 2;
  HARK_TRY(open_weights(lab, heads, s.length, &s.own));
  HARK_TRY(open_weights(lab, heads, s.length, &s.shuffled));
  HARK_TRY(hark_lab_numbers(lab, s.length * heads->head_dim, &s.keys));
  HARK_TRY(hark_lab_numbers(lab, s.length * heads->head_dim, &s.dense));
  HARK_TRY(hark_lab_numbers(lab, s.length * heads->head_dim, &s.approximation));
  HARK_TRY(hark_lab_add_table(lab, "blocks of trained heads", level_columns, LEVEL_COLUMNS, &s.levels));
  HARK_TRY(hark_lab_add_table(lab, "trained heads", head_columns, HEAD_COLUMNS, &s.table));
  for (int64_t layer = 0; layer < heads->layers; layer++)
    for (int64_t head = 0; head < heads->heads; head++) HARK_TRY(study_head(&s, layer, head));
  HARK_TRY(draw_ranks(&s));
  return draw_errors(&s);
}

static hark_status measure(hark_lab *lab) {
  const hark_lab_trained_values *const values = lab->options;
  const int64_t longest = lab->quick ? QUICK_TRAINED_LENGTH : TRAINED_LENGTH;
  hark_trained_heads heads;
  const bool trained = values != NULL && values->run[0] != 0;
  if (trained) HARK_TRY(hark_trained_heads_read(lab, values->run, values->text, 2 * TRAINED_LEAF, longest, &heads)); /* may fail: first */
  HARK_TRY(measure_paper(lab));
  HARK_TRY(measure_lengths(lab));
  return trained ? measure_trained(lab, &heads) : HARK_OK;
}

/* H eq. 13: least and largest rank of the blocks of a level. */
static hark_status judge_level(hark_lab *lab, double level, double rank, const char *name) {
  const hark_lab_table *const table = &lab->tables[0];
  double least = INFINITY, largest = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[BLOCK_LEVEL] != level) continue;
    least = hark_lab_smaller(least, row[BLOCK_RANK]);
    largest = hark_lab_larger(largest, row[BLOCK_RANK]);
  }
  HARK_TRY(hark_lab_require(lab, least, rank, rank, "least rank at 1e-3 of the blocks %s", name));
  return hark_lab_require(lab, largest, rank, rank, "largest rank at 1e-3 of the blocks %s", name);
}

/* That the blocks cover the matrix is an identity. The other two are the hypothesis, in numbers that were fixed beforehand. */
static hark_status judge_trained(hark_lab *lab) {
  const hark_lab_table *const levels = &lab->tables[2], *const heads = &lab->tables[3];
  const int64_t count = hark_lab_row_count(heads);
  double stored = 0, ratio = 0, uncovered = 0;
  for (int64_t i = 0; i < count; i++) {
    const double *const head = hark_lab_row(heads, i);
    double share = 0;
    for (int64_t j = 0; j < hark_lab_row_count(levels); j++) {
      const double *const level = hark_lab_row(levels, j);
      if (level[LEVEL_LAYER] == head[HEAD_LAYER] && level[LEVEL_HEAD] == head[HEAD_HEAD]) share += level[LEVEL_SHARE];
    }
    uncovered = hark_lab_larger(uncovered, fabs(share - 1));
    stored += head[HEAD_TENTH] / (double)count;
    ratio += head[HEAD_TENTH] / head[HEAD_TENTH_SHUFFLED] / (double)count;
  }
  HARK_TRY(hark_lab_require(lab, uncovered, 0, 1e-9, "trained heads: |sum of the blocks' shares - 1|, largest"));
  HARK_TRY(hark_lab_require(lab, stored, 0, 0.5, "trained heads: storage at eps .1 / all entries, mean"));
  return hark_lab_require(lab, ratio, 0, 1, "trained heads: storage at eps .1 / storage with keys shuffled, mean");
}

static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const blocks = &lab->tables[0], *const lengths = &lab->tables[1];
  double stored = 0, missing = 0, largest = 0, off = 0;
  HARK_TRY(judge_level(lab, DIAGONAL, 4, "on the diagonal"));
  HARK_TRY(judge_level(lab, 0, 2, "of level 0"));
  HARK_TRY(judge_level(lab, 1, 2, "of level 1"));
  for (int64_t i = 0; i < hark_lab_row_count(blocks); i++) stored += hark_lab_row(blocks, i)[BLOCK_STORAGE];
  for (int64_t i = 0; i < hark_lab_row_count(lengths); i++) {
    const double *const row = hark_lab_row(lengths, i);
    missing = hark_lab_larger(missing, row[LENGTH] - row[WHOLE_RANK]);
    largest = hark_lab_larger(largest, row[LARGEST_RANK]);
    off = hark_lab_larger(off, fabs(row[STORED] - row[PREDICTED]));
  }
  HARK_TRY(hark_lab_require(lab, stored, 192, 192, "entries that are stored of 16 x 16"));
  HARK_TRY(hark_lab_require(lab, missing, 0, 0, "length - rank of the whole matrix at 1e-1, largest over the lengths"));
  HARK_TRY(hark_lab_require(lab, largest, 2, 2, "rank at 1e-3 off the diagonal, largest over the lengths"));
  HARK_TRY(hark_lab_require(lab, off, 0, 0, "storage - 4 L (1 + log2(L / 4)), largest over the lengths"));
  return lab->table_count > 2 ? judge_trained(lab) : HARK_OK;
}

const hark_experiment hark_experiment_rank_map = {
    .summary = "a matrix of full rank has blocks of rank two off the diagonal",
    .paper = "Zhu, Soricut: H-Transformer-1D, equations 7 to 13",
    .statement =
        "Let A be the 16 x 16 matrix with the entries exp(2 exp(-(i-j)^2) - 1). At tolerance 1e-3 its blocks on the "
        "diagonal have rank 4, and all other blocks have rank 2. So 192 numbers are stored in place of 256. The whole "
        "matrix has rank 16 even at tolerance 1e-1",
    .notes =
        "The singular values of a matrix are ordered by size. Its numerical rank at a tolerance is the least r for "
        "which the singular values after the r-th have a sum below the tolerance. The matrix is\n"
        "\n"
        "    A[i, j] = exp(2 exp(-(i - j)^2) - 1),      16 x 16\n"
        "\n"
        "It is divided into 4 x 4 blocks on the diagonal, the 4 x 4 blocks next to them (level 0), and two 8 x 8 "
        "blocks (level 1). A block of n x n entries and rank r is stored as min(n^2, 2 r n) numbers. Each criterion "
        "requires one of the numbers of the statement exactly.\n"
        "\n"
        "The second table goes beyond the paper: it has the same matrix at lengths up to 512 (`--quick`: 128). A block "
        "off the diagonal differs from a constant only in the corner next to the diagonal, and this corner is the same "
        "in all such blocks. So their rank must remain 2, and the storage must be 4 L (1 + log2(L / 4)). Both "
        "predictions are criteria. A further criterion is that the whole matrix has full rank at 1e-1 at every "
        "length.\n"
        "\n"
        "The command\n"
        "\n"
        "    hark lab rank-map --run runs/book --text book.txt\n"
        "\n"
        "also measures *trained* heads. P is the matrix of the attention weights of a head for the first 512 tokens of "
        "the text, or for as many as the model's context has (a power of 2, `--quick`: at most 128). Blocks on the "
        "diagonal have 16 rows. For a causal model, only the blocks below the diagonal count. A block E of n x n entries "
        "has rank r at eps if r is the least number with\n"
        "\n"
        "    sum of sigma_i(E)^2 over i > r  <=  eps^2 |P|^2 n^2 / A,      A: entries of all blocks off the diagonal\n"
        "\n"
        "If every block is replaced by its best approximation of this rank, the result differs from P by at most eps |P| "
        "(Frobenius norms). The storage is a share of the entries of all blocks. In the control, the same keys are in a "
        "random order. A low rank that the control has too is a property of the vectors and not of their places. The "
        "table of heads also has the error of the output, |H - D| / |D|, where D is the output of dense attention and H "
        "that of hierarchical attention (Nr = 16), or of the smallest window that does not take fewer operations. Two "
        "criteria are the hypothesis: the mean storage at eps .1 is at most half of the entries, and it is not larger "
        "than with shuffled keys. The third requires that the blocks cover the matrix. The models are those that `hark "
        "lab approximation --run` measures.\n"
        "\n"
        "*Figure.* The rank map has the blocks with their ranks. The other panel has singular values: those of the whole "
        "matrix fall slowly, and those of a block of level 1 fall at once. With `--run`, two panels show the ranks and "
        "the errors of trained heads.",
    .check = hark_trained_heads_check,
    .measure = measure,
    .judge = judge};
