/* check_kernel_ridge.c - normalisation CME in the attention layer: its fields and arguments, and its cost.
 *
 * Every refusal names the field, its value and what was expected. Kernels must be positive definite: exp with a scale above 0 and rbf are.
 * Whether they still are with a table of log G is not known here; if not, the report counts pivots.
 */
#include <inttypes.h>
#include <math.h>

#include "attention/layer.h"
#include "backend/ridge_terms.h"
#include "core/range.h"
#include "io/number.h"

static hark_status refuse_field(hark_context *context, const char *field, const char *reason) {
  return hark_fail(context, HARK_UNSUPPORTED, "attention: %s with normalisation cme: %s", field, reason);
}

/* Refuses fields of CME with another normalisation. */
static hark_status check_foreign(hark_context *context, const hark_attention_desc *desc) {
  const struct {
    const char *name;
    double value;
  } fields[] = {{"ridge", desc->ridge},
                {"ridge_power", desc->ridge_power},
                {"bound", desc->bound},
                {"unit", desc->unit},
                {"has_ridge", desc->has_ridge},
                {"has_sigma", desc->has_sigma},
                {"has_dvariance", (double)desc->has_dvariance},
                {"has_dlog_determinant", (double)desc->has_dlog_determinant},
                {"has_dquadratic", (double)desc->has_dquadratic},
                {"has_noise", (double)desc->has_noise},
                {"solver", (double)desc->solver},
                {"solver_tolerance", desc->solver_tolerance},
                {"solver_iterations", (double)desc->solver_iterations}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].value != 0)
      return hark_fail(context, HARK_UNSUPPORTED, "attention: %s is %s with normalisation %s, expected 0: it belongs to cme",
                       fields[i].name, HARK_PRINTED(fields[i].value), hark_attention_normalisation_name(desc->normalisation));
  return HARK_OK;
}

/* Stick-breaking: keys before a query in their order, and logits that are not shifted, which the distances of rbf would need. */
static hark_status check_sticks(hark_context *context, const hark_attention_desc *desc) {
  HARK_TRY(check_foreign(context, desc));
  if (desc->structure == HARK_STRUCTURE_HIERARCHICAL)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: structure is hierarchical with normalisation stick_breaking, expected dense or window: the keys of a cell "
                     "have an order");
  if (desc->kernel != HARK_KERNEL_EXP)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: kernel is rbf with normalisation stick_breaking, expected exp");
  if (!desc->causal)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: normalisation stick_breaking without causal: a stick is broken from a query to earlier keys, expected "
                     "causal");
  return HARK_OK;
}

/* Fields of 64 bits that are true or false. */
static hark_status check_flags(hark_context *context, const hark_attention_desc *desc) {
  const struct {
    const char *name;
    int64_t value;
  } flags[] = {{"has_dvariance", desc->has_dvariance},
               {"has_dlog_determinant", desc->has_dlog_determinant},
               {"has_dquadratic", desc->has_dquadratic},
               {"has_noise", desc->has_noise}};
  for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
    if (flags[i].value != 0 && flags[i].value != 1)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %" PRId64 ", expected 0 or 1", flags[i].name, flags[i].value);
  return HARK_OK;
}

static hark_status check_ridge(hark_context *context, const hark_attention_desc *desc) {
  if (desc->has_ridge) {
    if (desc->ridge != 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: ridge is %s with has_ridge, expected 0: calls carry ridge",
                       HARK_PRINTED(desc->ridge));
  } else if (!isfinite(desc->ridge) || desc->ridge < 0 || (desc->ridge == 0 && desc->has_noise == 0)) {
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: ridge is %s with normalisation cme, expected a finite number %s",
                     HARK_PRINTED(desc->ridge), desc->has_noise != 0 ? "from 0" : "above 0");
  }
  HARK_TRY(hark_check_range(context, "attention", "ridge", desc->ridge, desc->type, hark_range_of(desc->type)));
  if (!(desc->ridge_power >= 0 && desc->ridge_power <= 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: ridge_power is %s, expected 0 to 1", HARK_PRINTED(desc->ridge_power));
  if (desc->ridge_power != 0 && desc->causal)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: ridge_power is %s and causal is set: a row would know how many keys come after it, expected 0",
                     HARK_PRINTED(desc->ridge_power));
  return HARK_OK;
}

