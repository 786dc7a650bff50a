/* test_published_rotary.c - rates of scaled rotary positions against those of transformers (bench/peers/published.py), in models, in
 * decoding with caches, and in descriptions of before. */
#include <hark/hark.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/description.h"
#include "models/model.h"
#include "models/published_rotary.h"
#include "models/stack.h"
#include "support/cmocka_all.h"
#include "support/setups.h"

/* f32 exponents and powers. */
#define RATE_TOLERANCE 3e-6

static int scaling_of(const char *word) {
  static const char *const words[] = {"none", "linear", "ntk", "yarn", "llama3", "dynamic", "longrope"};
  for (int i = 0; i < (int)(sizeof words / sizeof *words); i++)
    if (strcmp(words[i], word) == 0) return i;
  fail_msg("%s is no scaling", word);
  return -1;
}

static void take_list(const double *from, int64_t pairs, hark_rotary_factors *out) {
  if (from == NULL) return;
  memcpy(out->values, from, (size_t)pairs * sizeof *from);
  out->count = (int32_t)pairs;
}

static hark_rotary_tuning tuning_of(const published_rotary *p) {
  hark_rotary_tuning tuning = {.beta_fast = p->beta_fast,
                               .beta_slow = p->beta_slow,
                               .untruncated = p->untruncated,
                               .mscale = p->mscale,
                               .mscale_all_dim = p->mscale_all_dim,
                               .attention_factor = p->attention_factor,
                               .low_frequency = p->low,
                               .high_frequency = p->high};
  take_list(p->short_factor, p->head_dim / 2, &tuning.short_factor);
  take_list(p->long_factor, p->head_dim / 2, &tuning.long_factor);
  return tuning;
}

/* Each case by the formula, and as the operator gets it. */
static void rates_are_those_of_transformers(void **state) {
  (void)state;
  hark_context *context = test_reference_open();
  for (size_t c = 0; c < sizeof published_rotary_cases / sizeof *published_rotary_cases; c++) {
    const published_rotary *p = &published_rotary_cases[c];
    const hark_rotary_tuning tuning = tuning_of(p);
    hark_rotary_tables tables;
    char message[HARK_MESSAGE_BYTES];
    hark_rotary_spec spec = {.present = true,
                             .base = p->base,
                             .scaling = (hark_rotary_scaling)scaling_of(p->scaling),
                             .factor = p->factor,
                             .context = p->original,
                             .head_dim = p->head_dim,
                             .tuning = &tuning};
    assert_true(hark_rotary_is_sound(&spec, message));
    assert_int_equal(hark_rotary_tables_open(context, &spec, &tables), HARK_OK);
    spec.tables = &tables;
    const hark_rotary_attributes attributes = hark_rotary_attributes_in(&spec, p->length);
    if (fabs(hark_rotary_magnitude(&spec) - p->magnitude) > 1e-12)
      fail_msg("case %zu, %s: magnitude %.17g, expected %.17g", c, p->scaling, hark_rotary_magnitude(&spec), p->magnitude);
    for (int64_t j = 0; j < p->head_dim / 2; j++) {
      const double rate = hark_rotary_rate(&attributes, p->head_dim, j), formula = hark_rotary_rate_of(&spec, p->length, j);
      if (!(fabs(rate / p->rates[j] - 1) < RATE_TOLERANCE) || !(fabs(formula / rate - 1) < 1e-14))
        fail_msg("case %zu, %s: the rate of pair %d is %.9g, by formula %.9g, expected %.9g", c, p->scaling, (int)j, rate, formula,
                 p->rates[j]);
    }
    hark_rotary_tables_close(context, &tables);
  }
  test_setup_close(context);
}

