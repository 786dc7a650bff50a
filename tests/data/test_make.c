/* test_make.c - generators of tasks against what they promise, from the files that they write. Recall, copy, passkey: targets from what
 * stands in front; needle, maps, runs: from the words alone. All: equal for equal seeds, whatever the number of threads and of examples; a
 * folder whole or not at all.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/core.h"
#include "data/tasks/make_sequences.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/task_place.h"

#define NAMES_BYTES 64

/* ---- random numbers of an example ---- */

static int64_t words_taken;

static size_t take_words(hark_task_order *order, unsigned char *out) {
  uint32_t sum = 0;
  for (int64_t i = 0; i < words_taken; i++) sum ^= hark_task_random_word(&order->random);
  memcpy(out, sum == 0 ? "a\ta:0\n" : "b\tb:0\n", 6);
  return 6;
}

static hark_status settle_nothing(hark_context *context, void *values) {
  (void)context, (void)values;
  return HARK_OK;
}

static hark_task_sizes six_bytes(const void *values) {
  (void)values;
  return (hark_task_sizes){.example_bytes = 6};
}

static hark_status no_header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  (void)generator, (void)values, (void)count;
  return out->status;
}

/* A generator of examples of six bytes, for this file. */
#define GENERATOR(function)                                                                                                                \
  { .format = "sequences", .settle = settle_nothing, .sizes = six_bytes, .header = no_header, .make = function }

/* An example that went on into the numbers of the next one is refused; so are more examples than there are numbers for. */
static void examples_keep_to_their_random_numbers(void **state) {
  const task_place *const f = *state;
  const hark_task_generator generator = GENERATOR(take_words);
  const hark_task_entry entry = {"taker", 99, &generator, &hark_task_sequences_options};
  hark_sequence_values values = {0};
  hark_text report = hark_text_empty(f->context);
  char path[TEST_PATH_BYTES];
  (void)snprintf(path, sizeof path, "%s", test_path(f->folder, "taken"));
  hark_task_settings settings = {.entry = &entry, .values = &values, .folder = path, .seed = 1, .examples = {1, 0, 0}};
  words_taken = (int64_t)(4 * HARK_TASK_COUNTERS) + 1;
  assert_failure(f->context, hark_task_make(f->context, &settings, &report), HARK_BAD_CONFIGURATION,
                 "training example 0 takes more than the 67108864 random numbers");
  assert_int_equal(hark_path_kind_of(path), HARK_PATH_NONE);
  settings.examples[HARK_SPLIT_TEST] = HARK_TASK_EXAMPLES + 1;
  assert_failure(f->context, hark_task_make(f->context, &settings, &report), HARK_BAD_CONFIGURATION, "--test: 1099511627777 examples");
  settings.examples[HARK_SPLIT_TEST] = 0;
  words_taken = 3;
  assert_fine(f->context, hark_task_make(f->context, &settings, &report));
  hark_text_free(&report);
}

/* ---- another program makes the folder meanwhile ---- */

static char occupied[TEST_PATH_BYTES];

static size_t occupy_folder(hark_task_order *order, unsigned char *out) {
  (void)order;
  (void)mkdir(occupied, 0777);
  (void)test_file_write_text(occupied, "theirs", "x");
  memcpy(out, "a\ta:0\n", 6);
  return 6;
}

/* The message names the folder that was requested, what the other one wrote stays, and nothing of ours is left. */
static void a_folder_that_appears_is_kept(void **state) {
  const task_place *const f = *state;
  const hark_task_generator generator = GENERATOR(occupy_folder);
  const hark_task_entry entry = {"occupied", 99, &generator, &hark_task_sequences_options};
  hark_sequence_values values = {0};
  hark_text report = hark_text_empty(f->context);
  hark_names names;
  (void)snprintf(occupied, sizeof occupied, "%s", test_path(f->folder, "occupied"));
  const hark_task_settings settings = {.entry = &entry, .values = &values, .folder = occupied, .seed = 1, .examples = {1, 0, 0}};
  assert_failure(f->context, hark_task_make(f->context, &settings, &report), HARK_BAD_CONFIGURATION, "occupied: is not empty");
  assert_null(strstr(hark_context_message(f->context), ".tmp-"));
  assert_int_equal(hark_path_kind_of(test_path(f->folder, "occupied/theirs")), HARK_PATH_FILE);
  assert_fine(f->context, hark_folder_list(f->context, f->folder, &names));
  assert_int_equal(names.count, 1);
  hark_names_free(f->context, &names);
  hark_text_free(&report);
}

