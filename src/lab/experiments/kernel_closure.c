/* kernel_closure.c - sums and products of positive definite kernels are positive definite; other operations are not safe.
 *
 * G(|n - i|) is positive definite if no Gram matrix has a negative eigenvalue. By Schur's theorem products of matrices element by element
 * are positive semidefinite if the factors are, so sums, products and banks of such kernels are too (K section 2.2, after Aronszajn 1950),
 * and so is G(|n - i|) exp(s q_n.q_i), the numerator of K eq. 6 for equal queries and keys. Measured on random expressions whose kernels
 * have random parameters: the least eigenvalue of the Gram matrix of LENGTH tokens over the largest. For comparison: differences, the
 * larger of two kernels, kernels that are cut at a distance, and kernels that are not definite by themselves.
 *
 * Source: Bunks, Dixon, Di Giorgi, "Composing Kernel Models with Self-Attention", section 2.2.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <hark/positional.h>

#include "lab/attention.h"
#include "lab/matrix.h"
#include "lab/tables.h"
#include "positional/leaf_text.h"

#define LENGTH INT64_C(48)
#define DIM INT64_C(4)
#define QUICK_DRAWS 12
#define FULL_DRAWS 100
#define DEVIATION 0.7 /* of the draws' parameters, as they are trained, about their initial values */
#define CUT 6         /* tokens: beyond it a kernel that is cut is 0 */
#define ROUNDING 1e-12
#define TEXT_BYTES 256
#define MOST_LEAVES 64

enum { SINGLE, SUM, PRODUCT, BANK, SUM_OF_PRODUCTS, WITH_CONTENTS, DIFFERENCE, LARGER, CUT_OFF, OTHER_LEAF, OPERATIONS };
#define SAFE DIFFERENCE /* operations before it keep the property */
enum { OPERATION, DRAWS, LEAST, NEGATIVE, CALLED_DEFINITE, COLUMNS };
static const hark_lab_column columns[COLUMNS] = {
    {"operation", NULL,
     "a kernel|a + b|a b|a bank of 3|a b + c d|(a + b) exp(s q_n.q_i)|a - b / 2|max(a, b / 2)|a, "
     "0 beyond 6 tokens|a kernel that is not definite"},
    {"draws", NULL, NULL},
    {"least eigenvalue / largest", "least", NULL},
    {"negative", "draws", NULL},
    {"called definite", "draws", NULL}};

typedef struct closure {
  hark_lab *lab;
  uint32_t stream;
  int definite_count, other_count;
  char definite[MOST_LEAVES][HARK_LEAF_TEXT_BYTES], other[MOST_LEAVES][HARK_LEAF_TEXT_BYTES]; /* texts of kernels */
  double *distances;                                                                          /* [LENGTH] */
  double *first, *second, *parameters, *noise, *contents;
  double *gram, *values, *vectors;
} closure;

static void list_leaves(closure *c) {
  for (int i = 0; i < hark_positional_kernel_count() && i < MOST_LEAVES; i++) {
    const hark_positional_kernel leaf = hark_positional_kernel_at(i);
    if (strcmp(leaf.definite, "yes") == 0) hark_leaf_text(&leaf, 3, 3, c->definite[c->definite_count++]);
    if (strcmp(leaf.definite, "no") == 0) hark_leaf_text(&leaf, 3, 3, c->other[c->other_count++]);
  }
}

static const char *draw_leaf(closure *c, bool definite) {
  double u;
  hark_lab_uniform(c->lab, c->stream++, 1, &u);
  return definite ? c->definite[(int)(u * c->definite_count)] : c->other[(int)(u * c->other_count)];
}

/* G at all distances, over its largest value, with parameters that are drawn; *definite: what hark calls the expression. */
static hark_status evaluate(closure *c, const char *text, double *out, bool *definite) {
  const hark_positional_start start = {.struct_size = sizeof start, .length = LENGTH};
  hark_positional *expression;
  HARK_TRY(hark_positional_create(c->lab->context, text, &expression));
  const int64_t count = hark_positional_parameter_count(expression);
  hark_status status = hark_positional_initial(c->lab->context, expression, &start, c->parameters);
  hark_lab_normal(c->lab, c->stream++, count, c->noise);
  for (int64_t p = 0; p < count; p++) c->parameters[p] += DEVIATION * c->noise[p];
  if (status == HARK_OK) status = hark_positional_log(c->lab->context, expression, c->parameters, c->distances, LENGTH, out);
  *definite = hark_positional_is_definite(expression, c->parameters, NULL, NULL);
  hark_positional_destroy(c->lab->context, &expression);
  HARK_TRY(status);
  double most = -INFINITY;
  for (int64_t d = 0; d < LENGTH; d++) most = hark_lab_larger(most, out[d]);
  for (int64_t d = 0; d < LENGTH; d++) out[d] = exp(out[d] - most);
  return HARK_OK;
}

