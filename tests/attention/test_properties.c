/* test_properties.c - what must hold of attention whatever its numbers: checked on every backend, instruction set and type. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/attention_run.h"

/* Opens a case on a machine; the body runs for every machine that is there. */
typedef void machine_test(const attention_machine *machine, const char *text);

static void on_all(machine_test *test, const char *const *cases, size_t count) {
  assert_true(count > 0);
  for (size_t i = 0; i < count; i++)
    for (int m = 0; m < attention_machine_count; m++) {
      hark_context *context = attention_machine_open(&attention_machines[m], 1);
      if (context == NULL) continue;
      hark_context_destroy(&context);
      test(&attention_machines[m], cases[i]);
    }
}
#define ON_ALL(test, ...)                                                                                                                  \
  do {                                                                                                                                     \
    static const char *const cases[] = {__VA_ARGS__};                                                                                      \
    on_all(test, cases, sizeof cases / sizeof cases[0]);                                                                                   \
  } while (0)

static void test_rows_sum_to_one(void **state) {
  (void)state;
  ON_ALL(attention_rows_sum_to_one, "dense:B2,H2,L65,S70,D7", "dense:H2,L130,D16,causal", "dense:H2,L70,D8,causal,forget,kernel,bias=3",
         "dense:H2,L70,D8,rbf", "dense:B3,H2,L50,D8,lengths,mask", "window:H2,L130,D8,W20", "dense:H2,L100,D8,large", "dense:L1,D1",
         "hierarchical:H2,L100,D8,N4,grid=12,large", "compressed:H2,L100,D8,N4,select=5,large");
}

/* out(a V1 + V2) = a out(V1) + out(V2), and <out(V), dout> = <V, dV>, the adjoint of it. */
static void linear_in_values(const attention_machine *machine, const char *text) {
  const double a = 0.5; /* exact in binary, so that the sum's rounding is one */
  attention_problem p;
  attention_expected e[2];
  attention_results r[3];
  attention_problem_make(text, &p);
  const attention_numbers *v = &p.array[ARRAY_VALUE];
  double *first = malloc((size_t)v->count * sizeof(double));
  assert_non_null(first);
  memcpy(first, v->data, (size_t)v->count * sizeof(double));
  attention_expected_make(&p, &e[0]);
  attention_run_on(machine, &p, &r[0]);
  for (int64_t i = 0; i < v->count; i++) v->data[i] = (double)(float)cos((double)i);
  attention_expected_make(&p, &e[1]);
  attention_run_on(machine, &p, &r[1]);
  for (int64_t i = 0; i < v->count; i++) v->data[i] = a * first[i] + v->data[i];
  attention_run_on(machine, &p, &r[2]);
  double inner = 0, adjoint = 0, within = 0;
  for (int64_t i = 0; i < r[0].count[ARRAY_OUT]; i++) {
    /* The sum in f32 rounds its values once more: one roundoff of what the bound's magnitudes hold many of. */
    const double bound = a * attention_tolerance(machine, &e[0], ARRAY_OUT, i) + attention_tolerance(machine, &e[1], ARRAY_OUT, i);
    attention_assert_near("linearity in values", text, machine, i, r[2].data[ARRAY_OUT][i],
                          a * r[0].data[ARRAY_OUT][i] + r[1].data[ARRAY_OUT][i], 2 * bound + 4 * machine->storing_roundoff);
    inner += r[0].data[ARRAY_OUT][i] * p.array[ARRAY_DOUT].data[i];
    within += fabs(p.array[ARRAY_DOUT].data[i]) * attention_tolerance(machine, &e[0], ARRAY_OUT, i);
  }
  for (int64_t i = 0; i < v->count; i++) {
    adjoint += r[0].data[ARRAY_DVALUE][i] * first[i];
    within += fabs(first[i]) * attention_tolerance(machine, &e[0], ARRAY_DVALUE, i);
  }
  attention_assert_near("adjoint of the values", text, machine, 0, adjoint, inner, within);
  for (int i = 0; i < 3; i++) attention_results_free(&r[i]);
  for (int i = 0; i < 2; i++) attention_expected_free(&e[i]);
  free(first);
  attention_problem_free(&p);
}

