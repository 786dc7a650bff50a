/* command.c - the hark command around its subcommands: finds one, reads its options, runs it, and ends with the exit code of its result. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/process.h"
#include "cli/threads.h"
#include "data/inputs.h"
#include "group/launch.h"
#include "io/words.h"

#define GROUPS (HARK_COMMAND_TABLES + 3)
#define LINE_WIDTH 110
#define WORDS_BYTES 300 /* of a list of words in a message */

#define HARK_COMMAND_ROW(name) &hark_command_##name,
const hark_command *const hark_commands[] = {HARK_COMMANDS(HARK_COMMAND_ROW) NULL};
#undef HARK_COMMAND_ROW
static const int command_count = (int)(sizeof hark_commands / sizeof hark_commands[0]) - 1;

/* ---- a call of a subcommand ---- */

#define AT(field) offsetof(hark_common_values, field)
static const hark_option basic_options[] = {
    {"help", "help h", HARK_OPTION_BOOL, AT(basic.help) - AT(basic), "false", NULL, NULL, NULL, "print the help", NULL},
    {"help-all", "help-all", HARK_OPTION_BOOL, AT(basic.help_all) - AT(basic), "false", NULL, NULL, NULL, "print the help with all options",
     NULL},
    {"color", NULL, HARK_OPTION_BOOL, AT(basic.color) - AT(basic), "true", NULL, NULL, NULL,
     "use colours; the environment variable NO_COLOR prevents them too", NULL},
};
static const hark_option json_options[] = {
    {"json", NULL, HARK_OPTION_BOOL, AT(json.json) - AT(json), "false", NULL, NULL, NULL, "print the result as JSON", NULL},
};
static const hark_option file_options[] = {
    {"config", "config c", HARK_OPTION_STRING, AT(file.config) - AT(file), "", NULL, NULL, "FILE",
     "read options from a YAML file; the command line has precedence", NULL},
};
#undef AT
static const hark_option_section general[] = {{"", "General"}, {NULL, NULL}};
static const hark_option_table basic_table = {basic_options, 3, general, sizeof(((hark_common_values *)NULL)->basic), false};
static const hark_option_table json_table = {json_options, 1, general, sizeof(((hark_common_values *)NULL)->json), false};
static const hark_option_table file_table = {file_options, 1, general, sizeof(((hark_common_values *)NULL)->file), false};

const hark_command *hark_command_find(const char *name) {
  for (int i = 0; i < command_count; i++) {
    if (strcmp(hark_commands[i]->name, name) == 0) return hark_commands[i];
  }
  return NULL;
}

/* True for a table that the command names before; such a table counts once. */
static bool is_repeated(const hark_command *command, int table) {
  for (int i = 0; i < table; i++)
    if (command->tables[i] == command->tables[table]) return true;
  return false;
}

hark_status hark_call_begin(hark_context *base, const hark_command *command, hark_invocation *call) {
  hark_option_group groups[GROUPS];
  int used = 0;
  *call = (hark_invocation){.context = base, .command = command};
  for (int i = 0; i < HARK_COMMAND_TABLES; i++) {
    if (command->tables[i] == NULL || is_repeated(command, i)) continue;
    HARK_TRY(hark_allocate_zero(base, command->tables[i]->values_size, &call->values[i]));
    groups[used++] = (hark_option_group){command->tables[i], call->values[i]};
  }
  if (command->has_configuration) groups[used++] = (hark_option_group){&file_table, &call->common.file};
  if (command->has_json) groups[used++] = (hark_option_group){&json_table, &call->common.json};
  groups[used++] = (hark_option_group){&basic_table, &call->common.basic};
  return hark_options_create(base, command->name, groups, used, &call->options);
}

void hark_call_end(hark_context *base, hark_invocation *call) {
  if (call->context != base) hark_context_destroy(&call->context);
  hark_options_destroy(base, &call->options);
  for (int i = 0; i < HARK_COMMAND_TABLES; i++) {
    if (call->values[i] != NULL) hark_release(base, call->values[i], call->command->tables[i]->values_size);
  }
}

