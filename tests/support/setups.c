/* setups.c - the backends and instruction sets that this machine has: asked for one by one, kept when a context can be made. */
#include "support/setups.h"

#include <string.h>

#include "support/cmocka_all.h"
#include "support/sanitized.h"

static const test_setup candidates[] = {
    {"reference", "portable"}, {"cpu", "generic"}, {"cpu", "avx2"},     {"cpu", "avx512"}, {"cpu", "neon"},
    {"guard", "generic"},      {"guard", "avx2"},  {"guard", "avx512"}, {"guard", "neon"},
};

#define CANDIDATES ((int)(sizeof candidates / sizeof candidates[0]))

static hark_status open_context(const test_setup *setup, int threads, bool deterministic, hark_context **out) {
  const hark_context_options options = {.struct_size = sizeof options,
                                        .threads = threads,
                                        .backend = setup->backend,
                                        .instruction_set = setup->instruction_set,
                                        .seed = 1,
                                        .deterministic = deterministic};
  return hark_context_create(&options, out);
}

/* What sanitized tests run on: they guard all memory by themselves, and every run takes ten times as long. */
static int leave_out_for_sanitizers(test_setup setups[TEST_MAX_SETUPS], int all) {
  int count = 0, cpu = 0;
  for (int i = 0; i < all; i++) {
    if (strcmp(setups[i].backend, "guard") == 0) continue;
    if (strcmp(setups[i].backend, "cpu") == 0 && ++cpu > 2) count--; /* between the generic and the last instruction set */
    setups[count++] = setups[i];
  }
  return count;
}

int test_setups(test_setup setups[TEST_MAX_SETUPS]) {
  int count = 0;
  for (int i = 0; i < CANDIDATES; i++) {
    hark_context *context = NULL;
    if (open_context(&candidates[i], 1, false, &context) != HARK_OK) continue;
    setups[count++] = candidates[i];
    hark_context_destroy(&context);
  }
  return TEST_SANITIZED ? leave_out_for_sanitizers(setups, count) : count;
}

bool test_setups_have(const char *backend, const char *instruction_set) {
  static test_setup setups[TEST_MAX_SETUPS];
  static int count;
  if (count == 0) count = test_setups(setups);
  bool have = false;
  for (int i = 0; i < count; i++)
    have = have || (strcmp(setups[i].backend, backend) == 0 &&
                    (instruction_set == NULL || strcmp(setups[i].instruction_set, instruction_set) == 0));
  return have;
}

int test_setups_guard_once(test_setup setups[TEST_MAX_SETUPS]) {
  const int all = test_setups(setups);
  int count = 0;
  for (int i = 0; i < all; i++)
    if (i + 1 == all || strcmp(setups[i].backend, "guard") != 0) setups[count++] = setups[i];
  return count;
}

int test_setups_readable(test_setup setups[TEST_MAX_SETUPS]) {
  const int all = test_setups(setups);
  int count = 0;
  for (int i = 0; i < all; i++)
    if (strcmp(setups[i].backend, "guard") != 0) setups[count++] = setups[i];
  return count;
}

static hark_context *open_or_fail(const test_setup *setup, int threads, bool deterministic) {
  hark_context *context = NULL;
  const hark_status status = open_context(setup, threads, deterministic, &context);
  if (status != HARK_OK) fail_msg("no context on %s:%s: %s", setup->backend, setup->instruction_set, hark_status_text(status));
  return context;
}

hark_context *test_setup_open(const test_setup *setup, int threads) { return open_or_fail(setup, threads, false); }

hark_context *test_setup_open_deterministic(const test_setup *setup, int threads) { return open_or_fail(setup, threads, true); }

hark_context *test_reference_open(void) { return test_setup_open(&candidates[0], 1); }

void test_setup_close(hark_context *context) {
  /* What a fresh context of the same kind holds is the context's own. */
  const test_setup setup = {hark_context_backend(context), hark_context_instruction_set(context)};
  hark_context *fresh = test_setup_open(&setup, hark_context_threads(context));
  const size_t own = hark_context_memory(fresh).live_bytes, live = hark_context_memory(context).live_bytes;
  hark_context_destroy(&fresh);
  hark_context_destroy(&context);
  if (live != own) fail_msg("%zu bytes are live where the context is destroyed, expected its own %zu", live, own);
}
