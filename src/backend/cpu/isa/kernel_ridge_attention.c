/* kernel_ridge_attention.c - kernel ridge (CME) attention in f32, blocked: the algorithm's record and its forward.
 *
 *     full    alpha = U^-1 X,  y_n = sum over i of alpha_i kappa(k_i, q_n)
 *     causal  Z = U'^-1 kappa(K, Q),  y_n = sum over i <= p_n of Z[i, n] X_i,  var_n = kappa(q_n, q_n) - sum over i <= p_n of Z[i, n]^2
 *
 * with M = U'U and X = U'^-1 V (kernel_ridge_tile.h). A panel of 64 queries is solved down to its diagonal tile. The variance of full
 * attention needs Z too; it is then computed like the causal one, but over all keys. Tasks are heads of sequences: one triangle per worker,
 * whatever the batch. If there are fewer tasks than threads, and a sequence has at least three tiles of keys, all threads share each task
 * in turn: columns of tiles of the factor, then tiles of queries. So they do with the last heads of one sequence, if the number of heads is
 * no multiple of the number of threads. Cost: docs/mathematics/kernel-ridge.md.
 */
#include <inttypes.h>
#include <stdio.h>

#include "core/cancel.h"
#include "kernel_ridge_tile.h"

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->normalisation != HARK_NORMALISATION_CME)
    reason = "normalisation is not cme";
  else if (desc->type != HARK_F32)
    reason = "type is not f32";
  else if (desc->head_dim > INT32_MAX / HARK_RIDGE_TILE || desc->value_dim > INT32_MAX / HARK_RIDGE_TILE)
    reason = "head_dim or value_dim is too large";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

static hark_status workspace(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, size_t *out) {
  size_t floats, bytes, partials = 0;
  HARK_TRY(HARK_ISA(hark_cpu_ridge_floats)(context, desc, backward, &floats));
  HARK_TRY(hark_size_multiply(context, floats * sizeof(float), (size_t)workers, &bytes));
  if (backward) HARK_TRY(hark_ridge_partials_bytes(context, desc, &partials));
  HARK_TRY(hark_size_add(context, bytes, hark_align_up(partials), &bytes));
  return hark_size_add(context, bytes, (size_t)workers * sizeof(hark_ridge_record), out);
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  out->saved = 0;
  HARK_TRY(workspace(context, desc, workers, false, &out->forward_workspace));
  return workspace(context, desc, workers, true, &out->backward_workspace);
}

/* Computes a tile of Z for `width` lanes; the tiles above it are done. */
static void solve_down(const ridge_tiles *h, int64_t tile, int64_t first, int width) {
  float *z = h->panel + tile * HARK_RIDGE_TILE_FLOATS;
  const int above = ridge_above(h, tile, first);
  HARK_ISA(hark_cpu_ridge_solve_rows)(h, tile, h->panel, HARK_RIDGE_TILE, width, above);
  if (above < HARK_RIDGE_TILE) HARK_ISA(hark_cpu_ridge_hide)(tile, first, z, HARK_RIDGE_TILE, width);
}

/* Adds Z'X of a tile of keys to the sums of queries; a query sees keys i of the tile up to its row + above. */
static void add_values(const ridge_tiles *h, int64_t tile, const float *z, int count, int above) {
  const int band = above < HARK_RIDGE_TILE ? HARK_RIDGE_ABOVE_ROWS : HARK_RIDGE_TILE;
  for (int row = 0; row < count; row += band) {
    const hark_ridge_product p = {.a = h->solved + tile * HARK_RIDGE_TILE * h->dvp,
                                  .a_row = h->dvp,
                                  .b = z + row,
                                  .b_row = 1,
                                  .b_step = HARK_RIDGE_TILE,
                                  .c = h->sums + (ptrdiff_t)row * h->dvp,
                                  .c_row = h->dvp,
                                  .rows = (int)hark_min(band, count - row),
                                  .depth = (int)hark_max(0, hark_min(HARK_RIDGE_TILE, row + band + above)),
                                  .width = h->dvp};
    hark_ridge_add_columns(&p);
  }
}

static void add_squares(const float *z, int width, float *squares) {
  for (int lane = 0; lane < width; lane += HARK_LANES) {
    vf sum = vf_zero();
    for (int i = 0; i < HARK_RIDGE_TILE; i++)
      sum = vf_fma(vf_load(z + i * HARK_RIDGE_TILE + lane), vf_load(z + i * HARK_RIDGE_TILE + lane), sum);
    vf_store(squares + lane, vf_load(squares + lane) + sum);
  }
}

