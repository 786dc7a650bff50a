/* attention_run.c - see attention_run.h. */
#include "support/attention_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "support/sanitized.h"
#include "support/setups.h"

#define ROUNDOFF_F32 (FLT_EPSILON / 2)
#define ROUNDOFF_F64 (DBL_EPSILON / 2)

const attention_machine attention_machines[] = {
    {"reference-f64", "reference", NULL, HARK_F64, ROUNDOFF_F64, ROUNDOFF_F64},
    {"reference-f32", "reference", NULL, HARK_F32, ROUNDOFF_F64, ROUNDOFF_F32},
    {"generic", "cpu", "generic", HARK_F32, ROUNDOFF_F32, ROUNDOFF_F32},
    {"avx2", "cpu", "avx2", HARK_F32, ROUNDOFF_F32, ROUNDOFF_F32},
    {"avx512", "cpu", "avx512", HARK_F32, ROUNDOFF_F32, ROUNDOFF_F32},
    {"neon", "cpu", "neon", HARK_F32, ROUNDOFF_F32, ROUNDOFF_F32},
    {"cpu-f64", "cpu", NULL, HARK_F64, ROUNDOFF_F64, ROUNDOFF_F64},
    {"guard", "guard", NULL, HARK_F32, ROUNDOFF_F32, ROUNDOFF_F32},
};
const int attention_machine_count = (int)(sizeof attention_machines / sizeof attention_machines[0]);

#define CANARY_BYTES 64
#define CANARY 0x5a
#define OUTPUT_FILLING (-123.25) /* in results before a run: neither zero nor a plausible result */

hark_context *attention_machine_open(const attention_machine *machine, int64_t threads) {
  const hark_context_options options = {.struct_size = sizeof options,
                                        .backend = machine->backend,
                                        .instruction_set = machine->instruction_set,
                                        .threads = threads == 0 ? 2 : (int)threads};
  hark_context *context = NULL;
  if (TEST_SANITIZED && !test_setups_have(machine->backend, machine->instruction_set)) return NULL;
  const hark_status status = hark_context_create(&options, &context);
  if (status == HARK_NO_BACKEND && machine->instruction_set != NULL && strcmp(machine->instruction_set, "generic") != 0) return NULL;
  if (status != HARK_OK) fail_msg("no context for %s: %s", machine->name, hark_status_text(status));
  return context;
}

