/* fuzz_tokenizer.c - any bytes as a text, and as a vocabulary.
 *
 * UTF-8: decoding agrees with the definition written out here, and a stream gives valid UTF-8 and keeps what was valid. Text: in one part
 * and in parts it has the same vocabulary, the same tokens and the same fault; decoded tokens give the text. Vocabulary: what is accepted
 * is printed and read back as the same. A vocabulary's checksum, which changed bytes never meet by chance, is put right and the bytes are
 * tried again. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "fuzz/fuzz.h"
#include "support/learner.h"
#include "tokenizers/tokenizer.h"
#include "tokenizers/utf8.h"

#define VOCABULARY_BYTES 64                /* of a vocabulary in memory for each of its bytes at most */
#define CHARACTERS_BYTES ((size_t)2 << 20) /* the bitmap and the table of pages, for two tokenizers */
#define PIECES 48                          /* of a vocabulary of sub-words, besides the bytes */
#define PAGE_BYTES ((size_t)2048)          /* of a page, and of a symbol's text and place; each character may need one */

/* ---- UTF-8 ---- */

/* RFC 3629 by arithmetic: the length of the character that text begins with; 0: none. */
static size_t character(const unsigned char *text, size_t bytes, uint32_t *code) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t length = 0;
  for (unsigned bit = 0x80; (text[0] & bit) != 0 && length < 8; bit >>= 1) length++;
  if (length == 0) {
    *code = text[0];
    return 1;
  }
  if (length < 2 || length > 4 || length > bytes) return 0;
  *code = text[0] & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if (text[i] >> 6 != 2) return 0;
    *code = *code << 6 | (text[i] & 0x3fu);
  }
  if (*code < least[length] || *code > 0x10ffff || (*code >= 0xd800 && *code <= 0xdfff)) return 0;
  return length;
}

/* Length of the valid text that `text` begins with. */
static size_t valid_prefix(const unsigned char *text, size_t size) {
  uint32_t code;
  size_t at = 0;
  for (size_t length; at < size && (length = character(text + at, size - at, &code)) > 0;) at += length;
  return at;
}

static void check_characters(const unsigned char *text, size_t size) {
  for (size_t at = 0; at < size; at++) {
    uint32_t code = 0, expected = 0;
    size_t length = 0;
    const hark_utf8_result result = hark_utf8_decode(text + at, size - at, &code, &length);
    const size_t expected_bytes = character(text + at, size - at, &expected);
    FUZZ_CHECK((result == HARK_UTF8_OK) == (expected_bytes > 0), "byte %zu: %s", at, hark_utf8_result_text(result));
    if (expected_bytes == 0) continue;
    char back[HARK_UTF8_MAX_BYTES];
    FUZZ_CHECK(code == expected && length == expected_bytes, "byte %zu: U+%04X of %zu bytes", at, (unsigned)code, length);
    FUZZ_CHECK(hark_utf8_encode(code, back) == length && memcmp(back, text + at, length) == 0, "U+%04X comes back changed", (unsigned)code);
  }
}

static void check_stream(const unsigned char *text, size_t size) {
  hark_utf8_stream stream = {{0}, 0};
  unsigned char *const out = malloc((size + 1) * HARK_UTF8_STREAM_BYTES);
  char part[HARK_UTF8_STREAM_BYTES];
  size_t used = 0;
  for (size_t i = 0; i <= size; i++) {
    const size_t made = i < size ? hark_utf8_stream_put(&stream, text[i], part) : hark_utf8_stream_end(&stream, part);
    FUZZ_CHECK(made <= sizeof part, "%zu bytes for one", made);
    memcpy(out + used, part, made);
    used += made;
  }
  const size_t valid = valid_prefix(text, size);
  FUZZ_CHECK(valid_prefix(out, used) == used, "the stream is not UTF-8");
  FUZZ_CHECK(used >= valid && memcmp(out, text, valid) == 0 && (valid < size || used == size), "the stream changed valid text");
  free(out);
}

