/* system_files.c - see system_files.h. */
#define _POSIX_C_SOURCE 200809L
#include "core/system_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool hark_system_join(char out[HARK_SYSTEM_PATH_BYTES], const char *folder, const char *name) {
  name += strspn(name, "/");
  const int length = snprintf(out, HARK_SYSTEM_PATH_BYTES, name[0] != '\0' ? "%s/%s" : "%s%s", folder, name);
  return length >= 0 && length < HARK_SYSTEM_PATH_BYTES;
}

static int open_file(const char *folder, const char *name) {
  char path[HARK_SYSTEM_PATH_BYTES];
  return hark_system_join(path, folder, name) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* read(), repeated if a signal interrupts it. */
static ssize_t read_some(int file, void *out, size_t size) {
  for (;;) {
    const ssize_t count = read(file, out, size);
    if (count >= 0 || errno != EINTR) return count;
  }
}

bool hark_system_read(const char *folder, const char *name, char *text, size_t size) {
  size_t length = 0;
  ssize_t count = -1;
  const int file = open_file(folder, name);
  while (file >= 0 && length + 1 < size && (count = read_some(file, text + length, size - 1 - length)) > 0) length += (size_t)count;
  if (count < 0) length = 0;
  text[length] = '\0';
  if (file >= 0) (void)close(file);
  return count >= 0;
}

void hark_system_lines_open(hark_system_lines *lines, const char *folder, const char *name) {
  *lines = (hark_system_lines){.file = open_file(folder, name)};
}

static bool next_byte(hark_system_lines *lines, char *byte) {
  if (lines->next == lines->end) {
    const ssize_t count = lines->file >= 0 ? read_some(lines->file, lines->block, sizeof lines->block) : -1;
    if (count <= 0) return false;
    lines->next = 0;
    lines->end = (size_t)count;
  }
  *byte = lines->block[lines->next++];
  return true;
}

bool hark_system_lines_next(hark_system_lines *lines, char line[HARK_SYSTEM_LINE_BYTES]) {
  size_t length = 0;
  bool any = false;
  for (char byte; next_byte(lines, &byte);) {
    any = true;
    if (byte == '\n') break;
    if (length + 1 < HARK_SYSTEM_LINE_BYTES) line[length++] = byte;
  }
  line[length] = '\0';
  return any;
}

void hark_system_lines_close(hark_system_lines *lines) {
  if (lines->file >= 0) (void)close(lines->file);
  lines->file = -1;
}
