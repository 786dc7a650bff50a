/* imported.c - see imported.h. */
#include "tokenizers/imported.h"

#include <string.h>

#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/pipeline/sentencepiece_model.h"

struct hark_imported {
  hark_pipeline *pipeline;
  hark_text file, texts; /* texts: of all tokens, one after the other */
  size_t *text_at;       /* [size + 1] */
  int32_t size;
};

static size_t places_bytes(const hark_imported *imported) { return ((size_t)imported->size + 1) * sizeof *imported->text_at; }

/* ---- reading ---- */

static hark_status take_texts(hark_context *context, hark_imported *imported) {
  hark_pipeline_work *work = NULL;
  HARK_TRY(hark_allocate_zero(context, places_bytes(imported), (void **)&imported->text_at));
  hark_status status = hark_pipeline_work_create(context, imported->pipeline, &work);
  for (int32_t i = 0; i < imported->size && status == HARK_OK; i++) {
    status = hark_pipeline_decode_apart(work, i, &imported->texts);
    imported->text_at[i + 1] = imported->texts.length;
  }
  hark_pipeline_work_destroy(&work);
  return status;
}

static hark_status fill(hark_context *context, const char *name, const void *data, size_t bytes, hark_imported *imported) {
  imported->file = imported->texts = hark_text_empty(context);
  HARK_TRY(hark_pipeline_read(context, name, data, bytes, &imported->pipeline));
  hark_text_append_bytes(&imported->file, data, bytes);
  HARK_TRY(imported->file.status);
  imported->size = hark_pipeline_size(imported->pipeline);
  return take_texts(context, imported);
}

hark_status hark_imported_read(hark_context *context, const char *name, const void *data, size_t bytes, hark_imported **out) {
  hark_imported *imported = NULL;
  *out = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *imported, (void **)&imported));
  const hark_status status = fill(context, name, data, bytes, imported);
  if (status != HARK_OK) {
    hark_imported_destroy(context, &imported);
    return status;
  }
  *out = imported;
  return HARK_OK;
}

void hark_imported_destroy(hark_context *context, hark_imported **imported) {
  hark_imported *const gone = *imported;
  if (gone == NULL) return;
  if (gone->text_at != NULL) hark_release(context, gone->text_at, places_bytes(gone));
  hark_text_free(&gone->file);
  hark_text_free(&gone->texts);
  hark_pipeline_destroy(context, &gone->pipeline);
  hark_release(context, gone, sizeof *gone);
  *imported = NULL;
}

/* ---- the file ---- */

const char *hark_imported_kind(const hark_imported *imported) {
  return hark_sentencepiece_is_model(imported->file.data, imported->file.length) ? "tokenizer.model" : "tokenizer.json";
}

const void *hark_imported_file(const hark_imported *imported, size_t *bytes) {
  *bytes = imported->file.length;
  return imported->file.data;
}

int32_t hark_imported_size(const hark_imported *imported) { return imported->size; }

void hark_imported_print(const hark_imported *imported, hark_text *out) {
  static const char digits[] = "0123456789abcdef";
  if (!hark_sentencepiece_is_model(imported->file.data, imported->file.length)) {
    hark_text_append_bytes(out, imported->file.data, imported->file.length);
    return;
  }
  for (size_t i = 0; i < imported->file.length; i++) {
    const unsigned char byte = (unsigned char)imported->file.data[i];
    const char two[] = {digits[byte >> 4], digits[byte & 15U]};
    hark_text_append_bytes(out, two, 2);
  }
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* JSON as it is begins with blanks and '{', and hexadecimal digits do not. */
static bool is_json(const char *text, size_t bytes) {
  size_t at = bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
  while (at < bytes && strchr(" \t\r\n", text[at]) != NULL) at++;
  return at < bytes && text[at] == '{';
}

hark_status hark_imported_bytes(hark_context *context, const char *name, const char *text, hark_text *out) {
  const size_t length = strlen(text);
  if (is_json(text, length)) {
    hark_text_append_bytes(out, text, length);
    return out->status;
  }
  for (size_t i = 0; i < length; i += 2) {
    const int high = digit(text[i]), low = high >= 0 ? digit(text[i + 1]) : -1;
    const char byte = (char)(16 * high + low);
    if (low < 0) return hark_fail(context, HARK_BAD_FILE, "%s: neither JSON nor pairs of hexadecimal digits", name);
    hark_text_append_bytes(out, &byte, 1);
  }
  return out->status;
}

hark_status hark_imported_parse(hark_context *context, const char *name, const char *text, hark_imported **out) {
  hark_text bytes = hark_text_empty(context);
  *out = NULL;
  hark_status status = hark_imported_bytes(context, name, text, &bytes);
  if (status == HARK_OK) status = hark_imported_read(context, name, hark_text_get(&bytes), bytes.length, out);
  hark_text_free(&bytes);
  return status;
}

/* ---- text and tokens ---- */

hark_status hark_imported_encode_to(hark_context *context, const hark_imported *imported, const char *text, size_t bytes, bool special,
                                    hark_token_sink *sink, void *user, size_t *at) {
  hark_pipeline_work *work = NULL;
  const int32_t *ids = NULL;
  size_t count = 0;
  *at = 0;
  hark_status status = hark_pipeline_work_create(context, imported->pipeline, &work);
  if (status == HARK_OK) status = hark_pipeline_encode(work, text, bytes, special, &ids, &count, at);
  if (status == HARK_OK) status = sink(user, ids, count);
  hark_pipeline_work_destroy(&work);
  return status;
}

/* A caller's room for tokens. */
typedef struct token_room {
  int32_t *tokens;
  size_t capacity, *count;
} token_room;

static hark_status copy_tokens(void *user, const int32_t *tokens, size_t count) {
  const token_room *const room = user;
  const size_t copied = count < room->capacity ? count : room->capacity;
  *room->count = count;
  if (copied > 0) memcpy(room->tokens, tokens, copied * sizeof *tokens);
  return HARK_OK;
}

hark_status hark_imported_encode(hark_context *context, const hark_imported *imported, const char *text, size_t bytes, bool special,
                                 int32_t *tokens, size_t capacity, size_t *count) {
  token_room room = {tokens, capacity, count};
  size_t at;
  *count = 0;
  const hark_status status = hark_imported_encode_to(context, imported, text, bytes, special, copy_tokens, &room, &at);
  if (status != HARK_BAD_FILE && status != HARK_UNSUPPORTED) return status;
  hark_fail_prefix(context, "text: byte offset %zu: ", at);
  return HARK_BAD_FILE; /* a fault of the text, also where the tokenizer cannot read it */
}

const char *hark_imported_text(const hark_imported *imported, int32_t token, size_t *bytes) {
  *bytes = 0;
  if (token < 0 || token >= imported->size) return "";
  *bytes = imported->text_at[token + 1] - imported->text_at[token];
  return hark_text_get(&imported->texts) + imported->text_at[token];
}
