/* dense_products.h - the matrix products inside attention, on tiles, as micro-kernels with their accumulators in registers.
 *
 * Tiles of logits are transposed: [keys][HARK_TILE_QUERIES], one lane per query. Three products cover forward and backward:
 *
 *     scores    C[j][lane]  = finish( start[lane] + diagonal[lane - j] + sum_k A[k][lane] B[j][k] )      S' = K Q' and dP' = V dO'
 *     combine   C[j][lane]  = factor[lane] C[j][lane] + sum_k A[k][lane] B[k][j]    O' += V' P' and dQ' += K' dS'
 *     spread    C[j][lane] += sum_k A[k][lane] B[j][k], lanes = features            dV += P dO and dK += dS Q
 *
 * A is packed; B is not, and is broadcast one element at a time. A block of rows x vectors of C stays in registers over the whole sum. The
 * sum starts from zero and is added to the previous contents of C at the end: so rounding errors grow with the tile and not with the
 * sequence, and those of a logit with its products and not with its offset. Every lane's sum has one order, whatever the block: results do
 * not depend on how a tile is divided. Cost: one multiply-add per element; the blocks reach the processor's peak if A fits into the
 * second-level cache.
 *
 * Each product also exists for operands in bf16, with sums in f32: then A and B consist of words (bf16.h), k counts pairs, and a pair adds
 * two products in the order of bf16_product.c. dense_words.h packs the words.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_PRODUCTS_H
#define HARK_BACKEND_CPU_ISA_DENSE_PRODUCTS_H

#include <stddef.h>

#include "backend/cpu/isa/bf16.h"

#define HARK_TILE_QUERIES 64
#define HARK_TILE_KEYS 64
#define HARK_TILE_VECTORS (HARK_TILE_QUERIES / HARK_LANES)

/* Vectors and rows of a block: accumulators, one vector of A each, a broadcast and the constants of vf_exp2() fit the registers. */
#if HARK_VECTOR_REGISTERS == 32
#define HARK_BLOCK_VECTORS 4
#define HARK_BLOCK_ROWS(vectors) ((vectors) == 4 ? 4 : (vectors) == 1 ? 16 : 8)
#define HARK_BLOCK_ROWS_MOST 16
#else
#define HARK_BLOCK_VECTORS 2
#define HARK_BLOCK_ROWS(vectors) ((vectors) == 2 ? 6 : 8)
#define HARK_BLOCK_ROWS_MOST 8
#endif

typedef enum hark_product_finish {
  HARK_FINISH_STORE,      /* C = c */
  HARK_FINISH_SOFTMAX,    /* C = 2^c; top = max(top, c); sum += 2^c */
  HARK_FINISH_EXP2,       /* C = 2^c, at most 1 */
  HARK_FINISH_TIMES,      /* C = P c */
  HARK_FINISH_TIMES_SEEN, /* C = P c, exactly 0 where P is 0, whatever c is */
  HARK_FINISH_TIMES_ADD,  /* C += P c, exactly 0 where P is 0 and C is 0, whatever c is */
  HARK_FINISH_COMBINE,
  HARK_FINISH_COMBINE_FACTOR,
  HARK_FINISH_SPREAD,
  HARK_FINISH_SPREAD_PART /* one vector, of which `part` lanes exist in C */
} hark_product_finish;

/* How a product adds: f32 numbers; words by the processor's dot products, or by their emulation. */
typedef enum hark_product_arithmetic { HARK_ADD_NUMBERS, HARK_ADD_DOTS, HARK_ADD_EMULATED } hark_product_arithmetic;

HARK_SIMD vf hark_product_add(const hark_product_arithmetic arithmetic, vf a, vf b, vf sum) {
  if (arithmetic == HARK_ADD_EMULATED) return bf16_dot_emulated(sum, vf_bits(a), vf_bits(b));
#if defined(HARK_BF16_DOTS)
  if (arithmetic == HARK_ADD_DOTS) return bf16_dot(sum, vf_bits(a), vf_bits(b));
#endif
  return vf_fma(a, b, sum);
}

HARK_SIMD vf hark_product_broadcast(const hark_product_arithmetic arithmetic, const float *b) {
  uint32_t word;
  if (arithmetic == HARK_ADD_NUMBERS) return vf_set(*b);
  memcpy(&word, b, sizeof word);
  return vf_from_bits(vu_set(word));
}

