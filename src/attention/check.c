/* check.c - the arguments of an attention call against its plan: every tensor's type, shape, strides and memory, and the host arrays.
 *
 * Nothing is read from a tensor here. Every refusal names the argument, what it has and what was expected.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer.h"
#include "backend/kernel_table.h"
#include "core/structs.h"

/* The requirements of a tensor argument. An extent of -1 means 1 or the full extent (broadcast). */
typedef struct expectation {
  const char *name;
  const hark_tensor *tensor;
  hark_type type;
  int rank;
  int64_t shape[4];
  bool written; /* elements must not share memory */
} expectation;

static hark_status check_type(hark_context *context, const expectation *e) {
  const hark_tensor *tensor = e->tensor;
  if (tensor->type == HARK_NONE)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is absent, expected %s", e->name, hark_type_name(e->type));
  if (tensor->type != e->type)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %s, expected %s", e->name, hark_type_name(tensor->type),
                     hark_type_name(e->type));
  return HARK_OK;
}

/* Extents are not negative. Where there are elements, strides are not negative, written elements do not repeat, the data exist and are
 * aligned to their element. */
static hark_status check_place(hark_context *context, const expectation *e) {
  const hark_tensor *tensor = e->tensor;
  for (int i = 0; i < tensor->rank; i++)
    if (tensor->shape[i] < 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s has extent %" PRId64 " in dimension %d, expected at least 0", e->name,
                       tensor->shape[i], i);
  if (hark_tensor_count(tensor) == 0) return HARK_OK;
  for (int i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] <= 1) continue;
    if (tensor->stride[i] < 0 || (e->written && tensor->stride[i] == 0))
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s has stride %" PRId64 " in dimension %d, expected %s", e->name,
                       tensor->stride[i], i, e->written ? "at least 1" : "at least 0");
  }
  if (tensor->data == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s has no data", e->name);
  if ((uintptr_t)tensor->data % hark_type_bytes(tensor->type) != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is at %p, expected alignment to its element of %zu bytes", e->name,
                     tensor->data, hark_type_bytes(tensor->type));
  return HARK_OK;
}

static hark_status refuse_shape(hark_context *context, const expectation *e, const char *comment) {
  char shape[HARK_SHAPE_TEXT_BYTES], expected[HARK_SHAPE_TEXT_BYTES];
  hark_tensor required = {.rank = e->rank};
  memcpy(required.shape, e->shape, sizeof e->shape);
  return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: %s has shape %s, expected %s%s", e->name,
                   hark_shape_text(e->tensor, shape, sizeof shape), hark_shape_text(&required, expected, sizeof expected), comment);
}

/* The allowed layouts of a tensor of exactly the expected shape. */
typedef enum arrangement {
  ADJACENT, /* next to each other in the last dimension */
  CONTIGUOUS,
  STRIDED /* any strides */
} arrangement;

static hark_status check_exact(hark_context *context, const expectation *e, arrangement required) {
  HARK_TRY(check_type(context, e));
  const hark_tensor *tensor = e->tensor;
  bool fits = tensor->rank == e->rank;
  for (int i = 0; fits && i < e->rank; i++) fits = tensor->shape[i] == e->shape[i];
  if (!fits) return refuse_shape(context, e, "");
  const int last = e->rank - 1;
  if (required == CONTIGUOUS && !hark_tensor_is_contiguous(tensor))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is strided, expected contiguous", e->name);
  if (required == ADJACENT && tensor->shape[last] > 1 && tensor->stride[last] != 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s has stride %" PRId64 " in its last dimension, expected 1", e->name,
                     tensor->stride[last]);
  return check_place(context, e);
}

