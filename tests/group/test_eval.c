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

/* Removes what the clock put into the output: "time": 0.01 in JSON, "in 0.0 s" in text. */
static void drop_times(char *text) {
  for (char *at = text; (at = strstr(at, "\"time\": ")) != NULL;) {
    char *const value = at + strlen("\"time\": "), *const rest = value + strcspn(value, ",}");
    memmove(value, rest, strlen(rest) + 1);
    at = value;
  }
  for (char *at = text; (at = strstr(at, " in ")) != NULL;) {
    char *const value = at + strlen(" in "), *const rest = value + strspn(value, "0123456789.");
    memmove(value, rest, strlen(rest) + 1);
    at = value;
  }
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

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) count++;
  return count;
}

static void assert_error(const char *words, int code, const char *message, const char *printed) {
  test_output output = {0};
  run(LAUNCH("3"), words, code, &output);
  if (count_of(output.err, message) != 1) fail_msg("%s: \"%s\", expected \"%s\" once", words, output.err, message);
  if (count_of(output.out, printed) != 1) fail_msg("%s: \"%s\", expected \"%s\" once", words, output.out, printed);
  test_output_free(&output);
}

/* A model that cannot be evaluated does not keep the others from being evaluated. */
static void errors_are_printed_once(void **state) {
  (void)state;
  skip_without_launcher();
  do_once("train --out text --data text.txt" SMALL);
  assert_error("eval text missing text --threads 1 --data text.txt --targets 50", 2, "missing", "");
  test_output output = {0};
  test_command_run(folder, LAUNCH("2"), "eval text --threads 1 --data - <text.txt", &output);
  if (output.code == 0 || count_of(output.err, "several processes cannot read standard input") != 1) fail_msg("\"%s\"", output.err);
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
