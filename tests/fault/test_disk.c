/* test_disk.c - file systems that fail: a full disk, errors of the device, interrupted and short calls, at every call of a save and of a
 * run.
 *
 * An interrupted or short call is no failure. What fails is reported with the path and ends the run; what was saved before stays, nothing
 * half written takes up space, and the run goes on to the same bits as one that nothing disturbed. With HARK_FAULT_LONG a fresh run meets
 * all of it, too; without it, the last save of a resumed one does.
 */
#define _GNU_SOURCE /* unshare */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common.h"
#include "fault/child.h"
#include "support/cmocka_all.h"

#define SMALL_DISK "size=256k"
#define NO_SMALL_DISK 77 /* exit code of the part that runs on it */

static child_place place;
static const char *program;

static int begin(void **state) {
  (void)state;
  child_place_open(&place);
  child_make_whole(&place);
  child_make_part(&place);
  return 0;
}

static int end(void **state) {
  (void)state;
  child_place_close(&place);
  return 0;
}

/* Calls whose failure changes nothing: a file that was only read is closed; a folder that is there cannot be made; the number in the lock
 * is for a message; a temporary file that cannot be locked is one that nobody else can lock, nor remove as abandoned. */
static bool may_fail(const child_report *report) {
  const size_t length = strlen(report->failed_path);
  const bool lock = length > 6 && strcmp(report->failed_path + length - 6, "/.lock") == 0;
  if (strcmp(report->failed, "flock") == 0 && strstr(report->failed_path, ".tmp-") != NULL) return true;
  return strcmp(report->failed, "close") == 0 || strcmp(report->failed, "mkdir") == 0 ||
         (lock && (strcmp(report->failed, "pwrite") == 0 || strcmp(report->failed, "ftruncate") == 0));
}

static void assert_nothing_half_written(void) {
  char partial[CHILD_PATH_BYTES + 32];
  (void)snprintf(partial, sizeof partial, "%s/checkpoints/.partial", place.work);
  if (hark_path_kind_of(partial) != HARK_PATH_NONE) fail_msg("%s was left", partial);
}

/* Strikes at every call, or (onwards) at every call and all that follow, of a run that begins with a copy of `from`. Returns how often. */
static long strike_at_every_call(const char *from, const fault_plan *given) {
  for (long at = 1;; at++) {
    const child_report *report;
    child_settings settings = {.small = &place.small, .path = place.work, .threads = 1, .plan = *given};
    settings.plan.at = at;
    child_begin_work(&place, from);
    if (child_run(&settings, &report)) fail_msg("killed");
    const bool struck = report->failed[0] != 0;
    if (report->status == HARK_OK) {
      if (struck && given->kind == FAULT_ERROR && given->error != EINTR && !may_fail(report))
        fail_msg("call %ld, %s of %s, failed with error %d, and nobody said so", at, report->failed, report->failed_path, given->error);
    } else {
      const bool fails = struck && given->kind == FAULT_ERROR && given->error != EINTR;
      if (!fails || report->status != HARK_IO_ERROR || strstr(report->message, place.work) == NULL)
        fail_msg("call %ld, %s of %s: %s: %s", at, report->failed, report->failed_path, hark_status_name((hark_status)report->status),
                 report->message);
      if (!given->onwards) assert_nothing_half_written();
    }
    if (!struck) return at - 1;
    child_check(&place, report->saved);
    child_finish_and_compare(&place);
  }
}

static const struct {
  const char *name;
  fault_plan plan;
} errors[] = {
    {"ENOSPC, and the disk stays full", {.kind = FAULT_ERROR, .error = ENOSPC, .groups = FAULT_ON_SPACE, .onwards = true}},
    {"EIO, once", {.kind = FAULT_ERROR, .error = EIO, .groups = FAULT_ON_ALL}},
    {"EINTR, once", {.kind = FAULT_ERROR, .error = EINTR, .groups = FAULT_ON_WAITING}},
    {"a short read or write", {.kind = FAULT_SHORT, .groups = FAULT_ON_MOVE}},
    /* the rest only in the long run */
    {"ENOSPC, once", {.kind = FAULT_ERROR, .error = ENOSPC, .groups = FAULT_ON_SPACE}},
    {"EIO, from then on", {.kind = FAULT_ERROR, .error = EIO, .groups = FAULT_ON_ALL, .onwards = true}},
};
#define ERRORS ((int)(sizeof errors / sizeof *errors))
#define ERRORS_SHORT 4
#define CALLS_AT_LEAST 40 /* of every kind, in a run that saves */

static void strike_with(const char *from, int error) {
  const long calls = strike_at_every_call(from, &errors[error].plan);
  print_message("%s: %ld calls of a %s run\n", errors[error].name, calls, from != NULL ? "resumed" : "fresh");
  assert_true(calls > CALLS_AT_LEAST);
}

static void errors_at_every_call_of_a_save(void **state) {
  (void)state;
  for (int i = 0; i < (child_long() ? ERRORS : ERRORS_SHORT); i++) strike_with(place.part, i);
}

