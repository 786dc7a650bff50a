/* foreign.c - see foreign.h. Sources: the specification of git-LFS pointers (version line first), RFC 1952, the ZIP application note. */
#include "io/foreign.h"

#include <string.h>

static bool begins(const char *front, size_t bytes, const char *with, size_t length) {
  return bytes >= length && memcmp(front, with, length) == 0;
}

/* Ignores case; `with` is in lower case. */
static bool begins_word(const char *front, size_t bytes, const char *with) {
  size_t i = 0;
  for (; with[i] != '\0'; i++) {
    if (i >= bytes) return false;
    const char c = front[i] >= 'A' && front[i] <= 'Z' ? (char)(front[i] - 'A' + 'a') : front[i];
    if (c != with[i]) return false;
  }
  return true;
}

const char *hark_foreign_pointer(const void *front, size_t bytes) {
  static const char pointer[] = "version https://git-lfs.github.com/spec/";
  if (!begins(front, bytes, pointer, sizeof pointer - 1)) return NULL;
  return "a git-LFS pointer and not the file itself, which `git lfs pull` fetches";
}

const char *hark_foreign_file(const void *front, size_t bytes) {
  const char *at = front;
  size_t left = bytes;
  if (begins(at, left, "\xEF\xBB\xBF", 3)) {
    at += 3;
    left -= 3;
  }
  for (; left > 0 && (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'); left--) at++;
  if (begins_word(at, left, "<!doctype html") || begins_word(at, left, "<html") || begins_word(at, left, "<head"))
    return "an HTML page and not the file itself: its address gave a page";
  if (begins(front, bytes, "PK\x03\x04", 4)) return "a zip archive";
  if (begins(front, bytes, "\x1F\x8B", 2)) return "compressed with gzip";
  return hark_foreign_pointer(front, bytes);
}
