/* hierarchical_exact.c - RBF, backward: log-sum-exps of rows that are far from all keys, once more.
 *
 *     lse[n] = log of the sum over levels l and keys b of count_b exp(s[n >> l, b])
 *
 * The backward divides by exp(lse), which has been rounded to f32: of a row at R sigmas from the nearest key that is R^2 2^-25 of every weight.
 * Where that is too much it is computed again, entry by entry from differences in float64, and kept as two floats.
 * Cost: of such a row 2 Nr keys of every level, d differences each.
 */
#include "hierarchical_exact.h"

#define FAR_SUM 64.0f /* a log-sum-exp whose rounding, 2^-18, is less than that of products up to the bound */

/* log of a sum, in units of log 2, as it grows. */
typedef struct growing_sum {
  double top, sum;
} growing_sum;

static void grow(growing_sum *to, double logit, double count) {
  if (logit == -INFINITY) return;
  if (logit > to->top) {
    to->sum = to->top == -INFINITY ? 0.0 : to->sum * exp2(to->top - logit);
    to->top = logit;
  }
  to->sum += count * exp2(logit - to->top);
}

/* Entries of token `query` of `query_level`, which is token `token` of `level` in the walk. */
static void add_level(const hark_tree *tree, int level, int64_t token, const hark_fine_row *query, growing_sum *to) {
  const hark_level *at = &tree->level[level];
  const hark_hierarchy_keys keys = hark_hierarchy_meets(&tree->hierarchy, level, token);
  for (int side = 0; side < 2; side++)
    for (int64_t b = keys.range[side].from; b < hark_min(keys.range[side].to, at->keys); b++) {
      if (at->key_count[b] == 0.0f) continue;
      const float term = at->terms == NULL ? 0.0f : at->terms[hark_term_at(tree->hierarchy.block, token - b)];
      if (term == -INFINITY) continue;
      const hark_fine_row key = hark_fine_key(at, b);
      grow(to, hark_fine_exponent(tree->call, query, &key) + (double)term, (double)at->key_count[b]);
    }
}

/* Row `row` of a tree; of a windowed one with its low levels in the window, where it is row `in_window`. */
static void sum_row(const hark_tree *tree, int64_t row, const hark_tree *window, int64_t in_window) {
  const hark_level *rows = &tree->level[0];
  growing_sum sum = {-INFINITY, 0.0};
  if (rows->least[row] == INFINITY || !(fabsf(rows->least[row]) > FAR_SUM)) return;
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    const bool low = window != NULL && level <= HARK_WINDOW_LEVELS;
    const hark_tree *from = low ? window : tree;
    const int64_t token = (low ? in_window : row) >> level;
    const hark_fine_row query = tree->call->exact ? hark_fine_query(rows, row) : hark_fine_query(&from->level[level], token);
    add_level(from, level, token, &query, &sum);
  }
  if (!isfinite(sum.top) || !(sum.sum > 0.0)) return; /* a number that is none: the row is lost in any case */
  const double lse = (sum.top + log2(sum.sum)) / HARK_DISTANCE_LOG2_E;
  rows->least[row] = (float)lse;
  rows->least_low[row] = (float)(lse - (double)rows->least[row]);
}

void HARK_ISA(hark_hierarchical_exact_sums)(const hark_tree *tree, int64_t from, int64_t to, float *window_memory) {
  if (window_memory == NULL) {
    for (int64_t row = from; row < to; row++) sum_row(tree, row, NULL, 0);
    return;
  }
  hark_window window;
  HARK_ISA(hark_hierarchical_open_window)(tree, from, window_memory, &window);
  const int64_t origin = from * HARK_WINDOW_ROWS - window.first;
  for (int64_t row = window.first; row < window.last; row++) sum_row(tree, origin + row, &window.tree, row);
}

bool HARK_ISA(hark_hierarchical_has_far_rows)(const hark_tree *tree) {
  const hark_level *rows = &tree->level[0];
  for (int64_t row = 0; row < rows->queries; row++)
    if (rows->least[row] != INFINITY && fabsf(rows->least[row]) > FAR_SUM) return true;
  return false;
}
