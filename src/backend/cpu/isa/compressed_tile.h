/* compressed_tile.h - shared by the files of "compressed tiled", compressed attention in f32: a head's rows, slots and globals in memory,
 * tiles of queries, and the blocks of keys that they meet.
 *
 * A tile is up to HARK_TILE_QUERIES rows of one chunk, the lanes of vectors. It meets blocks: keys near it, and globals. Logits are in
 * units of log 2 and include the logarithm of a slot's number of rows, its weight. The slots that a query selects are lists, one per lane.
 */
#ifndef HARK_BACKEND_CPU_ISA_COMPRESSED_TILE_H
#define HARK_BACKEND_CPU_ISA_COMPRESSED_TILE_H

#include <math.h>

#include "backend/attention_algorithm.h"
#include "backend/chunk_kernel.h"
#include "backend/chunks.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/dense_pack.h"
#include "backend/cpu/isa/tile_products.h"

#define HARK_COMPRESSED_KEYS 128 /* of a block at most */

typedef struct hark_compressed_call {
  hark_context *context;
  const hark_attention_call *run;
  const hark_attention_desc *desc;
  const hark_attention_args *args;
  bool backward;
  int head_dim, value_dim, head_pad, value_pad;
  int selected; /* slots that a query selects at most */
  float scale;
  float *saved; /* from forward to backward, or NULL */
  uint32_t dropout_threshold;
  float dropout_gain;
  hark_chunk_list list;
  double *kernel_sums;   /* backward (backend/chunk_kernel.h) */
  char *trees, *workers; /* memory of each: */
  size_t tree_bytes, worker_bytes;
} hark_compressed_call;

/* Keys with their values: rows, slots or globals. A weight is the logarithm, to base 2, of a number of unmasked rows; -infinity if there
 * are none. */
typedef struct hark_compressed_keys {
  float *key, *value, *weight; /* [n][d padded], [n][dv padded], [n] */
  float *count;                /* [n]: the number of rows; of slots and globals */
  float *dkey, *dvalue;        /* backward */
} hark_compressed_keys;

/* A (sequence, key head) and its current head. */
typedef struct hark_compressed_tree {
  const hark_compressed_call *call;
  const hark_attention_sequence *sequence;
  int64_t key_head, head;
  hark_chunks chunks;
  int64_t *piece, pieces;                     /* [pieces + 1]: the first chunks of pieces of work */
  bool finite;                                /* all keys, values and queries of the head, and in the backward its dout */
  hark_compressed_keys rows, slots, globals;  /* globals: [states][G] */
  float *query, *dout;                        /* of the head: [rows][d padded]; backward: [rows][dv padded] */
  int levels;                                 /* of the tables of log G; 0: there are none */
  float *log_sums;                            /* the tables of the head (compressed_kernel.c) */
  double highest;                             /* log G, by which the tables are lower */
  double *dlog_sums, *near_sums;              /* backward, if the gradient by log G is requested; else NULL */
  float *selected_weight, *selected_gradient; /* backward: [rows][selected]: F P and scale dS of the selected slots */
  float *selected_term;                       /* with dlog_sums: dS */
  uint32_t *users, *first_user;               /* backward: entries of these arrays by slot, and where those of a slot begin, [slots + 1] */
} hark_compressed_tree;

/* A row of the memory from forward to backward: 2 + 2 selected numbers. */
typedef struct hark_compressed_saved {
  float *top, *sum;        /* highest logit, and the sum of 2^(logit - top) */
  float *logits, *numbers; /* of the selected slots: [selected]; numbers are int32, -1: none */
} hark_compressed_saved;
static inline int64_t hark_compressed_saved_numbers(int64_t selected) { return 2 + 2 * selected; }
static inline hark_compressed_saved hark_compressed_saved_of(const hark_compressed_tree *tree, int64_t row) {
  const hark_compressed_call *call = tree->call;
  const int64_t rows = call->args->query.shape[2], index = (tree->sequence->item * call->desc->heads + tree->head) * rows;
  float *at = call->saved + (index + tree->sequence->query_row + row) * hark_compressed_saved_numbers(call->selected);
  return (hark_compressed_saved){at, at + 1, at + 2, at + 2 + call->selected};
}
static inline int32_t hark_compressed_number(const float *numbers, int i) {
  int32_t number;
  memcpy(&number, numbers + i, sizeof number);
  return number;
}

/* Rows first .. first + count of a chunk. */
typedef struct hark_compressed_tile {
  const hark_compressed_tree *tree;
  int64_t chunk, first;
  int count;
} hark_compressed_tile;

static inline int hark_compressed_vectors(const hark_compressed_tile *tile) { return (tile->count + HARK_LANES - 1) / HARK_LANES; }

/* Keys that all rows of a tile meet, except those after them; `first` is their index in the arrays. */
typedef struct hark_compressed_block {
  const hark_compressed_keys *keys;
  int64_t first;
  int count;
  int64_t state; /* of globals; -1: rows */
} hark_compressed_block;

/* The next block that a tile meets; *next: 0 at first. False: there are no more. */
bool HARK_ISA(hark_compressed_next_block)(const hark_compressed_tile *tile, int64_t *next, hark_compressed_block *block);

