/* test_call_memory.c - where the memory of callers lies: operators over their own inputs where their records allow it, and nowhere else;
 * gradients, vectors and texts that would be overwritten while they are read.
 */
#include <hark/experimental.h>
#include <hark/hark.h>
#include <stdio.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/small_models.h"
#include "support/text_files.h"

enum { ROWS = 4, WIDTH = 8, COUNT = ROWS * WIDTH, ROOM = 64 * COUNT };

static _Alignas(64) float arena[ROOM];
static hark_context *context;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  for (int i = 0; i < ROOM; i++) arena[i] = (float)(i * 37 % 101) / 101 - 0.5f;
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_context_destroy(&context);
  return 0;
}

/* Block `number` of the arena, from element `shift` on. */
static hark_tensor block(int number, int shift) {
  const int64_t shape[] = {ROWS, WIDTH};
  hark_tensor tensor;
  assert_fine(context, hark_tensor_wrap(context, arena + number * COUNT + shift, HARK_F32, 2, shape, NULL, &tensor));
  return tensor;
}

static hark_tensor vector(int number, int64_t count) {
  hark_tensor tensor;
  assert_fine(context, hark_tensor_wrap(context, arena + number * COUNT, HARK_F32, 1, &count, NULL, &tensor));
  return tensor;
}

static void assert_refused(hark_status status, const char *words) {
  if (status != HARK_INVALID_ARGUMENT || strstr(hark_context_message(context), words) == NULL)
    fail_msg("%s: \"%s\", expected a refusal that says \"%s\"", hark_status_name(status), hark_context_message(context), words);
}

/* ---- forward ---- */

static void outputs_lie_in_place_where_the_record_allows_it(void **state) {
  float apart[COUNT];
  hark_call call = {.op = &hark_op_add, .input_count = 2, .inputs = {block(0, 0), block(1, 0)}, .outputs = {block(2, 0)}};
  (void)state;
  assert_fine(context, hark_operator_forward(context, &call));
  memcpy(apart, call.outputs[0].data, sizeof apart);
  call.outputs[0] = block(0, 1);
  assert_refused(hark_operator_forward(context, &call),
                 "add: output 0 and input 0 share memory, expected separate memory, or the one exactly in the other's place");
  call.outputs[0] = block(1, -1);
  assert_refused(hark_operator_forward(context, &call), "add: output 0 and input ");
  call.outputs[0] = call.inputs[1];
  assert_fine(context, hark_operator_forward(context, &call));
  assert_memory_equal(apart, call.outputs[0].data, sizeof apart);
}

static void outputs_are_apart_elsewhere(void **state) {
  const hark_norm_attributes norm = {.epsilon = 1e-5};
  hark_call linear = {.op = &hark_op_linear, .input_count = 2, .inputs = {block(0, 0), block(1, 0)}};
  const int64_t square[] = {WIDTH, WIDTH};
  (void)state;
  assert_fine(context, hark_tensor_wrap(context, arena + 8 * COUNT, HARK_F32, 2, square, NULL, &linear.inputs[1]));
  linear.outputs[0] = block(0, 0);
  assert_refused(hark_operator_forward(context, &linear), "linear: output 0 and input 0 share memory, expected separate memory");
  linear.outputs[0] = block(8, 1);
  assert_refused(hark_operator_forward(context, &linear), "linear: output 0 and input 1 share memory");
  linear.outputs[0] = block(7, 0);
  assert_fine(context, hark_operator_forward(context, &linear));
  hark_call normed = {.op = &hark_op_rms_norm,
                      .attributes = &norm,
                      .input_count = 2,
                      .inputs = {block(0, 0), vector(1, WIDTH)},
                      .outputs = {block(2, 0)},
                      .saved = {vector(2, ROWS)}};
  assert_refused(hark_operator_forward(context, &normed), "rms_norm: output 0 and saved 0 share memory");
  normed.saved[0] = vector(1, ROWS);
  assert_refused(hark_operator_forward(context, &normed), "rms_norm: saved 0 and input 1 share memory");
  normed.saved[0] = vector(3, ROWS);
  normed.workspace = arena + 2 * COUNT;
  normed.workspace_bytes = 64;
  assert_refused(hark_operator_forward(context, &normed), "output 0 and workspace share memory");
}

