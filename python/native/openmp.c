/* openmp.c - hark_parallel on the OpenMP runtime that another library of the process has loaded, such as PyTorch's.
 *
 * hark then computes in that library's threads: two pools of threads would compete for the cores. The runtime is reached through its
 * function GOMP_parallel, which GNU's runtime has and LLVM's and Intel's have too; nothing is linked.
 */
#include <hark/hark.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef void gomp_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);

typedef struct team {
  hark_parallel table;
  gomp_parallel *parallel;
  int threads;
} team;

typedef struct work {
  _Atomic int64_t next;
  _Atomic int workers;
  int64_t count;
  hark_task *task;
  void *data;
} work;

static int threads_of(void *user) { return ((const team *)user)->threads; }

/* Runs in every thread of the region: takes the lowest remaining index. */
static void take_indices(void *data) {
  work *const w = data;
  const int worker = atomic_fetch_add(&w->workers, 1);
  for (int64_t index = atomic_fetch_add(&w->next, 1); index < w->count; index = atomic_fetch_add(&w->next, 1))
    w->task(w->data, index, worker);
}

static void run(void *user, int64_t count, hark_task *task, void *data) {
  const team *const t = user;
  work w = {.count = count, .task = task, .data = data};
  const int64_t threads = count < t->threads ? count : t->threads;
  if (threads > 1)
    t->parallel(take_indices, &w, (unsigned)threads, 0);
  else
    take_indices(&w);
}

/* The address of GOMP_parallel and a number of threads of at least 1. Returns NULL without memory. The result is good for contexts until
 * hark_python_team_destroy(). */
HARK_API const hark_parallel *hark_python_team_create(void *parallel, int threads) {
  team *const t = malloc(sizeof *t);
  if (t == NULL) return NULL;
  *t = (team){.threads = threads};
  *(void **)&t->parallel = parallel;
  t->table = (hark_parallel){.threads = threads_of, .run = run, .user = t};
  return &t->table;
}

HARK_API void hark_python_team_destroy(const hark_parallel *table) {
  if (table != NULL) free(table->user);
}
