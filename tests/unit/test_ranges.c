/* test_ranges.c - parameters of operators that are given as doubles and used in the tensors' type: what is out of its range is refused by
 * name, with the value and the range, and what f64 holds is taken there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <hark/hark.h>

#include "core/print_number.h"

typedef union attributes {
  hark_norm_attributes norm;
  hark_adamw_attributes adamw;
  hark_adafactor_attributes adafactor;
  hark_scale_attributes scale;
  hark_cross_entropy_attributes cross_entropy;
  hark_squared_error_attributes squared_error;
} attributes;

static attributes norm_of(double value) { return (attributes){.norm = {.epsilon = value}}; }
static attributes adamw_of(double rate, double epsilon, double decay) {
  return (attributes){
      .adamw = {.rate = rate, .beta1 = 0.9, .beta2 = 0.99, .epsilon = epsilon, .decay = decay, .gradient_scale = 1, .step = 1}};
}
static attributes epsilon_of(double value) { return adamw_of(1e-3, value, 0); }
static attributes rate_of(double value) { return adamw_of(value, 1e-8, 0); }
static attributes decay_of(double value) { return adamw_of(1e-3, 1e-8, value); }
static attributes gradient_scale_of(double value) {
  attributes given = adamw_of(1e-3, 1e-8, 0);
  given.adamw.gradient_scale = value;
  return given;
}
static attributes adafactor_of(double rate, double least_scale, double most) {
  return (attributes){.adafactor = {.rate = rate, .epsilon = 1e-30, .least_scale = least_scale, .most = most, .gradient_scale = 1}};
}
static attributes factored_rate_of(double value) { return adafactor_of(value, 0, 1); }
static attributes least_scale_of(double value) { return adafactor_of(1e-3, value, 1); }
static attributes most_of(double value) { return adafactor_of(1e-3, 0, value); }
static attributes scale_of(double value) { return (attributes){.scale = {.factor = value}}; }
static attributes cross_entropy_of(double value) { return (attributes){.cross_entropy = {.weight = value, .ignore = -1}}; }
static attributes z_of(double value) { return (attributes){.cross_entropy = {.weight = 1, .ignore = -1, .z = value}}; }
static attributes squared_error_of(double value) { return (attributes){.squared_error = {.weight = value}}; }

static const struct {
  const hark_operator *op;
  const char *field;
  attributes (*make)(double value);
  bool small_is_fine; /* what falls below the range is nothing, as a rate at the end of a schedule */
} cases[] = {{&hark_op_layer_norm, "epsilon", norm_of, false},
             {&hark_op_rms_norm, "epsilon", norm_of, false},
             {&hark_op_adamw, "epsilon", epsilon_of, false},
             {&hark_op_adamw, "rate", rate_of, true},
             {&hark_op_adamw, "decay", decay_of, true},
             {&hark_op_adamw, "gradient_scale", gradient_scale_of, true},
             {&hark_op_adafactor, "rate", factored_rate_of, true},
             {&hark_op_adafactor, "least_scale", least_scale_of, false},
             {&hark_op_adafactor, "most", most_of, false},
             {&hark_op_scale, "factor", scale_of, false},
             {&hark_op_cross_entropy, "weight", cross_entropy_of, false},
             {&hark_op_cross_entropy, "z", z_of, false},
             {&hark_op_squared_error, "weight", squared_error_of, false}};

static void check(hark_context *context, size_t i, hark_type type, double value, bool fits) {
  const hark_operator *op = cases[i].op;
  const attributes given = cases[i].make(value);
  const int64_t shape[] = {3, 4};
  hark_tensor inputs[HARK_MAX_INPUTS] = {{0}};
  hark_inferred inferred;
  char expected[96];
  for (int n = 0; n < op->input_minimum; n++) assert_int_equal(hark_tensor_describe(context, type, 2, shape, &inputs[n]), HARK_OK);
  if (op == &hark_op_layer_norm || op == &hark_op_rms_norm)
    for (int n = 1; n < op->input_minimum; n++) assert_int_equal(hark_tensor_describe(context, type, 1, shape + 1, &inputs[n]), HARK_OK);
  if (op == &hark_op_cross_entropy) assert_int_equal(hark_tensor_describe(context, HARK_I32, 1, shape, &inputs[1]), HARK_OK);
  memset(&inferred, 0, sizeof inferred);
  const hark_status status = op->infer(context, &given, inputs, op->input_minimum, &inferred);
  (void)snprintf(expected, sizeof expected, "%s: %s is %s, expected ", op->name, cases[i].field, HARK_PRINTED(value));
  if (status != (fits ? HARK_OK : HARK_INVALID_ARGUMENT))
    fail_msg("%s %s of %s = %g: %s: %s", hark_type_name(type), cases[i].field, op->name, value, hark_status_text(status),
             hark_context_message(context));
  if (!fits && strstr(hark_context_message(context), "nan") != NULL) fail_msg("'%s'", hark_context_message(context));
  if (!fits &&
      (strstr(hark_context_message(context), expected) == NULL || strstr(hark_context_message(context), hark_type_name(type)) == NULL))
    fail_msg("'%s' does not say '%s' and %s", hark_context_message(context), expected, hark_type_name(type));
}

static void test_parameters(void **state) {
  (void)state;
  hark_context *context;
  assert_int_equal(hark_context_create(NULL, &context), HARK_OK);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    static const double ordinary[] = {0, 1e-8, 1e-30, 1e30};
    for (size_t k = 0; k < sizeof ordinary / sizeof ordinary[0]; k++)
      for (int type = 0; type < 2; type++) check(context, i, type == 0 ? HARK_F32 : HARK_F64, ordinary[k], true);
    check(context, i, HARK_F32, 1e39, false);
    check(context, i, HARK_F64, 1e39, true);
    check(context, i, HARK_F32, 1e-40, cases[i].small_is_fine);
    check(context, i, HARK_F64, 1e-40, true);
  }
  hark_context_destroy(&context);
}

/* A scale that is not finite skips the step. */
static void test_skipped_step(void **state) {
  (void)state;
  hark_context *context;
  assert_int_equal(hark_context_create(NULL, &context), HARK_OK);
  const double scales[] = {NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t k = 0; cases[i].make == gradient_scale_of && k < 3; k++) check(context, i, HARK_F32, scales[k], true);
  hark_context_destroy(&context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_parameters), cmocka_unit_test(test_skipped_step)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
