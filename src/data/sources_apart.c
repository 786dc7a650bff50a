/* sources_apart.c - see sources_apart.h. Files are sorted by device and inode, then by size, and files of one length by checksum. So
 * a hundred thousand files cost little, and most are not read. */
#include "data/sources_apart.h"

#include <stdlib.h>
#include <string.h>

#include "io/sha256.h"

#define PART_BYTES ((size_t)1 << 16)

typedef struct file_entry {
  const hark_source *file;
  int64_t part, index; /* in the given order */
  int64_t length;      /* that is compared */
  char sha256[HARK_SHA256_TEXT_BYTES];
} file_entry;

static int compare_numbers(uint64_t a, uint64_t b) { return (a > b) - (a < b); }
static int by_index(const file_entry *a, const file_entry *b) { return compare_numbers((uint64_t)a->index, (uint64_t)b->index); }

static int by_inode(const void *left, const void *right) {
  const file_entry *const a = left, *const b = right;
  const int device = compare_numbers(a->file->device, b->file->device), inode = compare_numbers(a->file->inode, b->file->inode);
  return device != 0 ? device : inode != 0 ? inode : by_index(a, b);
}

static int by_size(const void *left, const void *right) {
  const file_entry *const a = left, *const b = right;
  const int size = compare_numbers((uint64_t)a->file->bytes, (uint64_t)b->file->bytes);
  return size != 0 ? size : by_index(a, b);
}

static int by_length(const void *left, const void *right) {
  const file_entry *const a = left, *const b = right;
  const int length = compare_numbers((uint64_t)a->length, (uint64_t)b->length);
  return length != 0 ? length : by_index(a, b);
}

static int by_contents(const void *left, const void *right) {
  const file_entry *const a = left, *const b = right;
  const int contents = strcmp(a->sha256, b->sha256);
  return contents != 0 ? contents : by_index(a, b);
}

static hark_status check_given_once(hark_context *context, file_entry *entries, int64_t count) {
  qsort(entries, (size_t)count, sizeof *entries, by_inode);
  for (int64_t i = 1; i < count; i++) {
    const hark_source *const one = entries[i - 1].file, *const other = entries[i].file;
    if (one->device != other->device || one->inode != other->inode) continue;
    if (strcmp(one->path, other->path) == 0)
      return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is given twice, expected every file once", other->path);
    return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is the same file as %s, expected every file once", other->path, one->path);
  }
  return HARK_OK;
}

/* The length without a line end at the end: JSON lines end their texts with one, and the same text in a file of its own may have none. */
static hark_status measure(hark_context *context, file_entry *entry) {
  hark_input input;
  char end = '\0';
  entry->length = entry->file->bytes;
  if (entry->length == 0) return HARK_OK;
  HARK_TRY(hark_source_open(context, entry->file, &input));
  const hark_status status = hark_input_read_at(context, &input, &end, 1, (uint64_t)entry->length - 1);
  hark_input_close(&input);
  entry->length -= end == '\n';
  return status;
}

static hark_status add_part(void *closure, const void *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  (void)last, (void)fault;
  hark_sha256_add(closure, text, bytes);
  *consumed = bytes;
  return HARK_OK;
}

/* The checksum of that length. */
static hark_status summarise(hark_context *context, file_entry *entry) {
  hark_sha256 hash;
  void *buffer = NULL;
  hark_sha256_begin(&hash);
  HARK_TRY(hark_allocate(context, PART_BYTES, &buffer));
  const hark_status status = hark_source_read(context, entry->file, 0, entry->length, buffer, PART_BYTES, add_part, &hash);
  hark_release(context, buffer, PART_BYTES);
  hark_sha256_end(&hash, entry->sha256);
  return status;
}

static bool are_of_one_part(const file_entry *entries, int64_t count) {
  for (int64_t i = 1; i < count; i++)
    if (entries[i].part != entries[0].part) return false;
  return true;
}

