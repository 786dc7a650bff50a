/* test_examples.c - training on labelled examples: what is easy is learned to the last example, by encoders, pairs and decoders; runs in
 * parts are the runs in one; what is counted are real tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hark/predictor.h>

#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/flags.h"
#include "support/train/small_run.h"
#include "support/train/training_place.h"
#include "train/evaluate_examples.h"
#include "train/material.h"
#include "train/schedule.h"

#define WORDS_LIMIT 48

/* A run of examples: the options of hark train below those that all have. */
typedef struct example_run {
  hark_context *plain;
  hark_options *options;
  hark_config config;
} example_run;

static const char *const common[] = {"--layers=1",      "--heads=2",      "--width=16",         "--batch=8",   "--warmup=5",
                                     "--lr=5e-3",       "--log-every=1",  "--evaluate-every=0", "--threads=2", "--checkpoint-every=0",
                                     "--deterministic", "--no-preflight", "--weight-decay=0"};
#define COMMON ((int)(sizeof common / sizeof *common))

static void open_run(example_run *run, const char *const *words, int count) {
  const char *all[WORDS_LIMIT];
  *run = (example_run){.plain = test_reference_open()};
  memcpy(all, common, sizeof common);
  memcpy(all + COMMON, words, (size_t)count * sizeof *words);
  count = test_flags_settle(all, COMMON + count);
  const hark_option_group group = {&hark_config_table, &run->config};
  assert_fine(run->plain, hark_options_create(run->plain, "train", &group, 1, &run->options));
  assert_fine(run->plain, hark_options_read_arguments(run->plain, run->options, count, all));
  assert_fine(run->plain, hark_config_finish(run->plain, run->options, &run->config));
  for (int i = 0; i < hark_options_problem_count(run->options); i++) fail_msg("%s", hark_options_problem(run->options, i));
}

static void close_run(example_run *run) {
  hark_options_destroy(run->plain, &run->options);
  test_setup_close(run->plain);
}
#define OPEN(run, ...)                                                                                                                     \
  do {                                                                                                                                     \
    const char *const words_[] = {__VA_ARGS__};                                                                                            \
    open_run(run, words_, (int)(sizeof words_ / sizeof *words_));                                                                          \
  } while (0)

