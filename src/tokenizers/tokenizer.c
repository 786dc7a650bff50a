/* tokenizer.c - the table of kinds, the common parts of all vocabularies, and a vocabulary as JSON:
 *
 *     { "format_version": 1, "kind": "characters", "reserved": ["<padding>", ...], "size": 86, "checksum": "0123456789abcdef",
 *       "symbols": ["\n", " ", "!", ...] }                                        "symbols" is the characters kind's own member
 */
#include "tokenizers/tokenizer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "io/files.h"
#include "io/json_write.h"
#include "tokenizers/tokenizer_kind.h"
#include "tokenizers/utf8.h"

#define VOCABULARY_FORMAT_VERSION 1
#define CHECKSUM_TEXT_BYTES 17 /* 16 digits and a zero byte */

static const hark_tokenizer_kind *const kinds[] = {&hark_tokenizer_characters, &hark_tokenizer_bytes, &hark_tokenizer_subwords,
                                                   &hark_tokenizer_byte_bpe, &hark_tokenizer_imported_kind};
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static const char *const reserved_names[HARK_TOKEN_RESERVED] = {"<padding>", "<unknown>", "<begin>", "<class>", "<mask>"};

bool hark_tokenizer_kind_available(int index) { return kinds[index]->available == NULL || *kinds[index]->available; }
bool hark_tokenizer_kind_is_made(int index) { return !kinds[index]->imported; }
bool hark_tokenizer_kind_has_pieces(int index) { return kinds[index]->configure != NULL || kinds[index]->imported; }

/* Tokens before the first symbol. */
static int32_t reserved_of(const hark_tokenizer_kind *kind) { return kind->imported ? 0 : HARK_TOKEN_RESERVED; }

const char *hark_reserved_name(int32_t token) { return reserved_names[token]; }

const char *hark_tokenizer_kind_name(int index) { return index >= 0 && index < KIND_COUNT ? kinds[index]->name : NULL; }
const char *hark_tokenizer_kind_summary(int index) { return index >= 0 && index < KIND_COUNT ? kinds[index]->summary : NULL; }

hark_status hark_text_fault_set(hark_text_fault *fault, size_t at, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fault->at = at;
  fault->more[0] = '\0';
  vsnprintf(fault->what, sizeof fault->what, format, arguments);
  va_end(arguments);
  return HARK_BAD_FILE;
}

hark_status hark_text_fault_unknown(hark_text_fault *fault, size_t at, uint32_t code) {
  char text[HARK_UTF8_MAX_BYTES + 1] = "", shown[HARK_UTF8_MAX_BYTES + 8] = "";
  text[hark_utf8_encode(code, text)] = '\0';
  const bool visible = code > 0x20 && (code < 0x7f || code > 0xa0);
  if (visible) (void)snprintf(shown, sizeof shown, "\"%s\"; ", text);
  const hark_status status = hark_text_fault_set(fault, at, "U+%04" PRIX32 " is not in the vocabulary", code);
  (void)snprintf(fault->more, sizeof fault->more, ": %sdata.unknown map (--unknown map) maps such characters to the unknown token", shown);
  return status;
}

static hark_status fail_unknown_kind(hark_context *context, const char *kind) {
  char names[128] = "";
  size_t length = 0;
  for (int i = 0; i < KIND_COUNT && length < sizeof names; i++)
    length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "", kinds[i]->name);
  return hark_fail(context, HARK_BAD_CONFIGURATION, "no tokenizer is called \"%s\"; there are %s", kind, names);
}

static const hark_tokenizer_kind *find_kind(const char *name) {
  for (int i = 0; i < KIND_COUNT; i++)
    if (strcmp(kinds[i]->name, name) == 0) return kinds[i];
  return NULL;
}

size_t hark_tokenizer_kind_part_bytes(const char *kind) {
  const hark_tokenizer_kind *found = find_kind(kind);
  return found != NULL ? found->unit_bytes + 1 : 0;
}

hark_status hark_tokenizer_create(hark_context *context, const char *kind, hark_tokenizer **out) {
  *out = NULL;
  const hark_tokenizer_kind *found = find_kind(kind);
  if (found == NULL) return fail_unknown_kind(context, kind);
  hark_tokenizer *tokenizer;
  HARK_TRY(hark_allocate_zero(context, sizeof *tokenizer, (void **)&tokenizer));
  tokenizer->kind = found;
  const hark_status status = hark_allocate_zero(context, found->state_bytes, &tokenizer->state);
  if (status != HARK_OK) {
    hark_release(context, tokenizer, sizeof *tokenizer);
    return status;
  }
  *out = tokenizer;
  return HARK_OK;
}

