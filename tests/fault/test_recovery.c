/* test_recovery.c - what comes after a mishap: locks of running and of killed processes, signals at any moment, damaged and torn files,
 * what interrupted saves leave; and the order of writes and flushes that all of it rests on.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common.h"
#include "fault/child.h"
#include "support/cmocka_all.h"

static child_place place;
static hark_context *context;

static int begin(void **state) {
  (void)state;
  child_place_open(&place);
  place.small.config.train.keep = 2;
  child_make_whole(&place);
  context = small_run_context(1);
  return 0;
}

static int end(void **state) {
  (void)state;
  hark_context_destroy(&context);
  child_place_close(&place);
  return 0;
}

/* A file or folder in `work`. The text is good until eight calls later. */
static const char *in_work(const char *name) { return test_path(place.work, name); }

/* Everything in a folder: names, sizes, times of change to the nanosecond. */
static void describe(const char *path, hark_text *out) {
  hark_names names;
  assert_fine(context, hark_folder_list(context, path, &names));
  for (int64_t i = 0; i < names.count; i++) {
    char inner[CHILD_PATH_BYTES + 128];
    struct stat about;
    (void)snprintf(inner, sizeof inner, "%s/%s", path, names.items[i]);
    assert_int_equal(stat(inner, &about), 0);
    hark_text_append(out, "%s %lld %lld.%09ld\n", inner, (long long)about.st_size, (long long)about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
    if (S_ISDIR(about.st_mode)) describe(inner, out);
  }
  hark_names_free(context, &names);
}

static hark_text described(const char *path) {
  hark_text text = hark_text_empty(context);
  describe(path, &text);
  assert_fine(context, text.status);
  return text;
}

/* ---- locks ---- */

static void a_second_process_touches_nothing(void **state) {
  (void)state;
  hark_run run;
  char who[64];
  (void)snprintf(who, sizeof who, "in use by process %ld", (long)getpid());
  for (int holds_a_run = 0; holds_a_run < 2; holds_a_run++) {
    child_begin_work(&place, holds_a_run ? place.whole : NULL);
    assert_fine(context, hark_run_open(context, place.work, holds_a_run != 0, &run));
    hark_text before = described(place.work);
    for (int resumes = 0; resumes < 2; resumes++) { /* whether it holds a run yet or not: another process may be about to begin one */
      assert_int_equal(child_command(&place, NULL, NULL, resumes ? "--resume --steps 9" : ""), HARK_EXIT_BUSY);
      child_expect_said(&place, who);
    }
    hark_text after = described(place.work);
    assert_string_equal(hark_text_get(&before), hark_text_get(&after));
    hark_text_free(&before);
    hark_text_free(&after);
    hark_run_close(&run);
  }
}

static void a_killed_process_holds_no_lock(void **state) {
  (void)state;
  hark_run run;
  child_begin_work(&place, place.whole);
  const pid_t process = fork();
  if (process == 0) {
    if (hark_run_open(context, place.work, true, &run) == HARK_OK) (void)raise(SIGKILL);
    _exit(1);
  }
  int result;
  assert_int_equal(waitpid(process, &result, 0), process);
  assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
  assert_int_equal(hark_path_kind_of(in_work(".lock")), HARK_PATH_FILE);
  assert_fine(context, hark_run_open(context, place.work, true, &run));
  hark_run_close(&run);
}

/* A program that is started while the folder is locked, and lives longer. Its first word comes when it has taken the forked process's
 * place, and what closes there is closed. */
static void no_child_inherits_the_lock(void **state) {
  (void)state;
  static const char word[] = "here\n";
  hark_run run;
  int ends[2];
  char said[sizeof word] = "";
  child_begin_work(&place, place.whole);
  assert_fine(context, hark_run_open(context, place.work, true, &run));
  assert_int_equal(pipe(ends), 0);
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    if (dup2(ends[1], STDOUT_FILENO) == STDOUT_FILENO) (void)execl("/bin/sh", "sh", "-c", "echo here && exec sleep 600", (char *)NULL);
    _exit(1);
  }
  (void)close(ends[1]);
  const ssize_t got = read(ends[0], said, sizeof said - 1); /* so few bytes come at once; 0 where the process ended without a word */
  hark_run_close(&run);
  const hark_status status = hark_run_open(context, place.work, true, &run);
  (void)close(ends[0]);
  (void)kill(process, SIGKILL);
  (void)waitpid(process, NULL, 0);
  assert_int_equal(got, sizeof word - 1);
  assert_string_equal(said, word);
  assert_fine(context, status);
  hark_run_close(&run);
}

