/* test_length.c - how long a run is, by the command: a length that is passed is refused, a run that has nothing to do records nothing, and
 * what README prints after a run has ended goes on with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define TRAIN "train --data text.txt --evaluate-every 0 --checkpoint-every 0 "
#define SHORT "--max-time 0.3s "

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* Goes on with a run, and returns the step that it comes to. */
static int64_t go_on(const char *words) {
  char all[512];
  (void)snprintf(all, sizeof all, "train --resume --json %s", words);
  expect(all, HARK_EXIT_DONE, "\"step\": ", "");
  json_t *const result = command_json(&output);
  const int64_t step = (int64_t)command_number(result, "step");
  json_decref(result);
  return step;
}

/* The command leaves the run's configuration as it is, byte for byte. */
static void expect_kept(const char *run, const char *words, int code, const char *in_out, const char *in_err) {
  char path[128], all[512];
  (void)snprintf(path, sizeof path, "%s/config.yaml", run);
  (void)snprintf(all, sizeof all, "train --resume --out %s %s", run, words);
  char *const before = test_file_text(folder, path);
  expect(all, code, in_out, in_err);
  char *const after = test_file_text(folder, path);
  assert_string_equal(before, after);
  free(before);
  free(after);
}

static void a_length_that_is_passed_is_refused(void **state) {
  (void)state;
  expect(TRAIN "--out run --steps 6 " COMMAND_TINY, HARK_EXIT_DONE, "step 6 of 6", "");
  static const char *const lengths[] = {"--steps 3 --learning-rate 0.01", "--tokens 16", "--epochs 0.002", "--steps 5 --max-time 1s"};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
    expect_kept("run", lengths[i], HARK_EXIT_USAGE, "", "the run has already made 6 steps");
  assert_int_equal(go_on("--out run --steps 8"), 8);

  expect(TRAIN "--out timed " SHORT COMMAND_TINY, HARK_EXIT_DONE, "timed: step ", "a step takes about");
  const int64_t made = go_on("--out timed " SHORT); /* one step at least, however busy the machine is */
  assert_true(made > 1);
  expect_kept("timed", "--steps 1", HARK_EXIT_USAGE, "", "steps, and 1 are requested");
  assert_true(go_on("--out timed " SHORT) > made);
}

static void a_run_with_nothing_to_do_records_nothing(void **state) {
  (void)state;
  expect(TRAIN "--out run --steps 6 " COMMAND_TINY, HARK_EXIT_DONE, "step 6 of 6", "");
  expect_kept("run", "--learning-rate 0.01", HARK_EXIT_DONE, "step 6 of 6 (done)", "there is nothing to do: the run has made its 6 steps");
  expect_kept("run", "--steps 6 --max-time 1s --dropout 0.2", HARK_EXIT_DONE, "step 6 of 6 (done)", "there is nothing to do");
  /* rates of nothing improve nothing */
  expect("train --data text.txt --out still --steps 20 --evaluate-every 1 --early-stop 2 --warmup 0 --learning-rate 1e-30 " COMMAND_TINY,
         HARK_EXIT_DONE, "(no improvement)", "");
  expect_kept("still", "--steps 40 --learning-rate 0.01", HARK_EXIT_DONE, "(no improvement)", "");
  assert_int_equal(go_on("--out still --steps 21 --early-stop 0"), 21);
}

/* An early stop counts evaluations: without any it would never come. */
static void an_early_stop_needs_validation(void **state) {
  (void)state;
  static const char refusal[] = "--early-stop: has no effect here: there is nothing to validate with";
  expect("data make recall --length 8 --pairs 1 --training 8 --validation 0 --test 0 --out blind-task", HARK_EXIT_DONE, "", "");
  expect("train --data text.txt --out blind --steps 2 --validation-fraction 0 --early-stop 2 " COMMAND_TINY, HARK_EXIT_USAGE, "", refusal);
  expect("train --data blind-task --format sequences --validation-fraction 0 --out blind --steps 2 --early-stop 2 " COMMAND_TINY,
         HARK_EXIT_USAGE, "", refusal);
  expect("train --data text.txt --out blind --steps 2 --validation-fraction 0 " COMMAND_TINY, HARK_EXIT_DONE, "step 2 of 2", "");
}

