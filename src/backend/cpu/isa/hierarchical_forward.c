/* hierarchical_forward.c - forward of hierarchical attention: from the coarsest level down, tile by tile.
 *
 *     (m, Z, Y)[l][row] = (m, Z, Y)[l+1][row / 2] + entries of the row on level l,      out = Y[0] / Z[0]
 *
 * (With linear interpolation, an odd row starts from the mean over rows row / 2 and row / 2 + 1. Then a tile also has the state of the row
 * after its last, which starts from a single row, since its number is even.)
 *
 * m is the running maximum of a row's logits; Z and Y are relative to 2^m. A tile of a level is computed and then its two children, so that
 * their initial values are still in the caches; no level is ever stored completely. With exact queries a tile of rows visits all levels.
 * Cost: 2 (d + dv) multiply-adds per entry. Memory: one tile of Y per level and worker.
 */
#include <float.h>

#include "hierarchical_exact.h"

/* rbf: logits of a lane are relative to its `away`, in units of log 2. It is 0 until the lane meets a pair whose exponent is not exact in
 * f32. */
typedef struct tile_state {
  double away[HARK_TILE_QUERIES];
  float offset[HARK_TILE_QUERIES];                      /* the same, rounded */
  bool is_away;                                         /* some lane's `away` has changed */
  bool begun;                                           /* Y has its initial values */
  bool is_query[HARK_TILE_QUERIES + 1];                 /* linear: the row exists and has an unmasked query; also of the row after */
  float top[HARK_TILE_QUERIES], sum[HARK_TILE_QUERIES]; /* m in units of log 2, Z */
  float *mixed;                                         /* Y, [rows][dv padded] */
} tile_state;

typedef struct forward_work {
  const hark_tree *tree;
  float *queries;     /* [d][lanes] */
  float *logits;      /* [HARK_CHUNK_KEYS][lanes] */
  float *kept;        /* dropout's factors, [HARK_GROUP_KEYS][lanes] */
  float *clean;       /* [HARK_CHUNK_KEYS][padded] */
  hark_window window; /* the current one, in window_memory */
  float *window_memory;
  float start[HARK_TILE_QUERIES]; /* common term of all logits of a lane */
  hark_tile_roots roots;          /* rbf */
  const hark_level *tile_level;   /* the level of the tile's rows */
  tile_state *next;               /* linear: [levels]: the row after the tile, as the only row of a tile */
  tile_state levels[HARK_HIERARCHY_MAX_LEVELS];
} forward_work;

/* Floats of a level's row after the tile: its state and a vector of rows of Y. */
static size_t next_floats(size_t value_pad) { return hark_align_up(sizeof(tile_state)) / sizeof(float) + value_pad * HARK_LANES; }

size_t HARK_ISA(hark_hierarchical_worker_floats)(const hark_attention_desc *desc, bool backward) {
  const size_t head_pad = hark_padded(desc->head_dim);
  const size_t value_pad = hark_padded(desc->value_dim);
  const size_t wide = head_pad > value_pad ? head_pad : value_pad;
  const hark_hierarchy h = hark_hierarchy_make(desc, desc->longest);
  const size_t work = hark_align_up(sizeof(forward_work)) / sizeof(float);
  const size_t forward = work + (head_pad + HARK_CHUNK_KEYS + HARK_GROUP_KEYS + (size_t)h.levels * value_pad) * HARK_TILE_QUERIES +
                         HARK_CHUNK_KEYS * wide +
                         (desc->interpolation == HARK_INTERPOLATION_LINEAR ? (size_t)h.levels * next_floats(value_pad) : 0);
  /* the backward's tiles: q', g', P, dS, dropout's factors and sums by lane */
  const size_t back = (head_pad + value_pad + 2 * HARK_GROUP_KEYS + HARK_CHUNK_KEYS + 8) * HARK_TILE_QUERIES + HARK_CHUNK_KEYS * wide;
  return backward && back > forward ? back : forward;
}

HARK_SIMD_NOINLINE void scores(const hark_product *p, int first, int last) { hark_product_run(HARK_FINISH_STORE, p, first, last); }
HARK_SIMD_NOINLINE void spread(const hark_product *p, int last) { hark_product_run(HARK_FINISH_SPREAD, p, 0, last); }

