/* test_transport.c - the module of messages by MPI, without libhark: what transport.h promises, between three processes.
 *
 * Each test starts this program by mpirun with the name of a part. A part is what every process does; it prints what is wrong and returns
 * 1. Messages of 0 to 1,000 bytes are on their way with several tags at once, those of the greatest size one for each process. Sizes that
 * differ between the two ends are an error at the receiver, which the next message does not notice. The module is loaded as the program
 * loads it: its symbols are nobody else's.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "group/mpirun.h"
#include "group/transport.h"

#define PROCESSES 3
#define TAGS 3
#define ROUNDS 12       /* messages with each tag, to each process */
#define SECONDS_MAX 240 /* after which a part that waits for a message is ended */
#define ABORT_CODE 7
#define KILLED 9 /* MPICH's launcher may report the signal with which it ended the others, instead */

static const int tags[TAGS] = {0, 7, 32767};
static const size_t sizes[] = {0, 1, 1000, 17};
#define SIZES (int)(sizeof sizes / sizeof *sizes)
static size_t size_of_round(int round) { return sizes[round % SIZES]; }

/* ---- the parts ---- */
static const hark_transport_module_record *module;
static hark_transport transport;

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)fprintf(stderr, "process %d: ", transport.rank);
  (void)vfprintf(stderr, format, arguments);
  (void)fputc('\n', stderr);
  va_end(arguments);
  return 1;
}

/* The bytes of a message follow from who sends it to whom, its tag and its number. */
static unsigned char byte_at(uint32_t message, size_t i) { return (unsigned char)((message * 40503U + (uint32_t)i * 2654435761U) >> 19); }
static uint32_t message_number(int from, int to, int tag, int round) {
  return (uint32_t)(((from * PROCESSES + to) * 32768 + tag) * 64 + round);
}

static void fill(unsigned char *data, size_t bytes, uint32_t message) {
  for (size_t i = 0; i < bytes; i++) data[i] = byte_at(message, i);
}

static int check(const unsigned char *data, size_t bytes, uint32_t message) {
  for (size_t i = 0; i < bytes; i++) {
    if (data[i] != byte_at(message, i)) return wrong("byte %zu of %zu of message %u is another one", i, bytes, message);
  }
  return 0;
}

static int finish(hark_transport_request *request) {
  for (bool done = false; !done;) {
    if (transport.test(&transport, request, &done) != 0) return wrong("%s", transport.message);
    if (!done) (void)sched_yield();
  }
  return 0;
}

typedef struct parcel {
  hark_transport_request send, receive;
  unsigned char sent[1000], received[1000];
} parcel;

static int begin_parcel(parcel *one, int peer, int tag, int round) {
  const size_t bytes = size_of_round(round);
  fill(one->sent, bytes, message_number(transport.rank, peer, tag, round));
  memset(one->received, 0xAA, sizeof one->received);
  return transport.receive(&transport, peer, tag, one->received, bytes, &one->receive) != 0 ||
         transport.send(&transport, peer, tag, one->sent, bytes, &one->send) != 0;
}

static int end_parcel(parcel *one, int peer, int tag, int round) {
  if (finish(&one->receive) != 0 || finish(&one->send) != 0) return 1;
  return check(one->received, size_of_round(round), message_number(peer, transport.rank, tag, round));
}

/* Every message, to and from every process including itself, is on its way before the first is waited for; the last one is waited for
 * first. */
static int small_messages(void) {
  static parcel parcels[PROCESSES][TAGS][ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < PROCESSES * TAGS; i++) {
      const int peer = i % PROCESSES, tag = (i / PROCESSES + transport.rank) % TAGS; /* each process begins with another tag */
      if (begin_parcel(&parcels[peer][tag][round], peer, tags[tag], round) != 0) return wrong("%s", transport.message);
    }
  }
  for (int i = PROCESSES * TAGS * ROUNDS - 1; i >= 0; i--) {
    const int peer = i % PROCESSES, tag = i / PROCESSES % TAGS, round = i / (PROCESSES * TAGS);
    if (end_parcel(&parcels[peer][tag][round], peer, tags[tag], round) != 0) return 1;
  }
  return 0;
}

