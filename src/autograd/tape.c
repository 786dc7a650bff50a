/* tape.c - values and their memory, and applying operators. The backward is in backward.c, recomputed segments in segment.c. */
#include <inttypes.h>
#include <string.h>

#include "autograd/tape_internal.h"
#include "backend/backend.h"
#include "core/overlap.h"

#define CHUNK_BYTES ((size_t)16384)
#define CHUNK_HEADER hark_align_up(sizeof(tape_chunk))

hark_status hark_tape_create(hark_context *context, hark_tape **out) {
  *out = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_tape), &memory));
  hark_tape *tape = memory;
  tape->context = context;
  hark_pool_open(&tape->memory, context, false);
  hark_pool_open(&tape->shapes, context, true);
  tape->pool = &tape->memory;
  tape->recording = true;
  tape->storage_count = tape->value_count = tape->first_own = 1; /* index zero means none */
  *out = tape;
  return HARK_OK;
}

void hark_tape_destroy(hark_tape **tape_pointer) {
  if (tape_pointer == NULL || *tape_pointer == NULL) return;
  hark_tape *tape = *tape_pointer;
  *tape_pointer = NULL;
  hark_context *context = tape->context;
  hark_pool_close(&tape->memory);
  hark_pool_close(&tape->shapes);
  hark_release(context, tape->storages, (size_t)tape->storage_capacity * sizeof *tape->storages);
  hark_release(context, tape->values, (size_t)tape->value_capacity * sizeof *tape->values);
  hark_release(context, tape->nodes, (size_t)tape->node_capacity * sizeof *tape->nodes);
  while (tape->chunks != NULL) {
    tape_chunk *chunk = tape->chunks;
    tape->chunks = chunk->next;
    hark_release(context, chunk, CHUNK_HEADER + chunk->capacity);
  }
  hark_release(context, tape, sizeof *tape);
}

void hark_tape_reset(hark_tape *tape) {
  tape->storage_count = tape->value_count = tape->first_own = 1;
  tape->node_count = 0;
  for (tape_chunk *chunk = tape->chunks; chunk != NULL; chunk = chunk->next) chunk->used = 0;
  tape->operations = 0;
  tape->recording = true;
  tape->rebuilding = false;
  tape->inside = 0;
  tape->failure = HARK_OK;
  /* The pieces of every block were allocated with the block, so this needs no memory. */
  const hark_status status = hark_pool_reset(tape->pool);
  (void)status;
}

void hark_tape_set_shape_only(hark_tape *tape, bool shape_only) {
  hark_tape_reset(tape);
  tape->pool = shape_only ? &tape->shapes : &tape->memory;
}

size_t hark_tape_peak_bytes(const hark_tape *tape) {
  const size_t blocks = hark_pool_bytes(&tape->memory);
  return blocks > tape->shapes.peak_end ? blocks : tape->shapes.peak_end;
}

hark_status hark_tape_prepare(hark_tape *tape) {
  hark_tape_reset(tape);
  return hark_pool_prepare(&tape->memory, tape->shapes.piece_capacity);
}

hark_status hark_tape_reserve(hark_tape *tape) {
  HARK_TRY(hark_tape_prepare(tape));
  return hark_pool_reserve(&tape->memory, tape->shapes.peak_end);
}

void hark_tape_set_recording(hark_tape *tape, bool recording) { tape->recording = recording; }

void hark_tape_set_watch(hark_tape *tape, const hark_tape_watch *watch) {
  tape->watch = watch != NULL ? *watch : (hark_tape_watch){.leaf = NULL};
}

double hark_tape_operations(const hark_tape *tape) { return tape->operations; }

hark_status hark_tape_storage_take(hark_tape *tape, size_t bytes, int32_t *out) {
  *out = 0;
  HARK_TRY(hark_grow(tape->context, (void **)&tape->storages, &tape->storage_capacity, tape->storage_count + 1, sizeof *tape->storages));
  tape_storage storage = {.references = 1};
  HARK_TRY(hark_pool_take(tape->pool, bytes, &storage.memory));
  *out = tape->storage_count++;
  tape->storages[*out] = storage;
  return HARK_OK;
}

void hark_tape_storage_hold(hark_tape *tape, int32_t storage) {
  if (storage != 0) tape->storages[storage].references++;
}

