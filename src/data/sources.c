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
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/checksum.h"
#include "data/json_lines.h"
#include "io/checkpoint_files.h"
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
  hark_spool_close(&list->spool);
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
                              .stored_bytes = about->st_size,
                              .modified_seconds = about->st_mtim.tv_sec,
                              .modified_nanoseconds = about->st_mtim.tv_nsec,
                              .device = (uint64_t)about->st_dev,
                              .inode = (uint64_t)about->st_ino,
                              .role = role};
  return hark_sources_add(context, list, &source, path, strlen(path));
}

/* Its time is now, so that the contents are compared where they were recorded. */
static hark_status add_standard(hark_context *context, hark_split role, hark_source_list *list) {
  const hark_source source = {.standard = true, .role = role, .modified_seconds = (int64_t)time(NULL)};
  return hark_sources_add(context, list, &source, HARK_STANDARD_INPUT_NAME, strlen(HARK_STANDARD_INPUT_NAME));
}

hark_status hark_sources_add_file(hark_context *context, hark_source_list *list, const char *path, hark_split role) {
  struct stat about;
  if (hark_input_is_standard(path)) return add_standard(context, role, list);
  if (stat(path, &about) != 0) return hark_system_fail(context, errno, path, "cannot be opened");
  if (!S_ISREG(about.st_mode)) return hark_fail(context, HARK_BAD_FILE, "%s: is not a file", path);
  return add_file(context, path, &about, role, list);
}

hark_status hark_sources_add_folder(hark_context *context, hark_source_list *list, const char *path, int64_t bytes, hark_split role) {
  struct stat about;
  if (stat(path, &about) != 0) return hark_system_fail(context, errno, path, "cannot be opened");
  const hark_source source = {
      .folder = true, .bytes = bytes, .device = (uint64_t)about.st_dev, .inode = (uint64_t)about.st_ino, .role = role};
  return hark_sources_add(context, list, &source, path, strlen(path));
}

static bool has_suffix(const hark_corpus_settings *settings, const char *name) {
  const size_t length = strlen(name);
  for (int i = 0; i < settings->suffix_count; i++) {
    const size_t suffix = strlen(settings->suffixes[i]);
    if (suffix <= length && strcmp(name + length - suffix, settings->suffixes[i]) == 0) return true;
  }
  return settings->suffix_count == 0;
}

/* Folders of runs have a lock and checkpoints: a run of a text may be in the text's folder, and its files are no text. */
static bool is_run(hark_context *context, const char *folder) {
  char lock[HARK_PATH_BYTES], checkpoints[HARK_PATH_BYTES];
  return hark_path_join(context, folder, HARK_LOCK_NAME, lock) == HARK_OK &&
         hark_path_join(context, folder, HARK_CHECKPOINTS_FOLDER, checkpoints) == HARK_OK && hark_path_kind_of(lock) == HARK_PATH_FILE &&
         hark_path_kind_of(checkpoints) == HARK_PATH_FOLDER;
}

static hark_status walk_folder(hark_context *context, const hark_corpus_settings *settings, const char *folder, int depth, hark_split role,
                               hark_source_list *list);

