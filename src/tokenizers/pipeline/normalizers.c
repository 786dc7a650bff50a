/* normalizers.c - the table of normalizers: what is done to a text before it is divided. */
#include "tokenizers/pipeline/charsmap.h"
#include "tokenizers/pipeline/component.h"

/* ---- normal forms ---- */

static hark_status nfc(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state, (void)cut;
  return hark_normal_form(work->context, true, false, in, &work->codes, out);
}
static hark_status nfd(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state, (void)cut;
  return hark_normal_form(work->context, false, false, in, &work->codes, out);
}
static hark_status nfkc(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state, (void)cut;
  return hark_normal_form(work->context, true, true, in, &work->codes, out);
}
static hark_status nfkd(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state, (void)cut;
  return hark_normal_form(work->context, false, true, in, &work->codes, out);
}
static const hark_component_kind kind_nfc = {.type = "NFC", .needs = HARK_NEEDS_UTF8PROC, .normalize = nfc};
static const hark_component_kind kind_nfd = {.type = "NFD", .needs = HARK_NEEDS_UTF8PROC, .normalize = nfd};
static const hark_component_kind kind_nfkc = {.type = "NFKC", .needs = HARK_NEEDS_UTF8PROC, .normalize = nfkc};
static const hark_component_kind kind_nfkd = {.type = "NFKD", .needs = HARK_NEEDS_UTF8PROC, .normalize = nfkd};

/* ---- characters that are left out or replaced one by one ---- */

static hark_status lower_case(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state, (void)cut;
  return hark_lower_case(work->context, in, out);
}
static const hark_component_kind kind_lower_case = {.type = "Lowercase", .needs = HARK_NEEDS_UTF8PROC, .normalize = lower_case};

/* Keeps the characters for which `drop` is false. */
static hark_status keep(hark_pipeline_work *work, hark_span in, bool (*drop)(uint32_t), hark_bytes *out, bool *cut) {
  HARK_TRY(HARK_RESERVE(work->context, out, in.bytes));
  const size_t begin = out->count;
  for (size_t at = 0, length; at < in.bytes; at += length) {
    if (drop(hark_character(in.text + at, &length))) {
      if (out->count == begin) *cut = true;
      continue;
    }
    memcpy(out->data + out->count, in.text + at, length);
    out->count += length;
  }
  return HARK_OK;
}

static hark_status strip_accents(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state;
  return keep(work, in, hark_is_mark, out, cut);
}
static const hark_component_kind kind_strip_accents = {.type = "StripAccents", .needs = HARK_NEEDS_UTF8PROC, .normalize = strip_accents};

/* ---- Bert: clean, spaces around Chinese characters, accents, lower case ---- */

typedef struct bert_state {
  bool clean, chinese, accents, lower;
} bert_state;

static hark_status read_bert(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  bert_state *const state = memory;
  *state = (bert_state){true, true, false, true};
  HARK_TRY(hark_component_boolean(reader, node, "clean_text", &state->clean));
  HARK_TRY(hark_component_boolean(reader, node, "handle_chinese_chars", &state->chinese));
  HARK_TRY(hark_component_boolean(reader, node, "lowercase", &state->lower));
  state->accents = state->lower; /* null means so */
  return hark_component_boolean(reader, node, "strip_accents", &state->accents);
}

#define REPLACEMENT 0xFFFD

static bool is_dropped_by_bert(uint32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  if (code < 0x80) return code < ' ' || code == 0x7F;
  return code == REPLACEMENT || hark_is_other(code);
}

