/* slow_link.c - a switch between network namespaces with a given rate and delay, for kernels without the queueing discipline netem
 * (several-machines.sh). Every port is a TAP device; what a port sends, and what it receives, passes at the rate, and arrives after the
 * delay. A port that sends faster is not read, so that its kernel waits as it does for a network card.
 *
 *   cc -O2 -o slow_link slow_link.c && ./slow_link PREFIX PORTS BITS_PER_SECOND DELAY_SECONDS     devices PREFIX0, PREFIX1, ...
 *
 * Prints a line when the devices are there, and runs until it is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { MOST_PORTS = 16, FRAME = 9100, QUEUE = 8192, ADDRESS = 6 };
#define BACKLOG 0.002 /* seconds of frames that a port has sent and that wait for the rate */

typedef struct frame {
  double at; /* when it arrives */
  int bytes;
  unsigned char data[FRAME];
} frame;

typedef struct port {
  int file;
  bool known;
  unsigned char address[ADDRESS];
  double sent, received; /* until when the two directions are in use */
  frame *queue;          /* [QUEUE]: on its way to this port */
  uint64_t first, last;
} port;

static port ports[MOST_PORTS];
static int count;
static double rate, delay;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int open_device(const char *prefix, int number) {
  struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
  const int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  (void)snprintf(request.ifr_name, IFNAMSIZ, "%s%d", prefix, number);
  if (file < 0 || ioctl(file, TUNSETIFF, &request) != 0) {
    perror("slow_link: /dev/net/tun");
    exit(1);
  }
  return file;
}

static void deliver(port *to, const unsigned char *data, int bytes, double sent) {
  if (to->last - to->first == QUEUE) return; /* lost, as in any full queue */
  frame *const next = &to->queue[to->last++ % QUEUE];
  to->received += 8 * bytes / rate;
  if (to->received < sent) to->received = sent; /* it arrives while it is sent */
  next->at = to->received + delay;
  next->bytes = bytes;
  memcpy(next->data, data, (size_t)bytes);
}

/* To the port that has sent from this address, or to all others. */
static void forward(int from, const unsigned char *data, int bytes, double sent) {
  for (int p = 0; p < count; p++)
    if (p != from && ports[p].known && memcmp(ports[p].address, data, ADDRESS) == 0) {
      deliver(&ports[p], data, bytes, sent);
      return;
    }
  for (int p = 0; p < count; p++)
    if (p != from) deliver(&ports[p], data, bytes, sent);
}

static void read_port(int p, double time) {
  unsigned char data[FRAME];
  port *const own = &ports[p];
  while (own->sent < time + BACKLOG) {
    const ssize_t bytes = read(own->file, data, sizeof data);
    if (bytes < 2 * ADDRESS) return;
    memcpy(own->address, data + ADDRESS, ADDRESS);
    own->known = true;
    own->sent = (own->sent > time ? own->sent : time) + 8 * (double)bytes / rate;
    forward(p, data, (int)bytes, own->sent);
  }
}

/* Returns when the next frame is due, at most a second later. */
static double write_port(port *to, double time) {
  for (; to->first < to->last; to->first++) {
    const frame *const next = &to->queue[to->first % QUEUE];
    if (next->at > time) return next->at;
    if (write(to->file, next->data, (size_t)next->bytes) < 0 && errno == EAGAIN) return time + 1e-4;
  }
  return time + 1;
}

static void run(void) {
  for (;;) {
    struct pollfd polled[MOST_PORTS];
    const double time = now();
    double next = time + 1;
    for (int p = 0; p < count; p++) {
      read_port(p, time);
      const double due = write_port(&ports[p], time), free = ports[p].sent - BACKLOG;
      next = due < next ? due : next;
      if (free > time && free < next) next = free;
      polled[p] = (struct pollfd){.fd = free > time ? -1 : ports[p].file, .events = POLLIN};
    }
    const double wait = next - now();
    const struct timespec patience = {.tv_sec = (time_t)(wait > 0 ? wait : 0),
                                      .tv_nsec = wait > 0 ? (long)((wait - (double)(time_t)wait) * 1e9) : 0};
    (void)ppoll(polled, (nfds_t)count, &patience, NULL);
  }
}

int main(int arguments, char **words) {
  if (arguments != 5) {
    fprintf(stderr, "usage: slow_link PREFIX PORTS BITS_PER_SECOND DELAY_SECONDS\n");
    return 2;
  }
  count = atoi(words[2]);
  rate = atof(words[3]);
  delay = atof(words[4]);
  if (count < 2 || count > MOST_PORTS || rate <= 0 || delay < 0) return 2;
  for (int p = 0; p < count; p++) {
    ports[p] = (port){.file = open_device(words[1], p), .queue = calloc(QUEUE, sizeof(frame))};
    if (ports[p].queue == NULL) return 1;
  }
  printf("ready\n");
  fflush(stdout);
  run();
}
