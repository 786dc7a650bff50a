/* tokenizer_subwords.c - pieces of words, learned from the text.
 *
 *     token    0 .. 4      reserved
 *              5 .. 260    the bytes 0 .. 255, with byte fallback
 *              then        pieces in the learner's order, and without byte fallback the control characters that occur
 *
 * Text is divided unit by unit (subwords.h), so encoding it in parts gives the same tokens as encoding it as a whole. Pieces are the bytes
 * of the text, so decoding restores spaces and line ends; with byte fallback, characters that are not pieces become bytes.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/checksum.h"
#include "io/json_write.h"
#include "io/number.h"
#include "tokenizers/subword_search.h"
#include "tokenizers/tokenizer_kind.h"
#include "tokenizers/utf8.h"
#include "tokenizers/word_counts.h"

#define BYTE_VALUES 256
#define SCORE_LIMIT 1e9 /* limit on a score's magnitude: sums over a unit are finite */

/* Characters that learners use internally (SentencePiece writes a space as U+2581 and the unknown as U+2585) are in no learned piece. */
#define SPACE_MARK 0x2581
#define UNKNOWN_MARK 0x2585
#define DELETE 0x7F

static const char *const model_names[] = {"unigram", "bpe", "wordpiece"};

typedef struct subwords_state {
  hark_subword_settings settings; /* while learning */
  hark_word_counts words;
  uint64_t apart; /* characters outside words that occurred: bit apart_bit() */
  bool byte_fallback;
  hark_subword_search search;
} subwords_state;

static void subwords_close(hark_context *context, hark_tokenizer *tokenizer) {
  subwords_state *state = tokenizer->state;
  hark_word_counts_free(context, &state->words);
  hark_subword_search_close(context, &state->search);
}

static bool is_control(uint32_t code) { return code < ' ' || code == DELETE; }

static int32_t first_piece(const subwords_state *state) { return HARK_TOKEN_RESERVED + (state->byte_fallback ? BYTE_VALUES : 0); }

hark_subword_pieces hark_subword_pieces_of(const hark_tokenizer *tokenizer) {
  const subwords_state *state = tokenizer->state;
  return (hark_subword_pieces){.model = state->search.model,
                               .byte_fallback = state->byte_fallback,
                               .first = first_piece(state),
                               .count = (int32_t)state->search.pieces,
                               .score = state->search.score};
}

/* Bytes of the first unit of a text; 0 when more text is needed to determine it. *result reports when it ends before invalid UTF-8. */
static size_t unit_at(const unsigned char *text, size_t bytes, bool last, hark_utf8_result *result) {
  size_t at = 0;
  *result = HARK_UTF8_OK;
  while (at < bytes) {
    uint32_t code;
    size_t length;
    const hark_utf8_result here = hark_utf8_decode(text + at, bytes - at, &code, &length);
    if (here == HARK_UTF8_INCOMPLETE && !last) return 0;
    if (here != HARK_UTF8_OK) {
      *result = here;
      return at;
    }
    if (at > 0 && (code == ' ' || is_control(code) || at + length > HARK_SUBWORD_UNIT_BYTES)) return at;
    at += length;
    if (is_control(code)) return at;
  }
  return last ? at : 0;
}

/* ---- learning ---- */

static hark_status subwords_configure(hark_context *context, hark_tokenizer *tokenizer, const hark_subword_settings *settings) {
  subwords_state *state = tokenizer->state;
  const bool own = settings->model == HARK_SUBWORD_WORD_PIECE;
  if (settings->learner == NULL && !own)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "a vocabulary of sub-words is learned by SentencePiece, which this hark was built without (HARK_WITH_SENTENCEPIECE)");
  if (!(settings->coverage > 0 && settings->coverage <= 1))
    return hark_fail(context, HARK_BAD_CONFIGURATION, "coverage is %s, expected (0, 1]", HARK_PRINTED(settings->coverage));
  state->settings = *settings;
  if (own) state->settings.learner = &hark_subword_word_piece;
  state->byte_fallback = settings->byte_fallback;
  return HARK_OK;
}