static uint32_t dice(uint64_t i) {
  const hark_random_stream stream = {.seed = 9, .layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  return hark_random_word(&stream, i);
}

/* Texts of 2 to 9 letters a-d whose class is whether there is an "a" in them; pairs of such, whose class is whether they begin alike. */
static void write_examples(const char *folder) {
  FILE *singles = fopen(test_path(folder, "texts.tsv"), "w");
  assert_non_null(singles);
  uint64_t at = 0;
  for (int i = 0; i < 96; i++) {
    char word[16] = "";
    const int length = 2 + (int)(dice(at++) % 8);
    const bool has = i % 2 != 0;
    for (int l = 0; l < length; l++) word[l] = (char)('b' + dice(at++) % 3);
    if (has) word[dice(at++) % (uint32_t)length] = 'a';
    (void)fprintf(singles, "%d\t%s\n", has, word);
  }
  assert_int_equal(fclose(singles), 0);
  FILE *both = fopen(test_path(folder, "pairs.tsv"), "w");
  assert_non_null(both);
  for (int i = 0; i < 96; i++) {
    char word[2][8] = {"", ""};
    for (int part = 0; part < 2; part++)
      for (int l = 0; l < 3; l++) word[part][l] = (char)('a' + dice(at++) % 2);
    if (i % 2 != 0)
      word[1][0] = word[0][0];
    else
      word[1][0] = word[0][0] == 'a' ? 'b' : 'a';
    (void)fprintf(both, "%d\tx\ty\t%s\t%s\n", i % 2, word[0], word[1]);
  }
  assert_int_equal(fclose(both), 0);
}

/* Two keys with their values, and a question for one of them: "k0 v1 k1 v0 k0 -> v1". */
static void write_recall(const char *folder) {
  FILE *file = fopen(test_path(folder, "recall.tsv"), "w");
  assert_non_null(file);
  (void)fprintf(file, "Words\tk0 k1 k2 v0 v1 v2\n");
  for (int i = 0; i < 243; i++) {
    const int first = i % 3, second = (first + 1 + i / 3 % 2) % 3, asked = i / 6 % 2;
    const int values[] = {(int)(dice(5000 + (uint64_t)(2 * i)) % 3), (int)(dice(5001 + (uint64_t)(2 * i)) % 3)};
    (void)fprintf(file, "k%d v%d k%d v%d k%d\t4:v%d\n", first, values[0], second, values[1], asked == 0 ? first : second, values[asked]);
  }
  assert_int_equal(fclose(file), 0);
}

static void at_paths(example_run *run, const char *const *path) { run->config.data.paths = (hark_string_list){.items = path, .count = 1}; }

/* Trains, and measures the training examples: all must be right. */
static void learns(training_place *p, example_run *run, const char *file, const char *name) {
  const char *path = test_path(p->folder, file);
  char kept[TEST_PATH_BYTES];
  (void)snprintf(kept, sizeof kept, "%s", path);
  const char *paths[] = {kept};
  at_paths(run, paths);
  hark_train_result result;
  assert_fine(p->context, training_run(p, &run->config, name, NULL, &result));
  hark_run folder;
  hark_engine *engine = NULL;
  hark_material material;
  char checkpoint[HARK_NAME_BYTES];
  hark_examples_result measured;
  assert_fine(p->context, hark_run_open_reading(p->context, test_path(p->folder, name), &folder, checkpoint));
  assert_fine(p->context, hark_material_open(p->context, &run->config, &folder, true, &material));
  assert_fine(p->context, hark_material_prepare(p->context, &material));
  assert_fine(p->context, hark_engine_create_for(p->context, &run->config, &material.task, false, &engine));
  assert_fine(p->context, hark_checkpoint_choose(p->context, &folder, "last", checkpoint));
  assert_fine(p->context, hark_checkpoint_load(p->context, &folder, checkpoint, engine, NULL));
  int64_t *confusion = calloc((size_t)(material.task.classes * material.task.classes + 1), sizeof *confusion);
  assert_fine(p->context, hark_evaluate_examples(p->context, engine, &material.training, &material.room, confusion, NULL, NULL, &measured));
  assert_int_equal(measured.examples, material.training.count);
  if (measured.correct != measured.targets)
    fail_msg("%s: %lld of %lld targets are predicted, loss %g", file, (long long)measured.correct, (long long)measured.targets,
             measured.loss);
  int64_t sum = 0, diagonal = 0;
  for (int i = 0; i < material.task.classes; i++)
    for (int k = 0; k < material.task.classes; k++) {
      sum += confusion[i * material.task.classes + k];
      diagonal += i == k ? confusion[i * material.task.classes + k] : 0;
    }
  assert_int_equal(sum, material.task.classes > 0 ? measured.examples : 0);
  assert_int_equal(diagonal, material.task.classes > 0 ? measured.correct : 0);
  free(confusion);
  hark_engine_destroy(p->context, &engine);
  hark_material_close(p->context, &material);
}

/* The run's model, loaded as other programs load it, predicts the class of every line too. */
static void predicts(training_place *p, const char *file, const char *name) {
  enum { FIELDS = 5, LINE = 64, SINGLE = 2 };
  hark_model *model = NULL;
  hark_predictor *predictor = NULL;
  hark_prediction_shape shape = {.struct_size = sizeof shape};
  const hark_model_options last = {.struct_size = sizeof last, .checkpoint = "last"};
  assert_fine(p->context, hark_model_load(p->context, test_path(p->folder, name), &last, &model));
  assert_fine(p->context, hark_predictor_shape(model, &shape));
  assert_fine(p->context, hark_predictor_create(p->context, model, NULL, &predictor));
  assert_int_equal(shape.outputs, 2);
  assert_string_equal(hark_model_class_name(model, 1), "1");
  FILE *lines = fopen(test_path(p->folder, file), "r");
  assert_non_null(lines);
  char line[LINE];
  int predicted = 0;
  while (fgets(line, sizeof line, lines) != NULL) {
    char *field[FIELDS], *rest = line;
    int fields = 0;
    line[strcspn(line, "\n")] = '\0';
    for (; rest != NULL && fields < FIELDS; fields++) {
      field[fields] = rest;
      rest = strchr(rest, '\t');
      if (rest != NULL) *rest++ = '\0';
    }
    const char *const parts[] = {field[fields == SINGLE ? 1 : 3], field[fields == SINGLE ? 1 : 4]};
    int32_t tokens[LINE];
    int64_t offsets[3] = {0};
    float logits[2];
    for (int64_t s = 0; s < shape.parts; s++) {
      size_t count = 0;
      assert_fine(p->context, hark_model_encode(p->context, model, parts[s], strlen(parts[s]), false, tokens + offsets[s], &count));
      offsets[s + 1] = offsets[s] + (int64_t)count;
    }
    const hark_prediction_input input = {.struct_size = sizeof input, .examples = 1, .offsets = offsets, .tokens = tokens};
    assert_fine(p->context, hark_predictor_run(predictor, &input, logits, 2));
    if ((logits[1] > logits[0]) != (field[0][0] == '1')) fail_msg("%s: another class than %s", name, line);
    predicted++;
  }
  assert_int_equal(predicted, 96);
  (void)fclose(lines);
  hark_predictor_destroy(&predictor);
  hark_model_destroy(p->context, &model);
}

static void encoders_learn_classes(void **state) {
  (void)state;
  training_place p;
  example_run run;
  training_place_open(&p);
  write_examples(p.folder);
  OPEN(&run, "--format=text", "--architecture=encoder", "--context=9", "--steps=150", "--validation-fraction=0", "--positions=learned");
  learns(&p, &run, "texts.tsv", "class");
  predicts(&p, "texts.tsv", "class");
  close_run(&run);
  OPEN(&run, "--format=text", "--architecture=encoder", "--pooling=mean", "--context=9", "--steps=150", "--validation-fraction=0",
       "--structure=hierarchical", "--hierarchy-block=2", "--attention-width=8", "--positions=sinusoidal");
  learns(&p, &run, "texts.tsv", "mean");
  predicts(&p, "texts.tsv", "mean");
  close_run(&run);
  training_place_close(&p);
}

static void two_towers_learn_pairs(void **state) {
  (void)state;
  training_place p;
  example_run run;
  training_place_open(&p);
  write_examples(p.folder);
  OPEN(&run, "--format=pairs", "--architecture=encoder", "--pooling=first", "--context=3", "--steps=300", "--validation-fraction=0",
       "--positions=learned", "--lr=1e-2");
  learns(&p, &run, "pairs.tsv", "pairs");
  predicts(&p, "pairs.tsv", "pairs");
  close_run(&run);
  training_place_close(&p);
}

static void decoders_learn_targets_of_tokens(void **state) {
  (void)state;
  training_place p;
  example_run run;
  training_place_open(&p);
  write_recall(p.folder);
  OPEN(&run, "--format=sequences", "--layers=2", "--width=32", "--context=5", "--batch=27", "--heads=4", "--steps=1000",
       "--validation-fraction=0", "--lr=4e-3", "--positions=rotary");
  learns(&p, &run, "recall.tsv", "recall");
  close_run(&run);
  training_place_close(&p);
}

/* ---- runs in parts ---- */

/* With dropout, accumulation and a line of metrics that is not finished. */
static void a_run_in_parts_is_the_run_in_one(void **state) {
  (void)state;
  training_place p;
  example_run run;
  training_place_open(&p);
  write_examples(p.folder);
  OPEN(&run, "--format=text", "--architecture=encoder", "--context=9", "--steps=30", "--validation-fraction=0.2", "--dropout=0.1",
       "--attention-dropout=0.1", "--accumulate=2", "--log-every=4", "--evaluate-every=7", "--batch=5");
  char kept[TEST_PATH_BYTES];
  (void)snprintf(kept, sizeof kept, "%s", test_path(p.folder, "texts.tsv"));
  const char *paths[] = {kept};
  at_paths(&run, paths);
  hark_train_result whole, part;
  assert_fine(p.context, training_run(&p, &run.config, "whole", NULL, &whole));
  assert_int_equal(whole.reason, HARK_STOP_DONE);
  training_interrupter interrupter = {.left = 10};
  const hark_train_hooks hooks = {.user = &interrupter, .request = training_interrupt};
  assert_fine(p.context, training_run(&p, &run.config, "parts", &hooks, &part));
  assert_int_equal(part.reason, HARK_STOP_REQUEST);
  assert_in_range(part.state.step, 1, 29);
  run.config.run.resume = true;
  assert_fine(p.context, training_run(&p, &run.config, "parts", NULL, &part));
  assert_int_equal(part.state.step, 30);
  assert_int_equal(part.state.tokens, whole.state.tokens);
  char a[TEST_PATH_BYTES], b[TEST_PATH_BYTES];
  (void)snprintf(a, sizeof a, "%s", test_path(p.folder, "whole"));
  (void)snprintf(b, sizeof b, "%s", test_path(p.folder, "parts"));
  small_run_assert_same(a, b, 30);
  close_run(&run);
  training_place_close(&p);
}

/* ---- what is counted, and refused ---- */

/* Tokens of the metrics are those of the examples and the class tokens, and nothing else. */
static void only_real_tokens_are_counted(void **state) {
  (void)state;
  training_place p;
  example_run run;
  training_place_open(&p);
  test_file_write_text(p.folder, "few.tsv", "0\ta\n1\tbb\n0\tccc\n1\tdddd\n");
  OPEN(&run, "--format=text", "--architecture=encoder", "--context=64", "--examples=8", "--batch=4", "--validation-fraction=0");
  char kept[TEST_PATH_BYTES];
  (void)snprintf(kept, sizeof kept, "%s", test_path(p.folder, "few.tsv"));
  const char *paths[] = {kept};
  at_paths(&run, paths);
  hark_train_result result;
  assert_fine(p.context, training_run(&p, &run.config, "few", NULL, &result));
  assert_int_equal(result.state.step, 2);              /* 8 examples in batches of 4 */
  assert_int_equal(result.state.tokens, 2 * (10 + 4)); /* each epoch 10 letters and 4 class tokens */
  assert_true(result.state.operations > 0);
  close_run(&run);
  training_place_close(&p);
}

typedef struct refusal {
  const char *words[6];
  const char *file, *message;
} refusal;

static void data_that_do_not_fit_are_refused(void **state) {
  (void)state;
  static const refusal cases[] = {
      {{"--format=text", "--architecture=encoder", "--context=3"},
       "texts.tsv",
       "more tokens than model.context, 3: the first is number 1 with 9"},
      {{"--format=text", "--context=9"}, "texts.tsv", "model.architecture decoder predicts tokens, and the data have classes"},
      {{"--format=sequences", "--architecture=encoder", "--context=9"}, "recall.tsv", "an encoder predicts classes: there are 0"},
      {{"--format=text", "--architecture=encoder"}, "missing.tsv", "missing.tsv"},
  };
  training_place p;
  training_place_open(&p);
  write_examples(p.folder);
  write_recall(p.folder);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    example_run run;
    int count = 0;
    while (count < 6 && cases[i].words[count] != NULL) count++;
    open_run(&run, cases[i].words, count);
    char kept[TEST_PATH_BYTES], name[32];
    (void)snprintf(kept, sizeof kept, "%s", test_path(p.folder, cases[i].file));
    (void)snprintf(name, sizeof name, "refused-%d", (int)i);
    const char *paths[] = {kept};
    at_paths(&run, paths);
    run.config.train.steps = 1;
    hark_train_result result;
    const hark_status status = training_run(&p, &run.config, name, NULL, &result);
    if (status == HARK_OK || strstr(hark_context_message(p.context), cases[i].message) == NULL)
      fail_msg("%s: status %d, message %s", cases[i].message, (int)status, hark_context_message(p.context));
    close_run(&run);
  }
  training_place_close(&p);
}

