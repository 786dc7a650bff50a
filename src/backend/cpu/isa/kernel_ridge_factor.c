/* kernel_ridge_factor.c - the factor of one head of kernel ridge attention, and solves with it, in tiles of 64 x 64.
 *
 *     M = kappa(K, K) + lambda I + diag(noise) = U'U,   X = U'^-1 V,   Z = U'^-1 Z,   X <- U^-1 X
 *
 * Products are C -= A'B of whole tiles (kernel_ridge_products.h). An element's sum has one order, whatever the number of threads and the
 * blocks. Cost in multiply-adds: factor n^3 / 6, X n^2 dv / 2, Z n^2 / 2 for each column. The factor is one triangle of tiles, 2 n (n + 64)
 * bytes.
 */
#include "core/cancel.h"
#include "kernel_ridge_tile.h"

/* Rows of tiles, and columns, that are factorised together: 256 KiB. Threads share such squares from RIDGE_LEAST_SHARED_SQUARES tiles of
 * keys on, or from the number that gives every thread at least two at the first rows. */
#define RIDGE_SQUARE 4
#define RIDGE_LEAST_SHARED_SQUARES 32
static int64_t least_shared_squares(const ridge_tiles *h) {
  return hark_max(RIDGE_LEAST_SHARED_SQUARES, 2 * RIDGE_SQUARE * hark_workers(h->context));
}

/* Factorises a diagonal tile of M, updated with all tiles above it. h->reciprocal contains the diagonal of M, then the reciprocals. */
static void factor_diagonal(const ridge_tiles *h, int64_t tile) {
  float *c = h->factor + ridge_tile(h, tile, tile);
  for (int g = 0; g < HARK_RIDGE_TILE; g += HARK_RIDGE_GROUP) {
    hark_ridge_factor_group(c, g);
    for (int i = g; i < g + HARK_RIDGE_GROUP; i++) {
      const int64_t key = tile * HARK_RIDGE_TILE + i;
      float *row = c + i * HARK_RIDGE_TILE;
      const double added = h->added != NULL ? (double)h->added[key] : h->is.lambda;
      const double pivot = h->seen[key] == 0 ? 1
                                             : hark_ridge_pivot(h->record, h->system, h->sequence->key_row + key, (double)row[i],
                                                                (double)h->reciprocal[key], added, HARK_RIDGE_PIVOT_F32);
      const int lane = i / HARK_LANES * HARK_LANES;
      h->reciprocal[key] = (float)(1 / sqrt(pivot));
      hark_ridge_row_times(row + lane, h->reciprocal[key], HARK_RIDGE_TILE - lane);
      row[i] = (float)sqrt(pivot);
      for (int r = i + 1; r < g + HARK_RIDGE_GROUP; r++)
        hark_ridge_row_less(c + r * HARK_RIDGE_TILE + lane, row + lane, row[r], HARK_RIDGE_TILE - lane);
    }
  }
}

/* Tile (i, j) of M; its diagonal is copied to h->reciprocal. */
static void fill_tile(const ridge_tiles *h, int64_t i, int64_t j) {
  float *c = h->factor + ridge_tile(h, i, j);
  HARK_ISA(hark_cpu_ridge_key_gram)(h, i, j, c, NULL);
  for (int r = 0; i == j && r < HARK_RIDGE_TILE; r++) {
    const int64_t key = i * HARK_RIDGE_TILE + r;
    float *entry = c + r * (HARK_RIDGE_TILE + 1);
    *entry = h->seen[key] == 0 ? 1.0f : *entry + (h->added != NULL ? h->added[key] : (float)h->is.lambda);
    h->reciprocal[key] = *entry;
  }
}

/* Rows of tile i in which there are keys, in whole vectors: the others stay zero in every column but their own, where the factor is 1. */
static int used_rows(const ridge_tiles *h, int64_t i) { return (int)hark_padded(hark_min(HARK_RIDGE_TILE, h->keys - i * HARK_RIDGE_TILE)); }

/* Subtracts the contribution of row p from tile (i, j) of M. next: see hark_ridge_product. */
static void update_tile(const ridge_tiles *h, int64_t p, int64_t i, int64_t j, const float *next) {
  const float *left = h->factor + ridge_tile(h, p, i), *right = h->factor + ridge_tile(h, p, j);
  float *c = h->factor + ridge_tile(h, i, j);
  if (i == j)
    hark_ridge_update_above(left, right, HARK_RIDGE_TILE, c, HARK_RIDGE_TILE, used_rows(h, j), 0);
  else
    hark_ridge_update(left, right, HARK_RIDGE_TILE, c, HARK_RIDGE_TILE, HARK_RIDGE_TILE, used_rows(h, j), next);
}

