/* hierarchical_backward.c - gradients of hierarchical attention, level by level from the coarsest down.
 *
 * Let m_a = the least log-sum-exp of the rows below row a, and g_a, D_a their output gradients and mean gradients weighted by e^(m_a -
 * lse) (linear interpolation: hierarchical_linear.c). For every entry of row a and key b (docs/mathematics/hierarchical.md):
 *
 *     P = e^(s - m_a)     dS = P (M g_a . v_b - count_b D_a)
 *     dv_b += M P g_a     dq_a += scale dS k_b     dk_b += scale dS q_a          (rbf: k_b - q_a, q_a - k_b)
 *
 * Gradients of a level's tokens begin with the contributions of their parents, so that level 0 ends with the gradients of rows. Lanes are
 * queries in P and dS, features in the other factors; only q and g are transposed. Cost: three times 2 (d + dv) / 2 multiply-adds per
 * entry, and about two exponentials for the rest. Memory: tiles.
 *
 * For long sequences the lowest levels are computed in windows of rows (hierarchical_tokens.c), whose coarse gradients never leave the
 * caches.
 *
 * With exact queries the rows of all levels are those of the sequence: a tile of rows visits all levels, and contributions to lower levels
 * are added at the end (hark_part_rows()).
 */
#include "hierarchical_exact.h"

typedef struct backward_work {
  const hark_tree *tree;
  int64_t part;               /* exact queries: the part of the rows */
  float *queries, *gradients; /* [d][lanes], [dv][lanes] */
  float *weights;             /* [HARK_GROUP_KEYS][lanes] */
  float *dlogits;             /* [HARK_CHUNK_KEYS][lanes] */
  float *kept;                /* dropout's factors, with the layout of the weights */
  float *clean;
  float *start, *zero, *mean, *row_sums;     /* [lanes]: -m, with the common terms of a lane's logits; 0; D; sums of dS (rbf) */
  hark_tile_roots roots;                     /* rbf */
  hark_fine_sum least[HARK_TILE_QUERIES];    /* m, if the tree is far */
  bool is_fine[HARK_TILE_QUERIES], any_fine; /* lanes whose logits are float64 */
  const hark_level *tile_level;              /* the level of the tile's rows */
  float *lane_finite;                        /* [lanes]: 0, NaN if the row's query, g or D is not finite */
  bool rows_finite;                          /* all of the tile's rows are finite */
} backward_work;

HARK_SIMD_NOINLINE void scores(const hark_product *p, int first, int last) { hark_product_run(HARK_FINISH_STORE, p, first, last); }
HARK_SIMD_NOINLINE void spread(const hark_product *p, int last) { hark_product_run(HARK_FINISH_SPREAD, p, 0, last); }

static backward_work open_work(const hark_tree *tree, void *memory) {
  const hark_hierarchical_call *call = tree->call;
  float *next = memory;
  backward_work work = {.tree = tree};
  float **const lanes[] = {&work.start, &work.zero, &work.mean, &work.row_sums, &work.lane_finite};
  for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++, next += HARK_TILE_QUERIES) *lanes[i] = next;
  work.queries = next;
  next += (ptrdiff_t)call->head_pad * HARK_TILE_QUERIES;
  work.gradients = next;
  next += (ptrdiff_t)call->value_pad * HARK_TILE_QUERIES;
  work.weights = next;
  next += HARK_GROUP_KEYS * HARK_TILE_QUERIES;
  work.dlogits = next;
  next += HARK_CHUNK_KEYS * HARK_TILE_QUERIES;
  work.kept = next;
  next += HARK_GROUP_KEYS * HARK_TILE_QUERIES;
  work.clean = next;
  memset(work.zero, 0, HARK_TILE_QUERIES * sizeof(float));
  return work;
}

/* On level 0, true if earlier heads of the group have added, or if the caller's gradient is accumulated in place. */
static bool adds_to_keys(const hark_tree *tree, int level) {
  const hark_hierarchical_call *call = tree->call;
  const bool own =
      (call->args->accumulate & HARK_ACCUMULATE_KEY) != 0 && call->args->dkey.type != HARK_NONE && call->head_dim == call->head_pad;
  return level == 0 && (tree->add_first || own);
}
static bool adds_to_values(const hark_tree *tree, int level) {
  const hark_hierarchical_call *call = tree->call;
  const bool own =
      (call->args->accumulate & HARK_ACCUMULATE_VALUE) != 0 && call->args->dvalue.type != HARK_NONE && call->value_dim == call->value_pad;
  return level == 0 && (tree->add_first || own);
}

