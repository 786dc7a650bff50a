/* child.h - training in a child process that a fault strikes, and looking at what it leaves.
 *
 * The child is forked, not executed: it is the test's own program with the shim of this folder in it. The parent stays a process of one
 * thread, as forking wants it.
 */
#ifndef HARK_TESTS_FAULT_CHILD_H
#define HARK_TESTS_FAULT_CHILD_H

#include "fault/shim.h"
#include "support/small_run.h"

#define CHILD_RUNNING (-1)

/* What a child says, in memory that outlives it. */
typedef struct child_report {
  int status;        /* hark_status of the training, CHILD_RUNNING when it did not come to its end */
  long calls;        /* counted by the shim */
  int64_t saved;     /* step whose checkpoint the child has seen saved; 0: none */
  char message[512]; /* the context's */
  char failed[32];   /* fault_name() and fault_path() */
  char failed_path[FAULT_PATH_BYTES];
  bool ready; /* the first step came next */
} child_report;

typedef struct child_settings {
  const small_run *small;
  const char *path; /* of the run; the shim's root, too */
  int threads;
  fault_plan plan;                 /* root, and whether to flush, are set by child_run */
  hark_request (*request)(void *); /* called after every step with the report, or NULL */
  long kill_after_microseconds;    /* SIGKILL from outside after that time; 0: none */
} child_settings;

/* Trains in a child and waits for it. Returns true when it was killed; a child that ends in any other way than by itself or by SIGKILL fails the
 * test. The report is good until the next call. */
bool child_run(const child_settings *settings, const child_report **report);

/* HARK_FAULT_LONG is set in the environment: everything, and with flushes that flush. */
bool child_long(void);

#endif
