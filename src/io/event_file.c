/* event_file.c - see event_file.h. Cost: one write per event; the CRC takes a table of 256 numbers and a step per byte. */
#define _POSIX_C_SOURCE 200809L
#include "io/event_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "io/number.h"
#include "io/system_error.h"

#define FORMAT_VERSION "brain.Event:2"
#define NAME_ENDING ".hark"
#define TIME_DIGITS 10 /* of seconds in names, which readers sort as texts */

/* ---- CRC-32C, polynomial 0x1EDC6F41, reflected ---- */

#define REFLECTED 0x82f63b78u
#define MASK_DELTA 0xa282ead8u

static uint32_t entry_of(uint32_t byte) {
  for (int bit = 0; bit < 8; bit++) byte = (byte >> 1) ^ (byte & 1 ? REFLECTED : 0);
  return byte;
}

uint32_t hark_event_crc(const void *data, size_t bytes) {
  const unsigned char *const byte = data;
  uint32_t table[256], crc = ~UINT32_C(0);
  for (uint32_t i = 0; i < 256; i++) table[i] = entry_of(i);
  for (size_t i = 0; i < bytes; i++) crc = (crc >> 8) ^ table[(crc ^ byte[i]) & 0xff];
  return ~crc;
}

uint32_t hark_event_masked_crc(const void *data, size_t bytes) {
  const uint32_t crc = hark_event_crc(data, bytes);
  return (crc >> 15 | crc << 17) + MASK_DELTA;
}

/* ---- protobuf: a field is its number and kind in one byte, then its value ---- */

enum { KIND_VARINT, KIND_FIXED64, KIND_BYTES, KIND_FIXED32 = 5 };
enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

static void append_little(hark_text *text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) {
    const char byte = (char)(unsigned char)(value >> (8 * i));
    hark_text_append_bytes(text, &byte, 1);
  }
}

static void append_key(hark_text *text, int field, int kind) { append_little(text, (uint64_t)(field << 3 | kind), 1); }

static void append_varint(hark_text *text, uint64_t value) {
  for (; value >= 0x80; value >>= 7) append_little(text, (value & 0x7f) | 0x80, 1);
  append_little(text, value, 1);
}

static void append_bytes(hark_text *text, int field, const char *bytes, size_t length) {
  append_key(text, field, KIND_BYTES);
  append_varint(text, length);
  hark_text_append_bytes(text, bytes, length);
}

static void append_double(hark_text *text, int field, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  append_key(text, field, KIND_FIXED64);
  append_little(text, bits, 8);
}

static void append_float(hark_text *text, int field, double value) {
  const float number = (float)value;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  append_key(text, field, KIND_FIXED32);
  append_little(text, bits, 4);
}

/* ---- records ---- */

static void clear(hark_text *text) {
  text->status = HARK_OK;
  hark_text_resize(text, 0);
}

