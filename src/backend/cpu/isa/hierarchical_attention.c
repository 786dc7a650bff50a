/* hierarchical_attention.c - the algorithm "hierarchical tiled": hierarchical attention in f32, O(length) time and memory.
 *
 * This file: what is supported, how memory is laid out, how tokens of coarse levels are made, how the work is cut. hierarchical_forward.c and
 * hierarchical_backward.c hold the loops over tiles, dense_products.h the micro-kernels.
 *
 * A (sequence, key head) is worked on by one thread with a tree of its own, which stays in its caches, where there are at least as many as
 * threads; otherwise one after another, each by all threads: tokens in pieces of a level, the forward in subtrees, the backward in pieces of a
 * level of which every second one touches keys of its own. The cuts depend on sizes alone and every sum has one order, so that the bits do not
 * depend on the number of threads.
 *
 * Scratch: a tree a worker | tiles a worker | gradients of tables of every head | the positional kernel's tables a worker.
 */
#include <math.h>
#include <stdio.h>

#include "hierarchical_tile.h"

#define TOKEN_PIECE 1024 /* tokens of a level made at once */
#define LEAST_ROOTS 16   /* subtrees of a head that is spread over threads */

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->structure != HARK_STRUCTURE_HIERARCHICAL)
    reason = "structure is not hierarchical";
  else if (desc->type != HARK_F32)
    reason = "type is not f32";
  else if (desc->interpolation != HARK_INTERPOLATION_CONSTANT)
    reason = "interpolation is not constant";
  else if (desc->coarse_query == HARK_COARSE_QUERY_EXACT && (desc->has_hierarchical_bias || desc->has_log_kernel))
    reason = "coarse_query is exact with has_hierarchical_bias or has_log_kernel";
  else if (desc->head_dim > INT32_MAX / HARK_TILE_QUERIES || desc->value_dim > INT32_MAX / HARK_TILE_QUERIES)
    reason = "head_dim or value_dim is too large";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

static size_t padded(int64_t features) { return (size_t)hark_ceil_div(features, HARK_LANES) * HARK_LANES; }
static bool has_terms(const hark_attention_desc *desc) { return desc->has_hierarchical_bias || desc->has_log_kernel; }

/* Floats of a tree a token, and beside. */
static hark_status count_tree(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out) {
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->key_length);
  const size_t d = padded(desc->head_dim), dv = padded(desc->value_dim);
  size_t token = 2 * d + dv + 3;
  if (backward) token += 2 * d + 2 * dv + 2;
  HARK_TRY(hark_size_multiply(context, token, (size_t)hark_hierarchy_most_tokens(desc->key_length), out));
  if (has_terms(desc)) *out += (size_t)(h.levels * hark_term_width(h.block));
  *out = hark_align_up(*out * sizeof(float)) / sizeof(float);
  return HARK_OK;
}

typedef struct scratch_layout {
  size_t tree_floats, worker_bytes, dterm_floats, kernel_doubles;
  size_t workers, dterms, kernels, bytes; /* where the parts begin */
} scratch_layout;

static hark_status lay_out(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, scratch_layout *out) {
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->key_length);
  size_t part;
  *out = (scratch_layout){0};
  HARK_TRY(count_tree(context, desc, backward, &out->tree_floats));
  HARK_TRY(hark_size_multiply(context, out->tree_floats * sizeof(float), (size_t)workers, &out->workers));
  out->worker_bytes = hark_align_up(HARK_ISA(hark_hierarchical_worker_floats)(desc, backward) * sizeof(float));
  HARK_TRY(hark_size_multiply(context, out->worker_bytes, (size_t)workers, &part));
  HARK_TRY(hark_size_add(context, out->workers, part, &out->dterms));
  if (backward && has_terms(desc)) out->dterm_floats = (size_t)(h.levels * hark_term_width(h.block));
  HARK_TRY(hark_size_multiply(context, out->dterm_floats * sizeof(float), (size_t)desc->heads, &part));
  HARK_TRY(hark_size_add(context, out->dterms, hark_align_up(part), &out->kernels));
  if (desc->has_log_kernel)
    out->kernel_doubles =
        (size_t)(hark_hierarchy_kernel_doubles(&h, false) + hark_hierarchy_kernel_means(&h, false) + hark_hierarchy_reach(&h));
  HARK_TRY(hark_size_multiply(context, out->kernel_doubles * sizeof(double), (size_t)workers, &part));
  return hark_size_add(context, out->kernels, hark_align_up(part), &out->bytes);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  scratch_layout forward, backward = {0};
  HARK_TRY(lay_out(context, desc, workers, false, &forward));
  if (!desc->forward_only) HARK_TRY(lay_out(context, desc, workers, true, &backward));
  *out = (hark_attention_sizes){.saved = 0, .forward_workspace = forward.bytes, .backward_workspace = backward.bytes};
  return HARK_OK;
}

