/* describe.c - descriptors of attention: their defaults, their allowed values, and the choice of the algorithm.
 *
 * Every refusal names the field, its value and what was expected.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "attention/layer.h"
#include "backend/chunks.h"
#include "backend/grid.h"
#include "backend/hierarchy.h"
#include "core/range.h"
#include "core/structs.h"
#include "io/number.h"

/* Limits of the counter that names a dropout word: ((b H + h) 2^23 + n) 2^21 + i / 4 must fit in 64 bits and be unique. */
#define DROPOUT_MAXIMUM_LENGTH ((int64_t)1 << 23)
#define DROPOUT_MAXIMUM_HEADS ((int64_t)1 << 20) /* batch * heads */

/* Extents and their products are kept below this, so that sums of positions, offsets and products of a few strides never overflow. */
#define MAXIMUM_EXTENT ((int64_t)1 << 40)
#define MAXIMUM_HIERARCHY_BLOCK ((int64_t)1 << 20)
#define MAXIMUM_CHUNK ((int64_t)1 << 20)
#define MAXIMUM_SELECTED 4096 /* slots of a query */

const char *hark_attention_structure_name(hark_attention_structure structure) {
  switch (structure) {
    case HARK_STRUCTURE_DENSE: return "dense";
    case HARK_STRUCTURE_WINDOW: return "window";
    case HARK_STRUCTURE_HIERARCHICAL: return "hierarchical";
    case HARK_STRUCTURE_COMPRESSED: return "compressed";
  }
  return "unknown";
}

const char *hark_attention_normalisation_name(hark_attention_normalisation normalisation) {
  switch (normalisation) {
    case HARK_NORMALISATION_SOFTMAX: return "softmax";
    case HARK_NORMALISATION_CME: return "cme";
    case HARK_NORMALISATION_STICK_BREAKING: return "stick_breaking";
  }
  return "unknown";
}

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
  if (desc->longest < 0 || desc->longest > MAXIMUM_EXTENT)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: longest is %" PRId64 ", expected 0 (the default) to 2^40", desc->longest);
  const int64_t rows = hark_max(desc->query_length, desc->key_length);
  desc->longest = desc->longest == 0 ? rows : hark_min(desc->longest, rows);
  if (desc->max_sequences == 0) desc->max_sequences = desc->has_segments ? desc->batch * desc->key_length : desc->batch;
  return HARK_OK;
}

static hark_status check_product_type(hark_context *context, const hark_attention_desc *desc) {
  if (desc->product_type == HARK_NONE || (desc->product_type == HARK_BF16 && desc->type == HARK_F32)) return HARK_OK;
  if (desc->product_type < HARK_NONE || desc->product_type > HARK_I8)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: product_type is %" PRId64 ", expected none, or bf16 with type f32",
                     desc->product_type);
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: product_type is %s with type %s, expected none, or bf16 with type f32",
                   hark_type_name((hark_type)desc->product_type), hark_type_name(desc->type));
}

static hark_status check_sigma(hark_context *context, const hark_attention_desc *desc) {
  const hark_range range = hark_range_of_sigma(desc->type);
  if (hark_is_within(range, desc->sigma)) return HARK_OK;
  const hark_range ends = hark_range_printed(range);
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sigma is %s, expected %.3g to %.3g, the range of squared distances in %s",
                   HARK_PRINTED(desc->sigma), ends.least, ends.most, hark_type_name(desc->type));
}

