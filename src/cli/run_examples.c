/* run_examples.c - see run_examples.h. */
#include "cli/run_examples.h"

#include "data/examples/known_folder.h"
#include "data/examples/picture_folder.h"
#include "io/files.h"
#include "train/data_place.h"

static const char *const split_names[HARK_SPLIT_ALL] = {"training", "validation", "test"};

bool hark_command_is_on_line(const hark_invocation *call, const char *name) {
  return hark_options_source(call->options, name) == HARK_SOURCE_COMMAND;
}

/* ---- checks ---- */

hark_status hark_run_data_check_given(hark_invocation *call, const hark_config *config, hark_split split) {
  if (hark_command_is_on_line(call, "data.paths")) {
    if (hark_config_has_examples(config) || !hark_command_is_on_line(call, "data.validation_paths")) return HARK_OK;
    return hark_options_complain(call->context, call->options, "data.validation_paths",
                                 "has no effect here: the text of --data is measured");
  }
  if (hark_command_is_on_line(call, "data.validation_paths") && split != HARK_SPLIT_VALIDATION)
    HARK_TRY(hark_options_complain(call->context, call->options, "data.validation_paths", "--part validation reads these files"));
  if (hark_command_is_on_line(call, "data.test_paths") && split != HARK_SPLIT_TEST && hark_config_has_examples(config))
    HARK_TRY(hark_options_complain(call->context, call->options, "data.test_paths", "--part test reads these files"));
  return HARK_OK;
}

hark_status hark_run_data_find(hark_invocation *call, const hark_config *config) {
  hark_data_place place;
  hark_run run;
  char checkpoint[HARK_NAME_BYTES];
  if (hark_options_problem_count(call->options) > 0 || hark_command_is_on_line(call, "data.paths") || hark_command_names_model(call))
    return HARK_OK;
  HARK_TRY(hark_run_open_reading(call->context, hark_options_argument(call->options, 0), &run, checkpoint));
  HARK_TRY(hark_data_place_find(call->context, call->options, config, run.path, &place));
  return place.other_size ? hark_command_refuse_data(call, &config->data.paths) : HARK_OK;
}

void hark_run_examples_replace(const hark_invocation *call, hark_config *config) {
  if (!hark_command_is_on_line(call, "data.paths")) return;
  if (!hark_command_is_on_line(call, "data.validation_paths")) config->data.validation_paths = (hark_string_list){0};
  if (!hark_command_is_on_line(call, "data.test_paths")) config->data.test_paths = (hark_string_list){0};
  config->data.validation_fraction = 0;
}

/* ---- opening ---- */

/* The split of a folder that --data names. */
static hark_status check_split(hark_invocation *call, const char *folder, hark_split split, const hark_examples *examples) {
  if (hark_examples_count(examples, split).examples > 0) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: has no %s examples; --part selects the examples", folder,
                   split_names[split]);
}

/* Whether they are the examples that the checkpoint was trained on, with the length limit of the training. */
static hark_status compare(hark_invocation *call, const hark_config *config, const hark_opened_run *opened, const hark_examples *examples) {
  hark_run_state state;
  HARK_TRY(hark_checkpoint_read_state(call->context, &opened->run, opened->checkpoint, &state));
  return hark_examples_checksum(examples) == state.corpus_checksum ? HARK_OK : hark_command_refuse_data(call, &config->data.paths);
}

static hark_status check_recorded(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                  const hark_examples *examples) {
  char path[HARK_PATH_BYTES];
  hark_config recorded = *config, stored;
  hark_options *options = NULL;
  hark_examples *whole = NULL;
  if (!hark_command_is_on_line(call, "data.length_limit")) return compare(call, config, opened, examples);
  HARK_TRY(hark_run_path(call->context, &opened->run, "config.yaml", path));
  hark_status status = hark_command_read_stored(call, path, &stored, &options);
  if (status == HARK_OK) {
    recorded.data.length_limit = stored.data.length_limit;
    status = hark_material_examples(call->context, &recorded, HARK_DATA_MEASURED, &whole);
  }
  if (status == HARK_OK) status = compare(call, config, opened, whole);
  hark_examples_close(call->context, &whole);
  hark_options_destroy(call->context, &options);
  return status;
}

/* Files that are given only for this part, for example test examples: the run has no record of them. */
static bool is_part_given(const hark_invocation *call, hark_split split) {
  static const char *const names[HARK_SPLIT_ALL] = {"data.paths", "data.validation_paths", "data.test_paths"};
  return hark_command_is_on_line(call, names[split]);
}

/* A folder with splits. */
static bool is_divided(hark_context *context, const char *path) {
  return hark_path_kind_of(path) == HARK_PATH_FOLDER && !hark_has_class_folders(context, path) && !hark_is_picture_folder(context, path);
}

hark_status hark_run_examples_open(hark_invocation *call, const hark_config *config, const hark_opened_run *opened, hark_split split,
                                   hark_data_use given, hark_run_examples *out) {
  const bool other = hark_command_is_on_line(call, "data.paths"), own = !other && !is_part_given(call, split);
  out->split = split;
  HARK_TRY(hark_material_examples(call->context, config, own ? HARK_DATA_MEASURED : given, &out->examples));
  HARK_TRY(hark_material_check_vocabulary(call->context, out->examples, &opened->run));
  if (own) HARK_TRY(check_recorded(call, config, opened, out->examples));
  const char *const first = config->data.paths.count > 0 ? config->data.paths.items[0] : "";
  const bool folder = other && is_divided(call->context, first);
  if (folder) HARK_TRY(check_split(call, first, split, out->examples));
  out->whole = other && !folder && hark_examples_count(out->examples, split).examples == 0;
  if (out->whole) out->split = HARK_SPLIT_TRAINING;
  hark_example_batches_settings settings = hark_example_settings(config, out->split, true);
  if (other) settings.limit = 0; /* of the training data */
  HARK_TRY(hark_example_batches_create(call->context, out->examples, &settings, &out->batches));
  return hark_example_room_open(call->context, &out->batches, config->train.batch, &out->room);
}

void hark_run_examples_close(hark_context *context, hark_run_examples *own) {
  hark_example_room_close(context, &own->room);
  hark_examples_close(context, &own->examples);
}

const char *hark_run_examples_part(const hark_run_examples *own) { return own->whole ? "data" : split_names[own->split]; }
