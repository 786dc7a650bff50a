/* test_foreign_tokenizers.c - the tokenizers of imported models, in their files and in files of hark. */
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/foreign/foreign_write.h"
#include "support/cmocka_all.h"
#include "support/foreign_folder.h"
#include "support/setups.h"
#include "tokenizers/imported.h"

enum { TOKENS = 5 };

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

/* ---- tokenizers ---- */

static void a_model_has_its_tokenizer(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  char own[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s", foreign_make(context, folder, "tokens", FOREIGN_GPT2_KEYS, foreign_gpt2, FOREIGN_GPT2_COUNT));
  (void)test_file_write_text(folder, "tokens/tokenizer.json", foreign_tokenizer);
  (void)snprintf(own, sizeof own, "%s", test_path(folder, "tokens.safetensors"));
  hark_model *read = foreign_load(context, path);
  assert_fine(context, hark_model_save(context, read, own));
  hark_model_destroy(context, &read);
  hark_model *model = foreign_load(context, own);
  hark_model_info info = {.struct_size = sizeof info};
  int32_t tokens[TOKENS];
  size_t count = 0, bytes = 0;
  assert_int_equal(hark_model_describe(model, &info), HARK_OK);
  assert_string_equal(info.tokenizer, "tokenizer.json");
  assert_fine(context, hark_model_tokenize(context, model, "ab b", 4, false, true, tokens, TOKENS, &count));
  assert_int_equal(count, 4);
  const int32_t expected[] = {5, 4, 0, 2};
  assert_memory_equal(tokens, expected, sizeof expected);
  assert_fine(context, hark_model_tokenize(context, model, "ab b", 4, false, true, NULL, 0, &count));
  assert_int_equal(count, 4);
  assert_fine(context, hark_model_encode(context, model, "ab", 2, false, tokens, &count));
  assert_int_equal(count, 1);
  assert_failure(context, hark_model_encode(context, model, "a", 1, false, tokens, &count), HARK_TOO_LARGE, "2 tokens");
  assert_memory_equal(hark_model_token_text(model, 4, &bytes), " ab", 3); /* in the middle of a text */
  assert_int_equal(bytes, 3);
  (void)hark_model_token_text(model, 5, &bytes);
  assert_int_equal(bytes, 0);
  (void)hark_model_token_text(model, 6, &bytes); /* a row of the embedding without a token */
  assert_int_equal(bytes, 0);
  const char *type = NULL;
  assert_fine(context, hark_foreign_export(context, model, test_path(folder, "back"), HARK_NONE, &type));
  char *copy = test_file_text(folder, "back/tokenizer.json");
  assert_string_equal(copy, foreign_tokenizer);
  free(copy);
  hark_model_destroy(context, &model);
  (void)test_file_write_text(folder, "tokens/tokenizer.json", "{\"model\": {\"type\": \"Odd\"}}");
  foreign_refuse(context, path, HARK_UNSUPPORTED, "tokenizer.json: model.type 'Odd'");
  test_setup_close(context);
}

static void other_texts_are_no_tokenizers(void **state) {
  (void)state;
  static const char *const wrong[] = {"", "0", "0g", "0A", "abc", "[]"};
  hark_context *context = test_reference_open();
  hark_text bytes = hark_text_empty(context);
  assert_fine(context, hark_imported_bytes(context, "x", "0a0300ff", &bytes));
  assert_int_equal(bytes.length, 4);
  assert_memory_equal(bytes.data, "\x0A\x03\x00\xFF", 4);
  hark_text_free(&bytes);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    hark_imported *imported = NULL;
    assert_int_equal(hark_imported_parse(context, "x", wrong[i], &imported), HARK_BAD_FILE);
    assert_null(imported);
  }
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_model_has_its_tokenizer, begin, end),
      cmocka_unit_test(other_texts_are_no_tokenizers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
