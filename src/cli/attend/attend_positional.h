/* attend_positional.h - positional kernels of hark attend: their tables before the attention, their gradients after it. */
#ifndef HARK_CLI_ATTEND_ATTEND_POSITIONAL_H
#define HARK_CLI_ATTEND_ATTEND_POSITIONAL_H

#include "cli/attend/attend.h"

/* Reads every --positional only to report mistakes. */
hark_status hark_attend_positional_check(hark_invocation *call);

/* Whether the tables have both directions: an expression has a direction, and keys after the query are seen. */
bool hark_attend_positional_directed(const hark_attend_values *values);

/* tensors->log_kernel <- log G of the expressions, one for all heads or one for each, with the parameters in the expressions or else
 * initial ones, at the distances that the plan needs. */
hark_status hark_attend_positional_table(hark_context *context, const hark_attend_values *values, const hark_attention_plan *plan,
                                         hark_attend_tensors *tensors);

/* tensors->dpositional [kernels, parameters] <- the gradient by natural values, from dlog_kernel. Expressions with fewer parameters than
 * others have zeros at the end. */
hark_status hark_attend_positional_gradient(hark_context *context, const hark_attend_values *values, hark_attend_tensors *tensors);

#endif
