/* safetensors.c - the strict reader.
 *
 *     [n: u64] [header: n bytes of JSON] [data]
 *     header = { "NAME": {"dtype": T, "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {KEY: TEXT, ..} }
 *
 * Checked in this order, each step bounded by the previous one: length of the file and of the header; the header's characters, depth and
 * number of items in one pass over its bytes (scan_header, because the tree of json_tree.h has about 50 bytes per item); JSON, UTF-8 and
 * duplicates by json_tree.h; each entry's fields; the products of extents; and that the tensors, sorted by offset, cover the data without
 * gap or overlap. Only then are tensors readable.
 * Cost: O(header + tensors log tensors). Source: the format's description, https://huggingface.co/docs/safetensors.
 */
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/half.h"
#include "io/foreign.h"
#include "io/json_tree.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors holds little-endian numbers, which hark reads as they are"
#endif

#define LENGTH_BYTES 8
#define HEADER_DEPTH 3                       /* names, fields, extents */
#define TENSOR_ITEMS (6 + HARK_MAX_RANK + 2) /* of one tensor (object, fields, extents, offsets) and one entry of metadata at most */
#define METADATA_KEY "__metadata__"
#define SHOWN_BYTES (HARK_SHOWN_BYTES - 4) /* of a name in a message */
#define STAGE_BYTES ((size_t)1 << 22)      /* of a copy for reading into a backend's memory */

typedef struct stored_type {
  const char *name;
  unsigned bits;
  hark_type type;
} stored_type;

static const stored_type types[] = {
    {"F32", 32, HARK_F32},     {"F64", 64, HARK_F64},     {"I32", 32, HARK_I32},     {"I64", 64, HARK_I64},     {"U8", 8, HARK_U8},
    {"F16", 16, HARK_F16},     {"BF16", 16, HARK_BF16},   {"BOOL", 8, HARK_NONE},    {"I8", 8, HARK_I8},        {"I16", 16, HARK_NONE},
    {"U16", 16, HARK_NONE},    {"U32", 32, HARK_NONE},    {"U64", 64, HARK_NONE},    {"C64", 64, HARK_NONE},    {"F8_E4M3", 8, HARK_NONE},
    {"F8_E5M2", 8, HARK_NONE}, {"F8_E8M0", 8, HARK_NONE}, {"F6_E2M3", 6, HARK_NONE}, {"F6_E3M2", 6, HARK_NONE}, {"F4", 4, HARK_NONE},
};
static const size_t type_count = sizeof types / sizeof types[0];

struct hark_safetensors {
  size_t block_bytes; /* of this struct and all below, one piece of memory */
  int descriptor;     /* -1: in memory */
  bool borrowed;      /* the descriptor is the caller's */
  const char *memory;
  uint64_t base, size; /* of the file in its descriptor */
  const char *path;
  hark_stored_tensor *tensors;
  const hark_stored_tensor **by_name;
  int64_t count;
  hark_metadata_entry *metadata;
  int64_t metadata_count;
};

const char *hark_safetensors_type_name(hark_type type) {
  for (size_t i = 0; i < type_count && type != HARK_NONE; i++) {
    if (types[i].type == type) return types[i].name;
  }
  return NULL;
}

/* ---- messages ---- */

static hark_status bad(hark_context *context, const char *path, const char *format, ...) HARK_PRINTF(3, 4);
static hark_status bad(hark_context *context, const char *path, const char *format, ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  return hark_fail(context, HARK_BAD_FILE, "%.200s: %s", path, line);
}

static const char *shown(const char *name, char out[SHOWN_BYTES + 4]) { return hark_text_shown(name, out); }

/* ---- header ---- */

