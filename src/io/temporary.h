/* temporary.h - temporary files and folders, next to their final names: .NAME.tmp-PID-N.
 *
 * Three rules keep them from staying for ever. The code that made one removes it, whether the work succeeds or fails. A program that a
 * signal ends removes all that are noted here (hark_temporary_remove_all in its handler; the library itself handles no signals). Those of a
 * killed process are removed by the next process that writes to the same place (hark_path_clean), or works in the same folder
 * (hark_folder_clean).
 */
#ifndef HARK_IO_TEMPORARY_H
#define HARK_IO_TEMPORARY_H

#include <stdatomic.h>
#include <sys/types.h>

#include "io/files.h"

/* Prints temporary name `number` of a path. HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_temporary_name(hark_context *context, const char *path, int number, char out[HARK_PATH_BYTES]);
#define HARK_TEMPORARY_TRIES 100 /* existing names that are skipped: left by a killed process with the same number */

/* Notes of temporary files and folders, in memory of the program that handles signals: its contexts point to them (context->temporaries).
 * Slots are taken and returned without a lock, so that a handler can read them. */
#define HARK_TEMPORARY_SLOTS 32
typedef struct hark_temporary_slot {
  atomic_int state;
  pid_t process; /* a forked child has its parent's notes, and must not use them */
  char path[HARK_PATH_BYTES];
} hark_temporary_slot;
typedef struct hark_temporaries {
  hark_temporary_slot slots[HARK_TEMPORARY_SLOTS];
  unsigned closed_streams; /* bit i: the program began without standard descriptor i; files that name it cannot be written */
} hark_temporaries;

/* Notes a temporary file or folder of this process. Returns its note; NULL, without a note, if the context has no notes or no free slot. */
hark_temporary_slot *hark_temporary_note(const hark_context *context, const char *path);
void hark_temporary_forget(hark_temporary_slot **note);
/* Removes all noted files and folders, with the files in them. May be called in a signal's handler. */
void hark_temporary_remove_all(hark_temporaries *notes);

/* A folder that is locked while it is open. */
typedef struct hark_temporary_folder {
  int descriptor;
  hark_temporary_slot *note;
  char path[HARK_PATH_BYTES];
} hark_temporary_folder;

/* Makes an empty folder next to `path`. */
HARK_MUST_CHECK hark_status hark_temporary_folder_make(hark_context *context, const char *path, mode_t mode, hark_temporary_folder *out);
/* To be called after it was renamed or removed. */
void hark_temporary_folder_end(hark_temporary_folder *folder);

/* True if a path's last part is a temporary name, and no process works on it: the process of a file does not run on this machine, a folder
 * is not locked. *folder: whether it is a folder. */
bool hark_temporary_is_abandoned(const char *path, bool *folder);

/* Removes the temporary files and folders of `path` on which no process works any more. Those that cannot be examined or removed stay: they
 * may belong to another user. */
HARK_MUST_CHECK hark_status hark_path_clean(hark_context *context, const char *path);

/* Follows links from `path` to their final target, which need not exist. *descriptor is the open descriptor that a name such as /dev/stdout
 * or /dev/fd/3 means, or -1. */
HARK_MUST_CHECK hark_status hark_path_follow(hark_context *context, const char *path, char out[HARK_PATH_BYTES], int *descriptor);

#endif
