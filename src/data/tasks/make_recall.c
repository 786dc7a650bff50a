/* make_recall.c - associative recall with several queries: P pairs of a key and its value, then Q of the keys, at random places, each with
 * its value as target.
 *
 *     k3 v7 k0 v1 _ _ k0 _ k3 _         targets: 6:v1 8:v7          P = 2, Q = 2
 *
 * Keys of an example differ; values need not. With P queries every pair is queried once; with more queries, the counts of pairs differ by
 * at most one. All other places are filled with one word, or with random values. Based on Arora et al., "Zoology: measuring and improving
 * recall in efficient language models" (2023); there gaps follow a power law, here places are uniform.
 */
#include <stdio.h>

#include "data/permutation.h"
#include "data/tasks/make_sequences.h"

/* Words: keys, values, the filler. */
static int32_t word_count(const hark_sequence_values *v) { return (int32_t)(v->keys + v->values + 1); }

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  if (word == word_count(v) - 1) return "_";
  const bool is_key = word < v->keys;
  (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "%c%d", is_key ? 'k' : 'v', (int)(is_key ? word : word - v->keys));
  return text;
}

static const hark_sequence_words vocabulary = {word_count, word_name};

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  HARK_TRY(hark_sequence_settle_length(context, v, HARK_SEQUENCE_LENGTH, 1));
  if (v->queries == 0) v->queries = v->pairs;
  if (v->pairs > v->keys)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--pairs: %lld pairs take as many keys, --keys has %lld", (long long)v->pairs,
                     (long long)v->keys);
  if (2 * v->pairs + v->queries > v->length)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--length: %lld words, %lld pairs and %lld queries take %lld", (long long)v->length,
                     (long long)v->pairs, (long long)v->queries, 2 * (long long)v->pairs + v->queries);
  return HARK_OK;
}

static uint64_t random_seed(hark_task_random *random) {
  const uint64_t high = hark_task_random_word(random);
  return high << 32 | hark_task_random_word(random);
}

/* Permutations that choose keys, places and the order of the queries: one seed, three numbers. */
enum { CHOOSE_KEY, CHOOSE_PLACE, CHOOSE_PAIR };

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  hark_task_random *const random = &order->random;
  const hark_task_sequence s = hark_sequence_begin(order);
  const uint64_t seed = random_seed(random);
  const int64_t first = 2 * v->pairs; /* first place for queries */
  for (int64_t p = 0; p < v->pairs; p++) {
    s.words[2 * p] = (int32_t)hark_permute(seed, CHOOSE_KEY, v->keys, p);
    s.words[2 * p + 1] = (int32_t)v->keys + hark_task_random_below(random, (int32_t)v->values);
  }
  for (int64_t i = first; i < v->length; i++)
    s.words[i] = v->filler == HARK_FILLER_BLANK ? word_count(v) - 1 : (int32_t)v->keys + hark_task_random_below(random, (int32_t)v->values);
  for (int64_t q = 0; q < v->queries; q++) {
    const int64_t pair = hark_permute(seed, CHOOSE_PAIR, v->pairs, q % v->pairs);
    const int64_t place = first + hark_permute(seed, CHOOSE_PLACE, v->length - first, q);
    s.words[place] = s.words[2 * pair];
    s.targets[place] = s.words[2 * pair + 1];
  }
  return hark_sequence_write(&s, v, &vocabulary, out);
}

const hark_task_generator hark_task_recall = {
    .summary = "keys with values, then keys whose values are the targets",
    .format = "sequences",
    .parameters = "length pairs queries keys values filler",
    .examples = {20000, 1000, 1000},
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .words = &vocabulary,
    .header = hark_sequence_header,
    .make = make,
};
