/* hierarchical_tile.h - shared by the parts of hierarchical attention: one head as levels of rows in memory, and the keys that a tile
 * meets.
 *
 * Lanes are queries: a tile is HARK_TILE_QUERIES tokens of a level (with exact queries: rows of the sequence). Its logits have the layout
 * [keys][HARK_TILE_QUERIES], in units of log 2. The keys that a tile meets come in groups of one block: nearly the same rows meet all keys
 * of a block, so that a group needs few vectors of lanes, and only its edges are masked. If blocks are half a vector, a group is all keys
 * that a vector of rows meets: as many products, a quarter of the groups.
 */
#ifndef HARK_BACKEND_CPU_ISA_HIERARCHICAL_TILE_H
#define HARK_BACKEND_CPU_ISA_HIERARCHICAL_TILE_H

#include <math.h>

#include "backend/cpu/cpu.h"
#include "backend/hierarchy_kernel.h"
#include "dense_pack.h"
#include "distances.h"
#include "philox.h"

/* Rows of features, in the caller's memory or ours. */
typedef struct hark_rows {
  float *data;
  int64_t stride;
} hark_rows;

/* One level of one head: tokens of queries and of keys. Rows in our memory are padded with zeros to whole vectors. */
typedef struct hark_level {
  int64_t queries, keys;                       /* tokens */
  hark_rows query, key, value;                 /* means (or first), means, sums */
  float *query_count, *key_count, *key_square; /* unmasked rows below a token; squared norms of keys (rbf) */
  hark_rows query_low, key_low;                /* rbf: rounding errors of far means (hierarchical_exact.h); no data: none */
  float *query_square;                         /* half squares, with query_lows */
  float *terms;                                /* terms of logits, by row - key; NULL: none */
  float *fine_terms;                           /* the same in float64 (hierarchical_exact.h) */
  hark_rows g, dquery, dkey, dvalue;           /* backward */
  float *least, *mean_gradient;                /* natural units */
  float *fine_least;                           /* the same in float64, one hark_fine_sum per token; filled if tree->is_far */
  double *dterms;                              /* sums of dS by row - key, [4 Nr - 1]; NULL: not requested */
} hark_level;

/* Terms of logits by distance, and their gradients (hierarchical_terms.c). */
typedef struct hark_hierarchical_tables {
  hark_hierarchy longest; /* among the call's sequences */
  double *means;          /* of the positional kernel, [rows of its table][levels][2 Nr] */
  int64_t slots;          /* number of separate sums over sequences */
  double *sums;           /* [slots][H][levels][4 Nr - 1], or NULL: no gradient is requested */
  double *work;           /* memory to compute means and their gradients, for one row of a table at a time */
  size_t work_doubles;
} hark_hierarchical_tables;

typedef struct hark_hierarchical_call {
  hark_context *context;
  const hark_attention_call *run;
  const hark_attention_desc *desc;
  const hark_attention_args *args;
  bool backward, exact, first, rbf, linear;
  bool query_lows; /* queries of coarse levels have remainders */
  int head_dim, value_dim, head_pad, value_pad;
  float scale;
  uint32_t dropout_threshold;
  float dropout_gain;
  bool spread;            /* one (sequence, key head) after another, each by all threads */
  int64_t windowed;       /* trees of at least so many rows are windowed */
  int64_t tokens, coarse; /* kept tokens of the longest hierarchy (size of the arrays of a tree); the same without level 0 */
  size_t tree_floats, tile_bytes, worker_bytes; /* of a worker: tiles, then a window */
  float *trees;
  char *workers;
  hark_hierarchical_tables tables;
  /* Rows that are spread over processes (hierarchical_spread.c). NULL: all are here. Otherwise this process has rows first_row .. end_row
   * of the sequences, of levels up to `shared` the tokens of its rows and `halo` (level 0: `halo_rows`) on both sides, of the levels above
   * all tokens. Tokens and rows have the numbers of the whole sequence. */
  const hark_attention_peers *peers;
  int64_t first_row, end_row, halo, halo_rows;
  int shared;
} hark_hierarchical_call;