/* A run goes on with its own examples only. */
static void other_examples_are_refused(void **state) {
  (void)state;
  training_place p;
  example_run run;
  training_place_open(&p);
  write_examples(p.folder);
  test_file_write_text(p.folder, "other.tsv", "0\tab\n1\tba\n0\taa\n1\tbb\n");
  OPEN(&run, "--format=text", "--architecture=encoder", "--context=9", "--steps=2", "--validation-fraction=0", "--batch=2");
  char kept[2][TEST_PATH_BYTES];
  (void)snprintf(kept[0], sizeof kept[0], "%s", test_path(p.folder, "texts.tsv"));
  (void)snprintf(kept[1], sizeof kept[1], "%s", test_path(p.folder, "other.tsv"));
  const char *own[] = {kept[0]}, *other[] = {kept[1]};
  hark_train_result result;
  at_paths(&run, own);
  assert_fine(p.context, training_run(&p, &run.config, "run", NULL, &result));
  at_paths(&run, other);
  run.config.run.resume = true;
  run.config.train.steps = 4;
  assert_failure(p.context, training_run(&p, &run.config, "run", NULL, &result), HARK_BAD_CONFIGURATION,
                 "the examples are not those that this run was trained on so far");
  run.config.data.classes = 3; /* another vocabulary */
  assert_failure(p.context, training_run(&p, &run.config, "run", NULL, &result), HARK_BAD_FILE, "vocabulary.json");
  close_run(&run);
  training_place_close(&p);
}

