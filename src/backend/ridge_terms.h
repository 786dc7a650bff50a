/* ridge_terms.h - the shared part of kernel ridge (CME) attention in all backends: ridges and sigmas of a call, the range of its kernels,
 * which pivots are mended, troubles found inside parallel work, and the order in which gradients of shared parameters are summed.
 */
#ifndef HARK_BACKEND_RIDGE_TERMS_H
#define HARK_BACKEND_RIDGE_TERMS_H

#include "backend/attention_algorithm.h"

/* Largest exponent of a kernel, log G included: squares and sums of kernels of that size stay in range. */
static inline double hark_ridge_exponent_limit(hark_type type) { return type == HARK_F64 ? 300 : 40; }

/* Pivots: with positive definite kernels none is below lambda in exact arithmetic. With floor = max(lambda, this fraction of its diagonal
 * entry), a pivot below floor / 2 is raised to the floor, or to its magnitude if it is negative and that is larger. The fraction is the
 * size of a zero after rounding. */
#define HARK_RIDGE_PIVOT_F32 (16 * 0x1p-24)
#define HARK_RIDGE_PIVOT_F64 (16 * 0x1p-53)

/* keys^ridge_power: d lambda / d ridge. */
double hark_ridge_slope(const hark_attention_desc *desc, int64_t keys);

/* Keys that a sequence has at most. */
static inline int64_t hark_ridge_most_keys(const hark_attention_desc *desc) {
  return desc->longest > 0 ? hark_min(desc->key_length, desc->longest) : desc->key_length;
}

/* Keys of a sequence that some query sees, without regard to masks; the other keys are not used. */
static inline int64_t hark_ridge_keys(const hark_attention_desc *desc, const hark_attention_sequence *sequence) {
  if (!desc->causal) return sequence->key_count;
  return hark_max(0, hark_min(sequence->key_count, sequence->query_count + sequence->offset));
}

typedef enum hark_ridge_kind {
  HARK_RIDGE_FINE,
  HARK_RIDGE_BAD_RIDGE,
  HARK_RIDGE_BAD_RIDGE_FROM_0, /* of a head whose keys have noise */
  HARK_RIDGE_BAD_SIGMA,
  HARK_RIDGE_BAD_NOISE, /* not from 0, or beyond the range */
  HARK_RIDGE_NO_NOISE,  /* ridge and noise are 0 */
  HARK_RIDGE_BAD_QUERY, /* not finite: */
  HARK_RIDGE_BAD_KEY,
  HARK_RIDGE_BAD_VALUE,
  HARK_RIDGE_BAD_TABLE,
  HARK_RIDGE_BAD_PIVOT,
  HARK_RIDGE_BAD_RESULT,
  HARK_RIDGE_NO_CONVERGENCE, /* `row` is the number of iterations, `value` the residual */
  HARK_RIDGE_KEY_RANGE,      /* exponents out of range */
  HARK_RIDGE_QUERY_RANGE
} hark_ridge_kind;

struct hark_ridge_record;

/* The parameters of one head of a sequence. */
typedef struct hark_ridge_parameters {
  double lambda; /* relative to the shifted kernel: lambda e^-shift */
  double sigma, scale, shift;
  double top; /* the largest log G, 0 without a table */
} hark_ridge_parameters;

/* True if subnormal results may be zeros. A bound far above all products q.k makes kernels and ridge so small that they may not. */
static inline bool hark_ridge_may_flush(double scale, double bound, bool unit) { return unit || !(scale * bound > 40); }

/* The parameters of one head as the call gives them. */
typedef struct hark_ridge_given {
  hark_type type;
  bool rbf;
  bool noisy;                    /* keys have noise: the ridge may be 0 */
  double ridge, slope;           /* lambda = ridge slope, before the shift */
  double sigma, scale, bound;    /* as in a descriptor */
  const hark_tensor *log_kernel; /* NULL: none */
  int64_t table_row, distances;  /* of log_kernel: where the head's part begins, and how many numbers may be needed */
} hark_ridge_given;

