/* progress.h - progress of long work on stderr: one line that is rewritten on a terminal, otherwise a line from time to time.
 *
 * Nothing is animated when stderr is no terminal or TERM is "dumb". Permanent lines are written by hark_progress_line(), which removes the
 * rewritten line first.
 */
#ifndef HARK_CLI_PROGRESS_H
#define HARK_CLI_PROGRESS_H

#include "core/core.h"

#define HARK_PROGRESS_TERMINAL_SECONDS 0.1 /* between rewrites */
#define HARK_PROGRESS_PLAIN_SECONDS 10.0   /* between lines */

typedef struct hark_progress {
  bool terminal;
  bool shown;          /* a line that will be rewritten is on the screen */
  double last;         /* time of the last written update; below 0: none */
  double begun, first; /* of hark_progress_part: time and part at the first call; begun below 0: none, or the work began again */
} hark_progress;

hark_progress hark_progress_begin(void);

/* A piece of a line that is rewritten, in the order of the line. Where the line is too long for the terminal the pieces of the highest rank
 * are left out first; those of a rank up to HARK_PROGRESS_KEPT are shortened before any of them is left out. */
#define HARK_PROGRESS_PIECE_BYTES 64
#define HARK_PROGRESS_KEPT 2
typedef struct hark_progress_piece {
  int rank;                                                               /* 0: left out last */
  char text[HARK_PROGRESS_PIECE_BYTES], brief[HARK_PROGRESS_PIECE_BYTES]; /* "": not shown; brief "": the text itself */
} hark_progress_piece;
/* The pieces that fit into so many columns, with two blanks between them; where not even one fits, its beginning. */
void hark_progress_fit(const hark_progress_piece *pieces, int count, int columns, char *out, size_t bytes);
/* Writes them when an update is due: as many as fit on a terminal, all of them elsewhere. */
void hark_progress_show(hark_progress *progress, const hark_progress_piece *pieces, int count);

/* Whether an update would be written now: otherwise the caller need not format its text. */
bool hark_progress_due(const hark_progress *progress);
/* Writes an update of one piece when one is due. */
void hark_progress_update(hark_progress *progress, const char *format, ...) HARK_PRINTF(2, 3);
/* The same for work with the fraction `part` done: "WORDS  40 %  1:02 left". */
void hark_progress_part(hark_progress *progress, double part, const char *format, ...) HARK_PRINTF(3, 4);
/* Writes a line that stays. */
void hark_progress_line(hark_progress *progress, const char *format, ...) HARK_PRINTF(2, 3);
/* Removes the rewritten line. */
void hark_progress_end(hark_progress *progress);

/* Seconds of a monotonic clock. */
double hark_progress_clock(void);
/* "1:02:03" or "2:03". `text` of HARK_PROGRESS_TIME_BYTES. */
#define HARK_PROGRESS_TIME_BYTES 40
const char *hark_progress_time(double seconds, char text[HARK_PROGRESS_TIME_BYTES]);

#endif
