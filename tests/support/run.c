/* run.c - one sample of one operator record, run with everything watched that a kernel must not do. */
#include "support/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "support/cmocka_all.h"

#define SENTINEL_BYTES ((size_t)64) /* keeps tensors aligned as the backend aligns memory */
#define SENTINEL 0xA5
#define POISON 0xFF /* all bits set is a NaN in f32 and f64, and -1 in whole numbers */
#define TEST_SEED 20240229u

static const char *const role_names[] = {"input", "output", "saved", "output gradient", "input gradient"};

void test_run_fail(const test_run *run, const char *format, ...) {
  char message[512];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  print_error("%s, sample %s on %s:%s: %s\n", run->op->name, run->sample->name, hark_context_backend(run->context),
              hark_context_instruction_set(run->context), message);
  if (run->rerun != NULL) print_error("rerun: %s\n", run->rerun);
  fail();
}

static void check(const test_run *run, hark_status status, const char *what) {
  if (status != HARK_OK) test_run_fail(run, "%s: %s: %s", what, hark_status_text(status), hark_context_message(run->context));
}

static void *host_memory(size_t bytes) {
  void *memory = malloc(bytes > 0 ? bytes : 1);
  assert_non_null(memory);
  return memory;
}

void test_random(double *out, int64_t count, double low, double high, uint32_t draw, uint32_t purpose) {
  const hark_random_stream stream = {
      .seed = TEST_SEED, .micro_step = draw, .layer_purpose = hark_random_layer_purpose(purpose, HARK_RANDOM_TEST)};
  hark_random_uniform(&stream, 0, count, out);
  for (int64_t i = 0; i < count; i++) out[i] = (double)(float)(low + (high - low) * out[i]);
}

/* Writes the block whole: sentinels and `fill` or `bytes` between. */
static void write_block(test_run *run, test_block *block, const void *bytes, int fill) {
  const size_t total = (size_t)hark_tensor_count(&block->memory);
  unsigned char *host = host_memory(total);
  memset(host, SENTINEL, total);
  if (bytes != NULL) {
    memcpy(host + block->front, bytes, block->bytes);
  } else {
    memset(host + block->front, fill, block->bytes);
  }
  check(run, hark_tensor_write(run->context, &block->memory, host), "tensor write");
  free(host);
}

/* Reads the bytes between the sentinels, which must be as they were. */
static unsigned char *read_block(test_run *run, const test_block *block, const char *what, int number) {
  const size_t total = (size_t)hark_tensor_count(&block->memory);
  unsigned char *host = host_memory(total);
  check(run, hark_tensor_read(run->context, &block->memory, host), "tensor read");
  for (size_t i = 0; i < total; i++) {
    const bool inside = i >= block->front && i < block->front + block->bytes;
    if (inside || host[i] == SENTINEL) continue;
    const int64_t offset = (int64_t)i - (int64_t)block->front;
    free(host);
    test_run_fail(run, "%s %d: byte %" PRId64 " was written, which is outside its %zu bytes", what, number, offset, block->bytes);
  }
  memmove(host, host + block->front, block->bytes);
  return host;
}

/* Under the guard backend memory ends where an inaccessible page begins, which finds more than a sentinel there would. */
static void make_block(test_run *run, size_t bytes, size_t shift, test_block *block) {
  const size_t back = strcmp(hark_context_backend(run->context), "guard") == 0 ? 0 : SENTINEL_BYTES;
  block->front = SENTINEL_BYTES + shift;
  block->bytes = bytes;
  const int64_t total = (int64_t)(block->front + bytes + back);
  check(run, hark_tensor_create(run->context, HARK_U8, 1, &total, &block->memory), "tensor create");
  write_block(run, block, NULL, POISON);
}

