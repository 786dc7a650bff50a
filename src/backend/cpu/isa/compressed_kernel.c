/* compressed_kernel.c - the kernel of the distance in compressed attention, in f32.
 *
 *     near key       s = scale q . k + log G(n - j)
 *     slot b         s = scale q . k_b + log of the sum of G(n - j) over its unmasked rows j
 *
 * The rows of a slot without masked rows are cut into parts of 2^k rows (chunk_kernel.h). The logarithms of the sums over such parts are in
 * tables, by the distance of a part's row next to the query. Table k + 1 at t is the sum of table k at t and at t + 2^k. So a slot of 2^k
 * rows needs one number for each query, and another one a sum of a few. Each run of unmasked rows in a slot is cut by itself.
 *
 * A factor of G changes no weight. Therefore the tables are those of G divided by its maximum, which is given back in log-sum-exp.
 *
 * Gradients take the same way back: from a slot to its parts, in proportion to their sums; from table k + 1 to table k; table 0 is log G.
 * They are float64. Those of near keys are summed for each chunk by itself, because different threads have different chunks; those of
 * slots by one thread. Cost of a head: O(parts) for each query and slot from which it selects, and O(L (K parts + levels)) for gradients, K
 * selected slots; memory O(L levels).
 */
#include <float.h>

#include "backend/kernel_table.h"
#include "compressed_tile.h"

/* Logarithms stay finite where log G is, also after a product is added. */
#define LARGEST (FLT_MAX / 8)

/* log2(2^a + 2^b) */
HARK_SIMD vf log_add(vf a, vf b) {
  const vf hidden = vf_set(-INFINITY), top = vf_max(a, b);
  const vm none = vm_and(vf_equal(a, hidden), vf_equal(b, hidden));
  const vf sum = vf_exp2(a - top) + vf_exp2(b - top); /* NaN where one is NaN or infinity */
  return vf_select(none, hidden, vf_fma(vf_log(sum), vf_set(HARK_LOG2_E), top));
}

hark_status HARK_ISA(hark_compressed_kernel_floats)(hark_context *context, const hark_attention_desc *desc, int64_t rows, bool backward,
                                                    size_t *out) {
  const size_t levels = (size_t)hark_compressed_levels_most(desc);
  size_t floats = 0;
  *out = 0;
  if (levels == 0) return HARK_OK;
  HARK_TRY(hark_size_multiply(context, levels, (size_t)hark_compressed_table_width(rows), out));
  if (!backward) return HARK_OK;
  HARK_TRY(hark_size_multiply(context, 2 * (levels + 2), (size_t)rows, &floats)); /* float64; near: two chunks of each */
  HARK_TRY(hark_size_add(context, *out, floats, out));
  HARK_TRY(hark_size_multiply(context, (size_t)hark_chunk_selected(desc), (size_t)rows, &floats));
  return hark_size_add(context, *out, floats, out);
}

/* The highest finite number; 0 if there is none. */
static double highest_of(const float *from, int64_t count) {
  float highest = -INFINITY;
  for (int64_t t = 0; t < count; t++)
    if (isfinite(from[t]) && from[t] > highest) highest = from[t];
  return highest == -INFINITY ? 0 : (double)highest;
}

void HARK_ISA(hark_compressed_make_tables)(hark_compressed_tree *tree) {
  const hark_tensor *table = &tree->call->args->log_kernel;
  const int64_t rows = tree->chunks.rows, width = hark_compressed_table_width(rows);
  const float *from = (const float *)table->data + tree->head * table->stride[0] + hark_kernel_column(tree->call->desc, table->shape[1], 0);
  const int64_t distances = hark_min(rows, hark_kernel_distances(tree->call->desc, table->shape[1]));
  tree->highest = highest_of(from, distances);
  memset(tree->log_sums, 0, (size_t)(tree->levels * width) * sizeof(float));
  float *to = tree->log_sums + HARK_TILE_QUERIES;
  for (int64_t t = 0; t < distances; t++) {
    const double term = (double)HARK_LOG2_E * ((double)from[t] - tree->highest);
    to[t] = isfinite(from[t]) ? (float)fmax(-(double)LARGEST, term) : from[t];
  }
  for (int level = 1; level < tree->levels; level++) {
    const float *half = to;
    const int64_t step = (int64_t)1 << (level - 1);
    to += width;
    /* the last vector writes after the last distance, where each table has room for a tile; no query reads those numbers */
    for (int64_t t = 0; t + step < rows; t += HARK_LANES) vf_store(to + t, log_add(vf_load(half + t), vf_load(half + t + step)));
  }
}

/* Parts of a slot, from its last row back to its first. */
typedef struct slot_parts {
  const hark_compressed_tree *tree;
  int64_t first, end; /* of the rows that are left */
  bool whole;
} slot_parts;

HARK_SIMD slot_parts parts_of(const hark_compressed_tree *tree, int64_t slot) {
  slot_parts parts = {.tree = tree, .first = hark_chunk_slot_row(&tree->chunks, slot), .end = hark_chunk_slot_row(&tree->chunks, slot + 1)};
  parts.whole = tree->slots.count[slot] == (float)(parts.end - parts.first);
  return parts;
}

/* The next part: its table, and its row next to the query. False: there is none. */
HARK_SIMD bool next_part(slot_parts *parts, int *level, int64_t *row) {
  const float *weight = parts->tree->rows.weight; /* of masked rows not 0 */
  while (!parts->whole && parts->end > parts->first && weight[parts->end - 1] != 0.0f) parts->end--;
  if (parts->end <= parts->first) return false;
  int64_t run = parts->end - parts->first;
  if (!parts->whole)
    for (run = 1; parts->end - run > parts->first && weight[parts->end - run - 1] == 0.0f;) run++;
  *level = hark_chunk_part_level(run);
  *row = parts->end - 1;
  parts->end -= (int64_t)1 << *level;
  return true;
}

