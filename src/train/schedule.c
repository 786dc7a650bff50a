/* schedule.c - see schedule.h. */
#include "train/schedule.h"

#include <math.h>

double hark_schedule_rate(const hark_config *config, int64_t step, int64_t total) {
  const double peak = config->train.learning_rate, minimum = config->train.minimum_rate;
  const int64_t warmup = config->train.warmup;
  if (step <= warmup) return peak * (double)step / (double)warmup;
  const double part = total > warmup ? fmin(1.0, (double)(step - warmup) / (double)(total - warmup)) : 1.0;
  switch ((hark_schedule)config->train.schedule) {
    case HARK_SCHEDULE_CONSTANT: break;
    case HARK_SCHEDULE_COSINE: return minimum + (peak - minimum) * 0.5 * (1.0 + cos(3.14159265358979323846 * part));
    case HARK_SCHEDULE_LINEAR: return peak + (minimum - peak) * part;
    case HARK_SCHEDULE_RSQRT: return peak * sqrt((double)hark_max(warmup, 1) / (double)hark_max(step, 1));
  }
  return peak;
}
