/* positional.c - the table of a positional kernel: y[k, i] = log G(i / stretch; parameters[k]).
 *
 * With distances -T the table has both directions: y[k, i] = log G((i - (T - 1)) / stretch; parameters[k]), i < 2 T - 1.
 *
 * parameters [K, P], y [K, T]. src/positional evaluates kernels. The operator cuts the table into pieces of a row, whose bounds depend on T
 * alone, and adds their gradients in a fixed order. Cost: T evaluations of every component of every kernel, for each row; the backward
 * evaluates again and needs P doubles for each piece. Mathematics: docs/mathematics/positional.md.
 */
#include "ops/definition.h"

#include <inttypes.h>

#include "io/number.h"
#include "positional/expression.h"

enum { INPUT_PARAMETERS, INPUT_COUNT };

#define BLOCK 64            /* distances that are evaluated together */
#define PIECE 256           /* minimum number of distances of a piece */
#define ROW_PIECES 64       /* maximum number of pieces of a row */
#define VALUE_OPERATIONS 20 /* per parameter and distance: about the cost of an exponential or a sine */

/* The expressions of the rows of a table, and room for one that is parsed from a text. */
typedef struct row_expressions {
  const hark_positional *const *items;
  int64_t step; /* row k has items[k * step] */
  const hark_positional *one;
  _Alignas(HARK_ALIGNMENT) unsigned char place[HARK_POSITIONAL_PLACE_BYTES];
} row_expressions;

static const hark_positional *expression_of(const row_expressions *expressions, int64_t row) {
  return expressions->items[row * expressions->step];
}

static hark_status find_expressions(hark_context *context, const hark_positional_attributes *attributes, row_expressions *out) {
  out->items = attributes->expressions != NULL ? attributes->expressions : &out->one;
  out->step = attributes->expressions != NULL;
  out->one = attributes->expression;
  if (attributes->expressions != NULL || out->one != NULL) return HARK_OK;
  if (attributes->text == NULL)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "positional: expression and text are NULL, expected one of them in the attributes");
  return hark_positional_place(context, attributes->text, out->place, sizeof out->place, &out->one);
}

/* How a table is cut, and where the parts of the workspace begin (in doubles). */
typedef struct table_layout {
  int64_t rows, parameters, distances;
  int64_t piece, row_pieces; /* distances of a piece, pieces of a row */
  int64_t raw, natural, partial, scratch, scratch_step, end;
} table_layout;

/* The largest number of parameters, and the most scratch, of a row. */
static int64_t most_parameters(const row_expressions *expressions, int64_t rows, size_t *scratch_bytes) {
  int64_t most = 0;
  *scratch_bytes = 0;
  for (int64_t row = 0; row < (expressions->step == 0 ? 1 : rows); row++) {
    const hark_positional *expression = expression_of(expressions, row);
    const size_t bytes = hark_positional_scratch_bytes(expression);
    *scratch_bytes = bytes > *scratch_bytes ? bytes : *scratch_bytes;
    most = hark_max(most, expression->parameter_count);
  }
  return most;
}

static table_layout lay_out(hark_context *context, const row_expressions *expressions, int64_t rows, int64_t distances, bool backward) {
  size_t scratch_bytes;
  table_layout at = {.rows = rows, .parameters = most_parameters(expressions, rows, &scratch_bytes), .distances = distances};
  at.piece = hark_max(PIECE, hark_ceil_div(hark_ceil_div(distances, ROW_PIECES), BLOCK) * BLOCK);
  at.row_pieces = hark_ceil_div(distances, at.piece);
  const int64_t line = HARK_ALIGNMENT / (int64_t)sizeof(double);
  at.natural = at.raw + rows * at.parameters;
  at.partial = at.natural + rows * at.parameters;
  const int64_t partials = backward ? rows * at.row_pieces * at.parameters : 0;
  at.scratch = hark_ceil_div(at.partial + partials, line) * line;
  at.scratch_step = (int64_t)(scratch_bytes / sizeof(double));
  at.end = at.scratch + hark_workers(context) * at.scratch_step;
  return at;
}