static hark_status read_bytes(hark_context *context, const hark_safetensors *file, void *data, size_t bytes, uint64_t offset) {
  if (file->descriptor >= 0 && !file->borrowed) return hark_file_read_at(context, file->descriptor, file->path, data, bytes, offset);
  if (offset > file->size || bytes > file->size - offset) return hark_fail(context, HARK_BAD_FILE, "%s: ends too early", file->path);
  if (file->descriptor >= 0) return hark_file_read_at(context, file->descriptor, file->path, data, bytes, file->base + offset);
  if (bytes > 0) memcpy(data, file->memory + offset, bytes);
  return HARK_OK;
}

/* Checks the header's first and last bytes, and all bytes in one pass: only bytes that the format needs may occur, so that deep, long or
 * unusual JSON never reaches the parser. */
static hark_status scan_header(hark_context *context, const char *path, const char *header, size_t length) {
  static const hark_json_limits limits = {
      .depth = HEADER_DEPTH, .values = (int64_t)HARK_SAFETENSORS_TENSORS * TENSOR_ITEMS, .alphabet = "{}[]:,\"0123456789 \t\r\n"};
  if (header[0] != '{') return bad(context, path, "byte %d: the header does not begin with '{'", LENGTH_BYTES);
  size_t end = length, at = 0;
  while (header[end - 1] == ' ') end--;
  if (header[end - 1] != '}') return bad(context, path, "byte %zu: the header does not end with '}' and blanks", LENGTH_BYTES + end - 1);
  switch (hark_json_scan(header, end, &limits, &at, NULL)) {
    case HARK_JSON_FITS: return HARK_OK;
    case HARK_JSON_TOO_DEEP: return bad(context, path, "byte %zu: nested deeper than %d", LENGTH_BYTES + at, HEADER_DEPTH);
    case HARK_JSON_TOO_MANY: return bad(context, path, "byte %zu: more than %" PRId64 " items", LENGTH_BYTES + at, limits.values);
    case HARK_JSON_ODD_BYTE: break;
  }
  return bad(context, path, "byte %zu: a header can contain only objects, lists, texts and whole numbers from 0", LENGTH_BYTES + at);
}

/* Reads and parses the header; *data_begin is the offset after it. */
static hark_status read_header(hark_context *context, const hark_safetensors *file, hark_json_tree *out, uint64_t *data_begin) {
  const char *const path = file->path;
  unsigned char raw[LENGTH_BYTES];
  uint64_t length = 0;
  char front[HARK_FOREIGN_BYTES];
  const size_t seen = file->size < sizeof front ? (size_t)file->size : sizeof front;
  HARK_TRY(read_bytes(context, file, front, seen, 0));
  const char *const foreign = hark_foreign_file(front, seen);
  if (foreign != NULL)
    return bad(context, path, foreign == hark_foreign_pointer(front, seen) ? "is %s" : "is %s, expected safetensors", foreign);
  if (file->size < LENGTH_BYTES) return bad(context, path, "%" PRIu64 " bytes, at least %d expected", file->size, LENGTH_BYTES);
  HARK_TRY(read_bytes(context, file, raw, sizeof raw, 0));
  for (int i = LENGTH_BYTES - 1; i >= 0; i--) length = length << 8 | raw[i];
  if (length > file->size - LENGTH_BYTES && seen > LENGTH_BYTES && front[LENGTH_BYTES] != '{')
    return bad(context, path, "is not a safetensors file: it begins with neither a length nor a header");
  if (length > HARK_SAFETENSORS_HEADER_BYTES) {
    return bad(context, path, "byte 0: header of %" PRIu64 " bytes, at most %" PRIu64 " expected", length, HARK_SAFETENSORS_HEADER_BYTES);
  }
  if (length > file->size - LENGTH_BYTES) {
    return bad(context, path, "byte 0: header of %" PRIu64 " bytes in a file of %" PRIu64, length, file->size);
  }
  if (length < 2) return bad(context, path, "byte 0: header of %" PRIu64 " bytes, at least {} expected", length);
  void *header;
  HARK_TRY(hark_allocate(context, (size_t)length, &header));
  hark_status status = read_bytes(context, file, header, (size_t)length, LENGTH_BYTES);
  if (status == HARK_OK) status = scan_header(context, path, header, (size_t)length);
  if (status == HARK_OK) {
    hark_json_fault fault;
    status = hark_json_tree_read(context, header, (size_t)length, &fault, out);
    if (status == HARK_BAD_FILE) status = bad(context, path, "byte %zu: header: %s", LENGTH_BYTES + fault.at, fault.what);
  }
  hark_release(context, header, (size_t)length);
  *data_begin = LENGTH_BYTES + length;
  return status;
}

