/* core.h - shared by the layers of the library: failing with a message, memory through the context, parallel work, checked sizes. */
#ifndef HARK_CORE_CORE_H
#define HARK_CORE_CORE_H

#include <hark/context.h>
#include <hark/tensor.h>

#include "core/cores.h"

#define HARK_MESSAGE_BYTES 512
#define HARK_ALIGNMENT 64 /* bytes: one cache line, one AVX-512 vector */

struct hark_backend;
struct hark_cancelling;

/* Calls of operators with more than `most` rows are computed in parts of `part` rows, a multiple of 16: sums over rows are sums of those of
 * the parts. So a computation by slices of `part` rows has the same bits as one of all rows (ops/parts.h, autograd/rows.h). */
typedef struct hark_row_parts {
  int64_t most, part;
} hark_row_parts;
#define HARK_ROWS_MOST ((int64_t)1 << 17)
#define HARK_ROWS_PART ((int64_t)1 << 14)

struct hark_context {
  hark_allocator allocator;
  hark_parallel parallel;
  int threads;                        /* of the default parallel */
  const char *threads_from;           /* origin of that number (thread_count.h) */
  hark_cores cores;                   /* on which these threads may run */
  struct hark_threads *own_threads;   /* of the default parallel; NULL: the calling thread alone */
  struct hark_cancelling *cancelling; /* whether calls may end early (cancel.h); NULL: never */
  uint64_t seed;
  bool deterministic;
  hark_logger *logger;
  void *logger_user;
  const struct hark_backend *backend;
  void *backend_state; /* made by the backend's open */
  hark_memory_use memory;
  hark_row_parts rows;                  /* constants; tests choose smaller ones */
  struct hark_group *group;             /* of processes that compute together (group/group.h); NULL: this one alone */
  struct hark_group *sequence;          /* those of them that share the rows of a training sequence (group/part.h); NULL: this one alone */
  struct hark_temporaries *temporaries; /* notes of temporary files (io/temporary.h), or NULL; the program's */
  char message[HARK_MESSAGE_BYTES];
};

/* Stores the message and returns the status, so that a failure is one statement: return hark_fail(context, HARK_..., "...", ...); Without a
 * context (NULL) only returns the status. */
hark_status hark_fail(hark_context *context, hark_status status, const char *format, ...) HARK_PRINTF(3, 4);

/* Inserts text before the current message ("blocks.3: "). */
void hark_fail_prefix(hark_context *context, const char *format, ...) HARK_PRINTF(2, 3);

void hark_log(hark_context *context, hark_log_level level, const char *format, ...) HARK_PRINTF(3, 4);

#define HARK_TRY(expression)                                                                                                               \
  do {                                                                                                                                     \
    const hark_status try_status = (expression);                                                                                           \
    if (try_status != HARK_OK) return try_status;                                                                                          \
  } while (0)

/* Host memory through the context's allocator, HARK_ALIGNMENT-aligned, not cleared; *out is NULL after a failure and for 0 bytes. */
HARK_MUST_CHECK hark_status hark_allocate(hark_context *context, size_t bytes, void **out);
/* The same, cleared. */
HARK_MUST_CHECK hark_status hark_allocate_zero(hark_context *context, size_t bytes, void **out);
void hark_release(hark_context *context, void *memory, size_t bytes);

/* a * b and a + b, or HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_size_multiply(hark_context *context, size_t a, size_t b, size_t *out);
HARK_MUST_CHECK hark_status hark_size_add(hark_context *context, size_t a, size_t b, size_t *out);

/* Rounds up to a multiple of HARK_ALIGNMENT. */
static inline size_t hark_align_up(size_t bytes) { return (bytes + (HARK_ALIGNMENT - 1)) & ~(size_t)(HARK_ALIGNMENT - 1); }

static inline int64_t hark_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t hark_max(int64_t a, int64_t b) { return a > b ? a : b; }
/* The larger and the smaller of two reals; NaN if either is NaN, unlike fmax and fmin. */
static inline double hark_larger(double a, double b) { return a > b || a != a ? a : b; }
static inline double hark_smaller(double a, double b) { return a < b || a != a ? a : b; }
static inline int64_t hark_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Runs task for every index of [0, count) on the context's threads: the lowest remaining index first, unless the host program's threads
 * have another order. */
void hark_parallel_for(hark_context *context, int64_t count, hark_task *task, void *data);
/* Number of scratch areas that tasks need: the largest possible worker number plus one. */
int hark_workers(const hark_context *context);

/* The first elements of a contiguous tensor, in this shape; it owns nothing. */
hark_tensor hark_tensor_front(const hark_tensor *whole, int rank, const int64_t *shape);

/* "[2, 3, 64]" for messages; returns text. */
const char *hark_shape_text(const hark_tensor *tensor, char *text, size_t size);

/* Largest size that hark_shape_text needs. */
#define HARK_SHAPE_TEXT_BYTES 192

#endif
