/* tensor.h - numbers with a type, a shape, strides and an address.
 *
 * A hark_tensor is a plain description, passed by pointer and copied freely; copying it copies no numbers. Verbs say who owns the numbers:
 * create owns, wrap borrows the caller's memory, view shares another tensor's, destroy frees what create made.
 * Data is in the memory of the context's backend: use hark_tensor_read() and hark_tensor_write() unless you wrapped host memory yourself.
 */
#ifndef HARK_TENSOR_H
#define HARK_TENSOR_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The maximum number of dimensions. */
#define HARK_MAX_RANK 8

/* Types of elements. HARK_NONE, zero, marks an absent tensor: hark_tensor t = {0} is an optional input left out. */
typedef enum hark_type {
  HARK_NONE = 0,
  HARK_F32,
  HARK_F64,
  HARK_I32,
  HARK_I64,
  HARK_U8,
  HARK_F16, /* reserved */
  HARK_BF16 /* 8 bits of exponent, 7 of fraction: operands of products (experimental.h, attention.h) */
} hark_type;

/* Element (i, j, ...) is at data + (i stride[0] + j stride[1] + ...) elements. An input may have any strides that the call accepts, also
 * strides that repeat elements. In an output no two elements may share an address; calls refuse other outputs. */
typedef struct hark_tensor {
  void *data; /* NULL in a shape-only run */
  hark_type type;
  int rank;                      /* 0 (one number) to HARK_MAX_RANK */
  int64_t shape[HARK_MAX_RANK];  /* elements, each >= 0 */
  int64_t stride[HARK_MAX_RANK]; /* elements; 0 repeats */
  size_t owned_bytes;            /* > 0: create made it; 0: wrapped or a view */
} hark_tensor;

/* Bytes of one element; 0 for HARK_NONE. */
HARK_API size_t hark_type_bytes(hark_type type);
/* "f32", "f64", ...; static. */
HARK_API const char *hark_type_name(hark_type type);

/* Number of elements; 1 for rank 0. The extents are not checked again: they were checked when the tensor was made. */
HARK_API int64_t hark_tensor_count(const hark_tensor *tensor);
/* Elements follow each other in row-major order without gaps. */
HARK_API bool hark_tensor_is_contiguous(const hark_tensor *tensor);

/* Describes a tensor without data: contiguous row-major strides. Errors: HARK_INVALID_ARGUMENT (type, rank, negative extent),
 * HARK_TOO_LARGE (the byte count overflows). */
HARK_API HARK_MUST_CHECK hark_status hark_tensor_describe(hark_context *context, hark_type type, int rank, const int64_t *shape,
                                                          hark_tensor *out);

/* Allocates a contiguous tensor of zeros in the backend's memory; the caller destroys it. Errors: as describe, and HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_tensor_create(hark_context *context, hark_type type, int rank, const int64_t *shape,
                                                        hark_tensor *out);

/* Borrows `data` as a contiguous tensor; aligned to its element only is enough. `strides` in elements, or NULL for contiguous.
 * The caller owns the memory, which must outlive the tensor. Strides are not checked here: calls check what they read and write.
 * Errors: as describe; HARK_INVALID_ARGUMENT for misaligned data. */
HARK_API HARK_MUST_CHECK hark_status hark_tensor_wrap(hark_context *context, void *data, hark_type type, int rank, const int64_t *shape,
                                                      const int64_t *strides, hark_tensor *out);

/* A view of the same numbers under another shape with as many elements; `tensor` must be contiguous.
 * Errors: as describe; HARK_SHAPE_MISMATCH (another number of elements), HARK_INVALID_ARGUMENT (not contiguous). */
HARK_API HARK_MUST_CHECK hark_status hark_tensor_view(hark_context *context, const hark_tensor *tensor, int rank, const int64_t *shape,
                                                      hark_tensor *out);

/* Frees what create made and zeroes the description; wrapped tensors and views are only zeroed. NULL is allowed. */
HARK_API void hark_tensor_destroy(hark_context *context, hark_tensor *tensor);

/* Copies all elements of a contiguous tensor to or from host memory of hark_tensor_count() elements of the same type.
 * Errors: HARK_INVALID_ARGUMENT (not contiguous; host memory that overlaps the tensor's and is not the same). */
HARK_API HARK_MUST_CHECK hark_status hark_tensor_read(hark_context *context, const hark_tensor *tensor, void *host);
HARK_API HARK_MUST_CHECK hark_status hark_tensor_write(hark_context *context, hark_tensor *tensor, const void *host);

/* Sets every byte of a contiguous tensor to zero. Errors: HARK_INVALID_ARGUMENT (not contiguous). */
HARK_API HARK_MUST_CHECK hark_status hark_tensor_zero(hark_context *context, hark_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
