/* make_sequences.c - see make_sequences.h; the format is that of data/format_sequences.c. */
#include "data/make_sequences.h"

#include <stdio.h>
#include <string.h>

#define TARGET_BYTES 12 /* " POSITION:" in front of a target's word: positions have at most seven digits */

#define AT(field) offsetof(hark_sequence_values, field)
static const hark_option options[] = {
    {"length", "length", HARK_OPTION_INT, AT(length), "512", "[4, 1048576]", NULL, NULL, "recall, copy, passkey: words of an example"},
    {"pairs", "pairs", HARK_OPTION_INT, AT(pairs), "16", "[1, 100000]", NULL, NULL, "recall: pairs of a key and its value"},
    {"queries", "queries", HARK_OPTION_INT, AT(queries), "0", "[0, 1000000]", NULL, NULL,
     "recall: keys that are asked for; 0: each pair's once"},
    {"keys", "keys", HARK_OPTION_INT, AT(keys), "64", "[1, 100000]", NULL, NULL, "recall: different keys"},
    {"values", "values", HARK_OPTION_INT, AT(values), "64", "[2, 100000]", NULL, NULL, "recall: different values"},
    {"filler", "filler", HARK_OPTION_ENUM, AT(filler), "blank", "blank|random", NULL, NULL,
     "recall: what stands between the queries: one word, or values at random"},
    {"symbols", "symbols", HARK_OPTION_INT, AT(symbols), "64", "[2, 100000]", NULL, NULL, "copy: different symbols"},
    {"gap", "gap", HARK_OPTION_INT, AT(gap), "0", "[0, 1000000]", NULL, NULL, "copy: blanks between the symbols and their copy"},
    {"digits", "digits", HARK_OPTION_INT, AT(digits), "5", "[1, 100]", NULL, NULL, "passkey: digits of the number"},
    {"answer", "answer", HARK_OPTION_ENUM, AT(answer), "shown", "shown|blank", NULL, NULL,
     "copy, passkey: the inputs of the answer: the answer itself, one later, or blanks"},
};
#undef AT
const hark_option_table hark_task_sequences_options = {options, (int)(sizeof options / sizeof *options), NULL, sizeof(hark_sequence_values),
                                                       false};

hark_task_sizes hark_sequence_sizes(const void *values) {
  const size_t length = (size_t)((const hark_sequence_values *)values)->length;
  return (hark_task_sizes){.example_bytes = length * (2 * HARK_SEQUENCE_WORD_BYTES + TARGET_BYTES) + 2,
                           .scratch_bytes = 2 * length * sizeof(int32_t)};
}

hark_sequence hark_sequence_begin(hark_task_order *order) {
  const int64_t length = ((const hark_sequence_values *)order->values)->length;
  int32_t *const words = order->scratch;
  const hark_sequence sequence = {words, words + length};
  for (int64_t i = 0; i < length; i++) sequence.targets[i] = -1;
  return sequence;
}

static size_t write_word(hark_sequence_namer *name, const hark_sequence_values *values, int32_t word, unsigned char *out) {
  char text[HARK_SEQUENCE_WORD_BYTES];
  const char *const chosen = name(values, word, text);
  const size_t length = strlen(chosen);
  memcpy(out, chosen, length);
  return length;
}

size_t hark_sequence_write(const hark_sequence *sequence, const hark_sequence_values *values, hark_sequence_namer *name,
                           unsigned char *out) {
  size_t at = 0;
  for (int64_t i = 0; i < values->length; i++) {
    if (i > 0) out[at++] = ' ';
    at += write_word(name, values, sequence->words[i], out + at);
  }
  char separator = '\t';
  for (int64_t i = 0; i < values->length; i++) {
    if (sequence->targets[i] < 0) continue;
    char position[TARGET_BYTES];
    const int length = snprintf(position, sizeof position, "%c%d:", separator, (int)i);
    memcpy(out + at, position, (size_t)length);
    at += (size_t)length;
    at += write_word(name, values, sequence->targets[i], out + at);
    separator = ' ';
  }
  out[at++] = '\n';
  return at;
}

hark_status hark_sequence_header(const hark_sequence_values *values, int32_t count, hark_sequence_namer *name, hark_text *out) {
  char text[HARK_SEQUENCE_WORD_BYTES];
  for (int32_t i = 0; i < count; i++) hark_text_append(out, "%s%s", i > 0 ? " " : "Words\t", name(values, i, text));
  hark_text_append(out, "\n");
  return out->status;
}
