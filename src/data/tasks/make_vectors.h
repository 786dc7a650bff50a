/* make_vectors.h - common parts of the generators of latent and regression: records of real vectors (vector_file.h); and the options of
 * these two, and of periodic-text and regression-tasks, which share some of them. */
#ifndef HARK_DATA_TASKS_MAKE_VECTORS_H
#define HARK_DATA_TASKS_MAKE_VECTORS_H

#include "data/tasks/make.h"

typedef struct hark_vector_values {
  int64_t tokens, features, covariates, responses;
  double spread, frequency, noise, prior;
  int64_t lag, period, alphabet;  /* periodic-text */
  int kind;                       /* the same: hark_periodic_kind */
  double scale_least, scale_most; /* regression-tasks */
  int function, inputs;           /* the same */
  int64_t label_classes;          /* the same */
} hark_vector_values;

/* Two independent standard normal numbers (Box and Muller, 1958). */
void hark_task_random_normals(hark_task_random *random, double out[2]);
/* out[0 .. count) <- normal numbers with a standard deviation. */
void hark_task_fill_normal(hark_task_random *random, double deviation, int64_t count, double *out);

/* Moves x [count] to the nearest point of the ball of a radius. */
void hark_vector_to_ball(double radius, int64_t count, double *x);

/* For settle: a number of tokens that is 0 becomes the usual one. */
void hark_vectors_settle_tokens(hark_vector_values *values);
/* For settle and header: the first refuses records that need more random numbers than one example has; the second appends the header of a
 * file. */
HARK_MUST_CHECK hark_status hark_vectors_settle(hark_context *context, int64_t tokens, int64_t features, int64_t responses);
HARK_MUST_CHECK hark_status hark_vectors_begin(int64_t tokens, int64_t features, int64_t responses, int64_t count, hark_text *out);

/* Writes numbers as 32-bit floats; returns the address after them. */
unsigned char *hark_vectors_write(const double *numbers, int64_t count, unsigned char *out);

#endif
