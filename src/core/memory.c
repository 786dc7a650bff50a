/* memory.c - host memory through the context's allocator, counted, and checked arithmetic on sizes. */
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

hark_status hark_allocate(hark_context *context, size_t bytes, void **out) {
  *out = NULL;
  if (bytes == 0) return HARK_OK;
  void *memory = context->allocator.allocate(context->allocator.user, bytes, HARK_ALIGNMENT);
  if (memory == NULL) return hark_fail(context, HARK_OUT_OF_MEMORY, "out of memory: %zu bytes requested", bytes);
  context->memory.allocations++;
  context->memory.live_bytes += bytes;
  if (context->memory.live_bytes > context->memory.peak_bytes) context->memory.peak_bytes = context->memory.live_bytes;
  *out = memory;
  return HARK_OK;
}

hark_status hark_allocate_zero(hark_context *context, size_t bytes, void **out) {
  HARK_TRY(hark_allocate(context, bytes, out));
  if (*out != NULL) memset(*out, 0, bytes);
  return HARK_OK;
}

void hark_release(hark_context *context, void *memory, size_t bytes) {
  if (memory == NULL) return;
  context->memory.live_bytes -= bytes;
  context->allocator.release(context->allocator.user, memory, bytes);
}

hark_memory_use hark_context_memory(const hark_context *context) { return context->memory; }

hark_status hark_size_multiply(hark_context *context, size_t a, size_t b, size_t *out) {
  if (b != 0 && a > SIZE_MAX / b) return hark_fail(context, HARK_TOO_LARGE, "a size of %zu times %zu bytes does not fit in memory", a, b);
  *out = a * b;
  return HARK_OK;
}

hark_status hark_size_add(hark_context *context, size_t a, size_t b, size_t *out) {
  if (a > SIZE_MAX - b) return hark_fail(context, HARK_TOO_LARGE, "a size of %zu plus %zu bytes does not fit in memory", a, b);
  *out = a + b;
  return HARK_OK;
}