void hark_tape_storage_drop(hark_tape *tape, int32_t storage) {
  if (storage == 0) return;
  if (--tape->storages[storage].references == 0) hark_pool_give(tape->pool, &tape->storages[storage].memory);
}

hark_status hark_tape_value_new(hark_tape *tape, const tape_value *value, hark_value *out) {
  *out = 0;
  HARK_TRY(hark_grow(tape->context, (void **)&tape->values, &tape->value_capacity, tape->value_count + 1, sizeof *tape->values));
  *out = tape->value_count++;
  tape->values[*out] = *value;
  return HARK_OK;
}

hark_status hark_tape_leaf(hark_tape *tape, const hark_tensor *data, const hark_tensor *gradient, hark_value *out) {
  *out = 0;
  const tape_value value = {
      .tensor = *data, .gradient = gradient != NULL ? *gradient : (hark_tensor){0}, .held = true, .needs_gradient = gradient != NULL};
  if (gradient != NULL && (gradient->type != tape_gradient_like(data).type || hark_tensor_count(gradient) != hark_tensor_count(data)))
    return hark_fail(tape->context, HARK_SHAPE_MISMATCH,
                     "leaf: gradient and data differ in type or shape (the gradient of bf16 numbers is f32)");
  if (gradient != NULL && hark_tensors_share(gradient, data))
    return hark_fail(tape->context, HARK_INVALID_ARGUMENT, "leaf: gradient and data share memory, expected separate memory");
  if (gradient != NULL && tape->watch.leaf != NULL && tape->inside == 0) tape->watch.leaf(tape->watch.user, gradient, tape->node_count);
  return hark_tape_value_new(tape, &value, out);
}

const hark_tensor *hark_tape_tensor(const hark_tape *tape, hark_value value) { return &tape->values[value].tensor; }

void hark_tape_release(hark_tape *tape, hark_value number) {
  if (number < tape->first_own || number >= tape->value_count) return;
  tape_value *value = tape_value_at(tape, number);
  if (!value->held) return;
  value->held = false;
  hark_tape_storage_drop(tape, value->storage);
}

hark_status hark_tape_copy_bytes(hark_tape *tape, const void *data, size_t bytes, void **out) {
  *out = NULL;
  if (bytes == 0) return HARK_OK;
  const size_t size = hark_align_up(bytes);
  tape_chunk *chunk = tape->chunks;
  while (chunk != NULL && chunk->capacity - chunk->used < size) chunk = chunk->next;
  if (chunk == NULL) {
    const size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
    void *memory = NULL;
    HARK_TRY(hark_allocate(tape->context, CHUNK_HEADER + capacity, &memory));
    chunk = memory;
    *chunk = (tape_chunk){.next = tape->chunks, .capacity = capacity};
    tape->chunks = chunk;
  }
  *out = (char *)chunk + CHUNK_HEADER + chunk->used;
  chunk->used += size;
  memcpy(*out, data, bytes);
  return HARK_OK;
}

/* True if the call reads the value as another input too, which the output must not overwrite. */
static bool is_read_besides(const hark_operator *op, int input_count, const hark_value *inputs, int i) {
  for (int k = 0; k < input_count; k++)
    if (k != i && inputs[k] == inputs[i] && !(op->in_place >> k & 1u)) return true;
  return false;
}

/* The consumed input whose memory output 0 may overwrite: nothing else uses it, and it has the required size. */
static hark_value input_to_overwrite(const hark_tape *tape, const hark_operator *op, int input_count, const hark_value *inputs,
                                     unsigned consumed, const hark_tensor *output) {
  for (int i = 0; i < input_count; i++) {
    const hark_value number = inputs[i];
    if (number < tape->first_own || !(op->in_place >> i & 1u) || !(consumed >> i & 1u)) continue;
    const tape_value *value = tape_value_at(tape, number);
    if (value->storage == 0 || !value->held || tape->storages[value->storage].references != 1) continue;
    if (value->tensor.type != output->type || tape_tensor_bytes(&value->tensor) != tape_tensor_bytes(output)) continue;
    if (tape->recording && (op->backward_inputs >> i & 1u)) continue;
    if (is_read_besides(op, input_count, inputs, i)) continue;
    return number;
  }
  return 0;
}

