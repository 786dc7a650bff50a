/* grid_tile.h - shared by the files of "grid tiled", hierarchical attention over pictures in f32: a head's cells in memory, blocks, tiles.
 *
 * The cells of a level are stored block by block, row of blocks by row of blocks. Inside a block they are stored quarter by quarter,
 * because a quarter's cells have the same near cells on the level below (backend/grid.h), and inside a quarter row by row. Blocks and
 * quarters at the lower and right edge have only the cells that exist: nothing is padded to whole blocks.
 *
 *     side 4:    0  1  4  5       the cell's number in its block; at an edge with 3 columns:    0  1  4
 *                2  3  6  7                                                                     2  3  5
 *                8  9 12 13                                                                     6  7 10
 *               10 11 14 15                                                                     8  9 11
 *
 * A tile is up to HARK_TILE_QUERIES queries (cells or pixels) of one block, the lanes of vectors. It meets the blocks around its own: on
 * level 0 all cells of 3 x 3 blocks, above it 8 blocks less the quarters near the query's quarter, which are masked.
 */
#ifndef HARK_BACKEND_CPU_ISA_GRID_TILE_H
#define HARK_BACKEND_CPU_ISA_GRID_TILE_H

#include <math.h>

#include "backend/attention_algorithm.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/isa/dense_pack.h"
#include "backend/cpu/isa/dense_products.h"
#include "backend/cpu/isa/distances.h"
#include "backend/cpu/isa/tile_products.h"
#include "backend/grid.h"

#define HARK_GRID_MOST_BLOCK 256 /* cells */
#define HARK_GRID_NEIGHBOURS 9

typedef struct hark_grid_call {
  hark_context *context;
  const hark_attention_call *run;
  const hark_attention_desc *desc;
  const hark_attention_args *args;
  bool backward, exact;
  int head_dim, value_dim, head_pad, value_pad;
  float scale;
  uint32_t dropout_threshold;
  float dropout_gain;
  char *trees, *workers; /* memory of each: */
  size_t tree_bytes, worker_bytes;
} hark_grid_call;

typedef struct hark_grid_level {
  int64_t first; /* index of its first cell in the arrays */
  int64_t height, width;
  int64_t block_rows, block_columns;
} hark_grid_level;

/* A (sequence, key head) and its current head. "Rows" are its queries: cells of all levels, with exact queries of level 0 only. */
typedef struct hark_grid_tree {
  const hark_grid_call *call;
  const hark_attention_sequence *sequence;
  int64_t key_head, head;
  hark_grid grid;
  bool finite; /* all keys, values and queries of the head, and in the backward its dout */
  hark_grid_level level[HARK_GRID_MAX_LEVELS];
  float *key, *value, *key_count;            /* [cells][d padded], [cells][dv padded], [cells]: means, sums and numbers of unmasked keys */
  float *query, *query_count;                /* of rows */
  float *top, *sum, *mixed;                  /* forward, of rows above level 0: m in units of log 2, Z and Y [dv padded] relative to 2^m */
  float *g, *least, *mean_gradient, *dquery; /* backward, of rows: see grid_backward.c; `least` in units of log 2 */
  float *fine;                               /* a hark_grid_sum of every row: m in float64 */
  float *dkey, *dvalue;
} hark_grid_tree;

/* A log-sum-exp in units of log 2: the highest logit, and the logarithm of the sum of 2^(s - top). They are not added, because 2^60 + 2
 * would round to 2^60 in float64. */
typedef struct hark_grid_sum {
  double top;
  float log_sum;
} hark_grid_sum;
#define HARK_GRID_SUM_FLOATS 3

static inline hark_grid_sum hark_grid_sum_of(const hark_grid_tree *tree, int64_t row) {
  const float *from = tree->fine + row * HARK_GRID_SUM_FLOATS;
  hark_grid_sum sum;
  memcpy(&sum.top, from, sizeof sum.top);
  sum.log_sum = from[2];
  return sum;
}
static inline void hark_grid_set_sum(const hark_grid_tree *tree, int64_t row, hark_grid_sum sum) {
  float *to = tree->fine + row * HARK_GRID_SUM_FLOATS;
  memcpy(to, &sum.top, sizeof sum.top);
  to[2] = sum.log_sum;
}

/* A log-sum-exp in units of log 2 beyond which all logits of a row are float64 in the backward, so that its weights sum to one: 160 in
 * natural units, where its rounding changes each weight by 2^-17. */
