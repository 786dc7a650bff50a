/* system_error.h - a failed system call as a status with a message. */
#ifndef HARK_IO_SYSTEM_ERROR_H
#define HARK_IO_SYSTEM_ERROR_H

#include "core/core.h"

/* "PATH: WHAT: text of error". ENOENT and ENOTDIR are HARK_NOT_FOUND, ENOMEM is HARK_OUT_OF_MEMORY, the others HARK_IO_ERROR. */
hark_status hark_system_fail(hark_context *context, int error, const char *path, const char *what);

#endif
