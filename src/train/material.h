/* material.h - what a run learns from: windows of a text, or labelled examples. The trainer knows no more of data than this. */
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
  bool packed; /* steps differ in their tokens: examples, and sentences */
  /* of a text */
  hark_tokenizer *tokenizer;
  hark_corpus *corpus;
  hark_batches batches;
  int32_t *inputs, *targets; /* one micro-batch on the host */
  size_t host_bytes;
  hark_sentences sentences, validation_sentences; /* closed where the text is none of sentences */
  /* of examples; NULL where it is a text */
  hark_examples *examples;
  hark_example_batches training, validation;
  hark_example_room room;
  bool opened_room;
} hark_material;

/* Opens the data of a run and says what they ask of the model. A fresh run gets its vocabulary.json, a resumed one is compared with it.
 * *out is to be closed whatever happens.
 * Errors: those of text and examples; HARK_BAD_FILE where a run was trained on another vocabulary. */
HARK_MUST_CHECK hark_status hark_material_open(hark_context *context, const hark_config *config, const hark_run *run, bool resume,
                                               hark_material *out);
void hark_material_close(hark_context *context, hark_material *material);

/* Examples that the configuration names, as training, eval and estimates open them. The caller closes. */
typedef enum hark_data_use {
  HARK_DATA_FOR_NEW_RUN, /* to learn from: what a run cannot learn from, or measure itself with, is refused */
  HARK_DATA_OF_RUN,      /* to learn from, as the run has so far */
  HARK_DATA_MEASURED,    /* the run's */
  HARK_DATA_GIVEN        /* others that are measured */
} hark_data_use;
HARK_MUST_CHECK hark_status hark_material_examples(hark_context *context, const hark_config *config, hark_data_use use,
                                                   hark_examples **out);
/* What examples ask of a model. */
hark_learning_task hark_material_task_of(const hark_config *config, const hark_examples *examples);
/* What a text with a vocabulary of so many tokens does. */
hark_learning_task hark_material_task_of_text(const hark_config *config, int32_t vocabulary);
/* HARK_OK when the examples are those of the run's vocabulary.json. Errors: HARK_BAD_FILE with the difference, those of files. */
HARK_MUST_CHECK hark_status hark_material_check_vocabulary(hark_context *context, const hark_examples *examples, const hark_run *run);

/* Room for batches: after the memory of the run was estimated. */
HARK_MUST_CHECK hark_status hark_material_prepare(hark_context *context, hark_material *material);
/* What it will take. */
size_t hark_material_room_bytes(const hark_config *config, const hark_learning_task *task);

/* Samples until so many tokens of sentences have been used, whose windows are rarely full. Of random order a guess from the mean where they
 * are more than 2^24. */
int64_t hark_material_samples(const hark_material *material, int64_t tokens);

/* Targets of a step's samples, by which its loss is divided; of a model that predicts hidden tokens those that would be hidden if none were
 * reserved. */
HARK_MUST_CHECK hark_status hark_material_targets(hark_context *context, hark_material *material, int64_t first_sample, int64_t *targets);

/* Loss and gradients of one micro-batch. */
typedef struct hark_material_pass {
  double loss;                    /* of the targets alone, as an evaluation counts it */
  hark_loss_parts parts;          /* what is added to it */
  int64_t tokens, targets, right; /* the last two of examples only; of vectors 0 */
  int64_t real;                   /* targets, whatever they are */
} hark_material_pass;
HARK_MUST_CHECK hark_status hark_material_train(hark_context *context, hark_material *material, hark_engine *engine, int64_t first_sample,
                                                uint32_t micro_step, double weight, hark_material_pass *pass);

#endif
