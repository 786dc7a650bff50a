/* material.h - the training data of a run: windows of a text, or labelled examples. The trainer uses data only through this interface. */
#ifndef HARK_TRAIN_MATERIAL_H
#define HARK_TRAIN_MATERIAL_H

#include "train/evaluate_examples.h"
#include "train/evaluate_sentences.h"
#include "train/run.h"

typedef struct hark_material {
  const hark_config *config; /* borrowed */
  hark_learning_task task;
  int64_t samples_per_epoch;
  uint64_t checksum;
  bool has_validation;
  bool packed; /* numbers of tokens differ between steps: examples and sentences */
  /* of a text */
  hark_tokenizer *tokenizer;
  hark_corpus *corpus;
  hark_batches batches;
  int32_t *inputs, *targets; /* one micro-batch on the host */
  size_t host_bytes;
  hark_sentences sentences, validation_sentences; /* closed where the text is not read as sentences */
  /* of examples; NULL where it is a text */
  hark_examples *examples;
  hark_example_batches training, validation;
  hark_example_room room;
  bool opened_room;
} hark_material;

/* Opens the data of a run and sets the learning task that they define. A new run gets its vocabulary.json; a resumed run is compared with
 * it. The caller closes *out, after a failure too.
 * Errors: those of text and examples; HARK_BAD_FILE where the run was trained on another vocabulary. */
HARK_MUST_CHECK hark_status hark_material_open(hark_context *context, const hark_config *config, const hark_run *run, bool resume,
                                               hark_material *out);
void hark_material_close(hark_context *context, hark_material *material);

/* What data are opened for. */
typedef enum hark_data_use {
  HARK_DATA_FOR_NEW_RUN, /* training of a new run: data unsuitable for training or validation are refused */
  HARK_DATA_OF_RUN,      /* training of a run that already used these data */
  HARK_DATA_MEASURED,    /* evaluation on the run's data */
  HARK_DATA_GIVEN,       /* evaluation on other data */
  HARK_DATA_PREDICTED,   /* predictions for other data */
  HARK_DATA_UNLABELLED   /* the same, without labels */
} hark_data_use;
/* Opens the examples that the configuration names, for this use. The caller closes them. */
HARK_MUST_CHECK hark_status hark_material_examples(hark_context *context, const hark_config *config, hark_data_use use,
                                                   hark_examples **out);
/* The learning task of examples. Errors: those of hark_delimiters_find. */
HARK_MUST_CHECK hark_status hark_material_task_of(hark_context *context, const hark_config *config, const hark_examples *examples,
                                                  hark_learning_task *out);
/* That of tables with so many inputs and targets in a row. */
hark_learning_task hark_material_task_of_tables(const hark_config *config, int64_t inputs, int64_t targets);
/* The learning task of a text with this vocabulary. Errors: those of hark_delimiters_find. */
HARK_MUST_CHECK hark_status hark_material_task_of_text(hark_context *context, const hark_config *config, const hark_tokenizer *tokenizer,
                                                       hark_learning_task *out);
/* The same where only the number of tokens is known: token 0 takes the place of delimiters that are texts. */
hark_learning_task hark_material_task_of_size(const hark_config *config, int32_t vocabulary);
/* HARK_OK when the examples agree with the run's vocabulary.json. Errors: HARK_BAD_FILE with the difference, those of files. */
HARK_MUST_CHECK hark_status hark_material_check_vocabulary(hark_context *context, const hark_examples *examples, const hark_run *run);

/* Allocates memory for batches; called after the run's memory was estimated. */
HARK_MUST_CHECK hark_status hark_material_prepare(hark_context *context, hark_material *material);
/* Bytes that hark_material_prepare() will allocate. */
size_t hark_material_room_bytes(const hark_config *config, const hark_learning_task *task);

/* Number of samples (windows of sentences, rarely full) that contain `tokens` tokens. With random order and more than 2^24 samples, an
 * estimate from the mean. */
int64_t hark_material_samples(const hark_material *material, int64_t tokens);

/* Number of targets of a step's samples; the step's loss is divided by it. For a model that predicts masked tokens: the number that would
 * be masked if no token were reserved. */
HARK_MUST_CHECK hark_status hark_material_targets(hark_context *context, hark_material *material, int64_t first_sample, int64_t *targets);

/* Loss and gradients of one micro-batch. */
typedef struct hark_material_pass {
  double loss;                      /* of the targets alone, as in an evaluation */
  hark_loss_parts parts;            /* the terms added to it */
  int64_t tokens, targets, correct; /* the last two for examples only, 0 for vectors */
  int64_t real;                     /* number of targets of any kind */
} hark_material_pass;
HARK_MUST_CHECK hark_status hark_material_train(hark_context *context, hark_material *material, hark_engine *engine, int64_t first_sample,
                                                uint32_t micro_step, double weight, hark_material_pass *pass);

#endif