/* Refuses copies among files of one length. */
static hark_status check_copies(hark_context *context, file_entry *entries, int64_t count, const char *advice) {
  if (entries[0].length == 0 || are_of_one_part(entries, count)) return HARK_OK;
  for (int64_t i = 0; i < count; i++) HARK_TRY(summarise(context, &entries[i]));
  qsort(entries, (size_t)count, sizeof *entries, by_contents);
  for (int64_t i = 1; i < count; i++)
    if (strcmp(entries[i - 1].sha256, entries[i].sha256) == 0 && entries[i - 1].part != entries[i].part)
      return hark_fail(
          context, HARK_BAD_CONFIGURATION,
          "%s: has the same contents as %s, so the model would be validated on what it was trained on; leave one of them out%s",
          entries[i].file->path, entries[i - 1].file->path, advice);
  return HARK_OK;
}

/* Files whose sizes are so near that they may differ by a line end; folders are left out. */
static hark_status check_near(hark_context *context, file_entry *entries, int64_t count, const char *advice) {
  int64_t files = 0;
  if (are_of_one_part(entries, count)) return HARK_OK;
  for (int64_t i = 0; i < count; i++) {
    if (entries[i].file->folder) continue;
    entries[files] = entries[i];
    HARK_TRY(measure(context, &entries[files++]));
  }
  qsort(entries, (size_t)files, sizeof *entries, by_length);
  for (int64_t from = 0, to; from < files; from = to) {
    for (to = from + 1; to < files && entries[to].length == entries[from].length;) to++;
    HARK_TRY(check_copies(context, entries + from, to - from, advice));
  }
  return HARK_OK;
}

static hark_status check(hark_context *context, file_entry *entries, int64_t count, const char *advice) {
  HARK_TRY(check_given_once(context, entries, count));
  qsort(entries, (size_t)count, sizeof *entries, by_size);
  for (int64_t from = 0, to; from < count; from = to) {
    for (to = from + 1; to < count && entries[to].file->bytes - entries[to - 1].file->bytes <= 1;) to++;
    HARK_TRY(check_near(context, entries + from, to - from, advice));
  }
  return HARK_OK;
}

hark_status hark_files_check_apart(hark_context *context, const hark_source *files, const int64_t *parts, int64_t count,
                                   const char *advice) {
  const size_t bytes = (size_t)count * sizeof(file_entry);
  void *memory = NULL;
  if (count < 2) return HARK_OK;
  HARK_TRY(hark_allocate_zero(context, bytes, &memory));
  file_entry *const entries = memory;
  for (int64_t i = 0; i < count; i++) entries[i] = (file_entry){.file = &files[i], .part = parts[i], .index = i};
  const hark_status status = check(context, entries, count, advice);
  hark_release(context, memory, bytes);
  return status;
}

/* The part of a text is the end of its training piece: copies with the same end have the same pieces, and so have all that are training
 * text as a whole, with or without a line end. If every file is divided by itself, all copies have. */
static void find_parts(const hark_source_list *sources, const hark_piece_list *pieces, int64_t *parts) {
  for (int64_t i = 0; i < pieces->count; i++) {
    const hark_piece *const piece = &pieces->items[i];
    if (piece->split == HARK_SPLIT_TRAINING)
      parts[piece->source] = piece->to == sources->items[piece->source].bytes ? INT64_MAX : piece->to;
  }
}

hark_status hark_sources_check_apart(hark_context *context, const hark_corpus_settings *settings, const hark_source_list *sources) {
  const size_t bytes = (size_t)sources->count * sizeof(int64_t);
  hark_piece_list pieces = {0};
  void *parts = NULL;
  if (sources->count < 2) return HARK_OK;
  HARK_TRY(hark_allocate_zero(context, bytes, &parts));
  hark_status status = hark_sources_divide(context, settings, sources, &pieces);
  if (status == HARK_OK && settings->division != HARK_DIVIDE_EVERY_FILE) find_parts(sources, &pieces, parts);
  if (status == HARK_OK)
    status = hark_files_check_apart(context, sources->items, parts, sources->count,
                                    settings->division == HARK_DIVIDE_TAIL ? ", or divide every file (--split per_file)" : "");
  hark_pieces_free(context, &pieces);
  hark_release(context, parts, bytes);
  return status;
}
