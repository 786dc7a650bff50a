/* test_estimate.c - the memory that hark train says it will need, against the most that the process really had (the resident peak), for
 * configurations that differ in everything that memory depends on. The bound is 10 % of what was measured. */
#define _DEFAULT_SOURCE /* wait4 */

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command.h"
#include "support/flags.h"
#include "support/sanitized.h"
#include "support/text_files.h"

#define BOUND 0.10
#define WORDS_LIMIT 64

/* Layers, width, context, batch, recomputation, accumulation, dropout, vocabulary, attention and the kind of model all vary. */
static const char *const configurations[] = {
    "--layers 2 --width 128 --heads 4 --context 128 --batch 8",
    "--layers 8 --width 128 --heads 4 --context 256 --batch 8",
    "--layers 8 --width 128 --heads 4 --context 256 --batch 8 --recompute",
    "--layers 2 --width 512 --heads 8 --context 64 --batch 4 --accumulate 3",
    "--layers 4 --width 256 --heads 4 --context 256 --batch 8 --dropout 0.1 --attention-dropout 0.1 --model.embedding-dropout 0.1",
    "--layers 1 --width 64 --heads 2 --context 64 --batch 2",
    "--layers 2 --width 256 --heads 4 --context 128 --batch 16 --data wide.txt --no-tie-embeddings",
    "--layers 4 --width 256 --heads 4 --key-heads 2 --context 512 --batch 2 --structure window --window 32 --forget-gate",
    "--layers 3 --width 384 --heads 6 --context 128 --batch 6 --activation gated_silu --norm rms_norm --bias --positions learned",
    "--layers 6 --width 192 --heads 6 --context 256 --batch 8 --positions none --positional t5+rbf+decay --positional-scope head",
    "--layers 3 --width 128 --heads 4 --context 300 --batch 12 --data texts.tsv --format text --architecture encoder --positions "
    "sinusoidal",
    "--layers 2 --width 192 --heads 4 --context 300 --batch 4 --data pairs.tsv --format pairs --architecture encoder --pooling first "
    "--structure hierarchical",
    "--layers 2 --width 64 --heads 4 --context 140000 --batch 1 --structure hierarchical --recompute --data long.txt", /* in slices */
    "--layers 6 --width 320 --heads 5 --context 96 --batch 12 --kernel rbf --sigma 4 --threads 1 --tokenizer bytes",
};
#define CONFIGURATIONS (sizeof configurations / sizeof configurations[0])

static char folder[TEST_PATH_BYTES];
static test_output output;

/* 64 texts of 300 letters in two classes, so that the first batch is as large as a batch can be; and as many pairs. */
static void make_examples(const char *text) {
  char *const lines = malloc(64 * 320), *const pairs = malloc(64 * 640);
  size_t single = 0, both = 0;
  for (int i = 0; i < 64; i++) {
    single += (size_t)sprintf(lines + single, "%d\t%.300s\n", i % 2, text + 100 * i);
    both += (size_t)sprintf(pairs + both, "%d\ta\tb\t%.300s\t%.300s\n", i % 2, text + 100 * i, text + 200 * i);
  }
  test_file_write(folder, "texts.tsv", lines, single);
  test_file_write(folder, "pairs.tsv", pairs, both);
  free(lines);
  free(pairs);
}

/* Texts of 40,000 and of 150,000 letters; a wide one with 6,000 different characters, three bytes each. */
static void make_texts(void) {
  enum { LONG = 150000 };
  char *const text = malloc(40001), *const wide = malloc(3 * 30000 + 1), *const long_text = malloc(LONG);
  for (int i = 0; i < 40000; i++) text[i] = "the quick brown fox jumps over lazy dogs "[(i + i / 13) % 41];
  text[40000] = '\0';
  for (int i = 0; i < 30000; i++) {
    const unsigned code = 0x4e00u + (unsigned)(i * 7 % 6000);
    wide[3 * i] = (char)(0xe0 | code >> 12);
    wide[3 * i + 1] = (char)(0x80 | (code >> 6 & 0x3f));
    wide[3 * i + 2] = (char)(0x80 | (code & 0x3f));
  }
  for (int i = 0; i < LONG; i++) long_text[i] = text[i % 40000];
  test_file_write_text(folder, "text.txt", text);
  test_file_write(folder, "long.txt", long_text, LONG);
  make_examples(text);
  test_file_write(folder, "wide.txt", wide, 3 * 30000);
  free(text);
  free(wide);
  free(long_text);
}

/* The resident peak of a process of its own, in bytes. */
static double measure(const char *words) {
  static char line[1280];
  const char *arguments[WORDS_LIMIT] = {"hark"};
  int count = 1;
  (void)snprintf(line, sizeof line, "train %s", words);
  test_flags_settle_text(line);
  for (char *at = strtok(line, " "); at != NULL && count + 1 < WORDS_LIMIT; at = strtok(NULL, " ")) arguments[count++] = at;
  arguments[count] = NULL;
  (void)fflush(stdout);
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    if (chdir(folder) != 0 || freopen("/dev/null", "w", stdout) == NULL || freopen("log", "w", stderr) == NULL) _exit(1);
    execv(HARK_COMMAND, (char *const *)arguments);
    _exit(1);
  }
  int status = 0;
  struct rusage use;
  assert_int_equal(wait4(process, &status, 0, &use), process);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    print_error("%s", test_file_text(folder, "log"));
    fail_msg("hark train %s: wait status 0x%x", words, (unsigned)status);
  }
  return 1024.0 * (double)use.ru_maxrss; /* Linux counts KiB */
}

static double estimate(const char *words) {
  char line[1280];
  json_error_t error;
  (void)snprintf(line, sizeof line, "train --estimate --json %s", words);
  test_command_run(folder, "", line, &output);
  json_t *const object = json_loads(output.out, 0, &error);
  if (output.code != 0 || object == NULL) fail_msg("hark %s: %s", line, output.err);
  const double bytes = json_number_value(json_object_get(object, "memory_bytes"));
  json_decref(object);
  return bytes;
}

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  make_texts();
  return 0;
}

static int end(void **state) {
  (void)state;
  test_output_free(&output);
  test_folder_remove(folder);
  return 0;
}

static void the_estimate_is_within_ten_percent(void **state) {
  (void)state;
  if (TEST_SANITIZED) skip();
  int missed = 0;
  for (size_t i = 0; i < CONFIGURATIONS; i++) {
    char words[1024], out[32];
    const char *const text = strstr(configurations[i], "--data") == NULL ? "--data text.txt" : "";
    (void)snprintf(out, sizeof out, "run-%d", (int)i);
    (void)snprintf(words, sizeof words, "--steps 1 --validation-fraction 0.02 --threads 2 --out %s %s %s", out, text, configurations[i]);
    const double estimated = estimate(words), real = measure(words), error = estimated / real - 1;
    printf("%6.1f MiB measured, %6.1f estimated, %+5.1f %%  %s\n", real / (1 << 20), estimated / (1 << 20), 100 * error, configurations[i]);
    missed += error > BOUND || error < -BOUND;
  }
  assert_int_equal(missed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(the_estimate_is_within_ten_percent, begin, end)};
  return cmocka_run_group_tests_name("estimate", tests, NULL, NULL);
}
