/* trie.h - texts as a tree of their bytes, for the longest or every text with which another one begins. */
#ifndef HARK_TOKENIZERS_PIPELINE_TRIE_H
#define HARK_TOKENIZERS_PIPELINE_TRIE_H

#include "tokenizers/pipeline/growing.h"

#define HARK_TRIE_ROOT 0U
#define HARK_TRIE_NONE UINT32_MAX

typedef struct hark_trie_edge {
  uint32_t from; /* node << 8 | byte, plus 1; 0: no edge */
  uint32_t to;
} hark_trie_edge;

/* Zero it before use. */
typedef struct hark_trie {
  hark_trie_edge *edge; /* [edges], a power of two; open addressing, at most half full */
  size_t edges;
  int32_t *value; /* [node_capacity]: of the text that ends at a node; -1: none */
  size_t nodes, node_capacity;
} hark_trie;

/* Makes room for texts of `bytes` bytes in all. Errors: HARK_OUT_OF_MEMORY, HARK_TOO_LARGE (more than 2^24 - 2 bytes). */
HARK_MUST_CHECK hark_status hark_trie_open(hark_context *context, hark_trie *trie, size_t bytes);
/* Adds a text; one that is there keeps its value. */
void hark_trie_add(hark_trie *trie, const char *text, size_t bytes, int32_t value);
void hark_trie_close(hark_context *context, hark_trie *trie);

/* The next node, or HARK_TRIE_NONE. */
static inline uint32_t hark_trie_step(const hark_trie *trie, uint32_t node, char byte) {
  const uint32_t from = (node << 8 | (unsigned char)byte) + 1;
  for (size_t i = from * 0x9E3779B1U >> 7 & (trie->edges - 1);; i = (i + 1) & (trie->edges - 1)) {
    if (trie->edge[i].from == from) return trie->edge[i].to;
    if (trie->edge[i].from == 0) return HARK_TRIE_NONE;
  }
}

/* The value of the longest text with which `text` begins after `node`, and its bytes; -1: none. */
static inline int32_t hark_trie_longest(const hark_trie *trie, uint32_t node, const char *text, size_t bytes, size_t *length) {
  int32_t value = -1;
  for (size_t i = 0; i < bytes; i++) {
    node = hark_trie_step(trie, node, text[i]);
    if (node == HARK_TRIE_NONE) break;
    if (trie->value[node] < 0) continue;
    value = trie->value[node];
    *length = i + 1;
  }
  return value;
}

#endif