/* The current head of a task. */
typedef struct hark_tree {
  const hark_hierarchical_call *call;
  const hark_attention_sequence *sequence;
  int64_t head, key_head;
  hark_hierarchy hierarchy;
  bool finite;    /* all keys and values are finite */
  bool hides;     /* some terms are -infinity */
  bool is_far;    /* backward: log-sum-exp of some rows is recomputed (hierarchical_exact.c) */
  bool far_terms; /* some terms are so large that their logits must be float64 */
  bool summing;   /* backward: log-sum-exps are recomputed, and only queries are needed of tokens */
  bool windowed;  /* levels 1 .. HARK_WINDOW_LEVELS are not kept */
  int64_t origin; /* row 0 is this row of the sequence: of a window */
  bool add_first; /* gradients of keys and values add to those of previous heads of the group */
  /* Backward with exact queries: hark_part_rows(), the number of such parts, and memory for contributions beyond a part's own tokens.
   * Otherwise 1 part. */
  int64_t part_rows, parts;
  float *reach;
  hark_level level[HARK_HIERARCHY_MAX_LEVELS];
} hark_tree;

/* Row `row` of a head of a tensor [B, H, L, d]. */
static inline hark_rows hark_rows_of(const hark_tensor *tensor, int64_t item, int64_t head, int64_t row) {
  return (hark_rows){(float *)tensor->data + item * tensor->stride[0] + head * tensor->stride[1] + row * tensor->stride[2],
                     tensor->stride[2]};
}

/* Tokens from .. to of a level that are in memory. */
typedef struct hark_held {
  int64_t from, to;
} hark_held;

/* Those of rows first .. end, of which a level with `tokens` has ceil(rows / 2^level). */
static inline hark_held hark_tokens_of_rows(int64_t first, int64_t end, int level, int64_t tokens) {
  const int64_t last = hark_min((end + ((int64_t)1 << level) - 1) >> level, tokens);
  return (hark_held){hark_min(first >> level, last), last};
}

static inline hark_held hark_held_tokens(const hark_hierarchical_call *call, const hark_hierarchy *h, int level) {
  const int64_t tokens = hark_hierarchy_tokens(h, level), halo = level == 0 ? call->halo_rows : call->halo;
  if (call->peers == NULL || level > call->shared) return (hark_held){0, tokens};
  const hark_held own = hark_tokens_of_rows(call->first_row, call->end_row, level, tokens);
  return (hark_held){hark_max(own.from - halo, 0), hark_min(own.to + halo, tokens)};
}

/* Memory of tokens from `from` on, as memory of tokens from 0 on, of which only the former may be used. By way of a number, because the
 * result need not be a part of the same memory. */
static inline float *hark_memory_from(float *memory, int64_t from, int64_t width) {
  return (float *)((uintptr_t)memory - (uintptr_t)(from * width) * sizeof(float));
}

/* Keys and values of spread rows have their neighbours' on both sides, in our memory. */
static inline bool hark_keys_in_place(const hark_tree *tree) {
  return tree->call->peers == NULL && tree->call->args->mask.type == HARK_NONE && tree->call->head_dim == tree->call->head_pad;
}
static inline bool hark_values_in_place(const hark_tree *tree) {
  return tree->call->peers == NULL && tree->call->args->mask.type == HARK_NONE && tree->call->value_dim == tree->call->value_pad;
}
static inline bool hark_queries_in_place(const hark_tree *tree) {
  return tree->call->args->query_mask.type == HARK_NONE && tree->call->head_dim == tree->call->head_pad;
}
/* The query of a cell is the query of its first row. */
static inline bool hark_first_queries_in_place(const hark_tree *tree) {
  return tree->call->peers == NULL && tree->call->first && hark_queries_in_place(tree);
}
/* Masked keys and hidden distances may leave a row that sees nothing. The gradient of such a row must not be read. */
static inline bool hark_gradients_in_place(const hark_tree *tree) {
  const hark_attention_args *args = tree->call->args;
  return args->query_mask.type == HARK_NONE && args->mask.type == HARK_NONE && !tree->hides &&
         tree->call->value_dim == tree->call->value_pad;
}

