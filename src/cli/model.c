/* model.c - see model.h. */
#include "cli/model.h"

#include <inttypes.h>
#include <stdio.h>

#include "io/checkpoint_files.h"
#include "models/foreign/foreign.h"
#include "models/model.h"
#include "models/model_parts.h"
#include "train/data_place.h"
#include "train/delimiters.h"
#include "train/model_source.h"

static const struct {
  hark_type type;
  const char *word;
} matrix_types[] = {{HARK_NONE, "file"}, {HARK_F32, "f32"}, {HARK_BF16, "bf16"}, {HARK_F16, "f16"}, {HARK_I8, "int8"}};

hark_type hark_command_matrix_type(int word) { return matrix_types[word].type; }

const char *hark_command_matrix_word(hark_type type) {
  for (size_t i = 0; i < sizeof matrix_types / sizeof *matrix_types; i++)
    if (matrix_types[i].type == type) return matrix_types[i].word;
  return hark_type_name(type);
}

bool hark_command_names_model(hark_invocation *call) {
  return hark_options_argument_count(call->options) > 0 && hark_model_source_is(call->context, hark_options_argument(call->options, 0));
}

hark_status hark_command_check_checkpoint(hark_invocation *call, const char *path, const char *checkpoint) {
  char named[HARK_NAME_BYTES];
  hark_run run;
  if (checkpoint[0] == '\0' || hark_run_open_reading(call->context, path, &run, named) != HARK_OK || named[0] == '\0') return HARK_OK;
  return hark_options_complain(call->context, call->options, "checkpoint",
                               "has no effect here, it needs a run: %s is the checkpoint %s of one", path, named);
}

hark_status hark_command_read_run(hark_invocation *call, hark_config *config) {
  hark_context *context = call->context;
  char checkpoint[HARK_NAME_BYTES], path[HARK_PATH_BYTES];
  hark_run run;
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  if (hark_command_names_model(call)) {
    HARK_TRY(hark_model_source_read_options(context, call->options, hark_options_argument(call->options, 0)));
    return hark_config_finish(context, call->options, config);
  }
  HARK_TRY(hark_run_open_reading(context, hark_options_argument(call->options, 0), &run, checkpoint));
  HARK_TRY(hark_run_path(context, &run, "config.yaml", path));
  HARK_TRY(hark_data_place_read_options(context, call->options, path));
  return hark_config_finish(context, call->options, config);
}

