/* describe.c - descriptors of attention: their defaults, which values are allowed, and which algorithm computes them.
 *
 * Every refusal names the field, its value and what was expected.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "attention/layer.h"
#include "core/structs.h"

/* Limits of the counter that names a dropout word: ((b H + h) 2^23 + n) 2^21 + i / 4 must fit in 64 bits and be unique. */
#define DROPOUT_MAXIMUM_LENGTH ((int64_t)1 << 23)
#define DROPOUT_MAXIMUM_HEADS ((int64_t)1 << 20) /* batch * heads */

/* Extents and their products are kept below this, so that sums of positions, offsets and products of a few strides never overflow. */
#define MAXIMUM_EXTENT ((int64_t)1 << 40)

static hark_status refuse_extent(hark_context *context, const char *field, int64_t value) {
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %" PRId64 ", expected 1 to 2^40", field, value);
}

static hark_status check_extents(hark_context *context, hark_attention_desc *desc) {
  if (desc->key_heads == 0) desc->key_heads = desc->heads;
  if (desc->value_dim == 0) desc->value_dim = desc->head_dim;
  const struct {
    const char *name;
    int64_t value;
  } extents[] = {{"batch", desc->batch},          {"heads", desc->heads},         {"key_heads", desc->key_heads},
                 {"head_dim", desc->head_dim},    {"value_dim", desc->value_dim}, {"query_length", desc->query_length},
                 {"key_length", desc->key_length}};
  for (size_t i = 0; i < sizeof extents / sizeof extents[0]; i++)
    if (extents[i].value < 1 || extents[i].value > MAXIMUM_EXTENT) return refuse_extent(context, extents[i].name, extents[i].value);
  if (desc->heads % desc->key_heads != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: heads is %" PRId64 ", expected a multiple of key_heads = %" PRId64,
                     desc->heads, desc->key_heads);
  if (desc->max_sequences < 0 || desc->max_sequences > MAXIMUM_EXTENT)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: max_sequences is %" PRId64 ", expected 0 (the default) to 2^40",
                     desc->max_sequences);
  const double largest = (double)desc->batch * (double)desc->heads * fmax((double)desc->query_length, (double)desc->key_length) *
                         fmax((double)desc->head_dim, (double)desc->value_dim) * (double)hark_type_bytes(desc->type);
  if (largest > (double)(PTRDIFF_MAX / 2))
    return hark_fail(context, HARK_TOO_LARGE,
                     "attention: batch %" PRId64 ", heads %" PRId64 ", query_length %" PRId64 ", key_length %" PRId64 ", head_dim %" PRId64
                     ", value_dim %" PRId64 " together make a tensor larger than memory can be",
                     desc->batch, desc->heads, desc->query_length, desc->key_length, desc->head_dim, desc->value_dim);
  if (desc->max_sequences == 0) desc->max_sequences = desc->has_segments ? desc->batch * desc->key_length : desc->batch;
  return HARK_OK;
}

static hark_status check_kernel(hark_context *context, hark_attention_desc *desc) {
  switch (desc->kernel) {
    case HARK_KERNEL_EXP:
      if (desc->sigma != 0)
        return hark_fail(context, HARK_UNSUPPORTED, "attention: sigma is %g with kernel exp, expected 0: only kernel rbf has a sigma",
                         desc->sigma);
      if (!isfinite(desc->scale))
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: scale is %g, expected a finite number or 0 for 1 / sqrt(head_dim)",
                         desc->scale);
      if (desc->scale == 0) desc->scale = 1 / sqrt((double)desc->head_dim);
      return HARK_OK;
    case HARK_KERNEL_RBF:
      if (!isfinite(desc->sigma) || desc->sigma <= 0)
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sigma is %g with kernel rbf, expected a finite number above 0",
                         desc->sigma);
      if (desc->scale != 0)
        return hark_fail(context, HARK_UNSUPPORTED, "attention: scale is %g with kernel rbf, expected 0: kernel rbf takes sigma",
                         desc->scale);
      desc->scale = 1 / (desc->sigma * desc->sigma);
      if (!isfinite(desc->scale) || desc->scale == 0)
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sigma is %g, and 1 / sigma^2 is out of range", desc->sigma);
      return HARK_OK;
  }
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: kernel is %d, expected HARK_KERNEL_EXP or HARK_KERNEL_RBF",
                   (int)desc->kernel);
}

