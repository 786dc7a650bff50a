/* bank_order.c - what banks of decaying periodic kernels can be, and what they cannot.
 *
 * A bank of M decaying periodic kernels (K eq. 5) is fitted to a head's attention over distances, p[d], by the least divergence
 *
 *     D = sum over d of p[d] log(p[d] / q[d]),      q[d] proportional to G(d)
 *
 * (positional/fit.h). Targets are random banks of ORDER kernels, which a bank of as many kernels can be, and a peak at one distance. For a
 * peak at LAG there is a bound that does not depend on M. Every sum and product of positive definite kernels has G(d) <= G(0), so q[LAG] <=
 * q[0]. The divergence of the three parts {0}, {LAG} and all others is no larger than D, and is least where q[0] = q[LAG]:
 *
 *     D >= p[LAG] log(2 p[LAG] / (p[LAG] + p[0])) + p[0] log(2 p[0] / (p[LAG] + p[0])),      p[LAG] >= p[0]
 *
 * Source: Bunks, Dixon, Di Giorgi, "Composing Kernel Models with Self-Attention", equation 5 and section 4 ("model bank order").
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <hark/positional.h>

#include "lab/fit.h"
#include "lab/tables.h"
#include "positional/fit.h"

#define LENGTH INT64_C(128)
#define ORDER INT64_C(2) /* of the random banks */
#define LAG 5            /* of the peak */
#define PEAK 0.9         /* its attention; the rest is equal at all distances */
#define MOST INT64_C(16) /* kernels of a bank */
#define QUICK_MOST 4
#define QUICK_TARGETS 3
#define FULL_TARGETS 8
#define QUICK_STARTS 24
#define FULL_STARTS 40
#define DEVIATION 0.7
#define MOVED 0.05     /* of the second half of a kernel, in one of the starts */
#define MOST_PERIOD 30 /* tokens, of a start */
#define NUMBERS 5      /* of kernels: 1, 2, .., MOST */
#define PI 3.14159265358979323846

enum { TARGET, KERNELS, PARAMETERS, LEAST_D, MEDIAN_D, BOUND, COLUMNS };
#define TARGET_WORDS "random banks of 2|a peak at distance 5|a peak at distance 0"
enum { BANKS, PEAK_AT_LAG, PEAK_AT_0, TARGETS };
static const hark_lab_column columns[COLUMNS] = {
    {"target", NULL, TARGET_WORDS},         {"kernels", "M", NULL}, {"parameters", NULL, NULL}, {"D, least", "nats", NULL},
    {"D, median of targets", "nats", NULL}, {"bound", "nats", NULL}};

typedef struct bank {
  hark_lab *lab;
  uint32_t stream;
  double *distances, *table, *weights; /* [LENGTH] */
  double *parameters, *noise;
  double *best; /* [4 MOST], of the last number of kernels */
} bank;

static hark_status draw_parameters(bank *b, const hark_positional *expression) {
  const hark_positional_start start = {.struct_size = sizeof start, .length = LENGTH};
  const int64_t count = hark_positional_parameter_count(expression);
  HARK_TRY(hark_positional_initial(b->lab->context, expression, &start, b->parameters));
  hark_lab_normal(b->lab, b->stream++, count, b->noise);
  for (int64_t p = 0; p < count; p++) b->parameters[p] += DEVIATION * b->noise[p];
  return HARK_OK;
}

static hark_status open_bank(bank *b, int64_t kernels, hark_positional **out) {
  char text[64];
  (void)snprintf(text, sizeof text, "bank[%" PRId64 "](decay*periodic)", kernels);
  return hark_positional_create(b->lab->context, text, out);
}

/* From attention over the distances to the table of log G. */
static void finish_target(const bank *b) {
  double sum = 0;
  for (int64_t d = 0; d < LENGTH; d++) sum += b->weights[d];
  for (int64_t d = 0; d < LENGTH; d++) {
    b->weights[d] /= sum;
    b->table[d] = log(b->weights[d]);
  }
}

