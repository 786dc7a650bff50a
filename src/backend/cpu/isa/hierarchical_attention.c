/* hierarchical_attention.c - the algorithm "hierarchical tiled": hierarchical attention in f32, O(length) time and memory.
 *
 * This file: what is supported, the layout of memory, the division of the work. hierarchical_tokens.c computes tokens of coarse levels and
 * windows, hierarchical_forward.c and hierarchical_backward.c contain the loops over tiles, dense_products.h the micro-kernels,
 * hierarchical_terms.c the terms by distance.
 *
 * Normally one thread computes a (sequence, key head) with a separate tree, which stays in its caches. If that keeps fewer threads busy,
 * the (sequence, key head)s are computed one after another, each by all threads: tokens in pieces of a level, the forward in subtrees, the
 * backward in pieces of a level or windows (every second one at a time, because these touch separate keys), or with exact queries in parts
 * of the rows. The backward's pieces depend on sizes alone, the forward's change no bits, and every sum has one order, so that the bits
 * depend neither on the way nor on the number of threads.
 *
 * Scratch: trees, one or as many as (sequence, key head)s at the same time | tiles and a window per worker | the tables'
 * (hierarchical_terms.c).
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "hierarchical_stage.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->structure != HARK_STRUCTURE_HIERARCHICAL)
    reason = "structure is not hierarchical";
  else if (desc->normalisation != HARK_NORMALISATION_SOFTMAX)
    reason = "normalisation is not softmax";
  else if (desc->type != HARK_F32)
    reason = "type is not f32";
  else if (desc->grid_columns != 0)
    reason = "grid_columns is not 0";
  else if (desc->coarse_query == HARK_COARSE_QUERY_EXACT && (desc->has_hierarchical_bias || desc->has_log_kernel))
    reason = "coarse_query is exact with has_hierarchical_bias or has_log_kernel";
  else if (desc->head_dim > INT32_MAX / HARK_TILE_QUERIES || desc->value_dim > INT32_MAX / HARK_TILE_QUERIES)
    reason = "head_dim or value_dim is too large";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

/* Minimum subtrees of a head that all threads compute: enough that no thread waits long for another, few enough that the levels above them,
 * which every subtree recomputes, cost little. */
static int64_t least_roots(int workers) { return hark_max(2 * workers, hark_min(4 * workers, 16)); }

/* Sequences from this length on are computed in windows. The forward's bits are the same without windows, so it does not use them if all
 * threads on one head would need more subtrees than the head has windows. The backward's bits are not: there the length alone decides, and
 * a head of n windows keeps n / 2 threads busy. */
static int64_t windowed_from(const hark_attention_desc *desc, int workers, bool backward) {
  if (desc->coarse_query == HARK_COARSE_QUERY_EXACT || !hark_windows_fit(desc->hierarchy_block)) return INT64_MAX;
  return backward ? HARK_WINDOWED_ROWS : hark_max(HARK_WINDOWED_ROWS, least_roots(workers) * HARK_WINDOW_ROWS);
}

/* Upper bound of the kept tokens of a hierarchy over at most `length` rows. */
static int64_t kept_tokens(int64_t length, int64_t windowed) {
  if (length < windowed) return hark_hierarchy_most_tokens(length);
  const int64_t above = ((length - 1) >> HARK_WINDOW_LEVELS) + 1 + HARK_HIERARCHY_MAX_LEVELS; /* tokens of the levels above the windows */
  return hark_max(length + above, hark_hierarchy_most_tokens(windowed - 1));
}

/* The same without level 0. */
static int64_t coarse_tokens(int64_t length, int64_t windowed) {
  const int64_t whole = hark_min(length, windowed) + HARK_HIERARCHY_MAX_LEVELS; /* without windows */
  return hark_max(whole, ((length - 1) >> HARK_WINDOW_LEVELS) + 1 + HARK_HIERARCHY_MAX_LEVELS);
}

/* What a tree has rows of on level 0 too: what is not read in the caller's memory, as hark_keys_in_place() and the like decide, for all
 * calls of a descriptor. */
typedef struct own_rows {
  bool keys, values, queries, gradients; /* gradients: g */
} own_rows;

static own_rows own_rows_of(const hark_attention_desc *desc, bool spread) {
  const bool wide = (int64_t)hark_padded(desc->head_dim) == desc->head_dim;
  const bool wide_values = (int64_t)hark_padded(desc->value_dim) == desc->value_dim;
  return (own_rows){.keys = spread || desc->has_mask || !wide,
                    .values = spread || desc->has_mask || !wide_values,
                    .queries = desc->has_mask || !wide,
                    .gradients = desc->has_mask || hark_has_terms(desc) || !wide_values};
}

