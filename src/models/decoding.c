/* decoding.c - token-by-token decoding: keys and values of earlier tokens are kept, so that a new token costs one row.
 *
 * A hierarchical or compressed cache keeps only a part of them and cannot be cut. Its decoding also keeps the tokens (4 bytes each). After
 * a cut or an error the caches are "stale", and the tokens are read again with the next ones. The same is done if rotary rates depend on
 * the length of the text (scaling dynamic and longrope): when the text grows, earlier tokens need other rotations in every layer, as in a
 * pass over the whole text.
 *
 * All memory of a decoding is in one block, from the context or the caller. The order of its parts depends only on the model, the capacity
 * and the context's backend. So the size of the block is computed by making the small parts once:
 *
 *     | decoding | descriptions of caches and tables | plans | tape | tokens |
 *     | logits, candidates | history, caches, tables | the tape's pool |
 *       first row: small parts, also made to compute the size; second row: sizes from descriptions and a shape-only run
 *
 * Decoding runs inside that block (hark_arena_begin): a call that requested more memory would fail with HARK_OUT_OF_MEMORY, but none does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/hierarchy.h"
#include "core/arena.h"
#include "core/checksum.h"
#include "core/overlap.h"
#include "core/structs.h"
#include "models/boundaries.h"
#include "models/decoding.h"
#include "models/sampling.h"
#include "ops/boundary_pair.h"

/* Limit on lengths. Counts of tokens are then far from overflow. */
#define MAXIMUM_CAPACITY ((int64_t)1 << 40)

#define SAVED_VERSION 4
static const char saved_magic[8] = {'h', 'a', 'r', 'k', 'r', 'e', 'a', 'd'};

static const hark_network_config *config_of(const hark_model *model) { return &model->network->config; }

static const hark_self_attention_spec *attention_of(const hark_decoding *decoding, int64_t layer) {
  return &decoding->model->network->blocks[layer].attention.spec;
}

static int64_t layers_of(const hark_decoding *decoding) { return config_of(decoding->model)->layers; }

/* The first layer whose cache cannot be cut, or -1. */
static int64_t forgetful_layer(const hark_decoding *decoding) {
  for (int64_t layer = 0; layer < layers_of(decoding); layer++)
    if (!hark_attention_cache_goes_back(attention_of(decoding, layer))) return layer;
  return -1;
}

/* Whether a layer has chunks of different lengths, by the rule *ends: the same in all layers. */
static bool has_unequal_chunks(const hark_decoding *decoding, hark_chunk_ends *ends) {
  const hark_attention_choice *choice = &config_of(decoding->model)->attention;
  *ends = hark_attention_chunk_ends(choice);
  return hark_layer_choice_has(&choice->structure, HARK_STRUCTURE_COMPRESSED) && hark_attention_chunks_differ(choice);
}

/* Whether the tokens alone decide where chunks begin. */
static bool is_delimited(const hark_decoding *decoding, hark_chunk_ends *ends) {
  return has_unequal_chunks(decoding, ends) && !hark_boundaries_are_learned(decoding->model->network);
}

/* All layers have the same rotary positions. */
static const hark_rotary_spec *rotary_of(const hark_decoding *decoding) { return &attention_of(decoding, 0)->rotary; }

static bool has_history(const hark_decoding *decoding) {
  if (decoding->stream) return false;
  return forgetful_layer(decoding) >= 0 || hark_rotary_depends_on_length(rotary_of(decoding));
}

/* ---- learned chunks ---- */

/* Of one query or key of a boundary. */
static size_t boundary_key_bytes(const hark_decoding *decoding) {
  const hark_network *network = decoding->model->network;
  return (size_t)network->config.width * hark_type_bytes(network->parameters.type);
}

/* Queries and keys of the boundaries of a pass on the host, and the key of the token before them. */
static size_t boundary_bytes(const hark_decoding *decoding) {
  if (!hark_boundaries_are_learned(decoding->model->network)) return 0;
  return (size_t)(2 * decoding->prefill + 1) * boundary_key_bytes(decoding);
}

/* Cuts the tokens of a pass by the queries and keys of their boundaries. */
static hark_status learn_chunks(void *user, const hark_tensor *query, const hark_tensor *key, int64_t first, int64_t count) {
  hark_decoding *decoding = user;
  hark_context *context = decoding->context;
  hark_tensor *const starts = &decoding->chunk_starts;
  hark_chunk_ends ends;
  if (query->data == NULL || starts->data == NULL) return HARK_OK; /* without memory: shapes only */
  (void)has_unequal_chunks(decoding, &ends);
  const int64_t width = query->shape[2];
  const size_t bytes = boundary_key_bytes(decoding);
  char *const keys = decoding->boundary_rows, *const queries = keys + (size_t)(decoding->prefill + 1) * bytes; /* row 0: the key before */
  HARK_TRY(hark_backend_read(context, queries, (const char *)query->data + (size_t)first * bytes, (size_t)count * bytes));
  HARK_TRY(hark_backend_read(context, keys + bytes, (const char *)key->data + (size_t)first * bytes, (size_t)count * bytes));
  if (decoding->length == 0) {
    starts->shape[0] = decoding->chunk.length = 0;
    memset(keys, 0, bytes);
  }
  for (int64_t i = 0; i < count; i++) {
    const int64_t position = decoding->length + i;
    const hark_boundary_pair pair = hark_boundary_pair_at(query->type == HARK_F64, queries, i * width, keys, i * width, width);
    double p = hark_boundary_probability(pair);
    if (query->type == HARK_F32) p = (double)(float)p; /* as boundary_probability stores it */
    if (position == 0 || decoding->chunk.length >= ends.maximum ||
        (decoding->chunk.length >= ends.minimum && p >= HARK_BOUNDARY_THRESHOLD)) {
      HARK_TRY(hark_backend_write(context, (int64_t *)starts->data + starts->shape[0]++, &position, sizeof position));
      decoding->chunk.length = 0;
    }
    decoding->chunk.length++;
  }
  memmove(keys, keys + (size_t)count * bytes, bytes);
  return HARK_OK;
}

