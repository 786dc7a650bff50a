/* added_tokens.c - tokens that are found in a text before anything else divides it: the leftmost, and of those the longest. */
#include <stdio.h>

#include "tokenizers/pipeline/component.h"

/* ---- the searches ---- */

/* A token of normalized text decodes to what it is there. `normal` has room. */
static void keep_normal(hark_added_token *token, hark_span text, hark_bytes *normal) {
  char *const copy = normal->data + normal->count;
  memcpy(copy, text.text, text.bytes);
  normal->count += text.bytes;
  token->decoded = (hark_span){copy, text.bytes};
}

static hark_status add_to_search(hark_pipeline_work *work, hark_pipeline *pipeline, int32_t index, hark_added_search *search) {
  hark_added_token *const token = &pipeline->added[index];
  hark_span text = token->text;
  bool cut = false;
  if (token->normalized && !token->ready) HARK_TRY(hark_pipeline_normalize(work, token->text, &text, &cut));
  if (text.bytes == 0) return HARK_OK;
  if (token->normalized) keep_normal(token, text, &pipeline->added_normal);
  hark_trie_add(&search->trie, text.text, text.bytes, index);
  search->begins[(unsigned char)text.text[0]] = true;
  search->used = true;
  return HARK_OK;
}

/* The bytes of all tokens of a search, which the normalizers may make longer: what they make is counted. */
static hark_status count_bytes(hark_pipeline_work *work, const hark_pipeline *pipeline, bool normalized, size_t *out) {
  for (size_t i = 0; i < pipeline->added_count; i++) {
    const hark_added_token *const token = &pipeline->added[i];
    hark_span text = token->text;
    bool cut = false;
    if (token->normalized != normalized || token->unsearched) continue;
    if (normalized && !token->ready) HARK_TRY(hark_pipeline_normalize(work, text, &text, &cut));
    *out += text.bytes;
  }
  return HARK_OK;
}

static hark_status fill_search(hark_pipeline_work *work, hark_pipeline *pipeline, bool normalized) {
  hark_added_search *const search = normalized ? &pipeline->normalized : &pipeline->raw;
  size_t bytes = 0;
  HARK_TRY(count_bytes(work, pipeline, normalized, &bytes));
  if (bytes == 0) return HARK_OK;
  HARK_TRY(hark_trie_open(work->context, &search->trie, bytes));
  if (normalized) HARK_TRY(HARK_RESERVE(work->context, &pipeline->added_normal, bytes));
  for (int special = 1; special >= 0; special--) /* of equal texts the first one counts, special tokens before others */
    for (size_t i = 0; i < pipeline->added_count; i++) {
      const hark_added_token *const token = &pipeline->added[i];
      if (token->special == (special == 1) && token->normalized == normalized && !token->unsearched)
        HARK_TRY(add_to_search(work, pipeline, (int32_t)i, search));
    }
  return HARK_OK;
}

static hark_status fill_searches(hark_context *context, hark_pipeline *pipeline) {
  hark_pipeline_work work;
  hark_status status = hark_pipeline_work_begin(context, pipeline, &work);
  if (status == HARK_OK) status = fill_search(&work, pipeline, false);
  if (status == HARK_OK) status = fill_search(&work, pipeline, true);
  hark_pipeline_work_end(&work);
  return status;
}

/* ---- the list ---- */

static hark_status index_by_number(hark_context *context, hark_pipeline *pipeline) {
  int32_t size = 0;
  for (size_t i = 0; i < pipeline->added_count; i++)
    if (pipeline->added[i].id >= size) size = pipeline->added[i].id + 1;
  HARK_TRY(hark_allocate(context, (size_t)size * sizeof *pipeline->added_of, (void **)&pipeline->added_of));
  pipeline->added_of_size = size;
  for (int32_t i = 0; i < size; i++) pipeline->added_of[i] = -1;
  for (size_t i = 0; i < pipeline->added_count; i++) pipeline->added_of[pipeline->added[i].id] = (int32_t)i;
  return HARK_OK;
}

hark_status hark_added_tokens_set(hark_context *context, hark_pipeline *pipeline, const hark_added_token *tokens, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += tokens[i].text.bytes;
  HARK_TRY(HARK_RESERVE(context, &pipeline->added_text, bytes + 1));
  HARK_TRY(hark_allocate(context, count * sizeof *tokens, (void **)&pipeline->added));
  pipeline->added_count = count;
  for (size_t i = 0; i < count; i++) {
    char *const copy = pipeline->added_text.data + pipeline->added_text.count;
    if (tokens[i].text.bytes > 0) memcpy(copy, tokens[i].text.text, tokens[i].text.bytes);
    pipeline->added_text.count += tokens[i].text.bytes;
    pipeline->added[i] = tokens[i];
    pipeline->added[i].text.text = copy;
    pipeline->added[i].decoded = pipeline->added[i].text;
  }
  HARK_TRY(index_by_number(context, pipeline));
  return fill_searches(context, pipeline);
}

