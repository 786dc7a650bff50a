/* attend_positional.c - see attend_positional.h. */
#include "cli/attend/attend_positional.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "positional/list.h"

/* One expression with its parameters and its row of the table. */
typedef struct attend_kernel {
  hark_positional *expression;
  int64_t count;
  double *memory, *parameters, *gradient, *distance, *number; /* gradient [count]; the last two [columns] */
  size_t bytes;
} attend_kernel;

static void close_kernel(hark_context *context, attend_kernel *kernel) {
  hark_positional_destroy(context, &kernel->expression);
  hark_release(context, kernel->memory, kernel->bytes);
}

static hark_status open_kernel(hark_context *context, const hark_attend_values *v, const hark_attend_tensors *t, int64_t index,
                               int64_t columns, attend_kernel *out) {
  *out = (attend_kernel){0};
  HARK_TRY(hark_positional_create(context, v->positional.items[index], &out->expression));
  out->count = hark_positional_parameter_count(out->expression);
  void *memory = NULL;
  size_t bytes;
  HARK_TRY(hark_size_multiply(context, 2 * (size_t)(out->count + columns), sizeof(double), &bytes));
  HARK_TRY(hark_allocate(context, bytes, &memory));
  out->bytes = bytes;
  out->memory = out->parameters = memory;
  out->gradient = out->parameters + out->count;
  out->distance = out->gradient + out->count;
  out->number = out->distance + columns;
  const int64_t middle = hark_attend_positional_directed(v) ? columns / 2 : 0; /* where the distance is 0 */
  for (int64_t i = 0; i < columns; i++) out->distance[i] = (double)(i - middle);
  if (!hark_positional_is_directed(out->expression, NULL)) /* one of several */
    for (int64_t i = 0; i < columns; i++) out->distance[i] = fabs(out->distance[i]);
  const hark_positional_start start = {
      .struct_size = sizeof start, .length = hark_max(t->query.shape[2], t->key.shape[2]), .heads = v->positional.count, .head = index};
  HARK_TRY(hark_positional_initial(context, out->expression, &start, out->parameters));
  int column = 0;
  const char *reason = NULL;
  if (v->normalisation != HARK_ATTEND_CME || hark_positional_is_definite(out->expression, out->parameters, &column, &reason))
    return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT,
                   "--positional, number %" PRId64
                   ", column %d: this kernel is not positive definite (positive definite: %s), and "
                   "--normalisation cme needs one that is",
                   index + 1, column, reason);
}

/* A row of doubles to or from a tensor of rows, f32 or f64. */
static void pack(hark_type type, const double *numbers, int64_t count, void *host) {
  for (int64_t i = 0; i < count; i++) {
    if (type == HARK_F64)
      ((double *)host)[i] = numbers[i];
    else
      ((float *)host)[i] = (float)numbers[i];
  }
}

static void unpack(hark_type type, const void *host, int64_t count, double *numbers) {
  for (int64_t i = 0; i < count; i++) numbers[i] = type == HARK_F64 ? ((const double *)host)[i] : (double)((const float *)host)[i];
}

/* The column of the first left(...) or right(...), 0: there is none. */
static int direction_of(const char *text) {
  const int left = hark_positional_list_direction(text, "left"), right = hark_positional_list_direction(text, "right");
  return left == 0 || (right > 0 && right < left) ? right : left;
}

bool hark_attend_positional_directed(const hark_attend_values *v) {
  bool directed = false;
  for (int64_t i = 0; i < v->positional.count; i++) directed = directed || direction_of(v->positional.items[i]) > 0;
  return directed && !v->causal;
}

/* Refuses directions that would have no effect, or with kernel ridge attention. */
static hark_status check_direction(hark_invocation *call, int64_t number, const char *text) {
  const hark_attend_values *v = call->values[0];
  const int direction = direction_of(text), right = hark_positional_list_direction(text, "right");
  if (v->causal && right > 0)
    HARK_TRY(hark_options_complain(call->context, call->options, "positional causal",
                                   "number %" PRId64 ", column %d: right(...) has no effect with --causal: no key is after its query",
                                   number, right));
  if (v->normalisation != HARK_ATTEND_CME || direction == 0) return HARK_OK;
  return hark_options_complain(call->context, call->options, "positional normalisation",
                               "number %" PRId64
                               ", column %d: a kernel with a direction is not positive definite, and --normalisation cme needs one that is",
                               number, direction);
}

hark_status hark_attend_positional_check(hark_invocation *call) {
  const hark_attend_values *v = call->values[0];
  for (int64_t i = 0; i < v->positional.count; i++) {
    hark_positional *expression = NULL;
    const hark_status status = hark_positional_create(call->context, v->positional.items[i], &expression);
    hark_positional_destroy(call->context, &expression);
    if (status == HARK_OK) {
      HARK_TRY(check_direction(call, i + 1, v->positional.items[i]));
      continue;
    }
    if (status != HARK_INVALID_ARGUMENT) return status;
    char message[HARK_MESSAGE_BYTES];
    (void)snprintf(message, sizeof message, "%s", hark_context_message(call->context));
    return hark_options_complain(call->context, call->options, "positional", "number %" PRId64 ": %s", i + 1, message);
  }
  return HARK_OK;
}

