/* 04_own_operator.c - a user-defined operator, used on the tape like a built-in one, its gradient checked by differences.
 *
 *     y = c tanh(x / c),   dy/dx = 1 - (y / c)^2     (soft capping of logits; c is the operator's attribute)
 *
 * An operator is a record (hark/operator.h): how the output shapes follow from the input shapes, a forward, a backward, and what the
 * backward reads. There is nothing to register: the record is passed to hark_tape_apply(), and belongs to the program. This one works in
 * f32 and f64, may be computed in place, and reads only its output in the backward, so that the tape need not keep its input.
 *
 *     cc 04_own_operator.c $(pkg-config --cflags --libs hark) -lm
 */
#include <hark/hark.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the operator ---- */

typedef struct soft_cap_attributes {
  double cap; /* > 0 */
} soft_cap_attributes;

/* Numbers of either type. */
static double get(const hark_tensor *tensor, int64_t i) {
  return tensor->type == HARK_F64 ? ((const double *)tensor->data)[i] : (double)((const float *)tensor->data)[i];
}

static void put(const hark_tensor *tensor, int64_t i, double value) {
  if (tensor->type == HARK_F64)
    ((double *)tensor->data)[i] = value;
  else
    ((float *)tensor->data)[i] = (float)value;
}

static hark_status soft_cap_infer(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count,
                                  hark_inferred *out) {
  const soft_cap_attributes *soft_cap = attributes;
  (void)input_count;
  if (!(soft_cap->cap > 0))
    return hark_context_fail(context, HARK_INVALID_ARGUMENT, "soft_cap: cap is %g, expected more than 0", soft_cap->cap);
  if (inputs[0].type != HARK_F32 && inputs[0].type != HARK_F64)
    return hark_context_fail(context, HARK_INVALID_ARGUMENT, "soft_cap: x is %s, expected f32 or f64", hark_type_name(inputs[0].type));
  return hark_tensor_describe(context, inputs[0].type, inputs[0].rank, inputs[0].shape, &out->outputs[0]);
}

static hark_status soft_cap_forward(hark_context *context, const hark_call *call) {
  const soft_cap_attributes *soft_cap = call->attributes;
  (void)context;
  for (int64_t i = 0; i < hark_tensor_count(&call->inputs[0]); i++)
    put(&call->outputs[0], i, soft_cap->cap * tanh(get(&call->inputs[0], i) / soft_cap->cap));
  return HARK_OK;
}

/* y = c tanh(x / c): dx = dy (1 - (y / c)^2), written to the gradient or added to what is there */
static hark_status soft_cap_backward(hark_context *context, const hark_call *call) {
  const soft_cap_attributes *soft_cap = call->attributes;
  const hark_tensor *dx = &call->input_gradients[0], *dy = &call->output_gradients[0];
  (void)context;
  if (dx->type == HARK_NONE) return HARK_OK;
  const int accumulate = (call->accumulate & 1u) != 0;
  for (int64_t i = 0; i < hark_tensor_count(dx); i++) {
    const double t = get(&call->outputs[0], i) / soft_cap->cap;
    const double flows = dy->type == HARK_NONE ? 0 : get(dy, i); /* an absent gradient is zero */
    put(dx, i, (accumulate ? get(dx, i) : 0) + flows * (1 - t * t));
  }
  return HARK_OK;
}

static const hark_operator soft_cap_operator = {
    .name = "soft_cap",
    .formula = "y = cap tanh(x / cap)",
    .attributes_size = sizeof(soft_cap_attributes),
    .input_minimum = 1,
    .input_maximum = 1,
    .output_count = 1,
    .differentiable = 1u << 0,
    .backward_outputs = 1u << 0,
    .in_place = 1u << 0,
    .infer = soft_cap_infer,
    .forward = soft_cap_forward,
    .backward = soft_cap_backward,
};

/* ---- its use ---- */

enum { ROWS = 3, CLASSES = 5, COUNT = ROWS * CLASSES };

static hark_context *context;

static void check(hark_status status) {
  if (status == HARK_OK) return;
  fprintf(stderr, "04_own_operator: %s: %s\n", hark_status_text(status), context != NULL ? hark_context_message(context) : "no context");
  exit(1);
}

/* loss = mean cross-entropy of soft_cap(x); with `gradient` (NULL: not computed) dloss/dx is added to it. */
static double loss_of(hark_tape *tape, double *x, double *gradient) {
  static int32_t targets[ROWS] = {0, 3, 1};
  const soft_cap_attributes soft_cap = {.cap = 2};
  const hark_cross_entropy_attributes mean = {.ignore = -1, .weight = 1.0 / ROWS};
  hark_tensor tensor, slope, target;
  hark_value input, capped, expected, outputs[HARK_MAX_OUTPUTS];
  double loss;
  hark_tape_reset(tape);
  check(hark_tensor_wrap(context, x, HARK_F64, 2, (int64_t[]){ROWS, CLASSES}, NULL, &tensor));
  check(hark_tensor_wrap(context, targets, HARK_I32, 1, (int64_t[]){ROWS}, NULL, &target));
  if (gradient != NULL) check(hark_tensor_wrap(context, gradient, HARK_F64, 2, (int64_t[]){ROWS, CLASSES}, NULL, &slope));
  check(hark_tape_leaf(tape, &tensor, gradient != NULL ? &slope : NULL, &input));
  check(hark_tape_leaf(tape, &target, NULL, &expected));
  check(hark_tape_apply(tape, &soft_cap_operator, &soft_cap, 1, &input, 0, &capped));
  check(hark_tape_apply(tape, &hark_op_cross_entropy, &mean, 2, (hark_value[]){capped, expected}, 0, outputs));
  check(hark_tensor_read(context, hark_tape_tensor(tape, outputs[0]), &loss));
  if (gradient != NULL) check(hark_tape_backward(tape, outputs[0], 1.0));
  return loss;
}

int main(void) {
  const double h = 1e-3;
  double x[COUNT], gradient[COUNT] = {0}, worst = 0;
  hark_tape *tape;
  check(hark_context_create(NULL, &context));
  check(hark_tape_create(context, &tape));
  for (int i = 0; i < COUNT; i++) x[i] = 3 * sin(1.7 * i);
  printf("loss %.6f\n", loss_of(tape, x, gradient));
  for (int i = 0; i < COUNT; i++) { /* four-point differences: the error is of order h^4 */
    const double before = x[i];
    double at[4];
    for (int k = 0; k < 4; k++) {
      x[i] = before + (k < 2 ? k - 2 : k - 1) * h;
      at[k] = loss_of(tape, x, NULL);
    }
    x[i] = before;
    const double expected = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
    worst = fmax(worst, fabs(gradient[i] - expected));
  }
  printf("gradient and differences differ by at most %.1e\n", worst);

  /* A message of the operator. */
  const soft_cap_attributes wrong = {.cap = -1};
  hark_tensor tensor;
  hark_value input, output;
  hark_tape_reset(tape);
  check(hark_tensor_wrap(context, x, HARK_F64, 1, (int64_t[]){COUNT}, NULL, &tensor));
  check(hark_tape_leaf(tape, &tensor, NULL, &input));
  const hark_status status = hark_tape_apply(tape, &soft_cap_operator, &wrong, 1, &input, 0, &output);
  printf("%s: %s\n", hark_status_text(status), hark_context_message(context));

  hark_tape_destroy(&tape);
  hark_context_destroy(&context);
  /* The loss is of order one: differences are accurate to rounding over h, about 1e-12. */
  return worst < 1e-9 && status == HARK_INVALID_ARGUMENT ? 0 : 1;
}
