/* eval_report.h - what hark eval prints: a line for each context, and the losses by position side by side. */
#ifndef HARK_CLI_EVAL_EVAL_REPORT_H
#define HARK_CLI_EVAL_EVAL_REPORT_H

#include "core/core.h"
#include "data/corpora/corpus.h"
#include "io/text.h"
#include "train/ahca_statistics.h"
#include "train/evaluate.h"

#define HARK_EVAL_UNCUT (-1) /* in place of a window */

/* One model at one context. */
typedef struct hark_eval_report {
  const char *run, *checkpoint; /* or a model's path, and "" */
  int64_t context, stride;      /* stride 0: windows that do not overlap */
  bool cut;                     /* one of several measurements with windows (eval_windows.h), and its window */
  int64_t window;               /* HARK_EVAL_UNCUT: the model's own attention */
  const char *part;             /* of the run's text; NULL: another text */
  const char *exchanged;        /* members of a JSON object; "": nothing was */
  hark_text_counts counts;      /* of the whole text */
  bool words;                   /* tokens are sub-words: the perplexity by words is reported too */
  bool hidden;                  /* the targets are masked tokens: loss and accuracy of those, which are no measure of a text */
  bool own;                     /* they are the tokens that the model reads: likewise */
  hark_evaluation_result result;
  hark_ahca_statistics statistics; /* zeros: the model has none */
  double seconds;
} hark_eval_report;

/* One line for people; with `contexts` it names the context. */
void hark_eval_report_print(const hark_eval_report *report, bool contexts, hark_text *text);

/* One line of JSON. */
void hark_eval_report_print_json(const hark_eval_report *report, hark_text *text);

/* Refuses a loss that is not finite, after it was printed: no number then describes the model. `path` and `checkpoint` are the run's.
 * Errors: HARK_NOT_FINITE. */
HARK_MUST_CHECK hark_status hark_eval_check_loss(hark_context *context, const char *path, const char *checkpoint, double loss);

/* A table of losses and targets by position, with two columns for each report. */
void hark_eval_report_print_positions(const hark_eval_report *reports, int count, hark_text *text);

#endif
