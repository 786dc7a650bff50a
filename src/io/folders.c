/* folders.c - folders and paths: make, list, remove, rename, lock, free space. Declared in files.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "io/files.h"
#include "io/number.h"
#include "io/system_error.h"
#include "io/temporary.h"

hark_status hark_system_fail(hark_context *context, int error, const char *path, const char *what) {
  char text[128];
  if (strerror_r(error, text, sizeof text) != 0) snprintf(text, sizeof text, "system error %d", error);
  const bool missing = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG; /* no path of such a length exists */
  const hark_status status = missing ? HARK_NOT_FOUND : error == ENOMEM ? HARK_OUT_OF_MEMORY : HARK_IO_ERROR;
  return hark_fail(context, status, "%.300s: %s: %s", path, what, text);
}

hark_status hark_system_fail_output(hark_context *context, int error, const char *path, const char *what) {
  const hark_status status = hark_system_fail(context, error, path, what);
  return status == HARK_NOT_FOUND ? HARK_IO_ERROR : status;
}

/* Returns 0, or the system's error; a missing path is not an error. */
static int kind_of(const char *path, hark_path_kind *out) {
  struct stat information;
  *out = HARK_PATH_NONE;
  if (stat(path, &information) != 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
  *out = S_ISREG(information.st_mode) ? HARK_PATH_FILE : S_ISDIR(information.st_mode) ? HARK_PATH_FOLDER : HARK_PATH_OTHER;
  return 0;
}

hark_path_kind hark_path_kind_of(const char *path) {
  hark_path_kind kind;
  (void)kind_of(path, &kind);
  return kind;
}

hark_status hark_path_examine(hark_context *context, const char *path, hark_path_kind *out) {
  const int error = kind_of(path, out);
  return error == 0 ? HARK_OK : hark_system_fail(context, error, path, "cannot be examined");
}

hark_status hark_path_is_link(hark_context *context, const char *path, bool *is) {
  struct stat information;
  const int error = lstat(path, &information) == 0 ? 0 : errno;
  *is = error == 0 && S_ISLNK(information.st_mode);
  return error == 0 || error == ENOENT || error == ENOTDIR ? HARK_OK : hark_system_fail(context, error, path, "cannot be examined");
}

const char *hark_path_name(const char *path) {
  const char *const slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

size_t hark_path_common(const char *first, size_t most, const char *other) {
  size_t common = 0;
  for (size_t i = 0; i < most && first[i] != '\0' && first[i] == other[i]; i++) {
    const size_t next = i + 1;
    if (first[i] == '/' && first[next + strspn(first + next, "/")] != '\0' && other[next + strspn(other + next, "/")] != '\0')
      common = next;
  }
  return common;
}

hark_status hark_path_join(hark_context *context, const char *folder, const char *name, char *out) {
  const size_t length = strlen(folder);
  int used;
  if (length == 0 || name[0] == '/') {
    used = snprintf(out, HARK_PATH_BYTES, "%s", name);
  } else {
    used = snprintf(out, HARK_PATH_BYTES, "%s%s%s", folder, folder[length - 1] == '/' ? "" : "/", name);
  }
  if (used < 0 || used >= HARK_PATH_BYTES)
    return hark_fail(context, HARK_NOT_FOUND, "%.64s...: path of more than %d bytes", length > 0 ? folder : name, HARK_PATH_BYTES - 1);
  return HARK_OK;
}

bool hark_name_is_plain(const char *name) {
  if (name[0] == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strlen(name) >= HARK_NAME_BYTES) return false;
  for (const unsigned char *at = (const unsigned char *)name; *at != 0; at++) {
    if (*at == '/' || *at < 0x20 || *at == 0x7f) return false;
  }
  return true;
}

hark_status hark_folder_make(hark_context *context, const char *path) {
  char part[HARK_PATH_BYTES];
  const size_t length = strlen(path);
  if (length >= sizeof part) return hark_fail(context, HARK_IO_ERROR, "%.64s...: path of %zu bytes", path, length);
  if (length == 0) return hark_fail(context, HARK_INVALID_ARGUMENT, "an empty path is not a folder");
  for (size_t at = 1; at <= length; at++) {
    if (at < length && path[at] != '/') continue;
    memcpy(part, path, at);
    part[at] = 0;
    if (mkdir(part, 0777) == 0) {
      HARK_TRY(hark_parent_sync(context, part));
      continue;
    }
    const int error = errno; /* an existing folder may be reported as EEXIST, EACCES or EROFS */
    if (hark_path_kind_of(part) != HARK_PATH_FOLDER) return hark_system_fail_output(context, error, part, "cannot be made a folder");
  }
  return HARK_OK;
}

/* Cuts the last name, and the slashes before and after it; the folder above a single name is ".". */
static void cut_name(char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  while (length > 0 && path[length - 1] != '/') length--;
  while (length > 1 && path[length - 1] == '/') length--;
  (void)snprintf(path + length, 2, "%s", length == 0 ? "." : "");
}

hark_status hark_folder_check(hark_context *context, const char *path) {
  char part[HARK_PATH_BYTES];
  struct stat information;
  if (path[0] == '\0') return hark_fail(context, HARK_INVALID_ARGUMENT, "an empty path is not a folder");
  HARK_TRY(hark_path_join(context, "", path, part));
  while (lstat(part, &information) != 0 && errno == ENOENT && strcmp(part, ".") != 0) cut_name(part);
  if (stat(part, &information) != 0) return hark_system_fail_output(context, errno, part, "cannot be a folder");
  if (!S_ISDIR(information.st_mode)) return hark_fail(context, HARK_IO_ERROR, "%s: is a file, expected a folder", part);
  if (faccessat(AT_FDCWD, part, W_OK | X_OK, AT_EACCESS) == 0) return HARK_OK;
  return hark_system_fail_output(context, errno, part, "cannot be written");
}

hark_status hark_folder_claim(hark_context *context, const char *path, bool *claimed) {
  *claimed = mkdir(path, 0777) == 0;
  if (*claimed) return hark_parent_sync(context, path);
  return errno == EEXIST ? HARK_OK : hark_system_fail_output(context, errno, path, "cannot be made a folder");
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Appends all names, each with its zero byte. */
static hark_status gather_names(hark_context *context, DIR *folder, const char *path, hark_text *names, int64_t *count) {
  for (;;) {
    errno = 0;
    const struct dirent *const entry = readdir(folder);
    if (entry == NULL) return errno != 0 ? hark_system_fail(context, errno, path, "cannot be listed") : HARK_OK;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    hark_text_append_bytes(names, entry->d_name, strlen(entry->d_name) + 1);
    HARK_TRY(names->status);
    ++*count;
  }
}

hark_status hark_folder_list(hark_context *context, const char *path, hark_names *out) {
  *out = (hark_names){0};
  DIR *const folder = opendir(path);
  if (folder == NULL) return hark_system_fail(context, errno, path, "cannot be listed");
  hark_text names = hark_text_empty(context);
  int64_t count = 0;
  hark_status status = gather_names(context, folder, path, &names, &count);
  (void)closedir(folder);
  if (status == HARK_OK && count > 0) {
    const size_t pointers = (size_t)count * sizeof(char *);
    void *block;
    status = hark_allocate(context, pointers + names.length, &block);
    if (status == HARK_OK) {
      *out = (hark_names){block, count, pointers + names.length};
      char *at = (char *)block + pointers;
      memcpy(at, names.data, names.length);
      for (int64_t i = 0; i < count; i++, at += strlen(at) + 1) out->items[i] = at;
      qsort(out->items, (size_t)count, sizeof(char *), by_bytes);
    }
  }
  hark_text_free(&names);
  return status;
}

void hark_names_free(hark_context *context, hark_names *names) {
  if (names->items != NULL) hark_release(context, names->items, names->bytes);
  *names = (hark_names){0};
}

/* Removes the file or folder at path; a folder after its contents. */
static hark_status remove_tree(hark_context *context, const char *path, int depth) {
  struct stat information;
  if (lstat(path, &information) != 0) return hark_system_fail(context, errno, path, "cannot be examined");
  if (!S_ISDIR(information.st_mode)) return hark_file_remove(context, path);
  if (depth >= HARK_FOLDER_DEPTH) return hark_fail(context, HARK_IO_ERROR, "%s: deeper than any folder that hark writes; left alone", path);
  hark_names names;
  HARK_TRY(hark_folder_list(context, path, &names));
  hark_status status = HARK_OK;
  void *inner = NULL;
  if (names.count > 0) status = hark_allocate(context, HARK_PATH_BYTES, &inner);
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) {
    status = hark_path_join(context, path, names.items[i], inner);
    if (status == HARK_OK) status = remove_tree(context, inner, depth + 1);
  }
  if (inner != NULL) hark_release(context, inner, HARK_PATH_BYTES);
  hark_names_free(context, &names);
  if (status == HARK_OK && rmdir(path) != 0) status = hark_system_fail(context, errno, path, "cannot be removed");
  return status;
}

hark_status hark_folder_remove(hark_context *context, const char *path) {
  struct stat information;
  if (lstat(path, &information) != 0) return hark_system_fail(context, errno, path, "cannot be examined");
  if (!S_ISDIR(information.st_mode)) return hark_fail(context, HARK_IO_ERROR, "%s: not a folder; left alone", path);
  return remove_tree(context, path, 0);
}

hark_status hark_path_remove(hark_context *context, const char *path) {
  struct stat information;
  if (lstat(path, &information) == 0) return remove_tree(context, path, 0);
  return errno == ENOENT || errno == ENOTDIR ? HARK_OK : hark_system_fail(context, errno, path, "cannot be examined");
}

hark_status hark_folder_sync(hark_context *context, const char *path) {
  int descriptor = hark_open_again(path, O_RDONLY | O_DIRECTORY, 0);
  if (descriptor < 0) return hark_system_fail(context, errno, path, "cannot be opened");
  const int result = hark_sync_again(descriptor), error = errno;
  hark_file_close(&descriptor);
  /* file systems that cannot flush a folder return EINVAL */
  if (result != 0 && error != EINVAL) return hark_system_fail_output(context, error, path, "cannot be flushed");
  return HARK_OK;
}

hark_status hark_parent_sync(hark_context *context, const char *path) {
  char folder[HARK_PATH_BYTES];
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  while (length > 0 && path[length - 1] != '/') length--;
  if (length >= sizeof folder) return hark_fail(context, HARK_IO_ERROR, "%.64s...: path of %zu bytes", path, length);
  memcpy(folder, path, length);
  folder[length] = 0;
  return hark_folder_sync(context, length > 0 ? folder : ".");
}

static hark_status sync_parents(hark_context *context, const char *from, const char *to) {
  HARK_TRY(hark_parent_sync(context, to));
  return hark_parent_sync(context, from);
}

hark_status hark_path_rename_if_possible(hark_context *context, const char *from, const char *to, bool *renamed) {
  *renamed = rename(from, to) == 0;
  if (!*renamed) return errno == EXDEV || errno == ENOENT ? HARK_OK : hark_system_fail(context, errno, from, "cannot be renamed");
  return sync_parents(context, from, to);
}

hark_status hark_path_rename(hark_context *context, const char *from, const char *to) {
  if (rename(from, to) != 0) return hark_system_fail(context, errno, from, "cannot be renamed");
  return sync_parents(context, from, to);
}

hark_status hark_folder_clean(hark_context *context, const char *path) {
  hark_names names;
  char file[HARK_PATH_BYTES];
  bool folder;
  HARK_TRY(hark_folder_list(context, path, &names));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) {
    status = hark_path_join(context, path, names.items[i], file);
    if (status == HARK_OK && hark_temporary_is_abandoned(file, &folder))
      status = folder ? hark_folder_remove(context, file) : hark_file_remove(context, file);
  }
  hark_names_free(context, &names);
  return status;
}

hark_status hark_disk_free(hark_context *context, const char *path, uint64_t *bytes) {
  struct statvfs information;
  if (statvfs(path, &information) != 0) return hark_system_fail(context, errno, path, "cannot be examined");
  *bytes = (uint64_t)information.f_bavail * (uint64_t)information.f_frsize;
  return HARK_OK;
}

/* Reports the failure of a requested lock; closes it. */
static hark_status refuse_lock(hark_context *context, const char *path, const char *name, int *opened) {
  const int error = errno;
  char text[32] = "";
  const ssize_t got = pread(*opened, text, sizeof text - 1, 0);
  hark_file_close(opened);
  if (error != EWOULDBLOCK) return hark_system_fail_output(context, error, name, "cannot be locked");
  int64_t process = 0;
  size_t length = 0;
  while (got > 0 && length < (size_t)got && text[length] >= '0' && text[length] <= '9') length++;
  if (!hark_number_read_whole(text, length, &process)) return hark_fail(context, HARK_BUSY, "%s: in use by another run", path);
  return hark_fail(context, HARK_BUSY, "%s: in use by process %" PRId64, path, process);
}

hark_status hark_folder_check_unlocked(hark_context *context, const char *path) {
  char name[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, path, HARK_LOCK_NAME, name));
  int opened = hark_open_again(name, O_RDONLY | O_NONBLOCK, 0); /* a pipe of this name would wait for a writer */
  if (opened < 0 && (errno == ENOENT || errno == ENOTDIR)) return HARK_OK;
  if (opened < 0) return hark_system_fail(context, errno, name, "cannot be opened");
  if (flock(opened, LOCK_SH | LOCK_NB) != 0) return refuse_lock(context, path, name, &opened);
  hark_file_close(&opened);
  return HARK_OK;
}

