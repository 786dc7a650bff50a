/* eval.c - hark eval: the loss of a trained model over a whole text, at one context or at several, or with several windows. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/eval/eval_examples.h"
#include "cli/eval/eval_report.h"
#include "cli/eval/eval_windows.h"
#include "cli/model.h"
#include "cli/processes.h"
#include "cli/progress.h"
#include "cli/run_examples.h"
#include "data/inputs.h"
#include "group/group.h"
#include "io/number.h"
#include "io/words.h"
#include "json/json.h"
#include "train/own_tokens.h"

#define LENGTHS_LIMIT 64
#define BATCH_TOKENS 2048                 /* of a batch with a model that is no run */
#define LENGTH_MAXIMUM ((int64_t)1 << 24) /* of model.context */

typedef struct eval_values {
  const char *checkpoint;
  int part;
  hark_string_list contexts, cuts;
  int64_t stride, targets, decisions;
  int weights;
  int64_t lengths[LENGTHS_LIMIT]; /* by check: the contexts, or the run's own */
  int length_count;
  hark_eval_windows windows; /* by check */
} eval_values;

#define AT(field) offsetof(eval_values, field)
static const hark_option options[] = {
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "checkpoint of a run: best (default), last, or step-N", NULL},
    {"part", "part", HARK_OPTION_ENUM, AT(part), "validation", "training|validation|test", NULL, NULL,
     "which part of the run's own text or examples is measured (test: only of examples); a text that is given "
     "with --data is measured completely",
     NULL},
    {"context", NULL, HARK_OPTION_LIST, AT(contexts), "", NULL, NULL, "N,...",
     "context lengths to evaluate, all on the same targets; not given: the run's own context", "data.format corpus, data.unit text"},
    {"stride", NULL, HARK_OPTION_INT, AT(stride), "0", "[0, 16777216]", NULL, NULL,
     "distance N between the beginnings of windows, in tokens; from the second window on, only the last N "
     "targets of a window are counted, so that each has a long context; 0: windows do not overlap",
     "data.format corpus, data.unit text"},
    {"targets", NULL, HARK_OPTION_INT, AT(targets), "0", "[0, inf)", NULL, NULL,
     "evaluate only the first N targets of the text; 0: all targets", "data.format corpus, data.unit text"},
    {"window-cut", "window-cut", HARK_OPTION_LIST, AT(cuts), "", NULL, NULL, "N,...|auto",
     "for each N, cut the attention of all layers to windows of N tokens on each side, and compare the loss "
     "with the loss of the uncut model; auto: 1, 2, 4, ... below the context",
     "data.format corpus, data.unit text, model.architecture decoder|masked_encoder"},
    {"decisions", NULL, HARK_OPTION_INT, AT(decisions), "0", "[0, inf)", NULL, NULL,
     "architecture ahca: --json reports chunks, selected tokens and depth of the first N examples or windows",
     "model.architecture ahca, json true"},
    HARK_WEIGHTS_OPTION(eval_values, weights),
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof options[0]), NULL, sizeof(eval_values), false};

/* config.yaml of the run that is evaluated, or the model. */
static hark_status find_stored(hark_invocation *call, char *path) {
  char checkpoint[HARK_NAME_BYTES];
  hark_run opened;
  if (hark_command_names_model(call)) return hark_path_join(call->context, "", hark_options_argument(call->options, 0), path);
  HARK_TRY(hark_run_open_reading(call->context, hark_options_argument(call->options, 0), &opened, checkpoint));
  return hark_run_path(call->context, &opened, "config.yaml", path);
}

/* An option that changes the weights is a problem; the rest of the attention may be replaced. */
static hark_status refuse_other_weights(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  (void)user;
  if (hark_config_bond(option->name) != HARK_BOND_WEIGHTS) return HARK_OK;
  hark_text value = hark_text_empty(call->context);
  hark_options_print_value(stored, option->name, &value);
  const hark_status status = hark_options_complain(
      call->context, call->options, option->name,
      "%s decides which weights the model has: it was trained with %s; hark eval can only exchange options that keep the weights",
      option->name, hark_text_get(&value));
  hark_text_free(&value);
  return status;
}

