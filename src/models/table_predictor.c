/* table_predictor.c - see hark/regressor.h. A pass is like one of the trainer's evaluation, over one table.
 *
 * All memory of a call belongs to the regressor: the rows (host and backend) and the tape's pool, measured by a shape-only run of the
 * largest table.
 */
#include <hark/regressor.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "core/print_number.h"
#include "core/structs.h"
#include "models/model.h"
#include "models/packed_batch.h"
#include "models/table_rows.h"

enum { CONTEXT, QUERIES, PARTS };

/* More rows of context are solved by conjugate gradients, if the solver is automatic. With 4,096 rows, two
 * cores and two blocks of kernel ridge attention they took a sixth of the time (docs/mathematics/kernel-ridge.md). */
#define MOST_FACTOR_ROWS 4096

struct hark_regressor {
  hark_context *context;
  const hark_model *model;
  int64_t inputs, targets; /* of a row */
  int64_t responses;       /* numbers for a target: one for each class, otherwise `targets` */
  int64_t most[PARTS];
  hark_attention_solver solver;
  hark_attention_plan **plans;
  hark_tape *tape;
  hark_packed_batch read;
  hark_example_batch host; /* in `memory` */
  float *results;          /* host, [queries, 2 targets]: a part of `memory` */
  int64_t ranges[2 * PARTS];
  void *memory;
  size_t bytes;
};

/* 0: targets are numbers */
static int64_t classes_of(const hark_model *model) {
  const hark_network_config *const config = &model->network->config;
  return config->regressor.loss == HARK_REGRESSOR_LOSS_CLASSES ? config->responses : 0;
}

static hark_status check_model(hark_context *context, const hark_model *model) {
  const hark_architecture *const architecture = model->network->architecture;
  if (architecture->reads_tables) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, "regressor: the model has architecture %s, expected regressor", architecture->name);
}

hark_status hark_regressor_describe(hark_context *context, const hark_model *model, int64_t *inputs, int64_t *targets) {
  *inputs = *targets = 0;
  HARK_TRY(check_model(context, model));
  *inputs = model->network->config.features / 2; /* the others are marks of missing inputs */
  *targets = classes_of(model) > 0 ? 1 : model->network->config.responses;
  return HARK_OK;
}

hark_status hark_regressor_class_count(hark_context *context, const hark_model *model, int64_t *classes) {
  *classes = 0;
  HARK_TRY(check_model(context, model));
  *classes = classes_of(model);
  return HARK_OK;
}

/* ---- making ---- */

static hark_status make_host(hark_regressor *r) {
  const size_t rows = (size_t)(r->most[CONTEXT] + r->most[QUERIES]), targets = (size_t)r->responses;
  size_t numbers = 0, floats = 0;
  const size_t fixed = rows * sizeof(int64_t) + targets * sizeof(hark_column_scale) + rows * 3 * sizeof(int32_t);
  void *memory = NULL;
  HARK_TRY(hark_size_multiply(r->context, rows, (size_t)(2 * r->inputs) + 3 * targets, &numbers)); /* the last two thirds: results */
  HARK_TRY(hark_size_multiply(r->context, numbers, sizeof(float), &floats));
  HARK_TRY(hark_size_add(r->context, floats, fixed, &r->bytes));
  HARK_TRY(hark_allocate_zero(r->context, r->bytes, &memory));
  r->memory = memory;
  r->host.scales = memory;
  r->host.segments = (int64_t *)(r->host.scales + targets);
  r->host.inputs = (int32_t *)(r->host.segments + rows);
  r->host.positions = r->host.inputs + rows;
  r->host.targets = r->host.positions + rows;
  r->host.features = (float *)(r->host.targets + rows);
  r->host.responses = r->host.features + rows * (size_t)(2 * r->inputs);
  r->results = r->host.responses + rows * targets;
  r->host.ranges = r->ranges;
  return HARK_OK;
}

