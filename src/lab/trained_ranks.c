/* trained_ranks.c - see trained_ranks.h. */
#include "lab/trained_ranks.h"

#include <math.h>
#include <string.h>

#include "lab/singular.h"

#define LEAF INT64_C(16) /* rows of a block of the diagonal */
#define LEAST_LENGTH 128 /* with fewer tokens, the diagonal is a large part of the matrix, and hierarchical attention computes nearly all */
#define LONGEST 512
#define QUICK_LONGEST 128
#define LEVELS 6           /* the diagonal, and blocks of 16, 32, .. 256 rows */
#define SHUFFLE_STREAM 100 /* the first of the streams that order keys, one for each head */
#define HIERARCHY_BLOCK 16 /* Nr of the attention that is compared with windows */

enum { TENTH, HUNDREDTH, TOLERANCES };
static const double tolerances[TOLERANCES] = {0.1, 0.01};

enum {
  LEVEL_LAYER,
  LEVEL_HEAD,
  LEVEL,
  LEVEL_SIZE,
  LEVEL_BLOCKS,
  LEVEL_SQUARES,
  LEVEL_TENTH,
  LEVEL_TENTH_SHUFFLED,
  LEVEL_HUNDREDTH,
  LEVEL_HUNDREDTH_SHUFFLED,
  LEVEL_COLUMNS
};
static const hark_lab_column level_columns[LEVEL_COLUMNS] = {{"layer", NULL, NULL},           {"head", NULL, NULL},
                                                             {"level", "-1: diagonal", NULL}, {"size", "rows", NULL},
                                                             {"blocks", NULL, NULL},          {"squares", "fraction of |P|^2", NULL},
                                                             {"rank, eps .1", "mean", NULL},  {"shuffled, eps .1", "mean rank", NULL},
                                                             {"rank, eps .01", "mean", NULL}, {"shuffled, eps .01", "mean rank", NULL}};

/* Each coarse query has three columns. */
enum { FIRST, EXACT, QUERIES };
enum { WINDOW, WINDOW_ERROR, TREE_ERROR, QUERY_COLUMNS };
enum {
  HEAD_LAYER,
  HEAD_HEAD,
  HEAD_WHOLE_TENTH,
  HEAD_WHOLE_HUNDREDTH,
  HEAD_TENTH,
  HEAD_TENTH_SHUFFLED,
  HEAD_HUNDREDTH,
  HEAD_HUNDREDTH_SHUFFLED,
  HEAD_QUERIES,
  HEAD_COLUMNS = HEAD_QUERIES + QUERIES * QUERY_COLUMNS
};
static const hark_lab_column head_columns[HEAD_COLUMNS] = {{"layer", NULL, NULL},
                                                           {"head", NULL, NULL},
                                                           {"whole rank, eps .1", NULL, NULL},
                                                           {"whole rank, eps .01", NULL, NULL},
                                                           {"storage, eps .1", "fraction", NULL},
                                                           {"shuffled, eps .1", "fraction", NULL},
                                                           {"storage, eps .01", "fraction", NULL},
                                                           {"shuffled, eps .01", "fraction", NULL},
                                                           {"window as first", "tokens", NULL},
                                                           {"window as first, error", NULL, NULL},
                                                           {"first", "error", NULL},
                                                           {"window as exact", "tokens", NULL},
                                                           {"window as exact, error", NULL, NULL},
                                                           {"exact", "error", NULL}};
static const hark_coarse_query queries[QUERIES] = {HARK_COARSE_QUERY_FIRST, HARK_COARSE_QUERY_EXACT};
static const char *const query_names[QUERIES] = {"first", "exact"};

/* Sums over the blocks of a level. */
typedef struct level_sums {
  int64_t size, blocks;
  double squares, ranks[TOLERANCES];
} level_sums;

/* A matrix of weights, and what its blocks have. */
typedef struct weights {
  double *entries;           /* [length, length] */
  double squares;            /* |P|_F^2 */
  level_sums levels[LEVELS]; /* the first is the diagonal */
  double stored[TOLERANCES];
} weights;

typedef struct study {
  hark_lab *lab;
  const hark_trained_heads *heads;
  hark_lab_table *levels, *table;
  int64_t length;
  double all, off; /* entries of all blocks, and of those off the diagonal */
  weights own, shuffled;
  double *identity, *matrix, *values; /* [length, length], [length, length], [length] */
  double *keys;                       /* [length, head_dim], shuffled */
  double *dense, *other;              /* [length, head_dim], outputs */
} study;

