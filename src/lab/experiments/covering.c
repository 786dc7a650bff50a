/* covering.c - the counts in the covering numbers: which hold, which lack a factor, and which weights are not covered at all.
 *
 *     C.10   a ball of radius R in n dimensions has an e-net of (1 + 2 R / e)^n points: greedy packings of a disc, a square and a diamond
 *     C.11   weights moved by the net's resolutions move the ffn by at most e: the largest ratio of the two in an adversarial search
 *     C.13   the same for attention, R_mha = sum R^v + R^2 sum (w^q + w^k) (R^q + R^k) as printed,
 *            corrected with w^v / s2 in the second sum
 *     C.15   sums the attention of layers 0 .. T - 2 and the ffn of layers 0 .. T - 1:
 *            the last layer's attention and the aggregation have no net
 *     C.9    repaired: exponent (4 + h) D^2 T + d_agg
 *
 * Source: X appendix C.5.
 */
#include "lab/attention.h"
#include "lab/matrix.h"
#include "lab/ratios.h"

enum { BALL, RESOLUTION, ORDER, PACKED, COUNT_BOUND, LOWER, PACKING_COLUMNS };
static const hark_lab_column packing_columns[PACKING_COLUMNS] = {{"norm", NULL, "1|2|inf"},      {"e / R", NULL, NULL},
                                                                 {"order", NULL, "rows|random"}, {"packed", "points", NULL},
                                                                 {"(1 + 2 R/e)^2", NULL, NULL},  {"(R/e)^2", NULL, NULL}};

enum { LEMMA, VALUE_NORM, VARIANCE, PRINTED, CORRECTED, RATIO_COLUMNS };
static const hark_lab_column ratio_columns[RATIO_COLUMNS] = {{"lemma", NULL, HARK_LAB_LEMMAS},
                                                             {"w^v", NULL, NULL},
                                                             {"sigma^2", NULL, NULL},
                                                             {"printed", "ratio", NULL},
                                                             {"corrected", "ratio", NULL}};

enum { LAYERS, WEIGHTS, COVERED, LEFT_OUT_HEADS, LEFT_OUT_AGGREGATION, REPAIRED, MOVED_BY_COVERED, MOVED, WEIGHT_COLUMNS };
static const hark_lab_column weight_columns[WEIGHT_COLUMNS] = {{"T", "layers", NULL},
                                                               {"weights", NULL, NULL},
                                                               {"in C.15", "weights", NULL},
                                                               {"last attention", "left out", NULL},
                                                               {"aggregation", "left out", NULL},
                                                               {"(4 + h) D^2 T + d_agg", "exponent", NULL},
                                                               {"output moved by weights in C.15", "least", NULL},
                                                               {"output moved by the last attention", "in C.15: 0", NULL}};

/* ---- packings ---- */

enum { MAX_NORM = 2, PER_RESOLUTION = 8 }; /* steps of the grid in a resolution */

static double length_of(double x, double y, int norm) {
  x = fabs(x);
  y = fabs(y);
  return norm == 0 ? x + y : norm == 1 ? hypot(x, y) : hark_larger(x, y);
}

/* Adds points of a fine grid in the unit ball that are farther than e from all points added before: maximal on the grid, so a net of it. */
static hark_status pack(hark_lab *lab, hark_lab_table *table, int norm, double e, bool shuffled, uint32_t stream) {
  const int64_t side = 2 * (int64_t)ceil(PER_RESOLUTION / e) + 1, bound = (int64_t)floor(pow(1 + 2 / e, 2));
  int64_t count = 0, packed = 0;
  double *points, *taken, *uniform;
  HARK_TRY(hark_lab_numbers(lab, 2 * side * side, &points));
  HARK_TRY(hark_lab_numbers(lab, side * side, &uniform));
  HARK_TRY(hark_lab_numbers(lab, 4 * (bound + 1), &taken));
  for (int64_t i = 0; i < side * side; i++) {
    const double x = 2 * (double)(i / side) / (double)(side - 1) - 1, y = 2 * (double)(i % side) / (double)(side - 1) - 1;
    if (length_of(x, y, norm) > 1) continue;
    points[2 * count] = x;
    points[2 * count + 1] = y;
    count++;
  }
  hark_lab_uniform(lab, stream, count, uniform);
  for (int64_t i = count - 1; i > 0 && shuffled; i--) { /* Fisher, Yates */
    const int64_t other = (int64_t)(uniform[i] * (double)(i + 1));
    for (int c = 0; c < 2; c++) {
      const double kept = points[2 * i + c];
      points[2 * i + c] = points[2 * other + c];
      points[2 * other + c] = kept;
    }
  }
  for (int64_t i = 0; i < count && packed < 2 * bound; i++) {
    int64_t near = 0;
    while (near < packed && length_of(points[2 * i] - taken[2 * near], points[2 * i + 1] - taken[2 * near + 1], norm) > e) near++;
    if (near < packed) continue;
    taken[2 * packed] = points[2 * i];
    taken[2 * packed + 1] = points[2 * i + 1];
    packed++;
  }
  const double row[] = {norm, e, shuffled, (double)packed, pow(1 + 2 / e, 2), pow(1 / e, 2)};
  return hark_lab_add_row(lab, table, row);
}

