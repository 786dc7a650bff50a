/* word_counts.c - see word_counts.h. A hash table with open addressing and linear steps, at most half full. */
#include "tokenizers/word_counts.h"

#include <string.h>

#include "core/checksum.h"

#define FIRST_WORDS ((size_t)1024)
#define FIRST_TEXT ((size_t)8192)

/* Moves an array to larger memory. */
static hark_status enlarge(hark_context *context, void **array, size_t used, size_t old_bytes, size_t new_bytes) {
  void *larger;
  HARK_TRY(hark_allocate(context, new_bytes, &larger));
  if (used > 0) memcpy(larger, *array, used);
  hark_release(context, *array, old_bytes);
  *array = larger;
  return HARK_OK;
}

static hark_status enlarge_words(hark_context *context, hark_word_counts *counts) {
  const size_t capacity = counts->capacity > 0 ? 2 * counts->capacity : FIRST_WORDS, old = counts->capacity;
  const size_t old_at = old > 0 ? (old + 1) * sizeof *counts->at : 0;
  size_t *at;
  HARK_TRY(hark_allocate(context, (capacity + 1) * sizeof *at, (void **)&at));
  const hark_status status =
      enlarge(context, (void **)&counts->count, old * sizeof *counts->count, old * sizeof *counts->count, capacity * sizeof *counts->count);
  if (status != HARK_OK) {
    hark_release(context, at, (capacity + 1) * sizeof *at);
    return status;
  }
  if (old > 0) memcpy(at, counts->at, old_at);
  if (old == 0) at[0] = 0;
  hark_release(context, counts->at, old_at);
  counts->at = at;
  counts->capacity = capacity;
  return HARK_OK;
}

static size_t first_slot(const char *word, size_t bytes, size_t slots) {
  const uint64_t sum = hark_checksum_bytes(HARK_CHECKSUM_START, word, bytes);
  return (size_t)(sum ^ sum >> 32) & (slots - 1);
}

/* The slot of a word, or the free slot for it. */
static uint32_t *find_slot(const hark_word_counts *counts, const char *word, size_t bytes) {
  size_t at = first_slot(word, bytes, counts->slots);
  for (; counts->slot[at] != 0; at = (at + 1) & (counts->slots - 1)) {
    const size_t w = counts->slot[at] - 1, from = counts->at[w];
    if (counts->at[w + 1] - from == bytes && memcmp(counts->text + from, word, bytes) == 0) break;
  }
  return &counts->slot[at];
}

static hark_status enlarge_slots(hark_context *context, hark_word_counts *counts) {
  const size_t slots = counts->slots > 0 ? 2 * counts->slots : 2 * FIRST_WORDS;
  uint32_t *slot;
  HARK_TRY(hark_allocate_zero(context, slots * sizeof *slot, (void **)&slot));
  hark_release(context, counts->slot, counts->slots * sizeof *slot);
  counts->slot = slot;
  counts->slots = slots;
  for (size_t w = 0; w < counts->words; w++) {
    const size_t from = counts->at[w], bytes = counts->at[w + 1] - from;
    *find_slot(counts, counts->text + from, bytes) = (uint32_t)w + 1;
  }
  return HARK_OK;
}

static hark_status make_room(hark_context *context, hark_word_counts *counts, size_t bytes) {
  if (counts->words == counts->capacity) HARK_TRY(enlarge_words(context, counts));
  const size_t used = counts->at[counts->words];
  if (bytes > counts->text_capacity - used) {
    size_t capacity = counts->text_capacity > 0 ? 2 * counts->text_capacity : FIRST_TEXT;
    while (capacity - used < bytes) capacity *= 2;
    HARK_TRY(enlarge(context, (void **)&counts->text, used, counts->text_capacity, capacity));
    counts->text_capacity = capacity;
  }
  return HARK_OK;
}

hark_status hark_word_counts_add(hark_context *context, hark_word_counts *counts, const char *word, size_t bytes) {
  if (2 * (counts->words + 1) > counts->slots) HARK_TRY(enlarge_slots(context, counts));
  uint32_t *slot = find_slot(counts, word, bytes);
  if (*slot != 0) {
    counts->count[*slot - 1]++;
    return HARK_OK;
  }
  if (counts->words > 0 && counts->at[counts->words] + bytes > HARK_WORD_COUNTS_BYTES) return HARK_OK;
  HARK_TRY(make_room(context, counts, bytes));
  const size_t from = counts->at[counts->words];
  memcpy(counts->text + from, word, bytes);
  counts->count[counts->words++] = 1;
  counts->at[counts->words] = from + bytes;
  *slot = (uint32_t)counts->words;
  return HARK_OK;
}

void hark_word_counts_free(hark_context *context, hark_word_counts *counts) {
  hark_release(context, counts->text, counts->text_capacity);
  hark_release(context, counts->at, counts->capacity > 0 ? (counts->capacity + 1) * sizeof *counts->at : 0);
  hark_release(context, counts->count, counts->capacity * sizeof *counts->count);
  hark_release(context, counts->slot, counts->slots * sizeof *counts->slot);
  *counts = (hark_word_counts){0};
}