/* ---- sequences ---- */

/* Symbols and targets (-1: none) of an example, numbered as the words of the file's first line. */
static int64_t read_sequence(const task_place *f, const hark_examples *e, int64_t index, int32_t *words, int32_t *targets) {
  const int64_t length = hark_examples_length(e, HARK_SPLIT_TRAINING, index, 0);
  assert_fine(f->context, hark_examples_read(f->context, e, HARK_SPLIT_TRAINING, index, 0, words));
  assert_fine(f->context, hark_examples_targets(f->context, e, HARK_SPLIT_TRAINING, index, targets, NULL));
  for (int64_t i = 0; i < length; i++) {
    words[i] -= HARK_TOKEN_RESERVED;
    targets[i] = targets[i] == HARK_TARGET_IGNORED ? -1 : targets[i] - HARK_TOKEN_RESERVED;
  }
  return length;
}

static void recall_targets_are_the_values(void **state) {
  const task_place *const f = *state;
  enum { LENGTH = 64, PAIRS = 7, QUERIES = 10, KEYS = 9, VALUES = 5, COUNT = 100 };
  for (int filler = 0; filler < 2; filler++) {
    const made_task t = {
        .name = "recall",
        .seed = 11,
        .examples = {COUNT, 1, 0},
        .options = {"length", "64", "pairs", "7", "queries", "10", "keys", "9", "values", "5", "filler", filler ? "random" : "blank"}};
    task_make(f, filler ? "random" : "blank", &t);
    hark_examples *e = task_open(f, filler ? "random" : "blank");
    int32_t words[LENGTH], targets[LENGTH];
    int64_t places[LENGTH] = {0};
    for (int64_t i = 0; i < COUNT; i++) {
      int32_t value[KEYS];
      int asked[KEYS] = {0}, queries = 0;
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      memset(value, -1, sizeof value);
      for (int p = 0; p < PAIRS; p++) {
        assert_true(words[2 * p] < KEYS && value[words[2 * p]] == -1 && words[2 * p + 1] >= KEYS && words[2 * p + 1] < KEYS + VALUES);
        assert_true(targets[2 * p] == -1 && targets[2 * p + 1] == -1);
        value[words[2 * p]] = words[2 * p + 1];
      }
      for (int at = 2 * PAIRS; at < LENGTH; at++) {
        if (targets[at] == -1) { /* a filler, never a key */
          assert_true(filler ? words[at] >= KEYS && words[at] < KEYS + VALUES : words[at] == KEYS + VALUES);
          continue;
        }
        assert_true(words[at] < KEYS);
        assert_int_equal(targets[at], value[words[at]]);
        asked[words[at]]++;
        queries++;
        places[at]++;
      }
      assert_int_equal(queries, QUERIES);
      for (int k = 0; k < KEYS; k++) assert_true(value[k] == -1 ? asked[k] == 0 : asked[k] == 1 || asked[k] == 2);
    }
    const double share = (double)QUERIES / (LENGTH - 2 * PAIRS); /* of the places after the pairs, each the same */
    for (int at = 2 * PAIRS; at < LENGTH; at++)
      task_assert_near((double)places[at], share * COUNT, sqrt(share * (1 - share) * COUNT), "queries at a place");
    hark_examples_close(f->context, &e);
  }
}

static void copy_targets_are_the_symbols(void **state) {
  const task_place *const f = *state;
  enum { LENGTH = 20, GAP = 3, COPIED = 8, SYMBOLS = 6, COUNT = 30 };
  for (int answer = 0; answer < 2; answer++) {
    const made_task t = {.name = "copy",
                         .seed = 2,
                         .examples = {COUNT, 0, 0},
                         .options = {"length", "20", "gap", "3", "symbols", "6", "answer", answer ? "blank" : "shown"}};
    task_make(f, answer ? "blank" : "shown", &t);
    hark_examples *e = task_open(f, answer ? "blank" : "shown");
    int32_t words[LENGTH], targets[LENGTH];
    for (int64_t i = 0; i < COUNT; i++) {
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      for (int at = 0; at < LENGTH; at++) {
        const int from_mark = at - (LENGTH - COPIED);
        assert_int_equal(targets[at], from_mark >= 0 ? words[from_mark] : -1);
        if (at < COPIED) assert_true(words[at] < SYMBOLS);
        if (at >= COPIED && from_mark < 0) assert_int_equal(words[at], SYMBOLS);
        if (from_mark == 0) assert_int_equal(words[at], SYMBOLS + 1);
        if (from_mark > 0) assert_int_equal(words[at], answer ? SYMBOLS : words[from_mark - 1]);
      }
    }
    hark_examples_close(f->context, &e);
  }
}

