/* block_ranks.c - see block_ranks.h. */
#include "lab/block_ranks.h"

hark_status hark_lab_visit_blocks(int64_t length, int64_t leaf, bool causal, hark_lab_block_visitor *visit, void *user) {
  for (int64_t at = 0; at < length; at += leaf) HARK_TRY(visit(user, &(hark_lab_block){at, at, leaf, HARK_LAB_DIAGONAL}));
  int64_t level = 0;
  for (int64_t size = leaf; 2 * size <= length; size *= 2, level++)
    for (int64_t at = 0; at < length; at += 2 * size) {
      if (!causal) HARK_TRY(visit(user, &(hark_lab_block){at, at + size, size, level}));
      HARK_TRY(visit(user, &(hark_lab_block){at + size, at, size, level}));
    }
  return HARK_OK;
}
