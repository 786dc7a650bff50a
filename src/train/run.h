/* run.h - the folder of a run.
 *
 *   config.yaml        the resolved configuration
 *   vocabulary.json
 *   metrics.jsonl      one JSON object per line
 *   checkpoints/step-N/   model.safetensors, optimizer.safetensors, state.json, manifest.json (names, sizes and SHA-256 of the others)
 *   data.json          where the data are stored (data_place.h)
 *   origin.json        source and list of the initial weights that were loaded (train.init_from)
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
  bool made; /* the folder was made or was empty, and no run has begun */
  bool kept; /* the folder existed before */
} hark_run;

/* Makes the folder of a new run or, with `resume`, opens an existing one, and locks it.
 * Errors: HARK_BAD_CONFIGURATION (a new run's folder contains a run, or files of names that runs have and that no process left before its
 * run began; or there is no run to resume), HARK_BUSY, those of files. */
HARK_MUST_CHECK hark_status hark_run_open(hark_context *context, const char *path, bool resume, hark_run *out);
/* Opens a run for reading. `path` may also be a checkpoint inside a run: then *checkpoint gets its name, else "". */
HARK_MUST_CHECK hark_status hark_run_open_reading(hark_context *context, const char *path, hark_run *out, char checkpoint[HARK_NAME_BYTES]);
void hark_run_close(hark_run *run);
/* Called after a failure, before the run is closed. If no run has begun (`made`, and no config.yaml), removes the files of a run from the
 * folder, and the folder if it is new and then empty. Keeps the context's message. */
void hark_run_abandon(hark_context *context, const hark_run *run);
/* Cuts "RUN/checkpoints/step-N" to "RUN", in place, and copies the last part to `checkpoint`; false for a path of another form. */
bool hark_run_cut_checkpoint(char *path, char checkpoint[HARK_NAME_BYTES]);

/* True if hark itself keeps a file or a folder of this name in a run's folder. */
bool hark_run_keeps(const char *name);

/* Joins a name in the run's folder into `out` of HARK_PATH_BYTES bytes. */
HARK_MUST_CHECK hark_status hark_run_path(hark_context *context, const hark_run *run, const char *name, char *out);
/* Reads vocabulary.json into an empty text, which stays empty if there is none. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_run_read_vocabulary(hark_context *context, const hark_run *run, hark_text *out);

/* The state that a resumed run continues from. */
typedef struct hark_run_state {
  int64_t step;                                                      /* steps done, including skipped ones */
  int64_t updates;                                                   /* of the optimiser */
  int64_t samples;                                                   /* windows or examples used */
  int64_t tokens;                                                    /* in them */
  double loss_sum;                                                   /* of the steps since the last line of metrics */
  double objective_sum, smoothing_sum, z_sum, ratio_sum, ponder_sum; /* the same for runs whose loss has further terms */
  int64_t loss_count;
  int64_t line_targets, line_correct; /* of examples, in those steps: targets, and correct predictions */
  double operations;                  /* of steps whose costs differ */
  int64_t empty_steps;                /* without a target; the model learned nothing from them */
  double rate;                        /* of the last step; 0: none yet */
  hark_schedule_plan plan;            /* zeros in checkpoints of versions without plans */
  double gradient_norm;               /* of the last step that was not skipped; 0: none yet */
  double best_loss;                   /* validation; infinity before the first */
  int64_t best_step;
  int64_t evaluated_step; /* of the last evaluation; 0: none yet */
  int64_t evaluations_without_improvement;
  int64_t bad_steps; /* consecutive */
  double seconds;    /* of training so far */
  uint64_t metrics_bytes;
  int64_t mended_pivots; /* of kernel ridge attention, including evaluations */
  uint64_t corpus_checksum;
} hark_run_state;

/* Writes checkpoints/step-N, points `last` to it and `best` to the checkpoint of state->best_step; then deletes what
 * hark_checkpoint_settle() deletes. A failure before `last` has changed leaves everything unchanged. */
HARK_MUST_CHECK hark_status hark_checkpoint_save(hark_context *context, const hark_run *run, const hark_engine *engine,
                                                 const hark_run_state *state, int64_t keep);

