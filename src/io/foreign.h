/* foreign.h - files that are not what their names say: what a download or a checkout left in the place of weights, configurations and
 * data. */
#ifndef HARK_IO_FOREIGN_H
#define HARK_IO_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>

#define HARK_FOREIGN_BYTES 64 /* of a file's front that are looked at */

/* What the front of a file is, in words for a message ("an HTML page, ..."); NULL: nothing that is known here. */
const char *hark_foreign_file(const void *front, size_t bytes);
/* The first of them alone, which no file is on purpose: "a git-LFS pointer, ...", or NULL. Such a file is small. */
#define HARK_POINTER_BYTES 1024
const char *hark_foreign_pointer(const void *front, size_t bytes);

#endif
