/* grid_backward.c - backward of hierarchical attention over pictures, tile by tile, from the coarsest level of keys down.
 *
 * out[n] = sum of F P v_b over the entries of pixel n, P = e^(s - lse[n]), D[n] = dout[n] . out[n]. A query a of level l has the sums over
 * its pixels n (grid_cells.c):
 *
 *     m_a = min over n of lse[n]     g_a = sum_n e^(m_a - lse[n]) dout[n]     D_a = sum_n e^(m_a - lse[n]) D[n]
 *
 *     P = e^(s - m_a) <= 1 / c_b     dS = P (F g_a . v_b - c_b D_a)     dv_b += F P g_a     dq_a += scale dS k_b     dk_b += scale dS q_a
 *
 * F: dropout's factor. The gradient of a query is its own plus its share of that of the cell of the level above, which is complete before.
 * Cost: 3 d + 2 dv multiply-adds per entry.
 */
#include <math.h>

#include "grid_tile.h"

typedef struct backward_work {
  const hark_grid_tile *tile;
  float *queries, *g;        /* [d][lanes], [dv][lanes] */
  float *weights, *products; /* P or logits minus m, and g.v; then F P and scale dS: [keys of a chunk][lanes] */
  float *kept;               /* dropout's factors, of the same shape */
  float start[HARK_TILE_QUERIES], mean_gradient[HARK_TILE_QUERIES];
  bool is_fine[HARK_TILE_QUERIES]; /* lanes whose logits are float64 */
  float lost[HARK_TILE_QUERIES];   /* 1 of rows whose query, g or D is not finite, otherwise 0 */
  bool any_fine, by_logits;        /* by_logits: `weights` are logits at first */
} backward_work;

size_t HARK_ISA(hark_grid_backward_floats)(const hark_attention_desc *desc) {
  const size_t keys = (size_t)hark_grid_chunk_keys(desc->hierarchy_block);
  return ((size_t)desc->head_dim + (size_t)desc->value_dim + 2 * keys + (desc->dropout > 0 ? keys : 0)) * HARK_TILE_QUERIES;
}

/* Gradients of queries begin with their share of those of the cells above; with exact queries, at zero on the coarsest level. */
static void begin_queries(const hark_grid_tile *tile, int key_level) {
  const hark_grid_tree *tree = tile->tree;
  const int pad = tree->call->head_pad;
  const bool coarsest = key_level + 1 == tree->grid.levels;
  if (tree->call->exact && !coarsest) return;
  for (int row = 0; row < tile->count; row++) {
    const int64_t index = hark_grid_row(tile) + row;
    float *to = tree->dquery + index * pad;
    if (coarsest || tree->query_count[index] == 0.0f) {
      memset(to, 0, (size_t)pad * sizeof *to);
      continue;
    }
    const int64_t parent = hark_grid_parent(tree, tile->level, &tile->block, &tile->places, tile->first + row);
    const vf share = vf_set(tree->query_count[index] / tree->query_count[parent]);
    for (int c = 0; c < pad; c += HARK_LANES) vf_store(to + c, share * vf_load(tree->dquery + parent * pad + c));
  }
}

static bool row_is_finite(const hark_grid_tree *tree, int64_t row) {
  const hark_grid_call *call = tree->call;
  return isfinite(tree->mean_gradient[row]) && hark_rows_finite(tree->query + row * call->head_pad, 0, 1, call->head_dim) &&
         hark_rows_finite(tree->g + row * call->value_pad, 0, 1, call->value_dim);
}

static void begin_tile(backward_work *work, int key_level) {
  const hark_grid_tile *tile = work->tile;
  const hark_grid_tree *tree = tile->tree;
  const hark_grid_call *call = tree->call;
  const int64_t row = hark_grid_row(tile);
  hark_pack_transposed(tree->query + row * call->head_pad, call->head_pad, tile->count, call->head_dim, call->scale * HARK_LOG2_E,
                       work->queries);
  hark_pack_transposed(tree->g + row * call->value_pad, call->value_pad, tile->count, call->value_dim, 1.0f, work->g);
  work->any_fine = false;
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    work->start[lane] = lane < tile->count ? -tree->least[row + lane] : -INFINITY;
    work->is_fine[lane] = lane < tile->count && hark_grid_is_fine(tree->least[row + lane]);
    work->any_fine = work->any_fine || work->is_fine[lane];
    if (work->is_fine[lane]) work->start[lane] = 0.0f; /* its logits are replaced */
    work->mean_gradient[lane] = lane < tile->count ? tree->mean_gradient[row + lane] : 0.0f;
    work->lost[lane] = !tree->finite && lane < tile->count && !row_is_finite(tree, row + lane) ? 1.0f : 0.0f;
  }
  work->by_logits = work->any_fine || !tree->finite; /* next to values that are not finite, visible entries must not have weight 0 */
  begin_queries(tile, key_level);
}