/* The bit of a character that is never in a word, or -1. */
static int apart_bit(uint32_t code) {
  if (code < ' ') return (int)code;
  return code == DELETE ? 32 : code == SPACE_MARK ? 33 : code == UNKNOWN_MARK ? 34 : -1;
}
#define APART_BITS 35
static uint32_t apart_code(int bit) { return bit < 32 ? (uint32_t)bit : bit == 32 ? DELETE : bit == 33 ? SPACE_MARK : UNKNOWN_MARK; }

/* Counts the words of a unit: the text between characters that are in no word. */
static hark_status count_unit(hark_context *context, subwords_state *state, const unsigned char *text, size_t bytes) {
  size_t from = 0, length;
  for (size_t at = 0; at < bytes; at += length) {
    uint32_t code;
    if (hark_utf8_decode(text + at, bytes - at, &code, &length) != HARK_UTF8_OK) return HARK_INTERNAL_ERROR; /* unit_at() has checked it */
    const int bit = apart_bit(code);
    if (bit < 0) continue;
    state->apart |= (uint64_t)1 << bit;
    if (at > from) HARK_TRY(hark_word_counts_add(context, &state->words, (const char *)text + from, at - from));
    from = at + length;
  }
  return bytes > from ? hark_word_counts_add(context, &state->words, (const char *)text + from, bytes - from) : HARK_OK;
}

static hark_status subwords_learn(hark_context *context, hark_tokenizer *tokenizer, const unsigned char *text, size_t bytes, bool last,
                                  size_t *consumed, hark_text_fault *fault) {
  size_t at = 0;
  while (at < bytes) {
    hark_utf8_result result;
    const size_t unit = unit_at(text + at, bytes - at, last, &result);
    HARK_TRY(count_unit(context, tokenizer->state, text + at, unit));
    at += unit;
    if (result != HARK_UTF8_OK) return hark_text_fault_set(fault, at, "invalid UTF-8: %s", hark_utf8_result_text(result));
    if (unit == 0) break;
  }
  *consumed = at;
  return HARK_OK;
}

/* Pieces one after the other: piece i ends at byte end[i] of the text. */
typedef struct piece_list {
  hark_context *context;
  hark_text text;
  size_t *end;  /* [capacity] */
  float *score; /* [capacity] */
  size_t count, capacity;
} piece_list;

static hark_status open_pieces(hark_context *context, size_t capacity, piece_list *out) {
  *out = (piece_list){.context = context, .text = hark_text_empty(context), .capacity = capacity};
  HARK_TRY(hark_allocate(context, capacity * sizeof *out->end, (void **)&out->end));
  return hark_allocate(context, capacity * sizeof *out->score, (void **)&out->score);
}

static void close_pieces(piece_list *pieces) {
  hark_text_free(&pieces->text);
  hark_release(pieces->context, pieces->end, pieces->capacity * sizeof *pieces->end);
  hark_release(pieces->context, pieces->score, pieces->capacity * sizeof *pieces->score);
}

/* Why text cannot be a piece, or NULL. */
static const char *flaw(const char *text, size_t bytes) {
  if (bytes == 0 || bytes > HARK_SUBWORD_UNIT_BYTES) return "is empty or too long";
  for (size_t at = 0, length; at < bytes; at += length) {
    uint32_t code;
    if (hark_utf8_decode((const unsigned char *)text + at, bytes - at, &code, &length) != HARK_UTF8_OK) return "is not UTF-8";
    if (code == ' ' && at > 0) return "has a space after its first character";
    if (is_control(code) && bytes > length) return "has a control character in it";
  }
  return NULL;
}

