/* test_kernel_ridge.c - kernel ridge attention in the command: what is refused before anything is allocated, how an
 * incorrect number is reported, which pivots are raised, and what hark info reports of learned ridges. One line each, with the exit codes
 * of hark.
 */
#include <hark/hark.h>
#include <hark/model.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "io/safetensors.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"
#include "support/setups.h"

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
  if (code != HARK_EXIT_DONE && test_line_count(output.err) != 1) fail_msg("hark %s: '%s'", words, output.err);
}

/* q, k and v [1, 2, length, dim] in in.safetensors: numbers that never repeat within a few hundred rows; then `change` of them. */
static void write_rows(int64_t length, int64_t dim, void (*change)(float *q, float *k, float *v)) {
  hark_context *context = test_reference_open();
  const int64_t shape[] = {1, 2, length, dim};
  hark_tensor tensors[3];
  const hark_named_tensor named[] = {
      {.name = "q", .tensor = &tensors[0]}, {.name = "k", .tensor = &tensors[1]}, {.name = "v", .tensor = &tensors[2]}};
  for (int t = 0; t < 3; t++) {
    assert_fine(context, hark_tensor_create(context, HARK_F32, 4, shape, &tensors[t]));
    float *numbers = tensors[t].data;
    for (int64_t i = 0; i < 2 * length * dim; i++) numbers[i] = (float)sin(0.7 * (double)i + t);
  }
  if (change != NULL) change(tensors[0].data, tensors[1].data, tensors[2].data);
  assert_fine(context, hark_safetensors_write(context, test_path(folder, "in.safetensors"), named, 3, NULL, 0, NULL));
  for (int t = 0; t < 3; t++) hark_tensor_destroy(context, &tensors[t]);
  test_setup_close(context);
}

#define ATTEND "attend --input in.safetensors --output out.safetensors --normalisation cme "

enum { LENGTH = 30, DIM = 4 };

static void spoil_key(float *q, float *k, float *v) {
  (void)q;
  (void)v;
  k[(LENGTH + 7) * DIM + 2] = NAN; /* head 1, row 7 */
}
static void spoil_value(float *q, float *k, float *v) {
  (void)q;
  (void)k;
  v[21 * DIM] = INFINITY;
}
static void lengthen_keys(float *q, float *k, float *v) {
  (void)q;
  (void)v;
  for (int c = 0; c < DIM; c++) k[9 * DIM + c] = 50;
}
static void repeat_keys(float *q, float *k, float *v) {
  (void)q;
  (void)v;
  memcpy(k + (LENGTH + 12) * DIM, k + (LENGTH + 3) * DIM, DIM * sizeof *k);
}

static void wrong_numbers_name_head_and_row(void **state) {
  (void)state;
  write_rows(LENGTH, DIM, spoil_key);
  expect(ATTEND "--ridge 1", HARK_EXIT_NOT_FINITE, "", "item 0, head 1: the key of row 7 is not finite");
  write_rows(LENGTH, DIM, spoil_value);
  expect(ATTEND "--ridge 1 --causal --kernel rbf --sigma 1", HARK_EXIT_NOT_FINITE, "", "item 0, head 0: the value of row 21 is not finite");
  write_rows(LENGTH, DIM, lengthen_keys); /* an exponential without a bound: what goes out of range is reported; unit rows do not */
  expect(ATTEND "--ridge 1", HARK_EXIT_NOT_FINITE, "", "item 0, head 0, key row 9: the kernel's exponent is");
  expect(ATTEND "--ridge 1 --unit", HARK_EXIT_DONE, "", "");
  write_rows(LENGTH, DIM, repeat_keys);
  expect(ATTEND "--ridge 1e-30 --kernel rbf --sigma 0.5", HARK_EXIT_DONE, "",
         "1 pivots were mended, the largest change: item 0, head 1, key row 12, by ");
}

