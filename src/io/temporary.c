/* temporary.c - see temporary.h. */
#define _GNU_SOURCE /* syscall */
#include "io/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#include "io/number.h"
#include "io/system_error.h"

static const char mark[] = ".tmp-";

/* Bytes of a name that its temporary file's name contains: all, unless the name with the mark would be too long for the system. */
#define KEPT_BYTES (255 - 40)
static int kept_bytes(const char *name) {
  const size_t length = strlen(name);
  return length < KEPT_BYTES ? (int)length : KEPT_BYTES;
}

hark_status hark_temporary_name(hark_context *context, const char *path, int number, char out[HARK_PATH_BYTES]) {
  const char *const name = hark_path_name(path);
  const int used =
      snprintf(out, HARK_PATH_BYTES, "%.*s.%.*s%s%ld-%d", (int)(name - path), path, kept_bytes(name), name, mark, (long)getpid(), number);
  if (used >= 0 && used < HARK_PATH_BYTES) return HARK_OK;
  return hark_fail(context, HARK_IO_ERROR, "%.64s...: path of %zu bytes", path, strlen(path));
}

/* ---- notes ---- */

enum { FREE, TAKEN, NOTED };

hark_temporary_slot *hark_temporary_note(const hark_context *context, const char *path) {
  const size_t length = strlen(path);
  if (context->temporaries == NULL || length >= HARK_PATH_BYTES) return NULL;
  for (int i = 0; i < HARK_TEMPORARY_SLOTS; i++) {
    hark_temporary_slot *const slot = &context->temporaries->slots[i];
    int expected = FREE;
    if (!atomic_compare_exchange_strong(&slot->state, &expected, TAKEN)) continue;
    memcpy(slot->path, path, length + 1);
    slot->process = getpid();
    atomic_store(&slot->state, NOTED);
    return slot;
  }
  return NULL;
}

void hark_temporary_forget(hark_temporary_slot **note) {
  if (*note != NULL) atomic_store(&(*note)->state, FREE);
  *note = NULL;
}

#ifdef __linux__
/* An entry of the system call's list of names: readdir must not be called in a handler. */
typedef struct entry {
  uint64_t number;
  int64_t next;
  unsigned short bytes;
  unsigned char type;
  char name[];
} entry;

/* Removes the files in a folder. */
static void empty_folder(int folder) {
  _Alignas(entry) char part[2048];
  for (long got; (got = syscall(SYS_getdents64, folder, part, sizeof part)) > 0;) {
    for (long at = 0; at < got;) {
      const entry *const one = (const entry *)(const void *)(part + at);
      if (strcmp(one->name, ".") != 0 && strcmp(one->name, "..") != 0) (void)unlinkat(folder, one->name, 0);
      at += one->bytes;
    }
  }
}
#else
static void empty_folder(int folder) { (void)folder; }
#endif

#define ROUNDS 3 /* other threads continue, and may create one more file */

