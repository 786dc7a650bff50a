/* attention_choice.h - the attention of a model, in one struct that is passed whole from configurations to layers.
 *
 * A new member needs a row in models/model_options.h and its use in self_attention.c; no code between them copies single members.
 */
#ifndef HARK_NN_ATTENTION_CHOICE_H
#define HARK_NN_ATTENTION_CHOICE_H

#include <hark/attention.h>

#include "core/core.h"
#include "core/layer_choice.h"
#include "core/string_list.h"
#include "nn/kinds.h"
#include "ops/chunk_ends.h"

typedef struct hark_attention_choice {
  hark_layer_choice structure; /* hark_attention_structure of every layer */
  int64_t window;
  int64_t hierarchy_block;
  hark_hierarchy_partition partition;
  hark_coarse_query coarse_query;
  hark_hierarchy_interpolation interpolation;
  hark_attention_kernel kernel;
  double sigma;
  bool hierarchical_bias; /* learned, one table per head */
  bool forget_gate;
  bool unbiased;                   /* no biases in the projections, even if other layers have biases */
  hark_biased biased;              /* biases in the projections, where other layers have none */
  hark_layer_choice normalisation; /* hark_attention_normalisation of every layer */
  double ridge, ridge_power;       /* CME: lambda = ridge context^ridge_power; the initial value of every head where it is learned */
  bool ridge_learned, sigma_learned, unit;
  bool noise_learned;           /* CME: a noise of every key and head, from its token */
  double dropout;               /* of attention weights */
  int64_t contextual_positions; /* rows of the table of positions that are counted by content; 0: none */
  int64_t grid_columns;         /* structure hierarchical: columns of the pictures whose pixels are the tokens; 0: no pictures */
  /* structure compressed, as in hark_attention_desc */
  int64_t chunk, chunk_slots, selected_slots, kept_chunks, global_slots;
  /* structure compressed, where chunks end after delimiters: then `chunk` is the fewest tokens of a chunk */
  hark_string_list delimiters;                     /* numbers of tokens or texts, as they are written */
  int32_t chunk_delimiters[HARK_DELIMITER_TOKENS]; /* no option: what was read of them, as in chunk_ends.h */
  int32_t chunk_delimiter_count;
  int64_t chunk_maximum; /* 0: four times `chunk` */
  /* the same, where chunks begin by a learned probability */
  bool chunk_learned;
  int64_t chunk_mean;  /* intended tokens of a chunk; 0: twice `chunk` */
  double ratio_weight; /* of the loss that keeps the mean near it */
} hark_attention_choice;

/* Whether the chunks of compressed attention end after delimiters. */
static inline bool hark_attention_is_delimited(const hark_attention_choice *choice) { return choice->chunk_delimiter_count > 0; }

/* Whether the chunks of compressed attention have different numbers of tokens. */
static inline bool hark_attention_chunks_differ(const hark_attention_choice *choice) {
  return hark_attention_is_delimited(choice) || choice->chunk_learned;
}

/* The rule by which they end, apart from learned boundaries. The delimiters are borrowed. */
static inline hark_chunk_ends hark_attention_chunk_ends(const hark_attention_choice *choice) {
  return (hark_chunk_ends){.delimiters = choice->chunk_delimiters,
                           .delimiter_count = choice->chunk_delimiter_count,
                           .minimum = choice->chunk,
                           .maximum = choice->chunk_maximum > 0 ? choice->chunk_maximum : hark_min(4 * choice->chunk, (int64_t)1 << 20)};
}

/* The intended number of tokens of a chunk with learned boundaries. */
static inline int64_t hark_attention_chunk_mean(const hark_attention_choice *choice) {
  return choice->chunk_mean > 0 ? choice->chunk_mean : hark_min(2 * choice->chunk, hark_attention_chunk_ends(choice).maximum);
}

#endif