static void *need(size_t bytes) {
  void *memory = calloc(bytes > 0 ? bytes : 1, 1);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

/* An array in the backend's memory, in some layout, with a copy of what was written there. */
typedef struct device_array {
  hark_tensor tensor;
  void *memory;
  size_t bytes;
  unsigned char *image;
  int64_t first; /* element of `memory` where the tensor begins */
} device_array;

static double get(const void *data, hark_type type, int64_t i) {
  return type == HARK_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}
static void put(void *data, hark_type type, int64_t i, double value) {
  if (type == HARK_F64)
    ((double *)data)[i] = value;
  else
    ((float *)data)[i] = (float)value;
}

/* Strides of a layout of [B, H, L, d]: 0 [B,H,L,d], 1 [B,L,H,d], 2 [B,L,H,d] inside wider rows, with a gap after every item. Gates
 * [B, H, L] accordingly; of a bias every second element in layout 2; log_sum_exp and tables are contiguous. */
static int64_t make_strides(const attention_numbers *numbers, attention_array array, int64_t layout, int64_t stride[4]) {
  const int64_t *shape = numbers->shape;
  const bool gates = array == ARRAY_FORGET || array == ARRAY_DFORGET,
             rows = numbers->rank == 4 && array != ARRAY_BIAS && array != ARRAY_DBIAS;
  const bool bias = array == ARRAY_BIAS || array == ARRAY_DBIAS;
  if (layout == 0 || !(gates || rows)) {
    int64_t next = bias ? hark_max(layout, 1) : 1;
    for (int i = numbers->rank - 1; i >= 0; i--) {
      stride[i] = next;
      next *= shape[i];
    }
    return next;
  }
  if (gates) {
    stride[1] = layout;
    stride[2] = shape[1] * stride[1];
    stride[0] = shape[2] * stride[2] + layout;
    return shape[0] * stride[0];
  }
  const int64_t gap = layout == 2 ? 3 : 0;
  stride[3] = 1;
  stride[1] = shape[3] + gap;
  stride[2] = shape[1] * stride[1] + gap;
  stride[0] = shape[2] * stride[2] + gap;
  return shape[0] * stride[0];
}

static int64_t element(const hark_tensor *tensor, int64_t i) {
  int64_t at = 0;
  for (int k = tensor->rank - 1; k >= 0; k--) {
    at += i % tensor->shape[k] * tensor->stride[k];
    i /= tensor->shape[k];
  }
  return at;
}

/* `filling` lies between the rows. */
static void upload(hark_context *context, hark_type type, attention_array array, const attention_numbers *numbers, int64_t layout,
                   bool misaligned, double filling, device_array *out) {
  memset(out, 0, sizeof *out);
  if (numbers->count == 0) return;
  out->first = misaligned ? 1 : 0;
  out->tensor = (hark_tensor){.type = type, .rank = numbers->rank};
  memcpy(out->tensor.shape, numbers->shape, sizeof numbers->shape);
  const int64_t span = make_strides(numbers, array, layout, out->tensor.stride) + out->first;
  out->bytes = (size_t)span * hark_type_bytes(type);
  out->image = need(out->bytes);
  for (int64_t i = 0; i < span; i++) put(out->image, type, i, filling);
  for (int64_t i = 0; i < numbers->count; i++) put(out->image, type, out->first + element(&out->tensor, i), numbers->data[i]);
  assert_int_equal(hark_backend_allocate(context, out->bytes, &out->memory), HARK_OK);
  assert_int_equal(hark_backend_write(context, out->memory, out->image, out->bytes), HARK_OK);
  out->tensor.data = (char *)out->memory + (size_t)out->first * hark_type_bytes(type);
}

/* Reads the array back into `result` (NULL: an input, which must have kept its bits) and frees it. */
static void download(hark_context *context, const char *text, const char *name, device_array *array, double *result) {
  if (array->memory == NULL) return;
  const hark_type type = array->tensor.type;
  unsigned char *now = need(array->bytes);
  assert_int_equal(hark_backend_read(context, now, array->memory, array->bytes), HARK_OK);
  if (result != NULL) {
    const int64_t count = hark_tensor_count(&array->tensor);
    for (int64_t i = 0; i < count; i++) {
      const int64_t at = array->first + element(&array->tensor, i);
      result[i] = get(now, type, at);
      put(now, type, at, get(array->image, type, at));
    }
  }
  if (memcmp(now, array->image, array->bytes) != 0)
    fail_msg("%s: %s of %s was written to", text, result != NULL ? "memory beside the rows" : "the input", name);
  hark_backend_release(context, array->memory, array->bytes);
  free(now);
  free(array->image);
  memset(array, 0, sizeof *array);
}

/* Memory of `bytes` with a canary after it. */
static void *scratch(hark_context *context, size_t bytes) {
  void *memory;
  unsigned char *image = need(bytes + CANARY_BYTES);
  memset(image, 0xff, bytes); /* NaN in every type */
  memset(image + bytes, CANARY, CANARY_BYTES);
  assert_int_equal(hark_backend_allocate(context, bytes + CANARY_BYTES, &memory), HARK_OK);
  assert_int_equal(hark_backend_write(context, memory, image, bytes + CANARY_BYTES), HARK_OK);
  free(image);
  return memory;
}

static void scratch_free(hark_context *context, const char *text, const char *name, void *memory, size_t bytes) {
  unsigned char canary[CANARY_BYTES];
  assert_int_equal(hark_backend_read(context, canary, (char *)memory + bytes, CANARY_BYTES), HARK_OK);
  for (int i = 0; i < CANARY_BYTES; i++)
    if (canary[i] != CANARY) fail_msg("%s: byte %d after the %zu bytes of %s was written to", text, i, bytes, name);
  hark_backend_release(context, memory, bytes + CANARY_BYTES);
}

hark_attention_desc attention_problem_desc(const attention_problem *problem, hark_type type) {
  const attention_case *c = &problem->is;
  const int64_t room = c->roomy ? 3 : 0, rows = c->room > 0 ? c->room : room;
  hark_attention_desc desc = hark_attention_desc_default();
  desc.type = type;
  desc.product_type = c->half && type == HARK_F32 ? HARK_BF16 : HARK_NONE;
  desc.structure = c->is_window         ? HARK_STRUCTURE_WINDOW
                   : c->is_hierarchical ? HARK_STRUCTURE_HIERARCHICAL
                   : c->is_compressed   ? HARK_STRUCTURE_COMPRESSED
                                        : HARK_STRUCTURE_DENSE;
  if (c->is_hierarchical) {
    desc.hierarchy_block = c->block;
    desc.grid_columns = c->grid;
    desc.partition = c->sibling ? HARK_PARTITION_SIBLING : HARK_PARTITION_NEIGHBOUR;
    desc.coarse_query = c->mean ? HARK_COARSE_QUERY_MEAN : c->first ? HARK_COARSE_QUERY_FIRST : HARK_COARSE_QUERY_EXACT;
    desc.interpolation = c->linear ? HARK_INTERPOLATION_LINEAR : HARK_INTERPOLATION_CONSTANT;
    desc.has_hierarchical_bias = c->hierarchical_bias || c->hierarchical_shared;
  }
  if (c->is_compressed) {
    desc.chunk = c->block;
    desc.chunk_slots = c->slots;
    desc.selected_slots = c->select;
    desc.kept_chunks = c->kept;
    desc.global_slots = c->globals;
    desc.has_chunk_starts = c->starts;
  }
  desc.normalisation = c->stick ? HARK_NORMALISATION_STICK_BREAKING : HARK_NORMALISATION_SOFTMAX;
  desc.kernel = c->rbf ? HARK_KERNEL_RBF : HARK_KERNEL_EXP;
  desc.batch = c->batch + room;
  desc.heads = c->heads;
  desc.key_heads = c->key_heads;
  desc.query_length = c->queries + rows;
  desc.key_length = c->keys + (c->is_hierarchical || c->is_compressed ? rows : 2 * rows);
  desc.head_dim = c->head_dim;
  desc.value_dim = c->value_dim;
  desc.max_sequences = c->ragged ? problem->sequences : 0;
  desc.causal = c->causal;
  desc.scale = problem->given_scale;
  desc.sigma = c->rbf ? problem->sigma : 0;
  desc.window = c->window;
  desc.dropout = c->dropout;
  desc.has_bias = c->bias;
  desc.has_mask = c->mask || c->query_mask;
  desc.has_segments = c->segments;
  desc.has_log_kernel = c->kernel || c->shared;
  desc.directed_kernel = c->directed;
  desc.has_forget = c->forget;
  desc.contextual_positions = c->positions;
  return desc;
}

double attention_before(int64_t i) { return (double)(i % 7 - 3) / 4; }

/* Which array a result is shaped like. */
static attention_array shaped_like(attention_array result) {
  switch (result) {
    case ARRAY_OUT: return ARRAY_DOUT;
    case ARRAY_DQUERY: return ARRAY_QUERY;
    case ARRAY_DKEY: return ARRAY_KEY;
    case ARRAY_DVALUE: return ARRAY_VALUE;
    case ARRAY_DBIAS: return ARRAY_BIAS;
    case ARRAY_DLOG_KERNEL: return ARRAY_LOG_KERNEL;
    case ARRAY_DHIERARCHICAL_BIAS: return ARRAY_HIERARCHICAL_BIAS;
    case ARRAY_DCONTEXTUAL: return ARRAY_CONTEXTUAL;
    default: return ARRAY_FORGET;
  }
}

static void upload_result(hark_context *context, hark_type type, const attention_problem *problem, attention_array array, device_array *out,
                          attention_results *results) {
  const attention_case *c = &problem->is;
  attention_numbers numbers = {.rank = 3, .shape = {c->batch, c->heads, c->queries, 1}, .count = c->batch * c->heads * c->queries};
  if (array != ARRAY_LSE) numbers = problem->array[shaped_like(array)];
  if (problem->unwanted >> array & 1u) numbers.count = 0;
  results->count[array] = numbers.count;
  results->data[array] = NULL;
  if (numbers.count == 0) {
    memset(out, 0, sizeof *out);
    return;
  }
  numbers.data = need((size_t)numbers.count * sizeof(double));
  for (int64_t i = 0; i < numbers.count; i++)
    numbers.data[i] = problem->accumulate & attention_accumulate_bit(array) ? attention_before(i) : OUTPUT_FILLING;
  upload(context, type, array, &numbers, c->layout, c->misaligned, OUTPUT_FILLING, out);
  results->data[array] = numbers.data;
}

/* Broadcast dimensions with their full extent and stride 0. */
static void expand(const attention_case *c, hark_tensor *tensor) {
  const int64_t full[] = {c->batch, c->heads, c->queries, c->keys};
  for (int i = 0; c->expanded && tensor->type != HARK_NONE && i < 4; i++)
    if (tensor->shape[i] == 1) {
      tensor->shape[i] = full[i];
      tensor->stride[i] = 0;
    }
}

/* One row for all heads as a row for each, lying over one another. */
static void expand_rows(const attention_case *c, hark_tensor *tensor) {
  if (!c->expanded || tensor->type == HARK_NONE || tensor->shape[0] != 1) return;
  tensor->shape[0] = c->heads;
  tensor->stride[0] = 0;
}

/* Bytes in the backend's memory, or nothing. */
typedef struct device_bytes {
  void *memory;
  size_t bytes;
} device_bytes;

static device_bytes upload_bytes(hark_context *context, const uint8_t *bytes, int rank, const int64_t *shape, hark_tensor *out) {
  device_bytes there = {NULL, 1};
  if (bytes == NULL) return there;
  for (int i = 0; i < rank; i++) there.bytes *= (size_t)shape[i];
  assert_int_equal(hark_backend_allocate(context, there.bytes, &there.memory), HARK_OK);
  assert_int_equal(hark_backend_write(context, there.memory, bytes, there.bytes), HARK_OK);
  assert_int_equal(hark_tensor_wrap(context, there.memory, HARK_U8, rank, shape, NULL, out), HARK_OK);
  return there;
}

void attention_run(hark_context *context, hark_type type, const attention_problem *problem, attention_results *out) {
  const attention_case *c = &problem->is;
  const hark_attention_desc desc = attention_problem_desc(problem, type);
  hark_attention_plan *plan;
  if (hark_attention_plan_create(context, &desc, &plan) != HARK_OK) fail_msg("%s: %s", c->text, hark_context_message(context));
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  device_array device[ARRAY_COUNT];
  for (int i = 0; i < ARRAY_OUT; i++) {
    upload(context, type, (attention_array)i, &problem->array[i], c->layout, c->misaligned, NAN, &device[i]);
    out->data[i] = NULL;
    out->count[i] = 0;
  }
  for (int i = ARRAY_OUT; i < ARRAY_COUNT; i++) upload_result(context, type, problem, (attention_array)i, &device[i], out);
  hark_attention_args args = {.struct_size = sizeof args,
                              .query = device[ARRAY_QUERY].tensor,
                              .key = device[ARRAY_KEY].tensor,
                              .value = device[ARRAY_VALUE].tensor,
                              .out = device[ARRAY_OUT].tensor,
                              .log_sum_exp = device[ARRAY_LSE].tensor,
                              .key_lengths = problem->key_lengths,
                              .query_offsets = problem->query_offsets,
                              .key_offsets = problem->key_offsets,
                              .sequences = problem->sequences,
                              .segments = problem->segments,
                              .has_query_offset = c->has_offset,
                              .query_offset = c->offset,
                              .attention_bias = device[ARRAY_BIAS].tensor,
                              .log_kernel = device[ARRAY_LOG_KERNEL].tensor,
                              .forget = device[ARRAY_FORGET].tensor,
                              .hierarchical_bias = device[ARRAY_HIERARCHICAL_BIAS].tensor,
                              .contextual = device[ARRAY_CONTEXTUAL].tensor,
                              .dropout = problem->dropout,
                              .accumulate = problem->accumulate};
  const int64_t query_mask_shape[] = {c->batch, c->queries};
  const device_bytes mask = upload_bytes(context, problem->mask, 4, problem->mask_shape, &args.mask);
  const device_bytes query_mask = upload_bytes(context, problem->query_mask, 2, query_mask_shape, &args.query_mask);
  const int64_t starts_shape[] = {c->batch, c->keys};
  const device_bytes starts = upload_bytes(context, problem->chunk_starts, 2, starts_shape, &args.chunk_starts);
  expand(c, &args.mask);
  expand(c, &args.attention_bias);
  expand_rows(c, &args.log_kernel);
  expand_rows(c, &args.contextual);
  args.saved = scratch(context, sizes.saved);
  void *forward_scratch = scratch(context, sizes.forward_workspace), *backward_scratch = scratch(context, sizes.backward_workspace);

  const uint64_t allocations = hark_context_memory(context).allocations;
  args.workspace = forward_scratch;
  if (hark_attention_forward(context, plan, &args) != HARK_OK) fail_msg("%s: %s", c->text, hark_context_message(context));
  const bool backward = args.log_sum_exp.type != HARK_NONE;
  args.dout = device[ARRAY_DOUT].tensor;
  args.dquery = device[ARRAY_DQUERY].tensor;
  args.dkey = device[ARRAY_DKEY].tensor;
  args.dvalue = device[ARRAY_DVALUE].tensor;
  args.dattention_bias = device[ARRAY_DBIAS].tensor;
  expand(c, &args.dattention_bias);
  args.dlog_kernel = device[ARRAY_DLOG_KERNEL].tensor;
  expand_rows(c, &args.dlog_kernel);
  args.dforget = device[ARRAY_DFORGET].tensor;
  args.dhierarchical_bias = device[ARRAY_DHIERARCHICAL_BIAS].tensor;
  args.dcontextual = device[ARRAY_DCONTEXTUAL].tensor;
  expand_rows(c, &args.dcontextual);
  args.workspace = backward_scratch;
  if (backward && hark_attention_backward(context, plan, &args) != HARK_OK) fail_msg("%s: %s", c->text, hark_context_message(context));
  if (hark_context_memory(context).allocations != allocations) fail_msg("%s: executing allocated", c->text);

  scratch_free(context, c->text, "saved", args.saved, sizes.saved);
  scratch_free(context, c->text, "the forward's workspace", forward_scratch, sizes.forward_workspace);
  scratch_free(context, c->text, "the backward's workspace", backward_scratch, sizes.backward_workspace);
  for (int i = 0; i < ARRAY_COUNT; i++) download(context, c->text, attention_array_names[i], &device[i], out->data[i]);
  hark_backend_release(context, mask.memory, mask.bytes);
  hark_backend_release(context, query_mask.memory, query_mask.bytes);
  hark_backend_release(context, starts.memory, starts.bytes);
  hark_attention_plan_destroy(context, &plan);
}

bool attention_run_on(const attention_machine *machine, const attention_problem *problem, attention_results *out) {
  hark_context *context = attention_machine_open(machine, problem->is.threads);
  if (context == NULL) return false;
  attention_run(context, machine->type, problem, out);
  hark_context_destroy(&context);
  return true;
}

void attention_results_free(attention_results *results) {
  for (int i = 0; i < ARRAY_COUNT; i++) free(results->data[i]);
  memset(results, 0, sizeof *results);
}

/* Products below the smallest normal f32 may become zero: at most this much is lost of a sum of terms below 1e3. */
#define UNDERFLOW 1e-30

int attention_compare(const attention_machine *machine, const attention_problem *problem, const attention_expected *expected,
                      const attention_results *results) {
  int failures = 0;
  for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++) {
    int64_t worst = -1;
    double worst_ratio = 1, worst_tolerance = 0, worst_want = 0;
    for (int64_t i = 0; i < results->count[array]; i++) {
      double want = expected->array[array].data[i], before = 0;
      if (problem->accumulate & attention_accumulate_bit((attention_array)array)) before = attention_before(i);
      want += before;
      const double have = results->data[array][i];
      if (have == want) continue; /* also two infinities */
      /* Twice: second-order terms, and the definition's own rounding. */
      const double tolerance = 2 * machine->computing_roundoff * (expected->bound[array][i] + fabs(before)) +
                               2 * machine->storing_roundoff * (fabs(want) + fabs(before)) +
                               (machine->storing_roundoff > ROUNDOFF_F64 ? UNDERFLOW : DBL_MIN);
      const double ratio = fabs(have - want) / tolerance;
      if (!(ratio <= worst_ratio)) {
        worst = i;
        worst_ratio = ratio;
        worst_want = want;
        worst_tolerance = tolerance;
        if (isnan(ratio)) break;
      }
    }
    if (worst < 0) continue;
    failures++;
    fprintf(stderr, "'%s' on %s: %s[%" PRId64 "] is %.9g, expected %.9g within %.3g\n", problem->is.text, machine->name,
            attention_array_names[array], worst, results->data[array][worst], worst_want, worst_tolerance);
  }
  return failures;
}

