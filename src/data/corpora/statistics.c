/* statistics.c - entropies of tokens and of adjacent pairs in a text.
 *
 *     H1 = -sum_a p(a) log p(a)                     p(a) = n(a) / T
 *     H2 = -sum_ab p(a, b) log ( p(a, b) / p(a) )   p(a, b) = n(a, b) / (T - 1),  p(a) = n(a as the first of a pair) / (T - 1)
 *
 * Cost: one pass over the tokens; a hash table of the pairs that occur, at most half full, with open addressing and linear steps.
 */
#include "data/corpora/statistics.h"

#include <math.h>

#include "core/core.h"

#define PART_TOKENS 65536
#define FIRST_SLOTS 4096 /* a power of two */

typedef struct pair_slot {
  uint64_t pair; /* first << 32 | second */
  int64_t count; /* 0: free */
} pair_slot;

typedef struct counter {
  hark_context *context;
  int64_t vocabulary_size;
  int64_t *single; /* [vocabulary_size] */
  int32_t *tokens; /* [PART_TOKENS] */
  pair_slot *slot; /* [slots] */
  size_t slots;
  int64_t pairs;    /* distinct */
  int64_t outcomes; /* tokens that are predicted: not those at the beginnings of sentences */
} counter;

static pair_slot *find_slot(pair_slot *slot, size_t slots, uint64_t pair) {
  /* The golden ratio's bits spread consecutive numbers (Knuth, TAOCP 3, 6.4); the high bits of the product are the best. */
  size_t at = (size_t)((pair * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (slots - 1);
  while (slot[at].count != 0 && slot[at].pair != pair) at = (at + 1) & (slots - 1);
  return &slot[at];
}

static hark_status double_slots(counter *c) {
  const size_t larger = c->slots * 2;
  size_t bytes;
  pair_slot *moved;
  HARK_TRY(hark_size_multiply(c->context, larger, sizeof *moved, &bytes));
  HARK_TRY(hark_allocate_zero(c->context, bytes, (void **)&moved));
  for (size_t i = 0; i < c->slots; i++)
    if (c->slot[i].count != 0) *find_slot(moved, larger, c->slot[i].pair) = c->slot[i];
  hark_release(c->context, c->slot, c->slots * sizeof *c->slot);
  c->slot = moved;
  c->slots = larger;
  return HARK_OK;
}

static hark_status count_pair(counter *c, int32_t first, int32_t second) {
  const uint64_t pair = (uint64_t)(uint32_t)first << 32 | (uint32_t)second;
  pair_slot *slot = find_slot(c->slot, c->slots, pair);
  if (slot->count++ > 0) return HARK_OK;
  slot->pair = pair;
  c->pairs++;
  return (size_t)c->pairs * 2 > c->slots ? double_slots(c) : HARK_OK;
}

static hark_status count_tokens(counter *c, const hark_corpus *corpus, hark_split split, int64_t tokens, int32_t *last) {
  for (int64_t first = 0; first < tokens; first += PART_TOKENS) {
    const int64_t count = hark_min(PART_TOKENS, tokens - first);
    HARK_TRY(hark_corpus_read(c->context, corpus, split, first, count, c->tokens));
    for (int64_t i = 0; i < count; i++) {
      if (c->tokens[i] != HARK_TOKEN_BEGIN) { /* which is never predicted */
        c->single[c->tokens[i]]++;
        c->outcomes++;
        if (first + i > 0) HARK_TRY(count_pair(c, *last, c->tokens[i]));
      }
      *last = c->tokens[i];
    }
  }
  return HARK_OK;
}

/* -n log(n / of): the contribution of an outcome that occurs n times in `of` draws to the entropy times `of`. */
static double surprise(int64_t n, int64_t of) { return n > 0 ? (double)n * log((double)of / (double)n) : 0.0; }

static void measure(counter *c, hark_text_statistics *out) {
  double single = 0, pair = 0;
  int64_t pairs = 0;
  for (int64_t t = 0; t < c->vocabulary_size; t++) {
    out->distinct_tokens += c->single[t] > 0;
    single += surprise(c->single[t], c->outcomes);
    c->single[t] = 0; /* from here on: how often the token is the first of a pair */
  }
  out->entropy = c->outcomes > 0 ? single / (double)c->outcomes : 0.0;
  for (size_t i = 0; i < c->slots; i++) {
    c->single[c->slot[i].pair >> 32] += c->slot[i].count;
    pairs += c->slot[i].count;
  }
  if (pairs == 0) return;
  for (size_t i = 0; i < c->slots; i++) pair += surprise(c->slot[i].count, c->single[c->slot[i].pair >> 32]);
  out->distinct_pairs = c->pairs;
  out->pair_entropy = pair / (double)pairs;
}

static hark_status allocate_counter(counter *c) {
  HARK_TRY(hark_allocate_zero(c->context, (size_t)c->vocabulary_size * sizeof *c->single, (void **)&c->single));
  HARK_TRY(hark_allocate(c->context, PART_TOKENS * sizeof *c->tokens, (void **)&c->tokens));
  HARK_TRY(hark_allocate_zero(c->context, FIRST_SLOTS * sizeof *c->slot, (void **)&c->slot));
  c->slots = FIRST_SLOTS;
  return HARK_OK;
}

hark_status hark_statistics_measure(hark_context *context, const hark_corpus *corpus, hark_split split, hark_text_statistics *out) {
  const int64_t tokens = hark_corpus_counts(corpus, split).tokens;
  counter c = {.context = context, .vocabulary_size = hark_tokenizer_size(hark_corpus_tokenizer(corpus))};
  int32_t last = 0;
  *out = (hark_text_statistics){.tokens = tokens};
  hark_status status = allocate_counter(&c);
  if (status == HARK_OK) status = count_tokens(&c, corpus, split, tokens, &last);
  if (status == HARK_OK) measure(&c, out);
  hark_release(context, c.slot, c.slots * sizeof *c.slot);
  hark_release(context, c.tokens, PART_TOKENS * sizeof *c.tokens);
  hark_release(context, c.single, (size_t)c.vocabulary_size * sizeof *c.single);
  return status;
}
