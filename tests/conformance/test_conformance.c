/* test_conformance.c - every sample of every record on every backend and instruction set, against the record's definition in f64.
 *
 * Bound: a result that is a sum of t terms of size s, each rounded, is off by at most about t eps s. t is the record's terms(), to which
 * ELEMENTARY is added for the chain of elementary functions and roundings around the sum (vectorised exponentials are good to 4 eps, and no
 * record chains more than four of them). s is the largest magnitude that the tensor takes in several draws of the inputs, so that a result
 * that happens to cancel is not held against terms that do not. A gradient that is zero in every draw (of the one feature of a layer_norm)
 * is one whose terms always cancel: inputs and output gradients being of size one, so are they.
 *
 * Rerun one case: test_conformance 'layer_norm:wide:cpu:avx2'.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cases.h"
#include "support/cmocka_all.h"
#include "support/compare.h"

#define ELEMENTARY 16
#define DRAWS 4         /* for the size of results */
#define CANCELLED 1e-12 /* below this a gradient is rounding in f64 */

typedef struct bounds {
  double scale[TEST_ROLES][HARK_MAX_INPUTS];
} bounds;

static const test_role compared[] = {TEST_OUTPUT, TEST_SAVED, TEST_INPUT, TEST_INPUT_GRADIENT};
static const char *const names[TEST_ROLES] = {"updated input", "output", "saved", "output gradient", "gradient of input"};

#define COMPARED ((int)(sizeof compared / sizeof compared[0]))

static void run_both(test_run *run, unsigned accumulate) {
  test_run_forward(run);
  if (run->op->differentiable != 0) test_run_backward(run, accumulate);
}

/* The definition in f64 on the reference backend: the oracle. */
static void oracle(const test_case *c, uint32_t draw, test_results *results) {
  hark_context *context = test_reference_open();
  test_run run;
  const test_run_options options = {.type = HARK_F64, .draw = draw, .rerun = c->rerun};
  test_run_open(&run, context, c->op, c->sample, &options);
  run_both(&run, 0);
  test_results_read(&run, c->op->differentiable != 0, results);
  test_run_close(&run);
  test_setup_close(context);
}

static void largest(const test_run *run, const test_results *results, bounds *b) {
  for (int r = 0; r < COMPARED; r++) {
    for (int i = 0; i < HARK_MAX_INPUTS; i++) {
      const double *values = results->values[compared[r]][i];
      const int64_t count = values == NULL ? 0 : test_run_count(run, compared[r], i);
      for (int64_t n = 0; n < count; n++) {
        if (isfinite(values[n])) b->scale[compared[r]][i] = fmax(b->scale[compared[r]][i], fabs(values[n]));
      }
    }
  }
}

static double bound_of(const test_run *run, const bounds *b, test_role role, int i, hark_type type) {
  const int64_t terms = run->op->terms(run->call.attributes, run->call.inputs, run->call.input_count);
  const bool cancels = role == TEST_INPUT_GRADIENT && b->scale[role][i] < CANCELLED;
  const bool narrow = test_run_tensor(run, role, i)->type == HARK_F32; /* records of bf16 have f32 results in every run */
  return test_epsilon(narrow ? HARK_F32 : type) * (double)(terms + ELEMENTARY) * (cancels ? 1 : b->scale[role][i]);
}

static void compare(test_run *run, const char *what, const test_results *expected, const bounds *b, hark_type type, bool backward) {
  test_results actual;
  test_results_read(run, backward, &actual);
  for (int r = 0; r < COMPARED; r++) {
    const test_role role = compared[r];
    for (int i = 0; i < HARK_MAX_INPUTS; i++) {
      if (actual.values[role][i] == NULL) continue;
      char text[96];
      (void)snprintf(text, sizeof text, "%s, %s %d", what, names[role], i);
      test_close(run, text, actual.values[role][i], expected->values[role][i], test_run_count(run, role, i),
                 bound_of(run, b, role, i, type));
    }
  }
  test_results_free(&actual);
}

static void open_run(test_run *run, hark_context *context, const test_case *c, hark_type type, bool misaligned) {
  const test_run_options options = {.type = type, .misaligned = misaligned, .rerun = c->rerun};
  test_run_open(run, context, c->op, c->sample, &options);
}

