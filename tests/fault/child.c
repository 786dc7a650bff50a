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

/* ---- a place for runs ---- */

void child_place_open(child_place *place) {
  fault_plan counting = {.unflushed = !child_long()};
  *place = (child_place){.damaged = false};
  test_folder_make(place->folder);
  memcpy(counting.root, place->folder, sizeof counting.root);
  (void)snprintf(place->whole, sizeof place->whole, "%s/whole", place->folder);
  (void)snprintf(place->part, sizeof place->part, "%s/part", place->folder);
  (void)snprintf(place->work, sizeof place->work, "%s/work", place->folder);
  small_run_open(&place->small, place->folder);
  fault_set(&counting);
}

void child_place_close(child_place *place) {
  fault_set(NULL);
  small_run_close(&place->small);
  test_folder_remove(place->folder);
}

void child_place_take_examples(child_place *place) {
  small_run_close(&place->small);
  small_run_open_examples(&place->small, place->folder);
}

void child_make_whole(child_place *place) {
  test_folder_remove(place->whole);
  hark_context *context = small_run_context(1);
  assert_fine(context, small_run_train(context, &place->small, place->whole, NULL, NULL));
  hark_context_destroy(&context);
}

static int64_t last_step_but_one; /* for the child */

/* Asked after the last step, when the save before it is over. */
static hark_request die_before_the_last_save(void *user) {
  const child_report *report = user;
  if (report->saved == last_step_but_one) (void)raise(SIGKILL);
  return HARK_REQUEST_NONE;
}

void child_make_part(child_place *place) {
  const child_report *report;
  const child_settings settings = {.small = &place->small, .path = place->part, .threads = 1, .request = die_before_the_last_save};
  test_folder_remove(place->part);
  last_step_but_one = place->small.config.train.steps - 2; /* what a child has seen saved is one step late */
  assert_true(child_run(&settings, &report));
}

void child_begin_work(const child_place *place, const char *from) {
  test_folder_remove(place->work);
  if (from != NULL) small_run_copy(from, place->work);
}

/* Also a process that is killed while it removes an older checkpoint leaves none of which a part is missing. */
static void assert_all_whole(hark_context *context, const hark_run *run) {
  hark_names names;
  char path[HARK_PATH_BYTES];
  assert_fine(context, hark_run_path(context, run, HARK_CHECKPOINTS_FOLDER, path));
  if (hark_path_kind_of(path) == HARK_PATH_NONE) return;
  assert_fine(context, hark_folder_list(context, path, &names));
  for (int64_t i = 0; i < names.count; i++)
    if (names.items[i][0] != '.' && hark_checkpoint_verify(context, run, names.items[i], NULL) != HARK_OK)
      fail_msg("%s: %s", names.items[i], hark_context_message(context));
  hark_names_free(context, &names);
}

void child_check(const child_place *place, int64_t saved) {
  hark_context *context = small_run_context(1);
  hark_run run;
  char checkpoint[HARK_NAME_BYTES], name[HARK_NAME_BYTES], damaged[HARK_NAME_BYTES];
  hark_status status = hark_run_open_reading(context, place->work, &run, checkpoint);
  if (status == HARK_OK) status = hark_checkpoint_newest(context, &run, name, damaged);
  if (status == HARK_OK) {
    if (damaged[0] != 0 && !place->damaged) fail_msg("%s is damaged", damaged);
    if (small_run_step(name) < saved) fail_msg("%s is the newest, step %d was saved", name, (int)saved);
    if (!place->damaged) assert_all_whole(context, &run);
  } else if (saved > 0) {
    fail_msg("step %d was saved, but: %s", (int)saved, hark_context_message(context));
  }
  hark_context_destroy(&context);
}

/* Both runs hold the same names in a folder. */
static void assert_same_names(hark_context *context, const child_place *place, const char *inside) {
  hark_names left, right;
  char path[CHILD_PATH_BYTES + 16];
  (void)snprintf(path, sizeof path, "%s/%s", place->whole, inside);
  assert_fine(context, hark_folder_list(context, path, &left));
  (void)snprintf(path, sizeof path, "%s/%s", place->work, inside);
  assert_fine(context, hark_folder_list(context, path, &right));
  for (int64_t i = 0; i < left.count || i < right.count; i++) {
    const char *const a = i < left.count ? left.items[i] : "nothing", *const b = i < right.count ? right.items[i] : "nothing";
    if (strcmp(a, b) != 0) fail_msg("%s: %s, expected %s", path, b, a);
  }
  hark_names_free(context, &left);
  hark_names_free(context, &right);
}

void child_finish_and_compare(const child_place *place) {
  hark_context *context = small_run_context(1);
  assert_fine(context, small_run_train(context, &place->small, place->work, NULL, NULL));
  small_run_assert_same(place->whole, place->work, place->small.config.train.steps);
  assert_same_names(context, place, ".");
  assert_same_names(context, place, "checkpoints");
  if (place->small.config.data.format == 0) assert_same_names(context, place, "cache"); /* examples have none */
  hark_context_destroy(&context);
}

int child_command(const child_place *place, const char *kind, const char *at, const char *words) {
  char command[16 * TEST_PATH_BYTES], *const end = command + sizeof command;
  char *next = command;
  if (kind != NULL)
    next += snprintf(next, (size_t)(end - next), "LD_PRELOAD='%s' HARK_FAULT_ROOT='%s' HARK_FAULT_KIND=%s HARK_FAULT_AT=%s ",
                     HARK_FAULT_SHIM, place->work, kind, at);
  /* the address sanitizer must be the first library unless an option permits another order */
  next += snprintf(next, (size_t)(end - next), "HARK_ARCH=generic ASAN_OPTIONS=\"$ASAN_OPTIONS:verify_asan_link_order=0\" '%s' train",
                   HARK_COMMAND);
  for (int i = 0; i < small_run_word_count; i++) {
    const int length = (int)strcspn(small_run_words[i], "=");
    char flag[64];
    (void)snprintf(flag, sizeof flag, "%.*s ", length, small_run_words[i]);
    if (strstr(words, flag) == NULL) next += snprintf(next, (size_t)(end - next), " %s", small_run_words[i]);
  }
  (void)snprintf(next, (size_t)(end - next), " --data '%s' --out '%s' %s >'%s/said' 2>&1", place->small.text, place->work, words,
                 place->folder);
  const int result = system(command);
  if (!WIFEXITED(result)) fail_msg("%s: wait status 0x%x", command, (unsigned)result);
  return WEXITSTATUS(result);
}

void child_expect_said(const child_place *place, const char *part) {
  char *const said = test_file_text(place->folder, "said");
  if (strstr(said, part) == NULL) fail_msg("\"%s\" was not said, but: %s", part, said);
  free(said);
}