/* The operator's own attribute is yarn as published. */
static void original_length_is_yarn(void **state) {
  (void)state;
  int compared = 0;
  for (size_t c = 0; c < sizeof published_rotary_cases / sizeof *published_rotary_cases; c++) {
    const published_rotary *p = &published_rotary_cases[c];
    if (strcmp(p->scaling, "yarn") != 0 || p->untruncated || (p->beta_fast != 0 && p->beta_fast != 32)) continue;
    const hark_rotary_attributes attributes = {.heads = 1, .base = p->base, .stretch = p->factor, .original_length = p->original};
    for (int64_t j = 0; j < p->head_dim / 2; j++)
      assert_true(fabs(hark_rotary_rate(&attributes, p->head_dim, j) / p->rates[j] - 1) < RATE_TOLERANCE);
    compared++;
  }
  assert_true(compared > 5);
}

#define TRAINED 12 /* tokens of the model's own texts */
#define LONG 40
#define VOCABULARY 11

static hark_network_config small(hark_rotary_scaling scaling) {
  hark_network_config config = {.vocabulary = VOCABULARY,
                                .layers = 2,
                                .heads = 2,
                                .key_heads = 1,
                                .width = 16,
                                .feed_forward_width = 12,
                                .context = TRAINED,
                                .norm_epsilon = 1e-5,
                                .rotary.base = 10000,
                                .attention.sigma = 2,
                                .positions = HARK_POSITIONS_ROTARY,
                                .rotary.scaling = scaling,
                                .rotary.scaling_factor = 4,
                                .rotary.original_context = TRAINED,
                                .rotary.short_factors = {4, {1, 1.1, 1.2, 1.3}},
                                .rotary.long_factors = {4, {1, 1.5, 3, 6}}};
  return config;
}

/* Logits after the last of the tokens, by one pass over all of them. */
static void whole_pass(hark_context *context, const hark_network *decoder, const int32_t *tokens, int64_t length, float *logits) {
  const hark_pass_sizes sizes = {.batch = 1, .queries = length, .keys = length};
  hark_attention_plan **plans = NULL;
  hark_tape *tape = NULL;
  hark_tensor input;
  hark_value value = 0, out = 0;
  const int64_t shape[] = {1, length};
  float all[LONG * VOCABULARY];
  assert_int_equal(hark_network_plans_create(context, decoder, &sizes, false, &plans), HARK_OK);
  assert_int_equal(hark_tape_create(context, &tape), HARK_OK);
  hark_tape_set_recording(tape, false);
  assert_int_equal(hark_tensor_create(context, HARK_I32, 2, shape, &input), HARK_OK);
  assert_int_equal(hark_tensor_write(context, &input, tokens), HARK_OK);
  const hark_forward forward = {.tape = tape, .parameters = &decoder->parameters, .plans = plans};
  assert_int_equal(hark_tape_leaf(tape, &input, NULL, &value), HARK_OK);
  assert_int_equal(hark_stack_logits(context, decoder, &forward, value, false, &out), HARK_OK);
  assert_int_equal(hark_tensor_read(context, hark_tape_tensor(tape, out), all), HARK_OK);
  memcpy(logits, all + (length - 1) * VOCABULARY, VOCABULARY * sizeof *logits);
  hark_tape_destroy(&tape);
  hark_tensor_destroy(context, &input);
  hark_network_plans_destroy(context, decoder, &plans);
}

static void assert_same(const float *logits, const float *expected, const char *what, int64_t length) {
  for (int v = 0; v < VOCABULARY; v++)
    if (!(fabsf(logits[v] - expected[v]) < 2e-6f))
      fail_msg("%s, %d tokens: logit %d is %.9g, expected %.9g", what, (int)length, v, (double)logits[v], (double)expected[v]);
}

static hark_decoding *start(hark_context *context, const hark_model *model) {
  const hark_decoding_options options = {.struct_size = sizeof options, .capacity = LONG};
  hark_decoding *decoding = NULL;
  assert_int_equal(hark_decoding_create(context, model, &options, &decoding), HARK_OK);
  return decoding;
}

/* What has been read, by single tokens or in parts, across the length of training and back again, saved and restored: always what a pass
 * over the whole of it says. */