static void check_values(hark_context *context, const test_case *c, hark_type type, bool misaligned, const test_results *expected,
                         const bounds *b) {
  test_run run;
  open_run(&run, context, c, type, misaligned);
  run_both(&run, 0);
  compare(&run, type == HARK_F64 ? "f64" : misaligned ? "misaligned" : "f32", expected, b, type, c->op->differentiable != 0);
  test_run_close(&run);
}

/* Gradients that are there already are added to; each gradient alone comes out as among the others. */
static void check_gradient_requests(hark_context *context, const test_case *c, const test_results *expected, const bounds *b) {
  test_run run;
  open_run(&run, context, c, HARK_F32, false);
  test_run_forward(&run);
  for (int i = 0; i < run.call.input_count; i++) {
    if ((c->op->differentiable >> i & 1u) == 0 || run.call.inputs[i].type == HARK_NONE) continue;
    const int64_t count = test_run_count(&run, TEST_INPUT_GRADIENT, i);
    double *there = malloc((size_t)count * sizeof *there);
    assert_non_null(there);
    const double scale = b->scale[TEST_INPUT_GRADIENT][i];
    test_random(there, count, -scale, scale, 0, HARK_MAX_INPUTS * TEST_ROLES + (uint32_t)i);
    test_run_write(&run, TEST_INPUT_GRADIENT, i, there);
    run.requested = 1u << i;
    test_run_backward(&run, run.requested);
    double *sum = test_run_read(&run, TEST_INPUT_GRADIENT, i);
    for (int64_t n = 0; n < count; n++) there[n] += expected->values[TEST_INPUT_GRADIENT][i][n];
    test_close(&run, "accumulated gradient", sum, there, count, 2 * bound_of(&run, b, TEST_INPUT_GRADIENT, i, HARK_F32));
    free(sum);
    free(there);
    test_run_backward(&run, 0);
    double *alone = test_run_read(&run, TEST_INPUT_GRADIENT, i);
    test_close(&run, "gradient asked for alone", alone, expected->values[TEST_INPUT_GRADIENT][i], count,
               bound_of(&run, b, TEST_INPUT_GRADIENT, i, HARK_F32));
    free(alone);
  }
  test_run_close(&run);
}

/* Without gradients of the outputs all gradients are zero, exactly, and those that are added to stay as they are. */
static void check_absent_gradient(hark_context *context, const test_case *c) {
  test_run run;
  open_run(&run, context, c, HARK_F32, false);
  test_run_forward(&run);
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) run.call.output_gradients[i] = (hark_tensor){0};
  for (int accumulated = 0; accumulated < 2; accumulated++) {
    for (int i = 0; i < run.call.input_count; i++) {
      if (run.call.input_gradients[i].type == HARK_NONE) continue;
      const int64_t count = test_run_count(&run, TEST_INPUT_GRADIENT, i);
      double *before = calloc((size_t)count, sizeof *before);
      assert_non_null(before);
      if (accumulated == 1) test_random(before, count, -1, 1, 0, HARK_MAX_INPUTS * TEST_ROLES + (uint32_t)i);
      run.requested = 1u << i;
      test_run_write(&run, TEST_INPUT_GRADIENT, i, before);
      test_run_backward(&run, accumulated == 1 ? run.requested : 0);
      double *gradient = test_run_read(&run, TEST_INPUT_GRADIENT, i);
      test_close(&run, "gradient without that of the output", gradient, before, count, 0);
      free(gradient);
      free(before);
    }
  }
  test_run_close(&run);
}

