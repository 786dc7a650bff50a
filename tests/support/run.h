/* run.h - one sample of one operator record, run forward and backward on some context, with everything that a kernel must not do watched.
 *
 * Every tensor lies between sentinels; outputs, gradients and workspace hold NaN beforehand; inputs must come out unchanged; the backward
 * sees only the data of the inputs and outputs that the record names. A breach fails the test and prints the string that reruns the case.
 */
#ifndef HARK_TESTS_SUPPORT_RUN_H
#define HARK_TESTS_SUPPORT_RUN_H

#include <hark/hark.h>

typedef enum test_role { TEST_INPUT, TEST_OUTPUT, TEST_SAVED, TEST_OUTPUT_GRADIENT, TEST_INPUT_GRADIENT, TEST_ROLES } test_role;

/* Memory of the backend: sentinel, bytes, sentinel. */
typedef struct test_block {
  hark_tensor memory; /* u8; owned */
  size_t front, bytes;
} test_block;

typedef struct test_run {
  hark_context *context;
  const hark_operator *op;
  const hark_sample *sample;
  const char *rerun; /* printed by a failure; may be NULL */
  hark_call call;    /* all tensors, with data */
  hark_inferred inferred;
  test_block blocks[TEST_ROLES][HARK_MAX_INPUTS];
  unsigned requested; /* bit i: the backward computes the gradient of input i */
  bool may_refuse;    /* a kernel that refuses its numbers is no failure: */
  bool refused;       /* it did so, in any run so far */
} test_run;

typedef struct test_run_options {
  hark_type type;  /* HARK_F32 or HARK_F64: what HARK_F32 in the sample stands for */
  uint32_t draw;   /* which random inputs */
  bool misaligned; /* tensors are aligned to their element only */
  const char *rerun;
} test_run_options;

/* Makes the sample's tensors, random inputs and random output gradients included. The same draw gives the same numbers, exact in f32, for
 * every context and type. */
void test_run_open(test_run *run, hark_context *context, const hark_operator *op, const hark_sample *sample,
                   const test_run_options *options);
void test_run_close(test_run *run);

void test_run_forward(test_run *run);
/* Needs a forward. Bit i of `accumulate`: the gradient of input i is added to what test_run_write() put there. */
void test_run_backward(test_run *run, unsigned accumulate);
/* Output 0 in the memory of input i. */
void test_run_forward_in_place(test_run *run, int i);
/* The gradient of input i in the memory of that input; read it there. */
void test_run_backward_in_place(test_run *run, int i);

/* The tensor of a role, which may be absent. */
const hark_tensor *test_run_tensor(const test_run *run, test_role role, int i);
int64_t test_run_count(const test_run *run, test_role role, int i);
/* All numbers of a tensor, whatever its type, as doubles; checks its sentinels. The caller frees them. */
double *test_run_read(test_run *run, test_role role, int i);
void test_run_write(test_run *run, test_role role, int i, const double *values);

/* uniform numbers in [low, high], exact in f32, of stream `draw`. */
void test_random(double *out, int64_t count, double low, double high, uint32_t draw, uint32_t purpose);

/* Fails the test after printing the message and the string that reruns the case. */
void test_run_fail(const test_run *run, const char *format, ...) HARK_PRINTF(2, 3);

#endif
