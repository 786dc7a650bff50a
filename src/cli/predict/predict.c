/* predict.c - hark predict: what a trained model predicts for examples, a row for each. */
#include "cli/predict/predict_examples.h"
#include "cli/predict/predict_tables.h"
#include "cli/run_examples.h"
#include "models/model.h"
#include "models/model_parts.h"

typedef struct predict_values {
  const char *checkpoint, *output;
  const char *context, *query, *target, *figure; /* of regressors */
  double interval;
  int part, tokens, solver;
  bool unlabelled;
  int64_t limit;
} predict_values;

#define STANDARD_OUTPUT "/dev/stdout"

#define AT(field) offsetof(predict_values, field)
static const hark_option options[] = {
    {"part", "part", HARK_OPTION_ENUM, AT(part), "validation", "training|validation|test", NULL, NULL,
     "part of the run's own examples, or of a folder that --data names; files that --data names are read completely", NULL},
    {"unlabelled", "unlabelled", HARK_OPTION_BOOL, AT(unlabelled), "false", NULL, NULL, NULL,
     "the files of --data have no labels: each line is a text, and JSON lines need no label", "data.format text"},
    {"limit", "limit", HARK_OPTION_INT, AT(limit), "0", "[0, inf)", NULL, "N", "only the first N examples; 0: all", NULL},
    {"tokens", "tokens", HARK_OPTION_ENUM, AT(tokens), "targets", "targets|all", NULL, NULL,
     "rows of models that predict tokens; targets: for tokens with a target; all: for every token", NULL},
    {"context_table", "context-table", HARK_OPTION_STRING, AT(context), "", NULL, NULL, "FILE",
     "regressors: table in CSV whose rows have known targets", "query given"},
    {"query", "query", HARK_OPTION_STRING, AT(query), "", NULL, NULL, "FILE",
     "regressors: table in CSV with the same columns, whose targets are predicted; it may have the targets, too", "context_table given"},
    {"target", "target", HARK_OPTION_STRING, AT(target), "", NULL, NULL, "NAME,...",
     "regressors: columns that are predicted; all other columns of the context are inputs", "query given"},
    {"figure", "figure", HARK_OPTION_STRING, AT(figure), "", NULL, NULL, "FILE",
     "regressors of one input: draw predictions and intervals as SVG, or as PNG if FILE ends in .png", "query given"},
    {"interval", "interval", HARK_OPTION_FLOAT, AT(interval), "0.9", "(0, 1)", NULL, NULL, "regressors: probability of the intervals",
     "query given"},
    {"solver", "solver", HARK_OPTION_ENUM, AT(solver), "automatic", "automatic|factor|conjugate-gradients", NULL, NULL,
     "regressors: how systems of kernel ridge attention are solved; automatic: conjugate gradients for more than 4,096 rows of context",
     "query given"},
    {"output", "output o", HARK_OPTION_STRING, AT(output), STANDARD_OUTPUT, NULL, NULL, "FILE", "file to write", NULL},
    {"checkpoint", "checkpoint", HARK_OPTION_STRING, AT(checkpoint), "", NULL, NULL, "NAME",
     "checkpoint of a run: best (default), last, or step-N", NULL},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(predict_values), false};

/* Runs whose models predict nothing. */
static hark_status check_model(hark_invocation *call, const hark_config *config) {
  const char *const path = hark_options_argument(call->options, 0), *const architecture =
                                                                        hark_architecture_of(config->model.architecture)->name;
  const char *const refusal = hark_predict_examples_refusal(config);
  if (hark_options_problem_count(call->options) > 0 || refusal == NULL) return HARK_OK;
  return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: a model of architecture %s, which %s", path, architecture, refusal);
}

static bool reads_tables(const hark_config *config) { return hark_architecture_of(config->model.architecture)->reads_tables; }

/* Options on the command line that are for other models. */
static hark_status refuse_idle(hark_invocation *call, const char *const *names, size_t count, const char *reason) {
  for (size_t i = 0; i < count; i++)
    if (hark_command_is_on_line(call, names[i])) HARK_TRY(hark_options_complain(call->context, call->options, names[i], "%s", reason));
  return HARK_OK;
}

static hark_status check_tables(hark_invocation *call, const predict_values *values) {
  static const char *const of_examples[] = {"part",
                                            "limit",
                                            "tokens",
                                            "data.format",
                                            "data.paths",
                                            "data.validation_paths",
                                            "data.test_paths",
                                            "data.length_limit",
                                            "data.context_least",
                                            "data.context_most",
                                            "data.queries",
                                            "data.classes",
                                            "train.batch"};
  const char *const path = hark_options_argument(call->options, 0);
  HARK_TRY(refuse_idle(call, of_examples, sizeof of_examples / sizeof *of_examples,
                       "has no effect here: a regressor reads the tables of --context-table and --query"));
  HARK_TRY(hark_command_check_checkpoint(call, path, values->checkpoint));
  if (values->context[0] == '\0' || values->query[0] == '\0' || values->target[0] == '\0')
    return hark_fail(call->context, HARK_BAD_CONFIGURATION,
                     "%s: is a regressor, expected --context-table FILE, --query FILE and --target NAME; hark eval measures it", path);
  return HARK_OK;
}

static hark_status check_tables_of(hark_invocation *call, bool classes, const predict_values *values) {
  static const char *const of_numbers[] = {"interval"};
  HARK_TRY(check_tables(call, values));
  return classes ? refuse_idle(call, of_numbers, 1, "has no effect here: the model predicts classes") : HARK_OK;
}

