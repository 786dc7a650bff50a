/* arena.h - for a while, a context's host memory comes from one block instead of its allocator.
 *
 * Allocations between begin and end are pieces of the block, one after another; releasing frees nothing. Without a block the arena
 * measures: requests go to the context's allocator, and `used` becomes the size of the block that the same requests need. The context's
 * counters do not count these allocations: the block was counted when it was allocated, or belongs to the caller.
 */
#ifndef HARK_CORE_ARENA_H
#define HARK_CORE_ARENA_H

#include "core/core.h"

typedef struct hark_arena {
  char *memory; /* HARK_ALIGNMENT-aligned; NULL: measure */
  size_t bytes, used;
  hark_allocator outer; /* the context's, between begin and end */
  hark_memory_use outer_use;
} hark_arena;

/* Must not be nested; the arena must not move before end. */
void hark_arena_begin(hark_context *context, hark_arena *arena);
void hark_arena_end(hark_context *context, hark_arena *arena);

#endif