static hark_status check_kernel(hark_context *context, hark_attention_desc *desc) {
  switch (desc->kernel) {
    case HARK_KERNEL_EXP:
      if (desc->sigma != 0)
        return hark_fail(context, HARK_UNSUPPORTED, "attention: sigma is %s with kernel exp, expected 0: only kernel rbf has a sigma",
                         HARK_PRINTED(desc->sigma));
      if (!isfinite(desc->scale))
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: scale is %s, expected a finite number or 0 for 1 / sqrt(head_dim)",
                         HARK_PRINTED(desc->scale));
      HARK_TRY(hark_check_range(context, "attention", "scale", desc->scale, desc->type, hark_range_of_scale(desc->type)));
      if (desc->scale == 0) desc->scale = 1 / sqrt((double)desc->head_dim);
      return HARK_OK;
    case HARK_KERNEL_RBF:
      if (desc->has_sigma) { /* each call has its own sigma; refused below with softmax */
        if (desc->sigma != 0)
          return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sigma is %s with has_sigma, expected 0: calls carry sigma",
                           HARK_PRINTED(desc->sigma));
        desc->scale = 1;
        return HARK_OK;
      }
      if (!isfinite(desc->sigma) || desc->sigma <= 0)
        return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: sigma is %s with kernel rbf, expected a finite number above 0",
                         HARK_PRINTED(desc->sigma));
      if (desc->scale != 0)
        return hark_fail(context, HARK_UNSUPPORTED, "attention: scale is %s with kernel rbf, expected 0: kernel rbf takes sigma",
                         HARK_PRINTED(desc->scale));
      desc->scale = 1 / (desc->sigma * desc->sigma);
      return check_sigma(context, desc);
  }
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: kernel is %d, expected HARK_KERNEL_EXP or HARK_KERNEL_RBF",
                   (int)desc->kernel);
}

/* A field, with the structure that it belongs to. */
typedef struct structure_field {
  const char *name;
  int64_t value;
  hark_attention_structure structure;
} structure_field;

/* Refuses a field of another structure that is set, with its name, its value and its structure. */
static hark_status check_foreign_fields(hark_context *context, const hark_attention_desc *desc) {
  if (desc->structure != HARK_STRUCTURE_WINDOW && desc->window != 0)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: window is %" PRId64 " with structure %s, expected 0", desc->window,
                     hark_attention_structure_name(desc->structure));
  const structure_field fields[] = {{"hierarchy_block", desc->hierarchy_block, HARK_STRUCTURE_HIERARCHICAL},
                                    {"partition", (int64_t)desc->partition, HARK_STRUCTURE_HIERARCHICAL},
                                    {"coarse_query", (int64_t)desc->coarse_query, HARK_STRUCTURE_HIERARCHICAL},
                                    {"interpolation", (int64_t)desc->interpolation, HARK_STRUCTURE_HIERARCHICAL},
                                    {"has_hierarchical_bias", desc->has_hierarchical_bias, HARK_STRUCTURE_HIERARCHICAL},
                                    {"grid_columns", desc->grid_columns, HARK_STRUCTURE_HIERARCHICAL},
                                    {"chunk", desc->chunk, HARK_STRUCTURE_COMPRESSED},
                                    {"chunk_slots", desc->chunk_slots, HARK_STRUCTURE_COMPRESSED},
                                    {"selected_slots", desc->selected_slots, HARK_STRUCTURE_COMPRESSED},
                                    {"kept_chunks", desc->kept_chunks, HARK_STRUCTURE_COMPRESSED},
                                    {"global_slots", desc->global_slots, HARK_STRUCTURE_COMPRESSED},
                                    {"has_chunk_starts", desc->has_chunk_starts, HARK_STRUCTURE_COMPRESSED}};
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    if (fields[i].value != 0 && fields[i].structure != desc->structure)
      return hark_fail(context, HARK_UNSUPPORTED, "attention: %s is %" PRId64 " with structure %s, expected 0: it belongs to %s",
                       fields[i].name, fields[i].value, hark_attention_structure_name(desc->structure),
                       hark_attention_structure_name(fields[i].structure));
  return HARK_OK;
}

/* Refuses inputs that one hierarchy cannot represent: two lengths, and terms of single entries, which coarse entries do not have. */
static hark_status check_hierarchy_inputs(hark_context *context, const hark_attention_desc *desc) {
  if (desc->query_length != desc->key_length)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: query_length is %" PRId64 " and key_length %" PRId64
                     " with structure hierarchical, expected the same: queries and keys share one hierarchy",
                     desc->query_length, desc->key_length);
  if (desc->has_bias)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: has_bias with structure hierarchical: a coarse entry has no attention_bias of its own, expected "
                     "has_hierarchical_bias or has_log_kernel");
  if (desc->has_forget)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: has_forget with structure hierarchical: gates differ inside a cell");
  return HARK_OK;
}

static hark_status refuse_grid(hark_context *context, const hark_attention_desc *desc, const char *reason) {
  return hark_fail(context, HARK_UNSUPPORTED, "attention: grid_columns is %" PRId64 " %s", desc->grid_columns, reason);
}

