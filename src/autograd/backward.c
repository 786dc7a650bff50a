/* backward.c - visits the tape from its end: runs every node's backward once all contributions to its outputs' gradients exist.
 *
 * The first contribution overwrites a gradient, the others add to it. If a record declares that a gradient passes unchanged, the memory is
 * shared; adding to shared memory copies it first. If a record allows it and nothing else needs the input any more, a gradient overwrites
 * its input.
 */
#include <hark/operators.h>
#include <string.h>

#include "autograd/tape_internal.h"
#include "backend/backend.h"
#include "ops/in_place.h"

void hark_tape_gradient_drop(hark_tape *tape, hark_value number) {
  tape_value *value = tape_value_at(tape, number);
  if (value->gradient_storage == 0) return;
  hark_tape_storage_drop(tape, value->gradient_storage);
  value->gradient_storage = 0;
  value->gradient = (hark_tensor){0};
}

void hark_tape_gradient_set(hark_tape *tape, hark_value number, int32_t storage) {
  tape_value *value = tape_value_at(tape, number);
  value->gradient = tape_gradient_like(&value->tensor);
  value->gradient.owned_bytes = 0;
  value->gradient.data = tape_storage_memory(tape, storage);
  value->gradient_storage = storage;
}

hark_status hark_tape_gradient_own(hark_tape *tape, hark_value number) {
  const int32_t shared = tape_value_at(tape, number)->gradient_storage;
  if (tape->storages[shared].references == 1) return HARK_OK;
  const size_t bytes = tape_tensor_bytes(&tape_value_at(tape, number)->gradient);
  int32_t storage = 0;
  HARK_TRY(hark_tape_storage_take(tape, bytes, &storage));
  if (!tape->pool->shape_only)
    HARK_TRY(hark_backend_copy(tape->context, tape_storage_memory(tape, storage), tape_storage_memory(tape, shared), bytes));
  hark_tape_gradient_set(tape, number, storage);
  hark_tape_storage_drop(tape, shared);
  return HARK_OK;
}

/* True if only the node keeps the input's memory, so that its gradient may be written there. */
static bool may_overwrite_input(const hark_tape *tape, const tape_node *node, int i) {
  const tape_value *value = tape_value_at(tape, node->inputs[i]);
  const unsigned over = hark_gradients_in_place(tape->context, node->op, node->attributes);
  return (over >> i & 1u) && !value->held && node->kept[i] != 0 && tape->storages[node->kept[i]].references == 1;
}

/* Prepares the gradient of input i in the call. *passed: whether it was passed on without a computation. */
static hark_status prepare_gradient(hark_tape *tape, const tape_node *node, int i, hark_call *call, bool *passed) {
  *passed = false;
  const hark_value number = node->inputs[i];
  const bool leaf = tape_value_at(tape, number)->storage == 0;
  const bool exists = leaf || tape_value_at(tape, number)->gradient_storage != 0;
  const hark_tensor passed_on = tape_value_at(tape, node->outputs[0])->gradient;
  if (!exists && (node->op->gradient_passes >> i & 1u) && passed_on.type == tape_gradient_like(&tape_value_at(tape, number)->tensor).type) {
    const int32_t storage = tape_value_at(tape, node->outputs[0])->gradient_storage;
    hark_tape_storage_hold(tape, storage);
    hark_tape_gradient_set(tape, number, storage);
    *passed = true;
    return HARK_OK;
  }
  if (exists) {
    if (!leaf) HARK_TRY(hark_tape_gradient_own(tape, number));
    call->accumulate |= 1u << i;
  } else if (may_overwrite_input(tape, node, i)) {
    hark_tape_storage_hold(tape, node->kept[i]);
    hark_tape_gradient_set(tape, number, node->kept[i]);
  } else {
    int32_t storage = 0;
    const hark_tensor like = tape_gradient_like(&tape_value_at(tape, number)->tensor);
    HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(&like), &storage));
    hark_tape_gradient_set(tape, number, storage);
  }
  call->input_gradients[i] = tape_value_at(tape, number)->gradient;
  return HARK_OK;
}

