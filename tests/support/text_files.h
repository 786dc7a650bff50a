/* text_files.h - a folder for a test's files, which vanishes with it, and contexts that notice leaks and run out of memory on demand. */
#ifndef HARK_TESTS_TEXT_FILES_H
#define HARK_TESTS_TEXT_FILES_H

#include <hark/context.h>
#include <stdbool.h>
#include <stdint.h>

#define TEST_PATH_BYTES 512

/* Makes an empty folder below TMPDIR or /tmp; its path in `folder`. */
void test_folder_make(char folder[TEST_PATH_BYTES]);
void test_folder_remove(const char *folder);

/* folder/name; the text is one of a few static buffers that take turns, good until eight calls later. */
const char *test_path(const char *folder, const char *name);

/* Writes a file (folders above it are made) and returns its path as test_path. */
const char *test_file_write(const char *folder, const char *name, const void *data, size_t bytes);
const char *test_file_write_text(const char *folder, const char *name, const char *text);
/* A whole file, with a zero byte after it, for free(). */
unsigned char *test_file_read(const char *path, size_t *bytes);
/* The same as text, of a file in a folder. */
char *test_file_text(const char *folder, const char *name);
/* Names in folder/name, "." and ".." counted. */
int test_folder_count(const char *folder, const char *name);

/* Writes CHECKPOINT/manifest.json in `folder`, with the sizes and sums of these files of the checkpoint as they are now. */
void test_manifest_write(hark_context *context, const char *folder, const char *checkpoint, int count, const char *const *names);

/* Sets the time of the last change to `seconds` before now. */
void test_file_age(const char *path, long seconds);
/* Sets it to a time since 1970. */
void test_file_set_time(const char *path, int64_t seconds, int64_t nanoseconds);

/* An allocator that fails at allocation number fail_at (counted from 1; 0: never) and, when `onwards`, at all later ones, and that counts
 * what is live and what was released with another size than it had. */
typedef struct test_memory {
  long fail_at, allocations;
  bool onwards;
  long blocks, mistakes;
  size_t live_bytes;
} test_memory;
/* A context on it, of one thread, with generic kernels, deterministic; its own allocations are counted, and may fail. */
hark_status test_memory_create(test_memory *memory, const char *backend, hark_context **out);
/* Clears `memory` and makes a context of the reference backend. */
hark_context *test_memory_context(test_memory *memory);
/* Destroys it; the test fails when memory is still live, or was given back wrongly. */
void test_memory_context_end(hark_context *context, test_memory *memory);

/* The test fails, with the context's message, unless `status` is HARK_OK. */
#define assert_fine(context, status)                                                                                                       \
  do {                                                                                                                                     \
    const hark_status fine_status = (status);                                                                                              \
    if (fine_status != HARK_OK) fail_msg("%s: %s", hark_status_name(fine_status), hark_context_message(context));                          \
  } while (0)

/* The test fails unless `status` is what was expected and the message contains `part`. */
#define assert_failure(context, status, expected, part)                                                                                    \
  do {                                                                                                                                     \
    const hark_status failure_status = (status);                                                                                           \
    if (failure_status != (expected) || strstr(hark_context_message(context), (part)) == NULL)                                             \
      fail_msg("got %s \"%s\", expected %s \"...%s...\"", hark_status_name(failure_status), hark_context_message(context),                 \
               hark_status_name(expected), (part));                                                                                        \
  } while (0)

#endif
