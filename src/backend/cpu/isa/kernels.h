/* kernels.h - what the files of one compilation of isa/ give to its table. */
#ifndef HARK_BACKEND_CPU_ISA_KERNELS_H
#define HARK_BACKEND_CPU_ISA_KERNELS_H

#include "backend/cpu/cpu.h"

void HARK_ISA(hark_cpu_product)(const hark_cpu_product *product, void *scratch);
size_t HARK_ISA(hark_cpu_product_scratch_bytes)(void);
extern const int HARK_ISA(hark_cpu_product_rows), HARK_ISA(hark_cpu_product_columns); /* of the register tile */
void HARK_ISA(hark_cpu_few_rows)(const hark_cpu_product *product);
double HARK_ISA(hark_cpu_peak_operations)(int64_t repetitions);
double HARK_ISA(hark_cpu_read_memory)(const float *data, int64_t count);

#endif
