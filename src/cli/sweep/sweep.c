/* sweep.c - hark sweep: the runs of plans, each a process of hark train, one after another or several at once, also on the processes of
 * a launcher (sweep_crew.h), and a table and a picture of the results (sweep_results.c).
 *
 * A complete run has a line in results.jsonl of the sweep's folder; a sweep that was interrupted, or killed, continues with the others. A
 * run that was begun with other settings than those of the plan now is refused, so that a table never mixes two plans.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/model.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "cli/sweep/sweep.h"
#include "cli/sweep/sweep_check.h"
#include "cli/sweep/sweep_jobs.h"
#include "core/line.h"
#include "group/launch.h"

#define PLANS 64 /* of one call */

enum { BETTER_BY_NAME, BETTER_LESS, BETTER_MORE };

#define AT(field) offsetof(sweep_values, field)
static const hark_option options[] = {
    {"metric", "metric m", HARK_OPTION_STRING, AT(metric), "val/loss", NULL, NULL, "NAME", "metric that is compared", "list false"},
    {"better", "better", HARK_OPTION_ENUM, AT(better), "auto", "auto|less|more", NULL, NULL,
     "which values of the metric are better; auto: more for accuracies, tokens_per_second and mfu, less for all others", "list false"},
    {"choose", "choose", HARK_OPTION_ENUM, AT(choose), "best", HARK_SWEEP_CHOICE_WORDS, NULL, NULL,
     "which value of a run is used; best: its best value; last: its last value; checkpoint: the value of its "
     "checkpoint `best`, which has the least val/loss",
     "list false"},
    {"at", "at", HARK_OPTION_STRING, AT(at), "", NULL, NULL, "NAME=X|least",
     "compare runs at equal cost: only evaluations at which NAME (operations, tokens, time or step) is at "
     "most X are used; least: X is the smallest of the values that the runs have at their last evaluations",
     "list false"},
    {"baseline", "baseline", HARK_OPTION_STRING, AT(baseline), "", NULL, NULL, "CELL",
     "cell with which the others are compared, by its name in the table; not given: the first cell", "list false"},
    {"beside", "beside", HARK_OPTION_STRING, AT(beside), "operations,time", NULL, NULL, "NAMES",
     "further metrics to show, separated by commas, or none; a value is the last value of each run, averaged over seeds", "list false"},
    {"jobs", "jobs j", HARK_OPTION_INT, AT(jobs), "1", "[1, 64]", NULL, NULL,
     "number of runs at the same time; each run has run.threads threads, or an equal part of the cores if that "
     "is 0",
     "list false, table false"},
    {"preflight", "preflight", HARK_OPTION_BOOL, AT(preflight), "true", NULL, NULL, NULL,
     "make the check before the runs, which tests that memory is enough for --jobs runs, and that memory and disk are enough for each run",
     "list false, table false"},
    {"list", "list", HARK_OPTION_BOOL, AT(list), "false", NULL, NULL, NULL, "print the runs and stop", "json false"},
    {"table", "table", HARK_OPTION_BOOL, AT(table), "false", NULL, NULL, NULL, "print the table of the runs in results.jsonl and stop",
     "list false"},
    {"picture", "picture", HARK_OPTION_BOOL, AT(picture), "true", NULL, NULL, NULL, "draw sweep.svg in the sweep's folder", "list false"},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(sweep_values), false};

/* ---- before the first run ---- */

/* Checks every configuration, and that no two runs have the same folder. */
static hark_status check_runs(const sweep *s) {
  char name[HARK_SWEEP_CELL_BYTES], other[HARK_SWEEP_CELL_BYTES];
  for (int run = 0; run < s->runs; run++) {
    hark_config config;
    hark_options *set = NULL;
    const hark_status status =
        hark_sweep_configure(s->context, s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), &config, &set);
    hark_options_destroy(s->context, &set);
    hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), name);
    if (status == HARK_BAD_CONFIGURATION) hark_fail_prefix(s->context, "%s: ", name);
    HARK_TRY(status);
    for (int before = 0; before < run; before++) {
      hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, before), hark_sweep_seed_of(s, before), other);
      if (strcmp(name, other) == 0)
        return hark_fail(s->context, HARK_BAD_CONFIGURATION, "%s: two runs would have the name %s", s->plan->path, name);
    }
  }
  return hark_sweep_refuse_idle(s->context, s->plan);
}

