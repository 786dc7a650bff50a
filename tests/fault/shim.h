/* shim.h - the system calls that hark makes on files, counted, and made to fail or to be the last one.
 *
 * shim.c defines open, write, fsync, rename ... in front of the C library's. It is linked into the test programs of this folder, which set
 * it with fault_set(), and built as a module (HARK_FAULT_SHIM) that LD_PRELOAD puts in front of the command, where the environment sets it:
 *
 *     HARK_FAULT_ROOT   calls on this folder and what lies in it are counted; without it nothing is
 *     HARK_FAULT_KIND   kill, tear, short, the name of an error: ENOSPC, EIO, EINTR, or of a signal: SIGINT, SIGTERM, SIGHUP, SIGUSR1
 *     HARK_FAULT_AT     number of the call, from 1; "12+": that one and all later ones
 *
 * Calls on descriptors and folders that were opened below the root are counted too. One thread at a time.
 */
#ifndef HARK_TESTS_FAULT_SHIM_H
#define HARK_TESTS_FAULT_SHIM_H

#include <stdbool.h>

#define FAULT_PATH_BYTES 512

typedef enum fault_kind {
  FAULT_NONE,  /* counts */
  FAULT_KILL,  /* SIGKILL before the call */
  FAULT_TEAR,  /* SIGKILL after the call; a write puts down the first half of its bytes */
  FAULT_ERROR, /* the call fails with plan.error and does nothing; close closes all the same */
  FAULT_SHORT, /* reads and writes move one byte */
  FAULT_SIGNAL /* signal plan.error comes before the call */
} fault_kind;

/* Groups of calls. */
enum {
  FAULT_ON_OPEN = 1 << 0,   /* open without O_CREAT */
  FAULT_ON_CREATE = 1 << 1, /* open with it */
  FAULT_ON_FOLDER = 1 << 2, /* mkdir */
  FAULT_ON_READ = 1 << 3,   /* read, pread */
  FAULT_ON_WRITE = 1 << 4,  /* write, pwrite */
  FAULT_ON_FLUSH = 1 << 5,  /* fsync */
  FAULT_ON_CUT = 1 << 6,    /* ftruncate */
  FAULT_ON_RENAME = 1 << 7, /* rename */
  FAULT_ON_REMOVE = 1 << 8, /* unlink, rmdir */
  FAULT_ON_LOOK = 1 << 9,   /* stat, lstat, fstat, opendir, readdir */
  FAULT_ON_LOCK = 1 << 10,  /* flock */
  FAULT_ON_CLOSE = 1 << 11  /* close */
};
#define FAULT_ON_ALL ((1u << 12) - 1)
/* What a full disk refuses; ftruncate only cuts here. */
#define FAULT_ON_SPACE (FAULT_ON_CREATE | FAULT_ON_FOLDER | FAULT_ON_WRITE | FAULT_ON_FLUSH | FAULT_ON_RENAME)
/* What a signal may interrupt. */
#define FAULT_ON_WAITING (FAULT_ON_OPEN | FAULT_ON_CREATE | FAULT_ON_READ | FAULT_ON_WRITE | FAULT_ON_FLUSH | FAULT_ON_CUT | FAULT_ON_CLOSE)
/* What may move fewer bytes than it was asked to. */
#define FAULT_ON_MOVE (FAULT_ON_READ | FAULT_ON_WRITE)
/* What changes something: between two of these the folder stays as it is. */
#define FAULT_ON_CHANGE                                                                                                                    \
  (FAULT_ON_CREATE | FAULT_ON_FOLDER | FAULT_ON_WRITE | FAULT_ON_FLUSH | FAULT_ON_CUT | FAULT_ON_RENAME | FAULT_ON_REMOVE)

/* A call that succeeded, for a plan's watch. */
typedef struct fault_call {
  const char *name; /* "write" */
  unsigned group;
  const char *path; /* that it was made on */
  const char *to;   /* of a rename, else NULL */
} fault_call;

typedef struct fault_plan {
  fault_kind kind;
  int error;       /* or signal */
  unsigned groups; /* that are counted; 0: all */
  long at;         /* 0: none */
  bool onwards;    /* and all later ones */
  bool unflushed;  /* fsync does nothing and succeeds: nobody pulls a plug here, and it costs time */
  char root[FAULT_PATH_BYTES];
  void (*watch)(void *user, const fault_call *call);
  void *user;
} fault_plan;

/* Begins to count; NULL ends it. */
void fault_set(const fault_plan *plan);
/* Calls counted since then. */
long fault_calls(void);
/* The name and the path of the (last) call that was made to fail; "" when there was none. */
const char *fault_name(void);
const char *fault_path(void);

#endif
