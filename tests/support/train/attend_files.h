/* attend_files.h - problems of attention as files for hark attend, its results read back, and a context of the reference backend beside
 * them. Files lie in the working folder, with the process in their names.
 */
#ifndef HARK_TESTS_SUPPORT_TRAIN_ATTEND_FILES_H
#define HARK_TESTS_SUPPORT_TRAIN_ATTEND_FILES_H

#include "io/safetensors.h"
#include "support/attention_run.h"

#define ATTEND_OUTPUT_BYTES 8192
#define ATTEND_NAME_BYTES 64
#define ATTEND_OUTPUTS 10

typedef struct attend_name {
  attention_array array;
  const char *name;
} attend_name;

/* The results that a file may have; the first five are out, log_sum_exp, dq, dk and dv. */
extern const attend_name attend_outputs[ATTEND_OUTPUTS];
extern hark_context *attend_context;
extern char attend_input[ATTEND_NAME_BYTES], attend_output[ATTEND_NAME_BYTES];

/* Setup and teardown of a group. */
int attend_open(void **state);
int attend_close(void **state);

/* Runs hark attend with the two files and `words`; what it prints goes to `output`. Returns the exit code. */
int attend(const char *words, char output[ATTEND_OUTPUT_BYTES]);

void attend_write_problem(hark_type type, const attention_problem *p);

/* Writes q, k and v of `queries` and 8 rows, and further tensors of ones: "mask U8 1 2 8 8", several divided by ";". */
void attend_write_extra(int64_t queries, const char *extra);

/* A result of the output file; its type must be `type`. */
hark_tensor attend_load(const hark_safetensors *file, const char *name, hark_type type);
double attend_number(const hark_tensor *tensor, int64_t i);

/* out, log_sum_exp and the gradients of q, k and v, in f64. */
void attend_compare_first_results(const hark_safetensors *file, const attention_results *r, double bound, const char *words);

#endif