static void test_linear_in_values(void **state) {
  (void)state;
  ON_ALL(linear_in_values, "dense:B2,H4,K2,L65,S70,D7", "dense:H2,L130,D16,V3,causal,dropout=0.3", "dense:H2,L70,D8,rbf,bias",
         "window:H2,L130,D8,W20", "dense:H2,L70,D8,causal,forget", "hierarchical:H4,K2,L100,D8,V3,N4,grid=12,dropout=0.3",
         "compressed:H4,K2,L100,D8,V3,N4,kept=5,globals=3,dropout=0.3");
}

static void swap_rows(attention_numbers *numbers, int64_t a, int64_t b) {
  const int64_t width = numbers->shape[3];
  for (int64_t bh = 0; bh < numbers->shape[0] * numbers->shape[1]; bh++)
    for (int64_t x = 0; x < width; x++) {
      double *row = numbers->data + bh * numbers->shape[2] * width;
      const double kept = row[a * width + x];
      row[a * width + x] = row[b * width + x];
      row[b * width + x] = kept;
    }
}

/* Without positions, keys with their values may come in any order, and queries come out in theirs. */
static void permutation(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  attention_expected_make(&p, &e);
  /* Reversed keys, and neighbouring queries exchanged. */
  for (int64_t i = 0; i < p.is.keys / 2; i++) {
    swap_rows(&p.array[ARRAY_KEY], i, p.is.keys - 1 - i);
    swap_rows(&p.array[ARRAY_VALUE], i, p.is.keys - 1 - i);
  }
  for (int64_t n = 0; n + 1 < p.is.queries; n += 2) {
    swap_rows(&p.array[ARRAY_QUERY], n, n + 1);
    swap_rows(&p.array[ARRAY_DOUT], n, n + 1);
  }
  attention_run_on(machine, &p, &r);
  attention_numbers back[ARRAY_COUNT];
  for (int i = ARRAY_OUT; i < ARRAY_COUNT; i++) {
    back[i] = e.array[i];
    back[i].data = r.data[i];
  }
  for (int64_t i = 0; i < p.is.keys / 2; i++) {
    swap_rows(&back[ARRAY_DKEY], i, p.is.keys - 1 - i);
    swap_rows(&back[ARRAY_DVALUE], i, p.is.keys - 1 - i);
  }
  for (int64_t n = 0; n + 1 < p.is.queries; n += 2) {
    swap_rows(&back[ARRAY_OUT], n, n + 1);
    swap_rows(&back[ARRAY_DQUERY], n, n + 1);
  }
  const attention_array arrays[] = {ARRAY_OUT, ARRAY_DQUERY, ARRAY_DKEY, ARRAY_DVALUE};
  for (size_t k = 0; k < 4; k++)
    for (int64_t i = 0; i < r.count[arrays[k]]; i++)
      attention_assert_near(attention_array_names[arrays[k]], text, machine, i, r.data[arrays[k]][i], e.array[arrays[k]].data[i],
                            attention_tolerance(machine, &e, arrays[k], i));
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_permutation(void **state) {
  (void)state;
  ON_ALL(permutation, "dense:B2,H2,L65,S70,D7", "dense:H4,K2,L33,S129,D16,V5", "dense:H2,L30,S40,D8,rbf");
}

/* Gradients of the logits sum to zero in every row, so those of a table of distances do when nothing is masked. */
static void kernel_gradient_sums_to_zero(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  const int64_t width = p.array[ARRAY_LOG_KERNEL].shape[1];
  for (int64_t table = 0; table < p.array[ARRAY_LOG_KERNEL].shape[0]; table++) {
    double sum = 0, within = 0, size = 0;
    for (int64_t i = table * width; i < (table + 1) * width; i++) {
      sum += r.data[ARRAY_DLOG_KERNEL][i];
      size += fabs(r.data[ARRAY_DLOG_KERNEL][i]);
      within += attention_tolerance(machine, &e, ARRAY_DLOG_KERNEL, i);
    }
    attention_assert_near("sum of dlog_kernel", text, machine, table, sum, 0, within);
    assert_true(size > 100 * within); /* or else the test says nothing */
  }
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_kernel_gradient(void **state) {
  (void)state;
  ON_ALL(kernel_gradient_sums_to_zero, "dense:B2,H2,L65,S70,D7,kernel", "dense:B2,H2,L40,D8,shared",
         "dense:H2,L70,D8,kernel,causal,dropout=0.3", "window:H2,L70,D8,W9,kernel", "dense:B2,H2,L65,S70,D7,kernel,directed");
}

/* The bias's gradient is dS itself, so the gate's can be had from it: df[t] = (1 - sigmoid(f_t)) sum over i < t <= n of dS[n,i]. The gate
 * of the first key, which no entry passes, gets nothing. */
static void forget_gradient_from_bias(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  const int64_t length = p.is.keys;
  for (int64_t head = 0; head < p.is.batch * p.is.heads; head++)
    for (int64_t t = 0; t < length; t++) {
      const double slope = 1 / (1 + exp(p.array[ARRAY_FORGET].data[head * length + t]));
      double sum = 0, within = attention_tolerance(machine, &e, ARRAY_DFORGET, head * length + t);
      for (int64_t n = t; n < length; n++)
        for (int64_t i = 0; i < t; i++) {
          sum += slope * r.data[ARRAY_DBIAS][(head * length + n) * length + i];
          within += slope * attention_tolerance(machine, &e, ARRAY_DBIAS, (head * length + n) * length + i);
        }
      attention_assert_near("dforget", text, machine, head * length + t, r.data[ARRAY_DFORGET][head * length + t], sum, within);
    }
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_forget_gradient(void **state) {
  (void)state;
  ON_ALL(forget_gradient_from_bias, "dense:B2,H2,L40,D7,causal,forget,bias", "dense:H2,L66,D8,causal,forget,bias,dropout=0.3,kernel");
}

/* Over a long text a gate's gradient is what millions of entries leave of each other. Values around 4 make every row's D large, whose
 * rounding all of its entries share: 128 roundings of numbers of order one are enough where it cancels, a third of what adds up where it
 * does not. */
static void test_forget_gradient_of_long_texts(void **state) {
  static const char text[] = "dense:B1,H1,L4096,D8,causal,forget";
  attention_problem p;
  attention_results want, have;
  int count = 0;
  (void)state;
  attention_problem_make(text, &p);
  p.unwanted = 1u << ARRAY_DQUERY | 1u << ARRAY_DKEY | 1u << ARRAY_DVALUE;
  for (int64_t i = 0; i < p.array[ARRAY_VALUE].count; i++) p.array[ARRAY_VALUE].data[i] = (float)(p.array[ARRAY_VALUE].data[i] + 4);
  attention_run_on(ATTENTION_ORACLE, &p, &want);
  for (int m = 0; m < attention_machine_count; m++) {
    const attention_machine *machine = &attention_machines[m];
    if (machine->computing_roundoff == ATTENTION_ORACLE->computing_roundoff || !attention_run_on(machine, &p, &have)) continue;
    for (int64_t t = 0; t < p.is.keys; t++)
      attention_assert_near("dforget", text, machine, t, have.data[ARRAY_DFORGET][t], want.data[ARRAY_DFORGET][t],
                            128 * machine->computing_roundoff);
    attention_results_free(&have);
    count++;
  }
  assert_true(count > 0);
  attention_results_free(&want);
  attention_problem_free(&p);
}

/* A window is dense attention with a band as its mask. */
static void window_is_masked_dense(const attention_machine *machine, const char *text) {
  char dense[ATTENTION_CASE_BYTES];
  attention_problem window, masked;
  attention_expected e;
  attention_results r, d;
  attention_problem_make(text, &window);
  strcpy(dense, "dense");
  strcat(strcat(dense, strchr(text, ':')), ",mask=3");
  attention_problem_make(dense, &masked);
  for (int64_t n = 0; n < masked.is.queries; n++)
    for (int64_t i = 0; i < masked.is.keys; i++) {
      const attention_place place = attention_query_place(&masked, 0, n);
      masked.mask[n * masked.is.keys + i] = llabs((long long)(place.row + place.offset - i)) <= window.is.window;
    }
  masked.is.window = 0;
  attention_expected_make(&window, &e);
  attention_run_on(machine, &window, &r);
  attention_run_on(machine, &masked, &d);
  for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++) {
    if (strcmp(machine->backend, "reference") == 0) attention_same_bits("window against a mask", text, (attention_array)array, &r, &d);
    for (int64_t i = 0; i < r.count[array]; i++)
      if (r.data[array][i] != d.data[array][i])
        attention_assert_near(attention_array_names[array], text, machine, i, r.data[array][i], d.data[array][i],
                              2 * attention_tolerance(machine, &e, (attention_array)array, i));
  }
  attention_results_free(&r);
  attention_results_free(&d);
  attention_expected_free(&e);
  attention_problem_free(&window);
  attention_problem_free(&masked);
}

static void test_window(void **state) {
  (void)state;
  ON_ALL(window_is_masked_dense, "window:B2,H2,L70,D8,W9", "window:H2,L130,D8,W33,causal,kernel,forget", "window:H2,L40,S150,D8,W20,causal",
         "window:H4,K2,L150,D8,W0,rbf,bias");
}

/* A directed table with equal numbers on both sides is the table of their distances: the same bits, and in its gradient both sides together
 * are the gradient by distance. Gradients by cells are sums of many more numbers, and are only near. */
static void equal_sides_are_a_table_by_distance(const attention_machine *machine, const char *text) {
  char directed[ATTENTION_CASE_BYTES];
  attention_problem by_distance, both;
  attention_results one, two;
  attention_expected e;
  (void)snprintf(directed, sizeof directed, "%s,directed", text);
  attention_problem_make(text, &by_distance);
  attention_problem_make(directed, &both);
  const attention_numbers *from = &by_distance.array[ARRAY_LOG_KERNEL];
  attention_numbers *to = &both.array[ARRAY_LOG_KERNEL];
  const int64_t distances = from->shape[1], columns = to->shape[1];
  assert_int_equal(columns, 2 * distances - 1);
  for (int64_t i = 0; i < to->count; i++)
    to->data[i] = from->data[i / columns * distances + llabs((long long)(i % columns - (distances - 1)))];
  attention_run_on(machine, &by_distance, &one);
  attention_run_on(machine, &both, &two);
  attention_expected_make(&by_distance, &e);
  static const attention_array same[] = {ARRAY_OUT, ARRAY_LSE, ARRAY_DQUERY, ARRAY_DKEY, ARRAY_DVALUE};
  for (size_t k = 0; k < sizeof same / sizeof *same; k++) attention_same_bits("equal sides of a table", text, same[k], &one, &two);
  for (int64_t i = 0; i < one.count[ARRAY_DLOG_KERNEL]; i++) {
    const double *row = two.data[ARRAY_DLOG_KERNEL] + i / distances * columns + distances - 1;
    const int64_t x = i % distances;
    const double after = x == 0 ? 0 : row[-x], rounding = machine->storing_roundoff * (fabs(row[x]) + fabs(after));
    attention_assert_near("both sides of dlog_kernel", text, machine, i, one.data[ARRAY_DLOG_KERNEL][i], row[x] + after,
                          2 * attention_tolerance(machine, &e, ARRAY_DLOG_KERNEL, i) + rounding);
  }
  attention_expected_free(&e);
  attention_results_free(&one);
  attention_results_free(&two);
  attention_problem_free(&by_distance);
  attention_problem_free(&both);
}

static void test_equal_sides(void **state) {
  (void)state;
  ON_ALL(equal_sides_are_a_table_by_distance, "dense:B2,H2,L65,S130,D7,kernel", "dense:H2,L70,D8,shared,hiding,dropout=0.2",
         "window:H2,L70,D8,W9,kernel", "hierarchical:B2,H2,L77,D8,N4,kernel,hbias", "hierarchical:H2,L77,D8,N4,shared,exact");
}

/* Dropout: the normaliser keeps all weights, so log_sum_exp has the bits it has without; another stream drops other weights; the mean of
 * the kept weights over many streams is one. */
static void dropout(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_results with, without, other;
  attention_problem_make(text, &p);
  for (int64_t i = 0; i < p.array[ARRAY_VALUE].count; i++) p.array[ARRAY_VALUE].data[i] = 1;
  const double probability = p.is.dropout;
  attention_run_on(machine, &p, &with);
  p.dropout.micro_step++;
  attention_run_on(machine, &p, &other);
  if (memcmp(with.data[ARRAY_OUT], other.data[ARRAY_OUT], (size_t)with.count[ARRAY_OUT] * sizeof(double)) == 0)
    fail_msg("'%s' on %s: another micro-step drops the same weights", text, machine->name);
  p.is.dropout = 0;
  attention_run_on(machine, &p, &without);
  attention_same_bits("with and without dropout", text, ARRAY_LSE, &with, &without);
  /* out = sum_i m P with mean 1 and variance p / (1 - p) sum_i P^2 <= p / (1 - p). Rows of a batch share no words, so that the mean of R
   * rows deviates by less than six standard deviations, but for one run in 10^8, and the words are fixed. */
  p.is.dropout = probability;
  double sum = 0;
  int64_t rows = 0;
  for (uint32_t step = 0; step < 8; step++) {
    attention_results r;
    p.dropout.micro_step = step;
    attention_run_on(machine, &p, &r);
    for (int64_t row = 0; row < r.count[ARRAY_LSE]; row++) sum += r.data[ARRAY_OUT][row * p.is.value_dim];
    rows += r.count[ARRAY_LSE];
    attention_results_free(&r);
  }
  attention_assert_near("mean of kept weights", text, machine, 0, sum / (double)rows, 1,
                        6 * sqrt(probability / (1 - probability) / (double)rows));
  attention_results_free(&with);
  attention_results_free(&without);
  attention_results_free(&other);
  attention_problem_free(&p);
}

static void test_dropout(void **state) {
  (void)state;
  ON_ALL(dropout, "dense:B2,H2,L65,S70,D7,dropout=0.1", "dense:H3,L70,D8,causal,dropout=0.5", "window:H2,L70,D8,W9,dropout=0.25",
         "hierarchical:H2,L80,D8,N4,grid=11,exact,dropout=0.25");
}

/* A large number that all logits share leaves them as accurate as its own size allows; keys and queries of one sign, so that errors would
 * add. */
static void common_bias(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  const double sizes[] = {100, 1e4, -1e5};
  for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
    attention_problem_make(text, &p);
    p.scale = p.given_scale = 1;
    for (int64_t i = 0; i < p.array[ARRAY_QUERY].count; i++) p.array[ARRAY_QUERY].data[i] = (double)0.04f;
    for (int64_t i = 0; i < p.array[ARRAY_KEY].count; i++) p.array[ARRAY_KEY].data[i] = (double)0.04f;
    for (int64_t i = 0; i < p.array[ARRAY_BIAS].count; i++) p.array[ARRAY_BIAS].data[i] = sizes[k];
    for (int64_t i = 0; i < p.array[ARRAY_VALUE].count; i++) p.array[ARRAY_VALUE].data[i] = i / p.is.value_dim % p.is.keys < 64;
    attention_expected_make(&p, &e);
    attention_run_on(machine, &p, &r);
    if (attention_compare(machine, &p, &e, &r) > 0) fail_msg("'%s' on %s with a bias of %g everywhere", text, machine->name, sizes[k]);
    attention_results_free(&r);
    attention_expected_free(&e);
    attention_problem_free(&p);
  }
}

static void test_common_bias(void **state) {
  (void)state;
  ON_ALL(common_bias, "dense:H2,L130,D256,bias=3", "dense:H2,L2,S130,D256,bias=3", "dense:H1,L130,D64,V256,bias,causal");
}

/* Only -infinity hides: a row whose biases are all the lowest f32 number sees everything alike. */
static void lowest_bias(const attention_machine *machine, const char *text) {
  static const attention_array terms[] = {ARRAY_BIAS, ARRAY_LOG_KERNEL, ARRAY_HIERARCHICAL_BIAS};
  attention_problem p;
  attention_results r;
  attention_problem_make(text, &p);
  for (size_t k = 0; k < sizeof terms / sizeof terms[0]; k++)
    for (int64_t i = 0; i < p.array[terms[k]].count; i++) p.array[terms[k]].data[i] = (double)-FLT_MAX;
  for (int64_t i = 0; i < p.array[ARRAY_VALUE].count; i++) p.array[ARRAY_VALUE].data[i] = (double)(i / p.is.value_dim % p.is.keys);
  attention_run_on(machine, &p, &r);
  const double mean = (double)(p.is.keys - 1) / 2;
  for (int64_t i = 0; i < r.count[ARRAY_OUT]; i++) attention_assert_near("out", text, machine, i, r.data[ARRAY_OUT][i], mean, 1e-5 * mean);
  for (int64_t i = 0; i < r.count[ARRAY_LSE]; i++) assert_true(isfinite(r.data[ARRAY_LSE][i]) && r.data[ARRAY_LSE][i] < -2.3e38);
  attention_results_free(&r);
  attention_problem_free(&p);
}

static void test_lowest_bias(void **state) {
  (void)state;
  ON_ALL(lowest_bias, "dense:H2,L5,D8,bias", "dense:H2,L130,S70,D16,bias=3", "dense:H2,L2,S70,D64,bias=3",
         "hierarchical:H2,L70,D8,N4,hbias", "hierarchical:H2,L70,D8,N4,kernel");
}

/* A scale of one's own; and logits of 1e4 give finite numbers everywhere. */
static void scale_and_size(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  p.scale = p.given_scale = 0.375;
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  if (attention_compare(machine, &p, &e, &r) != 0) fail_msg("'%s' with scale %g", text, p.scale);
  for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++)
    for (int64_t i = 0; i < r.count[array]; i++) assert_true(isfinite(r.data[array][i]));
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

static void test_scale(void **state) {
  (void)state;
  ON_ALL(scale_and_size, "dense:B2,H2,L65,S70,D7", "dense:H2,L70,D8,causal,large", "hierarchical:H2,L100,D8,N4,grid=12,large");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_sum_to_one),
      cmocka_unit_test(test_linear_in_values),
      cmocka_unit_test(test_permutation),
      cmocka_unit_test(test_kernel_gradient),
      cmocka_unit_test(test_equal_sides),
      cmocka_unit_test(test_forget_gradient),
      cmocka_unit_test(test_forget_gradient_of_long_texts),
      cmocka_unit_test(test_window),
      cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_common_bias),
      cmocka_unit_test(test_lowest_bias),
      cmocka_unit_test(test_scale),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
