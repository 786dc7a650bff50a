/* group_threads.h - a group whose processes are threads of the test, each with its own context. Messages are copied. */
#ifndef HARK_TESTS_GROUP_THREADS_H
#define HARK_TESTS_GROUP_THREADS_H

#include "group/group.h"

#define TEST_MOST_RANKS 8

/* What a rank does; returns its status. */
typedef hark_status test_rank(hark_context *context, hark_group *group, void *user);

/* Runs `rank` in `size` threads with `limit` seconds of patience, and waits for all. statuses [size] and messages [size] may be NULL. */
void test_group_run(int size, double limit, test_rank *rank, void *user, hark_status *statuses, char (*messages)[512]);

/* While it is not zero, messages are late and out of step: each of them, to and from, ends after a number of tests of its own, up to this
 * one, and what is sent is read then. Set between runs. */
extern int test_group_lateness;

/* Messages of the last run that were begun and have not ended at their receiver or sender. */
extern long test_group_lost;

#endif
