/* grid_attention.c - the algorithm "grid tiled": hierarchical attention over pictures in f32, O(pixels) time and memory.
 *
 * This file: what is supported, the layout of memory, the division of the work. grid_cells.c computes cells, grid_forward.c and
 * grid_backward.c contain the loops over tiles, dense_products.h the micro-kernels.
 *
 * If there are at least as many (sequence, key head)s as threads, each is computed by one thread with a separate tree. Otherwise they are
 * computed one after another, each by all threads, stage by stage: a stage computes the blocks of a level in pieces. In the backward,
 * pieces of one colour meet separate keys, so that the pieces of a colour may run at the same time, one colour after another. Pieces depend
 * on sizes alone, and every sum has one order, so that the bits depend neither on the way nor on the number of threads. With exact queries
 * the pieces are those of the keys' level: on the coarsest level, of at most 2 x 2 blocks, one thread computes the backward of a head.
 *
 * Scratch: trees, one or one per worker | tiles per worker.
 */
#include <inttypes.h>
#include <stdio.h>

#include "grid_tile.h"
#include "pair_trees.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->grid_columns == 0)
    reason = "grid_columns is 0";
  else if (desc->normalisation != HARK_NORMALISATION_SOFTMAX)
    reason = "normalisation is not softmax";
  else if (desc->type != HARK_F32)
    reason = "type is not f32";
  else if (desc->kernel != HARK_KERNEL_EXP)
    reason = "kernel is not exp";
  else if (desc->hierarchy_block > HARK_GRID_MOST_BLOCK)
    reason = "hierarchy_block is above 256";
  else if (desc->head_dim > INT32_MAX / HARK_TILE_QUERIES || desc->value_dim > INT32_MAX / HARK_TILE_QUERIES)
    reason = "head_dim or value_dim is too large";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

typedef struct scratch_layout {
  size_t tree_bytes, worker_bytes;
  size_t workers, bytes; /* offset of the workers' tiles, and all bytes */
} scratch_layout;

static hark_status lay_out(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, scratch_layout *out) {
  size_t floats, tiles;
  HARK_TRY(HARK_ISA(hark_grid_tree_floats)(context, desc, desc->longest, backward, &floats));
  HARK_TRY(hark_whole_lines(context, floats, sizeof(float), &out->tree_bytes));
  floats = backward ? HARK_ISA(hark_grid_backward_floats)(desc) : HARK_ISA(hark_grid_forward_floats)(desc);
  HARK_TRY(hark_whole_lines(context, floats, sizeof(float), &out->worker_bytes));
  HARK_TRY(hark_size_multiply(context, out->tree_bytes, (size_t)hark_count_trees(desc, workers), &out->workers));
  HARK_TRY(hark_size_multiply(context, out->worker_bytes, (size_t)workers, &tiles));
  return hark_size_add(context, out->workers, tiles, &out->bytes);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  scratch_layout forward, backward = {0};
  HARK_TRY(lay_out(context, desc, workers, false, &forward));
  if (!desc->forward_only) HARK_TRY(lay_out(context, desc, workers, true, &backward));
  *out = (hark_attention_sizes){.saved = 0, .forward_workspace = forward.bytes, .backward_workspace = backward.bytes};
  return HARK_OK;
}

/* ---- stages ---- */

typedef struct stage_work {
  const hark_grid_tree *tree;
  hark_grid_stage stage;
  int level;
  int64_t first_row, first_column, step; /* of the pieces: those of a colour, or all */
  int64_t columns;                       /* pieces in a row of them */
} stage_work;

static void run_block(const hark_grid_tree *tree, hark_grid_stage stage, int level, const hark_grid_block *block, int worker) {
  float *memory = (float *)(void *)(tree->call->workers + (size_t)worker * tree->call->worker_bytes);
  switch (stage) {
    case GRID_KEYS: HARK_ISA(hark_grid_make_keys)(tree, level, block); break;
    case GRID_QUERIES: HARK_ISA(hark_grid_make_queries)(tree, level, block); break;
    case GRID_FORWARD: HARK_ISA(hark_grid_forward)(tree, level, block, memory); break;
    case GRID_GRADIENTS: HARK_ISA(hark_grid_make_gradients)(tree, level, block); break;
    case GRID_BACKWARD: HARK_ISA(hark_grid_backward)(tree, level, block, memory); break;
    case GRID_GIVE_KEYS: HARK_ISA(hark_grid_give_keys)(tree, level, block); break;
  }
}

static void run_piece(void *data, int64_t index, int worker) {
  const stage_work *work = data;
  const hark_grid_level *level = &work->tree->level[work->level];
  const int64_t side = hark_grid_piece_side(&work->tree->grid);
  const int64_t row = (work->first_row + index / work->columns * work->step) * side;
  const int64_t column = (work->first_column + index % work->columns * work->step) * side;
  for (int64_t r = row; r < hark_min(row + side, level->block_rows); r++)
    for (int64_t c = column; c < hark_min(column + side, level->block_columns); c++) {
      const hark_grid_block block = hark_grid_block_of(work->tree, work->level, r, c);
      run_block(work->tree, work->stage, work->level, &block, worker);
    }
}

