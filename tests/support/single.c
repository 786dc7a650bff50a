/* single.c - one record on the reference backend in f64, with numbers that a test chooses. */
#include "support/single.h"

#include <math.h>
#include <string.h>

#include "support/cmocka_all.h"

void test_single_open(test_single *single, const hark_operator *op, const void *attributes, int input_count,
                      const hark_sample_input *inputs) {
  *single = (test_single){.context = test_reference_open(), .sample = {.name = "chosen", .attributes = attributes}};
  memcpy(single->sample.inputs, inputs, (size_t)input_count * sizeof *inputs);
  const test_run_options options = {.type = HARK_F64};
  test_run_open(&single->run, single->context, op, &single->sample, &options);
}

void test_single_close(test_single *single) {
  test_run_close(&single->run);
  test_setup_close(single->context);
}

void test_single_set(test_single *single, int input, const double *values) { test_run_write(&single->run, TEST_INPUT, input, values); }

double *test_single_get(test_single *single, int input) { return test_run_read(&single->run, TEST_INPUT, input); }

double *test_single_forward(test_single *single) {
  test_run_forward(&single->run);
  return single->run.op->output_count > 0 ? test_run_read(&single->run, TEST_OUTPUT, 0) : NULL;
}

void test_single_backward(test_single *single, const double *output_gradient) {
  if (output_gradient != NULL) test_run_write(&single->run, TEST_OUTPUT_GRADIENT, 0, output_gradient);
  test_run_backward(&single->run, 0);
}

double *test_single_gradient(test_single *single, int input) { return test_run_read(&single->run, TEST_INPUT_GRADIENT, input); }

hark_status test_single_refusal(test_single *single) {
  hark_call call = single->run.call;
  hark_tensor workspace = {0};
  const int64_t bytes = (int64_t)single->run.inferred.forward_workspace;
  if (bytes > 0) assert_int_equal(hark_tensor_create(single->context, HARK_U8, 1, &bytes, &workspace), HARK_OK);
  call.workspace = workspace.data;
  call.workspace_bytes = (size_t)bytes;
  const hark_status status = hark_operator_forward(single->context, &call);
  hark_tensor_destroy(single->context, &workspace);
  assert_int_not_equal(status, HARK_OK);
  assert_string_not_equal(hark_context_message(single->context), "");
  return status;
}

void test_near_at(double actual, double expected, double tolerance, const char *file, int line) {
  if (fabs(actual - expected) <= tolerance) return;
  print_error("%s:%d: %.17g, expected %.17g within %g\n", file, line, actual, expected, tolerance);
  fail();
}

void test_numbers_at(const double *actual, const double *expected, int count, const char *file, int line) {
  for (int i = 0; i < count; i++) test_near_at(actual[i], expected[i], 0, file, line);
}
