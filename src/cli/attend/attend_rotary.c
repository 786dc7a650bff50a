/* attend_rotary.c - see attend_rotary.h. Every head is a row of its own for the operator, so that all heads share the rates. */
#include "cli/attend/attend_rotary.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/range.h"
#include "io/number.h"

hark_status hark_attend_rotary_check(hark_invocation *call) {
  const hark_attend_values *v = call->values[0];
  const hark_rotary_scaling scaling = (hark_rotary_scaling)v->rotary_scaling;
  const bool by_length = scaling == HARK_ROTARY_YARN || scaling == HARK_ROTARY_LLAMA3 || scaling == HARK_ROTARY_DYNAMIC;
  if (v->rotary > 0 && v->rotary < 1)
    return hark_options_complain(call->context, call->options, "rotary",
                                 "%s given, expected a base of at least 1, or 0 for none: rates are then at most 1 radian per token",
                                 HARK_PRINTED(v->rotary));
  if (v->rotary_scaling != 0 && scaling != HARK_ROTARY_DYNAMIC && !hark_command_is_given(call, "rotary-factor"))
    return hark_options_complain(call->context, call->options, "rotary-scaling rotary-factor", "needs --rotary-factor S");
  if (by_length && v->rotary_context == 0)
    return hark_options_complain(call->context, call->options, "rotary-scaling rotary-context",
                                 "needs --rotary-context N, the length for which the rates were trained");
  if (scaling == HARK_ROTARY_YARN && v->rotary == 1)
    return hark_options_complain(call->context, call->options, "rotary", "1 given, expected a base above 1 with yarn");
  if (scaling == HARK_ROTARY_YARN && v->kernel == HARK_ATTEND_RBF)
    return hark_options_complain(call->context, call->options, "rotary-scaling", "yarn changes the factor of q.k, expected --kernel exp");
  return HARK_OK;
}

static hark_status check_rates(hark_context *context, const hark_attend_rotary *rotary, const hark_tensor *rates) {
  const int64_t pairs = rotary->attributes.turned;
  if (rates->type == HARK_NONE || rates->shape[0] == pairs) return HARK_OK;
  return hark_fail(context, HARK_SHAPE_MISMATCH,
                   "tensor rotary_rates has %" PRId64 " numbers, expected one for each of the %" PRId64 " pairs that rotate",
                   rates->shape[0], pairs);
}

/* As for the other numbers of the operator, which the plan checks. */
static hark_status check_ranges(hark_context *context, const hark_attend_values *v, hark_type type) {
  HARK_TRY(hark_check_range(context, "--rotary", "the base", v->rotary, type, hark_range_of(type)));
  return hark_check_range(context, "--rotary-factor", "the factor", v->rotary_factor, type, hark_range_of(type));
}

hark_status hark_attend_rotary_open(hark_context *context, const hark_attend_values *v, const hark_attend_tensors *t,
                                    hark_attend_rotary *out) {
  HARK_TRY(check_ranges(context, v, t->query.type));
  *out = (hark_attend_rotary){.spec = {.present = v->rotary > 0,
                                       .learned = t->rotary_rates.type != HARK_NONE,
                                       .base = v->rotary,
                                       .pairs = v->rotary_pairs == 0 ? HARK_ROTARY_INTERLEAVED : HARK_ROTARY_HALF,
                                       .fraction = v->rotary_fraction,
                                       .scaling = (hark_rotary_scaling)v->rotary_scaling,
                                       .factor = v->rotary_factor,
                                       .context = v->rotary_context,
                                       .head_dim = t->query.shape[3]}};
  if (v->rotary > 0) {
    HARK_TRY(hark_rotary_tables_open(context, &out->spec, &out->tables));
    out->spec.tables = &out->tables;
    out->attributes = hark_rotary_attributes_in(&out->spec, t->key.shape[2]);
    out->attributes.heads = 1;
  }
  return check_rates(context, out, &t->rotary_rates);
}

void hark_attend_rotary_close(hark_context *context, hark_attend_rotary *rotary) { hark_rotary_tables_close(context, &rotary->tables); }

/* Positions of the first query and the first key, shifted together so that neither is negative: only differences matter. */
static void first_positions(const hark_attend_values *v, const hark_attend_tensors *t, int64_t *query, int64_t *key) {
  int64_t offset = v->causal ? t->key.shape[2] - t->query.shape[2] : 0;
  if (v->has_query_offset) offset = v->query_offset;
  *query = hark_max(offset, 0);
  *key = hark_max(-offset, 0);
}