static hark_tensor *tensor_of(hark_call *call, test_role role, int i) {
  switch (role) {
    case TEST_INPUT: return &call->inputs[i];
    case TEST_OUTPUT: return &call->outputs[i];
    case TEST_SAVED: return &call->saved[i];
    case TEST_OUTPUT_GRADIENT: return &call->output_gradients[i];
    case TEST_INPUT_GRADIENT: return &call->input_gradients[i];
    case TEST_ROLES: break;
  }
  return NULL;
}

static const int role_counts[] = {HARK_MAX_INPUTS, HARK_MAX_OUTPUTS, HARK_MAX_SAVED, HARK_MAX_OUTPUTS, HARK_MAX_INPUTS};

static void make_tensor(test_run *run, test_role role, int i, const hark_tensor *like, bool misaligned) {
  test_block *block = &run->blocks[role][i];
  make_block(run, (size_t)hark_tensor_count(like) * hark_type_bytes(like->type), misaligned ? hark_type_bytes(like->type) : 0, block);
  char *data = (char *)block->memory.data + block->front;
  check(run, hark_tensor_wrap(run->context, data, like->type, like->rank, like->shape, NULL, tensor_of(&run->call, role, i)),
        "tensor wrap");
}

/* Gradients of numbers in bf16 are f32. */
static void make_gradient(test_run *run, test_role role, int i, const hark_tensor *of, bool misaligned) {
  hark_tensor like = *of;
  if (like.type == HARK_BF16) like.type = HARK_F32;
  make_tensor(run, role, i, &like, misaligned);
}

const hark_tensor *test_run_tensor(const test_run *run, test_role role, int i) {
  hark_call *call = (hark_call *)&run->call;
  return tensor_of(call, role, i);
}

int64_t test_run_count(const test_run *run, test_role role, int i) { return hark_tensor_count(test_run_tensor(run, role, i)); }

double *test_run_read(test_run *run, test_role role, int i) {
  const hark_tensor *tensor = test_run_tensor(run, role, i);
  const int64_t count = hark_tensor_count(tensor);
  unsigned char *bytes = read_block(run, &run->blocks[role][i], role_names[role], i);
  double *values = host_memory((size_t)count * sizeof *values);
  for (int64_t n = 0; n < count; n++) {
    switch (tensor->type) {
      case HARK_F32: values[n] = (double)((const float *)(const void *)bytes)[n]; break;
      case HARK_F64: values[n] = ((const double *)(const void *)bytes)[n]; break;
      case HARK_I32: values[n] = (double)((const int32_t *)(const void *)bytes)[n]; break;
      case HARK_I64: values[n] = (double)((const int64_t *)(const void *)bytes)[n]; break;
      case HARK_BF16: values[n] = (double)hark_half_widen(HARK_BF16, ((const uint16_t *)(const void *)bytes)[n]); break;
      default: values[n] = (double)bytes[n]; break;
    }
  }
  free(bytes);
  return values;
}