static int64_t columns_of(const hark_positional_attributes *attributes) {
  return attributes->distances < 0 ? -2 * attributes->distances - 1 : attributes->distances;
}

static hark_status infer(hark_context *context, const void *given, const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"parameters", HARK_F32, 2, 2}};
  HARK_TRY(hark_check_inputs(context, &hark_op_positional, rules, given, inputs, input_count));
  const hark_positional_attributes *attributes = given;
  const hark_tensor *parameters = &inputs[INPUT_PARAMETERS];
  row_expressions expressions;
  HARK_TRY(find_expressions(context, attributes, &expressions));
  char text[HARK_SHAPE_TEXT_BYTES];
  size_t scratch_bytes;
  const int64_t columns = most_parameters(&expressions, parameters->shape[0], &scratch_bytes);
  if (parameters->shape[1] != columns)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "positional: parameters have %s, expected [K, %" PRId64 "]",
                     hark_shape_text(parameters, text, sizeof text), columns);
  if (attributes->distances == 0 || fabs((double)attributes->distances) > HARK_POSITIONAL_LARGEST_DISTANCE)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "positional: distances is %" PRId64 ", expected 1 to 2^53, or -1 to -2^53 for both directions", attributes->distances);
  if (attributes->stretch != 0 && !(attributes->stretch >= 1 && isfinite(attributes->stretch)))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "positional: stretch is %s, expected 1 or more, or 0 for 1",
                     HARK_PRINTED(attributes->stretch));
  const int64_t shape[] = {parameters->shape[0], columns_of(attributes)};
  HARK_TRY(hark_tensor_describe(context, parameters->type, 2, shape, &out->outputs[0]));
  out->forward_workspace = (size_t)lay_out(context, &expressions, shape[0], shape[1], false).end * sizeof(double);
  out->backward_workspace = (size_t)lay_out(context, &expressions, shape[0], shape[1], true).end * sizeof(double);
  return HARK_OK;
}

/* Data shared by the pieces of a call. */
typedef struct table_work {
  const row_expressions *expressions;
  table_layout at;
  int64_t first; /* the distance of the first column, with its sign */
  double *memory, stretch;
  hark_numbers table; /* the output, or its gradient */
} table_work;

/* Reads the parameters and computes their natural values. If one of a row is outside its range, all values of the row and all results are
 * NaN, but for gradients of what is not learned: a failed step then shows in the loss, as with other weights. */
static hark_status prepare(hark_context *context, const hark_call *call, const row_expressions *expressions, const hark_tensor *table,
                           bool backward, table_work *out) {
  const hark_positional_attributes *attributes = call->attributes;
  *out = (table_work){.expressions = expressions,
                      .at = lay_out(context, expressions, table->shape[0], table->shape[1], backward),
                      .first = attributes->distances < 0 ? attributes->distances + 1 : 0,
                      .memory = call->workspace,
                      .stretch = attributes->stretch != 0 ? attributes->stretch : 1,
                      .table = hark_numbers_of(table)};
  const int64_t count = out->at.parameters;
  if (count == 0) return HARK_OK;
  const hark_numbers parameters = hark_numbers_of(&call->inputs[INPUT_PARAMETERS]);
  for (int64_t i = 0; i < out->at.rows * count; i++) out->memory[out->at.raw + i] = hark_get(parameters, i);
  for (int64_t row = 0; row < out->at.rows; row++) {
    double *natural = out->memory + out->at.natural + row * count;
    const hark_status status =
        hark_positional_natural(context, expression_of(expressions, row), out->memory + out->at.raw + row * count, natural);
    if (status != HARK_OK && status != HARK_NOT_FINITE) return status;
    for (int64_t p = 0; p < count; p++) {
      if (p >= expression_of(expressions, row)->parameter_count)
        natural[p] = 0; /* of longer rows */
      else if (status != HARK_OK)
        natural[p] = NAN;
    }
  }
  return HARK_OK;
}

