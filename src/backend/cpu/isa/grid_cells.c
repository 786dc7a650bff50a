/* grid_cells.c - the cells of a picture: means of keys and queries, sums of values, their gradients, and which cells a tile meets.
 *
 *     k_b = (1/c_b) sum k_i     v_b = sum v_i     c_b = number of real keys;     q_a alike over real queries
 *
 * level by level, a cell from its at most four children. Cost: O(L (d + dv)).
 */
#include <float.h>
#include <math.h>

#include "backend/cpu/isa/philox.h"
#include "grid_tile.h"

static float *take(float **next, int64_t count) {
  float *taken = *next;
  *next += count;
  return taken;
}

/* Cells of a picture: of all levels, of level 0, those that are rows, and rows above level 0. */
typedef struct cell_counts {
  int64_t all, fine, rows, coarse_rows;
} cell_counts;

static cell_counts count_cells(const hark_grid *g, bool exact) {
  const int64_t all = hark_grid_before(g, g->levels), fine = hark_grid_cells(g, 0);
  return (cell_counts){all, fine, exact ? fine : all, exact ? 0 : all - fine};
}

hark_status HARK_ISA(hark_grid_tree_floats)(hark_context *context, const hark_attention_desc *desc, int64_t length, bool backward,
                                            size_t *out) {
  const hark_grid g = hark_grid_make(desc, length);
  const cell_counts cells = count_cells(&g, desc->coarse_query == HARK_COARSE_QUERY_EXACT);
  const size_t d = hark_padded(desc->head_dim), dv = hark_padded(desc->value_dim);
  size_t rows, coarse;
  HARK_TRY(hark_size_multiply(context, d + dv + 1 + (backward ? d + dv : 0), (size_t)cells.all, out));
  HARK_TRY(hark_size_multiply(context, d + 1 + (backward ? d + dv + 2 + HARK_GRID_SUM_FLOATS : 0), (size_t)cells.rows, &rows));
  HARK_TRY(hark_size_multiply(context, backward ? 0 : dv + 2, (size_t)cells.coarse_rows, &coarse));
  HARK_TRY(hark_size_add(context, *out, rows, out));
  return hark_size_add(context, *out, coarse, out);
}

hark_grid_tree HARK_ISA(hark_grid_place_tree)(const hark_grid_call *call, int64_t sequence, int64_t key_head, float *memory) {
  hark_grid_tree tree = {.call = call, .sequence = &call->run->sequences[sequence], .key_head = key_head};
  tree.grid = hark_grid_make(call->desc, tree.sequence->query_count);
  const hark_grid *g = &tree.grid;
  for (int level = 0; level < g->levels; level++) {
    const int64_t height = hark_grid_height(g, level), width = hark_grid_width(g, level);
    tree.level[level] = (hark_grid_level){.first = hark_grid_before(g, level),
                                          .height = height,
                                          .width = width,
                                          .block_rows = hark_ceil_div(height, g->side),
                                          .block_columns = hark_ceil_div(width, g->side)};
  }
  const cell_counts cells = count_cells(g, call->exact);
  tree.key = take(&memory, cells.all * call->head_pad);
  tree.value = take(&memory, cells.all * call->value_pad);
  tree.key_count = take(&memory, cells.all);
  tree.query = take(&memory, cells.rows * call->head_pad);
  tree.query_count = take(&memory, cells.rows);
  if (!call->backward) {
    /* Indices count from the first cell of level 0. */
    tree.top = take(&memory, cells.coarse_rows);
    tree.sum = take(&memory, cells.coarse_rows);
    tree.mixed = take(&memory, cells.coarse_rows * call->value_pad);
    return tree;
  }
  tree.dkey = take(&memory, cells.all * call->head_pad);
  tree.dvalue = take(&memory, cells.all * call->value_pad);
  tree.g = take(&memory, cells.rows * call->value_pad);
  tree.least = take(&memory, cells.rows);
  tree.mean_gradient = take(&memory, cells.rows);
  tree.dquery = take(&memory, cells.rows * call->head_pad);
  tree.fine = take(&memory, cells.rows * HARK_GRID_SUM_FLOATS);
  return tree;
}

