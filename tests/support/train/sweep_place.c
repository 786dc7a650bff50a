/* sweep_place.c - see sweep_place.h. */
#include "support/train/sweep_place.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/cmocka_all.h"
#include "support/text_files.h"

#define TRIES 6000 /* of 10 ms */

void sweep_place_base(const char *folder, int steps) {
  char base[512];
  (void)snprintf(base, sizeof base,
                 "model: {layers: 1, heads: 1, width: 8, context: 8}\n"
                 "train: {steps: %d, batch: 2, evaluate_every: 20000, log_every: 20000}\n"
                 "data: {paths: [text.txt], validation_fraction: 0.2}\nrun: {threads: 1}\n",
                 steps);
  test_file_write_text(folder, "base.yaml", base);
}

pid_t sweep_place_begin(const char *folder, const char *words) {
  char command[512];
  (void)snprintf(command, sizeof command, "exec '%s' sweep %s", HARK_COMMAND, words);
  test_file_write_text(folder, "err.txt", "");
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    if (chdir(folder) != 0 || freopen("out.txt", "w", stdout) == NULL || freopen("err.txt", "w", stderr) == NULL) _exit(1);
    (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(1);
  }
  return process;
}

void sweep_place_expect_end(pid_t process, int code) {
  int status;
  assert_int_equal(waitpid(process, &status, 0), process);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), code);
}

void sweep_place_pause(void) { (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); }

void sweep_place_wait_for(const char *folder, const char *path) {
  int tries = 0;
  while (access(test_path(folder, path), R_OK) != 0 && tries++ < TRIES) sweep_place_pause();
  if (tries >= TRIES) fail_msg("%s has not appeared", path);
}

void sweep_place_wait_for_words(const char *folder, const char *part) {
  bool found = false;
  for (int tries = 0; tries < TRIES && !found; tries++) {
    char *const words = test_file_text(folder, "err.txt");
    found = strstr(words, part) != NULL;
    free(words);
    if (!found) sweep_place_pause();
  }
  if (!found) fail_msg("\"%s\" was not printed", part);
}

static const char *lock_of(const char *folder, const char *run) {
  char name[512];
  (void)snprintf(name, sizeof name, "%s/.lock", run);
  return test_path(folder, name);
}

void sweep_place_wait_for_lock(const char *folder, const char *run) {
  const int lock = open(lock_of(folder, run), O_RDWR);
  assert_true(lock >= 0);
  int tries = 0;
  while (flock(lock, LOCK_EX | LOCK_NB) != 0 && tries++ < TRIES) sweep_place_pause();
  assert_true(tries < TRIES);
  assert_int_equal(close(lock), 0);
}

/* The number in a small file of a run, after these characters. */
static int number_in(const char *folder, const char *run, const char *file, const char *before) {
  char name[512];
  (void)snprintf(name, sizeof name, "%s/%s", run, file);
  char *const text = test_file_text(folder, name);
  const char *const digits = strpbrk(text, "0123456789");
  assert_true(strncmp(text, before, strlen(before)) == 0 && digits == text + strlen(before));
  const int number = (int)strtol(digits, NULL, 10);
  free(text);
  return number;
}

pid_t sweep_place_holder(const char *folder, const char *run) { return number_in(folder, run, ".lock", ""); }

int sweep_place_last_step(const char *folder, const char *run) { return number_in(folder, run, "last", "step-"); }
