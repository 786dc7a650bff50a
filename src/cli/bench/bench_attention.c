/* bench_attention.c - one attention, forward and backward: 'dense:B1,H8,L4096,D64,causal', 'hierarchical:L16384,D64,N16,causal,exact',
 * 'cme:B1,H8,L1024,D64,causal'.
 *
 * B batch, H heads, K key/value heads (H), L queries, M keys (L), D head_dim, E value_dim (D); causal; window=W; dropout=P; rbf (sigma
 * D^(1/4), the width that exp's scale has); bias [1,H,L,M]; mask [B,1,1,M]; kernel: a table [H,T] of log G, shared: [1,T] for all heads,
 * directed: [H,2 T - 1], separate numbers for keys before and after the query;
 * forget gates; positions=N: contextual ones, of a table for all heads; stick: stick-breaking, and long: with logits of about -8, so that
 * no stick is used up before the last key; f64; bf16: products of dense attention in bf16; packed: q, k and v as [B, L, H, D]; forward: no
 * backward. hierarchical: N block (16), mean, first or exact queries (first when causal, else mean), sibling, linear, hbias (a table per
 * head), grid=C (the rows are pixels of a picture with C columns). compressed (always causal): N rows of a chunk (64), slots=C of a chunk
 * (1), select=K slots of a query (16), kept=N chunks (all), globals=G global slots (none). cme (kernel ridge, ridge 0.01): rbf unless exp,
 * variance; dvariance, dlogdet, dquadratic: gradients by the variance, the log-determinant and the quadratic form; a table of log G is
 * constant. Operations are those of hark_attention_plan_operations(); bytes count every operand once.
 */
#include <hark/attention.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "cli/bench/bench.h"

#define CME_RIDGE 0.01
#define COMPRESSED_CHUNK 64
#define LONG_LOGIT 8.0 /* its negative */

typedef struct attention_case {
  int64_t batch, heads, key_heads, queries, keys, head_dim, value_dim, window, block, positions, grid, slots, select, kept, globals;
  double dropout;
  bool causal, rbf, bias, mask, kernel, shared, directed, forget, twice, half, packed, forward_only, mean, first, exact, sibling, linear,
      hierarchical_bias, cme, exp, variance, dvariance, dlogdet, dquadratic, stick, unbroken;
} attention_case;

enum {
  QUERY,
  KEY,
  VALUE,
  OUT,
  LOG_SUM_EXP,
  DOUT,
  DQUERY,
  DKEY,
  DVALUE,
  MASK,
  BIAS,
  DBIAS,
  TABLE,
  DTABLE,
  FORGET,
  DFORGET,
  HIERARCHICAL_BIAS,
  DHIERARCHICAL_BIAS,
  CONTEXTUAL,
  DCONTEXTUAL,
  VARIANCE,
  DVARIANCE,
  DLOG_DETERMINANT,
  DQUADRATIC,
  SAVED,
  WORKSPACE,
  TENSORS
};

typedef struct attention_work {
  hark_attention_plan *plan;
  hark_attention_args args;
  hark_tensor tensors[TENSORS];
} attention_work;

static hark_status forward(hark_context *context, void *data) {
  attention_work *work = data;
  return hark_attention_forward(context, work->plan, &work->args);
}

static hark_status backward(hark_context *context, void *data) {
  attention_work *work = data;
  return hark_attention_backward(context, work->plan, &work->args);
}

