/* make_copy.c - random symbols, a gap of blanks, a mark, and the symbols again:
 *
 *     answer shown     s3 s0 s5 _ > s3 s0     targets: 4:s3 5:s0 6:s5    for causal models: the target of a word is the next one
 *     answer blank     s3 s0 s5 _ > _ _       the same targets            for any model: the answer is not in the inputs after the mark
 *
 * n = floor((L - gap) / 2) symbols for L words; a remaining word makes the gap longer.
 */
#include <stdio.h>

#include "data/tasks/make_sequences.h"

/* Words: symbols, the blank, the mark. */
static int32_t blank_of(const hark_sequence_values *v) { return (int32_t)v->symbols; }
static int32_t mark_of(const hark_sequence_values *v) { return (int32_t)v->symbols + 1; }
static int32_t word_count(const hark_sequence_values *v) { return (int32_t)v->symbols + 2; }

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  if (word == blank_of(v)) return "_";
  if (word == mark_of(v)) return ">";
  (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "s%d", (int)word);
  return text;
}

static const hark_sequence_words vocabulary = {word_count, word_name};

static int64_t copied(const hark_sequence_values *v) { return (v->length - v->gap) / 2; }

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  HARK_TRY(hark_sequence_settle_length(context, v, HARK_SEQUENCE_LENGTH, 1));
  if (v->gap < v->length && copied(v) >= 1) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "--gap: %lld blanks leave no symbol of %lld words", (long long)v->gap,
                   (long long)v->length);
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  const hark_task_sequence s = hark_sequence_begin(order);
  const int64_t count = copied(v), mark = v->length - count;
  for (int64_t i = 0; i < v->length; i++) s.words[i] = blank_of(v);
  for (int64_t i = 0; i < count; i++) s.words[i] = hark_task_random_below(&order->random, (int32_t)v->symbols);
  s.words[mark] = mark_of(v);
  for (int64_t i = 0; i < count; i++) {
    s.targets[mark + i] = s.words[i];
    if (i > 0 && v->answer == HARK_ANSWER_SHOWN) s.words[mark + i] = s.words[i - 1];
  }
  return hark_sequence_write(&s, v, &vocabulary, out);
}

const hark_task_generator hark_task_copy = {
    .summary = "symbols, and after a gap their copy",
    .format = "sequences",
    .parameters = "length symbols gap answer",
    .examples = {20000, 1000, 1000},
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .words = &vocabulary,
    .header = hark_sequence_header,
    .make = make,
};
