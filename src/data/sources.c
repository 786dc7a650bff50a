/* sources.c - finds text files, divides them into training and validation, and reads them in parts.
 *
 * Division of N bytes, fraction f: the first floor((1 - f) N) bytes are for training, the rest for validation; for each file separately, or
 * for all files together. A boundary inside a character moves up to the next character's first byte. Division is by bytes, not tokens, so
 * the validation text is the same for every tokenizer, and losses per byte can be compared.
 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "data/sources.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/checksum.h"
#include "io/files.h"
#include "io/system_error.h"
#include "tokenizers/utf8.h"

#define FIRST_CAPACITY 16
#define FOLDER_DEPTH_MAX 64

/* Makes room for one more item of a list. */
static hark_status grow(hark_context *context, void **items, int64_t count, int64_t *capacity, size_t item_bytes) {
  if (count < *capacity) return HARK_OK;
  const int64_t larger = *capacity == 0 ? FIRST_CAPACITY : *capacity * 2;
  void *moved;
  HARK_TRY(hark_allocate(context, (size_t)larger * item_bytes, &moved));
  if (count > 0) memcpy(moved, *items, (size_t)count * item_bytes);
  hark_release(context, *items, (size_t)*capacity * item_bytes);
  *items = moved;
  *capacity = larger;
  return HARK_OK;
}

void hark_sources_free(hark_context *context, hark_source_list *list) {
  for (int64_t i = 0; i < list->count; i++) hark_release(context, list->items[i].path, list->items[i].path_bytes);
  hark_release(context, list->items, (size_t)list->capacity * sizeof *list->items);
  *list = (hark_source_list){0};
}

void hark_pieces_free(hark_context *context, hark_piece_list *list) {
  hark_release(context, list->items, (size_t)list->capacity * sizeof *list->items);
  *list = (hark_piece_list){0};
}

hark_status hark_sources_add(hark_context *context, hark_source_list *list, const hark_source *about, const char *path,
                             size_t path_length) {
  HARK_TRY(grow(context, (void **)&list->items, list->count, &list->capacity, sizeof *list->items));
  hark_source *source = &list->items[list->count];
  *source = *about;
  source->path_bytes = path_length + 1;
  HARK_TRY(hark_allocate(context, source->path_bytes, (void **)&source->path));
  memcpy(source->path, path, path_length);
  source->path[path_length] = '\0';
  list->count++;
  return HARK_OK;
}

static hark_status add_file(hark_context *context, const char *path, const struct stat *about, hark_split role, hark_source_list *list) {
  const hark_source source = {.bytes = about->st_size,
                              .modified_seconds = about->st_mtim.tv_sec,
                              .modified_nanoseconds = about->st_mtim.tv_nsec,
                              .device = (uint64_t)about->st_dev,
                              .inode = (uint64_t)about->st_ino,
                              .role = role};
  return hark_sources_add(context, list, &source, path, strlen(path));
}

hark_status hark_sources_add_file(hark_context *context, hark_source_list *list, const char *path, hark_split role) {
  struct stat about;
  if (stat(path, &about) != 0) return hark_system_fail(context, errno, path, "cannot be opened");
  if (!S_ISREG(about.st_mode)) return hark_fail(context, HARK_BAD_FILE, "%s: is not a file", path);
  return add_file(context, path, &about, role, list);
}

static bool has_suffix(const hark_corpus_settings *settings, const char *name) {
  const size_t length = strlen(name);
  for (int i = 0; i < settings->suffix_count; i++) {
    const size_t suffix = strlen(settings->suffixes[i]);
    if (suffix <= length && strcmp(name + length - suffix, settings->suffixes[i]) == 0) return true;
  }
  return settings->suffix_count == 0;
}

static hark_status walk_folder(hark_context *context, const hark_corpus_settings *settings, const char *folder, int depth, hark_split role,
                               hark_source_list *list);

/* Visits a name in a folder: adds a text file, walks a folder; links to folders and everything else are skipped. */
static hark_status walk_entry(hark_context *context, const hark_corpus_settings *settings, const char *folder, const char *name, int depth,
                              hark_split role, hark_source_list *list) {
  if (name[0] == '.') return HARK_OK;
  char path[HARK_PATH_BYTES];
  struct stat about;
  HARK_TRY(hark_path_join(context, folder, name, path));
  if (lstat(path, &about) != 0) return hark_system_fail(context, errno, path, "cannot be examined");
  if (S_ISDIR(about.st_mode)) return walk_folder(context, settings, path, depth + 1, role, list);
  if (!has_suffix(settings, name)) return HARK_OK;
  if (S_ISLNK(about.st_mode) && stat(path, &about) != 0) return hark_system_fail(context, errno, path, "link leads nowhere");
  return S_ISREG(about.st_mode) ? add_file(context, path, &about, role, list) : HARK_OK;
}

