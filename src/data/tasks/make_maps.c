/* make_maps.c - a chunk is a flag and a random map f of n symbols: f(0) f(1) .. f(n - 1). The target of its last word is the image of 0.
 *
 *     once s2 s1 s0 | often s1 s2 s2         targets: 3:s2 7:s2         n = 3, hops = 3: f(0) = s2; f(f(f(0))) = f(f(1)) = f(2) = s2
 *
 * Hard chunks have the flag `often` and apply their map `hops` times. They are the same fraction of every example, at random places. Other
 * chunks contain no information about a chunk's target.
 */
#include <math.h>
#include <stdio.h>

#include "data/tasks/make_sequences.h"

/* Words: symbols, then the flags. */
static int32_t once_of(const hark_sequence_values *v) { return (int32_t)v->map; }
static int32_t often_of(const hark_sequence_values *v) { return (int32_t)v->map + 1; }
static int32_t word_count(const hark_sequence_values *v) { return (int32_t)v->map + 2; }
static int64_t chunk_of(const hark_sequence_values *v) { return v->map + 1; }

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  if (word == once_of(v)) return "once";
  if (word == often_of(v)) return "often";
  (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "s%d", (int)word);
  return text;
}

static const hark_sequence_words vocabulary = {word_count, word_name};

#define USUAL_CHUNKS 32

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  return hark_sequence_settle_length(context, v, USUAL_CHUNKS * chunk_of(v), chunk_of(v));
}

static void make_chunk(const hark_sequence_values *v, hark_task_random *random, bool hard, int32_t *words, int32_t *targets) {
  int32_t answer = 0;
  words[0] = hard ? often_of(v) : once_of(v);
  for (int64_t i = 1; i <= v->map; i++) words[i] = hark_task_random_below(random, (int32_t)v->map);
  for (int64_t hop = 0; hop < (hard ? v->hops : 1); hop++) answer = words[1 + answer];
  targets[v->map] = answer;
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  const hark_task_sequence s = hark_sequence_begin(order);
  const int64_t chunks = v->length / chunk_of(v);
  int64_t hard = llround(v->hard * (double)chunks); /* number of hard chunks among the remaining ones */
  for (int64_t k = 0; k < chunks; k++) {
    const int64_t at = k * chunk_of(v);
    const bool is_hard = hark_task_random_below(&order->random, (int32_t)(chunks - k)) < hard;
    make_chunk(v, &order->random, is_hard, s.words + at, s.targets + at);
    hard -= is_hard;
  }
  return hark_sequence_write(&s, v, &vocabulary, out);
}

const hark_task_generator hark_task_maps = {
    .summary = "maps of symbols; most are applied once, some several times",
    .format = "sequences",
    .parameters = "length map hops hard",
    .examples = {20000, 1000, 1000},
    .distinct = true,
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .words = &vocabulary,
    .header = hark_sequence_header,
    .make = make,
};