void HARK_ISA(hark_hierarchical_kept)(const hark_tree *tree, const hark_group_walk *walk, const hark_group *group, float *factors) {
  const hark_hierarchical_call *call = tree->call;
  const hark_random_stream *stream = &call->args->dropout;
  const int up = walk->level - walk->shift; /* rows of the tile are tokens of this level */
  const uint64_t plane = (uint64_t)(tree->sequence->item * call->desc->heads + tree->head) << 23;
  /* rows of the whole item: those of the tensors begin with first_row */
  const int64_t query_row = tree->sequence->query_row + call->first_row, key_row = tree->sequence->key_row + call->first_row;
  const uint64_t first = (uint64_t)(key_row + (group->first << walk->level));
  const vu threshold = vu_set(call->dropout_threshold);
  const vf gain = vf_set(call->dropout_gain);
  for (int m = group->from; m < group->to; m++) {
    const int lane = m * HARK_LANES;
    for (int k = 0; k < group->count;) {
      const uint64_t quad = (first + ((uint64_t)k << walk->level)) / 4;
      uint32_t low[HARK_LANES], high[HARK_LANES];
      for (int i = 0; i < HARK_LANES; i++) {
        const uint64_t row = (uint64_t)(query_row + ((walk->row + lane + i) << up));
        const uint64_t counter = ((plane + row) << 21) + quad + stream->first_index;
        low[i] = (uint32_t)counter;
        high[i] = (uint32_t)(counter >> 32);
      }
      vu words[4] = {vu_load(low), vu_load(high), vu_set(stream->micro_step), vu_set(stream->layer_purpose)};
      philox(stream->seed, words);
      for (; k < group->count; k++) {
        const uint64_t column = first + ((uint64_t)k << walk->level);
        if (column / 4 != quad) break;
        vf_store(factors + k * HARK_TILE_QUERIES + lane, vf_select(vu_less(words[column % 4], threshold), vf_zero(), gain));
      }
    }
  }
}

/* Returns the end (exclusive) of a run of groups from `first` on that a vector of lanes meets and whose keys are contiguous. */
static int end_of_run(const hark_chunk *chunk, int first, int vector) {
  int next = first + 1;
  for (; next < chunk->groups; next++) {
    const hark_group *group = &chunk->group[next], *before = group - 1;
    if (vector < group->from || vector >= group->to || group->level != before->level || group->first != before->first + before->count)
      break;
  }
  return next;
}

/* The same if not every key is finite. In both, a run is added as a whole, so that keys which a row does not see do not change its bits. */
HARK_SIMD_NOINLINE void mix_clean(hark_product p, int width, int padded, const float *weights, float *clean) {
  bool bad[HARK_CHUNK_KEYS];
  const float *rows = p.a;
  const int64_t stride = p.a_step;
  hark_clean_rows(rows, stride, p.end, width, padded, clean, bad);
  p.a = clean;
  p.a_step = padded;
  spread(&p, padded / HARK_LANES);
  for (int key = 0; key < p.end; key++)
    for (int row = 0; bad[key] && row < p.rows; row++) {
      const float weight = weights[key * HARK_TILE_QUERIES + row];
      if (weight == 0.0f) continue;
      for (int c = 0; c < width; c++) p.c[row * p.c_row + c] += weight * rows[key * stride + c];
    }
}

void HARK_ISA(hark_hierarchical_mix)(const hark_tree *tree, const hark_chunk *chunk, bool values, const float *weights, float *clean,
                                     float *y, int64_t y_stride, int64_t limit) {
  const int width = values ? tree->call->value_dim : tree->call->head_dim, padded = values ? tree->call->value_pad : tree->call->head_pad;
  for (int vector = 0; vector < hark_vectors_of(limit); vector++) {
    const int lane = vector * HARK_LANES;
    for (int g = 0; g < chunk->groups;) {
      const hark_group *group = &chunk->group[g];
      if (vector < group->from || vector >= group->to) {
        g++;
        continue;
      }
      const int end = end_of_run(chunk, g, vector);
      const hark_rows *rows = values ? &tree->level[group->level].value : &tree->level[group->level].key;
      const float *run_weights = weights + (ptrdiff_t)chunk->slot[g] * HARK_TILE_QUERIES + lane;
      const hark_product p = {.a = rows->data + group->first * rows->stride,
                              .a_step = rows->stride,
                              .b = run_weights,
                              .b_row = 1,
                              .b_step = HARK_TILE_QUERIES,
                              .c = y + lane * y_stride,
                              .c_row = y_stride,
                              .rows = (int)hark_min(HARK_LANES, limit - lane),
                              .end = (end < chunk->groups ? chunk->slot[end] : chunk->keys) - chunk->slot[g]};
      if (HARK_LIKELY(tree->finite))
        spread(&p, padded / HARK_LANES);
      else
        mix_clean(p, width, padded, run_weights, clean);
      g = end;
    }
  }
}

