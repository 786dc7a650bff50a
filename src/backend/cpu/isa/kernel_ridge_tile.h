/* kernel_ridge_tile.h - one head of one sequence of kernel ridge attention in tiles: its memory, its kernels, its factor.
 *
 *     M = kappa(K, K) + lambda I = U'U,   X = U'^-1 V
 *
 * Keys are padded to whole tiles. A padded or masked key is a row of zeros whose kernels are zero and whose diagonal entry is one: it takes no
 * part. Tiles of kernels are [keys][lanes], lanes being keys or queries.
 * Legend: n keys, padded to `tiles` tiles; d head_dim, dv value_dim; dp, dvp the same padded to whole vectors.
 */
#ifndef HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_TILE_H
#define HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_TILE_H

#include <float.h>
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/kernel_ridge.h"
#include "kernel_ridge_products.h"

/* Columns of a solve that a thread takes at a time, where threads share a head. */
#define RIDGE_BLOCK_LANES 32
/* Tiles of keys from which on threads share a head: for fewer they would wait longer than they work. */
#define RIDGE_LEAST_SHARED 3

/* The memory of one worker and what it holds. Arrays that a plan has no use for are NULL. */
typedef struct ridge_tiles {
  const hark_attention_run *run;
  const hark_attention_desc *desc;
  hark_context *context; /* NULL, or where threads share the head */
  const struct ridge_workspace *memory;
  const hark_attention_sequence *sequence;
  hark_ridge_record *record;
  int64_t head, key_head, system, keys, tiles, visible;
  int dp, dvp;
  bool rbf;
  hark_ridge_parameters is;
  double longest;       /* key */
  float scale2, shift2; /* of exponents of 2 */
  const float *table;   /* log2 G(|t|) at t, which may be negative; or NULL */

  float *factor, *reciprocal;  /* upper tiles; 1 / diagonal */
  float *key_rows, *key_lanes; /* [n][dp]; scale2 times that, a tile [d][64] each; likewise queries */
  float *key_squares, *seen;   /* [n]: scale2 / 2 |k|^2 with rbf; 1 or 0 */
  float *centre;               /* [dp]: what has been taken from keys and queries */
  float *solved;               /* X or alpha, [n][dvp] */
  float *tables, *panel;       /* panel: [n][64], one column of tiles */
  float *query_rows, *query_lanes, *query_squares;
  float *sums; /* forward: [64][dvp] */
  /* backward */
  float *matrix;         /* upper tiles of -2 dM; causal */
  float *kernels, *pair; /* [n][64]: kappa(K, Q), then ds; [n][128]: z and db, causal */
  float *turned, *work;  /* causal: [128][64]; full: a tile */
  float *dout_rows, *dout_lanes, *dquery;
  float *dkeys, *dvalues, *key_sums;   /* [n][dp], [n][dvp], [n]: sums of dkappa kappa by key */
  float *query_sums, *distances;       /* [64]; [128]: sums by distance in a tile */
  float *lanes_solved, *lanes_dvalues; /* a tile [dv][64] each; full */
} ridge_tiles;

/* Sets the arrays of h for a descriptor, from `memory` on (NULL: only the count); returns the floats. */
size_t HARK_ISA(hark_cpu_ridge_carve)(const hark_attention_desc *desc, bool backward, float *memory, ridge_tiles *h);

/* Floats of one worker, or HARK_TOO_LARGE. */
hark_status HARK_ISA(hark_cpu_ridge_floats)(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out);

/* Workspace:  [ records of workers | partial sums, in the backward | floats of workers ]. */
typedef struct ridge_workspace {
  hark_ridge_record *records;
  double *partials;
  float *floats;
  size_t per_worker;
  bool backward;
} ridge_workspace;
ridge_workspace HARK_ISA(hark_cpu_ridge_workspace)(hark_context *context, const hark_attention_run *run, bool backward);

/* Reads keys and values, factorises, solves for X, in a worker's memory. With a context by all its threads, for the same bits. False: there was
 * trouble, which has been noted. */