static hark_status check_swaps(hark_invocation *call, const hark_config *config) {
  char path[HARK_PATH_BYTES];
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  HARK_TRY(find_stored(call, path));
  const hark_status status = hark_command_visit_differences(call, path, call->options, config, refuse_other_weights, NULL);
  return status == HARK_BAD_FILE ? HARK_OK : status; /* problems of the run's file have been found already */
}

/* Parts of the model, how many tokens of an example it gets, and how tables are divided. */
static bool is_exchanged(const char *name) {
  static const char *const of_examples[] = {"data.length_limit", "data.context_least", "data.context_most", "data.queries"};
  bool exchanged = hark_config_bond(name) != HARK_BOND_NONE;
  for (size_t i = 0; i < sizeof of_examples / sizeof *of_examples; i++) exchanged = exchanged || strcmp(name, of_examples[i]) == 0;
  return exchanged;
}

/* Appends "name": "value" of a replaced part. */
static hark_status append_swap(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  (void)stored;
  hark_text *text = user;
  if (!is_exchanged(option->name)) return HARK_OK;
  hark_text value = hark_text_empty(call->context);
  hark_options_print_value(call->options, option->name, &value);
  if (text->length > 0) hark_text_append(text, ", ");
  hark_json_append_string(text, option->name);
  hark_text_append(text, ": ");
  hark_json_append_string(text, hark_text_get(&value));
  const hark_status status = value.status;
  hark_text_free(&value);
  return status;
}

/* The weights are exchanged for rounded ones. */
static void append_weights(const eval_values *values, hark_text *swaps) {
  const hark_type matrices = hark_command_matrix_type(values->weights);
  if (matrices == HARK_NONE) return;
  hark_text_append(swaps, "%s\"weights\": \"%s\"", swaps->length > 0 ? ", " : "", hark_command_matrix_word(matrices));
}

/* "256,512" */
static hark_status read_contexts(hark_invocation *call, const char *words) {
  eval_values *values = call->values[0];
  size_t length;
  int64_t context = 0;
  int read = 0;
  for (const char *at = words, *word; (word = hark_next_word(&at, ',', &length)) != NULL; read++) {
    if (!hark_number_read_whole(word, length, &context) || context < 1 || context > LENGTH_MAXIMUM)
      return hark_options_complain(call->context, call->options, "context", "\"%s\" given, expected whole numbers in [1, %" PRId64 "]",
                                   words, LENGTH_MAXIMUM);
    if (values->length_count == LENGTHS_LIMIT)
      return hark_options_complain(call->context, call->options, "context", "more than %d contexts", LENGTHS_LIMIT);
    for (int i = 0; i < values->length_count; i++)
      if (values->lengths[i] == context)
        return hark_options_complain(call->context, call->options, "context", "%" PRId64 " is given twice", context);
    values->lengths[values->length_count++] = context;
  }
  return read > 0 ? HARK_OK : hark_options_complain(call->context, call->options, "context", "no context given, expected N or N,N,...");
}

static hark_status check_contexts(hark_invocation *call, const hark_config *config) {
  eval_values *values = call->values[0];
  if (hark_config_reconstructs(config) && values->stride > 0)
    return hark_options_complain(call->context, call->options, "stride",
                                 "this run predicts all tokens of a window, expected windows that do not overlap");
  for (int64_t i = 0; i < values->contexts.count; i++) HARK_TRY(read_contexts(call, values->contexts.items[i]));
  if (values->contexts.count == 0) values->lengths[values->length_count++] = config->model.context;
  for (int i = 0; i < values->length_count; i++) {
    const int64_t length = values->lengths[i];
    if (config->model.positions == HARK_POSITIONS_LEARNED && length != config->model.context)
      return hark_options_complain(call->context, call->options, "context",
                                   "model.positions is learned for the %" PRId64 " tokens of the run's own context, not for %" PRId64,
                                   config->model.context, length);
    if (values->stride > length)
      return hark_options_complain(call->context, call->options, "stride",
                                   "%" PRId64 " would leave out targets between windows of %" PRId64 " tokens", values->stride, length);
  }
  return HARK_OK;
}

