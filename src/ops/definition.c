/* definition.c - the checks at the beginning of every operator's shape inference, and the loops of definitions. */
#include "ops/definition.h"

#include <inttypes.h>
#include <string.h>

#include "core/parallel.h"

static bool is_floating(hark_type type) { return type == HARK_F32 || type == HARK_F64; }

static hark_status check_input(hark_context *context, const hark_operator *op, const hark_input_rule *rule, const hark_tensor *input,
                               hark_type *floating) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (rule->type == HARK_F32) {
    if (!is_floating(input->type)) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %s, expected f32 or f64", op->name, rule->name,
                       hark_type_name(input->type));
    }
    if (*floating != HARK_NONE && *floating != input->type) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %s, but an input before it is %s; expected one type", op->name,
                       rule->name, hark_type_name(input->type), hark_type_name(*floating));
    }
    *floating = input->type;
  } else if (input->type != rule->type) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s is %s, expected %s", op->name, rule->name, hark_type_name(input->type),
                     hark_type_name(rule->type));
  }
  if (input->rank < rule->rank_minimum || input->rank > rule->rank_maximum) {
    if (rule->rank_minimum == rule->rank_maximum) {
      return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected rank %d", op->name, rule->name,
                       hark_shape_text(input, text, sizeof text), rule->rank_minimum);
    }
    return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected a rank from %d to %d", op->name, rule->name,
                     hark_shape_text(input, text, sizeof text), rule->rank_minimum, rule->rank_maximum);
  }
  if (!hark_tensor_is_contiguous(input)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s %s is not contiguous", op->name, rule->name,
                     hark_shape_text(input, text, sizeof text));
  }
  return HARK_OK;
}

hark_status hark_check_inputs(hark_context *context, const hark_operator *op, const hark_input_rule *rules, const void *attributes,
                              const hark_tensor *inputs, int input_count) {
  if (op->attributes_size > 0 && attributes == NULL) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: attributes are NULL, expected %zu bytes", op->name, op->attributes_size);
  }
  if (input_count < op->input_minimum || input_count > op->input_maximum) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: given %d inputs, expected %d to %d", op->name, input_count, op->input_minimum,
                     op->input_maximum);
  }
  hark_type floating = HARK_NONE;
  for (int i = 0; i < input_count; i++) {
    if (hark_present(&inputs[i])) {
      HARK_TRY(check_input(context, op, &rules[i], &inputs[i], &floating));
    } else if (i < op->input_minimum) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: %s (input %d) is absent, expected a tensor", op->name, rules[i].name, i);
    }
  }
  return HARK_OK;
}

hark_status hark_check_vector(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor, int64_t length,
                              const char *origin) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->rank == 1 && tensor->shape[0] == length) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected [%" PRId64 "] (%s)", op->name, name,
                   hark_shape_text(tensor, text, sizeof text), length, origin);
}

hark_status hark_check_shape(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor, int rank,
                             const int64_t *expected) {
  if (tensor->rank == rank && memcmp(tensor->shape, expected, (size_t)rank * sizeof *expected) == 0) return HARK_OK;
  hark_tensor required = {.rank = rank};
  char is[HARK_SHAPE_TEXT_BYTES], text[HARK_SHAPE_TEXT_BYTES];
  memcpy(required.shape, expected, (size_t)rank * sizeof *expected);
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected %s", op->name, name, hark_shape_text(tensor, is, sizeof is),
                   hark_shape_text(&required, text, sizeof text));
}

/* Refuses rows that are not of one sequence of so many heads. */
static hark_status check_heads(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *rows, int64_t heads) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (rows->rank == 3 && rows->shape[0] == 1 && rows->shape[2] % heads == 0) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s, expected one sequence whose rows %" PRId64 " heads divide", op->name, name,
                   hark_shape_text(rows, text, sizeof text), heads);
}

hark_status hark_check_decoder_rows(hark_context *context, const hark_operator *op, const hark_tensor *query, const hark_tensor *key,
                                    const hark_tensor *value, int64_t heads, int64_t key_heads) {
  HARK_TRY(check_heads(context, op, "query", query, heads));
  HARK_TRY(check_heads(context, op, "value", value, key_heads));
  const int64_t rows = query->shape[1], keys[] = {1, rows, query->shape[2] / heads * key_heads}, values[] = {1, rows, value->shape[2]};
  HARK_TRY(hark_check_shape(context, op, "key", key, 3, keys));
  return hark_check_shape(context, op, "value", value, 3, values);
}

hark_status hark_check_same_shape(hark_context *context, const hark_operator *op, const char *name_a, const hark_tensor *a,
                                  const char *name_b, const hark_tensor *b) {
  char text_a[HARK_SHAPE_TEXT_BYTES], text_b[HARK_SHAPE_TEXT_BYTES];
  if (a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: %s has %s and %s has %s, expected one shape", op->name, name_a,
                   hark_shape_text(a, text_a, sizeof text_a), name_b, hark_shape_text(b, text_b, sizeof text_b));
}

hark_status hark_check_ids(hark_context *context, const hark_operator *op, const hark_tensor *ids, int64_t vocabulary) {
  const int32_t *id = ids->data;
  const int64_t count = hark_tensor_count(ids);
  for (int64_t n = 0; n < count; n++) {
    if (id[n] < 0 || id[n] >= vocabulary) {
      return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: id %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64, op->name, n, id[n],
                       vocabulary - 1);
    }
  }
  return HARK_OK;
}

hark_status hark_partials_bytes(hark_context *context, int64_t length, size_t *out) {
  return hark_size_multiply(context, (size_t)length, HARK_DEFINITION_PARTIALS * sizeof(double), out);
}

typedef struct range_work {
  const hark_call *call;
  hark_range_body *body;
  int64_t count, grain;
} range_work;

static void run_range(void *data, int64_t index, int worker) {
  (void)worker;
  const range_work *work = data;
  const int64_t first = index * work->grain;
  work->body(work->call, first, hark_min(first + work->grain, work->count));
}

void hark_range_for(hark_context *context, const hark_call *call, int64_t count, int64_t grain, hark_range_body *body) {
  range_work work = {.call = call, .body = body, .count = count, .grain = grain};
  const int64_t pieces = hark_ceil_div(count, grain);
  hark_parallel_for_equal(context, pieces, run_range, &work);
}

/* Time for reading and writing HARK_DEFINITION_GRAIN numbers. */
#define COPY_NANOSECONDS (0.2 * HARK_DEFINITION_GRAIN)

void hark_copy_range_for(hark_context *context, const hark_call *call, int64_t count, int64_t grain, hark_range_body *body) {
  range_work work = {.call = call, .body = body, .count = count, .grain = grain};
  if (grain == 1) /* a piece of work of any length */
    hark_parallel_for_equal(context, count, run_range, &work);
  else
    hark_parallel_for_work(context, hark_ceil_div(count, grain), COPY_NANOSECONDS * (double)count / (double)grain, run_range, &work);
}

bool hark_gradient_is_absent(const hark_call *call) {
  if (hark_present(&call->output_gradients[0])) return false;
  for (int i = 0; i < call->input_count; i++) {
    const hark_tensor *gradient = &call->input_gradients[i];
    const bool accumulated = ((call->accumulate >> i) & 1u) != 0;
    if (hark_present(gradient) && !accumulated) {
      const size_t bytes = (size_t)hark_tensor_count(gradient) * hark_type_bytes(gradient->type);
      if (bytes > 0) memset(gradient->data, 0, bytes);
    }
  }
  return true;
}