/* row = share times the parent's row, or with `add` row += that. With share 0 the parent's row is not read. */
static void hand_down(const hark_rows *rows, int64_t row, const hark_rows *parents, float share, bool add, int width) {
  float *to = rows->data + row * rows->stride;
  if (share == 0.0f) {
    if (!add) memset(to, 0, (size_t)width * sizeof *to);
    return;
  }
  const float *from = parents->data + row / 2 * parents->stride;
  const vf factor = vf_set(share);
  if (add)
    for (int c = 0; c < width; c += HARK_LANES) vf_store(to + c, vf_fma(factor, vf_load(from + c), vf_load(to + c)));
  else
    for (int c = 0; c < width; c += HARK_LANES) vf_store(to + c, factor * vf_load(from + c));
}

/* Begins rows from .. to of a level with the share of the parents' gradients. Adds to the previous contents with `add`, and on level 0 if
 * adds_to_keys() or adds_to_values(). */
static void begin_keys(const hark_tree *tree, int level, int64_t from, int64_t to, bool add) {
  const hark_level *at = &tree->level[level], *above = level + 1 < tree->hierarchy.levels ? at + 1 : at;
  const bool add_keys = add || adds_to_keys(tree, level), add_values = add || adds_to_values(tree, level);
  for (int64_t b = from; b < to; b++) {
    const bool real = above != at && at->key_count[b] > 0.0f;
    hand_down(&at->dkey, b, &above->dkey, real ? at->key_count[b] / above->key_count[b / 2] : 0.0f, add_keys, tree->call->head_pad);
    hand_down(&at->dvalue, b, &above->dvalue, real ? 1.0f : 0.0f, add_values, tree->call->value_pad);
  }
}

static void clear_keys(const hark_tree *tree, const hark_level *at, int64_t from, int64_t to) {
  for (int64_t b = from; b < to; b++) {
    memset(at->dkey.data + b * at->dkey.stride, 0, (size_t)tree->call->head_pad * sizeof(float));
    memset(at->dvalue.data + b * at->dvalue.stride, 0, (size_t)tree->call->value_pad * sizeof(float));
  }
}

static void begin_queries(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_hierarchical_call *call = tree->call;
  const hark_level *at = &tree->level[level], *above = level + 1 < tree->hierarchy.levels && !call->exact ? at + 1 : at;
  const bool add = level == 0 && (call->args->accumulate & HARK_ACCUMULATE_QUERY) != 0 && call->args->dquery.type != HARK_NONE &&
                   call->head_dim == call->head_pad;
  for (int64_t a = from; a < to; a++) {
    float share = 0.0f;
    if (above != at && at->query_count[a] > 0.0f) {
      if (!call->first)
        share = at->query_count[a] / above->query_count[a / 2];
      else /* the parent's first unmasked query is this child's, unless the first child has one */
        share = (a & 1) == 0 || at->query_count[a - 1] == 0.0f ? 1.0f : 0.0f;
    }
    hand_down(&at->dquery, a, &above->dquery, share, add, call->head_pad);
  }
}

/* Packs a tile's queries and gradients, and begins its lanes. */
static void begin_tile(backward_work *work, const hark_level *level, int64_t row, int64_t rows) {
  const hark_hierarchical_call *call = work->tree->call;
  work->tile_level = level;
  work->any_fine = false;
  hark_pack_transposed(level->query.data + row * level->query.stride, level->query.stride, (int)rows, call->head_dim,
                       (float)(call->scale * HARK_LOG2_E), work->queries);
  hark_pack_transposed(level->g.data + row * level->g.stride, level->g.stride, (int)rows, call->value_dim, 1.0f, work->gradients);
  for (int lane = 0; lane < hark_vectors_of(rows) * HARK_LANES; lane++) {
    /* Rows that see no key have least = infinity: all their logits become -infinity. */
    work->start[lane] = lane < rows ? -level->least[row + lane] * HARK_LOG2_E : -INFINITY;
    work->is_fine[lane] = lane < rows && work->tree->is_far && hark_is_fine(level->least[row + lane]);
    work->any_fine = work->any_fine || work->is_fine[lane];
    if (work->is_fine[lane]) work->start[lane] = 0.0f; /* its logits will be replaced */
    if (lane < rows && work->tree->is_far) work->least[lane] = hark_fine_sum_of(level, row + lane);
    work->mean[lane] = lane < rows ? level->mean_gradient[row + lane] : 0.0f;
    work->row_sums[lane] = 0.0f;
    work->lane_finite[lane] = 0.0f * work->mean[lane];
    if (lane < rows && !(hark_rows_finite(level->query.data + (row + lane) * level->query.stride, 0, 1, call->head_dim) &&
                         hark_rows_finite(level->g.data + (row + lane) * level->g.stride, 0, 1, call->value_dim)))
      work->lane_finite[lane] = NAN;
  }
  work->rows_finite = hark_rows_finite(work->lane_finite, 0, 1, hark_vectors_of(rows) * HARK_LANES);
  for (int lane = 0; call->rbf && lane < hark_vectors_of(rows) * HARK_LANES; lane += HARK_LANES) {
    const hark_square_factors factors = hark_square_factors_of((double)call->scale * (double)HARK_LOG2_E);
    vf square = vf_zero();
    for (int c = 0; c < call->head_dim; c++) {
      const vf x = vf_set(factors.before) * vf_load(work->queries + (ptrdiff_t)c * HARK_TILE_QUERIES + lane);
      square = vf_fma(x, x, square);
    }
    const vf half = vf_set(-factors.after);
    vf_store(work->start + lane, vf_fma(square, half, vf_load(work->start + lane)));
    vf_store(work->roots.root + lane, vf_sqrt(vf_zero() - square * half));
  }
  for (int64_t lane = 0; call->rbf && !work->tree->is_far && lane < rows; lane++)
    work->least[lane] = (hark_fine_sum){(double)level->least[row + lane] * HARK_DISTANCE_LOG2_E, 0.0f};
  if (call->rbf) hark_tile_longest(&work->roots, rows);
}

