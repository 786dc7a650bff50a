/* sweep_serve.c - the work of the processes of a launcher other than rank 0 (sweep_crew.h): they start the runs that rank 0 sends, and send
 * it what these print, and their exit codes. One message to rank 0 is on its way at a time; until it has arrived, no pipe is read. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "cli/sweep/sweep_crew.h"
#include "cli/sweep/sweep_process.h"

#define WORDS 8
#define BUSY_MILLISECONDS 1 /* while a message is on its way */

typedef enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_REFUSED, SLOT_STOPPED } slot_state;

/* A run of this process. */
typedef struct slot {
  slot_state state;
  int output; /* the pipe's end */
} slot;

typedef struct server {
  hark_sweep_crew *crew;
  hark_sweep_peer *first; /* rank 0 */
  slot slots[HARK_SWEEP_JOBS];
  hark_status refusal; /* why a run could not be started; its message is that of the context */
  bool signalled;      /* rank 0 knows of the signal */
} server;

/* ---- from rank 0 ---- */

static void split_words(hark_sweep_message *in, char *words[WORDS + 1]) {
  int count = 0;
  for (size_t at = 0; at < in->bytes && count < WORDS; at += strlen(in->text + at) + 1) words[count++] = in->text + at;
  words[count] = NULL;
}

static void begin_run(server *s) {
  hark_sweep_message *const in = &s->first->in;
  char *words[WORDS + 1];
  bool started = false;
  slot *const place = &s->slots[in->slot];
  split_words(in, words);
  const hark_sweep_start start = {.words = words, .output = HARK_SWEEP_MESSAGES, .input = -1};
  const hark_status status = hark_sweep_process_start(s->crew->context, &start, in->slot, &place->output, &started);
  place->state = started ? SLOT_BUSY : status == HARK_OK ? SLOT_STOPPED : SLOT_REFUSED;
  if (status != HARK_OK) s->refusal = status;
}

/* The runs have had the signal if this process received it too. */
static void take_signal(const hark_sweep_message *in) {
  int number = 0;
  if (in->slot > hark_sweep_signals(&number)) hark_sweep_end_all(in->code);
}

static hark_status take_messages(server *s) {
  for (bool arrived = true; arrived;) {
    HARK_TRY(hark_sweep_crew_receive(s->crew, 0, s->first, &arrived));
    if (arrived && s->first->in.kind == HARK_SWEEP_BEGIN) begin_run(s);
    if (arrived && s->first->in.kind == HARK_SWEEP_SIGNAL) take_signal(&s->first->in);
  }
  return HARK_OK;
}

/* ---- to rank 0 ---- */

static hark_status send(server *s, hark_sweep_kind kind, int place, int code) {
  s->first->out.kind = kind;
  s->first->out.slot = place;
  s->first->out.code = code;
  return hark_sweep_crew_send(s->crew, 0, s->first);
}

static hark_status send_refusal(server *s, int place, hark_status status) {
  hark_sweep_message *const out = &s->first->out;
  out->bytes = (uint32_t)strlen(hark_context_message(s->crew->context));
  memcpy(out->text, hark_context_message(s->crew->context), out->bytes);
  s->slots[place].state = SLOT_FREE;
  return send(s, HARK_SWEEP_REFUSED, place, (int)status);
}

static hark_status end_run(server *s, int place) {
  int code = 0;
  (void)close(s->slots[place].output);
  s->slots[place].state = SLOT_FREE;
  const hark_status status = hark_sweep_process_wait(s->crew->context, place, &code);
  return status == HARK_OK ? send(s, HARK_SWEEP_ENDED, place, code) : send_refusal(s, place, status);
}

/* Sends what there is, or that it was the end. */
static hark_status send_output(server *s, int place) {
  hark_sweep_message *const out = &s->first->out;
  const ssize_t got = read(s->slots[place].output, out->text, sizeof out->text);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return HARK_OK;
  if (got <= 0) return end_run(s, place);
  out->bytes = (uint32_t)got;
  return send(s, HARK_SWEEP_OUTPUT, place, 0);
}

/* A place with something to read; -1: none for a while. */
static int wait_for_output(server *s) {
  struct pollfd files[HARK_SWEEP_JOBS];
  int places[HARK_SWEEP_JOBS];
  nfds_t count = 0;
  for (int place = 0; place < s->crew->jobs; place++) {
    if (s->slots[place].state != SLOT_BUSY) continue;
    places[count] = place;
    files[count++] = (struct pollfd){.fd = s->slots[place].output, .events = POLLIN};
  }
  if (poll(files, count, HARK_SWEEP_CREW_MILLISECONDS) <= 0) return -1; /* time, or a signal */
  for (nfds_t i = 0; i < count; i++)
    if (files[i].revents != 0) return places[i];
  return -1;
}

/* The end of a run that was not started. */
static hark_status send_end(server *s) {
  int number = 0;
  for (int place = 0; place < s->crew->jobs; place++) {
    const slot_state state = s->slots[place].state;
    if (state == SLOT_REFUSED) return send_refusal(s, place, s->refusal);
    if (state != SLOT_STOPPED) continue;
    s->slots[place].state = SLOT_FREE;
    (void)hark_sweep_signals(&number);
    return send(s, HARK_SWEEP_ENDED, place, HARK_EXIT_SIGNAL + number);
  }
  return HARK_OK;
}

/* Begins the next message, if there is one; waits for one of a run. */
static hark_status send_next(server *s) {
  if (hark_sweep_signal() != 0 && !s->signalled) {
    s->signalled = true;
    return send(s, HARK_SWEEP_SIGNALLED, 0, hark_sweep_signal());
  }
  HARK_TRY(send_end(s));
  if (s->first->busy) return HARK_OK;
  const int place = wait_for_output(s);
  return place >= 0 ? send_output(s, place) : HARK_OK;
}

/* Answers the message to leave. */
static hark_status leave(server *s) {
  while (s->first->busy) {
    HARK_TRY(hark_sweep_crew_settle(s->crew, s->first));
    if (s->first->busy) (void)poll(NULL, 0, BUSY_MILLISECONDS);
    HARK_TRY(hark_sweep_crew_watch(s->crew));
  }
  return HARK_OK;
}

static hark_status serve(server *s) {
  while (!s->first->left) {
    HARK_TRY(hark_sweep_crew_watch(s->crew));
    HARK_TRY(take_messages(s));
    HARK_TRY(hark_sweep_crew_settle(s->crew, s->first));
    if (s->first->busy)
      (void)poll(NULL, 0, BUSY_MILLISECONDS);
    else if (!s->first->left)
      HARK_TRY(send_next(s));
  }
  HARK_TRY(leave(s));
  HARK_TRY(send(s, HARK_SWEEP_LEAVE, 0, 0));
  return leave(s);
}

hark_status hark_sweep_crew_serve(hark_sweep_crew *crew) {
  server s = {.crew = crew, .first = crew->peers};
  if (crew->jobs == 0) return HARK_OK;
  const hark_status status = serve(&s);
  if (status != HARK_OK) hark_sweep_end_all(SIGTERM);
  return status;
}
