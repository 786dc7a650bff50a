/* dense_tile.h - shared by the parts of dense attention: a call with everything derived from its arguments, a tile of logits, and the
 * terms.
 *
 * Legend: S sequences, H query heads, Hkv key heads, G = H / Hkv; d, dv features. Logits are kept in units of log 2, scaled by log2(e), as
 * tiles [keys][HARK_TILE_QUERIES]; gradients of logits are in natural units.
 */
#ifndef HARK_BACKEND_CPU_ISA_DENSE_TILE_H
#define HARK_BACKEND_CPU_ISA_DENSE_TILE_H

#include <float.h>
#include <math.h>

#include "backend/cpu/cpu.h"
#include "dense_products.h"

/* Number of signed distances in a tile: keys + lanes - 1, rounded up. */
#define HARK_TILE_DIAGONALS (HARK_TILE_KEYS + HARK_TILE_QUERIES)

/* A term of the logits. A new one is a few functions and a row in dense_terms.c. */
typedef struct hark_dense_call hark_dense_call;
typedef struct hark_dense_tile hark_dense_tile;

typedef struct hark_dense_term {
  const char *name;
  bool hides; /* may hide single entries, other than by its start */
  /* True if a call uses this term; args NULL: true if a call of this descriptor may use it. */
  bool (*used)(const hark_attention_desc *desc, const hark_attention_args *args);
  /* Bytes of scratch for the whole call, at the descriptor's maxima. item_pieces: batch items times the number of ranges into which their
   * keys are divided. Optional. */
  size_t (*bytes)(const hark_attention_desc *desc, bool backward, int64_t item_pieces);
  /* Before all tiles: `count` pieces of work in parallel. Optional. */
  int64_t (*prepare_count)(const hark_dense_call *call);
  void (*prepare)(const hark_dense_call *call, void *memory, int64_t index);
  /* Adds the part that depends on the distance alone to tile->diagonal, from which the tile's logits start. If this is -infinity somewhere,
   * sets tile->start_hides: then add is called too, to hide entries whatever the product is. Optional. */
  void (*start)(hark_dense_tile *tile, void *memory);
  /* Adds to tile->logits, whose vectors from hark_dense_first_vector() on are read later. Entries of -infinity are hidden. */
  void (*add)(const hark_dense_tile *tile, void *memory);
  /* True if a gradient is requested that collect gathers while tiles are visited. Optional with collect. */
  bool (*collects)(const hark_dense_call *call);
  /* Gathers from the gradients of the tile's logits [keys][HARK_TILE_QUERIES], zero where hidden. Tiles of one range of keys come one after
   * another; other ranges, sequences and key heads may run at the same time. */
  void (*collect)(const hark_dense_tile *tile, void *memory, const float *gradient);
  /* After all tiles: `count` pieces of work in parallel, each with a worker's area; 0 when nothing is requested. Optional. */
  int64_t (*finish_count)(const hark_dense_call *call);
  void (*finish)(const hark_dense_call *call, void *memory, int64_t index, void *worker_memory);
} hark_dense_term;

#define HARK_DENSE_TERM_COUNT 6
extern const hark_dense_term *const HARK_ISA(hark_dense_terms)[HARK_DENSE_TERM_COUNT];
extern const hark_dense_term HARK_ISA(hark_dense_mask), HARK_ISA(hark_dense_bias), HARK_ISA(hark_dense_log_kernel),
    HARK_ISA(hark_dense_forget), HARK_ISA(hark_dense_rbf), HARK_ISA(hark_dense_contextual);

