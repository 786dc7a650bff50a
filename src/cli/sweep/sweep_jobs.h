/* sweep_jobs.h - tasks as processes, several at once: begun in their order, with the lines that they print after their names, and taken in
 * the order in which they end.
 *
 * One at a time shares the stderr of the sweep. Several write into pipes, which the sweep reads: a line is printed when it is complete, and
 * on a terminal one more line counts the tasks. The end of a process is the end of its pipe.
 *
 * With the processes of a launcher (sweep_crew.h) place p is one of process p mod N: a free process is preferred to one with a run.
 */
#ifndef HARK_CLI_SWEEP_SWEEP_JOBS_H
#define HARK_CLI_SWEEP_SWEEP_JOBS_H

#include "cli/progress.h"
#include "cli/sweep/sweep_crew.h"
#include "cli/sweep/sweep_process.h"

#define HARK_SWEEP_TITLE_BYTES 1024

/* A process that is running. */
typedef struct hark_sweep_job {
  bool busy, unsent; /* unsent: its words were not sent to its process of the launcher yet */
  int task, output, exit_code;
  double begun;                       /* hark_progress_clock() */
  char title[HARK_SWEEP_TITLE_BYTES]; /* before its lines */
  char text[HARK_SWEEP_TEXT_BYTES];   /* the incomplete line, a longer one becomes several; the result of HARK_SWEEP_RESULT; unsent words */
  size_t used;
} hark_sweep_job;

typedef struct hark_sweep_jobs {
  int count, running; /* places; processes */
  hark_sweep_output output;
  hark_progress progress;
  int done, left;        /* tasks, for the line that counts */
  hark_sweep_crew *crew; /* NULL: this process alone */
  hark_sweep_job *places;
} hark_sweep_jobs;

/* A process that has ended. */
typedef struct hark_sweep_ended {
  int task, exit_code;
  double seconds;
  const char *result; /* of HARK_SWEEP_RESULT, until the next process is begun */
} hark_sweep_ended;

/* What is done: tasks 0 to count - 1. */
typedef struct hark_sweep_work {
  void *user;
  int count;
  bool (*needed)(void *user, int task);
  hark_status (*begin)(void *user, hark_sweep_jobs *jobs, int task); /* hark_sweep_jobs_begin(), or nothing */
  hark_status (*end)(void *user, const hark_sweep_ended *ended, bool *stop);
  hark_sweep_crew *crew; /* whose processes share it; NULL: this process alone */
} hark_sweep_work;

/* Does the work with up to `count` processes at once, in each process of the crew. After a signal to the sweep, and after *stop, no further
 * task is begun, and the running ones are waited for. After a failure they are sent SIGTERM before. Errors: of the functions;
 * HARK_IO_ERROR, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_sweep_jobs_do(hark_context *context, const hark_sweep_work *work, int count, hark_sweep_output output);

/* Starts the process of a task; none after a signal to the sweep. */
HARK_MUST_CHECK hark_status hark_sweep_jobs_begin(hark_context *context, hark_sweep_jobs *jobs, int task, const char *title,
                                                  char *const *words, int input);
#endif
