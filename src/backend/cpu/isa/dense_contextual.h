/* dense_contextual.h - contextual positions in tiles (docs/mathematics/contextual-positions.md), of one instruction set.
 *
 *     g[n,i] = sigmoid(scale q_n.k_i);   c[n,i] = min(sum over visible t >= i of g[n,t], N - 1);   x = floor c, f = c - x
 *     S[n,i] += (1 - f) T[x][n] + f T[x + 1][n],   T[x][n] = scale q_n.e[x]
 *
 * T of a tile of queries is a product, made once; a term is two loads from it. Keys farther than those that fill the positions have the
 * term of position N - 1, and no gate. Gates are summed from the nearest key to the farthest. The forward visits tiles of keys in this
 * order. The backward sums the gates of all tiles first, and then visits the tiles from the farthest to the nearest, in the order of dg,
 * which is a sum over farther keys.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_CONTEXTUAL_H
#define HARK_BACKEND_CPU_ISA_DENSE_CONTEXTUAL_H

#include "dense_tile.h"

/* Of a tile of queries: [..][lanes], logits in units of log 2. */
typedef struct hark_dense_contextual_state {
  hark_dense_call hiding;              /* the call with those terms alone that hide */
  const float *table;                  /* e of the tile's head, [N][d] */
  int64_t rows;                        /* rows of e that positions of the tile may reach */
  float most, last;                    /* the largest position that is counted; N - 1 */
  int64_t from;                        /* backward: the first key of the first tile */
  float *products;                     /* T: [rows + 1], zero in the last */
  float *terms;                        /* of the tile of keys, if `keeps`: for rows in float64 */
  float *hidden;                       /* -infinity where the tile of keys hides, otherwise 0 */
  float counted[HARK_TILE_QUERIES];    /* sums of the gates of the nearer tiles */
  bool keeps, full[HARK_TILE_VECTORS]; /* full: no lane of the vector counts further */
  /* the backward alone */
  float *raw;                         /* products of a tile */
  float *carries;                     /* [tiles of keys]: `counted` of each */
  float *positions, *slopes;          /* c, and dT/dc in natural units: [keys] */
  float *gates;                       /* g (1 - g), -1 where hidden: [keys] */
  float *sums;                        /* dT, in natural units: [rows + 1] */
  float *clean;                       /* [keys][d padded] */
  float passed[HARK_TILE_QUERIES];    /* sums of dc of the farther tiles */
  float seen[HARK_TILE_QUERIES];      /* visible keys, counted if some position is NaN */
  bool unknown;                       /* some position is NaN */
  bool is_unknown[HARK_TILE_QUERIES]; /* of the lane */
} hark_dense_contextual_state;

/* The most rows of e that the algorithm supports: T and dT are in each worker's memory. */
#define HARK_CONTEXTUAL_ROWS (1 << 14)

/* Rows of e that a sequence of `keys` keys can reach: position `keys`, and the row after it. */
static inline int64_t hark_dense_contextual_rows(const hark_attention_desc *desc, int64_t keys) {
  return hark_min(desc->contextual_positions, keys + 2);
}

/* Whether the rows of e that can be reached are that few. */
bool HARK_ISA(hark_dense_contextual_fits)(const hark_attention_desc *desc);

/* HARK_TOO_LARGE if the sums of the backward are larger than memory can be: those of the term in hark_dense_terms. */
hark_status HARK_ISA(hark_dense_contextual_check)(hark_context *context, const hark_attention_desc *desc);

/* Floats of memory; 0 for descriptors without contextual positions. */
size_t HARK_ISA(hark_dense_contextual_floats)(const hark_attention_desc *desc, bool backward);

/* Begins a tile of queries, packed and scaled, that sees `keys` keys from `from` on. */
void HARK_ISA(hark_dense_contextual_begin)(const hark_dense_tile *tile, const float *queries, int64_t from, int64_t keys, float *memory,
                                           hark_dense_contextual_state *state);
/* Products of a tile of keys, without start and diagonal -> logits with both and the terms; also what the gradients need. Forward: for
 * tiles from the nearest to the farthest. Backward: in any order, for the tiles of hark_dense_contextual_sum(). */
void HARK_ISA(hark_dense_contextual_count)(const hark_dense_tile *tile, const float *start, float *logits,
                                           hark_dense_contextual_state *state);

/* Backward: the sums of gates of the tiles from state->from to `to`, after those that were counted before. `keys`: key 0 of
 * the sequence. */
void HARK_ISA(hark_dense_contextual_sum)(const hark_dense_tile *tile, const float *queries, const float *keys, int64_t key_stride,
                                         int64_t to, hark_dense_contextual_state *state);
/* The terms alone of a tile of keys, whose first key is at `key`. */
void HARK_ISA(hark_dense_contextual_terms)(const hark_dense_tile *tile, const float *queries, const float *key, int64_t key_stride,
                                           hark_dense_contextual_state *state);
/* dS -> the gradient of scale q.k, from the farthest tile of keys to the nearest; adds to dT. start: -infinity for
 * lanes that see no key. */
void HARK_ISA(hark_dense_contextual_differentiate)(const hark_dense_tile *tile, const float *start, float *dlogits,
                                                   hark_dense_contextual_state *state);
/* After all tiles of keys: the parts of dq / scale, [d][lanes], and of de. query_rows: [lanes][d padded], scaled. dquery NULL: not
 * requested. */
void HARK_ISA(hark_dense_contextual_finish)(const hark_dense_tile *tile, const float *query_rows, float *dquery,
                                            hark_dense_contextual_state *state);

/* The backward divides sequences into ranges, each of which has its own sum of de. The number depends on shapes alone. */
static inline int64_t hark_dense_contextual_ranges(int64_t sequences, int64_t key_heads) {
  return hark_max(1, hark_min(sequences, hark_ceil_div(32, hark_max(key_heads, 1))));
}
/* The first sequence of a range. */
static inline int64_t hark_dense_contextual_first(int64_t sequences, int64_t ranges, int64_t range) {
  return hark_ceil_div(range * sequences, ranges);
}
#endif