void hark_tokenizer_destroy(hark_context *context, hark_tokenizer **tokenizer) {
  if (tokenizer == NULL || *tokenizer == NULL) return;
  hark_tokenizer *gone = *tokenizer;
  gone->kind->close(context, gone);
  hark_release(context, gone->state, gone->kind->state_bytes);
  hark_release(context, gone->text, gone->text_capacity);
  hark_release(context, gone->text_at, ((size_t)gone->capacity + 1) * sizeof *gone->text_at);
  hark_release(context, gone, sizeof *gone);
  *tokenizer = NULL;
}

hark_status hark_tokenizer_reserve(hark_context *context, hark_tokenizer *tokenizer, int32_t symbols, size_t text_bytes) {
  const int32_t capacity = HARK_TOKEN_RESERVED + symbols;
  HARK_TRY(hark_allocate_zero(context, ((size_t)capacity + 1) * sizeof *tokenizer->text_at, (void **)&tokenizer->text_at));
  tokenizer->capacity = capacity;
  HARK_TRY(hark_allocate(context, text_bytes, (void **)&tokenizer->text));
  tokenizer->text_capacity = text_bytes;
  tokenizer->size = HARK_TOKEN_RESERVED;
  return HARK_OK;
}

void hark_tokenizer_add(hark_tokenizer *tokenizer, const char *text, size_t bytes) {
  const size_t at = tokenizer->text_at[tokenizer->size];
  memcpy(tokenizer->text + at, text, bytes);
  tokenizer->text_at[++tokenizer->size] = at + bytes;
}

hark_status hark_tokenizer_set_subwords(hark_context *context, hark_tokenizer *tokenizer, const hark_subword_settings *settings) {
  return tokenizer->kind->configure != NULL ? tokenizer->kind->configure(context, tokenizer, settings) : HARK_OK;
}

bool hark_tokenizer_learns(const hark_tokenizer *tokenizer) { return tokenizer->kind->learns; }

hark_status hark_tokenizer_learn(hark_context *context, hark_tokenizer *tokenizer, const void *text, size_t bytes, bool last,
                                 size_t *consumed, hark_text_fault *fault) {
  *consumed = bytes;
  return tokenizer->kind->learns ? tokenizer->kind->learn(context, tokenizer, text, bytes, last, consumed, fault) : HARK_OK;
}

/* Over the kind's name, every symbol with its length, and the kind's further data. */
uint64_t hark_tokenizer_checksum_of(const hark_tokenizer *tokenizer) {
  uint64_t sum = hark_checksum_text(HARK_CHECKSUM_START, tokenizer->kind->name);
  for (int32_t token = reserved_of(tokenizer->kind); token < tokenizer->size; token++) {
    const size_t at = tokenizer->text_at[token], bytes = tokenizer->text_at[token + 1] - at;
    sum = hark_checksum_bytes(hark_checksum_number(sum, bytes), tokenizer->text + at, bytes);
  }
  return tokenizer->kind->checksum != NULL ? tokenizer->kind->checksum(tokenizer, sum) : sum;
}

hark_status hark_tokenizer_finish(hark_context *context, hark_tokenizer *tokenizer) {
  HARK_TRY(tokenizer->kind->finish(context, tokenizer));
  tokenizer->checksum = hark_tokenizer_checksum_of(tokenizer);
  return HARK_OK;
}

const char *hark_tokenizer_kind_of(const hark_tokenizer *tokenizer) { return tokenizer->kind->name; }
int hark_tokenizer_kind_index(const hark_tokenizer *tokenizer) {
  int index = 0;
  while (kinds[index] != tokenizer->kind) index++;
  return index;
}
int32_t hark_tokenizer_size(const hark_tokenizer *tokenizer) { return tokenizer->size; }
uint64_t hark_tokenizer_checksum(const hark_tokenizer *tokenizer) { return tokenizer->checksum; }

hark_status hark_tokenizer_encode_part(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const void *text,
                                       size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed, hark_text_fault *fault) {
  return tokenizer->kind->encode(context, tokenizer, unknown, text, bytes, last, tokens, count, consumed, fault);
}

void hark_text_place_advance(hark_text_place *place, const void *text, size_t bytes) {
  const unsigned char *byte = text;
  for (size_t i = 0; i < bytes; i++) {
    if (byte[i] == '\n') {
      place->line++;
      place->column = 1;
    } else {
      place->column += hark_utf8_is_lead(byte[i]);
    }
  }
  place->byte += (int64_t)bytes;
}

