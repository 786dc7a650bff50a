/* setups.h - the backends and instruction sets that this machine has, and contexts on them. */
#ifndef HARK_TESTS_SUPPORT_SETUPS_H
#define HARK_TESTS_SUPPORT_SETUPS_H

#include <hark/context.h>

#include <stdbool.h>

#define TEST_MAX_SETUPS 8

typedef struct test_setup {
  const char *backend;
  const char *instruction_set;
} test_setup;

/* Every backend of the test library with every instruction set that runs here; returns their number. "reference:portable" is the first. In
 * sanitized builds without the guard, and the cpu backend with its generic and its last instruction set. */
int test_setups(test_setup setups[TEST_MAX_SETUPS]);

/* The same, the guard with the last of its instruction sets only: for tests of many small calls, whose tensors it opens and closes every
 * time. */
int test_setups_guard_once(test_setup setups[TEST_MAX_SETUPS]);

/* The same without the guard: for tests that read and write memory of tensors themselves. */
int test_setups_readable(test_setup setups[TEST_MAX_SETUPS]);

/* Whether they have a backend with an instruction set; NULL: any. */
bool test_setups_have(const char *backend, const char *instruction_set);

/* A context there, as a user gets it by default. A failure to make it fails the test. */
hark_context *test_setup_open(const test_setup *setup, int threads);

/* The same, deterministic. */
hark_context *test_setup_open_deterministic(const test_setup *setup, int threads);

/* The context of the oracle: reference backend, one thread. */
hark_context *test_reference_open(void);

/* Destroys a context; fails the test when memory that it gave is still live. */
void test_setup_close(hark_context *context);

#endif
