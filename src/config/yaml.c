/* yaml.c - configuration files, by libyaml's events.
 *
 * Events are used instead of a document. Nothing is composed, so an alias costs nothing (it is refused), our own stack limits the depth,
 * and every item has its line. The key of the innermost open mapping is stored as one dotted text; a frame stores the length of its part.
 * libyaml's memory is the C library's, in proportion to the text (HARK_YAML_BYTES at most). Cost: O(length + keys^2) for the search for
 * duplicates.
 */
#include "config/yaml.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "io/foreign.h"
#include "io/text.h"

#define KEY_BYTES 256 /* of a dotted key */

typedef struct frame {
  bool sequence;
  bool needs_value;  /* mapping: a key was read */
  size_t key_length; /* of the dotted key that names this mapping or sequence */
  int64_t index;     /* sequence: of the next item */
} frame;

typedef struct walk {
  hark_context *context;
  const char *name;
  hark_yaml_visitor *visit;
  void *user;
  frame frames[HARK_YAML_DEPTH];
  int depth;
  int skip_depth; /* > 0: inside a skipped section or list, so many levels deep */
  char key[KEY_BYTES];
  int key_line;   /* line of the last key */
  hark_text seen; /* keys, each followed by its zero byte */
  int keys, items;
  bool ended; /* the one document has ended */
} walk;

static hark_status fail_at(walk *w, const yaml_mark_t *mark, const char *what) {
  return hark_fail(w->context, HARK_BAD_CONFIGURATION, "%s:%zu:%zu: %s", w->name, mark->line + 1, mark->column + 1, what);
}

static hark_status visit(walk *w, hark_yaml_kind kind, const char *value, int64_t index, int line, bool *skip) {
  const hark_yaml_item item = {kind, w->key, value, index, line};
  *skip = false;
  return w->visit(w->user, &item, skip);
}

static bool is_word(const char *text, size_t length) {
  if (length == 0) return false;
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.')) return false;
  }
  return true;
}

/* Appends a key to that of the open mapping and refuses it if it occurred before. */
static hark_status take_key(walk *w, const yaml_event_t *event) {
  const char *const text = (const char *)event->data.scalar.value;
  const size_t length = event->data.scalar.length;
  frame *const top = &w->frames[w->depth - 1];
  const size_t base = top->key_length;
  if (length == 2 && memcmp(text, "<<", 2) == 0) return fail_at(w, &event->start_mark, "merge keys are not supported");
  if (!is_word(text, length)) return fail_at(w, &event->start_mark, "expected a key of letters, digits, '_', '-' and '.'");
  if (base + length + 2 > KEY_BYTES) return fail_at(w, &event->start_mark, "key too long");
  if (++w->keys > HARK_YAML_KEYS) return fail_at(w, &event->start_mark, "too many keys");
  size_t at = base;
  if (base > 0) w->key[at++] = '.';
  memcpy(w->key + at, text, length);
  w->key[at + length] = 0;
  top->needs_value = true;
  w->key_line = (int)event->start_mark.line + 1;
  const char *const end = hark_text_get(&w->seen) + w->seen.length;
  for (const char *known = hark_text_get(&w->seen); known < end; known += strlen(known) + 1) {
    if (strcmp(known, w->key) == 0) {
      return hark_fail(w->context, HARK_BAD_CONFIGURATION, "%s:%zu:%zu: %s: key given twice", w->name, event->start_mark.line + 1,
                       event->start_mark.column + 1, w->key);
    }
  }
  hark_text_append_bytes(&w->seen, w->key, strlen(w->key) + 1);
  return w->seen.status;
}

/* Cuts the key back to that of the innermost open mapping. */
static void end_value(walk *w) {
  if (w->depth == 0) return;
  frame *const top = &w->frames[w->depth - 1];
  top->needs_value = false;
  w->key[top->key_length] = 0;
}

static bool is_null(const yaml_event_t *event) {
  const char *const text = (const char *)event->data.scalar.value;
  if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
  return text[0] == 0 || strcmp(text, "~") == 0 || strcmp(text, "null") == 0;
}

static hark_status take_scalar(walk *w, const yaml_event_t *event) {
  const char *const text = (const char *)event->data.scalar.value;
  bool skip;
  if (event->data.scalar.anchor != NULL) return fail_at(w, &event->start_mark, "anchors are not supported");
  if (event->data.scalar.tag != NULL) return fail_at(w, &event->start_mark, "tags are not supported");
  if (strlen(text) != event->data.scalar.length) return fail_at(w, &event->start_mark, "a value with a zero byte");
  if (w->depth == 0) {
    if (is_null(event)) return HARK_OK; /* a file of comments only */
    return fail_at(w, &event->start_mark, "expected sections or keys at the top, not a single value");
  }
  frame *const top = &w->frames[w->depth - 1];
  if (top->sequence) {
    if (++w->items > HARK_YAML_ITEMS) return fail_at(w, &event->start_mark, "too many items in lists");
    return visit(w, HARK_YAML_ITEM, text, top->index++, (int)event->start_mark.line + 1, &skip);
  }
  if (!top->needs_value) return take_key(w, event);
  const hark_status status = visit(w, is_null(event) ? HARK_YAML_NULL : HARK_YAML_SCALAR, text, 0, w->key_line, &skip);
  end_value(w);
  return status;
}

