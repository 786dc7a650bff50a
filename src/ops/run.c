/* run.c - runs an operator with the kernel of the context's backend or, without one, with the operator's definition. */
#include <string.h>

#include "backend/backend.h"
#include "core/floating_point.h"
#include "ops/call_memory.h"

/* A backend's kernel computes in f32 only. A call with an f64 tensor uses the operator's definition, and so does a caller's operator with
 * the name of a built-in one. */
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
  HARK_TRY(hark_check_call_memory(context, call, backward));
  hark_floating_point before;
  hark_backend_enter(context);
  hark_floating_point_hold(&before);
  const hark_status status = kernel(context, call);
  hark_floating_point_leave(&before);
  hark_backend_leave(context);
  return status;
}

hark_status hark_operator_forward(hark_context *context, const hark_call *call) { return run(context, call, false); }

hark_status hark_operator_backward(hark_context *context, const hark_call *call) { return run(context, call, true); }
