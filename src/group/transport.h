/* transport.h - messages between the processes of a group. A module provides them, such as src/modules/mpi.c, which is loaded when a
 * launcher has started the program (group.h). Everything above (sums, broadcasts, agreements) is made of these messages, so that its order,
 * its limits of time and its errors are hark's own.
 *
 * A module is a shared object with one symbol, hark_transport_module, of type hark_transport_module_record. It uses nothing of libhark.
 */
#ifndef HARK_GROUP_TRANSPORT_H
#define HARK_GROUP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HARK_TRANSPORT_VERSION 2 /* grows with every change of this file */
#define HARK_TRANSPORT_REQUEST_BYTES 64
#define HARK_TRANSPORT_PIECE (1 << 26) /* bytes; a longer message is sent in pieces */
#define HARK_TRANSPORT_MESSAGE_BYTES 512

/* A message that is on its way; the module's own state. */
typedef struct hark_transport_request {
  union {
    unsigned char bytes[HARK_TRANSPORT_REQUEST_BYTES];
    void *pointer;
    int64_t number;
  } state;
} hark_transport_request;

typedef struct hark_transport hark_transport;
/* Functions that return int return 0, or another number with a reason of one line in transport->message. All are called by one thread. */
struct hark_transport {
  int rank, size; /* of this process, and the number of processes */
  void *state;    /* the module's */
  char message[HARK_TRANSPORT_MESSAGE_BYTES];
  /* Begin a message of 0 to HARK_TRANSPORT_PIECE bytes and return at once; data must stay until it is done. Messages between the same two
   * processes with the same tag [0, 32767] arrive in the order in which they were sent. A message has the same `bytes` at both ends. */
  int (*send)(hark_transport *transport, int to, int tag, const void *data, size_t bytes, hark_transport_request *request);
  int (*receive)(hark_transport *transport, int from, int tag, void *data, size_t bytes, hark_transport_request *request);
  /* Makes progress with all messages; *done: this one has ended, and its request is free. Returns at once. */
  int (*test)(hark_transport *transport, hark_transport_request *request, bool *done);
  /* *arrived: there is a message with this tag that a receive begun now would get, and *from is the process that sent it. Returns at
   * once. */
  int (*arrived)(hark_transport *transport, int tag, int *from, bool *arrived);
  /* Ends all processes of the group with this exit code, without waiting for them. Does not return. */
  void (*abort)(hark_transport *transport, int code);
  /* Ends the module's work; every process calls it, when no message is on its way. */
  void (*close)(hark_transport *transport);
};

typedef struct hark_transport_module_record {
  int version;      /* HARK_TRANSPORT_VERSION */
  const char *name; /* "MPI" */
  /* The library at run time, such as "Open MPI 4.1.4", in `text`; works before open. */
  void (*describe)(char *text, size_t bytes);
  /* Joins the processes that the launcher started. *transport is zeroed before. */
  int (*open)(hark_transport *transport);
} hark_transport_module_record;

#endif
