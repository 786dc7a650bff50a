/* bf16_product.c - the matrix product of one thread from bf16 operands: C = op(A) op(B) + beta C + 1 bias^T, sums in f32.
 *
 * C [m, n] f32, op(A) [m, k], op(B) [k, n], row-major, f32 (rounded here) or bf16. 2 m n k operations. Divided as in product.c, with k in
 * pairs, because a dot product of the processor (VDPBF16PS) multiplies pairs:
 *
 *     for every band of rows, for every slice of k:              a register tile:         <- TILE_COLUMNS ->
 *       for every block of columns: pack op(B) into panels         TILE_ROWS  | c[i][v] += a[i].odd b[v].odd,
 *         for every group of rows:                                            |   then     a[i].even b[v].even |
 *           first block of columns: pack op(A) into panels
 *           for every panel of A, panel of B: the register tile
 *
 * A group of rows and a block of columns fit into a core's cache together. A band is as many rows as the scratch memory holds, so that
 * op(A) is packed once, and op(B) once a band. What the next group packs and what a tile adds to are prefetched.
 *
 * Definition of a sum, which gives the same bits with the instruction and without, for every instruction set, division and number of
 * threads: k is cut into ceil(k / BLOCK_INNER) slices of equal, even length (the last one may be shorter). In a slice s = 0; then for
 * each pair (2p, 2p + 1), where a missing number is 0, s = add(s, a[2p + 1], b[2p + 1]), s = add(s, a[2p], b[2p]). C is beta C + s + bias
 * after the first slice and C + s after each further one.
 *
 * add(s, a, b) is s + a b with one rounding to the nearest f32, ties to even; subnormal operands count as zeros of their sign (f32 ones
 * before they are rounded), and a result that is below 2^-126 after rounding (as if the exponent had no limit) becomes zero. Rounding and
 * flushing of the thread have no effect. Sources: the operation of VDPBF16PS in Intel's Software Developer's Manual, volume 2 (odd numbers
 * first, fused, MXCSR neither read nor written); that the test for small results follows rounding was measured on Zen 4
 * (tests/unit/test_bf16.c compares instruction and emulation). NaN stays NaN; its fraction is not defined.
 *
 * Error of an element against the exact sum of the rounded operands: docs/numbers.md.
 */
#include "backend/cpu/isa/bf16.h"
#include "backend/cpu/isa/kernels.h"
#include "core/floating_point.h"

#if HARK_LANES == 16
#define TILE_ROWS 12
#else
#define TILE_ROWS 4
#endif
#define TILE_VECTORS 2
#define TILE_COLUMNS (TILE_VECTORS * HARK_LANES)

#define BLOCK_INNER 512
#define BLOCK_PAIRS (BLOCK_INNER / 2)
#define BLOCK_COLUMNS 512
#define LINE_BYTES ((int64_t)64)
#define GROUP_ROWS (4 * TILE_ROWS) /* packed at once: whole cache lines where A is transposed */
#define BAND_ROWS (168 * TILE_ROWS)

/* Packing writes whole vectors: a panel of rows is followed by this many words. */
#define SLACK HARK_LANES
#define PANEL_A_WORDS(pairs) ((pairs)*TILE_ROWS + SLACK)
#define PACKED_A_WORDS (BAND_ROWS / TILE_ROWS * PANEL_A_WORDS(BLOCK_PAIRS))
#define PACKED_B_WORDS (BLOCK_PAIRS * (BLOCK_COLUMNS + TILE_COLUMNS) + SLACK)

/* How a tile's sums are stored. */
typedef struct update {
  float beta;        /* 0: C is not read */
  const float *bias; /* of the tile's first column, or NULL */
} update;

HARK_SIMD vf updated(const update *u, vf sum, vf before, vf bias) {
  return u->beta != 0 ? vf_set(u->beta) * before + (sum + bias) : sum + bias;
}