/* Makes `away` the reference of a lane: shifts its logits of the chunk's groups before `group` and of that group's keys before `keys`, and
 * its maxima. */
static void move_lane(forward_work *work, const hark_chunk *c, int group, int keys, tile_state *state, int lane, double away, float *top) {
  const float by = (float)fmax((double)-FLT_MAX, fmin(away - state->away[lane], (double)FLT_MAX));
  for (int g = 0; g <= group; g++) {
    if (lane < c->group[g].from * HARK_LANES || lane >= c->group[g].to * HARK_LANES) continue;
    float *logits = work->logits + (ptrdiff_t)c->slot[g] * HARK_TILE_QUERIES + lane;
    for (int k = 0; k < (g == group ? keys : c->group[g].count); k++) logits[(ptrdiff_t)k * HARK_TILE_QUERIES] -= by;
  }
  top[lane] -= by;
  state->top[lane] -= by;
  state->away[lane] = away;
  state->offset[lane] = (float)fmax((double)-FLT_MAX, fmin(away, (double)FLT_MAX));
  state->is_away = true;
}

/* Returns a logit relative to its lane's `away`; moves the lane first if f32 is not exact enough for the logit. */
static float place_exponent(forward_work *work, const hark_chunk *c, int g, int k, int lane, double exponent, tile_state *state,
                            float *top) {
  const double beyond = exponent - state->away[lane];
  if (fabs(beyond) > (double)HARK_DISTANCE_SPREAD && isfinite(exponent) && beyond > (double)(top[lane] + HARK_DISTANCE_FAINT))
    move_lane(work, c, g, k, state, lane, exponent, top);
  return (float)(exponent - state->away[lane]);
}

/* The same if some terms are too large for f32. x: products and squares alone, -infinity if the lane does not meet the key. */
static vf take_far_terms(forward_work *work, const hark_far_group *far, bool pairs_far, const hark_chunk *c, int g, int k, int lane, vf x,
                         int64_t term, tile_state *state, float *top) {
  float logits[HARK_LANES], flags[HARK_LANES] = {0};
  if (pairs_far) (void)hark_find_far(far, k, lane, x, vf_set(-INFINITY), flags);
  vf_store(logits, x);
  for (int i = 0; i < HARK_LANES && lane + i < far->walk->rows; i++) {
    const double added = hark_fine_term(far->level, term + i);
    if (logits[i] == -INFINITY || added == -INFINITY)
      logits[i] = -INFINITY;
    else
      logits[i] = place_exponent(work, c, g, k, lane + i,
                                 (flags[i] != 0.0f ? hark_far_exponent(far, k, lane + i) : (double)logits[i]) + added, state, top);
  }
  return vf_load(logits);
}

/* Logits of one key in the vector from `lane` on, with far pairs computed one by one. If f32 is not exact enough for such a pair, all
 * logits of the lane are relative to it from then on; previous logits are then no longer significant, or still exact enough. */
static vf take_far(forward_work *work, const hark_far_group *far, const hark_chunk *c, int g, int k, int lane, vf x, int64_t term,
                   tile_state *state, float *top) {
  float logits[HARK_LANES], flags[HARK_LANES];
  if (!hark_find_far(far, k, lane, x, vf_load(top + lane) + vf_set(HARK_DISTANCE_FAINT), flags)) return x;
  vf_store(logits, x);
  for (int i = 0; i < HARK_LANES && lane + i < far->walk->rows; i++) {
    if (flags[i] == 0.0f) continue;
    const double exponent = hark_far_exponent(far, k, lane + i) + (far->level->terms == NULL ? 0.0 : hark_fine_term(far->level, term + i));
    logits[i] = place_exponent(work, c, g, k, lane + i, exponent, state, top);
  }
  return vf_load(logits);
}

