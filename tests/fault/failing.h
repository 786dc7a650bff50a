/* failing.h - the n-th allocation of a context fails, for every n, and then the n-th and all later ones.
 *
 * Each time: HARK_OUT_OF_MEMORY and a message, everything can be destroyed, nothing is live afterwards, every block was given back with its
 * size; and while it is still there, the context does the same work when memory is back. No allocation is optional: where one fails, the
 * call does. What libraries used by hark allocate for themselves does not go through the context (docs/reliability.md).
 */
#ifndef HARK_TESTS_FAULT_FAILING_H
#define HARK_TESTS_FAULT_FAILING_H

#include <hark/hark.h>

/* Lets allocation `number` fail, and when `onwards` all later ones too. Returns false when there was no such allocation. */
typedef bool failure(const void *what, void *data, long number, bool onwards);

/* Every allocation in turn, in both ways. Returns how many there were. */
long fail_each(failure *fail_there, const void *what, void *data);

/* A piece of work, in three parts of which the middle one meets the failures. `data` is what begin made of it. */
typedef struct work {
  const char *name;
  hark_status (*begin)(hark_context *context, void *data); /* may be NULL */
  hark_status (*run)(hark_context *context, void *data);   /* leaves nothing when it fails, and after success what end frees */
  void (*end)(hark_context *context, void *data);          /* may be NULL; also after a run that failed */
  void (*failed)(hark_context *context, void *data);       /* optional: looks at what a failed run left, memory is back */
  const char *backend;
  long at_least; /* allocations that the run makes */
} work;

void fail_at_each(const work *what, void *data);

#endif
