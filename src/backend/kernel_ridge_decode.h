/* kernel_ridge_decode.h - the layout of the cache of kernel ridge (CME) attention that reads token by token, for every backend.
 *
 *     M = kappa(K, K) + lambda I + diag(noise) = R R^T,   U = R^-1 V        a new token is one row of R and one of U
 *
 * The triangle grows by bands of 16 rows, all heads of a band together. So the numbers of the first n tokens are at the beginning of the
 * cache, whatever its capacity. Within a band the rows of a head have the same length, zero after the diagonal:
 *
 *     band b:  [heads][16][16 (b + 1)]      bands 0 .. b hold (b + 1)(b + 2) / 2 tiles of 256 numbers per head
 *
 * Rows of U are padded to a multiple of 16 numbers per head, so that vectors do not reach into the next head.
 */
#ifndef HARK_BACKEND_KERNEL_RIDGE_DECODE_H
#define HARK_BACKEND_KERNEL_RIDGE_DECODE_H

#include <hark/operators.h>

#include "backend/ridge_terms.h"

#define HARK_RIDGE_BAND 16
#define HARK_RIDGE_BAND_TILE ((int64_t)HARK_RIDGE_BAND * HARK_RIDGE_BAND)

/* Inputs of the record. */
enum {
  HARK_RIDGE_DECODE_QUERY,
  HARK_RIDGE_DECODE_KEY,
  HARK_RIDGE_DECODE_VALUE,
  HARK_RIDGE_DECODE_CACHED_KEY,
  HARK_RIDGE_DECODE_SOLVED,
  HARK_RIDGE_DECODE_FACTOR,
  HARK_RIDGE_DECODE_LOG_RIDGE,
  HARK_RIDGE_DECODE_LOG_SIGMA,
  HARK_RIDGE_DECODE_LOG_KERNEL,
  HARK_RIDGE_DECODE_NOISE,
  HARK_RIDGE_DECODE_INPUTS
};

/* The largest capacity of a cache, in tokens: their triangle is far from overflow. */
#define HARK_RIDGE_DECODE_CAPACITY ((int64_t)1 << 28)

/* Tiles of 256 numbers per head for `rows` tokens. */
static inline int64_t hark_ridge_decode_tiles(int64_t rows) {
  const int64_t bands = hark_ceil_div(rows, HARK_RIDGE_BAND);
  return bands * (bands + 1) / 2;
}
/* Numbers of a row of U of one head. */
static inline int64_t hark_ridge_decode_width(int64_t value_dim) { return hark_ceil_div(value_dim, HARK_RIDGE_BAND) * HARK_RIDGE_BAND; }

/* Numbers from one row of R to the next in the band of row i, and the index at which row i of a head begins. */
static inline int64_t hark_ridge_decode_step(int64_t i) { return (i / HARK_RIDGE_BAND + 1) * HARK_RIDGE_BAND; }
static inline int64_t hark_ridge_decode_row(int64_t heads, int64_t head, int64_t i) {
  const int64_t band = i / HARK_RIDGE_BAND;
  return (band * (band + 1) / 2 * heads + head * (band + 1)) * HARK_RIDGE_BAND_TILE + i % HARK_RIDGE_BAND * hark_ridge_decode_step(i);
}

/* One head of a call. */
typedef struct hark_ridge_decode {
  const hark_call *call;
  const hark_kernel_ridge_decode_attributes *is;
  hark_ridge_record *record;
  int64_t head, key_head, rows, capacity, head_dim, value_dim, value_width;
  int64_t key_step, value_step, solved_step; /* from one token to the next: cached keys, values, U */
  int64_t table_row;                         /* index at which the head's log G begins */
  bool rbf, positional;
  hark_ridge_parameters parameters; /* set by hark_ridge_decode_read() */
  void *memory;                     /* scratch of the head */
} hark_ridge_decode;

/* Bytes of scratch: a record and memory for every head. Errors: HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_ridge_decode_workspace(hark_context *context, const hark_kernel_ridge_decode_attributes *is,
                                                        const hark_tensor *inputs, size_t *out);
/* A call with at least so many new rows processes them in blocks of HARK_RIDGE_DECODE_BLOCK, with two columns of scratch per row. */
#define HARK_RIDGE_DECODE_LEAST 8
#define HARK_RIDGE_DECODE_BLOCK 32

hark_ridge_decode hark_ridge_decode_open(const hark_call *call, int64_t head);
/* Ridge, sigma and table of the head; false, with the reason in the record, if one is out of range. */
bool hark_ridge_decode_read(hark_ridge_decode *d);
/* *out <- lambda and the noise of the key of a new row, which are added to its diagonal entry; false, with the reason in the record, if the
 * noise is out of range or both are 0. */
bool hark_ridge_decode_added(const hark_ridge_decode *d, int64_t row, double *out);
/* begin clears the records of all heads, and refuses a report in the memory of the call's tensors; end reports their troubles and mended
 * pivots. Errors of begin: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_ridge_decode_begin(hark_context *context, const hark_call *call);
hark_status hark_ridge_decode_end(hark_context *context, const hark_call *call);

#endif