/* Logits relative to `away` of their lanes; if a lane meets ordinary pairs after far ones, its `away` becomes 0 again. */
static vf take_away(forward_work *work, const hark_far_group *far, const hark_chunk *c, int g, int k, int lane, vf x, tile_state *state,
                    float *top) {
  const vf sum = vf_load(far->tile->root + lane) + vf_sqrt(vf_set(far->level->key_square[far->group->first + k]));
  const vm near = vf_less(sum * sum, vf_set(HARK_DISTANCE_SPREAD));
  const vf relative = x - vf_load(state->offset + lane);
  const vm above = vm_and(near, vf_less(vf_set(HARK_DISTANCE_SPREAD), relative));
  if (!vm_any(above)) return relative;
  float flags[HARK_LANES];
  vf_store(flags, vf_select(above, vf_set(1.0f), vf_zero()));
  for (int i = 0; i < HARK_LANES && lane + i < far->walk->rows; i++)
    if (flags[i] != 0.0f) move_lane(work, c, g, k, state, lane + i, 0.0, top);
  return x - vf_load(state->offset + lane);
}

/* Logits of one group; masked lanes get -infinity. Updates the maxima of the lanes. */
static void group_logits(forward_work *work, const hark_chunk *c, int g, tile_state *state, float *top) {
  const hark_group_walk *walk = &c->walk[g];
  const hark_group *group = &c->group[g];
  float *logits = work->logits + (ptrdiff_t)c->slot[g] * HARK_TILE_QUERIES;
  const hark_tree *tree = work->tree;
  const hark_level *level = &tree->level[group->level];
  hark_product p = {.a = work->queries,
                    .a_step = HARK_TILE_QUERIES,
                    .b = level->key.data + group->first * level->key.stride,
                    .b_row = level->key.stride,
                    .b_step = 1,
                    .c = logits,
                    .c_row = HARK_TILE_QUERIES,
                    .rows = group->count,
                    .end = tree->call->head_dim,
                    .start = work->start};
  if (walk->shift == 0) {
    hark_look_ahead(group, walk->row, walk->rows, &level->key, level->keys, tree->call->head_dim, &p.ahead[0]);
    hark_look_ahead(group, walk->row, walk->rows, &level->value, level->keys, tree->call->value_dim, &p.ahead[1]);
    hark_look_ahead(group, walk->row, walk->rows, &level->query, level->queries, tree->call->head_dim, &p.ahead[2]);
  }
  scores(&p, group->from, group->to);
  hark_group_lanes lanes;
  hark_lanes_of_group(walk, group, &lanes);
  const int64_t term = hark_term_at(tree->hierarchy.block, walk->row - group->first);
  const bool far = level->key_square != NULL && hark_group_may_be_far(level, group, work->roots.longest);
  const hark_far_group pairs = {tree, walk, group, level, work->tile_level, &work->roots};
  const bool far_terms = level->terms != NULL && tree->far_terms;
  for (int m = group->from; m < group->to; m++) {
    const int lane = m * HARK_LANES;
    vf most = vf_load(top + lane);
    for (int k = 0; k < group->count; k++) {
      float *at = logits + k * HARK_TILE_QUERIES + lane;
      vf x = vf_load(at);
      const bool part = lanes.lo[k] > lane || lanes.hi[k] < lane + HARK_LANES;
      if (level->key_square != NULL) x = x - vf_set(level->key_square[group->first + k]);
      if (level->terms != NULL && !far_terms) { /* -infinity hides the entry, whatever the key contains */
        const vf added = vf_load(level->terms + term - k + lane);
        x = vf_select(vf_equal(added, vf_set(-INFINITY)), added, x + added);
      }
      if (part) x = vf_select(hark_lanes_between(lane, lanes.lo[k], lanes.hi[k]), x, vf_set(-INFINITY));
      if (far || state->is_away || far_terms) {
        vf_store(top + lane, most);
        if (far_terms) x = take_far_terms(work, &pairs, far, c, g, k, lane, x, term - k + lane, state, top);
        if (state->is_away && !far_terms) x = take_away(work, &pairs, c, g, k, lane, x, state, top);
        if (far && !far_terms) x = take_far(work, &pairs, c, g, k, lane, x, term - k + lane, state, top);
        most = vf_load(top + lane);
      }
      if (part || level->key_square != NULL || level->terms != NULL) vf_store(at, x);
      most = vf_max(most, x);
    }
    vf_store(top + lane, most);
  }
}

