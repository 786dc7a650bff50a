/* hierarchical_exact.h - float64 logits, computed one by one where f32 is not exact enough: for rows whose log-sum-exp is far from 0, for
 * terms as large, and with RBF for pairs of tokens whose squared distance must not come from a product (distances.h).
 *
 * In f32 a mean of far rows is not exact enough: its rounding error, a millionth of a sigma for every ten of its length, is as large as the
 * differences of close pairs. So far tokens of coarse levels also store this remainder, and differences include it.
 */
#ifndef HARK_BACKEND_CPU_ISA_HIERARCHICAL_EXACT_H
#define HARK_BACKEND_CPU_ISA_HIERARCHICAL_EXACT_H

#include <float.h>

#include "distances.h"
#include "hierarchical_tile.h"

/* Tokens above a token with at least this half square (distances.h) have a remainder. Two of this size have a spread of 128. */
#define HARK_REMAINDER_FROM 32.0f
#define HARK_NO_REMAINDER INFINITY /* as the first number of a remainder: there is none */

/* A token's row: high + low; low NULL: high only. */
typedef struct hark_fine_row {
  const float *high, *low;
} hark_fine_row;

static inline hark_fine_row hark_fine_row_of(const hark_rows *high, const hark_rows *low, int64_t row) {
  const float *remainder = low->data == NULL ? NULL : low->data + row * low->stride;
  return (hark_fine_row){high->data + row * high->stride, remainder != NULL && *remainder != HARK_NO_REMAINDER ? remainder : NULL};
}
static inline hark_fine_row hark_fine_key(const hark_level *level, int64_t key) {
  return hark_fine_row_of(&level->key, &level->key_low, key);
}
static inline hark_fine_row hark_fine_query(const hark_level *level, int64_t row) {
  return hark_fine_row_of(&level->query, &level->query_low, row);
}

/* x - y of a feature, for rows with or without remainders. */
static inline double hark_fine_difference(const hark_fine_row *x, const hark_fine_row *y, int c) {
  double difference = (double)x->high[c] - (double)y->high[c];
  if (x->low != NULL) difference += (double)x->low[c];
  if (y->low != NULL) difference -= (double)y->low[c];
  return difference;
}

/* A log-sum-exp in units of log 2: the highest logit, and the logarithm of the sum of 2^(s - top). They are not added, because 2^60 + 2
 * would round to 2^60 in float64. */
typedef struct hark_fine_sum {
  double top;
  float log_sum;
} hark_fine_sum;
#define HARK_FINE_SUM_FLOATS 4 /* and the rounding error of the token's mean gradient */

static inline hark_fine_sum hark_fine_sum_of(const hark_level *level, int64_t token) {
  const float *from = level->fine_least + token * HARK_FINE_SUM_FLOATS;
  hark_fine_sum sum;
  memcpy(&sum.top, from, sizeof sum.top);
  sum.log_sum = from[2];
  return sum;
}
static inline void hark_set_fine_sum(const hark_level *level, int64_t token, hark_fine_sum sum) {
  float *to = level->fine_least + token * HARK_FINE_SUM_FLOATS;
  memcpy(to, &sum.top, sizeof sum.top);
  to[2] = sum.log_sum;
}

/* D of a token, without the rounding to f32; if the tree is far. */
static inline double hark_fine_mean_gradient(const hark_level *level, int64_t token) {
  return (double)level->mean_gradient[token] + (double)level->fine_least[token * HARK_FINE_SUM_FLOATS + 3];
}
/* The factor of a row that sees some key: above 0 if the row's gradient is not finite, so that it is not lost. */
static inline float hark_kept_factor(float factor, float mean_gradient) {
  return factor == 0.0f && !isfinite(mean_gradient) ? FLT_MIN : factor;
}
/* After mean_gradient has been set. */
static inline void hark_set_fine_mean_gradient(const hark_level *level, int64_t token, double mean) {
  const float low = (float)(mean - (double)level->mean_gradient[token]);
  level->fine_least[token * HARK_FINE_SUM_FLOATS + 3] = isfinite(low) ? low : 0.0f;
}

/* A log-sum-exp in natural units beyond which all logits of a row are float64, so that its weights sum to one: there rounding it changes
 * each weight by 2^-17. */
#define HARK_FINE_FROM 160.0f
static inline bool hark_is_fine(float log_sum_exp) { return fabsf(log_sum_exp) > HARK_FINE_FROM && fabsf(log_sum_exp) != INFINITY; }

