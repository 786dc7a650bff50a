/* dense_forward.c - softmax attention of one tile of queries, by tiles of keys with a running maximum.
 *
 *     S = scale q.k + terms;   out[n] = sum_i exp(S[n,i] - lse[n]) v[i];   lse[n] = log sum_i exp S[n,i]
 *
 * Lanes are queries, so that the softmax has no operation across lanes. The product S' = K Q' starts from minus the offset of each lane. If
 * no offset must grow, 2^S is computed while the logits are still in registers. An offset grows only if a logit exceeds it by RISE (a
 * factor 2^RISE is harmless in f32), separately for each lane: a lane's bits do not depend on anything that it does not see. Source: online
 * softmax, Milakov and Gimelshein 2018, arXiv 1805.02867; tiles, Dao et al. 2022, arXiv 2205.14135; lazy offsets are ours.
 *
 * Cost of a tile of keys: 2 d + 2 dv multiply-adds per logit and about 15 operations for its exponential. Memory: O(tile (d + dv)) per
 * worker.
 */
#include <float.h>

#include "dense_contextual.h"
#include "dense_few.h"
#include "dense_pack.h"
#include "dense_tile.h"
#include "dense_words.h"
#include "distances.h"

#define RISE 8.0f

/* Words (dense_words.h): of queries [d / 2][lanes], weights [keys / 2][lanes], keys [keys][d / 2], values [keys / 2][dv padded]. */
typedef struct hark_forward_words {
  float *queries, *weights, *keys, *values;
} hark_forward_words;

typedef struct forward_state {
  float *queries;           /* [d][lanes], scaled */
  float *logits;            /* [keys][lanes] */
  float *out;               /* [dv][lanes] */
  float *clean;             /* [keys][dv padded] */
  float *rows;              /* a few queries: [queries][d padded], scaled */
  hark_forward_words words; /* operands in bf16 */
  hark_dense_exact exact;   /* for rbf, and for terms that add numbers */
  hark_dense_contextual_state contextual;
  float *contextual_memory;
  float zero[HARK_TILE_QUERIES];
  float base[HARK_TILE_QUERIES], start[HARK_TILE_QUERIES]; /* offset; its negative */
  float bound[HARK_TILE_QUERIES];       /* largest logit above the offset: RISE; -infinity before the first visible key */
  float total[HARK_TILE_QUERIES];       /* sum of 2^(S - base) */
  bool any_far, far[HARK_TILE_QUERIES]; /* lanes that are visited again, exact from the first key on */
  float top[HARK_TILE_QUERIES], sum[HARK_TILE_QUERIES], factor[HARK_TILE_QUERIES], rise[HARK_TILE_QUERIES];
} forward_state;

/* Words of queries and weights, keys and values of a tile. */
static size_t word_floats(const hark_attention_desc *desc) {
  return (size_t)hark_ceil_div(desc->head_dim, 2) * HARK_TILE_QUERIES + HARK_TILE_KEYS / 2 * HARK_TILE_QUERIES +
         (size_t)hark_row_words((int)desc->head_dim) * HARK_TILE_KEYS + HARK_TILE_KEYS / 2 * hark_padded(desc->value_dim);
}

static hark_forward_words place_words(const hark_dense_call *call, float *memory) {
  hark_forward_words words = {.queries = memory};
  words.weights = words.queries + (ptrdiff_t)hark_ceil_div(call->head_dim, 2) * HARK_TILE_QUERIES;
  words.keys = words.weights + HARK_TILE_KEYS / 2 * HARK_TILE_QUERIES;
  words.values = words.keys + (ptrdiff_t)hark_row_words(call->head_dim) * HARK_TILE_KEYS;
  return words;
}

size_t HARK_ISA(hark_dense_forward_bytes)(const hark_attention_desc *desc) {
  const size_t lanes = HARK_TILE_QUERIES * sizeof(float);
  return hark_align_up(sizeof(forward_state)) + (size_t)desc->head_dim * lanes + HARK_TILE_KEYS * lanes + (size_t)desc->value_dim * lanes +
         (HARK_TILE_KEYS * (size_t)hark_ceil_div(desc->value_dim, HARK_LANES) +
          HARK_FEW_QUERIES * (size_t)hark_ceil_div(desc->head_dim, HARK_LANES)) *
             HARK_LANES * sizeof(float) +
         (hark_dense_exact_floats(desc, false) + HARK_ISA(hark_dense_contextual_floats)(desc, false)) * sizeof(float) +
         (hark_dense_has_words(desc) ? word_floats(desc) * sizeof(float) : 0);
}

