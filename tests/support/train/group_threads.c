/* group_threads.c - see group_threads.h. */
#include "support/train/group_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/small_run.h"

typedef struct letter {
  struct letter *next;
  size_t bytes;
  unsigned char data[];
} letter;

/* Letters from one rank to another, in order. */
typedef struct mailbox {
  letter *first, *last;
} mailbox;

typedef struct post_office {
  pthread_mutex_t lock;
  mailbox boxes[TEST_MOST_RANKS][TEST_MOST_RANKS];
  long begun[TEST_MOST_RANKS][TEST_MOST_RANKS], ended[TEST_MOST_RANKS][TEST_MOST_RANKS]; /* receptions, of the receiver's thread alone */
} post_office;

/* In the bytes of a request. */
typedef struct pending {
  void *data; /* NULL: sent, which is done at once */
  size_t bytes;
  int from;
  long number; /* the receptions from a rank end in the order in which they began */
} pending;

static void keep(hark_transport_request *request, const pending *state) { memcpy(request->state.bytes, state, sizeof *state); }

static int send_letter(hark_transport *transport, int to, int tag, const void *data, size_t bytes, hark_transport_request *request) {
  post_office *const office = transport->state;
  letter *const new = malloc(sizeof *new + bytes);
  (void)tag;
  if (new == NULL) abort();
  *new = (letter){.bytes = bytes};
  if (bytes > 0) memcpy(new->data, data, bytes);
  (void)pthread_mutex_lock(&office->lock);
  mailbox *const box = &office->boxes[transport->rank][to];
  if (box->last != NULL) box->last->next = new;
  if (box->first == NULL) box->first = new;
  box->last = new;
  (void)pthread_mutex_unlock(&office->lock);
  keep(request, &(pending){0});
  return 0;
}

static int receive_letter(hark_transport *transport, int from, int tag, void *data, size_t bytes, hark_transport_request *request) {
  static char nothing;
  post_office *const office = transport->state;
  (void)tag;
  keep(request, &(pending){bytes > 0 ? data : &nothing, bytes, from, office->begun[from][transport->rank]++});
  return 0;
}

static letter *take(post_office *office, int from, int to) {
  (void)pthread_mutex_lock(&office->lock);
  mailbox *const box = &office->boxes[from][to];
  letter *const first = box->first;
  if (first != NULL) box->first = first->next;
  if (box->first == NULL) box->last = NULL;
  (void)pthread_mutex_unlock(&office->lock);
  return first;
}

static int test_letter(hark_transport *transport, hark_transport_request *request, bool *done) {
  pending state;
  memcpy(&state, request->state.bytes, sizeof state);
  *done = state.data == NULL;
  if (*done) return 0;
  post_office *const office = transport->state;
  letter *const found = office->ended[state.from][transport->rank] == state.number ? take(office, state.from, transport->rank) : NULL;
  if (found == NULL) return 0;
  office->ended[state.from][transport->rank]++;
  *done = true;
  const bool same = found->bytes == state.bytes;
  if (same)
    memcpy(state.data, found->data, found->bytes);
  else
    (void)snprintf(transport->message, sizeof transport->message, "%zu bytes, expected %zu", found->bytes, state.bytes);
  free(found);
  return same ? 0 : 1;
}

typedef struct member {
  hark_transport transport;
  hark_group group;
  test_rank *rank;
  void *user;
  hark_status status;
  char message[512];
} member;

static void *live(void *user) {
  member *const self = user;
  hark_context *context = small_run_context(1);
  self->status = self->rank(context, &self->group, self->user);
  (void)snprintf(self->message, sizeof self->message, "%s", self->status == HARK_OK ? "" : hark_context_message(context));
  hark_group_release(context, &self->group);
  test_setup_close(context);
  return NULL;
}

static void empty(post_office *office) {
  for (int from = 0; from < TEST_MOST_RANKS; from++)
    for (int to = 0; to < TEST_MOST_RANKS; to++)
      for (letter *left = take(office, from, to); left != NULL; left = take(office, from, to)) free(left);
}

void test_group_run(int size, double limit, test_rank *rank, void *user, hark_status *statuses, char (*messages)[512]) {
  static const hark_transport functions = {.send = send_letter, .receive = receive_letter, .test = test_letter};
  post_office office = {.lock = PTHREAD_MUTEX_INITIALIZER};
  member members[TEST_MOST_RANKS] = {{.rank = NULL}};
  pthread_t threads[TEST_MOST_RANKS];
  for (int i = 0; i < size; i++) {
    member *const self = &members[i];
    *self = (member){.transport = functions, .group = {.transport = &self->transport, .limit = limit}, .rank = rank, .user = user};
    self->transport.rank = i;
    self->transport.size = size;
    self->transport.state = &office;
    assert_int_equal(pthread_create(&threads[i], NULL, live, self), 0);
  }
  for (int i = 0; i < size; i++) {
    assert_int_equal(pthread_join(threads[i], NULL), 0);
    if (statuses != NULL)
      statuses[i] = members[i].status;
    else if (members[i].status != HARK_OK)
      fail_msg("rank %d of %d: %s", i, size, members[i].message);
    if (messages != NULL) memcpy(messages[i], members[i].message, sizeof members[i].message);
  }
  empty(&office);
}
