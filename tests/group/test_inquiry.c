/* test_inquiry.c - whom an inquiry names (src/group/inquiry.h), with messages that the test writes, and without clocks: a process has all
 * time to answer, or none.
 */
#include <string.h>

#include "group/inquiry.h"
#include "support/cmocka_all.h"

#define ALL_TIME 1e9
#define NO_TIME (-1.0)
#define WAITED 10.0
#define RANK 0
#define SIZE 4
enum { MOST = 8 };

typedef struct message {
  int tag, peer;
  int32_t data[HARK_INQUIRY_NUMBERS];
} message;

/* What has arrived and was not received, what was sent, and whether sent messages stay on their way. */
static struct {
  message arrived[MOST], sent[MOST];
  int arrivals, sends, failing_peer;
  bool holds;
} post;
static hark_inquiry inquiry;

static int send_message(hark_transport *transport, int to, int tag, const void *data, size_t bytes, hark_transport_request *request) {
  assert_int_equal(transport->rank, RANK);
  assert_int_equal(bytes, sizeof post.sent->data);
  if (to == post.failing_peer) return 1;
  assert_true(post.sends < MOST);
  message *const new = &post.sent[post.sends++];
  *new = (message){.tag = tag, .peer = to};
  memcpy(new->data, data, bytes);
  request->state.number = 1;
  return 0;
}

static int find(int tag) {
  for (int i = 0; i < post.arrivals; i++)
    if (post.arrived[i].tag == tag) return i;
  return -1;
}

static int receive_message(hark_transport *transport, int from, int tag, void *data, size_t bytes, hark_transport_request *request) {
  const int at = find(tag);
  (void)transport;
  assert_true(at >= 0);
  assert_int_equal(post.arrived[at].peer, from);
  memcpy(data, post.arrived[at].data, bytes);
  memmove(&post.arrived[at], &post.arrived[at + 1], (size_t)(--post.arrivals - at) * sizeof *post.arrived);
  request->state.number = 0;
  return 0;
}

static int test_message(hark_transport *transport, hark_transport_request *request, bool *done) {
  (void)transport;
  *done = request->state.number == 0 || !post.holds;
  return 0;
}

static int message_arrived(hark_transport *transport, int tag, int *from, bool *arrived) {
  const int at = find(tag);
  (void)transport;
  *arrived = at >= 0;
  if (*arrived) *from = post.arrived[at].peer;
  return 0;
}

static hark_transport transport = {
    .rank = RANK, .size = SIZE, .send = send_message, .receive = receive_message, .test = test_message, .arrived = message_arrived};

static int begin(void **state) {
  (void)state;
  memset(&post, 0, sizeof post);
  memset(&inquiry, 0, sizeof inquiry);
  post.failing_peer = -1;
  return 0;
}

static void arrives(int tag, int from, int number, int process, int milliseconds) {
  assert_true(post.arrivals < MOST);
  post.arrived[post.arrivals++] = (message){tag, from, {number, process, milliseconds}};
}

/* The inquiry goes on, and its last question is number `number`, to `process`; or it has had the whole time that it may take. */
static void asks(double patience, int process, int number) {
  hark_inquiry_result result;
  assert_int_equal(hark_inquiry_ask(&transport, &inquiry, 1, WAITED, patience, &result), 0);
  assert_int_equal(result.silent, -1);
  assert_int_equal(post.sent[post.sends - 1].tag, HARK_INQUIRY_QUESTION_TAG);
  assert_int_equal(post.sent[post.sends - 1].peer, process);
  assert_int_equal(post.sent[post.sends - 1].data[HARK_INQUIRY_NUMBER], number);
}

static void names(double patience, int silent, int waiting, double seconds) {
  hark_inquiry_result result;
  assert_int_equal(hark_inquiry_ask(&transport, &inquiry, 1, WAITED, patience, &result), 0);
  assert_int_equal(result.silent, silent);
  assert_int_equal(result.waiting, waiting);
  assert_true(result.seconds == seconds);
}

static void who_gives_no_answer_is_named(void **state) {
  (void)state;
  asks(ALL_TIME, 1, 1);
  asks(ALL_TIME, 1, 1);
  assert_int_equal(post.sends, 1); /* one question is enough */
  names(NO_TIME, 1, RANK, WAITED);
}

static void the_last_of_a_chain_is_named(void **state) {
  (void)state;
  asks(ALL_TIME, 1, 1);
  arrives(HARK_INQUIRY_ANSWER_TAG, 1, 1, 3, 9000);
  asks(ALL_TIME, 3, 2);
  arrives(HARK_INQUIRY_ANSWER_TAG, 3, 2, 2, 8000);
  asks(ALL_TIME, 2, 3);
  names(NO_TIME, 2, 3, 8);
}

