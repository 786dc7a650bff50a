/* 05_compressed_attention.c - the regression example of the paper on adaptive hierarchical compressed attention (Horner 2024, listings 12
 * and 13).
 *
 *     X [1000, d] normal, chunks of 100 -> C1 = 4 averages of a linear map of each -> C2 = 16 averages of a linear map of those
 *     -> the Cs = 8 of largest norm attend to all of C2 (listing 10) -> two layers of linear and relu (listing 11) -> H [Cs, d];
 *     loss = mean (H - Y)^2
 *
 * One sequence and one normal Y are memorised. The listing ends with a relu, so that H is never negative and the loss cannot fall below the
 * mean of min(Y, 0)^2, about 1/2; without the last relu it goes to zero. Both are shown and checked. The boundaries, the pools, the
 * selection and the ragged attention are operators of hark/operators.h, used separately here; the squared error is a user-defined operator.
 *
 *     cc 05_compressed_attention.c $(pkg-config --cflags --libs hark)
 */
#include <hark/experimental.h>
#include <hark/hark.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 1000, CHUNK = 100, CHUNKS = TOKENS / CHUNK, SLOTS = 4, SECONDARY = 16, SELECTED = 8, WIDTH = 32, LAYERS = 2, STEPS = 400 };
enum { PRIMARY, SECOND, QUERY, KEY, VALUE, FIRST_LAYER, MATRICES = FIRST_LAYER + LAYERS, MATRIX = WIDTH * WIDTH };

static hark_context *context;

static void check(hark_status status) {
  if (status == HARK_OK) return;
  fprintf(stderr, "05_compressed_attention: %s: %s\n", hark_status_text(status),
          context != NULL ? hark_context_message(context) : "no context");
  exit(1);
}

/* ---- mean (x - y)^2, in f32 ---- */

static hark_status squared_error_infer(hark_context *c, const void *attributes, const hark_tensor *inputs, int input_count,
                                       hark_inferred *out) {
  (void)attributes;
  (void)input_count;
  if (inputs[0].type != HARK_F32 || inputs[1].type != HARK_F32 || hark_tensor_count(&inputs[0]) != hark_tensor_count(&inputs[1]))
    return hark_context_fail(c, HARK_SHAPE_MISMATCH, "squared_error: x and y differ in size, or are not f32");
  return hark_tensor_describe(c, HARK_F32, 0, NULL, &out->outputs[0]);
}

static hark_status squared_error_forward(hark_context *c, const hark_call *call) {
  const float *x = call->inputs[0].data, *y = call->inputs[1].data;
  const int64_t count = hark_tensor_count(&call->inputs[0]);
  double sum = 0;
  (void)c;
  for (int64_t i = 0; i < count; i++) sum += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
  *(float *)call->outputs[0].data = (float)(sum / (double)count);
  return HARK_OK;
}

/* loss = mean (x - y)^2: dx = 2 (x - y) dloss / n */
static hark_status squared_error_backward(hark_context *c, const hark_call *call) {
  const hark_tensor *dx = &call->input_gradients[0], *dloss = &call->output_gradients[0];
  const float *x = call->inputs[0].data, *y = call->inputs[1].data;
  (void)c;
  if (dx->type == HARK_NONE) return HARK_OK;
  const int64_t count = hark_tensor_count(dx);
  const float factor = dloss->type == HARK_NONE ? 0 : *(const float *)dloss->data * 2 / (float)count;
  float *gradient = dx->data;
  for (int64_t i = 0; i < count; i++) gradient[i] = ((call->accumulate & 1u) != 0 ? gradient[i] : 0) + factor * (x[i] - y[i]);
  return HARK_OK;
}

static const hark_operator squared_error = {.name = "squared_error",
                                            .formula = "loss = mean (x - y)^2",
                                            .input_minimum = 2,
                                            .input_maximum = 2,
                                            .output_count = 1,
                                            .differentiable = 1u << 0,
                                            .backward_inputs = 1u << 0 | 1u << 1,
                                            .infer = squared_error_infer,
                                            .forward = squared_error_forward,
                                            .backward = squared_error_backward};

/* ---- the network ---- */

