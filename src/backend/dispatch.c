/* dispatch.c - the only ways from the layers above to a backend's memory, between enter and leave. Kernels: ops/run.c. */
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
