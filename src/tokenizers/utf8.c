/* utf8.c - UTF-8 by table 3-7 of the Unicode standard, "Well-Formed UTF-8 Byte Sequences".
 *
 *     first byte    second      third, fourth     code points
 *     00..7F                                      U+0000 .. U+007F
 *     C2..DF        80..BF                        U+0080 .. U+07FF
 *     E0            A0..BF      80..BF            U+0800 .. U+0FFF      80..9F would be overlong
 *     E1..EC,EE,EF  80..BF      80..BF            U+1000 .. U+FFFF
 *     ED            80..9F      80..BF            U+D000 .. U+D7FF      A0..BF would be a surrogate
 *     F0            90..BF      80..BF x 2        U+10000 .. U+3FFFF    80..8F would be overlong
 *     F1..F3        80..BF      80..BF x 2        U+40000 .. U+FFFFF
 *     F4            80..8F      80..BF x 2        U+100000 .. U+10FFFF  90..BF would be too large
 */
#include "tokenizers/utf8.h"

#include <string.h>

hark_utf8_result hark_utf8_decode(const unsigned char *text, size_t bytes, uint32_t *code_point, size_t *length) {
  const unsigned char lead = text[0];
  if (lead < 0x80) {
    *code_point = lead;
    *length = 1;
    return HARK_UTF8_OK;
  }
  if (lead < 0xC0) return HARK_UTF8_UNEXPECTED_CONTINUATION;
  if (lead < 0xC2) return HARK_UTF8_OVERLONG;
  if (lead > 0xF4) return HARK_UTF8_NEVER_A_BYTE;
  const size_t needed = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t value = lead & (0x7Fu >> needed);
  for (size_t i = 1; i < needed; i++) {
    if (i == bytes) return HARK_UTF8_INCOMPLETE;
    if (hark_utf8_is_lead(text[i])) return HARK_UTF8_MISSING_CONTINUATION;
    /* The second byte decides, so that a part of a character is reported as incomplete only when it can still become valid. */
    if (i == 1) {
      if ((lead == 0xE0 && text[1] < 0xA0) || (lead == 0xF0 && text[1] < 0x90)) return HARK_UTF8_OVERLONG;
      if (lead == 0xED && text[1] >= 0xA0) return HARK_UTF8_SURROGATE;
      if (lead == 0xF4 && text[1] >= 0x90) return HARK_UTF8_TOO_LARGE;
    }
    value = (value << 6) | (text[i] & 0x3Fu);
  }
  *code_point = value;
  *length = needed;
  return HARK_UTF8_OK;
}

size_t hark_utf8_encode(uint32_t code_point, char text[HARK_UTF8_MAX_BYTES]) {
  if (code_point < 0x80) {
    text[0] = (char)code_point;
    return 1;
  }
  const size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
  for (size_t i = length - 1; i > 0; i--) {
    text[i] = (char)(0x80 | (code_point & 0x3F));
    code_point >>= 6;
  }
  text[0] = (char)((0xF00u >> length) & 0xF0u) | (char)code_point; /* 110x, 1110, 1111 0 */
  return length;
}

const char *hark_utf8_result_text(hark_utf8_result result) {
  switch (result) {
    case HARK_UTF8_OK: return "valid";
    case HARK_UTF8_INCOMPLETE: return "text ends inside a character";
    case HARK_UTF8_UNEXPECTED_CONTINUATION: return "continuation byte without a beginning";
    case HARK_UTF8_MISSING_CONTINUATION: return "continuation byte missing";
    case HARK_UTF8_OVERLONG: return "overlong encoding";
    case HARK_UTF8_SURROGATE: return "surrogate";
    case HARK_UTF8_TOO_LARGE: return "code point above U+10FFFF";
    case HARK_UTF8_NEVER_A_BYTE: return "byte that never occurs";
  }
  return "invalid";
}

static size_t put_replacement(char *out) { return hark_utf8_encode(0xFFFD, out); }

size_t hark_utf8_stream_put(hark_utf8_stream *stream, unsigned char byte, char out[HARK_UTF8_STREAM_BYTES]) {
  size_t written = 0, length;
  uint32_t code_point;
  stream->held[stream->held_bytes++] = byte;
  hark_utf8_result result = hark_utf8_decode(stream->held, stream->held_bytes, &code_point, &length);
  if (result != HARK_UTF8_OK && result != HARK_UTF8_INCOMPLETE && stream->held_bytes > 1) {
    /* The held bytes are the maximal invalid part; the current byte begins a new character. */
    written += put_replacement(out);
    stream->held[0] = byte;
    stream->held_bytes = 1;
    result = hark_utf8_decode(stream->held, 1, &code_point, &length);
  }
  if (result == HARK_UTF8_INCOMPLETE) return written;
  if (result == HARK_UTF8_OK) {
    memcpy(out + written, stream->held, stream->held_bytes);
    written += stream->held_bytes;
  } else {
    written += put_replacement(out + written);
  }
  stream->held_bytes = 0;
  return written;
}

size_t hark_utf8_stream_end(hark_utf8_stream *stream, char out[HARK_UTF8_STREAM_BYTES]) {
  const size_t written = stream->held_bytes > 0 ? put_replacement(out) : 0;
  stream->held_bytes = 0;
  return written;
}