/* Only examples have a test part, and a text that --data names is measured as a whole. */
static hark_status check_part(hark_invocation *call, const hark_config *config) {
  const eval_values *values = call->values[0];
  if (hark_config_has_examples(config)) return HARK_OK;
  if (hark_command_is_given(call, "part") && hark_options_source(call->options, "data.paths") == HARK_SOURCE_COMMAND)
    return hark_options_complain(call->context, call->options, "part", "has no effect here: all of the text of --data is measured");
  if (values->part != HARK_SPLIT_TEST) return HARK_OK;
  return hark_options_complain(call->context, call->options, "part", "a text has no test part; --data measures another text");
}

/* Only masked tokens are drawn. */
static hark_status check_seed(hark_invocation *call, const hark_config *config) {
  if (!hark_command_is_on_line(call, "train.seed") || hark_architecture_of(config->model.architecture)->predicts_masked) return HARK_OK;
  return hark_options_complain(
      call->context, call->options, "train.seed",
      "has no effect here, it needs a run with --architecture masked_encoder: nothing else of an evaluation is random");
}

/* A model has no text of its own, and no checkpoints. */
static hark_status check_model(hark_invocation *call, const hark_config *config) {
  const eval_values *values = call->values[0];
  const char *const path = hark_options_argument(call->options, 0);
  if (!hark_command_is_on_line(call, "data.paths"))
    HARK_TRY(hark_options_complain(call->context, call->options, "data.paths",
                                   "%s is a model without a text of its own, expected --data PATH", path));
  if (values->checkpoint[0] != '\0')
    HARK_TRY(hark_options_complain(call->context, call->options, "checkpoint", "has no effect here, it needs a run: %s is a model", path));
  if (hark_config_has_examples(config))
    HARK_TRY(hark_options_complain(call->context, call->options, "data.format", "%s is a model of text, expected corpus", path));
  return HARK_OK;
}

static hark_status check(hark_invocation *call) {
  eval_values *const values = call->values[0];
  hark_config *config = call->values[1];
  HARK_TRY(hark_command_read_run(call, config));
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  HARK_TRY(hark_command_check_checkpoint(call, hark_options_argument(call->options, 0), values->checkpoint));
  if (hark_command_names_model(call)) HARK_TRY(check_model(call, config));
  HARK_TRY(check_swaps(call, config));
  HARK_TRY(check_part(call, config));
  HARK_TRY(check_seed(call, config));
  HARK_TRY(hark_run_data_check_given(call, config, (hark_split)values->part));
  HARK_TRY(hark_run_data_find(call, config));
  if (hark_config_has_examples(config)) {
    hark_run_examples_replace(call, config);
    return HARK_OK;
  }
  HARK_TRY(check_contexts(call, config));
  HARK_TRY(hark_eval_windows_read(call, config, &values->cuts, &values->windows));
  if (hark_options_source(call->options, "data.paths") == HARK_SOURCE_COMMAND) {
    /* Another text than that of the run is measured as a whole. */
    config->data.validation_paths = config->data.paths;
    config->data.paths = (hark_string_list){0};
  }
  return HARK_OK;
}

/* ---- measuring ---- */

/* Data and progress of the measurement of all contexts. */
typedef struct measured_text {
  hark_tokenizer *tokenizer;
  hark_corpus *corpus;
  hark_split split;
  hark_progress progress;
  int64_t context; /* of the current measurement */
} measured_text;

static bool show(void *user, double part) {
  measured_text *text = user;
  hark_progress_part(&text->progress, part, "evaluating, context %" PRId64, text->context);
  return true;
}

/* On the command line; otherwise the run's own. */
static bool is_other_text(const hark_invocation *call) {
  return hark_command_is_on_line(call, "data.paths") || hark_command_is_on_line(call, "data.validation_paths");
}

/* Tokens of a refused text are not stored for the run. */
static hark_status check_text(hark_invocation *call, const hark_opened_run *opened, const hark_corpus *corpus) {
  const hark_config *config = call->values[1];
  hark_run_state state;
  HARK_TRY(hark_checkpoint_read_state(call->context, &opened->run, opened->checkpoint, &state));
  if (hark_corpus_has_checksum(corpus, state.corpus_checksum)) return HARK_OK;
  if (!hark_corpus_was_cached(corpus)) HARK_TRY(hark_file_remove(call->context, hark_corpus_cache_path(corpus)));
  return hark_command_refuse_data(call, &config->data.paths);
}

