/* pipeline.c - a tokenizer.json as a pipeline of components, and texts through it. */
#include "tokenizers/pipeline/pipeline.h"

#include <stdio.h>

#include "io/files.h"
#include "io/foreign.h"
#include "tokenizers/pipeline/component.h"
#include "tokenizers/pipeline/sentencepiece_model.h"

#define TEXT_LIMIT ((size_t)1 << 30)
/* Components may make a text longer, and sequences of them exponentially: so much of a text is refused. */
#define GROWTH_FREE ((size_t)1 << 20)
#define GROWTH_FACTOR 64

#define CACHE_SLOTS ((size_t)1 << 15)

/* ---- reading ---- */

#define MEMBERS "version|truncation|padding|added_tokens|normalizer|pre_tokenizer|model|post_processor|decoder"

static hark_status read_list(hark_component_reader *reader, const hark_component_table *table, const hark_json_node *root, const char *name,
                             hark_components *out) {
  (void)snprintf(reader->place, sizeof reader->place, "%s", name);
  return hark_components_read(reader, table, hark_json_member(root, name), out);
}

/* The type of a model is missing in files from before 2020: it is the one whose members are there. */
static hark_status read_model(hark_component_reader *reader, const hark_json_node *root) {
  const hark_json_node *const model = hark_json_member(root, "model");
  (void)snprintf(reader->place, sizeof reader->place, "model");
  if (!hark_json_is(model, HARK_JSON_OBJECT)) return hark_component_fail(reader, NULL, "expected an object");
  return hark_components_read(reader, &hark_models, model, &reader->pipeline->model);
}

static hark_status read_root(hark_component_reader *reader, const hark_json_node *root) {
  hark_pipeline *const p = reader->pipeline;
  if (!hark_json_is(root, HARK_JSON_OBJECT) || !hark_json_is(hark_json_member(root, "model"), HARK_JSON_OBJECT))
    return hark_fail(reader->context, HARK_BAD_FILE, "%s: not a tokenizer.json: it has no \"model\"", reader->name);
  HARK_TRY(hark_component_check_members(reader, root, MEMBERS));
  HARK_TRY(read_list(reader, &hark_normalizers, root, "normalizer", &p->normalizers));
  HARK_TRY(read_list(reader, &hark_pre_tokenizers, root, "pre_tokenizer", &p->pre_tokenizers));
  HARK_TRY(read_model(reader, root));
  HARK_TRY(read_list(reader, &hark_post_processors, root, "post_processor", &p->post_processors));
  HARK_TRY(read_list(reader, &hark_decoders, root, "decoder", &p->decoders));
  (void)snprintf(reader->place, sizeof reader->place, "added_tokens");
  return hark_added_tokens_read(reader, hark_json_member(root, "added_tokens"));
}

/* A file of another kind, such as a damaged model of SentencePiece: it has something, and that does not begin an object. */
static bool is_foreign(const char *text, size_t bytes) {
  size_t at = 0;
  while (at < bytes && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0') at++;
  return at < bytes && text[at] != '{' && hark_foreign_file(text, bytes) == NULL;
}

static hark_status parse(hark_context *context, const char *name, const char *text, size_t bytes, hark_json_tree *out) {
  if (!is_foreign(text, bytes)) return hark_json_tree_parse(context, name, text, bytes, out);
  const hark_status status = hark_json_tree_parse(context, NULL, text, bytes, out);
  if (status == HARK_BAD_FILE)
    hark_fail_prefix(context, "%s: read as a tokenizer.json, because it does not begin like a .model of SentencePiece: ", name);
  return status;
}

static hark_status read_json(hark_context *context, const char *name, const char *text, size_t bytes, hark_pipeline *pipeline) {
  hark_component_reader reader = {.context = context, .pipeline = pipeline, .name = name};
  hark_json_tree tree = {0};
  HARK_TRY(parse(context, name, text, bytes, &tree));
  const hark_status status = read_root(&reader, tree.root);
  hark_json_tree_free(context, &tree);
  return status;
}

hark_status hark_pipeline_read(hark_context *context, const char *name, const void *data, size_t bytes, hark_pipeline **out) {
  hark_pipeline *pipeline = NULL;
  *out = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *pipeline, (void **)&pipeline));
  const hark_status status = hark_sentencepiece_is_model(data, bytes) ? hark_sentencepiece_read(context, name, data, bytes, pipeline)
                                                                      : read_json(context, name, data, bytes, pipeline);
  if (status != HARK_OK) {
    hark_pipeline_destroy(context, &pipeline);
    return status;
  }
  *out = pipeline;
  return HARK_OK;
}

