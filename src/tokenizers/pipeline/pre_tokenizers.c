/* pre_tokenizers.c - the table of pre-tokenizers: how a normalized text is divided before the model sees it.
 *
 * Dividing has two steps: the text becomes matches of a pattern and what is between them, and a behaviour says which of these parts are
 * joined or left out. Parts go to the next pre-tokenizer one by one (hark_pipeline_pass()).
 */
#include "tokenizers/pipeline/component.h"

typedef enum behaviour { REMOVED, ISOLATED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS } behaviour;
#define BEHAVIOUR_WORDS "Removed|Isolated|MergedWithPrevious|MergedWithNext|Contiguous"

/* ---- joining ---- */

static hark_status add_match(hark_pipeline_work *work, hark_matches *list, size_t begin, size_t end, bool is_match) {
  HARK_TRY(HARK_RESERVE(work->context, list, 1));
  list->data[list->count++] = (hark_match){(uint32_t)begin, (uint32_t)end, is_match};
  return HARK_OK;
}

static void join_contiguous(hark_matches *list) {
  size_t made = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (made > 0 && list->data[made - 1].is_match == list->data[i].is_match) {
      list->data[made - 1].end = list->data[i].end;
    } else {
      list->data[made++] = list->data[i];
    }
  }
  list->count = made;
}

/* A match joins the part before it, unless the match before has. */
static void join_previous(hark_matches *list) {
  size_t made = 0;
  bool previous = false;
  for (size_t i = 0; i < list->count; i++) {
    const hark_match part = list->data[i];
    if (part.is_match && !previous && made > 0) {
      list->data[made - 1].end = part.end;
    } else {
      list->data[made++] = part;
    }
    previous = part.is_match;
  }
  list->count = made;
}

/* A match joins the part after it, unless the match after has. */
static void join_next(hark_matches *list) {
  size_t at = list->count;
  bool next = false;
  for (size_t i = list->count; i-- > 0;) {
    const hark_match part = list->data[i];
    if (part.is_match && !next && at < list->count) {
      list->data[at].begin = part.begin;
    } else {
      list->data[--at] = part;
    }
    next = part.is_match;
  }
  memmove(list->data, list->data + at, (list->count - at) * sizeof *list->data);
  list->count -= at;
}

/* Passes the parts of work->stage[stage].matches on. */
static hark_status pass_parts(hark_pipeline_work *work, size_t stage, behaviour how, hark_span in, bool first) {
  hark_matches *const list = &work->stage[stage].matches;
  if (list->count == 0) return HARK_OK;
  if (how == CONTIGUOUS) join_contiguous(list);
  if (how == MERGED_WITH_PREVIOUS) join_previous(list);
  if (how == MERGED_WITH_NEXT) join_next(list);
  for (size_t i = 0; i < list->count; i++) {
    const hark_match part = list->data[i];
    if (how == REMOVED && part.is_match) continue;
    HARK_TRY(hark_pipeline_pass(work, stage, (hark_span){in.text + part.begin, part.end - part.begin}, first && part.begin == 0));
  }
  return HARK_OK;
}

/* Divides at characters with a property: each is a match. */
static hark_status split_characters(hark_pipeline_work *work, size_t stage, bool (*is)(uint32_t), behaviour how, hark_span in, bool first) {
  hark_matches *const list = &work->stage[stage].matches;
  size_t from = 0;
  list->count = 0;
  for (size_t at = 0, length; at < in.bytes; at += length) {
    if (!is(hark_character(in.text + at, &length))) continue;
    if (at > from) HARK_TRY(add_match(work, list, from, at, false));
    HARK_TRY(add_match(work, list, at, at + length, true));
    from = at + length;
  }
  if (from < in.bytes) HARK_TRY(add_match(work, list, from, in.bytes, false));
  return pass_parts(work, stage, how, in, first);
}