/* ---- help ---- */

/* "Exit codes: 0 done, 1 failed at run time, ...", in lines that are not too long. */
static void print_exit_codes(FILE *to) {
#define ROW(name, number, text) #number " " text,
  static const char *const rows[] = {HARK_EXIT_CODES(ROW)};
#undef ROW
  size_t column = (size_t)fprintf(to, "Exit codes:");
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const bool last = i + 1 == sizeof rows / sizeof rows[0];
    const size_t needed = strlen(rows[i]) + 2;
    if (column + needed > LINE_WIDTH) column = (size_t)fprintf(to, "\n ") - 1;
    column += needed;
    fprintf(to, " %s%s", rows[i], last ? "\n" : ",");
  }
}

static void print_commands(FILE *to) {
  fprintf(to,
          "hark - structured attention, and training of Transformers with it\n\n"
          "usage: hark SUBCOMMAND [options]\n\n");
  for (int i = 0; i < command_count; i++) fprintf(to, "  %-10s %s\n", hark_commands[i]->name, hark_commands[i]->summary);
  fprintf(to, "\nhark SUBCOMMAND --help lists a subcommand's options.\n");
  print_exit_codes(to);
}

/* How many options there are besides those that --help prints. */
static void print_rest(const hark_invocation *call, hark_text *text) {
  hark_option_view view;
  int all = 0;
  for (int i = 0; i < hark_options_count(call->options); i++) all += hark_options_view(call->options, i, &view);
  hark_text_append(text, "\nThese are the frequent options; hark %s --help-all prints all %d.\n", call->command->name, all);
}

/* What the marks after a help text mean, if they occur: "(8)", "needs --list off", "[train.seed]". */
static void print_legend(hark_text *text) {
  static const struct {
    const char *mark, *meaning;
  } rows[] = {{")\n", "(X) is the default of an option."},
              {"; needs ", "'needs' names what an option requires to have an effect."},
              {"]\n", "[KEY] is its key in a configuration file."}};
  const char *before = "\n";
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (strstr(hark_text_get(text), rows[i].mark) == NULL) continue;
    hark_text_append(text, "%s%s", before, rows[i].meaning);
    before = " ";
  }
  if (before[0] == ' ') hark_text_append(text, "\n");
}

static hark_status print_help(hark_invocation *call) {
  hark_text text = hark_text_empty(call->context);
  const hark_command *const command = call->command;
  const char *const only = call->common.basic.help_all ? NULL : command->common_options;
  hark_text_append(&text, "hark %s - %s\n\nusage: hark %s [options]%s%s\n\n", command->name, command->summary, command->name,
                   command->arguments[0] != 0 ? " " : "", command->arguments);
  const char *const notes = command->notes != NULL ? command->notes : "";
  if (only != NULL) hark_text_append(&text, "%s\n", notes); /* examples first: they are what a beginner needs */
  hark_text options = hark_text_empty(call->context);
  hark_options_print_help(call->options, only, &options);
  print_legend(&options);
  if (text.status == HARK_OK) text.status = options.status;
  hark_text_append(&text, "%s", hark_text_get(&options));
  hark_text_free(&options);
  if (only != NULL)
    print_rest(call, &text);
  else if (notes[0] != '\0')
    hark_text_append(&text, "\n%s", notes);
  return hark_command_print(call, &text);
}

