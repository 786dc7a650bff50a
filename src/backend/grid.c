/* grid.c - see grid.h. */
#include "backend/grid.h"

#include "backend/hierarchy.h"

int64_t hark_grid_side(int64_t block) {
  int64_t side = 2;
  while (side * side < block && side < (int64_t)1 << 20) side *= 2;
  return side * side == block ? side : 0;
}

hark_grid hark_grid_make(const hark_attention_desc *desc, int64_t length) {
  const int64_t columns = hark_min(desc->grid_columns, length);
  hark_grid g = {.length = length, .columns = columns, .stride = desc->grid_columns, .side = hark_grid_side(desc->hierarchy_block)};
  g.rows = columns == 0 ? 0 : hark_ceil_div(length, desc->grid_columns);
  while ((int64_t)1 << g.shift < g.side) g.shift++;
  g.levels = 1;
  while (hark_max(g.rows, g.columns) > (2 * g.side) << (g.levels - 1)) g.levels++;
  return g;
}

int64_t hark_grid_before(const hark_grid *g, int level) {
  int64_t count = 0;
  for (int l = 0; l < level; l++) count += hark_grid_cells(g, l);
  return count;
}

/* Pairs of coordinates x of queries and y of keys of a level along one side of the picture whose blocks, of `side` cells, are the same or
 * adjacent. fine: x are pixels. */
static double near_pairs(int64_t extent, int level, bool fine, int64_t side) {
  const int64_t cells = hark_grid_halved(extent, level);
  double pairs = 0;
  for (int64_t first = 0; first < cells; first += side) {
    const int64_t end = hark_min(first + side, cells);
    const int64_t queries = fine ? hark_min(end << level, extent) - (first << level) : end - first;
    const int64_t keys = hark_min(first + 2 * side, cells) - hark_max(first - side, 0);
    pairs += (double)queries * (double)keys;
  }
  return pairs;
}

double hark_grid_entries(const hark_grid *g, bool fine_queries) {
  double entries = 0;
  for (int level = 0; level < g->levels; level++) {
    entries += near_pairs(g->rows, level, fine_queries, g->side) * near_pairs(g->columns, level, fine_queries, g->side);
    if (level > 0)
      entries -= near_pairs(g->rows, level, fine_queries, g->side / 2) * near_pairs(g->columns, level, fine_queries, g->side / 2);
  }
  return entries;
}
