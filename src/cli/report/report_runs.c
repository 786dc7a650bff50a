/* report_runs.c - the runs of a report: their table, and of the first ones the curves, speed and memory. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/model.h"
#include "cli/report/report.h"
#include "cli/run_folders.h"
#include "json/jsonl.h"
#include "models/model.h"
#include "models/model_parts.h"
#include "train/engine.h"
#include "train/material.h"

#define TEN_RUNS 10      /* that may have all their points; more runs have fewer each */
#define MAIN_POINTS 1500 /* of a curve, at most: losses and accuracies */
#define OTHER_POINTS 300
#define LEAST_POINTS 120
#define CLOCK_POINTS 200 /* of the clock, from which tokens and times of steps are interpolated */

/* Metrics with curves, in the order of the page's menu. */
static const struct {
  const char *name;
  bool main;
} metrics[] = {{"train/loss", true},
               {"val/loss", true},
               {"train/accuracy", true},
               {"val/accuracy", true},
               {"train/objective", false},
               {"perplexity", false},
               {"bits_per_byte", false},
               {"bits_per_character", false},
               {"word_perplexity", false},
               {"lr", false},
               {"grad_norm", false},
               {"tokens_per_second", false},
               {"mfu", false},
               {"ridge/mended_pivots", false},
               {"ahca/chunks", false},
               {"ahca/tokens", false},
               {"ahca/depth", false}};
#define METRICS ((int)(sizeof metrics / sizeof metrics[0]))

/* ---- the table ---- */

/* A line on stderr for what is not as it should be; the page says it too. */
static hark_status warn_of_state(hark_report *report, const char *path, const hark_run_line *line) {
  char shown[HARK_SHOWN_BYTES], message[HARK_SHOWN_BYTES + HARK_MESSAGE_BYTES + 64];
  const bool damaged = line->state == HARK_RUN_DAMAGED;
  if (!damaged && line->state != HARK_RUN_RUNNING) return HARK_OK;
  (void)snprintf(message, sizeof message, "%s: %s%s", hark_text_shown(path, shown),
                 damaged ? "damaged: " : "a process still writes it: shown as far as it has come", damaged ? line->problem : "");
  HARK_TRY(hark_report_warn(report, message));
  /* a part of the page that reports it too needs no other line */
  if (damaged) hark_text_append(&report->warned, "%s\n", line->problem);
  return report->warned.status;
}

static hark_status grow_places(hark_report *report) {
  const size_t bytes = hark_max(1024, 2 * (int64_t)report->place_bytes);
  void *memory = NULL;
  if ((size_t)(report->found + 1) * sizeof *report->places <= report->place_bytes) return HARK_OK;
  HARK_TRY(hark_allocate(report->context, bytes, &memory));
  if (report->places != NULL) memcpy(memory, report->places, report->place_bytes);
  hark_release(report->context, report->places, report->place_bytes);
  report->places = memory;
  report->place_bytes = bytes;
  return HARK_OK;
}

/* Remembers where the run is. *again: it is one of those before, by another path or argument. */
static hark_status note_place(hark_report *report, const char *path, bool *again) {
  struct stat about = {0};
  *again = false;
  HARK_TRY(grow_places(report));
  const bool known = stat(path, &about) == 0;
  const hark_report_place place = {(uint64_t)about.st_dev, (uint64_t)about.st_ino};
  for (int64_t i = 0; i < report->found && known && !*again; i++)
    *again = report->places[i].inode == place.inode && report->places[i].device == place.device;
  if (!*again) report->places[report->found] = place;
  return HARK_OK;
}

