/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

static double from_start(const hark_config *config, int64_t warmup, double step, int64_t total) {
  const double peak = config->train.learning_rate, minimum = config->train.minimum_rate;
  const double start = (double)warmup, rise = step < start ? step / start : 1;
  if (config->train.schedule == HARK_SCHEDULE_BASE_RSQRT) return peak * rise / sqrt(fmax(1, fmax(step, start)));
  if (config->train.schedule == HARK_SCHEDULE_CYCLE) {
    const double part = fmax(step - start, 0) / (double)hark_max(1, total);
    return peak * rise * 0.5 * (1 + cos(PI * (part - floor(part))));
  }
  if (step <= start) return peak * step / start;
  const double part = total > warmup ? fmin(1.0, (step - start) / (double)(total - warmup)) : 1.0;
  switch ((hark_schedule)config->train.schedule) {
    case HARK_SCHEDULE_BASE_RSQRT:
    case HARK_SCHEDULE_CYCLE:
    case HARK_SCHEDULE_CONSTANT: break;
    case HARK_SCHEDULE_COSINE: return minimum + (peak - minimum) * 0.5 * (1.0 + cos(PI * part));
    case HARK_SCHEDULE_LINEAR: return peak + (minimum - peak) * part;
    case HARK_SCHEDULE_RSQRT: return peak * sqrt(fmax(start, 1) / fmax(step, 1));
  }
  return peak;
}

static double from_middle(const hark_config *config, const hark_schedule_plan *plan, double step, int64_t total) {
  const double begin = plan->rate, minimum = config->train.minimum_rate;
  const double part = fmin(1.0, (step - (double)plan->from) / (double)hark_max(1, total - plan->from));
  switch ((hark_schedule)config->train.schedule) {
    case HARK_SCHEDULE_CONSTANT: break;
    case HARK_SCHEDULE_COSINE: return minimum + (begin - minimum) * 0.5 * (1.0 + cos(PI * part));
    case HARK_SCHEDULE_LINEAR: return begin + (minimum - begin) * part;
    case HARK_SCHEDULE_RSQRT:
    case HARK_SCHEDULE_BASE_RSQRT: return begin * sqrt((double)plan->from / fmax(step, 1));
    case HARK_SCHEDULE_CYCLE: return begin * 0.5 * (1.0 + cos(PI * part));
  }
  return begin;
}

double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total) {
  return from_start(config, config->train.warmup, (double)step, total);
}

static int64_t warmup_of(const hark_config *config, const hark_schedule_plan *plan) {
  return plan->warmup > 0 ? plan->warmup : config->train.warmup;
}

/* The schedule's step t' for a step of the run. */
static double own_step(const hark_schedule_plan *plan, int64_t step) {
  if (plan->bent == 0) return (double)step;
  const double part = (double)(step - plan->bent) / (double)hark_max(1, plan->steps - plan->bent);
  return plan->bent_at + ((double)plan->drawn - plan->bent_at) * part;
}

double hark_schedule_plan_rate(const hark_config *config, const hark_schedule_plan *plan, int64_t step) {
  const double own = own_step(plan, step);
  const int64_t total = plan->bent > 0 ? plan->drawn : plan->steps;
  return plan->from > 0 ? from_middle(config, plan, own, total) : from_start(config, warmup_of(config, plan), own, total);
}

double hark_schedule_remaining(const hark_schedule_plan *plan, int64_t micro_batches, int64_t accumulate) {
  const double from = (double)plan->turned * (double)accumulate, all = (double)plan->steps * (double)accumulate;
  const double left = plan->turned > 0 ? plan->remaining : 1;
  return left * (1 - fmin(1, ((double)micro_batches - from) / fmax(1, all - from)));
}

hark_schedule_plan hark_schedule_plan_of(const hark_config *config, int64_t steps) {
  return (hark_schedule_plan){.steps = steps, .learning_rate = config->train.learning_rate};
}

/* Rates that do not depend on the length do not change. */
static bool ignores_length(const hark_config *config) {
  const int schedule = config->train.schedule;
  return schedule == HARK_SCHEDULE_CONSTANT || schedule == HARK_SCHEDULE_RSQRT || schedule == HARK_SCHEDULE_BASE_RSQRT;
}

/* Values that change in the course of the training continue from the present one. Only models of architecture ahca use them. */
static void keep_remaining(const hark_config *config, const hark_schedule_plan *before, int64_t step, hark_schedule_plan *plan) {
  if (config->model.architecture != HARK_ARCHITECTURE_AHCA) return;
  plan->remaining = hark_schedule_remaining(before, step, 1);
  plan->turned = step;
}

hark_schedule_plan hark_schedule_corrected(const hark_config *config, const hark_schedule_plan *before, int64_t step, int64_t steps) {
  hark_schedule_plan plan = *before;
  if (steps == before->steps) return plan;
  plan.steps = steps;
  keep_remaining(config, before, step, &plan);
  if (ignores_length(config)) return plan;
  plan.bent_at = own_step(before, step);
  plan.drawn = before->bent > 0 ? before->drawn : before->steps;
  plan.bent = step;
  return plan;
}

hark_schedule_plan hark_schedule_extended(const hark_config *config, const hark_schedule_plan *before, int64_t step, double rate,
                                          int64_t steps) {
  const bool other_rate = config->train.learning_rate != before->learning_rate;
  const bool begins_again = config->train.extend == HARK_EXTEND_RESTART || other_rate;
  const bool longer = steps != before->steps;
  hark_schedule_plan plan = *before;
  if ((!longer && !other_rate) || steps < step || (longer && steps == step)) return plan;
  plan.learning_rate = config->train.learning_rate;
  if (!longer && plan.from == 0) return plan; /* the same schedule with another learning rate */
  if (step == 0 || (longer && config->train.extend == HARK_EXTEND_STRETCH)) return hark_schedule_plan_of(config, steps);
  plan.steps = steps;
  if (longer) keep_remaining(config, before, step, &plan);
  const bool rises = before->from == 0 && own_step(before, step) <= (double)warmup_of(config, before);
  if (!begins_again && rises && before->bent > 0) return hark_schedule_corrected(config, before, step, steps);
  if (!begins_again && (rises || ignores_length(config))) return plan;
  plan.bent = plan.drawn = 0;
  plan.bent_at = 0;
  plan.from = step;
  plan.rate = begins_again ? config->train.learning_rate : rate;
  return plan;
}
