/* batches.h - the mapping from training samples to windows of the text, and reading windows.
 *
 * A window is context + 1 tokens: inputs are all but its last, targets all but its first. Legend: T tokens in the split, L context, B rows.
 * Samples are numbered 0, 1, 2, ... through all epochs, and the window of a sample depends on (seed, sample) alone. So a run resumes with
 * the next number, ranks share the work by different numbers, and nothing here has a state.
 */
#ifndef HARK_DATA_CORPORA_BATCHES_H
#define HARK_DATA_CORPORA_BATCHES_H

#include "data/corpora/corpus.h"

/* Marks positions without a target; the loss ignores them. */
#define HARK_TARGET_IGNORED (-1)

typedef enum hark_order {
  HARK_ORDER_RANDOM,    /* for each sample, a start drawn uniformly from all T - L */
  HARK_ORDER_SHUFFLED,  /* each of the epoch's windows exactly once, in a different order every epoch */
  HARK_ORDER_SEQUENTIAL /* the epoch's windows in the order of the text */
} hark_order;

/* The definition of an epoch. It also determines the windows of an epoch in shuffled and sequential order. */
typedef enum hark_epoch_unit {
  /* every token about once: windows L apart. Sequential: floor((T - 1) / L), from token 0 on. Random: the same number. Shuffled: max(1,
   * floor(T / L) - 1), from an offset drawn every epoch, so borders move and no token is always left out */
  HARK_EPOCH_TOKENS,
  HARK_EPOCH_WINDOWS /* every window about once: all T - L of them, one apart */
} hark_epoch_unit;

typedef struct hark_batches_settings {
  hark_split split;
  int64_t context; /* L >= 1 */
  hark_order order;
  hark_epoch_unit epoch;
  uint64_t seed;
} hark_batches_settings;

/* A plain description; copy it freely. */
typedef struct hark_batches {
  const hark_corpus *corpus;
  hark_batches_settings settings;
  int64_t tokens;            /* T */
  int64_t samples_per_epoch; /* W */
} hark_batches;

/* Describes the samples of a corpus, which must outlive them.
 * Errors: HARK_BAD_CONFIGURATION (fewer tokens than one window: T < L + 1), HARK_INVALID_ARGUMENT (context < 1, ...). */
HARK_MUST_CHECK hark_status hark_batches_create(hark_context *context, const hark_corpus *corpus, const hark_batches_settings *settings,
                                                hark_batches *out);

/* Epochs done when `samples` samples have been used: samples / W. */
double hark_batches_epochs(const hark_batches *batches, int64_t samples);

/* Token number at which the window of a sample (>= 0) starts, in [0, T - L). */
int64_t hark_batches_start(const hark_batches *batches, int64_t sample);

/* Fills rows with samples first_sample .. first_sample + rows: inputs [rows, L], targets [rows, L], host memory.
 * Errors: those of hark_corpus_read. */
HARK_MUST_CHECK hark_status hark_batches_read(hark_context *context, const hark_batches *batches, int64_t first_sample, int64_t rows,
                                              int32_t *inputs, int32_t *targets);

/* Evaluation over a split from its beginning: windows of L inputs, each S tokens after the previous one. The first window counts all of its
 * targets, every other window its last S, which no earlier window has. So every token but the first is a target exactly once, for all L and
 * S, and from target L on it has at least L - S tokens before its input.
 *
 *     S = 3, L = 5:      t t t t t          targets 0 .. 4
 *                              - - t t t    targets 5 .. 7; - is read and not counted
 *
 *     hark_evaluation evaluation;
 *     const hark_evaluation_settings settings = {.split = HARK_SPLIT_VALIDATION, .context = L};
 *     HARK_TRY(hark_evaluation_create(context, corpus, &settings, &evaluation));
 *     for (int64_t first = 0; first < evaluation.windows; first += B) {
 *       HARK_TRY(hark_evaluation_read(context, &evaluation, first, B, inputs, targets, &real));
 *       ...                                        the loss summed over real targets, divided at the end by evaluation.targets
 *     }
 */
typedef struct hark_evaluation_settings {
  hark_split split;
  int64_t context; /* L >= 1 */
  int64_t stride;  /* S in [1, L]; 0: L, windows that do not overlap */
  int64_t targets; /* at most this number, from the beginning of the split; 0: all */
} hark_evaluation_settings;

typedef struct hark_evaluation {
  const hark_corpus *corpus;
  hark_evaluation_settings settings; /* stride: S, also where 0 was given */
  int64_t tokens;                    /* T */
  int64_t targets;                   /* N = T - 1, or fewer where fewer are requested */
  int64_t windows;                   /* 1 + ceil((N - L) / S), or 1 */
} hark_evaluation;

/* Errors: HARK_BAD_CONFIGURATION (fewer than two tokens), HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_evaluation_create(hark_context *context, const hark_corpus *corpus,
                                                   const hark_evaluation_settings *settings, hark_evaluation *out);

/* Number of inputs of a window (in [0, windows)): L, or fewer where the text ends earlier. */
int64_t hark_evaluation_tokens(const hark_evaluation *evaluation, int64_t window);

/* Fills rows with windows first_window .. first_window + rows: inputs [rows, L], targets [rows, L], host memory. Targets that are not
 * counted are HARK_TARGET_IGNORED; after the last target, in the last window and in rows after it, inputs are HARK_TOKEN_PADDING. *real:
 * number of targets that are counted. Errors: those of hark_corpus_read. */
HARK_MUST_CHECK hark_status hark_evaluation_read(hark_context *context, const hark_evaluation *evaluation, int64_t first_window,
                                                 int64_t rows, int32_t *inputs, int32_t *targets, int64_t *real);

#endif
