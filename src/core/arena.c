/* arena.c - see arena.h. */
#include "core/arena.h"

static void *arena_allocate(void *user, size_t bytes, size_t alignment) {
  hark_arena *arena = user;
  if (bytes > SIZE_MAX - HARK_ALIGNMENT || alignment > HARK_ALIGNMENT) return NULL;
  const size_t rounded = hark_align_up(bytes);
  if (arena->memory == NULL) {
    if (rounded > SIZE_MAX - arena->used) return NULL;
    void *memory = arena->outer.allocate(arena->outer.user, bytes, alignment);
    if (memory != NULL) arena->used += rounded;
    return memory;
  }
  if (rounded > arena->bytes - arena->used) return NULL;
  void *memory = arena->memory + arena->used;
  arena->used += rounded;
  return memory;
}

static void arena_release(void *user, void *memory, size_t bytes) {
  const hark_arena *arena = user;
  if (arena->memory == NULL) arena->outer.release(arena->outer.user, memory, bytes);
}

void hark_arena_begin(hark_context *context, hark_arena *arena) {
  arena->outer = context->allocator;
  arena->outer_use = context->memory;
  context->allocator = (hark_allocator){.allocate = arena_allocate, .release = arena_release, .user = arena};
}

void hark_arena_end(hark_context *context, hark_arena *arena) {
  context->allocator = arena->outer;
  context->memory = arena->outer_use;
}