/* ---- one tensor ---- */

static hark_status read_type(hark_context *context, const char *path, const char *name, const hark_json_node *value,
                             const stored_type **out) {
  char text[SHOWN_BYTES + 4], word[SHOWN_BYTES + 4];
  const char *const given = hark_json_text(value);
  if (given == NULL) return bad(context, path, "tensor \"%s\": dtype is missing or not a text", shown(name, text));
  for (size_t i = 0; i < type_count; i++) {
    if (strcmp(types[i].name, given) == 0) {
      *out = &types[i];
      return HARK_OK;
    }
  }
  return bad(context, path, "tensor \"%s\": unknown dtype \"%s\"", shown(name, text), shown(given, word));
}

/* shape, and bytes = product of the extents times the element. The product of the extents that are not 0 must not overflow, as with the
 * strides of a tensor in memory. */
static hark_status read_shape(hark_context *context, const char *path, const hark_json_node *value, const stored_type *type,
                              hark_stored_tensor *t) {
  char text[SHOWN_BYTES + 4];
  if (!hark_json_is(value, HARK_JSON_LIST))
    return bad(context, path, "tensor \"%s\": shape is missing or not a list", shown(t->name, text));
  const int64_t rank = value->count;
  if (rank > HARK_MAX_RANK)
    return bad(context, path, "tensor \"%s\": rank %" PRId64 ", at most %d expected", shown(t->name, text), rank, HARK_MAX_RANK);
  uint64_t bits = type->bits;
  bool empty = false;
  t->rank = (int)rank;
  const hark_json_node *extent = value->first;
  for (int i = 0; i < t->rank; i++, extent = extent->next) {
    if (extent->kind != HARK_JSON_INTEGER || extent->integer < 0) {
      return bad(context, path, "tensor \"%s\": shape: extent %d is not a whole number from 0", shown(t->name, text), i);
    }
    t->shape[i] = extent->integer;
    if (t->shape[i] > 0 && bits > (uint64_t)INT64_MAX / (uint64_t)t->shape[i]) {
      return bad(context, path, "tensor \"%s\": the product of its extents overflows", shown(t->name, text));
    }
    empty = empty || t->shape[i] == 0;
    bits *= (uint64_t)hark_max(t->shape[i], 1);
  }
  if (empty) bits = 0;
  if (bits % 8 != 0) return bad(context, path, "tensor \"%s\": its %" PRIu64 " bits are not whole bytes", shown(t->name, text), bits);
  t->bytes = bits / 8;
  return HARK_OK;
}

static hark_status read_offsets(hark_context *context, const char *path, const hark_json_node *value, uint64_t data_begin,
                                uint64_t data_bytes, hark_stored_tensor *t) {
  char text[SHOWN_BYTES + 4];
  const bool pair = hark_json_is(value, HARK_JSON_LIST) && value->count == 2;
  if (!pair || value->first->kind != HARK_JSON_INTEGER || value->first->next->kind != HARK_JSON_INTEGER) {
    return bad(context, path, "tensor \"%s\": data_offsets is missing or not a pair of whole numbers", shown(t->name, text));
  }
  const int64_t begin = value->first->integer, end = value->first->next->integer;
  if (begin < 0 || end < begin || (uint64_t)end > data_bytes) {
    return bad(context, path, "tensor \"%s\": data_offsets [%lld, %lld] in data of %" PRIu64 " bytes", shown(t->name, text),
               (long long)begin, (long long)end, data_bytes);
  }
  if ((uint64_t)(end - begin) != t->bytes) {
    return bad(context, path, "tensor \"%s\": data_offsets hold %lld bytes, shape and dtype need %" PRIu64, shown(t->name, text),
               (long long)(end - begin), t->bytes);
  }
  t->offset = data_begin + (uint64_t)begin;
  return HARK_OK;
}

