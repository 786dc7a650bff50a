/* kernel_ridge_case.h - problems of kernel ridge (CME) attention: cases as strings that can be run again, their numbers, the definition by
 * direct elimination, and runs on every machine.
 *
 *     cme:B2,H4,K2,L17,S19,D5,V3,causal,rbf,kernel
 *
 * B batch, H heads, K key heads, L queries, S keys, D head_dim, V value_dim, then words: causal, rbf, unit, bound (1, keys scaled to fit),
 * kernel (a table of log G per head), shared (one for all heads), heads (a ridge, and with rbf a sigma, per head, given in the call),
 * learned (one of each for all heads), power (lambda = c L^0.75), mask (by key), perhead (the mask differs by head), lengths, ragged,
 * segments, offset=N, layout=0|1, accumulate, ridge=X, equal (every key twice), far (queries and keys a
 * thousand sigmas from the origin), roomy (a plan for more), dvariance, determinant, quadratic (gradients by the variance, by the
 * log-determinant and by the quadratic form of the values), noise (of each key), uneven (noise of 1e-3 to 1e3), plain (a forward of out
 * alone, and a backward that may fail), iterate (conjugate gradients), tolerance=X, iterations=N (of them), seed=N, threads=N.
 */
#ifndef HARK_TESTS_ATTENTION_KERNEL_RIDGE_CASE_H
#define HARK_TESTS_ATTENTION_KERNEL_RIDGE_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/attention_run.h"

typedef enum ridge_array {
  RIDGE_QUERY,
  RIDGE_KEY,
  RIDGE_VALUE,
  RIDGE_LOG_KERNEL,
  RIDGE_RIDGE,
  RIDGE_SIGMA,
  RIDGE_NOISE,
  RIDGE_DOUT,
  RIDGE_DVARIANCE,
  RIDGE_DLOG_DETERMINANT,
  RIDGE_DQUADRATIC,
  RIDGE_OUT, /* results from here on */
  RIDGE_VARIANCE,
  RIDGE_LOG_DETERMINANT,
  RIDGE_QUADRATIC,
  RIDGE_DQUERY,
  RIDGE_DKEY,
  RIDGE_DVALUE,
  RIDGE_DLOG_KERNEL,
  RIDGE_DRIDGE,
  RIDGE_DSIGMA,
  RIDGE_DNOISE,
  RIDGE_ARRAYS
} ridge_array;

extern const char *const ridge_array_names[RIDGE_ARRAYS];

typedef struct ridge_problem {
  char text[ATTENTION_CASE_BYTES];
  int64_t batch, heads, key_heads, queries, keys, head_dim, value_dim, offset, layout, seed, threads, distances, sequences, iterations;
  bool causal, rbf, unit, bound, kernel, shared, per_head, learned, power, mask, mask_heads, lengths, ragged, segments, has_offset,
      accumulate, equal, roomy, far, dvariance, determinant, quadratic, noise, plain, uneven, iterate;
  double ridge, sigma, scale, tolerance;
  double *array[RIDGE_ARRAYS]; /* inputs, NULL where absent; all of them f32 numbers */
  int64_t count[RIDGE_ARRAYS];
  uint8_t *hidden; /* [B, H or 1, 1, Lk], 0 hides */
  int64_t key_lengths[8], offsets[8], query_offsets[8];
  int64_t *ids;
} ridge_problem;

void ridge_problem_make(const char *text, ridge_problem *out);
void ridge_problem_free(ridge_problem *problem);

/* Results of one run; `report` of its forward. */
typedef struct ridge_results {
  double *array[RIDGE_ARRAYS];
  hark_attention_report report;
  size_t workspace[2],
      touched[2];     /* of forward and backward: bytes that the plan asks for, and those of them, in lines of a cache, written to */
  hark_status status; /* of the forward, or of the backward after it, with its message */
  char message[512];
} ridge_results;

hark_attention_desc ridge_problem_desc(const ridge_problem *problem, hark_type type);
/* Forward and backward; without a backward after a failure. False when the machine is not there. */
bool ridge_run_on(const attention_machine *machine, const ridge_problem *problem, ridge_results *out);
void ridge_results_free(ridge_results *results);
/* Runs the problem with one thread, and with each of these numbers: results and gradients must be the same bits. */
void ridge_assert_same_bits(const attention_machine *machine, ridge_problem *problem, size_t count, const int64_t *threads);

/* out and the statistics of rows from the definition: for every query the system of the keys that it sees, by elimination with pivoting.
 * bound: how far a result may be away in units of the roundoff. */
typedef struct ridge_expected {
  double *out, *variance, *log_determinant, *quadratic, *out_bound, *variance_bound, *log_determinant_bound, *quadratic_bound;
} ridge_expected;
void ridge_expected_make(const ridge_problem *problem, ridge_expected *out);
/* The same of `count` rows of every head alone. */
void ridge_expected_rows(const ridge_problem *problem, int64_t count, const int64_t *rows, ridge_expected *out);
void ridge_expected_free(ridge_expected *expected);

/* How many numbers an array has in this problem, also of results. */
int64_t ridge_count_of(const ridge_problem *problem, ridge_array array);
/* The input whose gradient a result is. */
ridge_array ridge_input_of(ridge_array gradient);

/* What a gradient holds before a run with "accumulate". */
double ridge_before(int64_t i);

#endif
