/* test_attention_weights.c - the weights of a layer's attention (nn/attention_weights.h) are those of the definition in float64, for every
 * structure and term, in blocks that cover every key once; those of kernel ridge attention give its output; other calls are refused. */
#include <hark/operators.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/attention_weights.h"
#include "support/attention_run.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

/* S is the number of keys, also of the definition's values, which are unit vectors: its result is the matrix of weights. */
static const char *const cases[] = {
    "dense:B1,H2,L131,S131,D7,V131",
    "dense:B1,H4,K2,L70,S70,D8,V70,causal",
    "dense:B1,H2,L1,S1,D4,V1,causal",
    "dense:B1,H2,L64,S64,D4,V64,causal,kernel",
    "dense:B1,H2,L67,S67,D4,V67,kernel,shared,rbf",
    "dense:B1,H2,L67,S67,D4,V67,causal,kernel,hiding",
    "dense:B1,H2,L70,S70,D4,V70,causal,forget,kernel",
    "dense:B1,H4,K2,L70,S70,D8,V70,causal,stick,kernel",
    "dense:B1,H4,K2,L70,S70,D8,V70,C9,causal",
    "dense:B1,H2,L70,S70,D4,V70,C30,causal,cshared,kernel",
    "window:B1,H2,K1,L70,S70,D8,V70,W5,causal,kernel",
    "window:B1,H2,L70,S70,D8,V70,W66",
    "hierarchical:B1,H2,K1,L70,S70,D8,V70,N4,causal,first",
    "hierarchical:B1,H2,L83,S83,D8,V83,N4,mean,kernel",
    "hierarchical:B1,H2,L70,S70,D8,V70,N2,causal,exact,sibling,hbias",
    "hierarchical:B1,H2,L70,S70,D4,V70,N2,linear,hbias,kernel",
    "compressed:B1,H4,K2,L70,S70,D8,V70,N4,slots=2,select=3,kept=5,globals=3",
    "compressed:B1,H2,L70,S70,D8,V70,N3,select=4",
    "compressed:B1,H2,L70,S70,D8,V70,N6,slots=2,select=4,kernel",
};

/* Weights as they are visited. */
typedef struct collected {
  int64_t heads, queries, keys, next;
  double *weights; /* [heads, queries, keys] */
} collected;

static hark_status collect(void *user, const hark_weights_block *block) {
  collected *c = user;
  assert_int_equal(block->first, c->next);
  assert_int_equal(block->heads, c->heads);
  assert_int_equal(block->queries, c->queries);
  assert_true(block->keys >= 1 && block->first + block->keys <= c->keys);
  for (int64_t t = 0; t < block->queries; t++)
    for (int64_t h = 0; h < block->heads; h++)
      for (int64_t j = 0; j < block->keys; j++)
        c->weights[(h * c->queries + t) * c->keys + block->first + j] = (double)block->weights[(t * block->heads + h) * block->keys + j];
  c->next += block->keys;
  return HARK_OK;
}

static void use_unit_vectors(attention_problem *p) {
  attention_numbers *const value = &p->array[ARRAY_VALUE];
  for (int64_t i = 0; i < value->count; i++) value->data[i] = i / value->shape[3] % value->shape[2] == i % value->shape[3];
}

static hark_tensor make(hark_context *context, int rank, const int64_t *shape, const float *numbers) {
  hark_tensor tensor;
  assert_fine(context, hark_tensor_create(context, HARK_F32, rank, shape, &tensor));
  if (numbers != NULL) assert_fine(context, hark_tensor_write(context, &tensor, numbers));
  return tensor;
}

/* [1, H, L, d] as [1, L, H * d], gates [1, H, L] as [1, L, H]; tables, of 2 or 3 dimensions, as they are. Absent arrays stay absent. */
static hark_tensor upload(hark_context *context, const attention_numbers *from, bool table) {
  if (from->count == 0) return (hark_tensor){0};
  const int64_t heads = table ? 1 : from->shape[1], length = table ? from->count : from->shape[2],
                dim = from->rank == 4 ? from->shape[3] : 1;
  const int64_t rows[] = {1, length, heads * dim};
  float *const numbers = calloc((size_t)from->count, sizeof *numbers);
  for (int64_t h = 0; h < heads; h++)
    for (int64_t t = 0; t < length; t++)
      for (int64_t i = 0; i < dim; i++) numbers[(t * heads + h) * dim + i] = (float)from->data[(h * length + t) * dim + i];
  const hark_tensor tensor = make(context, table ? from->rank : 3, table ? from->shape : rows, numbers);
  free(numbers);
  return tensor;
}

