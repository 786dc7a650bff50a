/* utf8.h - UTF-8 strictly as defined by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef HARK_TOKENIZERS_UTF8_H
#define HARK_TOKENIZERS_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define HARK_UTF8_MAX_BYTES 4
#define HARK_CODE_POINTS 0x110000

typedef enum hark_utf8_result {
  HARK_UTF8_OK,
  HARK_UTF8_INCOMPLETE, /* the bytes could be the beginning of a character */
  HARK_UTF8_UNEXPECTED_CONTINUATION,
  HARK_UTF8_MISSING_CONTINUATION,
  HARK_UTF8_OVERLONG,
  HARK_UTF8_SURROGATE,
  HARK_UTF8_TOO_LARGE,
  HARK_UTF8_NEVER_A_BYTE /* 0xc0, 0xc1, 0xf5 .. 0xff */
} hark_utf8_result;

/* Decodes one character from text[0 .. bytes), bytes >= 1: its code point and its length. Code point and length are set only when OK. */
hark_utf8_result hark_utf8_decode(const unsigned char *text, size_t bytes, uint32_t *code_point, size_t *length);

/* Encodes a code point that is not a surrogate and below HARK_CODE_POINTS; returns the number of bytes. */
size_t hark_utf8_encode(uint32_t code_point, char text[HARK_UTF8_MAX_BYTES]);

/* "overlong encoding", ...; static. */
const char *hark_utf8_result_text(hark_utf8_result result);

/* True for bytes that begin a character; counting them counts characters. */
static inline int hark_utf8_is_lead(unsigned char byte) { return (byte & 0xC0) != 0x80; }

/* Holds back the beginning of a character until its rest arrives, for output that must be valid UTF-8 at every moment. Zero it before
 * use. */
typedef struct hark_utf8_stream {
  unsigned char held[HARK_UTF8_MAX_BYTES];
  size_t held_bytes;
} hark_utf8_stream;

/* Adds one byte to the stream; writes finished characters to out, at most HARK_UTF8_STREAM_BYTES bytes, and returns the number of bytes.
 * Every maximal part that can never become a character is written as U+FFFD. */
#define HARK_UTF8_STREAM_BYTES 8
size_t hark_utf8_stream_put(hark_utf8_stream *stream, unsigned char byte, char out[HARK_UTF8_STREAM_BYTES]);
/* Ends the stream: an unfinished character is written as U+FFFD. */
size_t hark_utf8_stream_end(hark_utf8_stream *stream, char out[HARK_UTF8_STREAM_BYTES]);

#endif
