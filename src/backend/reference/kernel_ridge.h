/* kernel_ridge.h - one head of one sequence of kernel ridge attention in double: its factorisation, shared by forward and backward.
 *
 *     M = kappa(K, K) + lambda I + diag(noise) = R R^T,   U = R^-1 V       over the m visible keys of the sequence, in order
 */
#ifndef HARK_BACKEND_REFERENCE_KERNEL_RIDGE_H
#define HARK_BACKEND_REFERENCE_KERNEL_RIDGE_H

#include "backend/reference/dense_entry.h"
#include "backend/ridge_terms.h"

typedef struct ridge_head {
  dense_head at;
  hark_ridge_record *record;
  int64_t system;       /* sequence * heads + head */
  int64_t keys, *place; /* m; position of each among the sequence's keys */
  hark_ridge_parameters is;
  double *added;           /* [m]: lambda and the noise of each key */
  double *key, *value;     /* [m, d] of unit length if requested, [m, dv] */
  double *factor, *solved; /* R [m, m], row by row, zero above the diagonal; U [m, dv] */
  double *rows[6];         /* scratch: [m] each */
  double *query, *sums;    /* scratch: [d], [max(d, dv)] */
} ridge_head;

/* Doubles of one worker's memory, for the forward alone; the backward adds hark_reference_ridge_more(). */
hark_status hark_reference_ridge_doubles(hark_context *context, const hark_attention_desc *desc, size_t *out);

/* Reads and checks, without a factor. `factor`: numbers between the arrays before it and those after. */
bool hark_reference_ridge_read(const hark_attention_call *run, int64_t sequence, int64_t head, int64_t factor, double *memory,
                               hark_ridge_record *record, ridge_head *out);

/* Reads, checks and factorises. False after trouble, which is in the record. */
bool hark_reference_ridge_factorise(const hark_attention_call *run, int64_t sequence, int64_t head, double *memory,
                                    hark_ridge_record *record, ridge_head *out);

/* The query of a row into h->query; false, with a record, if it is not finite. */
bool hark_reference_ridge_query(const ridge_head *h, int64_t row);
/* The number of visible keys that a row sees: the first ones. */
int64_t hark_reference_ridge_seen(const ridge_head *h, int64_t row);
/* log kappa(x, y) - log G: the exponent of the similarity, shifted. */
double hark_reference_ridge_exponent(const ridge_head *h, const double *x, const double *y);
double hark_reference_ridge_log_kernel(const ridge_head *h, int64_t distance);
/* kappa(q, k_i) for the keys that the row sees, into `out`; false, with a record, if one is out of range. */
bool hark_reference_ridge_kernels(const ridge_head *h, int64_t row, int64_t seen, double *out);
/* log kappa(q, q), with G(0), of the row whose query was read; false, with a record, if it is out of range. */
bool hark_reference_ridge_own(const ridge_head *h, int64_t row, double *out);
/* The index of a row in variance and other tensors [B, H, Lq]. */
int64_t hark_reference_ridge_statistic(const ridge_head *h, int64_t row);
/* x <- R^-1 x and x <- R^-T x with the leading n rows and columns of R. */
void hark_reference_ridge_solve(const ridge_head *h, int64_t n, double *x);
void hark_reference_ridge_solve_transposed(const ridge_head *h, int64_t n, double *x);

/* Workspace:  [ records of workers | partial sums, in the backward | doubles of workers ]. */
typedef struct ridge_memory {
  hark_ridge_record *records;
  double *partials, *scratch;
  size_t per_worker; /* doubles */
} ridge_memory;
ridge_memory hark_reference_ridge_memory(hark_context *context, const hark_attention_call *run, bool backward);

/* Gradients of one kernel value: of rows x and y, added to dx and dy; of sigma and log_kernel, to `partial`. */
void hark_reference_ridge_kernel_gradient(const ridge_head *h, double dkernel, const double *x, const double *y, int64_t distance,
                                          double *dx, double *dy, double *partial);
/* Adds the gradient by a given row. If unit rows are requested, `row` is its unit vector. */
void hark_reference_ridge_store_row(const ridge_head *h, const hark_tensor *given, int64_t first, const double *row, const double *gradient,
                                    const hark_tensor *to, int64_t to_first, bool add);
/* Stores dkey and dvalue. `first`: the first head of its key head; the other heads of the group add to its gradients. */
void hark_reference_ridge_store_keys(const ridge_head *h, const double *dkeys, const double *dvalues, bool first);

hark_status hark_reference_ridge_backward_doubles(hark_context *context, const hark_attention_desc *desc, size_t *out);
hark_status hark_reference_ridge_backward(hark_context *context, const hark_attention_call *run);

#endif
