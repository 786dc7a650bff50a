/* test_table.c - what the tables of subcommands and options promise, for every row: every wrong value of every option of every subcommand
 * gets one line that names it, and exit code 2; wrong names get the nearest.
 *
 * The cases are made from the tables, so that a new option or subcommand is tested by being there.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "config/options_set.h"
#include "io/number.h"
#include "io/words.h"
#include "support/cmocka_all.h"
#include "support/command.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "support/train/option_list.h"

#define PROBLEM_LIMIT 50 /* of src/config/options.c: more are counted, not kept */

static char folder[TEST_PATH_BYTES];
static test_output output;
static hark_context *context;

/* Subcommands that need words besides their options, so that a wrong value is the only thing wrong. */
static const struct {
  const char *name, *words;
} needs[] = {{"train", "--data text.txt"},
             {"attend", "--input in.safetensors --output out.safetensors"},
             {"bench", "step"},
             {"export", "run --output model.safetensors"},
             {"import", "run --output imported.safetensors"},
             {"sweep", "plan.yaml"},
             {"data", "info examples"},
             {"tokenize", "run text.txt"},
             {"detokenize", "run text.txt"},
             {"lab", "approximation"},
             {"completion", "bash"},
             {"inspect", "run --text text.txt"},
             {"kernels", "fit run"}};

static const char *words_for(const hark_command *command) {
  for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
    if (strcmp(needs[i].name, command->name) == 0) return needs[i].words;
  }
  if (strncmp(command->arguments, "RUN", 3) == 0) return "run";
  if (command->argument_minimum > 0) fail_msg("%s needs arguments: give it a row in `needs`", command->name);
  return "";
}

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  if (chdir(folder) != 0) return 1;
  context = test_reference_open();
  test_file_write_text(folder, "text.txt", "the quick brown fox jumps over the lazy dog, again and again and again.\n");
  test_command_line(hark_main,
                    "hark train --data text.txt --out run --steps 1 --layers 1 --width 8 --heads 1 --context 4 --batch 1 --log-every 1 "
                    "--validation-fraction 0.2",
                    &output);
  if (output.code != 0) print_error("%s", output.err);
  return output.code;
}

static int end(void **state) {
  (void)state;
  test_output_free(&output);
  hark_context_destroy(&context);
  if (chdir("/") != 0) return 1;
  test_folder_remove(folder);
  return 0;
}

/* ---- wrong values ---- */

static int checked_values;

/* Fails unless "hark NAME WORDS... EXTRA..." ends with 2 and one line that begins with the option as it was written. */
static void expect_refusal(const hark_command *command, int extra_count, const char *const *extra, const char *flag, const char *part) {
  const char *words[64] = {"hark", command->name};
  int count = 2;
  char *const needed = strdup(words_for(command));
  for (char *at = strtok(needed, " "); at != NULL; at = strtok(NULL, " ")) words[count++] = at;
  for (int i = 0; i < extra_count; i++) words[count++] = extra[i];
  test_command_call(hark_main, count, words, &output);
  char begins[HARK_OPTION_WORD_BYTES + 64];
  snprintf(begins, sizeof begins, "hark %s: %s: ", command->name, flag);
  const bool good = output.code == HARK_EXIT_USAGE && output.out[0] == 0 && test_line_count(output.err) == 1 &&
                    strncmp(output.err, begins, strlen(begins)) == 0 && strstr(output.err, part) != NULL;
  if (!good) {
    fail_msg("hark %s %s %s %s\nexit code %d, expected 2\nstdout: %s\nstderr: %s\nexpected one line \"%s...%s\"", command->name, needed,
             extra[0], extra_count > 1 ? extra[1] : "", output.code, output.out, output.err, begins, part);
  }
  free(needed);
  checked_values++;
}

/* --flag=VALUE, and where the value is no flag also --flag VALUE. */
static void refuse_value(const hark_command *command, const hark_option *option, const char *value, const char *part) {
  char flag[HARK_OPTION_WORD_BYTES], joined[HARK_OPTION_WORD_BYTES + 256];
  test_positive_flag(option, flag);
  snprintf(joined, sizeof joined, "%s=%s", flag, value);
  const char *const one[] = {joined}, *const two[] = {flag, value};
  expect_refusal(command, 1, one, flag, part);
  if (option->type != HARK_OPTION_BOOL && value[0] != '-') expect_refusal(command, 2, two, flag, part);
}