/* ---- ranks ---- */

/* The least r for which the squares of the values after the r-th have a sum of at most `left_out`. */
static int64_t rank_within(const double *values, int64_t count, double left_out) {
  int64_t rank = count;
  for (double sum = 0; rank > 0 && (sum += values[rank - 1] * values[rank - 1]) <= left_out;) rank--;
  return rank;
}

/* The sum of squares that a block of `entries` entries may lose. */
static double left_out_of(const study *s, const weights *w, double entries, int tolerance) {
  return tolerances[tolerance] * tolerances[tolerance] * w->squares * entries / s->off;
}

typedef struct visit {
  const study *study;
  weights *weights;
} visit;

static hark_status take_block(void *user, const hark_lab_block *b) {
  const study *const s = ((const visit *)user)->study;
  weights *const w = ((const visit *)user)->weights;
  level_sums *const sums = &w->levels[b->level + 1];
  const double count = (double)(b->size * b->size);
  const bool diagonal = b->level == HARK_LAB_DIAGONAL;
  sums->size = b->size;
  sums->blocks++;
  for (int64_t i = 0; i < b->size; i++)
    for (int64_t j = 0; j < b->size; j++) {
      const double entry = w->entries[(b->row + i) * s->length + b->column + j];
      s->matrix[i * b->size + j] = entry;
      sums->squares += entry * entry;
    }
  if (!diagonal) hark_singular_values(b->size, b->size, s->matrix, s->values);
  for (int t = 0; t < TOLERANCES; t++) {
    const int64_t rank = diagonal ? b->size : rank_within(s->values, b->size, left_out_of(s, w, count, t));
    sums->ranks[t] += (double)rank;
    w->stored[t] += diagonal ? count : (double)hark_lab_block_storage(b->size, rank);
  }
  return HARK_OK;
}

static hark_attention_desc dense_desc(const study *s, const hark_attention_desc *similarity) {
  hark_attention_desc desc = *similarity;
  desc.causal = s->heads->causal;
  return desc;
}

/* The weights of a head and their blocks: the output of dense attention whose values are the identity. */
static hark_status measure_blocks(const study *s, const hark_attention_desc *similarity, hark_lab_head head, weights *out) {
  const hark_attention_desc desc = dense_desc(s, similarity);
  double *const entries = out->entries;
  *out = (weights){.entries = entries};
  head.value = s->identity;
  head.value_dim = s->length;
  HARK_TRY(hark_lab_attend(s->lab->context, &desc, &head, entries));
  for (int64_t i = 0; i < s->length * s->length; i++) out->squares += entries[i] * entries[i];
  if (!isfinite(out->squares)) return hark_fail(s->lab->context, HARK_NOT_FINITE, "weights of attention are not finite");
  return hark_lab_visit_blocks(s->length, LEAF, desc.causal, take_block, &(visit){s, out});
}

static void rank_whole(const study *s, const weights *w, int64_t ranks[TOLERANCES]) {
  memcpy(s->matrix, w->entries, (size_t)(s->length * s->length) * sizeof *s->matrix);
  hark_singular_values(s->length, s->length, s->matrix, s->values);
  for (int t = 0; t < TOLERANCES; t++) ranks[t] = rank_within(s->values, s->length, left_out_of(s, w, s->off, t));
}

