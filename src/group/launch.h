/* launch.h - the group of a program that a launcher has started: mpirun or mpiexec of Open MPI and MPICH, srun. The module that passes the
 * messages (src/modules) is loaded then, from the folder of the program or from that of the installed modules; HARK_MPI_MODULE names
 * another file. */
#ifndef HARK_GROUP_LAUNCH_H
#define HARK_GROUP_LAUNCH_H

#include "group/group.h"

#define HARK_GROUP_LIMIT_SECONDS 600

/* Whether a launcher has started this program, by the variables that it sets. */
bool hark_group_launched(void);
/* How many of its processes are on this machine, as far as the launcher says so; else 1. */
int hark_group_local_size(void);

/* Joins the other processes. NULL in *out if no launcher has started the program. Errors: HARK_NO_BACKEND (no module, or one of another
 * version), HARK_CANCELLED (the module cannot join). */
HARK_MUST_CHECK hark_status hark_group_open(hark_context *context, hark_group **out);
/* Leaves the others; after an error of a process that does not answer, ends all of them with `code`, and does not return. */
void hark_group_close(hark_context *context, hark_group **group, int code);

/* The library of messages, such as "Open MPI v4.1.4", and whether there is one. */
bool hark_group_describe(char *text, size_t bytes);

#endif
