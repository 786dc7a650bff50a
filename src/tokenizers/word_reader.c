/* word_reader.c - see word_reader.h. */
#include "tokenizers/word_reader.h"

hark_status hark_word_reader_open(hark_context *context, const hark_regex *regex, const void *text, size_t bytes, bool last,
                                  hark_word_reader *out) {
  *out = (hark_word_reader){.context = context, .regex = regex, .text = text, .bytes = bytes, .last = last};
  out->memory = hark_regex_match_memory();
  return out->memory != NULL ? HARK_OK : hark_fail(context, HARK_OUT_OF_MEMORY, "out of memory for a regular expression");
}

void hark_word_reader_close(hark_word_reader *reader) {
  if (reader->memory != NULL) hark_regex_match_free(reader->memory);
  reader->memory = NULL;
}

/* Moves `valid` on, over the window of a word if possible. */
static void look_ahead(hark_word_reader *r) {
  while (!r->stopped && r->valid < r->bytes && r->valid - r->at < HARK_WORD_WINDOW) {
    uint32_t code;
    size_t length = 0;
    const hark_utf8_result result = hark_utf8_decode(r->text + r->valid, r->bytes - r->valid, &code, &length);
    if (result == HARK_UTF8_INCOMPLETE && !r->last) return;
    r->stopped = result != HARK_UTF8_OK;
    if (!r->stopped) r->valid += length;
  }
}

hark_status hark_word_reader_next(hark_word_reader *r, hark_span *word) {
  size_t begin = 0, end = 0;
  bool found = false;
  look_ahead(r);
  *word = (hark_span){(const char *)r->text + r->at, 0};
  const size_t known = r->valid - r->at;
  if (known < HARK_WORD_WINDOW && !r->stopped && !r->last) return HARK_OK;
  if (known > 0) {
    HARK_TRY(hark_regex_next(r->context, r->regex, r->memory, (hark_span){word->text, known}, 0, &found, &begin, &end));
    if (!found || begin != 0 || end == 0)
      return hark_fail(r->context, HARK_INTERNAL_ERROR, "the expression of words leaves out a character");
    word->bytes = end;
  } else if (r->stopped) {
    word->bytes = 1;
    r->valid++;
    r->stopped = false;
  }
  r->at += word->bytes;
  return HARK_OK;
}