/* ---- making ---- */

hark_forward hark_decoding_forward(hark_decoding *decoding, hark_tape *tape, int64_t first, int64_t count) {
  return (hark_forward){.tape = tape,
                        .parameters = &decoding->model->network->parameters,
                        .first_position = first,
                        .reach = decoding->reach,
                        .plans = count == 1 ? decoding->step_plans : decoding->prefill_plans,
                        .caches = decoding->caches,
                        .cancel = decoding->cancel,
                        .cancel_user = decoding->cancel_user,
                        .log_kernels = decoding->log_kernels,
                        .chunk_starts = &decoding->chunk_starts,
                        .learn = learn_chunks,
                        .learn_user = decoding,
                        .report = &decoding->report};
}

static hark_status run_pass(hark_decoding *decoding, int64_t first, int64_t count, hark_value *logits) {
  hark_tape_reset(decoding->tape);
  hark_tape_set_recording(decoding->tape, false);
  const hark_forward forward = hark_decoding_forward(decoding, decoding->tape, first, count);
  hark_tensor rows = decoding->tokens;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  hark_value tokens = 0;
  HARK_TRY(hark_tape_leaf(decoding->tape, &rows, NULL, &tokens));
  return hark_stack_logits(decoding->context, decoding->model->network, &forward, tokens, true, logits);
}

/* Describes the call that computes what attention takes in place of a table, and its workspace. `from` is borrowed. */
static hark_status describe_means(hark_decoding *decoding, const hark_attention_cache_table *from, const hark_tensor *table,
                                  hark_call *call) {
  hark_inferred inferred = {0};
  *call = (hark_call){.op = from->op, .attributes = &from->attributes, .input_count = 1, .inputs = {*table}};
  HARK_TRY(call->op->infer(decoding->context, call->attributes, call->inputs, 1, &inferred));
  call->outputs[0] = inferred.outputs[0];
  call->workspace_bytes = inferred.forward_workspace;
  return HARK_OK;
}

/* The layer whose table this layer uses. With one kernel for the model: the first layer that also uses the table, or its means; else the
 * layer itself. */
static int64_t table_owner(const hark_decoding *decoding, int64_t layer) {
  if (config_of(decoding->model)->positional_scope != HARK_SCOPE_MODEL) return layer;
  const hark_operator *op = hark_attention_cache_table_of(attention_of(decoding, layer), decoding->capacity).op;
  for (int64_t i = 0; i < layer; i++)
    if (hark_attention_cache_table_of(attention_of(decoding, i), decoding->capacity).op == op) return i;
  return layer;
}

static bool owns_table(const hark_decoding *decoding, int64_t layer) {
  return decoding->log_kernels != NULL && table_owner(decoding, layer) == layer;
}

/* The table of log G of a layer. */
static hark_status describe_log_kernel(hark_decoding *decoding, int64_t layer, hark_tensor *out) {
  const hark_network *network = decoding->model->network;
  const int64_t shape[] = {network->positional_source.rows,
                           hark_attention_cache_distances(attention_of(decoding, layer), decoding->capacity)};
  return hark_tensor_describe(decoding->context, network->parameters.type, 2, shape, out);
}

static hark_status describe_table(hark_decoding *decoding, int64_t layer, size_t *workspace_bytes) {
  hark_context *context = decoding->context;
  const hark_network *network = decoding->model->network;
  hark_tensor *const table = &decoding->log_kernels[layer];
  const hark_attention_cache_table from = hark_attention_cache_table_of(attention_of(decoding, layer), decoding->capacity);
  hark_call call;
  size_t bytes = 0;
  HARK_TRY(describe_log_kernel(decoding, layer, table));
  HARK_TRY(hark_positional_fill_bytes(context, &network->parameters, hark_stack_positional(network, layer), table, &bytes));
  *workspace_bytes = hark_max(*workspace_bytes, bytes);
  if (from.op == NULL) return HARK_OK;
  if (decoding->table.type == HARK_NONE || table->shape[1] > decoding->table.shape[1]) decoding->table = *table;
  HARK_TRY(describe_means(decoding, &from, table, &call));
  *table = call.outputs[0];
  *workspace_bytes = hark_max(*workspace_bytes, call.workspace_bytes);
  return HARK_OK;
}

/* Describes the positional kernel's tables, without their numbers. */
static hark_status describe_tables(hark_decoding *decoding) {
  const int64_t layers = layers_of(decoding);
  size_t bytes = 0;
  void *memory = NULL;
  if (!hark_positional_source_given(&decoding->model->network->positional_source)) return HARK_OK;
  HARK_TRY(hark_allocate_zero(decoding->context, (size_t)layers * sizeof *decoding->log_kernels, &memory));
  decoding->log_kernels = memory;
  for (int64_t i = 0; i < layers; i++) HARK_TRY(describe_table(decoding, i, &bytes));
  const int64_t elements = (int64_t)bytes;
  return hark_tensor_describe(decoding->context, HARK_U8, 1, &elements, &decoding->table_workspace);
}

static hark_status allocate_tables(hark_decoding *decoding) {
  for (int64_t i = 0; decoding->log_kernels != NULL && i < layers_of(decoding); i++) {
    if (owns_table(decoding, i))
      HARK_TRY(hark_tensor_allocate(decoding->context, &decoding->log_kernels[i]));
    else
      decoding->log_kernels[i].data = decoding->log_kernels[table_owner(decoding, i)].data;
  }
  HARK_TRY(hark_tensor_allocate(decoding->context, &decoding->table));
  return hark_tensor_allocate(decoding->context, &decoding->table_workspace);
}