static hark_status read_case(hark_context *context, const char *text, attention_case *c, hark_attention_desc *desc) {
  *c = (attention_case){.batch = 1, .heads = 1, .queries = 1024, .head_dim = 64};
  const hark_bench_field fields[] = {
      {.name = "B", .type = HARK_BENCH_WHOLE, .whole = &c->batch},
      {.name = "H", .type = HARK_BENCH_WHOLE, .whole = &c->heads},
      {.name = "K", .type = HARK_BENCH_WHOLE, .whole = &c->key_heads},
      {.name = "L", .type = HARK_BENCH_WHOLE, .whole = &c->queries},
      {.name = "M", .type = HARK_BENCH_WHOLE, .whole = &c->keys},
      {.name = "D", .type = HARK_BENCH_WHOLE, .whole = &c->head_dim},
      {.name = "E", .type = HARK_BENCH_WHOLE, .whole = &c->value_dim},
      {.name = "window", .type = HARK_BENCH_WHOLE, .whole = &c->window},
      {.name = "positions", .type = HARK_BENCH_WHOLE, .whole = &c->positions},
      {.name = "N", .type = HARK_BENCH_WHOLE, .whole = &c->block},
      {.name = "grid", .type = HARK_BENCH_WHOLE, .whole = &c->grid},
      {.name = "slots", .type = HARK_BENCH_WHOLE, .whole = &c->slots},
      {.name = "select", .type = HARK_BENCH_WHOLE, .whole = &c->select},
      {.name = "kept", .type = HARK_BENCH_WHOLE, .whole = &c->kept},
      {.name = "globals", .type = HARK_BENCH_WHOLE, .whole = &c->globals},
      {.name = "mean", .type = HARK_BENCH_FLAG, .flag = &c->mean},
      {.name = "first", .type = HARK_BENCH_FLAG, .flag = &c->first},
      {.name = "exact", .type = HARK_BENCH_FLAG, .flag = &c->exact},
      {.name = "sibling", .type = HARK_BENCH_FLAG, .flag = &c->sibling},
      {.name = "linear", .type = HARK_BENCH_FLAG, .flag = &c->linear},
      {.name = "hbias", .type = HARK_BENCH_FLAG, .flag = &c->hierarchical_bias},
      {.name = "dropout", .type = HARK_BENCH_NUMBER, .number = &c->dropout},
      {.name = "causal", .type = HARK_BENCH_FLAG, .flag = &c->causal},
      {.name = "rbf", .type = HARK_BENCH_FLAG, .flag = &c->rbf},
      {.name = "stick", .type = HARK_BENCH_FLAG, .flag = &c->stick},
      {.name = "long", .type = HARK_BENCH_FLAG, .flag = &c->unbroken},
      {.name = "bias", .type = HARK_BENCH_FLAG, .flag = &c->bias},
      {.name = "mask", .type = HARK_BENCH_FLAG, .flag = &c->mask},
      {.name = "kernel", .type = HARK_BENCH_FLAG, .flag = &c->kernel},
      {.name = "shared", .type = HARK_BENCH_FLAG, .flag = &c->shared},
      {.name = "directed", .type = HARK_BENCH_FLAG, .flag = &c->directed},
      {.name = "forget", .type = HARK_BENCH_FLAG, .flag = &c->forget},
      {.name = "f64", .type = HARK_BENCH_FLAG, .flag = &c->twice},
      {.name = "bf16", .type = HARK_BENCH_FLAG, .flag = &c->half},
      {.name = "packed", .type = HARK_BENCH_FLAG, .flag = &c->packed},
      {.name = "exp", .type = HARK_BENCH_FLAG, .flag = &c->exp},
      {.name = "variance", .type = HARK_BENCH_FLAG, .flag = &c->variance},
      {.name = "dvariance", .type = HARK_BENCH_FLAG, .flag = &c->dvariance},
      {.name = "dlogdet", .type = HARK_BENCH_FLAG, .flag = &c->dlogdet},
      {.name = "dquadratic", .type = HARK_BENCH_FLAG, .flag = &c->dquadratic},
      {.name = "forward", .type = HARK_BENCH_FLAG, .flag = &c->forward_only},
  };
  HARK_TRY(hark_bench_case_read(context, text, fields, sizeof fields / sizeof fields[0]));
  if (c->shared && !c->kernel)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': shared needs kernel: it is one table for all heads", text);
  if (c->directed && !c->kernel)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': directed needs kernel: its table has both directions", text);
  if (c->stick && (c->twice || c->cme))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': stick goes with neither f64 nor cme", text);
  if (c->key_heads == 0) c->key_heads = c->heads;
  if (c->keys == 0) c->keys = c->queries;
  if (c->value_dim == 0) c->value_dim = c->head_dim;

  *desc = hark_attention_desc_default();
  const size_t head = hark_bench_case_head(text);
  c->cme = head == strlen("cme") && memcmp(text, "cme", head) == 0;
  const bool compressed = head == strlen("compressed") && memcmp(text, "compressed", head) == 0;
  if (!compressed && (c->slots != 0 || c->select != 0 || c->kept != 0 || c->globals != 0))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': slots, select, kept and globals belong to cases 'compressed:...'", text);
  if (compressed) {
    if (c->mean || c->first || c->exact || c->sibling || c->linear || c->hierarchical_bias || c->grid != 0 || c->window != 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': expected N<n>, slots, select, kept and globals of compressed attention",
                       text);
    c->causal = true;
    desc->structure = HARK_STRUCTURE_COMPRESSED;
    desc->chunk = c->block == 0 ? COMPRESSED_CHUNK : c->block;
    desc->chunk_slots = c->slots;
    desc->selected_slots = c->select;
    desc->kept_chunks = c->kept;
    desc->global_slots = c->globals;
  } else if (head == strlen("hierarchical") && memcmp(text, "hierarchical", head) == 0) {
    if (c->window != 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': window=<n> belongs to cases 'window:...'", text);
    desc->structure = HARK_STRUCTURE_HIERARCHICAL;
    desc->hierarchy_block = c->block;
    desc->grid_columns = c->grid;
    if (c->mean) desc->coarse_query = HARK_COARSE_QUERY_MEAN;
    if (c->first) desc->coarse_query = HARK_COARSE_QUERY_FIRST;
    if (c->exact) desc->coarse_query = HARK_COARSE_QUERY_EXACT;
    if (c->sibling) desc->partition = HARK_PARTITION_SIBLING;
    if (c->linear) desc->interpolation = HARK_INTERPOLATION_LINEAR;
    desc->has_hierarchical_bias = c->hierarchical_bias;
  } else if (c->block != 0 || c->mean || c->first || c->exact || c->sibling || c->linear || c->hierarchical_bias || c->grid != 0) {
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "case '%s': N<n>, mean, first, exact, sibling, linear, hbias and grid=<n> belong to cases 'hierarchical:...'", text);
  } else if (head == strlen("window") && memcmp(text, "window", head) == 0) {
    desc->structure = HARK_STRUCTURE_WINDOW;
    if (c->window == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': expected window=<n> among the words", text);
  } else if (c->window != 0) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': window=<n> belongs to cases 'window:...'", text);
  } else if (c->cme) {
    desc->normalisation = HARK_NORMALISATION_CME;
    desc->ridge = CME_RIDGE;
    desc->has_dvariance = c->dvariance;
    desc->has_dlog_determinant = c->dlogdet;
    desc->has_dquadratic = c->dquadratic;
    c->rbf = !c->exp;
  } else if (c->exp || c->variance || c->dvariance || c->dlogdet || c->dquadratic) {
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "case '%s': exp, variance, dvariance, dlogdet and dquadratic belong to cases 'cme:...'", text);
  } else if (head == strlen("dense") && memcmp(text, "dense", head) == 0) {
    desc->structure = HARK_STRUCTURE_DENSE;
  } else {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': structure '%.*s', expected dense, window, hierarchical, compressed or cme",
                     text, (int)head, text);
  }
  if (c->unbroken && !c->stick) return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': long belongs to stick", text);
  if (c->stick) desc->normalisation = HARK_NORMALISATION_STICK_BREAKING;
  desc->type = c->twice ? HARK_F64 : HARK_F32;
  desc->kernel = c->rbf ? HARK_KERNEL_RBF : HARK_KERNEL_EXP;
  desc->sigma = c->rbf ? pow((double)c->head_dim, 0.25) : 0;
  desc->batch = c->batch;
  desc->heads = c->heads;
  desc->key_heads = c->key_heads;
  desc->query_length = c->queries;
  desc->key_length = c->keys;
  desc->head_dim = c->head_dim;
  desc->value_dim = c->value_dim;
  desc->causal = c->causal;
  desc->window = c->window;
  desc->dropout = c->dropout;
  desc->has_bias = c->bias;
  desc->has_mask = c->mask;
  desc->has_log_kernel = c->kernel;
  desc->directed_kernel = c->directed;
  desc->has_forget = c->forget;
  desc->contextual_positions = c->positions;
  desc->forward_only = c->forward_only;
  desc->product_type = c->half ? HARK_BF16 : HARK_NONE;
  return HARK_OK;
}