bool HARK_ISA(hark_grid_all_finite)(const hark_grid_tree *tree) {
  const hark_grid_call *call = tree->call;
  const int64_t cells = hark_grid_cells(&tree->grid, 0);
  for (int64_t cell = 0; cell < cells; cell += HARK_TILE_QUERIES) {
    const int count = hark_grid_clip(cells - cell, HARK_TILE_QUERIES);
    const bool finite = hark_rows_finite(tree->key + cell * call->head_pad, call->head_pad, count, call->head_dim) &&
                        hark_rows_finite(tree->value + cell * call->value_pad, call->value_pad, count, call->value_dim) &&
                        hark_rows_finite(tree->query + cell * call->head_pad, call->head_pad, count, call->head_dim) &&
                        (!call->backward || hark_rows_finite(tree->g + cell * call->value_pad, call->value_pad, count, call->value_dim));
    if (!finite) return false;
  }
  return true;
}

void HARK_ISA(hark_grid_find_places)(const hark_grid_tree *tree, const hark_grid_block *block, hark_grid_places *places) {
  const int half = (int)tree->grid.side / 2;
  for (int q = 0; q < 4; q++) {
    const int row = q / 2 * half, column = q % 2 * half, width = hark_grid_clip(block->width - column, half);
    for (int cell = block->part[q]; cell < block->part[q + 1]; cell++) {
      places->row[cell] = (uint8_t)(row + (cell - block->part[q]) / width);
      places->column[cell] = (uint8_t)(column + (cell - block->part[q]) % width);
    }
  }
}

int HARK_ISA(hark_grid_children)(const hark_grid_tree *tree, int level, const hark_grid_block *block, const hark_grid_places *places,
                                 int cell, int64_t children[4]) {
  const hark_grid_level *below = &tree->level[level - 1];
  const int64_t row = 2 * (block->row * tree->grid.side + places->row[cell]);
  const int64_t column = 2 * (block->column * tree->grid.side + places->column[cell]);
  int count = 0;
  for (int64_t r = row; r < hark_min(row + 2, below->height); r++)
    for (int64_t c = column; c < hark_min(column + 2, below->width); c++) children[count++] = hark_grid_index(tree, level - 1, r, c);
  return count;
}

/* ---- keys and queries ---- */

static const float *row_of(const hark_tensor *tensor, int64_t item, int64_t head, int64_t row) {
  return (const float *)tensor->data + item * tensor->stride[0] + head * tensor->stride[1] + row * tensor->stride[2];
}

static void copy_row(const float *from, int width, int padded, float *to) {
  memset(to, 0, (size_t)padded * sizeof *to);
  if (from != NULL) memcpy(to, from, (size_t)width * sizeof *to);
}

static bool is_key(const hark_grid_tree *tree, int64_t pixel) {
  const hark_tensor *mask = &tree->call->args->mask;
  if (pixel >= tree->sequence->key_count) return false;
  if (mask->type == HARK_NONE) return true;
  return ((const uint8_t *)mask->data)[tree->sequence->item * mask->stride[0] + (tree->sequence->key_row + pixel) * mask->stride[3]] != 0;
}

static bool is_query(const hark_grid_tree *tree, int64_t pixel) {
  const hark_tensor *mask = &tree->call->args->query_mask;
  if (pixel >= tree->grid.length) return false;
  if (mask->type == HARK_NONE) return true;
  return ((const uint8_t *)mask->data)[tree->sequence->item * mask->stride[0] + (tree->sequence->query_row + pixel) * mask->stride[1]] != 0;
}

/* to [padded] = sum of weight x over the children with a count above 0. */
static void join_rows(const float *rows, int padded, const float *weights, const int64_t *children, int count, float *to) {
  for (int c = 0; c < padded; c += HARK_LANES) {
    vf sum = vf_zero();
    for (int i = 0; i < count; i++)
      if (weights[i] != 0.0f) sum = vf_fma(vf_set(weights[i]), vf_load(rows + children[i] * padded + c), sum);
    vf_store(to + c, sum);
  }
}

