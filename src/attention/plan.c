/* plan.c - plans of attention: made from a descriptor once, then immutable.
 *
 * A plan contains the resolved descriptor, the algorithm and the sizes of the memory that a call needs. Every kind of batch becomes a list
 * of sequences, which is at the beginning of the workspaces.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "attention/layer.h"
#include "backend/chunks.h"
#include "backend/grid.h"
#include "backend/hierarchy.h"
#include "core/structs.h"
#include "io/number.h"

_Static_assert(sizeof(hark_attention_plan) <= HARK_ATTENTION_PLAN_BYTES, "HARK_ATTENTION_PLAN_BYTES is too small for a plan");

#define PLAN_ALIGNMENT 16 /* alignment of a caller's memory for a plan */

static hark_status add_list(hark_context *context, size_t list, size_t *workspace) {
  size_t bytes;
  HARK_TRY(hark_size_add(context, list, *workspace, &bytes));
  if (bytes > SIZE_MAX - HARK_ALIGNMENT) return hark_fail(context, HARK_TOO_LARGE, "attention: a workspace of %zu bytes", bytes);
  *workspace = hark_align_up(bytes);
  return HARK_OK;
}

/* The sizes for the plan's descriptor. */
static hark_status measure(hark_context *context, hark_attention_plan *plan) {
  HARK_TRY(plan->algorithm->sizes(context, &plan->desc, plan->workers, &plan->sizes));
  HARK_TRY(hark_size_multiply(context, sizeof(hark_attention_sequence), (size_t)plan->desc.max_sequences, &plan->sequence_bytes));
  plan->sequence_bytes = hark_align_up(plan->sequence_bytes);
  HARK_TRY(add_list(context, plan->sequence_bytes, &plan->sizes.forward_workspace));
  if (plan->desc.forward_only) {
    plan->sizes.saved = 0;
    plan->sizes.backward_workspace = 0;
    return HARK_OK;
  }
  return add_list(context, plan->sequence_bytes, &plan->sizes.backward_workspace);
}

static hark_status fill(hark_context *context, const hark_attention_desc *desc, hark_attention_plan *plan) {
  hark_attention_desc resolved; /* before the plan is written, because the caller's descriptor may be in its memory */
  HARK_TRY(hark_attention_resolve(context, desc, &resolved));
  memset(plan, 0, sizeof *plan);
  plan->desc = resolved;
  HARK_TRY(hark_attention_choose(context, &plan->desc, &plan->algorithm));
  plan->backend = context->backend;
  plan->workers = hark_workers(context);
  plan->key_heads = plan->desc.key_heads;
  return measure(context, plan);
}

hark_status hark_attention_plan_part(hark_context *context, const hark_attention_plan *plan, int64_t queries, int64_t keys,
                                     hark_attention_plan *out) {
  *out = *plan;
  out->desc.query_length = queries;
  out->desc.key_length = keys;
  out->desc.longest = hark_max(queries, keys);
  return measure(context, out);
}

hark_status hark_attention_plan_create(hark_context *context, const hark_attention_desc *desc, hark_attention_plan **out) {
  *out = NULL;
  void *memory;
  HARK_TRY(hark_allocate(context, sizeof(hark_attention_plan), &memory));
  hark_attention_plan *plan = memory;
  const hark_status status = fill(context, desc, plan);
  if (status != HARK_OK) {
    hark_release(context, memory, sizeof *plan);
    return status;
  }
  plan->allocated_bytes = sizeof *plan;
  *out = plan;
  return HARK_OK;
}

hark_status hark_attention_plan_place(hark_context *context, const hark_attention_desc *desc, void *memory, size_t bytes,
                                      hark_attention_plan **out) {
  *out = NULL;
  if (memory == NULL || bytes < sizeof(hark_attention_plan) || (uintptr_t)memory % PLAN_ALIGNMENT != 0)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "attention: plan memory is %zu bytes at %p, expected HARK_ATTENTION_PLAN_BYTES = %d bytes aligned to %d", bytes,
                     memory, HARK_ATTENTION_PLAN_BYTES, PLAN_ALIGNMENT);
  HARK_TRY(fill(context, desc, memory));
  *out = memory;
  return HARK_OK;
}

void hark_attention_plan_destroy(hark_context *context, hark_attention_plan **plan) {
  if (plan == NULL || *plan == NULL) return;
  if ((*plan)->allocated_bytes > 0) hark_release(context, *plan, (*plan)->allocated_bytes);
  *plan = NULL;
}

