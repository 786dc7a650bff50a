/* ridge_terms.c - see ridge_terms.h. */
#include "backend/ridge_terms.h"

#include <inttypes.h>
#include <math.h>

#include "core/print_number.h"
#include "core/range.h"

#define PIECES 32 /* of backward work, at least, if there are that many sequences */

static double get(const hark_tensor *tensor, int64_t i) {
  return tensor->type == HARK_F64 ? ((const double *)tensor->data)[i] : (double)((const float *)tensor->data)[i];
}

static void add(const hark_tensor *tensor, int64_t i, double value) {
  if (tensor->type == HARK_F64)
    ((double *)tensor->data)[i] += value;
  else
    ((float *)tensor->data)[i] = (float)((double)((float *)tensor->data)[i] + value);
}

/* An element of a vector [heads] or [1]. */
static int64_t of_head(const hark_tensor *vector, int64_t head) { return vector->shape[0] == 1 ? 0 : head; }

double hark_ridge_slope(const hark_attention_desc *desc, int64_t keys) {
  return desc->ridge_power == 0 ? 1 : pow((double)keys, desc->ridge_power);
}

static double vector_of_head(const hark_tensor *vector, int64_t head) { return get(vector, of_head(vector, head)); }

bool hark_ridge_parameters_make(const hark_ridge_given *given, int64_t system, hark_ridge_record *record, hark_ridge_parameters *out) {
  const double ridge = given->ridge, sigma = given->sigma;
  *out = (hark_ridge_parameters){
      .sigma = sigma, .scale = given->rbf ? 1 / (sigma * sigma) : given->scale, .shift = given->rbf ? 0 : given->scale * given->bound};
  out->lambda = ridge * given->slope * exp(-out->shift);
  const hark_range range = hark_range_of(given->type);
  const bool is_ridge = hark_is_within(range, ridge) || (given->noisy && ridge == 0);
  if (!is_ridge || !(out->lambda <= range.most)) {
    hark_ridge_trouble(record, system, given->noisy ? HARK_RIDGE_BAD_RIDGE_FROM_0 : HARK_RIDGE_BAD_RIDGE, 0,
                       is_ridge ? out->lambda : ridge);
    return false;
  }
  if (given->rbf && !hark_is_within(hark_range_of_sigma(given->type), sigma)) {
    hark_ridge_trouble(record, system, HARK_RIDGE_BAD_SIGMA, 0, sigma);
    return false;
  }
  if (given->log_kernel == NULL) return true;
  out->top = -INFINITY;
  for (int64_t t = 0; t < given->distances; t++) {
    const double value = get(given->log_kernel, given->table_row + t);
    if (!(value <= hark_ridge_exponent_limit(given->type))) {
      hark_ridge_trouble(record, system, HARK_RIDGE_BAD_TABLE, t, value);
      return false;
    }
    out->top = fmax(out->top, value);
  }
  return true;
}

bool hark_ridge_read(const hark_attention_call *run, int64_t head, int64_t keys, int64_t system, hark_ridge_record *record,
                     hark_ridge_parameters *out) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  hark_ridge_given given = {.type = desc->type,
                            .rbf = desc->kernel == HARK_KERNEL_RBF,
                            .noisy = desc->has_noise != 0,
                            .ridge = desc->has_ridge ? vector_of_head(&args->ridge, head) : desc->ridge,
                            .sigma = desc->has_sigma ? vector_of_head(&args->sigma, head) : desc->sigma,
                            .scale = desc->scale,
                            .bound = desc->bound,
                            .slope = hark_ridge_slope(desc, hark_max(keys, 1))};
  if (desc->has_log_kernel) {
    given.log_kernel = &args->log_kernel;
    given.table_row = head * args->log_kernel.stride[0];
    given.distances = hark_min(args->log_kernel.shape[1], hark_ridge_distances(desc));
  }
  return hark_ridge_parameters_make(&given, system, record, out);
}

