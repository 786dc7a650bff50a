/* test_targets.c - data without targets are refused before a run begins, and steps without targets are left out and counted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/jsonl.h"
#include "support/cmocka_all.h"
#include "support/flags.h"
#include "support/train/training_place.h"

#define WORDS 32

static const char *const common[] = {"--layers=1", "--heads=1",   "--width=8",         "--context=8",        "--batch=2",
                                     "--steps=6",  "--threads=1", "--log-every=1",     "--evaluate-every=0", "--checkpoint-every=0",
                                     "--lr=1e-2",  "--warmup=0",  "--order=sequential"};
#define COMMON ((int)(sizeof common / sizeof *common))

typedef struct part {
  const char *training, *validation; /* names in the folder; NULL: none */
} part;

static hark_status run(training_place *p, const part *data, const char *const *words, int count, const char *name,
                       const hark_train_hooks *hooks, bool resume, hark_train_result *result) {
  const char *all[WORDS];
  char training[TEST_PATH_BYTES], validation[TEST_PATH_BYTES];
  const char *paths[] = {training}, *validation_paths[] = {validation};
  hark_config config;
  hark_options *options = NULL;
  const hark_option_group group = {&hark_config_table, &config};
  memcpy(all, common, sizeof common);
  memcpy(all + COMMON, words, (size_t)count * sizeof *words);
  assert_fine(p->context, hark_options_create(p->context, "train", &group, 1, &options));
  assert_fine(p->context, hark_options_read_arguments(p->context, options, test_flags_settle(all, COMMON + count), all));
  assert_fine(p->context, hark_config_finish(p->context, options, &config));
  for (int i = 0; i < hark_options_problem_count(options); i++) fail_msg("%s", hark_options_problem(options, i));
  (void)snprintf(training, sizeof training, "%s", test_path(p->folder, data->training));
  config.data.paths = (hark_string_list){.items = paths, .count = 1};
  if (data->validation != NULL) {
    (void)snprintf(validation, sizeof validation, "%s", test_path(p->folder, data->validation));
    config.data.validation_paths = (hark_string_list){.items = validation_paths, .count = 1};
  }
  config.run.resume = resume;
  const hark_status status = training_run(p, &config, name, hooks, result);
  hark_options_destroy(p->context, &options);
  return status;
}
#define RUN(p, data, name, hooks, resume, result, ...)                                                                                     \
  run(p, data, (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)), name, hooks,  \
      resume, result)

static void write_data(training_place *p) {
  test_file_write_text(p->folder, "late.tsv", "Words\ta b c\na b c\t2:c\nb a c\t2:a\n"); /* targets at the third word alone */
  test_file_write_text(p->folder, "good.tsv", "Words\ta b c\na b c\t0:c 2:a\nb a c\t1:a\n");
  /* the targets of two batches of six lie within four words */
  test_file_write_text(p->folder, "some.tsv",
                       "Words\ta b c\na b c\t1:c\nb a c\t0:a\na b c a b c\t5:c\nb a c b c\t4:a\na b c\t1:c\nb a c\t0:a\n"
                       "a b c a b c\t5:c\nb a c b c\t4:a\nb a c b c a\t5:a\nb a c c c\t4:a\na b a c b\t4:b\nc c c c c\t4:c\n");
}