static void updated_inputs_are_apart(void **state) {
  const hark_adamw_attributes adamw = {.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .gradient_scale = 1, .step = 1};
  hark_call call = {.op = &hark_op_adamw, .attributes = &adamw, .input_count = 4};
  (void)state;
  for (int i = 0; i < 4; i++) call.inputs[i] = vector(i, COUNT);
  memset(call.inputs[3].data, 0, COUNT * sizeof(float));
  assert_fine(context, hark_operator_forward(context, &call));
  call.inputs[1] = call.inputs[0];
  assert_refused(hark_operator_forward(context, &call), "adamw: input 0 and input 1 share memory");
  call.inputs[1] = vector(1, COUNT);
  call.inputs[3] = call.inputs[2];
  assert_refused(hark_operator_forward(context, &call), "adamw: input 2 and input 3 share memory");
}

static void tensors_of_built_in_records_are_contiguous(void **state) {
  hark_call call = {.op = &hark_op_relu, .input_count = 1, .inputs = {block(0, 0)}, .outputs = {block(2, 0)}};
  (void)state;
  call.outputs[0].stride[0] = 2 * WIDTH;
  assert_refused(hark_operator_forward(context, &call), "relu: output 0 [4, 8] is not contiguous");
  call.outputs[0] = block(2, 0);
  call.inputs[0].stride[0] = 0;
  assert_refused(hark_operator_forward(context, &call), "relu: input 0 [4, 8] is not contiguous");
}

/* y = x, of any strides. */
static hark_status forward_copy(hark_context *of, const hark_call *call) {
  const hark_tensor *x = &call->inputs[0], *y = &call->outputs[0];
  (void)of;
  for (int64_t r = 0; r < x->shape[0]; r++)
    for (int64_t d = 0; d < x->shape[1]; d++)
      ((float *)y->data)[r * y->stride[0] + d * y->stride[1]] = ((const float *)x->data)[r * x->stride[0] + d * x->stride[1]];
  return HARK_OK;
}

static void records_of_callers_may_take_strides(void **state) {
  static const hark_operator copy = {
      .name = "strided_copy", .formula = "y = x", .input_minimum = 1, .input_maximum = 1, .output_count = 1, .forward = forward_copy};
  hark_call call = {.op = &copy, .input_count = 1, .inputs = {block(0, 0)}, .outputs = {block(2, 0)}};
  (void)state;
  call.outputs[0].stride[0] = 2 * WIDTH;
  call.inputs[0].stride[0] = 0;
  assert_fine(context, hark_operator_forward(context, &call));
  assert_true(arena[2 * COUNT + 2 * WIDTH] == arena[0]);
  call.outputs[0].stride[0] = WIDTH - 1;
  assert_refused(hark_operator_forward(context, &call), "strided_copy: output 0 [4, 8] has strides by which two");
  call.outputs[0].stride[0] = 0;
  assert_refused(hark_operator_forward(context, &call), "strided_copy: output 0");
}

/* ---- backward ---- */

static void gradients_lie_over_their_inputs_where_the_record_allows_it(void **state) {
  float apart[COUNT];
  const hark_gelu_attributes gelu = {.tanh_approximation = false};
  hark_call call = {.op = &hark_op_gelu,
                    .attributes = &gelu,
                    .input_count = 1,
                    .inputs = {block(4, 0)},
                    .output_gradients = {block(5, 0)},
                    .input_gradients = {block(6, 0)}};
  (void)state;
  assert_fine(context, hark_operator_backward(context, &call));
  memcpy(apart, call.input_gradients[0].data, sizeof apart);
  call.input_gradients[0] = block(4, -3);
  assert_refused(
      hark_operator_backward(context, &call),
      "gelu: the gradient of input 0 and input 0 share memory, expected separate memory, or the one exactly in the other's place");
  call.input_gradients[0] = block(5, 0);
  assert_refused(hark_operator_backward(context, &call), "gelu: the gradient of input 0 and the gradient of output 0 share memory");
  call.input_gradients[0] = call.inputs[0];
  assert_fine(context, hark_operator_backward(context, &call));
  assert_memory_equal(apart, call.input_gradients[0].data, sizeof apart);
}