/* Weights of a group from its logits. */
static void group_weights(forward_work *work, const hark_group_walk *walk, const hark_group *group, float *logits, const float *base,
                          float *sum) {
  const hark_level *level = &work->tree->level[group->level];
  const bool drops = work->tree->call->dropout_threshold > 0;
  bool bad[HARK_GROUP_KEYS] = {false}; /* values that are not finite: visible entries keep a weight above 0 (mix_clean) */
  for (int k = 0; !work->tree->finite && k < group->count; k++)
    bad[k] = !hark_rows_finite(level->value.data + (group->first + k) * level->value.stride, 0, 1, work->tree->call->value_dim);
  if (drops) HARK_ISA(hark_hierarchical_kept)(work->tree, walk, group, work->kept);
  for (int m = group->from; m < group->to; m++) {
    const int lane = m * HARK_LANES;
    const vf top = vf_load(base + lane);
    vf total = vf_load(sum + lane);
    for (int k = 0; k < group->count; k++) {
      float *at = logits + k * HARK_TILE_QUERIES + lane;
      const vf logit = vf_load(at);
      vf weight = vf_exp2(logit - top);
      total = vf_fma(weight, vf_set(level->key_count[group->first + k]), total);
      if (!work->tree->finite && bad[k]) weight = hark_seen_weight(weight, logit);
      if (drops) weight = weight * vf_load(work->kept + k * HARK_TILE_QUERIES + lane);
      vf_store(at, weight);
    }
    vf_store(sum + lane, total);
  }
}

/* Adds a chunk to the state. begin: Y is first copied from half `half` of `parent`, or set to zero if `parent` is NULL. */
static void take_chunk(forward_work *work, const hark_chunk *c, tile_state *state, int64_t rows, const tile_state *parent, int half,
                       bool begin) {
  const int padded = work->tree->call->value_pad;
  float top[HARK_TILE_QUERIES], base[HARK_TILE_QUERIES], factor[HARK_TILE_QUERIES];
  const int vectors = hark_vectors_of(rows);
  for (int lane = 0; lane < vectors * HARK_LANES; lane += HARK_LANES) vf_store(top + lane, vf_load(state->top + lane));
  for (int g = 0; g < c->groups; g++) group_logits(work, c, g, state, top);
  bool grew = false;
  for (int lane = 0; lane < vectors * HARK_LANES; lane += HARK_LANES) {
    const vf old = vf_load(state->top + lane), now = vf_load(top + lane);
    const vf finite = vf_select(vf_equal(now, vf_set(-INFINITY)), vf_zero(), now);
    const vf smaller = vf_exp2(old - finite);
    grew = grew || vm_any(vm_not(vf_equal(old, now)));
    vf_store(base + lane, finite);
    vf_store(factor + lane, smaller);
    vf_store(state->sum + lane, vf_load(state->sum + lane) * smaller);
    vf_store(state->top + lane, now);
  }
  for (int row = 0; begin && row < vectors * HARK_LANES; row++) {
    float *to = state->mixed + (ptrdiff_t)row * padded;
    if (parent == NULL) {
      memset(to, 0, (size_t)padded * sizeof *to);
      continue;
    }
    const float *source = parent->mixed + (ptrdiff_t)(half * (HARK_TILE_QUERIES / 2) + row / 2) * padded;
    const vf gain = vf_set(factor[row]);
    for (int x = 0; x < padded; x += HARK_LANES) vf_store(to + x, gain * vf_load(source + x));
  }
  for (int row = 0; !begin && grew && row < vectors * HARK_LANES; row++) {
    float *to = state->mixed + (ptrdiff_t)row * padded;
    const vf gain = vf_set(factor[row]);
    for (int x = 0; x < padded; x += HARK_LANES) vf_store(to + x, gain * vf_load(to + x));
  }
  for (int g = 0; g < c->groups; g++) {
    const hark_group *group = &c->group[g];
    float *logits = work->logits + c->slot[g] * HARK_TILE_QUERIES;
    group_weights(work, &c->walk[g], group, logits, base, state->sum);
  }
  HARK_ISA(hark_hierarchical_mix)(work->tree, c, true, work->logits, work->clean, state->mixed, padded, vectors * HARK_LANES);
}

/* Packs the tile's queries and initialises its lanes. */
static void begin_tile(forward_work *work, const hark_level *level, int64_t row, int64_t rows) {
  work->tile_level = level;
  const hark_hierarchical_call *call = work->tree->call;
  hark_pack_transposed(level->query.data + row * level->query.stride, level->query.stride, (int)rows, call->head_dim,
                       (float)(call->scale * HARK_LOG2_E), work->queries);
  for (int lane = 0; lane < hark_vectors_of(rows) * HARK_LANES; lane += HARK_LANES) {
    const hark_square_factors factors = hark_square_factors_of((double)call->scale * (double)HARK_LOG2_E);
    vf square = vf_zero();
    for (int c = 0; call->rbf && c < call->head_dim; c++) {
      const vf x = vf_set(factors.before) * vf_load(work->queries + (ptrdiff_t)c * HARK_TILE_QUERIES + lane);
      square = vf_fma(x, x, square);
    }
    /* -|q|^2 scale / 2 in units of log 2, from q scale log2(e) */
    const vf start = call->rbf ? square * vf_set(-factors.after) : vf_zero();
    vf_store(work->start + lane, start);
    if (call->rbf) vf_store(work->roots.root + lane, vf_sqrt(vf_zero() - start));
  }
  if (call->rbf) hark_tile_longest(&work->roots, rows);
}

