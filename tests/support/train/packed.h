/* packed.h - compressing bytes in tests, by the libraries that hark unpacks with. */
#ifndef HARK_TESTS_SUPPORT_TRAIN_PACKED_H
#define HARK_TESTS_SUPPORT_TRAIN_PACKED_H

#include <stdbool.h>
#include <stddef.h>

/* Compresses; the caller frees the result. NULL where this build lacks the library of the format ("gzip", "xz", "zstd", "bzip2"). All have
 * checksums. */
unsigned char *test_pack(const char *format, const void *data, size_t bytes, size_t *packed);

#endif