static int large_message(unsigned char *out, unsigned char *in, int distance) {
  const int to = (transport.rank + distance) % PROCESSES, from = (transport.rank + PROCESSES - distance) % PROCESSES;
  hark_transport_request send, receive;
  fill(out, HARK_TRANSPORT_PIECE, message_number(transport.rank, to, 1, 0));
  if (transport.send(&transport, to, 1, out, HARK_TRANSPORT_PIECE, &send) != 0) return wrong("%s", transport.message);
  if (transport.receive(&transport, from, 1, in, HARK_TRANSPORT_PIECE, &receive) != 0) return wrong("%s", transport.message);
  if (finish(&send) != 0 || finish(&receive) != 0) return 1;
  return check(in, HARK_TRANSPORT_PIECE, message_number(from, transport.rank, 1, 0));
}

/* Each process sends to the next one, then to the next but one. */
static int large_messages(void) {
  unsigned char *out = malloc(HARK_TRANSPORT_PIECE), *in = malloc(HARK_TRANSPORT_PIECE);
  int result = out == NULL || in == NULL ? wrong("out of memory") : 0;
  for (int distance = 1; distance < PROCESSES && result == 0; distance++) result = large_message(out, in, distance);
  free(out);
  free(in);
  return result;
}

/* A test of `request` ends with an error, whose message contains `words`. */
static int finish_refused(hark_transport_request *request, const char *words) {
  for (bool done = false; !done;) {
    if (transport.test(&transport, request, &done) != 0) break;
    if (done) return wrong("a message of a wrong size was received");
    (void)sched_yield();
  }
  if (strstr(transport.message, words) == NULL) return wrong("'%s' does not contain '%s'", transport.message, words);
  return strchr(transport.message, '\n') == NULL ? 0 : wrong("'%s' has several lines", transport.message);
}

/* Process 0 sends `bytes`, process 1 expects others; then a message as it should be. */
static int wrong_size(size_t bytes, size_t expected, const char *words) {
  static unsigned char data[2000];
  hark_transport_request request;
  if (transport.rank > 1) return 0;
  fill(data, sizeof data, (uint32_t)transport.rank);
  const int result = transport.rank == 0 ? transport.send(&transport, 1, 5, data, bytes, &request)
                                         : transport.receive(&transport, 0, 5, data, expected, &request);
  if (result != 0) return wrong("%s", transport.message);
  if ((transport.rank == 0 ? finish(&request) : finish_refused(&request, words)) != 0) return 1;
  const int after =
      transport.rank == 0 ? transport.send(&transport, 1, 5, data, 33, &request) : transport.receive(&transport, 0, 5, data, 33, &request);
  if (after != 0 || finish(&request) != 0) return wrong("after a wrong size: %s", transport.message);
  return check(data, 33, 0);
}

static int wrong_sizes(void) {
  return wrong_size(10, 11, "process 0 sent 10 bytes, expected 11") || wrong_size(0, 1, "process 0 sent 0 bytes, expected 1") ||
         wrong_size(11, 10, "message of 10 bytes from process 0 failed") || wrong_size(1, 0, "message of 0 bytes from process 0 failed");
}

static int refused(int result, const char *words) {
  if (result == 0) return wrong("this is not refused: %s", words);
  return strstr(transport.message, words) != NULL ? 0 : wrong("'%s' does not contain '%s'", transport.message, words);
}

static int refusals(void) {
  unsigned char byte = 0;
  hark_transport_request request;
  return refused(transport.send(&transport, PROCESSES, 0, &byte, 1, &request), "there is no process 3 of 3") ||
         refused(transport.receive(&transport, -1, 0, &byte, 1, &request), "there is no process -1 of 3") ||
         refused(transport.send(&transport, 0, 32768, &byte, 1, &request), "tag 32768") ||
         refused(transport.receive(&transport, 0, -1, &byte, 1, &request), "tag -1") ||
         refused(transport.send(&transport, 0, 0, &byte, (size_t)HARK_TRANSPORT_PIECE + 1, &request), "a message of 67108865 bytes");
}

/* Each process asks for messages with a tag. Those of another tag are not reported; one that is reported can be received. */
static int arrivals(void) {
  hark_transport_request sends[PROCESSES], request;
  unsigned char mine = (unsigned char)transport.rank, other = 0;
  bool seen[PROCESSES] = {false}, arrived = false;
  int from = -1;
  for (int to = 0; to < PROCESSES; to++)
    if (transport.send(&transport, to, 11, &mine, 1, &sends[to]) != 0) return wrong("%s", transport.message);
  for (int count = 0; count < PROCESSES;) {
    if (transport.arrived(&transport, 12, &from, &arrived) != 0) return wrong("%s", transport.message);
    if (arrived) return wrong("a message with tag 12 has arrived from process %d, and nobody sent it", from);
    if (transport.arrived(&transport, 11, &from, &arrived) != 0) return wrong("%s", transport.message);
    if (!arrived) continue;
    if (from < 0 || from >= PROCESSES || seen[from]) return wrong("a message has arrived from process %d", from);
    if (transport.receive(&transport, from, 11, &other, 1, &request) != 0 || finish(&request) != 0) return wrong("%s", transport.message);
    if (other != from) return wrong("the message of process %d says %d", from, other);
    seen[from] = true;
    count++;
  }
  for (int to = 0; to < PROCESSES; to++)
    if (finish(&sends[to]) != 0) return 1;
  return 0;
}