/* ---- the register tile ------------------------------------------------------------------------------------------------------------- */
/* sums [TILE_ROWS, TILE_COLUMNS] of a pair's panels: a [pairs, TILE_ROWS], b [pairs, TILE_COLUMNS]. */
static void tile_sums(int64_t pairs, const uint32_t *a, const uint32_t *b, float *sums) {
  for (int i = 0; i < TILE_ROWS; i++) {
    float *row = sums + (int64_t)i * TILE_COLUMNS;
    for (int j = 0; j < TILE_COLUMNS; j++) row[j] = 0;
    for (int64_t p = 0; p < pairs; p++) {
      const double odd = bf16_odd(a[p * TILE_ROWS + i]), even = bf16_even(a[p * TILE_ROWS + i]);
      const uint32_t *right = b + p * TILE_COLUMNS;
      for (int j = 0; j < TILE_COLUMNS; j++) row[j] = bf16_add(row[j], odd, bf16_odd(right[j]));
      for (int j = 0; j < TILE_COLUMNS; j++) row[j] = bf16_add(row[j], even, bf16_even(right[j]));
    }
  }
}

static void store_sums(int64_t rows, int64_t columns, const float *sums, float *c, int64_t ldc, const update *u) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < columns; j += HARK_LANES) {
      const int count = (int)hark_min(columns - j, HARK_LANES);
      const vf before = u->beta != 0 ? vf_load_part_or_all(c + i * ldc + j, count) : vf_zero();
      const vf bias = u->bias != NULL ? vf_load_part_or_all(u->bias + j, count) : vf_zero();
      const vf result = updated(u, vf_load(sums + i * TILE_COLUMNS + j), before, bias);
      if (count == HARK_LANES)
        vf_store(c + i * ldc + j, result);
      else
        vf_store_part(c + i * ldc + j, result, count);
    }
}

#if defined(HARK_BF16_DOTS)
/* The same with the processor's dot products, stored at once. */
static void multiply(int64_t pairs, const uint32_t *a, const uint32_t *b, float *c, int64_t ldc, const update *u) {
  vf sum[TILE_ROWS][TILE_VECTORS];
  HARK_UNROLL
  for (int i = 0; i < TILE_ROWS; i++) {
    HARK_UNROLL
    for (int v = 0; v < TILE_VECTORS; v++) {
      sum[i][v] = vf_zero();
      HARK_PREFETCH_WRITE(c + i * ldc + v * HARK_LANES);
    }
  }
  HARK_ROLLED
  for (int64_t p = 0; p < pairs; p++) {
    vu row[TILE_VECTORS];
    HARK_UNROLL
    for (int v = 0; v < TILE_VECTORS; v++) row[v] = vu_load(b + v * HARK_LANES);
    HARK_UNROLL
    for (int i = 0; i < TILE_ROWS; i++) {
      const vu left = vu_set(a[i]);
      HARK_UNROLL
      for (int v = 0; v < TILE_VECTORS; v++) sum[i][v] = bf16_dot(sum[i][v], left, row[v]);
    }
    a += TILE_ROWS;
    b += TILE_COLUMNS;
  }
  HARK_UNROLL
  for (int v = 0; v < TILE_VECTORS; v++) {
    const vf bias = u->bias != NULL ? vf_load(u->bias + v * HARK_LANES) : vf_zero();
    HARK_UNROLL
    for (int i = 0; i < TILE_ROWS; i++) {
      float *at = c + i * ldc + v * HARK_LANES;
      vf_store(at, updated(u, sum[i][v], u->beta != 0 ? vf_load(at) : vf_zero(), bias));
    }
  }
}

static void multiply_tile(bool dots, int64_t rows, int64_t columns, int64_t pairs, const uint32_t *a, const uint32_t *b, float *c,
                          int64_t ldc, const update *u) {
  const update plain = {0};
  float sums[TILE_ROWS * TILE_COLUMNS];
  if (dots && rows == TILE_ROWS && columns == TILE_COLUMNS) {
    multiply(pairs, a, b, c, ldc, u);
    return;
  }
  if (dots)
    multiply(pairs, a, b, sums, TILE_COLUMNS, &plain);
  else
    tile_sums(pairs, a, b, sums);
  store_sums(rows, columns, sums, c, ldc, u);
}
#else
static void multiply_tile(bool dots, int64_t rows, int64_t columns, int64_t pairs, const uint32_t *a, const uint32_t *b, float *c,
                          int64_t ldc, const update *u) {
  float sums[TILE_ROWS * TILE_COLUMNS];
  (void)dots;
  tile_sums(pairs, a, b, sums);
  store_sums(rows, columns, sums, c, ldc, u);
}
#endif