static void write_text(closure *c, int operation, char *text) {
  const char *const a = draw_leaf(c, operation != OTHER_LEAF), *const b = draw_leaf(c, true);
  const char *const third = draw_leaf(c, true), *const fourth = draw_leaf(c, true);
  switch (operation) {
    case SUM:
    case WITH_CONTENTS: (void)snprintf(text, TEXT_BYTES, "%s+%s", a, b); break;
    case PRODUCT: (void)snprintf(text, TEXT_BYTES, "%s*%s", a, b); break;
    case BANK: (void)snprintf(text, TEXT_BYTES, "bank[3](%s)", a); break;
    case SUM_OF_PRODUCTS: (void)snprintf(text, TEXT_BYTES, "%s*%s+%s*%s", a, b, third, fourth); break;
    default: (void)snprintf(text, TEXT_BYTES, "%s", a); break;
  }
}

/* What operations on two kernels make of the first. */
static hark_status combine(closure *c, int operation, bool *definite) {
  bool second;
  if (operation == CUT_OFF)
    for (int64_t d = CUT + 1; d < LENGTH; d++) c->first[d] = 0;
  if (operation != DIFFERENCE && operation != LARGER) return HARK_OK;
  HARK_TRY(evaluate(c, draw_leaf(c, true), c->second, &second));
  *definite = *definite && second;
  for (int64_t d = 0; d < LENGTH; d++) {
    const double half = c->second[d] / 2;
    c->first[d] = operation == DIFFERENCE ? c->first[d] - half : hark_lab_larger(c->first[d], half);
  }
  return HARK_OK;
}

/* The least eigenvalue of the Gram matrix over the largest absolute one. */
static double least_eigenvalue(closure *c, int operation) {
  if (operation == WITH_CONTENTS) hark_lab_normal(c->lab, c->stream++, LENGTH * DIM, c->contents);
  for (int64_t n = 0; n < LENGTH; n++)
    for (int64_t i = 0; i < LENGTH; i++) {
      const double product = operation == WITH_CONTENTS ? hark_lab_dot(c->contents + n * DIM, c->contents + i * DIM, DIM) : 0;
      c->gram[n * LENGTH + i] = c->first[n > i ? n - i : i - n] * exp(product / sqrt((double)DIM));
    }
  hark_lab_eigen(LENGTH, c->gram, c->values, c->vectors);
  return c->values[LENGTH - 1] / fmax(c->values[0], -c->values[LENGTH - 1]);
}

static hark_status measure_operation(closure *c, hark_lab_table *table, int operation, int64_t draws) {
  double row[COLUMNS] = {[OPERATION] = operation, [DRAWS] = (double)draws, [LEAST] = INFINITY};
  for (int64_t draw = 0; draw < draws; draw++) {
    char text[TEXT_BYTES];
    bool definite;
    write_text(c, operation, text);
    HARK_TRY(evaluate(c, text, c->first, &definite));
    HARK_TRY(combine(c, operation, &definite));
    const double least = least_eigenvalue(c, operation);
    row[LEAST] = hark_lab_smaller(row[LEAST], least);
    row[NEGATIVE] += least < -ROUNDING;
    row[CALLED_DEFINITE] += definite;
  }
  return hark_lab_add_row(c->lab, table, row);
}

static hark_status draw(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {.title = "draws with a negative eigenvalue", .x = "row of the table", .y = "fraction"};
  hark_lab_panel *panel;
  hark_lab_curve *curve;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_POINTS, &curve, "fraction of draws"));
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    HARK_TRY(hark_lab_add_point(curve, (double)(i + 1), row[NEGATIVE] / row[DRAWS]));
  }
  return HARK_OK;
}