/* Sums of dS over the diagonals of a group, beginning with that of (lane 0, last key). They alternate between several copies, so that a
 * vector is not read again before its store has finished. */
#define DIAGONAL_COPIES 8
typedef float diagonals[HARK_GROUP_KEYS + HARK_TILE_QUERIES + HARK_LANES];

static void give_diagonals(const hark_group_walk *walk, const hark_group *group, diagonals *copies, double *dterms) {
  const int64_t most = 2 * walk->tree->hierarchy.block - 1, lowest = walk->row - (group->first + group->count - 1);
  const int64_t begin = hark_max(group->from * HARK_LANES, -most - lowest);
  const int64_t end = hark_min(group->to * HARK_LANES + group->count - 1, most + 1 - lowest);
  for (int64_t i = begin; i < end; i++) {
    double sum = 0.0;
    for (int copy = 0; copy < DIAGONAL_COPIES; copy++) sum += (double)copies[copy][i];
    dterms[lowest + i + most] += sum;
  }
}

/* Logits minus m of one key in the vector from `lane` on. Recomputes those of fine lanes, and with `pairs_far` those of far pairs, one by
 * one. Hidden entries are -infinity. term: index of the first lane's term. */
static vf take_far(const backward_work *work, const hark_far_group *far, bool pairs_far, int k, int lane, vf x, int64_t term) {
  float logits[HARK_LANES], flags[HARK_LANES] = {0};
  const bool any = pairs_far && hark_find_far(far, k, lane, x, vf_set(HARK_DISTANCE_FAINT), flags);
  if (!any && !work->any_fine) return x;
  vf_store(logits, x);
  for (int i = 0; i < HARK_LANES && lane + i < far->walk->rows; i++) {
    if (flags[i] == 0.0f && (!work->is_fine[lane + i] || logits[i] == -INFINITY)) continue;
    const hark_fine_sum *least = &work->least[lane + i];
    const double added = far->level->terms == NULL ? 0.0 : hark_fine_term(far->level, term + i);
    logits[i] = (float)(((hark_far_exponent(far, k, lane + i) + added) - least->top) - (double)least->log_sum);
  }
  return vf_load(logits);
}