static void set_rows(hark_regressor *r, int64_t context, int64_t queries) {
  r->host.rows = 1;
  r->host.context_rows = context;
  r->host.tokens = context + queries;
  r->host.longest = hark_max(context, queries);
  r->ranges[0] = 0;
  r->ranges[1] = r->ranges[2] = context;
  r->ranges[3] = context + queries;
  for (int64_t i = 0; i < r->host.tokens; i++) r->host.segments[i] = i >= context;
}

static hark_status pass(hark_regressor *r, hark_value *out) {
  const hark_network *network = r->model->network;
  hark_forward forward = {.tape = r->tape, .parameters = &network->parameters, .plans = r->plans, .rounds = true};
  hark_network_input input = {.weight = 1};
  hark_tape_reset(r->tape);
  hark_tape_set_recording(r->tape, false);
  HARK_TRY(hark_packed_batch_begin(&r->read, &r->host, &forward, &input));
  return network->architecture->logits(r->context, network, &forward, &input, out);
}

static hark_status make(hark_regressor *r) {
  const int64_t rows = r->most[CONTEXT] + r->most[QUERIES], longest = hark_max(r->most[CONTEXT], r->most[QUERIES]);
  const hark_packed_extents most = {.examples = 1, .tokens = rows, .parts = PARTS, .features = 2 * r->inputs, .responses = r->responses};
  const hark_pass_sizes sizes = {
      .batch = 1, .queries = longest, .keys = r->most[CONTEXT], .sequences = 1, .longest = longest, .solver = r->solver};
  hark_value out = 0;
  HARK_TRY(make_host(r));
  HARK_TRY(hark_packed_batch_create(r->context, &most, true, &r->read));
  HARK_TRY(hark_network_plans_create(r->context, r->model->network, &sizes, false, &r->plans));
  HARK_TRY(hark_tape_create(r->context, &r->tape));
  set_rows(r, r->most[CONTEXT], r->most[QUERIES]);
  hark_tape_set_shape_only(r->tape, true);
  HARK_TRY(pass(r, &out));
  hark_tape_set_shape_only(r->tape, false);
  return hark_tape_reserve(r->tape);
}

static hark_status take_options(hark_context *context, const hark_regressor_options *given, hark_regressor_options *out) {
  *out = (hark_regressor_options){.struct_size = sizeof *out};
  HARK_TRY(hark_take_struct(context, "hark_regressor_options", given, HARK_LEAST_REGRESSOR_OPTIONS, out, sizeof *out));
  if (out->context_rows < 2 || out->context_rows > INT32_MAX / 2 || out->query_rows < 1 || out->query_rows > INT32_MAX / 2)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "regressor: %" PRId64 " rows of context and %" PRId64 " queries, expected 2 to %d and 1 to %d", out->context_rows,
                     out->query_rows, INT32_MAX / 2, INT32_MAX / 2);
  if (out->solver < HARK_REGRESSOR_SOLVER_AUTOMATIC || out->solver > HARK_REGRESSOR_SOLVER_CONJUGATE_GRADIENTS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "regressor: solver is %" PRId64 ", expected one of HARK_REGRESSOR_SOLVER_*",
                     out->solver);
  return HARK_OK;
}

hark_status hark_regressor_create(hark_context *context, const hark_model *model, const hark_regressor_options *given,
                                  hark_regressor **out) {
  hark_regressor_options options;
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(check_model(context, model));
  HARK_TRY(take_options(context, given, &options));
  if (context->backend != model->backend)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "regressor: the context's backend is %s, the model's %s", context->backend->name,
                     model->backend->name);
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_regressor), &memory));
  hark_regressor *r = memory;
  r->context = context;
  r->model = model;
  r->most[CONTEXT] = options.context_rows;
  r->most[QUERIES] = options.query_rows;
  r->responses = model->network->config.responses;
  const bool iterates = options.solver == HARK_REGRESSOR_SOLVER_CONJUGATE_GRADIENTS ||
                        (options.solver == HARK_REGRESSOR_SOLVER_AUTOMATIC && options.context_rows > MOST_FACTOR_ROWS);
  r->solver = iterates ? HARK_SOLVER_CONJUGATE_GRADIENTS : HARK_SOLVER_FACTOR;
  hark_status status = hark_regressor_describe(context, model, &r->inputs, &r->targets);
  if (status == HARK_OK) status = make(r);
  if (status == HARK_OK)
    *out = r;
  else
    hark_regressor_destroy(&r);
  return status;
}