/* Margin of the tables of terms on both sides: hidden lanes of a tile may read beyond the distances that occur. */
#define HARK_TERM_MARGIN (2 * HARK_TILE_QUERIES + 16)
static inline int64_t hark_term_width(int64_t block) { return 4 * block - 1 + 2 * HARK_TERM_MARGIN; }
/* Index of row - key. */
static inline int64_t hark_term_at(int64_t block, int64_t difference) { return difference + 2 * block - 1 + HARK_TERM_MARGIN; }

/* True if the row is not masked; `axis` of the mask is that of the rows. */
static inline bool hark_is_unmasked(const hark_tensor *mask, int64_t item, int axis, int64_t row) {
  return mask->type == HARK_NONE || ((const uint8_t *)mask->data)[item * mask->stride[0] + row * mask->stride[axis]] != 0;
}

static inline bool hark_has_terms(const hark_attention_desc *desc) { return desc->has_hierarchical_bias || desc->has_log_kernel; }

/* Index of a task's separate memory, which exists once per task or per worker, whichever are fewer. */
static inline int64_t hark_task_slot(int64_t task, int64_t tasks, int worker, int workers) { return tasks < workers ? task : worker; }

/* Memory of the tables at the descriptor's maxima. */
hark_status HARK_ISA(hark_hierarchical_tables_bytes)(hark_context *context, const hark_attention_desc *desc, int workers, bool backward,
                                                     size_t *bytes);
/* Computes the kernel's means, and reserves memory for gradients by the tables. All other fields of `call` are set, also tables.longest. */
void HARK_ISA(hark_hierarchical_tables_open)(hark_hierarchical_call *call, bool gradients, double *memory);
/* Computes the terms of the logits of a head, and sets where their gradients are gathered. */
void HARK_ISA(hark_hierarchical_make_terms)(hark_tree *tree, int64_t slot);
void HARK_ISA(hark_hierarchical_tables_begin_slot)(const hark_hierarchical_call *call, int64_t slot, int64_t key_head);
/* Adds the gathered sums to the gradients of the tables. */
void HARK_ISA(hark_hierarchical_tables_give)(hark_hierarchical_call *call);

/* Keys first .. first + count of a level, met by rows of the tile in vectors from .. to. */
typedef struct hark_group {
  int level;
  int64_t first, turn; /* keys of blocks from `turn` on meet rows before them, others rows after; level 0: both */
  int count, from, to;
} hark_group;

#define HARK_GROUP_KEYS 64

/* Iterates over the groups of a tile of a level. */
typedef struct hark_group_walk {
  const hark_tree *tree;
  int level, shift;  /* rows are tokens of `level` - shift: 0, exact: level */
  bool by_vector;    /* blocks are half a vector: the keys that a vector of rows meets, of four successive blocks, are one group */
  int side;          /* 0: keys before the rows' blocks, and level 0; 1: keys after */
  int64_t row, rows; /* of the tile */
  int64_t key, last; /* the next key and the end on this side */
  int vector;        /* by_vector: the next one */
} hark_group_walk;