/* ---- packing ----------------------------------------------------------------------------------------------------------------------- */
/* The address of number (row, column) of the matrix as it is stored. */
static const void *at(const hark_cpu_operand *x, int64_t row, int64_t column) {
  return (const char *)x->data + (size_t)(row * x->ld + column) * (x->type == HARK_F32 ? sizeof(float) : sizeof(uint16_t));
}

/* Rows of the stored matrix are pairs: to[p, i] = (x[first + 2 p, from + i], x[first + 2 p + 1, from + i]) for i < count, zeros up to a
 * multiple of `width`, in panels of `width` that are `apart` words apart. */
HARK_SIMD void pack_row_pairs(bool dots, const int width, uint32_t *to, int64_t apart, const hark_cpu_operand *x, int64_t first,
                              int64_t from, int64_t count, int64_t inner) {
  for (int64_t p = 0; 2 * p < inner; p++) {
    const bool both = 2 * p + 1 < inner;
    const char *even = at(x, first + 2 * p, from), *odd = at(x, first + 2 * p + (both ? 1 : 0), from);
    for (int64_t panel = 0; panel * width < count; panel++) {
      uint32_t *out = to + panel * apart + p * width;
      for (int64_t i = panel * width; i < (panel + 1) * width; i += HARK_LANES, out += HARK_LANES) {
        const int here = (int)hark_max(0, hark_min(count - i, HARK_LANES));
        if (x->type == HARK_F32) {
          const vf low = vf_load_part_or_all((const float *)even + i, here);
          const vf high = both ? vf_load_part_or_all((const float *)odd + i, here) : vf_zero();
          vu_store(out, bf16_pair(dots, low, high));
        } else {
          const vu low = vu_load_halves((const uint16_t *)even + i, here);
          const vu high = both ? vu_load_halves((const uint16_t *)odd + i, here) : vu_set(0);
          vu_store(out, low | high << 16);
        }
      }
    }
  }
}

/* Words of the pairs [p, p + HARK_LANES) of a row: count numbers exist. */
HARK_SIMD vu row_words(bool dots, const hark_cpu_operand *x, const void *from, int count) {
  if (x->type == HARK_F32) return bf16_words(dots, from, count);
  if (count >= 2 * HARK_LANES) return vu_load(from);
  uint16_t halves[2 * HARK_LANES] = {0};
  vu words;
  memcpy(halves, from, (size_t)hark_max(0, count) * sizeof *halves);
  memcpy(&words, halves, sizeof words);
  return words;
}

/* Pairs are adjacent numbers of the stored rows: to[p, i] = (x[row + i, first + 2 p], x[row + i, first + 2 p + 1]) for i < count, zeros up
 * to `width`: one panel. */
HARK_SIMD void pack_adjacent_pairs(bool dots, const int width, uint32_t *to, const hark_cpu_operand *x, int64_t row, int64_t count,
                                   int64_t first, int64_t inner) {
  const int64_t pairs = (inner + 1) / 2;
  for (int group = 0; group < width; group += HARK_LANES)
    for (int64_t p = 0; p < pairs; p += HARK_LANES) {
      const int depth = (int)hark_min(pairs - p, HARK_LANES), numbers = (int)hark_min(inner - 2 * p, 2 * HARK_LANES);
      vf block[HARK_LANES];
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++) {
        block[i] = vf_zero();
        if (group + i < width && group + i < count)
          block[i] = vf_from_bits(row_words(dots, x, at(x, row + group + i, first + 2 * p), numbers));
      }
      vf_transpose(block);
      /* In increasing order: if the width is not a multiple of the lanes, the next pair overwrites a pair's surplus. */
      uint32_t *out = to + p * width + group;
      HARK_UNROLL
      for (int i = 0; i < HARK_LANES; i++)
        if (i < depth) vu_store(out + i * width, vf_bits(block[i]));
    }
}