/* Numbers just outside of an interval "[1, inf)". */
static void refuse_outside(const hark_command *command, const hark_option *option) {
  if (option->range == NULL) return;
  const char *const range = option->range, *const comma = strchr(range, ',');
  const bool open_low = range[0] == '(', open_high = range[strlen(range) - 1] == ')';
  double bound;
  char text[HARK_NUMBER_BYTES];
  if (hark_number_read(range + 1, (size_t)(comma - range) - 1, &bound)) {
    refuse_value(command, option, hark_number_print(open_low ? bound : bound - 1, text), "expected");
  }
  if (hark_number_read(comma + 2, strlen(comma + 2) - 1, &bound)) {
    refuse_value(command, option, hark_number_print(open_high ? bound : bound + 1, text), "expected");
  }
}

static void refuse_words(const hark_command *command, const hark_option *option) {
  char word[HARK_OPTION_WORD_BYTES], part[HARK_OPTION_WORD_BYTES + 32];
  refuse_value(command, option, "", "expected one of");
  refuse_value(command, option, "zzzzzzzzzz", "expected one of");
  for (int w = 0; hark_option_choice_at(option->range, w, word); w++) {
    snprintf(part, sizeof part, "; did you mean %s?\n", word);
    const size_t length = strlen(word);
    word[length - 1] ^= 1; /* another letter at the end */
    if (length > 1 && hark_option_choice(option->range, word) < 0) refuse_value(command, option, word, part);
  }
}

/* What is no number has a message without the largest one. */
static void refuse_garbled(const hark_command *command, const hark_option *option) {
  static const char *const garbled[] = {"..5", ".", "1.2.3", "1e", "1e+", "1e1e1", "99999999999999999999x"};
  hark_text expected = hark_text_empty(context);
  hark_option_expected(option, &expected);
  hark_text_append(&expected, "\n");
  for (size_t i = 0; i < sizeof garbled / sizeof garbled[0]; i++) refuse_value(command, option, garbled[i], hark_text_get(&expected));
  hark_text_free(&expected);
}

/* Of intervals without an end: the message has the largest number that is read. */
static void refuse_large(const hark_command *command, const hark_option *option) {
  static const char *const large[] = {"9223372036854775808", "18446744073709551615", "18446744073709551616", "1e19", "1e400", "1e18"};
  const bool unlimited = option->range == NULL || strstr(option->range, "inf") != NULL;
  for (size_t i = 0; i < sizeof large / sizeof large[0] && unlimited; i++)
    refuse_value(command, option, large[i],
                 i < 5 ? "at most 9223372036854775807\n" : "from 9007199254740992 on without point and exponent\n");
}

static void refuse_all_values(const hark_command *command, const hark_option *option) {
  static const char *const numbers[] = {"",      "abc",  "1x",  "1 ",   " 1",  "nan", "inf", "-inf", "infinity",
                                        "1e999", "0x10", "1,5", "1.5.", "--5", "1e",  "+",   "1e-",  "1;rm"};
  static const char *const wholes[] = {"1.5", "9223372036854775808", "-9223372036854775809", "99999999999999999999999999", "1e30", "1s"};
  static const char *const times[] = {"10q", "1h30", "-5s", "s", "1hm"};
  char flag[HARK_OPTION_WORD_BYTES];
  test_positive_flag(option, flag);
  switch (option->type) {
    case HARK_OPTION_INT:
      for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) refuse_value(command, option, wholes[i], "expected a whole number");
      refuse_large(command, option);
      refuse_garbled(command, option);
      break;
    case HARK_OPTION_DURATION:
      for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) refuse_value(command, option, times[i], "expected a time");
      break;
    case HARK_OPTION_LAYERS:
    case HARK_OPTION_ENUM: refuse_words(command, option); break;
    case HARK_OPTION_BOOL: {
      char negative[HARK_OPTION_WORD_BYTES + 16], negated[HARK_OPTION_WORD_BYTES + 8];
      snprintf(negated, sizeof negated, "--no-%s", flag + 2);
      snprintf(negative, sizeof negative, "%s=true", negated);
      const char *const words[] = {negative};
      expect_refusal(command, 1, words, negated, "takes no value");
      refuse_value(command, option, "perhaps", "expected true or false");
      refuse_value(command, option, "", "expected true or false");
      break;
    }
    case HARK_OPTION_FLOAT:
    case HARK_OPTION_STRING:
    case HARK_OPTION_LIST: break;
  }
  if (option->type == HARK_OPTION_INT || option->type == HARK_OPTION_FLOAT || option->type == HARK_OPTION_DURATION) {
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) refuse_value(command, option, numbers[i], "expected");
    refuse_outside(command, option);
  }
  if (option->type == HARK_OPTION_BOOL) return;
  for (int f = 0; hark_option_flag(option, f, flag); f++) { /* every spelling */
    const char *const alone[] = {flag}, *const before_flag[] = {flag, "--no-color"};
    expect_refusal(command, 1, alone, flag, "needs a value");
    expect_refusal(command, 2, before_flag, flag, "needs a value");
  }
}