hark_status hark_pipeline_load(hark_context *context, const char *path, hark_pipeline **out) {
  hark_text text = hark_text_empty(context);
  *out = NULL;
  hark_status status = hark_file_read(context, path, HARK_PIPELINE_FILE_BYTES, &text);
  if (status == HARK_OK) status = hark_pipeline_read(context, path, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  return status;
}

void hark_pipeline_destroy(hark_context *context, hark_pipeline **pipeline) {
  hark_pipeline *const p = *pipeline;
  if (p == NULL) return;
  hark_components *const lists[] = {&p->normalizers, &p->pre_tokenizers, &p->model, &p->post_processors, &p->decoders};
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) hark_components_close(context, lists[i]);
  hark_added_tokens_close(context, p);
  hark_token_table_close(context, &p->vocabulary);
  hark_release(context, p, sizeof *p);
  *pipeline = NULL;
}

/* ---- tokens ---- */

int32_t hark_pipeline_size(const hark_pipeline *pipeline) {
  return pipeline->vocabulary.size > pipeline->added_of_size ? pipeline->vocabulary.size : pipeline->added_of_size;
}

static const hark_added_token *added_token(const hark_pipeline *pipeline, int64_t id) {
  const int32_t index = id >= 0 && id < pipeline->added_of_size ? pipeline->added_of[id] : -1;
  return index >= 0 ? &pipeline->added[index] : NULL;
}

const char *hark_pipeline_token(const hark_pipeline *pipeline, int64_t id, size_t *bytes) {
  const hark_added_token *const added = added_token(pipeline, id);
  const hark_span text = added != NULL ? added->text : hark_token_text(&pipeline->vocabulary, id);
  *bytes = text.bytes;
  return text.text;
}

int32_t hark_pipeline_find(const hark_pipeline *pipeline, const char *text, size_t bytes) {
  for (size_t i = 0; i < pipeline->added_count; i++) {
    const hark_added_token *const token = &pipeline->added[i];
    if (token->text.bytes == bytes && memcmp(token->text.text, text, bytes) == 0) return token->id;
  }
  return hark_token_find(&pipeline->vocabulary, text, bytes);
}

/* ---- a caller's memory ---- */

hark_status hark_pipeline_work_begin(hark_context *context, const hark_pipeline *pipeline, hark_pipeline_work *work) {
  *work = (hark_pipeline_work){.context = context, .pipeline = pipeline, .stages = pipeline->pre_tokenizers.count};
  return hark_allocate_zero(context, work->stages * sizeof *work->stage, (void **)&work->stage);
}

void hark_pipeline_work_end(hark_pipeline_work *work) {
  hark_context *const context = work->context;
  for (size_t i = 0; i < work->stages && work->stage != NULL; i++) {
    HARK_FREE_LIST(context, &work->stage[i].text);
    HARK_FREE_LIST(context, &work->stage[i].matches);
  }
  hark_release(context, work->stage, work->stages * sizeof *work->stage);
  if (work->match != NULL) hark_regex_match_free(work->match);
  if (work->cache != NULL) hark_release(context, work->cache, CACHE_SLOTS * sizeof *work->cache);
  for (int i = 0; i < 2; i++) {
    HARK_FREE_LIST(context, &work->normal[i]);
    HARK_FREE_LIST(context, &work->pool[i]);
  }
  HARK_FREE_LIST(context, &work->ids);
  HARK_FREE_LIST(context, &work->codes);
  HARK_FREE_LIST(context, &work->symbols);
  HARK_FREE_LIST(context, &work->queue);
  HARK_FREE_LIST(context, &work->paths);
  HARK_FREE_LIST(context, &work->word);
  HARK_FREE_LIST(context, &work->parts);
  HARK_FREE_LIST(context, &work->more_parts);
}

hark_status hark_pipeline_work_create(hark_context *context, const hark_pipeline *pipeline, hark_pipeline_work **out) {
  hark_pipeline_work *work = NULL;
  *out = NULL;
  HARK_TRY(hark_allocate(context, sizeof *work, (void **)&work));
  hark_status status = hark_pipeline_work_begin(context, pipeline, work);
  if (status == HARK_OK) status = hark_allocate_zero(context, CACHE_SLOTS * sizeof *work->cache, (void **)&work->cache);
  *out = work;
  if (status != HARK_OK) hark_pipeline_work_destroy(out);
  return status;
}

