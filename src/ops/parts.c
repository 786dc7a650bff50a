/* parts.c - see parts.h. */
#include "ops/parts.h"

#include <hark/experimental.h>

#include "backend/backend.h"

/* What of an operator has rows: inputs and outputs by their bits; everything saved has. */
typedef struct rowwise {
  const hark_operator *op;
  unsigned inputs, outputs;
} rowwise;

enum { ROTARY_POSITIONS = 2 }; /* an input of rotary */

static const rowwise *find(const hark_operator *op) {
  static const rowwise records[] = {{&hark_op_linear, 1, 1},       {&hark_op_linear_compact, 1, 1}, {&hark_op_linear_bf16, 1, 1},
                                    {&hark_op_layer_norm, 1, 1},   {&hark_op_rms_norm, 1, 1},       {&hark_op_rotary, 1, 1},
                                    {&hark_op_cross_entropy, 3, 0}};
  for (size_t i = 0; i < sizeof records / sizeof *records; i++)
    if (records[i].op == op) return &records[i];
  return NULL;
}

/* The positions of one sequence are its rows; several sequences are not cut, nor given positions. */
static bool is_cut(const hark_call *call) {
  if (call->op != &hark_op_rotary) return true;
  return call->inputs[0].shape[0] == 1 && (call->input_count <= ROTARY_POSITIONS || call->inputs[ROTARY_POSITIONS].type == HARK_NONE);
}

static int64_t row_count(const hark_tensor *x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x->rank; i++) rows *= x->shape[i];
  return rows;
}

int64_t hark_rows_of_parts(const hark_context *context, const hark_call *call) {
  const int64_t rows = row_count(&call->inputs[0]);
  if (rows <= context->rows.most || find(call->op) == NULL || !is_cut(call)) return 0;
  return hark_tensor_count(&call->inputs[0]) > 0 ? rows : 0;
}

hark_tensor hark_tensor_rows(const hark_tensor *tensor, int64_t rows, int64_t first, int64_t count) {
  hark_tensor part = *tensor;
  const int64_t numbers = hark_tensor_count(tensor) / rows; /* of a row */
  const int axis = tensor->rank > 1 && tensor->shape[0] == 1 ? 1 : 0;
  part.owned_bytes = 0;
  part.shape[axis] = count;
  if (axis == 1) part.stride[0] = count * numbers;
  if (part.data != NULL) part.data = (char *)part.data + (size_t)(first * numbers) * hark_type_bytes(part.type);
  return part;
}

/* As hark_tensor_rows(), for any leading dimensions. */
static void cut(hark_tensor *tensor, int64_t rows, int64_t first, int64_t count) {
  if (tensor->type == HARK_NONE) return;
  const int64_t numbers = hark_tensor_count(tensor) / rows;
  if (tensor->rank != 3 || tensor->shape[0] != 1) { /* [rows, numbers] or [rows] */
    const bool wide = tensor->rank > 1 && tensor->shape[tensor->rank - 1] * rows == hark_tensor_count(tensor);
    tensor->rank = wide ? 2 : 1;
    tensor->shape[0] = rows;
    tensor->shape[1] = wide ? numbers : 0;
    tensor->stride[0] = numbers;
    tensor->stride[1] = wide ? 1 : 0;
  }
  *tensor = hark_tensor_rows(tensor, rows, first, count);
}

void hark_part_of_call(const hark_call *call, int64_t first, int64_t count, hark_call_part *out) {
  const rowwise *kind = find(call->op);
  const int64_t rows = row_count(&call->inputs[0]);
  hark_call *part = &out->call;
  *part = *call;
  for (int i = 0; i < call->input_count; i++) {
    if (kind->inputs >> i & 1u) {
      cut(&part->inputs[i], rows, first, count);
      cut(&part->input_gradients[i], rows, first, count);
    } else if (first > 0) { /* the gradient is a sum over the parts */
      part->accumulate |= 1u << i;
    }
  }
  for (int i = 0; i < call->op->output_count; i++) {
    if (!(kind->outputs >> i & 1u)) continue;
    cut(&part->outputs[i], rows, first, count);
    cut(&part->output_gradients[i], rows, first, count);
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) cut(&part->saved[i], rows, first, count);
  if (call->op != &hark_op_rotary) return;
  out->rotary = *(const hark_rotary_attributes *)call->attributes;
  out->rotary.first_position += first;
  part->attributes = &out->rotary;
}

static bool is_sum(const hark_call *call, int i) {
  return i < call->op->output_count && !(find(call->op)->outputs >> i & 1u) && call->outputs[i].type != HARK_NONE;
}

hark_status hark_part_add_sums(hark_context *context, const hark_call *call, hark_part_sums *sums) {
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) {
    hark_part_sums part;
    if (!is_sum(call, i)) continue;
    HARK_TRY(hark_tensor_read(context, &call->outputs[i], &part.sum[i]));
    switch (call->outputs[i].type) {
      case HARK_F32: sums->sum[i].f32 += part.sum[i].f32; break;
      case HARK_F64: sums->sum[i].f64 += part.sum[i].f64; break;
      default: sums->sum[i].i64 += part.sum[i].i64; break; /* counts */
    }
  }
  return HARK_OK;
}

hark_status hark_part_give_sums(hark_context *context, const hark_call *call, const hark_part_sums *sums) {
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) {
    hark_tensor output = call->outputs[i];
    if (is_sum(call, i)) HARK_TRY(hark_tensor_write(context, &output, &sums->sum[i]));
  }
  return HARK_OK;
}
