/* rows.c - see rows.h. What a slice leaves in the tape - values, storages, nodes - is forgotten before the next one, so that a step needs
 * no more bookkeeping for more slices, but for copies of attributes, some hundred bytes per operator, which stay until the next reset. */
#include <inttypes.h>
#include <string.h>

#include "autograd/tape_internal.h"
#include "backend/backend.h"
#include "ops/in_place.h"
#include "ops/parts.h"

/* One slice, and where the tape was before it. */
typedef struct slice {
  int64_t rows, first, count;
  hark_value values, own;
  int32_t storages, nodes;
  hark_value views[HARK_MAX_INPUTS], outputs[HARK_MAX_OUTPUTS];
} slice;

static slice open_slice(const hark_tape *tape, int64_t rows, int64_t first, int64_t length) {
  return (slice){.rows = rows,
                 .first = first,
                 .count = hark_min(length, rows - first),
                 .values = tape->value_count,
                 .own = tape->first_own,
                 .storages = tape->storage_count,
                 .nodes = tape->node_count};
}

static hark_tensor rows_of(const slice *s, const hark_tensor *whole) { return hark_tensor_rows(whole, s->rows, s->first, s->count); }

static void close_slice(hark_tape *tape, const slice *s) {
  tape->value_count = s->values;
  while (tape->storage_count > s->storages && tape->storages[tape->storage_count - 1].references == 0) tape->storage_count--;
}

/* A storage for memory that belongs to another one. */
static hark_status borrow_storage(hark_tape *tape, void *memory, int32_t *out) {
  HARK_TRY(hark_tape_storage_take(tape, 0, out));
  tape->storages[*out].memory.memory = memory;
  return HARK_OK;
}

static bool is_sum(const hark_tensor *whole) { return whole->rank == 0; }

static hark_status check_output(const hark_tape *tape, const slice *s, const hark_tensor *whole, int i) {
  const hark_tensor *made = hark_tape_tensor(tape, s->outputs[i]);
  const hark_tensor expected = is_sum(whole) ? *whole : rows_of(s, whole);
  if (made->type == expected.type && hark_tensor_count(made) == hark_tensor_count(&expected)) return HARK_OK;
  char text_made[HARK_SHAPE_TEXT_BYTES], text[HARK_SHAPE_TEXT_BYTES];
  return hark_fail(tape->context, HARK_SHAPE_MISMATCH, "rows: output %d of a slice has %s, expected %s", i,
                   hark_shape_text(made, text_made, sizeof text_made), hark_shape_text(&expected, text, sizeof text));
}

/* Builds a slice, whose views are in place. Everything but the views is then released. */
static hark_status build_slice(hark_tape *tape, hark_tape_rows_build *build, void *closure, int output_count, const hark_tensor *wholes,
                               slice *s) {
  tape->first_own = tape->value_count;
  HARK_TRY(build(closure, tape, s->first, s->views, s->outputs));
  for (int i = 0; i < output_count; i++) HARK_TRY(check_output(tape, s, &wholes[i], i));
  return HARK_OK;
}

static void release_slice(hark_tape *tape, const slice *s) {
  for (hark_value inner = tape->first_own; inner < tape->value_count; inner++) hark_tape_release(tape, inner);
  tape->first_own = s->own;
}

/* ---- forward ---- */

static hark_status view_inputs(hark_tape *tape, const hark_tape_rows *part, slice *s) {
  for (int i = 0; i < part->input_count; i++) {
    if (part->inputs[i] == 0) continue;
    tape_value view = {.held = true};
    view.tensor = rows_of(s, hark_tape_tensor(tape, part->inputs[i]));
    HARK_TRY(hark_tape_value_new(tape, &view, &s->views[i]));
  }
  return HARK_OK;
}

static hark_status store_output(hark_tape *tape, const slice *s, const hark_tensor *whole, hark_value made) {
  const hark_tensor *from = hark_tape_tensor(tape, made);
  if (is_sum(whole)) return hark_tape_add(tape, whole, from);
  if (tape->pool->shape_only) return HARK_OK;
  return hark_backend_copy(tape->context, rows_of(s, whole).data, from->data, tape_tensor_bytes(from));
}

static hark_status forward_slice(hark_tape *tape, const hark_tape_rows *part, void *closure, const hark_tensor *wholes, int64_t first) {
  slice s = open_slice(tape, part->rows, first, part->slice);
  HARK_TRY(view_inputs(tape, part, &s));
  HARK_TRY(build_slice(tape, part->build, closure, part->output_count, wholes, &s));
  for (int i = 0; i < part->output_count; i++) HARK_TRY(store_output(tape, &s, &wholes[i], s.outputs[i]));
  release_slice(tape, &s);
  close_slice(tape, &s);
  return HARK_OK;
}

