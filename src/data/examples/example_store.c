/* example_store.c - stores examples (example_format.h) in growing arrays: symbols, targets, numbers, and entries for each split. */
#include "data/examples/example_store.h"

#include <string.h>

#include "core/core.h"

#define FIRST_CAPACITY 1024
#define BYTE_LIMIT 256
#define PAIR_LIMIT 65536

hark_status hark_example_reserve(hark_context *context, hark_example_array *array, int64_t count) {
  if (count <= array->capacity) return HARK_OK;
  int64_t larger = hark_max(count, FIRST_CAPACITY);
  if (array->capacity <= INT64_MAX / 2) larger = hark_max(larger, 2 * array->capacity);
  size_t bytes;
  void *moved;
  HARK_TRY(hark_size_multiply(context, (size_t)larger, array->item_bytes, &bytes));
  HARK_TRY(hark_allocate(context, bytes, &moved));
  if (array->count > 0) memcpy(moved, array->items, (size_t)array->count * array->item_bytes);
  hark_example_array_free(context, &(hark_example_array){array->items, 0, array->capacity, array->item_bytes});
  array->items = moved;
  array->capacity = larger;
  return HARK_OK;
}

void hark_example_array_free(hark_context *context, hark_example_array *array) {
  hark_release(context, array->items, (size_t)array->capacity * array->item_bytes);
  array->items = NULL;
  array->count = array->capacity = 0;
}

const hark_example_shape *hark_example_reader_shape(const hark_example_reader *reader) { return &reader->examples->shape; }

static bool is_same_shape(const hark_examples *examples, const hark_example_shape *shape, const char *words, size_t word_bytes) {
  const hark_example_shape *const have = &examples->shape;
  return have->symbols == shape->symbols && have->classes == shape->classes && have->height == shape->height &&
         have->width == shape->width && have->features == shape->features && have->responses == shape->responses &&
         examples->words.length == word_bytes && (word_bytes == 0 || memcmp(hark_text_get(&examples->words), words, word_bytes) == 0);
}

hark_status hark_example_shape_set(hark_example_reader *reader, const hark_example_shape *shape, const char *words, size_t word_bytes,
                                   bool *same) {
  hark_examples *const examples = reader->examples;
  *same = true;
  if (examples->has_shape) {
    *same = is_same_shape(examples, shape, words, word_bytes);
    return HARK_OK;
  }
  examples->shape = *shape;
  examples->has_shape = true;
  examples->symbols.item_bytes = shape->symbols <= BYTE_LIMIT ? 1 : shape->symbols <= PAIR_LIMIT ? 2 : 4;
  hark_text_append_bytes(&examples->words, words, word_bytes);
  HARK_TRY(examples->words.status);
  return hark_example_reserve(reader->context, &examples->symbols, examples->symbols_at_most);
}

/* Begins the next part, of `count` symbols; *kept and *out: how many of them are kept, and where. */
static hark_status begin_part(hark_example_reader *reader, size_t count, int64_t *kept, unsigned char **out) {
  hark_examples *const examples = reader->examples;
  hark_example_array *const symbols = &examples->symbols;
  if (count > INT32_MAX) return hark_fail(reader->context, HARK_BAD_FILE, "%s: a sequence of %zu tokens", reader->path, count);
  if (examples->open_parts == examples->format->parts) return hark_fail(reader->context, HARK_INTERNAL_ERROR, "an example with more parts");
  if (examples->open_parts == 0) examples->open = (hark_example_entry){.at = symbols->count, .target_at = examples->aims.count};
  *kept = hark_min((int64_t)count, examples->length_limit);
  HARK_TRY(hark_example_reserve(reader->context, symbols, symbols->count + *kept));
  *out = (unsigned char *)symbols->items + (size_t)symbols->count * symbols->item_bytes;
  symbols->count += *kept;
  examples->open.whole[examples->open_parts] = (int32_t)count;
  examples->open.length[examples->open_parts++] = (int32_t)*kept;
  return HARK_OK;
}

hark_status hark_example_part(hark_example_reader *reader, const void *bytes, size_t count) {
  int64_t kept;
  unsigned char *to;
  HARK_TRY(begin_part(reader, count, &kept, &to));
  if (kept > 0) memcpy(to, bytes, (size_t)kept); /* a format with byte symbols has at most 256 */
  return HARK_OK;
}

hark_status hark_example_part_wide(hark_example_reader *reader, const int32_t *symbols, size_t count) {
  const size_t width = reader->examples->symbols.item_bytes;
  int64_t kept;
  unsigned char *to;
  HARK_TRY(begin_part(reader, count, &kept, &to));
  for (int64_t i = 0; i < kept; i++) {
    if (width == 1) {
      to[i] = (unsigned char)symbols[i];
    } else if (width == 2) {
      ((uint16_t *)(void *)to)[i] = (uint16_t)symbols[i];
    } else {
      ((int32_t *)(void *)to)[i] = symbols[i];
    }
  }
  return HARK_OK;
}

hark_status hark_example_vectors(hark_example_reader *reader, const float *numbers, size_t count, const float *responses) {
  const hark_example_shape *const shape = &reader->examples->shape;
  hark_example_array *const all = &reader->examples->numbers;
  int64_t kept;
  unsigned char *to;
  HARK_TRY(begin_part(reader, count, &kept, &to));
  memset(to, 0, (size_t)kept);
  const int64_t own = kept * shape->features, predicted = hark_example_own_responses(reader->examples);
  HARK_TRY(hark_example_reserve(reader->context, all, all->count + own + predicted));
  reader->examples->open.target_at = all->count;
  memcpy((float *)all->items + all->count, numbers, (size_t)own * sizeof *numbers);
  if (predicted > 0) memcpy((float *)all->items + all->count + own, responses, (size_t)predicted * sizeof *responses);
  all->count += own + predicted;
  return HARK_OK;
}

hark_status hark_example_target(hark_example_reader *reader, int64_t position, int32_t symbol) {
  hark_examples *const examples = reader->examples;
  hark_example_array *const aims = &examples->aims;
  if (position >= examples->open.length[0]) return HARK_OK;
  HARK_TRY(hark_example_reserve(reader->context, aims, aims->count + 1));
  ((hark_example_aim *)aims->items)[aims->count++] = (hark_example_aim){(int32_t)position, symbol};
  examples->open.target_count++;
  return HARK_OK;
}

hark_status hark_example_end(hark_example_reader *reader, int32_t label) {
  hark_examples *const examples = reader->examples;
  hark_example_array *const entries = &examples->entries[reader->split];
  if (examples->open_parts != examples->format->parts)
    return hark_fail(reader->context, HARK_INTERNAL_ERROR, "an example with fewer parts");
  HARK_TRY(hark_example_reserve(reader->context, entries, entries->count + 1));
  examples->open.label = label;
  ((hark_example_entry *)entries->items)[entries->count++] = examples->open;
  examples->open_parts = 0;
  return HARK_OK;
}