/* Computes the tables from the present weights, at the beginning of a text. */
static hark_status fill_tables(hark_decoding *decoding) {
  const hark_network *network = decoding->model->network;
  hark_call call;
  for (int64_t i = 0; i < layers_of(decoding); i++) {
    if (!owns_table(decoding, i)) continue;
    const hark_attention_cache_table from = hark_attention_cache_table_of(attention_of(decoding, i), decoding->capacity);
    hark_tensor table = decoding->log_kernels[i];
    if (from.op != NULL) {
      HARK_TRY(describe_log_kernel(decoding, i, &table));
      table.data = decoding->table.data;
    }
    HARK_TRY(hark_positional_fill(decoding->context, &network->parameters, hark_stack_positional(network, i), &decoding->table_workspace,
                                  &table));
    if (from.op == NULL) continue;
    HARK_TRY(describe_means(decoding, &from, &table, &call));
    call.outputs[0] = decoding->log_kernels[i];
    call.workspace = decoding->table_workspace.data;
    HARK_TRY(hark_operator_forward(decoding->context, &call));
  }
  return HARK_OK;
}

/* As many chunks as the capacity may have. */
static hark_status describe_chunks(hark_decoding *decoding) {
  hark_chunk_ends ends;
  if (!has_unequal_chunks(decoding, &ends)) return HARK_OK;
  const int64_t most = (decoding->capacity - 1) / ends.minimum + 1;
  return hark_tensor_describe(decoding->context, HARK_I64, 1, &most, &decoding->chunk_starts);
}

/* Makes the small parts, and computes the sizes of the rest. */
static hark_status make_small(hark_decoding *decoding) {
  hark_context *context = decoding->context;
  const hark_network *network = decoding->model->network;
  const int64_t layers = network->config.layers, shape[] = {1, decoding->prefill};
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)layers * sizeof *decoding->caches, &memory));
  decoding->caches = memory;
  for (int64_t layer = 0; layer < layers; layer++)
    HARK_TRY(hark_attention_cache_describe(context, attention_of(decoding, layer), network->parameters.type, decoding->capacity,
                                           &decoding->caches[layer]));
  HARK_TRY(describe_tables(decoding));
  HARK_TRY(describe_chunks(decoding));
  const hark_pass_sizes prefill = {.batch = 1, .queries = decoding->prefill, .keys = decoding->capacity, .cached = true},
                        step = {.batch = 1, .queries = 1, .keys = decoding->capacity, .cached = true};
  HARK_TRY(hark_network_plans_create(context, network, &prefill, false, &decoding->prefill_plans));
  HARK_TRY(hark_network_plans_create(context, network, &step, false, &decoding->step_plans));
  HARK_TRY(hark_tensor_create(context, HARK_I32, 2, shape, &decoding->tokens));
  HARK_TRY(hark_allocate(context, (size_t)network->config.vocabulary * sizeof *decoding->logits, &memory));
  decoding->logits = memory;
  HARK_TRY(hark_allocate(context, hark_sampling_scratch_bytes(network->config.vocabulary), &decoding->candidates));
  HARK_TRY(hark_tape_create(context, &decoding->tape));
  hark_value logits = 0;
  hark_tape_set_shape_only(decoding->tape, true);
  hark_status status = run_pass(decoding, decoding->capacity - decoding->prefill, decoding->prefill, &logits);
  if (status == HARK_OK) status = run_pass(decoding, decoding->capacity - 1, 1, &logits);
  hark_tape_set_shape_only(decoding->tape, false);
  HARK_TRY(status);
  return hark_tape_prepare(decoding->tape);
}

static hark_status make_large(hark_decoding *decoding) {
  void *memory = NULL;
  if (has_history(decoding)) HARK_TRY(hark_allocate(decoding->context, (size_t)decoding->capacity * sizeof *decoding->history, &memory));
  decoding->history = memory;
  for (int64_t layer = 0; layer < layers_of(decoding); layer++)
    HARK_TRY(hark_attention_cache_create(decoding->context, &decoding->caches[layer]));
  HARK_TRY(allocate_tables(decoding));
  if (decoding->chunk_starts.type != HARK_NONE) HARK_TRY(hark_tensor_allocate(decoding->context, &decoding->chunk_starts));
  if (boundary_bytes(decoding) > 0) HARK_TRY(hark_allocate(decoding->context, boundary_bytes(decoding), &decoding->boundary_rows));
  return hark_tape_reserve(decoding->tape);
}

static hark_status add_tensor(hark_context *context, const hark_tensor *tensor, size_t *total) {
  if (tensor->type == HARK_NONE) return HARK_OK;
  const size_t bytes = (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type);
  return hark_size_add(context, *total, hark_align_up(bytes), total);
}

/* Adds to *total the bytes that make_large() will allocate. */
static hark_status add_large(const hark_decoding *decoding, size_t *total) {
  hark_context *context = decoding->context;
  size_t history = 0;
  if (has_history(decoding)) HARK_TRY(hark_size_multiply(context, (size_t)decoding->capacity, sizeof *decoding->history, &history));
  HARK_TRY(hark_size_add(context, *total, hark_align_up(history), total));
  for (int64_t layer = 0; layer < layers_of(decoding); layer++)
    for (int i = 0; i < HARK_CACHE_PARTS; i++) HARK_TRY(add_tensor(context, &decoding->caches[layer].part[i], total));
  for (int64_t i = 0; i < layers_of(decoding); i++)
    if (owns_table(decoding, i)) HARK_TRY(add_tensor(context, &decoding->log_kernels[i], total));
  HARK_TRY(add_tensor(context, &decoding->table, total));
  HARK_TRY(add_tensor(context, &decoding->table_workspace, total));
  HARK_TRY(add_tensor(context, &decoding->chunk_starts, total));
  HARK_TRY(hark_size_add(context, *total, hark_align_up(boundary_bytes(decoding)), total));
  return hark_size_add(context, *total, hark_align_up(hark_tape_peak_bytes(decoding->tape)), total);
}

