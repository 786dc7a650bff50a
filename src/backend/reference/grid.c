/* grid.c - hierarchical attention over the pixels of a picture by its definition, in double, pixel by pixel: cells and the forward.
 *
 *     keys       k[l][b] = mean of the unmasked keys of cell b,  v[l][b] = their sum,  c[l][b] their number
 *     queries    q[l][a] = mean of the queries of cell a; coarse query exact: the pixel's own
 *     pixel n    Z = sum over levels l and the key cells b that its cell a meets (backend/grid.h): c e^s,   s = scale q[l][a].k[l][b]
 *                out = (sum of m e^s v[l][b]) / Z,   m: dropout's factor;   lse = log Z
 *
 * Source: H-Transformer-1D, which names the form in two dimensions as future work (section 9); docs/mathematics/hierarchical-2d.md. A pixel
 * computes the logits of its cells by itself, so the cost is O(L log(L) Nr (d + dv)) per head; memory O(L (d + dv)) per worker.
 */
#include "backend/reference/grid.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->grid_columns == 0)
    reason = "grid_columns is 0";
  else if (desc->normalisation != HARK_NORMALISATION_SOFTMAX)
    reason = "normalisation is not softmax";
  if (reason != NULL) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

/* Cells of all levels of the longest sequence; shorter ones have no more. */
static int64_t most_cells(const hark_attention_desc *desc) {
  const hark_grid g = hark_grid_make(desc, desc->longest);
  return hark_grid_before(&g, g.levels);
}

hark_status hark_grid_doubles(hark_context *context, const hark_attention_desc *desc, bool backward, size_t *out) {
  const int64_t d = desc->head_dim, dv = desc->value_dim;
  const int64_t doubles = 2 * d + dv + 2 + (backward ? 2 * d + dv : 0);
  HARK_TRY(hark_size_multiply(context, (size_t)doubles, (size_t)most_cells(desc), out));
  return hark_size_add(context, *out, (size_t)dv, out);
}

static double *take(double **memory, int64_t count) {
  double *taken = *memory;
  *memory += count;
  return taken;
}

grid_head hark_grid_place(const hark_attention_call *run, bool backward, double *memory) {
  const hark_attention_desc *desc = &run->plan->desc;
  const int64_t cells = most_cells(desc), d = desc->head_dim, dv = desc->value_dim;
  grid_head t = {.exact = desc->coarse_query == HARK_COARSE_QUERY_EXACT};
  t.key = take(&memory, cells * d);
  t.value = take(&memory, cells * dv);
  t.key_count = take(&memory, cells);
  t.query = take(&memory, cells * d);
  t.query_count = take(&memory, cells);
  t.mixed = take(&memory, dv);
  if (!backward) return t;
  t.dquery = take(&memory, cells * d);
  t.dkey = take(&memory, cells * d);
  t.dvalue = take(&memory, cells * dv);
  return t;
}

/* Index of the cell of a level that contains pixel n. */
static int64_t cell_of(const grid_head *t, int level, int64_t n) {
  const int64_t row = n / t->grid.stride, column = n % t->grid.stride;
  return t->first[level] + (row >> level) * hark_grid_width(&t->grid, level) + (column >> level);
}

/* count, and sum or mean, of the pixels of every cell above level 0, from those of level 0. */
static void sum_cells(const grid_head *t, double *count, double *x, int64_t width, bool mean) {
  const int64_t coarse = t->first[t->grid.levels] - t->first[1];
  memset(x + t->first[1] * width, 0, (size_t)(coarse * width) * sizeof *x);
  if (mean) memset(count + t->first[1], 0, (size_t)coarse * sizeof *count);
  for (int level = 1; level < t->grid.levels; level++) {
    for (int64_t n = 0; n < t->grid.length; n++) {
      const int64_t from = cell_of(t, 0, n), to = cell_of(t, level, n);
      if (count[from] == 0) continue;
      if (mean) count[to]++;
      for (int64_t c = 0; c < width; c++) x[to * width + c] += x[from * width + c];
    }
    for (int64_t cell = t->first[level]; mean && cell < t->first[level + 1]; cell++)
      for (int64_t c = 0; count[cell] > 0 && c < width; c++) x[cell * width + c] /= count[cell];
  }
}

static void read_row(const hark_tensor *tensor, int64_t index, bool real, int64_t width, double *to) {
  for (int64_t c = 0; c < width; c++) to[c] = real ? dense_get(tensor, index + c) : 0; /* masked rows may hold anything */
}

void hark_grid_keys(grid_head *t, const hark_attention_call *run, int64_t sequence, int64_t key_head) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  t->at = hark_dense_head(run, NULL, sequence, key_head * (desc->heads / desc->key_heads));
  t->grid = hark_grid_make(desc, t->at.sequence->query_count);
  for (int level = 0; level <= t->grid.levels; level++) t->first[level] = hark_grid_before(&t->grid, level);
  memset(t->key_count, 0, (size_t)t->first[1] * sizeof(double));
  for (int64_t i = 0; i < t->grid.length; i++) {
    const int64_t cell = cell_of(t, 0, i);
    bool real = i < t->at.sequence->key_count;
    if (real && args->mask.type != HARK_NONE) real = ((const uint8_t *)args->mask.data)[dense_entry_index(&t->at, &args->mask, 0, i)] != 0;
    t->key_count[cell] = real;
    read_row(&args->key, real ? dense_key_index(&t->at, &args->key, i) : 0, real, desc->head_dim, t->key + cell * desc->head_dim);
    read_row(&args->value, real ? dense_key_index(&t->at, &args->value, i) : 0, real, desc->value_dim, t->value + cell * desc->value_dim);
  }
  sum_cells(t, t->key_count, t->key, desc->head_dim, true);
  sum_cells(t, t->key_count, t->value, desc->value_dim, false);
}