/* count[index] = the sum of the children's; shares: 1 and each child's part of it, 0 of a child without any. */
static void join_counts(float *count, int64_t index, const int64_t *children, int child_count, float *shares, float *ones) {
  float sum = 0.0f;
  for (int i = 0; i < child_count; i++) sum += count[children[i]];
  count[index] = sum;
  for (int i = 0; i < child_count; i++) {
    ones[i] = count[children[i]] > 0.0f ? 1.0f : 0.0f;
    shares[i] = count[children[i]] > 0.0f ? count[children[i]] / sum : 0.0f;
  }
}

static void make_key(const hark_grid_tree *tree, int level, const hark_grid_block *block, const hark_grid_places *places, int cell) {
  const hark_grid_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t index = block->first + cell;
  float *key = tree->key + index * call->head_pad, *value = tree->value + index * call->value_pad;
  if (level == 0) {
    const int64_t pixel = hark_grid_pixel(tree, 0, block, places, cell), item = tree->sequence->item, row = tree->sequence->key_row + pixel;
    const bool real = is_key(tree, pixel);
    tree->key_count[index] = real ? 1.0f : 0.0f;
    copy_row(real ? row_of(&args->key, item, tree->key_head, row) : NULL, call->head_dim, call->head_pad, key);
    copy_row(real ? row_of(&args->value, item, tree->key_head, row) : NULL, call->value_dim, call->value_pad, value);
    return;
  }
  int64_t children[4];
  float shares[4], ones[4];
  const int count = HARK_ISA(hark_grid_children)(tree, level, block, places, cell, children);
  join_counts(tree->key_count, index, children, count, shares, ones);
  join_rows(tree->key, call->head_pad, shares, children, count, key);
  join_rows(tree->value, call->value_pad, ones, children, count, value);
}

void HARK_ISA(hark_grid_make_keys)(const hark_grid_tree *tree, int level, const hark_grid_block *block) {
  const hark_grid_call *call = tree->call;
  hark_grid_places places;
  HARK_ISA(hark_grid_find_places)(tree, block, &places);
  for (int cell = 0; cell < block->part[4]; cell++) make_key(tree, level, block, &places, cell);
  if (!call->backward) return;
  memset(tree->dkey + block->first * call->head_pad, 0, (size_t)block->part[4] * (size_t)call->head_pad * sizeof(float));
  memset(tree->dvalue + block->first * call->value_pad, 0, (size_t)block->part[4] * (size_t)call->value_pad * sizeof(float));
}

void HARK_ISA(hark_grid_make_queries)(const hark_grid_tree *tree, int level, const hark_grid_block *block) {
  const hark_grid_call *call = tree->call;
  hark_grid_places places;
  HARK_ISA(hark_grid_find_places)(tree, block, &places);
  for (int cell = 0; cell < block->part[4]; cell++) {
    const int64_t index = block->first + cell;
    float *query = tree->query + index * call->head_pad;
    if (level == 0) {
      const int64_t pixel = hark_grid_pixel(tree, 0, block, &places, cell), row = tree->sequence->query_row + pixel;
      const bool real = is_query(tree, pixel);
      tree->query_count[index] = real ? 1.0f : 0.0f;
      copy_row(real ? row_of(&call->args->query, tree->sequence->item, tree->head, row) : NULL, call->head_dim, call->head_pad, query);
      continue;
    }
    int64_t children[4];
    float shares[4], ones[4];
    const int count = HARK_ISA(hark_grid_children)(tree, level, block, &places, cell, children);
    join_counts(tree->query_count, index, children, count, shares, ones);
    join_rows(tree->query, call->head_pad, shares, children, count, query);
  }
}

/* ---- the backward's data of rows ---- */

/* Sets m to a given log-sum-exp, or if that has lost digits, to the one of the row's logits. A row that sees nothing has m = infinity, so
 * that its weights are 0. */
static void begin_least(const hark_grid_tree *tree, int64_t index, int64_t pixel, float log_sum) {
  float least = log_sum == -INFINITY ? INFINITY : log_sum * HARK_LOG2_E;
  hark_grid_sum sum = {(double)least, 0.0f};
  if (hark_grid_is_fine(least)) {
    const hark_grid_sum exact = HARK_ISA(hark_grid_exact_sum)(tree, pixel);
    if (isfinite(exact.top)) {
      sum = exact;
      least = hark_finite_log_sum(exact.top + (double)exact.log_sum);
    }
  }
  tree->least[index] = least;
  hark_grid_set_sum(tree, index, sum);
}