/* Divides at the matches of a pattern; inverted: what is between them counts as the matches. */
static hark_status split_pattern(hark_pipeline_work *work, size_t stage, const hark_pattern *pattern, bool invert, behaviour how,
                                 hark_span in, bool first) {
  hark_matches *const list = &work->stage[stage].matches;
  hark_finder f = {.after = HARK_NO_MATCH};
  size_t from = 0;
  list->count = 0;
  for (bool found = true;; from = f.end) {
    HARK_TRY(hark_pattern_next(work, pattern, in, &f, &found));
    if (!found) break;
    if (f.begin > from) HARK_TRY(add_match(work, list, from, f.begin, invert));
    HARK_TRY(add_match(work, list, f.begin, f.end, !invert)); /* an empty match divides too */
  }
  if (from < in.bytes) HARK_TRY(add_match(work, list, from, in.bytes, invert));
  return pass_parts(work, stage, how, in, first);
}

/* ---- white space ---- */

static hark_status white_space_split(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  (void)state;
  return split_characters(work, stage, hark_is_white, REMOVED, in, first);
}
static const hark_component_kind kind_white_space_split = {.type = "WhitespaceSplit", .split = white_space_split};

/* \w+|[^\w\s]+ */
static int word_class(uint32_t code) { return hark_is_white(code) ? 0 : hark_is_word(code) ? 1 : 2; }
static hark_status white_space(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  (void)state;
  for (size_t at = 0, length; at < in.bytes;) {
    const size_t begin = at;
    const int class = word_class(hark_character(in.text + at, &length));
    for (at += length; at < in.bytes && word_class(hark_character(in.text + at, &length)) == class;) at += length;
    if (class != 0) HARK_TRY(hark_pipeline_pass(work, stage, (hark_span){in.text + begin, at - begin}, first && begin == 0));
  }
  return HARK_OK;
}
static const hark_component_kind kind_white_space = {.type = "Whitespace", .needs = HARK_NEEDS_UTF8PROC, .split = white_space};

/* ---- Bert: white space is left out, punctuation is apart ---- */

static hark_status bert(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  size_t begin = 0;
  (void)state;
  for (size_t at = 0, length; at < in.bytes; at += length) {
    const uint32_t code = hark_character(in.text + at, &length);
    const bool white = hark_is_white(code);
    if (!white && !hark_is_punctuation(code)) continue;
    HARK_TRY(hark_pipeline_pass(work, stage, (hark_span){in.text + begin, at - begin}, first && begin == 0));
    if (!white) HARK_TRY(hark_pipeline_pass(work, stage, (hark_span){in.text + at, length}, first && at == 0));
    begin = at + length;
  }
  return hark_pipeline_pass(work, stage, (hark_span){in.text + begin, in.bytes - begin}, first && begin == 0);
}
static const hark_component_kind kind_bert = {.type = "BertPreTokenizer", .needs = HARK_NEEDS_UTF8PROC, .split = bert};

/* ---- Punctuation, Digits, CharDelimiterSplit ---- */

static hark_status read_punctuation(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  int *const how = memory;
  *how = ISOLATED;
  return hark_component_word(reader, node, "behavior", BEHAVIOUR_WORDS, how);
}
static hark_status punctuation(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  return split_characters(work, stage, hark_is_punctuation, (behaviour) * (const int *)state, in, first);
}
static const hark_component_kind kind_punctuation = {.type = "Punctuation",
                                                     .members = "behavior",
                                                     .state_bytes = sizeof(int),
                                                     .needs = HARK_NEEDS_UTF8PROC,
                                                     .read = read_punctuation,
                                                     .split = punctuation};

static hark_status read_digits(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  return hark_component_boolean(reader, node, "individual_digits", memory);
}
static hark_status digits(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  return split_characters(work, stage, hark_is_numeric, *(const bool *)state ? ISOLATED : CONTIGUOUS, in, first);
}
static const hark_component_kind kind_digits = {.type = "Digits",
                                                .members = "individual_digits",
                                                .state_bytes = sizeof(bool),
                                                .needs = HARK_NEEDS_UTF8PROC,
                                                .read = read_digits,
                                                .split = digits};

