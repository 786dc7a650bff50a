/* forward.h - what one pass through a model knows: where it is recorded, with which parameters, and what its random numbers depend on. */
#ifndef HARK_NN_FORWARD_H
#define HARK_NN_FORWARD_H

#include <hark/attention.h>
#include <hark/tape.h>

#include "nn/parameters.h"

/* Queries [B, L, heads * head_dim], keys and values [B, L, key_heads * head_dim] of this pass's tokens, turned by their positions, in the
 * backend's memory (NULL in a shape-only run), good during the call. A status other than HARK_OK ends the pass. */
typedef hark_status hark_attention_observer(void *user, int64_t layer, const hark_tensor *query, const hark_tensor *key,
                                            const hark_tensor *value);

/* Sequences one behind the other in [1, T] tokens, in place of rows of one length. */
typedef struct hark_packing {
  const int64_t
      *segments; /* host, [T]: a run of equal numbers is a sequence; borrowed until the backward is done. NULL in a shape-only run */
  const hark_tensor *positions; /* i32 [T]: of every token in its sequence, from 0 */
  int64_t longest;              /* tokens of a sequence, at most */
} hark_packing;

typedef struct hark_forward {
  hark_tape *tape;
  const hark_parameters *parameters;
  bool training;         /* dropout on, gradients wanted */
  uint64_t seed;         /* of dropout */
  uint64_t first_sample; /* global number of this pass's first row */
  uint32_t micro_step;
  const hark_packing *packing; /* NULL: rectangular */
  int64_t first_position;      /* of the first token: more than 0 when caches hold those before */
  int64_t reach; /* tokens that the text has with those to come, where it is read in parts; 0: those of this pass and before */
  hark_attention_plan *const *plans;   /* one a layer, for the sizes of this pass */
  struct hark_attention_cache *caches; /* one a layer, or NULL: keys and values of this pass alone */
  bool (*cancel)(void *user);          /* asked before every layer; true: the pass ends with HARK_CANCELLED. NULL: never */
  void *cancel_user;
  /* With caches: tables of the positional kernel, one a layer, several of which may be the same memory; of structure hierarchical their
   * means. NULL: made by the pass. */
  const hark_tensor *log_kernels;
  hark_attention_observer *observe; /* is told what every layer's attention gets; NULL: nobody */
  void *observe_user;
  hark_attention_report *report; /* of kernel ridge attention: counts what forwards mended; NULL: nobody asks */
} hark_forward;

/* A parameter as a value of the tape; 0 for id 0. */
HARK_MUST_CHECK hark_status hark_forward_parameter(const hark_forward *forward, hark_parameter_id id, hark_value *out);

/* Places of dropout in a model: each has random numbers of its own. */
typedef enum hark_dropout_place {
  HARK_DROPOUT_EMBEDDING,
  HARK_DROPOUT_ATTENTION_BRANCH,
  HARK_DROPOUT_FEED_FORWARD_BRANCH,
  HARK_DROPOUT_PLACES
} hark_dropout_place;

/* Dropout in training, nothing otherwise. Takes *value over and replaces it. */
HARK_MUST_CHECK hark_status hark_forward_dropout(const hark_forward *forward, double probability, int64_t layer, hark_dropout_place place,
                                                 hark_value *value);

/* y = a + b; both are released. */
HARK_MUST_CHECK hark_status hark_forward_add(const hark_forward *forward, hark_value a, hark_value b, hark_value *out);

#endif
