/* test_eval.c - hark eval under a launcher: the numbers of one process, printed once. */
#include <stdio.h>
#include <string.h>

#include "group/mpirun.h"
#include "support/command.h"
#include "support/text_files.h"

#define SMALL                                                                                                                              \
  " --layers=1 --heads=2 --width=16 --context=8 --batch=2 --steps=3 --threads=1 --no-preflight --warmup=1 --evaluate-every=0 --keep=1"

static char folder[TEST_PATH_BYTES];

static void run(const char *before, const char *words, int code, test_output *output) {
  test_command_run(folder, before, words, output);
  if (output->code != code) fail_msg("%s: exit code %d, expected %d: %s%s", words, output->code, code, output->out, output->err);
}

static void do_once(const char *words) {
  test_output output = {0};
  run("", words, 0, &output);
  test_output_free(&output);
}

static int begin(void **state) {
  char text[4096], lines[2048] = "";
  (void)state;
  test_folder_make(folder);
  for (size_t i = 0; i < sizeof text; i++) text[i] = "abcdefg hij\n"[(i * i + i / 7) % 12];
  (void)test_file_write(folder, "text.txt", text, sizeof text);
  for (int i = 0; i < 60; i++) {
    char line[64];
    (void)snprintf(line, sizeof line, "%d\tab%dcdefg\n", i % 7, i % 5);
    strcat(lines, line);
  }
  (void)test_file_write(folder, "examples.tsv", lines, strlen(lines));
  return 0;
}

static int end(void **state) {
  (void)state;
  test_folder_remove(folder);
  return 0;
}

/* Removes the number after each `name`. */
static void drop_number(char *text, const char *name) {
  for (char *at = text; (at = strstr(at, name)) != NULL;) {
    char *const number = at + strlen(name), *const rest = number + strspn(number, "0123456789.e+-");
    memmove(number, rest, strlen(rest) + 1);
    at = number;
  }
}

/* Removes what the clock put into the output. */
static void drop_times(char *text) {
  static const char *const names[] = {"\"time\": ", "\"tokens_per_second\": ", " in "};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) drop_number(text, names[i]);
}

/* By two and by three processes, as text and as JSON. */
static void compare(const char *words) {
  static const char *const launches[] = {LAUNCH("2"), LAUNCH("3")};
  for (int json = 0; json < 2; json++)
    for (int i = 0; i < 2; i++) {
      char full[512];
      test_output alone = {0}, shared = {0};
      (void)snprintf(full, sizeof full, "eval %s%s", words, json == 1 ? " --json" : "");
      run("", full, 0, &alone);
      run(launches[i], full, 0, &shared);
      drop_times(alone.out);
      drop_times(shared.out);
      assert_true(strlen(alone.out) > 20);
      if (strcmp(alone.out, shared.out) != 0) fail_msg("%s: \"%s\", expected \"%s\"", full, shared.out, alone.out);
      test_output_free(&alone);
      test_output_free(&shared);
    }
}

static void texts(void **state) {
  (void)state;
  skip_without_launcher();
  do_once("train --out text --data text.txt" SMALL);
  do_once("train --out other --data text.txt --seed=5" SMALL);
  compare("text --threads 1");
  compare("text --threads 1 --part training --context 4,8 --stride 2");
  compare("text other --threads 1 --data text.txt");
}

static void masked_tokens(void **state) {
  (void)state;
  skip_without_launcher();
  do_once("train --out masked --data text.txt --architecture masked_encoder" SMALL);
  compare("masked --threads 1 --part training --context 8,6");
}

static void sentences(void **state) {
  (void)state;
  skip_without_launcher();
  do_once("train --out lines --data text.txt --unit sentences" SMALL);
  compare("lines --threads 1 --part training");
}

static void examples(void **state) {
  (void)state;
  skip_without_launcher();
  do_once("train --out examples --data examples.tsv --format=text --architecture=encoder --classes=7" SMALL);
  compare("examples --threads 1 --part training");
}

/* Rank 0 measures alone. */
static void compressed_chunks(void **state) {
  (void)state;
  skip_without_launcher();
  do_once("train --out chunks --data examples.tsv --format=text --architecture=ahca --classes=7" SMALL);
  compare("chunks --threads 1 --part training");
}

/* A model that cannot be evaluated does not keep the others from being evaluated. */
static void errors_are_printed_once(void **state) {
  test_output output = {0};
  (void)state;
  skip_without_launcher();
  do_once("train --out text --data text.txt" SMALL);
  run(LAUNCH("3"), "eval text missing text --threads 1 --data text.txt --targets 50", 3, &output);
  if (test_part_count(output.err, "hark eval: missing: there is no such run") != 1) fail_msg("\"%s\"", output.err);
  if (test_part_count(output.out, "50 targets") != 2) fail_msg("\"%s\"", output.out);
  run(LAUNCH("2"), "eval text --threads 1 --data - <text.txt", 2, &output);
  if (test_part_count(output.err, "several processes cannot read standard input") != 1) fail_msg("\"%s\"", output.err);
  test_output_free(&output);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(texts, begin, end),
      cmocka_unit_test_setup_teardown(masked_tokens, begin, end),
      cmocka_unit_test_setup_teardown(sentences, begin, end),
      cmocka_unit_test_setup_teardown(examples, begin, end),
      cmocka_unit_test_setup_teardown(compressed_chunks, begin, end),
      cmocka_unit_test_setup_teardown(errors_are_printed_once, begin, end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
