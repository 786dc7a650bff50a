/* files.h - files and folders, so that what was written is there after a crash and what was not is not.
 *
 * Every message names the path. A path that does not exist is HARK_NOT_FOUND, everything else that the system says is HARK_IO_ERROR.
 * Interrupted and partial reads and writes are continued.
 *
 *   whole files     read (with a limit), write
 *   atomic writer   open, append, commit | discard
 *   reading parts   open, read_at, close
 *   folders         make, list, remove, clean, sync, lock
 *   paths           kind, examine, join, rename, truncate, free space
 */
#ifndef HARK_IO_FILES_H
#define HARK_IO_FILES_H

#include "core/core.h"
#include "io/sha256.h"
#include "io/text.h"

#define HARK_PATH_BYTES 4096 /* longest path, its zero byte included */
#define HARK_NAME_BYTES 256  /* longest name in a folder, its zero byte included */

/* Reads a whole file (or pipe) into `out`, an empty text that the caller frees. More than `limit` bytes: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_file_read(hark_context *context, const char *path, size_t limit, hark_text *out);

/* Replaces a file by `bytes` bytes, as an atomic writer does: after a crash the old or the new contents are there, whole. */
HARK_MUST_CHECK hark_status hark_file_write(hark_context *context, const char *path, const void *data, size_t bytes);

/* What was written: for manifests. */
typedef struct hark_file_summary {
  uint64_t bytes;
  char sha256[HARK_SHA256_TEXT_BYTES];
} hark_file_summary;

/* An atomic write in parts. The data go to a temporary file beside the one that is to be; commit flushes it, renames it and flushes the
 * folder; discard removes it. Zero the struct before open; commit and discard end it, also when they fail; discard of an ended writer does
 * nothing.
 *
 * Links stay: what they name is written. A file that is replaced hands on its permissions, and its owner and group where the system lets
 * us. What is no regular file - a device, a pipe, an open descriptor by a name such as /dev/stdout - is not replaced: the data go straight
 * into it, and `straight` is true. A folder is HARK_IO_ERROR. */
typedef struct hark_writer {
  bool open, straight;
  int descriptor;
  struct hark_temporary_slot *note; /* of the temporary file, for programs that a signal ends */
  uint64_t bytes;
  hark_sha256 hash;
  char path[HARK_PATH_BYTES];   /* as it was given: for messages */
  char target[HARK_PATH_BYTES]; /* with links followed */
  char temporary[HARK_PATH_BYTES];
} hark_writer;

HARK_MUST_CHECK hark_status hark_writer_open(hark_context *context, hark_writer *writer, const char *path);
HARK_MUST_CHECK hark_status hark_writer_append(hark_context *context, hark_writer *writer, const void *data, size_t bytes);
/* `summary` may be NULL. */
HARK_MUST_CHECK hark_status hark_writer_commit(hark_context *context, hark_writer *writer, hark_file_summary *summary);
void hark_writer_discard(hark_writer *writer);

/* A small file that is a pointer of git-LFS (io/foreign.h) in the place of the one that is meant: HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_file_refuse_pointer(hark_context *context, const char *path, int descriptor, uint64_t size);

/* Opens a regular file for reading at offsets; *size is its length now. The caller closes the descriptor. */
HARK_MUST_CHECK hark_status hark_file_open(hark_context *context, const char *path, int *descriptor, uint64_t *size);
/* Reads exactly `bytes` bytes from `offset`. HARK_BAD_FILE when the file ends before. */
HARK_MUST_CHECK hark_status hark_file_read_at(hark_context *context, int descriptor, const char *path, void *data, size_t bytes,
                                              uint64_t offset);
void hark_file_close(int *descriptor);

/* Length and checksum of a file. */
HARK_MUST_CHECK hark_status hark_file_summarise(hark_context *context, const char *path, hark_file_summary *out);

/* Cuts a file to `bytes` bytes and flushes it; a shorter file is HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_file_truncate(hark_context *context, const char *path, uint64_t bytes);

/* Makes a folder and those above it, and flushes the folders that got a new one; one that is there is fine. */
HARK_MUST_CHECK hark_status hark_folder_make(hark_context *context, const char *path);
/* Makes a folder in one that is there, for this process alone: *claimed is false where anything has the name already, and nothing is done.
 * Of several processes that ask for one name at once, one gets it. */
HARK_MUST_CHECK hark_status hark_folder_claim(hark_context *context, const char *path, bool *claimed);

/* The names in a folder (without . and ..), sorted by bytes, in one piece of memory. The caller frees them. */
typedef struct hark_names {
  char **items;
  int64_t count;
  size_t bytes;
} hark_names;
HARK_MUST_CHECK hark_status hark_folder_list(hark_context *context, const char *path, hark_names *out);
void hark_names_free(hark_context *context, hark_names *names);

/* Removes a folder with what is in it, never following links; deeper than HARK_FOLDER_DEPTH or no folder: refused. */
#define HARK_FOLDER_DEPTH 8
HARK_MUST_CHECK hark_status hark_folder_remove(hark_context *context, const char *path);

/* Removes the temporary files and folders that processes which do not run any more, on this machine, left in a folder. */
HARK_MUST_CHECK hark_status hark_folder_clean(hark_context *context, const char *path);

/* Makes renames and new names in a folder durable; the second, in the folder that holds `path`. */
HARK_MUST_CHECK hark_status hark_folder_sync(hark_context *context, const char *path);
HARK_MUST_CHECK hark_status hark_parent_sync(hark_context *context, const char *path);

/* Renames and flushes the folder (or both folders). An existing file is replaced; an existing folder only when empty. */
HARK_MUST_CHECK hark_status hark_path_rename(hark_context *context, const char *from, const char *to);
/* Removes a file; one that is not there is fine. */
HARK_MUST_CHECK hark_status hark_file_remove(hark_context *context, const char *path);

typedef enum hark_path_kind { HARK_PATH_NONE, HARK_PATH_FILE, HARK_PATH_FOLDER, HARK_PATH_OTHER } hark_path_kind;
/* HARK_PATH_NONE also when the system does not know; where it matters that something is there, use the second. */
hark_path_kind hark_path_kind_of(const char *path);
HARK_MUST_CHECK hark_status hark_path_examine(hark_context *context, const char *path, hark_path_kind *out);

/* folder/name into `out` of HARK_PATH_BYTES bytes. An empty folder is the current one; an absolute name stands alone. HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_path_join(hark_context *context, const char *folder, const char *name, char *out);
/* The last part of a path. */
const char *hark_path_name(const char *path);
/* A name from inside a file may be used in a folder: not empty, not . or .., no slash, no control character, short enough. */
bool hark_name_is_plain(const char *name);

/* Bytes that an unprivileged process may still write where `path` (which exists) lies. */
HARK_MUST_CHECK hark_status hark_disk_free(hark_context *context, const char *path, uint64_t *bytes);

/* Locks a folder against other writers by a lock file in it; the system drops the lock when the process ends, however it ends.
 * HARK_BUSY when another one holds it; the message says which process. `*descriptor` keeps the lock until release. */
#define HARK_LOCK_NAME ".lock"
HARK_MUST_CHECK hark_status hark_folder_lock(hark_context *context, const char *path, int *descriptor);
/* HARK_BUSY where another one holds the lock of a folder, which need not be there; leaves nothing in it. */
HARK_MUST_CHECK hark_status hark_folder_check_unlocked(hark_context *context, const char *path);
void hark_folder_unlock(int *descriptor);

#endif