void hark_regressor_destroy(hark_regressor **regressor) {
  if (regressor == NULL || *regressor == NULL) return;
  hark_regressor *r = *regressor;
  hark_context *context = r->context;
  *regressor = NULL;
  hark_tape_destroy(&r->tape);
  hark_network_plans_destroy(context, r->model->network, &r->plans);
  hark_packed_batch_destroy(context, &r->read);
  hark_release(context, r->memory, r->bytes);
  hark_release(context, r, sizeof *r);
}

/* ---- calls ---- */

/* Rows of `columns` numbers, of which the first `inputs` may be missing. */
static hark_status check_rows(hark_regressor *r, const char *name, const float *numbers, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < rows * columns; i++) {
    const bool target = i % columns >= r->inputs;
    if (isfinite(numbers[i]) || (isnan(numbers[i]) && !target)) continue;
    return hark_fail(r->context, HARK_INVALID_ARGUMENT, "regressor: %s %" PRId64 " of row %" PRId64 " of the %s is %s",
                     target ? "target" : "input", target ? i % columns - r->inputs : i % columns, i / columns, name,
                     target ? "not finite" : "infinite");
  }
  return HARK_OK;
}

static hark_status check_constant(hark_regressor *r, const hark_regressor_table *table) {
  const int64_t columns = r->inputs + r->targets;
  for (int64_t t = 0; t < r->targets && r->model->network->config.regressor.standardise; t++) {
    bool constant;
    (void)hark_column_scale_of(table->context + r->inputs + t, columns, table->context_rows, &constant);
    if (constant)
      return hark_fail(r->context, HARK_INVALID_ARGUMENT,
                       "regressor: target %" PRId64 " is the same in all %" PRId64
                       " rows of the context (in numbers of 32 bits), expected different values",
                       t, table->context_rows);
  }
  return HARK_OK;
}

/* host.targets <- the classes of the context. */
static hark_status read_context_classes(hark_regressor *r, const hark_regressor_table *table) {
  const int64_t columns = r->inputs + 1;
  bool several = false;
  for (int64_t i = 0; i < table->context_rows; i++) {
    const float number = table->context[i * columns + r->inputs];
    if (number < 0 || number >= (float)r->responses || number != floorf(number))
      return hark_fail(r->context, HARK_INVALID_ARGUMENT,
                       "regressor: the class of row %" PRId64 " of the context is %s, expected a whole number from 0 to %" PRId64, i,
                       HARK_PRINTED((double)number), r->responses - 1);
    r->host.targets[i] = (int32_t)number;
    several = several || r->host.targets[i] != r->host.targets[0];
  }
  if (several) return HARK_OK;
  return hark_fail(r->context, HARK_INVALID_ARGUMENT,
                   "regressor: all %" PRId64 " rows of the context have the same class, expected at least two classes",
                   table->context_rows);
}

