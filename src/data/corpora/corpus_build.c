/* corpus_build.c - tokenises text files into a file of tokens, in parts: memory is five times the size of a part, for any size of the
 * text. Imported tokenizers encode a file, or its part for training or validation, at once: memory is then several times its size. */
#include "data/corpora/corpus_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/checksum.h"
#include "data/corpora/token_file.h"
#include "tokenizers/utf8.h"

/* For text that is read by lines: maximum of white space at the beginning of a line that is examined at once. */
#define SENTENCE_PART_BYTES ((size_t)1024)

const char *hark_corpus_kind(const hark_corpus_settings *settings) {
  if (settings->tokenizer != NULL) return hark_tokenizer_kind_of(settings->tokenizer);
  return settings->tokenizer_kind != NULL ? settings->tokenizer_kind : hark_tokenizer_kind_name(0);
}

size_t hark_corpus_part_bytes(const hark_corpus_settings *settings) {
  const size_t unit = hark_tokenizer_kind_part_bytes(hark_corpus_kind(settings));
  const size_t least = settings->unit == HARK_UNIT_SENTENCES && unit < SENTENCE_PART_BYTES ? SENTENCE_PART_BYTES : unit;
  const size_t bytes = settings->buffer_bytes > 0 ? settings->buffer_bytes : HARK_CORPUS_BUFFER_BYTES;
  return bytes > least ? bytes : least;
}

typedef struct learner {
  hark_context *context;
  hark_tokenizer *tokenizer;
} learner;

static hark_status learn_part(void *closure, const void *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  const learner *learning = closure;
  return hark_tokenizer_learn(learning->context, learning->tokenizer, text, bytes, last, consumed, fault);
}

/* Learns a line end, which the last line may lack: the end of a sentence is in every vocabulary. */
static hark_status learn_line_end(learner *learning) {
  size_t consumed;
  hark_text_fault fault;
  return learn_part(learning, "\n", 1, true, &consumed, &fault);
}

static hark_status learn_sources(hark_context *context, const hark_source_list *sources, hark_text_unit unit, void *buffer,
                                 size_t buffer_bytes, hark_tokenizer *tokenizer) {
  learner learning = {context, tokenizer};
  for (int64_t i = 0; i < sources->count && hark_tokenizer_learns(tokenizer); i++)
    HARK_TRY(hark_source_read(context, &sources->items[i], 0, sources->items[i].bytes, buffer, buffer_bytes, learn_part, &learning));
  if (unit == HARK_UNIT_SENTENCES) HARK_TRY(learn_line_end(&learning));
  return hark_tokenizer_finish(context, tokenizer);
}

hark_status hark_corpus_learn(hark_context *context, const hark_corpus_settings *settings, const hark_source_list *sources,
                              hark_tokenizer **out) {
  static const hark_subword_settings no_subwords = {.coverage = 1};
  const size_t buffer_bytes = hark_corpus_part_bytes(settings);
  void *buffer = NULL;
  HARK_TRY(hark_tokenizer_create(context, hark_corpus_kind(settings), out));
  hark_status status = hark_tokenizer_set_subwords(context, *out, settings->subwords != NULL ? settings->subwords : &no_subwords);
  if (status == HARK_OK) status = hark_allocate(context, buffer_bytes, &buffer);
  if (status == HARK_OK) status = learn_sources(context, sources, settings->unit, buffer, buffer_bytes, *out);
  hark_release(context, buffer, buffer_bytes);
  if (status != HARK_OK) hark_tokenizer_destroy(context, out);
  return status;
}

/* Everything that writing needs, freed in one place. */
typedef struct builder {
  hark_context *context;
  const hark_corpus_settings *settings;
  const hark_tokenizer *tokenizer;
  hark_source_list *sources;
  hark_piece_list pieces;
  hark_token_document *documents; /* [pieces.count] */
  void *buffer;                   /* [buffer_bytes] of text */
  int32_t *tokens;                /* [buffer_bytes]: a token takes at least one byte */
  size_t buffer_bytes;
  bool whole; /* pieces are encoded at once */
  char *vocabulary;
  size_t vocabulary_bytes;
  hark_writer writer;
  hark_token_file_info info;
  /* of the current piece */
  hark_source *source;
  hark_token_split *split;
  bool in_word, in_sentence; /* within a word, within a line */
} builder;