static hark_status open_here(hark_invocation *call, const hark_opened_run *opened, measured_text *text) {
  const eval_values *values = call->values[0];
  const hark_config *config = call->values[1];
  text->split = config->data.paths.count == 0 || values->part == 1 ? HARK_SPLIT_VALIDATION : HARK_SPLIT_TRAINING;
  if (opened->checkpoint[0] == '\0') return hark_model_corpus(call->context, config, opened->run.path, &text->tokenizer, &text->corpus);
  const hark_status status = hark_run_corpus(call->context, config, &opened->run, false, &text->tokenizer, &text->corpus);
  if (is_other_text(call)) return status;
  if (status == HARK_BAD_FILE) hark_fail_prefix(call->context, "not what this run was trained on: "); /* the text could be read */
  return status == HARK_OK ? check_text(call, opened, text->corpus) : status;
}

/* Opens the text, first at rank 0, which may write its tokens to the folder of the run. */
static hark_status open_text(hark_invocation *call, const hark_opened_run *opened, measured_text *text) {
  hark_context *const context = call->context;
  const bool leads = hark_group_rank(context->group) == 0;
  HARK_TRY(hark_group_agree_patiently(context, context->group, leads ? open_here(call, opened, text) : HARK_OK));
  HARK_TRY(hark_group_agree(context, context->group, leads ? HARK_OK : open_here(call, opened, text)));
  return hark_group_compare(context, context->group, HARK_OK, hark_corpus_checksum(text->corpus), "data");
}

static void close_text(hark_invocation *call, measured_text *text) {
  hark_corpus_close(call->context, &text->corpus);
  hark_tokenizer_destroy(call->context, &text->tokenizer);
}

/* A requested context needs at least one whole window. The windows of a model that is no run are no longer than the text. */
static hark_status check_lengths(hark_invocation *call, const measured_text *text) {
  eval_values *values = call->values[0];
  const hark_config *const config = call->values[1];
  const int64_t all = hark_max(hark_corpus_counts(text->corpus, text->split).tokens - 1, 0);
  const int64_t targets = values->targets > 0 ? hark_min(values->targets, all) : all;
  const bool shortens = hark_command_names_model(call) && config->model.positions != HARK_POSITIONS_LEARNED;
  if (shortens && values->contexts.count == 0) {
    values->lengths[0] = hark_max(1, hark_min(values->lengths[0], targets));
    values->stride = hark_min(values->stride, values->lengths[0]);
  }
  for (int i = 0; i < values->length_count && values->contexts.count > 0; i++)
    if (values->lengths[i] > targets)
      return hark_fail(call->context, HARK_BAD_CONFIGURATION,
                       "context %" PRId64 " is longer than the text that is measured: %" PRId64 " targets", values->lengths[i], targets);
  return HARK_OK;
}

/* The run's configuration with windows of another length, and about as many tokens per batch. The context of its trained rates is
 * unchanged. */
static hark_config with_context(const hark_config *own, int64_t length) {
  hark_config config = *own;
  config.model.context = length;
  config.train.batch = hark_max(1, own->train.batch * own->model.context / length);
  if (config.model.rotary.original_context == 0) config.model.rotary.original_context = own->model.context;
  return config;
}

/* Room for a batch of windows as examples. */
static hark_status make_room(hark_invocation *call, const hark_config *config, hark_example_room *room) {
  const hark_example_extents extents = {.rows = config->train.batch, .parts = 1, .longest = config->model.context};
  return hark_example_room_make(call->context, &extents, room);
}

/* The loss over all sentences. */
static hark_status evaluate_sentences(hark_invocation *call, const hark_config *config, hark_engine *engine, measured_text *text,
                                      hark_evaluation_result *out) {
  const hark_sentences_settings settings = hark_sentences_settings_of(config, text->split, true);
  hark_sentences sentences;
  hark_example_room room = {0};
  hark_status status = hark_sentences_open(call->context, text->corpus, &settings, &sentences);
  if (status == HARK_OK) status = make_room(call, config, &room);
  if (status == HARK_OK) status = hark_evaluate_sentences(call->context, engine, &sentences, &room, show, text, out);
  hark_example_room_close(call->context, &room);
  hark_sentences_close(&sentences);
  return status;
}