static hark_status begin(hark_context *context, const hark_attention_run *run, bool backward, hark_hierarchical_call *call) {
  const hark_attention_desc *desc = &run->plan->desc;
  scratch_layout layout;
  HARK_TRY(lay_out(context, desc, run->plan->workers, backward, &layout));
  char *scratch = run->scratch;
  *call = (hark_hierarchical_call){.context = context,
                                   .run = run,
                                   .desc = desc,
                                   .args = run->args,
                                   .backward = backward,
                                   .exact = desc->coarse_query == HARK_COARSE_QUERY_EXACT,
                                   .first = desc->coarse_query == HARK_COARSE_QUERY_FIRST,
                                   .rbf = desc->kernel == HARK_KERNEL_RBF,
                                   .head_dim = (int)desc->head_dim,
                                   .value_dim = (int)desc->value_dim,
                                   .head_pad = (int)padded(desc->head_dim),
                                   .value_pad = (int)padded(desc->value_dim),
                                   .scale = (float)desc->scale,
                                   .tokens = hark_hierarchy_most_tokens(desc->key_length),
                                   .tree_floats = layout.tree_floats,
                                   .worker_bytes = layout.worker_bytes,
                                   .term_floats = layout.dterm_floats,
                                   .trees = (float *)(void *)scratch,
                                   .workers = scratch + layout.workers,
                                   .kernel_memory = (double *)(void *)(scratch + layout.kernels)};
  call->kernel_doubles = layout.kernel_doubles;
  if (desc->dropout > 0) {
    call->dropout_threshold = hark_random_threshold(desc->dropout);
    call->dropout_gain = (float)(1 / (1 - desc->dropout));
  }
  if (backward && (run->args->dhierarchical_bias.type != HARK_NONE || run->args->dlog_kernel.type != HARK_NONE)) {
    call->dterms = (float *)(void *)(scratch + layout.dterms);
    memset(call->dterms, 0, layout.dterm_floats * (size_t)desc->heads * sizeof(float));
  }
  return HARK_OK;
}

/* ---- a tree's memory ---- */

static float *take(float **next, size_t count) {
  float *taken = *next;
  *next += count;
  return taken;
}

/* Rows of `width` of every level, one level after another. */
static void take_rows(hark_tree *tree, float **next, size_t offset, int width) {
  float *rows = take(next, (size_t)tree->call->tokens * (size_t)width);
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    const hark_rows at = {rows, width};
    memcpy((char *)&tree->level[level] + offset, &at, sizeof at);
    rows += hark_hierarchy_tokens(&tree->hierarchy, level) * width;
  }
}
static void take_numbers(hark_tree *tree, float **next, size_t offset) {
  float *numbers = take(next, (size_t)tree->call->tokens);
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    memcpy((char *)&tree->level[level] + offset, &numbers, sizeof numbers);
    numbers += hark_hierarchy_tokens(&tree->hierarchy, level);
  }
}

/* Row `row` of a head of a tensor [B, H, L, d]. */
static hark_rows rows_of(const hark_tensor *tensor, int64_t item, int64_t head, int64_t row) {
  return (hark_rows){(float *)tensor->data + item * tensor->stride[0] + head * tensor->stride[1] + row * tensor->stride[2],
                     tensor->stride[2]};
}

