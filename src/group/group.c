/* group.c - see group.h. */
#include "group/group.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/core.h"
#include "io/machine.h"
#include "io/number.h"

#define TAG 1 /* of messages on no channel; those of parts follow (part.c) */
#define FIRST_CHANNEL 16
_Static_assert(HARK_INQUIRY_QUESTION_TAG > TAG + 1 && HARK_INQUIRY_ANSWER_TAG < FIRST_CHANNEL, "each kind of message has its own tag");
#define PATIENT_TESTS 2000 /* without sleep: messages of a few KB arrive meanwhile */
#define NAP_NANOSECONDS 50000
#define FEW_PIECES 16
#define ANSWER_SECONDS 2.0 /* a waiting process answers within this time, also on a busy machine */

#define LATER_FACTOR 0.5
#define LATER_SECONDS 5

void hark_group_set_limit(hark_group *group, double seconds) {
  const int later = hark_group_rank(group) < 2 ? hark_group_rank(group) : 2;
  if (group != NULL) group->limit = seconds + later * (LATER_FACTOR * seconds + LATER_SECONDS);
}

hark_share hark_group_share(int64_t total, int rank, int size) {
  const int64_t first = total / size * rank + total % size * rank / size;
  const int64_t end = total / size * (rank + 1) + total % size * (rank + 1) / size;
  return (hark_share){first, end - first};
}

hark_share hark_group_share_units(int64_t total, int64_t unit, int rank, int size) {
  const hark_share units = hark_group_share(hark_ceil_div(total, unit), rank, size);
  const int64_t first = hark_min(units.first * unit, total), end = hark_min((units.first + units.count) * unit, total);
  return (hark_share){first, end - first};
}

static int64_t pieces_of(const hark_message *message) {
  return message->bytes == 0 ? 1 : hark_ceil_div((int64_t)message->bytes, HARK_TRANSPORT_PIECE);
}

static hark_status failed(hark_context *context, const hark_group *group, int peer) {
  return hark_fail(context, HARK_CANCELLED, "rank %d: the connection to rank %d failed: %.300s",
                   hark_group_name(group, group->transport->rank), hark_group_name(group, peer), group->transport->message);
}

/* A message longer than HARK_TRANSPORT_PIECE is several flights. */
static hark_status start(hark_context *context, hark_group *group, int tag, const hark_message *message, hark_group_flight *flights) {
  hark_transport *const transport = group->transport;
  char *data = message->data;
  size_t left = message->bytes;
  for (int64_t p = 0; p < pieces_of(message); p++) {
    const size_t bytes = left < HARK_TRANSPORT_PIECE ? left : HARK_TRANSPORT_PIECE;
    flights[p] = (hark_group_flight){.peer = message->peer, .sends = message->sends};
    const int failure = message->sends ? transport->send(transport, message->peer, tag, data, bytes, &flights[p].request)
                                       : transport->receive(transport, message->peer, tag, data, bytes, &flights[p].request);
    if (failure != 0) return failed(context, group, message->peer);
    data += bytes;
    left -= bytes;
    for (hark_group *g = group; g != NULL; g = g->whole) g->sent += message->sends ? bytes : 0;
  }
  return HARK_OK;
}

/* Receives first, so that what arrives has a place. */
static hark_status start_all(hark_context *context, hark_group *group, int tag, const hark_message *messages, int count,
                             hark_group_flight *flights) {
  for (int sends = 0; sends < 2; sends++) {
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
      if (messages[i].sends == (sends == 1)) HARK_TRY(start(context, group, tag, &messages[i], flights + at));
      at += pieces_of(&messages[i]);
    }
  }
  return HARK_OK;
}

/* Nothing is exchanged after this, in a part or in the whole. */
static void end_with(hark_group *group, hark_status status, const char *message) {
  for (; group != NULL; group = group->whole) {
    if (group->over != HARK_OK) continue;
    group->over = status;
    (void)snprintf(group->message, sizeof group->message, "%s", message);
  }
}

static hark_status end(hark_context *context, hark_group *group, hark_status status) {
  if (status != HARK_OK && status != HARK_NOT_FINITE) end_with(group, status, hark_context_message(context));
  return status;
}

