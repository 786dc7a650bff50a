/* decoders.c - the table of decoders: from the texts of tokens to a text. A decoder changes the list of texts, work->parts; what is left at
 * the end is joined.
 *
 * New texts are written to work->pool[1], and the pools change places after each decoder: texts of the list are in the vocabulary or in
 * work->pool[0], which does not move until the next decoder is done.
 */
#include "tokenizers/pipeline/decoders.h"
#include "tokenizers/pipeline/component.h"

/* ---- a new list ---- */

void hark_parts_begin(hark_pipeline_work *work) { work->more_parts.count = work->pool[1].count = 0; }

/* A text in the pool: its place, since the pool may move; hark_parts_end() makes it a pointer. */
hark_status hark_parts_close_part(hark_pipeline_work *work, size_t begin) {
  return hark_spans_add(work->context, &work->more_parts, NULL, work->pool[1].count - begin);
}

hark_status hark_parts_put(hark_pipeline_work *work, const char *text, size_t bytes) {
  return hark_bytes_add(work->context, &work->pool[1], text, bytes);
}

hark_status hark_parts_end(hark_pipeline_work *work) {
  size_t at = 0;
  for (size_t i = 0; i < work->more_parts.count; i++) {
    hark_span *const part = &work->more_parts.data[i];
    part->text = part->bytes > 0 ? work->pool[1].data + at : "";
    at += part->bytes;
  }
  const hark_spans parts = work->parts;
  const hark_bytes pool = work->pool[0];
  work->parts = work->more_parts;
  work->more_parts = parts;
  work->pool[0] = work->pool[1];
  work->pool[1] = pool;
  return HARK_OK;
}

/* ---- Fuse ---- */

static hark_status fuse(const void *state, hark_pipeline_work *work) {
  (void)state;
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) HARK_TRY(hark_parts_put(work, work->parts.data[i].text, work->parts.data[i].bytes));
  HARK_TRY(hark_parts_close_part(work, 0));
  return hark_parts_end(work);
}
static const hark_component_kind kind_fuse = {.type = "Fuse", .decode = fuse};

/* ---- ByteLevel: characters are bytes ---- */

static bool is_byte_level(hark_span text) {
  for (size_t at = 0, length; at < text.bytes; at += length)
    if (hark_character_byte(hark_character(text.text + at, &length)) < 0) return false;
  return true;
}

static hark_status put_bytes(hark_pipeline_work *work, hark_span text) {
  if (!is_byte_level(text)) return hark_parts_put(work, text.text, text.bytes);
  for (size_t at = 0, length; at < text.bytes; at += length) {
    const char byte = (char)hark_character_byte(hark_character(text.text + at, &length));
    HARK_TRY(hark_parts_put(work, &byte, 1));
  }
  return HARK_OK;
}

/* Appends bytes as UTF-8: what can be no character is U+FFFD. */
static hark_status put_as_utf8(hark_pipeline_work *work, const char *bytes, size_t count) {
  if (work->apart) return hark_parts_put(work, bytes, count);
  hark_utf8_stream stream = {{0}, 0};
  char out[HARK_UTF8_STREAM_BYTES];
  for (size_t i = 0; i < count; i++) HARK_TRY(hark_parts_put(work, out, hark_utf8_stream_put(&stream, (unsigned char)bytes[i], out)));
  return hark_parts_put(work, out, hark_utf8_stream_end(&stream, out));
}

static hark_status byte_level(const void *state, hark_pipeline_work *work) {
  (void)state;
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) HARK_TRY(put_bytes(work, work->parts.data[i]));
  HARK_TRY(hark_parts_close_part(work, 0));
  HARK_TRY(hark_parts_end(work));
  hark_parts_begin(work);
  HARK_TRY(put_as_utf8(work, work->parts.data[0].text, work->parts.data[0].bytes));
  HARK_TRY(hark_parts_close_part(work, 0));
  return hark_parts_end(work);
}
static const hark_component_kind kind_byte_level = {
    .type = "ByteLevel", .members = "add_prefix_space|trim_offsets|use_regex", .decode = byte_level};

/* ---- ByteFallback: "<0x0A>" is a byte ---- */