static hark_status find_baseline(sweep *s) {
  char name[HARK_SWEEP_CELL_BYTES];
  s->results.baseline = 0;
  if (s->values->baseline[0] == '\0') return HARK_OK;
  for (int cell = 0; cell < hark_sweep_cells(s->plan); cell++) {
    hark_sweep_cell_name(s->plan, cell, name);
    if (strcmp(name, s->values->baseline) != 0) continue;
    s->results.baseline = cell;
    return HARK_OK;
  }
  hark_sweep_cell_name(s->plan, 0, name);
  return hark_fail(s->context, HARK_BAD_CONFIGURATION, "--baseline: there is no cell '%s', expected one such as '%s'", s->values->baseline,
                   name);
}

/* ---- one run ---- */

/* The path of a run's configuration, next to its folder: "NAME.yaml". */
static hark_status configuration_path(const sweep *s, int run, char *path) {
  char folder[HARK_PATH_BYTES];
  HARK_TRY(hark_sweep_run_path(s, run, folder));
  const int used = snprintf(path, HARK_PATH_BYTES, "%s.yaml", folder);
  return used < HARK_PATH_BYTES ? HARK_OK : hark_fail(s->context, HARK_IO_ERROR, "%.64s...: path too long", folder);
}

hark_status hark_sweep_print_configuration(const sweep *s, int run, hark_text *text) {
  hark_config config;
  hark_options *set = NULL;
  hark_status status = hark_sweep_configure(s->context, s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), &config, &set);
  if (status == HARK_OK) hark_options_print_yaml(set, false, text);
  if (status == HARK_OK) status = text->status;
  hark_options_destroy(s->context, &set);
  return status;
}

#define BEGIN_AGAIN "delete it and its folder, or give the sweep another 'out': "

typedef struct begun_run {
  const char *path;
  const hark_options *now;
} begun_run;

static hark_status refuse_difference(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  const begun_run *run = user;
  hark_text before = hark_text_empty(call->context), now = hark_text_empty(call->context);
  hark_options_print_value(stored, option->name, &before);
  hark_options_print_value(run->now, option->name, &now);
  hark_status status;
  if (strcmp(option->name, "run.directory") == 0) /* which the sweep sets */
    status = hark_fail(call->context, HARK_BAD_CONFIGURATION,
                       "%s: the runs of this sweep are in another folder, '%s': move them back, or give the sweep another 'out'", run->path,
                       hark_text_get(&before));
  else
    status = hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: " BEGIN_AGAIN "this run was started with %s '%s', and the plan has '%s'",
                       run->path, option->name, hark_text_get(&before), hark_text_get(&now));
  hark_text_free(&before);
  hark_text_free(&now);
  return status;
}

/* An existing run must have been begun with the values of the plan now; a configuration written by a version with fewer options is compared
 * by value too. A run whose file or folder is missing is made again. */
static hark_status compare_configuration(const sweep *s, int run) {
  char path[HARK_PATH_BYTES], folder[HARK_PATH_BYTES], begun[HARK_PATH_BYTES];
  HARK_TRY(configuration_path(s, run, path));
  HARK_TRY(hark_sweep_run_path(s, run, folder));
  HARK_TRY(hark_path_join(s->context, folder, "config.yaml", begun));
  const bool has_file = hark_path_kind_of(path) != HARK_PATH_NONE, has_folder = hark_path_kind_of(begun) != HARK_PATH_NONE;
  s->whole[run] = s->whole[run] && has_file && has_folder;
  if (!has_file && has_folder)
    return hark_fail(s->context, HARK_BAD_CONFIGURATION, "%s: is missing, but its run exists; delete %s, or give the sweep another 'out'",
                     path, folder);
  if (!has_file) return HARK_OK;
  hark_config config;
  hark_options *set = NULL;
  hark_status status = hark_sweep_configure(s->context, s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), &config, &set);
  if (status == HARK_OK) {
    begun_run now = {path, set};
    status = hark_command_visit_differences(s->call, path, set, &config, refuse_difference, &now);
  }
  hark_options_destroy(s->context, &set);
  if (status != HARK_BAD_FILE) return status;
  hark_fail_prefix(s->context, BEGIN_AGAIN);
  return HARK_BAD_CONFIGURATION;
}

