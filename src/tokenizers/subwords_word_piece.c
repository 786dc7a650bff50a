/* subwords_word_piece.c - pieces of WordPiece (Schuster and Nakajima 2012; Wu et al., arXiv 1609.08144), learned without another library.
 *
 * As in the trainer of the Hugging Face tokenizers library, the most frequent pair of pieces becomes a piece, again and again
 * (merge_training.h); the paper's choice by likelihood is not used. Pieces begin as characters: the most frequent ones that make up the
 * fraction `coverage` of the text. Other characters end words. Of pairs of equal frequency the one whose left piece is first in the
 * vocabulary is taken, then the one whose right piece is: characters by code point, then merged pieces by number. Piece i has score -i.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tokenizers/merge_training.h"
#include "tokenizers/pipeline/growing.h"
#include "tokenizers/pipeline/unicode.h"
#include "tokenizers/subwords.h"

typedef struct character_count {
  int64_t count;
  uint32_t code;
} character_count;

typedef struct piece_learner {
  hark_context *context;
  const hark_subword_job *job;
  hark_subword_sink *sink;
  void *user;
  character_count *character; /* [HARK_CODE_POINTS]: by code, then the chosen ones */
  int32_t *symbol;            /* [HARK_CODE_POINTS]; -1: not chosen */
  size_t chosen;
  hark_bytes text; /* of all pieces */
  hark_ids end;    /* of each in it */
} piece_learner;

/* ---- characters ---- */

static int by_count(const void *a, const void *b) {
  const character_count *one = a, *other = b;
  if (one->count != other->count) return one->count > other->count ? -1 : 1;
  return one->code < other->code ? -1 : one->code > other->code;
}

static int by_code(const void *a, const void *b) {
  const character_count *one = a, *other = b;
  return one->code < other->code ? -1 : one->code > other->code;
}

/* Counts characters; returns their number. */
static int64_t count_characters(piece_learner *l) {
  int64_t total = 0;
  for (uint32_t code = 0; code < HARK_CODE_POINTS; code++) l->character[code] = (character_count){0, code};
  for (size_t w = 0; w < l->job->words; w++)
    for (size_t at = l->job->at[w], length; at < l->job->at[w + 1]; at += length) {
      l->character[hark_character(l->job->text + at, &length)].count += l->job->count[w];
      total += l->job->count[w];
    }
  return total;
}

static void choose_characters(piece_learner *l) {
  const double needed = l->job->coverage * (double)count_characters(l);
  int64_t covered = 0;
  qsort(l->character, HARK_CODE_POINTS, sizeof *l->character, by_count);
  while (l->chosen < HARK_CODE_POINTS && l->character[l->chosen].count > 0 && (double)covered < needed)
    covered += l->character[l->chosen++].count;
  qsort(l->character, l->chosen, sizeof *l->character, by_code);
  for (size_t code = 0; code < HARK_CODE_POINTS; code++) l->symbol[code] = -1;
  for (size_t i = 0; i < l->chosen; i++) l->symbol[l->character[i].code] = (int32_t)i;
}

/* ---- pieces ---- */

static hark_span piece_text(const piece_learner *l, int32_t piece) {
  const size_t begin = piece > 0 ? (size_t)l->end.data[piece - 1] : 0;
  return (hark_span){l->text.data + begin, (size_t)l->end.data[piece] - begin};
}

/* Gives the piece whose text was just appended. */
static hark_status give(piece_learner *l) {
  if (l->text.count > INT32_MAX) return hark_fail(l->context, HARK_TOO_LARGE, "pieces of more than %d bytes in all", INT32_MAX);
  HARK_TRY(hark_ids_add(l->context, &l->end, (int32_t)l->text.count));
  const int32_t number = (int32_t)l->end.count - 1;
  const hark_span text = piece_text(l, number);
  return l->sink(l->user, text.text, text.bytes, -number);
}

static hark_status give_characters(piece_learner *l) {
  for (size_t i = 0; i < l->chosen; i++) {
    char text[HARK_UTF8_MAX_BYTES];
    HARK_TRY(hark_bytes_add(l->context, &l->text, text, hark_utf8_encode(l->character[i].code, text)));
    HARK_TRY(give(l));
  }
  return HARK_OK;
}

