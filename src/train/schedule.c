/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

static double from_start(const hark_config *config, int64_t warmup, int64_t step, int64_t total) {
  const double peak = config->train.learning_rate, minimum = config->train.minimum_rate;
  const double rise = step < warmup ? (double)step / (double)warmup : 1;
  if (config->train.schedule == HARK_SCHEDULE_BASE_RSQRT) return peak * rise / sqrt((double)hark_max(1, hark_max(step, warmup)));
  if (config->train.schedule == HARK_SCHEDULE_CYCLE) {
    const double part = (double)hark_max(step - warmup, 0) / (double)hark_max(1, total);
    return peak * rise * 0.5 * (1 + cos(PI * (part - floor(part))));
  }
  if (step <= warmup) return peak * (double)step / (double)warmup;
  const double part = total > warmup ? fmin(1.0, (double)(step - warmup) / (double)(total - warmup)) : 1.0;
  switch ((hark_schedule)config->train.schedule) {
    case HARK_SCHEDULE_BASE_RSQRT:
    case HARK_SCHEDULE_CYCLE:
    case HARK_SCHEDULE_CONSTANT: break;
    case HARK_SCHEDULE_COSINE: return minimum + (peak - minimum) * 0.5 * (1.0 + cos(PI * part));
    case HARK_SCHEDULE_LINEAR: return peak + (minimum - peak) * part;
    case HARK_SCHEDULE_RSQRT: return peak * sqrt((double)hark_max(warmup, 1) / (double)hark_max(step, 1));
  }
  return peak;
}

static double from_middle(const hark_config *config, const hark_schedule_plan *plan, int64_t step) {
  const double begin = plan->rate, minimum = config->train.minimum_rate;
  const double part = fmin(1.0, (double)(step - plan->from) / (double)hark_max(1, plan->steps - plan->from));
  switch ((hark_schedule)config->train.schedule) {
    case HARK_SCHEDULE_CONSTANT: break;
    case HARK_SCHEDULE_COSINE: return minimum + (begin - minimum) * 0.5 * (1.0 + cos(PI * part));
    case HARK_SCHEDULE_LINEAR: return begin + (minimum - begin) * part;
    case HARK_SCHEDULE_RSQRT:
    case HARK_SCHEDULE_BASE_RSQRT: return begin * sqrt((double)plan->from / (double)hark_max(step, 1));
    case HARK_SCHEDULE_CYCLE: return begin * 0.5 * (1.0 + cos(PI * part));
  }
  return begin;
}

double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total) {
  return from_start(config, config->train.warmup, step, total);
}

static int64_t warmup_of(const hark_config *config, const hark_schedule_plan *plan) {
  return plan->warmup > 0 ? plan->warmup : config->train.warmup;
}

double hark_schedule_plan_rate(const hark_config *config, const hark_schedule_plan *plan, int64_t step) {
  return plan->from > 0 ? from_middle(config, plan, step) : from_start(config, warmup_of(config, plan), step, plan->steps);
}

double hark_schedule_remaining(const hark_schedule_plan *plan, int64_t micro_batches, int64_t accumulate) {
  const double from = (double)plan->turned * (double)accumulate, all = (double)plan->steps * (double)accumulate;
  const double left = plan->turned > 0 ? plan->remaining : 1;
  return left * (1 - fmin(1, ((double)micro_batches - from) / fmax(1, all - from)));
}

hark_schedule_plan hark_schedule_plan_of(const hark_config *config, int64_t steps) {
  return (hark_schedule_plan){.steps = steps, .learning_rate = config->train.learning_rate};
}

/* Rates that do not depend on the length go on as they are. */
static bool ignores_length(const hark_config *config) {
  const int schedule = config->train.schedule;
  return schedule == HARK_SCHEDULE_CONSTANT || schedule == HARK_SCHEDULE_RSQRT || schedule == HARK_SCHEDULE_BASE_RSQRT;
}

hark_schedule_plan hark_schedule_extended(const hark_config *config, const hark_schedule_plan *before, int64_t step, double rate,
                                          int64_t steps) {
  const bool other_rate = config->train.learning_rate != before->learning_rate;
  const bool begins_again = config->train.extend == HARK_EXTEND_RESTART || other_rate;
  const bool longer = steps != before->steps;
  hark_schedule_plan plan = *before;
  if ((!longer && !other_rate) || steps < step || (longer && steps == step)) return plan;
  plan.learning_rate = config->train.learning_rate;
  if (!longer && plan.from == 0) return plan; /* the same schedule, of another height */
  if (step == 0 || (longer && config->train.extend == HARK_EXTEND_STRETCH)) return hark_schedule_plan_of(config, steps);
  plan.steps = steps;
  if (longer && config->model.architecture == HARK_ARCHITECTURE_ahca) { /* nobody else asks for what remains */
    plan.remaining = hark_schedule_remaining(before, step, 1);
    plan.turned = step;
  }
  const bool same = ignores_length(config) || (before->from == 0 && step <= warmup_of(config, before));
  if (same && !begins_again) return plan;
  plan.from = step;
  plan.rate = begins_again ? config->train.learning_rate : rate;
  return plan;
}