static hark_status forward_slices(hark_tape *tape, const hark_tape_rows *part, const hark_tensor *wholes) {
  const bool recording = tape->recording, rebuilding = tape->rebuilding;
  void *closure = NULL;
  memcpy(&closure, &part->closure, sizeof closure); /* as in hark_tape_segment() */
  for (int i = 0; i < part->output_count; i++)
    if (is_sum(&wholes[i]) && !tape->pool->shape_only)
      HARK_TRY(hark_backend_zero(tape->context, wholes[i].data, tape_tensor_bytes(&wholes[i])));
  tape->recording = tape->rebuilding = false;
  for (int64_t first = 0; first < part->rows; first += part->slice) HARK_TRY(forward_slice(tape, part, closure, wholes, first));
  tape->recording = recording;
  tape->rebuilding = rebuilding;
  return HARK_OK;
}

static hark_status check(const hark_tape *tape, const hark_tape_rows *part) {
  hark_context *context = tape->context;
  if (part->input_count < 0 || part->input_count > HARK_MAX_INPUTS || part->output_count < 1 || part->output_count > HARK_MAX_OUTPUTS ||
      part->rows < 1 || part->slice < 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "rows: %d inputs, %d outputs, slices of %" PRId64 " of %" PRId64 " rows",
                     part->input_count, part->output_count, part->slice, part->rows);
  for (int i = 0; i < part->input_count; i++) {
    const hark_value input = part->inputs[i];
    if (input == 0) continue;
    if (input < 0 || input >= tape->value_count || !tape_value_at(tape, input)->held)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "rows: input %d is not a value of this tape, or has been released", i);
    const hark_tensor *tensor = hark_tape_tensor(tape, input);
    if (tensor->rank < 2 || tensor->shape[0] != 1 || tensor->shape[1] != part->rows)
      return hark_fail(context, HARK_SHAPE_MISMATCH, "rows: input %d is not [1, %" PRId64 ", ...]", i, part->rows);
    for (int j = 0; j < i; j++)
      if (part->inputs[j] == input) return hark_fail(context, HARK_INVALID_ARGUMENT, "rows: inputs %d and %d are one value", j, i);
  }
  return HARK_OK;
}

/* Values for the outputs; without memory if they are not computed. */
static hark_status make_outputs(hark_tape *tape, const hark_tape_rows *part, bool computed, hark_value *outputs, hark_tensor *wholes) {
  for (int i = 0; i < part->output_count; i++) {
    tape_value value = {.tensor = part->outputs[i], .held = true, .needs_gradient = tape->recording};
    HARK_TRY(hark_tape_storage_take(tape, computed ? tape_tensor_bytes(&value.tensor) : 0, &value.storage));
    value.tensor.data = tape_storage_memory(tape, value.storage);
    HARK_TRY(hark_tape_value_new(tape, &value, &outputs[i]));
    wholes[i] = value.tensor;
  }
  return HARK_OK;
}

hark_status hark_tape_rows_apply(hark_tape *tape, const hark_tape_rows *part, hark_value *outputs) {
  hark_tensor wholes[HARK_MAX_OUTPUTS];
  hark_value made[HARK_MAX_OUTPUTS] = {0};
  const bool computed = !(tape->rebuilding && part->ends_segment);
  HARK_TRY(check(tape, part));
  HARK_TRY(make_outputs(tape, part, computed, made, wholes));
  if (computed) HARK_TRY(forward_slices(tape, part, wholes));
  memcpy(outputs, made, (size_t)part->output_count * sizeof *outputs);
  if (!tape->recording) return HARK_OK;
  tape_node node = {.build_rows = part->build,
                    .rows = part->rows,
                    .slice = part->slice,
                    .input_count = part->input_count,
                    .output_count = part->output_count};
  memcpy(node.inputs, part->inputs, sizeof node.inputs);
  memcpy(node.outputs, made, sizeof node.outputs);
  HARK_TRY(hark_tape_copy_bytes(tape, part->closure, part->closure_bytes, &node.attributes));
  for (int i = 0; i < part->input_count; i++) {
    if (node.inputs[i] == 0) continue;
    node.kept[i] = tape_value_at(tape, node.inputs[i])->storage;
    hark_tape_storage_hold(tape, node.kept[i]);
  }
  return hark_tape_node_add(tape, &node);
}

/* ---- backward ---- */

/* Where the gradient of an input goes. */
typedef struct target {
  hark_tensor gradient; /* of all rows; absent: not requested */
  bool adds;            /* to a gradient that exists */
  bool has_producer;    /* written over the input; the node that computed the input reads products instead (ops/in_place.h): */
  int32_t producer;     /*   this node */
} target;