static void what_has_no_targets_is_refused(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_data(&p);
  test_file_write_text(p.folder, "words.txt", "the quick brown fox jumps over the lazy dog and the quick cat\n");
  const part late = {"late.tsv", NULL}, late_validation = {"good.tsv", "late.tsv"}, text = {"words.txt", NULL};
  hark_train_result result;
#define SEQUENCES "--format=sequences"
  assert_failure(
      p.context, RUN(&p, &late, "a", NULL, false, &result, SEQUENCES, "--length-limit=2"), HARK_BAD_CONFIGURATION,
      "the training examples have no targets: all come after the 2 tokens that data.length_limit keeps; there is nothing to learn");
  assert_failure(p.context, RUN(&p, &late_validation, "b", NULL, false, &result, SEQUENCES, "--length-limit=2"), HARK_BAD_CONFIGURATION,
                 "the validation examples have no targets");
  assert_failure(p.context, RUN(&p, &late, "c", NULL, false, &result, SEQUENCES, "--architecture=masked_encoder", "--mask-fraction=1e-9"),
                 HARK_BAD_CONFIGURATION, "train.mask_fraction 1e-9 masks none of their tokens");
  assert_failure(
      p.context,
      RUN(&p, &text, "d", NULL, false, &result, "--architecture=masked_encoder", "--mask-fraction=1e-9", "--validation-fraction=0"),
      HARK_BAD_CONFIGURATION, "the training windows have no targets: train.mask_fraction 1e-9 masks none of their tokens");
  /* of 62 characters the last six are not hidden by this seed, and the others are */
  assert_failure(
      p.context,
      RUN(&p, &text, "e", NULL, false, &result, "--architecture=masked_encoder", "--mask-fraction=0.05", "--validation-fraction=0.1"),
      HARK_BAD_CONFIGURATION, "the validation windows have no targets");
  /* what is given to validate with has something to predict */
  test_file_write_text(p.folder, "empty.txt", "");
  test_file_write_text(p.folder, "one.txt", "t");
  test_file_write_text(p.folder, "two.txt", "th");
  test_file_write_text(p.folder, "none.tsv", "Words\ta b c\n");
  const part empty = {"words.txt", "empty.txt"}, one = {"words.txt", "one.txt"}, two = {"words.txt", "two.txt"},
             none = {"good.tsv", "none.tsv"};
  assert_failure(p.context, RUN(&p, &empty, "h", NULL, false, &result, "--order=random"), HARK_BAD_CONFIGURATION,
                 "empty.txt: the validation text has no targets; expected at least two tokens, or no data for validation");
  assert_failure(p.context, RUN(&p, &one, "i", NULL, false, &result, "--order=random"), HARK_BAD_CONFIGURATION,
                 "one.txt: the validation text has no targets");
  assert_failure(p.context, RUN(&p, &one, "j", NULL, false, &result, "--architecture=masked_encoder"), HARK_BAD_CONFIGURATION,
                 "one.txt: the validation text has no targets");
  assert_failure(p.context, RUN(&p, &empty, "k", NULL, false, &result, "--unit=sentences"), HARK_BAD_CONFIGURATION, "empty.txt: ");
  assert_true(RUN(&p, &none, "l", NULL, false, &result, SEQUENCES) != HARK_OK);
  assert_fine(p.context, RUN(&p, &two, "m", NULL, false, &result, "--order=random"));
  /* with what is missing all of them train */
  assert_fine(p.context, RUN(&p, &late, "f", NULL, false, &result, SEQUENCES));
  assert_true(result.state.updates == 6 && result.state.empty_steps == 0);
  assert_fine(p.context, RUN(&p, &text, "g", NULL, false, &result, "--architecture=masked_encoder", "--mask-fraction=0.5",
                             "--validation-fraction=0.3"));
  training_place_close(&p);
}

/* Lines of metrics, none of which has a number that is none. */
typedef struct lines {
  double loss[16];
  int64_t empty;
  int count;
} lines;

static hark_status collect(void *user, const json_t *object, int64_t line) {
  lines *all = user;
  const char *key;
  json_t *value;
  (void)line;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) if (json_is_null(value)) fail_msg("%s is null", key);
  const json_t *loss = json_object_get(object, "train/loss"), *empty = json_object_get(object, "empty_steps");
  if (empty != NULL) all->empty = json_integer_value(empty);
  if (loss != NULL) all->loss[all->count++] = json_number_value(loss);
  return HARK_OK;
}

static lines lines_of(training_place *p, const char *name) {
  lines all = {.count = 0};
  char path[64];
  (void)snprintf(path, sizeof path, "%s/metrics.jsonl", name);
  assert_fine(p->context, hark_jsonl_read(p->context, test_path(p->folder, path), collect, &all));
  return all;
}

