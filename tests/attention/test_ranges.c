/* test_ranges.c - parameters that are given as doubles and used in f32 or f64: out of the type's range they are refused with the field, the
 * value and the range; at the ends of it, and wherever the mathematics is defined, results are those of the definition.
 */
#include "core/print_number.h"
#include "kernel_ridge_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hark/hark.h>

/* ---- plans ---- */

typedef struct field_case {
  const char *field;
  hark_attention_kernel kernel;
  hark_attention_normalisation normalisation;
  double scale, sigma, ridge;
  bool fits_f32, fits_f64;
} field_case;

#define EXP HARK_KERNEL_EXP
#define RBF HARK_KERNEL_RBF
#define SOFTMAX HARK_NORMALISATION_SOFTMAX
#define CME HARK_NORMALISATION_CME

static const field_case fields[] = {
    {"scale", EXP, SOFTMAX, 1e39, 0, 0, false, true},     {"scale", EXP, SOFTMAX, -1e39, 0, 0, false, true},
    {"scale", EXP, SOFTMAX, 3e38, 0, 0, false, true},     {"scale", EXP, SOFTMAX, 5e30, 0, 0, true, true},
    {"scale", EXP, SOFTMAX, 1e-37, 0, 0, true, true},     {"scale", EXP, SOFTMAX, 1e-39, 0, 0, false, true},
    {"scale", EXP, SOFTMAX, 1.7e308, 0, 0, false, false}, {"scale", EXP, CME, 1e39, 0, 1, false, true},
    {"sigma", RBF, SOFTMAX, 0, 1e20, 0, false, true},     {"sigma", RBF, SOFTMAX, 0, 9e18, 0, true, true},
    {"sigma", RBF, SOFTMAX, 0, 1e-10, 0, true, true},     {"sigma", RBF, SOFTMAX, 0, 1e-19, 0, false, true},
    {"sigma", RBF, SOFTMAX, 0, 1e-150, 0, false, false},  {"sigma", RBF, SOFTMAX, 0, 1e200, 0, false, false},
    {"sigma", RBF, CME, 0, 1e-20, 1, false, true},        {"sigma", RBF, CME, 0, 1e30, 1, false, true},
    {"ridge", RBF, CME, 0, 1, 1e39, false, true},         {"ridge", RBF, CME, 0, 1, 1e-39, false, true},
    {"ridge", EXP, CME, 1, 0, 1e-30, true, true},         {"ridge", EXP, CME, 1, 0, 1e-310, false, false},
};

static void check_plan(const char *backend, const field_case *c, hark_attention_structure structure, hark_type type) {
  const hark_context_options options = {.struct_size = sizeof options, .backend = backend, .threads = 1};
  const bool fits = type == HARK_F32 ? c->fits_f32 : c->fits_f64;
  const double value = strcmp(c->field, "scale") == 0 ? c->scale : strcmp(c->field, "sigma") == 0 ? c->sigma : c->ridge;
  hark_context *context;
  char expected[64];
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = type;
  desc.structure = structure;
  desc.kernel = c->kernel;
  desc.normalisation = c->normalisation;
  desc.batch = desc.heads = desc.key_heads = 1;
  desc.query_length = desc.key_length = desc.head_dim = 8;
  desc.scale = c->scale;
  desc.sigma = c->sigma;
  desc.ridge = c->ridge;
  const hark_status status = hark_attention_supports(context, &desc);
  (void)snprintf(expected, sizeof expected, "attention: %s is %s, expected ", c->field, HARK_PRINTED(value));
  const char *message = hark_context_message(context);
  if (fits ? status != HARK_OK : status != HARK_INVALID_ARGUMENT)
    fail_msg("%s, %s %g on %s: %s: %s", hark_type_name(type), c->field, value, backend, hark_status_text(status), message);
  if (!fits && (strstr(message, expected) != message || strstr(message, hark_type_name(type)) == NULL))
    fail_msg("%s %g on %s: '%s' does not say '%s' and the type", c->field, value, backend, message, expected);
  hark_context_destroy(&context);
}

static void test_plans(void **state) {
  (void)state;
  static const char *const backends[] = {"reference", "cpu"};
  static const hark_attention_structure structures[] = {HARK_STRUCTURE_DENSE, HARK_STRUCTURE_WINDOW, HARK_STRUCTURE_HIERARCHICAL};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    for (size_t b = 0; b < 2; b++)
      for (size_t s = 0; s < (fields[i].normalisation == CME ? 1 : 3); s++) {
        check_plan(backends[b], &fields[i], structures[s], HARK_F32);
        check_plan(backends[b], &fields[i], structures[s], HARK_F64);
      }
}

