/* inquiry.h - which process keeps a group waiting. A process that has waited for another one up to its limit asks it for whom it waits, and
 * then asks the process that it names, and so on. The process that names none has stopped, or it computes. */
#ifndef HARK_GROUP_INQUIRY_H
#define HARK_GROUP_INQUIRY_H

#include "group/transport.h"

#define HARK_INQUIRY_QUESTION_TAG 8 /* of messages of the whole group, from any process to any other */
#define HARK_INQUIRY_ANSWER_TAG 9

/* The numbers of a message: that of the question; in an answer, the process for which the sender waits, and for how long already. */
enum { HARK_INQUIRY_NUMBER, HARK_INQUIRY_PROCESS, HARK_INQUIRY_MILLISECONDS, HARK_INQUIRY_NUMBERS };

/* A message to or from process `peer`. While it is on its way, no other one takes its place. */
typedef struct hark_inquiry_note {
  hark_transport_request request;
  int32_t data[HARK_INQUIRY_NUMBERS];
  bool on_its_way;
  int peer;
} hark_inquiry_note;

/* What one process knows. Zeroed at the beginning. */
typedef struct hark_inquiry {
  hark_inquiry_note question, answer;          /* sent */
  hark_inquiry_note asked_of_us, answer_to_us; /* received */
  int32_t number;                              /* of the last question: answers to earlier ones do not count */
  bool goes_on, posed;                         /* an inquiry goes on; its last question was sent */
  int asked, waiting;                          /* the process asked last, and the one that waits for it, */
  double waited;                               /* for so many seconds */
  int answers;                                 /* so far */
  double begun, since;                         /* the inquiry, its last question; in seconds (hark_machine_seconds) */
  int failed;                                  /* if the transport failed: the other process of the message */
} hark_inquiry;

/* Answers other processes: this one has waited for process `peer` for `seconds`. Returns at once. Returns 0, or another number if the
 * transport failed. */
int hark_inquiry_answer(hark_transport *transport, hark_inquiry *inquiry, int peer, double seconds);

/* What an inquiry has found: process `waiting` waits for process `silent`, for `seconds` already. */
typedef struct hark_inquiry_result {
  int silent, waiting;
  double seconds;
} hark_inquiry_result;

/* Asks process `peer`, for which this process has waited for `waited` seconds, then the process for which `peer` waits, and so on. Called
 * again and again until result->silent is not negative. That is the process that gave no answer within `patience` seconds, or within twice
 * this time since the first question; or the one that has waited itself for less than half of `waited`, so that it is late for another
 * reason. If processes wait for each other in a circle, it is `peer`. Returns at once. Returns 0, or another number if the transport
 * failed. */
int hark_inquiry_ask(hark_transport *transport, hark_inquiry *inquiry, int peer, double waited, double patience,
                     hark_inquiry_result *result);

/* The process waits for something else now: the next hark_inquiry_ask() begins anew. */
static inline void hark_inquiry_end(hark_inquiry *inquiry) { inquiry->goes_on = false; }

/* Receives the messages that nobody needs any more, before the end of the transport. */
void hark_inquiry_close(hark_transport *transport, hark_inquiry *inquiry);

#endif
