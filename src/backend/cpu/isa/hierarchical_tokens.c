/* hierarchical_tokens.c - tokens of coarse levels, and windows: the lowest levels of a stretch of rows, computed when needed.
 *
 *     level l + 1 from level l: keys and queries are means by unmasked rows (queries also the first unmasked one), values are sums;
 *     gradients are sums weighted by e^(m - lse) (hierarchical_backward.c, hierarchical_linear.c)
 *
 * For a long sequence the tokens of levels 1 .. HARK_WINDOW_LEVELS are not kept. They are computed once to compute the level above them,
 * and again, window by window, just before the window's rows need them, in memory of the worker that stays in its caches. Keys are
 * recomputed for every head of a group, and in both windows if two windows reach them. A window is a tree itself; its row 0 is the first
 * row that it includes.
 */
#include <float.h>
#include <math.h>

#include "hierarchical_exact.h"

/* Weighted sum of the two rows below a token; a row with weight 0 is not read. */
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

/* Writes the sum of join_rows() to `high`, and its rounding error to `to`: if far rows nearly cancel, the error may be large compared with
 * the sum. */
static void join_low(const hark_fine_row *a, const hark_fine_row *b, double first, double second, int width, float *high, float *to) {
  for (int c = 0; c < width; c++) {
    double sum = 0.0;
    if (first != 0.0) sum += first * ((double)a->high[c] + (a->low != NULL ? (double)a->low[c] : 0.0));
    if (second != 0.0) sum += second * ((double)b->high[c] + (b->low != NULL ? (double)b->low[c] : 0.0));
    high[c] = (float)sum;
    to[c] = isfinite(high[c]) ? (float)(sum - (double)high[c]) : 0.0f;
  }
}

/* Computes a token's remainder, if a row below it is far enough to have one. `first` and `second` are the row counts of the two rows
 * below. */
static void join_remainder(const hark_rows *high, const hark_rows *low, const hark_rows *below, const hark_rows *below_low,
                           const float *squares_below, int64_t token, double first, double second, int width) {
  float *to = low->data + token * low->stride;
  const hark_fine_row a = hark_fine_row_of(below, below_low, 2 * token),
                      b = second > 0 ? hark_fine_row_of(below, below_low, 2 * token + 1) : a;
  const bool far = (first > 0 && (a.low != NULL || squares_below[2 * token] > HARK_REMAINDER_FROM)) ||
                   (second > 0 && (b.low != NULL || squares_below[2 * token + 1] > HARK_REMAINDER_FROM));
  if (far)
    join_low(&a, &b, first / (first + second), second / (first + second), width, high->data + token * high->stride, to);
  else
    *to = HARK_NO_REMAINDER;
}

static void copy_row(const float *from, int width, bool real, int pad, float *to) {
  if (real)
    hark_pack_rows(from, width, 1, width, pad, 1.0f, to);
  else
    memset(to, 0, (size_t)pad * sizeof *to);
}