static bool keys_as_they_lie(const hark_tree *tree) {
  return tree->call->args->mask.type == HARK_NONE && tree->call->head_dim == tree->call->head_pad;
}
static bool values_as_they_lie(const hark_tree *tree) {
  return tree->call->args->mask.type == HARK_NONE && tree->call->value_dim == tree->call->value_pad;
}
static bool queries_as_they_lie(const hark_tree *tree) {
  return tree->call->args->query_mask.type == HARK_NONE && tree->call->head_dim == tree->call->head_pad;
}
/* Masked keys may leave a row that sees nothing, whose gradient then must not be looked at. */
static bool gradients_as_they_lie(const hark_tree *tree) {
  const hark_attention_args *args = tree->call->args;
  return args->query_mask.type == HARK_NONE && args->mask.type == HARK_NONE && tree->call->value_dim == tree->call->value_pad;
}
/* A gradient that is wanted, in memory that whole vectors fit. */
static bool written_in_place(const hark_tensor *gradient, int width, int pad) { return gradient->type != HARK_NONE && width == pad; }

static hark_tree place_tree(const hark_hierarchical_call *call, int64_t sequence, int64_t key_head, int slot) {
  hark_tree tree = {.call = call, .sequence = &call->run->sequences[sequence], .key_head = key_head, .finite = true};
  float *next = call->trees + (size_t)slot * call->tree_floats;
  tree.hierarchy = hark_hierarchy_make(call->desc, tree.sequence->query_count);
  take_rows(&tree, &next, offsetof(hark_level, key), call->head_pad);
  take_rows(&tree, &next, offsetof(hark_level, value), call->value_pad);
  take_rows(&tree, &next, offsetof(hark_level, query), call->head_pad);
  take_numbers(&tree, &next, offsetof(hark_level, key_count));
  take_numbers(&tree, &next, offsetof(hark_level, query_count));
  take_numbers(&tree, &next, offsetof(hark_level, key_square));
  if (call->backward) {
    take_rows(&tree, &next, offsetof(hark_level, g), call->value_pad);
    take_rows(&tree, &next, offsetof(hark_level, dquery), call->head_pad);
    take_rows(&tree, &next, offsetof(hark_level, dkey), call->head_pad);
    take_rows(&tree, &next, offsetof(hark_level, dvalue), call->value_pad);
    take_numbers(&tree, &next, offsetof(hark_level, least));
    take_numbers(&tree, &next, offsetof(hark_level, mean_gradient));
  }
  const hark_hierarchy keys = {.length = tree.sequence->key_count};
  for (int level = 0; level < tree.hierarchy.levels; level++) {
    tree.level[level].queries = hark_hierarchy_tokens(&tree.hierarchy, level);
    tree.level[level].keys = hark_hierarchy_tokens(&keys, level);
    tree.level[level].terms = has_terms(call->desc) ? take(&next, (size_t)hark_term_width(tree.hierarchy.block)) : NULL;
    if (!call->rbf) tree.level[level].key_square = NULL;
  }
  const hark_attention_args *args = call->args;
  const int64_t item = tree.sequence->item, row = tree.sequence->key_row;
  hark_level *rows = &tree.level[0];
  if (keys_as_they_lie(&tree)) rows->key = rows_of(&args->key, item, key_head, row);
  if (values_as_they_lie(&tree)) rows->value = rows_of(&args->value, item, key_head, row);
  if (call->backward && written_in_place(&args->dkey, call->head_dim, call->head_pad))
    rows->dkey = rows_of(&args->dkey, item, key_head, row);
  if (call->backward && written_in_place(&args->dvalue, call->value_dim, call->value_pad))
    rows->dvalue = rows_of(&args->dvalue, item, key_head, row);
  return tree;
}

/* ---- tokens ---- */

/* Weighted sum of the two rows under a token; a weight of 0: that row is not looked at. */
static void join_rows(const hark_rows *below, int64_t token, float first, float second, int width, float *to) {
  const float *a = below->data + 2 * token * below->stride, *b = a + below->stride;
  const vf x = vf_set(first), y = vf_set(second);
  for (int c = 0; c < width; c += HARK_LANES) {
    vf sum = vf_zero();
    if (first != 0.0f) sum = x * vf_load(a + c);
    if (second != 0.0f) sum = vf_fma(y, vf_load(b + c), sum);
    vf_store(to + c, sum);
  }
}

