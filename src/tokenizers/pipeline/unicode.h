/* unicode.h - properties of characters and normal forms, by utf8proc where hark is built with it (HARK_WITH_UTF8PROC).
 *
 * Texts are valid UTF-8 everywhere in this folder: hark_pipeline_encode() checks it once.
 */
#ifndef HARK_TOKENIZERS_PIPELINE_UNICODE_H
#define HARK_TOKENIZERS_PIPELINE_UNICODE_H

#include "tokenizers/pipeline/growing.h"
#include "tokenizers/utf8.h"

/* Whether this hark has utf8proc. Without it only the functions marked "always" work; the others return false, or HARK_UNSUPPORTED. */
extern const bool hark_unicode_available;

/* Bytes of the character that begins with this byte. Always. */
static inline size_t hark_character_bytes(const char *text) {
  const unsigned char lead = (unsigned char)*text;
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

/* The code point at text, and its length. Always. */
static inline uint32_t hark_character(const char *text, size_t *bytes) {
  const unsigned char *const t = (const unsigned char *)text;
  *bytes = hark_character_bytes(text);
  switch (*bytes) {
    case 1: return t[0];
    case 2: return (t[0] & 0x1FU) << 6 | (t[1] & 0x3FU);
    case 3: return (t[0] & 0x0FU) << 12 | (t[1] & 0x3FU) << 6 | (t[2] & 0x3FU);
    default: return (t[0] & 0x07U) << 18 | (t[1] & 0x3FU) << 12 | (t[2] & 0x3FU) << 6 | (t[3] & 0x3FU);
  }
}

/* The property White_Space. Always. */
bool hark_is_white(uint32_t code);
/* Punctuation, including the ASCII characters $+<=>^`|~, which Unicode calls symbols. */
bool hark_is_punctuation(uint32_t code);
/* Nd, Nl, No. */
bool hark_is_numeric(uint32_t code);
/* A character of words in regular expressions, \w of UTS 18: letters, marks, decimal digits, connectors. */
bool hark_is_word(uint32_t code);
/* Cc, Cf, Co: control characters, characters of format, private use. */
bool hark_is_other(uint32_t code);
/* Mn, and all marks (M). */
bool hark_is_nonspacing_mark(uint32_t code);
bool hark_is_mark(uint32_t code);

/* Appends the lower-case form, character by character. */
HARK_MUST_CHECK hark_status hark_lower_case(hark_context *context, hark_span in, hark_bytes *out);

/* Appends a normal form: decomposed or composed, with compatibility characters replaced or not. `codes` is memory for the work. */
HARK_MUST_CHECK hark_status hark_normal_form(hark_context *context, bool compose, bool compatible, hark_span in, hark_ids *codes,
                                             hark_bytes *out);

/* Bytes of the first grapheme cluster of a text that is not empty. */
size_t hark_grapheme_bytes(hark_span text);

#endif
