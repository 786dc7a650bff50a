/* test_abi_operators.c - descriptors of other versions of hark in the attributes of operators (docs/abi.md): every way of running a record
 * takes them as far as they go, and touches nothing after them. */
#include <hark/hark.h>
#include <stdio.h>
#include <string.h>

#include "core/structs.h"
#include "support/cmocka_all.h"
#include "support/page_end.h"
#include "support/setups.h"
#include "support/text_files.h"

enum { LENGTH = 5, HEADS = 2, DIM = 4, WIDTH = HEADS * DIM, COUNT = LENGTH * WIDTH };

static hark_context *context;
static page_end place;

static int begin(void **state) {
  (void)state;
  context = test_reference_open();
  place = page_end_open(2 * sizeof(hark_attention_desc));
  return 0;
}

static int end(void **state) {
  (void)state;
  page_end_close(&place);
  hark_context_destroy(&context);
  return 0;
}

/* A record with attributes that hold a descriptor, and the least that a descriptor has to have for it. */
typedef struct record {
  const hark_operator *op;
  hark_attention_desc desc;
  size_t needed;
  bool owned; /* in the attributes, not pointed at */
} record;

typedef union attributes_of {
  hark_attention_attributes attention;
  hark_kernel_ridge_attributes ridge;
} attributes_of;

static attributes_of attributes_with(const record *r, const void *desc, size_t size) {
  attributes_of made;
  memset(&made, 0, sizeof made);
  if (r->op == &hark_op_kernel_ridge) {
    made.ridge.desc = desc;
  } else if (r->owned) {
    memset(&made.attention.own, 0x5A, sizeof made.attention.own);
    memcpy(&made.attention.own, desc, size);
  } else {
    made.attention.desc = desc;
  }
  return made;
}

static hark_tensor tensor_of(float *data) {
  const int64_t shape[] = {1, LENGTH, WIDTH};
  hark_tensor tensor;
  assert_int_equal(hark_tensor_wrap(context, data, HARK_F32, 3, shape, NULL, &tensor), HARK_OK);
  return tensor;
}

/* Everything that a run gives. */
typedef struct outcome {
  float out[COUNT], gradients[3][COUNT], tape_gradients[3][COUNT];
  double operations[2], tape_operations;
  int64_t terms;
} outcome;

static float inputs[3][COUNT], output_gradient[COUNT];

static void fill_inputs(void) {
  for (int i = 0; i < COUNT; i++) {
    for (int k = 0; k < 3; k++) inputs[k][i] = (float)((i * 7 + k * 5) % 11) / 11 - 0.5f;
    output_gradient[i] = (float)(i % 3) - 1;
  }
}

static hark_status run_directly(const record *r, const void *attributes, outcome *o) {
  static unsigned char saved[HARK_MAX_SAVED][1 << 16];
  static _Alignas(64) unsigned char workspace[1 << 20];
  hark_call call = {.op = r->op, .attributes = attributes, .input_count = 3};
  hark_inferred inferred = {0};
  for (int i = 0; i < 3; i++) call.inputs[i] = tensor_of(inputs[i]);
  o->operations[0] = r->op->operations(attributes, call.inputs, 3, false);
  o->operations[1] = r->op->operations(attributes, call.inputs, 3, true);
  o->terms = r->op->terms(attributes, call.inputs, 3);
  HARK_TRY(r->op->infer(context, attributes, call.inputs, 3, &inferred));
  call.outputs[0] = tensor_of(o->out);
  for (int i = 0; i < HARK_MAX_SAVED; i++) {
    call.saved[i] = inferred.saved[i];
    if (call.saved[i].type != HARK_NONE) call.saved[i].data = saved[i];
  }
  assert_true(inferred.forward_workspace <= sizeof workspace && inferred.backward_workspace <= sizeof workspace);
  call.workspace = workspace;
  call.workspace_bytes = sizeof workspace;
  HARK_TRY(hark_operator_forward(context, &call));
  call.output_gradients[0] = tensor_of(output_gradient);
  for (int i = 0; i < 3; i++) call.input_gradients[i] = tensor_of(o->gradients[i]);
  return hark_operator_backward(context, &call);
}

static hark_status run_on_tape(const record *r, const void *attributes, outcome *o) {
  static const hark_squared_error_attributes weight = {.weight = 1};
  hark_tape *tape;
  hark_value leaves[3], parts[2], loss = 0;
  const hark_tensor target = tensor_of(output_gradient);
  HARK_TRY(hark_tape_create(context, &tape));
  for (int i = 0; i < 3; i++) {
    const hark_tensor data = tensor_of(inputs[i]), gradient = tensor_of(o->tape_gradients[i]);
    assert_int_equal(hark_tape_leaf(tape, &data, &gradient, &leaves[i]), HARK_OK);
  }
  assert_int_equal(hark_tape_leaf(tape, &target, NULL, &parts[1]), HARK_OK);
  hark_status status = hark_tape_apply(tape, r->op, attributes, 3, leaves, 0, &parts[0]);
  if (status == HARK_OK) status = hark_tape_apply(tape, &hark_op_squared_error, &weight, 2, parts, 0, &loss);
  if (status == HARK_OK) status = hark_tape_backward(tape, loss, 1);
  o->tape_operations = hark_tape_operations(tape);
  hark_tape_destroy(&tape);
  return status;
}

