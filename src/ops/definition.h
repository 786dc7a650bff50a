/* definition.h - common parts of the portable definitions of the operators.
 *
 * A definition runs on host memory with f32 or f64 storage and always computes in double: faster kernels are compared with it. The
 * accessors below test the storage type, which is the same for a whole loop, so the compiler hoists the test. Loops are cut into ranges
 * whose bounds depend on the sizes alone: the result has the same bits for every number of threads.
 */
#ifndef HARK_OPS_DEFINITION_H
#define HARK_OPS_DEFINITION_H

#include <hark/operators.h>

#include <math.h>

#include "core/core.h"

/* Number of partial sums (double vectors of the row's length) that a kernel may keep while it sums over rows in a fixed partition. */
#define HARK_DEFINITION_PARTIALS 64

/* Elements of one piece of parallel work in element-wise operators. */
#define HARK_DEFINITION_GRAIN 4096

/* The numbers of an f32 or f64 tensor; `add`: a gradient that is accumulated. */
typedef struct hark_numbers {
  void *data;
  bool wide; /* f64 */
  bool add;
} hark_numbers;

static inline hark_numbers hark_numbers_of(const hark_tensor *tensor) {
  const hark_numbers numbers = {.data = tensor->data, .wide = tensor->type == HARK_F64, .add = false};
  return numbers;
}

static inline double hark_get(hark_numbers numbers, int64_t i) {
  return numbers.wide ? ((const double *)numbers.data)[i] : (double)((const float *)numbers.data)[i];
}

/* numbers[i] <- value */
static inline void hark_put(hark_numbers numbers, int64_t i, double value) {
  if (numbers.wide) {
    ((double *)numbers.data)[i] = value;
  } else {
    ((float *)numbers.data)[i] = (float)value;
  }
}

/* numbers[i] <- value, or numbers[i] + value for an accumulated gradient */
static inline void hark_give(hark_numbers numbers, int64_t i, double value) {
  hark_put(numbers, i, numbers.add ? hark_get(numbers, i) + value : value);
}

/* A part of a row in double, for sums whose terms are rows: the rows are then read in the order of memory. */
#define HARK_BLOCK 64
typedef struct hark_block {
  double sum[HARK_BLOCK];
} hark_block;

/* sum[d] += factor x[first + d], d < count */
static inline void hark_block_add(hark_block *block, int64_t count, double factor, hark_numbers x, int64_t first) {
  if (x.wide) {
    const double *from = (const double *)x.data + first;
    for (int64_t d = 0; d < count; d++) block->sum[d] += factor * from[d];
  } else {
    const float *from = (const float *)x.data + first;
    for (int64_t d = 0; d < count; d++) block->sum[d] += factor * (double)from[d];
  }
}

/* numbers[first + d] <- sum[d], or += sum[d] for an accumulated gradient; d < count */
static inline void hark_block_give(const hark_block *block, int64_t count, hark_numbers numbers, int64_t first) {
  if (numbers.wide) {
    double *to = (double *)numbers.data + first;
    for (int64_t d = 0; d < count; d++) to[d] = numbers.add ? to[d] + block->sum[d] : block->sum[d];
  } else {
    float *to = (float *)numbers.data + first;
    for (int64_t d = 0; d < count; d++) to[d] = (float)(numbers.add ? (double)to[d] + block->sum[d] : block->sum[d]);
  }
}

/* The same numbers from element `first` on; none stay none. */
static inline hark_numbers hark_numbers_from(hark_numbers numbers, int64_t first) {
  if (numbers.data == NULL) return numbers;
  numbers.data = numbers.wide ? (void *)((double *)numbers.data + first) : (void *)((float *)numbers.data + first);
  return numbers;
}

static inline bool hark_present(const hark_tensor *tensor) { return tensor->type != HARK_NONE; }

static inline bool hark_has_input(const hark_tensor *inputs, int input_count, int i) { return i < input_count && hark_present(&inputs[i]); }

/* The gradient of input i that the backward writes; data is NULL when it is not requested. */
static inline hark_numbers hark_gradient_of(const hark_call *call, int i) {
  hark_numbers numbers = hark_numbers_of(&call->input_gradients[i]);
  if (!hark_present(&call->input_gradients[i])) numbers.data = NULL;
  numbers.add = ((call->accumulate >> i) & 1u) != 0;
  return numbers;
}

