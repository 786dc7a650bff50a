/* test_table.c - what the tables of subcommands and options promise, for every row: help, manual page and completion name every option, and
 * every wrong value of every option of every subcommand gets one line that names it, and exit code 2.
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

#define OPTIONS_LIMIT 256 /* of one subcommand */
#define PROBLEM_LIMIT 50  /* of src/config/options.c: more are counted, not kept */

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

/* ---- the options of a subcommand, read from its tables by the test itself ---- */

static bool takes(const hark_option *option, const char *command) {
  if (option->commands == NULL) return true;
  const size_t length = strlen(command);
  for (const char *at = option->commands; (at = strstr(at, command)) != NULL; at += length) {
    if ((at == option->commands || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0)) return true;
  }
  return false;
}

typedef struct option_list {
  const hark_option *items[OPTIONS_LIMIT];
  bool key[OPTIONS_LIMIT]; /* of a configuration */
  int count;
} option_list;

static option_list options_of(const hark_command *command) {
  option_list list = {.count = 0};
  for (int t = 0; t < HARK_COMMAND_TABLES; t++) {
    bool repeated = false; /* several tasks may share a table */
    for (int earlier = 0; earlier < t; earlier++) repeated = repeated || command->tables[earlier] == command->tables[t];
    if (command->tables[t] == NULL || repeated) continue;
    for (int i = 0; i < command->tables[t]->count; i++) {
      const hark_option *const option = &command->tables[t]->options[i];
      if (!takes(option, command->name)) continue;
      assert_true(list.count < OPTIONS_LIMIT);
      list.key[list.count] = command->tables[t]->configuration;
      list.items[list.count++] = option;
    }
  }
  return list;
}

/* The flag of an option that the tests use: the first one with two dashes. */
static void long_flag(const hark_option *option, char flag[HARK_OPTION_WORD_BYTES]) {
  for (int i = 0; hark_option_flag(option, i, flag); i++) {
    if (flag[1] == '-') return;
  }
  fail_msg("option %s has no long flag", option->name);
}

/* --flag for --no-flag: what takes a value. */
static void positive_flag(const hark_option *option, char flag[HARK_OPTION_WORD_BYTES]) {
  long_flag(option, flag);
  if (strncmp(flag, "--no-", 5) == 0) memmove(flag + 2, flag + 5, strlen(flag + 5) + 1);
}

/* `text` holds `word` with nothing after it that would make it another word. */
static bool holds(const char *text, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
    if (strchr(" ,=;)|'\"[\\\n", at[length]) != NULL) return true;
  }
  return false;
}

/* ---- help, manual page, completion ---- */

static int call_line(const char *format, const char *name) {
  char line[512];
  snprintf(line, sizeof line, format, name);
  test_command_line(hark_main, line, &output);
  return output.code;
}

static void help_names_every_option(void **state) {
  (void)state;
  int checked = 0;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const option_list list = options_of(hark_commands[c]);
    if (call_line("hark %s --help-all", hark_commands[c]->name) != 0) fail_msg("%s", output.err);
    assert_string_equal(output.err, "");
    for (int i = 0; i < list.count; i++) {
      char word[HARK_OPTION_WORD_BYTES];
      for (int f = 0; hark_option_flag(list.items[i], f, word); f++) {
        if (!holds(output.out, word)) fail_msg("hark %s --help-all does not name %s", hark_commands[c]->name, word);
        checked++;
      }
      for (int w = 0; list.items[i]->type == HARK_OPTION_ENUM && hark_option_choice_at(list.items[i]->range, w, word); w++) {
        if (!holds(output.out, word)) fail_msg("hark %s --help-all does not name the word %s", hark_commands[c]->name, word);
      }
    }
    if (!holds(output.out, "--help") || !holds(output.out, "--no-color")) fail_msg("common options are missing in %s", output.out);
    if (hark_commands[c]->has_json != holds(output.out, "--json")) fail_msg("--json of %s", hark_commands[c]->name);
    if (hark_commands[c]->has_configuration != holds(output.out, "--config")) fail_msg("--config of %s", hark_commands[c]->name);
  }
  assert_true(checked > 200);
}

