/* kernel_ridge_tile.h - one head of one sequence of kernel ridge attention in tiles: its memory, its kernels, its factor.
 *
 *     M = kappa(K, K) + lambda I + diag(noise) = U'U,   X = U'^-1 V
 *
 * Keys are padded to whole tiles. A padded or masked key is a row of zeros whose kernels are zero and whose diagonal entry is one: it has
 * no effect. Tiles of kernels are [keys][lanes]; lanes are keys or queries. Legend: n keys, padded to `tiles` tiles; d head_dim, dv
 * value_dim; dp, dvp the same padded to whole vectors.
 */
#ifndef HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_TILE_H
#define HARK_BACKEND_CPU_ISA_KERNEL_RIDGE_TILE_H

#include <float.h>
#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/ridge_terms.h"
#include "kernel_ridge_products.h"
#include "kernel_ridge_solver.h"

/* Columns of a solve that a thread processes at a time, if threads share a head. */
#define RIDGE_BLOCK_LANES 32
/* At least so many tiles of keys let threads share a head: with fewer, they would wait longer than they compute. */
#define RIDGE_LEAST_SHARED 3

/* Data of rows for squared distances of rbf, in successive tiles of 64. */
typedef struct ridge_places {
  float *alongs;   /* scale2 row.centre of the stored row, if the centre splits */
  float *kept;     /* 1: the centre was subtracted from the row; 0: it was not */
  float *longest;  /* per tile: root of the largest square */
  float *mixed;    /* per tile: 0 or 1: `kept` of all its rows; 2: differs among rows */
  double *lengths; /* 1 / |row| with unit rows, else 1 */
  float *given;    /* the rows as given, transposed: [d][64] per tile */
} ridge_places;

/* One side of a tile of kernels. */
typedef struct ridge_side {
  const float *lanes, *squares;
  bool keys;     /* keys, else queries */
  int64_t first; /* row of the sequence of the first one */
  int count;     /* number of existing rows */
} ridge_side;

/* Pairs of a tile whose gradients come from differences: bit `lane` of word i. */
typedef struct ridge_apart {
  uint64_t lanes[HARK_RIDGE_TILE];
} ridge_apart;

/* A kernel of the keys of low numerical rank (kernel_ridge_rank.c): K = L L' + E, M = L L' + D, C C' = I + L' D^-1 L. */
typedef struct ridge_rank {
  int rank, most;      /* columns of L; 0: the kernel has no low rank, and there is a factor */
  int64_t rows;        /* keys, padded to whole tiles */
  double *keys;        /* [d][rows]: keys over sigma sqrt 2 */
  double *diagonal;    /* [rows]: D */
  double *weights;     /* [rows]: 1 / D, 0 for padded and masked keys */
  double *left;        /* [rows]: the diagonal of E; at the end of the backward, of dM */
  double *factor;      /* L', [rank][rows]; at the end of the backward, G */
  double *inner;       /* C, [rank][most] */
  double *pivot_keys;  /* [rank][d] */
  double *pivot_rows;  /* rows of L at the pivots, [rank][most] */
  double *alpha;       /* M^-1 V, [dv][rows] */
  double *beta;        /* L' M^-1 V, [dv][most] */
  double *quadratic;   /* V' M^-1 V of each column, [dv] */
  double *scratch;     /* [2][rows] */
  double determinant;  /* log det M */
  double out_farthest; /* the largest kappa(q, q) - |w|^2 of a query for which its kernels with the pivots are enough for out, and */
  double farthest;     /* for its variance */
} ridge_rank;

