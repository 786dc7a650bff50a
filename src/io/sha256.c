/* sha256.c - SHA-256 of a stream.
 *
 * Per block of 16 words W: W[t] = s1(W[t-2]) + W[t-7] + s0(W[t-15]) + W[t-16] up to 64 words, then 64 rounds on eight state words.
 * Cost: about ten operations per byte. The constants are the first 32 bits of the fractions of the square roots of the first eight primes
 * and of the cube roots of the first 64.
 * Source: NIST FIPS 180-4, sections 4.1.2, 5.1.1, 6.2.
 */
#include "io/sha256.h"

#include <string.h>

#define BLOCK 64
#define LENGTH_AT 56 /* the last eight bytes of the last block hold the length in bits */

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t rotate(uint32_t x, int bits) { return (x >> bits) | (x << (32 - bits)); }

static void take_block(uint32_t state[8], const uint8_t *block) {
  uint32_t w[64];
  for (size_t t = 0; t < 16; t++) {
    w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 | (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
  }
  for (int t = 16; t < 64; t++) {
    const uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = s1 + w[t - 7] + s0 + w[t - 16];
  }
  uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
  for (int t = 0; t < 64; t++) {
    const uint32_t choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
    const uint32_t t1 = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + choice + round_constants[t] + w[t];
    const uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += h;
}

void hark_sha256_begin(hark_sha256 *hash) {
  static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  memcpy(hash->state, initial, sizeof initial);
  hash->bytes = 0;
}

void hark_sha256_add(hark_sha256 *hash, const void *data, size_t bytes) {
  const uint8_t *at = data;
  size_t held = (size_t)(hash->bytes % BLOCK);
  hash->bytes += bytes;
  if (held > 0) {
    const size_t part = bytes < BLOCK - held ? bytes : BLOCK - held;
    if (part > 0) memcpy(hash->block + held, at, part);
    at += part;
    bytes -= part;
    held += part;
    if (held < BLOCK) return;
    take_block(hash->state, hash->block);
  }
  for (; bytes >= BLOCK; at += BLOCK, bytes -= BLOCK) take_block(hash->state, at);
  if (bytes > 0) memcpy(hash->block, at, bytes);
}

void hark_sha256_end(hark_sha256 *hash, char text[HARK_SHA256_TEXT_BYTES]) {
  static const char digits[] = "0123456789abcdef";
  const uint64_t bits = hash->bytes * 8;
  const size_t held = (size_t)(hash->bytes % BLOCK);
  uint8_t tail[2 * BLOCK] = {0};
  const size_t size = held < LENGTH_AT ? BLOCK : 2 * BLOCK;
  memcpy(tail, hash->block, held);
  tail[held] = 0x80;
  for (int i = 0; i < 8; i++) tail[size - 1 - (size_t)i] = (uint8_t)(bits >> (8 * i));
  for (size_t at = 0; at < size; at += BLOCK) take_block(hash->state, tail + at);
  for (size_t i = 0; i < HARK_SHA256_BYTES; i++) {
    const unsigned byte = hash->state[i / 4] >> (24 - 8 * (i % 4)) & 255u;
    text[2 * i] = digits[byte >> 4];
    text[2 * i + 1] = digits[byte & 15];
  }
  text[HARK_SHA256_TEXT_BYTES - 1] = 0;
}