/* Bytes of a tree with this hierarchy, of which `kept` tokens are in memory, and `above` without level 0. */
static hark_status count_bytes(hark_context *context, const hark_attention_desc *desc, const hark_hierarchy *h, const own_rows *own,
                               int64_t kept, int64_t above, bool backward, size_t *out) {
  const size_t d = hark_padded(desc->head_dim), dv = hark_padded(desc->value_dim);
  const bool rbf = desc->kernel == HARK_KERNEL_RBF;
  size_t rows = own->keys * d + own->values * dv + own->queries * d, token = 3 + rbf; /* floats: of level 0 or not; of every level */
  if (backward) {
    rows += own->gradients * dv;
    token += 2 * d + dv + 2 + HARK_FINE_SUM_FLOATS;
  }
  const size_t others = 2 * d + dv + (backward ? dv : 0) - rows; /* of coarse levels only */
  size_t coarse;
  HARK_TRY(hark_size_multiply(context, token + rows, (size_t)kept, out));
  HARK_TRY(hark_size_multiply(context, others, (size_t)above, &coarse));
  HARK_TRY(hark_size_add(context, *out, coarse, out));
  if (rbf) {
    size_t lows;
    HARK_TRY(hark_size_multiply(context, 2 * d, (size_t)above, &lows));
    HARK_TRY(hark_size_add(context, *out, lows, out));
  }
  if (backward && desc->coarse_query == HARK_COARSE_QUERY_EXACT)
    HARK_TRY(hark_size_add(context, *out, HARK_ISA(hark_hierarchical_reach_floats)(h, (int)d, (int)dv), out));
  if (hark_has_terms(desc)) HARK_TRY(hark_size_add(context, *out, (size_t)(h->levels * 3 * hark_term_width(h->block)), out));
  HARK_TRY(hark_size_multiply(context, *out, sizeof(float), out));
  HARK_TRY(hark_size_add(context, *out, HARK_ALIGNMENT, out));
  *out = hark_align_up(*out - HARK_ALIGNMENT);
  return HARK_OK;
}

/* Bytes of a tree over at most `length` rows. */
static hark_status count_tree(hark_context *context, const hark_attention_desc *desc, int64_t length, int workers, bool backward,
                              size_t *out) {
  const hark_hierarchy h = hark_hierarchy_make(desc, length);
  const own_rows own = own_rows_of(desc, false);
  const int64_t windowed = windowed_from(desc, workers, backward);
  return count_bytes(context, desc, &h, &own, kept_tokens(length, windowed), coarse_tokens(length, windowed), backward, out);
}

/* Threads that one (sequence, key head) keeps busy if all threads share it: one per piece of its rows or window; in the backward per two of
 * them, or with exact queries one per part. */
static int64_t spread_threads(const hark_attention_desc *desc, int64_t length, int workers, bool backward) {
  const hark_hierarchy h = hark_hierarchy_make(desc, length);
  const bool windowed = length >= windowed_from(desc, workers, backward);
  const int64_t pieces = hark_ceil_div(length, windowed ? HARK_WINDOW_ROWS : hark_piece_rows(desc->hierarchy_block));
  if (backward && desc->coarse_query == HARK_COARSE_QUERY_EXACT) return hark_min(workers, hark_part_count(&h));
  return hark_min(workers, backward ? hark_ceil_div(pieces, 2) : pieces);
}

/* True except for the backward with gradients of tables. */
static bool may_spread(bool backward, bool tables) { return !backward || !tables; }

/* From this length on there is one tree: several would need much memory, and all threads work well on one. */
#define ONE_TREE_ROWS (((int64_t)1 << 18) + 1)

/* Number of trees in use at the same time, at the descriptor's maxima. */
static int64_t count_trees(const hark_attention_desc *desc, int workers, bool backward) {
  if (desc->longest >= ONE_TREE_ROWS && may_spread(backward, hark_has_terms(desc))) return 1;
  const int64_t pairs = desc->max_sequences < workers ? hark_min(workers, desc->max_sequences * desc->key_heads) : workers;
  const bool spread = may_spread(backward, hark_has_terms(desc)) && spread_threads(desc, desc->longest, workers, backward) > pairs;
  return spread ? 1 : pairs;
}

typedef struct scratch_layout {
  size_t tile_bytes, worker_bytes;
  size_t workers, tables, bytes; /* offsets of the parts after the trees, which are first */
} scratch_layout;

/* Adds an aligned part of count * size bytes at *end. */
static hark_status add_part(hark_context *context, size_t count, size_t size, size_t *end) {
  HARK_TRY(hark_size_multiply(context, count, size, &size));
  HARK_TRY(hark_size_add(context, *end, size, end));
  HARK_TRY(hark_size_add(context, *end, HARK_ALIGNMENT, end));
  *end = hark_align_up(*end - HARK_ALIGNMENT);
  return HARK_OK;
}