/* So are evaluations where there is nothing to validate with, and a fraction of examples that have a validation of their own; not what a
 * file lists, where the command line gives other data. */
static void validation_that_has_no_effect_is_refused(void **state) {
  (void)state;
  static const char blind[] = "--evaluate-every: has no effect here: there is nothing to validate with";
  static const char own[] = "--validation-fraction: has no effect here: task/validation";
#define NEW "train --out run --steps 2 " COMMAND_TINY " "
  expect("data make recall --length 8 --pairs 1 --training 8 --validation 4 --test 4 --out task", HARK_EXIT_DONE, "", "");
  expect(NEW "--data text.txt --validation-fraction 0 --evaluate-every 1", HARK_EXIT_USAGE, "", blind);
  expect(NEW "--data task --format sequences --validation-fraction 0.25", HARK_EXIT_USAGE, "", own);
  expect(NEW "--data task --format sequences --validation-fraction 0", HARK_EXIT_USAGE, "", own);
  expect("data info task --validation-fraction 0.25", HARK_EXIT_USAGE, "", own);
  test_file_write_text(folder, "more.yaml", "data.validation_fraction: 0.2\ntrain.evaluate_every: 1\n");
  expect(NEW "--config more.yaml --data task --format sequences", HARK_EXIT_DONE, "step 2 of 2", "");
  expect("train --out other --steps 2 " COMMAND_TINY " --config more.yaml --data text.txt --validation-fraction 0", HARK_EXIT_DONE,
         "step 2 of 2", "");
  expect("train --out third --steps 2 --data text.txt --validation-fraction 0 --evaluate-every 0 " COMMAND_TINY, HARK_EXIT_DONE, "step 2",
         "");
#undef NEW
}

/* Numbers that are 0 or infinite in f32 would train nothing, or nothing finite. */
static void numbers_beyond_f32_are_refused(void **state) {
  (void)state;
  static const char *const options[] = {"--lr 1e-50",
                                        "--lr 1e39",
                                        "--train.epsilon 1e-50",
                                        "--clip 1e-50",
                                        "--weight-decay 1e39",
                                        "--clip 1e300",
                                        "--train.minimum-rate 1e-46 --lr 1",
                                        "--kernel rbf --sigma 1e-30",
                                        "--kernel rbf --sigma 1e30",
                                        "--positional decay --train.positional-rate 1e39"};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, "config %s", options[i]);
    expect(words, HARK_EXIT_USAGE, "", "is outside the range of f32, expected ");
  }
  expect("config --lr 1e-30 --clip 0 --weight-decay 0", HARK_EXIT_DONE, "learning_rate: 1e-30", "");
}

/* Whatever gave its length. From then on that is the time, which config.yaml says. */
static void a_run_that_has_ended_is_given_time(void **state) {
  (void)state;
  static const char *const lengths[] = {"--steps 6", "--tokens 96", "--epochs 0.03", "--config length.yaml"};
  test_file_write_text(folder, "length.yaml", "train:\n  steps: 6\n");
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, TRAIN "--out run-%d %s " COMMAND_TINY, (int)i, lengths[i]);
    expect(words, HARK_EXIT_DONE, "(done)", "");
    (void)snprintf(words, sizeof words, "--out run-%d %s " SHORT, (int)i, i == 3 ? lengths[i] : "");
    const int64_t more = go_on(words);
    assert_true(more > 6);
    (void)snprintf(words, sizeof words, "--out run-%d", (int)i);
    const int64_t then = go_on(words); /* to the end of that time's plan, where the machine was too busy for it */
    assert_true(then >= more);
    (void)snprintf(words, sizeof words, "--out run-%d " SHORT, (int)i);
    assert_true(go_on(words) > then);
  }
  /* before its end the time is where it stops */
  expect(TRAIN "--out long --steps 1000000000 " SHORT COMMAND_TINY, HARK_EXIT_DONE, "of 1000000000 (time is up)", "");
  expect("train --resume --out long " SHORT, HARK_EXIT_DONE, "of 1000000000 (time is up)", "");
}

/* ---- what is printed for people ---- */

/* Puts `new` in the place of the first `old`, when it is there. */
static void replace(char *text, size_t bytes, const char *old, const char *new) {
  char *const at = strstr(text, old);
  if (at == NULL) return;
  char rest[512];
  (void)snprintf(rest, sizeof rest, "%s", at + strlen(old));
  (void)snprintf(at, bytes - (size_t)(at - text), "%s%s", new, rest);
}