/* Replaces logits and g . v of a group by P (with dropout's factor) and scale dS. */
static void group_gradients(backward_work *work, const hark_group_walk *walk, const hark_group *group, float *dlogits) {
  const hark_tree *tree = work->tree;
  const hark_hierarchical_call *call = tree->call;
  const hark_level *level = &tree->level[group->level];
  const vf scale = vf_set(call->scale);
  const bool drops = call->dropout_threshold > 0, rbf = level->key_square != NULL;
  const int64_t term = hark_term_at(tree->hierarchy.block, walk->row - group->first);
  const bool careful = !work->rows_finite || !tree->finite; /* next to values that are not finite, visible entries must not have weight 0 */
  hark_group_lanes lanes;
  float most[HARK_GROUP_KEYS]; /* upper bounds of P: a key's rows together have at most weight 1 */
  diagonals copies[DIAGONAL_COPIES];
  for (int k = 0; k < group->count; k++) most[k] = 1.0f / level->key_count[group->first + k];
  if (level->dterms != NULL) memset(copies, 0, sizeof copies);
  if (drops) HARK_ISA(hark_hierarchical_kept)(tree, walk, group, work->kept);
  hark_lanes_of_group(walk, group, &lanes);
  const bool far = rbf && hark_group_may_be_far(level, group, work->roots.longest);
  const hark_far_group pairs = {tree, walk, group, level, work->tile_level, &work->roots};
  for (int m = group->from; m < group->to; m++) {
    const int lane = m * HARK_LANES;
    const vf mean = vf_load(work->mean + lane), start = vf_load(work->start + lane), hidden = vf_set(-INFINITY);
    for (int k = 0; k < group->count; k++) {
      const int64_t key = group->first + k;
      float *p = work->weights + k * HARK_TILE_QUERIES + lane, *ds = dlogits + k * HARK_TILE_QUERIES + lane;
      vf x = vf_load(p), g = vf_load(ds);
      bool part = lanes.lo[k] > lane || lanes.hi[k] < lane + HARK_LANES;
      vm seen = hark_lanes_between(lane, lanes.lo[k], lanes.hi[k]);
      if (rbf) x = x - vf_set(level->key_square[key]);
      if (level->terms != NULL) { /* -infinity hides the entry, whatever the key contains */
        const vf added = vf_load(level->terms + term - k + lane);
        seen = vm_and(seen, vm_not(vf_equal(added, vf_set(-INFINITY))));
        part = true;
        x = x + added;
      }
      if ((far || work->any_fine) && lanes.lo[k] < lanes.hi[k])
        x = take_far(work, &pairs, far, k, lane, vf_select(seen, x, hidden), term - k + lane);
      vf weight = vf_not_above(vf_exp2(vf_not_above(x, vf_zero())), vf_set(most[k]));
      if (careful) {
        const vm bad = vm_not(vf_equal(vf_load(work->lane_finite + lane), vf_zero()));
        weight = vf_select(bad, hark_seen_weight(weight, x), weight);
        seen = vm_and(seen, vm_not(vm_or(vf_equal(start, hidden), vf_equal(x, hidden))));
        part = true;
      }
      vf kept = weight;
      if (drops) hark_apply_dropout(work->kept + k * HARK_TILE_QUERIES + lane, &kept, &g);
      vf dlogit = weight * (g - vf_set(level->key_count[key]) * mean);
      if (part) {
        kept = vf_select(seen, kept, vf_zero());
        dlogit = vf_select(seen, dlogit, vf_zero());
      }
      if (level->dterms != NULL) {
        float *sums = copies[k % DIAGONAL_COPIES] + (group->count - 1 - k) + lane;
        vf_store(sums, vf_load(sums) + dlogit);
      }
      vf_store(p, kept);
      vf_store(ds, scale * dlogit);
    }
  }
  if (level->dterms != NULL) give_diagonals(walk, group, copies, level->dterms);
}

/* ---- exact queries: memory in which parts of the rows gather gradients of keys ---- */

/* Tokens of a level that belong to a part: from .. to. */
static void own_tokens(const hark_tree *tree, int64_t part, int level, int64_t *from, int64_t *to) {
  *from = part * tree->part_rows >> level;
  *to = part + 1 < tree->parts ? (part + 1) * tree->part_rows >> level : tree->level[level].keys;
}

/* The 2 Nr rows before (side 0) or after a part's own tokens of a level. */
static hark_rows reach_of(const hark_tree *tree, int64_t part, int level, int side, bool values) {
  const int64_t rows = 2 * tree->hierarchy.block, width = tree->call->head_pad + tree->call->value_pad;
  float *both = tree->reach + ((part * tree->hierarchy.levels + level) * 2 + side) * rows * width;
  return values ? (hark_rows){both + rows * tree->call->head_pad, tree->call->value_pad} : (hark_rows){both, tree->call->head_pad};
}

size_t HARK_ISA(hark_hierarchical_reach_floats)(const hark_hierarchy *h, int head_pad, int value_pad) {
  const int64_t parts = hark_min(hark_ceil_div(h->length, hark_max(1024, 32 * h->block)), 2 * h->block);
  return parts <= 1 ? 0 : (size_t)(parts * h->levels * 2 * 2 * h->block) * (size_t)(head_pad + value_pad);
}

/* The rows that gather gradients of keys or values from `first` on; *count becomes the number of contiguous ones. */
static hark_rows gathered_at(const backward_work *work, int level, int64_t first, bool values, int *count) {
  const hark_tree *tree = work->tree;
  const hark_level *at = &tree->level[level];
  hark_rows rows = values ? at->dvalue : at->dkey;
  int64_t row = first;
  if (tree->parts > 1) {
    int64_t from, to;
    own_tokens(tree, work->part, level, &from, &to);
    if (first < from) {
      rows = reach_of(tree, work->part, level, 0, values);
      row = first - (from - 2 * tree->hierarchy.block);
      *count = (int)hark_min(*count, from - first);
    } else if (first >= to) {
      rows = reach_of(tree, work->part, level, 1, values);
      row = first - to;
    } else {
      *count = (int)hark_min(*count, to - first);
    }
  }
  return (hark_rows){rows.data + row * rows.stride, rows.stride};
}

