/* parameters.h - the learned numbers of a model: named, in one flat buffer, with their gradients in another. A model that is not trained
 * may hold matrices in bf16, f16 or i8, in a third buffer (core/compact.h).
 *
 * Layers declare parameters; hark_parameters_finish() then lays them out. Parameters of one optimiser group are contiguous, so the
 * optimiser and sums over all gradients work on a few long vectors.
 */
#ifndef HARK_NN_PARAMETERS_H
#define HARK_NN_PARAMETERS_H

#include <hark/tape.h>

#include "core/core.h"
#include "nn/norm_bound.h"

#define HARK_PARAMETER_NAME_BYTES 96

typedef enum hark_initial {
  HARK_INITIAL_ZERO,
  HARK_INITIAL_ONE,
  HARK_INITIAL_NORMAL,
  HARK_INITIAL_CONSTANT,
  HARK_INITIAL_IDENTITY, /* of a matrix: ones where row and column numbers are equal */
  HARK_INITIAL_GIVEN
} hark_initial;

/* Kinds of parameters whose learning rates have separate factors in the trainer; frozen ones do not change. */
typedef enum hark_rate_kind { HARK_RATE_PLAIN, HARK_RATE_POSITIONAL, HARK_RATE_ROTARY, HARK_RATE_FROZEN, HARK_RATE_KINDS } hark_rate_kind;

/* How a layer declares a parameter. Shapes: weights [out, in]. */
typedef struct hark_parameter_spec {
  int rank;
  int64_t shape[HARK_MAX_RANK];
  hark_initial initial;
  double value; /* standard deviation of NORMAL, value of CONSTANT */
  bool decays;  /* a matrix that multiplies or a table of rows: has weight decay, may be stored in halves; not norms, biases, kernel
                   parameters */
  bool compact; /* read by hark_linear_apply() and hark_embedding_apply() alone: may be held in bf16, f16 or i8 (parameters_compact.c) */
  hark_rate_kind rate;
  bool noted;            /* its numbers mean something else if the parameters' notes differ */
  const double *given;   /* values of GIVEN, borrowed until the parameters are initialised */
  hark_norm_bound bound; /* of a matrix: kept by hark_parameters_project() */
} hark_parameter_spec;

typedef struct hark_parameter {
  char name[HARK_PARAMETER_NAME_BYTES]; /* "blocks.0.attention.query.weight" */
  hark_parameter_spec spec;
  hark_tensor weight, gradient; /* views into the flat buffers; gradient absent without training */
  hark_tensor scale;            /* of a weight of i8: f32 [rows]; otherwise absent */
  hark_type rounded;            /* of a matrix in f32 that has the numbers of halves: their type; otherwise HARK_NONE */
  int64_t first, count;         /* elements of the flat buffers; of a compact weight, the first byte of the compact buffer */
} hark_parameter;

typedef int32_t hark_parameter_id; /* 0: none */

/* A range of the flat buffers that the optimiser treats in one way. */
typedef struct hark_parameter_group {
  int64_t first, count; /* elements, with the padding between parameters (always zero) */
  bool decays;
  hark_rate_kind rate;
} hark_parameter_group;

#define HARK_PARAMETER_GROUPS (2 * HARK_RATE_KINDS)

/* A part of the weights' meaning that shapes do not show. Files store it, and it is compared when weights are read. */
typedef struct hark_parameter_note {
  const char *key, *text; /* borrowed; an empty text is not written */
} hark_parameter_note;

#define HARK_PARAMETER_NOTES 4

typedef struct hark_parameters {
  hark_type type;
  hark_parameter *list;
  int32_t count, capacity;
  hark_parameter_group groups[HARK_PARAMETER_GROUPS];
  int group_count;
  hark_tensor weights, gradients; /* flat, [elements] */
  hark_tensor halves;  /* bf16, [elements]: roundings of the weights (hark_parameters_round()); absent without products in bf16 */
  hark_tensor compact; /* u8 [bytes]: weights of bf16, f16 and i8, with their scales; absent if there are none */
  hark_parameter_note notes[HARK_PARAMETER_NOTES];
  int note_count;
  void *projection; /* host memory for hark_parameters_project(); NULL: no parameter has a bound */
  size_t projection_bytes;
} hark_parameters;

void hark_parameters_open(hark_parameters *parameters, hark_type type);
void hark_parameters_close(hark_context *context, hark_parameters *parameters);