static hark_status read_delimiter(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  hark_pattern *const pattern = memory;
  HARK_TRY(hark_component_needed_text(reader, node, "delimiter", &pattern->text));
  if (pattern->text.count == 0 || hark_character_bytes(pattern->text.data) != pattern->text.count)
    return hark_component_fail(reader, "delimiter", "expected one character");
  return HARK_OK;
}
static void close_pattern(hark_context *context, void *state) { hark_pattern_close(context, state); }
static hark_status delimiter(const void *state, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  return split_pattern(work, stage, state, false, REMOVED, in, first);
}
static const hark_component_kind kind_delimiter = {.type = "CharDelimiterSplit",
                                                   .members = "delimiter",
                                                   .state_bytes = sizeof(hark_pattern),
                                                   .read = read_delimiter,
                                                   .close = close_pattern,
                                                   .split = delimiter};

/* ---- Split ---- */

typedef struct split_state {
  hark_pattern pattern;
  int how;
  bool invert;
} split_state;

static hark_status read_split(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  split_state *const state = memory;
  if (!hark_json_is(hark_json_member(node, "behavior"), HARK_JSON_TEXT)) return hark_component_fail(reader, "behavior", "missing");
  HARK_TRY(hark_component_word(reader, node, "behavior", BEHAVIOUR_WORDS, &state->how));
  HARK_TRY(hark_component_boolean(reader, node, "invert", &state->invert));
  return hark_pattern_read(reader, node, "pattern", &state->pattern);
}
static void close_split(hark_context *context, void *memory) { hark_pattern_close(context, &((split_state *)memory)->pattern); }
static hark_status split(const void *memory, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  const split_state *const state = memory;
  return split_pattern(work, stage, &state->pattern, state->invert, (behaviour)state->how, in, first);
}
static const hark_component_kind kind_split = {.type = "Split",
                                               .members = "pattern|behavior|invert",
                                               .state_bytes = sizeof(split_state),
                                               .read = read_split,
                                               .close = close_split,
                                               .split = split};

/* ---- ByteLevel: words by GPT-2's expression, bytes as characters ---- */