static void passkey_is_in_the_text(void **state) {
  const task_place *const f = *state;
  enum { LENGTH = 100, DIGITS = 4, COUNT = 200, FIXED = 4 + DIGITS + 4 + 8 + DIGITS - 1 };
  for (int answer = 0; answer < 2; answer++) {
    const made_task t = {.name = "passkey",
                         .seed = 4,
                         .examples = {COUNT, 0, 0},
                         .options = {"length", "100", "digits", "4", "answer", answer ? "blank" : "shown"}};
    task_make(f, answer ? "blank" : "shown", &t);
    hark_examples *e = task_open(f, answer ? "blank" : "shown");
    int32_t words[LENGTH], targets[LENGTH];
    double places = 0;
    for (int64_t i = 0; i < COUNT; i++) {
      int at = 0;
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      while (at < LENGTH && words[at] > 9) at++; /* digits are words 0 .. 9 and stand nowhere else */
      assert_true(at <= LENGTH - DIGITS);
      places += at - 4;
      for (int p = 0; p < LENGTH; p++) {
        const int digit = p - (LENGTH - DIGITS);
        assert_int_equal(targets[p], digit >= 0 ? words[at + digit] : -1);
        if (digit > 0) assert_int_equal(words[p], answer ? 10 : words[at + digit - 1]);
      }
    }
    const double spread = LENGTH - FIXED + 1; /* places are uniform over so many */
    task_assert_near(places / COUNT, (spread - 1) / 2, sqrt((spread * spread - 1) / 12 / COUNT), "mean place of the number");
    hark_examples_close(f->context, &e);
  }
}

static void every_chunk_has_the_needle_as_its_target(void **state) {
  const task_place *const f = *state;
  enum { LENGTH = 60, CHUNK = 5, PLAIN = 9, LABELS = 4, COUNT = 300 };
  for (int asked = 0; asked < 2; asked++) {
    const char *const name = asked ? "after" : "all";
    const made_task t = {.name = "needle",
                         .seed = 5,
                         .examples = {COUNT, 0, 0},
                         .options = {"length", "60", "chunk", "5", "plain", "9", "labels", "4", "asked", name}};
    task_make(f, name, &t);
    hark_examples *e = task_open(f, name);
    int32_t words[LENGTH], targets[LENGTH];
    int64_t labels[LABELS] = {0};
    double places = 0;
    for (int64_t i = 0; i < COUNT; i++) {
      int needle = -1;
      assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
      for (int at = 0; at < LENGTH; at++) {
        assert_true(words[at] < PLAIN + LABELS);
        if (words[at] < PLAIN) continue;
        assert_int_equal(needle, -1); /* there is one */
        needle = at;
      }
      assert_true(needle >= 0);
      for (int at = 0; at < LENGTH; at++)
        assert_int_equal(targets[at], at % CHUNK == CHUNK - 1 && (!asked || at >= needle) ? words[needle] : -1);
      labels[words[needle] - PLAIN]++;
      places += needle;
    }
    task_assert_near(places / COUNT, (LENGTH - 1) / 2.0, sqrt((LENGTH * LENGTH - 1) / 12.0 / COUNT), "mean place of the needle");
    for (int k = 0; k < LABELS; k++)
      task_assert_near((double)labels[k], COUNT / (double)LABELS, sqrt(COUNT * (LABELS - 1.0)) / LABELS, "needles of a label");
    hark_examples_close(f->context, &e);
  }
}

static void maps_are_followed(void **state) {
  const task_place *const f = *state;
  enum { MAP = 5, CHUNK = MAP + 1, CHUNKS = 10, LENGTH = CHUNKS * CHUNK, HOPS = 4, HARD = 3, COUNT = 300 };
  const made_task t = {
      .name = "maps", .seed = 6, .examples = {COUNT, 0, 0}, .options = {"length", "60", "map", "5", "hops", "4", "hard", "0.3"}};
  task_make(f, "maps", &t);
  hark_examples *e = task_open(f, "maps");
  int32_t words[LENGTH], targets[LENGTH];
  int64_t hard_at[CHUNKS] = {0};
  for (int64_t i = 0; i < COUNT; i++) {
    int hard = 0;
    assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
    for (int k = 0; k < CHUNKS; k++) {
      const int32_t *const chunk = words + k * CHUNK, *const asked = targets + k * CHUNK, *const map = chunk + 1;
      assert_true(chunk[0] == MAP || chunk[0] == MAP + 1);
      for (int j = 0; j < MAP; j++) assert_true(map[j] < MAP && asked[j] == -1);
      assert_int_equal(asked[MAP], chunk[0] == MAP ? map[0] : map[map[map[map[0]]]]); /* HOPS */
      hard += chunk[0] == MAP + 1;
      hard_at[k] += chunk[0] == MAP + 1;
    }
    assert_int_equal(hard, HARD);
  }
  const double share = (double)HARD / CHUNKS;
  for (int k = 0; k < CHUNKS; k++)
    task_assert_near((double)hard_at[k], share * COUNT, sqrt(share * (1 - share) * COUNT), "hard chunks at a place");
  hark_examples_close(f->context, &e);
}