void hark_pipeline_work_destroy(hark_pipeline_work **work) {
  hark_pipeline_work *const w = *work;
  if (w == NULL) return;
  hark_context *const context = w->context;
  hark_pipeline_work_end(w);
  hark_release(context, w, sizeof *w);
  *work = NULL;
}

/* ---- encoding ---- */

static hark_status check_growth(const hark_pipeline_work *work, size_t bytes) {
  if (bytes <= work->text_bytes * GROWTH_FACTOR + GROWTH_FREE) return HARK_OK;
  return hark_fail(work->context, HARK_UNSUPPORTED, "the tokenizer makes more than %zu bytes of a text of %zu", bytes, work->text_bytes);
}

hark_status hark_pipeline_normalize(hark_pipeline_work *work, hark_span in, hark_span *out, bool *cut) {
  const hark_components *const list = &work->pipeline->normalizers;
  *out = in;
  for (size_t i = 0; i < list->count; i++) {
    hark_bytes *const text = &work->normal[i % 2];
    text->count = 0;
    HARK_TRY(list->data[i].kind->normalize(list->data[i].state, work, *out, text, cut));
    *out = (hark_span){text->data != NULL ? text->data : "", text->count};
    HARK_TRY(check_growth(work, out->bytes));
  }
  return HARK_OK;
}

/* The model's tokens of a piece; short pieces are looked up first. */
static hark_status tokenize(hark_pipeline_work *work, hark_span piece) {
  const hark_component *const model = &work->pipeline->model.data[0];
  if (piece.bytes > HARK_CACHED_BYTES || work->cache == NULL) return model->kind->tokenize(model->state, work, piece);
  const uint64_t hash = hark_span_hash(piece.text, piece.bytes);
  hark_cached_piece *const slot = &work->cache[hash >> 20 & (CACHE_SLOTS - 1)];
  const size_t begin = work->ids.count;
  if (slot->bytes == piece.bytes && slot->hash == (uint32_t)hash && memcmp(slot->text, piece.text, piece.bytes) == 0) {
    HARK_TRY(HARK_RESERVE(work->context, &work->ids, HARK_CACHED_TOKENS));
    memcpy(work->ids.data + begin, slot->ids, sizeof slot->ids);
    work->ids.count += slot->count;
    return HARK_OK;
  }
  HARK_TRY(model->kind->tokenize(model->state, work, piece));
  const size_t count = work->ids.count - begin;
  if (count > HARK_CACHED_TOKENS) return HARK_OK;
  *slot = (hark_cached_piece){.hash = (uint32_t)hash, .bytes = (uint8_t)piece.bytes, .count = (uint8_t)count};
  if (count > 0) memcpy(slot->ids, work->ids.data + begin, count * sizeof *slot->ids);
  memcpy(slot->text, piece.text, piece.bytes);
  return HARK_OK;
}

static hark_status split_from(hark_pipeline_work *work, size_t stage, hark_span part, bool first) {
  const hark_components *const list = &work->pipeline->pre_tokenizers;
  if (part.bytes == 0) return HARK_OK;
  if (stage == list->count) return tokenize(work, part);
  HARK_TRY(check_growth(work, part.bytes));
  return list->data[stage].kind->split(list->data[stage].state, work, stage, part, first);
}

hark_status hark_pipeline_pass(hark_pipeline_work *work, size_t stage, hark_span part, bool first) {
  return split_from(work, stage + 1, part, first);
}

static hark_status split_normalized(hark_pipeline_work *work, hark_span text, bool first) { return split_from(work, 0, text, first); }

/* A part of the line between added tokens: it is normalized, and then divided at the added tokens of normalized text. */
static hark_status encode_between(hark_pipeline_work *work, hark_span text, bool first) {
  hark_span normal;
  bool cut = false;
  HARK_TRY(hark_pipeline_normalize(work, text, &normal, &cut));
  return hark_added_tokens_split(work, &work->pipeline->normalized, normal, first && !cut, split_normalized);
}

static hark_status check_utf8(hark_context *context, const char *text, size_t bytes, size_t *at) {
  uint32_t code;
  for (size_t i = 0, length; i < bytes; i += length) {
    const hark_utf8_result result = hark_utf8_decode((const unsigned char *)text + i, bytes - i, &code, &length);
    *at = i;
    if (result != HARK_UTF8_OK) return hark_fail(context, HARK_BAD_FILE, "invalid UTF-8: %s", hark_utf8_result_text(result));
  }
  return HARK_OK;
}

