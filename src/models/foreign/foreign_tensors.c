/* foreign_tensors.c - see foreign_tensors.h. One tensor at a time is in host memory, as it is stored and in f32. */
#include "models/foreign/foreign_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compact.h"
#include "core/half.h"

#define EMBEDDING "embedding.token.weight" /* which a model with tied embeddings has instead of */
#define HEAD "head.weight"

/* ---- names ---- */

/* "blocks.#.x" with the number of a block in place of '#'. */
static void fill_in(const char *pattern, int64_t block, char out[HARK_PARAMETER_NAME_BYTES]) {
  const char *const mark = strchr(pattern, '#');
  if (mark == NULL)
    (void)snprintf(out, HARK_PARAMETER_NAME_BYTES, "%s", pattern);
  else
    (void)snprintf(out, HARK_PARAMETER_NAME_BYTES, "%.*s%" PRId64 "%s", (int)(mark - pattern), pattern, block, mark + 1);
}

/* Whether a name is a pattern's, and of which block: 0 without one. */
static bool matches(const char *pattern, const char *name, int64_t *block) {
  const char *const mark = strchr(pattern, '#');
  *block = 0;
  if (mark == NULL) return strcmp(pattern, name) == 0;
  const size_t front = (size_t)(mark - pattern);
  if (strncmp(pattern, name, front) != 0 || name[front] < '0' || name[front] > '9') return false;
  char *end = NULL;
  *block = strtoll(name + front, &end, 10);
  const bool plain = name[front] != '0' || end == name + front + 1; /* not 01 */
  return plain && strcmp(mark + 1, end) == 0;
}

/* The tensor, or that of a file of the model without its head, whose names have no prefix. */
static bool find_tensor(const hark_foreign_type *type, const hark_shards *shards, const char *name, hark_shard_tensor *out) {
  const size_t prefix = strlen(type->prefix);
  if (hark_shards_find(shards, name, out)) return true;
  return prefix > 0 && strncmp(name, type->prefix, prefix) == 0 && hark_shards_find(shards, name + prefix, out);
}

/* ---- groups ---- */

/* Rows `first` to `last` for one block. */
static hark_status make_group(hark_context *context, const hark_foreign_type *type, int first, int last, int64_t block,
                              const hark_network *network, hark_foreign_group *out) {
  char name[HARK_PARAMETER_NAME_BYTES];
  int64_t rows = 0;
  *out = (hark_foreign_group){.transposed = type->tensors[first].transposed};
  fill_in(type->tensors[first].name, block, out->name);
  for (int i = first; i < last && type->tensors[i].parameter != NULL; i++) {
    fill_in(type->tensors[i].parameter, block, name);
    hark_parameter *const parameter = hark_parameters_find(&network->parameters, name);
    if (parameter == NULL) continue;
    out->parts[out->count++] = parameter;
    out->rank = parameter->spec.rank;
    rows += parameter->spec.shape[0];
  }
  if (out->count == 0) return HARK_OK;
  if (out->count != last - first || out->rank > 2)
    return hark_fail(context, HARK_UNSUPPORTED, "model_type %s: \"%s\" needs all of its parts", type->name, out->name);
  const int64_t columns = out->rank == 2 ? out->parts[0]->spec.shape[1] : 1;
  out->shape[0] = out->transposed ? columns : rows;
  out->shape[1] = out->transposed ? rows : columns;
  return HARK_OK;
}

hark_status hark_foreign_tensors_visit(hark_context *context, const hark_foreign_type *type, const hark_network *network,
                                       hark_foreign_visitor *visit, void *user) {
  int32_t visited = 0;
  hark_foreign_group group;
  for (int first = 0, last = 0; first < type->tensor_count; first = last) {
    for (last = first; last < type->tensor_count && strcmp(type->tensors[last].name, type->tensors[first].name) == 0;) last++;
    const int64_t blocks = strchr(type->tensors[first].name, '#') != NULL ? network->config.layers : 1;
    for (int64_t block = 0; block < blocks; block++) {
      HARK_TRY(make_group(context, type, first, last, block, network, &group));
      if (group.count == 0) continue;
      visited += group.count;
      HARK_TRY(visit(context, &group, user));
    }
  }
  if (visited == network->parameters.count) return HARK_OK;
  return hark_fail(context, HARK_UNSUPPORTED, "model_type %s has counterparts for %" PRId32 " of the %" PRId32 " parameters of the model",
                   type->name, visited, network->parameters.count);
}

/* ---- checking ---- */

typedef struct reading {
  const hark_foreign_type *type;
  const hark_shards *shards;
  const char *folder;
} reading;

static const char *shape_of(const hark_stored_tensor *stored, char text[HARK_SHAPE_TEXT_BYTES]) {
  hark_tensor tensor = {.rank = stored->rank};
  memcpy(tensor.shape, stored->shape, sizeof tensor.shape);
  return hark_shape_text(&tensor, text, HARK_SHAPE_TEXT_BYTES);
}