static hark_status new_output(hark_tape *tape, const hark_tensor *described, bool needs_gradient, hark_value overwrites, hark_value *out) {
  tape_value value = {.tensor = *described, .held = true, .needs_gradient = needs_gradient};
  if (overwrites != 0) {
    value.storage = tape_value_at(tape, overwrites)->storage;
    hark_tape_storage_hold(tape, value.storage);
  } else {
    HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(described), &value.storage));
  }
  value.tensor.data = tape_storage_memory(tape, value.storage);
  return hark_tape_value_new(tape, &value, out);
}

/* Keeps the memory that the backward will read: the storages of the inputs and outputs that the record names. */
static hark_status record_node(hark_tape *tape, const hark_value *inputs, const hark_value *outputs, const int32_t *saved_storage) {
  const hark_call *call = &tape->call;
  const hark_operator *op = call->op;
  tape_node node = {.op = op,
                    .input_count = call->input_count,
                    .output_count = op->output_count,
                    .backward_workspace = tape->inferred.backward_workspace};
  memcpy(node.inputs, inputs, (size_t)node.input_count * sizeof *inputs);
  memcpy(node.outputs, outputs, (size_t)node.output_count * sizeof *outputs);
  memcpy(node.saved, call->saved, sizeof node.saved);
  memcpy(node.saved_storage, saved_storage, sizeof node.saved_storage);
  HARK_TRY(hark_tape_copy_bytes(tape, call->attributes, op->attributes_size, &node.attributes));
  for (int i = 0; i < node.input_count; i++)
    if (node.inputs[i] != 0 && (op->backward_inputs >> i & 1u)) node.kept[i] = tape_value_at(tape, node.inputs[i])->storage;
  for (int i = 0; i < node.output_count; i++)
    if (op->backward_outputs >> i & 1u) node.kept[HARK_MAX_INPUTS + i] = tape_value_at(tape, node.outputs[i])->storage;
  for (int i = 0; i < HARK_MAX_INPUTS + HARK_MAX_OUTPUTS; i++) hark_tape_storage_hold(tape, node.kept[i]);
  return hark_tape_node_add(tape, &node);
}

hark_status hark_tape_node_add(hark_tape *tape, const tape_node *node) {
  HARK_TRY(hark_grow(tape->context, (void **)&tape->nodes, &tape->node_capacity, tape->node_count + 1, sizeof *tape->nodes));
  tape->nodes[tape->node_count++] = *node;
  return HARK_OK;
}

void hark_tape_node_drop(hark_tape *tape, tape_node *node) {
  for (int i = 0; i < HARK_MAX_INPUTS + HARK_MAX_OUTPUTS; i++) hark_tape_storage_drop(tape, node->kept[i]);
  for (int i = 0; i < HARK_MAX_SAVED; i++) hark_tape_storage_drop(tape, node->saved_storage[i]);
}

/* The inputs of the call; *needs_gradient: one of them does. */
static hark_status take_inputs(hark_tape *tape, const hark_value *inputs, bool *needs_gradient) {
  hark_call *call = &tape->call;
  const hark_operator *op = call->op;
  *needs_gradient = false;
  for (int i = 0; i < call->input_count; i++) {
    if (inputs[i] < 0 || inputs[i] >= tape->value_count || (inputs[i] == 0 && i < op->input_minimum))
      return hark_fail(tape->context, HARK_INVALID_ARGUMENT, "%s: input %d is not a value of this tape", op->name, i);
    if (inputs[i] == 0) continue;
    const tape_value *value = tape_value_at(tape, inputs[i]);
    if (!value->held) return hark_fail(tape->context, HARK_INVALID_ARGUMENT, "%s: input %d has been released", op->name, i);
    call->inputs[i] = value->tensor;
    *needs_gradient = *needs_gradient || (value->needs_gradient && (op->differentiable >> i & 1u));
  }
  return HARK_OK;
}

/* Memory for outputs and saved tensors. */
static hark_status make_room(hark_tape *tape, const hark_value *inputs, unsigned consumed, bool recorded, hark_value *outputs,
                             int32_t *saved_storage) {
  hark_call *call = &tape->call;
  const hark_inferred *inferred = &tape->inferred;
  for (int i = 0; i < call->op->output_count; i++) {
    const hark_tensor *described = &inferred->outputs[i];
    const hark_value overwrites = i == 0 ? input_to_overwrite(tape, call->op, call->input_count, inputs, consumed, described) : 0;
    const bool real = described->type == HARK_F32 || described->type == HARK_F64 || described->type == HARK_BF16;
    HARK_TRY(new_output(tape, described, recorded && real, overwrites, &outputs[i]));
    call->outputs[i] = tape_value_at(tape, outputs[i])->tensor;
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) {
    if (inferred->saved[i].type == HARK_NONE) continue;
    HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(&inferred->saved[i]), &saved_storage[i]));
    call->saved[i] = inferred->saved[i];
    call->saved[i].data = tape_storage_memory(tape, saved_storage[i]);
  }
  return HARK_OK;
}

