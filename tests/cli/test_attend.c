/* test_attend.c - hark attend against the library in this process: the same numbers through files, for f32 and f64, with every kind of
 * input. */
#include "support/cmocka_all.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/train/attend_files.h"

/* Writes the problem, runs the command on the reference backend and compares every result by bits with the library's. */
static void check_same(const char *text, const char *words, hark_type type) {
  attention_problem p;
  attention_results r;
  char output[ATTEND_OUTPUT_BYTES], all_words[512];
  attention_problem_make(text, &p);
  p.dropout = (hark_random_stream){.seed = 7, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_ATTENTION)};
  attention_run(attend_context, type, &p, &r);
  attend_write_problem(type, &p);
  snprintf(all_words, sizeof all_words, "--backend reference --threads 1 %s", words);
  if (attend(all_words, output) != 0) fail_msg("'%s' %s: %s", text, words, output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  for (size_t k = 0; k < sizeof attend_outputs / sizeof attend_outputs[0]; k++) {
    const attention_array array = attend_outputs[k].array;
    if (r.count[array] == 0) {
      assert_null(hark_safetensors_find(file, attend_outputs[k].name));
      continue;
    }
    hark_tensor tensor = attend_load(file, attend_outputs[k].name, type);
    assert_int_equal(hark_tensor_count(&tensor), r.count[array]);
    for (int64_t i = 0; i < r.count[array]; i++)
      if (attend_number(&tensor, i) != r.data[array][i])
        fail_msg("'%s' %s: %s[%" PRId64 "] is %.17g, the library's %.17g", text, words, attend_outputs[k].name, i,
                 attend_number(&tensor, i), r.data[array][i]);
    hark_tensor_destroy(attend_context, &tensor);
  }
  hark_safetensors_close(attend_context, &file);
  attention_results_free(&r);
  attention_problem_free(&p);
}

