/* json_lines.c - see json_lines.h. */
#include "data/json_lines.h"

#include <math.h>
#include <string.h>

#include "data/unpack/unpack.h"
#include "io/files.h"

#define PART_BYTES ((size_t)1 << 16) /* of text, before it is written */

bool hark_json_lines_is(const char *path) {
  static const char *const endings[] = {".jsonl", ".ndjson"};
  size_t length = strlen(path);
  for (int i = 0; hark_packings[i] != NULL; i++) {
    const size_t packed = strlen(hark_packings[i]->ending);
    if (length <= packed || strcmp(path + length - packed, hark_packings[i]->ending) != 0) continue;
    length -= packed;
    break;
  }
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
    const size_t ending = strlen(endings[i]);
    if (length > ending && memcmp(path + length - ending, endings[i], ending) == 0) return true;
  }
  return false;
}

void hark_json_lines_find(const char *const *paths, int64_t count, hark_line_kinds *kinds) {
  for (int64_t i = 0; i < count; i++) {
    const bool lines = hark_json_lines_is(paths[i]), folder = hark_path_kind_of(paths[i]) == HARK_PATH_FOLDER;
    kinds->json = kinds->json || lines || folder;
    kinds->others = kinds->others || !lines || folder;
  }
}

const char *hark_json_lines_idle(const hark_line_kinds *kinds, bool quoted) {
  if (quoted ? kinds->others : kinds->json) return NULL;
  return quoted ? "it needs fields that are separated by tabs, and JSON lines have none" : "it needs JSON lines (.jsonl, .ndjson)";
}

static bool is_blank(const hark_line_reader *lines) {
  for (size_t i = 0; i < lines->length; i++)
    if (lines->line[i] != ' ' && lines->line[i] != '\t') return false;
  return true;
}

hark_status hark_json_lines_read(hark_context *context, const hark_line_reader *lines, hark_json_tree *tree, bool *blank) {
  hark_json_fault fault = {0};
  *tree = (hark_json_tree){0};
  *blank = is_blank(lines);
  if (*blank) return HARK_OK;
  const hark_status status = hark_json_tree_read(context, lines->line, lines->length, &fault, tree);
  if (status == HARK_BAD_FILE) return hark_lines_fail(context, lines, fault.at, "JSON: %s", fault.what);
  HARK_TRY(status);
  if (hark_json_is(tree->root, HARK_JSON_OBJECT)) return HARK_OK;
  hark_json_tree_free(context, tree);
  return hark_lines_fail(context, lines, 0, "not a JSON object, expected one per line");
}

/* 1 is written as 1.0 by programs that keep tables of numbers. */
static bool is_whole(const hark_json_node *value) {
  static const double limit = 9007199254740992.0; /* 2^53: every whole number up to it is a double */
  return value->kind == HARK_JSON_INTEGER ||
         (value->kind == HARK_JSON_REAL && fabs(value->real) <= limit && floor(value->real) == value->real);
}

int64_t hark_json_lines_whole(const hark_json_node *value) { return value->kind == HARK_JSON_REAL ? (int64_t)value->real : value->integer; }

hark_status hark_json_lines_member(hark_context *context, const hark_line_reader *lines, const hark_json_node *object, const char *field,
                                   hark_json_kind kind, const hark_json_node **out) {
  const char *const expected = kind == HARK_JSON_TEXT ? "a string" : "a whole number";
  char shown[HARK_SHOWN_BYTES];
  *out = hark_json_member(object, field);
  if (*out == NULL) return hark_lines_fail(context, lines, 0, "no member \"%s\", expected %s", hark_text_shown(field, shown), expected);
  if (kind == HARK_JSON_INTEGER ? is_whole(*out) : (*out)->kind == kind) return HARK_OK;
  return hark_lines_fail(context, lines, 0, "\"%s\" is not %s", hark_text_shown(field, shown), expected);
}

static hark_status append_text(hark_context *context, const hark_line_reader *lines, const hark_json_node *object, const char *field,
                               hark_text *out) {
  const hark_json_node *text = NULL;
  HARK_TRY(hark_json_lines_member(context, lines, object, field, HARK_JSON_TEXT, &text));
  hark_text_append_bytes(out, text->text, text->bytes);
  if (text->bytes == 0 || text->text[text->bytes - 1] != '\n') hark_text_append_bytes(out, "\n", 1);
  return out->status;
}

static hark_status flush(hark_context *context, hark_text *text, hark_spool *spool) {
  HARK_TRY(hark_spool_append(context, spool, hark_text_get(text), text->length));
  hark_text_resize(text, 0);
  return text->status;
}

static hark_status append_all(hark_context *context, hark_line_reader *lines, const char *field, hark_text *out, hark_spool *spool) {
  for (;;) {
    hark_json_tree tree;
    bool more = false, blank = false;
    HARK_TRY(hark_lines_next(context, lines, &more));
    if (!more) return flush(context, out, spool);
    HARK_TRY(hark_json_lines_read(context, lines, &tree, &blank));
    if (blank) continue;
    const hark_status status = append_text(context, lines, tree.root, field, out);
    hark_json_tree_free(context, &tree);
    HARK_TRY(status);
    if (out->length >= PART_BYTES) HARK_TRY(flush(context, out, spool));
  }
}

hark_status hark_json_lines_text(hark_context *context, const char *path, const char *field, hark_spool *spool) {
  hark_line_reader lines = {0};
  hark_text text = hark_text_empty(context);
  hark_status status = hark_lines_open(context, &lines, path);
  if (status == HARK_OK) status = append_all(context, &lines, field, &text, spool);
  hark_text_free(&text);
  hark_lines_close(&lines);
  return status;
}
