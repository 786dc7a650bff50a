/* bench_decode.c - attention token by token, with its cache: 'hierarchical:H8,L65536,D64,N16', 'cme:H8,L1024,D64',
 * 'compressed:H8,L65536,D64,N64,kept=32'.
 *
 * One measurement is a stretch of tokens, one call each; the last one is token L. Hierarchical: 1024 tokens, so that every level but the
 * coarsest begins its cells as often as on average; the caches are random. Kernel ridge: 64 tokens, whose cost differs little, after a
 * cache that was filled with random tokens. Compressed: the tokens of 16 chunks; words as for hark bench attention; caches and tokens are
 * random. Dense attention with a cache is hark bench attention dense:L1,M<n>.
 */
#include <hark/operators.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/chunks.h"
#include "backend/compressed_cache.h"
#include "backend/hierarchy_kernel.h"
#include "backend/kernel_ridge_decode.h"
#include "cli/bench/bench.h"
#include "ops/compressed_decode.h"

#define MOST_TOKENS ((int64_t)1 << 40)
#define MOST_BLOCK ((int64_t)1 << 20)
#define RANDOM_ROWS 1021 /* no multiple of a chunk */
#define CME_RIDGE 0.01   /* that of hark bench attention */

enum { ROWS = 3, MOST_CACHES = HARK_COMPRESSED_CHUNK_STARTS - ROWS }; /* inputs: query, key and value, then the caches */

/* Kinds of attention, and their operators. */
enum { HIERARCHICAL, CME, COMPRESSED, KINDS };
static const struct {
  const char *name, *op;
  int caches;
  int64_t block; /* N<n> if the case has none */
} kinds[KINDS] = {{"hierarchical", "hierarchical_decode", 3, 16},
                  {"cme", "kernel_ridge_decode", 3, 0},
                  {"compressed", "compressed_decode", MOST_CACHES, 64}};

typedef struct decode_case {
  int kind;
  int64_t heads, key_heads, length, head_dim, value_dim, block, slots, select, kept, globals;
  bool exact, sibling, rbf, exp;
} decode_case;

typedef struct decode_work {
  decode_case is;
  union {
    hark_hierarchical_decode_attributes hierarchical;
    hark_kernel_ridge_decode_attributes ridge;
    hark_compressed_decode_attributes compressed;
  } attributes;
  int64_t *first_position; /* of the attributes */
  int64_t stretch, random; /* measured tokens; number of different rows */
  hark_call call;
  hark_tensor rows[ROWS]; /* all rows: the call has one */
  hark_tensor workspace;
} decode_work;

static bool is_word(const char *text, size_t length, const char *word) { return length == strlen(word) && memcmp(text, word, length) == 0; }