/* Rows [row, row + rows) of op(A), numbers [first, first + inner) of them. */
static void pack_a(bool dots, const hark_cpu_bf16_product *x, uint32_t *to, int64_t row, int64_t rows, int64_t first, int64_t inner) {
  const int64_t apart = PANEL_A_WORDS((inner + 1) / 2);
  if (x->a.transposed) {
    pack_row_pairs(dots, TILE_ROWS, to, apart, &x->a, first, row, rows, inner);
    return;
  }
  for (int64_t i = 0; i < rows; i += TILE_ROWS, to += apart)
    pack_adjacent_pairs(dots, TILE_ROWS, to, &x->a, row + i, hark_min(TILE_ROWS, rows - i), first, inner);
}

static void pack_b(bool dots, const hark_cpu_bf16_product *x, uint32_t *to, int64_t column, int64_t columns, int64_t first, int64_t inner) {
  const int64_t apart = (inner + 1) / 2 * TILE_COLUMNS;
  if (!x->b.transposed) {
    pack_row_pairs(dots, TILE_COLUMNS, to, apart, &x->b, first, column, columns, inner);
    return;
  }
  for (int64_t j = 0; j < columns; j += TILE_COLUMNS, to += apart)
    pack_adjacent_pairs(dots, TILE_COLUMNS, to, &x->b, column + j, hark_min(TILE_COLUMNS, columns - j), first, inner);
}

/* ---- the product ------------------------------------------------------------------------------------------------------------------- */
typedef struct slice {
  const hark_cpu_bf16_product *x;
  bool dots;
  uint32_t *packed_a, *packed_b;
  int64_t band; /* its first row, at packed_a */
  int64_t first, inner;
} slice;

/* The panels of the rows from `row` on. */
static uint32_t *panels_of(const slice *s, int64_t row) {
  return s->packed_a + (row - s->band) / TILE_ROWS * PANEL_A_WORDS((s->inner + 1) / 2);
}

/* row_sums += the sums of a slice of op(A), whose rows are columns of the stored matrix. */
static void add_row_sums(const hark_cpu_bf16_product *x, int64_t row, int64_t rows, int64_t first, int64_t inner) {
  float sums[GROUP_ROWS + SLACK] = {0};
  for (int64_t p = 0; p < inner; p++) {
    const float *from = at(&x->a, first + p, row);
    for (int64_t i = 0; i < rows; i++) sums[i] += from[i];
  }
  for (int64_t i = 0; i < rows; i++) x->row_sums[row + i] += sums[i];
}

/* Prefetches part of what packing reads later: of `rows` rows of `count` numbers from (row, column) on, those from rows part / parts on. */
static void fetch(const hark_cpu_operand *x, int64_t row, int64_t rows, int64_t column, int64_t count, int64_t part, int64_t parts) {
  const int64_t line = LINE_BYTES / (x->type == HARK_F32 ? 4 : 2);
  for (int64_t i = rows * part / parts; i < rows * (part + 1) / parts; i++)
    for (int64_t j = 0; j < count + line - 1; j += line) HARK_PREFETCH(at(x, row + i, column + hark_min(j, count - 1)));
}

static void fetch_a(const slice *s, int64_t row, int64_t rows, int64_t part, int64_t parts) {
  if (s->x->a.transposed)
    fetch(&s->x->a, s->first, s->inner, row, rows, part, parts);
  else
    fetch(&s->x->a, row, rows, s->first, s->inner, part, parts);
}

/* A group of rows, its sums and its panels. */
static void prepare_rows(const slice *s, int64_t row, int64_t rows) {
  if (s->x->row_sums != NULL) add_row_sums(s->x, row, rows, s->first, s->inner);
  if (s->x->n > 0) pack_a(s->dots, s->x, panels_of(s, row), row, rows, s->first, s->inner);
}

