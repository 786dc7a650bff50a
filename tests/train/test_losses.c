/* test_losses.c - train/loss is the mean loss of the targets, as val/loss is; what else the gradient is taken of has metrics of its own. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/flags.h"
#include "support/train/training_place.h"

#define LINES 16
#define WORDS 32
#define ROUNDING 2e-5 /* losses of about 1 in f32, summed over some ten layers in another order */

/* Metrics of a run, by line; NaN where a line does not have them. */
typedef struct lines {
  double loss[LINES], objective[LINES], smoothing[LINES], z[LINES], ratio[LINES], ponder[LINES], validation;
  int count;
} lines;

static double number_of(const json_t *object, const char *name) {
  const json_t *value = json_object_get(object, name);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static hark_status collect(void *user, const json_t *object, int64_t line) {
  lines *all = user;
  (void)line;
  if (json_object_get(object, "val/loss") != NULL) all->validation = number_of(object, "val/loss");
  if (json_object_get(object, "train/loss") == NULL) return HARK_OK;
  assert_true(all->count < LINES);
  const int i = all->count++;
  all->loss[i] = number_of(object, "train/loss");
  all->objective[i] = number_of(object, "train/objective");
  all->smoothing[i] = number_of(object, "train/smoothing_loss");
  all->z[i] = number_of(object, "train/z_loss");
  all->ratio[i] = number_of(object, "train/ratio_loss");
  all->ponder[i] = number_of(object, "train/ponder_loss");
  return HARK_OK;
}

static lines lines_of(training_place *p, const char *name) {
  lines all = {.validation = NAN};
  char path[64];
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", name);
  assert_fine(p->context, hark_jsonl_read(p->context, test_path(p->folder, path), collect, &all));
  return all;
}

/* Texts of two classes; all of them are a batch. In the other order they are the validation part too, since one file is refused as both. */
#define EXAMPLES 24
static char examples[TEST_PATH_BYTES], same_examples[TEST_PATH_BYTES];

static void write_order(training_place *p, const char *name, bool backwards, char path[TEST_PATH_BYTES]) {
  char text[EXAMPLES * 32] = "";
  for (int n = 0; n < EXAMPLES; n++) {
    const int i = backwards ? EXAMPLES - 1 - n : n;
    (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%d\t%.*s\n", i % 2, 5 + i % 7,
                   i % 2 != 0 ? "abcabcdabcab" : "dcbadbcadbcc");
  }
  (void)snprintf(path, TEST_PATH_BYTES, "%s", test_file_write_text(p->folder, name, text));
}

static void write_examples(training_place *p) {
  write_order(p, "examples.tsv", false, examples);
  write_order(p, "same.tsv", true, same_examples);
}

/* Weights hardly move, so that every step has the loss that the evaluation at the end has. */
static const char *const still[] = {"--heads=2",        "--width=16",  "--lr=1e-30",          "--train.minimum-rate=1e-30",
                                    "--weight-decay=0", "--warmup=0",  "--log-every=1",       "--evaluate-every=0",
                                    "--steps=3",        "--threads=2", "--checkpoint-every=0"};
#define STILL ((int)(sizeof still / sizeof *still))

static void run(training_place *p, const char *const *words, int count, const char *name, const hark_train_hooks *hooks, bool resume) {
  const char *all[WORDS];
  const char *paths[] = {p->text}, *const validation_paths[] = {same_examples};
  hark_config config;
  hark_options *options = NULL;
  hark_train_result result;
  const hark_option_group group = {&hark_config_table, &config};
  memcpy(all, still, sizeof still);
  memcpy(all + STILL, words, (size_t)count * sizeof *words);
  assert_fine(p->context, hark_options_create(p->context, "train", &group, 1, &options));
  assert_fine(p->context, hark_options_read_arguments(p->context, options, test_flags_settle(all, STILL + count), all));
  assert_fine(p->context, hark_config_finish(p->context, options, &config));
  for (int i = 0; i < hark_options_problem_count(options); i++) fail_msg("%s", hark_options_problem(options, i));
  if (hark_config_has_examples(&config)) {
    paths[0] = examples;
    config.data.validation_paths = (hark_string_list){.items = validation_paths, .count = 1};
  }
  config.data.paths = (hark_string_list){.items = paths, .count = 1};
  config.run.resume = resume;
  assert_fine(p->context, training_run(p, &config, name, hooks, &result));
  hark_options_destroy(p->context, &options);
}
#define RUN(p, name, hooks, resume, ...)                                                                                                   \
  do {                                                                                                                                     \
    const char *const words_[] = {__VA_ARGS__};                                                                                            \
    run(p, words_, (int)(sizeof words_ / sizeof *words_), name, hooks, resume);                                                            \
  } while (0)

/* capacity 1: all chunks have all layers, in training and in evaluation */
#define AHCA                                                                                                                               \
  "--format=text", "--batch=24", "--order=sequential", "--architecture=ahca", "--context=12", "--layers=3", "--model.ahca.chunk=learned",  \
      "--chunk-size=4", "--primary-slots=2", "--secondary-slots=4", "--selected=2", "--capacity=1"

static void penalties_are_apart(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_examples(&p);
  RUN(&p, "both", NULL, false, AHCA, "--model.ahca.ratio-weight=0.5", "--model.ahca.ponder-weight=0.25");
  RUN(&p, "none", NULL, false, AHCA, "--model.ahca.ratio-weight=0", "--model.ahca.ponder-weight=0");
  const lines both = lines_of(&p, "both"), none = lines_of(&p, "none");
  assert_int_equal(both.count, 3);
  for (int i = 0; i < both.count; i++) {
    assert_true(both.loss[i] == none.loss[i]);
    assert_true(fabs(both.loss[i] - both.validation) < ROUNDING);
    assert_true(both.ratio[i] > 0.01 && both.ponder[i] > 0.01); /* weighted as they enter */
    assert_true(isnan(both.smoothing[i]));
    assert_true(fabs(both.objective[i] - (both.loss[i] + both.ratio[i] + both.ponder[i])) < ROUNDING);
    assert_true(isnan(none.objective[i]) && isnan(none.ratio[i]) && isnan(none.ponder[i]));
  }
  training_place_close(&p);
}

/* The weight of a penalty is in its metric. */
static void a_penalty_has_its_weight(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_examples(&p);
  RUN(&p, "one", NULL, false, AHCA, "--model.ahca.ratio-weight=0.5", "--model.ahca.ponder-weight=0");
  RUN(&p, "four", NULL, false, AHCA, "--model.ahca.ratio-weight=2", "--model.ahca.ponder-weight=0");
  const lines one = lines_of(&p, "one"), four = lines_of(&p, "four");
  assert_true(fabs(4 * one.ratio[0] - four.ratio[0]) < ROUNDING * four.ratio[0]);
  assert_true(isnan(one.ponder[0]));
  training_place_close(&p);
}

/* Smoothed labels are what the gradient is taken of, and no part of the loss that is compared: examples and windows of a text. */
static void smoothing_is_apart(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_examples(&p);
#define ENCODER "--format=text", "--batch=24", "--order=sequential", "--architecture=encoder", "--context=12", "--layers=1"
#define DECODER "--batch=4", "--context=16", "--layers=1", "--accumulate=2"
  RUN(&p, "encoder", NULL, false, ENCODER, "--train.label-smoothing=0.3");
  RUN(&p, "text", NULL, false, DECODER, "--train.label-smoothing=0.3");
  RUN(&p, "plain", NULL, false, DECODER);
  const lines encoder = lines_of(&p, "encoder"), text = lines_of(&p, "text"), plain = lines_of(&p, "plain");
  for (int i = 0; i < 3; i++) {
    assert_true(fabs(encoder.loss[i] - encoder.validation) < ROUNDING);
    assert_true(fabs(encoder.objective[i] - (encoder.loss[i] + encoder.smoothing[i])) < ROUNDING);
    assert_true(encoder.smoothing[i] != 0);
    assert_true(text.loss[i] == plain.loss[i]);
    assert_true(text.smoothing[i] != 0);
    assert_true(fabs(text.objective[i] - (text.loss[i] + text.smoothing[i])) < ROUNDING);
    assert_true(isnan(plain.smoothing[i]) && isnan(plain.objective[i]));
  }
  training_place_close(&p);
}

/* z-loss alone and with smoothed labels: each term is what it adds, and the loss that is compared has neither. */
static void z_loss_is_apart(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_examples(&p);
  RUN(&p, "plain", NULL, false, DECODER);
  RUN(&p, "z", NULL, false, DECODER, "--train.z-loss=0.01");
  RUN(&p, "twice", NULL, false, DECODER, "--train.z-loss=0.02");
  RUN(&p, "both", NULL, false, DECODER, "--train.z-loss=0.01", "--train.label-smoothing=0.3");
  RUN(&p, "smooth", NULL, false, DECODER, "--train.label-smoothing=0.3");
  RUN(&p, "encoder", NULL, false, ENCODER, "--train.z-loss=0.01");
  const lines plain = lines_of(&p, "plain"), z = lines_of(&p, "z"), twice = lines_of(&p, "twice"), both = lines_of(&p, "both"),
              smooth = lines_of(&p, "smooth"), encoder = lines_of(&p, "encoder");
  const int i = 0; /* the same weights in all of them */
  assert_true(z.loss[i] == plain.loss[i] && both.loss[i] == plain.loss[i]);
  assert_true(z.z[i] > 0.01); /* log 11 is 2.4 at the beginning */
  assert_true(fabs(twice.z[i] - 2 * z.z[i]) < ROUNDING);
  assert_true(fabs(both.z[i] - z.z[i]) < ROUNDING && fabs(both.smoothing[i] - smooth.smoothing[i]) < ROUNDING);
  assert_true(fabs(z.objective[i] - (z.loss[i] + z.z[i])) < ROUNDING && isnan(z.smoothing[i]) && isnan(plain.z[i]));
  assert_true(fabs(both.objective[i] - (both.loss[i] + both.z[i] + both.smoothing[i])) < ROUNDING);
  assert_true(encoder.z[i] > 0 && fabs(encoder.objective[i] - (encoder.loss[i] + encoder.z[i])) < ROUNDING);
  training_place_close(&p);
}

/* Sums over the steps of a line are in the checkpoint: an interrupt in the middle of a line changes none of them. */
static void an_interrupt_keeps_the_sums(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_examples(&p);
#define LEARNING                                                                                                                           \
  AHCA, "--model.ahca.ratio-weight=0.5", "--lr=1e-2", "--train.label-smoothing=0.1", "--train.z-loss=1e-3", "--log-every=4", "--steps=8"
  RUN(&p, "whole", NULL, false, LEARNING);
  training_interrupter who = {.left = 3};
  const hark_train_hooks hooks = {.user = &who, .request = training_interrupt};
  RUN(&p, "parts", &hooks, false, LEARNING);
  RUN(&p, "parts", NULL, true, LEARNING);
  const lines whole = lines_of(&p, "whole"), parts = lines_of(&p, "parts");
  assert_int_equal(whole.count, 2);
  assert_int_equal(parts.count, 2);
  for (int i = 0; i < 2; i++) {
    assert_true(whole.loss[i] == parts.loss[i] && whole.objective[i] == parts.objective[i] && whole.ratio[i] == parts.ratio[i]);
    assert_true(whole.ponder[i] == parts.ponder[i] && whole.smoothing[i] == parts.smoothing[i] && whole.z[i] == parts.z[i]);
  }
  assert_true(whole.objective[1] < whole.objective[0]);
  training_place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(penalties_are_apart), cmocka_unit_test(a_penalty_has_its_weight),
                                     cmocka_unit_test(smoothing_is_apart), cmocka_unit_test(z_loss_is_apart),
                                     cmocka_unit_test(an_interrupt_keeps_the_sums)};
  return cmocka_run_group_tests_name("losses", tests, NULL, NULL);
}