static void decoding_is_the_whole_pass(void **state) {
  (void)state;
  for (int structure = 0; structure < 2; structure++) {
    for (int scaling = HARK_ROTARY_AS_TRAINED; scaling <= HARK_ROTARY_LONGROPE; scaling++) {
      hark_context *context = test_reference_open();
      hark_network_config config = small((hark_rotary_scaling)scaling);
      hark_network *decoder = NULL;
      hark_model *model = NULL;
      float expected[LONG + 1][VOCABULARY];
      int32_t tokens[LONG];
      char what[64];
      (void)snprintf(what, sizeof what, "scaling %d, structure %d", scaling, structure);
      if (structure == 1) {
        config.attention.structure.words[0] = HARK_STRUCTURE_HIERARCHICAL;
        config.attention.structure.count = 1;
        config.attention.hierarchy_block = 4;
      }
      assert_int_equal(hark_network_create(context, &config, HARK_F32, false, &decoder), HARK_OK);
      assert_int_equal(hark_parameters_initialise(context, &decoder->parameters, 5), HARK_OK);
      for (int32_t i = 0; i < decoder->parameters.count; i++) { /* larger weights, so that positions count */
        hark_parameter *const parameter = &decoder->parameters.list[i];
        float *const weights = parameter->weight.data;
        for (int64_t k = 0; parameter->weight.rank == 2 && k < hark_tensor_count(&parameter->weight); k++) weights[k] *= 20;
      }
      for (int i = 0; i < LONG; i++) tokens[i] = (7 * i + i * i / 3) % VOCABULARY;
      for (int64_t n = 1; n <= LONG; n++) whole_pass(context, decoder, tokens, n, expected[n]);
      assert_int_equal(hark_model_wrap(context, decoder, &model), HARK_OK);

      hark_decoding *one = start(context, model), *parts = start(context, model);
      for (int64_t n = 1; n <= LONG; n++) {
        assert_int_equal(hark_decoding_step(one, tokens[n - 1]), HARK_OK);
        assert_same(hark_decoding_logits(one), expected[n], what, n);
      }
      static const int64_t ends[] = {5, TRAINED, TRAINED + 1, 30, LONG};
      for (int64_t i = 0, at = 0; i < 5; at = ends[i++]) {
        assert_int_equal(hark_decoding_prefill(parts, tokens + at, ends[i] - at), HARK_OK);
        assert_same(hark_decoding_logits(parts), expected[ends[i]], what, ends[i]);
      }
      static const int64_t cuts[] = {31, TRAINED + 3, TRAINED, TRAINED - 2, 1};
      for (int i = 0; i < 5; i++) {
        assert_int_equal(hark_decoding_truncate(parts, cuts[i]), HARK_OK);
        const size_t bytes = hark_decoding_saved_bytes(parts);
        void *const saved = malloc(bytes);
        assert_non_null(saved);
        assert_int_equal(hark_decoding_save(parts, saved, bytes), HARK_OK);
        assert_int_equal(hark_decoding_restore(one, saved, bytes), HARK_OK);
        free(saved);
        assert_int_equal(hark_decoding_step(parts, tokens[cuts[i]]), HARK_OK);
        assert_same(hark_decoding_logits(parts), expected[cuts[i] + 1], what, cuts[i] + 1);
        assert_int_equal(hark_decoding_step(one, tokens[cuts[i]]), HARK_OK);
        assert_memory_equal(hark_decoding_logits(one), hark_decoding_logits(parts), VOCABULARY * sizeof(float));
      }
      hark_decoding_destroy(&one);
      hark_decoding_destroy(&parts);
      hark_model_destroy(context, &model);
      hark_network_destroy(context, &decoder);
      test_setup_close(context);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rates_are_those_of_transformers),
      cmocka_unit_test(original_length_is_yarn),
      cmocka_unit_test(decoding_is_the_whole_pass),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
