/* json_tree.c - the strict reader of JSON.
 *
 * Two passes: the first counts levels and values, so that the second needs no limits and one piece of memory: the nodes, followed by the
 * texts, each unescaped and with a zero byte, for which the quotes left room. Cost: O(length), and O(n log n) for the names of an object of
 * n members.
 */
#include "io/json_tree.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "io/foreign.h"
#include "io/json_write.h"
#include "io/number.h"

#define FEW_MEMBERS 16 /* with at most so many, names are compared pair by pair */

typedef struct reader {
  hark_context *context;
  const char *text;
  size_t length, at;
  hark_json_node *nodes;
  size_t used;
  char *pool;
  hark_json_fault *fault;
} reader;

static hark_status fail_at(reader *r, size_t at, const char *what) {
  *r->fault = (hark_json_fault){.at = at, .what = what};
  return HARK_BAD_FILE;
}

static hark_status fail(reader *r, const char *what) { return fail_at(r, r->at, r->at < r->length ? what : "the text ends too early"); }

static void skip_blanks(reader *r) {
  while (r->at < r->length && (r->text[r->at] == ' ' || r->text[r->at] == '\t' || r->text[r->at] == '\n' || r->text[r->at] == '\r'))
    r->at++;
}

static bool take(reader *r, char c) {
  if (r->at >= r->length || r->text[r->at] != c) return false;
  r->at++;
  return true;
}

/* ---- texts ---- */

