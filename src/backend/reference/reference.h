/* reference.h - the attention algorithms of the reference backend. */
#ifndef HARK_BACKEND_REFERENCE_REFERENCE_H
#define HARK_BACKEND_REFERENCE_REFERENCE_H

#include "backend/backend.h"

/* Attention by its definition, for f32 and f64, for every descriptor; other backends with host memory use it for what they lack. */
#define HARK_REFERENCE_ALGORITHMS 7
extern const hark_attention_algorithm *const hark_reference_attention[HARK_REFERENCE_ALGORITHMS + 1]; /* ended by NULL */
extern const hark_attention_algorithm hark_reference_dense, hark_reference_hierarchical, hark_reference_kernel_ridge,
    hark_reference_stick_breaking, hark_reference_contextual, hark_reference_grid, hark_reference_compressed;

#endif
