/* test_first_hour.c - what a newcomer meets: a size and a length that fit the text, names of other programs, a stop and its continuation,
 * the list of runs, several models at once, prompts from files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* A line of shell in the folder, with $H for the command; its stderr in .err. */
static int shell(const char *line) {
  char all[1024];
  (void)snprintf(all, sizeof all, "cd '%s' && H='%s' && { %s; } >.out 2>.err", folder, HARK_COMMAND, line);
  const int status = system(all);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_in(const char *name, const char *part, bool there) {
  char *const text = test_file_text(folder, name);
  if ((strstr(text, part) != NULL) != there) fail_msg("\"%s\" in %s: %s", part, name, text);
  free(text);
}

/* ---- sizes and lengths ---- */

static void a_plain_training_fits_its_text(void **state) {
  (void)state;
  expect("train --data text.txt --out auto --max-time 1s --threads 1", HARK_EXIT_DONE, "auto: step ", "chosen for a text of 4 kB");
  assert_non_null(strstr(output.err, "--preset tiny"));
  expect_in("auto/config.yaml", "\n  layers: 2\n", true);
  expect_in("auto/config.yaml", "\n  width: 64\n", true);
  test_file_write_text(folder, "empty.yaml", "train:\n  seed: 1\n");
  static const char *const same[] = {"--config empty.yaml", "--steps 5", "--layers 4", "--format text --architecture encoder"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) { /* the estimate trains nothing */
    char words[256];
    (void)snprintf(words, sizeof words, "train --data text.txt --estimate %s", same[i]);
    test_command_run(folder, "", words, &output);
    assert_null(strstr(output.err, "chosen"));
  }
}

/* As if it had been given: stopped and continued, and begun again from its own configuration. */
static void a_planned_length_is_the_run_s_own(void **state) {
  (void)state;
  const int code = shell(
      "$H train --data text.txt --out auto --threads 1 --evaluate-every 0 & pid=$!; while kill -0 $pid && ! test -s "
      "auto/config.yaml; do sleep 0.1; done; kill -TERM $pid; wait $pid");
  assert_int_equal(code, HARK_EXIT_TERMINATED);
  expect_in(".err", "steps for about ten minutes (--max-time, --steps)", true);
  expect_in(".err", "continue with: hark train --resume auto\n", true);
  expect_in("auto/config.yaml", "\n  max_time: 0s\n", true);
  expect_in("auto/config.yaml", "\n  steps: 0\n", false);
  expect_in("auto/config.yaml", "\n  width: 64\n", true);
  expect("train --config auto/config.yaml --out again --estimate", HARK_EXIT_DONE, "parameters", "");
}

static void presets_are_sizes(void **state) {
  (void)state;
  expect("config --preset gpt2-small --no-comments", HARK_EXIT_DONE, "  width: 768\n", "");
  assert_non_null(strstr(output.out, "  positions: learned\n"));
  expect("config --preset gpt2-small --width 96 --no-comments", HARK_EXIT_DONE, "  width: 96\n", "");
  expect("train --preset tiny --data text.txt --out run --steps 1 --batch 2 --threads 1", HARK_EXIT_DONE, "step 1 of 1", "");
  expect_in("run/config.yaml", "\n  width: 64\n", true);
  expect_in("run/config.yaml", "\n  batch: 2\n", true);
  expect("train --resume run --preset small --steps 2", HARK_EXIT_USAGE, "", "cannot change when a run is resumed");
  expect("train --preset smal --data text.txt", HARK_EXIT_USAGE, "", "did you mean small?");
  expect("config --no-comments", HARK_EXIT_DONE, "  width: 512\n", ""); /* as before */
}

/* ---- names of other programs ---- */

static void other_names_are_hints(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"train --batch-size 4", "--batch-size: unknown flag; did you mean --batch?"},
      {"train --block_size 64", "--block_size: unknown flag; did you mean --context?"},
      {"train --max-iters=5", "did you mean --steps?"},
      {"train --n-layer 6", "did you mean --layers?"},
      {"train --n_head 6", "did you mean --heads?"},
      {"train --n-embd 384", "did you mean --width?"},
      {"train --eval-interval 10", "did you mean --evaluate-every?"},
      {"train --out-dir x", "did you mean --out?"},
      {"train --min-lr 1e-4", "did you mean --train.minimum_rate?"},
      {"generate run --max-tokens 5", "did you mean --max-new-tokens?"},
      {"generate run --num-samples 5", "did you mean --samples?"},
      {"config --config peer.yaml", "peer.yaml:2: model.n_layer: unknown key; did you mean model.layers?"}};
  test_file_write_text(folder, "peer.yaml", "model:\n  n_layer: 6\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect(cases[i][0], HARK_EXIT_USAGE, "", cases[i][1]);
}

