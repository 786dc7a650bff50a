/* sweep.h - a sweep at work, shared by its files: sweep.c trains the runs, sweep_prepare.c divides the machine among them, sweep_results.c
 * reads, measures and prints what came of them. */
#ifndef HARK_CLI_SWEEP_SWEEP_H
#define HARK_CLI_SWEEP_SWEEP_H

#include "cli/common.h"
#include "cli/sweep/sweep_crew.h"
#include "cli/sweep/sweep_measure.h"
#include "cli/sweep/sweep_table.h"
#include "json/jsonl.h"

typedef struct sweep_values {
  const char *metric, *baseline, *beside, *at;
  bool list, table, picture, preflight;
  int choose, better;
  int64_t jobs;
} sweep_values;

/* Progress of all plans: a run takes about as long as the previous ones. */
typedef struct sweep_course {
  int left;       /* runs to be trained, including the current ones */
  int trained;    /* in this call */
  double seconds; /* that those took */
} sweep_course;

/* A running sweep. */
typedef struct sweep {
  hark_invocation *call;
  hark_context *context;
  const sweep_values *values;
  hark_sweep_plan *plan;
  hark_sweep_results results;
  bool *whole;        /* by run */
  int number, sweeps; /* of this sweep; of all sweeps */
  int runs, failed;
  struct sweep_course *course; /* of all plans together */
  hark_jsonl lines;            /* of results.jsonl */
  uint64_t memory;             /* estimated, of the largest run */
  int failure;                 /* the exit code of every run that failed; HARK_EXIT_FAILED where they differ */
  int lock;                    /* of the folder; -1: none */
  hark_sweep_crew *crew;       /* the processes of a launcher; NULL: this one alone */
} sweep;

static inline int hark_sweep_cell_of(const sweep *s, int run) { return run / s->plan->seed_count; }
static inline int hark_sweep_seed_of(const sweep *s, int run) { return run % s->plan->seed_count; }

static inline hark_status hark_sweep_path_in(const sweep *s, const char *name, char *out) {
  return hark_path_join(s->context, s->plan->out, name, out);
}

static inline hark_status hark_sweep_run_path(const sweep *s, int run, char *out) {
  char name[HARK_SWEEP_CELL_BYTES];
  hark_sweep_run_name(s->plan, hark_sweep_cell_of(s, run), hark_sweep_seed_of(s, run), name);
  return hark_sweep_path_in(s, name, out);
}

/* ---- sweep.c ---- */

/* The configuration of a run by the plan now, in the form of its file; the caller frees the text, also after a failure. */
HARK_MUST_CHECK hark_status hark_sweep_print_configuration(const sweep *s, int run, hark_text *text);
/* Whether the run has begun, and continues. */
HARK_MUST_CHECK hark_status hark_sweep_has_begun(const sweep *s, int run, bool *begun);
/* The number of runs that are not complete, and a line about them. */
int hark_sweep_left(const sweep *s);
void hark_sweep_say_stopped(const sweep *s);
/* With several plans a message names its plan. */
HARK_MUST_CHECK hark_status hark_sweep_with_plan(const sweep *s, hark_status status);

/* ---- sweep_prepare.c ---- */

/* Divides the machine among the runs at once of all plans, if there are several, and checks its memory. *stopped: by a signal. */
HARK_MUST_CHECK hark_status hark_sweep_prepare_jobs(sweep *sweeps, int count, hark_sweep_order *order, bool *stopped);

/* ---- sweep_results.c ---- */

/* Which runs are complete, from results.jsonl, if it is there. */
HARK_MUST_CHECK hark_status hark_sweep_read_results(sweep *s, const char *path);
/* The metric of a run and the additional numbers of the table, within a budget; NaN where it has none. */
HARK_MUST_CHECK hark_status hark_sweep_measure_run(sweep *s, int run, const hark_sweep_budget *budget);
/* The names of --beside. */
HARK_MUST_CHECK hark_status hark_sweep_read_beside(sweep *s);
/* Refuses --metric, --beside and --at with names that no run of the sweeps has, and --choose checkpoint without val/loss, if a run has
 * metrics. */
HARK_MUST_CHECK hark_status hark_sweep_check_metrics(const sweep *sweeps, int count);
/* A line of results.jsonl. */
HARK_MUST_CHECK hark_status hark_sweep_record(sweep *s, int run, int exit_code);
/* Prints table or JSON, and draws the picture if requested. */
HARK_MUST_CHECK hark_status hark_sweep_report(sweep *s);
/* Refuses runs of one cell that were trained on different data. */
HARK_MUST_CHECK hark_status hark_sweep_check_data(const sweep *s);
/* Before anything is trained: sweep.svg of another program is refused. */
HARK_MUST_CHECK hark_status hark_sweep_check_picture(const sweep *s);
/* Prints the names of the runs. */
HARK_MUST_CHECK hark_status hark_sweep_print_runs(const sweep *s);

#endif