/* One process ends all, while the others wait for a message that nobody sends. */
static int abort_all(void) {
  unsigned char byte = 0;
  hark_transport_request request;
  if (transport.rank == 1) transport.abort(&transport, ABORT_CODE);
  if (transport.receive(&transport, 1, 0, &byte, 1, &request) != 0) return wrong("%s", transport.message);
  return finish(&request) != 0 ? 1 : wrong("a message came that nobody sent");
}

static const struct {
  const char *name;
  int (*run)(void);
} parts[] = {{"small", small_messages}, {"large", large_messages}, {"sizes", wrong_sizes},
             {"refusals", refusals},    {"arrivals", arrivals},    {"abort", abort_all}};
#define PARTS (int)(sizeof parts / sizeof *parts)

static int load_module(void) {
  void *library = dlopen(HARK_MPI_MODULE, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return wrong("%s", dlerror());
  module = dlsym(library, "hark_transport_module");
  return module != NULL ? 0 : wrong("%s", dlerror());
}

static int run_part(int part) {
  (void)alarm(SECONDS_MAX);
  if (load_module() != 0) return 1;
  if (module->open(&transport) != 0) return wrong("%s", transport.message);
  if (transport.size != PROCESSES) return wrong("there are %d processes, expected %d", transport.size, PROCESSES);
  if (parts[part].run() != 0) transport.abort(&transport, 1);
  transport.close(&transport);
  return 0;
}

/* ---- the tests ---- */
static const char *program;

/* The exit code of `words` between three processes. */
static int launch(const char *words) {
  char command[4096];
  assert_in_range(snprintf(command, sizeof command, LAUNCH("3") "%s </dev/null", words), 0, sizeof command - 1);
  const int status = system(command);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static int launch_part(const char *name) {
  char words[2048];
  skip_without_launcher();
  assert_in_range(snprintf(words, sizeof words, "'%s' %s", program, name), 0, sizeof words - 1);
  return launch(words);
}

/* What a version says, which needs no launcher. */
static void test_description(void **state) {
  char text[HARK_TRANSPORT_MESSAGE_BYTES] = "", little[4];
  (void)state;
  skip_without_mpi();
  assert_int_equal(load_module(), 0);
  assert_int_equal(module->version, HARK_TRANSPORT_VERSION);
  assert_string_equal(module->name, "MPI");
  module->describe(text, sizeof text);
  print_message("%s\n", text);
  assert_in_range(strlen(text), 5, 80);
  assert_null(strpbrk(text, "\n\t,"));
  assert_non_null(strpbrk(text, "0123456789"));
  module->describe(little, sizeof little);
  assert_memory_equal(little, text, 3);
  assert_int_equal(little[3], '\0');
}

static void test_small_messages(void **state) {
  (void)state;
  assert_int_equal(launch_part("small"), 0);
}

static void test_large_messages(void **state) {
  (void)state;
  assert_int_equal(launch_part("large"), 0);
}

static void test_wrong_sizes(void **state) {
  (void)state;
  assert_int_equal(launch_part("sizes"), 0);
}

static void test_refusals(void **state) {
  (void)state;
  assert_int_equal(launch_part("refusals"), 0);
}

static void test_arrivals(void **state) {
  (void)state;
  assert_int_equal(launch_part("arrivals"), 0);
}

static void test_abort(void **state) {
  (void)state;
  const int code = launch_part("abort 2>/dev/null");
  if (code != KILLED) assert_int_equal(code, ABORT_CODE);
}

int main(int count, char **words) {
  program = words[0];
  for (int part = 0; count > 1 && part < PARTS; part++) {
    if (strcmp(words[1], parts[part].name) == 0) return run_part(part);
  }
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_description), cmocka_unit_test(test_small_messages), cmocka_unit_test(test_large_messages),
      cmocka_unit_test(test_wrong_sizes), cmocka_unit_test(test_refusals),       cmocka_unit_test(test_arrivals),
      cmocka_unit_test(test_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
