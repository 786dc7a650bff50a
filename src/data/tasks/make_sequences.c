/* make_sequences.c - see make_sequences.h; the format is that of data/formats/format_sequences.c. */
#include "data/tasks/make_sequences.h"

#include <stdio.h>
#include <string.h>

#define TARGET_BYTES 12 /* " POSITION:" before a target's word: positions have at most seven digits */

#define AT(field) offsetof(hark_sequence_values, field)
static const hark_option options[] = {
    {"length", "length", HARK_OPTION_INT, AT(length), "0", "[0, 1048576]", NULL, NULL,
     "recall, copy, passkey, needle, maps, runs: number of words in an example; 0: for maps the words of 32 chunks, "
     "for runs 128 words, otherwise 512 words",
     "$1 make, $2 recall|copy|passkey|needle|maps|runs"},
    {"pairs", "pairs", HARK_OPTION_INT, AT(pairs), "16", "[1, 100000]", NULL, NULL, "recall: number of pairs of a key and its value",
     "$1 make, $2 recall"},
    {"queries", "queries", HARK_OPTION_INT, AT(queries), "0", "[0, 1000000]", NULL, NULL, "recall: number of queries; 0: one for each pair",
     "$1 make, $2 recall"},
    {"keys", "keys", HARK_OPTION_INT, AT(keys), "64", "[1, 100000]", NULL, NULL, "recall: number of different keys", "$1 make, $2 recall"},
    {"values", "values", HARK_OPTION_INT, AT(values), "64", "[2, 100000]", NULL, NULL, "recall: number of different values",
     "$1 make, $2 recall"},
    {"filler", "filler", HARK_OPTION_ENUM, AT(filler), "blank", "blank|random", NULL, NULL,
     "recall: words between the queries; blank: always the same blank word; random: random values", "$1 make, $2 recall"},
    {"symbols", "symbols", HARK_OPTION_INT, AT(symbols), "64", "[2, 100000]", NULL, NULL, "copy: number of different symbols",
     "$1 make, $2 copy"},
    {"gap", "gap", HARK_OPTION_INT, AT(gap), "0", "[0, 1000000]", NULL, NULL, "copy: number of blanks between the symbols and their copy",
     "$1 make, $2 copy"},
    {"digits", "digits", HARK_OPTION_INT, AT(digits), "5", "[1, 100]", NULL, NULL, "passkey: number of digits", "$1 make, $2 passkey"},
    {"answer", "answer", HARK_OPTION_ENUM, AT(answer), "shown", "shown|blank", NULL, NULL,
     "copy, passkey: what the input has at the positions where the answer is predicted; shown: the words of the answer, each of them "
     "directly after the position where it is predicted; blank: blanks",
     "$1 make, $2 copy|passkey"},
    {"chunk", "chunk", HARK_OPTION_INT, AT(chunk), "16", "[1, 1048576]", NULL, NULL,
     "needle: number of words in a chunk, whose last word has the target", "$1 make, $2 needle"},
    {"plain", "plain", HARK_OPTION_INT, AT(plain), "32", "[1, 100000]", NULL, NULL, "needle: number of different words without meaning",
     "$1 make, $2 needle"},
    {"labels", "labels", HARK_OPTION_INT, AT(labels), "16", "[2, 1000]", NULL, NULL,
     "needle: number of different labels; runs: number of topics", "$1 make, $2 needle|runs"},
    {"asked", "asked", HARK_OPTION_ENUM, AT(asked), "all", "all|after", NULL, NULL,
     "needle: which chunks have a target; all: all chunks; after: the chunk that contains the label and the chunks after it",
     "$1 make, $2 needle"},
    {"map", "map", HARK_OPTION_INT, AT(map), "8", "[2, 1000]", NULL, NULL, "maps: number of symbols", "$1 make, $2 maps"},
    {"hops", "hops", HARK_OPTION_INT, AT(hops), "3", "[1, 1000]", NULL, NULL, "maps: how often the map is applied in a hard chunk",
     "$1 make, $2 maps"},
    {"hard", "hard", HARK_OPTION_FLOAT, AT(hard), "0.25", "[0, 1]", NULL, NULL, "maps: fraction of the chunks that are hard",
     "$1 make, $2 maps"},
    {"topic-words", "topic-words", HARK_OPTION_INT, AT(topic_words), "4", "[1, 1000]", NULL, NULL,
     "runs: number of different words of a topic", "$1 make, $2 runs"},
    {"blanks", "blanks", HARK_OPTION_FLOAT, AT(blanks), "0.75", "[0, 1]", NULL, NULL,
     "runs: probability that a word between the first and the last of a run is a blank", "$1 make, $2 runs"},
    {"shortest", "shortest", HARK_OPTION_INT, AT(shortest), "3", "[1, 1048576]", NULL, NULL, "runs: smallest number of words in a run",
     "$1 make, $2 runs"},
    {"longest", "longest", HARK_OPTION_INT, AT(longest), "13", "[1, 1048576]", NULL, NULL, "runs: largest number of words in a run",
     "$1 make, $2 runs"},
};
#undef AT
const hark_option_table hark_task_sequences_options = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(hark_sequence_values),
                                                       false};

