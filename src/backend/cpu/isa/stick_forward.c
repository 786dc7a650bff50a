/* stick_forward.c - stick-breaking attention of one tile of queries, by tiles of keys from the nearest to the farthest.
 *
 *     b[n,i] = sigmoid(S[n,i]);   P[n,i] = b[n,i] prod over visible j > i of (1 - b[n,j]);   out[n] = sum_i P[n,i] v[i]
 *
 * With e = exp S: 1 - b = 1 / (1 + e) and b = e / (1 + e), both to a few roundings for any S. What is left of the stick is the product of
 * the 1 - b so far: one number per query, and nothing is rescaled. A tile of queries ends at the key where all its sticks are used up.
 * log_sum_exp receives log of what is left. Source: Tan et al., arXiv 2410.17980. The loops are ours.
 *
 * Cost of a tile of keys: 2 d + 2 dv multiply-adds per logit, an exponential and a quotient.
 */
#include "dense_few.h"
#include "stick_tile.h"

typedef struct stick_forward_state {
  float *queries; /* [d][lanes], scaled */
  float *logits;  /* [keys][lanes] */
  float *out;     /* [dv][lanes] */
  float *clean;   /* [keys][dv padded] */
  float *rows;    /* a few queries: [queries][d padded], scaled */
  float left[HARK_TILE_QUERIES], start[HARK_TILE_QUERIES], gain[HARK_TILE_QUERIES];
} stick_forward_state;

size_t HARK_ISA(hark_stick_forward_bytes)(const hark_attention_desc *desc) {
  const size_t lanes = HARK_TILE_QUERIES;
  const size_t floats = (size_t)desc->head_dim * lanes + HARK_TILE_KEYS * lanes + (size_t)desc->value_dim * lanes +
                        HARK_TILE_KEYS * hark_padded(desc->value_dim) + HARK_FEW_QUERIES * hark_padded(desc->head_dim);
  return hark_align_up(sizeof(stick_forward_state)) + floats * sizeof(float);
}

HARK_PRODUCT_FUNCTION(scores_store, HARK_FINISH_STORE)
HARK_PRODUCT_FUNCTION(combine_plain, HARK_FINISH_COMBINE)

HARK_SIMD_NOINLINE void break_plain(const hark_dense_tile *tile, float *left) {
  for (int m = 0; m < hark_dense_vectors(tile); m++)
    hark_stick_break_vector(tile, m, NULL, false, false, (hark_stick_parts){NULL, NULL}, left);
}

HARK_SIMD_NOINLINE void break_marked(const hark_dense_tile *tile, const hark_stick_marks *marks, float *left) {
  for (int m = 0; m < hark_dense_vectors(tile); m++)
    hark_stick_break_vector(tile, m, marks, false, true, (hark_stick_parts){NULL, NULL}, left);
}

/* out += V' P' where V has rows that are not finite: those are added separately, for the lanes that see them. */
static void combine_seen(const hark_dense_tile *tile, const hark_product *product, stick_forward_state *state, const bool *bad) {
  hark_product clean = *product;
  clean.b = state->clean;
  clean.b_step = tile->call->value_pad;
  combine_plain(&clean, 0, hark_dense_vectors(tile));
  for (int key = 0; key < tile->keys; key++)
    for (int lane = hark_dense_first_vector(tile, key) * HARK_LANES; bad[key] && lane < tile->queries; lane++) {
      const float weight = state->logits[key * HARK_TILE_QUERIES + lane];
      if (weight == 0.0f) continue;
      for (int c = 0; c < tile->call->value_dim; c++)
        state->out[c * HARK_TILE_QUERIES + lane] += weight * product->b[key * product->b_step + c];
    }
}

static void visit_tile(const hark_dense_tile *tile, stick_forward_state *state, const float *key, int64_t key_stride, const float *value,
                       int64_t value_stride, int64_t keys_before) {
  const hark_dense_call *call = tile->call;
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
                         .diagonal = hark_dense_diagonal(tile)};
  if (keys_before > 0) {
    scores.ahead[0] = (hark_product_ahead){key - HARK_TILE_KEYS * key_stride, key_stride, HARK_TILE_KEYS, call->head_dim};
    scores.ahead[1] = (hark_product_ahead){value - HARK_TILE_KEYS * value_stride, value_stride, HARK_TILE_KEYS, call->value_dim};
  }
  hark_product sum = {.a = state->logits,
                      .a_step = HARK_TILE_QUERIES,
                      .b = value,
                      .b_row = 1,
                      .b_step = value_stride,
                      .c = state->out,
                      .c_row = HARK_TILE_QUERIES,
                      .rows = call->value_dim,
                      .end = tile->keys};
  const bool few = tile->queries <= HARK_FEW_QUERIES;
  int limits[HARK_TILE_VECTORS];
  sum.limits = hark_stick_limits(tile, limits);
  if (few)
    hark_few_scores(&scores, state->rows, tile->queries, call->head_pad);
  else
    hark_stick_scores(tile, scores_store, &scores);
  (void)hark_stick_finish_logits(tile);
  if (!hark_rows_finite(value, value_stride, tile->keys, call->value_dim)) {
    hark_stick_marks marks = {0};
    hark_clean_rows(value, value_stride, tile->keys, call->value_dim, call->value_pad, state->clean, marks.key);
    break_marked(tile, &marks, state->left);
    if (call->dropout_threshold > 0) HARK_ISA(hark_dense_drop)(tile, state->logits);
    combine_seen(tile, &sum, state, marks.key);
    return;
  }
  break_plain(tile, state->left);
  if (call->dropout_threshold > 0) HARK_ISA(hark_dense_drop)(tile, state->logits);
  if (few)
    hark_few_combine(&sum, tile->queries, false);
  else
    combine_plain(&sum, 0, hark_dense_vectors(tile));
}

