/* mpi.c - messages between processes by MPI (Open MPI, MPICH and other libraries of MPI 3), in a shared object of its own:
 * hark-mpi.so. hark loads it when a launcher has started the program, so that the command itself needs no MPI.
 *
 * The module has a communicator of its own, whose errors are returned. Where the program has begun MPI itself, the module neither begins
 * nor ends it, and leaves the program's way with errors as it is. A failure to begin MPI ends the program in MPI's own way.
 */
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/transport.h"

typedef struct group_state {
  MPI_Comm communicator;
  bool ends; /* MPI is the module's to end */
} group_state;

/* A message on its way, in the bytes of a hark_transport_request. */
typedef struct message_state {
  MPI_Request request;
  int bytes, peer;
  bool receives;
} message_state;
_Static_assert(sizeof(message_state) <= HARK_TRANSPORT_REQUEST_BYTES, "a message of MPI fits into a request");
_Static_assert(HARK_TRANSPORT_PIECE <= INT32_MAX, "MPI counts bytes by int");

static MPI_Comm communicator_of(const hark_transport *transport) { return ((const group_state *)transport->state)->communicator; }

/* Blanks, tabs and line ends of `text` become one blank each; none at the end. */
static void to_one_line(char *text) {
  size_t length = 0;
  for (size_t i = 0; text[i] != '\0'; i++) {
    const bool blank = strchr(" \t\r\n", text[i]) != NULL;
    if (!blank) text[length++] = text[i];
    if (blank && length > 0 && text[length - 1] != ' ') text[length++] = ' ';
  }
  if (length > 0 && text[length - 1] == ' ') length--;
  text[length] = '\0';
}

__attribute__((format(printf, 2, 3))) static int refuse(hark_transport *transport, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(transport->message, sizeof transport->message, format, arguments);
  va_end(arguments);
  return 1;
}

/* What MPI says about `code`, after what was tried. Before MPI has begun, and after it has ended, it may be asked this too. */
static int refuse_code(hark_transport *transport, const char *tried, int code) {
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) (void)snprintf(text, sizeof text, "error %d", code);
  to_one_line(text);
  return refuse(transport, "MPI: %s: %s", tried, text);
}

static int refuse_message(hark_transport *transport, const message_state *message, int code) {
  char tried[96];
  (void)snprintf(tried, sizeof tried, "a message of %d bytes %s process %d failed", message->bytes, message->receives ? "from" : "to",
                 message->peer);
  return refuse_code(transport, tried, code);
}

/* What both directions refuse: MPI would take a process that is not there for an error of the program. */
static int check_message(hark_transport *transport, int peer, int tag, size_t bytes) {
  if (peer < 0 || peer >= transport->size) return refuse(transport, "MPI: there is no process %d of %d", peer, transport->size);
  if (tag < 0 || tag > 32767) return refuse(transport, "MPI: tag %d is not from 0 to 32767", tag);
  if (bytes > HARK_TRANSPORT_PIECE) {
    return refuse(transport, "MPI: a message of %zu bytes is longer than %d", bytes, HARK_TRANSPORT_PIECE);
  }
  return 0;
}

static int begun(hark_transport *transport, const message_state *message, int code, hark_transport_request *request) {
  if (code != MPI_SUCCESS) return refuse_message(transport, message, code);
  memcpy(request->state.bytes, message, sizeof *message);
  return 0;
}

static int send_message(hark_transport *transport, int to, int tag, const void *data, size_t bytes, hark_transport_request *request) {
  if (check_message(transport, to, tag, bytes) != 0) return 1;
  message_state message = {.request = MPI_REQUEST_NULL, .bytes = (int)bytes, .peer = to};
  const int code = MPI_Isend(data, message.bytes, MPI_BYTE, to, tag, communicator_of(transport), &message.request);
  return begun(transport, &message, code, request); /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker): test_message() waits */
}

static int receive_message(hark_transport *transport, int from, int tag, void *data, size_t bytes, hark_transport_request *request) {
  if (check_message(transport, from, tag, bytes) != 0) return 1;
  message_state message = {.request = MPI_REQUEST_NULL, .bytes = (int)bytes, .peer = from, .receives = true};
  const int code = MPI_Irecv(data, message.bytes, MPI_BYTE, from, tag, communicator_of(transport), &message.request);
  return begun(transport, &message, code, request); /* NOLINT(clang-analyzer-optin.mpi.MPI-Checker): test_message() waits */
}

/* MPI itself refuses a message that is longer than its receiver expects, but not a shorter one. */
static int check_size(hark_transport *transport, const message_state *message, const MPI_Status *status) {
  int bytes = 0;
  const int code = MPI_Get_count(status, MPI_BYTE, &bytes);
  if (code != MPI_SUCCESS) return refuse_message(transport, message, code);
  if (bytes == message->bytes) return 0;
  return refuse(transport, "MPI: process %d sent %d bytes, expected %d", message->peer, bytes, message->bytes);
}