hark_status hark_sequence_settle_length(hark_context *context, hark_sequence_values *values, int64_t usual, int64_t chunk) {
  if (values->length == 0) values->length = usual;
  if (values->length % chunk == 0) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "--length: %lld words, expected a whole number of chunks of %lld",
                   (long long)values->length, (long long)chunk);
}

hark_task_sizes hark_sequence_sizes(const void *values) {
  const size_t length = (size_t)((const hark_sequence_values *)values)->length;
  return (hark_task_sizes){.example_bytes = length * (2 * HARK_SEQUENCE_WORD_BYTES + TARGET_BYTES) + 2,
                           .scratch_bytes = 2 * length * sizeof(int32_t)};
}

hark_task_sequence hark_sequence_begin(hark_task_order *order) {
  const int64_t length = ((const hark_sequence_values *)order->values)->length;
  int32_t *const words = order->scratch;
  const hark_task_sequence sequence = {words, words + length};
  for (int64_t i = 0; i < length; i++) sequence.targets[i] = -1;
  return sequence;
}

static size_t write_word(const hark_sequence_words *words, const hark_sequence_values *values, int32_t word, unsigned char *out) {
  char text[HARK_SEQUENCE_WORD_BYTES];
  const char *const name = words->name(values, word, text);
  const size_t length = strlen(name);
  memcpy(out, name, length);
  return length;
}

size_t hark_sequence_write(const hark_task_sequence *sequence, const hark_sequence_values *values, const hark_sequence_words *words,
                           unsigned char *out) {
  size_t at = 0;
  for (int64_t i = 0; i < values->length; i++) {
    if (i > 0) out[at++] = ' ';
    at += write_word(words, values, sequence->words[i], out + at);
  }
  char separator = '\t';
  for (int64_t i = 0; i < values->length; i++) {
    if (sequence->targets[i] < 0) continue;
    char position[TARGET_BYTES];
    const int length = snprintf(position, sizeof position, "%c%d:", separator, (int)i);
    memcpy(out + at, position, (size_t)length);
    at += (size_t)length;
    at += write_word(words, values, sequence->targets[i], out + at);
    separator = ' ';
  }
  out[at++] = '\n';
  return at;
}

hark_status hark_sequence_header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out) {
  const hark_sequence_words *const words = generator->words;
  const int32_t word_count = words->count(values);
  char text[HARK_SEQUENCE_WORD_BYTES];
  (void)count; /* number of examples: not in the header */
  for (int32_t i = 0; i < word_count; i++) hark_text_append(out, "%s%s", i > 0 ? " " : "Words\t", words->name(values, i, text));
  hark_text_append(out, "\n");
  return out->status;
}
