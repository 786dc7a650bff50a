/* test_gradient.c - the backward of every differentiable record against four-point differences of its forward, in f64.
 *
 * F(inputs) = sum of r . output over the floating-point outputs that have gradients, r random. The backward, given r, must agree with
 *   D(h) = (F(-2h) - 8 F(-h) + 8 F(h) - F(2h)) / (12 h),  error O(h^4) + eps |F| / h,
 * along random directions, which see every element at once, and along single elements. Kinks (relu, maximum) spoil the differences whose
 * points lie on both sides of one: the step is made smaller, a wrong gradient stays wrong for every step.
 *
 * Records of numbers in bf16 are left out: rounded inputs cannot be moved by small steps, and the gradient of a rounding is that of the
 * identity. tests/reference/test_bf16.c compares them with linear.
 *
 * Rerun one case: test_gradient 'layer_norm:wide'.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/cases.h"
#include "support/cmocka_all.h"
#include "support/compare.h"

#define TOLERANCE 1e-6 /* of the gradient's size; the differences themselves are good to about 1e-9 */
#define DIRECTIONS 2
#define ELEMENTS 12

static const double steps[] = {1e-3, 1e-4, 1e-5};

#define STEPS ((int)(sizeof steps / sizeof steps[0]))

typedef struct probe {
  test_run *run;
  double *outputs[HARK_MAX_OUTPUTS]; /* r */
  int input;
  int64_t count;
  double *point, *moved, *direction;
} probe;

static double functional(const probe *p, double step) {
  for (int64_t n = 0; n < p->count; n++) p->moved[n] = p->point[n] + step * p->direction[n];
  test_run_write(p->run, TEST_INPUT, p->input, p->moved);
  test_run_forward(p->run);
  double sum = 0;
  for (int i = 0; i < p->run->op->output_count; i++) {
    if (p->outputs[i] == NULL) continue;
    double *output = test_run_read(p->run, TEST_OUTPUT, i);
    for (int64_t n = 0; n < test_run_count(p->run, TEST_OUTPUT, i); n++) sum += p->outputs[i][n] * output[n];
    free(output);
  }
  return sum;
}

static double difference(const probe *p, double h) {
  return (functional(p, -2 * h) - 8 * functional(p, -h) + 8 * functional(p, h) - functional(p, 2 * h)) / (12 * h);
}

/* `size`: what the derivative's error is measured by. */
static void check_direction(const probe *p, const double *gradient, double size, const char *what, int number) {
  double expected = 0, found = 0;
  for (int64_t n = 0; n < p->count; n++) {
    if (p->direction[n] != 0) expected += gradient[n] * p->direction[n];
  }
  for (int s = 0; s < STEPS; s++) {
    found = difference(p, steps[s]);
    if (fabs(found - expected) <= TOLERANCE * size) return;
  }
  test_run_fail(p->run, "gradient of input %d along %s %d is %.12g, differences say %.12g", p->input, what, number, expected, found);
}

static void check_input(probe *p, const double *gradient) {
  double largest = 0, square = 0;
  for (int64_t n = 0; n < p->count; n++) {
    largest = fmax(largest, fabs(gradient[n]));
    square += gradient[n] * gradient[n];
  }
  /* A gradient that is zero everywhere must come out as zero to the same tolerance of a functional of size one. */
  const double size = largest > 0 ? largest : 1;
  for (int d = 0; d < DIRECTIONS; d++) {
    test_random(p->direction, p->count, -1, 1, (uint32_t)d, 1000u + (uint32_t)p->input);
    check_direction(p, gradient, fmax(size, sqrt(square)), "random direction", d);
  }
  for (int e = 0; e < ELEMENTS && e < p->count; e++) {
    const int64_t element = p->count <= ELEMENTS ? e : (p->count - 1) * e / (ELEMENTS - 1);
    memset(p->direction, 0, (size_t)p->count * sizeof *p->direction);
    p->direction[element] = 1;
    check_direction(p, gradient, size, "element", (int)element);
  }
  test_run_write(p->run, TEST_INPUT, p->input, p->point);
}

static bool has_bf16(const test_run *run) {
  bool any = false;
  for (int i = 0; i < run->call.input_count; i++) any = any || run->call.inputs[i].type == HARK_BF16;
  for (int i = 0; i < run->op->output_count; i++) any = any || run->call.outputs[i].type == HARK_BF16;
  return any;
}

static void check_gradients(const test_case *c) {
  hark_context *context = test_reference_open();
  test_run run;
  const test_run_options options = {.type = HARK_F64, .rerun = c->rerun};
  test_run_open(&run, context, c->op, c->sample, &options);
  if (has_bf16(&run)) {
    test_run_close(&run);
    test_setup_close(context);
    skip();
  }
  test_run_forward(&run);
  test_run_backward(&run, 0);
  test_results results;
  test_results_read(&run, true, &results);
  probe p = {.run = &run};
  for (int i = 0; i < c->op->output_count; i++) {
    if (run.call.output_gradients[i].type != HARK_NONE) p.outputs[i] = test_run_read(&run, TEST_OUTPUT_GRADIENT, i);
  }
  int inputs = 0;
  for (int i = 0; i < run.call.input_count; i++) {
    if (results.values[TEST_INPUT_GRADIENT][i] == NULL) continue;
    p.input = i;
    p.count = test_run_count(&run, TEST_INPUT, i);
    p.point = test_run_read(&run, TEST_INPUT, i);
    p.moved = malloc((size_t)p.count * sizeof(double));
    p.direction = malloc((size_t)p.count * sizeof(double));
    assert_non_null(p.moved);
    assert_non_null(p.direction);
    check_input(&p, results.values[TEST_INPUT_GRADIENT][i]);
    free(p.direction);
    free(p.moved);
    free(p.point);
    inputs++;
  }
  if (inputs == 0) test_run_fail(&run, "the sample has no differentiable input");
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) free(p.outputs[i]);
  test_results_free(&results);
  test_run_close(&run);
  test_setup_close(context);
}

int main(int argument_count, char **arguments) { return test_cases_main(argument_count, arguments, true, check_gradients); }
