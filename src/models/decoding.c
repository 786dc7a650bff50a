/* decoding.c - a decoder fed token by token: keys and values of what it has read are kept, so that a new token costs one row.
 *
 * All memory of a decoding lies in one block, which the context gives or the caller. Its parts are made in the same order whenever the model,
 * the capacity and the context's backend are the same, so that making them once without the large ones tells the size of the block:
 *
 *     | decoding | descriptions of caches and tables | plans | tape | tokens | logits, candidates | keys and values, tables | the tape's pool |
 *       ^ what is small: made when the size is asked for too                           ^ sizes known from descriptions and a shape-only run
 *
 * Calls that work run inside of that block (hark_arena_begin): should one ask for memory, it would get HARK_OUT_OF_MEMORY. None does.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "core/arena.h"
#include "core/structs.h"
#include "data/checksum.h"
#include "models/model.h"
#include "models/sampling.h"

/* Tokens of one pass while a text is read in: enough rows for the products to be fast, few enough for little memory. */
#define PREFILL_TOKENS 128

#define SAVED_VERSION 1
static const char saved_magic[8] = {'h', 'a', 'r', 'k', 'r', 'e', 'a', 'd'};

struct hark_decoding {
  hark_context *context;
  const hark_model *model;
  hark_arena arena;
  void *block; /* from the context, or NULL */
  size_t block_bytes;
  hark_tape *tape;
  hark_attention_plan **prefill_plans, **step_plans;
  hark_key_value_cache *caches; /* one a layer */
  hark_tensor *log_kernels;     /* [tables] of the positional kernel, for `capacity` distances; NULL: there is none */
  hark_tensor table_workspace;  /* for filling one of them */
  int64_t tables;               /* one a layer, or 1 that all share */
  hark_tensor tokens;           /* i32 [1, prefill] */
  float *logits;                /* host */
  void *candidates;
  bool has_logits;
  int64_t capacity, length, prefill;
  bool whole; /* a structure without a cache: all tokens stay in `tokens`, and every pass computes the whole text anew */
  hark_cancel *cancel;
  void *cancel_user;
};

static const hark_decoder_config *config_of(const hark_model *model) { return &model->decoder->config; }

static int64_t cached_layers(const hark_decoding *decoding) { return decoding->whole ? 0 : config_of(decoding->model)->layers; }

/* ---- making ---- */

static hark_status run_pass(hark_decoding *decoding, int64_t first, int64_t count, hark_value *logits) {
  hark_tape_reset(decoding->tape);
  hark_tape_set_recording(decoding->tape, false);
  const hark_forward forward = {.tape = decoding->tape,
                                .parameters = &decoding->model->decoder->parameters,
                                .first_position = first,
                                .plans = count == 1 && !decoding->whole ? decoding->step_plans : decoding->prefill_plans,
                                .caches = decoding->caches,
                                .cancel = decoding->cancel,
                                .cancel_user = decoding->cancel_user,
                                .log_kernels = decoding->log_kernels};
  hark_tensor rows = decoding->tokens;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  hark_value tokens = 0;
  HARK_TRY(hark_tape_leaf(decoding->tape, &rows, NULL, &tokens));
  return hark_decoder_logits(decoding->context, decoding->model->decoder, &forward, tokens, true, logits);
}

/* The positional kernel's tables, without their numbers. */
static hark_status describe_tables(hark_decoding *decoding) {
  hark_context *context = decoding->context;
  const hark_decoder *decoder = decoding->model->decoder;
  if (decoder->positional_source.expression == NULL) return HARK_OK;
  const int64_t tables = decoder->config.positional_scope == HARK_SCOPE_MODEL ? 1 : decoder->config.layers;
  const int64_t shape[] = {decoder->positional_source.rows, decoding->capacity};
  size_t bytes = 0;
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)tables * sizeof *decoding->log_kernels, &memory));
  decoding->log_kernels = memory;
  decoding->tables = tables;
  for (int64_t i = 0; i < tables; i++)
    HARK_TRY(hark_tensor_describe(context, decoder->parameters.type, 2, shape, &decoding->log_kernels[i]));
  HARK_TRY(
      hark_positional_fill_bytes(context, &decoder->parameters, hark_decoder_positional(decoder, 0), &decoding->log_kernels[0], &bytes));
  const int64_t elements = (int64_t)bytes;
  return hark_tensor_describe(context, HARK_U8, 1, &elements, &decoding->table_workspace);
}

