/* lipschitz.c - adversarial searches against the lemmas about how far outputs of layers move: printed bounds that fail, corrected ones that
 * hold.
 *
 *     C.12 corrected   |mha(X; W) - mha(X; W^)| <= R sum e^v + (R^3 / s2) sum (w^q + w^k) w^v (e^q + e^k)      printed: without w^v / s2
 *     C.14 corrected   |mha(X; W) - mha(X^; W)| <= (sum w^v + (R^2 / s2) sum (w^q + w^k)^2 w^v) |X - X^|       printed: without 1 / s2
 *     F.1 corrected    |p(q, K) - p(q, K^)|_1 <= (|q| + max(|K|, |K^|)) |K - K^| / s2                       printed: |K| alone, no 1 / s2
 *     C.11, G.6        as printed;  G.3: |M u| <= |M|_{r,inf} |u|_1,  |M U|_{r,inf} <= |M|_{r,s} |U|_{r,inf},  <= |M|_r |U|_{r,inf}
 *
 * The ratio of left to right side is driven up by Adam over inputs, weights and their changes. Its value is a lower bound of the supremum,
 * so a value above 1 refutes a bound, and a value below 1 is only evidence for it. Source: X appendices C, F, G.
 */
#include "lab/matrix.h"
#include "lab/ratios.h"
#include "lab/search.h"
#include "lab/singular.h"

enum { LEMMA, HEADS, HEAD_DIM, LENGTH, RADIUS, VALUE_NORM, QUERY_NORM, VARIANCE, PRINTED, CORRECTED, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {{"lemma", NULL, HARK_LAB_LEMMAS},
                                                 {"h", NULL, NULL},
                                                 {"d_p", NULL, NULL},
                                                 {"L", NULL, NULL},
                                                 {"R", NULL, NULL},
                                                 {"w^v", NULL, NULL},
                                                 {"w^q, w^k", NULL, NULL},
                                                 {"sigma^2", NULL, NULL},
                                                 {"printed", "ratio", NULL},
                                                 {"corrected", "ratio", NULL}};

enum { NORM, PART, PRODUCT, NORM_COLUMNS };
static const hark_lab_column norm_columns[NORM_COLUMNS] = {
    {"r", NULL, "1|2|inf"}, {"right side", NULL, "vector|entries|operator"}, {"ratio", "largest", NULL}};

enum { SIDE, VALUE, ZERO_COLUMNS };
static const hark_lab_column zero_columns[ZERO_COLUMNS] = {{"F.1 at q = 0, K = 0", NULL, "left|printed|corrected"}, {"value", NULL, NULL}};

typedef struct instance {
  hark_lab_lemma lemma;
  hark_lab_layer layer;
} instance;

/* The first rows are those of --quick. */
static const instance instances[] = {
    {HARK_LAB_C12, {2, 2, 8, 1, 20, 1, 2}},   {HARK_LAB_C12, {1, 1, 4, 1, 3, 1, 1}},   {HARK_LAB_C14, {1, 4, 8, 1, 1, 1, 0.1}},
    {HARK_LAB_C14, {1, 1, 4, 1, 1, 1, 1}},    {HARK_LAB_C11, {1, 3, 2, 1, 2, 1, 1}},   {HARK_LAB_C13, {1, 2, 4, 1, 20, 1, 2}},
    {HARK_LAB_F5, {1, 2, 3, 1, 1, 1, 0.1}},   {HARK_LAB_F6, {1, 2, 3, 1, 1, 1, 0.1}},  {HARK_LAB_G6_HEADS, {1, 3, 2, 1, 2, 1, 1}},
    {HARK_LAB_G6_FFN, {1, 3, 2, 1, 2, 1, 1}}, {HARK_LAB_C12, {1, 4, 8, 1, 1, 1, 4}},   {HARK_LAB_C12, {1, 4, 8, 1, 20, 1, 4}},
    {HARK_LAB_C12, {1, 4, 8, 2, 1, 1, 1}},    {HARK_LAB_C12, {1, 4, 8, 1, 1, 1, 0.1}}, {HARK_LAB_C12, {2, 2, 2, 1, 1, 0.5, 1}},
    {HARK_LAB_C12, {1, 8, 16, 1, 20, 1, 16}}, {HARK_LAB_C14, {1, 4, 8, 1, 1, 1, 4}},   {HARK_LAB_C14, {1, 4, 8, 1, 20, 1, 4}},
    {HARK_LAB_C14, {2, 2, 8, 1, 20, 1, 2}},   {HARK_LAB_C14, {1, 4, 8, 2, 1, 1, 1}},   {HARK_LAB_C14, {2, 2, 2, 1, 1, 0.5, 1}},
    {HARK_LAB_C14, {1, 8, 16, 3, 1, 3, 8}},   {HARK_LAB_C13, {1, 4, 8, 1, 1, 1, 0.1}}, {HARK_LAB_C11, {1, 4, 4, 3, 1, 5, 1}},
    {HARK_LAB_F5, {1, 3, 8, 1, 1, 1, 2}},     {HARK_LAB_F6, {1, 3, 8, 1, 1, 1, 2}},    {HARK_LAB_G6_HEADS, {2, 2, 8, 1, 5, 1, 1}}};
#define QUICK_INSTANCES 10

static hark_status measure_instance(hark_lab *lab, hark_lab_table *table, const instance *one, uint32_t number) {
  const hark_lab_layer *const l = &one->layer;
  hark_lab_ratio ratio;
  HARK_TRY(hark_lab_largest_ratio(lab, one->lemma, l, lab->quick ? 1 : 4, lab->quick ? 60 : 200, 100 * number, &ratio));
  const double row[] = {one->lemma,    (double)l->heads, (double)l->head_dim, (double)l->length, l->radius,
                        l->value_norm, l->query_norm,    l->variance,         ratio.printed,     ratio.corrected};
  return hark_lab_add_row(lab, table, row);
}

/* ---- G.3 ---- */

enum { SMALL = 3, SQUARE = SMALL * SMALL, NUMBERS = 2 * SQUARE };

typedef struct norm_pair {
  int norm, part;
} norm_pair;

/* |x|_r of r = 1, 2, infinity, `stride` apart. */
static double vector_norm(const double *x, int64_t stride, int64_t count, int norm) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) {
    const double size = fabs(x[i * stride]);
    sum = norm == 2 ? hark_larger(sum, size) : sum + (norm == 1 ? size * size : size);
  }
  return norm == 1 ? sqrt(sum) : sum;
}

