/* vocabulary.c - a table of texts by open addressing, at most half full. */
#include "tokenizers/pipeline/vocabulary.h"

hark_status hark_token_table_open(hark_context *context, hark_token_table *table, int64_t count, int64_t size, size_t bytes) {
  size_t slots = 16;
  if (size > HARK_TOKEN_LIMIT || count > HARK_TOKEN_LIMIT)
    return hark_fail(context, HARK_TOO_LARGE, "a vocabulary of more than %lld tokens", (long long)HARK_TOKEN_LIMIT);
  while (slots < 2 * (size_t)count) slots *= 2;
  HARK_TRY(HARK_RESERVE(context, &table->text, bytes + 1));
  HARK_TRY(hark_allocate_zero(context, (size_t)size * sizeof *table->token, (void **)&table->token));
  table->size = (int32_t)size;
  HARK_TRY(hark_allocate_zero(context, slots * sizeof *table->slot, (void **)&table->slot));
  table->slots = slots;
  return HARK_OK;
}

/* The slot of a text, or the one where it would be. */
static size_t place_of(const hark_token_table *table, const char *text, size_t bytes) {
  size_t i = hark_span_hash(text, bytes) & (table->slots - 1);
  for (; table->slot[i] != 0; i = (i + 1) & (table->slots - 1)) {
    const hark_span there = table->token[table->slot[i] - 1];
    if (there.bytes == bytes && memcmp(there.text, text, bytes) == 0) break;
  }
  return i;
}

void hark_token_table_add(hark_token_table *table, const char *text, size_t bytes, int32_t id) {
  char *const copy = table->text.data + table->text.count;
  if (bytes > 0) memcpy(copy, text, bytes);
  table->text.count += bytes;
  const size_t place = place_of(table, text, bytes);
  table->token[id] = (hark_span){copy, bytes};
  table->slot[place] = (uint32_t)id + 1;
  table->count++;
}

void hark_token_table_close(hark_context *context, hark_token_table *table) {
  HARK_FREE_LIST(context, &table->text);
  hark_release(context, table->token, (size_t)table->size * sizeof *table->token);
  hark_release(context, table->slot, table->slots * sizeof *table->slot);
  *table = (hark_token_table){0};
}

int32_t hark_token_find(const hark_token_table *table, const char *text, size_t bytes) {
  return table->slots > 0 ? (int32_t)table->slot[place_of(table, text, bytes)] - 1 : -1;
}