static float square_of(const float *row, int width) {
  vf sum = vf_zero();
  for (int c = 0; c < width; c += HARK_LANES) sum = vf_fma(vf_load(row + c), vf_load(row + c), sum);
  return vf_sum(sum);
}

static void copy_row(const hark_rows *from, int64_t row, int width, bool real, int pad, float *to) {
  if (real)
    hark_pack_rows(from->data + row * from->stride, from->stride, 1, width, pad, 1.0f, to);
  else
    memset(to, 0, (size_t)pad * sizeof *to);
}

/* Keys and values from .. to of a level. */
static void make_keys(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_hierarchical_call *call = tree->call;
  const hark_level *at = &tree->level[level], *below = at - (level > 0);
  const hark_tensor *mask = &call->args->mask;
  const int64_t item = tree->sequence->item;
  for (int64_t b = from; b < to; b++) {
    float *key = at->key.data + b * at->key.stride, *value = at->value.data + b * at->value.stride;
    if (level == 0) {
      const int64_t row = tree->sequence->key_row + b;
      const bool real = mask->type == HARK_NONE || ((const uint8_t *)mask->data)[item * mask->stride[0] + row * mask->stride[3]] != 0;
      at->key_count[b] = real ? 1.0f : 0.0f;
      if (!keys_as_they_lie(tree)) {
        const hark_rows source = rows_of(&call->args->key, item, tree->key_head, row);
        copy_row(&source, 0, call->head_dim, real, call->head_pad, key);
      }
      if (!values_as_they_lie(tree)) {
        const hark_rows source = rows_of(&call->args->value, item, tree->key_head, row);
        copy_row(&source, 0, call->value_dim, real, call->value_pad, value);
      }
    } else {
      const float a = below->key_count[2 * b], c = 2 * b + 1 < below->keys ? below->key_count[2 * b + 1] : 0.0f;
      at->key_count[b] = a + c;
      const float inverse = a + c > 0.0f ? 1.0f / (a + c) : 0.0f;
      join_rows(&below->key, b, a * inverse, c * inverse, call->head_pad, key);
      join_rows(&below->value, b, a > 0.0f ? 1.0f : 0.0f, c > 0.0f ? 1.0f : 0.0f, call->value_pad, value);
    }
    /* |k|^2 scale / 2 in units of log 2 */
    if (call->rbf) at->key_square[b] = square_of(key, call->head_pad) * (float)(0.5 * call->desc->scale * HARK_LOG2_E);
  }
}

/* What level 0 brings to the backward: dout, lse, and D = dout . out. */
static void begin_gradients(const hark_tree *tree, int64_t row, bool real) {
  const hark_hierarchical_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const hark_level *at = &tree->level[0];
  const int64_t item = tree->sequence->item, n = tree->sequence->query_row + row;
  const hark_rows dout = rows_of(&args->dout, item, tree->head, n), out = rows_of(&args->out, item, tree->head, n);
  const float lse = ((const float *)args->log_sum_exp.data)[(item * call->desc->heads + tree->head) * args->query.shape[2] + n];
  real = real && lse != -INFINITY;
  at->least[row] = real ? lse : INFINITY;
  at->mean_gradient[row] = 0.0f;
  if (!gradients_as_they_lie(tree)) copy_row(&dout, 0, call->value_dim, real, call->value_pad, at->g.data + row * at->g.stride);
  if (!real) return;
  vf sum = vf_zero();
  int c = 0;
  for (; c + HARK_LANES <= call->value_dim; c += HARK_LANES) sum = vf_fma(vf_load(dout.data + c), vf_load(out.data + c), sum);
  if (c < call->value_dim)
    sum = vf_fma(vf_load_part(dout.data + c, call->value_dim - c), vf_load_part(out.data + c, call->value_dim - c), sum);
  at->mean_gradient[row] = vf_sum(sum);
}

