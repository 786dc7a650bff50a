/* state.h - the cpu backend's state in a context; the guard backend's state begins with it. */
#ifndef HARK_BACKEND_CPU_STATE_H
#define HARK_BACKEND_CPU_STATE_H

#include "backend/cpu/cpu.h"

#define HARK_CPU_MAX_ALGORITHMS 16

typedef struct hark_cpu_state {
  const hark_cpu_isa *isa;
  bool chosen;                                                            /* the instruction set was named, by the program or HARK_ARCH */
  bool bf16_dots;                                                         /* products in bf16 use the processor's dot products */
  const hark_attention_algorithm *attention[HARK_CPU_MAX_ALGORITHMS + 1]; /* the instruction set's own, the portable ones, NULL */
  void *scratch;                                                          /* `workers` areas of scratch_bytes */
  size_t scratch_bytes;
  int workers;
} hark_cpu_state;

/* Chooses the instruction set and allocates the scratch areas. Errors: HARK_NO_BACKEND, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_cpu_state_open(hark_context *context, const char *instruction_set, hark_cpu_state *state);
void hark_cpu_state_close(hark_context *context, hark_cpu_state *state);

/* The scratch area of a worker: large enough for product() and bf16_product(). */
void *hark_cpu_scratch(const hark_context *context, int worker);

/* Whether products in bf16 use the processor's dot products. */
bool hark_cpu_bf16_dots(const hark_context *context);

/* Members of the backend table that cpu and guard share. */
const char *hark_cpu_instruction_set(const hark_context *context);
const hark_backend_kernel *hark_cpu_kernels(const hark_context *context, int *count);
const hark_attention_algorithm *const *hark_cpu_attention(const hark_context *context);
const char *hark_cpu_slow_bf16(const hark_context *context);

/* The instruction set of that name, or the best available for NULL or ""; NULL if this machine lacks it. */
const hark_cpu_isa *hark_cpu_isa_find(const char *name);

#endif