/* A picture: blocks are squares, whose sides are halved as often as needed. Biases and kernels are functions of one distance, and two
 * pixels have two: rows and columns. */
static hark_status check_grid(hark_context *context, const hark_attention_desc *desc) {
  if (desc->grid_columns == 0) return HARK_OK;
  if (desc->grid_columns < 0 || desc->grid_columns > MAXIMUM_EXTENT)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: grid_columns is %" PRId64 ", expected 0 (no picture), or 1 to 2^40 columns of a picture",
                     desc->grid_columns);
  if (hark_grid_side(desc->hierarchy_block) == 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: hierarchy_block is %" PRId64
                     " with grid_columns, expected a power of 4 (4, 16, 64, ...): the cells of a square block whose side is a power of 2",
                     desc->hierarchy_block);
  if (desc->causal) return refuse_grid(context, desc, "with causal, expected 0: cells of a picture have pixels before and after a query");
  if (desc->partition != HARK_PARTITION_NEIGHBOUR) return refuse_grid(context, desc, "with partition sibling, expected neighbour");
  if (desc->coarse_query == HARK_COARSE_QUERY_FIRST)
    return refuse_grid(context, desc, "with coarse_query first, expected mean or exact: only causal attention needs the first query");
  if (desc->interpolation != HARK_INTERPOLATION_CONSTANT) return refuse_grid(context, desc, "with interpolation linear, expected constant");
  if (desc->has_hierarchical_bias)
    return refuse_grid(context, desc, "with has_hierarchical_bias, expected 0: the bias is indexed by one distance");
  if (desc->has_log_kernel) return refuse_grid(context, desc, "with has_log_kernel, expected 0: log G is a function of one distance");
  return HARK_OK;
}

static hark_status check_hierarchy(hark_context *context, hark_attention_desc *desc) {
  if (desc->hierarchy_block == 0) desc->hierarchy_block = HARK_HIERARCHY_DEFAULT_BLOCK;
  if (desc->hierarchy_block < 2 || desc->hierarchy_block > MAXIMUM_HIERARCHY_BLOCK || desc->hierarchy_block % 2 != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: hierarchy_block is %" PRId64 ", expected an even number of tokens from 2 to 2^20", desc->hierarchy_block);
  if (desc->partition != HARK_PARTITION_NEIGHBOUR && desc->partition != HARK_PARTITION_SIBLING)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: partition is %d, expected HARK_PARTITION_NEIGHBOUR or HARK_PARTITION_SIBLING", (int)desc->partition);
  switch (desc->coarse_query) {
    case HARK_COARSE_QUERY_DEFAULT: desc->coarse_query = desc->causal ? HARK_COARSE_QUERY_FIRST : HARK_COARSE_QUERY_MEAN; break;
    case HARK_COARSE_QUERY_MEAN:
      if (desc->causal)
        return hark_fail(
            context, HARK_UNSUPPORTED,
            "attention: coarse_query is mean and causal is set: a mean of queries depends on later ones, expected first or exact");
      break;
    case HARK_COARSE_QUERY_FIRST:
    case HARK_COARSE_QUERY_EXACT: break;
    default:
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: coarse_query is %d, expected one of HARK_COARSE_QUERY_*",
                       (int)desc->coarse_query);
  }
  switch (desc->interpolation) {
    case HARK_INTERPOLATION_CONSTANT: break;
    case HARK_INTERPOLATION_LINEAR:
      if (desc->causal)
        return hark_fail(context, HARK_UNSUPPORTED,
                         "attention: interpolation is linear and causal is set: a row would take from the next one, expected constant");
      if (desc->coarse_query == HARK_COARSE_QUERY_EXACT)
        return hark_fail(context, HARK_UNSUPPORTED,
                         "attention: interpolation is linear and coarse_query exact: nothing is interpolated then, expected constant");
      break;
    default:
      return hark_fail(context, HARK_INVALID_ARGUMENT,
                       "attention: interpolation is %d, expected HARK_INTERPOLATION_CONSTANT or HARK_INTERPOLATION_LINEAR",
                       (int)desc->interpolation);
  }
  HARK_TRY(check_grid(context, desc));
  return check_hierarchy_inputs(context, desc);
}

