/* regressor_config.h - the options of architecture regressor (regressor.h). */
#ifndef HARK_MODELS_REGRESSOR_CONFIG_H
#define HARK_MODELS_REGRESSOR_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define HARK_REGRESSOR_LOSS_WORDS "gaussian|squared|classes"
typedef enum hark_regressor_loss {
  HARK_REGRESSOR_LOSS_GAUSSIAN, /* -log density of the targets */
  HARK_REGRESSOR_LOSS_SQUARED,  /* squared error of the mean */
  HARK_REGRESSOR_LOSS_CLASSES   /* -log probability of the class; a response for each class */
} hark_regressor_loss;

#define HARK_REGRESSOR_HEAD_WORDS "posterior|smoother"
typedef enum hark_regressor_head {
  HARK_REGRESSOR_HEAD_POSTERIOR, /* of Gaussian processes: kernel ridge regression */
  HARK_REGRESSOR_HEAD_SMOOTHER   /* means of the targets, weighted by kernels: softmax attention */
} hark_regressor_head;

#define HARK_CLASS_MOST 256 /* classes of a table, at most */

typedef struct hark_regressor_config {
  int64_t processes;  /* Gaussian processes whose predictions are mixed */
  int64_t features;   /* of the inputs of their kernels */
  bool standardise;   /* columns, by mean and deviation of the context (table_rows.h) */
  double least_noise; /* smallest variance of the noise, where the variance of the process is 1 */
  int loss, head;     /* hark_regressor_loss, hark_regressor_head */
} hark_regressor_config;

#endif