/* Evaluates every expression into host memory and writes the table. */
hark_status hark_attend_positional_table(hark_context *context, const hark_attend_values *v, const hark_attention_plan *plan,
                                         hark_attend_tensors *t) {
  const int64_t kernels = v->positional.count, heads = t->query.shape[1];
  const int64_t distances = hark_attention_plan_distances(plan, v->has_query_offset, v->query_offset);
  if (kernels == 0) return HARK_OK;
  if (distances == 0)
    return hark_fail(context, HARK_TOO_LARGE, "--query-offset %" PRId64 " is too large for a table of distances", v->query_offset);
  if (kernels != 1 && kernels != heads)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "--positional is given %" PRId64 " times, expected once for all heads or %" PRId64 " times, once per head", kernels,
                     heads);
  const int64_t columns = hark_attend_positional_directed(v) ? 2 * distances - 1 : distances, shape[] = {kernels, columns};
  HARK_TRY(hark_tensor_create(context, t->query.type, 2, shape, &t->log_kernel));
  const size_t row = (size_t)columns * hark_type_bytes(t->query.type), bytes = (size_t)kernels * row;
  void *host = NULL;
  HARK_TRY(hark_allocate(context, bytes, &host));
  hark_status status = HARK_OK;
  for (int64_t k = 0; k < kernels && status == HARK_OK; k++) {
    attend_kernel kernel;
    status = open_kernel(context, v, t, k, columns, &kernel);
    if (status == HARK_OK)
      status = hark_positional_log(context, kernel.expression, kernel.parameters, kernel.distance, columns, kernel.number);
    if (status == HARK_OK) pack(t->query.type, kernel.number, columns, (char *)host + (size_t)k * row);
    close_kernel(context, &kernel);
  }
  if (status == HARK_OK) status = hark_tensor_write(context, &t->log_kernel, host);
  hark_release(context, host, bytes);
  return status;
}

/* gradients[k] <- by natural values, `width` numbers per kernel; those after its own parameters are unchanged. */
static hark_status collect(hark_context *context, const hark_attend_values *v, const hark_attend_tensors *t, const void *dlog_kernel,
                           double *gradients, int64_t width) {
  const int64_t columns = t->log_kernel.shape[1];
  const size_t row = (size_t)columns * hark_type_bytes(t->query.type);
  for (int64_t k = 0; k < v->positional.count; k++) {
    attend_kernel kernel;
    hark_status status = open_kernel(context, v, t, k, columns, &kernel);
    if (status == HARK_OK) {
      unpack(t->query.type, (const char *)dlog_kernel + (size_t)k * row, columns, kernel.number);
      status =
          hark_positional_gradient(context, kernel.expression, kernel.parameters, kernel.distance, kernel.number, columns, kernel.gradient);
    }
    if (status == HARK_OK)
      status = hark_positional_natural_gradient(context, kernel.expression, kernel.parameters, kernel.gradient, gradients + k * width);
    close_kernel(context, &kernel);
    HARK_TRY(status);
  }
  return HARK_OK;
}

hark_status hark_attend_positional_gradient(hark_context *context, const hark_attend_values *v, hark_attend_tensors *t) {
  const int64_t kernels = v->positional.count;
  int64_t width = 0;
  if (kernels == 0 || t->dlog_kernel.type == HARK_NONE) return HARK_OK;
  for (int64_t k = 0; k < kernels; k++) {
    hark_positional *expression = NULL;
    HARK_TRY(hark_positional_create(context, v->positional.items[k], &expression));
    width = hark_max(width, hark_positional_parameter_count(expression));
    hark_positional_destroy(context, &expression);
  }
  const int64_t shape[] = {kernels, width};
  HARK_TRY(hark_tensor_create(context, t->query.type, 2, shape, &t->dpositional));
  const size_t table_bytes = (size_t)hark_tensor_count(&t->dlog_kernel) * hark_type_bytes(t->query.type);
  const size_t bytes = 2 * (size_t)(kernels * width) * sizeof(double); /* the doubles, and after them the tensor's numbers */
  void *table = NULL, *memory = NULL;
  HARK_TRY(hark_allocate(context, table_bytes, &table));
  hark_status status = hark_allocate_zero(context, bytes, &memory);
  double *gradients = memory;
  if (status == HARK_OK) status = hark_tensor_read(context, &t->dlog_kernel, table);
  if (status == HARK_OK) status = collect(context, v, t, table, gradients, width);
  if (status == HARK_OK && width > 0) {
    pack(t->query.type, gradients, kernels * width, gradients + kernels * width);
    status = hark_tensor_write(context, &t->dpositional, gradients + kernels * width);
  }
  hark_release(context, memory, bytes);
  hark_release(context, table, table_bytes);
  /* the table is not an input of the user, so its gradient is not an output */
  hark_tensor_destroy(context, &t->dlog_kernel);
  return status;
}
