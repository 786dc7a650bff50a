/* permutation.h - a permutation of [0, n) that needs no memory. */
#ifndef HARK_DATA_PERMUTATION_H
#define HARK_DATA_PERMUTATION_H

#include <stdint.h>

/* Where `index` of [0, count) goes under the permutation number `number` (below 2^32) of a seed; every value of [0, count) comes exactly
 * once. count >= 1. */
int64_t hark_permute(uint64_t seed, uint32_t number, int64_t count, int64_t index);

/* A number uniform in [0, count), number `index` of stream `stream_number` of a seed; no value is more than 2^-64 likelier than it should
 * be. Streams of the purpose HARK_RANDOM_DATA, told apart by the layer: the numbers in use stand beside their users. */
int64_t hark_draw_below(uint64_t seed, uint32_t stream_number, uint64_t index, int64_t count);

#endif
