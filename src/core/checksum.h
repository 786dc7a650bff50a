/* checksum.h - FNV-1a with 64 bits (Fowler, Noll, Vo): detects changed data, but no forgery. */
#ifndef HARK_CORE_CHECKSUM_H
#define HARK_CORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HARK_CHECKSUM_START UINT64_C(0xCBF29CE484222325)

static inline uint64_t hark_checksum_bytes(uint64_t sum, const void *data, size_t bytes) {
  const unsigned char *byte = data;
  for (size_t i = 0; i < bytes; i++) sum = (sum ^ byte[i]) * UINT64_C(0x100000001B3);
  return sum;
}

/* The same for megabytes: eight bytes at a time in four independent sums, each mixed by multiplication and rotation, then joined. The sum
 * depends on how a long text is divided into calls. */
static inline uint64_t hark_checksum_block(uint64_t sum, const void *data, size_t bytes) {
  enum { LANES = 4, WORD = 8, TURN = 29 };
  const unsigned char *byte = data;
  uint64_t lane[LANES];
  for (int i = 0; i < LANES; i++) lane[i] = (sum + (uint64_t)i) * UINT64_C(0x9E3779B97F4A7C15);
  size_t at = 0;
  for (; bytes - at >= (size_t)LANES * WORD; at += (size_t)LANES * WORD)
    for (int i = 0; i < LANES; i++) {
      uint64_t word;
      memcpy(&word, byte + at + (size_t)i * WORD, WORD);
      const uint64_t mixed = (lane[i] ^ word) * UINT64_C(0xD6E8FEB86659FD93);
      lane[i] = mixed << TURN | mixed >> (64 - TURN);
    }
  for (int i = 0; i < LANES; i++) sum = hark_checksum_bytes(sum, &lane[i], sizeof lane[i]);
  return hark_checksum_bytes(sum, byte + at, bytes - at);
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