/* rbf: the contributions of dS times the row or key itself. */
static void own_parts(backward_work *work, const hark_group *group, const float *dlogits) {
  const hark_level *level = &work->tree->level[group->level];
  for (int k = 0; k < group->count; k++) {
    vf sum = vf_zero();
    for (int m = group->from; m < group->to; m++) {
      const vf dlogit = vf_load(dlogits + k * HARK_TILE_QUERIES + m * HARK_LANES);
      float *row_sums = work->row_sums + m * HARK_LANES;
      vf_store(row_sums, vf_load(row_sums) + dlogit);
      sum = sum + dlogit;
    }
    const vf total = vf_set(-vf_sum(sum));
    if (!work->tree->finite && vf_sum(sum) == 0.0f) continue; /* no row sees it: the key may hold anything */
    int one = 1;
    float *dkey = gathered_at(work, group->level, group->first + k, false, &one).data;
    const float *key = level->key.data + (group->first + k) * level->key.stride;
    for (int c = 0; c < work->tree->call->head_pad; c += HARK_LANES) vf_store(dkey + c, vf_fma(total, vf_load(key + c), vf_load(dkey + c)));
  }
}

/* scale dS of a far pair from differences in float64, `weight` being P. What may be rounding of the row's output, and of a coarse row's
 * gradient at each level, is zero: where one key has all the weight, it would be multiplied by the squared distance. */
static float far_difference(const backward_work *work, const hark_group_walk *walk, const hark_group *group, int k, int lane,
                            float weight) {
  const hark_level *level = &work->tree->level[group->level];
  const float *g = work->tile_level->g.data + (walk->row + lane) * work->tile_level->g.stride;
  const float *value = level->value.data + (group->first + k) * level->value.stride;
  const double mean = hark_fine_mean_gradient(work->tile_level, walk->row + lane);
  double product = 0, size = 0;
  for (int c = 0; c < work->tree->call->value_dim; c++) {
    const double x = (double)g[c] * (double)value[c];
    product += x;
    size += fabs(x);
  }
  const double difference = product - (double)level->key_count[group->first + k] * mean;
  const int sums = work->tree->call->linear ? 2 * group->level : group->level; /* of a coarse row's gradient */
  return fabs(difference) <= (sums + 2) * 0x1p-24 * size ? 0.0f : (float)(work->tree->call->scale * (double)weight * difference);
}

/* rbf: removes dS of far pairs from the tile: dq += dS (k - q), dk += dS (q - k). */
static void take_far_gradients(const backward_work *work, const hark_group_walk *walk, const hark_group *group, float *dlogits) {
  const hark_hierarchical_call *call = work->tree->call;
  const hark_level *level = &work->tree->level[group->level], *tile = work->tile_level;
  const bool differences = work->tree->is_far && call->dropout_threshold == 0;
  if (!hark_group_may_be_far(level, group, work->roots.longest)) return;
  const int last = (int)hark_min(group->to * HARK_LANES, walk->rows);
  for (int k = 0; k < group->count; k++) {
    const int64_t number = group->first + k;
    const float root = sqrtf(level->key_square[number]);
    for (int lane = group->from * HARK_LANES; lane < last; lane++) {
      float *dlogit = dlogits + k * HARK_TILE_QUERIES + lane;
      const float sum = work->roots.root[lane] + root;
      if (*dlogit == 0.0f || sum * sum < HARK_DISTANCE_SPREAD) continue;
      const hark_fine_row key = hark_fine_key(level, number), query = hark_fine_query(tile, walk->row + lane);
      int one = 1;
      if (differences && isfinite(*dlogit))
        *dlogit = far_difference(work, walk, group, k, lane, work->weights[k * HARK_TILE_QUERIES + lane]);
      hark_add_fine_difference(*dlogit, &query, &key, call->head_dim, gathered_at(work, group->level, number, false, &one).data);
      hark_add_fine_difference(*dlogit, &key, &query, call->head_dim, tile->dquery.data + (walk->row + lane) * tile->dquery.stride);
      *dlogit = 0.0f;
    }
  }
}

/* target[key] += sum over lanes of weights[key][lane] rows[lane] if not every row is finite: such rows are added separately, to the keys
 * that they see. */