/* A word determines its topic; a blank has that of the words around it, which have one topic. The first and the last word are not blank. */
static void runs_have_one_topic(void **state) {
  const task_place *const f = *state;
  enum { LENGTH = 70, TOPICS = 5, OF_TOPIC = 2, BLANK = TOPICS * OF_TOPIC, SHORTEST = 2, LONGEST = 6, COUNT = 300 };
  const made_task t = {.name = "runs",
                       .seed = 7,
                       .examples = {COUNT, 0, 0},
                       .options = {"length", "70", "labels", "5", "topic-words", "2", "blanks", "0.4", "shortest", "2", "longest", "6"}};
  task_make(f, "runs", &t);
  hark_examples *e = task_open(f, "runs");
  int32_t words[LENGTH], targets[LENGTH];
  int64_t lengths[LONGEST + 1] = {0}, runs = 0, blanks = 0, within = 0;
  for (int64_t i = 0; i < COUNT; i++) {
    int before[LENGTH], after[LENGTH]; /* topics of the nearest words */
    assert_int_equal(read_sequence(f, e, i, words, targets), LENGTH);
    for (int at = 0; at < LENGTH; at++) before[at] = words[at] < BLANK ? words[at] / OF_TOPIC : at > 0 ? before[at - 1] : -1;
    for (int at = LENGTH - 1; at >= 0; at--) after[at] = words[at] < BLANK ? words[at] / OF_TOPIC : at + 1 < LENGTH ? after[at + 1] : -1;
    for (int at = 0; at < LENGTH; at++) {
      assert_true(words[at] <= BLANK);
      assert_true(before[at] >= 0 && before[at] == after[at]);
      assert_int_equal(targets[at], BLANK + 1 + before[at]);
    }
    for (int begin = 0, end; begin < LENGTH; begin = end) {
      for (end = begin; end < LENGTH && before[end] == before[begin]; end++)
        if (end > begin && end + 1 < LENGTH && before[end + 1] == before[begin]) {
          within++;
          blanks += words[end] == BLANK;
        }
      assert_true(end - begin <= LONGEST && (end - begin >= SHORTEST || end == LENGTH));
      if (begin > LENGTH - LONGEST) continue; /* may have been cut */
      lengths[end - begin]++;
      runs++;
    }
  }
  const double share = 1.0 / (LONGEST - SHORTEST + 1);
  for (int n = SHORTEST; n <= LONGEST; n++)
    task_assert_near((double)lengths[n], share * (double)runs, sqrt(share * (1 - share) * (double)runs), "runs of a length");
  task_assert_near((double)blanks, 0.4 * (double)within, sqrt(0.4 * 0.6 * (double)within), "blanks within runs");
  hark_examples_close(f->context, &e);
}

/* What an option leaves open is in task.json as it was settled, and with it the sizes of the laboratory. */
static void lengths_by_task(void **state) {
  const task_place *const f = *state;
  static const struct {
    const char *name;
    int length;
  } tasks[] = {{"recall", 512}, {"copy", 512}, {"passkey", 512}, {"needle", 512}, {"maps", 288}, {"runs", 128}};
  for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) {
    char expected[NAMES_BYTES];
    const made_task t = {.name = tasks[i].name, .seed = 1, .examples = {1, 0, 0}};
    task_make(f, tasks[i].name, &t);
    hark_examples *e = task_open(f, tasks[i].name);
    assert_int_equal(hark_examples_length(e, HARK_SPLIT_TRAINING, 0, 0), tasks[i].length);
    hark_examples_close(f->context, &e);
    (void)snprintf(expected, sizeof expected, "\"length\": %d", tasks[i].length);
    char *const json = task_file(f, tasks[i].name, "task.json");
    assert_non_null(strstr(json, expected));
    free(json);
  }
}

