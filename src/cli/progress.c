/* progress.c - progress of long work on stderr. */
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
  return (hark_progress){.terminal = isatty(STDERR_FILENO) == 1 && kind != NULL && strcmp(kind, "dumb") != 0, .last = -1, .begun = -1};
}

bool hark_progress_due(const hark_progress *progress) {
  const double every = progress->terminal ? HARK_PROGRESS_TERMINAL_SECONDS : HARK_PROGRESS_PLAIN_SECONDS;
  return progress->last < 0 || hark_progress_clock() - progress->last >= every;
}

static int columns(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : COLUMNS_DEFAULT;
}

/* ---- lines that fit ---- */

static const char *words_of(const hark_progress_piece *piece, bool brief) {
  return brief && piece->brief[0] != '\0' ? piece->brief : piece->text;
}

/* Pieces of a rank up to `most`; the columns that they take. */
static int join(const hark_progress_piece *pieces, int count, int most, bool brief, char *out, size_t bytes) {
  int used = 0;
  out[0] = '\0';
  for (int i = 0; i < count; i++) {
    const char *const words = words_of(&pieces[i], brief);
    if (pieces[i].rank > most || words[0] == '\0') continue;
    const size_t at = hark_min((int64_t)used, (int64_t)bytes - 1);
    used += snprintf(out + at, bytes - at, "%s%s", used > 0 ? "  " : "", words);
  }
  return used;
}

static int highest_rank(const hark_progress_piece *pieces, int count) {
  int rank = 0;
  for (int i = 0; i < count; i++) rank = pieces[i].rank > rank ? pieces[i].rank : rank;
  return rank;
}

void hark_progress_fit(const hark_progress_piece *pieces, int count, int columns, char *out, size_t bytes) {
  const int highest = highest_rank(pieces, count);
  for (int rank = highest; rank > HARK_PROGRESS_KEPT; rank--)
    if (join(pieces, count, rank, false, out, bytes) <= columns) return;
  if (join(pieces, count, HARK_PROGRESS_KEPT, false, out, bytes) <= columns) return;
  for (int rank = HARK_PROGRESS_KEPT; rank >= 0; rank--)
    if (join(pieces, count, rank, true, out, bytes) <= columns) return;
  if (columns >= 0 && (size_t)columns < bytes) out[columns] = '\0';
}

/* A line that is rewritten, or one more. */
static void put(hark_progress *progress, const char *line) {
  progress->last = hark_progress_clock();
  if (progress->terminal) {
    fprintf(stderr, CLEAR_LINE "%.*s", columns() - 1, line); /* a line that wraps could not be removed */
    fflush(stderr);
    progress->shown = true;
  } else {
    fprintf(stderr, "%s\n", line);
  }
}

void hark_progress_show(hark_progress *progress, const hark_progress_piece *pieces, int count) {
  char line[LINE_BYTES];
  if (!hark_progress_due(progress)) return;
  if (progress->terminal)
    hark_progress_fit(pieces, count, columns() - 1, line, sizeof line);
  else
    (void)join(pieces, count, highest_rank(pieces, count), false, line, sizeof line);
  put(progress, line);
}

void hark_progress_update(hark_progress *progress, const char *format, ...) {
  if (!hark_progress_due(progress)) return;
  char line[LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  put(progress, line);
}

void hark_progress_part(hark_progress *progress, double part, const char *format, ...) {
  enum { WORDS, PERCENT, LEFT, PIECES };
  const double now = hark_progress_clock();
  if (progress->begun < 0 || part < progress->first) {
    progress->begun = now;
    progress->first = part;
  }
  if (!hark_progress_due(progress)) return;
  hark_progress_piece pieces[PIECES] = {[WORDS] = {.rank = 2}, [PERCENT] = {.rank = 0}, [LEFT] = {.rank = 1}};
  char left[HARK_PROGRESS_TIME_BYTES];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(pieces[WORDS].text, sizeof pieces[WORDS].text, format, arguments);
  va_end(arguments);
  (void)snprintf(pieces[PERCENT].text, sizeof pieces[PERCENT].text, "%.0f %%", 100 * part);
  if (part > progress->first && part < 1)
    (void)snprintf(pieces[LEFT].text, sizeof pieces[LEFT].text, "%s left",
                   hark_progress_time((now - progress->begun) / (part - progress->first) * (1 - part), left));
  hark_progress_show(progress, pieces, PIECES);
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
