/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total) {
  const double peak = config->train.learning_rate, minimum = config->train.minimum_rate;
  const int64_t warmup = config->train.warmup;
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
