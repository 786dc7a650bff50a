/* plot_evaluation.h - several evaluations in one picture: loss over context, and loss over the position in the window. */
#ifndef HARK_CLI_PLOT_PLOT_EVALUATION_H
#define HARK_CLI_PLOT_PLOT_EVALUATION_H

#include "cli/common.h"

typedef struct hark_evaluation_plot {
  const char *picture;   /* NULL: with letters on the terminal, `columns` wide and `rows` high */
  bool png, logarithmic; /* the vertical axis of pictures */
  int columns, rows;
} hark_evaluation_plot;

/* Draws the lines of hark eval --json in the files that are the call's arguments: a curve over context for each model (run, checkpoint,
 * replaced parts, stride), one over position for each model and context; of two lines about the same the later one counts. Warns where
 * lines were measured on different numbers of targets. Errors: HARK_BAD_FILE (another line, none at all, more than can be drawn), those of
 * files. */
HARK_MUST_CHECK hark_status hark_plot_evaluation(hark_invocation *call, const hark_evaluation_plot *plot);

#endif
