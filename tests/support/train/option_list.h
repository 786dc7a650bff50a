/* option_list.h - the options of a subcommand, read from its tables by the tests themselves. */
#ifndef HARK_TESTS_SUPPORT_TRAIN_OPTION_LIST_H
#define HARK_TESTS_SUPPORT_TRAIN_OPTION_LIST_H

#include "cli/common.h"

#define TEST_OPTIONS_LIMIT 256 /* of one subcommand */

typedef struct test_option_list {
  const hark_option *items[TEST_OPTIONS_LIMIT];
  bool key[TEST_OPTIONS_LIMIT]; /* of a configuration */
  int count;
} test_option_list;

test_option_list test_options_of(const hark_command *command);

/* The flag of an option that the tests use: the first one with two dashes; and --flag for --no-flag: what takes a value. */
void test_long_flag(const hark_option *option, char flag[HARK_OPTION_WORD_BYTES]);
void test_positive_flag(const hark_option *option, char flag[HARK_OPTION_WORD_BYTES]);

#endif
