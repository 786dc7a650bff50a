/* control_groups.h - the control groups of Linux (version 1 and 2) of this process, and those above them; any of them may limit it. */
#ifndef HARK_CORE_CONTROL_GROUPS_H
#define HARK_CORE_CONTROL_GROUPS_H

#include "core/core.h"

/* Reads the files of one group; `version` 1 or 2. A failure ends the walk. */
typedef hark_status hark_control_group_look(void *data, int version, const char *folder);

/* Calls `look` with the folder of the process's group for `controller` ("cpu", "memory"), and of each group above it, the innermost first,
 * as far as they are mounted here. `root` is a prefix of /proc, /sys and all mounted folders: "" except in tests. Groups that cannot be
 * read are skipped. Allocates nothing. Errors: those of look. */
HARK_MUST_CHECK hark_status hark_control_groups_walk(const char *root, const char *controller, hark_control_group_look *look, void *data);

#endif
