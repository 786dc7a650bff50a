/* attention_weights.c - see attention_weights.h. Attention is linear in the values,
 *
 *     out[n, :] = sum_i P[n, i] value[i, :],
 *
 * so that the operator itself gives its weights where the value of key first + j is the unit vector e_j: out[n, j] = P[n, first + j]. The
 * cost of all blocks is that of attention with values of L features, O(L^3) where it is dense.
 *
 * Dense softmax without gates and contextual positions is cheaper, O(L^2): a block is attention to its keys alone, from which
 *
 *     P[n, i] = P_block[n, i] exp(log_sum_exp_block[n] - log_sum_exp[n]).
 */
#include "nn/attention_weights.h"

#include <hark/operators.h>
#include <math.h>
#include <string.h>

#include "core/core.h"

enum { QUERY, KEY, VALUE }; /* the first inputs of both operators */

#define BLOCK_KEYS 64
#define RIDGE_BLOCK_KEYS 512 /* every block factors the matrix of all keys again */

/* One visit. Attributes of the operators: one of both is used. */
typedef struct visit {
  hark_context *context;
  const hark_attention_application *seen;
  hark_attention_plan *plan; /* of a block */
  hark_attention_attributes attention;
  hark_kernel_ridge_attributes ridge;
  bool sliced; /* attention to the block's keys alone */
  int64_t heads, key_heads, length, keys;
  hark_tensor value, out, saved[HARK_MAX_SAVED], workspace;
  float *host;                  /* of values and weights: [numbers] */
  float *whole, *part;          /* sliced: log sums [heads, length] */
  size_t host_bytes, sum_bytes; /* of each */
} visit;

static bool is_ridge(const hark_attention_application *seen) { return seen->op == &hark_op_kernel_ridge; }

static const hark_attention_plan *plan_of(const hark_attention_application *seen) {
  const hark_attention_attributes *const attention = seen->attributes;
  const hark_kernel_ridge_attributes *const ridge = seen->attributes;
  return is_ridge(seen) ? ridge->plan : attention->plan;
}

/* True without segments too. */
static bool is_one_sequence(const int64_t *segments, int64_t length) {
  bool one = true;
  for (int64_t t = 0; segments != NULL && t < length && one; t++) one = segments[t] >= 0 && segments[t] == segments[0];
  return one;
}

static hark_status check(hark_context *context, const hark_attention_application *seen) {
  const hark_tensor *const query = &seen->inputs[QUERY];
  const hark_attention_attributes *const attention = seen->attributes;
  const hark_kernel_ridge_attributes *const ridge = seen->attributes;
  const int64_t *const segments = is_ridge(seen) ? ridge->segments : attention->segments;
  if (query->shape[0] != 1 || query->shape[1] != seen->inputs[KEY].shape[1] || !is_one_sequence(segments, query->shape[1]))
    return hark_fail(context, HARK_UNSUPPORTED, "weights of attention: those of one sequence, expected one row with one segment");
  if (query->type != HARK_F32)
    return hark_fail(context, HARK_UNSUPPORTED, "weights of attention: of %s, expected f32", hark_type_name(query->type));
  return HARK_OK;
}

/* The descriptor of the application, for a block. */
static hark_attention_desc describe(const visit *v) {
  hark_attention_desc desc = *hark_attention_plan_desc(plan_of(v->seen));
  if (desc.kernel == HARK_KERNEL_RBF) desc.scale = 0; /* derived from sigma */
  desc.query_length = v->length;
  desc.key_length = v->sliced ? v->keys : v->length;
  desc.value_dim = v->keys;
  desc.forward_only = true;
  desc.product_type = HARK_NONE;
  desc.has_segments = false; /* there is one */
  desc.max_sequences = 1;
  return desc;
}

static hark_status make_tensors(visit *v) {
  const int64_t rows = v->sliced ? v->keys : v->length;
  const int64_t value[] = {1, rows, v->key_heads * v->keys}, out[] = {1, v->length, v->heads * v->keys};
  v->host_bytes = (size_t)(v->length * v->heads * v->keys) * sizeof(float); /* values are not more */
  v->sum_bytes = (size_t)(v->length * v->heads) * sizeof(float);
  HARK_TRY(hark_tensor_create(v->context, HARK_F32, 3, value, &v->value));
  HARK_TRY(hark_tensor_create(v->context, HARK_F32, 3, out, &v->out));
  HARK_TRY(hark_allocate(v->context, v->host_bytes, (void **)&v->host));
  if (!v->sliced) return HARK_OK;
  HARK_TRY(hark_allocate(v->context, v->sum_bytes, (void **)&v->whole));
  return hark_allocate(v->context, v->sum_bytes, (void **)&v->part);
}

