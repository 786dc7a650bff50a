/* samples.h - texts that a decoder generates while it is trained, one with every checkpoint (run.sample_tokens): samples.jsonl. They are
 * made from the checkpoint's file, with the seed of the run, and change nothing in training. */
#ifndef HARK_TRAIN_SAMPLES_H
#define HARK_TRAIN_SAMPLES_H

#include "tokenizers/tokenizer.h"
#include "train/run.h"

#define HARK_SAMPLES_FILE "samples.jsonl"
#define HARK_SAMPLES_TEMPERATURE 0.8

/* Before training: the vocabulary has all characters of the prompt, or maps them, and the context has room for more. Does nothing without
 * run.sample_tokens. Errors: HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_samples_check(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer);

/* Adds the text of the checkpoint of `step`, which exists: {"step", "prompt", "text"}. A step that a resumed run repeats has a second line.
 * Where the model's logits are not finite there is none. Does nothing without run.sample_tokens. Errors: those of files and of loading. */
HARK_MUST_CHECK hark_status hark_samples_add(hark_context *context, const hark_config *config, const hark_run *run, int64_t step);

#endif
