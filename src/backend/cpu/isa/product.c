/* product.c - the matrix product of one thread: C = alpha op(A) op(B) + beta C + 1 bias^T, and row sums of op(A).
 *
 * C [m, n], op(A) [m, k], op(B) [k, n], row-major. 2 m n k operations. The product is divided as in Goto and van de Geijn, "Anatomy of
 * high-performance matrix multiplication" (TOMS 34, 2008), with the roles of A and B exchanged because our C is row-major:
 *
 *     for every slice of k (BLOCK_INNER)                       a register tile:          <- TILE_COLUMNS ->
 *       for every block of columns (BLOCK_COLUMNS)               TILE_ROWS  | c[i][v] += a[i] * b[v] |
 *         pack op(B)'s block into panels of TILE_COLUMNS: it stays in the second-level cache
 *         for every TILE_ROWS rows of op(A)
 *           pack them into a panel that stays in the first-level cache
 *           for every panel of B: the register tile, while the next rows of A are fetched
 *
 * The sum over k runs in an order that depends on k alone: cutting C into pieces does not change a bit of it.
 */
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/simd.h"

/* Register tiles: accumulators, one row of B and one broadcast of A fill the registers (HARK_VECTOR_REGISTERS). Remaining rows use a tile
 * of fewer steps. TILE_ROWS is at most HARK_LANES (or a multiple): see pack_transposed(). */
#if HARK_LANES == 16
#define TILE_ROWS 12
#define TILE_STEP 4
#define TILE_VECTORS 2
#elif HARK_LANES == 8
#define TILE_ROWS 6
#define TILE_STEP 2
#define TILE_VECTORS 2
#elif HARK_VECTOR_REGISTERS == 32 /* NEON */
#define TILE_ROWS 8
#define TILE_STEP 4
#define TILE_VECTORS 3
#else
#define TILE_ROWS 4
#define TILE_STEP 2
#define TILE_VECTORS 3
#endif
#define TILE_COLUMNS (TILE_VECTORS * HARK_LANES)

/* A panel of rows is packed only for at least so many panels of columns. With fewer, the rows are read without packing, if their stride
 * does not exceed DIRECT_STRIDE: longer strides would use few sets of the cache. */
#define PANELS_THAT_PAY 5
#define DIRECT_STRIDE 512

#define BLOCK_INNER 384
#define LINE_FLOATS 16 /* a cache line */
#define BLOCK_COLUMNS 512

/* Packing writes whole vectors: up to this many floats after a block's end. */
#define SLACK HARK_LANES
#define PACKED_A_FLOATS (BLOCK_INNER * TILE_ROWS + SLACK)
#define PACKED_B_FLOATS (BLOCK_INNER * (BLOCK_COLUMNS + TILE_COLUMNS) + SLACK)

/* How a tile's sums are stored. */
typedef struct update {
  float alpha;
  float beta;        /* 0: C is not read */
  const float *bias; /* of the tile's first column, or NULL */
} update;

HARK_SIMD vf updated(const update *u, vf sum, vf before, vf bias) {
  vf result = vf_set(u->alpha) * sum + bias;
  if (u->beta != 0) result = result + vf_set(u->beta) * before;
  return result;
}

/* c[0..rows, :] <- updated a b; element (i, p) of a is at i a_row + p a_step, b [inner, ldb]. The callers pass the number of rows as a
 * constant. */
HARK_SIMD void multiply(const int rows, int64_t inner, const float *a, int64_t a_row, int64_t a_step, const float *b, int64_t ldb, float *c,
                        int64_t ldc, const update *u) {
  vf sum[TILE_ROWS][TILE_VECTORS];
  HARK_UNROLL
  for (int i = 0; i < rows; i++) {
    HARK_UNROLL
    for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] = vf_zero();
  }
  HARK_ROLLED
  for (int64_t p = 0; p < inner; p++) {
    vf row[TILE_VECTORS];
    HARK_UNROLL
    for (int v = 0; v < TILE_VECTORS; v++) row[v] = vf_load(b + v * HARK_LANES);
    HARK_UNROLL
    for (int i = 0; i < rows; i++) {
      const vf left = vf_set(a[i * a_row]);
      HARK_UNROLL
      for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] = vf_fma(left, row[v], sum[i][v]);
    }
    a += a_step;
    b += ldb;
  }
  HARK_UNROLL
  for (int v = 0; v < TILE_VECTORS; v++) {
    const vf bias = u->bias != NULL ? vf_load(u->bias + v * HARK_LANES) : vf_zero();
    HARK_UNROLL
    for (int i = 0; i < rows; i++) {
      float *at = c + i * ldc + v * HARK_LANES;
      vf_store(at, updated(u, sum[i][v], u->beta != 0 ? vf_load(at) : vf_zero(), bias));
    }
  }
}