static hark_status make(hark_context *context, attention_work *work, int which, hark_type type, int rank, const int64_t *shape) {
  return hark_tensor_create(context, type, rank, shape, &work->tensors[which]);
}

/* [B, heads, rows, features], or a view of memory with the layout [B, rows, heads, features]; random unless deviation is 0. */
static hark_status make_rows(hark_context *context, attention_work *work, int which, const attention_case *c, int64_t heads, int64_t rows,
                             int64_t features, double deviation, hark_tensor *seen) {
  const hark_type type = c->twice ? HARK_F64 : HARK_F32;
  hark_tensor *tensor = &work->tensors[which];
  HARK_TRY(make(context, work, which, type, 4, (int64_t[]){c->batch, c->packed ? rows : heads, c->packed ? heads : rows, features}));
  if (deviation > 0) HARK_TRY(hark_bench_fill(context, tensor, (uint32_t)which, deviation));
  *seen = *tensor;
  seen->owned_bytes = 0;
  if (c->packed) {
    seen->shape[1] = heads;
    seen->shape[2] = rows;
    seen->stride[1] = tensor->stride[2];
    seen->stride[2] = tensor->stride[1];
  }
  return HARK_OK;
}

/* Adds to all numbers of a tensor in f32. */
static hark_status shift(hark_context *context, hark_tensor *tensor, float by) {
  const int64_t count = hark_tensor_count(tensor);
  void *memory;
  HARK_TRY(hark_allocate(context, (size_t)count * sizeof(float), &memory));
  float *const numbers = memory;
  hark_status status = hark_tensor_read(context, tensor, numbers);
  for (int64_t i = 0; status == HARK_OK && i < count; i++) numbers[i] += by;
  if (status == HARK_OK) status = hark_tensor_write(context, tensor, numbers);
  hark_release(context, memory, (size_t)count * sizeof(float));
  return status;
}

