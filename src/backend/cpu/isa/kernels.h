/* kernels.h - the kernels of one compilation of isa/, for its table. */
#ifndef HARK_BACKEND_CPU_ISA_KERNELS_H
#define HARK_BACKEND_CPU_ISA_KERNELS_H

#include "backend/cpu/cpu.h"

void HARK_ISA(hark_cpu_product)(const hark_cpu_product *product, void *scratch);
size_t HARK_ISA(hark_cpu_product_scratch_bytes)(void);
extern const int HARK_ISA(hark_cpu_product_rows), HARK_ISA(hark_cpu_product_columns); /* of the register tile */
void HARK_ISA(hark_cpu_few_rows)(const hark_cpu_product *product);
void HARK_ISA(hark_cpu_bf16_product)(const hark_cpu_bf16_product *product, bool dots, void *scratch);
size_t HARK_ISA(hark_cpu_bf16_product_scratch_bytes)(void);
bool HARK_ISA(hark_cpu_has_bf16_dots)(void); /* in isas.c, compiled without this instruction set */
double HARK_ISA(hark_cpu_peak_bf16_operations)(int64_t repetitions);
void HARK_ISA(hark_cpu_few_rows_halves)(const hark_cpu_product *product, hark_type type, const uint16_t *b);
void HARK_ISA(hark_cpu_widen_halves)(hark_type type, const uint16_t *from, int64_t count, float *to);
void HARK_ISA(hark_cpu_product_i8)(const hark_cpu_product_i8 *product);
void HARK_ISA(hark_cpu_product_i8_vnni)(const hark_cpu_product_i8 *product); /* defined with AVX-512 only */
double HARK_ISA(hark_cpu_peak_operations)(int64_t repetitions);
double HARK_ISA(hark_cpu_read_memory)(const float *data, int64_t count);

/* Kernels of the records of these names; NULL in the table if a record's own definition is as fast. */
hark_kernel HARK_ISA(hark_cpu_layer_norm_forward), HARK_ISA(hark_cpu_layer_norm_backward);
hark_kernel HARK_ISA(hark_cpu_rms_norm_forward), HARK_ISA(hark_cpu_rms_norm_backward);
hark_kernel HARK_ISA(hark_cpu_gelu_forward), HARK_ISA(hark_cpu_gelu_backward);
hark_kernel HARK_ISA(hark_cpu_silu_forward), HARK_ISA(hark_cpu_silu_backward);
hark_kernel HARK_ISA(hark_cpu_relu_forward), HARK_ISA(hark_cpu_relu_backward);
hark_kernel HARK_ISA(hark_cpu_gated_silu_forward), HARK_ISA(hark_cpu_gated_silu_backward);
hark_kernel HARK_ISA(hark_cpu_gated_gelu_forward), HARK_ISA(hark_cpu_gated_gelu_backward);
hark_kernel HARK_ISA(hark_cpu_add_forward), HARK_ISA(hark_cpu_add_backward);
hark_kernel HARK_ISA(hark_cpu_dropout_forward), HARK_ISA(hark_cpu_dropout_backward);
hark_kernel HARK_ISA(hark_cpu_cross_entropy_forward), HARK_ISA(hark_cpu_cross_entropy_backward);
hark_kernel HARK_ISA(hark_cpu_rotary_forward), HARK_ISA(hark_cpu_rotary_backward);
hark_kernel HARK_ISA(hark_cpu_sinusoidal_positions_forward), HARK_ISA(hark_cpu_sinusoidal_positions_backward);
hark_kernel HARK_ISA(hark_cpu_position_embedding_forward), HARK_ISA(hark_cpu_position_embedding_backward);
hark_kernel HARK_ISA(hark_cpu_round_bf16_forward);
hark_kernel HARK_ISA(hark_cpu_scale_forward), HARK_ISA(hark_cpu_scale_backward);
hark_kernel HARK_ISA(hark_cpu_hierarchical_decode_forward), HARK_ISA(hark_cpu_kernel_ridge_decode_forward),
    HARK_ISA(hark_cpu_compressed_decode_forward);
hark_kernel HARK_ISA(hark_cpu_embedding_backward), HARK_ISA(hark_cpu_adamw_forward), HARK_ISA(hark_cpu_sum_squares_forward);
hark_kernel HARK_ISA(hark_cpu_adafactor_forward);

#endif
