/* tokenizer_imported.c - the tokenizer of another program's model as a kind of vocabulary: runs that begin with such a model have it.
 *
 *     { ..., "kind": "imported", "reserved": [], "size": 50257, ..., "end": [50256], "file": "..." }     the file as a text (imported.h)
 *
 * The size is that of the model, which may have more rows of embeddings than tokens. Tokens depend on the text as a whole (a pipeline may
 * put a token before its beginning, or join what a cut divides), so that a part of a text is not encoded before its end is there.
 */
#include <inttypes.h>
#include <string.h>

#include "core/checksum.h"
#include "io/json_write.h"
#include "tokenizers/tokenizer_kind.h"

typedef struct imported_state {
  hark_imported *imported;
  hark_end_tokens ends;
} imported_state;

static void imported_close(hark_context *context, hark_tokenizer *tokenizer) {
  imported_state *const state = tokenizer->state;
  hark_imported_destroy(context, &state->imported);
}

static hark_status imported_finish(hark_context *context, hark_tokenizer *tokenizer) {
  (void)tokenizer;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "a tokenizer of kind imported comes with a model, and none is made from a text");
}

/* The texts of all tokens, in one block. */
static hark_status take_texts(hark_context *context, hark_tokenizer *tokenizer, int32_t size) {
  const hark_imported *const imported = hark_tokenizer_imported(tokenizer);
  size_t total = 0, bytes = 0;
  for (int32_t token = 0; token < size; token++) {
    (void)hark_imported_text(imported, token, &bytes);
    total += bytes;
  }
  HARK_TRY(hark_allocate_zero(context, ((size_t)size + 1) * sizeof *tokenizer->text_at, (void **)&tokenizer->text_at));
  tokenizer->capacity = size;
  HARK_TRY(hark_allocate(context, total + 1, (void **)&tokenizer->text));
  tokenizer->text_capacity = total + 1;
  for (int32_t token = 0; token < size; token++) {
    const char *const text = hark_imported_text(imported, token, &bytes);
    hark_tokenizer_add(tokenizer, text, bytes);
  }
  return HARK_OK;
}

static uint64_t imported_checksum(const hark_tokenizer *tokenizer, uint64_t sum) {
  size_t bytes = 0;
  const void *const file = hark_imported_file(hark_tokenizer_imported(tokenizer), &bytes);
  const hark_end_tokens ends = hark_tokenizer_ends(tokenizer);
  for (int32_t i = 0; i < ends.count; i++) sum = hark_checksum_number(sum, (uint64_t)ends.tokens[i]);
  return hark_checksum_bytes(hark_checksum_number(sum, bytes), file, bytes);
}

static void imported_write(const hark_tokenizer *tokenizer, hark_text *text) {
  hark_text file = hark_text_empty(text->context);
  const hark_end_tokens ends = hark_tokenizer_ends(tokenizer);
  hark_imported_print(hark_tokenizer_imported(tokenizer), &file);
  hark_text_append(text, ",\n \"end\": [");
  for (int32_t i = 0; i < ends.count; i++) hark_text_append(text, "%s%" PRId32, i > 0 ? ", " : "", ends.tokens[i]);
  hark_text_append(text, "],\n \"file\": ");
  hark_json_append_bytes(text, hark_text_get(&file), file.length);
  if (text->status == HARK_OK) text->status = file.status;
  hark_text_free(&file);
}

static hark_status read_ends(hark_context *context, const hark_json_node *list, int64_t size, hark_end_tokens *ends) {
  bool fits = hark_json_is(list, HARK_JSON_LIST) && list->count <= HARK_END_TOKENS;
  for (const hark_json_node *item = fits ? list->first : NULL; item != NULL; item = item->next) {
    fits = fits && item->kind == HARK_JSON_INTEGER && item->integer >= 0 && item->integer < size;
    if (fits) ends->tokens[ends->count++] = (int32_t)item->integer;
  }
  return fits ? HARK_OK : hark_fail(context, HARK_BAD_FILE, "\"end\" is not a list of at most %d tokens", HARK_END_TOKENS);
}

