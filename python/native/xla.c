/* xla.c - attention as two foreign functions of XLA (jax.ffi): hark_python_xla_forward and hark_python_xla_backward.
 *
 * Attributes of a call:
 *     desc      bytes of a hark_attention_desc
 *     inputs    int64 pairs (kind, place), one for each argument: place is the offset in hark_attention_args at which it belongs
 *     results   the same for each result
 *     numbers   int64: seed, layer_purpose, has_query_offset, query_offset, sequences
 * Kinds: TENSOR a hark_tensor; MEMORY a pointer to bytes; WHOLE a pointer to int64, converted where the argument is int32; NUMBER an int64,
 * the first one of the argument; SIGMA the descriptor's sigma, a float or double; SIGMA_GRADIENT the result of
 * hark_attention_sigma_gradient() after a backward that computes the gradients of query and key.
 *
 * Python checks every call when it is traced (hark/jax/_attention.py), so that what fails here are values. Work is shared with the threads
 * of XLA's own pool. A call takes a context from a list, so that several threads of a program may compute at once.
 */
#include <hark/hark.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xla/ffi/api/c_api.h>

enum { TENSOR, MEMORY, WHOLE, NUMBER, SIGMA, SIGMA_GRADIENT };
enum { SEED, LAYER_PURPOSE, HAS_QUERY_OFFSET, QUERY_OFFSET, SEQUENCES, NUMBERS };
#define ALIGNMENT 64
#define CONVERTED_MAX 5                  /* three lists of numbers, segments and the seed */
#define WORKSPACE_KEPT ((size_t)1 << 26) /* a larger one is released after the call */

/* A context and what belongs to the call that uses it. */
typedef struct worker_set {
  struct worker_set *next;
  hark_context *context;
  const XLA_FFI_Api *api;
  XLA_FFI_ExecutionContext *execution;
  int threads;
  void *workspace;
  size_t workspace_bytes;
} worker_set;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static worker_set *unused;

/* ---- work in XLA's threads ---- */

/* Work that the caller and tasks of the pool share. A task that comes when all is done finds nothing, so that the caller waits only for
 * what was begun; the last one that leaves frees it. */
typedef struct work {
  _Atomic int64_t next, done;
  _Atomic int workers, holders;
  int64_t count;
  hark_task *task;
  void *data;
} work;

static void leave(work *w) {
  if (atomic_fetch_sub(&w->holders, 1) == 1) free(w);
}

static void take_indices(work *w) {
  int64_t index = atomic_fetch_add(&w->next, 1);
  if (index >= w->count) return;
  const int worker = atomic_fetch_add(&w->workers, 1);
  for (; index < w->count; index = atomic_fetch_add(&w->next, 1)) {
    w->task(w->data, index, worker);
    atomic_fetch_add(&w->done, 1);
  }
}

static void pool_task(void *data) {
  take_indices(data);
  leave(data);
}

static void destroy_error(const XLA_FFI_Api *api, XLA_FFI_Error *error) {
  XLA_FFI_Error_Destroy_Args args = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, .error = error};
  api->XLA_FFI_Error_Destroy(&args);
}

static bool schedule(const worker_set *set, work *w) {
  XLA_FFI_ThreadPool_Schedule_Args args = {
      .struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, .ctx = set->execution, .task = pool_task, .data = w};
  XLA_FFI_Error *const error = set->api->XLA_FFI_ThreadPool_Schedule(&args);
  if (error != NULL) destroy_error(set->api, error);
  return error == NULL;
}

static int threads_of(void *user) { return ((const worker_set *)user)->threads; }

static void run_alone(int64_t count, hark_task *task, void *data) {
  for (int64_t index = 0; index < count; index++) task(data, index, 0);
}

static void run(void *user, int64_t count, hark_task *task, void *data) {
  const worker_set *const set = user;
  const int64_t helpers = (count < set->threads ? count : set->threads) - 1;
  work *const w = helpers > 0 ? malloc(sizeof *w) : NULL;
  if (w == NULL) {
    run_alone(count, task, data);
    return;
  }
  *w = (work){.holders = (int)helpers + 1, .count = count, .task = task, .data = data};
  for (int64_t i = 0; i < helpers; i++)
    if (!schedule(set, w)) leave(w);
  take_indices(w);
  while (atomic_load(&w->done) < count) sched_yield();
  leave(w);
}

