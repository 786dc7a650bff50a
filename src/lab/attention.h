/* attention.h - one head of hark's own attention on plain arrays in float64, for experiments. */
#ifndef HARK_LAB_ATTENTION_H
#define HARK_LAB_ATTENTION_H

#include <hark/attention.h>

#include "lab/lab.h"

/* Arrays of L rows. */
typedef struct hark_lab_head {
  int64_t length, head_dim, value_dim;
  const double *query, *key; /* [L, head_dim] */
  const double *value;       /* [L, value_dim] */
  const double *log_kernel;  /* [L], log G at distances 0 .. L - 1; NULL: none */
  const uint8_t *mask;       /* [L, L], 0 hides; NULL: none */
} hark_lab_head;

/* out [L, value_dim]. `choice` says structure, kernel and the rest; type and extents are the head's. Errors: those of attention. */
HARK_MUST_CHECK hark_status hark_lab_attend(hark_context *context, const hark_attention_desc *choice, const hark_lab_head *head,
                                            double *out);

#endif
