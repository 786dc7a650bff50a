/* test_documents.c - every kernel of the table is in the table of the documents, and a word for fuzzing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "positional/leaf.h"
#include "support/cmocka_all.h"
#include "support/text_files.h"

/* Fails unless the file has `before` NAME for every kernel. */
static void assert_names(const char *path, const char *before) {
  int count = 0;
  size_t bytes = 0;
  const hark_leaf *const *const leaves = hark_leaves(&count);
  char *const text = (char *)test_file_read(path, &bytes);
  char *const whole = calloc(bytes + 1, 1);
  assert_non_null(whole);
  memcpy(whole, text, bytes);
  for (int i = 0; i < count; i++) {
    char expected[64];
    (void)snprintf(expected, sizeof expected, "%s%s", before, leaves[i]->name);
    if (strstr(whole, expected) == NULL) fail_msg("%s: no kernel %s", path, leaves[i]->name);
  }
  assert_true(count > 10);
  free(whole);
  free(text);
}

static void every_kernel_is_documented(void **state) {
  (void)state;
  assert_names(HARK_SOURCE_DIR "/docs/mathematics/positional.md", "\n| `");
}

static void every_kernel_is_a_word_for_fuzzing(void **state) {
  (void)state;
  assert_names(HARK_SOURCE_DIR "/tests/fuzz/positional.dict", "\n\"");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_kernel_is_documented), cmocka_unit_test(every_kernel_is_a_word_for_fuzzing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
