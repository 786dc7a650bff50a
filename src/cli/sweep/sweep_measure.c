/* sweep_measure.c - see sweep_measure.h. */
#include "cli/sweep/sweep_measure.h"

#include <math.h>
#include <string.h>

#include "cli/metrics.h"
#include "io/number.h"

const hark_sweep_budget hark_sweep_whole = {"", INFINITY};

hark_status hark_sweep_budget_read(hark_context *context, const char *words, hark_sweep_budget *out) {
  const char *const equals = strrchr(words, '=');
  const size_t length = equals != NULL ? (size_t)(equals - words) : 0;
  *out = (hark_sweep_budget){.limit = NAN};
  if (words[0] == '\0') return HARK_OK;
  const bool least = equals != NULL && strcmp(equals + 1, "least") == 0;
  const bool number = equals != NULL && hark_number_read(equals + 1, strlen(equals + 1), &out->limit) && out->limit >= 0;
  if (length == 0 || length >= sizeof out->name || (!least && !number))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--at: '%s' given, expected a metric's name, '=' and 'least' or a number from 0 on",
                     words);
  if (least) out->limit = NAN;
  memcpy(out->name, words, length);
  return HARK_OK;
}

bool hark_sweep_more_is_better(const char *metric) {
  return strstr(metric, "accuracy") != NULL || strcmp(metric, "tokens_per_second") == 0 || strcmp(metric, "mfu") == 0;
}

static double x_of(const hark_series *series, int64_t point) { return series->points[2 * point]; }
static double y_of(const hark_series *series, int64_t point) { return series->points[2 * point + 1]; }

/* The last, or the best, point within the limit; -1: there is none. */
static int64_t last_within(const hark_series *series, double limit) {
  int64_t point = series->count - 1;
  while (point >= 0 && !(x_of(series, point) <= limit)) point--;
  return point;
}

static int64_t best_within(const hark_series *series, double limit, bool more) {
  int64_t best = -1;
  for (int64_t p = 0; p < series->count; p++) {
    if (!(x_of(series, p) <= limit)) continue;
    if (best < 0 || (more ? y_of(series, p) > y_of(series, best) : y_of(series, p) < y_of(series, best))) best = p;
  }
  return best;
}

/* The last point with an x; -1: there is none. */
static int64_t point_at(const hark_series *series, double x) {
  int64_t point = series->count - 1;
  while (point >= 0 && x_of(series, point) != x) point--;
  return point;
}

hark_status hark_sweep_value_of(hark_context *context, const char *run, const hark_sweep_choice *choice, const hark_sweep_budget *budget,
                                double *value) {
  const char *const x = budget->name[0] != '\0' ? budget->name : "step";
  hark_series series = {0}, losses = {0};
  int64_t point = -1;
  hark_status status = hark_series_read(context, run, x, choice->metric, &series);
  if (status == HARK_OK && choice->choose == HARK_SWEEP_CHECKPOINT) {
    status = hark_series_read(context, run, x, "val/loss", &losses);
    const int64_t least = status == HARK_OK ? best_within(&losses, budget->limit, false) : -1;
    if (least >= 0) point = point_at(&series, x_of(&losses, least));
  } else if (status == HARK_OK) {
    point = choice->choose == HARK_SWEEP_LAST ? last_within(&series, budget->limit) : best_within(&series, budget->limit, choice->more);
  }
  if (point >= 0) *value = y_of(&series, point);
  hark_series_free(context, &series);
  hark_series_free(context, &losses);
  return status;
}

hark_status hark_sweep_total_of(hark_context *context, const char *run, const char *name, const char *metric, double *total) {
  hark_series series = {0};
  const hark_status status = hark_series_read(context, run, name, metric, &series);
  if (status == HARK_OK && series.count > 0) *total = series.last_x;
  hark_series_free(context, &series);
  return status;
}