/* The loss over all windows of a model that reconstructs its input. */
static hark_status evaluate_own(hark_invocation *call, const hark_config *config, hark_engine *engine, measured_text *text,
                                const hark_evaluation_settings *settings, hark_evaluation_result *out) {
  hark_example_room room = {0};
  hark_status status = make_room(call, config, &room);
  if (status == HARK_OK) status = hark_evaluate_own(call->context, engine, text->corpus, settings, &room, show, text, out);
  hark_example_room_close(call->context, &room);
  return status;
}

/* A model of other programs may have a longer context than there is memory for. */
static hark_status check_memory(hark_invocation *call, const hark_opened_run *opened, const hark_config *config,
                                const hark_learning_task *task) {
  hark_engine_memory memory;
  int64_t parameters = 0, tensors = 0;
  char what[96];
  if (opened->checkpoint[0] != '\0') return HARK_OK;
  HARK_TRY(hark_engine_estimate_for(call->context, config, task, false, &memory, &parameters, &tensors));
  const size_t weights = opened->matrices == HARK_NONE ? memory.weights : 0; /* those of other types are smaller */
  (void)snprintf(what, sizeof what, "a window of %" PRId64 " tokens%s", config->model.context,
                 config->model.positions != HARK_POSITIONS_LEARNED ? " (--context takes a shorter one)" : "");
  return hark_command_check_memory(call->context, what, (double)(weights + memory.step + memory.batch));
}

static hark_status evaluate(hark_invocation *call, const hark_opened_run *opened, measured_text *text, hark_eval_report *report) {
  const eval_values *values = call->values[0];
  const hark_config *const own = call->values[1];
  hark_config config = with_context(own, report->context);
  if (report->window != HARK_EVAL_UNCUT) hark_eval_windows_cut(&config, report->window);
  text->context = report->context;
  if (opened->checkpoint[0] == '\0') /* whose context may be much longer than the windows */
    config.train.batch = hark_command_is_on_line(call, "train.batch") ? own->train.batch : hark_max(1, BATCH_TOKENS / report->context);
  const hark_evaluation_task task = {.text = {.split = text->split, .stride = report->stride, .targets = values->targets},
                                     .positions = !hark_config_reconstructs(&config) && (call->json || values->contexts.count > 0),
                                     .progress = show,
                                     .user = text};
  hark_engine *engine = NULL;
  hark_learning_task learned;
  HARK_TRY(hark_material_task_of_text(call->context, &config, text->tokenizer, &learned));
  HARK_TRY(check_memory(call, opened, &config, &learned));
  HARK_TRY(hark_command_create_engine(call, opened, &config, &learned, &engine));
  hark_status status = hark_command_load_weights(call, opened, engine);
  if (status == HARK_OK) {
    const double begin = hark_progress_clock();
    if (config.model.architecture == HARK_ARCHITECTURE_AHCA) engine->statistics = &report->statistics;
    report->statistics.listed = values->decisions;
    if (hark_config_reconstructs(&config))
      status = evaluate_own(call, &config, engine, text, &task.text, &report->result);
    else if (hark_config_has_sentences(&config))
      status = evaluate_sentences(call, &config, engine, text, &report->result);
    else
      status = hark_evaluate(call->context, engine, text->corpus, &task, &report->result);
    report->seconds = hark_progress_clock() - begin;
    hark_progress_end(&text->progress);
  }
  hark_engine_destroy(call->context, &engine);
  if (status == HARK_OK && report->result.complete && report->result.targets == 0)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "the text has no targets%s",
                     report->hidden ? ": none of its tokens is masked, expected a longer text" : "");
  return status;
}

static hark_status print(hark_invocation *call, const hark_eval_report *report, bool contexts) {
  hark_text text = hark_text_empty(call->context);
  if (call->json)
    hark_eval_report_print_json(report, &text);
  else
    hark_eval_report_print(report, contexts, &text);
  return hark_command_print(call, &text);
}

/* The lines about all measurements, as text. */
static hark_status print_end(hark_invocation *call, const hark_eval_report *reports, int count, const char *exchanged) {
  const eval_values *values = call->values[0];
  hark_text text = hark_text_empty(call->context);
  if (exchanged[0] != '\0') hark_text_append(&text, "exchanged: %s\n", exchanged);
  if (reports[0].cut)
    hark_eval_windows_print(reports, count, &text);
  else if (values->contexts.count > 0)
    hark_eval_report_print_positions(reports, count, &text);
  return hark_command_print(call, &text);
}

