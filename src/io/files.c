/* files.c - files: whole reads, reads at offsets, checksums. Writing is in writer.c. */
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/foreign.h"
#include "io/system_error.h"

#define PART_BYTES ((size_t)1 << 16) /* of a read of unknown length */
#define CALL_BYTES ((size_t)1 << 30) /* at most, in one system call: Linux stops a little below 2^31 */

/* If a program has closed its standard streams, a file could get one of their numbers, and any code of the process would write messages
 * into it. */
static int above_standard_streams(int descriptor) {
  if (descriptor < 0 || descriptor > STDERR_FILENO) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
  (void)close(descriptor);
  errno = error;
  return moved;
}

int hark_open_again(const char *path, int flags, mode_t mode) {
  int descriptor;
  do {
    descriptor = open(path, flags | O_CLOEXEC, mode);
  } while (descriptor < 0 && errno == EINTR);
  return above_standard_streams(descriptor);
}

static ssize_t read_again(int descriptor, void *data, size_t bytes) {
  ssize_t got;
  do {
    got = read(descriptor, data, bytes < CALL_BYTES ? bytes : CALL_BYTES);
  } while (got < 0 && errno == EINTR);
  return got;
}

int hark_sync_again(int descriptor) {
  int result;
  do {
    result = fsync(descriptor);
  } while (result != 0 && errno == EINTR);
  return result;
}

int hark_cut_again(int descriptor, off_t bytes) {
  int result;
  do {
    result = ftruncate(descriptor, bytes);
  } while (result != 0 && errno == EINTR);
  return result;
}

void hark_file_close(int *descriptor) {
  if (*descriptor >= 0) (void)close(*descriptor);
  *descriptor = -1;
}

/* A folder is an input of another kind; everything else is a failure of the file system. */
static hark_status fail_read(hark_context *context, int error, const char *path) {
  if (error == EISDIR) return hark_fail(context, HARK_BAD_FILE, "%s: is a folder, expected a file", path);
  return hark_system_fail(context, error, path, "cannot be read");
}

/* What is read from `descriptor`, which is closed. */
static hark_status read_all(hark_context *context, const char *path, int descriptor, size_t limit, hark_text *out) {
  hark_status status = HARK_OK;
  const size_t first = out->length;
  size_t length = first;
  for (;;) {
    hark_text_resize(out, length + PART_BYTES);
    status = out->status;
    if (status != HARK_OK) break;
    const ssize_t got = read_again(descriptor, out->data + length, PART_BYTES);
    if (got < 0) {
      status = fail_read(context, errno, path);
      break;
    }
    length += (size_t)got;
    hark_text_resize(out, length);
    if (got == 0) break;
    if (length > limit) {
      status = hark_fail(context, HARK_BAD_FILE, "%s: larger than %zu bytes, the most that is read of such a file", path, limit);
      break;
    }
  }
  hark_file_close(&descriptor);
  const char *const what = status == HARK_OK ? hark_foreign_pointer(hark_text_get(out) + first, length - first) : NULL;
  if (what != NULL) status = hark_fail(context, HARK_BAD_FILE, "%s: is %s", path, what);
  if (status != HARK_OK) hark_text_free(out);
  return status;
}

hark_status hark_file_read(hark_context *context, const char *path, size_t limit, hark_text *out) {
  const int descriptor = hark_open_again(path, O_RDONLY, 0);
  if (descriptor < 0) return hark_system_fail(context, errno, path, "cannot be opened");
  return read_all(context, path, descriptor, limit, out);
}

/* HARK_BAD_FILE if a small file is a pointer of git-LFS instead of the intended file. */
static hark_status refuse_pointer(hark_context *context, const char *path, int descriptor, uint64_t size) {
  char front[HARK_FOREIGN_BYTES];
  if (size > HARK_POINTER_BYTES) return HARK_OK;
  const size_t bytes = size < sizeof front ? (size_t)size : sizeof front;
  HARK_TRY(hark_file_read_at(context, descriptor, path, front, bytes, 0));
  const char *const what = hark_foreign_pointer(front, bytes);
  return what == NULL ? HARK_OK : hark_fail(context, HARK_BAD_FILE, "%s: is %s", path, what);
}

hark_status hark_file_open(hark_context *context, const char *path, int *descriptor, uint64_t *size) {
  *descriptor = -1;
  int opened = hark_open_again(path, O_RDONLY | O_NONBLOCK, 0); /* opening a pipe must not block: it is refused below */
  if (opened < 0) return hark_system_fail(context, errno, path, "cannot be opened");
  struct stat information;
  hark_status status = HARK_OK;
  if (fstat(opened, &information) != 0) {
    status = hark_system_fail(context, errno, path, "cannot be examined");
  } else if (!S_ISREG(information.st_mode)) {
    status = hark_fail(context, HARK_BAD_FILE, "%s: %s, expected a regular file", path,
                       S_ISDIR(information.st_mode) ? "is a folder" : "is not a regular file");
  }
  if (status == HARK_OK) status = refuse_pointer(context, path, opened, (uint64_t)information.st_size);
  if (status != HARK_OK) {
    hark_file_close(&opened);
    return status;
  }
  *descriptor = opened;
  *size = (uint64_t)information.st_size;
  return HARK_OK;
}