/* The memory of one worker and its contents. Arrays that a plan does not need are NULL. */
typedef struct ridge_tiles {
  const hark_attention_call *run;
  const hark_attention_desc *desc;
  hark_context *context; /* not NULL if threads share the head */
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
  ridge_rank low;              /* its arrays are in the memory of the factor */
  float *key_rows, *key_lanes; /* [n][dp]; scale2 times that, per tile [d][64]; likewise queries */
  float *added;                /* [n]: lambda and the key's noise; NULL without noise */
  float *key_squares, *seen;   /* [n]: scale2 / 2 |k|^2 with rbf; 1 or 0 */
  float *centre;               /* [dp]: the first visible key, which has been subtracted from keys and queries */
  bool splits;                 /* only from those that are nearer to it than to zero */
  float centre_square;         /* scale2 / 2 |centre|^2 */
  ridge_places key_places, query_places;
  float *solved;         /* X or alpha, [n][dvp] */
  ridge_solver solver;   /* of a plan that iterates, which has no factor */
  double *products;      /* the same: V' M^-1 V of each column, [dv] */
  float *tables, *panel; /* panel: [n][64], one column of tiles */
  float *query_rows, *query_lanes, *query_squares;
  float *sums; /* forward: [64][dvp] */
  /* backward */
  float *matrix;         /* upper tiles of -2 dM; NULL if it comes from alpha and dV alone */
  float *kernels, *pair; /* [n][64]: kappa(K, Q), then ds; with `matrix` [n][128]: z and db, or columns w of two panels */
  float *turned, *work;  /* with `matrix`: [128][64]; full: a tile */
  float *weights;        /* full, with has_dvariance: [128]: - D of the columns in `pair` */
  float *dout_rows, *dout_lanes, *dquery;
  float *dkeys, *dvalues, *key_sums;       /* [n][dp], [n][dvp], [n]: sums of dkappa kappa by key */
  float *query_sums, *distances;           /* [64]; [128]: sums by distance in a tile */
  float *lanes_solved, *lanes_dvalues;     /* per tile [dv][64]; full */
  ridge_apart *panel_apart, *matrix_apart; /* rbf: of a panel's tiles; of the upper tiles of M */
  float *apart_dquery, *apart_dkeys;       /* rbf: contributions of such pairs, [64][dp], [n][dp] */
  double *apart_along;                     /* rbf: -sum of ds |x - y|^2 of such pairs of keys, by tile */
} ridge_tiles;

/* True if the backward sums dM in a separate triangle: queries of causal attention have separate systems, and variances and determinants
 * have contributions of full rank. Otherwise dM comes from alpha and dV alone. */
static inline bool ridge_has_matrix(const hark_attention_desc *desc) {
  return desc->causal || desc->has_dvariance != 0 || desc->has_dlog_determinant != 0;
}

/* True if systems are solved by conjugate gradients, without a factor. */
static inline bool ridge_iterates(const hark_attention_desc *desc) { return desc->solver == HARK_SOLVER_CONJUGATE_GRADIENTS; }

/* Runs tasks of a head, which threads may share. */
static inline void ridge_run(const ridge_tiles *h, int64_t count, hark_task *task, void *data) {
  if (h->context != NULL)
    hark_parallel_for(h->context, count, task, data);
  else
    for (int64_t index = 0; index < count; index++) task(data, index, 0);
}

/* Sets the arrays of h for a descriptor, from `memory` on (NULL: only counts); returns the number of floats. */
size_t HARK_ISA(hark_cpu_ridge_carve)(const hark_attention_desc *desc, bool backward, float *memory, ridge_tiles *h);

/* Floats of one worker, or HARK_TOO_LARGE. */
hark_status HARK_ISA(hark_cpu_ridge_floats)(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out);

/* Workspace:  [ records of workers | partial sums, in the backward | floats of workers ]. */
typedef struct ridge_workspace {
  hark_context *context;
  hark_ridge_record *records;
  double *partials;
  float *floats;
  size_t per_worker;
  bool backward;
} ridge_workspace;
ridge_workspace HARK_ISA(hark_cpu_ridge_workspace)(hark_context *context, const hark_attention_call *run, bool backward);

/* Reads keys and values, factorises, solves for X, in a worker's memory. With a context, all its threads compute, for the same bits. False
 * after trouble, which is in the record. */