static hark_status make_target(bank *b, int target) {
  hark_positional *expression;
  if (target != BANKS) {
    const int64_t lag = target == PEAK_AT_LAG ? LAG : 0;
    for (int64_t d = 0; d < LENGTH; d++) b->weights[d] = d == lag ? PEAK : (1 - PEAK) / (LENGTH - 1);
    finish_target(b);
    return HARK_OK;
  }
  HARK_TRY(open_bank(b, ORDER, &expression));
  hark_status status = draw_parameters(b, expression);
  if (status == HARK_OK) status = hark_positional_log(b->lab->context, expression, b->parameters, b->distances, LENGTH, b->weights);
  hark_positional_destroy(b->lab->context, &expression);
  HARK_TRY(status);
  for (int64_t d = 0; d < LENGTH; d++) b->weights[d] = exp(b->weights[d]) + 1e-9;
  finish_target(b);
  return HARK_OK;
}

/* Half of the starts have periods that are whole numbers of tokens, sharp peaks and slow decay. */
static void choose_periods(bank *b, const hark_positional *expression) {
  for (int i = 0; i < hark_positional_named_count(expression); i++) {
    const hark_positional_parameter named = hark_positional_named(expression, i);
    double *const values = b->parameters + named.first;
    hark_lab_uniform(b->lab, b->stream++, named.count, b->noise);
    for (int64_t v = 0; v < named.count; v++) {
      if (strcmp(named.name, "tau") == 0) values[v] = log((2 + floor(MOST_PERIOD * b->noise[v])) / PI);
      if (strcmp(named.name, "alpha") == 0) values[v] = log(1 + 4 * b->noise[v]);
      if (strcmp(named.name, "l") == 0) values[v] = log(2 + 30 * b->noise[v]);
    }
  }
}

/* The best bank of half as many kernels, every kernel in two halves, the second moved a little. */
static void split_best(bank *b, const hark_positional *expression, int64_t kernels, double moved) {
  const int64_t half = kernels / 2;
  hark_lab_normal(b->lab, b->stream++, 4 * half, b->noise);
  for (int i = 0; i < hark_positional_named_count(expression); i++)
    for (int64_t k = 0; k < half; k++) {
      const double value = b->best[i * half + k] - (i == 0 ? log(2.) : 0); /* sigma2 is the first */
      b->parameters[i * kernels + k] = value;
      b->parameters[i * kernels + half + k] = value + moved * b->noise[i * half + k];
    }
}

static hark_status choose_start(bank *b, const hark_positional *expression, int64_t kernels, int start) {
  if (start < 2 && kernels > 1) {
    split_best(b, expression, kernels, start == 0 ? 0 : MOVED);
    return HARK_OK;
  }
  HARK_TRY(draw_parameters(b, expression));
  if (start % 2 == 1) choose_periods(b, expression);
  return HARK_OK;
}

/* The least D of several fits; best <- the parameters. */
static hark_status fit_starts(bank *b, const hark_positional *expression, int64_t kernels, double *least) {
  const hark_fit_target target = {.count = LENGTH, .log_table = b->table, .weights = b->weights};
  const int starts = b->lab->quick ? QUICK_STARTS : FULL_STARTS;
  double *keep;
  HARK_TRY(hark_lab_numbers(b->lab, 4 * kernels, &keep));
  *least = INFINITY;
  for (int start = 0; start < starts; start++) {
    double divergence = INFINITY;
    HARK_TRY(choose_start(b, expression, kernels, start));
    HARK_TRY(hark_fit_improve(b->lab->context, expression, &target, b->parameters, &divergence));
    if (divergence < *least) memcpy(keep, b->parameters, (size_t)(4 * kernels) * sizeof *keep);
    *least = fmin(*least, divergence);
    hark_lab_tick(b->lab, start, starts);
  }
  memcpy(b->best, keep, (size_t)(4 * kernels) * sizeof *keep);
  return HARK_OK;
}