/* A line for people as a test takes it: a small model, and less than a second in the place of minutes. */
static void run_printed(const char *line) {
  char words[512];
  (void)snprintf(words, sizeof words, "%s", line);
  words[strcspn(words, "#")] = '\0';
  replace(words, sizeof words, "--max-time 10m", SHORT);
  replace(words, sizeof words, "--temperature", "--max-new-tokens 4 --temperature");
  if (strncmp(words, "train --data", 12) == 0)
    (void)strcat(words, strstr(words, "--max-time") != NULL ? " " COMMAND_TINY : " --steps 6 " COMMAND_TINY);
  expect(words, HARK_EXIT_DONE, "", "");
}

static int64_t step_of(void) {
  const char *const at = strstr(output.out, ": step ");
  if (at == NULL) fail_msg("no step in %s", output.out);
  return strtoll(at + strlen(": step "), NULL, 10);
}

/* The commands of README's first chapter, one after the other, on other texts. Pictures are for those who have gnuplot. */
static void readme_goes_on(void **state) {
  (void)state;
  char *const readme = test_file_text(HARK_SOURCE_DIR, "README.md");
  char *line = strstr(readme, "## Your own text\n");
  int trained = 0, others = 0;
  int64_t before = 0;
  assert_non_null(line);
  command_text_make(folder, "book.txt", "It was the best of times ");
  command_text_make(folder, "another.txt", "the best of times It was ");
  for (line = strtok(line, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    if (strncmp(line, "    build/hark ", 15) != 0) {
      if (trained > 0) break; /* the chapter's first lines of commands are over */
      continue;
    }
    if (strncmp(line + 15, "plot", 4) == 0) continue;
    run_printed(line + 15);
    if (strncmp(line + 15, "train", 5) != 0) {
      others++;
      continue;
    }
    assert_true(step_of() > before);
    before = step_of();
    trained++;
  }
  assert_true(trained == 2 && others == 3);
  free(readme);
}

/* The same of hark train --help: a run of steps, and one of a time, each goes on for a time and then to a step. */
static void help_goes_on(void **state) {
  (void)state;
  expect("train --help", HARK_EXIT_DONE, "continue for ten more minutes", "");
  char lines[4][256], *at = strstr(output.out, "  hark train --data book.txt --out runs/book  ");
  command_text_make(folder, "book.txt", "It was the best of times ");
  assert_non_null(at);
  for (int i = 0; i < 4; i++) {
    const char *const next = strchr(at, '\n'), *const words = at + strlen("  hark ");
    (void)snprintf(lines[i], sizeof lines[i], "%.*s", (int)(next - words), words);
    char *const description = strstr(lines[i], "  ");
    assert_non_null(description);
    *description = '\0';
    at += next - at + 1;
  }
  for (int kind = 0; kind < 2; kind++) {
    char words[128];
    run_printed(lines[kind]);
    const int64_t first = step_of();
    run_printed(lines[2]);
    const int64_t second = step_of();
    assert_true(second > first);
    (void)snprintf(words, sizeof words, "--steps %lld", (long long)second + 3);
    replace(lines[3], sizeof lines[3], kind == 0 ? "--steps 10000" : strstr(lines[3], "--steps"), words);
    run_printed(lines[3]);
    assert_int_equal(step_of(), second + 3);
    test_folder_remove(test_path(folder, "runs"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_length_that_is_passed_is_refused, begin, end),
      cmocka_unit_test_setup_teardown(a_run_with_nothing_to_do_records_nothing, begin, end),
      cmocka_unit_test_setup_teardown(an_early_stop_needs_validation, begin, end),
      cmocka_unit_test_setup_teardown(validation_that_has_no_effect_is_refused, begin, end),
      cmocka_unit_test_setup_teardown(numbers_beyond_f32_are_refused, begin, end),
      cmocka_unit_test_setup_teardown(a_run_that_has_ended_is_given_time, begin, end),
      cmocka_unit_test_setup_teardown(readme_goes_on, begin, end),
      cmocka_unit_test_setup_teardown(help_goes_on, begin, end),
  };
  return cmocka_run_group_tests_name("length", tests, NULL, NULL);
}
