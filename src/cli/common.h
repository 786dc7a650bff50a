/* common.h - shared by all subcommands: declaration, input and exit code.
 *
 * A subcommand is one file with a hark_command hark_command_NAME, and one row in commands.h. main() reads the command line and --config
 * into the structs of the command's option tables, calls check, reports all problems at once, calls run, prints the message of a failure
 * as one line on stderr and turns the status into the exit code. run prints results on stdout and nothing else there.
 */
#ifndef HARK_CLI_COMMON_H
#define HARK_CLI_COMMON_H

#include "config/options.h"
#include "core/core.h"
#include "group/part.h"

#define HARK_COMMAND_TABLES 48 /* of options, at most: an experiment of the laboratory may have one */
#define HARK_ANY_NUMBER (-1)

/* Exit codes of hark, with their descriptions in --help and the manual: the only list. The numbers are an interface and never change. */
#define HARK_EXIT_CODES(X)                                                                                                                 \
  X(HARK_EXIT_DONE, 0, "done")                                                                                                             \
  X(HARK_EXIT_FAILED, 1, "failed at run time")                                                                                             \
  X(HARK_EXIT_USAGE, 2, "usage or configuration")                                                                                          \
  X(HARK_EXIT_BAD_INPUT, 3, "bad input file")                                                                                              \
  X(HARK_EXIT_DISK, 4, "file system or disk")                                                                                              \
  X(HARK_EXIT_MEMORY, 5, "out of memory")                                                                                                  \
  X(HARK_EXIT_NOT_FINITE, 6, "numbers not finite")                                                                                         \
  X(HARK_EXIT_BUSY, 7, "run folder in use")                                                                                                \
  X(HARK_EXIT_NO_BACKEND, 8, "backend or device not available")                                                                            \
  X(HARK_EXIT_HANGUP, 129, "terminal closed (SIGHUP)")                                                                                     \
  X(HARK_EXIT_INTERRUPTED, 130, "interrupted (SIGINT)")                                                                                    \
  X(HARK_EXIT_TERMINATED, 143, "terminated (SIGTERM)")
enum {
#define HARK_EXIT_CODE(name, number, text) name = number,
  HARK_EXIT_CODES(HARK_EXIT_CODE)
#undef HARK_EXIT_CODE
      HARK_EXIT_SIGNAL = 128 /* plus the signal's number */
};

/* Called before `bytes` are allocated: checks that the machine and the limits of this process have them left. Errors: HARK_OUT_OF_MEMORY,
 * in a line that begins with `what`. */
HARK_MUST_CHECK hark_status hark_command_check_memory(hark_context *context, const char *what, double bytes);

typedef struct hark_command hark_command;

/* Options that every subcommand has, and two that only some have. */
typedef struct hark_common_values {
  struct {
    bool help, help_all, color;
  } basic;
  struct {
    bool json;
  } json;
  struct {
    const char *config;
  } file;
} hark_common_values;

/* A call of a subcommand. */
typedef struct hark_invocation {
  hark_context *context; /* for options and messages; hark_command_open() replaces it by the context of the computation */
  const hark_command *command;
  hark_options *options;
  void *values[HARK_COMMAND_TABLES]; /* the structs of the command's tables, filled */
  hark_common_values common;
  bool json;                              /* --json: one object (or one a line) on stdout and nothing else there */
  bool replaces_folder;                   /* set by check with output_is_folder where files that are in the folder may be replaced */
  bool output_is_folder;                  /* set by check where --output or --out, which may also be a file, is a folder in this call */
  char backend_error[HARK_MESSAGE_BYTES]; /* why a context could not be made */
  int exit_code;                          /* set by run to exit with a code that differs from that of the status: signals */
  struct hark_group *group;               /* the processes that do this together; NULL: this one alone */
  hark_group_part sequence;               /* those of them that share a training sequence; context->sequence: it is used */
} hark_invocation;

struct hark_command {
  const char *name;
  const char *arguments; /* "RUN..."; "" when there are none. Shells complete RUN, FILE, PATH and FOLDER as paths */
  const char *words;     /* choices of the first argument, "bash|zsh|fish", for completion and messages; NULL: anything */
  const char *summary;   /* one line for hark --help */
  const char *notes;     /* lines after the options in --help: examples, files; NULL: none */
  /* Names of the options that --help prints, separated by blanks; --help-all prints all. NULL: --help prints all. */
  const char *common_options;
  /* The subcommand takes one argument, and is run for each of several. */
  bool for_each;
  bool shares_work; /* among the processes of a launcher, of which the first one prints */
  int argument_minimum;
  int argument_maximum;                                 /* HARK_ANY_NUMBER */
  bool has_json;                                        /* --json is understood */
  bool has_configuration;                               /* --config FILE is understood; needs a table with configuration */
  const hark_option_table *tables[HARK_COMMAND_TABLES]; /* NULL: none; the same table may stand in several places */

  /* Optional: reads further files into the options, checks what concerns several options (hark_options_complain) and derives values. */
  hark_status (*check)(hark_invocation *call);
  hark_status (*run)(hark_invocation *call);
};

/* Creates the context of the computation as call->context, which main destroys. Warnings go to stderr. */
HARK_MUST_CHECK hark_status hark_command_open(hark_invocation *call, const char *backend, int64_t threads, uint64_t seed,
                                              bool deterministic);

/* The exit code of a status: the only place that defines it. */
int hark_exit_code(hark_status status);

/* stderr is a terminal, and neither --no-color nor NO_COLOR nor TERM=dumb forbids colours there. */
bool hark_command_may_color(const hark_invocation *call);

/* Writes "hark NAME: " to stderr, before a message. */
void hark_command_print_name(const hark_invocation *call, bool warning);

/* One line on stderr: "hark NAME: warning: ...". */
void hark_command_warn(const hark_invocation *call, const char *format, ...) HARK_PRINTF(2, 3);

/* Whether an option was set by the command line or a configuration. */
bool hark_command_is_given(const hark_invocation *call, const char *name);

/* Writes a text to stdout and frees it; returns the text's own failure if it has one. */
HARK_MUST_CHECK hark_status hark_command_print(hark_invocation *call, hark_text *text);

/* The same for a report about a file that was written; on stderr where that file is stdout itself (--output /dev/stdout). */
HARK_MUST_CHECK hark_status hark_command_print_about(hark_invocation *call, const char *file, hark_text *text);

/* Flushes stdout. HARK_IO_ERROR when that or an earlier write to it failed. */
HARK_MUST_CHECK hark_status hark_command_flush(hark_context *context);

/* The width of stdout in columns; 80 where it is unknown. */
int hark_terminal_columns(void);

/* "12.3 M", "1.50 GB" style numbers for people: three digits and a factor of 1000. `text` of HARK_HUMAN_BYTES. */
#define HARK_HUMAN_BYTES 24
const char *hark_human(double value, char text[HARK_HUMAN_BYTES]);

#endif
