/* inquiry.c - see inquiry.h. */
#include "group/inquiry.h"

#include "io/machine.h"

/* Whether a note is free: the last one has reached the transport. */
static int make_free(hark_transport *transport, hark_inquiry_note *note, bool *is_free) {
  bool done = !note->sent;
  const int failure = done ? 0 : transport->test(transport, &note->request, &done);
  note->sent = !done;
  *is_free = done;
  return failure;
}

static int send_note(hark_transport *transport, hark_inquiry_note *note, int to, int tag, int32_t number, int32_t process) {
  note->data[0] = number;
  note->data[1] = process;
  note->sent = true;
  return transport->send(transport, to, tag, note->data, sizeof note->data, &note->request);
}

/* Receives a note that has arrived. */
static int receive_note(hark_transport *transport, int tag, int32_t data[2], int *from, bool *arrived) {
  hark_transport_request request;
  int failure = transport->arrived(transport, tag, from, arrived);
  if (failure != 0 || !*arrived) return failure;
  failure = transport->receive(transport, *from, tag, data, 2 * sizeof *data, &request);
  for (bool done = false; failure == 0 && !done;) failure = transport->test(transport, &request, &done);
  return failure;
}

int hark_inquiry_answer(hark_transport *transport, hark_inquiry *inquiry, int peer) {
  for (;;) {
    int32_t question[2];
    int from = 0;
    bool ready = false;
    int failure = make_free(transport, &inquiry->answer, &ready);
    if (failure != 0 || !ready) return failure;
    failure = receive_note(transport, HARK_INQUIRY_QUESTION_TAG, question, &from, &ready);
    if (failure != 0 || !ready) return failure;
    failure = send_note(transport, &inquiry->answer, from, HARK_INQUIRY_ANSWER_TAG, question[0], peer);
    if (failure != 0) return failure;
  }
}

static void turn_to(hark_inquiry *inquiry, int process, int waiting) {
  inquiry->asks = true;
  inquiry->posed = false;
  inquiry->asked = process;
  inquiry->waiting = waiting;
  inquiry->since = hark_machine_seconds();
  inquiry->number++;
}

/* The question of an earlier inquiry may still be on its way. */
static int pose(hark_transport *transport, hark_inquiry *inquiry) {
  bool ready = false;
  const int failure = inquiry->posed ? 0 : make_free(transport, &inquiry->question, &ready);
  if (failure != 0 || !ready) return failure;
  inquiry->posed = true;
  return send_note(transport, &inquiry->question, inquiry->asked, HARK_INQUIRY_QUESTION_TAG, inquiry->number, 0);
}

static int end_at(int process, int waits, int *silent, int *waiting) {
  *silent = process;
  *waiting = waits;
  return 0;
}

int hark_inquiry_ask(hark_transport *transport, hark_inquiry *inquiry, int peer, double seconds, int *silent, int *waiting) {
  int32_t answer[2];
  int from = 0;
  bool arrived = true;
  *silent = -1;
  if (!inquiry->asks) {
    turn_to(inquiry, peer, transport->rank);
    inquiry->answers = 0;
  }
  while (arrived) {
    const int failure = receive_note(transport, HARK_INQUIRY_ANSWER_TAG, answer, &from, &arrived);
    if (failure != 0) return failure;
    if (!arrived || answer[0] != inquiry->number) continue;
    if (++inquiry->answers >= transport->size || answer[1] == transport->rank) return end_at(peer, transport->rank, silent, waiting);
    turn_to(inquiry, answer[1], inquiry->asked);
  }
  const bool in_time = hark_machine_seconds() - inquiry->since <= seconds;
  return in_time ? pose(transport, inquiry) : end_at(inquiry->asked, inquiry->waiting, silent, waiting);
}
