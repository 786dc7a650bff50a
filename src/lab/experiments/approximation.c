/* approximation.c - the difference between hierarchical and dense attention, over the options of the hierarchy and the smoothness of the
 * heads.
 *
 *     error = |H - D|_F / |D|_F,        row error = max_n |H_n - D_n| / sqrt(mean_n |D_n|^2)
 *
 * with H, D [L, d] the outputs of the hierarchical and the dense operator for the same head. Random heads are stationary walks
 *
 *     x_t = r x_{t-1} + sqrt(1 - r^2) N,   r = exp(-1 / tau),      correlation exp(-|t - s| / tau), variance 1;   tau = 0: white noise
 *
 * of queries, keys and values; half of a key's variance comes from its query, so a token attends to similar tokens. Errors of several draws
 * are combined as root mean squares. Heads of a trained model are the inputs of its attention for a text. The operator is described in
 * docs/mathematics/hierarchical.md. Source: Zhu, Soricut, "H-Transformer-1D", sections 5 to 7 and appendix A.5.
 */
#include <math.h>
#include <string.h>

#include "lab/trained_heads.h"

#define HEAD_DIM 16
#define QUICK_LENGTH 256
#define FULL_LENGTH 1024
#define QUICK_DRAWS 4
#define FULL_DRAWS 12
#define LEAST_BLOCK 4
#define LARGEST_BLOCK 64
#define ROUNDING 1e-12
#define MARGIN 1.05 /* in comparisons of two errors, because the number of draws is finite */
#define TRAINED_LENGTH 512

/* ---- ways to approximate ---- */

typedef struct way {
  bool causal;
  hark_hierarchy_partition partition;
  hark_coarse_query query;
} way;

/* All of them, except causal mean queries, which contain later tokens. Words of the columns in the order of the enums of attention.h. */
static const way ways[] = {
    {false, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_MEAN},  {false, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST},
    {false, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_EXACT}, {false, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_MEAN},
    {false, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_FIRST},   {false, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_EXACT},
    {true, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_FIRST},  {true, HARK_PARTITION_NEIGHBOUR, HARK_COARSE_QUERY_EXACT},
    {true, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_FIRST},    {true, HARK_PARTITION_SIBLING, HARK_COARSE_QUERY_EXACT}};
enum { WAYS = sizeof ways / sizeof ways[0], BLOCKS = 5 };
#define CAUSAL_WORDS "no|yes"
#define PARTITION_WORDS "neighbour|sibling"
#define QUERY_WORDS "default|mean|first|exact"
static const char *const query_names[] = {"default", "mean", "first", "exact"};

static int64_t block_of(int number) { return (int64_t)LEAST_BLOCK << number; }

/* Dense attention with the similarity of `similarity`, and hierarchical attention. */
static hark_attention_desc dense_desc(const hark_attention_desc *similarity, bool causal) {
  hark_attention_desc desc = *similarity;
  desc.causal = causal;
  return desc;
}

static hark_attention_desc hierarchical_desc(const hark_attention_desc *similarity, const way *w, int64_t block) {
  hark_attention_desc desc = dense_desc(similarity, w->causal);
  desc.structure = HARK_STRUCTURE_HIERARCHICAL;
  desc.hierarchy_block = block;
  desc.partition = w->partition;
  desc.coarse_query = w->query;
  return desc;
}

/* ---- errors ---- */

/* Outputs of one head; dense[causal] is made once for all ways. */
typedef struct bench {
  hark_lab *lab;
  const hark_attention_desc *similarity;
  hark_lab_head head;
  double *dense[2], *hierarchical;
} bench;

static hark_status open_bench(hark_lab *lab, int64_t length, int64_t head_dim, bench *out) {
  *out = (bench){.lab = lab, .head = {.length = length, .head_dim = head_dim, .value_dim = head_dim}};
  HARK_TRY(hark_lab_numbers(lab, length * head_dim, &out->dense[0]));
  HARK_TRY(hark_lab_numbers(lab, length * head_dim, &out->dense[1]));
  return hark_lab_numbers(lab, length * head_dim, &out->hierarchical);
}

