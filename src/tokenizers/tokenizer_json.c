/* tokenizer_json.c - a vocabulary as a tokenizer.json of the Hugging Face tokenizers library (docs/formats.md), with the same numbers.
 *
 *     kind                 there
 *     characters           BPE without merges: each character is a token
 *     bytes                bytes as characters (ByteLevel), and BPE without merges
 *     subwords, bpe        BPE; a piece is merged from each two pieces that are its parts; characters that are no pieces become bytes
 *     byte_bpe             bytes as characters, BPE with the same merges, and the same expression for words
 *     subwords, unigram    bytes as characters, and Unigram: a character that is no piece is divided into bytes, which have low scores
 *
 * Reserved tokens are in the vocabulary, and not among added tokens, which would be found in texts: "<mask>" in a text is six characters.
 * Units end where hark's do (subwords.h), except those of more than HARK_SUBWORD_UNIT_BYTES in BPE, which are not cut.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "io/json_write.h"
#include "tokenizers/pipeline/component.h"
#include "tokenizers/tokenizer_kind.h"
#include "tokenizers/unknown_penalty.h"
#include "tokenizers/utf8.h"
#include "tokenizers/word_reader.h"

#define BYTE_VALUES 256
#define RESERVED_PENALTY 16 /* bytes, more than the name of a reserved token has */

typedef struct json_writer {
  hark_context *context;
  const hark_tokenizer *tokenizer;
  hark_text *out;
} json_writer;

static hark_span text_of(const json_writer *w, int32_t token) {
  hark_span span = {0};
  span.text = hark_tokenizer_text(w->tokenizer, token, &span.bytes);
  return span;
}

static hark_status refuse(const json_writer *w, const char *what) {
  return hark_fail(w->context, HARK_UNSUPPORTED, "the vocabulary has no counterpart in a tokenizer.json: %s", what);
}

/* ---- parts of every file ---- */

static void begin(const json_writer *w, const char *pre_tokenizer, const char *decoder, const char *model) {
  hark_text_append(
      w->out,
      "{\n \"version\": \"1.0\",\n \"truncation\": null,\n \"padding\": null,\n \"added_tokens\": [],\n \"normalizer\": null,\n"
      " \"pre_tokenizer\": %s,\n \"post_processor\": null,\n \"decoder\": %s,\n \"model\": {\n  \"type\": \"%s\"",
      pre_tokenizer, decoder, model);
}

static void begin_bpe(const json_writer *w, const char *pre_tokenizer, const char *decoder, bool has_unknown, bool byte_fallback) {
  begin(w, pre_tokenizer, decoder, "BPE");
  hark_text_append(
      w->out,
      ",\n  \"dropout\": null,\n  \"unk_token\": %s,\n  \"continuing_subword_prefix\": null,\n  \"end_of_word_suffix\": null,\n"
      "  \"fuse_unk\": false,\n  \"byte_fallback\": %s,\n  \"ignore_merges\": false,\n  \"vocab\": {",
      has_unknown ? "\"<unknown>\"" : "null", byte_fallback ? "true" : "false");
}

static hark_status end(const json_writer *w) {
  hark_text_append(w->out, "\n }\n}\n");
  return w->out->status;
}

/* A text with its bytes as characters. */
static void append_byte_level(hark_text *out, hark_span text) {
  hark_text characters = hark_text_empty(out->context);
  for (size_t i = 0; i < text.bytes; i++) {
    char character[HARK_UTF8_MAX_BYTES];
    hark_text_append_bytes(&characters, character, hark_utf8_encode(hark_byte_character((unsigned char)text.text[i]), character));
  }
  if (out->status == HARK_OK) out->status = characters.status;
  hark_json_append_bytes(out, hark_text_get(&characters), characters.length);
  hark_text_free(&characters);
}

typedef void append_text(hark_text *out, hark_span text);
static void append_plain(hark_text *out, hark_span text) { hark_json_append_bytes(out, text.text, text.bytes); }
static void append_byte_token(hark_text *out, hark_span text) { hark_text_append(out, "\"<0x%02X>\"", (unsigned char)text.text[0]); }

static void append_reserved(const json_writer *w) {
  for (int32_t token = 0; token < HARK_TOKEN_RESERVED; token++)
    hark_text_append(w->out, "%s\n   \"%s\": %" PRId32, token > 0 ? "," : "", hark_reserved_name(token), token);
}

