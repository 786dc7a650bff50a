/* test_fit.c - expressions fitted and grown to tables of log G: truths that are found again, against sums by the definition of D. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "positional/fit.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define COUNT 64

/* A table with its weights: those of attention whose logits are the table. */
typedef struct target {
  double table[COUNT], weights[COUNT];
  hark_fit_target of;
} target;

static void evaluate(hark_context *context, const char *expression, double *values) {
  hark_positional *kernel = NULL;
  double parameters[64], distances[COUNT];
  const hark_positional_start start = {.struct_size = sizeof start, .length = COUNT};
  for (int d = 0; d < COUNT; d++) distances[d] = d;
  assert_fine(context, hark_positional_create(context, expression, &kernel));
  assert_true(hark_positional_parameter_count(kernel) <= 64);
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  assert_fine(context, hark_positional_log(context, kernel, parameters, distances, COUNT, values));
  hark_positional_destroy(context, &kernel);
}

static void make(hark_context *context, const char *expression, double noise, target *out) {
  double sum = 0;
  evaluate(context, expression, out->table);
  for (int d = 0; d < COUNT; d++) out->table[d] += noise * sin(7.3 * d + d * d);
  for (int d = 0; d < COUNT; d++) sum += exp(out->table[d]);
  for (int d = 0; d < COUNT; d++) out->weights[d] = exp(out->table[d]) / sum;
  out->of = (hark_fit_target){COUNT, out->table, out->weights};
}

/* D by its definition: sum of p log(p / q). */
static double divergence_of(hark_context *context, const target *t, const char *expression) {
  double values[COUNT];
  long double sum = 0, divergence = 0;
  evaluate(context, expression, values);
  for (int d = 0; d < COUNT; d++) sum += (long double)t->weights[d] * expl((long double)values[d] - (long double)t->table[d]);
  for (int d = 0; d < COUNT; d++) {
    const long double p = t->weights[d], q = p * expl((long double)values[d] - (long double)t->table[d]) / sum;
    divergence += p * logl(p / q);
  }
  return (double)divergence;
}

static hark_grow_options usual = {.terms = 4, .price = 1e-3, .periods = 3};

static hark_grown grow(hark_context *context, const target *t, const hark_grow_options *options) {
  hark_grown grown;
  assert_fine(context, hark_fit_grow(context, &t->of, options, &grown));
  const double again = divergence_of(context, t, grown.text);
  if (!(fabs(again - grown.divergence) <= 1e-4 + 1e-3 * again)) /* the text has five digits */
    fail_msg("%s: D is %g, by its definition %g", grown.text, grown.divergence, again);
  return grown;
}

/* The first parameter with this name. */
static double value_of(hark_context *context, const char *expression, const char *name) {
  hark_positional *kernel = NULL;
  double parameters[64], value = NAN;
  const hark_positional_start start = {.struct_size = sizeof start, .length = COUNT};
  assert_fine(context, hark_positional_create(context, expression, &kernel));
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  assert_fine(context, hark_positional_natural(context, kernel, parameters, parameters));
  for (int i = 0; i < hark_positional_named_count(kernel) && isnan(value); i++) {
    const hark_positional_parameter named = hark_positional_named(kernel, i);
    if (strcmp(named.name, name) == 0) value = parameters[named.first];
  }
  hark_positional_destroy(context, &kernel);
  return value;
}

/* With noise far below what a parameter costs, every truth is fitted to the noise, with no more parameters than it has. */
static void truths_are_found(void **state) {
  (void)state;
  static const struct {
    const char *truth, *name;
    double value, tolerance;
    int64_t parameters;
  } cases[] = {
      {"decay(l=9)", "l", 9, 0.02, 1},
      {"bump(mu=5,l=2)", "mu", 5, 0.02, 2},
      {"kerple_log(r1=1.5,r2=0.4)", "r2", 0.4, 0.1, 2},
      {"constant(sigma2=0.01)+bump(mu=11,l=0.5)", "mu", 11, 0.01, 3},
      {"decay(l=5)+bump(sigma2=0.5,mu=3,l=1)", "mu", 3, 0.05, 4},
      {"decay(l=30)*lagged_periodic(alpha=1.5,period_length=12,mu=11)", "tau", 12 / 3.14159265358979, 0.005, 4},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    target t;
    make(context, cases[i].truth, 0.02, &t);
    const hark_grown grown = grow(context, &t, &usual);
    const double value = value_of(context, grown.text, cases[i].name);
    if (!(grown.divergence < 3e-4)) fail_msg("%s: %s has D %g", cases[i].truth, grown.text, grown.divergence);
    if (!(fabs(value - cases[i].value) <= cases[i].tolerance * cases[i].value))
      fail_msg("%s: %s has %s %g", cases[i].truth, grown.text, cases[i].name, value);
    if (grown.parameters > cases[i].parameters)
      fail_msg("%s: %s has %d parameters, expected at most %d", cases[i].truth, grown.text, (int)grown.parameters,
               (int)cases[i].parameters);
  }
  test_setup_close(context);
}

