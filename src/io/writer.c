/* writer.c - files: atomic writes. Declared in files.h.
 *
 * Create .NAME.tmp-PID-N in the folder of the target (O_EXCL), write, fsync, rename over the target, fsync the folder. POSIX rename
 * replaces in one step, so a reader sees the old or the new file, also after a crash. The first fsync keeps the data from arriving after
 * the name; the second makes the name itself durable. Rename would also replace a link, a device or a pipe by a file: so links are followed
 * first, and anything but a regular file is opened and written.
 */
#define _DEFAULT_SOURCE /* fchown, fchmod, sockets' modes */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files.h"
#include "io/system_error.h"
#include "io/temporary.h"

#define CALL_BYTES ((size_t)1 << 30) /* at most, in one system call: Linux stops a little below 2^31 */
#define PERMISSIONS (S_IRWXU | S_IRWXG | S_IRWXO)

/* Gives a new file the owner, the group and the permissions of the file that it replaces. If the group cannot be set, its members count as
 * others and get at most their permissions. */
static hark_status take_over(hark_context *context, const hark_writer *writer, const struct stat *old) {
  const int descriptor = writer->descriptor;
  struct stat made;
  mode_t mode = old->st_mode & (PERMISSIONS | S_ISUID | S_ISGID | S_ISVTX);
  if (fstat(descriptor, &made) != 0) return hark_system_fail_output(context, errno, writer->path, "cannot be examined");
  const bool owner = made.st_uid == old->st_uid && made.st_gid == old->st_gid;
  if (!owner && fchown(descriptor, old->st_uid, old->st_gid) != 0) {
    mode &= PERMISSIONS;
    if (made.st_gid != old->st_gid && fchown(descriptor, (uid_t)-1, old->st_gid) != 0)
      mode = (mode & (S_IRWXU | S_IRWXO)) | ((mode & S_IRWXG) & ((mode & S_IRWXO) << 3));
  }
  if ((made.st_mode & (PERMISSIONS | S_ISUID | S_ISGID | S_ISVTX)) != mode || !owner) (void)fchmod(descriptor, mode);
  return HARK_OK;
}

/* Locks a new file while it is written, against cleaning processes on other machines that share the disk. *ours is false if one of them has
 * treated it as abandoned before it was locked. */
static hark_status lock_new(hark_context *context, hark_writer *writer, bool *ours) {
  struct stat information;
  (void)flock(writer->descriptor, LOCK_EX | LOCK_NB); /* a file system without locks: no process removes files that cannot be locked */
  if (fstat(writer->descriptor, &information) != 0) {
    const hark_status status = hark_system_fail_output(context, errno, writer->path, "cannot be examined");
    (void)unlink(writer->temporary);
    hark_file_close(&writer->descriptor);
    return status;
  }
  *ours = information.st_nlink > 0;
  if (!*ours) hark_file_close(&writer->descriptor);
  return HARK_OK;
}

/* `old` is NULL if nothing is replaced. */
static hark_status open_temporary(hark_context *context, hark_writer *writer, const struct stat *old) {
  for (int number = 0; number < HARK_TEMPORARY_TRIES; number++) {
    HARK_TRY(hark_temporary_name(context, writer->target, number, writer->temporary));
    const mode_t mode = old != NULL ? old->st_mode & PERMISSIONS : 0666; /* never more than the old file's, at any time */
    writer->descriptor = hark_open_again(writer->temporary, O_WRONLY | O_CREAT | O_EXCL, mode);
    bool ours = false;
    if (writer->descriptor >= 0) {
      HARK_TRY(lock_new(context, writer, &ours));
      if (!ours) continue;
    }
    if (writer->descriptor >= 0) {
      writer->note = hark_temporary_note(context, writer->temporary);
      writer->open = true;
      const hark_status status = old != NULL ? take_over(context, writer, old) : HARK_OK;
      if (status != HARK_OK) hark_writer_discard(writer);
      return status;
    }
    if (errno != EEXIST) break;
  }
  return hark_system_fail_output(context, errno, writer->path, "cannot be written");
}

/* True for a standard descriptor that is open only so that no file gets its number. */
static bool was_closed(const hark_context *context, int descriptor) {
  return context->temporaries != NULL && descriptor <= STDERR_FILENO && (context->temporaries->closed_streams >> descriptor & 1u) != 0;
}

static hark_status check_descriptor(hark_context *context, const char *path, int descriptor) {
  if (was_closed(context, descriptor)) return hark_system_fail_output(context, EBADF, path, "cannot be written");
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags < 0) return hark_system_fail_output(context, errno, path, "cannot be written");
  if ((flags & O_ACCMODE) != O_RDONLY) return HARK_OK;
  return hark_fail(context, HARK_IO_ERROR, "%s: cannot be written: open for reading only", path);
}

/* Opens a copy of a descriptor, which can be closed separately. */
static hark_status open_copy(hark_context *context, hark_writer *writer, int descriptor) {
  HARK_TRY(check_descriptor(context, writer->path, descriptor));
  writer->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  return writer->descriptor >= 0 ? HARK_OK : hark_system_fail_output(context, errno, writer->path, "cannot be written");
}

static hark_status refuse_folder(hark_context *context, const char *path) {
  return hark_fail(context, HARK_IO_ERROR, "%s: is a folder, expected a file", path);
}

