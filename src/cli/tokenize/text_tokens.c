/* text_tokens.c - see text_tokens.h. */
#include "cli/tokenize/text_tokens.h"

#include <string.h>

#include "io/files.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "tokenizers/example_vocabulary.h"
#include "tokenizers/utf8.h"
#include "train/run.h"

/* ---- which file it is ---- */

static hark_status open_pipeline(hark_context *context, const char *path, const void *data, size_t bytes, hark_text_tokens *out) {
  HARK_TRY(hark_pipeline_read(context, path, data, bytes, &out->pipeline));
  return hark_pipeline_work_create(context, out->pipeline, &out->work);
}

/* Of a run that began with an imported model. */
static hark_status open_own_pipeline(hark_context *context, const char *path, hark_text_tokens *out) {
  size_t bytes;
  const void *const data = hark_imported_file(hark_tokenizer_imported(out->own), &bytes);
  const hark_status status = open_pipeline(context, path, data, bytes, out);
  hark_tokenizer_destroy(context, &out->own);
  return status;
}

static hark_status read_own(hark_context *context, const char *path, const char *text, size_t bytes, hark_text_tokens *out) {
  bool examples = false;
  HARK_TRY(hark_example_vocabulary_is(context, text, bytes, &examples));
  if (examples)
    return hark_fail(context, HARK_UNSUPPORTED, "%s: its vocabulary is that of labelled examples, which have no text to divide", path);
  const hark_status status = hark_tokenizer_parse(context, text, bytes, &out->own);
  if (status != HARK_OK) hark_fail_prefix(context, "%s: ", path);
  HARK_TRY(status);
  return hark_tokenizer_imported(out->own) != NULL ? open_own_pipeline(context, path, out) : HARK_OK;
}

/* Of an imported model. */
static hark_status read_imported(hark_context *context, const char *path, const char *tokenizer, hark_text_tokens *out) {
  hark_text file = hark_text_empty(context);
  hark_status status = hark_imported_bytes(context, path, tokenizer, &file);
  if (status == HARK_OK) status = open_pipeline(context, path, hark_text_get(&file), file.length, out);
  hark_text_free(&file);
  return status;
}

static hark_status read_exported(hark_context *context, const char *path, hark_text_tokens *out) {
  hark_safetensors *file = NULL;
  hark_status status = HARK_OK;
  HARK_TRY(hark_safetensors_open(context, path, &file));
  const char *const vocabulary = hark_safetensors_metadata(file, HARK_VOCABULARY_KEY), *const tokenizer = hark_safetensors_metadata(
                                                                                           file, HARK_TOKENIZER_KEY);
  if (vocabulary != NULL)
    status = read_own(context, path, vocabulary, strlen(vocabulary), out);
  else if (tokenizer != NULL)
    status = read_imported(context, path, tokenizer, out);
  else
    status = hark_fail(context, HARK_BAD_FILE, "%s: has no vocabulary, so that it has no tokenizer", path);
  hark_safetensors_close(context, &file);
  return status;
}

/* A run's vocabulary.json begins with its version. */
static bool is_own_vocabulary(const char *text, size_t bytes) {
  static const char begin[] = "{\n \"format_version\"";
  return bytes >= sizeof begin && memcmp(text, begin, sizeof begin - 1) == 0;
}

static hark_status open_file(hark_context *context, const char *path, hark_text_tokens *out) {
  bool safetensors = false;
  HARK_TRY(hark_safetensors_is(context, path, &safetensors));
  if (safetensors) return read_exported(context, path, out);
  hark_text text = hark_text_empty(context);
  hark_status status = hark_file_read(context, path, HARK_PIPELINE_FILE_BYTES, &text);
  if (status == HARK_OK)
    status = is_own_vocabulary(hark_text_get(&text), text.length) ? read_own(context, path, hark_text_get(&text), text.length, out)
                                                                  : open_pipeline(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

/* A run's vocabulary, or the tokenizer.json or tokenizer.model of a folder. */
static hark_status open_folder(hark_context *context, const char *path, hark_text_tokens *out) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
  char file[HARK_PATH_BYTES], checkpoint[HARK_NAME_BYTES];
  hark_run run;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    HARK_TRY(hark_path_join(context, path, names[i], file));
    if (hark_path_kind_of(file) == HARK_PATH_FILE) return open_file(context, file, out);
  }
  HARK_TRY(hark_run_open_reading(context, path, &run, checkpoint));
  hark_status status = hark_run_path(context, &run, "vocabulary.json", file);
  if (status == HARK_OK) status = open_file(context, file, out);
  hark_run_close(&run);
  return status;
}

