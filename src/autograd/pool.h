/* pool.h - memory of a tape: first fit over a few large blocks of the backend, in the order of addresses.
 *
 * The choice depends only on the sequence of requests. So a shape-only pool (one endless block without memory) finds exactly the size that
 * the same requests will need in one real block.
 */
#ifndef HARK_AUTOGRAD_POOL_H
#define HARK_AUTOGRAD_POOL_H

#include "core/core.h"

typedef struct hark_pool_piece {
  size_t offset; /* in its block */
  size_t bytes;
  int32_t block;
  bool free;
} hark_pool_piece;

typedef struct hark_pool_block {
  void *memory;
  size_t bytes;
} hark_pool_block;

typedef struct hark_pool {
  hark_context *context;
  bool shape_only;
  hark_pool_piece *pieces; /* by block, then offset */
  int32_t piece_count, piece_capacity;
  int32_t taken; /* no piece before this one is free */
  hark_pool_block *blocks;
  int32_t block_count, block_capacity;
  size_t peak_end; /* shape_only: the highest byte in use so far */
} hark_pool;

/* Bytes from the pool, and their place; bytes 0: nothing. */
typedef struct hark_pool_memory {
  void *memory;
  size_t offset, bytes;
  int32_t block;
} hark_pool_memory;

void hark_pool_open(hark_pool *pool, hark_context *context, bool shape_only);
void hark_pool_close(hark_pool *pool);

HARK_MUST_CHECK hark_status hark_pool_take(hark_pool *pool, size_t bytes, hark_pool_memory *out);
void hark_pool_give(hark_pool *pool, const hark_pool_memory *memory);

/* Frees everything. */
HARK_MUST_CHECK hark_status hark_pool_reset(hark_pool *pool);

/* Allocates the bookkeeping of one block with so many pieces, so that reserve allocates only the block. */
HARK_MUST_CHECK hark_status hark_pool_prepare(hark_pool *pool, int32_t pieces);

/* Makes the pool one block of at least `bytes`; everything must be free. */
HARK_MUST_CHECK hark_status hark_pool_reserve(hark_pool *pool, size_t bytes);

/* Bytes of all blocks. */
size_t hark_pool_bytes(const hark_pool *pool);

/* Makes room for one more element of a growing array of host memory. */
HARK_MUST_CHECK hark_status hark_grow(hark_context *context, void **array, int32_t *capacity, int32_t needed, size_t element_bytes);

#endif