/* |M|_{r,s}: the s-norm of the columns' r-norms. */
static double mixed_norm(const double *m, int64_t rows, int64_t width, int r, int s) {
  double norms[SMALL];
  for (int64_t j = 0; j < width; j++) norms[j] = vector_norm(m + j, width, rows, r);
  return vector_norm(norms, 1, width, s);
}

static double operator_norm(const double *m, int r) {
  double copy[SQUARE], values[SMALL], largest = 0;
  for (int i = 0; i < SQUARE; i++) copy[i] = m[i];
  if (r == 1) {
    hark_singular_values(SMALL, SMALL, copy, values);
    return values[0];
  }
  for (int i = 0; i < SMALL; i++)
    largest = hark_larger(largest, r == 0 ? vector_norm(m + i, SMALL, SMALL, 0) : vector_norm(m + (ptrdiff_t)i * SMALL, 1, SMALL, 0));
  return largest;
}

/* log of left / right: norms 0, 1, 2 represent r = 1, 2, infinity, whose conjugates are 2, 1, 0. */
static hark_status product_ratio(void *user, const double *x, double *out) {
  const norm_pair *const p = user;
  const double *const m = x, *const u = x + SQUARE;
  double mu[SQUARE];
  hark_lab_multiply(SMALL, SMALL, SMALL, m, u, mu);
  const double of_product = mixed_norm(mu, SMALL, SMALL, p->norm, 2), of_u = mixed_norm(u, SMALL, SMALL, p->norm, 2);
  if (p->part == 0)
    *out = log(vector_norm(mu, SMALL, SMALL, p->norm) / (mixed_norm(m, SMALL, SMALL, p->norm, 2) * vector_norm(u, SMALL, SMALL, 0)));
  else if (p->part == 1)
    *out = log(of_product / (mixed_norm(m, SMALL, SMALL, p->norm, 2 - p->norm) * of_u));
  else
    *out = log(of_product / (operator_norm(m, p->norm) * of_u));
  return HARK_OK;
}