static void gradients_are_apart(void **state) {
  hark_call call = {.op = &hark_op_linear,
                    .input_count = 2,
                    .inputs = {block(0, 0)},
                    .output_gradients = {block(5, 0)},
                    .input_gradients = {block(6, 0)}};
  const int64_t square[] = {WIDTH, WIDTH};
  (void)state;
  assert_fine(context, hark_tensor_wrap(context, arena + 8 * COUNT, HARK_F32, 2, square, NULL, &call.inputs[1]));
  assert_fine(context, hark_tensor_wrap(context, arena + 6 * COUNT + 4, HARK_F32, 2, square, NULL, &call.input_gradients[1]));
  assert_refused(hark_operator_backward(context, &call), "linear: the gradient of input 0 and the gradient of input 1 share memory");
  call.input_gradients[1] = call.inputs[1];
  assert_refused(hark_operator_backward(context, &call), "linear: the gradient of input 1 and input 1 share memory");
}

/* ---- the tape ---- */

/* An input that the output might take over is not taken where the record reads it as another input as well. */
static void the_tape_overwrites_no_input_that_is_read_twice(void **state) {
  static const int32_t order[ROWS] = {3, 0, 1, 2};
  const int64_t rows = ROWS;
  float *const x = arena;
  hark_tensor index, data = block(0, 0);
  hark_tape *tape;
  hark_value inputs[3], scaled, out;
  const hark_scale_attributes twice = {.factor = 2};
  (void)state;
  int32_t numbers[ROWS];
  memcpy(numbers, order, sizeof numbers);
  assert_fine(context, hark_tensor_wrap(context, numbers, HARK_I32, 1, &rows, NULL, &index));
  assert_fine(context, hark_tape_create(context, &tape));
  hark_tape_set_recording(tape, false);
  assert_fine(context, hark_tape_leaf(tape, &data, NULL, &inputs[0]));
  assert_fine(context, hark_tape_leaf(tape, &index, NULL, &inputs[2]));
  assert_fine(context, hark_tape_apply(tape, &hark_op_scale, &twice, 1, inputs, 0, &scaled));
  inputs[0] = inputs[1] = scaled;
  assert_fine(context, hark_tape_apply(tape, &hark_op_scatter_gated, NULL, 3, inputs, 1, &out));
  const float *y = hark_tape_tensor(tape, out)->data;
  for (int r = 0; r < ROWS; r++)
    for (int d = 0; d < WIDTH; d++) {
      const int from = (r + 1) % ROWS; /* order[from] == r */
      assert_true(y[r * WIDTH + d] == 2 * x[r * WIDTH + d] + 2 * x[from * WIDTH + d]);
    }
  hark_tape_destroy(&tape);
}

static void gradients_of_leaves_are_apart_from_their_data(void **state) {
  const hark_tensor data = block(0, 0), gradient = block(0, COUNT - 1), fine = block(1, 0);
  hark_tape *tape;
  hark_value value;
  (void)state;
  assert_fine(context, hark_tape_create(context, &tape));
  assert_refused(hark_tape_leaf(tape, &data, &gradient, &value), "leaf: gradient and data share memory");
  assert_refused(hark_tape_leaf(tape, &data, &data, &value), "leaf: gradient and data share memory");
  assert_fine(context, hark_tape_leaf(tape, &data, &fine, &value));
  hark_tape_destroy(&tape);
}

/* ---- the rest ---- */