/* out and log_sum_exp of a tile of rows. */
static void finish_tile(const forward_work *work, const tile_state *state, int64_t row, int64_t rows) {
  const hark_tree *tree = work->tree;
  const hark_hierarchical_call *call = tree->call;
  const hark_attention_args *args = call->args;
  const int64_t first = tree->sequence->query_row + row;
  float inverse[HARK_TILE_QUERIES], log_sum[HARK_TILE_QUERIES];
  for (int lane = 0; lane < hark_vectors_of(rows) * HARK_LANES; lane += HARK_LANES) {
    const vf sum = vf_load(state->sum + lane);
    const vm nothing = vf_equal(sum, vf_zero());
    vf_store(inverse + lane, vf_select(nothing, vf_zero(), vf_set(1.0f) / sum));
    vf_store(log_sum + lane, vf_select(nothing, vf_set(-INFINITY), vf_fma(vf_load(state->top + lane), vf_set(HARK_LN_2), vf_log(sum))));
  }
  for (int64_t r = 0; r < rows && state->is_away; r++)
    if (state->away[r] != 0.0 && state->sum[r] != 0.0f)
      log_sum[r] = hark_finite_log_sum((state->away[r] + (double)state->top[r] + log2((double)state->sum[r])) / HARK_DISTANCE_LOG2_E);
  float *out =
      (float *)args->out.data + tree->sequence->item * args->out.stride[0] + tree->head * args->out.stride[1] + first * args->out.stride[2];
  for (int64_t r = 0; r < rows; r++, out += args->out.stride[2]) {
    const bool is_query = tree->level[0].query_count[row + r] > 0.0f;
    if (!is_query) log_sum[r] = -INFINITY;
    if (!is_query || inverse[r] == 0.0f) {
      memset(out, 0, (size_t)call->value_dim * sizeof *out);
      continue;
    }
    const float *mixed = state->mixed + r * call->value_pad;
    const vf gain = vf_set(inverse[r]);
    int c = 0;
    for (; c + HARK_LANES <= call->value_dim; c += HARK_LANES) vf_store(out + c, gain * vf_load(mixed + c));
    if (c < call->value_dim) vf_store_part(out + c, gain * vf_load(mixed + c), call->value_dim - c);
  }
  if (args->log_sum_exp.data == NULL) return;
  float *to = (float *)args->log_sum_exp.data + (tree->sequence->item * call->desc->heads + tree->head) * args->query.shape[2] + first;
  memcpy(to, log_sum, (size_t)rows * sizeof *to);
}

/* Adds the entries of levels from .. to of a tile to its state. */
static void add_levels(forward_work *work, tile_state *state, int from, int to, bool exact, int64_t row, int64_t rows,
                       const tile_state *parent, int half) {
  hark_chunk c;
  c.groups = c.keys = 0;
  bool begin = !state->begun;
  for (int level = from; level >= to; level--) {
    hark_group_walk walk = hark_groups_of(work->tree, level, exact ? level : 0, row, rows);
    hark_group group;
    while (hark_group_next(&walk, &group)) {
      if (!hark_chunk_takes(&c, &group)) {
        take_chunk(work, &c, state, rows, parent, half, begin);
        begin = false;
        c.groups = c.keys = 0;
      }
      hark_chunk_add(&c, &walk, &group);
    }
  }
  if (begin || c.groups > 0) take_chunk(work, &c, state, rows, parent, half, begin);
}

static void begin_state(tile_state *state, const tile_state *parent, int half, int64_t rows) {
  for (int64_t row = 0; row < hark_vectors_of(rows) * HARK_LANES; row++) {
    const int64_t from = half * (HARK_TILE_QUERIES / 2) + row / 2;
    state->top[row] = parent == NULL ? -INFINITY : parent->top[from];
    state->sum[row] = parent == NULL ? 0.0f : parent->sum[from];
    state->away[row] = parent == NULL ? 0.0 : parent->away[from];
    state->offset[row] = (float)state->away[row];
  }
  state->is_away = parent != NULL && parent->is_away;
  state->begun = false;
}