/* ---- text ---- */

typedef struct outcome {
  hark_status status;
  size_t tokens, consumed, fault;
  int32_t *token;
  char what[112];
} outcome;

/* Encodes the text in parts of at most `most` bytes; each part begins with what the one before left. */
static outcome encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text, size_t size,
                      size_t most, fuzz_random *random) {
  outcome o = {.token = malloc((size + 1) * sizeof(int32_t))};
  size_t end = 0;
  while (o.status == HARK_OK && (o.consumed < size || end < size)) {
    end = end + 1 + fuzz_random_below(random, most);
    if (end > size) end = size;
    size_t count = 0, consumed = 0;
    hark_text_fault fault = {0};
    o.status = hark_tokenizer_encode_part(context, tokenizer, unknown, text + o.consumed, end - o.consumed, end == size, o.token + o.tokens,
                                          &count, &consumed, &fault);
    o.fault = o.consumed + fault.at;
    memcpy(o.what, fault.what, sizeof o.what);
    o.tokens += count;
    o.consumed += consumed;
    const bool taken = o.consumed <= end && end - o.consumed < hark_tokenizer_kind_part_bytes(hark_tokenizer_kind_of(tokenizer));
    FUZZ_CHECK(taken || o.status != HARK_OK, "%zu bytes are left over", end - o.consumed);
  }
  return o;
}

/* The call for a whole text says the same, and names the place of a fault. */
static void check_whole(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text,
                        size_t size, const outcome *expected) {
  int32_t *const tokens = malloc((size + 1) * sizeof *tokens);
  size_t count = 0;
  const hark_status status = hark_tokenizer_encode(context, tokenizer, unknown, "text", text, size, tokens, &count);
  FUZZ_CHECK(status == expected->status && count == expected->tokens, "%zu tokens, %s", count, hark_status_name(status));
  FUZZ_CHECK(memcmp(tokens, expected->token, count * sizeof *tokens) == 0, "other tokens");
  if (status != HARK_OK) {
    char end[64];
    const char *const message = hark_context_message(context);
    int64_t line = 1;
    for (size_t i = 0; i < expected->fault; i++) line += text[i] == '\n';
    const int begin = snprintf(end, sizeof end, "text:%lld:", (long long)line);
    FUZZ_CHECK(strncmp(message, end, (size_t)begin) == 0, "%s: line %lld expected", message, (long long)line);
    (void)snprintf(end, sizeof end, "(byte offset %zu)", expected->fault);
    FUZZ_CHECK(strstr(message, end) != NULL, "%s: %s expected", message, end);
  }
  free(tokens);
}

static void check_decoded(const hark_tokenizer *tokenizer, const outcome *o, const unsigned char *text, bool exact) {
  size_t at = 0;
  for (size_t i = 0; i < o->tokens; i++) {
    size_t bytes;
    char name[24];
    FUZZ_CHECK(o->token[i] >= 0 && o->token[i] < hark_tokenizer_size(tokenizer), "token %d", (int)o->token[i]);
    const char *const symbol = hark_tokenizer_text(tokenizer, o->token[i], &bytes);
    FUZZ_CHECK(hark_tokenizer_name(tokenizer, o->token[i], name, sizeof name)[0] != 0, "a token without a name");
    if (exact) FUZZ_CHECK(at + bytes <= o->consumed && memcmp(symbol, text + at, bytes) == 0, "token %zu decodes to something else", i);
    at += bytes;
  }
  if (exact) FUZZ_CHECK(at == o->consumed, "%zu bytes come back of %zu", at, o->consumed);
}