/* Checks them; false, with the reason in the record, if one is out of range. */
bool hark_ridge_parameters_make(const hark_ridge_given *given, int64_t system, struct hark_ridge_record *record,
                                hark_ridge_parameters *out);

/* The same for a run. `keys`: the number of visible keys. */
bool hark_ridge_read(const hark_attention_call *run, int64_t head, int64_t keys, int64_t system, struct hark_ridge_record *record,
                     hark_ridge_parameters *out);

/* The noise of a key of the sequence; 0 without noise. */
double hark_ridge_noise(const hark_attention_args *args, const hark_attention_sequence *sequence, int64_t head, int64_t key);
/* *out <- what is added to a key's diagonal entry of kappa(K, K): lambda and the key's noise, relative to the shifted kernel. False, with
 * a record of the row, if the noise is out of range or both are 0. */
bool hark_ridge_added(const hark_ridge_parameters *is, hark_type type, double noise, int64_t system, int64_t row,
                      struct hark_ridge_record *record, double *out);
/* Adds to an element of dnoise, if it is requested: ddiagonal is the gradient of the key's diagonal entry. */
void hark_ridge_give_noise(const hark_attention_args *args, const hark_attention_sequence *sequence, int64_t head, int64_t key,
                           const hark_ridge_parameters *is, double ddiagonal);

/* Troubles and mended pivots that one worker found, on a separate cache line. `system` is sequence * heads + head; rows count in the batch
 * item. */
typedef struct hark_ridge_record {
  _Alignas(HARK_ALIGNMENT) int64_t system; /* of the first trouble in the order of systems */
  int64_t row;
  double value;
  hark_ridge_kind kind;
  int64_t pivots, pivot_system, pivot_row;
  int64_t iterations; /* of conjugate gradients: the most of one solve */
  double amount;
} hark_ridge_record;

void hark_ridge_records_clear(hark_ridge_record *records, int64_t count);
void hark_ridge_trouble(hark_ridge_record *record, int64_t system, hark_ridge_kind kind, int64_t row, double value);
void hark_ridge_mended(hark_ridge_record *record, int64_t system, int64_t row, double amount);
/* Returns the pivot to continue with; records a mended pivot, and a pivot that is not finite. `part` is HARK_RIDGE_PIVOT_*. */
double hark_ridge_pivot(hark_ridge_record *record, int64_t system, int64_t row, double pivot, double diagonal, double lambda, double part);
/* Fills the call's report if `reporting`, and fails with the first trouble, if there is one. */
hark_status hark_ridge_conclude(hark_context *context, const hark_attention_call *run, const hark_ridge_record *records, bool reporting);
/* The same for one sequence in one item, with a record per head. */
hark_status hark_ridge_conclude_heads(hark_context *context, hark_type type, const hark_ridge_record *records, int64_t heads,
                                      hark_attention_report *report);

/* Backward work is divided into slices of sequences times key heads, by sizes alone. Gradients of parameters that heads or sequences share
 * are summed slice by slice: partial sums of dridge, dsigma and dlog_kernel, [slices][heads][2 + distances] doubles. */
int64_t hark_ridge_slices(const hark_attention_desc *desc);
int64_t hark_ridge_distances(const hark_attention_desc *desc);
static inline int64_t hark_ridge_partial(const hark_attention_desc *desc) { return 2 + hark_ridge_distances(desc); }
hark_status hark_ridge_partials_bytes(hark_context *context, const hark_attention_desc *desc, size_t *out);
/* Sequences [*first, *end) of a slice. */
void hark_ridge_slice(const hark_attention_call *run, int64_t slice, int64_t *first, int64_t *end);
/* Adds the partial sums to dridge, dsigma and dlog_kernel if they are requested. */
void hark_ridge_collect(const hark_attention_call *run, const double *partials);

#endif
