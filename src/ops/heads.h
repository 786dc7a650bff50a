/* heads.h - activations seen by heads. */
#ifndef HARK_OPS_HEADS_H
#define HARK_OPS_HEADS_H

#include "ops/definition.h"

/* Activations as [B, L, width]; those of a ragged batch, with any leading dimensions, as [1, rows, width]. */
static inline hark_tensor hark_activations(const hark_tensor *tensor, bool ragged) {
  if (!ragged || !hark_present(tensor)) return *tensor;
  const int64_t rows = hark_row_count(tensor), width = hark_row_length(tensor);
  return (hark_tensor){
      .data = tensor->data, .type = tensor->type, .rank = 3, .shape = {1, rows, width}, .stride = {rows * width, width, 1}};
}

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
