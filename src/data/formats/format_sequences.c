/* format_sequences.c - sequences of words with targets at some of them:
 *
 *     Words <TAB> k0 k1 v0 v1 _                         the first line: all words, in the order of their symbols
 *     k1 v0 k0 v1 _ k0 _ <TAB> 5:v1                     words, and for some positions (from 0, increasing) the word to predict
 *
 * Fields are separated by tabs, words by one blank. Written by the generators of data/tasks/make_sequences.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/checksum.h"
#include "data/examples/example_store.h"
#include "data/line_reader.h"
#include "io/words.h"

#define FIRST_WORD "Words\t"
#define WORDS_MAX (1 << 20)

/* A hash table of a file's words, at most half full, with open addressing and linear steps. */
typedef struct dictionary {
  const char *text; /* the words, each ended by a zero byte */
  int32_t count;
  size_t *at;    /* [count] where each begins */
  int32_t *slot; /* [slots] symbol + 1; 0: free */
  size_t slots;  /* a power of two */
} dictionary;

typedef struct source {
  hark_example_reader *reader;
  hark_line_reader lines;
  hark_text words;
  dictionary dictionary;
  int32_t *symbols; /* of a line */
  size_t capacity;
} source;

static size_t slot_of(const dictionary *d, const char *word, size_t length) {
  return (size_t)(hark_checksum_bytes(HARK_CHECKSUM_START, word, length) >> 7) & (d->slots - 1);
}

/* The slot of a word, or the free slot for it. */
static size_t find_slot(const dictionary *d, const char *word, size_t length) {
  size_t i = slot_of(d, word, length);
  for (; d->slot[i] != 0; i = (i + 1) & (d->slots - 1)) {
    const char *const have = d->text + d->at[d->slot[i] - 1];
    if (strlen(have) == length && memcmp(have, word, length) == 0) break;
  }
  return i;
}

static hark_status fail_word(const source *s, size_t at, size_t length, const char *what) {
  char word[HARK_WORD_BYTES], shown[HARK_SHOWN_BYTES];
  (void)snprintf(word, sizeof word, "%.*s", (int)hark_min((int64_t)length, HARK_WORD_BYTES - 1), s->lines.line + at);
  return hark_lines_fail(s->reader->context, &s->lines, at, "\"%s\" %s", hark_text_shown(word, shown), what);
}

/* The end of the word at `at`: a blank, or `end`. */
static size_t word_end(const char *line, size_t at, size_t end) {
  const char *const blank = at < end ? memchr(line + at, ' ', end - at) : NULL;
  return blank != NULL ? (size_t)(blank - line) : end;
}

/* Fills the dictionary with copies of the first line's words. */
static hark_status learn_words(source *s) {
  hark_context *const context = s->reader->context;
  dictionary *const d = &s->dictionary;
  const char *const line = s->lines.line;
  const size_t from = strlen(FIRST_WORD), end = s->lines.length;
  int64_t count = 1;
  for (size_t at = from; at < end; at++) count += line[at] == ' ';
  if (count > WORDS_MAX) return hark_lines_fail(context, &s->lines, from, "%" PRId64 " words, expected at most %d", count, WORDS_MAX);
  hark_text_append_bytes(&s->words, line + from, end - from);
  hark_text_append_bytes(&s->words, "", 1);
  HARK_TRY(s->words.status);
  if (memchr(line + from, '\0', end - from) != NULL) return hark_lines_fail(context, &s->lines, from, "a zero byte in a word");
  HARK_TRY(hark_lines_check_utf8(context, &s->lines, from, end - from)); /* the vocabulary's file must be UTF-8 */
  d->count = (int32_t)count;
  for (d->slots = 2; d->slots < 2 * (size_t)count; d->slots *= 2) continue;
  HARK_TRY(hark_allocate(context, (size_t)count * sizeof *d->at, (void **)&d->at));
  HARK_TRY(hark_allocate_zero(context, d->slots * sizeof *d->slot, (void **)&d->slot));
  d->text = s->words.data;
  int32_t symbol = 0;
  for (size_t at = from; symbol < count; symbol++) {
    const size_t stop = word_end(line, at, end);
    if (stop == at) return hark_lines_fail(context, &s->lines, at, "empty word");
    s->words.data[stop - from] = '\0';
    d->at[symbol] = at - from;
    const size_t slot = find_slot(d, line + at, stop - at);
    if (d->slot[slot] != 0) return fail_word(s, at, stop - at, "occurs twice");
    d->slot[slot] = symbol + 1;
    at = stop + 1;
  }
  return HARK_OK;
}

