/* hierarchical_backward.c - gradients of hierarchical attention by its definition, in double.
 *
 * Forward:  Z[n] = sum over entries of c(n,a) count e^s,  out[n] = sum c(n,a) m e^s v / Z[n]. Here c(n,a) is the coefficient with which row
 * n adds the sums of coarse row a (1 with constant interpolation). Let D[n] = dout[n] . out[n]. Every coarse row a gathers
 *
 *     m_a = min over its n of lse[n]     g_a = sum_n c(n,a) e^(m_a - lse[n]) dout[n]     D_a = sum_n c(n,a) e^(m_a - lse[n]) D[n]
 *
 * level by level from its children. Then, with P = e^(s - m_a), every entry (a, b) adds (m_a is stored as highest + log sum, see dense.h)
 *
 *     dS = P (m g_a . v_b - count_b D_a)     dv_b += m P g_a     dq_a += scale dS k_b     dk_b += scale dS q_a
 *     (rbf: dq_a += dS (k_b - q_a) / sigma^2, dk_b += dS (q_a - k_b) / sigma^2)
 *
 * Gradients of coarse tokens go down to their children: for means in proportion to the counts, for sums and for the first query undivided.
 * m_a is the minimum, so no factor is above 1; c e^(lse[n]) >= c count e^s bounds P. Log-sum-exp and out are recomputed in double. Every
 * result is summed by one task in one order. Cost: five products' O(L Nr (d + dv)) per head (exact: times log L).
 */
#include <math.h>
#include <string.h>

#include "backend/reference/hierarchical.h"

typedef struct backward_task {
  const hark_attention_call *run;
  size_t per_worker;
  int64_t sequences; /* in one task */
  double *dbias;     /* [H][4 Nr - 1], or NULL: not requested */
  double *dkernel;   /* [H][sides][reach] */
  int64_t reach;
} backward_task;

/* The contributions of the rows of level 0 to the rows above. A row that sees no key has the sum 0. */
static void begin_rows(tree *t) {
  const hark_attention_args *args = t->at.args;
  const int64_t dv = t->at.desc->value_dim;
  for (int64_t n = 0; n < t->hierarchy.length; n++) {
    double *g = t->dmixed + n * dv;
    const bool sees = t->query_count[n] > 0 && t->highest[n] != -INFINITY;
    t->least[n] = sees ? t->highest[n] : 0;
    t->least_sum[n] = sees ? t->sum[n] : 0;
    t->mean_gradient[n] = 0;
    const int64_t o = dense_query_index(&t->at, &args->dout, n);
    for (int64_t c = 0; sees && c < dv; c++) {
      g[c] = dense_get(&args->dout, o + c);
      t->mean_gradient[n] += g[c] * t->mixed[n * dv + c] / t->sum[n];
    }
  }
}

static bool sees_nothing(const tree *t, int64_t row) { return t->least_sum[row] == 0; }

/* True if the log-sum-exp of a row is below that of row `than`, or NaN. */
static bool is_less(const tree *t, int64_t row, int64_t than) {
  const double a = t->least[row] + log(t->least_sum[row]), b = t->least[than] + log(t->least_sum[than]);
  return a < b || isnan(a);
}

/* Gathers the contributions of the rows of level - 1 to row `row` of level. */
static void gather_row(tree *t, int level, int64_t row) {
  const int64_t dv = t->at.desc->value_dim, at = t->first[level] + row, below = t->first[level - 1];
  const int64_t from = hark_max(2 * row - 1, 0), to = hark_min(2 * row + 2, hark_hierarchy_tokens(&t->hierarchy, level - 1));
  double *g = t->dmixed + at * dv;
  double coefficient[3]; /* of rows 2 row - 1, 2 row, 2 row + 1 */
  int64_t least = -1;
  t->least[at] = t->least_sum[at] = 0;
  t->mean_gradient[at] = 0;
  for (int64_t c = 0; c < dv; c++) g[c] = 0;
  for (int64_t child = from; child < to; child++) {
    const tree_parents parents = hark_tree_parents(t, level, child);
    coefficient[child - from] = 0;
    for (int p = 0; p < 2; p++)
      if (parents.row[p] == row) coefficient[child - from] += parents.coefficient[p];
    if (coefficient[child - from] == 0 || sees_nothing(t, below + child)) continue;
    if (least < 0 || is_less(t, below + child, least)) least = below + child;
  }
  if (least < 0) return;
  t->least[at] = t->least[least];
  t->least_sum[at] = t->least_sum[least];
  for (int64_t child = from; child < to; child++) {
    const int64_t other = below + child;
    if (coefficient[child - from] == 0 || sees_nothing(t, other)) continue;
    const double factor = coefficient[child - from] * exp(t->least[at] - t->least[other]) * (t->least_sum[at] / t->least_sum[other]);
    t->mean_gradient[at] += factor * t->mean_gradient[other];
    for (int64_t c = 0; c < dv; c++) g[c] += factor * t->dmixed[other * dv + c];
  }
}