static void errors_at_every_call_of_a_fresh_run(void **state) {
  (void)state;
  if (!child_long()) skip();
  for (int i = 0; i < ERRORS; i++) strike_with(NULL, i);
}

/* Every read and every write moves one byte. */
static void one_byte_at_a_time(void **state) {
  (void)state;
  const child_report *report;
  const child_settings settings = {.small = &place.small,
                                   .path = place.work,
                                   .threads = 1,
                                   .plan = {.kind = FAULT_SHORT, .groups = FAULT_ON_MOVE, .at = 1, .onwards = true}};
  child_begin_work(&place, place.part);
  assert_false(child_run(&settings, &report));
  if (report->status != HARK_OK) fail_msg("%s", report->message);
  assert_true(report->calls > 10000);
  child_finish_and_compare(&place);
}

static void the_command_ends_with_4(void **state) {
  (void)state;
  child_begin_work(&place, NULL);
  assert_int_equal(child_command(&place, "ENOSPC", "150+", ""), HARK_EXIT_DISK); /* when some checkpoints are there */
  child_expect_said(&place, "No space left on device");
  child_expect_said(&place, place.work);
  child_check(&place, 1);
  assert_int_equal(child_command(&place, "EIO", "40+", "--resume"), HARK_EXIT_DISK);
  child_check(&place, 1);
  assert_int_equal(child_command(&place, NULL, NULL, "--resume"), HARK_EXIT_DONE);
  small_run_assert_same(place.whole, place.work, place.small.config.train.steps);
}

/* ---- a disk that is full indeed ---- */

/* In a process of its own, where nobody else sees what is mounted. Returns NULL or why that is not possible. */
static const char *mount_small_disk(const char *on) {
  char users[64], groups[64];
  const struct {
    const char *file, *text;
  } maps[] = {{"/proc/self/setgroups", "deny"}, {"/proc/self/uid_map", users}, {"/proc/self/gid_map", groups}};
  (void)snprintf(users, sizeof users, "0 %ld 1", (long)getuid());
  (void)snprintf(groups, sizeof groups, "0 %ld 1", (long)getgid());
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
      const int file = open(maps[i].file, O_WRONLY);
      const ssize_t put = file >= 0 ? write(file, maps[i].text, strlen(maps[i].text)) : -1;
      (void)close(file);
      if (put < 0) return "the user of the new name space cannot be set";
    }
  } else if (unshare(CLONE_NEWNS) != 0) {
    return "no new name space may be made";
  }
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return "the mounts cannot be made private";
  return mount("none", on, "tmpfs", 0, SMALL_DISK) == 0 ? NULL : "no tmpfs can be mounted";
}

/* The part that runs there: checkpoints are kept until the disk is full; then it gets larger. */
static void training_fills_a_disk(void **state) {
  (void)state;
  char run[CHILD_PATH_BYTES + 8];
  hark_context *context = small_run_context(1);
  place.small.config.train.steps = 40;
  place.small.config.train.keep = 1000;
  place.small.config.run.preflight = false; /* it would see what comes */
  child_make_whole(&place);
  (void)snprintf(run, sizeof run, "%s/run", place.work);
  assert_int_equal(small_run_train(context, &place.small, run, NULL, NULL), HARK_IO_ERROR);
  if (strstr(hark_context_message(context), strerror(ENOSPC)) == NULL) fail_msg("%s", hark_context_message(context));
  memcpy(place.work, run, sizeof place.work);
  assert_nothing_half_written();
  child_check(&place, 2);
  run[strlen(run) - strlen("/run")] = 0;
  assert_int_equal(mount("none", run, "tmpfs", MS_REMOUNT, "size=64m"), 0);
  child_finish_and_compare(&place);
  hark_context_destroy(&context);
}

static void a_small_disk(void **state) {
  (void)state;
  (void)fflush(NULL);
  const pid_t process = fork();
  if (process == 0) {
    const char *const where = test_path(place.folder, "disk");
    (void)mkdir(where, 0777);
    const char *const problem = mount_small_disk(where);
    if (problem != NULL) {
      print_message("skipped: %s: %s\n", problem, strerror(errno));
      _exit(NO_SMALL_DISK);
    }
    (void)execl(program, program, where, (char *)NULL);
    _exit(1);
  }
  int result;
  assert_int_equal(waitpid(process, &result, 0), process);
  assert_true(WIFEXITED(result));
  if (WEXITSTATUS(result) == NO_SMALL_DISK) skip();
  assert_int_equal(WEXITSTATUS(result), 0);
}

int main(int count, char **arguments) {
  program = arguments[0];
  if (count > 1) { /* on a small disk */
    const struct CMUnitTest there[] = {cmocka_unit_test(training_fills_a_disk)};
    child_place_open(&place);
    (void)snprintf(place.work, sizeof place.work, "%s", arguments[1]);
    const int failures = cmocka_run_group_tests(there, NULL, NULL);
    child_place_close(&place);
    return failures;
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(errors_at_every_call_of_a_save),
      cmocka_unit_test(errors_at_every_call_of_a_fresh_run),
      cmocka_unit_test(one_byte_at_a_time),
      cmocka_unit_test(the_command_ends_with_4),
      cmocka_unit_test(a_small_disk),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