static hark_status check_group(hark_context *context, const hark_foreign_group *group, void *user) {
  const reading *const from = user;
  hark_shard_tensor found;
  if (!find_tensor(from->type, from->shards, group->name, &found))
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor \"%s\" is missing", from->folder, group->name);
  const hark_stored_tensor *const stored = found.tensor;
  if (stored->type != HARK_F32 && !hark_type_is_half(stored->type))
    return hark_fail(context, HARK_UNSUPPORTED, "%s: tensor \"%s\" is %s, expected F32, F16 or BF16", found.shard->path, group->name,
                     stored->type_name);
  bool same = stored->rank == group->rank;
  for (int i = 0; i < group->rank && same; i++) same = stored->shape[i] == group->shape[i];
  if (same) return HARK_OK;
  char is[HARK_SHAPE_TEXT_BYTES], expected[HARK_SHAPE_TEXT_BYTES];
  hark_stored_tensor described = {.rank = group->rank};
  memcpy(described.shape, group->shape, sizeof group->shape);
  return hark_fail(context, HARK_BAD_FILE, "%s: tensor \"%s\" has shape %s, expected %s", found.shard->path, group->name,
                   shape_of(stored, is), shape_of(&described, expected));
}

static hark_status read_bytes(hark_context *context, const hark_shard_tensor *from, void **out) {
  HARK_TRY(hark_allocate(context, from->tensor->bytes, out));
  const hark_status status = hark_safetensors_read(context, from->shard->file, from->tensor, *out);
  if (status != HARK_OK) {
    hark_release(context, *out, from->tensor->bytes);
    *out = NULL;
  }
  return status;
}

static hark_status compare(hark_context *context, const hark_shard_tensor *one, const hark_shard_tensor *other, bool *equal) {
  void *a = NULL, *b = NULL;
  *equal = false;
  if (one->tensor->type != other->tensor->type || one->tensor->bytes != other->tensor->bytes) return HARK_OK;
  hark_status status = read_bytes(context, one, &a);
  if (status == HARK_OK) status = read_bytes(context, other, &b);
  *equal = status == HARK_OK && memcmp(a, b, one->tensor->bytes) == 0;
  hark_release(context, a, one->tensor->bytes);
  hark_release(context, b, other->tensor->bytes);
  return status;
}

/* The head of a model whose embeddings are tied: files may contain the same numbers twice. */
static hark_status check_tied(hark_context *context, const reading *from, const hark_shard_tensor *head) {
  hark_shard_tensor table;
  bool equal = false;
  for (int i = 0; i < from->type->tensor_count; i++) {
    const hark_foreign_tensor *const row = &from->type->tensors[i];
    if (row->parameter == NULL || strcmp(row->parameter, EMBEDDING) != 0) continue;
    if (find_tensor(from->type, from->shards, row->name, &table)) HARK_TRY(compare(context, head, &table, &equal));
  }
  if (equal) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE,
                   "%s: tensor \"%s\" is not the table of embeddings, and the configuration says that they are tied", head->shard->path,
                   head->tensor->name);
}

/* Whether the model has the tensor of a row, or the row says that it is not read. */
static hark_status examine(hark_context *context, const reading *from, const hark_network *network, const hark_foreign_tensor *row,
                           int64_t block, const hark_shard_tensor *tensor, bool *expected) {
  char name[HARK_PARAMETER_NAME_BYTES];
  if (strchr(row->name, '#') != NULL && block >= network->config.layers) return HARK_OK;
  *expected = true;
  if (row->parameter == NULL) return HARK_OK;
  fill_in(row->parameter, block, name);
  if (hark_parameters_find(&network->parameters, name) != NULL) return HARK_OK;
  if (strcmp(name, HEAD) == 0 && network->config.tie_embeddings) return check_tied(context, from, tensor);
  *expected = false;
  return HARK_OK;
}

/* Whether there is the same name with the prefix too, which is the one that is read. */
static bool has_prefixed(const reading *from, const char *name) {
  char full[HARK_PARAMETER_NAME_BYTES];
  hark_shard_tensor found;
  const int length = snprintf(full, sizeof full, "%s%s", from->type->prefix, name);
  return length > 0 && (size_t)length < sizeof full && hark_shards_find(from->shards, full, &found);
}

static hark_status check_expected(hark_context *context, const reading *from, const hark_network *network,
                                  const hark_shard_tensor *tensor) {
  const size_t prefix = strlen(from->type->prefix);
  const char *const name = tensor->tensor->name;
  char shown[HARK_SHOWN_BYTES];
  bool expected = false;
  int64_t block = 0;
  for (int i = 0; i < from->type->tensor_count && !expected; i++) {
    const hark_foreign_tensor *const row = &from->type->tensors[i];
    const bool prefixed = prefix > 0 && strncmp(row->name, from->type->prefix, prefix) == 0;
    if (matches(row->name, name, &block) || (prefixed && matches(row->name + prefix, name, &block) && !has_prefixed(from, name)))
      HARK_TRY(examine(context, from, network, row, block, tensor, &expected));
  }
  if (expected) return HARK_OK;
  return hark_fail(context, HARK_BAD_FILE, "%s: tensor \"%s\" is unexpected: model_type %s with this configuration has none",
                   tensor->shard->path, hark_text_shown(name, shown), from->type->name);
}

