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
    p[i] = hark_tape_input(tape, HARK_F32, parameters[i].rank, parameters[i].shape, parameters[i].data, gradients[i]);
  const hark_value x = hark_tape_input(tape, HARK_F32, 2, (int64_t[]){ROWS, BITS}, bits, NULL);
  const hark_value target = hark_tape_input(tape, HARK_I32, 1, (int64_t[]){ROWS}, targets, NULL);
  const hark_value hidden = hark_apply1(tape, &hark_op_gelu, &gelu, hark_apply3(tape, &hark_op_linear, NULL, x, p[0], p[1]));
  const hark_value logits = hark_apply3(tape, &hark_op_linear, NULL, hidden, p[2], p[3]);
  const hark_value result = hark_apply2(tape, &hark_op_cross_entropy, &mean, logits, target);
  check(hark_tape_failure(tape)); /* of any of these lines */
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
  return loss < 0.05f ? 0 : 1; /* the baseline of equal probabilities is log 2 = 0.69 */
}