/* Of 24 different examples there are, 12 drawn at random would hardly be all different. */
static void no_example_is_there_twice(void **state) {
  const task_place *const f = *state;
  enum { COUNT = 12, LENGTH = 3 };
  const made_task t = {.name = "needle",
                       .seed = 3,
                       .examples = {COUNT, 0, 0},
                       .options = {"length", "3", "chunk", "3", "plain", "2", "labels", "2"}}; /* 3 places, 2 labels, 4 pairs of others */
  task_make(f, "few", &t);
  hark_examples *e = task_open(f, "few");
  int32_t a[LENGTH], b[LENGTH], targets[LENGTH];
  for (int64_t i = 0; i < COUNT; i++)
    for (int64_t j = 0; j < i; j++) {
      (void)read_sequence(f, e, i, a, targets);
      (void)read_sequence(f, e, j, b, targets);
      assert_memory_not_equal(a, b, sizeof a);
    }
  hark_examples_close(f->context, &e);
}

/* ---- all of them ---- */

static const made_task small_tasks[] = {
    {.name = "listops", .seed = 1, .examples = {40, 8, 8}, .options = {"length-above", "10", "length-below", "60"}},
    {.name = "pathfinder", .seed = 1, .examples = {24, 6, 6}},
    {.name = "recall", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "60"}},
    {.name = "copy", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "21"}},
    {.name = "passkey", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "90"}},
    {.name = "latent", .seed = 1, .examples = {40, 8, 8}},
    {.name = "regression", .seed = 1, .examples = {40, 8, 8}, .options = {"tokens", "9"}},
    {.name = "needle", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "48"}},
    {.name = "maps", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "45"}},
    {.name = "runs", .seed = 1, .examples = {40, 8, 8}, .options = {"length", "41"}},
    {.name = "periodic-text", .seed = 1, .examples = {40, 8, 8}, .options = {"tokens", "33"}},
    {.name = "regression-tasks",
     .seed = 1,
     .examples = {40, 8, 8},
     .options = {"tokens", "9", "covariates", "3", "function", "mixed", "inputs", "varied", "label_classes", "3"}},
};
enum { TASKS = sizeof small_tasks / sizeof small_tasks[0] };

static bool is_text(const made_task *t) { return strcmp(hark_task_find(t->name)->generator->format, HARK_TASK_TEXT) == 0; }

static void assert_texts(const task_place *f, const made_task *t, const char *name, const char *more, const char *other) {
  char *const training = task_file(f, name, "training.txt"), *const validation = task_file(f, name, "validation.txt"),
              *const test = task_file(f, name, "test.txt"), *const longer = task_file(f, more, "training.txt"),
              *const another = task_file(f, other, "training.txt");
  const size_t document = strlen(training) / (size_t)t->examples[HARK_SPLIT_TRAINING];
  assert_int_equal(strlen(validation), document * (size_t)t->examples[HARK_SPLIT_VALIDATION]);
  assert_int_equal(strlen(test), document * (size_t)t->examples[HARK_SPLIT_TEST]);
  assert_true(strlen(longer) > strlen(training));
  assert_memory_equal(longer, training, strlen(training));
  assert_memory_not_equal(another, training, document);
  assert_memory_not_equal(validation, training, document);
  assert_memory_not_equal(validation, test, document);
  free(training);
  free(validation);
  free(test);
  free(longer);
  free(another);
}

static uint64_t sum_of(const task_place *f, const char *name) {
  hark_examples *e = task_open(f, name);
  const uint64_t sum = hark_examples_checksum(e);
  hark_examples_close(f->context, &e);
  return sum;
}

/* The tokens of an example, or for vectors the bits of their numbers. Returns how many. */
static int64_t read_any(const task_place *f, const hark_examples *e, hark_split split, int64_t i, int32_t *out) {
  const int64_t length = hark_examples_length(e, split, i, 0), features = hark_examples_features(e);
  float numbers[2048], responses[4] = {0}; /* those of tables are among the numbers */
  if (features == 0) {
    assert_fine(f->context, hark_examples_read(f->context, e, split, i, 0, out));
    return length;
  }
  assert_fine(f->context, hark_examples_numbers(f->context, e, split, i, numbers, responses));
  memcpy(out, numbers, (size_t)(length * features) * sizeof *out);
  memcpy(out + length * features, responses, (size_t)hark_examples_responses(e) * sizeof *out);
  return length * features + hark_examples_responses(e);
}

