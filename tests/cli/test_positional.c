/* test_positional.c - hark positional and what hark info says of learned kernels. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/core.h"
#include "io/safetensors.h"
#include "json/json.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define OUTPUT_BYTES 65536

static char output[OUTPUT_BYTES];

/* Runs hark with `words`; what it prints goes to `output`. Returns the exit code. */
static int hark(const char *words) {
  char command[1024];
  snprintf(command, sizeof command, "\"%s\" %s 2>&1", HARK_COMMAND, words);
  FILE *pipe = popen(command, "r");
  assert_non_null(pipe);
  const size_t length = fread(output, 1, OUTPUT_BYTES - 1, pipe);
  output[length] = '\0';
  const int status = pclose(pipe);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static json_t *parsed(const char *words) {
  json_error_t error;
  if (hark(words) != 0) fail_msg("%s: %s", words, output);
  json_t *object = json_loads(output, 0, &error);
  if (object == NULL) fail_msg("%s: %s: %s", words, error.text, output);
  return object;
}

static double member(const json_t *object, const char *name, size_t index) {
  const json_t *list = json_object_get(object, name);
  assert_true(index < json_array_size(list));
  return json_number_value(json_array_get(list, index));
}

static void tables_are_those_of_the_kernel(void **state) {
  (void)state;
  json_t *object = parsed("positional 'decay(sigma2 = 2, length_scale = 5) * window(3)' --distances 6 --json");
  assert_string_equal(json_string_value(json_object_get(object, "expression")), "decay(sigma2=2,l=5)*window(w=3)");
  assert_int_equal(json_integer_value(json_object_get(object, "parameter_count")), 2);
  assert_true(json_is_false(json_object_get(object, "positive_definite")));
  for (size_t i = 0; i < 4; i++) {
    assert_true(member(object, "distances", i) == (double)i);
    assert_true(fabs(member(object, "log_g", i) - (log(2) - (double)i / 5)) < 1e-14);
  }
  assert_int_equal(json_array_size(json_object_get(object, "log_g")), 6);
  assert_true(json_is_null(json_array_get(json_object_get(object, "log_g"), 4)));
  const json_t *length = json_array_get(json_object_get(object, "parameters"), 1);
  assert_string_equal(json_string_value(json_object_get(length, "name")), "l");
  assert_true(member(length, "values", 0) == 5);
  json_decref(object);
}

static void initial_values_follow_context_and_head(void **state) {
  (void)state;
  json_t *object = parsed("positional 'bank[8](decay*periodic)' --context 1000 --json");
  assert_int_equal(json_integer_value(json_object_get(object, "parameter_count")), 32);
  assert_true(json_is_true(json_object_get(object, "positive_definite")));
  const json_t *length = json_array_get(json_object_get(object, "parameters"), 1);
  assert_true(fabs(member(length, "values", 7) - 2000) < 1e-9);
  assert_true(member(object, "distances", json_array_size(json_object_get(object, "distances")) - 1) == 1024);
  json_decref(object);
  object = parsed("positional alibi --heads 8 --head 2 --json");
  assert_true(fabs(member(json_array_get(json_object_get(object, "parameters"), 0), "values", 0) - 0.125) < 1e-15);
  json_decref(object);
}

static void people_can_read_it(void **state) {
  (void)state;
  assert_int_equal(hark("positional 'decay(l=10)+constant'"), 0);
  assert_non_null(strstr(output, "positive definite  yes"));
  assert_non_null(strstr(output, "starts as   decay(sigma2=1,l=10)+constant(sigma2=1)"));
  assert_int_equal(hark("positional"), 0);
  assert_non_null(strstr(output, "rational_quadratic"));
  json_t *object = parsed("positional --json");
  assert_int_equal(json_array_size(json_object_get(object, "kernels")), hark_positional_kernel_count());
  json_decref(object);
}

/* With a direction, rows are for both sides. */
static void tables_have_both_directions(void **state) {
  (void)state;
  static const double expected[] = {-2, -1, 0, -0.25, -0.5}; /* keys 2 and 1 after the query, the query itself, keys before it */
  json_t *object = parsed("positional 'left(decay(l=4))*right(alibi(m=1))' --distances 3 --json");
  assert_true(json_is_true(json_object_get(object, "directed")));
  assert_true(json_is_false(json_object_get(object, "positive_definite")));
  assert_int_equal(json_array_size(json_object_get(object, "log_g")), 5);
  for (size_t i = 0; i < 5; i++) {
    assert_true(member(object, "distances", i) == (double)i - 2);
    assert_true(fabs(member(object, "log_g", i) - expected[i]) < 1e-14);
  }
  json_decref(object);
  assert_int_equal(hark("positional 'left(decay)*right(t5[16])' --context 4"), 0);
  assert_non_null(strstr(output, "below 0 the key is after the query"));
  assert_non_null(strstr(output, "\n        -8  "));
  assert_non_null(strstr(output, "no: the kernel at column 1 is not (positive definite: without left(...) and right(...))"));
}

/* The file, or gnuplot's script where gnuplot is missing, contains the titles of the panels. */
static void expect_titles(const char *folder, const char *name, const char *words, const char *const *titles, int count) {
  char command[2 * TEST_PATH_BYTES], script[TEST_PATH_BYTES];
  (void)snprintf(command, sizeof command, "positional %s --figure %s", words, test_path(folder, name));
  assert_int_equal(hark(command), 0);
  (void)snprintf(script, sizeof script, "%s.gp", name);
  char *const text = test_file_text(folder, access(test_path(folder, name), R_OK) == 0 ? name : script);
  for (int i = 0; i < count; i++)
    if (strstr(text, titles[i]) == NULL) fail_msg("%s: no panel of %s", name, titles[i]);
  free(text);
}

static void figures_have_all_kernels(void **state) {
  (void)state;
  static const char *const titles[] = {"decay(l=10)*bump"}, *const heads[] = {"head 0", "head 4"};
  static const char *const sides[] = {"left(decay(l=9))*right(rbf)", "position of the key less that of the query"};
  const char *names[64];
  char folder[TEST_PATH_BYTES];
  test_folder_make(folder);
  for (int i = 0; i < hark_positional_kernel_count(); i++) names[i] = hark_positional_kernel_at(i).name;
  expect_titles(folder, "all.svg", "--context 30 --heads 2", names, hark_positional_kernel_count());
  expect_titles(folder, "one.svg", "'decay(l=10)*bump' --context 1", titles, 1);
  expect_titles(folder, "sides.svg", "'left(decay(l=9))*right(rbf)' --context 30", sides, 2);
  expect_titles(folder, "heads.svg", "'bank[3](rbf)' --context 5000 --heads 5", heads, 2);
  test_folder_remove(folder);
}

static void mistakes_are_usage(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"positional 'decay*'", "hark positional: positional kernel, column 7: found the end"},
      {"positional 'decay(l=-1)'", "column 9: l is -1, expected a positive number"},
      {"positional decay --head 1", "expected one below --heads 1"},
      {"positional 'decay+t5' --require-definite", "column 7: this kernel is not positive definite"},
      {"train --positional 'bank[2](decay(l=[1,2,3]))' --data x", "column 17: l has a list of 3, expected 2"},
      {"train --positional 'left(decay)*right(rbf)' --data x", "right(...) at column 13, and in model.architecture decoder no token sees"},
      {"positional 'left(right(decay))'", "column 6: right(...) inside of the left(...) at column 1"},
      {"train --positional decay --positional-scope heads --data x", "head"}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    const int code = hark(cases[i][0]);
    if (code != 2 || strstr(output, cases[i][1]) == NULL) fail_msg("%s: exit %d, '%s'", cases[i][0], code, output);
    assert_ptr_equal(strchr(output, '\n'), output + strlen(output) - 1); /* one line */
  }
}

