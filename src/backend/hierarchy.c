/* hierarchy.c - see hierarchy.h. Blocks for length Nr 2^M, Nb = 2^M (H section 7, A.5): neighbour 5 Nb - 4 - 2M, causal 3 Nb - 2 - M;
 * sibling 3 Nb - 2, causal 2 Nb - 1. */
#include "backend/hierarchy.h"

#include "core/core.h"

hark_hierarchy hark_hierarchy_make(const hark_attention_desc *desc, int64_t length) {
  hark_hierarchy h = {.length = length, .block = desc->hierarchy_block, .causal = desc->causal, .levels = 1};
  h.sibling = desc->partition == HARK_PARTITION_SIBLING;
  while (hark_ceil_div(length, h.block) > (int64_t)1 << h.levels) h.levels++;
  return h;
}

int64_t hark_hierarchy_before(const hark_hierarchy *h, int level) {
  int64_t count = 0;
  for (int l = 0; l < level; l++) count += hark_hierarchy_tokens(h, l);
  return count;
}

static hark_hierarchy_range clipped(int64_t from, int64_t to, int64_t end) {
  from = hark_max(from, 0);
  to = hark_min(to, end);
  return from < to ? (hark_hierarchy_range){from, to} : (hark_hierarchy_range){0, 0};
}

hark_hierarchy_keys hark_hierarchy_meets(const hark_hierarchy *h, int level, int64_t token) {
  const int64_t block = h->block, end = hark_hierarchy_tokens(h, level), own = token / block;
  const bool second_half = token % block >= block / 2;
  hark_hierarchy_keys keys = {{{0, 0}, {0, 0}}};
  if (level == 0) {
    int64_t first = own - 1, last = own + 1;
    if (h->sibling) {
      first = own & ~(int64_t)1;
      last = own | 1;
    }
    keys.range[0] = clipped(first * block, h->causal ? token + 1 : (last + 1) * block, end);
    return keys;
  }
  const bool has_left = !h->sibling || (own & 1) != 0, has_right = !h->causal && (!h->sibling || (own & 1) == 0);
  if (has_left) keys.range[0] = clipped((own - 1) * block, h->sibling || second_half ? own * block : own * block - block / 2, end);
  if (has_right)
    keys.range[1] = clipped(h->sibling || !second_half ? (own + 1) * block : (own + 1) * block + block / 2, (own + 2) * block, end);
  return keys;
}

double hark_hierarchy_blocks(const hark_hierarchy *h, bool fine_queries) {
  const int64_t rows = hark_ceil_div(h->length, h->block);
  double count = 0;
  for (int level = 0; level < h->levels; level++) {
    const int64_t blocks = hark_ceil_div(hark_hierarchy_tokens(h, level), h->block);
    for (int64_t i = 0; i < blocks; i++) {
      /* A level-l block's rows are 2^l blocks of rows, the last of which may be cut off. */
      const int64_t first = i << level, last = hark_min((i + 1) << level, rows);
      const double height = fine_queries ? (double)(last - first) : 1;
      int64_t partners = level == 0; /* itself */
      const bool odd = (i & 1) != 0;
      if (i > 0 && (!h->sibling || odd)) partners++;
      if (i + 1 < blocks && !h->causal && (!h->sibling || !odd)) partners++;
      count += height * (double)partners;
    }
  }
  return count;
}