/* A group of rows and a block of columns, packed. Meanwhile `next` rows after them are prefetched, which are packed then. */
static void multiply_rows(const slice *s, int64_t row, int64_t rows, int64_t next, int64_t column, int64_t columns) {
  const hark_cpu_bf16_product *x = s->x;
  const int64_t pairs = (s->inner + 1) / 2, tiles = hark_ceil_div(rows, TILE_ROWS) * hark_ceil_div(columns, TILE_COLUMNS);
  const uint32_t *packed_a = panels_of(s, row);
  int64_t tile = 0;
  for (int64_t i = 0; i < rows; i += TILE_ROWS, packed_a += PANEL_A_WORDS(pairs))
    for (int64_t j = 0; j < columns; j += TILE_COLUMNS, tile++) {
      const update u = {.beta = s->first == 0 ? x->beta : 1, .bias = s->first == 0 && x->bias != NULL ? x->bias + column + j : NULL};
      if (next > 0) fetch_a(s, row + rows, next, tile, tiles);
      multiply_tile(s->dots, hark_min(TILE_ROWS, rows - i), hark_min(TILE_COLUMNS, columns - j), pairs, packed_a, s->packed_b + j * pairs,
                    x->c + (row + i) * x->ldc + column + j, x->ldc, &u);
    }
}

/* A block of columns for a band of rows, which the first block packs. */
static void multiply_columns(const slice *s, int64_t rows, int64_t column) {
  const int64_t columns = hark_min(BLOCK_COLUMNS, s->x->n - column);
  if (columns > 0) pack_b(s->dots, s->x, s->packed_b, column, columns, s->first, s->inner);
  for (int64_t row = 0; row < rows; row += GROUP_ROWS) {
    const int64_t here = hark_min(GROUP_ROWS, rows - row), next = column == 0 ? hark_min(GROUP_ROWS, rows - row - here) : 0;
    if (column == 0) prepare_rows(s, s->band + row, here);
    if (columns > 0) multiply_rows(s, s->band + row, here, next, column, columns);
  }
}

/* A slice of k for a band of rows; no columns: the sums of its rows alone. */
static void multiply_slice(const slice *s, int64_t rows) {
  int64_t column = 0;
  do {
    multiply_columns(s, rows, column);
    column += BLOCK_COLUMNS;
  } while (column < s->x->n);
}

static void multiply_band(slice *s, int64_t rows) {
  const int64_t k = s->x->k, slices = hark_ceil_div(k, BLOCK_INNER);
  const int64_t length = slices > 0 ? (hark_ceil_div(k, slices) + 1) / 2 * 2 : 0;
  for (s->first = 0; s->first < k; s->first += length) {
    s->inner = hark_min(length, k - s->first);
    multiply_slice(s, rows);
  }
}

/* An empty sum: C = beta C + 1 bias^T. */
static void multiply_nothing(const hark_cpu_bf16_product *x) {
  for (int64_t i = 0; i < x->m; i++)
    for (int64_t j = 0; j < x->n; j++) {
      float *c = &x->c[i * x->ldc + j];
      *c = (x->beta != 0 ? x->beta * *c : 0) + (x->bias != NULL ? x->bias[j] : 0);
    }
}

void HARK_ISA(hark_cpu_bf16_product)(const hark_cpu_bf16_product *x, bool dots, void *scratch) {
  hark_floating_point before;
  hark_floating_point_plain(&before);
  slice s = {.x = x, .dots = dots, .packed_a = scratch, .packed_b = (uint32_t *)scratch + PACKED_A_WORDS};
  if (x->row_sums != NULL && !x->add_to_row_sums)
    for (int64_t i = 0; i < x->m; i++) x->row_sums[i] = 0;
  if (x->k == 0) multiply_nothing(x);
  for (s.band = 0; s.band < x->m; s.band += BAND_ROWS) multiply_band(&s, hark_min(BAND_ROWS, x->m - s.band));
  hark_floating_point_leave(&before);
}

size_t HARK_ISA(hark_cpu_bf16_product_scratch_bytes)(void) { return (PACKED_A_WORDS + PACKED_B_WORDS) * sizeof(uint32_t); }