static hark_status imported_read(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *object, int64_t *members) {
  imported_state *const state = tokenizer->state;
  const char *const file = hark_json_text(hark_json_member(object, "file"));
  const int64_t size = hark_json_member(object, "size")->integer;
  *members = 2;
  HARK_TRY(read_ends(context, hark_json_member(object, "end"), size, &state->ends));
  if (file == NULL) return hark_fail(context, HARK_BAD_FILE, "\"file\" is missing or not a string");
  const hark_status status = hark_imported_parse(context, "\"file\"", file, &state->imported);
  if (status != HARK_OK) return status == HARK_UNSUPPORTED ? HARK_BAD_FILE : status;
  if (size < hark_imported_size(state->imported) || size > INT32_MAX)
    return hark_fail(context, HARK_BAD_FILE, "\"size\" is %" PRId64 ", there are %" PRId32 " tokens", size,
                     hark_imported_size(state->imported));
  return take_texts(context, tokenizer, (int32_t)size);
}

/* ---- encoding ---- */

/* A fault of the text: its message, without a place. */
static hark_status fault_of(hark_context *context, hark_status status, size_t at, hark_text_fault *fault) {
  if (status != HARK_BAD_FILE && status != HARK_UNSUPPORTED) return status;
  return hark_text_fault_set(fault, at, "%s", hark_context_message(context));
}

hark_status hark_tokenizer_encode_whole(hark_context *context, const hark_tokenizer *tokenizer, const void *text, size_t bytes,
                                        hark_token_sink *sink, void *user, hark_text_fault *fault) {
  size_t at = 0;
  const hark_status status = hark_imported_encode_to(context, hark_tokenizer_imported(tokenizer), text, bytes, true, sink, user, &at);
  return fault_of(context, status, at, fault);
}

typedef struct token_room {
  hark_context *context;
  int32_t *tokens;
  size_t capacity, *count;
} token_room;

static hark_status copy_tokens(void *user, const int32_t *tokens, size_t count) {
  const token_room *const room = user;
  if (count > room->capacity) return hark_fail(room->context, HARK_TOO_LARGE, "a text of %zu bytes has %zu tokens", room->capacity, count);
  if (count > 0) memcpy(room->tokens, tokens, count * sizeof *tokens);
  *room->count = count;
  return HARK_OK;
}

/* Without special tokens: what is encoded in parts continues a text. */
static hark_status imported_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text,
                                   size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed, hark_text_fault *fault) {
  token_room room = {context, tokens, bytes, count};
  size_t at = 0;
  (void)unknown;
  *count = *consumed = 0;
  if (!last) return HARK_OK;
  const hark_status status =
      hark_imported_encode_to(context, hark_tokenizer_imported(tokenizer), (const char *)text, bytes, false, copy_tokens, &room, &at);
  if (status == HARK_OK) *consumed = bytes;
  return fault_of(context, status, at, fault);
}

/* ---- making ---- */

hark_status hark_tokenizer_import(hark_context *context, hark_imported **imported, int32_t size, const hark_end_tokens *ends,
                                  hark_tokenizer **out) {
  hark_status status = hark_tokenizer_create(context, hark_tokenizer_imported_kind.name, out);
  if (status == HARK_OK) {
    *(imported_state *)(*out)->state = (imported_state){*imported, *ends};
    *imported = NULL;
    status = take_texts(context, *out, size);
  }
  hark_imported_destroy(context, imported);
  if (status != HARK_OK)
    hark_tokenizer_destroy(context, out);
  else
    (*out)->checksum = hark_tokenizer_checksum_of(*out);
  return status;
}

const hark_imported *hark_tokenizer_imported(const hark_tokenizer *tokenizer) {
  const imported_state *const state = tokenizer->state;
  return tokenizer->kind == &hark_tokenizer_imported_kind ? state->imported : NULL;
}

hark_end_tokens hark_tokenizer_ends(const hark_tokenizer *tokenizer) {
  const imported_state *const state = tokenizer->state;
  return tokenizer->kind == &hark_tokenizer_imported_kind ? state->ends : (hark_end_tokens){.count = 0};
}

hark_imported *hark_tokenizer_take_imported(hark_tokenizer *tokenizer) {
  imported_state *const state = tokenizer->state;
  hark_imported *const taken = state->imported;
  state->imported = NULL;
  return taken;
}

const hark_tokenizer_kind hark_tokenizer_imported_kind = {.name = "imported",
                                                          .summary = "the tokenizer of another program's model",
                                                          .state_bytes = sizeof(imported_state),
                                                          .imported = true,
                                                          .close = imported_close,
                                                          .finish = imported_finish,
                                                          .encode = imported_encode,
                                                          .checksum = imported_checksum,
                                                          .write = imported_write,
                                                          .read = imported_read};
