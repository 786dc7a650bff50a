/* hierarchical_exact.c - backward: recomputes log-sum-exp of rows whose given one has lost the sum.
 *
 *     lse[n] = log of the sum over levels l and keys b of count_b exp(s[n >> l, b])
 *     linear interpolation: the sum is over levels l, two tokens a of each level, and keys b, of c(n,a) count_b exp(s[a, b])
 *
 * The backward divides by exp(lse), and lse has been rounded to f32: if lse is 2^24, that is a factor of two or more, whatever the sum of
 * the weights. With RBF a row at R sigmas from the nearest key loses R^2 2^-25 of every weight. If that is too much, it is recomputed entry
 * by entry in float64, and stored as highest logit and sum. Cost per such row: 2 Nr keys of every level, d products or differences each.
 */
#include "hierarchical_exact.h"

/* rbf: the rounding of a log-sum-exp of this size, 2^-18, is less than that of products up to the bound */
#define FAR_SUM 64.0f

/* log of a growing sum, in units of log 2. */
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

/* Adds the entries of `query`, the row of token `token` of `level`, times `share`. */
static void add_level(const hark_tree *tree, int level, int64_t token, const hark_fine_row *query, double share, growing_sum *to) {
  const hark_level *at = &tree->level[level];
  const hark_hierarchy_keys keys = hark_hierarchy_meets(&tree->hierarchy, level, token);
  for (int side = 0; side < 2; side++)
    for (int64_t b = keys.range[side].from; b < hark_min(keys.range[side].to, at->keys); b++) {
      if (at->key_count[b] == 0.0f) continue;
      const double term = at->terms == NULL ? 0.0 : hark_fine_term(at, hark_term_at(tree->hierarchy.block, token - b));
      if (term == -INFINITY) continue;
      const hark_fine_row key = hark_fine_key(at, b);
      grow(to, hark_fine_exponent(tree->call, query, &key) + term, share * (double)at->key_count[b]);
    }
}

static bool is_far(const hark_tree *tree, float least) {
  return fabsf(least) > (tree->call->rbf ? FAR_SUM : HARK_FINE_FROM) && fabsf(least) != INFINITY;
}

/* Recomputes row `row` of a tree. If the tree is windowed, its low levels are in the window, in which it is row `in_window`. */
static void sum_row(const hark_tree *tree, int64_t row, const hark_tree *window, int64_t in_window) {
  const hark_level *rows = &tree->level[0];
  growing_sum sum = {-INFINITY, 0.0};
  if (!is_far(tree, rows->least[row])) return;
  hark_linear_share share = {row, {1.0, 0.0}};
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    const bool low = window != NULL && level <= HARK_WINDOW_LEVELS;
    const hark_tree *from = low ? window : tree;
    if (level > 0 && tree->call->linear) share = HARK_ISA(hark_hierarchical_share_above)(tree, level - 1, &share);
    if (!tree->call->linear) share.token = row >> level;
    for (int i = 0; i < 2; i++) {
      const int64_t token = share.token + i - (low ? (row - in_window) >> level : 0);
      if (share.weight[i] == 0.0) continue;
      const hark_fine_row query = tree->call->exact ? hark_fine_query(rows, row) : hark_fine_query(&from->level[level], token);
      add_level(from, level, token, &query, share.weight[i], &sum);
    }
  }
  if (!isfinite(sum.top) || !(sum.sum > 0.0)) return; /* not finite: the row is lost in any case */
  const double log_sum = log2(sum.sum), lse = (sum.top + log_sum) / HARK_DISTANCE_LOG2_E;
  rows->least[row] = hark_finite_log_sum(lse);
  hark_set_fine_sum(rows, row, (hark_fine_sum){sum.top, (float)log_sum});
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

bool HARK_ISA(hark_hierarchical_any_far)(const hark_tree *tree, int64_t from, int64_t to) {
  for (int64_t row = from; row < to; row++)
    if (is_far(tree, tree->level[0].least[row])) return true;
  return false;
}

void HARK_ISA(hark_hierarchical_begin_far_rows)(const hark_tree *tree, int64_t from, int64_t to) {
  const hark_level *rows = &tree->level[0];
  for (int64_t row = from; row < to; row++)
    hark_set_fine_sum(rows, row, (hark_fine_sum){(double)rows->least[row] * HARK_DISTANCE_LOG2_E, 0.0f});
}