HARK_SIMD_NOINLINE void spread_clean(hark_product p, int width, int padded, float *clean) {
  bool bad[HARK_TILE_QUERIES];
  const float *rows = p.a;
  const int64_t stride = p.a_step;
  hark_clean_rows(rows, stride, p.end, width, padded, clean, bad);
  p.a = clean;
  p.a_step = padded;
  spread(&p, padded / HARK_LANES);
  for (int key = 0; key < p.rows; key++)
    for (int lane = 0; lane < p.end; lane++) {
      const float weight = p.b[key * p.b_row + lane];
      if (!bad[lane] || weight == 0.0f) continue;
      for (int c = 0; c < width; c++) p.c[key * p.c_row + c] += weight * rows[lane * stride + c];
    }
}

/* keys (or values) += sum over the tile's rows of weights[key][row] rows[row] */
static void spread_rows(const backward_work *work, const hark_group *group, const float *weights, const hark_rows *rows, int64_t row,
                        int64_t count, bool values) {
  const hark_hierarchical_call *call = work->tree->call;
  const int lane = group->from * HARK_LANES;
  for (int key = 0, keys; key < group->count; key += keys) {
    keys = group->count - key;
    const hark_rows to = gathered_at(work, group->level, group->first + key, values, &keys);
    const hark_product p = {.a = rows->data + (row + lane) * rows->stride,
                            .a_step = rows->stride,
                            .b = weights + key * HARK_TILE_QUERIES + lane,
                            .b_row = HARK_TILE_QUERIES,
                            .b_step = 1,
                            .c = to.data,
                            .c_row = to.stride,
                            .rows = keys,
                            .end = (int)hark_min((group->to - group->from) * HARK_LANES, count - lane)};
    const int padded = values ? call->value_pad : call->head_pad;
    if (HARK_LIKELY(work->rows_finite))
      spread(&p, padded / HARK_LANES);
    else
      spread_clean(p, values ? call->value_dim : call->head_dim, padded, work->clean);
  }
}

/* Gradients of the entries of one group: adds to dV and dK, and leaves dS in `dlogits`. */
static void take_group(backward_work *work, const hark_group_walk *walk, const hark_group *group, const hark_level *tile_level,
                       float *dlogits) {
  const hark_tree *tree = work->tree;
  const hark_hierarchical_call *call = tree->call;
  const hark_level *level = &tree->level[group->level];
  const int64_t row = walk->row, rows = walk->rows;
  hark_product p = {.a = work->queries,
                    .a_step = HARK_TILE_QUERIES,
                    .b = level->key.data + group->first * level->key.stride,
                    .b_row = level->key.stride,
                    .b_step = 1,
                    .c = work->weights,
                    .c_row = HARK_TILE_QUERIES,
                    .rows = group->count,
                    .end = call->head_dim,
                    .start = work->start};
  if (walk->shift == 0) {
    hark_look_ahead(group, row, rows, &level->key, level->keys, call->head_dim, &p.ahead[0]);
    hark_look_ahead(group, row, rows, &level->value, level->keys, call->value_dim, &p.ahead[1]);
    hark_look_ahead(group, row, rows, &tile_level->query, tile_level->queries, call->head_dim, &p.ahead[2]);
  }
  scores(&p, group->from, group->to);
  p.a = work->gradients;
  p.b = level->value.data + group->first * level->value.stride;
  p.b_row = level->value.stride;
  p.c = dlogits;
  p.end = call->value_dim;
  p.start = work->zero;
  memset(p.ahead, 0, sizeof p.ahead);
  if (walk->shift == 0) {
    hark_look_ahead(group, row, rows, &tile_level->g, tile_level->queries, call->value_dim, &p.ahead[0]);
    hark_look_ahead(group, row, rows, &level->dkey, level->keys, call->head_dim, &p.ahead[1]);
    hark_look_ahead(group, row, rows, &level->dvalue, level->keys, call->value_dim, &p.ahead[2]);
  }
  scores(&p, group->from, group->to);
  group_gradients(work, walk, group, dlogits);
  spread_rows(work, group, work->weights, &tile_level->g, row, rows, true);
  if (call->rbf) take_far_gradients(work, walk, group, dlogits);
  spread_rows(work, group, dlogits, &tile_level->query, row, rows, false);
  if (call->rbf) own_parts(work, group, dlogits);
}

/* All entries of a tile on one level. */
static void tile_gradients(backward_work *work, int level, int shift, const hark_level *tile_level, int64_t row, int64_t rows) {
  const hark_tree *tree = work->tree;
  float *dquery = tile_level->dquery.data + row * tile_level->dquery.stride;
  hark_group_walk walk = hark_groups_of(tree, level, shift, row, rows);
  hark_group group;
  hark_chunk chunk;
  chunk.groups = chunk.keys = 0;
  while (hark_group_next(&walk, &group)) {
    if (!hark_chunk_takes(&chunk, &group)) {
      HARK_ISA(hark_hierarchical_mix)(tree, &chunk, false, work->dlogits, work->clean, dquery, tile_level->dquery.stride, rows);
      chunk.groups = chunk.keys = 0;
    }
    take_group(work, &walk, &group, tile_level, work->dlogits + (ptrdiff_t)chunk.keys * HARK_TILE_QUERIES);
    hark_chunk_add(&chunk, &walk, &group);
  }
  HARK_ISA(hark_hierarchical_mix)(tree, &chunk, false, work->dlogits, work->clean, dquery, tile_level->dquery.stride, rows);
}

