/* tokenizer_characters.c - every Unicode code point that occurs in the text is a symbol, in the order of the code points.
 *
 * Learning marks code points in a bitmap (136 KiB). Encoding looks a code point up in pages of 256: page[code / 256][code % 256], 0 for
 * none. Only pages with symbols exist: one for ASCII text, a few KiB for most languages.
 */
#include <inttypes.h>
#include <string.h>

#include "io/json_write.h"
#include "tokenizers/tokenizer_kind.h"
#include "tokenizers/utf8.h"

#define BITMAP_WORDS (HARK_CODE_POINTS / 64)
#define PAGE_SIZE 256
#define PAGES (HARK_CODE_POINTS / PAGE_SIZE)

typedef struct characters_state {
  uint64_t *seen;             /* [BITMAP_WORDS], while learning */
  uint16_t page_of[PAGES];    /* 0: page without symbols */
  int32_t (*page)[PAGE_SIZE]; /* [page_count]; page 0 is empty */
  size_t page_count;
} characters_state;

static void release_seen(hark_context *context, characters_state *state) {
  hark_release(context, state->seen, BITMAP_WORDS * sizeof(uint64_t));
  state->seen = NULL;
}

static void characters_close(hark_context *context, hark_tokenizer *tokenizer) {
  characters_state *state = tokenizer->state;
  release_seen(context, state);
  hark_release(context, state->page, state->page_count * sizeof *state->page);
  state->page = NULL;
}

static hark_status ensure_seen(hark_context *context, characters_state *state) {
  if (state->seen != NULL) return HARK_OK;
  return hark_allocate_zero(context, BITMAP_WORDS * sizeof(uint64_t), (void **)&state->seen);
}

static bool is_seen(const characters_state *state, uint32_t code) { return (state->seen[code / 64] >> (code % 64)) & 1; }
static void mark_seen(characters_state *state, uint32_t code) { state->seen[code / 64] |= (uint64_t)1 << (code % 64); }

static hark_status characters_learn(hark_context *context, hark_tokenizer *tokenizer, const unsigned char *text, size_t bytes, bool last,
                                    size_t *consumed, hark_text_fault *fault) {
  characters_state *state = tokenizer->state;
  HARK_TRY(ensure_seen(context, state));
  size_t at = 0;
  while (at < bytes) {
    uint32_t code;
    size_t length;
    const hark_utf8_result result = hark_utf8_decode(text + at, bytes - at, &code, &length);
    if (result == HARK_UTF8_INCOMPLETE && !last) break;
    if (result != HARK_UTF8_OK) return hark_text_fault_set(fault, at, "invalid UTF-8: %s", hark_utf8_result_text(result));
    mark_seen(state, code);
    at += length;
  }
  *consumed = at;
  return HARK_OK;
}

/* The first marked code point from `code` on; HARK_CODE_POINTS when there is none. Whole words without a mark are skipped. */
static uint32_t next_seen(const characters_state *state, uint32_t code) {
  while (code < HARK_CODE_POINTS && !is_seen(state, code)) {
    const bool rest_is_empty = state->seen[code / 64] >> (code % 64) == 0;
    code = rest_is_empty ? (code / 64 + 1) * 64 : code + 1;
  }
  return code;
}

/* Gives the marked code points their tokens. */
static hark_status characters_finish(hark_context *context, hark_tokenizer *tokenizer) {
  characters_state *state = tokenizer->state;
  HARK_TRY(ensure_seen(context, state));
  char text[HARK_UTF8_MAX_BYTES];
  int32_t symbols = 0;
  size_t text_bytes = 0, pages = 1;
  uint32_t last_page = PAGES;
  for (uint32_t code = next_seen(state, 0); code < HARK_CODE_POINTS; code = next_seen(state, code + 1)) {
    symbols++;
    text_bytes += hark_utf8_encode(code, text);
    pages += code / PAGE_SIZE != last_page;
    last_page = code / PAGE_SIZE;
  }
  if (symbols == 0) return hark_fail(context, HARK_BAD_FILE, "a vocabulary of characters needs text, and there is none");
  HARK_TRY(hark_tokenizer_reserve(context, tokenizer, symbols, text_bytes));
  HARK_TRY(hark_allocate_zero(context, pages * sizeof *state->page, (void **)&state->page));
  state->page_count = pages;
  size_t used = 1;
  for (uint32_t code = next_seen(state, 0); code < HARK_CODE_POINTS; code = next_seen(state, code + 1)) {
    uint16_t *page_of = &state->page_of[code / PAGE_SIZE];
    if (*page_of == 0) *page_of = (uint16_t)used++;
    state->page[*page_of][code % PAGE_SIZE] = tokenizer->size;
    hark_tokenizer_add(tokenizer, text, hark_utf8_encode(code, text));
  }
  release_seen(context, state);
  return HARK_OK;
}

