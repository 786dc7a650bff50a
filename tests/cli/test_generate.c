/* test_generate.c - hark generate and the tokens that a model sees at once: what is forgotten is said, --context makes room where positions
 * allow it, of runs, exported files and sentences. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common.h"
#include "support/cmocka_all.h"
#include "support/train/command_place.h"

/* COMMAND_SMALL has a context of 8 */
#define TINY "--layers 1 --steps 2 " COMMAND_SMALL
#define LONG_PROMPT "\"the quick brown fox\"" /* 19 characters */

static char folder[TEST_PATH_BYTES];
static test_output output;

static void expect(const char *words, int code, const char *in_out, const char *in_err) {
  command_expect(folder, words, code, in_out, in_err, &output);
}

static int begin(void **state) {
  (void)state;
  static const char *const models[] = {"rotary --positions rotary",
                                       "none --positions none",
                                       "sinusoidal --positions sinusoidal",
                                       "learned --positions learned",
                                       "kernel --positions none --positional 'bank[2](decay)'",
                                       "levels --positions none --structure hierarchical --hierarchy-block 2",
                                       "sentences --positions rotary --unit sentences"};
  char words[256], name[32];
  command_place_open(folder);
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    (void)snprintf(words, sizeof words, "train --data text.txt --out %s " TINY, models[i]);
    expect(words, HARK_EXIT_DONE, "", "");
    (void)sscanf(models[i], "%31s", name);
    (void)snprintf(words, sizeof words, "export %s --output %s.safetensors", name, name);
    expect(words, HARK_EXIT_DONE, "", "");
  }
  return 0;
}

static int end(void **state) {
  (void)state;
  command_place_close(folder, &output);
  return 0;
}

static json_t *generate(const char *source, const char *words) {
  char line[256];
  (void)snprintf(line, sizeof line, "generate %s --temperature 0 --threads 1 --json %s", source, words);
  expect(line, HARK_EXIT_DONE, "", "");
  return command_json(&output);
}

static const char *const sources[] = {"rotary", "none", "sinusoidal", "kernel", "levels", "rotary.safetensors", "kernel.safetensors"};
#define SOURCES (sizeof sources / sizeof *sources)

static void what_is_forgotten_is_said(void **state) {
  (void)state;
  for (size_t i = 0; i < SOURCES; i++) {
    json_t *object = generate(sources[i], "--prompt " LONG_PROMPT " -n 1");
    assert_non_null(
        strstr(output.err, "the prompt has 19 tokens and the model sees 8 at once: it did not see the first 15; --context 20 keeps all"));
    assert_true(command_number(object, "context") == 8 && command_number(object, "prompt_tokens") == 19);
    assert_true(command_number(object, "prompt_forgotten") == 15 && command_number(object, "forgotten") == 15);
    json_decref(object);
    object = generate(sources[i], "--prompt the -n 10");
    assert_null(strstr(output.err, "the prompt has"));
    assert_non_null(strstr(output.err, "the text has 13 tokens and the model sees 8 at once: by the end it had forgotten the first "));
    assert_true(command_number(object, "prompt_forgotten") == 0 && command_number(object, "forgotten") >= 5);
    json_decref(object);
    object = generate(sources[i], "--prompt the -n 5"); /* as many as fit: the last one is not read */
    assert_string_equal(output.err, "");
    assert_true(command_number(object, "forgotten") == 0);
    json_decref(object);
  }
}

/* With room for all nothing is forgotten, and the model goes on from what it has seen: its choices are those after the whole prompt. */
static void a_larger_context_keeps_all(void **state) {
  (void)state;
  for (size_t i = 0; i < SOURCES; i++) {
    json_t *const object = generate(sources[i], "--prompt " LONG_PROMPT " -n 12 --context 31");
    assert_non_null(strstr(output.err, "the model was trained with a context of 8 tokens, and is used with up to 31 here"));
    assert_null(strstr(output.err, "forgotten"));
    assert_true(command_number(object, "context") == 31 && command_number(object, "forgotten") == 0);
    json_t *const larger = generate(sources[i], "--prompt " LONG_PROMPT " -n 12 --context 64");
    assert_string_equal(json_string_value(json_object_get(object, "text")), json_string_value(json_object_get(larger, "text")));
    json_decref(larger);
    json_t *const endless = generate(sources[i], "--prompt " LONG_PROMPT " -n 12 --context 16777216"); /* no memory for all of it */
    assert_true(command_number(endless, "context") == 16777216);
    assert_non_null(strstr(output.err, "is used with up to 31 here"));
    assert_string_equal(json_string_value(json_object_get(object, "text")), json_string_value(json_object_get(endless, "text")));
    json_decref(object);
    json_decref(endless);
  }
  json_t *const less = generate("rotary", "--prompt the -n 10 --context 4"); /* less room is allowed too */
  assert_true(command_number(less, "context") == 4 && command_number(less, "forgotten") >= 9);
  json_decref(less);
}

