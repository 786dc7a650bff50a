/* grid_exact.c - backward: recomputes log-sum-exp of rows whose given one has lost the sum.
 *
 *     lse[n] = log of the sum over levels and the key cells b that n's cell a meets: c_b e^s,   s = scale q_a . k_b
 *
 * The backward divides by e^lse, and lse has been rounded to f32: if lse is 2^24, that is a factor of two or more, whatever the sum of the
 * weights. If that is too much, it is recomputed entry by entry in float64, and stored as highest logit and sum. Cost per such row: d
 * products for each of its entries.
 */
#include "grid_tile.h"

/* Log of a growing sum, in units of log 2. */
typedef struct growing_sum {
  double top, sum;
} growing_sum;

static void grow(growing_sum *to, double logit, double count) {
  if (logit == -INFINITY) return;
  if (logit > to->top || isnan(logit)) {
    to->sum = to->top == -INFINITY ? 0.0 : to->sum * exp2(to->top - logit);
    to->top = logit;
  }
  to->sum += count * exp2(logit - to->top);
}

/* Adds the entries of a pixel in row `y`, column `x` on a level. */
static void add_level(const hark_grid_tree *tree, int level, int64_t y, int64_t x, growing_sum *sum) {
  const hark_grid *g = &tree->grid;
  const hark_grid_level *at = &tree->level[level];
  const int64_t row = y >> level, column = x >> level, side = g->side;
  const int64_t cell = tree->call->exact ? hark_grid_index(tree, 0, y, x) : hark_grid_index(tree, level, row, column);
  for (int64_t r = hark_max((row / side - 1) * side, 0); r < hark_min((row / side + 2) * side, at->height); r++)
    for (int64_t c = hark_max((column / side - 1) * side, 0); c < hark_min((column / side + 2) * side, at->width); c++) {
      if (!hark_grid_meets(g, level, row, column, r, c)) continue;
      const int64_t key = hark_grid_index(tree, level, r, c);
      if (tree->key_count[key] != 0.0f) grow(sum, hark_grid_exact_logit(tree, cell, key), (double)tree->key_count[key]);
    }
}

hark_grid_sum HARK_ISA(hark_grid_exact_sum)(const hark_grid_tree *tree, int64_t pixel) {
  growing_sum sum = {-INFINITY, 0.0};
  for (int level = 0; level < tree->grid.levels; level++)
    add_level(tree, level, pixel / tree->grid.stride, pixel % tree->grid.stride, &sum);
  return (hark_grid_sum){sum.sum > 0.0 ? sum.top : NAN, (float)log2(sum.sum)};
}
