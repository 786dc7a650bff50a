/* embed_text.c - see embed_text.h. */
#include "cli/embed/embed_text.h"

#include <inttypes.h>
#include <string.h>

#include "io/files.h"
#include "models/model.h"
#include "models/model_path.h"

/* ---- which tokenizer ---- */

/* tokenizer.json or tokenizer.model in the folder of the file of weights; "": neither. */
static hark_status find_beside(hark_context *context, const char *path, char out[HARK_PATH_BYTES]) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  char weights[HARK_PATH_BYTES], folder[HARK_PATH_BYTES];
  HARK_TRY(hark_model_find_file(context, path, NULL, false, weights));
  const size_t length = (size_t)(hark_path_name(weights) - weights);
  memcpy(folder, weights, length);
  folder[length] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    HARK_TRY(hark_path_join(context, folder, names[i], out));
    if (hark_path_kind_of(out) == HARK_PATH_FILE) return HARK_OK;
  }
  out[0] = '\0';
  return HARK_OK;
}

static hark_status find(hark_context *context, const char *path, const char *tokenizer, hark_embed_text *text) {
  char file[HARK_PATH_BYTES];
  const bool own = text->model->tokenizer != NULL || text->model->examples != NULL;
  if (tokenizer[0] == '\0' && own) return HARK_OK;
  if (tokenizer[0] == '\0') {
    HARK_TRY(find_beside(context, path, file));
    if (file[0] == '\0')
      return hark_fail(context, HARK_UNSUPPORTED,
                       "%s: has no vocabulary, and there is no tokenizer.json beside it: expected --tokenizer FILE", path);
    tokenizer = file;
  }
  text->separate = true;
  return hark_text_tokens_open(context, tokenizer, &text->tokens);
}

hark_status hark_embed_text_open(hark_context *context, const char *path, const char *tokenizer, const hark_model *model,
                                 hark_embed_text *out) {
  hark_model_info info = {.struct_size = sizeof info};
  out->model = model;
  HARK_TRY(hark_model_describe(model, &info));
  out->begin = info.begin;
  return find(context, path, tokenizer, out);
}

void hark_embed_text_close(hark_context *context, hark_embed_text *text) {
  if (text->separate) hark_text_tokens_close(context, &text->tokens);
  hark_release(context, text->ids, text->capacity * sizeof *text->ids);
}

/* ---- lines ---- */

static hark_status make_room(hark_context *context, hark_embed_text *text, size_t count) {
  if (count <= text->capacity) return HARK_OK;
  hark_release(context, text->ids, text->capacity * sizeof *text->ids);
  text->ids = NULL;
  text->capacity = 0;
  HARK_TRY(hark_allocate(context, 2 * count * sizeof *text->ids, (void **)&text->ids));
  text->capacity = 2 * count;
  return HARK_OK;
}

/* Tokens of the model's own vocabulary. */
static hark_status encode_own(hark_context *context, hark_embed_text *text, const hark_line_reader *lines, size_t *count) {
  const size_t front = text->begin != 0;
  HARK_TRY(make_room(context, text, lines->length + 1 + front));
  text->ids[0] = (int32_t)text->begin;
  HARK_TRY(hark_lines_check_utf8(context, lines, 0, lines->length));
  const hark_status status = hark_model_encode(context, text->model, lines->line, lines->length, text->unknown == HARK_UNKNOWN_IS_MAPPED,
                                               text->ids + front, count);
  *count += front;
  if (status == HARK_OK) return HARK_OK;
  char reason[HARK_MESSAGE_BYTES];
  memcpy(reason, hark_context_message(context), sizeof reason);
  return status == HARK_BAD_FILE ? hark_lines_fail(context, lines, 0, "%s", reason) : status;
}

/* The number of the first of `count` tokens in `all` at which `part` begins; 0 if it is nowhere. */
static size_t place_of(const int32_t *all, size_t count, const int32_t *part, size_t length) {
  for (size_t at = 0; at + length <= count; at++)
    if (memcmp(all + at, part, length * sizeof *part) == 0) return at;
  return 0;
}

/* Special tokens before and after the content of a line stay, as many tokens of the content are kept as fit. */
static hark_status cut_special(hark_context *context, hark_embed_text *text, const hark_line_reader *lines, const int32_t *all,
                               size_t *count) {
  const int32_t *content = NULL;
  size_t length = 0;
  const size_t limit = (size_t)text->limit;
  HARK_TRY(make_room(context, text, *count));
  memcpy(text->ids, all, *count * sizeof *all);
  HARK_TRY(hark_text_tokens_encode(context, &text->tokens, lines, false, text->unknown, &content, &length));
  const size_t special = *count - length;
  if (special > limit || length == 0)
    return hark_lines_fail(context, lines, 0, "%zu special tokens, the limit is %zu tokens", special, limit);
  const size_t front = place_of(text->ids, *count, content, length), kept = limit - special, back = special - front;
  memmove(text->ids + front + kept, text->ids + *count - back, back * sizeof *text->ids);
  *count = limit;
  return HARK_OK;
}

static hark_status shorten(hark_context *context, hark_embed_text *text, const hark_line_reader *lines, const int32_t **ids,
                           size_t *count) {
  if (!text->truncate)
    return hark_lines_fail(context, lines, 0, "%zu tokens, expected at most %" PRId64 " (--truncate cuts longer lines)", *count,
                           text->limit);
  if (text->cut++ == 0) {
    text->first_line = lines->number;
    text->first_tokens = (int64_t)*count;
  }
  if (!text->separate || text->tokens.own != NULL) {
    *count = (size_t)text->limit;
    return HARK_OK;
  }
  HARK_TRY(cut_special(context, text, lines, *ids, count));
  *ids = text->ids;
  return HARK_OK;
}

hark_status hark_embed_text_encode(hark_context *context, hark_embed_text *text, const hark_line_reader *lines, const int32_t **ids,
                                   size_t *count) {
  *count = 0;
  if (text->separate) {
    HARK_TRY(hark_text_tokens_encode(context, &text->tokens, lines, true, text->unknown, ids, count));
  } else {
    HARK_TRY(encode_own(context, text, lines, count));
    *ids = text->ids;
  }
  if (*count == 0) return hark_lines_fail(context, lines, 0, "the line has no tokens, so that it has no embedding");
  return *count > (size_t)text->limit ? shorten(context, text, lines, ids, count) : HARK_OK;
}