hark_attention_sizes hark_attention_plan_sizes(const hark_attention_plan *plan) { return plan->sizes; }

const hark_attention_desc *hark_attention_plan_desc(const hark_attention_plan *plan) { return &plan->desc; }

/* Blocks of one head of a sequence of the maximum length. */
static double hierarchy_blocks(const hark_attention_desc *desc, int *levels) {
  hark_attention_desc filled = *desc;
  if (filled.hierarchy_block == 0) filled.hierarchy_block = HARK_HIERARCHY_DEFAULT_BLOCK;
  const hark_hierarchy h = hark_hierarchy_make(&filled, filled.key_length);
  *levels = h.levels;
  return hark_hierarchy_blocks(&h, filled.coarse_query == HARK_COARSE_QUERY_EXACT);
}

/* The picture of the maximum length. A block that would be refused counts as the default, and a row has no more columns than pixels. */
static hark_grid grid_of(const hark_attention_desc *desc) {
  hark_attention_desc filled = *desc;
  if (hark_grid_side(filled.hierarchy_block) == 0) filled.hierarchy_block = HARK_HIERARCHY_DEFAULT_BLOCK;
  filled.grid_columns = hark_min(filled.grid_columns, hark_max(1, filled.key_length));
  return hark_grid_make(&filled, filled.key_length);
}

/* Keys that a query sees in a sequence of the maximum lengths at the default query offset; dense or window. */
static int64_t visible_keys(const hark_attention_desc *desc, int64_t row) {
  const bool window = desc->structure == HARK_STRUCTURE_WINDOW;
  const int64_t position = row + (desc->causal ? desc->key_length - desc->query_length : 0);
  const int64_t first = window ? hark_max(position - desc->window, 0) : 0;
  const int64_t window_end = window ? position + desc->window : desc->key_length - 1;
  const int64_t last = hark_min(desc->causal ? hark_min(position, window_end) : window_end, desc->key_length - 1);
  return hark_max(0, last - first + 1);
}

/* Entries of one head with compressed attention, in a sequence of the maximum length; *scored: products of a query and a slot that it does
 * not select. With chunk_starts: as if all chunks had the minimum length. */
static double compressed_pairs(const hark_attention_desc *desc, double *scored) {
  const int64_t chunk = hark_max(1, desc->chunk), slots = hark_max(1, hark_min(desc->chunk_slots, chunk)), rows = desc->key_length;
  const int64_t selected = desc->selected_slots == 0 ? HARK_CHUNK_DEFAULT_SELECTED : hark_max(0, desc->selected_slots);
  double pairs = 0;
  *scored = 0;
  for (int64_t c = 0; c * chunk < rows; c++) {
    const double queries = (double)hark_min(chunk, rows - c * chunk), near = c > 0 ? (double)chunk : 0;
    const int64_t chunks = desc->kept_chunks <= 0 ? hark_max(0, c - 1) : hark_min(hark_max(0, c - 1), desc->kept_chunks);
    const int64_t best = hark_min(selected, chunks * slots), merged = (hark_max(0, c - 1) - chunks) * slots;
    pairs += queries * (near + (queries + 1) / 2 + (double)best + (double)hark_min(hark_max(0, desc->global_slots), merged));
    *scored += queries * (double)(chunks * slots - best);
  }
  return pairs;
}

/* Visible pairs of one head of such a sequence. */
static double visible_pairs(const hark_attention_desc *desc) {
  if (desc->structure == HARK_STRUCTURE_HIERARCHICAL && desc->grid_columns > 0) {
    const hark_grid grid = grid_of(desc);
    return hark_grid_entries(&grid, desc->coarse_query == HARK_COARSE_QUERY_EXACT);
  }
  if (desc->structure == HARK_STRUCTURE_HIERARCHICAL) {
    const double block = desc->hierarchy_block == 0 ? HARK_HIERARCHY_DEFAULT_BLOCK : (double)desc->hierarchy_block;
    int levels;
    return hierarchy_blocks(desc, &levels) * block * block;
  }
  if (desc->structure == HARK_STRUCTURE_COMPRESSED) {
    double scored;
    return compressed_pairs(desc, &scored);
  }
  if (!desc->causal && desc->structure != HARK_STRUCTURE_WINDOW) return (double)desc->query_length * (double)desc->key_length;
  double pairs = 0;
  for (int64_t row = 0; row < desc->query_length; row++) pairs += (double)visible_keys(desc, row);
  return pairs;
}