static hark_status check_similarity(hark_context *context, hark_attention_desc *desc) {
  const double limit = hark_ridge_exponent_limit(desc->type);
  if (desc->kernel == HARK_KERNEL_RBF) {
    if (desc->bound == 0) return HARK_OK;
    return hark_fail(context, HARK_UNSUPPORTED, "attention: bound is %s with kernel rbf, expected 0: it belongs to exp",
                     HARK_PRINTED(desc->bound));
  }
  if (desc->has_sigma) return refuse_field(context, "has_sigma and kernel exp", "only kernel rbf has a sigma");
  if (desc->scale < 0)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: scale is %s with normalisation cme, expected above 0: the kernel would not be positive definite",
                     HARK_PRINTED(desc->scale));
  if (!isfinite(desc->bound) || desc->bound < 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: bound is %s, expected a finite number from 0", HARK_PRINTED(desc->bound));
  if (desc->unit && desc->bound != 0 && desc->bound != 1)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: bound is %s with unit, expected 0 or 1: products of unit rows are at most 1",
                     HARK_PRINTED(desc->bound));
  if (desc->unit) desc->bound = 1;
  if (desc->bound * desc->scale > 2 * limit)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: scale %s times bound %s is beyond %s, the range in which ridge and variance can be scaled in %s",
                     HARK_PRINTED(desc->scale), HARK_PRINTED(desc->bound), HARK_PRINTED(2 * limit), hark_type_name(desc->type));
  return HARK_OK;
}

static hark_status refuse_with_solver(hark_context *context, const char *field, const char *reason) {
  return hark_fail(context, HARK_UNSUPPORTED, "attention: %s is set with solver conjugate gradients, expected 0: %s", field, reason);
}

#define SOLVER_TOLERANCE_F32 1e-6
#define SOLVER_TOLERANCE_F64 1e-10
#define SOLVER_ITERATIONS 1000
#define MOST_SOLVER_ITERATIONS ((int64_t)1 << 30)

/* Checks the solver's fields and fills in their defaults. */
static hark_status resolve_solver(hark_context *context, hark_attention_desc *desc) {
  const bool iterates = desc->solver == HARK_SOLVER_CONJUGATE_GRADIENTS;
  if (!iterates && desc->solver != HARK_SOLVER_FACTOR)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: solver is %" PRId64 ", expected one of HARK_SOLVER_*", desc->solver);
  if (!(desc->solver_tolerance >= 0 && desc->solver_tolerance < 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: solver_tolerance is %s, expected 0 or a number above 0 and below 1",
                     HARK_PRINTED(desc->solver_tolerance));
  if (desc->solver_iterations < 0 || desc->solver_iterations > MOST_SOLVER_ITERATIONS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: solver_iterations is %" PRId64 ", expected 0 to %" PRId64,
                     desc->solver_iterations, MOST_SOLVER_ITERATIONS);
  if (!iterates && (desc->solver_tolerance != 0 || desc->solver_iterations != 0))
    return hark_fail(context, HARK_UNSUPPORTED, "attention: %s is set with solver factor, expected 0: it belongs to conjugate gradients",
                     desc->solver_tolerance != 0 ? "solver_tolerance" : "solver_iterations");
  if (!iterates) return HARK_OK;
  if (desc->causal) return refuse_with_solver(context, "causal", "every row would have a separate system");
  if (desc->has_log_kernel) return refuse_with_solver(context, "has_log_kernel", "positional kernels need solver factor");
  if (desc->has_dlog_determinant != 0)
    return refuse_with_solver(context, "has_dlog_determinant", "gradients by the log-determinant need solver factor");
  if (desc->solver_tolerance == 0) desc->solver_tolerance = desc->type == HARK_F64 ? SOLVER_TOLERANCE_F64 : SOLVER_TOLERANCE_F32;
  if (desc->solver_iterations == 0) desc->solver_iterations = SOLVER_ITERATIONS;
  return HARK_OK;
}

hark_status hark_attention_resolve_ridge(hark_context *context, hark_attention_desc *desc) {
  switch (desc->normalisation) {
    case HARK_NORMALISATION_SOFTMAX: return check_foreign(context, desc);
    case HARK_NORMALISATION_CME: break;
    case HARK_NORMALISATION_STICK_BREAKING: return check_sticks(context, desc);
    default:
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: normalisation is %d, expected one of HARK_NORMALISATION_*",
                       (int)desc->normalisation);
  }
  if (desc->structure != HARK_STRUCTURE_DENSE)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: structure is %s with normalisation cme, expected dense",
                     hark_attention_structure_name(desc->structure));
  if (desc->dropout != 0) return refuse_field(context, "dropout", "its weights are not normalised ones, expected 0");
  if (desc->has_bias) return refuse_field(context, "has_bias", "a kernel with a bias is not positive definite, expected has_log_kernel");
  if (desc->has_forget) return refuse_field(context, "has_forget", "a kernel with gates is not symmetric");
  HARK_TRY(check_flags(context, desc));
  HARK_TRY(check_ridge(context, desc));
  HARK_TRY(resolve_solver(context, desc));
  return check_similarity(context, desc);
}

