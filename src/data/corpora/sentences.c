/* sentences.c - see sentences.h. The token HARK_TOKEN_BEGIN separates sentences; no text contains it. */
#include "data/corpora/sentences.h"

#include <inttypes.h>
#include <string.h>

#include "core/core.h"
#include "data/inputs.h"
#include "data/json_lines.h"
#include "data/permutation.h"
#include "io/files.h"
#include "tokenizers/tokenizer.h"

#define STREAM_WINDOW 6 /* of HARK_RANDOM_DATA; 0 to 5: batches.c, permutation.c, example_batches.c, masking.c */
#define PART_TOKENS 65536
#define FIRST_CAPACITY 1024
#define READ_TOKENS 256 /* tokens of a window read at once */

/* ---- packing ---- */

/* The state of packing. */
typedef struct packer {
  hark_sentences *s;
  int64_t used;  /* positions of the current window; 0: there is none yet */
  int64_t begin; /* first token of the current sentence */
} packer;

static hark_status grow(hark_context *context, hark_sentences *s) {
  const int64_t capacity = s->capacity > 0 ? 2 * s->capacity : FIRST_CAPACITY;
  void *first = NULL, *targets = NULL;
  HARK_TRY(hark_allocate(context, (size_t)(capacity + 1) * sizeof *s->first, &first));
  const hark_status status = hark_allocate(context, (size_t)capacity * sizeof *s->targets, &targets);
  if (status != HARK_OK) {
    hark_release(context, first, (size_t)(capacity + 1) * sizeof *s->first);
    return status;
  }
  if (s->windows > 0) {
    memcpy(first, s->first, (size_t)s->windows * sizeof *s->first);
    memcpy(targets, s->targets, (size_t)s->windows * sizeof *s->targets);
  }
  const int64_t windows = s->windows;
  hark_sentences_close(s);
  s->first = first;
  s->targets = targets;
  s->windows = windows;
  s->capacity = capacity;
  return HARK_OK;
}

/* Ends the current window; the next one begins at token `first` with `positions` positions. */
static hark_status begin_window(packer *p, int64_t first, int64_t positions) {
  hark_sentences *s = p->s;
  if (s->windows == s->capacity) HARK_TRY(grow(s->context, s));
  s->first[s->windows] = first;
  s->targets[s->windows++] = (int32_t)positions;
  p->used = positions;
  return HARK_OK;
}

static bool is_blank(const char *line, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (line[i] != ' ' && (line[i] < '\t' || line[i] > '\r')) return false;
  return true;
}

/* Line, from 1, of sentence number `target` of a document that begins at byte `from` of a text. */
static int64_t find_line(const char *text, size_t bytes, int64_t from, int64_t target) {
  int64_t line = 1, sentences = 0;
  for (size_t at = 0, end; at < bytes; at = end + 1, line++) {
    const char *newline = memchr(text + at, '\n', bytes - at);
    end = newline != NULL ? (size_t)(newline - text) : bytes;
    if ((int64_t)at < from || is_blank(text + at, end - at)) continue;
    if (sentences++ == target) break;
  }
  return line;
}

static hark_status fail_long(const packer *p, int64_t positions) {
  hark_context *context = p->s->context;
  const hark_split split = p->s->settings.split;
  const int64_t documents = hark_corpus_counts(p->s->corpus, split).documents;
  hark_document document = {.path = ""};
  for (int64_t d = 0; d < documents; d++) {
    HARK_TRY(hark_corpus_document(context, p->s->corpus, split, d, &document));
    if (p->begin < document.first + document.count) break;
  }
  int64_t number = 0, line = 0; /* of the sentence in its document */
  int32_t tokens[READ_TOKENS];
  for (int64_t at = document.first, count; at < p->begin; at += count) {
    count = hark_min(READ_TOKENS, p->begin - at);
    HARK_TRY(hark_corpus_read(context, p->s->corpus, split, at, count, tokens));
    for (int64_t i = 0; i < count; i++) number += tokens[i] == HARK_TOKEN_BEGIN;
  }
  if (hark_path_kind_of(document.path) != HARK_PATH_FILE || hark_json_lines_is(document.path)) /* its lines are those of texts in it */
    return hark_fail(context, HARK_BAD_FILE,
                     "%s: a sentence has %" PRId64 " tokens, model.context has room for %" PRId64 "; data.long_sentences cut divides it",
                     document.path, positions, p->s->settings.context);
  hark_text text = hark_text_empty(context);
  const hark_status status = hark_input_read(context, document.path, SIZE_MAX / 2, &text);
  if (status == HARK_OK) line = find_line(hark_text_get(&text), text.length, document.byte_offset, number);
  hark_text_free(&text);
  HARK_TRY(status);
  return hark_fail(context, HARK_BAD_FILE,
                   "%s:%" PRId64 ": the sentence has %" PRId64 " tokens, model.context has room for %" PRId64
                   "; data.long_sentences cut divides it",
                   document.path, line, positions, p->s->settings.context);
}

/* Places the current sentence, which has `positions` positions. */
static hark_status place(packer *p, int64_t positions) {
  hark_sentences *s = p->s;
  const int64_t length = s->settings.context;
  if (positions > length && s->settings.refuse_longer) return fail_long(p, positions);
  s->cut += positions > length;
  s->positions += positions;
  if (p->used > 0 && p->used + positions <= length) {
    p->used += positions;
    s->targets[s->windows - 1] += (int32_t)positions;
    return HARK_OK;
  }
  for (int64_t at = 0; at < positions; at += length) HARK_TRY(begin_window(p, p->begin + at, hark_min(length, positions - at)));
  return HARK_OK;
}

