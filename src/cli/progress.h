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
  bool shown;          /* a line that will be rewritten stands there */
  double last;         /* time of the last update that was written; below 0: none */
  double begun, first; /* of hark_progress_part: time and part at the first call; begun below 0: none, or it began again */
} hark_progress;

hark_progress hark_progress_begin(void);

/* A piece of a line that is rewritten, in the order of the line. Where the line is too long for the terminal the pieces of the highest rank
 * are left out first; those of a rank up to HARK_PROGRESS_KEPT are made brief before any of them goes. */
#define HARK_PROGRESS_PIECE_BYTES 64
#define HARK_PROGRESS_KEPT 2
typedef struct hark_progress_piece {
  int rank;                                                               /* 0: the last one to go */
  char text[HARK_PROGRESS_PIECE_BYTES], brief[HARK_PROGRESS_PIECE_BYTES]; /* "" : there is nothing to say; brief "": the text itself */
} hark_progress_piece;
/* The pieces that fit into so many columns, two blanks between them; where not even one does, the front of it. */
void hark_progress_fit(const hark_progress_piece *pieces, int count, int columns, char *out, size_t bytes);
/* Writes them when an update is due: as many as fit on a terminal, all of them elsewhere. */
void hark_progress_show(hark_progress *progress, const hark_progress_piece *pieces, int count);

/* Whether an update now would be written: lets the caller skip the making of its text. */
bool hark_progress_due(const hark_progress *progress);
/* Writes an update of one piece when one is due. */
void hark_progress_update(hark_progress *progress, const char *format, ...) HARK_PRINTF(2, 3);
/* The same of work of which `part`, 0 to 1, is done: "WORDS  40 %  1:02 left". */
void hark_progress_part(hark_progress *progress, double part, const char *format, ...) HARK_PRINTF(3, 4);
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
