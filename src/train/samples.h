/* samples.h - texts that a decoder generates while it is trained, one with every checkpoint (run.sample_tokens): samples.jsonl. They are
 * made from the checkpoint's file, with the seed of the run, and change nothing in training. */
#ifndef HARK_TRAIN_SAMPLES_H
#define HARK_TRAIN_SAMPLES_H

#include "tokenizers/tokenizer.h"
#include "train/run.h"

#define HARK_SAMPLES_FILE "samples.jsonl"
#define HARK_SAMPLES_TEMPERATURE 0.8

/* Whether the run is to stop, which is asked before every layer of every token. */
typedef struct hark_samples_stop {
  hark_cancel *asked;
  void *user;
} hark_samples_stop;

/* Before training: the vocabulary has all characters of the prompt, or maps them, and the context has room for more; samples.jsonl,
 * if it is there, can be written. Does nothing without run.sample_tokens. Errors: HARK_BAD_CONFIGURATION, those of files. */
HARK_MUST_CHECK hark_status hark_samples_check(hark_context *context, const hark_config *config, const hark_run *run,
                                               const hark_tokenizer *tokenizer);

/* Memory that the making of a text takes, about: the weights once more, and the keys and values of the context. */
size_t hark_samples_bytes(const hark_config *config, int64_t parameters);

/* Adds the text of the checkpoint of `step`, which exists: {"step", "prompt", "text"}. A step that a resumed run repeats has a second line.
 * Where the model's logits are not finite, or the run is to stop, there is none. Does nothing without run.sample_tokens. Errors: those of
 * files and of loading. */
HARK_MUST_CHECK hark_status hark_samples_add(hark_context *context, const hark_config *config, const hark_run *run, int64_t step,
                                             const hark_samples_stop *stop);

#endif
