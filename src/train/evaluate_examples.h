/* evaluate_examples.h - loss, accuracy and confusions over a split of labelled examples. */
#ifndef HARK_TRAIN_EVALUATE_EXAMPLES_H
#define HARK_TRAIN_EVALUATE_EXAMPLES_H

#include "data/examples/example_batches.h"
#include "train/evaluate.h"

/* Host memory of a batch of examples: a hark_example_batch with room for a given number of examples. */
typedef struct hark_example_room {
  hark_example_batch batch;
  void *memory;
  size_t bytes;
} hark_example_room;
/* Maximum sizes of a batch. */
typedef struct hark_example_extents {
  int64_t rows, parts, longest; /* examples; sequences per example; tokens per sequence, including the class token */
  int64_t features, responses;  /* of formats vectors and tables; else 0 */
  bool tables;                  /* every row has responses */
} hark_example_extents;
/* Bytes of the memory of such a batch. */
size_t hark_example_room_bytes(const hark_example_extents *extents);
/* Makes a batch of these sizes. */
HARK_MUST_CHECK hark_status hark_example_room_make(hark_context *context, const hark_example_extents *extents, hark_example_room *out);
HARK_MUST_CHECK hark_status hark_example_room_open(hark_context *context, const hark_example_batches *batches, int64_t rows,
                                                   hark_example_room *out);
void hark_example_room_close(hark_context *context, hark_example_room *room);

/* Settings of a split's samples from the run's configuration; an evaluation uses sequential order. */
hark_example_batches_settings hark_example_settings(const hark_config *config, hark_split split, bool evaluation);

/* Predictors of tables, and their means per target. The baselines: table_baselines.h. */
enum { HARK_TABLE_MODEL, HARK_TABLE_LINEAR, HARK_TABLE_MEAN, HARK_TABLE_PREDICTORS };
typedef struct hark_table_result {
  double loss, mean_square; /* nats; mean squared error, of classes the mean Brier score */
  double coverage;          /* fraction of targets within the interval of 90 %, of classes the accuracy */
} hark_table_result;

typedef struct hark_examples_result {
  double loss; /* nats per target; of vectors the squared error per example; NaN where there are no targets */
  int64_t examples, tokens, targets, correct;
  bool complete;
  hark_table_result tables[HARK_TABLE_PREDICTORS]; /* of tables, else zeros */
} hark_examples_result;

/* Evaluates every example of the batches' split once, in batches of train.batch. `confusion` (may be NULL) is the confusion matrix
 * [classes, classes], zeros before the call: rows are classes, columns are predicted classes. Errors: those of data and engine. */
HARK_MUST_CHECK hark_status hark_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batches *batches,
                                                   hark_example_room *room, int64_t *confusion, hark_evaluation_progress *progress,
                                                   void *user, hark_examples_result *out);

#endif