/* The tables follow the weights that are there where a text begins. */
static hark_status fill_tables(hark_decoding *decoding) {
  const hark_decoder *decoder = decoding->model->decoder;
  for (int64_t i = 0; i < decoding->tables; i++)
    HARK_TRY(hark_positional_fill(decoding->context, &decoder->parameters, hark_decoder_positional(decoder, i), &decoding->table_workspace,
                                  &decoding->log_kernels[i]));
  return HARK_OK;
}

/* What is small, and what the rest will need. */
static hark_status make_small(hark_decoding *decoding) {
  hark_context *context = decoding->context;
  const hark_decoder *decoder = decoding->model->decoder;
  const int64_t layers = cached_layers(decoding), shape[] = {1, decoding->prefill};
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, (size_t)layers * sizeof *decoding->caches, &memory));
  decoding->caches = memory;
  for (int64_t layer = 0; layer < layers; layer++)
    HARK_TRY(hark_key_value_cache_describe(context, &decoder->blocks[layer].attention.spec, decoder->parameters.type, decoding->capacity,
                                           &decoding->caches[layer]));
  HARK_TRY(describe_tables(decoding));
  HARK_TRY(hark_decoder_plans_create(context, decoder, 1, decoding->prefill, decoding->capacity, false, &decoding->prefill_plans));
  if (!decoding->whole) HARK_TRY(hark_decoder_plans_create(context, decoder, 1, 1, decoding->capacity, false, &decoding->step_plans));
  HARK_TRY(hark_tensor_create(context, HARK_I32, 2, shape, &decoding->tokens));
  HARK_TRY(hark_allocate(context, (size_t)decoder->config.vocabulary * sizeof *decoding->logits, &memory));
  decoding->logits = memory;
  HARK_TRY(hark_allocate(context, hark_sampling_scratch_bytes(decoder->config.vocabulary), &decoding->candidates));
  HARK_TRY(hark_tape_create(context, &decoding->tape));
  hark_value logits = 0;
  hark_tape_set_shape_only(decoding->tape, true);
  hark_status status = run_pass(decoding, decoding->capacity - decoding->prefill, decoding->prefill, &logits);
  if (status == HARK_OK && !decoding->whole) status = run_pass(decoding, decoding->capacity - 1, 1, &logits);
  hark_tape_set_shape_only(decoding->tape, false);
  HARK_TRY(status);
  return hark_tape_prepare(decoding->tape);
}

static hark_status make_large(hark_decoding *decoding) {
  for (int64_t layer = 0; layer < cached_layers(decoding); layer++)
    HARK_TRY(hark_key_value_cache_create(decoding->context, &decoding->caches[layer]));
  for (int64_t i = 0; i < decoding->tables; i++) HARK_TRY(hark_tensor_allocate(decoding->context, &decoding->log_kernels[i]));
  HARK_TRY(hark_tensor_allocate(decoding->context, &decoding->table_workspace));
  return hark_tape_reserve(decoding->tape);
}

static hark_status add_tensor(hark_context *context, const hark_tensor *tensor, size_t *total) {
  const size_t bytes = (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type);
  return hark_size_add(context, *total, hark_align_up(bytes), total);
}

/* Adds to *total what make_large() will take. */
static hark_status add_large(const hark_decoding *decoding, size_t *total) {
  hark_context *context = decoding->context;
  for (int64_t layer = 0; layer < cached_layers(decoding); layer++) {
    const hark_key_value_cache *cache = &decoding->caches[layer];
    HARK_TRY(add_tensor(context, &cache->key, total));
    HARK_TRY(add_tensor(context, &cache->value, total));
    if (cache->forget.type != HARK_NONE) HARK_TRY(add_tensor(context, &cache->forget, total));
  }
  for (int64_t i = 0; i < decoding->tables; i++) HARK_TRY(add_tensor(context, &decoding->log_kernels[i], total));
  if (decoding->tables > 0) HARK_TRY(add_tensor(context, &decoding->table_workspace, total));
  return hark_size_add(context, *total, hark_align_up(hark_tape_peak_bytes(decoding->tape)), total);
}