/* A flat table needs no kernel, and a high price allows none. */
static void nothing_is_grown_where_nothing_pays(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_grow_options dear = usual;
  target t;
  make(context, "constant", 0.02, &t);
  hark_grown grown = grow(context, &t, &usual);
  assert_string_equal(grown.text, "constant(sigma2=1!)");
  assert_int_equal(grown.parameters, 0);
  assert_true(grown.divergence == grown.constant && grown.constant < 2e-4);
  make(context, "decay(l=9)", 0.02, &t);
  dear.price = 1;
  grown = grow(context, &t, &dear);
  assert_string_equal(grown.text, "constant(sigma2=1!)");
  assert_true(grown.constant > 0.1);
  test_setup_close(context);
}

/* More terms never cost more, and only definite kernels are used where these are required. */
static void options_are_respected(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  target t;
  double before = INFINITY;
  make(context, "decay(l=5)+bump(sigma2=0.5,mu=20,l=3)+constant(sigma2=0.01)", 0.02, &t);
  for (int terms = 1; terms <= 4; terms++) {
    hark_grow_options options = usual;
    options.terms = terms;
    const hark_grown grown = grow(context, &t, &options);
    const double cost = grown.divergence + options.price * (double)grown.parameters;
    assert_true(grown.terms <= terms && cost <= before + 1e-12);
    before = cost;
  }
  hark_grow_options options = usual;
  hark_positional *kernel = NULL;
  double parameters[64];
  const hark_positional_start start = {.struct_size = sizeof start, .length = COUNT};
  options.definite = true;
  const hark_grown grown = grow(context, &t, &options);
  assert_fine(context, hark_positional_create(context, grown.text, &kernel));
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  assert_true(hark_positional_is_definite(kernel, parameters, NULL, NULL));
  assert_true(grown.divergence < grown.constant);
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* At the end of a fit, D is stationary: its derivatives by differences vanish, and what is not learned has not moved. */
static void fits_end_where_the_gradient_is_zero(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel = NULL;
  target t;
  double parameters[16], start_values[16], divergence = 0;
  const hark_positional_start start = {.struct_size = sizeof start, .length = COUNT};
  make(context, "kerple_log(r1=1,r2=0.2)+bump(mu=9,l=2)", 0.1, &t);
  assert_fine(context, hark_positional_create(context, "decay(sigma2=1!,l=4)+rbf(l=20)*periodic(alpha=0.5!,period_length=9)", &kernel));
  const int64_t size = hark_positional_parameter_count(kernel);
  assert_fine(context, hark_positional_initial(context, kernel, &start, start_values));
  memcpy(parameters, start_values, sizeof parameters);
  assert_fine(context, hark_fit_divergence(context, kernel, &t.of, parameters, &divergence));
  const double before = divergence;
  assert_fine(context, hark_fit_improve(context, kernel, &t.of, parameters, &divergence));
  assert_true(divergence < 0.9 * before);
  for (int64_t p = 0; p < size; p++) {
    double up, down, moved[16];
    if (!hark_positional_is_learned(kernel, p)) {
      assert_true(parameters[p] == start_values[p]);
      continue;
    }
    memcpy(moved, parameters, sizeof moved);
    moved[p] = parameters[p] + 1e-4;
    assert_fine(context, hark_fit_divergence(context, kernel, &t.of, moved, &up));
    moved[p] = parameters[p] - 1e-4;
    assert_fine(context, hark_fit_divergence(context, kernel, &t.of, moved, &down));
    if (!(fabs(up - down) / 2e-4 < 1e-3)) fail_msg("parameter %d: dD is %g", (int)p, (up - down) / 2e-4);
  }
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

/* Weights that are negative are fitted too: a network of the log distance to one with other weights, to the bit of the table. */
static void signed_values_are_fitted(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_positional *kernel = NULL;
  target t;
  enum { SIZE = 7, WEIGHTS = 4 };
  double parameters[SIZE], divergence = 0;
  const double expected[] = {-1.5, 2, -3};
  const hark_positional_start start = {.struct_size = sizeof start, .length = COUNT};
  make(context, "mlp[3](c=0.5,t=[0.5,6.5,20.5],w=[-1.5,2,-3])", 0, &t);
  assert_fine(context, hark_positional_create(context, "mlp[3](c=0.5!,t=[0.5,6.5,20.5]!)", &kernel));
  assert_int_equal(hark_positional_parameter_count(kernel), SIZE);
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  assert_fine(context, hark_fit_improve(context, kernel, &t.of, parameters, &divergence));
  assert_true(divergence < 1e-9);
  for (int k = 0; k < 3; k++)
    if (!(fabs(parameters[WEIGHTS + k] - expected[k]) < 1e-3))
      fail_msg("weight %d is %g, expected %g", k, parameters[WEIGHTS + k], expected[k]);
  hark_positional_destroy(context, &kernel);
  test_setup_close(context);
}

static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0;
  do {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_grow_options options = {.terms = 1, .price = 1e-3, .periods = 1};
    double table[8], weights[8];
    hark_grown grown;
    for (int d = 0; d < 8; d++) {
      table[d] = -d;
      weights[d] = 1.0 / 8;
    }
    const hark_fit_target small = {8, table, weights};
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_fit_grow(context, &small, &options, &grown);
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    test_memory_context_end(context, &memory);
  } while (status != HARK_OK && fail_at < 400);
  assert_true(fail_at > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(truths_are_found),         cmocka_unit_test(nothing_is_grown_where_nothing_pays),
      cmocka_unit_test(options_are_respected),    cmocka_unit_test(fits_end_where_the_gradient_is_zero),
      cmocka_unit_test(signed_values_are_fitted), cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests_name("fit", tests, NULL, NULL);
}
