/* grid_forward.c - forward of hierarchical attention over pictures: from the coarsest level down, tile by tile.
 *
 *     (m, Z, Y)[l][row] = (m, Z, Y)[l+1][the cell that contains it] + entries of the row on level l,      out = Y[0] / Z[0]
 *
 * m is the running maximum of a row's logits; Z and Y are relative to 2^m. The sums of the levels above 0 are stored. With exact queries a
 * tile of pixels visits all levels. Cost: d + dv multiply-adds per entry; above level 0, 5 of 32 entries of a row are computed and masked.
 */
#include <math.h>

#include "grid_tile.h"

typedef struct forward_work {
  const hark_grid_tile *tile;
  float *queries; /* [d][lanes] */
  float *logits;  /* [keys of a chunk][lanes] */
  float *kept;    /* dropout's factors, of the same shape */
  float *mixed;   /* Y, [lanes][dv padded] */
  float top[HARK_TILE_QUERIES], sum[HARK_TILE_QUERIES];
} forward_work;

size_t HARK_ISA(hark_grid_forward_floats)(const hark_attention_desc *desc) {
  const size_t keys = (size_t)hark_grid_chunk_keys(desc->hierarchy_block);
  const size_t lanes = (size_t)desc->head_dim + keys + (desc->dropout > 0 ? keys : 0) + hark_padded(desc->value_dim);
  return lanes * HARK_TILE_QUERIES;
}

/* The sums of the cells that contain the rows; of nothing on the coarsest level and with exact queries. */
static void begin_tile(forward_work *work) {
  const hark_grid_tile *tile = work->tile;
  const hark_grid_tree *tree = tile->tree;
  const hark_grid_call *call = tree->call;
  const bool begins = call->exact || tile->level + 1 == tree->grid.levels;
  hark_pack_transposed(tree->query + hark_grid_row(tile) * call->head_pad, call->head_pad, tile->count, call->head_dim,
                       call->scale * HARK_LOG2_E, work->queries);
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    work->top[lane] = -INFINITY;
    work->sum[lane] = 0.0f;
  }
  if (begins) memset(work->mixed, 0, (size_t)tile->count * (size_t)call->value_pad * sizeof(float));
  for (int row = 0; !begins && row < tile->count; row++) {
    const int64_t parent = hark_grid_parent(tree, tile->level, &tile->block, &tile->places, tile->first + row) - tree->level[1].first;
    work->top[row] = tree->top[parent];
    work->sum[row] = tree->sum[parent];
    memcpy(work->mixed + (ptrdiff_t)row * call->value_pad, tree->mixed + parent * call->value_pad, (size_t)call->value_pad * sizeof(float));
  }
}

static void chunk_logits(const forward_work *work, int key_level, const hark_grid_chunk *chunk) {
  static const float zeros[HARK_TILE_QUERIES] = {0};
  const hark_grid_tree *tree = work->tile->tree;
  const hark_grid_call *call = tree->call;
  for (int b = 0; b < chunk->blocks;) {
    const int end = hark_grid_end_of_run(chunk, b);
    const hark_product p = {.a = work->queries,
                            .a_step = HARK_TILE_QUERIES,
                            .b = tree->key + chunk->block[b].first * call->head_pad,
                            .b_row = call->head_pad,
                            .b_step = 1,
                            .c = work->logits + (ptrdiff_t)chunk->slot[b] * HARK_TILE_QUERIES,
                            .c_row = HARK_TILE_QUERIES,
                            .rows = chunk->slot[end] - chunk->slot[b],
                            .end = call->head_dim,
                            .start = zeros};
    hark_tile_scores(&p, hark_grid_vectors(work->tile));
    b = end;
  }
  HARK_ISA(hark_grid_mask)(work->tile, key_level, chunk, -INFINITY, work->logits);
}

/* Makes the sums of a vector of lanes relative to the maximum of their old logits and those of the chunk; returns what logits are relative
 * to, and in `factor` what Y is to be multiplied by. */
static vf raise_top(forward_work *work, const hark_grid_chunk *chunk, int lane, float *factor) {
  const vf old = vf_load(work->top + lane);
  vf top = old;
  for (int key = 0; key < chunk->slot[chunk->blocks]; key++)
    top = vf_max(top, vf_load(work->logits + (ptrdiff_t)key * HARK_TILE_QUERIES + lane));
  const vf base = vf_select(vf_equal(top, vf_set(-INFINITY)), vf_zero(), top);
  const vf smaller = vf_exp2(old - base);
  vf_store(factor + lane, smaller);
  vf_store(work->top + lane, top);
  vf_store(work->sum + lane, vf_load(work->sum + lane) * smaller);
  return base;
}

