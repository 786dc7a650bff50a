/* format_text.c - one example per line, fields separated by tabs, text as bytes:
 *
 *     text    label <TAB> text
 *             or JSON lines (json_lines.h): {"text": "...", "label": 1}
 *             or a folder with a file per example (known_folder.h)
 *     pairs   label <TAB> id1 <TAB> id2 <TAB> text1 <TAB> text2
 *
 * With `quoted`, a field that begins with a double quote ends at the next one that is not doubled, on the same line; a doubled one
 * means one (RFC 4180).
 *
 * Files of `text` may have no labels (hark_examples_settings.labels): a line is a text then, and JSON lines need no label.
 *
 * A label is an integer ("1", "1.0") in [0, classes). The text of `text` extends to the end of the line, including tabs. Sources of the
 * formats: Tay et al., "Long Range Arena" (2020), tasks Text and Retrieval.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/examples/example_store.h"
#include "data/examples/known_folder.h"
#include "data/json_lines.h"
#include "data/sources.h"
#include "io/number.h"

/* The fields of a line that are the example's sequences. */
typedef struct layout {
  int fields;
  bool has_tabs; /* in its last field, which extends to the end of the line */
  int label;     /* the field of the label; -1: none */
  int part[HARK_EXAMPLE_PARTS];
  const char *description;
} layout;

static const layout text_layout = {2, true, 0, {1, 0}, "label and text, separated by a tab"};
static const layout expected_layout = {2, true, 0, {1, 0}, "label and text, separated by a tab; --unlabelled reads texts without labels"};
static const layout unlabelled_layout = {1, true, -1, {0, 0}, "a text"};
static const layout pairs_layout = {5, false, 0, {3, 4}, "label, two names and two texts, separated by tabs"};
enum { FIELDS_MAX = 5 };

typedef struct field {
  size_t at, length; /* without quotes */
  bool quoted;
} field;

/* Finds the quote that closes the one at `at`; two quotes are one of the text. */
static bool find_close(const hark_line_reader *lines, size_t at, size_t *out) {
  for (*out = at + 1; *out < lines->length; ++*out) {
    if (lines->line[*out] != '"') continue;
    if (*out + 1 == lines->length || lines->line[*out + 1] != '"') return true;
    ++*out;
  }
  return false;
}

/* A quoted field; *end is the place after its quote. */
static hark_status take_quoted(hark_context *context, const hark_line_reader *lines, size_t at, field *out, size_t *end) {
  size_t close = 0;
  if (!find_close(lines, at, &close)) return hark_lines_fail(context, lines, at, "the quote of a field is not closed on its line");
  *out = (field){at + 1, close - at - 1, true};
  *end = close + 1;
  if (*end == lines->length || lines->line[*end] == '\t') return HARK_OK;
  return hark_lines_fail(context, lines, *end, "text after the closing quote of a field, expected a tab");
}

/* A field up to the next tab, or up to the end of the line. */
static void take_plain(const hark_line_reader *lines, size_t at, bool to_end, field *out, size_t *end) {
  const char *const from = lines->line + at, *const tab = to_end ? NULL : memchr(from, '\t', lines->length - at);
  *end = tab != NULL ? at + (size_t)(tab - from) : lines->length;
  *out = (field){at, *end - at, false};
}

/* Splits a line at tabs. */
static hark_status split(hark_context *context, const hark_line_reader *lines, const layout *l, bool quoted, field out[FIELDS_MAX]) {
  size_t at = 0, end = 0;
  for (int i = 0; i < l->fields; i++, at = end + 1) {
    const bool last = i + 1 == l->fields;
    if (quoted && at < lines->length && lines->line[at] == '"')
      HARK_TRY(take_quoted(context, lines, at, &out[i], &end));
    else
      take_plain(lines, at, last && l->has_tabs, &out[i], &end);
    if (!last && end == lines->length)
      return hark_lines_fail(context, lines, lines->length, "%d of %d fields, expected %s", i + 1, l->fields, l->description);
    if (last && end < lines->length)
      return hark_lines_fail(context, lines, end, "more than %d fields, expected %s", l->fields, l->description);
  }
  return HARK_OK;
}