/* Radford et al., "Language Models are Unsupervised Multitask Learners" (2019). */
static const char gpt2_words[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct byte_level_state {
  bool prefix_space, words;
  hark_pattern pattern;
} byte_level_state;

static hark_status read_byte_level(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  byte_level_state *const state = memory;
  *state = (byte_level_state){.prefix_space = true, .words = true};
  HARK_TRY(hark_component_boolean(reader, node, "add_prefix_space", &state->prefix_space));
  HARK_TRY(hark_component_boolean(reader, node, "use_regex", &state->words));
  if (!state->words) return HARK_OK;
  if (!hark_regex_available)
    return hark_fail(reader->context, HARK_UNSUPPORTED,
                     "%s: %s.type 'ByteLevel' with use_regex needs PCRE2, and this hark was built without it (HARK_WITH_PCRE2)",
                     reader->name, reader->place);
  return hark_component_at(reader, NULL, hark_regex_compile(reader->context, gpt2_words, sizeof gpt2_words - 1, &state->pattern.regex));
}
static void close_byte_level(hark_context *context, void *memory) { hark_pattern_close(context, &((byte_level_state *)memory)->pattern); }

static void put_byte_characters(hark_span text, hark_bytes *out) {
  for (size_t i = 0; i < text.bytes; i++) {
    const unsigned char byte = (unsigned char)text.text[i];
    if (byte > ' ' && byte < 0x7F) {
      out->data[out->count++] = (char)byte;
    } else {
      out->count += hark_utf8_encode(hark_byte_character(byte), out->data + out->count);
    }
  }
}

static hark_status byte_level(const void *memory, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  const byte_level_state *const state = memory;
  hark_bytes *const text = &work->stage[stage].text;
  const size_t prefix = state->prefix_space && in.text[0] != ' ';
  text->count = 0;
  HARK_TRY(HARK_RESERVE(work->context, text, 3 * (in.bytes + prefix))); /* the text, and its bytes as characters of two bytes */
  if (prefix > 0) {
    text->data[0] = ' ';
    memcpy(text->data + 1, in.text, in.bytes);
    text->count = in.bytes + 1;
    in = (hark_span){text->data, text->count};
  }
  hark_finder f = {.after = HARK_NO_MATCH};
  for (size_t begin = 0, end; begin < in.bytes; begin = end) {
    bool found = state->words; /* every character is in a match: parts are matches, or all is one part */
    if (found) HARK_TRY(hark_pattern_next(work, &state->pattern, in, &f, &found));
    end = found ? f.end : in.bytes;
    const size_t from = text->count;
    put_byte_characters((hark_span){in.text + begin, end - begin}, text);
    HARK_TRY(hark_pipeline_pass(work, stage, (hark_span){text->data + from, text->count - from}, first && begin == 0));
  }
  return HARK_OK;
}
static const hark_component_kind kind_byte_level = {.type = "ByteLevel",
                                                    .members = "add_prefix_space|trim_offsets|use_regex",
                                                    .state_bytes = sizeof(byte_level_state),
                                                    .read = read_byte_level,
                                                    .close = close_byte_level,
                                                    .split = byte_level};

/* ---- Metaspace: spaces as a visible character, which begins words ---- */

typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

typedef struct metaspace_state {
  hark_pattern mark;
  int scheme;
  bool split;
} metaspace_state;

static hark_status read_metaspace(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  metaspace_state *const state = memory;
  bool prefix = true;
  state->split = true;
  HARK_TRY(hark_component_needed_text(reader, node, "replacement", &state->mark.text));
  if (state->mark.text.count == 0 || hark_character_bytes(state->mark.text.data) != state->mark.text.count)
    return hark_component_fail(reader, "replacement", "expected one character");
  HARK_TRY(hark_component_boolean(reader, node, "split", &state->split));
  HARK_TRY(hark_component_boolean(reader, node, "add_prefix_space", &prefix)); /* of older files */
  state->scheme = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
  return hark_component_word(reader, node, "prepend_scheme", "always|first|never", &state->scheme);
}
static void close_metaspace(hark_context *context, void *memory) { hark_pattern_close(context, &((metaspace_state *)memory)->mark); }

static bool begins_with(hark_span text, const hark_bytes *mark) {
  return text.bytes >= mark->count && memcmp(text.text, mark->data, mark->count) == 0;
}

static hark_status metaspace(const void *memory, hark_pipeline_work *work, size_t stage, hark_span in, bool first) {
  const metaspace_state *const state = memory;
  const hark_bytes *const mark = &state->mark.text;
  hark_bytes *const text = &work->stage[stage].text;
  const bool may = state->scheme == PREPEND_ALWAYS || (state->scheme == PREPEND_FIRST && first);
  text->count = 0;
  HARK_TRY(HARK_RESERVE(work->context, text, (in.bytes + 1) * HARK_UTF8_MAX_BYTES));
  if (may && in.text[0] != ' ' && !begins_with(in, mark)) HARK_TRY(hark_bytes_add(work->context, text, mark->data, mark->count));
  for (size_t i = 0; i < in.bytes; i++) {
    if (in.text[i] == ' ') {
      memcpy(text->data + text->count, mark->data, mark->count);
      text->count += mark->count;
    } else {
      text->data[text->count++] = in.text[i];
    }
  }
  const hark_span marked = {text->data, text->count};
  return state->split ? split_pattern(work, stage, &state->mark, false, MERGED_WITH_NEXT, marked, first)
                      : hark_pipeline_pass(work, stage, marked, first);
}
static const hark_component_kind kind_metaspace = {.type = "Metaspace",
                                                   .members = "replacement|str_rep|add_prefix_space|prepend_scheme|split",
                                                   .state_bytes = sizeof(metaspace_state),
                                                   .read = read_metaspace,
                                                   .close = close_metaspace,
                                                   .split = metaspace};

static const hark_component_kind *const kinds[] = {
    &kind_bert,  &kind_byte_level,  &kind_delimiter,         &kind_digits, &kind_metaspace, &kind_punctuation,
    &kind_split, &kind_white_space, &kind_white_space_split, NULL};
const hark_component_table hark_pre_tokenizers = {kinds, "pretokenizers"};