/* True if an earlier input of the node is the same value: kernels write all gradients at once, so this one first needs separate memory. */
static bool is_repeated(const tape_node *node, int i) {
  for (int j = 0; j < i; j++)
    if (node->inputs[j] == node->inputs[i] && (node->op->differentiable >> j & 1u)) return true;
  return false;
}

hark_status hark_tape_add(hark_tape *tape, const hark_tensor *gradient, const hark_tensor *extra) {
  const hark_call call = {.op = &hark_op_add, .input_count = 2, .inputs = {*gradient, *extra}, .outputs = {*gradient}};
  return tape->pool->shape_only ? HARK_OK : hark_operator_forward(tape->context, &call);
}

/* The value's tensor, without its data unless the backward may read it. */
static hark_tensor described(const hark_tape *tape, hark_value number, bool readable) {
  hark_tensor tensor = tape_value_at(tape, number)->tensor;
  if (!readable) tensor.data = NULL;
  return tensor;
}

static hark_status run_node(hark_tape *tape, const tape_node *node) {
  const hark_operator *op = node->op;
  hark_call call = {.op = op, .attributes = node->attributes, .input_count = node->input_count};
  for (int i = 0; i < node->input_count; i++)
    if (node->inputs[i] != 0) call.inputs[i] = described(tape, node->inputs[i], op->backward_inputs >> i & 1u);
  bool any = false;
  for (int i = 0; i < node->output_count; i++) {
    call.outputs[i] = described(tape, node->outputs[i], op->backward_outputs >> i & 1u);
    call.output_gradients[i] = tape_value_at(tape, node->outputs[i])->gradient;
    any = any || call.output_gradients[i].type != HARK_NONE;
  }
  if (!any) return HARK_OK;
  memcpy(call.saved, node->saved, sizeof call.saved);
  int computed = 0;
  int32_t repeated[HARK_MAX_INPUTS] = {0};
  for (int i = 0; i < node->input_count; i++) {
    if (node->inputs[i] == 0 || !(op->differentiable >> i & 1u) || !tape_value_at(tape, node->inputs[i])->needs_gradient) continue;
    bool passed = false;
    if (is_repeated(node, i)) {
      call.input_gradients[i] = tape_gradient_like(&tape_value_at(tape, node->inputs[i])->tensor);
      HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(&call.input_gradients[i]), &repeated[i]));
      call.input_gradients[i].data = tape_storage_memory(tape, repeated[i]);
      computed++;
      continue;
    }
    HARK_TRY(prepare_gradient(tape, node, i, &call, &passed));
    if (!passed) computed++;
  }
  if (computed == 0) return HARK_OK;
  hark_pool_memory workspace;
  HARK_TRY(hark_pool_take(tape->pool, node->backward_workspace, &workspace));
  call.workspace = workspace.memory;
  call.workspace_bytes = node->backward_workspace;
  if (!tape->pool->shape_only) HARK_TRY(hark_operator_backward(tape->context, &call));
  hark_pool_give(tape->pool, &workspace);
  for (int i = 0; i < node->input_count; i++) {
    if (repeated[i] == 0) continue;
    /* adding needs a private first gradient; passing gradients on may have shared it */
    if (tape_value_at(tape, node->inputs[i])->storage != 0) HARK_TRY(hark_tape_gradient_own(tape, node->inputs[i]));
    HARK_TRY(hark_tape_add(tape, &tape_value_at(tape, node->inputs[i])->gradient, &call.input_gradients[i]));
    hark_tape_storage_drop(tape, repeated[i]);
  }
  if (op->operations != NULL) tape->operations += op->operations(call.attributes, call.inputs, call.input_count, true);
  return HARK_OK;
}

