/* test_adafactor.c - steps of adafactor in f64 against the algorithms of the paper (Shazeer, Stern, arXiv 1804.04235), written from it, and
 * against facts that follow from them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/single.h"

enum { ROWS = 7, COLUMNS = 5, NUMBERS = ROWS * COLUMNS, STEPS = 8, INPUTS = 5 };
enum { WEIGHT, GRADIENT, SECOND, COLUMN, FIRST };

#define ROUNDING 1e-13 /* of numbers of size one, after several steps */
#define EPSILON_1 1e-30
#define EPSILON_2 1e-3
#define THRESHOLD 1.0

static double beta2_of(int t) { return 1 - pow(t, -0.8); }
static double rho_of(int t) { return fmin(1e-2, 1 / sqrt(t)); }

static double rms(const double *x, int count) {
  double sum = 0;
  for (int i = 0; i < count; i++) sum += x[i] * x[i];
  return sqrt(sum / count);
}

/* Gradients whose rows, columns and steps have different sizes. */
static void fill_gradients(int t, double *g) {
  for (int i = 0; i < NUMBERS; i++) g[i] = sin(3.7 * i + 1.3 * t) * (1 + i / COLUMNS) / (1 + i % COLUMNS) / (t % 3 + 1);
}

static void fill_weights(double *x) {
  for (int i = 0; i < NUMBERS; i++) x[i] = cos(1.9 * i);
}

/* ---- the paper ---- */

typedef struct paper_state {
  double x[NUMBERS], r[ROWS], c[COLUMNS], v[NUMBERS];
} paper_state;

/* x - alpha U / max(1, RMS(U) / d) */
static void paper_update(paper_state *s, int t, const double *u) {
  const double alpha = fmax(EPSILON_2, rms(s->x, NUMBERS)) * rho_of(t), divisor = fmax(1, rms(u, NUMBERS) / THRESHOLD);
  for (int i = 0; i < NUMBERS; i++) s->x[i] -= alpha * u[i] / divisor;
}

/* Algorithm 4: R and C are sums. */
static void paper_matrix(paper_state *s, int t, const double *g) {
  const double beta = beta2_of(t);
  double row[ROWS] = {0}, column[COLUMNS] = {0}, total = 0, u[NUMBERS];
  for (int i = 0; i < NUMBERS; i++) {
    row[i / COLUMNS] += g[i] * g[i] + EPSILON_1;
    column[i % COLUMNS] += g[i] * g[i] + EPSILON_1;
  }
  for (int i = 0; i < ROWS; i++) s->r[i] = beta * s->r[i] + (1 - beta) * row[i];
  for (int j = 0; j < COLUMNS; j++) s->c[j] = beta * s->c[j] + (1 - beta) * column[j];
  for (int i = 0; i < ROWS; i++) total += s->r[i];
  for (int i = 0; i < NUMBERS; i++) u[i] = g[i] / sqrt(s->r[i / COLUMNS] * s->c[i % COLUMNS] / total);
  paper_update(s, t, u);
}

/* Algorithm 5. */
static void paper_vector(paper_state *s, int t, const double *g) {
  const double beta = beta2_of(t);
  double u[NUMBERS];
  for (int i = 0; i < NUMBERS; i++) {
    s->v[i] = beta * s->v[i] + (1 - beta) * (g[i] * g[i] + EPSILON_1);
    u[i] = g[i] / sqrt(s->v[i]);
  }
  paper_update(s, t, u);
}

/* ---- the operator ---- */

typedef struct state {
  bool factored, averaged;
  double numbers[INPUTS][NUMBERS];
} state_of;

static int count_of(const state_of *s, int input) { return s->factored && input == SECOND ? ROWS : input == COLUMN ? COLUMNS : NUMBERS; }

static bool has(const state_of *s, int input) { return input == COLUMN ? s->factored : input != FIRST || s->averaged; }

static void take_step(state_of *s, const hark_adafactor_attributes *attributes) {
  hark_sample_input inputs[INPUTS] = {{HARK_NONE, 0, {0}, 0, 0}};
  test_single single;
  for (int i = 0; i < INPUTS; i++) {
    if (!has(s, i)) continue;
    inputs[i] = (hark_sample_input){HARK_F32, 1, {count_of(s, i)}, 0, 1};
    if (count_of(s, i) == NUMBERS) inputs[i] = (hark_sample_input){HARK_F32, 2, {ROWS, COLUMNS}, 0, 1};
  }
  test_single_open(&single, &hark_op_adafactor, attributes, INPUTS, inputs);
  for (int i = 0; i < INPUTS; i++)
    if (has(s, i)) test_single_set(&single, i, s->numbers[i]);
  free(test_single_forward(&single));
  for (int i = 0; i < INPUTS; i++) {
    if (!has(s, i)) continue;
    double *const now = test_single_get(&single, i);
    memcpy(s->numbers[i], now, (size_t)count_of(s, i) * sizeof *now);
    free(now);
  }
  test_single_close(&single);
}

