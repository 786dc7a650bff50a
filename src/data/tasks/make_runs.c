/* make_runs.c - runs of words of one topic and blanks; the target of every word and every blank is the topic of its run.
 *
 *     t5w0 _ t5w3 t1w1 _ _ t1w1         targets: 0:t5 1:t5 2:t5 3:t1 4:t1 5:t1 6:t1         runs of 3 and 4 words, topics 5 and 1
 *
 * Lengths are uniform in [shortest, longest]; the last run ends with the example. A run begins and ends with a word of its topic, and each
 * word between them is a blank with a given probability. So a blank has the topic of the nearest words before and after it. Adjacent runs
 * have different topics.
 */
#include <stdio.h>

#include "data/tasks/make_sequences.h"

#define USUAL_LENGTH 128

/* Words: those of each topic, the blank, then the topics, which are only targets. */
static int32_t blank_of(const hark_sequence_values *v) { return (int32_t)(v->labels * v->topic_words); }
static int32_t label_of(const hark_sequence_values *v, int32_t topic) { return blank_of(v) + 1 + topic; }
static int32_t word_count(const hark_sequence_values *v) { return label_of(v, (int32_t)v->labels); }

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  const int of_topic = (int)v->topic_words;
  if (word == blank_of(v)) return "_";
  if (word > blank_of(v))
    (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "t%d", (int)(word - label_of(v, 0)));
  else
    (void)snprintf(text, HARK_SEQUENCE_WORD_BYTES, "t%dw%d", (int)word / of_topic, (int)word % of_topic);
  return text;
}

static const hark_sequence_words vocabulary = {word_count, word_name};

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  if (v->shortest > v->longest)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "--shortest: runs of at least %lld words, --longest is %lld", (long long)v->shortest,
                     (long long)v->longest);
  return hark_sequence_settle_length(context, v, USUAL_LENGTH, 1);
}

static void make_run(const hark_sequence_values *v, hark_task_random *random, const hark_task_sequence *s, int32_t topic, int64_t begin,
                     int64_t end) {
  for (int64_t i = begin; i < end; i++) {
    const bool within = i > begin && i + 1 < end;
    s->targets[i] = label_of(v, topic);
    s->words[i] = within && hark_task_random_uniform(random) < v->blanks
                      ? blank_of(v)
                      : topic * (int32_t)v->topic_words + hark_task_random_below(random, (int32_t)v->topic_words);
  }
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  hark_task_random *const random = &order->random;
  const hark_task_sequence s = hark_sequence_begin(order);
  const int32_t topics = (int32_t)v->labels;
  int32_t topic = hark_task_random_below(random, topics);
  for (int64_t begin = 0, end; begin < v->length; begin = end) {
    end = hark_min(v->length, begin + v->shortest + hark_task_random_below(random, (int32_t)(v->longest - v->shortest + 1)));
    topic = (topic + 1 + hark_task_random_below(random, topics - 1)) % topics;
    make_run(v, random, &s, topic, begin, end);
  }
  return hark_sequence_write(&s, v, &vocabulary, out);
}

const hark_task_generator hark_task_runs = {
    .summary = "runs of words of one topic among blanks; the topic is the target of every word",
    .format = "sequences",
    .parameters = "length labels topic-words blanks shortest longest",
    .examples = {20000, 1000, 1000},
    .distinct = true,
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .words = &vocabulary,
    .header = hark_sequence_header,
    .make = make,
};
