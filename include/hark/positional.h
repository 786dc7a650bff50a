/* positional.h - positional kernels: G, a function of the token distance, written as an expression, with learned parameters.
 *
 *     attention weight of key i for query n  ~  G(|n - i|) exp(scale q.k),      for instance G = bank[8](decay*periodic)
 *
 * An expression with left(...) or right(...) has a direction. Its G is a function of d = n - i: of the parts outside of right(...) for keys
 * up to the query, d >= 0, and of the parts outside of left(...) for keys after it, d < 0. For instance, left(decay)*right(rbf) is decay
 * for d >= 0, and rbf for d < 0. Where no part is left, G is 1.
 *
 * An expression is parsed once and is then immutable. Its parameters are a caller-owned vector of doubles, one for every number of its
 * kernels, learned or not, in the form in which they are trained: an unconstrained number whose transform (mostly the exponential) is the
 * natural value, a positive number (the weights of mlp are their own natural values, and may be negative or 0). Order: as the parameters
 * occur in the expression, all values of one before the next (all sigma2 of a bank, then all its l). G enters as its logarithm, which is
 * evaluated in double with sums as log-sum-exp. Grammar and mathematics: docs/mathematics/positional.md.
 */
#ifndef HARK_POSITIONAL_H
#define HARK_POSITIONAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits. An expression beyond a limit is refused with the column at which it exceeds it. */
#define HARK_POSITIONAL_TEXT_BYTES 1048576   /* length of an expression */
#define HARK_POSITIONAL_DEPTH 32             /* parentheses and banks inside each other */
#define HARK_POSITIONAL_KERNELS 64           /* kernels written down */
#define HARK_POSITIONAL_BANK 1024            /* components of a bank */
#define HARK_POSITIONAL_PARAMETERS 4096      /* learned numbers */
#define HARK_POSITIONAL_COMPONENTS 4096      /* kernels with every bank written out */
#define HARK_POSITIONAL_SMALLEST_VALUE 1e-60 /* natural values: between these two every logarithm is finite, or -infinity where G is 0 */
#define HARK_POSITIONAL_LARGEST_VALUE 1e60
#define HARK_POSITIONAL_LARGEST_SIGNED                                                                                                     \
  1e30 /* of the weights of mlp, which are from minus this to this, and stored as they are, in f32 too */
#define HARK_POSITIONAL_LARGEST_DISTANCE 9007199254740992.0 /* 2^53 */

/* Made by hark_positional_create() or _place(). */
typedef struct hark_positional hark_positional;

/* Parses an expression. *out is the caller's, to be given to hark_positional_destroy() with a context of the same allocator; NULL after a
 * failure. Errors: HARK_INVALID_ARGUMENT with the column (from 1, in bytes) and what was expected; HARK_OUT_OF_MEMORY. */
HARK_API HARK_MUST_CHECK hark_status hark_positional_create(hark_context *context, const char *text, hark_positional **out);
HARK_API void hark_positional_destroy(hark_context *context, hark_positional **positional);

/* The same in caller-owned memory, for instance on the stack: aligned to 16. Allocates nothing, needs no destroy; *out points into
 * `memory`. HARK_POSITIONAL_PLACE_BYTES hold 16 parts (kernels, sums, products, banks) and 128 parameters. Errors: those of create;
 * HARK_TOO_LARGE if it does not fit. */
#define HARK_POSITIONAL_PLACE_BYTES 3072
HARK_API HARK_MUST_CHECK hark_status hark_positional_place(hark_context *context, const char *text, void *memory, size_t bytes,
                                                           const hark_positional **out);

/* The number of learned and fixed numbers: the length of every `parameters` below. */
HARK_API int64_t hark_positional_parameter_count(const hark_positional *positional);

/* One named parameter of one kernel of the expression. */
typedef struct hark_positional_parameter {
  const char *kernel; /* "decay"; static strings */
  const char *name;   /* "l" */
  int kernel_number;  /* from 0, in the order of the text */
  int column;         /* of the kernel in the text that was parsed */
  int64_t first;      /* its values are numbers first .. first + count - 1 */
  int64_t count;      /* values of one component times the number of components that the banks around it make */
} hark_positional_parameter;

/* Whether number `number` of the parameters is learned. Not learned are those that the text fixes (l=12!, or a number as a factor), and the
 * further places of a shared value (the second l of decay(l=3@a)*rbf(l=@a)): what is in `parameters` there is not read, and the gradient is
 * 0. */
HARK_API bool hark_positional_is_learned(const hark_positional *positional, int64_t number);

/* The number of named parameters, and number `index` of them. */
HARK_API int hark_positional_named_count(const hark_positional *positional);
HARK_API hark_positional_parameter hark_positional_named(const hark_positional *positional, int index);

/* What initial values depend on. Zero it, set struct_size, fill what is known. */
typedef struct hark_positional_start {
  size_t struct_size;
  int64_t length; /* L, the tokens of a context; 0: 256 */
  int64_t heads;  /* H, heads with separate parameters; 0: 1, shared by all heads */
  int64_t head;   /* which of them, [0, H) */
} hark_positional_start;

/* parameters <- values given in the expression; else sigma2 = 1, alpha near 1 and different in every component, length scales geometric
 * from 2 to 2 L, periods from 3 to L, lags from 1 to L / 2, slopes 2^(-8 j / S), spread over S = H times components, component c of head h
 * being number c H + h. Nothing is random. Errors: HARK_INVALID_ARGUMENT (struct_size, a head outside [0, H), a negative length),
 * HARK_UNSUPPORTED (fields of a newer hark are set). */