#define HARK_GRID_FINE_FROM (160.0f * HARK_LOG2_E)
static inline bool hark_grid_is_fine(float log_sum) { return fabsf(log_sum) > HARK_GRID_FINE_FROM && fabsf(log_sum) != INFINITY; }

/* The logit of a row and a key cell in float64, in units of log 2. Not inline: a caller's multiply-add would round it otherwise. */
HARK_SIMD_NOINLINE double hark_grid_exact_logit(const hark_grid_tree *tree, int64_t row, int64_t key) {
  const hark_grid_call *call = tree->call;
  return call->desc->scale * HARK_DISTANCE_LOG2_E *
         hark_exact_product(tree->query + row * call->head_pad, tree->key + key * call->head_pad, call->head_dim);
}
/* Computes the log-sum-exp of a pixel's row again, entry by entry in float64. top: not finite if an entry is not. */
hark_grid_sum HARK_ISA(hark_grid_exact_sum)(const hark_grid_tree *tree, int64_t pixel);

/* Floats of a tree over a picture of `length` pixels. Those of shorter ones are at most as many. */
hark_status HARK_ISA(hark_grid_tree_floats)(hark_context *context, const hark_attention_desc *desc, int64_t length, bool backward,
                                            size_t *out);
/* True if all keys and values, and all queries and gradients of the current head, are finite. */
bool HARK_ISA(hark_grid_all_finite)(const hark_grid_tree *tree);
/* Sets the arrays of a tree in this memory. */
hark_grid_tree HARK_ISA(hark_grid_place_tree)(const hark_grid_call *call, int64_t sequence, int64_t key_head, float *memory);

/* A block of a level: the numbers of its cells, and the number in it at which each quarter begins (part[4]: its cells). */
typedef struct hark_grid_block {
  int64_t row, column; /* among the blocks of its level */
  int64_t first;       /* index of its first cell in the arrays */
  int height, width;
  int part[5];
} hark_grid_block;

static inline int hark_grid_clip(int64_t count, int most) { return count < 0 ? 0 : count < most ? (int)count : most; }

static inline hark_grid_block hark_grid_block_of(const hark_grid_tree *tree, int level, int64_t row, int64_t column) {
  const hark_grid_level *at = &tree->level[level];
  const int side = (int)tree->grid.side, half = side / 2;
  hark_grid_block block = {.row = row, .column = column};
  block.height = hark_grid_clip(at->height - row * side, side);
  block.width = hark_grid_clip(at->width - column * side, side);
  block.first = at->first + row * side * at->width + block.height * column * side;
  for (int q = 0; q < 4; q++)
    block.part[q + 1] =
        block.part[q] + hark_grid_clip(block.height - q / 2 * half, half) * hark_grid_clip(block.width - q % 2 * half, half);
  return block;
}

/* Index in the arrays of the cell (row, column) of a level. */
static inline int64_t hark_grid_index(const hark_grid_tree *tree, int level, int64_t row, int64_t column) {
  const int shift = tree->grid.shift, half = 1 << (shift - 1);
  const hark_grid_block block = hark_grid_block_of(tree, level, row >> shift, column >> shift);
  const int r = (int)(row & (tree->grid.side - 1)), c = (int)(column & (tree->grid.side - 1));
  const int q = r >> (shift - 1) << 1 | c >> (shift - 1);
  return block.first + block.part[q] + (r & (half - 1)) * hark_grid_clip(block.width - (c & half), half) + (c & (half - 1));
}

/* Rows and columns, inside the block, of its cells in their order. */
typedef struct hark_grid_places {
  uint8_t row[HARK_GRID_MOST_BLOCK], column[HARK_GRID_MOST_BLOCK];
} hark_grid_places;
void HARK_ISA(hark_grid_find_places)(const hark_grid_tree *tree, const hark_grid_block *block, hark_grid_places *places);

/* Row of the sequence of a cell's first pixel, by the cell's number in its block. */
static inline int64_t hark_grid_pixel(const hark_grid_tree *tree, int level, const hark_grid_block *block, const hark_grid_places *places,
                                      int cell) {
  const int64_t row = block->row * tree->grid.side + places->row[cell], column = block->column * tree->grid.side + places->column[cell];
  return (row << level) * tree->grid.stride + (column << level);
}
/* Index of the cell of the level above that contains it. */
static inline int64_t hark_grid_parent(const hark_grid_tree *tree, int level, const hark_grid_block *block, const hark_grid_places *places,
                                       int cell) {
  return hark_grid_index(tree, level + 1, (block->row * tree->grid.side + places->row[cell]) / 2,
                         (block->column * tree->grid.side + places->column[cell]) / 2);
}
/* Indices of the cells of the level below that it contains; returns their number, 1, 2 or 4. */
int HARK_ISA(hark_grid_children)(const hark_grid_tree *tree, int level, const hark_grid_block *block, const hark_grid_places *places,
                                 int cell, int64_t children[4]);

