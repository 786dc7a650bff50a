/* hierarchical.c - hierarchical attention by its definition, in double, with plain loops: the tree of tokens and the forward.
 *
 *     keys       k[l+1][j] = mean of the unmasked keys below it,  v[l+1][j] = their sum,  c their number       (H eq. 25-27, with counts)
 *     queries    the same mean over queries, or the first of them
 *     entries    s = scale q.k + bias[key - query] + log mean G, of the rows and keys that meet (backend/hierarchy.h)
 *     rows       (Z, Y)[l] = (sum c e^s, sum m e^s v) + interpolation of (Z, Y)[l+1],   out = Y[0] / Z[0]      (H eq. 29, 73)
 *
 * Every row has a separate maximum, from the coarsest level down, so nothing is relative to a maximum of the head. m is dropout's factor.
 * Source: H-Transformer-1D sections 5-7; docs/mathematics/hierarchical.md. Cost: O(L Nr (d + dv)) per head, exact O(L log(L) Nr (d + dv));
 * memory O(L (d + dv)) per worker.
 */
#include "backend/reference/hierarchical.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->structure != HARK_STRUCTURE_HIERARCHICAL)
    reason = "structure is not hierarchical";
  else if (desc->normalisation != HARK_NORMALISATION_SOFTMAX)
    reason = "normalisation is not softmax";
  else if (desc->grid_columns != 0)
    reason = "grid_columns is not 0";
  if (reason != NULL) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

/* Numbers per token in all arrays of the forward, or of forward and backward. */
static int64_t token_doubles(const hark_attention_desc *desc, bool backward) {
  const int64_t forward = 2 * desc->head_dim + 2 * desc->value_dim + 4;
  return backward ? forward + 2 * desc->head_dim + 2 * desc->value_dim + 3 : forward;
}

hark_status hark_tree_doubles(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out) {
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->key_length);
  const bool exact = desc->coarse_query == HARK_COARSE_QUERY_EXACT;
  size_t kernel = 0;
  HARK_TRY(hark_size_multiply(context, (size_t)token_doubles(desc, backward), (size_t)hark_hierarchy_most_tokens(desc->key_length), out));
  if (desc->has_log_kernel) {
    const int64_t doubles = hark_hierarchy_kernel_doubles(&h, exact) + (backward ? hark_hierarchy_kernel_means(&h, exact) : 0);
    kernel = (size_t)(hark_kernel_sides(desc) * doubles);
  }
  return hark_size_add(context, *out, kernel, out);
}

static double *take(double **memory, int64_t count) {
  double *taken = *memory;
  *memory += count;
  return taken;
}

tree hark_tree_place(const hark_attention_call *run, bool backward, double *memory) {
  const hark_attention_desc *desc = &run->plan->desc;
  const int64_t tokens = hark_hierarchy_most_tokens(desc->key_length), d = desc->head_dim, dv = desc->value_dim;
  tree t = {.exact = desc->coarse_query == HARK_COARSE_QUERY_EXACT};
  t.key = take(&memory, tokens * d);
  t.value = take(&memory, tokens * dv);
  t.key_count = take(&memory, tokens);
  t.query = take(&memory, tokens * d);
  t.query_count = take(&memory, tokens);
  t.highest = take(&memory, tokens);
  t.sum = take(&memory, tokens);
  t.mixed = take(&memory, tokens * dv);
  if (backward) {
    t.least = take(&memory, tokens);
    t.least_sum = take(&memory, tokens);
    t.dmixed = take(&memory, tokens * dv);
    t.mean_gradient = take(&memory, tokens);
    t.dquery = take(&memory, tokens * d);
    t.dkey = take(&memory, tokens * d);
    t.dvalue = take(&memory, tokens * dv);
  }
  if (desc->has_log_kernel) {
    const hark_hierarchy h = hark_hierarchy_make(desc, desc->key_length);
    t.kernel_memory = take(&memory, hark_kernel_sides(desc) * hark_hierarchy_kernel_doubles(&h, t.exact));
    if (backward) t.dkernel = take(&memory, hark_kernel_sides(desc) * hark_hierarchy_kernel_means(&h, t.exact));
  }
  return t;
}

/* Number of children of a token: tokens 2a and, if it exists, 2a + 1 of the level below. */
static int64_t children(const tree *t, int level, int64_t token) {
  return hark_min(2, hark_hierarchy_tokens(&t->hierarchy, level - 1) - 2 * token);
}

