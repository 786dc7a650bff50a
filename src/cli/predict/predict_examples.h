/* predict_examples.h - hark predict for runs that were trained on labelled examples. */
#ifndef HARK_CLI_PREDICT_PREDICT_EXAMPLES_H
#define HARK_CLI_PREDICT_PREDICT_EXAMPLES_H

#include "cli/model.h"
#include "data/corpora/corpus.h"

typedef struct hark_predict_settings {
  const char *output;
  hark_split part;
  bool unlabelled; /* the texts of --data have no labels */
  bool all_tokens; /* of labelled tokens: a row for each token, not only for those with a target */
  int64_t limit;   /* examples; 0: all */
} hark_predict_settings;

/* Why the configuration's model predicts nothing that could be printed, as the end of a message with what to use instead; NULL: it does. */
const char *hark_predict_examples_refusal(const hark_config *config);

/* Writes the predictions for a part of the run's examples, or for those of --data. Errors: those of data and engine; HARK_NOT_FINITE. */
HARK_MUST_CHECK hark_status hark_predict_examples(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                                  const hark_predict_settings *settings);

#endif
