/* test_attend_positional.c - hark attend --positional: the same numbers as a table of log G of all distances that a structure reaches, and
 * gradients by the values of an expression. */
#include "support/cmocka_all.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hark/positional.h>

#include "support/train/attend_files.h"

static const char *const kernels[2] = {"bank[2](decay(sigma2=[1.5,0.4],l=[30,8])*periodic(alpha=[0.7,1.3],tau=[5,2.5]))",
                                       "kerple_log(r1=0.5,r2=0.3)"};

/* --positional: the same bits as the table of log G that the library makes. */
static void test_positional(void **state) {
  (void)state;
  attention_problem p;
  attention_results r;
  char output[ATTEND_OUTPUT_BYTES], words[512];
  attention_problem_make("dense:B2,H2,L6,S9,D3,causal,kernel", &p);
  attention_numbers *table = &p.array[ARRAY_LOG_KERNEL];
  const hark_positional_start start = {.struct_size = sizeof start};
  for (int h = 0; h < 2; h++) {
    hark_positional *kernel = NULL;
    double parameters[8];
    assert_int_equal(hark_positional_create(attend_context, kernels[h], &kernel), HARK_OK);
    assert_int_equal(hark_positional_initial(attend_context, kernel, &start, parameters), HARK_OK);
    for (int64_t i = 0; i < table->shape[1]; i++) {
      const double distance = (double)i;
      assert_int_equal(hark_positional_log(attend_context, kernel, parameters, &distance, 1, &table->data[h * table->shape[1] + i]),
                       HARK_OK);
    }
    hark_positional_destroy(attend_context, &kernel);
  }
  attention_run(attend_context, HARK_F64, &p, &r);
  table->count = 0; /* not in the file */
  attend_write_problem(HARK_F64, &p);
  snprintf(words, sizeof words, "--causal --backend reference --threads 1 --positional '%s' --positional '%s'", kernels[0], kernels[1]);
  if (attend(words, output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  attend_compare_first_results(file, &r, 0, words);
  assert_null(hark_safetensors_find(file, "dlog_kernel"));
  hark_tensor gradient = attend_load(file, "dpositional", HARK_F64);
  assert_int_equal(gradient.shape[0], 2);
  assert_int_equal(gradient.shape[1], 8);
  for (int i = 2; i < 8; i++) assert_true(attend_number(&gradient, 8 + i) == 0); /* the second kernel has two parameters */
  hark_tensor_destroy(attend_context, &gradient);
  hark_safetensors_close(attend_context, &file);
  attention_results_free(&r);
  attention_problem_free(&p);
}

/* <out, dout> with one kernel for all heads, and its gradient. */
static double loss_of_kernel(const attention_problem *p, const double values[4], double gradient[4]) {
  char words[512], output[ATTEND_OUTPUT_BYTES];
  snprintf(words, sizeof words, "--causal --backend reference --positional 'bank[2](decay(l=[%.17g,%.17g],sigma2=[%.17g,%.17g]))'",
           values[2], values[3], values[0], values[1]);
  if (attend(words, output) != 0) fail_msg("%s", output);
  hark_safetensors *file;
  assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
  hark_tensor out = attend_load(file, "out", HARK_F64), by_value = attend_load(file, "dpositional", HARK_F64);
  double sum = 0;
  for (int64_t i = 0; i < hark_tensor_count(&out); i++) sum += attend_number(&out, i) * p->array[ARRAY_DOUT].data[i];
  for (int i = 0; i < 4; i++) gradient[i] = attend_number(&by_value, i);
  hark_tensor_destroy(attend_context, &out);
  hark_tensor_destroy(attend_context, &by_value);
  hark_safetensors_close(attend_context, &file);
  return sum;
}

/* dpositional is by natural values, in the order of the expression whatever the order in which they are given: sigma2 of all, then l of
 * all. */
static void test_positional_gradient(void **state) {
  (void)state;
  const double step = 1e-3;
  double values[4] = {1.5, 0.4, 1.25, 6}, gradient[4], unused[4];
  attention_problem p;
  attention_problem_make("dense:B2,H2,L6,D3,causal", &p);
  attend_write_problem(HARK_F64, &p);
  (void)loss_of_kernel(&p, values, gradient);
  for (int i = 0; i < 4; i++) {
    static const double at[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
    const double here = values[i];
    double difference = 0;
    for (int k = 0; k < 4; k++) {
      values[i] = here + at[k] * step;
      difference += factor[k] * loss_of_kernel(&p, values, unused) / (12 * step);
    }
    values[i] = here;
    assert_true(fabs(gradient[i]) > 1e-6);
    if (!(fabs(gradient[i] - difference) < 1e-8)) fail_msg("value %d: %.12g, differences give %.12g", i, gradient[i], difference);
  }
  attention_problem_free(&p);
}

#define FAR 4096 /* distances: more than any hierarchy here has */

/* log G of an expression, for one head, at the distances 0 .. FAR - 1; of a directed case from -(FAR - 1) to FAR - 1. */
static void give_table(attention_problem *p, const char *text) {
  attention_numbers *table = &p->array[ARRAY_LOG_KERNEL];
  hark_positional *kernel = NULL;
  double parameters[8], distances[2 * FAR];
  const int64_t first = p->is.directed ? 1 - FAR : 0, columns = FAR - first;
  const hark_positional_start start = {.struct_size = sizeof start};
  for (int64_t i = 0; i < columns; i++) distances[i] = (double)(first + i);
  free(table->data);
  *table = (attention_numbers){.rank = 2, .shape = {1, columns}, .count = columns, .data = malloc((size_t)columns * sizeof(double))};
  assert_non_null(table->data);
  p->is.shared = true;
  assert_int_equal(hark_positional_create(attend_context, text, &kernel), HARK_OK);
  assert_int_equal(hark_positional_initial(attend_context, kernel, &start, parameters), HARK_OK);
  assert_int_equal(hark_positional_log(attend_context, kernel, parameters, distances, columns, table->data), HARK_OK);
  hark_positional_destroy(attend_context, &kernel);
}

/* The first rows of a problem of one item and one head, as one of their own. */
static void keep_rows(attention_problem *p, int64_t rows) {
  for (int array = ARRAY_QUERY; array <= ARRAY_DOUT; array++) {
    p->array[array].shape[2] = rows;
    p->array[array].count = rows * p->array[array].shape[3];
  }
  p->is.queries = p->is.keys = rows;
}

/* The table that --positional makes has all distances that the cells of a hierarchy reach, and those of all other structures: results are
 * those of the definition with a table that has no end, and causal rows do not depend on how many rows come after them. */
static void check_hierarchy(const char *text, const char *words, const char *expression, int64_t rows) {
  char all_words[512], output[ATTEND_OUTPUT_BYTES];
  double whole[256 * 8];
  attention_problem p;
  attention_problem_make(text, &p);
  p.array[ARRAY_LOG_KERNEL].count = 0; /* not in the file */
  snprintf(all_words, sizeof all_words, "--backend reference %s --positional '%s'", words, expression);
  for (int part = 0; part < 2; part++) {
    attention_expected e;
    hark_safetensors *file;
    if (part == 1) keep_rows(&p, rows);
    p.array[ARRAY_LOG_KERNEL].count = 0;
    attend_write_problem(HARK_F64, &p);
    if (attend(all_words, output) != 0) fail_msg("'%s' %s: %s", text, all_words, output);
    give_table(&p, expression);
    attention_expected_make(&p, &e);
    assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
    hark_tensor out = attend_load(file, "out", HARK_F64);
    assert_int_equal(hark_tensor_count(&out), e.array[ARRAY_OUT].count);
    for (int64_t i = 0; i < hark_tensor_count(&out); i++) {
      const double want = e.array[ARRAY_OUT].data[i];
      if (!(fabs(attend_number(&out, i) - want) < 1e-12))
        fail_msg("'%s' %s, part %d: out[%" PRId64 "] is %.17g, expected %.17g", text, words, part, i, attend_number(&out, i), want);
      if (part == 0) whole[i] = attend_number(&out, i);
      if (part == 1 && p.is.causal && !(fabs(attend_number(&out, i) - whole[i]) < 1e-14))
        fail_msg("'%s' %s: out[%" PRId64 "] is %.17g alone and %.17g of a longer text", text, words, i, attend_number(&out, i), whole[i]);
    }
    hark_tensor_destroy(attend_context, &out);
    hark_safetensors_close(attend_context, &file);
    attention_expected_free(&e);
  }
  attention_problem_free(&p);
}

static void test_positional_hierarchy(void **state) {
  (void)state;
  static const char *const expressions[] = {"periodic(alpha=2,tau=7)", "alibi(m=0.01)"};
  static const struct {
    const char *text, *words;
    int64_t rows;
  } cases[] = {
      {"hierarchical:H1,L101,D4,N4,causal", "--structure hierarchical --causal --hierarchy-block 4", 60},
      {"hierarchical:H1,L101,D4,N4", "--structure hierarchical --hierarchy-block 4", 60},
      {"hierarchical:H1,L101,D4,N4,causal,sibling", "--structure hierarchical --causal --hierarchy-block 4 --partition sibling", 33},
      {"hierarchical:H1,L101,D4,N4,causal,exact", "--structure hierarchical --causal --hierarchy-block 4 --coarse-query exact", 65},
      {"hierarchical:H1,L131,D4,N2,exact,sibling", "--structure hierarchical --hierarchy-block 2 --coarse-query exact --partition sibling",
       64},
      {"hierarchical:H1,L49,D4,N2,linear", "--structure hierarchical --hierarchy-block 2 --interpolation linear", 20},
      {"hierarchical:H1,L33,D4,causal", "--structure hierarchical --causal", 3},
      {"dense:H1,L101,D4,causal", "--causal", 60},
      {"window:H1,L101,D4,W5,causal", "--structure window --window 5 --causal", 60}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int k = 0; k < 2; k++) check_hierarchy(cases[i].text, cases[i].words, expressions[k], cases[i].rows);
}

/* Queries that are none of the keys: at distances on both sides. */
static void test_positional_offsets(void **state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } cases[] = {{"dense:H1,L9,S11,D4", ""},
               {"dense:H1,L9,S11,D4,causal", "--causal"},
               {"dense:H1,L9,S5,D4,causal", "--causal"},
               {"dense:H1,L9,S11,D4,offset=30", "--query-offset 30"},
               {"dense:H1,L9,S11,D4,offset=-30", "--query-offset -30"},
               {"dense:H1,L9,S11,D4,causal,offset=30", "--causal --query-offset 30"},
               {"dense:H1,L9,S11,D4,causal,offset=-30", "--causal --query-offset -30"},
               {"window:H1,L9,S11,D4,W3,offset=8", "--structure window --window 3 --query-offset 8"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char words[512], output[ATTEND_OUTPUT_BYTES];
    attention_problem p;
    attention_expected e;
    hark_safetensors *file;
    attention_problem_make(cases[i].text, &p);
    attend_write_problem(HARK_F64, &p);
    snprintf(words, sizeof words, "--backend reference %s --positional 'decay(sigma2=1,l=9)*periodic(alpha=1,tau=3)'", cases[i].words);
    if (attend(words, output) != 0) fail_msg("'%s' %s: %s", cases[i].text, words, output);
    give_table(&p, "decay(sigma2=1,l=9)*periodic(alpha=1,tau=3)");
    attention_expected_make(&p, &e);
    attention_results r = {.data = {[ARRAY_OUT] = e.array[ARRAY_OUT].data}, .count = {[ARRAY_OUT] = e.array[ARRAY_OUT].count}};
    assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
    hark_tensor out = attend_load(file, "out", HARK_F64);
    for (int64_t k = 0; k < r.count[ARRAY_OUT]; k++)
      if (!(fabs(attend_number(&out, k) - r.data[ARRAY_OUT][k]) < 1e-13))
        fail_msg("'%s': out[%" PRId64 "] is %.17g, expected %.17g", cases[i].text, k, attend_number(&out, k), r.data[ARRAY_OUT][k]);
    hark_tensor_destroy(attend_context, &out);
    hark_safetensors_close(attend_context, &file);
    attention_expected_free(&e);
    attention_problem_free(&p);
  }
}

/* Expressions with a direction have a table of both sides; in causal attention left(e) has the bits of e, and right(e) is refused. */
static void test_directions(void **state) {
  (void)state;
  static const char expression[] = "left(decay(sigma2=1,l=9))*right(rbf(sigma2=0.5,l=4))";
  static const struct {
    const char *text, *words;
  } cases[] = {{"dense:H1,L9,S11,D4,directed", ""},
               {"dense:H1,L9,S11,D4,directed,offset=5", "--query-offset 5"},
               {"window:H1,L29,D4,W5,directed", "--structure window --window 5"},
               {"hierarchical:H1,L60,D4,N4,directed", "--structure hierarchical --hierarchy-block 4"},
               {"hierarchical:H1,L60,D4,N4,directed,exact", "--structure hierarchical --hierarchy-block 4 --coarse-query exact"}};
  char words[512], output[ATTEND_OUTPUT_BYTES];
  attention_problem p;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    attention_expected e;
    hark_safetensors *file;
    attention_problem_make(cases[i].text, &p);
    attend_write_problem(HARK_F64, &p);
    snprintf(words, sizeof words, "--backend reference %s --positional '%s'", cases[i].words, expression);
    if (attend(words, output) != 0) fail_msg("'%s' %s: %s", cases[i].text, words, output);
    give_table(&p, expression);
    attention_expected_make(&p, &e);
    assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
    hark_tensor out = attend_load(file, "out", HARK_F64), gradient = attend_load(file, "dpositional", HARK_F64);
    assert_int_equal(gradient.shape[1], 4);
    for (int64_t k = 0; k < e.array[ARRAY_OUT].count; k++)
      if (!(fabs(attend_number(&out, k) - e.array[ARRAY_OUT].data[k]) < 1e-12))
        fail_msg("'%s': out[%" PRId64 "] is %.17g, expected %.17g", cases[i].text, k, attend_number(&out, k), e.array[ARRAY_OUT].data[k]);
    hark_tensor_destroy(attend_context, &out);
    hark_tensor_destroy(attend_context, &gradient);
    hark_safetensors_close(attend_context, &file);
    attention_expected_free(&e);
    attention_problem_free(&p);
  }
  attention_problem_make("dense:H1,L9,D4,causal", &p);
  attend_write_problem(HARK_F64, &p);
  double first[9 * 4] = {0};
  for (int k = 0; k < 2; k++) {
    hark_safetensors *file;
    snprintf(words, sizeof words, "--backend reference --causal --positional '%s'", k == 0 ? "decay(l=9)" : "left(decay(l=9))");
    if (attend(words, output) != 0) fail_msg("%s: %s", words, output);
    assert_int_equal(hark_safetensors_open(attend_context, attend_output, &file), HARK_OK);
    hark_tensor out = attend_load(file, "out", HARK_F64);
    for (int64_t i = 0; i < 9 * 4; i++) {
      if (k == 0) first[i] = attend_number(&out, i);
      assert_true(first[i] == attend_number(&out, i));
    }
    hark_tensor_destroy(attend_context, &out);
    hark_safetensors_close(attend_context, &file);
  }
  assert_int_equal(attend("--causal --positional 'decay*right(rbf)'", output), 2);
  assert_non_null(strstr(output, "column 7: right(...) has no effect with --causal"));
  assert_int_equal(attend("--directed-kernel", output), 2);
  assert_non_null(strstr(output, "--directed-kernel needs tensor log_kernel"));
  assert_int_equal(attend("--normalisation cme --ridge 1 --positional 'left(decay)'", output), 2);
  assert_non_null(strstr(output, "column 1: a kernel with a direction is not positive definite"));
  attention_problem_free(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_directions),           cmocka_unit_test(test_positional),         cmocka_unit_test(test_positional_gradient),
      cmocka_unit_test(test_positional_hierarchy), cmocka_unit_test(test_positional_offsets),
  };
  return cmocka_run_group_tests(tests, attend_open, attend_close);
}