/* Logits minus m of fine lanes and one key. */
static void fine_logits(const backward_work *work, int64_t key, float *logits) {
  const hark_grid_tile *tile = work->tile;
  for (int lane = 0; lane < tile->count; lane++) {
    const int64_t row = hark_grid_row(tile) + lane;
    if (!work->is_fine[lane]) continue;
    const hark_grid_sum least = hark_grid_sum_of(tile->tree, row);
    logits[lane] = (float)((hark_grid_exact_logit(tile->tree, row, key) - least.top) - (double)least.log_sum);
  }
}

/* P or logits, and g.v of all entries of a chunk. */
static void chunk_products(const backward_work *work, int key_level, const hark_grid_chunk *chunk) {
  static const float zeros[HARK_TILE_QUERIES] = {0};
  const hark_grid_tree *tree = work->tile->tree;
  const hark_grid_call *call = tree->call;
  int b = 0;
  while (b < chunk->blocks) {
    const int end = hark_grid_end_of_run(chunk, b);
    const ptrdiff_t at = (ptrdiff_t)chunk->slot[b] * HARK_TILE_QUERIES;
    hark_product p = {.a = work->queries,
                      .a_step = HARK_TILE_QUERIES,
                      .b = tree->key + chunk->block[b].first * call->head_pad,
                      .b_row = call->head_pad,
                      .b_step = 1,
                      .c = work->weights + at,
                      .c_row = HARK_TILE_QUERIES,
                      .rows = chunk->slot[end] - chunk->slot[b],
                      .end = call->head_dim,
                      .start = work->start};
    if (work->by_logits)
      hark_tile_scores(&p, hark_grid_vectors(work->tile));
    else
      hark_tile_weights(&p, hark_grid_vectors(work->tile));
    p.a = work->g;
    p.b = tree->value + chunk->block[b].first * call->value_pad;
    p.b_row = call->value_pad;
    p.c = work->products + at;
    p.end = call->value_dim;
    p.start = zeros;
    hark_tile_scores(&p, hark_grid_vectors(work->tile));
    b = end;
  }
  for (b = 0; work->any_fine && b < chunk->blocks; b++)
    for (int key = chunk->slot[b]; key < chunk->slot[b + 1]; key++)
      fine_logits(work, chunk->block[b].first + key - chunk->slot[b], work->weights + (ptrdiff_t)key * HARK_TILE_QUERIES);
  HARK_ISA(hark_grid_mask)(work->tile, key_level, chunk, work->by_logits ? -INFINITY : 0.0f, work->weights);
}

/* products <- scale dS = scale P (F g.v - c D), weights <- F P. */
static void chunk_gradients(const backward_work *work, int key_level, const hark_grid_chunk *chunk) {
  const hark_grid_tree *tree = work->tile->tree;
  const bool drops = tree->call->dropout_threshold > 0;
  const vf scale = vf_set(tree->call->scale);
  float most[HARK_GRID_MOST_BLOCK]; /* a key's rows together have at most weight 1; masked keys have count 0 and weight 0 */
  for (int b = 0; b < chunk->blocks; b++)
    for (int key = chunk->slot[b]; key < chunk->slot[b + 1]; key++)
      most[key] = 1.0f / tree->key_count[chunk->block[b].first + key - chunk->slot[b]];
  if (drops) HARK_ISA(hark_grid_kept)(work->tile, key_level, chunk, work->kept);
  for (int lane = 0; lane < work->tile->count; lane += HARK_LANES) {
    const vf mean = vf_load(work->mean_gradient + lane);
    const vm blind = vf_equal(vf_load(work->start + lane), vf_set(-INFINITY));
    const vm lost = vf_equal(vf_load(work->lost + lane), vf_set(1.0f));
    for (int b = 0; b < chunk->blocks; b++)
      for (int key = chunk->slot[b]; key < chunk->slot[b + 1]; key++) {
        const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES + lane;
        const vf count = vf_set(tree->key_count[chunk->block[b].first + key - chunk->slot[b]]), x = vf_load(work->weights + at);
        vf weight = vf_not_above(work->by_logits ? vf_exp2(vf_not_above(x, vf_zero())) : x, vf_set(most[key]));
        vm seen = vm_not(vf_equal(weight, vf_zero()));
        if (!tree->finite) { /* a row that sees nothing has no weights, not even of keys that are NaN */
          seen = vm_not(vm_or(blind, vf_equal(x, vf_set(-INFINITY))));
          weight = vf_select(seen, vf_select(lost, hark_seen_weight(weight, x), weight), vf_zero());
        }
        vf product = vf_load(work->products + at), kept = weight;
        if (drops) hark_apply_dropout(work->kept + at, &kept, &product);
        vf_store(work->weights + at, kept);
        const vf gradient = scale * (weight * (product - count * mean));
        vf_store(work->products + at, vf_select(seen, gradient, vf_zero())); /* hidden: 0, whatever is there */
      }
  }
}