static hark_status write_configuration(const sweep *s, int run, char *path) {
  HARK_TRY(configuration_path(s, run, path));
  if (hark_path_kind_of(path) != HARK_PATH_NONE) return HARK_OK; /* the same, as checked */
  hark_text text = hark_text_empty(s->context);
  hark_status status = hark_sweep_print_configuration(s, run, &text);
  if (status == HARK_OK) status = hark_file_write(s->context, path, hark_text_get(&text), text.length);
  hark_text_free(&text);
  return status;
}

static bool is_needed(void *user, int run) { return !((const sweep *)user)->whole[run]; }

hark_status hark_sweep_has_begun(const sweep *s, int run, bool *begun) {
  char folder[HARK_PATH_BYTES], configuration[HARK_PATH_BYTES];
  HARK_TRY(hark_sweep_run_path(s, run, folder));
  HARK_TRY(hark_path_join(s->context, folder, "config.yaml", configuration));
  *begun = hark_path_kind_of(configuration) != HARK_PATH_NONE;
  return HARK_OK;
}

/* "run 3 of 30: runs/positions/bank-seed=3; 28 to train, about 1:52:00 left" */
static void say_begin(const sweep *s, hark_sweep_jobs *jobs, int run, const char *folder) {
  const sweep_course *course = s->course;
  char left[HARK_PROGRESS_TIME_BYTES], about[HARK_PROGRESS_TIME_BYTES + 32] = "", shown[HARK_PATH_BYTES];
  (void)snprintf(shown, sizeof shown, "%s", folder);
  hark_line_clean(shown);
  const double at_once = (double)hark_min(jobs->count, course->left);
  const double seconds = course->trained > 0 ? course->seconds / course->trained * course->left / at_once : 0;
  if (course->trained > 0) (void)snprintf(about, sizeof about, ", about %s left", hark_progress_time(seconds, left));
  hark_progress_line(&jobs->progress, "run %d of %d: %s; %d to train%s", run + 1, s->runs, shown, course->left, about);
}

/* hark train on the run's configuration. */
static hark_status begin_run(void *user, hark_sweep_jobs *jobs, int run) {
  const sweep *s = user;
  char configuration[HARK_PATH_BYTES], folder[HARK_PATH_BYTES], name[HARK_SWEEP_CELL_BYTES], config[HARK_PATH_BYTES + 16];
  char program[] = "hark", command[] = "train", again[] = "--resume", anyway[] = "--no-preflight";
  char *words[6] = {program, command, config};
  int count = 3;
  bool begun = false;
  HARK_TRY(write_configuration(s, run, configuration));
  HARK_TRY(hark_sweep_run_path(s, run, folder));
  HARK_TRY(hark_sweep_has_begun(s, run, &begun));
  if (begun) words[count++] = again;
  if (!s->values->preflight) words[count++] = anyway;
  (void)snprintf(config, sizeof config, "--config=%s", configuration);
  hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), name);
  say_begin(s, jobs, run, folder);
  return hark_sweep_jobs_begin(s->context, jobs, run, name, words, -1);
}

/* Whether a signal ends the sweep: one that it received, or one that a run received from elsewhere, which then ends the other runs too. */
static bool is_stopped(sweep *s, int exit_code, bool before) {
  const bool requested = exit_code == HARK_EXIT_HANGUP || exit_code == HARK_EXIT_INTERRUPTED || exit_code == HARK_EXIT_TERMINATED;
  if (hark_sweep_signal() != 0) {
    s->call->exit_code = HARK_EXIT_SIGNAL + hark_sweep_signal();
    return true;
  }
  if (!requested || before) return before;
  s->call->exit_code = exit_code;
  hark_sweep_end_all(exit_code - HARK_EXIT_SIGNAL);
  return true;
}