static void release_parts(hark_decoding *decoding) {
  hark_context *context = decoding->context;
  const hark_decoder *decoder = decoding->model->decoder;
  const int64_t layers = cached_layers(decoding), vocabulary = decoder->config.vocabulary;
  hark_tape_destroy(&decoding->tape);
  hark_decoder_plans_destroy(context, decoder, &decoding->prefill_plans);
  hark_decoder_plans_destroy(context, decoder, &decoding->step_plans);
  if (decoding->caches != NULL)
    for (int64_t layer = 0; layer < layers; layer++) hark_key_value_cache_destroy(context, &decoding->caches[layer]);
  for (int64_t i = 0; i < decoding->tables; i++) hark_tensor_destroy(context, &decoding->log_kernels[i]);
  hark_tensor_destroy(context, &decoding->table_workspace);
  hark_release(context, decoding->log_kernels, (size_t)decoding->tables * sizeof *decoding->log_kernels);
  hark_release(context, decoding->caches, (size_t)layers * sizeof *decoding->caches);
  hark_tensor_destroy(context, &decoding->tokens);
  hark_release(context, decoding->logits, (size_t)vocabulary * sizeof *decoding->logits);
  hark_release(context, decoding->candidates, hark_sampling_scratch_bytes(vocabulary));
}

static hark_status take_options(hark_context *context, const hark_model *model, const hark_decoding_options *given,
                                hark_decoding_options *out) {
  *out = (hark_decoding_options){.struct_size = sizeof *out};
  if (given != NULL) HARK_TRY(hark_take_struct(context, "hark_decoding_options", given, HARK_LEAST_DECODING_OPTIONS, out, sizeof *out));
  if (out->capacity == 0) out->capacity = config_of(model)->context;
  if (out->capacity < 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: a capacity of %" PRId64 " tokens, expected at least 1", out->capacity);
  if (context->backend != model->backend)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: the context's backend is %s, the model's %s", context->backend->name,
                     model->backend->name);
  return HARK_OK;
}

static hark_decoding begin(hark_context *context, const hark_model *model, const hark_decoding_options *options) {
  const bool whole = config_of(model)->structure == HARK_STRUCTURE_HIERARCHICAL;
  return (hark_decoding){.context = context,
                         .model = model,
                         .capacity = options->capacity,
                         .prefill = whole ? options->capacity : hark_min(options->capacity, PREFILL_TOKENS),
                         .whole = whole};
}

/* The size of the block, beginning on HARK_ALIGNMENT. */
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
  HARK_TRY(take_options(context, model, given, &options));
  HARK_TRY(measure(context, model, &options, bytes));
  return hark_size_add(context, *bytes, HARK_ALIGNMENT - 1, bytes); /* the caller's block may begin anywhere */
}

hark_status hark_decoding_create(hark_context *context, const hark_model *model, const hark_decoding_options *given, hark_decoding **out) {
  hark_decoding_options options;
  size_t bytes = 0, skipped = 0;
  void *block = NULL;
  *out = NULL;
  HARK_TRY(take_options(context, model, given, &options));
  HARK_TRY(measure(context, model, &options, &bytes));
  if (options.memory == NULL) {
    HARK_TRY(hark_allocate(context, bytes, &block));
  } else {
    skipped = (HARK_ALIGNMENT - (uintptr_t)options.memory % HARK_ALIGNMENT) % HARK_ALIGNMENT;
    if (options.memory_bytes < skipped || options.memory_bytes - skipped < bytes)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %zu bytes of memory, expected at least %zu", options.memory_bytes,
                       bytes + skipped);
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

static hark_status append(hark_decoding *decoding, const int32_t *tokens, int64_t count) {
  hark_context *context = decoding->context;
  if (decoding->length == 0) HARK_TRY(fill_tables(decoding));
  hark_value value = 0;
  for (int64_t done = 0; done < count;) {
    const int64_t again = decoding->whole ? decoding->length : 0, rows = hark_min(count - done, decoding->prefill - again);
    HARK_TRY(hark_backend_write(context, (int32_t *)decoding->tokens.data + again, tokens + done, (size_t)rows * sizeof *tokens));
    HARK_TRY(run_pass(decoding, decoding->length - again, again + rows, &value));
    decoding->length += rows;
    done += rows;
  }
  return hark_tensor_read(context, hark_tape_tensor(decoding->tape, value), decoding->logits);
}

hark_status hark_decoding_prefill(hark_decoding *decoding, const int32_t *tokens, int64_t count) {
  hark_context *context = decoding->context;
  const int64_t before = decoding->length, vocabulary = config_of(decoding->model)->vocabulary;
  decoding->has_logits = false;
  if (count < 1 || count > decoding->capacity - before)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %" PRId64 " tokens to read, expected 1 to %" PRId64, count,
                     decoding->capacity - before);
  for (int64_t i = 0; i < count; i++)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: token %" PRId64 " is %" PRId32 ", expected 0 to %" PRId64, i, tokens[i],
                       vocabulary - 1);
  hark_arena_begin(context, &decoding->arena);
  const hark_status status = append(decoding, tokens, count);
  hark_arena_end(context, &decoding->arena);
  decoding->has_logits = status == HARK_OK;
  if (status != HARK_OK) decoding->length = before;
  return status;
}

