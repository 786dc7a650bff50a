/* byte_characters.c - bytes as characters, in two ways.
 *
 * Byte-level tokenizers (GPT-2) write a byte as one visible character: ! to ~, U+00A1 to U+00AC and U+00AE to U+00FF as themselves, the
 * other 68 bytes in their order as U+0100, U+0101, ... Tokenizers with byte fallback have tokens "<0x00>" to "<0xFF>".
 */
#include "tokenizers/pipeline/component.h"

#define MOVED_TO 0x100
#define MOVED_COUNT 68

static bool stays(unsigned byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE; }

/* The moved bytes are 00..20, 7F..A0 and AD. */
uint32_t hark_byte_character(unsigned char byte) {
  if (stays(byte)) return byte;
  return MOVED_TO + (byte <= 0x20 ? byte : byte < 0xAD ? byte - 0x7F + 0x21U : MOVED_COUNT - 1U);
}

int hark_character_byte(uint32_t code) {
  if (code < MOVED_TO) return stays(code) ? (int)code : -1;
  const uint32_t index = code - MOVED_TO;
  if (index >= MOVED_COUNT) return -1;
  return (int)(index <= 0x20 ? index : index < MOVED_COUNT - 1 ? index - 0x21 + 0x7F : 0xAD);
}

static int digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hark_byte_token(hark_span text) {
  if (text.bytes != 6 || memcmp(text.text, "<0x", 3) != 0 || text.text[5] != '>') return -1;
  const int high = digit(text.text[3]), low = digit(text.text[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}
