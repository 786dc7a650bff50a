/* eval.c - hark eval: the loss of a trained model over a whole text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/model.h"
#include "cli/progress.h"
#include "io/json.h"

typedef struct eval_values {
  const char *checkpoint;
  int split;
} eval_values;

static const hark_option options[] = {
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, offsetof(eval_values, checkpoint), "", NULL, NULL, "NAME",
     "best (default), last, or step-N"},
    {"part", "part", HARK_OPTION_ENUM, offsetof(eval_values, split), "validation", "training|validation", NULL, NULL,
     "which part of the run's own text; text given with --data is read whole"},
};
static const hark_option_table table = {options, 2, NULL, sizeof(eval_values), false};

/* config.yaml of the run that is evaluated. */
static hark_status find_stored(hark_invocation *call, char *path) {
  char checkpoint[HARK_NAME_BYTES];
  hark_run opened;
  HARK_TRY(hark_run_open_reading(call->context, hark_options_argument(call->options, 0), &opened, checkpoint));
  return hark_run_path(call->context, &opened, "config.yaml", path);
}

/* What changes the weights is a problem; the rest of the attention may be exchanged. */
static hark_status refuse_other_weights(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  (void)user;
  if (hark_config_bond(option->name) != HARK_BOND_WEIGHTS) return HARK_OK;
  hark_text value = hark_text_empty(call->context);
  hark_options_print_value(stored, option->name, &value);
  const hark_status status =
      hark_options_complain(call->context, call->options, option->name,
                            "%s decides which weights there are: those of this run were trained with %s, and eval can "
                            "exchange only what works with the same ones",
                            option->name, hark_text_get(&value));
  hark_text_free(&value);
  return status;
}

static hark_status check_swaps(hark_invocation *call, const hark_config *config) {
  char path[HARK_PATH_BYTES];
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  HARK_TRY(find_stored(call, path));
  const hark_status status = hark_command_visit_differences(call, path, config, refuse_other_weights, NULL);
  return status == HARK_BAD_FILE ? HARK_OK : status; /* problems of the run's file have been found already */
}

/* Appends "name": "value" of what was exchanged. */
static hark_status append_swap(hark_invocation *call, const hark_option *option, const hark_options *stored, void *user) {
  (void)stored;
  hark_text *text = user;
  if (hark_config_bond(option->name) == HARK_BOND_NONE) return HARK_OK;
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

static hark_status check(hark_invocation *call) {
  hark_config *config = call->values[1];
  HARK_TRY(hark_command_read_run(call, config));
  HARK_TRY(check_swaps(call, config));
  if (hark_options_source(call->options, "data.paths") == HARK_SOURCE_COMMAND) {
    /* Another text than the run's: all of it is what is measured. */
    config->data.validation_paths = config->data.paths;
    config->data.paths = (hark_string_list){0};
  }
  return HARK_OK;
}

static bool show(void *user, double part) {
  hark_progress_update(user, "evaluating %3.0f %%", 100 * part);
  return true;
}

static hark_status print(hark_invocation *call, const hark_opened_run *opened, const hark_evaluation_result *result,
                         const hark_text_counts *counts, double seconds) {
  hark_text swaps = hark_text_empty(call->context);
  char stored[HARK_PATH_BYTES];
  HARK_TRY(find_stored(call, stored));
  hark_status status = hark_command_visit_differences(call, stored, call->values[1], append_swap, &swaps);
  if (status == HARK_OK) status = swaps.status;
  if (status != HARK_OK) {
    hark_text_free(&swaps);
    return status;
  }
  const double per_byte = hark_bits_per_byte(counts, result->loss), per_character = hark_bits_per_character(counts, result->loss);
  if (!call->json) {
    printf("%s, %s: loss %.4f nats a token, perplexity %.3f, %.4f bits a character, %.4f bits a byte; %" PRId64 " targets in %.1f s\n",
           opened->run.path, opened->checkpoint, result->loss, exp(result->loss), per_character, per_byte, result->targets, seconds);
    if (swaps.length > 0) printf("exchanged: %s\n", hark_text_get(&swaps));
    hark_text_free(&swaps);
    return HARK_OK;
  }
  hark_text line = hark_text_empty(call->context);
  hark_text_append(&line, "{\"run\": ");
  hark_json_append_string(&line, opened->run.path);
  hark_text_append(&line, ", \"checkpoint\": ");
  hark_json_append_string(&line, opened->checkpoint);
  const struct {
    const char *name;
    double value;
  } numbers[] = {{"loss", result->loss},
                 {"perplexity", exp(result->loss)},
                 {"bits_per_byte", per_byte},
                 {"bits_per_character", per_character},
                 {"tokens_per_second", seconds > 0 ? (double)result->targets / seconds : 0},
                 {"time", seconds}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    hark_text_append(&line, ", \"%s\": ", numbers[i].name);
    hark_json_append_number(&line, numbers[i].value);
  }
  hark_text_append(&line, ", \"exchanged\": {%s}, \"targets\": %" PRId64 "}\n", hark_text_get(&swaps), result->targets);
  hark_text_free(&swaps);
  return hark_command_print(call, &line);
}

static hark_status measure(hark_invocation *call, const hark_config *config, hark_opened_run *opened) {
  const eval_values *values = call->values[0];
  hark_tokenizer *tokenizer = NULL;
  hark_corpus *corpus = NULL;
  hark_engine *engine = NULL;
  hark_evaluation_result result;
  const hark_split split = config->data.paths.count == 0 || values->split == 1 ? HARK_SPLIT_VALIDATION : HARK_SPLIT_TRAINING;
  HARK_TRY(hark_checkpoint_verify(call->context, &opened->run, opened->checkpoint, NULL));
  hark_status status = hark_run_corpus(call->context, config, &opened->run, false, &tokenizer, &corpus);
  if (status == HARK_OK) status = hark_engine_create(call->context, config, hark_tokenizer_size(tokenizer), false, &engine);
  if (status == HARK_OK) status = hark_checkpoint_load(call->context, &opened->run, opened->checkpoint, engine, NULL);
  if (status == HARK_OK) {
    hark_progress progress = hark_progress_begin();
    const double begin = hark_progress_clock();
    status = hark_evaluate(call->context, engine, corpus, split, show, &progress, &result);
    hark_progress_end(&progress);
    const hark_text_counts counts = hark_corpus_counts(corpus, split);
    if (status == HARK_OK) status = print(call, opened, &result, &counts, hark_progress_clock() - begin);
  }
  hark_engine_destroy(call->context, &engine);
  hark_corpus_close(call->context, &corpus);
  hark_tokenizer_destroy(call->context, &tokenizer);
  return status;
}

static hark_status run(hark_invocation *call) {
  const eval_values *values = call->values[0];
  const hark_config *config = call->values[1];
  hark_opened_run opened;
  hark_status status = hark_command_open_run(call, config, values->checkpoint, &opened);
  if (status == HARK_OK) status = measure(call, config, &opened);
  hark_command_close_run(call, &opened);
  return status;
}

const hark_command hark_command_eval = {
    .name = "eval",
    .arguments = "RUN",
    .summary = "measure the loss of a trained model over a whole text",
    .notes =
        "  hark eval runs/book                     the run's own validation text\n"
        "  hark eval runs/book --data other.txt    any other text, with the run's vocabulary\n"
        "  hark eval runs/book --structure window --window 128    the same weights with another attention\n"
        "\n"
        "  The checkpoint is compared with its manifest first.\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