static hark_status attend_densely(const bench *b) {
  for (int causal = 0; causal < 2; causal++) {
    const hark_attention_desc desc = dense_desc(b->similarity, causal == 1);
    HARK_TRY(hark_lab_attend(b->lab->context, &desc, &b->head, b->dense[causal]));
  }
  return HARK_OK;
}

static hark_status measure_way(const bench *b, const way *w, int64_t block, hark_lab_difference *out) {
  const hark_attention_desc desc = hierarchical_desc(b->similarity, w, block);
  HARK_TRY(hark_lab_attend(b->lab->context, &desc, &b->head, b->hierarchical));
  *out = hark_lab_difference_of(b->hierarchical, b->dense[w->causal ? 1 : 0], b->head.length, b->head.head_dim);
  return HARK_OK;
}

/* ---- random heads ---- */

#define SMOOTH 2 /* the walk that criteria are about */
static const double taus[] = {0, 8, 64, 512};
#define TAU_WORDS "white noise|walk, tau 8|walk, tau 64|walk, tau 512"
enum { KINDS = sizeof taus / sizeof taus[0] };

/* Turns [rows, HEAD_DIM] normal numbers into a walk. */
static void walk(double tau, int64_t rows, double *x) {
  const double r = tau > 0 ? exp(-1 / tau) : 0, fresh = sqrt(1 - r * r);
  for (int64_t i = HEAD_DIM; i < rows * HEAD_DIM; i++) x[i] = r * x[i - HEAD_DIM] + fresh * x[i];
}

/* Query, key and value of draw number `draw`, one after the other in `numbers`; every draw and kind of head has its own numbers. */
static void draw_head(const hark_lab *lab, int kind, int draw, int64_t length, double *numbers) {
  const int64_t count = length * HEAD_DIM;
  for (int part = 0; part < 3; part++) {
    hark_lab_normal(lab, (uint32_t)((draw * KINDS + kind) * 3 + part), count, numbers + part * count);
    walk(taus[kind], length, numbers + part * count);
  }
  for (int64_t i = 0; i < count; i++) numbers[count + i] = (numbers[i] + numbers[count + i]) / sqrt(2);
}

static void set_head(bench *b, const double *query, const double *key, const double *value) {
  b->head.query = query;
  b->head.key = key;
  b->head.value = value;
}

/* Root mean squares over the draws. */
typedef struct study {
  hark_lab_difference random[KINDS][WAYS][BLOCKS];
} study;

static void add_squares(hark_lab_difference *sum, const hark_lab_difference *one) {
  sum->relative += one->relative * one->relative;
  sum->row += one->row * one->row;
}

static hark_status study_kind(bench *b, int kind, int draws, double *numbers, study *out) {
  const int64_t count = b->head.length * HEAD_DIM;
  for (int draw = 0; draw < draws; draw++) {
    draw_head(b->lab, kind, draw, b->head.length, numbers);
    set_head(b, numbers, numbers + count, numbers + 2 * count);
    HARK_TRY(attend_densely(b));
    for (int w = 0; w < WAYS; w++)
      for (int block = 0; block < BLOCKS; block++) {
        hark_lab_difference one;
        HARK_TRY(measure_way(b, &ways[w], block_of(block), &one));
        add_squares(&out->random[kind][w][block], &one);
      }
  }
  for (int w = 0; w < WAYS; w++)
    for (int block = 0; block < BLOCKS; block++) {
      hark_lab_difference *const e = &out->random[kind][w][block];
      *e = (hark_lab_difference){sqrt(e->relative / draws), sqrt(e->row / draws)};
    }
  return HARK_OK;
}

/* ---- table and figure ---- */