/* Rows that will be needed soon: each block of a product of scores prefetches as many of them as it has rows itself. */
typedef struct hark_product_ahead {
  const float *rows; /* NULL: nothing */
  ptrdiff_t stride;
  int count, features;
} hark_product_ahead;

#define HARK_AHEAD_STREAMS 3

typedef struct hark_product {
  hark_product_arithmetic arithmetic; /* the others but NUMBERS: a and b are words, k counts pairs */
  const float *a;
  ptrdiff_t a_step; /* from one k to the next */
  const float *b;
  ptrdiff_t b_row, b_step; /* from one j, one k to the next */
  float *c;
  ptrdiff_t c_row;
  int rows;              /* j */
  int begin, end;        /* k */
  const int *limits;     /* COMBINE: vector m needs k < limits[m] only, ascending; NULL: all have the same end */
  const float *start;    /* scores: [lanes] */
  const float *diagonal; /* scores up to EXP2: entry lane - j; NULL: none */
  const float *times;    /* TIMES: P, with the layout of C */
  float *top, *sum;      /* SOFTMAX: [lanes] */
  const float *factor;   /* COMBINE_FACTOR: [lanes] */
  int part;
  hark_product_ahead ahead[HARK_AHEAD_STREAMS];
} hark_product;

/* Rows j .. j + rows of C, vectors from lane offset `lane`. All of finish, vectors, rows are constants after inlining. */
HARK_SIMD void hark_product_block(const hark_product_arithmetic arithmetic, const hark_product_finish finish, const int vectors,
                                  const int rows, const hark_product *p, ptrdiff_t j, ptrdiff_t lane) {
  vf c[HARK_BLOCK_ROWS_MOST][HARK_BLOCK_VECTORS];
  const bool scores = finish <= HARK_FINISH_TIMES_ADD;
  const bool combine = finish == HARK_FINISH_COMBINE || finish == HARK_FINISH_COMBINE_FACTOR;
  HARK_UNROLL
  for (int r = 0; r < rows; r++) {
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) c[r][m] = vf_zero();
  }
  const float *a = p->a + lane;
  const float *b = p->b + j * p->b_row;
  const ptrdiff_t a_step = p->a_step, b_row = p->b_row, b_step = p->b_step;
  if (combine && p->limits != NULL) {
    const int *limits = p->limits + lane / HARK_LANES;
    int k = p->begin;
    HARK_UNROLL
    for (int first = 0; first < vectors; first++) {
      HARK_ROLLED
      for (; k < limits[first]; k++) {
        vf av[HARK_BLOCK_VECTORS];
        HARK_UNROLL
        for (int m = first; m < vectors; m++) av[m] = vf_load(a + k * a_step + m * HARK_LANES);
        HARK_UNROLL
        for (int r = 0; r < rows; r++) {
          const vf bv = hark_product_broadcast(arithmetic, b + r * b_row + k * b_step);
          HARK_UNROLL
          for (int m = first; m < vectors; m++) c[r][m] = hark_product_add(arithmetic, av[m], bv, c[r][m]);
        }
      }
    }
  } else {
    /* One pointer per four rows, so that the addresses of all rows fit into registers. */
    const float *quad[HARK_BLOCK_ROWS_MOST / 4];
    HARK_UNROLL
    for (int r = 0; r < rows; r += 4) quad[r / 4] = b + r * b_row + p->begin * b_step;
    const int end = p->end;
    HARK_ROLLED
    for (int k = p->begin; k < end; k++) {
      vf av[HARK_BLOCK_VECTORS];
      HARK_UNROLL
      for (int m = 0; m < vectors; m++) av[m] = vf_load(a + k * a_step + m * HARK_LANES);
      HARK_UNROLL
      for (int r = 0; r < rows; r++) {
        if (r % 4 == 0) HARK_OPAQUE(quad[r / 4]);
        const vf bv = hark_product_broadcast(arithmetic, quad[r / 4] + r % 4 * b_row);
        HARK_UNROLL
        for (int m = 0; m < vectors; m++) c[r][m] = hark_product_add(arithmetic, av[m], bv, c[r][m]);
      }
      HARK_UNROLL
      for (int r = 0; r < rows; r += 4) quad[r / 4] += b_step;
    }
  }
  if (finish <= HARK_FINISH_EXP2 && p->diagonal != NULL) {
    const float *diagonal = p->diagonal + lane - j;
    HARK_UNROLL
    for (int r = 0; r < rows; r++) {
      HARK_UNROLL
      for (int m = 0; m < vectors; m++) c[r][m] = c[r][m] + vf_load(diagonal + m * HARK_LANES - r);
    }
  }
  HARK_UNROLL
  for (int m = 0; m < vectors; m++) {
    const ptrdiff_t at = lane + m * HARK_LANES;
    float *out = p->c + j * p->c_row + at;
    const vf start = scores ? vf_load(p->start + at) : vf_zero();
    vf top = vf_zero(), sum = vf_zero(), factor = vf_zero();
    if (finish == HARK_FINISH_SOFTMAX) {
      top = vf_load(p->top + at);
      sum = vf_load(p->sum + at);
    }
    if (finish == HARK_FINISH_COMBINE_FACTOR) factor = vf_load(p->factor + at);
    HARK_UNROLL
    for (int r = 0; r < rows; r++) {
      float *to = out + r * p->c_row;
      vf x = scores ? c[r][m] + start : c[r][m];
      if (finish == HARK_FINISH_SOFTMAX) {
        top = vf_max(top, x);
        x = vf_exp2(x);
        sum = sum + x;
      } else if (finish == HARK_FINISH_EXP2) {
        x = vf_exp2(vf_not_above(x, vf_zero()));
      } else if (finish == HARK_FINISH_TIMES) {
        x = x * vf_load(p->times + j * p->c_row + at + r * p->c_row);
      } else if (finish == HARK_FINISH_TIMES_SEEN) {
        const vf weight = vf_load(p->times + j * p->c_row + at + r * p->c_row);
        x = vf_select(vf_equal(weight, vf_zero()), vf_zero(), x * weight);
      } else if (finish == HARK_FINISH_TIMES_ADD) {
        const vf weight = vf_load(p->times + j * p->c_row + at + r * p->c_row);
        x = vf_select(vf_equal(weight, vf_zero()), vf_load(to), vf_fma(x, weight, vf_load(to)));
      } else if (finish == HARK_FINISH_COMBINE || finish == HARK_FINISH_SPREAD) {
        x = x + vf_load(to);
      } else if (finish == HARK_FINISH_COMBINE_FACTOR) {
        x = vf_fma(vf_load(to), factor, x);
      }
      if (finish == HARK_FINISH_SPREAD_PART) {
        vf_store_part(to, x + vf_load_part(to, p->part), p->part);
      } else {
        vf_store(to, x);
      }
    }
    if (finish == HARK_FINISH_SOFTMAX) {
      vf_store(p->top + at, top);
      vf_store(p->sum + at, sum);
    }
  }
}

