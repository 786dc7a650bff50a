/* hierarchical_linear.c - linear interpolation: which rows take the sums of a token, and the backward's data of a token.
 *
 *     row 2 j of level l - 1 starts from the sums of token j of level l;   row 2 j + 1 from the mean of those of j and j + 1, or from
 *     those of j alone if j + 1 does not exist or has no unmasked query
 *
 * So token a gathers gradients from rows 2 a - 1, 2 a and 2 a + 1, with coefficients c of 1 or 1/2:
 *
 *     m_a = min (m_n - log c)      g_a = sum c e^(m_a - m_n) g_n      D_a = sum c e^(m_a - m_n) D_n
 *
 * Coefficients are part of m, so that P = e^(s - m_a) is at most 1 / count, as with constant interpolation: the row n of the minimum has
 * c count e^s among the terms of its normaliser.
 */
#include <math.h>

#include "hierarchical_exact.h"

bool HARK_ISA(hark_hierarchical_is_query)(const hark_tree *tree, int level, int64_t token) {
  const hark_tensor *mask = &tree->call->args->query_mask;
  const int64_t first = token * ((int64_t)1 << level);
  const int64_t end = hark_min(first + ((int64_t)1 << level), tree->hierarchy.length - tree->origin);
  if (mask->type == HARK_NONE) return first < end;
  for (int64_t row = first; row < end; row++)
    if (hark_is_unmasked(mask, tree->sequence->item, 1, tree->sequence->query_row + row)) return true;
  return false;
}

/* The same where the counts of all kept tokens are known. */
static bool has_query(const hark_tree *tree, int level, int64_t token) {
  if (tree->windowed && level <= HARK_WINDOW_LEVELS) return HARK_ISA(hark_hierarchical_is_query)(tree, level, token);
  return token < tree->level[level].queries && tree->level[level].query_count[token] > 0.0f;
}

hark_linear_share HARK_ISA(hark_hierarchical_share_above)(const hark_tree *tree, int level, const hark_linear_share *share) {
  const int64_t token = share->token / 2;
  const double half = has_query(tree, level + 1, token + 1) ? 0.5 : 0.0;
  const double first = share->weight[0], second = share->weight[1];
  if (share->token % 2 == 0) return (hark_linear_share){token, {first + (1.0 - half) * second, half * second}};
  return (hark_linear_share){token, {(1.0 - half) * first, half * first + second}};
}

/* A row of the level below that takes a token's sums. */
typedef struct taker {
  int64_t row;
  float coefficient, factor; /* factor: coefficient e^(m_a - m_n) */
} taker;

/* Lists those that see some key; returns their number, at most 3. */
static int takers_of(const hark_tree *tree, int level, int64_t token, taker *list) {
  const hark_level *below = &tree->level[level - 1];
  const int64_t last = hark_min(2 * token + 1, below->queries - 1);
  int count = 0;
  for (int64_t row = hark_max(2 * token - 1, 0); row <= last; row++) {
    float coefficient = 1.0f;
    if (row < 2 * token) coefficient = HARK_ISA(hark_hierarchical_is_query)(tree, level, token) ? 0.5f : 0.0f;
    if (row > 2 * token) coefficient = HARK_ISA(hark_hierarchical_is_query)(tree, level, token + 1) ? 0.5f : 1.0f;
    if (coefficient != 0.0f && below->least[row] != INFINITY) list[count++] = (taker){row, coefficient, 0.0f};
  }
  return count;
}

static void find_factors(const hark_level *at, const hark_level *below, int64_t token, taker *list, int count) {
  double least = INFINITY;
  for (int i = 0; i < count; i++)
    least = hark_smaller((double)(below->least[list[i].row] + (list[i].coefficient < 1.0f ? HARK_LN_2 : 0.0f)), least);
  at->least[token] = (float)least;
  for (int i = 0; i < count; i++) {
    const float lse = below->least[list[i].row];
    const float factor = at->least[token] == lse ? 1.0f : expf(at->least[token] - lse);
    list[i].factor = hark_kept_factor(list[i].coefficient * factor, below->mean_gradient[list[i].row]);
  }
}

/* The same if log-sum-exps are float64. */
static void find_far_factors(const hark_level *at, const hark_level *below, int64_t token, taker *list, int count) {
  hark_fine_sum least = {0.0, 0.0f}, sums[3];
  for (int i = 0; i < count; i++) {
    sums[i] = hark_fine_sum_of(below, list[i].row);
    if (list[i].coefficient < 1.0f) sums[i].log_sum += 1.0f; /* in units of log 2 */
    if (i == 0 || (least.top - sums[i].top) + ((double)least.log_sum - (double)sums[i].log_sum) > 0.0) least = sums[i];
  }
  at->least[token] = count == 0 ? INFINITY : hark_finite_log_sum((least.top + (double)least.log_sum) / HARK_DISTANCE_LOG2_E);
  if (!hark_is_fine(at->least[token])) /* its logits are f32, relative to the rounded number */
    least = (hark_fine_sum){(double)at->least[token] * HARK_DISTANCE_LOG2_E, 0.0f};
  hark_set_fine_sum(at, token, least);
  for (int i = 0; i < count; i++) {
    const double above = (least.top - sums[i].top) + ((double)least.log_sum - (double)sums[i].log_sum); /* m_a - (m_n - log c) */
    list[i].factor = hark_kept_factor(exp2f((float)above), below->mean_gradient[list[i].row]);
  }
}

void HARK_ISA(hark_hierarchical_join_linear)(const hark_tree *tree, int level, int64_t token) {
  const hark_level *at = &tree->level[level], *below = at - 1;
  float *g = at->g.data + token * at->g.stride, mean = 0.0f;
  double fine_mean = 0.0;
  taker list[3];
  const int count = takers_of(tree, level, token, list);
  if (tree->is_far)
    find_far_factors(at, below, token, list, count);
  else
    find_factors(at, below, token, list, count);
  memset(g, 0, (size_t)tree->call->value_pad * sizeof *g);
  for (int i = 0; i < count; i++) {
    const int64_t row = list[i].row;
    if (list[i].factor == 0.0f) continue;
    mean += list[i].factor * below->mean_gradient[row];
    if (tree->is_far) fine_mean += (double)list[i].factor * hark_fine_mean_gradient(below, row);
    const float *from = below->g.data + row * below->g.stride;
    const vf factor = vf_set(list[i].factor);
    for (int c = 0; c < tree->call->value_pad; c += HARK_LANES) vf_store(g + c, vf_fma(factor, vf_load(from + c), vf_load(g + c)));
  }
  at->mean_gradient[token] = mean;
  if (tree->is_far) hark_set_fine_mean_gradient(at, token, fine_mean);
}