static hark_status check_structure(hark_context *context, const hark_attention_desc *desc) {
  switch (desc->structure) {
    case HARK_STRUCTURE_DENSE:
      if (desc->window != 0)
        return hark_fail(context, HARK_UNSUPPORTED, "attention: window is %" PRId64 " with structure dense, expected 0", desc->window);
      return HARK_OK;
    case HARK_STRUCTURE_WINDOW:
      if (desc->window < 0 || desc->window > MAXIMUM_EXTENT)
        return hark_fail(context, HARK_INVALID_ARGUMENT,
                         "attention: window is %" PRId64 ", expected 0 to 2^40 positions to each side of the query", desc->window);
      return HARK_OK;
  }
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: structure is %d, expected HARK_STRUCTURE_DENSE or HARK_STRUCTURE_WINDOW",
                   (int)desc->structure);
}

static hark_status check_dropout(hark_context *context, const hark_attention_desc *desc) {
  if (!(desc->dropout >= 0 && desc->dropout < 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: dropout is %g, expected a probability in [0, 1)", desc->dropout);
  if (desc->dropout == 0) return HARK_OK;
  if (desc->query_length > DROPOUT_MAXIMUM_LENGTH || desc->key_length > DROPOUT_MAXIMUM_LENGTH)
    return hark_fail(context, HARK_TOO_LARGE,
                     "attention: query_length is %" PRId64 " and key_length %" PRId64 ", expected at most 2^23 with dropout",
                     desc->query_length, desc->key_length);
  if (desc->batch > DROPOUT_MAXIMUM_HEADS / desc->heads)
    return hark_fail(context, HARK_TOO_LARGE, "attention: batch %" PRId64 " times heads %" PRId64 ", expected at most 2^20 with dropout",
                     desc->batch, desc->heads);
  return HARK_OK;
}

hark_status hark_attention_resolve(hark_context *context, const hark_attention_desc *given, hark_attention_desc *resolved) {
  hark_attention_desc desc = hark_attention_desc_default();
  HARK_TRY(hark_take_struct(context, "hark_attention_desc", given, HARK_LEAST_ATTENTION_DESC, &desc, sizeof desc));
  if (desc.type != HARK_F32 && desc.type != HARK_F64)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: type is %s, expected f32 or f64", hark_type_name(desc.type));
  if (desc.normalisation != HARK_NORMALISATION_SOFTMAX)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: normalisation is %d, expected HARK_NORMALISATION_SOFTMAX",
                     (int)desc.normalisation);
  HARK_TRY(check_extents(context, &desc));
  HARK_TRY(check_kernel(context, &desc));
  HARK_TRY(check_structure(context, &desc));
  HARK_TRY(check_dropout(context, &desc));
  if (desc.has_forget && !desc.causal)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: has_forget without causal: gates are summed from a key up to a later query, expected causal");
  *resolved = desc;
  return HARK_OK;
}

hark_status hark_attention_choose(hark_context *context, const hark_attention_desc *resolved, const hark_attention_algorithm **out) {
  char reasons[HARK_MESSAGE_BYTES] = "";
  size_t used = 0;
  *out = NULL;
  for (const hark_attention_algorithm *const *algorithm = context->backend->attention(context); *algorithm != NULL; algorithm++) {
    char why[HARK_MESSAGE_BYTES / 2] = "";
    if ((*algorithm)->supports(context, resolved, why, sizeof why)) {
      *out = *algorithm;
      return HARK_OK;
    }
    const int length = snprintf(reasons + used, sizeof reasons - used, "; %s: %s", (*algorithm)->name, why);
    if (length > 0) used = (size_t)hark_min((int64_t)used + length, (int64_t)sizeof reasons - 1);
  }
  return hark_fail(context, HARK_UNSUPPORTED, "attention: backend %s has no algorithm for this descriptor%s", context->backend->name,
                   reasons);
}

hark_status hark_attention_supports(hark_context *context, const hark_attention_desc *desc) {
  hark_attention_desc resolved;
  const hark_attention_algorithm *algorithm;
  HARK_TRY(hark_attention_resolve(context, desc, &resolved));
  return hark_attention_choose(context, &resolved, &algorithm);
}