static void every_wrong_value_of_every_option_is_refused(void **state) {
  (void)state;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const test_option_list list = test_options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) refuse_all_values(hark_commands[c], list.items[i]);
  }
  print_message("%d wrong values\n", checked_values);
  assert_true(checked_values > 3000);
}

/* All options wrong in one call: a line each, as many as are kept. */
static void all_wrong_values_are_reported_at_once(void **state) {
  (void)state;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const test_option_list list = test_options_of(hark_commands[c]);
    static char flags[TEST_OPTIONS_LIMIT][HARK_OPTION_WORD_BYTES], joined[TEST_OPTIONS_LIMIT][HARK_OPTION_WORD_BYTES + 8];
    const char *words[TEST_OPTIONS_LIMIT + 2] = {"hark", hark_commands[c]->name};
    int wrong = 0;
    for (int i = 0; i < list.count; i++) {
      if (list.items[i]->type == HARK_OPTION_STRING || list.items[i]->type == HARK_OPTION_LIST) continue;
      test_positive_flag(list.items[i], flags[wrong]);
      snprintf(joined[wrong], sizeof joined[wrong], "%s=??", flags[wrong]);
      words[wrong + 2] = joined[wrong];
      wrong++;
    }
    if (wrong == 0) continue;
    test_command_call(hark_main, wrong + 2, words, &output);
    assert_int_equal(output.code, HARK_EXIT_USAGE);
    const int kept = wrong < PROBLEM_LIMIT ? wrong : PROBLEM_LIMIT;
    for (int i = 0; i < kept; i++) {
      char line[HARK_OPTION_WORD_BYTES + 64];
      snprintf(line, sizeof line, ": %.*s: \"??\" given", HARK_OPTION_WORD_BYTES, flags[i]);
      if (strstr(output.err, line) == NULL) fail_msg("\"%s\" is not among\n%s", line, output.err);
    }
    if (wrong > PROBLEM_LIMIT && strstr(output.err, "more problems") == NULL) fail_msg("%s", output.err);
  }
  /* also where something else is wrong: a run, a file that is not there */
  test_command_line(hark_main, "hark generate none --top-k x --temperature y", &output);
  assert_int_equal(output.code, HARK_EXIT_USAGE);
  if (test_line_count(output.err) != 3 || strstr(output.err, "none") == NULL) fail_msg("%s", output.err);
  test_command_line(hark_main, "hark train --config none.yaml --layers x", &output);
  assert_int_equal(output.code, HARK_EXIT_USAGE);
  if (test_line_count(output.err) != 2 || strstr(output.err, "none.yaml") == NULL) fail_msg("%s", output.err);
}

/* The same keys in a file, one a line: every problem says which line. */
static void wrong_values_in_a_file_are_reported_with_their_lines(void **state) {
  (void)state;
  const test_option_list list = test_options_of(hark_command_find("config"));
  enum { BYTES = 1 << 15 };
  char *const text = calloc(1, BYTES);
  const char *keys[TEST_OPTIONS_LIMIT];
  int wrong = 0;
  for (int i = 0; i < list.count; i++) {
    if (!list.key[i] || list.items[i]->type == HARK_OPTION_STRING || list.items[i]->type == HARK_OPTION_LIST) continue;
    keys[wrong++] = list.items[i]->name;
    const size_t used = strlen(text);
    assert_true(snprintf(text + used, BYTES - used, "%s: '?%s'\n", list.items[i]->name, "?") < (int)(BYTES - used));
  }
  test_file_write_text(folder, "wrong.yaml", text);
  free(text);
  test_command_line(hark_main, "hark config --config wrong.yaml", &output);
  assert_int_equal(output.code, HARK_EXIT_USAGE);
  assert_true(wrong > 20);
  for (int i = 0; i < wrong && i < PROBLEM_LIMIT; i++) {
    char line[HARK_OPTION_WORD_BYTES + 64];
    snprintf(line, sizeof line, "hark config: wrong.yaml:%d: %s: \"??\" given, expected ", i + 1, keys[i]);
    if (strstr(output.err, line) == NULL) fail_msg("\"%s\" is not among\n%s", line, output.err);
  }
}

