/* charsmap.h - the precompiled map of SentencePiece's normalizer: texts to texts.
 *
 * A blob: 4 bytes, little-endian: the length of a double-array trie (Darts-clone's units of 32 bits), the trie, and texts that each end
 * with a zero byte. A text's value in the trie is the place of its replacement among these.
 */
#ifndef HARK_TOKENIZERS_PIPELINE_CHARSMAP_H
#define HARK_TOKENIZERS_PIPELINE_CHARSMAP_H

#include "tokenizers/pipeline/growing.h"

/* Zero it before use. */
typedef struct hark_charsmap {
  uint32_t *unit; /* [units] */
  size_t units;
  hark_bytes text;
} hark_charsmap;

/* An empty blob is a map that replaces nothing. Errors: HARK_BAD_FILE (the message has no place), HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_charsmap_read(hark_context *context, hark_span blob, hark_charsmap *out);
HARK_MUST_CHECK hark_status hark_charsmap_read_base64(hark_context *context, hark_span text, hark_charsmap *out);
void hark_charsmap_close(hark_context *context, hark_charsmap *map);

/* The replacement of the shortest text of the map with which a text begins; false: there is none. */
bool hark_charsmap_shortest(const hark_charsmap *map, hark_span text, hark_span *with);
/* The same of the longest, and its bytes. */
bool hark_charsmap_longest(const hark_charsmap *map, hark_span text, hark_span *with, size_t *bytes);

#endif