hark_status hark_file_read_stored(hark_context *context, const char *path, size_t limit, hark_text *out) {
  int descriptor;
  uint64_t size;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  return read_all(context, path, descriptor, limit, out);
}

hark_status hark_file_refuse_foreign(hark_context *context, const char *path, int descriptor, uint64_t size, const char *expected) {
  char front[HARK_FOREIGN_BYTES];
  const size_t bytes = size < sizeof front ? (size_t)size : sizeof front;
  HARK_TRY(hark_file_read_at(context, descriptor, path, front, bytes, 0));
  const char *const what = hark_foreign_file(front, bytes);
  return what == NULL ? HARK_OK : hark_fail(context, HARK_BAD_FILE, "%s: is %s, expected %s", path, what, expected);
}

hark_status hark_path_refuse_foreign(hark_context *context, const char *path, const char *expected) {
  int descriptor;
  uint64_t size;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size)); /* which refuses pointers */
  const hark_status status = hark_file_refuse_foreign(context, path, descriptor, size, expected);
  hark_file_close(&descriptor);
  return status;
}

hark_status hark_file_read_at(hark_context *context, int descriptor, const char *path, void *data, size_t bytes, uint64_t offset) {
  char *at = data;
  if (offset > (uint64_t)INT64_MAX - bytes) return hark_fail(context, HARK_TOO_LARGE, "%s: offset %" PRIu64, path, offset);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor, at, bytes < CALL_BYTES ? bytes : CALL_BYTES, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return hark_system_fail(context, errno, path, "cannot be read");
    if (got == 0) {
      return hark_fail(context, HARK_BAD_FILE, "%s: ends at byte %" PRIu64 ", %zu more bytes expected", path, offset, bytes);
    }
    at += got;
    bytes -= (size_t)got;
    offset += (uint64_t)got;
  }
  return HARK_OK;
}

hark_status hark_file_begins_with(hark_context *context, const char *path, const char *beginning, bool *begins) {
  char first[256];
  int descriptor = -1;
  uint64_t size = 0;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  const size_t bytes = size < sizeof first ? (size_t)size : sizeof first;
  const hark_status status = hark_file_read_at(context, descriptor, path, first, bytes, 0);
  hark_file_close(&descriptor);
  *begins = status == HARK_OK;
  for (size_t i = 0; i < bytes && *begins; i++) {
    if (first[i] == ' ' || first[i] == '\n') continue;
    beginning += strspn(beginning, " \n");
    if (*beginning == '\0') break;
    *begins = first[i] == *beginning++;
  }
  return status;
}

hark_status hark_file_summarise(hark_context *context, const char *path, hark_file_summary *out) {
  int descriptor;
  uint64_t size;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  void *part;
  hark_status status = hark_allocate(context, PART_BYTES, &part);
  hark_sha256 hash;
  hark_sha256_begin(&hash);
  out->bytes = 0;
  while (status == HARK_OK) {
    const ssize_t got = read_again(descriptor, part, PART_BYTES);
    if (got < 0) status = hark_system_fail(context, errno, path, "cannot be read");
    if (got <= 0) break;
    hark_sha256_add(&hash, part, (size_t)got);
    out->bytes += (uint64_t)got;
  }
  if (part != NULL) hark_release(context, part, PART_BYTES);
  hark_file_close(&descriptor);
  hark_sha256_end(&hash, out->sha256);
  return status;
}

hark_status hark_file_truncate(hark_context *context, const char *path, uint64_t bytes) {
  int descriptor = hark_open_again(path, O_WRONLY, 0);
  if (descriptor < 0) return hark_system_fail(context, errno, path, "cannot be opened");
  struct stat information;
  hark_status status = HARK_OK;
  if (fstat(descriptor, &information) != 0) {
    status = hark_system_fail(context, errno, path, "cannot be examined");
  } else if ((uint64_t)information.st_size < bytes) {
    status = hark_fail(context, HARK_BAD_FILE, "%s: has %" PRId64 " bytes, at least %" PRIu64 " expected", path,
                       (int64_t)information.st_size, bytes);
  } else if (hark_cut_again(descriptor, (off_t)bytes) != 0 || hark_sync_again(descriptor) != 0) {
    status = hark_system_fail(context, errno, path, "cannot be cut");
  }
  hark_file_close(&descriptor);
  return status;
}

hark_status hark_file_remove(hark_context *context, const char *path) {
  if (unlink(path) != 0 && errno != ENOENT) return hark_system_fail(context, errno, path, "cannot be removed");
  return HARK_OK;
}
