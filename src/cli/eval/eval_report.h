/* eval_report.h - what hark eval prints: a line for each context, and the losses by position side by side. */
#ifndef HARK_CLI_EVAL_EVAL_REPORT_H
#define HARK_CLI_EVAL_EVAL_REPORT_H

#include "data/corpora/corpus.h"
#include "io/text.h"
#include "train/ahca_statistics.h"
#include "train/evaluate.h"

/* One model at one context. */
typedef struct hark_eval_report {
  const char *run, *checkpoint; /* or a model's path, and "" */
  int64_t context, stride;      /* stride 0: windows that do not overlap */
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

/* A table of losses and targets by position, with two columns for each report. */
void hark_eval_report_print_positions(const hark_eval_report *reports, int count, hark_text *text);

#endif
