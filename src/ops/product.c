/* product.c - the matrix product of the definitions: C = op(A) op(B) + 1 bias^T, for f32 and f64 storage, sums in double.
 *
 * C [m, n], op(A) [m, k], op(B) [k, n], each a batch of contiguous matrices. 2 m n k operations per matrix. A tile of C is one piece of
 * work; its sum runs over k in increasing order for any number of threads. Tiles of A and B are first copied to doubles, which handles
 * transposition and storage. So the inner loop is one plain loop over contiguous numbers. Error of an f64 result: k eps sum |a b|; of an
 * f32 result: its rounding to f32.
 */
#include "ops/definition.h"

/* Three tiles of doubles, 8 KiB each, stay together in a 32 KiB first-level cache. TILE is a multiple of the unrolling in multiply_tile. */
#define TILE 32
#define UNROLL 4

typedef struct tile_work {
  const hark_definition_product *product;
  int64_t tiles_m, tiles_n;
} tile_work;

/* to[r, c] = matrix[first_row + r, first_column + c], or of its transpose, whose stored rows have `length` numbers; zero outside rows x
 * columns. */
static void copy_tile(double to[TILE][TILE], hark_numbers matrix, bool transpose, int64_t length, int64_t first_row, int64_t rows,
                      int64_t first_column, int64_t columns) {
  for (int64_t r = 0; r < TILE; r++) {
    for (int64_t c = 0; c < TILE; c++) to[r][c] = 0;
  }
  if (transpose) {
    for (int64_t c = 0; c < columns; c++) {
      for (int64_t r = 0; r < rows; r++) to[r][c] = hark_get(matrix, (first_column + c) * length + first_row + r);
    }
  } else {
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t c = 0; c < columns; c++) to[r][c] = hark_get(matrix, (first_row + r) * length + first_column + c);
    }
  }
}

/* c[0..rows, :] += a[0..rows, 0..inner] b[0..inner, :] */
static void multiply_tile(double c[TILE][TILE], const double a[TILE][TILE], const double b[TILE][TILE], int64_t rows, int64_t inner) {
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t k = 0; k < inner; k += UNROLL) {
      const double a0 = a[i][k], a1 = a[i][k + 1], a2 = a[i][k + 2], a3 = a[i][k + 3];
      for (int64_t j = 0; j < TILE; j++) c[i][j] += (a0 * b[k][j] + a1 * b[k + 1][j]) + (a2 * b[k + 2][j] + a3 * b[k + 3][j]);
    }
  }
}

static void run_tile(void *data, int64_t index, int worker) {
  (void)worker;
  const tile_work *work = data;
  const hark_definition_product *p = work->product;
  const int64_t matrix = index / (work->tiles_m * work->tiles_n), tile = index % (work->tiles_m * work->tiles_n);
  const int64_t row = tile / work->tiles_n * TILE, column = tile % work->tiles_n * TILE;
  const int64_t rows = hark_min(TILE, p->m - row), columns = hark_min(TILE, p->n - column);
  const hark_numbers a = hark_numbers_from(p->a, matrix * p->m * p->k);
  const hark_numbers b = hark_numbers_from(p->b, matrix * p->k * p->n);
  const hark_numbers c = hark_numbers_from(p->c, matrix * p->m * p->n);

  double tile_a[TILE][TILE], tile_b[TILE][TILE], tile_c[TILE][TILE] = {{0}};
  for (int64_t k = 0; k < p->k; k += TILE) {
    const int64_t inner = hark_min(TILE, p->k - k);
    copy_tile(tile_a, a, p->transpose_a, p->transpose_a ? p->m : p->k, row, rows, k, inner);
    copy_tile(tile_b, b, p->transpose_b, p->transpose_b ? p->k : p->n, k, inner, column, columns);
    multiply_tile(tile_c, (const double(*)[TILE])tile_a, (const double(*)[TILE])tile_b, rows, inner);
  }
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) {
      const double bias = p->bias.data == NULL ? 0 : hark_get(p->bias, column + j);
      hark_give(c, (row + i) * p->n + column + j, tile_c[i][j] + bias);
    }
  }
}

void hark_product(hark_context *context, const hark_definition_product *product) {
  tile_work work = {.product = product, .tiles_m = hark_ceil_div(product->m, TILE), .tiles_n = hark_ceil_div(product->n, TILE)};
  const int64_t pieces = product->batch * work.tiles_m * work.tiles_n;
  if (pieces > 0) hark_parallel_for(context, pieces, run_tile, &work);
}