/* var = kappa(q, q) G(0) - explained, scaled back; false, with a record, if kappa(q, q) is out of range. */
static bool store_variance(const ridge_tiles *h, int64_t row, int count, const float *explained) {
  float *out = ridge_statistic(h, &h->run->args->variance, row);
  for (int r = 0; r < count; r++) {
    double own;
    if (!HARK_ISA(hark_cpu_ridge_own)(h, row, r, &own)) return false;
    out[r] = (float)(hark_larger(exp(own) - (double)explained[r], 0) * exp(h->is.shift));
  }
  return true;
}

/* Rows [row, row + count) of out and variance. `down`: through Z. */
static bool forward_tile(ridge_tiles *h, int64_t row, int count, bool down) {
  const hark_attention_args *args = h->run->args;
  const int64_t first = row + h->sequence->offset, tiles = ridge_seen_tiles(h, row + count - 1);
  const int width = (int)hark_padded(count); /* lanes of the panel with a query */
  float explained[HARK_RIDGE_TILE] = {0};
  if (!HARK_ISA(hark_cpu_ridge_queries)(h, row, count)) return false;
  const ridge_side side = HARK_ISA(hark_cpu_ridge_query_side)(h, row, count);
  memset(h->sums, 0, (size_t)(HARK_RIDGE_TILE * h->dvp) * sizeof(float));
  for (int64_t tile = 0; tile < tiles; tile++) {
    float *z = h->panel + (down ? tile * HARK_RIDGE_TILE_FLOATS : 0);
    HARK_ISA(hark_cpu_ridge_gram)(h, &side, tile, first - tile * HARK_RIDGE_TILE, z, NULL);
    if (down) solve_down(h, tile, first, width);
    if (down && args->variance.type != HARK_NONE) add_squares(z, width, explained);
    add_values(h, tile, z, count, ridge_above(h, tile, first));
  }
  for (int r = 0; r < count; r++) {
    if (hark_rows_finite(h->sums + (ptrdiff_t)r * h->dvp, 0, 1, h->dvp)) continue;
    hark_ridge_trouble(h->record, h->system, HARK_RIDGE_BAD_RESULT, h->sequence->query_row + row + r, 0);
    return false;
  }
  for (int r = 0; r < count; r++)
    memcpy(ridge_row(&args->out, h->sequence, h->head, h->sequence->query_row + row + r), h->sums + (ptrdiff_t)r * h->dvp,
           (size_t)h->desc->value_dim * sizeof(float));
  return args->variance.type == HARK_NONE || store_variance(h, row, count, explained);
}

/* The statistics of a plan that iterates; out has been stored. */
static void store_iterated(ridge_tiles *h) {
  const hark_attention_args *args = h->run->args;
  ridge_store_quadratics(h, h->products);
  if (args->variance.type != HARK_NONE && !HARK_ISA(hark_cpu_ridge_iterate_variances)(h)) return;
  if (args->log_determinant.type == HARK_NONE) return;
  ridge_store_determinant(h, HARK_ISA(hark_cpu_ridge_iterate_determinant)(h));
}

/* 2 sum of log U_ii over the keys that a row sees, one more row after the other. Kernels were divided by e^shift. */
static void store_determinants(const ridge_tiles *h) {
  float *out = ridge_statistic(h, &h->run->args->log_determinant, 0);
  double sum = 0;
  int64_t key = 0;
  for (int64_t row = 0; row < h->sequence->query_count; row++) {
    for (const int64_t end = ridge_seen_keys(h, row); key < end; key++) {
      const int64_t tile = key / HARK_RIDGE_TILE, at = key % HARK_RIDGE_TILE;
      if (h->seen[key] != 0) sum += 2 * log((double)h->factor[ridge_tile(h, tile, tile) + at * (HARK_RIDGE_TILE + 1)]) + h->is.shift;
    }
    out[row] = (float)sum;
  }
}

/* Sums of X^2 over the keys that a row sees, of every column of values, one more row after the other. M was divided by e^shift. */
static void store_quadratics(const ridge_tiles *h) {
  const double gain = exp(-h->is.shift);
  for (int64_t c = 0; c < h->desc->value_dim; c++) {
    double sum = 0;
    int64_t key = 0;
    for (int64_t row = 0; row < h->sequence->query_count; row++) {
      for (const int64_t end = ridge_seen_keys(h, row); key < end; key++) {
        const double x = (double)h->solved[key * h->dvp + c];
        sum += x * x;
      }
      ridge_row(&h->run->args->quadratic, h->sequence, h->head, h->sequence->query_row + row)[c] = (float)(gain * sum);
    }
  }
}

typedef struct forward_task {
  const hark_attention_call *run;
  ridge_workspace memory;
  hark_context *shared; /* NULL: one thread per head */
} forward_task;