void test_run_write(test_run *run, test_role role, int i, const double *values) {
  const hark_tensor *tensor = test_run_tensor(run, role, i);
  const int64_t count = hark_tensor_count(tensor);
  unsigned char *bytes = host_memory((size_t)count * sizeof(double));
  for (int64_t n = 0; n < count; n++) {
    switch (tensor->type) {
      case HARK_F32: ((float *)(void *)bytes)[n] = (float)values[n]; break;
      case HARK_F64: ((double *)(void *)bytes)[n] = values[n]; break;
      case HARK_I32: ((int32_t *)(void *)bytes)[n] = (int32_t)values[n]; break;
      case HARK_I64: ((int64_t *)(void *)bytes)[n] = (int64_t)values[n]; break;
      case HARK_BF16: ((uint16_t *)(void *)bytes)[n] = hark_half_narrow(HARK_BF16, (float)values[n]); break;
      default: bytes[n] = (unsigned char)values[n]; break;
    }
  }
  write_block(run, &run->blocks[role][i], bytes, 0);
  free(bytes);
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void write_random(test_run *run, test_role role, int i, double low, double high, uint32_t draw) {
  const hark_tensor *tensor = test_run_tensor(run, role, i);
  const int64_t count = hark_tensor_count(tensor);
  const bool whole = tensor->type != HARK_F32 && tensor->type != HARK_F64 && tensor->type != HARK_BF16;
  double *values = host_memory((size_t)count * sizeof *values);
  const bool rising = whole && low > high; /* offsets, from high to low */
  const double least = rising ? high : low, most = rising ? low : high;
  test_random(values, count, least, whole ? most + 1 : most, draw, (uint32_t)((int)role * HARK_MAX_INPUTS + i));
  for (int64_t n = 0; whole && n < count; n++) values[n] = fmin(floor(values[n]), most);
  if (rising && count > 0) {
    qsort(values, (size_t)count, sizeof *values, by_size);
    values[0] = least;
    values[count - 1] = count > 1 ? most : least;
  }
  test_run_write(run, role, i, values);
  free(values);
}

void test_run_open(test_run *run, hark_context *context, const hark_operator *op, const hark_sample *sample,
                   const test_run_options *options) {
  *run = (test_run){.context = context, .op = op, .sample = sample, .rerun = options->rerun, .requested = op->differentiable};
  hark_call *call = &run->call;
  call->op = op;
  call->attributes = sample->attributes;
  for (int i = 0; i < op->input_maximum; i++) {
    const hark_sample_input *input = &sample->inputs[i];
    if (input->type == HARK_NONE) continue;
    const hark_type type = input->type == HARK_F32 ? options->type : input->type;
    hark_tensor like;
    check(run, hark_tensor_describe(context, type, input->rank, input->shape, &like), "tensor describe");
    make_tensor(run, TEST_INPUT, i, &like, options->misaligned);
    write_random(run, TEST_INPUT, i, input->low, input->high, options->draw);
    if ((op->differentiable >> i & 1u) != 0) make_gradient(run, TEST_INPUT_GRADIENT, i, &like, options->misaligned);
    call->input_count = i + 1;
  }
  check(run, op->infer(context, call->attributes, call->inputs, call->input_count, &run->inferred), "infer");
  for (int i = 0; i < op->output_count; i++) {
    const hark_tensor *output = &run->inferred.outputs[i];
    make_tensor(run, TEST_OUTPUT, i, output, options->misaligned);
    if (op->differentiable == 0 || (output->type != HARK_F32 && output->type != HARK_F64 && output->type != HARK_BF16)) continue;
    make_gradient(run, TEST_OUTPUT_GRADIENT, i, output, options->misaligned);
    write_random(run, TEST_OUTPUT_GRADIENT, i, -1, 1, options->draw);
  }
  for (int i = 0; i < HARK_MAX_SAVED; i++) {
    if (run->inferred.saved[i].type != HARK_NONE) make_tensor(run, TEST_SAVED, i, &run->inferred.saved[i], false);
  }
}

void test_run_close(test_run *run) {
  for (int role = 0; role < TEST_ROLES; role++) {
    for (int i = 0; i < role_counts[role]; i++) hark_tensor_destroy(run->context, &run->blocks[role][i].memory);
  }
}

static void poison(test_run *run, test_role role, unsigned except) {
  for (int i = 0; i < role_counts[role]; i++) {
    test_block *block = &run->blocks[role][i];
    if (block->memory.type != HARK_NONE && (except >> i & 1u) == 0) write_block(run, block, NULL, POISON);
  }
}

static void check_sentinels(test_run *run) {
  for (int role = 0; role < TEST_ROLES; role++) {
    for (int i = 0; i < role_counts[role]; i++) {
      if (run->blocks[role][i].memory.type != HARK_NONE) free(read_block(run, &run->blocks[role][i], role_names[role], i));
    }
  }
}

/* Runs the kernel in a poisoned workspace of exactly the size that infer asked for. Blocks named in `may_change` (a bit an input) aside,
 * the inputs must keep their bytes. */
static void run_kernel(test_run *run, hark_call *call, bool backward, unsigned may_change) {
  unsigned char *before[HARK_MAX_INPUTS] = {NULL};
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    if (run->blocks[TEST_INPUT][i].memory.type != HARK_NONE) before[i] = read_block(run, &run->blocks[TEST_INPUT][i], "input", i);
  }
  test_block workspace = {0};
  call->workspace_bytes = backward ? run->inferred.backward_workspace : run->inferred.forward_workspace;
  call->workspace = NULL;
  if (call->workspace_bytes > 0) {
    make_block(run, call->workspace_bytes, 0, &workspace);
    call->workspace = (char *)workspace.memory.data + workspace.front;
  }
  const uint64_t allocations = hark_context_memory(run->context).allocations;
  const hark_status status = backward ? hark_operator_backward(run->context, call) : hark_operator_forward(run->context, call);
  run->refused = run->refused || status != HARK_OK;
  if (!run->may_refuse || (status != HARK_NOT_FINITE && status != HARK_INVALID_ARGUMENT))
    check(run, status, backward ? "backward" : "forward");
  if (hark_context_memory(run->context).allocations != allocations) test_run_fail(run, "a kernel allocated memory");
  if (call->workspace_bytes > 0) free(read_block(run, &workspace, "workspace", 0));
  hark_tensor_destroy(run->context, &workspace.memory);
  check_sentinels(run);
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    if (before[i] == NULL) continue;
    unsigned char *after = read_block(run, &run->blocks[TEST_INPUT][i], "input", i);
    const bool same = memcmp(before[i], after, run->blocks[TEST_INPUT][i].bytes) == 0;
    free(after);
    free(before[i]);
    if (!same && (may_change >> i & 1u) == 0) test_run_fail(run, "%s changed input %d", backward ? "backward" : "forward", i);
  }
}