/* ---- softmax near the ends ---- */

#define LARGEST 1e18 /* queries and keys */

static void multiply(attention_numbers *numbers, double factor) {
  for (int64_t i = 0; i < numbers->count; i++) numbers->data[i] = (double)(float)(factor * numbers->data[i]);
}

/* Results at a scale or sigma, queries and keys being of a size that makes ordinary logits of it. gain: a factor of dout; 0: none, and no
 * gradients by queries and keys, which may be beyond the range. */
static void check_softmax(const char *text, double scale, double sigma, double size, double gain) {
  for (int m = 0; m < attention_machine_count; m++) {
    attention_problem p;
    attention_expected expected;
    attention_results results;
    attention_problem_make(text, &p);
    multiply(&p.array[ARRAY_QUERY], size);
    multiply(&p.array[ARRAY_KEY], size);
    if (scale != 0) p.scale = p.given_scale = scale;
    if (sigma != 0) p.sigma = sigma;
    if (gain == 0) p.unwanted = 1u << ARRAY_DQUERY | 1u << ARRAY_DKEY;
    if (gain != 0) multiply(&p.array[ARRAY_DOUT], gain);
    attention_expected_make(&p, &expected);
    if (attention_run_on(&attention_machines[m], &p, &results)) {
      if (attention_compare(&attention_machines[m], &p, &expected, &results) != 0)
        fail_msg("'%s' on %s with scale %g, sigma %g, sizes %g", text, attention_machines[m].name, scale, sigma, size);
      attention_results_free(&results);
    }
    attention_expected_free(&expected);
    attention_problem_free(&p);
  }
}

static void test_softmax(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L9,S20,D5", "dense:H2,L70,D8,causal,mask", "window:H2,L70,D8,W9",
                                      "hierarchical:H2,L40,D8,N4,mean"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check_softmax(cases[i], 5e30, 0, 4e-16, 0); /* q k = 1e-31 */
    check_softmax(cases[i], 1e-37, 0, 1e18, 0);
    check_softmax(cases[i], 1e-37, 0, 1, 0); /* logits of nothing */
  }
}

/* Gradients by queries and keys that are small because of the scale, but of ordinary size for f32. */
static void test_gradients(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L9,S20,D5", "dense:H2,L70,D8,causal", "window:H2,L70,D8,W9", "dense:H2,L70,D8,causal,stick",
                                      "hierarchical:H2,L40,D8,N4,mean"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_softmax(cases[i], 2e-38, 0, 1, 1e20);
}

static void test_rbf(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L9,S20,D5,rbf", "dense:H2,L70,D8,causal,rbf", "window:H2,L70,D8,W9,rbf",
                                      "hierarchical:H2,L40,D8,N4,mean,rbf"};
  static const double sigmas[] = {5e-16, 1e-10, 1e-5, 1e5, 1e10, 9e18};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t s = 0; s < sizeof sigmas / sizeof sigmas[0]; s++)
      check_softmax(cases[i], 0, sigmas[s], fmin(sigmas[s], LARGEST), 0); /* whose squares f32 holds */
}