static int64_t noise_index(const hark_tensor *noise, const hark_attention_sequence *sequence, int64_t head, int64_t key) {
  return sequence->item * noise->stride[0] + head * noise->stride[1] + (sequence->key_row + key) * noise->stride[2];
}

double hark_ridge_noise(const hark_attention_args *args, const hark_attention_sequence *sequence, int64_t head, int64_t key) {
  const hark_tensor *noise = &args->noise;
  return noise->type == HARK_NONE ? 0 : get(noise, noise_index(noise, sequence, head, key));
}

bool hark_ridge_added(const hark_ridge_parameters *is, hark_type type, double noise, int64_t system, int64_t row, hark_ridge_record *record,
                      double *out) {
  *out = is->lambda + noise * exp(-is->shift);
  if (!(noise >= 0) || !(*out <= hark_range_of(type).most)) { /* NaN fails */
    hark_ridge_trouble(record, system, HARK_RIDGE_BAD_NOISE, row, noise);
    return false;
  }
  if (is->lambda > 0 || noise > 0) return true;
  hark_ridge_trouble(record, system, HARK_RIDGE_NO_NOISE, row, 0);
  return false;
}

void hark_ridge_give_noise(const hark_attention_args *args, const hark_attention_sequence *sequence, int64_t head, int64_t key,
                           const hark_ridge_parameters *is, double ddiagonal) {
  const hark_tensor *dnoise = &args->dnoise;
  if (dnoise->type != HARK_NONE) add(dnoise, noise_index(dnoise, sequence, head, key), ddiagonal * exp(-is->shift));
}

void hark_ridge_records_clear(hark_ridge_record *records, int64_t count) {
  for (int64_t i = 0; i < count; i++) records[i] = (hark_ridge_record){.system = INT64_MAX};
}

void hark_ridge_trouble(hark_ridge_record *record, int64_t system, hark_ridge_kind kind, int64_t row, double value) {
  if (system > record->system || (system == record->system && row >= record->row)) return; /* threads find the rows in any order */
  record->system = system;
  record->kind = kind;
  record->row = row;
  record->value = value;
}

static bool worse(double amount, int64_t system, const hark_ridge_record *than) {
  return than->pivots == 0 || amount > than->amount || (amount == than->amount && system < than->pivot_system);
}

void hark_ridge_mended(hark_ridge_record *record, int64_t system, int64_t row, double amount) {
  if (worse(amount, system, record)) {
    record->amount = amount;
    record->pivot_system = system;
    record->pivot_row = row;
  }
  record->pivots++;
}

/* Lower limit: in exact arithmetic no pivot is below lambda. A pivot below half of the floor has been lost to rounding, or the kernel is
 * not positive definite.
 * Upper limit: a pivot is its diagonal entry less a sum of squares. Rounding is monotonic, so the pivot never exceeds the entry by more
 * than the roundings of entry and pivot, and the factor 2 allows these whatever their types. A larger pivot is not finite (NaN fails both
 * comparisons) or comes from a damaged factor; the square root of it must not reach the factor. */
double hark_ridge_pivot(hark_ridge_record *record, int64_t system, int64_t row, double pivot, double diagonal, double lambda, double part) {
  const double floor = fmax(lambda, part * diagonal);
  if (pivot >= floor / 2 && pivot <= diagonal * 2) return pivot;
  if (!isfinite(pivot) || !isfinite(floor)) {
    hark_ridge_trouble(record, system, HARK_RIDGE_BAD_PIVOT, row, pivot);
    return 1;
  }
  /* a negative pivot changes its sign: with a small floor instead, later rows would grow without bound */
  const double raised = fmax(floor, -pivot);
  hark_ridge_mended(record, system, row, raised - pivot);
  return raised;
}