void hark_group_give_up(hark_context *context, hark_group *group, hark_status status) {
  char message[HARK_MESSAGE_BYTES], name[24] = "";
  const int rank = hark_group_name(group, hark_group_rank(group));
  if (rank > 0) (void)snprintf(name, sizeof name, "rank %d: ", rank);
  (void)snprintf(message, sizeof message, "%s%.480s", name, hark_context_message(context));
  for (hark_group *g = group; g != NULL; g = g->whole) g->abandoned = g->abandoned || g->over == HARK_OK;
  end_with(group, status, message);
}

static hark_status refuse_if_over(hark_context *context, const hark_group *group) {
  return group->over != HARK_OK ? hark_fail(context, group->over, "%s", group->message) : HARK_OK;
}

/* ---- without waiting ---- */

hark_status hark_group_begin(hark_context *context, hark_group *group, int channel, const hark_message *messages, int count,
                             hark_group_flight *flights) {
  HARK_TRY(refuse_if_over(context, group));
  return end(context, group, start_all(context, group, FIRST_CHANNEL + channel, messages, count, flights));
}

static hark_status land(hark_context *context, hark_group *group, hark_group_flight *flight) {
  if (flight->done || group->transport->test(group->transport, &flight->request, &flight->done) == 0) return HARK_OK;
  return failed(context, group, flight->peer);
}

hark_status hark_group_land(hark_context *context, hark_group *group, hark_group_flight *flights, int count, int *landed) {
  HARK_TRY(refuse_if_over(context, group));
  for (; *landed < count; ++*landed) {
    HARK_TRY(end(context, group, land(context, group, &flights[*landed])));
    if (!flights[*landed].done) return HARK_OK;
  }
  return HARK_OK;
}

/* ---- waiting ---- */

static void nap(int64_t tests) {
  const struct timespec time = {.tv_nsec = NAP_NANOSECONDS};
  if (tests < PATIENT_TESTS)
    (void)sched_yield();
  else
    (void)nanosleep(&time, NULL);
}

static hark_group *whole_of(hark_group *group) {
  while (group->whole != NULL) group = group->whole;
  return group;
}

/* Nothing has come from `peer` for `seconds`. After the limit, the error names the process that the group waits for. */
static hark_status look_around(hark_context *context, hark_group *group, int peer, double seconds) {
  hark_group *const whole = whole_of(group);
  hark_inquiry_result found = {.silent = -1};
  const int named = hark_group_name(group, peer);
  int failure = hark_inquiry_answer(whole->transport, &whole->inquiry, named, seconds);
  if (failure == 0 && seconds > group->limit)
    failure = hark_inquiry_ask(whole->transport, &whole->inquiry, named, group->limit, fmin(group->limit, ANSWER_SECONDS), &found);
  if (failure != 0) return failed(context, whole, whole->inquiry.failed);
  if (found.silent < 0) return HARK_OK;
  return hark_fail(context, HARK_CANCELLED, "rank %d did not answer rank %d for %s seconds", found.silent, found.waiting,
                   HARK_PRINTED(found.seconds));
}

static hark_status wait(hark_context *context, hark_group *group, hark_group_poll *poll, void *user) {
  double moved = hark_machine_seconds();
  int64_t left = 0, before = INT64_MAX, idle = 0;
  int peer = 0;
  hark_inquiry_end(&whole_of(group)->inquiry);
  for (;;) {
    HARK_TRY(poll(context, user, &left, &peer));
    if (left == 0) return HARK_OK;
    idle = left < before ? 0 : idle + 1;
    before = left;
    if (idle == 0) {
      moved = hark_machine_seconds();
      hark_inquiry_end(&whole_of(group)->inquiry);
    }
    if (idle % 64 == 63) HARK_TRY(look_around(context, group, peer, hark_machine_seconds() - moved));
    nap(idle);
  }
}

hark_status hark_group_wait(hark_context *context, hark_group *group, hark_group_poll *poll, void *user) {
  const double begin = hark_machine_seconds();
  HARK_TRY(refuse_if_over(context, group));
  const hark_status status = end(context, group, wait(context, group, poll, user));
  for (hark_group *g = group; g != NULL; g = g->whole) g->seconds += hark_machine_seconds() - begin;
  return status;
}

typedef struct flights_on_their_way {
  hark_group *group;
  hark_group_flight *list;
  int64_t count;
} flights_on_their_way;