static hark_status fit(bank *b, int64_t kernels, double *least) {
  hark_positional *expression;
  HARK_TRY(open_bank(b, kernels, &expression));
  const hark_status status = fit_starts(b, expression, kernels, least);
  hark_positional_destroy(b->lab->context, &expression);
  return status;
}

static double bound_of(int target) {
  const double other = (1 - PEAK) / (LENGTH - 1), both = PEAK + other;
  return target == PEAK_AT_LAG ? PEAK * log(2 * PEAK / both) + other * log(2 * other / both) : 0;
}

static double median(double *values, int count) {
  for (int i = 1; i < count; i++)
    for (int j = i; j > 0 && values[j] < values[j - 1]; j--) {
      const double value = values[j];
      values[j] = values[j - 1];
      values[j - 1] = value;
    }
  return count % 2 == 1 ? values[count / 2] : (values[count / 2] + values[count / 2 - 1]) / 2;
}

/* found [numbers of kernels, targets]: one target after the other, as each number of kernels begins with the best of the last. */
static hark_status measure_target(bank *b, hark_lab_table *table, int target) {
  const int count = target != BANKS ? 1 : b->lab->quick ? QUICK_TARGETS : FULL_TARGETS;
  const int64_t most = b->lab->quick ? QUICK_MOST : MOST;
  double found[NUMBERS][FULL_TARGETS];
  for (int i = 0; i < count; i++) {
    b->stream = (uint32_t)(1000 * i + 1);
    HARK_TRY(make_target(b, target));
    for (int64_t kernels = 1, number = 0; kernels <= most; kernels *= 2, number++) {
      HARK_TRY(fit(b, kernels, &found[number][i]));
    }
  }
  for (int64_t kernels = 1, number = 0; kernels <= most; kernels *= 2, number++) {
    const double middle = median(found[number], count);
    const double row[COLUMNS] = {target, (double)kernels, 4 * (double)kernels, found[number][0], middle, bound_of(target)};
    HARK_TRY(hark_lab_add_row(b->lab, table, row));
  }
  return HARK_OK;
}

static hark_status draw(hark_lab *lab, const hark_lab_table *table) {
  static const hark_lab_axes axes = {
      .title = "divergence of the best bank", .x = "kernels of the bank", .y = "D (nats)", .log_x = true, .log_y = true};
  static const char *const names[TARGETS] = {"random banks of 2 (median)", "a peak at distance 5", "a peak at distance 0"};
  hark_lab_panel *panel;
  hark_lab_curve *curve = NULL;
  HARK_TRY(hark_lab_add_panel(lab, axes, &panel));
  for (int target = 0; target < TARGETS; target++) {
    HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_LINE, &curve, "%s", names[target]));
    for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
      const double *const row = hark_lab_row(table, i);
      if (row[TARGET] == target && row[MEDIAN_D] > 0) HARK_TRY(hark_lab_add_point(curve, row[KERNELS], row[MEDIAN_D]));
    }
  }
  HARK_TRY(hark_lab_add_curve(lab, panel, HARK_LAB_DASHES, &curve, "bound for distance 5"));
  HARK_TRY(hark_lab_add_point(curve, 1, bound_of(PEAK_AT_LAG)));
  return hark_lab_add_point(curve, lab->quick ? QUICK_MOST : MOST, bound_of(PEAK_AT_LAG));
}

static hark_status measure(hark_lab *lab) {
  bank b = {.lab = lab};
  hark_lab_table *table;
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &b.distances));
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &b.table));
  HARK_TRY(hark_lab_numbers(lab, LENGTH, &b.weights));
  HARK_TRY(hark_lab_numbers(lab, 4 * MOST, &b.parameters));
  HARK_TRY(hark_lab_numbers(lab, 4 * MOST, &b.noise));
  HARK_TRY(hark_lab_numbers(lab, 4 * MOST, &b.best));
  for (int64_t d = 0; d < LENGTH; d++) b.distances[d] = (double)d;
  HARK_TRY(hark_lab_add_table(lab, "banks of M decaying periodic kernels fitted to attention", columns, COLUMNS, &table));
  for (int target = 0; target < TARGETS; target++) HARK_TRY(measure_target(&b, table, target));
  return draw(lab, table);
}

