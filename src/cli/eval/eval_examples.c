/* eval_examples.c - see eval_examples.h. */
#include "cli/eval/eval_examples.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "cli/ahca_text.h"
#include "cli/eval/eval_report.h"
#include "cli/progress.h"
#include "cli/run_examples.h"
#include "group/group.h"
#include "json/json.h"

#define SHOWN_CLASSES 20   /* a larger table does not fit on a terminal; --json has it */
#define TABLE_CLASSES 1024 /* with more classes there is no table: it would have 8 MiB, and soon all memory */

/* A measurement and its results. */
typedef struct measurement {
  hark_run_examples own;
  int64_t classes, *confusion; /* [classes, classes]; NULL: there are none, or too many */
  int64_t majority;            /* examples of the most frequent class */
  bool vectors;                /* numbers are predicted, which are neither correct nor incorrect */
  bool tables;                 /* the same for rows of tables */
  bool classified;             /* of tables: targets are classes */
  hark_examples_result result;
  hark_ahca_statistics statistics; /* zeros: the model has none */
  double seconds;
  hark_progress progress;
} measurement;

static bool show(void *user, double part) {
  hark_progress_part(&((measurement *)user)->progress, part, "evaluating");
  return true;
}

static size_t confusion_bytes(const measurement *m) { return (size_t)(m->classes * m->classes) * sizeof *m->confusion; }

/* Part of the targets; of an empty split 0. */
static double part_of(int64_t count, int64_t all) { return all > 0 ? (double)count / (double)all : 0; }

static hark_status count_majority(hark_context *context, measurement *m) {
  const size_t bytes = (size_t)m->classes * sizeof(int64_t);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  int64_t *const counts = memory;
  for (int64_t i = 0; i < m->own.batches.count; i++) {
    const int64_t index = hark_example_batches_index(&m->own.batches, i);
    const int64_t count = ++counts[hark_examples_label(m->own.examples, m->own.split, index)];
    m->majority = hark_max(m->majority, count);
  }
  hark_release(context, memory, bytes);
  return HARK_OK;
}

/* Names of predictors of tables, in text and JSON, of numbers and of classes. */
static const char *const predictors[2][HARK_TABLE_PREDICTORS][2] = {
    {{"model", "model"}, {"linear regression baseline", "linear"}, {"mean of the context baseline", "mean"}},
    {{"model", "model"}, {"linear discriminant baseline", "linear"}, {"frequencies baseline", "majority"}}};

static void print_predictors(const measurement *m, hark_text *text) {
  for (int i = 0; i < HARK_TABLE_PREDICTORS; i++) {
    const hark_table_result *const r = &m->result.tables[i];
    hark_text_append(text, ", \"%s\": {\"loss\": ", predictors[m->classified][i][1]);
    hark_json_append_number(text, r->loss);
    hark_text_append(text, m->classified ? ", \"brier_score\": " : ", \"root_mean_square_error\": ");
    hark_json_append_number(text, m->classified ? r->mean_square : sqrt(r->mean_square));
    hark_text_append(text, m->classified ? ", \"accuracy\": " : ", \"coverage_90\": ");
    hark_json_append_number(text, r->coverage);
    hark_text_append(text, "}");
  }
}

static void print_tables(const measurement *m, hark_text *text) {
  const hark_examples_result *r = &m->result;
  hark_text_append(text, ": %" PRId64 " tables, %" PRId64 " predicted rows in %.1f s\n%-30s %12s %12s %18s\n", r->examples, r->targets,
                   m->seconds, "", "nats", m->classified ? "Brier score" : "RMSE", m->classified ? "accuracy" : "in 90 % intervals");
  for (int i = 0; i < HARK_TABLE_PREDICTORS; i++)
    hark_text_append(text, "%-30s %12.4f %12.6g %16.2f %%\n", predictors[m->classified][i][0], r->tables[i].loss,
                     m->classified ? r->tables[i].mean_square : sqrt(r->tables[i].mean_square), 100 * r->tables[i].coverage);
}