/* The first place of `part` in the text; `bytes` where there is none. */
static size_t first_place(const char *text, size_t bytes, hark_span part) {
  for (size_t i = 0; i + part.bytes <= bytes; i++)
    if (memcmp(text + i, part.text, part.bytes) == 0) return i;
  return bytes;
}

/* Where the text has what the model lacks. A component may have copied and changed it: then the place of its characters, or of those at its
 * end, is the first one where the text has them, and 0 where it does not. */
static size_t place_of_lacking(const hark_pipeline_work *work, const char *text, size_t bytes) {
  hark_span part = work->lacking;
  if (part.text == NULL) return 0;
  if ((uintptr_t)part.text >= (uintptr_t)text && (uintptr_t)part.text < (uintptr_t)text + bytes) return (size_t)(part.text - text);
  for (size_t length; part.bytes > 0; part.text += length, part.bytes -= length) {
    const size_t place = first_place(text, bytes, part);
    if (place < bytes) return place;
    length = hark_character_bytes(part.text);
  }
  return 0;
}

static hark_status encode_text(hark_pipeline_work *work, hark_span text, bool special) {
  const hark_components *const finish = &work->pipeline->post_processors;
  HARK_TRY(hark_added_tokens_split(work, &work->pipeline->raw, text, true, encode_between));
  for (size_t i = 0; special && i < finish->count; i++) HARK_TRY(finish->data[i].kind->finish(finish->data[i].state, work));
  return HARK_OK;
}

hark_status hark_pipeline_encode(hark_pipeline_work *work, const char *text, size_t bytes, bool special, const int32_t **ids, size_t *count,
                                 size_t *at) {
  *at = 0;
  if (bytes > TEXT_LIMIT) return hark_fail(work->context, HARK_TOO_LARGE, "a text of more than %zu bytes", TEXT_LIMIT);
  HARK_TRY(check_utf8(work->context, text, bytes, at));
  work->ids.count = 0;
  work->text_bytes = bytes;
  work->lacking = (hark_span){0};
  const hark_status status = encode_text(work, (hark_span){text, bytes}, special);
  if (status != HARK_OK) *at = place_of_lacking(work, text, bytes);
  HARK_TRY(status);
  *ids = work->ids.data;
  *count = work->ids.count;
  return HARK_OK;
}

/* ---- decoding ---- */

static hark_status collect(hark_pipeline_work *work, const int32_t *ids, size_t count, bool special) {
  work->parts.count = work->text_bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const hark_added_token *const added = added_token(work->pipeline, ids[i]);
    const hark_span text = added != NULL ? added->decoded : hark_token_text(&work->pipeline->vocabulary, ids[i]);
    if (text.text == NULL || (added != NULL && added->special && !special)) continue;
    HARK_TRY(hark_spans_add(work->context, &work->parts, text.text, text.bytes));
    work->text_bytes += text.bytes;
  }
  return HARK_OK;
}

static hark_status check_parts(const hark_pipeline_work *work) {
  size_t bytes = 0;
  for (size_t i = 0; i < work->parts.count; i++) bytes += work->parts.data[i].bytes;
  return check_growth(work, bytes);
}

/* Runs the decoders over work->parts and appends what they leave. */
static hark_status decode_parts(hark_pipeline_work *work, hark_text *out) {
  const hark_components *const list = &work->pipeline->decoders;
  for (size_t i = 0; i < list->count && work->parts.count > 0; i++) {
    HARK_TRY(list->data[i].kind->decode(list->data[i].state, work));
    HARK_TRY(check_parts(work));
  }
  for (size_t i = 0; i < work->parts.count; i++) {
    if ((i > 0 || work->apart) && list->count == 0) hark_text_append_bytes(out, " ", 1); /* without a decoder words are apart */
    hark_text_append_bytes(out, work->parts.data[i].text, work->parts.data[i].bytes);
  }
  return out->status;
}

hark_status hark_pipeline_decode(hark_pipeline_work *work, const int32_t *ids, size_t count, bool special, hark_text *out) {
  HARK_TRY(collect(work, ids, count, special));
  return decode_parts(work, out);
}

hark_status hark_pipeline_decode_apart(hark_pipeline_work *work, int32_t id, hark_text *out) {
  HARK_TRY(collect(work, &id, 1, false));
  work->apart = true;
  const hark_status status = decode_parts(work, out);
  work->apart = false;
  return status;
}
