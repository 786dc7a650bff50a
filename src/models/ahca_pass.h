/* ahca_pass.h - a pass of adaptive hierarchical compressed attention while it is recorded, and the functions that its parts share. See
 * ahca.h.
 *
 * Legend: T tokens of the pass, S sequences, K chunks, C1 and C2 slots of both levels, Cs selected tokens, I units that a layer runs on. A
 * unit is what goes through the layers: a chunk with its C1 slots, or a selected token alone. Extents are those that the data have; in a
 * run for shapes alone they are the most that may occur.
 */
#ifndef HARK_MODELS_AHCA_PASS_H
#define HARK_MODELS_AHCA_PASS_H

#include <hark/experimental.h>

#include "core/core.h"
#include "models/ahca.h"
#include "models/ahca_layers.h"

typedef struct hark_ahca_pass {
  hark_context *context;
  const hark_network *network;
  const hark_forward *forward;
  const hark_network_input *input;
  const hark_ahca_config *options;
  const hark_ahca_layers *layers;
  hark_ahca_sizes sizes;
  hark_tape *tape;
  bool traced;                           /* the decisions are requested */
  int64_t tokens, sequences, chunks;     /* T, S, K */
  hark_value offsets;                    /* of sequences in tokens */
  hark_value chunk_rows, chunk_offsets;  /* of chunks in tokens, of sequences in chunks */
  hark_value slot_rows, sequence_slots;  /* of chunks and of sequences in the K C1 slots */
  hark_value chunk_number, slot_number;  /* i32 [K, C1] */
  hark_value in_chunk;                   /* i32 [1, T]: of every token in its chunk; 0 without a table */
  hark_value probability;                /* of learned boundaries, settled */
  hark_value pooled;                     /* C2 [S, C2, d''], as pooled: what norm, query and medoids select by */
  hark_value global, global_offsets;     /* its norm, and offsets of sequences in its rows */
  hark_value selected, selected_offsets; /* Cs of C2 [S Cs, d''], of sequences */
  hark_value index;                      /* of the selected */
  hark_value score;                      /* learned, of the rows of C2; kept where the pass is traced */
  /* What units attend to: the selected tokens, or for these all of C2. */
  hark_value source, source_offsets, term; /* log sigmoid of their scores; 0: they have none */
  int64_t source_rows;                     /* of a sequence, at most */
  /* With a positional kernel: log G among the slots of a chunk; and of every chunk the places of the selected tokens, their terms, its
   * first pair. */
  hark_value slot_kernel, pair_place, pair_bias, pair_offsets;
  /* Units. */
  hark_value unit_offsets, unit_rows; /* of sequences in units and in their rows */
  int64_t units, unit_slots;
  hark_value depth_score, depth;
  int64_t at_depth[HARK_MAX_DEPTH]; /* units that have the layer, or may have it */
  hark_value penalty;
} hark_ahca_pass;

/* ---- ahca_parts.c ---- */

HARK_MUST_CHECK hark_status hark_ahca_apply(const hark_ahca_pass *p, const hark_operator *op, const void *attributes, int count,
                                            const hark_value *inputs, hark_value *out);
HARK_MUST_CHECK hark_status hark_ahca_apply_one(const hark_ahca_pass *p, const hark_operator *op, const void *attributes, hark_value input,
                                                hark_value *out);
HARK_MUST_CHECK hark_status hark_ahca_look_up(const hark_ahca_pass *p, hark_parameter_id table, hark_value ids, hark_value *out);
/* *x <- *x + table[ids]; nothing without a table. */
HARK_MUST_CHECK hark_status hark_ahca_add_table(const hark_ahca_pass *p, hark_parameter_id table, hark_value ids, hark_value *x);
HARK_MUST_CHECK hark_status hark_ahca_add_penalty(hark_ahca_pass *p, hark_penalty kind, hark_value penalty);
HARK_MUST_CHECK hark_status hark_ahca_gather(const hark_ahca_pass *p, int leading, hark_value x, hark_value index, hark_value *out);
/* kind: hark_ahca_pool, in the place of the attributes' own. */
HARK_MUST_CHECK hark_status hark_ahca_pool_segments(const hark_ahca_pass *p, int kind, hark_segment_pool_attributes attributes,
                                                    hark_value x, hark_value offsets, hark_value *out);

/* *list, of rank 1, <- its first `count` elements; where the run has no data it stays as long as it is. */
HARK_MUST_CHECK hark_status hark_ahca_shorten(const hark_ahca_pass *p, int64_t count, hark_value *list);
/* A number of a list of offsets, which has data; and the last one, `most` where the run has no data. */
HARK_MUST_CHECK hark_status hark_ahca_offset_at(const hark_ahca_pass *p, hark_value offsets, int64_t index, int64_t *out);
HARK_MUST_CHECK hark_status hark_ahca_last_offset(const hark_ahca_pass *p, hark_value offsets, int64_t most, int64_t *out);

/* Rows and features of a value. */
int64_t hark_ahca_rows(const hark_ahca_pass *p, hark_value value);
int64_t hark_ahca_width(const hark_ahca_pass *p, hark_value value);

/* Inputs of attention over ragged rows. */
typedef struct hark_ahca_ragged {
  hark_value query, key, value, bias, query_offsets, key_offsets;
  /* Of hark_ahca_cross_attend: i32, the rows of keys and values that are taken after their projection. 0: all in their order. */
  hark_value place;
  int64_t keys_of_a_query;
} hark_ahca_ragged;
HARK_MUST_CHECK hark_status hark_ahca_attend(const hark_ahca_pass *p, const hark_ahca_ragged *r, hark_value *out);
/* What attention within units, or of ragged rows, begins with. */
hark_attention_desc hark_ahca_describe(const hark_ahca_pass *p, int64_t width, int64_t value_width);
/* Attention with the projections of `attention`: r's query has the rows that attend, its key the rows attended to. *out: the output
 * projection. */
HARK_MUST_CHECK hark_status hark_ahca_cross_attend(const hark_ahca_pass *p, const hark_ahca_attention *attention, const hark_ahca_ragged *r,
                                                   hark_value *out);

/* ---- ahca_local.c: blocks on tokens; nothing where the model has none ---- */

/* *x [1, T, D], the embedded tokens, which are released, <- what is cut and compressed. Errors: HARK_INVALID_ARGUMENT where the pass has no
 * plans or no packing. */
HARK_MUST_CHECK hark_status hark_ahca_mix_tokens(const hark_ahca_pass *p, hark_value *x);

/* ---- ahca_depth.c: joins and layers ---- */

/* H of the units from what they begin with, which stays. */
HARK_MUST_CHECK hark_status hark_ahca_run_layers(hark_ahca_pass *p, hark_value begin, hark_value *out);

/* ---- ahca_positional.c: nothing where the model has no kernel ---- */

HARK_MUST_CHECK hark_status hark_ahca_place_selected(hark_ahca_pass *p);

/* ---- ahca_heads.c ---- */

/* Predictions from H [units, slots, d'], and from the embedded tokens x if tokens are predicted. Both stay. */
HARK_MUST_CHECK hark_status hark_ahca_head_apply(const hark_ahca_pass *p, hark_value x, hark_value h, hark_value *out);

#endif