static hark_status measure_packings(hark_lab *lab) {
  hark_lab_table *table;
  uint32_t stream = 0;
  HARK_TRY(hark_lab_add_table(lab, "greedy packings of two-dimensional balls, C.10", packing_columns, PACKING_COLUMNS, &table));
  for (int norm = 0; norm < 3; norm++)
    for (int halvings = 0; halvings <= (lab->quick ? 3 : 5); halvings++)
      for (int shuffled = 0; shuffled < 2; shuffled++) HARK_TRY(pack(lab, table, norm, ldexp(1, -halvings), shuffled == 1, stream++));
  return HARK_OK;
}

/* ---- resolutions ---- */

static hark_status measure_ratios(hark_lab *lab) {
  static const struct {
    hark_lab_lemma lemma;
    hark_lab_layer layer;
  } all[] = {{HARK_LAB_C11, {1, 3, 2, 1, 2, 1, 1}},  {HARK_LAB_C13, {1, 2, 4, 1, 20, 1, 2}}, {HARK_LAB_C13, {1, 2, 4, 1, 1, 1, 0.1}},
             {HARK_LAB_C11, {1, 4, 4, 3, 1, 5, 1}},  {HARK_LAB_C11, {2, 2, 4, 1, 5, 5, 1}},  {HARK_LAB_C13, {1, 4, 8, 1, 1, 1, 4}},
             {HARK_LAB_C13, {2, 2, 8, 1, 20, 1, 2}}, {HARK_LAB_C13, {2, 2, 4, 2, 1, 1, 4}}};
  const size_t count = lab->quick ? 3 : sizeof all / sizeof all[0];
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "change of the output, divided by e, if weights move by their resolutions", ratio_columns, RATIO_COLUMNS,
                              &table));
  for (size_t i = 0; i < count; i++) {
    hark_lab_ratio ratio;
    HARK_TRY(hark_lab_largest_ratio(lab, all[i].lemma, &all[i].layer, lab->quick ? 1 : 4, lab->quick ? 60 : 200, 1000 + 100 * (uint32_t)i,
                                    &ratio));
    const double row[] = {all[i].lemma, all[i].layer.value_norm, all[i].layer.variance, ratio.printed, ratio.corrected};
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

/* ---- which weights have a net ---- */

/* d = d_sigma = 8, two heads: D = 8. The aggregation is a class query, a mean with d_agg = d weights. */
enum { WIDTH = 8, HEAD_COUNT = 2, HEAD_DIM = WIDTH / HEAD_COUNT, TOKENS = 6, ENTRIES = TOKENS * WIDTH, MOST_LAYERS = 4 };

/* X* <- ffn, then mha, each with its skip connection, T times (X C.4). */
typedef struct transformer {
  double *in[MOST_LAYERS], *out[MOST_LAYERS]; /* [d, d_sigma], [d_sigma, d] */
  hark_lab_heads heads[MOST_LAYERS];
} transformer;

/* Weights in the order of the layers; returns how many there are. */
static int64_t weights_of(const transformer *t, int layer, double *arrays[5], int64_t counts[5]) {
  double *const all[] = {t->in[layer], t->out[layer], t->heads[layer].query, t->heads[layer].key, t->heads[layer].value};
  enum { SQUARE = WIDTH * WIDTH, NARROW = HEAD_COUNT * WIDTH * HEAD_DIM, WIDE = HEAD_COUNT * WIDTH * WIDTH };
  static const int64_t sizes[] = {SQUARE, SQUARE, NARROW, NARROW, WIDE};
  int64_t sum = 0;
  for (int a = 0; a < 5; a++) {
    arrays[a] = all[a];
    counts[a] = sizes[a];
    sum += sizes[a];
  }
  return sum;
}

static hark_status make_transformer(hark_lab *lab, transformer *t) {
  for (int layer = 0; layer < MOST_LAYERS; layer++) {
    double *arrays[5];
    int64_t counts[5];
    HARK_TRY(hark_lab_numbers(lab, (int64_t)WIDTH * WIDTH, &t->in[layer]));
    HARK_TRY(hark_lab_numbers(lab, (int64_t)WIDTH * WIDTH, &t->out[layer]));
    t->heads[layer] = (hark_lab_heads){.heads = HEAD_COUNT, .width = WIDTH, .head_dim = HEAD_DIM, .length = TOKENS};
    HARK_TRY(hark_lab_make_heads(lab, &t->heads[layer]));
    (void)weights_of(t, layer, arrays, counts);
    for (int a = 0; a < 5; a++) {
      hark_lab_normal(lab, 9000 + 10 * (uint32_t)layer + (uint32_t)a, counts[a], arrays[a]);
      for (int64_t i = 0; i < counts[a]; i++) arrays[a][i] /= sqrt(WIDTH);
    }
  }
  return HARK_OK;
}

static hark_status run_transformer(hark_lab *lab, const transformer *t, int layers, const double *input, double *x) {
  double hidden[ENTRIES], change[ENTRIES];
  hark_attention_desc choice = hark_attention_desc_default();
  choice.kernel = HARK_KERNEL_RBF;
  choice.sigma = sqrt(HEAD_DIM);
  for (int64_t i = 0; i < ENTRIES; i++) x[i] = input[i];
  for (int layer = 0; layer < layers; layer++) {
    hark_lab_multiply(TOKENS, WIDTH, WIDTH, x, t->in[layer], hidden);
    for (int64_t i = 0; i < ENTRIES; i++) hidden[i] = hark_larger(hidden[i], 0);
    hark_lab_multiply(TOKENS, WIDTH, WIDTH, hidden, t->out[layer], change);
    for (int64_t i = 0; i < ENTRIES; i++) x[i] += change[i];
    HARK_TRY(hark_lab_sum_heads(lab->context, &choice, &t->heads[layer], x, change));
    for (int64_t i = 0; i < ENTRIES; i++) x[i] += change[i];
  }
  return HARK_OK;
}

/* Largest change of an output entry when one array of weights is replaced by its negative. */
static hark_status moved_by(hark_lab *lab, const transformer *t, int layers, const double *input, double *array, int64_t count,
                            double *out) {
  double plain[ENTRIES], moved[ENTRIES];
  HARK_TRY(run_transformer(lab, t, layers, input, plain));
  for (int64_t i = 0; i < count; i++) array[i] = -array[i];
  HARK_TRY(run_transformer(lab, t, layers, input, moved));
  for (int64_t i = 0; i < count; i++) array[i] = -array[i];
  *out = 0;
  for (int64_t i = 0; i < ENTRIES; i++) *out = hark_larger(*out, fabs(moved[i] - plain[i]));
  return HARK_OK;
}

static hark_status measure_weights(hark_lab *lab) {
  transformer t;
  double input[ENTRIES];
  hark_lab_table *table;
  HARK_TRY(make_transformer(lab, &t));
  hark_lab_normal(lab, 8999, ENTRIES, input);
  HARK_TRY(hark_lab_add_table(lab, "weights of a transformer, d = d_sigma = 8, h = 2, d_agg = 8", weight_columns, WEIGHT_COLUMNS, &table));
  for (int layers = 1; layers <= MOST_LAYERS; layers++) {
    double row[WEIGHT_COLUMNS] = {
        [LAYERS] = layers, [LEFT_OUT_AGGREGATION] = WIDTH, [REPAIRED] = (4 + HEAD_COUNT) * WIDTH * WIDTH * layers + WIDTH};
    row[MOVED_BY_COVERED] = row[MOVED] = INFINITY;
    for (int layer = 0; layer < layers; layer++) {
      double *arrays[5];
      int64_t counts[5];
      row[WEIGHTS] += (double)weights_of(&t, layer, arrays, counts);
      for (int a = 0; a < 5; a++) {
        const bool covered = a < 2 || layer < layers - 1; /* C.15: ffn of 0 .. T - 1, attention of 0 .. T - 2 */
        double moved;
        HARK_TRY(moved_by(lab, &t, layers, input, arrays[a], counts[a], &moved));
        row[covered ? COVERED : LEFT_OUT_HEADS] += (double)counts[a];
        row[covered ? MOVED_BY_COVERED : MOVED] = hark_smaller(row[covered ? MOVED_BY_COVERED : MOVED], moved);
      }
    }
    row[WEIGHTS] += WIDTH;
    HARK_TRY(hark_lab_add_row(lab, table, row));
  }
  return HARK_OK;
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes = {
      .title = "greedy packings of a ball in the plane", .x = "e / R", .y = "points", .log_x = true, .log_y = true};
  static const char *const names[] = {"1-norm", "2-norm", "max-norm"};
  hark_lab_panel *panel;
  hark_lab_curve *bound, *curve = NULL;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &bound, "(1 + 2 R/e)^2"));
  for (int norm = 0; norm < 3; norm++) {
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &curve, "%s", names[norm]));
    for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
      const double *const row = hark_lab_row(&lab->tables[0], i);
      if (row[BALL] != norm) continue;
      HARK_TRY(hark_lab_add_point(curve, row[RESOLUTION], row[PACKED]));
      if (norm == 0 && row[ORDER] == 0) HARK_TRY(hark_lab_add_point(bound, row[RESOLUTION], row[COUNT_BOUND]));
    }
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  HARK_TRY(measure_packings(lab));
  HARK_TRY(measure_ratios(lab));
  HARK_TRY(measure_weights(lab));
  return draw(lab);
}

