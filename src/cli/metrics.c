/* metrics.c - curves from metrics.jsonl, and their picture in letters. */
#include "cli/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/common.h"
#include "io/number.h"
#include "json/jsonl.h"

#define FIRST_POINTS 256
#define LABEL_COLUMNS 10 /* of the numbers next to the vertical axis */
#define AXIS_DIGITS 4    /* that are shown of them */
#define LEAST_COLUMNS 24
#define LEAST_ROWS 6

typedef struct reading {
  hark_context *context;
  const char *x, *y;
  hark_series *series;
} reading;

hark_status hark_series_append(hark_context *context, hark_series *series, double x, double y) {
  if (series->count == series->capacity) {
    const int64_t capacity = series->capacity > 0 ? 2 * series->capacity : FIRST_POINTS;
    void *grown;
    HARK_TRY(hark_allocate(context, (size_t)capacity * 2 * sizeof(double), &grown));
    if (series->count > 0) memcpy(grown, series->points, (size_t)series->count * 2 * sizeof(double));
    hark_release(context, series->points, (size_t)series->capacity * 2 * sizeof(double));
    series->points = grown;
    series->capacity = capacity;
  }
  if (series->count == 0) {
    series->low = series->high = y;
    series->first_x = series->last_x = x;
  }
  series->points[2 * series->count] = x;
  series->points[2 * series->count + 1] = y;
  series->count++;
  series->low = fmin(series->low, y);
  series->high = fmax(series->high, y);
  series->first_x = fmin(series->first_x, x);
  series->last_x = fmax(series->last_x, x);
  return HARK_OK;
}

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  const reading *const r = user;
  const json_t *const x = json_object_get(object, r->x), *const y = json_object_get(object, r->y);
  (void)line;
  if (!json_is_number(x) || !json_is_number(y)) return HARK_OK;
  return hark_series_append(r->context, r->series, json_number_value(x), json_number_value(y));
}

hark_status hark_series_read(hark_context *context, const char *run, const char *x, const char *y, hark_series *out) {
  char path[HARK_PATH_BYTES];
  *out = (hark_series){0};
  snprintf(out->label, sizeof out->label, "%.2000s %.200s", run, y);
  if (hark_path_kind_of(run) == HARK_PATH_FOLDER) {
    HARK_TRY(hark_path_join(context, run, "metrics.jsonl", path));
  } else {
    HARK_TRY(hark_path_join(context, "", run, path));
  }
  reading r = {context, x, y, out};
  return hark_jsonl_read(context, path, take_line, &r);
}

void hark_series_sort(hark_series *series) {
  double *points = series->points;
  int64_t kept = 0;
  for (int64_t p = 0; p < series->count; p++) {
    const double x = points[2 * p], y = points[2 * p + 1];
    int64_t at = kept;
    while (at > 0 && points[2 * (at - 1)] > x) at--;
    const bool again = at > 0 && points[2 * (at - 1)] == x;
    if (again) at--;
    if (!again) memmove(points + 2 * (at + 1), points + 2 * at, (size_t)(kept++ - at) * 2 * sizeof *points);
    points[2 * at] = x;
    points[2 * at + 1] = y;
  }
  series->count = kept;
  for (int64_t p = 0; p < kept; p++) {
    series->low = p == 0 ? points[1] : fmin(series->low, points[2 * p + 1]);
    series->high = p == 0 ? points[1] : fmax(series->high, points[2 * p + 1]);
  }
  if (kept == 0) return;
  series->first_x = points[0];
  series->last_x = points[2 * kept - 2];
}

static int64_t keep_point(hark_series *series, int64_t kept, int64_t point) {
  series->points[2 * kept] = series->points[2 * point];
  series->points[2 * kept + 1] = series->points[2 * point + 1];
  return kept + 1;
}

/* Points are only moved towards the beginning, so that those not yet visited are unchanged. */
void hark_series_thin(hark_series *series, int64_t most) {
  const int64_t inner = series->count - 2, parts = (most - 2) / 2;
  int64_t kept = 1;
  if (series->count <= most || parts < 1) return;
  for (int64_t part = 0; part < parts; part++) {
    const int64_t begin = 1 + inner * part / parts, end = 1 + inner * (part + 1) / parts;
    int64_t low = begin, high = begin;
    for (int64_t p = begin; p < end; p++) {
      if (series->points[2 * p + 1] < series->points[2 * low + 1]) low = p;
      if (series->points[2 * p + 1] > series->points[2 * high + 1]) high = p;
    }
    kept = keep_point(series, kept, low < high ? low : high);
    if (low != high) kept = keep_point(series, kept, low < high ? high : low);
  }
  series->count = keep_point(series, kept, series->count - 1);
}

