/* positional.c - hark positional: describes a kernel expression: its parameters, whether it is positive definite, and a table of log G. */
#include <hark/positional.h>
#include <math.h>
#include <stdio.h>

#include "cli/common.h"
#include "cli/plot/learned_kernels.h"
#include "cli/positional/positional_figure.h"
#include "io/number.h"
#include "json/json.h"

typedef struct positional_values {
  int64_t length, heads, head, distances;
  bool require_definite;
  const char *figure;
} positional_values;

#define AT(field) offsetof(positional_values, field)
static const hark_option options[] = {
    {"context", "context", HARK_OPTION_INT, AT(length), "256", "[1, 16777216]", NULL, NULL,
     "context length for which initial values are made", NULL},
    {"heads", "heads", HARK_OPTION_INT, AT(heads), "1", "[1, 65536]", NULL, NULL,
     "heads with separate parameters, over which initial values are spread", NULL},
    {"head", "head", HARK_OPTION_INT, AT(head), "0", "[0, 65535]", NULL, NULL, "the head whose values are shown", NULL},
    {"distances", "distances", HARK_OPTION_INT, AT(distances), "0", "[0, 16777216]", NULL, NULL,
     "show log G, where G is the kernel, at this number of distances, beginning with 0; an expression with a direction is shown on both "
     "sides; 0: at the powers of 2 up to twice the context",
     NULL},
    {"require-definite", "require-definite", HARK_OPTION_BOOL, AT(require_definite), "false", NULL, NULL, NULL,
     "refuse a kernel that is not positive definite", NULL},
    {"figure", "figure", HARK_OPTION_STRING, AT(figure), "", NULL, NULL, "FILE",
     "draw G over the distances below --context, at most 2048, as SVG, or as PNG if FILE ends in .png, with a curve for each of the first "
     "eight heads; "
     "without EXPR a panel for every kernel",
     NULL},
};
#undef AT
static const hark_option_table table = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(positional_values), false};

/* An expression with its parameters and a table. */
typedef struct shown_kernel {
  hark_positional *expression;
  int64_t count, rows;
  bool directed; /* rows for keys after the query, from the farthest on, are before those for the query itself and the keys before it */
  double *memory, *parameters, *natural, *distances, *values;
  size_t bytes;
  bool definite;
  int column;
  const char *reason; /* why it is not definite */
} shown_kernel;

/* 0, 1, 2, 4, ... or 0, 1, 2, 3, ... */
static double distance_at(const positional_values *v, int64_t row) {
  return v->distances > 0 || row == 0 ? (double)row : (double)(INT64_C(1) << (row - 1));
}

static int64_t row_count(const positional_values *v) {
  int64_t rows = 1;
  if (v->distances > 0) return v->distances;
  while (distance_at(v, rows) <= 2 * (double)v->length) rows++;
  return rows;
}

static hark_status open_kernel(hark_context *context, const positional_values *v, const char *text, shown_kernel *out) {
  HARK_TRY(hark_positional_create(context, text, &out->expression));
  out->count = hark_positional_parameter_count(out->expression);
  out->directed = hark_positional_is_directed(out->expression, NULL);
  const int64_t side = row_count(v), before = out->directed ? side - 1 : 0;
  out->rows = before + side;
  void *memory = NULL;
  const size_t bytes = 2 * (size_t)(out->count + out->rows) * sizeof(double);
  HARK_TRY(hark_allocate(context, bytes, &memory));
  out->bytes = bytes;
  out->memory = out->parameters = memory;
  out->natural = out->parameters + out->count;
  out->distances = out->natural + out->count;
  out->values = out->distances + out->rows;
  for (int64_t i = 0; i < out->rows; i++) out->distances[i] = i < before ? -distance_at(v, before - i) : distance_at(v, i - before);
  const hark_positional_start start = {.struct_size = sizeof start, .length = v->length, .heads = v->heads, .head = v->head};
  HARK_TRY(hark_positional_initial(context, out->expression, &start, out->parameters));
  HARK_TRY(hark_positional_natural(context, out->expression, out->parameters, out->natural));
  out->definite = hark_positional_is_definite(out->expression, out->parameters, &out->column, &out->reason);
  if (v->require_definite && !out->definite)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "positional kernel, column %d: this kernel is not positive definite (positive definite: %s), expected one that is",
                     out->column, out->reason);
  return hark_positional_log(context, out->expression, out->parameters, out->distances, out->rows, out->values);
}

