/* tensor.c - descriptions of shapes with checked sizes. backend/tensor_memory.c moves data. */
#include <inttypes.h>
#include <stdio.h>

#include "core/core.h"

size_t hark_type_bytes(hark_type type) {
  switch (type) {
    case HARK_NONE: return 0;
    case HARK_F32:
    case HARK_I32: return 4;
    case HARK_F64:
    case HARK_I64: return 8;
    case HARK_U8:
    case HARK_I8: return 1;
    case HARK_F16:
    case HARK_BF16: return 2;
  }
  return 0;
}

const char *hark_type_name(hark_type type) {
  switch (type) {
    case HARK_NONE: return "none";
    case HARK_F32: return "f32";
    case HARK_F64: return "f64";
    case HARK_I32: return "i32";
    case HARK_I64: return "i64";
    case HARK_U8: return "u8";
    case HARK_F16: return "f16";
    case HARK_BF16: return "bf16";
    case HARK_I8: return "i8";
  }
  return "unknown";
}

int64_t hark_tensor_count(const hark_tensor *tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
  return count;
}

bool hark_tensor_is_contiguous(const hark_tensor *tensor) {
  int64_t expected = 1;
  for (int i = tensor->rank - 1; i >= 0; i--) {
    if (tensor->shape[i] == 0) return true;
    if (tensor->shape[i] != 1 && tensor->stride[i] != expected) return false;
    expected *= tensor->shape[i];
  }
  return true;
}

/* If two numbers are below it, their product is addressable, whatever the type. */
#define NO_OVERFLOW ((int64_t)1 << 30)

/* The product of the extents that are not zero must be addressable, so that strides never overflow either. */
static hark_status lay_out(hark_context *context, hark_type type, int rank, const int64_t *shape, hark_tensor *out) {
  int64_t elements = 1;
  out->type = type;
  out->rank = rank;
  for (int i = rank - 1; i >= 0; i--) {
    if (shape[i] < 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "tensor: extent %d is %" PRId64 ", expected at least 0", i, shape[i]);
    out->shape[i] = shape[i];
    out->stride[i] = elements;
    const int64_t extent = hark_max(shape[i], 1);
    const bool small = elements < NO_OVERFLOW && extent < NO_OVERFLOW; /* avoids a division, which is slow for small operators */
    if (!small && elements > PTRDIFF_MAX / (int64_t)hark_type_bytes(type) / extent)
      return hark_fail(context, HARK_TOO_LARGE, "tensor: the bytes of extents 0..%d overflow at extent %d", rank - 1, i);
    elements *= extent;
  }
  return HARK_OK;
}

hark_status hark_tensor_describe(hark_context *context, hark_type type, int rank, const int64_t *shape, hark_tensor *out) {
  *out = (hark_tensor){0};
  if (type <= HARK_NONE || type > HARK_I8)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "tensor: type %d is not a type of elements", (int)type);
  if (rank < 0 || rank > HARK_MAX_RANK)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "tensor: rank %d is outside 0..%d", rank, HARK_MAX_RANK);
  const hark_status status = lay_out(context, type, rank, shape, out);
  if (status != HARK_OK) *out = (hark_tensor){0};
  return status;
}

hark_status hark_tensor_wrap(hark_context *context, void *data, hark_type type, int rank, const int64_t *shape, const int64_t *strides,
                             hark_tensor *out) {
  HARK_TRY(hark_tensor_describe(context, type, rank, shape, out));
  if ((uintptr_t)data % hark_type_bytes(type) != 0) {
    *out = (hark_tensor){0};
    return hark_fail(context, HARK_INVALID_ARGUMENT, "tensor: data at %p is not aligned to its element of %zu bytes", data,
                     hark_type_bytes(type));
  }
  if (strides != NULL)
    for (int i = 0; i < rank; i++) out->stride[i] = strides[i];
  out->data = data;
  return HARK_OK;
}

hark_status hark_tensor_view(hark_context *context, const hark_tensor *tensor, int rank, const int64_t *shape, hark_tensor *out) {
  const hark_tensor source = *tensor;
  char from[HARK_SHAPE_TEXT_BYTES], to[HARK_SHAPE_TEXT_BYTES];
  HARK_TRY(hark_tensor_describe(context, source.type, rank, shape, out));
  const hark_tensor expected = *out;
  *out = (hark_tensor){0};
  if (!hark_tensor_is_contiguous(&source))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "view: the tensor %s is not contiguous", hark_shape_text(&source, from, sizeof from));
  if (hark_tensor_count(&source) != hark_tensor_count(&expected))
    return hark_fail(context, HARK_SHAPE_MISMATCH, "view: %s and %s have different numbers of elements",
                     hark_shape_text(&source, from, sizeof from), hark_shape_text(&expected, to, sizeof to));
  *out = expected;
  out->data = source.data;
  return HARK_OK;
}

hark_tensor hark_tensor_front(const hark_tensor *whole, int rank, const int64_t *shape) {
  hark_tensor tensor = *whole;
  tensor.owned_bytes = 0;
  tensor.rank = rank;
  for (int i = rank - 1, one = 1; i >= 0; i--) {
    tensor.shape[i] = shape[i];
    tensor.stride[i] = i == rank - 1 ? one : tensor.stride[i + 1] * shape[i + 1];
  }
  return tensor;
}

const char *hark_shape_text(const hark_tensor *tensor, char *text, size_t size) {
  size_t used = 0;
  if (tensor->rank < 0 || tensor->rank > HARK_MAX_RANK) {
    (void)snprintf(text, size, "of rank %d", tensor->rank);
    return text;
  }
  for (int i = 0; i < tensor->rank && used < size; i++)
    used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i == 0 ? "[" : ", ", tensor->shape[i]);
  if (used < size) (void)snprintf(text + used, size - used, "%s", tensor->rank == 0 ? "[]" : "]");
  return text;
}