static hark_status read_words_line(source *s) {
  const hark_example_shape none = {0};
  hark_example_shape shape = none;
  bool more, same;
  HARK_TRY(hark_lines_next(s->reader->context, &s->lines, &more));
  if (!more || s->lines.length <= strlen(FIRST_WORD) || memcmp(s->lines.line, FIRST_WORD, strlen(FIRST_WORD)) != 0)
    return hark_lines_fail(s->reader->context, &s->lines, 0, "expected \"Words<TAB>\" and all words");
  HARK_TRY(learn_words(s));
  shape.symbols = s->dictionary.count;
  HARK_TRY(hark_example_shape_set(s->reader, &shape, hark_text_get(&s->words), s->words.length, &same));
  return same ? HARK_OK : hark_lines_fail(s->reader->context, &s->lines, 0, "other words than in the previous files");
}

static hark_status look_up(const source *s, size_t at, size_t end, int32_t *symbol) {
  if (end == at) return hark_lines_fail(s->reader->context, &s->lines, at, "empty word");
  *symbol = s->dictionary.slot[find_slot(&s->dictionary, s->lines.line + at, end - at)] - 1;
  return *symbol >= 0 ? HARK_OK : fail_word(s, at, end - at, "is not one of the words of the first line");
}

static hark_status make_room(source *s, size_t count) {
  if (count <= s->capacity) return HARK_OK;
  hark_release(s->reader->context, s->symbols, s->capacity * sizeof *s->symbols);
  s->symbols = NULL;
  s->capacity = 0;
  HARK_TRY(hark_allocate(s->reader->context, 2 * count * sizeof *s->symbols, (void **)&s->symbols));
  s->capacity = 2 * count;
  return HARK_OK;
}

/* Reads "POSITION:WORD" at [at, end). */
static hark_status read_target(source *s, size_t at, size_t end, int64_t length, int64_t *last) {
  const char *const line = s->lines.line;
  size_t colon = at;
  int64_t position = 0;
  int32_t symbol;
  for (; colon < end && line[colon] >= '0' && line[colon] <= '9' && position <= INT32_MAX; colon++)
    position = 10 * position + (line[colon] - '0');
  if (colon == at || colon == end || line[colon] != ':') return fail_word(s, at, end - at, "is not POSITION:WORD");
  if (position >= length || position <= *last)
    return hark_lines_fail(s->reader->context, &s->lines, at, "position %" PRId64 ", expected %" PRId64 " to %" PRId64, position, *last + 1,
                           length - 1);
  HARK_TRY(look_up(s, colon + 1, end, &symbol));
  *last = position;
  return hark_example_target(s->reader, position, symbol);
}

static hark_status read_line(source *s) {
  const char *const line = s->lines.line;
  const size_t all = s->lines.length;
  const char *const tab = all > 0 ? memchr(line, '\t', all) : NULL;
  if (tab == NULL) return hark_lines_fail(s->reader->context, &s->lines, all, "no tab, expected words, a tab and targets");
  const size_t length = (size_t)(tab - line);
  size_t count = 0;
  if (length == 0) return hark_lines_fail(s->reader->context, &s->lines, 0, "empty sequence");
  HARK_TRY(make_room(s, length));
  for (size_t at = 0; at <= length;) {
    const size_t end = word_end(line, at, length);
    HARK_TRY(look_up(s, at, end, &s->symbols[count++]));
    at = end + 1;
  }
  HARK_TRY(hark_example_part_wide(s->reader, s->symbols, count));
  if (length + 1 == all) return hark_lines_fail(s->reader->context, &s->lines, all, "no targets");
  int64_t last = -1;
  for (size_t at = length + 1; at <= all;) {
    const size_t end = word_end(line, at, all);
    HARK_TRY(read_target(s, at, end, (int64_t)count, &last));
    at = end + 1;
  }
  return hark_example_end(s->reader, HARK_TARGET_IGNORED);
}

static hark_status read_lines(source *s) {
  HARK_TRY(read_words_line(s));
  for (;;) {
    bool more;
    HARK_TRY(hark_lines_next(s->reader->context, &s->lines, &more));
    if (!more) return HARK_OK;
    HARK_TRY(read_line(s));
  }
}

static hark_status read_file(hark_example_reader *reader) {
  hark_context *const context = reader->context;
  source s = {.reader = reader, .words = hark_text_empty(context)};
  hark_status status = hark_lines_open_source(context, &s.lines, reader->source);
  if (status == HARK_OK) status = read_lines(&s);
  hark_lines_close(&s.lines);
  hark_text_free(&s.words);
  hark_release(context, s.dictionary.at, (size_t)s.dictionary.count * sizeof *s.dictionary.at);
  hark_release(context, s.dictionary.slot, s.dictionary.slots * sizeof *s.dictionary.slot);
  hark_release(context, s.symbols, s.capacity * sizeof *s.symbols);
  return status;
}

/* A word and the separator after it have at least two bytes. */
static int64_t symbols_at_most(uint64_t file_bytes) { return (int64_t)(file_bytes / 2) + 1; }

const hark_example_format hark_example_format_sequences = {
    .name = "sequences",
    .summary = "words, some of which have a word to predict",
    .ending = "tsv",
    .parts = 1,
    .target_kind = HARK_TARGET_TOKENS,
    .symbols_at_most = symbols_at_most,
    .read = read_file,
};
