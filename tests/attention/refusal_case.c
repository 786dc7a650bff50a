/* refusal_case.c - see refusal_case.h. */
#include "support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "attention/refusal_case.h"

hark_context *refusal_context(int threads) {
  const hark_context_options options = {.struct_size = sizeof options, .backend = "reference", .threads = threads};
  hark_context *context;
  assert_int_equal(hark_context_create(&options, &context), HARK_OK);
  return context;
}

hark_attention_desc refusal_desc(void) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = BATCH;
  desc.heads = HEADS;
  desc.key_heads = KEY_HEADS;
  desc.query_length = QUERIES;
  desc.key_length = KEYS;
  desc.head_dim = DIM;
  desc.value_dim = VALUE_DIM;
  return desc;
}

void refusal_message(hark_context *context, const char *what, const char *words) {
  const char *message = hark_context_message(context);
  for (const char *at = words; *at != '\0';) {
    const size_t length = strcspn(at, "|");
    char word[128];
    snprintf(word, sizeof word, "%.*s", (int)length, at);
    if (strstr(message, word) == NULL) fail_msg("%s: '%s' does not say '%s'", what, message, word);
    at += length + (at[length] == '|');
  }
}