/* Adds a problem when the number of arguments does not fit. */
static hark_status check_arguments(hark_invocation *call) {
  const hark_command *const command = call->command;
  const int count = hark_options_argument_count(call->options);
  if (hark_options_problem_count(call->options) > 0) return HARK_OK; /* a word after an unknown flag may have been its value */
  if (count < command->argument_minimum) {
    return hark_options_complain(call->context, call->options, command->arguments, "missing; usage: hark %s [options] %s", command->name,
                                 command->arguments);
  }
  if (command->argument_maximum != HARK_ANY_NUMBER && count > command->argument_maximum) {
    const char *const word = hark_options_argument(call->options, command->argument_maximum);
    return hark_options_complain(call->context, call->options, word, "unexpected argument; usage: hark %s [options]%s%s", command->name,
                                 command->arguments[0] != 0 ? " " : "", command->arguments);
  }
  const char *const first = count > 0 ? hark_options_argument(call->options, 0) : NULL;
  if (first != NULL && command->words != NULL && hark_option_choice(command->words, first) < 0) {
    char near[HARK_OPTION_WORD_BYTES], word[HARK_OPTION_WORD_BYTES];
    hark_text words = hark_text_empty(call->context);
    hark_text_append(&words, "expected one of ");
    int known = 0;
    for (; hark_option_choice_at(command->words, known, word); known++) hark_text_append(&words, "%s%s", known > 0 ? ", " : "", word);
    if (words.length > WORDS_BYTES) { /* a message would be truncated */
      hark_text_resize(&words, 0);
      hark_text_append(&words, "expected one of %d words (hark %s --help)", known, command->name);
    }
    if (hark_option_near_choice(command->words, first, near)) hark_text_append(&words, "; did you mean %s?", near);
    hark_status status = words.status;
    if (status == HARK_OK)
      status = hark_options_complain(call->context, call->options, first, "unknown argument, %s", hark_text_get(&words));
    hark_text_free(&words);
    return status;
  }
  return HARK_OK;
}

/* ---- running ---- */

/* The arguments of a subcommand that is run for each of them. */
typedef struct argument_walk {
  int index, count;   /* of the current one; of all, 1 where the subcommand takes them together */
  hark_context *home; /* of the group, which stays for all of them */
  hark_group *group;
} argument_walk;

static void take_argument(hark_invocation *call, argument_walk *walk) {
  const int count = hark_options_argument_count(call->options);
  const bool help = call->common.basic.help || call->common.basic.help_all;
  walk->count = call->command->for_each && !help && count > 1 ? count : 1;
  if (walk->count == 1) return;
  hark_options_keep_argument(call->options, walk->index);
}

static bool has_standard_input(const hark_invocation *call, const hark_option_table *table, const void *values, const char **option) {
  for (int i = 0; i < table->count; i++) {
    const hark_option *const row = &table->options[i];
    const hark_string_list *const list = (const hark_string_list *)((const char *)values + row->offset);
    if (row->type != HARK_OPTION_LIST || !hark_command_is_given(call, row->name)) continue;
    *option = row->name;
    for (int64_t item = 0; item < list->count; item++)
      if (hark_input_is_standard(list->items[item])) return true;
  }
  return false;
}

/* The second of several runs would find it empty. */
static hark_status refuse_standard_input(hark_invocation *call, const argument_walk *walk) {
  const char *option = NULL;
  for (int i = 0; i < HARK_COMMAND_TABLES && walk->count > 1 && call->command->tables[i] != NULL; i++)
    if (call->values[i] != NULL && has_standard_input(call, call->command->tables[i], call->values[i], &option))
      return hark_options_complain(call->context, call->options, option, "standard input can be read once, and %d arguments need it",
                                   walk->count);
  return HARK_OK;
}

/* Everything between the options' creation and the end of the subcommand's work. */
static hark_status execute(hark_invocation *call, int count, const char *const *words, argument_walk *walk) {
  const char *const *const config = &call->common.file.config;
  HARK_TRY(hark_options_read_arguments(call->context, call->options, count, words));
  take_argument(call, walk);
  if (call->common.basic.help || call->common.basic.help_all) return print_help(call);
  call->json = call->common.json.json;
  if (*config != NULL && (*config)[0] != 0) HARK_TRY(hark_options_read_yaml(call->context, call->options, *config, HARK_SOURCE_FILE));
  HARK_TRY(check_arguments(call));
  HARK_TRY(refuse_standard_input(call, walk));
  if (call->command->check != NULL) HARK_TRY(call->command->check(call));
  HARK_TRY(hark_options_refuse_idle(call->context, call->options));
  HARK_TRY(hark_options_finish(call->context, call->options));
  HARK_TRY(hark_command_refuse_outputs(call));
  return call->command->run(call);
}