/* Tests every flight once. */
static hark_status test_all(hark_context *context, void *user, int64_t *left, int *peer) {
  const flights_on_their_way *const flights = user;
  hark_group *const group = flights->group;
  *left = 0;
  for (int64_t i = 0; i < flights->count; i++) {
    HARK_TRY(land(context, group, &flights->list[i]));
    if (flights->list[i].done) continue;
    ++*left;
    *peer = flights->list[i].peer;
  }
  if (*left == 0 || group->background.progress == NULL) return HARK_OK;
  return group->background.progress(context, group->background.user);
}

static hark_status exchange(hark_context *context, hark_group *group, const hark_message *messages, int count, hark_group_flight *list,
                            int64_t total) {
  flights_on_their_way flights = {group, list, total};
  HARK_TRY(end(context, group, start_all(context, group, TAG, messages, count, list)));
  return hark_group_wait(context, group, test_all, &flights);
}

hark_status hark_group_reserve(hark_context *context, hark_group *group, int64_t pieces) {
  const size_t bytes = (size_t)pieces * sizeof(hark_group_flight);
  if (group == NULL || bytes <= group->room_bytes) return HARK_OK;
  hark_group_release(context, group);
  HARK_TRY(hark_allocate(context, bytes, &group->room));
  group->room_bytes = bytes;
  return HARK_OK;
}

void hark_group_release(hark_context *context, hark_group *group) {
  if (group == NULL) return;
  hark_release(context, group->room, group->room_bytes);
  group->room = NULL;
  group->room_bytes = 0;
}

hark_status hark_group_exchange(hark_context *context, hark_group *group, const hark_message *messages, int count) {
  hark_group_flight few[FEW_PIECES]; /* so that agreeing about a lack of memory needs none */
  int64_t total = 0;
  if (group == NULL) return HARK_OK;
  HARK_TRY(refuse_if_over(context, group));
  for (int i = 0; i < count; i++) total += pieces_of(&messages[i]);
  if (total <= FEW_PIECES) return exchange(context, group, messages, count, few, total);
  HARK_TRY(hark_group_reserve(context, group, total));
  return exchange(context, group, messages, count, group->room, total);
}

/* From rank 0 over a binary tree: who has the bytes passes them to the rank at half the distance. */
hark_status hark_group_broadcast(hark_context *context, hark_group *group, void *data, size_t bytes) {
  const int rank = hark_group_rank(group), size = hark_group_size(group);
  int distance = 1;
  while (distance < size) distance *= 2;
  for (distance /= 2; distance > 0; distance /= 2) {
    const bool sends = rank % (2 * distance) == 0 && rank + distance < size, receives = rank % (2 * distance) == distance;
    const hark_message message = {.data = data, .bytes = bytes, .peer = sends ? rank + distance : rank - distance, .sends = sends};
    if (sends || receives) HARK_TRY(hark_group_exchange(context, group, &message, 1));
  }
  return HARK_OK;
}

/* Rank 0 collects from one after the other, and all get what it has. */
hark_status hark_group_gather(hark_context *context, hark_group *group, const void *mine, size_t bytes, void *all) {
  const int rank = hark_group_rank(group), size = hark_group_size(group);
  memmove((char *)all + (size_t)rank * bytes, mine, bytes);
  for (int peer = 1; peer < size; peer++) {
    const hark_message message = {(char *)all + (size_t)peer * bytes, bytes, rank == 0 ? peer : 0, rank != 0};
    if (rank == 0 || rank == peer) HARK_TRY(hark_group_exchange(context, group, &message, 1));
  }
  return hark_group_broadcast(context, group, all, (size_t)size * bytes);
}

/* ---- one status for all ---- */

/* All places where processes agree have messages of this one form. */
typedef struct opinion {
  int32_t status;
  char message[HARK_MESSAGE_BYTES];
  unsigned char note[HARK_GROUP_NOTE_BYTES];
} opinion;

/* What counts after another opinion: the first error, and not the first HARK_NOT_FINITE if there is another error. */
static void hear(opinion *so_far, int *of_rank, bool *equal, const opinion *next, int rank) {
  *equal = *equal && so_far->status == next->status && strcmp(so_far->message, next->message) == 0;
  const bool worse = next->status != HARK_OK && (so_far->status == HARK_OK || so_far->status == HARK_NOT_FINITE);
  if (!worse || (so_far->status == HARK_NOT_FINITE && next->status == HARK_NOT_FINITE)) return;
  so_far->status = next->status;
  memcpy(so_far->message, next->message, sizeof so_far->message);
  *of_rank = rank;
}