static hark_status read_entry(hark_context *context, const char *path, const hark_json_node *entry, uint64_t data_begin,
                              uint64_t data_bytes, hark_stored_tensor *t) {
  static const char *const fields[] = {"dtype", "shape", "data_offsets"};
  char text[SHOWN_BYTES + 4], word[SHOWN_BYTES + 4];
  if (entry->kind != HARK_JSON_OBJECT) return bad(context, path, "tensor \"%s\": no object", shown(t->name, text));
  for (const hark_json_node *field = entry->first; field != NULL; field = field->next) {
    const char *const key = field->name;
    bool known = false;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) known = known || strcmp(key, fields[i]) == 0;
    if (!known) return bad(context, path, "tensor \"%s\": unknown field \"%s\"", shown(t->name, text), shown(key, word));
  }
  const stored_type *type = NULL;
  HARK_TRY(read_type(context, path, t->name, hark_json_member(entry, fields[0]), &type));
  t->type_name = type->name;
  t->type = type->type;
  HARK_TRY(read_shape(context, path, hark_json_member(entry, fields[1]), type, t));
  return read_offsets(context, path, hark_json_member(entry, fields[2]), data_begin, data_bytes, t);
}

/* ---- the whole header ---- */

static hark_status check_metadata(hark_context *context, const char *path, const hark_json_node *metadata) {
  char text[SHOWN_BYTES + 4];
  if (metadata->kind != HARK_JSON_OBJECT) return bad(context, path, METADATA_KEY ": no object");
  if (metadata->count > HARK_SAFETENSORS_TENSORS)
    return bad(context, path, METADATA_KEY ": more than %d entries", HARK_SAFETENSORS_TENSORS);
  for (const hark_json_node *entry = metadata->first; entry != NULL; entry = entry->next) {
    if (hark_json_text(entry) == NULL) return bad(context, path, METADATA_KEY ": \"%s\" is not a text", shown(entry->name, text));
  }
  return HARK_OK;
}

static int by_place(const void *a, const void *b) {
  const hark_stored_tensor *const x = a, *const y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b) {
  return strcmp((*(const hark_stored_tensor *const *)a)->name, (*(const hark_stored_tensor *const *)b)->name);
}

/* Checks that the sorted tensors cover the data: each begins where the previous one ends. */
static hark_status check_cover(hark_context *context, const hark_safetensors *file, uint64_t data_begin) {
  char text[SHOWN_BYTES + 4];
  uint64_t at = data_begin;
  for (int64_t i = 0; i < file->count; i++) {
    const hark_stored_tensor *const t = &file->tensors[i];
    if (t->offset < at) return bad(context, file->path, "tensor \"%s\": overlaps with another one", shown(t->name, text));
    if (t->offset > at) {
      return bad(context, file->path, "tensor \"%s\": %" PRIu64 " bytes before it belong to no tensor", shown(t->name, text),
                 t->offset - at);
    }
    at += t->bytes;
  }
  if (at != file->size) return bad(context, file->path, "the last %" PRIu64 " bytes belong to no tensor", file->size - at);
  return HARK_OK;
}

static const char *copy_text(const char *text, char **pool) {
  const size_t bytes = strlen(text) + 1;
  char *const at = *pool;
  memcpy(at, text, bytes);
  *pool = at + bytes;
  return at;
}