static void learned_positions_have_an_end(void **state) {
  (void)state;
  static const char *const both[] = {"learned", "learned.safetensors"};
  for (int i = 0; i < 2; i++) {
    char line[128];
    (void)snprintf(line, sizeof line, "generate %s --prompt the -n 1 --context 9", both[i]);
    expect(line, HARK_EXIT_USAGE, "", "--context 9: learned positions end at the context of 8 tokens");
    assert_string_equal(output.out, "");
    json_t *const object = generate(both[i], "--prompt " LONG_PROMPT " -n 1");
    assert_non_null(strstr(output.err, "it did not see the first 15"));
    assert_null(strstr(output.err, "--context")); /* no help that does not help */
    json_decref(object);
  }
  expect("generate rotary --context 16777217", HARK_EXIT_USAGE, "",
         "--context: \"16777217\" given, expected a whole number in [0, 16777216]");
  expect("generate rotary --context -1", HARK_EXIT_USAGE, "", "--context");
}

/* A sentence has a token in front, and is forgotten like a text. */
static void sentences_are_alike(void **state) {
  (void)state;
  static const char *const both[] = {"sentences", "sentences.safetensors"};
  for (int i = 0; i < 2; i++) {
    json_t *object = generate(both[i], "--prompt " LONG_PROMPT " -n 1");
    assert_true(command_number(object, "prompt_tokens") == 20 && command_number(object, "prompt_forgotten") == 16);
    assert_non_null(strstr(output.err, "the prompt has 20 tokens and the model sees 8 at once: it did not see the first 16; --context 21"));
    json_decref(object);
    object = generate(both[i], "--prompt " LONG_PROMPT " -n 1 --context 20");
    assert_true(command_number(object, "forgotten") == 0);
    json_decref(object);
  }
}

/* Text n of several is the text of seed + n alone, also where texts are longer than the context, or end at different places. */
static void texts_together_are_those_alone(void **state) {
  (void)state;
  static const char *const options[] = {"-n 3", "-n 14", "-n 14 --stop e", "-n 6 --weights int8", "-n 14 --weights bf16"};
  static const char *const models[] = {"rotary", "kernel", "levels", "learned", "sentences"};
  for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
      char line[256];
      (void)snprintf(line, sizeof line, "generate %s --prompt the --json --seed 5 --sequences 4 %s", models[m], options[o]);
      expect(line, HARK_EXIT_DONE, "", "");
      json_t *const together = command_json(&output), *const list = json_object_get(together, "sequences");
      assert_int_equal(json_array_size(list), 4);
      for (size_t n = 0; n < 4; n++) {
        (void)snprintf(line, sizeof line, "generate %s --prompt the --json --seed %zu %s", models[m], 5 + n, options[o]);
        expect(line, HARK_EXIT_DONE, "", "");
        json_t *const alone = command_json(&output), *const one = json_array_get(list, n);
        assert_string_equal(json_string_value(json_object_get(one, "text")), json_string_value(json_object_get(alone, "text")));
        assert_true(command_number(one, "tokens") == command_number(alone, "tokens"));
        assert_true(command_number(one, "seed") == 5. + (double)n);
        assert_true(command_number(one, "forgotten") == command_number(alone, "forgotten"));
        json_decref(alone);
      }
      json_decref(together);
    }
  }
  expect("generate rotary --prompt the -n 2 --seed 5 --sequences 2", HARK_EXIT_DONE, "\n---\nthe", "");
  expect("generate rotary --sequences 2 --temperature 0", HARK_EXIT_USAGE, "", "sequences");
  expect("generate rotary --sequences 2 --seed 9223372036854775807", HARK_EXIT_USAGE, "",
         "--seed: 9223372036854775807 is too large for 2 samples, numbered from it: expected at most 9223372036854775806");
  expect("generate rotary --sequences 2 --seed 9223372036854775806 -n 1 --json", HARK_EXIT_DONE, "\"seed\": 9223372036854775807", "");
  expect("generate rotary --sequences 0", HARK_EXIT_USAGE, "", "sequences");
  (void)test_file_write_text(folder, "bad.txt", "the \xff");
  expect("generate rotary --file bad.txt", HARK_EXIT_BAD_INPUT, "", "--file bad.txt: text:1:5: invalid UTF-8");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_forgotten_is_said), cmocka_unit_test(a_larger_context_keeps_all),
                                     cmocka_unit_test(learned_positions_have_an_end), cmocka_unit_test(sentences_are_alike),
                                     cmocka_unit_test(texts_together_are_those_alone)};
  return cmocka_run_group_tests_name("generate", tests, begin, end);
}
