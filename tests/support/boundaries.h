/* boundaries.h - weights of learned boundaries of chunks. */
#ifndef HARK_TESTS_SUPPORT_BOUNDARIES_H
#define HARK_TESTS_SUPPORT_BOUNDARIES_H

#include "nn/parameters.h"

/* Gives the boundaries of a network weights with which some chunks begin by their probability, others at their most tokens. */
void scatter_boundaries(hark_context *context, const hark_parameters *parameters);

#endif
