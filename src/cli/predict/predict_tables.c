/* predict_tables.c - see predict_tables.h. Inputs are the columns of the context that are not targets, in the order of the file. The query
 * has columns of the same names, in any order. A model with more inputs gets columns of zeros in place of the others.
 */
#include "cli/predict/predict_tables.h"

#include <hark/regressor.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/predict/predict_figure.h"
#include "cli/predict/predict_output.h"
#include "data/tables/classes.h"
#include "data/tables/columns.h"

typedef struct prediction {
  hark_invocation *call;
  const hark_predict_tables *settings;
  const hark_model *model;
  hark_regressor *regressor;
  hark_table *context, *query;
  int64_t inputs, targets;    /* of the model */
  int64_t used;               /* inputs in the tables */
  const double **known;       /* [inputs + targets]: columns of the context, inputs first; NULL: a column of zeros */
  const double **asked;       /* [inputs + targets]: the same of the query; targets may be absent */
  const char **names;         /* [targets] */
  const char *input_name;     /* of the last input */
  int64_t class_count;        /* of the model; 0: targets are numbers */
  hark_table_classes classes; /* of the context */
  int32_t asked_class;        /* column of the query; -1: none */
  float *numbers;             /* rows of context, rows of queries, results */
  size_t column_bytes, number_bytes;
  hark_predict_output output;
} prediction;

/* ---- columns ---- */

static hark_status find_targets(prediction *p, int32_t *columns) {
  int32_t count;
  HARK_TRY(hark_table_columns(p->call->context, p->context, "--target", p->settings->target, columns, &count));
  if (count == p->targets) return HARK_OK;
  return hark_fail(p->call->context, HARK_BAD_CONFIGURATION, "--target: the model predicts %" PRId64 " %s, expected as many columns",
                   p->targets, p->targets == 1 ? "target" : "targets");
}

static bool is_target(const prediction *p, const int32_t *targets, int32_t column) {
  for (int64_t i = 0; i < p->targets; i++)
    if (targets[i] == column) return true;
  return false;
}

/* The target is the column of a class. */
static hark_status find_classes(prediction *p, int32_t target) {
  hark_context *const context = p->call->context;
  HARK_TRY(hark_table_classes_open(context, p->context, target, p->class_count, &p->classes));
  p->names[0] = p->context->columns[target].name;
  p->asked_class = hark_table_find(p->query, p->names[0]);
  if (p->classes.count >= 2) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: column \"%s\" has the same value in all rows, expected at least two classes",
                   p->context->path, p->names[0]);
}

static hark_status find_columns(prediction *p, const int32_t *targets) {
  hark_context *const context = p->call->context;
  for (int32_t c = 0; c < p->context->column_count; c++) {
    int32_t same;
    if (is_target(p, targets, c)) continue;
    if (p->used == p->inputs)
      return hark_fail(context, HARK_BAD_CONFIGURATION,
                       "%s: %" PRId32 " columns that are not targets, and the model reads at most %" PRId64, p->context->path,
                       p->context->column_count - (int32_t)p->targets, p->inputs);
    HARK_TRY(hark_table_numbers(context, p->context, c, &p->known[p->used]));
    HARK_TRY(hark_table_need(context, p->query, p->context->columns[c].name, &same));
    HARK_TRY(hark_table_numbers(context, p->query, same, &p->asked[p->used++]));
    p->input_name = p->context->columns[c].name;
  }
  if (p->class_count > 0) return find_classes(p, targets[0]);
  for (int64_t t = 0; t < p->targets; t++) {
    const int32_t column = hark_table_find(p->query, p->context->columns[targets[t]].name);
    p->names[t] = p->context->columns[targets[t]].name;
    HARK_TRY(hark_table_numbers(context, p->context, targets[t], &p->known[p->inputs + t]));
    if (column >= 0) HARK_TRY(hark_table_numbers(context, p->query, column, &p->asked[p->inputs + t]));
    for (int64_t row = 0; row < p->context->rows; row++)
      if (isnan(p->known[p->inputs + t][row]))
        return hark_table_fail(context, p->context, row, targets[t],
                               "the target is missing, expected a number in every row of the context");
  }
  return HARK_OK;
}