HARK_PRODUCT_FUNCTION(scores_store, HARK_FINISH_STORE)
HARK_PRODUCT_FUNCTION(scores_softmax, HARK_FINISH_SOFTMAX)
HARK_PRODUCT_FUNCTION(combine_plain, HARK_FINISH_COMBINE)
HARK_PRODUCT_FUNCTION(combine_grown, HARK_FINISH_COMBINE_FACTOR)

static void combine(const hark_product *p, int last) { combine_plain(p, 0, last); }
static void combine_factor(const hark_product *p, int last) { combine_grown(p, 0, last); }

/* Turns the scores of a tile into the same from words. */
static void take_score_words(const hark_dense_tile *tile, const forward_state *state, hark_product *scores) {
  const hark_dense_call *call = tile->call;
  if (call->arithmetic == HARK_ADD_NUMBERS) return;
  hark_word_pairs(call->arithmetic, scores->b, scores->b_row, tile->keys, call->head_dim, state->words.keys);
  scores->arithmetic = call->arithmetic;
  scores->a = state->words.queries;
  scores->b = state->words.keys;
  scores->b_row = hark_row_words(call->head_dim);
  scores->end = (call->head_dim + 1) / 2;
}

/* The same for the sum over keys. pair_limits: room for the limits. */
static void take_sum_words(const hark_dense_tile *tile, const forward_state *state, hark_product *sum, int *pair_limits) {
  const hark_dense_call *call = tile->call;
  if (call->arithmetic == HARK_ADD_NUMBERS) return;
  hark_word_tile(call->arithmetic, state->logits, tile->keys, hark_dense_vectors(tile), sum->limits, state->words.weights);
  hark_word_rows(call->arithmetic, sum->b, sum->b_step, tile->keys, call->value_dim, call->value_pad, state->words.values);
  for (int m = 0; sum->limits != NULL && m < HARK_TILE_VECTORS; m++) pair_limits[m] = (sum->limits[m] + 1) / 2;
  if (sum->limits != NULL) sum->limits = pair_limits;
  sum->arithmetic = call->arithmetic;
  sum->a = state->words.weights;
  sum->b = state->words.values;
  sum->b_step = call->value_pad;
  sum->end = (tile->keys + 1) / 2;
}

/* Raw logits of a tile, in vectors in which some lane sees a key. */
static void tile_logits(const hark_dense_tile *tile, const hark_product *product) {
  const int last = hark_dense_vectors(tile);
  if (hark_dense_first_vector(tile, tile->keys - 1) == 0) {
    scores_store(product, 0, last);
    return;
  }
  for (int key = 0; key < tile->keys; key += HARK_KEY_GROUP) {
    const hark_product part = hark_product_from(product, key, (int)hark_min(HARK_KEY_GROUP, tile->keys - key));
    const int first = hark_dense_first_vector(tile, key);
    if (first < last) scores_store(&part, first, last);
  }
}

/* All logits of a lane in float64, minus the lane's own offset: the results in the tile are small, whatever the logits are, and
 * tile_softmax() does not raise the offset. */