hark_status hark_command_read_stored(hark_invocation *call, const char *path, hark_config *stored, hark_options **options) {
  hark_context *context = call->context;
  const hark_option_group group = {&hark_config_table, stored};
  HARK_TRY(hark_options_create(context, NULL, &group, 1, options));
  HARK_TRY((hark_model_source_is(context, path) ? hark_model_source_read_options : hark_data_place_read_options)(context, *options, path));
  HARK_TRY(hark_config_finish(context, *options, stored));
  if (hark_options_problem_count(*options) == 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s", hark_options_problem(*options, 0));
}

hark_status hark_command_visit_differences(hark_invocation *call, const char *path, const hark_options *now, const hark_config *config,
                                           hark_difference_visitor *visit, void *user) {
  hark_config stored = {0};
  hark_options *options = NULL;
  hark_status status = hark_command_read_stored(call, path, &stored, &options);
  for (int i = 0; i < hark_config_table.count && status == HARK_OK; i++) {
    const hark_option *option = &hark_config_table.options[i];
    const bool idle = !hark_options_has_effect(now, option->name) && !hark_options_has_effect(options, option->name);
    if (!idle && !hark_config_agree(option, config, &stored)) status = visit(call, option, options, user);
  }
  hark_options_destroy(call->context, &options);
  return status;
}

hark_status hark_command_open_run(hark_invocation *call, const hark_config *config, const char *checkpoint, hark_opened_run *out) {
  *out = (hark_opened_run){.run.lock = -1};
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
  char path[HARK_PATH_BYTES];
  if (hark_command_names_model(call)) return hark_path_join(call->context, "", hark_options_argument(call->options, 0), out->run.path);
  HARK_TRY(hark_run_open_reading(call->context, hark_options_argument(call->options, 0), &out->run, out->checkpoint));
  if (out->checkpoint[0] == '\0') HARK_TRY(hark_checkpoint_choose(call->context, &out->run, checkpoint, out->checkpoint));
  HARK_TRY(hark_checkpoint_check_vocabulary(call->context, &out->run, out->checkpoint));
  HARK_TRY(hark_checkpoint_check_configuration(call->context, &out->run, out->checkpoint));
  if (hark_config_has_examples(config)) return HARK_OK; /* their vocabulary is compared, not read */
  HARK_TRY(hark_run_path(call->context, &out->run, "vocabulary.json", path));
  return hark_tokenizer_load(call->context, path, &out->tokenizer);
}

void hark_command_close_run(hark_invocation *call, hark_opened_run *opened) {
  hark_tokenizer_destroy(call->context, &opened->tokenizer);
  hark_run_close(&opened->run);
}

hark_status hark_command_refuse_data(hark_invocation *call, const hark_string_list *paths) {
  char others[32] = "";
  if (paths->count > 1) (void)snprintf(others, sizeof others, " and %" PRId64 " more", paths->count - 1);
  return hark_fail(call->context, HARK_BAD_FILE,
                   "%.300s%s: not what this run was trained on: it was changed or replaced; --data PATH measures another one",
                   paths->count > 0 ? paths->items[0] : "", others);
}

bool hark_command_names_run(hark_invocation *call) {
  char checkpoint[HARK_NAME_BYTES], weights[HARK_PATH_BYTES];
  hark_run run;
  const char *path = hark_options_argument(call->options, 0);
  const hark_path_kind kind = hark_path_kind_of(path);
  bool foreign = false;
  if (kind == HARK_PATH_FILE) return false;
  if (hark_foreign_find(call->context, path, weights, &foreign) == HARK_OK && foreign) return false;
  if (hark_run_open_reading(call->context, path, &run, checkpoint) == HARK_OK) return true;
  const bool joined = hark_path_join(call->context, path, HARK_WEIGHTS_FILE, weights) == HARK_OK;
  return !joined || hark_path_kind_of(weights) != HARK_PATH_FILE; /* neither: the error of the run is reported */
}

static hark_status load_checkpoint(hark_invocation *call, const hark_opened_run *opened, const hark_config *config, hark_text *description,
                                   hark_text *vocabulary, hark_model **out) {
  hark_context *context = call->context;
  char path[HARK_PATH_BYTES], folder[HARK_PATH_BYTES];
  if (opened->tokenizer != NULL) { /* for a model of examples the file of weights describes its data */
    HARK_TRY(hark_delimiters_settle(context, call->options, config, opened->tokenizer));
    hark_options_print_json(call->options, description);
  }
  HARK_TRY(description->status);
  HARK_TRY(hark_run_path(context, &opened->run, "vocabulary.json", path));
  HARK_TRY(hark_file_read_stored(context, path, HARK_VOCABULARY_MAX_BYTES, vocabulary));
  HARK_TRY(hark_run_path(context, &opened->run, HARK_CHECKPOINTS_FOLDER, folder));
  HARK_TRY(hark_path_join(context, folder, opened->checkpoint, path));
  HARK_TRY(hark_manifest_check(context, path, HARK_WEIGHTS_FILE, NULL));
  const hark_model_options options = {.struct_size = sizeof options,
                                      .skip_verification = true, /* already done */
                                      .description = opened->tokenizer != NULL ? hark_text_get(description) : NULL,
                                      .description_bytes = description->length,
                                      .vocabulary = hark_text_get(vocabulary),
                                      .vocabulary_bytes = vocabulary->length,
                                      .matrices = opened->matrices};
  return hark_model_load(context, path, &options, out);
}

/* Weights from versions whose descriptions lacked further delimiters would split only at the first one. */
static hark_status check_delimiters(hark_invocation *call, const hark_opened_run *opened, const hark_config *config,
                                    const hark_model *model) {
  const hark_ahca_config *requested = &config->model.ahca, *described = &model->network->config.ahca;
  if (config->model.architecture != HARK_ARCHITECTURE_AHCA || requested->chunk != HARK_AHCA_CHUNK_DELIMITER) return HARK_OK;
  if (hark_model_list_has_text(hark_model_list_of("model.ahca.more_delimiters"), &config->model)) return HARK_OK; /* of later versions */
  if (requested->other_delimiter_count == described->other_delimiter_count) return HARK_OK;
  return hark_fail(call->context, HARK_UNSUPPORTED,
                   "%s: its weights do not state model.ahca.more_delimiters, which an earlier version of hark did not write: one more step "
                   "of hark train --resume writes them",
                   opened->run.path);
}

hark_status hark_command_load_run(hark_invocation *call, const hark_opened_run *opened, const hark_config *config, hark_model **out) {
  hark_text description = hark_text_empty(call->context), vocabulary = hark_text_empty(call->context);
  *out = NULL;
  hark_status status = load_checkpoint(call, opened, config, &description, &vocabulary, out);
  if (status == HARK_OK) status = check_delimiters(call, opened, config, *out);
  if (status == HARK_OK && hark_config_has_sentences(config)) status = hark_model_mark_sentences(call->context, *out);
  if (status != HARK_OK) hark_model_destroy(call->context, out);
  hark_text_free(&description);
  hark_text_free(&vocabulary);
  return status;
}

hark_status hark_command_load_weights(hark_invocation *call, const hark_opened_run *opened, hark_engine *engine) {
  if (opened->checkpoint[0] == '\0') return hark_model_read_network(call->context, opened->run.path, engine->network);
  return hark_checkpoint_load(call->context, &opened->run, opened->checkpoint, engine, NULL);
}

hark_status hark_command_create_engine(hark_invocation *call, const hark_opened_run *opened, const hark_config *config,
                                       const hark_learning_task *task, hark_engine **out) {
  const hark_status status = hark_engine_create_to_measure(call->context, config, task, opened->matrices, out);
  if (status == HARK_UNSUPPORTED && opened->matrices != HARK_NONE)
    hark_fail_prefix(call->context, "--weights %s: ", hark_command_matrix_word(opened->matrices));
  return status;
}
