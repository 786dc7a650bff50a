/* operator_case.h - cases of hark bench operator: a record of the table of operators and its inputs.
 *
 *     rotary:positions,x64              a sample of the record, every extent times 64
 *     softplus:odd,257=1048576          a sample, with another extent in every place where it has 257
 *     linear:M4096,N512,K512,bias       extents by letter, for some records (the table in operator_case.c)
 *
 * Every record has samples, which its tests run, so every operator of the table can be measured.
 */
#ifndef HARK_CLI_BENCH_OPERATOR_CASE_H
#define HARK_CLI_BENCH_OPERATOR_CASE_H

#include <hark/operators.h>

#include "core/core.h"

typedef union hark_operator_case_attributes {
  hark_matmul_attributes matmul;
  hark_norm_attributes norm;
  hark_gelu_attributes gelu;
  hark_dropout_attributes dropout;
  hark_cross_entropy_attributes cross_entropy;
  hark_rotary_attributes rotary;
  hark_adamw_attributes adamw;
  hark_adafactor_attributes adafactor;
  hark_scale_attributes scale;
  hark_positional_attributes positional;
} hark_operator_case_attributes;

typedef struct hark_operator_case {
  const hark_operator *op;
  const void *attributes; /* the sample's, or own below */
  hark_sample_input inputs[HARK_MAX_INPUTS];
  hark_operator_case_attributes own;
  char expression[48]; /* of own.positional */
} hark_operator_case;

/* Reads a case. *out must not be moved afterwards: attributes point into it. Errors: HARK_INVALID_ARGUMENT, with what was expected. */
HARK_MUST_CHECK hark_status hark_operator_case_read(hark_context *context, const char *text, hark_operator_case *out);

/* "NAME:SAMPLE" of a record's largest sample, for hark bench operator all. */
#define HARK_OPERATOR_CASE_BYTES 128
const char *hark_operator_case_largest(const hark_operator *op, char text[HARK_OPERATOR_CASE_BYTES]);

/* Makes the tensors of a call: inputs filled, results, what is saved between forward and backward, gradients where there is a backward,
 * workspace. `workspace` owns the memory of the last one. The caller closes the call also after a failure. Errors: those of infer,
 * HARK_OUT_OF_MEMORY. */
HARK_MUST_CHECK hark_status hark_operator_call_open(hark_context *context, const hark_operator_case *c, hark_call *call,
                                                    hark_tensor *workspace);
void hark_operator_call_close(hark_context *context, hark_call *call, hark_tensor *workspace);

#endif
