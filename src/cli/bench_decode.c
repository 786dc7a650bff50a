/* bench_decode.c - hierarchical attention token by token, with its cache: 'hierarchical:H8,L65536,D64,N16'.
 *
 * One measurement is a stretch of tokens, one call each, of which the last is token L: long enough that every level but the coarsest begins its
 * cells as often as it does on average. What lies in the caches is random. Dense attention with a cache is hark bench attention dense:L1,M<n>.
 */
#include <hark/operators.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/hierarchy_kernel.h"
#include "cli/bench.h"

#define STRETCH 1024 /* tokens */
#define MOST_TOKENS ((int64_t)1 << 40)
#define MOST_BLOCK ((int64_t)1 << 20)

typedef struct decode_case {
  int64_t heads, key_heads, length, head_dim, value_dim, block;
  bool exact, sibling, rbf;
} decode_case;

typedef struct decode_work {
  decode_case is;
  hark_hierarchical_decode_attributes attributes;
  hark_call call;
  hark_tensor workspace;
} decode_work;

static hark_status read_case(hark_context *context, const char *text, decode_case *c) {
  static const char structure[] = "hierarchical";
  const size_t head = hark_bench_case_head(text);
  *c = (decode_case){.heads = 1, .block = 16};
  if (head != strlen(structure) || memcmp(text, structure, head) != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': structure '%.*s', expected hierarchical", text, (int)head, text);
  const hark_bench_field fields[] = {
      {.name = "H", .type = HARK_BENCH_WHOLE, .whole = &c->heads},     {.name = "K", .type = HARK_BENCH_WHOLE, .whole = &c->key_heads},
      {.name = "L", .type = HARK_BENCH_WHOLE, .whole = &c->length},    {.name = "D", .type = HARK_BENCH_WHOLE, .whole = &c->head_dim},
      {.name = "E", .type = HARK_BENCH_WHOLE, .whole = &c->value_dim}, {.name = "N", .type = HARK_BENCH_WHOLE, .whole = &c->block},
      {.name = "exact", .type = HARK_BENCH_FLAG, .flag = &c->exact},   {.name = "sibling", .type = HARK_BENCH_FLAG, .flag = &c->sibling},
      {.name = "rbf", .type = HARK_BENCH_FLAG, .flag = &c->rbf},
  };
  HARK_TRY(hark_bench_case_read(context, text, fields, sizeof fields / sizeof *fields));
  if (c->length == 0 || c->head_dim == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': decode needs %s", text, c->length == 0 ? "L<n>" : "D<n>");
  if (c->length > MOST_TOKENS || c->block > MOST_BLOCK)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': expected L up to %" PRId64 " and N up to %" PRId64, text, MOST_TOKENS,
                     MOST_BLOCK);
  if (c->key_heads == 0) c->key_heads = c->heads;
  if (c->value_dim == 0) c->value_dim = c->head_dim;
  return HARK_OK;
}

static hark_status make_tensors(hark_context *context, decode_work *work) {
  const decode_case *c = &work->is;
  const hark_attention_desc desc = {.hierarchy_block = c->block};
  const int64_t levels = hark_hierarchy_make(&desc, c->length).levels, ring = 2 * c->block;
  const int64_t shapes[][3] = {{1, 1, c->heads * c->head_dim},
                               {1, 1, c->key_heads * c->head_dim},
                               {1, 1, c->key_heads * c->value_dim},
                               {levels, ring, c->key_heads * c->head_dim},
                               {levels, ring, c->key_heads * c->value_dim},
                               {levels, c->heads, c->value_dim + 2}};
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
    HARK_TRY(hark_tensor_create(context, HARK_F32, 3, shapes[i], &work->call.inputs[i]));
    work->call.input_count = i + 1;
    HARK_TRY(hark_bench_fill(context, &work->call.inputs[i], (uint32_t)i, 1));
  }
  hark_inferred inferred = {0};
  HARK_TRY(work->call.op->infer(context, &work->attributes, work->call.inputs, work->call.input_count, &inferred));
  const hark_tensor *output = &inferred.outputs[0];
  HARK_TRY(hark_tensor_create(context, output->type, output->rank, output->shape, &work->call.outputs[0]));
  work->call.workspace_bytes = inferred.forward_workspace;
  HARK_TRY(hark_tensor_create(context, HARK_U8, 1, (int64_t[]){(int64_t)inferred.forward_workspace}, &work->workspace));
  work->call.workspace = work->workspace.data;
  return HARK_OK;
}

static int64_t first_of(const decode_case *c) { return hark_max(c->length - STRETCH, 0); }

static hark_status forward(hark_context *context, void *data) {
  decode_work *work = data;
  for (int64_t position = first_of(&work->is); position < work->is.length; position++) {
    work->attributes.first_position = position;
    HARK_TRY(hark_operator_forward(context, &work->call));
  }
  return HARK_OK;
}

static double operations_of(decode_work *work) {
  double sum = 0;
  for (int64_t position = first_of(&work->is); position < work->is.length; position++) {
    work->attributes.first_position = position;
    sum += work->call.op->operations(&work->attributes, work->call.inputs, work->call.input_count, false);
  }
  return sum;
}

hark_status hark_bench_decode(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text) {
  enum { CACHES = 3 }; /* from this input on */
  decode_work work = {.call = {.op = hark_operator_find("hierarchical_decode")}};
  const decode_case *c = &work.is;
  HARK_TRY(read_case(context, text, &work.is));
  work.attributes = (hark_hierarchical_decode_attributes){
      .heads = c->heads,
      .key_heads = c->key_heads,
      .hierarchy_block = c->block,
      .partition = c->sibling ? HARK_PARTITION_SIBLING : HARK_PARTITION_NEIGHBOUR,
      .coarse_query = c->exact ? HARK_COARSE_QUERY_EXACT : HARK_COARSE_QUERY_FIRST,
      .kernel = c->rbf ? HARK_KERNEL_RBF : HARK_KERNEL_EXP,
      .scale = 1 / sqrt((double)c->head_dim),
      .first_position = c->length - 1,
  };
  work.call.attributes = &work.attributes;
  hark_status status = make_tensors(context, &work);
  if (status == HARK_OK) {
    const hark_bench_work measured = {.name = text,
                                      .forward = forward,
                                      .data = &work,
                                      .forward_operations = operations_of(&work),
                                      .tensor_bytes = hark_bench_bytes(work.call.inputs + CACHES, work.call.input_count - CACHES),
                                      .workspace_bytes = (double)work.call.workspace_bytes,
                                      .single = true};
    status = hark_bench_work_run(context, machine, settings, &measured);
  }
  hark_tensor_destroy(context, &work.workspace);
  hark_tensor_destroy(context, &work.call.outputs[0]);
  for (int i = 0; i < work.call.input_count; i++) hark_tensor_destroy(context, &work.call.inputs[i]);
  return status;
}