static void append_number(hark_text *text, bool json, double value) {
  char number[HARK_NUMBER_BYTES];
  if (json)
    hark_json_append_number(text, value);
  else
    hark_text_append(text, "%s", hark_number_print(value, number));
}

static void append_list(hark_text *text, bool json, const double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (i > 0) hark_text_append(text, json ? ", " : " ");
    append_number(text, json, values[i]);
  }
}

static void print_text(const shown_kernel *kernel, hark_text *text) {
  hark_text_append(text, "expression  ");
  hark_append_expression(kernel->expression, NULL, false, text);
  hark_text_append(text, "\nstarts as   ");
  hark_append_expression(kernel->expression, kernel->parameters, false, text);
  hark_text_append(text, "\nparameters  %lld\n", (long long)kernel->count);
  for (int i = 0; i < hark_positional_named_count(kernel->expression); i++) {
    const hark_positional_parameter named = hark_positional_named(kernel->expression, i);
    hark_text_append(text, "  column %-4d %s.%s  ", named.column, named.kernel, named.name);
    append_list(text, false, kernel->natural + named.first, named.count);
    hark_text_append(text, "%s\n", hark_positional_is_learned(kernel->expression, named.first) ? "" : "  not learned here");
  }
  if (kernel->definite)
    hark_text_append(text, "positive definite  yes\n");
  else
    hark_text_append(text, "positive definite  no: the kernel at column %d is not (positive definite: %s)\n", kernel->column,
                     kernel->reason);
  if (kernel->directed)
    hark_text_append(text, "distance: position of the query less that of the key; below 0 the key is after the query\n");
  hark_text_append(text, "%10s  %-24s G\n", "distance", "log G");
  for (int64_t i = 0; i < kernel->rows; i++) {
    char number[HARK_NUMBER_BYTES];
    hark_text_append(text, "%10.0f  %-24s %.6g\n", kernel->distances[i], hark_number_print(kernel->values[i], number),
                     exp(kernel->values[i]));
  }
}

static void print_json(const shown_kernel *kernel, hark_text *text) {
  hark_text_append(text, "{\"expression\": ");
  hark_append_expression(kernel->expression, NULL, true, text);
  hark_text_append(text, ", \"initial\": ");
  hark_append_expression(kernel->expression, kernel->parameters, true, text);
  hark_text_append(text, ", \"parameter_count\": %lld, \"parameters\": [", (long long)kernel->count);
  for (int i = 0; i < hark_positional_named_count(kernel->expression); i++) {
    const hark_positional_parameter named = hark_positional_named(kernel->expression, i);
    hark_text_append(text, "%s{\"kernel\": \"%s\", \"name\": \"%s\", \"column\": %d, \"values\": [", i > 0 ? ", " : "", named.kernel,
                     named.name, named.column);
    append_list(text, true, kernel->natural + named.first, named.count);
    hark_text_append(text, "], \"learned\": %s}", hark_positional_is_learned(kernel->expression, named.first) ? "true" : "false");
  }
  hark_text_append(text, "], \"positive_definite\": %s, \"directed\": %s, \"distances\": [", kernel->definite ? "true" : "false",
                   kernel->directed ? "true" : "false");
  append_list(text, true, kernel->distances, kernel->rows);
  hark_text_append(text, "], \"log_g\": [");
  append_list(text, true, kernel->values, kernel->rows);
  hark_text_append(text, "]}\n");
}

/* "sigma2, l (length_scale)" */
static void append_parameters(const hark_positional_kernel *kernel, hark_text *text) {
  bool first = true;
  for (int p = 0; p < HARK_POSITIONAL_NAMES && kernel->parameters[p] != NULL; p++, first = false) {
    hark_text_append(text, "%s%s", first ? "" : ", ", kernel->parameters[p]);
    if (kernel->other_names[p] != NULL) hark_text_append(text, " (%s)", kernel->other_names[p]);
    if (kernel->values[p] > 1) hark_text_append(text, "[%d]", kernel->values[p]);
    if (kernel->values[p] == 0) hark_text_append(text, "[K]");
  }
  if (kernel->constant != NULL) hark_text_append(text, "%s%s, not learned", first ? "" : ", ", kernel->constant);
}

