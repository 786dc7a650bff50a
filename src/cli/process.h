/* process.h - set-up and end of the process of the program hark. A test that calls hark_main() in its own process does not use it. */
#ifndef HARK_CLI_PROCESS_H
#define HARK_CLI_PROCESS_H

#include <signal.h>

#include "io/temporary.h"

#define HARK_PARENT_ENDED SIGUSR2 /* the signal that a process asks the system for when its parent ends */

/* The files that the handlers of signals remove. */
extern hark_temporaries hark_process_temporaries;

/* Before anything else:
 * - standard streams that are closed become /dev/null, so that no other file gets their number and receives messages; reading the input
 *   and writing the output fail, as they do with a closed descriptor;
 * - a line on stderr is one write;
 * - exceeding the file size limit (SIGXFSZ, ulimit -f) is an error of the failing call, like a full disk;
 * - SIGINT, SIGTERM, SIGHUP and HARK_PARENT_ENDED, unless the parent process had set them to be ignored, remove our temporary files and
 *   end the process. */
void hark_process_begin(void);

/* Closes stdout. Returns the exit code: HARK_EXIT_DISK, after a line on stderr, where the output was not written completely and `code` is
 * 0. */
int hark_process_end(int code);

/* Adds the signals that must be restored for another program: those that were not ignored when hark started. */
void hark_process_add_restored(sigset_t *signals);

#endif
