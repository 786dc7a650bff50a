/* metric_names.h - which metrics runs have, to refuse names that none has. */
#ifndef HARK_CLI_METRIC_NAMES_H
#define HARK_CLI_METRIC_NAMES_H

#include <jansson.h>

#include "core/core.h"

/* *names <- an object whose keys are added: the names of numbers, also those that are null, in the lines of metrics.jsonl of a run's
 * folder, or of a file of that kind, in the order in which they occur. *names is NULL before the first call; the caller calls
 * json_decref(), also after a failure.
 * Errors: those of files, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_metric_names_add(hark_context *context, const char *run, json_t **names);

/* Fails with `status` and "WHATno run has NAME, did you mean ...; there are ...", unless `name` is among the names, or there are none. */
HARK_MUST_CHECK hark_status hark_metric_names_require(hark_context *context, const json_t *names, hark_status status, const char *what,
                                                      const char *name);

#endif
