/* jsonl.c - files of JSON objects, one per line. Cost: one write per line; reading in parts of constant size. */
#include "json/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/files.h"
#include "io/system_error.h"

#define PART_BYTES ((size_t)1 << 16)

static hark_status fail(hark_context *context, const hark_jsonl *file, const char *what) {
  return hark_system_fail(context, errno, file->path, what);
}

/* Length of the file's complete lines. */
static hark_status whole_lines(hark_context *context, const hark_jsonl *file, uint64_t size, uint64_t *out) {
  char part[512];
  for (uint64_t end = size; end > 0;) {
    const size_t bytes = end < sizeof part ? (size_t)end : sizeof part;
    HARK_TRY(hark_file_read_at(context, file->descriptor, file->path, part, bytes, end - bytes));
    for (size_t i = bytes; i > 0; i--) {
      if (part[i - 1] == '\n') {
        *out = end - bytes + i;
        return HARK_OK;
      }
    }
    end -= bytes;
  }
  *out = 0;
  return HARK_OK;
}

/* Whether a file may be cut to its first `bytes` bytes: no text of another kind is. A line of ours begins with a brace, or with zeros where
 * the machine stopped. */
static hark_status check_cut(hark_context *context, const char *path, int descriptor, uint64_t size, uint64_t bytes) {
  char first;
  HARK_TRY(hark_file_refuse_foreign(context, path, descriptor, size, "lines of JSON"));
  if (bytes >= size) return HARK_OK;
  HARK_TRY(hark_file_read_at(context, descriptor, path, &first, 1, bytes));
  return first == '{' || first == '\0'
             ? HARK_OK
             : hark_fail(context, HARK_BAD_FILE, "%s: what follows byte %" PRIu64 " is not a line of JSON, and is kept", path, bytes);
}

static hark_status remove_torn_line(hark_context *context, hark_jsonl *file, uint64_t size) {
  HARK_TRY(whole_lines(context, file, size, &file->bytes));
  HARK_TRY(check_cut(context, file->path, file->descriptor, size, file->bytes));
  if (file->bytes == size) return HARK_OK;
  return hark_cut_again(file->descriptor, (off_t)file->bytes) == 0 ? HARK_OK : fail(context, file, "cannot be cut");
}

hark_status hark_jsonl_open(hark_context *context, hark_jsonl *file, const char *path) {
  const size_t length = strlen(path);
  if (length >= sizeof file->path) return hark_fail(context, HARK_IO_ERROR, "%.64s...: path of %zu bytes", path, length);
  memcpy(file->path, path, length + 1);
  file->line = hark_text_empty(context);
  file->descriptor = hark_open_again(path, O_RDWR | O_APPEND, 0);
  const bool made = file->descriptor < 0 && errno == ENOENT;
  if (made) file->descriptor = hark_open_again(path, O_RDWR | O_CREAT | O_APPEND, 0666);
  if (file->descriptor < 0) return fail(context, file, "cannot be opened");
  struct stat information;
  hark_status status = made ? hark_parent_sync(context, path) : HARK_OK;
  if (status == HARK_OK && fstat(file->descriptor, &information) != 0) status = fail(context, file, "cannot be examined");
  if (status == HARK_OK) status = remove_torn_line(context, file, (uint64_t)information.st_size);
  if (status != HARK_OK) hark_file_close(&file->descriptor);
  file->open = status == HARK_OK;
  return status;
}

void hark_jsonl_open_nowhere(hark_context *context, hark_jsonl *file) {
  *file = (hark_jsonl){.open = true, .dropped = true, .descriptor = -1, .line = hark_text_empty(context)};
}

void hark_jsonl_begin(hark_jsonl *file) {
  file->line.status = HARK_OK;
  hark_text_resize(&file->line, 0);
  hark_text_append_bytes(&file->line, "{", 1);
}

static void append_name(hark_jsonl *file, const char *name) {
  if (file->line.length > 1) hark_text_append_bytes(&file->line, ", ", 2);
  hark_json_append_string(&file->line, name);
  hark_text_append_bytes(&file->line, ": ", 2);
}

void hark_jsonl_number(hark_jsonl *file, const char *name, double value) {
  append_name(file, name);
  hark_json_append_number(&file->line, value);
}

void hark_jsonl_integer(hark_jsonl *file, const char *name, int64_t value) {
  append_name(file, name);
  hark_text_append(&file->line, "%" PRId64, value);
}

void hark_jsonl_boolean(hark_jsonl *file, const char *name, bool value) {
  append_name(file, name);
  hark_text_append(&file->line, "%s", value ? "true" : "false");
}

void hark_jsonl_string(hark_jsonl *file, const char *name, const char *value) {
  append_name(file, name);
  hark_json_append_string(&file->line, value);
}

void hark_jsonl_bytes(hark_jsonl *file, const char *name, const void *bytes, size_t length) {
  append_name(file, name);
  hark_json_append_bytes(&file->line, bytes, length);
}

