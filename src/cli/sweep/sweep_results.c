/* sweep_results.c - what came of the runs of a sweep: results.jsonl, metrics within budgets, the table and the picture. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/gnuplot.h"
#include "cli/metric_names.h"
#include "cli/metrics.h"
#include "cli/sweep/sweep.h"

#define PICTURE_NAME "sweep.svg"
#define PICTURE_HEIGHT 560 /* without its key, which is below */
#define KEY_HEIGHT 24      /* of a cell there */

static int find_run(const sweep *s, const char *name) {
  char own[HARK_SWEEP_CELL_BYTES];
  for (int run = 0; run < s->runs; run++) {
    hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), own);
    if (strcmp(own, name) == 0) return run;
  }
  return -1;
}

static hark_status take_result(void *user, const json_t *object, int64_t line) {
  sweep *s = user;
  const char *name = json_string_value(json_object_get(object, "run"));
  const int run = name != NULL ? find_run(s, name) : -1;
  (void)line;
  const json_t *code = json_object_get(object, "exit_code");
  if (run >= 0) s->whole[run] = json_is_integer(code) && json_integer_value(code) == HARK_EXIT_DONE;
  return HARK_OK;
}

hark_status hark_sweep_read_results(sweep *s, const char *path) {
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return HARK_OK;
  return hark_jsonl_read(s->context, path, take_result, s);
}

/* Whether a run has ended and has metrics; its folder. */
static hark_status find_metrics(const sweep *s, int run, char *path, bool *there) {
  char metrics[HARK_PATH_BYTES];
  HARK_TRY(hark_sweep_run_path(s, run, path));
  HARK_TRY(hark_path_join(s->context, path, "metrics.jsonl", metrics));
  *there = s->whole[run] && hark_path_kind_of(metrics) != HARK_PATH_NONE;
  return HARK_OK;
}

/* The metric of a run and the additional numbers of the table, within a budget; NaN where it has none. */
hark_status hark_sweep_measure_run(sweep *s, int run, const hark_sweep_budget *budget) {
  char path[HARK_PATH_BYTES];
  bool there = false;
  s->results.values[run] = NAN;
  for (int i = 0; i < s->results.beside_count; i++) s->results.beside[i][run] = NAN;
  HARK_TRY(find_metrics(s, run, path, &there));
  if (!there) return HARK_OK;
  const hark_sweep_choice choice = {s->values->metric, s->values->choose, s->results.more};
  HARK_TRY(hark_sweep_value_of(s->context, path, &choice, budget, &s->results.values[run]));
  const bool none = budget->name[0] != '\0' && isnan(s->results.values[run]); /* no evaluation is within the budget */
  for (int i = 0; i < s->results.beside_count && !none; i++) {
    const hark_sweep_choice beside = {.metric = s->results.beside_names[i], .choose = HARK_SWEEP_LAST};
    HARK_TRY(hark_sweep_value_of(s->context, path, &beside, budget, &s->results.beside[i][run]));
  }
  return HARK_OK;
}

/* The least total of the budget's metric over the runs. */
static hark_status find_least(sweep *s, hark_sweep_budget *budget) {
  budget->limit = INFINITY;
  for (int run = 0; run < s->runs; run++) {
    char path[HARK_PATH_BYTES];
    bool there = false;
    double total = NAN;
    HARK_TRY(find_metrics(s, run, path, &there));
    if (there) HARK_TRY(hark_sweep_total_of(s->context, path, budget->name, s->values->metric, &total));
    budget->limit = fmin(budget->limit, total);
  }
  if (isfinite(budget->limit)) return HARK_OK;
  return hark_fail(s->context, HARK_BAD_CONFIGURATION, "--at: no run has %s in a line of metrics.jsonl with %s", budget->name,
                   s->values->metric);
}

/* Refuses metrics that were requested and that no run has, if one has any. */
static hark_status require_metrics(const sweep *s, const json_t *names) {
  const hark_status status = HARK_BAD_CONFIGURATION;
  if (hark_command_is_given(s->call, "metric"))
    HARK_TRY(hark_metric_names_require(s->context, names, status, "--metric: ", s->values->metric));
  if (s->values->choose == HARK_SWEEP_CHECKPOINT)
    HARK_TRY(hark_metric_names_require(s->context, names, status, "--choose checkpoint: ", "val/loss"));
  for (int i = 0; i < s->results.beside_count && hark_command_is_given(s->call, "beside"); i++)
    HARK_TRY(hark_metric_names_require(s->context, names, status, "--beside: ", s->results.beside_names[i]));
  return s->results.budget.name[0] == '\0' ? HARK_OK
                                           : hark_metric_names_require(s->context, names, status, "--at: ", s->results.budget.name);
}

static bool requests_metrics(const sweep *s) {
  return hark_command_is_given(s->call, "metric") || hark_command_is_given(s->call, "beside") ||
         s->values->choose == HARK_SWEEP_CHECKPOINT || s->results.budget.name[0] != '\0';
}

