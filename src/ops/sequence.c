/* sequence.c - see sequence.h.
 *
 * Both exchanges move the same parts, in opposite directions: part p is what process p has, the rows of p and the own heads at one end, the
 * own rows and the heads of p at the other. The gradient of one exchange is the other one.
 */
#include "ops/sequence.h"

#include <inttypes.h>
#include <string.h>

#include "ops/definition.h"

enum { INPUT_X, INPUT_COUNT };

static const hark_sequence_attributes *attributes_of(const void *attributes) { return attributes; }

static int size_of(const hark_sequence_attributes *a) { return hark_group_size(a->sequence->group); }
static int own_of(const hark_sequence_attributes *a) { return hark_group_rank(a->sequence->group); }
static hark_share heads_of(const hark_sequence_attributes *a, int rank) {
  return hark_sequence_heads(a->sequence, a->heads, a->key_heads, rank);
}

/* ---- shapes ---- */

static hark_status refuse(hark_context *context, const char *name, const hark_tensor *x, int64_t rows, int64_t heads) {
  char text[HARK_SHAPE_TEXT_BYTES];
  return hark_fail(context, HARK_SHAPE_MISMATCH, "%s: x has %s, expected [B, %" PRId64 ", %" PRId64 " heads of equally many features]",
                   name, hark_shape_text(x, text, sizeof text), rows, heads);
}

static size_t bytes_of(const hark_tensor *tensor) { return (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type); }

/* Memory of an exchange: copies of blocks at both ends, and the messages. */
static size_t room_of(const hark_sequence_attributes *a, size_t copies) {
  return hark_align_up(copies) + 2 * (size_t)size_of(a) * sizeof(hark_message);
}

static hark_status infer_exchange(hark_context *context, const hark_operator *op, const hark_sequence_attributes *a, bool to_heads,
                                  const hark_tensor *inputs, int input_count, hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 3, 3}};
  HARK_TRY(hark_check_inputs(context, op, rules, a, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X];
  const int64_t own_rows = hark_sequence_own_rows(a->sequence).count, own_heads = heads_of(a, own_of(a)).count;
  const int64_t heads = to_heads ? a->heads : own_heads, rows = to_heads ? own_rows : a->sequence->total;
  if (x->shape[1] != rows || x->shape[2] % heads != 0) return refuse(context, op->name, x, rows, heads);
  const int64_t features = x->shape[2] / heads;
  const int64_t shape[] = {x->shape[0], to_heads ? a->sequence->total : own_rows, features * (to_heads ? own_heads : a->heads)};
  HARK_TRY(hark_tensor_describe(context, x->type, 3, shape, &out->outputs[0]));
  const size_t by_heads = bytes_of(to_heads ? x : &out->outputs[0]), by_rows = bytes_of(to_heads ? &out->outputs[0] : x);
  out->forward_workspace = room_of(a, by_heads + (x->shape[0] == 1 ? 0 : by_rows)); /* side_of() */
  out->backward_workspace = to_heads ? out->forward_workspace : room_of(a, by_heads + by_rows);
  return HARK_OK;
}

static hark_status infer_to_heads(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count,
                                  hark_inferred *out) {
  return infer_exchange(context, &hark_op_sequence_to_heads, attributes, true, inputs, input_count, out);
}

static hark_status infer_to_rows(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count,
                                 hark_inferred *out) {
  return infer_exchange(context, &hark_op_sequence_to_rows, attributes, false, inputs, input_count, out);
}

/* ---- exchange ---- */

/* A block of a tensor [B, rows, width]: rows [first, first + count), columns [column, column + columns). */
typedef struct block {
  const hark_tensor *tensor;
  int64_t first, count, column, columns;
} block;

static size_t block_bytes(const block *b) {
  return (size_t)(b->tensor->shape[0] * b->count * b->columns) * hark_type_bytes(b->tensor->type);
}

/* The rows of process p, and the columns of the own heads, or all of them. */
static block block_of_rows(const hark_sequence_attributes *a, const hark_tensor *tensor, int p) {
  const hark_share rows = hark_sequence_rows(a->sequence, p);
  return (block){tensor, rows.first, rows.count, 0, tensor->shape[2]};
}

/* The own rows, and the columns of the heads of process p. */
static block block_of_heads(const hark_sequence_attributes *a, const hark_tensor *tensor, int p) {
  const hark_share heads = heads_of(a, p);
  const int64_t features = tensor->shape[2] / a->heads;
  return (block){tensor, 0, tensor->shape[1], heads.first * features, heads.count * features};
}

