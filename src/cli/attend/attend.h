/* attend.h - options and tensors of hark attend. */
#ifndef HARK_CLI_ATTEND_ATTEND_H
#define HARK_CLI_ATTEND_ATTEND_H

#include <hark/hark.h>

#include "backend/backend.h"
#include "cli/common.h"

/* In the order of the options' words; structures and the words of a hierarchy are also in the order of attention.h. */
enum { HARK_ATTEND_DENSE, HARK_ATTEND_WINDOW, HARK_ATTEND_HIERARCHICAL, HARK_ATTEND_COMPRESSED };
enum { HARK_ATTEND_EXP, HARK_ATTEND_RBF };
enum { HARK_ATTEND_SOFTMAX, HARK_ATTEND_CME, HARK_ATTEND_STICK_BREAKING };
enum { HARK_ATTEND_FACTOR, HARK_ATTEND_CONJUGATE_GRADIENTS };

typedef struct hark_attend_values {
  const char *input, *output, *backend;
  int structure, kernel, normalisation, solver, rotary_pairs, rotary_scaling, partition, coarse_query, interpolation;
  bool causal, has_query_offset, unit, directed_kernel;
  double scale, sigma, rotary, rotary_fraction, rotary_factor, dropout, ridge, ridge_power, bound, solver_tolerance;
  int64_t window, hierarchy_block, grid_columns, chunk, chunk_slots, selected_slots, kept_chunks, global_slots, query_offset,
      rotary_context, seed, threads;
  hark_string_list positional;
} hark_attend_values;

/* Tensors of the input file, intermediate tensors and results. Absent ones have type HARK_NONE or are NULL. */
typedef struct hark_attend_tensors {
  hark_tensor query, key, value, dout, bias, mask, log_kernel, forget, hierarchical_bias, query_mask, chunk_starts;
  int64_t *key_lengths, *segments;
  size_t key_lengths_bytes, segments_bytes;
  hark_tensor rotary_rates, drotary_rates;
  hark_tensor turned_query, turned_key; /* by the rotary embedding */
  double logit_factor;                  /* of the scaling of rotary rates; 0: none */
  hark_tensor out, log_sum_exp, dquery, dkey, dvalue, dbias, dlog_kernel, dpositional, dforget, dhierarchical_bias, dsigma;
  hark_tensor ridge, sigma, variance, dridge; /* cme, also the next line */
  hark_tensor log_determinant, quadratic, noise, dnoise, dvariance, dlog_determinant, dquadratic;
  hark_tensor contextual, dcontextual;
  /* Softmax with a log_sum_exp of -infinity: the same with queries and keys of zeros, -infinity only where a row sees no key. */
  hark_tensor seen;
} hark_attend_tensors;

/* Reads and checks the tensors of a file; free them also after a failure. Errors: HARK_BAD_FILE "PATH: tensor ...", those of files. */
hark_status hark_attend_read(hark_context *context, const char *path, hark_attend_tensors *out);
/* Writes the results that exist. */
hark_status hark_attend_write(hark_context *context, const char *path, const hark_attend_tensors *tensors);
/* Prints a warning for every result that has numbers that are not finite. The log-sum-exp of a row that sees no key, -infinity, is none;
 * that of a row that sees one is (`seen`). */
/* Whether a number of log_sum_exp is -infinity. */
HARK_MUST_CHECK hark_status hark_attend_has_empty_rows(hark_context *context, const hark_attend_tensors *tensors, bool *out);
HARK_MUST_CHECK hark_status hark_attend_warn(hark_invocation *call, const hark_attend_tensors *tensors);
void hark_attend_free(hark_context *context, hark_attend_tensors *tensors);

#endif