/* The part of a product of scores that computes rows from `row` on. */
static inline hark_product hark_product_from(const hark_product *p, int row, int rows) {
  hark_product part = *p;
  part.b += row * p->b_row;
  part.c += row * p->c_row;
  if (p->times != NULL) part.times += row * p->c_row;
  if (p->diagonal != NULL) part.diagonal -= row;
  part.rows = rows;
  for (int stream = 0; stream < HARK_AHEAD_STREAMS; stream++) {
    if (part.ahead[stream].rows == NULL) continue;
    part.ahead[stream].count -= row;
    if (part.ahead[stream].count > 0) part.ahead[stream].rows += row * part.ahead[stream].stride;
  }
  return part;
}

/* Prefetches rows j .. j + rows of `ahead`. */
HARK_SIMD void hark_product_look_ahead(const hark_product *p, int j, int rows) {
  for (int stream = 0; stream < HARK_AHEAD_STREAMS; stream++) {
    const hark_product_ahead *ahead = p->ahead + stream;
    if (ahead->rows == NULL) continue;
    const int end = j + rows < ahead->count ? j + rows : ahead->count;
    for (int r = j; r < end; r++)
      for (int c = 0; c < ahead->features; c += 16) HARK_PREFETCH_FAR(ahead->rows + r * ahead->stride + c);
  }
}