/* A number of the descriptor and its range. */
typedef struct whole_range {
  const char *name, *of;
  int64_t value, least, most;
} whole_range;

static hark_status check_ranges(hark_context *context, const whole_range *ranges, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (ranges[i].value < ranges[i].least || ranges[i].value > ranges[i].most)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: %s is %" PRId64 ", expected %" PRId64 " to %" PRId64 "%s",
                       ranges[i].name, ranges[i].value, ranges[i].least, ranges[i].most, ranges[i].of);
  return HARK_OK;
}

/* A query meets slots: entries that stand for many keys, and belong to none. */
static hark_status check_compressed_inputs(hark_context *context, const hark_attention_desc *desc) {
  const struct {
    bool set;
    const char *reason;
  } refused[] = {
      {!desc->causal, "structure is compressed without causal: a query sees finished chunks before it, expected causal"},
      {desc->kernel != HARK_KERNEL_EXP, "kernel is rbf with structure compressed, expected exp"},
      {desc->normalisation == HARK_NORMALISATION_CME, "normalisation is cme with structure compressed, expected softmax"},
      {desc->normalisation == HARK_NORMALISATION_STICK_BREAKING,
       "normalisation is stick_breaking with structure compressed, expected softmax: the keys of a slot have an order"},
      {desc->has_bias, "has_bias with structure compressed, expected none: a slot has no attention_bias of its own"},
      {desc->has_log_kernel && desc->global_slots > 0,
       "has_log_kernel with global_slots, expected global_slots 0: the rows of a global slot have ever more distances"},
      {desc->has_forget, "has_forget with structure compressed, expected none: gates differ inside a slot"},
      {desc->contextual_positions != 0, "contextual_positions with structure compressed, expected 0: the keys of a slot have an order"}};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (refused[i].set) return hark_fail(context, HARK_UNSUPPORTED, "attention: %s", refused[i].reason);
  if (desc->query_length != desc->key_length)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: query_length is %" PRId64 " and key_length %" PRId64
                     " with structure compressed, expected the same: queries and keys share their chunks",
                     desc->query_length, desc->key_length);
  return HARK_OK;
}

static hark_status check_compressed(hark_context *context, hark_attention_desc *desc) {
  if (desc->chunk_slots == 0) desc->chunk_slots = 1;
  if (desc->selected_slots == 0) desc->selected_slots = HARK_CHUNK_DEFAULT_SELECTED;
  const whole_range ranges[] = {{"chunk", " rows", desc->chunk, 1, MAXIMUM_CHUNK},
                                {"chunk_slots", ", the rows of a chunk", desc->chunk_slots, 1, desc->chunk},
                                {"selected_slots", " slots", desc->selected_slots, 1, MAXIMUM_SELECTED},
                                {"kept_chunks", " chunks, 0 for all", desc->kept_chunks, 0, MAXIMUM_EXTENT},
                                {"global_slots", " slots", desc->global_slots, 0, MAXIMUM_CHUNK},
                                {"has_chunk_starts", "", desc->has_chunk_starts, 0, 1}};
  HARK_TRY(check_ranges(context, ranges, sizeof ranges / sizeof ranges[0]));
  if (desc->global_slots > 0 && desc->kept_chunks == 0)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: global_slots is %" PRId64 " with kept_chunks 0, expected 0: the slots of all chunks remain apart",
                     desc->global_slots);
  return check_compressed_inputs(context, desc);
}

static hark_status check_structure(hark_context *context, hark_attention_desc *desc) {
  switch (desc->structure) {
    case HARK_STRUCTURE_DENSE: return check_foreign_fields(context, desc);
    case HARK_STRUCTURE_WINDOW:
      HARK_TRY(check_foreign_fields(context, desc));
      if (desc->window < 0 || desc->window > MAXIMUM_EXTENT)
        return hark_fail(context, HARK_INVALID_ARGUMENT,
                         "attention: window is %" PRId64 ", expected 0 to 2^40 positions to each side of the query", desc->window);
      return HARK_OK;
    case HARK_STRUCTURE_HIERARCHICAL: HARK_TRY(check_foreign_fields(context, desc)); return check_hierarchy(context, desc);
    case HARK_STRUCTURE_COMPRESSED: HARK_TRY(check_foreign_fields(context, desc)); return check_compressed(context, desc);
  }
  return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: structure is %d, expected one of HARK_STRUCTURE_*", (int)desc->structure);
}