bool HARK_ISA(hark_cpu_ridge_begin)(hark_context *context, const hark_attention_call *run, const ridge_workspace *memory, int64_t sequence,
                                    int64_t head, int worker, ridge_tiles *h);
/* The same head for a helping worker, with that worker's record and memory for one tile of queries. */
void HARK_ISA(hark_cpu_ridge_join)(const ridge_tiles *owner, int worker, ridge_tiles *h);
/* True if a sequence is long enough for threads to share a head. */
static inline bool ridge_is_long(const hark_attention_call *run) {
  for (int64_t s = 0; s < run->sequence_count; s++)
    if (hark_ridge_keys(&run->plan->desc, &run->sequences[s]) > (RIDGE_LEAST_SHARED - 1) * HARK_RIDGE_TILE) return true;
  return false;
}
/* True if threads share each head: there are fewer heads to compute than threads, and one of them is long enough. */
static inline bool ridge_shares(const hark_context *context, const hark_attention_call *run, int64_t pieces) {
  return pieces < hark_workers(context) && ridge_is_long(run);
}

/* The factor of M and X, from keys and values that have been read. A pivot that is not finite is in the record. */
void HARK_ISA(hark_cpu_ridge_factorise)(const ridge_tiles *h);

/* Forward of full attention without a factor, if the kernel of the keys has a low numerical rank (kernel_ridge_rank.c). The first finds
 * h->low, with rank 0 if there is none; the second stores all results of the head. */
void HARK_ISA(hark_cpu_ridge_find_rank)(ridge_tiles *h);
void HARK_ISA(hark_cpu_ridge_low_forward)(ridge_tiles *h);
/* The same for the backward (kernel_ridge_rank_backward.c): true if it is not causal, there is enough memory for its features, and with
 * dvariance there are not more queries than keys;
 * gradients of the head. */
bool HARK_ISA(hark_cpu_ridge_low_fits)(const ridge_tiles *h);
void HARK_ISA(hark_cpu_ridge_low_backward)(ridge_tiles *h, bool first, double *partial);

/* Backward (kernel_ridge_backward.c). Reads queries [row, row + count) and their dout, and sets their gradients to zero. */
bool HARK_ISA(hark_cpu_ridge_take_queries)(ridge_tiles *h, int64_t row, int count);
/* Store dquery of these rows, and dkey and dvalue (`first`: the first head of its key head; the other heads of the group add to its
 * gradients); return the sum of <x, dx>. */
double HARK_ISA(hark_cpu_ridge_store_queries)(const ridge_tiles *h, int64_t row, int count);
double HARK_ISA(hark_cpu_ridge_store_keys)(const ridge_tiles *h, bool first);

/* Queries [row, row + count) of the sequence; false, with a record, if one is not finite or out of range. */
bool HARK_ISA(hark_cpu_ridge_queries)(ridge_tiles *h, int64_t row, int count);

/* out[i][lane] = kappa of key `tile` 64 + i and a lane that is `delta` + lane - i positions after it. apart: NULL, or receives the pairs
 * whose gradients come from differences. */
void HARK_ISA(hark_cpu_ridge_gram)(const ridge_tiles *h, const ridge_side *side, int64_t tile, int64_t delta, float *out,
                                   ridge_apart *apart);
/* Kernels of two tiles of keys, first <= second. */
void HARK_ISA(hark_cpu_ridge_key_gram)(const ridge_tiles *h, int64_t first, int64_t second, float *out, ridge_apart *apart);
/* The exponent of kappa(q, q) G(0) of the query in row r of the panel, which starts at row `row` of the sequence; false, with a record, if
 * it is out of range. */
bool HARK_ISA(hark_cpu_ridge_own)(const ridge_tiles *h, int64_t row, int r, double *out);
ridge_side HARK_ISA(hark_cpu_ridge_query_side)(const ridge_tiles *h, int64_t row, int count);
ridge_side HARK_ISA(hark_cpu_ridge_key_side)(const ridge_tiles *h, int64_t tile);

