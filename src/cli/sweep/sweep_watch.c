/* sweep_watch.c - see sweep_watch.h. */
#include "cli/sweep/sweep_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/progress.h"
#include "io/files.h"
#include "io/system_error.h"

#define LOOK_SECONDS 1.0
#define SIGNAL_SECONDS 3.0 /* after a signal: a launcher ends all processes, in any order */
#define SILENT_SECONDS 5.0 /* after the report of another process */
#define MARK "ended\n"

static struct flock byte_of(int rank) { return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1}; }

hark_status hark_sweep_watch_open(hark_context *context, const char *path, int rank, int size, hark_sweep_watch *out) {
  *out = (hark_sweep_watch){.descriptor = -1, .rank = rank, .size = size};
  struct flock own = byte_of(rank);
  const int opened = hark_open_again(path, rank == 0 ? O_RDWR | O_CREAT : O_RDWR, 0666);
  if (opened < 0) return hark_system_fail(context, errno, path, "cannot be opened, and all processes must see the sweep's folder");
  out->descriptor = opened;
  (void)fcntl(opened, F_SETLK, &own); /* if it fails, no process sees the lock */
  return HARK_OK;
}

/* Whether another process has the lock of a rank. */
static bool is_locked(const hark_sweep_watch *watch, int rank) {
  struct flock byte = byte_of(rank);
  return fcntl(watch->descriptor, F_GETLK, &byte) != 0 || byte.l_type != F_UNLCK;
}

void hark_sweep_watch_begin(hark_sweep_watch *watch) {
  for (int rank = 0; rank < watch->size; rank++) {
    struct flock byte = byte_of(rank);
    watch->seen[rank] = rank != watch->rank && fcntl(watch->descriptor, F_GETLK, &byte) == 0 && byte.l_type != F_UNLCK;
  }
}

static bool has_ended(const hark_sweep_watch *watch, int rank) { return watch->seen[rank] && !is_locked(watch, rank); }

static int find_ended(const hark_sweep_watch *watch) {
  if (watch->rank == 0) {
    for (int rank = 1; rank < watch->size; rank++)
      if (has_ended(watch, rank)) return rank;
    return -1;
  }
  for (int rank = 0; rank < watch->rank; rank++)
    if (!has_ended(watch, rank)) return -1;
  return 0;
}

/* Whether this process may report: marks the file if no other has. */
static bool may_report(hark_sweep_watch *watch, double now) {
  char mark = 0;
  if (watch->silent > 0) return now >= watch->silent;
  if (pread(watch->descriptor, &mark, 1, 0) == 1) {
    watch->silent = now + SILENT_SECONDS;
    return false;
  }
  (void)!pwrite(watch->descriptor, MARK, strlen(MARK), 0); /* without a mark others may report too */
  return true;
}

int hark_sweep_watch_look(hark_sweep_watch *watch, bool signalled) {
  const double now = hark_progress_clock();
  const bool first = signalled && !watch->signalled;
  if (watch->descriptor < 0 || (!first && now < watch->next)) return -1;
  watch->signalled = signalled;
  watch->next = now + (first ? SIGNAL_SECONDS : LOOK_SECONDS);
  const int ended = find_ended(watch);
  return ended >= 0 && may_report(watch, now) ? ended : -1;
}

void hark_sweep_watch_close(hark_sweep_watch *watch) {
  if (watch->descriptor >= 0) hark_file_close(&watch->descriptor);
}