/* Frozen weights keep their bits through steps with decay, and the norm that is clipped does not know them. */
static void frozen_weights_stay(void **state) {
  (void)state;
  static const char *const patterns[] = {"embedding.*", "blocks.*", "final_norm.*"};
  training_place p;
  example_run run;
  training_place_open(&p);
  OPEN(&run, "--format=text", "--architecture=encoder", "--context=4", "--batch=2", "--weight-decay=0.5", "--bias");
  static int32_t inputs[] = {3, 7, 8, 3, 9}, positions[] = {0, 1, 2, 0, 1}, classes[] = {1, 0};
  static int64_t segments[] = {0, 0, 0, 1, 1}, ranges[] = {0, 3, 3, 5};
  const hark_learning_task task = {.vocabulary = 12, .classes = 2, .parts = 1};
  const hark_example_batch batch = {.rows = 2,
                                    .tokens = 5,
                                    .inputs = inputs,
                                    .positions = positions,
                                    .segments = segments,
                                    .ranges = ranges,
                                    .targets = classes,
                                    .real = 2,
                                    .longest = 3};
  double norms[2];
  for (int frozen = 0; frozen < 2; frozen++) {
    hark_engine *engine = NULL;
    run.config.train.freeze = (hark_string_list){.items = patterns, .count = frozen != 0 ? 3 : 0};
    assert_fine(p.context, hark_engine_create_for(p.context, &run.config, &task, true, &engine));
    hark_parameters *parameters = &engine->network->parameters;
    assert_fine(p.context, hark_parameters_initialise(p.context, parameters, 1));
    const size_t bytes = (size_t)hark_tensor_count(&parameters->weights) * sizeof(float);
    float *const before = malloc(bytes), *const after = malloc(bytes);
    assert_fine(p.context, hark_tensor_read(p.context, &parameters->weights, before));
    for (int64_t step = 1; step <= 3; step++) {
      hark_pass_result pass;
      hark_step_result result;
      assert_fine(p.context, hark_engine_begin_step(p.context, engine));
      assert_fine(p.context, hark_engine_train_examples(p.context, engine, &batch, (uint32_t)step, 0.5, &pass));
      assert_fine(p.context, hark_engine_finish_step(p.context, engine, step, 1e-2, pass.loss, &result));
      assert_true(result.applied);
      if (step == 1) norms[frozen] = result.gradient_norm;
    }
    assert_fine(p.context, hark_tensor_read(p.context, &parameters->weights, after));
    for (int32_t i = 0; i < parameters->count; i++) {
      const hark_parameter *parameter = &parameters->list[i];
      const bool stays = frozen != 0 && strncmp(parameter->name, "head", 4) != 0;
      const bool same = memcmp(before + parameter->first, after + parameter->first, (size_t)parameter->count * sizeof *before) == 0;
      if (same != stays) fail_msg("%s %s", parameter->name, same ? "has not changed" : "has changed");
    }
    free(before);
    free(after);
    hark_engine_destroy(p.context, &engine);
  }
  assert_true(norms[1] < norms[0]);
  static const char *const nothing[] = {"nothing.*"};
  hark_engine *engine = NULL;
  run.config.train.freeze = (hark_string_list){.items = nothing, .count = 1};
  assert_failure(p.context, hark_engine_create_for(p.context, &run.config, &task, true, &engine), HARK_BAD_CONFIGURATION,
                 "train.freeze: nothing.* matches no weight of the model");
  close_run(&run);
  training_place_close(&p);
}

