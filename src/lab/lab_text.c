/* lab_text.c - see lab_text.h. */
#include "lab/lab_text.h"

#include <string.h>

#include "data/inputs.h"

#define BYTES_LIMIT ((size_t)1 << 30)
#define HELD_OUT_PART 10

static void own_words(hark_text *text) {
  for (int i = 0; i < hark_lab_entry_count; i++) {
    const hark_experiment *const e = hark_lab_entries[i].experiment;
    const char *const parts[] = {e->summary, e->statement, e->printed, e->corrected, e->notes};
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
      if (parts[p] != NULL) hark_text_append(text, "%s\n", parts[p]);
  }
}

static double entropy_of(const int32_t *numbers, int64_t count, int64_t letters) {
  int64_t times[256] = {0};
  double sum = 0;
  for (int64_t i = 0; i < count; i++) times[numbers[i]]++;
  for (int64_t v = 0; v < letters; v++)
    if (times[v] > 0) sum -= (double)times[v] / (double)count * log((double)times[v] / (double)count);
  return sum;
}

static hark_status number_letters(hark_lab *lab, const hark_text *text, hark_lab_text *out) {
  int32_t number[256];
  void *memory;
  out->length = (int64_t)text->length;
  out->held_out = out->length - out->length / HELD_OUT_PART;
  HARK_TRY(hark_lab_allocate(lab, (text->length + 1) * sizeof(int32_t), &memory));
  out->numbers = memory;
  for (int v = 0; v < 256; v++) number[v] = -1;
  for (int64_t i = 0; i < out->length; i++) {
    const unsigned char byte = (unsigned char)text->data[i];
    if (number[byte] < 0) {
      out->letter[out->letters] = byte;
      number[byte] = (int32_t)out->letters++;
    }
    out->numbers[i] = number[byte];
  }
  out->entropy = entropy_of(out->numbers + out->held_out, out->length - out->held_out, out->letters);
  return HARK_OK;
}

hark_status hark_lab_text_read(hark_lab *lab, const char *path, int64_t least, hark_lab_text *out) {
  hark_text text = hark_text_empty(lab->context);
  hark_status status = HARK_OK;
  *out = (hark_lab_text){0};
  if (path[0] != 0)
    status = hark_input_read(lab->context, path, BYTES_LIMIT, &text);
  else
    own_words(&text);
  if (status == HARK_OK) status = text.status;
  if (status == HARK_OK && (int64_t)text.length / HELD_OUT_PART < least)
    status = hark_fail(lab->context, HARK_BAD_FILE, "%s: a text of %zu bytes, expected at least %lld", path, text.length,
                       (long long)least * HELD_OUT_PART);
  if (status == HARK_OK) status = number_letters(lab, &text, out);
  hark_text_free(&text);
  return status;
}

int64_t hark_lab_text_window(const hark_lab_text *text, bool held_out, int64_t length, const hark_random_stream *words, uint64_t *drawn) {
  const int64_t first = held_out ? text->held_out : 0, last = held_out ? text->length : text->held_out;
  return first + (int64_t)hark_random_word(words, (*drawn)++) % (last - first - length + 1);
}