enum { KIND, CAUSAL, PARTITION, QUERY, BLOCK, RELATIVE, ROW, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {
    {"heads", NULL, TAU_WORDS}, {"causal", NULL, CAUSAL_WORDS}, {"partition", NULL, PARTITION_WORDS}, {"coarse query", NULL, QUERY_WORDS},
    {"Nr", "tokens", NULL},     {"error", "|H-D|/|D|", NULL},   {"row error", "largest", NULL}};

static int row_of(int kind, int w, int block) { return (kind * WAYS + w) * BLOCKS + block; }

/* Row row_of(kind, way, block) of table 0. */
static hark_status show_table(hark_lab *lab, const study *s) {
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "random heads, root mean squares over the draws", columns, COLUMNS, &table));
  for (int kind = 0; kind < KINDS; kind++)
    for (int w = 0; w < WAYS; w++)
      for (int block = 0; block < BLOCKS; block++) {
        const hark_lab_difference e = s->random[kind][w][block];
        const double row[COLUMNS] = {kind, ways[w].causal, ways[w].partition, ways[w].query, (double)block_of(block), e.relative, e.row};
        HARK_TRY(hark_lab_add_row(lab, table, row));
      }
  return HARK_OK;
}

static hark_status add_way(hark_lab *lab, hark_lab_panel *panel, const way *w, hark_lab_curve **out) {
  return hark_lab_add_curve(lab, panel, w->causal ? HARK_LAB_DASHES : HARK_LAB_LINE, out, "%s%s, %s", w->causal ? "causal, " : "",
                            w->partition == HARK_PARTITION_SIBLING ? "sibling" : "neighbour", query_names[w->query]);
}

/* A panel per kind of head, a curve per way. */
static hark_status show_figure(hark_lab *lab, const study *s) {
  static const char *const titles[KINDS] = {"white noise", "walk, tau = 8 tokens", "walk, tau = 64 tokens", "walk, tau = 512 tokens"};
  for (int kind = 0; kind < KINDS; kind++) {
    const hark_lab_axes axes = {.title = titles[kind], .x = "Nr (tokens)", .y = "relative error", .log_x = true, .log_y = true};
    hark_lab_panel *panel;
    HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
    for (int w = 0; w < WAYS; w++) {
      hark_lab_curve *curve;
      HARK_TRY(add_way(lab, panel, &ways[w], &curve));
      for (int block = 0; block < BLOCKS; block++)
        HARK_TRY(hark_lab_add_point(curve, (double)block_of(block), s->random[kind][w][block].relative));
    }
  }
  return HARK_OK;
}

/* ---- where nothing is approximated ---- */

enum { ONE_LEVEL, CONSTANT_CELLS, TRAINED_ONE_LEVEL };
static const hark_lab_column exact_columns[COLUMNS] = {{"case", NULL, "one level|constant cells|trained, one level"},
                                                       {"causal", NULL, CAUSAL_WORDS},
                                                       {"partition", NULL, PARTITION_WORDS},
                                                       {"coarse query", NULL, QUERY_WORDS},
                                                       {"Nr", "tokens", NULL},
                                                       {"error", "|H-D|/|D|", NULL},
                                                       {"row error", "largest", NULL}};

/* A row of table 1. */
static hark_status measure_exactness(const bench *b, int kind, const way *w, int64_t block) {
  hark_lab_difference e;
  HARK_TRY(measure_way(b, w, block, &e));
  const double row[COLUMNS] = {kind, w->causal, w->partition, w->query, (double)block, e.relative, e.row};
  return hark_lab_add_row(b->lab, &b->lab->tables[1], row);
}

/* Replaces every row by that of the first token of its cell of `cell` tokens. */
static void make_constant(int64_t length, int64_t cell, double *rows) {
  for (int64_t t = 0; t < length; t++) memmove(rows + t * HEAD_DIM, rows + t / cell * cell * HEAD_DIM, HEAD_DIM * sizeof *rows);
}

/* On white noise: blocks of half the length, which make one level; and queries and keys that are constant on the cells of the coarsest
 * level, which have 2^(M-1) tokens for L = Nr 2^M. */
static hark_status study_exactness(bench *b, double *numbers) {
  const int64_t length = b->head.length, count = length * HEAD_DIM;
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(b->lab, "where nothing is approximated, white noise", exact_columns, COLUMNS, &table));
  for (int kind = ONE_LEVEL; kind <= CONSTANT_CELLS; kind++) {
    const int64_t block = kind == ONE_LEVEL ? length / 2 : LEAST_BLOCK, cell = length / block / 2;
    draw_head(b->lab, 0, 0, length, numbers);
    make_constant(length, cell, numbers);
    make_constant(length, cell, numbers + count);
    set_head(b, numbers, numbers + count, numbers + 2 * count);
    HARK_TRY(attend_densely(b));
    for (int w = 0; w < WAYS; w++) HARK_TRY(measure_exactness(b, kind, &ways[w], block));
  }
  return HARK_OK;
}

