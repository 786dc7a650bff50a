/* context.h - the argument of every call: allocator, threads, backend, seed, logger, and the message of the last error.
 *
 * There are no mutable globals. A context is used by one thread at a time; several contexts work at once in one process. What a context
 * created must be destroyed before it.
 *
 * Floating point: during a call all threads take the calling thread's rounding mode, and flush small numbers to zero if it does. On x86-64,
 * some attention flushes the results of its arithmetic in any case (docs/numbers.md, "The same bits"). So the bits do not depend on the
 * number of threads. Traps are disabled while operators and attention compute, because infinities and NaN mean something here; exception
 * flags are afterwards what they were before. Threads of a host program get their own state back.
 *
 * Cores: a context's own threads run on the cores that are allowed to the thread that makes the context. If OpenMP's runtime has bound that
 * thread to one place (OMP_PROC_BIND, OMP_PLACES), they run on the cores of all places. The calling thread itself is not moved.
 */
#ifndef HARK_CONTEXT_H
#define HARK_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Made by hark_context_create(); the first argument of everything that can fail. */
typedef struct hark_context hark_context;

/* Memory for everything that hark allocates itself.
 * allocate: `bytes` > 0 bytes aligned to `alignment` (a power of two), or NULL, which the caller of hark sees as HARK_OUT_OF_MEMORY.
 * release: takes what allocate gave and the same `bytes`; never called with NULL.
 * Both are called only from the thread that uses the context. */
typedef struct hark_allocator {
  void *(*allocate)(void *user, size_t bytes, size_t alignment);
  void (*release)(void *user, void *memory, size_t bytes);
  void *user;
} hark_allocator;

/* One piece of parallel work: `index` in [0, count), `worker` in [0, threads()). Pieces that run at the same time have different workers,
 * so that the worker may select scratch memory. The result must not depend on which worker runs which index. */
typedef void hark_task(void *data, int64_t index, int worker);

/* The threads that run parallel work: the context's own (POSIX) if hark was built with them, else the calling thread. A host program that
 * has a thread pool fills this table instead. run returns when all pieces are done. It is never called from inside a piece. */
typedef struct hark_parallel {
  int (*threads)(void *user);
  void (*run)(void *user, int64_t count, hark_task *task, void *data);
  void *user;
} hark_parallel;

/* Receives messages other than failures: one line without a newline, owned by the library, valid during the call. */
typedef enum hark_log_level { HARK_LOG_ERROR, HARK_LOG_WARNING, HARK_LOG_INFO, HARK_LOG_DEBUG } hark_log_level;
typedef void hark_logger(void *user, hark_log_level level, const char *message);

/* Called on the calling thread; true ends the call that it computes with HARK_CANCELLED. It may read a flag that another thread sets
 * (atomically), or a clock. It must not call the library with the same context. */
typedef bool hark_cancel(void *user);

/* How to make a context. Set struct_size to sizeof(hark_context_options); fields that are zero have their defaults. */
typedef struct hark_context_options {
  size_t struct_size;
  const hark_allocator *allocator; /* copied; default: the C library's */
  const hark_parallel *parallel;   /* copied; default: the context's own threads */
  int threads;         /* for the default parallel; 0: OMP_NUM_THREADS, else as many as the cores that the calling thread may run on,
                                      the CPU quota of its control groups, rounded up, and SLURM_CPUS_PER_TASK allow */
  const char *backend; /* "cpu" (default), "reference"; "guard" in test builds */
  const char *instruction_set; /* "generic", "avx2", "avx512", "neon"; default: HARK_ARCH in the environment, else the best one available */
  uint64_t seed;               /* key of every random number for which no other key is given */
  bool deterministic;          /* the same bits for every number of threads, and of a row of `linear` alone as among others */
  hark_logger *logger;         /* default: none */
  void *logger_user;
  hark_cancel
      *cancel; /* default: none. Attention that computes for longer calls it about every 20 ms, between pieces of its work. After true
                          the pieces that were begun are completed and the call returns HARK_CANCELLED: what it wrote is undefined, and the
                          context can be used again. A piece is one tile of queries of a head; in the backward of dense attention, of
                          normalisation cme and in the backend reference it may be a head, which takes long if it has very many rows.
                          Calls that contain attention (tapes, models) then fail with that status.
                          A build without threads never calls it in a program that has its own `parallel` */
  void *cancel_user;
} hark_context_options;

/* Makes a context. `options` may be NULL: all defaults. On success *out is the caller's, to be given to hark_context_destroy().
 * Errors: HARK_OUT_OF_MEMORY, HARK_NO_BACKEND (unknown backend or an instruction set that this machine lacks), HARK_INVALID_ARGUMENT (an
 * invalid struct_size, an allocator or a parallel without its functions), HARK_UNSUPPORTED (options of a newer hark are set that this one
 * does not know). When it fails *out is NULL. */
HARK_API HARK_MUST_CHECK hark_status hark_context_create(const hark_context_options *options, hark_context **out);

/* Frees a context and sets *context to NULL. NULL and a pointer to NULL are allowed. */
HARK_API void hark_context_destroy(hark_context **context);

/* Details of the last failure on this context: one line without a newline; "" when there was none. Valid until the context's next call. */
HARK_API const char *hark_context_message(const hark_context *context);

/* For user-defined operators and callbacks (operator.h): formats a message like printf, keeps it for hark_context_message() and returns the
 * status:
 *     return hark_context_fail(context, HARK_SHAPE_MISMATCH, "clip: ...", ...); */
HARK_API hark_status hark_context_fail(hark_context *context, hark_status status, const char *format, ...) HARK_PRINTF(3, 4);

/* Number of threads that run parallel work, at least 1. */
HARK_API int hark_context_threads(const hark_context *context);

/* Names of the backend ("cpu") and of the instruction set ("avx512") in use. Static strings. */
HARK_API const char *hark_context_backend(const hark_context *context);
HARK_API const char *hark_context_instruction_set(const hark_context *context);

/* Memory from the context's allocator: live bytes, the most that were live at once, and the number of all allocations so far. */
typedef struct hark_memory_use {
  size_t live_bytes;
  size_t peak_bytes;
  uint64_t allocations;
} hark_memory_use;
HARK_API hark_memory_use hark_context_memory(const hark_context *context);

#ifdef __cplusplus
}
#endif
#endif