/* Visits a name in a folder: adds a text file, walks a folder; folders of runs, links to folders and everything else are skipped. */
static hark_status walk_entry(hark_context *context, const hark_corpus_settings *settings, const char *folder, const char *name, int depth,
                              hark_split role, hark_source_list *list) {
  if (name[0] == '.') return HARK_OK;
  char path[HARK_PATH_BYTES];
  struct stat about;
  HARK_TRY(hark_path_join(context, folder, name, path));
  if (lstat(path, &about) != 0) return hark_system_fail(context, errno, path, "cannot be examined");
  if (S_ISDIR(about.st_mode)) return is_run(context, path) ? HARK_OK : walk_folder(context, settings, path, depth + 1, role, list);
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
  if (hark_input_is_standard(given)) return add_standard(context, role, list);
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

/* ---- contents ---- */

bool hark_sources_have_json_lines(const hark_source_list *list) {
  for (int64_t i = 0; i < list->count; i++)
    if (hark_json_lines_is(list->items[i].path)) return true;
  return false;
}

/* Puts the contents of a source into the spool unless they are the bytes of the file. */
static hark_status unpack(hark_context *context, hark_source *source, const char *field, hark_spool *spool) {
  hark_input input;
  const int64_t base = (int64_t)spool->bytes;
  const char *const path = source->standard ? HARK_STANDARD_INPUT : source->path;
  if (field != NULL && hark_json_lines_is(path)) {
    HARK_TRY(hark_json_lines_text(context, path, field, spool));
    source->packed = true;
  } else {
    HARK_TRY(hark_input_open(context, path, spool, &input));
    source->packed = input.packed;
    hark_input_close(&input);
  }
  if (!source->packed) return HARK_OK;
  source->spool = spool->descriptor;
  source->base = base;
  source->bytes = (int64_t)spool->bytes - base;
  if (source->standard) source->stored_bytes = source->bytes;
  return HARK_OK;
}

hark_status hark_sources_unpack(hark_context *context, hark_source_list *list, const char *field) {
  if (list->unpacked) return list->unpacking;
  list->unpacked = true;
  for (int64_t i = 0; i < list->count && list->unpacking == HARK_OK; i++)
    if (!list->items[i].folder) list->unpacking = unpack(context, &list->items[i], field, &list->spool);
  return list->unpacking;
}

hark_status hark_source_open(hark_context *context, const hark_source *source, hark_input *out) {
  *out = (hark_input){.path = source->path, .descriptor = -1, .packed = source->packed};
  if (!source->packed) return hark_file_open(context, source->path, &out->descriptor, &out->size);
  out->descriptor = source->spool;
  out->base = (uint64_t)source->base;
  out->size = (uint64_t)source->bytes;
  return HARK_OK;
}

static hark_status sum_input(hark_context *context, const hark_input *input, hark_file_summary *out) {
  unsigned char part[4096];
  hark_sha256 hash;
  hark_sha256_begin(&hash);
  for (out->bytes = 0; out->bytes < input->size;) {
    const size_t bytes = (size_t)hark_min((int64_t)sizeof part, (int64_t)(input->size - out->bytes));
    HARK_TRY(hark_input_read_at(context, input, part, bytes, out->bytes));
    hark_sha256_add(&hash, part, bytes);
    out->bytes += bytes;
  }
  hark_sha256_end(&hash, out->sha256);
  return HARK_OK;
}

hark_status hark_source_summarise(hark_context *context, const hark_source *source, hark_file_summary *out) {
  hark_input input;
  HARK_TRY(hark_source_open(context, source, &input));
  const hark_status status = sum_input(context, &input, out);
  hark_input_close(&input);
  return status;
}

/* ---- tokens ---- */

hark_status hark_sources_mark_tokens(hark_context *context, const hark_corpus_settings *settings, hark_source_list *list) {
  static const char ending[] = ".bin";
  if (settings->tokenizer == NULL || hark_tokenizer_imported(settings->tokenizer) == NULL) return HARK_OK;
  const int64_t vocabulary = hark_tokenizer_size(settings->tokenizer);
  for (int64_t i = 0; i < list->count; i++) {
    hark_source *const source = &list->items[i];
    const size_t length = strlen(source->path);
    source->tokens = length >= sizeof ending && strcmp(source->path + length - (sizeof ending - 1), ending) == 0;
    if (source->tokens && vocabulary > (int64_t)1 << (8 * HARK_SOURCE_TOKEN_BYTES))
      return hark_fail(context, HARK_UNSUPPORTED,
                       "%s: tokens of a vocabulary of %" PRId64 " do not fit into %d bytes, and files of larger tokens are not read",
                       source->path, vocabulary, HARK_SOURCE_TOKEN_BYTES);
    if (source->tokens && source->bytes % HARK_SOURCE_TOKEN_BYTES != 0)
      return hark_fail(context, HARK_BAD_FILE, "%s: ends within a token (byte offset %" PRId64 "), expected %d bytes for each: it was cut",
                       source->path, source->bytes - 1, HARK_SOURCE_TOKEN_BYTES);
  }
  return HARK_OK;
}

/* First boundary between tokens at or after `at`. */
static hark_status next_token(hark_context *context, const hark_source *source, int64_t at, int64_t *out) {
  (void)context;
  *out = hark_min(source->bytes, at + at % HARK_SOURCE_TOKEN_BYTES);
  return HARK_OK;
}

/* ---- division ---- */

/* First boundary between characters at or after `at`. In text that is not UTF-8 any place is accepted. */
static hark_status next_character(hark_context *context, const hark_source *source, int64_t at, int64_t *out) {
  *out = at;
  if (at <= 0 || at >= source->bytes) return HARK_OK;
  unsigned char bytes[HARK_UTF8_MAX_BYTES - 1];
  const int64_t count = hark_min((int64_t)sizeof bytes, source->bytes - at);
  hark_input input;
  HARK_TRY(hark_source_open(context, source, &input));
  const hark_status status = hark_input_read_at(context, &input, bytes, (size_t)count, (uint64_t)at);
  hark_input_close(&input);
  if (status != HARK_OK) return status;
  for (int64_t i = 0; i < count && !hark_utf8_is_lead(bytes[i]); i++) *out = at + i + 1;
  return HARK_OK;
}

/* First beginning of a line at or after `at`. */
static hark_status next_line(hark_context *context, const hark_source *source, int64_t at, int64_t *out) {
  char bytes[4096];
  hark_input input;
  *out = at;
  if (at <= 0 || at >= source->bytes) return HARK_OK;
  HARK_TRY(hark_source_open(context, source, &input));
  hark_status status = HARK_OK;
  for (int64_t from = at - 1; from < source->bytes && status == HARK_OK; from += (int64_t)sizeof bytes) {
    const int64_t count = hark_min((int64_t)sizeof bytes, source->bytes - from);
    status = hark_input_read_at(context, &input, bytes, (size_t)count, (uint64_t)from);
    const char *end = status == HARK_OK ? memchr(bytes, '\n', (size_t)count) : NULL;
    *out = end != NULL ? from + (end - bytes) + 1 : source->bytes;
    if (end != NULL) break;
  }
  hark_input_close(&input);
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
    HARK_TRY((source->tokens                          ? next_token
              : settings->unit == HARK_UNIT_SENTENCES ? next_line
                                                      : next_character)(context, source, boundary, &boundary));
    const bool empty_trains = source->bytes == 0 && source->role == HARK_SPLIT_TRAINING;
    if (boundary > 0 || empty_trains) HARK_TRY(add_piece(context, out, (hark_piece){i, HARK_SPLIT_TRAINING, 0, boundary}));
    if (boundary < source->bytes || (source->bytes == 0 && !empty_trains))
      HARK_TRY(add_piece(context, out, (hark_piece){i, HARK_SPLIT_VALIDATION, boundary, source->bytes}));
    before += source->bytes;
  }
  return HARK_OK;
}