static void take_exact_lane(const hark_dense_tile *tile, forward_state *state, const float *key, int64_t key_stride, int lane) {
  hark_dense_exact *exact = &state->exact;
  double logits[HARK_TILE_KEYS], top = -INFINITY;
  HARK_ISA(hark_dense_exact_logits)(tile, exact, key, key_stride, lane, logits);
  for (int i = 0; i < tile->keys; i++) top = logits[i] > top ? logits[i] : top;
  const double half = HARK_ISA(hark_dense_exact_half)(tile, exact, lane);
  const bool begun = state->bound[lane] != -INFINITY;
  double base = exact->is[lane] ? exact->base[lane] : begun ? (double)state->base[lane] - half : 0.0;
  if (top != -INFINITY && (!begun || top > base + (double)RISE)) {
    const float factor = begun ? (float)exp2(base - top) : 1.0f;
    state->total[lane] *= factor;
    for (int c = 0; c < tile->call->value_dim; c++) state->out[c * HARK_TILE_QUERIES + lane] *= factor;
    base = top;
  }
  exact->any = exact->is[lane] = true;
  exact->base[lane] = base;
  for (int i = 0; i < tile->keys; i++) tile->logits[i * HARK_TILE_QUERIES + lane] = (float)(logits[i] - base);
  if (!begun && top == -INFINITY) return;                                /* has seen no key yet */
  state->base[lane] = (float)fmax(-FLT_MAX, fmin(base + half, FLT_MAX)); /* for products, which show the significant logits */
  state->start[lane] = -state->base[lane];
  state->bound[lane] = RISE;
}

/* Turns logits into weights, and raises offsets if needed. True: some lane's offset grew; multiply previous sums by state->factor. `bad`:
 * keys whose values are not finite, or NULL; visible entries of such keys get a weight above 0, so that weight 0 means hidden. */
static bool tile_softmax(const hark_dense_tile *tile, forward_state *state, const bool *bad) {
  const int last = hark_dense_vectors(tile);
  bool grew = false;
  for (int m = 0; m < last; m++) {
    const int lane = m * HARK_LANES;
    vf top = vf_set(-INFINITY);
    const int end = hark_dense_end(tile, m);
    float *logits = tile->logits + lane;
    for (int key = 0; key < end; key++) top = vf_max(top, vf_load(logits + key * HARK_TILE_QUERIES));
    const vf bound = vf_load(state->bound + lane);
    const vm grows = vf_less(bound, top);
    const vf rise = vf_select(grows, top, vf_zero());
    vf sum = vf_zero();
    for (int key = 0; key < end; key++) {
      const vf logit = vf_load(logits + key * HARK_TILE_QUERIES);
      vf weight = vf_exp2(logit - rise);
      sum = sum + weight;
      if (bad != NULL && bad[key]) weight = hark_seen_weight(weight, logit);
      vf_store(logits + key * HARK_TILE_QUERIES, weight);
    }
    const vm begins = vf_equal(bound, vf_set(-INFINITY));
    const vf factor = vf_exp2(vf_select(begins, vf_zero(), vf_zero() - rise));
    grew = grew || vm_any(grows);
    vf_store(state->factor + lane, factor);
    vf_store(state->total + lane, vf_fma(vf_load(state->total + lane), factor, sum));
    const vf base = vf_load(state->base + lane) + rise;
    vf_store(state->base + lane, base);
    vf_store(state->start + lane, vf_zero() - base);
    vf_store(state->bound + lane, vf_select(vm_or(grows, vm_not(begins)), vf_set(RISE), bound));
  }
  return grew;
}

/* out += V' P' if V has rows that are not finite and entries are hidden: such rows are added separately, for the lanes that see them.
 * state->clean has the other rows. */
static void combine_seen(const hark_dense_tile *tile, const hark_product *product, forward_state *state, const bool *bad, bool grew) {
  const int features = tile->call->value_dim;
  hark_product clean = *product;
  clean.b = state->clean;
  clean.b_step = tile->call->value_pad;
  if (grew)
    combine_factor(&clean, hark_dense_vectors(tile));
  else
    combine(&clean, hark_dense_vectors(tile));
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; bad[key] && lane < tile->queries; lane++) {
      const float weight = tile->logits[key * HARK_TILE_QUERIES + lane];
      if (weight == 0.0f) continue;
      for (int c = 0; c < features; c++) state->out[c * HARK_TILE_QUERIES + lane] += weight * product->b[key * product->b_step + c];
    }
}