static void calls_are_complete(void **state) {
  const hark_norm_attributes norm = {.epsilon = 1e-5};
  const hark_call whole = {.op = &hark_op_rms_norm,
                           .attributes = &norm,
                           .input_count = 2,
                           .inputs = {block(0, 0), vector(1, WIDTH)},
                           .outputs = {block(2, 0)},
                           .saved = {vector(3, ROWS)}};
  (void)state;
  assert_fine(context, hark_operator_forward(context, &whole));
  static const int counts[] = {-5, 1, 3, 100};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    hark_call call = whole;
    call.input_count = counts[i];
    assert_refused(hark_operator_forward(context, &call), "inputs, expected 2 to 2");
    assert_refused(hark_operator_backward(context, &call), "inputs, expected 2 to 2");
  }
  hark_call call = whole;
  call.attributes = NULL;
  assert_refused(hark_operator_forward(context, &call), "rms_norm: attributes are NULL, expected 8 bytes");
  call = whole;
  call.inputs[1] = (hark_tensor){0};
  assert_refused(hark_operator_forward(context, &call), "rms_norm: input 1 is absent, expected a tensor");
  call = whole;
  call.inputs[0].data = NULL;
  assert_refused(hark_operator_forward(context, &call), "rms_norm: input 0 has no data");
  call = whole;
  call.outputs[0].data = NULL;
  assert_refused(hark_operator_forward(context, &call), "rms_norm: output 0 has no data");
  call.outputs[0] = (hark_tensor){0};
  assert_refused(hark_operator_forward(context, &call), "rms_norm: output 0 has no data");
}

static void tensors_are_read_into_other_memory(void **state) {
  hark_tensor tensor = block(0, 0), nowhere = tensor;
  const float first = arena[0];
  (void)state;
  nowhere.data = NULL;
  assert_refused(hark_tensor_read(context, &nowhere, arena), "tensor read: the tensor has no data");
  assert_refused(hark_tensor_write(context, &nowhere, arena), "tensor write: the tensor has no data");
  assert_refused(hark_tensor_zero(context, &nowhere), "tensor zero: the tensor has no data");
  assert_refused(hark_tensor_read(context, &tensor, arena + 1), "tensor read: the tensor and host share memory");
  assert_refused(hark_tensor_write(context, &tensor, arena + COUNT - 1), "tensor write: the tensor and host share memory");
  assert_fine(context, hark_tensor_read(context, &tensor, arena + COUNT));
  assert_fine(context, hark_tensor_write(context, &tensor, arena));
  assert_true(arena[0] == first && arena[COUNT] == first);
}

static void vectors_of_positional_kernels_are_apart_or_the_same(void **state) {
  enum { MOST = 16, DISTANCES = 8 };
  double all[4 * MOST], expected[DISTANCES];
  double *const parameters = all, *const distances = all + MOST, *const weights = all + 2 * MOST;
  hark_positional *kernel;
  (void)state;
  assert_fine(context, hark_positional_create(context, "decay*periodic", &kernel));
  const hark_positional_start start = {.struct_size = sizeof start};
  assert_true(hark_positional_parameter_count(kernel) < MOST);
  assert_fine(context, hark_positional_initial(context, kernel, &start, parameters));
  for (int i = 0; i < DISTANCES; i++) distances[i] = weights[i] = i;
  assert_fine(context, hark_positional_log(context, kernel, parameters, distances, DISTANCES, expected));
  assert_refused(hark_positional_log(context, kernel, parameters, distances, DISTANCES, distances + 1),
                 "log_values and distances share memory");
  assert_refused(hark_positional_term_log(context, kernel, parameters, 0, distances, DISTANCES, distances - 1), "log_values and distances");
  assert_refused(hark_positional_natural(context, kernel, parameters, parameters + 1), "natural and parameters share memory");
  assert_refused(hark_positional_raw(context, kernel, parameters + 1, parameters), "parameters and natural share memory");
  assert_refused(hark_positional_gradient(context, kernel, parameters, distances, weights, DISTANCES, weights), "gradient and weights");
  assert_refused(hark_positional_gradient(context, kernel, parameters, distances, weights, DISTANCES, parameters),
                 "gradient and parameters");
  assert_refused(hark_positional_gradient(context, kernel, parameters, distances, weights, DISTANCES, distances), "gradient and distances");
  assert_refused(hark_positional_natural_gradient(context, kernel, parameters, weights, weights + 1), "gradient and raw_gradient");
  assert_fine(context, hark_positional_log(context, kernel, parameters, distances, DISTANCES, distances));
  assert_memory_equal(distances, expected, sizeof expected);
  hark_positional_destroy(context, &kernel);
}