static bool is_option_of(const hark_command *command, const option_list *list, const char *name, size_t length) {
  static const char *const general[] = {"help", "help-all", "json", "config"};
  for (int i = 0; i < list->count; i++)
    if (strlen(list->items[i]->name) == length && memcmp(list->items[i]->name, name, length) == 0) return true;
  for (size_t i = 0; i < 4; i++)
    if (strlen(general[i]) == length && memcmp(general[i], name, length) == 0)
      return i < 2 || (i == 2 ? command->has_json : command->has_configuration);
  return false;
}

/* --help of a subcommand with many options prints some of them, fits a few screens, and says where all are. */
static void short_help_names_options_that_there_are(void **state) {
  (void)state;
  int checked = 0;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const hark_command *const command = hark_commands[c];
    const option_list list = options_of(command);
    size_t length;
    if (call_line("hark %s --help", command->name) != 0) fail_msg("%s", output.err);
    assert_int_equal(strstr(output.out, "--help-all prints all") != NULL, command->common_options != NULL);
    for (const char *at = command->common_options, *name; at != NULL && (name = hark_next_word(&at, ' ', &length)) != NULL; checked++)
      if (!is_option_of(command, &list, name, length)) fail_msg("hark %s: %.*s", command->name, (int)length, name);
    if (command->common_options != NULL && test_line_count(output.out) > 110)
      fail_msg("hark %s --help has %d lines", command->name, test_line_count(output.out));
  }
  assert_true(checked > 50);
}

/* "\fB\-\-layers\fR" for --layers. */
static void roff_flag(const char *flag, char out[2 * HARK_OPTION_WORD_BYTES]) {
  size_t used = (size_t)sprintf(out, "\\fB");
  for (; *flag != 0; flag++) {
    if (*flag == '-') out[used++] = '\\';
    out[used++] = *flag;
  }
  strcpy(out + used, "\\fR");
}

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) count++;
  return count;
}

static void manual_pages_name_every_option_and_no_other(void **state) {
  (void)state;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const hark_command *const command = hark_commands[c];
    const option_list list = options_of(command);
    if (call_line("hark man %s", command->name) != 0) fail_msg("%s", output.err);
    for (int i = 0; i < list.count; i++) {
      char word[HARK_OPTION_WORD_BYTES], roff[2 * HARK_OPTION_WORD_BYTES];
      for (int f = 0; hark_option_flag(list.items[i], f, word); f++) {
        roff_flag(word, roff);
        if (strstr(output.out, roff) == NULL) fail_msg("hark man %s does not name %s", command->name, word);
      }
    }
    const int expected = list.count + command->has_json + command->has_configuration + 3; /* --help, --help-all, --no-color */
    const int got = count_of(output.out, "\n.TP\n\\fB");
    if (got != expected) fail_msg("hark man %s has %d options, expected %d", command->name, got, expected);
    static const char *const parts[] = {".TH HARK", ".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXIT STATUS", ".SH SEE ALSO"};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
      if (strstr(output.out, parts[p]) == NULL) fail_msg("hark man %s has no %s", command->name, parts[p]);
    }
#define ROW(row_name, row_number, row_text)                                                                                                \
  if (strstr(output.out, "\n.B " #row_number "\n" row_text "\n") == NULL) fail_msg("hark man %s: exit code " #row_number, command->name);
    HARK_EXIT_CODES(ROW)
#undef ROW
    call_line("hark %s", "man");
    char name[64];
    snprintf(name, sizeof name, ".BR hark\\-%s (1)", command->name);
    if (strstr(output.out, name) == NULL) fail_msg("hark man does not list %s", command->name);
  }
}