/* C <- U'^-1 C with the diagonal tile of row i. */
static void close_rows(const ridge_tiles *h, int64_t i, float *c, ptrdiff_t c_row, int width) {
  hark_ridge_solve_tile(h->factor + ridge_tile(h, i, i), h->reciprocal + i * HARK_RIDGE_TILE, c, c_row, width);
}

/* Subtracts the contributions of tiles [from, end) from the rows of tile i. */
static void update_rows(const ridge_tiles *h, int64_t from, int64_t end, int64_t i, float *x, ptrdiff_t x_row, int width) {
  for (int64_t p = from; p < end; p++)
    hark_ridge_update(h->factor + ridge_tile(h, p, i), x + p * HARK_RIDGE_TILE * x_row, x_row, x + i * HARK_RIDGE_TILE * x_row, x_row,
                      used_rows(h, i), width, p + 1 < end ? h->factor + ridge_tile(h, p + 1, i) : NULL);
}

static float *solved_rows(const ridge_tiles *h, int64_t i) { return h->solved + i * HARK_RIDGE_TILE * h->dvp; }

/* Rows [first, end) of tiles. They are processed in blocks of as many columns: block 0 is on the diagonal, the last one is the values.
 *
 *     p < first:   . . . b b b b a a a a      a square of C stays in the cache of the core, which loads every tile above it, a and b,
 *     first:             d d d d C C C C      once for as many updates as the square is wide.
 *                          d d d C C C C      An element's sum has one order, whatever the width.
 *                            d d C C C C
 *                              d C C C C
 */
typedef struct factor_rows {
  const ridge_tiles *h;
  int64_t first, end, width;
} factor_rows;

static bool factor_columns(const factor_rows *rows, int64_t index, int64_t *first, int64_t *end) {
  *first = rows->first + index * rows->width;
  *end = hark_min(*first + rows->width, rows->h->tiles);
  return *first < rows->h->tiles;
}

/* A tile of row p to prefetch, or NULL. Every second update of the previous row prefetches one: first the tiles above the rows, then those
 * above columns [first, end). Updates of tiles on the diagonal do not prefetch, so that some tiles are left out: it is a hint. */
static const float *next_tile(const factor_rows *rows, int64_t p, int64_t first, int64_t end, int64_t update) {
  const int64_t above = rows->end - rows->first, index = update / 2 < above ? rows->first + update / 2 : first + update / 2 - above;
  return update % 2 == 0 && p < rows->first && index < end ? rows->h->factor + ridge_tile(rows->h, p, index) : NULL;
}

/* Computes a block of M and subtracts the contributions of the rows before `first`. */
static void update_block(void *data, int64_t index, int worker) {
  const factor_rows *rows = data;
  const ridge_tiles *h = rows->h;
  int64_t first, end;
  (void)worker;
  if (!factor_columns(rows, index, &first, &end)) {
    for (int64_t i = rows->first; i < rows->end; i++) update_rows(h, 0, rows->first, i, h->solved, h->dvp, h->dvp);
    return;
  }
  for (int64_t j = first; j < end; j++)
    for (int64_t i = rows->first; i < rows->end && i <= j; i++) fill_tile(h, i, j);
  for (int64_t p = 0; p < rows->first; p++) {
    int64_t count = 0;
    for (int64_t j = first; j < end; j++)
      for (int64_t i = rows->first; i < rows->end && i <= j; i++) update_tile(h, p, i, j, next_tile(rows, p + 1, first, end, count++));
  }
}

/* Completes a block of the factor; the diagonal block must be completed first. */
static void close_block(void *data, int64_t index, int worker) {
  const factor_rows *rows = data;
  const ridge_tiles *h = rows->h;
  int64_t first, end;
  (void)worker;
  if (!factor_columns(rows, index, &first, &end)) {
    for (int64_t i = rows->first; i < rows->end; i++) {
      update_rows(h, rows->first, i, i, h->solved, h->dvp, h->dvp);
      close_rows(h, i, solved_rows(h, i), h->dvp, h->dvp);
    }
    return;
  }
  for (int64_t j = first; j < end; j++)
    for (int64_t i = rows->first; i < rows->end && i <= j; i++) {
      for (int64_t p = rows->first; p < i; p++) update_tile(h, p, i, j, NULL);
      if (i == j)
        factor_diagonal(h, i);
      else
        close_rows(h, i, h->factor + ridge_tile(h, i, j), HARK_RIDGE_TILE, used_rows(h, j));
    }
}

static void open_block(void *data, int64_t index, int worker) {
  update_block(data, index, worker);
  if (index == 0) close_block(data, index, worker);
}