/* Counts names and texts, and refuses names that are empty or too long. */
static hark_status measure(hark_context *context, const char *path, const hark_json_node *header, size_t *count, size_t *pool) {
  *count = 0;
  *pool = strlen(path) + 1;
  for (const hark_json_node *entry = header->first; entry != NULL; entry = entry->next) {
    const char *const name = entry->name;
    const size_t length = strlen(name);
    if (strcmp(name, METADATA_KEY) == 0) continue;
    if (length == 0) return bad(context, path, "a tensor with an empty name");
    if (length > HARK_SAFETENSORS_NAME_BYTES) return bad(context, path, "a tensor's name of %zu bytes", length);
    *pool += length + 1;
    ++*count;
  }
  if (*count > HARK_SAFETENSORS_TENSORS) return bad(context, path, "more than %d tensors", HARK_SAFETENSORS_TENSORS);
  const hark_json_node *const metadata = hark_json_member(header, METADATA_KEY);
  if (metadata == NULL) return HARK_OK;
  HARK_TRY(check_metadata(context, path, metadata));
  for (const hark_json_node *entry = metadata->first; entry != NULL; entry = entry->next) *pool += strlen(entry->name) + entry->bytes + 2;
  return HARK_OK;
}

/* Makes the file's description from its header. `source`: where the bytes are. */
static hark_status build(hark_context *context, const hark_safetensors *source, const hark_json_node *header, uint64_t data_begin,
                         hark_safetensors **out) {
  size_t count, pool_bytes;
  HARK_TRY(measure(context, source->path, header, &count, &pool_bytes));
  const hark_json_node *const metadata = hark_json_member(header, METADATA_KEY);
  const size_t entries = metadata != NULL ? (size_t)metadata->count : 0;
  /* all counts are limited: no overflow */
  const size_t bytes = sizeof(hark_safetensors) + count * (sizeof(hark_stored_tensor) + sizeof(hark_stored_tensor *)) +
                       entries * sizeof(hark_metadata_entry) + pool_bytes;
  void *block;
  HARK_TRY(hark_allocate_zero(context, bytes, &block));
  hark_safetensors *const file = block;
  *file = *source;
  file->block_bytes = bytes;
  file->tensors = (hark_stored_tensor *)(file + 1);
  file->by_name = (const hark_stored_tensor **)(file->tensors + count);
  file->metadata = (hark_metadata_entry *)(file->by_name + count);
  char *pool = (char *)(file->metadata + entries);
  file->path = copy_text(source->path, &pool);
  hark_status status = HARK_OK;
  for (const hark_json_node *entry = header->first; entry != NULL && status == HARK_OK; entry = entry->next) {
    if (entry == metadata) continue;
    hark_stored_tensor *const t = &file->tensors[file->count++];
    t->name = copy_text(entry->name, &pool);
    status = read_entry(context, file->path, entry, data_begin, file->size - data_begin, t);
  }
  for (const hark_json_node *entry = metadata != NULL ? metadata->first : NULL; entry != NULL; entry = entry->next) {
    hark_metadata_entry *const copy = &file->metadata[file->metadata_count++];
    copy->key = copy_text(entry->name, &pool);
    copy->value = copy_text(entry->text, &pool);
  }
  if (status == HARK_OK) {
    qsort(file->tensors, count, sizeof(hark_stored_tensor), by_place);
    for (size_t i = 0; i < count; i++) file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, count, sizeof(hark_stored_tensor *), by_name);
    status = check_cover(context, file, data_begin);
  }
  if (status != HARK_OK) {
    hark_release(context, block, bytes);
    return status;
  }
  *out = file;
  return HARK_OK;
}

static hark_status open_source(hark_context *context, const hark_safetensors *source, hark_safetensors **out) {
  hark_json_tree header = {0};
  uint64_t data_begin = 0;
  hark_status status = read_header(context, source, &header, &data_begin);
  if (status == HARK_OK) status = build(context, source, header.root, data_begin, out);
  hark_json_tree_free(context, &header);
  return status;
}

hark_status hark_safetensors_open(hark_context *context, const char *path, hark_safetensors **out) {
  hark_safetensors source = {.path = path};
  *out = NULL;
  HARK_TRY(hark_file_open(context, path, &source.descriptor, &source.size));
  const hark_status status = open_source(context, &source, out);
  if (status != HARK_OK) hark_file_close(&source.descriptor);
  return status;
}

