/* kernel_ridge_products.h - products and triangular solves on tiles for kernel ridge attention, accumulators in registers.
 *
 * A tile is HARK_TILE_KEYS rows of lanes. The upper factor R^T = U, M = U'U, is stored in contiguous tiles of 64 x 64, so that every update
 * of the factorisation and of the solves with U' is C -= A'B of whole tiles: it uses vectors of lanes of C and A, and broadcasts one
 * element of B at a time.
 *
 *     products   C[j][lane] (=, +=, -=) sum_k A[k][lane] B(j, k)
 *     factor     C -> U with U'U = C           of a diagonal tile, four rows at a time
 *     solve      C <- U'^-1 C,  C <- U^-1 C    with a diagonal tile
 *
 * A sum starts from zero and is added to C at its end: so rounding errors grow with the tile. Every element's sum has one order. The part
 * of a factored tile below the diagonal is not used.
 */
#ifndef HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_PRODUCTS_H
#define HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_PRODUCTS_H

#include "dense_pack.h"

#define HARK_RIDGE_TILE HARK_TILE_KEYS
#define HARK_RIDGE_TILE_FLOATS (HARK_RIDGE_TILE * HARK_RIDGE_TILE)
#define HARK_RIDGE_BLOCK_ROWS 6  /* of C in registers, with HARK_BLOCK_VECTORS vectors per row */
#define HARK_RIDGE_GROUP 4       /* rows of a triangle that are solved one by one */
#define HARK_RIDGE_ABOVE_ROWS 16 /* rows that begin in the same lane, if the lanes before a diagonal are not needed */

typedef enum hark_ridge_mode { HARK_RIDGE_STORE, HARK_RIDGE_ADD, HARK_RIDGE_LESS } hark_ridge_mode;

typedef struct hark_ridge_product {
  const float *a;
  ptrdiff_t a_row; /* from one k to the next */
  const float *b;
  ptrdiff_t b_row, b_step; /* from one j, one k to the next */
  float *c;
  ptrdiff_t c_row;
  int rows, depth, width; /* j, k, lanes: a multiple of HARK_LANES */
  const float *next;      /* a tile that is needed after this one, to prefetch meanwhile; or NULL */
} hark_ridge_product;

/* Rows and vectors are constants after inlining; so is `columns`: b_row is 1. */
HARK_SIMD void hark_ridge_block(const hark_ridge_mode mode, const bool columns, const int vectors, const int rows,
                                const hark_ridge_product *p, ptrdiff_t j, ptrdiff_t lane) {
  vf c[8][HARK_BLOCK_VECTORS];
  HARK_UNROLL
  for (int r = 0; r < rows; r++) {
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) c[r][m] = vf_zero();
  }
  const ptrdiff_t a_row = p->a_row, b_row = columns ? 1 : p->b_row, b_step = p->b_step;
  const float *a = p->a + lane;
  const float *quad[2]; /* one pointer per four rows, so that the addresses of all rows fit into registers */
  quad[0] = p->b + j * b_row;
  quad[1] = quad[0] + 4 * b_row;
  const int depth = p->depth;
  if (p->next != NULL && lane == 0)
    for (int line = 0; line < rows * HARK_RIDGE_TILE; line += HARK_ALIGNMENT / (int)sizeof(float))
      HARK_PREFETCH_FAR(p->next + j * HARK_RIDGE_TILE + line);
  HARK_ROLLED
  for (int k = 0; k < depth; k++) {
    vf av[HARK_BLOCK_VECTORS];
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) av[m] = vf_load(a + m * HARK_LANES);
    a += a_row;
    HARK_UNROLL
    for (int r = 0; r < rows; r++) {
      if (!columns && r % 4 == 0) HARK_OPAQUE(quad[r / 4]);
      const vf bv = columns ? vf_set(quad[0][r]) : vf_set(quad[r / 4][r % 4 * b_row]);
      HARK_UNROLL
      for (int m = 0; m < vectors; m++) c[r][m] = vf_fma(av[m], bv, c[r][m]);
    }
    quad[0] += b_step;
    if (!columns && rows > 4) quad[1] += b_step;
  }
  float *to = p->c + j * p->c_row + lane;
  HARK_UNROLL
  for (int r = 0; r < rows; r++, to += p->c_row) {
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) {
      const vf sum = c[r][m];
      vf_store(to + m * HARK_LANES, mode == HARK_RIDGE_STORE ? sum
                                    : mode == HARK_RIDGE_ADD ? vf_load(to + m * HARK_LANES) + sum
                                                             : vf_load(to + m * HARK_LANES) - sum);
    }
  }
}