HARK_API HARK_MUST_CHECK hark_status hark_positional_initial(hark_context *context, const hark_positional *positional,
                                                             const hark_positional_start *start, double *parameters);

/* Between parameters as trained and natural values (sigma2, l, tau, ...); both [parameter_count], and may be the same memory. Here and
 * below, vectors that overlap otherwise are HARK_INVALID_ARGUMENT.
 * Errors: HARK_NOT_FINITE where a natural value is not a number from SMALLEST_VALUE to LARGEST_VALUE (a weight of mlp: from
 * -LARGEST_SIGNED to LARGEST_SIGNED), with its name and place. */
HARK_API HARK_MUST_CHECK hark_status hark_positional_natural(hark_context *context, const hark_positional *positional,
                                                             const double *parameters, double *natural);
HARK_API HARK_MUST_CHECK hark_status hark_positional_raw(hark_context *context, const hark_positional *positional, const double *natural,
                                                         double *parameters);

/* gradient <- the gradient by natural values, from the one by parameters; both [parameter_count], and may be the same memory. */
HARK_API HARK_MUST_CHECK hark_status hark_positional_natural_gradient(hark_context *context, const hark_positional *positional,
                                                                      const double *parameters, const double *raw_gradient,
                                                                      double *gradient);

/* Whether the expression has a direction: left(...) or right(...). *right (may be NULL) <- the column of the first right(...), 0 if there
 * is none. Causal attention has no use for right(...), since no key is after its query. */
HARK_API bool hark_positional_is_directed(const hark_positional *positional, int *right);

/* log_values[i] <- log G(distances[i]), -infinity where G is 0. Distances are in [0, LARGEST_DISTANCE], or with a direction in
 * [-LARGEST_DISTANCE, LARGEST_DISTANCE]: n - i, below 0 for keys after the query. They need not be whole; the two may be the same memory.
 * Errors: HARK_INVALID_ARGUMENT for other distances, HARK_NOT_FINITE for parameters, HARK_OUT_OF_MEMORY for scratch. */
HARK_API HARK_MUST_CHECK hark_status hark_positional_log(hark_context *context, const hark_positional *positional, const double *parameters,
                                                         const double *distances, int64_t count, double *log_values);

/* The terms of the outermost sum; copies of banks and inner sums are separate terms, and a product or a single kernel is one term.
 * log_values[i] <- the logarithm of one of them, -infinity where a term of several is not part of the sum because of its direction. Errors:
 * as log, and HARK_INVALID_ARGUMENT for a term that does not exist. */
HARK_API int64_t hark_positional_term_count(const hark_positional *positional);
HARK_API HARK_MUST_CHECK hark_status hark_positional_term_log(hark_context *context, const hark_positional *positional,
                                                              const double *parameters, int64_t term, const double *distances,
                                                              int64_t count, double *log_values);

/* gradient[p] <- sum over i of weights[i] d log G(distances[i]) / d parameters[p]. Where G is 0 the derivative counts as 0. The gradient
 * must not overlap any input. Errors: as log. */
HARK_API HARK_MUST_CHECK hark_status hark_positional_gradient(hark_context *context, const hark_positional *positional,
                                                              const double *parameters, const double *distances, const double *weights,
                                                              int64_t count, double *gradient);

/* Whether G(|n - i|) is positive definite, so that all its Gram matrices are: true when every kernel in it is, with these parameters (some
 * kernels are for some values only), and it has no direction. When false, *column (may be NULL) is the column of the first kernel that is
 * not, and *reason (may be NULL) is a static string. The result is false for parameters outside their range. */
HARK_API bool hark_positional_is_definite(const hark_positional *positional, const double *parameters, int *column, const char **reason);

/* Writes the expression in its canonical form (own names, no blanks, no needless parentheses), with the values that were given, or with
 * `parameters` (not NULL): all natural values, each as the shortest text that reads back as the same number. Always terminated; returns the
 * length of the whole text. Parsing the text gives an expression that prints the same. Parameters outside their range print as they
 * are ("nan", "inf"), which does not parse. */
HARK_API size_t hark_positional_print(const hark_positional *positional, const double *parameters, char *text, size_t size);

/* The period tau of the same kernel on whole distances with the smallest rate: the one with 1 / tau in (0, pi / 2], of which 1 / tau + k pi
 * and k pi - 1 / tau are aliases. +infinity where the kernel is constant on whole distances. */
HARK_API double hark_positional_canonical_tau(double tau);

/* What an expression can be made of, for help texts and documentation; static strings. index in [0, hark_positional_kernel_count()). */
#define HARK_POSITIONAL_NAMES 3 /* the maximum number of parameters of a kernel */
typedef struct hark_positional_kernel {
  const char *name;                               /* "decay" */
  const char *formula;                            /* "sigma2 exp(-d / l)" */
  const char *definite;                           /* "yes", "no", or when it is positive definite: "for r2 <= 2" */
  const char *text;                               /* one sentence */
  const char *parameters[HARK_POSITIONAL_NAMES];  /* "sigma2", "l"; NULL after the last */
  const char *other_names[HARK_POSITIONAL_NAMES]; /* "length_scale" for l; NULL: none */
  int values[HARK_POSITIONAL_NAMES];              /* of one component; 0: K of a kernel that is written name[K] */
  const char *constant;                           /* a number that must be given and is not learned; NULL: none */
} hark_positional_kernel;
HARK_API int hark_positional_kernel_count(void);
HARK_API hark_positional_kernel hark_positional_kernel_at(int index);

#ifdef __cplusplus
}
#endif
#endif