/* rbf: dq -= q sum of dS. */
static void own_part_of_queries(const backward_work *work, const hark_level *level, int64_t row, int64_t rows) {
  for (int64_t r = 0; r < rows; r++) {
    const vf total = vf_set(-work->row_sums[r]);
    if (!work->rows_finite && work->row_sums[r] == 0.0f) continue; /* sees no key: the query may hold anything */
    float *dquery = level->dquery.data + (row + r) * level->dquery.stride;
    const float *query = level->query.data + (row + r) * level->query.stride;
    int c = 0;
    for (; c + HARK_LANES <= work->tree->call->head_dim; c += HARK_LANES)
      vf_store(dquery + c, vf_fma(total, vf_load(query + c), vf_load(dquery + c)));
    if (c < work->tree->call->head_dim) {
      const int width = work->tree->call->head_dim - c;
      vf_store_part(dquery + c, vf_fma(total, vf_load_part(query + c, width), vf_load_part(dquery + c, width)), width);
    }
  }
}

/* A tile of a level after begin_keys(). */
static void tile_of_level(backward_work *work, int level, int64_t row, int64_t rows) {
  const hark_level *at = &work->tree->level[level];
  begin_queries(work->tree, level, row, row + rows);
  begin_tile(work, at, row, rows);
  tile_gradients(work, level, 0, at, row, rows);
  if (work->tree->call->rbf) own_part_of_queries(work, at, row, rows);
}

/* Even pieces also begin the keys beyond them that their rows reach; odd pieces begin their other own keys. */
void HARK_ISA(hark_hierarchical_backward_piece)(const hark_tree *tree, int level, int64_t piece, void *memory) {
  backward_work work = open_work(tree, memory);
  const hark_level *at = &tree->level[level];
  const int64_t length = hark_piece_rows(tree->hierarchy.block), reach = 2 * tree->hierarchy.block;
  const int64_t first = piece * length, last = hark_min(first + length, at->queries);
  const bool odd = (piece & 1) != 0, final = last == at->queries;
  int64_t begun = odd ? first + reach : hark_max(first - reach, 0);
  int64_t end = final ? at->keys : odd ? last - reach : last + reach;
  end = hark_min(end, at->keys);
  for (int64_t row = first; row < last; row += HARK_TILE_QUERIES) {
    const int64_t rows = hark_min(HARK_TILE_QUERIES, last - row), needed = hark_min(end, row + rows + reach);
    if (begun < needed) {
      begin_keys(tree, level, begun, needed, false);
      begun = needed;
    }
    tile_of_level(&work, level, row, rows);
  }
  if (begun < end) begin_keys(tree, level, begun, end, false);
}

/* Begins keys from .. to of a level of a window. On the window's highest level, keys beyond its own get no contribution from above, because
 * their own window adds it; on level 0 an odd window adds to its neighbours' contributions to shared keys. */
static void begin_window_keys(const hark_window *window, int level, int64_t from, int64_t to, bool odd, bool final) {
  const hark_tree *tree = &window->tree;
  const hark_level *at = &tree->level[level];
  const int64_t own = window->first >> level, after = (window->first + HARK_WINDOW_ROWS) >> level;
  const int64_t shared = 2 * hark_window_reach(tree->hierarchy.block), last = final ? to : HARK_WINDOW_ROWS;
  if (level == HARK_WINDOW_LEVELS) {
    clear_keys(tree, at, from, hark_min(to, own));
    begin_keys(tree, level, hark_max(from, own), hark_min(to, after), false);
    clear_keys(tree, at, hark_max(from, after), to);
  } else if (level > 0 || !odd) {
    begin_keys(tree, level, from, to, false);
  } else {
    begin_keys(tree, level, from, hark_min(to, shared), true);
    begin_keys(tree, level, hark_max(from, shared), hark_min(to, last), false);
    begin_keys(tree, level, hark_max(from, last), to, true);
  }
}