/* Averages by count: x[parent] = sum of count x / sum of count over children with count above 0. */
static void average(const tree *t, int level, const double *count, double *x, int64_t width) {
  for (int64_t a = 0; a < hark_hierarchy_tokens(&t->hierarchy, level); a++) {
    double *to = x + (t->first[level] + a) * width;
    for (int64_t c = 0; c < width; c++) to[c] = 0;
    for (int64_t child = 0; child < children(t, level, a); child++) {
      const int64_t from = t->first[level - 1] + 2 * a + child;
      if (count[from] == 0) continue;
      const double weight = count[from] / count[t->first[level] + a];
      for (int64_t c = 0; c < width; c++) to[c] += weight * x[from * width + c];
    }
  }
}

static void count_up(const tree *t, int level, double *count) {
  for (int64_t a = 0; a < hark_hierarchy_tokens(&t->hierarchy, level); a++) {
    double sum = 0;
    for (int64_t child = 0; child < children(t, level, a); child++) sum += count[t->first[level - 1] + 2 * a + child];
    count[t->first[level] + a] = sum;
  }
}

static void read_row(const hark_tensor *tensor, int64_t index, bool real, int64_t width, double *to) {
  for (int64_t c = 0; c < width; c++) to[c] = real ? dense_get(tensor, index + c) : 0; /* masked rows may hold anything */
}

void hark_tree_keys(tree *t, const hark_attention_call *run, int64_t sequence, int64_t key_head) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  t->at = hark_dense_head(run, NULL, sequence, key_head * (desc->heads / desc->key_heads));
  t->hierarchy = hark_hierarchy_make(desc, t->at.sequence->query_count);
  for (int level = 0; level <= t->hierarchy.levels; level++) t->first[level] = hark_hierarchy_before(&t->hierarchy, level);
  for (int64_t i = 0; i < t->hierarchy.length; i++) {
    bool real = i < t->at.sequence->key_count;
    if (real && args->mask.type != HARK_NONE) real = ((const uint8_t *)args->mask.data)[dense_entry_index(&t->at, &args->mask, 0, i)] != 0;
    t->key_count[i] = real;
    read_row(&args->key, real ? dense_key_index(&t->at, &args->key, i) : 0, real, desc->head_dim, t->key + i * desc->head_dim);
    read_row(&args->value, real ? dense_key_index(&t->at, &args->value, i) : 0, real, desc->value_dim, t->value + i * desc->value_dim);
  }
  for (int level = 1; level < t->hierarchy.levels; level++) {
    count_up(t, level, t->key_count);
    average(t, level, t->key_count, t->key, desc->head_dim);
    for (int64_t a = 0; a < hark_hierarchy_tokens(&t->hierarchy, level); a++)
      for (int64_t c = 0; c < desc->value_dim; c++) {
        double sum = 0;
        for (int64_t child = 0; child < children(t, level, a); child++)
          sum += t->value[(t->first[level - 1] + 2 * a + child) * desc->value_dim + c];
        t->value[(t->first[level] + a) * desc->value_dim + c] = sum;
      }
  }
}

void hark_tree_queries(tree *t, const hark_attention_call *run, int64_t head) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_tensor *mask = &run->args->query_mask;
  const int64_t d = desc->head_dim;
  t->at.head = head;
  for (int64_t n = 0; n < t->hierarchy.length; n++) {
    bool real = true;
    if (mask->type != HARK_NONE)
      real = ((const uint8_t *)mask->data)[t->at.sequence->item * mask->stride[0] + (t->at.sequence->query_row + n) * mask->stride[1]] != 0;
    t->query_count[n] = real;
    read_row(&run->args->query, dense_query_index(&t->at, &run->args->query, n), real, d, t->query + n * d);
  }
  for (int level = 1; level < t->hierarchy.levels; level++) {
    count_up(t, level, t->query_count);
    if (desc->coarse_query == HARK_COARSE_QUERY_MEAN) average(t, level, t->query_count, t->query, d);
    if (desc->coarse_query != HARK_COARSE_QUERY_FIRST) continue;
    for (int64_t a = 0; a < hark_hierarchy_tokens(&t->hierarchy, level); a++) {
      int64_t from = t->first[level - 1] + 2 * a;
      if (t->query_count[from] == 0 && children(t, level, a) == 2) from++;
      memcpy(t->query + (t->first[level] + a) * d, t->query + from * d, (size_t)d * sizeof(double));
    }
  }
  for (int side = 0; desc->has_log_kernel && side < hark_kernel_sides(desc); side++) {
    const hark_tensor table = hark_kernel_side(desc, &run->args->log_kernel, side);
    double *memory = t->kernel_memory + side * hark_hierarchy_kernel_doubles(&t->hierarchy, t->exact);
    t->kernel[side] = hark_hierarchy_kernel_make(&t->hierarchy, t->exact, &table, head, memory);
  }
}

