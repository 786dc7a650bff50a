/* memory.c - checks the memory of a call's arguments: written memory is separate from all other memory, and its elements from each other.
 *
 * Each algorithm reads, computes and writes tiles in its own order. With an output in the memory of an input, or of another output, the
 * numbers of both would be incorrect. Views of one buffer without a common element are allowed.
 */
#include <inttypes.h>
#include <stdio.h>

#include "attention/layer.h"
#include "core/overlap.h"

#define MOST_REGIONS 48
#define MOST_BLOCKS 8

typedef struct region_list {
  hark_region regions[MOST_REGIONS];
  hark_tensor blocks[MOST_BLOCKS]; /* memory without a shape */
  int count, block_count;
} region_list;

/* Regions with a common bit of `kin` may be the same. */
static void add_kin(region_list *list, const char *name, const hark_tensor *tensor, bool written, unsigned kin) {
  const hark_span span = hark_tensor_span(tensor);
  if (span.first == span.end) return;
  list->regions[list->count++] = (hark_region){name, tensor, span, written, kin};
}

static void add(region_list *list, const char *name, const hark_tensor *tensor, bool written) { add_kin(list, name, tensor, written, 0); }

static void add_bytes(region_list *list, const char *name, const void *data, size_t bytes, bool written) {
  hark_tensor *const block = &list->blocks[list->block_count++];
  *block = hark_bytes_tensor(data, bytes);
  add(list, name, block, written);
}

static void strides_text(const hark_tensor *tensor, char *text, size_t size) {
  hark_tensor strides = *tensor;
  for (int i = 0; i < tensor->rank; i++) strides.shape[i] = tensor->stride[i];
  (void)hark_shape_text(&strides, text, size);
}

/* `summed`: a stride of 0 requests the sum, not a repeated element. */
static hark_status check_apart(hark_context *context, const hark_region *region, bool summed) {
  hark_tensor elements = *region->tensor;
  for (int i = 0; summed && i < elements.rank; i++)
    if (elements.stride[i] == 0) elements.shape[i] = 1;
  if (!hark_tensor_repeats(&elements)) return HARK_OK;
  char shape[HARK_SHAPE_TEXT_BYTES], strides[HARK_SHAPE_TEXT_BYTES];
  strides_text(region->tensor, strides, sizeof strides);
  return hark_fail(context, HARK_INVALID_ARGUMENT,
                   "attention: %s %s has strides %s, by which two of its elements lie in one place, expected them apart: it is written",
                   region->name, hark_shape_text(region->tensor, shape, sizeof shape), strides);
}

/* Adds memory that a forward or a backward writes; `summed` as above. */
static hark_status add_written(hark_context *context, region_list *list, const char *name, const hark_tensor *tensor, bool summed,
                               unsigned kin) {
  const int before = list->count;
  add_kin(list, name, tensor, true, kin);
  return list->count > before ? check_apart(context, &list->regions[before], summed) : HARK_OK;
}

static hark_status add_outputs(hark_context *context, region_list *list, const hark_attention_args *args) {
  HARK_TRY(add_written(context, list, "out", &args->out, false, 0));
  HARK_TRY(add_written(context, list, "log_sum_exp", &args->log_sum_exp, false, 0));
  HARK_TRY(add_written(context, list, "variance", &args->variance, false, 0));
  HARK_TRY(add_written(context, list, "log_determinant", &args->log_determinant, false, 0));
  return add_written(context, list, "quadratic", &args->quadratic, false, 0);
}