/* The keys of a head in a random order (Fisher and Yates). */
static void shuffle_keys(const study *s, int64_t head, const double *keys) {
  const int64_t dim = s->heads->head_dim;
  const hark_random_stream stream = hark_lab_stream(s->lab, (uint32_t)(SHUFFLE_STREAM + head));
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

/* ---- errors of other attention ---- */

static double operations_of(const study *s, hark_attention_desc desc) {
  desc.batch = desc.heads = 1;
  desc.query_length = desc.key_length = s->length;
  desc.head_dim = s->heads->head_dim;
  return hark_attention_desc_operations(&desc, false);
}

static hark_status measure_error(const study *s, const hark_attention_desc *desc, const hark_lab_head *head, double *error) {
  HARK_TRY(hark_lab_attend(s->lab->context, desc, head, s->other));
  *error = hark_lab_difference_of(s->other, s->dense, s->length, s->heads->head_dim).relative;
  return HARK_OK;
}

/* Columns of each coarse query: the smallest window that takes at least as many operations, its error, and that of the hierarchy. */
static hark_status measure_errors(const study *s, const hark_attention_desc *similarity, const hark_lab_head *head, double *columns) {
  const hark_attention_desc dense = dense_desc(s, similarity);
  HARK_TRY(hark_lab_attend(s->lab->context, &dense, head, s->dense));
  for (int q = 0; q < QUERIES; q++, columns += QUERY_COLUMNS) {
    hark_attention_desc tree = dense, window = dense;
    tree.structure = HARK_STRUCTURE_HIERARCHICAL;
    tree.hierarchy_block = HIERARCHY_BLOCK;
    tree.coarse_query = queries[q];
    window.structure = HARK_STRUCTURE_WINDOW;
    window.window = 1;
    const double operations = operations_of(s, tree);
    while (window.window < s->length && operations_of(s, window) < operations) window.window++;
    columns[WINDOW] = (double)window.window;
    HARK_TRY(measure_error(s, &window, head, &columns[WINDOW_ERROR]));
    HARK_TRY(measure_error(s, &tree, head, &columns[TREE_ERROR]));
  }
  return HARK_OK;
}

/* ---- tables ---- */

static hark_status add_levels(const study *s, int64_t layer, int64_t head) {
  for (int64_t level = 0; level < LEVELS; level++) {
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

static hark_status study_head(study *s, int64_t layer, int64_t head) {
  const hark_trained_heads *const heads = s->heads;
  const int64_t number = layer * heads->heads + head, first = number * heads->length * heads->head_dim;
  const hark_attention_desc *const similarity = &heads->similarities[layer];
  hark_lab_head one = {.length = s->length,
                       .head_dim = heads->head_dim,
                       .value_dim = heads->head_dim,
                       .query = heads->query + first,
                       .key = heads->key + first,
                       .value = heads->value + first};
  double row[HEAD_COLUMNS] = {(double)layer, (double)head};
  int64_t whole[TOLERANCES];
  HARK_TRY(measure_errors(s, similarity, &one, row + HEAD_QUERIES));
  HARK_TRY(measure_blocks(s, similarity, one, &s->own));
  rank_whole(s, &s->own, whole);
  shuffle_keys(s, number, one.key);
  one.key = s->keys;
  HARK_TRY(measure_blocks(s, similarity, one, &s->shuffled));
  row[HEAD_WHOLE_TENTH] = (double)whole[TENTH];
  row[HEAD_WHOLE_HUNDREDTH] = (double)whole[HUNDREDTH];
  row[HEAD_TENTH] = s->own.stored[TENTH] / s->all;
  row[HEAD_TENTH_SHUFFLED] = s->shuffled.stored[TENTH] / s->all;
  row[HEAD_HUNDREDTH] = s->own.stored[HUNDREDTH] / s->all;
  row[HEAD_HUNDREDTH_SHUFFLED] = s->shuffled.stored[HUNDREDTH] / s->all;
  HARK_TRY(add_levels(s, layer, head));
  hark_lab_tick(s->lab, number + 1, heads->layers * heads->heads);
  return hark_lab_add_row(s->lab, s->table, row);
}

/* ---- panels ---- */

/* Mean of a column over the heads' rows of one level. */
static double mean_of_level(const hark_lab_table *table, int64_t level, int column) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[LEVEL] != (double)level) continue;
    sum += row[column];
    count++;
  }
  return sum / (double)count;
}

static hark_status draw_ranks(const study *s) {
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
    for (int64_t size = LEAF, level = 0; 2 * size <= s->length; size *= 2, level++) {
      const double mean = mean_of_level(s->levels, level, curves[c].column);
      if (mean > 0) HARK_TRY(hark_lab_add_point(curve, (double)size, mean));
    }
  }
  return HARK_OK;
}

static hark_status draw_errors(const study *s) {
  static const hark_lab_axes axes = {
      .title = "trained heads, relative error of the output", .x = "window of equal operations", .y = "hierarchical attention"};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  double largest = 0;
  HARK_TRY(hark_lab_add_panel(s->lab, axes, &panel));
  for (int q = 0; q < QUERIES; q++) {
    HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_POINTS, &curve, "query: %s", query_names[q]));
    for (int64_t i = 0; i < hark_lab_row_count(s->table); i++) {
      const double *const columns = hark_lab_row(s->table, i) + HEAD_QUERIES + (ptrdiff_t)q * QUERY_COLUMNS;
      HARK_TRY(hark_lab_add_point(curve, columns[WINDOW_ERROR], columns[TREE_ERROR]));
      largest = hark_lab_larger(largest, columns[WINDOW_ERROR]);
    }
  }
  HARK_TRY(hark_lab_add_curve(s->lab, panel, HARK_LAB_DASHES, &curve, "equal errors"));
  HARK_TRY(hark_lab_add_point(curve, 0, 0));
  return hark_lab_add_point(curve, largest, largest);
}

