/* bench_operator.c - one operator record, forward and backward, on given extents: 'linear:M4096,N512,K512'.
 *
 * Which records there are and what the letters of their extents mean is the table below. Operations are those of the record; bytes count
 * every input, output and gradient once.
 */
#include <hark/operators.h>
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "cli/bench.h"

#define EXTENTS "BHLMNKD"
#define EXTENT_COUNT (sizeof EXTENTS - 1)
#define SHAPE_INPUTS 4

typedef struct operator_case {
  int64_t extents[EXTENT_COUNT];
  bool bias, transpose_a, transpose_b;
  char expression[48]; /* positional: a bank of H kernels */
} operator_case;

typedef union operator_attributes {
  hark_matmul_attributes matmul;
  hark_norm_attributes norm;
  hark_gelu_attributes gelu;
  hark_dropout_attributes dropout;
  hark_cross_entropy_attributes cross_entropy;
  hark_rotary_attributes rotary;
  hark_adamw_attributes adamw;
  hark_scale_attributes scale;
  hark_positional_attributes positional;
} operator_attributes;

/* A shape is a letter an extent; '#' in front: whole numbers below N; '?': only with the word bias. NULL ends the inputs. */
typedef struct operator_row {
  const char *name;
  const char *inputs[SHAPE_INPUTS + 1];
} operator_row;

static const operator_row rows[] = {
    {"linear", {"MK", "NK", "?N"}},
    {"matmul", {"BMK", "BKN"}},
    {"embedding", {"#M", "ND"}},
    {"layer_norm", {"MD", "D", "?D"}},
    {"rms_norm", {"MD", "D"}},
    {"gelu", {"MD"}},
    {"silu", {"MD"}},
    {"relu", {"MD"}},
    {"gated_silu", {"MD", "MD"}},
    {"add", {"MD", "MD"}},
    {"scale", {"MD"}},
    {"dropout", {"MD"}},
    {"cross_entropy", {"MN", "#M"}},
    {"rotary", {"BLD"}},
    {"adamw", {"N", "N", "N", "N"}},
    {"sum_squares", {"N"}},
    {"positional", {"MD"}}, /* M tables of N distances, with D parameters each */
};

static int64_t extent_of(const operator_case *c, char letter) {
  const char *at = strchr(EXTENTS, letter);
  return at == NULL ? 0 : c->extents[at - EXTENTS];
}

static void fill_attributes(const char *name, const operator_case *c, operator_attributes *attributes) {
  const hark_random_stream stream = {.layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_DROPOUT)};
  memset(attributes, 0, sizeof *attributes);
  if (strcmp(name, "matmul") == 0) attributes->matmul = (hark_matmul_attributes){c->transpose_a, c->transpose_b};
  if (strstr(name, "_norm") != NULL) attributes->norm.epsilon = 1e-5;
  if (strcmp(name, "dropout") == 0) attributes->dropout = (hark_dropout_attributes){0.1, stream};
  if (strcmp(name, "cross_entropy") == 0) {
    attributes->cross_entropy = (hark_cross_entropy_attributes){1.0 / (double)extent_of(c, 'M'), 0, -1};
  }
  if (strcmp(name, "rotary") == 0) attributes->rotary = (hark_rotary_attributes){.heads = extent_of(c, 'H'), .base = 10000};
  if (strcmp(name, "positional") == 0)
    attributes->positional = (hark_positional_attributes){.text = c->expression, .distances = extent_of(c, 'N')};
  if (strcmp(name, "scale") == 0) attributes->scale.factor = 0.5;
  if (strcmp(name, "adamw") == 0) {
    attributes->adamw =
        (hark_adamw_attributes){.rate = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .decay = 0.1, .gradient_scale = 1, .step = 1};
  }
}

static hark_status forward(hark_context *context, void *data) { return hark_operator_forward(context, data); }
static hark_status backward(hark_context *context, void *data) { return hark_operator_backward(context, data); }

/* Writes the names of the rows for messages. */
static const char *row_names(char *text, size_t size) {
  size_t length = 0;
  text[0] = '\0';
  for (size_t i = 0; i < sizeof rows / sizeof rows[0] && length < size; i++) {
    const int written = snprintf(text + length, size - length, "%s%s", i > 0 ? ", " : "", rows[i].name);
    if (written > 0) length += (size_t)written;
  }
  return text;
}