static void release_parts(hark_decoding *decoding) {
  hark_context *context = decoding->context;
  const hark_network *network = decoding->model->network;
  const int64_t layers = network->config.layers, vocabulary = network->config.vocabulary;
  hark_tape_destroy(&decoding->tape);
  hark_network_plans_destroy(context, network, &decoding->prefill_plans);
  hark_network_plans_destroy(context, network, &decoding->step_plans);
  if (decoding->caches != NULL)
    for (int64_t layer = 0; layer < layers; layer++) hark_attention_cache_destroy(context, &decoding->caches[layer]);
  for (int64_t i = 0; i < layers; i++)
    if (owns_table(decoding, i)) hark_tensor_destroy(context, &decoding->log_kernels[i]);
  hark_tensor_destroy(context, &decoding->table);
  hark_tensor_destroy(context, &decoding->table_workspace);
  hark_tensor_destroy(context, &decoding->chunk_starts);
  hark_release(context, decoding->boundary_rows, boundary_bytes(decoding));
  hark_release(context, decoding->log_kernels, (size_t)layers * sizeof *decoding->log_kernels);
  hark_release(context, decoding->caches, (size_t)layers * sizeof *decoding->caches);
  hark_tensor_destroy(context, &decoding->tokens);
  hark_release(context, decoding->history, (size_t)decoding->capacity * sizeof *decoding->history);
  hark_release(context, decoding->logits, (size_t)vocabulary * sizeof *decoding->logits);
  hark_release(context, decoding->candidates, hark_sampling_scratch_bytes(vocabulary));
}

/* A stream is read once, and its caches have a size. */
static hark_status check_stream(hark_context *context, const hark_network *network) {
  const hark_network_config *config = &network->config;
  if (config->positions == HARK_POSITIONS_LEARNED)
    return hark_fail(context, HARK_UNSUPPORTED, "decoding: a stream, and learned positions end at the context of %" PRId64 " tokens",
                     config->context);
  for (int64_t layer = 0; layer < config->layers; layer++) {
    const hark_self_attention_spec *spec = &network->blocks[layer].attention.spec;
    const bool compressed = spec->structure == HARK_STRUCTURE_COMPRESSED;
    if (hark_rotary_depends_on_length(&spec->rotary))
      return hark_fail(context, HARK_UNSUPPORTED, "decoding: a stream, and the rotary rates depend on the length of the text");
    if (compressed && (spec->choice.kept_chunks == 0 || hark_attention_chunks_differ(&spec->choice)))
      return hark_fail(context, HARK_UNSUPPORTED,
                       "decoding: a stream, and compressed attention with %s keeps something of every chunk, expected kept_chunks above 0 "
                       "and chunks of one length",
                       spec->choice.kept_chunks == 0 ? "kept_chunks 0" : "chunks of different lengths");
    if (!compressed && spec->structure != HARK_STRUCTURE_HIERARCHICAL)
      return hark_fail(context, HARK_UNSUPPORTED,
                       "decoding: a stream, and layer %" PRId64
                       " keeps every token, expected layers of structure compressed or hierarchical",
                       layer + 1);
  }
  return HARK_OK;
}

hark_status hark_decoding_take_options(hark_context *context, const hark_model *model, const hark_decoding_options *given,
                                       hark_decoding_options *out) {
  *out = (hark_decoding_options){.struct_size = sizeof *out};
  HARK_TRY(hark_model_check_decoder(context, "decoding", model));
  if (given != NULL) HARK_TRY(hark_take_struct(context, "hark_decoding_options", given, HARK_LEAST_DECODING_OPTIONS, out, sizeof *out));
  if (out->capacity == 0) out->capacity = out->stream ? MAXIMUM_CAPACITY : config_of(model)->context;
  if (out->capacity < 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: a capacity of %" PRId64 " tokens, expected at least 1", out->capacity);
  if (out->capacity > MAXIMUM_CAPACITY)
    return hark_fail(context, HARK_TOO_LARGE, "decoding: a capacity of %" PRId64 " tokens, expected at most %" PRId64, out->capacity,
                     MAXIMUM_CAPACITY);
  if (out->stream) HARK_TRY(check_stream(context, model->network));
  if (context->backend != model->backend)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: the context's backend is %s, the model's %s", context->backend->name,
                     model->backend->name);
  return HARK_OK;
}

static hark_decoding begin(hark_context *context, const hark_model *model, const hark_decoding_options *options) {
  return (hark_decoding){.context = context,
                         .model = model,
                         .stream = options->stream,
                         .capacity = options->capacity,
                         .prefill = hark_min(options->capacity, HARK_PREFILL_TOKENS)};
}

hark_status hark_decoding_describe(hark_context *context, const hark_model *model, const hark_decoding_options *options,
                                   hark_decoding *out) {
  *out = begin(context, model, options);
  return make_small(out);
}

void hark_decoding_close(hark_decoding *decoding) { release_parts(decoding); }

/* The size of the block, which begins on HARK_ALIGNMENT. */
static hark_status measure(hark_context *context, const hark_model *model, const hark_decoding_options *options, size_t *bytes) {
  hark_decoding decoding = begin(context, model, options);
  hark_arena arena = {0};
  hark_arena_begin(context, &arena);
  hark_status status = make_small(&decoding);
  size_t total = arena.used;
  if (status == HARK_OK) status = add_large(&decoding, &total);
  release_parts(&decoding);
  hark_arena_end(context, &arena);
  HARK_TRY(status);
  return hark_size_add(context, total, hark_align_up(sizeof(hark_decoding)), bytes);
}

hark_status hark_decoding_size(hark_context *context, const hark_model *model, const hark_decoding_options *given, size_t *bytes) {
  hark_decoding_options options;
  *bytes = 0;
  HARK_TRY(hark_decoding_take_options(context, model, given, &options));
  HARK_TRY(measure(context, model, &options, bytes));
  return hark_size_add(context, *bytes, HARK_ALIGNMENT - 1, bytes); /* the caller's block may begin anywhere */
}