/* All matrices [WIDTH, WIDTH], one after the other, with their gradients and the optimiser's moments. */
static float weights[MATRICES * MATRIX], gradients[MATRICES * MATRIX], moments[2][MATRICES * MATRIX];
static float x[TOKENS * WIDTH], y[SELECTED * WIDTH];

static hark_tensor wrap(void *data, hark_type type, int rank, const int64_t *shape) {
  hark_tensor tensor;
  check(hark_tensor_wrap(context, data, type, rank, shape, NULL, &tensor));
  return tensor;
}

static hark_value leaf(hark_tape *tape, const hark_tensor *tensor, const hark_tensor *gradient) {
  hark_value value;
  check(hark_tape_leaf(tape, tensor, gradient, &value));
  return value;
}

/* The first output of an operator. */
static hark_value apply(hark_tape *tape, const hark_operator *op, const void *attributes, int count, const hark_value *inputs) {
  hark_value outputs[HARK_MAX_OUTPUTS];
  check(hark_tape_apply(tape, op, attributes, count, inputs, 0, outputs));
  return outputs[0];
}

/* rows W^T with matrix `number` */
static hark_value linear(hark_tape *tape, hark_value rows, int number) {
  const int64_t shape[] = {WIDTH, WIDTH};
  const hark_tensor weight = wrap(weights + number * MATRIX, HARK_F32, 2, shape),
                    gradient = wrap(gradients + number * MATRIX, HARK_F32, 2, shape);
  return apply(tape, &hark_op_linear, NULL, 2, (hark_value[]){rows, leaf(tape, &weight, &gradient)});
}

/* `slots` averages of every segment of rows; `fewer`: a segment with fewer rows has as many averages as rows. */
static hark_value average(hark_tape *tape, hark_value rows, hark_value offsets, int64_t slots, int64_t unit, bool fewer) {
  const hark_segment_pool_attributes pool = {HARK_SEGMENT_POOL_AVERAGE, slots, unit, fewer, 0};
  return apply(tape, &hark_op_segment_pool, &pool, 2, (hark_value[]){rows, offsets});
}

/* The Cs of largest norm attend to all of C2. */
static hark_value attend(hark_tape *tape, hark_value c2) {
  enum { QUERY_OFFSETS = 9, KEY_OFFSETS, INPUTS };
  static int64_t all[] = {0, SECONDARY};
  const hark_select_tokens_attributes select = {.kind = HARK_SELECTION_NORM, .rows = SECONDARY, .count = SELECTED};
  const hark_gather_rows_attributes rows_of_c2 = {.leading = 2};
  const hark_tensor offsets = wrap(all, HARK_I64, 1, (int64_t[]){2});
  const hark_value sequences = leaf(tape, &offsets, NULL);
  hark_value selected[HARK_MAX_OUTPUTS], inputs[INPUTS] = {0};
  check(hark_tape_apply(tape, &hark_op_select_tokens, &select, 2, (hark_value[]){sequences, c2}, 0, selected));
  inputs[0] = linear(tape, apply(tape, &hark_op_gather_rows, &rows_of_c2, 2, (hark_value[]){c2, selected[0]}), QUERY);
  inputs[1] = linear(tape, c2, KEY);
  inputs[2] = linear(tape, c2, VALUE);
  inputs[QUERY_OFFSETS] = selected[1];
  inputs[KEY_OFFSETS] = sequences;
  hark_attention_attributes attention = {.own = {.desc = hark_attention_desc_default()}};
  attention.own.desc.batch = attention.own.desc.heads = 1;
  attention.own.desc.query_length = SELECTED;
  attention.own.desc.key_length = SECONDARY;
  attention.own.desc.head_dim = attention.own.desc.value_dim = WIDTH;
  attention.own.desc.max_sequences = 2;
  return apply(tape, &hark_op_attention, &attention, INPUTS, inputs);
}