/* Appends a piece; `status` is returned for an invalid one. */
static hark_status put_piece(piece_list *pieces, const char *text, size_t bytes, double score, hark_status status) {
  const char *what = flaw(text, bytes);
  if (what == NULL && !(fabs(score) <= SCORE_LIMIT)) what = "has a score beyond 1e9";
  if (what != NULL) return hark_fail(pieces->context, status, "piece %zu %s", pieces->count, what);
  if (pieces->count == pieces->capacity) return hark_fail(pieces->context, status, "there are more than %zu pieces", pieces->capacity);
  hark_text_append_bytes(&pieces->text, text, bytes);
  HARK_TRY(pieces->text.status);
  pieces->end[pieces->count] = pieces->text.length;
  pieces->score[pieces->count++] = (float)score + 0.0f; /* no minus zero, which JSON would lose */
  return HARK_OK;
}

/* Gives bytes and pieces their tokens. */
static hark_status build(hark_context *context, hark_tokenizer *tokenizer, hark_subword_model model, const piece_list *pieces) {
  subwords_state *state = tokenizer->state;
  const size_t fallback = state->byte_fallback ? BYTE_VALUES : 0;
  HARK_TRY(hark_tokenizer_reserve(context, tokenizer, (int32_t)(fallback + pieces->count), fallback + pieces->text.length));
  HARK_TRY(hark_subword_search_open(context, &state->search, model, pieces->count, pieces->text.length));
  for (size_t value = 0; value < fallback; value++) {
    const char byte = (char)value;
    hark_tokenizer_add(tokenizer, &byte, 1);
  }
  const char *text = hark_text_get(&pieces->text);
  for (size_t i = 0, from = 0; i < pieces->count; from = pieces->end[i++]) {
    hark_tokenizer_add(tokenizer, text + from, pieces->end[i] - from);
    if (!hark_subword_search_add(&state->search, text + from, pieces->end[i] - from, pieces->score[i]))
      return hark_fail(context, HARK_BAD_FILE, "piece %zu is there twice", i);
  }
  return HARK_OK;
}

static hark_status take_learned(void *user, const char *text, size_t bytes, double score) {
  return put_piece(user, text, bytes, score, HARK_INTERNAL_ERROR);
}

/* Without byte fallback, characters that are in no word are pieces too; they do not compete with learned pieces. */
static hark_status put_apart(const subwords_state *state, piece_list *pieces) {
  for (int bit = 0; bit < APART_BITS && !state->byte_fallback; bit++) {
    char text[HARK_UTF8_MAX_BYTES];
    if ((state->apart >> bit & 1) == 0) continue;
    const double score = pieces->count > 0 ? pieces->score[pieces->count - 1] : 0;
    HARK_TRY(put_piece(pieces, text, hark_utf8_encode(apart_code(bit), text), score, HARK_INTERNAL_ERROR));
  }
  return HARK_OK;
}

static int64_t count_apart(const subwords_state *state) {
  int64_t count = 0;
  for (int bit = 0; bit < APART_BITS && !state->byte_fallback; bit++) count += (int64_t)(state->apart >> bit & 1);
  return count;
}

/* Whether there are words to learn from. */
static bool has_words(const hark_word_counts *words) {
  return words->words > 1 || (words->words == 1 && !(words->at[1] == 1 && words->text[0] == ' '));
}

static hark_status run_learner(hark_context *context, const subwords_state *state, int64_t to_learn, piece_list *pieces) {
  const hark_word_counts *words = &state->words;
  const hark_subword_job job = {.context = context,
                                .model = state->settings.model,
                                .pieces = (int32_t)to_learn,
                                .others = (int32_t)(state->settings.vocabulary - to_learn),
                                .coverage = state->settings.coverage,
                                .words = words->words,
                                .text = words->text,
                                .at = words->at,
                                .count = words->count};
  char message[HARK_SUBWORD_MESSAGE_BYTES] = "";
  const hark_status status = state->settings.learner->learn(&job, take_learned, pieces, message);
  if (status == HARK_OK && pieces->count == 0)
    return hark_fail(context, HARK_INTERNAL_ERROR, "%s gave no piece", state->settings.learner->name);
  if (status == HARK_OK || message[0] == '\0') return status;
  return hark_fail(context, status, "a vocabulary of %" PRId64 " tokens, %" PRId64 " of them pieces: %s: %s", state->settings.vocabulary,
                   to_learn, state->settings.learner->name, message);
}