/* Computes keys and values from .. to of a level. */
void HARK_ISA(hark_hierarchical_make_keys)(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_hierarchical_call *call = tree->call;
  const hark_level *at = &tree->level[level], *below = at - (level > 0);
  const hark_tensor *mask = &call->args->mask;
  const int64_t item = tree->sequence->item;
  for (int64_t b = from; b < to; b++) {
    float first = 0.0f, second = 0.0f;
    float *key = at->key.data + b * at->key.stride, *value = at->value.data + b * at->value.stride;
    if (level == 0) {
      const int64_t row = tree->sequence->key_row + b;
      const bool real = hark_is_unmasked(mask, item, 3, row);
      at->key_count[b] = real ? 1.0f : 0.0f;
      if (!hark_keys_in_place(tree))
        copy_row(hark_rows_of(&call->args->key, item, tree->key_head, row).data, call->head_dim, real, call->head_pad, key);
      if (!hark_values_in_place(tree))
        copy_row(hark_rows_of(&call->args->value, item, tree->key_head, row).data, call->value_dim, real, call->value_pad, value);
    } else {
      first = below->key_count[2 * b];
      second = 2 * b + 1 < below->keys ? below->key_count[2 * b + 1] : 0.0f;
      at->key_count[b] = first + second;
      const float inverse = first + second > 0.0f ? 1.0f / (first + second) : 0.0f;
      join_rows(&below->key, b, first * inverse, second * inverse, call->head_pad, key);
      join_rows(&below->value, b, first > 0.0f ? 1.0f : 0.0f, second > 0.0f ? 1.0f : 0.0f, call->value_pad, value);
    }
    if (!call->rbf) continue;
    if (level > 0)
      join_remainder(&at->key, &at->key_low, &below->key, &below->key_low, below->key_square, b, (double)first, (double)second,
                     call->head_dim);
    /* |k|^2 scale / 2 in units of log 2 */
    at->key_square[b] = square_of(key, call->head_pad) * (float)(0.5 * call->desc->scale * HARK_LOG2_E);
  }
}

static float row_product(const float *a, const float *b, int width) {
  vf sum = vf_zero();
  int c = 0;
  for (; c + HARK_LANES <= width; c += HARK_LANES) sum = vf_fma(vf_load(a + c), vf_load(b + c), sum);
  if (c < width) sum = vf_fma(vf_load_part(a + c, width - c), vf_load_part(b + c, width - c), sum);
  return vf_sum(sum);
}

/* Of rows of all heads, in pieces of PRODUCT_ROWS. */
#define PRODUCT_ROWS 256
typedef struct row_products {
  const hark_tensor *dout, *out;
  float *to;
  int64_t stride;
} row_products;

static void products_task(void *data, int64_t piece, int worker) {
  const row_products *p = data;
  const int64_t rows = p->out->shape[2], first = piece * PRODUCT_ROWS, last = hark_min(first + PRODUCT_ROWS, rows);
  (void)worker;
  for (int64_t row = first; row < last; row++)
    for (int64_t head = 0; head < p->out->shape[1]; head++)
      p->to[head * p->stride + row] =
          row_product(hark_rows_of(p->dout, 0, head, row).data, hark_rows_of(p->out, 0, head, row).data, (int)p->out->shape[3]);
}

void HARK_ISA(hark_hierarchical_products)(hark_context *context, const hark_tensor *dout, const hark_tensor *out, float *products,
                                          int64_t stride) {
  row_products p = {.dout = dout, .out = out, .to = products, .stride = stride};
  hark_parallel_for(context, hark_ceil_div(out->shape[2], PRODUCT_ROWS), products_task, &p);
}

/* The backward's data of level 0: dout, lse, and D = dout . out. */
static void begin_gradients(const hark_tree *tree, int64_t row, bool real) {
  const hark_hierarchical_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const hark_level *at = &tree->level[0];
  const int64_t item = tree->sequence->item, n = tree->sequence->query_row + row;
  const hark_rows dout = hark_rows_of(&args->dout, item, tree->head, n), out = hark_rows_of(&args->out, item, tree->head, n);
  const int64_t number = (item * call->desc->heads + tree->head) * args->query.shape[2] + n;
  const float lse = ((const float *)args->log_sum_exp.data)[number];
  real = real && lse != -INFINITY;
  if (!tree->is_far) at->least[row] = real ? lse : INFINITY;
  at->mean_gradient[row] = 0.0f;
  if (tree->is_far) hark_set_fine_mean_gradient(at, row, 0);
  if (!hark_gradients_in_place(tree)) copy_row(dout.data, call->value_dim, real, call->value_pad, at->g.data + row * at->g.stride);
  if (!real) return;
  at->mean_gradient[row] = call->run->products != NULL ? call->run->products[number] : row_product(dout.data, out.data, call->value_dim);
  if (tree->is_far) hark_set_fine_mean_gradient(at, row, hark_exact_product(dout.data, out.data, call->value_dim));
}

