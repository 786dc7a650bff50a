/* evaluate_sentences.h - the mean loss over the sentences of a split, none of which sees another. */
#ifndef HARK_TRAIN_EVALUATE_SENTENCES_H
#define HARK_TRAIN_EVALUATE_SENTENCES_H

#include "data/corpora/sentences.h"
#include "train/evaluate_examples.h"

/* Settings of a split's sentences from the run's configuration; an evaluation uses sequential order. */
hark_sentences_settings hark_sentences_settings_of(const hark_config *config, hark_split split, bool evaluation);

/* Evaluates every target once, in batches of train.batch windows; losses by position are not reported. Errors: those of data and engine. */
HARK_MUST_CHECK hark_status hark_evaluate_sentences(hark_context *context, hark_engine *engine, const hark_sentences *sentences,
                                                    hark_example_room *room, hark_evaluation_progress *progress, void *user,
                                                    hark_evaluation_result *out);

#endif