/* All rows of one panel of vectors. */
HARK_SIMD void hark_product_panel(const hark_product_arithmetic arithmetic, const hark_product_finish finish, const int vectors,
                                  const hark_product *p, ptrdiff_t lane, bool first) {
  const int rows = HARK_BLOCK_ROWS(vectors);
  int j = 0;
  for (; j + rows <= p->rows; j += rows) {
    if (finish <= HARK_FINISH_TIMES_ADD && first) hark_product_look_ahead(p, j, rows);
    hark_product_block(arithmetic, finish, vectors, rows, p, j, lane);
  }
  if (rows > 8)
    for (; j + 8 <= p->rows; j += 8) hark_product_block(arithmetic, finish, vectors, 8, p, j, lane);
  if (rows > 4)
    for (; j + 4 <= p->rows; j += 4) hark_product_block(arithmetic, finish, vectors, 4, p, j, lane);
  for (; j + 2 <= p->rows; j += 2) hark_product_block(arithmetic, finish, vectors, 2, p, j, lane);
  for (; j < p->rows; j++) hark_product_block(arithmetic, finish, vectors, 1, p, j, lane);
}

/* Vectors first .. last of the lanes. `finish` is a constant after inlining: wrap it in a separate function. */
HARK_SIMD void hark_product_run_as(const hark_product_arithmetic arithmetic, const hark_product_finish finish, const hark_product *p,
                                   int first, int last) {
  int at = first;
  for (; at + HARK_BLOCK_VECTORS <= last; at += HARK_BLOCK_VECTORS)
    hark_product_panel(arithmetic, finish, HARK_BLOCK_VECTORS, p, (ptrdiff_t)at * HARK_LANES, at == first);
#if HARK_BLOCK_VECTORS == 4
  if (at + 3 == last) hark_product_panel(arithmetic, finish, 3, p, (ptrdiff_t)at * HARK_LANES, at == first);
  if (at + 2 == last) hark_product_panel(arithmetic, finish, 2, p, (ptrdiff_t)at * HARK_LANES, at == first);
#endif
  if (at + 1 == last) hark_product_panel(arithmetic, finish, 1, p, (ptrdiff_t)at * HARK_LANES, at == first);
}

HARK_SIMD void hark_product_run(const hark_product_finish finish, const hark_product *p, int first, int last) {
  hark_product_run_as(HARK_ADD_NUMBERS, finish, p, first, last);
}

/* The same with the arithmetic of p->arithmetic. */
#if defined(HARK_BF16_DOTS)
#define HARK_PRODUCT_FUNCTION(name, finish)                                                                                                \
  HARK_SIMD_NOINLINE void name##_numbers(const hark_product *p, int first, int last) { hark_product_run(finish, p, first, last); }         \
  HARK_SIMD_NOINLINE void name##_dots(const hark_product *p, int first, int last) {                                                        \
    hark_product_run_as(HARK_ADD_DOTS, finish, p, first, last);                                                                            \
  }                                                                                                                                        \
  HARK_SIMD_NOINLINE void name##_emulated(const hark_product *p, int first, int last) {                                                    \
    hark_product_run_as(HARK_ADD_EMULATED, finish, p, first, last);                                                                        \
  }                                                                                                                                        \
  static void name(const hark_product *p, int first, int last) {                                                                           \
    (p->arithmetic == HARK_ADD_NUMBERS ? name##_numbers : p->arithmetic == HARK_ADD_DOTS ? name##_dots : name##_emulated)(p, first, last); \
  }
#else
#define HARK_PRODUCT_FUNCTION(name, finish)                                                                                                \
  HARK_SIMD_NOINLINE void name##_numbers(const hark_product *p, int first, int last) { hark_product_run(finish, p, first, last); }         \
  HARK_SIMD_NOINLINE void name##_emulated(const hark_product *p, int first, int last) {                                                    \
    hark_product_run_as(HARK_ADD_EMULATED, finish, p, first, last);                                                                        \
  }                                                                                                                                        \
  static void name(const hark_product *p, int first, int last) {                                                                           \
    (p->arithmetic == HARK_ADD_NUMBERS ? name##_numbers : name##_emulated)(p, first, last);                                                \
  }
#endif

#endif
