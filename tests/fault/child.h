/* child.h - training in a child process that a fault strikes, and looking at what it leaves.
 *
 * The child is forked, not executed: it is the test's own program with the shim of this folder in it. The parent stays a process of one
 * thread, as fork() requires.
 */
#ifndef HARK_TESTS_FAULT_CHILD_H
#define HARK_TESTS_FAULT_CHILD_H

#include "fault/shim.h"
#include "support/train/small_run.h"

#define CHILD_PATH_BYTES (TEST_PATH_BYTES + 16)

/* HARK_FAULT_LONG is set in the environment: everything is done, and flushes flush. */
bool child_long(void);

/* ---- a place for runs ---- */

/* The folders of three runs: the one that nothing disturbed, one that has its last save still to come, and the one that faults strike. */
typedef struct child_place {
  small_run small;
  char folder[TEST_PATH_BYTES];
  char whole[CHILD_PATH_BYTES], part[CHILD_PATH_BYTES], work[CHILD_PATH_BYTES];
  bool damaged; /* the last checkpoint may be damaged where child_check looks */
} child_place;

/* Makes the place; the shim counts what is done there, and leaves flushes out, as long as it is set to nothing else. */
void child_place_open(child_place *place);
void child_place_close(child_place *place);
/* Runs over labelled examples in place of a text (small_run_open_examples). */
void child_place_take_examples(child_place *place);

/* Trains `whole`, anew. */
void child_make_whole(child_place *place);
/* Trains `part`, anew, in a child that is killed before its last save. */
void child_make_part(child_place *place);
/* Makes `work` a copy of another run; NULL: removes it. */
void child_begin_work(const child_place *place, const char *from);

/* The library's own check of `work`: there is a whole checkpoint that is not older than step `saved`, and `last` is not damaged. */
void child_check(const child_place *place, int64_t saved);
/* Goes on with `work`, undisturbed, and compares it with `whole`: weights, moments, metrics, and the names in its folders. */
void child_finish_and_compare(const child_place *place);

/* Runs hark train in `work`, with the small run's configuration and `words`, and with the shim in front of it when `kind` is not NULL (see
 * HARK_FAULT_KIND, HARK_FAULT_AT). What it prints goes to FOLDER/said. Returns its exit code. */
int child_command(const child_place *place, const char *kind, const char *at, const char *words);
/* The test fails unless `part` stands there. */
void child_expect_said(const child_place *place, const char *part);

/* ---- a child ---- */

#define CHILD_RUNNING (-1)

/* What a child says, in memory that outlives it. */
typedef struct child_report {
  int status;        /* hark_status of the training, CHILD_RUNNING when it did not come to its end */
  long calls;        /* counted by the shim */
  bool ready;        /* the first step is over */
  int64_t saved;     /* step whose checkpoint the child has seen saved; 0: none */
  char message[512]; /* the context's */
  char failed[32];   /* fault_name() and fault_path() */
  char failed_path[FAULT_PATH_BYTES];
} child_report;

typedef struct child_settings {
  const small_run *small;
  const char *path; /* of the run; the shim's root, too */
  int threads;
  fault_plan plan;                 /* root, and whether to flush, are set by child_run */
  hark_request (*request)(void *); /* called with the report after every step and in evaluations, or NULL */
  long kill_after_microseconds;    /* SIGKILL from outside after that time; 0: none */
} child_settings;

/* Trains in a child and waits for it. Returns true when it was killed; a child that ends in any other way than by itself or by SIGKILL
 * fails the test. The report is good until the next call. */
bool child_run(const child_settings *settings, const child_report **report);

#endif
