/* small_run.h - a run so small that tests can make hundreds: a text, a configuration, training in a folder, and comparing what came of it.
 *
 * One layer of width 16 with dropout and accumulated batches, a checkpoint and a line of metrics every step, an evaluation every other
 * step.
 */
#ifndef HARK_TESTS_SUPPORT_TRAIN_SMALL_RUN_H
#define HARK_TESTS_SUPPORT_TRAIN_SMALL_RUN_H

#include "support/text_files.h"
#include "train/trainer.h"

typedef struct small_run {
  hark_context *plain; /* holds the options; not the context that trains */
  hark_options *options;
  hark_config config; /* may be changed, also between parts of a run */
  const char *paths[1];
  char text[TEST_PATH_BYTES];
} small_run;

/* The flags of hark train that make the configuration. */
extern const char *const small_run_words[];
extern const int small_run_word_count;

/* Writes FOLDER/text.txt and fills the configuration. */
void small_run_open(small_run *small, const char *folder);
/* The same over labelled examples: FOLDER/examples.tsv, texts of seven classes, and an encoder with hierarchical attention. */
void small_run_open_examples(small_run *small, const char *folder);
/* One of both, with more flags, which win over the common ones. */
void small_run_open_with(small_run *small, const char *folder, bool examples, int count, const char *const *words);
void small_run_close(small_run *small);

/* A context as training wants it: the generic kernels of the cpu backend, deterministic. */
hark_context *small_run_context(int threads);

/* Trains in `path` as a user does: a folder with config.yaml is resumed, another begun. `hooks` may be NULL; its ready is replaced by one
 * that writes config.yaml. */
hark_status small_run_train(hark_context *context, const small_run *small, const char *path, const hark_train_hooks *hooks,
                            hark_train_result *result);

/* Fails the test unless both runs have the same weights, moments and state at their last step, and metrics.jsonl with the same lines, all
 * to the bit; times and speeds are left out. */
void small_run_assert_same(const char *a, const char *b, int64_t step);

/* Fails the test unless the numbers of this name (with quotes, colon and space) in both metrics.jsonl are equal up to the relative bound,
 * and are at least `least`. */
void small_run_compare(const char *alone, const char *spread, const char *name, int least, double bound);
/* The last of them in a run; NaN: none. */
double small_run_last_number(const char *path, const char *name);

/* The step of a checkpoint's name. */
int64_t small_run_step(const char *name);

/* Copies a folder of files and folders. */
void small_run_copy(const char *from, const char *to);

#endif
