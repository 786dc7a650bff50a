/* files.h - files and folders. After a crash, complete writes are there and incomplete ones are not.
 *
 * Every message names the path. A path that is read and does not exist is HARK_NOT_FOUND, a folder that is read as a file HARK_BAD_FILE;
 * all other errors of the system are HARK_IO_ERROR, also of a path that is to be written. Interrupted and partial reads and writes are
 * continued.
 *
 *   whole files     read (with a limit), write
 *   atomic writer   check, open, append, commit | discard
 *   reading parts   open, read_at, close
 *   folders         check, make, list, remove, clean, sync, lock
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
/* The same of a file that a program has written, such as those of a run: anything but a regular file is refused, so that a pipe in its
 * place cannot block. Errors: HARK_BAD_FILE too. */
HARK_MUST_CHECK hark_status hark_file_read_stored(hark_context *context, const char *path, size_t limit, hark_text *out);

/* Replaces a file by `bytes` bytes, like an atomic writer: after a crash the file has the complete old or new contents. */
HARK_MUST_CHECK hark_status hark_file_write(hark_context *context, const char *path, const void *data, size_t bytes);

/* Length and checksum of a written file: for manifests. */
typedef struct hark_file_summary {
  uint64_t bytes;
  char sha256[HARK_SHA256_TEXT_BYTES];
} hark_file_summary;

/* An atomic write in parts. The data are written to a temporary file in the folder of the target. commit flushes it, renames it and flushes
 * the folder; discard removes it. Set the struct to zero before open. commit and discard end it, also when they fail; discard of an ended
 * writer does nothing.
 *
 * Links stay: their target is written. A file that replaces another gets its permissions, and its owner and group if the system allows it.
 * Anything but a regular file - a device, a pipe, an open descriptor by a name such as /dev/stdout - is not replaced: the data are written
 * directly into it, and `straight` is true. A folder is HARK_IO_ERROR. */
typedef struct hark_writer {
  bool open, straight;
  int descriptor;
  struct hark_temporary_slot *note; /* of the temporary file, for programs that a signal ends */
  uint64_t bytes;
  hark_sha256 hash;
  char path[HARK_PATH_BYTES];   /* as given: for messages */
  char target[HARK_PATH_BYTES]; /* with links followed */
  char temporary[HARK_PATH_BYTES];
} hark_writer;

HARK_MUST_CHECK hark_status hark_writer_open(hark_context *context, hark_writer *writer, const char *path);
HARK_MUST_CHECK hark_status hark_writer_append(hark_context *context, hark_writer *writer, const void *data, size_t bytes);
/* `summary` may be NULL. */
HARK_MUST_CHECK hark_status hark_writer_commit(hark_context *context, hark_writer *writer, hark_file_summary *summary);
void hark_writer_discard(hark_writer *writer);

/* The error that hark_writer_open would report now, found without writing anything. A disk may fill up later. */
HARK_MUST_CHECK hark_status hark_writer_check(hark_context *context, const char *path);

/* Opens a regular file for reading at offsets; *size is its current length. The caller closes the descriptor. */
HARK_MUST_CHECK hark_status hark_file_open(hark_context *context, const char *path, int *descriptor, uint64_t *size);
/* Reads exactly `bytes` bytes from `offset`. HARK_BAD_FILE if the file is shorter. */
HARK_MUST_CHECK hark_status hark_file_read_at(hark_context *context, int descriptor, const char *path, void *data, size_t bytes,
                                              uint64_t offset);
void hark_file_close(int *descriptor);

/* *begins: the file agrees, without blanks and line ends, with `beginning` (at most 128 bytes), or with a part of it if
 * the file is shorter: a process that was killed may have left it so. An empty file agrees. */
HARK_MUST_CHECK hark_status hark_file_begins_with(hark_context *context, const char *path, const char *beginning, bool *begins);

/* Length and checksum of a file. */
HARK_MUST_CHECK hark_status hark_file_summarise(hark_context *context, const char *path, hark_file_summary *out);

/* Cuts a file to `bytes` bytes and flushes it; a shorter file is HARK_BAD_FILE. */
HARK_MUST_CHECK hark_status hark_file_truncate(hark_context *context, const char *path, uint64_t bytes);

/* Makes a folder and those above it, and flushes the folders that contain a new one; an existing folder is not an error. */
HARK_MUST_CHECK hark_status hark_folder_make(hark_context *context, const char *path);
/* The error that making the folder, or a file in it if it exists, would report now; makes nothing. */
HARK_MUST_CHECK hark_status hark_folder_check(hark_context *context, const char *path);
/* Makes a folder in an existing one, for this process alone. *claimed is false, and nothing is done, if the name exists already. If several
 * processes request one name at once, one of them gets it. */