/* Prints the reason of a failure: every problem with the options, and the message where another failure came before all options were
 * checked. Problems with the options determine the exit code, because they must be corrected first. */
static hark_status report(const hark_invocation *call, hark_status status, const hark_context *base) {
  const int problems = call->options != NULL ? hark_options_problem_count(call->options) : 0;
  for (int i = 0; i < problems; i++) {
    hark_command_print_name(call, false);
    fprintf(stderr, "%s\n", hark_options_problem(call->options, i));
  }
  if (problems > 0 && status == HARK_BAD_CONFIGURATION) return status;
  const char *message = hark_context_message(call->context);
  if (message[0] == 0) message = hark_context_message(base);
  hark_command_print_name(call, false);
  fprintf(stderr, "%s\n", message[0] != 0 ? message : hark_status_text(status));
  return problems > 0 ? HARK_BAD_CONFIGURATION : status;
}

/* ---- several processes ---- */

/* Where another rank than the first one reports a lost connection; -1: nowhere. */
static int emergency = -1;

static void be_silent(void) {
  const int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere < 0) return;
  emergency = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  (void)dup2(nowhere, STDOUT_FILENO);
  (void)dup2(nowhere, STDERR_FILENO);
  (void)close(nowhere);
}

/* The processes of a machine divide its cores, unless OMP_NUM_THREADS is set or the launcher has given each its own. */
static void divide_cores(hark_context *context) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  const int here = hark_group_local_size();
  char number[24];
  if (here < 2 || cores < 1 || getenv("OMP_NUM_THREADS") != NULL || hark_group_has_own_cores()) return;
  (void)snprintf(number, sizeof number, "%d", (int)hark_max(1, hark_min(hark_usable_threads(context), cores / here)));
  (void)setenv("OMP_NUM_THREADS", number, 1);
}

/* Launchers end all processes when one of them fails: without a group to agree, the silent ones let the first one report first. */
static void end_later(void) {
  const struct timespec time = {.tv_sec = 10};
  if (emergency >= 0) (void)nanosleep(&time, NULL); /* a signal of the launcher ends it */
}

/* Joins the processes that a launcher started together with this one. Only the first one prints from here on. */
static hark_status open_group(hark_invocation *call, argument_walk *walk) {
  divide_cores(call->context);
  if (hark_group_launch_rank() > 0) be_silent();
  const hark_status status = hark_group_open(walk->home, &walk->group);
  if (status != HARK_OK) end_later();
  if (hark_group_rank(walk->group) > 0 && emergency < 0) be_silent();
  return status == HARK_OK ? HARK_OK : hark_fail(call->context, status, "%s", hark_context_message(walk->home));
}

/* The processes are joined once, for all arguments. */
static hark_status join_group(hark_invocation *call, argument_walk *walk) {
  if (!call->command->shares_work || !hark_group_launched()) return HARK_OK;
  if (walk->group == NULL) HARK_TRY(open_group(call, walk));
  hark_group_renew(walk->group);
  call->group = walk->group;
  return HARK_OK;
}

/* A lost group, by whoever finds it first and ends all (hark_group_set_limit). */
static void report_loss(const hark_invocation *call) {
  if (!hark_group_is_lost(call->group) || emergency < 0) return;
  (void)dprintf(emergency, "hark %s: %s\n", call->command->name, hark_context_message(call->context));
}