struct hark_dense_call {
  hark_context *context;
  const hark_attention_call *run;
  const hark_attention_desc *desc;
  const hark_attention_args *args;
  bool backward;
  int64_t batch, heads, key_heads, group; /* of this call */
  int64_t query_rows, key_rows;           /* rows of a batch item */
  int head_dim, value_dim;
  int head_pad, value_pad; /* rounded up to whole vectors */
  double scale;            /* of q.k, natural units: 1 / sigma^2 with the RBF kernel */
  int64_t window;          /* largest distance, or -1 */
  bool causal;
  bool sticks;  /* normalisation stick_breaking: stick_tile.h; causal, and a query does not see its own position */
  bool starts;  /* a term has a start */
  bool adds;    /* a term adds numbers other than squared norms, however large */
  bool general; /* logits need more than a product and its start: other terms or dropout */
  bool hides;   /* a term or dropout may hide single entries, other than by starts */
  bool rbf;
  bool contextual;                    /* contextual positions: dense_contextual.h */
  hark_product_arithmetic arithmetic; /* of the products of tiles */
  bool plain;                 /* logits are scale q.k alone for all queries and keys of a sequence, and every head has separate keys */
  uint32_t dropout_threshold; /* 0: none */
  float dropout_gain;         /* 1 / (1 - p) */
  const hark_dense_term *terms[HARK_DENSE_TERM_COUNT];
  void *term_memory[HARK_DENSE_TERM_COUNT];
  int term_count;
  int64_t chunks;                          /* number of key ranges of the backward of one (sequence, key head) */
  int64_t ranges;                          /* contextual: ranges of sequences of the backward */
  int64_t tile_count;                      /* tiles of queries of all sequences, one head */
  int64_t whole_keys;                      /* of the complete sequences of which these are parts; 0: they are complete */
  int64_t queries_before, keys_before;     /* of the parts, in the complete sequences */
  int64_t *tiles_before;                   /* [S + 1]: tiles of queries of the previous sequences */
  float *partial_dquery;                   /* [chunks][tile_count H][d][HARK_TILE_QUERIES], NULL with one chunk; sticks: of dkey, dvalue */
  struct hark_dense_exact_row *exact_rows; /* backward: [B, H, Lq]; NULL: all rows are ordinary ones (dense_exact.c) */
  char *worker_memory;
  size_t worker_bytes;
};

/* One tile: queries first .. first + queries of a sequence, keys likewise. */
struct hark_dense_tile {
  const hark_dense_call *call;
  const hark_attention_sequence *sequence;
  int64_t sequence_index, head;
  int64_t chunk;
  int64_t query, key; /* first rows, counted in the sequence */
  int queries, keys;
  int64_t shift; /* position of the first query minus that of the first key */
  float *logits;
  bool start_hides;                               /* the diagonal contains -infinity */
  bool terms_alone;                               /* compute only the sum of the terms, divided by 4 so that any number fits f32 */
  struct hark_dense_contextual_state *contextual; /* of the tile of queries; NULL: none */
  bool general; /* these logits need more than a product and its start: as for the call, or some are hidden */
  /* Starts of logits by distance, position minus key: entry x is for lane minus row of the tile = x - (keys - 1). With call->starts. */
  float diagonal[HARK_TILE_DIAGONALS];
};

/* Keys are processed in groups of this size if causality hides a part of a tile. */
#define HARK_KEY_GROUP 16

/* Products of calls of this descriptor may be in bf16: then tiles have memory for words. Distances need more digits. */
static inline bool hark_dense_has_words(const hark_attention_desc *desc) {
  return desc->product_type == HARK_BF16 && desc->kernel == HARK_KERNEL_EXP && HARK_LANES > 1;
}

/* First vector of lanes that sees any key of the group of row `key`, or a later one. Vectors before it are neither computed nor read. */
static inline int hark_dense_first_vector(const hark_dense_tile *tile, int key) {
  if (!tile->call->causal) return 0;
  const int64_t lane = key / HARK_KEY_GROUP * HARK_KEY_GROUP - tile->shift; /* first lane that sees it */
  return lane <= 0 ? 0 : (int)(lane / HARK_LANES);
}
/* The end of the keys that vector m computes. */
static inline int hark_dense_end(const hark_dense_tile *tile, int m) {
  int end = tile->keys;
  while (end > 0 && hark_dense_first_vector(tile, end - 1) > m) end--;
  return end;
}
static inline int hark_dense_vectors(const hark_dense_tile *tile) { return (tile->queries + HARK_LANES - 1) / HARK_LANES; }

/* True if causality or the window hide an entry of the tile. */
static inline bool hark_dense_tile_is_partial(const hark_dense_tile *tile) {
  const int64_t window = tile->call->window;
  if (tile->call->causal && tile->keys - 1 > tile->shift) return true;
  return window >= 0 && (tile->shift + tile->queries - 1 > window || tile->keys - 1 - tile->shift > window);
}

/* Rows of the tile's first query and key in the batch item. */
static inline int64_t hark_dense_query_row(const hark_dense_tile *tile) { return tile->sequence->query_row + tile->query; }
static inline int64_t hark_dense_key_row(const hark_dense_tile *tile) { return tile->sequence->key_row + tile->key; }

