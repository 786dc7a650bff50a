/* predict_figure.h - the picture of hark predict: rows of the context, predictions and intervals over the only input. */
#ifndef HARK_CLI_PREDICT_PREDICT_FIGURE_H
#define HARK_CLI_PREDICT_PREDICT_FIGURE_H

#include "cli/common.h"

/* A prediction at x. */
typedef struct hark_predict_point {
  double x, mean, lower, upper;
} hark_predict_point;

typedef struct hark_predict_figure {
  const char *path, *input, *target; /* names of the columns */
  double interval;                   /* probability */
  const double *known;               /* [known_count, 2]: input and target of rows of the context */
  int64_t known_count;
  hark_predict_point *points; /* [point_count], are sorted by x */
  int64_t point_count;
} hark_predict_figure;

/* Draws it as SVG, or as PNG if the path ends in .png. Errors: those of pictures, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_predict_draw(hark_invocation *call, const hark_predict_figure *figure);

#endif