static hark_status measure_products(hark_lab *lab) {
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "G.3: norms of products", norm_columns, NORM_COLUMNS, &table));
  for (int norm = 0; norm < 3; norm++)
    for (int part = 0; part < 3; part++) {
      norm_pair p = {norm, part};
      double x[NUMBERS], best, largest = -INFINITY;
      const hark_lab_search search = {.dims = NUMBERS, .steps = lab->quick ? 100 : 1000, .rate = 0.05, .value = product_ratio, .user = &p};
      for (int i = 0; i < (lab->quick ? 2 : 20); i++) {
        hark_lab_normal(lab, 50000 + 100 * (uint32_t)(3 * norm + part) + (uint32_t)i, NUMBERS, x);
        HARK_TRY(hark_lab_maximise(lab, &search, x, &best));
        largest = hark_larger(largest, best);
      }
      const double row[] = {norm, part, exp(largest)};
      HARK_TRY(hark_lab_add_row(lab, table, row));
    }
  return HARK_OK;
}

/* ---- F.1 where its right side is zero ---- */

static hark_status measure_zero(hark_lab *lab) {
  enum { KEYS = 3, DIM = 2 };
  const double zero[KEYS * DIM] = {0}, changed[KEYS * DIM] = {1}, variance = 2;
  double left;
  hark_lab_table *table;
  HARK_TRY(hark_lab_weights_distance(lab, variance, KEYS, DIM, zero, zero, zero, changed, &left));
  HARK_TRY(hark_lab_add_table(lab, "three keys at the query, one moved by 1, sigma^2 = 2", zero_columns, ZERO_COLUMNS, &table));
  const double rows[][ZERO_COLUMNS] = {{0, left}, {1, 0}, {2, 1 / variance}};
  for (int i = 0; i < 3; i++) HARK_TRY(hark_lab_add_row(lab, table, rows[i]));
  return HARK_OK;
}

static hark_status draw(hark_lab *lab) {
  static const hark_lab_axes axes = {.title = "largest left side / right side", .x = "instance", .y = "ratio", .log_y = true};
  hark_lab_panel *panel;
  hark_lab_curve *printed, *corrected, *one;
  const int64_t count = hark_lab_row_count(&lab->tables[0]);
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &printed, "printed"));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &corrected, "corrected"));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &one, "%s", "1"));
  for (int64_t i = 0; i < count; i++) {
    const double *const row = hark_lab_row(&lab->tables[0], i);
    HARK_TRY(hark_lab_add_point(printed, (double)i, row[PRINTED]));
    HARK_TRY(hark_lab_add_point(corrected, (double)i, row[CORRECTED]));
    HARK_TRY(hark_lab_add_point(one, (double)i, 1));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  const size_t count = lab->quick ? QUICK_INSTANCES : sizeof instances / sizeof instances[0];
  hark_lab_table *table;
  HARK_TRY(hark_lab_add_table(lab, "largest ratios that the search found", columns, COLUMNS, &table));
  for (size_t i = 0; i < count; i++) HARK_TRY(measure_instance(lab, table, &instances[i], (uint32_t)i));
  HARK_TRY(measure_products(lab));
  HARK_TRY(measure_zero(lab));
  return draw(lab);
}

