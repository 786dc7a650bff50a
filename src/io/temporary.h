/* temporary.h - temporary files and folders beside what they will become: .NAME.tmp-PID-N.
 *
 * Three things keep them from staying for ever: who made one removes it, whether the work succeeds or fails; a program that is ended by a
 * signal removes what it has noted here (hark_temporary_remove_all in its handler; the library itself handles no signals); and what a
 * killed process left is removed by the next one that writes to the same place (hark_path_clean), or works in the same folder
 * (hark_folder_clean).
 */
#ifndef HARK_IO_TEMPORARY_H
#define HARK_IO_TEMPORARY_H

#include <stdatomic.h>
#include <sys/types.h>

#include "io/files.h"

/* Prints the temporary name number `number` of a path. HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_temporary_name(hark_context *context, const char *path, int number, char out[HARK_PATH_BYTES]);
#define HARK_TEMPORARY_TRIES 100 /* other names in the way: left by a killed process with the same number */

/* Notes of temporary files and folders, in memory of the program that handles signals: its contexts point to them (context->temporaries).
 * Slots are taken and given back without a lock, so that a handler can read them. */
#define HARK_TEMPORARY_SLOTS 32
typedef struct hark_temporary_slot {
  atomic_int state;
  pid_t process; /* a forked child has the notes of its parent, and must not act on them */
  char path[HARK_PATH_BYTES];
} hark_temporary_slot;
typedef struct hark_temporaries {
  hark_temporary_slot slots[HARK_TEMPORARY_SLOTS];
} hark_temporaries;

/* Notes a temporary file or folder of this process. Returns its note; NULL where the context has no notes or no room: then it is not
 * noted. */
hark_temporary_slot *hark_temporary_note(const hark_context *context, const char *path);
void hark_temporary_forget(hark_temporary_slot **note);
/* Removes all that is noted, folders with the files in them. May be called in a signal's handler. */
void hark_temporary_remove_all(hark_temporaries *notes);

/* A folder that is locked as long as it is open. */
typedef struct hark_temporary_folder {
  int descriptor;
  hark_temporary_slot *note;
  char path[HARK_PATH_BYTES];
} hark_temporary_folder;

/* Makes an empty folder beside `path`. */
HARK_MUST_CHECK hark_status hark_temporary_folder_make(hark_context *context, const char *path, mode_t mode, hark_temporary_folder *out);
/* After it was renamed or removed. */
void hark_temporary_folder_end(hark_temporary_folder *folder);

/* Whether a path's last part is a temporary name, and nobody works on what stands there: a file's process does not run on this machine, a
 * folder is not locked. *folder says which of both it is. */
bool hark_temporary_is_abandoned(const char *path, bool *folder);

/* Removes the temporary files and folders of `path` that no process works on any more. What cannot be looked at or removed stays: it may
 * belong to another user. */
HARK_MUST_CHECK hark_status hark_path_clean(hark_context *context, const char *path);

/* Follows links from `path` to what they name at last, which need not be there. *descriptor is the open one that such a name as /dev/stdout
 * or /dev/fd/3 stands for, or -1. */
HARK_MUST_CHECK hark_status hark_path_follow(hark_context *context, const char *path, char out[HARK_PATH_BYTES], int *descriptor);

#endif