hark_status hark_text_tokens_open(hark_context *context, const char *path, hark_text_tokens *out) {
  return hark_path_kind_of(path) == HARK_PATH_FOLDER ? open_folder(context, path, out) : open_file(context, path, out);
}

hark_status hark_text_tokens_open_imported(hark_context *context, const char *name, const hark_imported *imported, hark_text_tokens *out) {
  size_t bytes;
  const void *const data = hark_imported_file(imported, &bytes);
  return open_pipeline(context, name, data, bytes, out);
}

void hark_text_tokens_close(hark_context *context, hark_text_tokens *tokens) {
  hark_pipeline_work_destroy(&tokens->work);
  hark_pipeline_destroy(context, &tokens->pipeline);
  hark_tokenizer_destroy(context, &tokens->own);
  hark_release(context, tokens->ids, tokens->capacity * sizeof *tokens->ids);
}

int32_t hark_text_tokens_size(const hark_text_tokens *tokens) {
  return tokens->own != NULL ? hark_tokenizer_size(tokens->own) : hark_pipeline_size(tokens->pipeline);
}

/* ---- both ways ---- */

static hark_status make_room(hark_context *context, hark_text_tokens *tokens, size_t count) {
  if (count <= tokens->capacity) return HARK_OK;
  hark_release(context, tokens->ids, tokens->capacity * sizeof *tokens->ids);
  tokens->capacity = 0;
  tokens->ids = NULL;
  HARK_TRY(hark_allocate(context, 2 * count * sizeof *tokens->ids, (void **)&tokens->ids));
  tokens->capacity = 2 * count;
  return HARK_OK;
}

static hark_status encode_own(hark_context *context, hark_text_tokens *tokens, const hark_line_reader *lines, hark_unknown unknown,
                              size_t *count) {
  hark_text_fault fault = {0};
  size_t consumed = 0;
  HARK_TRY(make_room(context, tokens, lines->length + 1));
  const hark_status status =
      hark_tokenizer_encode_part(context, tokens->own, unknown, lines->line, lines->length, true, tokens->ids, count, &consumed, &fault);
  return status == HARK_BAD_FILE ? hark_lines_fail_fault(context, lines, &fault) : status;
}

hark_status hark_text_tokens_encode(hark_context *context, hark_text_tokens *tokens, const hark_line_reader *lines, bool special,
                                    hark_unknown unknown, const int32_t **ids, size_t *count) {
  if (tokens->own != NULL) {
    HARK_TRY(encode_own(context, tokens, lines, unknown, count));
    *ids = tokens->ids;
    return HARK_OK;
  }
  size_t at = 0;
  const hark_status status = hark_pipeline_encode(tokens->work, lines->line, lines->length, special, ids, count, &at);
  char reason[HARK_MESSAGE_BYTES];
  if (status != HARK_BAD_FILE && status != HARK_UNSUPPORTED) return status;
  memcpy(reason, hark_context_message(context), sizeof reason);
  return hark_lines_fail(context, lines, at, "%s", reason); /* a fault of the text, also where the tokenizer cannot read it */
}

hark_status hark_text_tokens_decode(hark_context *context, hark_text_tokens *tokens, const int32_t *ids, size_t count, bool special,
                                    hark_text *out) {
  (void)context;
  if (tokens->own == NULL) return hark_pipeline_decode(tokens->work, ids, count, special, out);
  for (size_t i = 0; i < count; i++) {
    size_t bytes;
    const char *const text = hark_tokenizer_text(tokens->own, ids[i], &bytes);
    hark_text_append_bytes(out, text, bytes);
  }
  return out->status;
}