hark_status hark_decoding_step(hark_decoding *decoding, int32_t token) { return hark_decoding_prefill(decoding, &token, 1); }

float *hark_decoding_logits(hark_decoding *decoding) { return decoding->has_logits ? decoding->logits : NULL; }

hark_status hark_decoding_choose(hark_decoding *decoding, const hark_sampling *sampling, uint64_t index, int32_t *token) {
  hark_context *context = decoding->context;
  hark_sampling known = hark_sampling_default();
  HARK_TRY(hark_take_struct(context, "hark_sampling", sampling, HARK_LEAST_SAMPLING, &known, sizeof known));
  if (!decoding->has_logits) return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: there are no logits to choose from");
  return hark_sampling_choose(context, &known, decoding->logits, config_of(decoding->model)->vocabulary, HARK_TOKEN_RESERVED, index,
                              decoding->candidates, token);
}

hark_status hark_decoding_truncate(hark_decoding *decoding, int64_t length) {
  if (length < 0 || length > decoding->length)
    return hark_fail(decoding->context, HARK_INVALID_ARGUMENT, "decoding: cannot cut %" PRId64 " tokens to %" PRId64, decoding->length,
                     length);
  decoding->length = length;
  decoding->has_logits = false;
  return HARK_OK;
}

int64_t hark_decoding_length(const hark_decoding *decoding) { return decoding->length; }

int64_t hark_decoding_capacity(const hark_decoding *decoding) { return decoding->capacity; }

/* ---- saving ----
 *
 *     header | state | logits, if there are any | checksum of all before (u64)
 *
 * The state: of every layer rows of keys, of values, of gates; or, where every pass computes the whole text anew, its tokens (i32).
 *
 * Numbers are little-endian, as everywhere in hark's files. */

typedef struct saved_header {
  char magic[sizeof saved_magic];
  uint64_t version, fingerprint, bytes, length, has_logits;
} saved_header;

/* The parts of the state, [1, capacity, ...], by number. */
static const hark_tensor *state_part(const hark_decoding *decoding, int64_t number) {
  enum { PARTS = 3 };
  if (decoding->whole) return &decoding->tokens;
  const hark_key_value_cache *cache = &decoding->caches[number / PARTS];
  const hark_tensor *parts[PARTS] = {&cache->key, &cache->value, &cache->forget};
  return parts[number % PARTS];
}
static int64_t state_parts(const hark_decoding *decoding) { return decoding->whole ? 1 : 3 * cached_layers(decoding); }

static size_t row_bytes(const hark_tensor *part) {
  if (part->type == HARK_NONE) return 0;
  return (part->rank == 2 ? 1 : (size_t)part->shape[2]) * hark_type_bytes(part->type);
}

static size_t saved_bytes(const hark_decoding *decoding, int64_t length, bool has_logits) {
  size_t bytes = sizeof(saved_header) + sizeof(uint64_t);
  for (int64_t i = 0; i < state_parts(decoding); i++) bytes += (size_t)length * row_bytes(state_part(decoding, i));
  return bytes + (has_logits ? (size_t)config_of(decoding->model)->vocabulary * sizeof *decoding->logits : 0);
}

