/* sweep_crew.c - see sweep_crew.h: the beginning and the end, and the messages of rank 0. sweep_serve.c is the work of the others. */
#include "cli/sweep/sweep_crew.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "cli/sweep/sweep_process.h"
#include "cli/sweep/sweep_share.h"

#define CHANNEL 0

/* ---- messages ---- */

hark_status hark_sweep_crew_settle(hark_sweep_crew *crew, hark_sweep_peer *peer) {
  int landed = 0;
  if (!peer->busy) return HARK_OK;
  HARK_TRY(hark_group_land(crew->context, crew->group, &peer->sending, 1, &landed));
  peer->busy = landed == 0;
  return HARK_OK;
}

hark_status hark_sweep_crew_send(hark_sweep_crew *crew, int rank, hark_sweep_peer *peer) {
  const hark_message message = {.data = &peer->out, .bytes = sizeof peer->out, .peer = rank, .sends = true};
  HARK_TRY(hark_group_begin(crew->context, crew->group, CHANNEL, &message, 1, &peer->sending));
  peer->busy = true;
  return HARK_OK;
}

hark_status hark_sweep_crew_receive(hark_sweep_crew *crew, int rank, hark_sweep_peer *peer, bool *arrived) {
  const hark_message message = {.data = &peer->in, .bytes = sizeof peer->in, .peer = rank};
  int landed = 0;
  *arrived = false;
  if (peer->left) return HARK_OK;
  if (!peer->listening) HARK_TRY(hark_group_begin(crew->context, crew->group, CHANNEL, &message, 1, &peer->receiving));
  peer->listening = true;
  HARK_TRY(hark_group_land(crew->context, crew->group, &peer->receiving, 1, &landed));
  *arrived = landed == 1;
  peer->listening = !*arrived;
  peer->left = *arrived && peer->in.kind == HARK_SWEEP_LEAVE;
  return HARK_OK;
}

/* ---- a process that has ended ---- */

hark_status hark_sweep_crew_watch(hark_sweep_crew *crew) {
  const int rank = hark_sweep_watch_look(&crew->watch, hark_sweep_signal() != 0);
  if (rank < 0) return HARK_OK;
  const hark_status status = hark_fail(crew->context, HARK_CANCELLED,
                                       "the process of rank %d was killed; complete runs are kept, call the sweep again to continue", rank);
  hark_group_give_up(crew->context, crew->group, status);
  return status;
}

/* ---- rank 0 ---- */

/* Sends on what the runs of this process have received. */
static hark_status pass_signals(hark_sweep_crew *crew, int rank) {
  hark_sweep_peer *const peer = &crew->peers[rank];
  int number = 0;
  const int signals = hark_sweep_signals(&number);
  HARK_TRY(hark_sweep_crew_settle(crew, peer));
  if (peer->busy || peer->leaving || peer->signals == signals) return HARK_OK;
  peer->signals = signals;
  peer->out.kind = HARK_SWEEP_SIGNAL;
  peer->out.code = number;
  peer->out.slot = signals;
  return hark_sweep_crew_send(crew, rank, peer);
}

hark_status hark_sweep_crew_hear(hark_sweep_crew *crew, int *rank, const hark_sweep_message **news) {
  *news = NULL;
  HARK_TRY(hark_sweep_crew_watch(crew));
  for (int peer = 1; peer < crew->peer_count; peer++) HARK_TRY(pass_signals(crew, peer));
  for (int tried = 1; tried < crew->peer_count; tried++) {
    bool arrived = false;
    crew->turn = crew->turn + 1 < crew->peer_count ? crew->turn + 1 : 1;
    HARK_TRY(hark_sweep_crew_receive(crew, crew->turn, &crew->peers[crew->turn], &arrived));
    if (!arrived) continue;
    const hark_sweep_message *const in = &crew->peers[crew->turn].in;
    *rank = crew->turn;
    if (in->kind != HARK_SWEEP_SIGNALLED)
      *news = in;
    else
      hark_sweep_take_signal(in->code);
    return HARK_OK;
  }
  return HARK_OK;
}