/* Makes lanes exact whose base terms have moved far from 0, and with rbf those for which products would lose too much. */
static void take_exact(const hark_dense_tile *tile, forward_state *state, const float *key, int64_t key_stride) {
  hark_dense_exact *exact = &state->exact;
  bool found[HARK_TILE_QUERIES];
  const bool find = tile->call->rbf && HARK_ISA(hark_dense_exact_possible)(tile, exact) &&
                    HARK_ISA(hark_dense_exact_find)(tile, exact, state->bound, found);
  for (int lane = 0; lane < tile->queries; lane++) {
    const bool far = (state->any_far && state->far[lane]) || /* there products and the start do not show the significant logits */
                     (tile->call->adds && exact->is[lane] && fabs(exact->base[lane]) > (double)HARK_DENSE_FAR);
    if (far || (find && found[lane])) take_exact_lane(tile, state, key, key_stride, lane);
  }
}

static void visit_tile(const hark_dense_tile *tile, forward_state *state, const float *key, int64_t key_stride, const float *value,
                       int64_t value_stride, bool first, int64_t keys_left) {
  const hark_dense_call *call = tile->call;
  const int last = hark_dense_vectors(tile);
  hark_product scores = {.a = state->queries,
                         .a_step = HARK_TILE_QUERIES,
                         .b = key,
                         .b_row = key_stride,
                         .b_step = 1,
                         .c = state->logits,
                         .c_row = HARK_TILE_QUERIES,
                         .rows = tile->keys,
                         .end = call->head_dim,
                         .start = state->start,
                         .diagonal = hark_dense_diagonal(tile),
                         .top = state->top,
                         .sum = state->sum};
  const bool few = tile->queries <= HARK_FEW_QUERIES && call->arithmetic == HARK_ADD_NUMBERS;
  const int next = (int)hark_min(HARK_TILE_KEYS, keys_left - tile->keys);
  if (few && first) scores.ahead[2] = (hark_product_ahead){value, value_stride, tile->keys, call->value_dim};
  if (next > 0) {
    scores.ahead[0] = (hark_product_ahead){key + tile->keys * key_stride, key_stride, next, call->head_dim};
    scores.ahead[1] = (hark_product_ahead){value + tile->keys * value_stride, value_stride, next, call->value_dim};
  } else {
    const hark_tensor *out = &call->args->out;
    scores.ahead[0] = (hark_product_ahead){hark_dense_row(out, tile->sequence->item, tile->head, hark_dense_query_row(tile)),
                                           out->stride[2], tile->queries, call->value_dim};
  }
  hark_product sum = {.a = state->logits,
                      .a_step = HARK_TILE_QUERIES,
                      .b = value,
                      .b_row = 1,
                      .b_step = value_stride,
                      .c = state->out,
                      .c_row = HARK_TILE_QUERIES,
                      .rows = call->value_dim,
                      .end = tile->keys,
                      .factor = state->factor};
  int pair_limits[HARK_TILE_VECTORS];
  if (call->contextual) { /* whose gates see the products alone */
    scores.start = state->zero;
    scores.diagonal = NULL;
  }
  take_score_words(tile, state, &scores);
  if (!tile->general && !first && !few && !state->exact.any) {
    for (int m = 0; m < last; m++) {
      vf_store(state->top + m * HARK_LANES, vf_set(-INFINITY));
      vf_store(state->sum + m * HARK_LANES, vf_zero());
    }
    scores_softmax(&scores, 0, last);
    bool grows = false;
    for (int m = 0; m < last; m++)
      grows = grows || vm_any(vf_less(vf_load(state->bound + m * HARK_LANES), vf_load(state->top + m * HARK_LANES)));
    if (HARK_LIKELY(!grows)) {
      for (int m = 0; m < last; m++) {
        float *total = state->total + m * HARK_LANES;
        vf_store(total, vf_load(total) + vf_load(state->sum + m * HARK_LANES));
      }
      take_sum_words(tile, state, &sum, pair_limits);
      combine(&sum, last);
      return;
    }
  }
  if (few)
    hark_few_scores(&scores, state->rows, tile->queries, call->head_pad);
  else
    tile_logits(tile, &scores);
  if (call->contextual) {
    state->contextual.keeps = state->exact.any;
    HARK_ISA(hark_dense_contextual_count)(tile, state->start, state->logits, &state->contextual);
  }
  const bool hidden = HARK_ISA(hark_dense_finish_logits)(tile);
  if (call->rbf || state->exact.any) take_exact(tile, state, key, key_stride);
  bool bad[HARK_TILE_KEYS];
  const bool careful = hidden && !hark_rows_finite(value, value_stride, tile->keys, call->value_dim);
  if (careful) hark_clean_rows(value, value_stride, tile->keys, call->value_dim, call->value_pad, state->clean, bad);
  const bool grew = tile_softmax(tile, state, careful ? bad : NULL);
  if (call->dropout_threshold > 0) HARK_ISA(hark_dense_drop)(tile, state->logits);
  int limits[HARK_TILE_VECTORS];
  if (call->causal) {
    for (int m = 0; m < HARK_TILE_VECTORS; m++)
      limits[m] = (int)hark_max(0, hark_min(tile->keys, tile->shift + (int64_t)(m + 1) * HARK_LANES));
    sum.limits = limits;
  }
  if (!careful) take_sum_words(tile, state, &sum, pair_limits);
  if (careful)
    combine_seen(tile, &sum, state, bad, grew);
  else if (few)
    hark_few_combine(&sum, tile->queries, grew);
  else if (grew)
    combine_factor(&sum, last);
  else
    combine(&sum, last);
}