/* The steps after the checkpoint of state->step is written; a killed process may have left them unfinished. Points `last` and `best` to
 * their checkpoints. Then deletes incomplete checkpoints, checkpoints of later steps (left from before the run was resumed at an earlier
 * one), and those that are neither among the last `keep` nor the best. */
HARK_MUST_CHECK hark_status hark_checkpoint_settle(hark_context *context, const hark_run *run, const hark_run_state *state, int64_t keep);

/* Points `best` to the checkpoint of state->best_step, if that exists. */
HARK_MUST_CHECK hark_status hark_checkpoint_point_best(hark_context *context, const hark_run *run, const hark_run_state *state);

/* The checkpoint that a pointer file names: which = "last", "best". Errors: HARK_NOT_FOUND. */
HARK_MUST_CHECK hark_status hark_checkpoint_find(hark_context *context, const hark_run *run, const char *which, char name[HARK_NAME_BYTES]);

/* The checkpoint to read: `requested` is "best", "last" or "step-N"; "": the best, or the last where there is no best. Errors:
 * HARK_NOT_FOUND, HARK_INVALID_ARGUMENT for any other name. */
HARK_MUST_CHECK hark_status hark_checkpoint_choose(hark_context *context, const hark_run *run, const char *requested,
                                                   char name[HARK_NAME_BYTES]);
/* Path of a checkpoint or, with `file`, of a file in it; `out` has HARK_PATH_BYTES bytes. */
HARK_MUST_CHECK hark_status hark_checkpoint_path(hark_context *context, const hark_run *run, const char *name, const char *file, char *out);
/* Reads state.json of a checkpoint, which must be of the step that the checkpoint is named after. Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_read_state(hark_context *context, const hark_run *run, const char *name, hark_run_state *state);

/* Compares every file of a checkpoint with its manifest, and reads its state. *weights (may be NULL) receives the summary of
 * model.safetensors. Errors: HARK_BAD_FILE, HARK_NOT_FOUND (a file is missing), those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_verify(hark_context *context, const hark_run *run, const char *name,
                                                   hark_file_summary *weights);

/* The checkpoint to resume from: the one that `last` names or, if that one is damaged, the newest undamaged one. In the second case
 * `damaged` is the name of the damaged one ("last" when that file itself is damaged), and the context's message describes the damage;
 * otherwise `damaged` is "". Errors: HARK_NOT_FOUND when there is no checkpoint yet; HARK_BAD_FILE when all are damaged or missing. */
HARK_MUST_CHECK hark_status hark_checkpoint_newest(hark_context *context, const hark_run *run, char name[HARK_NAME_BYTES],
                                                   char damaged[HARK_NAME_BYTES]);

/* Checks that the run's vocabulary.json equals the vocabulary stored with the checkpoint's weights (both may have none): weights are only
 * valid with the meanings of their tokens. Errors: HARK_BAD_FILE, which names both; those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_check_vocabulary(hark_context *context, const hark_run *run, const char *name);

/* config.yaml of a run. The caller destroys the options, which own the strings of the configuration; after a failure there are none.
 * Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_run_read_configuration(hark_context *context, const hark_run *run, hark_config *config,
                                                        hark_options **options);
/* Checks that a configuration, or that of config.yaml, has the options of the model that the checkpoint's weights were trained as: with
 * other values the same weights have another meaning. Errors: HARK_BAD_FILE, which names the key and both values; those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_check_model(hark_context *context, const hark_run *run, const char *name,
                                                        const hark_network_config *config);
HARK_MUST_CHECK hark_status hark_checkpoint_check_configuration(hark_context *context, const hark_run *run, const char *name);

/* Reads the engine's weights and, if it trains, the moments and the state (which may be NULL). The tensors must be exactly those of the
 * model. Errors: HARK_BAD_FILE, HARK_NOT_FOUND, those of files. */
HARK_MUST_CHECK hark_status hark_checkpoint_load(hark_context *context, const hark_run *run, const char *name, hark_engine *engine,
                                                 hark_run_state *state);

/* Reads only the weights, for a decoder. */
HARK_MUST_CHECK hark_status hark_checkpoint_load_weights(hark_context *context, const hark_run *run, const char *name,
                                                         hark_parameters *parameters);

#endif
