/* test_samples.c - hark train --sample-tokens: a text with every checkpoint, that of hark generate, which changes nothing in training. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/command_fixture.h"

#define TRAIN "train --data text.txt --seed 7 --checkpoint-every 2 --keep 9 " COMMAND_TINY
#define SAMPLES "--sample-tokens 5 --sample-prompt 'the' "

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

/* The lines of a file, for json_decref(). */
static json_t *lines_of(const char *name) {
  char *const text = test_file_text(folder, name);
  json_t *const lines = json_array();
  for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    json_t *const object = json_loads(line, 0, NULL);
    if (object == NULL) fail_msg("%s: no JSON: %s", name, line);
    assert_int_equal(json_array_append_new(lines, object), 0);
  }
  free(text);
  return lines;
}

static const char *text_of(const json_t *object, const char *name) {
  const char *const text = json_string_value(json_object_get(object, name));
  if (text == NULL) fail_msg("no text %s", name);
  return text;
}

/* Steps and texts are those of the checkpoints: what hark generate writes with the same seed, as far as the context of 8 has room. */
static void expect_samples(const char *run, const int *steps, size_t count) {
  char words[256];
  (void)snprintf(words, sizeof words, "%s/samples.jsonl", run);
  json_t *const lines = lines_of(words);
  assert_int_equal(json_array_size(lines), count);
  for (size_t i = 0; i < count; i++) {
    const json_t *const line = json_array_get(lines, i);
    assert_int_equal(command_number(line, "step"), steps[i]);
    assert_string_equal(text_of(line, "prompt"), "the");
    (void)snprintf(words, sizeof words, "generate %s --checkpoint step-%d --prompt the --seed 7 --max-new-tokens 5 --json", run, steps[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    json_t *const generated = command_json(&output);
    assert_string_equal(text_of(line, "text"), text_of(generated, "text"));
    assert_true(strlen(text_of(line, "text")) >= 5);
    json_decref(generated);
  }
  json_decref(lines);
}

static void texts_are_those_of_checkpoints(void **state) {
  (void)state;
  expect(TRAIN "--steps 5 --out run " SAMPLES, HARK_EXIT_DONE, "", "");
  expect_samples("run", (const int[]){2, 4, 5}, 3);
  expect("train --resume run --steps 6", HARK_EXIT_DONE, "", ""); /* goes on with the samples too */
  expect_samples("run", (const int[]){2, 4, 5, 6}, 4);
  expect("verify run", HARK_EXIT_DONE, "", "");
}

static void training_does_not_change(void **state) {
  (void)state;
  static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
  expect(TRAIN "--steps 5 --out plain", HARK_EXIT_DONE, "", "");
  expect(TRAIN "--steps 5 --out run " SAMPLES, HARK_EXIT_DONE, "", "");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char name[2][128];
    size_t bytes[2];
    unsigned char *data[2];
    for (int r = 0; r < 2; r++) {
      (void)snprintf(name[r], sizeof name[r], "%s/checkpoints/step-5/%s", r == 0 ? "plain" : "run", names[i]);
      data[r] = test_file_read(test_path(folder, name[r]), &bytes[r]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(data[0], data[1], bytes[0]);
    free(data[0]);
    free(data[1]);
  }
  assert_int_equal(access(test_path(folder, "plain/samples.jsonl"), F_OK), -1);
}

/* Sentences end with their line, and need no prompt. */
static void a_sentence_ends(void **state) {
  (void)state;
  expect(TRAIN "--steps 2 --unit sentences --out run --sample-tokens 7", HARK_EXIT_DONE, "", "");
  json_t *const lines = lines_of("run/samples.jsonl");
  assert_int_equal(json_array_size(lines), 1);
  const json_t *const line = json_array_get(lines, 0);
  assert_string_equal(text_of(line, "prompt"), "");
  assert_null(strchr(text_of(line, "text"), '\n'));
  json_decref(lines);
}

/* A model of bytes that has learned nothing also writes zero bytes, which JSON of other programs does not take. */
static void any_bytes_are_text(void **state) {
  (void)state;
  expect(
      "train --data text.txt --tokenizer bytes --layers 1 --width 16 --heads 2 --context 1024 --batch 1 --threads 1 --steps 1 --out run "
      "--sample-tokens 1000",
      HARK_EXIT_DONE, "", "");
  char *const text = test_file_text(folder, "run/samples.jsonl");
  assert_null(strstr(text, "u0000"));
  assert_non_null(strstr(text, "\xef\xbf\xbd"));
  free(text);
  json_t *const lines = lines_of("run/samples.jsonl");
  assert_true(strlen(text_of(json_array_get(lines, 0), "text")) >= 1000);
  json_decref(lines);
}

/* Before a step, not with the next checkpoint. */
static void another_file_is_kept(void **state) {
  (void)state;
  expect(TRAIN "--steps 2 --out run " SAMPLES, HARK_EXIT_DONE, "", "");
  test_file_write_text(folder, "run/samples.jsonl", "\x1f\x8b\x08 compressed");
  expect("train --resume run --steps 4", HARK_EXIT_BAD_INPUT, "", "samples.jsonl: is compressed with gzip");
  assert_int_equal(access(test_path(folder, "run/checkpoints/step-4"), F_OK), -1);
  char *const text = test_file_text(folder, "run/samples.jsonl");
  assert_string_equal(text, "\x1f\x8b\x08 compressed");
  free(text);
}

static void what_cannot_be_generated_is_refused(void **state) {
  (void)state;
  static const struct {
    const char *words, *message;
  } refused[] = {
      {"--sample-prompt 'the'", "--sample-prompt: has no effect here, it needs --sample-tokens above 0"},
      {"--sample-tokens 5 --architecture masked_encoder", "--sample-tokens: has no effect here, it needs --architecture decoder"},
      {"--sample-tokens -1", "--sample-tokens: \"-1\" given"},
      {"--sample-tokens 5 --sample-prompt '\xc3\xa9'", "run.sample_prompt:1:1: U+00E9 is not in the vocabulary"},
      {"--sample-tokens 5 --sample-prompt 'the the '", "run.sample_prompt: has 8 tokens, expected fewer than model.context, 8"},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    char words[512];
    (void)snprintf(words, sizeof words, TRAIN "--steps 2 --out run %s", refused[i].words);
    expect(words, HARK_EXIT_USAGE, "", refused[i].message);
    assert_int_equal(access(test_path(folder, "run"), F_OK), -1);
  }
  /* a character that the vocabulary lacks is mapped as in the text */
  expect(TRAIN "--steps 2 --out run --unknown map --sample-tokens 5 --sample-prompt '\xc3\xa9'", HARK_EXIT_DONE, "", "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(texts_are_those_of_checkpoints), TEST(training_does_not_change),           TEST(a_sentence_ends), TEST(any_bytes_are_text),
      TEST(another_file_is_kept),           TEST(what_cannot_be_generated_is_refused)};
  return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