static hark_status subwords_finish(hark_context *context, hark_tokenizer *tokenizer) {
  subwords_state *state = tokenizer->state;
  if (state->settings.learner == NULL) return subwords_configure(context, tokenizer, &state->settings);
  if (!has_words(&state->words)) return hark_fail(context, HARK_BAD_FILE, "a vocabulary of sub-words needs words, and the text has none");
  const int64_t apart = count_apart(state), to_learn = state->settings.vocabulary - first_piece(state) - apart;
  if (to_learn < 1 || to_learn > INT32_MAX / 2)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "a vocabulary of %" PRId64 " tokens, expected more than the %" PRId64
                     " that are reserved, bytes and control characters",
                     state->settings.vocabulary, first_piece(state) + apart);
  piece_list pieces;
  hark_status status = open_pieces(context, (size_t)(to_learn + apart), &pieces);
  if (status == HARK_OK) status = run_learner(context, state, to_learn, &pieces);
  if (status == HARK_OK) status = put_apart(state, &pieces);
  if (status == HARK_OK) status = build(context, tokenizer, state->settings.model, &pieces);
  close_pieces(&pieces);
  hark_word_counts_free(context, &state->words);
  return status;
}

/* ---- encoding ---- */

/* Encodes a unit. *taken: its bytes up to a refused character, or all. */
static size_t encode_unit(const subwords_state *state, hark_unknown unknown, const unsigned char *text, size_t bytes, int32_t *tokens,
                          size_t *taken) {
  hark_subword_segments segments;
  size_t made = 0, from = 0;
  *taken = bytes;
  hark_subword_divide(&state->search, text, (int)bytes, &segments);
  for (int i = 0; i < segments.count; from = (size_t)segments.end[i++]) {
    if (segments.piece[i] >= 0) {
      tokens[made++] = first_piece(state) + segments.piece[i];
    } else if (state->byte_fallback) {
      for (size_t b = from; b < (size_t)segments.end[i]; b++) tokens[made++] = HARK_TOKEN_RESERVED + text[b];
    } else if (unknown == HARK_UNKNOWN_IS_MAPPED) {
      tokens[made++] = HARK_TOKEN_UNKNOWN;
    } else {
      *taken = from;
      break;
    }
  }
  return made;
}

static hark_status subwords_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text,
                                   size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed, hark_text_fault *fault) {
  (void)context;
  const subwords_state *state = tokenizer->state;
  size_t at = 0, made = 0;
  hark_status status = HARK_OK;
  while (at < bytes && status == HARK_OK) {
    hark_utf8_result result;
    const size_t unit = unit_at(text + at, bytes - at, last, &result);
    size_t taken = 0;
    if (unit > 0) made += encode_unit(state, unknown, text + at, unit, tokens + made, &taken);
    at += taken;
    if (taken < unit) {
      uint32_t code;
      size_t length;
      (void)hark_utf8_decode(text + at, bytes - at, &code, &length);
      status = hark_text_fault_unknown(fault, at, code);
    } else if (result != HARK_UTF8_OK) {
      status = hark_text_fault_set(fault, at, "invalid UTF-8: %s", hark_utf8_result_text(result));
    } else if (unit == 0) {
      break;
    }
  }
  *count = made;
  *consumed = at;
  return status;
}

/* ---- the vocabulary's file ---- */

static uint64_t subwords_checksum(const hark_tokenizer *tokenizer, uint64_t sum) {
  const subwords_state *state = tokenizer->state;
  sum = hark_checksum_number(sum, (uint64_t)state->search.model);
  sum = hark_checksum_number(sum, state->byte_fallback);
  for (size_t i = 0; i < state->search.pieces; i++) {
    uint32_t bits;
    memcpy(&bits, &state->search.score[i], sizeof bits);
    sum = hark_checksum_number(sum, bits);
  }
  return sum;
}

