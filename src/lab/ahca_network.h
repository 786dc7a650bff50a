/* ahca_network.h - small networks of adaptive hierarchical compressed attention for the experiments ahca-*, put together from the
 * operators.
 *
 *   x = embedding[token] (+ position in chunk)                       [T, d]        B sequences of M tokens
 *   chunks: every `chunk` rows, or learned                           K of them
 *   C1_k = pool(f(x)), C1 slots a chunk (learned: smoothed)          [K, C1, d]
 *   C2 = pool(W C1), min(C2, slots) a sequence; Cs of them selected
 *   h_k = C1_k + attention(norm C1_k, norm C2_S, log sigmoid of the score) Wo
 *   h_k += F_1(h_k);  l = 2 .. L_k: h_k += g F_l(h_k)
 *   logits: of every chunk from its slots, of every token from its chunk's slot, or of every position from its chunk's slots
 *
 * The model of the trainer is models/ahca.h; what the parts are: docs/mathematics/ahca.md.
 */
#ifndef HARK_LAB_AHCA_NETWORK_H
#define HARK_LAB_AHCA_NETWORK_H

#include <hark/operators.h>

#include "lab/training.h"
#include "nn/layers.h"

#define HARK_LAB_AHCA_LAYERS 4 /* at most */

typedef enum hark_lab_depth {
  HARK_LAB_DEPTH_FULL,
  HARK_LAB_DEPTH_LEARNED, /* capacity by a learned score, gates sigmoid(score) */
  HARK_LAB_DEPTH_RANDOM   /* capacity by a score drawn for every pass, no gates */
} hark_lab_depth;

typedef enum hark_lab_select {
  HARK_LAB_SELECT_SCORE,
  HARK_LAB_SELECT_NORM,
  HARK_LAB_SELECT_RANDOM /* drawn for every pass */
} hark_lab_select;

typedef enum hark_lab_reading {
  HARK_LAB_READ_MEAN,     /* a class of every chunk, from the mean of its slots */
  HARK_LAB_READ_FIRST,    /* a class of every chunk, from its first slot */
  HARK_LAB_READ_TOKENS,   /* a class of every token, from the first slot of its chunk */
  HARK_LAB_READ_POSITIONS /* of every token, from its position in the chunk, which asks the chunk's slots */
} hark_lab_reading;

typedef struct hark_lab_ahca_config {
  int64_t sequences, rows; /* B, M */
  int64_t vocabulary, classes, width, heads, layers;
  int64_t chunk; /* rows of a fixed chunk; of learned ones what they shall have on average */
  bool learned, smooth, straight;
  bool positions;           /* in the chunk, added to the tokens */
  bool two_layers;          /* f = linear, gelu, linear; else linear */
  int64_t slots;            /* C1 */
  int64_t secondary;        /* C2 */
  int64_t selected;         /* Cs; 0: no second level, chunks see themselves alone */
  bool primary_attention;   /* C1 learned queries pool a chunk; else averages */
  bool secondary_attention; /* C2 learned queries pool the second level; else averages */
  hark_lab_select select;
  hark_lab_depth depth;
  double capacity; /* of layers 2 .. L */
  double ratio_weight, ponder_weight;
  hark_lab_reading reading;
} hark_lab_ahca_config;

typedef struct hark_lab_ahca_attention {
  hark_linear query, key, value, output;
} hark_lab_ahca_attention;

typedef struct hark_lab_ahca_block {
  hark_norm_layer attention_norm, feed_forward_norm;
  hark_lab_ahca_attention attention;
  hark_feed_forward feed_forward;
} hark_lab_ahca_block;

typedef struct hark_lab_ahca {
  hark_lab_ahca_config config;
  hark_lab_training training;
  uint32_t run;
  int64_t tokens, targets, chunks; /* T, how many targets, K at most */
  int64_t real_chunks;             /* K of fixed chunks */
  double progress;                 /* of the training, 0 to 1: what the capacity follows */
  /* parameters */
  hark_parameter_id token_table, position_table, primary_queries, pool_queries, reading_table;
  hark_linear boundary_query, boundary_key, primary, primary_inner, primary_key, secondary, pool_key, score, depth_score, classes;
  hark_norm_layer secondary_norm, join_norm, depth_norm, reading_norm, final_norm;
  hark_lab_ahca_attention join, read;
  hark_feed_forward read_forward;
  hark_lab_ahca_block blocks[HARK_LAB_AHCA_LAYERS];
  /* what a pass reads */
  hark_tensor token_ids, target_ids, offsets, random_index, random_depth, permutation;
  int32_t *host_tokens, *host_targets, *host_index, *host_predicted;
  float *host_depth;
  bool permute; /* the slots of chunks are exchanged by `permutation` before they are read */
  /* what the last pass found out; 0 where it does not apply */
  hark_value chunk_rows, chunk_offsets, probability, index, selection_score, depth_of_chunks, logits, loss, predicted;
  double layer_operations; /* of layers 1 .. L, with what gathers and scatters their chunks */
} hark_lab_ahca;

/* Makes a batch: host_tokens and host_targets (one a chunk, or one a token) of the network, from the random numbers of one stream. */
typedef hark_status hark_lab_ahca_draw(hark_lab_ahca *network, uint32_t stream, void *user);

/* `run`, from 0 to 127, is the number of a network of an experiment: initial values and batches depend on it. Whatever happens, close
 * frees what is there. Errors: HARK_OUT_OF_MEMORY and those of the layers. */
HARK_MUST_CHECK hark_status hark_lab_ahca_open(hark_lab *lab, const hark_lab_ahca_config *config, uint32_t run, hark_lab_ahca *out);
void hark_lab_ahca_close(hark_lab_ahca *network);

/* `steps` steps on batches that draw makes; *loss, where not NULL, is the mean over the last tenth. */
HARK_MUST_CHECK hark_status hark_lab_ahca_train(hark_lab_ahca *network, int64_t steps, double peak, hark_lab_ahca_draw *draw, void *user,
                                                double *loss);

/* A pass over test batch number `batch`, which no training sees; what it read and predicted is in host_tokens, host_targets and
 * host_predicted, *loss, where not NULL, is its cross-entropy in nats. */
HARK_MUST_CHECK hark_status hark_lab_ahca_test(hark_lab_ahca *network, uint32_t batch, hark_lab_ahca_draw *draw, void *user, double *loss);

/* A pass of a hark_lab_ahca, for the functions of training.h. */
hark_status hark_lab_ahca_record(void *network, const hark_forward *forward, hark_value *loss);

/* A pass without gradients over tokens that the caller has put into token_ids. */
HARK_MUST_CHECK hark_status hark_lab_ahca_pass(hark_lab_ahca *network);

/* From shapes alone. */
HARK_MUST_CHECK hark_status hark_lab_ahca_needs(hark_lab_ahca *network, bool backward, hark_lab_needs *out);

/* Elements of a value of the last pass, to host memory of its type. */
HARK_MUST_CHECK hark_status hark_lab_ahca_read(hark_lab_ahca *network, hark_value value, void *out);

#endif
