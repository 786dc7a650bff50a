/* cases.h - suites whose cases are strings "operator:sample[:backend:instruction_set]" that can be given to the program again. */
#ifndef HARK_TESTS_SUPPORT_CASES_H
#define HARK_TESTS_SUPPORT_CASES_H

#include <hark/operator.h>

#include "support/setups.h"

#define TEST_CASE_BYTES 160

typedef struct test_case {
  const hark_operator *op;
  const hark_sample *sample;
  test_setup setup;
  char name[TEST_CASE_BYTES];
  char rerun[2 * TEST_CASE_BYTES]; /* the command that runs this case alone */
} test_case;

typedef void test_case_body(const test_case *c);

/* Runs body, as a cmocka test named after the case, for every sample of every record in the table on every setup (of the reference setup
 * alone with reference_only) that the command line chooses: all, or those that begin with a given case's words ("linear", "linear:row",
 * "linear:row:cpu"). Returns the program's exit status: 1 when a case failed, a record has no samples, or no case ran. */
int test_cases_main(int argument_count, char **arguments, bool reference_only, test_case_body *body);

#endif