/* Declares a parameter; name as printf. Errors: HARK_OUT_OF_MEMORY; HARK_INVALID_ARGUMENT for a name that is too long. */
HARK_MUST_CHECK hark_status hark_parameters_add(hark_context *context, hark_parameters *parameters, const hark_parameter_spec *spec,
                                                hark_parameter_id *out, const char *name, ...) HARK_PRINTF(5, 6);

/* Lays out without memory, for sizes and names: flat buffers and views are described, their data is NULL.
 * Errors: HARK_INVALID_ARGUMENT for a repeated name, HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_parameters_lay_out(hark_context *context, hark_parameters *parameters, bool training);

/* Lays out and allocates; the weights are zero. Errors: HARK_INVALID_ARGUMENT for a repeated name, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_parameters_finish(hark_context *context, hark_parameters *parameters, bool training);

/* ---- compact weights: parameters_compact.c ---- */

/* Before the parameter is laid out: it will be held in `type`, f32 or, if its spec allows it, bf16, f16 or i8.
 * Errors: HARK_UNSUPPORTED (more columns than an i8 matrix can have). */
HARK_MUST_CHECK hark_status hark_parameter_hold(hark_context *context, hark_parameter *parameter, hark_type type);
/* The same for all parameters whose spec allows it. With halves the other decaying matrices are rounded to the half and kept in f32. All
 * numbers then equal those of a file of halves. Errors: also HARK_UNSUPPORTED if no parameter can be i8. */
HARK_MUST_CHECK hark_status hark_parameters_hold(hark_context *context, hark_parameters *parameters, hark_type type);
/* Whether numbers must be stored with hark_parameter_store(): they are rounded. */
bool hark_parameter_is_rounded(const hark_parameter *parameter);
/* Sets the numbers of an allocated parameter, rounded to its type; `place` is where they come from, for messages. Errors: HARK_NOT_FINITE
 * (a number that is not finite in the type), HARK_OUT_OF_MEMORY, those of the backend. */
HARK_MUST_CHECK hark_status hark_parameter_store(hark_context *context, const char *place, hark_parameter *parameter, const float *numbers);
/* Makes a parameter of the same numbers, held in `type`, with its own memory: its weight and its scale are the caller's to destroy, also
 * after a failure. Errors: as hold and store. */
HARK_MUST_CHECK hark_status hark_parameter_convert(hark_context *context, const char *place, const hark_parameter *from, hark_type type,
                                                   hark_parameter *out);

/* Sets initial values. They depend on the seed, the parameter's name and the place in it alone; parameters with bounds are then
 * projected. */
HARK_MUST_CHECK hark_status hark_parameters_initialise(hark_context *context, hark_parameters *parameters, uint64_t seed);

/* Projects every matrix with a bound (norm_bound.h); frozen ones only with `frozen_too`. A matrix within its bounds keeps its bits. Called
 * after hark_parameters_finish(); allocates nothing. Errors: those of the backend. */
HARK_MUST_CHECK hark_status hark_parameters_project(hark_context *context, const hark_parameters *parameters, bool frozen_too);

/* Describes, and with `memory` allocates, the roundings of the weights to bf16, for training with products in bf16. Called after the
 * parameters were laid out. Errors: HARK_UNSUPPORTED for weights that are not f32, HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_parameters_add_halves(hark_context *context, hark_parameters *parameters, bool memory);

/* Rounds the weights that multiply, once per step. Does nothing without roundings. Errors: those of the backend. */
HARK_MUST_CHECK hark_status hark_parameters_round(hark_context *context, const hark_parameters *parameters);

/* The elements of a group in a flat buffer, a view. */
hark_tensor hark_parameters_part(const hark_tensor *flat, const hark_parameter_group *group);

/* The rounding of a parameter that multiplies, a view. */
hark_tensor hark_parameters_half(const hark_parameters *parameters, hark_parameter_id id);

static inline hark_parameter *hark_parameters_at(const hark_parameters *parameters, hark_parameter_id id) {
  return &parameters->list[id - 1];
}
/* The parameter of that name, or NULL. */
hark_parameter *hark_parameters_find(const hark_parameters *parameters, const char *name);

/* name <- "prefix.part". A name that is too long is cut, and hark_parameters_add() refuses it. */
void hark_join_name(char name[HARK_PARAMETER_NAME_BYTES], const char *prefix, const char *part);

/* Number of learned numbers, without padding. */
int64_t hark_parameters_total(const hark_parameters *parameters);

#endif