/* ---- trained heads ---- */

enum { LAYER, HEAD, TRAINED_CAUSAL, TRAINED_PARTITION, TRAINED_QUERY, TRAINED_BLOCK, TRAINED_RELATIVE, TRAINED_ROW, TRAINED_COLUMNS };
static const hark_lab_column trained_columns[TRAINED_COLUMNS] = {{"layer", NULL, NULL},
                                                                 {"head", NULL, NULL},
                                                                 {"causal", NULL, CAUSAL_WORDS},
                                                                 {"partition", NULL, PARTITION_WORDS},
                                                                 {"coarse query", NULL, QUERY_WORDS},
                                                                 {"Nr", "tokens", NULL},
                                                                 {"error", "|H-D|/|D|", NULL},
                                                                 {"row error", "largest", NULL}};

static hark_status study_head(const bench *b, bool causal, int64_t layer, int64_t head, hark_lab_table *table) {
  const int64_t half = (b->head.length + 1) / 2;
  HARK_TRY(attend_densely(b));
  for (int w = 0; w < WAYS; w++) {
    if (ways[w].causal != causal) continue;
    for (int block = 0; block < BLOCKS; block++) {
      hark_lab_difference e;
      HARK_TRY(measure_way(b, &ways[w], block_of(block), &e));
      const double row[TRAINED_COLUMNS] = {(double)layer,           (double)head, causal, ways[w].partition, ways[w].query,
                                           (double)block_of(block), e.relative,   e.row};
      HARK_TRY(hark_lab_add_row(b->lab, table, row));
    }
    HARK_TRY(measure_exactness(b, TRAINED_ONE_LEVEL, &ways[w], half + half % 2));
  }
  return HARK_OK;
}

/* True for the ways that the trained heads' table has. */
static bool is_of_model(const hark_lab_table *table, const way *w) { return w->causal == (hark_lab_row(table, 0)[TRAINED_CAUSAL] != 0); }

/* Mean over the heads, from the rows with this way and block. */
static double mean_error(const hark_lab_table *table, const way *w, int64_t block) {
  double sum = 0;
  int64_t count = 0;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if ((int)row[TRAINED_PARTITION] != (int)w->partition || (int)row[TRAINED_QUERY] != (int)w->query ||
        (int64_t)row[TRAINED_BLOCK] != block)
      continue;
    sum += row[TRAINED_RELATIVE];
    count++;
  }
  return sum / (double)count;
}

static hark_status draw_trained(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {
      .title = "trained heads, mean error", .x = "Nr (tokens)", .y = "relative error", .log_x = true, .log_y = true};
  hark_lab_panel *panel;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int w = 0; w < WAYS; w++) {
    hark_lab_curve *curve;
    if (!is_of_model(table, &ways[w])) continue;
    HARK_TRY(add_way(lab, panel, &ways[w], &curve));
    for (int block = 0; block < BLOCKS; block++)
      HARK_TRY(hark_lab_add_point(curve, (double)block_of(block), mean_error(table, &ways[w], block_of(block))));
  }
  return HARK_OK;
}

/* Table 2. */
static hark_status study_trained(hark_lab *lab, const hark_trained_heads *heads) {
  hark_lab_table *table;
  bench b;
  HARK_TRY(open_bench(lab, heads->length, heads->head_dim, &b));
  HARK_TRY(hark_lab_add_table(lab, "heads of the trained model", trained_columns, TRAINED_COLUMNS, &table));
  const int64_t size = heads->length * heads->head_dim;
  for (int64_t layer = 0; layer < heads->layers; layer++)
    for (int64_t head = 0; head < heads->heads; head++) {
      const int64_t first = (layer * heads->heads + head) * size;
      b.similarity = &heads->similarities[layer];
      set_head(&b, heads->query + first, heads->key + first, heads->value + first);
      HARK_TRY(study_head(&b, heads->causal, layer, head, table));
    }
  return draw_trained(lab, table);
}