/* The term of a logit, in units of log 2. Two floats store a quarter of it: any number of f32 fits. */
static inline double hark_fine_term(const hark_level *level, int64_t at) {
  return 4.0 * ((double)level->fine_terms[2 * at] + (double)level->fine_terms[2 * at + 1]);
}

/* scale q.k, or -|q - k|^2 / (2 sigma^2), in units of log 2. */
static inline double hark_fine_exponent(const hark_hierarchical_call *call, const hark_fine_row *query, const hark_fine_row *key) {
  if (!call->rbf) return call->desc->scale * HARK_DISTANCE_LOG2_E * hark_exact_product(query->high, key->high, call->head_dim);
  const double factor = -0.5 * call->desc->scale * HARK_DISTANCE_LOG2_E;
  if (query->low == NULL && key->low == NULL) return factor * hark_squared_distance(query->high, key->high, call->head_dim);
  double square = 0.0;
  for (int c = 0; c < call->head_dim; c++) {
    const double apart = hark_fine_difference(query, key, c);
    square += apart * apart;
  }
  return factor * square;
}

/* The rows of a tile, for the search of far pairs. */
typedef struct hark_tile_roots {
  float root[HARK_TILE_QUERIES], longest; /* of half squares; the largest */
} hark_tile_roots;

/* From packed queries' squares: |q|^2 scale / 2 in units of log 2. */
static inline void hark_tile_longest(hark_tile_roots *tile, int64_t rows) {
  tile->longest = 0.0f;
  for (int64_t lane = 0; lane < rows; lane++) tile->longest = tile->root[lane] > tile->longest ? tile->root[lane] : tile->longest;
}

/* True if a pair of the group may have a spread above the bound. */
HARK_SIMD bool hark_group_may_be_far(const hark_level *level, const hark_group *group, float longest) {
  const float *squares = level->key_square + group->first;
  vm above = vf_less(vf_zero(), vf_zero());
  for (int k = 0; k < group->count; k += HARK_LANES) {
    const vf sum = vf_set(longest) + vf_sqrt(vf_load_part_or_all(squares + k, group->count - k));
    above = vm_or(above, vm_not(vf_less(sum * sum, vf_set(HARK_DISTANCE_SPREAD))));
  }
  return vm_any(above);
}

/* A group with such pairs. */
typedef struct hark_far_group {
  const hark_tree *tree;
  const hark_group_walk *walk;
  const hark_group *group;
  const hark_level *level, *tile_level;
  const hark_tile_roots *tile;
} hark_far_group;

/* Marks in `flags` which of the logits x of key k of the group, in the vector from `lane` on, must be recomputed: those of pairs with a
 * spread above the bound that may be at least 2^-40 of the significant logits, `least`. False: none. */
HARK_SIMD_NOINLINE bool hark_find_far(const hark_far_group *far, int k, int lane, vf x, vf least, float *flags) {
  const vf sum = vf_load(far->tile->root + lane) + vf_sqrt(vf_set(far->level->key_square[far->group->first + k])), spread = sum * sum;
  const vm above = vm_not(vf_less(spread, vf_set(HARK_DISTANCE_SPREAD)));
  const vm faint = vf_less(vf_fma(vf_set(HARK_DISTANCE_SLACK(far->tree->call->head_dim)), spread, x), least);
  const vm needs = vm_and(vm_and(above, vm_not(faint)), vm_not(vf_equal(x, vf_set(-INFINITY))));
  vf_store(flags, vf_select(needs, vf_set(1.0f), vf_zero()));
  return vm_any(needs);
}

static inline double hark_far_exponent(const hark_far_group *far, int k, int lane) {
  const hark_fine_row query = hark_fine_query(far->tile_level, far->walk->row + lane),
                      key = hark_fine_key(far->level, far->group->first + k);
  return hark_fine_exponent(far->tree->call, &query, &key);
}

/* out += weight (x - y) */
static inline void hark_add_fine_difference(float weight, const hark_fine_row *x, const hark_fine_row *y, int features, float *out) {
  if (x->low == NULL && y->low == NULL) {
    hark_add_difference(weight, x->high, y->high, features, out);
    return;
  }
  for (int c = 0; c < features; c++) out[c] += weight * (float)hark_fine_difference(x, y, c);
}

#endif
