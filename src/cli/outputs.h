/* outputs.h - outputs that cannot be written, or that would destroy what is read. */
#ifndef HARK_CLI_OUTPUTS_H
#define HARK_CLI_OUTPUTS_H

#include "cli/common.h"

/* Called before a subcommand runs: refuses an output (--output, --out, --figure, --markdown) that exists as a regular file and is
 *
 *   an input of this call (an argument or the value of another option), by whatever name: the same device and inode;
 *   a file of a model, or of data of a task, in a folder that is an input;
 *   a file of the data of a run that is an input, or that is in a folder of runs that is one (data_place.h);
 *   a file that hark keeps in a run's folder (hark_run_keeps), whether that run is an input or not.
 *
 * Other files are replaced: a page, a figure, an export. Errors: HARK_BAD_CONFIGURATION, which names both.
 *
 * Also refuses an output whose place cannot be written: HARK_IO_ERROR, also where a folder is missing. */
HARK_MUST_CHECK hark_status hark_command_refuse_outputs(hark_invocation *call);

/* Refuses a folder that cannot be made or written, for outputs that are no options of the call's own tables. Errors: HARK_IO_ERROR, in a
 * message that begins with --OPTION. */
HARK_MUST_CHECK hark_status hark_command_check_folder(hark_context *context, const char *option, const char *path);

#endif
