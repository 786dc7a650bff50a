/* training_run.h - a run while it is trained: what the files of the trainer share. trainer.c is the loop, trainer_length.c how long it
 * is. */
#ifndef HARK_TRAIN_TRAINING_RUN_H
#define HARK_TRAIN_TRAINING_RUN_H

#include "json/jsonl.h"
#include "train/material.h"
#include "train/pace.h"
#include "train/trainer.h"

typedef struct training_run {
  hark_context *context;
  const hark_config *config;
  const hark_run *run;
  const hark_train_hooks *hooks;
  hark_material material;
  hark_engine *engine;
  hark_jsonl metrics;
  hark_run_state state;
  int64_t steps;         /* in all; 0: as many as fit into train.max_time, which are not known yet */
  hark_pace pace;        /* what steps, evaluations and saves take */
  bool timed;            /* they follow from train.max_time, whatever else the configuration says */
  bool planned;          /* the steps were planned now */
  bool no_evaluation;    /* takes too much of the time */
  double measured_until; /* by the clock, of an evaluation that is measured; 0: of none */
  double measured_part;
  bool checkpoint_asked, stop_asked; /* since the last checkpoint; at all */
  double started, seconds_before;    /* clock when the data were ready; seconds of training before it */
  int64_t first_step, look_step;     /* where the steps began whose pace is looked at; the next look comes after this step, */
  double first_clock, look_clock;    /* or at this time, if that is sooner */
  double aside;                      /* seconds since first_clock that went into evaluations and checkpoints */
  double line_clock;                 /* clock at the last line of metrics */
  int64_t line_tokens, line_steps;   /* since then */
  double line_operations;
  double pass_operations; /* of the last micro-batch; before the first one of this part of the run, of the largest there can be */
  hark_train_progress progress;
  hark_ahca_statistics statistics; /* of the last evaluation */
} training_run;

typedef struct validation_result {
  double loss, accuracy; /* the latter of examples, of hidden tokens and of a model's own; else NaN */
  bool complete;
} validation_result;

/* ---- trainer.c ---- */

void hark_training_say(const training_run *trainer, const char *format, ...) HARK_PRINTF(2, 3);
/* Seconds of the run's clock. */
double hark_training_now(const training_run *trainer);
/* What is asked for stays asked for, also during an evaluation, which only a stop ends. */
hark_request hark_training_ask(training_run *trainer);
HARK_MUST_CHECK hark_status hark_training_validate(training_run *trainer, validation_result *out);
bool hark_training_evaluation_is_due(const training_run *trainer);

/* ---- trainer_length.c ---- */

/* The steps of a configuration, 0 where they follow from a time. Refuses a length whose tokens could not be counted. */
HARK_MUST_CHECK hark_status hark_training_count_steps(const training_run *trainer, const hark_config *config, int64_t *out);
/* The length that the configuration gives; where that is a time, also because the run that the checkpoint's `state` (or zeros) is of has
 * ended and was given more time, what was planned before, or 0. */
HARK_MUST_CHECK hark_status hark_training_find_length(training_run *trainer, const hark_run_state *state);
/* When the data are ready: the time begins. Refuses a length that the run has passed already. With a limit of time: measures, and plans as
 * many steps as fit where the length is not known; a stop meanwhile leaves it so. Weights, moments and reports are as before the run
 * afterwards. */
HARK_MUST_CHECK hark_status hark_training_settle_steps(training_run *trainer, const hark_run_state *state);
/* The plan of the learning rate, when the state is there; of a run that goes on a line says what it will do where that is not what it had
 * laid out. */
HARK_MUST_CHECK hark_status hark_training_settle_plan(training_run *trainer, bool resumed);
/* Where the steps were planned, as they are made: now and then compares their pace with the plan, and corrects the length and what is left
 * of the schedule. True: it did. */
void hark_training_begin_looks(training_run *trainer);
bool hark_training_correct_length(training_run *trainer);
/* Of the steps to come with their evaluations and checkpoints, or of the time where that ends before. */
double hark_training_seconds_left(const training_run *trainer);
/* One more step would leave no time for the last evaluation and for saving. */
bool hark_training_time_is_up(const training_run *trainer);

#endif