/* Another process begins a run between our look at the folder and our lock, and ends. */
static void begin_a_run(void *user, const fault_call *call) {
  (void)user;
  if (strcmp(call->name, "open") != 0 || call->group != FAULT_ON_CREATE || strstr(call->path, "/.lock") == NULL) return;
  FILE *const file = fopen(in_work("config.yaml"), "w");
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);
}

static void a_run_that_came_in_between_is_seen(void **state) {
  (void)state;
  hark_run run;
  fault_plan plan = {.watch = begin_a_run, .unflushed = true};
  memcpy(plan.root, place.folder, sizeof plan.root);
  child_begin_work(&place, NULL);
  fault_set(&plan);
  const hark_status status = hark_run_open(context, place.work, false, &run);
  plan.watch = NULL;
  fault_set(&plan);
  assert_failure(context, status, HARK_BAD_CONFIGURATION, "already contains a run");
}

/* ---- signals ---- */

/* A signal at a system call in the middle of the run's saves, sent by the shim; afterwards the checkpoint is whole, and the run goes on to
 * the end of one that nothing disturbed. */
static void signal_at(const char *name, const char *at, int code) {
  child_begin_work(&place, NULL);
  const int got = child_command(&place, name, at, "--keep 2");
  if (got != code) child_expect_said(&place, "(the exit code is another one)");
  child_check(&place, 1);
  if (code == HARK_EXIT_DONE) {
    small_run_assert_same(place.whole, place.work, place.small.config.train.steps);
    return;
  }
  assert_int_not_equal(hark_path_kind_of(in_work("checkpoints/step-4")), HARK_PATH_FOLDER);
  assert_int_equal(child_command(&place, NULL, NULL, "--keep 2 --resume"), HARK_EXIT_DONE);
  child_finish_and_compare(&place);
}

/* A signal in the first moments: there is no folder, or one with a run that goes on. */
static void signals_before_the_first_step(void **state) {
  (void)state;
  for (int at = 1; at < 30; at += at < 8 ? 1 : 5) {
    char number[16];
    (void)snprintf(number, sizeof number, "%d", at);
    child_begin_work(&place, NULL);
    assert_int_equal(child_command(&place, "SIGINT", number, "--keep 2"), HARK_EXIT_SIGNAL + SIGINT);
    const bool begun = hark_path_kind_of(in_work("config.yaml")) == HARK_PATH_FILE;
    if (!begun && hark_path_kind_of(place.work) != HARK_PATH_NONE) fail_msg("call %d: a folder without a run is left", at);
    child_expect_said(&place, begun ? "(stopped)" : "stopped before it began");
    assert_int_equal(child_command(&place, NULL, NULL, begun ? "--keep 2 --resume" : "--keep 2"), HARK_EXIT_DONE);
    child_finish_and_compare(&place);
  }
}

static void signals_once(void **state) {
  (void)state;
  signal_at("SIGINT", "150", HARK_EXIT_SIGNAL + SIGINT);
  signal_at("SIGTERM", "165", HARK_EXIT_SIGNAL + SIGTERM);
  signal_at("SIGHUP", "180", HARK_EXIT_SIGNAL + SIGHUP);
  signal_at("SIGUSR1", "160", HARK_EXIT_DONE);
}

/* From that call on each one brings another signal: the second ends the process, wherever it is. */
static void signals_twice(void **state) {
  (void)state;
  signal_at("SIGINT", "150+", HARK_EXIT_SIGNAL + SIGINT);
  signal_at("SIGTERM", "180+", HARK_EXIT_SIGNAL + SIGTERM);
}

/* Nothing else would write one in the middle of this run. */
static void a_checkpoint_is_written_when_asked_for(void **state) {
  (void)state;
  child_begin_work(&place, NULL);
  assert_int_equal(child_command(&place, "SIGUSR1", "60", "--checkpoint-every 0 --evaluate-every 0 --keep 10 --steps 30"), HARK_EXIT_DONE);
  hark_names names;
  assert_fine(context, hark_folder_list(context, in_work("checkpoints"), &names));
  assert_int_equal(names.count, 2); /* that one, and the last */
  assert_string_equal(names.items[1], "step-30");
  hark_names_free(context, &names);
}

