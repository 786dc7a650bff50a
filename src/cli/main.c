/* main.c - the hark command: finds the subcommand, reads its options, runs it, and ends with the exit code of what came of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"

#define GROUPS (HARK_COMMAND_TABLES + 3)

#define HARK_COMMAND_ROW(name) &hark_command_##name,
static const hark_command *const commands[] = {HARK_COMMANDS(HARK_COMMAND_ROW)};
#undef HARK_COMMAND_ROW
static const int command_count = (int)(sizeof commands / sizeof commands[0]);

/* Options that every subcommand has, and two that only some have. */
typedef struct basic_values {
  bool help, color;
} basic_values;
static const hark_option basic_options[] = {
    {"help", "help h", HARK_OPTION_BOOL, offsetof(basic_values, help), "false", NULL, NULL, NULL, "print this help"},
    {"color", NULL, HARK_OPTION_BOOL, offsetof(basic_values, color), "true", NULL, NULL, NULL, "no colours (also when NO_COLOR is set)"},
};
static const hark_option_table basic_table = {basic_options, 2, NULL, sizeof(basic_values), false};

typedef struct json_values {
  bool json;
} json_values;
static const hark_option json_options[] = {
    {"json", NULL, HARK_OPTION_BOOL, offsetof(json_values, json), "false", NULL, NULL, NULL, "print the result as JSON"},
};
static const hark_option_table json_table = {json_options, 1, NULL, sizeof(json_values), false};

typedef struct file_values {
  const char *config;
} file_values;
static const hark_option file_options[] = {
    {"config", "config c", HARK_OPTION_STRING, offsetof(file_values, config), "", NULL, NULL, "FILE",
     "read options from a YAML file; the command line wins"},
};
static const hark_option_table file_table = {file_options, 1, NULL, sizeof(file_values), false};

static const char *command_name(const void *user, int index) {
  (void)user;
  return commands[index]->name;
}

static const hark_command *find_command(const char *name) {
  for (int i = 0; i < command_count; i++) {
    if (strcmp(commands[i]->name, name) == 0) return commands[i];
  }
  return NULL;
}

static void print_commands(FILE *to) {
  fprintf(to,
          "hark - structured attention, and training of Transformers with it\n\n"
          "usage: hark SUBCOMMAND [options]\n\n");
  for (int i = 0; i < command_count; i++) fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
  fprintf(to,
          "\nhark SUBCOMMAND --help lists a subcommand's options.\n"
          "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 bad input file, 4 file system or disk, 5 out of memory,\n"
          "6 numbers not finite, 7 run folder in use, 8 backend or device not there, 130 and 143 stopped by a signal.\n");
}

static hark_status print_help(hark_invocation *call) {
  hark_text text = hark_text_empty(call->context);
  const hark_command *const command = call->command;
  hark_text_append(&text, "hark %s - %s\n\nusage: hark %s [options]%s%s\n\n", command->name, command->summary, command->name,
                   command->arguments[0] != 0 ? " " : "", command->arguments);
  hark_options_print_help(call->options, &text);
  if (command->notes != NULL) hark_text_append(&text, "\n%s", command->notes);
  return hark_command_print(call, &text);
}

