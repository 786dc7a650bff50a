/* sweep_jobs.c - see sweep_jobs.h. */
#include "cli/sweep/sweep_jobs.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/common.h"

#define STATUS_MILLISECONDS 250 /* between looks at the line that counts */

/* ---- lines ---- */

static void say_line(hark_sweep_jobs *jobs, hark_sweep_job *job) {
  hark_progress_line(&jobs->progress, "%s: %.*s", job->title, (int)job->used, job->text);
  job->used = 0;
}

/* A result that is too long loses its end: it is not the one that is expected. */
static void take_bytes(hark_sweep_jobs *jobs, hark_sweep_job *job, const char *bytes, size_t count) {
  const bool lines = jobs->output == HARK_SWEEP_MESSAGES;
  for (size_t i = 0; i < count; i++) {
    const bool end = lines && bytes[i] == '\n';
    if (lines && (end || job->used + 1 == sizeof job->text)) say_line(jobs, job);
    if (!end && job->used + 1 < sizeof job->text) job->text[job->used++] = bytes[i];
  }
}

/* Reads what there is. True: it was the end. */
static bool read_some(hark_sweep_jobs *jobs, hark_sweep_job *job) {
  char part[4096];
  const ssize_t got = read(job->output, part, sizeof part);
  if (got > 0) take_bytes(jobs, job, part, (size_t)got);
  return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

static void say_status(hark_sweep_jobs *jobs) {
  if (!jobs->progress.terminal) return;
  if (jobs->output == HARK_SWEEP_MESSAGES)
    hark_progress_update(&jobs->progress, "%d done, %d running, %d left", jobs->done, jobs->running, jobs->left);
  else
    hark_progress_update(&jobs->progress, "estimating the memory of runs, %d left", jobs->running + jobs->left);
}

/* ---- the next process that ends ---- */

/* The process of the launcher that a place belongs to, and its number there. */
static int rank_of(const hark_sweep_jobs *jobs, int place) { return place % hark_sweep_crew_size(jobs->crew); }
static int slot_of(const hark_sweep_jobs *jobs, int place) { return place / hark_sweep_crew_size(jobs->crew); }

static int wait_milliseconds(const hark_sweep_jobs *jobs) {
  if (jobs->crew != NULL) return HARK_SWEEP_CREW_MILLISECONDS;
  return jobs->progress.terminal ? STATUS_MILLISECONDS : -1;
}

/* A place whose pipe has ended; -1: none yet. */
static int read_pipes(hark_sweep_jobs *jobs) {
  struct pollfd files[HARK_SWEEP_JOBS];
  int places[HARK_SWEEP_JOBS];
  nfds_t count = 0;
  for (int place = 0; place < jobs->count; place++) {
    if (!jobs->places[place].busy || rank_of(jobs, place) > 0) continue;
    places[count] = place;
    files[count++] = (struct pollfd){.fd = jobs->places[place].output, .events = POLLIN};
  }
  say_status(jobs);
  if (poll(files, count, wait_milliseconds(jobs)) <= 0) return -1; /* time, or a signal */
  for (nfds_t i = 0; i < count; i++)
    if (files[i].revents != 0 && read_some(jobs, &jobs->places[places[i]])) return places[i];
  return -1;
}

static int find_place(const hark_sweep_jobs *jobs, bool busy) {
  int place = 0;
  while (place < jobs->count && jobs->places[place].busy != busy) place++;
  return place;
}

/* ---- runs of other processes of the launcher ---- */

/* Sends the words of runs that are unsent. After a signal one of them ends before it begins: its place in *ended. */
static hark_status send_words(hark_sweep_jobs *jobs, int *ended) {
  int number = 0;
  for (int place = 0; place < jobs->count; place++) {
    hark_sweep_job *const job = &jobs->places[place];
    bool sent = false;
    if (!job->busy || !job->unsent) continue;
    if (hark_sweep_signals(&number) > 0) {
      job->exit_code = HARK_EXIT_SIGNAL + number;
      job->used = 0;
      *ended = place;
      return HARK_OK;
    }
    HARK_TRY(hark_sweep_crew_begin(jobs->crew, rank_of(jobs, place), slot_of(jobs, place), job->text, job->used, &sent));
    if (!sent) continue;
    job->unsent = false;
    job->used = 0;
  }
  return HARK_OK;
}

static hark_status take_news(hark_context *context, hark_sweep_jobs *jobs, int rank, const hark_sweep_message *news, int *ended) {
  const int place = news->slot * hark_sweep_crew_size(jobs->crew) + rank;
  hark_sweep_job *const job = &jobs->places[place];
  if (news->kind == HARK_SWEEP_OUTPUT) take_bytes(jobs, job, news->text, news->bytes);
  if (news->kind == HARK_SWEEP_ENDED) {
    job->exit_code = news->code;
    *ended = place;
  }
  if (news->kind != HARK_SWEEP_REFUSED) return HARK_OK;
  job->busy = false;
  jobs->running--;
  return hark_fail(context, (hark_status)news->code, "rank %d: %.*s", rank, (int)news->bytes, news->text);
}

static hark_status hear(hark_context *context, hark_sweep_jobs *jobs, int *ended) {
  const hark_sweep_message *news = NULL;
  HARK_TRY(send_words(jobs, ended));
  do {
    int rank = 0;
    if (*ended >= 0) return HARK_OK;
    HARK_TRY(hark_sweep_crew_hear(jobs->crew, &rank, &news));
    if (news != NULL) HARK_TRY(take_news(context, jobs, rank, news, ended));
  } while (news != NULL);
  return HARK_OK;
}

static hark_status keep_words(hark_context *context, hark_sweep_job *job, char *const *words) {
  for (; *words != NULL; words++) {
    const size_t bytes = strlen(*words) + 1;
    if (job->used + bytes > sizeof job->text) return hark_fail(context, HARK_TOO_LARGE, "%.64s...: too long", *words);
    memcpy(job->text + job->used, *words, bytes);
    job->used += bytes;
  }
  job->busy = job->unsent = true;
  return HARK_OK;
}

/* ---- the next one that ends ---- */

static hark_status wait_for_end(hark_context *context, hark_sweep_jobs *jobs, int *place) {
  *place = jobs->output == HARK_SWEEP_SHARED ? find_place(jobs, true) : -1;
  while (*place < 0) {
    *place = read_pipes(jobs);
    if (*place < 0 && jobs->crew != NULL) HARK_TRY(hear(context, jobs, place));
  }
  return HARK_OK;
}

static hark_status next(hark_context *context, hark_sweep_jobs *jobs, hark_sweep_ended *out) {
  int place;
  HARK_TRY(wait_for_end(context, jobs, &place));
  hark_sweep_job *const job = &jobs->places[place];
  if (jobs->output == HARK_SWEEP_MESSAGES && job->used > 0) say_line(jobs, job);
  if (job->output >= 0) (void)close(job->output);
  job->text[job->used] = '\0';
  job->busy = false;
  jobs->running--;
  *out = (hark_sweep_ended){.task = job->task, .exit_code = job->exit_code, .result = job->text};
  hark_status status = HARK_OK;
  if (rank_of(jobs, place) == 0) status = hark_sweep_process_wait(context, slot_of(jobs, place), &out->exit_code);
  out->seconds = hark_progress_clock() - job->begun;
  return status;
}

/* ---- all of them ---- */

hark_status hark_sweep_jobs_begin(hark_context *context, hark_sweep_jobs *jobs, int task, const char *title, char *const *words,
                                  int input) {
  const int place = find_place(jobs, false);
  hark_sweep_job *const job = &jobs->places[place];
  const hark_sweep_start start = {.words = words, .output = jobs->output, .input = input};
  *job = (hark_sweep_job){.task = task, .output = -1, .begun = hark_progress_clock()};
  (void)snprintf(job->title, sizeof job->title, "%s", title);
  if (rank_of(jobs, place) == 0)
    HARK_TRY(hark_sweep_process_start(context, &start, slot_of(jobs, place), &job->output, &job->busy));
  else
    HARK_TRY(keep_words(context, job, words));
  jobs->running += job->busy;
  return HARK_OK;
}

static int next_task(const hark_sweep_work *work, int task) {
  while (task < work->count && !work->needed(work->user, task)) task++;
  return task;
}

static hark_status begin_some(const hark_sweep_work *work, hark_sweep_jobs *jobs, int *task) {
  for (; jobs->running < jobs->count && hark_sweep_signal() == 0; (*task)++) {
    *task = next_task(work, *task);
    if (*task == work->count) return HARK_OK;
    jobs->left--;
    HARK_TRY(work->begin(work->user, jobs, *task));
  }
  return HARK_OK;
}

static hark_status do_all(hark_context *context, const hark_sweep_work *work, hark_sweep_jobs *jobs) {
  bool stop = false;
  int task = 0;
  for (;;) {
    hark_sweep_ended ended;
    if (!stop) HARK_TRY(begin_some(work, jobs, &task));
    if (jobs->running == 0) return HARK_OK;
    HARK_TRY(next(context, jobs, &ended));
    jobs->done++;
    HARK_TRY(work->end(work->user, &ended, &stop));
  }
}

/* The runs of a lost group save, and end by themselves. */
static bool is_lost(const hark_sweep_jobs *jobs) { return jobs->crew != NULL && hark_group_is_lost(jobs->crew->group); }

/* After a failure: the others save and end. The message of the first failure is kept. */
static void end_all(hark_context *context, hark_sweep_jobs *jobs) {
  char message[HARK_MESSAGE_BYTES];
  hark_sweep_ended ended;
  memcpy(message, context->message, sizeof message);
  if (jobs->running > 0 && hark_sweep_signal() == 0) hark_sweep_end_all(SIGTERM);
  while (jobs->running > 0 && !is_lost(jobs)) (void)!next(context, jobs, &ended);
  memcpy(context->message, message, sizeof message);
}

hark_status hark_sweep_jobs_do(hark_context *context, const hark_sweep_work *work, int count, hark_sweep_output output) {
  void *places = NULL;
  count = (int)hark_max(1, hark_min((int64_t)count * hark_sweep_crew_size(work->crew), work->count));
  HARK_TRY(hark_allocate_zero(context, (size_t)count * sizeof(hark_sweep_job), &places));
  hark_sweep_jobs jobs = {.count = count, .output = output, .progress = hark_progress_begin(), .crew = work->crew, .places = places};
  for (int task = 0; task < work->count; task++) {
    const bool needed = work->needed(work->user, task);
    jobs.left += needed;
    jobs.done += !needed;
  }
  const hark_status status = do_all(context, work, &jobs);
  end_all(context, &jobs);
  hark_progress_end(&jobs.progress);
  hark_release(context, places, (size_t)count * sizeof(hark_sweep_job));
  return status;
}