static hark_status pack(hark_context *context, packer *p, int32_t *tokens) {
  const hark_sentences *s = p->s;
  const int64_t all = hark_corpus_counts(s->corpus, s->settings.split).tokens;
  for (int64_t first = 0; first < all; first += PART_TOKENS) {
    const int64_t count = hark_min(PART_TOKENS, all - first);
    HARK_TRY(hark_corpus_read(context, s->corpus, s->settings.split, first, count, tokens));
    for (int64_t i = 0; i < count; i++) {
      if (tokens[i] != HARK_TOKEN_BEGIN || first + i == 0) continue;
      HARK_TRY(place(p, first + i - p->begin - 1));
      p->begin = first + i;
    }
  }
  HARK_TRY(place(p, all - p->begin - 1));
  s->first[s->windows] = all;
  return HARK_OK;
}

hark_status hark_sentences_open(hark_context *context, const hark_corpus *corpus, const hark_sentences_settings *settings,
                                hark_sentences *out) {
  *out = (hark_sentences){.context = context, .corpus = corpus, .settings = *settings};
  if (settings->context < 1 || settings->context > INT32_MAX || settings->split >= HARK_SPLIT_COUNT ||
      settings->order > HARK_ORDER_SEQUENTIAL)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_sentences_open: context, split or order has an invalid value");
  if (hark_corpus_counts(corpus, settings->split).sentences == 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "the %s text has no sentences",
                     settings->split == HARK_SPLIT_TRAINING ? "training" : "validation");
  packer p = {.s = out};
  int32_t *tokens;
  HARK_TRY(hark_allocate(context, PART_TOKENS * sizeof *tokens, (void **)&tokens));
  const hark_status status = pack(context, &p, tokens);
  hark_release(context, tokens, PART_TOKENS * sizeof *tokens);
  return status;
}

void hark_sentences_close(hark_sentences *s) {
  if (s->capacity > 0) {
    hark_release(s->context, s->first, (size_t)(s->capacity + 1) * sizeof *s->first);
    hark_release(s->context, s->targets, (size_t)s->capacity * sizeof *s->targets);
  }
  s->first = NULL;
  s->targets = NULL;
  s->capacity = s->windows = 0;
}

/* ---- samples ---- */

int64_t hark_sentences_window(const hark_sentences *s, int64_t sample) {
  const uint64_t seed = s->settings.seed;
  switch (s->settings.order) {
    case HARK_ORDER_RANDOM: return hark_draw_below(seed, STREAM_WINDOW, (uint64_t)sample, s->windows);
    case HARK_ORDER_SHUFFLED: return hark_permute(seed, (uint32_t)(sample / s->windows), s->windows, sample % s->windows);
    case HARK_ORDER_SEQUENTIAL: break;
  }
  return sample % s->windows;
}

int64_t hark_sentences_targets(const hark_sentences *s, int64_t first, int64_t count) {
  int64_t targets = 0;
  for (int64_t i = 0; i < count; i++) targets += s->targets[hark_sentences_window(s, first + i)];
  return targets;
}

/* Appends the window's sequences to the batch: each token that does not begin a sentence is a target, and the previous token is its
 * input. */
static hark_status read_window(hark_context *context, const hark_sentences *s, int64_t window, int64_t *segment,
                               hark_example_batch *batch) {
  const int64_t all = hark_corpus_counts(s->corpus, s->settings.split).tokens;
  /* the next token after the window is read too: the target of a cut sentence */
  const int64_t end = hark_min(s->first[window + 1] + 1, all);
  int32_t part[READ_TOKENS], before = -1;
  bool begins = true;
  for (int64_t at = s->first[window]; at < end;) {
    const int64_t count = hark_min(READ_TOKENS, end - at);
    HARK_TRY(hark_corpus_read(context, s->corpus, s->settings.split, at, count, part));
    for (int64_t i = 0; i < count; i++) {
      if (part[i] == HARK_TOKEN_BEGIN) {
        begins = true;
      } else if (before >= 0) { /* input and target */
        const int64_t to = batch->tokens++;
        if (begins) (*segment)++;
        batch->inputs[to] = before;
        batch->targets[to] = part[i];
        batch->segments[to] = *segment;
        batch->positions[to] = begins ? 0 : batch->positions[to - 1] + 1;
        batch->longest = hark_max(batch->longest, batch->positions[to] + 1);
        begins = false;
      }
      before = part[i];
    }
    at += count;
  }
  return HARK_OK;
}

hark_status hark_sentences_read(hark_context *context, const hark_sentences *s, int64_t first, int64_t rows, hark_example_batch *batch) {
  if (first < 0 || rows < 0 || first > INT64_MAX - rows)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "hark_sentences_read: %" PRId64 " rows from sample %" PRId64, rows, first);
  int64_t segment = -1;
  batch->tokens = batch->longest = 0;
  for (batch->rows = 0; batch->rows < rows; batch->rows++) {
    batch->ranges[2 * batch->rows] = batch->tokens;
    HARK_TRY(read_window(context, s, hark_sentences_window(s, first + batch->rows), &segment, batch));
    batch->ranges[2 * batch->rows + 1] = batch->tokens;
  }
  batch->real = batch->tokens;
  return HARK_OK;
}
