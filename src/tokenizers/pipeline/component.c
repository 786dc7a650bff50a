/* component.c - reading components and their members, with messages that name the file and the place in it. */
#include "tokenizers/pipeline/component.h"

#include <stdio.h>

#include "io/words.h"

#define SEQUENCE_LIMIT 256 /* components of one kind */
#define MEMBERS_BYTES 192  /* the names of a component's members */

hark_status hark_component_at(const hark_component_reader *reader, const char *key, hark_status status) {
  if (status != HARK_OK)
    hark_fail_prefix(reader->context, "%s: %s%s%s: ", reader->name, reader->place, key != NULL && reader->place[0] != 0 ? "." : "",
                     key != NULL ? key : "");
  return status;
}

hark_status hark_component_fail(const hark_component_reader *reader, const char *key, const char *format, ...) {
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return hark_component_at(reader, key, hark_fail(reader->context, HARK_BAD_FILE, "%s", what));
}

hark_status hark_component_unsupported(const hark_component_reader *reader, const char *key, const char *format, ...) {
  char what[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return hark_fail(reader->context, HARK_UNSUPPORTED, "%s: %s.%s %s is not supported", reader->name, reader->place, key, what);
}

/* ---- members ---- */

static bool is_among(const char *words, const char *name) {
  const char *at = words, *word;
  size_t length;
  while (at != NULL && (word = hark_next_word(&at, '|', &length)) != NULL)
    if (strlen(name) == length && memcmp(word, name, length) == 0) return true;
  return false;
}

hark_status hark_component_check_members(const hark_component_reader *reader, const hark_json_node *node, const char *members) {
  char shown[HARK_SHOWN_BYTES];
  for (const hark_json_node *item = node->first; item != NULL; item = item->next)
    if (item->kind != HARK_JSON_NULL && !is_among(members, item->name))
      return hark_fail(reader->context, HARK_UNSUPPORTED, "%s: %s%s'%s' is not supported", reader->name, reader->place,
                       reader->place[0] != '\0' ? ": " : "", hark_text_shown(item->name, shown));
  return HARK_OK;
}

/* Of a component, all of which have a type. */
static hark_status check_members(const hark_component_reader *reader, const hark_json_node *node, const char *members) {
  char words[MEMBERS_BYTES];
  (void)snprintf(words, sizeof words, "type%s%s", members != NULL ? "|" : "", members != NULL ? members : "");
  return hark_component_check_members(reader, node, words);
}

/* The member, or NULL if it is absent or null. */
static const hark_json_node *member(const hark_json_node *node, const char *key) {
  const hark_json_node *const found = hark_json_member(node, key);
  return hark_json_is(found, HARK_JSON_NULL) ? NULL : found;
}

hark_status hark_component_boolean(const hark_component_reader *reader, const hark_json_node *node, const char *key, bool *out) {
  const hark_json_node *const found = member(node, key);
  if (found == NULL) return HARK_OK;
  if (found->kind != HARK_JSON_BOOLEAN) return hark_component_fail(reader, key, "expected true or false");
  *out = found->boolean;
  return HARK_OK;
}

hark_status hark_component_integer(const hark_component_reader *reader, const hark_json_node *node, const char *key, int64_t low,
                                   int64_t high, int64_t *out) {
  const hark_json_node *const found = member(node, key);
  if (found == NULL) return HARK_OK;
  if (found->kind != HARK_JSON_INTEGER || found->integer < low || found->integer > high)
    return hark_component_fail(reader, key, "expected a whole number from %lld to %lld", (long long)low, (long long)high);
  *out = found->integer;
  return HARK_OK;
}

hark_status hark_component_text(const hark_component_reader *reader, const hark_json_node *node, const char *key, hark_bytes *out) {
  const hark_json_node *const found = member(node, key);
  if (found == NULL) return HARK_OK;
  if (found->kind != HARK_JSON_TEXT) return hark_component_fail(reader, key, "expected a text");
  out->count = 0;
  return hark_bytes_add(reader->context, out, found->text, found->bytes);
}

hark_status hark_component_needed_text(const hark_component_reader *reader, const hark_json_node *node, const char *key, hark_bytes *out) {
  if (member(node, key) == NULL) return hark_component_fail(reader, key, "missing");
  return hark_component_text(reader, node, key, out);
}

hark_status hark_component_word(const hark_component_reader *reader, const hark_json_node *node, const char *key, const char *words,
                                int *out) {
  const hark_json_node *const found = member(node, key);
  if (found == NULL) return HARK_OK;
  if (found->kind != HARK_JSON_TEXT) return hark_component_fail(reader, key, "expected a text");
  const char *at = words, *word;
  size_t length;
  for (int i = 0; (word = hark_next_word(&at, '|', &length)) != NULL; i++) {
    if (length != found->bytes || memcmp(word, found->text, length) != 0) continue;
    *out = i;
    return HARK_OK;
  }
  char shown[HARK_SHOWN_BYTES];
  return hark_component_unsupported(reader, key, "'%s'", hark_text_shown(found->text, shown));
}

/* ---- patterns ---- */

static hark_status compile(const hark_component_reader *reader, const char *key, const hark_json_node *expression, hark_pattern *out) {
  if (!hark_regex_available)
    return hark_fail(reader->context, HARK_UNSUPPORTED,
                     "%s: %s.%s is a regular expression, which needs PCRE2, and this hark was built without it (HARK_WITH_PCRE2)",
                     reader->name, reader->place, key);
  return hark_component_at(reader, key, hark_regex_compile(reader->context, expression->text, expression->bytes, &out->regex));
}

hark_status hark_pattern_read(const hark_component_reader *reader, const hark_json_node *node, const char *key, hark_pattern *out) {
  const hark_json_node *const pattern = hark_json_member(node, key), *const text = hark_json_member(pattern, "String"),
                              *const expression = hark_json_member(pattern, "Regex");
  if (hark_json_is(pattern, HARK_JSON_OBJECT) && pattern->count > 1) return hark_component_fail(reader, key, "expected one pattern");
  if (hark_json_is(expression, HARK_JSON_TEXT)) return compile(reader, key, expression, out);
  if (!hark_json_is(text, HARK_JSON_TEXT)) return hark_component_fail(reader, key, "expected {\"String\": ...} or {\"Regex\": ...}");
  if (text->bytes == 0) return hark_component_fail(reader, key, "the text is empty");
  return hark_bytes_add(reader->context, &out->text, text->text, text->bytes);
}

void hark_pattern_close(hark_context *context, hark_pattern *pattern) {
  HARK_FREE_LIST(context, &pattern->text);
  hark_regex_free(pattern->regex);
  pattern->regex = NULL;
}

static bool find_text(const hark_bytes *needle, hark_span text, size_t from, size_t *begin) {
  for (const char *at = text.text + from, *const end = text.text + text.bytes; (size_t)(end - at) >= needle->count; at++) {
    at = memchr(at, needle->data[0], (size_t)(end - at) - needle->count + 1);
    if (at == NULL) return false;
    if (memcmp(at, needle->data, needle->count) != 0) continue;
    *begin = (size_t)(at - text.text);
    return true;
  }
  return false;
}

static hark_status find_match(hark_pipeline_work *work, const hark_pattern *pattern, hark_span text, hark_finder *f, bool *found) {
  if (pattern->regex == NULL) {
    *found = find_text(&pattern->text, text, f->from, &f->begin);
    f->end = *found ? f->begin + pattern->text.count : 0;
    return HARK_OK;
  }
  if (work->match == NULL) work->match = hark_regex_match_memory();
  if (work->match == NULL) return hark_fail(work->context, HARK_OUT_OF_MEMORY, "out of memory in PCRE2");
  return hark_regex_next(work->context, pattern->regex, work->match, text, f->from, found, &f->begin, &f->end);
}

hark_status hark_pattern_next(hark_pipeline_work *work, const hark_pattern *pattern, hark_span text, hark_finder *f, bool *found) {
  while (f->from <= text.bytes) {
    HARK_TRY(find_match(work, pattern, text, f, found));
    if (!*found) return HARK_OK;
    if (f->begin < f->end || f->end != f->after) {
      f->from = f->after = f->end;
      return HARK_OK;
    }
    f->from += f->from < text.bytes ? hark_character_bytes(text.text + f->from) : 1;
  }
  *found = false;
  return HARK_OK;
}

hark_status hark_replacement_read(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  hark_replacement *const replacement = memory;
  HARK_TRY(hark_component_needed_text(reader, node, "content", &replacement->content));
  return hark_pattern_read(reader, node, "pattern", &replacement->pattern);
}

void hark_replacement_close(hark_context *context, void *memory) {
  hark_replacement *const replacement = memory;
  hark_pattern_close(context, &replacement->pattern);
  HARK_FREE_LIST(context, &replacement->content);
}

/* ---- lists of components ---- */

hark_status hark_components_add(hark_context *context, const hark_component_kind *kind, hark_components *out, void **state) {
  HARK_TRY(HARK_RESERVE(context, out, 1));
  void *memory = NULL;
  if (kind->state_bytes > 0) HARK_TRY(hark_allocate_zero(context, kind->state_bytes, &memory));
  out->data[out->count++] = (hark_component){kind, memory};
  *state = memory;
  return HARK_OK;
}

void hark_components_close(hark_context *context, hark_components *components) {
  for (size_t i = 0; i < components->count; i++) {
    const hark_component *const c = &components->data[i];
    if (c->kind->close != NULL && c->state != NULL) c->kind->close(context, c->state);
    hark_release(context, c->state, c->kind->state_bytes);
  }
  HARK_FREE_LIST(context, components);
}

static hark_status check_library(const hark_component_reader *reader, const hark_component_kind *kind) {
  const bool there = kind->needs == HARK_NEEDS_NOTHING || (kind->needs == HARK_NEEDS_PCRE2 ? hark_regex_available : hark_unicode_available);
  if (there) return HARK_OK;
  return hark_fail(reader->context, HARK_UNSUPPORTED, "%s: %s.type '%s' needs %s, and this hark was built without it (HARK_WITH_%s)",
                   reader->name, reader->place, kind->type, kind->needs == HARK_NEEDS_PCRE2 ? "PCRE2" : "utf8proc",
                   kind->needs == HARK_NEEDS_PCRE2 ? "PCRE2" : "UTF8PROC");
}

static hark_status read_sequence(hark_component_reader *reader, const hark_component_table *table, const hark_json_node *node,
                                 hark_components *out) {
  const hark_json_node *const list = hark_json_member(node, table->sequence);
  HARK_TRY(check_members(reader, node, table->sequence));
  if (!hark_json_is(list, HARK_JSON_LIST)) return hark_component_fail(reader, table->sequence, "expected a list");
  const size_t length = strlen(reader->place);
  int64_t index = 0;
  for (const hark_json_node *item = list->first; item != NULL; item = item->next, index++) {
    (void)snprintf(reader->place + length, sizeof reader->place - length, ".%s[%lld]", table->sequence, (long long)index);
    HARK_TRY(hark_components_read(reader, table, item, out));
    reader->place[length] = 0;
  }
  return HARK_OK;
}

hark_status hark_components_read(hark_component_reader *reader, const hark_component_table *table, const hark_json_node *node,
                                 hark_components *out) {
  char shown[HARK_SHOWN_BYTES];
  void *state = NULL;
  if (node == NULL || node->kind == HARK_JSON_NULL) return HARK_OK;
  if (node->kind != HARK_JSON_OBJECT) return hark_component_fail(reader, NULL, "expected an object");
  const char *const type = hark_json_text(hark_json_member(node, "type"));
  if (type == NULL) return hark_component_fail(reader, "type", "expected a text");
  if (table->sequence != NULL && strcmp(type, "Sequence") == 0) return read_sequence(reader, table, node, out);
  const hark_component_kind *const *kind = table->kinds;
  while (*kind != NULL && strcmp((*kind)->type, type) != 0) kind++;
  if (*kind == NULL) return hark_component_unsupported(reader, "type", "'%s'", hark_text_shown(type, shown));
  if (out->count == SEQUENCE_LIMIT) return hark_component_fail(reader, NULL, "more than %d components", SEQUENCE_LIMIT);
  HARK_TRY(check_library(reader, *kind));
  HARK_TRY(check_members(reader, node, (*kind)->members));
  HARK_TRY(hark_components_add(reader->context, *kind, out, &state));
  return (*kind)->read != NULL ? (*kind)->read(reader, node, state) : HARK_OK;
}
