/* layer.h - shared by the files of the attention layer: resolving descriptors, checking arguments, iterating over the sequences of a
 * batch. */
#ifndef HARK_ATTENTION_LAYER_H
#define HARK_ATTENTION_LAYER_H

#include <math.h>

#include "backend/backend.h"
#include "backend/ridge_terms.h"
#include "core/floating_point.h"

/* "dense", as options name it. */
const char *hark_attention_structure_name(hark_attention_structure structure);
const char *hark_attention_normalisation_name(hark_attention_normalisation normalisation);

/* Checks a caller's descriptor field by field and fills in its defaults. */
hark_status hark_attention_resolve(hark_context *context, const hark_attention_desc *given, hark_attention_desc *resolved);

/* The fields of normalisation CME: refused with another one, checked with it; and what STICK_BREAKING is not for. Part of
 * hark_attention_resolve(). */
hark_status hark_attention_resolve_ridge(hark_context *context, hark_attention_desc *desc);

/* Checks the memory of the arguments: written elements are separate from all others. Part of hark_attention_check(). */
hark_status hark_attention_check_memory(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                        bool backward);

/* The arguments of CME against the plan; part of hark_attention_check(). */
hark_status hark_attention_check_ridge(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                       bool backward);

/* Useful operations of CME at a descriptor's maxima. */
double hark_attention_ridge_operations(const hark_attention_desc *desc, bool backward);

/* The first algorithm of the context's backend that computes a resolved descriptor; otherwise HARK_UNSUPPORTED with every algorithm's
 * reason. */
hark_status hark_attention_choose(hark_context *context, const hark_attention_desc *resolved, const hark_attention_algorithm **out);

/* Checks a caller's arguments against the plan. `checked` is a copy in which mask, attention_bias and dattention_bias have stride 0
 * wherever their extent is 1; log_kernel, hierarchical_bias, query_mask and their gradients in a shared first dimension. */
hark_status hark_attention_check(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *given, bool backward,
                                 hark_attention_args *checked);

/* hark_attention_backward() with products of dout and out (hark_attention_algorithm.products), or NULL. With them the memory of `out` may
 * be that of `dout`. */
HARK_MUST_CHECK hark_status hark_attention_backward_of(hark_context *context, const hark_attention_plan *plan,
                                                       const hark_attention_args *args, const float *products);

/* *out: the plan for parts of this many rows of its sequences, which hark_attention_run_part() computes. */
HARK_MUST_CHECK hark_status hark_attention_plan_part(hark_context *context, const hark_attention_plan *plan, int64_t queries, int64_t keys,
                                                     hark_attention_plan *out);

/* The floating-point state for a pass; *before is for hark_floating_point_leave(). Subnormal results become zeros where they have no effect
 * but take time: in passes that the algorithm names, unless a scale near the ends of f32's range makes small numbers of all. */
static inline void hark_attention_hold(const hark_attention_plan *plan, bool backward, hark_floating_point *before) {
  const hark_attention_desc *desc = &plan->desc;
  const hark_attention_flush flush = plan->algorithm->flush;
  const bool asks = flush == HARK_FLUSH_ALWAYS || (backward && flush == HARK_FLUSH_BACKWARD);
  const bool usual = desc->normalisation == HARK_NORMALISATION_CME ? hark_ridge_may_flush(desc->scale, desc->bound, desc->unit)
                                                                   : fabs(desc->scale) >= 0x1p-60 && fabs(desc->scale) <= 0x1p60;
  hark_floating_point_hold_flushing(before, asks && usual);
}

/* hark_attention_forward() or hark_attention_backward() of parts of longer sequences; part NULL: of complete ones. */
HARK_MUST_CHECK hark_status hark_attention_run_part(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                                    bool backward, const hark_attention_part *part);

#define HARK_CONTEXTUAL_POSITIONS ((int64_t)1 << 20) /* at most; at least 2 */

/* With larger offsets, sums of positions and distances could overflow. */
#define HARK_ATTENTION_LARGEST_OFFSET ((int64_t)1 << 40)
static inline bool hark_attention_may_offset(int64_t query_offset) {
  return query_offset >= -HARK_ATTENTION_LARGEST_OFFSET && query_offset <= HARK_ATTENTION_LARGEST_OFFSET;
}

/* The largest distance |n - i| between a query of a sequence and a key that it may see; below 0: there is no such pair. Hierarchies:
 * between rows. */
int64_t hark_attention_farthest(const hark_attention_desc *desc, int64_t queries, int64_t keys, int64_t offset);

/* hark_attention_plan_distances() of a resolved descriptor, or of one with structure, normalisation, causal, lengths and the fields of the
 * structure set. */
int64_t hark_attention_table_length(const hark_attention_desc *desc, const int64_t *query_offset);

/* Iterates over the sequences of a batch in the order of items and rows. It skips sequences without queries, and those without keys unless
 * their rows have a result: a forward with variance, which is the prior variance there. */
typedef struct hark_attention_walk {
  const hark_attention_args *args;
  bool causal, keyless;
  int64_t item; /* of rectangular and segmented batches; ragged: the index of the sequence */
  int64_t row;  /* of segmented batches: the first row of the next run of ids */
} hark_attention_walk;

hark_attention_walk hark_attention_walk_start(const hark_attention_args *args, bool causal, bool backward);
bool hark_attention_walk_next(hark_attention_walk *walk, hark_attention_sequence *out);

/* Sets memory that the algorithm does not write to zero (log_sum_exp: -infinity): rows of out in no sequence; in the backward the same rows
 * of gradients that are not accumulated, and all of the gradients of bias, log_kernel and forget, to which algorithms then only add. */
hark_status hark_attention_clear(hark_context *context, const hark_attention_args *args, bool causal, bool backward);

#endif