void hark_temporary_remove_all(hark_temporaries *notes) {
  const int error = errno;
  for (int i = 0; i < HARK_TEMPORARY_SLOTS; i++) {
    hark_temporary_slot *const slot = &notes->slots[i];
    if (atomic_load(&slot->state) != NOTED || slot->process != getpid()) continue;
    if (unlink(slot->path) == 0 || errno == ENOENT) continue;
    for (int round = 0; round < ROUNDS; round++) {
      const int folder = open(slot->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (folder < 0) break;
      empty_folder(folder);
      (void)close(folder);
      if (rmdir(slot->path) == 0) break;
    }
  }
  errno = error;
}

/* ---- folders ---- */

/* Locks a new folder. *ours is false if another process has treated it as abandoned before it was locked. */
static hark_status lock_folder(hark_context *context, hark_temporary_folder *folder, bool *ours) {
  struct stat information;
  folder->descriptor = hark_open_again(folder->path, O_RDONLY | O_DIRECTORY, 0);
  *ours = folder->descriptor >= 0;
  if (!*ours) return errno == ENOENT ? HARK_OK : hark_system_fail(context, errno, folder->path, "cannot be opened");
  /* a file system without locks: no process can lock it, and no process removes files that cannot be locked */
  if (flock(folder->descriptor, LOCK_EX | LOCK_NB) != 0) *ours = errno != EWOULDBLOCK;
  if (fstat(folder->descriptor, &information) != 0) return hark_system_fail(context, errno, folder->path, "cannot be examined");
  if (information.st_nlink == 0) *ours = false;
  return HARK_OK;
}

hark_status hark_temporary_folder_make(hark_context *context, const char *path, mode_t mode, hark_temporary_folder *out) {
  *out = (hark_temporary_folder){.descriptor = -1};
  for (int number = 0; number < HARK_TEMPORARY_TRIES; number++) {
    HARK_TRY(hark_temporary_name(context, path, number, out->path));
    bool ours = mkdir(out->path, mode) == 0;
    if (!ours && errno != EEXIST) return hark_system_fail_output(context, errno, out->path, "cannot be made a folder");
    if (!ours) continue;
    out->note = hark_temporary_note(context, out->path);
    const hark_status status = lock_folder(context, out, &ours);
    if (status == HARK_OK && ours) return HARK_OK;
    if (status != HARK_OK) (void)rmdir(out->path);
    hark_temporary_folder_end(out);
    HARK_TRY(status);
  }
  return hark_fail(context, HARK_IO_ERROR, "%s: cannot be made a folder: its name is taken", out->path);
}

void hark_temporary_folder_end(hark_temporary_folder *folder) {
  hark_file_close(&folder->descriptor);
  hark_temporary_forget(&folder->note);
}

/* ---- files of killed processes ---- */

/* Reads "PID-N" or, of a folder that an earlier hark made, "PID". */
static bool read_mark(const char *text, int64_t *process, bool *numbered) {
  const size_t digits = strspn(text, "0123456789");
  int64_t number;
  *numbered = text[digits] == '-';
  if (text[digits] != '\0' && (!*numbered || !hark_number_read_whole(text + digits + 1, strlen(text + digits + 1), &number))) return false;
  return hark_number_read_whole(text, digits, process) && *process >= 1 && *process <= INT32_MAX;
}

/* True if no process has locked it, on this machine or, with a shared disk, on another one, which has separate process numbers. */
static bool is_unlocked(const char *path, bool is_folder) {
  int descriptor = hark_open_again(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | (is_folder ? O_DIRECTORY : 0), 0);
  if (descriptor < 0) return false;
  const bool locked = flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  hark_file_close(&descriptor);
  return locked;
}

bool hark_temporary_is_abandoned(const char *path, bool *folder) {
  const char *const name = hark_path_name(path), *at = NULL;
  struct stat information;
  int64_t process;
  bool numbered;
  for (const char *next = strstr(name, mark); next != NULL; next = strstr(next + 1, mark)) at = next;
  if (name[0] != '.' || at == NULL || at == name || !read_mark(at + sizeof mark - 1, &process, &numbered)) return false;
  if (lstat(path, &information) != 0) return false;
  *folder = S_ISDIR(information.st_mode);
  const bool runs = kill((pid_t)process, 0) == 0 || errno != ESRCH;
  /* Folders of an earlier hark have no number and no lock. */
  return (*folder ? numbered || !runs : numbered && !runs) && is_unlocked(path, *folder);
}

hark_status hark_path_clean(hark_context *context, const char *path) {
  char target[HARK_PATH_BYTES], folder[HARK_PATH_BYTES], file[HARK_PATH_BYTES], prefix[HARK_NAME_BYTES + sizeof mark + 1];
  int descriptor;
  bool is_folder;
  hark_names names;
  HARK_TRY(hark_path_follow(context, path, target, &descriptor));
  const char *const name = hark_path_name(target);
  const int used = snprintf(prefix, sizeof prefix, ".%.*s%s", kept_bytes(name), name, mark);
  if (descriptor >= 0 || name[0] == '\0' || used < 0 || (size_t)used >= sizeof prefix) return HARK_OK;
  memcpy(folder, target, (size_t)(name - target));
  folder[name - target] = '\0';
  char message[HARK_MESSAGE_BYTES]; /* errors here are not failures of the caller's work */
  memcpy(message, context->message, sizeof message);
  hark_status status = hark_folder_list(context, folder[0] != '\0' ? folder : ".", &names);
  for (int64_t i = 0; i < names.count && status != HARK_OUT_OF_MEMORY; i++) {
    if (strncmp(names.items[i], prefix, (size_t)used) != 0) continue;
    status = hark_path_join(context, folder, names.items[i], file);
    if (status != HARK_OK || !hark_temporary_is_abandoned(file, &is_folder)) continue;
    status = is_folder ? hark_folder_remove(context, file) : hark_file_remove(context, file);
  }
  hark_names_free(context, &names);
  if (status == HARK_OUT_OF_MEMORY) return status;
  memcpy(context->message, message, sizeof message);
  return HARK_OK;
}

/* ---- links ---- */

#define LINKS 40 /* the limit of Linux */

static int descriptor_of(const char *path) {
  static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/"};
  static const char *const names[] = {"/dev/stdin", "/dev/stdout", "/dev/stderr"};
  int64_t number;
  for (int i = 0; i < 3; i++) {
    if (strcmp(path, names[i]) == 0) return i;
    const size_t length = strlen(folders[i]);
    if (strncmp(path, folders[i], length) == 0 && hark_number_read_whole(path + length, strlen(path + length), &number) &&
        number <= INT32_MAX && number >= 0)
      return (int)number;
  }
  return -1;
}

hark_status hark_path_follow(hark_context *context, const char *path, char out[HARK_PATH_BYTES], int *descriptor) {
  char link[HARK_PATH_BYTES], folder[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, "", path, out));
  for (int i = 0; i < LINKS; i++) {
    *descriptor = descriptor_of(out);
    if (*descriptor >= 0) return HARK_OK;
    const ssize_t length = readlink(out, link, sizeof link - 1);
    if (length < 0) return HARK_OK; /* not a link, or missing; opening it later reports other errors */
    link[length] = '\0';
    const size_t above = (size_t)(hark_path_name(out) - out);
    memcpy(folder, out, above);
    folder[above] = '\0';
    HARK_TRY(hark_path_join(context, folder, link, out));
  }
  return hark_system_fail(context, ELOOP, path, "cannot be followed");
}
