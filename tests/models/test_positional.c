/* test_positional.c - positional kernels in the decoder: how many parameters, whose, what they start with, what attention makes of them.
 * Gradients, recomputation, causality and decoding are in test_decoder.c, whose variants have kernels among them. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/decoder.h"
#include "models/decoding.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

#define LENGTH 9
#define VOCABULARY 5

static const hark_decoder_config plain = {.vocabulary = VOCABULARY,
                                          .layers = 3,
                                          .heads = 2,
                                          .key_heads = 2,
                                          .width = 8,
                                          .feed_forward_width = 8,
                                          .context = 256,
                                          .norm_epsilon = 1e-5,
                                          .rotary_base = 10000,
                                          .sigma = 1};

static hark_decoder *make(hark_context *context, const char *expression, hark_positional_scope scope) {
  hark_decoder_config config = plain;
  hark_decoder *decoder = NULL;
  config.positional = expression;
  config.positional_scope = scope;
  assert_fine(context, hark_decoder_create(context, &config, HARK_F64, true, &decoder));
  assert_fine(context, hark_parameters_initialise(context, &decoder->parameters, 1));
  return decoder;
}

/* A bank of M decaying periodic kernels has 4 M parameters: in all, a layer, or a head. */
static void counts_are_those_of_the_paper(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  static const int64_t expected[] = {32, 3 * 32, 3 * 2 * 32};
  hark_decoder *without = make(context, NULL, HARK_SCOPE_MODEL);
  const int64_t base = hark_parameters_total(&without->parameters);
  for (int scope = 0; scope < 3; scope++) {
    hark_decoder *decoder = make(context, "bank[8](decay*periodic)", (hark_positional_scope)scope);
    assert_int_equal(hark_parameters_total(&decoder->parameters) - base, expected[scope]);
    for (int64_t layer = 0; layer < 3; layer++) {
      char name[64] = "positional.parameters";
      if (scope > 0) snprintf(name, sizeof name, "blocks.%d.attention.positional.parameters", (int)layer);
      const hark_parameter *parameter = hark_parameters_find(&decoder->parameters, name);
      assert_non_null(parameter);
      assert_ptr_equal(parameter, hark_parameters_at(&decoder->parameters, hark_decoder_positional(decoder, layer)->parameters));
      assert_int_equal(parameter->weight.shape[0], scope == HARK_SCOPE_HEAD ? 2 : 1);
      assert_int_equal(parameter->weight.shape[1], 32);
      assert_false(parameter->spec.decays);
      assert_int_equal(parameter->spec.rate, HARK_RATE_POSITIONAL);
    }
    hark_decoder_destroy(context, &decoder);
  }
  assert_null(hark_decoder_positional(without, 0)->source);
  hark_decoder_destroy(context, &without);
  test_setup_close(context);
}

/* They are what the expression starts with for each head, and lie in a group of the optimiser of their own, without decay. */
static void they_start_as_the_expression_says(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_decoder *decoder = make(context, "alibi+decay(l=30)", HARK_SCOPE_HEAD);
  const hark_parameter *parameter = hark_parameters_find(&decoder->parameters, "blocks.2.attention.positional.parameters");
  double values[2][3];
  assert_non_null(parameter);
  assert_fine(context, hark_tensor_read(context, &parameter->weight, values));
  for (int h = 0; h < 2; h++) {
    assert_true(fabs(values[h][0] + 4 * (h + 1) * log(2)) < 1e-14);
    assert_true(values[h][1] == 0 && values[h][2] == log(30));
  }
  int groups = 0;
  for (int g = 0; g < decoder->parameters.group_count; g++) {
    const hark_parameter_group *group = &decoder->parameters.groups[g];
    const bool inside = parameter->first >= group->first && parameter->first < group->first + group->count;
    assert_int_equal(inside, group->rate == HARK_RATE_POSITIONAL);
    if (inside) assert_false(group->decays);
    groups += inside;
  }
  assert_int_equal(groups, 1);
  hark_decoder_destroy(context, &decoder);
  test_setup_close(context);
}

