/* pair_table.c - see pair_table.h. */
#include "tokenizers/pair_table.h"

hark_status hark_pair_table_grow(hark_context *context, hark_pair_table *table) {
  if (2 * (table->count + 1) <= table->slots) return HARK_OK;
  hark_pair_table larger = {.slots = table->slots > 0 ? 2 * table->slots : HARK_PAIR_FIRST_SLOTS, .count = table->count};
  HARK_TRY(hark_allocate(context, larger.slots * sizeof *larger.slot, (void **)&larger.slot));
  for (size_t i = 0; i < larger.slots; i++) larger.slot[i] = (hark_pair_slot){HARK_NO_PAIR, 0};
  for (size_t i = 0; i < table->slots; i++)
    if (table->slot[i].pair != HARK_NO_PAIR) *hark_pair_place(&larger, table->slot[i].pair) = table->slot[i];
  hark_pair_table_close(context, table);
  *table = larger;
  return HARK_OK;
}

void hark_pair_table_close(hark_context *context, hark_pair_table *table) {
  hark_release(context, table->slot, table->slots * sizeof *table->slot);
  *table = (hark_pair_table){0};
}