/* Long Range Arena's schedules, by its formulas. */
static void schedules_of_the_arena(void **state) {
  (void)state;
  hark_config config;
  memset(&config, 0, sizeof config);
  config.train.learning_rate = 0.05;
  config.train.warmup = 8000;
  const int64_t total = 5000, steps[] = {1, 500, 4999, 5000, 8000, 8001, 20000};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    const double t = (double)steps[i], w = 8000, pi = 3.14159265358979323846;
    config.train.schedule = HARK_SCHEDULE_BASE_RSQRT;
    const double rsqrt = 0.05 * fmin(1, t / w) / sqrt(fmax(t, w));
    assert_true(fabs(hark_schedule_rate(&config, steps[i], total) - rsqrt) <= 1e-15);
    config.train.schedule = HARK_SCHEDULE_CYCLE;
    const double cosine = 0.05 * fmin(1, t / w) * (1 + cos(pi * fmod(fmax(0, t - w) / (double)total, 1))) / 2;
    assert_true(fabs(hark_schedule_rate(&config, steps[i], total) - cosine) <= 1e-15);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(encoders_learn_classes),
      cmocka_unit_test(two_towers_learn_pairs),
      cmocka_unit_test(decoders_learn_targets_of_tokens),
      cmocka_unit_test(a_run_in_parts_is_the_run_in_one),
      cmocka_unit_test(only_real_tokens_are_counted),
      cmocka_unit_test(data_that_do_not_fit_are_refused),
      cmocka_unit_test(other_examples_are_refused),
      cmocka_unit_test(schedules_of_the_arena),
      cmocka_unit_test(frozen_weights_stay),
  };
  return cmocka_run_group_tests_name("examples", tests, NULL, NULL);
}