hark_status hark_sweep_crew_begin(hark_sweep_crew *crew, int rank, int slot, const char *words, size_t bytes, bool *sent) {
  hark_sweep_peer *const peer = &crew->peers[rank];
  HARK_TRY(hark_sweep_crew_settle(crew, peer));
  *sent = !peer->busy;
  if (peer->busy) return HARK_OK;
  peer->out.kind = HARK_SWEEP_BEGIN;
  peer->out.slot = slot;
  peer->out.bytes = (uint32_t)bytes;
  memcpy(peer->out.text, words, bytes);
  return hark_sweep_crew_send(crew, rank, peer);
}

/* *left: how many of the others have not answered yet. */
static hark_status send_leave(hark_sweep_crew *crew, int *left) {
  *left = 0;
  for (int rank = 1; rank < crew->peer_count; rank++) {
    hark_sweep_peer *const peer = &crew->peers[rank];
    HARK_TRY(hark_sweep_crew_settle(crew, peer));
    *left += peer->busy || !peer->left;
    if (peer->busy || peer->leaving) continue;
    peer->leaving = true;
    peer->out.kind = HARK_SWEEP_LEAVE;
    HARK_TRY(hark_sweep_crew_send(crew, rank, peer));
  }
  return HARK_OK;
}

hark_status hark_sweep_crew_leave(hark_sweep_crew *crew) {
  for (;;) {
    const hark_sweep_message *news = NULL;
    int left = 0, rank = 0;
    HARK_TRY(send_leave(crew, &left));
    if (left == 0) return HARK_OK;
    HARK_TRY(hark_sweep_crew_hear(crew, &rank, &news));
    if (news == NULL) (void)poll(NULL, 0, 1);
  }
}

/* ---- the beginning and the end ---- */

static hark_status share_machine(hark_context *context, hark_group *group, const hark_sweep_order *order) {
  hark_sweep_share share;
  hark_sweep_share_begin(context, order->jobs, &share);
  HARK_TRY(hark_sweep_share_set(context, &share));
  return hark_sweep_share_check(context, order->jobs, (int)hark_min(group->local, order->left), order->memory);
}

static hark_status watch(hark_sweep_crew *crew, const hark_sweep_order *order) {
  const int rank = hark_group_rank(crew->group), size = hark_group_size(crew->group);
  hark_status status = rank == 0 ? hark_sweep_watch_open(crew->context, order->path, rank, size, &crew->watch) : HARK_OK;
  HARK_TRY(hark_group_agree(crew->context, crew->group, status)); /* rank 0 makes the file */
  if (rank > 0) status = hark_sweep_watch_open(crew->context, order->path, rank, size, &crew->watch);
  HARK_TRY(hark_group_agree(crew->context, crew->group, status));
  hark_sweep_watch_begin(&crew->watch);
  return HARK_OK;
}

static hark_status allocate_peers(hark_sweep_crew *crew) {
  void *memory = NULL;
  const int count = hark_group_rank(crew->group) == 0 ? hark_group_size(crew->group) : 1;
  HARK_TRY(hark_allocate_zero(crew->context, (size_t)count * sizeof(hark_sweep_peer), &memory));
  crew->peers = memory;
  crew->peer_count = count;
  return HARK_OK;
}

hark_status hark_sweep_crew_open(hark_context *context, hark_group *group, hark_status status, hark_sweep_order *order,
                                 hark_sweep_crew *out) {
  *out = (hark_sweep_crew){.context = context, .group = group, .watch.descriptor = -1};
  if (group == NULL) return status;
  HARK_TRY(hark_group_agree_patiently(context, group, status)); /* the estimates of rank 0 may take long */
  HARK_TRY(hark_group_broadcast(context, group, order, sizeof *order));
  if (order->jobs == 0) return HARK_OK;
  hark_sweep_catch_signals();
  out->jobs = order->jobs;
  memcpy(out->path, order->path, sizeof out->path);
  HARK_TRY(hark_group_agree(context, group, share_machine(context, group, order)));
  HARK_TRY(hark_group_agree(context, group, allocate_peers(out)));
  return watch(out, order);
}

void hark_sweep_crew_close(hark_sweep_crew *crew) {
  const bool leads = hark_group_rank(crew->group) == 0;
  if (crew->watch.descriptor >= 0 && leads) (void)unlink(crew->path);
  hark_sweep_watch_close(&crew->watch);
  if (!hark_group_is_lost(crew->group)) /* otherwise messages are on their way */
    hark_release(crew->context, crew->peers, (size_t)crew->peer_count * sizeof(hark_sweep_peer));
}
