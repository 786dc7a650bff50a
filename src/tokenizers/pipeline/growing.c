/* growing.c - doubling; cost O(count) amortised. */
#include "tokenizers/pipeline/growing.h"

#define FIRST_ELEMENTS 64

hark_status hark_list_grow(hark_context *context, void **data, size_t *capacity, size_t needed, size_t element) {
  size_t grown = *capacity > FIRST_ELEMENTS ? *capacity : FIRST_ELEMENTS, bytes = 0;
  void *memory = NULL;
  if (needed <= *capacity) return HARK_OK;
  while (grown < needed) HARK_TRY(hark_size_multiply(context, grown, 2, &grown));
  HARK_TRY(hark_size_multiply(context, grown, element, &bytes));
  HARK_TRY(hark_allocate(context, bytes, &memory));
  if (*capacity > 0) memcpy(memory, *data, *capacity * element);
  hark_release(context, *data, *capacity * element);
  *data = memory;
  *capacity = grown;
  return HARK_OK;
}
