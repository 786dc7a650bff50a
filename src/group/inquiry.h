/* inquiry.h - which process keeps a group waiting. A process that has waited for another one up to its limit asks it. A process that waits
 * too answers with the process that it waits for, which is asked next. The process that does not answer has stopped, or it computes. */
#ifndef HARK_GROUP_INQUIRY_H
#define HARK_GROUP_INQUIRY_H

#include "group/transport.h"

#define HARK_INQUIRY_QUESTION_TAG 8 /* of messages of the whole group, from any process to any other */
#define HARK_INQUIRY_ANSWER_TAG 9

/* A message of an inquiry, and its way to another process. */
typedef struct hark_inquiry_note {
  hark_transport_request request;
  int32_t data[2];
  bool sent; /* and perhaps still on its way: no other may be sent */
} hark_inquiry_note;

/* What a process knows. Zeroed: nobody has been asked. */
typedef struct hark_inquiry {
  hark_inquiry_note question, answer;
  int32_t number;     /* of the last question: answers to earlier ones do not count */
  bool asks, posed;   /* an inquiry goes on; its last question has been sent */
  int asked, waiting; /* the process that it is for, and the one that waits for this process */
  int answers;        /* so far */
  double since;       /* seconds (hark_machine_seconds) */
} hark_inquiry;

/* Answers other processes, which ask while this one waits for process `peer`. Returns at once. Returns 0, or another number if the
 * transport failed. */
int hark_inquiry_answer(hark_transport *transport, hark_inquiry *inquiry, int peer);

/* Asks process `peer`, for which this process waits, then the process that this one waits for, and so on. Called again and again until
 * *silent, the process that did not answer within `seconds`, is not negative; *waiting: the process that waits for it. If the processes
 * wait for each other, *silent is `peer`. Returns at once. Returns 0, or another number if the transport failed. */
int hark_inquiry_ask(hark_transport *transport, hark_inquiry *inquiry, int peer, double seconds, int *silent, int *waiting);

/* The process that was waited for has sent something: the next hark_inquiry_ask() begins anew. */
static inline void hark_inquiry_end(hark_inquiry *inquiry) { inquiry->asks = false; }

#endif