/* log_sum_exp and the normalised outputs of the tile's queries. */
static void finish_tile(const hark_dense_tile *tile, forward_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_attention_sequence *sequence = tile->sequence;
  const hark_attention_args *args = call->args;
  const int64_t row = sequence->query_row + tile->query;
  for (int lane = 0; lane < hark_dense_vectors(tile) * HARK_LANES; lane += HARK_LANES) {
    const vf total = vf_load(state->total + lane);
    const vm nothing = vf_equal(total, vf_zero());
    vf base = vf_load(state->base + lane);
    if (call->rbf) base = base - vf_load(state->exact.square + lane) * vf_set(state->exact.to_half); /* -|q|^2 / (2 sigma^2) */
    const vf log_sum = vf_fma(base, vf_set(HARK_LN_2), vf_log(total));
    vf_store(state->top + lane, vf_select(nothing, vf_set(-INFINITY), log_sum));
    vf_store(state->factor + lane, vf_select(nothing, vf_zero(), vf_set(1.0f) / total));
  }
  for (int lane = 0; state->exact.any && lane < tile->queries; lane++) {
    if (!state->exact.is[lane] || state->total[lane] == 0.0f) continue;
    const double log_sum = (state->exact.base[lane] + log2((double)state->total[lane])) / HARK_DISTANCE_LOG2_E;
    state->top[lane] = hark_finite_log_sum(log_sum);
  }
  float *log_sum_exp = args->log_sum_exp.data == NULL
                           ? NULL
                           : (float *)args->log_sum_exp.data + (sequence->item * call->heads + tile->head) * call->query_rows + row;
  float *out = hark_dense_row_of(&args->out, sequence->item, tile->head, row);
  for (int lane = 0; state->any_far && lane < tile->queries; lane++) {
    if (!state->far[lane]) continue;
    for (int c = 0; c < call->value_dim; c++)
      out[lane * args->out.stride[2] + c] = state->factor[lane] * state->out[c * HARK_TILE_QUERIES + lane];
    if (log_sum_exp != NULL) log_sum_exp[lane] = state->top[lane];
  }
  if (state->any_far) return; /* the others are done */
  if (log_sum_exp != NULL) memcpy(log_sum_exp, state->top, (size_t)tile->queries * sizeof *log_sum_exp);
  hark_unpack_transposed(state->out, state->factor, tile->queries, call->value_dim, false, out, args->out.stride[2]);
}