static hark_status characters_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown,
                                     const unsigned char *text, size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed,
                                     hark_text_fault *fault) {
  (void)context;
  const characters_state *state = tokenizer->state;
  size_t at = 0, made = 0;
  hark_status status = HARK_OK;
  while (at < bytes) {
    uint32_t code;
    size_t length;
    const hark_utf8_result result = hark_utf8_decode(text + at, bytes - at, &code, &length);
    if (result == HARK_UTF8_INCOMPLETE && !last) break;
    if (result != HARK_UTF8_OK) {
      status = hark_text_fault_set(fault, at, "invalid UTF-8: %s", hark_utf8_result_text(result));
      break;
    }
    int32_t token = state->page[state->page_of[code / PAGE_SIZE]][code % PAGE_SIZE];
    if (token == 0) {
      if (unknown == HARK_UNKNOWN_IS_ERROR) {
        status = hark_text_fault_unknown(fault, at, code);
        break;
      }
      token = HARK_TOKEN_UNKNOWN;
    }
    tokens[made++] = token;
    at += length;
  }
  *count = made;
  *consumed = at;
  return status;
}

static void characters_write(const hark_tokenizer *tokenizer, hark_text *text) {
  hark_text_append(text, ",\n \"symbols\": [");
  for (int32_t token = HARK_TOKEN_RESERVED; token < tokenizer->size; token++) {
    const size_t at = tokenizer->text_at[token];
    hark_text_append(text, "%s\n  ", token > HARK_TOKEN_RESERVED ? "," : "");
    hark_json_append_bytes(text, tokenizer->text + at, tokenizer->text_at[token + 1] - at);
  }
  hark_text_append(text, "\n ]");
}

static hark_status characters_read(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *object, int64_t *members) {
  characters_state *state = tokenizer->state;
  const hark_json_node *symbols = hark_json_member(object, "symbols"), *symbol;
  if (!hark_json_is(symbols, HARK_JSON_LIST)) return hark_fail(context, HARK_BAD_FILE, "\"symbols\" is missing or not an array");
  *members = 1;
  HARK_TRY(ensure_seen(context, state));
  int64_t previous = -1;
  size_t i = 0;
  for (symbol = symbols->first; symbol != NULL; symbol = symbol->next, i++) {
    const char *text = symbol->kind == HARK_JSON_TEXT ? symbol->text : NULL;
    const size_t bytes = text != NULL ? symbol->bytes : 0;
    uint32_t code = 0;
    size_t length = 0;
    if (text == NULL || bytes == 0 || hark_utf8_decode((const unsigned char *)text, bytes, &code, &length) != HARK_UTF8_OK ||
        length != bytes)
      return hark_fail(context, HARK_BAD_FILE, "symbol %zu is not a string of one character", i);
    if ((int64_t)code <= previous)
      return hark_fail(context, HARK_BAD_FILE, "symbol %zu, U+%04" PRIX32 ", is not greater than the one before it", i, code);
    previous = code;
    mark_seen(state, code);
  }
  if (previous < 0) return hark_fail(context, HARK_BAD_FILE, "\"symbols\" is empty");
  return characters_finish(context, tokenizer);
}

const hark_tokenizer_kind hark_tokenizer_characters = {
    .name = "characters",
    .summary = "Unicode code points of UTF-8 text: one symbol for each that occurs",
    .state_bytes = sizeof(characters_state),
    .unit_bytes = HARK_UTF8_MAX_BYTES,
    .learns = true,
    .close = characters_close,
    .learn = characters_learn,
    .finish = characters_finish,
    .encode = characters_encode,
    .write = characters_write,
    .read = characters_read,
};
