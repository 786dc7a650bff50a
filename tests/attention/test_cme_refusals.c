/* test_cme_refusals.c - kernel ridge attention: what is refused or reported, with the place of what is wrong; and what a plan promises,
 * operations and memory.
 */
#include "kernel_ridge_case.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Noise that is no number from 0, and a ridge and noise of 0, are refused with item, head and row. */
static void test_wrong_noise(void **state) {
  (void)state;
  static const struct {
    bool learned; /* the ridge is an argument of the call */
    double ridge, noise;
    const char *text;
  } cases[] = {{false, 1, -0.5, "item 1, head 0: the noise of key row 66 is -0.5, expected a number from 0"},
               {false, 1, NAN, "item 1, head 0: the noise of key row 66 is nan, expected a number from 0"},
               {false, 1, INFINITY, "item 1, head 0: the noise of key row 66 is inf, expected a number from 0"},
               {false, 0, 0, "item 1, head 0: ridge and noise of key row 66 are 0, expected one of them above 0"},
               {true, 0, 0, "item 1, head 0: ridge and noise of key row 66 are 0, expected one of them above 0"},
               {true, -1, 0.5, "ridge of head 0 is -1, expected a finite number from 0"},
               {true, NAN, 0.5, "ridge of head 0 is nan, expected a finite number from 0"}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(cases[k].learned ? "cme:B2,H2,L70,D4,noise,learned" : "cme:B2,H2,L70,D4,noise", &p);
      p.ridge = cases[k].ridge;
      if (cases[k].learned) p.array[RIDGE_RIDGE][0] = cases[k].ridge;
      p.array[RIDGE_NOISE][2 * 70 + 66] = cases[k].noise;
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_INVALID_ARGUMENT);
        if (strstr(r.message, cases[k].text) == NULL) fail_msg("%s: \"%s\"", attention_machines[m].name, r.message);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* A number in an input of "cme:B2,H3,L66,D4,learned,rbf,shared", and what the failure says. */
static const struct {
  ridge_array array;
  int64_t at;
  double value;
  hark_status status;
  const char *says;
} wrong_numbers[] = {
    {RIDGE_QUERY, ((1 * 3 + 2) * 66 + 65) * 4 + 1, NAN, HARK_NOT_FINITE, "item 1, head 2: the query of row 65 is not finite"},
    {RIDGE_KEY, ((1 * 3 + 0) * 66 + 3) * 4, INFINITY, HARK_NOT_FINITE, "item 1, head 0: the key of row 3 is not finite"},
    {RIDGE_VALUE, ((0 * 3 + 1) * 66 + 64) * 4 + 3, NAN, HARK_NOT_FINITE, "item 0, head 1: the value of row 64 is not finite"},
    {RIDGE_RIDGE, 0, 0, HARK_INVALID_ARGUMENT, "ridge of head 0 is 0, expected a finite number above 0"},
    {RIDGE_RIDGE, 0, -1, HARK_INVALID_ARGUMENT, "ridge of head 0 is -1"},
    {RIDGE_RIDGE, 0, NAN, HARK_INVALID_ARGUMENT, "ridge of head 0 is nan"},
    {RIDGE_SIGMA, 0, 0, HARK_INVALID_ARGUMENT, "sigma of head 0 is 0, expected a finite number above 0"},
    {RIDGE_SIGMA, 0, INFINITY, HARK_INVALID_ARGUMENT, "sigma of head 0 is inf"},
    {RIDGE_LOG_KERNEL, 7, NAN, HARK_NOT_FINITE, "log_kernel of head 0 is nan at distance 7"},
    {RIDGE_LOG_KERNEL, 0, 301, HARK_NOT_FINITE, "log_kernel of head 0 is 301 at distance 0"},
};

/* Of several wrong rows of a head that threads share the first one is reported, whichever thread comes upon it. */
static void test_first_wrong_row(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++)
    for (int round = 0; round < 4; round++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make("cme:B1,H1,L300,D4,causal,rbf,threads=4", &p);
      for (int64_t row = 70; row < 300; row += 11) p.array[RIDGE_QUERY][row * 4] = NAN;
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_NOT_FINITE);
        assert_non_null(strstr(r.message, "item 0, head 0: the query of row 70 is not finite"));
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

static void test_wrong_numbers(void **state) {
  (void)state;
  for (size_t k = 0; k < sizeof wrong_numbers / sizeof wrong_numbers[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make("cme:B2,H3,L66,D4,learned,rbf,shared", &p);
      p.array[wrong_numbers[k].array][wrong_numbers[k].at] = wrong_numbers[k].value;
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, wrong_numbers[k].status);
        if (strstr(r.message, wrong_numbers[k].says) == NULL)
          fail_msg("%s on %s: \"%s\", expected \"%s\"", p.text, attention_machines[m].name, r.message, wrong_numbers[k].says);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* Values whose weighted sums leave f32. */
static void test_overflow(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    ridge_problem p;
    ridge_results r;
    ridge_problem_make("cme:B1,H1,L9,D4,ridge=0.001", &p);
    for (int64_t i = 0; i < p.count[RIDGE_VALUE]; i++) p.array[RIDGE_VALUE][i] = i / 4 % 2 == 0 ? 0x1.8p127 : -0x1.8p127;
    if (attention_machines[m].type == HARK_F32 && ridge_run_on(&attention_machines[m], &p, &r)) {
      assert_int_equal(r.status, HARK_NOT_FINITE);
      assert_non_null(strstr(r.message, "item 0, head 0: the result of query row "));
      ridge_results_free(&r);
    }
    ridge_problem_free(&p);
  }
}

/* Exponentials that leave the range name head and row; the same with a bound or unit rows is fine. */
static void test_unbounded_exponential(void **state) {
  (void)state;
  static const struct {
    const char *text, *says;
    double query, key;
  } cases[] = {{"cme:B1,H2,L9,D4", "item 0, head 1, key row 6: the kernel's exponent is", 1, 40},
               {"cme:B1,H2,L9,D4,causal", "item 0, head 1, query row 6: the kernel's exponent is", 4000, 1},
               {"cme:B1,H2,L9,D4,unit", NULL, 4000, 40}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(cases[k].text, &p);
      for (int64_t c = 0; c < 4; c++) {
        const double sign = p.array[RIDGE_KEY][(9 + 6) * 4 + c] < 0 ? -1 : 1;
        p.array[RIDGE_KEY][(9 + 6) * 4 + c] = sign * 0.5 * cases[k].key;
        p.array[RIDGE_QUERY][(9 + 6) * 4 + c] = sign * cases[k].query;
      }
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, cases[k].says == NULL ? HARK_OK : HARK_NOT_FINITE);
        if (cases[k].says != NULL && strstr(r.message, cases[k].says) == NULL)
          fail_msg("%s on %s: \"%s\", expected \"%s\"", p.text, attention_machines[m].name, r.message, cases[k].says);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* The gradient by a variance needs kappa(q, q), which only the backward computes if the forward had no variance: the same range, also for
 * a query that sees no key, and whatever dvariance is. */
static void test_own_kernel(void **state) {
  (void)state;
  static const struct {
    const char *text;
    double squares; /* |q|^2 */
  } cases[] = {{"cme:B2,H2,L70,D4,dvariance,plain", 128},
               {"cme:B2,H2,L70,D4,dvariance,plain", 1800},
               {"cme:B2,H2,L70,D4,dvariance,plain,causal", 64},
               {"cme:B2,H2,L70,D4,dvariance,plain,causal,offset=-68", 1800},
               {"cme:B2,H2,L70,D4,plain", 1800},
               {"cme:B2,H2,L70,D4,dvariance,plain,rbf", 1800}};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int zero = 0; zero < 2; zero++)
      for (int m = 0; m < attention_machine_count; m++) {
        ridge_problem p;
        ridge_results r;
        ridge_problem_make(cases[k].text, &p);
        memset(p.array[RIDGE_KEY], 0, (size_t)p.count[RIDGE_KEY] * sizeof(double));
        for (int64_t row = 66; row < 69; row++) /* of item 1, head 0 */
          for (int64_t c = 0; c < 4; c++) p.array[RIDGE_QUERY][(2 * 70 + row) * 4 + c] = (double)(float)sqrt(cases[k].squares / 4);
        if (zero && p.dvariance) memset(p.array[RIDGE_DVARIANCE], 0, (size_t)p.count[RIDGE_DVARIANCE] * sizeof(double));
        const double limit = attention_machines[m].type == HARK_F64 ? 300 : 40;
        const bool fails = p.dvariance && !p.rbf && p.scale * cases[k].squares > limit;
        if (ridge_run_on(&attention_machines[m], &p, &r)) {
          const char *const says = fails ? "item 1, head 0, query row 66: the kernel's exponent is" : "";
          if (r.status != (fails ? HARK_NOT_FINITE : HARK_OK) || strstr(r.message, says) == NULL)
            fail_msg("%s on %s: %s \"%s\", expected \"%s\"", p.text, attention_machines[m].name, hark_status_name(r.status), r.message,
                     says);
          for (int a = RIDGE_DQUERY; a < RIDGE_ARRAYS && !fails; a++)
            for (int64_t i = 0; r.array[a] != NULL && i < ridge_count_of(&p, (ridge_array)a); i++) assert_true(isfinite(r.array[a][i]));
          ridge_results_free(&r);
        }
        ridge_problem_free(&p);
      }
}

/* An element of a gradient that is not finite reaches its own query, and the keys that its row sees, of its sequence and head. Values do
 * not depend on a variance, nor queries and values on a log-determinant, nor queries on a quadratic form. */
static void test_gradients_not_finite(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B2,H2,L70,D4,rbf,noise,dvariance,determinant,quadratic",
                                      "cme:B2,H2,L70,D4,causal,noise,dvariance,determinant,quadratic"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int given = RIDGE_DOUT; given <= RIDGE_DQUADRATIC; given++)
      for (int m = 0; m < attention_machine_count; m++) {
        ridge_problem p;
        ridge_results r;
        ridge_problem_make(cases[k], &p);
        const int64_t row = 2 * 70 + 30; /* item 1, head 0, row 30 */
        const bool of_values = given == RIDGE_DOUT || given == RIDGE_DQUADRATIC;
        p.array[given][of_values ? row * 4 + 1 : row] = NAN;
        if (ridge_run_on(&attention_machines[m], &p, &r)) {
          assert_int_equal(r.status, HARK_OK);
          for (int a = RIDGE_DQUERY; a < RIDGE_ARRAYS; a++)
            for (int64_t i = 0; r.array[a] != NULL && i < ridge_count_of(&p, (ridge_array)a); i++) {
              const int64_t at = a == RIDGE_DNOISE ? i : i / 4;
              const bool apart =
                  a == RIDGE_DVALUE ? !of_values : a == RIDGE_DQUERY && (given == RIDGE_DLOG_DETERMINANT || given == RIDGE_DQUADRATIC);
              const bool finite = apart || at / 70 != 2 || (a == RIDGE_DQUERY && at != row);
              const bool reached = !apart && at / 70 == 2 && (a == RIDGE_DQUERY ? at == row : at <= row);
              if (a == RIDGE_DVALUE && reached && i % 4 != 1) continue; /* columns of values are apart */
              if ((finite && !isfinite(r.array[a][i])) || (reached && isfinite(r.array[a][i])))
                fail_msg("%s on %s: %s has a NaN, and %s[%d] is %g", p.text, attention_machines[m].name, ridge_array_names[given],
                         ridge_array_names[a], (int)i, r.array[a][i]);
            }
          ridge_results_free(&r);
        }
        ridge_problem_free(&p);
      }
}

/* Descriptors that are refused, one wrong field each. */
static void test_refused_descriptors(void **state) {
  (void)state;
  const hark_attention_desc good = {.struct_size = sizeof good,
                                    .type = HARK_F32,
                                    .normalisation = HARK_NORMALISATION_CME,
                                    .batch = 1,
                                    .heads = 2,
                                    .query_length = 4,
                                    .key_length = 4,
                                    .head_dim = 4,
                                    .ridge = 1};
  hark_attention_desc wrong[32];
  const char *says[32];
  int count = 0;
#define WRONG(text, ...)                                                                                                                   \
  do {                                                                                                                                     \
    hark_attention_desc d = good;                                                                                                          \
    __VA_ARGS__;                                                                                                                           \
    says[count] = (text);                                                                                                                  \
    wrong[count++] = d;                                                                                                                    \
  } while (0)
  WRONG("ridge is 0 with normalisation cme", d.ridge = 0);
  WRONG("ridge is -1 with normalisation cme", d.ridge = -1);
  WRONG("ridge is inf with normalisation cme", d.ridge = INFINITY);
  WRONG("ridge is 1 with has_ridge", d.has_ridge = true);
  WRONG("ridge_power is 2, expected 0 to 1", d.ridge_power = 2);
  WRONG("ridge_power is 0.5 and causal is set", (d.ridge_power = 0.5, d.causal = true));
  WRONG("has_sigma and kernel exp", d.has_sigma = true);
  WRONG("sigma is 1 with has_sigma", (d.kernel = HARK_KERNEL_RBF, d.has_sigma = true, d.sigma = 1));
  WRONG("bound is 1 with kernel rbf", (d.kernel = HARK_KERNEL_RBF, d.sigma = 1, d.bound = 1));
  WRONG("bound is -1, expected a finite number", d.bound = -1);
  WRONG("bound is 2 with unit", (d.unit = true, d.bound = 2));
  WRONG("is beyond 80, the range", (d.scale = 100, d.bound = 1));
  WRONG("scale is -1 with normalisation cme", d.scale = -1);
  WRONG("structure is window with normalisation cme", (d.structure = HARK_STRUCTURE_WINDOW, d.window = 1));
  WRONG("has_bias with normalisation cme", d.has_bias = true);
  WRONG("has_forget with normalisation cme", (d.has_forget = true, d.causal = true));
  WRONG("dropout with normalisation cme", d.dropout = 0.5);
  WRONG("ridge is 1 with normalisation softmax", d.normalisation = HARK_NORMALISATION_SOFTMAX);
  WRONG("has_dvariance is 2, expected 0 or 1", d.has_dvariance = 2);
  WRONG("has_dvariance is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_dvariance = 1));
  WRONG("has_noise is 7, expected 0 or 1", d.has_noise = 7);
  WRONG("has_noise is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_noise = 1));
  WRONG("ridge is -1 with normalisation cme, expected a finite number from 0", (d.ridge = -1, d.has_noise = 1));
  WRONG("has_dlog_determinant is -1, expected 0 or 1", d.has_dlog_determinant = -1);
  WRONG("has_dlog_determinant is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_dlog_determinant = 1));
  WRONG("has_dquadratic is 3, expected 0 or 1", d.has_dquadratic = 3);
  WRONG("has_dquadratic is 1 with normalisation softmax, expected 0",
        (d.normalisation = HARK_NORMALISATION_SOFTMAX, d.ridge = 0, d.has_dquadratic = 1));
#undef WRONG
  hark_context *context = attention_machine_open(&attention_machines[2], 1);
  for (int i = 0; i < count; i++) {
    assert_true(hark_attention_supports(context, &wrong[i]) != HARK_OK);
    if (strstr(hark_context_message(context), says[i]) == NULL) fail_msg("\"%s\", expected \"%s\"", hark_context_message(context), says[i]);
  }
  assert_int_equal(hark_attention_supports(context, &good), HARK_OK);
  hark_context_destroy(&context);
}

#define ALIGNMENT 64 /* of the parts of a workspace */

/* ---- statistics, noise and their gradients ---- */

static void assert_fine(const hark_context *context, hark_status status) {
  if (status != HARK_OK) fail_msg("%s", hark_context_message(context));
}

enum { ROWS = 4, DIM = 2, TENSORS = 6 };

/* A call of one head with all of them, and three plans: with all that they need, without, and of softmax. */
typedef struct statistic_call {
  hark_context *context;
  hark_attention_plan *plans[3];
  void *workspace, *saved;
  float rows[ROWS * DIM], out[ROWS * DIM], dkey[ROWS * DIM], numbers[TENSORS][ROWS];
  hark_attention_args args;
} statistic_call;

static const struct {
  const char *name, *field; /* of the descriptor, without which it is refused */
  size_t at;
  bool result, backward;
} statistic_tensors[TENSORS] = {
    {"variance", NULL, offsetof(hark_attention_args, variance), true, false},
    {"log_determinant", NULL, offsetof(hark_attention_args, log_determinant), true, false},
    {"noise", "has_noise", offsetof(hark_attention_args, noise), false, false},
    {"dvariance", "has_dvariance", offsetof(hark_attention_args, dvariance), false, true},
    {"dlog_determinant", "has_dlog_determinant", offsetof(hark_attention_args, dlog_determinant), false, true},
    {"dnoise", "has_noise", offsetof(hark_attention_args, dnoise), true, true},
};

static hark_tensor *statistic_tensor(hark_attention_args *args, int i) {
  return (hark_tensor *)(void *)((char *)args + statistic_tensors[i].at);
}

static void statistic_open(statistic_call *c) {
  *c = (statistic_call){.context = attention_machine_open(&attention_machines[2], 1)};
  size_t bytes = 0;
  for (int i = 0; i < 3; i++) {
    hark_attention_desc desc = hark_attention_desc_default();
    desc.batch = desc.heads = 1;
    desc.query_length = desc.key_length = ROWS;
    desc.head_dim = DIM;
    desc.normalisation = i < 2 ? HARK_NORMALISATION_CME : HARK_NORMALISATION_SOFTMAX;
    desc.ridge = i < 2;
    desc.has_dvariance = desc.has_dlog_determinant = desc.has_dquadratic = desc.has_noise = i == 0;
    assert_fine(c->context, hark_attention_plan_create(c->context, &desc, &c->plans[i]));
    const hark_attention_sizes sizes = hark_attention_plan_sizes(c->plans[i]);
    bytes += sizes.forward_workspace + sizes.backward_workspace + sizes.saved + ALIGNMENT;
  }
  c->workspace = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
  c->saved = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
  assert_true(c->workspace != NULL && c->saved != NULL);
  c->args = (hark_attention_args){.struct_size = sizeof c->args, .workspace = c->workspace, .saved = c->saved};
  const int64_t row_shape[] = {1, 1, ROWS, DIM}, shape[] = {1, 1, ROWS};
  hark_tensor *const of_rows[] = {&c->args.query, &c->args.key, &c->args.value, &c->args.dout, &c->args.out, &c->args.dkey};
  for (int i = 0; i < 6; i++)
    assert_fine(c->context, hark_tensor_wrap(c->context,
                                             i < 4    ? c->rows
                                             : i == 4 ? c->out
                                                      : c->dkey,
                                             HARK_F32, 4, row_shape, NULL, of_rows[i]));
  for (int i = 0; i < TENSORS; i++)
    assert_fine(c->context, hark_tensor_wrap(c->context, c->numbers[i], HARK_F32, 3, shape, NULL, statistic_tensor(&c->args, i)));
}

static void statistic_close(statistic_call *c) {
  for (int i = 0; i < 3; i++) hark_attention_plan_destroy(c->context, &c->plans[i]);
  free(c->workspace);
  free(c->saved);
  hark_context_destroy(&c->context);
}

/* A call in the direction that takes tensor i. */
static hark_status statistic_run(const statistic_call *c, int plan, int i, const hark_attention_args *args) {
  return (statistic_tensors[i].backward ? hark_attention_backward : hark_attention_forward)(c->context, c->plans[plan], args);
}

static void expect_refused(const statistic_call *c, int plan, int i, const hark_attention_args *args, hark_status status,
                           const char *says) {
  const hark_status have = statistic_run(c, plan, i, args);
  const char *const message = hark_context_message(c->context);
  if (have != status || strstr(message, statistic_tensors[i].name) == NULL || strstr(message, says) == NULL)
    fail_msg("%s: %s \"%s\", expected %s, %s", statistic_tensors[i].name, hark_status_name(have), message, hark_status_name(status), says);
}

/* Type, shape, strides, and memory that a result has too. */
static void test_refused_statistics(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  const int64_t shape[] = {1, 1, ROWS}, strides[] = {2 * ROWS, 2 * ROWS, 2};
  for (int i = 0; i < TENSORS; i++) {
    assert_fine(c.context, statistic_run(&c, 0, i, &c.args));
    hark_attention_args wrong = c.args;
    double wide[ROWS];
    assert_fine(c.context, hark_tensor_wrap(c.context, wide, HARK_F64, 3, shape, NULL, statistic_tensor(&wrong, i)));
    expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "is f64, expected f32");
    wrong = c.args;
    statistic_tensor(&wrong, i)->shape[2] = ROWS - 1;
    expect_refused(&c, 0, i, &wrong, HARK_SHAPE_MISMATCH, "expected [1, 1, 4]");
    wrong = c.args;
    float apart[2 * ROWS] = {0};
    assert_fine(c.context, hark_tensor_wrap(c.context, apart, HARK_F32, 3, shape, strides, statistic_tensor(&wrong, i)));
    if (statistic_tensors[i].field == NULL || statistic_tensors[i].field[strlen("has_")] == 'd')
      expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "is strided, expected contiguous");
    else
      assert_fine(c.context, statistic_run(&c, 0, i, &wrong)); /* noise has any strides */
    wrong = c.args;
    statistic_tensor(&wrong, i)->data = statistic_tensors[i].backward ? c.dkey : c.out;
    expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "share memory");
    wrong = c.args;
    if (statistic_tensors[i].result) statistic_tensor(&wrong, i)->data = c.rows; /* an input */
    if (statistic_tensors[i].result) expect_refused(&c, 0, i, &wrong, HARK_INVALID_ARGUMENT, "share memory");
  }
  statistic_close(&c);
}

/* Each alone with a plan that has no place for it. */
static void test_unplanned_statistics(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  for (int i = 0; i < TENSORS; i++)
    for (int plan = 1; plan < 3; plan++) {
      hark_attention_args wrong = c.args;
      for (int k = 0; k < TENSORS; k++)
        if (k != i) *statistic_tensor(&wrong, k) = (hark_tensor){0};
      const char *const field = statistic_tensors[i].field;
      float sums[ROWS] = {0};
      const int64_t shape[] = {1, 1, ROWS};
      if (plan == 2) assert_fine(c.context, hark_tensor_wrap(c.context, sums, HARK_F32, 3, shape, NULL, &wrong.log_sum_exp));
      if (plan == 1 && field == NULL)
        assert_fine(c.context, statistic_run(&c, plan, i, &wrong)); /* variance and log_determinant need none */
      else if (plan == 2 && strstr(statistic_tensors[i].name, "noise") == NULL)
        expect_refused(&c, plan, i, &wrong, HARK_UNSUPPORTED, "is given with normalisation softmax, which has none");
      else
        expect_refused(&c, plan, i, &wrong, HARK_INVALID_ARGUMENT, i == TENSORS - 1 ? "noise" : field);
    }
  statistic_close(&c);
}

/* Without dout, which is zero then. */
static void test_statistics_alone(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  for (int i = 0; i < ROWS * DIM; i++) c.rows[i] = 0.25f * (float)i - 0.5f;
  for (int i = 0; i < ROWS; i++) c.numbers[3][i] = c.numbers[4][i] = (float)i - 1.5f; /* dvariance, dlog_determinant */
  for (int alone = 0; alone < 2; alone++) {
    hark_attention_args args = c.args;
    float zeros[ROWS * DIM] = {0}, expected[ROWS * DIM];
    *statistic_tensor(&args, 3 + alone) = (hark_tensor){0};
    args.dout.data = zeros;
    assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
    memcpy(expected, c.dkey, sizeof expected);
    args.dout = (hark_tensor){0};
    memset(c.dkey, 0xff, sizeof c.dkey);
    assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
    assert_memory_equal(c.dkey, expected, sizeof expected);
  }
  statistic_close(&c);
}

/* The quadratic form and its gradient, which have the shape of out. */
static void test_refused_quadratics(void **state) {
  (void)state;
  statistic_call c;
  statistic_open(&c);
  const int64_t shape[] = {1, 1, ROWS, DIM}, strides[] = {ROWS * DIM, ROWS * DIM, DIM, 2};
  double wide[2 * ROWS * DIM] = {0};
  float numbers[2 * ROWS * DIM] = {0}, zeros[ROWS * DIM] = {0}, expected[ROWS * DIM];
  for (int backward = 0; backward < 2; backward++) {
    hark_attention_args args = c.args;
    for (int i = 0; i < TENSORS; i++)
      if (i != 2) *statistic_tensor(&args, i) = (hark_tensor){0}; /* noise remains */
    hark_tensor *const tensor = backward ? &args.dquadratic : &args.quadratic, given;
    hark_status (*const call)(hark_context *, const hark_attention_plan *, const hark_attention_args *) =
        backward ? hark_attention_backward : hark_attention_forward;
    const char *const name = backward ? "dquadratic" : "quadratic";
    assert_fine(c.context, hark_tensor_wrap(c.context, numbers, HARK_F32, 4, shape, NULL, &given));
    for (int way = 0; way < 7; way++) {
      static const char *const says[] = {
          "",
          "is f64, expected f32",
          "has shape [1, 1, 3, 2], expected [1, 1, 4, 2]",
          "has stride 2 in its last dimension, expected 1",
          "share memory",
          "the plan was made without has_dquadratic",
          "is given with normalisation softmax, which has none",
      };
      *tensor = given;
      if (way == 1) assert_fine(c.context, hark_tensor_wrap(c.context, wide, HARK_F64, 4, shape, NULL, tensor));
      if (way == 2) tensor->shape[2]--;
      if (way == 3) assert_fine(c.context, hark_tensor_wrap(c.context, numbers, HARK_F32, 4, shape, strides, tensor));
      if (way == 4) tensor->data = backward ? c.dkey : c.out;
      if (way >= 5) args.noise = (hark_tensor){0};
      hark_attention_args last = args;
      float sums[ROWS] = {0};
      if (way == 6) assert_fine(c.context, hark_tensor_wrap(c.context, sums, HARK_F32, 3, shape, NULL, &last.log_sum_exp));
      const hark_status status = call(c.context, c.plans[way < 5 ? 0 : way - 4], &last);
      const bool fine = way == 0 || (way == 5 && !backward);
      const char *const message = hark_context_message(c.context);
      if (fine != (status == HARK_OK) || (!fine && (strstr(message, says[way]) == NULL || strstr(message, name) == NULL)))
        fail_msg("%s, way %d: %s \"%s\", expected \"%s\"", name, way, hark_status_name(status), message, says[way]);
    }
  }
  /* without dout, which is zero then */
  for (int i = 0; i < ROWS * DIM; i++) c.rows[i] = 0.25f * (float)i - 0.5f;
  for (int i = 0; i < ROWS; i++) c.numbers[2][i] = 0.5f;
  hark_attention_args args = c.args;
  args.dvariance = args.dlog_determinant = (hark_tensor){0};
  assert_fine(c.context, hark_tensor_wrap(c.context, c.rows, HARK_F32, 4, shape, NULL, &args.dquadratic));
  args.dout.data = zeros;
  assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
  memcpy(expected, c.dkey, sizeof expected);
  args.dout = args.out = (hark_tensor){0};
  memset(c.dkey, 0xff, sizeof c.dkey);
  assert_fine(c.context, hark_attention_backward(c.context, c.plans[0], &args));
  assert_memory_equal(c.dkey, expected, sizeof expected);
  assert_true(expected[0] != 0);
  statistic_close(&c);
}

/* A form beyond the range of the type is infinite; nothing else is affected. */
static void test_large_quadratic(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; causal++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(causal ? "cme:B1,H1,L70,D3,V2,rbf,causal" : "cme:B1,H1,L70,D3,V2,rbf", &p);
      for (int64_t i = 0; i < 70; i++) p.array[RIDGE_VALUE][2 * i] = (double)(i % 2 == 0 ? 1e25f : -1e25f);
      if (ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_OK);
        for (int64_t i = 0; i < 70; i++) {
          assert_true((isfinite(r.array[RIDGE_QUADRATIC][2 * i]) != 0) == (attention_machines[m].type == HARK_F64));
          assert_true(isfinite(r.array[RIDGE_QUADRATIC][2 * i + 1]) && isfinite(r.array[RIDGE_OUT][2 * i]));
        }
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

/* Counted operations against a count row by row. */
static void test_operations(void **state) {
  (void)state;
  static const int64_t sizes[][2] = {{1, 1}, {5, 5}, {3, 9}, {9, 3}, {1, 40}, {40, 1}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    hark_attention_desc desc = hark_attention_desc_default();
    const int64_t m = desc.query_length = sizes[i][0], n = desc.key_length = sizes[i][1];
    const double length = (double)n, d = 3, dv = 2;
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.batch = desc.heads = 1;
    desc.head_dim = 3;
    desc.value_dim = 2;
    desc.ridge = 1;
    desc.causal = true;
    double products = length * length * d / 2 + length * length * length / 6 + length * length * dv / 2;
    for (int64_t row = 0; row < m; row++) {
      const double seen = (double)(row + n - m + 1 > 0 ? row + n - m + 1 : 0);
      products += seen * (d + dv) + seen * seen / 2;
    }
    assert_true(fabs(hark_attention_desc_operations(&desc, false) - 2 * products) < 1e-9 * products);
  }
}

/* Operations that gradients by statistics add to a backward: products of every row, and of every key. */
static void test_operations_of_statistics(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    hark_attention_desc desc = hark_attention_desc_default();
    const double m = 5, n = 9, dv = 2;
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.batch = desc.heads = 1;
    desc.query_length = (int64_t)m;
    desc.key_length = (int64_t)n;
    desc.head_dim = 3;
    desc.value_dim = (int64_t)dv;
    desc.ridge = 1;
    desc.causal = causal != 0;
    const double plain = hark_attention_desc_operations(&desc, true), forward = hark_attention_desc_operations(&desc, false);
    double more = 0;
    for (int64_t row = 0; row < desc.query_length && !causal; row++) more += 3 * n * n / 2; /* R^-1 b, R^-T of that, its outer product */
    desc.has_dvariance = 1;
    assert_true(fabs(hark_attention_desc_operations(&desc, true) - plain - 2 * more) < 1e-9 * plain);
    more += n * n * n / 3; /* R^-1 and R^-T R^-1 */
    desc.has_dlog_determinant = 1;
    assert_true(fabs(hark_attention_desc_operations(&desc, true) - plain - 2 * more) < 1e-9 * plain);
    for (int64_t row = 0; row < desc.query_length && causal; row++) { /* R^-T of its part of U, and the outer product of that */
      const double seen = (double)(row + desc.key_length - desc.query_length + 1);
      more += dv * seen * seen;
    }
    if (!causal) more += 2 * n * dv;
    desc.has_dquadratic = 1;
    assert_true(fabs(hark_attention_desc_operations(&desc, true) - plain - 2 * more) < 1e-9 * plain);
    assert_true(hark_attention_desc_operations(&desc, false) == forward);
  }
}

/* The plan says what a triangle takes; a length beyond what memory can be is refused when it is made. */
static void test_plan(void **state) {
  (void)state;
  hark_context *context = attention_machine_open(&attention_machines[2], 1);
  ridge_problem p;
  ridge_problem_make("cme:B1,H2,L130,D4,causal", &p);
  hark_attention_desc desc = ridge_problem_desc(&p, HARK_F32);
  hark_attention_plan *plan;
  char text[512];
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_non_null(strstr(text, "exp cme f32"));
  assert_non_null(strstr(text, "a triangle of 98304 bytes a worker, two in the backward")); /* 3 (3 + 1) / 2 tiles of 64 x 64 x 4 bytes */
  hark_attention_plan_destroy(context, &plan);
  desc.max_sequences = 3;
  desc.longest = 60; /* of a batch of several sequences: one tile is enough for each */
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_OK);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_non_null(strstr(text, "a triangle of 16384 bytes a worker"));
  hark_attention_plan_destroy(context, &plan);
  desc.longest = 0;
  desc.key_length = desc.query_length = (int64_t)1 << 36;
  assert_int_equal(hark_attention_plan_create(context, &desc, &plan), HARK_TOO_LARGE);
  ridge_problem_free(&p);
  hark_context_destroy(&context);
}

