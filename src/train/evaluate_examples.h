/* evaluate_examples.h - loss, accuracy and confusions over a split of labelled examples. */
#ifndef HARK_TRAIN_EVALUATE_EXAMPLES_H
#define HARK_TRAIN_EVALUATE_EXAMPLES_H

#include "data/examples/example_batches.h"
#include "train/evaluate.h"

/* Host memory of a batch of examples: hark_example_batch with room for so many of them. */
typedef struct hark_example_room {
  hark_example_batch batch;
  void *memory;
  size_t bytes;
} hark_example_room;
/* Most that a batch holds. */
typedef struct hark_example_extents {
  int64_t rows, parts, longest; /* examples; sequences of one; tokens of one of those, what is put in front included */
  int64_t features, responses;  /* of vectors; 0: there are none */
} hark_example_extents;
/* Bytes that it takes. */
size_t hark_example_room_bytes(const hark_example_extents *extents);
/* Room for as many. */
HARK_MUST_CHECK hark_status hark_example_room_make(hark_context *context, const hark_example_extents *extents, hark_example_room *out);
HARK_MUST_CHECK hark_status hark_example_room_open(hark_context *context, const hark_example_batches *batches, int64_t rows,
                                                   hark_example_room *out);
void hark_example_room_close(hark_context *context, hark_example_room *room);

/* How the run's configuration wants the samples of a split: evaluation takes them from front to back. */
hark_example_batches_settings hark_example_settings(const hark_config *config, hark_split split, bool evaluation);

typedef struct hark_examples_result {
  double loss; /* nats a target, NaN where there are none; of vectors the squared error of an example */
  int64_t examples, tokens, targets, right;
  bool complete;
} hark_examples_result;

/* Every example of the batches' split once, in batches of train.batch. `confusion` (NULL: not wanted) [classes, classes], zeros before,
 * counts examples by class and, in a row, by the class that the model tells. Errors: those of data and engine. */
HARK_MUST_CHECK hark_status hark_evaluate_examples(hark_context *context, hark_engine *engine, const hark_example_batches *batches,
                                                   hark_example_room *room, int64_t *confusion, hark_evaluation_progress *progress,
                                                   void *user, hark_examples_result *out);

#endif