/* The common end of all processes. The message of a process whose options have problems is the first of these. */
static hark_status agree_at_the_end(hark_invocation *call, hark_status status) {
  const bool problems = call->options != NULL && hark_options_problem_count(call->options) > 0;
  if (call->group == NULL) return status;
  if (problems && status == HARK_BAD_CONFIGURATION) status = hark_fail(call->context, status, "%s", hark_options_problem(call->options, 0));
  status = hark_group_agree(call->context, call->group, status);
  hark_group_release(call->context, &call->sequence.group);
  hark_group_release(call->context, call->group);
  report_loss(call);
  return status;
}

/* A context for options and messages. Returns an exit code. */
static int create_plain(const hark_command *command, hark_context **out) {
  const hark_context_options plain = {.struct_size = sizeof plain, .threads = 1, .backend = "reference"};
  const hark_status status = hark_context_create(&plain, out);
  if (status != HARK_OK) fprintf(stderr, "hark %s: %s\n", command->name, hark_status_text(status));
  return hark_exit_code(status);
}

static int run_once(const hark_command *command, int count, const char *const *words, argument_walk *walk) {
  hark_context *base;
  const int created = create_plain(command, &base);
  if (created != HARK_EXIT_DONE) return created;
  base->temporaries = &hark_process_temporaries;
  hark_invocation call;
  hark_status status = hark_call_begin(base, command, &call);
  if (status == HARK_OK) status = join_group(&call, walk);
  if (status == HARK_OK) status = execute(&call, count, words, walk);
  if (status == HARK_OK) status = hark_command_flush(call.context);
  status = agree_at_the_end(&call, status);
  if (status != HARK_OK && call.exit_code == 0) status = report(&call, status, base);
  const int code = call.exit_code != 0 ? call.exit_code : hark_exit_code(status);
  hark_call_end(base, &call);
  hark_context_destroy(&base);
  return code;
}

/* A failure with one argument does not keep the others from being used, unless it is one of the command line; the first one determines the
 * exit code. */
static int run_command(const hark_command *command, int count, const char *const *words) {
  argument_walk walk = {.count = 1};
  int first = create_plain(command, &walk.home);
  if (first != HARK_EXIT_DONE) return first;
  for (; walk.index < walk.count; walk.index++) {
    const int code = run_once(command, count, words, &walk);
    if (first == HARK_EXIT_DONE) first = code;
    if (code == HARK_EXIT_USAGE || code == HARK_EXIT_DISK || code > HARK_EXIT_SIGNAL) break;
    if (hark_group_is_lost(walk.group)) break;
  }
  hark_group_close(walk.home, &walk.group, first);
  hark_context_destroy(&walk.home);
  return first;
}

static const char *command_name(const void *user, int index) {
  (void)user;
  return hark_commands[index]->name;
}

int hark_main(int count, const char *const *words) {
  if (count < 2) {
    print_commands(stderr);
    return HARK_EXIT_USAGE;
  }
  const char *name = words[1];
  if (strcmp(name, "--version") == 0) name = "version";
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (strcmp(name, "help") == 0 && count == 2)) {
    print_commands(stdout);
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return HARK_EXIT_DONE;
    fprintf(stderr, "hark: standard output: cannot be written%s%s\n", errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
    return HARK_EXIT_DISK;
  }
  static const char *const help_words[] = {"--help"};
  const bool is_help = strcmp(name, "help") == 0; /* hark help NAME */
  if (is_help) name = words[2];
  const hark_command *const command = hark_command_find(name);
  if (command == NULL) {
    const char *const near = hark_nearest_word(name, command_count, command_name, NULL);
    if (near != NULL) {
      fprintf(stderr, "hark: unknown subcommand \"%s\"; did you mean %s?\n", name, near);
    } else {
      fprintf(stderr, "hark: unknown subcommand \"%s\"; hark --help lists them\n", name);
    }
    return HARK_EXIT_USAGE;
  }
  return is_help ? run_command(command, 1, help_words) : run_command(command, count - 2, words + 2);
}