/* Finds line and column by reading the file again: faults are rare, and counting lines would slow down every file. */
static hark_status fail_at(hark_context *context, const hark_input *input, int64_t at, const char *what, const char *more) {
  char buffer[4096];
  hark_text_place place = HARK_TEXT_BEGINNING;
  while (place.byte < at) {
    const size_t bytes = (size_t)hark_min((int64_t)sizeof buffer, at - place.byte);
    HARK_TRY(hark_input_read_at(context, input, buffer, bytes, (uint64_t)place.byte));
    hark_text_place_advance(&place, buffer, bytes);
  }
  return hark_text_fail(context, input->path, &place, what, more);
}

static hark_status read_parts(hark_context *context, const hark_input *input, bool tokens, int64_t from, int64_t to, char *buffer,
                              size_t buffer_bytes, hark_part_function *function, void *closure) {
  int64_t at = from; /* of buffer[0] in the file */
  size_t held = 0;   /* bytes in the buffer that were not consumed */
  while (at + (int64_t)held < to) {
    const size_t bytes = (size_t)hark_min((int64_t)(buffer_bytes - held), to - at - (int64_t)held);
    HARK_TRY(hark_input_read_at(context, input, buffer + held, bytes, (uint64_t)at + held));
    held += bytes;
    size_t consumed = 0;
    hark_text_fault fault = {0};
    const hark_status status = function(closure, buffer, held, at + (int64_t)held == to, &consumed, &fault);
    if (status == HARK_BAD_FILE && tokens) /* which have no lines */
      return hark_fail(context, HARK_BAD_FILE, "%s: %s (byte offset %" PRId64 ")", input->path, fault.what, at + (int64_t)fault.at);
    if (status == HARK_BAD_FILE) return fail_at(context, input, at + (int64_t)fault.at, fault.what, fault.more);
    if (status != HARK_OK) return status;
    held -= consumed;
    memmove(buffer, buffer + consumed, held);
    at += (int64_t)consumed;
    if (held == buffer_bytes) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: a symbol is longer than %zu bytes", input->path, held);
  }
  return HARK_OK;
}

hark_status hark_source_read(hark_context *context, const hark_source *source, int64_t from, int64_t to, void *buffer, size_t buffer_bytes,
                             hark_part_function *function, void *closure) {
  hark_input input;
  HARK_TRY(hark_source_open(context, source, &input));
  const hark_status status = read_parts(context, &input, source->tokens, from, to, buffer, buffer_bytes, function, closure);
  hark_input_close(&input);
  return status;
}

hark_status hark_source_check_unchanged(hark_context *context, const hark_source *source) {
  struct stat about;
  if (source->standard) return HARK_OK;
  if (stat(source->path, &about) != 0) return hark_system_fail(context, errno, source->path, "cannot be examined");
  if (about.st_size != source->stored_bytes || about.st_mtim.tv_sec != source->modified_seconds ||
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