hark_status hark_decoding_create(hark_context *context, const hark_model *model, const hark_decoding_options *given, hark_decoding **out) {
  hark_decoding_options options;
  size_t bytes = 0, skipped = 0;
  void *block = NULL;
  *out = NULL;
  HARK_TRY(hark_decoding_take_options(context, model, given, &options));
  HARK_TRY(measure(context, model, &options, &bytes));
  if (options.memory == NULL) {
    HARK_TRY(hark_allocate(context, bytes, &block));
  } else {
    skipped = (HARK_ALIGNMENT - (uintptr_t)options.memory % HARK_ALIGNMENT) % HARK_ALIGNMENT;
    if (options.memory_bytes < skipped || options.memory_bytes - skipped < bytes)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %zu bytes of memory, expected at least %zu", options.memory_bytes,
                       bytes + skipped);
    const hark_tensor *const weights[] = {&model->network->parameters.weights, &model->network->parameters.compact};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
      HARK_TRY(hark_check_apart(context, "decoding: memory and the model's weights", options.memory, options.memory_bytes, weights[i]->data,
                                (size_t)hark_tensor_count(weights[i]) * hark_type_bytes(weights[i]->type), false));
  }
  hark_decoding *decoding = block != NULL ? block : (void *)((char *)options.memory + skipped);
  *decoding = begin(context, model, &options);
  decoding->block = block;
  decoding->block_bytes = bytes;
  decoding->arena = (hark_arena){.memory = (char *)decoding, .bytes = bytes, .used = hark_align_up(sizeof *decoding)};
  hark_arena_begin(context, &decoding->arena);
  hark_status status = make_small(decoding);
  if (status == HARK_OK) status = make_large(decoding);
  hark_arena_end(context, &decoding->arena);
  if (status != HARK_OK) {
    hark_decoding_destroy(&decoding);
    return status;
  }
  decoding->cancel = options.cancel;
  decoding->cancel_user = options.cancel_user;
  *out = decoding;
  return HARK_OK;
}

void hark_decoding_destroy(hark_decoding **decoding_pointer) {
  if (decoding_pointer == NULL || *decoding_pointer == NULL) return;
  hark_decoding *decoding = *decoding_pointer;
  hark_context *context = decoding->context;
  *decoding_pointer = NULL;
  hark_arena_begin(context, &decoding->arena);
  release_parts(decoding);
  hark_arena_end(context, &decoding->arena);
  hark_release(context, decoding->block, decoding->block_bytes);
}

/* ---- reading ---- */

hark_status hark_decoding_cut(hark_decoding *decoding, const int32_t *tokens, int64_t first, int64_t count) {
  hark_tensor *const starts = &decoding->chunk_starts;
  hark_chunk_ends ends;
  if (!is_delimited(decoding, &ends) || starts->data == NULL) return HARK_OK; /* without memory: shapes only */
  if (first == 0) {
    starts->shape[0] = 0;
    decoding->chunk_ended = true;
    decoding->chunk = (hark_chunk_reader){{0}, 0};
  }
  for (int64_t i = 0; i < count; i++) {
    const int64_t position = first + i;
    if (decoding->chunk_ended)
      HARK_TRY(hark_backend_write(decoding->context, (int64_t *)starts->data + starts->shape[0]++, &position, sizeof position));
    decoding->chunk_ended = hark_chunk_read(&decoding->chunk, &ends, tokens[i]);
  }
  return HARK_OK;
}

/* *logits: those after the last token. */
static hark_status read_in(hark_decoding *decoding, const int32_t *tokens, int64_t count, hark_value *logits) {
  for (int64_t done = 0; done < count;) {
    const int64_t rows = hark_min(count - done, decoding->prefill);
    HARK_TRY(hark_backend_write(decoding->context, decoding->tokens.data, tokens + done, (size_t)rows * sizeof *tokens));
    HARK_TRY(hark_decoding_cut(decoding, tokens + done, decoding->length, rows));
    HARK_TRY(run_pass(decoding, decoding->length, rows, logits));
    decoding->length += rows;
    done += rows;
  }
  return HARK_OK;
}

hark_status hark_decoding_prepare(hark_decoding *decoding, int64_t count) {
  hark_value logits = 0;
  const int64_t length = decoding->length, reach = length + count;
  if (length == 0) HARK_TRY(fill_tables(decoding));
  decoding->stale = decoding->stale || (length > 0 && !hark_rotary_same_rates(rotary_of(decoding), decoding->reach, reach));
  decoding->reach = reach;
  if (decoding->stale && !has_history(decoding))
    return hark_fail(decoding->context, HARK_INVALID_ARGUMENT,
                     "decoding: an error interrupted this stream after %" PRId64 " tokens, expected hark_decoding_truncate() to 0 first",
                     length);
  if (decoding->stale) {
    decoding->length = 0;
    HARK_TRY(read_in(decoding, decoding->history, length, &logits));
    decoding->stale = false;
  }
  return HARK_OK;
}

void hark_decoding_keep(hark_decoding *decoding, const int32_t *tokens, int64_t count) {
  if (decoding->history != NULL) memcpy(decoding->history + decoding->length - count, tokens, (size_t)count * sizeof *tokens);
}

static hark_status append(hark_decoding *decoding, const int32_t *tokens, int64_t count) {
  hark_value logits = 0;
  HARK_TRY(hark_decoding_prepare(decoding, count));
  HARK_TRY(read_in(decoding, tokens, count, &logits));
  hark_decoding_keep(decoding, tokens, count);
  return hark_tensor_read(decoding->context, hark_tape_tensor(decoding->tape, logits), decoding->logits);
}

/* Cuts to the first `length` tokens; a length of 0 needs no caches. Caches made with the rotary rates of a longer text become stale, even
 * if the next token would make the text long again: so the results are the same as after saving and restoring. */
void hark_decoding_go_back(hark_decoding *decoding, int64_t length) {
  const bool same_rates = hark_rotary_same_rates(rotary_of(decoding), decoding->reach, length);
  decoding->stale = length > 0 && (decoding->stale || forgetful_layer(decoding) >= 0 || !same_rates);
  decoding->length = length;
}

bool hark_decoding_depends_on_length(const hark_decoding *decoding) { return hark_rotary_depends_on_length(rotary_of(decoding)); }