static hark_status measure(hark_lab *lab) {
  const hark_lab_trained_values *const values = lab->options;
  const int64_t length = lab->quick ? QUICK_LENGTH : FULL_LENGTH;
  const hark_attention_desc similarity = hark_attention_desc_default();
  double *numbers;
  study s = {0};
  bench b;
  hark_trained_heads heads;
  if (values->run[0] != 0) /* what can fail comes first */
    HARK_TRY(hark_trained_heads_read(lab, values->run, values->text, 2 * LARGEST_BLOCK + 1, TRAINED_LENGTH, &heads));
  HARK_TRY(open_bench(lab, length, HEAD_DIM, &b));
  HARK_TRY(hark_lab_numbers(lab, 3 * length * HEAD_DIM, &numbers));
  b.similarity = &similarity;
  for (int kind = 0; kind < KINDS; kind++) HARK_TRY(study_kind(&b, kind, lab->quick ? QUICK_DRAWS : FULL_DRAWS, numbers, &s));
  HARK_TRY(show_table(lab, &s));
  HARK_TRY(show_figure(lab, &s));
  HARK_TRY(study_exactness(&b, numbers));
  return values->run[0] != 0 ? study_trained(lab, &heads) : HARK_OK;
}

/* ---- criteria ---- */

/* The way with this partition and query that otherwise equals ways[w]. */
static int way_like(int w, hark_hierarchy_partition partition, hark_coarse_query query) {
  int other = 0;
  while (ways[other].causal != ways[w].causal || ways[other].partition != partition || ways[other].query != query) other++;
  return other;
}

static hark_status judge_exactness(hark_lab *lab) {
  static const char *const names[] = {"one level (Nr = L/2)", "queries and keys constant on merged cells", "trained heads, one level"};
  for (int kind = ONE_LEVEL; kind < lab->table_count; kind++) { /* the third with table 2 */
    double largest = 0;
    for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[1]); i++)
      if (hark_lab_row(&lab->tables[1], i)[KIND] == kind) largest = hark_lab_larger(largest, hark_lab_row(&lab->tables[1], i)[ROW]);
    HARK_TRY(hark_lab_require(lab, largest, 0, ROUNDING, "%s: largest row error", names[kind]));
  }
  return HARK_OK;
}

static hark_status judge_trained(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[2];
  double largest = 0;
  for (int w = 0; w < WAYS; w++)
    for (int block = 1; block < BLOCKS && is_of_model(table, &ways[w]); block++)
      largest = hark_lab_larger(largest, mean_error(table, &ways[w], block_of(block)) / mean_error(table, &ways[w], block_of(block - 1)));
  return hark_lab_require(lab, largest, 0, MARGIN, "trained heads: mean error with 2 Nr / with Nr, largest");
}