static void test_same_as_library(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {
      {"dense:B2,H4,K2,L9,S11,D6,V3", ""},
      {"dense:B2,H4,K2,L9,S11,D6,V3,causal", "--causal"},
      {"dense:B2,H2,L9,S11,D6,causal,offset=1", "--causal --query-offset 1"},
      {"dense:B2,H2,L9,S11,D6,bias=1,mask=2", ""},
      {"dense:B2,H2,L9,D5,causal,kernel,forget", "--causal"},
      {"dense:B2,H2,L9,D5,causal,stick,kernel,forget", "--causal --normalisation stick_breaking"},
      {"dense:B2,H4,K2,L9,D5,C4,causal,kernel,forget", "--causal"},
      {"window:B2,H2,L9,D5,C3,W3,causal,cshared", "--causal --structure window --window 3"},
      {"window:B2,H4,K2,L90,D5,W30,causal,stick,bias", "--causal --normalisation stick_breaking --structure window --window 30"},
      {"dense:B2,H2,L9,D5,shared,rbf", "--kernel rbf --sigma 1.25"},
      {"window:B2,H2,L19,D5,W3", "--structure window --window 3"},
      {"dense:B3,H2,L9,D5,lengths,dropout=0.5", "--dropout 0.5 --seed 7"},
      {"dense:B2,H2,L9,D5,segments,causal", "--causal"},
      {"hierarchical:B2,H4,K2,L29,D5,N4,hbias,mask,qmask", "--structure hierarchical --hierarchy-block 4"},
      {"hierarchical:B2,H2,L70,D5,causal,hshared,kernel", "--structure hierarchical --causal"},
      {"hierarchical:B2,H2,L29,D5,N4,exact,sibling,segments",
       "--structure hierarchical --hierarchy-block 4 --coarse-query exact --partition sibling"},
      {"hierarchical:B2,H2,L29,D5,N2,first,linear",
       "--structure hierarchical --hierarchy-block 2 --coarse-query first --interpolation linear"},
      {"hierarchical:B2,H2,L99,D5,N4,grid=11,mask,qmask", "--structure hierarchical --hierarchy-block 4 --grid-columns 11"},
      {"hierarchical:B2,H2,L99,D5,N4,grid=11,exact", "--structure hierarchical --hierarchy-block 4 --grid-columns 11 --coarse-query exact"},
      {"compressed:B2,H4,K2,L69,D5,N4,slots=2,select=3,mask",
       "--structure compressed --causal --chunk 4 --chunk-slots 2 --selected-slots 3"},
      {"compressed:B2,H2,L69,D5,N3,select=16,kept=4,globals=2,starts",
       "--structure compressed --causal --chunk 3 --kept-chunks 4 --global-slots 2"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    check_same(cases[i].text, cases[i].words, HARK_F32);
    check_same(cases[i].text, cases[i].words, HARK_F64);
  }
}

/* Turns row l of [B, H, L, d] by (l + first) * 100^(-2j/d), or back. */
static void turn(attention_numbers *numbers, double *data, int64_t first, bool half, double direction) {
  const int64_t dim = numbers->shape[3], length = numbers->shape[2];
  for (int64_t row = 0; row < numbers->count / dim; row++)
    for (int64_t j = 0; j < dim / 2; j++) {
      const double angle = direction * (double)(row % length + first) * pow(100, -2.0 * (double)j / (double)dim);
      double *x = &data[row * dim + (half ? j : 2 * j)], *y = &data[row * dim + (half ? j + dim / 2 : 2 * j + 1)];
      const double turned = *x * cos(angle) - *y * sin(angle);
      *y = *x * sin(angle) + *y * cos(angle);
      *x = turned;
    }
}

/* Rotary: the same as turning q and k before and the gradients back after. Five f64 roundings apart at most. */
static void test_rotary(void **state) {
  (void)state;
  for (int half = 0; half < 2; half++) {
    attention_problem p;
    attention_results r;
    char output[ATTEND_OUTPUT_BYTES];
    attention_problem_make("dense:B2,H4,K2,L5,S9,D6,causal", &p);
    attend_write_problem(HARK_F64, &p);
    turn(&p.array[ARRAY_QUERY], p.array[ARRAY_QUERY].data, 4, half, 1); /* the last query meets the last key */
    turn(&p.array[ARRAY_KEY], p.array[ARRAY_KEY].data, 0, half, 1);
    attention_run(attend_context, HARK_F64, &p, &r);
    turn(&p.array[ARRAY_QUERY], r.data[ARRAY_DQUERY], 4, half, -1);
    turn(&p.array[ARRAY_KEY], r.data[ARRAY_DKEY], 0, half, -1);
    const char *words =
        half ? "--causal --rotary 100 --rotary-pairs half --backend reference" : "--causal --rotary 100 --backend reference";
    if (attend(words, output) != 0) fail_msg("%s", output);
    hark_safetensors *file;
    assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
    attend_compare_first_results(file, &r, 1e-13, words);
    hark_safetensors_close(attend_context, &file);
    attention_results_free(&r);
    attention_problem_free(&p);
  }
}

/* <out, dout> for a sigma, and dsigma. */
static double loss_of_sigma(const attention_problem *p, double sigma, double *dsigma) {
  char words[128], output[ATTEND_OUTPUT_BYTES];
  snprintf(words, sizeof words, "--kernel rbf --sigma %.17g --backend reference", sigma);
  if (attend(words, output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  hark_tensor out = attend_load(file, "out", HARK_F64), gradient = attend_load(file, "dsigma", HARK_F64);
  double sum = 0;
  for (int64_t i = 0; i < hark_tensor_count(&out); i++) sum += attend_number(&out, i) * p->array[ARRAY_DOUT].data[i];
  *dsigma = attend_number(&gradient, 0);
  hark_tensor_destroy(attend_context, &out);
  hark_tensor_destroy(attend_context, &gradient);
  hark_safetensors_close(attend_context, &file);
  return sum;
}

static void test_sigma_gradient(void **state) {
  (void)state;
  const double step = 1e-3; /* four points: error h^4, rounding 1e-16 / h, both below 1e-11 */
  attention_problem p;
  attention_problem_make("dense:B2,H2,L6,S5,D3", &p);
  attend_write_problem(HARK_F64, &p);
  double dsigma, unused;
  (void)loss_of_sigma(&p, 1.5, &dsigma);
  const double difference = (loss_of_sigma(&p, 1.5 - 2 * step, &unused) - 8 * loss_of_sigma(&p, 1.5 - step, &unused) +
                             8 * loss_of_sigma(&p, 1.5 + step, &unused) - loss_of_sigma(&p, 1.5 + 2 * step, &unused)) /
                            (12 * step);
  assert_true(fabs(dsigma) > 1e-3);
  if (!(fabs(dsigma - difference) < 1e-8)) fail_msg("dsigma is %.12g, differences give %.12g", dsigma, difference);
  attention_problem_free(&p);
}

/* dsigma of the numbers of a problem, which f32 holds, in a type. */
static double sigma_gradient_with(const char *options, const attention_problem *p, hark_type type) {
  char output[ATTEND_OUTPUT_BYTES], words[128];
  attend_write_problem(type, p);
  snprintf(words, sizeof words, "--kernel rbf %s", options);
  if (attend(words, output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  hark_tensor gradient = attend_load(file, "dsigma", type);
  const double dsigma = attend_number(&gradient, 0);
  hark_tensor_destroy(attend_context, &gradient);
  hark_safetensors_close(attend_context, &file);
  return dsigma;
}

static double sigma_gradient_of(const attention_problem *p, hark_type type) { return sigma_gradient_with("--sigma 1.5", p, type); }

/* f32 has some 64 roundings of terms of about the size of the sum, or of `size`. */
static void check_sigma_gradient(const char *options, double size, const attention_problem *p) {
  const double expected = sigma_gradient_with(options, p, HARK_F64), have = sigma_gradient_with(options, p, HARK_F32);
  if (!(fabs(have - expected) < 64 * 0x1p-24 * fmax(fabs(expected), size)))
    fail_msg("%s: dsigma is %.9g, expected %.9g", options, have, expected);
}

/* Where one key has all the weight, or all keys are far, dS is zero or small, and what rounding leaves of it must not be multiplied by the
 * squared distance. */
static void test_sigma_gradient_of_distant_pairs(void **state) {
  (void)state;
#define TREE " --structure hierarchical --hierarchy-block "
  static const char *const small[] = {"--sigma 0.1",
                                      "--sigma 0.03",
                                      "--sigma 0.01",
                                      "--sigma 1e-3",
                                      "--sigma 1e-5",
                                      "--sigma 1e-15",
                                      "--sigma 0.03 --causal",
                                      "--sigma 0.05 --structure window --window 2",
                                      "--sigma 0.03" TREE "4",
                                      "--sigma 0.01 --causal" TREE "4",
                                      "--sigma 1e-4" TREE "2 --coarse-query exact"};
  attention_problem p;
  attention_problem_make("dense:B2,H2,L6,S6,D4", &p);
  for (size_t i = 0; i < sizeof small / sizeof *small; i++) check_sigma_gradient(small[i], 1, &p);
  check_sigma_gradient("--sigma 0.3", 2 * 64 / 0.3, &p); /* no row is exact: exponents of up to 64 */
  attention_problem_free(&p);

  static const char *const far[] = {
      "--sigma 2 --causal",           "--sigma 2 --causal --structure window --window 3", "--sigma 2 --structure window --window 0",
      "--sigma 2 --causal" TREE "16", "--sigma 2 --causal" TREE "8 --coarse-query first", "--sigma 0.5 --causal"};
  static const double places[] = {200, 2000, 2e4};
  attention_problem_make("dense:B1,H2,L128,S128,D16", &p);
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    for (int64_t head = 0; head < 2; head++)
      for (int64_t c = 0; c < 16; c++) p.array[ARRAY_KEY].data[head * 128 * 16 + c] = (double)(float)places[k];
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) check_sigma_gradient(far[i], i < 3 ? 1 : i < 5 ? 10 : 4 * 2 * 64 / 0.5, &p);
  }
  attention_problem_free(&p);
}

/* What all rows have in common leaves no trace in it. */
static void test_sigma_gradient_of_far_rows(void **state) {
  (void)state;
  attention_problem p;
  attention_problem_make("dense:B2,H4,K2,L66,S70,D3", &p);
  for (int array = ARRAY_QUERY; array <= ARRAY_KEY; array++)
    for (int64_t i = 0; i < p.array[array].count; i++) p.array[array].data[i] = (double)(float)(p.array[array].data[i] + 4000);
  const double expected = sigma_gradient_of(&p, HARK_F64), have = sigma_gradient_of(&p, HARK_F32);
  if (!(fabs(have - expected) < 64 * 0x1p-24 * fmax(fabs(expected), 1))) fail_msg("dsigma is %.9g, expected %.9g", have, expected);
  attention_problem_free(&p);
}

/* Nor does a key that is so far away that nothing comes of it, be it the first one. */
static void test_sigma_gradient_beside_a_far_key(void **state) {
  (void)state;
  static const double places[] = {1e4, 1e6, 1e15};
  attention_problem p;
  attention_problem_make("dense:B2,H4,K2,L66,S70,D3", &p);
  double expected = 0;
  for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
    for (int64_t head = 0; head < 4; head++)
      for (int64_t c = 0; c < 3; c++) p.array[ARRAY_KEY].data[head * 70 * 3 + c] = (double)(float)places[k];
    if (k == 0) expected = sigma_gradient_of(&p, HARK_F64);
    for (int type = 0; type < 2; type++) {
      const double have = sigma_gradient_of(&p, type == 0 ? HARK_F32 : HARK_F64);
      if (!(fabs(have - expected) < 64 * 0x1p-24 * fmax(fabs(expected), 1)))
        fail_msg("key at %g: dsigma is %.9g, expected %.9g", places[k], have, expected);
    }
  }
  attention_problem_free(&p);
}

/* <out, dout> of kernel ridge attention, and its gradients by ridge, sigma and the kernel's length. */
static double loss_of_ridge(const attention_problem *p, const double values[3], double gradients[3]) {
  char words[256], output[ATTEND_OUTPUT_BYTES];
  snprintf(words, sizeof words,
           "--normalisation cme --kernel rbf --ridge %.17g --sigma %.17g --positional 'rbf(l=%.17g)' --ridge-power 0.5 --backend reference",
           values[0], values[1], values[2]);
  if (attend(words, output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  assert_null(hark_safetensors_find(file, "log_sum_exp"));
  static const char *const names[] = {"dridge", "dsigma", "dpositional"};
  hark_tensor out = attend_load(file, "out", HARK_F64), variance = attend_load(file, "variance", HARK_F64);
  double sum = 0;
  for (int64_t i = 0; i < hark_tensor_count(&out); i++) sum += attend_number(&out, i) * p->array[ARRAY_DOUT].data[i];
  for (int64_t i = 0; i < hark_tensor_count(&variance); i++)
    assert_true(attend_number(&variance, i) >= 0 && attend_number(&variance, i) < 1);
  for (int i = 0; i < 3; i++) {
    hark_tensor gradient = attend_load(file, names[i], HARK_F64);
    gradients[i] = attend_number(&gradient, i == 2 ? hark_tensor_count(&gradient) - 1 : 0);
    hark_tensor_destroy(attend_context, &gradient);
  }
  hark_tensor_destroy(attend_context, &out);
  hark_tensor_destroy(attend_context, &variance);
  hark_safetensors_close(attend_context, &file);
  return sum;
}

/* Results and gradients by conjugate gradients are those of the factor. */
static void test_solver(void **state) {
  static const char *const names[] = {"out", "variance", "log_determinant", "quadratic", "dq", "dk", "dv", "dridge", "dsigma"};
  enum { NAMES = sizeof names / sizeof names[0] };
  const char *const words[] = {
      "--normalisation cme --kernel rbf --ridge 0.5 --sigma 1.25",
      "--normalisation cme --kernel rbf --ridge 0.5 --sigma 1.25 --solver conjugate-gradients --solver-tolerance 1e-12"};
  attention_problem p;
  hark_tensor tensors[2][NAMES];
  (void)state;
  attention_problem_make("dense:B2,H2,L6,S70,D3", &p);
  attend_write_problem(HARK_F64, &p);
  for (int solver = 0; solver < 2; solver++) {
    char output[ATTEND_OUTPUT_BYTES];
    hark_safetensors *file;
    if (attend(words[solver], output) != 0) fail_msg("%s", output);
    assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
    for (int i = 0; i < NAMES; i++) tensors[solver][i] = attend_load(file, names[i], HARK_F64);
    hark_safetensors_close(attend_context, &file);
  }
  for (int i = 0; i < NAMES; i++) {
    for (int64_t j = 0; j < hark_tensor_count(&tensors[0][i]); j++) {
      const double have = attend_number(&tensors[1][i], j), want = attend_number(&tensors[0][i], j);
      if (!(fabs(have - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%s %d is %.12g, expected %.12g", names[i], (int)j, have, want);
    }
    for (int solver = 0; solver < 2; solver++) hark_tensor_destroy(attend_context, &tensors[solver][i]);
  }
  attention_problem_free(&p);
}

static void test_ridge(void **state) {
  (void)state;
  const double step = 1e-3;
  attention_problem p;
  attention_problem_make("dense:B2,H2,L6,S7,D3", &p);
  attend_write_problem(HARK_F64, &p);
  double values[3] = {0.5, 1.25, 4}, gradients[3], unused[3];
  (void)loss_of_ridge(&p, values, gradients);
  for (int i = 0; i < 3; i++) {
    static const double steps[] = {-2, -1, 1, 2}, weights[] = {1, -8, 8, -1};
    const double kept = values[i];
    double want = 0;
    for (int s = 0; s < 4; s++) {
      values[i] = kept + steps[s] * step;
      want += weights[s] * loss_of_ridge(&p, values, unused) / (12 * step);
    }
    values[i] = kept;
    if (!(fabs(gradients[i] - want) < 1e-8 * (1 + fabs(want))))
      fail_msg("gradient %d is %.12g, differences give %.12g", i, gradients[i], want);
  }
  attention_problem_free(&p);
}

/* The default backend, without gradients: only out and log_sum_exp are written. */
static void test_forward_alone(void **state) {
  (void)state;
  attention_problem p;
  char output[ATTEND_OUTPUT_BYTES];
  attention_problem_make("dense:B2,H2,L6,S5,D3", &p);
  p.array[ARRAY_DOUT].count = 0;
  attend_write_problem(HARK_F32, &p);
  if (attend("", output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  assert_int_equal(hark_safetensors_count(file), 2);
  assert_non_null(hark_safetensors_find(file, "out"));
  assert_non_null(hark_safetensors_find(file, "log_sum_exp"));
  hark_safetensors_close(attend_context, &file);
  attention_problem_free(&p);
}

/* Runs the problem; one line for each text that stderr must have, and no other warning. */
static void expect_warnings(hark_type type, const attention_problem *p, const char *words, int count, const char *const *says) {
  char output[ATTEND_OUTPUT_BYTES];
  int warnings = 0;
  attend_write_problem(type, p);
  if (attend(words, output) != 0) fail_msg("%s", output);
  for (int i = 0; i < count; i++)
    if (strstr(output, says[i]) == NULL) fail_msg("no '%s' in '%s'", says[i], output);
  for (const char *at = output; (at = strstr(at, "warning: ")) != NULL; at++) warnings++;
  if (warnings != count) fail_msg("%d warnings, expected %d: %s", warnings, count, output);
}

/* Products of a query and all keys overflow; results of other rows are finite. Rows that see no key have a log-sum-exp of -infinity. */
static void test_results_that_are_not_finite(void **state) {
  (void)state;
  static const char *const both[] = {"warning: out: 3 of 36 numbers are not finite, the first, [0, 1, 2, 0], is nan\n",
                                     "warning: log_sum_exp: 1 of 12 numbers are not finite, the first, [0, 1, 2], is nan\n"};
  attention_problem p;
  attention_problem_make("dense:B1,H2,L6,S5,D3", &p);
  p.array[ARRAY_DOUT].count = 0;
  expect_warnings(HARK_F32, &p, "", 0, NULL);
  for (int64_t i = 0; i < p.array[ARRAY_KEY].count; i++) p.array[ARRAY_KEY].data[i] = 10;
  for (int64_t i = 0; i < 3; i++) p.array[ARRAY_QUERY].data[(6 + 2) * 3 + i] = 3e38;
  expect_warnings(HARK_F32, &p, "", 2, both);
  attention_problem_free(&p);
  attention_problem_make("dense:B2,H2,L6,S5,D3,lengths", &p);
  p.array[ARRAY_DOUT].count = 0;
  p.key_lengths[1] = 0;
  expect_warnings(HARK_F32, &p, "", 0, NULL);
  attention_problem_free(&p);
}

/* Rows with a log-sum-exp of -infinity are counted if they see a key, whatever the structure; rows that see none are not. */
static void test_rows_below_the_range(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
    int64_t row; /* of item 0, head 1 */
    const char *says;
  } cases[] = {
#define ROW(number, shape) "log_sum_exp: 1 of " number " numbers are not finite, the first, [0, 1, " shape "], is -inf; rows with -inf that"
      {"dense:B1,H2,L6,S5,D3", "", 2, ROW("12", "2")},
      {"dense:B1,H2,L6,S6,D3,causal,forget", "--causal", 3, ROW("12", "3")},
      {"dense:B1,H2,L6,S6,D3,kernel,bias", "", 0, ROW("12", "0")},
      {"dense:B2,H2,L6,S5,D3,lengths", "", 1, ROW("24", "1")},
      {"dense:B1,H2,L9,D3,segments", "", 0, ROW("18", "0")},
      {"window:B1,H2,L9,D3,W2", "--structure window --window 2", 4, ROW("18", "4")},
      {"hierarchical:B1,H2,L9,D3", "--structure hierarchical", 5, ROW("18", "5")},
      {"hierarchical:B1,H2,L9,D3,N4,causal,hbias", "--structure hierarchical --hierarchy-block 4 --causal", 6, ROW("18", "6")}};
#undef ROW
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int wide = 0; wide < 2; wide++) {
      const hark_type type = wide ? HARK_F64 : HARK_F32;
      attention_problem p;
      char words[128];
      attention_problem_make(cases[i].text, &p);
      p.array[ARRAY_DOUT].count = 0;
      const int64_t dim = p.is.head_dim, rows = p.is.queries;
      for (int64_t c = 0; c < p.array[ARRAY_KEY].count; c++) p.array[ARRAY_KEY].data[c] = -1e4;
      for (int64_t c = 0; c < dim; c++) p.array[ARRAY_QUERY].data[(rows + cases[i].row) * dim + c] = wide ? 1.7e308 : 3e38;
      if (p.key_lengths != NULL) {
        p.key_lengths[0] = 3;
        p.key_lengths[1] = 0;
      }
      expect_warnings(type, &p, cases[i].words, 1, &cases[i].says);
      (void)snprintf(words, sizeof words, "%s --backend reference", cases[i].words);
      if (!wide) expect_warnings(type, &p, words, 0, NULL); /* it computes in double */
      attention_problem_free(&p);
    }
}

/* No printed number is another one. */
static void test_printed_numbers(void **state) {
  (void)state;
  attention_problem p;
  char output[ATTEND_OUTPUT_BYTES];
  attention_problem_make("dense:B1,H2,L6,S5,D3", &p);
  attend_write_problem(HARK_F32, &p);
  if (attend("--dropout 0.9999999 --scale 1.00000001", output) != 0 || strstr(output, "scale 1.00000001, dropout 0.9999999;") == NULL)
    fail_msg("%s", output);
  if (attend("--rotary 0.99999999", output) != 2 || strstr(output, "--rotary: 0.99999999 given, expected a base of") == NULL)
    fail_msg("%s", output);
  attention_problem_free(&p);
}

/* As in training, which refuses such numbers. */
static void test_rotary_numbers_have_the_range_of_the_type(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"--rotary 1e39", "--rotary: the base is 1e39, expected 0 or a magnitude of 1.18e-38 to 3.4e+38, the range of f32"},
      {"--rotary 10 --rotary-scaling linear --rotary-factor 1e39", "--rotary-factor: the factor is 1e39"}};
  attention_problem p;
  char output[ATTEND_OUTPUT_BYTES];
  attention_problem_make("dense:B1,H2,L6,S5,D4", &p);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    attend_write_problem(HARK_F32, &p);
    if (attend(cases[i][0], output) != 2 || strstr(output, cases[i][1]) == NULL) fail_msg("%s", output);
    attend_write_problem(HARK_F64, &p);
    if (attend(cases[i][0], output) != 0) fail_msg("%s", output);
  }
  attention_problem_free(&p);
}

/* A table of log G that ends before the distances of coarse cells leaves them out; with one level there are no such cells. */
static void test_short_tables(void **state) {
  (void)state;
  static const char *const one_level[] = {"--structure hierarchical", "--structure hierarchical --causal",
                                          "--structure hierarchical --hierarchy-block 6"};
  static const char *const left_out[] = {
      "warning: log_kernel has 20 distances and the cells need 32: their means leave out the missing ones\n"};
  char output[ATTEND_OUTPUT_BYTES];
  for (size_t i = 0; i < sizeof one_level / sizeof one_level[0]; i++) {
    attend_write_extra(8, "log_kernel F32 1 7");
    if (attend(one_level[i], output) == 0) fail_msg("attend %s: a table without the farthest distance", one_level[i]);
    attend_write_extra(8, "log_kernel F32 1 8");
    if (attend(one_level[i], output) != 0 || strstr(output, "warning") != NULL) fail_msg("attend %s: %s", one_level[i], output);
  }
  attention_problem p;
  attention_problem_make("hierarchical:L20,D4,N4,kernel", &p);
  p.array[ARRAY_LOG_KERNEL].shape[1] = p.array[ARRAY_LOG_KERNEL].count = 20;
  expect_warnings(HARK_F32, &p, "--structure hierarchical --hierarchy-block 4", 1, left_out);
  attention_problem_free(&p);
}

/* Writes q, k, v, noise, dvariance, dlog_determinant and dquadratic of two heads and 6 rows; `shift` is added to one number of noise. */
static void write_posterior(double shift) {
  static const struct {
    const char *name;
    int rank;
  } inputs[] = {{"q", 4}, {"k", 4}, {"v", 4}, {"noise", 3}, {"dvariance", 3}, {"dlog_determinant", 3}, {"dquadratic", 4}};
  enum { COUNT = sizeof inputs / sizeof inputs[0], NOISE = 3 };
  static const int64_t shape[] = {1, 2, 6, 3};
  hark_tensor tensors[COUNT];
  hark_named_tensor named[COUNT] = {{0}};
  for (int k = 0; k < COUNT; k++) {
    assert_int_equal(hark_tensor_create(attend_context, HARK_F64, inputs[k].rank, shape, &tensors[k]), HARK_OK);
    double *numbers = tensors[k].data;
    for (int64_t i = 0; i < hark_tensor_count(&tensors[k]); i++) numbers[i] = sin(1.3 * (double)(i + 1) + k) + (k == NOISE ? 1.25 : 0);
    if (k == NOISE) numbers[8] += shift;
    named[k] = (hark_named_tensor){.name = inputs[k].name, .tensor = &tensors[k]};
  }
  assert_int_equal(hark_safetensors_write(attend_context, attend_input, named, COUNT, NULL, 0, NULL), HARK_OK);
  for (int k = 0; k < COUNT; k++) hark_tensor_destroy(attend_context, &tensors[k]);
}

/* <variance, dvariance> + <log_determinant, dlog_determinant> + <quadratic, dquadratic>, and its gradients by number 8 of noise and by the
 * ridge. */
static double loss_of_posterior(double ridge, double shift, double gradients[2]) {
  static const char *const names[] = {"variance", "log_determinant", "quadratic", "dnoise", "dridge"};
  char words[256], output[ATTEND_OUTPUT_BYTES];
  double sum = 0;
  snprintf(words, sizeof words, "--normalisation cme --kernel rbf --sigma 0.75 --ridge %.17g --backend reference", ridge);
  write_posterior(shift);
  if (attend(words, output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  for (int k = 0; k < 5; k++) {
    hark_tensor tensor = attend_load(file, names[k], HARK_F64);
    for (int64_t i = 0; i < hark_tensor_count(&tensor) && k < 3; i++) sum += attend_number(&tensor, i) * sin(1.3 * (double)(i + 1) + 4 + k);
    if (k >= 3) gradients[k - 3] = attend_number(&tensor, k == 3 ? 8 : 0);
    hark_tensor_destroy(attend_context, &tensor);
  }
  hark_safetensors_close(attend_context, &file);
  return sum;
}

/* Noise, and gradients by the statistics of rows without dout. */
static void test_posterior(void **state) {
  (void)state;
  static const double steps[] = {-2, -1, 1, 2}, weights[] = {1, -8, 8, -1}, step = 1e-3;
  double gradients[2], unused[2], want[2] = {0};
  (void)loss_of_posterior(0.5, 0, gradients);
  for (int s = 0; s < 4; s++) {
    want[0] += weights[s] * loss_of_posterior(0.5, steps[s] * step, unused) / (12 * step);
    want[1] += weights[s] * loss_of_posterior(0.5 + steps[s] * step, 0, unused) / (12 * step);
  }
  for (int i = 0; i < 2; i++)
    if (!(fabs(gradients[i] - want[i]) < 1e-8 * (1 + fabs(want[i]))))
      fail_msg("gradient %d is %.12g, differences give %.12g", i, gradients[i], want[i]);
  (void)loss_of_posterior(0, 0, gradients); /* noise alone */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_as_library),
      cmocka_unit_test(test_rotary),
      cmocka_unit_test(test_sigma_gradient),
      cmocka_unit_test(test_sigma_gradient_of_far_rows),
      cmocka_unit_test(test_sigma_gradient_of_distant_pairs),
      cmocka_unit_test(test_sigma_gradient_beside_a_far_key),
      cmocka_unit_test(test_ridge),
      cmocka_unit_test(test_solver),
      cmocka_unit_test(test_posterior),
      cmocka_unit_test(test_forward_alone),
      cmocka_unit_test(test_results_that_are_not_finite),
      cmocka_unit_test(test_rows_below_the_range),
      cmocka_unit_test(test_printed_numbers),
      cmocka_unit_test(test_rotary_numbers_have_the_range_of_the_type),
      cmocka_unit_test(test_short_tables),
  };
  return cmocka_run_group_tests(tests, attend_open, attend_close);
}
