/* run.h - the folder of a run.
 *
 *   config.yaml        the resolved configuration
 *   vocabulary.json
 *   metrics.jsonl      one JSON object a line
 *   checkpoints/step-N/   model.safetensors, optimizer.safetensors, state.json, manifest.json (names, sizes and SHA-256 of the others)
 *   data.json          where the data lie (data_place.h)
 *   origin.json        where the weights came from that the run began with (train.init_from), and which
 *   last, best         text files with the name of a checkpoint ("step-500")
 *   cache/             tokens of the text; may be deleted
 */
#ifndef HARK_TRAIN_RUN_H
#define HARK_TRAIN_RUN_H

#include "io/checkpoint_files.h"
#include "train/engine.h"

#define HARK_RUN_FORMAT_VERSION 1

typedef struct hark_run {
  char path[HARK_PATH_BYTES];
  int lock;  /* descriptor; -1: opened for reading only */
  bool made; /* the folder was not there before, or had nothing in it, and no run has begun */
  bool kept; /* it was there */
} hark_run;

/* Makes the folder (fresh) or opens one that is there (resume), and locks it. A fresh run refuses a folder that holds a run already.
 * Errors: HARK_BAD_CONFIGURATION (holds a run, or holds none to resume), HARK_BUSY, those of files. */
HARK_MUST_CHECK hark_status hark_run_open(hark_context *context, const char *path, bool resume, hark_run *out);
/* Opens a run for reading. `path` may also be a checkpoint inside a run: then *checkpoint gets its name, else "". */
HARK_MUST_CHECK hark_status hark_run_open_reading(hark_context *context, const char *path, hark_run *out, char checkpoint[HARK_NAME_BYTES]);
void hark_run_close(hark_run *run);
/* After a failure, before the run is closed: where `made` and no config.yaml say that no run has begun, what a run puts into its folder
 * goes, and the folder if it is new and nothing else is in it. The context's message stays. */
void hark_run_abandon(hark_context *context, const hark_run *run);
/* Cuts "RUN/checkpoints/step-N" to "RUN", in place, and puts the last part into `checkpoint`; false when the path does not look like
 * that. */
bool hark_run_cut_checkpoint(char *path, char checkpoint[HARK_NAME_BYTES]);

/* Joins a name in the run's folder into `out` of HARK_PATH_BYTES bytes. */
HARK_MUST_CHECK hark_status hark_run_path(hark_context *context, const hark_run *run, const char *name, char *out);

/* What goes on when a run goes on. */
typedef struct hark_run_state {
  int64_t step;                                               /* steps done, skipped ones included */
  int64_t updates;                                            /* of the optimiser */
  int64_t samples;                                            /* windows or examples used */
  int64_t tokens;                                             /* in them */
  double loss_sum;                                            /* of the steps since the last line of metrics */
  double objective_sum, smoothing_sum, ratio_sum, ponder_sum; /* alike; of runs that add to the loss */
  int64_t loss_count;
  int64_t line_targets, line_right; /* of examples, in those steps: targets, and those that the model told */
  double operations;                /* of steps with examples */
  int64_t empty_steps;              /* without a target: nothing was learned from them */
  double rate;                      /* of the last step; 0: none yet */
  hark_schedule_plan plan;          /* zeros in checkpoints of before there were plans */
  double gradient_norm;             /* of the last step that was not skipped; 0: none yet */
  double best_loss;                 /* validation; infinity before the first */
  int64_t best_step;
  int64_t evaluated_step; /* of the last evaluation; 0: none yet */
  int64_t evaluations_without_improvement;
  int64_t bad_steps; /* in a row */
  double seconds;    /* of training so far */
  uint64_t metrics_bytes;
  int64_t mended_pivots; /* of kernel ridge attention, evaluations included */
  uint64_t corpus_checksum;
} hark_run_state;

/* Writes checkpoints/step-N and points `last` at it, and `best` at that of state->best_step; afterwards deletes what
 * hark_checkpoint_settle() does. What fails before `last` has
 * moved leaves everything as it was. */
HARK_MUST_CHECK hark_status hark_checkpoint_save(hark_context *context, const hark_run *run, const hark_engine *engine,
                                                 const hark_run_state *state, int64_t keep);

/* What follows when the checkpoint of state->step is there, and what a killed process may have been in the middle of: points `last` and
 * `best`, then deletes what was left half written, the checkpoints of later steps, which are from before the run was taken up at an earlier
 * one, and those that are neither among the last `keep` nor the best. */
HARK_MUST_CHECK hark_status hark_checkpoint_settle(hark_context *context, const hark_run *run, const hark_run_state *state, int64_t keep);

/* Points `best` at the checkpoint of state->best_step if it does not yet, and if there is one. */
HARK_MUST_CHECK hark_status hark_checkpoint_point_best(hark_context *context, const hark_run *run, const hark_run_state *state);

/* The checkpoint that a pointer file names: which = "last", "best". Errors: HARK_NOT_FOUND. */
HARK_MUST_CHECK hark_status hark_checkpoint_find(hark_context *context, const hark_run *run, const char *which, char name[HARK_NAME_BYTES]);

/* The checkpoint to read: `asked` names one ("best", "last", "step-N"), or is "": the best, or else the last. Errors: HARK_NOT_FOUND,
 * HARK_INVALID_ARGUMENT for a name that is none. */
HARK_MUST_CHECK hark_status hark_checkpoint_choose(hark_context *context, const hark_run *run, const char *asked,
                                                   char name[HARK_NAME_BYTES]);
/* Path of a checkpoint, or with `file` of a file in it, into `out` of HARK_PATH_BYTES bytes. */
HARK_MUST_CHECK hark_status hark_checkpoint_path(hark_context *context, const hark_run *run, const char *name, const char *file, char *out);
/* state.json of a checkpoint. Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_read_state(hark_context *context, const hark_run *run, const char *name, hark_run_state *state);

/* Compares every file of a checkpoint with its manifest; *weights (NULL: not wanted) gets what model.safetensors is. Errors: HARK_BAD_FILE,
 * HARK_NOT_FOUND (a file is missing), those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_verify(hark_context *context, const hark_run *run, const char *name,
                                                   hark_file_summary *weights);

/* The checkpoint to go on from: the one that `last` names, or, where that one is damaged, the newest that is not. In the second case
 * `damaged` gets the name of the former ("last" when that file itself is damaged) and the context's message says what is wrong with it;
 * else it gets "". Errors: HARK_NOT_FOUND when there is none yet; HARK_BAD_FILE when all are damaged, or gone. */
HARK_MUST_CHECK hark_status hark_checkpoint_newest(hark_context *context, const hark_run *run, char name[HARK_NAME_BYTES],
                                                   char damaged[HARK_NAME_BYTES]);

/* Whether the run's vocabulary.json is the one that the checkpoint's weights carry (both may have none): what a token stands for is a part
 * of them. Errors: HARK_BAD_FILE, which names both; those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_check_vocabulary(hark_context *context, const hark_run *run, const char *name);

/* Fills the engine's weights and, when it trains, the moments and the state (which may be NULL). The tensors must be exactly those of the
 * model. Errors: HARK_BAD_FILE, HARK_NOT_FOUND, those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_load(hark_context *context, const hark_run *run, const char *name, hark_engine *engine,
                                                 hark_run_state *state);

/* Weights alone, into a decoder. */
HARK_MUST_CHECK hark_status hark_checkpoint_load_weights(hark_context *context, const hark_run *run, const char *name,
                                                         hark_parameters *parameters);

#endif