void HARK_ISA(hark_hierarchical_backward_window)(const hark_tree *tree, int64_t index, void *memory, float *window_memory) {
  const bool odd = (index & 1) != 0, final = (index + 1) * HARK_WINDOW_ROWS >= tree->level[0].queries;
  hark_window window;
  HARK_ISA(hark_hierarchical_open_window)(tree, index, window_memory, &window);
  backward_work work = open_work(&window.tree, memory);
  for (int level = HARK_WINDOW_LEVELS; level >= 0; level--) {
    const hark_level *at = &window.tree.level[level];
    const int64_t last = hark_ceil_div(window.last, (int64_t)1 << level), end = at->keys;
    int64_t begun = 0;
    for (int64_t row = window.first >> level; row < last; row += HARK_TILE_QUERIES) {
      const int64_t rows = hark_min(HARK_TILE_QUERIES, last - row), needed = hark_min(end, row + rows + 2 * tree->hierarchy.block);
      if (begun < needed) {
        begin_window_keys(&window, level, begun, needed, odd, final);
        begun = needed;
      }
      tile_of_level(&work, level, row, rows);
    }
    if (begun < end) begin_window_keys(&window, level, begun, end, odd, final);
  }
}

/* ---- exact queries ---- */

void HARK_ISA(hark_hierarchical_exact_begin)(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_level *at = &tree->level[level];
  const bool add_keys = adds_to_keys(tree, level), add_values = adds_to_values(tree, level);
  for (int64_t key = from; key < to; key++) {
    if (!add_keys) memset(at->dkey.data + key * at->dkey.stride, 0, (size_t)tree->call->head_pad * sizeof(float));
    if (!add_values) memset(at->dvalue.data + key * at->dvalue.stride, 0, (size_t)tree->call->value_pad * sizeof(float));
  }
}

void HARK_ISA(hark_hierarchical_exact_part)(const hark_tree *tree, int64_t part, void *memory) {
  backward_work work = open_work(tree, memory);
  const hark_level *rows_level = &tree->level[0];
  const int levels = tree->hierarchy.levels;
  const int64_t first = part * tree->part_rows, last = hark_min(first + tree->part_rows, rows_level->queries);
  work.part = part;
  if (tree->parts > 1) {
    const size_t floats = (size_t)(levels * 4 * tree->hierarchy.block) * (size_t)(tree->call->head_pad + tree->call->value_pad);
    memset(reach_of(tree, part, 0, 0, false).data, 0, floats * sizeof(float));
  }
  for (int64_t row = first; row < last; row += HARK_TILE_QUERIES) {
    const int64_t rows = hark_min(HARK_TILE_QUERIES, last - row);
    begin_queries(tree, 0, row, row + rows);
    begin_tile(&work, rows_level, row, rows);
    for (int level = levels - 1; level >= 0; level--) tile_gradients(&work, level, level, rows_level, row, rows);
    if (tree->call->rbf) own_part_of_queries(&work, rows_level, row, rows);
  }
}

/* Adds `count` rows to those from `first` on; ignores rows outside 0 .. rows. */
static void add_reach(const hark_rows *from, const hark_rows *to, int64_t first, int64_t count, int64_t rows, int width) {
  for (int64_t i = 0; i < count; i++) {
    const int64_t row = first + i;
    if (row < 0 || row >= rows) continue;
    float *sum = to->data + row * to->stride;
    const float *part = from->data + i * from->stride;
    for (int c = 0; c < width; c += HARK_LANES) vf_store(sum + c, vf_load(sum + c) + vf_load(part + c));
  }
}

void HARK_ISA(hark_hierarchical_exact_gather)(const hark_tree *tree, int level) {
  const hark_level *at = &tree->level[level];
  const int64_t count = 2 * tree->hierarchy.block;
  for (int64_t part = 0; part < tree->parts && tree->parts > 1; part++) {
    int64_t from, to;
    own_tokens(tree, part, level, &from, &to);
    for (int side = 0; side < 2; side++) {
      const hark_rows keys = reach_of(tree, part, level, side, false), values = reach_of(tree, part, level, side, true);
      const int64_t first = side == 0 ? from - count : to;
      add_reach(&keys, &at->dkey, first, count, at->keys, tree->call->head_pad);
      add_reach(&values, &at->dvalue, first, count, at->keys, tree->call->value_pad);
    }
  }
}

void HARK_ISA(hark_hierarchical_exact_hand_down)(const hark_tree *tree, int level, int64_t from, int64_t to) {
  const hark_level *at = &tree->level[level], *above = at + 1;
  for (int64_t b = from; b < to; b++) {
    if (at->key_count[b] == 0.0f) continue;
    hand_down(&at->dkey, b, &above->dkey, at->key_count[b] / above->key_count[b / 2], true, tree->call->head_pad);
    hand_down(&at->dvalue, b, &above->dvalue, 1.0f, true, tree->call->value_pad);
  }
}