HARK_SIMD void hark_ridge_panel(const hark_ridge_mode mode, const bool columns, const int vectors, const hark_ridge_product *p,
                                ptrdiff_t lane) {
  const int rows = vectors == HARK_BLOCK_VECTORS ? HARK_RIDGE_BLOCK_ROWS : 8; /* with fewer than HARK_BLOCK_VECTORS vectors */
  int j = 0;
  for (; j + rows <= p->rows; j += rows) hark_ridge_block(mode, columns, vectors, rows, p, j, lane);
  for (; j + 4 <= p->rows; j += 4) hark_ridge_block(mode, columns, vectors, 4, p, j, lane);
  for (; j < p->rows; j++) hark_ridge_block(mode, columns, vectors, 1, p, j, lane);
}

HARK_SIMD void hark_ridge_lanes(const hark_ridge_mode mode, const bool columns, const hark_ridge_product *p) {
  const int count = p->width / HARK_LANES;
  int at = 0;
  for (; at + HARK_BLOCK_VECTORS <= count; at += HARK_BLOCK_VECTORS)
    hark_ridge_panel(mode, columns, HARK_BLOCK_VECTORS, p, (ptrdiff_t)at * HARK_LANES);
#if HARK_BLOCK_VECTORS == 4
  if (count - at == 3) {
    hark_ridge_panel(mode, columns, 3, p, (ptrdiff_t)at * HARK_LANES);
    return;
  }
  if (count - at == 2) {
    hark_ridge_panel(mode, columns, 2, p, (ptrdiff_t)at * HARK_LANES);
    return;
  }
#endif
  for (; at < count; at++) hark_ridge_panel(mode, columns, 1, p, (ptrdiff_t)at * HARK_LANES);
}

HARK_SIMD_NOINLINE void hark_ridge_store(const hark_ridge_product *p) { hark_ridge_lanes(HARK_RIDGE_STORE, false, p); }
HARK_SIMD_NOINLINE void hark_ridge_add(const hark_ridge_product *p) { hark_ridge_lanes(HARK_RIDGE_ADD, false, p); }
HARK_SIMD_NOINLINE void hark_ridge_add_columns(const hark_ridge_product *p) { hark_ridge_lanes(HARK_RIDGE_ADD, true, p); }
HARK_SIMD_NOINLINE void hark_ridge_less(const hark_ridge_product *p) { hark_ridge_lanes(HARK_RIDGE_LESS, false, p); }
HARK_SIMD_NOINLINE void hark_ridge_less_columns(const hark_ridge_product *p) { hark_ridge_lanes(HARK_RIDGE_LESS, true, p); }

/* C -= U'A: `rows` rows of C by the columns of a tile of the factor. */
HARK_SIMD void hark_ridge_update(const float *factor, const float *a, ptrdiff_t a_row, float *c, ptrdiff_t c_row, int rows, int width,
                                 const float *next) {
  const hark_ridge_product p = {.a = a,
                                .a_row = a_row,
                                .b = factor,
                                .b_row = 1,
                                .b_step = HARK_RIDGE_TILE,
                                .c = c,
                                .c_row = c_row,
                                .rows = rows,
                                .depth = HARK_RIDGE_TILE,
                                .width = width,
                                .next = next};
  hark_ridge_less_columns(&p);
}

/* Row i is needed in lanes from i - above on. Returns the first needed lane of the rows from `row` on, rounded down to whole vectors. */
HARK_SIMD int hark_ridge_first_lane(int row, int above) { return row > above ? (row - above) / HARK_LANES * HARK_LANES : 0; }