/* The first `count` examples of two folders' training are the same. */
static void assert_same_front(const task_place *f, const char *a_name, const char *b_name, int64_t count) {
  hark_examples *a = task_open(f, a_name), *b = task_open(f, b_name);
  int32_t x[2048], y[2048];
  for (int64_t i = 0; i < count; i++) {
    const int64_t length = hark_examples_length(a, HARK_SPLIT_TRAINING, i, 0);
    assert_int_equal(length, hark_examples_length(b, HARK_SPLIT_TRAINING, i, 0));
    const int64_t numbers = read_any(f, a, HARK_SPLIT_TRAINING, i, x);
    assert_int_equal(numbers, read_any(f, b, HARK_SPLIT_TRAINING, i, y));
    assert_memory_equal(x, y, (size_t)numbers * sizeof *x);
    assert_int_equal(hark_examples_label(a, HARK_SPLIT_TRAINING, i), hark_examples_label(b, HARK_SPLIT_TRAINING, i));
    assert_fine(f->context, hark_examples_targets(f->context, a, HARK_SPLIT_TRAINING, i, x, NULL));
    assert_fine(f->context, hark_examples_targets(f->context, b, HARK_SPLIT_TRAINING, i, y, NULL));
    assert_memory_equal(x, y, (size_t)length * sizeof *x);
  }
  hark_examples_close(f->context, &a);
  hark_examples_close(f->context, &b);
}

static void examples_depend_on_seed_split_and_number(void **state) {
  const task_place *const f = *state;
  const hark_context_options several = {.struct_size = sizeof several, .threads = 3, .backend = "reference"};
  hark_context *threads;
  assert_int_equal(hark_context_create(&several, &threads), HARK_OK);
  int covered = 0;
  for (int i = 0; i < TASKS; i++) {
    char name[NAMES_BYTES], again[NAMES_BYTES], other[NAMES_BYTES], more[NAMES_BYTES];
    snprintf(name, sizeof name, "%s-a", small_tasks[i].name);
    snprintf(again, sizeof again, "%s-b", small_tasks[i].name);
    snprintf(other, sizeof other, "%s-c", small_tasks[i].name);
    snprintf(more, sizeof more, "%s-d", small_tasks[i].name);
    made_task t = small_tasks[i];
    task_make(f, name, &t);
    assert_fine(threads, task_make_in(threads, test_path(f->folder, again), &t));
    char *const first = task_file(f, name, "task.json"), *const second = task_file(f, again, "task.json");
    assert_string_equal(first, second); /* with the SHA-256 of all files */
    free(first);
    free(second);
    t.examples[HARK_SPLIT_TRAINING] += 9;
    t.examples[HARK_SPLIT_TEST] = 0;
    task_make(f, more, &t);
    t = small_tasks[i];
    t.seed = 2;
    task_make(f, other, &t);
    covered++;
    if (is_text(&t)) {
      assert_texts(f, &t, name, more, other);
      continue;
    }
    assert_same_front(f, name, more, small_tasks[i].examples[HARK_SPLIT_TRAINING]);
    assert_int_not_equal(sum_of(f, name), sum_of(f, other));
    hark_examples *e = task_open(f, name); /* a split is none of the others' */
    for (int split = 0; split < HARK_SPLIT_ALL; split++)
      assert_int_equal(hark_examples_count(e, (hark_split)split).examples, small_tasks[i].examples[split]);
    int32_t x[2048] = {0}, y[2048] = {0};
    (void)read_any(f, e, HARK_SPLIT_VALIDATION, 0, x);
    (void)read_any(f, e, HARK_SPLIT_TEST, 0, y);
    assert_memory_not_equal(x, y, sizeof x);
    hark_examples_close(f->context, &e);
  }
  assert_int_equal(covered, hark_task_entry_count); /* a new generator needs a row above */
  hark_context_destroy(&threads);
}