static hark_adafactor_attributes attributes_of(int t) {
  return (hark_adafactor_attributes){
      .rate = rho_of(t), .beta2 = beta2_of(t), .epsilon = EPSILON_1, .least_scale = EPSILON_2, .most = THRESHOLD, .gradient_scale = 1};
}

static void steps_are_those_of_the_paper(void **unused) {
  (void)unused;
  for (int factored = 0; factored < 2; factored++) {
    state_of s = {.factored = factored == 1};
    paper_state p = {{0}, {0}, {0}, {0}};
    fill_weights(s.numbers[WEIGHT]);
    fill_weights(p.x);
    for (int t = 1; t <= STEPS; t++) {
      const hark_adafactor_attributes attributes = attributes_of(t);
      fill_gradients(t, s.numbers[GRADIENT]);
      take_step(&s, &attributes);
      (factored ? paper_matrix : paper_vector)(&p, t, s.numbers[GRADIENT]);
      for (int i = 0; i < NUMBERS; i++) test_near(s.numbers[WEIGHT][i], p.x[i], ROUNDING);
      for (int i = 0; i < ROWS && factored; i++) test_near(s.numbers[SECOND][i], p.r[i] / COLUMNS, ROUNDING * 50);
      for (int j = 0; j < COLUMNS && factored; j++) test_near(s.numbers[COLUMN][j], p.c[j] / ROWS, ROUNDING * 50);
      for (int i = 0; i < NUMBERS && !factored; i++) test_near(s.numbers[SECOND][i], p.v[i], ROUNDING * 50);
    }
  }
}

/* With the decay of AdamW and an average of updates: w = (1 - rate decay) w - m. */
static void averages_and_decay(void **unused) {
  (void)unused;
  for (int factored = 0; factored < 2; factored++) {
    state_of s = {.factored = factored == 1, .averaged = true}, plain = {.factored = factored == 1};
    double expected[NUMBERS], average[NUMBERS] = {0};
    fill_weights(expected);
    for (int t = 1; t <= STEPS; t++) {
      hark_adafactor_attributes attributes = attributes_of(t);
      attributes.least_scale = 0; /* so that updates do not depend on the weights */
      memset(plain.numbers[WEIGHT], 0, sizeof plain.numbers[WEIGHT]);
      fill_gradients(t, plain.numbers[GRADIENT]);
      fill_gradients(t, s.numbers[GRADIENT]);
      take_step(&plain, &attributes);
      attributes.beta1 = 0.75;
      attributes.decay = 0.5;
      memcpy(s.numbers[WEIGHT], expected, sizeof expected);
      take_step(&s, &attributes);
      for (int i = 0; i < NUMBERS; i++) {
        average[i] = 0.75 * average[i] + 0.25 * -plain.numbers[WEIGHT][i];
        expected[i] = (1 - 0.5 * attributes.rate) * expected[i] - average[i];
        test_near(s.numbers[WEIGHT][i], expected[i], ROUNDING);
        test_near(s.numbers[FIRST][i], average[i], ROUNDING);
      }
    }
  }
}

/* Without factors the first update is the sign of the gradient times the rate, with factors too if the gradient's squares have rank 1. */
static void the_first_step_has_the_size_of_the_rate(void **unused) {
  (void)unused;
  for (int factored = 0; factored < 2; factored++) {
    state_of s = {.factored = factored == 1};
    hark_adafactor_attributes attributes = attributes_of(1);
    attributes.rate = 0.125;
    attributes.least_scale = 0;
    for (int i = 0; i < NUMBERS; i++) s.numbers[GRADIENT][i] = (i % 2 == 0 ? 1 : -1) * pow(10, i / COLUMNS - 3) * (1 + i % COLUMNS);
    take_step(&s, &attributes);
    for (int i = 0; i < NUMBERS; i++) test_near(s.numbers[WEIGHT][i], i % 2 == 0 ? -0.125 : 0.125, ROUNDING);
  }
}