/* The same, for rows i in lanes from i - above on; lanes before may change. */
HARK_SIMD_NOINLINE void hark_ridge_update_above(const float *factor, const float *a, ptrdiff_t a_row, float *c, ptrdiff_t c_row, int width,
                                                int above) {
  for (int band = 0; band < HARK_RIDGE_TILE; band += HARK_RIDGE_ABOVE_ROWS) {
    const int lane = hark_ridge_first_lane(band, above);
    const hark_ridge_product p = {.a = a + lane,
                                  .a_row = a_row,
                                  .b = factor + band,
                                  .b_row = 1,
                                  .b_step = HARK_RIDGE_TILE,
                                  .c = c + band * c_row + lane,
                                  .c_row = c_row,
                                  .rows = HARK_RIDGE_ABOVE_ROWS,
                                  .depth = HARK_RIDGE_TILE,
                                  .width = width - lane};
    if (p.width <= 0) return;
    hark_ridge_lanes(HARK_RIDGE_LESS, true, &p);
  }
}

/* C -= U A. */
HARK_SIMD void hark_ridge_update_back(const float *factor, const float *a, ptrdiff_t a_row, float *c, ptrdiff_t c_row, int width,
                                      const float *next) {
  const hark_ridge_product p = {.a = a,
                                .a_row = a_row,
                                .b = factor,
                                .b_row = HARK_RIDGE_TILE,
                                .b_step = 1,
                                .c = c,
                                .c_row = c_row,
                                .rows = HARK_RIDGE_TILE,
                                .depth = HARK_RIDGE_TILE,
                                .width = width,
                                .next = next};
  hark_ridge_less(&p);
}

/* row -= factor other, and row *= factor. */
HARK_SIMD void hark_ridge_row_less(float *row, const float *other, float factor, int width) {
  const vf f = vf_set(-factor);
  for (int lane = 0; lane < width; lane += HARK_LANES) vf_store(row + lane, vf_fma(vf_load(other + lane), f, vf_load(row + lane)));
}
HARK_SIMD void hark_ridge_row_times(float *row, float factor, int width) {
  const vf f = vf_set(factor);
  for (int lane = 0; lane < width; lane += HARK_LANES) vf_store(row + lane, f * vf_load(row + lane));
}

/* Rows [g, g + HARK_RIDGE_GROUP) of C <- U'^-1 C, the rows before are done; vectors are a constant after inlining. */
HARK_SIMD void hark_ridge_solve_group(const int vectors, const float *factor, const float *reciprocal, int g, float *c, ptrdiff_t c_row) {
  vf x[HARK_RIDGE_GROUP][HARK_BLOCK_VECTORS];
  HARK_UNROLL
  for (int r = 0; r < HARK_RIDGE_GROUP; r++) {
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) x[r][m] = vf_zero();
  }
  const float *a = c, *b = factor + g;
  HARK_ROLLED
  for (int k = 0; k < g; k++, a += c_row, b += HARK_RIDGE_TILE) {
    vf av[HARK_BLOCK_VECTORS];
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) av[m] = vf_load(a + m * HARK_LANES);
    HARK_UNROLL
    for (int r = 0; r < HARK_RIDGE_GROUP; r++) {
      const vf bv = vf_set(b[r]);
      HARK_UNROLL
      for (int m = 0; m < vectors; m++) x[r][m] = vf_fma(av[m], bv, x[r][m]);
    }
  }
  float *to = c + g * c_row;
  HARK_UNROLL
  for (int r = 0; r < HARK_RIDGE_GROUP; r++) {
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) x[r][m] = vf_load(to + r * c_row + m * HARK_LANES) - x[r][m];
  }
  HARK_UNROLL
  for (int i = 0; i < HARK_RIDGE_GROUP; i++, b += HARK_RIDGE_TILE) {
    const vf gain = vf_set(reciprocal[g + i]);
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) {
      x[i][m] = gain * x[i][m];
      vf_store(to + i * c_row + m * HARK_LANES, x[i][m]);
    }
    HARK_UNROLL
    for (int r = i + 1; r < HARK_RIDGE_GROUP; r++) {
      const vf bv = vf_set(-b[r]);
      HARK_UNROLL
      for (int m = 0; m < vectors; m++) x[r][m] = vf_fma(x[i][m], bv, x[r][m]);
    }
  }
}