/* Broadcastable to the expected shape of rank 4; sets the stride of extents of 1 to 0. */
static hark_status check_broadcast(hark_context *context, const expectation *e, hark_tensor *checked) {
  HARK_TRY(check_type(context, e));
  const hark_tensor *tensor = e->tensor;
  bool fits = tensor->rank == e->rank;
  for (int i = 0; fits && i < e->rank; i++) fits = tensor->shape[i] == e->shape[i] || tensor->shape[i] == 1;
  if (!fits) return refuse_shape(context, e, " or 1 where it is broadcast");
  HARK_TRY(check_place(context, e));
  for (int i = 0; i < e->rank; i++)
    if (tensor->shape[i] == 1) checked->stride[i] = 0;
  return HARK_OK;
}

static hark_status refuse_extra(hark_context *context, const char *argument, const char *field) {
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is given, but the plan was made without %s", argument, field);
}

static bool present(const hark_tensor *tensor) { return tensor->type != HARK_NONE; }

/* query, key, value, out, log_sum_exp; extents are the plan's or, for batch and lengths, at most the plan's. */
static hark_status check_main(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args, bool backward) {
  const int64_t batch = args->query.shape[0], queries = args->query.shape[2], keys = args->key.shape[2];
  const hark_type type = desc->type;
  const expectation tensors[] = {
      {"query", &args->query, type, 4, {batch, desc->heads, queries, desc->head_dim}, false},
      {"key", &args->key, type, 4, {batch, desc->key_heads, keys, desc->head_dim}, false},
      {"value", &args->value, type, 4, {batch, desc->key_heads, keys, desc->value_dim}, false},
      {"out", &args->out, type, 4, {batch, desc->heads, queries, desc->value_dim}, !backward},
  };
  const struct {
    const char *text;
    int64_t actual, maximum;
  } limits[] = {{"batch", batch, desc->batch}, {"query length", queries, desc->query_length}, {"key length", keys, desc->key_length}};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
    if (limits[i].actual > limits[i].maximum)
      return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: %s is %" PRId64 ", expected at most the plan's %" PRId64, limits[i].text,
                       limits[i].actual, limits[i].maximum);
  /* a backward of CME reads only the shape of out, for dout, which may be absent */
  const bool no_out = backward && desc->normalisation == HARK_NORMALISATION_CME && !present(&args->out) && !present(&args->dout);
  const size_t count = sizeof tensors / sizeof tensors[0] - (no_out ? 1 : 0);
  for (size_t i = 0; i < count; i++) HARK_TRY(check_exact(context, &tensors[i], ADJACENT));
  const expectation lse = {"log_sum_exp", &args->log_sum_exp, type, 3, {batch, desc->heads, queries}, !backward};
  if (desc->normalisation == HARK_NORMALISATION_CME) {
    if (!present(&args->log_sum_exp)) return HARK_OK;
    return hark_fail(context, HARK_UNSUPPORTED, "attention: log_sum_exp is given with normalisation cme, which has none");
  }
  return present(&args->log_sum_exp) || backward ? check_exact(context, &lse, CONTIGUOUS) : HARK_OK;
}

/* A table [rows or 1, width] whose second dimension is adjacent. */
static hark_status check_table(hark_context *context, const char *name, const hark_tensor *tensor, hark_type type, int64_t rows,
                               int64_t width, hark_tensor *checked) {
  const expectation e = {name, tensor, type, 2, {rows, width}, false};
  HARK_TRY(check_broadcast(context, &e, checked));
  if (tensor->shape[1] != width) return refuse_shape(context, &e, " or 1 in place of the first extent");
  if (width > 1 && tensor->stride[1] != 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s has stride %" PRId64 " in its last dimension, expected 1", name,
                     tensor->stride[1]);
  checked->stride[1] = 1;
  return HARK_OK;
}

static bool is_averaged(const hark_attention_desc *desc) {
  return desc->structure == HARK_STRUCTURE_HIERARCHICAL || desc->structure == HARK_STRUCTURE_COMPRESSED;
}

/* Keys are averaged, so that masks hide the same ones from all queries. */
static hark_status check_key_mask(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                  const hark_attention_args *checked) {
  if (!is_averaged(desc) || !present(&args->mask) || (checked->mask.stride[1] == 0 && checked->mask.stride[2] == 0)) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED,
                   "attention: mask has %" PRId64 " heads and %" PRId64
                   " query rows with structure %s, expected 1 of each: keys are masked before they are averaged",
                   args->mask.shape[1], args->mask.shape[2], hark_attention_structure_name(desc->structure));
}