/* One step; returns the loss before it. */
static float step(hark_tape *tape, int64_t number, bool last_relu) {
  static int64_t tokens[] = {0, TOKENS}, chunk_list[] = {0, CHUNKS};
  const hark_chunk_boundaries_attributes fixed = {.rule = HARK_CHUNK_FIXED, .rows = TOKENS, .minimum = CHUNK, .maximum = CHUNK};
  const hark_adamw_attributes adam = {.rate = 3e-3, .beta1 = 0.9, .beta2 = 0.98, .epsilon = 1e-8, .gradient_scale = 1, .step = number};
  const int64_t elements[] = {MATRICES * MATRIX};
  const hark_tensor rows = wrap(x, HARK_F32, 2, (int64_t[]){TOKENS, WIDTH}), target = wrap(y, HARK_F32, 2, (int64_t[]){SELECTED, WIDTH});
  const hark_tensor token_offsets = wrap(tokens, HARK_I64, 1, (int64_t[]){2}),
                    chunk_offsets = wrap(chunk_list, HARK_I64, 1, (int64_t[]){2});
  hark_value chunks[HARK_MAX_OUTPUTS];
  float loss;
  hark_tape_reset(tape);
  memset(gradients, 0, sizeof gradients);
  const hark_value sequences = leaf(tape, &token_offsets, NULL);
  check(hark_tape_apply(tape, &hark_op_chunk_boundaries, &fixed, 1, &sequences, 0, chunks));
  const hark_value c1 = average(tape, linear(tape, leaf(tape, &rows, NULL), PRIMARY), chunks[0], SLOTS, 0, false);
  const hark_value c2 = average(tape, linear(tape, c1, SECOND), leaf(tape, &chunk_offsets, NULL), SECONDARY, SLOTS, true);
  hark_value h = attend(tape, c2);
  for (int l = 0; l < LAYERS; l++) {
    h = linear(tape, h, FIRST_LAYER + l);
    if (l + 1 < LAYERS || last_relu) h = apply(tape, &hark_op_relu, NULL, 1, &h);
  }
  const hark_value error = apply(tape, &squared_error, NULL, 2, (hark_value[]){h, leaf(tape, &target, NULL)});
  check(hark_tensor_read(context, hark_tape_tensor(tape, error), &loss));
  check(hark_tape_backward(tape, error, 1.0));
  const hark_call update = {.op = &hark_op_adamw,
                            .attributes = &adam,
                            .input_count = 4,
                            .inputs = {wrap(weights, HARK_F32, 1, elements), wrap(gradients, HARK_F32, 1, elements),
                                       wrap(moments[0], HARK_F32, 1, elements), wrap(moments[1], HARK_F32, 1, elements)}};
  check(hark_operator_forward(context, &update));
  return loss;
}

static void fill(float *numbers, int64_t count, uint32_t stream, double deviation) {
  const hark_random_stream words = {.seed = 1, .layer_purpose = hark_random_layer_purpose(stream, HARK_RANDOM_INITIAL)};
  for (int64_t i = 0; i < count; i++) {
    double number;
    hark_random_normal(&words, (uint64_t)i, 1, &number);
    numbers[i] = (float)(deviation * number);
  }
}

/* The loss after STEPS steps. */
static float learn(hark_tape *tape, bool last_relu) {
  float loss = 0;
  fill(weights, MATRICES * MATRIX, 2, 0.3); /* about 1.7 / sqrt(32): averages of many tokens are small */
  memset(moments, 0, sizeof moments);
  printf("%s\n", last_relu ? "with the relu after the last layer, as printed" : "without it");
  for (int64_t i = 1; i <= STEPS; i++) {
    loss = step(tape, i, last_relu);
    if (i == 1 || i % 100 == 0) printf("  step %3d  loss %.4f\n", (int)i, (double)loss);
  }
  return loss;
}

int main(void) {
  hark_tape *tape;
  double floor = 0;
  check(hark_context_create(NULL, &context));
  check(hark_tape_create(context, &tape));
  fill(x, TOKENS * WIDTH, 0, 1);
  fill(y, SELECTED * WIDTH, 1, 1);
  for (int i = 0; i < SELECTED * WIDTH; i++) floor += y[i] < 0 ? (double)(y[i] * y[i]) / (SELECTED * WIDTH) : 0;
  const double printed = (double)learn(tape, true), free_sign = (double)learn(tape, false);
  printf("mean of min(Y, 0)^2: %.4f, which a relu cannot go below\n", floor);
  hark_tape_destroy(&tape);
  hark_context_destroy(&context);
  return printed >= floor * (1 - 1e-6) && free_sign < 0.5 * floor ? 0 : 1;
}