/* m = lse, g = dout, D = dout . out of a row. */
static void begin_row(const hark_grid_tree *tree, int64_t index, int64_t pixel) {
  const hark_grid_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, row = tree->sequence->query_row + pixel;
  float *g = tree->g + index * call->value_pad;
  float log_sum = -INFINITY;
  if (tree->query_count[index] > 0.0f)
    log_sum = ((const float *)args->log_sum_exp.data)[(item * call->desc->heads + tree->head) * args->query.shape[2] + row];
  const bool sees = log_sum != -INFINITY;
  begin_least(tree, index, pixel, log_sum);
  tree->mean_gradient[index] = 0.0f;
  copy_row(sees ? row_of(&args->dout, item, tree->head, row) : NULL, call->value_dim, call->value_pad, g);
  if (!sees) return;
  const float *out = row_of(&args->out, item, tree->head, row);
  float sum = 0.0f;
  for (int c = 0; c < call->value_dim; c++) sum += g[c] * out[c];
  tree->mean_gradient[index] = sum;
}

/* Log-sum-exp a minus b, in units of log 2. */
static double sum_difference(hark_grid_sum a, hark_grid_sum b) { return (a.top - b.top) + ((double)a.log_sum - (double)b.log_sum); }

/* Sets m to the least of the children's. A NaN is less than any number. */
static void join_least(const hark_grid_tree *tree, int64_t index, const int64_t *children, int count) {
  int least = 0;
  for (int i = 1; i < count && !isnan(tree->least[children[least]]); i++) {
    const float m = tree->least[children[i]];
    if (m == INFINITY) continue;
    const bool first = tree->least[children[least]] == INFINITY;
    if (first || isnan(m) || sum_difference(hark_grid_sum_of(tree, children[i]), hark_grid_sum_of(tree, children[least])) < 0.0) least = i;
  }
  tree->least[index] = tree->least[children[least]];
  hark_grid_set_sum(tree, index, hark_grid_sum_of(tree, children[least]));
}

/* 2^(m - m of the child): above 0 if the child's gradient is not finite, so that it is not lost. */
static float child_weight(const hark_grid_tree *tree, hark_grid_sum least, int64_t child) {
  float lanes[HARK_LANES];
  if (tree->least[child] == INFINITY) return 0.0f;
  vf_store(lanes, vf_exp2(vf_set((float)sum_difference(least, hark_grid_sum_of(tree, child)))));
  return lanes[0] == 0.0f && !isfinite(tree->mean_gradient[child]) ? FLT_MIN : lanes[0];
}

/* m = the least of the children's, g and D = sums of theirs times 2^(m - m of the child). */
static void join_children(const hark_grid_tree *tree, int64_t index, const int64_t *children, int count) {
  const int padded = tree->call->value_pad;
  float weights[4] = {0}, sum = 0.0f;
  join_least(tree, index, children, count);
  for (int i = 0; i < count; i++) {
    weights[i] = child_weight(tree, hark_grid_sum_of(tree, index), children[i]);
    if (weights[i] != 0.0f) sum += weights[i] * tree->mean_gradient[children[i]];
  }
  tree->mean_gradient[index] = sum;
  join_rows(tree->g, padded, weights, children, count, tree->g + index * padded);
}

void HARK_ISA(hark_grid_make_gradients)(const hark_grid_tree *tree, int level, const hark_grid_block *block) {
  hark_grid_places places;
  HARK_ISA(hark_grid_find_places)(tree, block, &places);
  for (int cell = 0; cell < block->part[4]; cell++) {
    if (level == 0) {
      begin_row(tree, block->first + cell, hark_grid_pixel(tree, 0, block, &places, cell));
      continue;
    }
    int64_t children[4];
    const int count = HARK_ISA(hark_grid_children)(tree, level, block, &places, cell, children);
    join_children(tree, block->first + cell, children, count);
  }
}

/* ---- gradients of keys ---- */

static void give_row(const float *from, int width, bool add, const hark_tensor *to, int64_t item, int64_t head, int64_t row) {
  if (to->type == HARK_NONE) return;
  float *target = (float *)to->data + item * to->stride[0] + head * to->stride[1] + row * to->stride[2];
  for (int c = 0; c < width; c++) target[c] = add ? target[c] + from[c] : from[c];
}