/* The same of queries and rows of the table of contextual positions: those of 0 to as many positions as a query sees keys. */
static double contextual_pairs(const hark_attention_desc *desc) {
  double pairs = 0;
  for (int64_t row = 0; desc->contextual_positions > 0 && row < desc->query_length; row++) {
    const int64_t keys = visible_keys(desc, row);
    if (keys > 0) pairs += (double)hark_min(desc->contextual_positions, keys + 1);
  }
  return pairs;
}

static double operations(const hark_attention_desc *desc, bool backward) {
  if (desc->normalisation == HARK_NORMALISATION_CME) return hark_attention_ridge_operations(desc, backward);
  const double pairs = visible_pairs(desc) * (double)desc->batch * (double)desc->heads;
  const double head_dim = (double)desc->head_dim, value_dim = desc->value_dim == 0 ? head_dim : (double)desc->value_dim;
  /* Forward: Q K^T, P V. Backward: Q K^T again, dS K, dS^T Q; dO V^T, P^T dO. Contextual: Q E^T; again, dT E, dT^T Q. */
  const double products = pairs * (backward ? 3 * head_dim + 2 * value_dim : head_dim + value_dim);
  const double contextual = contextual_pairs(desc) * (double)desc->batch * (double)desc->heads * head_dim * (backward ? 3 : 1);
  double scored = 0; /* only in the forward */
  if (desc->structure == HARK_STRUCTURE_COMPRESSED && !backward) (void)compressed_pairs(desc, &scored);
  return 2 * (products + contextual + scored * (double)desc->batch * (double)desc->heads * head_dim);
}

double hark_attention_desc_operations(const hark_attention_desc *given, bool backward) {
  hark_attention_desc desc = hark_attention_desc_default();
  const hark_status status = hark_take_struct(NULL, "hark_attention_desc", given, HARK_LEAST_ATTENTION_DESC, &desc, sizeof desc);
  return status == HARK_OK ? operations(&desc, backward) : 0;
}

double hark_attention_plan_operations(const hark_attention_plan *plan, bool backward) { return operations(&plan->desc, backward); }

/* A text buffer for appending, which counts the length that the full text would have. */
typedef struct text_buffer {
  char *text;
  size_t size;
  int length;
} text_buffer;

static void append(text_buffer *buffer, const char *format, ...) HARK_PRINTF(2, 3);
static void append(text_buffer *buffer, const char *format, ...) {
  const size_t used = (size_t)buffer->length < buffer->size ? (size_t)buffer->length : buffer->size;
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(buffer->text + used, buffer->size - used, format, list);
  va_end(list);
  if (length > 0) buffer->length += length;
}

/* Enough digits that the number is no other one. */
static void append_number(text_buffer *buffer, const char *name, double number) {
  char digits[HARK_NUMBER_BYTES];
  append(buffer, "%s%s", name, hark_number_print(number, digits));
}

static void print_hierarchy(text_buffer *buffer, const hark_attention_desc *desc) {
  static const char *const queries[] = {"default", "mean", "first", "exact"};
  if (desc->grid_columns > 0) {
    const hark_grid grid = grid_of(desc);
    append(buffer, ", %" PRId64 " columns, %s coarse queries, levels %d, blocks of %" PRId64 "x%" PRId64, desc->grid_columns,
           queries[desc->coarse_query], grid.levels, grid.side, grid.side);
    append(buffer, ", a head %.0f entries, %.4g and %.4g operations", visible_pairs(desc), hark_attention_desc_operations(desc, false),
           hark_attention_desc_operations(desc, true));
    return;
  }
  int levels;
  const double blocks = hierarchy_blocks(desc, &levels);
  append(buffer, ", %s partition, %s coarse queries%s", desc->partition == HARK_PARTITION_SIBLING ? "sibling" : "neighbour",
         queries[desc->coarse_query], desc->interpolation == HARK_INTERPOLATION_LINEAR ? ", linear interpolation" : "");
  append(buffer, ", levels %d, a head %.0f blocks of %" PRId64 "x%" PRId64 ", %.4g and %.4g operations", levels, blocks,
         desc->hierarchy_block, desc->hierarchy_block, hark_attention_desc_operations(desc, false),
         hark_attention_desc_operations(desc, true));
  if (desc->has_hierarchical_bias) append(buffer, ", hierarchical bias");
}