/* Lanes lo .. hi of the tile that meet a key of block `own` on this side. */
static inline void hark_lanes_of(const hark_group_walk *walk, int side, int64_t own, int64_t key, int *lo, int *hi) {
  const hark_hierarchy *h = &walk->tree->hierarchy;
  const int64_t block = h->block;
  int64_t from, to; /* tokens */
  if (walk->level == 0) {
    from = h->sibling ? (own & ~(int64_t)1) * block : (own - 1) * block;
    to = h->sibling ? ((own | 1) + 1) * block : (own + 2) * block;
    if (h->causal) from = hark_max(from, key);
  } else {
    const bool second_half = key - own * block >= block / 2;
    const int64_t first = side == 0 ? (own + 1) * block : (own - 1) * block;
    from = first;
    to = first + block;
    if (!h->sibling && side == 0 && second_half) from += block / 2;
    if (!h->sibling && side == 1 && !second_half) to -= block / 2;
    if (h->sibling && (own & 1) != side) to = from; /* the other side has no sibling */
  }
  from = from * ((int64_t)1 << walk->shift) - walk->row; /* multiplied, because it may be negative: no shift */
  to = to * ((int64_t)1 << walk->shift) - walk->row;
  *lo = (int)hark_max(0, hark_min(from, walk->rows));
  *hi = (int)hark_max(*lo, hark_min(to, walk->rows));
}

/* Lanes that meet each key of a group; none if the key is masked. */
typedef struct hark_group_lanes {
  int lo[HARK_GROUP_KEYS], hi[HARK_GROUP_KEYS];
} hark_group_lanes;

static inline void hark_lanes_of_group(const hark_group_walk *walk, const hark_group *group, hark_group_lanes *lanes) {
  const hark_hierarchy *h = &walk->tree->hierarchy;
  const float *count = walk->tree->level[group->level].key_count + group->first;
  const int64_t half = h->block / 2; /* where the lanes change */
  int64_t own = group->first / h->block, change = group->first;
  int lo = 0, hi = 0;
  for (int k = 0; k < group->count; k++) {
    const int64_t key = group->first + k;
    if (key == change || (group->level == 0 && h->causal)) {
      if (key == (own + 1) * h->block) own++;
      hark_lanes_of(walk, own >= group->turn, own, key, &lo, &hi);
      if (key == change) change = own * h->block + (key - own * h->block < half ? half : h->block);
    }
    lanes->lo[k] = count[k] == 0.0f ? 0 : lo;
    lanes->hi[k] = count[k] == 0.0f ? 0 : hi;
  }
}

static inline void hark_group_side(hark_group_walk *walk) {
  const hark_hierarchy *h = &walk->tree->hierarchy;
  const int64_t block = h->block, keys = walk->tree->level[walk->level].keys;
  const int64_t first = (walk->row >> walk->shift) / block, last = ((walk->row + walk->rows - 1) >> walk->shift) / block;
  if (walk->level == 0) {
    walk->key = (h->sibling ? first & ~(int64_t)1 : hark_max(first - 1, 0)) * block;
    walk->last = ((h->sibling ? last | 1 : last + 1) + 1) * block;
    if (h->causal) walk->last = walk->row + walk->rows;
  } else if (walk->side == 0) {
    walk->key = hark_max(first - 1, 0) * block;
    walk->last = last * block;
  } else {
    walk->key = (first + 1) * block;
    walk->last = (last + 2) * block;
  }
  walk->last = hark_min(walk->last, keys);
}

static inline hark_group_walk hark_groups_of(const hark_tree *tree, int level, int shift, int64_t row, int64_t rows) {
  hark_group_walk walk = {.tree = tree, .level = level, .shift = shift, .row = row, .rows = rows};
  walk.by_vector = shift == 0 && 2 * tree->hierarchy.block == HARK_LANES;
  if (!walk.by_vector) hark_group_side(&walk);
  return walk;
}

/* The keys of the next vector. If its rows are blocks 2 j and 2 j + 1, these are the keys of blocks 2 j - 1 to 2 j + 2. Each of them meets
 * one of the two blocks, or also, on level 0, rows of the tile in other vectors. */