static hark_status lay_out(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, scratch_layout *out) {
  size_t tree, tables;
  const size_t d = hark_padded(desc->head_dim), dv = hark_padded(desc->value_dim);
  *out = (scratch_layout){.tile_bytes = hark_align_up(HARK_ISA(hark_hierarchical_worker_floats)(desc, backward) * sizeof(float))};
  out->worker_bytes = out->tile_bytes;
  if (desc->longest >= windowed_from(desc, workers, backward))
    out->worker_bytes += hark_align_up(
        HARK_ISA(hark_hierarchical_window_floats)(desc->hierarchy_block, d, dv, backward, desc->kernel == HARK_KERNEL_RBF) * sizeof(float));
  HARK_TRY(count_tree(context, desc, desc->longest, workers, backward, &tree));
  HARK_TRY(HARK_ISA(hark_hierarchical_tables_bytes)(context, desc, workers, backward, &tables));
  HARK_TRY(add_part(context, (size_t)count_trees(desc, workers, backward), tree, &out->workers));
  out->tables = out->workers;
  HARK_TRY(add_part(context, (size_t)workers, out->worker_bytes, &out->tables));
  out->bytes = out->tables;
  return add_part(context, 1, tables, &out->bytes);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  scratch_layout forward, backward = {0};
  HARK_TRY(lay_out(context, desc, workers, false, &forward));
  if (!desc->forward_only) HARK_TRY(lay_out(context, desc, workers, true, &backward));
  *out = (hark_attention_sizes){.saved = 0, .forward_workspace = forward.bytes, .backward_workspace = backward.bytes};
  return HARK_OK;
}

bool HARK_ISA(hark_hierarchical_tables_requested)(const hark_attention_args *args, bool backward) {
  return backward && (args->dhierarchical_bias.type != HARK_NONE || args->dlog_kernel.type != HARK_NONE);
}

/* True if all threads share each (sequence, key head): this keeps more of them busy, or separate trees do not fit. */
static bool spreads(const hark_hierarchical_call *call, int64_t longest, size_t room) {
  const int64_t pairs = call->run->sequence_count * call->desc->key_heads;
  const int workers = hark_workers(call->context);
  if (!may_spread(call->backward, HARK_ISA(hark_hierarchical_tables_requested)(call->args, call->backward))) return false;
  return spread_threads(call->desc, longest, workers, call->backward) > pairs ||
         room / (call->tree_floats * sizeof(float)) < (size_t)hark_min(workers, pairs);
}

hark_hierarchical_call HARK_ISA(hark_hierarchical_make_call)(hark_context *context, const hark_attention_call *run, bool backward) {
  const hark_attention_desc *desc = &run->plan->desc;
  int64_t longest = 0;
  for (int64_t s = 0; s < run->sequence_count; s++) longest = hark_max(longest, run->sequences[s].query_count);
  hark_hierarchical_call call = {.context = context,
                                 .run = run,
                                 .desc = desc,
                                 .args = run->args,
                                 .backward = backward,
                                 .exact = desc->coarse_query == HARK_COARSE_QUERY_EXACT,
                                 .first = desc->coarse_query == HARK_COARSE_QUERY_FIRST,
                                 .rbf = desc->kernel == HARK_KERNEL_RBF,
                                 .linear = desc->interpolation == HARK_INTERPOLATION_LINEAR,
                                 .head_dim = (int)desc->head_dim,
                                 .value_dim = (int)desc->value_dim,
                                 .head_pad = (int)hark_padded(desc->head_dim),
                                 .value_pad = (int)hark_padded(desc->value_dim),
                                 .scale = (float)desc->scale,
                                 .dropout_threshold = hark_random_threshold(desc->dropout),
                                 .dropout_gain = (float)(1 / (1 - desc->dropout)),
                                 .tables.longest = hark_hierarchy_make(desc, longest)};
  call.query_lows = call.rbf && !call.first && !call.exact;
  return call;
}

static hark_status begin(hark_context *context, const hark_attention_call *run, bool backward, hark_hierarchical_call *call) {
  const hark_attention_desc *desc = &run->plan->desc;
  scratch_layout layout;
  const int workers = run->plan->workers;
  HARK_TRY(lay_out(context, desc, workers, backward, &layout));
  char *scratch = run->scratch;
  *call = HARK_ISA(hark_hierarchical_make_call)(context, run, backward);
  const int64_t longest = call->tables.longest.length;
  size_t tree;
  HARK_TRY(count_tree(context, desc, longest, workers, backward, &tree));
  call->windowed = windowed_from(desc, workers, backward);
  call->tokens = kept_tokens(longest, call->windowed);
  call->coarse = coarse_tokens(longest, call->windowed);
  call->tree_floats = tree / sizeof(float);
  call->worker_bytes = layout.worker_bytes;
  call->tile_bytes = layout.tile_bytes;
  call->trees = (float *)(void *)scratch;
  call->workers = scratch + layout.workers;
  call->spread = spreads(call, longest, layout.workers);
  const bool gradients = HARK_ISA(hark_hierarchical_tables_requested)(run->args, backward);
  HARK_ISA(hark_hierarchical_tables_open)(call, gradients, (double *)(void *)(scratch + layout.tables));
  return HARK_OK;
}

/* ---- a tree's memory ---- */

static float *take(float **next, size_t count) {
  float *taken = *next;
  *next += count;
  return taken;
}

/* Levels 1 .. HARK_WINDOW_LEVELS of a windowed tree have no memory. */
static bool is_kept(const hark_tree *tree, int level) { return !tree->windowed || level == 0 || level > HARK_WINDOW_LEVELS; }