/* ---- contexts ---- */

static int pool_threads(const XLA_FFI_CallFrame *frame) {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args = {
      .struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, .ctx = frame->ctx, .num_threads = &threads};
  XLA_FFI_Error *const error = frame->api->XLA_FFI_ThreadPool_NumThreads(&args);
  if (error != NULL) destroy_error(frame->api, error);
  return error != NULL || threads < 1 ? 1 : threads > 4096 ? 4096 : (int)threads;
}

static worker_set *make_set(int threads) {
  worker_set *const set = calloc(1, sizeof *set);
  if (set == NULL) return NULL;
  set->threads = threads;
  const hark_parallel table = {.threads = threads_of, .run = run, .user = set};
  const hark_context_options options = {.struct_size = sizeof options, .parallel = &table};
  if (hark_context_create(&options, &set->context) == HARK_OK) return set;
  free(set);
  return NULL;
}

static worker_set *take_set(const XLA_FFI_CallFrame *frame) {
  const int threads = pool_threads(frame);
  pthread_mutex_lock(&lock);
  worker_set **place = &unused;
  while (*place != NULL && (*place)->threads != threads) place = &(*place)->next;
  worker_set *set = *place;
  if (set != NULL) *place = set->next;
  pthread_mutex_unlock(&lock);
  if (set == NULL) set = make_set(threads);
  if (set == NULL) return NULL;
  set->api = frame->api;
  set->execution = frame->ctx;
  return set;
}

static void give_set(worker_set *set) {
  if (set->workspace_bytes > WORKSPACE_KEPT) {
    free(set->workspace);
    set->workspace = NULL;
    set->workspace_bytes = 0;
  }
  pthread_mutex_lock(&lock);
  set->next = unused;
  unused = set;
  pthread_mutex_unlock(&lock);
}

static bool reserve(worker_set *set, size_t bytes) {
  if (bytes <= set->workspace_bytes) return true;
  free(set->workspace);
  set->workspace_bytes = 0;
  set->workspace = bytes > SIZE_MAX - ALIGNMENT ? NULL : aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (set->workspace == NULL) return false;
  set->workspace_bytes = bytes;
  return true;
}

/* ---- arguments ---- */

static XLA_FFI_Error *failure(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *message) {
  XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = message, .errc = code};
  return api->XLA_FFI_Error_Create(&args);
}

static const XLA_FFI_Array *attribute(const XLA_FFI_CallFrame *frame, const char *name) {
  for (int64_t i = 0; i < frame->attrs.size; i++) {
    const XLA_FFI_ByteSpan *const given = frame->attrs.names[i];
    if (given->len == strlen(name) && memcmp(given->ptr, name, given->len) == 0 && frame->attrs.types[i] == XLA_FFI_AttrType_ARRAY)
      return frame->attrs.attrs[i];
  }
  return NULL;
}

static hark_type type_of(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_F32: return HARK_F32;
    case XLA_FFI_DataType_F64: return HARK_F64;
    case XLA_FFI_DataType_S32: return HARK_I32;
    case XLA_FFI_DataType_S64: return HARK_I64;
    case XLA_FFI_DataType_PRED:
    case XLA_FFI_DataType_U8: return HARK_U8;
    default: return HARK_NONE;
  }
}

/* Contiguous rows. */
static void describe(const XLA_FFI_Buffer *buffer, hark_tensor *tensor) {
  *tensor = (hark_tensor){.data = buffer->data, .type = type_of(buffer->dtype), .rank = (int)buffer->rank};
  int64_t step = 1;
  for (int i = (int)buffer->rank - 1; i >= 0; i--) {
    tensor->shape[i] = buffer->dims[i];
    tensor->stride[i] = step;
    step *= buffer->dims[i] > 1 ? buffer->dims[i] : 1;
  }
}

