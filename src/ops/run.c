/* run.c - runs an operator with the kernel of the context's backend or, without one, with the operator's definition. */
#include <string.h>

#include "backend/backend.h"
#include "core/floating_point.h"
#include "ops/call_memory.h"
#include "ops/parts.h"

/* A backend's kernel computes in f32 only. A call with an f64 tensor uses the operator's definition, and so does a caller's operator with
 * the name of a built-in one. */
static bool has_f64(const hark_call *call) {
  for (int i = 0; i < call->input_count && i < HARK_MAX_INPUTS; i++)
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

static hark_status run_kernel(hark_context *context, hark_kernel *kernel, const hark_call *call) {
  hark_floating_point before;
  hark_backend_enter(context);
  hark_floating_point_hold(&before);
  const hark_status status = kernel(context, call);
  hark_floating_point_leave(&before);
  hark_backend_leave(context);
  return status;
}

/* The parts of a call with many rows, in order. */
static hark_status run_parts(hark_context *context, hark_kernel *kernel, const hark_call *call, int64_t rows, bool backward) {
  hark_part_sums sums = {{{0}}};
  for (int64_t first = 0; first < rows; first += context->rows.part) {
    hark_call_part part;
    hark_part_of_call(call, first, hark_min(context->rows.part, rows - first), &part);
    HARK_TRY(run_kernel(context, kernel, &part.call));
    if (!backward) HARK_TRY(hark_part_add_sums(context, call, &sums));
  }
  return backward ? HARK_OK : hark_part_give_sums(context, call, &sums);
}

static hark_status run(hark_context *context, const hark_call *call, bool backward) {
  hark_kernel *kernel = find_kernel(context, call, backward);
  if (kernel == NULL) return hark_fail(context, HARK_UNSUPPORTED, "%s has no %s", call->op->name, backward ? "backward" : "forward");
  HARK_TRY(hark_check_call_memory(context, call, backward));
  const int64_t rows = hark_rows_of_parts(context, call);
  return rows > 0 ? run_parts(context, kernel, call, rows, backward) : run_kernel(context, kernel, call);
}

hark_status hark_operator_forward(hark_context *context, const hark_call *call) { return run(context, call, false); }

hark_status hark_operator_backward(hark_context *context, const hark_call *call) { return run(context, call, true); }