/* The reasons: one level computes every pair, and merging constant cells loses nothing (docs/mathematics/hierarchical.md). Exact queries
 * avoid one of two independent errors. Neighbours cover every pair on the same level as siblings or a finer one; so do larger blocks. With
 * longer correlation a cell varies less. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  double exact = 0, partition = 0, blocks = 0, smoothness = 0;
  for (int w = 0; w < WAYS; w++)
    for (int block = 0; block < BLOCKS; block++) {
      const int first = way_like(w, ways[w].partition, HARK_COARSE_QUERY_FIRST),
                sibling = way_like(w, HARK_PARTITION_SIBLING, ways[w].query);
      const double error = hark_lab_row(table, row_of(SMOOTH, w, block))[RELATIVE];
      if (ways[w].query == HARK_COARSE_QUERY_EXACT)
        exact = hark_lab_larger(exact, error / hark_lab_row(table, row_of(SMOOTH, first, block))[RELATIVE]);
      if (sibling != w) partition = hark_lab_larger(partition, error / hark_lab_row(table, row_of(SMOOTH, sibling, block))[RELATIVE]);
      if (block > 0) blocks = hark_lab_larger(blocks, error / hark_lab_row(table, row_of(SMOOTH, w, block - 1))[RELATIVE]);
      for (int kind = 1; kind < KINDS; kind++)
        smoothness = hark_lab_larger(
            smoothness, hark_lab_row(table, row_of(kind, w, block))[RELATIVE] / hark_lab_row(table, row_of(kind - 1, w, block))[RELATIVE]);
    }
  HARK_TRY(judge_exactness(lab));
  HARK_TRY(hark_lab_require(lab, exact, 0, MARGIN, "tau 64: error of exact / first queries, largest"));
  HARK_TRY(hark_lab_require(lab, partition, 0, MARGIN, "tau 64: error with neighbours / siblings, largest"));
  HARK_TRY(hark_lab_require(lab, blocks, 0, MARGIN, "tau 64: error with 2 Nr / with Nr, largest"));
  HARK_TRY(hark_lab_require(lab, smoothness, 0, MARGIN, "error at a tau / error at the next smaller tau, largest"));
  return lab->table_count > 2 ? judge_trained(lab) : HARK_OK;
}

const hark_experiment hark_experiment_approximation = {
    .summary = "the error of hierarchical attention falls with larger blocks, exact queries and smoother heads",
    .paper = "Zhu, Soricut: H-Transformer-1D, sections 5 to 7 and appendix A.5",
    .statement =
        "The error of hierarchical attention is zero where nothing is approximated. It is smaller with larger blocks, "
        "with exact queries, with the neighbour partition, and with a longer correlation of the tokens",
    .notes =
        "The experiment measures the difference between hierarchical and dense attention "
        "([mathematics/hierarchical.md](../mathematics/hierarchical.md)). For one head, H is the output of "
        "hierarchical attention and D that of dense attention:\n"
        "\n"
        "    error = |H - D|_F / |D|_F,      row error = max_n |H_n - D_n| / sqrt(mean_n |D_n|^2)\n"
        "\n"
        "These errors are measured for block sizes Nr = 4 .. 64, for both partitions, and for the coarse queries "
        "`mean`, `first` and `exact`. Attention is measured with and without a causal mask. With a causal mask `mean` "
        "is left out, because it contains later tokens. The heads are random. Some are white noise. The others are "
        "stationary walks with the correlation exp(-|t - s| / tau), where tau is 8, 64 or 512 tokens. Half of the "
        "variance of a key comes from the query of the same token. Sequences have L = 1024 tokens, and there are 12 "
        "draws (`--quick`: 256 tokens, 4 draws).\n"
        "\n"
        "The bounds of 1.05 allow for the finite number of draws.\n"
        "\n"
        "Result (seed 1): the error of `exact` is at most 0.41 times that of `first`. With `--quick` this factor is at "
        "most 0.20. If coarse queries and coarse keys caused two independent errors of the same size, the factor would "
        "be about 0.7. But the two errors are not of the same size. The first query is at one end of its cell, which "
        "causes an error of first order. The mean of the keys is in the middle of its cell, where the first order "
        "cancels. On the walks without a causal mask, the error of `mean` is between those of `exact` and `first`. The "
        "partition `neighbour` has a smaller error than `sibling` with all queries. The reduction is smallest with "
        "`first`, where the error is 0.91 times that of `sibling`. `--quick` has few draws, and in its worst case "
        "there is no reduction: the error is 1.03 times that of `sibling`.\n"
        "\n"
        "The command\n"
        "\n"
        "    hark lab approximation --run runs/book --text book.txt\n"
        "\n"
        "also measures *trained* heads. It uses the q, k and v of every layer and head as attention receives them, that "
        "is, with rotary positions applied. The model reads at most the first 512 tokens of the text. Trained heads have "
        "a separate table and two more criteria: with one level the error is zero, and the mean error over heads falls "
        "with Nr. The model is a run, a checkpoint or a file: a decoder, an encoder or a masked encoder. Models are "
        "refused if their logits depend on more than queries and keys (positional kernels, contextual positions, forget "
        "gates). A learned bias of hierarchical attention is left out of both sides.\n"
        "\n"
        "*Figure.* The error over Nr, with a panel for each kind of head and one for trained heads. The curves of "
        "causal attention are dashed.",
    .check = hark_trained_heads_check,
    .measure = measure,
    .judge = judge};