/* Scratch memory of a plan less the triangles that it says it has in flight. */
static double beside_triangles(hark_context *context, const hark_attention_desc *desc, bool backward) {
  hark_attention_plan *plan;
  char text[512];
  long long triangle = 0;
  int workers = 0;
  assert_int_equal(hark_attention_plan_create(context, desc, &plan), HARK_OK);
  hark_attention_plan_print(plan, text, sizeof text);
  assert_int_equal(
      sscanf(strstr(text, " workers, a triangle of ") - 1, "%d workers, a triangle of %lld bytes a worker", &workers, &triangle), 2);
  assert_int_equal(workers, hark_context_threads(context));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  const int triangles = workers * (backward && desc->causal ? 2 : 1);
  hark_attention_plan_destroy(context, &plan);
  const double rest = (double)(backward ? sizes.backward_workspace : sizes.forward_workspace) - (double)triangles * (double)triangle;
  assert_true(rest > 0);
  return rest;
}

/* One triangle a worker and no more, two in the causal backward: what is left over is a line in L, whatever batch and heads (a sequence's
 * entry and a partial sum apart). Runs have this memory and a fence after it (kernel_ridge_case.c). */
static void test_memory(void **state) {
  (void)state;
  for (int m = 0; m < attention_machine_count; m++) {
    hark_context *context = attention_machine_open(&attention_machines[m], 3);
    if (context == NULL || attention_machines[m].type != HARK_F32 || strcmp(attention_machines[m].backend, "cpu") != 0) {
      if (context != NULL) hark_context_destroy(&context);
      continue;
    }
    for (int causal = 0; causal < 2; causal++)
      for (int backward = 0; backward < 2; backward++) {
        hark_attention_desc desc = hark_attention_desc_default();
        desc.normalisation = HARK_NORMALISATION_CME;
        desc.ridge = 1;
        desc.batch = desc.heads = 1;
        desc.head_dim = 32;
        desc.causal = causal != 0;
        double at[3];
        for (int i = 0; i < 3; i++) {
          desc.query_length = desc.key_length = (int64_t)1024 * (i + 1);
          at[i] = beside_triangles(context, &desc, backward != 0);
        }
        assert_true(at[2] - at[1] == at[1] - at[0]);
        desc.batch = 16;
        desc.heads = 8;
        assert_true(beside_triangles(context, &desc, backward != 0) - at[2] < 16 * 8 * 64);
      }
    hark_context_destroy(&context);
  }
}