hark_status hark_foreign_tensors_check(hark_context *context, const hark_foreign_type *type, const hark_shards *shards, const char *folder,
                                       const hark_network *network) {
  reading from = {type, shards, folder};
  HARK_TRY(hark_foreign_tensors_visit(context, type, network, check_group, &from));
  for (int64_t i = 0; i < shards->count; i++)
    for (int64_t t = 0; t < hark_safetensors_count(shards->list[i].file); t++) {
      const hark_shard_tensor tensor = {&shards->list[i], hark_safetensors_tensor(shards->list[i].file, t)};
      HARK_TRY(check_expected(context, &from, network, &tensor));
    }
  return HARK_OK;
}

/* ---- reading ---- */

static hark_status hold_group(hark_context *context, const hark_foreign_group *group, void *user) {
  const reading *const from = user;
  hark_shard_tensor found;
  if (!find_tensor(from->type, from->shards, group->name, &found) || !hark_type_is_half(found.tensor->type)) return HARK_OK;
  for (int i = 0; i < group->count; i++) {
    hark_parameter *const parameter = group->parts[i];
    if (parameter->spec.compact)
      HARK_TRY(hark_parameter_hold(context, parameter, found.tensor->type));
    else if (parameter->spec.decays)
      parameter->rounded = found.tensor->type;
  }
  return HARK_OK;
}

hark_status hark_foreign_tensors_hold(hark_context *context, const hark_foreign_type *type, const hark_shards *shards,
                                      const hark_network *network) {
  reading from = {type, shards, NULL};
  return hark_foreign_tensors_visit(context, type, network, hold_group, &from);
}

/* out[r, c] = all[c, first + r], all [columns, rows_in_all]. */
static void transpose_part(const float *all, int64_t rows_in_all, int64_t first, int64_t rows, int64_t columns, float *out) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c++) out[r * columns + c] = all[c * rows_in_all + first + r];
}

/* The parts of a tensor whose numbers are in memory, through `part`, which has room for the largest of them. */
static hark_status store_parts(hark_context *context, const hark_foreign_group *group, const char *path, const float *all, float *part) {
  const int64_t rows_in_all = group->shape[1];
  int64_t first = 0;
  for (int i = 0; i < group->count; i++) {
    hark_parameter *const parameter = group->parts[i];
    const int64_t rows = parameter->spec.shape[0], columns = rows > 0 ? parameter->count / rows : 0;
    const float *numbers = all + first * columns;
    if (group->transposed) {
      transpose_part(all, rows_in_all, first, rows, columns, part);
      numbers = part;
    }
    HARK_TRY(hark_parameter_store(context, path, parameter, numbers));
    first += rows;
  }
  return HARK_OK;
}

/* Through f32 in host memory. */
static hark_status read_converted(hark_context *context, const hark_foreign_group *group, const hark_shard_tensor *from) {
  const int64_t count = group->shape[0] * (group->rank == 2 ? group->shape[1] : 1);
  const size_t numbers = hark_align_up((size_t)count * sizeof(float)), stored = hark_align_up((size_t)from->tensor->bytes);
  const size_t bytes = numbers + stored + (group->transposed ? numbers : 0);
  void *memory = NULL;
  HARK_TRY(hark_allocate(context, bytes, &memory));
  float *const all = memory, *const part = (float *)(void *)((char *)memory + numbers + stored);
  void *const raw = (char *)memory + numbers;
  hark_status status = hark_safetensors_read(context, from->shard->file, from->tensor, from->tensor->type == HARK_F32 ? memory : raw);
  if (status == HARK_OK && from->tensor->type != HARK_F32) hark_half_to_f32(from->tensor->type, raw, count, all);
  if (status == HARK_OK) status = store_parts(context, group, from->shard->path, all, part);
  hark_release(context, memory, bytes);
  return status;
}

static hark_status read_group(hark_context *context, const hark_foreign_group *group, void *user) {
  const reading *const from = user;
  hark_shard_tensor found;
  if (!find_tensor(from->type, from->shards, group->name, &found)) return HARK_OK; /* checked before */
  hark_parameter *const parameter = group->parts[0];
  const bool direct =
      found.tensor->type == parameter->weight.type || (parameter->weight.type == HARK_F32 && !hark_parameter_is_rounded(parameter));
  if (group->count == 1 && !group->transposed && direct)
    return hark_safetensors_load_into(context, found.shard->file, found.tensor->name, &parameter->weight);
  return read_converted(context, group, &found);
}

hark_status hark_foreign_tensors_read(hark_context *context, const hark_foreign_type *type, const hark_shards *shards,
                                      const hark_network *network) {
  reading from = {type, shards, NULL};
  return hark_foreign_tensors_visit(context, type, network, read_group, &from);
}
