/* laboratory.h - quick runs of experiments, for tests. */
#ifndef HARK_TESTS_LAB_LABORATORY_H
#define HARK_TESTS_LAB_LABORATORY_H

#include "lab/lab.h"

/* A quick run, with the experiment's own options at their defaults. */
typedef struct laboratory {
  hark_lab *lab;
  hark_options *options;
  void *values;
} laboratory;

laboratory test_laboratory_run(hark_context *context, int experiment, uint64_t seed);
void test_laboratory_stop(hark_context *context, laboratory *l);

/* The experiment passes its criteria with seed 1, has no empty table or panel, and for every criterion there is a number in a table that
 * fails it when it is another one, larger or smaller. */
void test_laboratory_holds(hark_context *context, int experiment);

/* No table is empty, and for every criterion there is a number in a table that fails it when it is another one, larger or smaller. All is
 * judged again at the end with the numbers as they were. */
void test_laboratory_can_fail(hark_context *context, hark_lab *lab, int experiment);

/* Whether an experiment trains networks and takes seconds: those have a test program of their own. */
bool test_laboratory_trains(const char *name);

#endif