/* The numbers of a buffer as int64; *memory is what the caller frees, or NULL. NULL without memory. */
static const int64_t *whole_numbers(const XLA_FFI_Buffer *buffer, void **memory) {
  *memory = NULL;
  if (buffer->dtype == XLA_FFI_DataType_S64) return buffer->data;
  int64_t count = 1;
  for (int64_t i = 0; i < buffer->rank; i++) count *= buffer->dims[i];
  int64_t *const numbers = malloc(((size_t)count + 1) * sizeof *numbers);
  *memory = numbers;
  for (int64_t i = 0; numbers != NULL && i < count; i++) numbers[i] = ((const int32_t *)buffer->data)[i];
  return numbers;
}

typedef struct call {
  hark_attention_args args;
  void *converted[CONVERTED_MAX];
  int converted_count;
  bool has_sigma; /* else that of the descriptor */
  double sigma;
  hark_tensor sigma_gradient; /* one number, or absent */
} call;

static double real_number(const XLA_FFI_Buffer *buffer) {
  return buffer->dtype == XLA_FFI_DataType_F64 ? *(const double *)buffer->data : (double)*(const float *)buffer->data;
}

/* Stores a buffer at its place. False: without memory, or a buffer that cannot be. */
static bool store(call *c, const XLA_FFI_Buffer *buffer, int64_t kind, int64_t place) {
  char *const at = (char *)&c->args + place;
  if (kind == TENSOR) {
    if (buffer->rank > HARK_MAX_RANK) return false;
    hark_tensor tensor;
    describe(buffer, &tensor);
    memcpy(at, &tensor, sizeof tensor);
    return tensor.type != HARK_NONE;
  }
  if (kind == SIGMA || kind == SIGMA_GRADIENT) {
    if (buffer->dtype != XLA_FFI_DataType_F32 && buffer->dtype != XLA_FFI_DataType_F64) return false;
    if (kind == SIGMA_GRADIENT) {
      describe(buffer, &c->sigma_gradient);
    } else {
      c->has_sigma = true;
      c->sigma = real_number(buffer);
    }
    return true;
  }
  const void *data = buffer->data;
  if (kind == WHOLE || kind == NUMBER) {
    if (c->converted_count == CONVERTED_MAX) return false;
    data = whole_numbers(buffer, &c->converted[c->converted_count]);
    if (c->converted[c->converted_count] != NULL) c->converted_count++;
    if (data == NULL) return false;
  }
  if (kind == NUMBER)
    memcpy(at, data, sizeof(int64_t));
  else
    memcpy(at, &data, sizeof data);
  return true;
}

static bool store_all(call *c, int64_t size, void **buffers, const XLA_FFI_Array *places) {
  if (places == NULL || places->dtype != XLA_FFI_DataType_S64 || (int64_t)places->size != 2 * size) return false;
  const int64_t *const pairs = places->data;
  for (int64_t i = 0; i < size; i++)
    if (!store(c, buffers[i], pairs[2 * i], pairs[2 * i + 1])) return false;
  return true;
}

static bool set_numbers(call *c, const XLA_FFI_Array *array) {
  if (array == NULL || array->dtype != XLA_FFI_DataType_S64 || array->size != NUMBERS) return false;
  const int64_t *const numbers = array->data;
  c->args.dropout.seed = (uint64_t)numbers[SEED];
  c->args.dropout.layer_purpose = (uint32_t)numbers[LAYER_PURPOSE];
  c->args.has_query_offset = numbers[HAS_QUERY_OFFSET] != 0;
  c->args.query_offset = numbers[QUERY_OFFSET];
  c->args.sequences = numbers[SEQUENCES];
  return true;
}

static void forget(call *c) {
  for (int i = 0; i < c->converted_count; i++) free(c->converted[i]);
}

/* ---- the calls ---- */

static hark_status write_sigma_gradient(hark_context *context, const call *c) {
  double number = 0;
  const hark_status status =
      hark_attention_sigma_gradient(context, c->sigma, &c->args.query, &c->args.dquery, &c->args.key, &c->args.dkey, &number);
  if (c->sigma_gradient.type == HARK_F64)
    *(double *)c->sigma_gradient.data = number;
  else
    *(float *)c->sigma_gradient.data = (float)number;
  return status;
}