/* Queries and keys around opposite points: their logits are about LONG_LOGIT. */
static hark_status lengthen(hark_context *context, attention_work *work, const attention_case *c) {
  const float by = (float)sqrt(LONG_LOGIT / sqrt((double)c->head_dim));
  if (!c->unbroken) return HARK_OK;
  HARK_TRY(shift(context, &work->tensors[QUERY], by));
  return shift(context, &work->tensors[KEY], -by);
}

static hark_status make_terms(hark_context *context, attention_work *work, const attention_case *c) {
  hark_tensor *t = work->tensors;
  hark_attention_args *args = &work->args;
  const hark_type type = c->twice ? HARK_F64 : HARK_F32;
  if (c->bias) {
    const int64_t shape[] = {1, c->heads, c->queries, c->keys};
    HARK_TRY(make(context, work, BIAS, type, 4, shape));
    HARK_TRY(make(context, work, DBIAS, type, 4, shape));
    HARK_TRY(hark_bench_fill(context, &t[BIAS], BIAS, 1));
    args->attention_bias = t[BIAS];
    args->dattention_bias = t[DBIAS];
  }
  if (c->kernel) {
    const int64_t distances = hark_attention_plan_distances(work->plan, false, 0);
    const int64_t shape[] = {c->shared ? 1 : c->heads, c->directed ? 2 * distances - 1 : distances};
    HARK_TRY(make(context, work, TABLE, type, 2, shape));
    HARK_TRY(make(context, work, DTABLE, type, 2, shape));
    if (!c->cme) HARK_TRY(hark_bench_fill(context, &t[TABLE], TABLE, 1));
    args->log_kernel = t[TABLE];
    args->dlog_kernel = t[DTABLE];
  }
  if (c->hierarchical_bias) {
    const int64_t shape[] = {c->heads, 4 * hark_attention_plan_desc(work->plan)->hierarchy_block - 1};
    HARK_TRY(make(context, work, HIERARCHICAL_BIAS, type, 2, shape));
    HARK_TRY(make(context, work, DHIERARCHICAL_BIAS, type, 2, shape));
    HARK_TRY(hark_bench_fill(context, &t[HIERARCHICAL_BIAS], HIERARCHICAL_BIAS, 0.1));
    args->hierarchical_bias = t[HIERARCHICAL_BIAS];
    args->dhierarchical_bias = t[DHIERARCHICAL_BIAS];
  }
  if (c->forget) {
    const int64_t shape[] = {c->batch, c->heads, c->keys};
    HARK_TRY(make(context, work, FORGET, type, 3, shape));
    HARK_TRY(make(context, work, DFORGET, type, 3, shape));
    HARK_TRY(hark_bench_fill(context, &t[FORGET], FORGET, 1));
    args->forget = t[FORGET];
    args->dforget = t[DFORGET];
  }
  if (c->positions > 0) {
    const int64_t shape[] = {1, c->positions, c->head_dim};
    HARK_TRY(make(context, work, CONTEXTUAL, type, 3, shape));
    HARK_TRY(make(context, work, DCONTEXTUAL, type, 3, shape));
    HARK_TRY(hark_bench_fill(context, &t[CONTEXTUAL], CONTEXTUAL, 1));
    args->contextual = t[CONTEXTUAL];
    args->dcontextual = t[DCONTEXTUAL];
  }
  if (c->mask) {
    HARK_TRY(make(context, work, MASK, HARK_U8, 4, (int64_t[]){c->batch, 1, 1, c->keys}));
    const size_t bytes = (size_t)hark_tensor_count(&t[MASK]);
    void *host;
    HARK_TRY(hark_allocate(context, bytes, &host));
    memset(host, 1, bytes);
    const hark_status status = hark_tensor_write(context, &t[MASK], host);
    hark_release(context, host, bytes);
    HARK_TRY(status);
    args->mask = t[MASK];
  }
  return HARK_OK;
}

