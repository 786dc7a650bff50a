/* kernel_ridge_factor.c - the factorisation of kernel ridge attention and solves with it, in tiles of 64 x 64: see kernel_ridge_tile.h.
 *
 *     U'U = M,   X = U'^-1 V        tile (r, j) <- M_rj - sum over p < r of U_pr' U_pj;  on the diagonal its factor, else U_rr'^-1 of it
 *
 * The values are a column of tiles more. Rows of tiles are taken RIDGE_BAND at a time and the rows above them RIDGE_ABOVE at a time, so that a tile
 * that was read serves for several; every sum goes from the first p to the last, whatever is taken together and by however many threads.
 */
#include "kernel_ridge_tile.h"

/* A diagonal tile of M, that all tiles above it have been taken from, becomes its factor. */
static void factor_diagonal(const ridge_tiles *h, int64_t tile, float *c) {
  for (int g = 0; g < HARK_RIDGE_TILE; g += HARK_RIDGE_GROUP) {
    hark_ridge_factor_group(c, g);
    for (int i = g; i < g + HARK_RIDGE_GROUP; i++) {
      const int64_t key = tile * HARK_RIDGE_TILE + i;
      float *row = c + i * HARK_RIDGE_TILE;
      const double pivot = h->seen[key] == 0 ? 1
                                             : hark_ridge_pivot(h->record, h->system, h->sequence->key_row + key, (double)row[i],
                                                                (double)h->reciprocal[key], h->is.lambda, HARK_RIDGE_PIVOT_F32);
      const int lane = i / HARK_LANES * HARK_LANES;
      h->reciprocal[key] = (float)(1 / sqrt(pivot));
      hark_ridge_row_times(row + lane, h->reciprocal[key], HARK_RIDGE_TILE - lane);
      row[i] = (float)sqrt(pivot);
      for (int r = i + 1; r < g + HARK_RIDGE_GROUP; r++)
        hark_ridge_row_less(c + r * HARK_RIDGE_TILE + lane, row + lane, row[r], HARK_RIDGE_TILE - lane);
    }
  }
}

/* C <- U'^-1 C with the diagonal tile of row i. */
static void close_rows(const ridge_tiles *h, int64_t i, float *c, ptrdiff_t c_row, int width) {
  hark_ridge_solve_tile(h->factor + ridge_tile(h, i, i), h->reciprocal + i * HARK_RIDGE_TILE, c, c_row, width);
}

/* Rows of tile i less what those above account for. */
static void update_rows(const ridge_tiles *h, int64_t i, float *x, ptrdiff_t x_row, int width) {
  for (int64_t p = 0; p < i; p++)
    hark_ridge_update(h->factor + ridge_tile(h, p, i), x + p * HARK_RIDGE_TILE * x_row, x_row, x + i * HARK_RIDGE_TILE * x_row, x_row,
                      width);
}

/* Some rows of tiles are factorised together, [i, i + rows): a tile above them is read once for all of them. Column `tiles` is the values. */
typedef struct factor_band {
  const ridge_tiles *h;
  int64_t i, rows, columns; /* columns of a task */
} factor_band;

/* Tile (r, j), with its columns and their number. */
static float *band_tile(const ridge_tiles *h, int64_t r, int64_t j, ptrdiff_t *row, int *width) {
  *row = j < h->tiles ? HARK_RIDGE_TILE : h->dvp;
  *width = (int)*row;
  return j < h->tiles ? h->factor + ridge_tile(h, r, j) : h->solved + r * HARK_RIDGE_TILE * h->dvp;
}

/* Tile (r, j) -= U(p, r)' U(p, j). */
static void band_update(const ridge_tiles *h, int64_t p, int64_t r, int64_t j) {
  ptrdiff_t row;
  int width;
  const float *above = band_tile(h, p, j, &row, &width);
  hark_ridge_update(h->factor + ridge_tile(h, p, r), above, row, band_tile(h, r, j, &row, &width), row, width);
}

/* A tile of M; the diagonal entries stand in `reciprocal` until they have their pivots. */
static void band_fill(const ridge_tiles *h, int64_t r, int64_t j) {
  float *c = h->factor + ridge_tile(h, r, j);
  HARK_ISA(hark_cpu_ridge_key_gram)(h, r, j, c);
  for (int k = 0; r == j && k < HARK_RIDGE_TILE; k++) {
    float *entry = c + k * (HARK_RIDGE_TILE + 1);
    *entry = h->seen[r * HARK_RIDGE_TILE + k] == 0 ? 1.0f : *entry + (float)h->is.lambda;
    h->reciprocal[r * HARK_RIDGE_TILE + k] = *entry;
  }
}