static hark_status fail(hark_context *context, hark_type storage, int64_t item, int64_t head, const hark_ridge_record *record) {
  const int64_t row = record->row;
  const char *type = hark_type_name(storage);
  const double limit = hark_ridge_exponent_limit(storage);
  const hark_range of_numbers = hark_range_printed(hark_range_of(storage)), of_sigma = hark_range_printed(hark_range_of_sigma(storage));
  switch (record->kind) {
    case HARK_RIDGE_FINE: return HARK_OK;
    case HARK_RIDGE_BAD_RIDGE:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: ridge of head %" PRId64 " is %s, expected a finite number above 0, in %s %.3g to %.3g", head,
                       HARK_PRINTED(record->value), type, of_numbers.least, of_numbers.most);
    case HARK_RIDGE_BAD_RIDGE_FROM_0:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: ridge of head %" PRId64 " is %s, expected a finite number from 0, in %s 0 or %.3g to %.3g", head,
                       HARK_PRINTED(record->value), type, of_numbers.least, of_numbers.most);
    case HARK_RIDGE_BAD_SIGMA:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: sigma of head %" PRId64 " is %s, expected a finite number above 0, in %s %.3g to %.3g", head,
                       HARK_PRINTED(record->value), type, of_sigma.least, of_sigma.most);
    case HARK_RIDGE_BAD_NOISE:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: item %" PRId64 ", head %" PRId64 ": the noise of key row %" PRId64
                       " is %s, expected a number from 0, in %s to %.3g",
                       item, head, row, HARK_PRINTED(record->value), type, of_numbers.most);
    case HARK_RIDGE_NO_NOISE:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: item %" PRId64 ", head %" PRId64 ": ridge and noise of key row %" PRId64
                       " are 0, expected one of them above 0",
                       item, head, row);
    case HARK_RIDGE_BAD_TABLE:
      return hark_fail(context, HARK_NOT_FINITE,
                       "attention: log_kernel of head %" PRId64 " is %s at distance %" PRId64 ", expected at most %s", head,
                       HARK_PRINTED(record->value), row, HARK_PRINTED(limit));
    case HARK_RIDGE_NO_CONVERGENCE:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: item %" PRId64 ", head %" PRId64 ": the residual is %.3g after %" PRId64
                       " iterations of conjugate gradients: a larger ridge, tolerance or number of iterations, or solver factor",
                       item, head, record->value, row);
    case HARK_RIDGE_KEY_RANGE:
      return hark_fail(context, HARK_NOT_FINITE,
                       "attention: item %" PRId64 ", head %" PRId64 ", key row %" PRId64
                       ": the kernel's exponent is %g, beyond %g, the range of %s: smaller or unit keys, or a bound",
                       item, head, row, record->value, limit, type);
    case HARK_RIDGE_QUERY_RANGE:
      return hark_fail(context, HARK_NOT_FINITE,
                       "attention: item %" PRId64 ", head %" PRId64 ", query row %" PRId64
                       ": the kernel's exponent is %g, beyond %g, the range of %s: smaller or unit queries and keys, or a bound",
                       item, head, row, record->value, limit, type);
    default: break;
  }
  const char *const what = record->kind == HARK_RIDGE_BAD_QUERY    ? "the query of row"
                           : record->kind == HARK_RIDGE_BAD_KEY    ? "the key of row"
                           : record->kind == HARK_RIDGE_BAD_VALUE  ? "the value of row"
                           : record->kind == HARK_RIDGE_BAD_RESULT ? "the result of query row"
                                                                   : "the pivot of key row";
  return hark_fail(context, HARK_NOT_FINITE, "attention: item %" PRId64 ", head %" PRId64 ": %s %" PRId64 " is not finite", item, head,
                   what, row);
}