/* The gradient by a statistic of rows, random. */
static hark_status make_statistic(hark_context *context, attention_work *work, int which, bool needed, const int64_t *rows,
                                  hark_tensor *out) {
  if (!needed) return HARK_OK;
  HARK_TRY(make(context, work, which, hark_attention_plan_desc(work->plan)->type, 3, rows));
  HARK_TRY(hark_bench_fill(context, &work->tensors[which], (uint32_t)which, 1));
  *out = work->tensors[which];
  return HARK_OK;
}

static hark_status prepare(hark_context *context, attention_work *work, const attention_case *c, const hark_attention_desc *desc) {
  hark_attention_args *args = &work->args;
  args->struct_size = sizeof *args;
  HARK_TRY(hark_attention_plan_create(context, desc, &work->plan));
  HARK_TRY(make_rows(context, work, QUERY, c, c->heads, c->queries, c->head_dim, 1, &args->query));
  HARK_TRY(make_rows(context, work, KEY, c, c->key_heads, c->keys, c->head_dim, 1, &args->key));
  HARK_TRY(make_rows(context, work, VALUE, c, c->key_heads, c->keys, c->value_dim, 1, &args->value));
  HARK_TRY(make_rows(context, work, OUT, c, c->heads, c->queries, c->value_dim, 0, &args->out));
  const int64_t rows[] = {c->batch, c->heads, c->queries};
  if (!c->cme) HARK_TRY(make(context, work, LOG_SUM_EXP, desc->type, 3, rows));
  if (c->variance) HARK_TRY(make(context, work, VARIANCE, desc->type, 3, rows));
  args->log_sum_exp = work->tensors[LOG_SUM_EXP];
  args->variance = work->tensors[VARIANCE];
  if (!c->forward_only) {
    HARK_TRY(make_rows(context, work, DOUT, c, c->heads, c->queries, c->value_dim, 1, &args->dout));
    HARK_TRY(make_rows(context, work, DQUERY, c, c->heads, c->queries, c->head_dim, 0, &args->dquery));
    HARK_TRY(make_rows(context, work, DKEY, c, c->key_heads, c->keys, c->head_dim, 0, &args->dkey));
    HARK_TRY(make_rows(context, work, DVALUE, c, c->key_heads, c->keys, c->value_dim, 0, &args->dvalue));
    HARK_TRY(make_statistic(context, work, DVARIANCE, c->dvariance, rows, &args->dvariance));
    HARK_TRY(make_statistic(context, work, DLOG_DETERMINANT, c->dlogdet, rows, &args->dlog_determinant));
    if (c->dquadratic) HARK_TRY(make_rows(context, work, DQUADRATIC, c, c->heads, c->queries, c->value_dim, 1, &args->dquadratic));
  }
  HARK_TRY(lengthen(context, work, c));
  HARK_TRY(make_terms(context, work, c));
  args->dropout.layer_purpose = hark_random_layer_purpose(0, HARK_RANDOM_ATTENTION);

  const hark_attention_sizes sizes = hark_attention_plan_sizes(work->plan);
  const size_t workspace = sizes.forward_workspace > sizes.backward_workspace ? sizes.forward_workspace : sizes.backward_workspace;
  if (sizes.saved > 0) HARK_TRY(make(context, work, SAVED, HARK_U8, 1, (int64_t[]){(int64_t)sizes.saved}));
  if (workspace > 0) HARK_TRY(make(context, work, WORKSPACE, HARK_U8, 1, (int64_t[]){(int64_t)workspace}));
  args->saved = work->tensors[SAVED].data;
  args->workspace = work->tensors[WORKSPACE].data;
  return HARK_OK;
}