/* One block of distances of a piece. */
typedef struct distance_block {
  int64_t first, count; /* distances */
  double distances[BLOCK], numbers[BLOCK];
} distance_block;

static bool next_block(const table_work *work, int64_t piece, distance_block *block) {
  const int64_t start = piece % work->at.row_pieces * work->at.piece, end = hark_min(start + work->at.piece, work->at.distances);
  block->first = block->count == 0 ? start : block->first + block->count;
  block->count = hark_min(BLOCK, end - block->first);
  for (int64_t i = 0; i < block->count; i++) block->distances[i] = (double)(work->first + block->first + i) / work->stretch;
  return block->count > 0;
}

/* y[row, of the piece] <- log G */
static void fill_piece(void *data, int64_t piece, int worker) {
  const table_work *work = data;
  const int64_t row = piece / work->at.row_pieces;
  const double *natural = work->memory + work->at.natural + row * work->at.parameters;
  const bool bad = work->at.parameters > 0 && isnan(natural[0]);
  for (distance_block block = {0}; next_block(work, piece, &block);) {
    hark_positional_log_block(expression_of(work->expressions, row), natural, block.distances, block.count, block.numbers,
                              work->memory + work->at.scratch + worker * work->at.scratch_step);
    for (int64_t i = 0; i < block.count; i++) block.numbers[i] = bad ? NAN : block.numbers[i];
    for (int64_t i = 0; i < block.count; i++) hark_put(work->table, row * work->at.distances + block.first + i, block.numbers[i]);
  }
}

static hark_status forward(hark_context *context, const hark_call *call) {
  row_expressions expressions;
  table_work work;
  HARK_TRY(find_expressions(context, call->attributes, &expressions));
  HARK_TRY(prepare(context, call, &expressions, &call->outputs[0], false, &work));
  hark_parallel_for(context, work.at.rows * work.at.row_pieces, fill_piece, &work);
  return HARK_OK;
}

/* partial[piece] <- sum over its distances of dy d log G / d log natural */
static void collect_piece(void *data, int64_t piece, int worker) {
  const table_work *work = data;
  const int64_t row = piece / work->at.row_pieces, count = work->at.parameters;
  const hark_positional *expression = expression_of(work->expressions, row);
  const double *natural = work->memory + work->at.natural + row * count;
  double *partial = work->memory + work->at.partial + piece * count;
  const bool bad = count > 0 && isnan(natural[0]);
  for (int64_t p = 0; p < count; p++) partial[p] = bad && p < expression->parameter_count ? NAN : 0;
  if (bad) return;
  for (distance_block block = {0}; next_block(work, piece, &block);) {
    for (int64_t i = 0; i < block.count; i++) block.numbers[i] = hark_get(work->table, row * work->at.distances + block.first + i);
    hark_positional_gradient_block(expression, natural, block.distances, block.numbers, block.count, partial,
                                   work->memory + work->at.scratch + worker * work->at.scratch_step);
  }
}

/* y = log G(parameters): dparameters[k] = sum over i of dy[k, i] d log G(i) / d parameters[k] */
static hark_status backward(hark_context *context, const hark_call *call) {
  if (hark_gradient_is_absent(call) || !hark_present(&call->input_gradients[INPUT_PARAMETERS])) return HARK_OK;
  row_expressions expressions;
  table_work work;
  HARK_TRY(find_expressions(context, call->attributes, &expressions));
  HARK_TRY(prepare(context, call, &expressions, &call->output_gradients[0], true, &work));
  hark_parallel_for(context, work.at.rows * work.at.row_pieces, collect_piece, &work);
  const hark_numbers gradient = hark_gradient_of(call, INPUT_PARAMETERS);
  const int64_t count = work.at.parameters;
  for (int64_t row = 0; row < work.at.rows; row++) {
    double *sum = work.memory + work.at.partial + row * work.at.row_pieces * count;
    const hark_positional *expression = expression_of(&expressions, row);
    for (int64_t piece = 1; piece < work.at.row_pieces; piece++) {
      for (int64_t p = 0; p < count; p++) sum[p] += sum[piece * count + p];
    }
    hark_positional_gradient_to_raw(expression, work.memory + work.at.raw + row * count, sum);
    for (int64_t p = 0; p < count; p++) hark_give(gradient, row * count + p, sum[p]);
  }
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)input_count;
  const double values =
      (double)hark_tensor_count(&inputs[INPUT_PARAMETERS]) * (double)columns_of((const hark_positional_attributes *)attributes);
  return (is_backward ? 2 : 1) * VALUE_OPERATIONS * values;
}

