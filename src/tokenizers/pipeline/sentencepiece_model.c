/* sentencepiece_model.c - the protocol buffer sentencepiece.ModelProto, read by its field numbers, as a pipeline:
 *
 *     text -> normalizer (map of texts, spaces) -> user-defined symbols -> unigram or BPE over the whole line -> tokens
 *
 *     ModelProto      1 pieces      1 text, 2 score, 3 type
 *                     2 trainer     3 model, 24 space as suffix, 35 byte fallback
 *                     3 normalizer  2 map of texts, 3 space before the text, 4 extra spaces are dropped, 5 spaces are marked
 *
 * Merges of BPE are the pairs of pieces whose text together is a piece; the rank of a merge is the place of that piece by falling score.
 */
#include "tokenizers/pipeline/sentencepiece_model.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tokenizers/pipeline/charsmap.h"
#include "tokenizers/pipeline/decoders.h"

#define SPACE_MARK "\xE2\x96\x81"
#define SPACE_MARK_BYTES 3
#define UNKNOWN_TEXT " \xE2\x81\x87 "
#define PIECE_BYTES ((size_t)4096)

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };
enum { MODEL_UNIGRAM = 1, MODEL_BPE };

typedef struct piece {
  hark_span text;
  float score;
  uint64_t type;
} piece;

typedef struct pieces {
  piece *data;
  size_t count, capacity;
} pieces;

/* The file's contents. */
typedef struct model_file {
  hark_context *context;
  const char *name, *data;
  pieces list;
  uint64_t model, byte_fallback, suffix, dummy_prefix, remove_extra, escape;
  hark_span map;
} model_file;

/* ---- protocol buffers ---- */

typedef struct field {
  uint64_t number, value; /* of a varint */
  hark_span bytes;        /* of a text or a message */
  float real;             /* of four bytes */
  int wire;
} field;