static inline const float *hark_dense_row(const hark_tensor *t, int64_t item, int64_t head, int64_t row) {
  return (const float *)t->data + item * t->stride[0] + head * t->stride[1] + row * t->stride[2];
}
static inline float *hark_dense_row_of(const hark_tensor *t, int64_t item, int64_t head, int64_t row) {
  return (float *)t->data + item * t->stride[0] + head * t->stride[1] + row * t->stride[2];
}

/* Computes the diagonal and the fields that depend on it; the tile's queries, keys and shift are set. */
void HARK_ISA(hark_dense_start_tile)(hark_dense_tile *tile);

/* The diagonal as the argument of a product of the tile's rows. */
static inline const float *hark_dense_diagonal(const hark_dense_tile *tile) {
  return tile->call->starts ? tile->diagonal + tile->keys - 1 : NULL;
}

/* The factor of terms: logits are in units of log 2, in which finite numbers may overflow (dense_exact.c). */
static inline float hark_dense_unit(const hark_dense_tile *tile) { return tile->terms_alone ? 0.25f * HARK_LOG2_E : HARK_LOG2_E; }

/* Finite terms below this are replaced by it. Then sums of all terms and a product are finite: only -infinity hides. */
static inline float hark_dense_least_term(const hark_dense_tile *tile) { return tile->terms_alone ? -FLT_MAX : -FLT_MAX / 8; }

/* Adds all terms that are not in the start, and hides entries by causality and window. True: some entry may be hidden. */
bool HARK_ISA(hark_dense_finish_logits)(const hark_dense_tile *tile);

/* ---- rows whose logits are in float64 (dense_exact.c) ---- */

/* A base or log-sum-exp in units of log 2 beyond which a row is exact: there rounding it changes a weight by 2^-16. */
#define HARK_DENSE_FAR 256.0f

/* The backward's data of such a row. */
typedef struct hark_dense_exact_row {
  double top, sum; /* highest logit in units of log 2, sum of 2^(S - top); separate, because 2^60 + 2 would round to 2^60 */
  int64_t leader;  /* the key with the largest weight, counted in the sequence; -1: the row is an ordinary one */
  double mean;     /* rbf without dropout: D = sum P dP, from the same weights, so that dS = P (dP - D) sums to zero; otherwise NaN */
} hark_dense_exact_row;

/* A tile of queries, with marks of the lanes that are such rows. */
typedef struct hark_dense_exact {
  const float *query;
  int64_t query_stride;
  const float *packed;             /* the queries as arguments of products */
  float square[HARK_TILE_QUERIES]; /* rbf: |q|^2 of the packed queries, in units; times `to_half`: half squares (distances.h) */
  float root[HARK_TILE_QUERIES];   /* of the half squares */
  float to_half, longest;          /* longest: the largest root */
  double *others;                  /* [keys][lanes]: sums of terms for the tile `others_of`; -infinity is hidden */
  float *one;                      /* one term */
  float *products;                 /* not rbf: products of that tile without terms */
  int64_t others_of;               /* the tile's first key, or -1 */
  bool any, is[HARK_TILE_QUERIES];
  double base[HARK_TILE_QUERIES]; /* subtracted from logits of such lanes: offset in the forward, top in the backward */
} hark_dense_exact;

/* Begins a tile of queries, packed as arguments of their products. memory: hark_dense_exact_floats(). */
void HARK_ISA(hark_dense_exact_begin)(const hark_dense_tile *tile, const float *queries, float *memory, hark_dense_exact *exact);
/* True if a pair of the tile may have a spread above the bound, or a lane is exact already. */
bool HARK_ISA(hark_dense_exact_possible)(const hark_dense_tile *tile, const hark_dense_exact *exact);
/* Finds lanes that need exact logits in this tile, from the given logits. bound: -infinity for lanes that have seen no key yet, whose
 * logits are compared with the largest among them; NULL: there are no such lanes. */
bool HARK_ISA(hark_dense_exact_find)(const hark_dense_tile *tile, const hark_dense_exact *exact, const float *bound, bool *found);
/* All logits of a lane in the tile, in units of log 2, -infinity where hidden. */
void HARK_ISA(hark_dense_exact_logits)(const hark_dense_tile *tile, hark_dense_exact *exact, const float *key, int64_t key_stride, int lane,
                                       double *logits);
/* |q|^2 / (2 sigma^2) of a lane; 0 unless rbf. */
double HARK_ISA(hark_dense_exact_half)(const hark_dense_tile *tile, const hark_dense_exact *exact, int lane);