/* Starts of chunks, for all rows of the batch, on the side of the keys. */
static hark_status check_chunk_starts(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                      hark_attention_args *checked) {
  if (desc->has_chunk_starts == 0)
    return present(&args->chunk_starts) ? refuse_extra(context, "chunk_starts", "has_chunk_starts") : HARK_OK;
  return check_table(context, "chunk_starts", &args->chunk_starts, HARK_U8, args->key.shape[0], args->key.shape[2], &checked->chunk_starts);
}

/* Arguments of hierarchical attention only. */
static hark_status check_hierarchy_terms(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                         hark_attention_args *checked) {
  if (present(&args->hierarchical_bias) && !desc->has_hierarchical_bias)
    return refuse_extra(context, "hierarchical_bias", "has_hierarchical_bias");
  if (desc->has_hierarchical_bias)
    HARK_TRY(check_table(context, "hierarchical_bias", &args->hierarchical_bias, desc->type, desc->heads, 4 * desc->hierarchy_block - 1,
                         &checked->hierarchical_bias));
  if (desc->structure != HARK_STRUCTURE_HIERARCHICAL) {
    if (!present(&args->query_mask)) return HARK_OK;
    return hark_fail(context, HARK_UNSUPPORTED, "attention: query_mask is given with structure %s, expected hierarchical",
                     hark_attention_structure_name(desc->structure));
  }
  if (!present(&args->query_mask)) return HARK_OK;
  if (!desc->has_mask) return refuse_extra(context, "query_mask", "has_mask");
  return check_table(context, "query_mask", &args->query_mask, HARK_U8, args->query.shape[0], args->query.shape[2], &checked->query_mask);
}

/* A table [rows or 1, middle, width], whose last two dimensions are contiguous. */
static hark_status check_tables(hark_context *context, const char *name, const hark_tensor *tensor, hark_type type, int64_t rows,
                                int64_t middle, int64_t width, hark_tensor *checked) {
  const expectation e = {name, tensor, type, 3, {rows, middle, width}, false};
  HARK_TRY(check_type(context, &e));
  if (tensor->rank != 3 || (tensor->shape[0] != rows && tensor->shape[0] != 1) || tensor->shape[1] != middle || tensor->shape[2] != width)
    return refuse_shape(context, &e, " or 1 in place of the first extent");
  if ((width > 1 && tensor->stride[2] != 1) || (middle > 1 && tensor->stride[1] != width))
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: %s has strides %" PRId64 " and %" PRId64 " in its last dimensions, expected %" PRId64 " and 1", name,
                     tensor->stride[1], tensor->stride[2], width);
  HARK_TRY(check_place(context, &e));
  if (tensor->shape[0] == 1) checked->stride[0] = 0;
  checked->stride[1] = width;
  checked->stride[2] = 1;
  return HARK_OK;
}

/* The table of contextual positions, and in the backward its gradient, which has the same shape. */
static hark_status check_contextual(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args, bool backward,
                                    hark_attention_args *checked) {
  if (desc->contextual_positions == 0) {
    if (present(&args->contextual)) return refuse_extra(context, "contextual", "contextual_positions");
    if (!backward || !present(&args->dcontextual)) return HARK_OK;
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: dcontextual is requested, but contextual is absent");
  }
  const int64_t positions = desc->contextual_positions, features = desc->head_dim;
  HARK_TRY(check_tables(context, "contextual", &args->contextual, desc->type, desc->heads, positions, features, &checked->contextual));
  if (!backward || !present(&args->dcontextual)) return HARK_OK;
  const expectation e = {"dcontextual", &args->dcontextual, desc->type, 3, {args->contextual.shape[0], positions, features}, false};
  if (args->dcontextual.rank == 3 && args->dcontextual.shape[0] != e.shape[0]) return refuse_shape(context, &e, "");
  return check_tables(context, e.name, e.tensor, e.type, e.shape[0], positions, features, &checked->dcontextual);
}