/* Counts characters and words of a text that continues the previous one. */
static void count_text(builder *b, const unsigned char *text, size_t bytes) {
  int64_t characters = 0, words = 0;
  bool in_word = b->in_word;
  for (size_t i = 0; i < bytes; i++) {
    const bool space = text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r');
    words += !space && !in_word;
    in_word = !space;
    characters += hark_utf8_is_lead(text[i]);
  }
  b->in_word = in_word;
  b->split->counts.bytes += (int64_t)bytes;
  b->split->counts.characters += characters;
  b->split->counts.words += words;
}

static hark_status append_tokens(builder *b, size_t count) {
  hark_tokens_pack(b->tokens, count, b->info.token_bytes, b->tokens);
  b->split->counts.tokens += (int64_t)count;
  b->split->checksum = hark_checksum_bytes(b->split->checksum, b->tokens, count * b->info.token_bytes);
  return hark_writer_append(b->context, &b->writer, b->tokens, count * b->info.token_bytes);
}

/* Encodes as much of a text as possible and writes the tokens. */
static hark_status encode_text(builder *b, const unsigned char *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  size_t count = 0;
  HARK_TRY(
      hark_tokenizer_encode_part(b->context, b->tokenizer, b->settings->unknown, text, bytes, last, b->tokens, &count, consumed, fault));
  count_text(b, text, *consumed);
  return append_tokens(b, count);
}

/* Tokens of the current piece, packed and written in parts. */
static hark_status write_tokens(void *user, const int32_t *tokens, size_t count) {
  builder *const b = user;
  for (size_t at = 0; at < count;) {
    const size_t part = count - at < b->buffer_bytes ? count - at : b->buffer_bytes;
    memcpy(b->tokens, tokens + at, part * sizeof *tokens);
    HARK_TRY(append_tokens(b, part));
    at += part;
  }
  return HARK_OK;
}

/* With an imported tokenizer: encodes a piece at once, which the buffer has room for. */
static hark_status encode_piece(builder *b, const unsigned char *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  *consumed = 0;
  if (!last) return HARK_OK;
  HARK_TRY(hark_tokenizer_encode_whole(b->context, b->tokenizer, text, bytes, write_tokens, b, fault));
  count_text(b, text, bytes);
  *consumed = bytes;
  return HARK_OK;
}

static hark_status refuse_stored(const builder *b, int32_t token, size_t at, hark_text_fault *fault) {
  *fault = (hark_text_fault){.at = at};
  (void)snprintf(fault->what, sizeof fault->what, "token %" PRId32 ", and the vocabulary has %" PRId64 " tokens", token,
                 b->info.vocabulary_size);
  return HARK_BAD_FILE;
}

/* Tokens of a file of tokens, two bytes each, the first one the lowest. */
static hark_status copy_stored(builder *b, const unsigned char *bytes, size_t size, bool last, size_t *consumed, hark_text_fault *fault) {
  const size_t count = size / HARK_SOURCE_TOKEN_BYTES;
  (void)last;
  *consumed = count * HARK_SOURCE_TOKEN_BYTES;
  for (size_t i = 0; i < count; i++) {
    const int32_t token = bytes[2 * i] | bytes[2 * i + 1] << 8;
    size_t length = 0;
    if (token >= b->info.vocabulary_size) return refuse_stored(b, token, 2 * i, fault);
    const char *const text = hark_tokenizer_text(b->tokenizer, token, &length);
    count_text(b, (const unsigned char *)text, length);
    b->tokens[i] = token;
  }
  return append_tokens(b, count);
}

static hark_status begin_sentence(builder *b) {
  b->in_sentence = true;
  b->split->counts.sentences++;
  b->tokens[0] = HARK_TOKEN_BEGIN;
  return append_tokens(b, 1);
}

/* Ends the last line of a piece, which may have no line end. */
static hark_status end_sentence(builder *b) {
  static const unsigned char end[] = {'\n'};
  size_t consumed;
  hark_text_fault fault = {0};
  if (!b->in_sentence) return HARK_OK;
  b->in_sentence = false;
  const hark_status status = encode_text(b, end, 1, true, &consumed, &fault);
  if (status != HARK_BAD_FILE) return status;
  return hark_fail(b->context, HARK_BAD_FILE, "%s: the end of its last line: %s%s", b->source->path, fault.what, fault.more);
}

static size_t blank_bytes(const unsigned char *text, size_t bytes) {
  size_t at = 0;
  while (at < bytes && (text[at] == ' ' || text[at] == '\t' || text[at] == '\r' || text[at] == '\v' || text[at] == '\f')) at++;
  return at;
}