hark_status hark_decoding_check_tokens(const hark_decoding *decoding, const int32_t *tokens, int64_t count) {
  hark_context *context = decoding->context;
  const int64_t before = decoding->length, vocabulary = config_of(decoding->model)->vocabulary;
  if (before == decoding->capacity && count > 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: there is no room, its capacity of %" PRId64 " tokens is used", before);
  if (tokens == NULL) return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: no tokens");
  if (count < 1 || count > decoding->capacity - before)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %" PRId64 " tokens to read, expected 1 to %" PRId64, count,
                     decoding->capacity - before);
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: token %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64, i, tokens[i],
                       vocabulary - 1);
  return HARK_OK;
}

hark_status hark_decoding_prefill(hark_decoding *decoding, const int32_t *tokens, int64_t count) {
  hark_context *context = decoding->context;
  const int64_t before = decoding->length;
  decoding->has_logits = false;
  HARK_TRY(hark_decoding_check_tokens(decoding, tokens, count));
  hark_arena_begin(context, &decoding->arena);
  const hark_status status = append(decoding, tokens, count);
  hark_arena_end(context, &decoding->arena);
  decoding->has_logits = status == HARK_OK;
  if (status != HARK_OK) hark_decoding_go_back(decoding, before);
  return status;
}

hark_status hark_decoding_step(hark_decoding *decoding, int32_t token) { return hark_decoding_prefill(decoding, &token, 1); }

float *hark_decoding_logits(hark_decoding *decoding) { return decoding->has_logits ? decoding->logits : NULL; }

hark_status hark_decoding_choose(hark_decoding *decoding, const hark_sampling *sampling, uint64_t index, int32_t *token) {
  hark_context *context = decoding->context;
  hark_sampling known = hark_sampling_default();
  HARK_TRY(hark_take_struct(context, "hark_sampling", sampling, HARK_LEAST_SAMPLING, &known, sizeof known));
  if (!decoding->has_logits) return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: there are no logits to choose from");
  return hark_sampling_choose(context, &known, decoding->logits, config_of(decoding->model)->vocabulary,
                              config_of(decoding->model)->unreserved ? 0 : HARK_TOKEN_RESERVED, index, decoding->candidates, token);
}

hark_status hark_decoding_truncate(hark_decoding *decoding, int64_t length) {
  if (length < 0 || length > decoding->length)
    return hark_fail(decoding->context, HARK_INVALID_ARGUMENT, "decoding: cannot cut %" PRId64 " tokens to %" PRId64, decoding->length,
                     length);
  if (decoding->stream && length > 0 && (length < decoding->length || decoding->stale))
    return hark_fail(decoding->context, HARK_UNSUPPORTED, "decoding: a stream cannot be cut to %" PRId64 " tokens, expected 0", length);
  if (length < decoding->length) hark_decoding_go_back(decoding, length);
  decoding->has_logits = false;
  return HARK_OK;
}

int64_t hark_decoding_length(const hark_decoding *decoding) { return decoding->length; }

int64_t hark_decoding_capacity(const hark_decoding *decoding) { return decoding->capacity; }

int64_t hark_decoding_mended_pivots(const hark_decoding *decoding) { return decoding->report.pivots; }

/* ---- saving ----
 *
 *     header | tokens (i32), if they may have to be read again | learned chunks, unless stale: their starts (i64), and the key of the last
 *     token's boundary | caches of every layer, unless stale | logits, if any | checksum (u64)
 *
 * A cache is saved as the rows of its tokens; a hierarchical one with all levels, a compressed one with what its tokens need. The checksum
 * is that of everything before it.
 *
 * A hierarchical cache with another number of levels cannot be restored: the tokens are restored, and read again with the next ones.
 * Numbers are little-endian, as in all files of hark. */

typedef struct saved_header {
  char magic[sizeof saved_magic];
  uint64_t version, fingerprint, bytes, length, has_logits;
  uint64_t levels;   /* of hierarchical caches; 1 where there are none; 0: no caches */
  uint64_t finished; /* chunks that another one follows, where they have different lengths and there are caches; else 0 */
} saved_header;

static int64_t cache_parts(const hark_decoding *decoding) { return HARK_CACHE_PARTS * config_of(decoding->model)->layers; }
static const hark_tensor *cache_part(const hark_decoding *decoding, int64_t number) {
  return &decoding->caches[number / HARK_CACHE_PARTS].part[number % HARK_CACHE_PARTS];
}

/* The first layer with a hierarchical cache, or -1. */
static int64_t hierarchical_layer(const hark_decoding *decoding) {
  for (int64_t layer = 0; layer < layers_of(decoding); layer++)
    if (attention_of(decoding, layer)->structure == HARK_STRUCTURE_HIERARCHICAL) return layer;
  return -1;
}

static uint64_t cache_levels(const hark_decoding *decoding) {
  const int64_t layer = hierarchical_layer(decoding);
  return layer < 0 ? 1 : (uint64_t)cache_part(decoding, layer * HARK_CACHE_PARTS + HARK_CACHE_KEY)->shape[0];
}

/* Bytes of a part that are saved with this header. */
static size_t part_bytes(const hark_decoding *decoding, const saved_header *header, int64_t number) {
  const hark_tensor *part = cache_part(decoding, number);
  const int64_t layer = number / HARK_CACHE_PARTS;
  if (part->type == HARK_NONE || header->levels == 0) return 0;
  const int64_t front =
      hark_attention_cache_front(attention_of(decoding, layer), &decoding->caches[layer], (int)(number % HARK_CACHE_PARTS),
                                 (int64_t)header->length, (int64_t)header->levels, (int64_t)header->finished);
  return (size_t)front * hark_type_bytes(part->type);
}

static size_t history_bytes(const hark_decoding *decoding, const saved_header *header) {
  return has_history(decoding) ? (size_t)header->length * sizeof *decoding->history : 0;
}