static hark_status choose_columns(prediction *p) {
  hark_context *const context = p->call->context;
  const size_t columns = (size_t)(p->inputs + p->targets);
  void *memory = NULL;
  p->column_bytes = (2 * columns + (size_t)p->targets) * sizeof(void *) + (size_t)p->context->column_count * sizeof(int32_t);
  HARK_TRY(hark_allocate_zero(context, p->column_bytes, &memory));
  p->known = memory;
  p->asked = p->known + columns;
  p->names = (const char **)(p->asked + columns);
  int32_t *const targets = (int32_t *)(p->names + p->targets);
  HARK_TRY(find_targets(p, targets));
  return find_columns(p, targets);
}

/* ---- predicting ---- */

/* Row `row` of the columns, as numbers of 32 bits. */
static hark_status copy_row(const prediction *p, const hark_table *table, const double *const *columns, int64_t count, int64_t row,
                            float *out) {
  for (int64_t c = 0; c < count; c++) {
    out[c] = columns[c] != NULL ? (float)columns[c][row] : 0;
    if (isinf(out[c]))
      return hark_fail(p->call->context, HARK_BAD_FILE, "%s:%" PRId64 ": a number is beyond the range of 32 bits", table->path,
                       table->lines[row]);
  }
  return HARK_OK;
}

static hark_status make_numbers(prediction *p) {
  const size_t known = (size_t)p->context->rows * (size_t)(p->inputs + p->targets), asked = (size_t)p->query->rows * (size_t)p->inputs;
  const size_t results = (size_t)p->query->rows * (size_t)(p->class_count > 0 ? p->class_count : 2 * p->targets);
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(p->call->context, known + asked + results, sizeof(float), &p->number_bytes));
  HARK_TRY(hark_allocate(p->call->context, p->number_bytes, &memory));
  p->numbers = memory;
  for (int64_t row = 0; row < p->context->rows; row++)
    HARK_TRY(copy_row(p, p->context, p->known, p->inputs + p->targets, row, p->numbers + row * (p->inputs + p->targets)));
  for (int64_t row = 0; row < p->context->rows && p->class_count > 0; row++)
    p->numbers[row * (p->inputs + 1) + p->inputs] = (float)p->classes.of_row[row];
  for (int64_t row = 0; row < p->query->rows; row++)
    HARK_TRY(copy_row(p, p->query, p->asked, p->inputs, row, p->numbers + (int64_t)known + row * p->inputs));
  return HARK_OK;
}

/* The number of deviations on each side of the mean of a normal distribution with this probability between: bisection of erf. */
static double deviations_of(double probability) {
  double low = 0, high = 40;
  for (int i = 0; i < 200; i++) {
    const double middle = (low + high) / 2;
    *(erf(middle / sqrt(2)) < probability ? &low : &high) = middle;
  }
  return high;
}

static void add_columns(prediction *p, bool compared) {
  static const char *const parts[] = {"predicted", "deviation", "lower", "upper", "target"};
  char prefix[32];
  for (int64_t t = 0; t < p->targets; t++)
    for (int i = 0; i < (compared ? 5 : 4); i++) {
      (void)snprintf(prefix, sizeof prefix, p->targets > 1 ? "%s_" : "%s", parts[i]);
      hark_predict_output_column(&p->output, prefix, p->targets > 1 ? p->names[t] : "");
    }
}

