/* sweep_process.c - see sweep_process.h. */
#include "cli/sweep/sweep_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "cli/common.h"
#include "cli/process.h"

#define OWN_PROGRAM "/proc/self/exe"
#define NOT_STARTED 127 /* exit code of a program that could not be run, as a shell's */

/* ---- signals: passed to the processes; then the sweep ends ---- */

static volatile sig_atomic_t stop_signal;
static volatile pid_t running[HARK_SWEEP_JOBS]; /* 0: none */
static volatile sig_atomic_t ended_by_us;       /* the runs have had a signal of the sweep: a second one would end them unsaved */
static volatile sig_atomic_t sent_count, sent_number;

void hark_sweep_signal_all(int number) {
  sent_number = number;
  sent_count++;
  for (int place = 0; place < HARK_SWEEP_JOBS; place++) {
    const pid_t process = running[place];
    if (process > 0) (void)kill(process, number);
  }
}

void hark_sweep_end_all(int number) {
  ended_by_us = 1;
  hark_sweep_signal_all(number);
}

static void on_signal(int number) {
  const int error = errno;
  const bool known = ended_by_us != 0; /* it asks for what the runs are doing already */
  ended_by_us = 0;
  stop_signal = number;
  if (!known) hark_sweep_signal_all(number);
  errno = error;
}

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
#define CAUGHT (sizeof caught / sizeof *caught)

static void handle_signals(void (*handler)(int)) {
  struct sigaction action, before;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  for (size_t i = 0; i < CAUGHT; i++) {
    const bool known = sigaction(caught[i], NULL, &before) == 0;
    if (!known || before.sa_handler != SIG_IGN) (void)sigaction(caught[i], &action, NULL);
  }
}

void hark_sweep_catch_signals(void) { handle_signals(on_signal); }

int hark_sweep_signal(void) { return stop_signal; }

/* Signals wait until *before is restored as the mask. */
static void hold_signals(sigset_t *before) {
  sigset_t held;
  (void)sigemptyset(&held);
  for (size_t i = 0; i < CAUGHT; i++) (void)sigaddset(&held, caught[i]);
  (void)sigprocmask(SIG_BLOCK, &held, before);
}

int hark_sweep_signals(int *number) {
  *number = sent_number;
  return sent_count;
}

void hark_sweep_take_signal(int number) {
  sigset_t before;
  hold_signals(&before);
  if (stop_signal == 0) {
    if (ended_by_us == 0) hark_sweep_end_all(number);
    stop_signal = number;
  }
  (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

/* ---- the beginning ---- */

/* What a new process needs from its parent. */
typedef struct birth {
  const hark_sweep_start *start;
  pid_t parent;
  int output; /* the pipe's end to write to; -1: none */
  sigset_t mask;
} birth;

/* When a sweep is killed, its processes receive a signal to save and end; on systems without this mechanism they continue. `parent` may
 * have ended already. A parent with several threads causes the signal several times: it is not one that counts. */
static void end_with(pid_t parent) {
#ifdef __linux__
  (void)prctl(PR_SET_PDEATHSIG, HARK_PARENT_ENDED);
  if (getppid() != parent) _exit(HARK_EXIT_TERMINATED);
#else
  (void)parent;
#endif
}

static bool take(int from, int to) { return dup2(from, to) >= 0; }

static bool take_streams(const birth *of) {
  const hark_sweep_output output = of->start->output;
  if (of->start->input >= 0 && !take(of->start->input, STDIN_FILENO)) return false;
  if (output == HARK_SWEEP_SHARED) return take(STDERR_FILENO, STDOUT_FILENO); /* results are among the messages */
  if (!take(of->output, STDOUT_FILENO)) return false;
  return take(output == HARK_SWEEP_MESSAGES ? of->output : open("/dev/null", O_WRONLY | O_CLOEXEC), STDERR_FILENO);
}

/* In the new process: runs the program with other words. Only calls that are allowed between fork and exec. */
static void become(const birth *of) {
  end_with(of->parent);
  handle_signals(SIG_DFL);
  if (setpgid(0, 0) == 0 && take_streams(of) && sigprocmask(SIG_SETMASK, &of->mask, NULL) == 0) (void)execv(OWN_PROGRAM, of->start->words);
  _exit(NOT_STARTED);
}

/* Both ends are closed in every other process that we start. */
static hark_status open_pipe(hark_context *context, hark_sweep_output output, int ends[2]) {
  ends[0] = ends[1] = -1;
  if (output == HARK_SWEEP_SHARED) return HARK_OK;
  if (pipe(ends) != 0) return hark_fail(context, HARK_IO_ERROR, "a run cannot be started: no pipe: %s", strerror(errno));
  for (int i = 0; i < 2; i++) (void)fcntl(ends[i], F_SETFD, FD_CLOEXEC);
  return HARK_OK;
}

static void close_end(int *end) {
  if (*end >= 0) (void)close(*end);
  *end = -1;
}

/* A signal arrives before, when no process is started (0), or after, when it is passed to `running`: in between signals wait. */
static pid_t divide(birth *of, int place, int *error) {
  pid_t process = 0;
  hold_signals(&of->mask);
  if (stop_signal == 0) {
    process = fork();
    if (process == 0) become(of);
  }
  *error = errno;
  if (process > 0) running[place] = process;
  (void)sigprocmask(SIG_SETMASK, &of->mask, NULL);
  return process;
}

hark_status hark_sweep_process_start(hark_context *context, const hark_sweep_start *start, int place, int *output, bool *started) {
  int ends[2], error = 0;
  *output = -1;
  *started = false;
  HARK_TRY(open_pipe(context, start->output, ends));
  birth of = {.start = start, .parent = getpid(), .output = ends[1]};
  const pid_t process = divide(&of, place, &error);
  close_end(&ends[1]);
  if (process <= 0) close_end(&ends[0]);
  if (process < 0) return hark_fail(context, HARK_IO_ERROR, "a run cannot be started: %s", strerror(error));
  *output = ends[0];
  *started = process > 0;
  return HARK_OK;
}

/* ---- the end ---- */

hark_status hark_sweep_process_wait(hark_context *context, int place, int *exit_code) {
  const pid_t process = running[place];
  siginfo_t ended;
  int status = 0;
  while (waitid(P_PID, (id_t)process, &ended, WEXITED | WNOWAIT) < 0) {
    if (errno == EINTR) continue;
    running[place] = 0;
    return hark_fail(context, HARK_IO_ERROR, "a run cannot be waited for: %s", strerror(errno));
  }
  running[place] = 0; /* before another process may get the number */
  (void)waitpid(process, &status, 0);
  *exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : HARK_EXIT_SIGNAL + WTERMSIG(status);
  return *exit_code != NOT_STARTED ? HARK_OK : hark_fail(context, HARK_IO_ERROR, "a run cannot be started from " OWN_PROGRAM);
}