static hark_status begin(visit *v) {
  const hark_attention_desc *const desc = hark_attention_plan_desc(plan_of(v->seen));
  v->heads = desc->heads;
  v->key_heads = desc->key_heads;
  v->length = v->seen->inputs[QUERY].shape[1];
  v->keys = hark_min(v->length, is_ridge(v->seen) ? RIDGE_BLOCK_KEYS : BLOCK_KEYS);
  v->sliced = !is_ridge(v->seen) && desc->structure == HARK_STRUCTURE_DENSE && !desc->has_forget && desc->contextual_positions == 0 &&
              desc->normalisation == HARK_NORMALISATION_SOFTMAX;
  const hark_attention_desc own = describe(v);
  HARK_TRY(hark_attention_plan_create(v->context, &own, &v->plan));
  if (is_ridge(v->seen)) {
    v->ridge = *(const hark_kernel_ridge_attributes *)v->seen->attributes;
    v->ridge.plan = v->plan;
    v->ridge.report = NULL;
    v->ridge.segments = NULL;
  } else {
    v->attention = *(const hark_attention_attributes *)v->seen->attributes;
    v->attention.plan = v->plan;
    v->attention.segments = NULL;
  }
  return make_tensors(v);
}

static void release_call(visit *v) {
  for (int i = 0; i < HARK_MAX_SAVED; i++) hark_tensor_destroy(v->context, &v->saved[i]);
  hark_tensor_destroy(v->context, &v->workspace);
}

static void end(visit *v) {
  release_call(v);
  hark_tensor_destroy(v->context, &v->value);
  hark_tensor_destroy(v->context, &v->out);
  hark_release(v->context, v->host, v->host_bytes);
  hark_release(v->context, v->whole, v->sum_bytes);
  hark_release(v->context, v->part, v->sum_bytes);
  hark_attention_plan_destroy(v->context, &v->plan);
}

/* Memory of a call; that of an earlier one is released. */
static hark_status make_call(visit *v, const hark_inferred *inferred, hark_call *call) {
  const int64_t bytes = (int64_t)inferred->forward_workspace;
  release_call(v);
  for (int i = 0; i < HARK_MAX_SAVED; i++) {
    const hark_tensor *const like = &inferred->saved[i];
    if (like->type == HARK_NONE) continue;
    HARK_TRY(hark_tensor_create(v->context, like->type, like->rank, like->shape, &v->saved[i]));
    call->saved[i] = v->saved[i];
  }
  if (bytes == 0) return HARK_OK;
  HARK_TRY(hark_tensor_create(v->context, HARK_U8, 1, &bytes, &v->workspace));
  call->workspace = v->workspace.data;
  call->workspace_bytes = inferred->forward_workspace;
  return HARK_OK;
}

/* Runs the operator of the application into `out`; log_sum_exp is v->saved[0]. */
static hark_status run(visit *v, const void *attributes, const hark_tensor *key, const hark_tensor *value, const hark_tensor *out) {
  const hark_attention_application *const seen = v->seen;
  hark_call call = {.op = seen->op, .attributes = attributes, .input_count = seen->input_count, .outputs = {*out}};
  hark_inferred inferred = {0};
  memcpy(call.inputs, seen->inputs, sizeof call.inputs);
  call.inputs[KEY] = *key;
  call.inputs[VALUE] = *value;
  HARK_TRY(seen->op->infer(v->context, attributes, call.inputs, call.input_count, &inferred));
  HARK_TRY(make_call(v, &inferred, &call));
  return hark_operator_forward(v->context, &call);
}

/* The log sums over all keys. */
static hark_status sum_whole(visit *v) {
  const hark_tensor *const query = &v->seen->inputs[QUERY];
  hark_tensor out = {0};
  HARK_TRY(hark_tensor_create(v->context, HARK_F32, 3, query->shape, &out)); /* value_dim is head_dim in every layer */
  hark_status status = run(v, v->seen->attributes, &v->seen->inputs[KEY], &v->seen->inputs[VALUE], &out);
  if (status == HARK_OK) status = hark_tensor_read(v->context, &v->saved[0], v->whole);
  hark_tensor_destroy(v->context, &out);
  return status;
}