/* The entries of tokens first .. last - 1. */
static void append_tokens(const json_writer *w, int32_t first, int32_t last, append_text *append) {
  for (int32_t token = first; token < last; token++) {
    hark_text_append(w->out, ",\n   ");
    append(w->out, text_of(w, token));
    hark_text_append(w->out, ": %" PRId32, token);
  }
}

/* The vocabulary of a tokenizer.json is by name. */
static hark_status check_names(const json_writer *w) {
  for (int32_t token = HARK_TOKEN_RESERVED; token < w->tokenizer->size; token++) {
    const hark_span text = text_of(w, token);
    for (int32_t reserved = 0; reserved < HARK_TOKEN_RESERVED; reserved++) {
      const char *const name = hark_reserved_name(reserved);
      if (text.bytes == strlen(name) && memcmp(text.text, name, text.bytes) == 0)
        return refuse(w, "a piece has the name of a reserved token");
    }
  }
  return HARK_OK;
}

static hark_status refuse_zero_bytes(const json_writer *w, int32_t first) {
  for (int32_t token = first; token < w->tokenizer->size; token++) {
    const hark_span text = text_of(w, token);
    if (memchr(text.text, 0, text.bytes) != NULL) return refuse(w, "U+0000 is one of its symbols");
  }
  return HARK_OK;
}

/* ---- characters and bytes ---- */

static hark_status print_characters(const json_writer *w) {
  HARK_TRY(refuse_zero_bytes(w, HARK_TOKEN_RESERVED));
  begin_bpe(w, "null", "{\"type\": \"Fuse\"}", true, false);
  append_reserved(w);
  append_tokens(w, HARK_TOKEN_RESERVED, w->tokenizer->size, append_plain);
  hark_text_append(w->out, "\n  },\n  \"merges\": []");
  return end(w);
}

#define BYTE_LEVEL "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}"

static hark_status print_bytes(const json_writer *w) {
  begin_bpe(w, BYTE_LEVEL, BYTE_LEVEL, false, false);
  append_reserved(w);
  append_tokens(w, HARK_TOKEN_RESERVED, w->tokenizer->size, append_byte_level);
  hark_text_append(w->out, "\n  },\n  \"merges\": []");
  return end(w);
}

/* ---- sub-words ---- */

/* The pieces by their text: piece i has number i. */
static hark_status open_pieces(const json_writer *w, const hark_subword_pieces *pieces, hark_token_table *table) {
  size_t bytes = 0;
  for (int32_t i = 0; i < pieces->count; i++) bytes += text_of(w, pieces->first + i).bytes;
  HARK_TRY(hark_token_table_open(w->context, table, pieces->count, pieces->count, bytes));
  for (int32_t i = 0; i < pieces->count; i++) {
    const hark_span text = text_of(w, pieces->first + i);
    hark_token_table_add(table, text.text, text.bytes, i);
  }
  return HARK_OK;
}

/* A character in a piece must be a piece too: otherwise it is unknown in one word and known in another, by scores that differ there. */
static hark_status check_characters(const json_writer *w, const hark_subword_pieces *pieces, const hark_token_table *table) {
  for (int32_t i = 0; i < pieces->count; i++) {
    const hark_span text = text_of(w, pieces->first + i);
    for (size_t at = 0, length; at < text.bytes; at += length) {
      length = hark_character_bytes(text.text + at);
      if (hark_token_find(table, text.text + at, length) < 0) return refuse(w, "a piece has a character that is not a piece itself");
    }
  }
  return HARK_OK;
}

/* Names that the file gives to bytes. */
static hark_status check_byte_names(const json_writer *w, const hark_subword_pieces *pieces) {
  for (int32_t i = 0; pieces->byte_fallback && i < pieces->count; i++)
    if (hark_byte_token(text_of(w, pieces->first + i)) >= 0) return refuse(w, "a piece has the name of a byte, <0x00> to <0xFF>");
  return HARK_OK;
}

typedef struct scored_piece {
  float score;
  int32_t piece;
} scored_piece;

static int by_score(const void *a, const void *b) {
  const scored_piece *one = a, *other = b;
  if (one->score != other->score) return one->score > other->score ? -1 : 1;
  return one->piece < other->piece ? -1 : 1;
}