static void join_gradients(const hark_tree *tree, int level, int64_t token) {
  const hark_level *at = &tree->level[level], *below = at - 1;
  const int64_t a = 2 * token, b = 2 * token + 1;
  const float second = b < below->queries ? below->least[b] : INFINITY, least = fminf(below->least[a], second);
  float factors[2] = {0.0f, 0.0f};
  at->least[token] = least;
  if (below->least[a] != INFINITY) factors[0] = expf(least - below->least[a]);
  if (second != INFINITY) factors[1] = expf(least - second);
  at->mean_gradient[token] = 0.0f;
  if (factors[0] != 0.0f) at->mean_gradient[token] += factors[0] * below->mean_gradient[a];
  if (factors[1] != 0.0f) at->mean_gradient[token] += factors[1] * below->mean_gradient[b];
  join_rows(&below->g, token, factors[0], factors[1], tree->call->value_pad, at->g.data + token * at->g.stride);
}

static void make_queries(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_hierarchical_call *call = tree->call;
  const hark_level *at = &tree->level[level], *below = at - (level > 0);
  const hark_tensor *mask = &call->args->query_mask;
  const int64_t item = tree->sequence->item;
  for (int64_t a = from; a < to; a++) {
    float *query = at->query.data + a * at->query.stride;
    if (level == 0) {
      const int64_t row = tree->sequence->query_row + a;
      const bool real = mask->type == HARK_NONE || ((const uint8_t *)mask->data)[item * mask->stride[0] + row * mask->stride[1]] != 0;
      at->query_count[a] = real ? 1.0f : 0.0f;
      if (!queries_as_they_lie(tree)) {
        const hark_rows source = rows_of(&call->args->query, item, tree->head, row);
        copy_row(&source, 0, call->head_dim, real, call->head_pad, query);
      }
      if (call->backward) begin_gradients(tree, a, real);
      continue;
    }
    const float first = below->query_count[2 * a], second = 2 * a + 1 < below->queries ? below->query_count[2 * a + 1] : 0.0f;
    at->query_count[a] = first + second;
    if (call->first) {
      join_rows(&below->query, a, first > 0.0f ? 1.0f : 0.0f, first > 0.0f || second == 0.0f ? 0.0f : 1.0f, call->head_pad, query);
    } else {
      const float inverse = first + second > 0.0f ? 1.0f / (first + second) : 0.0f;
      join_rows(&below->query, a, first * inverse, second * inverse, call->head_pad, query);
    }
    if (call->backward) join_gradients(tree, level, a);
  }
}

/* What is added to the logits of a level, by row - key, in units of log 2. */
static void make_terms(const hark_tree *tree, const hark_hierarchy_kernel *kernel) {
  const hark_hierarchical_call *call = tree->call;
  const hark_tensor *bias = &call->args->hierarchical_bias;
  const int64_t block = tree->hierarchy.block, reach = 2 * block - 1;
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    float *terms = tree->level[level].terms;
    memset(terms, 0, (size_t)hark_term_width(block) * sizeof *terms);
    for (int64_t difference = -reach; difference <= reach; difference++) {
      double term = 0;
      if (call->desc->has_hierarchical_bias) term += (double)((const float *)bias->data)[tree->head * bias->stride[0] + reach - difference];
      if (kernel != NULL) term += kernel->mean[hark_hierarchy_kernel_index(kernel, level, difference < 0 ? -difference : difference)];
      terms[hark_term_at(block, difference)] = (float)(term * (double)HARK_LOG2_E);
    }
  }
}

/* ---- the work ---- */

typedef enum stage_kind { MAKE_KEYS, MAKE_QUERIES, FORWARD, BACKWARD, BACKWARD_EXACT } stage_kind;

/* Pieces of work on a tree that do not touch each other. */
typedef struct stage {
  const hark_tree *tree;
  stage_kind kind;
  int level;
  int64_t first, step; /* numbers of pieces */
  int worker;          /* where there is one */
} stage;

