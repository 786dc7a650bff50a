/* dispatch.c - the only ways from the layers above to a backend's memory and kernels, with enter and leave around. */
#include <string.h>

#include "backend/backend.h"

void hark_backend_enter(hark_context *context) {
  if (context->backend->enter != NULL) context->backend->enter(context);
}

void hark_backend_leave(hark_context *context) {
  if (context->backend->leave != NULL) context->backend->leave(context);
}

hark_status hark_backend_allocate(hark_context *context, size_t bytes, void **memory) {
  *memory = NULL;
  return bytes == 0 ? HARK_OK : context->backend->allocate(context, bytes, memory);
}

void hark_backend_release(hark_context *context, void *memory, size_t bytes) {
  if (memory != NULL) context->backend->release(context, memory, bytes);
}

hark_status hark_backend_write(hark_context *context, void *device, const void *host, size_t bytes) {
  if (bytes == 0) return HARK_OK;
  hark_backend_enter(context);
  const hark_status status = context->backend->write(context, device, host, bytes);
  hark_backend_leave(context);
  return status;
}

hark_status hark_backend_read(hark_context *context, void *host, const void *device, size_t bytes) {
  if (bytes == 0) return HARK_OK;
  hark_backend_enter(context);
  const hark_status status = context->backend->read(context, host, device, bytes);
  hark_backend_leave(context);
  return status;
}

hark_status hark_backend_copy(hark_context *context, void *to, const void *from, size_t bytes) {
  if (bytes == 0) return HARK_OK;
  hark_backend_enter(context);
  const hark_status status = context->backend->copy(context, to, from, bytes);
  hark_backend_leave(context);
  return status;
}

hark_status hark_backend_zero(hark_context *context, void *device, size_t bytes) {
  if (bytes == 0) return HARK_OK;
  hark_backend_enter(context);
  const hark_status status = context->backend->zero(context, device, bytes);
  hark_backend_leave(context);
  return status;
}

hark_status hark_host_allocate(hark_context *context, size_t bytes, void **memory) { return hark_allocate(context, bytes, memory); }

void hark_host_release(hark_context *context, void *memory, size_t bytes) { hark_release(context, memory, bytes); }

hark_status hark_host_copy(hark_context *context, void *to, const void *from, size_t bytes) {
  (void)context;
  memcpy(to, from, bytes);
  return HARK_OK;
}

hark_status hark_host_zero(hark_context *context, void *device, size_t bytes) {
  (void)context;
  memset(device, 0, bytes);
  return HARK_OK;
}

/* A kernel of the backend computes in f32 only; a call with an f64 tensor goes to the record's definition, and so does a record of the
 * caller's that happens to have a built-in one's name. */
static bool has_f64(const hark_call *call) {
  for (int i = 0; i < call->input_count; i++)
    if (call->inputs[i].type == HARK_F64) return true;
  return false;
}

static hark_kernel *find_kernel(const hark_context *context, const hark_call *call, bool backward) {
  const hark_operator *op = call->op;
  if (context->backend->kernels != NULL && !has_f64(call)) {
    int count = 0;
    const hark_backend_kernel *kernels = context->backend->kernels(context, &count);
    for (int i = 0; i < count; i++)
      if (strcmp(kernels[i].name, op->name) == 0) {
        hark_kernel *kernel = backward ? kernels[i].backward : kernels[i].forward;
        if (kernel != NULL && hark_operator_find(op->name) == op) return kernel;
        break;
      }
  }
  return backward ? op->backward : op->forward;
}

static hark_status run(hark_context *context, const hark_call *call, bool backward) {
  hark_kernel *kernel = find_kernel(context, call, backward);
  if (kernel == NULL) return hark_fail(context, HARK_UNSUPPORTED, "%s has no %s", call->op->name, backward ? "backward" : "forward");
  hark_backend_enter(context);
  const hark_status status = kernel(context, call);
  hark_backend_leave(context);
  return status;
}

hark_status hark_operator_forward(hark_context *context, const hark_call *call) { return run(context, call, false); }

hark_status hark_operator_backward(hark_context *context, const hark_call *call) { return run(context, call, true); }