/* The losses in task.json are those of the files' documents. */
static void texts_have_their_optimal_loss(void **state) {
  const task_place *const f = *state;
  enum { TOKENS = 40, LAG = 3, SYMBOLS = 5, DOCUMENTS = 7 };
  const made_task t = {.name = "periodic-text",
                       .seed = 9,
                       .examples = {DOCUMENTS, 0, 0},
                       .options = {"tokens", "40", "lag", "3", "alphabet", "5", "noise", "0.5"}};
  task_make(f, "text", &t);
  char *const text = task_file(f, "text", "training.txt"), *const json = task_file(f, "text", "task.json");
  double nats = 0;
  assert_int_equal(strlen(text), DOCUMENTS * (TOKENS + 1));
  for (int d = 0; d < DOCUMENTS; d++) {
    const char *const line = text + (ptrdiff_t)d * (TOKENS + 1);
    assert_int_equal(line[TOKENS], '\n');
    for (int i = 0; i < TOKENS; i++) {
      assert_true(line[i] >= 'a' && line[i] < 'a' + SYMBOLS);
      nats -= log(i < LAG ? 0.2 : line[i] == line[i - LAG] ? 0.6 : 0.1); /* .5 + .5 / 5 and .5 / 5 */
    }
  }
  const char *const loss = strstr(json, "\"optimal_loss\": "), *const rate = strstr(json, "\"entropy_rate\": ");
  assert_true(loss != NULL && rate != NULL);
  assert_true(fabs(strtod(loss + strlen("\"optimal_loss\": "), NULL) - nats / (DOCUMENTS * (TOKENS + 1))) < 1e-12);
  assert_true(fabs(strtod(rate + strlen("\"entropy_rate\": "), NULL) + 0.6 * log(0.6) + 0.4 * log(0.1)) < 1e-12);
  const char *const path = test_path(f->folder, "text");
  const hark_examples_settings settings = {.paths = &path, .path_count = 1};
  hark_examples *e;
  assert_failure(f->context, hark_examples_open(f->context, &settings, &e), HARK_BAD_CONFIGURATION, "its files are texts");
  free(text);
  free(json);
}

static void what_cannot_be_made(void **state) {
  const task_place *const f = *state;
  static const struct {
    made_task task;
    const char *message;
  } wrong[] = {
      {{.name = "listops", .examples = {1, 0, 0}, .options = {"length-above", "50", "length-below", "51"}}, "--length-below: 51 leaves"},
      {{.name = "listops", .examples = {1, 0, 0}, .options = {"length-above", "900000", "length-below", "1000000", "depth", "2"}},
       "no training example 0 was found"},
      {{.name = "listops", .examples = {0, 1, 0}}, "--training: at least one"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"separation", "1"}}, "--separation: 1, expected at least 1.5"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"marker", "1"}}, "--marker: radius 1, expected 1.25 to 8"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"contour", "64", "dash", "20"}}, "no training example 0 was found"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"margin", "3", "largest-margin", "2"}},
       "--largest-margin: 2, expected at least --margin, which is 3"},
      {{.name = "pathfinder", .examples = {1, 0, 0}, .options = {"seed-distance", "16"}},
       "--seed-distance: 16, expected at most 15, half of the image"},
      {{.name = "recall", .examples = {1, 0, 0}, .options = {"pairs", "65"}}, "--pairs: 65 pairs take as many keys, --keys has 64"},
      {{.name = "recall", .examples = {1, 0, 0}, .options = {"length", "47"}}, "--length: 47 words, 16 pairs and 16 queries take 48"},
      {{.name = "copy", .examples = {1, 0, 0}, .options = {"length", "8", "gap", "7"}}, "--gap: 7 blanks leave no symbol of 8"},
      {{.name = "passkey", .examples = {1, 0, 0}, .options = {"length", "24"}},
       "--length: 24 words, the number and the question alone take 25"},
      {{.name = "needle", .examples = {1, 0, 0}, .options = {"length", "40"}},
       "--length: 40 words, expected a whole number of chunks of 16"},
      {{.name = "needle", .examples = {25, 0, 0}, .options = {"length", "3", "chunk", "3", "plain", "2", "labels", "2"}},
       "no training example 24 was found that differs from the 24 before"},
      {{.name = "maps", .examples = {1, 0, 0}, .options = {"length", "40"}}, "--length: 40 words, expected a whole number of chunks of 9"},
      {{.name = "periodic-text", .examples = {1, 0, 0}, .options = {"tokens", "16"}}, "--lag: 16, a document of 16 tokens has no such"},
      {{.name = "periodic-text", .examples = {1, 0, 0}, .options = {"kind", "period", "period", "2000"}},
       "--period: 2000, a document of 1024 tokens has no such"},
      {{.name = "periodic-text", .examples = {1, 0, 0}, .options = {"noise", "1.5"}}, "--noise: 1.5, expected a probability"},
      {{.name = "periodic-text", .examples = {1, 0, 0}, .options = {"kind", "content", "alphabet", "3"}},
       "--alphabet: 3 symbols, a text of kind content has at least 4"},
      {{.name = "periodic-text", .examples = {1, 0, 0}, .options = {"kind", "none", "alphabet", "2"}},
       "--alphabet: 2 symbols, a text of kind none has at least 3"},
      {{.name = "runs", .examples = {1, 0, 0}, .options = {"shortest", "14"}}, "--shortest: runs of at least 14 words, --longest is 13"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    assert_failure(f->context, task_make_in(f->context, test_path(f->folder, "none"), &wrong[i].task), HARK_BAD_CONFIGURATION,
                   wrong[i].message);
    hark_names names;
    assert_fine(f->context, hark_folder_list(f->context, f->folder, &names));
    assert_int_equal(names.count, 0);
    hark_names_free(f->context, &names);
  }
}

