/* safetensors_write.c - the writer: deterministic and atomic.
 *
 * Tensors are sorted by descending size of their elements and then by name. So every tensor is aligned to its element if the data begin at
 * a multiple of 8; blanks after the header ensure this. The same contents give the same bytes. Cost: one pass over the data in parts of
 * STAGE_BYTES.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/json_write.h"
#include "io/narrow.h"
#include "io/safetensors.h"

#define LENGTH_BYTES 8
#define STAGE_BYTES ((size_t)1 << 22)

static hark_type stored_type(const hark_named_tensor *named) { return named->stored != HARK_NONE ? named->stored : named->tensor->type; }

static int by_size_and_name(const void *a, const void *b) {
  const hark_named_tensor *const x = a, *const y = b;
  const size_t p = hark_type_bytes(stored_type(x)), q = hark_type_bytes(stored_type(y));
  return p != q ? (p > q ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_tensor_name(const void *a, const void *b) {
  return strcmp(((const hark_named_tensor *)a)->name, ((const hark_named_tensor *)b)->name);
}
static int by_key(const void *a, const void *b) {
  return strcmp(((const hark_metadata_entry *)a)->key, ((const hark_metadata_entry *)b)->key);
}

static hark_status bad(hark_context *context, const char *path, const char *name, const char *what) {
  char text[HARK_SHOWN_BYTES];
  return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: \"%s\": %s", path, hark_text_shown(name, text), what);
}

/* True for a text that JSON can contain unchanged: valid UTF-8. */
static bool is_text(const char *text) {
  const unsigned char *at = (const unsigned char *)text, *const end = at + strlen(text);
  while (at < end) {
    const size_t length = hark_json_sequence_length(at, (size_t)(end - at));
    if (length == 0) return false;
    at += length;
  }
  return true;
}