/* Ratios of equalities are 1 up to rounding: 1e-9, because they are quotients of changes of 1e-4 that are known to 1e-12. */
static hark_status judge(hark_lab *lab) {
  static const char *const names[] = {"C.11", "C.12", "C.13", "C.14", "F.5", "F.6", "G.6 heads", "G.6 ffn"};
  static const hark_lab_lemma wrong[] = {HARK_LAB_C12, HARK_LAB_C14};
  const hark_lab_table *const ratios = &lab->tables[0], *const products = &lab->tables[1], *const zero = &lab->tables[2];
  double corrected[8] = {0}, printed[8] = {0}, product = 0;
  for (int64_t i = 0; i < hark_lab_row_count(ratios); i++) {
    const double *const row = hark_lab_row(ratios, i);
    double *const c = &corrected[(int)row[LEMMA]], *const p = &printed[(int)row[LEMMA]];
    *c = hark_lab_larger(*c, row[CORRECTED]);
    *p = hark_lab_larger(*p, row[PRINTED]);
  }
  for (int64_t i = 0; i < hark_lab_row_count(products); i++) product = hark_lab_larger(product, hark_lab_row(products, i)[PRODUCT]);
  for (int i = 0; i < 8; i++) HARK_TRY(hark_lab_require(lab, corrected[i], 0, 1 + 1e-9, "%s corrected, largest ratio", names[i]));
  HARK_TRY(hark_lab_require(lab, product, 0, 1 + 1e-9, "G.3, largest ratio"));
  for (int i = 0; i < 2; i++)
    HARK_TRY(hark_lab_require(lab, printed[wrong[i]], 1, INFINITY, "%s as printed, largest ratio (counterexample)", names[wrong[i]]));
  const double left = hark_lab_row(zero, 0)[VALUE];
  HARK_TRY(hark_lab_require(lab, left - hark_lab_row(zero, 1)[VALUE], 0.01, INFINITY,
                            "F.1 at q = 0, K = 0 as printed: left - right side (counterexample)"));
  return hark_lab_require(lab, left / hark_lab_row(zero, 2)[VALUE], 0, 1, "F.1 at q = 0, K = 0 corrected, ratio");
}

const hark_experiment hark_experiment_lipschitz = {
    .summary = "printed bounds on the movement of layers' outputs fail, and corrected ones hold",
    .paper = HARK_LAB_PAPER_X "Lemmas C.11 to C.14, F.1, G.3, G.6",
    .statement =
        "An adversarial search over inputs, weights and their changes finds no violation of a corrected bound. Lemma "
        "C.12 as printed fails where w^v > sigma^2. Lemma C.14 as printed fails where sigma^2 < 1, which the paper's "
        "Assumption C.1 excludes. Lemma F.1 as printed fails where query and keys are zero",
    .printed =
        "Lemma C.12: R sum e^v + R^3 sum (w^q + w^k)(e^q + e^k); Lemma C.14: sum w^v + R^2 sum (w^q + w^k)^2 w^v; "
        "Lemma F.1: (|q| + |K|) |K - K^|",
    .corrected =
        "Lemma C.12: R sum e^v + (R^3/sigma^2) sum (w^q + w^k) w^v (e^q + e^k); Lemma C.14: sum w^v + (R^2/sigma^2) "
        "sum (w^q + w^k)^2 w^v; Lemma F.1: (|q| + max(|K|, |K^|)) |K - K^|/sigma^2",
    .notes =
        "For every bound, Adam increases the ratio of the left side to the right side. It varies the inputs, the "
        "weights, and small changes of both, which have the size 1e-4. All of these are scaled to their bounds during "
        "the search. Attention is computed by hark's operator. A ratio above one refutes a bound. A ratio below one is "
        "evidence but not a proof. The derivations are in "
        "[mathematics/latent-variables.md](../mathematics/latent-variables.md). The weights p are softmax weights of "
        "exp(-|q - k|^2/(2 sigma^2)). The logarithm of this kernel has the gradient (q - k)/sigma^2, so every use of "
        "Lemma F.1 needs the factor 1/sigma^2. Two heads with the weights p and p^ and the same values X W^v have "
        "outputs that differ by (p - p^) X W^v. The size of this difference is at most |p - p^| R w^v. The paper's "
        "Assumption C.1 requires sigma^2 > 1. So under this assumption Lemma C.14 as printed is true, and Lemma C.12 "
        "as printed is true where w^v <= sigma^2. Names such as C.12 are lemmas here. The equation (C.12) is about "
        "something else. F.5 and F.6 are the two inequalities of softmax weights that belong to Lemma F.1. F.5 is for "
        "changed keys, and F.6 for a changed query.\n"
        "\n"
        "*Figure.* The ratios of all instances, for the printed and the corrected bounds.",
    .measure = measure,
    .judge = judge};
