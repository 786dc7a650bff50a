/* test_help.c - help, manual page and completion name every option of every subcommand, and no other; shells accept their completion. The
 * cases are made from the tables, so that a new option or subcommand is tested by being there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/commands.h"
#include "io/words.h"
#include "support/cmocka_all.h"
#include "support/command.h"
#include "support/setups.h"
#include "support/text_files.h"
#include "support/train/option_list.h"

static char folder[TEST_PATH_BYTES];
static test_output output;

static int begin(void **state) {
  (void)state;
  test_folder_make(folder);
  return chdir(folder) != 0;
}

static int end(void **state) {
  (void)state;
  test_output_free(&output);
  if (chdir("/") != 0) return 1;
  test_folder_remove(folder);
  return 0;
}

/* `text` holds `word` with nothing after it that would make it another word. */
static bool holds(const char *text, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = text; (at = strstr(at, word)) != NULL; at += length) {
    if (strchr(" ,=;)|'\"[\\\n", at[length]) != NULL) return true;
  }
  return false;
}

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
    const test_option_list list = test_options_of(hark_commands[c]);
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

static bool is_option_of(const hark_command *command, const test_option_list *list, const char *name, size_t length) {
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
    const test_option_list list = test_options_of(command);
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
    const test_option_list list = test_options_of(command);
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
      const test_option_list list = test_options_of(command);
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
    const test_option_list list = test_options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      if (list.items[i]->type != HARK_OPTION_ENUM) continue;
      char flag[HARK_OPTION_WORD_BYTES], word[HARK_OPTION_WORD_BYTES], words[1024] = "";
      test_long_flag(list.items[i], flag);
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
      test_long_flag(list.items[i], flag);
      add_line(script, BYTES, "offers hark %s %s | sort -u | grep -x -e '%s'\n", name, flag, flag);
      add_line(expected, BYTES, "%s\n%s%s", flag, "", "");
    }
  }
  test_file_write_text(folder, "some text.txt", "x");
  assert_int_equal(mkdir(test_path(folder, "run"), 0777), 0);
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
  assert_int_equal(
      system("HOME=$PWD fish --no-config -c 'source hark.fish; complete -C \"hark train --activation \"' >said"
             " && cut -f1 said | sort | tr '\\n' ' ' | grep -qx 'gated_gelu gated_gelu_tanh gated_silu gelu gelu_tanh relu silu '"),
      0);
  assert_int_equal(system("HOME=$PWD fish --no-config -c 'source hark.fish; complete -C \"hark tra\"' | grep -q '^train'"), 0);
}

/* "--no-X  do not HELP" is a sentence if HELP begins with a verb and has no list after a colon. */
static void defaults_that_are_turned_off_are_verbs(void **state) {
  (void)state;
  int checked = 0;
  for (int c = 0; hark_commands[c] != NULL; c++) {
    const test_option_list list = test_options_of(hark_commands[c]);
    for (int i = 0; i < list.count; i++) {
      const hark_option *const option = list.items[i];
      if (option->type != HARK_OPTION_BOOL || option->initial == NULL || strcmp(option->initial, "true") != 0) continue;
      static const char *const others[] = {"a ", "an ", "the ", "colours", "special "};
      bool verb = strstr(option->help, ": ") == NULL;
      for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) verb = verb && strncmp(option->help, others[o], strlen(others[o])) != 0;
      if (!verb) fail_msg("%s %s: %s", hark_commands[c]->name, option->name, option->help);
      checked++;
    }
  }
  assert_true(checked > 5);
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
      cmocka_unit_test(defaults_that_are_turned_off_are_verbs),
  };
  return cmocka_run_group_tests_name("help", tests, begin, end);
}