/* Adds a field as a sequence of the example; of a quoted one, two quotes are one. */
static hark_status add_part(hark_example_reader *reader, const hark_line_reader *lines, field f) {
  hark_text *const plain = &reader->scratch;
  if (!f.quoted) return hark_example_part(reader, lines->line + f.at, f.length);
  hark_text_resize(plain, f.length);
  HARK_TRY(plain->status);
  size_t length = 0;
  for (size_t i = 0; i < f.length; i++) {
    plain->data[length++] = lines->line[f.at + i];
    if (lines->line[f.at + i] == '"') i++;
  }
  return hark_example_part(reader, plain->data, length);
}

static hark_status check_text(hark_context *context, const hark_line_reader *lines, field f) {
  if (f.length == 0) return hark_lines_fail(context, lines, f.at, "empty text");
  return hark_lines_check_utf8(context, lines, f.at, f.length);
}

static hark_status check_label(const hark_example_reader *reader, const hark_line_reader *lines, size_t at, int64_t label) {
  const int32_t classes = hark_example_reader_shape(reader)->classes;
  if (label >= 0 && label < classes) return HARK_OK;
  return hark_lines_fail(reader->context, lines, at, "label %" PRId64 " is out of range, expected 0 to %" PRId32, label, classes - 1);
}

/* The label of a line. */
static hark_status read_label(const hark_example_reader *reader, const hark_line_reader *lines, const field *f, const layout *l,
                              int64_t *label) {
  *label = HARK_TARGET_IGNORED;
  if (l->label < 0) return HARK_OK;
  if (!hark_number_read_whole(lines->line + f[l->label].at, f[l->label].length, label))
    return hark_lines_fail(reader->context, lines, 0, "label is not a whole number, expected 0 to %" PRId32 "%s",
                           hark_example_reader_shape(reader)->classes - 1,
                           l == &expected_layout ? "; --unlabelled reads texts without labels" : "");
  return check_label(reader, lines, 0, *label);
}

static hark_status read_line(hark_example_reader *reader, const hark_line_reader *lines, const layout *l) {
  hark_context *const context = reader->context;
  field f[FIELDS_MAX];
  int64_t label;
  if (lines->length == 0) return hark_lines_fail(context, lines, 0, "empty line, expected %s", l->description);
  HARK_TRY(split(context, lines, l, reader->examples->quoted, f));
  HARK_TRY(read_label(reader, lines, f, l, &label));
  for (int part = 0; part < reader->examples->format->parts; part++) {
    const field *const text = &f[l->part[part]];
    HARK_TRY(check_text(context, lines, *text));
    HARK_TRY(add_part(reader, lines, *text));
  }
  return hark_example_end(reader, (int32_t)label);
}

static hark_status read_json_label(hark_example_reader *reader, const hark_line_reader *lines, const hark_json_node *object, int64_t *out) {
  const char *const name = reader->examples->label_field;
  const hark_json_node *label = NULL;
  char shown[HARK_SHOWN_BYTES];
  *out = HARK_TARGET_IGNORED;
  if (reader->examples->labels == HARK_LABELS_NONE) return HARK_OK;
  if (reader->examples->labels == HARK_LABELS_EXPECTED && hark_json_member(object, name) == NULL)
    return hark_lines_fail(reader->context, lines, 0, "no member \"%s\", expected a whole number; --unlabelled reads texts without labels",
                           hark_text_shown(name, shown));
  HARK_TRY(hark_json_lines_member(reader->context, lines, object, name, HARK_JSON_INTEGER, &label));
  *out = hark_json_lines_whole(label);
  return check_label(reader, lines, 0, *out);
}

/* An object of JSON lines: text and label in its members. */
static hark_status read_object(hark_example_reader *reader, const hark_line_reader *lines, const hark_json_node *object) {
  hark_context *const context = reader->context;
  const hark_json_node *text = NULL;
  int64_t class_number;
  HARK_TRY(hark_json_lines_member(context, lines, object, reader->examples->text_field, HARK_JSON_TEXT, &text));
  HARK_TRY(read_json_label(reader, lines, object, &class_number));
  if (text->bytes == 0) return hark_lines_fail(context, lines, 0, "empty text");
  HARK_TRY(hark_example_part(reader, text->text, text->bytes));
  return hark_example_end(reader, (int32_t)class_number);
}