/* Measures at the context and window of a report, and prints its line. */
static hark_status measure_one(hark_invocation *call, const hark_opened_run *opened, measured_text *text, const char *exchanged,
                               hark_eval_report *report) {
  const eval_values *values = call->values[0];
  hark_text decisions = hark_text_empty(call->context), all = hark_text_empty(call->context);
  hark_eval_windows_exchange(exchanged, report->window, &all);
  report->exchanged = hark_text_get(&all);
  if (values->decisions > 0) report->statistics.list = &decisions;
  hark_status status = all.status;
  if (status == HARK_OK) status = evaluate(call, opened, text, report);
  if (status == HARK_OK) status = print(call, report, values->contexts.count > 0);
  if (status == HARK_OK) status = hark_eval_check_loss(call->context, opened->run.path, opened->checkpoint, report->result.loss);
  hark_text_free(&decisions);
  hark_text_free(&all);
  report->statistics.list = NULL;
  report->exchanged = NULL;
  return status;
}

/* Number of measurements. */
static int measurement_count(const eval_values *values) {
  int count = 0;
  for (int i = 0; i < values->length_count; i++) count += hark_eval_windows_count(&values->windows, values->lengths[i]);
  return count;
}

/* Lines are printed as they come. */
static hark_status measure_contexts(hark_invocation *call, const hark_opened_run *opened, measured_text *text, const char *exchanged,
                                    hark_eval_report *reports) {
  const eval_values *values = call->values[0];
  const hark_config *config = call->values[1];
  int count = 0;
  for (int i = 0; i < values->length_count; i++)
    for (int w = 0; w < hark_eval_windows_count(&values->windows, values->lengths[i]); w++, count++) {
      reports[count] = (hark_eval_report){.run = opened->run.path,
                                          .checkpoint = opened->checkpoint,
                                          .context = values->lengths[i],
                                          .stride = values->stride,
                                          .cut = values->cuts.count > 0,
                                          .window = hark_eval_windows_at(&values->windows, values->lengths[i], w),
                                          .part = is_other_text(call)                  ? NULL
                                                  : text->split == HARK_SPLIT_TRAINING ? "training"
                                                                                       : "validation",
                                          .counts = hark_corpus_counts(text->corpus, text->split),
                                          .words = hark_tokenizer_kind_has_pieces(hark_tokenizer_kind_index(text->tokenizer)),
                                          .hidden = hark_architecture_of(config->model.architecture)->predicts_masked,
                                          .own = hark_config_reconstructs(config)};
      HARK_TRY(measure_one(call, opened, text, exchanged, &reports[count]));
    }
  return call->json ? HARK_OK : print_end(call, reports, count, exchanged);
}

static hark_status measure_examples(hark_invocation *call, const hark_opened_run *opened, const char *exchanged) {
  const eval_values *values = call->values[0];
  return hark_eval_examples(call, call->values[1], opened, (hark_split)values->part, exchanged, values->decisions);
}

static hark_status measure(hark_invocation *call, const hark_opened_run *opened) {
  const eval_values *values = call->values[0];
  measured_text text = {.progress = hark_progress_begin()};
  void *reports = NULL;
  size_t bytes = 0;
  char stored[HARK_PATH_BYTES];
  hark_text swaps = hark_text_empty(call->context);
  if (opened->checkpoint[0] != '\0') HARK_TRY(hark_checkpoint_verify(call->context, &opened->run, opened->checkpoint, NULL));
  HARK_TRY(find_stored(call, stored));
  hark_status status = hark_command_visit_differences(call, stored, call->options, call->values[1], append_swap, &swaps);
  if (status == HARK_OK) append_weights(values, &swaps);
  if (status == HARK_OK) status = swaps.status;
  if (status == HARK_OK && hark_config_has_examples(call->values[1])) {
    status = measure_examples(call, opened, hark_text_get(&swaps));
    hark_text_free(&swaps);
    return status;
  }
  if (status == HARK_OK) status = open_text(call, opened, &text);
  if (status == HARK_OK) status = check_lengths(call, &text);
  if (status == HARK_OK) bytes = (size_t)measurement_count(values) * sizeof(hark_eval_report);
  if (status == HARK_OK) status = hark_allocate(call->context, bytes, &reports);
  if (status == HARK_OK) status = measure_contexts(call, opened, &text, hark_text_get(&swaps), reports);
  hark_release(call->context, reports, bytes);
  close_text(call, &text);
  hark_text_free(&swaps);
  return status;
}