/* What programs that read manual pages say of ours. */
static void manual_pages_are_sound(void **state) {
  (void)state;
  if (call_line("hark %s --folder man", "man") != 0) fail_msg("%s", output.err);
  int pages = 0;
  while (hark_commands[pages] != NULL) pages++;
  char command[512];
  snprintf(command, sizeof command, "test $(ls man/hark*.1 | wc -l) -eq %d", pages + 1);
  assert_int_equal(system(command), 0);
  if (system("command -v groff >/dev/null 2>&1") != 0) {
    print_message("groff is not installed\n");
    skip();
  }
  if (system("for page in man/*.1; do groff -ww -man -Tascii \"$page\" 2>&1 >/dev/null; done >said; cat said >&2; test ! -s said") != 0) {
    fail_msg("groff warns of a manual page");
  }
}

/* How a script begins what it says of a subcommand, how it ends that, and how it offers the subcommand (NULL: bash_completes asks). */
static const struct completion_form {
  const char *shell, *begin, *end, *offer;
} forms[] = {{"bash", "\n    %s)\n", "\n      ;;\n", NULL},
             {"zsh", "\n        %s)\n", "\n          ;;\n", "\n        '%s:"},
             {"fish", "\ncomplete -c hark -n __hark_first -a %s -d '", "\ncomplete -c hark -n __hark_first ", "-n __hark_first -a %s -d"}};
#define FORMS (sizeof forms / sizeof forms[0])

/* The part of a script that is about one subcommand, for free(). */
static char *completion_of(const struct completion_form *form, const char *command) {
  char begin_line[128];
  snprintf(begin_line, sizeof begin_line, form->begin, command);
  const char *const from = strstr(output.out, begin_line);
  if (from == NULL) fail_msg("completion for %s says nothing of %s", form->shell, command);
  const char *const end = strstr(from + 1, form->end);
  return end != NULL ? strndup(from, (size_t)(end - from) + 1) : strdup(from);
}

/* A flag as the script of a shell writes it. */
static void completion_flag(const struct completion_form *form, const hark_command *command, const char *flag, char *text, size_t size) {
  const bool is_long = flag[1] == '-';
  if (strcmp(form->shell, "fish") == 0)
    snprintf(text, size, "'__hark_runs %s' -%c %s", command->name, is_long ? 'l' : 's', flag + (is_long ? 2 : 1));
  else
    snprintf(text, size, "%s", flag);
}

/* Each script offers every subcommand, and where it is about a subcommand it has all of its flags: those of others do not count. */
static void completion_knows_every_option(void **state) {
  (void)state;
  for (size_t s = 0; s < FORMS; s++) {
    if (call_line("hark completion %s", forms[s].shell) != 0) fail_msg("%s", output.err);
    for (int c = 0; hark_commands[c] != NULL; c++) {
      const hark_command *const command = hark_commands[c];
      const option_list list = options_of(command);
      char *const part = completion_of(&forms[s], command->name), text[2 * HARK_OPTION_WORD_BYTES + 64];
      if (forms[s].offer != NULL) snprintf(text, sizeof text, forms[s].offer, command->name);
      if (forms[s].offer != NULL && strstr(output.out, text) == NULL)
        fail_msg("completion for %s does not offer %s", forms[s].shell, command->name);
      for (int i = 0; i < list.count; i++) {
        char flag[HARK_OPTION_WORD_BYTES];
        for (int f = 0; hark_option_flag(list.items[i], f, flag); f++) {
          completion_flag(&forms[s], command, flag, text, sizeof text);
          if (!holds(part, text)) fail_msg("completion for %s does not know %s of %s", forms[s].shell, flag, command->name);
        }
      }
      free(part);
    }
  }
}

/* Each shell that is installed reads its script without a complaint. */
static void shells_accept_their_completion(void **state) {
  (void)state;
  for (size_t s = 0; s < FORMS; s++) {
    char words[256];
    snprintf(words, sizeof words, "command -v %s >/dev/null 2>&1", forms[s].shell);
    if (system(words) != 0) {
      print_message("%s is not installed\n", forms[s].shell);
      continue;
    }
    if (call_line("hark completion %s", forms[s].shell) != 0) fail_msg("%s", output.err);
    test_file_write_text(folder, forms[s].shell, output.out);
    snprintf(words, sizeof words, "HOME=$PWD %s -n ./%s >said 2>&1 && ! grep . said >&2", forms[s].shell, forms[s].shell);
    if (system(words) != 0) fail_msg("%s does not understand its completion", forms[s].shell);
  }
}