void hark_grid_queries(grid_head *t, int64_t head) {
  const hark_attention_args *args = t->at.args;
  const hark_tensor *mask = &args->query_mask;
  const int64_t d = t->at.desc->head_dim;
  t->at.head = head;
  memset(t->query_count, 0, (size_t)t->first[1] * sizeof(double));
  for (int64_t n = 0; n < t->grid.length; n++) {
    const int64_t cell = cell_of(t, 0, n);
    bool real = true;
    if (mask->type != HARK_NONE)
      real = ((const uint8_t *)mask->data)[t->at.sequence->item * mask->stride[0] + (t->at.sequence->query_row + n) * mask->stride[1]] != 0;
    t->query_count[cell] = real;
    read_row(&args->query, dense_query_index(&t->at, &args->query, n), real, d, t->query + cell * d);
  }
  sum_cells(t, t->query_count, t->query, d, true);
}

static double similarity(const grid_head *t, int64_t query, int64_t key) {
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

void hark_grid_row(grid_head *t, int64_t n, grid_visit *visit) {
  const hark_grid *g = &t->grid;
  for (int level = 0; level < g->levels; level++) {
    const int64_t row = (n / g->stride) >> level, column = (n % g->stride) >> level;
    const int64_t height = hark_grid_height(g, level), width = hark_grid_width(g, level);
    const int64_t top = hark_max((row / g->side - 1) * g->side, 0), left = hark_max((column / g->side - 1) * g->side, 0);
    for (int64_t r = top; r < hark_min((row / g->side + 2) * g->side, height); r++)
      for (int64_t c = left; c < hark_min((column / g->side + 2) * g->side, width); c++) {
        grid_entry entry = {.query = cell_of(t, t->exact ? 0 : level, n), .key = t->first[level] + r * width + c};
        if (!hark_grid_meets(g, level, row, column, r, c) || t->key_count[entry.key] == 0) continue;
        entry.logit = similarity(t, entry.query, entry.key);
        entry.factor =
            hark_dense_dropout(&t->at, t->exact ? n : (row * g->stride + column) << level, (r << level) * g->stride + (c << level));
        visit(t, n, &entry);
      }
  }
}

/* Adds an entry to the row's sums. */
static void add_entry(grid_head *t, int64_t n, const grid_entry *entry) {
  (void)n;
  const int64_t dv = t->at.desc->value_dim;
  if (entry->logit == -INFINITY) return;
  if (entry->logit > t->highest || isnan(entry->logit)) {
    const double smaller = exp(t->highest - entry->logit);
    t->sum *= smaller;
    for (int64_t c = 0; c < dv; c++) t->mixed[c] *= smaller;
    t->highest = entry->logit;
  }
  const double weight = exp(entry->logit - t->highest);
  t->sum += weight * t->key_count[entry->key];
  if (entry->factor == 0) return;
  for (int64_t c = 0; c < dv; c++) t->mixed[c] += entry->factor * weight * t->value[entry->key * dv + c];
}

bool hark_grid_row_forward(grid_head *t, int64_t n) {
  t->highest = -INFINITY;
  t->sum = 0;
  memset(t->mixed, 0, (size_t)t->at.desc->value_dim * sizeof(double));
  if (t->query_count[cell_of(t, 0, n)] == 0) return false;
  hark_grid_row(t, n, add_entry);
  return t->highest != -INFINITY;
}

typedef struct forward_task {
  const hark_attention_call *run;
  size_t per_worker;
} forward_task;

static void write_row(grid_head *t, int64_t n) {
  const hark_attention_args *args = t->at.args;
  const bool sees = hark_grid_row_forward(t, n);
  const int64_t out = dense_query_index(&t->at, &args->out, n);
  for (int64_t c = 0; c < t->at.desc->value_dim; c++) dense_put(&args->out, out + c, sees ? t->mixed[c] / t->sum : 0);
  if (args->log_sum_exp.type == HARK_NONE) return;
  const int64_t row = (t->at.sequence->item * t->at.desc->heads + t->at.head) * args->query.shape[2] + t->at.sequence->query_row + n;
  dense_put_log_sum(&args->log_sum_exp, row, sees ? t->highest + log(t->sum) : -INFINITY);
}

static void forward_key_head(void *data, int64_t index, int worker) {
  const forward_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const int64_t group = desc->heads / desc->key_heads, key_head = index % desc->key_heads;
  grid_head t = hark_grid_place(task->run, false, (double *)task->run->scratch + (size_t)worker * task->per_worker);
  hark_grid_keys(&t, task->run, index / desc->key_heads, key_head);
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    hark_grid_queries(&t, head);
    for (int64_t n = 0; n < t.grid.length; n++) write_row(&t, n);
  }
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  forward_task task = {.run = run};
  HARK_TRY(hark_grid_doubles(context, &run->plan->desc, false, &task.per_worker));
  hark_parallel_for(context, run->sequence_count * run->plan->desc.key_heads, forward_key_head, &task);
  return HARK_OK;
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  size_t doubles;
  out->saved = 0;
  HARK_TRY(hark_grid_doubles(context, desc, false, &doubles));
  HARK_TRY(hark_size_multiply(context, doubles, (size_t)workers * sizeof(double), &out->forward_workspace));
  HARK_TRY(hark_grid_doubles(context, desc, true, &doubles));
  return hark_size_multiply(context, doubles, (size_t)workers * sizeof(double), &out->backward_workspace);
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  return snprintf(text, size, "pixel by pixel in double, %d workers", plan->workers);
}

const hark_attention_algorithm hark_reference_grid = {
    .name = "grid by definition",
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = hark_grid_backward,
    .print = print,
};