/* A row of a tile. */
typedef struct state_row {
  const tile_state *state;
  int64_t row;
} state_row;

/* Row `row` starts from row a of the level above. */
static void start_from_one(tile_state *state, int64_t row, state_row a, int padded) {
  state->top[row] = a.state->top[a.row];
  state->sum[row] = a.state->sum[a.row];
  state->away[row] = a.state->away[a.row];
  state->offset[row] = a.state->offset[a.row];
  memcpy(state->mixed + row * padded, a.state->mixed + a.row * padded, (size_t)padded * sizeof(float));
}

/* Row `row` starts from the mean over rows a and b of the level above, relative to a common maximum. */
static void start_from_two(tile_state *state, int64_t row, state_row a, state_row b, int padded) {
  const double away_a = a.state->away[a.row], away_b = b.state->away[b.row];
  float top_a = a.state->top[a.row], top_b = b.state->top[b.row];
  const bool later = away_a != away_b && !(away_a + (double)top_a >= away_b + (double)top_b);
  const double away = later ? away_b : away_a;
  if (away_a != away_b && later) top_a = (float)(away_a - away + (double)top_a);
  if (away_a != away_b && !later) top_b = (float)(away_b - away + (double)top_b);
  const float top = (float)hark_larger((double)top_a, (double)top_b), finite = top == -INFINITY ? 0.0f : top;
  const float share_a = 0.5f * (top_a == top ? 1.0f : exp2f(top_a - finite)),
              share_b = 0.5f * (top_b == top ? 1.0f : exp2f(top_b - finite));
  const float *from_a = a.state->mixed + a.row * padded, *from_b = b.state->mixed + b.row * padded;
  state->top[row] = top;
  state->sum[row] = share_a * a.state->sum[a.row] + share_b * b.state->sum[b.row];
  state->away[row] = away;
  state->offset[row] = later ? b.state->offset[b.row] : a.state->offset[a.row];
  float *to = state->mixed + row * padded;
  for (int x = 0; x < padded; x += HARK_LANES)
    vf_store(to + x, vf_fma(vf_set(share_a), vf_load(from_a + x), vf_set(share_b) * vf_load(from_b + x)));
}

/* Linear interpolation: the tile's rows start from those of half `half` of the level above. */
static void begin_linear(forward_work *work, int level, int half, int64_t rows) {
  const int padded = work->tree->call->value_pad;
  const tile_state *parent = &work->levels[level + 1], *next = &work->next[level + 1];
  tile_state *state = &work->levels[level];
  for (int64_t row = 0; row < hark_vectors_of(rows) * HARK_LANES; row++) {
    const int64_t at = half * (HARK_TILE_QUERIES / 2) + row / 2;
    const state_row a = {parent, at}, b = at + 1 < HARK_TILE_QUERIES ? (state_row){parent, at + 1} : (state_row){next, 0};
    if (row % 2 == 1 && parent->is_query[at + 1])
      start_from_two(state, row, a, b, padded);
    else
      start_from_one(state, row, a, padded);
  }
  state->is_away = parent->is_away || (parent->is_query[HARK_TILE_QUERIES] && next->is_away);
  state->begun = true;
}

/* Linear interpolation: computes the state of the row after the tile of `row`, if there is one, and which rows have queries. */
static void visit_next(forward_work *work, int level, int64_t row, bool top, int half) {
  const hark_tree *tree = work->tree;
  const hark_level *at = &tree->level[level];
  const int64_t after = row + HARK_TILE_QUERIES;
  tile_state *state = &work->next[level];
  for (int i = 0; i <= HARK_TILE_QUERIES; i++) work->levels[level].is_query[i] = HARK_ISA(hark_hierarchical_is_query)(tree, level, row + i);
  if (!work->levels[level].is_query[HARK_TILE_QUERIES]) return;
  begin_tile(work, at, after, 1);
  begin_state(state, NULL, 0, 1);
  if (!top) {
    const state_row first =
        half == 0 ? (state_row){&work->levels[level + 1], HARK_TILE_QUERIES / 2} : (state_row){&work->next[level + 1], 0};
    for (int64_t lane = 0; lane < HARK_LANES; lane++) start_from_one(state, lane, first, tree->call->value_pad);
    state->is_away = first.state->is_away;
    state->begun = true;
  }
  add_levels(work, state, level, level, false, after, 1, NULL, 0);
}