/* rbf (kernel_ridge_distances.c). Computes the data of the rows of a side, which have been read. */
void HARK_ISA(hark_cpu_ridge_place)(const ridge_tiles *h, const ridge_side *side);
/* True if distances of the tile must be checked one by one. */
bool HARK_ISA(hark_cpu_ridge_is_loose)(const ridge_tiles *h, const ridge_side *side, int64_t tile);
/* Exponents of 2 of a loose tile: from products, or from differences if products are not exact enough. */
void HARK_ISA(hark_cpu_ridge_loose_exponents)(const ridge_tiles *h, const ridge_side *side, int64_t tile, float *out, ridge_apart *apart);
/* Copies the tile with zeros for ds of pairs in `apart`. */
void HARK_ISA(hark_cpu_ridge_without)(const float *ds, const ridge_apart *apart, float *copy);
/* Adds the gradients of those pairs to rows of one side (turned: the side's, otherwise the tile's keys); returns -sum of ds |x - y|^2. */
double HARK_ISA(hark_cpu_ridge_give_apart)(const ridge_tiles *h, const ridge_side *side, int64_t tile, const float *ds,
                                           const ridge_apart *apart, bool turned, float *to);

/* X <- U^-1 X over all keys. */
void HARK_ISA(hark_cpu_ridge_solve_back)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width);
void HARK_ISA(hark_cpu_ridge_solve)(const ridge_tiles *h, int64_t tiles, float *x, ptrdiff_t x_row, int width);

/* Rows of tile `tile` of Z = U'^-1 Z; the tiles before are done. Of rows i, lanes from i - above on are computed; the others may change. */
void HARK_ISA(hark_cpu_ridge_solve_rows)(const ridge_tiles *h, int64_t tile, float *z, ptrdiff_t z_row, int width, int above);

/* Sets entries to zero whose key `tile` 64 + i is after the query's position `first` + lane, for `width` lanes. */
void HARK_ISA(hark_cpu_ridge_hide)(int64_t tile, int64_t first, float *z, ptrdiff_t z_row, int width);

/* Backward by statistics (kernel_ridge_statistics.c). -2 dM += 2 w diag(weights) w' over the first `tiles` tiles of keys, with w the first
 * `lanes` lanes (64 or 128) of h->pair. */
void HARK_ISA(hark_cpu_ridge_add_outer)(const ridge_tiles *h, int64_t tiles, int lanes, const float *weights);
/* Adds the contributions of dlog_determinant to h->matrix. */
void HARK_ISA(hark_cpu_ridge_give_determinants)(const ridge_tiles *h);
/* Adds those of dquadratic, in which a row sees the first keys, to h->matrix and h->dvalues; X is in h->solved. */
void HARK_ISA(hark_cpu_ridge_give_prefixes)(const ridge_tiles *h);
/* dV += alpha diag(g), half of the contribution of dquadratic if all rows see all keys; alpha is in h->solved. */
void HARK_ISA(hark_cpu_ridge_add_quadratics)(const ridge_tiles *h);

/* Plans that iterate (kernel_ridge_conjugate.c). False with a record if a system is not solved. The first computes the preconditioner, and
 * alpha and `products` from the values in h->solved. */
bool HARK_ISA(hark_cpu_ridge_iterate)(ridge_tiles *h);
/* X <- M^-1 X of `width` columns in rows of `row` numbers. products: NULL, or receives X' M^-1 X of each. In a forward X is V, and out is
 * stored too. */
bool HARK_ISA(hark_cpu_ridge_iterate_rows)(ridge_tiles *h, float *rows, ptrdiff_t row, int width, double *products);
/* Stores the variances of all queries. */
bool HARK_ISA(hark_cpu_ridge_iterate_variances)(ridge_tiles *h);
double HARK_ISA(hark_cpu_ridge_iterate_determinant)(ridge_tiles *h);