static void check_in_place(hark_context *context, const test_case *c, const test_results *expected, const bounds *b) {
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    test_run run;
    if (c->sample->inputs[i].type == HARK_NONE) continue;
    if ((c->op->in_place >> i & 1u) != 0) {
      open_run(&run, context, c, HARK_F32, false);
      test_run_forward_in_place(&run, i);
      double *output = test_run_read(&run, TEST_INPUT, i);
      test_close(&run, "output in place", output, expected->values[TEST_OUTPUT][0], test_run_count(&run, TEST_OUTPUT, 0),
                 bound_of(&run, b, TEST_OUTPUT, 0, HARK_F32));
      free(output);
      test_run_close(&run);
    }
    if ((c->op->gradient_in_place >> i & 1u) != 0) {
      open_run(&run, context, c, HARK_F32, false);
      test_run_forward(&run);
      test_run_backward_in_place(&run, i);
      for (int j = 0; j < run.call.input_count; j++) { /* the others must not suffer */
        if (run.call.input_gradients[j].type == HARK_NONE) continue;
        double *gradient = test_run_read(&run, j == i ? TEST_INPUT : TEST_INPUT_GRADIENT, j);
        test_close(&run, j == i ? "gradient in place" : "gradient beside one in place", gradient, expected->values[TEST_INPUT_GRADIENT][j],
                   test_run_count(&run, TEST_INPUT, j), bound_of(&run, b, TEST_INPUT_GRADIENT, j, HARK_F32));
        free(gradient);
      }
      test_run_close(&run);
    }
  }
}

/* The same bits for any of the numbers of threads. */
static void check_threads(const test_case *c, bool deterministic, const int *threads, int count) {
  test_results first = {0};
  for (int t = 0; t < count; t++) {
    hark_context *context = deterministic ? test_setup_open_deterministic(&c->setup, threads[t]) : test_setup_open(&c->setup, threads[t]);
    test_run run;
    test_results results;
    open_run(&run, context, c, HARK_F32, false);
    run_both(&run, 0);
    test_results_read(&run, c->op->differentiable != 0, &results);
    for (int r = 0; t > 0 && r < COMPARED; r++) {
      for (int i = 0; i < HARK_MAX_INPUTS; i++) {
        char text[96];
        (void)snprintf(text, sizeof text, "%d threads, %s %d", threads[t], names[compared[r]], i);
        if (results.values[compared[r]][i] == NULL) continue;
        test_same_bits(&run, text, results.values[compared[r]][i], first.values[compared[r]][i], test_run_count(&run, compared[r], i));
      }
    }
    test_run_close(&run);
    test_setup_close(context);
    if (t == 0) {
      first = results;
    } else {
      test_results_free(&results);
    }
  }
  test_results_free(&first);
}

/* What is expected of a sample, kept while the cases that follow are of the same sample on other setups. */
typedef struct expectation {
  const hark_sample *sample;
  test_results results;
  bounds b;
} expectation;

static expectation expected_now;

static const expectation *expect(const test_case *c) {
  if (expected_now.sample == c->sample) return &expected_now;
  test_results_free(&expected_now.results);
  expected_now = (expectation){0};
  hark_context *context = test_reference_open();
  test_run shapes;
  open_run(&shapes, context, c, HARK_F64, false);
  for (uint32_t draw = 0; draw < DRAWS; draw++) {
    test_results results;
    oracle(c, draw, &results);
    largest(&shapes, &results, &expected_now.b);
    if (draw == 0) {
      expected_now.results = results;
    } else {
      test_results_free(&results);
    }
  }
  test_run_close(&shapes);
  test_setup_close(context);
  expected_now.sample = c->sample;
  return &expected_now;
}

static void conform(const test_case *c) {
  const expectation *e = expect(c);
  hark_context *context = test_setup_open(&c->setup, 2);
  check_values(context, c, HARK_F32, false, &e->results, &e->b);
  check_values(context, c, HARK_F32, true, &e->results, &e->b);
  check_in_place(context, c, &e->results, &e->b);
  if (c->op->differentiable != 0) {
    check_gradient_requests(context, c, &e->results, &e->b);
    check_absent_gradient(context, c);
  }
  if (strcmp(c->setup.backend, "guard") != 0) { /* which has the kernels of the cpu backend */
    check_values(context, c, HARK_F64, false, &e->results, &e->b);
    hark_context *deterministic = test_setup_open_deterministic(&c->setup, 2); /* whose products of few rows are others */
    check_values(deterministic, c, HARK_F32, false, &e->results, &e->b);
    test_setup_close(deterministic);
    static const int threads[] = {1, 3, 2, 7};
    check_threads(c, false, threads, 4);
    check_threads(c, true, threads, 2);
  }
  test_setup_close(context);
}

int main(int argument_count, char **arguments) {
  const int status = test_cases_main(argument_count, arguments, false, conform);
  test_results_free(&expected_now.results);
  return status;
}