static hark_status take_table(hark_regressor *r, const hark_regressor_table *table) {
  const int64_t n = table->context_rows, m = table->query_rows, columns = r->inputs + r->targets;
  const bool classes = classes_of(r->model) > 0;
  if (n < 2 || n > r->most[CONTEXT] || m < 1 || m > r->most[QUERIES])
    return hark_fail(r->context, HARK_INVALID_ARGUMENT,
                     "regressor: %" PRId64 " rows of context and %" PRId64 " queries, expected 2 to %" PRId64 " and 1 to %" PRId64, n, m,
                     r->most[CONTEXT], r->most[QUERIES]);
  if (table->context == NULL || table->queries == NULL)
    return hark_fail(r->context, HARK_INVALID_ARGUMENT, "regressor: no %s", table->context == NULL ? "context" : "queries");
  HARK_TRY(check_rows(r, "context", table->context, n, columns));
  HARK_TRY(check_rows(r, "queries", table->queries, m, r->inputs));
  HARK_TRY(classes ? read_context_classes(r, table) : check_constant(r, table));
  float *const of_queries = r->host.responses + n * r->responses;
  const hark_table_block known = {r->host.features, classes ? NULL : r->host.responses, n},
                         asked = {r->host.features + 2 * n * r->inputs, NULL, m};
  for (int64_t i = 0; i < n; i++) hark_table_put(table->context + i * columns, r->inputs, r->targets, &known, i);
  for (int64_t i = 0; i < m; i++) hark_table_put(table->queries + i * r->inputs, r->inputs, r->targets, &asked, i);
  hark_table_scale(r->model->network->config.regressor.standardise, r->inputs, classes ? 0 : r->targets, &known, &asked, r->host.scales);
  if (classes)
    hark_table_put_classes(r->host.targets, n, r->responses, r->host.responses, m, of_queries);
  else
    memset(of_queries, 0, (size_t)(m * r->responses) * sizeof(float));
  set_rows(r, n, m);
  return hark_packed_batch_write(r->context, &r->read, &r->host);
}

/* A table's results, in r->results. */
static hark_status run(hark_regressor *r, const hark_regressor_table *given, bool classes, hark_regressor_table *table) {
  hark_value out = 0;
  table->struct_size = sizeof *table;
  HARK_TRY(hark_take_struct(r->context, "hark_regressor_table", given, HARK_LEAST_REGRESSOR_TABLE, table, sizeof *table));
  if (classes != (classes_of(r->model) > 0))
    return hark_fail(r->context, HARK_UNSUPPORTED, "regressor: the model predicts %s",
                     classes ? "numbers, expected one of classes" : "classes, expected one of numbers");
  HARK_TRY(take_table(r, table));
  HARK_TRY(pass(r, &out));
  return hark_tensor_read(r->context, hark_tape_tensor(r->tape, out), r->results);
}

hark_status hark_regressor_classify(hark_regressor *r, const hark_regressor_table *given, float *probabilities) {
  hark_regressor_table table = {0};
  if (probabilities == NULL) return hark_fail(r->context, HARK_INVALID_ARGUMENT, "regressor: no room for the probabilities");
  HARK_TRY(run(r, given, true, &table));
  for (int64_t row = 0; row < table.query_rows; row++) {
    const float *const logits = r->results + row * r->responses;
    double largest = logits[0], sum = 0;
    for (int64_t c = 1; c < r->responses; c++) largest = fmax(largest, logits[c]);
    for (int64_t c = 0; c < r->responses; c++) sum += exp(logits[c] - largest);
    for (int64_t c = 0; c < r->responses; c++) {
      probabilities[row * r->responses + c] = (float)(exp(logits[c] - largest) / sum);
      if (!isfinite(logits[c]))
        return hark_fail(r->context, HARK_NOT_FINITE, "regressor: the prediction of query %" PRId64 " is not finite", row);
    }
  }
  return HARK_OK;
}

hark_status hark_regressor_run(hark_regressor *r, const hark_regressor_table *given, float *mean, float *variance) {
  hark_regressor_table table = {0};
  if (mean == NULL || variance == NULL)
    return hark_fail(r->context, HARK_INVALID_ARGUMENT, "regressor: no room for the %s", mean == NULL ? "means" : "variances");
  HARK_TRY(run(r, given, false, &table));
  for (int64_t i = 0; i < table.query_rows * r->targets; i++) {
    const int64_t row = i / r->targets, t = i % r->targets;
    const hark_column_scale *const scale = &r->host.scales[t];
    const double deviation = exp(0.5 * r->results[(2 * row + 1) * r->targets + t]) * scale->deviation;
    mean[i] = (float)(r->results[2 * row * r->targets + t] * scale->deviation + scale->mean);
    variance[i] = (float)(deviation * deviation);
    if (!isfinite(mean[i]) || !isfinite(variance[i]))
      return hark_fail(r->context, HARK_NOT_FINITE, "regressor: the prediction of target %" PRId64 " of query %" PRId64 " is not finite", t,
                       row);
  }
  return HARK_OK;
}
