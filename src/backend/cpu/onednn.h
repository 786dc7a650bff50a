/* onednn.h - a piece of a large product by oneDNN, where hark was built with it. */
#ifndef HARK_BACKEND_CPU_ONEDNN_H
#define HARK_BACKEND_CPU_ONEDNN_H

#include "backend/cpu/cpu.h"

/* Computes the product on the calling thread alone. False: not by oneDNN (absent, failed, slower for such a product); the caller computes
 * it then, as if nothing had happened. */
bool hark_cpu_onednn_product(const hark_cpu_isa *isa, const hark_cpu_product *product);

/* Whether it computes the product unless it fails. */
bool hark_cpu_onednn_serves(const hark_cpu_isa *isa, const hark_cpu_product *product);

/* About how many bytes of the process it takes once products of that many operations are computed by `threads` threads; 0 when it does not
 * serve for them. */
size_t hark_cpu_onednn_bytes(const hark_cpu_isa *isa, double operations, int threads);

#endif