static hark_status measure(hark_lab *lab) {
  closure *c;
  void *memory;
  hark_lab_table *table;
  HARK_TRY(hark_lab_allocate(lab, sizeof *c, &memory));
  c = memory;
  c->lab = lab;
  list_leaves(c);
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &c->distances));
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &c->first));
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &c->second));
  HARK_TRY(hark_lab_numbers(lab, HARK_POSITIONAL_PARAMETERS, &c->parameters));
  HARK_TRY(hark_lab_numbers(lab, HARK_POSITIONAL_PARAMETERS, &c->noise));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * DIM, &c->contents));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * LENGTH, &c->gram));
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &c->values));
  HARK_TRY(hark_lab_numbers(lab, LENGTH * LENGTH, &c->vectors));
  for (int64_t d = 0; d < LENGTH; d++) c->distances[d] = (double)d;
  HARK_TRY(hark_lab_add_table(lab, "Gram matrices of random expressions", columns, COLUMNS, &table));
  for (int operation = 0; operation < OPERATIONS; operation++)
    HARK_TRY(measure_operation(c, table, operation, lab->quick ? QUICK_DRAWS : FULL_DRAWS));
  return draw(lab, table);
}

/* Eigenvalues have absolute errors of LENGTH 2e-16 times the largest one, and values of G relative ones of 1e-15 or so. Each unsafe
 * operation is required to fail once: how often it fails depends on the draws. */
static hark_status judge(hark_lab *lab) {
  double least = INFINITY, called = INFINITY;
  for (int operation = 0; operation < SAFE; operation++) {
    const double *const row = hark_lab_row(&lab->tables[0], operation);
    least = hark_lab_smaller(least, row[LEAST]);
    called = hark_lab_smaller(called, row[CALLED_DEFINITE] / row[DRAWS]);
  }
  HARK_TRY(hark_lab_require(lab, least, -ROUNDING, INFINITY, "sums, products, banks, contents: least eigenvalue / largest, least"));
  HARK_TRY(hark_lab_require(lab, called, 1, 1, "sums, products, banks, contents: fraction that hark calls definite, least"));
  HARK_TRY(hark_lab_require(lab, hark_lab_row(&lab->tables[0], OTHER_LEAF)[CALLED_DEFINITE], 0, 0,
                            "kernels that are not definite: draws that hark calls definite"));
  for (int operation = SAFE; operation < OPERATIONS; operation++) {
    static const char *const names[] = {"differences", "the larger of two", "cut at a distance", "kernels that are not definite"};
    const double *const row = hark_lab_row(&lab->tables[0], operation);
    HARK_TRY(hark_lab_require(lab, row[NEGATIVE], 1, row[DRAWS], "%s: draws with a negative eigenvalue", names[operation - SAFE]));
  }
  return HARK_OK;
}

const hark_experiment hark_experiment_kernel_closure = {
    .summary = "sums and products of positive definite kernels are positive definite",
    .paper = HARK_LAB_PAPER_K "section 2.2, equations 5 and 6",
    .statement =
        "Sums, products and banks of the positive definite kernels of hark's language are positive definite. They "
        "remain so if they are multiplied by exp(s q_n.q_i), where q_n and q_i are the contents of the two tokens, and "
        "s > 0. Differences and maxima of such kernels are in general not positive definite. The same is true of "
        "kernels that are set to 0 beyond a distance, and of kernels such as bump, table and t5",
    .notes =
        "Each row of the table has one operation on kernels with random parameters. In all rows but the last, the "
        "kernels are drawn from those kernels of hark that are positive definite for every value of their parameters. "
        "In the last row they are drawn from the kernels for which `hark positional` prints \"no\". The column `called "
        "definite` counts the draws in which `hark_positional_is_definite()` returns true. For single kernels, sums, "
        "products and banks it is called for the whole expression. In the row with contents it is called for a + b. "
        "The language has no differences, maxima or cuts. For these operations it is called for the kernels "
        "themselves: for a and b, or for a alone if there is no b.\n"
        "\n"
        "Local attention sets a kernel to 0 beyond a distance, so its kernel is in general not positive definite. "
        "Softmax attention does not need a positive definite kernel. Kernel ridge attention needs one.\n"
        "\n"
        "*Figure.* The fraction of draws with a negative eigenvalue, for every row of the table.",
    .measure = measure,
    .judge = judge};