/* Whoever started the process with the signal ignored, as nohup does, has it ignored. */
static void ignored_signals_stay_ignored(void **state) {
  (void)state;
  child_begin_work(&place, NULL);
  assert_true(signal(SIGHUP, SIG_IGN) != SIG_ERR);
  const int code = child_command(&place, "SIGHUP", "100", "--keep 2");
  assert_true(signal(SIGHUP, SIG_DFL) != SIG_ERR);
  assert_int_equal(code, HARK_EXIT_DONE);
  small_run_assert_same(place.whole, place.work, place.small.config.train.steps);
}

/* Nobody reads the messages any more. */
static void a_closed_pipe_does_not_end_training(void **state) {
  (void)state;
  child_begin_work(&place, NULL);
  (void)child_command(&place, NULL, NULL, "--keep 2 2>&1 | true; true");
  small_run_assert_same(place.whole, place.work, place.small.config.train.steps);
}

/* ---- damage ---- */

typedef struct said {
  char text[4096];
} said;

static void keep_line(void *user, const char *line) {
  said *all = user;
  const size_t used = strlen(all->text);
  (void)snprintf(all->text + used, sizeof all->text - used, "%s\n", line);
}

/* Goes on with `work`; what it says must contain `part`. */
static void go_on_and_say(const char *part) {
  said all = {""};
  const hark_train_hooks hooks = {.user = &all, .say = keep_line};
  assert_fine(context, small_run_train(context, &place.small, place.work, &hooks, NULL));
  if (strstr(all.text, part) == NULL) fail_msg("\"%s\" was not said, but: %s", part, all.text);
}

enum { DAMAGE_FLIP, DAMAGE_CUT, DAMAGE_EMPTY, DAMAGE_GONE, DAMAGES };

static void damage(const char *name, int how, size_t at) {
  size_t bytes;
  if (how == DAMAGE_GONE) {
    assert_int_equal(unlink(in_work(name)), 0);
    return;
  }
  unsigned char *const data = test_file_read(in_work(name), &bytes);
  data[at % bytes] ^= 1;
  (void)test_file_write(place.work, name, data, how == DAMAGE_FLIP ? bytes : how == DAMAGE_CUT ? bytes / 2 : 0);
  free(data);
}

/* Where a checksum stands in a file of `work`, as in a manifest, whose blanks may be anything; somewhere when there is none. */
static size_t offset_of_sum(const char *name) {
  static const char before[] = "\"sha256\": \"";
  size_t bytes, at = 1000;
  unsigned char *const data = test_file_read(in_work(name), &bytes);
  const char *const found = strstr((const char *)data, before);
  if (found != NULL) at = (size_t)(found - (const char *)data) + sizeof before;
  free(data);
  return at;
}