/* Fills the inputs of the operator: values are not those of the definition, since the weights do not depend on them. */
static void apply(hark_context *context, const attention_problem *p, hark_attention_application *seen) {
  const int64_t value[] = {1, p->is.keys, p->is.key_heads * p->is.head_dim};
  seen->op = &hark_op_attention;
  seen->input_count = p->is.positions > 0 ? 12 : 8; /* up to the contextual positions, or the bias of a hierarchy */
  seen->inputs[0] = upload(context, &p->array[ARRAY_QUERY], false);
  seen->inputs[1] = upload(context, &p->array[ARRAY_KEY], false);
  seen->inputs[2] = make(context, 3, value, NULL);
  seen->inputs[4] = upload(context, &p->array[ARRAY_LOG_KERNEL], true);
  seen->inputs[5] = upload(context, &p->array[ARRAY_FORGET], false);
  seen->inputs[7] = upload(context, &p->array[ARRAY_HIERARCHICAL_BIAS], true);
  seen->inputs[11] = upload(context, &p->array[ARRAY_CONTEXTUAL], true);
}

static void release(hark_context *context, hark_attention_application *seen) {
  for (int i = 0; i < HARK_MAX_INPUTS; i++) hark_tensor_destroy(context, &seen->inputs[i]);
}

/* An error of log sums of u |log sum| each, and of three roundings, is one of the weight's exponent. */
static double tolerance(const attention_machine *machine, const attention_expected *expected, int64_t i, int64_t keys) {
  const double sum = fabs(expected->array[ARRAY_LSE].data[i / keys]), weight = expected->array[ARRAY_OUT].data[i];
  return attention_tolerance(machine, expected, ARRAY_OUT, i) + weight * (4 * sum + 8) * 6e-8;
}

static void check_case(const attention_machine *machine, hark_context *context, const char *text) {
  attention_problem p;
  attention_expected expected;
  attention_problem_make(text, &p);
  use_unit_vectors(&p);
  attention_expected_make(&p, &expected);
  hark_attention_desc desc = attention_problem_desc(&p, HARK_F32);
  desc.value_dim = desc.head_dim;
  hark_attention_plan *plan;
  assert_fine(context, hark_attention_plan_create(context, &desc, &plan));
  const hark_attention_attributes attributes = {.plan = plan};
  hark_attention_application seen = {.attributes = &attributes};
  apply(context, &p, &seen);
  collected have = {.heads = p.is.heads, .queries = p.is.queries, .keys = p.is.keys};
  const int64_t count = have.heads * have.queries * have.keys;
  have.weights = calloc((size_t)count, sizeof *have.weights);
  assert_fine(context, hark_attention_weights_visit(context, &seen, collect, &have));
  assert_int_equal(have.next, have.keys);
  assert_int_equal(expected.array[ARRAY_OUT].count, count);
  for (int64_t i = 0; i < count; i++)
    attention_assert_near("a weight", text, machine, i, have.weights[i], expected.array[ARRAY_OUT].data[i],
                          tolerance(machine, &expected, i, have.keys));
  free(have.weights);
  release(context, &seen);
  hark_attention_plan_destroy(context, &plan);
  attention_expected_free(&expected);
  attention_problem_free(&p);
}

static void weights_are_those_of_the_definition(void **state) {
  (void)state;
  int machines = 0;
  for (int m = 0; m < attention_machine_count; m++) {
    const attention_machine *const machine = &attention_machines[m];
    hark_context *const context = machine->type == HARK_F32 ? attention_machine_open(machine, 0) : NULL;
    if (context == NULL) continue;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(machine, context, cases[i]);
    test_setup_close(context);
    machines++;
  }
  assert_true(machines > 0);
}

/* ---- kernel ridge ---- */

enum { LENGTH = 37, DIM = 6, HEADS = 2 };

static float number(int64_t i) { return (float)sin(0.7 * (double)i + 0.1 * (double)(i % 17)); }

/* The output of the operator, [LENGTH, HEADS * DIM]. */
static void attend(hark_context *context, const hark_attention_application *seen, float *out) {
  hark_tape *tape;
  hark_value inputs[3], value = 0;
  assert_fine(context, hark_tape_create(context, &tape));
  hark_tape_set_recording(tape, false);
  for (int i = 0; i < 3; i++) assert_fine(context, hark_tape_leaf(tape, &seen->inputs[i], NULL, &inputs[i]));
  assert_fine(context, hark_tape_apply(tape, seen->op, seen->attributes, 3, inputs, 0, &value));
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, value), out));
  hark_tape_destroy(&tape);
}