/* Four hexadecimal digits; -1 for anything else. */
static int32_t hexadecimal(const reader *r, size_t at) {
  int32_t value = 0;
  if (r->length - at < 4) return -1;
  for (size_t i = at; i < at + 4; i++) {
    const char c = r->text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

static void put_code_point(reader *r, uint32_t code) {
  if (code < 0x80) {
    *r->pool++ = (char)code;
  } else if (code < 0x800) {
    *r->pool++ = (char)(0xc0 | code >> 6);
    *r->pool++ = (char)(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *r->pool++ = (char)(0xe0 | code >> 12);
    *r->pool++ = (char)(0x80 | (code >> 6 & 0x3f));
    *r->pool++ = (char)(0x80 | (code & 0x3f));
  } else {
    *r->pool++ = (char)(0xf0 | code >> 18);
    *r->pool++ = (char)(0x80 | (code >> 12 & 0x3f));
    *r->pool++ = (char)(0x80 | (code >> 6 & 0x3f));
    *r->pool++ = (char)(0x80 | (code & 0x3f));
  }
}

/* After "\u": a code point, or two halves of one. */
static hark_status read_code_point(reader *r, size_t begin) {
  int32_t code = hexadecimal(r, r->at);
  if (code < 0) return fail_at(r, begin, "expected four hexadecimal digits after \\u");
  r->at += 4;
  if (code >= 0xdc00 && code <= 0xdfff) return fail_at(r, begin, "the second half of a character without the first");
  if (code >= 0xd800 && code <= 0xdbff) {
    const bool more = r->length - r->at >= 2 && r->text[r->at] == '\\' && r->text[r->at + 1] == 'u';
    const int32_t low = more ? hexadecimal(r, r->at + 2) : -1;
    if (low < 0xdc00 || low > 0xdfff) return fail_at(r, begin, "the first half of a character without the second");
    r->at += 6;
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  }
  put_code_point(r, (uint32_t)code);
  return HARK_OK;
}

static hark_status read_escape(reader *r) {
  static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  const size_t begin = r->at++;
  if (r->at >= r->length) return fail(r, "");
  const char c = r->text[r->at++];
  if (c == 'u') return read_code_point(r, begin);
  const char *found = c != '\0' ? strchr(letters, c) : NULL;
  if (found == NULL) return fail_at(r, begin, "there is no such escape");
  *r->pool++ = values[found - letters];
  return HARK_OK;
}

static hark_status read_text(reader *r, const char **text, size_t *bytes) {
  if (!take(r, '"')) return fail(r, "expected a text in quotes");
  const char *begin = r->pool;
  while (r->at < r->length && r->text[r->at] != '"') {
    const unsigned char c = (unsigned char)r->text[r->at];
    if (c == '\\') {
      HARK_TRY(read_escape(r));
      continue;
    }
    if (c < 0x20) return fail(r, "control characters in a text must be escaped");
    const size_t length = hark_json_sequence_length((const unsigned char *)r->text + r->at, r->length - r->at);
    if (length == 0) return fail(r, "not UTF-8");
    memcpy(r->pool, r->text + r->at, length);
    r->pool += length;
    r->at += length;
  }
  if (!take(r, '"')) return fail(r, "");
  *text = begin;
  *bytes = (size_t)(r->pool - begin);
  *r->pool++ = '\0';
  return HARK_OK;
}

/* ---- numbers and words ---- */

static size_t skip_digits(const reader *r, size_t at) {
  while (at < r->length && r->text[at] >= '0' && r->text[at] <= '9') at++;
  return at;
}

/* '-'? (0 | 1-9 digits) ('.' digits)? ([eE] [+-]? digits)? */
static hark_status read_number(reader *r, hark_json_node *node) {
  const size_t begin = r->at, first = begin + (r->text[begin] == '-');
  size_t end = skip_digits(r, first);
  bool whole = true;
  if (end == first || (r->text[first] == '0' && end - first > 1)) return fail(r, "expected a value");
  if (end < r->length && r->text[end] == '.') {
    whole = false;
    const size_t fraction = end + 1;
    end = skip_digits(r, fraction);
    if (end == fraction) return fail_at(r, end, "expected digits after the point");
  }
  if (end < r->length && (r->text[end] == 'e' || r->text[end] == 'E')) {
    whole = false;
    size_t exponent = end + 1;
    if (exponent < r->length && (r->text[exponent] == '+' || r->text[exponent] == '-')) exponent++;
    end = skip_digits(r, exponent);
    if (end == exponent) return fail_at(r, end, "expected digits in the exponent");
  }
  r->at = end;
  node->kind = whole ? HARK_JSON_INTEGER : HARK_JSON_REAL;
  if (!whole) {
    node->quick = hark_number_read_quick(r->text + begin, end - begin);
    return hark_number_read(r->text + begin, end - begin, &node->real) ? HARK_OK : fail_at(r, begin, "a number that is too large");
  }
  return hark_number_read_whole(r->text + begin, end - begin, &node->integer) ? HARK_OK : fail_at(r, begin, "too big integer");
}

static hark_status read_word(reader *r, hark_json_node *node) {
  static const struct {
    const char *word;
    hark_json_kind kind;
    bool boolean;
  } words[] = {{"true", HARK_JSON_BOOLEAN, true}, {"false", HARK_JSON_BOOLEAN, false}, {"null", HARK_JSON_NULL, false}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const size_t length = strlen(words[i].word);
    if (r->length - r->at < length || memcmp(r->text + r->at, words[i].word, length) != 0) continue;
    r->at += length;
    node->kind = words[i].kind;
    node->boolean = words[i].boolean;
    return HARK_OK;
  }
  return fail(r, "expected a value");
}

/* ---- lists and objects ---- */

static int by_name(const void *a, const void *b) {
  return strcmp((*(const hark_json_node *const *)a)->name, (*(const hark_json_node *const *)b)->name);
}

static hark_status check_many_names(reader *r, const hark_json_node *object, size_t at) {
  const size_t bytes = (size_t)object->count * sizeof(const hark_json_node *);
  void *memory = NULL;
  HARK_TRY(hark_allocate(r->context, bytes, &memory));
  const hark_json_node **members = memory;
  int64_t count = 0;
  for (const hark_json_node *member = object->first; member != NULL; member = member->next) members[count++] = member;
  qsort(members, (size_t)count, sizeof *members, by_name);
  hark_status status = HARK_OK;
  for (int64_t i = 1; i < count && status == HARK_OK; i++)
    if (strcmp(members[i - 1]->name, members[i]->name) == 0) status = fail_at(r, at, "duplicate names in the object that begins here");
  hark_release(r->context, memory, bytes);
  return status;
}

static hark_status check_names(reader *r, const hark_json_node *object, size_t at) {
  if (object->count > FEW_MEMBERS) return check_many_names(r, object, at);
  for (const hark_json_node *a = object->first; a != NULL; a = a->next)
    for (const hark_json_node *b = a->next; b != NULL; b = b->next)
      if (strcmp(a->name, b->name) == 0) return fail_at(r, at, "duplicate names in the object that begins here");
  return HARK_OK;
}

static hark_status read_value(reader *r, hark_json_node **out);

static hark_status read_name(reader *r, const char **name) {
  size_t bytes = 0;
  const size_t begin = r->at;
  HARK_TRY(read_text(r, name, &bytes));
  if (memchr(*name, 0, bytes) != NULL) return fail_at(r, begin, "a name with a zero byte");
  skip_blanks(r);
  return take(r, ':') ? HARK_OK : fail(r, "expected ':' after a name");
}

/* After the opening bracket. */
static hark_status read_members(reader *r, hark_json_node *node, char close) {
  const bool named = close == '}';
  const size_t begin = r->at - 1;
  const hark_json_node **link = &node->first;
  node->first = NULL;
  node->count = 0;
  skip_blanks(r);
  if (take(r, close)) return HARK_OK;
  do {
    const char *name = NULL;
    hark_json_node *member = NULL;
    skip_blanks(r);
    if (named) HARK_TRY(read_name(r, &name));
    HARK_TRY(read_value(r, &member));
    member->name = name;
    *link = member;
    link = &member->next;
    node->count++;
    skip_blanks(r);
  } while (take(r, ','));
  if (!take(r, close)) return fail(r, named ? "expected ',' or '}'" : "expected ',' or ']'");
  return named ? check_names(r, node, begin) : HARK_OK;
}

static hark_status read_value(reader *r, hark_json_node **out) {
  skip_blanks(r);
  if (r->at >= r->length) return fail(r, "");
  hark_json_node *node = &r->nodes[r->used++];
  *out = node;
  *node = (hark_json_node){.kind = HARK_JSON_NULL};
  const char c = r->text[r->at];
  if (c == '"') {
    node->kind = HARK_JSON_TEXT;
    return read_text(r, &node->text, &node->bytes);
  }
  if (c == '-' || (c >= '0' && c <= '9')) return read_number(r, node);
  if (c != '{' && c != '[') return read_word(r, node);
  r->at++;
  node->kind = c == '{' ? HARK_JSON_OBJECT : HARK_JSON_LIST;
  return read_members(r, node, c == '{' ? '}' : ']');
}

/* Counts '[', '{' and ',': each value but the first follows a different one of them. */
hark_json_fit hark_json_scan(const char *text, size_t length, const hark_json_limits *limits, size_t *at, int64_t *values) {
  bool allowed[UCHAR_MAX + 1];
  for (int c = 0; c <= UCHAR_MAX; c++) allowed[c] = c != 0 && (limits->alphabet == NULL || strchr(limits->alphabet, c) != NULL);
  int depth = 0;
  int64_t count = 1;
  bool inside = false; /* of a text */
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    *at = i;
    if (inside) {
      if (c == '\\') i++;
      inside = c != '"';
      continue;
    }
    inside = c == '"';
    const bool opens = c == '{' || c == '[';
    if (!allowed[(unsigned char)c]) return HARK_JSON_ODD_BYTE;
    if (opens && ++depth > limits->depth) return HARK_JSON_TOO_DEEP;
    if (c == '}' || c == ']') depth--;
    if ((opens || c == ',') && ++count > limits->values) return HARK_JSON_TOO_MANY;
  }
  if (values != NULL) *values = count;
  return HARK_JSON_FITS;
}

const char *hark_json_fit_text(hark_json_fit fit) {
  switch (fit) {
    case HARK_JSON_FITS: return "fits";
    case HARK_JSON_TOO_DEEP: return "nested too deeply";
    case HARK_JSON_TOO_MANY: return "too many values";
    case HARK_JSON_ODD_BYTE: return "a byte that is not allowed here";
  }
  return "does not fit";
}

hark_status hark_json_tree_read(hark_context *context, const char *text, size_t length, hark_json_fault *fault, hark_json_tree *out) {
  static const hark_json_limits limits = {.depth = HARK_JSON_DEPTH, .values = HARK_JSON_VALUES};
  *out = (hark_json_tree){0};
  size_t bytes = 0, at = 0;
  int64_t values = 0;
  const hark_json_fit fit = hark_json_scan(text, length, &limits, &at, &values);
  if (fit != HARK_JSON_FITS) {
    *fault = (hark_json_fault){.at = at, .what = hark_json_fit_text(fit)};
    return HARK_BAD_FILE;
  }
  const size_t count = (size_t)values;
  HARK_TRY(hark_size_multiply(context, count, sizeof(hark_json_node), &bytes));
  HARK_TRY(hark_size_add(context, bytes, length, &bytes));
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  reader r = {.context = context,
              .text = text,
              .length = length,
              .nodes = memory,
              .pool = (char *)memory + count * sizeof(hark_json_node),
              .fault = fault};
  hark_json_node *root = NULL;
  hark_status status = read_value(&r, &root);
  skip_blanks(&r);
  if (status == HARK_OK && r.at < r.length) status = fail(&r, "expected the end of file after the document");
  *out = (hark_json_tree){.root = root, .memory = memory, .memory_bytes = bytes};
  if (status != HARK_OK) hark_json_tree_free(context, out);
  return status;
}

void hark_json_place(const char *text, size_t at, size_t *line, size_t *column) {
  *line = *column = 1;
  for (size_t i = 0; i < at; i++) {
    ++*column;
    if (text[i] != '\n') continue;
    ++*line;
    *column = 1;
  }
}

hark_status hark_json_tree_parse(hark_context *context, const char *name, const char *text, size_t length, hark_json_tree *out) {
  hark_json_fault fault;
  const hark_status status = hark_json_tree_read(context, text, length, &fault, out);
  if (status != HARK_BAD_FILE) return status;
  const char *const foreign = hark_foreign_file(text, length);
  if (foreign != NULL)
    return hark_fail(context, HARK_BAD_FILE, "%s%sis %s, expected JSON", name != NULL ? name : "", name != NULL ? ": " : "", foreign);
  size_t line, column;
  hark_json_place(text, fault.at, &line, &column);
  return hark_fail(context, HARK_BAD_FILE, "%s%sline %zu, column %zu: %s", name != NULL ? name : "", name != NULL ? ": " : "", line, column,
                   fault.what);
}

void hark_json_tree_free(hark_context *context, hark_json_tree *tree) {
  hark_release(context, tree->memory, tree->memory_bytes);
  *tree = (hark_json_tree){0};
}

const hark_json_node *hark_json_member(const hark_json_node *object, const char *name) {
  if (!hark_json_is(object, HARK_JSON_OBJECT)) return NULL;
  for (const hark_json_node *member = object->first; member != NULL; member = member->next)
    if (strcmp(member->name, name) == 0) return member;
  return NULL;
}

const char *hark_json_text(const hark_json_node *node) {
  return hark_json_is(node, HARK_JSON_TEXT) && strlen(node->text) == node->bytes ? node->text : NULL;
}