static void keep(void *user, const char *line) {
  char *said = user;
  (void)snprintf(said + strlen(said), 4096 - strlen(said), "%s\n", line);
}

static void only_finite_losses(void *user, const hark_train_progress *at) {
  (void)user;
  if (at->step > 1) assert_true(isfinite(at->loss));
}

/* Steps 2, 4, 5 and 6 read examples whose targets are cut off: they change nothing, and are counted, also by a run in parts. */
static void steps_without_targets_are_counted(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  write_data(&p);
  const part some = {"some.tsv", NULL};
  hark_train_result result;
  char said[4096] = "";
  const hark_train_hooks hooks = {.user = said, .say = keep, .show = only_finite_losses};
  training_interrupter who = {.left = 4};
  const hark_train_hooks stopping = {.user = &who, .request = training_interrupt};
  assert_fine(p.context, RUN(&p, &some, "whole", &hooks, false, &result, SEQUENCES, "--length-limit=3", "--validation-fraction=0"));
  assert_int_equal(result.state.step, 6);
  assert_int_equal(result.state.updates, 2);
  assert_int_equal(result.state.empty_steps, 4);
  assert_non_null(strstr(said, "4 of 6 steps had no targets and changed nothing"));
  assert_fine(p.context, RUN(&p, &some, "parts", &stopping, false, &result, SEQUENCES, "--length-limit=3", "--validation-fraction=0"));
  assert_fine(p.context, RUN(&p, &some, "parts", NULL, true, &result, SEQUENCES, "--length-limit=3", "--validation-fraction=0"));
  assert_int_equal(result.state.empty_steps, 4);
  training_same_file(&p, "whole/checkpoints/step-6/model.safetensors", "parts/checkpoints/step-6/model.safetensors");
  const lines whole = lines_of(&p, "whole"), parts = lines_of(&p, "parts");
  assert_int_equal(whole.count, 2);
  assert_int_equal(parts.count, 2);
  assert_memory_equal(whole.loss, parts.loss, 2 * sizeof *whole.loss);
  assert_int_equal(whole.empty, 1); /* when the last line was written, after step 3 */
  training_place_close(&p);
}

/* Reserved tokens are never hidden: the loss is a mean over those that are, whatever was drawn, as that of an evaluation is. */
static void reserved_tokens_leave_the_mean_alone(void **state) {
  (void)state;
  training_place p;
  training_place_open(&p);
  test_file_write_text(p.folder, "known.txt", "abababababababababababababababababababab\n");
  test_file_write_text(p.folder, "unknown.txt", "abzzzzzzabzzzzzzabzzzzzzabzzzzzzabzzzzzzabzzzzzzabzzzzzz");
  const part known = {"known.txt", NULL}, unknown = {"unknown.txt", NULL};
  hark_train_result result;
#define MASKED "--architecture=masked_encoder", "--mask-fraction=0.9", "--validation-fraction=0", "--steps=1"
  assert_fine(p.context, RUN(&p, &known, "known", NULL, false, &result, MASKED));
  char init[TEST_PATH_BYTES + 16];
  (void)snprintf(init, sizeof init, "--init-from=%s", test_path(p.folder, "known"));
  assert_fine(p.context, RUN(&p, &unknown, "unknown", NULL, false, &result, MASKED, "--unknown=map", init));
  const lines all = lines_of(&p, "unknown");
  /* six of eight tokens are unknown: as a sum over a quarter of the targets it would be about log(9) / 4 */
  assert_true(all.loss[0] > 1.5);
  training_place_close(&p);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_has_no_targets_is_refused), cmocka_unit_test(steps_without_targets_are_counted),
                                     cmocka_unit_test(reserved_tokens_leave_the_mean_alone)};
  return cmocka_run_group_tests_name("targets", tests, NULL, NULL);
}