/* Coefficients times values are the output; some are negative, and a later key has none where attention is causal. */
static void ridge_coefficients_give_the_output(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  for (int causal = 0; causal < 2; causal++) {
    hark_attention_desc desc = hark_attention_desc_default();
    desc.kernel = HARK_KERNEL_RBF;
    desc.sigma = 1;
    desc.normalisation = HARK_NORMALISATION_CME;
    desc.ridge = 0.1;
    desc.batch = 1;
    desc.heads = HEADS;
    desc.query_length = desc.key_length = LENGTH;
    desc.head_dim = DIM;
    desc.causal = causal;
    hark_attention_plan *plan;
    assert_fine(context, hark_attention_plan_create(context, &desc, &plan));
    const hark_kernel_ridge_attributes attributes = {.plan = plan};
    hark_attention_application seen = {.op = &hark_op_kernel_ridge, .attributes = &attributes, .input_count = 3};
    const int64_t shape[] = {1, LENGTH, HEADS * DIM};
    float numbers[LENGTH * HEADS * DIM], out[LENGTH * HEADS * DIM];
    double weights[HEADS * LENGTH * LENGTH];
    for (int input = 0; input < 3; input++) {
      for (int64_t i = 0; i < LENGTH * HEADS * DIM; i++) numbers[i] = number(i + 1000 * input);
      seen.inputs[input] = make(context, 3, shape, numbers); /* `numbers` stay those of the values */
    }
    collected have = {.heads = HEADS, .queries = LENGTH, .keys = LENGTH, .weights = weights};
    assert_fine(context, hark_attention_weights_visit(context, &seen, collect, &have));
    attend(context, &seen, out);
    double least = 0;
    for (int h = 0; h < HEADS; h++)
      for (int t = 0; t < LENGTH; t++)
        for (int c = 0; c < DIM; c++) {
          double sum = 0;
          for (int i = 0; i < LENGTH; i++) {
            const double weight = weights[(h * LENGTH + t) * LENGTH + i];
            least = fmin(least, weight);
            if (causal && i > t) assert_true(weight == 0);
            sum += weight * (double)numbers[(i * HEADS + h) * DIM + c];
          }
          /* f32 results of a well-conditioned system of some 40 unknowns */
          if (!(fabs(sum - (double)out[(t * HEADS + h) * DIM + c]) < 1e-4)) fail_msg("head %d, query %d, feature %d", h, t, c);
        }
    assert_true(least < -0.01);
    release(context, &seen);
    hark_attention_plan_destroy(context, &plan);
  }
  test_setup_close(context);
}

/* ---- refusals, failures ---- */

static hark_status stop(void *user, const hark_weights_block *block) {
  int *const calls = user;
  (void)block;
  (*calls)++;
  return HARK_CANCELLED;
}

static void others_are_refused(void **state) {
  (void)state;
  hark_context *const context = test_reference_open();
  attention_problem p;
  attention_problem_make(cases[1], &p);
  hark_attention_desc desc = attention_problem_desc(&p, HARK_F32);
  desc.value_dim = desc.head_dim;
  hark_attention_plan *plan;
  assert_fine(context, hark_attention_plan_create(context, &desc, &plan));
  int64_t segments[70] = {[69] = 1}; /* two sequences */
  hark_attention_attributes attributes = {.plan = plan, .segments = segments};
  hark_attention_application seen = {.attributes = &attributes};
  apply(context, &p, &seen);
  collected have = {0};
  int calls = 0;
  assert_int_equal(hark_attention_weights_visit(context, &seen, collect, &have), HARK_UNSUPPORTED);
  attributes.segments = NULL;
  assert_int_equal(hark_attention_weights_visit(context, &seen, stop, &calls), HARK_CANCELLED);
  assert_int_equal(calls, 1);
  seen.inputs[0].shape[0] = 2;
  assert_int_equal(hark_attention_weights_visit(context, &seen, collect, &have), HARK_UNSUPPORTED);
  seen.inputs[0].shape[0] = 1;
  release(context, &seen);
  hark_attention_plan_destroy(context, &plan);
  attention_problem_free(&p);
  test_setup_close(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(weights_are_those_of_the_definition),
      cmocka_unit_test(ridge_coefficients_give_the_output),
      cmocka_unit_test(others_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