double attention_tolerance(const attention_machine *machine, const attention_expected *expected, attention_array array, int64_t i) {
  return 2 * machine->computing_roundoff * expected->bound[array][i] +
         2 * machine->storing_roundoff * fabs(expected->array[array].data[i]) + UNDERFLOW;
}

void attention_assert_near(const char *what, const char *text, const attention_machine *machine, int64_t i, double have, double want,
                           double within) {
  if (!(fabs(have - want) <= within))
    fail_msg("'%s' on %s: %s, element %" PRId64 " is %.9g, expected %.9g within %.3g", text, machine->name, what, i, have, want, within);
}

void attention_rows_sum_to_one(const attention_machine *machine, const char *text) {
  attention_problem p;
  attention_expected e;
  attention_results r;
  attention_problem_make(text, &p);
  for (int64_t i = 0; i < p.array[ARRAY_VALUE].count; i++) p.array[ARRAY_VALUE].data[i] = 1;
  attention_expected_make(&p, &e);
  attention_run_on(machine, &p, &r);
  for (int64_t i = 0; i < r.count[ARRAY_OUT]; i++) {
    const bool blind = e.array[ARRAY_LSE].data[i / p.is.value_dim] == -INFINITY;
    attention_assert_near("a row of weights", text, machine, i, r.data[ARRAY_OUT][i], blind ? 0 : 1,
                          attention_tolerance(machine, &e, ARRAY_OUT, i));
  }
  attention_results_free(&r);
  attention_expected_free(&e);
  attention_problem_free(&p);
}

