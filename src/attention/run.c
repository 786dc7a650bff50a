/* run.c - the simple calls: plan, memory and call in one function, on contiguous buffers. */
#include "attention/layer.h"
#include "core/structs.h"

/* A block from the context's allocator. */
typedef struct block {
  void *data;
  size_t bytes;
} block;

typedef struct simple_call {
  const char *name; /* of the function, for messages */
  hark_context *context;
  _Alignas(16) unsigned char place[HARK_ATTENTION_PLAN_BYTES];
  hark_attention_plan *plan;
  hark_attention_desc desc; /* resolved */
  hark_attention_args args;
  block workspace, saved, out, log_sum_exp;
} simple_call;

/* Refuses inputs that only hark_attention_args has. Dropout is one: without a stream of random numbers every call would drop the same
 * weights. */
static hark_status refuse_others(const simple_call *call, const hark_attention_desc *desc) {
  const struct {
    const char *field;
    bool set;
  } others[] = {
      {"has_bias", desc->has_bias},         {"has_mask", desc->has_mask},
      {"has_segments", desc->has_segments}, {"has_log_kernel", desc->has_log_kernel},
      {"has_forget", desc->has_forget},     {"has_hierarchical_bias", desc->has_hierarchical_bias},
      {"has_ridge", desc->has_ridge},       {"has_sigma", desc->has_sigma},
      {"has_noise", desc->has_noise != 0},  {"has_chunk_starts", desc->has_chunk_starts != 0},
      {"dropout", desc->dropout != 0},
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (others[i].set)
      return hark_fail(call->context, HARK_INVALID_ARGUMENT, "%s: desc.%s is set, which needs hark_attention_forward() and its arguments",
                       call->name, others[i].field);
  return HARK_OK;
}

static hark_status make_plan(const hark_attention_desc *given, bool backward, simple_call *call) {
  hark_attention_desc desc = hark_attention_desc_default();
  HARK_TRY(hark_take_struct(call->context, "hark_attention_desc", given, HARK_LEAST_ATTENTION_DESC, &desc, sizeof desc));
  HARK_TRY(refuse_others(call, &desc));
  desc.forward_only = !backward;
  HARK_TRY(hark_attention_plan_place(call->context, &desc, call->place, sizeof call->place, &call->plan));
  call->desc = *hark_attention_plan_desc(call->plan);
  call->args.struct_size = sizeof call->args;
  return HARK_OK;
}

static hark_status take(simple_call *call, size_t bytes, block *out) {
  HARK_TRY(hark_allocate(call->context, bytes, &out->data));
  out->bytes = bytes;
  return HARK_OK;
}

/* [batch, heads, rows, width] of a contiguous buffer that this call reads or writes. */
static hark_status wrap(const simple_call *call, const char *what, const void *data, int64_t heads, int64_t rows, int64_t width,
                        hark_tensor *out) {
  if (data == NULL) return hark_fail(call->context, HARK_INVALID_ARGUMENT, "%s: %s is NULL", call->name, what);
  const union {
    const void *given;
    void *wrapped;
  } memory = {.given = data};
  const int64_t shape[] = {call->desc.batch, heads, rows, width};
  return hark_tensor_wrap(call->context, memory.wrapped, call->desc.type, 4, shape, NULL, out);
}

static hark_status wrap_inputs(const void *query, const void *key, const void *value, simple_call *call) {
  const hark_attention_desc *const desc = &call->desc;
  HARK_TRY(wrap(call, "query", query, desc->heads, desc->query_length, desc->head_dim, &call->args.query));
  HARK_TRY(wrap(call, "key", key, desc->key_heads, desc->key_length, desc->head_dim, &call->args.key));
  return wrap(call, "value", value, desc->key_heads, desc->key_length, desc->value_dim, &call->args.value);
}

static hark_status wrap_rows(const simple_call *call, const char *what, const void *data, hark_tensor *out) {
  return wrap(call, what, data, call->desc.heads, call->desc.query_length, call->desc.value_dim, out);
}

static hark_status forward(const hark_attention_desc *desc, const void *query, const void *key, const void *value, void *out,
                           simple_call *call) {
  HARK_TRY(make_plan(desc, false, call));
  HARK_TRY(wrap_inputs(query, key, value, call));
  HARK_TRY(wrap_rows(call, "out", out, &call->args.out));
  HARK_TRY(take(call, hark_attention_plan_sizes(call->plan).forward_workspace, &call->workspace));
  call->args.workspace = call->workspace.data;
  return hark_attention_forward(call->context, call->plan, &call->args);
}

/* Memory for the results of a backward's forward: out, log_sum_exp and saved. */
static hark_status take_results(simple_call *call) {
  const hark_attention_desc *const desc = &call->desc;
  const int64_t rows[] = {desc->batch, desc->heads, desc->query_length};
  size_t bytes = hark_type_bytes(desc->type);
  for (int i = 0; i < 3; i++) HARK_TRY(hark_size_multiply(call->context, bytes, (size_t)rows[i], &bytes));
  if (desc->normalisation != HARK_NORMALISATION_CME) {
    HARK_TRY(take(call, bytes, &call->log_sum_exp));
    HARK_TRY(hark_tensor_wrap(call->context, call->log_sum_exp.data, desc->type, 3, rows, NULL, &call->args.log_sum_exp));
  }
  HARK_TRY(hark_size_multiply(call->context, bytes, (size_t)desc->value_dim, &bytes));
  HARK_TRY(take(call, bytes, &call->out));
  return wrap_rows(call, "out", call->out.data, &call->args.out);
}

static hark_status take_scratch(simple_call *call) {
  const hark_attention_sizes sizes = hark_attention_plan_sizes(call->plan);
  const bool more = sizes.backward_workspace > sizes.forward_workspace;
  HARK_TRY(take(call, more ? sizes.backward_workspace : sizes.forward_workspace, &call->workspace));
  HARK_TRY(take(call, sizes.saved, &call->saved));
  call->args.workspace = call->workspace.data;
  call->args.saved = call->saved.data;
  return HARK_OK;
}

/* A gradient that is not requested stays absent. */
static hark_status wrap_gradients(const void *dout, void *dquery, void *dkey, void *dvalue, simple_call *call) {
  const hark_attention_desc *const desc = &call->desc;
  HARK_TRY(wrap_rows(call, "dout", dout, &call->args.dout));
  if (dquery != NULL) HARK_TRY(wrap(call, "dquery", dquery, desc->heads, desc->query_length, desc->head_dim, &call->args.dquery));
  if (dkey != NULL) HARK_TRY(wrap(call, "dkey", dkey, desc->key_heads, desc->key_length, desc->head_dim, &call->args.dkey));
  if (dvalue != NULL) HARK_TRY(wrap(call, "dvalue", dvalue, desc->key_heads, desc->key_length, desc->value_dim, &call->args.dvalue));
  return HARK_OK;
}

static void end(simple_call *call) {
  const block *const blocks[] = {&call->log_sum_exp, &call->out, &call->saved, &call->workspace};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) hark_release(call->context, blocks[i]->data, blocks[i]->bytes);
}