/* *stop: by a signal, which ends the sweep too. */
static hark_status end_run(void *user, const hark_sweep_ended *ended, bool *stop) {
  sweep *s = user;
  const int run = ended->task, exit_code = ended->exit_code;
  s->course->seconds += ended->seconds;
  s->course->trained++;
  s->course->left--;
  *stop = is_stopped(s, exit_code, *stop);
  if (*stop && exit_code != HARK_EXIT_DONE) return HARK_OK;
  if (exit_code == HARK_EXIT_BUSY) {
    char folder[HARK_PATH_BYTES];
    HARK_TRY(hark_sweep_run_path(s, run, folder));
    return hark_fail(s->context, HARK_BUSY, "%s: another process trains this run; wait for it, or end it", folder);
  }
  s->whole[run] = exit_code == HARK_EXIT_DONE;
  if (exit_code != HARK_EXIT_DONE) {
    s->failure = s->failed == 0 || exit_code == s->failure ? exit_code : HARK_EXIT_FAILED;
    s->failed++;
  }
  HARK_TRY(hark_sweep_measure_run(s, run, &hark_sweep_whole));
  return hark_sweep_record(s, run, exit_code);
}

static hark_status run_all(sweep *s, const char *path) {
  const hark_sweep_work runs = {.user = s, .count = s->runs, .needed = is_needed, .begin = begin_run, .end = end_run, .crew = s->crew};
  const int jobs = s->crew != NULL ? s->crew->jobs : (int)s->values->jobs;
  const hark_sweep_output output = jobs > 1 || s->crew != NULL ? HARK_SWEEP_MESSAGES : HARK_SWEEP_SHARED;
  HARK_TRY(hark_jsonl_open(s->context, &s->lines, path));
  const hark_status status = hark_sweep_jobs_do(s->context, &runs, jobs, output);
  const hark_status closed = hark_jsonl_close(s->context, &s->lines);
  return status == HARK_OK ? closed : status;
}

/* ---- runs that are left ---- */

hark_status hark_sweep_with_plan(const sweep *s, hark_status status) {
  const char *const path = s->plan != NULL ? s->plan->path : "";
  const bool named = strncmp(hark_context_message(s->context), path, strlen(path)) == 0;
  if (status != HARK_OK && s->sweeps > 1 && !named) hark_fail_prefix(s->context, "%s: ", path);
  return status;
}

int hark_sweep_left(const sweep *s) {
  int left = 0;
  for (int run = 0; run < s->runs; run++) left += !s->whole[run];
  return left;
}

void hark_sweep_say_stopped(const sweep *s) {
  fprintf(stderr, "stopped: %d of %d runs are not complete; call the sweep again to continue\n", hark_sweep_left(s), s->runs);
}

/* ---- the folder ---- */

static bool is_trained(const sweep *s) { return !s->values->list && !s->values->table; }

static hark_status refuse_busy(const sweep *s, hark_status status) {
  if (status != HARK_BUSY) return status;
  return hark_fail(s->context, HARK_BUSY, "%s: another sweep trains runs in this folder; wait for it, or end it", s->plan->out);
}

/* A folder that cannot be made is a failure of the file system, where a missing input is not. */
static hark_status check_folder(const sweep *s) {
  const hark_status status = hark_folder_check(s->context, s->plan->out);
  if (status != HARK_OK) hark_fail_prefix(s->context, "%s: 'out': ", s->plan->path);
  return status == HARK_NOT_FOUND ? HARK_IO_ERROR : status;
}

/* Keeps others out until close_sweep(), and removes what a sweep that was killed has left. */
static hark_status take_folder(sweep *s) {
  char left[HARK_PATH_BYTES];
  if (hark_sweep_left(s) == 0) return HARK_OK;
  HARK_TRY(hark_folder_make(s->context, s->plan->out));
  HARK_TRY(refuse_busy(s, hark_folder_lock(s->context, s->plan->out, &s->lock)));
  HARK_TRY(hark_sweep_path_in(s, HARK_SWEEP_WATCH_NAME, left));
  return hark_file_remove(s->context, left);
}