/* What the plan asks for is what a run with variances takes: all of the workspace but what aligns its parts is written to by one thread, in
 * both directions (the fence after it, in kernel_ridge_case.c, is not; nor is anything allocated besides). */
static void test_measured_memory(void **state) {
  (void)state;
  static const char *const cases[] = {"cme:B1,H2,L512,D16,V24,rbf,threads=1",
                                      "cme:B1,H2,L512,D16,V24,rbf,causal,kernel,threads=1",
                                      "cme:B1,H2,L512,D16,V24,rbf,dvariance,threads=1",
                                      "cme:B1,H2,L512,D16,V24,determinant,threads=1",
                                      "cme:B1,H2,L512,D16,V24,causal,noise,threads=1",
                                      "cme:B1,H2,L512,D16,V24,rbf,quadratic,threads=1",
                                      "cme:B1,H2,L512,D16,V3,causal,quadratic,threads=1"};
  for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
    for (int m = 0; m < attention_machine_count; m++) {
      ridge_problem p;
      ridge_results r;
      ridge_problem_make(cases[k], &p);
      if (strcmp(attention_machines[m].backend, "cpu") == 0 && attention_machines[m].type == HARK_F32 &&
          ridge_run_on(&attention_machines[m], &p, &r)) {
        assert_int_equal(r.status, HARK_OK);
        for (int backward = 0; backward < 2; backward++)
          if (r.touched[backward] + 2 * ALIGNMENT < r.workspace[backward])
            fail_msg("%s on %s: %s wrote to %zu bytes of a workspace of %zu", p.text, attention_machines[m].name,
                     backward ? "the backward" : "the forward", r.touched[backward], r.workspace[backward]);
        ridge_results_free(&r);
      }
      ridge_problem_free(&p);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_wrong_noise),
      cmocka_unit_test(test_wrong_numbers),
      cmocka_unit_test(test_first_wrong_row),
      cmocka_unit_test(test_unbounded_exponential),
      cmocka_unit_test(test_overflow),
      cmocka_unit_test(test_own_kernel),
      cmocka_unit_test(test_gradients_not_finite),
      cmocka_unit_test(test_refused_descriptors),
      cmocka_unit_test(test_refused_statistics),
      cmocka_unit_test(test_unplanned_statistics),
      cmocka_unit_test(test_statistics_alone),
      cmocka_unit_test(test_refused_quadratics),
      cmocka_unit_test(test_large_quadratic),
      cmocka_unit_test(test_operations),
      cmocka_unit_test(test_operations_of_statistics),
      cmocka_unit_test(test_plan),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_measured_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