/* Rank 0 hears all, one after the other. */
static hark_status judge(hark_context *context, hark_group *group, opinion *result, size_t bytes, unsigned char *all) {
  bool equal = true;
  int of_rank = 0;
  for (int rank = 1; rank < hark_group_size(group); rank++) {
    opinion next;
    const hark_message message = {.data = &next, .bytes = sizeof next, .peer = rank};
    HARK_TRY(hark_group_exchange(context, group, &message, 1));
    hear(result, &of_rank, &equal, &next, rank);
    if (bytes > 0) memcpy(all + (size_t)rank * bytes, next.note, bytes);
  }
  if (equal || result->status == HARK_OK || of_rank == 0) return HARK_OK;
  char own[HARK_MESSAGE_BYTES];
  memcpy(own, result->message, sizeof own);
  (void)snprintf(result->message, sizeof result->message, "rank %d: %.480s", of_rank, own);
  return HARK_OK;
}

/* All know of an error: from here on none begins a round by itself, so that the rounds can be counted. */
static hark_status drain(hark_context *context, hark_group *group) {
  const hark_group_background background = group->background;
  int64_t begun[HARK_GROUP_MOST], most = 0;
  group->background.progress = NULL;
  hark_status status = hark_group_gather(context, group, &group->begun, sizeof *begun, begun);
  for (int rank = 0; rank < hark_group_size(group) && status == HARK_OK; rank++) most = hark_max(most, begun[rank]);
  if (status == HARK_OK && background.drain != NULL) status = background.drain(context, background.user, most);
  group->background.progress = background.progress;
  return status;
}

static hark_status meet(hark_context *context, hark_group *group, opinion *mine, size_t bytes, void *all) {
  const hark_message message = {.data = mine, .bytes = sizeof *mine, .peer = 0, .sends = true};
  if (hark_group_rank(group) == 0)
    HARK_TRY(judge(context, group, mine, bytes, all));
  else
    HARK_TRY(hark_group_exchange(context, group, &message, 1));
  HARK_TRY(hark_group_broadcast(context, group, mine, sizeof *mine));
  if (mine->status != HARK_OK) {
    HARK_TRY(drain(context, group));
    return hark_fail(context, (hark_status)mine->status, "%s", mine->message);
  }
  return bytes > 0 ? hark_group_broadcast(context, group, all, (size_t)hark_group_size(group) * bytes) : HARK_OK;
}

hark_status hark_group_meet(hark_context *context, hark_group *group, hark_status status, const void *mine, size_t bytes, void *all) {
  opinion own = {.status = (int32_t)status};
  if (bytes > 0) memcpy((char *)all + (size_t)hark_group_rank(group) * bytes, mine, bytes);
  if (hark_group_size(group) == 1) return status;
  HARK_TRY(refuse_if_over(context, group));
  if (status != HARK_OK) (void)snprintf(own.message, sizeof own.message, "%s", hark_context_message(context));
  if (bytes > 0) memcpy(own.note, mine, bytes);
  return end(context, group, meet(context, group, &own, bytes, all));
}

hark_status hark_group_agree(hark_context *context, hark_group *group, hark_status status) {
  return hark_group_meet(context, group, status, NULL, 0, NULL);
}

hark_status hark_group_agree_patiently(hark_context *context, hark_group *group, hark_status status) {
  if (group == NULL) return status;
  const double limit = group->limit;
  if (hark_group_rank(group) > 0) group->limit = INFINITY;
  status = hark_group_agree(context, group, status);
  group->limit = limit;
  return status;
}

void hark_group_renew(hark_group *group) {
  if (group != NULL && !hark_group_is_lost(group)) group->over = HARK_OK;
}

hark_status hark_group_compare(hark_context *context, hark_group *group, hark_status status, uint64_t number, const char *what) {
  uint64_t first = number;
  HARK_TRY(hark_group_agree(context, group, status));
  HARK_TRY(hark_group_broadcast(context, group, &first, sizeof first));
  if (first != number) status = hark_fail(context, HARK_BAD_CONFIGURATION, "the %s are not those of rank 0", what);
  return hark_group_agree(context, group, status);
}