/* dv_b += F P g_a, dk_b += scale dS q_a, dq_a += scale dS k_b. */
static void spread_chunk(const backward_work *work, const hark_grid_chunk *chunk) {
  const hark_grid_tile *tile = work->tile;
  const hark_grid_tree *tree = tile->tree;
  const hark_grid_call *call = tree->call;
  const int64_t row = hark_grid_row(tile);
  for (int b = 0; b < chunk->blocks;) {
    const int end = hark_grid_end_of_run(chunk, b), keys = chunk->slot[end] - chunk->slot[b];
    const int64_t key = chunk->block[b].first;
    const ptrdiff_t at = (ptrdiff_t)chunk->slot[b] * HARK_TILE_QUERIES;
    hark_product p = {.a = tree->g + row * call->value_pad,
                      .a_step = call->value_pad,
                      .b = work->weights + at,
                      .b_row = HARK_TILE_QUERIES,
                      .b_step = 1,
                      .c = tree->dvalue + key * call->value_pad,
                      .c_row = call->value_pad,
                      .rows = keys,
                      .end = tile->count};
    hark_grid_spread(tree, &p, call->value_pad);
    p.a = tree->query + row * call->head_pad;
    p.a_step = p.c_row = call->head_pad;
    p.b = work->products + at;
    p.c = tree->dkey + key * call->head_pad;
    hark_grid_spread(tree, &p, call->head_pad);
    p.a = tree->key + key * call->head_pad;
    p.b_row = 1;
    p.b_step = HARK_TILE_QUERIES;
    p.c = tree->dquery + row * call->head_pad;
    p.rows = tile->count;
    p.end = keys;
    hark_grid_spread(tree, &p, call->head_pad);
    b = end;
  }
}

/* Gradients of pixels, which are complete after level 0, to the caller's memory. */
static void give_queries(const hark_grid_tile *tile) {
  const hark_grid_tree *tree = tile->tree;
  const hark_grid_call *call = tree->call;
  const hark_tensor *dquery = &call->args->dquery;
  const bool add = call->args->accumulate & HARK_ACCUMULATE_QUERY;
  for (int row = 0; dquery->type != HARK_NONE && row < tile->count; row++) {
    const int64_t pixel = hark_grid_pixel(tree, 0, &tile->block, &tile->places, tile->first + row);
    if (pixel >= tree->grid.length) continue;
    const float *from = tree->dquery + (hark_grid_row(tile) + row) * call->head_pad;
    float *to = (float *)dquery->data + tree->sequence->item * dquery->stride[0] + tree->head * dquery->stride[1] +
                (tree->sequence->query_row + pixel) * dquery->stride[2];
    for (int c = 0; c < call->head_dim; c++) to[c] = add ? to[c] + from[c] : from[c];
  }
}

/* All rows of a block of `level` that meet keys of key_level. */
static void backward_rows(backward_work *work, hark_grid_tile *tile, int key_level) {
  HARK_ISA(hark_grid_find_places)(tile->tree, &tile->block, &tile->places);
  for (tile->first = 0; tile->first < tile->block.part[4]; tile->first += HARK_TILE_QUERIES) {
    tile->count = hark_grid_clip(tile->block.part[4] - tile->first, HARK_TILE_QUERIES);
    begin_tile(work, key_level);
    hark_grid_chunk chunk;
    int next = 0;
    while (HARK_ISA(hark_grid_next_chunk)(tile, key_level, &next, &chunk)) {
      chunk_products(work, key_level, &chunk);
      chunk_gradients(work, key_level, &chunk);
      spread_chunk(work, &chunk);
    }
    if (key_level == 0) give_queries(tile);
  }
}

void HARK_ISA(hark_grid_backward)(const hark_grid_tree *tree, int key_level, const hark_grid_block *block, float *memory) {
  const hark_attention_desc *desc = tree->call->desc;
  const size_t keys = (size_t)hark_grid_chunk_keys(desc->hierarchy_block) * HARK_TILE_QUERIES;
  const int up = tree->call->exact ? key_level : 0;
  hark_grid_tile tile = {.tree = tree, .level = key_level - up};
  backward_work work = {.tile = &tile, .queries = memory};
  work.g = work.queries + (size_t)desc->head_dim * HARK_TILE_QUERIES;
  work.weights = work.g + (size_t)desc->value_dim * HARK_TILE_QUERIES;
  work.products = work.weights + keys;
  work.kept = work.products + keys; /* with dropout */
  const hark_grid_level *rows = &tree->level[tile.level];
  for (int64_t row = block->row << up; row < hark_min((block->row + 1) << up, rows->block_rows); row++)
    for (int64_t column = block->column << up; column < hark_min((block->column + 1) << up, rows->block_columns); column++) {
      tile.block = hark_grid_block_of(tree, tile.level, row, column);
      backward_rows(&work, &tile, key_level);
    }
}