/* Encodes line after line. A line that begins with more white space than the available text is not treated as blank. */
static hark_status encode_lines(builder *b, const unsigned char *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  size_t at = 0, taken = 1;
  hark_status status = HARK_OK;
  while (at < bytes && taken > 0 && status == HARK_OK) {
    const size_t left = bytes - at, blank = blank_bytes(text + at, left);
    if (!b->in_sentence) {
      const bool ends = blank < left ? text[at + blank] == '\n' : last;
      if (blank == left && !last && left < b->buffer_bytes) break;
      b->split->counts.blank += ends;
      taken = blank + (blank < left);
      if (ends) {
        at += taken;
        continue;
      }
      HARK_TRY(begin_sentence(b));
    }
    const unsigned char *end = memchr(text + at, '\n', left);
    const size_t line = end != NULL ? (size_t)(end - (text + at)) + 1 : left;
    status = encode_text(b, text + at, line, end != NULL || last, &taken, fault);
    if (status == HARK_BAD_FILE) fault->at += at;
    at += taken;
    if (end != NULL) b->in_sentence = false;
  }
  *consumed = at;
  return status;
}

static hark_status encode_part(void *closure, const void *text, size_t bytes, bool last, size_t *consumed, hark_text_fault *fault) {
  builder *b = closure;
  const bool lines = b->settings->unit == HARK_UNIT_SENTENCES;
  const bool tokens = b->source->tokens, whole = b->whole;
  HARK_TRY((tokens ? copy_stored : whole ? encode_piece : lines ? encode_lines : encode_text)(b, text, bytes, last, consumed, fault));
  b->source->checksum = hark_checksum_bytes(b->source->checksum, text, *consumed);
  return HARK_OK;
}

/* Writes the tokens of one split; `document` counts the documents of both. */
static hark_status encode_split(builder *b, hark_split which, int64_t *document) {
  b->split = &b->info.split[which];
  b->split->offset = (int64_t)b->writer.bytes;
  b->split->checksum = HARK_CHECKSUM_START;
  for (int64_t i = 0; i < b->pieces.count; i++) {
    const hark_piece *piece = &b->pieces.items[i];
    if (piece->split != which) continue;
    b->source = &b->sources->items[piece->source];
    const int64_t first = b->split->counts.tokens;
    b->in_word = b->in_sentence = false;
    HARK_TRY(hark_source_read(b->context, b->source, piece->from, piece->to, b->buffer, b->buffer_bytes, encode_part, b));
    HARK_TRY(end_sentence(b));
    b->documents[(*document)++] = (hark_token_document){.source = piece->source,
                                                        .byte_offset = piece->from,
                                                        .bytes = piece->to - piece->from,
                                                        .first = first,
                                                        .count = b->split->counts.tokens - first};
    b->split->counts.documents++;
  }
  return HARK_OK;
}

uint64_t hark_contents_begin(uint64_t vocabulary, hark_unknown unknown, hark_text_unit unit) {
  const uint64_t sum = hark_checksum_number(hark_checksum_number(HARK_CHECKSUM_START, vocabulary), (uint64_t)unknown);
  return unit != HARK_UNIT_TEXT ? hark_checksum_number(sum, (uint64_t)unit) : sum;
}

uint64_t hark_contents_add(uint64_t sum, uint64_t source, hark_split split, int64_t from, int64_t to) {
  sum = hark_checksum_number(sum, source);
  sum = hark_checksum_number(sum, (uint64_t)split);
  sum = hark_checksum_number(sum, (uint64_t)from);
  return hark_checksum_number(sum, (uint64_t)to);
}

static uint64_t contents_checksum(const builder *b) {
  uint64_t sum = hark_contents_begin(b->info.vocabulary_checksum, b->settings->unknown, b->settings->unit);
  for (int64_t i = 0; i < b->pieces.count; i++) {
    const hark_piece *piece = &b->pieces.items[i];
    sum = hark_contents_add(sum, b->sources->items[piece->source].checksum, piece->split, piece->from, piece->to);
  }
  return sum;
}

static hark_status check_sentences(const builder *b) {
  const hark_text_counts *training = &b->info.split[HARK_SPLIT_TRAINING].counts, *validation = &b->info.split[HARK_SPLIT_VALIDATION].counts;
  const int64_t blank = training->blank + validation->blank;
  if (b->settings->unit != HARK_UNIT_SENTENCES) return HARK_OK;
  if (training->sentences + validation->sentences == 0)
    return hark_fail(b->context, HARK_BAD_FILE, "%s: has no sentences, all its lines are blank, and there is no other text",
                     b->sources->items[0].path);
  if (blank > 0) hark_log(b->context, HARK_LOG_INFO, "%" PRId64 " blank lines are left out: they are not sentences", blank);
  return HARK_OK;
}