/* The median D of a target and a number of kernels. */
static double median_of(const hark_lab_table *table, int target, int64_t kernels) {
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[TARGET] == target && row[KERNELS] == (double)kernels) return row[MEDIAN_D];
  }
  return NAN;
}

/* The bound is a theorem, so it holds for the best of every number of kernels. A bank with the truth's number of kernels fits exactly, if a
 * start finds it: half of the targets are required to lose less than .001 nats, and less than a tenth of what one kernel loses. */
static hark_status judge(hark_lab *lab) {
  const hark_lab_table *const table = &lab->tables[0];
  const int64_t most = lab->quick ? QUICK_MOST : MOST;
  double least = INFINITY;
  for (int64_t i = 0; i < hark_lab_row_count(table); i++) {
    const double *const row = hark_lab_row(table, i);
    if (row[TARGET] == PEAK_AT_LAG) least = hark_lab_smaller(least, row[LEAST_D] / row[BOUND]);
  }
  HARK_TRY(hark_lab_require(lab, least, 1, INFINITY, "a peak at distance 5: D / bound, least over the numbers of kernels"));
  HARK_TRY(hark_lab_require(lab, median_of(table, BANKS, 2 * ORDER), 0, 1e-3, "random banks of 2: median D of 4 kernels, nats"));
  HARK_TRY(hark_lab_require(lab, median_of(table, BANKS, 2 * ORDER) / median_of(table, BANKS, 1), 0, 0.1,
                            "random banks of 2: median D of 4 kernels / of 1 kernel"));
  return hark_lab_require(lab, median_of(table, PEAK_AT_LAG, most) / median_of(table, PEAK_AT_LAG, 1), 0.25, 1,
                          "a peak at distance 5: D of the largest bank / of one kernel");
}

const hark_experiment hark_experiment_bank_order = {
    .summary = "banks of decaying periodic kernels fit attention of their own form, but no peak at a distance other than 0",
    .paper = HARK_LAB_PAPER_K "equation 5, and \"model bank order\" in section 4",
    .statement =
        "Attention that comes from a random bank of 2 decaying periodic kernels can be fitted by banks of 2 or more "
        "such kernels. No bank of any size can fit attention to one distance other than 0, because a positive definite "
        "kernel is largest at distance 0",
    .notes =
        "    D = sum over d of p[d] log(p[d] / q[d]),      q[d] proportional to G(d)\n"
        "\n"
        "Here p is attention over 128 distances, and G is a bank of M kernels. Banks are fitted to p by "
        "`hark_fit_improve()`, which `hark kernels search` uses too. Every fit is repeated from 40 starts. For M > 1, "
        "two of the starts use the best bank of M / 2 kernels, with every kernel split in two. The other starts are "
        "random. Half of these have sharp peaks and periods that are whole numbers. A first version had only 8 random "
        "starts, and its fits ended in local minima. For attention from random banks of 2, its D was larger with large "
        "banks than with small ones: it was .15 nats with 16 kernels. So more kernels alone do not give a better "
        "fit.\n"
        "\n"
        "Attention p is of two kinds. The random banks are drawn in the same form as the fitted banks, with M = 2. The "
        "peaks have nine tenths of the attention at one distance, and the rest is spread equally over the other "
        "distances.\n"
        "\n"
        "For the peak at distance 5, every bank has q[5] <= q[0]. This implies the lower bound D >= p[5] log(2 p[5] / "
        "(p[5] + p[0])) + p[0] log(2 p[0] / (p[5] + p[0])). This bound is .618 nats for every M. How much such a "
        "misfit raises the loss of a model depends on the values and on the model's other heads. Trained heads attend "
        "to such distances. The kernels bump, lagged_periodic, table and t5 can fit such attention "
        "([positional.md](../mathematics/positional.md)).\n"
        "\n"
        "*Figure.* D over the number of kernels, with the bound.",
    .measure = measure,
    .judge = judge};