/* The gradient of the loss by the parameters of one kernel, for a text of LENGTH tokens. */
static void gradient_of(hark_context *context, hark_decoder *decoder, double *gradient) {
  hark_tape *tape = NULL;
  hark_attention_plan **plans = NULL;
  const int64_t shape[] = {1, LENGTH};
  int32_t tokens[LENGTH], targets[LENGTH];
  hark_tensor token_rows, target_rows;
  hark_value inputs[2] = {0}, loss = 0;
  for (int i = 0; i < LENGTH; i++) {
    tokens[i] = i * i % VOCABULARY;
    targets[i] = (i + 2) % VOCABULARY;
  }
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &token_rows));
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &target_rows));
  assert_fine(context, hark_tensor_write(context, &token_rows, tokens));
  assert_fine(context, hark_tensor_write(context, &target_rows, targets));
  assert_fine(context, hark_tape_create(context, &tape));
  assert_fine(context, hark_decoder_plans_create(context, decoder, 1, LENGTH, LENGTH, true, &plans));
  const hark_forward forward = {.tape = tape, .parameters = &decoder->parameters, .training = true, .plans = plans};
  assert_fine(context, hark_tape_leaf(tape, &token_rows, NULL, &inputs[0]));
  assert_fine(context, hark_tape_leaf(tape, &target_rows, NULL, &inputs[1]));
  assert_fine(context, hark_decoder_loss(context, decoder, &forward, inputs[0], inputs[1], 1, 0, &loss));
  assert_fine(context, hark_tape_backward(tape, loss, 1));
  assert_fine(context,
              hark_tensor_read(
                  context, &hark_parameters_at(&decoder->parameters, hark_decoder_positional(decoder, 0)->parameters)->gradient, gradient));
  hark_decoder_plans_destroy(context, decoder, &plans);
  hark_tape_destroy(&tape);
  hark_tensor_destroy(context, &token_rows);
  hark_tensor_destroy(context, &target_rows);
}

/* A factor common to all distances changes nothing: its derivative, the sum of dlogG over all distances, is zero; that of a length is not. */
static void a_common_factor_has_no_gradient(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_decoder *decoder = make(context, "constant*decay(sigma2=3)", HARK_SCOPE_MODEL);
  double gradient[3] = {0};
  gradient_of(context, decoder, gradient);
  assert_true(fabs(gradient[2]) > 1e-9);
  assert_true(fabs(gradient[0]) < 1e-10 * fabs(gradient[2]) + 1e-16 && fabs(gradient[1]) < 1e-10 * fabs(gradient[2]) + 1e-16);
  hark_decoder_destroy(context, &decoder);
  test_setup_close(context);
}

static void mistakes_are_told(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  hark_decoder_config config = plain;
  hark_decoder *decoder = NULL;
  config.positional = "decay+decai";
  assert_failure(context, hark_decoder_create(context, &config, HARK_F32, true, &decoder), HARK_INVALID_ARGUMENT, "column 7");
  assert_null(decoder);
  test_setup_close(context);
}

/* Making a model and what it needs to write text, with allocation number n failing, for every n: out of memory, nothing else, and no leak. */
static void memory_may_run_out(void **state) {
  (void)state;
  hark_status status = HARK_OUT_OF_MEMORY;
  long fail_at = 0;
  do {
    test_memory memory;
    hark_context *context = test_memory_context(&memory);
    hark_decoder_config config = plain;
    hark_decoder *decoder = NULL;
    hark_decoding *decoding = NULL;
    const int32_t token = 1;
    float logits[VOCABULARY];
    config.positional = "bank[2](decay*periodic)";
    config.positional_scope = HARK_SCOPE_HEAD;
    memory.fail_at = memory.allocations + ++fail_at;
    status = hark_decoder_create(context, &config, HARK_F32, true, &decoder);
    if (status == HARK_OK) status = hark_parameters_initialise(context, &decoder->parameters, 1);
    if (status == HARK_OK) status = hark_decoding_create(context, decoder, LENGTH, &decoding);
    if (status == HARK_OK) status = hark_decoding_append(context, decoding, &token, 1, logits);
    if (status != HARK_OK && status != HARK_OUT_OF_MEMORY) fail_msg("allocation %ld: %s", fail_at, hark_context_message(context));
    hark_decoding_destroy(context, &decoding);
    hark_decoder_destroy(context, &decoder);
    test_memory_context_end(context, &memory);
  } while (status != HARK_OK);
  assert_true(fail_at > 20);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(counts_are_those_of_the_paper),
      cmocka_unit_test(they_start_as_the_expression_says),
      cmocka_unit_test(a_common_factor_has_no_gradient),
      cmocka_unit_test(mistakes_are_told),
      cmocka_unit_test(memory_may_run_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