/* Process 1 has waited for process 2 for a short time only: that is not why it is late. */
static void who_has_just_begun_to_wait_is_named(void **state) {
  (void)state;
  asks(ALL_TIME, 1, 1);
  arrives(HARK_INQUIRY_ANSWER_TAG, 1, 1, 2, 4999);
  names(ALL_TIME, 1, RANK, WAITED);
}

/* With this process in the circle, and without it. */
static void a_circle_has_an_end(void **state) {
  (void)state;
  asks(ALL_TIME, 1, 1);
  arrives(HARK_INQUIRY_ANSWER_TAG, 1, 1, RANK, 9000);
  names(ALL_TIME, 1, RANK, WAITED);
  hark_inquiry_end(&inquiry);
  asks(ALL_TIME, 1, 2);
  for (int turn = 0; turn < SIZE - 1; turn++) {
    arrives(HARK_INQUIRY_ANSWER_TAG, 1 + turn % 2, 2 + turn, 2 - turn % 2, 9000);
    asks(ALL_TIME, 2 - turn % 2, 3 + turn);
  }
  arrives(HARK_INQUIRY_ANSWER_TAG, 2, 1 + SIZE, 1, 9000);
  names(ALL_TIME, 1, RANK, WAITED);
}

static void old_answers_do_not_count(void **state) {
  (void)state;
  asks(ALL_TIME, 1, 1);
  hark_inquiry_end(&inquiry); /* process 1 has sent its message after all */
  arrives(HARK_INQUIRY_ANSWER_TAG, 1, 1, 3, 9000);
  asks(ALL_TIME, 1, 2);
  assert_int_equal(post.arrivals, 0);
  names(NO_TIME, 1, RANK, WAITED);
}

/* The next question waits for the place of the one before, which is still on its way. */
static void a_place_is_used_again_when_it_is_free(void **state) {
  (void)state;
  post.holds = true;
  asks(ALL_TIME, 1, 1);
  arrives(HARK_INQUIRY_ANSWER_TAG, 1, 1, 2, 9000);
  asks(ALL_TIME, 1, 1);
  assert_int_equal(post.sends, 1);
  post.holds = false;
  asks(ALL_TIME, 2, 2);
}

static void questions_are_answered(void **state) {
  (void)state;
  arrives(HARK_INQUIRY_QUESTION_TAG, 2, 17, 0, 0);
  arrives(HARK_INQUIRY_QUESTION_TAG, 3, 5, 0, 0);
  post.holds = true;
  assert_int_equal(hark_inquiry_answer(&transport, &inquiry, 1, 2.5), 0);
  assert_int_equal(post.sends, 1); /* the other one waits */
  post.holds = false;
  assert_int_equal(hark_inquiry_answer(&transport, &inquiry, 1, 1e300), 0);
  static const message expected[] = {{HARK_INQUIRY_ANSWER_TAG, 2, {17, 1, 2500}}, {HARK_INQUIRY_ANSWER_TAG, 3, {5, 1, INT32_MAX}}};
  assert_int_equal(post.sends, 2);
  assert_memory_equal(post.sent, expected, sizeof expected);
}

/* The process of the message is kept. */
static void failures_are_passed_on(void **state) {
  hark_inquiry_result result;
  (void)state;
  asks(ALL_TIME, 1, 1);
  arrives(HARK_INQUIRY_ANSWER_TAG, 1, 1, 3, 9000);
  post.failing_peer = 3;
  assert_int_not_equal(hark_inquiry_ask(&transport, &inquiry, 1, WAITED, ALL_TIME, &result), 0);
  assert_int_equal(inquiry.failed, 3);
  post.failing_peer = 2;
  arrives(HARK_INQUIRY_QUESTION_TAG, 2, 1, 0, 0);
  assert_int_not_equal(hark_inquiry_answer(&transport, &inquiry, 1, 1), 0);
  assert_int_equal(inquiry.failed, 2);
}

static void nothing_is_left_at_the_end(void **state) {
  (void)state;
  for (int i = 0; i < 3; i++) arrives(i % 2 == 0 ? HARK_INQUIRY_QUESTION_TAG : HARK_INQUIRY_ANSWER_TAG, i, i, 0, 0);
  hark_inquiry_close(&transport, &inquiry);
  assert_int_equal(post.arrivals, 0);
  assert_int_equal(post.sends, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(who_gives_no_answer_is_named, begin),
      cmocka_unit_test_setup(the_last_of_a_chain_is_named, begin),
      cmocka_unit_test_setup(who_has_just_begun_to_wait_is_named, begin),
      cmocka_unit_test_setup(a_circle_has_an_end, begin),
      cmocka_unit_test_setup(old_answers_do_not_count, begin),
      cmocka_unit_test_setup(a_place_is_used_again_when_it_is_free, begin),
      cmocka_unit_test_setup(questions_are_answered, begin),
      cmocka_unit_test_setup(failures_are_passed_on, begin),
      cmocka_unit_test_setup(nothing_is_left_at_the_end, begin),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