void HARK_ISA(hark_grid_give_keys)(const hark_grid_tree *tree, int level, const hark_grid_block *block) {
  const hark_grid_call *call = tree->call;
  const hark_attention_args *args = call->args;
  hark_grid_places places;
  HARK_ISA(hark_grid_find_places)(tree, block, &places);
  for (int cell = 0; cell < block->part[4]; cell++) {
    const int64_t index = block->first + cell;
    float *dkey = tree->dkey + index * call->head_pad, *dvalue = tree->dvalue + index * call->value_pad;
    if (level + 1 < tree->grid.levels && tree->key_count[index] > 0.0f) {
      const int64_t parent = hark_grid_parent(tree, level, block, &places, cell);
      const float share = tree->key_count[index] / tree->key_count[parent];
      for (int c = 0; c < call->head_dim; c++) dkey[c] += share * tree->dkey[parent * call->head_pad + c];
      for (int c = 0; c < call->value_dim; c++) dvalue[c] += tree->dvalue[parent * call->value_pad + c];
    }
    if (level > 0) continue;
    const int64_t pixel = hark_grid_pixel(tree, 0, block, &places, cell), item = tree->sequence->item;
    if (pixel >= tree->sequence->key_count) continue;
    give_row(dkey, call->head_dim, args->accumulate & HARK_ACCUMULATE_KEY, &args->dkey, item, tree->key_head,
             tree->sequence->key_row + pixel);
    give_row(dvalue, call->value_dim, args->accumulate & HARK_ACCUMULATE_VALUE, &args->dvalue, item, tree->key_head,
             tree->sequence->key_row + pixel);
  }
}

/* ---- which cells a tile meets ---- */

/* The tile's block among those of a level of keys: the block of the rows, or with exact queries the one that contains it. */
static void block_at(const hark_grid_tile *tile, int key_level, int64_t *row, int64_t *column) {
  *row = tile->block.row >> (key_level - tile->level);
  *column = tile->block.column >> (key_level - tile->level);
}

static bool has_keys(const hark_grid_tree *tree, const hark_grid_block *block) {
  for (int cell = 0; cell < block->part[4]; cell++)
    if (tree->key_count[block->first + cell] > 0.0f) return true;
  return false;
}

bool HARK_ISA(hark_grid_next_chunk)(const hark_grid_tile *tile, int key_level, int *next, hark_grid_chunk *chunk) {
  const hark_grid_level *level = &tile->tree->level[key_level];
  const int room = hark_grid_chunk_keys(tile->tree->call->desc->hierarchy_block);
  int64_t own_row, own_column;
  block_at(tile, key_level, &own_row, &own_column);
  chunk->blocks = chunk->slot[0] = 0;
  for (; *next < HARK_GRID_NEIGHBOURS; ++*next) {
    const int64_t row = own_row + *next / 3 - 1, column = own_column + *next % 3 - 1;
    if (row < 0 || row >= level->block_rows || column < 0 || column >= level->block_columns) continue;
    if (key_level > 0 && row == own_row && column == own_column) continue; /* all its cells are near */
    const hark_grid_block block = hark_grid_block_of(tile->tree, key_level, row, column);
    if (!has_keys(tile->tree, &block)) continue;
    if (chunk->slot[chunk->blocks] + block.part[4] > room) break;
    chunk->block[chunk->blocks] = block;
    chunk->slot[chunk->blocks + 1] = chunk->slot[chunk->blocks] + block.part[4];
    chunk->blocks++;
  }
  return chunk->blocks > 0;
}

/* The lanes of a tile in each quarter of its block of the level of keys; with exact queries all are in one. */
static void lanes_of_quarters(const hark_grid_tile *tile, int key_level, int lanes[5]) {
  const int up = key_level - tile->level;
  const int own = up == 0 ? 0 : (int)(tile->block.row >> (up - 1) & 1) * 2 + (int)(tile->block.column >> (up - 1) & 1);
  for (int q = 0; q <= 4; q++)
    lanes[q] = up > 0 ? (q <= own ? 0 : tile->count) : hark_grid_clip(tile->block.part[q] - tile->first, tile->count);
}