static bool may_color(const basic_values *basic) {
  const char *const none = getenv("NO_COLOR"), *const terminal = getenv("TERM");
  if (!basic->color || (none != NULL && none[0] != 0)) return false;
  return isatty(STDOUT_FILENO) == 1 && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

/* Adds a problem when the number of arguments does not fit. */
static hark_status check_arguments(hark_invocation *call) {
  const hark_command *const command = call->command;
  const int count = hark_options_argument_count(call->options);
  if (hark_options_problem_count(call->options) > 0) return HARK_OK; /* a word behind an unknown flag may have been its value */
  if (count < command->argument_minimum) {
    return hark_options_complain(call->context, call->options, command->arguments, "missing; usage: hark %s [options] %s", command->name,
                                 command->arguments);
  }
  if (command->argument_maximum != HARK_ANY_NUMBER && count > command->argument_maximum) {
    const char *const word = hark_options_argument(call->options, command->argument_maximum);
    return hark_options_complain(call->context, call->options, word, "unexpected argument; usage: hark %s [options]%s%s", command->name,
                                 command->arguments[0] != 0 ? " " : "", command->arguments);
  }
  return HARK_OK;
}

/* Everything between the options' creation and the end of the subcommand's work. */
static hark_status execute(hark_invocation *call, int count, const char *const *words, const basic_values *basic, const json_values *json,
                           const file_values *file) {
  HARK_TRY(hark_options_read_arguments(call->context, call->options, count, words));
  if (basic->help) return print_help(call);
  call->json = json->json;
  call->color = may_color(basic);
  if (file->config != NULL && file->config[0] != 0) {
    HARK_TRY(hark_options_read_yaml(call->context, call->options, file->config, HARK_SOURCE_FILE));
  }
  HARK_TRY(check_arguments(call));
  if (call->command->check != NULL) HARK_TRY(call->command->check(call));
  HARK_TRY(hark_options_finish(call->context, call->options));
  return call->command->run(call);
}

/* Prints why it failed: every problem with the options, or the message. */
static void report(const hark_invocation *call, hark_status status, const hark_context *base) {
  const char *const name = call->command->name;
  const int problems = call->options != NULL ? hark_options_problem_count(call->options) : 0;
  if (status == HARK_BAD_CONFIGURATION && problems > 0) {
    for (int i = 0; i < problems; i++) fprintf(stderr, "hark %s: %s\n", name, hark_options_problem(call->options, i));
    return;
  }
  const char *message = hark_context_message(call->context);
  if (message[0] == 0) message = hark_context_message(base);
  fprintf(stderr, "hark %s: %s\n", name, message[0] != 0 ? message : hark_status_text(status));
}

static int run_command(const hark_command *command, int count, const char *const *words) {
  const hark_context_options plain = {.struct_size = sizeof plain, .threads = 1, .backend = "reference"};
  hark_context *base;
  hark_status status = hark_context_create(&plain, &base);
  if (status != HARK_OK) {
    fprintf(stderr, "hark %s: %s\n", command->name, hark_status_text(status));
    return hark_exit_code(status);
  }
  basic_values basic = {0};
  json_values json = {0};
  file_values file = {0};
  hark_option_group groups[GROUPS];
  int used = 0;
  hark_invocation call = {.context = base, .command = command};
  for (int i = 0; i < HARK_COMMAND_TABLES && command->tables[i] != NULL && status == HARK_OK; i++) {
    status = hark_allocate_zero(base, command->tables[i]->values_size, &call.values[i]);
    groups[used++] = (hark_option_group){command->tables[i], call.values[i]};
  }
  if (command->has_configuration) groups[used++] = (hark_option_group){&file_table, &file};
  if (command->has_json) groups[used++] = (hark_option_group){&json_table, &json};
  groups[used++] = (hark_option_group){&basic_table, &basic};
  if (status == HARK_OK) status = hark_options_create(base, command->name, groups, used, &call.options);
  if (status == HARK_OK) status = execute(&call, count, words, &basic, &json, &file);
  if (fflush(stdout) != 0 || ferror(stdout)) {
    if (status == HARK_OK) status = hark_fail(call.context, HARK_IO_ERROR, "standard output: cannot be written");
  }
  if (status != HARK_OK && call.exit_code == 0) report(&call, status, base);
  if (call.context != base) hark_context_destroy(&call.context);
  hark_options_destroy(base, &call.options);
  for (int i = 0; i < HARK_COMMAND_TABLES; i++) {
    if (call.values[i] != NULL) hark_release(base, call.values[i], command->tables[i]->values_size);
  }
  hark_context_destroy(&base);
  return call.exit_code != 0 ? call.exit_code : hark_exit_code(status);
}

int main(int count, char **arguments) {
  const char *const *words = (const char *const *)arguments;
  if (count < 2) {
    print_commands(stderr);
    return HARK_EXIT_USAGE;
  }
  const char *name = words[1];
  if (strcmp(name, "--version") == 0) name = "version";
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (strcmp(name, "help") == 0 && count == 2)) {
    print_commands(stdout);
    return fflush(stdout) == 0 ? HARK_EXIT_DONE : HARK_EXIT_DISK;
  }
  static const char *const ask_help[] = {"--help"};
  const bool wants_help = strcmp(name, "help") == 0; /* hark help NAME */
  if (wants_help) name = words[2];
  const hark_command *const command = find_command(name);
  if (command == NULL) {
    const char *const near = hark_nearest_word(name, command_count, command_name, NULL);
    if (near != NULL) {
      fprintf(stderr, "hark: unknown subcommand \"%s\"; did you mean %s?\n", name, near);
    } else {
      fprintf(stderr, "hark: unknown subcommand \"%s\"; hark --help lists them\n", name);
    }
    return HARK_EXIT_USAGE;
  }
  return wants_help ? run_command(command, 1, ask_help) : run_command(command, count - 2, words + 2);
}