typedef struct backward_pass {
  const tape_node *node;
  target targets[HARK_MAX_INPUTS];
  hark_tensor gradients[HARK_MAX_OUTPUTS]; /* of the outputs; absent: zero */
  bool replaced[HARK_MAX_OUTPUTS];         /* the gradient of an input takes its memory */
} backward_pass;

/* The output whose gradient's memory the gradient of an input may take, or -1. */
static int output_to_replace(const hark_tape *tape, const backward_pass *pass, const hark_tensor *input) {
  for (int j = 0; j < pass->node->output_count; j++) {
    const tape_value *value = tape_value_at(tape, pass->node->outputs[j]);
    if (pass->replaced[j] || value->gradient_storage == 0 || tape->storages[value->gradient_storage].references != 1) continue;
    if (value->tensor.type == input->type && tape_tensor_bytes(&value->tensor) == tape_tensor_bytes(input)) return j;
  }
  return -1;
}

/* If only this node and the node that computed the input keep it, and that node can do with products: makes memory for them. */
static hark_status find_producer(hark_tape *tape, const backward_pass *pass, int i, target *to) {
  const hark_value number = pass->node->inputs[i];
  const int32_t kept = pass->node->kept[i];
  hark_tensor products;
  if (tape_value_at(tape, number)->held || kept == 0 || tape->storages[kept].references != 2) return HARK_OK;
  int32_t at = tape->node_count - 1;
  while (at >= 0 && tape->nodes[at].outputs[0] != number) at--;
  if (at < 0 || tape->nodes[at].op == NULL || tape->nodes[at].kept[HARK_MAX_INPUTS] != kept) return HARK_OK;
  const hark_tensor *input = hark_tape_tensor(tape, number);
  if (!hark_reads_products(tape->context, tape->nodes[at].op, tape->nodes[at].attributes, input, &products)) return HARK_OK;
  int32_t storage = 0;
  HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(&products), &storage));
  products.data = tape_storage_memory(tape, storage);
  tape->nodes[at].saved[HARK_SAVED_PRODUCTS] = products;
  tape->nodes[at].saved_storage[HARK_SAVED_PRODUCTS] = storage;
  to->has_producer = true;
  to->producer = at;
  return HARK_OK;
}

/* Memory for a gradient that does not exist yet. */
static hark_status place_gradient(hark_tape *tape, backward_pass *pass, int i) {
  const hark_value number = pass->node->inputs[i];
  const tape_value *value = tape_value_at(tape, number);
  const int32_t kept = pass->node->kept[i];
  const int j = output_to_replace(tape, pass, &value->tensor);
  int32_t storage = 0;
  HARK_TRY(find_producer(tape, pass, i, &pass->targets[i]));
  if (pass->targets[i].has_producer || (!value->held && kept != 0 && tape->storages[kept].references == 1)) {
    storage = kept;
    hark_tape_storage_hold(tape, storage);
  } else if (j >= 0) {
    pass->replaced[j] = true;
    storage = tape_value_at(tape, pass->node->outputs[j])->gradient_storage;
    hark_tape_storage_hold(tape, storage);
  } else {
    HARK_TRY(hark_tape_storage_take(tape, tape_tensor_bytes(&value->tensor), &storage));
  }
  hark_tape_gradient_set(tape, number, storage);
  return HARK_OK;
}

static hark_status open_pass(hark_tape *tape, const tape_node *node, backward_pass *pass) {
  *pass = (backward_pass){.node = node};
  for (int i = 0; i < node->input_count; i++) {
    if (node->inputs[i] == 0) continue;
    const tape_value value = *tape_value_at(tape, node->inputs[i]);
    if (!value.needs_gradient || (value.tensor.type != HARK_F32 && value.tensor.type != HARK_F64)) continue;
    const bool leaf = value.storage == 0;
    pass->targets[i].adds = leaf || value.gradient_storage != 0;
    if (!pass->targets[i].adds) HARK_TRY(place_gradient(tape, pass, i));
    if (value.gradient_storage != 0) HARK_TRY(hark_tape_gradient_own(tape, node->inputs[i]));
    pass->targets[i].gradient = tape_value_at(tape, node->inputs[i])->gradient;
  }
  for (int j = 0; j < node->output_count; j++) pass->gradients[j] = tape_value_at(tape, node->outputs[j])->gradient;
  return HARK_OK;
}