/* mask, attention_bias, log_kernel, forget and noise. */
static hark_status check_terms(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                               hark_attention_args *checked) {
  const int64_t batch = args->query.shape[0], queries = args->query.shape[2], keys = args->key.shape[2];
  if (present(&args->mask)) {
    if (!desc->has_mask) return refuse_extra(context, "mask", "has_mask");
    const expectation mask = {"mask", &args->mask, HARK_U8, 4, {batch, desc->heads, queries, keys}, false};
    HARK_TRY(check_broadcast(context, &mask, &checked->mask));
    if (desc->normalisation == HARK_NORMALISATION_CME && checked->mask.stride[2] != 0)
      return hark_fail(context, HARK_UNSUPPORTED,
                       "attention: mask has %" PRId64 " query rows with normalisation cme, expected 1: all queries share one factorisation",
                       args->mask.shape[2]);
  }
  if (present(&args->attention_bias)) {
    if (!desc->has_bias) return refuse_extra(context, "attention_bias", "has_bias");
    const expectation bias = {"attention_bias", &args->attention_bias, desc->type, 4, {batch, desc->heads, queries, keys}, false};
    HARK_TRY(check_broadcast(context, &bias, &checked->attention_bias));
  }
  if (present(&args->log_kernel) && !desc->has_log_kernel) return refuse_extra(context, "log_kernel", "has_log_kernel");
  if (desc->has_log_kernel) {
    const int64_t table = args->log_kernel.rank == 2 ? args->log_kernel.shape[1] : 0;
    HARK_TRY(check_table(context, "log_kernel", &args->log_kernel, desc->type, desc->heads, table, &checked->log_kernel));
    if (desc->directed_kernel != 0 && table % 2 == 0)
      return hark_fail(context, HARK_SHAPE_MISMATCH,
                       "attention: log_kernel has %" PRId64
                       " columns with directed_kernel, expected an odd number: 2 T - 1, for T distances in each direction",
                       table);
  }
  if (present(&args->forget) && !desc->has_forget) return refuse_extra(context, "forget", "has_forget");
  if (desc->has_forget) {
    const expectation forget = {"forget", &args->forget, desc->type, 3, {batch, desc->heads, keys}, false};
    HARK_TRY(check_exact(context, &forget, STRIDED));
  }
  if (present(&args->noise) && desc->has_noise == 0) return refuse_extra(context, "noise", "has_noise");
  if (desc->has_noise != 0) {
    const expectation noise = {"noise", &args->noise, desc->type, 3, {batch, desc->heads, keys}, false};
    HARK_TRY(check_exact(context, &noise, STRIDED));
  }
  HARK_TRY(check_key_mask(context, desc, args, checked));
  HARK_TRY(check_chunk_starts(context, desc, args, checked));
  return check_hierarchy_terms(context, desc, args, checked);
}

static hark_status check_offsets(hark_context *context, const char *name, const int64_t *offsets, int64_t sequences, int64_t rows) {
  if (offsets[0] < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s[0] is %" PRId64 ", expected at least 0", name, offsets[0]);
  for (int64_t i = 0; i < sequences; i++)
    if (offsets[i + 1] < offsets[i])
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: %s[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected offsets that do not decrease", name, i + 1,
                       offsets[i + 1], offsets[i]);
  if (offsets[sequences] > rows)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s[%" PRId64 "] is %" PRId64 ", expected at most the %" PRId64 " rows",
                     name, sequences, offsets[sequences], rows);
  return HARK_OK;
}