static void run_piece(const stage *s, int64_t index, int worker) {
  const hark_tree *tree = s->tree;
  const int64_t piece = s->first + index * s->step, token = piece * TOKEN_PIECE;
  void *memory = tree->call->workers + (size_t)worker * tree->call->worker_bytes;
  switch (s->kind) {
    case MAKE_KEYS: make_keys(tree, s->level, token, hark_min(token + TOKEN_PIECE, tree->level[s->level].keys)); break;
    case MAKE_QUERIES: make_queries(tree, s->level, token, hark_min(token + TOKEN_PIECE, tree->level[s->level].queries)); break;
    case FORWARD: HARK_ISA(hark_hierarchical_forward_tiles)(tree, piece, s->level, memory); break;
    case BACKWARD: HARK_ISA(hark_hierarchical_backward_piece)(tree, s->level, piece, memory); break;
    case BACKWARD_EXACT: HARK_ISA(hark_hierarchical_backward_exact)(tree, memory); break;
  }
}

static void stage_task(void *data, int64_t index, int worker) { run_piece(data, index, worker); }

/* All pieces, by all threads or by the one that calls. */
static void run_stage(const hark_tree *tree, stage_kind kind, int level, int64_t first, int64_t step, int64_t count, bool spread,
                      int worker) {
  stage s = {.tree = tree, .kind = kind, .level = level, .first = first, .step = step, .worker = worker};
  if (spread)
    hark_parallel_for(tree->call->context, count, stage_task, &s);
  else
    for (int64_t index = 0; index < count; index++) run_piece(&s, index, worker);
}

/* Sums of values and means of keys are finite up to the coarsest level where all of them are. */
static bool all_finite(const hark_tree *tree) {
  const hark_level *top = &tree->level[tree->hierarchy.levels - 1];
  for (int64_t b = 0; b < top->keys; b++)
    if (!hark_rows_finite(top->key.data + b * top->key.stride, 0, 1, tree->call->head_dim) ||
        !hark_rows_finite(top->value.data + b * top->value.stride, 0, 1, tree->call->value_dim))
      return false;
  return true;
}

static void forward_head(const hark_tree *tree, bool spread, int worker) {
  int level = spread ? tree->hierarchy.levels - 1 : tree->call->exact ? 0 : tree->hierarchy.levels - 1;
  while (spread && level > 0 && hark_ceil_div(tree->level[level].queries, HARK_TILE_QUERIES) < LEAST_ROOTS) level--;
  run_stage(tree, FORWARD, level, 0, 1, hark_ceil_div(tree->level[level].queries, HARK_TILE_QUERIES), spread, worker);
}

/* Gradients that were gathered in our memory, to the caller's. */
static void give_rows(const hark_rows *from, int64_t count, int width, bool add, const hark_rows *to) {
  for (int64_t n = 0; n < count; n++) {
    const float *source = from->data + n * from->stride;
    float *target = to->data + n * to->stride;
    for (int c = 0; c < width; c++) target[c] = add ? target[c] + source[c] : source[c];
  }
}

static void backward_head(hark_tree *tree, bool spread, int worker) {
  const hark_hierarchical_call *call = tree->call;
  if (call->exact) {
    run_stage(tree, BACKWARD_EXACT, 0, 0, 1, 1, false, worker);
  } else {
    for (int level = tree->hierarchy.levels - 1; level >= 0; level--) {
      const int64_t pieces = HARK_ISA(hark_hierarchical_pieces)(tree, level);
      run_stage(tree, BACKWARD, level, 0, 2, (pieces + 1) / 2, spread, worker);
      run_stage(tree, BACKWARD, level, 1, 2, pieces / 2, spread, worker);
    }
  }
  const hark_tensor *dquery = &call->args->dquery;
  if (dquery->type == HARK_NONE || call->head_dim == call->head_pad) return;
  const hark_rows to = rows_of(dquery, tree->sequence->item, tree->head, tree->sequence->query_row);
  give_rows(&tree->level[0].dquery, tree->level[0].queries, call->head_dim, call->args->accumulate & HARK_ACCUMULATE_QUERY, &to);
}

