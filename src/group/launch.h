/* launch.h - the group of a program that a launcher has started: mpirun or mpiexec of Open MPI and MPICH, srun. The module that passes the
 * messages (src/modules) is loaded then, from the folder of the program or from that of the installed modules; HARK_MPI_MODULE names
 * another file. */
#ifndef HARK_GROUP_LAUNCH_H
#define HARK_GROUP_LAUNCH_H

#include "group/group.h"

#define HARK_GROUP_LIMIT_SECONDS 600

/* Names the module's file; "none": this process is alone. */
#define HARK_MODULE_VARIABLE "HARK_MPI_MODULE"
#define HARK_MODULE_NONE "none"

/* Whether a launcher has started several processes of this program, by the variables that it sets, and HARK_MPI_MODULE is not "none". */
bool hark_group_launched(void);
/* The rank by these variables, before the processes are joined; 0: unknown. */
int hark_group_launch_rank(void);
/* Whether the launcher gives each process cores of its own, by a variable that hark_thread_count() knows. */
bool hark_group_has_own_cores(void);
/* How many of its processes are on this machine, as far as the launcher says so; else 1. */
int hark_group_local_size(void);

/* Joins the other processes. NULL in *out if no launcher has started several. Errors: HARK_NO_BACKEND (no module, or one of another
 * version), HARK_CANCELLED (the module cannot join). */
HARK_MUST_CHECK hark_status hark_group_open(hark_context *context, hark_group **out);
/* Leaves the others, when hark_group_release() has freed the group's memory. After an error of a process that does not answer, ends all of
 * them with `code` and does not return. */
void hark_group_close(hark_context *context, hark_group **group, int code);

/* The library of messages, such as "Open MPI v4.1.4", and whether there is one. */
bool hark_group_describe(char *text, size_t bytes);

#endif