static int test_message(hark_transport *transport, hark_transport_request *request, bool *done) {
  message_state message;
  memcpy(&message, request->state.bytes, sizeof message);
  *done = false;
  int ended = 0;
  MPI_Status status;
  const int code = MPI_Test(&message.request, &ended, &status);
  memcpy(request->state.bytes, &message, sizeof message);
  if (code != MPI_SUCCESS) return refuse_message(transport, &message, code);
  if (ended == 0) return 0;
  if (message.receives && check_size(transport, &message, &status) != 0) return 1;
  *done = true;
  return 0;
}

static int message_arrived(hark_transport *transport, int tag, int *from, bool *arrived) {
  int found = 0;
  MPI_Status status;
  const int code = MPI_Iprobe(MPI_ANY_SOURCE, tag, communicator_of(transport), &found, &status);
  *arrived = code == MPI_SUCCESS && found != 0;
  if (*arrived) *from = status.MPI_SOURCE;
  return code == MPI_SUCCESS ? 0 : refuse_code(transport, "it cannot be asked for messages", code);
}

static void abort_group(hark_transport *transport, int code) {
  (void)MPI_Abort(communicator_of(transport), code);
  _Exit(code); /* if MPI returns after all */
}

static void close_group(hark_transport *transport) {
  group_state *state = transport->state;
  (void)MPI_Comm_free(&state->communicator);
  if (state->ends) (void)MPI_Finalize();
  free(state);
  transport->state = NULL;
}

/* Errors that belong to no communicator are those of MPI_COMM_SELF since MPI 4, and of MPI_COMM_WORLD before; MPICH's MPI_Test has such. */
static int return_errors(hark_transport *transport) {
  int code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  return code == MPI_SUCCESS ? 0 : refuse_code(transport, "its errors cannot be returned", code);
}

/* Begins MPI unless the program has; *ends: it was begun here. */
static int begin_mpi(hark_transport *transport, bool *ends) {
  int initialised = 0, finalised = 0, threads = MPI_THREAD_SINGLE;
  (void)MPI_Initialized(&initialised);
  (void)MPI_Finalized(&finalised);
  if (finalised) return refuse(transport, "MPI: it has ended in this process, and cannot begin again");
  const int code = initialised ? MPI_Query_thread(&threads) : MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads);
  if (code != MPI_SUCCESS) return refuse_code(transport, "it cannot begin", code);
  *ends = !initialised;
  if (threads >= MPI_THREAD_FUNNELED) return *ends ? return_errors(transport) : 0;
  if (*ends) (void)MPI_Finalize();
  return refuse(transport, "MPI: this library allows no process with several threads (MPI_THREAD_FUNNELED)");
}

static int join(hark_transport *transport, MPI_Comm *communicator) {
  int code = MPI_Comm_dup(MPI_COMM_WORLD, communicator);
  if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN);
  if (code == MPI_SUCCESS) code = MPI_Comm_rank(*communicator, &transport->rank);
  if (code == MPI_SUCCESS) code = MPI_Comm_size(*communicator, &transport->size);
  return code == MPI_SUCCESS ? 0 : refuse_code(transport, "the processes cannot be joined", code);
}

static int open_group(hark_transport *transport) {
  group_state *state = malloc(sizeof *state);
  if (state == NULL) return refuse(transport, "MPI: out of memory");
  *state = (group_state){.communicator = MPI_COMM_NULL};
  if (begin_mpi(transport, &state->ends) != 0 || join(transport, &state->communicator) != 0) {
    free(state);
    return 1;
  }
  transport->state = state;
  transport->send = send_message;
  transport->receive = receive_message;
  transport->test = test_message;
  transport->arrived = message_arrived;
  transport->abort = abort_group;
  transport->close = close_group;
  return 0;
}

/* Of "Open MPI v4.1.4, package: ..." and of MPICH's lines "MPICH Version: 4.0.2", ...: the first line, up to a comma. */
static void describe(char *text, size_t bytes) {
  char version[MPI_MAX_LIBRARY_VERSION_STRING + 1] = "";
  int length = 0;
  if (bytes == 0) return;
  if (MPI_Get_library_version(version, &length) != MPI_SUCCESS) version[0] = '\0';
  version[strcspn(version, ",\r\n")] = '\0';
  to_one_line(version);
  (void)snprintf(text, bytes, "%s", version[0] != '\0' ? version : "MPI");
}

extern const hark_transport_module_record hark_transport_module;
__attribute__((visibility("default"))) const hark_transport_module_record hark_transport_module = {
    .version = HARK_TRANSPORT_VERSION, .name = "MPI", .describe = describe, .open = open_group};
