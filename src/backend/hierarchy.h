/* hierarchy.h - the layout of hierarchical attention: levels of tokens, and the keys to which a row of a level attends ("meets" them).
 *
 *     level l has ceil(length / 2^l) tokens, token a of it represents rows a 2^l .. (a + 1) 2^l - 1; blocks are Nr tokens of one level.
 *
 *     neighbour, 8 blocks, levels 0 1 2            sibling
 *     0 0 1 1 2 2 2 2                              0 0 1 1 2 2 2 2
 *     0 0 0 1 2 2 2 2                              0 0 1 1 2 2 2 2
 *     1 0 0 0 1 1 2 2                              1 1 0 0 2 2 2 2
 *     1 1 0 0 0 1 2 2                              1 1 0 0 2 2 2 2
 *     2 2 1 0 0 0 1 1                              2 2 2 2 0 0 1 1
 *     2 2 1 1 0 0 0 1                              2 2 2 2 0 0 1 1
 *     2 2 2 2 1 0 0 0                              2 2 2 2 1 1 0 0
 *     2 2 2 2 1 1 0 0                              2 2 2 2 1 1 0 0
 *
 * Every pair of a row and a key is covered once. With partition neighbour, a block of level l >= 1 meets the previous and the next block,
 * without the quadrant that touches the diagonal, which level l - 1 covers: rows of the first half meet the first half of the previous
 * block, rows of the second half meet the second half of the next block. So a row meets one range of tokens on each side. A block of level
 * 0 also meets itself. Level M - 1 has two blocks, M = max(1, ceil(log2(ceil(length / Nr)))). Source: H-Transformer-1D, sections 5-7 and
 * appendix A.5; its footnote 4 leaves out this quadrant.
 */
#ifndef HARK_BACKEND_HIERARCHY_H
#define HARK_BACKEND_HIERARCHY_H

#include <hark/attention.h>

#define HARK_HIERARCHY_MAX_LEVELS 41 /* lengths are at most 2^40 */
#define HARK_HIERARCHY_DEFAULT_BLOCK 16

typedef struct hark_hierarchy {
  int64_t length, block;
  bool causal, sibling;
  int levels;
} hark_hierarchy;

/* The hierarchy of a sequence of `length` >= 1 rows under a resolved descriptor. */
hark_hierarchy hark_hierarchy_make(const hark_attention_desc *desc, int64_t length);

/* Tokens of a level. */
static inline int64_t hark_hierarchy_tokens(const hark_hierarchy *h, int level) { return (h->length + ((int64_t)1 << level) - 1) >> level; }

/* Tokens of all levels below `level`: the index of its first token if the levels are stored one after another; h->levels: all tokens. */
int64_t hark_hierarchy_before(const hark_hierarchy *h, int level);

/* Upper bound of the tokens of a hierarchy over at most `length` rows, for every block. */
static inline int64_t hark_hierarchy_most_tokens(int64_t length) { return 2 * length + HARK_HIERARCHY_MAX_LEVELS; }

/* Rows of cells that meet have distances below Nr 2^M. */
static inline int64_t hark_hierarchy_reach(const hark_hierarchy *h) { return h->block << h->levels; }

/* The keys that a token of a level meets: tokens from <= key < to of its level, to the left and to the right of its block. On level 0,
 * range 0 contains both sides and its own block. Empty ranges have from == to. */
typedef struct hark_hierarchy_range {
  int64_t from, to;
} hark_hierarchy_range;
typedef struct hark_hierarchy_keys {
  hark_hierarchy_range range[2];
} hark_hierarchy_keys;
hark_hierarchy_keys hark_hierarchy_meets(const hark_hierarchy *h, int level, int64_t token);

/* Blocks of Nr x Nr entries that are computed; with fine_queries (coarse query exact) blocks of Nr rows x Nr keys of each level. A block
 * whose rows or keys are all beyond the end is not counted. */
double hark_hierarchy_blocks(const hark_hierarchy *h, bool fine_queries);

#endif