static void add_line(char *text, size_t size, const char *format, const char *a, const char *b, const char *c) {
  const size_t used = strlen(text);
  const int length = snprintf(text + used, size - used, format, a, b, c);
  assert_true(length > 0 && (size_t)length < size - used);
}

/* Runs the script in bash and asks it for the words of every option that has some, for the flags of every subcommand, and for files. */
static void bash_completes(void **state) {
  (void)state;
  if (system("command -v bash >/dev/null 2>&1") != 0) skip();
  if (call_line("hark completion %s", "bash") != 0) fail_msg("%s", output.err);
  test_file_write_text(folder, "completion.bash", output.out);
  enum { BYTES = 1 << 18 };
  char *const script = calloc(1, BYTES), *const expected = calloc(1, BYTES);
  strcpy(script,
         ". ./completion.bash\nask() { COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _hark; echo \"$*: ${COMPREPLY[*]}\"; }\n"
         "offers() { COMP_WORDS=(\"$@\") COMP_CWORD=$(($# - 1)); _hark; printf '%s\\n' \"${COMPREPLY[@]}\"; }\n");
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const char *const name = hark_commands[c]->name;
    const option_list list = options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      if (list.items[i]->type != HARK_OPTION_ENUM) continue;
      char flag[HARK_OPTION_WORD_BYTES], word[HARK_OPTION_WORD_BYTES], words[1024] = "";
      long_flag(list.items[i], flag);
      for (int w = 0; hark_option_choice_at(list.items[i]->range, w, word); w++)
        add_line(words, sizeof words, "%s%s%s", w > 0 ? " " : "", word, "");
      add_line(script, BYTES, "ask hark %s %s ''\nask hark %s ", name, flag, name);
      add_line(script, BYTES, "%s = ''\n%s%s", flag, "", "");
      add_line(expected, BYTES, "hark %s %s : %s\n", name, flag, words);
      add_line(expected, BYTES, "hark %s %s = : %s\n", name, flag, words);
    }
    /* every subcommand and every flag is offered, by its own letters */
    add_line(script, BYTES, "offers hark %s | sort -u | grep -x -e '%s'\n%s", name, name, "");
    add_line(expected, BYTES, "%s\n%s%s", name, "", "");
    for (int i = 0; i < list.count; i++) {
      char flag[HARK_OPTION_WORD_BYTES];
      long_flag(list.items[i], flag);
      add_line(script, BYTES, "offers hark %s %s | sort -u | grep -x -e '%s'\n", name, flag, flag);
      add_line(expected, BYTES, "%s\n%s%s", flag, "", "");
    }
  }
  test_file_write_text(folder, "some text.txt", "x");
  strcat(script,
         "ask hark train --data some\nask hark generate ru\nask hark tra\nask hark help vers\nask hark completion f\nask hark train "
         "--layers ''\n");
  strcat(expected,
         "hark train --data some: some text.txt\nhark generate ru: run\nhark tra: train\nhark help vers: version\nhark completion f: fish\n"
         "hark train --layers : \n");
  test_file_write_text(folder, "ask.bash", script);
  test_file_write_text(folder, "expected", expected);
  const int status = system("bash ask.bash >answers 2>&1; diff expected answers >&2");
  free(script);
  free(expected);
  assert_int_equal(status, 0);
}

static void fish_completes(void **state) {
  (void)state;
  if (system("command -v fish >/dev/null 2>&1") != 0) {
    print_message("fish is not installed\n");
    skip();
  }
  if (call_line("hark completion %s", "fish") != 0) fail_msg("%s", output.err);
  test_file_write_text(folder, "hark.fish", output.out);
  assert_int_equal(system("HOME=$PWD fish --no-config -c 'source hark.fish; complete -C \"hark train --activation \"' >said"
                          " && cut -f1 said | sort | tr '\\n' ' ' | grep -qx 'gated_silu gelu gelu_tanh relu silu '"),
                   0);
  assert_int_equal(system("HOME=$PWD fish --no-config -c 'source hark.fish; complete -C \"hark tra\"' | grep -q '^train'"), 0);
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
  positive_flag(option, flag);
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
  positive_flag(option, flag);
  switch (option->type) {
    case HARK_OPTION_INT:
      for (size_t i = 0; i < sizeof wholes / sizeof wholes[0]; i++) refuse_value(command, option, wholes[i], "expected a whole number");
      refuse_large(command, option);
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
    const option_list list = options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) refuse_all_values(hark_commands[c], list.items[i]);
  }
  print_message("%d wrong values\n", checked_values);
  assert_true(checked_values > 3000);
}