/* A call of the operator for rows [B, H, L, d] at the positions first, first + 1, ... `attributes` must outlive it. */
static hark_status describe(hark_context *context, const hark_attend_tensors *t, const hark_tensor *rows,
                            const hark_rotary_attributes *attributes, bool back, hark_call *call) {
  const int64_t shape[] = {rows->shape[0] * rows->shape[1], rows->shape[2], rows->shape[3]};
  hark_inferred inferred = {0};
  *call = (hark_call){.op = &hark_op_rotary, .attributes = attributes, .input_count = 1};
  HARK_TRY(hark_tensor_view(context, rows, 3, shape, &call->inputs[0]));
  if (t->rotary_rates.type != HARK_NONE) {
    const int64_t one_row[] = {1, t->rotary_rates.shape[0]};
    HARK_TRY(hark_tensor_view(context, &t->rotary_rates, 2, one_row, &call->inputs[1]));
    call->input_count = 2;
  }
  HARK_TRY(hark_op_rotary.infer(context, attributes, call->inputs, call->input_count, &inferred));
  call->workspace_bytes = back ? inferred.backward_workspace : inferred.forward_workspace;
  return hark_backend_allocate(context, call->workspace_bytes, &call->workspace);
}

static hark_status turn(hark_context *context, const hark_attend_rotary *rotary, const hark_attend_tensors *t, int64_t first,
                        const hark_tensor *from, hark_tensor *to) {
  hark_rotary_attributes attributes = rotary->attributes;
  hark_call call;
  attributes.first_position = first;
  HARK_TRY(hark_tensor_create(context, from->type, from->rank, from->shape, to));
  HARK_TRY(describe(context, t, from, &attributes, false, &call));
  hark_status status = hark_tensor_view(context, to, 3, call.inputs[0].shape, &call.outputs[0]);
  if (status == HARK_OK) status = hark_operator_forward(context, &call);
  hark_backend_release(context, call.workspace, call.workspace_bytes);
  return status;
}

hark_status hark_attend_rotary_turn(hark_context *context, const hark_attend_values *v, const hark_attend_rotary *rotary,
                                    hark_attend_tensors *t) {
  int64_t query_first, key_first;
  first_positions(v, t, &query_first, &key_first);
  HARK_TRY(turn(context, rotary, t, query_first, &t->query, &t->turned_query));
  return turn(context, rotary, t, key_first, &t->key, &t->turned_key);
}

/* *gradient, by the rotated rows `turned`, becomes that by the given rows. The gradient by the rates is added to drotary_rates. */
static hark_status turn_back(hark_context *context, const hark_attend_rotary *rotary, hark_attend_tensors *t, int64_t first,
                             const hark_tensor *turned, hark_tensor *gradient) {
  hark_rotary_attributes attributes = rotary->attributes;
  hark_tensor back = {0};
  hark_call call;
  attributes.first_position = first;
  HARK_TRY(describe(context, t, turned, &attributes, true, &call));
  const int64_t *const shape = call.inputs[0].shape;
  call.outputs[0] = call.inputs[0];
  hark_status status = hark_tensor_create(context, turned->type, turned->rank, turned->shape, &back);
  if (status == HARK_OK) status = hark_tensor_view(context, gradient, 3, shape, &call.output_gradients[0]);
  if (status == HARK_OK) status = hark_tensor_view(context, &back, 3, shape, &call.input_gradients[0]);
  if (status == HARK_OK && call.input_count == 2)
    status = hark_tensor_view(context, &t->drotary_rates, 2, call.inputs[1].shape, &call.input_gradients[1]);
  call.accumulate = 1u << 1; /* drotary_rates begins as zeros */
  if (status == HARK_OK) status = hark_operator_backward(context, &call);
  hark_backend_release(context, call.workspace, call.workspace_bytes);
  hark_tensor_destroy(context, status == HARK_OK ? gradient : &back);
  if (status == HARK_OK) *gradient = back;
  return status;
}

hark_status hark_attend_rotary_turn_back(hark_context *context, const hark_attend_values *v, const hark_attend_rotary *rotary,
                                         hark_attend_tensors *t) {
  int64_t query_first, key_first;
  const hark_tensor *const rates = &t->rotary_rates;
  first_positions(v, t, &query_first, &key_first);
  if (rates->type != HARK_NONE) HARK_TRY(hark_tensor_create(context, rates->type, rates->rank, rates->shape, &t->drotary_rates));
  HARK_TRY(turn_back(context, rotary, t, query_first, &t->turned_query, &t->dquery));
  return turn_back(context, rotary, t, key_first, &t->turned_key, &t->dkey);
}
