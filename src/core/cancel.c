/* cancel.c - whether a call is to end early. Only the thread of the call asks the program; the others read the answer. */
#include "core/cancel.h"

#include <stdatomic.h>
#include <time.h>
#ifdef HARK_WITH_THREADS
#include <pthread.h>
#endif

#define ASKED_NANOSECONDS 20000000 /* from the beginning of a call, or from one question, to the next question */

struct hark_cancelling {
  hark_cancel *cancel;
  void *user;
  int depth;          /* calls that may be cancelled, one inside another */
  int64_t next;       /* time of the next question */
  atomic_bool agreed; /* the call ends */
#ifdef HARK_WITH_THREADS
  pthread_t caller;
#else
  bool of_program; /* the pieces are computed by a host program's threads */
#endif
};

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

hark_status hark_cancel_open(hark_context *context, hark_cancel *cancel, void *user) {
  if (cancel == NULL) return HARK_OK;
  HARK_TRY(hark_allocate_zero(context, sizeof *context->cancelling, (void **)&context->cancelling));
  context->cancelling->cancel = cancel;
  context->cancelling->user = user;
#ifndef HARK_WITH_THREADS
  context->cancelling->of_program = context->parallel.user != context; /* whose own table has it */
#endif
  return HARK_OK;
}

void hark_cancel_close(hark_context *context) {
  hark_release(context, context->cancelling, sizeof *context->cancelling);
  context->cancelling = NULL;
}

void hark_cancel_enter(hark_context *context) {
  struct hark_cancelling *const c = context->cancelling;
  if (c == NULL || c->depth++ > 0) return;
  c->next = now() + ASKED_NANOSECONDS;
  atomic_store_explicit(&c->agreed, false, memory_order_relaxed);
#ifdef HARK_WITH_THREADS
  c->caller = pthread_self();
#endif
}

hark_status hark_cancel_leave(hark_context *context, hark_status status) {
  struct hark_cancelling *const c = context->cancelling;
  if (c == NULL) return status;
  c->depth--;
  if (!atomic_load_explicit(&c->agreed, memory_order_relaxed)) return status;
  return hark_fail(context, HARK_CANCELLED, "cancelled");
}

bool hark_cancel_watches(const hark_context *context) { return context->cancelling != NULL && context->cancelling->depth > 0; }

/* A build without threads cannot distinguish those of a host program, which is then never asked. */
static bool is_caller(const struct hark_cancelling *c) {
#ifdef HARK_WITH_THREADS
  return pthread_equal(c->caller, pthread_self()) != 0;
#else
  return !c->of_program;
#endif
}

bool hark_cancel_ends(struct hark_cancelling *c) {
  if (atomic_load_explicit(&c->agreed, memory_order_relaxed)) return true;
  if (!is_caller(c) || now() < c->next) return false;
  c->next = now() + ASKED_NANOSECONDS;
  if (!c->cancel(c->user)) return false;
  atomic_store_explicit(&c->agreed, true, memory_order_relaxed);
  return true;
}

bool hark_cancel_now(hark_context *context) { return hark_cancel_watches(context) && hark_cancel_ends(context->cancelling); }
