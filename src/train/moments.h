/* moments.h - which moments the optimiser keeps of a weight, and where they are in the flat moments.
 *
 *   AdamW      both moments of every number, at the places of the weights
 *   Adafactor  a matrix whose two sides are at least train.adafactor.factor_from has means of rows and columns of its second moment;
 *              every other weight has a second moment of every number. One weight follows the other, in the order of the parameters.
 *              First moments, at the places of the weights, only with train.adafactor.beta1 above 0
 */
#ifndef HARK_TRAIN_MOMENTS_H
#define HARK_TRAIN_MOMENTS_H

#include "io/safetensors.h"
#include "nn/parameters.h"
#include "train/config.h"

typedef enum hark_moment { HARK_MOMENT_FIRST, HARK_MOMENT_SECOND } hark_moment;

/* Moments of one weight, in the flat moments. */
typedef struct hark_moment_place {
  bool first_too, factored;
  int64_t first;   /* number of the first moments */
  int64_t second;  /* of the second moments; if they are factored, of the means of rows */
  int64_t columns; /* of the means of columns */
} hark_moment_place;

/* The place of the next parameter, in their order; *end is 0 before the first one, and the number of all second moments after the last
 * one. */
hark_moment_place hark_moment_place_next(const hark_config *config, const hark_parameter *parameter, int64_t *end);
/* Numbers of the flat second moments of Adafactor. */
int64_t hark_moment_numbers(const hark_config *config, const hark_parameters *parameters);
bool hark_moments_have_first(const hark_config *config);

/* A tensor of moments as checkpoints store it. */
typedef struct hark_moment_tensor {
  const char *prefix; /* before the name of the weight */
  hark_moment which;
  int64_t first; /* in the flat moments */
  int rank;
  int64_t shape[HARK_MAX_RANK];
} hark_moment_tensor;

#define HARK_MOMENT_TENSORS 3 /* of a weight, at most */

/* Whether a weight of this shape has means of rows and columns. */
bool hark_moments_are_factored(const hark_config *config, int rank, const int64_t *shape);

/* The optimiser whose moments a checkpoint's file has. HARK_BAD_FILE: its metadata name another one. */
HARK_MUST_CHECK hark_status hark_moments_optimiser(hark_context *context, const char *path, const hark_safetensors *file,
                                                   hark_optimiser *out);
/* HARK_BAD_FILE if it is not that of the configuration: its moments cannot be continued. */
HARK_MUST_CHECK hark_status hark_moments_check_optimiser(hark_context *context, const char *path, const hark_safetensors *file,
                                                         const hark_config *config);

/* Writes those of a weight of this shape, and returns how many there are. */
int hark_moment_tensors(const hark_moment_place *place, int rank, const int64_t *shape, hark_moment_tensor out[HARK_MOMENT_TENSORS]);

#endif
