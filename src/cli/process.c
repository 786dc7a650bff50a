/* process.c - see process.h. */
#include "cli/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"
#include "io/temporary.h"

hark_temporaries hark_process_temporaries;

/* Reading a closed stdin and writing to a closed stdout fail. Messages to a closed stderr are lost, and nothing else. */
static const int modes_of_closed[] = {O_WRONLY, O_RDONLY, O_RDWR};

static void open_standard_streams(void) {
  for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) {
    if (fcntl(i, F_GETFD) >= 0 || errno != EBADF) continue;
    hark_process_temporaries.closed_streams |= 1u << i;
    const int descriptor = open("/dev/null", modes_of_closed[i]); /* the lowest free number: this one */
    if (descriptor == i) continue;
    if (descriptor > STDERR_FILENO) (void)close(descriptor);
    _exit(HARK_EXIT_DISK); /* it cannot be reported anywhere */
  }
}

static void on_signal(int number) {
  hark_temporary_remove_all(&hark_process_temporaries);
  (void)raise(number); /* arrives when this returns, and does what it does by default */
}

static void set_signal(int number, void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  (void)sigaction(number, &action, NULL);
}

static bool was_ignored(int number) {
  struct sigaction before;
  return sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_IGN;
}

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, HARK_PARENT_ENDED};
static const int may_ignore[] = {SIGXFSZ, SIGPIPE}; /* hark train ignores the second */
static bool found_ignored[sizeof may_ignore / sizeof *may_ignore];

/* A line on stderr is one write, so that launchers, which mix the lines of several processes with their own, keep it whole. What is not a
 * whole line is flushed by whoever prints it (progress.c). */
static void write_whole_lines(void) {
  static char line[16384];
  (void)setvbuf(stderr, line, _IOLBF, sizeof line);
}

void hark_process_begin(void) {
  open_standard_streams();
  write_whole_lines();
  for (size_t i = 0; i < sizeof may_ignore / sizeof *may_ignore; i++) found_ignored[i] = was_ignored(may_ignore[i]);
  set_signal(SIGXFSZ, SIG_IGN, 0);
  for (size_t i = 0; i < sizeof ending / sizeof *ending; i++)
    if (!was_ignored(ending[i])) set_signal(ending[i], on_signal, SA_RESTART | (int)SA_RESETHAND);
}

void hark_process_add_restored(sigset_t *signals) {
  for (size_t i = 0; i < sizeof may_ignore / sizeof *may_ignore; i++)
    if (!found_ignored[i]) (void)sigaddset(signals, may_ignore[i]);
}

int hark_process_end(int code) {
  if (fclose(stdout) == 0 || code != HARK_EXIT_DONE) return code; /* network file systems report a full disk here */
  fprintf(stderr, "hark: standard output: cannot be written: %s\n", strerror(errno));
  return HARK_EXIT_DISK;
}