hark_status HARK_ISA(hark_cpu_ridge_backward)(hark_context *context, const hark_attention_call *run);

/* The tile of the factor (and of `matrix`) in row i and column j, i <= j. */
static inline ptrdiff_t ridge_tile(const ridge_tiles *h, int64_t i, int64_t j) {
  return (ptrdiff_t)(i * h->tiles - i * (i - 1) / 2 + (j - i)) * HARK_RIDGE_TILE_FLOATS;
}

/* Tiles (i, j) of h->matrix, i <= j, += rows i of h->pair [n][128] times h->turned [depth][64]. */
static inline void ridge_add_turned(const ridge_tiles *h, int64_t j, int depth) {
  const ptrdiff_t row = 2 * HARK_RIDGE_TILE;
  for (int64_t i = 0; i <= j; i++) {
    const hark_ridge_product p = {.a = h->turned,
                                  .a_row = HARK_RIDGE_TILE,
                                  .b = h->pair + i * HARK_RIDGE_TILE * row,
                                  .b_row = row,
                                  .b_step = 1,
                                  .c = h->matrix + ridge_tile(h, i, j),
                                  .c_row = HARK_RIDGE_TILE,
                                  .rows = HARK_RIDGE_TILE,
                                  .depth = depth,
                                  .width = HARK_RIDGE_TILE,
                                  .next = i < j ? h->matrix + ridge_tile(h, i + 1, j) : NULL};
    hark_ridge_add(&p);
  }
}

/* Keys, with masked ones, and tiles of keys that queries up to `row` of the sequence see. */
static inline int64_t ridge_seen_keys(const ridge_tiles *h, int64_t row) {
  return h->desc->causal ? hark_max(0, hark_min(h->keys, row + h->sequence->offset + 1)) : h->keys;
}
static inline int64_t ridge_seen_tiles(const ridge_tiles *h, int64_t row) {
  return hark_ceil_div(ridge_seen_keys(h, row), HARK_RIDGE_TILE);
}

/* Queries from position `first` on see row i of a tile of keys in lanes from i - above on. HARK_RIDGE_TILE: all lanes see it. */
static inline int ridge_above(const ridge_tiles *h, int64_t tile, int64_t first) {
  const int64_t above = first - tile * HARK_RIDGE_TILE;
  return h->desc->causal && above < HARK_RIDGE_TILE - 1 ? (int)hark_max(above, -HARK_RIDGE_TILE) : HARK_RIDGE_TILE;
}

/* Rows from `row` of the sequence on of variance and other tensors [B, H, Lq]. */
static inline float *ridge_statistic(const ridge_tiles *h, const hark_tensor *tensor, int64_t row) {
  return (float *)tensor->data + (h->sequence->item * h->desc->heads + h->head) * tensor->shape[2] + h->sequence->query_row + row;
}

static inline float *ridge_row(const hark_tensor *tensor, const hark_attention_sequence *s, int64_t head, int64_t row) {
  return (float *)tensor->data + s->item * tensor->stride[0] + head * tensor->stride[1] + row * tensor->stride[2];
}

/* Full attention: the same quadratic forms, if they are requested, and log-determinant in all rows. */
static inline void ridge_store_quadratics(const ridge_tiles *h, const double *quadratic) {
  const hark_tensor *to = &h->run->args->quadratic;
  for (int64_t row = 0; row < h->sequence->query_count && to->type != HARK_NONE; row++)
    for (int64_t c = 0; c < h->desc->value_dim; c++)
      ridge_row(to, h->sequence, h->head, h->sequence->query_row + row)[c] = (float)(exp(-h->is.shift) * quadratic[c]);
}
static inline void ridge_store_determinant(const ridge_tiles *h, double determinant) {
  float *to = ridge_statistic(h, &h->run->args->log_determinant, 0);
  for (int64_t row = 0; row < h->sequence->query_count; row++) to[row] = (float)determinant;
}

#endif