/* Builds the segment again, now recorded, sets the gradients of its outputs, and runs the backward of the recorded nodes. */
static hark_status run_segment(hark_tape *tape, const tape_node *node) {
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  const int32_t first_node = tape->node_count;
  const hark_value own = tape->first_own;
  tape->first_own = tape->value_count;
  /* The caller may have released an input since; the node still keeps its memory. */
  bool held[HARK_MAX_INPUTS] = {false};
  for (int i = 0; i < node->input_count; i++) {
    if (node->inputs[i] == 0) continue;
    held[i] = tape_value_at(tape, node->inputs[i])->held;
    tape_value_at(tape, node->inputs[i])->held = true;
  }
  tape->recording = true;
  const double operations = tape->operations; /* recomputation is not useful work */
  const bool rebuilding = tape->rebuilding;
  tape->rebuilding = true;
  HARK_TRY(node->build(node->attributes, tape, node->inputs, outputs));
  tape->rebuilding = rebuilding;
  for (int i = 0; i < node->output_count; i++) {
    tape_value *from = tape_value_at(tape, node->outputs[i]), *to = tape_value_at(tape, outputs[i]);
    to->gradient = from->gradient;
    to->gradient_storage = from->gradient_storage;
    from->gradient_storage = 0;
    from->gradient = (hark_tensor){0};
    hark_tape_release(tape, outputs[i]);
  }
  for (int i = 0; i < node->input_count; i++)
    if (node->inputs[i] != 0) tape_value_at(tape, node->inputs[i])->held = held[i];
  tape->first_own = own;
  tape->operations = operations;
  return hark_tape_backward_nodes(tape, first_node);
}

static hark_status run(hark_tape *tape, const tape_node *node) {
  if (node->op != NULL) return run_node(tape, node);
  tape->inside++;
  const hark_status status = node->build_rows != NULL ? hark_tape_rows_backward(tape, node) : run_segment(tape, node);
  tape->inside--;
  return status;
}

/* Within a part that is built again only its operators are done, not the part. */
static hark_status report(hark_tape *tape) {
  if (tape->inside == 0) tape->done = tape->node_count;
  return tape->watch.done != NULL ? tape->watch.done(tape->watch.user, tape->done) : HARK_OK;
}

hark_status hark_tape_backward_nodes(hark_tape *tape, int32_t first) {
  while (tape->node_count > first) {
    tape_node node = tape->nodes[--tape->node_count];
    bool any = false;
    for (int i = 0; i < node.output_count; i++) any = any || tape_value_at(tape, node.outputs[i])->gradient.type != HARK_NONE;
    if (any) HARK_TRY(run(tape, &node));
    for (int i = 0; i < node.output_count; i++) hark_tape_gradient_drop(tape, node.outputs[i]);
    hark_tape_node_drop(tape, &node);
    HARK_TRY(report(tape));
  }
  return HARK_OK;
}

hark_status hark_tape_backward(hark_tape *tape, hark_value loss, double seed) {
  hark_context *context = tape->context;
  HARK_TRY(tape->failure);
  if (loss <= 0 || loss >= tape->value_count)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "backward: %d is not a value of this tape", (int)loss);
  const hark_tensor tensor = tape_value_at(tape, loss)->tensor;
  if (hark_tensor_count(&tensor) != 1 || (tensor.type != HARK_F32 && tensor.type != HARK_F64))
    return hark_fail(context, HARK_SHAPE_MISMATCH, "backward: the loss must be one number in f32 or f64");
  if (!tape_value_at(tape, loss)->needs_gradient)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "backward: the loss depends on no leaf that requires a gradient, or was not recorded");
  int32_t storage = 0;
  HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(&tensor), &storage));
  hark_tensor first = tensor;
  first.owned_bytes = 0;
  first.data = tape_storage_memory(tape, storage);
  if (!tape->pool->shape_only) {
    const float narrow = (float)seed;
    HARK_TRY(hark_tensor_write(context, &first, tensor.type == HARK_F32 ? (const void *)&narrow : &seed));
  }
  if (tape_value_at(tape, loss)->storage == 0) return hark_tape_add(tape, &tape_value_at(tape, loss)->gradient, &first); /* a leaf */
  hark_tape_gradient_set(tape, loss, storage);
  tape->done = tape->node_count;
  return hark_tape_backward_nodes(tape, 0);
}