static hark_status execute(worker_set *set, const XLA_FFI_Array *desc_bytes, call *c, bool backward) {
  hark_attention_desc desc;
  memset(&desc, 0, sizeof desc);
  memcpy(&desc, desc_bytes->data, desc_bytes->size < sizeof desc ? desc_bytes->size : sizeof desc);
  if (c->has_sigma) desc.sigma = c->sigma;
  _Alignas(16) char memory[HARK_ATTENTION_PLAN_BYTES];
  hark_attention_plan *plan;
  hark_status status = hark_attention_plan_place(set->context, &desc, memory, sizeof memory, &plan);
  if (status != HARK_OK) return status;
  const hark_attention_sizes sizes = hark_attention_plan_sizes(plan);
  if (!reserve(set, backward ? sizes.backward_workspace : sizes.forward_workspace)) return HARK_OUT_OF_MEMORY;
  c->args.workspace = set->workspace;
  if (!backward) return hark_attention_forward(set->context, plan, &c->args);
  status = hark_attention_backward(set->context, plan, &c->args);
  return status == HARK_OK && c->sigma_gradient.type != HARK_NONE ? write_sigma_gradient(set->context, c) : status;
}

static XLA_FFI_Error *of_status(const XLA_FFI_CallFrame *frame, const worker_set *set, hark_status status) {
  if (status == HARK_OK) return NULL;
  const bool memory = status == HARK_OUT_OF_MEMORY || status == HARK_TOO_LARGE;
  const char *const message = hark_context_message(set->context);
  return failure(frame->api, memory ? XLA_FFI_Error_Code_RESOURCE_EXHAUSTED : XLA_FFI_Error_Code_INVALID_ARGUMENT,
                 memory || *message == 0 ? hark_status_text(status) : message);
}

static XLA_FFI_Error *call_with(const XLA_FFI_CallFrame *frame, worker_set *set, bool backward) {
  call c = {.args.struct_size = sizeof c.args};
  const XLA_FFI_Array *const desc = attribute(frame, "desc");
  const bool complete = desc != NULL && desc->dtype == XLA_FFI_DataType_U8 && set_numbers(&c, attribute(frame, "numbers")) &&
                        store_all(&c, frame->args.size, frame->args.args, attribute(frame, "inputs")) &&
                        store_all(&c, frame->rets.size, frame->rets.rets, attribute(frame, "results"));
  XLA_FFI_Error *const error = complete ? of_status(frame, set, execute(set, desc, &c, backward))
                                        : failure(frame->api, XLA_FFI_Error_Code_INTERNAL, "attention: the foreign call is not complete");
  forget(&c);
  return error;
}

#define FIRST_MINOR 1 /* of JAX 0.5 */

/* Of the headers or of the program that has loaded us, whichever is earlier. */
static int used_minor(const XLA_FFI_Api *api) {
  if (api == NULL) return FIRST_MINOR;
  const int theirs = api->api_version.minor_version;
  return theirs < XLA_FFI_API_MINOR ? theirs : XLA_FFI_API_MINOR;
}

/* XLA asks each handler once for the version of the interface that it uses, and refuses a later one than its own. What is used here is the
 * same since the first one. The type of the extension has different names in XLA's headers. */
static bool answers_metadata(const XLA_FFI_CallFrame *frame) {
  if (frame->extension_start == NULL || frame->extension_start->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata *const metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = used_minor(frame->api);
  return true;
}

static XLA_FFI_Error *handle(XLA_FFI_CallFrame *frame, bool backward) {
  if (answers_metadata(frame)) return NULL;
  worker_set *const set = take_set(frame);
  if (set == NULL) return failure(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "attention: no memory for a context");
  XLA_FFI_Error *const error = call_with(frame, set, backward);
  give_set(set);
  return error;
}

HARK_API XLA_FFI_Error *hark_python_xla_forward(XLA_FFI_CallFrame *frame) { return handle(frame, false); }
HARK_API XLA_FFI_Error *hark_python_xla_backward(XLA_FFI_CallFrame *frame) { return handle(frame, true); }
