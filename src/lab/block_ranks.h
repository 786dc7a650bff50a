/* block_ranks.h - the blocks of a matrix as in hierarchical attention, and what they need when they are stored as factors. */
#ifndef HARK_LAB_BLOCK_RANKS_H
#define HARK_LAB_BLOCK_RANKS_H

#include "core/core.h"

#define HARK_LAB_DIAGONAL (-1) /* as a level */

typedef struct hark_lab_block {
  int64_t row, column, size, level;
} hark_lab_block;

/* Called for each block; a status other than HARK_OK ends the visit. */
typedef hark_status hark_lab_block_visitor(void *user, const hark_lab_block *block);

/* The blocks of a matrix of length x length entries, where length is `leaf` times a power of 2: those of the diagonal, of `leaf` rows, and
 * on every level the two blocks of each pair of siblings (causal: the one below the diagonal); coarser levels later (H eq. 9). */
HARK_MUST_CHECK hark_status hark_lab_visit_blocks(int64_t length, int64_t leaf, bool causal, hark_lab_block_visitor *visit, void *user);

/* Numbers for a block of size x size entries and this rank: as two factors, or as it is where that is less. */
static inline int64_t hark_lab_block_storage(int64_t size, int64_t rank) { return hark_min(size * size, 2 * rank * size); }

#endif
