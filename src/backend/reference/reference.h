/* reference.h - what the reference backend offers to others. */
#ifndef HARK_BACKEND_REFERENCE_REFERENCE_H
#define HARK_BACKEND_REFERENCE_REFERENCE_H

#include "backend/backend.h"

/* Attention by its definition, for f32 and f64, complete for every descriptor; also what other backends on host memory fall back to. */
#define HARK_REFERENCE_ALGORITHMS 3
extern const hark_attention_algorithm *const hark_reference_attention[HARK_REFERENCE_ALGORITHMS + 1]; /* ended by NULL */
extern const hark_attention_algorithm hark_reference_dense, hark_reference_hierarchical, hark_reference_kernel_ridge;

#endif
