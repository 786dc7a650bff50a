/* call_memory.c - see call_memory.h. */
#include "ops/call_memory.h"

#include <hark/operators.h>

#include "core/overlap.h"
#include "ops/in_place.h"

#define MOST_REGIONS (2 * HARK_MAX_INPUTS + 3 * HARK_MAX_OUTPUTS + HARK_MAX_SAVED + 1)

_Static_assert(HARK_MAX_INPUTS == 16, "names for all inputs");
_Static_assert(HARK_MAX_OUTPUTS == 4, "names for all outputs");
_Static_assert(HARK_MAX_SAVED == 4, "names for all that is saved");
static const char *const input_names[] = {"input 0", "input 1", "input 2",  "input 3",  "input 4",  "input 5",  "input 6",  "input 7",
                                          "input 8", "input 9", "input 10", "input 11", "input 12", "input 13", "input 14", "input 15"};
static const char *const gradient_names[] = {
    "the gradient of input 0",  "the gradient of input 1",  "the gradient of input 2",  "the gradient of input 3",
    "the gradient of input 4",  "the gradient of input 5",  "the gradient of input 6",  "the gradient of input 7",
    "the gradient of input 8",  "the gradient of input 9",  "the gradient of input 10", "the gradient of input 11",
    "the gradient of input 12", "the gradient of input 13", "the gradient of input 14", "the gradient of input 15"};
static const char *const output_names[] = {"output 0", "output 1", "output 2", "output 3"};
static const char *const output_gradient_names[] = {"the gradient of output 0", "the gradient of output 1", "the gradient of output 2",
                                                    "the gradient of output 3"};
static const char *const saved_names[] = {"saved 0", "saved 1", "saved 2", "saved 3"};

typedef struct region_list {
  hark_region regions[MOST_REGIONS];
  int count;
} region_list;

static void add(region_list *list, const char *name, const hark_tensor *tensor, bool written, unsigned kin) {
  if (tensor->type == HARK_NONE) return;
  const hark_span span = hark_tensor_span(tensor);
  if (span.first == span.end) return;
  list->regions[list->count++] = (hark_region){name, tensor, span, written, kin};
}

static void add_forward(region_list *list, const hark_call *call) {
  const hark_operator *op = call->op;
  for (int i = 0; i < op->output_count; i++) add(list, output_names[i], &call->outputs[i], true, i == 0 ? op->in_place : 0);
  for (int i = 0; i < HARK_MAX_SAVED; i++) add(list, saved_names[i], &call->saved[i], true, 0);
  for (int i = 0; i < call->input_count; i++) add(list, input_names[i], &call->inputs[i], op->updates >> i & 1u, 1u << i);
}

static void add_backward(const hark_context *context, region_list *list, const hark_call *call) {
  const hark_operator *op = call->op;
  const unsigned over = hark_gradients_in_place(context, op, call->attributes);
  for (int i = 0; i < call->input_count; i++) add(list, gradient_names[i], &call->input_gradients[i], true, over & 1u << i);
  for (int i = 0; i < op->output_count; i++) {
    add(list, output_gradient_names[i], &call->output_gradients[i], false, 0);
    if (op->backward_outputs >> i & 1u) add(list, output_names[i], &call->outputs[i], false, 0);
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) add(list, saved_names[i], &call->saved[i], false, 0);
  for (int i = 0; i < call->input_count; i++)
    if (op->backward_inputs >> i & 1u) add(list, input_names[i], &call->inputs[i], false, 1u << i);
}

static hark_status check_strides(hark_context *context, const hark_operator *op, const hark_region *region) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (hark_tensor_is_contiguous(region->tensor)) return HARK_OK;
  if (hark_operator_find(op->name) == op)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s %s is not contiguous", op->name, region->name,
                     hark_shape_text(region->tensor, text, sizeof text));
  if (!region->written || !hark_tensor_repeats(region->tensor)) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT,
                   "%s: %s %s has strides by which two of its elements are in one place, expected separate places, as it is written",
                   op->name, region->name, hark_shape_text(region->tensor, text, sizeof text));
}

static bool has_no_data(const hark_tensor *tensor) {
  return tensor->type != HARK_NONE && tensor->data == NULL && hark_tensor_count(tensor) > 0;
}

/* Whether an input is read: the inputs of a backward that it does not read may have no data. */
static bool is_read(const hark_operator *op, bool backward, int input) { return !backward || (op->backward_inputs >> input & 1u) != 0; }

/* The tensors that every call of the operator has. Their shapes are the caller's concern (infer). */
static hark_status check_complete(hark_context *context, const hark_call *call, bool backward) {
  const hark_operator *op = call->op;
  const int count = call->input_count;
  if (count < op->input_minimum || count > op->input_maximum)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: given %d inputs, expected %d to %d", op->name, count, op->input_minimum,
                     op->input_maximum);
  if (op->attributes_size > 0 && call->attributes == NULL)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: attributes are NULL, expected %zu bytes", op->name, op->attributes_size);
  for (int i = 0; i < count; i++) {
    if (!is_read(op, backward, i)) continue;
    if (i < op->input_minimum && call->inputs[i].type == HARK_NONE)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is absent, expected a tensor", op->name, input_names[i]);
    if (has_no_data(&call->inputs[i])) return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s has no data", op->name, input_names[i]);
  }
  for (int i = 0; i < op->output_count && !backward; i++)
    if (has_no_data(&call->outputs[i]) || (i == 0 && call->outputs[i].type == HARK_NONE))
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s has no data", op->name, output_names[i]);
  return HARK_OK;
}

hark_status hark_check_call_memory(hark_context *context, const hark_call *call, bool backward) {
  HARK_TRY(check_complete(context, call, backward));
  const hark_tensor workspace = hark_bytes_tensor(call->workspace, call->workspace_bytes);
  region_list list;
  int other = 0;
  list.count = 0;
  if (backward)
    add_backward(context, &list, call);
  else
    add_forward(&list, call);
  add(&list, "workspace", &workspace, true, 0);
  for (int i = 0; i < list.count; i++) HARK_TRY(check_strides(context, call->op, &list.regions[i]));
  const int shared = hark_regions_shared(list.regions, list.count, &other);
  if (shared < 0) return HARK_OK;
  const hark_region *written = &list.regions[shared], *with = &list.regions[other];
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s and %s share memory, expected separate memory%s", call->op->name, written->name,
                   with->name, (written->kin & with->kin) != 0 ? ", or the one exactly in the other's place" : "");
}
