/* execute.c - runs a plan: arguments checked, sequences listed, gaps cleared, then the algorithm.
 *
 * Workspace: [ list of sequences | the algorithm's scratch ]. Nothing is allocated.
 */
#include "attention/layer.h"
#include "core/cancel.h"

/* Writes the batch's sequences to the beginning of the workspace; returns their number. */
static int64_t list_sequences(const hark_attention_args *args, bool causal, bool backward, hark_attention_sequence *list) {
  hark_attention_walk walk = hark_attention_walk_start(args, causal, backward);
  int64_t count = 0;
  hark_attention_sequence sequence; /* a separate copy, because the walk only writes the sequences that it finds */
  while (hark_attention_walk_next(&walk, &sequence)) list[count++] = sequence;
  return count;
}

static bool requests_gradient(const hark_attention_args *args) {
  const hark_tensor *const gradients[] = {&args->dquery,
                                          &args->dkey,
                                          &args->dvalue,
                                          &args->dattention_bias,
                                          &args->dlog_kernel,
                                          &args->dforget,
                                          &args->dhierarchical_bias,
                                          &args->dridge,
                                          &args->dsigma,
                                          &args->dcontextual,
                                          &args->dnoise};
  for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++)
    if (gradients[i]->type != HARK_NONE) return true;
  return false;
}

static hark_status execute(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *given, bool backward,
                           const float *products, const hark_attention_part *part) {
  hark_attention_args args;
  HARK_TRY(hark_attention_check(context, plan, given, backward, &args));
  if (backward && !requests_gradient(&args)) return HARK_OK;
  hark_floating_point before;
  hark_backend_enter(context);
  hark_cancel_enter(context);
  hark_attention_hold(plan, backward, &before);
  hark_status status = hark_attention_clear(context, &args, plan->desc.causal, backward);
  if (status == HARK_OK) {
    const int64_t count = list_sequences(&args, plan->desc.causal, backward, args.workspace);
    const hark_attention_call run = {.plan = plan,
                                     .args = &args,
                                     .sequences = args.workspace,
                                     .sequence_count = count,
                                     .products = products,
                                     .part = part,
                                     .scratch = (char *)args.workspace + plan->sequence_bytes};
    if (count > 0) status = (backward ? plan->algorithm->backward : plan->algorithm->forward)(context, &run);
  }
  hark_floating_point_leave(&before);
  status = hark_cancel_leave(context, status);
  hark_backend_leave(context);
  return status;
}

hark_status hark_attention_forward(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args) {
  return execute(context, plan, args, false, NULL, NULL);
}

hark_status hark_attention_backward(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args) {
  return execute(context, plan, args, true, NULL, NULL);
}

hark_status hark_attention_backward_of(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args,
                                       const float *products) {
  return execute(context, plan, args, true, products, NULL);
}

hark_status hark_attention_run_part(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                                    const hark_attention_part *part) {
  return execute(context, plan, args, backward, NULL, part);
}
