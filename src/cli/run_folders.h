/* run_folders.h - the runs in a folder, for subcommands that take many of them. */
#ifndef HARK_CLI_RUN_FOLDERS_H
#define HARK_CLI_RUN_FOLDERS_H

#include "core/core.h"

/* Called for each run; its failures end the visit. */
typedef hark_status hark_run_visitor(void *user, const char *path);

/* True for a folder with config.yaml. */
bool hark_is_run_folder(hark_context *context, const char *path);

/* Visits the folder, if it is a run, or the runs in it and in its folders: a sweep has its runs in one. Folders inside that cannot be read
 * are left out. Errors: those of files and of the visitor. */
HARK_MUST_CHECK hark_status hark_run_folders_visit(hark_context *context, const char *path, hark_run_visitor *visit, void *user);

#endif