/* rbf: -|k|^2 / (2 sigma^2) of the sequence's keys (dense_gates.c). */
const float *HARK_ISA(hark_dense_key_norms)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t key_head);
/* Backward: the exact rows of a sequence's queries, in call->exact_rows. */
static inline hark_dense_exact_row *hark_dense_exact_rows(const hark_dense_call *call, const hark_attention_sequence *sequence,
                                                          int64_t head) {
  return call->exact_rows + (sequence->item * call->heads + head) * call->query_rows + sequence->query_row;
}
static inline const float *hark_dense_log_sum_exp(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t head) {
  return (const float *)call->args->log_sum_exp.data + (sequence->item * call->heads + head) * call->query_rows + sequence->query_row;
}
/* True for a row whose given log-sum-exp has been rounded too much. */
static inline bool hark_dense_is_far(float log_sum_exp) {
  return fabsf(log_sum_exp) * HARK_LOG2_E > HARK_DENSE_FAR && fabsf(log_sum_exp) != INFINITY;
}
/* Finds the exact rows of a tile of queries, for the backward. */
void HARK_ISA(hark_dense_find_exact_rows)(const hark_dense_call *call, int64_t sequence, int64_t head, int64_t tile, void *memory);

/* Floats of `others`, `one` and `products`. Memory is aligned for float64. */
static inline size_t hark_dense_exact_floats(const hark_attention_desc *desc, bool backward) {
  const size_t tile = (size_t)HARK_TILE_KEYS * HARK_TILE_QUERIES;
  if (desc->kernel == HARK_KERNEL_RBF) return 3 * tile;
  return backward || desc->has_bias || desc->has_log_kernel || desc->has_forget || desc->contextual_positions > 0 ? 4 * tile : 0;
}

/* Sets dropped weights of the tile to zero and multiplies the others by the gain. */
void HARK_ISA(hark_dense_drop)(const hark_dense_tile *tile, float *weights);

/* Keys of the sequence that queries first .. first + queries see at most: *from <= key < *to, possibly none. */
void HARK_ISA(hark_dense_visible_keys)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t query, int64_t queries,
                                       int64_t *from, int64_t *to);

/* The keys of a sequence in chunk `chunk`; those of a part are in the chunks of the complete sequence. */
static inline void hark_dense_chunk(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t chunk, int64_t *from,
                                    int64_t *to) {
  const int64_t tiles = hark_ceil_div(call->whole_keys > 0 ? call->whole_keys : sequence->key_count, HARK_TILE_KEYS);
  const int64_t first = tiles * chunk / call->chunks * HARK_TILE_KEYS - call->keys_before,
                end = tiles * (chunk + 1) / call->chunks * HARK_TILE_KEYS - call->keys_before;
  *from = hark_max(0, hark_min(first, sequence->key_count));
  *to = hark_max(*from, hark_min(end, sequence->key_count));
}

/* Forward of one tile of queries; backward of one (sequence, key head, key range). */
void HARK_ISA(hark_dense_forward_tile)(const hark_dense_call *call, int64_t sequence, int64_t head, int64_t tile, void *memory);
size_t HARK_ISA(hark_dense_forward_bytes)(const hark_attention_desc *desc);
void HARK_ISA(hark_dense_backward_range)(const hark_dense_call *call, int64_t sequence, int64_t key_head, int64_t chunk, void *memory);
size_t HARK_ISA(hark_dense_backward_bytes)(const hark_attention_desc *desc);
/* Passes the gradients of the logits of some queries (at most a tile) and keys to one term's collect; writes no other gradient. */
void HARK_ISA(hark_dense_visit_gradients)(const hark_dense_call *call, const hark_dense_term *term, void *term_memory, int64_t sequence,
                                          int64_t head, int64_t query, int queries, int64_t key_from, int64_t key_to, void *memory);
/* For sequences of few rows, whose tiles would be mostly empty: forward and backward of one head (dense_short.c). */
#define HARK_SHORT_QUERIES 8
#define HARK_SHORT_KEYS 512
bool HARK_ISA(hark_dense_is_short)(const hark_dense_call *call, const hark_attention_sequence *sequence);
size_t HARK_ISA(hark_dense_short_bytes)(const hark_attention_desc *desc);
void HARK_ISA(hark_dense_short_forward)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t head, void *memory);
void HARK_ISA(hark_dense_short_backward)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t head, void *memory);
/* Sums the key ranges' parts of one tile of dquery. */
void HARK_ISA(hark_dense_gather_dquery)(const hark_dense_call *call, int64_t sequence, int64_t head, int64_t tile, void *memory);

#endif