/* *tables: the argument is the file of a regressor, without its run; *classes: its targets are classes. */
static hark_status read_model(hark_invocation *call, const char *checkpoint, bool *tables, bool *classes) {
  hark_description description;
  *tables = *classes = false;
  if (!hark_command_names_model(call)) return HARK_OK;
  HARK_TRY(hark_model_read_description(call->context, hark_options_argument(call->options, 0), NULL, &description));
  *tables = hark_architecture_of(description.config.architecture)->reads_tables;
  *classes = *tables && description.config.regressor.loss == HARK_REGRESSOR_LOSS_CLASSES;
  hark_description_close(call->context, &description);
  if (*tables && checkpoint[0] != '\0')
    return hark_options_complain(call->context, call->options, "checkpoint", "has no effect here, it needs a run");
  return HARK_OK;
}

static hark_status check(hark_invocation *call) {
  static const char *const of_tables[] = {"context_table", "query", "target", "figure"};
  const predict_values *const values = call->values[0];
  hark_config *const config = call->values[1];
  if (hark_options_argument_count(call->options) < 1) return HARK_OK; /* reported by main */
  bool tables, classes;
  HARK_TRY(read_model(call, values->checkpoint, &tables, &classes));
  if (tables) return check_tables_of(call, classes, values);
  const hark_status status = hark_command_read_run(call, config);
  if (hark_command_names_model(call) && status != HARK_BAD_FILE && status != HARK_IO_ERROR && status != HARK_OUT_OF_MEMORY)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "%s: is a model, expected a run that was trained on labelled examples",
                     hark_options_argument(call->options, 0));
  HARK_TRY(status);
  if (reads_tables(config)) return check_tables_of(call, hark_config_table_classes(config) > 0, values);
  HARK_TRY(refuse_idle(call, of_tables, sizeof of_tables / sizeof *of_tables,
                       "has no effect here, it needs a run with --architecture regressor"));
  HARK_TRY(check_model(call, config));
  HARK_TRY(hark_command_check_checkpoint(call, hark_options_argument(call->options, 0), values->checkpoint));
  if (values->unlabelled && !hark_command_is_on_line(call, "data.paths"))
    HARK_TRY(hark_options_complain(call->context, call->options, "unlabelled", "has no effect here, it needs --data PATH"));
  HARK_TRY(hark_run_data_check_given(call, config, (hark_split)values->part));
  HARK_TRY(hark_run_data_find(call, config));
  hark_run_examples_replace(call, config);
  return HARK_OK;
}

/* By a regressor of a run. */
static hark_status predict_by_run(hark_invocation *call, const hark_config *config, const hark_opened_run *opened,
                                  const hark_predict_tables *settings) {
  hark_model *model = NULL;
  hark_status status = hark_command_load_run(call, opened, config, &model);
  if (status == HARK_OK) status = hark_predict_table(call, model, settings);
  hark_model_destroy(call->context, &model);
  return status;
}

/* By a regressor whose file was exported. */
static hark_status predict_by_file(hark_invocation *call, const hark_config *config, const hark_predict_tables *settings) {
  hark_model *model = NULL;
  HARK_TRY(hark_command_open(call, config->run.backend, config->run.threads, (uint64_t)config->train.seed, config->run.deterministic));
  hark_status status = hark_model_load(call->context, hark_options_argument(call->options, 0), NULL, &model);
  if (status == HARK_OK) status = hark_predict_table(call, model, settings);
  hark_model_destroy(call->context, &model);
  return status;
}

static hark_status run(hark_invocation *call) {
  const predict_values *const values = call->values[0];
  const hark_config *const config = call->values[1];
  const hark_predict_settings settings = {.output = values->output,
                                          .part = (hark_split)values->part,
                                          .unlabelled = values->unlabelled,
                                          .all_tokens = values->tokens == 1,
                                          .limit = values->limit};
  const hark_predict_tables tables = {.output = values->output,
                                      .context = values->context,
                                      .query = values->query,
                                      .target = values->target,
                                      .figure = values->figure,
                                      .interval = values->interval,
                                      .solver = values->solver};
  hark_opened_run opened;
  if (hark_command_names_model(call)) return predict_by_file(call, config, &tables);
  hark_status status = hark_command_open_run(call, config, values->checkpoint, &opened);
  if (status == HARK_OK && reads_tables(config))
    status = predict_by_run(call, config, &opened, &tables);
  else if (status == HARK_OK)
    status = hark_predict_examples(call, config, &opened, &settings);
  hark_command_close_run(call, &opened);
  return status;
}

const hark_command hark_command_predict = {
    .name = "predict",
    .arguments = "RUN",
    .summary = "print what a trained model predicts for examples, as a table",
    .notes =
        "  hark predict runs/films --part test                    class and probabilities of each test example, as CSV\n"
        "  hark predict runs/films --data new.tsv -o new.csv      other examples, in the format of the run\n"
        "  hark predict runs/films --data reviews.txt --unlabelled --json    texts without labels; JSON lines\n"
        "  hark predict runs/recall --data recall --part test     labelled tokens: a row for each target\n"
        "  hark predict runs/prior --context-table known.csv --query new.csv --target price    rows of a table, with intervals\n"
        "\n"
        "  docs/formats.md describes the columns.\n",
    .argument_minimum = 1,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table, &hark_config_table},
    .check = check,
    .run = run,
};