static inline bool hark_group_of_vector(hark_group_walk *walk, hark_group *group) {
  const hark_hierarchy *h = &walk->tree->hierarchy;
  while (walk->vector * HARK_LANES < walk->rows) {
    const int vector = walk->vector++;
    const int64_t row = walk->row + vector * HARK_LANES, block = row / h->block;
    const int64_t first = h->sibling ? block : hark_max(block - 1, 0);
    int64_t end = (h->sibling ? block + 2 : block + 3) * h->block;
    if (h->causal) end = walk->level == 0 ? hark_min(row + HARK_LANES, walk->row + walk->rows) : (block + 1) * h->block;
    end = hark_min(end, walk->tree->level[walk->level].keys);
    if (first * h->block >= end) continue;
    *group = (hark_group){walk->level, first * h->block, block + 1, (int)(end - first * h->block), vector, vector + 1};
    return true;
  }
  return false;
}

static inline bool hark_group_next(hark_group_walk *walk, hark_group *group) {
  const int64_t block = walk->tree->hierarchy.block;
  if (walk->by_vector) return hark_group_of_vector(walk, group);
  for (;;) {
    while (walk->key < walk->last) {
      const int64_t key = walk->key, own = key / block;
      const int64_t end = hark_min(hark_min((own + 1) * block, walk->last), key + HARK_GROUP_KEYS);
      walk->key = end;
      /* The first and the last key of a block meet the most rows: rows of the first and of the second half. */
      int lo, hi, other_lo, other_hi;
      hark_lanes_of(walk, walk->side, own, key, &lo, &hi);
      hark_lanes_of(walk, walk->side, own, end - 1, &other_lo, &other_hi);
      if (lo >= hi) {
        lo = other_lo;
        hi = other_hi;
      } else if (other_lo < other_hi) {
        lo = other_lo < lo ? other_lo : lo;
        hi = other_hi > hi ? other_hi : hi;
      }
      if (lo >= hi) continue;
      const int64_t turn = walk->side == 0 ? own + 1 : own;
      *group = (hark_group){walk->level, key, turn, (int)(end - key), lo / HARK_LANES, (hi + HARK_LANES - 1) / HARK_LANES};
      return true;
    }
    if (walk->level == 0 || walk->side == 1 || walk->tree->hierarchy.causal) return false;
    walk->side = 1;
    hark_group_side(walk);
  }
}

/* Lanes lo <= lane < hi of the vector that begins at lane `base`. */
HARK_SIMD vm hark_lanes_between(int base, int lo, int hi) {
  const vi lane = (vi)vu_lane();
  return vm_and(vi_less((vi)vu_set((uint32_t)(lo - base - 1)), lane), vi_less(lane, (vi)vu_set((uint32_t)(hi - base))));
}

/* 0 or the gain for every entry of a group, [count][HARK_TILE_QUERIES], from the random word of the cell's first row and first key
 * (attention.h). A Philox counter has the words of four successive keys: four tokens of level 0, two of level 1. */
void HARK_ISA(hark_hierarchical_kept)(const hark_tree *tree, const hark_group_walk *walk, const hark_group *group, float *factors);

/* Groups whose tiles are stored one after another: at least all that a tile with blocks of 16 meets on one level. */
#define HARK_CHUNK_KEYS 128
#define HARK_CHUNK_GROUPS 64
typedef struct hark_chunk {
  hark_group group[HARK_CHUNK_GROUPS];
  hark_group_walk walk[HARK_CHUNK_GROUPS];
  int slot[HARK_CHUNK_GROUPS]; /* index in the tile at which the group's keys begin */
  int groups, keys;
} hark_chunk;

static inline bool hark_chunk_takes(const hark_chunk *chunk, const hark_group *group) {
  return chunk->keys + group->count <= HARK_CHUNK_KEYS && chunk->groups < HARK_CHUNK_GROUPS;
}
static inline void hark_chunk_add(hark_chunk *chunk, const hark_group_walk *walk, const hark_group *group) {
  chunk->group[chunk->groups] = *group;
  chunk->walk[chunk->groups] = *walk;
  chunk->slot[chunk->groups++] = chunk->keys;
  chunk->keys += group->count;
}

