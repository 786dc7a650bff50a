/* inputs.c - see inputs.h. */
#include "data/inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/unpack/unpack.h"
#include "io/files.h"
#include "io/system_error.h"
#include "io/temporary.h"

#define SPOOL_NAME "hark-unpacked"
#define TOKEN_BYTES 64
#define LEAST_BEGINNING ((int64_t)1 << 16)

bool hark_input_is_standard(const char *path) { return strcmp(path, HARK_STANDARD_INPUT) == 0; }

/* ---- spools ---- */

const char *hark_spool_folder(void) {
  const char *const given = getenv("TMPDIR");
  return given != NULL && given[0] != '\0' ? given : "/tmp";
}

/* The name is removed at once; until then it is noted, for programs that a signal ends. Those of killed processes are removed. */
static hark_status make_spool(hark_context *context, hark_spool *spool) {
  char path[HARK_PATH_BYTES], name[HARK_PATH_BYTES];
  HARK_TRY(hark_path_join(context, hark_spool_folder(), SPOOL_NAME, path));
  HARK_TRY(hark_path_clean(context, path));
  for (int number = 0; number < HARK_TEMPORARY_TRIES; number++) {
    HARK_TRY(hark_temporary_name(context, path, number, name));
    hark_temporary_slot *note = hark_temporary_note(context, name);
    spool->descriptor = hark_open_again(name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
    const int error = errno;
    if (spool->descriptor >= 0) (void)unlink(name);
    hark_temporary_forget(&note);
    spool->open = spool->descriptor >= 0;
    spool->bytes = 0;
    if (spool->open) return HARK_OK;
    if (error != EEXIST) return hark_system_fail_output(context, error, hark_spool_folder(), "no temporary file can be made (TMPDIR)");
  }
  return hark_fail(context, HARK_IO_ERROR, "%s: no temporary file can be made (TMPDIR)", hark_spool_folder());
}

hark_status hark_spool_append(hark_context *context, hark_spool *spool, const void *data, size_t bytes) {
  const char *at = data;
  if (!spool->open) HARK_TRY(make_spool(context, spool));
  while (bytes > 0) {
    const ssize_t put = pwrite(spool->descriptor, at, bytes, (off_t)spool->bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0)
      return hark_system_fail_output(context, put < 0 ? errno : ENOSPC, hark_spool_folder(),
                                     "the temporary file cannot be written (TMPDIR)");
    at += put;
    bytes -= (size_t)put;
    spool->bytes += (uint64_t)put;
  }
  return HARK_OK;
}

void hark_spool_close(hark_spool *spool) {
  if (spool->open) (void)close(spool->descriptor);
  *spool = (hark_spool){0};
}

/* ---- from a descriptor into a spool ---- */

typedef struct pouring {
  hark_context *context;
  const char *name;
  int descriptor;
  hark_spool *spool;
  unsigned char front[HARK_UNPACK_FRONT_BYTES]; /* was read already, and comes first */
  size_t front_bytes, front_used;
  uint64_t most, poured; /* bytes that are needed of the unpacked ones, so far */
} pouring;

static hark_status read_some(pouring *p, void *data, size_t bytes, size_t *got) {
  ssize_t result;
  do {
    result = read(p->descriptor, data, bytes);
  } while (result < 0 && errno == EINTR);
  if (result < 0) return hark_system_fail(p->context, errno, p->name, "cannot be read");
  *got = (size_t)result;
  return HARK_OK;
}

static hark_status read_part(void *closure, void *data, size_t bytes, size_t *got) {
  pouring *const p = closure;
  const size_t left = p->front_bytes - p->front_used;
  if (left == 0) return read_some(p, data, bytes, got);
  *got = left < bytes ? left : bytes;
  memcpy(data, p->front + p->front_used, *got);
  p->front_used += *got;
  return HARK_OK;
}

static bool has_enough(const pouring *p) { return p->poured > p->most; }

/* HARK_CANCELLED, which nothing else returns here, where more is not needed. */
static hark_status write_part(void *closure, const void *data, size_t bytes) {
  pouring *const p = closure;
  const uint64_t room = p->most - p->poured; /* one byte more shows that there are more */
  const size_t used = bytes > room ? (size_t)room + 1 : bytes;
  HARK_TRY(hark_spool_append(p->context, p->spool, data, used));
  p->poured += used;
  return has_enough(p) ? HARK_CANCELLED : HARK_OK;
}

static hark_status read_front(pouring *p) {
  for (size_t got = 1; p->front_bytes < sizeof p->front && got > 0; p->front_bytes += got)
    HARK_TRY(read_some(p, p->front + p->front_bytes, sizeof p->front - p->front_bytes, &got));
  return HARK_OK;
}

static hark_status copy(pouring *p) {
  char part[4096];
  for (size_t got = 1; got > 0;) {
    HARK_TRY(read_part(p, part, sizeof part, &got));
    HARK_TRY(write_part(p, part, got));
  }
  return HARK_OK;
}

/* Pours what is left of a descriptor, unpacked, into the spool; `packing` is NULL for plain data. */
static hark_status pour(pouring *p, const hark_packing *packing, hark_input *out) {
  const uint64_t base = p->spool->bytes;
  const hark_unpack_ends ends = {p, read_part, write_part};
  const hark_status status = packing != NULL ? hark_unpack(p->context, p->name, packing, &ends) : copy(p);
  if (status != HARK_CANCELLED || !has_enough(p)) HARK_TRY(status);
  if (!p->spool->open) HARK_TRY(make_spool(p->context, p->spool)); /* of nothing */
  *out = (hark_input){.path = p->name, .descriptor = p->spool->descriptor, .packed = true, .base = base, .size = p->spool->bytes - base};
  return HARK_OK;
}

static hark_status open_standard(hark_context *context, uint64_t most, hark_spool *spool, hark_input *out) {
  pouring p = {.context = context, .name = HARK_STANDARD_INPUT_NAME, .descriptor = STDIN_FILENO, .spool = spool, .most = most};
  HARK_TRY(read_front(&p));
  return pour(&p, hark_packing_of(p.front, p.front_bytes), out);
}

hark_status hark_input_open(hark_context *context, const char *path, hark_spool *spool, hark_input *out) {
  return hark_input_open_beginning(context, path, UINT64_MAX, spool, out);
}

hark_status hark_input_open_beginning(hark_context *context, const char *path, uint64_t most, hark_spool *spool, hark_input *out) {
  *out = (hark_input){.path = path, .descriptor = -1};
  if (hark_input_is_standard(path)) return open_standard(context, most, spool, out);
  int descriptor;
  uint64_t size;
  HARK_TRY(hark_file_open(context, path, &descriptor, &size));
  pouring p = {.context = context, .name = path, .descriptor = descriptor, .spool = spool, .most = most};
  hark_status status = read_front(&p);
  const hark_packing *const packing = status == HARK_OK ? hark_packing_of(p.front, p.front_bytes) : NULL;
  if (status == HARK_OK && packing == NULL) {
    *out = (hark_input){.path = path, .descriptor = descriptor, .size = size};
    return HARK_OK;
  }
  if (status == HARK_OK) status = pour(&p, packing, out);
  hark_file_close(&descriptor);
  return status;
}

void hark_input_close(hark_input *input) {
  if (!input->packed) hark_file_close(&input->descriptor);
  input->descriptor = -1;
}

hark_status hark_input_read_at(hark_context *context, const hark_input *input, void *data, size_t bytes, uint64_t offset) {
  if (input->packed && (offset > input->size || bytes > input->size - offset))
    return hark_fail(context, HARK_BAD_FILE, "%s: ends at byte %" PRIu64 ", byte %" PRIu64 " expected", input->path, input->size,
                     offset + bytes);
  return hark_file_read_at(context, input->descriptor, input->path, data, bytes, input->base + offset);
}

hark_status hark_input_read(hark_context *context, const char *path, size_t limit, hark_text *out) {
  hark_spool spool = {0};
  hark_input input;
  hark_status status = hark_input_open_beginning(context, path, limit, &spool, &input);
  if (status == HARK_OK && input.size > limit)
    status = hark_fail(context, HARK_BAD_FILE, "%s: larger than %zu bytes, the most that is read of such a file", input.path, limit);
  if (status == HARK_OK) {
    hark_text_resize(out, (size_t)input.size);
    status = out->status;
  }
  if (status == HARK_OK) status = hark_input_read_at(context, &input, out->data, (size_t)input.size, 0);
  hark_input_close(&input);
  hark_spool_close(&spool);
  if (status != HARK_OK) hark_text_free(out);
  return status;
}

size_t hark_input_beginning_bytes(int64_t tokens) {
  return (size_t)(tokens < LEAST_BEGINNING / TOKEN_BYTES ? LEAST_BEGINNING : tokens * TOKEN_BYTES);
}

/* The number of bytes without a part of a character at the end. */
static size_t whole_characters(const char *text, size_t length) {
  size_t end = length;
  while (end > 0 && length - end < 4 && ((unsigned char)text[end - 1] & 0xc0) == 0x80) end--;
  return end > 0 && (unsigned char)text[end - 1] >= 0xc0 ? end - 1 : length;
}

hark_status hark_input_read_beginning(hark_context *context, const char *path, size_t most, hark_text *out, bool *cut) {
  hark_spool spool = {0};
  hark_input input = {0};
  hark_status status = hark_input_open_beginning(context, path, most, &spool, &input);
  if (status == HARK_OK) {
    const size_t size = input.size < most ? (size_t)input.size : most;
    *cut = input.size > size;
    hark_text_resize(out, size);
    status = out->status;
    if (status == HARK_OK && size > 0) status = hark_input_read_at(context, &input, out->data, size, 0);
    if (status == HARK_OK && *cut) hark_text_resize(out, whole_characters(out->data, size));
    hark_input_close(&input);
  }
  hark_spool_close(&spool);
  return status;
}