static bool is_utf8(const char *text, size_t bytes) {
  for (size_t at = 0, length; at < bytes; at += length) {
    uint32_t code;
    if (hark_utf8_decode((const unsigned char *)text + at, bytes - at, &code, &length) != HARK_UTF8_OK) return false;
  }
  return true;
}

/* Ends a run of bytes: they are one text, or one U+FFFD each. */
static hark_status flush_bytes(hark_pipeline_work *work, hark_bytes *run) {
  if (run->count == 0) return HARK_OK;
  const size_t begin = work->pool[1].count, count = run->count;
  run->count = 0;
  if (work->apart || is_utf8(run->data, count)) {
    HARK_TRY(hark_parts_put(work, run->data, count));
    return hark_parts_close_part(work, begin);
  }
  for (size_t i = 0; i < count; i++) {
    const size_t at = work->pool[1].count;
    HARK_TRY(hark_parts_put(work, "\xEF\xBF\xBD", 3));
    HARK_TRY(hark_parts_close_part(work, at));
  }
  return HARK_OK;
}

static hark_status byte_fallback(const void *state, hark_pipeline_work *work) {
  hark_bytes *const run = &work->word;
  (void)state;
  run->count = 0;
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const hark_span part = work->parts.data[i];
    const int byte = hark_byte_token(part);
    if (byte >= 0) {
      const char c = (char)byte;
      HARK_TRY(hark_bytes_add(work->context, run, &c, 1));
      continue;
    }
    HARK_TRY(flush_bytes(work, run));
    const size_t begin = work->pool[1].count;
    HARK_TRY(hark_parts_put(work, part.text, part.bytes));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  HARK_TRY(flush_bytes(work, run));
  return hark_parts_end(work);
}
static const hark_component_kind kind_byte_fallback = {.type = "ByteFallback", .decode = byte_fallback};

/* ---- replacing in each text ---- */

/* Appends `text` with all `from` replaced by `to`. */
static hark_status put_replaced(hark_pipeline_work *work, hark_span text, hark_span from, hark_span to) {
  size_t at = 0;
  while (from.bytes > 0 && text.bytes - at >= from.bytes) {
    if (memcmp(text.text + at, from.text, from.bytes) == 0) {
      HARK_TRY(hark_parts_put(work, to.text, to.bytes));
      at += from.bytes;
    } else {
      HARK_TRY(hark_parts_put(work, text.text + at, 1));
      at++;
    }
  }
  return hark_parts_put(work, text.text + at, text.bytes - at);
}

static hark_span span_of(const char *text) { return (hark_span){text, strlen(text)}; }
static hark_span span_of_bytes(const hark_bytes *bytes) { return (hark_span){bytes->data != NULL ? bytes->data : "", bytes->count}; }

/* Replaces in every text of the list. */
static hark_status replace_all(hark_pipeline_work *work, hark_span from, hark_span to) {
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const size_t begin = work->pool[1].count;
    HARK_TRY(put_replaced(work, work->parts.data[i], from, to));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  return hark_parts_end(work);
}

static hark_status replace_one(hark_pipeline_work *work, const hark_replacement *state, hark_span text) {
  hark_finder f = {.after = HARK_NO_MATCH};
  size_t from = 0;
  for (bool found = true;; from = f.end) {
    HARK_TRY(hark_pattern_next(work, &state->pattern, text, &f, &found));
    if (!found) return hark_parts_put(work, text.text + from, text.bytes - from);
    HARK_TRY(hark_parts_put(work, text.text + from, f.begin - from));
    HARK_TRY(hark_parts_put(work, state->content.data, state->content.count));
  }
}

static hark_status replace(const void *memory, hark_pipeline_work *work) {
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const size_t begin = work->pool[1].count;
    HARK_TRY(replace_one(work, memory, work->parts.data[i]));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  return hark_parts_end(work);
}
static const hark_component_kind kind_replace = {.type = "Replace",
                                                 .members = "pattern|content",
                                                 .state_bytes = sizeof(hark_replacement),
                                                 .read = hark_replacement_read,
                                                 .close = hark_replacement_close,
                                                 .decode = replace};

/* ---- WordPiece: spaces between words, none before what continues one ---- */