static void give_keys(const hark_tree *tree) {
  const hark_hierarchical_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t item = tree->sequence->item, row = tree->sequence->key_row;
  if (args->dkey.type != HARK_NONE && call->head_dim != call->head_pad) {
    const hark_rows to = rows_of(&args->dkey, item, tree->key_head, row);
    give_rows(&tree->level[0].dkey, tree->level[0].keys, call->head_dim, args->accumulate & HARK_ACCUMULATE_KEY, &to);
  }
  if (args->dvalue.type != HARK_NONE && call->value_dim != call->value_pad) {
    const hark_rows to = rows_of(&args->dvalue, item, tree->key_head, row);
    give_rows(&tree->level[0].dvalue, tree->level[0].keys, call->value_dim, args->accumulate & HARK_ACCUMULATE_VALUE, &to);
  }
}

/* All of a (sequence, key head), with the tree and the tiles of a worker, or spread over all of them. */
static void run_key_head(const hark_hierarchical_call *call, int64_t sequence, int64_t key_head, bool spread, int worker) {
  const hark_attention_desc *desc = call->desc;
  const int64_t group = desc->heads / desc->key_heads;
  hark_tree tree = place_tree(call, sequence, key_head, worker);
  const hark_attention_args *args = call->args;
  for (int level = 0; level < tree.hierarchy.levels; level++)
    run_stage(&tree, MAKE_KEYS, level, 0, 1, hark_ceil_div(tree.level[level].keys, TOKEN_PIECE), spread, worker);
  tree.finite = all_finite(&tree);
  const hark_rows own_query = tree.level[0].query, own_g = tree.level[0].g, own_dquery = tree.level[0].dquery;
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    const int64_t item = tree.sequence->item, row = tree.sequence->query_row;
    tree.head = head;
    tree.level[0].query = queries_as_they_lie(&tree) ? rows_of(&args->query, item, head, row) : own_query;
    if (call->backward) {
      tree.level[0].g = gradients_as_they_lie(&tree) ? rows_of(&args->dout, item, head, row) : own_g;
      tree.level[0].dquery =
          written_in_place(&args->dquery, call->head_dim, call->head_pad) ? rows_of(&args->dquery, item, head, row) : own_dquery;
      tree.add_first = head > key_head * group;
      for (int level = 0; call->dterms != NULL && level < tree.hierarchy.levels; level++)
        tree.level[level].dterms =
            call->dterms + (size_t)head * call->term_floats + (size_t)(level * hark_term_width(tree.hierarchy.block));
    }
    const int query_levels = call->exact ? 1 : tree.hierarchy.levels;
    for (int level = 0; level < query_levels; level++)
      run_stage(&tree, MAKE_QUERIES, level, 0, 1, hark_ceil_div(tree.level[level].queries, TOKEN_PIECE), spread, worker);
    if (has_terms(desc)) {
      hark_hierarchy_kernel kernel;
      if (desc->has_log_kernel)
        kernel = hark_hierarchy_kernel_make(&tree.hierarchy, false, &args->log_kernel, head,
                                            call->kernel_memory + (size_t)worker * call->kernel_doubles);
      make_terms(&tree, desc->has_log_kernel ? &kernel : NULL);
    }
    if (call->backward)
      backward_head(&tree, spread, worker);
    else
      forward_head(&tree, spread, worker);
  }
  if (call->backward) give_keys(&tree);
}

static void pair_task(void *data, int64_t index, int worker) {
  const hark_hierarchical_call *call = data;
  run_key_head(call, index / call->desc->key_heads, index % call->desc->key_heads, false, worker);
}

/* A key head in all sequences, one after another: gradients of its heads' tables are summed in one order. */
static void key_head_task(void *data, int64_t index, int worker) {
  const hark_hierarchical_call *call = data;
  for (int64_t sequence = 0; sequence < call->run->sequence_count; sequence++) run_key_head(call, sequence, index, false, worker);
}

static void run_all(hark_context *context, hark_hierarchical_call *call) {
  const int64_t pairs = call->run->sequence_count * call->desc->key_heads;
  if (call->dterms != NULL) {
    hark_parallel_for(context, call->desc->key_heads, key_head_task, call);
  } else if (pairs >= hark_workers(context)) {
    hark_parallel_for(context, pairs, pair_task, call);
  } else {
    for (int64_t pair = 0; pair < pairs; pair++) run_key_head(call, pair / call->desc->key_heads, pair % call->desc->key_heads, true, 0);
  }
}

