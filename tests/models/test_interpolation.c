/* test_interpolation.c - the weights of every layer of an encoder and of a masked encoder with linear interpolation are those of the
 * definition, for the layer's own queries and keys, and not those of constant interpolation.
 *
 * tests/models/test_ahca_definition.c: the same for ahca.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/observe.h"
#include "support/attention_run.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

enum { LENGTH = 21, VOCABULARY = 11, LAYERS = 2, HEADS = 2, KEY_HEADS = 1, DIM = 4 };

#define CASE "hierarchical:B1,H2,K1,L21,S21,D4,V21,N2,mean"

typedef struct reading {
  hark_context *context;
  bool linear; /* what is expected */
  int layers;
  double apart; /* largest difference of a weight */
  double expected[HEADS * LENGTH * LENGTH];
} reading;

/* Largest difference of a block's weights. */
static hark_status compare(void *user, const hark_weights_block *block) {
  reading *const r = user;
  for (int64_t n = 0; n < block->queries; n++)
    for (int64_t h = 0; h < block->heads; h++)
      for (int64_t j = 0; j < block->keys; j++) {
        const double weight = (double)block->weights[(n * block->heads + h) * block->keys + j];
        r->apart = fmax(r->apart, fabs(weight - r->expected[(h * LENGTH + n) * LENGTH + block->first + j]));
      }
  return HARK_OK;
}

/* [1, L, heads * DIM] as [1, heads, L, DIM] */
static void copy_heads(hark_context *context, const hark_tensor *from, int64_t heads, double *to) {
  float numbers[LENGTH * HEADS * DIM];
  assert_int_equal(hark_tensor_count(from), LENGTH * heads * DIM);
  assert_fine(context, hark_tensor_read(context, from, numbers));
  for (int64_t n = 0; n < LENGTH; n++)
    for (int64_t i = 0; i < heads * DIM; i++) to[(i / DIM * LENGTH + n) * DIM + i % DIM] = (double)numbers[n * heads * DIM + i];
}

static hark_status read_layer(void *user, const hark_attention_application *seen) {
  reading *const r = user;
  attention_problem p;
  attention_expected expected;
  attention_problem_make(r->linear ? CASE ",linear" : CASE, &p);
  copy_heads(r->context, &seen->inputs[0], HEADS, p.array[ARRAY_QUERY].data);
  copy_heads(r->context, &seen->inputs[1], KEY_HEADS, p.array[ARRAY_KEY].data);
  p.scale = 1 / sqrt((double)DIM);
  attention_numbers *const value = &p.array[ARRAY_VALUE];
  for (int64_t i = 0; i < value->count; i++) value->data[i] = i / LENGTH == i % LENGTH;
  attention_expected_make(&p, &expected);
  assert_int_equal(expected.array[ARRAY_OUT].count, HEADS * LENGTH * LENGTH);
  memcpy(r->expected, expected.array[ARRAY_OUT].data, sizeof r->expected);
  attention_expected_free(&expected);
  attention_problem_free(&p);
  r->layers++;
  return hark_attention_weights_visit(r->context, seen, compare, r);
}

/* Difference of the weights of a network with one interpolation from the definition with another. */
static double apart(hark_architecture_kind architecture, bool linear, bool expected) {
  hark_context *context = test_reference_open();
  const hark_network_config config = {.architecture = (int)architecture,
                                      .classes = architecture == HARK_ARCHITECTURE_ENCODER ? 3 : 0,
                                      .pooling = HARK_POOLING_MEAN,
                                      .vocabulary = VOCABULARY,
                                      .layers = LAYERS,
                                      .heads = HEADS,
                                      .key_heads = KEY_HEADS,
                                      .width = HEADS * DIM,
                                      .feed_forward_width = 12,
                                      .context = LENGTH,
                                      .norm_epsilon = 1e-5,
                                      .positions = HARK_POSITIONS_LEARNED,
                                      .attention.structure = HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
                                      .attention.hierarchy_block = 2,
                                      .attention.interpolation = linear ? HARK_INTERPOLATION_LINEAR : HARK_INTERPOLATION_CONSTANT};
  int32_t tokens[LENGTH];
  hark_network *network = NULL;
  reading r = {.context = context, .linear = expected};
  for (int i = 0; i < LENGTH; i++) tokens[i] = (i * 7 + i * i * 3) % VOCABULARY;
  assert_fine(context, hark_network_create(context, &config, HARK_F32, false, &network));
  assert_fine(context, hark_parameters_initialise(context, &network->parameters, 7));
  for (int32_t k = 0; k < network->parameters.count; k++) { /* logits of about 1 */
    const hark_parameter *const parameter = &network->parameters.list[k];
    const bool larger = strstr(parameter->name, "query.weight") != NULL || strstr(parameter->name, "key.weight") != NULL;
    for (int64_t i = 0; larger && i < parameter->count; i++) ((float *)parameter->weight.data)[i] *= 20;
  }
  assert_fine(context, hark_network_observe(context, network, tokens, LENGTH, read_layer, &r));
  assert_int_equal(r.layers, LAYERS);
  hark_network_destroy(context, &network);
  test_setup_close(context);
  return r.apart;
}

static void weights_are_those_of_the_definition(void **state) {
  static const hark_architecture_kind architectures[] = {HARK_ARCHITECTURE_ENCODER, HARK_ARCHITECTURE_MASKED_ENCODER};
  (void)state;
  for (int i = 0; i < 2; i++)
    for (int linear = 0; linear < 2; linear++) {
      assert_true(apart(architectures[i], linear, linear) < 1e-5); /* queries, keys and weights are f32 */
      assert_true(apart(architectures[i], linear, !linear) > 1e-3);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(weights_are_those_of_the_definition)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
