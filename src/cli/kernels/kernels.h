/* kernels.h - shared by the files of hark kernels: fits of the positional kernels of a model, and what a search makes of them. */
#ifndef HARK_CLI_KERNELS_KERNELS_H
#define HARK_CLI_KERNELS_KERNELS_H

#include "cli/common.h"
#include "models/model.h"
#include "positional/fit.h"

typedef struct hark_kernels_values {
  const char *text, *checkpoint, *output, *out, *base;
  hark_string_list data;
  int64_t windows, terms, table, seed, seeds, distances, jobs;
  double price, tokens;
  bool definite, proof;
} hark_kernels_values;

#define HARK_KERNELS_LAGS 8

/* The kernel of one row of a layer, and what was fitted to it. */
typedef struct hark_fitted_kernel {
  int64_t layer, row;
  hark_grown grown;
  int lag_count;
  int64_t lags[HARK_KERNELS_LAGS]; /* distances with at least a tenth of the attention, and more than their neighbours */
} hark_fitted_kernel;

/* Kernels in the order of the model's list of expressions: those of model scope have layer 0. */
typedef struct hark_fitted_kernels {
  hark_positional_scope scope;
  int64_t count, windows, length; /* length: of the tables, the model's context */
  bool of_heads;                  /* a row is a head */
  int64_t tokens, unknown;        /* of the text; unknown: those that stand for what the vocabulary lacks */
  hark_fitted_kernel *items;
  size_t bytes;
} hark_fitted_kernels;

/* The beginning of a text as tokens of a model. */
typedef struct hark_kernels_text {
  int32_t *ids;
  size_t count, bytes; /* bytes: of the memory */
  int64_t unknown;     /* tokens that stand for what the vocabulary lacks */
} hark_kernels_text;

/* Reads up to `most` bytes of a text; what the vocabulary lacks is its unknown token. The caller frees *out, also after a failure. */
HARK_MUST_CHECK hark_status hark_kernels_read_text(hark_context *context, const hark_model *model, const char *path, size_t most,
                                                   hark_kernels_text *out);
void hark_kernels_free_text(hark_context *context, hark_kernels_text *text);

/* Whether the layers have positional kernels of the distance of tokens. */
bool hark_kernels_given(const hark_network *network);
/* HARK_UNSUPPORTED for kernels with a direction in a model that is not causal. */
HARK_MUST_CHECK hark_status hark_kernels_check_direction(hark_context *context, const char *path, const hark_network *network,
                                                         const char *what);
/* out[rows, distances] <- log G of the rows of a layer, which are its heads or one for all. */
HARK_MUST_CHECK hark_status hark_kernels_table(hark_context *context, const hark_network *network, int64_t layer, int64_t distances,
                                               float *out);

/* Fits an expression to every positional kernel that a model has learned, weighted by its attention on the beginning of a text. The caller
 * frees *out, also after a failure. Errors: HARK_UNSUPPORTED for a model without positional kernels or without softmax attention, those of
 * models, texts and memory. */
HARK_MUST_CHECK hark_status hark_kernels_fit(hark_context *context, const char *model, const char *text, const hark_kernels_values *values,
                                             hark_fitted_kernels *out);
void hark_kernels_free(hark_context *context, hark_fitted_kernels *kernels);

/* The expressions of all kernels, separated by "|"; fixed: with values that are not learned. */
void hark_kernels_append_list(const hark_fitted_kernels *kernels, bool fixed, hark_text *text);
/* A table for people, or members of a JSON object. */
void hark_kernels_append_table(const hark_fitted_kernels *kernels, hark_text *text);
void hark_kernels_append_json(const hark_fitted_kernels *kernels, hark_text *text);

/* Number of the kernels' learned parameters, together. */
int64_t hark_kernels_parameters(const hark_fitted_kernels *kernels);

/* What a file of an export is, by the ending of its name. */
typedef enum hark_kernels_format {
  HARK_KERNELS_PYTHON,
  HARK_KERNELS_CSV,
  HARK_KERNELS_SAFETENSORS,
  HARK_KERNELS_UNKNOWN
} hark_kernels_format;
hark_kernels_format hark_kernels_format_of(const char *path);

/* The verbs. */
HARK_MUST_CHECK hark_status hark_kernels_search(hark_invocation *call);
HARK_MUST_CHECK hark_status hark_kernels_export(hark_invocation *call);

#endif
