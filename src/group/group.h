/* group.h - the processes that compute one thing together, made of messages between two of them (transport.h). Every function is called by
 * all processes of a group, in the same order. NULL is a group of one process, for which they do nothing and cost nothing.
 *
 * Errors of all functions: HARK_CANCELLED, which names the process that failed or did not answer within the limit. The group is over then.
 * If that process itself only waits for another one, the other one is named (inquiry.h).
 */
#ifndef HARK_GROUP_GROUP_H
#define HARK_GROUP_GROUP_H

#include <hark/context.h>

#include "group/inquiry.h"
#include "group/transport.h"

#define HARK_GROUP_MOST 1024 /* processes */

/* Work of the group that goes on while its processes compute, such as the exchange of gradients (train/gradient_exchange.h). It consists of
 * rounds that all processes begin in the same order, each of them when it can. */
typedef struct hark_group_background {
  void *user;
  /* Called while a process waits for others in hark_group_exchange(). Returns at once. Errors: HARK_CANCELLED. */
  hark_status (*progress)(hark_context *context, void *user);
  /* One of the processes has failed. Begins the rounds up to number `begun`, as the process that is furthest has, and waits for their end,
   * so that no message is on its way. Errors: HARK_CANCELLED. */
  hark_status (*drain)(hark_context *context, void *user, int64_t begun);
} hark_group_background;

typedef struct hark_group {
  hark_transport *transport;
  double limit;   /* seconds without a message from a process that owes one */
  double seconds; /* spent waiting so far */
  uint64_t sent;  /* bytes so far, by this process */
  int local;      /* processes on this machine, as far as known; 0: unknown */
  void *room;     /* for messages on their way */
  size_t room_bytes;
  hark_group_background background; /* functions NULL: none */
  int64_t begun;                    /* its rounds so far, at this process */
  hark_status over;                 /* HARK_OK: it is not */
  hark_inquiry inquiry;             /* used in the whole only */
  bool abandoned;                   /* it is over, and other processes do not know (hark_group_give_up()) */
  char message[512];
  struct hark_group *whole; /* of a part (part.h), whose processes are `first`, `first` + `step`, ... of it; else NULL */
  int first, step;
} hark_group;

static inline int hark_group_rank(const hark_group *group) { return group != NULL ? group->transport->rank : 0; }
static inline int hark_group_size(const hark_group *group) { return group != NULL ? group->transport->size : 1; }
/* The rank by which messages name a process: that of the whole. */
static inline int hark_group_name(const hark_group *group, int rank) {
  return group->whole != NULL ? group->first + rank * group->step : rank;
}

/* The group is over, and no process can report it to all others: they are aborted. */
static inline bool hark_group_is_lost(const hark_group *group) {
  return group != NULL && (group->over == HARK_CANCELLED || group->abandoned);
}

/* Sets the limit. Rank 1 waits longer than rank 0, which waits for every one and reports who does not answer, and the others wait longer
 * than rank 1, which reports it if rank 0 does not. */
void hark_group_set_limit(hark_group *group, double seconds);

/* The part [first, first + count) of `total` things that a process computes: their numbers differ by at most one. */
typedef struct hark_share {
  int64_t first, count;
} hark_share;
hark_share hark_group_share(int64_t total, int rank, int size);
/* The same in multiples of `unit`; the last part may be shorter. */
hark_share hark_group_share_units(int64_t total, int64_t unit, int rank, int size);

/* Memory for exchanges of up to `pieces` messages, so that these allocate nothing: a process that fails in the middle of an exchange cannot
 * explain it to the others. A message longer than HARK_TRANSPORT_PIECE counts as several. */
HARK_MUST_CHECK hark_status hark_group_reserve(hark_context *context, hark_group *group, int64_t pieces);
/* Frees it. */
void hark_group_release(hark_context *context, hark_group *group);

typedef struct hark_message {
  void *data; /* only read where it is sent */
  size_t bytes;
  int peer;
  bool sends;
} hark_message;
/* Sends and receives all of them at once. Messages between two processes are matched in the order of the list. More than 16 of them need
 * memory (hark_group_reserve). */