/* A buffer for the longest piece, where pieces are encoded at once. */
static hark_status settle_buffer(builder *b) {
  if (hark_tokenizer_imported(b->tokenizer) == NULL) return HARK_OK;
  if (b->settings->unit == HARK_UNIT_SENTENCES)
    return hark_fail(b->context, HARK_UNSUPPORTED,
                     "data.unit sentences begins every sentence with a reserved token, and the model's own tokenizer has none");
  b->whole = true;
  for (int64_t i = 0; i < b->pieces.count; i++) {
    const size_t bytes = (size_t)(b->pieces.items[i].to - b->pieces.items[i].from);
    if (b->sources->items[b->pieces.items[i].source].tokens) continue;
    if (bytes >= b->buffer_bytes) b->buffer_bytes = bytes + 1;
  }
  return HARK_OK;
}

static hark_status build(builder *b, const char *path) {
  HARK_TRY(hark_sources_divide(b->context, b->settings, b->sources, &b->pieces));
  HARK_TRY(settle_buffer(b));
  HARK_TRY(hark_allocate(b->context, (size_t)b->pieces.count * sizeof *b->documents, (void **)&b->documents));
  HARK_TRY(hark_allocate(b->context, b->buffer_bytes, &b->buffer));
  HARK_TRY(hark_allocate(b->context, b->buffer_bytes * sizeof *b->tokens, (void **)&b->tokens));
  HARK_TRY(hark_tokenizer_print(b->context, b->tokenizer, &b->vocabulary, &b->vocabulary_bytes));
  b->info.vocabulary_size = hark_tokenizer_size(b->tokenizer);
  b->info.vocabulary_checksum = hark_tokenizer_checksum(b->tokenizer);
  b->info.token_bytes = hark_token_bytes(b->info.vocabulary_size);
  b->info.made_seconds = (int64_t)time(NULL);
  for (int64_t i = 0; i < b->sources->count; i++) b->sources->items[i].checksum = HARK_CHECKSUM_START;
  HARK_TRY(hark_writer_open(b->context, &b->writer, path));
  HARK_TRY(hark_token_file_write_header(b->context, &b->writer, b->info.token_bytes));
  int64_t document = 0;
  HARK_TRY(encode_split(b, HARK_SPLIT_TRAINING, &document));
  HARK_TRY(encode_split(b, HARK_SPLIT_VALIDATION, &document));
  HARK_TRY(check_sentences(b));
  for (int64_t i = 0; i < b->sources->count; i++) HARK_TRY(hark_source_check_unchanged(b->context, &b->sources->items[i]));
  b->info.contents_checksum = contents_checksum(b);
  HARK_TRY(hark_token_file_write_index(b->context, &b->writer, &b->info, b->documents, b->sources, b->vocabulary, b->vocabulary_bytes));
  return hark_writer_commit(b->context, &b->writer, NULL);
}

static void warn_of_empty_files(hark_context *context, const hark_source_list *sources) {
  for (int64_t i = 0; i < sources->count; i++)
    if (sources->items[i].bytes == 0) hark_log(context, HARK_LOG_WARNING, "%s: is empty", sources->items[i].path);
}

hark_status hark_corpus_build(hark_context *context, const hark_corpus_settings *settings, hark_source_list *sources,
                              const hark_tokenizer *tokenizer, const char *path) {
  builder *b;
  HARK_TRY(hark_allocate_zero(context, sizeof *b, (void **)&b)); /* too large for the stack: the writer holds two paths */
  b->context = context;
  b->settings = settings;
  b->tokenizer = tokenizer;
  b->sources = sources;
  b->buffer_bytes = hark_corpus_part_bytes(settings);
  warn_of_empty_files(context, sources);
  hark_log(context, HARK_LOG_INFO, "tokenising %" PRId64 " %s into %s", sources->count, sources->count == 1 ? "file" : "files", path);
  const hark_status status = build(b, path);
  hark_writer_discard(&b->writer);
  hark_release(context, b->vocabulary, b->vocabulary_bytes);
  hark_release(context, b->tokens, b->buffer_bytes * sizeof *b->tokens);
  hark_release(context, b->buffer, b->buffer_bytes);
  hark_release(context, b->documents, (size_t)b->pieces.count * sizeof *b->documents);
  hark_pieces_free(context, &b->pieces);
  hark_release(context, b, sizeof *b);
  return status;
}
