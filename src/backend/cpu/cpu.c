/* cpu.c - the backend of this machine's processors: host memory, vectorised kernels for the best instruction set available. */
#define _DEFAULT_SOURCE /* madvise */

#include "backend/cpu/cpu.h"

#include <stdio.h>
#include <string.h>

#include "backend/cpu/onednn.h"
#include "backend/cpu/state.h"
#include "backend/reference/reference.h"

#if defined(__linux__)
#include <sys/mman.h>
#define HAVE_HUGE_PAGES 1
#else
#define HAVE_HUGE_PAGES 0
#endif

/* For tensors of at least this size huge pages are requested: streaming kernels gain ten to fifteen per cent. */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define HUGE_FROM_BYTES (2 * HUGE_PAGE_BYTES)

static hark_status no_such_set(hark_context *context, const char *name) {
  char names[128] = "";
  size_t used = 0;
  for (const hark_cpu_isa *const *isa = hark_cpu_isas; *isa != NULL; isa++)
    if ((*isa)->runs_here() && used < sizeof names)
      used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", (*isa)->name);
  return hark_fail(context, HARK_NO_BACKEND, "instruction set \"%s\": this machine has %s", name, names);
}

hark_status hark_cpu_state_open(hark_context *context, const char *instruction_set, hark_cpu_state *state) {
  *state = (hark_cpu_state){.isa = hark_cpu_isa_find(instruction_set)};
  if (state->isa == NULL) return no_such_set(context, instruction_set);
  state->chosen = instruction_set != NULL && instruction_set[0] != '\0';
  state->bf16_dots = state->isa->has_bf16_dots();
  int count = 0;
  for (const hark_attention_algorithm *const *own = state->isa->attention;
       *own != NULL && count < HARK_CPU_MAX_ALGORITHMS - HARK_REFERENCE_ALGORITHMS; own++)
    state->attention[count++] = *own;
  for (int i = 0; i < HARK_REFERENCE_ALGORITHMS; i++) state->attention[count++] = hark_reference_attention[i];
  state->workers = hark_workers(context);
  const size_t product = state->isa->product_scratch_bytes(), bf16_product = state->isa->bf16_product_scratch_bytes();
  state->scratch_bytes = hark_align_up(product > bf16_product ? product : bf16_product);
  return hark_allocate(context, state->scratch_bytes * (size_t)state->workers, &state->scratch);
}

void hark_cpu_state_close(hark_context *context, hark_cpu_state *state) {
  hark_release(context, state->scratch, state->scratch_bytes * (size_t)state->workers);
}

static const hark_cpu_state *state_of(const hark_context *context) { return context->backend_state; }

void *hark_cpu_scratch(const hark_context *context, int worker) {
  const hark_cpu_state *state = state_of(context);
  return (char *)state->scratch + state->scratch_bytes * (size_t)worker;
}

const hark_cpu_isa *hark_cpu_isa_of(const hark_context *context) { return state_of(context)->isa; }

bool hark_cpu_bf16_dots(const hark_context *context) { return state_of(context)->bf16_dots; }

const char *hark_cpu_slow_bf16(const hark_context *context) {
  const hark_cpu_state *state = state_of(context);
  if (state->bf16_dots || state->chosen) return NULL;
  return "this processor has no dot products of bf16 numbers (AVX512_BF16), so that it would be slower than f32; HARK_ARCH, with the name "
         "of an instruction set, computes it nevertheless";
}

const char *hark_cpu_instruction_set(const hark_context *context) { return state_of(context)->isa->name; }

const hark_backend_kernel *hark_cpu_kernels(const hark_context *context, int *count) {
  *count = state_of(context)->isa->kernel_count;
  return state_of(context)->isa->kernels;
}

const hark_attention_algorithm *const *hark_cpu_attention(const hark_context *context) { return state_of(context)->attention; }

static hark_status cpu_open(hark_context *context, const char *instruction_set, void **state) {
  *state = NULL;
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, sizeof(hark_cpu_state), &memory));
  const hark_status status = hark_cpu_state_open(context, instruction_set, memory);
  if (status == HARK_OK)
    *state = memory;
  else
    hark_release(context, memory, sizeof(hark_cpu_state));
  return status;
}

static void cpu_close(hark_context *context, void *state) {
  hark_cpu_state_close(context, state);
  hark_release(context, state, sizeof(hark_cpu_state));
}

static hark_status cpu_allocate(hark_context *context, size_t bytes, void **memory) {
  HARK_TRY(hark_host_allocate(context, bytes, memory));
#if HAVE_HUGE_PAGES && defined(MADV_HUGEPAGE)
  if (bytes >= HUGE_FROM_BYTES) {
    const uintptr_t start = ((uintptr_t)*memory + HUGE_PAGE_BYTES - 1) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    const uintptr_t end = ((uintptr_t)*memory + bytes) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    if (end > start) (void)madvise((void *)start, end - start, MADV_HUGEPAGE); /* a request; refusal costs speed only */
  }
#endif
  return HARK_OK;
}

static size_t cpu_kernel_bytes(const hark_context *context, double operations) {
  return hark_cpu_onednn_bytes(hark_cpu_isa_of(context), operations, hark_workers(context));
}

const hark_backend hark_backend_cpu = {
    .name = "cpu",
    .host_memory = true,
    .open = cpu_open,
    .close = cpu_close,
    .instruction_set = hark_cpu_instruction_set,
    .allocate = cpu_allocate,
    .release = hark_host_release,
    .write = hark_host_copy,
    .read = hark_host_copy,
    .copy = hark_host_copy,
    .zero = hark_host_zero,
    .kernels = hark_cpu_kernels,
    .attention = hark_cpu_attention,
    .kernel_bytes = cpu_kernel_bytes,
    .slow_bf16 = hark_cpu_slow_bf16,
};