/* All options wrong in one call: a line each, as many as are kept. */
static void all_wrong_values_are_reported_at_once(void **state) {
  (void)state;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const option_list list = options_of(hark_commands[c]);
    static char flags[OPTIONS_LIMIT][HARK_OPTION_WORD_BYTES], joined[OPTIONS_LIMIT][HARK_OPTION_WORD_BYTES + 8];
    const char *words[OPTIONS_LIMIT + 2] = {"hark", hark_commands[c]->name};
    int wrong = 0;
    for (int i = 0; i < list.count; i++) {
      if (list.items[i]->type == HARK_OPTION_STRING || list.items[i]->type == HARK_OPTION_LIST) continue;
      positive_flag(list.items[i], flags[wrong]);
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
  const option_list list = options_of(hark_command_find("config"));
  enum { BYTES = 1 << 15 };
  char *const text = calloc(1, BYTES);
  const char *keys[OPTIONS_LIMIT];
  int wrong = 0;
  for (int i = 0; i < list.count; i++) {
    if (!list.key[i] || list.items[i]->type == HARK_OPTION_STRING || list.items[i]->type == HARK_OPTION_LIST) continue;
    keys[wrong++] = list.items[i]->name;
    add_line(text, BYTES, "%s: '?%s'%s\n", list.items[i]->name, "?", "");
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
static int steps_to_others(const option_list *list, int but, const char *word) {
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
    const option_list list = options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      char flag[HARK_OPTION_WORD_BYTES], first[HARK_OPTION_WORD_BYTES], wrong[HARK_OPTION_WORD_BYTES + 4],
          part[HARK_OPTION_WORD_BYTES + 32];
      positive_flag(list.items[i], flag);
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

/* "--no-X  turns off this default: HELP" is a sentence if HELP has no other colon. */
static void defaults_that_are_turned_off_have_one_colon(void **state) {
  (void)state;
  int checked = 0;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const option_list list = options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      const hark_option *const option = list.items[i];
      if (option->type != HARK_OPTION_BOOL || option->initial == NULL || strcmp(option->initial, "true") != 0) continue;
      if (strstr(option->help, ": ") != NULL) fail_msg("%s %s: %s", hark_commands[c]->name, option->name, option->help);
      checked++;
    }
  }
  assert_true(checked > 5);
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
    const option_list list = options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      char flag[HARK_OPTION_WORD_BYTES];
      positive_flag(list.items[i], flag);
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
      cmocka_unit_test(short_help_names_options_that_there_are),
      cmocka_unit_test(help_names_every_option),
      cmocka_unit_test(manual_pages_name_every_option_and_no_other),
      cmocka_unit_test(manual_pages_are_sound),
      cmocka_unit_test(completion_knows_every_option),
      cmocka_unit_test(shells_accept_their_completion),
      cmocka_unit_test(bash_completes),
      cmocka_unit_test(fish_completes),
      cmocka_unit_test(every_wrong_value_of_every_option_is_refused),
      cmocka_unit_test(all_wrong_values_are_reported_at_once),
      cmocka_unit_test(wrong_values_in_a_file_are_reported_with_their_lines),
      cmocka_unit_test(a_wrong_flag_gets_the_nearest),
      cmocka_unit_test(defaults_that_are_turned_off_have_one_colon),
      cmocka_unit_test(a_wrong_subcommand_gets_the_nearest),
      cmocka_unit_test(both_spellings_are_read),
  };
  return cmocka_run_group_tests_name("table", tests, begin, end);
}
