/* unicode.c - utf8proc's tables, with what regular expressions and Rust's standard library define in other ways. */
#include "tokenizers/pipeline/unicode.h"

#if defined(HARK_WITH_UTF8PROC)
#include <utf8proc.h>
#endif

bool hark_is_white(uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

#if defined(HARK_WITH_UTF8PROC)
const bool hark_unicode_available = true;

static bool is_ascii_punctuation(uint32_t code) {
  return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
}

static utf8proc_category_t category(uint32_t code) { return utf8proc_category((utf8proc_int32_t)code); }

bool hark_is_punctuation(uint32_t code) {
  if (code < 0x80) return is_ascii_punctuation(code);
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool hark_is_numeric(uint32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

/* Symbols that are alphabetic: letters in circles and squares. */
static bool is_enclosed_letter(uint32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

bool hark_is_word(uint32_t code) {
  if (code < 0x80) return (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z') || code == '_';
  if (code == 0x200C || code == 0x200D || is_enclosed_letter(code)) return true;
  const utf8proc_category_t c = category(code);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC;
}

bool hark_is_other(uint32_t code) {
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

bool hark_is_nonspacing_mark(uint32_t code) { return code >= 0x300 && category(code) == UTF8PROC_CATEGORY_MN; }

bool hark_is_mark(uint32_t code) {
  const utf8proc_category_t c = category(code);
  return code >= 0x300 && c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

#define CAPITAL_I_WITH_DOT 0x130 /* whose lower case has two characters */

static size_t lower_character(uint32_t code, char out[2 * HARK_UTF8_MAX_BYTES]) {
  if (code == CAPITAL_I_WITH_DOT) {
    memcpy(out, "i\xCC\x87", 3);
    return 3;
  }
  return hark_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), out);
}

hark_status hark_lower_case(hark_context *context, hark_span in, hark_bytes *out) {
  HARK_TRY(HARK_RESERVE(context, out, 2 * in.bytes + HARK_UTF8_MAX_BYTES)); /* two bytes become three at most */
  for (size_t at = 0, length; at < in.bytes; at += length) {
    const uint32_t code = hark_character(in.text + at, &length);
    if (code < 0x80) {
      out->data[out->count++] = (char)(code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code);
    } else {
      out->count += lower_character(code, out->data + out->count);
    }
  }
  return HARK_OK;
}

/* Whether all characters are below U+0080, or below U+0300 for composed forms without compatibility, which change none of them. */
static bool is_normal_already(hark_span in, bool compose, bool compatible) {
  const unsigned char first = compose && !compatible ? 0xCC : 0x80;
  for (size_t i = 0; i < in.bytes; i++)
    if ((unsigned char)in.text[i] >= first) return false;
  return true;
}

hark_status hark_normal_form(hark_context *context, bool compose, bool compatible, hark_span in, hark_ids *codes, hark_bytes *out) {
  if (is_normal_already(in, compose, compatible)) return hark_bytes_add(context, out, in.text, in.bytes);
  const utf8proc_option_t options =
      (utf8proc_option_t)(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0));
  codes->count = 0;
  HARK_TRY(HARK_RESERVE(context, codes, in.bytes + 1));
  const utf8proc_uint8_t *const text = (const utf8proc_uint8_t *)in.text;
  utf8proc_ssize_t made = utf8proc_decompose(text, (utf8proc_ssize_t)in.bytes, codes->data, (utf8proc_ssize_t)codes->capacity, options);
  if (made > (utf8proc_ssize_t)codes->capacity) {
    HARK_TRY(HARK_RESERVE(context, codes, (size_t)made));
    made = utf8proc_decompose(text, (utf8proc_ssize_t)in.bytes, codes->data, made, options);
  }
  if (made >= 0) made = utf8proc_normalize_utf32(codes->data, made, options);
  if (made < 0) return hark_fail(context, HARK_INTERNAL_ERROR, "utf8proc: %s", utf8proc_errmsg(made));
  HARK_TRY(HARK_RESERVE(context, out, (size_t)made * HARK_UTF8_MAX_BYTES));
  for (utf8proc_ssize_t i = 0; i < made; i++) out->count += hark_utf8_encode((uint32_t)codes->data[i], out->data + out->count);
  return HARK_OK;
}

size_t hark_grapheme_bytes(hark_span text) {
  utf8proc_int32_t state = 0;
  size_t at, length;
  uint32_t code = hark_character(text.text, &at);
  for (; at < text.bytes; at += length) {
    if (code >= ' ' && code < 0x80 && (unsigned char)text.text[at] < 0x80) break; /* no cluster has two of ASCII, but for a line end */
    const uint32_t next = hark_character(text.text + at, &length);
    if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state)) break;
    code = next;
  }
  return at;
}
#else
const bool hark_unicode_available = false;

bool hark_is_punctuation(uint32_t code) { return (void)code, false; }
bool hark_is_numeric(uint32_t code) { return (void)code, false; }
bool hark_is_word(uint32_t code) { return (void)code, false; }
bool hark_is_other(uint32_t code) { return (void)code, false; }
bool hark_is_nonspacing_mark(uint32_t code) { return (void)code, false; }
bool hark_is_mark(uint32_t code) { return (void)code, false; }

hark_status hark_lower_case(hark_context *context, hark_span in, hark_bytes *out) {
  (void)in, (void)out;
  return hark_fail(context, HARK_UNSUPPORTED, "lower case needs utf8proc");
}

hark_status hark_normal_form(hark_context *context, bool compose, bool compatible, hark_span in, hark_ids *codes, hark_bytes *out) {
  (void)compose, (void)compatible, (void)in, (void)codes, (void)out;
  return hark_fail(context, HARK_UNSUPPORTED, "normal forms need utf8proc");
}

size_t hark_grapheme_bytes(hark_span text) { return hark_character_bytes(text.text); }
#endif
