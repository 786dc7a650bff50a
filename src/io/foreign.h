/* foreign.h - recognises files with wrong contents: what a download or a checkout may leave instead of weights, configurations and data. */
#ifndef HARK_IO_FOREIGN_H
#define HARK_IO_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#define HARK_FOREIGN_BYTES 64 /* at the beginning of a file that are checked */

/* The kind of a file by its beginning, in words for a message ("an HTML page, ..."); NULL: unknown. */
const char *hark_foreign_file(const void *front, size_t bytes);
/* Only the first kind, which is never intended: "a git-LFS pointer, ...", or NULL. Such a file is small. */
#define HARK_POINTER_BYTES 1024
const char *hark_foreign_pointer(const void *front, size_t bytes);

#endif