/* Of learned chunks. */
static size_t learned_bytes(const hark_decoding *decoding, const saved_header *header) {
  if (!hark_boundaries_are_learned(decoding->model->network) || header->levels == 0) return 0;
  return (size_t)(header->finished + 1) * sizeof(int64_t) + boundary_key_bytes(decoding);
}

static size_t logit_bytes(const hark_decoding *decoding) { return (size_t)config_of(decoding->model)->vocabulary * sizeof(float); }

static size_t saved_bytes(const hark_decoding *decoding, const saved_header *header) {
  size_t bytes = sizeof *header + history_bytes(decoding, header) + learned_bytes(decoding, header) + sizeof(uint64_t);
  for (int64_t i = 0; i < cache_parts(decoding); i++) bytes += part_bytes(decoding, header, i);
  return bytes + (header->has_logits ? logit_bytes(decoding) : 0);
}

static saved_header header_of(const hark_decoding *decoding) {
  saved_header header = {.version = SAVED_VERSION,
                         .fingerprint = decoding->model->fingerprint,
                         .length = (uint64_t)decoding->length,
                         .has_logits = decoding->has_logits,
                         .levels = decoding->stale || decoding->length == 0 ? 0 : cache_levels(decoding)};
  memcpy(header.magic, saved_magic, sizeof saved_magic);
  if (header.levels > 0 && decoding->chunk_starts.type != HARK_NONE) header.finished = (uint64_t)decoding->chunk_starts.shape[0] - 1;
  header.bytes = saved_bytes(decoding, &header);
  return header;
}

size_t hark_decoding_saved_bytes(const hark_decoding *decoding) { return header_of(decoding).bytes; }

static uint64_t checksum_of(const void *data, size_t bytes) { return hark_checksum_block(HARK_CHECKSUM_START, data, bytes); }

hark_status hark_decoding_save(const hark_decoding *decoding, void *data, size_t bytes) {
  hark_context *context = decoding->context;
  const saved_header header = header_of(decoding);
  if (decoding->stale && !has_history(decoding))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: an error interrupted this stream, there is nothing to save");
  if (bytes < header.bytes)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %zu bytes to save into, expected at least %zu", bytes,
                     (size_t)header.bytes);
  HARK_TRY(hark_check_apart(context, "decoding: the saved bytes and the decoding", data, bytes, decoding, decoding->arena.bytes, false));
  char *at = data;
  memcpy(at, &header, sizeof header);
  at += sizeof header;
  if (decoding->history != NULL) memcpy(at, decoding->history, history_bytes(decoding, &header));
  at += history_bytes(decoding, &header);
  if (learned_bytes(decoding, &header) > 0) {
    const size_t starts = learned_bytes(decoding, &header) - boundary_key_bytes(decoding);
    HARK_TRY(hark_backend_read(context, at, decoding->chunk_starts.data, starts));
    memcpy(at + starts, decoding->boundary_rows, boundary_key_bytes(decoding));
    at += learned_bytes(decoding, &header);
  }
  for (int64_t i = 0; i < cache_parts(decoding); i++) {
    const size_t part = part_bytes(decoding, &header, i);
    if (part > 0) HARK_TRY(hark_backend_read(context, at, cache_part(decoding, i)->data, part));
    at += part;
  }
  if (header.has_logits) memcpy(at, decoding->logits, logit_bytes(decoding));
  const uint64_t checksum = checksum_of(data, header.bytes - sizeof checksum);
  memcpy((char *)data + header.bytes - sizeof checksum, &checksum, sizeof checksum);
  return HARK_OK;
}

/* The number of chunks of saved tokens that another one follows; 0 if they do not end after delimiters. */
static uint64_t finished_in(const hark_decoding *decoding, const char *tokens, uint64_t count) {
  hark_chunk_ends ends;
  uint64_t finished = 0;
  if (!is_delimited(decoding, &ends)) return 0;
  hark_chunk_reader reader = {{0}, 0};
  for (uint64_t i = 0; i + 1 < count; i++) {
    int32_t token;
    memcpy(&token, tokens + i * sizeof token, sizeof token);
    finished += hark_chunk_read(&reader, &ends, token);
  }
  return finished;
}

/* Learned chunks begin where chunks may begin. */
static hark_status check_learned(const hark_decoding *decoding, const saved_header *header, const char *saved) {
  const char *at = saved + sizeof *header + history_bytes(decoding, header);
  hark_chunk_ends ends;
  int64_t before = 0;
  if (learned_bytes(decoding, header) == 0) return HARK_OK;
  (void)has_unequal_chunks(decoding, &ends);
  for (uint64_t i = 0; i <= header->finished + 1; i++) { /* the last one: the end of the text */
    int64_t start = (int64_t)header->length;
    const bool is_end = i > header->finished;
    if (!is_end) memcpy(&start, at + i * sizeof start, sizeof start);
    const int64_t least = i == 0 ? 0 : before + (is_end ? 1 : ends.minimum), most = i == 0 ? 0 : before + ends.maximum;
    if (start < least || start > most)
      return hark_fail(decoding->context, HARK_BAD_FILE,
                       "saved decoding: a chunk ends at token %" PRId64 ", expected %" PRId64 " to %" PRId64, start, least, most);
    before = start;
  }
  return HARK_OK;
}

/* The numbers of rows in global slots are added to each other: none is above the text. */
static hark_status check_global_rows(const hark_decoding *decoding, const saved_header *header, const char *saved) {
  const char *at = saved + sizeof *header + history_bytes(decoding, header) + learned_bytes(decoding, header);
  for (int64_t i = 0; i < cache_parts(decoding); i++) {
    const size_t part = part_bytes(decoding, header, i);
    for (size_t k = 0; i % HARK_CACHE_PARTS == HARK_CACHE_GLOBAL_ROWS && k < part; k += sizeof(int64_t)) {
      int64_t rows;
      memcpy(&rows, at + k, sizeof rows);
      if (rows < 1 || (uint64_t)rows > header->length)
        return hark_fail(decoding->context, HARK_BAD_FILE,
                         "saved decoding: a global slot of layer %" PRId64 " has %" PRId64 " rows, expected 1 to %" PRIu64,
                         i / HARK_CACHE_PARTS, rows, header->length);
    }
    at += part;
  }
  return HARK_OK;
}

