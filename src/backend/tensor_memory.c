/* tensor_memory.c - tensors that own memory of the backend, and copies between it and the host. */
#include "backend/backend.h"
#include "core/overlap.h"

static size_t bytes_of(const hark_tensor *tensor) { return (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type); }

hark_status hark_tensor_create(hark_context *context, hark_type type, int rank, const int64_t *shape, hark_tensor *out) {
  HARK_TRY(hark_tensor_describe(context, type, rank, shape, out));
  return hark_tensor_allocate(context, out);
}

hark_status hark_tensor_allocate(hark_context *context, hark_tensor *out) {
  if (out->type == HARK_NONE) return HARK_OK;
  const size_t bytes = bytes_of(out);
  hark_status status = hark_backend_allocate(context, bytes, &out->data);
  if (status == HARK_OK) {
    out->owned_bytes = bytes;
    status = hark_backend_zero(context, out->data, bytes);
  }
  if (status != HARK_OK) hark_tensor_destroy(context, out);
  return status;
}

void hark_tensor_destroy(hark_context *context, hark_tensor *tensor) {
  if (tensor == NULL) return;
  if (tensor->owned_bytes > 0) hark_backend_release(context, tensor->data, tensor->owned_bytes);
  *tensor = (hark_tensor){0};
}

static hark_status check_contiguous(hark_context *context, const hark_tensor *tensor, const char *what) {
  char shape[HARK_SHAPE_TEXT_BYTES];
  if (tensor->data == NULL && bytes_of(tensor) > 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: the tensor has no data", what);
  if (hark_tensor_is_contiguous(tensor)) return HARK_OK;
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: the tensor %s is not contiguous", what,
                   hark_shape_text(tensor, shape, sizeof shape));
}

hark_status hark_tensor_read(hark_context *context, const hark_tensor *tensor, void *host) {
  HARK_TRY(check_contiguous(context, tensor, "tensor read"));
  HARK_TRY(hark_check_apart(context, "tensor read: the tensor and host", host, bytes_of(tensor), tensor->data, bytes_of(tensor), true));
  if (host == tensor->data) return HARK_OK;
  return hark_backend_read(context, host, tensor->data, bytes_of(tensor));
}

hark_status hark_tensor_write(hark_context *context, hark_tensor *tensor, const void *host) {
  HARK_TRY(check_contiguous(context, tensor, "tensor write"));
  HARK_TRY(hark_check_apart(context, "tensor write: the tensor and host", tensor->data, bytes_of(tensor), host, bytes_of(tensor), true));
  if (host == tensor->data) return HARK_OK;
  return hark_backend_write(context, tensor->data, host, bytes_of(tensor));
}

hark_status hark_tensor_zero(hark_context *context, hark_tensor *tensor) {
  HARK_TRY(check_contiguous(context, tensor, "tensor zero"));
  return hark_backend_zero(context, tensor->data, bytes_of(tensor));
}
