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
  if (hark_group_rank(engine->sequence.group) > 0) *out = (hark_batch_sums){.loss = out->loss}; /* of its rows; all else is counted once */
  out->pivots = engine->report.pivots - pivots;
  engine->report.pivots = pivots;
  return status;
}

_Static_assert(sizeof(hark_batch_sums) <= HARK_GROUP_NOTE_BYTES, "the sums of a batch are a note");

/* The batches [first, first + together), one by each process, or by the processes that share its sequences. */
static hark_status run_round(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, int64_t first, int size,
                             int together, hark_batch_sums *sums) {
  hark_batch_sums own, all[HARK_GROUP_MOST];
  hark_status status = measure(engine, rounds, first + (size > 1 ? hark_group_rank(context->group) % together : 0), &own);
  all[0] = own;
  if (size > 1) status = hark_group_meet(context, context->group, status, &own, sizeof own, all);
  HARK_TRY(status);
  for (int i = 0; i < size; i++)
    if (first + i % together < rounds->batches) add(engine, &all[i], sums);
  return HARK_OK;
}

hark_status hark_evaluate_rounds(hark_context *context, hark_engine *engine, const hark_evaluation_rounds *rounds, hark_batch_sums *sums,
                                 bool *complete) {
  const int size = engine->statistics == NULL ? hark_group_size(context->group) : 1;
  const int together = size / hark_group_size(engine->sequence.group);
  *sums = (hark_batch_sums){0};
  *complete = true;
  for (int64_t first = 0, done; first < rounds->batches; first = done) {
    done = hark_min(first + together, rounds->batches);
    HARK_TRY(run_round(context, engine, rounds, first, size, together, sums));
    if (rounds->progress == NULL || rounds->progress(rounds->progress_user, (double)done / (double)rounds->batches)) continue;
    *complete = done == rounds->batches;
    break;
  }
  return HARK_OK;
}