/* Standard input belongs to rank 0. */
static hark_status refuse_standard_input(hark_invocation *call, const hark_config *config) {
  const hark_string_list *const lists[] = {&config->data.paths, &config->data.validation_paths, &config->data.test_paths};
  for (size_t l = 0; l < sizeof lists / sizeof *lists && call->group != NULL; l++)
    for (int64_t i = 0; i < lists[l]->count; i++)
      if (hark_input_is_standard(lists[l]->items[i]))
        return hark_fail(call->context, HARK_BAD_CONFIGURATION, "several processes cannot read standard input, expected a file");
  return HARK_OK;
}

/* The processes of a launcher share the batches. Decisions of ahca are counted over all of them by rank 0, for which the others wait. */
static hark_status measure_together(hark_invocation *call, const hark_opened_run *opened) {
  hark_config *const config = call->values[1];
  const bool shares = config->model.architecture != HARK_ARCHITECTURE_AHCA;
  HARK_TRY(hark_command_join(call, config));
  HARK_TRY(refuse_standard_input(call, config));
  if (!shares) call->context->group = NULL;
  hark_status status = HARK_OK;
  if (shares || hark_group_rank(call->group) == 0) status = measure(call, opened);
  call->context->group = call->group;
  return shares ? status : hark_group_agree_patiently(call->context, call->group, status);
}

static hark_status run(hark_invocation *call) {
  const eval_values *values = call->values[0];
  const hark_config *config = call->values[1];
  hark_opened_run opened;
  hark_status status = hark_command_open_run(call, config, values->checkpoint, &opened);
  opened.matrices = hark_command_matrix_type(values->weights);
  if (status == HARK_OK) status = measure_together(call, &opened);
  hark_command_close_run(call, &opened);
  return status;
}

const hark_command hark_command_eval = {
    .name = "eval",
    .arguments = "RUN|FILE|FOLDER...",
    .summary = "measure a trained model over a whole text, or over labelled examples",
    .notes =
        "  hark eval runs/book                     the run's own validation text\n"
        "  hark eval runs/book --data other.txt    any other text, with the run's vocabulary\n"
        "  hark eval runs/a runs/b --data other.txt               several models on the same text\n"
        "  hark eval runs/book --structure window --window 128    the same weights with another attention\n"
        "  hark eval runs/book --window-cut 4,16,64               windows of three sizes: which distances matter\n"
        "  hark eval runs/book --context 256,512,1024             at longer contexts, on the same targets, and by "
        "position\n"
        "  hark eval runs/book --context 256,1024 --stride 64     targets after the first window: each predicted from at "
        "least 193 tokens\n"
        "  hark eval runs/book --context 1024 --rotary-scaling yarn --rotary-factor 4 --json >>lengths.jsonl\n"
        "  hark eval book.safetensors --data other.txt            a file of hark export or hark import\n"
        "  hark eval Qwen2-0.5B --data other.txt --context 1024   a folder of another program, with its own tokenizer\n"
        "  hark eval Qwen2-0.5B --data other.txt --context 1024 --structure hierarchical    how much the loss changes "
        "with another attention\n"
        "  hark eval runs/listops --part test      labelled examples: accuracy and confusion matrix\n"
        "  hark eval runs/chunks --decisions 10 --json            chunks, selected tokens and depth of the first ten examples or windows\n"
        "  hark plot --evaluation lengths.jsonl                   loss over context and over position\n"
        "\n"
        "  The checkpoint is compared with its manifest first. docs/evaluation.md describes what is measured.\n",
    .argument_minimum = 1,
    .argument_maximum = HARK_ANY_NUMBER,
    .for_each = true,
    .shares_work = true,
    .common_options =
        "checkpoint part data.paths data.validation_paths context stride targets window-cut weights model.attention.structure "
        "model.attention.window model.rotary.scaling model.rotary.scaling_factor run.threads train.batch json help help-all",
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
