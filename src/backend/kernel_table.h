/* kernel_table.h - the layout of a table of log G (log_kernel), by the difference d of the positions of a query and a key.
 *
 *     [H or 1, T]          entry |d|, for distances below T
 *     [H or 1, 2 T - 1]    with directed_kernel: entry T - 1 + d, d from -(T - 1), a key after the query, to T - 1, one before it
 */
#ifndef HARK_BACKEND_KERNEL_TABLE_H
#define HARK_BACKEND_KERNEL_TABLE_H

#include <hark/attention.h>

/* Directions with separate numbers. */
static inline int hark_kernel_sides(const hark_attention_desc *desc) { return desc->directed_kernel != 0 ? 2 : 1; }

/* T of a table with this number of columns, and the columns for T. */
static inline int64_t hark_kernel_distances(const hark_attention_desc *desc, int64_t columns) {
  return desc->directed_kernel != 0 ? (columns + 1) / 2 : columns;
}
static inline int64_t hark_kernel_columns(const hark_attention_desc *desc, int64_t distances) {
  return desc->directed_kernel != 0 ? 2 * distances - 1 : distances;
}

/* The column of a difference. */
static inline int64_t hark_kernel_column(const hark_attention_desc *desc, int64_t columns, int64_t difference) {
  if (desc->directed_kernel != 0) return columns / 2 + difference;
  return difference < 0 ? -difference : difference;
}

/* The part of a table for keys up to the query (side 0) or after it (1) as a table [H or 1, T] by distance, whose columns have stride 1 or
 * -1. Distance 0 is in both; it belongs to side 0. Without directed_kernel the table itself. */
static inline hark_tensor hark_kernel_side(const hark_attention_desc *desc, const hark_tensor *table, int side) {
  hark_tensor part = *table;
  if (desc->directed_kernel == 0) return part;
  const int64_t middle = table->shape[1] / 2;
  part.data = (char *)table->data + (size_t)middle * (table->type == HARK_F64 ? sizeof(double) : sizeof(float));
  part.shape[1] = middle + 1;
  part.stride[1] = side == 0 ? 1 : -1;
  return part;
}

#endif