hark_status hark_attention_run(hark_context *context, const hark_attention_desc *desc, const void *query, const void *key,
                               const void *value, void *out) {
  simple_call call = {.name = "hark_attention_run", .context = context};
  const hark_status status = forward(desc, query, key, value, out, &call);
  end(&call);
  return status;
}

static hark_status backward(const hark_attention_desc *desc, const void *query, const void *key, const void *value, const void *dout,
                            void *dquery, void *dkey, void *dvalue, simple_call *call) {
  HARK_TRY(make_plan(desc, true, call));
  HARK_TRY(wrap_inputs(query, key, value, call));
  HARK_TRY(wrap_gradients(dout, dquery, dkey, dvalue, call));
  HARK_TRY(take_results(call));
  HARK_TRY(take_scratch(call));
  hark_attention_args checked; /* gradients that overlap are refused before anything is computed */
  HARK_TRY(hark_attention_check(call->context, call->plan, &call->args, true, &checked));
  HARK_TRY(hark_attention_forward(call->context, call->plan, &call->args));
  return hark_attention_backward(call->context, call->plan, &call->args);
}

hark_status hark_attention_run_backward(hark_context *context, const hark_attention_desc *desc, const void *query, const void *key,
                                        const void *value, const void *dout, void *dquery, void *dkey, void *dvalue) {
  simple_call call = {.name = "hark_attention_run_backward", .context = context};
  const hark_status status = backward(desc, query, key, value, dout, dquery, dkey, dvalue, &call);
  end(&call);
  return status;
}
