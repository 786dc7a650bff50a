/* test_foreign_exports.c - imported models as files of hark, and models of hark as folders for other programs. */
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/files.h"
#include "io/safetensors.h"
#include "models/foreign/foreign_write.h"
#include "support/cmocka_all.h"
#include "support/foreign_folder.h"
#include "support/setups.h"

static char folder[TEST_PATH_BYTES];

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  return 0;
}

/* ---- files of hark, and back ---- */

/* Whether two files have the same tensors, by name, type and bytes. */
static void assert_same_tensors(hark_context *context, const char *a, const char *b) {
  hark_safetensors *one = NULL, *other = NULL;
  assert_fine(context, hark_safetensors_open(context, a, &one));
  assert_fine(context, hark_safetensors_open(context, b, &other));
  assert_int_equal(hark_safetensors_count(one), hark_safetensors_count(other));
  for (int64_t i = 0; i < hark_safetensors_count(one); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(one, i), *const u = hark_safetensors_find(other, t->name);
    static char x[4096], y[4096];
    if (u == NULL || u->bytes != t->bytes || u->rank != t->rank || u->shape[0] != t->shape[0]) fail_msg("%s", t->name);
    assert_fine(context, hark_safetensors_read(context, one, t, x));
    assert_fine(context, hark_safetensors_read(context, other, u, y));
    if (memcmp(x, y, t->bytes) != 0) fail_msg("%s has other numbers", t->name);
  }
  hark_safetensors_close(context, &one);
  hark_safetensors_close(context, &other);
}

typedef struct round_trip {
  const char *name, *keys;
  const foreign_entry *entries;
  int count;
} round_trip;