/* A vector [heads] or [1] that calls carry, or its gradient. */
static hark_status check_vector(hark_context *context, const char *name, const hark_tensor *tensor, const hark_attention_desc *desc,
                                int64_t extent) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->type != desc->type)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %s, expected %s", name,
                     tensor->type == HARK_NONE ? "absent" : hark_type_name(tensor->type), hark_type_name(desc->type));
  const bool fits =
      tensor->rank == 1 && (extent > 0 ? tensor->shape[0] == extent : tensor->shape[0] == desc->heads || tensor->shape[0] == 1);
  if (!fits)
    return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: %s has shape %s, expected [%" PRId64 "]%s", name,
                     hark_shape_text(tensor, text, sizeof text), extent > 0 ? extent : desc->heads, extent > 0 ? "" : " or [1]");
  if (!hark_tensor_is_contiguous(tensor))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is strided, expected contiguous", name);
  if (tensor->data == NULL || (uintptr_t)tensor->data % hark_type_bytes(tensor->type) != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is at %p, expected data aligned to its element", name, tensor->data);
  return HARK_OK;
}

/* A number for each query row, [B, H, Lq] contiguous. */
static hark_status check_rows(hark_context *context, const char *name, const hark_tensor *tensor, const hark_attention_desc *desc,
                              const hark_tensor *query) {
  char text[HARK_SHAPE_TEXT_BYTES];
  if (tensor->type != desc->type)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %s, expected %s", name, hark_type_name(tensor->type),
                     hark_type_name(desc->type));
  if (tensor->rank != 3 || tensor->shape[0] != query->shape[0] || tensor->shape[1] != query->shape[1] ||
      tensor->shape[2] != query->shape[2])
    return hark_fail(context, HARK_SHAPE_MISMATCH, "attention: %s has shape %s, expected [%" PRId64 ", %" PRId64 ", %" PRId64 "]", name,
                     hark_shape_text(tensor, text, sizeof text), query->shape[0], query->shape[1], query->shape[2]);
  if (!hark_tensor_is_contiguous(tensor))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is strided, expected contiguous", name);
  if (hark_tensor_count(tensor) > 0 && (tensor->data == NULL || (uintptr_t)tensor->data % hark_type_bytes(tensor->type) != 0))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is at %p, expected data aligned to its element", name, tensor->data);
  return HARK_OK;
}

/* The statistics of rows, and in the backward their gradients. Those in the shape of out are checked with out. */
static hark_status check_statistics(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                    bool backward) {
  const struct {
    const char *name, *gradient_name, *field;
    const hark_tensor *tensor, *gradient;
    int64_t has_gradient;
    bool like_out;
  } rows[] = {{"variance", "dvariance", "has_dvariance", &args->variance, &args->dvariance, desc->has_dvariance, false},
              {"log_determinant", "dlog_determinant", "has_dlog_determinant", &args->log_determinant, &args->dlog_determinant,
               desc->has_dlog_determinant, false},
              {"quadratic", "dquadratic", "has_dquadratic", &args->quadratic, &args->dquadratic, desc->has_dquadratic, true}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const bool given = rows[i].tensor->type != HARK_NONE, has_gradient = backward && rows[i].gradient->type != HARK_NONE;
    if (desc->normalisation != HARK_NORMALISATION_CME && (given || has_gradient))
      return hark_fail(context, HARK_UNSUPPORTED, "attention: %s is given with normalisation %s, which has none",
                       given ? rows[i].name : rows[i].gradient_name, hark_attention_normalisation_name(desc->normalisation));
    if (given && !rows[i].like_out) HARK_TRY(check_rows(context, rows[i].name, rows[i].tensor, desc, &args->query));
    if (!has_gradient) continue;
    if (rows[i].has_gradient == 0)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is given, but the plan was made without %s", rows[i].gradient_name,
                       rows[i].field);
    if (!rows[i].like_out) HARK_TRY(check_rows(context, rows[i].gradient_name, rows[i].gradient, desc, &args->query));
  }
  return HARK_OK;
}