/* The extent of the last dimension, D. */
static inline int64_t hark_row_length(const hark_tensor *tensor) { return tensor->shape[tensor->rank - 1]; }

/* The product of all the other extents, N. */
static inline int64_t hark_row_count(const hark_tensor *tensor) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < tensor->rank; i++) rows *= tensor->shape[i];
  return rows;
}

/* The requirements on an input. type: HARK_F32 means any floating-point type, the same for all inputs of the call. */
typedef struct hark_input_rule {
  const char *name;
  hark_type type;
  int rank_minimum, rank_maximum;
} hark_input_rule;

/* Checks attributes (present where the operator has some), number, presence, type, rank and contiguity of the inputs against rules[0 ..
 * input_maximum). Errors: HARK_INVALID_ARGUMENT, HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_inputs(hark_context *context, const hark_operator *op, const hark_input_rule *rules,
                                              const void *attributes, const hark_tensor *inputs, int input_count);

/* Refuses `tensor`, called `name`, unless it is [length]. Errors: HARK_SHAPE_MISMATCH; the message includes `origin`, where the length
 * comes from. */
HARK_MUST_CHECK hark_status hark_check_vector(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor,
                                              int64_t length, const char *origin);

/* Refuses `tensor`, called `name`, unless it has this shape. Errors: HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_shape(hark_context *context, const hark_operator *op, const char *name, const hark_tensor *tensor,
                                             int rank, const int64_t *expected);

/* Refuses the new rows of a decoder, with query [1, rows, heads * d], key [1, rows, key_heads * d] and value [1, rows, key_heads * dv],
 * unless they have such shapes. Errors: HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_decoder_rows(hark_context *context, const hark_operator *op, const hark_tensor *query,
                                                    const hark_tensor *key, const hark_tensor *value, int64_t heads, int64_t key_heads);

/* Refuses two inputs of different shapes. Errors: HARK_SHAPE_MISMATCH. */
HARK_MUST_CHECK hark_status hark_check_same_shape(hark_context *context, const hark_operator *op, const char *name_a, const hark_tensor *a,
                                                  const char *name_b, const hark_tensor *b);

/* Refuses ids i32 outside [0, vocabulary). Errors: HARK_INVALID_ARGUMENT. */
HARK_MUST_CHECK hark_status hark_check_ids(hark_context *context, const hark_operator *op, const hark_tensor *ids, int64_t vocabulary);

/* Bytes of HARK_DEFINITION_PARTIALS vectors of `length` doubles. Errors: HARK_TOO_LARGE. */
HARK_MUST_CHECK hark_status hark_partials_bytes(hark_context *context, int64_t length, size_t *out);

/* Runs body on disjoint ranges [first, last) that cover [0, count), each of `grain` numbers but the last, spread over the threads. */
typedef void hark_range_body(const hark_call *call, int64_t first, int64_t last);
void hark_range_for(hark_context *context, const hark_call *call, int64_t count, int64_t grain, hark_range_body *body);
/* The same for bodies that do little more than copy, with the grain of hark_row_grain(). Small amounts of work stay on the calling
 * thread. */
void hark_copy_range_for(hark_context *context, const hark_call *call, int64_t count, int64_t grain, hark_range_body *body);

/* The grain for rows that cost `per_row` operations each: about HARK_DEFINITION_GRAIN operations per piece. */
static inline int64_t hark_row_grain(int64_t per_row) { return hark_max(1, HARK_DEFINITION_GRAIN / hark_max(1, per_row)); }

/* True when the gradient of output 0 is absent, which means zero. The function has then zeroed all gradients that are not accumulated. */
bool hark_gradient_is_absent(const hark_call *call);

/* C[m,n] = op(A)[m,k] op(B)[k,n] + 1 bias^T for every matrix of a batch, rows contiguous, sums in double. */
typedef struct hark_definition_product {
  bool transpose_a, transpose_b;
  int64_t batch, m, n, k;
  hark_numbers a, b, c; /* c.add: added to the present values */
  hark_numbers bias;    /* [n]; data NULL: none */
} hark_definition_product;
void hark_product(hark_context *context, const hark_definition_product *product);

#endif