static void print_compressed(text_buffer *buffer, const hark_attention_desc *desc) {
  append(buffer, ", chunks of %s%" PRId64 ", %" PRId64 " slots each, %" PRId64 " selected", desc->has_chunk_starts != 0 ? "at least " : "",
         desc->chunk, desc->chunk_slots, desc->selected_slots);
  if (desc->kept_chunks > 0) append(buffer, ", %" PRId64 " chunks kept, %" PRId64 " global slots", desc->kept_chunks, desc->global_slots);
}

static void print_ridge(text_buffer *buffer, const hark_attention_desc *desc) {
  if (desc->unit) append(buffer, ", unit length");
  if (desc->bound != 0) append_number(buffer, ", bound ", desc->bound);
  if (desc->has_ridge)
    append(buffer, ", ridge of the calls");
  else
    append_number(buffer, ", ridge ", desc->ridge);
  if (desc->ridge_power != 0) append_number(buffer, " x keys^", desc->ridge_power);
  if (desc->has_noise != 0) append(buffer, ", noise");
  if (desc->solver == HARK_SOLVER_CONJUGATE_GRADIENTS) {
    append_number(buffer, ", conjugate gradients to ", desc->solver_tolerance);
    append(buffer, ", at most %" PRId64 " iterations", desc->solver_iterations);
  }
}

int hark_attention_plan_print(const hark_attention_plan *plan, char *text, size_t size) {
  const hark_attention_desc *desc = &plan->desc;
  text_buffer buffer = {text, size, 0};
  append(&buffer, "%s on %s: %s %s %s %s, batch %" PRId64 ", heads %" PRId64, plan->algorithm->name, plan->backend->name,
         hark_attention_structure_name(desc->structure), desc->kernel == HARK_KERNEL_RBF ? "rbf" : "exp",
         hark_attention_normalisation_name(desc->normalisation), hark_type_name(desc->type), desc->batch, desc->heads);
  if (desc->key_heads != desc->heads) append(&buffer, "/%" PRId64, desc->key_heads);
  append(&buffer, ", lengths %" PRId64 "x%" PRId64 ", dims %" PRId64 "/%" PRId64, desc->query_length, desc->key_length, desc->head_dim,
         desc->value_dim);
  if (desc->has_sigma)
    append(&buffer, ", sigma of the calls");
  else if (desc->kernel == HARK_KERNEL_RBF)
    append_number(&buffer, ", sigma ", desc->sigma);
  else
    append_number(&buffer, ", scale ", desc->scale);
  if (desc->normalisation == HARK_NORMALISATION_CME) print_ridge(&buffer, desc);
  if (desc->structure == HARK_STRUCTURE_WINDOW) append(&buffer, ", window %" PRId64, desc->window);
  if (desc->causal) append(&buffer, ", causal");
  if (desc->structure == HARK_STRUCTURE_HIERARCHICAL) print_hierarchy(&buffer, desc);
  if (desc->structure == HARK_STRUCTURE_COMPRESSED) print_compressed(&buffer, desc);
  if (desc->dropout > 0) append_number(&buffer, ", dropout ", desc->dropout);
  if (desc->has_mask) append(&buffer, ", mask");
  if (desc->has_bias) append(&buffer, ", attention bias");
  if (desc->has_log_kernel) append(&buffer, desc->directed_kernel != 0 ? ", directed log kernel" : ", log kernel");
  if (desc->has_forget) append(&buffer, ", forget gate");
  if (desc->contextual_positions > 0) append(&buffer, ", %" PRId64 " contextual positions", desc->contextual_positions);
  if (desc->has_segments) append(&buffer, ", segments");
  if (desc->forward_only) append(&buffer, ", forward only");
  append(&buffer, "; saved %zu, workspace %zu and %zu bytes", plan->sizes.saved, plan->sizes.forward_workspace,
         plan->sizes.backward_workspace);
  if (plan->algorithm->print != NULL) {
    char detail[256] = "";
    plan->algorithm->print(plan, detail, sizeof detail);
    if (detail[0] != '\0') append(&buffer, "; %s", detail);
  }
  return buffer.length;
}