/* ---- all heads ---- */

hark_status hark_trained_ranks_read(hark_lab *lab, const hark_lab_trained_values *values, hark_trained_heads *out) {
  return hark_trained_heads_read(lab, values->run, values->text, LEAST_LENGTH, lab->quick ? QUICK_LONGEST : LONGEST, out);
}

static hark_status open_study(study *s) {
  const int64_t square = s->length * s->length, rows = s->length * s->heads->head_dim;
  s->off = (double)(square - s->length * LEAF) / (s->heads->causal ? 2 : 1);
  s->all = s->off + (double)(s->length * LEAF);
  HARK_TRY(hark_lab_numbers(s->lab, square, &s->own.entries));
  HARK_TRY(hark_lab_numbers(s->lab, square, &s->shuffled.entries));
  HARK_TRY(hark_lab_numbers(s->lab, square, &s->identity));
  HARK_TRY(hark_lab_numbers(s->lab, square, &s->matrix));
  HARK_TRY(hark_lab_numbers(s->lab, s->length, &s->values));
  HARK_TRY(hark_lab_numbers(s->lab, rows, &s->keys));
  HARK_TRY(hark_lab_numbers(s->lab, rows, &s->dense));
  HARK_TRY(hark_lab_numbers(s->lab, rows, &s->other));
  for (int64_t i = 0; i < s->length; i++) s->identity[i * (s->length + 1)] = 1;
  HARK_TRY(hark_lab_add_table(s->lab, "blocks of trained heads", level_columns, LEVEL_COLUMNS, &s->levels));
  return hark_lab_add_table(s->lab, "trained heads", head_columns, HEAD_COLUMNS, &s->table);
}

hark_status hark_trained_ranks_measure(hark_lab *lab, const hark_trained_heads *heads) {
  study s = {.lab = lab, .heads = heads, .length = LEAF};
  while (2 * s.length <= heads->length) s.length *= 2;
  HARK_TRY(open_study(&s));
  for (int64_t layer = 0; layer < heads->layers; layer++)
    for (int64_t head = 0; head < heads->heads; head++) {
      const hark_status status = study_head(&s, layer, head);
      if (status != HARK_OK) hark_fail_prefix(lab->context, "layer %d, head %d: ", (int)layer, (int)head);
      HARK_TRY(status);
    }
  HARK_TRY(draw_ranks(&s));
  return draw_errors(&s);
}

/* That the blocks cover the matrix is an identity. The other two are the hypothesis, in numbers that were fixed beforehand. */
hark_status hark_trained_ranks_judge(hark_lab *lab, const hark_lab_table *levels) {
  const hark_lab_table *const heads = levels + 1;
  const int64_t count = hark_lab_row_count(heads);
  double stored = 0, ratio = 0, uncovered = 0;
  for (int64_t i = 0; i < count; i++) {
    const double *const head = hark_lab_row(heads, i);
    double covered = 0;
    for (int64_t j = 0; j < hark_lab_row_count(levels); j++) {
      const double *const level = hark_lab_row(levels, j);
      if (level[LEVEL_LAYER] == head[HEAD_LAYER] && level[LEVEL_HEAD] == head[HEAD_HEAD]) covered += level[LEVEL_SQUARES];
    }
    uncovered = hark_lab_larger(uncovered, fabs(covered - 1));
    stored += head[HEAD_TENTH] / (double)count;
    ratio += head[HEAD_TENTH] / head[HEAD_TENTH_SHUFFLED] / (double)count;
  }
  HARK_TRY(hark_lab_require(lab, uncovered, 0, 1e-9, "trained heads: |squares of all blocks / |P|^2 - 1|, largest"));
  HARK_TRY(hark_lab_require(lab, stored, 0, 0.5, "trained heads: storage at eps .1 / all entries, mean"));
  return hark_lab_require(lab, ratio, 0, 1, "trained heads: storage at eps .1 / storage with keys shuffled, mean");
}
