/* temporary.h - temporary files and folders beside what they will become: .NAME.tmp-PID-N.
 *
 * Three things keep them from staying for ever: who made one removes it, whether the work succeeds or fails; a program that is ended by a signal
 * removes what it has noted here (hark_temporary_remove_all in its handler; the library itself handles no signals); and what a killed process
 * left is removed by the next one that writes to the same place (hark_path_clean), or works in the same folder (hark_folder_clean).
 */
#ifndef HARK_IO_TEMPORARY_H
#define HARK_IO_TEMPORARY_H

#include <sys/types.h>

#include "io/files.h"

/* Prints the temporary name number `number` of a path. HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_temporary_name(hark_context *context, const char *path, int number, char out[HARK_PATH_BYTES]);
#define HARK_TEMPORARY_TRIES 100 /* other names in the way: left by a killed process with the same number */

/* Notes a temporary file or folder of this process. Returns its note, which is positive; 0 where there is no room: then it is not noted. */
int hark_temporary_note(const char *path);
void hark_temporary_forget(int *note);
/* Removes all that is noted, folders with the files in them. May be called in a signal's handler. */
void hark_temporary_remove_all(void);

/* A folder that is locked as long as it is open. */
typedef struct hark_temporary_folder {
  int descriptor, note;
  char path[HARK_PATH_BYTES];
} hark_temporary_folder;

/* Makes an empty folder beside `path`. */
HARK_MUST_CHECK hark_status hark_temporary_folder_make(hark_context *context, const char *path, mode_t mode, hark_temporary_folder *out);
/* After it was renamed or removed. */
void hark_temporary_folder_end(hark_temporary_folder *folder);

/* Whether a path's last part is a temporary name, and nobody works on what stands there: a file's process does not run on this machine, a folder is
 * not locked. *folder says which of both it is. */
bool hark_temporary_is_abandoned(const char *path, bool *folder);

/* Removes the temporary files and folders of `path` that no process works on any more. What cannot be looked at or removed stays: it may belong
 * to another user. */
HARK_MUST_CHECK hark_status hark_path_clean(hark_context *context, const char *path);

/* Follows links from `path` to what they name at last, which need not be there. *descriptor is the open one that such a name as /dev/stdout or
 * /dev/fd/3 stands for, or -1. */
HARK_MUST_CHECK hark_status hark_path_follow(hark_context *context, const char *path, char out[HARK_PATH_BYTES], int *descriptor);

#endif