/* y[row] += sum over the chunk's keys of weights[key][row] rows[key], for the tile's rows below `limit`. `rows` are the keys or the values
 * of the groups' levels; values that are not finite are added only if the weight is not 0. clean: [HARK_CHUNK_KEYS][padded width]. */
void HARK_ISA(hark_hierarchical_mix)(const hark_tree *tree, const hark_chunk *chunk, bool values, const float *weights, float *clean,
                                     float *y, int64_t y_stride, int64_t limit);

/* Prefetches the rows for the next tile: HARK_TILE_QUERIES after this tile's own. */
static inline void hark_look_ahead(const hark_group *group, int64_t row, int64_t rows, const hark_rows *from, int64_t count, int features,
                                   hark_product_ahead *ahead) {
  const int64_t next = group->first + HARK_TILE_QUERIES;
  if (group->first < row || group->first >= row + rows || next >= count) return;
  *ahead = (hark_product_ahead){from->data + next * from->stride, from->stride, (int)hark_min(group->count, count - next), features};
}

void HARK_ISA(hark_hierarchical_forward_tiles)(const hark_tree *tree, int64_t root, int root_level, void *memory, float *window_memory);
size_t HARK_ISA(hark_hierarchical_worker_floats)(const hark_attention_desc *desc, bool backward);

/* The rows of a level are cut into pieces. A piece touches keys up to two blocks beyond its rows, at most half of the adjacent piece. So no
 * two even pieces touch the same keys: all even pieces may run at the same time, then all odd ones. A level follows the level above it. */
#define HARK_PIECE_ROWS 256
static inline int64_t hark_piece_rows(int64_t block) {
  return hark_ceil_div(hark_max(HARK_PIECE_ROWS, 4 * block), HARK_TILE_QUERIES) * HARK_TILE_QUERIES;
}
void HARK_ISA(hark_hierarchical_backward_piece)(const hark_tree *tree, int level, int64_t piece, void *memory);

/* A windowed tree does not keep levels 1 .. HARK_WINDOW_LEVELS: they are computed once to compute the next level, and again, in windows of
 * HARK_WINDOW_ROWS rows, when they are needed. A window is a tree whose row 0 is row `origin` of the sequence. Its own rows are first ..
 * last; before and after them are the keys that they meet on these levels, at most hark_window_reach() rows. */
#define HARK_WINDOW_LEVELS 2
#define HARK_WINDOW_ROWS (HARK_TILE_QUERIES << (HARK_WINDOW_LEVELS + 2)) /* rows of a tile of the second level above the windows */
#define HARK_WINDOWED_ROWS (8 * HARK_WINDOW_ROWS)                        /* rows of the shortest windowed tree */
typedef struct hark_window {
  hark_tree tree;
  hark_attention_sequence sequence;
  int64_t first, last;
} hark_window;
/* The keys that rows meet on these levels are within half of it. It is doubled so that pairs of blocks begin as in the whole tree. */
static inline int64_t hark_window_reach(int64_t block) { return 2 * block << HARK_WINDOW_LEVELS; }
/* True if the reaches of adjacent windows do not overlap, and windows begin where pairs of blocks begin. */
static inline bool hark_windows_fit(int64_t block) {
  return block <= HARK_WINDOW_ROWS && HARK_WINDOW_ROWS % (2 * hark_window_reach(block)) == 0;
}
size_t HARK_ISA(hark_hierarchical_window_floats)(int64_t block, size_t head_pad, size_t value_pad, bool backward, bool rbf);
/* The window `index` with its tokens. */
void HARK_ISA(hark_hierarchical_open_window)(const hark_tree *tree, int64_t index, float *memory, hark_window *window);

/* hark_attention_algorithm.products */
void HARK_ISA(hark_hierarchical_products)(hark_context *context, const hark_tensor *dout, const hark_tensor *out, float *products,
                                          int64_t stride);