/* ---- from beginning to end ---- */

/* Reads a plan before its first run begins. */
static hark_status prepare(sweep *s) {
  char path[HARK_PATH_BYTES];
  if (s->plan->out[0] == '\0')
    return hark_fail(s->context, HARK_BAD_CONFIGURATION, "%s: 'out' is missing, expected the sweep's folder", s->plan->path);
  if (is_trained(s)) HARK_TRY(check_folder(s));
  if (is_trained(s)) HARK_TRY(refuse_busy(s, hark_folder_check_unlocked(s->context, s->plan->out)));
  HARK_TRY(hark_sweep_check_plan(s->context, s->plan));
  HARK_TRY(find_baseline(s));
  HARK_TRY(hark_sweep_read_beside(s));
  HARK_TRY(hark_sweep_budget_read(s->context, s->values->at, &s->results.budget));
  s->results.more = s->values->better == BETTER_BY_NAME ? hark_sweep_more_is_better(s->values->metric) : s->values->better == BETTER_MORE;
  HARK_TRY(check_runs(s));
  HARK_TRY(hark_sweep_path_in(s, "results.jsonl", path));
  HARK_TRY(hark_sweep_read_results(s, path));
  for (int run = 0; run < s->runs; run++) HARK_TRY(compare_configuration(s, run));
  if (s->values->list) return HARK_OK;
  if (is_trained(s)) HARK_TRY(hark_sweep_check_data(s)); /* the report checks it too */
  HARK_TRY(hark_sweep_check_picture(s));
  for (int run = 0; run < s->runs; run++) HARK_TRY(hark_sweep_measure_run(s, run, &hark_sweep_whole));
  return HARK_OK;
}

/* *stopped: by a signal. */
static hark_status work(sweep *s, bool *stopped) {
  char path[HARK_PATH_BYTES];
  if (s->values->list) return hark_sweep_print_runs(s);
  if (s->values->table) return HARK_OK;
  HARK_TRY(hark_sweep_path_in(s, "results.jsonl", path));
  for (int run = 0; s->number > 0 && run < s->runs; run++) /* again: previous plans may have taken long */
    HARK_TRY(compare_configuration(s, run));
  HARK_TRY(hark_folder_make(s->context, s->plan->out));
  HARK_TRY(hark_folder_clean(s->context, s->plan->out));
  hark_sweep_catch_signals();
  HARK_TRY(run_all(s, path));
  if (hark_sweep_signal() != 0) s->call->exit_code = HARK_EXIT_SIGNAL + hark_sweep_signal(); /* also one that arrived between two runs */
  *stopped = s->call->exit_code > HARK_EXIT_SIGNAL;
  if (*stopped && (s->values->jobs > 1 || s->crew != NULL)) hark_sweep_say_stopped(s);
  return HARK_OK;
}

/* ---- several plans ---- */

#define VALUE_BYTES ((size_t)(1 + HARK_SWEEP_BESIDE) * HARK_SWEEP_RUNS * sizeof(double))

static hark_status open_sweep(sweep *s) {
  void *plan = NULL, *values = NULL, *whole = NULL;
  hark_status status = hark_allocate_zero(s->context, sizeof(hark_sweep_plan), &plan);
  if (status == HARK_OK) status = hark_allocate_zero(s->context, VALUE_BYTES, &values);
  if (status == HARK_OK) status = hark_allocate_zero(s->context, HARK_SWEEP_RUNS * sizeof(bool), &whole);
  s->plan = plan;
  s->whole = whole;
  s->results = (hark_sweep_results){.plan = plan, .metric = s->values->metric, .values = values};
  HARK_TRY(status);
  HARK_TRY(hark_sweep_plan_read(s->context, hark_options_argument(s->call->options, s->number), s->plan));
  s->runs = hark_sweep_cells(s->plan) * s->plan->seed_count;
  return HARK_OK;
}