static void print_json(const measurement *m, const hark_opened_run *opened, const char *exchanged, hark_text *text) {
  const hark_examples_result *r = &m->result;
  hark_text_append(text, "{");
  hark_json_append_path(text, "run", opened->run.path);
  hark_text_append(text, ", \"checkpoint\": ");
  hark_json_append_string(text, opened->checkpoint);
  hark_text_append(text, ", \"part\": \"%s\", \"loss\": ", hark_run_examples_part(&m->own));
  hark_json_append_number(text, r->loss);
  if (m->tables) {
    print_predictors(m, text);
  } else if (m->vectors) {
    hark_text_append(text, ", \"squared_error\": ");
    hark_json_append_number(text, r->loss);
  } else {
    hark_text_append(text, ", \"accuracy\": ");
    hark_json_append_number(text, part_of(r->correct, r->targets));
  }
  if (m->classes > 0) {
    hark_text_append(text, ", \"majority\": ");
    hark_json_append_number(text, part_of(m->majority, r->targets));
  }
  if (!m->tables) hark_text_append(text, ", \"right\": %" PRId64, r->correct);
  hark_text_append(text, ", \"targets\": %" PRId64 ", \"examples\": %" PRId64 ", \"%s\": %" PRId64 ", \"time\": ", r->targets, r->examples,
                   m->tables ? "rows" : "tokens", r->tokens);
  hark_json_append_number(text, m->seconds);
  hark_text_append(text, ", \"exchanged\": {%s}", exchanged);
  const hark_ahca_report chunks = hark_ahca_report_of(&m->statistics);
  hark_ahca_text_append(&chunks, true, text);
  hark_ahca_decisions_append(&m->statistics, text);
  if (m->classes > 0) hark_text_append(text, ", \"classes\": [");
  for (int64_t c = 0; c < m->classes; c++) {
    if (c > 0) hark_text_append(text, ", ");
    hark_json_append_string(text, hark_examples_class_name(m->own.examples, (int32_t)c));
  }
  hark_text_append(text, m->classes > 0 ? "]" : "");
  if (m->confusion != NULL) hark_text_append(text, ", \"confusion\": [");
  for (int64_t i = 0; m->confusion != NULL && i < m->classes * m->classes; i++) {
    if (i % m->classes == 0) hark_text_append(text, i > 0 ? "], [" : "[");
    hark_text_append(text, i % m->classes == 0 ? "%" PRId64 : ", %" PRId64, m->confusion[i]);
  }
  hark_text_append(text, m->confusion != NULL ? "]]}\n" : "}\n");
}

static void print_confusion(const measurement *m, hark_text *text) {
  hark_text_append(text, "\n%-16s predicted:", "class");
  for (int64_t column = 0; column < m->classes; column++)
    hark_text_append(text, " %8.8s", hark_examples_class_name(m->own.examples, (int32_t)column));
  for (int64_t actual = 0; actual < m->classes; actual++) {
    hark_text_append(text, "\n%-22.22s", hark_examples_class_name(m->own.examples, (int32_t)actual));
    for (int64_t column = 0; column < m->classes; column++)
      hark_text_append(text, " %8" PRId64, m->confusion[actual * m->classes + column]);
  }
  hark_text_append(text, "\n");
}

static void print(const measurement *m, const hark_opened_run *opened, const char *exchanged, hark_text *text) {
  const hark_examples_result *r = &m->result;
  hark_text_append_shown(text, opened->run.path);
  if (m->tables) {
    hark_text_append(text, ", %s, %s", opened->checkpoint, hark_run_examples_part(&m->own));
    print_tables(m, text);
    if (exchanged[0] != '\0') hark_text_append(text, "exchanged: %s\n", exchanged);
    return;
  }
  if (m->vectors) {
    hark_text_append(text, ", %s: %s squared error %.6f per example; %" PRId64 " examples, %" PRId64 " tokens in %.1f s\n",
                     opened->checkpoint, hark_run_examples_part(&m->own), r->loss, r->examples, r->tokens, m->seconds);
    if (exchanged[0] != '\0') hark_text_append(text, "exchanged: %s\n", exchanged);
    return;
  }
  hark_text_append(
      text, ", %s: %s accuracy %.2f %% (%" PRId64 " of %" PRId64 "), loss %.4f nats; %" PRId64 " examples, %" PRId64 " tokens in %.1f s\n",
      opened->checkpoint, hark_run_examples_part(&m->own), 100 * part_of(r->correct, r->targets), r->correct, r->targets, r->loss,
      r->examples, r->tokens, m->seconds);
  if (m->classes > 0) hark_text_append(text, "majority baseline: accuracy %.2f %%\n", 100 * part_of(m->majority, r->targets));
  if (exchanged[0] != '\0') hark_text_append(text, "exchanged: %s\n", exchanged);
  const hark_ahca_report chunks = hark_ahca_report_of(&m->statistics);
  hark_ahca_text_append(&chunks, false, text);
  if (m->classes > 0 && m->classes <= SHOWN_CLASSES)
    print_confusion(m, text);
  else if (m->classes > 0)
    hark_text_append(
        text, "confusion matrix: %s\n",
        m->confusion != NULL ? "with this number of classes, it is only in --json" : "not computed for this number of classes");
}