typedef struct word_piece_state {
  hark_bytes prefix, pad; /* pad: CTC's */
  bool cleanup;
} word_piece_state;

static hark_status read_word_piece(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  word_piece_state *const state = memory;
  state->cleanup = true;
  HARK_TRY(hark_bytes_add(reader->context, &state->prefix, "##", 2));
  HARK_TRY(hark_component_text(reader, node, "prefix", &state->prefix));
  return hark_component_boolean(reader, node, "cleanup", &state->cleanup);
}
static void close_word_piece(hark_context *context, void *memory) {
  word_piece_state *const state = memory;
  HARK_FREE_LIST(context, &state->prefix);
  HARK_FREE_LIST(context, &state->pad);
}

/* English punctuation and contractions lose the space before them, in each text by itself. */
static hark_status clean_up(hark_pipeline_work *work) {
  static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                         {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                         {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) HARK_TRY(replace_all(work, span_of(pairs[i][0]), span_of(pairs[i][1])));
  return HARK_OK;
}

static hark_status word_piece(const void *memory, hark_pipeline_work *work) {
  const word_piece_state *const state = memory;
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const hark_span part = work->parts.data[i];
    const size_t begin = work->pool[1].count;
    const bool continues =
        part.bytes >= state->prefix.count && (state->prefix.count == 0 || memcmp(part.text, state->prefix.data, state->prefix.count) == 0);
    const bool follows = i > 0 || work->apart;
    const size_t skip = follows && continues ? state->prefix.count : 0;
    if (follows && !continues) HARK_TRY(hark_parts_put(work, " ", 1));
    HARK_TRY(hark_parts_put(work, part.text + skip, part.bytes - skip));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  HARK_TRY(hark_parts_end(work));
  return state->cleanup ? clean_up(work) : HARK_OK;
}
static const hark_component_kind kind_word_piece = {.type = "WordPiece",
                                                    .members = "prefix|cleanup",
                                                    .state_bytes = sizeof(word_piece_state),
                                                    .read = read_word_piece,
                                                    .close = close_word_piece,
                                                    .decode = word_piece};

/* ---- CTC: repeated tokens count once, padding not at all; prefix is the token between words ---- */

static hark_status read_ctc(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  word_piece_state *const state = memory;
  state->cleanup = true;
  HARK_TRY(hark_component_needed_text(reader, node, "pad_token", &state->pad));
  HARK_TRY(hark_component_needed_text(reader, node, "word_delimiter_token", &state->prefix));
  return hark_component_boolean(reader, node, "cleanup", &state->cleanup);
}

static bool same(hark_span a, hark_span b) { return a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0; }

static hark_status drop_repeated(hark_pipeline_work *work, hark_span pad) {
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const hark_span part = work->parts.data[i];
    const size_t begin = work->pool[1].count;
    if (i > 0 && same(part, work->parts.data[i - 1])) continue;
    HARK_TRY(put_replaced(work, part, pad, span_of("")));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  return hark_parts_end(work);
}

static hark_status ctc(const void *memory, hark_pipeline_work *work) {
  const word_piece_state *const state = memory;
  HARK_TRY(drop_repeated(work, span_of_bytes(&state->pad)));
  if (!state->cleanup) return HARK_OK;
  HARK_TRY(clean_up(work));
  return replace_all(work, span_of_bytes(&state->prefix), span_of(" "));
}
static const hark_component_kind kind_ctc = {.type = "CTC",
                                             .members = "pad_token|word_delimiter_token|cleanup",
                                             .state_bytes = sizeof(word_piece_state),
                                             .read = read_ctc,
                                             .close = close_word_piece,
                                             .decode = ctc};

/* ---- Metaspace ---- */

typedef struct metaspace_state {
  hark_bytes mark;
  int scheme; /* always, first, never */
} metaspace_state;

static hark_status read_metaspace(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  metaspace_state *const state = memory;
  bool prefix = true;
  HARK_TRY(hark_component_needed_text(reader, node, "replacement", &state->mark));
  if (state->mark.count == 0) return hark_component_fail(reader, "replacement", "expected one character");
  HARK_TRY(hark_component_boolean(reader, node, "add_prefix_space", &prefix));
  state->scheme = prefix ? 0 : 2;
  return hark_component_word(reader, node, "prepend_scheme", "always|first|never", &state->scheme);
}
static void close_metaspace(hark_context *context, void *memory) { HARK_FREE_LIST(context, &((metaspace_state *)memory)->mark); }

static hark_status metaspace(const void *memory, hark_pipeline_work *work) {
  const metaspace_state *const state = memory;
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const size_t begin = work->pool[1].count;
    const bool dropped = i == 0 && state->scheme != 2 && !work->apart; /* the marks of the first token */
    HARK_TRY(put_replaced(work, work->parts.data[i], span_of_bytes(&state->mark), span_of(dropped ? "" : " ")));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  return hark_parts_end(work);
}
static const hark_component_kind kind_metaspace = {.type = "Metaspace",
                                                   .members = "replacement|str_rep|add_prefix_space|prepend_scheme|split",
                                                   .state_bytes = sizeof(metaspace_state),
                                                   .read = read_metaspace,
                                                   .close = close_metaspace,
                                                   .decode = metaspace};

/* ---- BPEDecoder: the suffix of words is a space, but for the last ---- */

static hark_status read_bpe(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  HARK_TRY(hark_bytes_add(reader->context, memory, "</w>", 4));
  return hark_component_text(reader, node, "suffix", memory);
}
static void close_bpe(hark_context *context, void *memory) { HARK_FREE_LIST(context, (hark_bytes *)memory); }

static hark_status bpe(const void *memory, hark_pipeline_work *work) {
  hark_parts_begin(work);
  for (size_t i = 0; i < work->parts.count; i++) {
    const size_t begin = work->pool[1].count;
    HARK_TRY(put_replaced(work, work->parts.data[i], span_of_bytes(memory), span_of(i + 1 < work->parts.count || work->apart ? " " : "")));
    HARK_TRY(hark_parts_close_part(work, begin));
  }
  return hark_parts_end(work);
}
static const hark_component_kind kind_bpe = {
    .type = "BPEDecoder", .members = "suffix", .state_bytes = sizeof(hark_bytes), .read = read_bpe, .close = close_bpe, .decode = bpe};

/* ---- Strip: a number of equal characters at the ends of each text ---- */

typedef struct strip_state {
  hark_bytes content;
  int64_t start, stop;
} strip_state;

static hark_status read_strip(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  strip_state *const state = memory;
  HARK_TRY(hark_component_needed_text(reader, node, "content", &state->content));
  if (state->content.count == 0 || hark_character_bytes(state->content.data) != state->content.count)
    return hark_component_fail(reader, "content", "expected one character");
  HARK_TRY(hark_component_integer(reader, node, "start", 0, INT64_MAX, &state->start));
  return hark_component_integer(reader, node, "stop", 0, INT64_MAX, &state->stop);
}
static void close_strip(hark_context *context, void *memory) { HARK_FREE_LIST(context, &((strip_state *)memory)->content); }

static hark_span stripped(const strip_state *state, hark_span text) {
  const size_t unit = state->content.count;
  for (int64_t i = 0; i < state->start && text.bytes >= unit && memcmp(text.text, state->content.data, unit) == 0; i++)
    text = (hark_span){text.text + unit, text.bytes - unit};
  for (int64_t i = 0; i < state->stop && text.bytes >= unit && memcmp(text.text + text.bytes - unit, state->content.data, unit) == 0; i++)
    text.bytes -= unit;
  return text;
}

static hark_status strip(const void *memory, hark_pipeline_work *work) {
  for (size_t i = 0; i < work->parts.count && !work->apart; i++) work->parts.data[i] = stripped(memory, work->parts.data[i]);
  return HARK_OK;
}
static const hark_component_kind kind_strip = {.type = "Strip",
                                               .members = "content|start|stop",
                                               .state_bytes = sizeof(strip_state),
                                               .read = read_strip,
                                               .close = close_strip,
                                               .decode = strip};

static const hark_component_kind *const kinds[] = {&kind_bpe,       &kind_byte_fallback, &kind_byte_level, &kind_ctc,        &kind_fuse,
                                                   &kind_metaspace, &kind_replace,       &kind_strip,      &kind_word_piece, NULL};
const hark_component_table hark_decoders = {kinds, "decoders"};