static void wrong_options_are_one_line(void **state) {
  (void)state;
  static const struct {
    const char *words, *says;
  } wrong[] = {
      {"--ridge 0 --normalisation cme", "--ridge: "},
      {"--ridge -1 --normalisation cme", "--ridge: "},
      {"--normalisation cme --positional 'window(w=3)' --positions none", "not positive definite"},
      {"--normalisation cme --positional t5 --positions none", "not positive definite"},
      {"--normalisation cme --structure window", "normalisation cme needs model.attention.structure dense"},
      {"--layers 2 --normalisation softmax,cme --structure dense,window", "normalisation cme needs model.attention.structure dense"},
      {"--layers 2 --normalisation cme,softmax,softmax", "3 words for 2 layers, expected at most one per layer"},
      {"--normalisation cme --forget-gate", "normalisation cme needs a symmetric kernel"},
      {"--normalisation cme --attention-dropout 0.1", "no normalised weights to drop"},
      {"--normalisation cme --sigma-learned", "it needs --kernel rbf (currently exp)"},
      {"--ridge-learned", "it needs --normalisation cme (currently softmax)"}};
  char words[512];
  write_rows(LENGTH, DIM, NULL);
  expect(ATTEND, HARK_EXIT_USAGE, "", "cme needs --ridge X above 0");
  expect(ATTEND "--ridge 1 --positional 'window(w=3)'", HARK_EXIT_USAGE, "", "not positive definite");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    (void)snprintf(words, sizeof words, "train --data text.txt --out run " COMMAND_TINY "--steps 1 %s", wrong[i].words);
    command_expect(folder, words, HARK_EXIT_USAGE, "", wrong[i].says, &output);
  }
}

/* A factor of 200,000 keys takes 80 GB for every thread; the cache of a context of a million tokens terabytes. */
static void lengths_beyond_memory_are_reported_beforehand(void **state) {
  (void)state;
  static const char description[] =
      "{\"model\": {\"type\": \"gpt\", \"layers\": 1, \"heads\": 2, \"key_heads\": 2, \"width\": 16, \"feed_forward_width\": 16, "
      "\"context\": 1048576, \"activation\": \"gelu\", \"norm\": \"layer_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"rotary\", "
      "\"tie_embeddings\": true, \"bias\": true, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, \"attention\": {\"structure\": "
      "\"dense\", \"window\": 5, \"kernel\": \"rbf\", \"sigma\": 1, \"forget_gate\": false, \"normalisation\": \"cme\", \"ridge\": 0.5}}}";
  write_rows(200000, 1, NULL);
  expect(ATTEND "--ridge 1 --causal", HARK_EXIT_MEMORY, "", "attention needs ");
  hark_context *context = test_setup_open(&(test_setup){"cpu", NULL}, 1);
  const hark_model_options options = {
      .struct_size = sizeof options, .description = description, .description_bytes = sizeof description - 1};
  hark_model *model = NULL;
  assert_fine(context, hark_model_create(context, &options, 1, &model));
  assert_fine(context, hark_model_save(context, model, test_path(folder, "far.safetensors")));
  hark_model_destroy(context, &model);
  test_setup_close(context);
  expect("generate far.safetensors --max-new-tokens 1000000", HARK_EXIT_MEMORY, "", "the model's cache needs ");
}

/* A run with learned ridges and sigmas, what hark info reports of it, and text from it, token by token. */
static void a_run_tells_its_ridges(void **state) {
  (void)state;
  expect("train --data text.txt --out run --layers 2 " COMMAND_SMALL
         "--steps 2 --normalisation cme --kernel rbf --sigma 1.5 --ridge 0.25 --ridge-learned --sigma-learned",
         HARK_EXIT_DONE, "", "");
  expect("info run", HARK_EXIT_DONE, "ridge \"blocks.1.attention.log_ridge\": 0.2", "");
  assert_non_null(strstr(output.out, "sigma \"blocks.0.attention.log_sigma\": 1."));
  expect("info run --json", HARK_EXIT_DONE, "", "");
  json_t *object = command_json(&output);
  assert_non_null(strstr(output.out, "log_ridge"));
  json_decref(object);
  expect("generate run --max-new-tokens 20 --temperature 0 --json", HARK_EXIT_DONE, "", ""); /* more than the context of 8 */
  object = command_json(&output);
  assert_true(command_number(object, "tokens") == 20);
  assert_null(json_object_get(object, "mended_pivots"));
  json_decref(object);
  expect("train --data text.txt --out mended --layers 1 " COMMAND_SMALL
         "--steps 1 --normalisation cme --kernel rbf --sigma 1.5 --ridge 1e-30 --positions none",
         HARK_EXIT_DONE, "", "");
  expect("generate mended --prompt eeee --max-new-tokens 1 --temperature 0 --json", HARK_EXIT_DONE, "", "pivots were mended");
  object = command_json(&output);
  assert_true(command_number(object, "mended_pivots") >= 3); /* equal keys */
  json_decref(object);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(wrong_numbers_name_head_and_row, begin, end),
      cmocka_unit_test_setup_teardown(wrong_options_are_one_line, begin, end),
      cmocka_unit_test_setup_teardown(lengths_beyond_memory_are_reported_beforehand, begin, end),
      cmocka_unit_test_setup_teardown(a_run_tells_its_ridges, begin, end),
  };
  return cmocka_run_group_tests_name("kernel_ridge", tests, NULL, NULL);
}
