/* ahca_config.h - what an AHCA model may be, apart from what all networks have. The words are in the order of the operators' enums. */
#ifndef HARK_MODELS_AHCA_CONFIG_H
#define HARK_MODELS_AHCA_CONFIG_H

#include <stdint.h>

#include "core/string_list.h"
#include "ops/chunk_ends.h"

#define HARK_AHCA_CHUNK_WORDS "fixed|delimiter|semantic|learned"
#define HARK_AHCA_BOUNDARY_WORDS "tokens|compressed"
#define HARK_AHCA_STRAIGHT_WORDS "before_norm|after_norm"
#define HARK_AHCA_POOL_WORDS "average|max|attention"
#define HARK_AHCA_SELECT_WORDS "score|norm|query|medoids"
#define HARK_AHCA_JOIN_WORDS "once|every"
#define HARK_AHCA_DEPTH_WORDS "capacity|paper"
#define HARK_AHCA_DEPTH_SCORE_WORDS "chunk|attention"
#define HARK_AHCA_HEAD_WORDS "data|classes|labels|reconstruction|regression"
#define HARK_AHCA_OUTPUT_WORDS "chunks|selected"
#define HARK_AHCA_LAYER_WORDS "block|linear"

typedef enum hark_ahca_chunk {
  HARK_AHCA_CHUNK_FIXED,
  HARK_AHCA_CHUNK_DELIMITER,
  HARK_AHCA_CHUNK_SEMANTIC,
  HARK_AHCA_CHUNK_LEARNED
} hark_ahca_chunk;
typedef enum hark_ahca_boundary { HARK_AHCA_BOUNDARY_TOKENS, HARK_AHCA_BOUNDARY_COMPRESSED } hark_ahca_boundary;
typedef enum hark_ahca_straight { HARK_AHCA_STRAIGHT_BEFORE_NORM, HARK_AHCA_STRAIGHT_AFTER_NORM } hark_ahca_straight;
typedef enum hark_ahca_pool { HARK_AHCA_POOL_AVERAGE, HARK_AHCA_POOL_MAX, HARK_AHCA_POOL_ATTENTION } hark_ahca_pool;
typedef enum hark_ahca_select {
  HARK_AHCA_SELECT_SCORE,
  HARK_AHCA_SELECT_NORM,
  HARK_AHCA_SELECT_QUERY,
  HARK_AHCA_SELECT_MEDOIDS
} hark_ahca_select;
typedef enum hark_ahca_join { HARK_AHCA_JOIN_ONCE, HARK_AHCA_JOIN_EVERY } hark_ahca_join;
typedef enum hark_ahca_depth { HARK_AHCA_DEPTH_CAPACITY, HARK_AHCA_DEPTH_PAPER } hark_ahca_depth;
typedef enum hark_ahca_depth_score { HARK_AHCA_DEPTH_SCORE_CHUNK, HARK_AHCA_DEPTH_SCORE_ATTENTION } hark_ahca_depth_score;
/* What is predicted. DATA: numbers where there are real vectors, else classes; the trainer replaces it with what its data need. */
typedef enum hark_ahca_head {
  HARK_AHCA_HEAD_DATA,
  HARK_AHCA_HEAD_CLASSES,        /* logits [S, classes] of sequences */
  HARK_AHCA_HEAD_LABELS,         /* logits [1, T, V] of tokens; each is its own query */
  HARK_AHCA_HEAD_RECONSTRUCTION, /* of the input tokens; queries have places alone */
  HARK_AHCA_HEAD_REGRESSION      /* numbers of sequences: [S, responses] from real vectors, [S, classes] from tokens */
} hark_ahca_head;
typedef enum hark_ahca_output { HARK_AHCA_OUTPUT_CHUNKS, HARK_AHCA_OUTPUT_SELECTED } hark_ahca_output;
typedef enum hark_ahca_layer_kind { HARK_AHCA_LAYER_BLOCK, HARK_AHCA_LAYER_LINEAR } hark_ahca_layer_kind;

#define HARK_AHCA_CAPACITIES 63 /* of all layers but the first */

typedef struct hark_ahca_config {
  int chunk;                                       /* hark_ahca_chunk */
  int64_t chunk_size;                              /* of fixed chunks; what learned ones are to have on average */
  int64_t chunk_minimum;                           /* rows, of the other rules; 0: a quarter of chunk_size */
  int64_t chunk_maximum;                           /* 0: four times chunk_size */
  int boundary;                                    /* hark_ahca_boundary: what learned boundaries are predicted from */
  int straight_through;                            /* hark_ahca_straight: where the head of tokens has the straight-through factor */
  int64_t delimiter;                               /* number of a token; -1: only the others */
  hark_string_list more_delimiters;                /* others: numbers of tokens or texts, as they are written */
  int32_t other_delimiters[HARK_DELIMITER_TOKENS]; /* no option: what was read of them, as in chunk_ends.h */
  int32_t other_delimiter_count;
  int64_t window;   /* SEMANTIC: rows on each side of a gap */
  double threshold; /* SEMANTIC: standard deviations above the mean */
  int64_t primary_slots, secondary_slots, selected;
  int primary_pool, secondary_pool;              /* hark_ahca_pool */
  int64_t primary_width, secondary_width;        /* 0: width; 0: primary_width */
  int select;                                    /* hark_ahca_select */
  int join;                                      /* hark_ahca_join */
  int depth, depth_score;                        /* hark_ahca_depth, hark_ahca_depth_score */
  double capacity;                               /* fraction of the chunks that continues to the next layer */
  hark_string_list capacities;                   /* fractions of the chunks that have layers 2 .., in place of powers of capacity */
  double layer_capacities[HARK_AHCA_CAPACITIES]; /* no option: what was read of them */
  int32_t capacity_count;                        /* 0: powers of capacity; else layers - 1 */
  double ratio_weight, ponder_weight;
  int head;                               /* hark_ahca_head */
  int output;                             /* hark_ahca_output: what goes through the layers */
  int layer;                              /* hark_ahca_layer_kind */
  int64_t primary_depth, secondary_depth; /* linear layers of both compressions, 1 or 2; 0: 1 */
  int64_t local_layers;                   /* blocks on the tokens, before they are cut */
  int64_t local_window;                   /* tokens on either side that a token attends to in them */
} hark_ahca_config;

#endif
