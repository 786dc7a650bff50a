/* sweep_watch.h - how the processes of a sweep notice that one of them has ended: each locks its byte of a file in the sweep's folder, and
 * the system drops the lock when the process ends, for any reason. A process that is slow, or stopped, keeps its lock. Where a file system
 * has no such locks between machines, nothing is noticed. */
#ifndef HARK_CLI_SWEEP_SWEEP_WATCH_H
#define HARK_CLI_SWEEP_SWEEP_WATCH_H

#include "core/core.h"
#include "group/group.h"

#define HARK_SWEEP_WATCH_NAME ".ranks"

typedef struct hark_sweep_watch {
  int descriptor; /* -1: none */
  int rank, size;
  double next;                /* time of the next look */
  double silent;              /* until when this process lets another report; 0: none does */
  bool signalled;             /* looked after the first signal */
  bool seen[HARK_GROUP_MOST]; /* by rank: its lock was seen */
} hark_sweep_watch;

/* Locks the byte of `rank`. Rank 0 makes the file, and the others open it later. Errors: HARK_NOT_FOUND where a process does not see the
 * file of rank 0; HARK_IO_ERROR. */
HARK_MUST_CHECK hark_status hark_sweep_watch_open(hark_context *context, const char *path, int rank, int size, hark_sweep_watch *out);
/* When all have opened it: notes whose locks can be seen. */
void hark_sweep_watch_begin(hark_sweep_watch *watch);
/* The process that has ended, which this one must report; -1: none. Rank 0 reports any other process, another one the end of all before it.
 * Who reports marks the file, so that the others, whom it ends, report nothing. Looks from time to time, and after the first signal at
 * once: a launcher may have sent it because a process has ended. */
int hark_sweep_watch_look(hark_sweep_watch *watch, bool signalled);
void hark_sweep_watch_close(hark_sweep_watch *watch);

#endif
