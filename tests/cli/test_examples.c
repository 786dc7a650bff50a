/* test_examples.c - the command on labelled examples: train, eval, info, sweep, bench, and what is refused; every recipe is a
 * configuration. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common.h"
#include "io/files.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

#define RUN                                                                                                                                \
  "--format text --architecture encoder --layers 1 --width 16 --heads 2 --context 12 --batch 8 --steps 40 --log-every 10 --threads 1 "
#define STEP "--format text --architecture encoder --layers 1 --width 16 --heads 2 --context 12 --batch 8 --threads 1 "
#define EXAMPLES 60

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* Texts whose class is their first letter's, three of them: a b c. */
static int begin(void **state) {
  (void)state;
  char lines[EXAMPLES * 32] = "", two[EXAMPLES * 32] = "";
  command_place_open(folder);
  for (int i = 0; i < EXAMPLES; i++) {
    char *const at = lines + strlen(lines);
    (void)snprintf(at, 32, "%d\t%c%.*s\n", i % 3, "abc"[i % 3], i % 9, &"bcabcabcabcabc"[i % 4]);
    if (i % 3 < 2) (void)snprintf(two + strlen(two), 32, "%s", at);
  }
  test_file_write_text(folder, "texts.tsv", lines);
  test_file_write_text(folder, "two.tsv", two);
  test_file_write_text(folder, "one.tsv", "1\tabc\n1\tbca\n1\tcab\n");
  test_file_write_text(folder, "bad.tsv", "0\tabc\n7\tabc\n");
  test_file_write_text(folder, "long.tsv", "0\tabc\n1\tabcabcabcabcabc\n");
  test_file_write_text(folder, "words.tsv", "Words\ta b c\na b c\t1:c\nb a\t0:a\nc c a b\t0:a 3:b\n");
  expect("train --out run --classes 3 --data texts.tsv --validation-fraction 0.25 " RUN, HARK_EXIT_DONE, "step 40", "");
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

/* The table's sums are the counts of the line, and its rows those of the file. */
static void confusions_add_up(void **state) {
  (void)state;
  expect("eval run --json --data texts.tsv --threads 1", HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output), *const table = json_object_get(line, "confusion");
  double sum = 0, diagonal = 0;
  assert_int_equal(json_array_size(table), 3);
  for (size_t i = 0; i < 3; i++) {
    double row = 0;
    assert_int_equal(json_array_size(json_array_get(table, i)), 3);
    for (size_t k = 0; k < 3; k++) row += json_number_value(json_array_get(json_array_get(table, i), k));
    assert_int_equal(row, EXAMPLES / 3);
    sum += row;
    diagonal += json_number_value(json_array_get(json_array_get(table, i), i));
  }
  assert_int_equal(sum, EXAMPLES);
  assert_int_equal(command_number(line, "examples"), EXAMPLES);
  assert_int_equal(command_number(line, "right"), diagonal);
  assert_true(fabs(command_number(line, "accuracy") - diagonal / EXAMPLES) < 1e-12);
  assert_true(fabs(command_number(line, "majority") - 1.0 / 3) < 1e-12);
  assert_int_equal(json_array_size(json_object_get(line, "classes")), 3);
  json_decref(line);
  expect("eval run --threads 1", HARK_EXIT_DONE, "predicted:", "");
}

/* The run's own validation examples: the last line of metrics, to the bit. */
static void eval_is_the_validation_of_training(void **state) {
  (void)state;
  expect("eval run --json --checkpoint last --threads 1", HARK_EXIT_DONE, "\"part\": \"validation\"", "");
  json_t *line = command_json(&output);
  const double loss = command_number(line, "loss"), accuracy = command_number(line, "accuracy");
  json_decref(line);
  expect("info run --json", HARK_EXIT_DONE, "", "");
  line = command_json(&output);
  assert_true(loss == command_number(line, "val/loss"));
  assert_true(accuracy == command_number(line, "val/accuracy"));
  assert_true(command_number(line, "best_val/accuracy") >= 0);
  json_decref(line);
  expect("info run", HARK_EXIT_DONE, "validation accuracy", "");
}

static void other_attention_and_parts(void **state) {
  (void)state;
  expect("eval run --structure window --window 3 --json --threads 1", HARK_EXIT_DONE, "model.attention.window", "");
  expect("eval run --part training --threads 1", HARK_EXIT_DONE, "training accuracy", "");
  expect("train --out limited --classes 3 --data texts.tsv --example-limit 7 " RUN, HARK_EXIT_DONE, "step 40", "");
  expect("eval limited --part training --json --threads 1", HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output), *const table = json_object_get(line, "confusion");
  double most = 0;
  for (size_t i = 0; i < 3; i++) {
    double row = 0;
    for (size_t k = 0; k < 3; k++) row += json_number_value(json_array_get(json_array_get(table, i), k));
    most = fmax(most, row);
  }
  assert_int_equal(command_number(line, "examples"), 7);
  assert_true(fabs(command_number(line, "majority") - most / 7) < 1e-12); /* of those seven */
  json_decref(line);
}

/* One class is too little to learn from, and enough to be measured. */
static void one_class_is_measured(void **state) {
  (void)state;
  expect("eval run --json --data one.tsv --threads 1", HARK_EXIT_DONE, "\"part\": \"data\"", "");
  json_t *const line = command_json(&output);
  assert_int_equal(command_number(line, "examples"), 3);
  assert_true(command_number(line, "majority") == 1);
  json_decref(line);
  expect("eval run --part test --data one.tsv --threads 1", HARK_EXIT_DONE, "data accuracy", "");
  expect("train --classes 3 --data one.tsv --out nothing " RUN, HARK_EXIT_BAD_INPUT, "", "expected at least two classes");
  expect(
      "train --classes 3 --data one.tsv --out hidden --architecture masked_encoder --format text --layers 1 --width 8 --heads 1 "
      "--context 12 --batch 2 --steps 1 --threads 1",
      HARK_EXIT_DONE, "step 1", "");
}

/* A folder has its splits, and no other stands for one that is not there. */
static void a_folder_has_its_parts(void **state) {
  (void)state;
  assert_int_equal(mkdir(test_path(folder, "task"), 0700), 0);
  char *const texts = test_file_text(folder, "texts.tsv");
  test_file_write_text(folder, "task/texts.tsv", texts);
  free(texts);
  test_file_write_text(folder, "task/task.json",
                       "{\"format_version\": 1, \"format\": \"text\", \"files\": {\"training\": {\"name\": \"texts.tsv\"}}}");
  expect("eval run --data task --part test", HARK_EXIT_USAGE, "", "task: has no test examples");
  assert_int_equal(test_line_count(output.err), 1);
  expect("eval run --data task", HARK_EXIT_USAGE, "", "task: has no validation examples");
  expect("eval run --data task --part training --threads 1", HARK_EXIT_DONE, "training accuracy", "");
}

/* Tables of classes: on a terminal, in JSON alone, not at all. */
static void many_classes(void **state) {
  (void)state;
  static const struct {
    int classes;
    bool table;
    const char *reported;
  } cases[] = {{30, true, "only in --json"}, {1025, false, "confusion matrix: not computed for this number of classes"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[512];
    (void)snprintf(words, sizeof words,
                   "train --out many-%d --classes %d --data texts.tsv --format text --architecture encoder --layers 1 --width 8 --heads 1 "
                   "--context 12 --batch 8 --steps 1 --threads 1",
                   cases[i].classes, cases[i].classes);
    expect(words, HARK_EXIT_DONE, "", "");
    (void)snprintf(words, sizeof words, "eval many-%d --data texts.tsv --threads 1", cases[i].classes);
    expect(words, HARK_EXIT_DONE, cases[i].reported, "");
    strcat(words, " --json");
    expect(words, HARK_EXIT_DONE, "", "");
    json_t *const line = command_json(&output);
    assert_true(fabs(command_number(line, "majority") - 1.0 / 3) < 1e-12);
    assert_int_equal(json_array_size(json_object_get(line, "classes")), cases[i].classes);
    assert_int_equal(json_array_size(json_object_get(line, "confusion")), cases[i].table ? cases[i].classes : 0);
    json_decref(line);
  }
}

static void one_line_says_what_is_wrong(void **state) {
  (void)state;
  static const struct {
    const char *words;
    int code;
    const char *message;
  } cases[] = {
      {"eval run --part test", HARK_EXIT_USAGE, "there are no test examples"},
      {"eval run --context 8", HARK_EXIT_USAGE, "--context: has no effect here, it needs --format corpus (currently text)"},
      {"eval run --data two.tsv --classes 2", HARK_EXIT_BAD_INPUT, "vocabulary.json"},
      {"eval run --data long.tsv", HARK_EXIT_USAGE, "more tokens than model.context, 12: the first is number "},
      {"eval run --data bad.tsv", HARK_EXIT_BAD_INPUT, "bad.tsv"},
      {"eval run --data words.tsv --format sequences --classes 0", HARK_EXIT_BAD_INPUT, "vocabulary.json"},
      {"eval run --data missing.tsv", HARK_EXIT_BAD_INPUT, "missing.tsv"},
      {"generate run -p abc", HARK_EXIT_USAGE, "labelled examples"},
      {"train --architecture encoder --data texts.tsv --out nothing", HARK_EXIT_USAGE, "an encoder predicts classes of examples"},
      {"train --format text --tokens 5000 --data texts.tsv --out nothing", HARK_EXIT_USAGE, "examples differ in length"},
      {"train --test texts.tsv --data texts.tsv --out nothing", HARK_EXIT_USAGE,
       "--test: has no effect here, it needs --format other than corpus (currently corpus)"},
      {"train --format text --length-limit 99 --context 12 --data texts.tsv --out nothing", HARK_EXIT_USAGE, "length_limit 99"},
      {"train --data texts.tsv --out nothing --classes 3 --forget-gate " RUN, HARK_EXIT_USAGE,
       "model.attention.forget_gate needs model.architecture decoder"},
      {"train --data texts.tsv --out nothing --attention-width 7 " RUN, HARK_EXIT_USAGE,
       "model.attention_width 7 is not divisible by model.heads 2"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    expect(cases[i].words, cases[i].code, "", cases[i].message);
    assert_string_equal(output.out, "");
  }
}

/* A run that could not begin leaves no folder, whatever it should have been trained on; a folder that was there stays. */
static void what_never_began_leaves_no_folder(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "train --data missing.txt --steps 1 " COMMAND_TINY,
      "train --data missing.tsv " RUN,
      "train --data bad.tsv " RUN,
      "train --data long.tsv " RUN,
      "train --data words.tsv " RUN " --format sequences",
      "train --data text.txt --steps 1 --init-from run " COMMAND_TINY,
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, "%s --out nothing", wrong[i]);
    test_command_run(folder, "", words, &output);
    assert_int_not_equal(output.code, HARK_EXIT_DONE);
    if (hark_path_kind_of(test_path(folder, "nothing")) != HARK_PATH_NONE) fail_msg("%s: the folder is there", words);
  }
  expect("train --data missing.txt --out . --steps 1", HARK_EXIT_BAD_INPUT, "", "missing.txt");
  assert_int_equal(hark_path_kind_of(test_path(folder, "text.txt")), HARK_PATH_FILE);
}

static void sweeps_and_steps(void **state) {
  (void)state;
  test_file_write_text(
      folder, "plan.yaml",
      "out: swept\nsettings: {data.paths: texts.tsv, data.format: text, data.classes: 3, model.architecture: encoder, "
      "model.layers: 1, model.width: 16, model.heads: 2, model.context: 12, train.steps: 2, train.batch: 8, run.threads: 1}\n"
      "variants:\n  dense: {model.attention.structure: dense}\n  window: {model.attention.structure: window}\n");
  expect("sweep plan.yaml", HARK_EXIT_DONE, "| window |", "");
  expect("sweep plan.yaml --metric val/accuracy --table", HARK_EXIT_DONE, "val/accuracy", "");
  expect("sweep plan.yaml --metric val/accuracy --table --json", HARK_EXIT_DONE, "\"better\": \"more\"", "");
  expect("bench step --steps 1 --json " STEP, HARK_EXIT_DONE, "\"tokens_per_second\"", "");
  expect("bench step --steps 1 --format pairs --architecture encoder --layers 1 --width 16 --heads 2 --context 12 --batch 2 --threads 1",
         HARK_EXIT_DONE, "tokens/s", "");
}

/* A warm start takes the blocks and begins a head of its own. */
static void warm_starts_may_begin_a_new_head(void **state) {
  (void)state;
  expect(
      "train --init-from run --out warm --data two.tsv --classes 2 --format text --steps 1 --allow-missing head.weight --allow-missing "
      "head.bias --batch 4 --threads 1",
      HARK_EXIT_DONE, "step 1", "2 of another shape");
}

static double reported_accuracy(const test_output *report) {
  json_t *const line = command_json(report);
  const double accuracy = command_number(line, "val/accuracy");
  json_decref(line);
  return accuracy;
}

/* A text that fills a part of a window is measured as in a window of just its length, whose masks are the same. */
static void the_end_of_a_text_sees_no_padding(void) {
  static const char *const commands[] = {"eval masked --data short.txt --json --threads 1",
                                         "eval masked --data short.txt --context 21 --json --threads 1"};
  double losses[2], targets[2];
  test_file_write_text(folder, "short.txt", "the quick brown fox ju"); /* 21 inputs; the run's windows have 32 */
  for (int i = 0; i < 2; i++) {
    expect(commands[i], HARK_EXIT_DONE, "", "");
    json_t *const line = command_json(&output);
    losses[i] = command_number(line, "loss");
    targets[i] = command_number(line, "targets");
    json_decref(line);
  }
  assert_true(targets[0] > 0 && targets[0] == targets[1]);
  assert_true(fabs(losses[0] - losses[1]) <= 1e-6 * losses[0]);
}

/* An encoder that guessed hidden bytes of a text, then one for classes that begins with its blocks, which stay as they are. */
static void hidden_tokens_come_first(void **state) {
  (void)state;
  expect(
      "train --architecture masked_encoder --data text.txt --tokenizer bytes --validation-fraction 0.05 --out masked --layers 1 --width 32 "
      "--heads 2 --context 32 --batch 8 --steps 300 --lr 5e-3 --warmup 5 --positions rotary --threads 1 --evaluate-every 0",
      HARK_EXIT_DONE, "step 300", "");
  expect("info masked --json", HARK_EXIT_DONE, "", "");
  json_t *line = command_json(&output);
  const double loss = command_number(line, "val/loss");
  assert_true(loss < 2); /* a text of few words; 261 tokens at random are 5.6 */
  json_decref(line);
  const double accuracy = reported_accuracy(&output);
  expect("eval masked --json --checkpoint last --threads 1", HARK_EXIT_DONE, "", ""); /* the same masks every time */
  line = command_json(&output);
  assert_true(loss == command_number(line, "loss"));
  assert_true(accuracy == command_number(line, "accuracy"));
  assert_true(accuracy > 0.3 && accuracy <= 1);
  assert_true(fabs(command_number(line, "right") - accuracy * command_number(line, "targets")) < 1e-9);
  assert_null(json_object_get(line, "perplexity")); /* hidden tokens are no text */
  assert_null(json_object_get(line, "bits_per_byte"));
  json_decref(line);
  expect("eval masked --threads 1", HARK_EXIT_DONE, "nats per masked token, accuracy", "");
  the_end_of_a_text_sees_no_padding();
  expect(
      "train --init-from masked --architecture encoder --format text --classes 2 --data two.tsv --out tuned --steps 2 --batch 4 "
      "--threads 1 --allow-missing head* --freeze blocks.*",
      HARK_EXIT_DONE, "step 2", "is initialised");
  expect("train --init-from masked --freeze nothing --data text.txt --out nothing --steps 1", HARK_EXIT_USAGE, "", "matches no weight");
  assert_int_equal(hark_path_kind_of(test_path(folder, "nothing")), HARK_PATH_NONE);
  expect(
      "train --architecture masked_encoder --format text --classes 3 --data texts.tsv --out guessed --layers 1 --width 16 --heads 2 "
      "--context 12 "
      "--batch 8 --steps 5 --threads 1",
      HARK_EXIT_DONE, "step 5", "");
  expect("eval guessed --json --threads 1", HARK_EXIT_DONE, "\"accuracy\"", "");
}

/* Numbers after a word of a run's metrics.jsonl, one line after the other. */
static void read_metrics(const char *run, char *metrics, size_t size) {
  char path[TEST_PATH_BYTES + 64];
  size_t bytes = 0;
  (void)snprintf(path, sizeof path, "%s/%.32s/metrics.jsonl", folder, run);
  unsigned char *const file = test_file_read(path, &bytes);
  assert_true(bytes < size);
  memcpy(metrics, file, bytes);
  metrics[bytes] = '\0';
  free(file);
}

static double sum_of(const json_t *numbers) {
  double sum = 0;
  for (size_t i = 0; i < json_array_size(numbers); i++) sum += json_number_value(json_array_get(numbers, i));
  return sum;
}

/* What is reported of every example adds up to what is reported of all: chunks of three tokens, two of four or fewer global tokens, up to
 * three layers. */
static void decisions_add_up(const char *words, double chunks_expected, double tokens_expected, double depth_expected) {
  expect(words, HARK_EXIT_DONE, "", "");
  json_t *const line = command_json(&output), *const list = json_object_get(line, "decisions");
  double chunks = 0, tokens = 0, depth = 0;
  const size_t count = json_array_size(list);
  assert_int_equal(count, command_number(line, "examples"));
  for (size_t i = 0; i < count; i++) {
    const json_t *const one = json_array_get(list, i), *const lengths = json_object_get(one, "chunks");
    const json_t *const selected = json_object_get(one, "selected"), *const layers = json_object_get(one, "depth");
    const size_t own = json_array_size(lengths);
    const double global = command_number(one, "global");
    for (size_t k = 0; k < own; k++) assert_true(json_number_value(json_array_get(lengths, k)) == 3 || k + 1 == own);
    assert_true(sum_of(lengths) == command_number(one, "tokens"));
    assert_true(global == fmin(4, 2 * (double)own));
    assert_true((double)json_array_size(selected) == fmin(2, global));
    for (size_t k = 0; k < json_array_size(selected); k++) {
      const double place = json_number_value(json_array_get(selected, k));
      assert_true(place < global && place > (k == 0 ? -1 : json_number_value(json_array_get(selected, k - 1))));
    }
    assert_int_equal(json_array_size(layers), own);
    chunks += (double)own;
    tokens += sum_of(lengths);
    depth += sum_of(layers);
  }
  assert_true(fabs(chunks / (double)count - chunks_expected) < 1e-12);
  assert_true(tokens == tokens_expected);
  assert_true(fabs(depth / chunks - depth_expected) < 1e-12);
  json_decref(line);
}

/* The depth of chunks changes in the course of a run, of which any unit may give the length; its configuration is read back by all
 * commands. */
static void compressed_chunks_go_on(void **state) {
  (void)state;
#define AHCA                                                                                                                               \
  "--format text --classes 3 --data texts.tsv --validation-fraction 0.25 --architecture ahca --layers 3 --width 16 --heads 2 --context "   \
  "12 "                                                                                                                                    \
  "--chunk-size 3 --primary-slots 2 --secondary-slots 4 --selected 2 --batch 4 --threads 1 --log-every 1 "
  char steps[16384], examples[16384];
  expect("train --out steps " AHCA "--steps 10", HARK_EXIT_DONE, "", "");
  expect("train --out examples " AHCA "--examples 40", HARK_EXIT_DONE, "", "");
  read_metrics("steps", steps, sizeof steps);
  read_metrics("examples", examples, sizeof examples);
  const char *a = steps, *b = examples;
  int lines = 0;
  for (; (a = strstr(a, "\"train/loss\": ")) != NULL; lines++, a++, b++) {
    b = strstr(b, "\"train/loss\": ");
    assert_non_null(b);
    assert_true(strtod(a + 14, NULL) == strtod(b + 14, NULL));
  }
  assert_int_equal(lines, 10);
  expect("train --out steps --resume --steps 12", HARK_EXIT_DONE, "step 12 of 12", "");
  expect("eval steps --threads 1", HARK_EXIT_DONE, "predicted:", "");
  expect("eval steps --threads 1", HARK_EXIT_DONE, "chunks a sequence", "");
  expect("eval steps --threads 1 --json", HARK_EXIT_DONE, "\"ahca\": {\"chunks\": ", "");
  json_t *line = command_json(&output);
  const json_t *const all = json_object_get(line, "ahca");
  assert_null(json_object_get(line, "decisions"));
  decisions_add_up("eval steps --threads 1 --json --decisions 1000", command_number(all, "chunks"), command_number(line, "tokens"),
                   command_number(all, "depth"));
  json_decref(line);
  expect("eval steps --threads 1 --json --decisions 6", HARK_EXIT_DONE, "", ""); /* of batches of four */
  line = command_json(&output);
  assert_int_equal(json_array_size(json_object_get(line, "decisions")), 6);
  json_decref(line);
  expect("eval steps --decisions 6", HARK_EXIT_USAGE, "", "--decisions: has no effect here, it needs --json");
  expect("eval run --json --decisions 6", HARK_EXIT_USAGE, "",
         "--decisions: has no effect here, it needs model.architecture ahca (currently");
  expect("info steps", HARK_EXIT_DONE, "validation accuracy", "");
  expect("info steps", HARK_EXIT_DONE, "selected from place", "");
  expect("info steps --json", HARK_EXIT_DONE, "\"depth_1\": ", "");
  expect("train --out none " AHCA "--steps 2 --pooling mean", HARK_EXIT_USAGE, "",
         "--pooling: has no effect here, it needs --architecture encoder (currently ahca)");
}

/* Chunks that see themselves alone have nothing selected, and nothing that says how. */
static void chunks_without_global_tokens(void **state) {
  (void)state;
#define ALONE                                                                                                                              \
  "train --out alone --format text --classes 3 --data texts.tsv --validation-fraction 0.25 --architecture ahca --layers 2 --width 16 "     \
  "--heads 2 --context 12 --chunk-size 3 --primary-slots 2 --selected 0 --batch 4 --threads 1 "
  expect(ALONE "--steps 4 --secondary-slots 4", HARK_EXIT_USAGE, "",
         "--secondary-slots: has no effect here, it needs --selected of at least 1");
  expect(ALONE "--steps 4", HARK_EXIT_DONE, "", "");
  expect("train --out alone --resume --steps 6", HARK_EXIT_DONE, "step 6 of 6", "");
  expect("eval alone --threads 1 --json --decisions 2", HARK_EXIT_DONE, "\"global\": 0, \"selected\": []", "");
  expect("eval alone --threads 1", HARK_EXIT_DONE, "chunks a sequence", "");
  assert_null(strstr(output.out, "selected from place"));
}

/* Tokens are labelled, and reconstructed from examples and from text: trained, resumed, measured; the frequencies of the tokens alone are
 * beaten. */
static void compressed_chunks_tell_tokens(void **state) {
  (void)state;
#define SMALL                                                                                                                              \
  "--architecture ahca --layers 2 --width 32 --heads 2 --context 16 --chunk-size 4 --primary-slots 4 --secondary-slots 8 --selected 4 "    \
  "--batch 8 --threads 1 --lr 0.01 "
  expect("data make recall --length 16 --pairs 2 --training 64 --validation 16 --test 1 --out pairs", HARK_EXIT_DONE, "", "");
  expect("train --out labels --data pairs --format examples --steps 20 " SMALL "--warmup 10", HARK_EXIT_DONE, "step 20", "");
  expect("eval labels --threads 1 --json", HARK_EXIT_DONE, "\"accuracy\"", "");
  expect("eval labels --threads 1 --length-limit 3", HARK_EXIT_USAGE, "", "the validation examples have no targets among the tokens");
  expect("train --out own " SMALL "--data text.txt --tokenizer bytes --model.ahca.head reconstruction --steps 300 --evaluate-every 150",
         HARK_EXIT_DONE, "step 300", "");
  expect("train --out own --resume --steps 320", HARK_EXIT_DONE, "step 320 of 320", "");
  expect("eval own --threads 1", HARK_EXIT_DONE, "chunks a sequence", "");
  expect("eval own --threads 1 --json", HARK_EXIT_DONE, "", "");
  json_t *line = command_json(&output);
  const double loss = command_number(line, "loss");
  assert_true(command_number(line, "accuracy") > 0.1);
  assert_null(json_object_get(line, "perplexity")); /* what was read is no prediction */
  assert_null(json_object_get(line, "bits_per_byte"));
  json_decref(line);
  expect("eval own --threads 1 --json --decisions 2", HARK_EXIT_DONE, "\"decisions\": [{\"tokens\": 16, \"chunks\": [4, 4, 4, 4], ", "");
  char metrics[65536];
  read_metrics("own", metrics, sizeof metrics);
  assert_null(strstr(metrics, "perplexity"));
  assert_null(strstr(metrics, "pair_entropy"));
  const char *const entropy = strstr(metrics, "\"val/entropy\": ");
  assert_non_null(entropy);
  if (!(loss < 0.8 * strtod(entropy + 15, NULL))) fail_msg("a loss of %g, the frequencies alone have %s", loss, entropy);
  expect("eval own --threads 1 --stride 4", HARK_EXIT_USAGE, "", "windows that do not overlap");
  expect("generate own --prompt a", HARK_EXIT_USAGE, "", "only a decoder continues texts: here pools, selection and ranks");
  expect("export labels --output labels.safetensors", HARK_EXIT_DONE, "labels.safetensors: ", "");
  expect("generate labels.safetensors --prompt a", HARK_EXIT_USAGE, "", "only a decoder continues texts: here pools, selection and ranks");
  expect("bench step --rounds 1 --vocabulary 32 --model.ahca.head reconstruction " SMALL, HARK_EXIT_DONE, "of peak", "");
  expect("bench step --rounds 1 --vocabulary 32 --format sequences --model.ahca.head labels " SMALL, HARK_EXIT_DONE, "of peak", "");
  expect("train --out texts_again " SMALL
         "--format text --classes 3 --data texts.tsv --validation-fraction 0.25 --model.ahca.head "
         "reconstruction --steps 5",
         HARK_EXIT_DONE, "step 5", "");
  expect("train --out counted " SMALL "--data text.txt --tokenizer bytes --model.ahca.head reconstruction --tokens 600", HARK_EXIT_DONE,
         "step 5 of 5", ""); /* of 8 x 16 tokens */
}

/* One line that names the option and says what is allowed. */
static void options_of_chunks_that_say_nothing_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *words, *message;
  } cases[] = {
      {"--chunk fixed --model.ahca.delimiter 9",
       "--model.ahca.delimiter: has no effect here, it needs --chunk delimiter (currently fixed)"},
      {"--chunk fixed --model.ahca.more_delimiters 9", "it needs --chunk delimiter (currently fixed)"},
      {"--model.ahca.window 3", "it needs --chunk semantic (currently fixed)"},
      {"--model.ahca.chunk_minimum 2", "it needs --chunk other than fixed (currently fixed)"},
      {"--model.ahca.ratio_weight 0.1", "it needs --chunk learned (currently fixed)"},
      {"--model.ahca.depth paper --capacity 0.25",
       "--capacity: has no effect here, it needs --model.ahca.depth capacity (currently paper)"},
      {"--layers 1 --model.ahca.depth paper", "it needs --layers of at least 2 (currently 1)"},
      {"--layers 1 --model.ahca.capacities 0.5", "it needs --layers of at least 2 (currently 1)"},
      {"--model.ahca.depth paper --model.ahca.capacities 0.5,0.5", "it needs --model.ahca.depth capacity (currently paper)"},
      {"--capacity 0.25 --model.ahca.capacities 0.5,0.5", "cannot be used together with --model.ahca.capacities"},
      {"--model.ahca.capacities 0.5", "model.ahca.capacities has 1 numbers, expected one for each layer but the first, 2"},
      {"--model.ahca.capacities 0.5,0.75",
       "--model.ahca.capacities: model.ahca.capacities has 0.75 for layer 3, expected 0 to 0.5: numbers that do not grow"},
      {"--model.ahca.capacities 1.5,0.5", "expected numbers in [0, 1]"},
      {"--model.ahca.capacities half,0.5", "expected numbers in [0, 1]"},
      {"--model.initialisation xavier", "ahca has its own initial weights"},
      {"--layers 1 --capacity 0.25", "it needs --layers of at least 2 (currently 1)"},
      {"--layers 1 --model.ahca.ponder_weight 0.1", "it needs --layers of at least 2 (currently 1)"},
      {"--model.ahca.layer linear --activation silu",
       "--activation: has no effect here, it needs --model.ahca.layer block or --architecture other than ahca"},
      {"--chunk delimiter --model.ahca.delimiter 1000", "expected a token, 0 to"},
      {"--chunk delimiter --model.ahca.delimiter 5", "token 5 does not occur in the training data"},
      {"--chunk delimiter --model.ahca.more_delimiters 4x", "expected whole numbers in [0, 2147483647], or texts in which"},
      {"--chunk delimiter --model.ahca.more_delimiters 4+", "expected whole numbers in [0, 2147483647], or texts in which"},
      {"--chunk delimiter --model.ahca.more_delimiters -3", "expected whole numbers in [0, 2147483647], or texts in which"},
      {"--chunk delimiter --model.ahca.more_delimiters 'x\\x'", "expected whole numbers in [0, 2147483647], or texts in which"},
      {"--chunk delimiter --model.ahca.delimiter -1", "model.ahca.delimiter is -1, which is none, without model.ahca.more_delimiters"},
      {"--chunk delimiter --model.ahca.delimiter -1 --model.ahca.more_delimiters zz", "\"zz\" does not occur in the training data"},
      {"--architecture encoder --chunk-size 5", "it needs --architecture ahca (currently encoder)"},
      {"--model.ahca.head labels --model.ahca.output selected", "expected chunks"},
      {"--model.ahca.head labels", "predicts tokens, and the data have classes"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char words[1024];
    (void)snprintf(words, sizeof words, "train --out none " AHCA "--steps 2 %s", cases[i].words);
    expect(words, HARK_EXIT_USAGE, "", cases[i].message);
  }
  /* the delimiters of compressed attention, in a text */
#define DECODER                                                                                                                            \
  "train --out none --data text.txt --tokenizer bytes --layers 1 --width 8 --heads 1 --context 12 --batch 1 --threads 1 --steps 1 "        \
  "--structure compressed --attention-chunk 2 --chunk-delimiters "
  expect(DECODER "1000", HARK_EXIT_USAGE, "", "model.attention.delimiters has 1000, expected tokens, 0 to");
  expect(DECODER "5", HARK_EXIT_USAGE, "", "model.attention.delimiters: token 5 does not occur in the training data");
  expect(DECODER "4x", HARK_EXIT_USAGE, "", "expected whole numbers in [0, 2147483647], or texts in which");
  expect(DECODER "'x\\x'", HARK_EXIT_USAGE, "", "\"x\\x\" given, expected whole numbers");
  expect(DECODER "§§", HARK_EXIT_USAGE, "", "model.attention.delimiters: \"§§\" does not occur in the training data");
  expect(DECODER "§§ --model.attention.delimiters §", HARK_EXIT_USAGE, "",
         "model.attention.delimiters: no delimiter occurs in the training data");
  expect(DECODER "102 --model.attention.chunk-maximum 1", HARK_EXIT_USAGE, "", "chunk_maximum is 1, expected at least");
  expect("train --out none --data text.txt --steps 1 --chunk-delimiters 4", HARK_EXIT_USAGE, "", "it needs --structure compressed");
#undef DECODER
  expect("train --out none --architecture ahca --data text.txt --steps 2", HARK_EXIT_USAGE, "", "ahca cannot continue a text");
#define RARE                                                                                                                               \
  "--format text --classes 3 --data rare.tsv --architecture ahca --layers 2 --width 16 --heads 2 --context 12 --chunk-size 3 "             \
  "--primary-slots 2 --secondary-slots 4 --selected 2 --batch 2 --threads 1 --steps 1 --chunk delimiter --model.ahca.delimiter 127 "
  test_file_write_text(folder, "rare.tsv", "0\tazbc\n1\tbca\n2\tcab\n0\tabcb\n1\tbcac\n2\tcab\n"); /* z is token 127 */
  expect("train --out rare " RARE, HARK_EXIT_DONE, "step 1", "");
  expect("train --out none " RARE "--example-limit 2", HARK_EXIT_USAGE, "", "token 127 does not occur in the training data");
}