/* A checkpoint's weights with kernels of two heads. */
static void learned_kernels_are_shown(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  char folder[TEST_PATH_BYTES], words[2 * TEST_PATH_BYTES];
  const int64_t shape[] = {2, 3};
  const float values[] = {0.0f, 0.6931472f, -1.0f, 0.5f, 2.0f, 1.0f}; /* float(log 2) is the logarithm of 2.0000000388... */
  hark_tensor tensor;
  test_folder_make(folder);
  assert_fine(context, hark_tensor_create(context, HARK_F32, 2, shape, &tensor));
  assert_fine(context, hark_tensor_write(context, &tensor, values));
  const hark_named_tensor named[] = {{.name = "blocks.0.attention.positional.parameters", .tensor = &tensor}};
  const hark_metadata_entry good[] = {{"positional", "decay*alibi"}, {"positional_scope", "head"}}, bad[] = {{"positional", "decay"}};
  const char *path = test_path(folder, "model.safetensors");
  assert_fine(context, hark_safetensors_write(context, path, named, 1, good, 2, NULL));
  snprintf(words, sizeof words, "info '%s'", path);
  assert_int_equal(hark(words), 0);
  assert_non_null(strstr(output, "positional kernel decay*alibi, scope \"head\": 6 parameters"));
  snprintf(words, sizeof words, "info '%s' --json", path);
  json_t *object = parsed(words);
  const json_t *kernels = json_object_get(json_object_get(object, "positional"), "kernels");
  assert_int_equal(json_array_size(kernels), 2);
  double sigma2 = 0, l = 0, m = 0;
  const char *text = json_string_value(json_object_get(json_array_get(kernels, 1), "expression"));
  assert_int_equal(sscanf(text, "decay(sigma2=%lf,l=%lf)*alibi(m=%lf)", &sigma2, &l, &m), 3);
  assert_true(fabs(sigma2 - exp(0.5)) < 1e-15 * 8 && fabs(l - exp(2)) < 1e-15 * 32 && fabs(m - exp(1)) < 1e-15 * 8);
  json_decref(object);
  assert_fine(context, hark_safetensors_write(context, path, named, 1, bad, 1, NULL));
  snprintf(words, sizeof words, "info '%s'", path);
  assert_int_equal(hark(words), 3);
  assert_non_null(strstr(output, "rows of 2 numbers"));
  hark_tensor_destroy(context, &tensor);
  test_folder_remove(folder);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tables_are_those_of_the_kernel),
      cmocka_unit_test(tables_have_both_directions),
      cmocka_unit_test(initial_values_follow_context_and_head),
      cmocka_unit_test(people_can_read_it),
      cmocka_unit_test(figures_have_all_kernels),
      cmocka_unit_test(mistakes_are_usage),
      cmocka_unit_test(learned_kernels_are_shown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