static hark_status add_names(const sweep *s, json_t **names) {
  for (int run = 0; run < s->runs; run++) {
    char path[HARK_PATH_BYTES];
    bool there = false;
    HARK_TRY(find_metrics(s, run, path, &there));
    if (there) HARK_TRY(hark_metric_names_add(s->context, path, names));
  }
  return HARK_OK;
}

/* Whether some run has the metric in a line with that of --at. */
static hark_status find_budget(const sweep *s, bool *found) {
  for (int run = 0; run < s->runs && !*found; run++) {
    char path[HARK_PATH_BYTES];
    bool there = false;
    double total = NAN;
    HARK_TRY(find_metrics(s, run, path, &there));
    if (there) HARK_TRY(hark_sweep_total_of(s->context, path, s->results.budget.name, s->values->metric, &total));
    *found = !isnan(total);
  }
  return HARK_OK;
}

static hark_status require_budget(const sweep *sweeps, int count, const json_t *names) {
  const char *const at = sweeps->results.budget.name, *const metric = sweeps->values->metric;
  bool found = at[0] == '\0' || json_object_get(names, metric) == NULL;
  for (int i = 0; i < count && !found; i++) HARK_TRY(find_budget(&sweeps[i], &found));
  if (found) return HARK_OK;
  return hark_fail(sweeps->context, HARK_BAD_CONFIGURATION, "--at: no run has %s in a line of metrics.jsonl with %s", at, metric);
}

/* A run that is left may be the one that has the metric. */
hark_status hark_sweep_check_metrics(const sweep *sweeps, int count) {
  json_t *names = NULL;
  hark_status status = HARK_OK;
  if (!requests_metrics(sweeps)) return HARK_OK;
  for (int i = 0; i < count; i++)
    if (hark_sweep_left(&sweeps[i]) > 0) return HARK_OK;
  for (int i = 0; i < count && status == HARK_OK; i++) status = add_names(&sweeps[i], &names);
  if (status == HARK_OK) status = require_metrics(sweeps, names);
  if (status == HARK_OK) status = require_budget(sweeps, count, names);
  json_decref(names);
  return status;
}

/* Measures all runs again within the budget of --at. */
static hark_status measure_at(sweep *s) {
  hark_sweep_budget *budget = &s->results.budget;
  if (budget->name[0] == '\0') return HARK_OK;
  if (isnan(budget->limit)) HARK_TRY(find_least(s, budget));
  for (int run = 0; run < s->runs; run++) HARK_TRY(hark_sweep_measure_run(s, run, budget));
  return HARK_OK;
}

/* The names of --beside. */
hark_status hark_sweep_read_beside(sweep *s) {
  const char *at = strcmp(s->values->beside, "none") == 0 ? "" : s->values->beside;
  while (*at != '\0') {
    const size_t length = strcspn(at, ",");
    if (length == 0 || length >= HARK_SWEEP_METRIC_BYTES || s->results.beside_count == HARK_SWEEP_BESIDE)
      return hark_fail(s->context, HARK_BAD_CONFIGURATION, "--beside: '%s', expected up to %d names of metrics, separated by commas",
                       s->values->beside, HARK_SWEEP_BESIDE);
    char *name = s->results.beside_names[s->results.beside_count];
    memcpy(name, at, length);
    name[length] = '\0';
    for (int i = 0; i < s->results.beside_count; i++)
      if (strcmp(s->results.beside_names[i], name) == 0)
        return hark_fail(s->context, HARK_BAD_CONFIGURATION, "--beside: %s is given twice", name);
    s->results.beside[s->results.beside_count] = s->results.values + (ptrdiff_t)(1 + s->results.beside_count) * HARK_SWEEP_RUNS;
    s->results.beside_count++;
    at += length;
    if (*at == ',' && *++at == '\0')
      return hark_fail(s->context, HARK_BAD_CONFIGURATION, "--beside: '%s' ends with a comma", s->values->beside);
  }
  return HARK_OK;
}

hark_status hark_sweep_record(sweep *s, int run, int exit_code) {
  hark_jsonl *const file = &s->lines;
  char name[HARK_SWEEP_CELL_BYTES];
  hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), name);
  hark_jsonl_begin(file);
  hark_jsonl_string(file, "run", name);
  hark_sweep_cell_name(s->plan, hark_sweep_cell_of(s, run), name);
  hark_jsonl_string(file, "cell", name);
  hark_jsonl_integer(file, "seed", s->plan->seeds[hark_sweep_seed_of(s, run)]);
  hark_jsonl_integer(file, "exit_code", exit_code);
  hark_jsonl_number(file, s->values->metric, s->results.values[run]);
  HARK_TRY(hark_jsonl_end(s->context, file));
  return hark_jsonl_flush(s->context, file, NULL);
}