static hark_status read_json_line(hark_example_reader *reader, const hark_line_reader *lines) {
  hark_json_tree tree;
  bool blank = false;
  HARK_TRY(hark_json_lines_read(reader->context, lines, &tree, &blank));
  if (blank) return HARK_OK;
  const hark_status status = read_object(reader, lines, tree.root);
  hark_json_tree_free(reader->context, &tree);
  return status;
}

/* A file in a class folder: its text, without a line end at the end. */
static hark_status read_class_text(hark_example_reader *reader, const char *path, const hark_text *whole, int class_number) {
  hark_line_reader place = {.path = path, .line = hark_text_get(whole), .length = whole->length, .number = 1};
  while (place.length > 0 && (place.line[place.length - 1] == '\n' || place.line[place.length - 1] == '\r')) place.length--;
  HARK_TRY(check_text(reader->context, &place, (field){0, place.length, false}));
  HARK_TRY(hark_example_part(reader, place.line, place.length));
  return hark_example_end(reader, class_number);
}

static hark_status read_class_file(void *closure, const char *path, int class_number) {
  hark_example_reader *const reader = closure;
  hark_text whole = hark_text_empty(reader->context);
  HARK_TRY(hark_input_read(reader->context, path, HARK_LINE_BYTES, &whole));
  const hark_status status = read_class_text(reader, path, &whole, class_number);
  hark_text_free(&whole);
  return status;
}

static hark_status read_file(hark_example_reader *reader, const layout *l) {
  if (reader->source->folder && l != &pairs_layout) return hark_class_folders_read(reader->context, reader->path, read_class_file, reader);
  const bool json = hark_json_lines_is(reader->path);
  if (json && l == &pairs_layout)
    return hark_fail(reader->context, HARK_UNSUPPORTED, "%s: JSON lines are read as format text only, expected lines of %s", reader->path,
                     l->description);
  hark_line_reader lines = {0};
  bool more = true;
  hark_status status = hark_lines_open_source(reader->context, &lines, reader->source);
  while (status == HARK_OK && more) {
    status = hark_lines_next(reader->context, &lines, &more);
    if (status == HARK_OK && more) status = json ? read_json_line(reader, &lines) : read_line(reader, &lines, l);
  }
  hark_lines_close(&lines);
  return status;
}

static hark_status read_text(hark_example_reader *reader) {
  static const layout *const layouts[] = {
      [HARK_LABELS_NEEDED] = &text_layout, [HARK_LABELS_EXPECTED] = &expected_layout, [HARK_LABELS_NONE] = &unlabelled_layout};
  return read_file(reader, layouts[reader->examples->labels]);
}
static hark_status read_pairs(hark_example_reader *reader) { return read_file(reader, &pairs_layout); }

static int64_t symbols_at_most(uint64_t file_bytes) { return (int64_t)file_bytes; }

static const char *byte_name(int32_t symbol, char *text, size_t size) {
  const bool printable = symbol > ' ' && symbol < 0x7F;
  (void)snprintf(text, size, printable ? "%c" : "0x%02x", (unsigned)symbol);
  return text;
}

#define BYTES .shape = {.symbols = HARK_BYTE_SYMBOLS}, .classes_are_set = true, .symbol_name = byte_name, .symbols_are = "bytes"

const hark_example_format hark_example_format_text = {.name = "text",
                                                      .summary = "one example per line: label, tab, text, or JSON lines; a token is a byte",
                                                      .ending = "tsv",
                                                      .parts = 1,
                                                      .target_kind = HARK_TARGET_CLASS,
                                                      .symbols_at_most = symbols_at_most,
                                                      .read = read_text,
                                                      BYTES};

const hark_example_format hark_example_format_pairs = {
    .name = "pairs",
    .summary = "one pair per line: label, two names, two texts, separated by tabs; a token is a byte",
    .ending = "tsv",
    .parts = 2,
    .target_kind = HARK_TARGET_CLASS,
    .symbols_at_most = symbols_at_most,
    .read = read_pairs,
    BYTES};