/* e^(least - lse) */
static float gradient_factor(float least, float lse, float mean_gradient) {
  return hark_kept_factor(least == lse ? 1.0f : expf(least - lse), mean_gradient);
}

/* The same if log-sum-exps are float64. */
static void join_far(const hark_level *at, const hark_level *below, int64_t token, float *factors) {
  const int64_t a = 2 * token, b = 2 * token + 1;
  const bool has_first = below->least[a] != INFINITY, has_second = b < below->queries && below->least[b] != INFINITY;
  const hark_fine_sum first = hark_fine_sum_of(below, a), second = hark_fine_sum_of(below, has_second ? b : a);
  const double above =
      (first.top - second.top) + ((double)first.log_sum - (double)second.log_sum); /* log-sum-exp of the first minus that of the second */
  const int64_t from = has_second && (!has_first || above > 0.0) ? b : a;          /* may be a NaN row, if there is no other */
  at->least[token] = below->least[from];
  hark_set_fine_sum(at, token, from == a ? first : second);
  factors[0] = !has_first ? 0.0f : from == a ? 1.0f : hark_kept_factor(exp2f((float)-above), below->mean_gradient[a]);
  factors[1] = !has_second ? 0.0f : from == b ? 1.0f : hark_kept_factor(exp2f((float)above), below->mean_gradient[b]);
}

static void join_gradients(const hark_tree *tree, int level, int64_t token) {
  const hark_level *at = &tree->level[level], *below = at - 1;
  const int64_t a = 2 * token, b = 2 * token + 1;
  const float second = b < below->queries ? below->least[b] : INFINITY,
              least = (float)hark_smaller((double)below->least[a], (double)second);
  float factors[2] = {0.0f, 0.0f}; /* e^(least - lse); one of them is 1 */
  at->least[token] = least;
  if (below->least[a] != INFINITY) factors[0] = gradient_factor(least, below->least[a], below->mean_gradient[a]);
  if (second != INFINITY) factors[1] = gradient_factor(least, second, below->mean_gradient[b]);
  if (tree->is_far) join_far(at, below, token, factors);
  at->mean_gradient[token] = 0.0f;
  if (factors[0] != 0.0f) at->mean_gradient[token] += factors[0] * below->mean_gradient[a];
  if (factors[1] != 0.0f) at->mean_gradient[token] += factors[1] * below->mean_gradient[b];
  if (tree->is_far) {
    double mean = 0;
    if (factors[0] != 0.0f) mean += (double)factors[0] * hark_fine_mean_gradient(below, a);
    if (factors[1] != 0.0f) mean += (double)factors[1] * hark_fine_mean_gradient(below, b);
    hark_set_fine_mean_gradient(at, token, mean);
  }
  join_rows(&below->g, token, factors[0], factors[1], tree->call->value_pad, at->g.data + token * at->g.stride);
}

/* The first or the mean of the unmasked queries below a token; `first` and `second` are the query counts of the two rows below. */
static void join_queries(const hark_tree *tree, int level, int64_t token, float first, float second) {
  const hark_level *at = &tree->level[level];
  float a = first > 0.0f ? 1.0f : 0.0f, b = first > 0.0f || second == 0.0f ? 0.0f : 1.0f;
  if (!tree->call->first) {
    const float inverse = first + second > 0.0f ? 1.0f / (first + second) : 0.0f;
    a = first * inverse;
    b = second * inverse;
  }
  join_rows(&(at - 1)->query, token, a, b, tree->call->head_pad, at->query.data + token * at->query.stride);
}