/* A sigma far smaller than distances: the row is where its nearest key is. Log-sum-exp is a number, and weights sum to one. */
static void test_small_sigma(void **state) {
  (void)state;
  static const char *const cases[] = {"dense:H2,L9,S20,D5,rbf", "dense:H2,L70,D8,causal,rbf", "window:H2,L70,D8,W9,rbf",
                                      "hierarchical:H2,L40,D8,N4,mean,rbf"};
  static const double sigmas[] = {1e-3, 1e-6, 1e-10, 5e-16};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t s = 0; s < sizeof sigmas / sizeof sigmas[0]; s++)
      for (int m = 0; m < attention_machine_count; m++) {
        attention_problem p;
        attention_results r;
        attention_problem_make(cases[i], &p);
        p.sigma = sigmas[s];
        for (int64_t k = 0; k < p.array[ARRAY_VALUE].count; k++) p.array[ARRAY_VALUE].data[k] = 1;
        for (int64_t k = 0; k < p.array[ARRAY_DOUT].count; k++) p.array[ARRAY_DOUT].data[k] = 1;
        if (attention_run_on(&attention_machines[m], &p, &r)) {
          for (int64_t k = 0; k < r.count[ARRAY_LSE]; k++)
            if (!isfinite(r.data[ARRAY_LSE][k]))
              fail_msg("'%s' on %s, sigma %g: log_sum_exp[%d] is %g", cases[i], attention_machines[m].name, p.sigma, (int)k,
                       r.data[ARRAY_LSE][k]);
          for (int64_t k = 0; k < r.count[ARRAY_OUT]; k++)
            if (!(fabs(r.data[ARRAY_OUT][k] - 1) < 1e-4))
              fail_msg("'%s' on %s, sigma %g: out[%d] is %g of values of one", cases[i], attention_machines[m].name, p.sigma, (int)k,
                       r.data[ARRAY_OUT][k]);
          double weights = 0; /* of all rows, once for every feature */
          for (int64_t k = 0; k < r.count[ARRAY_DVALUE]; k++) weights += r.data[ARRAY_DVALUE][k];
          if (!(fabs(weights / (double)r.count[ARRAY_OUT] - 1) < 1e-4))
            fail_msg("'%s' on %s, sigma %g: the backward's weights sum to %g of %d", cases[i], attention_machines[m].name, p.sigma, weights,
                     (int)r.count[ARRAY_OUT]);
          attention_results_free(&r);
        }
        attention_problem_free(&p);
      }
}

/* What a message says is accepted: the ends of a range are rounded inwards. */
static void check_printed(hark_context *context, const char *field, hark_attention_kernel kernel, hark_type type) {
  hark_attention_desc desc = hark_attention_desc_default();
  double *const value = strcmp(field, "sigma") == 0 ? &desc.sigma : &desc.scale;
  desc.type = type;
  desc.kernel = kernel;
  desc.batch = desc.heads = desc.key_heads = 1;
  desc.query_length = desc.key_length = desc.head_dim = 8;
  *value = 1e-320;
  assert_int_equal(hark_attention_supports(context, &desc), HARK_INVALID_ARGUMENT);
  char message[256];
  (void)snprintf(message, sizeof message, "%s", hark_context_message(context));
  const char *at = strstr(message, "magnitude of ");
  at = at != NULL ? at + strlen("magnitude of ") : strstr(message, "expected ") + strlen("expected ");
  char *end;
  const double least = strtod(at, &end), most = strtod(end + strlen(" to "), NULL), ends[] = {least, most};
  for (int i = 0; i < 2; i++) {
    *value = ends[i];
    if (hark_attention_supports(context, &desc) != HARK_OK) fail_msg("'%s': %s", message, hark_context_message(context));
    *value = i == 0 ? least * 0.99 : most * 1.01; /* three digits are all that is lost */
    if (hark_attention_supports(context, &desc) != HARK_INVALID_ARGUMENT) fail_msg("'%s': %g is taken", message, *value);
  }
}

static void test_printed_ranges(void **state) {
  (void)state;
  const hark_context_options options = {.struct_size = sizeof options, .backend = "cpu", .threads = 1};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  for (int type = 0; type < 2; type++) {
    check_printed(context, "sigma", RBF, type == 0 ? HARK_F32 : HARK_F64);
    check_printed(context, "scale", EXP, type == 0 ? HARK_F32 : HARK_F64);
  }
  hark_context_destroy(&context);
}

/* ---- CME ---- */

static void check_cme(const ridge_problem *p) {
  ridge_expected expected;
  ridge_expected_make(p, &expected);
  for (int m = 0; m < attention_machine_count; m++) {
    const double u = attention_machines[m].computing_roundoff + attention_machines[m].storing_roundoff;
    ridge_results r;
    if (!ridge_run_on(&attention_machines[m], p, &r)) continue;
    if (r.status != HARK_OK) fail_msg("'%s' on %s: %s", p->text, attention_machines[m].name, r.message);
    for (int64_t i = 0; i < p->count[RIDGE_DOUT]; i++)
      if (!(fabs(r.array[RIDGE_OUT][i] - expected.out[i]) <= u * expected.out_bound[i]))
        fail_msg("'%s' on %s: out[%d] is %.9g, expected %.9g", p->text, attention_machines[m].name, (int)i, r.array[RIDGE_OUT][i],
                 expected.out[i]);
    ridge_results_free(&r);
  }
  ridge_expected_free(&expected);
}