/* The ways to make a piece of two pieces. */
static void append_merges(const json_writer *w, hark_span text, const hark_token_table *table, bool *any) {
  for (size_t at = hark_character_bytes(text.text); at < text.bytes; at += hark_character_bytes(text.text + at)) {
    if (hark_token_find(table, text.text, at) < 0 || hark_token_find(table, text.text + at, text.bytes - at) < 0) continue;
    hark_text_append(w->out, "%s\n   [", *any ? "," : "");
    hark_json_append_bytes(w->out, text.text, at);
    hark_text_append(w->out, ", ");
    hark_json_append_bytes(w->out, text.text + at, text.bytes - at);
    hark_text_append(w->out, "]");
    *any = true;
  }
}

static hark_status append_all_merges(const json_writer *w, const hark_subword_pieces *pieces, const hark_token_table *table) {
  const size_t bytes = (size_t)pieces->count * sizeof(scored_piece);
  scored_piece *order = NULL;
  size_t count = 0;
  bool any = false;
  hark_status status = HARK_OK;
  HARK_TRY(hark_allocate(w->context, bytes, (void **)&order));
  for (int32_t i = 0; i < pieces->count; i++) {
    const hark_span text = text_of(w, pieces->first + i);
    if (hark_character_bytes(text.text) < text.bytes) order[count++] = (scored_piece){pieces->score[i], i};
  }
  if (count > 0) qsort(order, count, sizeof *order, by_score);
  for (size_t i = 0; i < count && status == HARK_OK; i++) {
    if (i > 0 && order[i].score == order[i - 1].score)
      status = refuse(w, "two pieces have the same score, so that neither is merged first");
    append_merges(w, text_of(w, pieces->first + order[i].piece), table, &any);
  }
  hark_release(w->context, order, bytes);
  return status;
}

#define BEFORE_SPACES "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}, \"behavior\": \"MergedWithNext\", \"invert\": false}"

static hark_status print_bpe(const json_writer *w, const hark_subword_pieces *pieces, const hark_token_table *table) {
  HARK_TRY(check_byte_names(w, pieces));
  HARK_TRY(refuse_zero_bytes(w, pieces->first));
  begin_bpe(w, BEFORE_SPACES,
            pieces->byte_fallback ? "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}]}"
                                  : "{\"type\": \"Fuse\"}",
            true, pieces->byte_fallback);
  append_reserved(w);
  append_tokens(w, HARK_TOKEN_RESERVED, pieces->first, append_byte_token);
  append_tokens(w, pieces->first, w->tokenizer->size, append_plain);
  hark_text_append(w->out, "\n  },\n  \"merges\": [");
  HARK_TRY(append_all_merges(w, pieces, table));
  hark_text_append(w->out, "\n  ]");
  return end(w);
}

/* Units over bytes as characters: a control character, U+0100 to U+011F and U+0121; or up to HARK_SUBWORD_UNIT_BYTES others, of which only
 * the first may be the space, U+0120, up to a byte that does not continue a character. */
#define CONTROLS "\\u0100-\\u011f\\u0121"
#define CONTINUATIONS "\\u00a1-\\u00ac\\u00ae-\\u00bf\\u0122-\\u0143"
#define UNITS                                                                                                                              \
  "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"[" CONTROLS "]|[^" CONTROLS "][^" CONTROLS "\\u0120]{0,511}(?![" CONTINUATIONS         \
  "])\"}, \"behavior\": \"Isolated\", \"invert\": false}"
_Static_assert(HARK_SUBWORD_UNIT_BYTES == 512, "the expression above contains the number");

/* Nine digits identify a float, and every reader of JSON gets the same number from them: of 17 digits some readers miss the last bit, which
 * decides between divisions of equal probability. */
static void append_scored(const json_writer *w, hark_span text, double score, append_text *append, bool first) {
  hark_text_append(w->out, "%s\n   [", first ? "" : ",");
  append(w->out, text);
  hark_text_append(w->out, ", ");
  hark_text_append(w->out, "%.9g", score);
  hark_text_append(w->out, "]");
}

static float lowest_score(const hark_subword_pieces *pieces) {
  float lowest = 0;
  for (int32_t i = 0; i < pieces->count; i++) lowest = pieces->score[i] < lowest ? pieces->score[i] : lowest;
  return lowest;
}

