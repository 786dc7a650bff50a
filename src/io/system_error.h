/* system_error.h - system calls continued after a signal, and failed ones as a status with a message. */
#ifndef HARK_IO_SYSTEM_ERROR_H
#define HARK_IO_SYSTEM_ERROR_H

#include <sys/types.h>

#include "core/core.h"

/* open (with O_CLOEXEC, and never as a standard stream), fsync and ftruncate, repeated if a signal interrupts them. */
int hark_open_again(const char *path, int flags, mode_t mode);
int hark_sync_again(int descriptor);
int hark_cut_again(int descriptor, off_t bytes);

/* "PATH: WHAT: text of error". ENOENT, ENOTDIR and ENAMETOOLONG are HARK_NOT_FOUND, ENOMEM is HARK_OUT_OF_MEMORY, the
 * others HARK_IO_ERROR. */
hark_status hark_system_fail(hark_context *context, int error, const char *path, const char *what);
/* The same of what is made or written: a path that does not exist is HARK_IO_ERROR then, since no input is missing. */
hark_status hark_system_fail_output(hark_context *context, int error, const char *path, const char *what);

#endif