static void close_sweep(sweep *s) {
  if (s->lock >= 0) hark_folder_unlock(&s->lock);
  hark_release(s->context, s->plan, sizeof(hark_sweep_plan));
  hark_release(s->context, s->results.values, VALUE_BYTES);
  hark_release(s->context, s->whole, HARK_SWEEP_RUNS * sizeof(bool));
}

/* Runs of two plans in one folder would be confused. */
static hark_status check_folders(const sweep *sweeps, int count) {
  for (int i = 0; i < count; i++)
    for (int before = 0; before < i; before++) {
      const char *const own = sweeps[i].plan->out, *const other = sweeps[before].plan->out;
      struct stat here, there;
      const bool one = stat(own, &here) == 0 && stat(other, &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
      if (one || (own[0] != '\0' && strcmp(own, other) == 0))
        return hark_fail(sweeps[i].context, HARK_BAD_CONFIGURATION, "%s: 'out' is %s, the folder of %s", sweeps[i].plan->path, own,
                         sweeps[before].plan->path);
    }
  return HARK_OK;
}

static void name_plans(sweep *sweeps, int count) {
  const hark_sweep_plan *plans[PLANS];
  for (int i = 0; i < count; i++) plans[i] = sweeps[i].plan;
  for (int i = 0; i < count; i++) hark_sweep_label(plans, count, i, sweeps[i].results.label);
}

static hark_status report_together(const sweep *sweeps, int count) {
  const hark_sweep_results *results[PLANS];
  hark_text text = hark_text_empty(sweeps->context);
  if (count == 1 || sweeps->call->json) return HARK_OK;
  for (int i = 0; i < count; i++) results[i] = &sweeps[i].results;
  hark_text_append(&text, "\n## together\n\n");
  hark_sweep_print_together(results, count, &text);
  return hark_command_print(sweeps->call, &text);
}

/* The exit code of the runs if all runs of all plans failed with the same one: missing data, a wrong option. */
static int exit_code_of(const sweep *sweeps, int count) {
  int runs = 0, failed = 0, failure = HARK_EXIT_DONE;
  for (int i = 0; i < count; i++) {
    if (sweeps[i].failed > 0) failure = failed == 0 || failure == sweeps[i].failure ? sweeps[i].failure : HARK_EXIT_FAILED;
    runs += sweeps[i].runs;
    failed += sweeps[i].failed;
  }
  if (failed == 0) return HARK_EXIT_DONE;
  return failed == runs && failure < HARK_EXIT_SIGNAL ? failure : HARK_EXIT_FAILED;
}

/* All plans are read and checked before the first run begins. */
static hark_status read_plans(sweep *sweeps, int count, hark_sweep_order *order, bool *stopped) {
  for (int i = 0; i < count; i++) HARK_TRY(open_sweep(&sweeps[i]));
  HARK_TRY(check_folders(sweeps, count));
  name_plans(sweeps, count);
  for (int i = 0; i < count; i++) HARK_TRY(hark_sweep_with_plan(&sweeps[i], prepare(&sweeps[i])));
  for (int i = 0; i < count; i++) sweeps[i].course->left += hark_sweep_left(&sweeps[i]);
  HARK_TRY(hark_sweep_prepare_jobs(sweeps, count, order, stopped));
  for (int i = 0; i < count && is_trained(sweeps) && !*stopped; i++) HARK_TRY(hark_sweep_with_plan(&sweeps[i], take_folder(&sweeps[i])));
  for (int i = 0; i < count && order->path[0] == '\0'; i++)
    if (sweeps[i].lock >= 0) HARK_TRY(hark_sweep_path_in(&sweeps[i], HARK_SWEEP_WATCH_NAME, order->path));
  return HARK_OK;
}

static hark_status work_all(sweep *sweeps, int count, hark_sweep_crew *crew, bool *stopped) {
  hark_status status = HARK_OK;
  for (int i = 0; i < count && status == HARK_OK && !*stopped; i++) {
    sweeps[i].crew = crew;
    status = hark_sweep_with_plan(&sweeps[i], work(&sweeps[i], stopped));
  }
  if (crew == NULL || hark_group_is_lost(crew->group)) return status;
  const hark_status left = hark_sweep_crew_leave(crew);
  return status == HARK_OK ? left : status;
}

static hark_status report_all(sweep *sweeps, int count) {
  HARK_TRY(hark_sweep_check_metrics(sweeps, count));
  for (int i = 0; i < count; i++) HARK_TRY(hark_sweep_with_plan(&sweeps[i], hark_sweep_report(&sweeps[i])));
  HARK_TRY(report_together(sweeps, count));
  sweeps->call->exit_code = exit_code_of(sweeps, count);
  return HARK_OK;
}

static hark_status run_plans(sweep *sweeps, int count) {
  hark_context *const context = sweeps->context;
  hark_sweep_order order = {0};
  hark_sweep_crew crew;
  bool stopped = false;
  hark_status status = read_plans(sweeps, count, &order, &stopped);
  status = hark_sweep_crew_open(context, sweeps->call->group, status, &order, &crew);
  if (status == HARK_OK) status = work_all(sweeps, count, crew.jobs > 0 ? &crew : NULL, &stopped);
  hark_sweep_crew_close(&crew);
  if (status != HARK_OK || stopped || sweeps->values->list) return status;
  return report_all(sweeps, count);
}

static hark_status run_here(hark_invocation *call) {
  const int count = hark_options_argument_count(call->options);
  void *memory = NULL;
  sweep_course course = {0};
  HARK_TRY(hark_allocate_zero(call->context, (size_t)count * sizeof(sweep), &memory));
  sweep *const sweeps = memory;
  for (int i = 0; i < count; i++)
    sweeps[i] = (sweep){
        .call = call, .context = call->context, .values = call->values[0], .number = i, .sweeps = count, .course = &course, .lock = -1};
  const hark_status status = run_plans(sweeps, count);
  for (int i = 0; i < count; i++) close_sweep(&sweeps[i]);
  hark_release(call->context, memory, (size_t)count * sizeof(sweep));
  return status;
}

/* As another rank than the first one, which has the plans. */
static hark_status run_along(hark_invocation *call) {
  hark_sweep_order order = {0};
  hark_sweep_crew crew;
  hark_status status = hark_sweep_crew_open(call->context, call->group, HARK_OK, &order, &crew);
  if (status == HARK_OK) status = hark_sweep_crew_serve(&crew);
  hark_sweep_crew_close(&crew);
  return status;
}

/* The runs are processes of their own, of which each is alone: the launcher's variables are not about them. */
static hark_status hide_launcher(hark_invocation *call) {
  if (call->group == NULL || setenv(HARK_MODULE_VARIABLE, HARK_MODULE_NONE, 1) == 0) return HARK_OK;
  return hark_fail(call->context, HARK_OUT_OF_MEMORY, "out of memory");
}

static hark_status run(hark_invocation *call) {
  HARK_TRY(hark_command_compare(call));
  hark_status status = hark_group_agree(call->context, call->group, hide_launcher(call));
  if (status == HARK_OK) status = hark_group_rank(call->group) == 0 ? run_here(call) : run_along(call);
  HARK_TRY(hark_group_agree_patiently(call->context, call->group, status)); /* rank 0 may draw for long */
  return hark_group_broadcast(call->context, call->group, &call->exit_code, sizeof call->exit_code);
}

const hark_command hark_command_sweep = {
    .name = "sweep",
    .arguments = "FILE...",
    .summary = "train the runs of a plan and compare them",
    .notes =
        "FILE is YAML. It has 'out' (the sweep's folder). It may have 'config' (a configuration file next to it), 'seeds' (a list),\n"
        "'settings' (of all runs), 'variants' (settings with names) and 'grid' (lists of values).\n"
        "Every variant with every combination of the grid and every seed is a run.\n"
        "If the command is called again, the sweep continues where it was interrupted.\n"
        "Several plans are trained one after another, and then compared in one table with a column for each plan.\n"
        "The processes of a launcher (mpirun -n N) share the runs. docs/sweeps.md describes sweeps.\n",
    .shares_work = true,
    .argument_minimum = 1,
    .argument_maximum = PLANS,
    .has_json = true,
    .tables = {&table},
    .run = run,
};
