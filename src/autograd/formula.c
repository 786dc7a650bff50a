/* formula.c - operators applied to values without a status in every line: the tape stores the first failure. */
#include "autograd/tape_internal.h"

static hark_value apply(hark_tape *tape, const hark_operator *op, const void *attributes, int count, const hark_value *inputs) {
  hark_value outputs[HARK_MAX_OUTPUTS] = {0};
  if (tape->failure != HARK_OK) return 0;
  tape->failure = hark_tape_apply(tape, op, attributes, count, inputs, 0, outputs);
  return tape->failure == HARK_OK ? outputs[0] : 0;
}

hark_value hark_apply1(hark_tape *tape, const hark_operator *op, const void *attributes, hark_value a) {
  return apply(tape, op, attributes, 1, &a);
}

hark_value hark_apply2(hark_tape *tape, const hark_operator *op, const void *attributes, hark_value a, hark_value b) {
  const hark_value inputs[] = {a, b};
  return apply(tape, op, attributes, 2, inputs);
}

hark_value hark_apply3(hark_tape *tape, const hark_operator *op, const void *attributes, hark_value a, hark_value b, hark_value c) {
  const hark_value inputs[] = {a, b, c};
  return apply(tape, op, attributes, 3, inputs);
}

static hark_status make_leaf(hark_tape *tape, hark_type type, int rank, const int64_t *shape, void *data, void *gradient, hark_value *out) {
  hark_tensor tensor, gradient_tensor = {0};
  HARK_TRY(hark_tensor_wrap(tape->context, data, type, rank, shape, NULL, &tensor));
  if (gradient != NULL) HARK_TRY(hark_tensor_wrap(tape->context, gradient, type, rank, shape, NULL, &gradient_tensor));
  return hark_tape_leaf(tape, &tensor, gradient != NULL ? &gradient_tensor : NULL, out);
}

hark_value hark_tape_input(hark_tape *tape, hark_type type, int rank, const int64_t *shape, void *data, void *gradient) {
  hark_value value = 0;
  if (tape->failure != HARK_OK) return 0;
  tape->failure = make_leaf(tape, type, rank, shape, data, gradient, &value);
  return tape->failure == HARK_OK ? value : 0;
}

hark_status hark_tape_failure(const hark_tape *tape) { return tape->failure; }