/* Combines the workers' records: the first trouble, the largest amount. */
static hark_ridge_record gather(const hark_ridge_record *records, int64_t count) {
  hark_ridge_record all = {.system = INT64_MAX};
  for (int64_t i = 0; i < count; i++) {
    const hark_ridge_record *one = &records[i];
    if (one->kind != HARK_RIDGE_FINE) hark_ridge_trouble(&all, one->system, one->kind, one->row, one->value);
    if (one->pivots > 0 && worse(one->amount, one->pivot_system, &all)) {
      all.amount = one->amount;
      all.pivot_system = one->pivot_system;
      all.pivot_row = one->pivot_row;
    }
    all.pivots += one->pivots;
    all.iterations = hark_max(all.iterations, one->iterations);
  }
  return all;
}

static void add_to_report(const hark_ridge_record *all, int64_t item, int64_t head, hark_attention_report *report) {
  if (report == NULL || all->pivots == 0) return;
  if (report->pivots == 0 || all->amount > report->amount) {
    report->item = item;
    report->head = head;
    report->row = all->pivot_row;
    report->amount = all->amount;
  }
  report->pivots += all->pivots;
}

hark_status hark_ridge_conclude(hark_context *context, const hark_attention_call *run, const hark_ridge_record *records, bool reporting) {
  const int64_t heads = run->plan->desc.heads;
  const hark_ridge_record all = gather(records, run->plan->workers);
  if (reporting && all.pivots > 0)
    add_to_report(&all, run->sequences[all.pivot_system / heads].item, all.pivot_system % heads, run->args->report);
  if (reporting && run->plan->desc.solver == HARK_SOLVER_CONJUGATE_GRADIENTS && run->args->report != NULL)
    run->args->report->iterations = hark_max(run->args->report->iterations, all.iterations);
  if (all.kind == HARK_RIDGE_FINE) return HARK_OK;
  return fail(context, run->plan->desc.type, run->sequences[all.system / heads].item, all.system % heads, &all);
}

hark_status hark_ridge_conclude_heads(hark_context *context, hark_type type, const hark_ridge_record *records, int64_t heads,
                                      hark_attention_report *report) {
  const hark_ridge_record all = gather(records, heads);
  add_to_report(&all, 0, all.pivot_system, report);
  return all.kind == HARK_RIDGE_FINE ? HARK_OK : fail(context, type, 0, all.system, &all);
}

int64_t hark_ridge_slices(const hark_attention_desc *desc) { return hark_min(desc->max_sequences, hark_ceil_div(PIECES, desc->key_heads)); }

int64_t hark_ridge_distances(const hark_attention_desc *desc) { return desc->has_log_kernel ? desc->query_length + desc->key_length : 0; }

hark_status hark_ridge_partials_bytes(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  const size_t systems = (size_t)hark_ridge_slices(desc) * (size_t)desc->heads;
  return hark_size_multiply(context, systems * sizeof(double), (size_t)hark_ridge_partial(desc), out);
}

void hark_ridge_slice(const hark_attention_call *run, int64_t slice, int64_t *first, int64_t *end) {
  const int64_t slices = hark_ridge_slices(&run->plan->desc), each = hark_ceil_div(run->sequence_count, slices);
  *first = hark_min(slice * each, run->sequence_count);
  *end = hark_min(*first + each, run->sequence_count);
}

void hark_ridge_collect(const hark_attention_call *run, const double *partials) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  const int64_t width = hark_ridge_partial(desc), slices = hark_ridge_slices(desc);
  for (int64_t head = 0; head < desc->heads; head++)
    for (int64_t slice = 0; slice < slices; slice++) {
      const double *sums = partials + (slice * desc->heads + head) * width;
      if (args->dridge.type != HARK_NONE) add(&args->dridge, of_head(&args->dridge, head), sums[0]);
      if (args->dsigma.type != HARK_NONE) add(&args->dsigma, of_head(&args->dsigma, head), sums[1]);
      if (args->dlog_kernel.type == HARK_NONE) continue;
      const int64_t distances = hark_min(width - 2, args->dlog_kernel.shape[1]);
      for (int64_t t = 0; t < distances; t++)
        if (sums[2 + t] != 0) add(&args->dlog_kernel, head * args->dlog_kernel.stride[0] + t, sums[2 + t]);
    }
}