static void entry_gradients(tree *t, void *data, const tree_entry *entry) {
  const hark_attention_desc *desc = t->at.desc;
  const int64_t d = desc->head_dim, dv = desc->value_dim;
  const bool rbf = desc->kernel == HARK_KERNEL_RBF;
  double *dbias = data;
  const double *g = t->dmixed + entry->row * dv, *v = t->value + entry->key * dv;
  const double sum = t->least_sum[entry->row];
  if (entry->logit == -INFINITY && !isnan(sum)) return; /* hidden, except in a row that is all NaN */
  const double weight = exp(entry->logit - t->least[entry->row]) / sum;
  double product = 0;
  for (int64_t c = 0; entry->factor != 0 && c < dv; c++) {
    product += g[c] * v[c];
    t->dvalue[entry->key * dv + c] += entry->factor * weight * g[c];
  }
  const double dlogit = weight * (entry->factor * product - t->key_count[entry->key] * t->mean_gradient[entry->row]);
  const double *q = t->query + entry->query * d, *k = t->key + entry->key * d;
  for (int64_t c = 0; c < d; c++) {
    t->dquery[entry->query * d + c] += desc->scale * dlogit * (k[c] - (rbf ? q[c] : 0));
    t->dkey[entry->key * d + c] += desc->scale * dlogit * (q[c] - (rbf ? k[c] : 0));
  }
  if (dbias != NULL) dbias[entry->bias] += dlogit;
  if (t->dkernel != NULL) t->dkernel[entry->side * hark_hierarchy_kernel_means(&t->hierarchy, t->exact) + entry->kernel] += dlogit;
}

/* Adds gradients of the tokens of a level to those of the level below: fractions for means, all for sums. */
static void hand_down(const tree *t, int level, const double *count, double *gradient, int64_t width, bool mean) {
  for (int64_t child = 0; child < hark_hierarchy_tokens(&t->hierarchy, level - 1); child++) {
    const int64_t to = t->first[level - 1] + child, from = t->first[level] + child / 2;
    if (count[to] == 0) continue;
    const double share = mean ? count[to] / count[from] : 1;
    for (int64_t c = 0; c < width; c++) gradient[to * width + c] += share * gradient[from * width + c];
  }
}

static void hand_to_first(const tree *t, int level) {
  const int64_t d = t->at.desc->head_dim;
  for (int64_t a = 0; a < hark_hierarchy_tokens(&t->hierarchy, level); a++) {
    const int64_t from = t->first[level] + a;
    int64_t to = t->first[level - 1] + 2 * a;
    if (t->query_count[from] == 0) continue;
    if (t->query_count[to] == 0) to++;
    for (int64_t c = 0; c < d; c++) t->dquery[to * d + c] += t->dquery[from * d + c];
  }
}

static void store_rows(const tree *t, const hark_tensor *gradient, bool keys, const double *values, int64_t width, bool add) {
  if (gradient->type == HARK_NONE) return;
  for (int64_t n = 0; n < (keys ? t->at.sequence->key_count : t->hierarchy.length); n++) {
    const int64_t to = keys ? dense_key_index(&t->at, gradient, n) : dense_query_index(&t->at, gradient, n);
    for (int64_t c = 0; c < width; c++) {
      const double value = values[n * width + c];
      dense_put(gradient, to + c, add ? dense_get(gradient, to + c) + value : value);
    }
  }
}

static void backward_of_head(const backward_task *task, tree *t, int64_t head) {
  const hark_attention_desc *desc = t->at.desc;
  const int64_t tokens = t->first[t->hierarchy.levels], means = hark_hierarchy_kernel_means(&t->hierarchy, t->exact);
  const int sides = hark_kernel_sides(desc);
  hark_tree_queries(t, task->run, head);
  hark_tree_forward(t);
  begin_rows(t);
  for (int level = 1; level < t->hierarchy.levels && !t->exact; level++)
    for (int64_t row = 0; row < hark_hierarchy_tokens(&t->hierarchy, level); row++) gather_row(t, level, row);
  memset(t->dquery, 0, (size_t)(tokens * desc->head_dim) * sizeof(double));
  if (t->dkernel != NULL) memset(t->dkernel, 0, (size_t)(sides * means) * sizeof(double));
  double *dbias = task->dbias == NULL ? NULL : task->dbias + head * (4 * t->hierarchy.block - 1);
  for (int level = t->hierarchy.levels - 1; level >= 0; level--) {
    const int64_t rows = hark_hierarchy_tokens(&t->hierarchy, t->exact ? 0 : level);
    for (int64_t row = 0; row < rows; row++)
      if (!sees_nothing(t, t->first[t->exact ? 0 : level] + row)) hark_tree_entries(t, level, row, entry_gradients, dbias);
  }
  for (int level = t->hierarchy.levels - 1; level > 0; level--) {
    if (desc->coarse_query == HARK_COARSE_QUERY_MEAN) hand_down(t, level, t->query_count, t->dquery, desc->head_dim, true);
    if (desc->coarse_query == HARK_COARSE_QUERY_FIRST) hand_to_first(t, level);
  }
  store_rows(t, &task->run->args->dquery, false, t->dquery, desc->head_dim, task->run->args->accumulate & HARK_ACCUMULATE_QUERY);
  for (int side = 0; task->dkernel != NULL && side < sides; side++)
    hark_hierarchy_kernel_gradient(&t->kernel[side], t->dkernel + side * means, task->dkernel + (head * sides + side) * task->reach);
}