/* Bits of `over`: gradients that may be in the memory of their input. */
static hark_status add_gradients(hark_context *context, region_list *list, const hark_attention_args *args, unsigned over) {
  const struct {
    const char *name;
    const hark_tensor *tensor;
    bool summed;
    unsigned kin;
  } gradients[] = {{"dquery", &args->dquery, false, over & HARK_ACCUMULATE_QUERY},
                   {"dkey", &args->dkey, false, over & HARK_ACCUMULATE_KEY},
                   {"dvalue", &args->dvalue, false, over & HARK_ACCUMULATE_VALUE},
                   {"dattention_bias", &args->dattention_bias, true, 0},
                   {"dlog_kernel", &args->dlog_kernel, true, 0},
                   {"dforget", &args->dforget, false, 0},
                   {"dhierarchical_bias", &args->dhierarchical_bias, true, 0},
                   {"dridge", &args->dridge, false, 0},
                   {"dsigma", &args->dsigma, false, 0},
                   {"dcontextual", &args->dcontextual, true, 0},
                   {"dnoise", &args->dnoise, false, 0}};
  for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
    HARK_TRY(add_written(context, list, gradients[i].name, gradients[i].tensor, gradients[i].summed, gradients[i].kin));
  add(list, "dout", &args->dout, false);
  add(list, "dvariance", &args->dvariance, false);
  add(list, "dlog_determinant", &args->dlog_determinant, false);
  add(list, "dquadratic", &args->dquadratic, false);
  add(list, "out", &args->out, false);
  add(list, "log_sum_exp", &args->log_sum_exp, false);
  return HARK_OK;
}

static void add_inputs(region_list *list, const hark_attention_args *args) {
  const size_t number = sizeof(int64_t), offsets = args->sequences > 0 ? ((size_t)args->sequences + 1) * number : number;
  add_kin(list, "query", &args->query, false, HARK_ACCUMULATE_QUERY);
  add_kin(list, "key", &args->key, false, HARK_ACCUMULATE_KEY);
  add_kin(list, "value", &args->value, false, HARK_ACCUMULATE_VALUE);
  add(list, "mask", &args->mask, false);
  add(list, "attention_bias", &args->attention_bias, false);
  add(list, "log_kernel", &args->log_kernel, false);
  add(list, "forget", &args->forget, false);
  add(list, "hierarchical_bias", &args->hierarchical_bias, false);
  add(list, "query_mask", &args->query_mask, false);
  add(list, "ridge", &args->ridge, false);
  add(list, "sigma", &args->sigma, false);
  add(list, "contextual", &args->contextual, false);
  add(list, "noise", &args->noise, false);
  add(list, "chunk_starts", &args->chunk_starts, false);
  add_bytes(list, "key_lengths", args->key_lengths, (size_t)args->query.shape[0] * number, false);
  add_bytes(list, "query_offsets", args->query_offsets, offsets, false);
  add_bytes(list, "key_offsets", args->key_offsets, offsets, false);
  add_bytes(list, "segments", args->segments, (size_t)(args->query.shape[0] * args->key.shape[2]) * number, false);
}

hark_status hark_attention_check_memory(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                        bool backward) {
  region_list list;
  int other = 0;
  list.count = list.block_count = 0;
  /* For programs written memory is always separate; the operator may ask for more (ops/in_place.h). */
  const unsigned over = plan->algorithm->gradients_in_place && plan->desc.query_length > context->rows.most ? ~args->accumulate : 0;
  HARK_TRY(backward ? add_gradients(context, &list, args, over) : add_outputs(context, &list, args));
  add_bytes(&list, "workspace", args->workspace, backward ? plan->sizes.backward_workspace : plan->sizes.forward_workspace, true);
  add_bytes(&list, "saved", args->saved, plan->sizes.saved, !backward);
  if (plan->desc.normalisation == HARK_NORMALISATION_CME && !backward) {
    /* a program that was built with an older hark has a shorter one */
    const bool iterates = plan->desc.solver == HARK_SOLVER_CONJUGATE_GRADIENTS;
    add_bytes(&list, "report", args->report, iterates ? sizeof *args->report : offsetof(hark_attention_report, iterations), true);
  }
  add_inputs(&list, args);
  const int shared = hark_regions_shared(list.regions, list.count, &other);
  if (shared < 0) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s and %s share memory, expected %s apart from all else of the call",
                   list.regions[shared].name, list.regions[other].name, list.regions[shared].name);
}