/* Weights in place of logits, their sums, and Y times its factor. */
static void chunk_weights(forward_work *work, int key_level, const hark_grid_chunk *chunk) {
  const hark_grid_tree *tree = work->tile->tree;
  const hark_grid_call *call = tree->call;
  const bool drops = call->dropout_threshold > 0;
  float factor[HARK_TILE_QUERIES];
  if (drops) HARK_ISA(hark_grid_kept)(work->tile, key_level, chunk, work->kept);
  for (int lane = 0; lane < work->tile->count; lane += HARK_LANES) {
    const vf base = raise_top(work, chunk, lane, factor);
    vf sum = vf_load(work->sum + lane);
    for (int b = 0; b < chunk->blocks; b++)
      for (int key = chunk->slot[b]; key < chunk->slot[b + 1]; key++) {
        float *at = work->logits + (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
        const vf logit = vf_load(at);
        vf weight = vf_exp2(logit - base);
        sum = vf_fma(weight, vf_set(tree->key_count[chunk->block[b].first + key - chunk->slot[b]]), sum);
        if (!tree->finite) weight = hark_seen_weight(weight, logit);
        if (drops) weight = weight * vf_load(work->kept + (ptrdiff_t)key * HARK_TILE_QUERIES + lane);
        vf_store(at, weight);
      }
    vf_store(work->sum + lane, sum);
  }
  for (int row = 0; row < work->tile->count; row++) {
    float *mixed = work->mixed + (ptrdiff_t)row * call->value_pad;
    for (int c = 0; factor[row] != 1.0f && c < call->value_pad; c += HARK_LANES)
      vf_store(mixed + c, vf_set(factor[row]) * vf_load(mixed + c));
  }
}

static void mix_chunk(const forward_work *work, const hark_grid_chunk *chunk) {
  const hark_grid_tree *tree = work->tile->tree;
  const hark_grid_call *call = tree->call;
  for (int b = 0; b < chunk->blocks;) {
    const int end = hark_grid_end_of_run(chunk, b);
    const hark_product p = {.a = tree->value + chunk->block[b].first * call->value_pad,
                            .a_step = call->value_pad,
                            .b = work->logits + (ptrdiff_t)chunk->slot[b] * HARK_TILE_QUERIES,
                            .b_row = 1,
                            .b_step = HARK_TILE_QUERIES,
                            .c = work->mixed,
                            .c_row = call->value_pad,
                            .rows = work->tile->count,
                            .end = chunk->slot[end] - chunk->slot[b]};
    hark_grid_spread(tree, &p, call->value_pad);
    b = end;
  }
}

/* out and log_sum_exp of pixels. */
static void write_rows(const forward_work *work) {
  const hark_grid_tile *tile = work->tile;
  const hark_grid_tree *tree = tile->tree;
  const hark_grid_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, row = tree->sequence->query_row;
  float log_sum[HARK_TILE_QUERIES];
  for (int lane = 0; lane < tile->count; lane += HARK_LANES)
    vf_store(log_sum + lane, vf_fma(vf_load(work->top + lane), vf_set(HARK_LN_2), vf_log(vf_load(work->sum + lane))));
  for (int r = 0; r < tile->count; r++) {
    const int64_t pixel = hark_grid_pixel(tree, 0, &tile->block, &tile->places, tile->first + r);
    if (pixel >= tree->grid.length) continue;
    const bool sees = tree->query_count[hark_grid_row(tile) + r] > 0.0f && work->sum[r] != 0.0f;
    float *out =
        (float *)args->out.data + item * args->out.stride[0] + tree->head * args->out.stride[1] + (row + pixel) * args->out.stride[2];
    const float *mixed = work->mixed + (ptrdiff_t)r * call->value_pad, gain = sees ? 1.0f / work->sum[r] : 0.0f;
    for (int c = 0; c < call->value_dim; c++) out[c] = sees ? gain * mixed[c] : 0.0f;
    if (args->log_sum_exp.data == NULL) continue;
    ((float *)args->log_sum_exp.data)[(item * call->desc->heads + tree->head) * args->query.shape[2] + row + pixel] =
        sees ? log_sum[r] : -INFINITY;
  }
}

static void finish_tile(const forward_work *work) {
  const hark_grid_tile *tile = work->tile;
  const hark_grid_tree *tree = tile->tree;
  const int value_pad = tree->call->value_pad;
  if (tile->level == 0) {
    write_rows(work);
    return;
  }
  const int64_t state = hark_grid_row(tile) - tree->level[1].first;
  memcpy(tree->top + state, work->top, (size_t)tile->count * sizeof(float));
  memcpy(tree->sum + state, work->sum, (size_t)tile->count * sizeof(float));
  memcpy(tree->mixed + state * value_pad, work->mixed, (size_t)tile->count * (size_t)value_pad * sizeof(float));
}

void HARK_ISA(hark_grid_forward)(const hark_grid_tree *tree, int level, const hark_grid_block *block, float *memory) {
  const hark_attention_desc *desc = tree->call->desc;
  const size_t keys = (size_t)hark_grid_chunk_keys(desc->hierarchy_block) * HARK_TILE_QUERIES;
  hark_grid_tile tile = {.tree = tree, .level = level, .block = *block};
  forward_work work = {.tile = &tile, .queries = memory};
  work.logits = work.queries + (size_t)desc->head_dim * HARK_TILE_QUERIES;
  work.mixed = work.logits + keys;
  work.kept = work.mixed + (size_t)tree->call->value_pad * HARK_TILE_QUERIES; /* with dropout */
  HARK_ISA(hark_grid_find_places)(tree, block, &tile.places);
  for (; tile.first < block->part[4]; tile.first += HARK_TILE_QUERIES) {
    tile.count = hark_grid_clip(block->part[4] - tile.first, HARK_TILE_QUERIES);
    begin_tile(&work);
    for (int key_level = tree->call->exact ? tree->grid.levels - 1 : level; key_level >= level; key_level--) {
      hark_grid_chunk chunk;
      int next = 0;
      while (HARK_ISA(hark_grid_next_chunk)(&tile, key_level, &next, &chunk)) {
        chunk_logits(&work, key_level, &chunk);
        chunk_weights(&work, key_level, &chunk);
        mix_chunk(&work, &chunk);
      }
    }
    finish_tile(&work);
  }
}
