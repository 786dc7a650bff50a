/* test_sentences.c - training on sentences: packed ones know nothing of each other, a run in parts is the run in one, what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/learner.h"
#include "support/train/small_run.h"
#include "train/material.h"

/* A small run of sentences and sub-words. */
static void open_small(small_run *small, const char *folder, hark_text_unit unit) {
  small_run_open(small, folder);
  small->config.data.unit = unit;
  small->config.data.tokenizer = HARK_TOKENIZER_SUBWORDS;
  small->config.data.subwords.vocabulary = HARK_TOKEN_RESERVED + 256 + 60;
  small->config.data.subwords.learner = &test_learner;
  small->config.model.context = 60;
}

/* The loss over a batch of several windows of several sentences is the sum of the losses of each sentence alone, whatever represents
 * positions and whatever the attention's structure: none sees another, and each begins at position 0. */
static void sentences_know_nothing_of_each_other(void **state) {
  (void)state;
  static const hark_layer_choice structures[] = {HARK_EVERY_LAYER(HARK_STRUCTURE_DENSE),
                                                 HARK_EVERY_LAYER(HARK_STRUCTURE_WINDOW),
                                                 HARK_EVERY_LAYER(HARK_STRUCTURE_HIERARCHICAL),
                                                 {2, {HARK_STRUCTURE_HIERARCHICAL, HARK_STRUCTURE_DENSE}}};
  static const int positions[] = {HARK_POSITIONS_LEARNED, HARK_POSITIONS_SINUSOIDAL, HARK_POSITIONS_ROTARY};
  enum { WINDOWS = 3 };
  char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
  test_folder_make(folder);
  snprintf(path, sizeof path, "%s", test_path(folder, "run"));
  small_run small;
  open_small(&small, folder, HARK_UNIT_SENTENCES);
  hark_context *context = small_run_context(1);
  for (size_t s = 0; s < sizeof structures / sizeof *structures; s++)
    for (size_t p = 0; p < 3; p++) {
      hark_config config = small.config;
      config.model.attention.structure = structures[s];
      config.model.layers = structures[s].count;
      config.model.attention.hierarchy_block = 4;
      config.model.attention.window = 3;
      config.model.positions = positions[p];
      config.train.batch = WINDOWS;
      hark_run run;
      hark_material material;
      hark_engine *engine;
      assert_fine(context, hark_run_open(context, path, false, &run));
      assert_fine(context, hark_material_open(context, &config, &run, false, &material));
      assert_fine(context, hark_material_prepare(context, &material));
      assert_fine(context, hark_engine_create_for(context, &config, &material.task, false, &engine));
      assert_fine(context, hark_parameters_initialise(context, &engine->network->parameters, 3));
      hark_example_batch whole = material.room.batch;
      hark_pass_result result;
      const int32_t *predicted;
      assert_fine(context, hark_sentences_read(context, &material.sentences, 0, WINDOWS, &whole));
      assert_fine(context, hark_engine_evaluate_examples(context, engine, &whole, &result, &predicted));
      int64_t sentences = 0;
      double sum = 0;
      for (int64_t begin = 0, end; begin < whole.tokens; begin = end, sentences++) {
        for (end = begin + 1; end < whole.tokens && whole.segments[end] == whole.segments[begin];) end++;
        int64_t range[] = {0, end - begin}, segments[64] = {0};
        int32_t numbers[64];
        for (int i = 0; i < 64; i++) numbers[i] = i;
        const hark_example_batch one = {.rows = 1,
                                        .tokens = end - begin,
                                        .inputs = whole.inputs + begin,
                                        .targets = whole.targets + begin,
                                        .positions = numbers,
                                        .segments = segments,
                                        .ranges = range,
                                        .real = end - begin,
                                        .longest = end - begin};
        hark_pass_result alone;
        assert_fine(context, hark_engine_evaluate_examples(context, engine, &one, &alone, &predicted));
        sum += alone.loss;
      }
      assert_true(sentences > WINDOWS);
      /* sums of some seventy losses in f32, in another order */
      if (fabs(result.loss - sum) > 1e-5 * sum) fail_msg("structure %zu, positions %zu: %.9g together, %.9g alone", s, p, result.loss, sum);
      hark_engine_destroy(context, &engine);
      hark_material_close(context, &material);
      hark_run_close(&run);
      test_folder_remove(path);
    }
  hark_context_destroy(&context);
  small_run_close(&small);
  test_folder_remove(folder);
}