/* Unit vectors as values of keys first .. first + keys - 1, of `rows` rows of which the first is key `base`. */
static hark_status write_values(visit *v, int64_t first, int64_t base, int64_t rows, int64_t keys, hark_tensor *value) {
  const int64_t width = v->key_heads * v->keys;
  memset(v->host, 0, (size_t)(rows * width) * sizeof *v->host);
  for (int64_t j = 0; j < keys; j++)
    for (int64_t h = 0; h < v->key_heads; h++) v->host[(first - base + j) * width + h * v->keys + j] = 1;
  return hark_tensor_write(v->context, value, v->host);
}

/* Rows first .. first + keys - 1 of a tensor [1, L, width]. */
static hark_tensor rows_of(const hark_tensor *whole, int64_t first, int64_t keys) {
  const int64_t shape[] = {1, keys, whole->shape[2]};
  hark_tensor rows = hark_tensor_front(whole, 3, shape);
  rows.data = (char *)rows.data + (size_t)(first * whole->shape[2]) * hark_type_bytes(whole->type);
  return rows;
}

/* P <- P_block exp(log_sum_exp_block - log_sum_exp); 0 for queries that meet no key of the block. */
static void rescale(visit *v) {
  for (int64_t t = 0; t < v->length; t++)
    for (int64_t h = 0; h < v->heads; h++) {
      const float part = v->part[h * v->length + t], whole = v->whole[h * v->length + t];
      const float factor = part == -INFINITY ? 0 : expf(part - whole); /* NaN stays */
      float *const weights = v->host + (t * v->heads + h) * v->keys;
      for (int64_t j = 0; j < v->keys; j++) weights[j] = factor != 0 ? factor * weights[j] : 0;
    }
}

/* The weights of a block, in v->host. */
static hark_status compute_block(visit *v, int64_t first, int64_t keys) {
  const hark_tensor *const all = &v->seen->inputs[KEY];
  const void *const attributes = is_ridge(v->seen) ? (const void *)&v->ridge : &v->attention;
  const int64_t shape[] = {1, v->sliced ? keys : v->length, v->value.shape[2]};
  const hark_tensor key = v->sliced ? rows_of(all, first, keys) : *all;
  hark_tensor value = hark_tensor_front(&v->value, 3, shape);
  HARK_TRY(write_values(v, first, v->sliced ? first : 0, shape[1], keys, &value));
  if (v->sliced) {
    v->attention.has_query_offset = true;
    v->attention.query_offset = -first;
  }
  HARK_TRY(run(v, attributes, &key, &value, &v->out));
  if (v->sliced) HARK_TRY(hark_tensor_read(v->context, &v->saved[0], v->part));
  HARK_TRY(hark_tensor_read(v->context, &v->out, v->host));
  if (v->sliced) rescale(v);
  return HARK_OK;
}

/* Rows of v->keys numbers become rows of `keys` numbers. */
static void pack(visit *v, int64_t keys) {
  for (int64_t row = 1; keys < v->keys && row < v->length * v->heads; row++)
    memmove(v->host + row * keys, v->host + row * v->keys, (size_t)keys * sizeof *v->host);
}

static hark_status visit_blocks(visit *v, hark_weights_visitor *each, void *user) {
  HARK_TRY(begin(v));
  if (v->sliced) HARK_TRY(sum_whole(v));
  for (int64_t first = 0; first < v->length; first += v->keys) {
    const int64_t keys = hark_min(v->keys, v->length - first);
    HARK_TRY(compute_block(v, first, keys));
    pack(v, keys);
    const hark_weights_block block = {.heads = v->heads, .queries = v->length, .first = first, .keys = keys, .weights = v->host};
    HARK_TRY(each(user, &block));
  }
  return HARK_OK;
}

hark_status hark_attention_weights_visit(hark_context *context, const hark_attention_application *seen, hark_weights_visitor *visit_block,
                                         void *user) {
  visit v = {.context = context, .seen = seen};
  HARK_TRY(check(context, seen));
  const hark_status status = visit_blocks(&v, visit_block, user);
  end(&v);
  return status;
}