static void scale_rows(ridge_problem *p, double factor) {
  for (int a = RIDGE_QUERY; a <= RIDGE_KEY; a++)
    for (int64_t i = 0; i < p->count[a]; i++) p->array[a][i] = (double)(float)(factor * p->array[a][i]);
}

/* Tiny and huge keys: the kernel is one everywhere, or with unit rows what it is of rows of any length; a sigma of their size does as
 * well. */
static void test_cme_sizes(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B1,H2,L40,D6,causal", "cme:B1,H2,L40,D6", "cme:B1,H2,L40,D6,rbf,causal", "cme:B1,H2,L40,D6,rbf"},
                           *const units[] = {"cme:B1,H2,L40,D6,unit,causal", "cme:B1,H2,L40,D6,unit", "cme:B1,H2,L40,D6,unit,rbf"};
  static const double sizes[] = {1e-20, 1e-30, 1e-38, 1e-10, 1e10, 1e18};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ridge_problem p;
    ridge_problem_make(cases[i], &p);
    scale_rows(&p, 1e-20);
    check_cme(&p);
    ridge_problem_free(&p);
  }
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
      ridge_problem p;
      ridge_problem_make(units[i], &p);
      scale_rows(&p, sizes[k]);
      check_cme(&p);
      ridge_problem_free(&p);
    }
  static const double sigmas[] = {1e-15, 1e-10, 1e10, 4e18};
  for (size_t k = 0; k < sizeof sigmas / sizeof sigmas[0]; k++) {
    ridge_problem p;
    ridge_problem_make("cme:B1,H2,L40,D6,rbf,causal", &p);
    scale_rows(&p, sigmas[k]);
    p.sigma *= sigmas[k];
    check_cme(&p);
    ridge_problem_free(&p);
  }
  for (int causal = 0; causal < 2; causal++) { /* squares of rows are beyond f32, distances are not */
    ridge_problem p;
    ridge_problem_make(causal ? "cme:B1,H2,L40,D6,rbf,causal" : "cme:B1,H2,L40,D6,rbf", &p);
    scale_rows(&p, 2e19);
    p.sigma = 9e18;
    check_cme(&p);
    ridge_problem_free(&p);
  }
}

/* Ridges and sigmas that calls carry: the head is named. */
static void test_cme_tensors(void **state) {
  (void)state;
  static const struct {
    ridge_array array;
    double value;
    bool fits_f64;
    const char *says;
  } cases[] = {{RIDGE_SIGMA, 1e20, true, "sigma of head 1 is 1.0000000200408773e20"},
               {RIDGE_SIGMA, 1e-19, true, "sigma of head 1 is 9.999999682655225e-20"},
               {RIDGE_SIGMA, 1e-20, true, "sigma of head 1 is 9.999999682655225e-21"},
               {RIDGE_RIDGE, 1e-40, true, "ridge of head 1 is 9.99994610111476e-41"},
               {RIDGE_RIDGE, INFINITY, false, "ridge of head 1 is inf"},
               {RIDGE_SIGMA, NAN, false, "sigma of head 1 is "}};
  static const char *const texts[] = {"cme:B1,H2,L20,D6,rbf,heads", "cme:B1,H2,L20,D6,rbf,heads,causal"};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (size_t k = 0; k < 2; k++)
      for (int m = 0; m < attention_machine_count; m++) {
        const bool fits = attention_machines[m].type == HARK_F64 && cases[i].fits_f64;
        ridge_problem p;
        ridge_results r;
        ridge_problem_make(texts[k], &p);
        p.array[cases[i].array][1] = (double)(float)cases[i].value;
        if (ridge_run_on(&attention_machines[m], &p, &r)) {
          if (!fits && (r.status != HARK_INVALID_ARGUMENT || strstr(r.message, cases[i].says) == NULL))
            fail_msg("%s on %s: %s: %s", cases[i].says, attention_machines[m].name, hark_status_text(r.status), r.message);
          if (fits && r.status != HARK_OK) fail_msg("%s on %s: %s", cases[i].says, attention_machines[m].name, r.message);
          ridge_results_free(&r);
        }
        ridge_problem_free(&p);
      }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans),       cmocka_unit_test(test_softmax),
                                     cmocka_unit_test(test_gradients),   cmocka_unit_test(test_rbf),
                                     cmocka_unit_test(test_small_sigma), cmocka_unit_test(test_cme_sizes),
                                     cmocka_unit_test(test_cme_tensors), cmocka_unit_test(test_printed_ranges)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
