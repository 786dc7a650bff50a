/* plot_positional.h - learned positions of a checkpoint: kernels as curves over the distance, rotary rates as curves over the pairs. */
#ifndef HARK_CLI_PLOT_PLOT_POSITIONAL_H
#define HARK_CLI_PLOT_PLOT_POSITIONAL_H

#include "cli/common.h"
#include "cli/metrics.h"

typedef struct hark_positional_plot {
  const char *model;      /* a file, a checkpoint's folder or a run's */
  const char *checkpoint; /* of a run; "": best, or else last */
  int64_t distances;      /* 0: the model's context */
  const char *picture;    /* NULL: with letters on the terminal, `columns` wide and `rows` high */
  bool png;
  int columns, rows;
} hark_positional_plot;

/* A panel for each kernel: log G(distance / stretch), and with thinner lines the terms of its outermost sum. For a kernel with a direction
 * in a model that is not causal there are two panels, "left" and "right". A panel for each row of learned rates: the angle per token by
 * pair, without its sign, and with a thinner line the initial one. Errors: HARK_BAD_FILE (neither is there, more than can be drawn), those
 * of hark_model_find_file() and of files. */
HARK_MUST_CHECK hark_status hark_plot_positional(hark_invocation *call, const hark_positional_plot *plot);

/* A curve of such a panel: points (distance, log G), or (pair, angle per token). Valid during the visit. */
typedef struct hark_positional_curve {
  const char *panel; /* "layer 3, head 1" */
  bool rates;
  int index; /* 0: the kernel, or the learned rates; from 1 on: its terms, or the initial rates */
  hark_series *series;
} hark_positional_curve;
typedef hark_status hark_positional_curve_visitor(void *user, const hark_positional_curve *curve);

/* Visits the curves of all panels, in their order, of which there may be none; the visitor may thin the series. Errors: those above except
 * that there is none, and the visitor's. */
HARK_MUST_CHECK hark_status hark_positional_curves_visit(hark_context *context, const char *model, const char *checkpoint,
                                                         hark_positional_curve_visitor *visit, void *user);

#endif
