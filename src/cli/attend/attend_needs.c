/* attend_needs.c - see attend_needs.h. One table: a row for each reason for which a tensor cannot be used. */
#include "cli/attend/attend_needs.h"

#include <string.h>

#include "attention/layer.h"
#include "nn/kinds.h"

typedef struct need {
  const char *tensor;
  bool (*is_violated)(const hark_attend_values *values, const hark_attend_tensors *tensors); /* for a file that has the tensor */
  hark_status status;
  const char *text; /* after "tensor NAME" */
} need;

static bool is_hierarchical(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->structure == HARK_ATTEND_HIERARCHICAL;
}

static bool is_not_hierarchical(const hark_attend_values *v, const hark_attend_tensors *t) { return !is_hierarchical(v, t); }

static bool is_compressed(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->structure == HARK_ATTEND_COMPRESSED;
}

static bool is_not_compressed(const hark_attend_values *v, const hark_attend_tensors *t) { return !is_compressed(v, t); }

static bool is_picture(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->grid_columns > 0;
}

static bool is_cme(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->normalisation == HARK_ATTEND_CME;
}

static bool is_not_cme(const hark_attend_values *v, const hark_attend_tensors *t) { return !is_cme(v, t); }

static bool is_not_softmax(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->normalisation != HARK_ATTEND_SOFTMAX;
}

static bool is_not_exp(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->kernel != HARK_ATTEND_EXP;
}

static bool is_not_causal(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return !v->causal;
}

static bool has_odd_positions(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)v;
  return t->contextual.shape[1] < 2 || t->contextual.shape[1] > HARK_CONTEXTUAL_POSITIONS;
}

static bool is_not_rotary(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->rotary == 0;
}

static bool has_other_base(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->rotary_scaling == HARK_ROTARY_DYNAMIC;
}

static bool has_positional(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->positional.count > 0;
}

static bool has_offset(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)t;
  return v->has_query_offset && v->query_offset != 0;
}

static bool has_lengths(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)v;
  return t->key_lengths != NULL;
}

static bool has_two_lengths(const hark_attend_values *v, const hark_attend_tensors *t) {
  (void)v;
  return t->query.shape[2] != t->key.shape[2];
}

static bool is_hierarchical_with_two_lengths(const hark_attend_values *v, const hark_attend_tensors *t) {
  return is_hierarchical(v, t) && has_two_lengths(v, t);
}

static bool has_global_slots(const hark_attend_values *v, const hark_attend_tensors *t) {
  return is_compressed(v, t) && v->global_slots > 0;
}

static bool is_compressed_with_two_lengths(const hark_attend_values *v, const hark_attend_tensors *t) {
  return is_compressed(v, t) && has_two_lengths(v, t);
}

static bool masks_pairs(const hark_attend_tensors *t) { return t->mask.shape[1] != 1 || t->mask.shape[2] != 1; }

static bool masks_pairs_of_a_hierarchy(const hark_attend_values *v, const hark_attend_tensors *t) {
  return is_hierarchical(v, t) && masks_pairs(t);
}

static bool masks_pairs_of_slots(const hark_attend_values *v, const hark_attend_tensors *t) {
  return is_compressed(v, t) && masks_pairs(t);
}

static bool masks_pairs_of_cme(const hark_attend_values *v, const hark_attend_tensors *t) { return is_cme(v, t) && t->mask.shape[2] != 1; }

