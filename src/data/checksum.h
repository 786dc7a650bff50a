/* checksum.h - FNV-1a with 64 bits (Fowler, Noll, Vo): tells changed data from unchanged, not against someone who forges it. */
#ifndef HARK_DATA_CHECKSUM_H
#define HARK_DATA_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HARK_CHECKSUM_START UINT64_C(0xCBF29CE484222325)

static inline uint64_t hark_checksum_bytes(uint64_t sum, const void *data, size_t bytes) {
  const unsigned char *byte = data;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ byte[i]) * UINT64_C(0x100000001B3);
  return sum;
}

/* Little-endian, so that the sum is the same on every machine. */
static inline uint64_t hark_checksum_number(uint64_t sum, uint64_t number) {
  unsigned char bytes[8];
  for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> (8 * i));
  return hark_checksum_bytes(sum, bytes, sizeof bytes);
}

/* With its length, so that "ab", "c" and "a", "bc" differ. */
static inline uint64_t hark_checksum_text(uint64_t sum, const char *text) {
  const size_t bytes = strlen(text);
  return hark_checksum_bytes(hark_checksum_number(sum, bytes), text, bytes);
}

#endif
