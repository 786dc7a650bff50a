/* make_passkey.c - a number within a text of a given length, to be predicted at its end:
 *
 *     SENTENCES the pass key is 3 1 4 . keep it . SENTENCES what is the pass key ? it is 3 1         targets at the last "is", "3" and "1"
 *
 * Sentences are drawn from the list below, one after the other; the last one before the number, and before the question, is cut to fit the
 * length. The place of the number is uniform over all possible places. With --answer blank the shown digits are "_". Based on Mohtashami
 * and Jaggi, "Landmark attention" (2023).
 */
#include <stdio.h>
#include <string.h>

#include "data/tasks/make_sequences.h"

/* Ten digits, the blank, then words; sentences are lists of their numbers. */
#define WORDS(X)                                                                                                                           \
  X(THE, "the")                                                                                                                            \
  X(IS, "is")                                                                                                                              \
  X(IT, "it")                                                                                                                              \
  X(PASS, "pass")                                                                                                                          \
  X(KEY, "key")                                                                                                                            \
  X(KEEP, "keep")                                                                                                                          \
  X(WHAT, "what")                                                                                                                          \
  X(STOP, ".")                                                                                                                             \
  X(ASK, "?")                                                                                                                              \
  X(RIVER, "river")                                                                                                                        \
  X(BENDS, "bends")                                                                                                                        \
  X(SOUTH, "south")                                                                                                                        \
  X(WIND, "wind")                                                                                                                          \
  X(TURNS, "turns")                                                                                                                        \
  X(BOATS, "boats")                                                                                                                        \
  X(WAIT, "wait")                                                                                                                          \
  X(RAIN, "rain")                                                                                                                          \
  X(FALLS, "falls")                                                                                                                        \
  X(ON, "on")                                                                                                                              \
  X(ROOFS, "roofs")                                                                                                                        \
  X(A, "a")                                                                                                                                \
  X(BELL, "bell")                                                                                                                          \
  X(RINGS, "rings")                                                                                                                        \
  X(TWICE, "twice")                                                                                                                        \
  X(SNOW, "snow")                                                                                                                          \
  X(HIDES, "hides")                                                                                                                        \
  X(ROAD, "road")                                                                                                                          \
  X(BREAD, "bread")                                                                                                                        \
  X(WARM, "warm")                                                                                                                          \
  X(AND, "and")                                                                                                                            \
  X(LIGHT, "light")
#define WORD_NUMBER(id, text) WORD_##id,
#define WORD_TEXT(id, text) text,
enum { WORD_BLANK = 10, WORDS(WORD_NUMBER) WORD_COUNT };
static const char *const texts[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "_", WORDS(WORD_TEXT)};

enum { SENTENCE_WORDS = 7, SENTENCES = 8 };
#define W(id) WORD_##id
static const unsigned char sentences[SENTENCES][SENTENCE_WORDS] = {
    /* the words of each, ended by the first 0 */
    {W(THE), W(RIVER), W(BENDS), W(SOUTH), W(STOP)},       {W(THE), W(WIND), W(TURNS), W(STOP)},
    {W(BOATS), W(WAIT), W(ON), W(THE), W(RIVER), W(STOP)}, {W(RAIN), W(FALLS), W(ON), W(THE), W(ROOFS), W(STOP)},
    {W(A), W(BELL), W(RINGS), W(TWICE), W(STOP)},          {W(SNOW), W(HIDES), W(THE), W(ROAD), W(STOP)},
    {W(THE), W(BREAD), W(IS), W(WARM), W(STOP)},           {W(WIND), W(AND), W(LIGHT), W(WAIT), W(STOP)},
};
static const unsigned char before[] = {W(THE), W(PASS), W(KEY), W(IS)}, after[] = {W(STOP), W(KEEP), W(IT), W(STOP)};
static const unsigned char question[] = {W(WHAT), W(IS), W(THE), W(PASS), W(KEY), W(ASK), W(IT), W(IS)};

static int32_t word_count(const hark_sequence_values *v) {
  (void)v;
  return WORD_COUNT;
}

static const char *word_name(const hark_sequence_values *v, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]) {
  (void)v;
  (void)text;
  return texts[word];
}

static const hark_sequence_words vocabulary = {word_count, word_name};

/* Number of words that are not filler: the statement with its digits, the question, all shown digits but the last. */
static int64_t fixed_words(const hark_sequence_values *v) {
  return (int64_t)(sizeof before + sizeof after + sizeof question) + 2 * v->digits - 1;
}

static hark_status settle(hark_context *context, void *values) {
  hark_sequence_values *const v = values;
  HARK_TRY(hark_sequence_settle_length(context, v, HARK_SEQUENCE_LENGTH, 1));
  if (v->length >= fixed_words(v)) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "--length: %lld words, the number and the question alone take %lld",
                   (long long)v->length, (long long)fixed_words(v));
}

static int64_t put(int32_t *words, int64_t at, const unsigned char *from, size_t count) {
  for (size_t i = 0; i < count; i++) words[at++] = from[i];
  return at;
}

/* Writes sentences up to word `end`. */
static int64_t put_sentences(hark_task_random *random, int32_t *words, int64_t at, int64_t end) {
  while (at < end) {
    const unsigned char *const sentence = sentences[hark_task_random_below(random, SENTENCES)];
    for (int i = 0; i < SENTENCE_WORDS && sentence[i] != 0 && at < end; i++) words[at++] = sentence[i];
  }
  return at;
}

static size_t make(hark_task_order *order, unsigned char *out) {
  const hark_sequence_values *const v = order->values;
  hark_task_random *const random = &order->random;
  const hark_task_sequence s = hark_sequence_begin(order);
  const int64_t filler = v->length - fixed_words(v), place = hark_task_random_below(random, (int32_t)filler + 1);
  int64_t at = put(s.words, put_sentences(random, s.words, 0, place), before, sizeof before);
  const int64_t digits = at;
  for (int64_t i = 0; i < v->digits; i++) s.words[at++] = hark_task_random_below(random, 10);
  at = put(s.words, at, after, sizeof after);
  at = put(s.words, put_sentences(random, s.words, at, at + filler - place), question, sizeof question);
  for (int64_t i = 0; i < v->digits; i++) {
    s.targets[at - 1 + i] = s.words[digits + i];
    if (i > 0) s.words[at - 1 + i] = v->answer == HARK_ANSWER_SHOWN ? s.words[digits + i - 1] : WORD_BLANK;
  }
  return hark_sequence_write(&s, v, &vocabulary, out);
}

const hark_task_generator hark_task_passkey = {
    .summary = "a number hidden in text, and its digits as the targets at the end",
    .format = "sequences",
    .parameters = "length digits answer",
    .examples = {20000, 1000, 1000},
    .settle = settle,
    .sizes = hark_sequence_sizes,
    .words = &vocabulary,
    .header = hark_sequence_header,
    .make = make,
};