static void close_other(void *data, int64_t index, int worker) { close_block(data, index + 1, worker); }

void HARK_ISA(hark_cpu_ridge_factorise)(const ridge_tiles *h) {
  /* one thread computes the diagonal's block: one row if threads share a short head */
  const int64_t width = h->context != NULL && h->tiles < least_shared_squares(h) ? 1 : RIDGE_SQUARE;
  for (int64_t first = 0; first < h->tiles; first += width) {
    factor_rows rows = {h, first, hark_min(first + width, h->tiles), width};
    const int64_t others = hark_ceil_div(h->tiles - first, width);
    if (h->context != NULL) {
      hark_parallel_for(h->context, others + 1, open_block, &rows);
      hark_parallel_for(h->context, others, close_other, &rows);
      continue;
    }
    for (int64_t index = 0; index <= others && !hark_cancel_now(h->memory->context); index++) {
      update_block(&rows, index, 0);
      close_block(&rows, index, 0);
    }
  }
}

static void solve_columns(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width) {
  for (int64_t i = 0; i < tiles; i++) {
    update_rows(h, 0, i, i, x, x_row, width);
    close_rows(h, i, x + i * HARK_RIDGE_TILE * x_row, x_row, width);
  }
}

static void solve_columns_back(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width) {
  for (int64_t i = tiles - 1; i >= 0; i--) {
    float *row = x + i * HARK_RIDGE_TILE * x_row;
    for (int64_t p = i + 1; p < tiles; p++)
      hark_ridge_update_back(h->factor + ridge_tile(h, i, p), x + p * HARK_RIDGE_TILE * x_row, x_row, row, x_row, width,
                             p + 1 < tiles ? h->factor + ridge_tile(h, i, p + 1) : NULL);
    hark_ridge_solve_back_tile(h->factor + ridge_tile(h, i, i), h->reciprocal + i * HARK_RIDGE_TILE, row, x_row, width);
  }
}

/* A solve whose columns are divided among the threads. */
typedef struct solve_task {
  const ridge_tiles *h;
  void (*solve)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width);
  int64_t tiles;
  float *x;
  ptrdiff_t x_row;
  int width;
} solve_task;

static void solve_block(void *data, int64_t index, int worker) {
  const solve_task *task = data;
  const int first = (int)index * RIDGE_BLOCK_LANES;
  (void)worker;
  task->solve(task->h, task->tiles, task->x + first, task->x_row, (int)hark_min(RIDGE_BLOCK_LANES, task->width - first));
}

static void solve_in_blocks(solve_task task) {
  if (task.h->context == NULL)
    task.solve(task.h, task.tiles, task.x, task.x_row, task.width);
  else
    hark_parallel_for(task.h->context, hark_ceil_div(task.width, RIDGE_BLOCK_LANES), solve_block, &task);
}

void HARK_ISA(hark_cpu_ridge_solve)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width) {
  solve_in_blocks((solve_task){h, solve_columns, tiles, x, x_row, width});
}

void HARK_ISA(hark_cpu_ridge_solve_back)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width) {
  solve_in_blocks((solve_task){h, solve_columns_back, tiles, x, x_row, width});
}

void HARK_ISA(hark_cpu_ridge_solve_rows)(const ridge_tiles *h, int64_t tile, float *z, ptrdiff_t z_row, int width, int above) {
  float *c = z + tile * HARK_RIDGE_TILE * z_row;
  const float *diagonal = h->factor + ridge_tile(h, tile, tile), *reciprocal = h->reciprocal + tile * HARK_RIDGE_TILE;
  if (above >= HARK_RIDGE_TILE) {
    update_rows(h, 0, tile, tile, z, z_row, width);
    hark_ridge_solve_tile(diagonal, reciprocal, c, z_row, width);
    return;
  }
  for (int64_t p = 0; p < tile; p++)
    hark_ridge_update_above(h->factor + ridge_tile(h, p, tile), z + p * HARK_RIDGE_TILE * z_row, z_row, c, z_row, width, above);
  hark_ridge_solve_above(diagonal, reciprocal, c, z_row, width, above);
}

void HARK_ISA(hark_cpu_ridge_hide)(int64_t tile, int64_t first, float *z, ptrdiff_t z_row, int width) {
  for (int i = 0; i < HARK_RIDGE_TILE; i++) {
    const int64_t hidden = hark_max(0, hark_min(width, tile * HARK_RIDGE_TILE + i - first)); /* lanes before the key's position */
    if (hidden > 0) memset(z + i * z_row, 0, (size_t)hidden * sizeof *z);
  }
}