/* Visits all keys that the tile of queries sees. */
static void visit_keys(hark_dense_tile *tile, forward_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_attention_sequence *sequence = tile->sequence;
  const hark_attention_args *args = call->args;
  const int64_t key_head = tile->head / call->group;
  memset(state->out, 0, (size_t)call->value_dim * HARK_TILE_QUERIES * sizeof(float));
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    state->base[lane] = state->start[lane] = state->total[lane] = 0.0f;
    state->bound[lane] = -INFINITY;
  }
  int64_t from, to;
  HARK_ISA(hark_dense_visible_keys)(call, sequence, tile->query, tile->queries, &from, &to);
  const int64_t key_stride = args->key.stride[2], value_stride = args->value.stride[2];
  const float *keys = from < to ? hark_dense_row(&args->key, sequence->item, key_head, sequence->key_row) : NULL;
  const float *values = from < to ? hark_dense_row(&args->value, sequence->item, key_head, sequence->key_row) : NULL;
  if (call->contextual) {
    HARK_ISA(hark_dense_contextual_begin)(tile, state->queries, from, hark_max(0, to - from), state->contextual_memory, &state->contextual);
    tile->contextual = &state->contextual;
  }
  const int64_t tiles = hark_ceil_div(hark_max(0, to - from), HARK_TILE_KEYS);
  for (int64_t index = 0; index < tiles; index++) {
    const int64_t key = from + (call->contextual ? tiles - 1 - index : index) * HARK_TILE_KEYS;
    tile->key = key;
    tile->keys = (int)hark_min(HARK_TILE_KEYS, to - key);
    tile->shift = tile->query + sequence->offset - key;
    HARK_ISA(hark_dense_start_tile)(tile);
    visit_tile(tile, state, keys + key * key_stride, key_stride, values + key * value_stride, value_stride, index == 0,
               call->contextual ? tile->keys : to - key);
  }
}

/* Rows whose final base is far from 0 because of terms. Closing gates may move it there temporarily, without loss. */
static bool find_far_lanes(const hark_dense_tile *tile, forward_state *state) {
  bool any = false;
  for (int lane = 0; lane < tile->queries; lane++) {
    state->far[lane] = !state->exact.is[lane] && fabsf(state->base[lane]) > HARK_DENSE_FAR;
    any = any || state->far[lane];
  }
  return any;
}

void HARK_ISA(hark_dense_forward_tile)(const hark_dense_call *call, int64_t sequence_index, int64_t head, int64_t index, void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  const hark_attention_args *args = call->args;
  forward_state *state = memory;
  char *tiles = (char *)memory + hark_align_up(sizeof *state);
  state->queries = (float *)tiles;
  state->logits = state->queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  state->out = state->logits + HARK_TILE_KEYS * HARK_TILE_QUERIES;
  state->clean = state->out + (size_t)call->value_dim * HARK_TILE_QUERIES;
  state->rows = state->clean + (size_t)call->value_pad * HARK_TILE_KEYS;
  float *exact = state->rows + (size_t)call->head_pad * HARK_FEW_QUERIES;
  state->contextual_memory = exact + hark_dense_exact_floats(call->desc, false); /* there are no words then */
  memset(state->zero, 0, sizeof state->zero);

  hark_dense_tile tile = {.call = call, .sequence = sequence, .sequence_index = sequence_index, .head = head, .logits = state->logits};
  tile.query = index * HARK_TILE_QUERIES;
  tile.queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - tile.query);
  const int64_t row = sequence->query_row + tile.query;
  hark_pack_transposed(hark_dense_row(&args->query, sequence->item, head, row), args->query.stride[2], tile.queries, call->head_dim,
                       (float)(call->scale * HARK_LOG2_E), state->queries);
  if (tile.queries <= HARK_FEW_QUERIES)
    hark_pack_rows(hark_dense_row(&args->query, sequence->item, head, row), args->query.stride[2], tile.queries, call->head_dim,
                   call->head_pad, (float)(call->scale * HARK_LOG2_E), state->rows);
  if (call->arithmetic != HARK_ADD_NUMBERS) {
    state->words = place_words(call, exact);
    hark_word_rows(call->arithmetic, state->queries, HARK_TILE_QUERIES, call->head_dim, hark_dense_vectors(&tile) * HARK_LANES,
                   HARK_TILE_QUERIES, state->words.queries);
  }
  state->exact.any = state->any_far = false;
  if (call->rbf || call->adds) HARK_ISA(hark_dense_exact_begin)(&tile, state->queries, exact, &state->exact);
  visit_keys(&tile, state);
  finish_tile(&tile, state);
  if (!call->adds || !find_far_lanes(&tile, state)) return;
  HARK_ISA(hark_dense_exact_begin)(&tile, state->queries, exact, &state->exact);
  state->any_far = state->exact.any = true;
  visit_keys(&tile, state);
  finish_tile(&tile, state);
}