/* Rows of `width` of every level, one level after another; of level 0 if it is `own`. */
static void take_rows(hark_tree *tree, float **next, size_t offset, int width, bool own) {
  float *rows = take(next, (size_t)(own ? tree->call->tokens : tree->call->coarse) * (size_t)width);
  for (int level = own ? 0 : 1; level < tree->hierarchy.levels; level++) {
    if (!is_kept(tree, level)) continue;
    const hark_held held = hark_held_tokens(tree->call, &tree->hierarchy, level);
    const hark_rows at = {hark_memory_from(rows, held.from, width), width};
    memcpy((char *)&tree->level[level] + offset, &at, sizeof at);
    rows += (held.to - held.from) * width;
  }
}
static void take_numbers(hark_tree *tree, float **next, size_t offset) {
  float *numbers = take(next, (size_t)tree->call->tokens);
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    if (!is_kept(tree, level)) continue;
    const hark_held held = hark_held_tokens(tree->call, &tree->hierarchy, level);
    float *const at = hark_memory_from(numbers, held.from, 1);
    memcpy((char *)&tree->level[level] + offset, &at, sizeof at);
    numbers += held.to - held.from;
  }
}

static void take_fine_sums(hark_tree *tree, float **next) {
  float *sums = take(next, (size_t)tree->call->tokens * HARK_FINE_SUM_FLOATS);
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    if (!is_kept(tree, level)) continue;
    const hark_held held = hark_held_tokens(tree->call, &tree->hierarchy, level);
    tree->level[level].fine_least = hark_memory_from(sums, held.from, HARK_FINE_SUM_FLOATS);
    sums += (held.to - held.from) * HARK_FINE_SUM_FLOATS;
  }
}

/* The same for coarse levels only. */
static void take_lows(hark_tree *tree, float **next) {
  const hark_hierarchical_call *call = tree->call;
  const int64_t width = call->head_pad;
  float *keys = take(next, (size_t)(call->coarse * width));
  float *queries = call->query_lows ? take(next, (size_t)(call->coarse * width)) : NULL;
  int64_t token = 0;
  for (int level = 1; level < tree->hierarchy.levels; level++) {
    if (!is_kept(tree, level)) continue;
    hark_level *at = &tree->level[level];
    const hark_held held = hark_held_tokens(call, &tree->hierarchy, level);
    at->key_low = (hark_rows){hark_memory_from(keys + token * width, held.from, width), width};
    if (call->query_lows) at->query_low = (hark_rows){hark_memory_from(queries + token * width, held.from, width), width};
    token += held.to - held.from;
  }
}

hark_status HARK_ISA(hark_hierarchical_count_spread_tree)(hark_hierarchical_call *call, const hark_hierarchy *h, size_t *bytes) {
  const own_rows own = own_rows_of(call->desc, true);
  const hark_tree tree = {.call = call, .hierarchy = *h, .windowed = h->length >= call->windowed};
  call->tokens = call->coarse = 0;
  for (int level = 0; level < h->levels; level++) {
    const hark_held held = hark_held_tokens(call, h, level);
    if (!is_kept(&tree, level)) continue;
    call->tokens += held.to - held.from;
    if (level > 0) call->coarse += held.to - held.from;
  }
  return count_bytes(call->context, call->desc, h, &own, call->tokens, call->coarse, call->backward, bytes);
}

/* True for a requested gradient whose rows are whole vectors. A gradient in the memory of its input is given when the head is done. */
static bool written_in_place(const hark_tensor *gradient, const hark_tensor *input, int width, int pad) {
  return gradient->type != HARK_NONE && width == pad && gradient->data != input->data;
}

/* Gradients of keys of spread rows are summed with those of keys beyond them. */
static bool keys_written_in_place(const hark_hierarchical_call *call) {
  return call->peers == NULL && written_in_place(&call->args->dkey, &call->args->key, call->head_dim, call->head_pad);
}
static bool values_written_in_place(const hark_hierarchical_call *call) {
  return call->peers == NULL && written_in_place(&call->args->dvalue, &call->args->value, call->value_dim, call->value_pad);
}