static hark_status check_dropout(hark_context *context, const hark_attention_desc *desc) {
  if (!(desc->dropout >= 0 && desc->dropout < 1))
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: dropout is %s, expected a probability in [0, 1)",
                     HARK_PRINTED(desc->dropout));
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

static hark_status refuse_contextual(hark_context *context, const hark_attention_desc *desc, const char *reason) {
  return hark_fail(context, HARK_UNSUPPORTED, "attention: contextual_positions is %" PRId64 " %s", desc->contextual_positions, reason);
}

/* Positions are counted from a query to earlier keys, by scale q.k, which is added to them. */
static hark_status check_contextual(hark_context *context, const hark_attention_desc *desc) {
  const int64_t positions = desc->contextual_positions;
  if (positions == 0) return HARK_OK;
  if (positions < 2 || positions > HARK_CONTEXTUAL_POSITIONS)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: contextual_positions is %" PRId64 ", expected 0 (none), or 2 to 2^20 positions", positions);
  if (!desc->causal) return refuse_contextual(context, desc, "without causal: positions are counted from a query to earlier keys");
  if (desc->kernel != HARK_KERNEL_EXP) return refuse_contextual(context, desc, "with kernel rbf, expected exp");
  if (desc->structure == HARK_STRUCTURE_HIERARCHICAL)
    return refuse_contextual(context, desc, "with structure hierarchical, expected dense or window: the keys of a cell have an order");
  if (desc->normalisation != HARK_NORMALISATION_SOFTMAX)
    return refuse_contextual(context, desc,
                             desc->normalisation == HARK_NORMALISATION_CME ? "with normalisation cme, expected softmax"
                                                                           : "with normalisation stick_breaking, expected softmax");
  const double bytes = (double)positions * (double)desc->head_dim * (double)desc->heads * (double)hark_type_bytes(desc->type);
  if (bytes > (double)(PTRDIFF_MAX / 2))
    return hark_fail(context, HARK_TOO_LARGE,
                     "attention: contextual_positions %" PRId64 ", heads %" PRId64 " and head_dim %" PRId64
                     " together make a table larger than memory can be",
                     positions, desc->heads, desc->head_dim);
  return HARK_OK;
}

/* A table with a number for each direction: for keys on both sides of a query, and kernels that need not be symmetric. */
static hark_status check_direction(hark_context *context, const hark_attention_desc *desc) {
  if (desc->directed_kernel == 0) return HARK_OK;
  if (desc->directed_kernel != 1)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: directed_kernel is %" PRId64 ", expected 0 or 1", desc->directed_kernel);
  if (!desc->has_log_kernel)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: directed_kernel is 1 without has_log_kernel, expected 0: there is no table");
  if (desc->causal)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: directed_kernel is 1 with causal, expected 0: a query sees no key after it");
  if (desc->normalisation == HARK_NORMALISATION_CME)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "attention: directed_kernel is 1 with normalisation cme, expected 0: a kernel with a direction is not symmetric");
  return HARK_OK;
}

hark_status hark_attention_resolve(hark_context *context, const hark_attention_desc *given, hark_attention_desc *resolved) {
  hark_attention_desc desc = hark_attention_desc_default();
  HARK_TRY(hark_take_struct(context, "hark_attention_desc", given, HARK_LEAST_ATTENTION_DESC, &desc, sizeof desc));
  if (desc.type != HARK_F32 && desc.type != HARK_F64)
    return hark_fail(context, HARK_UNSUPPORTED, "attention: type is %s, expected f32 or f64", hark_type_name(desc.type));
  HARK_TRY(check_extents(context, &desc));
  HARK_TRY(check_product_type(context, &desc));
  HARK_TRY(check_kernel(context, &desc));
  HARK_TRY(check_structure(context, &desc));
  HARK_TRY(hark_attention_resolve_ridge(context, &desc));
  HARK_TRY(check_dropout(context, &desc));
  HARK_TRY(check_contextual(context, &desc));
  HARK_TRY(check_direction(context, &desc));
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
