/* trainer.h - the training loop: from a configuration to a run folder. */
#ifndef HARK_TRAIN_TRAINER_H
#define HARK_TRAIN_TRAINER_H

#include "train/evaluate.h"
#include "train/run.h"

/* The progress of a run, for display. */
typedef struct hark_train_progress {
  int64_t step, steps;          /* done, total */
  int64_t tokens;               /* tokens trained on */
  double loss;                  /* of the last step that had targets; NaN before the first */
  double validation_loss;       /* of the last evaluation; NaN before the first */
  double rate;                  /* of the last step */
  double gradient_norm;         /* of the last step that was not skipped; NaN before the first */
  double tokens_per_second;     /* since the last line of metrics */
  double peak_fraction;         /* useful operations divided by the machine's peak; 0: peak unknown */
  double seconds, seconds_left; /* seconds_left includes later evaluations; NaN: not known yet */
  double evaluating;            /* fraction of an evaluation that is done; below 0 outside an evaluation */
} hark_train_progress;

typedef enum hark_request { HARK_REQUEST_NONE, HARK_REQUEST_CHECKPOINT, HARK_REQUEST_STOP } hark_request;

/* Callbacks and settings of a program for a run. Every member may be zero. */
typedef struct hark_train_hooks {
  void *user;
  void (*show)(void *user, const hark_train_progress *progress); /* after every step and during evaluations */
  void (*say)(void *user, const char *line);                     /* lines for the user: evaluations, checkpoints, skipped steps */
  hark_request (*request)(void *user);                           /* called after every step */
  /* Called when data, model and memory are ready, before the first step; may refuse. `timed`: train.max_time determines the length, and
   * other settings of it no longer apply. Not called when a resumed run has nothing to do. */
  hark_status (*ready)(void *user, bool timed);
  /* Optional: called before `ready` if train.plans_once: the steps that were planned, with their warm-up. From then on train.steps and
   * train.warmup with these values make the same run. `evaluates`: false if evaluations take too long, and none are made. */
  void (*planned)(void *user, int64_t steps, int64_t warmup, bool evaluates);
  /* Optional: called after every micro-batch of this process, for inspection: the gradients in the engine are those of the last subtree
   * (gradient_sum.h), with one micro-batch those of the step; with several processes they mean nothing after the last one. Step (from 1)
   * and micro-batch (from 0) are the current ones. */
  hark_status (*gradients)(void *user, hark_engine *engine, int64_t step, int64_t micro_batch);
  double peak_operations;      /* per second, of this machine with these threads; 0: unknown */
  double (*clock)(void *user); /* monotonic seconds that measure and limit a run's time; NULL: the machine's clock */
} hark_train_hooks;

typedef enum hark_stop_reason { HARK_STOP_DONE, HARK_STOP_TIME, HARK_STOP_EARLY, HARK_STOP_REQUEST } hark_stop_reason;

typedef struct hark_train_result {
  hark_stop_reason reason;
  hark_run_state state;
  double validation_loss; /* of the last evaluation; NaN: no evaluation */
  int64_t steps;
} hark_train_result;

/* Trains according to `config` in an open, locked run folder; `resume` continues from the last checkpoint. The caller writes config.yaml in
 * `ready`, so a failure before that leaves no run.
 *
 * Time. train.max_time limits this call from the moment the data are ready, including the last evaluation and saving. If it alone
 * determines the length (config->train.planned, or config->train.more_time of a finished run), a few steps are measured and discarded, and
 * the number of steps that fit becomes the run's length. The length is part of the run's state: the run equals one with train.steps of this
 * number, in one part or several. If the pace changes during the run, length and schedule are corrected. An evaluation that would take more
 * than half of the time is left out. With config->train.plans_once the time is used for planning only: the planned steps are not corrected
 * and not cut off.
 *
 * A length that the run has passed already is refused (HARK_BAD_CONFIGURATION).
 *
 * Errors: HARK_NOT_FINITE after train.max_bad_steps consecutive unusable steps, or when weights or moments are not finite when a checkpoint
 * is due, or a validation loss, or without evaluations the loss of the last step (no checkpoint is written, and the last good one is kept);
 * HARK_TOO_LARGE and HARK_IO_ERROR before the first step when memory or disk do
 * not suffice (preflight.h); HARK_SHAPE_MISMATCH (warm_start.h); those of data, model and files. */
HARK_MUST_CHECK hark_status hark_train(hark_context *context, const hark_config *config, const hark_run *run, const hark_train_hooks *hooks,
                                       hark_train_result *result);

/* Opens the corpus of a run. `learn`: a new run; its vocabulary is learned and stored in its folder. Otherwise the stored vocabulary is
 * used. The caller owns the tokenizer, which must outlive the corpus. */
HARK_MUST_CHECK hark_status hark_run_corpus(hark_context *context, const hark_config *config, const hark_run *run, bool learn,
                                            hark_tokenizer **tokenizer, hark_corpus **corpus);

/* Opens a text with the tokenizer of a model that is no run (model_source.h). Its tokens are in a file in TMPDIR as long as the corpus is
 * open. The caller owns the tokenizer, which must outlive the corpus. */
HARK_MUST_CHECK hark_status hark_model_corpus(hark_context *context, const hark_config *config, const char *path,
                                              hark_tokenizer **tokenizer, hark_corpus **corpus);

/* The vocabulary that a new run would learn; nothing is written. The caller destroys it. */
HARK_MUST_CHECK hark_status hark_run_learn_vocabulary(hark_context *context, const hark_config *config, hark_tokenizer **out);

#endif
