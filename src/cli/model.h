/* model.h - shared by subcommands that read a trained run: its configuration, its vocabulary and one of its checkpoints. */
#ifndef HARK_CLI_MODEL_H
#define HARK_CLI_MODEL_H

#include <hark/model.h>

#include "cli/common.h"
#include "train/trainer.h"

/* Words for the types of matrices, in files and in memory. */
#define HARK_MATRIX_WORDS "f32|bf16|f16|int8"
/* The type of a word of "file|" HARK_MATRIX_WORDS; HARK_NONE for "file". */
hark_type hark_command_matrix_type(int word);
/* The word of a type. */
const char *hark_command_matrix_word(hark_type type);
/* Row of a command's table of options: --weights, an int `field`. */
#define HARK_WEIGHTS_OPTION(values, field)                                                                                                 \
  {                                                                                                                                        \
    "weights", "weights", HARK_OPTION_ENUM, offsetof(values, field), "file", "file|" HARK_MATRIX_WORDS, NULL, NULL,                        \
        "type of the matrices in memory; smaller types are read faster; file: as they are stored in the file", NULL                        \
  }

typedef struct hark_opened_run {
  hark_run run;
  char checkpoint[HARK_NAME_BYTES]; /* "": of a model that is no run (train/model_source.h), whose path is that of `run` */
  hark_tokenizer *tokenizer;        /* NULL: trained on labelled examples, or a model */
  hark_type matrices;               /* in which the weights are to be held; HARK_NONE: as they are stored */
} hark_opened_run;

/* For check: reads the run's configuration (the first argument names the run, a checkpoint in it, or a model) with lower priority than all
 * options that were set. */
HARK_MUST_CHECK hark_status hark_command_read_run(hark_invocation *call, hark_config *config);

/* For check: refuses --checkpoint, whose value is `checkpoint` ("": not given), where `path` is a checkpoint, which it would not change. */
HARK_MUST_CHECK hark_status hark_command_check_checkpoint(hark_invocation *call, const char *path, const char *checkpoint);

/* The first argument is a model that is no run (train/model_source.h). */
bool hark_command_names_model(hark_invocation *call);

/* Reads only a configuration, or the options of a model, without the command line: *stored, with its strings, lives until *options is
 * destroyed by the caller, also after a failure (then it may be NULL). Errors: HARK_BAD_FILE when the file has a problem, those of files.
 */
HARK_MUST_CHECK hark_status hark_command_read_stored(hark_invocation *call, const char *path, hark_config *stored, hark_options **options);

/* Visits the options in which `config`, which the set `now` fills, differs from the configuration in `path`, and that have an effect in one
 * of the two; `stored` prints the values there. Errors: those of
 * hark_command_read_stored() and of the visitor. */
typedef hark_status hark_difference_visitor(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user);
HARK_MUST_CHECK hark_status hark_command_visit_differences(hark_invocation *call, const char *path, const hark_options *now,
                                                           const hark_config *config, hark_difference_visitor *visit, void *user);

/* For run: makes the context, opens the folder and its vocabulary, and finds the checkpoint: the one in the path, the requested one
 * ("best", "last", "step-N"), or with "" the best, or else the last. For a model only its path. The caller closes the run. */
HARK_MUST_CHECK hark_status hark_command_open_run(hark_invocation *call, const hark_config *config, const char *checkpoint,
                                                  hark_opened_run *out);
void hark_command_close_run(hark_invocation *call, hark_opened_run *opened);

/* HARK_BAD_FILE: the data at the paths of a run are not those that the run was trained on. */
hark_status hark_command_refuse_data(hark_invocation *call, const hark_string_list *paths);

/* The first argument is a run or a checkpoint in one; or else it is a file of weights, or a folder with one, that describes itself. */
bool hark_command_names_run(hark_invocation *call);

/* For run, after hark_command_open_run(): loads the run's model, its checkpoint compared with the manifest. What checkpoints of early
 * versions lack comes from the run. The caller destroys it. */
HARK_MUST_CHECK hark_status hark_command_load_run(hark_invocation *call, const hark_opened_run *opened, const hark_config *config,
                                                  hark_model **out);

/* For run: reads the opened weights into an engine; of a run they have been compared with the manifest. */
HARK_MUST_CHECK hark_status hark_command_load_weights(hark_invocation *call, const hark_opened_run *opened, hark_engine *engine);

/* For run: makes an engine that measures the opened run's model, with its matrices held as requested. Errors: those of
 * hark_engine_create_to_measure(). */
HARK_MUST_CHECK hark_status hark_command_create_engine(hark_invocation *call, const hark_opened_run *opened, const hark_config *config,
                                                       const hark_learning_task *task, hark_engine **out);

#endif
