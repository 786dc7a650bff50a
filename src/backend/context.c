/* context.c - making and destroying a context. It is here and not in core because it opens the backend. */
#include <stdlib.h>

#include "backend/backend.h"
#include "core/cancel.h"
#include "core/parallel.h"
#include "core/structs.h"
#include "core/thread_count.h"

static void *default_allocate(void *user, size_t bytes, size_t alignment) {
  (void)user;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment; /* aligned_alloc needs a multiple */
  return rounded >= bytes ? aligned_alloc(alignment, rounded) : NULL;
}

static void default_release(void *user, void *memory, size_t bytes) {
  (void)user;
  (void)bytes;
  free(memory);
}

/* Only the logger can get the message. */
static hark_status refuse(const hark_context_options *options, const char *message) {
  if (options->logger != NULL) options->logger(options->logger_user, HARK_LOG_ERROR, message);
  return HARK_INVALID_ARGUMENT;
}

hark_status hark_context_create(const hark_context_options *given, hark_context **out) {
  *out = NULL;
  hark_context_options options = {0};
  if (given != NULL) {
    hark_context refused; /* holds only the message: there is no context yet */
    const hark_status taken =
        hark_take_struct(&refused, "hark_context_options", given, HARK_LEAST_CONTEXT_OPTIONS, &options, sizeof options);
    /* HARK_UNSUPPORTED means that the caller's struct is larger than ours, so it has all of our fields. */
    if (taken == HARK_UNSUPPORTED && given->logger != NULL) given->logger(given->logger_user, HARK_LOG_ERROR, refused.message);
    if (taken != HARK_OK) return taken;
  }
  const hark_allocator *const own = options.allocator;
  const hark_parallel *const parallel = options.parallel;
  if (own != NULL && (own->allocate == NULL || own->release == NULL))
    return refuse(&options, "hark_context_options: the allocator lacks allocate or release");
  if (parallel != NULL && (parallel->threads == NULL || parallel->run == NULL))
    return refuse(&options, "hark_context_options: parallel lacks threads or run");
  const hark_allocator allocator =
      options.allocator != NULL ? *options.allocator : (hark_allocator){.allocate = default_allocate, .release = default_release};
  hark_context *context = allocator.allocate(allocator.user, sizeof *context, HARK_ALIGNMENT);
  if (context == NULL) return HARK_OUT_OF_MEMORY;
  *context = (hark_context){.allocator = allocator,
                            .threads = options.threads,
                            .threads_from = HARK_THREADS_REQUESTED,
                            .seed = options.seed,
                            .deterministic = options.deterministic,
                            .rows = {.most = HARK_ROWS_MOST, .part = HARK_ROWS_PART},
                            .logger = options.logger,
                            .logger_user = options.logger_user};
  context->memory = (hark_memory_use){.live_bytes = sizeof *context, .peak_bytes = sizeof *context, .allocations = 1};
  context->backend = options.backend != NULL ? hark_backend_find(options.backend) : hark_backends[0];
  hark_cores_of_process(&context->cores);
  if (options.threads < 1 && options.parallel == NULL)
    context->threads = hark_thread_count(context, "", context->cores.count, &context->threads_from);
  hark_status status = hark_parallel_open(context, options.parallel);
  if (status == HARK_OK) status = hark_cancel_open(context, options.cancel, options.cancel_user);
  if (status == HARK_OK && context->backend == NULL)
    status = hark_fail(context, HARK_NO_BACKEND, "there is no backend \"%s\" in this build", options.backend);
  if (status == HARK_OK) {
    const char *set = options.instruction_set != NULL ? options.instruction_set : getenv("HARK_ARCH");
    status = context->backend->open(context, set, &context->backend_state);
  }
  if (status != HARK_OK) {
    if (options.logger != NULL) options.logger(options.logger_user, HARK_LOG_ERROR, context->message);
    hark_cancel_close(context);
    hark_parallel_close(context);
    allocator.release(allocator.user, context, sizeof *context);
    return status;
  }
  *out = context;
  return HARK_OK;
}

void hark_context_destroy(hark_context **context) {
  if (context == NULL || *context == NULL) return;
  hark_context *dead = *context;
  *context = NULL;
  dead->backend->close(dead, dead->backend_state);
  hark_cancel_close(dead);
  hark_parallel_close(dead);
  const hark_allocator allocator = dead->allocator;
  allocator.release(allocator.user, dead, sizeof *dead);
}

const char *hark_context_backend(const hark_context *context) { return context->backend->name; }

const char *hark_context_instruction_set(const hark_context *context) { return context->backend->instruction_set(context); }