/* All keys that the tile of queries sees. Tiles of keys begin where the first one does, so that the bits of a row do not depend on later
 * rows. */
static void visit_keys(hark_dense_tile *tile, stick_forward_state *state) {
  const hark_dense_call *call = tile->call;
  const hark_attention_sequence *sequence = tile->sequence;
  const hark_attention_args *args = call->args;
  const int64_t key_head = tile->head / call->group, key_stride = args->key.stride[2], value_stride = args->value.stride[2];
  int64_t from, to;
  memset(state->out, 0, (size_t)call->value_dim * HARK_TILE_QUERIES * sizeof(float));
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane++) {
    state->start[lane] = 0.0f;
    state->left[lane] = state->gain[lane] = 1.0f;
  }
  HARK_ISA(hark_dense_visible_keys)(call, sequence, tile->query, tile->queries, &from, &to);
  if (from >= to) return;
  const float *keys = hark_dense_row(&args->key, sequence->item, key_head, sequence->key_row);
  const float *values = hark_dense_row(&args->value, sequence->item, key_head, sequence->key_row);
  for (int64_t key = from + (to - from - 1) / HARK_TILE_KEYS * HARK_TILE_KEYS; key >= from; key -= HARK_TILE_KEYS) {
    tile->key = key;
    tile->keys = (int)hark_min(HARK_TILE_KEYS, to - key);
    tile->shift = tile->query + sequence->offset - key;
    HARK_ISA(hark_dense_start_tile)(tile);
    visit_tile(tile, state, keys + key * key_stride, key_stride, values + key * value_stride, value_stride, key - from);
    if (!hark_stick_remains(tile, state->left)) return;
  }
}

void HARK_ISA(hark_stick_forward_tile)(const hark_dense_call *call, int64_t sequence_index, int64_t head, int64_t index, void *memory) {
  const hark_attention_sequence *sequence = call->run->sequences + sequence_index;
  const hark_attention_args *args = call->args;
  stick_forward_state *state = memory;
  state->queries = (float *)(void *)((char *)memory + hark_align_up(sizeof *state));
  state->logits = state->queries + (size_t)call->head_dim * HARK_TILE_QUERIES;
  state->out = state->logits + HARK_TILE_KEYS * HARK_TILE_QUERIES;
  state->clean = state->out + (size_t)call->value_dim * HARK_TILE_QUERIES;
  state->rows = state->clean + (size_t)call->value_pad * HARK_TILE_KEYS;
  hark_dense_tile tile = {.call = call, .sequence = sequence, .sequence_index = sequence_index, .head = head, .logits = state->logits};
  tile.query = index * HARK_TILE_QUERIES;
  tile.queries = (int)hark_min(HARK_TILE_QUERIES, sequence->query_count - tile.query);
  const int64_t row = sequence->query_row + tile.query;
  const float *query = hark_dense_row(&args->query, sequence->item, head, row);
  const float factor = (float)(call->scale * HARK_LOG2_E);
  hark_pack_transposed(query, args->query.stride[2], tile.queries, call->head_dim, factor, state->queries);
  if (tile.queries <= HARK_FEW_QUERIES)
    hark_pack_rows(query, args->query.stride[2], tile.queries, call->head_dim, call->head_pad, factor, state->rows);
  visit_keys(&tile, state);
  hark_unpack_transposed(state->out, state->gain, tile.queries, call->value_dim, false,
                         hark_dense_row_of(&args->out, sequence->item, head, row), args->out.stride[2]);
  if (args->log_sum_exp.data == NULL) return;
  float *log_left = (float *)args->log_sum_exp.data + (sequence->item * call->heads + head) * call->query_rows + row;
  for (int lane = 0; lane < HARK_TILE_QUERIES; lane += HARK_LANES) vf_store(state->start + lane, vf_log(vf_load(state->left + lane)));
  memcpy(log_left, state->start, (size_t)tile.queries * sizeof *log_left);
}