void test_run_forward(test_run *run) {
  poison(run, TEST_OUTPUT, 0);
  poison(run, TEST_SAVED, 0);
  hark_call call = run->call;
  memset(call.output_gradients, 0, sizeof call.output_gradients);
  memset(call.input_gradients, 0, sizeof call.input_gradients);
  run_kernel(run, &call, false, run->op->updates);
}

void test_run_forward_in_place(test_run *run, int i) {
  poison(run, TEST_SAVED, 0);
  hark_call call = run->call;
  memset(call.output_gradients, 0, sizeof call.output_gradients);
  memset(call.input_gradients, 0, sizeof call.input_gradients);
  call.outputs[0].data = call.inputs[i].data;
  run_kernel(run, &call, false, 1u << i);
}

/* The call as a tape makes it: descriptions of everything, data of what the record names only. */
static hark_call backward_call(const test_run *run) {
  hark_call call = run->call;
  for (int i = 0; i < HARK_MAX_INPUTS; i++) {
    if ((run->op->backward_inputs >> i & 1u) == 0) call.inputs[i].data = NULL;
    if ((run->requested >> i & 1u) == 0) call.input_gradients[i] = (hark_tensor){0};
  }
  for (int i = 0; i < HARK_MAX_OUTPUTS; i++) {
    if ((run->op->backward_outputs >> i & 1u) == 0) call.outputs[i].data = NULL;
  }
  return call;
}

void test_run_backward(test_run *run, unsigned accumulate) {
  poison(run, TEST_INPUT_GRADIENT, accumulate);
  hark_call call = backward_call(run);
  call.accumulate = accumulate;
  run_kernel(run, &call, true, 0);
}

void test_run_backward_in_place(test_run *run, int i) {
  poison(run, TEST_INPUT_GRADIENT, 0);
  hark_call call = backward_call(run);
  call.input_gradients[i].data = call.inputs[i].data;
  run_kernel(run, &call, true, 1u << i);
}
