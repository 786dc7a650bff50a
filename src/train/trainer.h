/* trainer.h - the training loop: from a configuration to a run folder. */
#ifndef HARK_TRAIN_TRAINER_H
#define HARK_TRAIN_TRAINER_H

#include "train/evaluate.h"
#include "train/run.h"

/* What is going on, for whoever shows it. */
typedef struct hark_train_progress {
  int64_t step, steps;          /* done, in all */
  int64_t tokens;               /* trained on */
  double loss;                  /* of the last step that had targets; NaN before the first */
  double validation_loss;       /* of the last evaluation; NaN before the first */
  double rate;                  /* of the last step */
  double gradient_norm;         /* of the last step that was not skipped; NaN before the first */
  double tokens_per_second;     /* since the last line of metrics */
  double peak_fraction;         /* useful operations over the machine's peak; 0: peak unknown */
  double seconds, seconds_left; /* the latter with the evaluations to come; NaN: not known yet */
  double evaluating;            /* part of an evaluation that is done, or below 0 outside of one */
} hark_train_progress;

typedef enum hark_request { HARK_REQUEST_NONE, HARK_REQUEST_CHECKPOINT, HARK_REQUEST_STOP } hark_request;

/* How a program takes part in a run. Every member may be zero. */
typedef struct hark_train_hooks {
  void *user;
  void (*show)(void *user, const hark_train_progress *progress); /* after every step and during evaluations */
  void (*say)(void *user, const char *line);                     /* what is worth a line: evaluations, checkpoints, skipped steps */
  hark_request (*request)(void *user);                           /* asked after every step */
  /* Text, model and memory are there, the first step comes next; may refuse. `timed`: the length follows from train.max_time, and what else
   * the configuration says of it is over. Not called where a run that goes on has nothing to do. */
  hark_status (*ready)(void *user, bool timed);
  /* Optional: called after every micro-batch, when the gradients so far are in the engine and before they are used; for what looks at them.
   * step and micro-batch are those being made, from 1 and from 0. */
  hark_status (*gradients)(void *user, hark_engine *engine, int64_t step, int64_t micro_batch);
  double peak_operations;      /* a second, of this machine with these threads; 0: unknown */
  double (*clock)(void *user); /* seconds that only go forward, by which a run's time is measured and limited; NULL: the machine's */
} hark_train_hooks;

typedef enum hark_stop_reason { HARK_STOP_DONE, HARK_STOP_TIME, HARK_STOP_EARLY, HARK_STOP_REQUEST } hark_stop_reason;

typedef struct hark_train_result {
  hark_stop_reason reason;
  hark_run_state state;
  double validation_loss; /* of the last evaluation; NaN: there was none */
  int64_t steps;
} hark_train_result;

/* Trains as `config` says, in an open, locked run folder; `resume` goes on from the last checkpoint. config.yaml is written by the caller,
 * in `ready`: what fails before leaves no run behind.
 *
 * Time. train.max_time is that of this call from when the data are ready, the last evaluation and saving included. Where it alone gives the
 * length (config->train.planned, or config->train.more_time of a run that has ended), a few steps are measured and thrown away, and the
 * steps that fit are the run's length: a part of its state, so that the run is the one that a train.steps of this number gives, in one part
 * or in several, unless the pace turns out to be another one; then length and schedule are corrected on the way. An evaluation that takes
 * more than half of the time is left out.
 *
 * A length that the run has passed already is refused (HARK_BAD_CONFIGURATION).
 *
 * Errors: HARK_NOT_FINITE after train.max_bad_steps steps in a row that could not be used, or when weights or moments are not finite where
 * a checkpoint is due (none is written then: the last good one is kept); HARK_TOO_LARGE and HARK_IO_ERROR before the first step when memory
 * or disk do not suffice (preflight.h); HARK_SHAPE_MISMATCH (warm_start.h); those of data, model and files. */
HARK_MUST_CHECK hark_status hark_train(hark_context *context, const hark_config *config, const hark_run *run, const hark_train_hooks *hooks,
                                       hark_train_result *result);

/* Opens the corpus of a run. `learn`: a fresh run, whose vocabulary is learned and stored in its folder; else the stored one is used. The
 * tokenizer is the caller's and must outlive the corpus. */
HARK_MUST_CHECK hark_status hark_run_corpus(hark_context *context, const hark_config *config, const hark_run *run, bool learn,
                                            hark_tokenizer **tokenizer, hark_corpus **corpus);

/* The vocabulary that a fresh run would learn; nothing is written. The caller destroys it. */
HARK_MUST_CHECK hark_status hark_run_learn_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out);

#endif
