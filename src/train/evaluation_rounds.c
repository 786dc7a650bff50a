/* evaluation_rounds.c - see evaluation_rounds.h. */
#include "train/evaluation_rounds.h"

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
  const hark_status status = batch < rounds->batches ? rounds->measure(rounds->user, batch, out) : HARK_OK;
  out->pivots = engine->report.pivots - pivots;
  engine->report.pivots = pivots;
  return status;
}

_Static_assert(sizeof(hark_batch_sums) <= HARK_GROUP_NOTE_BYTES, "the sums of a batch are a note");

/* The batches [first, first + size), one by each process. */
static hark_status run_round(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, int64_t first, int size,
                             hark_batch_sums *sums) {
  hark_batch_sums own, all[HARK_GROUP_MOST];
  hark_status status = measure(engine, rounds, first + (size > 1 ? hark_group_rank(context->group) : 0), &own);
  all[0] = own;
  if (size > 1) status = hark_group_meet(context, context->group, status, &own, sizeof own, all);
  HARK_TRY(status);
  for (int i = 0; i < size && first + i < rounds->batches; i++) add(engine, &all[i], sums);
  return HARK_OK;
}

hark_status hark_evaluate_rounds(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, hark_batch_sums *sums,
                                 bool *complete) {
  const int size = engine->statistics == NULL ? hark_group_size(context->group) : 1;
  *sums = (hark_batch_sums){0};
  *complete = true;
  for (int64_t first = 0, done; first < rounds->batches; first = done) {
    done = hark_min(first + size, rounds->batches);
    HARK_TRY(run_round(context, engine, rounds, first, size, sums));
    if (rounds->progress == NULL || rounds->progress(rounds->progress_user, (double)done / (double)rounds->batches)) continue;
    *complete = done == rounds->batches;
    break;
  }
  return HARK_OK;
}