/* ---- wrong names ---- */

/* Steps from a word to the nearest other flag of the list. */
static int steps_to_others(const test_option_list *list, int but, const char *word) {
  int steps = 1000;
  for (int i = 0; i < list->count; i++) {
    char flag[HARK_OPTION_WORD_BYTES];
    if (i == but) continue;
    for (int f = 0; hark_option_flag(list->items[i], f, flag); f++) {
      const int distance = hark_word_distance(word + 2, flag + strspn(flag, "-"));
      steps = distance < steps ? distance : steps;
    }
    const char *const dot = strrchr(list->items[i]->name, '.');
    const int last = hark_word_distance(word + 2, dot != NULL ? dot + 1 : list->items[i]->name);
    steps = last < steps ? last : steps;
  }
  return steps;
}

static void a_wrong_flag_gets_the_nearest(void **state) {
  (void)state;
  int checked = 0;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const test_option_list list = test_options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      char flag[HARK_OPTION_WORD_BYTES], first[HARK_OPTION_WORD_BYTES], wrong[HARK_OPTION_WORD_BYTES + 4],
          part[HARK_OPTION_WORD_BYTES + 32];
      test_positive_flag(list.items[i], flag);
      (void)hark_option_flag(list.items[i], 0, first); /* what is suggested */
      if (strncmp(first, "--no-", 5) == 0) memmove(first + 2, first + 5, strlen(first + 5) + 1);
      snprintf(wrong, sizeof wrong, "%sq", flag);
      const bool alone = steps_to_others(&list, i, wrong) > 1;
      for (char *at = first; *at != 0; at++) { /* keys are suggested as they are spelled in files */
        if (*at == '-' && at > first + 1 && strchr(first, '.') != NULL) *at = '_';
      }
      snprintf(part, sizeof part, "unknown flag; did you mean %s?\n", alone ? first : "");
      if (!alone) *strrchr(part, '?') = 0;
      const char *const words[] = {wrong};
      expect_refusal(hark_commands[c], 1, words, wrong, part);
      checked += alone;
    }
  }
  assert_true(checked > 100);
}

static void a_wrong_subcommand_gets_the_nearest(void **state) {
  (void)state;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    char wrong[64], part[HARK_OPTION_WORD_BYTES + 32];
    snprintf(wrong, sizeof wrong, "%sq", hark_commands[c]->name);
    snprintf(part, sizeof part, "did you mean %s?", hark_commands[c]->name);
    const char *const words[] = {"hark", wrong};
    test_command_call(hark_main, 2, words, &output);
    if (output.code != HARK_EXIT_USAGE || test_line_count(output.err) != 1 || strstr(output.err, part) == NULL) fail_msg("%s", output.err);
    if (hark_commands[c]->words == NULL) continue;
    char word[HARK_OPTION_WORD_BYTES];
    (void)hark_option_choice_at(hark_commands[c]->words, 0, word);
    snprintf(part, sizeof part, "did you mean %s?", word);
    strcat(word, "q");
    const char *const argument[] = {"hark", hark_commands[c]->name, word};
    test_command_call(hark_main, 3, argument, &output);
    if (output.code != HARK_EXIT_USAGE || test_line_count(output.err) != 1 || strstr(output.err, part) == NULL) fail_msg("%s", output.err);
  }
}

/* "ization" for "isation", in flags and in words. */
static void both_spellings_are_read(void **state) {
  (void)state;
  int checked = 0;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const test_option_list list = test_options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      char flag[HARK_OPTION_WORD_BYTES];
      test_positive_flag(list.items[i], flag);
      char *const at = strstr(flag, "isation");
      if (at == NULL) continue;
      at[1] = 'z';
      if (list.items[i]->type == HARK_OPTION_BOOL || list.items[i]->type == HARK_OPTION_STRING)
        fail_msg("%s: make this test know it", flag);
      const char *const words[] = {flag, "??"};
      expect_refusal(hark_commands[c], 2, words, flag, "expected"); /* the flag is known: its value is what is wrong */
      checked++;
    }
  }
  assert_true(checked > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_wrong_value_of_every_option_is_refused),
      cmocka_unit_test(all_wrong_values_are_reported_at_once),
      cmocka_unit_test(wrong_values_in_a_file_are_reported_with_their_lines),
      cmocka_unit_test(a_wrong_flag_gets_the_nearest),
      cmocka_unit_test(a_wrong_subcommand_gets_the_nearest),
      cmocka_unit_test(both_spellings_are_read),
  };
  return cmocka_run_group_tests_name("table", tests, begin, end);
}