hark_status hark_safetensors_open_memory(hark_context *context, const char *name, const void *data, size_t bytes, hark_safetensors **out) {
  const hark_safetensors source = {.path = name, .descriptor = -1, .memory = data, .size = bytes};
  *out = NULL;
  return open_source(context, &source, out);
}

hark_status hark_safetensors_open_part(hark_context *context, const char *name, int descriptor, uint64_t base, uint64_t bytes,
                                       hark_safetensors **out) {
  const hark_safetensors source = {.path = name, .descriptor = descriptor, .borrowed = true, .base = base, .size = bytes};
  *out = NULL;
  return open_source(context, &source, out);
}

void hark_safetensors_close(hark_context *context, hark_safetensors **file) {
  if (*file == NULL) return;
  if (!(*file)->borrowed) hark_file_close(&(*file)->descriptor);
  hark_release(context, *file, (*file)->block_bytes);
  *file = NULL;
}

/* ---- use ---- */

int64_t hark_safetensors_count(const hark_safetensors *file) { return file->count; }
const hark_stored_tensor *hark_safetensors_tensor(const hark_safetensors *file, int64_t index) { return &file->tensors[index]; }
int64_t hark_safetensors_metadata_count(const hark_safetensors *file) { return file->metadata_count; }

const hark_stored_tensor *hark_safetensors_find(const hark_safetensors *file, const char *name) {
  const hark_stored_tensor sought = {.name = name}, *const key = &sought;
  const hark_stored_tensor **const found =
      file->count > 0 ? bsearch(&key, file->by_name, (size_t)file->count, sizeof(hark_stored_tensor *), by_name) : NULL;
  return found != NULL ? *found : NULL;
}

void hark_safetensors_metadata_entry(const hark_safetensors *file, int64_t index, const char **key, const char **value) {
  *key = file->metadata[index].key;
  *value = file->metadata[index].value;
}

const char *hark_safetensors_metadata(const hark_safetensors *file, const char *key) {
  for (int64_t i = 0; i < file->metadata_count; i++) {
    if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
  }
  return NULL;
}

hark_status hark_safetensors_read(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *tensor, void *data) {
  return read_bytes(context, file, data, (size_t)tensor->bytes, tensor->offset);
}

#define HALVES 2048 /* that are read at once */

hark_status hark_safetensors_read_f32(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *tensor, int64_t at,
                                      int64_t count, float *out) {
  const size_t stored = hark_type_bytes(tensor->type);
  uint16_t halves[HALVES];
  if (tensor->type == HARK_F32) return read_bytes(context, file, out, (size_t)count * stored, tensor->offset + (uint64_t)at * stored);
  for (int64_t here; count > 0; at += here, count -= here, out += here) {
    here = hark_min(count, HALVES);
    HARK_TRY(read_bytes(context, file, halves, (size_t)here * stored, tensor->offset + (uint64_t)at * stored));
    hark_half_to_f32(tensor->type, halves, here, out);
  }
  return HARK_OK;
}

static hark_status find_tensor(hark_context *context, const hark_safetensors *file, const char *name, const hark_stored_tensor **out) {
  char text[SHOWN_BYTES + 4];
  *out = hark_safetensors_find(file, name);
  return *out != NULL ? HARK_OK : hark_fail(context, HARK_NOT_FOUND, "%s: there is no tensor \"%s\"", file->path, shown(name, text));
}

