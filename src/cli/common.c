/* common.c - functions shared by subcommands. */
#include "cli/common.h"
#include "cli/process.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/line.h"
#include "io/machine.h"
#include "io/number.h"
#include "io/temporary.h"

#define TERMINAL_COLUMNS 80

int hark_exit_code(hark_status status) {
  switch (status) {
    case HARK_OK: return HARK_EXIT_DONE;
    case HARK_INVALID_ARGUMENT:
    case HARK_UNSUPPORTED:
    case HARK_BAD_CONFIGURATION: return HARK_EXIT_USAGE;
    case HARK_SHAPE_MISMATCH:
    case HARK_NOT_FOUND:
    case HARK_BAD_FILE: return HARK_EXIT_BAD_INPUT;
    case HARK_IO_ERROR: return HARK_EXIT_DISK;
    case HARK_OUT_OF_MEMORY:
    case HARK_TOO_LARGE: return HARK_EXIT_MEMORY;
    case HARK_NOT_FINITE: return HARK_EXIT_NOT_FINITE;
    case HARK_BUSY: return HARK_EXIT_BUSY;
    case HARK_NO_BACKEND: return HARK_EXIT_NO_BACKEND;
    case HARK_CANCELLED:
    case HARK_INTERNAL_ERROR: return HARK_EXIT_FAILED;
  }
  return HARK_EXIT_FAILED;
}

bool hark_command_may_color(const hark_invocation *call) {
  const char *const none = getenv("NO_COLOR"), *const terminal = getenv("TERM");
  if (!call->common.basic.color || (none != NULL && none[0] != 0)) return false; /* https://no-color.org: set and not empty */
  return isatty(STDERR_FILENO) == 1 && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

void hark_command_print_name(const hark_invocation *call, bool warning) {
  static const char bold[] = "\x1b[1m", yellow[] = "\x1b[33m", normal[] = "\x1b[0m";
  const bool color = hark_command_may_color(call);
  fprintf(stderr, "%shark %s:%s ", color ? bold : "", call->command->name, color ? normal : "");
  if (warning) fprintf(stderr, "%swarning:%s ", color ? yellow : "", color ? normal : "");
}

/* Errors are kept: they explain why no context could be created, and main prints the failure. */
static void log_line(void *user, hark_log_level level, const char *message) {
  hark_invocation *const call = user;
  if (level == HARK_LOG_ERROR) {
    snprintf(call->backend_error, sizeof call->backend_error, "%s", message);
  } else if (level <= HARK_LOG_INFO) {
    hark_command_print_name(call, level == HARK_LOG_WARNING);
    fprintf(stderr, "%s\n", message);
  }
}

hark_status hark_command_open(hark_invocation *call, const char *backend, int64_t threads, uint64_t seed, bool deterministic) {
  const hark_context_options options = {.struct_size = sizeof options,
                                        .threads = (int)threads,
                                        .backend = backend,
                                        .seed = seed,
                                        .deterministic = deterministic,
                                        .logger = log_line,
                                        .logger_user = call};
  hark_context *context;
  const hark_status status = hark_context_create(&options, &context);
  if (status != HARK_OK) {
    const char *const why = call->backend_error[0] != 0 ? call->backend_error : hark_status_text(status);
    return hark_fail(call->context, status, "%s", why);
  }
  context->temporaries = &hark_process_temporaries;
  call->context = context;
  return HARK_OK;
}

void hark_command_warn(const hark_invocation *call, const char *format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  hark_line_clean(line); /* names of files */
  hark_command_print_name(call, true);
  fprintf(stderr, "%s\n", line);
}

bool hark_command_is_given(const hark_invocation *call, const char *name) {
  return hark_options_source(call->options, name) != HARK_SOURCE_DEFAULT;
}

static hark_status fail_to_print(hark_context *context, int error) {
  return hark_fail(context, HARK_IO_ERROR, "standard output: cannot be written%s%s", error != 0 ? ": " : "",
                   error != 0 ? strerror(error) : "");
}

hark_status hark_command_flush(hark_context *context) {
  errno = 0;
  return fflush(stdout) == 0 && !ferror(stdout) ? HARK_OK : fail_to_print(context, errno);
}

hark_status hark_command_print(hark_invocation *call, hark_text *text) {
  hark_status status = text->status;
  errno = 0;
  if (status == HARK_OK && fwrite(hark_text_get(text), 1, text->length, stdout) != text->length)
    status = fail_to_print(call->context, errno);
  hark_text_free(text);
  return status;
}

hark_status hark_command_print_about(hark_invocation *call, const char *file, hark_text *text) {
  char target[HARK_PATH_BYTES];
  int descriptor = -1;
  if (text->status != HARK_OK || hark_path_follow(call->context, file, target, &descriptor) != HARK_OK || descriptor != STDOUT_FILENO)
    return hark_command_print(call, text);
  (void)fwrite(hark_text_get(text), 1, text->length, stderr);
  hark_text_free(text);
  return HARK_OK;
}

int hark_terminal_columns(void) {
  struct winsize size;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : TERMINAL_COLUMNS;
}

const char *hark_human(double value, char text[HARK_HUMAN_BYTES]) {
  static const char *const factors[] = {"", " k", " M", " G", " T", " P"};
  size_t factor = 0;
  while (fabs(value) >= 999.5 && factor + 1 < sizeof factors / sizeof factors[0]) {
    value /= 1000;
    factor++;
  }
  const double size = fabs(value);
  const double step = factor == 0 ? 1 : size < 9.995 ? 100 : size < 99.95 ? 10 : 1; /* three digits */
  char number[HARK_NUMBER_BYTES];
  snprintf(text, HARK_HUMAN_BYTES, "%.15s%s", hark_number_print(round(value * step) / step, number), factors[factor]);
  return text;
}

hark_status hark_command_check_memory(hark_context *context, const char *what, double bytes) {
  hark_machine_memory left;
  HARK_TRY(hark_machine_memory_left(context, "", &left));
  if (!left.known || bytes <= (double)left.bytes) return HARK_OK;
  return hark_fail(context, HARK_OUT_OF_MEMORY, "%s needs %.4g GB of memory, and %s has %.4g GB left", what, bytes / 1e9, left.limit,
                   (double)left.bytes / 1e9);
}