/* The pieces of a stage of one colour, or with colour -1 all. worker: of the calling task, or -1: all threads share the pieces. */
static void run_colour(const hark_grid_tree *tree, hark_grid_stage stage, int level, int colour, int worker) {
  const int64_t side = hark_grid_piece_side(&tree->grid);
  const int64_t rows = hark_ceil_div(tree->level[level].block_rows, side), columns = hark_ceil_div(tree->level[level].block_columns, side);
  stage_work work = {.tree = tree, .stage = stage, .level = level, .step = colour < 0 ? 1 : 2};
  work.first_row = colour < 0 ? 0 : colour / 2;
  work.first_column = colour < 0 ? 0 : colour % 2;
  if (work.first_row >= rows || work.first_column >= columns) return;
  work.columns = hark_ceil_div(columns - work.first_column, work.step);
  const int64_t count = hark_ceil_div(rows - work.first_row, work.step) * work.columns;
  hark_run_tasks(tree->call->context, count, run_piece, &work, worker);
}

static void run_stage(const hark_grid_tree *tree, hark_grid_stage stage, int level, int worker) {
  if (stage != GRID_BACKWARD) {
    run_colour(tree, stage, level, -1, worker);
    return;
  }
  for (int colour = 0; colour < 4; colour++) run_colour(tree, stage, level, colour, worker);
}

/* One head whose keys are there. Rows have all levels, with exact queries one. */
static void run_head(hark_grid_tree *tree, int64_t head, int worker) {
  const int levels = tree->grid.levels, row_levels = tree->call->exact ? 1 : levels;
  tree->head = head;
  for (int level = 0; level < row_levels; level++) run_stage(tree, GRID_QUERIES, level, worker);
  if (!tree->call->backward) {
    tree->finite = HARK_ISA(hark_grid_all_finite)(tree);
    for (int level = row_levels - 1; level >= 0; level--) run_stage(tree, GRID_FORWARD, level, worker);
    return;
  }
  for (int level = 0; level < row_levels; level++) run_stage(tree, GRID_GRADIENTS, level, worker);
  tree->finite = HARK_ISA(hark_grid_all_finite)(tree);
  for (int level = levels - 1; level >= 0; level--) run_stage(tree, GRID_BACKWARD, level, worker);
}

/* worker: of the calling task, or -1: all threads share the work. */
static void run_pair(void *data, int64_t index, int worker) {
  const hark_grid_call *call = data;
  float *memory = (float *)(void *)(call->trees + (worker < 0 ? 0 : (size_t)worker * call->tree_bytes));
  const int64_t key_heads = call->desc->key_heads, group = call->desc->heads / key_heads, key_head = index % key_heads;
  hark_grid_tree tree = HARK_ISA(hark_grid_place_tree)(call, index / key_heads, key_head, memory);
  if (tree.grid.length == 0) return;
  for (int level = 0; level < tree.grid.levels; level++) run_stage(&tree, GRID_KEYS, level, worker);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) run_head(&tree, head, worker);
  for (int level = tree.grid.levels - 1; call->backward && level >= 0; level--) run_stage(&tree, GRID_GIVE_KEYS, level, worker);
}

static hark_status execute(hark_context *context, const hark_attention_call *run, bool backward) {
  const hark_attention_desc *desc = &run->plan->desc;
  scratch_layout layout;
  HARK_TRY(lay_out(context, desc, run->plan->workers, backward, &layout));
  hark_grid_call call = {.context = context,
                         .run = run,
                         .desc = desc,
                         .args = run->args,
                         .backward = backward,
                         .exact = desc->coarse_query == HARK_COARSE_QUERY_EXACT,
                         .head_dim = (int)desc->head_dim,
                         .value_dim = (int)desc->value_dim,
                         .head_pad = (int)hark_padded(desc->head_dim),
                         .value_pad = (int)hark_padded(desc->value_dim),
                         .scale = (float)desc->scale,
                         .dropout_threshold = hark_random_threshold(desc->dropout),
                         .dropout_gain = (float)(1 / (1 - desc->dropout)),
                         .trees = run->scratch,
                         .workers = (char *)run->scratch + layout.workers,
                         .tree_bytes = layout.tree_bytes,
                         .worker_bytes = layout.worker_bytes};
  hark_run_pairs(context, run, run_pair, &call);
  return HARK_OK;
}

static hark_status forward(hark_context *context, const hark_attention_call *call) { return execute(context, call, false); }
static hark_status backward(hark_context *context, const hark_attention_call *call) { return execute(context, call, true); }

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "tiles of up to %d queries of a block, trees %" PRId64 ", %d lanes", HARK_TILE_QUERIES,
                  hark_count_trees(&plan->desc, plan->workers), HARK_LANES);
}

extern const hark_attention_algorithm HARK_ISA(hark_cpu_grid);
const hark_attention_algorithm HARK_ISA(hark_cpu_grid) = {
    .name = "grid tiled",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
    .print = print,
};