static bool is_chinese(uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) || (code >= 0x20000 && code <= 0x2A6DF) ||
         (code >= 0x2A700 && code <= 0x2B73F) || (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

static hark_status clean_bert(const bert_state *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  HARK_TRY(HARK_RESERVE(work->context, out, 2 * in.bytes));
  for (size_t at = 0, length; at < in.bytes; at += length) {
    const uint32_t code = hark_character(in.text + at, &length);
    if (state->clean && is_dropped_by_bert(code)) {
      if (out->count == 0) *cut = true;
    } else if (state->clean && hark_is_white(code)) {
      out->data[out->count++] = ' ';
    } else {
      const bool apart = state->chinese && code >= 0x3400 && is_chinese(code);
      if (apart) out->data[out->count++] = ' ';
      memcpy(out->data + out->count, in.text + at, length);
      out->count += length;
      if (apart) out->data[out->count++] = ' ';
    }
  }
  return HARK_OK;
}

static bool is_ascii(const hark_bytes *text) {
  for (size_t i = 0; i < text->count; i++)
    if ((unsigned char)text->data[i] >= 0x80) return false;
  return true;
}

/* Replaces `text` by what `from` has after the step. */
static void take(hark_bytes *text, hark_bytes *other) {
  const hark_bytes kept = *text;
  *text = *other;
  *other = kept;
  other->count = 0;
}

static hark_status normalize_bert(const void *memory, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  const bert_state *const state = memory;
  hark_bytes *const other = &work->word;
  HARK_TRY(clean_bert(state, work, in, out, cut));
  if (state->accents && !is_ascii(out)) {
    other->count = 0;
    HARK_TRY(hark_normal_form(work->context, false, false, (hark_span){out->data, out->count}, &work->codes, other));
    out->count = 0;
    HARK_TRY(keep(work, (hark_span){other->data, other->count}, hark_is_nonspacing_mark, out, cut));
  }
  if (!state->lower) return HARK_OK;
  other->count = 0;
  HARK_TRY(hark_lower_case(work->context, (hark_span){out->data, out->count}, other));
  take(out, other);
  return HARK_OK;
}
static const hark_component_kind kind_bert = {.type = "BertNormalizer",
                                              .members = "clean_text|handle_chinese_chars|strip_accents|lowercase",
                                              .state_bytes = sizeof(bert_state),
                                              .needs = HARK_NEEDS_UTF8PROC,
                                              .read = read_bert,
                                              .normalize = normalize_bert};

/* ---- Strip ---- */

typedef struct strip_state {
  bool left, right;
} strip_state;

static hark_status read_strip(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  strip_state *const state = memory;
  *state = (strip_state){true, true};
  HARK_TRY(hark_component_boolean(reader, node, "strip_left", &state->left));
  return hark_component_boolean(reader, node, "strip_right", &state->right);
}

static hark_status strip(const void *memory, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  const strip_state *const state = memory;
  size_t begin = 0, end = 0, length;
  while (state->left && begin < in.bytes && hark_is_white(hark_character(in.text + begin, &length))) begin += length;
  end = state->right ? begin : in.bytes;
  for (size_t at = begin; state->right && at < in.bytes; at += length)
    if (!hark_is_white(hark_character(in.text + at, &length))) end = at + length;
  if (begin > 0) *cut = true;
  return hark_bytes_add(work->context, out, in.text + begin, end - begin);
}
static const hark_component_kind kind_strip = {
    .type = "Strip", .members = "strip_left|strip_right", .state_bytes = sizeof(strip_state), .read = read_strip, .normalize = strip};

/* ---- Replace, Prepend ---- */

static hark_status replace(const void *memory, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  const hark_replacement *const state = memory;
  hark_finder f = {.after = HARK_NO_MATCH};
  size_t from = 0;
  for (bool found = true; in.bytes > 0; from = f.end) {
    HARK_TRY(hark_pattern_next(work, &state->pattern, in, &f, &found));
    if (!found) break;
    if (f.end > 0 && f.begin == 0 && state->content.count == 0) *cut = true;
    HARK_TRY(hark_bytes_add(work->context, out, in.text + from, f.begin - from));
    HARK_TRY(hark_bytes_add(work->context, out, state->content.data, state->content.count));
  }
  return hark_bytes_add(work->context, out, in.text + from, in.bytes - from);
}
static const hark_component_kind kind_replace = {.type = "Replace",
                                                 .members = "pattern|content",
                                                 .state_bytes = sizeof(hark_replacement),
                                                 .read = hark_replacement_read,
                                                 .close = hark_replacement_close,
                                                 .normalize = replace};

static hark_status read_prepend(hark_component_reader *reader, const hark_json_node *node, void *state) {
  return hark_component_needed_text(reader, node, "prepend", state);
}
static void close_prepend(hark_context *context, void *state) { HARK_FREE_LIST(context, (hark_bytes *)state); }

static hark_status prepend(const void *memory, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  const hark_bytes *const text = memory;
  (void)cut;
  if (in.bytes > 0) HARK_TRY(hark_bytes_add(work->context, out, text->data, text->count));
  return hark_bytes_add(work->context, out, in.text, in.bytes);
}
static const hark_component_kind kind_prepend = {.type = "Prepend",
                                                 .members = "prepend",
                                                 .state_bytes = sizeof(hark_bytes),
                                                 .read = read_prepend,
                                                 .close = close_prepend,
                                                 .normalize = prepend};

/* ---- Nmt: what SentencePiece's rule "nmt" leaves out and makes spaces ---- */

static bool is_dropped_by_nmt(uint32_t code) {
  return (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F || code == 0x8F || code == 0x9F;
}
static bool is_space_of_nmt(uint32_t code) {
  return code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 || (code >= 0x200B && code <= 0x200F) ||
         code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
}
static hark_status nmt(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state;
  HARK_TRY(HARK_RESERVE(work->context, out, in.bytes));
  for (size_t at = 0, length; at < in.bytes; at += length) {
    const uint32_t code = hark_character(in.text + at, &length);
    if (is_dropped_by_nmt(code)) {
      if (out->count == 0) *cut = true;
    } else if (is_space_of_nmt(code)) {
      out->data[out->count++] = ' ';
    } else {
      memcpy(out->data + out->count, in.text + at, length);
      out->count += length;
    }
  }
  return HARK_OK;
}
static const hark_component_kind kind_nmt = {.type = "Nmt", .normalize = nmt};

/* ---- ByteLevel ---- */

static hark_status byte_level(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)state, (void)cut;
  HARK_TRY(HARK_RESERVE(work->context, out, 2 * in.bytes));
  for (size_t i = 0; i < in.bytes; i++)
    out->count += hark_utf8_encode(hark_byte_character((unsigned char)in.text[i]), out->data + out->count);
  return HARK_OK;
}
static const hark_component_kind kind_byte_level = {.type = "ByteLevel", .normalize = byte_level};

/* ---- Precompiled: SentencePiece's map of texts to texts (charsmap.h), applied as the tokenizers library does ---- */

static hark_status read_precompiled(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  hark_bytes text = {0};
  hark_status status = hark_component_needed_text(reader, node, "precompiled_charsmap", &text);
  if (status == HARK_OK)
    status = hark_component_at(reader, "precompiled_charsmap",
                               hark_charsmap_read_base64(reader->context, (hark_span){text.data, text.count}, memory));
  HARK_FREE_LIST(reader->context, &text);
  return status;
}
static void close_precompiled(hark_context *context, void *state) { hark_charsmap_close(context, state); }

/* A cluster of fewer than 6 bytes is replaced as a whole by what belongs to the shortest text of the map with which it begins. */
#define WHOLE_CLUSTER_BYTES 6

static hark_status precompiled_cluster(const hark_charsmap *map, hark_pipeline_work *work, hark_span cluster, hark_bytes *out) {
  hark_span with;
  if (cluster.bytes < WHOLE_CLUSTER_BYTES && hark_charsmap_shortest(map, cluster, &with))
    return hark_bytes_add(work->context, out, with.text, with.bytes);
  for (size_t at = 0, length; at < cluster.bytes; at += length) {
    length = hark_character_bytes(cluster.text + at);
    const hark_span one = {cluster.text + at, length};
    HARK_TRY(hark_charsmap_shortest(map, one, &with) ? hark_bytes_add(work->context, out, with.text, with.bytes)
                                                     : hark_bytes_add(work->context, out, one.text, one.bytes));
  }
  return HARK_OK;
}

/* The library counts what is removed at the beginning to the character after it: nothing is cut. */
static hark_status precompiled(const void *state, hark_pipeline_work *work, hark_span in, hark_bytes *out, bool *cut) {
  (void)cut;
  for (size_t at = 0, length; at < in.bytes; at += length) {
    length = hark_grapheme_bytes((hark_span){in.text + at, in.bytes - at});
    HARK_TRY(precompiled_cluster(state, work, (hark_span){in.text + at, length}, out));
  }
  return HARK_OK;
}
static const hark_component_kind kind_precompiled = {.type = "Precompiled",
                                                     .members = "precompiled_charsmap",
                                                     .state_bytes = sizeof(hark_charsmap),
                                                     .needs = HARK_NEEDS_UTF8PROC,
                                                     .read = read_precompiled,
                                                     .close = close_precompiled,
                                                     .normalize = precompiled};

static const hark_component_kind *const kinds[] = {
    &kind_bert, &kind_byte_level,  &kind_lower_case, &kind_nfc,     &kind_nfd,   &kind_nfkc,          &kind_nfkd,
    &kind_nmt,  &kind_precompiled, &kind_prepend,    &kind_replace, &kind_strip, &kind_strip_accents, NULL};
const hark_component_table hark_normalizers = {kinds, "normalizers"};