static hark_status list_run(void *user, const char *path) {
  hark_report *const report = user;
  hark_run_line line;
  bool again = false;
  HARK_TRY(note_place(report, path, &again));
  report->seen++;
  if (again) return HARK_OK;
  const int64_t index = report->found++;
  if (index >= HARK_REPORT_LISTED) return HARK_OK;
  HARK_TRY(hark_run_line_read(report->context, path, &line));
  report->damaged += line.state == HARK_RUN_DAMAGED;
  report->running += line.state == HARK_RUN_RUNNING;
  HARK_TRY(warn_of_state(report, path, &line));
  hark_text_append(&report->data, index > 0 ? ",\n" : "\n");
  hark_run_line_append_json(path, &line, &report->data);
  report->listed++;
  if (index >= report->values->curves) return report->data.status;
  report->runs[index].index = index;
  report->detailed++;
  return hark_path_join(report->context, "", path, report->runs[index].path);
}

static hark_status list_folder(hark_report *report, const char *folder) {
  const int64_t before = report->seen;
  HARK_TRY(hark_run_folders_visit(report->context, folder, list_run, report));
  if (report->seen > before) return HARK_OK;
  return hark_fail(report->context, HARK_NOT_FOUND, "%s: no runs in this folder", folder);
}

/* Keeps the problem of an argument for the page, which is written all the same, and its status for the end. */
static hark_status keep_refusal(hark_report *report, hark_status status) {
  if (status != HARK_OK && report->refused++ == 0) report->refusal = status;
  return hark_report_keep_problem(report, -1, status);
}

hark_status hark_report_add_runs(hark_report *report) {
  hark_text_append(&report->data, ",\"runs\":[");
  const int arguments = hark_options_argument_count(report->call->options);
  for (int i = 0; i < arguments; i++) {
    const hark_status status = list_folder(report, hark_options_argument(report->call->options, i));
    if (arguments == 1) HARK_TRY(status);
    HARK_TRY(keep_refusal(report, status));
  }
  hark_text_append(&report->data, "],\"found\":%" PRId64, report->found);
  return report->data.status;
}

/* ---- curves ---- */

typedef struct run_curves {
  hark_context *context;
  hark_series curves[METRICS];
  hark_series tokens, time; /* over steps */
  int64_t lines, skipped;
} run_curves;