/* The metric of every complete run over the steps; of the others a series without points. */
static hark_status read_series(const sweep *s, hark_series *series) {
  char folder[HARK_PATH_BYTES];
  for (int run = 0; run < s->runs; run++) {
    if (!isfinite(s->results.values[run])) continue;
    HARK_TRY(hark_sweep_run_path(s, run, folder));
    HARK_TRY(hark_series_read(s->context, folder, "step", s->values->metric, &series[run]));
  }
  return HARK_OK;
}

/* One colour and one entry of the key per cell; points, since a run may have been evaluated only once. */
static void append_curves(const sweep *s, const hark_series *series, hark_picture *picture) {
  char name[HARK_SWEEP_CELL_BYTES], style[64], color[HARK_COLOR_BYTES];
  int labelled = -1;
  for (int run = 0; run < s->runs; run++) {
    const int cell = hark_sweep_cell_of(s, run);
    if (series[run].count == 0) continue;
    hark_sweep_cell_name(s->plan, cell, name);
    hark_picture_add_curve(picture, name, series[run].points, series[run].count);
    (void)snprintf(style, sizeof style, "linespoints pt 7 ps 0.4 lc rgb '%s'", hark_picture_color(cell, color));
    hark_text_append(&picture->script, "%s", picture->curves == 1 ? "plot " : ", \\\n    ");
    hark_picture_append_curve(picture, picture->curves - 1, style, labelled == cell ? "" : name);
    labelled = cell;
  }
}

hark_status hark_sweep_check_picture(const sweep *s) {
  char path[HARK_PATH_BYTES];
  if (!s->values->picture) return HARK_OK;
  HARK_TRY(hark_sweep_path_in(s, PICTURE_NAME, path));
  return hark_picture_check_place(s->context, path, "--no-picture draws none");
}

static hark_status draw_series(sweep *s, const hark_series *series) {
  char path[HARK_PATH_BYTES];
  double x[2], y[2];
  hark_picture picture;
  HARK_TRY(hark_sweep_path_in(s, PICTURE_NAME, path));
  HARK_TRY(hark_picture_begin(s->context, path, false, 1000, PICTURE_HEIGHT + KEY_HEIGHT * hark_sweep_cells(s->plan), &picture));
  picture.optional = true;
  hark_text_append(&picture.script,
                   "set grid\nset key below vertical maxcols 1 left Left reverse\nset autoscale xfix\nset xlabel 'step'\nset ylabel ");
  hark_picture_append_quoted(&picture.script, s->values->metric);
  hark_text_append(&picture.script, "\n");
  hark_series_ranges(series, s->runs, x, y);
  (void)hark_picture_append_single(&picture.script, 'x', x[0], x[1]);
  (void)hark_picture_append_single(&picture.script, 'y', y[0], y[1]);
  append_curves(s, series, &picture);
  hark_text_append(&picture.script, "\n");
  if (picture.curves > 0) return hark_picture_finish(s->call, &picture);
  hark_picture_free(&picture);
  return HARK_OK;
}

static hark_status draw(sweep *s) {
  const size_t bytes = (size_t)s->runs * sizeof(hark_series);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(s->context, bytes, &memory));
  hark_series *const series = memory;
  hark_status status = read_series(s, series);
  if (status == HARK_OK) status = draw_series(s, series);
  for (int run = 0; run < s->runs; run++) hark_series_free(s->context, &series[run]);
  hark_release(s->context, memory, bytes);
  return status;
}

/* The heading of the numbers below, where there are several plans. */
static hark_status head(const sweep *s) {
  hark_text text = hark_text_empty(s->context);
  if (s->sweeps == 1 || s->call->json) return HARK_OK;
  hark_text_append(&text, "%s## %s\n\n", s->number > 0 ? "\n" : "", s->results.label);
  return hark_command_print(s->call, &text);
}

hark_status hark_sweep_report(sweep *s) {
  hark_text text = hark_text_empty(s->context);
  HARK_TRY(hark_sweep_check_data(s)); /* after the last runs, before which the data may have changed */
  HARK_TRY(measure_at(s));
  HARK_TRY(head(s));
  if (s->call->json)
    hark_sweep_print_json(&s->results, &text);
  else
    hark_sweep_print_table(&s->results, &text);
  HARK_TRY(hark_command_print(s->call, &text));
  if (s->failed > 0)
    hark_command_warn(s->call, "%s%s%d of %d runs failed; call the sweep again to retry them", s->sweeps > 1 ? s->results.label : "",
                      s->sweeps > 1 ? ": " : "", s->failed, s->runs);
  return s->values->picture && !s->values->table && !s->call->json ? draw(s) : HARK_OK;
}

hark_status hark_sweep_print_runs(const sweep *s) {
  char name[HARK_SWEEP_CELL_BYTES];
  hark_text text = hark_text_empty(s->context);
  HARK_TRY(head(s));
  for (int run = 0; run < s->runs; run++) {
    hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), name);
    hark_text_append(&text, "%s%s\n", name, s->whole[run] ? "  done" : "");
  }
  return hark_command_print(s->call, &text);
}