/* Copies a tensor's numbers into the backend's memory, part by part; halves become f32 on the way. */
static hark_status fill_tensor(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *t, hark_tensor *tensor) {
  const size_t element = hark_type_bytes(tensor->type), stored = hark_type_bytes(t->type);
  const int64_t total = hark_tensor_count(tensor), step = hark_min((int64_t)(STAGE_BYTES / element), total);
  const bool widened = t->type != tensor->type;
  if (total == 0) return HARK_OK;
  const size_t stage_bytes = (size_t)step * (element + (widened ? stored : 0));
  void *stage;
  HARK_TRY(hark_allocate(context, stage_bytes, &stage));
  void *const halves = (char *)stage + (size_t)step * element;
  hark_status status = HARK_OK;
  for (int64_t at = 0; at < total && status == HARK_OK; at += step) {
    const int64_t extent = hark_min(step, total - at);
    hark_tensor part;
    status = read_bytes(context, file, widened ? halves : stage, (size_t)extent * stored, t->offset + (uint64_t)at * stored);
    if (status == HARK_OK) status = hark_tensor_describe(context, tensor->type, 1, &extent, &part);
    if (status != HARK_OK) break;
    if (widened) hark_half_to_f32(t->type, halves, extent, stage);
    part.data = (char *)tensor->data + (size_t)at * element;
    status = hark_tensor_write(context, &part, stage);
  }
  hark_release(context, stage, stage_bytes);
  return status;
}

hark_status hark_safetensors_load(hark_context *context, const hark_safetensors *file, const char *name, hark_tensor *out) {
  char text[SHOWN_BYTES + 4];
  const hark_stored_tensor *t;
  *out = (hark_tensor){0};
  HARK_TRY(find_tensor(context, file, name, &t));
  if (t->type == HARK_NONE) {
    return hark_fail(context, HARK_UNSUPPORTED, "%s: tensor \"%s\": hark does not compute with %s", file->path, shown(name, text),
                     t->type_name);
  }
  HARK_TRY(hark_tensor_create(context, t->type, t->rank, t->shape, out));
  const hark_status status = fill_tensor(context, file, t, out);
  if (status != HARK_OK) hark_tensor_destroy(context, out);
  return status;
}

hark_status hark_safetensors_expect(hark_context *context, const hark_safetensors *file, const char *name, const hark_tensor *tensor) {
  char text[SHOWN_BYTES + 4], found[HARK_SHAPE_TEXT_BYTES], expected[HARK_SHAPE_TEXT_BYTES];
  const hark_stored_tensor *t;
  HARK_TRY(find_tensor(context, file, name, &t));
  const bool widened = tensor->type == HARK_F32 && hark_type_is_half(t->type);
  bool same = (t->type == tensor->type || widened) && t->rank == tensor->rank;
  for (int i = 0; same && i < t->rank; i++) same = t->shape[i] == tensor->shape[i];
  if (!same) {
    hark_tensor described = {.type = t->type, .rank = t->rank};
    memcpy(described.shape, t->shape, sizeof described.shape);
    const char *const type = hark_safetensors_type_name(tensor->type);
    return hark_fail(context, HARK_BAD_FILE, "%s: tensor \"%s\" is %s %s, expected %s %s", file->path, shown(name, text), t->type_name,
                     hark_shape_text(&described, found, sizeof found), type != NULL ? type : "?",
                     hark_shape_text(tensor, expected, sizeof expected));
  }
  return HARK_OK;
}

hark_status hark_safetensors_load_into(hark_context *context, const hark_safetensors *file, const char *name, hark_tensor *tensor) {
  HARK_TRY(hark_safetensors_expect(context, file, name, tensor));
  return fill_tensor(context, file, hark_safetensors_find(file, name), tensor);
}

#define FRONT_BYTES 9 /* the length, 8 bytes, of which the last is zero, and the first of the header */

hark_status hark_safetensors_is(hark_context *context, const char *path, bool *is) {
  char front[FRONT_BYTES];
  int descriptor = -1;
  uint64_t size = 0;
  *is = false;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  const hark_status status = size >= FRONT_BYTES ? hark_file_read_at(context, descriptor, path, front, FRONT_BYTES, 0) : HARK_OK;
  *is = status == HARK_OK && size >= FRONT_BYTES && front[FRONT_BYTES - 1] == '{' && front[FRONT_BYTES - 2] == 0;
  hark_file_close(&descriptor);
  return status;
}
