/* compressed_attention.c - the algorithm "compressed tiled": compressed attention in f32.
 *
 *     out[n] = sum over entries e^s v / sum over entries e^s,   entries: near keys, the selected slots, globals (backend/chunks.h)
 *
 * With a table of log G, the logit of an entry has the logarithm of the sum of G over its rows (compressed_kernel.c).
 *
 * This file: what is supported, the layout of memory, the division of the work. compressed_keys.c computes slots and globals,
 * compressed_forward.c and compressed_backward.c contain the loops over tiles, dense_products.h the micro-kernels.
 *
 * If there are at least as many (sequence, key head)s as threads, each is computed by one thread with a separate tree. Otherwise they are
 * computed one after another, each by all threads, stage by stage. Pieces depend on sizes and on the places of chunks alone, and every sum
 * has one order, so that the bits depend neither on the way nor on the number of threads.
 *
 * Cost per head: d multiply-adds for each pair of a query and a slot that it may select, d + dv for each near key and global, dv for each
 * selected slot; backward 3 d + 2 dv for each near key and global, 2 d + 2 dv for each selected slot. Memory of a tree: O(L (d + dv + K) +
 * G (L / m - N) (d + dv)), K selected slots, and with a table of log G O(L (levels + K)) (compressed_kernel.c); saved: 2 + 2 K numbers per
 * row and head. Scratch: list of chunks | sums by distance (chunk_kernel.h) | trees, one or one per worker | tiles per worker.
 */
#include <inttypes.h>
#include <stdio.h>

#include "compressed_tile.h"
#include "pair_trees.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->structure != HARK_STRUCTURE_COMPRESSED)
    reason = "structure is not compressed";
  else if (desc->type != HARK_F32)
    reason = "type is not f32";
  else if (desc->head_dim > INT32_MAX / HARK_TILE_QUERIES || desc->value_dim > INT32_MAX / HARK_TILE_QUERIES)
    reason = "head_dim or value_dim is too large";
  else if (desc->longest > hark_min(INT32_MAX, UINT32_MAX / hark_chunk_selected(desc) - 64))
    reason = "longest is above 2^31 - 1, or longest times selected_slots above 2^32 - 1";
  else if (hark_chunks_most(desc, desc->longest) > INT32_MAX / desc->chunk_slots)
    reason = "a sequence has more than 2^31 - 1 slots";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

typedef struct scratch_layout {
  size_t tree_bytes, worker_bytes;
  size_t sums, trees, workers, bytes; /* offsets of the sums of chunk_kernel.h, of the trees and of the workers' tiles, and all bytes */
} scratch_layout;

static hark_status lay_out(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, scratch_layout *out) {
  size_t numbers, floats, all;
  HARK_TRY(hark_chunk_list_numbers(context, desc, &numbers));
  HARK_TRY(hark_whole_lines(context, numbers, sizeof(int64_t), &out->sums));
  numbers = 0;
  if (backward) HARK_TRY(hark_chunk_kernel_doubles(context, desc, &numbers));
  HARK_TRY(hark_whole_lines(context, numbers, sizeof(double), &all));
  HARK_TRY(hark_size_add(context, out->sums, all, &out->trees));
  HARK_TRY(HARK_ISA(hark_compressed_tree_floats)(context, desc, desc->longest, backward, &floats));
  HARK_TRY(hark_whole_lines(context, floats, sizeof(float), &out->tree_bytes));
  floats = backward ? HARK_ISA(hark_compressed_backward_floats)(desc) : HARK_ISA(hark_compressed_forward_floats)(desc);
  HARK_TRY(hark_whole_lines(context, floats, sizeof(float), &out->worker_bytes));
  HARK_TRY(hark_size_multiply(context, out->tree_bytes, (size_t)hark_count_trees(desc, workers), &all));
  HARK_TRY(hark_size_add(context, out->trees, all, &out->workers));
  HARK_TRY(hark_size_multiply(context, out->worker_bytes, (size_t)workers, &all));
  return hark_size_add(context, out->workers, all, &out->bytes);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  scratch_layout forward, backward = {0};
  size_t saved = 0;
  HARK_TRY(lay_out(context, desc, workers, false, &forward));
  if (!desc->forward_only) {
    HARK_TRY(lay_out(context, desc, workers, true, &backward));
    HARK_TRY(hark_size_multiply(context, (size_t)(desc->batch * desc->heads), (size_t)desc->query_length, &saved));
    HARK_TRY(hark_size_multiply(context, saved, (size_t)hark_compressed_saved_numbers(hark_chunk_selected(desc)) * sizeof(float), &saved));
  }
  *out = (hark_attention_sizes){.saved = saved, .forward_workspace = forward.bytes, .backward_workspace = backward.bytes};
  return HARK_OK;
}

/* ---- stages ---- */

typedef struct stage_work {
  const hark_compressed_tree *tree;
  hark_compressed_stage stage;
  int64_t first, step; /* of the pieces */
} stage_work;

static float *worker_memory(const hark_compressed_call *call, int worker) {
  return (float *)(void *)(call->workers + (size_t)worker * call->worker_bytes);
}