static const char *const checkpoint_files[] = {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"};
#define CHECKPOINT_FILES ((int)(sizeof checkpoint_files / sizeof *checkpoint_files))

static void a_damaged_checkpoint_is_passed_over(void **state) {
  (void)state;
  for (int file = 0; file < CHECKPOINT_FILES; file++) {
    for (int how = 0; how < DAMAGES; how++) {
      char name[64];
      (void)snprintf(name, sizeof name, "checkpoints/step-4/%s", checkpoint_files[file]);
      child_begin_work(&place, place.whole);
      damage(name, how, offset_of_sum(name));
      go_on_and_say("step-4 is damaged: ");
      child_finish_and_compare(&place);
    }
  }
}

/* The reason names the file, and the message reports where the run continues. */
static void what_is_damaged_is_said(void **state) {
  (void)state;
  child_begin_work(&place, place.whole);
  damage("checkpoints/step-4/optimizer.safetensors", DAMAGE_FLIP, 1000);
  go_on_and_say("optimizer.safetensors: is damaged: its SHA-256 is not that of the manifest\ncontinuing from step-3\n");
  child_begin_work(&place, place.whole);
  damage("last", DAMAGE_EMPTY, 0);
  go_on_and_say("last: does not name a checkpoint (\"step-N\")\ncontinuing from step-4\n");
}

/* Every bit of the pointer files: the run goes on to the same end. */
static void torn_pointers(void **state) {
  (void)state;
  static const char *const names[] = {"last", "best"};
  static const char *const contents[] = {"", "\n", "step-", "step-3", "step-99999999999999999999\n", "../../etc\n", "step-4/../step-3\n"};
  for (int i = 0; i < 2; i++) {
    for (size_t j = 0; j < sizeof contents / sizeof *contents; j++) {
      child_begin_work(&place, place.whole);
      (void)test_file_write_text(place.work, names[i], contents[j]);
      child_finish_and_compare(&place);
    }
    for (size_t bit = 0; bit < 8 * strlen("step-4\n"); bit++) {
      child_begin_work(&place, place.whole);
      size_t bytes;
      unsigned char *const data = test_file_read(in_work(names[i]), &bytes);
      data[bit / 8] ^= (unsigned char)(1u << bit % 8);
      (void)test_file_write(place.work, names[i], data, bytes);
      free(data);
      child_finish_and_compare(&place);
    }
    child_begin_work(&place, place.whole);
    damage(names[i], DAMAGE_GONE, 0);
    child_finish_and_compare(&place);
  }
}

/* There was a checkpoint and there is none that is whole: nothing is begun again, nothing is deleted. */
static void nothing_whole_is_an_error(void **state) {
  (void)state;
  for (int gone = 0; gone < 2; gone++) {
    child_begin_work(&place, place.whole);
    for (int step = 3; step <= 4; step++) {
      char name[64];
      (void)snprintf(name, sizeof name, "checkpoints/step-%d/state.json", step);
      damage(name, DAMAGE_FLIP, 30);
      (void)snprintf(name, sizeof name, "checkpoints/step-%d", step);
      if (gone) test_folder_remove(in_work(name));
    }
    hark_text before = described(in_work("checkpoints"));
    assert_int_equal(small_run_train(context, &place.small, place.work, NULL, NULL), HARK_BAD_FILE);
    assert_int_equal(child_command(&place, NULL, NULL, "--keep 2 --resume"), HARK_EXIT_BAD_INPUT);
    child_expect_said(&place, "step-");
    hark_text after = described(in_work("checkpoints"));
    assert_string_equal(hark_text_get(&before), hark_text_get(&after));
    hark_text_free(&before);
    hark_text_free(&after);
  }
}

/* A checkpoint that was asked for by its path is that one or none. */
static void an_explicit_path_does_not_fall_back(void **state) {
  (void)state;
  char command[8 * TEST_PATH_BYTES];
  child_begin_work(&place, place.whole);
  damage("checkpoints/step-4/model.safetensors", DAMAGE_CUT, 0);
  (void)snprintf(command, sizeof command, "'%s' generate '%s/checkpoints/step-4' --prompt the --max-new-tokens 3 >'%s/said' 2>&1",
                 HARK_COMMAND, place.work, place.folder);
  const int result = system(command);
  assert_true(WIFEXITED(result));
  assert_int_equal(WEXITSTATUS(result), HARK_EXIT_BAD_INPUT);
  child_expect_said(&place, "step-4/model.safetensors");
}

/* Lines after the checkpoint's, complete and torn, are cut off; the lines of the continued run are those of the uninterrupted one. */
static void metrics_are_cut_back(void **state) {
  (void)state;
  child_make_part(&place);
  for (int torn = 0; torn < 2; torn++) {
    child_begin_work(&place, place.part);
    FILE *const file = fopen(in_work("metrics.jsonl"), "a");
    assert_non_null(file);
    assert_true(fputs("{\"step\": 4, \"train/loss\": 7}\n{\"step\": 5, \"train/loss\": 8}\n", file) >= 0);
    if (torn) assert_true(fputs("{\"step\": 6, \"train/l", file) >= 0);
    assert_int_equal(fclose(file), 0);
    child_finish_and_compare(&place);
  }
  child_begin_work(&place, place.part);
  damage("metrics.jsonl", DAMAGE_CUT, 0);
  assert_failure(context, small_run_train(context, &place.small, place.work, NULL, NULL), HARK_BAD_FILE, "metrics.jsonl: has ");
}

/* ---- leftovers ---- */

static void leftovers_go_and_are_never_taken(void **state) {
  (void)state;
  char name[64];
  const pid_t dead = fork(); /* the number of a process that has ended */
  if (dead == 0) _exit(0);
  assert_int_equal(waitpid(dead, NULL, 0), dead);
  child_begin_work(&place, place.whole);
  /* whole in itself, but never renamed; and one that made room */
  small_run_copy(in_work("checkpoints/step-4"), in_work("checkpoints/.partial"));
  small_run_copy(in_work("checkpoints/step-3"), in_work("checkpoints/.replaced"));
  small_run_copy(in_work("checkpoints/step-3"), in_work("checkpoints/step-9")); /* of a trajectory that was given up */
  (void)snprintf(name, sizeof name, ".last.tmp-%ld-0", (long)dead);
  (void)test_file_write_text(place.work, name, "step-9\n");
  (void)snprintf(name, sizeof name, "cache/.corpus.tokens.tmp-%ld-17", (long)dead);
  (void)test_file_write_text(place.work, name, "?");
  child_finish_and_compare(&place); /* no name is there that the whole run does not have */

  /* and what is not ours, or in use, stays */
  char ours[64];
  (void)snprintf(ours, sizeof ours, ".last.tmp-%ld-0", (long)getpid());
  (void)snprintf(name, sizeof name, "x.tmp-%ld-0", (long)dead);
  const char *const others[] = {ours,       name, ".hidden", ".tmp-1-1", ".a.tmp-1x-1", ".a.tmp-99999999999-1", "checkpoints/step-2b/file",
                                "notes.txt"};
  const int count = (int)(sizeof others / sizeof *others);
  for (int i = 0; i < count; i++) (void)test_file_write_text(place.work, others[i], "keep me");
  assert_fine(context, small_run_train(context, &place.small, place.work, NULL, NULL));
  for (int i = 0; i < count; i++)
    if (hark_path_kind_of(in_work(others[i])) != HARK_PATH_FILE) fail_msg("%s is gone", others[i]);
}

/* ---- order ---- */

/* What the order of calls on a run must be so that a power cut at any moment leaves a whole checkpoint, given that fsync of a file keeps
 * its contents and fsync of a folder keeps the names in it:
 *   - a file gets its name by rename only after its contents are flushed, a checkpoint's folder only after all its files and itself are
 *   - `last` and `best` move only when the names of the checkpoints are flushed, and metrics.jsonl as far as the checkpoint needs it
 *   - nothing of a checkpoint is deleted before everything is flushed, the names in the run's folder included
 */
#define TRACED 64
typedef struct trace {
  char unflushed[TRACED][FAULT_PATH_BYTES]; /* files with contents, and folders with names, that no fsync has seen */
  char violation[3 * FAULT_PATH_BYTES];
  int renames, removals;
} trace;

static bool is_in(const char *path, const char *folder) {
  const size_t length = strlen(folder);
  return strncmp(path, folder, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static void mark(trace *t, const char *given, bool unflushed) {
  char path[FAULT_PATH_BYTES];
  int free_place = -1;
  (void)snprintf(path, sizeof path, "%s", given);
  if (path[strlen(path) - 1] == '/') path[strlen(path) - 1] = 0;
  for (int i = 0; i < TRACED; i++) {
    if (t->unflushed[i][0] == 0) free_place = i;
    if (strcmp(t->unflushed[i], path) != 0) continue;
    if (!unflushed) t->unflushed[i][0] = 0;
    return;
  }
  if (unflushed && free_place < 0) abort();
  if (unflushed) (void)snprintf(t->unflushed[free_place], FAULT_PATH_BYTES, "%s", path);
}

static void mark_parent(trace *t, const char *path) {
  char folder[FAULT_PATH_BYTES];
  (void)snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = 0;
  mark(t, folder, true);
}

/* A violation when something in `folder`, or itself, is not flushed. */
static void demand(trace *t, const fault_call *call, const char *folder) {
  for (int i = 0; i < TRACED; i++) {
    if (t->unflushed[i][0] == 0 || !is_in(t->unflushed[i], folder) || t->violation[0] != 0) continue;
    (void)snprintf(t->violation, sizeof t->violation, "%s of %s while %s is not flushed", call->name, call->path, t->unflushed[i]);
  }
}

static void forget(trace *t, const char *folder) {
  for (int i = 0; i < TRACED; i++)
    if (is_in(t->unflushed[i], folder)) t->unflushed[i][0] = 0;
}

static void follow(void *user, const fault_call *call) {
  trace *const t = user;
  const char *const name = call->to != NULL ? strrchr(call->to, '/') + 1 : strrchr(call->path, '/') + 1;
  if (strstr(call->path, "/.lock") != NULL) return; /* holds nothing */
  switch (call->group) {
    case FAULT_ON_CREATE:
      mark(t, call->path, true);
      mark_parent(t, call->path);
      break;
    case FAULT_ON_FOLDER: mark_parent(t, call->path); break;
    case FAULT_ON_WRITE:
    case FAULT_ON_CUT: mark(t, call->path, true); break;
    case FAULT_ON_FLUSH: mark(t, call->path, false); break;
    case FAULT_ON_RENAME:
      t->renames++;
      demand(t, call, call->path);
      if (strcmp(name, "last") == 0 || strcmp(name, "best") == 0) {
        demand(t, call, in_work("checkpoints"));
        demand(t, call, in_work("metrics.jsonl"));
      }
      if (strncmp(name, "step-", 5) == 0) demand(t, call, in_work("metrics.jsonl"));
      if (strcmp(name, ".replaced") == 0) demand(t, call, place.work); /* a checkpoint that is removed */
      forget(t, call->path);
      mark_parent(t, call->path);
      mark_parent(t, call->to);
      break;
    case FAULT_ON_REMOVE:
      if (strstr(call->path, "/checkpoints/step-") != NULL)
        (void)snprintf(t->violation, sizeof t->violation, "%s of %s under its own name", call->name, call->path);
      if (strstr(call->path, "/checkpoints/.replaced") != NULL) {
        t->removals++;
        demand(t, call, place.work);
      }
      forget(t, call->path);
      break;
    default: break;
  }
}

static void flushes_come_before_names_and_deletions(void **state) {
  (void)state;
  static trace t;
  fault_plan plan = {.watch = follow, .user = &t, .unflushed = true, .groups = FAULT_ON_CHANGE};
  child_begin_work(&place, NULL);
  memcpy(plan.root, place.folder, sizeof plan.root);
  fault_set(&plan);
  const hark_status status = small_run_train(context, &place.small, place.work, NULL, NULL);
  plan.watch = NULL;
  plan.groups = 0;
  fault_set(&plan);
  assert_fine(context, status);
  if (t.violation[0] != 0) fail_msg("%s", t.violation);
  assert_true(t.renames > 4 * 6); /* six files and a folder a save */
  assert_true(t.removals >= 2 * 4);
  for (int i = 0; i < TRACED; i++)
    if (t.unflushed[i][0] != 0 && strstr(t.unflushed[i], "metrics.jsonl") == NULL) fail_msg("%s is not flushed at the end", t.unflushed[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_second_process_touches_nothing),
      cmocka_unit_test(a_killed_process_holds_no_lock),
      cmocka_unit_test(no_child_inherits_the_lock),
      cmocka_unit_test(a_run_that_came_in_between_is_seen),
      cmocka_unit_test(signals_before_the_first_step),
      cmocka_unit_test(signals_once),
      cmocka_unit_test(signals_twice),
      cmocka_unit_test(a_checkpoint_is_written_when_asked_for),
      cmocka_unit_test(ignored_signals_stay_ignored),
      cmocka_unit_test(a_closed_pipe_does_not_end_training),
      cmocka_unit_test(a_damaged_checkpoint_is_passed_over),
      cmocka_unit_test(what_is_damaged_is_said),
      cmocka_unit_test(torn_pointers),
      cmocka_unit_test(nothing_whole_is_an_error),
      cmocka_unit_test(an_explicit_path_does_not_fall_back),
      cmocka_unit_test(metrics_are_cut_back),
      cmocka_unit_test(leftovers_go_and_are_never_taken),
      cmocka_unit_test(flushes_come_before_names_and_deletions),
  };
  return cmocka_run_group_tests(tests, begin, end);
}
