/* dense_backward.h - the state of the gradients of softmax attention, of one instruction set: what dense_backward.c (tiles),
 * dense_backward_bf16.c (operands in bf16) and dense_backward_exact.c (rows in float64) share.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_BACKWARD_H
#define HARK_BACKEND_CPU_ISA_DENSE_BACKWARD_H

#include "dense_contextual.h"
#include "dense_pack.h"
#include "dense_tile.h"
#include "dense_words.h"

/* Words (dense_words.h). Of a tile of queries: queries and dout by features [features / 2][lanes], and by rows [lanes / 2][padded]. Of a
 * tile of keys: pairs by features [keys][features / 2], keys by rows [keys / 2][d padded]; `tile` [keys][lanes / 2] or [keys / 2][lanes].
 */
typedef struct hark_dense_backward_words {
  float *queries, *gradients, *query_rows, *gradient_rows, *keys, *values, *key_rows, *tile;
} hark_dense_backward_words;

typedef struct hark_dense_backward_state {
  float *queries, *query_rows;      /* [d][lanes] times scale log2(e); [lanes][d padded] times scale */
  float *gradients, *gradient_rows; /* dout: [dv][lanes]; [lanes][dv padded] */
  float *dquery;                    /* [d][lanes], to be multiplied by scale */
  float *weights, *dlogits;         /* P and dS: [keys][lanes] */
  float *clean;                     /* rows, zero if not finite */
  float *exact_memory;              /* see hark_dense_exact */
  hark_dense_backward_words words;  /* operands in bf16 */
  hark_dense_contextual_state contextual;
  float *contextual_memory;
  float start[HARK_TILE_QUERIES]; /* -log_sum_exp in units of log 2; -infinity for lanes that see no key; 0 for exact ones */
  float delta[HARK_TILE_QUERIES]; /* -D */
  float zero[HARK_TILE_QUERIES], gain[HARK_TILE_QUERIES];
  bool rows_finite; /* all queries and dout of the tile are finite */
  hark_dense_exact exact;
  float inverse[HARK_TILE_QUERIES];   /* of exact lanes: the factor of 2^(S - top); otherwise 1 */
  double mean[HARK_TILE_QUERIES];     /* of exact lanes, of rbf (hark_dense_exact_row) */
  int64_t leader[HARK_TILE_QUERIES];  /* of exact lanes */
  const float *all_keys, *all_values; /* of the sequence: for the leaders, and for the rows' means */
  /* rows of the tile in the caller's memory */
  int64_t query_stride, gradient_stride;
  /* rows of the tile of keys */
  const float *key, *value;
  int64_t key_stride, value_stride;
  float *dkey, *dvalue; /* NULL: not requested */
  int64_t dkey_stride, dvalue_stride;
  bool dquery_requested, collects;
  int64_t keys_left;           /* of the range, after this tile */
  int next_queries;            /* rows of the next tile of queries, to prefetch while this tile is computed; or 0 */
  const hark_dense_term *only; /* the only term that gathers; NULL: all that collect */
  void *only_memory;
} hark_dense_backward_state;

/* ---- dense_backward.c ---- */

/* The state at the beginning of `memory`, of hark_dense_backward_bytes() bytes. */
hark_dense_backward_state *HARK_ISA(hark_dense_backward_open)(const hark_dense_call *call, void *memory);
/* Packs a tile of queries with -log_sum_exp. */
void HARK_ISA(hark_dense_backward_pack_scores)(const hark_dense_tile *tile, hark_dense_backward_state *state);

/* With contextual positions: begins a tile of queries, packed, that sees the keys [from, seen) of a sequence whose key 0 is at `keys`, and
 * visits those up to `to`. */
void HARK_ISA(hark_dense_backward_count)(hark_dense_tile *tile, hark_dense_backward_state *state, const float *keys, int64_t from,
                                         int64_t to, int64_t seen);

typedef void hark_dense_scores_function(const hark_product *p, int first, int last);

/* A product over the tile's logits, in vectors in which some lane sees a key. */
static inline void hark_dense_scores(const hark_dense_tile *tile, hark_dense_scores_function *run, const hark_product *product) {
  const int last = hark_dense_vectors(tile);
  if (hark_dense_first_vector(tile, tile->keys - 1) == 0) {
    run(product, 0, last);
    return;
  }
  for (int key = 0; key < tile->keys; key += HARK_KEY_GROUP) {
    const int first = hark_dense_first_vector(tile, key);
    if (first >= last) break;
    const hark_product part = hark_product_from(product, key, (int)hark_min(HARK_KEY_GROUP, tile->keys - key));
    run(&part, first, last);
  }
}

/* ---- dense_backward_bf16.c ---- */

/* Floats of the words; 0 for descriptors without them. */
size_t HARK_ISA(hark_dense_backward_word_floats)(const hark_attention_desc *desc);
hark_dense_backward_words HARK_ISA(hark_dense_backward_place_words)(const hark_dense_call *call, float *memory);
/* The words of a tile of queries and its dout. */
void HARK_ISA(hark_dense_backward_pack_words)(const hark_dense_tile *tile, const hark_dense_backward_state *state);
/* Turns a product over features into the same from words: of queries or dout, and of the rows of a tile of keys or values. A call in f32 is
 * left as it is. */
void HARK_ISA(hark_dense_backward_score_words)(const hark_dense_tile *tile, const float *left, float *right, hark_product *product);
/* The same for dquery. pair_limits: room for the limits. */
void HARK_ISA(hark_dense_backward_sum_words)(const hark_dense_tile *tile, const hark_dense_backward_state *state, hark_product *sum,
                                             int *pair_limits);
/* The same for dk and dv, from key `key` of the tile on. */
void HARK_ISA(hark_dense_backward_spread_words)(const hark_dense_tile *tile, const hark_dense_backward_state *state, const float *row_words,
                                                int key, hark_product *product);

/* ---- dense_backward_exact.c ---- */

/* Marks the exact rows of a tile of queries, which hark_dense_find_exact_rows() has found. */
void HARK_ISA(hark_dense_backward_take_exact_rows)(const hark_dense_tile *tile, hark_dense_backward_state *state);
/* Their logits minus the highest. */
void HARK_ISA(hark_dense_backward_exact_logits)(const hark_dense_tile *tile, hark_dense_backward_state *state);
/* rbf: dS of exact rows from dP - D in float64. Where one key has all the weight, what rounding would leave of it is multiplied by the
 * squared distance. */
void HARK_ISA(hark_dense_backward_exact_differences)(const hark_dense_tile *tile, hark_dense_backward_state *state);
/* rbf: removes their dS from the tile, and adds the gradients. */
void HARK_ISA(hark_dense_backward_exact_gradients)(const hark_dense_tile *tile, hark_dense_backward_state *state);

#endif
