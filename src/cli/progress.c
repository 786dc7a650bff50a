/* progress.c - how long work tells how far it is. */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "io/machine.h"

#define LINE_BYTES 512
#define COLUMNS_DEFAULT 80
#define CLEAR_LINE "\r\x1b[K"
#define LONGEST_TIME 3.6e9 /* seconds; shown as "-" from there on */

double hark_progress_clock(void) { return hark_machine_seconds(); }

hark_progress hark_progress_begin(void) {
  const char *const kind = getenv("TERM");
  return (hark_progress){.terminal = isatty(STDERR_FILENO) == 1 && kind != NULL && strcmp(kind, "dumb") != 0, .last = -1};
}

bool hark_progress_due(const hark_progress *progress) {
  const double every = progress->terminal ? HARK_PROGRESS_TERMINAL_SECONDS : HARK_PROGRESS_PLAIN_SECONDS;
  return progress->last < 0 || hark_progress_clock() - progress->last >= every;
}

static int columns(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS_DEFAULT;
}

void hark_progress_update(hark_progress *progress, const char *format, ...) {
  if (!hark_progress_due(progress)) return;
  char line[LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  progress->last = hark_progress_clock();
  if (progress->terminal) {
    fprintf(stderr, CLEAR_LINE "%.*s", columns() - 1, line); /* a line that wraps could not be taken back */
    fflush(stderr);
    progress->shown = true;
  } else {
    fprintf(stderr, "%s\n", line);
  }
}

void hark_progress_end(hark_progress *progress) {
  if (progress->shown) {
    fputs(CLEAR_LINE, stderr);
    fflush(stderr);
  }
  progress->shown = false;
}

void hark_progress_line(hark_progress *progress, const char *format, ...) {
  hark_progress_end(progress);
  va_list arguments;
  va_start(arguments, format);
  (void)vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
}

const char *hark_progress_time(double seconds, char text[HARK_PROGRESS_TIME_BYTES]) {
  if (!(seconds >= 0) || seconds >= LONGEST_TIME) {
    memcpy(text, "-", 2);
    return text;
  }
  const int64_t whole = (int64_t)(seconds + 0.5);
  const int hours = (int)(whole / 3600), minutes = (int)(whole / 60 % 60), rest = (int)(whole % 60);
  if (hours > 0) {
    snprintf(text, HARK_PROGRESS_TIME_BYTES, "%d:%02u:%02u", hours, (unsigned)minutes, (unsigned)rest);
  } else {
    snprintf(text, HARK_PROGRESS_TIME_BYTES, "%d:%02u", minutes, (unsigned)rest);
  }
  return text;
}
