/* guard.c - a backend for tests. Outside backend calls its tensors cannot be read or written: this proves that the layers above do not
 * access data.
 *
 * Every allocation has separate pages, followed by one that is never accessible. The bytes end where that page begins (except for
 * alignment), so that accesses beyond the end are found too. The pages are accessible only between the outermost enter and its leave.
 *
 *     | beginning of the first page | bytes ... | page without access |
 *
 * Kernels and attention are those of the cpu backend. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend/cpu/state.h"

typedef struct region {
  struct region *next;
  void *pages;
  size_t page_bytes; /* without the last page */
  void *memory;
} region;

typedef struct guard_state {
  hark_cpu_state cpu; /* must be first: hark_cpu_isa_of() and the shared members use it */
  region *regions;
  int depth;
} guard_state;

static guard_state *state_of(const hark_context *context) { return context->backend_state; }

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static hark_status guard_open(hark_context *context, const char *instruction_set, void **out) {
  *out = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(guard_state), &memory));
  guard_state *state = memory;
  const hark_status status = hark_cpu_state_open(context, instruction_set, &state->cpu);
  if (status == HARK_OK)
    *out = state;
  else
    hark_release(context, memory, sizeof(guard_state));
  return status;
}

static void unmap(const region *dead) { munmap(dead->pages, dead->page_bytes + page_size()); }

static void guard_close(hark_context *context, void *memory) {
  guard_state *state = memory;
  while (state->regions != NULL) {
    region *dead = state->regions;
    state->regions = dead->next;
    unmap(dead);
    hark_release(context, dead, sizeof *dead);
  }
  hark_cpu_state_close(context, &state->cpu);
  hark_release(context, state, sizeof *state);
}

static hark_status guard_allocate(hark_context *context, size_t bytes, void **out) {
  guard_state *state = state_of(context);
  const size_t page = page_size();
  *out = NULL;
  if (bytes > SIZE_MAX / 2) return hark_fail(context, HARK_TOO_LARGE, "guard: %zu bytes requested", bytes);
  const size_t used = hark_align_up(bytes);
  const size_t page_bytes = (used + page - 1) / page * page;
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, sizeof(region), &memory));
  void *pages = mmap(NULL, page_bytes + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || (state->depth > 0 && mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0)) {
    if (pages != MAP_FAILED) munmap(pages, page_bytes + page);
    hark_release(context, memory, sizeof(region));
    return hark_fail(context, HARK_OUT_OF_MEMORY, "guard: %zu bytes requested", bytes);
  }
  region *made = memory;
  *made = (region){.next = state->regions, .pages = pages, .page_bytes = page_bytes, .memory = (char *)pages + page_bytes - used};
  state->regions = made;
  *out = made->memory;
  return HARK_OK;
}

static void guard_release(hark_context *context, void *memory, size_t bytes) {
  (void)bytes;
  for (region **link = &state_of(context)->regions; *link != NULL; link = &(*link)->next) {
    region *dead = *link;
    if (dead->memory != memory) continue;
    *link = dead->next;
    unmap(dead);
    hark_release(context, dead, sizeof *dead);
    return;
  }
}

/* If a page cannot be made accessible, the access itself faults: this function cannot report a failure. */
static void protect(const guard_state *state, int protection) {
  for (const region *at = state->regions; at != NULL; at = at->next) (void)mprotect(at->pages, at->page_bytes, protection);
}

static void guard_enter(hark_context *context) {
  guard_state *state = state_of(context);
  if (state->depth++ == 0) protect(state, PROT_READ | PROT_WRITE);
}

static void guard_leave(hark_context *context) {
  guard_state *state = state_of(context);
  if (--state->depth == 0) protect(state, PROT_NONE);
}

const hark_backend hark_backend_guard = {
    .name = "guard",
    .host_memory = true,
    .open = guard_open,
    .close = guard_close,
    .instruction_set = hark_cpu_instruction_set,
    .allocate = guard_allocate,
    .release = guard_release,
    .write = hark_host_copy,
    .read = hark_host_copy,
    .copy = hark_host_copy,
    .zero = hark_host_zero,
    .enter = guard_enter,
    .leave = guard_leave,
    .kernels = hark_cpu_kernels,
    .attention = hark_cpu_attention,
    .slow_bf16 = hark_cpu_slow_bf16,
};
