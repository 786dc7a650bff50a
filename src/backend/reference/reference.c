/* reference.c - the portable backend: host memory, no separate kernels (it uses the records' definitions), attention by its definition.
 *
 * It is the oracle of the other backends, computes f64 and supports everything.
 */
#include "backend/reference/reference.h"

static hark_status open_reference(hark_context *context, const char *instruction_set, void **state) {
  (void)context;
  (void)instruction_set; /* there is only one: the compiler's code for plain loops */
  *state = NULL;
  return HARK_OK;
}

static void close_reference(hark_context *context, void *state) {
  (void)context;
  (void)state;
}

static const char *instruction_set(const hark_context *context) {
  (void)context;
  return "portable";
}

const hark_attention_algorithm *const hark_reference_attention[] = {
    &hark_reference_dense,      &hark_reference_hierarchical, &hark_reference_kernel_ridge, &hark_reference_stick_breaking,
    &hark_reference_contextual, &hark_reference_grid,         &hark_reference_compressed,   NULL};

static const hark_attention_algorithm *const *attention(const hark_context *context) {
  (void)context;
  return hark_reference_attention;
}

const hark_backend hark_backend_reference = {
    .name = "reference",
    .host_memory = true,
    .open = open_reference,
    .close = close_reference,
    .instruction_set = instruction_set,
    .allocate = hark_host_allocate,
    .release = hark_host_release,
    .write = hark_host_copy,
    .read = hark_host_copy,
    .copy = hark_host_copy,
    .zero = hark_host_zero,
    .attention = attention,
};
