/* sweep_measure.h - which of a run's numbers a sweep compares: the best, the last, or the checkpoint's, of the whole run or of what it had
 * reached within a budget.
 */
#ifndef HARK_CLI_SWEEP_SWEEP_MEASURE_H
#define HARK_CLI_SWEEP_SWEEP_MEASURE_H

#include "core/core.h"

#define HARK_SWEEP_METRIC_BYTES 96

#define HARK_SWEEP_CHOICE_WORDS "best|last|checkpoint"
enum { HARK_SWEEP_BEST, HARK_SWEEP_LAST, HARK_SWEEP_CHECKPOINT };

typedef struct hark_sweep_choice {
  const char *metric;
  int choose; /* of its values: the best, the last, or that of the line where val/loss is least */
  bool more;  /* is better */
} hark_sweep_choice;

/* Lines of metrics.jsonl that have `name` and in which it is at most `limit`. */
typedef struct hark_sweep_budget {
  char name[HARK_SWEEP_METRIC_BYTES]; /* of a metric that grows: "operations"; "": no budget */
  double limit;                       /* NaN: as much as the run has that has least */
} hark_sweep_budget;
extern const hark_sweep_budget hark_sweep_whole; /* all lines */

/* "operations=least", "tokens=1e6"; "": no budget. Errors: HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_sweep_budget_read(hark_context *context, const char *words, hark_sweep_budget *out);

/* Whether more of a metric is better, by its name: of accuracies, speeds and shares of the peak. */
bool hark_sweep_more_is_better(const char *metric);

/* The number of a run's folder; *value stays where it has none. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_sweep_value_of(hark_context *context, const char *run, const hark_sweep_choice *choice,
                                                const hark_sweep_budget *budget, double *value);
/* How much of `name`, which grows, a run has where `metric` was measured last; *total stays where it never was. */
HARK_MUST_CHECK hark_status hark_sweep_total_of(hark_context *context, const char *run, const char *name, const char *metric,
                                                double *total);

#endif
