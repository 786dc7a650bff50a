/* make_runs.c - runs of words of one kind; one word of a run, anywhere in it, tells its label, and every word of the run is asked for that.
 *
 *     k0w2 k0t5 k0w1 k3t1 k3w0         targets: 0:t5 1:t5 2:t5 3:t1 4:t1         runs of 3 and 2 words, labels 5 and 1
 *     the same, asked behind           targets: 1:t5 2:t5 3:t1 4:t1              for causal models: no word in front of the one that tells
 *
 * Lengths are uniform in [shortest, longest]; the last run ends where the example does. Neighbouring runs have different kinds and different labels, so
 * that kinds alone tell where a run begins, and no word but one of it what its label is.
 */
#include <stdio.h>

#include "data/make_sequences.h"

#define USUAL_LENGTH 128

/* Words: of each kind the plain ones and those that tell a label; then the labels, which are targets alone. */
static int32_t words_of_kind(const hark_sequence_values *v) { return (int32_t)(v->kind_words + v->labels); }
static int32_t first_label(const hark_sequence_values *v) { return (int32_t)v->kinds * words_of_kind(v); }
static int32_t word_count(const hark_sequence_values *v) { return first_label(v) + (int32_t)v->labels; }

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  const int kind = word / words_of_kind(v), of_kind = word % words_of_kind(v);
  if (word >= first_label(v))
    (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "t%d", (int)(word - first_label(v)));
  else if (of_kind < v->kind_words)
    (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "k%dw%d", kind, of_kind);
  else
    (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "k%dt%d", kind, (int)(of_kind - v->kind_words));
  return text;
}

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  if (v->shortest > v->longest)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--shortest: runs of at least %lld words, --longest is %lld", (long long)v->shortest,
                     (long long)v->longest);
  return hark_sequence_settle_length(context, v, USUAL_LENGTH, 1);
}

/* Uniform in [0, count), but not `last`. */
static int32_t another(hark_task_random *random, int32_t last, int64_t count) {
  return (int32_t)((last + 1 + hark_task_random_below(random, (int32_t)count - 1)) % count);
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  hark_task_random *const random = &order->random;
  const hark_sequence s = hark_sequence_begin(order);
  int32_t kind = hark_task_random_below(random, (int32_t)v->kinds), label = hark_task_random_below(random, (int32_t)v->labels);
  for (int64_t begin = 0, end; begin < v->length; begin = end) {
    end = hark_min(v->length, begin + v->shortest + hark_task_random_below(random, (int32_t)(v->longest - v->shortest + 1)));
    kind = another(random, kind, v->kinds);
    label = another(random, label, v->labels);
    const int64_t telling = begin + hark_task_random_below(random, (int32_t)(end - begin));
    for (int64_t i = begin; i < end; i++) {
      const int32_t of_kind = i == telling ? (int32_t)v->kind_words + label : hark_task_random_below(random, (int32_t)v->kind_words);
      s.words[i] = kind * words_of_kind(v) + of_kind;
      if (v->asked == HARK_ASKED_ALL || i >= telling) s.targets[i] = first_label(v) + label;
    }
  }
  return hark_sequence_write(&s, v, word_name, out);
}

static hark_status header(const void *values, int64_t count, hark_text *out) {
  (void)count;
  return hark_sequence_header(values, word_count(values), word_name, out);
}

const hark_task_generator hark_task_runs = {
    .summary = "runs of one kind of words, labelled by one word of each",
    .format = "sequences",
    .options = &hark_task_sequences_options,
    .parameters = "length labels kinds kind-words shortest longest asked",
    .examples = {20000, 1000, 1000},
    .distinct = true,
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .header = header,
    .make = make,
};