static hark_status walk_folder(hark_context *context, const hark_corpus_settings *settings, const char *folder, int depth, hark_split role,
                               hark_source_list *list) {
  if (depth > FOLDER_DEPTH_MAX) return hark_fail(context, HARK_IO_ERROR, "%s: more than %d folders deep", folder, FOLDER_DEPTH_MAX);
  hark_names names;
  HARK_TRY(hark_folder_list(context, folder, &names));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++)
    status = walk_entry(context, settings, folder, names.items[i], depth, role, list);
  hark_names_free(context, &names);
  return status;
}

static int compare_paths(const void *a, const void *b) { return strcmp(((const hark_source *)a)->path, ((const hark_source *)b)->path); }

/* Adds a path of the settings: a file, or a folder's files, sorted by path. */
static hark_status add_path(hark_context *context, const hark_corpus_settings *settings, const char *given, hark_split role,
                            hark_source_list *list) {
  char path[PATH_MAX];
  struct stat about;
  if (given == NULL || given[0] == '\0') return hark_fail(context, HARK_BAD_CONFIGURATION, "a path of the text is empty");
  if (realpath(given, path) == NULL || stat(path, &about) != 0) return hark_system_fail(context, errno, given, "text cannot be opened");
  if (S_ISREG(about.st_mode)) return add_file(context, path, &about, role, list);
  if (!S_ISDIR(about.st_mode)) return hark_fail(context, HARK_BAD_FILE, "%s: neither a file nor a folder", given);
  const int64_t before = list->count;
  HARK_TRY(walk_folder(context, settings, path, 0, role, list));
  if (list->count == before) return hark_fail(context, HARK_NOT_FOUND, "%s: the folder holds no text files", given);
  qsort(list->items + before, (size_t)(list->count - before), sizeof *list->items, compare_paths);
  return HARK_OK;
}

/* Refuses validation on training text, which would measure memory, not learning. */
static hark_status check_apart(hark_context *context, const hark_source_list *list) {
  for (int64_t i = 0; i < list->count; i++)
    for (int64_t j = i + 1; j < list->count; j++)
      if (list->items[i].inode == list->items[j].inode && list->items[i].device == list->items[j].device &&
          list->items[i].role != list->items[j].role)
        return hark_fail(context, HARK_BAD_CONFIGURATION, "%s: is given both for training and for validation", list->items[j].path);
  return HARK_OK;
}

hark_status hark_sources_find(hark_context *context, const hark_corpus_settings *settings, hark_source_list *out) {
  for (int i = 0; i < settings->path_count; i++) HARK_TRY(add_path(context, settings, settings->paths[i], HARK_SPLIT_TRAINING, out));
  for (int i = 0; i < settings->validation_path_count; i++)
    HARK_TRY(add_path(context, settings, settings->validation_paths[i], HARK_SPLIT_VALIDATION, out));
  return settings->validation_path_count > 0 ? check_apart(context, out) : HARK_OK;
}

/* First boundary between characters at or after `at`. In text that is not UTF-8 any place is accepted. */
static hark_status next_character(hark_context *context, const hark_source *source, int64_t at, int64_t *out) {
  *out = at;
  if (at <= 0 || at >= source->bytes) return HARK_OK;
  unsigned char bytes[HARK_UTF8_MAX_BYTES - 1];
  const int64_t count = hark_min((int64_t)sizeof bytes, source->bytes - at);
  int file;
  uint64_t size;
  HARK_TRY(hark_file_open(context, source->path, &file, &size));
  const hark_status status = hark_file_read_at(context, file, source->path, bytes, (size_t)count, (uint64_t)at);
  hark_file_close(&file);
  if (status != HARK_OK) return status;
  for (int64_t i = 0; i < count && !hark_utf8_is_lead(bytes[i]); i++) *out = at + i + 1;
  return HARK_OK;
}

/* First beginning of a line at or after `at`. */
static hark_status next_line(hark_context *context, const hark_source *source, int64_t at, int64_t *out) {
  char bytes[4096];
  int file;
  uint64_t size;
  *out = at;
  if (at <= 0 || at >= source->bytes) return HARK_OK;
  HARK_TRY(hark_file_open(context, source->path, &file, &size));
  hark_status status = HARK_OK;
  for (int64_t from = at - 1; from < source->bytes && status == HARK_OK; from += (int64_t)sizeof bytes) {
    const int64_t count = hark_min((int64_t)sizeof bytes, source->bytes - from);
    status = hark_file_read_at(context, file, source->path, bytes, (size_t)count, (uint64_t)from);
    const char *end = status == HARK_OK ? memchr(bytes, '\n', (size_t)count) : NULL;
    *out = end != NULL ? from + (end - bytes) + 1 : source->bytes;
    if (end != NULL) break;
  }
  hark_file_close(&file);
  return status;
}

static hark_status add_piece(hark_context *context, hark_piece_list *list, hark_piece piece) {
  HARK_TRY(grow(context, (void **)&list->items, list->count, &list->capacity, sizeof *list->items));
  list->items[list->count++] = piece;
  return HARK_OK;
}

/* How many of `bytes` are for training. 1 - f and the product are rounded; a product that rounding put just below an integer counts as that
 * integer. */
static int64_t training_bytes(double fraction, int64_t bytes) {
  const double rounding = 2 * DBL_EPSILON * (double)bytes;
  return hark_min(bytes, (int64_t)floor((1.0 - fraction) * (double)bytes + rounding));
}