static hark_status open_target(hark_context *context, hark_writer *writer) {
  struct stat information;
  int descriptor;
  HARK_TRY(hark_path_follow(context, writer->path, writer->target, &descriptor));
  writer->straight = descriptor >= 0;
  if (writer->straight) return open_copy(context, writer, descriptor);
  if (stat(writer->path, &information) != 0) {
    /* ENOENT, or another error that creating the new file reports too */
    return errno == EIO ? hark_system_fail_output(context, errno, writer->path, "cannot be examined")
                        : open_temporary(context, writer, NULL);
  }
  if (S_ISREG(information.st_mode)) return open_temporary(context, writer, &information);
  if (S_ISDIR(information.st_mode)) return refuse_folder(context, writer->path);
  writer->straight = true;
  writer->descriptor = hark_open_again(writer->path, O_WRONLY | O_NOCTTY, 0);
  return writer->descriptor >= 0 ? HARK_OK : hark_system_fail_output(context, errno, writer->path, "cannot be written");
}

hark_status hark_writer_open(hark_context *context, hark_writer *writer, const char *path) {
  const size_t length = strlen(path);
  writer->open = writer->straight = false;
  writer->descriptor = -1;
  writer->note = NULL;
  writer->bytes = 0;
  if (length + 1 > sizeof writer->path) return hark_fail(context, HARK_IO_ERROR, "%.64s...: path of %zu bytes", path, length);
  if (hark_path_name(path)[0] == '\0') return hark_fail(context, HARK_INVALID_ARGUMENT, "\"%s\": no file name", path);
  memcpy(writer->path, path, length + 1);
  HARK_TRY(open_target(context, writer));
  writer->open = true;
  hark_sha256_begin(&writer->hash);
  return HARK_OK;
}

/* Whether a file can be made next to the file at the end of all links, whose name is cut off. */
static hark_status check_beside(hark_context *context, char *target) {
  target[hark_path_name(target) - target] = '\0';
  const char *const folder = target[0] != '\0' ? target : ".";
  if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0) return HARK_OK;
  return hark_system_fail_output(context, errno, folder, "cannot be written");
}

hark_status hark_writer_check(hark_context *context, const char *path) {
  char target[HARK_PATH_BYTES];
  struct stat information;
  int descriptor;
  HARK_TRY(hark_path_follow(context, path, target, &descriptor));
  if (descriptor >= 0) return check_descriptor(context, path, descriptor);
  const int error = stat(path, &information) == 0 ? 0 : errno;
  if (error != 0 && error != ENOENT) return hark_system_fail_output(context, error, path, "cannot be written");
  if (error == 0 && S_ISDIR(information.st_mode)) return refuse_folder(context, path);
  if (hark_path_name(path)[0] == '\0') return hark_fail(context, HARK_INVALID_ARGUMENT, "\"%s\": no file name", path);
  if (error != 0 || S_ISREG(information.st_mode)) return check_beside(context, target);
  if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0) return HARK_OK;
  return hark_system_fail_output(context, errno, path, "cannot be written");
}

hark_status hark_writer_append(hark_context *context, hark_writer *writer, const void *data, size_t bytes) {
  if (!writer->open) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: the writer is not open", writer->path);
  const char *at = data;
  if (bytes > 0) hark_sha256_add(&writer->hash, data, bytes);
  writer->bytes += bytes;
  while (bytes > 0) {
    const ssize_t put = write(writer->descriptor, at, bytes < CALL_BYTES ? bytes : CALL_BYTES);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return hark_system_fail_output(context, errno, writer->path, "cannot be written");
    at += put;
    bytes -= (size_t)put;
  }
  return HARK_OK;
}

void hark_writer_discard(hark_writer *writer) {
  if (!writer->open) return;
  hark_file_close(&writer->descriptor);
  if (!writer->straight) (void)unlink(writer->temporary);
  hark_temporary_forget(&writer->note);
  writer->open = false;
}

/* Pipes and devices have nothing to flush, and report it with several errors. */
static bool cannot_flush(int error) { return error == EINVAL || error == EROFS || error == ENOTSUP; }

hark_status hark_writer_commit(hark_context *context, hark_writer *writer, hark_file_summary *summary) {
  if (!writer->open) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: the writer is not open", writer->path);
  hark_status status = HARK_OK;
  if (hark_sync_again(writer->descriptor) != 0 && !(writer->straight && cannot_flush(errno))) {
    status = hark_system_fail_output(context, errno, writer->path, "cannot be flushed");
  } else {
    const int descriptor = writer->descriptor;
    writer->descriptor = -1;
    if (close(descriptor) != 0 && errno != EINTR) { /* network file systems report a full disk here */
      status = hark_system_fail_output(context, errno, writer->path, "cannot be closed");
    } else if (!writer->straight && rename(writer->temporary, writer->target) != 0) {
      status = hark_system_fail_output(context, errno, writer->path, "cannot be replaced");
    }
  }
  if (status != HARK_OK) {
    hark_writer_discard(writer);
    return status;
  }
  hark_temporary_forget(&writer->note);
  writer->open = false;
  if (summary != NULL) {
    summary->bytes = writer->bytes;
    hark_sha256_end(&writer->hash, summary->sha256);
  }
  return writer->straight ? HARK_OK : hark_parent_sync(context, writer->target);
}

hark_status hark_file_write(hark_context *context, const char *path, const void *data, size_t bytes) {
  hark_writer writer = {0};
  HARK_TRY(hark_writer_open(context, &writer, path));
  hark_status status = hark_writer_append(context, &writer, data, bytes);
  if (status == HARK_OK) status = hark_writer_commit(context, &writer, NULL);
  hark_writer_discard(&writer);
  return status;
}