static hark_status write_rows(prediction *p, const float *mean, const float *variance) {
  const double reach = deviations_of(p->settings->interval);
  bool compared = true;
  for (int64_t t = 0; t < p->targets; t++) compared = compared && p->asked[p->inputs + t] != NULL;
  add_columns(p, compared);
  HARK_TRY(hark_predict_output_begin(&p->output));
  for (int64_t row = 0; row < p->query->rows; row++) {
    for (int64_t t = 0; t < p->targets; t++) {
      const double predicted = mean[row * p->targets + t], deviation = sqrt((double)variance[row * p->targets + t]);
      const double target = compared ? p->asked[p->inputs + t][row] : NAN;
      hark_predict_output_number(&p->output, predicted, true);
      hark_predict_output_number(&p->output, deviation, true);
      hark_predict_output_number(&p->output, predicted - reach * deviation, true);
      hark_predict_output_number(&p->output, predicted + reach * deviation, true);
      if (compared && isnan(target)) hark_predict_output_text(&p->output, NULL);
      if (compared && !isnan(target)) hark_predict_output_number(&p->output, target, false);
    }
    HARK_TRY(hark_predict_output_end_row(&p->output));
  }
  return hark_predict_output_finish(&p->output);
}

/* The value of the query's own class, if it is known. */
static void write_given(prediction *p, int64_t row) {
  const hark_table_column *const column = &p->query->columns[p->asked_class];
  const bool texts = column->kind == HARK_TABLE_TEXTS, missing = texts ? column->codes[row] < 0 : isnan(column->numbers[row]);
  if (texts || missing)
    hark_predict_output_text(&p->output, missing ? NULL : column->texts[column->codes[row]]);
  else
    hark_predict_output_number(&p->output, column->numbers[row], false);
}

static void write_class(prediction *p, int64_t index) {
  if (p->classes.numbers == NULL)
    hark_predict_output_text(&p->output, p->classes.texts[index]);
  else
    hark_predict_output_number(&p->output, p->classes.numbers[index], false);
}

static hark_status write_classes(prediction *p, const float *probabilities) {
  char name[HARK_CLASS_NAME_ROOM];
  hark_predict_output_column(&p->output, "predicted", "");
  if (p->asked_class >= 0) hark_predict_output_column(&p->output, "target", "");
  for (int64_t c = 0; c < p->classes.count; c++)
    hark_predict_output_column(&p->output, "probability_", hark_table_class_name(&p->classes, c, name));
  HARK_TRY(hark_predict_output_begin(&p->output));
  for (int64_t row = 0; row < p->query->rows; row++) {
    const float *const of_row = probabilities + row * p->class_count;
    int64_t likeliest = 0;
    for (int64_t c = 1; c < p->classes.count; c++)
      if (of_row[c] > of_row[likeliest]) likeliest = c;
    write_class(p, likeliest);
    if (p->asked_class >= 0) write_given(p, row);
    for (int64_t c = 0; c < p->classes.count; c++) hark_predict_output_number(&p->output, of_row[c], true);
    HARK_TRY(hark_predict_output_end_row(&p->output));
  }
  return hark_predict_output_finish(&p->output);
}

/* Over the only input: rows of the context and predictions whose input is not missing. */
static hark_status draw(prediction *p, const float *mean, const float *variance) {
  const int64_t n = p->context->rows, m = p->query->rows;
  const double reach = deviations_of(p->settings->interval);
  size_t known_bytes = 0, bytes = 0;
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(p->call->context, (size_t)n, 2 * sizeof(double), &known_bytes));
  HARK_TRY(hark_size_multiply(p->call->context, (size_t)m, sizeof(hark_predict_point), &bytes));
  HARK_TRY(hark_size_add(p->call->context, bytes, known_bytes, &bytes));
  HARK_TRY(hark_allocate(p->call->context, bytes, &memory));
  double *const known = memory;
  hark_predict_figure figure = {.path = p->settings->figure,
                                .input = p->input_name,
                                .target = p->names[0],
                                .interval = p->settings->interval,
                                .known = known,
                                .points = (hark_predict_point *)(known + 2 * n)};
  for (int64_t row = 0; row < n; row++) {
    if (isnan(p->known[0][row])) continue;
    known[2 * figure.known_count] = p->known[0][row];
    known[2 * figure.known_count++ + 1] = p->known[p->inputs][row];
  }
  for (int64_t row = 0; row < m; row++) {
    const double deviation = sqrt((double)variance[row]);
    if (isnan(p->asked[0][row])) continue;
    figure.points[figure.point_count++] =
        (hark_predict_point){p->asked[0][row], mean[row], mean[row] - reach * deviation, mean[row] + reach * deviation};
  }
  const hark_status status = hark_predict_draw(p->call, &figure);
  hark_release(p->call->context, memory, bytes);
  return status;
}

