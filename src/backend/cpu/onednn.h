/* onednn.h - a piece of a large product by oneDNN, if hark was built with it. */
#ifndef HARK_BACKEND_CPU_ONEDNN_H
#define HARK_BACKEND_CPU_ONEDNN_H

#include "backend/cpu/cpu.h"

/* Computes the product on the calling thread alone. False: oneDNN did not compute it (absent, failed, slower for such a product), and the
 * caller must compute it as usual. */
bool hark_cpu_onednn_product(const hark_cpu_isa *isa, const hark_cpu_product *product);

/* True if oneDNN computes the product, unless it fails. */
bool hark_cpu_onednn_serves(const hark_cpu_isa *isa, const hark_cpu_product *product);

/* About how many bytes of the process oneDNN uses after `threads` threads have computed products of that many operations; 0 if it is not
 * used for them. */
size_t hark_cpu_onednn_bytes(const hark_cpu_isa *isa, double operations, int threads);

#endif