static void backward_of_key_head(const backward_task *task, tree *t, int64_t sequence, int64_t key_head) {
  const hark_attention_desc *desc = &task->run->plan->desc;
  const hark_attention_args *args = task->run->args;
  const int64_t group = desc->heads / desc->key_heads;
  hark_tree_keys(t, task->run, sequence, key_head);
  const int64_t tokens = t->first[t->hierarchy.levels];
  memset(t->dkey, 0, (size_t)(tokens * desc->head_dim) * sizeof(double));
  memset(t->dvalue, 0, (size_t)(tokens * desc->value_dim) * sizeof(double));
  for (int64_t head = key_head * group; head < (key_head + 1) * group; head++) backward_of_head(task, t, head);
  for (int level = t->hierarchy.levels - 1; level > 0; level--) {
    hand_down(t, level, t->key_count, t->dkey, desc->head_dim, true);
    hand_down(t, level, t->key_count, t->dvalue, desc->value_dim, false);
  }
  store_rows(t, &args->dkey, true, t->dkey, desc->head_dim, args->accumulate & HARK_ACCUMULATE_KEY);
  store_rows(t, &args->dvalue, true, t->dvalue, desc->value_dim, args->accumulate & HARK_ACCUMULATE_VALUE);
}

static void backward_task_run(void *data, int64_t index, int worker) {
  const backward_task *task = data;
  const int64_t key_heads = task->run->plan->desc.key_heads, first = index / key_heads * task->sequences;
  tree t = hark_tree_place(task->run, true, (double *)task->run->scratch + (size_t)worker * task->per_worker);
  if (task->dkernel == NULL) t.dkernel = NULL;
  for (int64_t s = first; s < first + task->sequences; s++) backward_of_key_head(task, &t, s, index % key_heads);
}

/* Adds the heads' tables to a gradient [H or 1, count]; a shared gradient is summed before it is rounded. */
static void add_tables(const hark_attention_call *run, const hark_tensor *gradient, const double *tables, int64_t width, int64_t count) {
  const int64_t heads = run->plan->desc.heads, sharing = gradient->stride[0] == 0 ? heads : 1;
  for (int64_t head = 0; head < heads; head += sharing)
    for (int64_t i = 0; i < count; i++) {
      const int64_t to = head * gradient->stride[0] + i * gradient->stride[1];
      double sum = 0;
      for (int64_t h = head; h < head + sharing; h++) sum += tables[h * width + i];
      dense_put(gradient, to, dense_get(gradient, to) + sum);
    }
}

hark_status hark_hierarchical_backward(hark_context *context, const hark_attention_call *run) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  const int64_t width = 4 * desc->hierarchy_block - 1;
  const int sides = hark_kernel_sides(desc);
  const hark_hierarchy longest = hark_hierarchy_make(desc, desc->key_length);
  backward_task task = {.run = run, .sequences = 1, .reach = hark_hierarchy_reach(&longest)};
  HARK_TRY(hark_tree_doubles(context, desc, true, &task.per_worker));
  double *tables = (double *)run->scratch + task.per_worker * (size_t)run->plan->workers;
  if (args->dhierarchical_bias.type != HARK_NONE) {
    task.dbias = tables;
    tables += desc->heads * width;
    memset(task.dbias, 0, (size_t)(desc->heads * width) * sizeof(double));
  }
  if (args->dlog_kernel.type != HARK_NONE) {
    task.dkernel = tables;
    memset(task.dkernel, 0, (size_t)(desc->heads * sides * task.reach) * sizeof(double));
  }
  /* The tables of a head are summed over all sequences by one task. */
  if (task.dbias != NULL || task.dkernel != NULL) task.sequences = run->sequence_count;
  hark_parallel_for(context, run->sequence_count / task.sequences * desc->key_heads, backward_task_run, &task);
  if (task.dbias != NULL) add_tables(run, &args->dhierarchical_bias, task.dbias, width, width);
  for (int side = 0; task.dkernel != NULL && side < sides; side++) {
    const hark_tensor gradient = hark_kernel_side(desc, &args->dlog_kernel, side);
    add_tables(run, &gradient, task.dkernel + side * task.reach, sides * task.reach, hark_min(task.reach, gradient.shape[1]));
  }
  return HARK_OK;
}