/* logits [keys][HARK_TILE_QUERIES] of a block, -infinity where hidden. queries: [d][HARK_TILE_QUERIES], times scale log2(e); start is added
 * to the logits of a lane. */
void HARK_ISA(hark_compressed_logits)(const hark_compressed_tile *tile, const hark_compressed_block *block, const float *queries,
                                      const float *start, float *logits);

/* ---- the kernel of the distance (compressed_kernel.c) ---- */

/* Tables of logarithms to base 2, for parts of 1, 2, 4, .. rows up to those of the longest slot: table k has, for each distance t, that of
 * the sum of G[t] .. G[t + 2^k - 1], as far as there are rows. Before the first distance and after the last one there is room for a
 * tile. */
static inline int64_t hark_compressed_table_width(int64_t rows) { return rows + 2 * HARK_TILE_QUERIES; }
static inline const float *hark_compressed_table(const hark_compressed_tree *tree, int level) {
  return tree->log_sums + level * hark_compressed_table_width(tree->chunks.rows) + HARK_TILE_QUERIES;
}
/* Tables for all slots that a call may have, and for those of a sequence. */
static inline int hark_compressed_levels_most(const hark_attention_desc *desc) {
  const int64_t rows = desc->has_chunk_starts != 0 ? desc->longest : hark_min(desc->chunk, desc->longest);
  return desc->has_log_kernel ? hark_chunk_part_levels(hark_ceil_div(rows, desc->chunk_slots)) : 0;
}
static inline int hark_compressed_levels(const hark_chunks *chunks) {
  int64_t rows = 1;
  for (int64_t c = 0; c + 2 < chunks->count; c++)
    rows = hark_max(rows, hark_ceil_div(chunks->start[c + 1] - chunks->start[c], chunks->slots));
  return hark_chunk_part_levels(rows);
}
/* Floats of a tree for the tables, and for their gradients. */
hark_status HARK_ISA(hark_compressed_kernel_floats)(hark_context *context, const hark_attention_desc *desc, int64_t rows, bool backward,
                                                    size_t *out);

/* Makes the tables of the tree's head. */
void HARK_ISA(hark_compressed_make_tables)(hark_compressed_tree *tree);

/* terms [HARK_TILE_QUERIES] <- of a slot for the rows of a tile: the logarithm of the sum of G over its unmasked rows. */
void HARK_ISA(hark_compressed_slot_terms)(const hark_compressed_tile *tile, int64_t slot, float *terms);

/* Gradients: of the logits [keys][HARK_TILE_QUERIES] of a block of near keys, to near_sums, which are cleared for each chunk; then all of
 * the head's, to kernel_sums. */
void HARK_ISA(hark_compressed_clear_near)(const hark_compressed_tree *tree, int64_t chunk);
void HARK_ISA(hark_compressed_collect_near)(const hark_compressed_tile *tile, const hark_compressed_block *block, const float *gradients);
void HARK_ISA(hark_compressed_collect_kernel)(const hark_compressed_tree *tree);

static const float hark_compressed_zeros[HARK_TILE_QUERIES] = {0};

/* logits <- products of `count` keys with the queries of a tile, and start, which has a number for every lane. */
static inline void hark_compressed_products(const hark_compressed_tile *tile, const float *keys, int count, const float *queries,
                                            const float *start, float *logits) {
  const hark_compressed_call *call = tile->tree->call;
  const hark_product p = {.a = queries,
                          .a_step = HARK_TILE_QUERIES,
                          .b = keys,
                          .b_row = call->head_pad,
                          .b_step = 1,
                          .c = logits,
                          .c_row = HARK_TILE_QUERIES,
                          .rows = count,
                          .end = call->head_dim,
                          .start = start};
  hark_tile_scores(&p, hark_compressed_vectors(tile));
}

/* A sum of rows of `width` features, each times a weight. Rows whose weight is 0 add nothing, whatever they have. */
typedef struct hark_compressed_sum {
  const float *weights;
  const int32_t *number; /* of the row; both are `step` apart */
  ptrdiff_t step;
  int count;
  const float *rows;
  int width; /* a multiple of the lanes */
} hark_compressed_sum;

#define HARK_COMPRESSED_SUMS 4 /* vectors of features whose sums are in registers together */
HARK_SIMD void hark_compressed_add_some(const int vectors, const hark_compressed_sum *s, int first, float *to) {
  vf sum[HARK_COMPRESSED_SUMS];
  HARK_UNROLL
  for (int m = 0; m < vectors; m++) sum[m] = vf_zero();
  HARK_ROLLED
  for (int i = 0; i < s->count; i++) {
    const float weight = s->weights[i * s->step], *row = s->rows + (int64_t)s->number[i * s->step] * s->width + first;
    if (weight == 0.0f) continue;
    HARK_UNROLL
    for (int m = 0; m < vectors; m++) sum[m] = vf_fma(vf_set(weight), vf_load(row + m * HARK_LANES), sum[m]);
  }
  HARK_UNROLL
  for (int m = 0; m < vectors; m++) vf_store(to + first + m * HARK_LANES, vf_load(to + first + m * HARK_LANES) + sum[m]);
}

