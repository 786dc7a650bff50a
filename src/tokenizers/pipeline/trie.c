/* trie.c - edges in one table by (node, byte), so that a step is one look-up. */
#include "tokenizers/pipeline/trie.h"

#define NODE_LIMIT ((size_t)1 << 24) /* a node and a byte are a key of 32 bits */

hark_status hark_trie_open(hark_context *context, hark_trie *trie, size_t bytes) {
  if (bytes > NODE_LIMIT - 2) return hark_fail(context, HARK_TOO_LARGE, "a vocabulary of more than %zu bytes", NODE_LIMIT - 2);
  trie->edges = 256;
  while (trie->edges < 2 * (bytes + 1)) trie->edges *= 2;
  trie->node_capacity = bytes + 1;
  HARK_TRY(hark_allocate_zero(context, trie->edges * sizeof *trie->edge, (void **)&trie->edge));
  HARK_TRY(hark_allocate(context, trie->node_capacity * sizeof *trie->value, (void **)&trie->value));
  trie->value[0] = -1;
  trie->nodes = 1;
  return HARK_OK;
}

static uint32_t step_or_add(hark_trie *trie, uint32_t node, char byte) {
  const uint32_t next = hark_trie_step(trie, node, byte), from = (node << 8 | (unsigned char)byte) + 1;
  if (next != HARK_TRIE_NONE) return next;
  size_t i = from * 0x9E3779B1U >> 7 & (trie->edges - 1);
  while (trie->edge[i].from != 0) i = (i + 1) & (trie->edges - 1);
  trie->edge[i] = (hark_trie_edge){from, (uint32_t)trie->nodes};
  trie->value[trie->nodes] = -1;
  return (uint32_t)trie->nodes++;
}

void hark_trie_add(hark_trie *trie, const char *text, size_t bytes, int32_t value) {
  uint32_t node = HARK_TRIE_ROOT;
  for (size_t i = 0; i < bytes; i++) node = step_or_add(trie, node, text[i]);
  if (trie->value[node] < 0) trie->value[node] = value;
}

void hark_trie_close(hark_context *context, hark_trie *trie) {
  hark_release(context, trie->edge, trie->edges * sizeof *trie->edge);
  hark_release(context, trie->value, trie->node_capacity * sizeof *trie->value);
  *trie = (hark_trie){0};
}
