/* fuzz.h - what the fuzz targets share.
 *
 * A target is one function over bytes, with libFuzzer's name, so that libFuzzer or replay.c calls it. It gives the bytes to a reader and
 * checks what must hold of every result: a status of those that are documented with a message of one line, memory in proportion to the
 * input, all of it released, and of what was accepted that it can be written and read back as the same.
 *
 *     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
 *       hark_context *const context = fuzz_begin();
 *       ...                                          FUZZ_CHECK(condition, "what went wrong", ...)
 *       fuzz_end(size);
 *       return 0;
 *     }
 */
#ifndef HARK_TESTS_FUZZ_H
#define HARK_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A context for one input. It counts what is asked of it and, where the address sanitizer is linked, what jansson and libyaml ask of the C
 * library. One context serves all inputs. */
hark_context *fuzz_begin(void);

/* The program stops when more than `bytes` + FUZZ_BASE_BYTES were live at once since fuzz_begin() or the last fuzz_limit(). `bytes` is what
 * the documentation promises for the input, with the names of third parties' structures in it. */
void fuzz_limit(size_t bytes);
#define FUZZ_BASE_BYTES ((size_t)256 << 10) /* the parsers' own buffers */

/* The end of an input: the program stops unless everything was released. */
void fuzz_end(void);

/* Stops the program when the condition does not hold. */
#define FUZZ_CHECK(condition, ...) ((condition) ? (void)0 : fuzz_stop(__FILE__, __LINE__, __VA_ARGS__))
_Noreturn void fuzz_stop(const char *file, int line, const char *format, ...) HARK_PRINTF(3, 4);

/* The status is HARK_OK or the one that malformed input has, and then the message is one line and begins with `begin`. */
void fuzz_check_refusal(const hark_context *context, hark_status status, hark_status malformed, const char *begin);
/* A text without control characters. */
void fuzz_check_line(const char *text);

/* Puts bytes into a file, the same one each time, that exists in memory only, and returns its path. */
const char *fuzz_file(const void *data, size_t bytes);
/* FOLDER/NAME in a folder of the process's own; the text is good until the next call with this `which` (0 .. 3). */
const char *fuzz_path(int which, const char *name);

/* Pseudo-random numbers that depend on the input only (xorshift): for ways to go that the bytes do not spell. */
typedef struct fuzz_random {
  uint64_t state;
} fuzz_random;
fuzz_random fuzz_random_of(const void *data, size_t bytes);
/* In [0, below). */
size_t fuzz_random_below(fuzz_random *random, size_t below);

#endif