static hark_status read_case(hark_context *context, const char *text, operator_case *c, const operator_row **out) {
  const size_t head = hark_bench_case_head(text);
  char names[256];
  *out = NULL;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (strlen(rows[i].name) == head && memcmp(rows[i].name, text, head) == 0) *out = &rows[i];
  }
  if (*out == NULL) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': operator '%.*s', expected one of %s", text, (int)head, text,
                     row_names(names, sizeof names));
  }
  *c = (operator_case){0};
  for (const char *one = "BH"; *one != '\0'; one++) c->extents[strchr(EXTENTS, *one) - EXTENTS] = 1;
  char letters[EXTENT_COUNT][2];
  hark_bench_field fields[EXTENT_COUNT + 3];
  for (size_t i = 0; i < EXTENT_COUNT; i++) {
    memcpy(letters[i], (char[]){EXTENTS[i], '\0'}, 2);
    fields[i] = (hark_bench_field){.name = letters[i], .type = HARK_BENCH_WHOLE, .whole = &c->extents[i]};
  }
  fields[EXTENT_COUNT] = (hark_bench_field){.name = "bias", .type = HARK_BENCH_FLAG, .flag = &c->bias};
  fields[EXTENT_COUNT + 1] = (hark_bench_field){.name = "ta", .type = HARK_BENCH_FLAG, .flag = &c->transpose_a};
  fields[EXTENT_COUNT + 2] = (hark_bench_field){.name = "tb", .type = HARK_BENCH_FLAG, .flag = &c->transpose_b};
  HARK_TRY(hark_bench_case_read(context, text, fields, EXTENT_COUNT + 3));
  snprintf(c->expression, sizeof c->expression, "bank[%" PRId64 "](decay*periodic)", extent_of(c, 'H'));
  for (int i = 0; (*out)->inputs[i] != NULL; i++) {
    for (const char *letter = (*out)->inputs[i]; *letter != '\0'; letter++) {
      if (strchr(EXTENTS, *letter) != NULL && extent_of(c, *letter) == 0) {
        return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': %s needs %c<n>", text, (*out)->name, *letter);
      }
    }
  }
  return HARK_OK;
}

/* Random ids below `limit`, from the bits of the stream. */
static hark_status fill_ids(hark_context *context, hark_tensor *tensor, int64_t limit) {
  const int64_t count = hark_tensor_count(tensor);
  const size_t bytes = (size_t)count * sizeof(int32_t);
  void *host;
  HARK_TRY(hark_allocate(context, bytes, &host));
  const hark_random_stream stream = {.layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_TEST)};
  for (int64_t i = 0; i < count; i++) ((int32_t *)host)[i] = (int32_t)(hark_random_word(&stream, (uint64_t)i) % (uint64_t)limit);
  const hark_status status = hark_tensor_write(context, tensor, host);
  hark_release(context, host, bytes);
  return status;
}

static hark_status make_input(hark_context *context, const operator_case *c, const char *letters, bool transposed, uint32_t number,
                              hark_tensor *out) {
  const bool ids = letters[0] == '#';
  letters += ids || letters[0] == '?';
  int64_t shape[HARK_MAX_RANK];
  const int rank = (int)strlen(letters);
  for (int i = 0; i < rank; i++) shape[i] = extent_of(c, letters[i]);
  if (transposed) {
    const int64_t last = shape[rank - 1];
    shape[rank - 1] = shape[rank - 2];
    shape[rank - 2] = last;
  }
  HARK_TRY(hark_tensor_create(context, ids ? HARK_I32 : HARK_F32, rank, shape, out));
  return ids ? fill_ids(context, out, extent_of(c, 'N')) : hark_bench_fill(context, out, number, 1);
}

