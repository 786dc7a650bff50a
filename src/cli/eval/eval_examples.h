/* eval_examples.h - hark eval for runs that were trained on labelled examples. */
#ifndef HARK_CLI_EVAL_EVAL_EXAMPLES_H
#define HARK_CLI_EVAL_EVAL_EXAMPLES_H

#include "cli/model.h"

/* Measures a split of the run's examples, or of those that --data names, and prints loss, accuracy and, where there are classes, the
 * confusion matrix. `exchanged`: the replaced parts of the attention (JSON members, may be empty). In a folder that --data names the split
 * is measured, and a folder without it is refused; of files all examples are measured. `decisions`: the number of examples of an ahca model
 * that are reported one by one. */
HARK_MUST_CHECK hark_status hark_eval_examples(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                               hark_split split, const char *exchanged, int64_t decisions);

#endif
