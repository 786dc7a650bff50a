/* shim.c - see shim.h. Every wrapper is: place(), which counts and decides, then the C library's own function. */
#undef _FILE_OFFSET_BITS /* else the headers give open the name open64, and both are defined here */
#define _GNU_SOURCE
#include "fault/shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DESCRIPTORS 256
#define FOLDERS 16
#define SHIM __attribute__((visibility("default")))

static fault_plan plan;
static bool is_set;
static long calls;
static fault_call failed = {.name = "", .path = ""};
static char failed_path[FAULT_PATH_BYTES];
static char descriptor_paths[DESCRIPTORS][FAULT_PATH_BYTES]; /* "": not below the root */
static struct {
  DIR *folder;
  char path[FAULT_PATH_BYTES];
} folders[FOLDERS];

void fault_set(const fault_plan *given) {
  is_set = given != NULL;
  if (is_set) plan = *given;
  if (plan.groups == 0) plan.groups = FAULT_ON_ALL;
  calls = 0;
  failed = (fault_call){.name = "", .path = ""};
}

long fault_calls(void) { return calls; }
const char *fault_name(void) { return failed.name; }
const char *fault_path(void) { return failed.path; }

__attribute__((constructor)) static void set_from_environment(void) {
  static const struct {
    const char *name;
    fault_kind kind;
    int error;
    unsigned groups;
  } kinds[] = {{"kill", FAULT_KILL, 0, FAULT_ON_ALL},
               {"tear", FAULT_TEAR, 0, FAULT_ON_ALL},
               {"short", FAULT_SHORT, 0, FAULT_ON_MOVE},
               {"ENOSPC", FAULT_ERROR, ENOSPC, FAULT_ON_SPACE},
               {"EIO", FAULT_ERROR, EIO, FAULT_ON_ALL},
               {"EINTR", FAULT_ERROR, EINTR, FAULT_ON_WAITING},
               {"SIGINT", FAULT_SIGNAL, SIGINT, FAULT_ON_CHANGE},
               {"SIGTERM", FAULT_SIGNAL, SIGTERM, FAULT_ON_CHANGE},
               {"SIGHUP", FAULT_SIGNAL, SIGHUP, FAULT_ON_CHANGE},
               {"SIGUSR1", FAULT_SIGNAL, SIGUSR1, FAULT_ON_CHANGE}};
  const char *const root = getenv("HARK_FAULT_ROOT"), *const kind = getenv("HARK_FAULT_KIND"), *const at = getenv("HARK_FAULT_AT");
  if (root == NULL || kind == NULL || at == NULL) return;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, kind) != 0) continue;
    char *end;
    fault_plan given = {.kind = kinds[i].kind, .error = kinds[i].error, .groups = kinds[i].groups, .at = strtol(at, &end, 10)};
    given.onwards = *end == '+';
    snprintf(given.root, sizeof given.root, "%s", root);
    fault_set(&given);
  }
}

