/* sweep_measure.h - the number of a run that a sweep compares: the best, the last or the checkpoint's, of the whole run or within a budget.
 */
#ifndef HARK_CLI_SWEEP_SWEEP_MEASURE_H
#define HARK_CLI_SWEEP_SWEEP_MEASURE_H

#include "core/core.h"

#define HARK_SWEEP_METRIC_BYTES 96

#define HARK_SWEEP_CHOICE_WORDS "best|last|checkpoint"
enum { HARK_SWEEP_BEST, HARK_SWEEP_LAST, HARK_SWEEP_CHECKPOINT };

typedef struct hark_sweep_choice {
  const char *metric;
  int choose; /* among its values: the best, the last, or that of the line where val/loss is least */
  bool more;  /* is better */
} hark_sweep_choice;

/* Lines of metrics.jsonl that have `name` and in which it is at most `limit`. */
typedef struct hark_sweep_budget {
  char name[HARK_SWEEP_METRIC_BYTES]; /* of a metric that grows: "operations"; "": no budget */
  double limit;                       /* NaN: the least total of all runs */
} hark_sweep_budget;
extern const hark_sweep_budget hark_sweep_whole; /* all lines */

/* "operations=least", "tokens=1e6"; "": no budget. Errors: HARK_BAD_CONFIGURATION. */
HARK_MUST_CHECK hark_status hark_sweep_budget_read(hark_context *context, const char *words, hark_sweep_budget *out);

/* Whether more of a metric is better, by its name: true for accuracies, speeds and fractions of the peak. */
bool hark_sweep_more_is_better(const char *metric);

/* The number of a run's folder; *value is unchanged where it has none. Errors: those of files. */
HARK_MUST_CHECK hark_status hark_sweep_value_of(hark_context *context, const char *run, const hark_sweep_choice *choice,
                                                const hark_sweep_budget *budget, double *value);
/* The value of `name`, which grows, where a run measured `metric` last; *total is unchanged where it never did. */
HARK_MUST_CHECK hark_status hark_sweep_total_of(hark_context *context, const char *run, const char *name, const char *metric,
                                                double *total);

#endif
