/* forward.h - the settings of one pass through a model: the tape that records it, its parameters, and what its random numbers depend on. */
#ifndef HARK_NN_FORWARD_H
#define HARK_NN_FORWARD_H

#include <hark/attention.h>
#include <hark/tape.h>

#include "nn/parameters.h"

/* Attention that a pass is about to compute: the operator attention or kernel_ridge, with its attributes and inputs, which begin with
 * queries [B, L, heads * head_dim], keys and values [B, L, key_heads * head_dim] after rotary positions. Tensors are in the backend's
 * memory (data NULL in a shape-only run); all of it is valid during the call. */
typedef struct hark_attention_application {
  int64_t layer;
  const hark_operator *op;
  const void *attributes;
  int input_count;
  hark_tensor inputs[HARK_MAX_INPUTS]; /* type HARK_NONE: absent */
} hark_attention_application;
/* A status other than HARK_OK ends the pass. Passes with the caches of a hierarchy or of kernel ridge attention are not observed. */
typedef hark_status hark_attention_observer(void *user, const hark_attention_application *application);

/* Sequences one after the other in [1, T] tokens, instead of rows of one length. */
typedef struct hark_packing {
  const int64_t *segments; /* host, [T]: a run of equal numbers is a sequence; borrowed until the backward ends. NULL in a shape-only run */
  const hark_tensor *positions; /* i32 [T]: position of every token in its sequence, from 0 */
  int64_t longest;              /* tokens of the longest sequence */
} hark_packing;

/* A decoding whose tokens are in a pass with those of others: rows [first, first + count) of [1, T]. */
typedef struct hark_forward_member {
  const struct hark_forward *forward; /* its caches, plans, tables and position; the tape is that of the pass */
  int64_t first, count;
} hark_forward_member;

/* The decodings of a pass over [1, T] tokens, which cover its rows in their order. */
typedef struct hark_forward_group {
  const hark_forward_member *members;
  int64_t count;
  const hark_tensor *mixed; /* f32 [T, width of attention]: memory for what the members' attention gives; data NULL in a shape-only run */
} hark_forward_group;

typedef struct hark_forward {
  hark_tape *tape;
  const hark_parameters *parameters;
  bool training;         /* dropout on, gradients computed */
  bool rounds;           /* without training too: products from the roundings that the parameters have */
  uint64_t seed;         /* of dropout */
  uint64_t first_sample; /* global number of this pass's first row */
  uint32_t micro_step;
  const hark_packing *packing; /* NULL: rectangular */
  const hark_tensor *types;    /* i32, of the shape of the tokens: their types; only models with token types read it */
  int64_t first_position;      /* of the first token: above 0 when caches contain earlier tokens */
  int64_t slice_row, rows;     /* of a slice of a rectangular pass: its first row, and the rows in all; rows 0: no slice */
  const struct hark_sequence
      *sequence; /* whose rows are spread over processes: the pass is a slice, and attention exchanges messages; or NULL */
  /* i32 [n], the backend's memory, ascending: the rows of the pass's tokens whose logits are computed, [n, V], by architectures that
   * predict tokens; at least one. It outlives the backward. NULL: those of all tokens, [B, L, V] */
  const hark_tensor *logit_rows;
  int64_t reach;                       /* length of the whole text, where it is read in parts; 0: the tokens up to the end of this pass */
  hark_attention_plan *const *plans;   /* one per layer, for the sizes of this pass */
  struct hark_attention_cache *caches; /* one per layer, or NULL: attention to this pass's keys and values only */
  bool (*cancel)(void *user);          /* called before every layer; true: the pass ends with HARK_CANCELLED. May be NULL */
  void *cancel_user;
  /* With caches: tables of the positional kernel, one per layer (layers may share one); for structure hierarchical, the means of the
   * tables. NULL: the pass computes them. */
  const hark_tensor *log_kernels;
  /* Where chunks of compressed attention that end after delimiters begin. u8, of the shape of the tokens (chunk_starts in
   * hark/experimental.h); with caches i64 [K]: the first tokens of all chunks up to the end of this pass. */
  hark_value chunk_flags;
  const hark_tensor *chunk_starts;
  /* Learned boundaries of chunks (models/boundaries.h). With caches, `learn` receives queries and keys [1, T, width] of the boundaries, of
   * which `count` rows from `first` on are those of this pass, before `chunk_starts` is read. In training *ratio_loss receives the term of
   * the loss that keeps the mean length of chunks; NULL: it is not computed. sequence_weight: of a sequence in it. *boundaries receives
   * what was decided, which is then not released (without caches); NULL: not returned. boundary_reference: input of straight_through, for
   * tests; NULL: none. */
  hark_status (*learn)(void *user, const hark_tensor *query, const hark_tensor *key, int64_t first, int64_t count);
  void *learn_user;
  hark_value *ratio_loss;
  double sequence_weight;
  struct hark_boundary_values *boundaries;
  const hark_tensor *boundary_reference;
  hark_attention_observer *observe; /* receives every layer's attention; may be NULL */
  void *observe_user;
  const hark_forward_group
      *group;                    /* NULL: the pass is one text, or a batch; else `packing` has the positions, and each member its caches */
  hark_attention_report *report; /* of kernel ridge attention: counts the pivots that forwards corrected; may be NULL */
} hark_forward;

/* The value of a parameter on the tape; 0 for id 0. */
HARK_MUST_CHECK hark_status hark_forward_parameter(const hark_forward *forward, hark_parameter_id id, hark_value *out);

/* The products of linear layers are computed from bf16 operands: in training, or where requested, if the parameters have roundings. */
static inline bool hark_forward_rounds(const hark_forward *forward) {
  return (forward->training || forward->rounds) && forward->parameters->halves.type != HARK_NONE;
}
/* What linear layers read in place of x: its rounding to bf16, or x itself. Several layers may read one operand. The caller keeps x. */
HARK_MUST_CHECK hark_status hark_forward_operand(const hark_forward *forward, hark_value x, hark_value *operand);
/* Releases the operand unless it is x. */
void hark_forward_operand_release(const hark_forward *forward, hark_value x, hark_value operand);
/* Whether the parameter is held in bf16, f16 or i8. */
bool hark_forward_is_compact(const hark_forward *forward, hark_parameter_id id);
/* The scales of its rows on the tape; 0 for a parameter that has none. */
HARK_MUST_CHECK hark_status hark_forward_scale(const hark_forward *forward, hark_parameter_id id, hark_value *out);

/* *x [B, L, width] <- [n, width], its rows of forward->logit_rows, and *x is released; it stays as it is if there are none. */
HARK_MUST_CHECK hark_status hark_forward_take_logit_rows(const hark_forward *forward, hark_value *x);

/* Places of dropout in a model: each has its own random numbers. */
typedef enum hark_dropout_place {
  HARK_DROPOUT_EMBEDDING,
  HARK_DROPOUT_ATTENTION_BRANCH,
  HARK_DROPOUT_FEED_FORWARD_BRANCH,
  HARK_DROPOUT_PLACES
} hark_dropout_place;

/* Dropout in training; otherwise *value is unchanged. Releases *value when it replaces it. */
HARK_MUST_CHECK hark_status hark_forward_dropout(const hark_forward *forward, double probability, int64_t layer, hark_dropout_place place,
                                                 hark_value *value);

/* y = a + b; both are released. */
HARK_MUST_CHECK hark_status hark_forward_add(const hark_forward *forward, hark_value a, hark_value b, hark_value *out);

#endif