void HARK_ISA(hark_compressed_slot_terms)(const hark_compressed_tile *tile, int64_t slot, float *terms) {
  slot_parts parts = parts_of(tile->tree, slot);
  int level;
  int64_t row;
  bool has_terms = false;
  while (next_part(&parts, &level, &row)) {
    const float *from = hark_compressed_table(tile->tree, level) + tile->first - row;
    for (int lane = 0; lane < tile->count; lane += HARK_LANES)
      vf_store(terms + lane, has_terms ? log_add(vf_load(terms + lane), vf_load(from + lane)) : vf_load(from + lane));
    has_terms = true;
  }
}

/* ---- gradients ---- */

/* Sums of a chunk by distance. Before them are those of the chunks before it. */
static double *near_sums_of(const hark_compressed_tree *tree, int64_t chunk) {
  return tree->near_sums + (chunk == 0 ? 0 : tree->chunks.start[chunk] + tree->chunks.start[chunk - 1]);
}

/* Distances from a chunk's last row to the first row near it. */
static size_t near_count(const hark_compressed_tree *tree, int64_t chunk) {
  return (size_t)(tree->chunks.start[chunk + 1] - hark_chunk_near(&tree->chunks, chunk));
}

void HARK_ISA(hark_compressed_clear_near)(const hark_compressed_tree *tree, int64_t chunk) {
  memset(near_sums_of(tree, chunk), 0, near_count(tree, chunk) * sizeof(double));
}

void HARK_ISA(hark_compressed_collect_near)(const hark_compressed_tile *tile, const hark_compressed_block *block, const float *gradients) {
  enum { ROOM = HARK_TILE_QUERIES + HARK_COMPRESSED_KEYS + HARK_TILE_QUERIES };
  float sums[ROOM] = {0}; /* of the difference of a lane and a key, from - count + 1 on */
  for (int key = 0; key < block->count; key++)
    for (int lane = 0; lane < tile->count; lane += HARK_LANES) {
      float *to = sums + block->count - 1 - key + lane;
      vf_store(to, vf_load(to) + vf_load(gradients + (ptrdiff_t)key * HARK_TILE_QUERIES + lane));
    }
  const int64_t lowest = tile->first - (block->first + block->count - 1);
  double *to = near_sums_of(tile->tree, tile->chunk);
  for (int i = 0; i < block->count - 1 + tile->count; i++)
    if (lowest + i >= 0) to[lowest + i] += (double)sums[i];
}

/* Gives the gradient of a slot's term for a row to the parts of the slot. */
static void give_slot(const hark_compressed_tree *tree, int64_t row, int64_t slot, double gradient) {
  const int64_t rows = tree->chunks.rows;
  slot_parts parts = parts_of(tree, slot);
  int level;
  int64_t nearest;
  double sum = 0, top = -INFINITY;
  for (slot_parts copy = parts; next_part(&copy, &level, &nearest);)
    top = fmax(top, (double)hark_compressed_table(tree, level)[row - nearest]);
  for (slot_parts copy = parts; next_part(&copy, &level, &nearest);)
    sum += exp2((double)hark_compressed_table(tree, level)[row - nearest] - top);
  while (next_part(&parts, &level, &nearest)) {
    const double part = exp2((double)hark_compressed_table(tree, level)[row - nearest] - top) / sum;
    tree->dlog_sums[level * rows + row - nearest] += part * gradient;
  }
}

void HARK_ISA(hark_compressed_collect_kernel)(const hark_compressed_tree *tree) {
  const hark_compressed_call *call = tree->call;
  const int64_t rows = tree->chunks.rows, queries = tree->sequence->query_count;
  double *out = hark_chunk_kernel_sums(call->run, call->kernel_sums, tree->sequence, tree->head);
  memset(tree->dlog_sums, 0, (size_t)(tree->levels * rows) * sizeof(double));
  for (int64_t chunk = 0; chunk < tree->chunks.count; chunk++) {
    const double *near = near_sums_of(tree, chunk);
    for (size_t t = 0; t < near_count(tree, chunk); t++) tree->dlog_sums[t] += near[t];
  }
  for (int64_t row = 0; row < queries; row++) {
    const float *numbers = hark_compressed_saved_of(tree, row).numbers, *gradients = tree->selected_term + row * call->selected;
    for (int i = 0; i < call->selected && hark_compressed_number(numbers, i) >= 0; i++)
      give_slot(tree, row, hark_compressed_number(numbers, i), (double)gradients[i]);
  }
  for (int level = tree->levels - 1; level > 0; level--) {
    const float *all = hark_compressed_table(tree, level), *half = hark_compressed_table(tree, level - 1);
    const double *from = tree->dlog_sums + level * rows;
    double *to = tree->dlog_sums + (level - 1) * rows;
    const int64_t step = (int64_t)1 << (level - 1);
    for (int64_t t = 0; t < rows; t++) {
      if (from[t] == 0) continue;
      const double first = exp2((double)half[t] - (double)all[t]), second = exp2((double)half[t + step] - (double)all[t]);
      const double sum = first + second, gradient = sum > 0 && isfinite(sum) ? from[t] / sum : from[t]; /* all[t] is rounded */
      to[t] += gradient * first;
      to[t + step] += gradient * second;
    }
  }
  for (int64_t t = 0; t < queries; t++) out[t] = tree->dlog_sums[t];
}