/* Refuses a lock with more than what hark_folder_lock writes, a number and a line end; it has less if the disk was full. */
static hark_status check_own_lock(hark_context *context, int opened, const char *name) {
  char text[32];
  ssize_t got;
  do got = pread(opened, text, sizeof text, 0);
  while (got < 0 && errno == EINTR);
  if (got < 0) return hark_system_fail(context, errno, name, "cannot be read");
  const size_t bytes = (size_t)got;
  size_t length = 0;
  while (length < bytes && text[length] >= '0' && text[length] <= '9') length++;
  if (bytes < sizeof text && (length == bytes || (length > 0 && length + 1 == bytes && text[length] == '\n'))) return HARK_OK;
  return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is no file of hark, and would be overwritten: move it, or choose another folder",
                   name);
}

hark_status hark_folder_lock(hark_context *context, const char *path, int *descriptor) {
  char name[HARK_PATH_BYTES], text[32] = "";
  *descriptor = -1;
  HARK_TRY(hark_path_join(context, path, HARK_LOCK_NAME, name));
  int opened = hark_open_again(name, O_RDWR | O_CREAT, 0666);
  if (opened < 0) return hark_system_fail_output(context, errno, name, "cannot be opened");
  if (flock(opened, LOCK_EX | LOCK_NB) != 0) return refuse_lock(context, path, name, &opened);
  const hark_status own = check_own_lock(context, opened, name);
  if (own != HARK_OK) {
    hark_file_close(&opened);
    return own;
  }
  /* the number is only for the message above: a failure to write it does not matter */
  const int used = snprintf(text, sizeof text, "%ld\n", (long)getpid());
  if (ftruncate(opened, 0) == 0 && pwrite(opened, text, (size_t)used, 0) != used) (void)ftruncate(opened, 0);
  *descriptor = opened;
  return HARK_OK;
}

void hark_folder_unlock(int *descriptor) { hark_file_close(descriptor); }
