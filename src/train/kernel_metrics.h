/* kernel_metrics.h - what positional kernels and rotary rates have learned, as words of a line of metrics. */
#ifndef HARK_TRAIN_KERNEL_METRICS_H
#define HARK_TRAIN_KERNEL_METRICS_H

#include "json/jsonl.h"
#include "models/stack.h"

/* More values of either than this are left to checkpoints (hark info, hark plot --positional): lines stay short enough to be read. */
#define HARK_KERNEL_METRICS_LIMIT 4096

/* Values that hark_kernel_metrics_append() would write: 0 where nothing of positions is learned, or too much. */
int64_t hark_kernel_metrics_count(const hark_network *network);

/* Adds them to a line that was begun, each as "positional/OWNER/COLUMN.KERNEL.NAME/COPY": OWNER is "model", "layer0", "layer0.head1";
 * the column is that of the kernel in the canonical expression; copies are those that banks make. Rates are "rotary/OWNER/PAIR", in radians
 * a token; their heads are key heads. */
HARK_MUST_CHECK hark_status hark_kernel_metrics_append(hark_context *context, const hark_network *network, hark_jsonl *line);

#endif