/* Gradient by log G of the distances, of one head. */
static void kernel_gradient(const hark_hierarchical_call *call, int64_t head, double *gradient) {
  const hark_hierarchy h = hark_hierarchy_make(call->desc, call->desc->key_length);
  double *memory = call->kernel_memory;
  const hark_hierarchy_kernel kernel = hark_hierarchy_kernel_make(&h, false, &call->args->log_kernel, head, memory);
  double *dmean = memory + hark_hierarchy_kernel_doubles(&h, false);
  for (int level = 0; level < h.levels; level++) {
    const float *dterms = call->dterms + (size_t)head * call->term_floats + (size_t)(level * hark_term_width(h.block));
    for (int64_t t = 0; t < 2 * h.block; t++) {
      double sum = (double)dterms[hark_term_at(h.block, t)];
      if (t > 0) sum += (double)dterms[hark_term_at(h.block, -t)];
      dmean[hark_hierarchy_kernel_index(&kernel, level, t)] = sum;
    }
  }
  hark_hierarchy_kernel_gradient(&kernel, dmean, gradient);
}

static void give_tables(const hark_hierarchical_call *call) {
  const hark_attention_desc *desc = call->desc;
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->key_length);
  const hark_tensor *dbias = &call->args->dhierarchical_bias, *dkernel = &call->args->dlog_kernel;
  const int64_t reach = 2 * h.block - 1;
  if (dbias->type != HARK_NONE) {
    const int64_t sharing = dbias->stride[0] == 0 ? desc->heads : 1;
    for (int64_t head = 0; head < desc->heads; head += sharing)
      for (int64_t i = 0; i <= 2 * reach; i++) {
        double sum = 0;
        for (int64_t other = head; other < head + sharing; other++)
          for (int level = 0; level < h.levels; level++)
            sum += (double)call->dterms[(size_t)other * call->term_floats + (size_t)(level * hark_term_width(h.block)) +
                                        (size_t)hark_term_at(h.block, reach - i)];
        ((float *)dbias->data)[head * dbias->stride[0] + i] += (float)sum;
      }
  }
  if (dkernel->type == HARK_NONE) return;
  const int64_t sharing = dkernel->stride[0] == 0 ? desc->heads : 1, distances = hark_min(dkernel->shape[1], hark_hierarchy_reach(&h));
  double *gradient = call->kernel_memory + hark_hierarchy_kernel_doubles(&h, false) + hark_hierarchy_kernel_means(&h, false);
  for (int64_t head = 0; head < desc->heads; head += sharing) {
    memset(gradient, 0, (size_t)distances * sizeof *gradient);
    for (int64_t other = head; other < head + sharing; other++) kernel_gradient(call, other, gradient);
    for (int64_t x = 0; x < distances; x++) ((float *)dkernel->data)[head * dkernel->stride[0] + x] += (float)gradient[x];
  }
}

static hark_status forward(hark_context *context, const hark_attention_run *run) {
  hark_hierarchical_call call;
  HARK_TRY(begin(context, run, false, &call));
  run_all(context, &call);
  return HARK_OK;
}

static hark_status backward(hark_context *context, const hark_attention_run *run) {
  hark_hierarchical_call call;
  HARK_TRY(begin(context, run, true, &call));
  run_all(context, &call);
  if (call.dterms != NULL) give_tables(&call);
  return HARK_OK;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "tiles of %d queries, %d lanes, a tree of %.4g MB for each of %d workers", HARK_TILE_QUERIES, HARK_LANES,
                  (double)plan->sizes.backward_workspace / plan->workers / 1e6, plan->workers);
}

extern const hark_attention_algorithm HARK_ISA(hark_cpu_hierarchical);
const hark_attention_algorithm HARK_ISA(hark_cpu_hierarchical) = {
    .name = "hierarchical tiled",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = backward,
    .print = print,
};
