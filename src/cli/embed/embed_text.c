/* embed_text.c - see embed_text.h. */
#include "cli/embed/embed_text.h"

#include <inttypes.h>
#include <string.h>

#include "cli/embed/embed_vocabulary.h"
#include "io/files.h"
#include "models/foreign/foreign.h"
#include "models/model.h"
#include "models/model_path.h"

/* ---- which tokenizer ---- */

/* The folder of the model's files. */
static hark_status find_folder(hark_context *context, const char *path, char folder[HARK_PATH_BYTES]) {
  char weights[HARK_PATH_BYTES];
  bool foreign = false;
  HARK_TRY(hark_foreign_find(context, path, folder, &foreign));
  if (foreign) return HARK_OK;
  HARK_TRY(hark_model_find_file(context, path, NULL, false, weights));
  const size_t length = (size_t)(hark_path_name(weights) - weights);
  memcpy(folder, weights, length);
  folder[length] = '\0';
  return HARK_OK;
}

/* Whether the folder has that file. */
static hark_status find_file(hark_context *context, const char *folder, const char *name, char out[HARK_PATH_BYTES], bool *found) {
  HARK_TRY(hark_path_join(context, folder, name, out));
  *found = hark_path_kind_of(out) == HARK_PATH_FILE;
  return HARK_OK;
}

/* BERT's older files. */
static hark_status open_words(hark_context *context, const char *folder, const char *path, hark_embed_text *text) {
  hark_text json = hark_text_empty(context);
  text->separate = true;
  hark_status status = hark_embed_vocabulary_print(context, folder, &json);
  if (status == HARK_OK) status = hark_pipeline_read(context, path, hark_text_get(&json), json.length, &text->tokens.pipeline);
  if (status == HARK_OK) status = hark_pipeline_work_create(context, text->tokens.pipeline, &text->tokens.work);
  hark_text_free(&json);
  return status;
}

static hark_status open_beside(hark_context *context, const char *path, const char *folder, hark_embed_text *text) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  char file[HARK_PATH_BYTES];
  bool found = false;
  for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) HARK_TRY(find_file(context, folder, names[i], file, &found));
  text->separate = found;
  if (found) return hark_text_tokens_open(context, file, &text->tokens);
  HARK_TRY(find_file(context, folder, HARK_EMBED_VOCABULARY_FILE, file, &found));
  if (found) return open_words(context, folder, file, text);
  return hark_fail(context, HARK_UNSUPPORTED, "%s: has no vocabulary, and there is no tokenizer.json beside it: expected --tokenizer FILE",
                   path);
}

static hark_status find(hark_context *context, const char *path, const char *tokenizer, hark_embed_text *text) {
  char folder[HARK_PATH_BYTES];
  const bool own = text->model->tokenizer != NULL || text->model->examples != NULL;
  if (tokenizer[0] == '\0' && own) return HARK_OK;
  HARK_TRY(find_folder(context, path, folder));
  if (tokenizer[0] == '\0' && text->model->imported == NULL) return open_beside(context, path, folder, text);
  text->separate = true;
  if (tokenizer[0] == '\0') return hark_text_tokens_open_imported(context, path, text->model->imported, &text->tokens);
  return hark_text_tokens_open(context, tokenizer, &text->tokens);
}

hark_status hark_embed_text_open(hark_context *context, const char *path, const char *tokenizer, const hark_model *model,
                                 hark_embed_text *out) {
  hark_model_info info = {.struct_size = sizeof info};
  out->model = model;
  HARK_TRY(hark_model_describe(model, &info));
  out->begin = info.begin;
  out->limit = model->network->config.text_limit;
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
  hark_text_fault fault = {0};
  const hark_status status =
      hark_model_encode_line(context, text->model, lines->line, lines->length, text->unknown, text->ids + front, count, &fault);
  *count += front;
  return status == HARK_BAD_FILE ? hark_lines_fail_fault(context, lines, &fault) : status;
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
