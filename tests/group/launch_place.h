/* launch_place.h - what tests that start real processes share: a folder with a text, and commands that are run there. */
#ifndef HARK_TESTS_GROUP_LAUNCH_PLACE_H
#define HARK_TESTS_GROUP_LAUNCH_PLACE_H

#include "group/mpirun.h"
#include "support/command.h"
#include "support/text_files.h"

/* In a script of the shell: the rank of a process. */
#define LAUNCH_RANK "$OMPI_COMM_WORLD_RANK$PMI_RANK"

extern char launch_folder[TEST_PATH_BYTES];

/* Setup and teardown of a test. The text is text.txt. */
int launch_place_open(void **state);
int launch_place_close(void **state);

/* Runs "BEFORE hark WORDS" in the folder and fails the test if its exit code is another one. */
void launch_run(const char *before, const char *words, int code);

/* Fails the test unless two runs of the folder are the same at a step. */
void launch_assert_same(const char *a, const char *b, int64_t step);

/* small_run_compare() of two runs of the folder. */
void launch_assert_close(const char *a, const char *b, const char *number, int least, double bound);

#endif
