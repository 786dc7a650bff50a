/* charsmap.c - a double-array trie as Darts-clone writes it (S. Yata, https://github.com/s-yata/darts-clone): in a unit, bits 0-7 and 31
 * are the label, bit 8 marks a node with a value, bits 10-30 are the offset, shifted left by 8 when bit 9 is set; the unit of a value has
 * bit 31 and the value in bits 0-30. */
#include "tokenizers/pipeline/charsmap.h"

#include "tokenizers/utf8.h"

#define UNIT_BYTES 4

static size_t offset_of(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 1U << 9) >> 6); }
static uint32_t label_of(uint32_t unit) { return unit & (1U << 31 | 0xFFU); }
static bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
static size_t value_of(uint32_t unit) { return unit & ((1U << 31) - 1); }

static uint32_t little_endian(const char *at) {
  const unsigned char *const b = (const unsigned char *)at;
  return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

hark_status hark_charsmap_read(hark_context *context, hark_span blob, hark_charsmap *out) {
  if (blob.bytes == 0) return HARK_OK;
  const size_t trie = blob.bytes >= UNIT_BYTES ? little_endian(blob.text) : 0;
  if (trie == 0 || trie % UNIT_BYTES != 0 || trie > blob.bytes - UNIT_BYTES)
    return hark_fail(context, HARK_BAD_FILE, "the map's trie has %zu bytes, and %zu bytes are there", trie, blob.bytes);
  HARK_TRY(hark_allocate(context, trie, (void **)&out->unit));
  out->units = trie / UNIT_BYTES;
  for (size_t i = 0; i < out->units; i++) out->unit[i] = little_endian(blob.text + UNIT_BYTES + i * UNIT_BYTES);
  for (size_t at = UNIT_BYTES + trie, length; at < blob.bytes; at += length) {
    uint32_t code;
    if (hark_utf8_decode((const unsigned char *)blob.text + at, blob.bytes - at, &code, &length) != HARK_UTF8_OK)
      return hark_fail(context, HARK_BAD_FILE, "the map's texts are not UTF-8");
  }
  HARK_TRY(hark_bytes_add(context, &out->text, blob.text + UNIT_BYTES + trie, blob.bytes - UNIT_BYTES - trie));
  return hark_bytes_add(context, &out->text, "", 1); /* so that the last text ends too */
}

static int sextet(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

hark_status hark_charsmap_read_base64(hark_context *context, hark_span text, hark_charsmap *out) {
  hark_bytes blob = {0};
  uint32_t held = 0;
  int bits = 0;
  while (text.bytes > 0 && text.text[text.bytes - 1] == '=') text.bytes--;
  HARK_TRY(HARK_RESERVE(context, &blob, text.bytes));
  hark_status status = HARK_OK;
  for (size_t i = 0; i < text.bytes && status == HARK_OK; i++) {
    const int value = sextet(text.text[i]);
    if (value < 0) status = hark_fail(context, HARK_BAD_FILE, "character %zu is not one of base64", i);
    held = held << 6 | ((unsigned)value & 63U);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    blob.data[blob.count++] = (char)(held >> bits & 0xFF);
  }
  if (status == HARK_OK) status = hark_charsmap_read(context, (hark_span){blob.data, blob.count}, out);
  HARK_FREE_LIST(context, &blob);
  return status;
}

void hark_charsmap_close(hark_context *context, hark_charsmap *map) {
  hark_release(context, map->unit, map->units * UNIT_BYTES);
  HARK_FREE_LIST(context, &map->text);
  map->units = 0;
}

/* Visits texts of the map with which `text` begins, the shortest first; stops at the first if `shortest`. */
static bool search(const hark_charsmap *map, hark_span text, bool shortest, hark_span *with, size_t *bytes) {
  bool found = false;
  if (map->units == 0) return false;
  size_t node = offset_of(map->unit[0]);
  for (size_t i = 0; i < text.bytes && text.text[i] != 0; i++) {
    const unsigned char c = (unsigned char)text.text[i];
    node ^= c;
    if (node >= map->units || label_of(map->unit[node]) != c) break;
    const uint32_t unit = map->unit[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= map->units || value_of(map->unit[node]) >= map->text.count) break;
    const char *const replacement = map->text.data + value_of(map->unit[node]);
    if (!hark_utf8_is_lead((unsigned char)*replacement)) break; /* within a character */
    if (i + 1 < text.bytes && !hark_utf8_is_lead((unsigned char)text.text[i + 1])) continue;
    *with = (hark_span){replacement, strlen(replacement)};
    *bytes = i + 1;
    found = true;
    if (shortest) break;
  }
  return found;
}

bool hark_charsmap_shortest(const hark_charsmap *map, hark_span text, hark_span *with) {
  size_t bytes;
  return search(map, text, true, with, &bytes);
}

bool hark_charsmap_longest(const hark_charsmap *map, hark_span text, hark_span *with, size_t *bytes) {
  return search(map, text, false, with, bytes);
}
