/* network_config.c - see network_config.h. */
#include "models/network_config.h"

/* 0 means the published number. */
static double unless(double value, double published) { return value != published ? value : 0; }

hark_rotary_tuning hark_network_rotary_tuning(const hark_rotary_choice *rotary) {
  hark_rotary_tuning tuning = {.ramp = HARK_ROTARY_RAMP_PAIR};
  switch (rotary->scaling) {
    case HARK_ROTARY_AS_TRAINED:
    case HARK_ROTARY_LINEAR:
    case HARK_ROTARY_NTK:
    case HARK_ROTARY_DYNAMIC: break;
    case HARK_ROTARY_YARN:
      tuning.ramp = rotary->ramp;
      tuning.beta_fast = unless(rotary->beta_fast, 32);
      tuning.beta_slow = unless(rotary->beta_slow, 1);
      tuning.untruncated = !rotary->truncate;
      tuning.mscale = rotary->mscale;
      tuning.mscale_all_dim = rotary->mscale_all_dim;
      tuning.attention_factor = rotary->attention_factor;
      break;
    case HARK_ROTARY_LLAMA3:
      tuning.low_frequency = unless(rotary->low_freq_factor, 1);
      tuning.high_frequency = unless(rotary->high_freq_factor, 4);
      break;
    case HARK_ROTARY_LONGROPE:
      tuning.attention_factor = rotary->attention_factor;
      tuning.short_factor = rotary->short_factors;
      tuning.long_factor = rotary->long_factors;
      break;
  }
  return tuning;
}