static hark_status write_record(hark_context *context, hark_event_file *file) {
  for (size_t at = 0; at < file->record.length;) {
    const ssize_t put = write(file->descriptor, file->record.data + at, file->record.length - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return hark_system_fail_output(context, errno, file->path, "cannot be written");
    at += (size_t)put;
  }
  return HARK_OK;
}

/* Writes file->event. */
static hark_status finish_event(hark_context *context, hark_event_file *file) {
  hark_text *const record = &file->record;
  clear(record);
  append_little(record, file->event.length, 8);
  if (record->status == HARK_OK) append_little(record, hark_event_masked_crc(record->data, 8), 4);
  hark_text_append_bytes(record, hark_text_get(&file->event), file->event.length);
  append_little(record, hark_event_masked_crc(hark_text_get(&file->event), file->event.length), 4);
  if (file->event.status != HARK_OK) return file->event.status;
  return record->status == HARK_OK ? write_record(context, file) : record->status;
}

static void begin_event(hark_event_file *file, double seconds, int64_t step) {
  clear(&file->event);
  append_double(&file->event, EVENT_TIME, seconds);
  append_key(&file->event, EVENT_STEP, KIND_VARINT);
  append_varint(&file->event, (uint64_t)step);
}

void hark_event_begin(hark_event_file *file, double seconds, int64_t step) {
  clear(&file->values);
  file->seconds = seconds;
  file->step = step;
}

void hark_event_scalar(hark_event_file *file, const char *tag, double value) {
  hark_text one = hark_text_empty(file->values.context);
  append_bytes(&one, VALUE_TAG, tag, strlen(tag));
  append_float(&one, VALUE_SIMPLE, value);
  append_bytes(&file->values, SUMMARY_VALUE, hark_text_get(&one), one.length);
  if (one.status != HARK_OK && file->values.status == HARK_OK) file->values.status = one.status;
  hark_text_free(&one);
}

hark_status hark_event_end(hark_context *context, hark_event_file *file) {
  if (!file->open) return hark_fail(context, HARK_INTERNAL_ERROR, "%s: not open", file->path);
  HARK_TRY(file->values.status);
  if (file->values.length == 0) return HARK_OK;
  begin_event(file, file->seconds, file->step);
  append_bytes(&file->event, EVENT_SUMMARY, file->values.data, file->values.length);
  return finish_event(context, file);
}

/* ---- files ---- */

static bool is_event_file(const char *name) { return strncmp(name, HARK_EVENT_PREFIX, sizeof HARK_EVENT_PREFIX - 1) == 0; }

double hark_event_time(void) {
  struct timespec now;
  return clock_gettime(CLOCK_REALTIME, &now) == 0 ? (double)now.tv_sec + 1e-9 * (double)now.tv_nsec : 0;
}

/* The time, or where a file of the folder has this or a later one, that plus 1. */
static int64_t time_of_name(const hark_names *names) {
  int64_t latest = (int64_t)hark_event_time();
  for (int64_t i = 0; i < names->count; i++) {
    int64_t seconds = 0;
    if (!is_event_file(names->items[i])) continue;
    const char *const digits = names->items[i] + sizeof HARK_EVENT_PREFIX - 1;
    const size_t count = strspn(digits, "0123456789");
    if (count == TIME_DIGITS && hark_number_read_whole(digits, count, &seconds) && seconds >= latest) latest = seconds + 1;
  }
  return latest;
}

static hark_status choose_path(hark_context *context, hark_event_file *file, const char *folder) {
  char name[HARK_NAME_BYTES];
  hark_names names;
  HARK_TRY(hark_folder_list(context, folder, &names));
  (void)snprintf(name, sizeof name, HARK_EVENT_PREFIX "%0*" PRId64 NAME_ENDING, TIME_DIGITS, time_of_name(&names));
  hark_names_free(context, &names);
  return hark_path_join(context, folder, name, file->path);
}

static hark_status write_beginning(hark_context *context, hark_event_file *file) {
  static const char start[] = {SESSION_STATUS << 3 | KIND_VARINT, SESSION_START};
  const double now = hark_event_time();
  begin_event(file, now, 0);
  append_bytes(&file->event, EVENT_VERSION, FORMAT_VERSION, sizeof FORMAT_VERSION - 1);
  HARK_TRY(finish_event(context, file));
  begin_event(file, now, 0);
  append_bytes(&file->event, EVENT_SESSION, start, sizeof start);
  return finish_event(context, file);
}

hark_status hark_event_file_create(hark_context *context, hark_event_file *file, const char *folder) {
  file->values = file->event = file->record = hark_text_empty(context);
  HARK_TRY(choose_path(context, file, folder));
  file->descriptor = hark_open_again(file->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, 0666);
  if (file->descriptor < 0) return hark_system_fail_output(context, errno, file->path, "cannot be made");
  file->open = true;
  HARK_TRY(hark_parent_sync(context, file->path));
  return write_beginning(context, file);
}

hark_status hark_event_file_close(hark_context *context, hark_event_file *file) {
  hark_status status = HARK_OK;
  if (file->open && hark_sync_again(file->descriptor) != 0)
    status = hark_system_fail_output(context, errno, file->path, "cannot be flushed");
  if (file->open) {
    hark_file_close(&file->descriptor);
    hark_text_free(&file->values);
    hark_text_free(&file->event);
    hark_text_free(&file->record);
  }
  file->open = false;
  return status;
}

hark_status hark_event_files_remove(hark_context *context, const char *folder, const char *except) {
  char path[HARK_PATH_BYTES];
  hark_names names;
  HARK_TRY(hark_folder_list(context, folder, &names));
  hark_status status = HARK_OK;
  for (int64_t i = 0; i < names.count && status == HARK_OK; i++) {
    if (!is_event_file(names.items[i])) continue;
    status = hark_path_join(context, folder, names.items[i], path);
    if (status == HARK_OK && (except == NULL || strcmp(path, except) != 0)) status = hark_file_remove(context, path);
  }
  hark_names_free(context, &names);
  return status;
}
