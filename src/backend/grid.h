/* grid.h - the layout of hierarchical attention over the pixels of a picture: levels of square cells, and which cells meet.
 *
 *     Row n of a sequence is pixel (n / columns, n mod columns). Cell (r, c) of level l has the pixels of rows r 2^l .. (r + 1) 2^l - 1 and
 *     columns c 2^l .. (c + 1) 2^l - 1. A block has side x side cells of one level, side = sqrt(Nr).
 *
 * Two cells of a level are near each other if their blocks are the same or touch, at a side or at a corner. They meet if they are near each
 * other and, on a level above 0, the cells of the level below inside them are not:
 *
 *     blocks of level l - 1 around the one marked q, of which four are a block of level l
 *
 *     1 1 1 1 1 1        . : near q on level l - 1, met there or below
 *     1 . . . 1 1        1 : met on level l, 27 of 36 blocks
 *     1 . q . 1 1        everything else: met on a level above
 *     1 . . . 1 1
 *     1 1 1 1 1 1
 *     1 1 1 1 1 1
 *
 * Cells that are near each other are so on every level above. So every pair of pixels is in cells that meet on exactly one level, the
 * lowest on which they are near. On the coarsest level, at most 2 x 2 blocks, all cells are near. Pixels that the sequence does not have,
 * at the end of the last row of pixels, count as padding. docs/mathematics/hierarchical-2d.md.
 */
#ifndef HARK_BACKEND_GRID_H
#define HARK_BACKEND_GRID_H

#include <hark/attention.h>

#include "core/core.h"

#define HARK_GRID_MAX_LEVELS 41

typedef struct hark_grid {
  int64_t length;        /* pixels */
  int64_t rows, columns; /* of pixels; a picture of one row has no more columns than pixels */
  int64_t stride;        /* pixels from one row to the next */
  int64_t side;          /* cells, of a block: 2^shift */
  int shift;
  int levels;
} hark_grid;

/* The square root of a power of 4 from 4 on; 0 for other numbers. */
int64_t hark_grid_side(int64_t block);

/* The levels of a picture of `length` >= 0 pixels under a resolved descriptor. */
hark_grid hark_grid_make(const hark_attention_desc *desc, int64_t length);

static inline int64_t hark_grid_halved(int64_t extent, int level) { return (extent + ((int64_t)1 << level) - 1) >> level; }
/* Rows and columns of cells. */
static inline int64_t hark_grid_height(const hark_grid *g, int level) { return hark_grid_halved(g->rows, level); }
static inline int64_t hark_grid_width(const hark_grid *g, int level) { return hark_grid_halved(g->columns, level); }
static inline int64_t hark_grid_cells(const hark_grid *g, int level) { return hark_grid_height(g, level) * hark_grid_width(g, level); }

/* Cells of all levels below `level`; g->levels: all cells. */
int64_t hark_grid_before(const hark_grid *g, int level);

/* True if coordinates a and b of cells are in the same or in adjacent blocks. */
static inline bool hark_grid_is_near(int64_t a, int64_t b, int64_t side) {
  const int64_t difference = a / side - b / side;
  return difference >= -1 && difference <= 1;
}

/* True if cells (row, column) and (key_row, key_column) of a level meet. Cells of the level below are half as large, so that its blocks
 * have half as many cells of this level on a side. */
static inline bool hark_grid_meets(const hark_grid *g, int level, int64_t row, int64_t column, int64_t key_row, int64_t key_column) {
  const int64_t side = g->side, below = side / 2;
  if (!hark_grid_is_near(row, key_row, side) || !hark_grid_is_near(column, key_column, side)) return false;
  return level == 0 || !hark_grid_is_near(row, key_row, below) || !hark_grid_is_near(column, key_column, below);
}

/* Pairs of a query and a key cell that meet, on all levels; with fine_queries (coarse query exact), of a pixel and a key cell. Cells
 * without a pixel in the last row of pixels count too. */
double hark_grid_entries(const hark_grid *g, bool fine_queries);

#endif