/* Checks everything that can be wrong with saved bytes. */
static hark_status check_saved(const hark_decoding *decoding, const void *data, size_t bytes, saved_header *header) {
  hark_context *context = decoding->context;
  uint64_t checksum;
  if (bytes < sizeof *header + sizeof checksum)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: %zu bytes, expected at least %zu", bytes, sizeof *header + sizeof checksum);
  memcpy(header, data, sizeof *header);
  if (memcmp(header->magic, saved_magic, sizeof saved_magic) != 0)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: the bytes are not a saved decoding");
  if (header->version != SAVED_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: version %" PRIu64 ", this hark reads %d", header->version, SAVED_VERSION);
  if (header->bytes != bytes)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: %zu bytes, expected %" PRIu64, bytes, header->bytes);
  memcpy(&checksum, (const char *)data + bytes - sizeof checksum, sizeof checksum);
  if (checksum != checksum_of(data, bytes - sizeof checksum))
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: is damaged: its checksum is not that of its contents");
  if (header->fingerprint != decoding->model->fingerprint) return hark_fail(context, HARK_BAD_FILE, "saved decoding: is of another model");
  if (header->length > (uint64_t)decoding->capacity)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "saved decoding: holds %" PRIu64 " tokens, there is room for %" PRId64, header->length,
                     decoding->capacity);
  const uint64_t most_levels =
      hierarchical_layer(decoding) >= 0 ? HARK_HIERARCHY_MAX_LEVELS : 1; /* the data are in memory: sizes below do not overflow */
  const bool lacks_caches = header->levels == 0 && header->length > 0 && !has_history(decoding);
  const bool has_too_much = header->length == 0 && (header->has_logits > 0 || header->levels > 0);
  hark_chunk_ends ends;
  const uint64_t most_finished =
      has_unequal_chunks(decoding, &ends) && header->levels > 0 && header->length > 0 ? (header->length - 1) / (uint64_t)ends.minimum : 0;
  if (header->has_logits > 1 || header->finished > most_finished || header->levels > most_levels || lacks_caches || has_too_much ||
      saved_bytes(decoding, header) != bytes)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: %zu bytes do not hold %" PRIu64 " tokens", bytes, header->length);
  /* tokens are rows of a table, and anybody can write a valid checksum */
  for (size_t i = 0; has_history(decoding) && i < header->length; i++) {
    int32_t token;
    memcpy(&token, (const char *)data + sizeof *header + i * sizeof token, sizeof token);
    if (token < 0 || token >= config_of(decoding->model)->vocabulary)
      return hark_fail(context, HARK_BAD_FILE, "saved decoding: token %zu is %" PRId32 ", expected 0 to %" PRId64, i, token,
                       config_of(decoding->model)->vocabulary - 1);
  }
  if (header->levels > 0 && header->levels != cache_levels(decoding) && !has_history(decoding))
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: its caches have %" PRIu64 " levels, expected %" PRIu64, header->levels,
                     cache_levels(decoding));
  HARK_TRY(check_learned(decoding, header, data));
  if (header->levels > 0 && is_delimited(decoding, &ends) &&
      header->finished != finished_in(decoding, (const char *)data + sizeof *header, header->length))
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: %" PRIu64 " chunks of its tokens are finished, expected %" PRIu64,
                     header->finished, finished_in(decoding, (const char *)data + sizeof *header, header->length));
  return check_global_rows(decoding, header, data);
}

static hark_status take_saved(hark_decoding *decoding, const saved_header *header, const char *at) {
  const size_t tokens = history_bytes(decoding, header);
  const bool fits = header->levels == cache_levels(decoding);
  HARK_TRY(fill_tables(decoding));
  if (tokens > 0) memcpy(decoding->history, at, tokens);
  if (tokens > 0) HARK_TRY(hark_decoding_cut(decoding, decoding->history, 0, (int64_t)header->length));
  at += tokens;
  if (learned_bytes(decoding, header) > 0) {
    const size_t starts = learned_bytes(decoding, header) - boundary_key_bytes(decoding);
    int64_t last;
    HARK_TRY(hark_backend_write(decoding->context, decoding->chunk_starts.data, at, starts));
    memcpy(decoding->boundary_rows, at + starts, boundary_key_bytes(decoding));
    memcpy(&last, at + starts - sizeof last, sizeof last);
    decoding->chunk_starts.shape[0] = (int64_t)header->finished + 1;
    decoding->chunk.length = (int64_t)header->length - last;
    at += learned_bytes(decoding, header);
  }
  for (int64_t i = 0; i < cache_parts(decoding); i++) {
    const size_t part = part_bytes(decoding, header, i);
    if (part > 0 && fits) HARK_TRY(hark_backend_write(decoding->context, cache_part(decoding, i)->data, at, part));
    at += part;
  }
  if (header->has_logits) memcpy(decoding->logits, at, logit_bytes(decoding));
  decoding->has_logits = header->has_logits;
  decoding->length = decoding->reach = (int64_t)header->length;
  decoding->stale = decoding->length > 0 && !fits;
  return HARK_OK;
}

hark_status hark_decoding_restore(hark_decoding *decoding, const void *data, size_t bytes) {
  saved_header header;
  HARK_TRY(hark_check_apart(decoding->context, "saved decoding: the decoding and its bytes", decoding, decoding->arena.bytes, data, bytes,
                            false));
  HARK_TRY(check_saved(decoding, data, bytes, &header));
  hark_decoding_go_back(decoding, 0); /* until everything is restored */
  decoding->has_logits = false;
  hark_arena_begin(decoding->context, &decoding->arena);
  const hark_status status = take_saved(decoding, &header, (const char *)data + sizeof header);
  hark_arena_end(decoding->context, &decoding->arena);
  return status;
}