static bool is_below_root(const char *path) {
  const size_t length = strlen(plan.root);
  return is_set && length > 0 && strncmp(path, plan.root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static const char *path_of(int descriptor) { return descriptor >= 0 && descriptor < DESCRIPTORS ? descriptor_paths[descriptor] : ""; }

static const char *path_of_folder(const DIR *folder) {
  for (int i = 0; i < FOLDERS; i++)
    if (folders[i].folder == folder) return folders[i].path;
  return "";
}

static void end_here(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

/* Counts a call and says what becomes of it: true when the plan's fault strikes now. */
static bool place(const char *name, unsigned group, const char *path) {
  if (!is_below_root(path) || (group & plan.groups) == 0) return false;
  const long number = ++calls;
  if (plan.kind == FAULT_NONE || plan.at == 0 || number < plan.at || (number > plan.at && !plan.onwards)) return false;
  snprintf(failed_path, sizeof failed_path, "%s", path);
  failed = (fault_call){.name = name, .group = group, .path = failed_path};
  if (plan.kind == FAULT_KILL) end_here();
  if (plan.kind == FAULT_SIGNAL) (void)raise(plan.error);
  if (plan.kind == FAULT_ERROR) errno = plan.error;
  return true;
}

/* After a call that was made. */
static void after(const char *name, unsigned group, const char *path, const char *to, bool struck) {
  const int error = errno;
  if (struck && plan.kind == FAULT_TEAR) end_here();
  if (is_set && plan.watch != NULL && is_below_root(path)) {
    const fault_call call = {name, group, path, to};
    plan.watch(plan.user, &call);
  }
  errno = error;
}

/* The C library's function of that name, found once. */
#define NEXT(result, name, parameters)                                                                                                     \
  static result(*next) parameters;                                                                                                         \
  if (next == NULL) {                                                                                                                      \
    void *const symbol = dlsym(RTLD_NEXT, #name);                                                                                          \
    memcpy(&next, &symbol, sizeof symbol);                                                                                                 \
  }
/* The error is what becomes of the call. */
#define FAILS(struck) ((struck) && plan.kind == FAULT_ERROR)

#define OPENING(name)                                                                                                                      \
  SHIM int name(const char *path, int flags, ...) {                                                                                        \
    NEXT(int, name, (const char *, int, ...))                                                                                              \
    const unsigned group = (flags & O_CREAT) != 0 ? FAULT_ON_CREATE : FAULT_ON_OPEN;                                                       \
    mode_t mode = 0;                                                                                                                       \
    if ((flags & O_CREAT) != 0) {                                                                                                          \
      va_list arguments;                                                                                                                   \
      va_start(arguments, flags);                                                                                                          \
      mode = va_arg(arguments, mode_t);                                                                                                    \
      va_end(arguments);                                                                                                                   \
    }                                                                                                                                      \
    const bool struck = place("open", group, path);                                                                                        \
    if (FAILS(struck)) return -1;                                                                                                          \
    const int descriptor = next(path, flags, mode);                                                                                        \
    if (descriptor >= 0 && descriptor < DESCRIPTORS)                                                                                       \
      snprintf(descriptor_paths[descriptor], FAULT_PATH_BYTES, "%s", is_below_root(path) ? path : "");                                     \
    if (descriptor >= 0 || struck) after("open", group, path, NULL, struck);                                                               \
    return descriptor;                                                                                                                     \
  }
OPENING(open)
OPENING(open64)

SHIM int close(int descriptor) {
  NEXT(int, close, (int))
  char path[FAULT_PATH_BYTES];
  snprintf(path, sizeof path, "%s", path_of(descriptor));
  const bool struck = place("close", FAULT_ON_CLOSE, path);
  const int error = errno;
  if (descriptor >= 0 && descriptor < DESCRIPTORS) descriptor_paths[descriptor][0] = 0;
  const int result = next(descriptor);
  if (FAILS(struck)) {
    errno = error;
    return -1;
  }
  after("close", FAULT_ON_CLOSE, path, NULL, struck);
  return result;
}

/* Reads and writes, whose length the plan may change. */
#define MOVING(name, text, group, parameters, arguments)                                                                                   \
  SHIM ssize_t name parameters {                                                                                                           \
    NEXT(ssize_t, name, parameters)                                                                                                        \
    const bool struck = place(text, group, path_of(descriptor));                                                                           \
    if (FAILS(struck)) return -1;                                                                                                          \
    if (struck && plan.kind == FAULT_SHORT && bytes > 1) bytes = 1;                                                                        \
    if (struck && plan.kind == FAULT_TEAR && (group) == FAULT_ON_WRITE) bytes /= 2;                                                        \
    const ssize_t moved = next arguments;                                                                                                  \
    if (moved >= 0 || struck) after(text, group, path_of(descriptor), NULL, struck);                                                       \
    return moved;                                                                                                                          \
  }
MOVING(read, "read", FAULT_ON_READ, (int descriptor, void *data, size_t bytes), (descriptor, data, bytes))
MOVING(write, "write", FAULT_ON_WRITE, (int descriptor, const void *data, size_t bytes), (descriptor, data, bytes))
MOVING(pread, "pread", FAULT_ON_READ, (int descriptor, void *data, size_t bytes, off_t at), (descriptor, data, bytes, at))
MOVING(pread64, "pread", FAULT_ON_READ, (int descriptor, void *data, size_t bytes, off64_t at), (descriptor, data, bytes, at))
MOVING(pwrite, "pwrite", FAULT_ON_WRITE, (int descriptor, const void *data, size_t bytes, off_t at), (descriptor, data, bytes, at))
MOVING(pwrite64, "pwrite", FAULT_ON_WRITE, (int descriptor, const void *data, size_t bytes, off64_t at), (descriptor, data, bytes, at))

/* Calls that return 0 or -1; `path` is an expression. */
#define CALLING(name, text, group, path, to, parameters, arguments)                                                                        \
  SHIM int name parameters {                                                                                                               \
    NEXT(int, name, parameters)                                                                                                            \
    const bool struck = place(text, group, path);                                                                                          \
    if (FAILS(struck)) return -1;                                                                                                          \
    const bool idle = is_set && plan.unflushed && (group) == FAULT_ON_FLUSH && is_below_root(path);                                        \
    const int result = idle ? 0 : next arguments;                                                                                          \
    if (result == 0 || struck) after(text, group, path, to, struck);                                                                       \
    return result;                                                                                                                         \
  }
CALLING(fsync, "fsync", FAULT_ON_FLUSH, path_of(descriptor), NULL, (int descriptor), (descriptor))
CALLING(fdatasync, "fdatasync", FAULT_ON_FLUSH, path_of(descriptor), NULL, (int descriptor), (descriptor))
CALLING(ftruncate, "ftruncate", FAULT_ON_CUT, path_of(descriptor), NULL, (int descriptor, off_t bytes), (descriptor, bytes))
CALLING(ftruncate64, "ftruncate", FAULT_ON_CUT, path_of(descriptor), NULL, (int descriptor, off64_t bytes), (descriptor, bytes))
CALLING(rename, "rename", FAULT_ON_RENAME, from, to, (const char *from, const char *to), (from, to))
CALLING(unlink, "unlink", FAULT_ON_REMOVE, path, NULL, (const char *path), (path))
CALLING(rmdir, "rmdir", FAULT_ON_REMOVE, path, NULL, (const char *path), (path))
CALLING(mkdir, "mkdir", FAULT_ON_FOLDER, path, NULL, (const char *path, mode_t mode), (path, mode))
CALLING(flock, "flock", FAULT_ON_LOCK, path_of(descriptor), NULL, (int descriptor, int operation), (descriptor, operation))
CALLING(stat, "stat", FAULT_ON_LOOK, path, NULL, (const char *path, struct stat *out), (path, out))
CALLING(stat64, "stat", FAULT_ON_LOOK, path, NULL, (const char *path, struct stat64 *out), (path, out))
CALLING(lstat, "lstat", FAULT_ON_LOOK, path, NULL, (const char *path, struct stat *out), (path, out))
CALLING(lstat64, "lstat", FAULT_ON_LOOK, path, NULL, (const char *path, struct stat64 *out), (path, out))
CALLING(fstat, "fstat", FAULT_ON_LOOK, path_of(descriptor), NULL, (int descriptor, struct stat *out), (descriptor, out))
CALLING(fstat64, "fstat", FAULT_ON_LOOK, path_of(descriptor), NULL, (int descriptor, struct stat64 *out), (descriptor, out))

SHIM DIR *opendir(const char *path) {
  NEXT(DIR *, opendir, (const char *))
  const bool struck = place("opendir", FAULT_ON_LOOK, path);
  if (FAILS(struck)) return NULL;
  DIR *const folder = next(path);
  for (int i = 0; folder != NULL && is_below_root(path) && i < FOLDERS; i++) {
    if (folders[i].folder != NULL) continue;
    folders[i].folder = folder;
    snprintf(folders[i].path, FAULT_PATH_BYTES, "%s", path);
    break;
  }
  if (folder != NULL || struck) after("opendir", FAULT_ON_LOOK, path, NULL, struck);
  return folder;
}

SHIM int closedir(DIR *folder) {
  NEXT(int, closedir, (DIR *))
  for (int i = 0; i < FOLDERS; i++)
    if (folders[i].folder == folder) folders[i].folder = NULL;
  return next(folder);
}

#define LISTING(name, entry)                                                                                                               \
  SHIM struct entry *name(DIR *folder) {                                                                                                   \
    NEXT(struct entry *, name, (DIR *))                                                                                                    \
    const bool struck = place("readdir", FAULT_ON_LOOK, path_of_folder(folder));                                                           \
    if (FAILS(struck)) return NULL;                                                                                                        \
    struct entry *const found = next(folder);                                                                                              \
    if (found != NULL || struck) after("readdir", FAULT_ON_LOOK, path_of_folder(folder), NULL, struck);                                    \
    return found;                                                                                                                          \
  }
LISTING(readdir, dirent)
LISTING(readdir64, dirent64)
