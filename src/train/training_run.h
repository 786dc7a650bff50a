/* training_run.h - a run in training, shared by the files of the trainer: trainer.c is the loop, trainer_metrics.c writes the lines of
 * metrics, trainer_group.c has what processes do together, trainer_length.c computes the length. */
#ifndef HARK_TRAIN_TRAINING_RUN_H
#define HARK_TRAIN_TRAINING_RUN_H

#include "json/jsonl.h"
#include "train/material.h"
#include "train/metric_copies.h"
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
  hark_metric_copies copies; /* of its lines */
  hark_run_state state;
  int64_t steps;         /* total; 0: as many as fit into train.max_time, not known yet */
  hark_pace pace;        /* seconds of steps, evaluations and saves */
  bool timed;            /* train.max_time determines the steps, whatever else the configuration says */
  bool planned;          /* the number of steps was planned in this call */
  bool no_evaluation;    /* evaluations would take too much of the time */
  double measured_until; /* time limit of an evaluation that is being measured; 0: none is */
  double measured_part;
  bool checkpoint_requested, stop_requested; /* requested: since the last checkpoint; at any time */
  double started, seconds_before;            /* clock when the data were ready; seconds of training before it */
  int64_t first_step, look_step;             /* first step whose pace is checked; the next check is after step look_step */
  double first_clock, look_clock;            /* or at look_clock, whichever is earlier */
  double aside;                              /* seconds since first_clock spent on evaluations and checkpoints */
  double line_clock;                         /* clock at the last line of metrics */
  int64_t line_tokens, line_steps;           /* since then */
  double line_operations;
  double pass_operations; /* of the last micro-batch; before the first in this call, of the largest possible */
  double last_loss;       /* of the last step in this call, also of one that was skipped */
  hark_train_progress progress;
  hark_ahca_statistics statistics; /* of the last evaluation */
  void *parts;                     /* results of a step's micro-batches, so that a step allocates nothing */
  size_t parts_bytes;
} training_run;

/* Whether this process writes the run's folder and reports: rank 0 of a group. */
static inline bool hark_training_leads(const training_run *trainer) { return hark_group_rank(trainer->context->group) == 0; }

typedef struct validation_result {
  double loss, accuracy; /* accuracy for examples, masked tokens and reconstruction; else NaN */
  bool complete;
} validation_result;

/* ---- trainer.c ---- */

void hark_training_say(const training_run *trainer, const char *format, ...) HARK_PRINTF(2, 3);
/* Seconds of the run's clock. */
double hark_training_now(const training_run *trainer);
/* Reads and remembers the requests of the program, also during an evaluation, which only a stop ends. */
hark_request hark_training_poll(training_run *trainer);
/* Remembers a request. */
void hark_training_heed(training_run *trainer, hark_request request);
HARK_MUST_CHECK hark_status hark_training_validate(training_run *trainer, validation_result *out);
/* The text of a checkpoint of `run`, if the run makes samples. */
HARK_MUST_CHECK hark_status hark_training_sample(training_run *trainer, const hark_run *run, int64_t step);
bool hark_training_evaluation_is_due(const training_run *trainer);

/* ---- trainer_metrics.c: lines of metrics.jsonl, which rank 0 writes ---- */

/* Seconds of the run so far, earlier parts included. */
double hark_training_seconds(const training_run *trainer);
bool hark_training_predicts_masked(const training_run *trainer);
/* Windows of a text cost the same in every step. The cost of examples depends on their tokens, that of masked windows on their targets. */
bool hark_training_costs_differ(const training_run *trainer);
/* The model predicts next tokens, so its loss is a measure of the text. */
bool hark_training_predicts_next(const training_run *trainer);
/* Continues after the checkpoint's lines: lines written later, or by a run that never began, are removed. */
HARK_MUST_CHECK hark_status hark_training_open_metrics(training_run *trainer);
/* The entropies of the validation text, a length that was planned, kernels and learned rates, decisions on the validation data. */
HARK_MUST_CHECK hark_status hark_training_record_text(training_run *trainer);
HARK_MUST_CHECK hark_status hark_training_record_plan(training_run *trainer);
HARK_MUST_CHECK hark_status hark_training_record_kernels(training_run *trainer);
HARK_MUST_CHECK hark_status hark_training_record_chunks(training_run *trainer);
/* A step without finite numbers. Errors: HARK_NOT_FINITE after train.max_bad_steps of them in a row. */
HARK_MUST_CHECK hark_status hark_training_record_skipped(training_run *trainer, double loss, double norm);
/* The speed since the last line, for the progress and the pace. */
void hark_training_measure_speed(training_run *trainer);
/* The steps since the last line, whose sums begin anew. */
HARK_MUST_CHECK hark_status hark_training_record_line(training_run *trainer);
HARK_MUST_CHECK hark_status hark_training_record_validation(training_run *trainer, const validation_result *result);

/* ---- trainer_group.c: called by all processes of a group at the same place ---- */

/* State and weights of rank 0 for all, and moments that are not divided. */
HARK_MUST_CHECK hark_status hark_training_copy_state(training_run *trainer);
/* After rank 0 has read or written a checkpoint, with this status: ends its requests for the moments of others, who answer them here. */
HARK_MUST_CHECK hark_status hark_training_end_transfer(const training_run *trainer, hark_status status);
/* The request to any of the processes. A group that is over stops; its error is found at the next place where the processes agree. */
hark_request hark_training_poll_together(training_run *trainer);
/* hark_training_now() of rank 0. */
double hark_training_common_now(const training_run *trainer);
/* Corrects a planned length, and finds out whether the time is up, by the clock of rank 0. */
HARK_MUST_CHECK hark_status hark_training_decide_by_time(training_run *trainer, bool *corrected, bool *time_is_up);

/* ---- trainer_length.c ---- */

/* The steps of a configuration, 0 where they are derived from a time. Refuses a length whose tokens would overflow. */
HARK_MUST_CHECK hark_status hark_training_count_steps(const training_run *trainer, const hark_config *config, int64_t *out);
/* The length from the configuration. If a time determines it (also for a finished run that was given more time), the length planned
 * earlier, or 0. `state` is that of the checkpoint, or zeros. */
HARK_MUST_CHECK hark_status hark_training_find_length(training_run *trainer, const hark_run_state *state);
/* Called when the data are ready: the time starts. Refuses a length that the run has passed already. With a time limit: measures, and if
 * the length is not known, plans as many steps as fit; a stop meanwhile leaves it unknown. Weights, moments and reports are restored
 * afterwards. */
HARK_MUST_CHECK hark_status hark_training_settle_steps(training_run *trainer, const hark_run_state *state);
/* Sets the plan of the learning rate, after the state was read. For a resumed run, a line reports the plan if it differs from the earlier
 * one. */
HARK_MUST_CHECK hark_status hark_training_settle_plan(training_run *trainer, bool resumed);
/* During a run with planned steps: compares the pace with the plan from time to time and corrects the length and the rest of the schedule.
 * True: it was corrected. */
void hark_training_begin_looks(training_run *trainer);
bool hark_training_correct_length(training_run *trainer);
/* Seconds of the remaining steps with their evaluations and checkpoints, or until the time limit if that is earlier. */
double hark_training_seconds_left(const training_run *trainer);
/* Whether one more step would leave no time for the last evaluation and for saving. */
bool hark_training_time_is_up(const training_run *trainer);

#endif