HARK_MUST_CHECK hark_status hark_group_exchange(hark_context *context, hark_group *group, const hark_message *messages, int count);

/* ---- without waiting ---- */

#define HARK_GROUP_CHANNELS 32752

/* A message on its way. */
typedef struct hark_group_flight {
  hark_transport_request request;
  int peer;
  bool sends, done;
} hark_group_flight;

/* Begins messages of at most HARK_TRANSPORT_PIECE bytes each and returns at once. `flights` [count] and the data must stay until the
 * messages have ended. Messages between two processes on the same channel [0, HARK_GROUP_CHANNELS) are matched in the order in which they
 * were begun; those of the other functions are on none. */
HARK_MUST_CHECK hark_status hark_group_begin(hark_context *context, hark_group *group, int channel, const hark_message *messages, int count,
                                             hark_group_flight *flights);
/* Tests flights [*landed, count) in order, up to the first that is on its way; *landed: how many have ended. Returns at once. */
HARK_MUST_CHECK hark_status hark_group_land(hark_context *context, hark_group *group, hark_group_flight *flights, int count, int *landed);

/* *left: falls with everything that arrives, 0 at the end; *peer: a process that has not answered yet. */
typedef hark_status hark_group_poll(hark_context *context, void *user, int64_t *left, int *peer);
/* Calls `poll` until nothing is left, within the group's limit. */
HARK_MUST_CHECK hark_status hark_group_wait(hark_context *context, hark_group *group, hark_group_poll *poll, void *user);

/* Rank 0's bytes for all. */
HARK_MUST_CHECK hark_status hark_group_broadcast(hark_context *context, hark_group *group, void *data, size_t bytes);

/* all [size, bytes] <- the bytes of every process, in order of ranks. For few bytes. */
HARK_MUST_CHECK hark_status hark_group_gather(hark_context *context, hark_group *group, const void *mine, size_t bytes, void *all);

/* One status for all: HARK_OK if all have it; else that of the first process with an error, which takes precedence over HARK_NOT_FINITE.
 * The message is that of this process, after "rank 2: " unless it is rank 0 or all processes have the same one. After an error other than
 * HARK_NOT_FINITE the group is over: it exchanges nothing more, and every later call returns this error. So a process that fails comes to
 * the next place where the others agree, whichever that is, and all of them end. Before that, and after HARK_NOT_FINITE, the rounds of the
 * group's background that any of them has begun are completed (drain). */
HARK_MUST_CHECK hark_status hark_group_agree(hark_context *context, hark_group *group, hark_status status);
/* The same without a limit of time at other ranks than 0, for whose work they wait: if it is killed, the launcher ends the others. */
HARK_MUST_CHECK hark_status hark_group_agree_patiently(hark_context *context, hark_group *group, hark_status status);

#define HARK_GROUP_NOTE_BYTES 64
/* hark_group_agree() on `status`, then on one number, such as a checksum: HARK_BAD_CONFIGURATION "the WHAT are not those of rank 0" for a
 * process with another one. */
HARK_MUST_CHECK hark_status hark_group_compare(hark_context *context, hark_group *group, hark_status status, uint64_t number,
                                               const char *what);

/* hark_group_agree() with a note of every process: all [size, bytes], bytes up to HARK_GROUP_NOTE_BYTES, is set if the status is
 * HARK_OK. */
HARK_MUST_CHECK hark_status hark_group_meet(hark_context *context, hark_group *group, hark_status status, const void *mine, size_t bytes,
                                            void *all);

/* Ends the group, and the whole that it is a part of, with the error `status` and the message of this process, which fails where the others
 * wait for its messages and no process can report an error: hark_group_close() aborts them. Every later call returns the error. Does
 * nothing if the group is over. */
void hark_group_give_up(hark_context *context, hark_group *group, hark_status status);

/* After an error that all have agreed on: what follows is exchanged again. Does nothing where the group is lost. */
void hark_group_renew(hark_group *group);

#endif
