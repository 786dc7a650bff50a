/* run_folders.h - the runs in a folder, for subcommands that take many of them. */
#ifndef HARK_CLI_RUN_FOLDERS_H
#define HARK_CLI_RUN_FOLDERS_H

#include "core/core.h"

/* Called for each run; its failures end the visit. */
typedef hark_status hark_run_visitor(void *user, const char *path);

/* Visits the folder, if it is a run, or the runs in it and in its folders, sorted by name: a sweep has its runs in one. A folder inside
 * that may not be searched is visited too: it may be a run, and the visitor's messages have the reason. Errors: HARK_NOT_FOUND (no such
 * folder), HARK_BAD_FILE (a file), those of files and of the visitor. */
HARK_MUST_CHECK hark_status hark_run_folders_visit(hark_context *context, const char *path, hark_run_visitor *visit, void *user);
/* Bytes of the folder in the paths of the runs below it, with its slash; 0 where it is a run itself. */
size_t hark_run_folders_root(hark_context *context, const char *path);

#endif
