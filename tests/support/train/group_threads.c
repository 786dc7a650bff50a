/* group_threads.c - see group_threads.h. */
#include "support/train/group_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/setups.h"
#include "support/train/small_run.h"

enum { TAGS = 512 };

int test_group_lateness = 0;
long test_group_lost = 0;

typedef struct letter {
  struct letter *next;
  int tag;
  size_t bytes;
  unsigned char data[];
} letter;

/* Letters from one rank to another, in order. */
typedef struct mailbox {
  letter *first, *last;
} mailbox;

/* Messages between two ranks with one tag end in the order in which they began. */
typedef struct order {
  long begun, ended;
} order;

typedef struct post_office {
  pthread_mutex_t lock;
  mailbox boxes[TEST_MOST_RANKS][TEST_MOST_RANKS];
  order sent[TEST_MOST_RANKS][TEST_MOST_RANKS][TAGS], received[TEST_MOST_RANKS][TEST_MOST_RANKS][TAGS]; /* [own][peer], of own thread */
} post_office;

/* In the bytes of a request. */
typedef struct pending {
  union {
    void *to;
    const void *from;
  } data;
  size_t bytes;
  int peer, tag;
  long number;
  int patience; /* tests before it may end */
  bool sends;
} pending;
_Static_assert(sizeof(pending) <= HARK_TRANSPORT_REQUEST_BYTES, "a message fits into a request");

static order *order_of(const hark_transport *transport, const pending *state) {
  post_office *const office = transport->state;
  return &(state->sends ? office->sent : office->received)[transport->rank][state->peer][state->tag];
}

static void put(post_office *office, int from, const pending *state) {
  letter *const new = malloc(sizeof *new + state->bytes);
  if (new == NULL) abort();
  *new = (letter){.bytes = state->bytes, .tag = state->tag};
  if (state->bytes > 0) memcpy(new->data, state->data.from, state->bytes);
  (void)pthread_mutex_lock(&office->lock);
  mailbox *const box = &office->boxes[from][state->peer];
  if (box->last != NULL) box->last->next = new;
  if (box->first == NULL) box->first = new;
  box->last = new;
  (void)pthread_mutex_unlock(&office->lock);
}

/* The first letter with this tag, any with -1. */
static letter *take(post_office *office, int from, int to, int tag) {
  (void)pthread_mutex_lock(&office->lock);
  mailbox *const box = &office->boxes[from][to];
  letter *before = NULL, *found = box->first;
  while (found != NULL && tag >= 0 && found->tag != tag) {
    before = found;
    found = found->next;
  }
  if (found != NULL && before != NULL) before->next = found->next;
  if (found != NULL && before == NULL) box->first = found->next;
  if (found != NULL && box->last == found) box->last = before;
  (void)pthread_mutex_unlock(&office->lock);
  return found;
}

static int begin(hark_transport *transport, pending state, hark_transport_request *request) {
  if (state.tag >= TAGS) abort();
  state.number = order_of(transport, &state)->begun++;
  const unsigned mixed =
      ((unsigned)state.number * 40503u + (unsigned)state.tag * 977u + (unsigned)(7 * transport->rank + state.peer)) * 2654435761u;
  state.patience = test_group_lateness > 0 ? (int)((mixed >> 8) % (unsigned)test_group_lateness) : 0;
  memcpy(request->state.bytes, &state, sizeof state);
  return 0;
}

/* In time, a letter is under way before anybody tests. */
static int send_letter(hark_transport *transport, int to, int tag, const void *data, size_t bytes, hark_transport_request *request) {
  const pending state = {.data.from = data, .bytes = bytes, .peer = to, .tag = tag, .sends = true};
  if (test_group_lateness == 0) put(transport->state, transport->rank, &state);
  return begin(transport, state, request);
}

static int receive_letter(hark_transport *transport, int from, int tag, void *data, size_t bytes, hark_transport_request *request) {
  return begin(transport, (pending){.data.to = data, .bytes = bytes, .peer = from, .tag = tag}, request);
}

static int open_letter(hark_transport *transport, letter *found, const pending *state) {
  const bool same = found->bytes == state->bytes;
  if (same && state->bytes > 0) memcpy(state->data.to, found->data, found->bytes);
  if (!same) (void)snprintf(transport->message, sizeof transport->message, "%zu bytes, expected %zu", found->bytes, state->bytes);
  free(found);
  return same ? 0 : 1;
}

static int test_letter(hark_transport *transport, hark_transport_request *request, bool *done) {
  pending state;
  memcpy(&state, request->state.bytes, sizeof state);
  *done = false;
  if (state.patience-- > 0) {
    memcpy(request->state.bytes, &state, sizeof state);
    return 0;
  }
  order *const own = order_of(transport, &state);
  if (own->ended != state.number) return 0;
  letter *const found = state.sends ? NULL : take(transport->state, state.peer, transport->rank, state.tag);
  if (!state.sends && found == NULL) return 0;
  own->ended++;
  *done = true;
  if (!state.sends) return open_letter(transport, found, &state);
  if (test_group_lateness > 0) put(transport->state, transport->rank, &state);
  return 0;
}

static int letter_arrived(hark_transport *transport, int tag, int *from, bool *arrived) {
  post_office *const office = transport->state;
  *arrived = false;
  (void)pthread_mutex_lock(&office->lock);
  for (int peer = 0; peer < transport->size && !*arrived; peer++) {
    const letter *found = office->boxes[peer][transport->rank].first;
    while (found != NULL && found->tag != tag) found = found->next;
    *arrived = found != NULL;
    if (found != NULL) *from = peer;
  }
  (void)pthread_mutex_unlock(&office->lock);
  return 0;
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
      for (letter *left = take(office, from, to, -1); left != NULL; left = take(office, from, to, -1)) free(left);
}

static long lost_of(const order *list) {
  long lost = 0;
  for (int tag = 0; tag < TAGS; tag++) lost += list[tag].begun - list[tag].ended;
  return lost;
}

static long count_lost(const post_office *office) {
  long lost = 0;
  for (int own = 0; own < TEST_MOST_RANKS; own++)
    for (int peer = 0; peer < TEST_MOST_RANKS; peer++) lost += lost_of(office->sent[own][peer]) + lost_of(office->received[own][peer]);
  return lost;
}

void test_group_run(int size, double limit, test_rank *rank, void *user, hark_status *statuses, char (*messages)[512]) {
  static const hark_transport functions = {.send = send_letter, .receive = receive_letter, .test = test_letter, .arrived = letter_arrived};
  post_office *const office = calloc(1, sizeof *office);
  assert_non_null(office);
  assert_int_equal(pthread_mutex_init(&office->lock, NULL), 0);
  member members[TEST_MOST_RANKS] = {{.rank = NULL}};
  pthread_t threads[TEST_MOST_RANKS];
  for (int i = 0; i < size; i++) {
    member *const self = &members[i];
    *self = (member){.transport = functions, .group = {.transport = &self->transport, .limit = limit}, .rank = rank, .user = user};
    self->transport.rank = i;
    self->transport.size = size;
    self->transport.state = office;
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
  test_group_lost = count_lost(office);
  empty(office);
  (void)pthread_mutex_destroy(&office->lock);
  free(office);
}
