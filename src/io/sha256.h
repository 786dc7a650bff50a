/* sha256.h - the checksum of files of runs: FIPS 180-4, the same as that of sha256sum(1). */
#ifndef HARK_IO_SHA256_H
#define HARK_IO_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define HARK_SHA256_BYTES 32
#define HARK_SHA256_TEXT_BYTES 65 /* lower-case hexadecimal digits and the zero byte */

typedef struct hark_sha256 {
  uint32_t state[8];
  uint64_t bytes;
  uint8_t block[64];
} hark_sha256;

void hark_sha256_begin(hark_sha256 *hash);
void hark_sha256_add(hark_sha256 *hash, const void *data, size_t bytes);
void hark_sha256_end(hark_sha256 *hash, char text[HARK_SHA256_TEXT_BYTES]);

#endif
