/* options_place.h - what the tests of options share: a folder, a context, a set of options of one table, and what is read into it. */
#pragma once

#include "config/options.h"
#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/text_files.h"

extern hark_context *context;
extern hark_options *options;
extern char folder[TEST_PATH_BYTES];

/* The options of `table` for the subcommand train; their values are at `values`. */
void options_place_open(const hark_option_table *table, void *values);
/* Another set of options in place of the present one. */
void options_place_again(const hark_option_table *table, void *values);
void options_place_close(void);

/* A command line, split at blanks; a file c.yaml. */
void arguments(const char *line);
void yaml(const char *text);

/* Exactly `count` problems, each of one line, which contain these texts in this order. */
void expect_problems(const char *const *parts, int count);
void expect_problem(const char *part);
