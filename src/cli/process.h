/* process.h - what the program hark sets up for itself as a process, and what it leaves. A test that calls hark_main() in its own process
 * does without. */
#ifndef HARK_CLI_PROCESS_H
#define HARK_CLI_PROCESS_H

#include <signal.h>

#include "io/temporary.h"

/* What the handlers of signals remove. */
extern hark_temporaries hark_process_temporaries;

/* Before anything else:
 * - standard streams that are closed become /dev/null, so that no file gets their place and messages with it;
 * - the end of the space that a process may write (SIGXFSZ, ulimit -f) is an error of the call that met it, as a full disk is;
 * - SIGINT, SIGTERM and SIGHUP, where whoever started us has not set them to be ignored, remove our temporary files and end the process. */
void hark_process_begin(void);

/* Closes stdout. Returns the exit code: HARK_EXIT_DISK, after a line on stderr, where what was printed has not arrived and `code` is 0. */
int hark_process_end(int code);

/* Adds those signals that another program is to find as we did, not ignored. */
void hark_process_add_restored(sigset_t *signals);

#endif