/* In the max-norm, points that are added row by row are nine steps of e/8 apart in both directions: there are (floor(16 R / 9 e) + 1)^2.
 * The whole ball is within 1.1 e of a packing that is maximal on a grid of steps e/8: it has at least (R / 1.2 e)^2 points. */
static hark_status judge(hark_lab *lab) {
  double upper = 0, lower = INFINITY, squares = 0, ffn = 0, printed = 0, corrected = 0, uncovered = INFINITY, moved = INFINITY,
         repaired = INFINITY;
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[0]); i++) {
    const double *const row = hark_lab_row(&lab->tables[0], i);
    upper = hark_lab_larger(upper, row[PACKED] / row[COUNT_BOUND]);
    lower = hark_lab_smaller(lower, row[PACKED] / row[LOWER]);
    if (row[BALL] != MAX_NORM || row[ORDER] != 0) continue;
    const double side = floor(2. * PER_RESOLUTION / row[RESOLUTION] / (PER_RESOLUTION + 1)) + 1;
    squares = hark_lab_larger(squares, fabs(row[PACKED] - side * side));
  }
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[1]); i++) {
    const double *const row = hark_lab_row(&lab->tables[1], i);
    if (row[LEMMA] == HARK_LAB_C11) {
      ffn = hark_lab_larger(ffn, row[CORRECTED]);
      continue;
    }
    if (row[VALUE_NORM] > 1) printed = hark_lab_larger(printed, row[PRINTED]);
    corrected = hark_lab_larger(corrected, row[CORRECTED]);
  }
  for (int64_t i = 0; i < hark_lab_row_count(&lab->tables[2]); i++) {
    const double *const row = hark_lab_row(&lab->tables[2], i);
    uncovered = hark_lab_smaller(uncovered, row[WEIGHTS] - row[COVERED]);
    moved = hark_lab_smaller(moved, row[MOVED]);
    repaired = hark_lab_smaller(repaired, row[REPAIRED] / row[WEIGHTS]);
  }
  HARK_TRY(hark_lab_require(lab, upper, 0, 1, "C.10: points of a packing / (1 + 2 R/e)^2, largest"));
  HARK_TRY(hark_lab_require(lab, lower, 1 / 1.44, INFINITY, "points of a maximal packing / (R/e)^2, least"));
  HARK_TRY(hark_lab_require(lab, squares, 0, 0, "max-norm, row by row: points - (floor(16 R / 9 e) + 1)^2, largest"));
  HARK_TRY(hark_lab_require(lab, ffn, 0, 1 + 1e-9, "C.11: output moved / e, largest"));
  HARK_TRY(hark_lab_require(lab, corrected, 0, 1 + 1e-9, "C.13 corrected: output moved / e, largest"));
  HARK_TRY(hark_lab_require(lab, printed, 1, INFINITY, "C.13 as printed, w^v > 1: output moved / e, largest (counterexample)"));
  HARK_TRY(hark_lab_require(lab, uncovered, 1, INFINITY, "C.15: weights without a net, least over T"));
  HARK_TRY(hark_lab_require(lab, moved, 0.1, INFINITY, "C.15: output moved by attention without a net, least over T"));
  return hark_lab_require(lab, repaired, 1, INFINITY, "corrected exponent / number of weights, least over T");
}