/* The band's tiles of columns [first, end) less what the rows above the band account for, a few of those at a time: they stay in the cache. */
static void band_update_columns(const factor_band *band, int64_t first, int64_t end) {
  const ridge_tiles *h = band->h;
  for (int64_t j = first; j < end && j < h->tiles; j++)
    for (int64_t r = band->i; r < band->i + band->rows && r <= j; r++) band_fill(h, r, j);
  for (int64_t above = 0; above < band->i; above += RIDGE_ABOVE)
    for (int64_t j = first; j < end; j++)
      for (int64_t p = above; p < hark_min(above + RIDGE_ABOVE, band->i); p++)
        for (int64_t r = band->i; r < band->i + band->rows && r <= j; r++) band_update(h, p, r, j);
}

/* The rest: what the band's own rows account for, and the solve or the factor. */
static void band_close_columns(const factor_band *band, int64_t first, int64_t end) {
  const ridge_tiles *h = band->h;
  for (int64_t j = first; j < end; j++)
    for (int64_t r = band->i; r < band->i + band->rows && r <= j; r++) {
      ptrdiff_t row;
      int width;
      float *c = band_tile(h, r, j, &row, &width);
      for (int64_t p = band->i; p < r; p++) band_update(h, p, r, j);
      if (r == j)
        factor_diagonal(h, r, c);
      else
        close_rows(h, r, c, row, width);
    }
}

/* Task 0 has the band's own columns, and closes them; the others some of those behind. */
static void band_first_part(void *data, int64_t index, int worker) {
  const factor_band *band = data;
  const int64_t behind = band->i + band->rows, first = behind + (index - 1) * band->columns;
  (void)worker;
  if (index > 0) {
    band_update_columns(band, first, hark_min(first + band->columns, band->h->tiles + 1));
    return;
  }
  band_update_columns(band, band->i, behind);
  band_close_columns(band, band->i, behind);
}

static void band_second_part(void *data, int64_t index, int worker) {
  const factor_band *band = data;
  const int64_t first = band->i + band->rows + index * band->columns;
  (void)worker;
  band_close_columns(band, first, hark_min(first + band->columns, band->h->tiles + 1));
}

void HARK_ISA(hark_cpu_ridge_factorise)(const ridge_tiles *h) {
  const bool shared = h->context != NULL;
  const int64_t most = shared && h->tiles < RIDGE_LONG ? 1 : RIDGE_BAND;
  for (int64_t i = 0; i < h->tiles; i += most) {
    const int64_t rows = hark_min(most, h->tiles - i), behind = h->tiles + 1 - i - rows;
    factor_band band = {h, i, rows, shared ? (most == 1 ? 1 : RIDGE_BAND) : behind};
    if (!shared) {
      band_update_columns(&band, i, h->tiles + 1);
      band_close_columns(&band, i, h->tiles + 1);
      continue;
    }
    const int64_t parts = hark_ceil_div(behind, band.columns);
    hark_parallel_for(h->context, 1 + parts, band_first_part, &band);
    hark_parallel_for(h->context, parts, band_second_part, &band);
  }
}

static void solve_columns(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width) {
  for (int64_t i = 0; i < tiles; i++) {
    update_rows(h, i, x, x_row, width);
    close_rows(h, i, x + i * HARK_RIDGE_TILE * x_row, x_row, width);
  }
}

static void solve_columns_back(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width) {
  for (int64_t i = tiles - 1; i >= 0; i--) {
    float *row = x + i * HARK_RIDGE_TILE * x_row;
    for (int64_t p = i + 1; p < tiles; p++)
      hark_ridge_update_back(h->factor + ridge_tile(h, i, p), x + p * HARK_RIDGE_TILE * x_row, x_row, row, x_row, width);
    hark_ridge_solve_back_tile(h->factor + ridge_tile(h, i, i), h->reciprocal + i * HARK_RIDGE_TILE, row, x_row, width);
  }
}

/* A solve whose columns are spread over the threads. */
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
