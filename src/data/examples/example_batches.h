/* example_batches.h - the mapping from samples to examples, and packing examples one after the other.
 *
 * Samples are numbered through all epochs, and the example of a sample depends on (seed, sample) alone, as windows of text do (batches.h).
 * Legend: N examples of the split, P parts of an example, T tokens of a batch.
 *
 *     inputs    [c] a a a [c] b b [c] d d d d      c: HARK_TOKEN_CLASS, where it is requested
 *     positions  0  1 2 3  0  1 2  0  1 2 3 4      in its sequence
 *     segments   0  0 0 0  1  1 1  2  2 2 2 2      number of the sequence in the batch
 *     ranges     0-4       4-7     7-12            rows of the sequences, [rows, P, 2]: those of an example are adjacent
 *     targets    one per example (class), or one per token (HARK_TARGET_IGNORED where there is none)
 */
#ifndef HARK_DATA_EXAMPLES_EXAMPLE_BATCHES_H
#define HARK_DATA_EXAMPLES_EXAMPLE_BATCHES_H

#include "data/corpora/masking.h"
#include "data/examples/table_samples.h"
#include "models/table_rows.h"

typedef struct hark_example_batches_settings {
  hark_split split;
  hark_order order; /* random: drawn for each sample; shuffled: each once per epoch; sequential */
  uint64_t seed;
  bool class_token;        /* HARK_TOKEN_CLASS at the beginning of every sequence */
  int64_t longest;         /* maximum tokens of a sequence, without HARK_TOKEN_CLASS */
  const char *named_for;   /* the option that limits `longest`, for messages: "model.context" */
  hark_table_split tables; /* of format tables */
  int64_t limit;           /* number of examples used, the first of a permutation that is the same for all seeds; 0: all */
} hark_example_batches_settings;

/* A plain description; copy it freely. */
typedef struct hark_example_batches {
  const hark_examples *examples;
  hark_example_batches_settings settings;
  int64_t count; /* N, samples of an epoch */
  int64_t all;   /* examples of the split */
  int parts;     /* P; 2 for tables: context and queries */
  bool tables;
} hark_example_batches;

/* Describes the samples of examples, which must outlive them.
 * Errors: HARK_BAD_CONFIGURATION (the split is empty, has fewer examples than the limit, or a sequence of more than `longest` tokens),
 * HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_example_batches_create(hark_context *context, const hark_examples *examples,
                                                        const hark_example_batches_settings *settings, hark_example_batches *out);

/* The example of a sample (>= 0), in [0, N). */
int64_t hark_example_batches_index(const hark_example_batches *batches, int64_t sample);

/* Maximum tokens of a batch of `rows` examples, including class tokens. */
int64_t hark_example_batches_most_tokens(const hark_example_batches *batches, int64_t rows);

/* Number of targets of samples first .. first + count, without ignored ones; `count` where every example has one. */
HARK_MUST_CHECK hark_status hark_example_batches_targets(hark_context *context, const hark_example_batches *batches, int64_t first,
                                                         int64_t count, int32_t *scratch, int64_t *real);

/* Fills a batch, whose arrays have room, with samples first .. first + rows. Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_example_batches_read(hark_context *context, const hark_example_batches *batches, int64_t first,
                                                      int64_t rows, hark_example_batch *batch);

/* Masks tokens of a batch that begins with sample `first`: the masked tokens replace its targets. */
void hark_example_batch_mask(const hark_masking *masking, int64_t first, int64_t parts, hark_example_batch *batch);

#endif
