/* permutation.c - a pseudo-random permutation by a Feistel network with cycle walking.
 *
 * A balanced Feistel network is a bijection of [0, 2^(2h)) for any round function: a round maps (l, r) to (r, l xor F(r)). h is the
 * smallest with 2^(2h) >= count. Applying the network until the value is below count is a bijection of [0, count), because the walk follows
 * a cycle of a permutation that starts inside. It needs 2^(2h) / count < 4 applications on average. F is Philox, keyed by the seed.
 *
 * Luby, Rackoff: "How to construct pseudorandom permutations from pseudorandom functions", SIAM J. Comput. 17(2), 1988 (the network);
 * Black, Rogaway: "Ciphers with arbitrary finite domains", CT-RSA 2002 (cycle walking).
 */
#include "data/permutation.h"

#include <hark/random.h>

#define ROUNDS 6        /* four suffice in theory; small halves mix better with more */
#define PURPOSE_LAYER 2 /* different from the streams of batches.c */

static uint64_t feistel(uint64_t seed, uint32_t number, int half_bits, uint64_t value) {
  const uint64_t mask = ((uint64_t)1 << half_bits) - 1;
  uint64_t left = value >> half_bits, right = value & mask;
  for (uint32_t round = 0; round < ROUNDS; round++) {
    const hark_random_stream stream = {
        .seed = seed, .micro_step = round, .layer_purpose = hark_random_layer_purpose(PURPOSE_LAYER, HARK_RANDOM_DATA)};
    uint32_t words[4];
    hark_random_words(&stream, (uint64_t)number << 32 | right, words);
    const uint64_t next = left ^ (words[0] & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

int64_t hark_permute(uint64_t seed, uint32_t number, int64_t count, int64_t index) {
  int half_bits = 1;
  while (half_bits < 31 && (int64_t)1 << (2 * half_bits) < count) half_bits++;
  uint64_t value = (uint64_t)index;
  do {
    value = feistel(seed, number, half_bits, value);
  } while (value >= (uint64_t)count);
  return (int64_t)value;
}

/* floor(u count / 2^64) for a word u of 64 bits. */
int64_t hark_draw_below(uint64_t seed, uint32_t stream_number, uint64_t index, int64_t count) {
  const hark_random_stream stream = {.seed = seed, .layer_purpose = hark_random_layer_purpose(stream_number, HARK_RANDOM_DATA)};
  uint32_t words[4];
  hark_random_words(&stream, index, words);
  /* The high half of a product of 64 by 64 bits, from products of 32 by 32. */
  const uint64_t n0 = (uint32_t)count, n1 = (uint64_t)count >> 32, u0 = words[0], u1 = words[1];
  const uint64_t middle = u1 * n0 + (u0 * n0 >> 32);
  const uint64_t other = u0 * n1 + (uint32_t)middle;
  return (int64_t)(u1 * n1 + (middle >> 32) + (other >> 32));
}