/* Refuses what cannot be written; `sorted` is by name. */
static hark_status check_tensors(hark_context *context, const char *path, const hark_named_tensor *sorted, int64_t count) {
  if (count > HARK_SAFETENSORS_TENSORS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: more than %d tensors", path, HARK_SAFETENSORS_TENSORS);
  for (int64_t i = 0; i < count; i++) {
    const char *const name = sorted[i].name;
    if (name[0] == 0 || strlen(name) > HARK_SAFETENSORS_NAME_BYTES) return bad(context, path, name, "a name of 1 to 4096 bytes expected");
    if (!is_text(name)) return bad(context, path, name, "the name is not UTF-8");
    if (strcmp(name, "__metadata__") == 0) return bad(context, path, name, "no name for a tensor");
    if (i > 0 && strcmp(name, sorted[i - 1].name) == 0) return bad(context, path, name, "given twice");
    const hark_type type = sorted[i].tensor->type, stored = stored_type(&sorted[i]);
    if (hark_safetensors_type_name(stored) == NULL) return bad(context, path, name, "a type that files do not hold");
    if (stored != type && !(type == HARK_F32 && hark_type_is_half(stored)))
      return bad(context, path, name, "only f32 can be stored as another type, bf16 or f16");
    if (!hark_tensor_is_contiguous(sorted[i].tensor)) return bad(context, path, name, "not contiguous");
  }
  return HARK_OK;
}

static hark_status check_metadata(hark_context *context, const char *path, const hark_metadata_entry *sorted, int64_t count) {
  if (count > HARK_SAFETENSORS_TENSORS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "%s: more than %d metadata", path, HARK_SAFETENSORS_TENSORS);
  for (int64_t i = 0; i < count; i++) {
    if (!is_text(sorted[i].key) || !is_text(sorted[i].value)) return bad(context, path, sorted[i].key, "metadata that are not UTF-8");
    if (i > 0 && strcmp(sorted[i].key, sorted[i - 1].key) == 0) return bad(context, path, sorted[i].key, "metadata given twice");
  }
  return HARK_OK;
}

/* The header's text, padded. The tensors' bytes follow each other in the given order. */
static void print_header(hark_text *text, const hark_named_tensor *tensors, int64_t count, const hark_metadata_entry *metadata,
                         int64_t metadata_count) {
  uint64_t at = 0;
  hark_text_append(text, "{");
  if (metadata_count > 0) {
    hark_text_append(text, "\"__metadata__\":{");
    for (int64_t i = 0; i < metadata_count; i++) {
      if (i > 0) hark_text_append(text, ",");
      hark_json_append_string(text, metadata[i].key);
      hark_text_append(text, ":");
      hark_json_append_string(text, metadata[i].value);
    }
    hark_text_append(text, "}%s", count > 0 ? "," : "");
  }
  for (int64_t i = 0; i < count; i++) {
    const hark_tensor *const tensor = tensors[i].tensor;
    const hark_type type = stored_type(&tensors[i]);
    const uint64_t bytes = (uint64_t)hark_tensor_count(tensor) * hark_type_bytes(type);
    if (i > 0) hark_text_append(text, ",");
    hark_json_append_string(text, tensors[i].name);
    hark_text_append(text, ":{\"dtype\":\"%s\",\"shape\":[", hark_safetensors_type_name(type));
    for (int d = 0; d < tensor->rank; d++) hark_text_append(text, "%s%" PRId64, d > 0 ? "," : "", tensor->shape[d]);
    hark_text_append(text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + bytes);
    at += bytes;
  }
  hark_text_append(text, "}");
  while (text->status == HARK_OK && text->length % LENGTH_BYTES != 0) hark_text_append(text, " ");
}

/* Rounds `count` numbers of f32 in `stage` to halves, in their place: each is written no later than it is read. */
static hark_status round_part(hark_context *context, const char *path, const hark_named_tensor *named, int64_t at, int64_t count,
                              void *stage) {
  for (int64_t i = 0; i < count; i++) {
    const hark_narrowing to = {.path = path, .name = named->name, .type = named->stored, .first = at + i};
    float value;
    memcpy(&value, (const char *)stage + (size_t)i * sizeof value, sizeof value);
    HARK_TRY(hark_narrow(context, &to, 1, 1, &value, (char *)stage + (size_t)i * sizeof(uint16_t), NULL));
  }
  return HARK_OK;
}

/* stage <- elements [at, at + extent) */
static hark_status read_part(hark_context *context, const hark_named_tensor *named, int64_t at, int64_t extent, void *stage) {
  hark_tensor part;
  if (named->source != NULL) return named->source->read(context, named->source, at, extent, stage);
  HARK_TRY(hark_tensor_describe(context, named->tensor->type, 1, &extent, &part));
  part.data = (char *)named->tensor->data + (size_t)at * hark_type_bytes(named->tensor->type);
  return hark_tensor_read(context, &part, stage);
}

/* Writes a tensor's numbers, part by part through `stage`. */
static hark_status append_tensor(hark_context *context, hark_writer *writer, const char *path, const hark_named_tensor *named,
                                 void *stage) {
  const hark_tensor *const tensor = named->tensor;
  const hark_type stored = stored_type(named);
  const size_t element = hark_type_bytes(tensor->type);
  const int64_t total = hark_tensor_count(tensor), step = (int64_t)(STAGE_BYTES / element);
  for (int64_t at = 0; at < total; at += step) {
    const int64_t extent = hark_min(step, total - at);
    HARK_TRY(read_part(context, named, at, extent, stage));
    if (stored != tensor->type) HARK_TRY(round_part(context, path, named, at, extent, stage));
    HARK_TRY(hark_writer_append(context, writer, stage, (size_t)extent * hark_type_bytes(stored)));
  }
  return HARK_OK;
}

static hark_status write_file(hark_context *context, const char *path, const hark_text *header, const hark_named_tensor *tensors,
                              int64_t count, hark_file_summary *summary) {
  unsigned char length[LENGTH_BYTES];
  for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (unsigned char)((uint64_t)header->length >> (8 * i));
  if (header->length > HARK_SAFETENSORS_HEADER_BYTES)
    return hark_fail(context, HARK_TOO_LARGE, "%s: header of %zu bytes", path, header->length);
  hark_writer *writer;
  void *memory, *stage = NULL;
  HARK_TRY(hark_allocate_zero(context, sizeof *writer, &memory));
  writer = memory;
  hark_status status = hark_allocate(context, STAGE_BYTES, &stage);
  if (status == HARK_OK) status = hark_writer_open(context, writer, path);
  if (status == HARK_OK) status = hark_writer_append(context, writer, length, sizeof length);
  if (status == HARK_OK) status = hark_writer_append(context, writer, header->data, header->length);
  for (int64_t i = 0; i < count && status == HARK_OK; i++) status = append_tensor(context, writer, path, &tensors[i], stage);
  if (status == HARK_OK) status = hark_writer_commit(context, writer, summary);
  hark_writer_discard(writer);
  if (stage != NULL) hark_release(context, stage, STAGE_BYTES);
  hark_release(context, memory, sizeof *writer);
  return status;
}

hark_status hark_safetensors_write(hark_context *context, const char *path, const hark_named_tensor *tensors, int64_t count,
                                   const hark_metadata_entry *metadata, int64_t metadata_count, hark_file_summary *summary) {
  const size_t tensor_bytes = (size_t)count * sizeof *tensors, metadata_bytes = (size_t)metadata_count * sizeof *metadata;
  void *sorted = NULL, *entries = NULL;
  HARK_TRY(hark_allocate(context, tensor_bytes, &sorted));
  hark_status status = hark_allocate(context, metadata_bytes, &entries);
  hark_text header = hark_text_empty(context);
  if (status == HARK_OK && count > 0) {
    memcpy(sorted, tensors, tensor_bytes);
    qsort(sorted, (size_t)count, sizeof *tensors, by_tensor_name);
    status = check_tensors(context, path, sorted, count);
  }
  if (status == HARK_OK && metadata_count > 0) {
    memcpy(entries, metadata, metadata_bytes);
    qsort(entries, (size_t)metadata_count, sizeof *metadata, by_key);
    status = check_metadata(context, path, entries, metadata_count);
  }
  if (status == HARK_OK) {
    if (count > 0) qsort(sorted, (size_t)count, sizeof *tensors, by_size_and_name);
    print_header(&header, sorted, count, entries, metadata_count);
    status = header.status;
  }
  if (status == HARK_OK) status = write_file(context, path, &header, sorted, count, summary);
  hark_text_free(&header);
  if (sorted != NULL) hark_release(context, sorted, tensor_bytes);
  if (entries != NULL) hark_release(context, entries, metadata_bytes);
  return status;
}
