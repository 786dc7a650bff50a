/* evaluation_rounds.c - see evaluation_rounds.h. */
#include "train/evaluation_rounds.h"

#include <string.h>

static void add(hark_engine *engine, const hark_batch_sums *batch, hark_batch_sums *sums) {
  sums->loss += batch->loss;
  sums->targets += batch->targets;
  sums->correct += batch->correct;
  sums->examples += batch->examples;
  sums->tokens += batch->tokens;
  engine->report.pivots += batch->pivots;
}

static hark_status measure(hark_engine *engine, const hark_evaluation_rounds *rounds, int64_t batch, hark_batch_sums *out) {
  const int64_t pivots = engine->report.pivots;
  *out = (hark_batch_sums){0};
  if (rounds->more > 0) memset(rounds->more_batch, 0, (size_t)rounds->more * sizeof *rounds->more_batch);
  const hark_status status = batch < rounds->batches ? rounds->measure(rounds->user, batch, out) : HARK_OK;
  if (hark_group_rank(engine->sequence.group) > 0) *out = (hark_batch_sums){.loss = out->loss}; /* of its rows; all else is counted once */
  out->pivots = engine->report.pivots - pivots;
  engine->report.pivots = pivots;
  return status;
}

_Static_assert(sizeof(hark_batch_sums) <= HARK_GROUP_NOTE_BYTES, "the sums of a batch are a note");

/* The processes that share the batches, and room for the further sums of all: [size, more]. A batch is of one process, or of all those
 * that share its sequences. */
typedef struct sharing {
  int size, together; /* processes; batches at once */
  double *more;
} sharing;

static void add_more(const hark_evaluation_rounds *rounds, const double *batch) {
  for (int64_t i = 0; i < rounds->more; i++) rounds->more_sums[i] += batch[i];
}

/* The batches [first, first + together). */
static hark_status run_round(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, int64_t first,
                             const sharing *shared, hark_batch_sums *sums) {
  hark_batch_sums own, all[HARK_GROUP_MOST];
  const size_t bytes = (size_t)rounds->more * sizeof(double);
  const double *more = rounds->more_batch;
  hark_status status = measure(engine, rounds, first + (shared->size > 1 ? hark_group_rank(context->group) % shared->together : 0), &own);
  all[0] = own;
  status = hark_engine_end_work(context, engine, status);
  if (shared->size > 1) status = hark_group_meet(context, context->group, status, &own, sizeof own, all);
  HARK_TRY(status);
  if (shared->size > 1 && bytes > 0) {
    HARK_TRY(hark_group_gather(context, context->group, more, bytes, shared->more));
    more = shared->more;
  }
  for (int batch = 0; batch < shared->together && first + batch < rounds->batches; batch++)
    for (int i = batch; i < shared->size; i += shared->together) { /* the processes that have its rows */
      add(engine, &all[i], sums);
      if (rounds->more > 0) add_more(rounds, more + i * rounds->more);
    }
  return HARK_OK;
}

#define COUNTS 1024 /* that are sent at once */

/* Rank 0's counts <- the sum of those of all. */
static hark_status add_counts(hark_context *context, const hark_evaluation_rounds *rounds) {
  int64_t part[COUNTS] = {0};
  hark_group *const group = context->group;
  for (int peer = 1; peer < hark_group_size(group); peer++)
    for (int64_t at = 0; at < rounds->counted; at += COUNTS) {
      const int64_t here = hark_min(COUNTS, rounds->counted - at);
      const bool sends = hark_group_rank(group) == peer;
      const hark_message message = {sends ? rounds->counts + at : part, (size_t)here * sizeof *part, sends ? 0 : peer, sends};
      if (!sends && hark_group_rank(group) != 0) break;
      HARK_TRY(hark_group_exchange(context, group, &message, 1));
      for (int64_t i = 0; i < here && !sends; i++) rounds->counts[at + i] += part[i];
    }
  return HARK_OK;
}

static hark_status run_rounds(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, const sharing *shared,
                              hark_batch_sums *sums, bool *complete) {
  for (int64_t first = 0, done; first < rounds->batches; first = done) {
    done = hark_min(first + shared->together, rounds->batches);
    HARK_TRY(run_round(context, engine, rounds, first, shared, sums));
    if (rounds->progress == NULL || rounds->progress(rounds->progress_user, (double)done / (double)rounds->batches)) continue;
    *complete = done == rounds->batches;
    break;
  }
  return shared->size > 1 && rounds->counted > 0 ? add_counts(context, rounds) : HARK_OK;
}

hark_status hark_evaluate_rounds(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, hark_batch_sums *sums,
                                 bool *complete) {
  sharing shared = {.size = engine->statistics == NULL ? hark_group_size(context->group) : 1};
  shared.together = shared.size / hark_group_size(engine->sequence.group);
  const size_t bytes = shared.size > 1 ? (size_t)(rounds->more * shared.size) * sizeof(double) : 0;
  void *memory = NULL;
  *sums = (hark_batch_sums){0};
  *complete = true;
  hark_status status = HARK_OK;
  if (bytes > 0) status = hark_group_agree(context, context->group, hark_allocate(context, bytes, &memory));
  shared.more = memory;
  if (status == HARK_OK) status = run_rounds(context, engine, rounds, &shared, sums, complete);
  hark_release(context, memory, bytes);
  return status;
}