void HARK_ISA(hark_hierarchical_make_queries)(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_hierarchical_call *call = tree->call;
  const hark_level *at = &tree->level[level], *below = at - (level > 0);
  const hark_tensor *mask = &call->args->query_mask;
  const int64_t item = tree->sequence->item;
  for (int64_t a = from; a < to; a++) {
    float *query = at->query.data + a * at->query.stride;
    if (level == 0) {
      const int64_t row = tree->sequence->query_row + a;
      const bool real = hark_is_unmasked(mask, item, 1, row);
      at->query_count[a] = real ? 1.0f : 0.0f;
      if (!hark_queries_in_place(tree))
        copy_row(hark_rows_of(&call->args->query, item, tree->head, row).data, call->head_dim, real, call->head_pad, query);
      if (call->query_lows)
        at->query_square[a] = square_of(query, call->head_pad) * (float)(0.5 * call->desc->scale * HARK_DISTANCE_LOG2_E);
      if (call->backward) begin_gradients(tree, a, real);
      continue;
    }
    const float first = below->query_count[2 * a], second = 2 * a + 1 < below->queries ? below->query_count[2 * a + 1] : 0.0f;
    at->query_count[a] = first + second;
    if (!hark_first_queries_in_place(tree)) join_queries(tree, level, a, first, second);
    if (call->backward && !tree->summing) {
      if (call->linear)
        HARK_ISA(hark_hierarchical_join_linear)(tree, level, a);
      else
        join_gradients(tree, level, a);
    }
    if (!call->query_lows) continue;
    join_remainder(&at->query, &at->query_low, &below->query, &below->query_low, below->query_square, a, (double)first, (double)second,
                   call->head_dim);
    at->query_square[a] = square_of(query, call->head_pad) * (float)(0.5 * call->desc->scale * HARK_DISTANCE_LOG2_E);
  }
}

/* ---- windows ---- */

static void take_rows(hark_rows *rows, int64_t tokens, int width, float **next) {
  *rows = (hark_rows){*next, width};
  *next += tokens * width;
}
static void take_numbers(float **numbers, int64_t tokens, float **next) {
  *numbers = *next;
  *next += tokens;
}

/* Places levels 1 .. HARK_WINDOW_LEVELS in separate memory; all other data stay in place. */
static void place_window(const hark_tree *tree, int64_t origin, int64_t rows, float *memory, hark_window *window) {
  const hark_hierarchical_call *call = tree->call;
  const int head_pad = call->head_pad, value_pad = call->value_pad;
  window->tree = *tree;
  window->sequence = *tree->sequence;
  window->sequence.query_row += origin;
  window->sequence.key_row += origin;
  window->tree.sequence = &window->sequence;
  window->tree.origin += origin;
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    hark_level *at = &window->tree.level[level];
    const int64_t by = origin >> level, tokens = hark_ceil_div(rows, (int64_t)1 << level);
    at->queries = hark_max(0, hark_min(at->queries - by, tokens));
    at->keys = hark_max(0, hark_min(at->keys - by, tokens));
    hark_rows *const shifted[] = {&at->query, &at->key, &at->value, &at->g, &at->dquery, &at->dkey, &at->dvalue};
    const int width[] = {head_pad, head_pad, value_pad, value_pad, head_pad, head_pad, value_pad};
    float **const numbers[] = {&at->query_count,   &at->key_count,  &at->key_square,  &at->least,
                               &at->mean_gradient, &at->fine_least, &at->query_square};
    const int each[] = {1, 1, 1, 1, 1, HARK_FINE_SUM_FLOATS, 1};
    const bool needed[] = {true, true, call->rbf, call->backward, call->backward, call->backward, call->query_lows};
    for (int i = 0; i < (call->backward ? 7 : 3); i++) { /* on all levels, first queries are in the caller's memory */
      if (shifted[i]->data != NULL)
        shifted[i]->data += by * shifted[i]->stride;
      else
        take_rows(shifted[i], tokens, width[i], &memory);
    }
    for (int i = 0; i < 7; i++) {
      if (*numbers[i] != NULL)
        *numbers[i] += by * each[i];
      else if (needed[i])
        take_numbers(numbers[i], tokens * each[i], &memory);
    }
    if (level == 0 || !call->rbf) continue;
    if (at->key_low.data != NULL)
      at->key_low.data += by * at->key_low.stride;
    else
      take_rows(&at->key_low, tokens, head_pad, &memory);
    if (!call->query_lows) continue;
    if (at->query_low.data != NULL)
      at->query_low.data += by * at->query_low.stride;
    else
      take_rows(&at->query_low, tokens, head_pad, &memory);
  }
}

