/* inspect_text.c - the text of hark inspect as tokens. See inspect.h. */
#include <inttypes.h>
#include <string.h>

#include "cli/embed/embed_text.h"
#include "cli/inspect/inspect.h"
#include "data/inputs.h"
#include "models/encoder.h"

/* Appends tokens, as many as fit. */
static void take(hark_inspect_text *out, const int32_t *ids, size_t count) {
  const size_t room = out->capacity - (size_t)out->count, taken = count < room ? count : room;
  memcpy(out->ids + out->count, ids, taken * sizeof *ids);
  out->count += (int64_t)taken;
  if (taken < count) out->cut = true;
}

static int64_t count_unknown(const hark_inspect_text *text) {
  int64_t count = 0;
  for (int64_t i = 0; i < text->count; i++) count += text->ids[i] == HARK_TOKEN_UNKNOWN;
  return count;
}

/* *lacking: the vocabulary lacks something in the text, which becomes its unknown token. */
static hark_status encode_known(hark_context *context, const hark_model *model, const hark_line_reader *lines, int32_t *tokens,
                                size_t *count, bool *lacking) {
  const hark_status status = hark_model_encode(context, model, lines->line, lines->length, false, tokens, count);
  *lacking = status == HARK_BAD_FILE;
  return *lacking ? hark_model_encode(context, model, lines->line, lines->length, true, tokens, count) : status;
}

/* Of the model's own vocabulary. */
static hark_status encode_own(hark_context *context, const hark_embed_text *words, const hark_line_reader *lines, hark_inspect_text *out) {
  const int32_t begin = (int32_t)words->begin;
  const size_t bytes = lines->length * sizeof(int32_t);
  void *memory = NULL;
  size_t count = 0;
  bool lacking = false;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  hark_status status = hark_lines_check_utf8(context, lines, 0, lines->length);
  if (status == HARK_OK) status = encode_known(context, words->model, lines, memory, &count, &lacking);
  if (status == HARK_OK && begin != 0) take(out, &begin, 1);
  if (status == HARK_OK) take(out, memory, count);
  if (status == HARK_OK && lacking) out->unknown = count_unknown(out);
  hark_release(context, memory, bytes);
  return status;
}

static hark_status encode(hark_context *context, hark_embed_text *words, const hark_line_reader *lines, hark_inspect_text *out) {
  const int32_t *ids = NULL;
  size_t count = 0;
  if (!words->separate) return encode_own(context, words, lines, out);
  HARK_TRY(hark_text_tokens_encode(context, &words->tokens, lines, true, HARK_UNKNOWN_IS_MAPPED, &ids, &count));
  take(out, ids, count);
  return HARK_OK;
}

static hark_status encode_text(hark_context *context, const hark_model *model, const char *path, const char *tokenizer,
                               const hark_line_reader *lines, hark_inspect_text *out) {
  hark_embed_text words = {0};
  const int32_t class_token = HARK_TOKEN_CLASS;
  hark_status status = hark_embed_text_open(context, path, tokenizer, model, &words);
  if (status == HARK_OK && hark_encoder_front(&model->network->config) > 0) take(out, &class_token, 1);
  if (status == HARK_OK) status = encode(context, &words, lines, out);
  hark_embed_text_close(context, &words);
  return status;
}

/* Memory for as many tokens as the model reads at once. */
static hark_status make_room(hark_context *context, const hark_model *model, const char *path, hark_inspect_text *out) {
  hark_prediction_shape shape = {.struct_size = sizeof shape};
  HARK_TRY(hark_predictor_shape(model, &shape));
  if (shape.features > 0) return hark_fail(context, HARK_UNSUPPORTED, "%s: reads real vectors, and a text has tokens", path);
  out->capacity = (size_t)(shape.longest + hark_encoder_front(&model->network->config));
  return hark_allocate(context, out->capacity * sizeof *out->ids, (void **)&out->ids);
}

hark_status hark_inspect_text_read(hark_context *context, const hark_model *model, const char *path, const char *tokenizer,
                                   const char *text, hark_inspect_text *out) {
  hark_text bytes = hark_text_empty(context);
  *out = (hark_inspect_text){0};
  const char *const name = hark_input_is_standard(text) ? HARK_STANDARD_INPUT_NAME : text;
  hark_status status = make_room(context, model, path, out);
  if (status == HARK_OK)
    status = hark_input_read_beginning(context, text, hark_input_beginning_bytes((int64_t)out->capacity), &bytes, &out->cut);
  if (status == HARK_OK && bytes.length == 0) status = hark_fail(context, HARK_BAD_FILE, "%s: the text is empty", name);
  const hark_line_reader lines = {.path = name, .line = hark_text_get(&bytes), .length = bytes.length, .number = 1};
  if (status == HARK_OK) status = encode_text(context, model, path, tokenizer, &lines, out);
  hark_text_free(&bytes);
  if (status != HARK_OK || out->count >= 2) return status;
  return hark_fail(context, HARK_BAD_FILE, "%s: %" PRId64 " token%s, expected at least 2, as one has nothing to choose from", name,
                   out->count, out->count == 1 ? "" : "s");
}

void hark_inspect_text_free(hark_context *context, hark_inspect_text *text) {
  hark_release(context, text->ids, text->capacity * sizeof *text->ids);
  *text = (hark_inspect_text){0};
}
