/* dense_backward_bf16.c - operands of the gradients of softmax attention (dense_backward.c) in bf16: products of a tile from words, pairs
 * of bf16 numbers (dense_words.h), with sums in f32.
 */
#include "dense_backward.h"

enum { WORD_PARTS = sizeof(hark_dense_backward_words) / sizeof(float *) };

/* Where each of them begins; returns their floats. */
static size_t word_places(int64_t d, int64_t dv, size_t places[WORD_PARTS]) {
  const size_t d_pad = hark_padded(d), dv_pad = hark_padded(dv);
  const size_t floats[WORD_PARTS] = {(size_t)(d + 1) / 2 * HARK_TILE_QUERIES,
                                     (size_t)(dv + 1) / 2 * HARK_TILE_QUERIES,
                                     HARK_TILE_QUERIES / 2 * d_pad,
                                     HARK_TILE_QUERIES / 2 * dv_pad,
                                     HARK_TILE_KEYS * (size_t)hark_row_words((int)d),
                                     HARK_TILE_KEYS * (size_t)hark_row_words((int)dv),
                                     HARK_TILE_KEYS / 2 * d_pad,
                                     HARK_TILE_KEYS * HARK_TILE_QUERIES / 2};
  size_t end = 0;
  for (int i = 0; i < WORD_PARTS; i++) {
    places[i] = end;
    end += floats[i];
  }
  return end;
}

hark_dense_backward_words HARK_ISA(hark_dense_backward_place_words)(const hark_dense_call *call, float *memory) {
  size_t places[WORD_PARTS];
  (void)word_places(call->head_dim, call->value_dim, places);
  return (hark_dense_backward_words){memory + places[0], memory + places[1], memory + places[2], memory + places[3],
                                     memory + places[4], memory + places[5], memory + places[6], memory + places[7]};
}

size_t HARK_ISA(hark_dense_backward_word_floats)(const hark_attention_desc *desc) {
  size_t places[WORD_PARTS];
  return hark_dense_has_words(desc) ? word_places(desc->head_dim, desc->value_dim, places) : 0;
}

void HARK_ISA(hark_dense_backward_pack_words)(const hark_dense_tile *tile, const hark_dense_backward_state *state) {
  const hark_dense_call *call = tile->call;
  const int lanes = hark_dense_vectors(tile) * HARK_LANES;
  hark_word_rows(call->arithmetic, state->queries, HARK_TILE_QUERIES, call->head_dim, lanes, HARK_TILE_QUERIES, state->words.queries);
  hark_word_rows(call->arithmetic, state->gradients, HARK_TILE_QUERIES, call->value_dim, lanes, HARK_TILE_QUERIES, state->words.gradients);
  hark_word_rows(call->arithmetic, state->query_rows, call->head_pad, tile->queries, call->head_pad, call->head_pad,
                 state->words.query_rows);
  hark_word_rows(call->arithmetic, state->gradient_rows, call->value_pad, tile->queries, call->value_pad, call->value_pad,
                 state->words.gradient_rows);
}

void HARK_ISA(hark_dense_backward_score_words)(const hark_dense_tile *tile, const float *left, float *right, hark_product *product) {
  if (tile->call->arithmetic == HARK_ADD_NUMBERS) return;
  hark_word_pairs(tile->call->arithmetic, product->b, product->b_row, tile->keys, product->end, right);
  product->arithmetic = tile->call->arithmetic;
  product->a = left;
  product->b = right;
  product->b_row = hark_row_words(product->end);
  product->end = (product->end + 1) / 2;
}

void HARK_ISA(hark_dense_backward_sum_words)(const hark_dense_tile *tile, const hark_dense_backward_state *state, hark_product *sum,
                                             int *pair_limits) {
  const hark_dense_call *call = tile->call;
  if (call->arithmetic == HARK_ADD_NUMBERS) return;
  hark_word_tile(call->arithmetic, state->dlogits, tile->keys, hark_dense_vectors(tile), sum->limits, state->words.tile);
  hark_word_rows(call->arithmetic, sum->b, sum->b_step, tile->keys, call->head_dim, call->head_pad, state->words.key_rows);
  for (int m = 0; sum->limits != NULL && m < HARK_TILE_VECTORS; m++) pair_limits[m] = (sum->limits[m] + 1) / 2;
  if (sum->limits != NULL) sum->limits = pair_limits;
  sum->arithmetic = call->arithmetic;
  sum->a = state->words.tile;
  sum->b = state->words.key_rows;
  sum->b_step = call->head_pad;
  sum->end = (tile->keys + 1) / 2;
}

void HARK_ISA(hark_dense_backward_spread_words)(const hark_dense_tile *tile, const hark_dense_backward_state *state, const float *row_words,
                                                int key, hark_product *product) {
  product->arithmetic = tile->call->arithmetic;
  product->a = row_words;
  product->b = state->words.tile + key * hark_row_words(HARK_TILE_QUERIES);
  product->b_row = hark_row_words(HARK_TILE_QUERIES);
  product->begin /= 2;
  product->end = (product->end + 1) / 2;
}