hark_tree HARK_ISA(hark_hierarchical_place_tree)(const hark_hierarchical_call *call, int64_t sequence, int64_t key_head, int64_t slot) {
  hark_tree tree = {.call = call, .sequence = &call->run->sequences[sequence], .key_head = key_head, .finite = true};
  float *next = call->trees + (size_t)slot * call->tree_floats;
  tree.hierarchy = hark_hierarchy_make(call->desc, tree.sequence->query_count);
  tree.windowed = tree.hierarchy.length >= call->windowed;
  const own_rows own = own_rows_of(call->desc, call->peers != NULL);
  take_rows(&tree, &next, offsetof(hark_level, key), call->head_pad, own.keys);
  take_rows(&tree, &next, offsetof(hark_level, value), call->value_pad, own.values);
  take_rows(&tree, &next, offsetof(hark_level, query), call->head_pad, own.queries);
  take_numbers(&tree, &next, offsetof(hark_level, key_count));
  take_numbers(&tree, &next, offsetof(hark_level, query_count));
  take_numbers(&tree, &next, offsetof(hark_level, key_square));
  if (call->rbf) take_lows(&tree, &next);
  if (call->query_lows) take_numbers(&tree, &next, offsetof(hark_level, query_square));
  if (call->backward) {
    take_rows(&tree, &next, offsetof(hark_level, g), call->value_pad, own.gradients);
    take_rows(&tree, &next, offsetof(hark_level, dquery), call->head_pad, true);
    take_rows(&tree, &next, offsetof(hark_level, dkey), call->head_pad, true);
    take_rows(&tree, &next, offsetof(hark_level, dvalue), call->value_pad, true);
    take_numbers(&tree, &next, offsetof(hark_level, least));
    take_numbers(&tree, &next, offsetof(hark_level, mean_gradient));
    take_fine_sums(&tree, &next);
  }
  const hark_hierarchy keys = {.length = tree.sequence->key_count};
  for (int level = 0; level < tree.hierarchy.levels; level++) {
    tree.level[level].queries = hark_hierarchy_tokens(&tree.hierarchy, level);
    tree.level[level].keys = hark_hierarchy_tokens(&keys, level);
    tree.level[level].terms = hark_has_terms(call->desc) ? take(&next, (size_t)hark_term_width(tree.hierarchy.block)) : NULL;
    tree.level[level].fine_terms = hark_has_terms(call->desc) ? take(&next, (size_t)(2 * hark_term_width(tree.hierarchy.block))) : NULL;
    if (!call->rbf) tree.level[level].key_square = NULL;
  }
  tree.parts = call->backward && call->exact ? hark_part_count(&tree.hierarchy) : 1;
  tree.part_rows = hark_part_rows(&tree.hierarchy);
  tree.reach = next; /* must be last */
  const hark_attention_args *args = call->args;
  const int64_t item = tree.sequence->item, row = tree.sequence->key_row;
  hark_level *rows = &tree.level[0];
  if (hark_keys_in_place(&tree)) rows->key = hark_rows_of(&args->key, item, key_head, row);
  if (hark_values_in_place(&tree)) rows->value = hark_rows_of(&args->value, item, key_head, row);
  if (call->backward && keys_written_in_place(call)) rows->dkey = hark_rows_of(&args->dkey, item, key_head, row);
  if (call->backward && values_written_in_place(call)) rows->dvalue = hark_rows_of(&args->dvalue, item, key_head, row);
  return tree;
}

/* ---- the work ---- */

/* Adds or copies gradients of rows begin .. end from our memory to the caller's. */
static void give_rows(const hark_rows *from, int64_t begin, int64_t end, int width, bool add, const hark_rows *to) {
  for (int64_t n = begin; n < end; n++) {
    const float *source = from->data + n * from->stride;
    float *target = to->data + n * to->stride;
    for (int c = 0; c < width; c++) target[c] = add ? target[c] + source[c] : source[c];
  }
}

static void give_queries(const hark_tree *tree, int64_t begin, int64_t end) {
  const hark_hierarchical_call *call = tree->call;
  const hark_tensor *dquery = &call->args->dquery;
  if (dquery->type == HARK_NONE || written_in_place(dquery, &call->args->query, call->head_dim, call->head_pad)) return;
  const hark_rows to = hark_rows_of(dquery, tree->sequence->item, tree->head, tree->sequence->query_row);
  give_rows(&tree->level[0].dquery, begin, end, call->head_dim, call->args->accumulate & HARK_ACCUMULATE_QUERY, &to);
}

static void give_keys(const hark_tree *tree, int64_t begin, int64_t end) {
  const hark_hierarchical_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, row = tree->sequence->key_row;
  if (args->dkey.type != HARK_NONE && !keys_written_in_place(call)) {
    const hark_rows to = hark_rows_of(&args->dkey, item, tree->key_head, row);
    const bool begun = call->peers != NULL && call->head_dim == call->head_pad; /* with the caller's contents */
    give_rows(&tree->level[0].dkey, begin, end, call->head_dim, !begun && (args->accumulate & HARK_ACCUMULATE_KEY) != 0, &to);
  }
  if (args->dvalue.type != HARK_NONE && !values_written_in_place(call)) {
    const hark_rows to = hark_rows_of(&args->dvalue, item, tree->key_head, row);
    const bool begun = call->peers != NULL && call->value_dim == call->value_pad;
    give_rows(&tree->level[0].dvalue, begin, end, call->value_dim, !begun && (args->accumulate & HARK_ACCUMULATE_VALUE) != 0, &to);
  }
}