static double similarity(const tree *t, int64_t query, int64_t key) {
  const int64_t d = t->at.desc->head_dim;
  const double *q = t->query + query * d, *k = t->key + key * d;
  double sum = 0;
  if (t->at.desc->kernel == HARK_KERNEL_RBF) {
    for (int64_t c = 0; c < d; c++) sum += (q[c] - k[c]) * (q[c] - k[c]);
    return -t->at.desc->scale / 2 * sum;
  }
  for (int64_t c = 0; c < d; c++) sum += q[c] * k[c];
  return t->at.desc->scale * sum;
}

/* Index of the kernel's term: distance of the tokens, or of the query from the farthest key of the cell. */
static int64_t kernel_index(const tree *t, int level, int64_t row, int64_t token, int64_t key) {
  if (!t->exact) return hark_hierarchy_kernel_index(&t->kernel[0], level, token > key ? token - key : key - token);
  const int64_t farthest = key < token ? row - (key << level) : ((key + 1) << level) - 1 - row;
  return hark_hierarchy_kernel_index(&t->kernel[0], level, farthest);
}

void hark_tree_entries(tree *t, int level, int64_t row, tree_visit *visit, void *data) {
  const hark_attention_args *args = t->at.args;
  const int64_t token = t->exact ? row >> level : row;
  const hark_hierarchy_keys keys = hark_hierarchy_meets(&t->hierarchy, level, token);
  tree_entry entry = {.level = level, .row = t->first[t->exact ? 0 : level] + row};
  entry.query = entry.row;
  for (int side = 0; side < 2; side++)
    for (int64_t key = keys.range[side].from; key < keys.range[side].to; key++) {
      entry.key = t->first[level] + key;
      if (t->key_count[entry.key] == 0) continue;
      double terms = 0;
      if (args->hierarchical_bias.type != HARK_NONE) {
        entry.bias = key - token + 2 * t->hierarchy.block - 1;
        terms += dense_get(&args->hierarchical_bias, t->at.head * args->hierarchical_bias.stride[0] + entry.bias);
      }
      if (t->at.desc->has_log_kernel) {
        entry.kernel = kernel_index(t, level, row, token, key);
        entry.side = t->at.desc->directed_kernel != 0 && key > token;
        terms += t->kernel[entry.side].mean[entry.kernel];
      }
      if (terms == -INFINITY) continue;
      entry.logit = similarity(t, entry.query, entry.key) + terms;
      entry.factor = hark_dense_dropout(&t->at, t->exact ? row : row << level, key << level);
      visit(t, data, &entry);
    }
}

/* Adds an entry to its row, whose numbers are relative to its highest logit so far. */
static void add_entry(tree *t, void *data, const tree_entry *entry) {
  (void)data;
  const int64_t dv = t->at.desc->value_dim;
  if (entry->logit == -INFINITY) return;
  double *mixed = t->mixed + entry->row * dv, *highest = &t->highest[entry->row];
  if (entry->logit > *highest || isnan(entry->logit)) {
    const double smaller = exp(*highest - entry->logit);
    t->sum[entry->row] *= smaller;
    for (int64_t c = 0; c < dv; c++) mixed[c] *= smaller;
    *highest = entry->logit;
  }
  const double weight = exp(entry->logit - *highest);
  t->sum[entry->row] += weight * t->key_count[entry->key];
  if (entry->factor == 0) return;
  for (int64_t c = 0; c < dv; c++) mixed[c] += entry->factor * weight * t->value[entry->key * dv + c];
}

tree_parents hark_tree_parents(const tree *t, int level, int64_t child) {
  const int64_t parent = child / 2;
  tree_parents parents = {{parent, parent}, {1, 0}};
  if (t->at.desc->interpolation != HARK_INTERPOLATION_LINEAR || child % 2 == 0) return parents;
  if (parent + 1 >= hark_hierarchy_tokens(&t->hierarchy, level) || t->query_count[t->first[level] + parent + 1] == 0) return parents;
  return (tree_parents){{parent, parent + 1}, {0.5, 0.5}};
}