/* Views of the inputs. An existing gradient is added to in place, like that of a leaf; otherwise the slice writes the first part. */
static hark_status view_targets(hark_tape *tape, const backward_pass *pass, slice *s) {
  for (int i = 0; i < pass->node->input_count; i++) {
    if (pass->node->inputs[i] == 0) continue;
    const target *to = &pass->targets[i];
    tape_value view = {.held = true, .needs_gradient = to->gradient.type != HARK_NONE};
    view.tensor = rows_of(s, hark_tape_tensor(tape, pass->node->inputs[i]));
    if (view.needs_gradient && to->adds) view.gradient = rows_of(s, &to->gradient);
    if (view.needs_gradient && !to->adds) HARK_TRY(borrow_storage(tape, view.tensor.data, &view.storage));
    HARK_TRY(hark_tape_value_new(tape, &view, &s->views[i]));
  }
  return HARK_OK;
}

/* Sets the gradients of the slice's outputs: views, to which the backward may add only if they are replaced in the end. */
static hark_status seed_outputs(hark_tape *tape, const backward_pass *pass, const slice *s, int32_t *storages) {
  for (int j = 0; j < pass->node->output_count; j++) {
    const hark_tensor *whole = &pass->gradients[j];
    if (whole->type == HARK_NONE || !tape_value_at(tape, s->outputs[j])->needs_gradient) continue;
    const hark_tensor gradient = is_sum(whole) ? *whole : rows_of(s, whole);
    int32_t storage = 0;
    HARK_TRY(borrow_storage(tape, gradient.data, &storage));
    hark_tape_gradient_set(tape, s->outputs[j], storage);
    if (pass->replaced[j]) continue;
    storages[j] = storage;
    hark_tape_storage_hold(tape, storage);
  }
  return HARK_OK;
}

/* Stores the gradient of a slice of an input that had none. */
static hark_status store_gradient(hark_tape *tape, const target *to, const slice *s, hark_value view) {
  const tape_value value = *tape_value_at(tape, view);
  const hark_tensor rows = rows_of(s, &to->gradient);
  const size_t bytes = tape_tensor_bytes(&rows);
  const tape_node *producer = to->has_producer && !tape->pool->shape_only ? &tape->nodes[to->producer] : NULL;
  if (producer != NULL) {
    const hark_tensor *gradient = value.gradient_storage != 0 ? &value.gradient : &rows;
    if (value.gradient_storage == 0) HARK_TRY(hark_backend_zero(tape->context, rows.data, bytes));
    hark_write_products(tape->context, producer->attributes, &rows, gradient, s->first, &producer->saved[HARK_SAVED_PRODUCTS]);
  }
  if (!tape->pool->shape_only && value.gradient_storage == 0)
    HARK_TRY(hark_backend_zero(tape->context, rows.data, bytes));
  else if (!tape->pool->shape_only && value.gradient.data != rows.data)
    HARK_TRY(hark_backend_copy(tape->context, rows.data, value.gradient.data, bytes));
  hark_tape_gradient_drop(tape, view);
  hark_tape_storage_drop(tape, value.storage);
  return HARK_OK;
}

static hark_status backward_slice(hark_tape *tape, const backward_pass *pass, int64_t first) {
  const tape_node *node = pass->node;
  slice s = open_slice(tape, node->rows, first, node->slice);
  hark_tensor wholes[HARK_MAX_OUTPUTS];
  int32_t storages[HARK_MAX_OUTPUTS] = {0};
  const double operations = tape->operations; /* recomputation is not useful work */
  for (int j = 0; j < node->output_count; j++) wholes[j] = tape_value_at(tape, node->outputs[j])->tensor;
  HARK_TRY(view_targets(tape, pass, &s));
  HARK_TRY(build_slice(tape, node->build_rows, node->attributes, node->output_count, wholes, &s));
  tape->operations = operations;
  HARK_TRY(seed_outputs(tape, pass, &s, storages));
  release_slice(tape, &s);
  HARK_TRY(hark_tape_backward_nodes(tape, s.nodes));
  for (int j = 0; j < node->output_count; j++) hark_tape_storage_drop(tape, storages[j]);
  for (int i = 0; i < node->input_count; i++)
    if (node->inputs[i] != 0 && pass->targets[i].gradient.type != HARK_NONE && !pass->targets[i].adds)
      HARK_TRY(store_gradient(tape, &pass->targets[i], &s, s.views[i]));
  close_slice(tape, &s);
  return HARK_OK;
}

hark_status hark_tape_rows_backward(hark_tape *tape, const tape_node *node) {
  const bool rebuilding = tape->rebuilding;
  backward_pass pass;
  HARK_TRY(open_pass(tape, node, &pass));
  tape->rebuilding = false;
  tape->recording = true;
  for (int64_t first = 0; first < node->rows; first += node->slice) HARK_TRY(backward_slice(tape, &pass, first));
  tape->rebuilding = rebuilding;
  return HARK_OK;
}
