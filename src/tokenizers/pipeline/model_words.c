/* model_words.c - models of whole words, and WordPiece: a word is the longest token with which it begins, then the longest token with
 * which the rest begins, and so on (Wu et al., arXiv 1609.08144). Tokens that continue a word have a prefix.
 */
#include "tokenizers/pipeline/models.h"

/* ---- WordLevel ---- */

static hark_status read_words(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  HARK_TRY(hark_model_read_vocabulary(reader, node));
  return hark_model_read_unknown(reader, node, memory);
}

static hark_status words(const void *memory, hark_pipeline_work *work, hark_span in) {
  const int32_t found = hark_token_find(&work->pipeline->vocabulary, in.text, in.bytes), id = found >= 0 ? found : *(const int32_t *)memory;
  return id >= 0 ? hark_ids_add(work->context, &work->ids, id) : hark_model_fail_unknown(work, in, "unk_token");
}

const hark_component_kind hark_model_word_level = {
    .type = "WordLevel", .members = "vocab|unk_token", .state_bytes = sizeof(int32_t), .read = read_words, .tokenize = words};

/* ---- WordPiece ---- */

typedef struct word_piece_state {
  hark_trie trie;     /* of all tokens */
  uint32_t continued; /* the node of the prefix, or HARK_TRIE_NONE */
  hark_bytes prefix;
  int64_t characters; /* longer words are unknown */
  int32_t unknown;
} word_piece_state;

static hark_status fill_trie(hark_component_reader *reader, word_piece_state *state) {
  const hark_token_table *const table = &reader->pipeline->vocabulary;
  HARK_TRY(hark_trie_open(reader->context, &state->trie, table->text.count));
  for (int32_t id = 0; id < table->size; id++)
    if (table->token[id].bytes > 0) hark_trie_add(&state->trie, table->token[id].text, table->token[id].bytes, id);
  state->continued = HARK_TRIE_ROOT;
  for (size_t i = 0; i < state->prefix.count && state->continued != HARK_TRIE_NONE; i++)
    state->continued = hark_trie_step(&state->trie, state->continued, state->prefix.data[i]);
  return HARK_OK;
}

static hark_status read_word_piece(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  word_piece_state *const state = memory;
  state->characters = 100;
  HARK_TRY(hark_bytes_add(reader->context, &state->prefix, "##", 2));
  HARK_TRY(hark_component_text(reader, node, "continuing_subword_prefix", &state->prefix));
  HARK_TRY(hark_component_integer(reader, node, "max_input_chars_per_word", 0, INT64_MAX, &state->characters));
  HARK_TRY(hark_model_read_vocabulary(reader, node));
  HARK_TRY(hark_model_read_unknown(reader, node, &state->unknown));
  return hark_component_at(reader, "vocab", fill_trie(reader, state));
}

static void close_word_piece(hark_context *context, void *memory) {
  word_piece_state *const state = memory;
  hark_trie_close(context, &state->trie);
  HARK_FREE_LIST(context, &state->prefix);
}

static int64_t count_characters(hark_span in) {
  int64_t count = 0;
  for (size_t i = 0; i < in.bytes; i++) count += hark_utf8_is_lead((unsigned char)in.text[i]);
  return count;
}

/* Appends the pieces of a word; false if some part of it is no token. */
static bool divide(const word_piece_state *state, hark_span in, hark_ids *ids) {
  size_t length = 0;
  for (size_t at = 0; at < in.bytes; at += length) {
    const uint32_t node = at == 0 ? HARK_TRIE_ROOT : state->continued;
    const int32_t id = node != HARK_TRIE_NONE ? hark_trie_longest(&state->trie, node, in.text + at, in.bytes - at, &length) : -1;
    if (id < 0) return false;
    ids->data[ids->count++] = id;
  }
  return true;
}

static hark_status word_piece(const void *memory, hark_pipeline_work *work, hark_span in) {
  const word_piece_state *const state = memory;
  const size_t begin = work->ids.count;
  HARK_TRY(HARK_RESERVE(work->context, &work->ids, in.bytes));
  if (count_characters(in) <= state->characters && divide(state, in, &work->ids)) return HARK_OK;
  work->ids.count = begin;
  return state->unknown >= 0 ? hark_ids_add(work->context, &work->ids, state->unknown) : hark_model_fail_unknown(work, in, "unk_token");
}

const hark_component_kind hark_model_word_piece = {.type = "WordPiece",
                                                   .members = "unk_token|continuing_subword_prefix|max_input_chars_per_word|vocab",
                                                   .state_bytes = sizeof(word_piece_state),
                                                   .read = read_word_piece,
                                                   .close = close_word_piece,
                                                   .tokenize = word_piece};
