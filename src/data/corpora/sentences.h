/* sentences.h - whole sentences packed into windows, and the mapping from training samples to windows.
 *
 * All tokens of a sentence but the last are inputs, all but the first are targets; so a sentence has equally many positions and targets.
 * Windows of L positions are filled with sentences in the order of the text while they fit. A sentence of more than L positions is cut into
 * consecutive parts of L, or refused. Windows may be shorter than L: batches are packed, and nothing is computed for padding. Legend: L
 * context, W windows.
 *
 *     text        <b> t h e \n <b> a \n | <b> o n e \n ...         | a window ends, L = 6
 *     inputs      <b> t h e    <b> a    | <b> o n e
 *     targets     t   h e \n    a  \n   | o   n e \n
 *     positions   0   1 2 3    0   1    | 0   1 2 3
 *     segments    0   0 0 0    1   1    | 2   2 2 2
 *
 * Samples are numbered through all epochs; the window of a sample depends on (seed, sample) alone, as in batches.h.
 */
#ifndef HARK_DATA_CORPORA_SENTENCES_H
#define HARK_DATA_CORPORA_SENTENCES_H

#include "data/corpora/batches.h"
#include "data/examples/example_batches.h"

typedef struct hark_sentences_settings {
  hark_split split;
  int64_t context; /* L >= 1 */
  hark_order order;
  uint64_t seed;
  bool refuse_longer; /* a sentence that does not fit into a window is an error; else it is cut */
} hark_sentences_settings;

typedef struct hark_sentences {
  hark_context *context;
  const hark_corpus *corpus;
  hark_sentences_settings settings;
  int64_t *first;    /* [W + 1]: index in the split of the window's first input; the last entry is the end of the split */
  int32_t *targets;  /* [W] */
  int64_t windows;   /* W, samples of an epoch */
  int64_t positions; /* sum over all windows */
  int64_t cut;       /* sentences that were cut */
  int64_t capacity;  /* of `first` */
} hark_sentences;

/* Packs a split of a corpus of sentences, which must outlive *out; reads its tokens once. Memory: 12 bytes per window. The caller closes
 * *out, after a failure too.
 * Errors: HARK_BAD_CONFIGURATION (the split has no sentence), HARK_BAD_FILE (a sentence is too long and these are refused: file and line),
 * HARK_INVALID_ARGUMENT, those of hark_corpus_read, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_sentences_open(hark_context *context, const hark_corpus *corpus, const hark_sentences_settings *settings,
                                                hark_sentences *out);
void hark_sentences_close(hark_sentences *sentences);

/* Maximum number of sequences in a window of L positions: every sentence has at least two positions, and one part of a cut sentence may
 * have one. */
static inline int64_t hark_sentences_most(int64_t length) { return length / 2 + 1; }

/* The window of a sample (>= 0), in [0, W). */
int64_t hark_sentences_window(const hark_sentences *sentences, int64_t sample);

/* Number of targets of samples first .. first + count. */
int64_t hark_sentences_targets(const hark_sentences *sentences, int64_t first, int64_t count);

/* Fills a batch, whose arrays have room for rows times L tokens, with samples first .. first + rows; its ranges are those of the windows.
 * Errors: HARK_INVALID_ARGUMENT, those of hark_corpus_read. */
HARK_MUST_CHECK hark_status hark_sentences_read(hark_context *context, const hark_sentences *sentences, int64_t first, int64_t rows,
                                                hark_example_batch *batch);

#endif
