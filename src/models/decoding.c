/* decoding.c - see decoding.h. */
#include "models/decoding.h"

#include <inttypes.h>

#include "backend/backend.h"

/* Tokens of one pass while a text is read in: enough rows for the products to be fast, few enough for little memory. */
#define PREFILL_TOKENS 128

struct hark_decoding {
  const hark_decoder *decoder;
  hark_tape *tape;
  hark_attention_plan **prefill_plans, **step_plans;
  hark_key_value_cache *caches; /* one a layer */
  hark_tensor tokens;           /* i32 [1, prefill] */
  int64_t capacity, length, prefill;
  bool whole; /* a structure without a cache: every pass computes the whole text anew */
};

static hark_status run_pass(hark_context *context, hark_decoding *decoding, int64_t first, int64_t count, hark_value *logits) {
  hark_tape_reset(decoding->tape);
  hark_tape_set_recording(decoding->tape, false);
  const hark_forward forward = {.tape = decoding->tape,
                                .parameters = &decoding->decoder->parameters,
                                .first_position = first,
                                .plans = count == 1 && !decoding->whole ? decoding->step_plans : decoding->prefill_plans,
                                .caches = decoding->caches};
  hark_tensor rows = decoding->tokens;
  rows.owned_bytes = 0;
  rows.shape[1] = count;
  hark_value tokens = 0;
  HARK_TRY(hark_tape_leaf(decoding->tape, &rows, NULL, &tokens));
  return hark_decoder_logits(context, decoding->decoder, &forward, tokens, true, logits);
}

static hark_status build(hark_context *context, hark_decoding *decoding) {
  const hark_decoder *decoder = decoding->decoder;
  const int64_t layers = decoder->config.layers, shape[] = {1, decoding->prefill};
  HARK_TRY(hark_decoder_plans_create(context, decoder, 1, decoding->prefill, decoding->capacity, false, &decoding->prefill_plans));
  if (!decoding->whole) {
    void *memory = NULL;
    HARK_TRY(hark_allocate_zero(context, (size_t)layers * sizeof *decoding->caches, &memory));
    decoding->caches = memory;
    for (int64_t layer = 0; layer < layers; layer++)
      HARK_TRY(hark_key_value_cache_create(context, &decoder->blocks[layer].attention.spec, decoder->parameters.type, decoding->capacity,
                                           &decoding->caches[layer]));
    HARK_TRY(hark_decoder_plans_create(context, decoder, 1, 1, decoding->capacity, false, &decoding->step_plans));
  }
  HARK_TRY(hark_tensor_create(context, HARK_I32, 2, shape, &decoding->tokens));
  HARK_TRY(hark_tape_create(context, &decoding->tape));
  hark_value logits = 0;
  hark_tape_set_shape_only(decoding->tape, true);
  hark_status status = run_pass(context, decoding, decoding->capacity - decoding->prefill, decoding->prefill, &logits);
  if (status == HARK_OK && !decoding->whole) status = run_pass(context, decoding, decoding->capacity - 1, 1, &logits);
  hark_tape_set_shape_only(decoding->tape, false);
  HARK_TRY(status);
  return hark_tape_reserve(decoding->tape);
}

hark_status hark_decoding_create(hark_context *context, const hark_decoder *decoder, int64_t capacity, hark_decoding **out) {
  *out = NULL;
  if (capacity < 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: a capacity of %" PRId64 " tokens, expected at least 1", capacity);
  void *memory = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_decoding), &memory));
  hark_decoding *decoding = memory;
  *decoding = (hark_decoding){.decoder = decoder, .capacity = capacity, .prefill = hark_min(capacity, PREFILL_TOKENS)};
  decoding->whole = decoder->config.structure == HARK_STRUCTURE_HIERARCHICAL;
  if (decoding->whole) decoding->prefill = capacity;
  const hark_status status = build(context, decoding);
  if (status != HARK_OK) {
    hark_decoding_destroy(context, &decoding);
    return status;
  }
  *out = decoding;
  return HARK_OK;
}

void hark_decoding_destroy(hark_context *context, hark_decoding **decoding_pointer) {
  if (decoding_pointer == NULL || *decoding_pointer == NULL) return;
  hark_decoding *decoding = *decoding_pointer;
  *decoding_pointer = NULL;
  const int64_t layers = decoding->decoder->config.layers;
  hark_tape_destroy(&decoding->tape);
  hark_decoder_plans_destroy(context, decoding->decoder, &decoding->prefill_plans);
  hark_decoder_plans_destroy(context, decoding->decoder, &decoding->step_plans);
  if (decoding->caches != NULL)
    for (int64_t layer = 0; layer < layers; layer++) hark_key_value_cache_destroy(context, &decoding->caches[layer]);
  hark_release(context, decoding->caches, (size_t)layers * sizeof *decoding->caches);
  hark_tensor_destroy(context, &decoding->tokens);
  hark_release(context, decoding, sizeof *decoding);
}

hark_status hark_decoding_append(hark_context *context, hark_decoding *decoding, const int32_t *tokens, int64_t count, float *logits) {
  if (count < 1 || count > decoding->capacity - decoding->length)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: %" PRId64 " tokens to append, expected 1 to %" PRId64, count,
                     decoding->capacity - decoding->length);
  const int64_t before = decoding->length;
  hark_value value = 0;
  for (int64_t done = 0; done < count;) {
    /* Tokens before the new ones that the pass computes again. */
    const int64_t again = decoding->whole ? before : 0, rows = hark_min(count - done, decoding->prefill - again);
    int32_t *place = (int32_t *)decoding->tokens.data + again;
    hark_status status = hark_backend_write(context, place, tokens + done, (size_t)rows * sizeof *tokens);
    if (status == HARK_OK) status = run_pass(context, decoding, decoding->length - again, again + rows, &value);
    if (status != HARK_OK) {
      decoding->length = before;
      return status;
    }
    decoding->length += rows;
    done += rows;
  }
  return logits != NULL ? hark_tensor_read(context, hark_tape_tensor(decoding->tape, value), logits) : HARK_OK;
}

hark_status hark_decoding_truncate(hark_context *context, hark_decoding *decoding, int64_t length) {
  if (length < 0 || length > decoding->length)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "decoding: cannot cut %" PRId64 " tokens to %" PRId64, decoding->length, length);
  decoding->length = length;
  return HARK_OK;
}

int64_t hark_decoding_length(const hark_decoding *decoding) { return decoding->length; }

int64_t hark_decoding_capacity(const hark_decoding *decoding) { return decoding->capacity; }