#define USAGE HARK_BAD_CONFIGURATION
#define INPUT HARK_BAD_FILE
static const need needs[] = {
    {"q", is_hierarchical_with_two_lengths, USAGE,
     "has another length than k, expected the same with --structure hierarchical: queries and keys share one hierarchy"},
    {"q", is_compressed_with_two_lengths, USAGE,
     "has another length than k, expected the same with --structure compressed: queries and keys share their chunks"},
    {"chunk_starts", is_not_compressed, USAGE, "needs --structure compressed"},
    {"hierarchical_bias", is_not_hierarchical, USAGE, "needs --structure hierarchical"},
    {"hierarchical_bias", is_picture, USAGE, "cannot be used with --grid-columns: it is indexed by one distance"},
    {"query_mask", is_not_hierarchical, USAGE, "needs --structure hierarchical"},
    {"attention_bias", is_hierarchical, USAGE,
     "cannot be used with --structure hierarchical, expected hierarchical_bias or log_kernel: coarse keys have no single entries"},
    {"attention_bias", is_compressed, USAGE, "cannot be used with --structure compressed: a slot has no attention_bias of its own"},
    {"attention_bias", is_cme, USAGE,
     "cannot be used with --normalisation cme, expected log_kernel: a kernel with a bias is not positive definite"},
    {"forget", is_hierarchical, USAGE, "cannot be used with --structure hierarchical: gates differ inside a cell"},
    {"forget", is_compressed, USAGE, "cannot be used with --structure compressed: gates differ inside a slot"},
    {"forget", is_cme, USAGE, "cannot be used with --normalisation cme: a kernel with gates is not symmetric"},
    {"forget", is_not_causal, USAGE, "needs --causal: gates are summed from a key up to a later query"},
    {"noise", is_not_cme, USAGE, "needs --normalisation cme"},
    {"dvariance", is_not_cme, USAGE, "needs --normalisation cme"},
    {"dlog_determinant", is_not_cme, USAGE, "needs --normalisation cme"},
    {"dquadratic", is_not_cme, USAGE, "needs --normalisation cme"},
    {"contextual", has_odd_positions, INPUT, "has too few or too many positions, expected shape [H or 1, N, d] with N from 2 to 2^20"},
    {"contextual", is_hierarchical, USAGE, "cannot be used with --structure hierarchical: its keys are cells, and positions count tokens"},
    {"contextual", is_compressed, USAGE, "cannot be used with --structure compressed: its keys are slots, and positions count tokens"},
    {"contextual", is_not_softmax, USAGE, "needs --normalisation softmax"},
    {"contextual", is_not_exp, USAGE, "needs --kernel exp"},
    {"contextual", is_not_causal, USAGE, "needs --causal: positions are counted from a query to earlier keys"},
    {"mask", masks_pairs_of_a_hierarchy, USAGE,
     "has heads or query rows, expected shape [B or 1, 1, 1, Lk] with --structure hierarchical: keys are masked before they are averaged"},
    {"mask", masks_pairs_of_slots, USAGE,
     "has heads or query rows, expected shape [B or 1, 1, 1, Lk] with --structure compressed: keys are masked before they are averaged"},
    {"mask", masks_pairs_of_cme, USAGE,
     "has query rows, expected shape [B or 1, H or 1, 1, Lk] with --normalisation cme: all queries share one factorisation"},
    {"log_kernel", is_picture, USAGE, "cannot be used with --grid-columns: it is a function of one distance"},
    {"log_kernel", has_global_slots, USAGE, "cannot be used with --global-slots: the rows of a global slot have ever more distances"},
    {"log_kernel", has_positional, USAGE, "and --positional are both given, expected one of them"},
    {"rotary_rates", is_not_rotary, USAGE, "needs --rotary BASE, which it replaces"},
    {"rotary_rates", has_other_base, USAGE, "cannot be used with --rotary-scaling dynamic, which changes the base"},
    {"segments", has_lengths, INPUT, "and tensor key_lengths are both given, expected one of them"},
    {"segments", has_two_lengths, INPUT, "is given, and q has another length than k, expected the same: a segment is both"},
    {"segments", has_offset, USAGE, "cannot be used with --query-offset: the first query of a segment is at its first key"},
};
#undef USAGE
#undef INPUT

static bool is_given(const hark_attend_tensors *t, const char *name) {
  const struct {
    const char *name;
    bool given;
  } tensors[] = {{"q", true},
                 {"hierarchical_bias", t->hierarchical_bias.type != HARK_NONE},
                 {"query_mask", t->query_mask.type != HARK_NONE},
                 {"chunk_starts", t->chunk_starts.type != HARK_NONE},
                 {"attention_bias", t->bias.type != HARK_NONE},
                 {"forget", t->forget.type != HARK_NONE},
                 {"contextual", t->contextual.type != HARK_NONE},
                 {"noise", t->noise.type != HARK_NONE},
                 {"dvariance", t->dvariance.type != HARK_NONE},
                 {"dlog_determinant", t->dlog_determinant.type != HARK_NONE},
                 {"dquadratic", t->dquadratic.type != HARK_NONE},
                 {"mask", t->mask.type != HARK_NONE},
                 {"log_kernel", t->log_kernel.type != HARK_NONE},
                 {"rotary_rates", t->rotary_rates.type != HARK_NONE},
                 {"segments", t->segments != NULL}};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    if (strcmp(tensors[i].name, name) == 0) return tensors[i].given;
  return false;
}

hark_status hark_attend_needs_check(hark_context *context, const hark_attend_values *values, const hark_attend_tensors *tensors) {
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (is_given(tensors, needs[i].tensor) && needs[i].is_violated(values, tensors))
      return hark_fail(context, needs[i].status, "tensor %s %s", needs[i].tensor, needs[i].text);
  if (is_picture(values, tensors) && has_positional(values, tensors))
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "--positional cannot be used with --grid-columns: a positional kernel is a function of one distance");
  return HARK_OK;
}