hark_status hark_text_fail(hark_context *context, const char *name, const hark_text_place *place, const char *what, const char *more) {
  return hark_fail(context, HARK_BAD_FILE, "%s:%" PRId64 ":%" PRId64 ": %s (byte offset %" PRId64 ")%s", name, place->line, place->column,
                   what, place->byte, more);
}

hark_status hark_tokenizer_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const char *name,
                                  const void *text, size_t bytes, int32_t *tokens, size_t *count) {
  size_t consumed;
  hark_text_fault fault;
  const hark_status status = hark_tokenizer_encode_part(context, tokenizer, unknown, text, bytes, true, tokens, count, &consumed, &fault);
  if (status != HARK_BAD_FILE) return status;
  hark_text_place place = HARK_TEXT_BEGINNING;
  hark_text_place_advance(&place, text, fault.at);
  return hark_text_fail(context, name, &place, fault.what, fault.more);
}

const char *hark_tokenizer_text(const hark_tokenizer *tokenizer, int32_t token, size_t *bytes) {
  static const char replacement[] = "\xEF\xBF\xBD";
  const int32_t reserved = reserved_of(tokenizer->kind);
  if (token == HARK_TOKEN_UNKNOWN && reserved > 0) {
    *bytes = sizeof replacement - 1;
    return replacement;
  }
  if (token < reserved || token >= tokenizer->size) {
    *bytes = 0;
    return "";
  }
  *bytes = tokenizer->text_at[token + 1] - tokenizer->text_at[token];
  return tokenizer->text + tokenizer->text_at[token];
}

const char *hark_tokenizer_name(const hark_tokenizer *tokenizer, int32_t token, char *text, size_t size) {
  size_t bytes, length;
  const char *symbol = hark_tokenizer_text(tokenizer, token, &bytes);
  const unsigned char first = bytes > 0 ? (unsigned char)symbol[0] : 0;
  uint32_t code;
  if (token >= 0 && token < reserved_of(tokenizer->kind)) {
    snprintf(text, size, "%s", reserved_names[token]);
  } else if (bytes == 0) {
    snprintf(text, size, "<%" PRId32 ">", token);
  } else if (first == '\n') {
    snprintf(text, size, "\\n");
  } else if (first == '\t') {
    snprintf(text, size, "\\t");
  } else if (hark_utf8_decode((const unsigned char *)symbol, bytes, &code, &length) != HARK_UTF8_OK) {
    snprintf(text, size, "0x%02x", first);
  } else if (code < 0x20 || (code >= 0x7F && code < 0xA0)) { /* control characters */
    snprintf(text, size, "U+%04" PRIX32, code);
  } else {
    if (bytes > size - 1) /* a piece: cut between two characters */
      for (bytes = size - 1; bytes > 0 && !hark_utf8_is_lead((unsigned char)symbol[bytes]);) bytes--;
    snprintf(text, size, "%.*s", (int)bytes, symbol);
  }
  return text;
}

hark_status hark_tokenizer_print(hark_context *context, const hark_tokenizer *tokenizer, char **out, size_t *bytes) {
  *out = NULL;
  *bytes = 0;
  hark_text text = hark_text_empty(context);
  hark_text_append(&text, "{\n \"format_version\": %d,\n \"kind\": \"%s\",\n \"reserved\": [", VOCABULARY_FORMAT_VERSION,
                   tokenizer->kind->name);
  for (int i = 0; i < reserved_of(tokenizer->kind); i++) {
    hark_text_append(&text, "%s\n  ", i > 0 ? "," : "");
    hark_json_append_string(&text, reserved_names[i]);
  }
  hark_text_append(&text, "\n ],\n \"size\": %" PRId32 ",\n \"checksum\": \"%016" PRIx64 "\"", tokenizer->size, tokenizer->checksum);
  if (tokenizer->kind->write != NULL) tokenizer->kind->write(tokenizer, &text);
  hark_text_append(&text, "\n}");
  hark_status status = text.status;
  if (status == HARK_OK) status = hark_allocate(context, text.length, (void **)out);
  if (status == HARK_OK) {
    memcpy(*out, hark_text_get(&text), text.length);
    *bytes = text.length;
  }
  hark_text_free(&text);
  return status;
}

static hark_status create(hark_context *context, const char *kind, hark_tokenizer **out) {
  const hark_status status = hark_tokenizer_create(context, kind, out);
  return status == HARK_BAD_CONFIGURATION ? HARK_BAD_FILE : status;
}