static void print_kernels(hark_text *text) {
  for (int i = 0; i < hark_positional_kernel_count(); i++) {
    const hark_positional_kernel kernel = hark_positional_kernel_at(i);
    hark_text_append(text, "%s\n  %s\n  G(d) = %s\n  parameters: ", kernel.name, kernel.text, kernel.formula);
    append_parameters(&kernel, text);
    hark_text_append(text, "\n  positive definite: %s\n", kernel.definite);
  }
  hark_text_append(text,
                   "joined by + and *, in parentheses, and as bank[M](...), a sum of M copies with separate values; l=12! is not "
                   "learned, l=@a is one value wherever it is; a number is a constant factor; left(...) is for keys up to the query, "
                   "right(...) for keys after it, and on the other side both are left out\n");
}

static void print_kernels_json(hark_text *text) {
  hark_text_append(text, "{\"kernels\": [");
  for (int i = 0; i < hark_positional_kernel_count(); i++) {
    const hark_positional_kernel kernel = hark_positional_kernel_at(i);
    hark_text_append(text, "%s{\"name\": \"%s\", \"formula\": ", i > 0 ? ", " : "", kernel.name);
    hark_json_append_string(text, kernel.formula);
    hark_text_append(text, ", \"parameters\": [");
    for (int p = 0; p < HARK_POSITIONAL_NAMES && kernel.parameters[p] != NULL; p++)
      hark_text_append(text, "%s\"%s\"", p > 0 ? ", " : "", kernel.parameters[p]);
    hark_text_append(text, "], \"positive_definite\": ");
    hark_json_append_string(text, kernel.definite);
    hark_text_append(text, ", \"text\": ");
    hark_json_append_string(text, kernel.text);
    hark_text_append(text, "}");
  }
  hark_text_append(text, "]}\n");
}

static hark_status check(hark_invocation *call) {
  const positional_values *v = call->values[0];
  if (v->head >= v->heads)
    return hark_options_complain(call->context, call->options, "head", "head %lld, expected one below --heads %lld", (long long)v->head,
                                 (long long)v->heads);
  return HARK_OK;
}

static hark_status draw_figure(hark_invocation *call, const char *text) {
  const positional_values *v = call->values[0];
  const hark_positional_figure figure = {.path = v->figure, .text = text, .length = v->length, .heads = v->heads};
  return v->figure[0] == '\0' ? HARK_OK : hark_positional_draw(call, &figure);
}

static hark_status run(hark_invocation *call) {
  hark_text text = hark_text_empty(call->context);
  if (hark_options_argument_count(call->options) == 0) {
    if (call->json)
      print_kernels_json(&text);
    else
      print_kernels(&text);
    HARK_TRY(hark_command_print(call, &text));
    return draw_figure(call, NULL);
  }
  shown_kernel kernel = {0};
  hark_status status = open_kernel(call->context, call->values[0], hark_options_argument(call->options, 0), &kernel);
  if (status == HARK_OK) {
    if (call->json)
      print_json(&kernel, &text);
    else
      print_text(&kernel, &text);
    status = hark_command_print(call, &text);
  }
  if (status == HARK_OK) status = draw_figure(call, hark_options_argument(call->options, 0));
  hark_release(call->context, kernel.memory, kernel.bytes);
  hark_positional_destroy(call->context, &kernel.expression);
  return status;
}

const hark_command hark_command_positional = {
    .name = "positional",
    .arguments = "[EXPR]",
    .summary = "explain a positional kernel: parameters, positive definiteness, a table",
    .notes =
        "Without EXPR, lists the kernels that an expression can contain. Grammar: docs/mathematics/positional.md.\n"
        "  hark positional 'bank[8](decay*periodic)' --context 256\n"
        "  hark positional 'decay(sigma2=2,l=12)*periodic(period_length=30)+constant(0.1)' --distances 64 --json\n"
        "  hark positional 'left(decay)*right(rbf)' --figure directions.svg\n"
        "  hark positional --context 64 --heads 3 --figure kernels.svg\n",
    .argument_minimum = 0,
    .argument_maximum = 1,
    .has_json = true,
    .tables = {&table},
    .check = check,
    .run = run,
};
