/* positional_figure.h - pictures of positional kernels: G over the distance. */
#ifndef HARK_CLI_POSITIONAL_FIGURE_H
#define HARK_CLI_POSITIONAL_FIGURE_H

#include "cli/common.h"

typedef struct hark_positional_figure {
  const char *path;
  const char *text; /* the expression; NULL: every kernel of the language, in a panel each */
  int64_t length;   /* the context for which initial values are made, and the number of distances */
  int64_t heads;    /* a curve for each, with its initial values; at most HARK_POSITIONAL_CURVES are drawn */
} hark_positional_figure;

#define HARK_POSITIONAL_CURVES 8

/* Errors: those of expressions and files. */
HARK_MUST_CHECK hark_status hark_positional_draw(hark_invocation *call, const hark_positional_figure *figure);

#endif