/* C <- U'^-1 C with a factored diagonal tile, for rows i in lanes from i - above on; lanes before may change. reciprocal: 1 / the tile's
 * diagonal. */
HARK_SIMD_NOINLINE void hark_ridge_solve_above(const float *factor, const float *reciprocal, float *c, ptrdiff_t c_row, int width,
                                               int above) {
  for (int g = 0; g < HARK_RIDGE_TILE; g += HARK_RIDGE_GROUP) {
    int lane = hark_ridge_first_lane(g, above);
    for (; lane + HARK_BLOCK_VECTORS * HARK_LANES <= width; lane += HARK_BLOCK_VECTORS * HARK_LANES)
      hark_ridge_solve_group(HARK_BLOCK_VECTORS, factor, reciprocal, g, c + lane, c_row);
#if HARK_BLOCK_VECTORS == 4
    for (; lane + 2 * HARK_LANES <= width; lane += 2 * HARK_LANES) hark_ridge_solve_group(2, factor, reciprocal, g, c + lane, c_row);
#endif
    for (; lane < width; lane += HARK_LANES) hark_ridge_solve_group(1, factor, reciprocal, g, c + lane, c_row);
  }
}
HARK_SIMD void hark_ridge_solve_tile(const float *factor, const float *reciprocal, float *c, ptrdiff_t c_row, int width) {
  hark_ridge_solve_above(factor, reciprocal, c, c_row, width, HARK_RIDGE_TILE);
}

/* C <- U^-1 C. */
HARK_SIMD_NOINLINE void hark_ridge_solve_back_tile(const float *factor, const float *reciprocal, float *c, ptrdiff_t c_row, int width) {
  for (int g = HARK_RIDGE_TILE - HARK_RIDGE_GROUP; g >= 0; g -= HARK_RIDGE_GROUP) {
    const int next = g + HARK_RIDGE_GROUP;
    const hark_ridge_product p = {.a = c + next * c_row,
                                  .a_row = c_row,
                                  .b = factor + g * HARK_RIDGE_TILE + next,
                                  .b_row = HARK_RIDGE_TILE,
                                  .b_step = 1,
                                  .c = c + g * c_row,
                                  .c_row = c_row,
                                  .rows = HARK_RIDGE_GROUP,
                                  .depth = HARK_RIDGE_TILE - next,
                                  .width = width};
    if (p.depth > 0) hark_ridge_lanes(HARK_RIDGE_LESS, false, &p);
    for (int i = next - 1; i >= g; i--) {
      hark_ridge_row_times(c + i * c_row, reciprocal[i], width);
      for (int r = g; r < i; r++) hark_ridge_row_less(c + r * c_row, c + i * c_row, factor[r * HARK_RIDGE_TILE + i], width);
    }
  }
}

/* Rows i in [g, g + HARK_RIDGE_GROUP) of a diagonal tile, whose first `g` rows are rows of U: subtracts the sums over those. */
HARK_SIMD void hark_ridge_factor_group(float *c, int g) {
  const int lane = g / HARK_LANES * HARK_LANES;
  const hark_ridge_product p = {.a = c + lane,
                                .a_row = HARK_RIDGE_TILE,
                                .b = c + g,
                                .b_row = 1,
                                .b_step = HARK_RIDGE_TILE,
                                .c = c + g * HARK_RIDGE_TILE + lane,
                                .c_row = HARK_RIDGE_TILE,
                                .rows = HARK_RIDGE_GROUP,
                                .depth = g,
                                .width = HARK_RIDGE_TILE - lane};
  if (g > 0) hark_ridge_lanes(HARK_RIDGE_LESS, true, &p);
}

#endif