/* The bound d: one large gradient after small ones gives an update whose root mean square is the rate. A smaller d gives a smaller one. */
static void large_updates_are_reduced(void **unused) {
  (void)unused;
  static const double bounds[] = {1, 0.25, 0};
  for (int factored = 0; factored < 2; factored++) {
    for (int b = 0; b < 3; b++) {
      state_of s = {.factored = factored == 1};
      hark_adafactor_attributes attributes = attributes_of(100);
      attributes.rate = 1;
      attributes.least_scale = 0;
      attributes.most = bounds[b];
      for (int i = 0; i < NUMBERS; i++) s.numbers[SECOND][i] = s.numbers[COLUMN][i] = 1e-4;
      fill_gradients(1, s.numbers[GRADIENT]);
      take_step(&s, &attributes);
      const double size = rms(s.numbers[WEIGHT], NUMBERS);
      if (bounds[b] > 0)
        test_near(size, bounds[b], ROUNDING);
      else
        assert_true(size > 2);
    }
  }
}

/* Rows without a gradient do not move, and nothing is divided by zero where there has never been one. */
static void zero_gradients_move_nothing(void **unused) {
  (void)unused;
  for (int factored = 0; factored < 2; factored++) {
    state_of s = {.factored = factored == 1};
    fill_weights(s.numbers[WEIGHT]);
    for (int t = 1; t <= 3; t++) {
      const hark_adafactor_attributes attributes = attributes_of(t);
      fill_gradients(t, s.numbers[GRADIENT]);
      for (int j = 0; j < COLUMNS; j++) s.numbers[GRADIENT][2 * COLUMNS + j] = 0;
      for (int i = 0; i < ROWS; i++) s.numbers[GRADIENT][i * COLUMNS + 3] = 0;
      if (t == 2) memset(s.numbers[GRADIENT], 0, sizeof s.numbers[GRADIENT]);
      take_step(&s, &attributes);
    }
    double before[NUMBERS];
    fill_weights(before);
    for (int i = 0; i < NUMBERS; i++) {
      if (i / COLUMNS == 2 || i % COLUMNS == 3)
        test_near(s.numbers[WEIGHT][i], before[i], 0);
      else
        assert_true(isfinite(s.numbers[WEIGHT][i]) && s.numbers[WEIGHT][i] != before[i]);
    }
  }
}

static void a_scale_that_is_not_finite_changes_nothing(void **unused) {
  (void)unused;
  static const double scales[] = {NAN, INFINITY, -INFINITY};
  for (int factored = 0; factored < 2; factored++) {
    for (int k = 0; k < 3; k++) {
      state_of s = {.factored = factored == 1, .averaged = true};
      hark_adafactor_attributes attributes = attributes_of(5);
      attributes.gradient_scale = scales[k];
      for (int input = 0; input < INPUTS; input++)
        for (int i = 0; i < NUMBERS; i++) s.numbers[input][i] = 0.1 + input;
      take_step(&s, &attributes);
      for (int input = 0; input < INPUTS; input++)
        for (int i = 0; i < NUMBERS; i++) test_near(s.numbers[input][i], 0.1 + input, 0);
    }
  }
}

/* Clipping: the scale multiplies the gradient. */
static void the_scale_multiplies_the_gradient(void **unused) {
  (void)unused;
  for (int factored = 0; factored < 2; factored++) {
    state_of scaled = {.factored = factored == 1}, plain = scaled;
    for (int t = 1; t <= 3; t++) {
      hark_adafactor_attributes attributes = attributes_of(t);
      fill_gradients(t, scaled.numbers[GRADIENT]);
      for (int i = 0; i < NUMBERS; i++) plain.numbers[GRADIENT][i] = scaled.numbers[GRADIENT][i] / (t + 1);
      take_step(&plain, &attributes);
      attributes.gradient_scale = 1.0 / (t + 1);
      take_step(&scaled, &attributes);
      for (int i = 0; i < NUMBERS; i++) test_near(scaled.numbers[WEIGHT][i], plain.numbers[WEIGHT][i], ROUNDING);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(steps_are_those_of_the_paper),
      cmocka_unit_test(averages_and_decay),
      cmocka_unit_test(the_first_step_has_the_size_of_the_rate),
      cmocka_unit_test(large_updates_are_reduced),
      cmocka_unit_test(zero_gradients_move_nothing),
      cmocka_unit_test(a_scale_that_is_not_finite_changes_nothing),
      cmocka_unit_test(the_scale_multiplies_the_gradient),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
