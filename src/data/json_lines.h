/* json_lines.h - JSON lines (.jsonl, .ndjson): one object per line, with a text in one of its members, and for classification a label in
 * another.
 *
 * As a text, a file is its texts one after the other, each ended by a line end unless it has one. Blank lines are skipped. */
#ifndef HARK_DATA_JSON_LINES_H
#define HARK_DATA_JSON_LINES_H

#include "data/line_reader.h"
#include "io/json_tree.h"

#define HARK_JSON_LINES_TEXT "text" /* the usual members */
#define HARK_JSON_LINES_LABEL "label"

/* Whether the name is that of such a file, compressed or not. */
bool hark_json_lines_is(const char *path);

/* Which files are among the paths, by their names; a folder may have both. To be set to false before the first list of paths. */
typedef struct hark_line_kinds {
  bool json, others;
} hark_line_kinds;
void hark_json_lines_find(const char *const *paths, int64_t count, hark_line_kinds *kinds);
/* Why an option has no effect on files of these kinds, as "it needs ..."; NULL: it has. quoted: an option for lines that are divided by
 * tabs, otherwise for members of JSON lines. */
const char *hark_json_lines_idle(const hark_line_kinds *kinds, bool quoted);

/* Reads the object of the current line; the caller frees the tree. *blank: the line has no object, and there is no tree.
 * Errors: HARK_BAD_FILE, with file, line, column and byte offset. */
HARK_MUST_CHECK hark_status hark_json_lines_read(hark_context *context, const hark_line_reader *lines, hark_json_tree *tree, bool *blank);
/* The member `field` of an object, of one kind, text or whole number, also as 1.0 or 1e0; `lines` is the place for the message.
 * Errors: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_json_lines_member(hark_context *context, const hark_line_reader *lines, const hark_json_node *object,
                                                   const char *field, hark_json_kind kind, const hark_json_node **out);
/* The value of such a whole number. */
int64_t hark_json_lines_whole(const hark_json_node *value);

/* Appends the texts of a file to a spool. Errors: HARK_BAD_FILE (no JSON, no object, no such member or another kind of value, with file and
 * line), those of hark_lines_open(). */
HARK_MUST_CHECK hark_status hark_json_lines_text(hark_context *context, const char *path, const char *field, hark_spool *spool);

#endif