/* The value of a member; NaN if it is no number. */
static double number_of(const json_t *object, const char *name) {
  const json_t *const value = json_object_get(object, name);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static hark_status take_point(const run_curves *r, double step, double value, hark_series *to) {
  return isnan(step) || isnan(value) ? HARK_OK : hark_series_append(r->context, to, step, value);
}

static hark_status take_line(void *user, const json_t *object, int64_t line) {
  run_curves *const r = user;
  const double step = number_of(object, "step");
  (void)line;
  r->lines++;
  r->skipped += json_is_true(json_object_get(object, "skipped"));
  for (int m = 0; m < METRICS; m++) HARK_TRY(take_point(r, step, number_of(object, metrics[m].name), &r->curves[m]));
  HARK_TRY(take_point(r, step, number_of(object, "tokens"), &r->tokens));
  return take_point(r, step, number_of(object, "time"), &r->time);
}

static int64_t points_of(const hark_report *report, bool main) {
  const int64_t all = main ? MAIN_POINTS : OTHER_POINTS;
  return report->detailed <= TEN_RUNS ? all : hark_max(LEAST_POINTS, all * TEN_RUNS / report->detailed);
}

static void append_curves(const hark_report *report, run_curves *r, hark_text *text) {
  bool begun = false;
  hark_text_append(text, ",\"lines\":%" PRId64 ",\"skipped\":%" PRId64 ",\"curves\":{", r->lines, r->skipped);
  for (int m = 0; m < METRICS; m++) {
    hark_series *const curve = &r->curves[m];
    if (curve->count == 0) continue;
    hark_text_append(text, "%s\n\"%s\":{\"all\":%" PRId64 ",\"points\":", begun ? "," : "", metrics[m].name, curve->count);
    hark_series_thin(curve, points_of(report, metrics[m].main));
    hark_report_append_series(curve, text);
    hark_text_append(text, "}");
    begun = true;
  }
  hark_series_thin(&r->tokens, CLOCK_POINTS);
  hark_series_thin(&r->time, CLOCK_POINTS);
  hark_text_append(text, "},\"tokens\":");
  hark_report_append_series(&r->tokens, text);
  hark_text_append(text, ",\"time\":");
  hark_report_append_series(&r->time, text);
}

/* A file that cannot be read to its end still gives the points before the fault. */
static hark_status add_curves(hark_report *report, const hark_report_run *run) {
  char path[HARK_PATH_BYTES];
  void *memory = NULL;
  HARK_TRY(hark_path_join(report->context, run->path, "metrics.jsonl", path));
  HARK_TRY(hark_allocate_zero(report->context, sizeof(run_curves), &memory));
  run_curves *const r = memory;
  r->context = report->context;
  hark_status status = HARK_OK;
  if (hark_path_kind_of(path) != HARK_PATH_NONE) status = hark_jsonl_read(report->context, path, take_line, r);
  append_curves(report, r, &report->data);
  for (int m = 0; m < METRICS; m++) hark_series_free(report->context, &r->curves[m]);
  hark_series_free(report->context, &r->tokens);
  hark_series_free(report->context, &r->time);
  hark_release(report->context, memory, sizeof(run_curves));
  return status;
}

/* ---- memory ---- */

/* What training needs, for the configuration of the run and the sizes in the description of its model. */
static hark_status estimate(hark_report *report, const hark_config *config, const hark_network_config *model, hark_text *text) {
  hark_engine_memory memory;
  int64_t parameters = 0, tensors = 0;
  hark_learning_task task = {.vocabulary = (int32_t)model->vocabulary,
                             .classes = (int32_t)model->classes,
                             .features = model->features,
                             .responses = model->responses,
                             .parts = (int)hark_max(1, model->parts)};
  if (hark_architecture_of(config->model.architecture)->reads_tables) {
    task.tables = true;
    task.parts = HARK_TABLE_PARTS;
  }
  if (!hark_config_has_examples(config)) task = hark_material_task_of_size(config, (int32_t)model->vocabulary);
  HARK_TRY(hark_engine_estimate_for(report->context, config, &task, true, &memory, &parameters, &tensors));
  hark_text_append(text,
                   ",\"parameters\":%" PRId64 ",\"memory\":{\"weights\":%zu,\"gradients\":%zu,\"moments\":%zu,\"step\":%zu,\"batch\":%zu}",
                   parameters, memory.weights, memory.gradients, memory.moments, memory.step, memory.batch);
  return text->status;
}

static hark_status add_memory(hark_report *report, const hark_report_run *run) {
  char path[HARK_PATH_BYTES];
  hark_config config = {0};
  hark_options *options = NULL;
  hark_description description;
  HARK_TRY(hark_path_join(report->context, run->path, "config.yaml", path));
  hark_status status = hark_command_read_stored(report->call, path, &config, &options);
  if (status == HARK_OK) {
    status = hark_model_read_description(report->context, run->path, NULL, &description);
    if (status == HARK_OK) status = estimate(report, &config, &description.config, &report->data);
    hark_description_close(report->context, &description);
  }
  hark_options_destroy(report->context, &options);
  return status;
}

/* ---- all of it ---- */

static hark_status add_detail(hark_report *report, const hark_report_run *run) {
  hark_text_append(&report->data, "%s{\"run\":%" PRId64, run == report->runs ? "\n" : ",\n", run->index);
  HARK_TRY(hark_report_keep_problem(report, run->index, add_curves(report, run)));
  const hark_status status = add_memory(report, run);
  /* a run without a checkpoint has no sizes yet, which is no fault */
  if (status != HARK_NOT_FOUND) HARK_TRY(hark_report_keep_problem(report, run->index, status));
  hark_text_append(&report->data, "}");
  return report->data.status;
}

hark_status hark_report_add_details(hark_report *report) {
  hark_text_append(&report->data, ",\"details\":[");
  for (int64_t i = 0; i < report->detailed; i++) HARK_TRY(add_detail(report, &report->runs[i]));
  hark_text_append(&report->data, "]");
  return report->data.status;
}