HARK_MUST_CHECK hark_status hark_folder_claim(hark_context *context, const char *path, bool *claimed);

/* The names in a folder (without . and ..), sorted by bytes, in one piece of memory. The caller frees them. */
typedef struct hark_names {
  char **items;
  int64_t count;
  size_t bytes;
} hark_names;
HARK_MUST_CHECK hark_status hark_folder_list(hark_context *context, const char *path, hark_names *out);
void hark_names_free(hark_context *context, hark_names *names);

/* Removes a folder with its contents, without following links; refused if it is deeper than HARK_FOLDER_DEPTH or not a folder. */
#define HARK_FOLDER_DEPTH 8
HARK_MUST_CHECK hark_status hark_folder_remove(hark_context *context, const char *path);

/* Removes temporary files and folders in a folder that processes of this machine left and that no longer run. */
HARK_MUST_CHECK hark_status hark_folder_clean(hark_context *context, const char *path);

/* Makes renames and new names in a folder durable; the second function: in the folder that contains `path`. */
HARK_MUST_CHECK hark_status hark_folder_sync(hark_context *context, const char *path);
HARK_MUST_CHECK hark_status hark_parent_sync(hark_context *context, const char *path);

/* Refuses a file that is something else by its beginning (foreign.h); `expected`: "safetensors". The second function opens it for that.
 * Errors: HARK_BAD_FILE, those of files. */
HARK_MUST_CHECK hark_status hark_file_refuse_foreign(hark_context *context, const char *path, int descriptor, uint64_t size,
                                                     const char *expected);
HARK_MUST_CHECK hark_status hark_path_refuse_foreign(hark_context *context, const char *path, const char *expected);

/* Renames and flushes the folder (or both folders). An existing file is replaced; an existing folder only when empty. */
HARK_MUST_CHECK hark_status hark_path_rename(hark_context *context, const char *from, const char *to);
/* The same. *renamed is false if `from` is missing, or the file system cannot rename it (overlayfs: folders of a lower layer). */
HARK_MUST_CHECK hark_status hark_path_rename_if_possible(hark_context *context, const char *from, const char *to, bool *renamed);
/* Removes a file; a missing file is not an error. */
HARK_MUST_CHECK hark_status hark_file_remove(hark_context *context, const char *path);
/* Removes a file, a link or, as hark_folder_remove(), a folder; a missing one is not an error. */
HARK_MUST_CHECK hark_status hark_path_remove(hark_context *context, const char *path);

typedef enum hark_path_kind { HARK_PATH_NONE, HARK_PATH_FILE, HARK_PATH_FOLDER, HARK_PATH_OTHER } hark_path_kind;
/* HARK_PATH_NONE also if the system reports an error; if this must be distinguished, use the second function. */
hark_path_kind hark_path_kind_of(const char *path);
HARK_MUST_CHECK hark_status hark_path_examine(hark_context *context, const char *path, hark_path_kind *out);
/* A link, whatever it leads to; false for a missing path. */
HARK_MUST_CHECK hark_status hark_path_is_link(hark_context *context, const char *path, bool *is);

/* folder/name into `out` of HARK_PATH_BYTES bytes. An empty folder is the current one; an absolute name is used alone.
 * HARK_NOT_FOUND for a longer path: none exists. */
HARK_MUST_CHECK hark_status hark_path_join(hark_context *context, const char *folder, const char *name, char *out);
/* The last part of a path. */
const char *hark_path_name(const char *path);
/* The bytes of the folders with which both paths begin, at most `most`; the names of both are left, even of equal paths. */
size_t hark_path_common(const char *first, size_t most, const char *other);
/* True if a name from inside a file may be used in a folder: not empty, not . or .., no slash, no control character, short enough. */
bool hark_name_is_plain(const char *name);

/* Bytes that an unprivileged process may still write on the disk of `path` (which exists). */
HARK_MUST_CHECK hark_status hark_disk_free(hark_context *context, const char *path, uint64_t *bytes);

/* Locks a folder against other writers with a lock file in it; the system drops the lock when the process ends, for any reason. HARK_BUSY
 * if another process holds it; the message names the process. HARK_BAD_CONFIGURATION for a file of that name that no lock wrote.
 * `*descriptor` keeps the lock until release. */
#define HARK_LOCK_NAME ".lock"
HARK_MUST_CHECK hark_status hark_folder_lock(hark_context *context, const char *path, int *descriptor);
/* HARK_BUSY if another process holds the lock of a folder, which need not exist; leaves nothing in it. */
HARK_MUST_CHECK hark_status hark_folder_check_unlocked(hark_context *context, const char *path);
void hark_folder_unlock(int *descriptor);

#endif