/* A plan of a sweep is read by --list, which checks the configurations of its runs, any other file as a configuration. */
static void read_recipe(const char *path) {
  char words[1100];
  size_t bytes = 0;
  unsigned char *const text = test_file_read(path, &bytes);
  bool plan = false;
  for (size_t i = 0; i + 5 < bytes && !plan; i++) plan = memcmp(text + i, "\nout: ", 6) == 0;
  free(text);
  (void)snprintf(words, sizeof words, plan ? "sweep %s --list" : "config --config %s", path);
  expect(words, HARK_EXIT_DONE, plan ? "-seed=1" : "architecture:", "");
}

/* Every file below recipes/. */
static void recipes_are_configurations(void **state) {
  (void)state;
  int files = 0;
  DIR *const folders = opendir(HARK_SOURCE_DIR "/recipes");
  assert_non_null(folders);
  for (const struct dirent *kind; (kind = readdir(folders)) != NULL;) {
    char path[1024];
    if (kind->d_name[0] == '.') continue;
    (void)snprintf(path, sizeof path, "%s/recipes/%.200s", HARK_SOURCE_DIR, kind->d_name);
    DIR *const listed = opendir(path);
    assert_non_null(listed);
    for (const struct dirent *entry; (entry = readdir(listed)) != NULL;) {
      if (strstr(entry->d_name, ".yaml") == NULL) continue;
      (void)snprintf(path, sizeof path, "%s/recipes/%.200s/%.200s", HARK_SOURCE_DIR, kind->d_name, entry->d_name);
      read_recipe(path);
      files++;
    }
    (void)closedir(listed);
  }
  (void)closedir(folders);
  assert_true(files >= 50);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(confusions_add_up),
      cmocka_unit_test(eval_is_the_validation_of_training),
      cmocka_unit_test(other_attention_and_parts),
      cmocka_unit_test(one_class_is_measured),
      cmocka_unit_test(a_folder_has_its_parts),
      cmocka_unit_test(many_classes),
      cmocka_unit_test(one_line_says_what_is_wrong),
      cmocka_unit_test(what_never_began_leaves_no_folder),
      cmocka_unit_test(sweeps_and_steps),
      cmocka_unit_test(warm_starts_may_begin_a_new_head),
      cmocka_unit_test(compressed_chunks_tell_tokens),
      cmocka_unit_test(options_of_chunks_that_say_nothing_are_refused),
      cmocka_unit_test(recipes_are_configurations),
      cmocka_unit_test(hidden_tokens_come_first),
      cmocka_unit_test(compressed_chunks_go_on),
      cmocka_unit_test(chunks_without_global_tokens),
  };
  return cmocka_run_group_tests_name("examples", tests, begin, end);
}
