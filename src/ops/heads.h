/* heads.h - activations seen by heads. */
#ifndef HARK_OPS_HEADS_H
#define HARK_OPS_HEADS_H

#include "ops/definition.h"

/* Contiguous activations [B, L, H d] as [B, H, L, d]; absent ones stay absent. */
static inline hark_tensor hark_split_heads(const hark_tensor *rows, int64_t heads) {
  if (!hark_present(rows)) return (hark_tensor){0};
  const int64_t length = rows->shape[1], width = rows->shape[2], dim = width / heads;
  return (hark_tensor){.data = rows->data,
                       .type = rows->type,
                       .rank = 4,
                       .shape = {rows->shape[0], heads, length, dim},
                       .stride = {length * width, dim, width, 1}};
}

#endif