static bool varint(const char **at, const char *end, uint64_t *out) {
  *out = 0;
  for (int shift = 0; shift < 64 && *at < end; shift += 7) {
    const unsigned char byte = (unsigned char)*(*at)++;
    *out |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

static bool four_bytes(const char **at, const char *end, float *out) {
  if (end - *at < 4) return false;
  const unsigned char *const b = (const unsigned char *)*at;
  const uint32_t bits = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
  memcpy(out, &bits, sizeof bits);
  *at += 4;
  return true;
}

static bool counted_bytes(const char **at, const char *end, hark_span *out) {
  uint64_t length;
  if (!varint(at, end, &length) || length > (uint64_t)(end - *at)) return false;
  *out = (hark_span){*at, (size_t)length};
  *at += length;
  return true;
}

/* Reads the next field; false: damaged. */
static bool next_field(const char **at, const char *end, field *out) {
  uint64_t tag;
  *out = (field){0};
  if (!varint(at, end, &tag)) return false;
  out->number = tag >> 3;
  out->wire = (int)(tag & 7);
  switch (out->wire) {
    case 0: return varint(at, end, &out->value);
    case 1: return end - *at >= 8 ? (*at += 8, true) : false;
    case 2: return counted_bytes(at, end, &out->bytes);
    case 5: return four_bytes(at, end, &out->real);
    default: return false;
  }
}

static hark_status damaged(const model_file *file, const char *at, const char *what) {
  return hark_fail(file->context, HARK_BAD_FILE, "%s: byte %zu: %s", file->name, (size_t)(at - file->data), what);
}

bool hark_sentencepiece_is_model(const char *data, size_t bytes) {
  field message, text;
  const char *at = data;
  if (bytes < 4 || data[0] != 0x0A || !next_field(&at, data + bytes, &message)) return false;
  const char *inner = message.bytes.text;
  const char *const end = inner + message.bytes.bytes;
  return message.bytes.bytes > 2 && inner[0] == 0x0A && next_field(&inner, end, &text) &&
         (inner == end || *inner == 0x15 || *inner == 0x18);
}

/* ---- reading ---- */

static hark_status check_piece(const model_file *file, const char *at, const piece *p) {
  uint32_t code;
  if (p->text.bytes == 0 || p->text.bytes > PIECE_BYTES) return damaged(file, at, "a piece without text, or with more than 4096 bytes");
  for (size_t i = 0, length; i < p->text.bytes; i += length)
    if (hark_utf8_decode((const unsigned char *)p->text.text + i, p->text.bytes - i, &code, &length) != HARK_UTF8_OK)
      return damaged(file, at, "a piece that is not UTF-8");
  if (!isfinite(p->score)) return damaged(file, at, "a score that is not finite");
  if (p->type < PIECE_NORMAL || p->type > PIECE_BYTE) return damaged(file, at, "a piece of an unknown type");
  return HARK_OK;
}

static hark_status read_piece(model_file *file, hark_span message) {
  piece p = {.type = PIECE_NORMAL, .text.text = ""};
  const char *at = message.text;
  field f;
  while (at < message.text + message.bytes) {
    if (!next_field(&at, message.text + message.bytes, &f)) return damaged(file, at, "the file is damaged or cut within a piece");
    if (f.number == 1 && f.wire == 2) p.text = f.bytes;
    if (f.number == 2 && f.wire == 5) p.score = f.real;
    if (f.number == 3 && f.wire == 0) p.type = f.value;
  }
  HARK_TRY(check_piece(file, at, &p));
  if (file->list.count == (size_t)HARK_TOKEN_LIMIT) return damaged(file, at, "too many pieces");
  HARK_TRY(HARK_RESERVE(file->context, &file->list, 1));
  file->list.data[file->list.count++] = p;
  return HARK_OK;
}

/* A number of a field, for one of the settings below. */
typedef struct setting {
  uint64_t number;
  uint64_t *value;
} setting;

static hark_status read_settings(model_file *file, hark_span message, const setting *settings, size_t count, hark_span *map) {
  const char *at = message.text;
  field f;
  while (at < message.text + message.bytes) {
    if (!next_field(&at, message.text + message.bytes, &f)) return damaged(file, at, "the file is damaged or cut");
    for (size_t i = 0; i < count; i++)
      if (f.wire == 0 && f.number == settings[i].number) *settings[i].value = f.value;
    if (map != NULL && f.wire == 2 && f.number == 2) *map = f.bytes;
  }
  return HARK_OK;
}

static hark_status read_file(model_file *file, size_t bytes) {
  const setting trainer[] = {{3, &file->model}, {24, &file->suffix}, {35, &file->byte_fallback}};
  const setting normalizer[] = {{3, &file->dummy_prefix}, {4, &file->remove_extra}, {5, &file->escape}};
  const char *at = file->data;
  field f;
  while (at < file->data + bytes) {
    const char *const begin = at;
    if (!next_field(&at, file->data + bytes, &f)) return damaged(file, begin, "the file is damaged or cut");
    if (f.number == 1 && f.wire == 2) HARK_TRY(read_piece(file, f.bytes));
    if (f.number == 2 && f.wire == 2) HARK_TRY(read_settings(file, f.bytes, trainer, 3, NULL));
    if (f.number == 3 && f.wire == 2) HARK_TRY(read_settings(file, f.bytes, normalizer, 3, &file->map));
  }
  if (file->list.count == 0) return damaged(file, at, "there are no pieces");
  if (file->model != MODEL_UNIGRAM && file->model != MODEL_BPE)
    return hark_fail(file->context, HARK_UNSUPPORTED, "%s: model_type %llu (%s) is not supported", file->name,
                     (unsigned long long)file->model,
                     file->model == 3   ? "word"
                     : file->model == 4 ? "char"
                                        : "unknown");
  if (file->suffix != 0) return hark_fail(file->context, HARK_UNSUPPORTED, "%s: treat_whitespace_as_suffix is not supported", file->name);
  return HARK_OK;
}

/* ---- the normalizer ---- */

typedef struct spaces_state {
  hark_charsmap map;
  hark_trie user; /* symbols that the user defined stay as they are */
  bool dummy_prefix, remove_extra, escape;
} spaces_state;

static void close_spaces(hark_context *context, void *memory) {
  spaces_state *const state = memory;
  hark_charsmap_close(context, &state->map);
  hark_trie_close(context, &state->user);
}

/* What the text begins with, normalized, and its length in the text. */
static size_t normalized_prefix(const spaces_state *state, hark_span text, hark_span *with) {
  size_t length = 0;
  if (state->user.edges > 0 && hark_trie_longest(&state->user, HARK_TRIE_ROOT, text.text, text.bytes, &length) >= 0) {
    *with = (hark_span){text.text, length};
    return length;
  }
  if (hark_charsmap_longest(&state->map, text, with, &length)) return length;
  length = hark_character_bytes(text.text);
  *with = (hark_span){text.text, length};
  return length;
}

static hark_status put_escaped(const spaces_state *state, hark_pipeline_work *work, hark_span text, hark_bytes *out) {
  for (size_t i = 0; i < text.bytes; i++)
    HARK_TRY(text.text[i] == ' ' && state->escape ? hark_bytes_add(work->context, out, SPACE_MARK, SPACE_MARK_BYTES)
                                                  : hark_bytes_add(work->context, out, text.text + i, 1));
  return HARK_OK;
}

static void drop_last_spaces(const spaces_state *state, hark_bytes *out) {
  const size_t unit = state->escape ? SPACE_MARK_BYTES : 1;
  while (out->count >= unit && memcmp(out->data + out->count - unit, state->escape ? SPACE_MARK : " ", unit) == 0) out->count -= unit;
}

static hark_status normalize(const void *memory, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  const spaces_state *const state = memory;
  hark_span with;
  size_t at = 0, length;
  (void)cut;
  while (state->remove_extra && at < in.bytes) {
    length = normalized_prefix(state, (hark_span){in.text + at, in.bytes - at}, &with);
    if (with.bytes != 1 || with.text[0] != ' ') break;
    at += length;
  }
  if (at == in.bytes) return HARK_OK;
  if (state->dummy_prefix) HARK_TRY(put_escaped(state, work, (hark_span){" ", 1}, out));
  bool after_space = state->remove_extra;
  for (; at < in.bytes; at += length) {
    length = normalized_prefix(state, (hark_span){in.text + at, in.bytes - at}, &with);
    while (after_space && with.bytes > 0 && with.text[0] == ' ') with = (hark_span){with.text + 1, with.bytes - 1};
    HARK_TRY(put_escaped(state, work, with, out));
    if (with.bytes > 0) after_space = state->remove_extra && with.text[with.bytes - 1] == ' ';
  }
  if (state->remove_extra) drop_last_spaces(state, out);
  return HARK_OK;
}

static const hark_component_kind kind_spaces = {
    .type = "sentencepiece", .state_bytes = sizeof(spaces_state), .close = close_spaces, .normalize = normalize};

static hark_status fill_user(const model_file *file, spaces_state *state) {
  size_t bytes = 0;
  for (size_t i = 0; i < file->list.count; i++)
    if (file->list.data[i].type == PIECE_USER) bytes += file->list.data[i].text.bytes;
  if (bytes == 0) return HARK_OK;
  HARK_TRY(hark_trie_open(file->context, &state->user, bytes));
  for (size_t i = 0; i < file->list.count; i++)
    if (file->list.data[i].type == PIECE_USER) hark_trie_add(&state->user, file->list.data[i].text.text, file->list.data[i].text.bytes, 0);
  return HARK_OK;
}

static hark_status add_normalizer(const model_file *file, hark_pipeline *pipeline) {
  void *memory;
  HARK_TRY(hark_components_add(file->context, &kind_spaces, &pipeline->normalizers, &memory));
  spaces_state *const state = memory;
  state->dummy_prefix = file->dummy_prefix != 0;
  state->remove_extra = file->remove_extra != 0;
  state->escape = file->escape != 0;
  HARK_TRY(fill_user(file, state));
  const hark_status status = hark_charsmap_read(file->context, file->map, &state->map);
  if (status != HARK_OK) hark_fail_prefix(file->context, "%s: precompiled_charsmap: ", file->name);
  return status;
}

/* ---- the model ---- */

static hark_status fill_vocabulary(const model_file *file, hark_pipeline *pipeline) {
  size_t bytes = 0;
  for (size_t i = 0; i < file->list.count; i++) bytes += file->list.data[i].text.bytes;
  HARK_TRY(hark_token_table_open(file->context, &pipeline->vocabulary, (int64_t)file->list.count, (int64_t)file->list.count, bytes));
  for (size_t i = 0; i < file->list.count; i++)
    hark_token_table_add(&pipeline->vocabulary, file->list.data[i].text.text, file->list.data[i].text.bytes, (int32_t)i);
  return HARK_OK;
}

static int32_t unknown_of(const model_file *file) {
  for (size_t i = 0; i < file->list.count; i++)
    if (file->list.data[i].type == PIECE_UNKNOWN) return (int32_t)i;
  return -1;
}

/* Scores of pieces that can be in a text. User-defined symbols get, as in SentencePiece, 0.1 less than their length times the largest
 * score, or times FLT_MIN if that is larger, as it is for logarithms: they beat all other pieces. */
static void fill_scores(const model_file *file, double *scores, double *lowest) {
  float most = FLT_MIN, least = INFINITY;
  for (size_t i = 0; i < file->list.count; i++) {
    const piece *const p = &file->list.data[i];
    if (p->type == PIECE_NORMAL && p->score > most) most = p->score;
    if (p->type == PIECE_NORMAL && p->score < least) least = p->score;
  }
  if (!isfinite(least)) least = 0;
  for (size_t i = 0; i < file->list.count; i++) {
    const piece *const p = &file->list.data[i];
    scores[i] = p->type == PIECE_NORMAL ? (double)p->score : p->type == PIECE_USER ? (double)((float)p->text.bytes * most) - 0.1 : NAN;
  }
  *lowest = least;
}

static hark_status add_unigram(const model_file *file, hark_pipeline *pipeline) {
  const size_t bytes = file->list.count * sizeof(double);
  double *scores = NULL, lowest = 0;
  void *state;
  HARK_TRY(hark_components_add(file->context, &hark_model_unigram, &pipeline->model, &state));
  HARK_TRY(hark_allocate(file->context, bytes, (void **)&scores));
  fill_scores(file, scores, &lowest);
  const hark_status status =
      hark_unigram_fill(file->context, pipeline, state, scores, lowest, file->byte_fallback != 0, unknown_of(file), true);
  hark_release(file->context, scores, bytes);
  return status;
}

typedef struct merges {
  hark_bpe_merge *data;
  size_t count, capacity;
} merges;

static bool can_be_part(const model_file *file, int32_t id) { return id >= 0 && file->list.data[id].type == PIECE_NORMAL; }

/* All pairs of pieces that make piece `id`. */
static hark_status add_merges_of(const model_file *file, const hark_pipeline *pipeline, int32_t id, int32_t rank, merges *out) {
  const hark_span text = file->list.data[id].text;
  for (size_t at = hark_character_bytes(text.text); at < text.bytes; at += hark_character_bytes(text.text + at)) {
    const int32_t left = hark_token_find(&pipeline->vocabulary, text.text, at),
                  right = hark_token_find(&pipeline->vocabulary, text.text + at, text.bytes - at);
    if (!can_be_part(file, left) || !can_be_part(file, right)) continue;
    HARK_TRY(HARK_RESERVE(file->context, out, 1));
    out->data[out->count++] = (hark_bpe_merge){left, right, rank, id};
  }
  return HARK_OK;
}

typedef struct scored {
  float score;
  int32_t id;
} scored;

static int by_falling_score(const void *a, const void *b) {
  const scored *const x = a, *const y = b;
  return x->score > y->score ? -1 : x->score < y->score ? 1 : x->id < y->id ? -1 : x->id > y->id;
}

/* Pieces of equal scores have equal ranks: then the leftmost pair counts. */
static hark_status list_merges(const model_file *file, const hark_pipeline *pipeline, scored *order, merges *out) {
  size_t count = 0;
  int32_t rank = 0;
  for (size_t i = 0; i < file->list.count; i++)
    if (file->list.data[i].type == PIECE_NORMAL) order[count++] = (scored){file->list.data[i].score, (int32_t)i};
  qsort(order, count, sizeof *order, by_falling_score);
  for (size_t i = 0; i < count; i++) {
    if (i > 0 && order[i].score != order[i - 1].score) rank = (int32_t)i;
    HARK_TRY(add_merges_of(file, pipeline, order[i].id, rank, out));
  }
  return HARK_OK;
}

static hark_status add_bpe(const model_file *file, hark_pipeline *pipeline) {
  const size_t bytes = file->list.count * sizeof(scored);
  scored *order = NULL;
  merges list = {0};
  void *state;
  for (size_t i = 0; i < file->list.count; i++)
    if (file->list.data[i].type == PIECE_UNUSED)
      return hark_fail(file->context, HARK_UNSUPPORTED, "%s: unused pieces of a BPE model are not supported (piece %zu)", file->name, i);
  HARK_TRY(hark_components_add(file->context, &hark_model_bpe, &pipeline->model, &state));
  HARK_TRY(hark_allocate(file->context, bytes, (void **)&order));
  hark_status status = list_merges(file, pipeline, order, &list);
  if (status == HARK_OK)
    status = hark_bpe_fill(file->context, pipeline, state, list.data, list.count, file->byte_fallback != 0, unknown_of(file));
  HARK_FREE_LIST(file->context, &list);
  hark_release(file->context, order, bytes);
  return status;
}

/* ---- the decoder ---- */

typedef struct text_state {
  hark_bytes unknown; /* the text of the unknown piece */
  bool drop_first, drop_all;
} text_state;

static void close_text(hark_context *context, void *memory) { HARK_FREE_LIST(context, &((text_state *)memory)->unknown); }

static hark_status put_spaces(hark_pipeline_work *work, hark_span text) {
  for (size_t at = 0; at < text.bytes;) {
    const bool mark = text.bytes - at >= SPACE_MARK_BYTES && memcmp(text.text + at, SPACE_MARK, SPACE_MARK_BYTES) == 0;
    HARK_TRY(hark_parts_put(work, mark ? " " : text.text + at, 1));
    at += mark ? SPACE_MARK_BYTES : 1;
  }
  return HARK_OK;
}

/* At the beginning of a text the space that the normalizer put there is left out, or all spaces. */
static hark_span without_first_space(const text_state *state, hark_span text, bool *beginning) {
  if (!*beginning || !(state->drop_first || state->drop_all)) return text;
  if (text.bytes >= SPACE_MARK_BYTES && memcmp(text.text, SPACE_MARK, SPACE_MARK_BYTES) == 0) {
    text = (hark_span){text.text + SPACE_MARK_BYTES, text.bytes - SPACE_MARK_BYTES};
    if (!state->drop_all) *beginning = false;
  }
  return text;
}

static hark_status decode(const void *memory, hark_pipeline_work *work) {
  const text_state *const state = memory;
  hark_utf8_stream stream = {{0}, 0};
  char out[HARK_UTF8_STREAM_BYTES];
  bool beginning = !work->apart;
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const hark_span part = work->parts.data[i];
    const int byte = hark_byte_token(part);
    if (byte >= 0 && work->apart) {
      const char single = (char)byte;
      HARK_TRY(hark_parts_put(work, &single, 1));
    } else if (byte >= 0) {
      HARK_TRY(hark_parts_put(work, out, hark_utf8_stream_put(&stream, (unsigned char)byte, out)));
    } else {
      HARK_TRY(hark_parts_put(work, out, hark_utf8_stream_end(&stream, out)));
      if (part.bytes == state->unknown.count && part.bytes > 0 && memcmp(part.text, state->unknown.data, part.bytes) == 0) {
        HARK_TRY(hark_parts_put(work, UNKNOWN_TEXT, sizeof UNKNOWN_TEXT - 1));
      } else {
        HARK_TRY(put_spaces(work, without_first_space(state, part, &beginning)));
      }
    }
    if (work->pool[1].count > 0 || byte >= 0) beginning = false;
  }
  HARK_TRY(hark_parts_put(work, out, hark_utf8_stream_end(&stream, out)));
  HARK_TRY(hark_parts_close_part(work, 0));
  return hark_parts_end(work);
}

static const hark_component_kind kind_text = {
    .type = "sentencepiece", .state_bytes = sizeof(text_state), .close = close_text, .decode = decode};

static hark_status add_decoder(const model_file *file, hark_pipeline *pipeline) {
  const int32_t unknown = unknown_of(file);
  void *memory;
  HARK_TRY(hark_components_add(file->context, &kind_text, &pipeline->decoders, &memory));
  text_state *const state = memory;
  state->drop_first = file->dummy_prefix != 0;
  state->drop_all = file->remove_extra != 0;
  if (unknown < 0) return HARK_OK;
  return hark_bytes_add(file->context, &state->unknown, file->list.data[unknown].text.text, file->list.data[unknown].text.bytes);
}

/* Control symbols are special, and never found in a text; symbols that the user defined are, and BPE does not merge them. */
static hark_status add_symbols(const model_file *file, hark_pipeline *pipeline) {
  const size_t bytes = file->list.count * sizeof(hark_added_token);
  hark_added_token *tokens = NULL;
  size_t count = 0;
  HARK_TRY(hark_allocate(file->context, bytes, (void **)&tokens));
  for (size_t i = 0; i < file->list.count; i++) {
    const piece *const p = &file->list.data[i];
    const bool control = p->type == PIECE_CONTROL, user = p->type == PIECE_USER;
    if (!control && !user) continue;
    tokens[count++] = (hark_added_token){.text = p->text,
                                         .id = (int32_t)i,
                                         .special = control,
                                         .normalized = true,
                                         .ready = true,
                                         .unsearched = control || file->model != MODEL_BPE};
  }
  const hark_status status = hark_added_tokens_set(file->context, pipeline, tokens, count);
  hark_release(file->context, tokens, bytes);
  return status;
}

static hark_status build(const model_file *file, hark_pipeline *pipeline) {
  HARK_TRY(fill_vocabulary(file, pipeline));
  HARK_TRY(add_normalizer(file, pipeline));
  HARK_TRY(file->model == MODEL_BPE ? add_bpe(file, pipeline) : add_unigram(file, pipeline));
  HARK_TRY(add_decoder(file, pipeline));
  return add_symbols(file, pipeline);
}

hark_status hark_sentencepiece_read(hark_context *context, const char *name, const char *data, size_t bytes, hark_pipeline *pipeline) {
  model_file file = {.context = context,
                     .name = name,
                     .data = data,
                     .model = MODEL_UNIGRAM,
                     .dummy_prefix = 1,
                     .remove_extra = 1,
                     .escape = 1,
                     .map.text = ""};
  hark_status status = read_file(&file, bytes);
  if (status == HARK_OK) status = build(&file, pipeline);
  HARK_FREE_LIST(context, &file.list);
  return status;
}