static void check_vocabulary(hark_context *context, const hark_tokenizer *tokenizer) {
  char *text, *again;
  size_t bytes, bytes_again;
  hark_tokenizer *back;
  FUZZ_CHECK(hark_tokenizer_print(context, tokenizer, &text, &bytes) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(hark_tokenizer_parse(context, text, bytes, &back) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(hark_tokenizer_checksum(back) == hark_tokenizer_checksum(tokenizer), "the vocabulary came back changed");
  FUZZ_CHECK(hark_tokenizer_size(back) == hark_tokenizer_size(tokenizer), "the vocabulary came back in another size");
  FUZZ_CHECK(hark_tokenizer_print(context, back, &again, &bytes_again) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(bytes == bytes_again && memcmp(text, again, bytes) == 0, "the vocabulary is printed in two ways");
  hark_release(context, text, bytes);
  hark_release(context, again, bytes_again);
  hark_tokenizer_destroy(context, &back);
}

/* In one part and in several, with a vocabulary that may lack symbols of the text. */
static void check_encoding(hark_context *context, const hark_tokenizer *tokenizer, const unsigned char *text, size_t size) {
  fuzz_random random = fuzz_random_of(text, size);
  for (int unknown = HARK_UNKNOWN_IS_ERROR; unknown <= HARK_UNKNOWN_IS_MAPPED; unknown++) {
    outcome whole = encode(context, tokenizer, (hark_unknown)unknown, text, size, size + 1, &random);
    outcome parts = encode(context, tokenizer, (hark_unknown)unknown, text, size, 7, &random);
    FUZZ_CHECK(whole.status == HARK_OK || whole.status == HARK_BAD_FILE, "%s", hark_status_name(whole.status));
    FUZZ_CHECK(whole.status == parts.status && whole.consumed == parts.consumed && whole.tokens == parts.tokens, "parts make a difference");
    FUZZ_CHECK(memcmp(whole.token, parts.token, whole.tokens * sizeof(int32_t)) == 0, "parts make other tokens");
    if (whole.status != HARK_OK) {
      FUZZ_CHECK(whole.fault == parts.fault && whole.fault == whole.consumed, "the fault is at %zu or at %zu", whole.fault, parts.fault);
      FUZZ_CHECK(strcmp(whole.what, parts.what) == 0, "two faults: %s and %s", whole.what, parts.what);
    }
    check_whole(context, tokenizer, (hark_unknown)unknown, text, size, &whole);
    check_decoded(tokenizer, &whole, text, unknown == HARK_UNKNOWN_IS_ERROR);
    free(whole.token);
    free(parts.token);
  }
}

/* Learns the text in parts of at most `most` bytes; NULL when it is refused. */
static hark_tokenizer *learn(hark_context *context, const char *kind, const unsigned char *text, size_t size, size_t most) {
  fuzz_random random = fuzz_random_of(text, size);
  hark_tokenizer *tokenizer;
  size_t at = 0, end = 0;
  hark_status status = HARK_OK;
  hark_subword_settings subwords = test_subwords(size % 2 == 0 ? HARK_SUBWORD_UNIGRAM : HARK_SUBWORD_BPE, PIECES);
  if (strcmp(kind, "byte_bpe") == 0) subwords.vocabulary = HARK_TOKEN_RESERVED + 256; /* which every text gives */
  FUZZ_CHECK(hark_tokenizer_create(context, kind, &tokenizer) == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(hark_tokenizer_set_subwords(context, tokenizer, &subwords) == HARK_OK, "%s", hark_context_message(context));
  while (status == HARK_OK && end < size) {
    size_t consumed = 0;
    hark_text_fault fault = {0};
    end = end + 1 + fuzz_random_below(&random, most);
    if (end > size) end = size;
    status = hark_tokenizer_learn(context, tokenizer, text + at, end - at, end == size, &consumed, &fault);
    if (status == HARK_BAD_FILE) FUZZ_CHECK(at + fault.at == valid_prefix(text, size), "the fault is at %zu", at + fault.at);
    at += consumed;
  }
  FUZZ_CHECK(status == HARK_OK || status == HARK_BAD_FILE, "%s", hark_status_name(status));
  if (status == HARK_OK) status = hark_tokenizer_finish(context, tokenizer);
  FUZZ_CHECK(status == HARK_OK || status == HARK_BAD_FILE, "%s", hark_status_name(status));
  if (status != HARK_OK) hark_tokenizer_destroy(context, &tokenizer);
  return tokenizer;
}

/* A vocabulary of sub-words needs a character of a word. */
static bool has_word(const unsigned char *text, size_t size) {
  for (size_t at = 0, length; at < size; at += length) {
    uint32_t code;
    length = character(text + at, size - at, &code);
    if (code > ' ' && code != 0x7F && code != 0x2581 && code != 0x2585) return true;
  }
  return false;
}

static void check_text(hark_context *context, const char *kind, const unsigned char *text, size_t size) {
  hark_tokenizer *tokenizer = learn(context, kind, text, size, size + 1), *parts = learn(context, kind, text, size, 5);
  FUZZ_CHECK((tokenizer != NULL) == (parts != NULL), "parts make a difference");
  const bool bytes = strcmp(kind, "bytes") == 0 || (strcmp(kind, "byte_bpe") == 0 && size > 0), words = strcmp(kind, "subwords") == 0;
  const bool good = size > 0 && valid_prefix(text, size) == size;
  FUZZ_CHECK((tokenizer != NULL) == (bytes || (good && (!words || has_word(text, size)))), "the text is refused or accepted wrongly");
  if (tokenizer != NULL) {
    FUZZ_CHECK(hark_tokenizer_checksum(tokenizer) == hark_tokenizer_checksum(parts), "parts make another vocabulary");
    check_vocabulary(context, tokenizer);
    check_encoding(context, tokenizer, text, size);
  }
  hark_tokenizer_destroy(context, &tokenizer);
  hark_tokenizer_destroy(context, &parts);
}

/* ---- vocabulary ---- */

/* Puts the checksum that the message names into a copy of the text; false when that was not the reason. */
static bool mend_checksum(const hark_context *context, char *text, size_t size) {
  static const char reason[] = "is not that of the symbols, ", member[] = "\"checksum\": \"";
  const char *const right = strstr(hark_context_message(context), reason);
  char *const place = memmem(text, size, member, sizeof member - 1);
  if (right == NULL || place == NULL || (size_t)(text + size - place) < sizeof member - 1 + 16) return false;
  memcpy(place + sizeof member - 1, right + sizeof reason - 1, 16);
  return true;
}

static void check_as_vocabulary(hark_context *context, const unsigned char *bytes, size_t size) {
  hark_tokenizer *tokenizer;
  char *const text = malloc(size + 1);
  if (size > 0) memcpy(text, bytes, size);
  hark_status status = hark_tokenizer_parse(context, text, size, &tokenizer);
  if (status != HARK_OK && mend_checksum(context, text, size)) status = hark_tokenizer_parse(context, text, size, &tokenizer);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, "");
  FUZZ_CHECK((status == HARK_OK) == (tokenizer != NULL), "a refused vocabulary is there");
  if (tokenizer != NULL) {
    check_vocabulary(context, tokenizer);
    check_encoding(context, tokenizer, bytes, size);
  }
  hark_tokenizer_destroy(context, &tokenizer);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  hark_context *const context = fuzz_begin();
  const unsigned char *const text = size > 0 ? data : (const unsigned char *)"";
  check_characters(text, size);
  check_stream(text, size);
  for (int i = 0; hark_tokenizer_kind_name(i) != NULL && hark_tokenizer_kind_is_made(i); i++)
    if (hark_tokenizer_kind_available(i)) check_text(context, hark_tokenizer_kind_name(i), text, size);
  fuzz_limit(CHARACTERS_BYTES + PAGE_BYTES * size);
  if (size > 0 && text[0] == '{') check_as_vocabulary(context, text, size);
  fuzz_limit(CHARACTERS_BYTES + (PAGE_BYTES + VOCABULARY_BYTES) * size);
  fuzz_end();
  return 0;
}