/* Of a byte and a piece with the same text the later one, the piece, is used there. */
static hark_status print_unigram(const json_writer *w, const hark_subword_pieces *pieces) {
  const double byte = (double)lowest_score(pieces) - (double)HARK_UNKNOWN_PENALTY;
  if (!pieces->byte_fallback) return refuse(w, "unigram without bytes (data.subwords.byte_fallback), where unknown characters are joined");
  begin(w, "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL ", " UNITS "]}", BYTE_LEVEL, "Unigram");
  hark_text_append(w->out, ",\n  \"unk_id\": %d,\n  \"byte_fallback\": false,\n  \"vocab\": [", HARK_TOKEN_UNKNOWN);
  for (int32_t token = 0; token < HARK_TOKEN_RESERVED; token++) {
    const char *const name = hark_reserved_name(token);
    append_scored(w, (hark_span){name, strlen(name)}, RESERVED_PENALTY * byte, append_plain, token == 0);
  }
  for (int32_t token = HARK_TOKEN_RESERVED; token < w->tokenizer->size; token++) {
    const double score = token < pieces->first ? byte : (double)pieces->score[token - pieces->first];
    append_scored(w, text_of(w, token), score, append_byte_level, false);
  }
  hark_text_append(w->out, "\n  ]");
  return end(w);
}

static hark_status print_subwords(const json_writer *w) {
  const hark_subword_pieces pieces = hark_subword_pieces_of(w->tokenizer);
  hark_token_table table = {0};
  if (pieces.model == HARK_SUBWORD_WORD_PIECE) return refuse(w, "wordpiece, where a word with an unknown character is unknown as a whole");
  hark_status status = check_names(w);
  if (status == HARK_OK) status = open_pieces(w, &pieces, &table);
  if (status == HARK_OK) status = check_characters(w, &pieces, &table);
  if (status == HARK_OK) status = pieces.model == HARK_SUBWORD_BPE ? print_bpe(w, &pieces, &table) : print_unigram(w, &pieces);
  hark_token_table_close(w->context, &table);
  return status;
}

/* ---- byte-level BPE ---- */

static void append_words(hark_text *out) {
  hark_text_append(out, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
  hark_json_append_string(out, HARK_WORD_EXPRESSION);
  hark_text_append(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, %s]}", BYTE_LEVEL);
}

static hark_status print_byte_bpe(const json_writer *w) {
  const hark_byte_merge *merges;
  HARK_TRY(check_names(w));
  const size_t count = hark_byte_merges_of(w->tokenizer, &merges);
  hark_text words = hark_text_empty(w->context);
  append_words(&words);
  if (words.status == HARK_OK) begin_bpe(w, hark_text_get(&words), BYTE_LEVEL, false, false);
  const hark_status status = words.status;
  hark_text_free(&words);
  HARK_TRY(status);
  append_reserved(w);
  append_tokens(w, HARK_TOKEN_RESERVED, w->tokenizer->size, append_byte_level);
  hark_text_append(w->out, "\n  },\n  \"merges\": [");
  for (size_t i = 0; i < count; i++) {
    hark_text_append(w->out, "%s\n   [", i > 0 ? "," : "");
    append_byte_level(w->out, text_of(w, merges[i].left));
    hark_text_append(w->out, ", ");
    append_byte_level(w->out, text_of(w, merges[i].right));
    hark_text_append(w->out, "]");
  }
  hark_text_append(w->out, "\n  ]");
  return end(w);
}

/* ---- of another program ---- */

static hark_status print_imported(const json_writer *w) {
  const hark_imported *const imported = hark_tokenizer_imported(w->tokenizer);
  if (strcmp(hark_imported_kind(imported), "tokenizer.json") != 0) return refuse(w, "it is a tokenizer.model of SentencePiece");
  hark_imported_print(imported, w->out);
  return w->out->status;
}

hark_status hark_tokenizer_print_json(hark_context *context, const hark_tokenizer *tokenizer, hark_text *out) {
  const json_writer writer = {context, tokenizer, out};
  switch (hark_tokenizer_kind_index(tokenizer)) {
    case HARK_TOKENIZER_CHARACTERS: return print_characters(&writer);
    case HARK_TOKENIZER_BYTES: return print_bytes(&writer);
    case HARK_TOKENIZER_BYTE_BPE: return print_byte_bpe(&writer);
    case HARK_TOKENIZER_IMPORTED: return print_imported(&writer);
    default: return print_subwords(&writer);
  }
}
