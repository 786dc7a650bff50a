/* fuzz_safetensors.c - any bytes as a file of tensors.
 *
 * Accepted: the tensors cover the data without gap or overlap, their bytes are those of the input, those that hark computes with go into
 * tensors, are written and read back as the same, and the same contents give the same bytes. Refused: with a reason, and the same one for a
 * file and for memory. Nothing costs more memory than the input's size lets expect. */
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "io/safetensors.h"

#define PARSED_BYTES 64                  /* of a parsed header for each of its bytes at most: "0," is a node and a place in a list */
#define STAGE_BYTES ((size_t)8 << 20)    /* of copies on their way to or from a file */
#define WRITTEN_LIMIT ((int64_t)1 << 10) /* tensors of a file that is written back: flushing takes longer than reading */

static uint64_t header_end(const uint8_t *data) {
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | data[i];
  return length + 8;
}

static void check_tensor(hark_context *context, const hark_safetensors *file, const hark_stored_tensor *t, const uint8_t *data) {
  FUZZ_CHECK(t->rank >= 0 && t->rank <= HARK_MAX_RANK, "rank %d", t->rank);
  FUZZ_CHECK(t->name[0] != 0 && strcmp(t->name, "__metadata__") != 0, "a tensor called \"%s\"", t->name);
  FUZZ_CHECK(hark_safetensors_find(file, t->name) == t, "%s is found as another one", t->name);
  if (t->type != HARK_NONE) {
    uint64_t bytes = hark_type_bytes(t->type);
    for (int i = 0; i < t->rank; i++) bytes *= (uint64_t)t->shape[i];
    FUZZ_CHECK(bytes == t->bytes, "%s has %llu bytes, not those of its shape", t->name, (unsigned long long)t->bytes);
  }
  void *const copy = malloc((size_t)t->bytes + 1);
  const hark_status status = hark_safetensors_read(context, file, t, copy);
  FUZZ_CHECK(status == HARK_OK, "%s", hark_context_message(context));
  FUZZ_CHECK(memcmp(copy, data + t->offset, (size_t)t->bytes) == 0, "%s is not what stands in the file", t->name);
  free(copy);
}

static void check_file(hark_context *context, const hark_safetensors *file, const uint8_t *data, size_t size) {
  uint64_t at = header_end(data);
  for (int64_t i = 0; i < hark_safetensors_count(file); i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
    FUZZ_CHECK(t->offset == at && t->bytes <= size - at, "%s begins at %llu", t->name, (unsigned long long)t->offset);
    at += t->bytes;
    check_tensor(context, file, t, data);
  }
  FUZZ_CHECK(at == size, "the tensors end at %llu of %zu bytes", (unsigned long long)at, size);
  for (int64_t i = 0; i < hark_safetensors_metadata_count(file); i++) {
    const char *key, *value;
    hark_safetensors_metadata_entry(file, i, &key, &value);
    FUZZ_CHECK(hark_safetensors_metadata(file, key) == value, "metadata \"%s\" is found as another one", key);
  }
}

static void check_same(hark_context *context, const hark_safetensors *file, const hark_safetensors *again, int64_t count) {
  FUZZ_CHECK(hark_safetensors_count(again) == count, "%lld tensors came back", (long long)hark_safetensors_count(again));
  FUZZ_CHECK(hark_safetensors_metadata_count(again) == hark_safetensors_metadata_count(file), "metadata were lost");
  for (int64_t i = 0; i < hark_safetensors_metadata_count(file); i++) {
    const char *key, *value;
    hark_safetensors_metadata_entry(file, i, &key, &value);
    const char *const back = hark_safetensors_metadata(again, key);
    FUZZ_CHECK(back != NULL && strcmp(back, value) == 0, "metadata \"%s\" came back changed", key);
  }
  for (int64_t i = 0; i < count; i++) {
    const hark_stored_tensor *const b = hark_safetensors_tensor(again, i), *const a = hark_safetensors_find(file, b->name);
    FUZZ_CHECK(a != NULL && a->type == b->type && a->rank == b->rank && a->bytes == b->bytes, "%s came back changed", b->name);
    FUZZ_CHECK(memcmp(a->shape, b->shape, sizeof a->shape) == 0, "%s came back in another shape", b->name);
    FUZZ_CHECK(b->offset % hark_type_bytes(b->type) == 0, "%s is not aligned", b->name);
    char *const first = malloc(2 * (size_t)a->bytes + 1), *const second = first + a->bytes;
    const bool read =
        hark_safetensors_read(context, file, a, first) == HARK_OK && hark_safetensors_read(context, again, b, second) == HARK_OK;
    FUZZ_CHECK(read && memcmp(first, second, (size_t)a->bytes) == 0, "%s came back with other numbers", b->name);
    free(first);
  }
}