hark_status hark_jsonl_end(hark_context *context, hark_jsonl *file) {
  if (!file->open) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: not open", file->path);
  hark_text_append_bytes(&file->line, "}\n", 2);
  HARK_TRY(file->line.status);
  if (file->dropped) return HARK_OK;
  const char *at = file->line.data;
  for (size_t left = file->line.length; left > 0;) {
    const ssize_t put = write(file->descriptor, at, left);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const hark_status status = fail(context, file, "cannot be written");
      if (left < file->line.length) (void)hark_cut_again(file->descriptor, (off_t)file->bytes); /* no part of a line remains */
      return status;
    }
    at += put;
    left -= (size_t)put;
  }
  file->bytes += file->line.length;
  return HARK_OK;
}

hark_status hark_jsonl_flush(hark_context *context, hark_jsonl *file, uint64_t *bytes) {
  if (!file->open) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: not open", file->path);
  if (!file->dropped && hark_sync_again(file->descriptor) != 0 && errno != EINVAL)
    return fail(context, file, "cannot be flushed"); /* EINVAL: a device, such as /dev/null */
  if (bytes != NULL) *bytes = file->bytes;
  return HARK_OK;
}

hark_status hark_jsonl_close(hark_context *context, hark_jsonl *file) {
  if (!file->open) return HARK_OK;
  const hark_status status = hark_jsonl_flush(context, file, NULL);
  hark_file_close(&file->descriptor);
  hark_text_free(&file->line);
  file->open = false;
  return status;
}

hark_status hark_jsonl_truncate(hark_context *context, const char *path, uint64_t bytes) {
  hark_path_kind kind;
  HARK_TRY(hark_path_examine(context, path, &kind));
  if (kind == HARK_PATH_NONE && bytes == 0) return HARK_OK;
  int descriptor;
  uint64_t size;
  char last = '\n';
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  hark_status status = HARK_OK;
  if (bytes > size) {
    status = hark_fail(context, HARK_BAD_FILE, "%s: has %" PRIu64 " bytes, at least %" PRIu64 " expected", path, size, bytes);
  } else if (bytes > 0) {
    status = hark_file_read_at(context, descriptor, path, &last, 1, bytes - 1);
  }
  if (status == HARK_OK && last == '\n') status = check_cut(context, path, descriptor, size, bytes);
  hark_file_close(&descriptor);
  HARK_TRY(status);
  if (last != '\n') return hark_fail(context, HARK_BAD_FILE, "%s: byte %" PRIu64 " is not the end of a line", path, bytes);
  return hark_file_truncate(context, path, bytes);
}

/* ---- reading ---- */

static hark_status take_line(hark_context *context, const char *path, const char *text, size_t length, int64_t number,
                             hark_jsonl_visitor *visit, void *user) {
  json_t *object;
  HARK_TRY(hark_json_parse_line(context, path, number, text, length, &object));
  hark_status status = HARK_OK;
  if (!json_is_object(object)) {
    status = hark_fail(context, HARK_BAD_FILE, "%s:%" PRId64 ": expected one JSON object a line", path, number);
  } else {
    status = visit(user, object, number);
  }
  json_decref(object);
  return status;
}

/* Calls the visitor with every complete line of `text`; *used is their length. */
static hark_status take_lines(hark_context *context, const char *path, const hark_text *text, int64_t *number, hark_jsonl_visitor *visit,
                              void *user, size_t *used) {
  *used = 0;
  for (const char *end; text->length > *used && (end = memchr(text->data + *used, '\n', text->length - *used)) != NULL;) {
    const char *const line = text->data + *used;
    HARK_TRY(take_line(context, path, line, (size_t)(end - line), ++*number, visit, user));
    *used += (size_t)(end - line) + 1;
  }
  return HARK_OK;
}

hark_status hark_jsonl_read(hark_context *context, const char *path, hark_jsonl_visitor *visit, void *user) {
  int descriptor;
  uint64_t size;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  hark_text text = hark_text_empty(context);
  hark_status status = hark_file_refuse_foreign(context, path, descriptor, size, "lines of JSON");
  int64_t number = 0;
  for (uint64_t at = 0; at < size && status == HARK_OK;) {
    const size_t bytes = size - at < PART_BYTES ? (size_t)(size - at) : PART_BYTES;
    const size_t held = text.length;
    hark_text_resize(&text, held + bytes);
    status = text.status;
    if (status == HARK_OK) status = hark_file_read_at(context, descriptor, path, text.data + held, bytes, at);
    if (status != HARK_OK) break;
    at += bytes;
    size_t used;
    status = take_lines(context, path, &text, &number, visit, user, &used);
    memmove(text.data, text.data + used, text.length - used);
    hark_text_resize(&text, text.length - used);
    if (status == HARK_OK && text.length > HARK_JSONL_LINE_BYTES) {
      status = hark_fail(context, HARK_BAD_FILE, "%s:%" PRId64 ": line of more than %zu bytes", path, number + 1, HARK_JSONL_LINE_BYTES);
    }
  }
  hark_text_free(&text);
  hark_file_close(&descriptor);
  return status;
}