static void run_piece(void *data, int64_t index, int worker) {
  const stage_work *work = data;
  const hark_compressed_tree *tree = work->tree;
  const int64_t piece = work->first + index * work->step;
  float *memory = worker_memory(tree->call, worker);
  for (int64_t chunk = tree->piece[piece]; chunk < tree->piece[piece + 1]; chunk++) switch (work->stage) {
      case COMPRESSED_KEYS: HARK_ISA(hark_compressed_make_keys)(tree, chunk); break;
      case COMPRESSED_QUERIES: HARK_ISA(hark_compressed_make_queries)(tree, chunk); break;
      case COMPRESSED_FORWARD: HARK_ISA(hark_compressed_forward)(tree, chunk, memory); break;
      case COMPRESSED_BACKWARD: HARK_ISA(hark_compressed_backward)(tree, chunk, memory); break;
      case COMPRESSED_USERS: HARK_ISA(hark_compressed_collect)(tree, chunk); break;
      case COMPRESSED_DIVIDE: HARK_ISA(hark_compressed_divide)(tree, chunk); break;
      case COMPRESSED_GIVE: HARK_ISA(hark_compressed_give)(tree, chunk); break;
    }
}

static void run_stage(const hark_compressed_tree *tree, hark_compressed_stage stage, int worker) {
  stage_work work = {.tree = tree, .stage = stage, .step = stage == COMPRESSED_BACKWARD ? 2 : 1};
  for (; work.first < work.step; work.first++)
    hark_run_tasks(tree->call->context, hark_max(0, hark_ceil_div(tree->pieces - work.first, work.step)), run_piece, &work, worker);
}

static void make_global(void *data, int64_t index, int worker) {
  const hark_compressed_tree *tree = data;
  HARK_ISA(hark_compressed_make_global)(tree, index, worker_memory(tree->call, worker));
}

static void give_global(void *data, int64_t index, int worker) {
  const hark_compressed_tree *tree = data;
  HARK_ISA(hark_compressed_give_global)(tree, index, worker_memory(tree->call, worker));
}

static void run_head(hark_compressed_tree *tree, int64_t head, int worker) {
  tree->head = head;
  run_stage(tree, COMPRESSED_QUERIES, worker);
  if (tree->levels > 0) HARK_ISA(hark_compressed_make_tables)(tree);
  tree->finite = HARK_ISA(hark_compressed_all_finite)(tree);
  if (!tree->call->backward) {
    run_stage(tree, COMPRESSED_FORWARD, worker);
    return;
  }
  run_stage(tree, COMPRESSED_BACKWARD, worker);
  HARK_ISA(hark_compressed_sort_users)(tree);
  run_stage(tree, COMPRESSED_USERS, worker);
  if (tree->dlog_sums != NULL) HARK_ISA(hark_compressed_collect_kernel)(tree);
}

/* worker: of the calling task, or -1: all threads share the work. */
static void run_pair(void *data, int64_t index, int worker) {
  const hark_compressed_call *call = data;
  float *memory = (float *)(void *)(call->trees + (worker < 0 ? 0 : (size_t)worker * call->tree_bytes));
  const int64_t key_heads = call->desc->key_heads, group = call->desc->heads / key_heads, key_head = index % key_heads;
  hark_compressed_tree tree = HARK_ISA(hark_compressed_place)(call, index / key_heads, key_head, memory);
  const int64_t globals = hark_chunks_states(&tree.chunks) > 0 ? tree.chunks.globals : 0;
  run_stage(&tree, COMPRESSED_KEYS, worker);
  hark_run_tasks(call->context, globals, make_global, &tree, worker);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) run_head(&tree, head, worker);
  if (!call->backward) return;
  run_stage(&tree, COMPRESSED_DIVIDE, worker);
  hark_run_tasks(call->context, globals, give_global, &tree, worker);
  run_stage(&tree, COMPRESSED_GIVE, worker);
}

static hark_status execute(hark_context *context, const hark_attention_call *run, bool backward) {
  const hark_attention_desc *desc = &run->plan->desc;
  scratch_layout layout;
  HARK_TRY(lay_out(context, desc, run->plan->workers, backward, &layout));
  hark_compressed_call call = {.context = context,
                               .run = run,
                               .desc = desc,
                               .args = run->args,
                               .backward = backward,
                               .head_dim = (int)desc->head_dim,
                               .value_dim = (int)desc->value_dim,
                               .head_pad = (int)hark_padded(desc->head_dim),
                               .value_pad = (int)hark_padded(desc->value_dim),
                               .selected = (int)hark_chunk_selected(desc),
                               .scale = (float)desc->scale,
                               .dropout_threshold = hark_random_threshold(desc->dropout),
                               .dropout_gain = (float)(1 / (1 - desc->dropout)),
                               .saved = desc->forward_only ? NULL : run->args->saved,
                               .kernel_sums = (double *)(void *)((char *)run->scratch + layout.sums),
                               .trees = (char *)run->scratch + layout.trees,
                               .workers = (char *)run->scratch + layout.workers,
                               .tree_bytes = layout.tree_bytes,
                               .worker_bytes = layout.worker_bytes};
  HARK_TRY(hark_chunk_list_fill(context, run, run->scratch, &call.list));
  hark_run_pairs(context, run, run_pair, &call);
  if (backward) hark_chunk_kernel_give(context, run, call.kernel_sums);
  return HARK_OK;
}

static hark_status forward(hark_context *context, const hark_attention_call *call) { return execute(context, call, false); }
static hark_status backward(hark_context *context, const hark_attention_call *call) { return execute(context, call, true); }

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "tiles of up to %d queries of a chunk, trees %" PRId64 ", %d lanes", HARK_TILE_QUERIES,
                  hark_count_trees(&plan->desc, plan->workers), HARK_LANES);
}

extern const hark_attention_algorithm HARK_ISA(hark_cpu_compressed);
const hark_attention_algorithm HARK_ISA(hark_cpu_compressed) = {
    .name = "compressed tiled",
    .flush = HARK_FLUSH_BACKWARD,
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
    .print = print,
};