/* Masks what is near: quarters of the keys' block and of the rows' block that are the same or touch are blocks of the level below. */
static void mask_near(const int lanes[5], int64_t row, int64_t column, const hark_grid_block *keys, float value, float *entries) {
  for (int k = 0; k < 4; k++)
    for (int q = 0; q < 4; q++) {
      const int64_t rows = 2 * (keys->row - row) + k / 2 - q / 2, columns = 2 * (keys->column - column) + k % 2 - q % 2;
      if (rows < -1 || rows > 1 || columns < -1 || columns > 1) continue;
      for (int key = keys->part[k]; key < keys->part[k + 1]; key++)
        for (int lane = lanes[q]; lane < lanes[q + 1]; lane++) entries[(ptrdiff_t)key * HARK_TILE_QUERIES + lane] = value;
    }
}

void HARK_ISA(hark_grid_mask)(const hark_grid_tile *tile, int key_level, const hark_grid_chunk *chunk, float value, float *entries) {
  int lanes[5];
  int64_t row, column;
  lanes_of_quarters(tile, key_level, lanes);
  block_at(tile, key_level, &row, &column);
  for (int b = 0; b < chunk->blocks; b++) {
    const hark_grid_block *keys = &chunk->block[b];
    float *block_entries = entries + (ptrdiff_t)chunk->slot[b] * HARK_TILE_QUERIES;
    if (key_level > 0) mask_near(lanes, row, column, keys, value, block_entries);
    for (int key = 0; key < keys->part[4]; key++)
      if (tile->tree->key_count[keys->first + key] == 0.0f)
        for (int lane = 0; lane < tile->count; lane++) block_entries[(ptrdiff_t)key * HARK_TILE_QUERIES + lane] = value;
  }
}

/* Of one vector of lanes and one block of keys. */
static void kept_of_block(const hark_grid_tile *tile, int key_level, const hark_grid_block *keys, int lane, float *factors) {
  const hark_grid_tree *tree = tile->tree;
  const hark_grid_call *call = tree->call;
  const hark_random_stream *stream = &call->args->dropout;
  const uint64_t plane = (uint64_t)(tree->sequence->item * call->desc->heads + tree->head) << 23;
  hark_grid_places places;
  uint64_t rows[HARK_LANES], quad = UINT64_MAX;
  vu words[4] = {vu_set(0), vu_set(0), vu_set(0), vu_set(0)};
  HARK_ISA(hark_grid_find_places)(tree, keys, &places);
  for (int i = 0; i < HARK_LANES; i++) {
    const int cell = hark_grid_clip(tile->first + lane + i, tile->block.part[4] - 1);
    rows[i] = (plane + (uint64_t)(tree->sequence->query_row + hark_grid_pixel(tree, tile->level, &tile->block, &tile->places, cell))) << 21;
  }
  for (int key = 0; key < keys->part[4]; key++) {
    const uint64_t column = (uint64_t)(tree->sequence->key_row + hark_grid_pixel(tree, key_level, keys, &places, key));
    if (column / 4 != quad) {
      uint32_t low[HARK_LANES], high[HARK_LANES];
      quad = column / 4;
      for (int i = 0; i < HARK_LANES; i++) {
        const uint64_t counter = rows[i] + quad + stream->first_index;
        low[i] = (uint32_t)counter;
        high[i] = (uint32_t)(counter >> 32);
      }
      words[0] = vu_load(low);
      words[1] = vu_load(high);
      words[2] = vu_set(stream->micro_step);
      words[3] = vu_set(stream->layer_purpose);
      philox(stream->seed, words);
    }
    const vm dropped = vu_less(words[column % 4], vu_set(call->dropout_threshold));
    vf_store(factors + (ptrdiff_t)key * HARK_TILE_QUERIES + lane, vf_select(dropped, vf_zero(), vf_set(call->dropout_gain)));
  }
}

void HARK_ISA(hark_grid_kept)(const hark_grid_tile *tile, int key_level, const hark_grid_chunk *chunk, float *factors) {
  for (int b = 0; b < chunk->blocks; b++)
    for (int lane = 0; lane < tile->count; lane += HARK_LANES)
      kept_of_block(tile, key_level, &chunk->block[b], lane, factors + (ptrdiff_t)chunk->slot[b] * HARK_TILE_QUERIES);
}