void hark_series_free(hark_context *context, hark_series *series) {
  hark_release(context, series->points, (size_t)series->capacity * 2 * sizeof(double));
  series->points = NULL;
  series->count = series->capacity = 0;
}

/* ---- in letters ---- */

static char letter(int index) { return (char)(index < 26 ? 'a' + index : '*'); }

/* Column or row of a value among `cells` between low and high. */
static int cell(double value, double low, double high, int cells) {
  const double part = high > low ? (value - low) / (high - low) : 0.5; /* NaN where the range overflows */
  return part >= 1 ? cells - 1 : part > 0 ? (int)(part * (cells - 1) + 0.5) : 0;
}

static void axis_number(double value, hark_text *text) {
  char rounded[HARK_NUMBER_BYTES];
  const double size = fabs(value);
  const double decimals = size > 0 ? fmin(fmax(AXIS_DIGITS - 1 - floor(log10(size)), 0), 12) : 0;
  const double scale = pow(10, decimals);
  hark_text_append(text, "%*.*s", LABEL_COLUMNS, LABEL_COLUMNS, hark_number_print(round(value * scale) / scale, rounded));
}

static double place(double x, bool logarithmic) { return logarithmic ? log2(x) : x; }

void hark_series_ranges(const hark_series *series, int count, double x[2], double y[2]) {
  x[0] = y[0] = INFINITY;
  x[1] = y[1] = -INFINITY;
  for (int i = 0; i < count; i++) {
    if (series[i].count == 0) continue;
    y[0] = fmin(y[0], series[i].low);
    y[1] = fmax(y[1], series[i].high);
    x[0] = fmin(x[0], series[i].first_x);
    x[1] = fmax(x[1], series[i].last_x);
  }
}

void hark_series_draw(const hark_series *series, int count, const char *x, bool logarithmic, int columns, int rows, hark_text *text) {
  double x_range[2], y_range[2];
  hark_series_ranges(series, count, x_range, y_range);
  const double low = y_range[0], high = y_range[1], first = x_range[0], last = x_range[1];
  if (!(low <= high)) {
    hark_text_append(text, "no points\n");
    return;
  }
  const int width = (columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns) - LABEL_COLUMNS - 2;
  const int height = (rows < LEAST_ROWS ? LEAST_ROWS : rows) - 2;
  hark_text grid = hark_text_empty(text->context);
  hark_text_resize(&grid, (size_t)width * (size_t)height);
  if (grid.status != HARK_OK) {
    text->status = text->status == HARK_OK ? grid.status : text->status;
    return;
  }
  memset(grid.data, ' ', grid.length);
  for (int i = 0; i < count; i++) {
    for (int64_t p = 0; p < series[i].count; p++) {
      const int column = cell(place(series[i].points[2 * p], logarithmic), place(first, logarithmic), place(last, logarithmic), width);
      const int row = height - 1 - cell(series[i].points[2 * p + 1], low, high, height);
      grid.data[(size_t)row * (size_t)width + (size_t)column] = letter(i);
    }
  }
  for (int row = 0; row < height; row++) {
    const bool labelled = row == 0 || row == height - 1 || row == height / 2;
    if (labelled) {
      axis_number(high - (high - low) * row / (height - 1), text);
    } else {
      hark_text_append(text, "%*s", LABEL_COLUMNS, "");
    }
    int used = width;
    while (used > 0 && grid.data[row * width + used - 1] == ' ') used--;
    hark_text_append(text, " |%.*s\n", used, grid.data + (size_t)row * (size_t)width);
  }
  hark_text_append(text, "%*s +", LABEL_COLUMNS, "");
  for (int column = 0; column < width; column++) hark_text_append_bytes(text, "-", 1);
  char begin[HARK_HUMAN_BYTES], end[HARK_HUMAN_BYTES];
  hark_human(first, begin);
  hark_human(last, end);
  const int gap = width - (int)strlen(begin) - (int)strlen(end) - (int)strlen(x);
  hark_text_append(text, "\n%*s%s%*s%s%*s%s\n", LABEL_COLUMNS + 2, "", begin, gap > 0 ? gap / 2 : 1, "", x, gap > 0 ? gap - gap / 2 : 1, "",
                   end);
  for (int i = 0; i < count; i++) {
    hark_text_append(text, "%*c  %s\n", LABEL_COLUMNS + 2, letter(i), series[i].label);
  }
  hark_text_free(&grid);
}