/* to += the sum */
HARK_SIMD_NOINLINE void hark_compressed_add(const hark_compressed_sum *s, float *to) {
  int c = 0;
  for (; c + HARK_COMPRESSED_SUMS * HARK_LANES <= s->width; c += HARK_COMPRESSED_SUMS * HARK_LANES)
    hark_compressed_add_some(HARK_COMPRESSED_SUMS, s, c, to);
  for (; c < s->width; c += HARK_LANES) hark_compressed_add_some(1, s, c, to);
}

/* The slots that the rows of a tile select, as lists [selected][HARK_TILE_QUERIES]: logits and numbers. A lane's are the first `found`;
 * after them logits are -infinity, and numbers -1. */
typedef struct hark_compressed_selection {
  float *logits;
  const int32_t *number;
  int found[HARK_TILE_QUERIES], most; /* most: of all lanes */
} hark_compressed_selection;

/* While they are made: logits as whole numbers in the same order. */
typedef struct hark_compressed_lists {
  int32_t *order, *number;
} hark_compressed_lists;

#define HARK_COMPRESSED_SORTED 64 /* up to so many selected slots, lists are sorted */

/* logits: room for a block; memory: hark_compressed_select_floats(), aligned to a cache line. */
hark_compressed_selection HARK_ISA(hark_compressed_select)(const hark_compressed_tile *tile, const float *queries, float *logits,
                                                           float *memory);
size_t HARK_ISA(hark_compressed_select_floats)(const hark_attention_desc *desc);

/* 0 or the gain of dropout for every entry of a block, and for a query and a slot. */
void HARK_ISA(hark_compressed_kept)(const hark_compressed_tile *tile, const hark_compressed_block *block, float *factors);
float HARK_ISA(hark_compressed_keeps)(const hark_compressed_tree *tree, int64_t row, int64_t slot);

/* Floats of a tree over a sequence of `rows` rows. Those of shorter ones are at most as many. */
hark_status HARK_ISA(hark_compressed_tree_floats)(hark_context *context, const hark_attention_desc *desc, int64_t rows, bool backward,
                                                  size_t *out);
hark_compressed_tree HARK_ISA(hark_compressed_place)(const hark_compressed_call *call, int64_t sequence, int64_t key_head, float *memory);

/* Stages. A piece is a range of chunks with about HARK_COMPRESSED_PIECE rows or more. The rows of a piece give gradients to keys of this
 * piece and of the one before it, so that pieces with even numbers may run at the same time, and then those with odd ones. */
#define HARK_COMPRESSED_PIECE 256
typedef enum hark_compressed_stage {
  COMPRESSED_KEYS,     /* rows, slots */
  COMPRESSED_QUERIES,  /* queries and dout of the head */
  COMPRESSED_FORWARD,  /* tiles */
  COMPRESSED_BACKWARD, /* tiles, of even or odd pieces */
  COMPRESSED_USERS,    /* gradients of slots, from the queries that selected them */
  COMPRESSED_DIVIDE,   /* gradients of slots by their numbers of rows */
  COMPRESSED_GIVE      /* gradients of keys, to the caller */
} hark_compressed_stage;

/* Stages for one chunk. */
void HARK_ISA(hark_compressed_make_keys)(const hark_compressed_tree *tree, int64_t chunk);
void HARK_ISA(hark_compressed_make_queries)(const hark_compressed_tree *tree, int64_t chunk);
void HARK_ISA(hark_compressed_forward)(const hark_compressed_tree *tree, int64_t chunk, float *memory);
void HARK_ISA(hark_compressed_backward)(const hark_compressed_tree *tree, int64_t chunk, float *memory);
void HARK_ISA(hark_compressed_collect)(const hark_compressed_tree *tree, int64_t chunk);
void HARK_ISA(hark_compressed_divide)(const hark_compressed_tree *tree, int64_t chunk);
void HARK_ISA(hark_compressed_give)(const hark_compressed_tree *tree, int64_t chunk);

/* Stages for one global slot: its states, and the gradients that it gives to its slots, whose own are divided. memory: d + dv float64. */
void HARK_ISA(hark_compressed_make_global)(const hark_compressed_tree *tree, int64_t global, void *memory);
void HARK_ISA(hark_compressed_give_global)(const hark_compressed_tree *tree, int64_t global, void *memory);

/* Sorts the selected slots of a head's rows by slot. */
void HARK_ISA(hark_compressed_sort_users)(const hark_compressed_tree *tree);

bool HARK_ISA(hark_compressed_all_finite)(const hark_compressed_tree *tree);

/* Floats of a worker's tile. */
size_t HARK_ISA(hark_compressed_forward_floats)(const hark_attention_desc *desc);
size_t HARK_ISA(hark_compressed_backward_floats)(const hark_attention_desc *desc);

static inline const float *hark_compressed_row(const hark_tensor *t, int64_t item, int64_t head, int64_t row) {
  return (const float *)t->data + item * t->stride[0] + head * t->stride[1] + row * t->stride[2];
}

#endif