static hark_status take_merge(void *user, int32_t left, int32_t right, int32_t *symbol, bool *more) {
  piece_learner *const l = user;
  *more = l->end.count < (size_t)l->job->pieces;
  if (!*more) return HARK_OK;
  HARK_TRY(HARK_RESERVE(l->context, &l->text, piece_text(l, left).bytes + piece_text(l, right).bytes)); /* the text does not move below */
  const hark_span a = piece_text(l, left), b = piece_text(l, right);
  HARK_TRY(hark_bytes_add(l->context, &l->text, a.text, a.bytes));
  HARK_TRY(hark_bytes_add(l->context, &l->text, b.text, b.bytes));
  *symbol = (int32_t)l->end.count;
  return give(l);
}

/* Words as symbols: at most one word for each character of the job, since other characters divide. */
typedef struct symbol_words {
  int32_t *symbol;
  size_t *at;
  int64_t *count;
  size_t words, capacity;
} symbol_words;

static hark_status open_words(hark_context *context, size_t characters, symbol_words *out) {
  *out = (symbol_words){.capacity = characters};
  HARK_TRY(hark_allocate(context, characters * sizeof *out->symbol, (void **)&out->symbol));
  HARK_TRY(hark_allocate(context, (characters + 1) * sizeof *out->at, (void **)&out->at));
  return hark_allocate(context, characters * sizeof *out->count, (void **)&out->count);
}

static void close_words(hark_context *context, symbol_words *words) {
  hark_release(context, words->symbol, words->capacity * sizeof *words->symbol);
  hark_release(context, words->at, (words->capacity + 1) * sizeof *words->at);
  hark_release(context, words->count, words->capacity * sizeof *words->count);
}

static void fill_words(const piece_learner *l, symbol_words *out) {
  size_t made = 0;
  out->at[0] = 0;
  for (size_t w = 0; w < l->job->words; w++) {
    for (size_t at = l->job->at[w], length; at < l->job->at[w + 1]; at += length) {
      const int32_t symbol = l->symbol[hark_character(l->job->text + at, &length)];
      if (symbol >= 0) out->symbol[made++] = symbol;
      if (made == out->at[out->words] || (symbol >= 0 && at + length < l->job->at[w + 1])) continue;
      out->count[out->words++] = l->job->count[w];
      out->at[out->words] = made;
    }
  }
}

static hark_status learn_pieces(piece_learner *l) {
  symbol_words words;
  hark_status status = open_words(l->context, l->job->at[l->job->words], &words);
  if (status == HARK_OK) {
    fill_words(l, &words);
    const hark_merge_job job = {.symbol = words.symbol, .at = words.at, .count = words.count, .words = words.words};
    status = hark_merges_learn(l->context, &job, take_merge, l);
  }
  close_words(l->context, &words);
  return status;
}

static hark_status learn_all(piece_learner *l, char *message) {
  HARK_TRY(hark_allocate(l->context, HARK_CODE_POINTS * sizeof *l->character, (void **)&l->character));
  HARK_TRY(hark_allocate(l->context, HARK_CODE_POINTS * sizeof *l->symbol, (void **)&l->symbol));
  choose_characters(l);
  if (l->chosen > (size_t)l->job->pieces) {
    const long long tokens = (long long)l->chosen + l->job->others;
    (void)snprintf(message, HARK_SUBWORD_MESSAGE_BYTES,
                   "expected at least %lld, since characters are pieces too (--subwords %lld), or a lower data.subwords.coverage", tokens,
                   tokens);
    return HARK_BAD_CONFIGURATION;
  }
  HARK_TRY(give_characters(l));
  HARK_TRY(learn_pieces(l));
  if (l->end.count == (size_t)l->job->pieces) return HARK_OK;
  const long long tokens = (long long)l->end.count + l->job->others;
  (void)snprintf(message, HARK_SUBWORD_MESSAGE_BYTES, "the text gives %lld at most (--subwords %lld)", tokens, tokens);
  return HARK_BAD_CONFIGURATION;
}

static hark_status learn(const hark_subword_job *job, hark_subword_sink *sink, void *user, char message[HARK_SUBWORD_MESSAGE_BYTES]) {
  piece_learner l = {.context = job->context, .job = job, .sink = sink, .user = user};
  const hark_status status = learn_all(&l, message);
  hark_release(l.context, l.character, HARK_CODE_POINTS * sizeof *l.character);
  hark_release(l.context, l.symbol, HARK_CODE_POINTS * sizeof *l.symbol);
  HARK_FREE_LIST(l.context, &l.text);
  HARK_FREE_LIST(l.context, &l.end);
  return status;
}

const hark_subword_learner hark_subword_word_piece = {"WordPiece", learn};