/* Visits the tile of a level from `row` on, which starts from half `half` of its parent's rows; with `below` also the tiles below it. In a
 * windowed tree the tiles of the lowest levels are in a window, which has the rows of one tile of the second level above them. */
static void visit_tile(forward_work *work, int level, int64_t row, const tile_state *parent, int half, bool below) {
  const hark_tree *tree = work->tree;
  const hark_level *at = &tree->level[level];
  const int64_t rows = hark_min(HARK_TILE_QUERIES, at->queries - row);
  tile_state *state = &work->levels[level];
  if (tree->call->linear && level > 0) visit_next(work, level, row, parent == NULL, half);
  begin_tile(work, at, row, rows);
  if (tree->call->linear && parent != NULL)
    begin_linear(work, level, half, rows);
  else
    begin_state(state, parent, half, rows);
  add_levels(work, state, level, level, false, row, rows, parent, half);
  if (level == 0) {
    finish_tile(work, state, row, rows);
    return;
  }
  int64_t child = 2 * row;
  if (below && tree->windowed && level == HARK_WINDOW_LEVELS + 2)
    HARK_ISA(hark_hierarchical_open_window)(tree, row / HARK_TILE_QUERIES, work->window_memory, &work->window);
  if (below && tree->windowed && level == HARK_WINDOW_LEVELS + 1) {
    work->tree = &work->window.tree;
    child = (work->window.first >> (level - 1)) + 2 * half * HARK_TILE_QUERIES;
  }
  for (int second = 0; below && second < 2; second++, child += HARK_TILE_QUERIES)
    if (child < work->tree->level[level - 1].queries) visit_tile(work, level - 1, child, state, second, true);
  work->tree = tree;
}

static void visit_exact(forward_work *work, int64_t tile) {
  const int64_t row = tile * HARK_TILE_QUERIES, rows = hark_min(HARK_TILE_QUERIES, work->tree->level[0].queries - row);
  tile_state *state = &work->levels[0];
  begin_tile(work, &work->tree->level[0], row, rows);
  begin_state(state, NULL, 0, rows);
  add_levels(work, state, work->tree->hierarchy.levels - 1, 0, true, row, rows, NULL, 0);
  finish_tile(work, state, row, rows);
}

/* States of [levels] rows after tiles, and then their Y. */
static void place_next(forward_work *work, float *memory) {
  const int levels = work->tree->hierarchy.levels, padded = work->tree->call->value_pad;
  work->next = (tile_state *)(void *)memory;
  float *mixed = memory + (size_t)levels * (hark_align_up(sizeof(tile_state)) / sizeof(float));
  for (int level = 0; level < levels; level++, mixed += (ptrdiff_t)padded * HARK_LANES) work->next[level].mixed = mixed;
}

/* Computes the tile `root` of level `root_level` and all tiles below it. The tiles above it are recomputed for every root. */
void HARK_ISA(hark_hierarchical_forward_tiles)(const hark_tree *tree, int64_t root, int root_level, void *memory, float *window_memory) {
  const hark_hierarchical_call *call = tree->call;
  forward_work *work = memory;
  float *next = (float *)((char *)memory + hark_align_up(sizeof *work));
  work->tree = tree;
  work->window_memory = window_memory;
  work->queries = next;
  next += (ptrdiff_t)call->head_pad * HARK_TILE_QUERIES;
  work->logits = next;
  next += HARK_CHUNK_KEYS * HARK_TILE_QUERIES;
  work->kept = next;
  next += HARK_GROUP_KEYS * HARK_TILE_QUERIES;
  for (int level = 0; level < tree->hierarchy.levels; level++) {
    work->levels[level].mixed = next;
    next += (ptrdiff_t)call->value_pad * HARK_TILE_QUERIES;
  }
  work->clean = next;
  if (call->linear) place_next(work, next + HARK_CHUNK_KEYS * (call->head_pad > call->value_pad ? call->head_pad : call->value_pad));
  if (call->exact) {
    for (int64_t tile = root << root_level; tile < (root + 1) << root_level && tile * HARK_TILE_QUERIES < tree->level[0].queries; tile++)
      visit_exact(work, tile);
    return;
  }
  const tile_state *parent = NULL;
  for (int level = tree->hierarchy.levels - 1; level >= root_level; level--) {
    const int64_t tile = root >> (level - root_level);
    visit_tile(work, level, tile * HARK_TILE_QUERIES, parent, (int)(tile & 1), level == root_level);
    parent = &work->levels[level];
  }
}