hark_status hark_attention_check_ridge(hark_context *context, const hark_attention_desc *desc, const hark_attention_args *args,
                                       bool backward) {
  const struct {
    const char *name, *field, *gradient_name;
    const hark_tensor *tensor, *gradient;
    bool expected;
  } vectors[] = {{"ridge", "has_ridge", "dridge", &args->ridge, &args->dridge, desc->has_ridge},
                 {"sigma", "has_sigma", "dsigma", &args->sigma, &args->dsigma, desc->has_sigma}};
  for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
    if (!vectors[i].expected) {
      const bool given = vectors[i].tensor->type != HARK_NONE, requested = vectors[i].gradient->type != HARK_NONE;
      if (given || requested)
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %s, but the plan was made without %s",
                         given ? vectors[i].name : vectors[i].gradient_name, given ? "given" : "requested", vectors[i].field);
      continue;
    }
    HARK_TRY(check_vector(context, vectors[i].name, vectors[i].tensor, desc, 0));
    if (backward && vectors[i].gradient->type != HARK_NONE)
      HARK_TRY(check_vector(context, vectors[i].gradient_name, vectors[i].gradient, desc, vectors[i].tensor->shape[0]));
  }
  return check_statistics(context, desc, args, backward);
}

/* Cost with n = Lk, m = Lq, pairs the visible (query, key) pairs, in multiply-adds per head:
 *
 *     forward   Gram n^2 d / 2, factor n^3 / 6, U = R^-1 V n^2 dv / 2, queries' Gram and products pairs (d + dv);
 *               full: R^-T U again n^2 dv / 2; causal: Z = R^-1 kappa(K, Q), p^2 / 2 for a query that sees p keys
 *     backward  the forward without its last product; then
 *               full: dalpha = kappa dY pairs dv, two solves n^2 dv, dM = dV alpha^T n^2 dv / 2
 *               causal: two solves with R^T p^2 per query, dM = - sum of z dB^T p^2
 *               full with dvariance: R^-1 kappa(K, Q), M^-1 kappa(K, Q) and their outer products, m n^2 / 2 each
 *               dlog_determinant: R^-1 and R^-T diag R^-1, n^3 / 6 each
 *               dquadratic: causal p^2 dv per query, full 2 n dv
 *               both: dY products pairs (2 dv), gradients of logits to q and k pairs 2 d and n^2 d */
/* Sums over causal rows of the visible keys, and of their squares: row r sees r + Lk - Lq + 1 keys, limited to 0 .. Lk. */
static void count_causal(const hark_attention_desc *desc, double *seen, double *squares) {
  const int64_t n = desc->key_length, first = n - desc->query_length + 1;
  const double from = (double)hark_max(first, 1), to = (double)n; /* the last row sees all */
  const double ends = to - from + 1;
  *seen = ends * (from + to) / 2;
  *squares = (to * (to + 1) * (2 * to + 1) - (from - 1) * from * (2 * from - 1)) / 6;
}

/* With conjugate gradients every solve counts as one iteration, since their number is not known. */
static double count_iterated(const hark_attention_desc *desc, bool backward) {
  const double n = (double)desc->key_length, m = (double)desc->query_length, d = (double)desc->head_dim,
               dv = desc->value_dim == 0 ? d : (double)desc->value_dim;
  const double solve = n * n * (d / 2 + dv), pairs = m * n * (d + dv), variances = desc->has_dvariance != 0 ? m * n * n : 0;
  const double total = backward ? 2 * solve + 3 * pairs + 2 * n * n * (d + dv) + 2 * variances : solve + pairs;
  return 2 * total * (double)desc->batch * (double)desc->heads;
}

double hark_attention_ridge_operations(const hark_attention_desc *desc, bool backward) {
  if (desc->solver == HARK_SOLVER_CONJUGATE_GRADIENTS) return count_iterated(desc, backward);
  const double n = (double)desc->key_length, m = (double)desc->query_length, d = (double)desc->head_dim,
               dv = desc->value_dim == 0 ? d : (double)desc->value_dim;
  double pairs = n * m, squares = 0;
  if (desc->causal) count_causal(desc, &pairs, &squares);
  const double factor = n * n * d / 2 + n * n * n / 6 + n * n * dv / 2 + pairs * d;
  double total = factor + (desc->causal ? squares / 2 : n * n * dv / 2);
  if (!backward)
    total += pairs * dv;
  else
    total += (desc->causal ? 2 * squares : pairs * dv + 3 * n * n * dv / 2) + 2 * pairs * dv + 2 * pairs * d + n * n * d;
  if (backward && desc->has_dvariance != 0 && !desc->causal) total += 3 * m * n * n / 2;
  if (backward && desc->has_dlog_determinant != 0) total += n * n * n / 3;
  if (backward && desc->has_dquadratic != 0) total += desc->causal ? dv * squares : 2 * n * dv;
  return 2 * total * (double)desc->batch * (double)desc->heads;
}
