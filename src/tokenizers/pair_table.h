/* pair_table.h - numbers by pairs of tokens, by open addressing, at most half full. Zero it before use. */
#ifndef HARK_TOKENIZERS_PAIR_TABLE_H
#define HARK_TOKENIZERS_PAIR_TABLE_H

#include "core/core.h"

typedef struct hark_pair_slot {
  uint64_t pair; /* HARK_NO_PAIR: free */
  uint32_t value;
} hark_pair_slot;

typedef struct hark_pair_table {
  hark_pair_slot *slot; /* [slots], a power of two */
  size_t slots, count;
} hark_pair_table;

#define HARK_NO_PAIR UINT64_MAX
#define HARK_PAIR_FIRST_SLOTS ((size_t)1024)

static inline uint64_t hark_pair(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

/* The slot of a pair, or the free one where it would be. The table has slots. */
static inline hark_pair_slot *hark_pair_place(const hark_pair_table *table, uint64_t pair) {
  size_t i = (size_t)((pair ^ pair >> 29) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & (table->slots - 1);
  while (table->slot[i].pair != pair && table->slot[i].pair != HARK_NO_PAIR) i = (i + 1) & (table->slots - 1);
  return &table->slot[i];
}

/* Makes room for one pair more. Errors: HARK_OUT_OF_MEMORY; the table is then unchanged. */
HARK_MUST_CHECK hark_status hark_pair_table_grow(hark_context *context, hark_pair_table *table);
void hark_pair_table_close(hark_context *context, hark_pair_table *table);

/* The value of a pair; false: there is none, also in a table without slots. */
static inline bool hark_pair_find(const hark_pair_table *table, uint64_t pair, uint32_t *value) {
  if (table->slots == 0) return false;
  const hark_pair_slot *const slot = hark_pair_place(table, pair);
  *value = slot->value;
  return slot->pair == pair;
}

/* Adds a pair that is not there. */
static inline hark_status hark_pair_add(hark_context *context, hark_pair_table *table, uint64_t pair, uint32_t value) {
  HARK_TRY(hark_pair_table_grow(context, table));
  *hark_pair_place(table, pair) = (hark_pair_slot){pair, value};
  table->count++;
  return HARK_OK;
}

#endif
