/* test_disk.c - file systems that fail: a full disk, errors of the device, interrupted and short calls, at every call of a save and of a run.
 *
 * Whatever fails, what was saved before stays, the failure is told with the path, and the run goes on to the same bits as one that nothing
 * disturbed. With HARK_FAULT_LONG a fresh run meets every error at every call; without it, the last save of a resumed one does.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common.h"
#include "fault/child.h"
#include "support/cmocka_all.h"

static char folder[TEST_PATH_BYTES], whole[TEST_PATH_BYTES + 8], work[TEST_PATH_BYTES + 8], part[TEST_PATH_BYTES + 8];
static small_run small;

static hark_request die_before_the_last_save(void *user) {
  const child_report *report = user;
  if (report->saved == small.config.train.steps - 2) _exit(0);
  return HARK_REQUEST_NONE;
}
