/* segment.c - parts of a computation that keep only their inputs and outputs (gradient checkpointing, arXiv 1604.06174). */
#include <string.h>

#include "autograd/tape_internal.h"

hark_status hark_tape_segment(hark_tape *tape, hark_tape_segment_build *build, const void *closure, size_t closure_bytes, int input_count,
                              const hark_value *inputs, int output_count, hark_value *outputs) {
  hark_context *context = tape->context;
  if (input_count < 0 || input_count > HARK_MAX_INPUTS || output_count < 1 || output_count > HARK_MAX_OUTPUTS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "segment: %d inputs and %d outputs, expected at most %d and 1 to %d", input_count,
                     output_count, HARK_MAX_INPUTS, HARK_MAX_OUTPUTS);
  tape_node node = {.build = build, .input_count = input_count, .output_count = output_count};
  for (int i = 0; i < input_count; i++) { /* copied: the outputs may overwrite the inputs */
    const hark_value input = inputs[i];
    if (input < 0 || input >= tape->value_count || (input != 0 && !tape_value_at(tape, input)->held))
      return hark_fail(context, HARK_INVALID_ARGUMENT, "segment: input %d is not a value of this tape, or has been released", i);
    node.inputs[i] = input;
  }
  const bool recording = tape->recording, rebuilding = tape->rebuilding;
  const hark_value own = tape->first_own, first_inner = tape->value_count;
  tape->recording = tape->rebuilding = false;
  tape->first_own = first_inner;
  void *mutable_closure = NULL;
  memcpy(&mutable_closure, &closure, sizeof closure); /* builders expect a mutable closure; later they get the tape's own copy */
  hark_status status = build(mutable_closure, tape, node.inputs, outputs);
  tape->recording = recording;
  tape->rebuilding = rebuilding;
  if (status != HARK_OK) {
    tape->first_own = own;
    return status;
  }
  for (hark_value inner = first_inner; inner < tape->value_count; inner++) {
    bool is_output = false;
    for (int i = 0; i < output_count; i++) is_output = is_output || outputs[i] == inner;
    if (!is_output) hark_tape_release(tape, inner);
  }
  tape->first_own = own;
  if (!recording) return HARK_OK;

  HARK_TRY(hark_tape_copy_bytes(tape, closure, closure_bytes, &node.attributes));
  for (int i = 0; i < input_count; i++) {
    if (node.inputs[i] == 0) continue;
    node.kept[i] = tape_value_at(tape, node.inputs[i])->storage;
    hark_tape_storage_hold(tape, node.kept[i]);
  }
  for (int i = 0; i < output_count; i++) {
    node.outputs[i] = outputs[i];
    tape_value_at(tape, outputs[i])->needs_gradient = true;
  }
  return hark_tape_node_add(tape, &node);
}
