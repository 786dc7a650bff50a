/* trainer_group.c - what the processes of a group do together: the copies of the state, requests, decisions by time. */
#include <math.h>

#include "train/moment_transfer.h"
#include "train/training_run.h"

#define COPIED_BYTES ((size_t)1 << 22) /* at once */

/* tensor <- that of rank 0, through `part` of COPIED_BYTES */
static hark_status copy_tensor(hark_context *context, const hark_tensor *tensor, void *part) {
  if (tensor->type == HARK_NONE) return HARK_OK;
  const size_t bytes = (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type);
  for (size_t at = 0; at < bytes; at += COPIED_BYTES) {
    const size_t here = bytes - at < COPIED_BYTES ? bytes - at : COPIED_BYTES;
    char *const data = (char *)tensor->data + at;
    if (hark_group_rank(context->group) == 0) HARK_TRY(hark_backend_read(context, part, data, here));
    HARK_TRY(hark_group_broadcast(context, context->group, part, here));
    HARK_TRY(hark_backend_write(context, data, part, here));
  }
  return HARK_OK;
}

static hark_status copy_tensors(hark_context *context, const hark_engine *engine, void *part) {
  HARK_TRY(copy_tensor(context, &engine->network->parameters.weights, part));
  if (engine->share.divided) return HARK_OK; /* the moments are where they belong */
  HARK_TRY(copy_tensor(context, &engine->first_moment, part));
  return copy_tensor(context, &engine->second_moment, part);
}

hark_status hark_training_copy_state(training_run *trainer) {
  hark_context *context = trainer->context;
  void *part = NULL;
  if (hark_group_size(context->group) == 1) return HARK_OK;
  hark_status status = hark_group_agree(context, context->group, hark_allocate(context, COPIED_BYTES, &part));
  if (status == HARK_OK) status = hark_group_broadcast(context, context->group, &trainer->state, sizeof trainer->state);
  if (status == HARK_OK) status = hark_group_broadcast(context, context->group, &trainer->seconds_before, sizeof trainer->seconds_before);
  if (status == HARK_OK) status = copy_tensors(context, trainer->engine, part);
  hark_release(context, part, COPIED_BYTES);
  trainer->engine->report.pivots = trainer->state.mended_pivots;
  return status;
}

hark_status hark_training_end_transfer(const training_run *trainer, hark_status status) {
  if (hark_training_leads(trainer)) return hark_moments_finish(trainer->context, trainer->engine, status);
  return status == HARK_OK ? hark_moments_serve(trainer->context, trainer->engine) : status;
}

double hark_training_common_now(const training_run *trainer) {
  double now = hark_training_now(trainer);
  if (hark_group_broadcast(trainer->context, trainer->context->group, &now, sizeof now) != HARK_OK) now = INFINITY; /* all time is over */
  return now;
}

hark_request hark_training_poll_together(training_run *trainer) {
  hark_context *context = trainer->context;
  int32_t own = (int32_t)hark_training_poll(trainer), all[HARK_GROUP_MOST];
  if (hark_group_size(context->group) == 1) return (hark_request)own;
  if (trainer->stop_requested) own = HARK_REQUEST_STOP; /* perhaps while rank 0 made samples */
  if (hark_group_meet(context, context->group, HARK_OK, &own, sizeof own, all) != HARK_OK) return HARK_REQUEST_STOP;
  for (int rank = 0; rank < hark_group_size(context->group); rank++) own = all[rank] > own ? all[rank] : own;
  hark_training_heed(trainer, (hark_request)own);
  return (hark_request)own;
}

/* What depends on time is decided by rank 0. */
typedef struct timely_decision {
  int64_t steps;
  hark_schedule_plan plan;
  bool corrected, time_is_up;
} timely_decision;

hark_status hark_training_decide_by_time(training_run *trainer, bool *corrected, bool *time_is_up) {
  timely_decision d = {.corrected = false};
  hark_context *context = trainer->context;
  *corrected = *time_is_up = false;
  if (trainer->config->train.max_time <= 0) return HARK_OK;
  if (hark_training_leads(trainer)) {
    d.corrected = hark_training_correct_length(trainer);
    d.steps = trainer->steps;
    d.plan = trainer->state.plan;
    d.time_is_up = trainer->state.step < trainer->steps && hark_training_time_is_up(trainer);
  }
  HARK_TRY(hark_group_broadcast(context, context->group, &d, sizeof d));
  *time_is_up = d.time_is_up;
  *corrected = d.corrected;
  if (!d.corrected) return HARK_OK;
  trainer->steps = d.steps;
  trainer->engine->plan = trainer->state.plan = d.plan;
  return HARK_OK;
}
