/* event_reader.c - see event_reader.h. Checksums are computed bit by bit. */
#include "support/event_reader.h"

#include <stdlib.h>
#include <string.h>

#include "support/cmocka_all.h"
#include "support/text_files.h"

static uint64_t little(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

static uint32_t masked_crc(const unsigned char *data, size_t bytes) {
  uint32_t crc = 0xffffffffu;
  for (size_t i = 0; i < 8 * bytes; i++) {
    const uint32_t bit = (data[i / 8] >> (i % 8) ^ crc) & 1;
    crc = crc >> 1 ^ (bit != 0 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* A field of a message: number, and a value or bytes. */
typedef struct field {
  int number, kind;
  uint64_t value;
  const unsigned char *bytes;
} field;

static uint64_t varint(const unsigned char **at, const unsigned char *end) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    assert_true(*at < end && shift < 64);
    const unsigned char byte = *(*at)++;
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

static int next(const unsigned char **at, const unsigned char *end, field *out) {
  if (*at == end) return 0;
  const uint64_t key = varint(at, end);
  *out = (field){.number = (int)(key >> 3), .kind = (int)(key & 7)};
  const int fixed = out->kind == 1 ? 8 : out->kind == 5 ? 4 : 0;
  if (out->kind == 0 || out->kind == 2) out->value = varint(at, end);
  if (fixed > 0 || out->kind == 2) {
    const size_t bytes = fixed > 0 ? (size_t)fixed : (size_t)out->value;
    assert_true(bytes <= (size_t)(end - *at));
    out->bytes = *at;
    if (fixed > 0) out->value = little(*at, fixed);
    *at += bytes;
  }
  return 1;
}

static void copy_text(const field *from, char *out, size_t size) {
  assert_true(from->value < size);
  memcpy(out, from->bytes, from->value);
  out[from->value] = '\0';
}

/* A value of a summary. */
static void read_value(const field *message, int64_t step, double seconds, test_events *out) {
  const unsigned char *at = message->bytes, *const end = at + message->value;
  out->scalars = realloc(out->scalars, (size_t)(out->count + 1) * sizeof *out->scalars);
  test_scalar *const scalar = &out->scalars[out->count++];
  *scalar = (test_scalar){.step = step, .seconds = seconds};
  for (field f; next(&at, end, &f);) {
    const uint32_t bits = (uint32_t)f.value;
    if (f.number == 1 && f.kind == 2)
      copy_text(&f, scalar->tag, sizeof scalar->tag);
    else if (f.number == 2 && f.kind == 5)
      memcpy(&scalar->value, &bits, sizeof bits);
    else
      fail_msg("field %d of a value", f.number);
  }
}

static void read_summary(const field *message, int64_t step, double seconds, test_events *out) {
  const unsigned char *at = message->bytes, *const end = at + message->value;
  for (field f; next(&at, end, &f);) {
    assert_true(f.number == 1 && f.kind == 2);
    read_value(&f, step, seconds, out);
  }
}

static void read_event(const unsigned char *at, const unsigned char *end, test_events *out) {
  int64_t step = 0;
  double seconds = 0;
  for (field f; next(&at, end, &f);) {
    if (f.number == 1 && f.kind == 1)
      memcpy(&seconds, &f.value, sizeof seconds);
    else if (f.number == 2 && f.kind == 0)
      step = (int64_t)f.value;
    else if (f.number == 3 && f.kind == 2)
      copy_text(&f, out->version, sizeof out->version);
    else if (f.number == 5 && f.kind == 2)
      read_summary(&f, step, seconds, out);
    else if (f.number == 7 && f.kind == 2)
      out->starts += f.value == 2 && f.bytes[0] == 8 && f.bytes[1] == 1;
    else
      fail_msg("field %d of an event", f.number);
  }
}

void test_events_read(const char *path, test_events *out) {
  size_t bytes;
  unsigned char *const file = test_file_read(path, &bytes);
  *out = (test_events){0};
  for (size_t at = 0; bytes - at >= 12;) {
    const size_t length = (size_t)little(file + at, 8);
    assert_int_equal(little(file + at + 8, 4), masked_crc(file + at, 8));
    if (length > bytes - at - 12 || bytes - at - 12 - length < 4) break;
    assert_int_equal(little(file + at + 12 + length, 4), masked_crc(file + at + 12, length));
    read_event(file + at + 12, file + at + 12 + length, out);
    out->records++;
    at += 16 + length;
  }
  free(file);
}

void test_events_free(test_events *events) {
  free(events->scalars);
  *events = (test_events){0};
}