size_t HARK_ISA(hark_hierarchical_window_floats)(int64_t block, size_t head_pad, size_t value_pad, bool backward, bool rbf) {
  size_t tokens = 0;
  for (int level = 1; level <= HARK_WINDOW_LEVELS; level++) tokens += (size_t)((HARK_WINDOW_ROWS + 2 * hark_window_reach(block)) >> level);
  return tokens * ((backward ? 4 * head_pad + 3 * value_pad + 5 + HARK_FINE_SUM_FLOATS : 2 * head_pad + value_pad + 3) +
                   (rbf ? 2 * head_pad + 2 : 0));
}

/* The queries of a level that are computed: those of the window's rows. With linear interpolation also the token after them, from whose
 * sums the last row of the level below starts, with the tokens below it; and the token before them, whose gradient the first token of the
 * level above takes. */
static hark_held queries_of_window(const hark_window *window, int level) {
  const hark_held own = {window->first >> level, hark_ceil_div(window->last, (int64_t)1 << level)};
  if (!window->tree.call->linear) return own;
  const bool gathers = window->tree.call->backward && !window->tree.summing; /* gradients of the level above */
  const int64_t after = (int64_t)1 << (HARK_WINDOW_LEVELS - level), before = gathers && level < HARK_WINDOW_LEVELS && own.from > 0;
  return (hark_held){own.from - before, hark_min(own.to + after, window->tree.level[level].queries)};
}

void HARK_ISA(hark_hierarchical_open_window)(const hark_tree *tree, int64_t index, float *memory, hark_window *window) {
  const int64_t row = index * HARK_WINDOW_ROWS, reach = hark_window_reach(tree->hierarchy.block), origin = hark_max(row - reach, 0);
  const int64_t first = row - origin; /* 0 in the first window, which has no rows before it */
  place_window(tree, origin, first + HARK_WINDOW_ROWS + reach, memory, window);
  window->first = first;
  window->last = hark_min(window->first + HARK_WINDOW_ROWS, window->tree.level[0].queries);
  for (int level = 1; level <= HARK_WINDOW_LEVELS; level++) {
    const hark_held queries = queries_of_window(window, level);
    HARK_ISA(hark_hierarchical_make_keys)(&window->tree, level, 0, window->tree.level[level].keys);
    HARK_ISA(hark_hierarchical_make_queries)(&window->tree, level, queries.from, queries.to);
  }
}

#define THROUGH_TOKENS 64 /* of the level above the windows, computed at once: the levels between stay in the caches */

void HARK_ISA(hark_hierarchical_make_through)(const hark_tree *tree, bool keys, int64_t from, int64_t to, float *memory) {
  const int above = HARK_WINDOW_LEVELS + 1;
  const bool linear = tree->call->linear && !keys; /* level 0 is there, and the gradients of a token need those of the token before it */
  for (int64_t token = from; token < to; token += THROUGH_TOKENS) {
    const int64_t before = linear && token > 0;
    hark_window window;
    place_window(tree, (token - before) << above, (before + THROUGH_TOKENS) << above, memory, &window);
    for (int level = linear; level <= above; level++) {
      const hark_level *at = &window.tree.level[level];
      if (keys)
        HARK_ISA(hark_hierarchical_make_keys)(&window.tree, level, 0, at->keys);
      else
        HARK_ISA(hark_hierarchical_make_queries)(&window.tree, level, before, at->queries);
    }
  }
}
