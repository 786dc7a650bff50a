/* bench_operator.c - one operator record, forward and backward (operator_case.h). Operations are those of the record; bytes count every
 * input, output and gradient once. */
#include <string.h>

#include "cli/bench/bench.h"
#include "cli/bench/operator_case.h"

static hark_status forward(hark_context *context, void *data) { return hark_operator_forward(context, data); }
static hark_status backward(hark_context *context, void *data) { return hark_operator_backward(context, data); }

/* Whether the backward computes any gradient itself (add passes its gradients on). */
static bool has_backward(const hark_call *call) {
  return call->op->backward != NULL && hark_bench_bytes(call->input_gradients, HARK_MAX_INPUTS) > 0;
}

static hark_status measure(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text) {
  hark_operator_case c;
  hark_call call;
  hark_tensor workspace;
  HARK_TRY(hark_operator_case_read(context, text, &c));
  hark_status status = hark_operator_call_open(context, &c, &call, &workspace);
  if (status == HARK_OK) {
    const bool both = has_backward(&call);
    const hark_bench_work measured = {
        .name = text,
        .forward = forward,
        .backward = both ? backward : NULL,
        .data = &call,
        .forward_operations = c.op->operations(c.attributes, call.inputs, call.input_count, false),
        .backward_operations = both ? c.op->operations(c.attributes, call.inputs, call.input_count, true) : 0,
        .forward_bytes = hark_bench_bytes(call.inputs, HARK_MAX_INPUTS) + hark_bench_bytes(call.outputs, HARK_MAX_OUTPUTS),
        .backward_bytes = hark_bench_bytes(call.inputs, HARK_MAX_INPUTS) + hark_bench_bytes(call.output_gradients, HARK_MAX_OUTPUTS) +
                          hark_bench_bytes(call.input_gradients, HARK_MAX_INPUTS),
        .single = true,
    };
    (void)hark_bench_machine_use_bf16(machine, call.inputs[0].type == HARK_BF16);
    status = hark_bench_work_run(context, machine, settings, &measured);
  } else {
    hark_fail_prefix(context, "case '%s': ", text);
    if (status == HARK_SHAPE_MISMATCH) status = HARK_INVALID_ARGUMENT; /* the case is wrong, not a file */
  }
  hark_operator_call_close(context, &call, &workspace);
  return status;
}

hark_status hark_bench_operator(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text) {
  int count;
  const hark_operator *const *const ops = hark_operators(&count);
  if (strcmp(text, "all") != 0) return measure(context, machine, settings, text);
  for (int i = 0; i < count; i++) {
    char name[HARK_OPERATOR_CASE_BYTES];
    HARK_TRY(measure(context, machine, settings, hark_operator_case_largest(ops[i], name)));
  }
  return HARK_OK;
}
