/* eval_examples.h - hark eval for runs that were trained on labelled examples. */
#ifndef HARK_CLI_EVAL_EVAL_EXAMPLES_H
#define HARK_CLI_EVAL_EVAL_EXAMPLES_H

#include "cli/model.h"

/* Measures a split of the run's examples, or of those that --data names, and prints loss, accuracy and, where there are classes, how many
 * of each class the model takes for which. `exchanged`: what of the attention was (JSON members, may be empty). Of a folder that --data
 * names the split is measured, or refused where it has none; of files all examples. `decisions`: how many examples of an ahca model are
 * told one by one. */
HARK_MUST_CHECK hark_status hark_eval_examples(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                               hark_split split, bool other_data, const char *exchanged, int64_t decisions);

#endif