/* A descriptor of `size` bytes, the last ones before a page that cannot be touched. */
static hark_status run_with(const record *r, size_t size, outcome *o) {
  hark_attention_desc desc = r->desc;
  memset(o, 0, sizeof *o);
  desc.struct_size = size;
  const attributes_of attributes = attributes_with(r, page_end_copy(&place, &desc, size), size);
  HARK_TRY(run_directly(r, &attributes, o));
  return run_on_tape(r, &attributes, o);
}

static void each_size(const record *r) {
  static outcome full, o;
  assert_fine(context, run_with(r, sizeof r->desc, &full));
  assert_true(full.operations[0] > 0 && full.operations[1] > 0 && full.terms > 1);
  for (size_t size = HARK_LEAST_ATTENTION_DESC; size <= sizeof r->desc; size += sizeof(size_t)) {
    const hark_status status = run_with(r, size, &o);
    const hark_status expected = size < r->needed ? HARK_INVALID_ARGUMENT : HARK_OK;
    if (status != expected)
      fail_msg("%s, struct_size %zu: %s, expected %s (\"%s\")", r->op->name, size, hark_status_name(status), hark_status_name(expected),
               hark_context_message(context));
    if (status == HARK_OK && memcmp(&o, &full, sizeof o) != 0) fail_msg("%s, struct_size %zu: other numbers", r->op->name, size);
  }
}

static hark_attention_desc plain_desc(void) {
  hark_attention_desc desc = hark_attention_desc_default();
  desc.batch = 1;
  desc.heads = HEADS;
  desc.query_length = desc.key_length = LENGTH;
  desc.head_dim = DIM;
  return desc;
}

static void attention_serves_descriptors_of_every_size(void **state) {
  (void)state;
  fill_inputs();
  const record pointed = {&hark_op_attention, plain_desc(), 0, false}, owned = {&hark_op_attention, plain_desc(), 0, true};
  each_size(&pointed);
  each_size(&owned);
}

static void kernel_ridge_serves_descriptors_of_every_size(void **state) {
  (void)state;
  fill_inputs();
  record r = {&hark_op_kernel_ridge, plain_desc(), offsetof(hark_attention_desc, ridge) + sizeof(double), false};
  r.desc.normalisation = HARK_NORMALISATION_CME;
  r.desc.ridge = 0.5;
  each_size(&r);
}

static void refused(const hark_operator *op, const void *attributes, hark_status expected, const char *message) {
  const hark_tensor tensors[] = {tensor_of(inputs[0]), tensor_of(inputs[1]), tensor_of(inputs[2])};
  hark_inferred inferred = {0};
  assert_int_equal(op->infer(context, attributes, tensors, 3, &inferred), expected);
  if (strstr(hark_context_message(context), message) == NULL)
    fail_msg("\"%s\" does not contain \"%s\"", hark_context_message(context), message);
  assert_true(op->operations(attributes, tensors, 3, false) == 0);
  assert_int_equal(op->terms(attributes, tensors, 3), 1);
}

/* Descriptors of later versions, none at all, and one that says that it is larger than the room that it lies in. */
static void other_descriptors_are_refused(void **state) {
  (void)state;
  hark_attention_attributes attributes;
  memset(&attributes, 0, sizeof attributes);
  const hark_kernel_ridge_attributes nothing = {.desc = NULL};
  refused(&hark_op_attention, &attributes, HARK_INVALID_ARGUMENT, "own has no struct_size");
  refused(&hark_op_kernel_ridge, &nothing, HARK_INVALID_ARGUMENT, "plan and desc are NULL, expected");
  attributes.own.desc = plain_desc();
  attributes.own.desc.struct_size = sizeof attributes.own + 8;
  refused(&hark_op_attention, &attributes, HARK_INVALID_ARGUMENT, "struct_size 520, expected at most the 512 bytes");
  attributes.own.desc.struct_size = sizeof attributes.own;
  attributes.own.room[sizeof attributes.own - 1] = 1;
  refused(&hark_op_attention, &attributes, HARK_UNSUPPORTED, "byte 511 is set");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(attention_serves_descriptors_of_every_size),
      cmocka_unit_test(kernel_ridge_serves_descriptors_of_every_size),
      cmocka_unit_test(other_descriptors_are_refused),
  };
  return cmocka_run_group_tests_name("abi_operators", tests, begin, end);
}
