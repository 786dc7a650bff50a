/* grid_backward.c - gradients of hierarchical attention over pictures by their definition, in double, pixel by pixel.
 *
 *     out[n] = sum over entries m P v_b,   P = e^(s - lse[n]),   D[n] = dout[n] . out[n]
 *
 *     dS = P (m dout[n] . v_b - c_b D[n])     dv_b += m P dout[n]     dq_a += scale dS k_b     dk_b += scale dS q_a
 *     (rbf: dq_a += dS (k_b - q_a) / sigma^2, dk_b += dS (q_a - k_b) / sigma^2)
 *
 * A pixel gets the gradients of its cells of all levels: of means divided by the cell's number of pixels, of sums undivided. Log-sum-exp
 * and out are computed again, in double. Every sum is made by one task in one order.
 */
#include <math.h>
#include <string.h>

#include "backend/reference/grid.h"

typedef struct backward_task {
  const hark_attention_call *run;
  size_t per_worker;
} backward_task;

static void entry_gradients(grid_head *t, int64_t n, const grid_entry *entry) {
  const hark_attention_desc *desc = t->at.desc;
  const hark_tensor *dout = &t->at.args->dout;
  const int64_t d = desc->head_dim, dv = desc->value_dim, from = dense_query_index(&t->at, dout, n);
  const bool rbf = desc->kernel == HARK_KERNEL_RBF;
  if (entry->logit == -INFINITY && !isnan(t->sum)) return; /* hidden, except in a row that is all NaN */
  const double weight = exp(entry->logit - t->highest) / t->sum;
  const double *v = t->value + entry->key * dv;
  double product = 0;
  for (int64_t c = 0; entry->factor != 0 && c < dv; c++) {
    const double g = dense_get(dout, from + c);
    product += g * v[c];
    t->dvalue[entry->key * dv + c] += entry->factor * weight * g;
  }
  const double dlogit = weight * (entry->factor * product - t->key_count[entry->key] * t->mean_gradient);
  const double *q = t->query + entry->query * d, *k = t->key + entry->key * d;
  for (int64_t c = 0; c < d; c++) {
    t->dquery[entry->query * d + c] += desc->scale * dlogit * (k[c] - (rbf ? q[c] : 0));
    t->dkey[entry->key * d + c] += desc->scale * dlogit * (q[c] - (rbf ? k[c] : 0));
  }
}

static void row_backward(grid_head *t, int64_t n) {
  const hark_tensor *dout = &t->at.args->dout;
  if (!hark_grid_row_forward(t, n)) return;
  const int64_t from = dense_query_index(&t->at, dout, n);
  t->mean_gradient = 0;
  for (int64_t c = 0; c < t->at.desc->value_dim; c++) t->mean_gradient += dense_get(dout, from + c) * t->mixed[c] / t->sum;
  hark_grid_row(t, n, entry_gradients);
}

/* The gradient of a pixel: the sum over the cells that contain it. */
static void store_rows(const grid_head *t, const hark_tensor *gradient, bool keys, const double *cells, const double *count, int64_t width,
                       bool mean, bool add) {
  if (gradient->type == HARK_NONE) return;
  const hark_grid *g = &t->grid;
  for (int64_t n = 0; n < (keys ? t->at.sequence->key_count : g->length); n++) {
    const int64_t to = keys ? dense_key_index(&t->at, gradient, n) : dense_query_index(&t->at, gradient, n);
    const int64_t row = n / g->stride, column = n % g->stride;
    const bool real = count[row * hark_grid_width(g, 0) + column] > 0;
    for (int64_t c = 0; c < width; c++) {
      double sum = 0;
      for (int level = 0; real && level < g->levels; level++) {
        const int64_t cell = t->first[level] + (row >> level) * hark_grid_width(g, level) + (column >> level);
        sum += cells[cell * width + c] / (mean ? count[cell] : 1);
      }
      dense_put(gradient, to + c, add ? dense_get(gradient, to + c) + sum : sum);
    }
  }
}

static void backward_key_head(void *data, int64_t index, int worker) {
  const backward_task *task = data;
  const hark_attention_desc *desc = &task->run->plan->desc;
  const hark_attention_args *args = task->run->args;
  const int64_t group = desc->heads / desc->key_heads, key_head = index % desc->key_heads;
  grid_head t = hark_grid_place(task->run, true, (double *)task->run->scratch + (size_t)worker * task->per_worker);
  hark_grid_keys(&t, task->run, index / desc->key_heads, key_head);
  const int64_t cells = t.first[t.grid.levels];
  memset(t.dkey, 0, (size_t)(cells * desc->head_dim) * sizeof(double));
  memset(t.dvalue, 0, (size_t)(cells * desc->value_dim) * sizeof(double));
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) {
    hark_grid_queries(&t, head);
    memset(t.dquery, 0, (size_t)(cells * desc->head_dim) * sizeof(double));
    for (int64_t n = 0; n < t.grid.length; n++) row_backward(&t, n);
    store_rows(&t, &args->dquery, false, t.dquery, t.query_count, desc->head_dim, true, args->accumulate & HARK_ACCUMULATE_QUERY);
  }
  store_rows(&t, &args->dkey, true, t.dkey, t.key_count, desc->head_dim, true, args->accumulate & HARK_ACCUMULATE_KEY);
  store_rows(&t, &args->dvalue, true, t.dvalue, t.key_count, desc->value_dim, false, args->accumulate & HARK_ACCUMULATE_VALUE);
}

hark_status hark_grid_backward(hark_context *context, const hark_attention_call *run) {
  backward_task task = {.run = run};
  HARK_TRY(hark_grid_doubles(context, &run->plan->desc, true, &task.per_worker));
  hark_parallel_for(context, run->sequence_count * run->plan->desc.key_heads, backward_key_head, &task);
  return HARK_OK;
}