void attention_same_bits(const char *what, const char *text, attention_array array, const attention_results *a,
                         const attention_results *b) {
  assert_int_equal(a->count[array], b->count[array]);
  for (int64_t i = 0; i < a->count[array]; i++)
    if (memcmp(&a->data[array][i], &b->data[array][i], sizeof(double)) != 0)
      fail_msg("'%s', %s: %s[%" PRId64 "] is %.17g and %.17g, expected the same bits", text, what, attention_array_names[array], i,
               a->data[array][i], b->data[array][i]);
}

void attention_same_with_threads(const attention_machine *machine, attention_problem *problem, const char *text, size_t count,
                                 const int64_t *threads) {
  attention_results one, many;
  problem->is.threads = 1;
  if (!attention_run_on(machine, problem, &one)) return;
  for (size_t t = 0; t < count; t++) {
    problem->is.threads = threads[t];
    assert_true(attention_run_on(machine, problem, &many));
    for (int array = ARRAY_OUT; array < ARRAY_COUNT; array++) attention_same_bits(machine->name, text, (attention_array)array, &one, &many);
    attention_results_free(&many);
  }
  attention_results_free(&one);
}

void attention_check_equal(const char *text, const char *other) {
  attention_problem problem, equal;
  attention_expected expected;
  attention_problem_make(text, &problem);
  attention_problem_make(other, &equal);
  for (int i = 0; i < ARRAY_OUT; i++)
    if (problem.array[i].count > 0) {
      assert_int_equal(equal.array[i].count, problem.array[i].count);
      memcpy(equal.array[i].data, problem.array[i].data, (size_t)problem.array[i].count * sizeof(double));
    }
  if (problem.key_lengths != NULL) {
    assert_non_null(equal.key_lengths);
    memcpy(equal.key_lengths, problem.key_lengths, (size_t)problem.is.batch * sizeof *problem.key_lengths);
  }
  equal.given_scale = problem.given_scale;
  equal.scale = problem.scale;
  attention_expected_make(&equal, &expected);
  for (int m = 0; m < attention_machine_count; m++) {
    attention_results results;
    if (!attention_run_on(&attention_machines[m], &problem, &results)) continue;
    assert_int_equal(attention_compare(&attention_machines[m], &problem, &expected, &results), 0);
    attention_results_free(&results);
  }
  attention_expected_free(&expected);
  attention_problem_free(&problem);
  attention_problem_free(&equal);
}

int attention_check_case(const char *text, bool print) {
  attention_problem problem;
  attention_expected expected;
  int failures = 0;
  attention_problem_make(text, &problem);
  attention_expected_make(&problem, &expected);
  for (int m = 0; m < attention_machine_count; m++) {
    attention_results results;
    if (!attention_run_on(&attention_machines[m], &problem, &results)) continue;
    const int failed = attention_compare(&attention_machines[m], &problem, &expected, &results);
    if (print) printf("%-14s %s %s\n", attention_machines[m].name, failed == 0 ? "passed" : "FAILED", text);
    failures += failed;
    attention_results_free(&results);
  }
  attention_expected_free(&expected);
  attention_problem_free(&problem);
  return failures;
}