/* Members that every kind has. */
static hark_status read_members(hark_context *context, const hark_json_node *object, hark_tokenizer **out) {
  const hark_json_node *version = hark_json_member(object, "format_version"), *reserved = hark_json_member(object, "reserved");
  const char *kind = hark_json_text(hark_json_member(object, "kind"));
  if (!hark_json_is(version, HARK_JSON_INTEGER))
    return hark_fail(context, HARK_BAD_FILE, "\"format_version\" is missing or not a whole number");
  if (version->integer != VOCABULARY_FORMAT_VERSION)
    return hark_fail(context, HARK_BAD_FILE, "format_version is %" PRId64 ", this version of hark reads %d", version->integer,
                     VOCABULARY_FORMAT_VERSION);
  if (kind == NULL && hark_json_member(object, "format") != NULL)
    return hark_fail(context, HARK_BAD_FILE, "the vocabulary of labelled examples, expected that of a text");
  if (kind == NULL) return hark_fail(context, HARK_BAD_FILE, "\"kind\" is missing or not a string");
  if (!hark_json_is(hark_json_member(object, "size"), HARK_JSON_INTEGER))
    return hark_fail(context, HARK_BAD_FILE, "\"size\" is missing or not a whole number");
  if (hark_json_text(hark_json_member(object, "checksum")) == NULL)
    return hark_fail(context, HARK_BAD_FILE, "\"checksum\" is missing or not a string");
  HARK_TRY(create(context, kind, out));
  const int32_t count = reserved_of((*out)->kind);
  bool same = hark_json_is(reserved, HARK_JSON_LIST) && reserved->count == count;
  const hark_json_node *item = same ? reserved->first : NULL;
  for (int i = 0; i < count && same; i++, item = item->next) {
    const char *name = hark_json_text(item);
    same = name != NULL && strcmp(name, reserved_names[i]) == 0;
  }
  return same ? HARK_OK : hark_fail(context, HARK_BAD_FILE, "\"reserved\" is not the list of reserved tokens");
}

static hark_status read_object(hark_context *context, const hark_json_node *object, hark_tokenizer **out) {
  enum { COMMON_MEMBERS = 5 };
  if (object->kind != HARK_JSON_OBJECT) return hark_fail(context, HARK_BAD_FILE, "not a JSON object");
  HARK_TRY(read_members(context, object, out));
  hark_tokenizer *tokenizer = *out;
  int64_t members = 0;
  HARK_TRY(tokenizer->kind->read(context, tokenizer, object, &members));
  if (object->count != COMMON_MEMBERS + members) return hark_fail(context, HARK_BAD_FILE, "has members that do not belong there");
  const int64_t size = hark_json_member(object, "size")->integer;
  if (size != tokenizer->size)
    return hark_fail(context, HARK_BAD_FILE, "\"size\" is %" PRId64 ", there are %" PRId32 " tokens", size, tokenizer->size);
  tokenizer->checksum = hark_tokenizer_checksum_of(tokenizer);
  char checksum[CHECKSUM_TEXT_BYTES];
  snprintf(checksum, sizeof checksum, "%016" PRIx64, tokenizer->checksum);
  if (strcmp(checksum, hark_json_text(hark_json_member(object, "checksum"))) != 0)
    return hark_fail(context, HARK_BAD_FILE, "\"checksum\" is not that of the symbols, %s", checksum);
  return HARK_OK;
}

hark_status hark_tokenizer_parse(hark_context *context, const char *text, size_t bytes, hark_tokenizer **out) {
  *out = NULL;
  hark_json_tree tree;
  HARK_TRY(hark_json_tree_parse(context, NULL, text, bytes, &tree));
  const hark_status status = read_object(context, tree.root, out);
  hark_json_tree_free(context, &tree);
  if (status != HARK_OK) hark_tokenizer_destroy(context, out);
  return status;
}

hark_status hark_tokenizer_save(hark_context *context, const hark_tokenizer *tokenizer, const char *path) {
  char *text;
  size_t bytes;
  HARK_TRY(hark_tokenizer_print(context, tokenizer, &text, &bytes));
  const hark_status status = hark_file_write(context, path, text, bytes);
  hark_release(context, text, bytes);
  return status;
}

hark_status hark_tokenizer_load(hark_context *context, const char *path, hark_tokenizer **out) {
  *out = NULL;
  hark_text text = hark_text_empty(context);
  HARK_TRY(hark_file_read(context, path, HARK_VOCABULARY_MAX_BYTES, &text));
  const hark_status status = hark_tokenizer_parse(context, hark_text_get(&text), text.length, out);
  hark_text_free(&text);
  if (status != HARK_OK) hark_fail_prefix(context, "%s: ", path);
  return status;
}
