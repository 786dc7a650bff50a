/* regressor_config.h - the options of architecture regressor (regressor.h). */
#ifndef HARK_MODELS_REGRESSOR_CONFIG_H
#define HARK_MODELS_REGRESSOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

typedef struct hark_regressor_config {
  int64_t processes;  /* Gaussian processes whose predictions are mixed */
  int64_t features;   /* of the inputs of their kernels */
  bool standardise;   /* columns, by mean and deviation of the context (table_rows.h) */
  double least_noise; /* smallest variance of the noise, where the variance of the process is 1 */
} hark_regressor_config;

#endif
