/* models.c - the table of models, and reading a vocabulary. */
#include "tokenizers/pipeline/models.h"

#include <stdio.h>

static hark_status measure(const hark_component_reader *reader, const hark_json_node *list, int64_t *size, size_t *bytes) {
  for (const hark_json_node *item = list->first; item != NULL; item = item->next) {
    if (item->kind != HARK_JSON_INTEGER || item->integer < 0 || item->integer >= HARK_TOKEN_LIMIT) {
      char shown[HARK_SHOWN_BYTES];
      return hark_component_fail(reader, "vocab", "'%s': expected a number from 0 to %lld", hark_text_shown(item->name, shown),
                                 (long long)HARK_TOKEN_LIMIT - 1);
    }
    if (item->integer >= *size) *size = item->integer + 1;
    *bytes += strlen(item->name);
  }
  /* Numbers may have gaps, but a file of a few bytes must not need memory for millions. */
  if (*size > 1024 + 16 * list->count)
    return hark_component_fail(reader, "vocab", "number %lld of %lld tokens", (long long)*size - 1, (long long)list->count);
  return HARK_OK;
}

static hark_status refuse_number(const hark_component_reader *reader, hark_span first, const char *second, int64_t number) {
  char text[HARK_SHOWN_BYTES], shown[HARK_SHOWN_BYTES], other[HARK_SHOWN_BYTES];
  (void)snprintf(text, sizeof text, "%.*s", (int)hark_min((int64_t)first.bytes, HARK_SHOWN_BYTES - 1), first.text);
  return hark_component_fail(reader, "vocab", "'%.100s' and '%.100s' have the number %lld, expected one number for each token",
                             hark_text_shown(text, shown), hark_text_shown(second, other), (long long)number);
}

hark_status hark_model_read_vocabulary(const hark_component_reader *reader, const hark_json_node *node) {
  const hark_json_node *const list = hark_json_member(node, "vocab");
  hark_token_table *const table = &reader->pipeline->vocabulary;
  int64_t size = 0;
  size_t bytes = 0;
  if (!hark_json_is(list, HARK_JSON_OBJECT)) return hark_component_fail(reader, "vocab", "expected an object");
  HARK_TRY(measure(reader, list, &size, &bytes));
  HARK_TRY(hark_token_table_open(reader->context, table, list->count, size, bytes));
  for (const hark_json_node *item = list->first; item != NULL; item = item->next) {
    const hark_span there = hark_token_text(table, item->integer);
    if (there.text != NULL) return refuse_number(reader, there, item->name, item->integer);
    hark_token_table_add(table, item->name, strlen(item->name), (int32_t)item->integer);
  }
  return HARK_OK;
}

hark_status hark_model_read_unknown(const hark_component_reader *reader, const hark_json_node *node, int32_t *out) {
  const hark_json_node *const unknown = hark_json_member(node, "unk_token");
  *out = -1;
  if (unknown == NULL || unknown->kind == HARK_JSON_NULL) return HARK_OK;
  if (unknown->kind != HARK_JSON_TEXT) return hark_component_fail(reader, "unk_token", "expected a text");
  *out = hark_token_find(&reader->pipeline->vocabulary, unknown->text, unknown->bytes);
  return HARK_OK;
}

hark_status hark_model_fail_unknown(hark_pipeline_work *work, hark_span lacking, const char *member) {
  char text[HARK_SHOWN_BYTES], shown[HARK_SHOWN_BYTES];
  const size_t bytes = lacking.bytes < sizeof text ? lacking.bytes : sizeof text - 1;
  memcpy(text, lacking.text, bytes);
  text[bytes] = '\0';
  work->lacking = lacking;
  return hark_fail(work->context, HARK_BAD_FILE, "the vocabulary lacks '%s', and the token for what it lacks (%s)",
                   hark_text_shown(text, shown), member);
}

void hark_byte_tokens(const hark_token_table *vocabulary, int32_t out[256]) {
  for (int i = 0; i < 256; i++) {
    char text[8];
    (void)snprintf(text, sizeof text, "<0x%02X>", (unsigned)i);
    out[i] = hark_token_find(vocabulary, text, 6);
  }
}

static const hark_component_kind *const kinds[] = {&hark_model_bpe, &hark_model_unigram, &hark_model_word_level, &hark_model_word_piece,
                                                   NULL};
const hark_component_table hark_models = {kinds, NULL};
