/* test_learned_noise.c - noise of keys from their tokens: equal for all tokens it is a ridge; very large for one token, this key and its
 * value have no effect on later tokens. */
#include <math.h>
#include <string.h>

#include "models/stack.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h" /* assert_fine */

enum { LENGTH = 6, VOCABULARY = 11, HEADS = 2, WIDTH = 8 };
#define RIDGE 0.5
#define LOGIT 0.7

/* Logits [LENGTH, VOCABULARY] of a decoder of one layer. noise: whether it is learned; then its bias is LOGIT, and its weights are of the
 * size `slope`. */
static void compute(bool noise, double ridge, double slope, int32_t first, double *logits) {
  hark_context *context = test_reference_open();
  const hark_network_config config = {.vocabulary = VOCABULARY,
                                      .layers = 1,
                                      .heads = HEADS,
                                      .key_heads = HEADS,
                                      .width = WIDTH,
                                      .feed_forward_width = 12,
                                      .context = LENGTH,
                                      .norm_epsilon = 1e-5,
                                      .attention = {.kernel = HARK_KERNEL_RBF,
                                                    .sigma = 1,
                                                    .ridge = ridge,
                                                    .normalisation = HARK_EVERY_LAYER(HARK_NORMALISATION_CME),
                                                    .noise_learned = noise}};
  const int32_t numbers[LENGTH] = {first, 1, 4, 1, 5, 9};
  const int64_t shape[] = {1, LENGTH};
  hark_network *network = NULL;
  hark_attention_plan **plans = NULL;
  hark_tape *tape = NULL;
  hark_tensor given;
  hark_value tokens = 0, result = 0;
  assert_fine(context, hark_network_create(context, &config, HARK_F64, false, &network));
  for (int32_t p = 0; p < network->parameters.count; p++) { /* by name, so that further parameters change no others */
    const hark_parameter *const parameter = &network->parameters.list[p];
    double *const numbers_of = parameter->weight.data;
    const bool of_noise = strstr(parameter->name, ".noise.") != NULL, bias = strstr(parameter->name, "bias") != NULL;
    const size_t seed = strlen(parameter->name) + (size_t)parameter->name[strlen(parameter->name) / 2];
    for (int64_t i = 0; i < parameter->count; i++)
      numbers_of[i] = of_noise ? (bias ? LOGIT : slope * sin((double)i + 0.5)) : 0.6 * sin((double)(seed % 97) + 1.7 * (double)i);
  }
  assert_fine(context, hark_network_plans_rectangular(context, network, 1, LENGTH, LENGTH, false, &plans));
  assert_fine(context, hark_tape_create(context, &tape));
  assert_fine(context, hark_tensor_create(context, HARK_I32, 2, shape, &given));
  assert_fine(context, hark_tensor_write(context, &given, numbers));
  const hark_forward forward = {.tape = tape, .parameters = &network->parameters, .plans = plans};
  assert_fine(context, hark_tape_leaf(tape, &given, NULL, &tokens));
  assert_fine(context, hark_stack_logits(context, network, &forward, tokens, false, &result));
  assert_fine(context, hark_tensor_read(context, hark_tape_tensor(tape, result), logits));
  hark_tape_destroy(&tape);
  hark_network_plans_destroy(context, network, &plans);
  hark_network_destroy(context, &network);
  hark_tensor_destroy(context, &given);
  test_setup_close(context);
}

static double largest_difference(const double *a, const double *b, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(a[i] - b[i]));
  return largest;
}

static void equal_noise_is_a_ridge(void **state) {
  (void)state;
  double plain[LENGTH * VOCABULARY], noisy[LENGTH * VOCABULARY], expected[LENGTH * VOCABULARY];
  compute(false, RIDGE, 0, 3, plain);
  compute(true, RIDGE, 0, 3, noisy);
  compute(false, RIDGE + log1p(exp(LOGIT)), 0, 3, expected);
  assert_true(largest_difference(noisy, expected, LENGTH * VOCABULARY) < 1e-12);
  assert_true(largest_difference(noisy, plain, LENGTH * VOCABULARY) > 1e-3);
}

/* With steep weights, the noise of a token is 0 or very large. Two first tokens whose noise is very large are the same to later tokens. */
static void noise_depends_on_the_token(void **state) {
  (void)state;
  enum { COUNT = LENGTH * VOCABULARY, LATER = (LENGTH - 1) * VOCABULARY };
  double steep[VOCABULARY][COUNT], plain[VOCABULARY][COUNT];
  int ignored = 0, seen = 0;
  for (int32_t first = 0; first < VOCABULARY; first++) {
    compute(true, RIDGE, 1e5, first, steep[first]);
    compute(false, RIDGE, 0, first, plain[first]);
  }
  for (int a = 0; a < VOCABULARY; a++)
    for (int b = 0; b < a; b++) {
      const double apart = largest_difference(steep[a] + VOCABULARY, steep[b] + VOCABULARY, LATER);
      assert_true(largest_difference(plain[a] + VOCABULARY, plain[b] + VOCABULARY, LATER) > 1e-4);
      ignored += apart < 1e-4;
      seen += apart > 1e-3;
    }
  assert_true(ignored > 0 && seen > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(equal_noise_is_a_ridge), cmocka_unit_test(noise_depends_on_the_token)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
