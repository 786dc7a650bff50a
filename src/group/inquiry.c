/* inquiry.c - see inquiry.h. */
#include "group/inquiry.h"

#include <math.h>

#include "io/machine.h"

/* Whether a note that was begun has ended. */
static int test_note(hark_transport *transport, hark_inquiry *inquiry, hark_inquiry_note *note, bool *ended) {
  *ended = !note->on_its_way;
  const int failure = *ended ? 0 : transport->test(transport, &note->request, ended);
  if (*ended) note->on_its_way = false;
  if (failure != 0) inquiry->failed = note->peer;
  return failure;
}

static int send_note(hark_transport *transport, hark_inquiry *inquiry, hark_inquiry_note *note, int tag) {
  const int failure = transport->send(transport, note->peer, tag, note->data, sizeof note->data, &note->request);
  note->on_its_way = failure == 0;
  if (failure != 0) inquiry->failed = note->peer;
  return failure;
}

/* *received: a note has come. */
static int receive_note(hark_transport *transport, hark_inquiry *inquiry, hark_inquiry_note *note, int tag, bool *received) {
  *received = false;
  if (!note->on_its_way) {
    bool arrived = false;
    note->peer = transport->rank;
    int failure = transport->arrived(transport, tag, &note->peer, &arrived);
    if (failure == 0 && arrived) failure = transport->receive(transport, note->peer, tag, note->data, sizeof note->data, &note->request);
    if (failure != 0) inquiry->failed = note->peer;
    if (failure != 0 || !arrived) return failure;
    note->on_its_way = true;
  }
  return test_note(transport, inquiry, note, received);
}

static int32_t in_milliseconds(double seconds) { return (int32_t)fmin(1000 * seconds, INT32_MAX); }

int hark_inquiry_answer(hark_transport *transport, hark_inquiry *inquiry, int peer, double seconds) {
  for (;;) {
    bool ready = false;
    int failure = test_note(transport, inquiry, &inquiry->answer, &ready);
    if (failure == 0 && ready) failure = receive_note(transport, inquiry, &inquiry->asked_of_us, HARK_INQUIRY_QUESTION_TAG, &ready);
    if (failure != 0 || !ready) return failure;
    inquiry->answer.peer = inquiry->asked_of_us.peer;
    inquiry->answer.data[HARK_INQUIRY_NUMBER] = inquiry->asked_of_us.data[HARK_INQUIRY_NUMBER];
    inquiry->answer.data[HARK_INQUIRY_PROCESS] = peer;
    inquiry->answer.data[HARK_INQUIRY_MILLISECONDS] = in_milliseconds(seconds);
    failure = send_note(transport, inquiry, &inquiry->answer, HARK_INQUIRY_ANSWER_TAG);
    if (failure != 0) return failure;
  }
}

static void turn_to(hark_inquiry *inquiry, int process, int waiting, double waited) {
  inquiry->posed = false;
  inquiry->asked = process;
  inquiry->waiting = waiting;
  inquiry->waited = waited;
  inquiry->since = hark_machine_seconds();
  inquiry->number++;
}

static void begin(hark_inquiry *inquiry, int peer, int rank, double waited) {
  turn_to(inquiry, peer, rank, waited);
  inquiry->goes_on = true;
  inquiry->answers = 0;
  inquiry->begun = inquiry->since;
}

/* The question of an earlier inquiry may still be on its way. */
static int pose(hark_transport *transport, hark_inquiry *inquiry) {
  bool ready = false;
  const int failure = test_note(transport, inquiry, &inquiry->question, &ready);
  if (failure != 0 || !ready || inquiry->posed) return failure;
  inquiry->posed = true;
  inquiry->question.peer = inquiry->asked;
  inquiry->question.data[HARK_INQUIRY_NUMBER] = inquiry->number;
  return send_note(transport, inquiry, &inquiry->question, HARK_INQUIRY_QUESTION_TAG);
}

/* An answer that counts: whom to ask next, or the end. */
static void hear(hark_inquiry *inquiry, const hark_transport *transport, int peer, double waited, hark_inquiry_result *result) {
  const int32_t *const answer = inquiry->answer_to_us.data;
  const double waits = answer[HARK_INQUIRY_MILLISECONDS] / 1000.0;
  const int next = answer[HARK_INQUIRY_PROCESS];
  if (++inquiry->answers >= transport->size || next == transport->rank)
    *result = (hark_inquiry_result){peer, transport->rank, waited};
  else if (waits < waited / 2)
    *result = (hark_inquiry_result){inquiry->asked, inquiry->waiting, inquiry->waited};
  else
    turn_to(inquiry, next, inquiry->asked, waits);
}

int hark_inquiry_ask(hark_transport *transport, hark_inquiry *inquiry, int peer, double waited, double patience,
                     hark_inquiry_result *result) {
  bool received = true;
  *result = (hark_inquiry_result){.silent = -1};
  if (!inquiry->goes_on) begin(inquiry, peer, transport->rank, waited);
  while (received) {
    const int failure = receive_note(transport, inquiry, &inquiry->answer_to_us, HARK_INQUIRY_ANSWER_TAG, &received);
    if (failure != 0) return failure;
    if (received && inquiry->answer_to_us.data[HARK_INQUIRY_NUMBER] == inquiry->number) hear(inquiry, transport, peer, waited, result);
    if (result->silent >= 0) return 0;
  }
  const double now = hark_machine_seconds();
  if (now - inquiry->since <= patience && now - inquiry->begun <= 2 * patience) return pose(transport, inquiry);
  *result = (hark_inquiry_result){inquiry->asked, inquiry->waiting, inquiry->waited};
  return 0;
}

void hark_inquiry_close(hark_transport *transport, hark_inquiry *inquiry) {
  bool more = true;
  while (more) {
    bool question = false, answer = false;
    if (receive_note(transport, inquiry, &inquiry->asked_of_us, HARK_INQUIRY_QUESTION_TAG, &question) != 0) return;
    if (receive_note(transport, inquiry, &inquiry->answer_to_us, HARK_INQUIRY_ANSWER_TAG, &answer) != 0) return;
    more = question || answer;
  }
  if (test_note(transport, inquiry, &inquiry->question, &more) == 0) (void)test_note(transport, inquiry, &inquiry->answer, &more);
}