/* How the batch is divided: at most one of key_lengths, offsets, segments. */
static hark_status check_division(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args) {
  const int64_t batch = args->query.shape[0], queries = args->query.shape[2], keys = args->key.shape[2];
  const bool ragged = args->query_offsets != NULL || args->key_offsets != NULL;
  if ((args->key_lengths != NULL) + ragged + (args->segments != NULL) > 1)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: %s are given together, expected one of key_lengths, offsets and segments",
                     args->key_lengths == NULL ? "offsets and segments"
                     : ragged                  ? "key_lengths and offsets"
                                               : "key_lengths and segments");
  if (args->has_query_offset && !hark_attention_may_offset(args->query_offset))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: query_offset is %" PRId64 ", expected -2^40 to 2^40", args->query_offset);
  if (args->key_lengths != NULL)
    for (int64_t b = 0; b < batch; b++)
      if (args->key_lengths[b] < 0 || args->key_lengths[b] > keys)
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: key_lengths[%" PRId64 "] is %" PRId64 ", expected 0 to %" PRId64, b,
                         args->key_lengths[b], keys);
  if (ragged) {
    if (args->query_offsets == NULL || args->key_offsets == NULL)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is absent, expected both query_offsets and key_offsets",
                       args->query_offsets == NULL ? "query_offsets" : "key_offsets");
    if (batch != 1)
      return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: query has batch %" PRId64 " with offsets, expected 1 item of packed rows",
                       batch);
    if (args->sequences < 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sequences is %" PRId64 ", expected at least 0", args->sequences);
    HARK_TRY(check_offsets(context, "query_offsets", args->query_offsets, args->sequences, queries));
    HARK_TRY(check_offsets(context, "key_offsets", args->key_offsets, args->sequences, keys));
  } else if (args->sequences != 0) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sequences is %" PRId64 " without offsets, expected 0", args->sequences);
  }
  if (args->segments != NULL) {
    if (!desc->has_segments) return refuse_extra(context, "segments", "has_segments");
    if (queries != keys)
      return hark_fail(context, HARK_UNSUPPORTED,
                       "attention: segments with %" PRId64 " queries and %" PRId64 " keys, expected as many of one as of the other",
                       queries, keys);
    if (args->has_query_offset && args->query_offset != 0)
      return hark_fail(context, HARK_UNSUPPORTED, "attention: query_offset is %" PRId64 " with segments, expected 0", args->query_offset);
  }
  return HARK_OK;
}

/* Counts the sequences, and finds the largest distance |n - i| between a query and a key that it may see. */
static hark_status check_sequences(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args, bool backward) {
  hark_attention_walk walk = hark_attention_walk_start(args, desc->causal, backward);
  hark_attention_sequence sequence;
  int64_t count = 0, farthest = -1;
  while (hark_attention_walk_next(&walk, &sequence)) {
    count++;
    if (hark_max(sequence.query_count, sequence.key_count) > desc->longest)
      return hark_fail(context, HARK_SHAPE_MISMATCH,
                       "attention: a sequence has %" PRId64 " rows, expected at most the plan's longest = %" PRId64,
                       hark_max(sequence.query_count, sequence.key_count), desc->longest);
    /* Rows at and after a key length are masked keys. Other sequences must have as many queries as keys. */
    const int64_t keys = args->key_lengths != NULL ? args->key.shape[2] : sequence.key_count;
    if (is_averaged(desc) && (sequence.query_count != keys || sequence.offset != 0))
      return hark_fail(context, HARK_UNSUPPORTED,
                       "attention: a sequence has %" PRId64 " queries from position %" PRId64 " on and %" PRId64
                       " keys with structure %s, expected as many of one as of the other, from position 0 on",
                       sequence.query_count, sequence.offset, keys, hark_attention_structure_name(desc->structure));
    const int64_t distance = hark_attention_farthest(desc, sequence.query_count, sequence.key_count, sequence.offset);
    farthest = hark_max(farthest, sequence.key_count > 0 ? distance : 0); /* a query without keys uses G(0) */
  }
  if (count > desc->max_sequences)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "attention: the batch has %" PRId64 " sequences, expected at most the plan's max_sequences = %" PRId64, count,
                     desc->max_sequences);
  if (desc->normalisation == HARK_NORMALISATION_CME && desc->has_log_kernel && farthest >= desc->query_length + desc->key_length)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: a query is %" PRId64
                     " positions from a key with normalisation cme and log_kernel, expected fewer than query_length + "
                     "key_length = %" PRId64,
                     farthest, desc->query_length + desc->key_length);
  const int64_t distances = desc->has_log_kernel ? hark_kernel_distances(desc, args->log_kernel.shape[1]) : 0;
  if (desc->has_log_kernel && distances <= farthest)
    return hark_fail(context, HARK_SHAPE_MISMATCH,
                     "attention: log_kernel has %" PRId64 " distances%s, expected at least %" PRId64 ": a query and a key are %" PRId64
                     " positions apart",
                     distances, desc->directed_kernel != 0 ? " in each direction" : "", farthest + 1, farthest);
  return HARK_OK;
}