size_t hark_decoding_saved_bytes(const hark_decoding *decoding) { return saved_bytes(decoding, decoding->length, decoding->has_logits); }

static uint64_t checksum_of(const void *data, size_t bytes) { return hark_checksum_block(HARK_CHECKSUM_START, data, bytes); }

hark_status hark_decoding_save(const hark_decoding *decoding, void *data, size_t bytes) {
  hark_context *context = decoding->context;
  const size_t needed = hark_decoding_saved_bytes(decoding), logit_bytes = (size_t)config_of(decoding->model)->vocabulary * sizeof(float);
  if (bytes < needed)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %zu bytes to save into, expected at least %zu", bytes, needed);
  saved_header header = {.version = SAVED_VERSION,
                         .fingerprint = decoding->model->fingerprint,
                         .bytes = needed,
                         .length = (uint64_t)decoding->length,
                         .has_logits = decoding->has_logits};
  memcpy(header.magic, saved_magic, sizeof saved_magic);
  char *at = data;
  memcpy(at, &header, sizeof header);
  at += sizeof header;
  for (int64_t i = 0; i < state_parts(decoding); i++) {
    const size_t part = (size_t)decoding->length * row_bytes(state_part(decoding, i));
    HARK_TRY(hark_backend_read(context, at, state_part(decoding, i)->data, part));
    at += part;
  }
  if (decoding->has_logits) {
    memcpy(at, decoding->logits, logit_bytes);
    at += logit_bytes;
  }
  const uint64_t checksum = checksum_of(data, needed - sizeof checksum);
  memcpy(at, &checksum, sizeof checksum);
  return HARK_OK;
}

/* All that can be wrong with saved bytes. */
static hark_status check_saved(const hark_decoding *decoding, const void *data, size_t bytes, saved_header *header) {
  hark_context *context = decoding->context;
  uint64_t checksum;
  if (bytes < sizeof *header + sizeof checksum)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: %zu bytes, expected at least %zu", bytes, sizeof *header + sizeof checksum);
  memcpy(header, data, sizeof *header);
  if (memcmp(header->magic, saved_magic, sizeof saved_magic) != 0)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: these bytes are none");
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
  if (header->has_logits > 1 || saved_bytes(decoding, (int64_t)header->length, header->has_logits == 1) != bytes)
    return hark_fail(context, HARK_BAD_FILE, "saved decoding: %zu bytes do not hold %" PRIu64 " tokens", bytes, header->length);
  if (decoding->whole) { /* tokens are rows of a table: a checksum is no proof of who wrote them */
    const char *at = (const char *)data + sizeof *header;
    for (uint64_t i = 0; i < header->length; i++, at += sizeof(int32_t)) {
      int32_t token;
      memcpy(&token, at, sizeof token);
      if (token < 0 || token >= config_of(decoding->model)->vocabulary)
        return hark_fail(context, HARK_BAD_FILE, "saved decoding: token %" PRIu64 " is %" PRId32 ", expected 0 to %" PRId64, i, token,
                         config_of(decoding->model)->vocabulary - 1);
    }
  }
  return HARK_OK;
}

hark_status hark_decoding_restore(hark_decoding *decoding, const void *data, size_t bytes) {
  saved_header header;
  HARK_TRY(check_saved(decoding, data, bytes, &header));
  const char *at = (const char *)data + sizeof header;
  decoding->length = 0; /* until all is there */
  decoding->has_logits = false;
  HARK_TRY(fill_tables(decoding));
  for (int64_t i = 0; i < state_parts(decoding); i++) {
    const size_t part = (size_t)header.length * row_bytes(state_part(decoding, i));
    HARK_TRY(hark_backend_write(decoding->context, state_part(decoding, i)->data, at, part));
    at += part;
  }
  if (header.has_logits == 1) memcpy(decoding->logits, at, (size_t)config_of(decoding->model)->vocabulary * sizeof *decoding->logits);
  decoding->has_logits = header.has_logits == 1;
  decoding->length = (int64_t)header.length;
  return HARK_OK;
}
