/* backend.h - the functions that a device must provide.
 *
 * A backend is a const table: memory (required), kernels that replace the records' portable definitions (optional, by name of the record)
 * and attention algorithms (in order of preference). All loops over data are in records' definitions, which run on host memory, and in
 * backends. The layers above access data only through hark_backend_read/_write/_copy/_zero. Adding a backend: one folder here with its
 * table, one row in backends.c.
 */
#ifndef HARK_BACKEND_BACKEND_H
#define HARK_BACKEND_BACKEND_H

#include <hark/operator.h>

#include "attention_algorithm.h"
#include "core/core.h"

/* A faster kernel for a record. It is used if every floating-point tensor of the call is f32. */
typedef struct hark_backend_kernel {
  const char *name; /* of the record */
  hark_kernel *forward;
  hark_kernel *backward; /* NULL: the record's definition */
} hark_backend_kernel;

typedef struct hark_backend {
  const char *name;
  bool host_memory; /* the records' definitions can run in its memory */

  /* Required. open makes the state that the context keeps (may be NULL) and returns HARK_NO_BACKEND if there is no device. */
  hark_status (*open)(hark_context *context, const char *instruction_set, void **state);
  void (*close)(hark_context *context, void *state);
  const char *(*instruction_set)(const hark_context *context);
  hark_status (*allocate)(hark_context *context, size_t bytes, void **memory);
  void (*release)(hark_context *context, void *memory, size_t bytes);

  /* Required: data movement and order. The plain functions of host memory are hark_host_*. */
  hark_status (*write)(hark_context *context, void *device, const void *host, size_t bytes);
  hark_status (*read)(hark_context *context, void *host, const void *device, size_t bytes);
  hark_status (*copy)(hark_context *context, void *to, const void *from, size_t bytes);
  hark_status (*zero)(hark_context *context, void *device, size_t bytes);

  /* Optional: called around everything that touches data (kernels, copies); may nest. */
  void (*enter)(hark_context *context);
  void (*leave)(hark_context *context);

  /* Kernels of the state in use (they may depend on the instruction set); *count is their number. Optional. */
  const hark_backend_kernel *(*kernels)(const hark_context *context, int *count);

  /* Attention algorithms in order of preference, ended by NULL. Required: with host_memory at least the reference algorithm. */
  const hark_attention_algorithm *const *(*attention)(const hark_context *context);

  /* Optional, for estimates: about how many bytes the process needs for kernels in addition to their allocated memory, if these include
   * products of that many operations: a library's code and the memory into which it packs. */
  size_t (*kernel_bytes)(const hark_context *context, double operations);

  /* Optional: why products in bf16 would not be faster than in f32; NULL if they are, or if that was requested. */
  const char *(*slow_bf16)(const hark_context *context);
} hark_backend;

/* All backends of this build, ended by NULL; the first is the default. */
extern const hark_backend *const hark_backends[];
const hark_backend *hark_backend_find(const char *name);

/* Functions of the context's backend, between enter and leave. */
hark_status hark_backend_allocate(hark_context *context, size_t bytes, void **memory);
/* Allocates the memory of a described tensor, filled with zeros; does nothing if it is absent (type NONE). After a failure it is absent. */
HARK_MUST_CHECK hark_status hark_tensor_allocate(hark_context *context, hark_tensor *tensor);
void hark_backend_release(hark_context *context, void *memory, size_t bytes);
hark_status hark_backend_write(hark_context *context, void *device, const void *host, size_t bytes);
hark_status hark_backend_read(hark_context *context, void *host, const void *device, size_t bytes);
hark_status hark_backend_copy(hark_context *context, void *to, const void *from, size_t bytes);
hark_status hark_backend_zero(hark_context *context, void *device, size_t bytes);
void hark_backend_enter(hark_context *context);
void hark_backend_leave(hark_context *context);

/* Memory functions of backends whose memory is the host's. */
hark_status hark_host_allocate(hark_context *context, size_t bytes, void **memory);
void hark_host_release(hark_context *context, void *memory, size_t bytes);
hark_status hark_host_copy(hark_context *context, void *to, const void *from, size_t bytes);
hark_status hark_host_zero(hark_context *context, void *device, size_t bytes);

extern const hark_backend hark_backend_cpu, hark_backend_reference;
#ifdef HARK_WITH_GUARD
extern const hark_backend hark_backend_guard;
#endif

#endif
