/* make_needle.c - one label among words without information; the label is the target of the last word of every chunk.
 *
 *     n3 n7 n7 n0 | n1 v2 n5 n5 | n0 n4 n2 n2         targets: 3:v2 7:v2 11:v2         C = 4 words per chunk, 3 chunks
 *     the same, --asked after                         targets: 7:v2 11:v2              for causal models: no targets before the needle
 *
 * The needle's place is uniform over all words. A correct prediction in a chunk without the needle needs information from another chunk.
 */
#include <stdio.h>

#include "data/tasks/make_sequences.h"

/* Words: plain ones, labels. */
static int32_t word_count(const hark_sequence_values *v) { return (int32_t)(v->plain + v->labels); }

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  const bool is_plain = word < v->plain;
  (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "%c%d", is_plain ? 'n' : 'v', (int)(is_plain ? word : word - v->plain));
  return text;
}

static const hark_sequence_words vocabulary = {word_count, word_name};

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  return hark_sequence_settle_length(context, v, HARK_SEQUENCE_LENGTH, v->chunk);
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  hark_task_random *const random = &order->random;
  const hark_task_sequence s = hark_sequence_begin(order);
  for (int64_t i = 0; i < v->length; i++) s.words[i] = hark_task_random_below(random, (int32_t)v->plain);
  const int32_t label = (int32_t)v->plain + hark_task_random_below(random, (int32_t)v->labels);
  const int64_t needle = hark_task_random_below(random, (int32_t)v->length);
  s.words[needle] = label;
  for (int64_t last = v->chunk - 1; last < v->length; last += v->chunk)
    if (v->asked == HARK_ASKED_ALL || last >= needle) s.targets[last] = label;
  return hark_sequence_write(&s, v, &vocabulary, out);
}

const hark_task_generator hark_task_needle = {
    .summary = "one label among many words; it is the target of every chunk",
    .format = "sequences",
    .parameters = "length chunk plain labels asked",
    .examples = {20000, 1000, 1000},
    .distinct = true,
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .words = &vocabulary,
    .header = hark_sequence_header,
    .make = make,
};