/* One function for each number of steps, so that the compiler knows the accumulators of each: for a panel, and for unpacked rows. */
typedef void tile_function(int64_t inner, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, const update *u);

#define TILE_FUNCTIONS(steps)                                                                                                              \
  HARK_SIMD_NOINLINE void multiply_##steps(int64_t inner, const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc, \
                                           const update *u) {                                                                              \
    (void)lda;                                                                                                                             \
    multiply((steps)*TILE_STEP, inner, a, 1, TILE_ROWS, b, ldb, c, ldc, u);                                                                \
  }                                                                                                                                        \
  HARK_SIMD_NOINLINE void multiply_rows_##steps(int64_t inner, const float *a, int64_t lda, const float *b, int64_t ldb, float *c,         \
                                                int64_t ldc, const update *u) {                                                            \
    multiply((steps)*TILE_STEP, inner, a, lda, 1, b, ldb, c, ldc, u);                                                                      \
  }

TILE_FUNCTIONS(1)
TILE_FUNCTIONS(2)
#if TILE_ROWS > 2 * TILE_STEP
TILE_FUNCTIONS(3)
static tile_function *const multiply_steps[2][3] = {{multiply_1, multiply_2, multiply_3},
                                                    {multiply_rows_1, multiply_rows_2, multiply_rows_3}};
#else
static tile_function *const multiply_steps[2][2] = {{multiply_1, multiply_2}, {multiply_rows_1, multiply_rows_2}};
#endif

/* A tile of any size up to TILE_ROWS x TILE_COLUMNS. lda 0: `a` is a panel, which has whole steps of rows. */
static void multiply_tile(int64_t rows, int64_t columns, int64_t inner, const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                          int64_t ldc, const update *u) {
  const int steps = (int)((rows + TILE_STEP - 1) / TILE_STEP);
  tile_function *const run = multiply_steps[lda != 0][steps - 1];
  if (rows == steps * TILE_STEP && columns == TILE_COLUMNS) {
    run(inner, a, lda, b, ldb, c, ldc, u);
    return;
  }
  float whole[TILE_ROWS * TILE_COLUMNS];
  const update plain = {.alpha = 1};
  run(inner, a, lda, b, ldb, whole, TILE_COLUMNS, &plain);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j += HARK_LANES) {
      const int count = (int)(columns - j < HARK_LANES ? columns - j : HARK_LANES);
      const vf before = u->beta != 0 ? vf_load_part(c + i * ldc + j, count) : vf_zero();
      const vf bias = u->bias != NULL ? vf_load_part(u->bias + j, count) : vf_zero();
      vf_store_part(c + i * ldc + j, updated(u, vf_load(whole + i * TILE_COLUMNS + j), before, bias), count);
    }
}

/* to[p, i] = from[i ld + p] for i < count, p < inner; zero for count <= i < width. Rows of `to` have `width` floats. */
HARK_SIMD void pack_transposed(const int width, float *to, const float *from, int64_t ld, int64_t count, int64_t inner) {
  for (int first = 0; first < width; first += HARK_LANES) {
    const int64_t here = count - first < HARK_LANES ? count - first : HARK_LANES;
    for (int64_t p = 0; p < inner; p += HARK_LANES) {
      const int depth = (int)(inner - p < HARK_LANES ? inner - p : HARK_LANES);
      vf block[HARK_LANES];
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++) block[i] = vf_zero();
      const float *at = from + first * ld + p;
      if (depth == HARK_LANES) {
        HARK_UNROLL
        for (int i = 0; i < HARK_LANES && i < width; i++)
          if (i < here) block[i] = vf_load(at + i * ld);
      } else {
        HARK_UNROLL
        for (int i = 0; i < HARK_LANES && i < width; i++)
          if (i < here) block[i] = vf_load_part(at + i * ld, depth);
      }
      vf_transpose(block);
      /* In increasing order: if the width is not a multiple of the lanes, the next row overwrites a row's surplus. */
      float *out = to + p * width + first;
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++)
        if (i < depth) vf_store(out + i * width, block[i]);
    }
  }
}