/* A gradient sums over distances; at distance i, the angle of a periodic kernel has a rounding error of i eps. */
static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)inputs, (void)input_count;
  return columns_of((const hark_positional_attributes *)attributes);
}

static const hark_positional_attributes bank = {.text = "bank[3](decay*periodic)", .distances = 21},
                                        canonical = {.text = "canonical_periodic", .distances = 13},
                                        kernels = {.text = "rbf+matern32*rational_quadratic+matern52+constant", .distances = 17},
                                        penalties = {.text = "alibi+bank[2](kerple_log)+kerple_power", .distances = 17, .stretch = 2.5},
                                        buckets = {.text = "t5*decay+window(3)", .distances = 140},
                                        network = {.text = "mlp[3]*sandwich", .distances = 19},
                                        mixtures = {.text = "bank[2](xpos)+spectral*bump", .distances = 15},
                                        lags = {.text = "lagged_periodic+table[4]", .distances = 11},
                                        directions = {.text = "left(decay)*right(bank[2](rbf)+t5[4])+0.5", .distances = -9},
                                        both_sides = {.text = "matern32*alibi", .distances = -170, .stretch = 1.5},
                                        one_side = {.text = "left(decay)*right(rbf)", .distances = 12},
                                        single = {.text = "decay", .distances = 1}, pieces = {.text = "alibi+constant", .distances = 700};

#define PARAMETERS(rows, count)                                                                                                            \
  {                                                                                                                                        \
    { HARK_F32, 2, {rows, count}, -0.5, 1 }                                                                                                \
  }

static const hark_sample samples[] = {
    {"bank_of_decay_and_periodic", &bank, PARAMETERS(1, 12)},
    {"canonical_period_by_head", &canonical, PARAMETERS(4, 2)},
    {"smooth_kernels", &kernels, PARAMETERS(2, 10)},
    {"penalties_stretched", &penalties, PARAMETERS(3, 7)},
    {"buckets_and_a_window", &buckets, PARAMETERS(2, 34)},
    {"network_with_signed_weights", &network, PARAMETERS(2, 9)},
    {"mixtures_and_lags", &mixtures, PARAMETERS(2, 12)},
    {"lags_and_a_table", &lags, PARAMETERS(1, 7)},
    {"two_directions", &directions, PARAMETERS(3, 11)},
    {"both_sides_of_one_kernel", &both_sides, PARAMETERS(2, 3)},
    {"one_side_of_two", &one_side, PARAMETERS(2, 4)},
    {"one_distance", &single, PARAMETERS(1, 2)},
    {"several_pieces", &pieces, PARAMETERS(3, 2)},
};

const hark_operator hark_op_positional = {
    .name = "positional",
    .formula = "y[k, i] = log G(i / stretch; parameters[k])",
    .attributes_size = sizeof(hark_positional_attributes),
    .input_minimum = INPUT_COUNT,
    .input_maximum = INPUT_COUNT,
    .output_count = 1,
    .differentiable = 1u << INPUT_PARAMETERS,
    .backward_inputs = 1u << INPUT_PARAMETERS,
    .infer = infer,
    .forward = forward,
    .backward = backward,
    .operations = operations,
    .terms = terms,
    .samples = samples,
    .sample_count = sizeof samples / sizeof samples[0],
};