void hark_added_tokens_close(hark_context *context, hark_pipeline *pipeline) {
  hark_trie_close(context, &pipeline->raw.trie);
  hark_trie_close(context, &pipeline->normalized.trie);
  hark_release(context, pipeline->added, pipeline->added_count * sizeof *pipeline->added);
  hark_release(context, pipeline->added_of, (size_t)pipeline->added_of_size * sizeof *pipeline->added_of);
  HARK_FREE_LIST(context, &pipeline->added_text);
  HARK_FREE_LIST(context, &pipeline->added_normal);
}

static hark_status read_token(const hark_component_reader *reader, const hark_json_node *node, hark_added_token *out) {
  const hark_json_node *const content = hark_json_member(node, "content");
  int64_t id = -1;
  if (!hark_json_is(node, HARK_JSON_OBJECT)) return hark_component_fail(reader, NULL, "expected an object");
  HARK_TRY(hark_component_check_members(reader, node, "id|content|single_word|lstrip|rstrip|normalized|special"));
  if (!hark_json_is(content, HARK_JSON_TEXT)) return hark_component_fail(reader, "content", "expected a text");
  HARK_TRY(hark_component_integer(reader, node, "id", 0, HARK_TOKEN_LIMIT - 1, &id));
  if (id < 0) return hark_component_fail(reader, "id", "missing");
  *out = (hark_added_token){.text = {content->text, content->bytes}, .id = (int32_t)id, .normalized = true};
  HARK_TRY(hark_component_boolean(reader, node, "special", &out->special));
  out->normalized = !out->special;
  HARK_TRY(hark_component_boolean(reader, node, "single_word", &out->single_word));
  if (out->single_word && !hark_unicode_available)
    return hark_fail(reader->context, HARK_UNSUPPORTED,
                     "%s: %s.single_word needs utf8proc, and this hark was built without it (HARK_WITH_UTF8PROC)", reader->name,
                     reader->place);
  HARK_TRY(hark_component_boolean(reader, node, "lstrip", &out->left));
  HARK_TRY(hark_component_boolean(reader, node, "rstrip", &out->right));
  return hark_component_boolean(reader, node, "normalized", &out->normalized);
}

hark_status hark_added_tokens_read(hark_component_reader *reader, const hark_json_node *list) {
  hark_added_token *tokens = NULL;
  size_t count = 0;
  if (list == NULL || list->kind == HARK_JSON_NULL) return HARK_OK;
  if (list->kind != HARK_JSON_LIST) return hark_component_fail(reader, NULL, "expected a list");
  const size_t bytes = (size_t)list->count * sizeof *tokens;
  HARK_TRY(hark_allocate(reader->context, bytes, (void **)&tokens));
  hark_status status = HARK_OK;
  for (const hark_json_node *node = list->first; node != NULL && status == HARK_OK; node = node->next) {
    (void)snprintf(reader->place, sizeof reader->place, "added_tokens[%zu]", count);
    status = read_token(reader, node, &tokens[count++]);
  }
  (void)snprintf(reader->place, sizeof reader->place, "added_tokens");
  if (status == HARK_OK) {
    status = hark_added_tokens_set(reader->context, reader->pipeline, tokens, count);
    if (status != HARK_OK) (void)hark_component_at(reader, NULL, status);
  }
  hark_release(reader->context, tokens, bytes);
  return status;
}

/* ---- dividing ---- */

/* The beginning of the last character before `at`. */
static size_t character_before(hark_span text, size_t at) {
  do at--;
  while (!hark_utf8_is_lead((unsigned char)text.text[at]));
  return at;
}

static bool is_single_word(hark_span text, size_t begin, size_t end) {
  size_t length;
  if (begin > 0 && hark_is_word(hark_character(text.text + character_before(text, begin), &length))) return false;
  return end == text.bytes || !hark_is_word(hark_character(text.text + end, &length));
}

/* Extends a match over white space on the sides where the token takes it, but not before `from`. */
static void strip_around(const hark_added_token *token, hark_span text, size_t from, size_t *begin, size_t *end) {
  size_t length;
  while (token->left && *begin > from) {
    const size_t before = character_before(text, *begin);
    if (!hark_is_white(hark_character(text.text + before, &length))) break;
    *begin = before;
  }
  while (token->right && *end < text.bytes && hark_is_white(hark_character(text.text + *end, &length))) *end += length;
}

hark_status hark_added_tokens_split(hark_pipeline_work *work, const hark_added_search *search, hark_span text, bool first,
                                    hark_between *between) {
  size_t from = 0;
  for (size_t at = 0, length = 0; at < text.bytes && search->used;) {
    if (!search->begins[(unsigned char)text.text[at]]) {
      at++;
      continue;
    }
    const int32_t index = hark_trie_longest(&search->trie, HARK_TRIE_ROOT, text.text + at, text.bytes - at, &length);
    if (index < 0) {
      at++;
      continue;
    }
    const hark_added_token *const token = &work->pipeline->added[index];
    size_t begin = at, end = at + length;
    at = end;
    if (begin < from || (token->single_word && !is_single_word(text, begin, end))) continue;
    strip_around(token, text, from, &begin, &end);
    if (begin > from) HARK_TRY(between(work, (hark_span){text.text + from, begin - from}, first && from == 0));
    HARK_TRY(hark_ids_add(work->context, &work->ids, token->id));
    from = end;
  }
  return from < text.bytes ? between(work, (hark_span){text.text + from, text.bytes - from}, first && from == 0) : HARK_OK;
}