static void subwords_write(const hark_tokenizer *tokenizer, hark_text *text) {
  const subwords_state *state = tokenizer->state;
  hark_text_append(text, ",\n \"model\": \"%s\",\n \"byte_fallback\": %s,\n \"pieces\": [", model_names[state->search.model],
                   state->byte_fallback ? "true" : "false");
  for (size_t i = 0; i < state->search.pieces; i++) {
    const int32_t token = first_piece(state) + (int32_t)i;
    const size_t at = tokenizer->text_at[token];
    hark_text_append(text, "%s\n  [", i > 0 ? "," : "");
    hark_json_append_bytes(text, tokenizer->text + at, tokenizer->text_at[token + 1] - at);
    hark_text_append(text, ", ");
    hark_json_append_number(text, state->search.score[i]);
    hark_text_append(text, "]");
  }
  hark_text_append(text, "\n ]");
}

static hark_status read_piece(hark_context *context, const hark_json_node *item, piece_list *pieces) {
  const hark_json_node *text = hark_json_is(item, HARK_JSON_LIST) && item->count == 2 ? item->first : NULL;
  const hark_json_node *score = text != NULL ? text->next : NULL;
  const bool whole = hark_json_is(score, HARK_JSON_INTEGER);
  if (!hark_json_is(text, HARK_JSON_TEXT) || (!whole && !hark_json_is(score, HARK_JSON_REAL)))
    return hark_fail(context, HARK_BAD_FILE, "piece %zu is not a list of a string and a number", pieces->count);
  const double value = whole ? (double)score->integer : score->real;
  if (!(fabs(value) <= FLT_MAX) || value != (double)(float)value)
    return hark_fail(context, HARK_BAD_FILE, "piece %zu has a score that is not a number of 32 bits", pieces->count);
  return put_piece(pieces, text->text, text->bytes, value, HARK_BAD_FILE);
}

static hark_status read_pieces(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *list, hark_subword_model model) {
  piece_list pieces;
  hark_status status = open_pieces(context, (size_t)list->count, &pieces);
  for (const hark_json_node *item = list->first; item != NULL && status == HARK_OK; item = item->next)
    status = read_piece(context, item, &pieces);
  if (status == HARK_OK) status = build(context, tokenizer, model, &pieces);
  close_pieces(&pieces);
  return status;
}

static hark_status subwords_read(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *object, int64_t *members) {
  subwords_state *state = tokenizer->state;
  const hark_json_node *fallback = hark_json_member(object, "byte_fallback"), *pieces = hark_json_member(object, "pieces");
  const char *name = hark_json_text(hark_json_member(object, "model"));
  *members = 3;
  int model = 0;
  while (model < HARK_SUBWORD_MODELS && (name == NULL || strcmp(name, model_names[model]) != 0)) model++;
  if (model == HARK_SUBWORD_MODELS)
    return hark_fail(context, HARK_BAD_FILE, "\"model\" is missing or neither \"unigram\" nor \"bpe\" nor \"wordpiece\"");
  if (!hark_json_is(fallback, HARK_JSON_BOOLEAN)) return hark_fail(context, HARK_BAD_FILE, "\"byte_fallback\" is missing or not a boolean");
  if (!hark_json_is(pieces, HARK_JSON_LIST) || pieces->count == 0)
    return hark_fail(context, HARK_BAD_FILE, "\"pieces\" is missing, empty or not an array");
  state->byte_fallback = fallback->boolean;
  return read_pieces(context, tokenizer, pieces, (hark_subword_model)model);
}

const hark_tokenizer_kind hark_tokenizer_subwords = {
    .name = "subwords",
    .summary = "pieces of words of UTF-8 text, learned by SentencePiece, or as WordPiece",
    .state_bytes = sizeof(subwords_state),
    .unit_bytes = HARK_SUBWORD_UNIT_BYTES + HARK_UTF8_MAX_BYTES,
    .learns = true,
    .close = subwords_close,
    .configure = subwords_configure,
    .learn = subwords_learn,
    .finish = subwords_finish,
    .encode = subwords_encode,
    .checksum = subwords_checksum,
    .write = subwords_write,
    .read = subwords_read,
};
