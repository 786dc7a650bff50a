/* subword_search.h - dividing a unit of text (subwords.h) into pieces of a vocabulary. */
#ifndef HARK_TOKENIZERS_SUBWORD_SEARCH_H
#define HARK_TOKENIZERS_SUBWORD_SEARCH_H

#include "core/core.h"
#include "tokenizers/subwords.h"

/* A step of the tree of all pieces: from a node by a byte to another node. */
typedef struct hark_subword_edge {
  uint32_t from; /* node << 8 | byte, plus 1; 0: no edge */
  uint32_t to;
} hark_subword_edge;

/* The pieces as a tree of their bytes. Zero it before use. */
typedef struct hark_subword_search {
  hark_subword_model model;
  hark_subword_edge *edge; /* [edges], a power of two; open addressing, at most half full */
  size_t edges;
  int32_t *piece; /* [node_capacity]: the piece that ends at a node; -1: none */
  size_t nodes, node_capacity;
  float *score; /* [pieces] */
  size_t pieces, piece_capacity;
  float unknown_score; /* of a character that is not a piece: 10 below the lowest score */
} hark_subword_search;

/* Makes room for `pieces` pieces of `bytes` bytes in total. Errors: HARK_OUT_OF_MEMORY, HARK_BAD_FILE (more than 2^24 - 2 bytes). */
HARK_MUST_CHECK hark_status hark_subword_search_open(hark_context *context, hark_subword_search *search, hark_subword_model model,
                                                     size_t pieces, size_t bytes);
/* Adds the next piece, number search->pieces, of at least one byte; false when the same piece was added before. The score of unigram is the
 * logarithm of a probability; that of bpe is minus the number of the merge. */
bool hark_subword_search_add(hark_subword_search *search, const char *text, size_t bytes, float score);
void hark_subword_search_close(hark_context *context, hark_subword_search *search);

/* A unit as consecutive segments: segment i ends at byte end[i] and is piece[i]; -1: a character that is not a piece. */
typedef struct hark_subword_segments {
  int count;
  int16_t end[HARK_SUBWORD_UNIT_BYTES];
  int32_t piece[HARK_SUBWORD_UNIT_BYTES];
} hark_subword_segments;

/* Divides 1 to HARK_SUBWORD_UNIT_BYTES bytes of valid UTF-8. Allocates nothing. */
void hark_subword_divide(const hark_subword_search *search, const unsigned char *text, int bytes, hark_subword_segments *out);

#endif
