/* repetitions.h - evidence in a text for the lags of attention and the periods of fitted kernels: how often a token equals the one d
 * tokens before it. */
#ifndef HARK_CLI_KERNELS_REPETITIONS_H
#define HARK_CLI_KERNELS_REPETITIONS_H

#include "cli/kernels/kernels.h"

#define HARK_REPETITIONS_MOST 64
#define HARK_REPETITIONS_CONFIRMED 6 /* deviations above the median of all distances */

/* A lag of the attention (hark_fitted_kernel.lags), or a period of a kernel. Attention at distance d reads the token d + 1 before the one
 * that a decoder predicts. */
typedef struct hark_repetition {
  const char *kernel; /* "periodic"; of a lag: "attention" */
  bool period;
  double value;      /* in tokens: before the predicted token, or the period */
  double rate;       /* fraction of tokens that equal the one at this distance; of a period, the least of one to three periods */
  double deviations; /* of the rate above the median of all distances, in robust standard deviations */
  bool confirmed;    /* by at least HARK_REPETITIONS_CONFIRMED of them, and above both neighbours */
} hark_repetition;

typedef struct hark_repetitions {
  int64_t tokens, distances; /* read; compared */
  double median;
  int count;
  hark_repetition items[HARK_REPETITIONS_MOST];
} hark_repetitions;

/* Reads up to 2^20 bytes of a text with the vocabulary of a model, and compares what the kernels contain. Equal lags of several kernels are
 * one. Errors: those of models, files and memory. */
HARK_MUST_CHECK hark_status hark_repetitions_find(hark_context *context, const char *model, const char *text,
                                                  const hark_fitted_kernels *kernels, hark_repetitions *out);
void hark_repetitions_append_table(const hark_repetitions *repetitions, hark_text *text);
void hark_repetitions_append_json(const hark_repetitions *repetitions, hark_text *text);

#endif