/* A figure needs one input and one target that is a number. */
static hark_status check_figure(const prediction *p) {
  if (p->settings->figure[0] == '\0') return HARK_OK;
  if (strcmp(p->settings->figure, p->settings->output) == 0)
    return hark_fail(p->call->context, HARK_BAD_CONFIGURATION, "--figure and --output: both write %s, expected two files",
                     p->settings->figure);
  if (p->class_count == 0 && p->used == 1 && p->targets == 1) {
    for (int64_t row = 0; row < p->query->rows; row++)
      if (!isnan(p->asked[0][row])) return HARK_OK;
    return hark_fail(p->call->context, HARK_BAD_FILE, "%s: column \"%s\" has no numbers to draw", p->query->path, p->input_name);
  }
  return hark_fail(p->call->context, HARK_BAD_CONFIGURATION,
                   "--figure: draws one target, a number, over one input, and %s has %" PRId64 " %s and %" PRId64 " %s", p->context->path,
                   p->targets,
                   p->class_count > 0 ? "target of classes"
                   : p->targets == 1  ? "target"
                                      : "targets",
                   p->used, p->used == 1 ? "input" : "inputs");
}

static hark_status predict(prediction *p) {
  const int64_t n = p->context->rows, m = p->query->rows;
  const hark_regressor_options options = {.struct_size = sizeof options, .context_rows = n, .query_rows = m, .solver = p->settings->solver};
  if (n < 2)
    return hark_fail(p->call->context, HARK_BAD_FILE, "%s: 1 row, expected at least 2 rows whose targets are known", p->context->path);
  HARK_TRY(make_numbers(p));
  const float *const queries = p->numbers + n * (p->inputs + p->targets);
  float *const mean = p->numbers + n * (p->inputs + p->targets) + m * p->inputs, *const variance = mean + m * p->targets;
  const hark_regressor_table table = {
      .struct_size = sizeof table, .context_rows = n, .query_rows = m, .context = p->numbers, .queries = queries};
  HARK_TRY(hark_regressor_create(p->call->context, p->model, &options, &p->regressor));
  const hark_status status =
      p->class_count > 0 ? hark_regressor_classify(p->regressor, &table, mean) : hark_regressor_run(p->regressor, &table, mean, variance);
  if (status != HARK_OK) hark_fail_prefix(p->call->context, "%s: ", p->context->path);
  HARK_TRY(status);
  HARK_TRY(hark_predict_output_open(p->call->context, p->settings->output, p->call->json, &p->output));
  HARK_TRY(p->class_count > 0 ? write_classes(p, mean) : write_rows(p, mean, variance));
  return p->settings->figure[0] != '\0' ? draw(p, mean, variance) : HARK_OK;
}

hark_status hark_predict_table(hark_invocation *call, const hark_model *model, const hark_predict_tables *settings) {
  hark_context *const context = call->context;
  prediction p = {.call = call, .settings = settings, .model = model};
  hark_status status = hark_regressor_describe(context, p.model, &p.inputs, &p.targets);
  if (status == HARK_OK) status = hark_regressor_class_count(context, p.model, &p.class_count);
  if (status == HARK_OK) status = hark_table_open(context, settings->context, &p.context);
  if (status == HARK_OK) status = hark_table_open(context, settings->query, &p.query);
  if (status == HARK_OK) status = choose_columns(&p);
  if (status == HARK_OK) status = check_figure(&p);
  if (status == HARK_OK) status = predict(&p);
  hark_predict_output_close(&p.output);
  hark_regressor_destroy(&p.regressor);
  hark_release(context, p.numbers, p.number_bytes);
  hark_release(context, p.known, p.column_bytes);
  hark_table_classes_close(context, &p.classes);
  hark_table_close(context, &p.query);
  hark_table_close(context, &p.context);
  return status;
}
