/* system_files.h - reads small files of Linux's /proc and /sys without the context's or the C library's memory, because their contents are
 * needed to create a context. */
#ifndef HARK_CORE_SYSTEM_FILES_H
#define HARK_CORE_SYSTEM_FILES_H

#include <stdbool.h>
#include <stddef.h>

#define HARK_SYSTEM_PATH_BYTES 4096
#define HARK_SYSTEM_LINE_BYTES 8192
#define HARK_SYSTEM_BLOCK_BYTES 1024

/* "A/B" for folder "A" and name "B" or "/B", "A" without a name; false if it is too long. */
bool hark_system_join(char out[HARK_SYSTEM_PATH_BYTES], const char *folder, const char *name);

/* The beginning of a file as text, as much as fits; false, and an empty text, if it cannot be read. */
bool hark_system_read(const char *folder, const char *name, char *text, size_t size);

/* A file line by line; long lines are cut. A file that cannot be opened has no lines. */
typedef struct hark_system_lines {
  int file; /* -1: none */
  size_t next, end;
  char block[HARK_SYSTEM_BLOCK_BYTES];
} hark_system_lines;
void hark_system_lines_open(hark_system_lines *lines, const char *folder, const char *name);
bool hark_system_lines_next(hark_system_lines *lines, char line[HARK_SYSTEM_LINE_BYTES]);
void hark_system_lines_close(hark_system_lines *lines);

#endif