static void exports_have_the_bits_of_what_was_imported(void **state) {
  (void)state;
  static const round_trip cases[] = {
      {"gpt2", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT},
      {"llama", "\"model_type\": \"llama\", " FOREIGN_LLAMA_KEYS ", \"rope_theta\": 123456.5, \"rms_norm_eps\": 1e-05", foreign_llama,
       FOREIGN_LLAMA_COUNT},
      {"llama",
       "\"model_type\": \"llama\", " FOREIGN_LLAMA_KEYS ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 30, "
       "\"original_max_position_embeddings\": 4, \"truncate\": false}",
       foreign_llama, FOREIGN_LLAMA_COUNT},
      {"mistral", "\"model_type\": \"mistral\", " FOREIGN_LLAMA_KEYS ", \"sliding_window\": 3", foreign_llama, FOREIGN_LLAMA_COUNT},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *type = NULL;
    char out[TEST_PATH_BYTES], own[TEST_PATH_BYTES];
    hark_model *again = NULL;
    (void)snprintf(out, sizeof out, "%s", test_path(folder, "out"));
    (void)snprintf(own, sizeof own, "%s", test_path(folder, "own.safetensors"));
    hark_model *model = foreign_load(context, foreign_make(context, folder, "in", cases[i].keys, cases[i].entries, cases[i].count));
    assert_fine(context, hark_model_save(context, model, own));
    hark_model *saved = foreign_load(context, own);
    assert_true(saved->fingerprint == model->fingerprint);
    assert_fine(context, hark_foreign_export(context, saved, out, HARK_NONE, &type));
    assert_string_equal(type, cases[i].name);
    char *const config = test_file_text(folder, "out/config.json");
    const char *const ends = i == 0 ? "\"bos_token_id\": null, \"eos_token_id\": null" : "\"bos_token_id\": null, \"eos_token_id\": 2";
    if (strstr(config, ends) == NULL) fail_msg("%s", config);
    free(config);
    char in_file[TEST_PATH_BYTES], out_file[TEST_PATH_BYTES];
    (void)snprintf(in_file, sizeof in_file, "%s", test_path(folder, "in/model.safetensors"));
    (void)snprintf(out_file, sizeof out_file, "%s", test_path(folder, "out/model.safetensors"));
    assert_same_tensors(context, in_file, out_file);
    again = foreign_load(context, out);
    assert_true(again->fingerprint == model->fingerprint);
    hark_model_destroy(context, &again);
    hark_model_destroy(context, &saved);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void options_without_a_counterpart_are_named(void **state) {
  (void)state;
  static const struct {
    const char *keys, *part;
  } cases[] = {
      {"\"attention\": {\"structure\": \"dense\", \"window\": 128, \"kernel\": \"rbf\", \"sigma\": 1, \"forget_gate\": false}",
       "model.attention.kernel has no counterpart"},
      {"\"attention\": {\"structure\": \"dense\", \"window\": 128, \"kernel\": \"exp\", \"sigma\": 1, \"forget_gate\": true}",
       "model.attention.forget_gate has no counterpart"},
  };
  hark_context *context = test_reference_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char description[1024];
    const char *type = NULL;
    hark_model *model = NULL;
    (void)snprintf(
        description, sizeof description,
        "{\"model\": {\"type\": \"gpt\", \"layers\": 1, \"heads\": 2, \"key_heads\": 2, \"width\": 8, \"feed_forward_width\": 8, "
        "\"context\": 8, \"activation\": \"gated_silu\", \"norm\": \"rms_norm\", \"norm_epsilon\": 1e-5, \"positions\": \"rotary\", "
        "\"tie_embeddings\": true, \"bias\": false, \"rotary\": {\"base\": 10000, \"pairs\": \"half\"}, %s}}",
        cases[i].keys);
    const hark_model_options options = {
        .struct_size = sizeof options, .description = description, .description_bytes = strlen(description)};
    assert_fine(context, hark_model_create(context, &options, 1, &model));
    assert_failure(context, hark_foreign_export(context, model, test_path(folder, "never"), HARK_NONE, &type), HARK_UNSUPPORTED,
                   cases[i].part);
    assert_int_equal(hark_path_kind_of(test_path(folder, "never")), HARK_PATH_NONE);
    hark_model_destroy(context, &model);
  }
  test_setup_close(context);
}

static void other_files_of_a_folder_stay(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  const char *type = NULL;
  hark_model *model = foreign_load(context, foreign_make(context, folder, "mine", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT));
  (void)test_file_write_text(folder, "full/notes.txt", "mine");
  assert_failure(context, hark_foreign_export(context, model, test_path(folder, "full"), HARK_NONE, &type), HARK_BAD_CONFIGURATION,
                 "contains notes.txt");
  assert_int_equal(hark_path_kind_of(test_path(folder, "full/config.json")), HARK_PATH_NONE);
  assert_failure(context, hark_foreign_export(context, model, test_path(folder, "ints"), HARK_I8, &type), HARK_UNSUPPORTED, "integers");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

/* The published program computes dynamic rates from max_position_embeddings alone. */
static void dynamic_rates_have_one_context(void **state) {
  (void)state;
  const char *type = NULL;
  hark_context *context = test_reference_open();
  hark_model *model = foreign_load(
      context, foreign_make(context, folder, "dynamic",
                            "\"model_type\": \"llama\", " FOREIGN_LLAMA_KEYS ", \"rope_scaling\": {\"rope_type\": \"dynamic\", "
                            "\"factor\": 2, \"original_max_position_embeddings\": 4}",
                            foreign_llama, FOREIGN_LLAMA_COUNT));
  assert_int_equal(model->network->config.rotary.scaling, HARK_ROTARY_DYNAMIC);
  assert_int_equal(model->network->config.rotary.original_context, 0);
  assert_fine(context, hark_foreign_export(context, model, test_path(folder, "out"), HARK_NONE, &type));
  model->network->config.rotary.original_context = 4;
  assert_failure(context, hark_foreign_export(context, model, test_path(folder, "never"), HARK_NONE, &type), HARK_UNSUPPORTED,
                 "model.rotary.original_context has no counterpart");
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

static void load_again(hark_context *context, const char *path, uint64_t fingerprint) {
  hark_model *model = foreign_load(context, path);
  assert_true(model->fingerprint == fingerprint);
  hark_model_destroy(context, &model);
}

/* Neither an export that cannot be written nor one over the files of others removes anything. */
static void files_stay_until_there_are_others(void **state) {
  (void)state;
  const char *type = NULL;
  char source[TEST_PATH_BYTES], out[TEST_PATH_BYTES];
  hark_context *context = test_reference_open();
  (void)snprintf(source, sizeof source, "%s", foreign_make(context, folder, "source", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT));
  (void)snprintf(out, sizeof out, "%s", test_path(folder, "out"));
  hark_model *model = foreign_load(context, source);
  assert_fine(context, hark_foreign_export(context, model, out, HARK_NONE, &type));
  assert_failure(context, hark_foreign_export(context, model, source, HARK_NONE, &type), HARK_BAD_CONFIGURATION,
                 "contains config.json, expected a new or empty folder");
  load_again(context, source, model->fingerprint);

  /* a tokenizer that the export did not write; then over the export alone */
  (void)test_file_write_text(folder, "out/tokenizer.json", "{}");
  assert_failure(context, hark_foreign_export(context, model, out, HARK_NONE, &type), HARK_BAD_CONFIGURATION,
                 "contains tokenizer.json, expected a new or empty folder");
  assert_int_equal(hark_path_kind_of(test_path(folder, "out/tokenizer.json")), HARK_PATH_FILE);
  assert_int_equal(remove(test_path(folder, "out/tokenizer.json")), 0);
  assert_fine(context, hark_foreign_export(context, model, out, HARK_NONE, &type));
  load_again(context, out, model->fingerprint);

  /* a number that f16 lacks */
  float *const query = foreign_parameter(model, "blocks.0.attention.query.weight")->weight.data;
  query[0] = 1e5F;
  assert_failure(context, hark_foreign_export(context, model, out, HARK_F16, &type), HARK_NOT_FINITE, "");
  load_again(context, out, model->fingerprint);
  hark_model_destroy(context, &model);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(exports_have_the_bits_of_what_was_imported, begin, end),
      cmocka_unit_test_setup_teardown(options_without_a_counterpart_are_named, begin, end),
      cmocka_unit_test_setup_teardown(other_files_of_a_folder_stay, begin, end),
      cmocka_unit_test_setup_teardown(dynamic_rates_have_one_context, begin, end),
      cmocka_unit_test_setup_teardown(files_stay_until_there_are_others, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