static hark_status read_case(hark_context *context, const char *text, decode_case *c) {
  const size_t head = hark_bench_case_head(text);
  *c = (decode_case){.heads = 1};
  while (c->kind < KINDS && !is_word(text, head, kinds[c->kind].name)) c->kind++;
  if (c->kind == KINDS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': structure '%.*s', expected hierarchical, cme or compressed", text,
                     (int)head, text);
  const hark_bench_field fields[] = {
      {.name = "H", .type = HARK_BENCH_WHOLE, .whole = &c->heads},     {.name = "K", .type = HARK_BENCH_WHOLE, .whole = &c->key_heads},
      {.name = "L", .type = HARK_BENCH_WHOLE, .whole = &c->length},    {.name = "D", .type = HARK_BENCH_WHOLE, .whole = &c->head_dim},
      {.name = "E", .type = HARK_BENCH_WHOLE, .whole = &c->value_dim}, {.name = "N", .type = HARK_BENCH_WHOLE, .whole = &c->block},
      {.name = "exact", .type = HARK_BENCH_FLAG, .flag = &c->exact},   {.name = "sibling", .type = HARK_BENCH_FLAG, .flag = &c->sibling},
      {.name = "rbf", .type = HARK_BENCH_FLAG, .flag = &c->rbf},       {.name = "exp", .type = HARK_BENCH_FLAG, .flag = &c->exp},
      {.name = "slots", .type = HARK_BENCH_WHOLE, .whole = &c->slots}, {.name = "select", .type = HARK_BENCH_WHOLE, .whole = &c->select},
      {.name = "kept", .type = HARK_BENCH_WHOLE, .whole = &c->kept},   {.name = "globals", .type = HARK_BENCH_WHOLE, .whole = &c->globals},
  };
  HARK_TRY(hark_bench_case_read(context, text, fields, sizeof fields / sizeof *fields));
  const struct {
    bool given;
    unsigned kinds; /* to which the words belong, as bits */
    const char *words, *belong;
  } rules[] = {{c->exact || c->sibling || c->rbf, 1u << HIERARCHICAL, "exact, sibling and rbf", "'hierarchical:...'"},
               {c->block != 0, 1u << HIERARCHICAL | 1u << COMPRESSED, "N<n>", "'hierarchical:...' and 'compressed:...'"},
               {c->exp, 1u << CME, "exp", "'cme:...'"},
               {c->slots != 0 || c->select != 0 || c->kept != 0 || c->globals != 0, 1u << COMPRESSED, "slots, select, kept and globals",
                "'compressed:...'"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (rules[i].given && (rules[i].kinds >> c->kind & 1) == 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': %s belong%s to cases %s", text, rules[i].words,
                       strchr(rules[i].words, ' ') == NULL ? "s" : "", rules[i].belong);
  if (c->length == 0 || c->head_dim == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': decode needs %s", text, c->length == 0 ? "L<n>" : "D<n>");
  if (c->length > MOST_TOKENS || c->block > MOST_BLOCK || (c->kind == CME && c->length > HARK_RIDGE_DECODE_CAPACITY))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "case '%s': expected L up to %" PRId64 " and N up to %" PRId64, text,
                     c->kind == CME ? HARK_RIDGE_DECODE_CAPACITY : MOST_TOKENS, MOST_BLOCK);
  if (c->block == 0) c->block = kinds[c->kind].block;
  if (c->key_heads == 0) c->key_heads = c->heads;
  if (c->value_dim == 0) c->value_dim = c->head_dim;
  return HARK_OK;
}

static void set_attributes(decode_work *work) {
  const decode_case *c = &work->is;
  const double scale = 1 / sqrt((double)c->head_dim);
  work->random = 1;
  if (c->kind == COMPRESSED) {
    work->attributes.compressed =
        (hark_compressed_decode_attributes){.heads = c->heads,
                                            .key_heads = c->key_heads,
                                            .chunk = c->block,
                                            .chunk_slots = hark_max(1, c->slots),
                                            .selected_slots = c->select == 0 ? HARK_CHUNK_DEFAULT_SELECTED : c->select,
                                            .kept_chunks = c->kept,
                                            .global_slots = c->globals,
                                            .scale = scale};
    work->call.attributes = &work->attributes.compressed;
    work->first_position = &work->attributes.compressed.first_position;
    work->stretch = hark_min(16 * c->block, c->length);
    work->random = RANDOM_ROWS; /* equal rows would be selected alike */
    return;
  }
  if (c->kind == CME) {
    work->attributes.ridge = (hark_kernel_ridge_decode_attributes){.heads = c->heads,
                                                                   .key_heads = c->key_heads,
                                                                   .kernel = c->exp ? HARK_KERNEL_EXP : HARK_KERNEL_RBF,
                                                                   .ridge = CME_RIDGE,
                                                                   .scale = scale,
                                                                   .sigma = pow((double)c->head_dim, 0.25)};
    work->call.attributes = &work->attributes.ridge;
    work->first_position = &work->attributes.ridge.first_position;
    work->stretch = hark_min(64, c->length);
    work->random = 128;
    return;
  }
  work->attributes.hierarchical = (hark_hierarchical_decode_attributes){
      .heads = c->heads,
      .key_heads = c->key_heads,
      .hierarchy_block = c->block,
      .partition = c->sibling ? HARK_PARTITION_SIBLING : HARK_PARTITION_NEIGHBOUR,
      .coarse_query = c->exact ? HARK_COARSE_QUERY_EXACT : HARK_COARSE_QUERY_FIRST,
      .kernel = c->rbf ? HARK_KERNEL_RBF : HARK_KERNEL_EXP,
      .scale = scale,
  };
  work->call.attributes = &work->attributes.hierarchical;
  work->first_position = &work->attributes.hierarchical.first_position;
  work->stretch = hark_min(1024, c->length);
}

/* Sets the call's rows to `count` of the random ones, those of `position`. */
static void take_rows(decode_work *work, int64_t position, int64_t count) {
  for (int i = 0; i < ROWS; i++) {
    hark_tensor rows = work->rows[i];
    rows.owned_bytes = 0;
    rows.shape[1] = count;
    rows.data = (char *)rows.data + (size_t)(position % work->random * rows.shape[2]) * hark_type_bytes(rows.type);
    work->call.inputs[i] = rows;
  }
  *work->first_position = position;
}

static hark_status make_result(hark_context *context, decode_work *work, int64_t count) {
  hark_inferred inferred = {0};
  take_rows(work, 0, count);
  HARK_TRY(work->call.op->infer(context, work->call.attributes, work->call.inputs, work->call.input_count, &inferred));
  const hark_tensor *output = &inferred.outputs[0];
  hark_tensor_destroy(context, &work->call.outputs[0]);
  hark_tensor_destroy(context, &work->workspace);
  HARK_TRY(hark_tensor_create(context, output->type, output->rank, output->shape, &work->call.outputs[0]));
  HARK_TRY(hark_tensor_create(context, HARK_U8, 1, (int64_t[]){(int64_t)inferred.forward_workspace}, &work->workspace));
  work->call.workspace_bytes = inferred.forward_workspace;
  work->call.workspace = work->workspace.data;
  return HARK_OK;
}

/* Shapes of the caches. */
static void cache_shapes(const decode_work *work, int64_t shapes[MOST_CACHES][3]) {
  const decode_case *c = &work->is;
  const int64_t keys = c->key_heads * c->head_dim, values = c->key_heads * c->value_dim;
  if (c->kind == CME) {
    const int64_t ridge[][3] = {{1, c->length, keys},
                                {1, c->length, c->heads * hark_ridge_decode_width(c->value_dim)},
                                {hark_ridge_decode_tiles(c->length), c->heads, HARK_RIDGE_BAND_TILE}};
    memcpy(shapes, ridge, sizeof ridge);
  } else if (c->kind == HIERARCHICAL) {
    const hark_attention_desc desc = {.hierarchy_block = c->block};
    const int64_t levels = hark_hierarchy_make(&desc, c->length).levels, ring = 2 * c->block;
    const int64_t hierarchical[][3] = {{levels, ring, keys}, {levels, ring, values}, {levels, c->heads, c->value_dim + 2}};
    memcpy(shapes, hierarchical, sizeof hierarchical);
  } else {
    const hark_compressed_decode_attributes *decode = &work->attributes.compressed;
    const hark_compressed_decode_sizes has = hark_compressed_decode_sizes_of(decode, c->length);
    const int64_t chunks = hark_max(1, has.chunks), globals = hark_max(1, has.globals), slots = decode->chunk_slots;
    const int64_t compressed[][3] = {{1, has.ring, keys},     {1, has.ring, values}, {chunks, slots, keys},
                                     {chunks, slots, values}, {globals, 2, keys},    {globals, 2, values}};
    memcpy(shapes, compressed, sizeof compressed);
  }
}

static hark_status make_tensors(hark_context *context, decode_work *work) {
  const decode_case *c = &work->is;
  const int64_t rows[ROWS][3] = {{1, work->random, c->heads * c->head_dim},
                                 {1, work->random, c->key_heads * c->head_dim},
                                 {1, work->random, c->key_heads * c->value_dim}};
  int64_t caches[MOST_CACHES][3] = {{0}};
  cache_shapes(work, caches);
  work->call.input_count = ROWS + kinds[c->kind].caches;
  hark_inferred inferred = {0}; /* a case that is refused gets no memory */
  for (int i = 0; i < work->call.input_count; i++) {
    const int64_t *shape = i < ROWS ? rows[i] : caches[i - ROWS], one[] = {1, 1, shape[2]};
    HARK_TRY(hark_tensor_describe(context, HARK_F32, 3, i < ROWS ? one : shape, &work->call.inputs[i]));
  }
  HARK_TRY(work->call.op->infer(context, work->call.attributes, work->call.inputs, work->call.input_count, &inferred));
  for (int i = 0; i < ROWS; i++) {
    HARK_TRY(hark_tensor_create(context, HARK_F32, 3, rows[i], &work->rows[i]));
    HARK_TRY(hark_bench_fill(context, &work->rows[i], (uint32_t)i, 1));
  }
  for (int i = 0; i < kinds[c->kind].caches; i++) {
    HARK_TRY(hark_tensor_create(context, HARK_F32, 3, caches[i], &work->call.inputs[ROWS + i]));
    if (c->kind != CME) HARK_TRY(hark_bench_fill(context, &work->call.inputs[ROWS + i], (uint32_t)(ROWS + i), 1));
  }
  return HARK_OK;
}

/* Reads all tokens before the stretch, many per call. */
static hark_status fill_cache(hark_context *context, decode_work *work) {
  const int64_t end = work->is.length - work->stretch, most = hark_min(work->random, end);
  if (work->is.kind != CME || end == 0) return HARK_OK;
  HARK_TRY(make_result(context, work, most));
  for (int64_t position = 0; position < end; position += most) {
    const int64_t count = hark_min(most, end - position);
    take_rows(work, 0, count);
    *work->first_position = position;
    work->call.outputs[0].shape[1] = count;
    HARK_TRY(hark_operator_forward(context, &work->call));
  }
  return HARK_OK;
}

static hark_status forward(hark_context *context, void *data) {
  decode_work *work = data;
  for (int64_t position = work->is.length - work->stretch; position < work->is.length; position++) {
    take_rows(work, position, 1);
    HARK_TRY(hark_operator_forward(context, &work->call));
  }
  return HARK_OK;
}

static double operations_of(decode_work *work) {
  double sum = 0;
  for (int64_t position = work->is.length - work->stretch; position < work->is.length; position++) {
    *work->first_position = position;
    sum += work->call.op->operations(work->call.attributes, work->call.inputs, work->call.input_count, false);
  }
  return sum;
}

hark_status hark_bench_decode(hark_context *context, hark_bench_machine *machine, const hark_bench_settings *settings, const char *text) {
  decode_work work = {0};
  HARK_TRY(read_case(context, text, &work.is));
  set_attributes(&work);
  work.call.op = hark_operator_find(kinds[work.is.kind].op);
  hark_status status = make_tensors(context, &work);
  if (status == HARK_OK) status = fill_cache(context, &work);
  if (status == HARK_OK) status = make_result(context, &work, 1);
  if (status == HARK_OK) {
    const hark_bench_work measured = {.name = text,
                                      .forward = forward,
                                      .data = &work,
                                      .forward_operations = operations_of(&work),
                                      .tensor_bytes = hark_bench_bytes(work.call.inputs + ROWS, kinds[work.is.kind].caches),
                                      .workspace_bytes = (double)work.call.workspace_bytes,
                                      .single = true};
    status = hark_bench_work_run(context, machine, settings, &measured);
  }
  hark_tensor_destroy(context, &work.workspace);
  hark_tensor_destroy(context, &work.call.outputs[0]);
  for (int i = 0; i < ROWS; i++) hark_tensor_destroy(context, &work.rows[i]);
  for (int i = 0; i < kinds[work.is.kind].caches; i++) hark_tensor_destroy(context, &work.call.inputs[ROWS + i]);
  return status;
}
