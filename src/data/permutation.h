/* permutation.h - a permutation of [0, n) that needs no memory. */
#ifndef HARK_DATA_PERMUTATION_H
#define HARK_DATA_PERMUTATION_H

#include <stdint.h>

/* The image of `index` in [0, count) under permutation number `number` (below 2^32) of a seed; every value of [0, count) occurs exactly
 * once. count >= 1. */
int64_t hark_permute(uint64_t seed, uint32_t number, int64_t count, int64_t index);

/* A number uniform in [0, count): number `index` of stream `stream_number` of a seed. The probability of a value is too large by at most
 * 2^-64. Streams have the purpose HARK_RANDOM_DATA and differ by layer; each number in use is defined where it is used. */
int64_t hark_draw_below(uint64_t seed, uint32_t stream_number, uint64_t index, int64_t count);

#endif