static hark_status prepare(hark_context *context, const operator_case *c, const operator_row *row, const void *attributes, hark_call *call,
                           hark_tensor *workspace) {
  for (int i = 0; row->inputs[i] != NULL && (row->inputs[i][0] != '?' || c->bias); i++) {
    const bool transposed = i == 0 ? c->transpose_a : c->transpose_b;
    call->input_count = i + 1;
    HARK_TRY(make_input(context, c, row->inputs[i], strcmp(row->name, "matmul") == 0 && transposed, (uint32_t)i, &call->inputs[i]));
  }
  hark_inferred inferred = {0};
  HARK_TRY(call->op->infer(context, attributes, call->inputs, call->input_count, &inferred));
  for (int i = 0; i < call->op->output_count; i++) {
    const hark_tensor *output = &inferred.outputs[i];
    HARK_TRY(hark_tensor_create(context, output->type, output->rank, output->shape, &call->outputs[i]));
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) {
    const hark_tensor *saved = &inferred.saved[i];
    if (saved->type != HARK_NONE) HARK_TRY(hark_tensor_create(context, saved->type, saved->rank, saved->shape, &call->saved[i]));
  }
  if (call->op->backward != NULL) {
    hark_tensor *gradient = &call->output_gradients[0];
    HARK_TRY(hark_tensor_create(context, call->outputs[0].type, call->outputs[0].rank, call->outputs[0].shape, gradient));
    HARK_TRY(hark_bench_fill(context, gradient, SHAPE_INPUTS, 1));
    for (int i = 0; i < call->input_count; i++) {
      const hark_tensor *input = &call->inputs[i];
      const bool wanted = (call->op->differentiable >> i & 1u) != 0 && (call->op->gradient_passes >> i & 1u) == 0;
      if (wanted) HARK_TRY(hark_tensor_create(context, input->type, input->rank, input->shape, &call->input_gradients[i]));
    }
  }
  call->workspace_bytes =
      inferred.forward_workspace > inferred.backward_workspace ? inferred.forward_workspace : inferred.backward_workspace;
  if (call->workspace_bytes > 0) {
    HARK_TRY(hark_tensor_create(context, HARK_U8, 1, (int64_t[]){(int64_t)call->workspace_bytes}, workspace));
    call->workspace = workspace->data;
  }
  return HARK_OK;
}

/* Does any gradient that the backward computes lie there? (add passes its gradients on.) */
static bool has_backward(const hark_call *call) {
  return call->op->backward != NULL && hark_bench_bytes(call->input_gradients, HARK_MAX_INPUTS) > 0;
}

hark_status hark_bench_operator(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text) {
  operator_case c;
  const operator_row *row;
  HARK_TRY(read_case(context, text, &c, &row));
  operator_attributes attributes;
  fill_attributes(row->name, &c, &attributes);
  hark_call call = {.op = hark_operator_find(row->name), .attributes = &attributes};
  if (call.op == NULL) return hark_fail(context, HARK_NOT_FOUND, "case '%s': this hark has no operator %s", text, row->name);
  hark_tensor workspace = {0};
  hark_status status = prepare(context, &c, row, &attributes, &call, &workspace);
  if (status == HARK_OK) {
    const bool both = has_backward(&call);
    const hark_bench_work measured = {
        .name = text,
        .forward = forward,
        .backward = both ? backward : NULL,
        .data = &call,
        .forward_operations = call.op->operations(&attributes, call.inputs, call.input_count, false),
        .backward_operations = both ? call.op->operations(&attributes, call.inputs, call.input_count, true) : 0,
        .forward_bytes = hark_bench_bytes(call.inputs, HARK_MAX_INPUTS) + hark_bench_bytes(call.outputs, HARK_MAX_OUTPUTS),
        .backward_bytes = hark_bench_bytes(call.inputs, HARK_MAX_INPUTS) + hark_bench_bytes(call.output_gradients, HARK_MAX_OUTPUTS) +
                          hark_bench_bytes(call.input_gradients, HARK_MAX_INPUTS),
        .single = true,
    };
    status = hark_bench_work_run(context, machine, settings, &measured);
  }
  hark_tensor_destroy(context, &workspace);
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    hark_tensor_destroy(context, &call.inputs[i]);
    hark_tensor_destroy(context, &call.input_gradients[i]);
  }
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) {
    hark_tensor_destroy(context, &call.outputs[i]);
    hark_tensor_destroy(context, &call.output_gradients[i]);
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) hark_tensor_destroy(context, &call.saved[i]);
  return status;
}
