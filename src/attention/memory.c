/* memory.c - checks the memory of a call's arguments: written memory is separate from all other memory, and its elements from each other.
 *
 * Each algorithm reads, computes and writes tiles in its own order. With an output in the memory of an input, or of another output, the
 * numbers of both would be incorrect. Views of one buffer without a common element are allowed.
 */
#include <inttypes.h>
#include <stdio.h>

#include "attention/layer.h"
#include "core/overlap.h"

#define MOST_REGIONS 32
#define MOST_BLOCKS 8

typedef struct region_list {
  hark_region regions[MOST_REGIONS];
  hark_tensor blocks[MOST_BLOCKS]; /* memory without a shape */
  int count, block_count;
} region_list;

static void add(region_list *list, const char *name, const hark_tensor *tensor, bool written) {
  const hark_span span = hark_tensor_span(tensor);
  if (span.first == span.end) return;
  list->regions[list->count++] = (hark_region){name, tensor, span, written, 0};
}

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
static hark_status add_written(hark_context *context, region_list *list, const char *name, const hark_tensor *tensor, bool summed) {
  const int before = list->count;
  add(list, name, tensor, true);
  return list->count > before ? check_apart(context, &list->regions[before], summed) : HARK_OK;
}

static hark_status add_outputs(hark_context *context, region_list *list, const hark_attention_args *args) {
  HARK_TRY(add_written(context, list, "out", &args->out, false));
  HARK_TRY(add_written(context, list, "log_sum_exp", &args->log_sum_exp, false));
  return add_written(context, list, "variance", &args->variance, false);
}

static hark_status add_gradients(hark_context *context, region_list *list, const hark_attention_args *args) {
  const struct {
    const char *name;
    const hark_tensor *tensor;
    bool summed;
  } gradients[] = {{"dquery", &args->dquery, false},
                   {"dkey", &args->dkey, false},
                   {"dvalue", &args->dvalue, false},
                   {"dattention_bias", &args->dattention_bias, true},
                   {"dlog_kernel", &args->dlog_kernel, true},
                   {"dforget", &args->dforget, false},
                   {"dhierarchical_bias", &args->dhierarchical_bias, true},
                   {"dridge", &args->dridge, false},
                   {"dsigma", &args->dsigma, false}};
  for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
    HARK_TRY(add_written(context, list, gradients[i].name, gradients[i].tensor, gradients[i].summed));
  add(list, "dout", &args->dout, false);
  add(list, "out", &args->out, false);
  add(list, "log_sum_exp", &args->log_sum_exp, false);
  return HARK_OK;
}

static void add_inputs(region_list *list, const hark_attention_args *args) {
  const size_t number = sizeof(int64_t), offsets = args->sequences > 0 ? ((size_t)args->sequences + 1) * number : number;
  add(list, "query", &args->query, false);
  add(list, "key", &args->key, false);
  add(list, "value", &args->value, false);
  add(list, "mask", &args->mask, false);
  add(list, "attention_bias", &args->attention_bias, false);
  add(list, "log_kernel", &args->log_kernel, false);
  add(list, "forget", &args->forget, false);
  add(list, "hierarchical_bias", &args->hierarchical_bias, false);
  add(list, "query_mask", &args->query_mask, false);
  add(list, "ridge", &args->ridge, false);
  add(list, "sigma", &args->sigma, false);
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
  HARK_TRY(backward ? add_gradients(context, &list, args) : add_outputs(context, &list, args));
  add_bytes(&list, "workspace", args->workspace, backward ? plan->sizes.backward_workspace : plan->sizes.forward_workspace, true);
  add_bytes(&list, "saved", args->saved, plan->sizes.saved, !backward);
  add_inputs(&list, args);
  const int shared = hark_regions_shared(list.regions, list.count, &other);
  if (shared < 0) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s and %s share memory, expected %s apart from all else of the call",
                   list.regions[shared].name, list.regions[other].name, list.regions[shared].name);
}
