/* sweep_crew.h - the processes that a launcher has started for a sweep. Rank 0 has the plans, and begins, counts and records all runs;
 * every process, rank 0 too, trains up to `jobs` of them at once, each as a process of its own (sweep_process.h). Rank 0 sends the words of
 * a run to a process that has a free place, and gets what the run prints, and its exit code. Messages are few, so that the processes look
 * for them every HARK_SWEEP_CREW_MILLISECONDS while they wait for their runs.
 *
 * Signals that one process receives, or sends to its runs, reach the runs of all. A process that has ended ends the others (sweep_watch.h).
 * Errors of all functions: HARK_CANCELLED, also where a process has ended; the group is over then.
 */
#ifndef HARK_CLI_SWEEP_SWEEP_CREW_H
#define HARK_CLI_SWEEP_SWEEP_CREW_H

#include "cli/sweep/sweep_watch.h"
#include "io/files.h"

#define HARK_SWEEP_TEXT_BYTES (HARK_PATH_BYTES + 256)
#define HARK_SWEEP_CREW_MILLISECONDS 20 /* between looks for messages */

typedef enum hark_sweep_kind {
  HARK_SWEEP_BEGIN,     /* from rank 0: words of a run, each with its zero byte */
  HARK_SWEEP_SIGNAL,    /* from rank 0: code is the last signal, slot how many there were */
  HARK_SWEEP_LEAVE,     /* from rank 0: all is done; the answer is the same message */
  HARK_SWEEP_OUTPUT,    /* to rank 0: a part of what the run in a slot has printed */
  HARK_SWEEP_ENDED,     /* to rank 0: exit code of the run in a slot */
  HARK_SWEEP_REFUSED,   /* to rank 0: the run in a slot could not be started, code is the status, the text its message */
  HARK_SWEEP_SIGNALLED, /* to rank 0: this process has received the signal `code` */
} hark_sweep_kind;

typedef struct hark_sweep_message {
  int32_t kind, slot, code;
  uint32_t bytes; /* of the text */
  char text[HARK_SWEEP_TEXT_BYTES];
} hark_sweep_message;

/* The messages from and to one process. */
typedef struct hark_sweep_peer {
  hark_sweep_message in, out;
  hark_group_flight receiving, sending;
  bool listening, busy; /* `in`, `out` are on their way */
  bool leaving, left;   /* the message to leave was sent; no more messages come */
  int signals;          /* that were sent to it */
} hark_sweep_peer;

typedef struct hark_sweep_crew {
  hark_context *context;
  hark_group *group;
  int jobs; /* runs at once in each process */
  hark_sweep_watch watch;
  int peer_count, turn;
  hark_sweep_peer *peers; /* by rank at rank 0; elsewhere rank 0 alone */
  char path[HARK_PATH_BYTES];
} hark_sweep_crew;

/* What rank 0 decides for all. */
typedef struct hark_sweep_order {
  int jobs;        /* runs at once in each process; 0: there is nothing to do */
  int left;        /* the most runs that a plan has */
  uint64_t memory; /* estimated, of the largest run; 0: unknown */
  char path[HARK_PATH_BYTES];
} hark_sweep_order;

static inline int hark_sweep_crew_size(const hark_sweep_crew *crew) { return crew != NULL ? hark_group_size(crew->group) : 1; }

/* Agrees on `status` of rank 0 and on its order, divides the threads of each machine, and joins. Errors: that of rank 0; HARK_TOO_LARGE
 * where the memory of a machine is not enough for its runs; HARK_NOT_FOUND where a process does not see order->path. */
HARK_MUST_CHECK hark_status hark_sweep_crew_open(hark_context *context, hark_group *group, hark_status status, hark_sweep_order *order,
                                                 hark_sweep_crew *out);
/* Frees it, and at rank 0 removes the file at order->path. */
void hark_sweep_crew_close(hark_sweep_crew *crew);

/* At rank 0: gets the next message, of *rank; *news is NULL if there is none, else it is valid until the next call. Also sends signals
 * on, and sees whether a process has ended. */
HARK_MUST_CHECK hark_status hark_sweep_crew_hear(hark_sweep_crew *crew, int *rank, const hark_sweep_message **news);
/* At rank 0: sends the words of a run to a process; *sent is false where the last message to it is still on its way. */
HARK_MUST_CHECK hark_status hark_sweep_crew_begin(hark_sweep_crew *crew, int rank, int slot, const char *words, size_t bytes, bool *sent);
/* At rank 0, when no run is left: ends the work of the others. */
HARK_MUST_CHECK hark_status hark_sweep_crew_leave(hark_sweep_crew *crew);

/* At the other ranks: trains what rank 0 sends until it ends the work (sweep_serve.c). */
HARK_MUST_CHECK hark_status hark_sweep_crew_serve(hark_sweep_crew *crew);

/* For both: the end of a message that is on its way; begins to send peer->out; whether a message has arrived in peer->in. */
HARK_MUST_CHECK hark_status hark_sweep_crew_settle(hark_sweep_crew *crew, hark_sweep_peer *peer);
HARK_MUST_CHECK hark_status hark_sweep_crew_send(hark_sweep_crew *crew, int rank, hark_sweep_peer *peer);
HARK_MUST_CHECK hark_status hark_sweep_crew_receive(hark_sweep_crew *crew, int rank, hark_sweep_peer *peer, bool *arrived);
/* HARK_CANCELLED if a process has ended that this one must report. */
HARK_MUST_CHECK hark_status hark_sweep_crew_watch(hark_sweep_crew *crew);

#endif
