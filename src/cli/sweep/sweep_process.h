/* sweep_process.h - the processes of a sweep: the program itself with other words, each in its own process group, so that signals reach it
 * only from the sweep, once.
 *
 * They begin by fork and exec: a new program shares no thread, no context and no open file with the sweep, which has one thread. When the
 * sweep is killed, its processes receive SIGTERM from the system (Linux); elsewhere they continue.
 */
#ifndef HARK_CLI_SWEEP_SWEEP_PROCESS_H
#define HARK_CLI_SWEEP_SWEEP_PROCESS_H

#include "core/core.h"

#define HARK_SWEEP_JOBS 64 /* processes at once, at most; each has a place from 0 on */

/* Where a process writes. */
typedef enum hark_sweep_output {
  HARK_SWEEP_SHARED,   /* everything to the stderr of the sweep */
  HARK_SWEEP_MESSAGES, /* everything to the sweep, through a pipe */
  HARK_SWEEP_RESULT    /* its result to the sweep, through a pipe; its messages nowhere */
} hark_sweep_output;

typedef struct hark_sweep_start {
  char *const *words; /* of the command line, the program's name first; ends with NULL */
  hark_sweep_output output;
  int input; /* descriptor of its stdin; -1: that of the sweep */
} hark_sweep_start;

/* From now on SIGINT, SIGTERM and SIGHUP are passed to all processes, which save and end, and hark_sweep_signal() is the last one of them;
 * before, 0. Signals that are ignored stay ignored (nohup). */
void hark_sweep_catch_signals(void);
int hark_sweep_signal(void);
/* Sends a signal to all processes. */
void hark_sweep_signal_all(int number);
/* The same by the sweep itself: a signal that the sweep receives after it is not passed on, as it would be the second one to the runs. */
void hark_sweep_end_all(int number);

/* How many signals the processes have been sent; *number: the last one. */
int hark_sweep_signals(int *number);
/* Another process of a launcher has received a signal: as if the sweep had, and when a launcher sends it here too it is not passed on
 * again. Does nothing after a signal. */
void hark_sweep_take_signal(int number);

/* Starts a process at a free place. *output is the pipe's end that the caller reads and closes; -1: none. *started is false if a signal to
 * end has arrived before. Errors: HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_sweep_process_start(hark_context *context, const hark_sweep_start *start, int place, int *output,
                                                     bool *started);
/* Waits for the end of the process at a place; *exit_code as in a shell. Errors: HARK_IO_ERROR, also where the program could not be run. */
HARK_MUST_CHECK hark_status hark_sweep_process_wait(hark_context *context, int place, int *exit_code);

#endif
