/* small_run.c - see small_run.h. */
#include "support/train/small_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"
#include "support/cmocka_all.h"
#include "support/flags.h"
#include "support/setups.h"
#include "train/data_place.h"

const char *const small_run_words[] = {"--layers=1",
                                       "--heads=2",
                                       "--width=16",
                                       "--context=8",
                                       "--batch=2",
                                       "--accumulate=2",
                                       "--steps=4",
                                       "--warmup=2",
                                       "--dropout=0.1",
                                       "--log-every=1",
                                       "--lr=3e-3",
                                       "--attention-dropout=0.1",
                                       "--keep=1",
                                       "--evaluate-every=2",
                                       "--threads=1",
                                       "--checkpoint-every=1",
                                       "--order=shuffled",
                                       "--deterministic",
                                       "--data.validation_fraction=0.02",
                                       "--no-preflight"}; /* disks here are full when they are full */
const int small_run_word_count = (int)(sizeof small_run_words / sizeof *small_run_words);

hark_context *small_run_context(int threads) {
  const test_setup setup = {"cpu", "generic"};
  return test_setup_open_deterministic(&setup, threads);
}

/* The common words, and some more that win over them. */
static void configure(small_run *small, const char *const *more, int count) {
  enum { MOST = 48 };
  const char *words[MOST];
  assert_true(small_run_word_count + count <= MOST);
  memcpy(words, small_run_words, sizeof small_run_words);
  if (count > 0) memcpy(words + small_run_word_count, more, (size_t)count * sizeof *more);
  count = test_flags_settle(words, small_run_word_count + count);
  const hark_option_group group = {&hark_config_table, &small->config};
  assert_fine(small->plain, hark_options_create(small->plain, "train", &group, 1, &small->options));
  assert_fine(small->plain, hark_options_read_arguments(small->plain, small->options, count, words));
  assert_fine(small->plain, hark_config_finish(small->plain, small->options, &small->config));
  for (int i = 0; i < hark_options_problem_count(small->options); i++) fail_msg("%s", hark_options_problem(small->options, i));
  small->paths[0] = small->text;
  small->config.data.paths = (hark_string_list){.items = small->paths, .count = 1};
}

/* `lines` texts with two numbers each, as a file of the folder. */
static void write_lines(small_run *small, const char *folder, const char *name, const char *format, int lines) {
  char line[64], *const text = calloc(1, 16384);
  for (int i = 0; i < lines; i++) {
    (void)snprintf(line, sizeof line, format, i % 7, i % 5);
    strcat(text, line);
  }
  *small = (small_run){.plain = test_reference_open()};
  (void)snprintf(small->text, sizeof small->text, "%s", test_file_write_text(folder, name, text));
  free(text);
}

static const char *const example_words[] = {"--format=text",       "--architecture=encoder", "--structure=hierarchical",
                                            "--hierarchy-block=2", "--context=12",           "--data.classes=7"};
enum { EXAMPLE_WORDS = sizeof example_words / sizeof *example_words, MOST_WORDS = 24 };

void small_run_open_with(small_run *small, const char *folder, bool examples, int count, const char *const *words) {
  const char *all[EXAMPLE_WORDS + MOST_WORDS];
  const int before = examples ? EXAMPLE_WORDS : 0;
  assert_true(count <= MOST_WORDS);
  memcpy(all, example_words, sizeof example_words);
  for (int i = 0; i < count; i++) all[before + i] = words[i];
  if (examples)
    write_lines(small, folder, "examples.tsv", "%d\tab%dcdefg\n", 60);
  else
    write_lines(small, folder, "text.txt", "the %d quick foxes jump over %d lazy dogs\n", 60);
  configure(small, all, before + count);
}

void small_run_open(small_run *small, const char *folder) { small_run_open_with(small, folder, false, 0, NULL); }

void small_run_open_examples(small_run *small, const char *folder) { small_run_open_with(small, folder, true, 0, NULL); }

void small_run_close(small_run *small) {
  hark_options_destroy(small->plain, &small->options);
  test_setup_close(small->plain);
}

typedef struct part {
  const small_run *small;
  hark_context *context;
  const hark_run *run;
  const hark_train_hooks *given;
} part;

