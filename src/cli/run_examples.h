/* run_examples.h - the data that hark eval and hark predict read: those of the run, or those that --data, --validation and --test name. */
#ifndef HARK_CLI_RUN_EXAMPLES_H
#define HARK_CLI_RUN_EXAMPLES_H

#include "cli/model.h"
#include "train/material.h"

/* Whether an option is on the command line. */
bool hark_command_is_on_line(const hark_invocation *call, const char *name);

/* For check: complains about files that are given and not read; `split` is that of --part. */
HARK_MUST_CHECK hark_status hark_run_data_check_given(hark_invocation *call, const hark_config *config, hark_split split);
/* For check: finds the paths of the run's own data, unless --data names others. */
HARK_MUST_CHECK hark_status hark_run_data_find(hark_invocation *call, const hark_config *config);
/* For check: examples that --data names replace all files of the run. */
void hark_run_examples_replace(const hark_invocation *call, hark_config *config);

/* Zero it before it is opened; it is closed after a failure too. */
typedef struct hark_run_examples {
  hark_examples *examples;
  hark_example_batches batches;
  hark_example_room room;
  hark_split split;
  bool whole; /* all examples of files, which have no splits */
} hark_run_examples;

/* Opens a split of the run's examples, or those that --data names: of files all examples, of a folder the split. The run's own must be
 * those of its training. `given`: how data of the command line are read: HARK_DATA_GIVEN, .._PREDICTED or .._UNLABELLED.
 * Errors: those of hark_material_examples() and hark_example_batches_create(); HARK_BAD_FILE (another vocabulary, changed data);
 * HARK_BAD_CONFIGURATION (a folder without the split). */
HARK_MUST_CHECK hark_status hark_run_examples_open(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                                   hark_split split, hark_data_use given, hark_run_examples *out);
void hark_run_examples_close(hark_context *context, hark_run_examples *own);

/* "training", "validation" or "test"; "data" for all examples of files. */
const char *hark_run_examples_part(const hark_run_examples *own);

#endif