void HARK_ISA(hark_hierarchical_run_piece)(const hark_tree *tree, hark_stage_kind kind, int stage_level, int64_t piece, int worker) {
  const hark_level *level = &tree->level[stage_level];
  const int64_t token = piece * HARK_TOKEN_PIECE;
  const int64_t keys = hark_min(token + HARK_TOKEN_PIECE, level->keys), queries = hark_min(token + HARK_TOKEN_PIECE, level->queries);
  void *memory = tree->call->workers + (size_t)worker * tree->call->worker_bytes;
  float *window = (float *)(void *)((char *)memory + tree->call->tile_bytes);
  switch (kind) {
    case MAKE_KEYS: HARK_ISA(hark_hierarchical_make_keys)(tree, stage_level, token, keys); break;
    case MAKE_QUERIES: HARK_ISA(hark_hierarchical_make_queries)(tree, stage_level, token, queries); break;
    case MAKE_KEYS_THROUGH: HARK_ISA(hark_hierarchical_make_through)(tree, true, token, keys, window); break;
    case MAKE_QUERIES_THROUGH: HARK_ISA(hark_hierarchical_make_through)(tree, false, token, queries, window); break;
    case BACKWARD_WINDOW: HARK_ISA(hark_hierarchical_backward_window)(tree, piece, memory, window); break;
    case EXACT_SUMS: HARK_ISA(hark_hierarchical_exact_sums)(tree, token, queries, NULL); break;
    case EXACT_SUMS_WINDOW: HARK_ISA(hark_hierarchical_exact_sums)(tree, piece, piece, window); break;
    case FORWARD: HARK_ISA(hark_hierarchical_forward_tiles)(tree, piece, stage_level, memory, window); break;
    case BACKWARD: HARK_ISA(hark_hierarchical_backward_piece)(tree, stage_level, piece, memory); break;
    case EXACT_BEGIN: HARK_ISA(hark_hierarchical_exact_begin)(tree, stage_level, token, keys); break;
    case EXACT_PART: HARK_ISA(hark_hierarchical_exact_part)(tree, piece, memory); break;
    case EXACT_GATHER: HARK_ISA(hark_hierarchical_exact_gather)(tree, (int)piece); break;
    case EXACT_HAND_DOWN: HARK_ISA(hark_hierarchical_exact_hand_down)(tree, stage_level, token, keys); break;
    case GIVE_QUERIES: give_queries(tree, token, queries); break;
    case GIVE_KEYS: give_keys(tree, token, keys); break;
  }
}

/* Independent pieces of work on a tree. */
typedef struct stage {
  const hark_tree *tree;
  hark_stage_kind kind;
  int level;
  int64_t first, step; /* indices of pieces */
} stage;

static void run_piece(const stage *s, int64_t index, int worker) {
  HARK_ISA(hark_hierarchical_run_piece)(s->tree, s->kind, s->level, s->first + index * s->step, worker);
}

static void stage_task(void *data, int64_t index, int worker) { run_piece(data, index, worker); }

/* Runs `count` pieces first, first + step, ... on all threads, or on the one that computes the tree. */
static void run_stage(const hark_tree *tree, hark_stage_kind kind, int level, int64_t first, int64_t step, int64_t count, int worker) {
  stage s = {.tree = tree, .kind = kind, .level = level, .first = first, .step = step};
  if (tree->call->spread)
    hark_parallel_for(tree->call->context, count, stage_task, &s);
  else
    for (int64_t index = 0; index < count; index++) run_piece(&s, index, worker);
}

static int64_t token_pieces(int64_t tokens) { return hark_ceil_div(tokens, HARK_TOKEN_PIECE); }

static hark_stage_kind made_through(hark_stage_kind kind) { return kind == MAKE_KEYS ? MAKE_KEYS_THROUGH : MAKE_QUERIES_THROUGH; }

/* Computes a piece of a level after the two below it, while their results are in the caches. */
static void make_piece(const stage *s, int level, int64_t piece, int worker) {
  const hark_level *at = &s->tree->level[level];
  if (piece >= token_pieces(s->kind == MAKE_KEYS ? at->keys : at->queries)) return;
  const bool through = s->tree->windowed && level == HARK_WINDOW_LEVELS + 1;
  for (int64_t below = 2 * piece; !through && level > 0 && below < 2 * piece + 2; below++) make_piece(s, level - 1, below, worker);
  const stage own = {.tree = s->tree, .kind = through ? made_through(s->kind) : s->kind, .level = level, .step = 1};
  run_piece(&own, piece, worker);
}

/* Computes the tokens of all levels: level by level if all threads share the tree. */
static void make_tokens(const hark_tree *tree, hark_stage_kind kind, int levels, int worker) {
  const hark_level *top = &tree->level[levels - 1];
  const stage s = {.tree = tree, .kind = kind};
  const int first = tree->windowed ? HARK_WINDOW_LEVELS + 1 : 0;
  if (tree->windowed && tree->call->linear && kind == MAKE_QUERIES) /* made_through() needs rows of the piece before */
    run_stage(tree, kind, 0, 0, 1, token_pieces(tree->level[0].queries), worker);
  for (int level = first; tree->call->spread && level < levels; level++) {
    const hark_level *at = &tree->level[level];
    run_stage(tree, tree->windowed && level == first ? made_through(kind) : kind, level, 0, 1,
              token_pieces(kind == MAKE_KEYS ? at->keys : at->queries), worker);
  }
  if (tree->call->spread) return;
  const int64_t pieces = token_pieces(kind == MAKE_KEYS ? top->keys : top->queries);
  for (int64_t piece = 0; piece < pieces; piece++) make_piece(&s, levels - 1, piece, worker);
}