static char *row_of(const block *b, int64_t item, int64_t row) {
  const int64_t index = (item * b->tensor->shape[1] + b->first + row) * b->tensor->shape[2] + b->column;
  return (char *)b->tensor->data + (size_t)index * hark_type_bytes(b->tensor->type);
}

static void pack(const block *b, char *to) {
  const size_t bytes = (size_t)b->columns * hark_type_bytes(b->tensor->type);
  for (int64_t item = 0; item < b->tensor->shape[0]; item++)
    for (int64_t row = 0; row < b->count; row++, to += bytes) memcpy(to, row_of(b, item, row), bytes);
}

static void add_row(hark_type type, const char *from, int64_t count, char *to) {
  if (type == HARK_F32)
    for (int64_t i = 0; i < count; i++) ((float *)(void *)to)[i] += ((const float *)(const void *)from)[i];
  else
    for (int64_t i = 0; i < count; i++) ((double *)(void *)to)[i] += ((const double *)(const void *)from)[i];
}

static void unpack(const block *b, const char *from, bool add) {
  const size_t bytes = (size_t)b->columns * hark_type_bytes(b->tensor->type);
  for (int64_t item = 0; item < b->tensor->shape[0]; item++)
    for (int64_t row = 0; row < b->count; row++, from += bytes) {
      if (add)
        add_row(b->tensor->type, from, b->columns, row_of(b, item, row));
      else
        memcpy(row_of(b, item, row), from, bytes);
    }
}

typedef block block_maker(const hark_sequence_attributes *a, const hark_tensor *tensor, int p);

/* One end of an exchange. */
typedef struct side {
  const hark_tensor *tensor;
  block_maker *block_of;
  bool direct; /* its blocks need no copies: they are sent from, or received at, their place */
  char *room;  /* for the copies */
} side;

/* Blocks of complete rows of one sequence are contiguous. */
static side side_of(const hark_tensor *tensor, bool by_rows, bool adds) {
  return (side){tensor, by_rows ? block_of_rows : block_of_heads, by_rows && tensor->shape[0] == 1 && !adds, NULL};
}

/* Where the block of process p is, the blocks before it having `before` bytes. */
static char *place_of(const side *s, const block *b, size_t before) { return s->direct ? row_of(b, 0, 0) : s->room + before; }

/* The messages to all processes, with what stays here at its place in `to`. */
static int list_messages(const hark_sequence_attributes *a, const side *from, const side *to, hark_message *messages) {
  size_t sent = 0, received = 0;
  int count = 0;
  for (int p = 0; p < size_of(a); p++) {
    const block out = from->block_of(a, from->tensor, p), in = to->block_of(a, to->tensor, p);
    char *const source = place_of(from, &out, sent), *const target = place_of(to, &in, received);
    if (!from->direct) pack(&out, source);
    if (p == own_of(a)) {
      memcpy(target, source, block_bytes(&out));
    } else {
      messages[count++] = (hark_message){source, block_bytes(&out), p, true};
      messages[count++] = (hark_message){target, block_bytes(&in), p, false};
    }
    sent += block_bytes(&out);
    received += block_bytes(&in);
  }
  return count;
}

/* to <- from, or to += from: the block of every process there, from the block for this process here. */
static hark_status move(hark_context *context, const hark_sequence_attributes *a, const side *from, const side *to, bool add,
                        hark_message *messages) {
  size_t received = 0;
  HARK_TRY(hark_group_exchange(context, a->sequence->group, messages, list_messages(a, from, to, messages)));
  for (int p = 0; p < size_of(a) && !to->direct; p++) {
    const block b = to->block_of(a, to->tensor, p);
    unpack(&b, to->room + received, add);
    received += block_bytes(&b);
  }
  return HARK_OK;
}

static hark_status run(hark_context *context, const hark_call *call, bool to_heads, bool backward) {
  if (backward && (!hark_present(&call->output_gradients[0]) || !hark_present(&call->input_gradients[INPUT_X]))) return HARK_OK;
  const hark_tensor *const from = backward ? &call->output_gradients[0] : &call->inputs[INPUT_X];
  const hark_tensor *const to = backward ? &call->input_gradients[INPUT_X] : &call->outputs[0];
  const bool by_rows = to_heads == backward, adds = backward && (call->accumulate & 1u << INPUT_X) != 0;
  side source = side_of(from, by_rows, false), target = side_of(to, !by_rows, adds);
  source.room = call->workspace;
  target.room = source.room + (source.direct ? 0 : bytes_of(from));
  const size_t copies = (size_t)(target.room - source.room) + (target.direct ? 0 : bytes_of(to));
  return move(context, call->attributes, &source, &target, adds, (hark_message *)(void *)(source.room + hark_align_up(copies)));
}