static hark_status open_examples(hark_invocation *call, const hark_config *config, const hark_opened_run *opened, hark_split split,
                                 measurement *m) {
  HARK_TRY(hark_run_examples_open(call, config, opened, split, HARK_DATA_GIVEN, &m->own));
  hark_learning_task task;
  HARK_TRY(hark_material_task_of(call->context, config, m->own.examples, &task));
  m->classes = task.classes;
  m->vectors = task.features > 0;
  m->tables = task.tables;
  m->classified = task.classified;
  if (m->classes > 0) HARK_TRY(count_majority(call->context, m));
  if (m->classes == 0 || m->classes > TABLE_CLASSES) return HARK_OK;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(call->context, confusion_bytes(m), &memory));
  m->confusion = memory;
  return HARK_OK;
}

static hark_status measure(hark_invocation *call, const hark_config *config, const hark_opened_run *opened, measurement *m) {
  hark_learning_task task;
  hark_engine *engine = NULL;
  HARK_TRY(hark_material_task_of(call->context, config, m->own.examples, &task));
  HARK_TRY(hark_command_create_engine(call, opened, config, &task, &engine));
  hark_status status = hark_checkpoint_load(call->context, &opened->run, opened->checkpoint, engine, NULL);
  if (status == HARK_OK) {
    const double begin = hark_progress_clock();
    if (config->model.architecture == HARK_ARCHITECTURE_AHCA) engine->statistics = &m->statistics;
    status = hark_evaluate_examples(call->context, engine, &m->own.batches, &m->own.room, m->confusion, show, m, &m->result);
    m->seconds = hark_progress_clock() - begin;
    hark_progress_end(&m->progress);
  }
  hark_engine_destroy(call->context, &engine);
  if (status == HARK_OK && m->result.complete && m->result.targets == 0)
    return hark_fail(call->context, HARK_BAD_CONFIGURATION, "the %s examples have no targets%s", hark_run_examples_part(&m->own),
                     config->data.length_limit > 0 ? " among the tokens that data.length_limit keeps" : "");
  return status;
}

hark_status hark_eval_examples(hark_invocation *call, const hark_config *config, const hark_opened_run *opened, hark_split split,
                               const char *exchanged, int64_t decisions) {
  measurement m = {.progress = hark_progress_begin(), .statistics = {.listed = decisions}};
  hark_text text = hark_text_empty(call->context), list = hark_text_empty(call->context);
  if (decisions > 0) m.statistics.list = &list;
  hark_status status = open_examples(call, config, opened, split, &m);
  status = hark_group_compare(call->context, call->context->group, status, status == HARK_OK ? hark_examples_checksum(m.own.examples) : 0,
                              "data");
  if (status == HARK_OK) status = measure(call, config, opened, &m);
  if (status == HARK_OK) {
    (call->json ? print_json : print)(&m, opened, exchanged, &text);
    status = hark_command_print(call, &text);
    if (status == HARK_OK) status = hark_eval_check_loss(call->context, opened->run.path, opened->checkpoint, m.result.loss);
  }
  hark_text_free(&list);
  hark_release(call->context, m.confusion, m.confusion != NULL ? confusion_bytes(&m) : 0);
  hark_run_examples_close(call->context, &m.own);
  return status;
}
