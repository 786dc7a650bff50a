/* kernel_metrics.h - the learned values of positional kernels and rotary rates, in a line of metrics. */
#ifndef HARK_TRAIN_KERNEL_METRICS_H
#define HARK_TRAIN_KERNEL_METRICS_H

#include "json/jsonl.h"
#include "models/stack.h"

/* With more values than this, they are not written to metrics, so that lines stay readable; checkpoints have them (hark info, hark plot
 * --positional). */
#define HARK_KERNEL_METRICS_LIMIT 4096

/* Number of values that hark_kernel_metrics_append() would write: 0 where no positions are learned, or too many values. */
int64_t hark_kernel_metrics_count(const hark_network *network);

/* Adds them to the current line, each as "positional/OWNER/COLUMN.KERNEL.NAME/COPY": OWNER is "model", "layer0", "layer0.head1"; the column
 * is that of the kernel in the canonical expression; copies are those of banks. Rates are "rotary/OWNER/PAIR", in radians per token; their
 * heads are key heads. */
HARK_MUST_CHECK hark_status hark_kernel_metrics_append(hark_context *context, const hark_network *network, hark_jsonl *line);

#endif
