/* stick_tile.h - tiles of stick-breaking attention, of one instruction set: what stick_forward.c and stick_backward.c share.
 *
 *     b[n,i] = sigmoid(S[n,i]);   P[n,i] = b[n,i] prod over visible j > i of (1 - b[n,j])
 *
 * Calls, terms of the logits and tiles are those of dense attention (dense_tile.h): a tile is [keys][lanes], with logits in units of log 2.
 * Tiles are visited from the nearest key to the farthest. What is left of a query's stick is one number per lane.
 */
#ifndef HARK_BACKEND_CPU_ISA_STICK_TILE_H
#define HARK_BACKEND_CPU_ISA_STICK_TILE_H

#include "dense_pack.h"
#include "dense_tile.h"

/* A stick of which less than this is left is used up: farther keys are hidden. It is far below the rounding of a weight, and far above
 * subnormal numbers. */
#define HARK_STICK_END 0x1p-100f

/* Marks of what is not finite, where visible entries keep weights above 0: by key and by lane; or NULL. */
typedef struct hark_stick_marks {
  bool key[HARK_TILE_KEYS];
  float lane[HARK_TILE_QUERIES]; /* 0, or NaN */
} hark_stick_marks;

/* Adds the terms and hides entries: a query does not see its own position. True: some entry may be hidden. */
static inline bool hark_stick_finish_logits(const hark_dense_tile *tile) {
  const bool hidden = HARK_ISA(hark_dense_finish_logits)(tile);
  const int64_t first = hark_max(0, -tile->shift), end = hark_min(tile->queries, tile->keys - tile->shift);
  for (int64_t lane = first; lane < end; lane++) tile->logits[(tile->shift + lane) * HARK_TILE_QUERIES + lane] = -INFINITY;
  return hidden || first < end;
}

/* True if a query of the tile has some of its stick left. */
static inline bool hark_stick_remains(const hark_dense_tile *tile, const float *left) {
  for (int lane = 0; lane < tile->queries; lane++)
    if (left[lane] != 0.0f) return true;
  return false;
}

/* Where the backward keeps a tile's b and P (1 - b), both 0 exactly where hidden. NULL: not needed. */
typedef struct hark_stick_parts {
  float *shares, *slopes;
} hark_stick_parts;

/* Logits -> P, from the last key of the tile to the first, for one vector of lanes. */
HARK_SIMD void hark_stick_break_vector(const hark_dense_tile *tile, int m, const hark_stick_marks *marks, const bool backward,
                                       const bool marked, hark_stick_parts parts, float *left) {
  const vf one = vf_set(1.0f), most = vf_set(126.0f), last = vf_set(HARK_STICK_END), none = vf_set(-INFINITY), zero = vf_zero();
  float *const logits = tile->logits + m * HARK_LANES;
  vf rest = vf_load(left + m * HARK_LANES);
  for (int key = hark_dense_end(tile, m) - 1; key >= 0; key--) {
    const ptrdiff_t at = (ptrdiff_t)key * HARK_TILE_QUERIES;
    const vf logit = vf_load(logits + at);
    const vf power = vf_exp2(vf_not_above(logit, most));
    const vf keep = vf_inverse(one + power);
    const vm hidden = vm_or(vf_equal(logit, none), vf_equal(rest, zero));
    vf share = vf_select(hidden, zero, power * keep);
    vf weight = vf_select(hidden, zero, share * rest);
    const vf slope = vf_select(hidden, zero, weight * keep);
    if (marked && marks != NULL) {
      vm seen = vm_not(hidden);
      if (!marks->key[key]) seen = vm_and(seen, vm_not(vf_equal(vf_load(marks->lane + m * HARK_LANES), zero)));
      const vf least = vf_set(1.17549435e-38f);
      share = vf_select(vm_and(seen, vf_less(share, least)), least, share);
      weight = vf_select(vm_and(seen, vf_less(weight, least)), least, weight);
    }
    vf_store(logits + at, weight);
    if (backward) {
      vf_store(parts.shares + at + m * HARK_LANES, share);
      vf_store(parts.slopes + at + m * HARK_LANES, slope);
    }
    const vf next = rest * keep;
    rest = vf_select(hidden, rest, vf_select(vf_less(next, last), zero, next)); /* NaN stays */
  }
  vf_store(left + m * HARK_LANES, rest);
}

/* Raw logits of a tile, in vectors in which some lane sees a key. */
typedef void hark_stick_scores_function(const hark_product *p, int first, int last);
static inline void hark_stick_scores(const hark_dense_tile *tile, hark_stick_scores_function *store, const hark_product *product) {
  const int last = hark_dense_vectors(tile);
  if (hark_dense_first_vector(tile, tile->keys - 1) == 0) {
    store(product, 0, last);
    return;
  }
  for (int key = 0; key < tile->keys; key += HARK_KEY_GROUP) {
    const hark_product part = hark_product_from(product, key, (int)hark_min(HARK_KEY_GROUP, tile->keys - key));
    const int first = hark_dense_first_vector(tile, key);
    if (first < last) store(&part, first, last);
  }
}

/* Limits of a sum over the keys of a tile, by vector; NULL if all lanes see all keys. */
static inline const int *hark_stick_limits(const hark_dense_tile *tile, int limits[HARK_TILE_VECTORS]) {
  if (tile->keys - 1 <= tile->shift) return NULL;
  for (int m = 0; m < HARK_TILE_VECTORS; m++)
    limits[m] = (int)hark_max(0, hark_min(tile->keys, tile->shift + (int64_t)(m + 1) * HARK_LANES));
  return limits;
}

/* ---- stick_forward.c, stick_backward.c ---- */

size_t HARK_ISA(hark_stick_forward_bytes)(const hark_attention_desc *desc);
void HARK_ISA(hark_stick_forward_tile)(const hark_dense_call *call, int64_t sequence, int64_t head, int64_t tile, void *memory);

size_t HARK_ISA(hark_stick_backward_bytes)(const hark_attention_desc *desc);
/* Bytes of the parts of dkey and dvalue, for `item_pieces` batch items times pieces of queries. */
size_t HARK_ISA(hark_stick_partial_floats)(const hark_attention_desc *desc, int64_t item_pieces);
/* The queries of chunk `chunk` of a sequence, for the query heads of a key head. */
void HARK_ISA(hark_stick_backward_range)(const hark_dense_call *call, int64_t sequence, int64_t key_head, int64_t chunk, void *memory);
/* Sums the parts of dkey and dvalue of a sequence and key head. */
void HARK_ISA(hark_stick_gather)(const hark_dense_call *call, int64_t sequence, int64_t key_head);
/* hark_dense_visit_gradients() */
void HARK_ISA(hark_stick_visit_gradients)(const hark_dense_call *call, const hark_dense_term *term, void *term_memory, int64_t sequence,
                                          int64_t head, int64_t query, int queries, int64_t key_from, int64_t key_to, void *memory);

#endif