static hark_status begin_collection(walk *w, const yaml_event_t *event, bool sequence) {
  const yaml_char_t *const anchor = sequence ? event->data.sequence_start.anchor : event->data.mapping_start.anchor;
  const yaml_char_t *const tag = sequence ? event->data.sequence_start.tag : event->data.mapping_start.tag;
  if (anchor != NULL) return fail_at(w, &event->start_mark, "anchors are not supported");
  if (tag != NULL) return fail_at(w, &event->start_mark, "tags are not supported");
  if (w->depth == HARK_YAML_DEPTH) return fail_at(w, &event->start_mark, "nested too deeply");
  bool skip = false;
  if (w->depth == 0) {
    if (sequence) return fail_at(w, &event->start_mark, "expected sections or keys at the top, not a list");
  } else {
    const frame *const top = &w->frames[w->depth - 1];
    if (top->sequence) return fail_at(w, &event->start_mark, "a list or section inside a list");
    if (!top->needs_value) return fail_at(w, &event->start_mark, "expected a key");
    HARK_TRY(visit(w, sequence ? HARK_YAML_LIST : HARK_YAML_SECTION, NULL, 0, w->key_line, &skip));
  }
  if (skip) {
    w->skip_depth = 1;
    return HARK_OK;
  }
  w->frames[w->depth++] = (frame){.sequence = sequence, .key_length = strlen(w->key)};
  return HARK_OK;
}

/* Inside a skipped part: only counts the levels. */
static hark_status skip_event(walk *w, const yaml_event_t *event) {
  if (event->type == YAML_MAPPING_START_EVENT || event->type == YAML_SEQUENCE_START_EVENT) {
    if (w->depth + ++w->skip_depth > HARK_YAML_DEPTH) return fail_at(w, &event->start_mark, "nested too deeply");
  }
  if (event->type == YAML_MAPPING_END_EVENT || event->type == YAML_SEQUENCE_END_EVENT) {
    if (--w->skip_depth == 0) end_value(w);
  }
  if (event->type == YAML_ALIAS_EVENT) return fail_at(w, &event->start_mark, "aliases are not supported");
  return HARK_OK;
}

static hark_status take_event(walk *w, const yaml_event_t *event) {
  if (w->skip_depth > 0) return skip_event(w, event);
  switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
      if (w->ended) return fail_at(w, &event->start_mark, "expected one document, a second one begins");
      return HARK_OK;
    case YAML_DOCUMENT_END_EVENT: w->ended = true; return HARK_OK;
    case YAML_ALIAS_EVENT: return fail_at(w, &event->start_mark, "aliases are not supported");
    case YAML_SCALAR_EVENT: return take_scalar(w, event);
    case YAML_SEQUENCE_START_EVENT: return begin_collection(w, event, true);
    case YAML_MAPPING_START_EVENT: return begin_collection(w, event, false);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
      w->depth--;
      end_value(w);
      return HARK_OK;
    default: return HARK_OK;
  }
}

static hark_status fail_parser(walk *w, const yaml_parser_t *parser) {
  if (parser->error == YAML_MEMORY_ERROR) return hark_fail(w->context, HARK_OUT_OF_MEMORY, "%s: out of memory in libyaml", w->name);
  const char *const problem = parser->problem != NULL ? parser->problem : "malformed";
  if (parser->error == YAML_READER_ERROR) {
    return hark_fail(w->context, HARK_BAD_CONFIGURATION, "%s: byte %zu: %s", w->name, parser->problem_offset, problem);
  }
  return hark_fail(w->context, HARK_BAD_CONFIGURATION, "%s:%zu:%zu: not well-formed YAML: %s%s%s", w->name, parser->problem_mark.line + 1,
                   parser->problem_mark.column + 1, problem, parser->context != NULL ? " " : "",
                   parser->context != NULL ? parser->context : "");
}

hark_status hark_yaml_walk(hark_context *context, const char *name, const char *text, size_t length, hark_yaml_visitor *visitor,
                           void *user) {
  if (length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* a byte order mark, which libyaml counts as a column */
    text += 3;
    length -= 3;
  }
  if (length > HARK_YAML_BYTES) return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: larger than %zu bytes", name, HARK_YAML_BYTES);
  const char *const foreign = hark_foreign_file(text, length);
  if (foreign != NULL) return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is %s, expected YAML", name, foreign);
  yaml_parser_t parser;
  if (!yaml_parser_initialize(&parser)) return hark_fail(context, HARK_OUT_OF_MEMORY, "%s: out of memory in libyaml", name);
  yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
  yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
  walk w = {.context = context, .name = name, .visit = visitor, .user = user, .seen = hark_text_empty(context)};
  hark_status status = HARK_OK;
  bool more = true;
  while (more && status == HARK_OK) {
    yaml_event_t event;
    if (!yaml_parser_parse(&parser, &event)) {
      status = fail_parser(&w, &parser);
      break;
    }
    more = event.type != YAML_STREAM_END_EVENT;
    status = take_event(&w, &event);
    yaml_event_delete(&event);
  }
  hark_text_free(&w.seen);
  yaml_parser_delete(&parser);
  return status;
}
