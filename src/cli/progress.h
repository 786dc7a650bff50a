/* progress.h - how long work tells how far it is: on stderr, one line that is rewritten where that is a terminal, else a line now and then.
 *
 * Nothing is animated when stderr is no terminal or TERM is "dumb". Lines that are to stay go through hark_progress_line(), which takes the
 * rewritten line out of the way first.
 */
#ifndef HARK_CLI_PROGRESS_H
#define HARK_CLI_PROGRESS_H

#include "core/core.h"

#define HARK_PROGRESS_TERMINAL_SECONDS 0.1 /* between rewrites */
#define HARK_PROGRESS_PLAIN_SECONDS 10.0   /* between lines */

typedef struct hark_progress {
  bool terminal;
  bool shown;  /* a line that will be rewritten stands there */
  double last; /* time of the last update that was written; below 0: none */
} hark_progress;

hark_progress hark_progress_begin(void);

/* Whether an update now would be written: lets the caller skip the making of its text. */
bool hark_progress_due(const hark_progress *progress);
/* Writes an update when one is due. */
void hark_progress_update(hark_progress *progress, const char *format, ...) HARK_PRINTF(2, 3);
/* Writes a line that stays. */
void hark_progress_line(hark_progress *progress, const char *format, ...) HARK_PRINTF(2, 3);
/* Takes the rewritten line away. */
void hark_progress_end(hark_progress *progress);

/* Seconds of a clock that only goes forward. */
double hark_progress_clock(void);
/* "1:02:03" or "2:03". `text` of HARK_PROGRESS_TIME_BYTES. */
#define HARK_PROGRESS_TIME_BYTES 40
const char *hark_progress_time(double seconds, char text[HARK_PROGRESS_TIME_BYTES]);

#endif
