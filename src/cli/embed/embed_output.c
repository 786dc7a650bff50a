/* embed_output.c - see embed_output.h. Formats:
 *
 *   jsonl         a list of numbers for each line of the text; 9 significant digits, which every f32 can be read back from
 *   npy           f32 [lines, width], NumPy's format, version 1.0
 *   safetensors   the tensor "embeddings", f32 [lines, width]
 */
#include "cli/embed/embed_output.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "io/safetensors.h"
#include "io/temporary.h"

#define OUTPUT_BYTES ((size_t)1 << 16) /* of JSON lines are collected before they are written */
#define NUMBER_BYTES (HARK_NUMBER_BYTES + 1)

hark_status hark_embed_output_open(hark_context *context, hark_embed_format format, const char *path, int64_t width,
                                   hark_embed_output *out) {
  *out = (hark_embed_output){.context = context, .format = format, .path = path, .width = width, .text = hark_text_empty(context)};
  HARK_TRY(hark_path_clean(context, path));
  return format == HARK_EMBED_JSONL ? hark_writer_open(context, &out->writer, path) : HARK_OK;
}

void hark_embed_output_close(hark_embed_output *output) {
  hark_writer_discard(&output->writer);
  hark_text_free(&output->text);
}

/* ---- numbers ---- */

/* Numbers of at least 1e-4 and below 10, which nearly all numbers of embeddings are: 9 significant digits, as a whole number of units of
 * 1e-12 to 1e-8. The product with a power of 10 is rounded once, to 2^-53, so that the last digit is off by at most 1: half the distance of
 * two f32 is at least 2.98e-8 of the number, one unit of the ninth digit at most 1e-8. */
static size_t print_usual(double size, char *out) {
  static const double scales[] = {1e8, 1e9, 1e10, 1e11, 1e12};
  int decimals = 0;
  while (size * scales[decimals] < 1e8) decimals++;
  uint64_t whole = (uint64_t)(size * scales[decimals] + 0.5);
  decimals += 8;
  for (; whole % 10 == 0 && decimals > 1; decimals--) whole /= 10;
  char digits[NUMBER_BYTES];
  size_t at = sizeof digits;
  for (int i = 0; i < decimals || whole > 0 || i == decimals; i++) {
    if (i == decimals) digits[--at] = '.';
    digits[--at] = (char)('0' + whole % 10);
    whole /= 10;
  }
  memcpy(out, digits + at, sizeof digits - at);
  return sizeof digits - at;
}

/* Appends a finite number. */
static void append_number(hark_text *text, float number) {
  char out[NUMBER_BYTES];
  const double size = fabs((double)number);
  size_t length = 0;
  if (signbit(number)) out[length++] = '-';
  if (size >= 1e-4 && size < 9.9)
    length += print_usual(size, out + length);
  else
    length += strlen(hark_number_print(size, out + length));
  hark_text_append_bytes(text, out, length);
}

static void append_line(hark_text *text, const float *row, int64_t width) {
  hark_text_append_bytes(text, "[", 1);
  for (int64_t i = 0; i < width; i++) {
    if (i > 0) hark_text_append_bytes(text, ", ", 2);
    append_number(text, row[i]);
  }
  hark_text_append_bytes(text, "]\n", 2);
}

/* ---- rows ---- */

static hark_status write_text(hark_embed_output *output) {
  HARK_TRY(output->text.status);
  if (output->text.length == 0) return HARK_OK;
  HARK_TRY(hark_writer_append(output->context, &output->writer, hark_text_get(&output->text), output->text.length));
  hark_text_resize(&output->text, 0);
  return HARK_OK;
}

static hark_status check_row(const hark_embed_output *output, const float *row) {
  for (int64_t i = 0; i < output->width; i++)
    if (!isfinite(row[i]))
      return hark_fail(output->context, HARK_NOT_FINITE, "the embedding of line %" PRId64 " has a number that is not finite",
                       output->rows + 1);
  return HARK_OK;
}

hark_status hark_embed_output_add(hark_embed_output *output, const float *rows, int64_t count) {
  for (int64_t i = 0; i < count; i++, output->rows++) {
    const float *const row = rows + i * output->width;
    HARK_TRY(check_row(output, row));
    if (output->format == HARK_EMBED_JSONL)
      append_line(&output->text, row, output->width);
    else
      hark_text_append_bytes(&output->text, (const char *)row, (size_t)output->width * sizeof *row);
    HARK_TRY(output->text.status);
    if (output->format == HARK_EMBED_JSONL && output->text.length >= OUTPUT_BYTES) HARK_TRY(write_text(output));
  }
  return HARK_OK;
}

/* ---- matrices ---- */

#define NPY_HEADER_BYTES 128 /* a multiple of 64, as the format requires */
#define NPY_MAGIC "\x93NUMPY\x01\x00"
#define NPY_MAGIC_BYTES 10 /* with the length of what follows in two bytes */

static hark_status write_npy(hark_embed_output *output) {
  char header[NPY_HEADER_BYTES + 1];
  memcpy(header, NPY_MAGIC, NPY_MAGIC_BYTES - 2);
  header[NPY_MAGIC_BYTES - 2] = NPY_HEADER_BYTES - NPY_MAGIC_BYTES;
  header[NPY_MAGIC_BYTES - 1] = 0;
  const int length =
      snprintf(header + NPY_MAGIC_BYTES, sizeof header - NPY_MAGIC_BYTES,
               "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }", output->rows, output->width);
  memset(header + NPY_MAGIC_BYTES + length, ' ', (size_t)(NPY_HEADER_BYTES - NPY_MAGIC_BYTES - length - 1));
  header[NPY_HEADER_BYTES - 1] = '\n';
  HARK_TRY(hark_writer_open(output->context, &output->writer, output->path));
  HARK_TRY(hark_writer_append(output->context, &output->writer, header, NPY_HEADER_BYTES));
  HARK_TRY(write_text(output));
  return hark_writer_commit(output->context, &output->writer, NULL);
}

/* The numbers are borrowed. */
static hark_status write_safetensors(hark_embed_output *output) {
  const int64_t shape[] = {output->rows, output->width};
  hark_tensor tensor;
  HARK_TRY(hark_tensor_describe(output->context, HARK_F32, 2, shape, &tensor));
  tensor.data = output->text.data;
  const hark_named_tensor named = {.name = "embeddings", .tensor = &tensor};
  return hark_safetensors_write(output->context, output->path, &named, 1, NULL, 0, NULL);
}

hark_status hark_embed_output_finish(hark_embed_output *output) {
  switch (output->format) {
    case HARK_EMBED_NPY: return write_npy(output);
    case HARK_EMBED_SAFETENSORS: return write_safetensors(output);
    case HARK_EMBED_JSONL: break;
  }
  HARK_TRY(write_text(output));
  return hark_writer_commit(output->context, &output->writer, NULL);
}
