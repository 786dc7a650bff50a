/* pace.c - see pace.h. */
#include "train/pace.h"

#include <math.h>

#define MEASURED_PART 0.03     /* fraction of the time for steps; half of this for the evaluation */
#define MEASURED_MOST 10.0     /* seconds */
#define MEASURED_STEPS 3       /* at least, after a first step that includes one-time work */
#define MEASURED_MOST_STEPS 64 /* including that step */
#define PATIENCE 4             /* factor on the fraction above while there are fewer than the minimum of steps */
#define WARMUP_PART 10
#define FLUSHES 0.1 /* seconds that even a small save may take on a busy disk */

static int64_t multiples(int64_t every, int64_t first, int64_t last) { return every > 0 ? last / every - first / every : 0; }

double hark_pace_cost(const hark_pace *pace, const hark_pace_every *every, int64_t first, int64_t last) {
  if (last <= first) return 0;
  const double evaluations = 1 + (double)multiples(every->evaluation, first, last - 1);
  const double checkpoints = (double)multiples(every->checkpoint, first, last - 1);
  return (double)(last - first) * pace->step + evaluations * (pace->evaluation + pace->save) + checkpoints * pace->save;
}

int64_t hark_pace_reach(const hark_pace *pace, const hark_pace_every *every, int64_t first, double seconds) {
  const double most = pace->step > 0 ? seconds / pace->step : 0;
  int64_t low = first + 1, high = first + 1 + (most < (double)(INT64_MAX / 4) ? (int64_t)fmax(most, 0) : INT64_MAX / 4);
  while (low < high) { /* costs grow with the last step */
    const int64_t middle = low + (high - low + 1) / 2;
    if (hark_pace_cost(pace, every, first, middle) <= seconds)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

bool hark_pace_is_evaluation_too_long(const hark_pace *pace, double seconds) { return pace->evaluation > seconds / 2; }

int64_t hark_pace_warmup(int64_t warmup, int64_t steps) { return hark_min(warmup, hark_max(1, steps / WARMUP_PART)); }

static hark_status measure_steps(const hark_pace_task *task, double limit, hark_pace *pace) {
  const double begun = task->clock(task->user);
  double second = begun, now; /* when the second step began */
  int steps = 0;
  do {
    HARK_TRY(task->step(task->user, steps));
    now = task->clock(task->user);
    if (steps++ == 0) second = now;
    if (task->stopped(task->user) || steps == MEASURED_MOST_STEPS) break;
  } while (now - begun < (steps > MEASURED_STEPS ? limit : PATIENCE * limit));
  pace->step = steps > 1 ? (now - second) / (steps - 1) : now - begun;
  return HARK_OK;
}

static hark_status measure_save(const hark_pace_task *task, hark_pace *pace) {
  const double begun = task->clock(task->user);
  HARK_TRY(task->save(task->user));
  pace->save = task->clock(task->user) - begun;
  return HARK_OK;
}

static hark_status measure_evaluation(const hark_pace_task *task, double limit, hark_pace *pace) {
  const double begun = task->clock(task->user);
  double part = 0;
  HARK_TRY(task->evaluate(task->user, begun + limit, &part));
  pace->evaluation = part > 0 ? (task->clock(task->user) - begun) / part : 0;
  return HARK_OK;
}

hark_status hark_pace_measure(const hark_pace_task *task, double seconds, bool steps_too, hark_pace *pace) {
  const double limit = fmin(MEASURED_PART * seconds, MEASURED_MOST);
  if (steps_too) HARK_TRY(measure_steps(task, limit, pace));
  if (task->save != NULL && pace->save + FLUSHES <= limit && !task->stopped(task->user)) HARK_TRY(measure_save(task, pace));
  if (task->evaluate == NULL || task->stopped(task->user)) return HARK_OK;
  return measure_evaluation(task, limit / 2, pace);
}