static double bytes_of(const attention_work *work, const int *which, int count) {
  double bytes = 0;
  for (int i = 0; i < count; i++) {
    const hark_tensor *tensor = &work->tensors[which[i]];
    if (tensor->type != HARK_NONE) bytes += (double)hark_tensor_count(tensor) * (double)hark_type_bytes(tensor->type);
  }
  return bytes;
}

/* Bytes allocated for the call: its tensors, or its saved memory and workspace. */
static double held_bytes(const attention_work *work, bool workspace) {
  double bytes = 0;
  for (int i = 0; i < TENSORS; i++)
    if ((i == SAVED || i == WORKSPACE) == workspace) bytes += bytes_of(work, &i, 1);
  return bytes;
}

hark_status hark_bench_attention(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings,
                                 const char *text) {
  static const int forward_operands[] = {QUERY,      KEY,     VALUE, OUT, LOG_SUM_EXP, MASK, BIAS, TABLE, FORGET, HIERARCHICAL_BIAS,
                                         CONTEXTUAL, VARIANCE};
  static const int backward_operands[] = {QUERY,
                                          KEY,
                                          VALUE,
                                          OUT,
                                          LOG_SUM_EXP,
                                          DOUT,
                                          DQUERY,
                                          DKEY,
                                          DVALUE,
                                          MASK,
                                          BIAS,
                                          DBIAS,
                                          TABLE,
                                          DTABLE,
                                          FORGET,
                                          DFORGET,
                                          HIERARCHICAL_BIAS,
                                          DHIERARCHICAL_BIAS,
                                          CONTEXTUAL,
                                          DCONTEXTUAL,
                                          DVARIANCE,
                                          DLOG_DETERMINANT,
                                          DQUADRATIC};
  attention_case c;
  hark_attention_desc desc;
  HARK_TRY(read_case(context, text, &c, &desc));
  attention_work work = {0};
  hark_status status = prepare(context, &work, &c, &desc);
  if (status == HARK_OK) {
    const hark_bench_work measured = {
        .name = text,
        .forward = forward,
        .backward = c.forward_only ? NULL : backward,
        .data = &work,
        .forward_operations = hark_attention_plan_operations(work.plan, false),
        .backward_operations = hark_attention_plan_operations(work.plan, true),
        .forward_bytes = bytes_of(&work, forward_operands, sizeof forward_operands / sizeof forward_operands[0]),
        .backward_bytes = bytes_of(&work, backward_operands, sizeof backward_operands / sizeof backward_operands[0]),
        .tensor_bytes = held_bytes(&work, false),
        .workspace_bytes = held_bytes(&work, true),
        .single = !c.twice,
    };
    status = hark_bench_work_run(context, machine, settings, &measured);
  }
  for (int i = 0; i < TENSORS; i++) hark_tensor_destroy(context, &work.tensors[i]);
  hark_attention_plan_destroy(context, &work.plan);
  return status;
}
