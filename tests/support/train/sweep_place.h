/* sweep_place.h - what tests of hark sweep share: a sweep as a process that is at work, and what its runs have left. */
#ifndef HARK_TESTS_SUPPORT_TRAIN_SWEEP_PLACE_H
#define HARK_TESTS_SUPPORT_TRAIN_SWEEP_PLACE_H

#include <stdbool.h>
#include <sys/types.h>

#define SWEEP_LONG_STEPS 60000

/* base.yaml of a run of this many steps, on one thread, evaluated after every 20,000. */
void sweep_place_base(const char *folder, int steps);

/* Begins "hark sweep WORDS" in the folder; what it writes is in out.txt and err.txt there. */
pid_t sweep_place_begin(const char *folder, const char *words);
/* It must end with this exit code. */
void sweep_place_expect_end(pid_t process, int code);

void sweep_place_pause(void); /* 10 ms */
/* Waits until a file exists; until err.txt has a part; until no process trains a run. The test fails after a minute. */
void sweep_place_wait_for(const char *folder, const char *path);
void sweep_place_wait_for_words(const char *folder, const char *part);
void sweep_place_wait_for_lock(const char *folder, const char *run);

/* The process that trains a run; the step of its last checkpoint. */
pid_t sweep_place_holder(const char *folder, const char *run);
int sweep_place_last_step(const char *folder, const char *run);

#endif