static hark_status run_call(hark_tape *tape) {
  hark_call *call = &tape->call;
  hark_pool_memory workspace;
  HARK_TRY(hark_pool_take(tape->pool, tape->inferred.forward_workspace, &workspace));
  call->workspace = workspace.memory;
  call->workspace_bytes = tape->inferred.forward_workspace;
  if (!tape->pool->shape_only) HARK_TRY(hark_operator_forward(tape->context, call));
  hark_pool_give(tape->pool, &workspace);
  if (call->op->operations != NULL) tape->operations += call->op->operations(call->attributes, call->inputs, call->input_count, false);
  return HARK_OK;
}

static hark_status apply(hark_tape *tape, const hark_value *inputs, unsigned consumed, hark_value *outputs) {
  const hark_call *call = &tape->call;
  const hark_operator *op = call->op;
  bool needs_gradient;
  hark_value made[HARK_MAX_OUTPUTS] = {0};
  int32_t saved_storage[HARK_MAX_SAVED] = {0};
  HARK_TRY(take_inputs(tape, inputs, &needs_gradient));
  const bool recorded = tape->recording && needs_gradient;
  HARK_TRY(op->infer(tape->context, call->attributes, call->inputs, call->input_count, &tape->inferred));
  HARK_TRY(make_room(tape, inputs, consumed, recorded, made, saved_storage));
  HARK_TRY(run_call(tape));
  if (recorded)
    HARK_TRY(record_node(tape, inputs, made, saved_storage));
  else
    for (int i = 0; i < HARK_MAX_SAVED; i++) hark_tape_storage_drop(tape, saved_storage[i]);
  for (int i = 0; i < call->input_count; i++)
    if (consumed >> i & 1u) hark_tape_release(tape, inputs[i]);
  memcpy(outputs, made, (size_t)op->output_count * sizeof *outputs); /* last: they may overwrite the inputs */
  return HARK_OK;
}

static void clear_tensors(hark_tensor *tensors, int count) {
  for (int i = 0; i < count; i++)
    if (tensors[i].type != HARK_NONE) tensors[i] = (hark_tensor){0};
}

/* Clears all that a successful operator has filled. */
static void forget_call(hark_tape *tape) {
  clear_tensors(tape->call.inputs, tape->call.input_count);
  clear_tensors(tape->call.outputs, HARK_MAX_OUTPUTS);
  clear_tensors(tape->call.saved, HARK_MAX_SAVED);
  clear_tensors(tape->inferred.outputs, HARK_MAX_OUTPUTS);
  clear_tensors(tape->inferred.saved, HARK_MAX_SAVED);
  tape->inferred.forward_workspace = tape->inferred.backward_workspace = 0;
}

hark_status hark_tape_apply(hark_tape *tape, const hark_operator *op, const void *attributes, int input_count, const hark_value *inputs,
                            unsigned consumed, hark_value *outputs) {
  if (input_count < op->input_minimum || input_count > op->input_maximum)
    return hark_fail(tape->context, HARK_INVALID_ARGUMENT, "%s: %d inputs given, expected %d to %d", op->name, input_count,
                     op->input_minimum, op->input_maximum);
  if (tape->applying)
    return hark_fail(tape->context, HARK_INVALID_ARGUMENT, "%s: applied while the tape applies %s", op->name, tape->call.op->name);
  tape->call.op = op;
  tape->call.attributes = attributes;
  tape->call.input_count = input_count;
  tape->applying = true;
  const hark_status status = apply(tape, inputs, consumed, outputs);
  tape->applying = false;
  if (status == HARK_OK) {
    forget_call(tape);
  } else {
    memset(&tape->call, 0, sizeof tape->call);
    memset(&tape->inferred, 0, sizeof tape->inferred);
  }
  return status;
}
