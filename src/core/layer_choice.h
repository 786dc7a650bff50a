/* layer_choice.h - one of several words for every layer of a model: the same for all, or a pattern that is repeated from the first layer
 * on. */
#ifndef HARK_CORE_LAYER_CHOICE_H
#define HARK_CORE_LAYER_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#define HARK_LAYER_CHOICE_WORDS 64 /* of one pattern */

/* The indices of the words; layer l has word l % count of the pattern. No words: word 0 for every layer. */
typedef struct hark_layer_choice {
  int32_t count;
  int32_t words[HARK_LAYER_CHOICE_WORDS];
} hark_layer_choice;

/* An initialiser. */
#define HARK_EVERY_LAYER(word)                                                                                                             \
  {                                                                                                                                        \
    1, { word }                                                                                                                            \
  }

static inline int hark_layer_choice_of(const hark_layer_choice *choice, int64_t layer) {
  return choice->count > 0 ? choice->words[layer % choice->count] : 0;
}

/* True if a layer has this word, if there are at least as many layers as words. */
static inline bool hark_layer_choice_has(const hark_layer_choice *choice, int word) {
  for (int32_t i = 0; i < choice->count; i++)
    if (choice->words[i] == word) return true;
  return choice->count == 0 && word == 0;
}

/* True if every layer has it. */
static inline bool hark_layer_choice_is(const hark_layer_choice *choice, int word) {
  for (int32_t i = 0; i < choice->count; i++)
    if (choice->words[i] != word) return false;
  return choice->count > 0 || word == 0;
}

/* The first of `layers` layers that has word `first` of one choice without word `second` of the other, or -1. */
static inline int64_t hark_layer_choice_without(const hark_layer_choice *one, int first, const hark_layer_choice *other, int second,
                                                int64_t layers) {
  for (int64_t layer = 0; layer < layers; layer++)
    if (hark_layer_choice_of(one, layer) == first && hark_layer_choice_of(other, layer) != second) return layer;
  return -1;
}

static inline bool hark_layer_choice_same(const hark_layer_choice *a, const hark_layer_choice *b) {
  for (int32_t i = 0; i < a->count || i < b->count; i++)
    if (i >= a->count || i >= b->count || a->words[i] != b->words[i]) return false;
  return true;
}

#endif