/* Recomputes log-sum-exp of rows far from 0, and then everything that depends on it. */
static void exact_sums(hark_tree *tree, int worker) {
  const int64_t rows = tree->level[0].queries;
  if (!HARK_ISA(hark_hierarchical_any_far)(tree, 0, rows)) return;
  HARK_ISA(hark_hierarchical_begin_far_rows)(tree, 0, rows);
  tree->is_far = tree->summing = true;
  run_stage(tree, tree->windowed ? EXACT_SUMS_WINDOW : EXACT_SUMS, 0, 0, 1,
            tree->windowed ? hark_ceil_div(rows, HARK_WINDOW_ROWS) : token_pieces(rows), worker);
  tree->summing = false;
  make_tokens(tree, MAKE_QUERIES, tree->call->exact ? 1 : tree->hierarchy.levels, worker);
}

bool HARK_ISA(hark_hierarchical_all_finite)(const hark_tree *tree) {
  const hark_level *top = &tree->level[tree->hierarchy.levels - 1];
  for (int64_t b = 0; b < top->keys; b++)
    if (!hark_rows_finite(top->key.data + b * top->key.stride, 0, 1, tree->call->head_dim) ||
        !hark_rows_finite(top->value.data + b * top->value.stride, 0, 1, tree->call->value_dim))
      return false;
  return true;
}

static void forward_head(const hark_tree *tree, int worker) {
  const bool spread = tree->call->spread;
  const int64_t roots = spread ? least_roots(hark_workers(tree->call->context)) : 0;
  int level = tree->call->exact && !spread ? 0 : tree->hierarchy.levels - 1;
  const int lowest = tree->windowed ? HARK_WINDOW_LEVELS + 2 : 0; /* whose tiles are windows */
  while (level > lowest && hark_ceil_div(tree->level[level].queries, HARK_TILE_QUERIES) < roots) level--;
  run_stage(tree, FORWARD, level, 0, 1, hark_ceil_div(tree->level[level].queries, HARK_TILE_QUERIES), worker);
}

/* Runs pieces of which every second one may run at the same time: an odd one adds to keys after both of its neighbours. One thread runs
 * them from left to right, which gives the same sums. */
static void run_alternating(const hark_tree *tree, hark_stage_kind kind, int level, int64_t pieces, int worker) {
  if (tree->call->spread) {
    run_stage(tree, kind, level, 0, 2, (pieces + 1) / 2, worker);
    run_stage(tree, kind, level, 1, 2, pieces / 2, worker);
    return;
  }
  for (int64_t even = 0; even <= pieces; even += 2) {
    if (even < pieces) run_stage(tree, kind, level, even, 1, 1, worker);
    if (even > 0) run_stage(tree, kind, level, even - 1, 1, 1, worker);
  }
}

static void backward_head(const hark_tree *tree, int worker) {
  const int levels = tree->hierarchy.levels;
  if (tree->call->exact) {
    for (int level = 0; level < levels; level++) run_stage(tree, EXACT_BEGIN, level, 0, 1, token_pieces(tree->level[level].keys), worker);
    run_stage(tree, EXACT_PART, 0, 0, 1, tree->parts, worker);
    run_stage(tree, EXACT_GATHER, 0, 0, 1, levels, worker);
    for (int level = levels - 2; level >= 0; level--)
      run_stage(tree, EXACT_HAND_DOWN, level, 0, 1, token_pieces(tree->level[level].keys), worker);
  } else {
    const int lowest = tree->windowed ? HARK_WINDOW_LEVELS + 1 : 0;
    const int64_t rows = hark_piece_rows(tree->hierarchy.block);
    for (int level = levels - 1; level >= lowest; level--)
      run_alternating(tree, BACKWARD, level, hark_ceil_div(tree->level[level].queries, rows), worker);
    if (tree->windowed) run_alternating(tree, BACKWARD_WINDOW, 0, hark_ceil_div(tree->hierarchy.length, HARK_WINDOW_ROWS), worker);
  }
  run_stage(tree, GIVE_QUERIES, 0, 0, 1, token_pieces(tree->level[0].queries), worker);
}

void HARK_ISA(hark_hierarchical_place_head)(hark_tree *tree, const hark_level *own) {
  const hark_hierarchical_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, row = tree->sequence->query_row, head = tree->head;
  hark_level *rows = &tree->level[0];
  rows->query = hark_queries_in_place(tree) ? hark_rows_of(&args->query, item, head, row) : own->query;
  for (int level = 1; hark_first_queries_in_place(tree) && level < tree->hierarchy.levels; level++)
    tree->level[level].query = (hark_rows){rows->query.data, rows->query.stride * ((int64_t)1 << level)};
  if (!call->backward) return;
  rows->g = hark_gradients_in_place(tree) ? hark_rows_of(&args->dout, item, head, row) : own->g;
  rows->dquery = written_in_place(&args->dquery, &args->query, call->head_dim, call->head_pad)
                     ? hark_rows_of(&args->dquery, item, head, row)
                     : own->dquery;
}