/* Where a kernel or a plan is placed. A descriptor is read before its plan is written. */
static void places_are_apart_from_what_they_are_made_of(void **state) {
  static _Alignas(16) char memory[HARK_POSITIONAL_PLACE_BYTES];
  const hark_positional *kernel;
  hark_attention_plan *plan;
  hark_attention_desc *const desc = (hark_attention_desc *)(void *)memory;
  (void)state;
  memcpy(memory + 64, "decay", sizeof "decay");
  assert_refused(hark_positional_place(context, memory + 64, memory, sizeof memory, &kernel), "memory and text share memory");
  *desc = hark_attention_desc_default();
  desc->batch = desc->heads = 1;
  desc->query_length = desc->key_length = 7;
  desc->head_dim = 3;
  assert_fine(context, hark_attention_plan_place(context, desc, memory, sizeof memory, &plan));
  assert_int_equal(hark_attention_plan_desc(plan)->key_length, 7);
}

static void memory_of_models_is_apart(void **state) {
  char text[64] = "tokens over their text";
  int32_t tokens[64];
  size_t count, bytes = 0;
  hark_model *model = small_model_make(context, PLAIN, 1);
  hark_decoding_options options = {.struct_size = sizeof options, .capacity = 4};
  hark_decoding *decoding;
  (void)state;
  memcpy(tokens, text, sizeof text);
  assert_refused(hark_model_encode(context, model, (const char *)tokens, 20, false, tokens, &count),
                 "encode: tokens and text share memory");
  assert_fine(context, hark_model_encode(context, model, text, 20, false, tokens, &count));
  assert_fine(context, hark_decoding_size(context, model, &options, &bytes));
  static unsigned char memory[1 << 20];
  assert_true(bytes < sizeof memory);
  options.memory = memory;
  options.memory_bytes = sizeof memory;
  assert_fine(context, hark_decoding_create(context, model, &options, &decoding));
  assert_fine(context, hark_decoding_step(decoding, tokens[0]));
  const size_t saved = hark_decoding_saved_bytes(decoding);
  assert_refused(hark_decoding_save(decoding, memory + 256, saved), "the saved bytes and the decoding share memory");
  assert_refused(hark_decoding_restore(decoding, memory + 256, saved), "the decoding and its bytes share memory");
  hark_decoding_destroy(&decoding);
  hark_model_destroy(context, &model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(outputs_lie_in_place_where_the_record_allows_it, begin, end),
      cmocka_unit_test_setup_teardown(outputs_are_apart_elsewhere, begin, end),
      cmocka_unit_test_setup_teardown(updated_inputs_are_apart, begin, end),
      cmocka_unit_test_setup_teardown(tensors_of_built_in_records_are_contiguous, begin, end),
      cmocka_unit_test_setup_teardown(records_of_callers_may_take_strides, begin, end),
      cmocka_unit_test_setup_teardown(gradients_lie_over_their_inputs_where_the_record_allows_it, begin, end),
      cmocka_unit_test_setup_teardown(gradients_are_apart, begin, end),
      cmocka_unit_test_setup_teardown(the_tape_overwrites_no_input_that_is_read_twice, begin, end),
      cmocka_unit_test_setup_teardown(gradients_of_leaves_are_apart_from_their_data, begin, end),
      cmocka_unit_test_setup_teardown(calls_are_complete, begin, end),
      cmocka_unit_test_setup_teardown(tensors_are_read_into_other_memory, begin, end),
      cmocka_unit_test_setup_teardown(vectors_of_positional_kernels_are_apart_or_the_same, begin, end),
      cmocka_unit_test_setup_teardown(places_are_apart_from_what_they_are_made_of, begin, end),
      cmocka_unit_test_setup_teardown(memory_of_models_is_apart, begin, end),
  };
  return cmocka_run_group_tests_name("call_memory", tests, NULL, NULL);
}