/* Panels of `width` columns each from contiguous rows: panel[j][p, i] = from[p ld + j width + i], zero beyond `count` columns. Row after
 * row, because memory is fastest in that order. */
HARK_SIMD void pack_rows(const int width, float *to, const float *from, int64_t ld, int64_t count, int64_t inner) {
  const int64_t whole = count / width * width;
  for (int64_t p = 0; p < inner; p++) {
    const float *in = from + p * ld;
    float *out = to + p * width;
    for (int64_t j = 0; j < whole; j += width, out += inner * width) memcpy(out, in + j, (size_t)width * sizeof(float));
    if (whole < count) {
      for (int64_t i = whole; i < count; i++) out[i - whole] = in[i];
      for (int64_t i = count; i < whole + width; i++) out[i - whole] = 0;
    }
  }
}

/* sums[i] += sum over p of panel[p, i]; separate sums for several p, because additions to one sum wait for each other. */
static void add_panel_sums(float *sums, const float *panel, int64_t rows, int64_t inner) {
  enum { APART = 4 };
  float slice[APART * TILE_ROWS] = {0};
  int64_t p = 0;
  for (; p + APART <= inner; p += APART)
    for (int i = 0; i < APART * TILE_ROWS; i++) slice[i] += panel[p * TILE_ROWS + i];
  for (; p < inner; p++)
    for (int i = 0; i < TILE_ROWS; i++) slice[i] += panel[p * TILE_ROWS + i];
  for (int64_t i = 0; i < rows; i++) sums[i] += (slice[i] + slice[TILE_ROWS + i]) + (slice[2 * TILE_ROWS + i] + slice[3 * TILE_ROWS + i]);
}

/* Rows [row, row + rows) of op(A), at most TILE_ROWS. */
static void pack_a(const hark_cpu_product *x, float *to, int64_t row, int64_t rows, int64_t first, int64_t inner) {
  if (x->transpose_a)
    pack_rows(TILE_ROWS, to, x->a + first * x->lda + row, x->lda, rows, inner);
  else
    pack_transposed(TILE_ROWS, to, x->a + row * x->lda + first, x->lda, rows, inner);
}

/* Prefetches a part of a matrix that will be packed: of `rows` rows of `count` numbers, the rows [rows part / parts, ...). */
static void fetch(const float *from, int64_t ld, int64_t rows, int64_t count, int64_t part, int64_t parts) {
  for (int64_t i = rows * part / parts; i < rows * (part + 1) / parts; i++)
    for (int64_t j = 0; j < count + LINE_FLOATS - 1; j += LINE_FLOATS) HARK_PREFETCH(from + i * ld + hark_min(j, count - 1));
}

static void fetch_a(const hark_cpu_product *x, int64_t row, int64_t first, int64_t inner, int64_t part, int64_t parts) {
  const int64_t rows = hark_min(TILE_ROWS, x->m - row);
  if (x->transpose_a)
    fetch(x->a + first * x->lda + row, x->lda, inner, rows, part, parts);
  else
    fetch(x->a + row * x->lda + first, x->lda, rows, inner, part, parts);
}

static void fetch_b(const hark_cpu_product *x, int64_t column, int64_t columns, int64_t first, int64_t inner, int64_t part, int64_t parts) {
  if (x->transpose_b)
    fetch(x->b + column * x->ldb + first, x->ldb, columns, inner, part, parts);
  else
    fetch(x->b + first * x->ldb + column, x->ldb, inner, columns, part, parts);
}

static void pack_b(const hark_cpu_product *x, float *to, int64_t column, int64_t columns, int64_t first, int64_t inner) {
  if (!x->transpose_b) {
    pack_rows(TILE_COLUMNS, to, x->b + first * x->ldb + column, x->ldb, columns, inner);
    return;
  }
  for (int64_t j = 0; j < columns; j += TILE_COLUMNS, to += inner * TILE_COLUMNS) {
    const int64_t count = columns - j < TILE_COLUMNS ? columns - j : TILE_COLUMNS;
    pack_transposed(TILE_COLUMNS, to, x->b + (column + j) * x->ldb + first, x->ldb, count, inner);
  }
}