static bool goes_down(const hark_attention_call *run) { return run->plan->desc.causal || run->args->variance.type != HARK_NONE; }

/* A tile of queries of a shared head, the last one first: with causality it has the most keys. */
static void forward_part(void *data, int64_t index, int worker) {
  const ridge_tiles *owner = data;
  const int64_t queries = owner->sequence->query_count, row = (hark_ceil_div(queries, HARK_RIDGE_TILE) - 1 - index) * HARK_RIDGE_TILE;
  ridge_tiles h;
  HARK_ISA(hark_cpu_ridge_join)(owner, worker, &h);
  (void)forward_tile(&h, row, (int)hark_min(HARK_RIDGE_TILE, queries - row), goes_down(h.run)); /* trouble is in the record */
}

static void forward_head(void *data, int64_t index, int worker) {
  const forward_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const bool down = goes_down(task->run);
  ridge_tiles h;
  if (!HARK_ISA(hark_cpu_ridge_begin)(task->shared, task->run, &task->memory, index / desc->heads, index % desc->heads, worker, &h)) return;
  if (ridge_iterates(desc)) {
    store_iterated(&h);
    return;
  }
  if (h.low.rank > 0) {
    HARK_ISA(hark_cpu_ridge_low_forward)(&h);
    return;
  }
  if (task->run->args->log_determinant.type != HARK_NONE) store_determinants(&h);
  if (task->run->args->quadratic.type != HARK_NONE) store_quadratics(&h);
  if (!down) HARK_ISA(hark_cpu_ridge_solve_back)(&h, h.tiles, h.solved, h.dvp, h.dvp);
  if (h.context != NULL) {
    hark_parallel_for(h.context, hark_ceil_div(h.sequence->query_count, HARK_RIDGE_TILE), forward_part, &h);
    return;
  }
  for (int64_t row = 0; row < h.sequence->query_count && !hark_cancel_now(task->memory.context); row += HARK_RIDGE_TILE)
    if (!forward_tile(&h, row, (int)hark_min(HARK_RIDGE_TILE, h.sequence->query_count - row), down)) return;
}

/* Heads that threads compute alone, each its own: all, or as many as give each thread equally many; the threads share each of the others.
 * Several sequences may be of different lengths: there a thread without a head takes the next one. */
static int64_t heads_alone(const hark_context *context, const hark_attention_call *run) {
  const int64_t systems = run->sequence_count * run->plan->desc.heads, workers = hark_workers(context);
  if (ridge_shares(context, run, systems)) return 0;
  if (run->sequence_count != 1 || !ridge_is_long(run)) return systems;
  return systems / workers * workers;
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  const int64_t systems = run->sequence_count * run->plan->desc.heads, alone = heads_alone(context, run);
  forward_task task = {run, HARK_ISA(hark_cpu_ridge_workspace)(context, run, false), NULL};
  hark_parallel_for(context, alone, forward_head, &task);
  task.shared = context;
  for (int64_t index = alone; index < systems; index++) forward_head(&task, index, 0);
  return hark_ridge_conclude(context, run, task.memory.records, true);
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  const int64_t tiles = hark_ceil_div(hark_ridge_most_keys(&plan->desc), HARK_RIDGE_TILE);
  if (ridge_iterates(&plan->desc))
    return snprintf(text, size, "tiles of %d x %d, lanes %d, %d workers, preconditioner of rank %d, %d right-hand sides at a time",
                    HARK_RIDGE_TILE, HARK_RIDGE_TILE, HARK_LANES, plan->workers, RIDGE_SOLVER_RANK,
                    ridge_solver_columns(plan->desc.value_dim));
  const int64_t triangle = tiles * (tiles + 1) / 2 * HARK_RIDGE_TILE_FLOATS * (int64_t)sizeof(float);
  return snprintf(text, size, "tiles of %d x %d, lanes %d, %d workers, a triangle of %" PRId64 " bytes a worker, %s in the backward",
                  HARK_RIDGE_TILE, HARK_RIDGE_TILE, HARK_LANES, plan->workers, triangle, ridge_has_matrix(&plan->desc) ? "two" : "one");
}

extern const hark_attention_algorithm HARK_ISA(hark_cpu_kernel_ridge);
const hark_attention_algorithm HARK_ISA(hark_cpu_kernel_ridge) = {
    .name = "kernel ridge tiled",
    .flush = HARK_FLUSH_ALWAYS,
    .supports = supports,
    .sizes = sizes,
    .forward = forward,
    .backward = HARK_ISA(hark_cpu_ridge_backward),
    .print = print,
};