const hark_experiment hark_experiment_covering = {
    .summary =
        "the bound on the covering number of a ball holds; the printed resolutions of attention's weights can be too "
        "coarse; some weights have no net",
    .paper = HARK_LAB_PAPER_X "Lemmas C.9 to C.11, C.13, C.15",
    .statement =
        "Greedy packings of two-dimensional balls of radius R, at resolution e, have at most (1 + 2 R/e)^2 points. If "
        "weights move by the resolutions of Lemma C.11, or of the corrected Lemma C.13 with w^v / sigma^2, the output "
        "moves by at most e. If weights move by the resolutions of Lemma C.13 as printed, the output can move by more "
        "than e. The sum of Lemma C.15 has no net for the attention of the last layer, and none for the aggregation",
    .printed =
        "Lemma C.13: R_mha = sum R^v + R^2 sum (w^q + w^k)(R^q + R^k); Lemma C.9: (4 + h) D^2 T log(1 + 2 R "
        "R_trans/e), by the sum of Lemma C.15, which ends at the attention of layer T - 2",
    .corrected =
        "Lemma C.13: R_mha = sum R^v + (R^2/sigma^2) sum (w^q + w^k) w^v (R^q + R^k); Lemma C.9: ((4 + h) D^2 T + "
        "d_agg) log(..), R_trans with the terms of the last attention and of the aggregation",
    .notes =
        "A packing is a set of points in a ball of radius R. The distance between any two of its points exceeds e. If "
        "no point can be added to a packing, it is an e-net of the ball. Then its number of points is an upper bound "
        "of the covering number. The balls of radius e/2 around the points of a packing are disjoint, and they lie in "
        "a ball of radius R + e/2. So in n dimensions a packing has at most (1 + 2 R/e)^n points. This is Lemma C.10. "
        "Packings come closest to this bound in the maximum norm, where they have up to .79 of this number.\n"
        "\n"
        "The second table has ratios of the same kind as `lipschitz` has for Lemmas C.11 and C.13. All weights move at "
        "once, by the resolutions that the proofs of the two lemmas choose.\n"
        "\n"
        "The third table is about a transformer of T layers. In each layer the feed-forward part comes first, then "
        "attention, as in equation (C.4). One array of weights at a time is replaced by its negative. The weights of "
        "the last layer's attention move the output, as the other weights do. But the sum of Lemma C.15 has no net for "
        "these weights, and none for the aggregation. With T = 1 the sum has no net for any attention. Lemma C.9 "
        "prints the exponent (4 + h) D^2 T. This is large enough for the layers. It exceeds the number of weights in "
        "the sum of Lemma C.15 by (2 + h) D^2. This is exactly the number of weights of the last attention. But Lemma "
        "C.9 lacks d_agg and the resolution of the last attention.\n"
        "\n"
        "*Figure.* The number of points of packings over the resolution, and the bound.",
    .measure = measure,
    .judge = judge};