static hark_status ready(void *user, bool timed) {
  const part *p = user;
  (void)timed;
  char path[HARK_PATH_BYTES];
  const hark_data_place here = {.folder = ""};
  HARK_TRY(hark_data_place_write(p->context, &p->small->config, p->run, &here));
  hark_text text = hark_text_empty(p->small->plain);
  hark_options_print_yaml(p->small->options, false, &text);
  hark_status status = text.status;
  if (status == HARK_OK) status = hark_run_path(p->context, p->run, "config.yaml", path);
  if (status == HARK_OK) status = hark_file_write(p->context, path, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

static hark_request request(void *user) {
  const part *p = user;
  return p->given != NULL && p->given->request != NULL ? p->given->request(p->given->user) : HARK_REQUEST_NONE;
}

static void show(void *user, const hark_train_progress *progress) {
  const part *p = user;
  if (p->given != NULL && p->given->show != NULL) p->given->show(p->given->user, progress);
}

static hark_status gradients(void *user, hark_engine *engine, int64_t step, int64_t micro_batch) {
  const part *p = user;
  return p->given != NULL && p->given->gradients != NULL ? p->given->gradients(p->given->user, engine, step, micro_batch) : HARK_OK;
}

static void say(void *user, const char *line) {
  const part *p = user;
  if (p->given != NULL && p->given->say != NULL) p->given->say(p->given->user, line);
}

hark_status small_run_train(hark_context *context, const small_run *small, const char *path, const hark_train_hooks *hooks,
                            hark_train_result *result) {
  hark_config config = small->config;
  hark_run run;
  char file[TEST_PATH_BYTES];
  hark_train_result unused;
  (void)snprintf(file, sizeof file, "%s/config.yaml", path);
  FILE *const stored = fopen(file, "r"); /* tests of failing system calls do not count this one */
  config.run.resume = stored != NULL;
  if (stored != NULL) (void)fclose(stored);
  HARK_TRY(hark_run_open(context, path, config.run.resume, &run));
  part p = {small, context, &run, hooks};
  const hark_train_hooks own = {.user = &p, .show = show, .say = say, .request = request, .ready = ready, .gradients = gradients};
  const hark_status status = hark_train(context, &config, &run, &own, result != NULL ? result : &unused);
  hark_run_close(&run);
  return status;
}

int64_t small_run_step(const char *name) {
  if (strncmp(name, "step-", 5) != 0) fail_msg("\"%s\" is no checkpoint's name", name);
  return strtoll(name + 5, NULL, 10);
}

/* ---- comparing ---- */

static void assert_same_file(const char *a, const char *b, const char *name) {
  char left_path[TEST_PATH_BYTES + 64], right_path[TEST_PATH_BYTES + 64];
  size_t left_bytes, right_bytes;
  (void)snprintf(left_path, sizeof left_path, "%s/%s", a, name);
  (void)snprintf(right_path, sizeof right_path, "%s/%s", b, name);
  unsigned char *left = test_file_read(left_path, &left_bytes), *right = test_file_read(right_path, &right_bytes);
  if (left_bytes != right_bytes || memcmp(left, right, left_bytes) != 0) fail_msg("%s and %s differ", left_path, right_path);
  free(left);
  free(right);
}

/* What the clock, and lines whose length depends on it, put there. */
static void drop_times(json_t *object) {
  static const char *const names[] = {"time", "tokens_per_second", "mfu", "seconds", "metrics_bytes"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)json_object_del(object, names[i]);
}

static json_t *parse(const char *path, const char *text, size_t bytes) {
  json_error_t error;
  json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (object == NULL) fail_msg("%s: %s in: %.*s", path, error.text, (int)bytes, text);
  drop_times(object);
  return object;
}

/* Two files of JSON objects: one a line, or one in all. */
static void assert_same_objects(const char *a, const char *b, const char *name, bool lines) {
  char paths[2][TEST_PATH_BYTES + 64];
  char *texts[2];
  size_t bytes[2], at[2] = {0, 0};
  (void)snprintf(paths[0], sizeof paths[0], "%s/%s", a, name);
  (void)snprintf(paths[1], sizeof paths[1], "%s/%s", b, name);
  for (int i = 0; i < 2; i++) texts[i] = (char *)test_file_read(paths[i], &bytes[i]);
  while (at[0] < bytes[0] && at[1] < bytes[1]) {
    json_t *objects[2];
    for (int i = 0; i < 2; i++) {
      const char *const from = texts[i] + at[i];
      const char *const end = lines ? memchr(from, '\n', bytes[i] - at[i]) : texts[i] + bytes[i];
      if (end == NULL) fail_msg("%s: a torn line at the end", paths[i]);
      objects[i] = parse(paths[i], from, (size_t)(end - from));
      at[i] += (size_t)(end - from) + (lines ? 1 : 0);
    }
    if (!json_equal(objects[0], objects[1]))
      fail_msg("%s: %s\n%s: %s", paths[0], json_dumps(objects[0], 0), paths[1], json_dumps(objects[1], 0));
    for (int i = 0; i < 2; i++) json_decref(objects[i]);
  }
  for (int i = 0; i < 2; i++) {
    if (at[i] < bytes[i]) fail_msg("%s: has more lines than %s: %.200s", paths[i], paths[1 - i], texts[i] + at[i]);
    free(texts[i]);
  }
}

void small_run_assert_same(const char *a, const char *b, int64_t step) {
  char name[128];
  (void)snprintf(name, sizeof name, "checkpoints/step-%" PRId64 "/model.safetensors", step);
  assert_same_file(a, b, name);
  (void)snprintf(name, sizeof name, "checkpoints/step-%" PRId64 "/optimizer.safetensors", step);
  assert_same_file(a, b, name);
  (void)snprintf(name, sizeof name, "checkpoints/step-%" PRId64 "/state.json", step);
  assert_same_objects(a, b, name, false);
  assert_same_objects(a, b, "metrics.jsonl", true);
}

/* The next number of this name in lines of metrics, and the place after it; false: there is none. */
static bool next_number(const char **at, const char *name, double *number) {
  const char *const found = strstr(*at, name);
  if (found == NULL) return false;
  char *end = NULL;
  *number = strtod(found + strlen(name), &end);
  *at = end;
  return true;
}

static char *read_metrics(const char *path) {
  char name[TEST_PATH_BYTES + 96];
  size_t bytes;
  (void)snprintf(name, sizeof name, "%s/metrics.jsonl", path);
  unsigned char *const text = test_file_read(name, &bytes);
  char *const copy = malloc(bytes + 1);
  assert_non_null(copy);
  memcpy(copy, text, bytes);
  copy[bytes] = '\0';
  free(text);
  return copy;
}

double small_run_last_number(const char *path, const char *name) {
  char *const text = read_metrics(path);
  const char *at = text;
  double number = NAN;
  while (next_number(&at, name, &number)) continue;
  free(text);
  return number;
}

void small_run_compare(const char *alone, const char *spread, const char *name, int least, double bound) {
  char *const left = read_metrics(alone), *const right = read_metrics(spread);
  const char *a = left, *b = right;
  double expected = 0, got = 0;
  int count = 0;
  for (; next_number(&a, name, &expected); count++) {
    assert_true(next_number(&b, name, &got));
    if (!(fabs(got - expected) <= bound * fabs(expected)))
      fail_msg("%s: %s number %d is %.9g, expected %.9g", spread, name, count, got, expected);
  }
  assert_false(next_number(&b, name, &got));
  assert_true(count >= least);
  free(left);
  free(right);
}

void small_run_copy(const char *from, const char *to) {
  hark_context *context = test_reference_open();
  hark_names names;
  assert_fine(context, hark_folder_make(context, to));
  assert_fine(context, hark_folder_list(context, from, &names));
  for (int64_t i = 0; i < names.count; i++) {
    char source[TEST_PATH_BYTES], target[TEST_PATH_BYTES];
    (void)snprintf(source, sizeof source, "%s/%s", from, names.items[i]);
    (void)snprintf(target, sizeof target, "%s/%s", to, names.items[i]);
    if (hark_path_kind_of(source) == HARK_PATH_FOLDER) {
      small_run_copy(source, target);
      continue;
    }
    size_t bytes;
    unsigned char *data = test_file_read(source, &bytes);
    (void)test_file_write(to, names.items[i], data, bytes);
    free(data);
  }
  hark_names_free(context, &names);
  test_setup_close(context);
}
