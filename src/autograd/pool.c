/* pool.c - first fit with merging of free neighbours. Cost of a request: linear in the pieces after the first free one, a few hundred in a
 * training step. */
#include "autograd/pool.h"

#include <string.h>

#include "backend/backend.h"

#define ENDLESS_BYTES ((size_t)1 << 60)
#define SMALLEST_BLOCK ((size_t)1 << 20)

hark_status hark_grow(hark_context *context, void **array, int32_t *capacity, int32_t needed, size_t element_bytes) {
  if (needed <= *capacity) return HARK_OK;
  const int32_t enough = (int32_t)hark_max(needed, hark_max(64, 2 * (int64_t)*capacity));
  void *grown = NULL;
  HARK_TRY(hark_allocate(context, (size_t)enough * element_bytes, &grown));
  if (*capacity > 0) memcpy(grown, *array, (size_t)*capacity * element_bytes);
  hark_release(context, *array, (size_t)*capacity * element_bytes);
  *array = grown;
  *capacity = enough;
  return HARK_OK;
}

static hark_status insert_piece(hark_pool *pool, int32_t at, hark_pool_piece piece) {
  HARK_TRY(hark_grow(pool->context, (void **)&pool->pieces, &pool->piece_capacity, pool->piece_count + 1, sizeof piece));
  memmove(pool->pieces + at + 1, pool->pieces + at, (size_t)(pool->piece_count - at) * sizeof piece);
  pool->pieces[at] = piece;
  pool->piece_count++;
  return HARK_OK;
}

static void remove_piece(hark_pool *pool, int32_t at) {
  pool->piece_count--;
  memmove(pool->pieces + at, pool->pieces + at + 1, (size_t)(pool->piece_count - at) * sizeof *pool->pieces);
}

static hark_status add_block(hark_pool *pool, size_t bytes) {
  HARK_TRY(hark_grow(pool->context, (void **)&pool->blocks, &pool->block_capacity, pool->block_count + 1, sizeof *pool->blocks));
  const hark_pool_piece piece = {.bytes = bytes, .block = pool->block_count, .free = true};
  HARK_TRY(insert_piece(pool, pool->piece_count, piece));
  hark_pool_block block = {.bytes = bytes};
  if (!pool->shape_only) {
    const hark_status status = hark_backend_allocate(pool->context, bytes, &block.memory);
    if (status != HARK_OK) {
      pool->piece_count--;
      return status;
    }
  }
  pool->blocks[pool->block_count++] = block;
  return HARK_OK;
}

static void drop_blocks(hark_pool *pool) {
  for (int32_t i = 0; i < pool->block_count; i++) hark_backend_release(pool->context, pool->blocks[i].memory, pool->blocks[i].bytes);
  pool->block_count = 0;
  pool->piece_count = pool->taken = 0;
}

void hark_pool_open(hark_pool *pool, hark_context *context, bool shape_only) {
  *pool = (hark_pool){.context = context, .shape_only = shape_only};
}

void hark_pool_close(hark_pool *pool) {
  drop_blocks(pool);
  hark_release(pool->context, pool->pieces, (size_t)pool->piece_capacity * sizeof *pool->pieces);
  hark_release(pool->context, pool->blocks, (size_t)pool->block_capacity * sizeof *pool->blocks);
  hark_pool_open(pool, pool->context, pool->shape_only);
}

static int32_t first_fit(hark_pool *pool, size_t bytes) {
  while (pool->taken < pool->piece_count && !pool->pieces[pool->taken].free) pool->taken++;
  for (int32_t i = pool->taken; i < pool->piece_count; i++)
    if (pool->pieces[i].free && pool->pieces[i].bytes >= bytes) return i;
  return -1;
}

hark_status hark_pool_take(hark_pool *pool, size_t bytes, hark_pool_memory *out) {
  *out = (hark_pool_memory){0};
  if (bytes == 0) return HARK_OK;
  if (bytes > ENDLESS_BYTES) return hark_fail(pool->context, HARK_TOO_LARGE, "a tensor of %zu bytes does not fit in memory", bytes);
  bytes = hark_align_up(bytes);
  int32_t at = first_fit(pool, bytes);
  if (at < 0) {
    HARK_TRY(add_block(pool, pool->shape_only ? ENDLESS_BYTES : (bytes > SMALLEST_BLOCK ? bytes : SMALLEST_BLOCK)));
    at = pool->piece_count - 1;
  }
  const hark_pool_piece rest = {
      .offset = pool->pieces[at].offset + bytes, .bytes = pool->pieces[at].bytes - bytes, .block = pool->pieces[at].block, .free = true};
  if (rest.bytes > 0) HARK_TRY(insert_piece(pool, at + 1, rest));
  hark_pool_piece *piece = &pool->pieces[at];
  piece->bytes = bytes;
  piece->free = false;
  if (piece->block == 0 && piece->offset + bytes > pool->peak_end) pool->peak_end = piece->offset + bytes;
  char *base = pool->blocks[piece->block].memory;
  *out = (hark_pool_memory){
      .memory = base != NULL ? base + piece->offset : NULL, .offset = piece->offset, .bytes = bytes, .block = piece->block};
  return HARK_OK;
}

void hark_pool_give(hark_pool *pool, const hark_pool_memory *memory) {
  if (memory->bytes == 0) return;
  int32_t low = 0, high = pool->piece_count - 1;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const hark_pool_piece *piece = &pool->pieces[middle];
    if (piece->block < memory->block || (piece->block == memory->block && piece->offset < memory->offset))
      low = middle + 1;
    else
      high = middle;
  }
  hark_pool_piece *piece = &pool->pieces[low];
  piece->free = true;
  if (low + 1 < pool->piece_count && pool->pieces[low + 1].free && pool->pieces[low + 1].block == piece->block) {
    piece->bytes += pool->pieces[low + 1].bytes;
    remove_piece(pool, low + 1);
  }
  if (low > 0 && pool->pieces[low - 1].free && pool->pieces[low - 1].block == pool->pieces[low].block) {
    pool->pieces[low - 1].bytes += pool->pieces[low].bytes;
    remove_piece(pool, low--);
  }
  pool->taken = (int32_t)hark_min(pool->taken, low);
}

hark_status hark_pool_reset(hark_pool *pool) {
  pool->piece_count = pool->taken = 0;
  for (int32_t i = 0; i < pool->block_count; i++)
    HARK_TRY(insert_piece(pool, i, (hark_pool_piece){.bytes = pool->blocks[i].bytes, .block = i, .free = true}));
  return HARK_OK;
}

hark_status hark_pool_prepare(hark_pool *pool, int32_t pieces) {
  HARK_TRY(hark_grow(pool->context, (void **)&pool->blocks, &pool->block_capacity, 1, sizeof *pool->blocks));
  return hark_grow(pool->context, (void **)&pool->pieces, &pool->piece_capacity, pieces, sizeof *pool->pieces);
}

hark_status hark_pool_reserve(hark_pool *pool, size_t bytes) {
  if (pool->block_count == 1 && pool->blocks[0].bytes >= bytes) return HARK_OK;
  drop_blocks(pool);
  return bytes > 0 ? add_block(pool, hark_align_up(bytes)) : HARK_OK;
}

size_t hark_pool_bytes(const hark_pool *pool) {
  size_t bytes = 0;
  for (int32_t i = 0; i < pool->block_count; i++) bytes += pool->blocks[i].bytes;
  return bytes;
}
