/* child.c - see child.h. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "fault/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/cmocka_all.h"

bool child_long(void) {
  const char *const value = getenv("HARK_FAULT_LONG");
  return value != NULL && value[0] != 0 && strcmp(value, "0") != 0;
}

typedef struct child_work {
  child_report *report;
  const child_settings *settings;
} child_work;

/* Every step ends with a save in a small run: when a step is over, the checkpoint of the one before is there. */
static void show(void *user, const hark_train_progress *progress) {
  const child_work *work = user;
  work->report->ready = true;
  if (progress->evaluating < 0) work->report->saved = progress->step - 1;
}

static hark_request request(void *user) {
  const child_work *work = user;
  return work->settings->request != NULL ? work->settings->request(work->report) : HARK_REQUEST_NONE;
}

static void work_in_child(const child_settings *settings, child_report *report) {
  fault_plan plan = settings->plan;
  plan.unflushed = !child_long();
  (void)snprintf(plan.root, sizeof plan.root, "%s", settings->path);
  hark_context *context = small_run_context(settings->threads);
  child_work work = {report, settings};
  const hark_train_hooks hooks = {.user = &work, .show = show, .request = request};
  hark_train_result result;
  fault_set(&plan);
  const hark_status status = small_run_train(context, settings->small, settings->path, &hooks, &result);
  report->calls = fault_calls();
  (void)snprintf(report->message, sizeof report->message, "%s", hark_context_message(context));
  (void)snprintf(report->failed, sizeof report->failed, "%s", fault_name());
  (void)snprintf(report->failed_path, sizeof report->failed_path, "%s", fault_path());
  if (status == HARK_OK) report->saved = result.state.step;
  report->status = (int)status;
}

static void wait_microseconds(long microseconds) {
  const struct timespec time = {.tv_sec = microseconds / 1000000, .tv_nsec = microseconds % 1000000 * 1000};
  (void)nanosleep(&time, NULL);
}

bool child_run(const child_settings *settings, const child_report **out) {
  static child_report *report;
  if (report == NULL) {
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) fail_msg("mmap: %s", strerror(errno));
  }
  memset(report, 0, sizeof *report);
  report->status = CHILD_RUNNING;
  *out = report;
  (void)fflush(NULL);
  const pid_t process = fork();
  if (process < 0) fail_msg("fork: %s", strerror(errno));
  if (process == 0) {
    work_in_child(settings, report);
    _exit(0);
  }
  if (settings->kill_after_microseconds > 0) {
    wait_microseconds(settings->kill_after_microseconds);
    (void)kill(process, SIGKILL);
  }
  int result;
  while (waitpid(process, &result, 0) < 0)
    if (errno != EINTR) fail_msg("waitpid: %s", strerror(errno));
  if (WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL) return true;
  if (!WIFEXITED(result) || WEXITSTATUS(result) != 0 || report->status == CHILD_RUNNING)
    fail_msg("the child ended with wait status 0x%x", (unsigned)result);
  return false;
}