static void folders_are_whole_or_not_there(void **state) {
  const task_place *const f = *state;
  const made_task t = {.name = "copy", .seed = 1, .examples = {4, 0, 2}, .options = {"length", "10"}};
  task_make(f, "new/below", &t);
  hark_names names;
  assert_fine(f->context, hark_folder_list(f->context, test_path(f->folder, "new"), &names));
  assert_int_equal(names.count, 1); /* the folder, nothing beside it */
  hark_names_free(f->context, &names);
  assert_fine(f->context, hark_folder_list(f->context, test_path(f->folder, "new/below"), &names));
  assert_int_equal(names.count, 3); /* no validation.tsv */
  hark_names_free(f->context, &names);
  assert_failure(f->context, task_make_in(f->context, test_path(f->folder, "new/below/"), &t), HARK_BAD_CONFIGURATION,
                 "below: is not empty");
  (void)test_file_write_text(f->folder, "file", "x");
  assert_failure(f->context, task_make_in(f->context, test_path(f->folder, "file"), &t), HARK_BAD_CONFIGURATION, "file: is not a folder");
  assert_failure(f->context, task_make_in(f->context, "", &t), HARK_BAD_CONFIGURATION, "no folder");
  const made_task vast = {.name = "copy", .seed = 1, .examples = {(int64_t)1 << 40, 0, 0}};
  assert_int_equal(mkdir(test_path(f->folder, "alone"), 0777), 0);
  assert_failure(f->context, task_make_in(f->context, test_path(f->folder, "alone/vast"), &vast), HARK_IO_ERROR, "MiB are free");
  assert_fine(f->context, hark_folder_list(f->context, test_path(f->folder, "alone"), &names));
  assert_int_equal(names.count, 0);
  hark_names_free(f->context, &names);
  assert_int_equal(mkdir(test_path(f->folder, "empty"), 0777), 0);
  task_make(f, "empty/", &t);
  assert_int_equal(hark_path_kind_of(test_path(f->folder, "empty/task.json")), HARK_PATH_FILE);
}

/* Random numbers below a count: all of them, equally often. */
static void numbers_are_uniform(void **state) {
  (void)state;
  enum { DRAWS = 70000, COUNT = 7 };
  hark_task_random random = hark_task_random_begin(1, 1, HARK_SPLIT_TEST, 3, 0);
  int64_t seen[COUNT] = {0};
  double sum = 0;
  for (int i = 0; i < DRAWS; i++) {
    const int32_t n = hark_task_random_below(&random, COUNT);
    assert_true(n >= 0 && n < COUNT);
    seen[n]++;
    const double u = hark_task_random_uniform(&random);
    assert_true(u >= 0 && u < 1);
    sum += u;
  }
  for (int i = 0; i < COUNT; i++) task_assert_near((double)seen[i], DRAWS / (double)COUNT, sqrt(DRAWS * 6.0 / 49), "draws of a number");
  task_assert_near(sum / DRAWS, 0.5, sqrt(1.0 / 12 / DRAWS), "mean of uniform numbers");
}

int main(void) {
  const struct CMUnitTest tests[] = {

      TASK_TEST(examples_keep_to_their_random_numbers),
      TASK_TEST(a_folder_that_appears_is_kept),
      TASK_TEST(recall_targets_are_the_values),
      TASK_TEST(copy_targets_are_the_symbols),
      TASK_TEST(passkey_is_in_the_text),
      TASK_TEST(every_chunk_has_the_needle_as_its_target),
      TASK_TEST(maps_are_followed),
      TASK_TEST(runs_have_one_topic),
      TASK_TEST(lengths_by_task),
      TASK_TEST(no_example_is_there_twice),
      TASK_TEST(examples_depend_on_seed_split_and_number),
      TASK_TEST(texts_have_their_optimal_loss),
      TASK_TEST(what_cannot_be_made),
      TASK_TEST(folders_are_whole_or_not_there),
      TASK_TEST(numbers_are_uniform)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