hark_status hark_sources_divide(hark_context *context, const hark_corpus_settings *settings, const hark_source_list *sources,
                                hark_piece_list *out) {
  int64_t total = 0, before = 0;
  for (int64_t i = 0; i < sources->count; i++) total += sources->items[i].bytes;
  const int64_t whole_boundary = training_bytes(settings->validation_fraction, total);
  for (int64_t i = 0; i < sources->count; i++) {
    const hark_source *source = &sources->items[i];
    int64_t boundary = 0;
    switch (settings->division) {
      case HARK_DIVIDE_TAIL: boundary = hark_max(0, hark_min(source->bytes, whole_boundary - before)); break;
      case HARK_DIVIDE_EVERY_FILE: boundary = training_bytes(settings->validation_fraction, source->bytes); break;
      case HARK_DIVIDE_FILES: boundary = source->role == HARK_SPLIT_TRAINING ? source->bytes : 0; break;
    }
    HARK_TRY((settings->unit == HARK_UNIT_SENTENCES ? next_line : next_character)(context, source, boundary, &boundary));
    const bool empty_trains = source->bytes == 0 && source->role == HARK_SPLIT_TRAINING;
    if (boundary > 0 || empty_trains) HARK_TRY(add_piece(context, out, (hark_piece){i, HARK_SPLIT_TRAINING, 0, boundary}));
    if (boundary < source->bytes || (source->bytes == 0 && !empty_trains))
      HARK_TRY(add_piece(context, out, (hark_piece){i, HARK_SPLIT_VALIDATION, boundary, source->bytes}));
    before += source->bytes;
  }
  return HARK_OK;
}

/* Finds line and column by reading the file again: faults are rare, and counting lines would slow down every file. */
static hark_status fail_at(hark_context *context, const hark_source *source, int file, int64_t at, const char *what, const char *more) {
  char buffer[4096];
  hark_text_place place = HARK_TEXT_BEGINNING;
  while (place.byte < at) {
    const size_t bytes = (size_t)hark_min((int64_t)sizeof buffer, at - place.byte);
    HARK_TRY(hark_file_read_at(context, file, source->path, buffer, bytes, (uint64_t)place.byte));
    hark_text_place_advance(&place, buffer, bytes);
  }
  return hark_text_fail(context, source->path, &place, what, more);
}

static hark_status read_parts(hark_context *context, const hark_source *source, int file, int64_t from, int64_t to, char *buffer,
                              size_t buffer_bytes, hark_part_function *function, void *closure) {
  int64_t at = from; /* of buffer[0] in the file */
  size_t held = 0;   /* bytes in the buffer that were not consumed */
  while (at + (int64_t)held < to) {
    const size_t bytes = (size_t)hark_min((int64_t)(buffer_bytes - held), to - at - (int64_t)held);
    HARK_TRY(hark_file_read_at(context, file, source->path, buffer + held, bytes, (uint64_t)at + held));
    held += bytes;
    size_t consumed = 0;
    hark_text_fault fault = {0};
    const hark_status status = function(closure, buffer, held, at + (int64_t)held == to, &consumed, &fault);
    if (status == HARK_BAD_FILE) return fail_at(context, source, file, at + (int64_t)fault.at, fault.what, fault.more);
    if (status != HARK_OK) return status;
    held -= consumed;
    memmove(buffer, buffer + consumed, held);
    at += (int64_t)consumed;
    if (held == buffer_bytes) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: a symbol is longer than %zu bytes", source->path, held);
  }
  return HARK_OK;
}

hark_status hark_source_read(hark_context *context, const hark_source *source, int64_t from, int64_t to, void *buffer, size_t buffer_bytes,
                             hark_part_function *function, void *closure) {
  int file;
  uint64_t size;
  HARK_TRY(hark_file_open(context, source->path, &file, &size));
  const hark_status status = read_parts(context, source, file, from, to, buffer, buffer_bytes, function, closure);
  hark_file_close(&file);
  return status;
}

hark_status hark_source_check_unchanged(hark_context *context, const hark_source *source) {
  struct stat about;
  if (stat(source->path, &about) != 0) return hark_system_fail(context, errno, source->path, "cannot be examined");
  if (about.st_size != source->bytes || about.st_mtim.tv_sec != source->modified_seconds ||
      about.st_mtim.tv_nsec != source->modified_nanoseconds)
    return hark_fail(context, HARK_IO_ERROR, "%s: changed while it was read", source->path);
  return HARK_OK;
}

static hark_status sum_part(void *closure, const void *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  (void)last;
  (void)fault;
  uint64_t *sum = closure;
  *sum = hark_checksum_bytes(*sum, text, bytes);
  *consumed = bytes;
  return HARK_OK;
}

hark_status hark_source_checksum(hark_context *context, const hark_source *source, void *buffer, size_t buffer_bytes, uint64_t *out) {
  *out = HARK_CHECKSUM_START;
  return hark_source_read(context, source, 0, source->bytes, buffer, buffer_bytes, sum_part, out);
}