static hark_status forward_to_heads(hark_context *context, const hark_call *call) { return run(context, call, true, false); }
static hark_status backward_to_heads(hark_context *context, const hark_call *call) { return run(context, call, true, true); }
static hark_status forward_to_rows(hark_context *context, const hark_call *call) { return run(context, call, false, false); }
static hark_status backward_to_rows(hark_context *context, const hark_call *call) { return run(context, call, false, true); }

/* ---- rows of a table by heads ---- */

static hark_status infer_own_heads(hark_context *context, const void *attributes, const hark_tensor *inputs, int input_count,
                                   hark_inferred *out) {
  static const hark_input_rule rules[INPUT_COUNT] = {{"x", HARK_F32, 2, 2}};
  const hark_sequence_attributes *const a = attributes_of(attributes);
  HARK_TRY(hark_check_inputs(context, &hark_op_sequence_own_heads, rules, attributes, inputs, input_count));
  const hark_tensor *x = &inputs[INPUT_X];
  if (x->shape[0] != a->heads)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "sequence_own_heads: x has %" PRId64 " rows, expected %" PRId64, x->shape[0], a->heads);
  const int64_t shape[] = {heads_of(a, own_of(a)).count, x->shape[1]};
  return hark_tensor_describe(context, x->type, 2, shape, &out->outputs[0]);
}

/* The rows of x, as a block [1, H, n]. */
static hark_tensor as_block(const hark_tensor *x) {
  const int64_t rows = x->shape[0], width = x->shape[1];
  return (hark_tensor){.data = x->data, .type = x->type, .rank = 3, .shape = {1, rows, width}, .stride = {rows * width, width, 1}};
}

static hark_status forward_own_heads(hark_context *context, const hark_call *call) {
  const hark_sequence_attributes *const a = attributes_of(call->attributes);
  const hark_share own = heads_of(a, own_of(a));
  const hark_tensor x = as_block(&call->inputs[INPUT_X]);
  const block rows = {&x, own.first, own.count, 0, x.shape[2]};
  (void)context;
  pack(&rows, call->outputs[0].data);
  return HARK_OK;
}

/* The gradients of other heads are zero: their processes have them. */
static hark_status backward_own_heads(hark_context *context, const hark_call *call) {
  const hark_sequence_attributes *const a = attributes_of(call->attributes);
  const hark_share own = heads_of(a, own_of(a));
  const bool add = (call->accumulate & 1u << INPUT_X) != 0;
  if (!hark_present(&call->output_gradients[0]) || !hark_present(&call->input_gradients[INPUT_X])) return HARK_OK;
  const hark_tensor dx = as_block(&call->input_gradients[INPUT_X]);
  const block rows = {&dx, own.first, own.count, 0, dx.shape[2]};
  (void)context;
  if (!add) memset(dx.data, 0, bytes_of(&dx));
  unpack(&rows, call->output_gradients[0].data, true);
  return HARK_OK;
}

static double operations(const void *attributes, const hark_tensor *inputs, int input_count, bool is_backward) {
  (void)attributes, (void)inputs, (void)input_count, (void)is_backward;
  return 0;
}

static int64_t terms(const void *attributes, const hark_tensor *inputs, int input_count) {
  (void)attributes, (void)inputs, (void)input_count;
  return 1;
}

#define RECORD(record_name, text)                                                                                                          \
  const hark_operator hark_op_sequence_##record_name = {.name = "sequence_" #record_name,                                                  \
                                                        .formula = text,                                                                   \
                                                        .attributes_size = sizeof(hark_sequence_attributes),                               \
                                                        .input_minimum = INPUT_COUNT,                                                      \
                                                        .input_maximum = INPUT_COUNT,                                                      \
                                                        .output_count = 1,                                                                 \
                                                        .differentiable = 1u << INPUT_X,                                                   \
                                                        .infer = infer_##record_name,                                                      \
                                                        .forward = forward_##record_name,                                                  \
                                                        .backward = backward_##record_name,                                                \
                                                        .operations = operations,                                                          \
                                                        .terms = terms}

RECORD(to_heads, "y = all rows of the own heads of x");
RECORD(to_rows, "y = the own rows of all heads of x");
RECORD(own_heads, "y = the rows of the own heads of x");
