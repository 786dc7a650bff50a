/* metric_copies.h - copies of a run's metrics.jsonl for other programs: event files for TensorBoard (run.tensorboard), and metrics.csv
 * (run.csv). Both can be made again from metrics.jsonl, and are so whenever a run starts. */
#ifndef HARK_TRAIN_METRIC_COPIES_H
#define HARK_TRAIN_METRIC_COPIES_H

#include "io/event_file.h"
#include "train/run.h"

/* Zero it before its first use. */
typedef struct hark_metric_copies {
  hark_event_file events; /* open with run.tensorboard */
  double began;           /* the time, in seconds since 1970, at which the run would have started without interruptions */
} hark_metric_copies;

/* Called when metrics.jsonl has exactly the lines that the run continues from, after `seconds` of training. With run.tensorboard: makes a
 * new event file with the numbers of all lines, and removes older ones. Without: does nothing. The caller closes it, also after a failure.
 * Errors: those of files. */
HARK_MUST_CHECK hark_status hark_metric_copies_open(hark_context *context, const hark_config *config, const hark_run *run, double seconds,
                                                    hark_metric_copies *out);

/* The numbers of a line of metrics.jsonl as an event of its step; its time is that of training. `tokens` and `operations` are those of
 * lines with train/loss, and lines about skipped steps are left out. Does nothing without event files. */
HARK_MUST_CHECK hark_status hark_metric_copies_add(hark_context *context, hark_metric_copies *copies, const hark_text *line);

/* With run.csv: writes metrics.csv. */
HARK_MUST_CHECK hark_status hark_metric_copies_write_csv(hark_context *context, const hark_config *config, const hark_run *run);

HARK_MUST_CHECK hark_status hark_metric_copies_close(hark_context *context, hark_metric_copies *copies);

#endif