/* Both units, with a vocabulary of sub-words: three steps and three more are six, in the middle of an epoch. */
static void a_run_in_parts_is_the_same(void **state) {
  (void)state;
  for (int unit = HARK_UNIT_TEXT; unit <= HARK_UNIT_SENTENCES; unit++) {
    char folder[TEST_PATH_BYTES], whole[TEST_PATH_BYTES], parts[TEST_PATH_BYTES];
    test_folder_make(folder);
    snprintf(whole, sizeof whole, "%s", test_path(folder, "whole"));
    snprintf(parts, sizeof parts, "%s", test_path(folder, "parts"));
    small_run small;
    open_small(&small, folder, (hark_text_unit)unit);
    hark_context *context = small_run_context(1);
    hark_train_result result;
    small.config.train.steps = 6;
    small.config.train.schedule = HARK_SCHEDULE_CONSTANT; /* which does not ask how long the run is */
    small.config.train.evaluate_every = 3;
    assert_fine(context, small_run_train(context, &small, whole, NULL, &result));
    assert_true(isfinite(result.validation_loss));
    small.config.train.steps = 3;
    assert_fine(context, small_run_train(context, &small, parts, NULL, &result));
    small.config.train.steps = 6;
    small.config.data.subwords.learner = NULL; /* the vocabulary is there */
    assert_fine(context, small_run_train(context, &small, parts, NULL, &result));
    char *metrics = test_file_text(whole, "metrics.jsonl");
    assert_non_null(strstr(metrics, "\"word_perplexity\": "));
    free(metrics);
    small_run_assert_same(whole, parts, 6);
    assert_true((result.state.tokens < 6 * 4 * small.config.model.context) == (unit == HARK_UNIT_SENTENCES));
    hark_context_destroy(&context);
    small_run_close(&small);
    test_folder_remove(folder);
  }
}

static void another_vocabulary_is_refused(void **state) {
  (void)state;
  char folder[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
  test_folder_make(folder);
  snprintf(path, sizeof path, "%s", test_path(folder, "run"));
  small_run small;
  open_small(&small, folder, HARK_UNIT_SENTENCES);
  hark_context *context = small_run_context(1);
  hark_train_result result;
  small.config.train.steps = 2;
  assert_fine(context, small_run_train(context, &small, path, NULL, &result));
  /* the vocabulary of another run of the same size: other pieces */
  char other[TEST_PATH_BYTES];
  snprintf(other, sizeof other, "%s", test_path(folder, "other"));
  small.config.data.subwords.model = HARK_SUBWORD_BPE;
  assert_fine(context, small_run_train(context, &small, other, NULL, &result));
  size_t bytes;
  unsigned char *vocabulary = test_file_read(test_path(other, "vocabulary.json"), &bytes);
  test_file_write(path, "vocabulary.json", vocabulary, bytes);
  const int kept = test_folder_count(path, "cache");
  small.config.train.steps = 4;
  assert_failure(context, small_run_train(context, &small, path, NULL, &result), HARK_BAD_FILE,
                 "vocabulary.json: is not the vocabulary that the weights of step-2 were trained with");
  assert_int_equal(test_folder_count(path, "cache"), kept); /* no text was read */
  vocabulary[bytes - 10] ^= 1;
  test_file_write(path, "vocabulary.json", vocabulary, bytes);
  assert_int_equal(small_run_train(context, &small, path, NULL, &result), HARK_BAD_FILE);
  free(vocabulary);
  /* and without a learner no run begins */
  small.config.data.subwords.learner = NULL;
  assert_failure(context, small_run_train(context, &small, test_path(folder, "third"), NULL, &result), HARK_UNSUPPORTED,
                 "HARK_WITH_SENTENCEPIECE");
  hark_context_destroy(&context);
  small_run_close(&small);
  test_folder_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(sentences_know_nothing_of_each_other),
      cmocka_unit_test(a_run_in_parts_is_the_same),
      cmocka_unit_test(another_vocabulary_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
