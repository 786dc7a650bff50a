/* processes.h - the processes that a launcher has started for one call of a subcommand (group/group.h). */
#ifndef HARK_CLI_PROCESSES_H
#define HARK_CLI_PROCESSES_H

#include "cli/common.h"
#include "train/config.h"

/* Compares arguments, options, instruction set and build with those of rank 0, for a subcommand without a configuration. Alone it does
 * nothing. Errors: as hark_command_join(). */
HARK_MUST_CHECK hark_status hark_command_compare(hark_invocation *call);

/* Makes the context of the computation one of the group, with run.rank_timeout as the limit. Alone it does nothing. Errors:
 * HARK_BAD_CONFIGURATION for a process with other options than rank 0, threads excepted, or with another instruction set or build, whose
 * bits differ; those of the group. */
HARK_MUST_CHECK hark_status hark_command_join(hark_invocation *call, hark_config *config);

#endif