/* The quadratic forms of values and their gradient have the shape of out. */
static hark_status check_quadratic(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args, bool backward) {
  const int64_t batch = args->query.shape[0], queries = args->query.shape[2];
  const expectation result = {"quadratic", &args->quadratic, desc->type, 4, {batch, desc->heads, queries, desc->value_dim}, !backward};
  expectation gradient = result;
  gradient.name = "dquadratic";
  gradient.tensor = &args->dquadratic;
  gradient.written = false;
  if (present(result.tensor)) HARK_TRY(check_exact(context, &result, ADJACENT));
  return backward && present(gradient.tensor) ? check_exact(context, &gradient, ADJACENT) : HARK_OK;
}

/* A requested gradient has the shape of its argument, and separate strides. */
static hark_status check_gradients(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                   hark_attention_args *checked) {
  const hark_type type = desc->type;
  const struct {
    const char *name, *of_name;
    const hark_tensor *gradient, *of;
    hark_tensor *broadcast; /* if it may be broadcast */
    arrangement required;
  } gradients[] = {
      {"dout", "out", &args->dout, &args->out, NULL, ADJACENT},
      {"dquery", "query", &args->dquery, &args->query, NULL, ADJACENT},
      {"dkey", "key", &args->dkey, &args->key, NULL, ADJACENT},
      {"dvalue", "value", &args->dvalue, &args->value, NULL, ADJACENT},
      {"dattention_bias", "attention_bias", &args->dattention_bias, &args->attention_bias, &checked->dattention_bias, ADJACENT},
      {"dlog_kernel", "log_kernel", &args->dlog_kernel, &args->log_kernel, &checked->dlog_kernel, ADJACENT},
      {"dforget", "forget", &args->dforget, &args->forget, NULL, STRIDED},
      {"dnoise", "noise", &args->dnoise, &args->noise, NULL, STRIDED},
      {"dhierarchical_bias", "hierarchical_bias", &args->dhierarchical_bias, &args->hierarchical_bias, &checked->dhierarchical_bias,
       ADJACENT},
  };
  const bool has_statistic =
      present(&args->dvariance) || present(&args->dlog_determinant) || present(&args->dquadratic); /* dout may then be absent */
  for (size_t i = 0; i < sizeof gradients / sizeof gradients[0]; i++) {
    const bool is_input = gradients[i].gradient == &args->dout;
    if (!present(gradients[i].gradient) && (!is_input || has_statistic)) continue;
    if (!present(gradients[i].of))
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is requested, but %s is absent", gradients[i].name,
                       gradients[i].of_name);
    expectation e = {gradients[i].name, gradients[i].gradient, type, gradients[i].of->rank, {0}, !is_input};
    memcpy(e.shape, gradients[i].of->shape, sizeof e.shape);
    if (gradients[i].broadcast == NULL) {
      HARK_TRY(check_exact(context, &e, gradients[i].required));
      continue;
    }
    e.written = false; /* a stride of 0 requests the sum */
    HARK_TRY(check_broadcast(context, &e, gradients[i].broadcast));
    bool fits = true;
    for (int k = 0; k < e.rank; k++) fits = fits && e.tensor->shape[k] == e.shape[k];
    if (!fits) return refuse_shape(context, &e, "");
  }
  /* check_broadcast has set the stride of extents of 1 to 0; tables keep this in their first dimension only. */
  const struct {
    const char *name;
    hark_tensor *gradient;
  } tables[] = {{"dlog_kernel", &checked->dlog_kernel}, {"dhierarchical_bias", &checked->dhierarchical_bias}};
  for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
    hark_tensor *gradient = tables[i].gradient;
    if (!present(gradient)) continue;
    if (gradient->shape[1] > 1 && gradient->stride[1] != 1)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s has stride %" PRId64 " in its last dimension, expected 1",
                       tables[i].name, gradient->stride[1]);
    gradient->stride[1] = 1;
  }
  return HARK_OK;
}