/* ---- runs ---- */

static void make_runs(void) {
  expect("train --data text.txt --out runs/done --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out runs/sweep/torn --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out runs/gone --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out 'runs/cut short' --steps 1000000 --max-time 1s " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  assert_int_equal(shell("printf x >>runs/sweep/torn/checkpoints/step-2/model.safetensors"), 0);
  assert_int_equal(shell("rm runs/gone/checkpoints/step-2/state.json"), 0);
  assert_int_equal(shell("mkdir runs/new && cp runs/done/config.yaml runs/new"), 0);
}

/* The line about a run, which has its path after the numbers. */
static void expect_line(const char *path, const char *state, const char *part) {
  char name[64];
  (void)snprintf(name, sizeof name, "  %s", path);
  const char *const at = strstr(output.out, name);
  if (at == NULL) fail_msg("%s is not in %s", path, output.out);
  const char *line = at;
  while (line > output.out && line[-1] != '\n') line--;
  const char *const end = strchr(line, '\n'), *const found = strstr(line, part);
  if (strncmp(line, state, strlen(state)) != 0 || found == NULL || found > end) fail_msg("%s: %.*s", path, (int)(end - line), line);
}

static void runs_are_listed(void **state) {
  (void)state;
  make_runs();
  expect("runs", HARK_EXIT_DONE, "state", "");
  expect_line("done", "done", "2/2");
  expect_line("done", "done", "decoder 1x16, context 8, rotary, dense");
  expect_line("sweep/torn", "damaged", "the manifest says");
  expect_line("gone", "damaged", "state.json");
  expect_line("new", "empty", "-");
  expect_line("cut short", "stopped", "/1000000");
  assert_int_equal(test_line_count(output.out), 6);
  expect("runs runs/done runs/sweep --json", HARK_EXIT_DONE, "\"state\": \"damaged\"", "");
  assert_int_equal(test_line_count(output.out), 2);
  expect("runs runs/done --json", HARK_EXIT_DONE, "", "");
  json_t *const object = command_json(&output);
  assert_true(command_number(object, "step") == 2 && command_number(object, "steps") == 2 && command_number(object, "width") == 16);
  assert_true(command_number(object, "train/loss") > 0 && command_number(object, "best_val/loss") > 0);
  assert_string_equal(json_string_value(json_object_get(object, "path")), "runs/done");
  json_decref(object);
  expect("runs missing", HARK_EXIT_BAD_INPUT, "", "missing: no such folder");
}

/* However long its files are. */
static void long_files_are_read(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  assert_int_equal(shell("printf '# %070000d\\n' 0 >>run/config.yaml"), 0);
  assert_int_equal(shell("printf '{\"step\": 2, \"time\": 1, \"note\": \"%020000d\"}\\n' 0 >>run/metrics.jsonl"), 0);
  expect("runs run --json", HARK_EXIT_DONE, "\"state\": \"done\"", "");
  json_t *const object = command_json(&output);
  assert_true(command_number(object, "train/loss") > 0 && command_number(object, "time") == 1);
  json_decref(object);
}

static void a_run_that_is_written_is_running(void **state) {
  (void)state;
  expect("train --data text.txt --out runs/a --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  assert_int_equal(
      shell("if ! command -v flock; then exit 77; fi") == 77 ? 0 : shell("flock runs/a/.lock $H runs >listed && grep -q ^running listed"),
      0);
}

static void several_models_are_described_and_measured(void **state) {
  (void)state;
  expect("train --data text.txt --out a --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out b --steps 3 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("eval a b --json", HARK_EXIT_DONE, "\"run\": \"b\"", "");
  assert_int_equal(test_line_count(output.out), 2);
  expect("eval a b --data -", HARK_EXIT_USAGE, "", "standard input can be read once");
  expect("info a b", HARK_EXIT_DONE, "run b\n", "");
  assert_non_null(strstr(output.out, "run a\n"));
  expect("info missing b", HARK_EXIT_BAD_INPUT, "run b\n", "missing"); /* the others are used */
  expect("eval a b --part nothing", HARK_EXIT_USAGE, "", "--part");
  assert_int_equal(test_line_count(output.err), 1); /* once */
}

/* ---- resuming ---- */

static void resume_takes_the_run(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("train --resume run --steps 4", HARK_EXIT_DONE, "run: step 4 of 4", "");
  expect("train --resume --out run --steps 5", HARK_EXIT_DONE, "run: step 5 of 5", "");
  expect("train --resume run --out run/ --steps 6", HARK_EXIT_DONE, "step 6 of 6", "");
  expect("train --resume run// --out run --steps 7", HARK_EXIT_DONE, "step 7 of 7", "");
  expect("train --resume run --out other --steps 9", HARK_EXIT_USAGE, "", "--out names another run to resume");
  expect("train run --data text.txt", HARK_EXIT_USAGE, "", "run: unexpected argument");
}

/* ---- prompts ---- */

static void prompts_come_from_files(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  test_file_write_text(folder, "prompt.txt", "the quick\n");
  expect("generate run --prompt 'the quick' -n 5 --seed 3", HARK_EXIT_DONE, "the quick", "");
  char *const given = strdup(output.out);
  expect("generate run --file prompt.txt -n 5 --seed 3", HARK_EXIT_DONE, given, "");
  expect("generate run --file - -n 5 --seed 3 <prompt.txt", HARK_EXIT_DONE, given, "");
  assert_int_equal(shell("printf 'the quick' | $H generate run --file - -n 5 --seed 3 >got"), 0);
  expect_in("got", given, true);
  free(given);
  expect("generate run --file prompt.txt --prompt x", HARK_EXIT_USAGE, "", "--file: cannot be used together with --prompt");
  expect("generate run --file missing.txt", HARK_EXIT_BAD_INPUT, "", "missing.txt");
  expect("generate run --file - </dev/null", HARK_EXIT_BAD_INPUT, "", "is empty");
}

static void samples_and_their_rules(void **state) {
  (void)state;
  expect("train --data text.txt --out run --steps 2 " COMMAND_TINY, HARK_EXIT_DONE, "", "");
  expect("generate run --prompt the -n 4 --samples 3", HARK_EXIT_DONE, "\n---\nthe", "");
  expect("generate run --prompt the -n 8 --min-p 1 --seed 7", HARK_EXIT_DONE, "the", ""); /* only the most likely token is left */
  char *const drawn = strdup(output.out);
  expect("generate run --prompt the -n 8 --temperature 0", HARK_EXIT_DONE, drawn, "");
  /* a large penalty never repeats a character while there is another: the vocabulary of the text has more than 8 */
  expect("generate run --prompt t -n 7 --temperature 0 --repetition-penalty 100", HARK_EXIT_DONE, "t", "");
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < i; j++) assert_true(output.out[i] != output.out[j]);
  free(drawn);
  expect("generate run --min-p 0.1 --temperature 0", HARK_EXIT_USAGE, "", "--min-p: has no effect here");
  expect("generate run --repetition-penalty 1e9", HARK_EXIT_USAGE, "", "--repetition-penalty: \"1e9\" given");
  expect("generate run --min-p 2", HARK_EXIT_USAGE, "", "--min-p: \"2\" given");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_plain_training_fits_its_text, begin, end),
      cmocka_unit_test_setup_teardown(a_planned_length_is_the_run_s_own, begin, end),
      cmocka_unit_test_setup_teardown(presets_are_sizes, begin, end),
      cmocka_unit_test_setup_teardown(other_names_are_hints, begin, end),
      cmocka_unit_test_setup_teardown(runs_are_listed, begin, end),
      cmocka_unit_test_setup_teardown(long_files_are_read, begin, end),
      cmocka_unit_test_setup_teardown(a_run_that_is_written_is_running, begin, end),
      cmocka_unit_test_setup_teardown(several_models_are_described_and_measured, begin, end),
      cmocka_unit_test_setup_teardown(resume_takes_the_run, begin, end),
      cmocka_unit_test_setup_teardown(prompts_come_from_files, begin, end),
      cmocka_unit_test_setup_teardown(samples_and_their_rules, begin, end),
  };
  return cmocka_run_group_tests_name("first hour", tests, NULL, NULL);
}
