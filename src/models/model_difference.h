/* model_difference.h - options in which two configurations describe different models. */
#ifndef HARK_MODELS_MODEL_DIFFERENCE_H
#define HARK_MODELS_MODEL_DIFFERENCE_H

#include "models/model_options.h"

/* A configuration in which derived values are in their places, so that two of one model are equal. */
hark_network_config hark_model_settled(const hark_network_config *config);

/* Whether an option has the same value in two settled configurations; lists by their numbers, choices by layer, kernels by their text. */
bool hark_model_option_agrees(const hark_model_option *row, const hark_network_config *a, const hark_network_config *b);

#endif
