/* metrics.h - curves: points, for example from metrics.jsonl, and drawing them with letters. */
#ifndef HARK_CLI_METRICS_H
#define HARK_CLI_METRICS_H

#include "core/core.h"
#include "io/files.h"

/* One metric of a run: points (x, y) in the order of the file; lines that lack either of the two are left out. */
typedef struct hark_series {
  char label[HARK_PATH_BYTES]; /* "run train/loss" */
  double *points;              /* x0, y0, x1, y1, .. */
  int64_t count, capacity;     /* points */
  double low, high;            /* of y */
  double first_x, last_x;
} hark_series;

/* Reads `y` over `x` ("step", "tokens", "time") from the metrics.jsonl of a run, or from a file of that kind. The caller frees it, also
 * after a failure. */
HARK_MUST_CHECK hark_status hark_series_read(hark_context *context, const char *run, const char *x, const char *y, hark_series *out);
/* Adds a point; a series begins as zeros. */
HARK_MUST_CHECK hark_status hark_series_append(hark_context *context, hark_series *series, double x, double y);
/* The ranges of all points of several curves: x low, x high, y low, y high; infinity and minus infinity without points. */
void hark_series_ranges(const hark_series *series, int count, double x[2], double y[2]);
void hark_series_free(hark_context *context, hark_series *series);
/* Sorts the points by x; of several with the same x only the last remains. */
void hark_series_sort(hark_series *series);

/* Keeps at most `most` points, at least 4: the first, the last, and of equal parts of the others the least and the greatest, so that no
 * peak is lost. */
void hark_series_thin(hark_series *series, int64_t most);

/* Draws the curves with letters, `columns` wide and `rows` high, axes and legend included. `logarithmic`: over log x, x > 0. */
void hark_series_draw(const hark_series *series, int count, const char *x, bool logarithmic, int columns, int rows, hark_text *text);

#endif