/* Computes keys and values, or queries and the backward's data of their rows, from .. to of a level, from the level below. */
void HARK_ISA(hark_hierarchical_make_keys)(const hark_tree *tree, int level, int64_t from, int64_t to);
void HARK_ISA(hark_hierarchical_make_queries)(const hark_tree *tree, int level, int64_t from, int64_t to);
/* The same for the first level above the windows, through all levels below it; of these only level 0 is kept. */
void HARK_ISA(hark_hierarchical_make_through)(const hark_tree *tree, bool keys, int64_t from, int64_t to, float *memory);

/* Linear interpolation (hierarchical_linear.c). True if a token exists and has an unmasked query. */
bool HARK_ISA(hark_hierarchical_is_query)(const hark_tree *tree, int level, int64_t token);
/* A row's coefficients for the sums of tokens `token` and `token` + 1 of a level. */
typedef struct hark_linear_share {
  int64_t token;
  double weight[2];
} hark_linear_share;
/* Those for level + 1, from those for `level`. */
hark_linear_share HARK_ISA(hark_hierarchical_share_above)(const hark_tree *tree, int level, const hark_linear_share *share);
/* Computes the backward's data of a token of level >= 1 from rows 2 token - 1 .. 2 token + 1 of the level below. */
void HARK_ISA(hark_hierarchical_join_linear)(const hark_tree *tree, int level, int64_t token);

/* Backward: recomputes, in `least` and `fine_least`, the log-sum-exp of level 0's rows from .. to if the given one has lost digits. In a
 * windowed tree: of the rows of window `from`. */
void HARK_ISA(hark_hierarchical_exact_sums)(const hark_tree *tree, int64_t from, int64_t to, float *window_memory);
/* True if some row from .. to needs that. */
bool HARK_ISA(hark_hierarchical_any_far)(const hark_tree *tree, int64_t from, int64_t to);
/* Fills `fine_least` of the rows with the given log-sum-exps. */
void HARK_ISA(hark_hierarchical_begin_far_rows)(const hark_tree *tree, int64_t from, int64_t to);

/* All levels of a window's rows. Like the pieces of a level: even windows first, then odd ones. */
void HARK_ISA(hark_hierarchical_backward_window)(const hark_tree *tree, int64_t index, void *memory, float *window_memory);

/* Exact queries: a tile of rows adds to keys of all levels. The rows are cut into parts, so long that every token of every level belongs to
 * one part. All parts may run at the same time: their contributions to tokens beyond their own are gathered in separate memory,
 * [parts][levels][before, after][2 Nr][head_pad + value_pad], and added at the end, part after part. */
static inline int64_t hark_part_rows(const hark_hierarchy *h) {
  int64_t rows = 1024;
  while (rows < 32 * h->block || rows < (int64_t)1 << (h->levels - 1)) rows *= 2;
  return rows;
}
static inline int64_t hark_part_count(const hark_hierarchy *h) { return hark_ceil_div(h->length, hark_part_rows(h)); }
/* Upper bound of the floats of that memory, for this length and all shorter ones. The coarsest level has at most 2 Nr tokens, each of which
 * belongs to one part, so there are at most 2 Nr parts. */
size_t HARK_ISA(hark_hierarchical_reach_floats)(const hark_hierarchy *h, int head_pad, int value_pad);

/* In this order, each for all levels or parts: begin, the gradients of keys and values from .. to of a level; the rows of a part; gather,
 * the parts' contributions to a level's tokens beyond their own; hand_down, from the level above to keys from .. to, from the coarsest
 * level on. */
void HARK_ISA(hark_hierarchical_exact_begin)(const hark_tree *tree, int level, int64_t from, int64_t to);
void HARK_ISA(hark_hierarchical_exact_part)(const hark_tree *tree, int64_t part, void *memory);
void HARK_ISA(hark_hierarchical_exact_gather)(const hark_tree *tree, int level);
void HARK_ISA(hark_hierarchical_exact_hand_down)(const hark_tree *tree, int level, int64_t from, int64_t to);

static inline int hark_vectors_of(int64_t rows) { return (int)((rows + HARK_LANES - 1) / HARK_LANES); }

#endif
