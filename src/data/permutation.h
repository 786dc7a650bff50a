/* permutation.h - a permutation of [0, n) that needs no memory. */
#ifndef HARK_DATA_PERMUTATION_H
#define HARK_DATA_PERMUTATION_H

#include <stdint.h>

/* Where `index` of [0, count) goes under the permutation number `number` (below 2^32) of a seed; every value of [0, count) comes exactly once.
 * count >= 1. */
int64_t hark_permute(uint64_t seed, uint32_t number, int64_t count, int64_t index);

#endif