/* Rows `first` .. first + count of a block of `level`, which meet key cells of `key_level`: the same level, or with exact queries any. */
typedef struct hark_grid_tile {
  const hark_grid_tree *tree;
  int level, first, count;
  hark_grid_block block;
  hark_grid_places places; /* of the block's cells */
} hark_grid_tile;

static inline int64_t hark_grid_row(const hark_grid_tile *tile) { return tile->block.first + tile->first; }
static inline int hark_grid_vectors(const hark_grid_tile *tile) { return (tile->count + HARK_LANES - 1) / HARK_LANES; }

/* Blocks of keys whose tiles of logits are stored one after another. */
typedef struct hark_grid_chunk {
  hark_grid_block block[HARK_GRID_NEIGHBOURS];
  int slot[HARK_GRID_NEIGHBOURS + 1]; /* index in the tile at which the block's keys begin */
  int blocks;
} hark_grid_chunk;

/* Keys of the largest chunk. */
static inline int hark_grid_chunk_keys(int64_t block) { return (int)hark_min(HARK_GRID_NEIGHBOURS * block, HARK_GRID_MOST_BLOCK); }

/* The next blocks of keys of a level that a tile meets; `next`: 0 at first. False: there are no more. */
bool HARK_ISA(hark_grid_next_chunk)(const hark_grid_tile *tile, int key_level, int *next, hark_grid_chunk *chunk);

/* Blocks first .. the returned one (exclusive) have adjacent cells. */
static inline int hark_grid_end_of_run(const hark_grid_chunk *chunk, int first) {
  int next = first + 1;
  while (next < chunk->blocks && chunk->block[next].first == chunk->block[next - 1].first + chunk->block[next - 1].part[4]) next++;
  return next;
}

/* Sets the entries of a chunk's tile [keys][HARK_TILE_QUERIES] that do not exist: pairs that do not meet, and masked keys. */
void HARK_ISA(hark_grid_mask)(const hark_grid_tile *tile, int key_level, const hark_grid_chunk *chunk, float value, float *entries);

/* 0 or the gain of dropout for every entry of a chunk's tile, from the word of the cells' first pixels (attention.h). */
void HARK_ISA(hark_grid_kept)(const hark_grid_tile *tile, int key_level, const hark_grid_chunk *chunk, float *factors);

/* Pieces of work: squares of blocks of a level, at least two blocks high and wide. A piece's rows meet keys of the adjacent blocks, so that
 * pieces of one colour of four, by whether row and column of the piece are even, meet separate keys. */
static inline int64_t hark_grid_piece_side(const hark_grid *g) { return hark_max(2, 16 / g->side); }

typedef enum hark_grid_stage {
  GRID_KEYS,      /* cells of keys and values */
  GRID_QUERIES,   /* cells of queries */
  GRID_FORWARD,   /* tiles */
  GRID_GRADIENTS, /* the backward's data of rows */
  GRID_BACKWARD,  /* tiles whose keys are of this level */
  GRID_GIVE_KEYS  /* gradients of keys, to the level below or to the caller */
} hark_grid_stage;

/* Computes a stage for a block of a level. */
void HARK_ISA(hark_grid_make_keys)(const hark_grid_tree *tree, int level, const hark_grid_block *block);
void HARK_ISA(hark_grid_make_queries)(const hark_grid_tree *tree, int level, const hark_grid_block *block);
void HARK_ISA(hark_grid_make_gradients)(const hark_grid_tree *tree, int level, const hark_grid_block *block);
void HARK_ISA(hark_grid_give_keys)(const hark_grid_tree *tree, int level, const hark_grid_block *block);
void HARK_ISA(hark_grid_forward)(const hark_grid_tree *tree, int level, const hark_grid_block *block, float *memory);
void HARK_ISA(hark_grid_backward)(const hark_grid_tree *tree, int key_level, const hark_grid_block *block, float *memory);

/* Floats of a worker's tiles. */
size_t HARK_ISA(hark_grid_forward_floats)(const hark_attention_desc *desc);
size_t HARK_ISA(hark_grid_backward_floats)(const hark_attention_desc *desc);

/* C += B A for a weight matrix B. */
static inline void hark_grid_spread(const hark_grid_tree *tree, const hark_product *p, int width) {
  hark_tile_spread(tree->finite, p, width);
}

#endif
