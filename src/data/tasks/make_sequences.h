/* make_sequences.h - common parts of the generators of recall, copy, passkey, needle, maps and runs: their options, and writing sequences
 * of words with targets. */
#ifndef HARK_DATA_TASKS_MAKE_SEQUENCES_H
#define HARK_DATA_TASKS_MAKE_SEQUENCES_H

#include "data/tasks/make.h"

#define HARK_SEQUENCE_LENGTH 512 /* the default */
#define HARK_SEQUENCE_LENGTH_MAX 1048576
#define HARK_SEQUENCE_WORDS_MAX 100000 /* of one kind */

typedef struct hark_sequence_values {
  int64_t length, pairs, queries, keys, values, symbols, gap, digits;
  int64_t chunk, plain, labels;           /* needle; `labels` also for runs */
  int64_t map, hops;                      /* maps */
  double hard;                            /* fraction */
  int64_t topic_words, shortest, longest; /* runs */
  double blanks;                          /* probability */
  int filler;                             /* blank|random */
  int answer;                             /* shown|blank */
  int asked;                              /* all|after */
} hark_sequence_values;
enum { HARK_FILLER_BLANK, HARK_FILLER_RANDOM };
enum { HARK_ANSWER_SHOWN, HARK_ANSWER_BLANK };
enum { HARK_ASKED_ALL, HARK_ASKED_AFTER };

/* A sequence that is being made: words by their numbers in the generator's list, and a target or -1 for each. */
typedef struct hark_task_sequence {
  int32_t *words, *targets; /* [length] */
} hark_task_sequence;

#define HARK_SEQUENCE_WORD_BYTES 16 /* of a name, with its zero byte */

/* The words of a generator, numbered from 0: how many there are, and the name of one, which may be written to text. */
typedef struct hark_sequence_words {
  int32_t (*count)(const hark_sequence_values *values);
  const char *(*name)(const hark_sequence_values *values, int32_t word, char text[HARK_SEQUENCE_WORD_BYTES]);
} hark_sequence_words;

/* Sets values->length to `usual` if it is 0. Errors: HARK_BAD_CONFIGURATION unless the length is a multiple of `chunk` words. */
HARK_MUST_CHECK hark_status hark_sequence_settle_length(hark_context *context, hark_sequence_values *values, int64_t usual, int64_t chunk);
/* For hark_task_generator.sizes: the sizes for sequences of values->length words. */
hark_task_sizes hark_sequence_sizes(const void *values);
/* The sequence in an order's scratch memory, without targets. */
hark_task_sequence hark_sequence_begin(hark_task_order *order);
/* Writes it as a line; returns its bytes. */
size_t hark_sequence_write(const hark_task_sequence *sequence, const hark_sequence_values *values, const hark_sequence_words *words,
                           unsigned char *out);
/* For hark_task_generator.header: the first line of a file, all words of the generator. */
HARK_MUST_CHECK hark_status hark_sequence_header(const hark_task_generator *generator, const void *values, int64_t count, hark_text *out);

#endif
