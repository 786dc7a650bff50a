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
 * Source: Zhu, Soricut, "H-Transformer-1D", section 4.1. The heads of a trained model: lab/trained_ranks.h.
 */
#include <math.h>
#include <stdio.h>

#include "lab/singular.h"
#include "lab/trained_ranks.h"

#define LEAF 4 /* rows of a block of level 0 */
#define PAPER_LENGTH 16
#define BLOCK_TOLERANCE 1e-3
#define WHOLE_TOLERANCE 1e-1

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

/* Singular values of a block into values[size]. */
static void decompose(const hark_lab_block *b, double *matrix, double *values) {
  for (int64_t i = 0; i < b->size; i++)
    for (int64_t j = 0; j < b->size; j++) matrix[i * b->size + j] = entry(b->row + i, b->column + j);
  hark_singular_values(b->size, b->size, matrix, values);
}

/* One length: data shared by its blocks. */
typedef struct map {
  hark_lab *lab;
  hark_lab_table *table; /* NULL: no rows */
  hark_lab_panel *panel; /* NULL: no picture */
  double *matrix, *values;
  int64_t stored, levels, largest; /* rank off the diagonal */
} map;

static hark_status draw_block(const map *m, const hark_lab_block *b, int64_t rank) {
  hark_lab_cell cell = {.left = (double)b->column,
                        .right = (double)(b->column + b->size),
                        .top = (double)b->row,
                        .bottom = (double)(b->row + b->size),
                        .shade = (double)rank / (double)b->size};
  (void)snprintf(cell.label, sizeof cell.label, "%lld", (long long)rank);
  return hark_lab_add_cell(m->panel, &cell);
}

static hark_status take_block(void *user, const hark_lab_block *b) {
  map *m = user;
  double tail = 0;
  decompose(b, m->matrix, m->values);
  const int64_t rank = hark_numerical_rank(m->values, b->size, BLOCK_TOLERANCE), storage = hark_lab_block_storage(b->size, rank);
  for (int64_t i = rank; i < b->size; i++) tail += m->values[i];
  m->stored += storage;
  m->levels = hark_max(m->levels, b->level + 1);
  if (b->level != HARK_LAB_DIAGONAL) m->largest = hark_max(m->largest, rank);
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
  const hark_lab_block parts[] = {{0, 0, PAPER_LENGTH, 0}, {0, PAPER_LENGTH / 2, PAPER_LENGTH / 2, 1}};
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
  HARK_TRY(hark_lab_visit_blocks(PAPER_LENGTH, LEAF, false, take_block, &m));
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
    HARK_TRY(hark_lab_visit_blocks(length, LEAF, false, take_block, &m));
    decompose(&(hark_lab_block){0, 0, length, 0}, m.matrix, m.values);
    const double whole = (double)hark_numerical_rank(m.values, length, WHOLE_TOLERANCE);
    const double predicted = (double)(4 * length * (1 + m.levels)), all = (double)(length * length);
    const double row[LENGTH_COLUMNS] = {(double)length,   (double)m.levels, whole, (double)m.largest,
                                        (double)m.stored, predicted,        all,   all / (double)m.stored};
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  const hark_lab_trained_values *const values = lab->options;
  const bool trained = values != NULL && values->run[0] != 0;
  hark_trained_heads heads;
  if (trained) HARK_TRY(hark_trained_ranks_read(lab, values, &heads)); /* what can fail comes first */
  HARK_TRY(measure_paper(lab));
  HARK_TRY(measure_lengths(lab));
  return trained ? hark_trained_ranks_measure(lab, &heads) : HARK_OK;
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

static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const blocks = &lab->tables[0], *const lengths = &lab->tables[1];
  double stored = 0, missing = 0, largest = 0, off = 0;
  HARK_TRY(judge_level(lab, HARK_LAB_DIAGONAL, 4, "on the diagonal"));
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
  return lab->table_count > 2 ? hark_trained_ranks_judge(lab, &lab->tables[2]) : HARK_OK;
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
        "also measures *trained* heads. P has the weights that dense attention gives for the queries and keys of a "
        "head, whatever the structure of the model is. A learned bias of hierarchical attention is left out. P has L "
        "rows. L is the largest power of 2 that is at most 512 (`--quick`: 128), at most the model's context, and at "
        "most the number of tokens of the text. L must be at least 128. P is divided in the same way, with diagonal "
        "blocks of 16 rows. For a causal model, blocks above the diagonal do not count. A block E of n x n entries has "
        "rank r at eps if r is the least number with\n"
        "\n"
        "    sum of sigma_i(E)^2 over i > r  <=  eps^2 |P|^2 n^2 / A,      A: entries of all blocks off the diagonal\n"
        "\n"
        "If every block off the diagonal is replaced by its best approximation of this rank, the result differs from P "
        "by at most eps |P| (Frobenius norms). The storage is the sum of min(n^2, 2 r n) over these blocks and of the "
        "entries of the diagonal blocks. It is given as a fraction of the entries of all blocks. In the control, the "
        "same keys are in a random order. A low rank that the control has too is a property of the vectors and not of "
        "their places.\n"
        "\n"
        "The table of heads also has the errors of other attention for the same queries, keys and values: |H - D| / |D|, "
        "where D is the output of dense attention and H the other output. Hierarchical attention (Nr = 16) has the "
        "coarse queries `first` or `exact`. Each of the two is compared with a window: the smallest one that takes at "
        "least as many operations.\n"
        "\n"
        "Two criteria test the hypothesis that blocks off the diagonal have low rank, with eps .1. They require: the "
        "mean storage is at most half of the entries, and the mean of the ratio of the storage to the storage with "
        "shuffled keys is at most 1. The third criterion requires that the blocks cover the matrix. The models are "
        "those that `hark lab approximation --run` measures.\n"
        "\n"
        "*Figure.* The rank map has the blocks with their ranks. The other panel has singular values: those of the whole "
        "matrix fall slowly, and those of a block of level 1 fall at once. With `--run`, two panels show the ranks and "
        "the errors of trained heads.",
    .check = hark_trained_heads_check,
    .measure = measure,
    .judge = judge};