/* One slice of k and one block of columns, B packed. Between the tiles the next panel of A and the next slice of B are prefetched, so that
 * packing finds them in a cache. */
static void multiply_block(const hark_cpu_product *x, float *packed_a, const float *packed_b, int64_t column, int64_t columns,
                           int64_t first, int64_t inner) {
  const int64_t panels = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS, tiles = (x->m + TILE_ROWS - 1) / TILE_ROWS * panels;
  const int64_t next = first + inner, next_inner = hark_min(inner, x->k - next);
  const bool unpacked = !x->transpose_a && x->row_sums == NULL && panels < PANELS_THAT_PAY && x->lda <= DIRECT_STRIDE;
  int64_t tile = 0;
  for (int64_t row = 0; row < x->m; row += TILE_ROWS) {
    const int64_t rows = hark_min(TILE_ROWS, x->m - row);
    const bool direct = unpacked && rows % TILE_STEP == 0;
    const float *a = direct ? x->a + row * x->lda + first : packed_a;
    if (!direct) pack_a(x, packed_a, row, rows, first, inner);
    if (x->row_sums != NULL && column == 0) add_panel_sums(x->row_sums + row, packed_a, rows, inner);
    for (int64_t panel = 0; panel < panels; panel++, tile++) {
      const int64_t j = panel * TILE_COLUMNS;
      const update u = {
          .alpha = x->alpha, .beta = first == 0 ? x->beta : 1, .bias = first == 0 && x->bias != NULL ? x->bias + column + j : NULL};
      if (row + TILE_ROWS < x->m)
        fetch_a(x, row + TILE_ROWS, first, inner, panel, panels);
      else if (next_inner > 0)
        fetch_a(x, 0, next, next_inner, panel, panels);
      if (next_inner > 0) fetch_b(x, column, columns, next, next_inner, tile, tiles);
      multiply_tile(rows, hark_min(TILE_COLUMNS, columns - j), inner, a, direct ? x->lda : 0, packed_b + j * inner, TILE_COLUMNS,
                    x->c + row * x->ldc + column + j, x->ldc, &u);
    }
  }
}

/* An empty sum: C = beta C + 1 bias^T. */
static void multiply_nothing(const hark_cpu_product *x) {
  for (int64_t i = 0; i < x->m; i++)
    for (int64_t j = 0; j < x->n; j++) {
      float *at = &x->c[i * x->ldc + j];
      *at = (x->beta != 0 ? x->beta * *at : 0) + (x->bias != NULL ? x->bias[j] : 0);
    }
}

void HARK_ISA(hark_cpu_product)(const hark_cpu_product *x, void *scratch) {
  float *packed_a = scratch, *packed_b = packed_a + (PACKED_A_FLOATS + HARK_LANES - 1) / HARK_LANES * HARK_LANES;
  if (x->row_sums != NULL && !x->add_to_row_sums)
    for (int64_t i = 0; i < x->m; i++) x->row_sums[i] = 0;
  if (x->k == 0) multiply_nothing(x);
  const int64_t slices = (x->k + BLOCK_INNER - 1) / BLOCK_INNER;
  const int64_t slice = slices > 0 ? (x->k + slices - 1) / slices : 0;
  for (int64_t first = 0; first < x->k; first += slice) {
    const int64_t inner = hark_min(slice, x->k - first);
    if (x->n == 0) multiply_block(x, packed_a, packed_b, 0, 0, first, inner); /* row sums only */
    for (int64_t column = 0; column < x->n; column += BLOCK_COLUMNS) {
      const int64_t columns = hark_min(BLOCK_COLUMNS, x->n - column);
      pack_b(x, packed_b, column, columns, first, inner);
      multiply_block(x, packed_a, packed_b, column, columns, first, inner);
    }
  }
}

size_t HARK_ISA(hark_cpu_product_scratch_bytes)(void) { return (PACKED_A_FLOATS + PACKED_B_FLOATS + 2 * HARK_LANES) * sizeof(float); }

const int HARK_ISA(hark_cpu_product_rows) = TILE_ROWS;
const int HARK_ISA(hark_cpu_product_columns) = TILE_COLUMNS;