/* Loads what hark computes with, writes it in the given order and turned, reads the file back. */
static void write_back(hark_context *context, const hark_safetensors *file) {
  const int64_t all = hark_safetensors_count(file), entries = hark_safetensors_metadata_count(file);
  hark_tensor *const tensors = calloc((size_t)all + 1, sizeof *tensors);
  hark_named_tensor *const named = calloc((size_t)all + 1, sizeof *named), *const turned = calloc((size_t)all + 1, sizeof *turned);
  hark_metadata_entry *const metadata = calloc((size_t)entries + 1, sizeof *metadata);
  int64_t count = 0;
  for (int64_t i = 0; i < all; i++) {
    const hark_stored_tensor *const t = hark_safetensors_tensor(file, i);
    const hark_status status = hark_safetensors_load(context, file, t->name, &tensors[count]);
    FUZZ_CHECK(status == (t->type == HARK_NONE ? HARK_UNSUPPORTED : HARK_OK), "%s", hark_context_message(context));
    if (status != HARK_OK) continue;
    FUZZ_CHECK(hark_safetensors_load_into(context, file, t->name, &tensors[count]) == HARK_OK, "%s", hark_context_message(context));
    named[count] = (hark_named_tensor){.name = t->name, .tensor = &tensors[count]};
    count++;
  }
  for (int64_t i = 0; i < count; i++) turned[i] = named[count - 1 - i];
  for (int64_t i = 0; i < entries; i++) hark_safetensors_metadata_entry(file, i, &metadata[i].key, &metadata[i].value);
  hark_file_summary summary, other;
  const char *const path = fuzz_path(0, "a.safetensors"), *const second = fuzz_path(1, "b.safetensors");
  FUZZ_CHECK(hark_safetensors_write(context, path, named, count, metadata, entries, &summary) == HARK_OK, "%s",
             hark_context_message(context));
  FUZZ_CHECK(hark_safetensors_write(context, second, turned, count, metadata, entries, &other) == HARK_OK, "%s",
             hark_context_message(context));
  FUZZ_CHECK(strcmp(summary.sha256, other.sha256) == 0, "the order of the tensors changes the file");
  hark_safetensors *again;
  FUZZ_CHECK(hark_safetensors_open(context, path, &again) == HARK_OK, "%s", hark_context_message(context));
  check_same(context, file, again, count);
  hark_safetensors_close(context, &again);
  unlink(path);
  unlink(second);
  for (int64_t i = 0; i < count; i++) hark_tensor_destroy(context, &tensors[i]);
  free(tensors);
  free(named);
  free(turned);
  free(metadata);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char reason[HARK_MESSAGE_BYTES];
  hark_context *const context = fuzz_begin();
  hark_safetensors *file, *other;
  const hark_status status = hark_safetensors_open_memory(context, "input", data, size, &file);
  fuzz_limit(PARSED_BYTES * size);
  fuzz_check_refusal(context, status, HARK_BAD_FILE, "input: ");
  snprintf(reason, sizeof reason, "%s", hark_context_message(context));
  const char *const path = fuzz_file(data, size);
  FUZZ_CHECK(hark_safetensors_open(context, path, &other) == status, "the file is %s", hark_context_message(context));
  if (status != HARK_OK) {
    FUZZ_CHECK(strcmp(strchr(reason, ' '), strchr(hark_context_message(context), ' ')) == 0, "two reasons: %s and %s", reason,
               hark_context_message(context));
    FUZZ_CHECK(file == NULL && other == NULL, "a refused file is there");
  } else {
    check_file(context, other, data, size);
    hark_safetensors_close(context, &other);
    check_file(context, file, data, size);
    if (hark_safetensors_count(file) <= WRITTEN_LIMIT) write_back(context, file);
    hark_safetensors_close(context, &file);
  }
  fuzz_limit(PARSED_BYTES * size + STAGE_BYTES);
  fuzz_end();
  return 0;
}
