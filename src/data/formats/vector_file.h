/* vector_file.h - sequences of real vectors with a vector to predict from each, in files of records.
 *
 *     "HARKVECS", then little-endian u32 version (1), length L, features d, responses r, u64 records;
 *     records of L d + r numbers of 32 bits: the tokens one after the other, then the numbers to predict
 */
#ifndef HARK_DATA_FORMATS_VECTOR_FILE_H
#define HARK_DATA_FORMATS_VECTOR_FILE_H

#include <stddef.h>
#include <stdint.h>

#define HARK_VECTORS_MAGIC "HARKVECS"
#define HARK_VECTORS_VERSION 1
#define HARK_VECTORS_HEADER_BYTES 32
#define HARK_VECTORS_LENGTH_MAX 1048576
#define HARK_VECTORS_FEATURES_MAX 4096

/* Count of numbers of a record. */
static inline size_t hark_vectors_record(int64_t length, int64_t features, int64_t responses) {
  return (size_t)(length * features + responses);
}

/* Fills the header of a file, which begins with `magic`. */
void hark_vectors_header(const char *magic, int64_t length, int64_t features, int64_t responses, int64_t count,
                         unsigned char out[HARK_VECTORS_HEADER_BYTES]);

/* What a header states. */
typedef struct hark_vectors_sizes {
  int32_t length, features, responses;
  uint64_t count;
} hark_vectors_sizes;

#endif