bool HARK_ISA(hark_cpu_ridge_begin)(hark_context *context, const hark_attention_run *run, const ridge_workspace *memory, int64_t sequence,
                                    int64_t head, int worker, ridge_tiles *h);
/* The same head for a worker that helps: with its record and its memory for one tile of queries. */
void HARK_ISA(hark_cpu_ridge_join)(const ridge_tiles *owner, int worker, ridge_tiles *h);
/* Whether there are fewer heads to compute than threads, which then share each of them: where any is long enough for that. */
static inline bool ridge_shares(const hark_context *context, const hark_attention_run *run, int64_t pieces) {
  if (pieces >= hark_workers(context)) return false;
  for (int64_t s = 0; s < run->sequence_count; s++)
    if (hark_ridge_keys(&run->plan->desc, &run->sequences[s]) > (RIDGE_LEAST_SHARED - 1) * HARK_RIDGE_TILE) return true;
  return false;
}

/* Queries [row, row + count) of the sequence; false with a note when one is not finite or out of range. */
bool HARK_ISA(hark_cpu_ridge_queries)(ridge_tiles *h, int64_t row, int count);

/* out[i][lane] = kappa of key `tile` 64 + i and a lane that stands `delta` + lane - i positions behind it. */
void HARK_ISA(hark_cpu_ridge_gram)(const ridge_tiles *h, const float *lanes, const float *squares, int64_t tile, int64_t delta, float *out);
/* Kernels of two tiles of keys, first <= second. */
void HARK_ISA(hark_cpu_ridge_key_gram)(const ridge_tiles *h, int64_t first, int64_t second, float *out);

/* X <- U^-1 X over all keys. */
void HARK_ISA(hark_cpu_ridge_solve_back)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width);
void HARK_ISA(hark_cpu_ridge_solve)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width);

/* Rows of tile `tile` of Z = U'^-1 Z, those of the tiles before being there; of rows i in lanes from i - above on, the others may be changed. */
void HARK_ISA(hark_cpu_ridge_solve_rows)(const ridge_tiles *h, int64_t tile, float *z, ptrdiff_t z_row, int width, int above);

/* Zeros where key tile 64 + i stands behind the position `first` + lane of a query, of `width` lanes. */
void HARK_ISA(hark_cpu_ridge_hide)(int64_t tile, int64_t first, float *z, ptrdiff_t z_row, int width);

hark_status HARK_ISA(hark_cpu_ridge_backward)(hark_context *context, const hark_attention_run *run);

/* The tile of the factor (and of `matrix`) in row i and column j, i <= j. */
static inline ptrdiff_t ridge_tile(const ridge_tiles *h, int64_t i, int64_t j) {
  return (ptrdiff_t)(i * h->tiles - i * (i - 1) / 2 + (j - i)) * HARK_RIDGE_TILE_FLOATS;
}

/* Keys that queries up to `row` of the sequence see, in tiles. */
static inline int64_t ridge_seen_tiles(const ridge_tiles *h, int64_t row) {
  if (!h->desc->causal) return h->tiles;
  const int64_t keys = hark_max(0, hark_min(h->keys, row + h->sequence->offset + 1));
  return hark_ceil_div(keys, HARK_RIDGE_TILE);
}

/* Row i of a tile of keys is seen in lanes from i - above on by queries whose first one stands at `first`; HARK_RIDGE_TILE: by all. */
static inline int ridge_above(const ridge_tiles *h, int64_t tile, int64_t first) {
  const int64_t above = first - tile * HARK_RIDGE_TILE;
  return h->desc->causal && above < HARK_RIDGE_TILE - 1 ? (int)hark_max(above, -HARK_RIDGE_TILE) : HARK_RIDGE_TILE;
}

static inline float *ridge_row(const hark_tensor *tensor, const hark_attention_sequence *s, int64_t head, int64_t row) {
  return (float *)tensor->data + s->item * tensor->stride[0] + head * tensor->stride[1] + row * tensor->stride[2];
}

#endif