static hark_status check_memory(hark_context *context, const char *name, const void *memory, size_t bytes) {
  if (bytes == 0) return HARK_OK;
  if (memory == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is NULL, expected %zu bytes", name, bytes);
  if ((uintptr_t)memory % HARK_ALIGNMENT != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is at %p, expected alignment to %d bytes", name, memory,
                     HARK_ALIGNMENT);
  return HARK_OK;
}

/* HARK_NONE marks an absent tensor, whatever its other members contain, such as an address of an earlier call. */
static void clear_absent(hark_attention_args *args) {
  hark_tensor *const tensors[] = {&args->query,
                                  &args->key,
                                  &args->value,
                                  &args->out,
                                  &args->variance,
                                  &args->log_sum_exp,
                                  &args->mask,
                                  &args->attention_bias,
                                  &args->log_kernel,
                                  &args->forget,
                                  &args->query_mask,
                                  &args->chunk_starts,
                                  &args->hierarchical_bias,
                                  &args->ridge,
                                  &args->sigma,
                                  &args->dout,
                                  &args->dquery,
                                  &args->dkey,
                                  &args->dvalue,
                                  &args->dlog_kernel,
                                  &args->dattention_bias,
                                  &args->dforget,
                                  &args->dhierarchical_bias,
                                  &args->dridge,
                                  &args->dsigma,
                                  &args->contextual,
                                  &args->dcontextual,
                                  &args->dvariance,
                                  &args->log_determinant,
                                  &args->dlog_determinant,
                                  &args->noise,
                                  &args->dnoise,
                                  &args->quadratic,
                                  &args->dquadratic};
  for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
    if (!present(tensors[i])) *tensors[i] = (hark_tensor){0};
}

hark_status hark_attention_check(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *given, bool backward,
                                 hark_attention_args *checked) {
  const hark_attention_desc *desc = &plan->desc;
  if (plan->backend != context->backend)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: the plan was made for backend %s, the context has %s", plan->backend->name,
                     context->backend->name);
  if (hark_workers(context) > plan->workers)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: the context has %d threads, the plan reckons with at most %d",
                     hark_workers(context), plan->workers);
  if (backward && desc->forward_only)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: a backward is requested, but the plan was made with forward_only");
  memset(checked, 0, sizeof *checked);
  HARK_TRY(hark_take_struct(context, "hark_attention_args", given, HARK_LEAST_ATTENTION_ARGS, checked, sizeof *checked));
  clear_absent(checked);
  const hark_attention_args args = *checked;
  HARK_TRY(check_main(context, desc, &args, backward));
  HARK_TRY(check_terms(context, desc, &args, checked));
  HARK_TRY(check_contextual(context, desc, &args, backward, checked));
  HARK_TRY(hark_attention_check_ridge(context, desc, &args, backward));
  HARK_TRY(check_quadratic(context, desc, &args, backward));
  HARK_TRY(check_division(context, desc, &args));
  HARK_TRY(check_sequences(context, desc, &args, backward));
  if (backward) HARK_TRY(check_gradients(context, desc, &args, checked));
  HARK_TRY(check_memory(context, "workspace", args.workspace, backward ? plan->sizes.backward_workspace : plan->sizes.forward_workspace));
  HARK_TRY(check_memory(context, "saved", args.saved, plan->sizes.saved));
  return hark_attention_check_memory(context, plan, checked, backward);
}