/* Adds up the contributions of the level above to a row, relative to a common maximum. */
static void begin_row(tree *t, int level, int64_t row) {
  const int64_t dv = t->at.desc->value_dim, at = t->first[level] + row;
  double *mixed = t->mixed + at * dv;
  t->highest[at] = -INFINITY;
  t->sum[at] = 0;
  for (int64_t c = 0; c < dv; c++) mixed[c] = 0;
  if (t->exact || level + 1 >= t->hierarchy.levels) return;
  const tree_parents parents = hark_tree_parents(t, level + 1, row);
  for (int p = 0; p < 2; p++)
    if (parents.coefficient[p] > 0) t->highest[at] = hark_larger(t->highest[at], t->highest[t->first[level + 1] + parents.row[p]]);
  if (t->highest[at] == -INFINITY) return;
  for (int p = 0; p < 2; p++) {
    const int64_t from = t->first[level + 1] + parents.row[p];
    if (parents.coefficient[p] == 0 || t->highest[from] == -INFINITY) continue;
    const double factor = parents.coefficient[p] * exp(t->highest[from] - t->highest[at]);
    t->sum[at] += factor * t->sum[from];
    for (int64_t c = 0; c < dv; c++) mixed[c] += factor * t->mixed[from * dv + c];
  }
}

void hark_tree_forward(tree *t) {
  for (int level = t->hierarchy.levels - 1; level >= 0; level--) {
    const int64_t rows = hark_hierarchy_tokens(&t->hierarchy, t->exact ? 0 : level);
    for (int64_t row = 0; row < rows; row++) {
      if (t->query_count[t->first[t->exact ? 0 : level] + row] == 0) continue;
      if (!t->exact || level == t->hierarchy.levels - 1) begin_row(t, t->exact ? 0 : level, row);
      hark_tree_entries(t, level, row, add_entry, NULL);
    }
  }
}

typedef struct forward_task {
  const hark_attention_call *run;
  size_t per_worker;
} forward_task;

static void write_rows(const tree *t) {
  const hark_attention_args *args = t->at.args;
  const int64_t dv = t->at.desc->value_dim;
  for (int64_t n = 0; n < t->hierarchy.length; n++) {
    const bool sees = t->query_count[n] > 0 && t->highest[n] != -INFINITY;
    const int64_t out = dense_query_index(&t->at, &args->out, n);
    for (int64_t c = 0; c < dv; c++) dense_put(&args->out, out + c, sees ? t->mixed[n * dv + c] / t->sum[n] : 0);
    if (args->log_sum_exp.type == HARK_NONE) continue;
    const int64_t row = (t->at.sequence->item * t->at.desc->heads + t->at.head) * args->query.shape[2] + t->at.sequence->query_row + n;
    dense_put_log_sum(&args->log_sum_exp, row, sees ? t->highest[n] + log(t->sum[n]) : -INFINITY);
  }
}

static void forward_key_head(void *data, int64_t index, int worker) {
  const forward_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const int64_t group = desc->heads / desc->key_heads, key_head = index % desc->key_heads;
  tree t = hark_tree_place(task->run, false, (double *)task->run->scratch + (size_t)worker * task->per_worker);
  hark_tree_keys(&t, task->run, index / desc->key_heads, key_head);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    hark_tree_queries(&t, task->run, head);
    hark_tree_forward(&t);
    write_rows(&t);
  }
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  forward_task task = {.run = run};
  HARK_TRY(hark_tree_doubles(context, &run->plan->desc, false, &task.per_worker));
  hark_parallel_for(context, run->sequence_count * run->plan->desc.key_heads, forward_key_head, &task);
  return HARK_OK;
}

/* In the backward, the gradients of the tables of every head follow the workers' trees. */
static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  size_t doubles;
  out->saved = 0;
  HARK_TRY(hark_tree_doubles(context, desc, false, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, (size_t)workers * sizeof(double), &out->forward_workspace));
  HARK_TRY(hark_tree_doubles(context, desc, true, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, (size_t)workers * sizeof(double), &out->backward_workspace));
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->key_length);
  const int64_t tables =
      (desc->has_hierarchical_bias ? 4 * h.block - 1 : 0) + (desc->has_log_kernel ? hark_kernel_sides(desc) * hark_hierarchy_reach(&h) : 0);
  HARK_TRY(hark_size_multiply(context, (size_t)tables * sizeof(double), (size_t)desc->heads, &doubles));
  return hark_size_add(context, out->backward_workspace, doubles, &out->backward_workspace);
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "levels one after another in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_hierarchical = {
    .name = "hierarchical by definition",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = hark_hierarchical_backward,
    .print = print,
};