/* Memory for a (sequence, key head): a tree, a slot of the tables' gradients, a worker's tiles. */
typedef struct work_place {
  int64_t tree, slot;
  int worker;
} work_place;

static void run_key_head(const hark_hierarchical_call *call, int64_t sequence, int64_t key_head, work_place place) {
  const int64_t group = call->desc->heads / call->desc->key_heads;
  hark_tree tree = HARK_ISA(hark_hierarchical_place_tree)(call, sequence, key_head, place.tree);
  const hark_level own = tree.level[0];
  make_tokens(&tree, MAKE_KEYS, tree.hierarchy.levels, place.worker);
  tree.finite = HARK_ISA(hark_hierarchical_all_finite)(&tree);
  for (tree.head = key_head * group; tree.head < (key_head + 1) * group; tree.head++) {
    if (hark_has_terms(call->desc)) HARK_ISA(hark_hierarchical_make_terms)(&tree, place.slot);
    HARK_ISA(hark_hierarchical_place_head)(&tree, &own);
    tree.add_first = tree.head > key_head * group;
    tree.is_far = false;
    make_tokens(&tree, MAKE_QUERIES, call->exact ? 1 : tree.hierarchy.levels, place.worker);
    if (call->backward) exact_sums(&tree, place.worker);
    if (call->backward)
      backward_head(&tree, place.worker);
    else
      forward_head(&tree, place.worker);
  }
  if (call->backward) run_stage(&tree, GIVE_KEYS, 0, 0, 1, token_pieces(tree.level[0].keys), place.worker);
}

static void pair_task(void *data, int64_t pair, int worker) {
  const hark_hierarchical_call *call = data;
  const int64_t key_heads = call->desc->key_heads, pairs = call->run->sequence_count * key_heads;
  const work_place place = {.tree = hark_task_slot(pair, pairs, worker, hark_workers(call->context)), .worker = worker};
  run_key_head(call, pair / key_heads, pair % key_heads, place);
}

/* One key head, for all sequences of a slot. */
static void slot_task(void *data, int64_t task, int worker) {
  const hark_hierarchical_call *call = data;
  const int64_t key_heads = call->desc->key_heads, slots = call->tables.slots, count = call->run->sequence_count;
  const int64_t slot = task / key_heads, key_head = task % key_heads;
  const work_place place = {
      .tree = hark_task_slot(task, slots * key_heads, worker, hark_workers(call->context)), .slot = slot, .worker = worker};
  HARK_ISA(hark_hierarchical_tables_begin_slot)(call, slot, key_head);
  for (int64_t s = slot * count / slots; s < (slot + 1) * count / slots; s++) run_key_head(call, s, key_head, place);
}

static void run_all(hark_context *context, hark_hierarchical_call *call) {
  const int64_t key_heads = call->desc->key_heads, pairs = call->run->sequence_count * key_heads;
  if (call->tables.sums != NULL)
    hark_parallel_for(context, call->tables.slots * key_heads, slot_task, call);
  else if (!call->spread)
    hark_parallel_for(context, pairs, pair_task, call);
  else
    for (int64_t pair = 0; pair < pairs; pair++) run_key_head(call, pair / key_heads, pair % key_heads, (work_place){.worker = 0});
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  hark_hierarchical_call call;
  HARK_TRY(begin(context, run, false, &call));
  run_all(context, &call);
  return HARK_OK;
}

static hark_status backward(hark_context *context, const hark_attention_call *run) {
  hark_hierarchical_call call;
  HARK_TRY(begin(context, run, true, &call));
  run_all(context, &call);
  if (call.tables.sums != NULL) HARK_ISA(hark_hierarchical_tables_give)(&call);
  return HARK_OK;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  const bool backward = !plan->desc.forward_only;
  size_t tree = 0;
  if (count_tree(NULL, &plan->desc, plan->desc.longest, plan->workers, backward, &tree) != HARK_OK) return 0;
  return snprintf(text, size, "tiles of %d queries, %d lanes, trees of %.4g MB, at most %" PRId64 " at a time", HARK_TILE_QUERIES,
                  HARK_LANES, (double)tree / 1e6, count_trees(&plan->desc, plan->workers, backward));
}

extern const hark_attention_algorithm HARK_ISA(hark_cpu_hierarchical);
const hark_attention_algorithm HARK_ISA(hark_cpu_hierarchical) = {
    .name = "hierarchical tiled",
    .gradients_in_place = true,
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
    .products = HARK_ISA(hark_hierarchical_products),
    .spread_unit = HARK_ISA(hark_hierarchical_spread_unit),
    .spread = HARK_ISA(hark_hierarchical_spread),
    .spread_bytes = HARK_ISA(hark_hierarchical_spread_bytes),
    .print = print,
};
