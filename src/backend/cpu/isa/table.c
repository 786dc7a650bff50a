/* table.c - collects the exports of one compilation of isa/. */
#include "backend/cpu/bf16_products.h"
#include "backend/cpu/isa/kernels.h"
#include "backend/cpu/products.h"
#include "backend/cpu/simd.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

bool HARK_ISA(hark_cpu_has)(void); /* in isas.c, compiled without this instruction set */
extern const hark_attention_algorithm HARK_ISA(hark_cpu_dense), HARK_ISA(hark_cpu_hierarchical), HARK_ISA(hark_cpu_kernel_ridge),
    HARK_ISA(hark_cpu_kernel_ridge_wide), HARK_ISA(hark_cpu_grid), HARK_ISA(hark_cpu_compressed);
extern const hark_cpu_isa HARK_ISA(hark_cpu_isa);

static const hark_backend_kernel kernels[] = {
    {"linear", hark_cpu_linear_forward, hark_cpu_linear_backward},
    {"linear_compact", hark_cpu_linear_compact_forward, NULL},
    {"matmul", hark_cpu_matmul_forward, hark_cpu_matmul_backward},
    {"linear_bf16", hark_cpu_linear_bf16_forward, hark_cpu_linear_bf16_backward},
    {"round_bf16", HARK_ISA(hark_cpu_round_bf16_forward), NULL},
    {"layer_norm", HARK_ISA(hark_cpu_layer_norm_forward), HARK_ISA(hark_cpu_layer_norm_backward)},
    {"rms_norm", HARK_ISA(hark_cpu_rms_norm_forward), HARK_ISA(hark_cpu_rms_norm_backward)},
    {"gelu", HARK_ISA(hark_cpu_gelu_forward), HARK_ISA(hark_cpu_gelu_backward)},
    {"silu", HARK_ISA(hark_cpu_silu_forward), HARK_ISA(hark_cpu_silu_backward)},
    {"relu", HARK_ISA(hark_cpu_relu_forward), HARK_ISA(hark_cpu_relu_backward)},
    {"gated_silu", HARK_ISA(hark_cpu_gated_silu_forward), HARK_ISA(hark_cpu_gated_silu_backward)},
    {"gated_gelu", HARK_ISA(hark_cpu_gated_gelu_forward), HARK_ISA(hark_cpu_gated_gelu_backward)},
    {"add", HARK_ISA(hark_cpu_add_forward), HARK_ISA(hark_cpu_add_backward)},
    {"dropout", HARK_ISA(hark_cpu_dropout_forward), HARK_ISA(hark_cpu_dropout_backward)},
    {"cross_entropy", HARK_ISA(hark_cpu_cross_entropy_forward), HARK_ISA(hark_cpu_cross_entropy_backward)},
    {"rotary", HARK_ISA(hark_cpu_rotary_forward), HARK_ISA(hark_cpu_rotary_backward)},
    {"sinusoidal_positions", HARK_ISA(hark_cpu_sinusoidal_positions_forward), HARK_ISA(hark_cpu_sinusoidal_positions_backward)},
    {"position_embedding", HARK_ISA(hark_cpu_position_embedding_forward), HARK_ISA(hark_cpu_position_embedding_backward)},
    {"scale", HARK_ISA(hark_cpu_scale_forward), HARK_ISA(hark_cpu_scale_backward)},
    {"hierarchical_decode", HARK_ISA(hark_cpu_hierarchical_decode_forward), NULL},
    {"compressed_decode", HARK_ISA(hark_cpu_compressed_decode_forward), NULL},
    {"kernel_ridge_decode", HARK_ISA(hark_cpu_kernel_ridge_decode_forward), NULL},
    {"embedding", NULL, HARK_ISA(hark_cpu_embedding_backward)},
    {"adamw", HARK_ISA(hark_cpu_adamw_forward), NULL},
    {"adafactor", HARK_ISA(hark_cpu_adafactor_forward), NULL},
    {"sum_squares", HARK_ISA(hark_cpu_sum_squares_forward), NULL},
};

static const hark_attention_algorithm *const attention[] = {&HARK_ISA(hark_cpu_dense),
                                                            &HARK_ISA(hark_cpu_hierarchical),
                                                            &HARK_ISA(hark_cpu_grid),
                                                            &HARK_ISA(hark_cpu_compressed),
                                                            &HARK_ISA(hark_cpu_kernel_ridge),
                                                            &HARK_ISA(hark_cpu_kernel_ridge_wide),
                                                            NULL};

const hark_cpu_isa HARK_ISA(hark_cpu_isa) = {
    .name = TEXT(HARK_ISA_NAME),
    .vector_bytes = HARK_LANES * (int)sizeof(float),
    .runs_here = HARK_ISA(hark_cpu_has),
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof kernels[0],
    .attention = attention,
    .product = HARK_ISA(hark_cpu_product),
    .product_scratch_bytes = HARK_ISA(hark_cpu_product_scratch_bytes),
    .product_rows = &HARK_ISA(hark_cpu_product_rows),
    .product_columns = &HARK_ISA(hark_cpu_product_columns),
    .few_rows = HARK_ISA(hark_cpu_few_rows),
    .bf16_product = HARK_ISA(hark_cpu_bf16_product),
    .bf16_product_scratch_bytes = HARK_ISA(hark_cpu_bf16_product_scratch_bytes),
    .has_bf16_dots = HARK_ISA(hark_cpu_has_bf16_dots),
    .peak_bf16_operations = HARK_ISA(hark_cpu_peak_bf16_operations),
    .few_rows_halves = HARK_ISA(hark_cpu_few_rows_halves),
    .widen_halves = HARK_ISA(hark_cpu_widen_halves),
    .product_i8 = HARK_ISA(hark_cpu_product_i8),
    .peak_operations = HARK_ISA(hark_cpu_peak_operations),
    .read_memory = HARK_ISA(hark_cpu_read_memory),
};
