/* parallel.c - work divided among the context's threads: the table that a host program may replace; by default its functions use the
 * context's threads (threads.c).
 *
 * Workers take the lowest remaining index, so that a caller puts its longest pieces first. For pieces of equal length each worker has a
 * share of adjacent indices, which it processes in order, and then takes remaining indices of other shares. The result of a piece must
 * depend on its index alone. */
#include "core/parallel.h"

#include "core/cancel.h"
#include "core/floating_point.h"
#include "core/thread_count.h"
#ifdef HARK_WITH_THREADS
#include "core/threads.h"
#endif

/* With `parts` shares; 1: every worker takes the lowest remaining index. */
static void run_shares(const hark_context *context, int64_t count, int parts, hark_task *task, void *data) {
#ifdef HARK_WITH_THREADS
  if (context->own_threads != NULL && count > 1) {
    hark_threads_run(context->own_threads, count, parts, task, data);
    return;
  }
#else
  (void)context;
  (void)parts;
#endif
  for (int64_t index = 0; index < count; index++) task(data, index, 0);
}

static int default_threads(void *user) { return ((const hark_context *)user)->threads; }

static void default_run(void *user, int64_t count, hark_task *task, void *data) { run_shares(user, count, 1, task, data); }

hark_status hark_parallel_open(hark_context *context, const hark_parallel *given) {
  if (given != NULL) {
    context->parallel = *given;
    context->threads_from = HARK_THREADS_PROGRAM;
    return HARK_OK;
  }
  context->parallel = (hark_parallel){.threads = default_threads, .run = default_run, .user = context};
#ifdef HARK_WITH_THREADS
  if (context->threads > 1) return hark_threads_create(context, context->threads, &context->own_threads);
#else
  context->threads = 1;
  context->threads_from = HARK_THREADS_BUILD;
#endif
  return HARK_OK;
}

void hark_parallel_close(hark_context *context) {
#ifdef HARK_WITH_THREADS
  hark_threads_destroy(context, &context->own_threads);
#else
  (void)context;
#endif
}

/* A piece that a thread of the host program computes with the floating-point state of the thread that requested the work. */
typedef struct piece_of_another {
  hark_task *task;
  void *data;
  hark_floating_point floating_point;
} piece_of_another;

static void run_as_its_caller(void *data, int64_t index, int worker) {
  const piece_of_another *const piece = data;
  hark_floating_point own;
  hark_floating_point_enter(&piece->floating_point, &own);
  piece->task(piece->data, index, worker);
  hark_floating_point_leave(&own);
}

/* Of at least two pieces, with `parts` shares where the threads are the context's. */
static void distribute(hark_context *context, int64_t count, int parts, hark_task *task, void *data) {
  if (context->parallel.run == default_run) {
    run_shares(context, count, parts, task, data);
  } else {
    piece_of_another piece = {.task = task, .data = data};
    hark_floating_point_get(&piece.floating_point);
    context->parallel.run(context->parallel.user, count, run_as_its_caller, &piece);
  }
}

/* A piece of a call that may be cancelled. */
typedef struct watched_piece {
  struct hark_cancelling *cancelling;
  hark_task *task;
  void *data;
} watched_piece;

static void run_watched(void *data, int64_t index, int worker) {
  const watched_piece *const piece = data;
  if (!hark_cancel_ends(piece->cancelling)) piece->task(piece->data, index, worker);
}

static void run_pieces(hark_context *context, int64_t count, int parts, hark_task *task, void *data) {
  if (!hark_cancel_watches(context)) {
    distribute(context, count, parts, task, data);
  } else {
    watched_piece piece = {.cancelling = context->cancelling, .task = task, .data = data};
    distribute(context, count, parts, run_watched, &piece);
  }
}

void hark_parallel_for(hark_context *context, int64_t count, hark_task *task, void *data) {
  if (count == 1)
    task(data, 0, 0);
  else if (count > 1)
    run_pieces(context, count, 1, task, data);
}

void hark_parallel_for_equal(hark_context *context, int64_t count, hark_task *task, void *data) {
  if (count > 1)
    run_pieces(context, count, context->threads, task, data);
  else
    hark_parallel_for(context, count, task, data);
}

/* Work must take at least so long to be shared. Handing it over takes some tenths of a microsecond, and data that both threads read and
 * write must come from the other's cache. But the caller begins at once, and a thread that comes too late takes nothing, so little is lost
 * if sharing is not worth it; measured on two threads (docs/notes/training.md, Threads). */
#define SHARED_NANOSECONDS 2000

bool hark_parallel_pays(double nanoseconds) { return nanoseconds >= SHARED_NANOSECONDS; }

void hark_parallel_for_work(hark_context *context, int64_t count, double nanoseconds, hark_task *task, void *data) {
  if (hark_parallel_pays(nanoseconds))
    hark_parallel_for_equal(context, count, task, data);
  else
    for (int64_t index = 0; index < count; index++) task(data, index, 0);
}

int hark_workers(const hark_context *context) {
  const int threads = context->parallel.threads(context->parallel.user);
  return threads > 1 ? threads : 1;
}

int hark_context_threads(const hark_context *context) { return hark_workers(context); }
