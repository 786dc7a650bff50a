/* 02_train_tiny.c - the differentiation tape: a network of two layers learns the exclusive or of two bits.
 *
 *     h = gelu(x W1^T + b1),  logits = h W2^T + b2,  loss = mean cross-entropy;  W <- W - rate dW
 *
 * A step: reset the tape, name the leaves (data, and where its gradient is added to), apply operators, go backward from the loss.
 *
 *     cc 02_train_tiny.c $(pkg-config --cflags --libs hark)
 */
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, BITS = 2, WIDTH = 8, CLASSES = 2, STEPS = 500, PARAMETERS = 4 };

static hark_context *context;

static void check(hark_status status) {
  if (status == HARK_OK) return;
  fprintf(stderr, "02_train_tiny: %s: %s\n", hark_status_text(status), context != NULL ? hark_context_message(context) : "no context");
  exit(1);
}

/* Parameters and their gradients, all f32. */
static float first_weight[WIDTH * BITS], first_bias[WIDTH], second_weight[CLASSES * WIDTH], second_bias[CLASSES];
static float gradients[PARAMETERS][WIDTH * BITS];
static const struct {
  float *data;
  int rank;
  int64_t shape[2];
} parameters[PARAMETERS] = {
    {first_weight, 2, {WIDTH, BITS}}, {first_bias, 1, {WIDTH}}, {second_weight, 2, {CLASSES, WIDTH}}, {second_bias, 1, {CLASSES}}};

static hark_value leaf(hark_tape *tape, void *data, void *gradient, hark_type type, int rank, const int64_t *shape) {
  hark_tensor tensor, gradient_tensor;
  hark_value value;
  check(hark_tensor_wrap(context, data, type, rank, shape, NULL, &tensor));
  if (gradient != NULL) check(hark_tensor_wrap(context, gradient, type, rank, shape, NULL, &gradient_tensor));
  check(hark_tape_leaf(tape, &tensor, gradient != NULL ? &gradient_tensor : NULL, &value));
  return value;
}

/* The first output of an operator. */
static hark_value apply(hark_tape *tape, const hark_operator *op, const void *attributes, int count, const hark_value *inputs) {
  hark_value outputs[HARK_MAX_OUTPUTS];
  check(hark_tape_apply(tape, op, attributes, count, inputs, 0, outputs));
  return outputs[0];
}

/* One step; returns the loss. */
static float step(hark_tape *tape, float rate) {
  static float bits[ROWS * BITS] = {0, 0, 0, 1, 1, 0, 1, 1};
  static int32_t targets[ROWS] = {0, 1, 1, 0};
  const hark_gelu_attributes gelu = {0};
  const hark_cross_entropy_attributes mean = {.ignore = -1, .weight = 1.0 / ROWS};
  hark_value p[PARAMETERS];
  float loss;
  hark_tape_reset(tape);
  memset(gradients, 0, sizeof gradients);
  for (int i = 0; i < PARAMETERS; i++)
    p[i] = leaf(tape, parameters[i].data, gradients[i], HARK_F32, parameters[i].rank, parameters[i].shape);
  const hark_value x = leaf(tape, bits, NULL, HARK_F32, 2, (int64_t[]){ROWS, BITS});
  const hark_value target = leaf(tape, targets, NULL, HARK_I32, 1, (int64_t[]){ROWS});
  const hark_value hidden = apply(tape, &hark_op_linear, NULL, 3, (hark_value[]){x, p[0], p[1]});
  const hark_value active = apply(tape, &hark_op_gelu, &gelu, 1, &hidden);
  const hark_value logits = apply(tape, &hark_op_linear, NULL, 3, (hark_value[]){active, p[2], p[3]});
  const hark_value result = apply(tape, &hark_op_cross_entropy, &mean, 2, (hark_value[]){logits, target});
  check(hark_tensor_read(context, hark_tape_tensor(tape, result), &loss));
  check(hark_tape_backward(tape, result, 1.0));
  for (int i = 0; i < PARAMETERS; i++)
    for (int64_t j = 0; j < parameters[i].shape[0] * (parameters[i].rank > 1 ? parameters[i].shape[1] : 1); j++)
      parameters[i].data[j] -= rate * gradients[i][j];
  return loss;
}

int main(void) {
  hark_tape *tape;
  double start[WIDTH * BITS];
  float loss = 0;
  check(hark_context_create(NULL, &context));
  check(hark_tape_create(context, &tape));
  for (int i = 0; i < PARAMETERS; i += 2) { /* weights; biases start at zero */
    const hark_random_stream stream = {.seed = 1, .layer_purpose = hark_random_layer_purpose((uint32_t)i, HARK_RANDOM_INITIAL)};
    hark_random_normal(&stream, 0, WIDTH * BITS, start);
    for (int j = 0; j < WIDTH * BITS; j++) parameters[i].data[j] = (float)start[j];
  }
  for (int i = 0; i <= STEPS; i++) {
    loss = step(tape, 0.5f);
    if (i % 100 == 0) printf("step %3d  loss %.4f\n", i, loss);
  }
  hark_tape_destroy(&tape);
  hark_context_destroy(&context);
  return loss < 0.05f ? 0 : 1; /* guessing gives log 2 = 0.69 */
}
