/* model_unigram.c - the likeliest division of a text into pieces of given probabilities (Kudo, arXiv 1804.10959), by Viterbi's algorithm:
 *
 *     best(0) = 0,   best(e) = max over pieces p that end at e: best(e - |p|) + score(p)
 *
 * A character that is no piece counts as unknown, with a score 10 below the lowest. Of equal sums the first one counts, from the shortest
 * beginning on. Cost O(bytes x longest piece). Scores and sums are doubles as in the tokenizers library, or floats as in SentencePiece.
 */
#include <math.h>

#include "tokenizers/pipeline/models.h"
#include "tokenizers/unknown_penalty.h"

typedef struct unigram_state {
  hark_trie trie;
  double *score; /* [count] */
  size_t count;
  double unknown_score;
  int32_t byte[256];
  int32_t unknown; /* -1: none */
  bool byte_fallback, single;
} unigram_state;

static void close_unigram(hark_context *context, void *memory) {
  unigram_state *const state = memory;
  hark_trie_close(context, &state->trie);
  hark_release(context, state->score, state->count * sizeof *state->score);
}

hark_status hark_unigram_fill(hark_context *context, const hark_pipeline *pipeline, void *memory, const double *scores, double lowest,
                              bool byte_fallback, int32_t unknown, bool single) {
  unigram_state *const state = memory;
  const hark_token_table *const table = &pipeline->vocabulary;
  HARK_TRY(hark_allocate(context, (size_t)table->size * sizeof *scores, (void **)&state->score));
  state->count = (size_t)table->size;
  HARK_TRY(hark_trie_open(context, &state->trie, table->text.count));
  for (int32_t id = 0; id < table->size; id++) {
    state->score[id] = scores[id];
    if (isnan(scores[id])) continue;
    const bool last = hark_token_find(table, table->token[id].text, table->token[id].bytes) == id; /* of equal texts the last one counts */
    if (table->token[id].bytes > 0 && last) hark_trie_add(&state->trie, table->token[id].text, table->token[id].bytes, id);
  }
  hark_byte_tokens(table, state->byte);
  state->unknown_score = lowest - (double)HARK_UNKNOWN_PENALTY;
  state->unknown = unknown;
  state->byte_fallback = byte_fallback;
  state->single = single;
  return HARK_OK;
}

/* ---- reading ---- */

/* One entry: ["piece", score]. */
static bool entry_of(const hark_json_node *item, hark_span *text, double *score) {
  if (item->kind != HARK_JSON_LIST || item->count != 2 || item->first->kind != HARK_JSON_TEXT) return false;
  const hark_json_node *const number = item->first->next;
  if (number->kind != HARK_JSON_REAL && number->kind != HARK_JSON_INTEGER) return false;
  *text = (hark_span){item->first->text, item->first->bytes};
  *score = number->kind == HARK_JSON_REAL ? number->quick : (double)number->integer;
  return true;
}

static hark_status read_entries(const hark_component_reader *reader, const hark_json_node *list, double *scores) {
  hark_token_table *const table = &reader->pipeline->vocabulary;
  size_t bytes = 0;
  int32_t id = 0;
  hark_span text;
  for (const hark_json_node *item = list->first; item != NULL; item = item->next, id++) {
    if (!entry_of(item, &text, &scores[id])) return hark_component_fail(reader, "vocab", "entry %d: expected a text and a number", (int)id);
    bytes += text.bytes;
  }
  HARK_TRY(hark_component_at(reader, "vocab", hark_token_table_open(reader->context, table, list->count, list->count, bytes)));
  id = 0;
  for (const hark_json_node *item = list->first; item != NULL; item = item->next, id++)
    hark_token_table_add(table, item->first->text, item->first->bytes, id);
  return HARK_OK;
}

static double lowest_of(const double *scores, int64_t count) {
  double lowest = count > 0 ? scores[0] : 0;
  for (int64_t i = 1; i < count; i++) lowest = scores[i] < lowest ? scores[i] : lowest;
  return lowest;
}

static hark_status read_unigram(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  const hark_json_node *const list = hark_json_member(node, "vocab");
  int64_t unknown = -1;
  bool byte_fallback = false;
  double *scores = NULL;
  if (!hark_json_is(list, HARK_JSON_LIST)) return hark_component_fail(reader, "vocab", "expected a list");
  HARK_TRY(hark_component_integer(reader, node, "unk_id", 0, list->count - 1, &unknown));
  HARK_TRY(hark_component_boolean(reader, node, "byte_fallback", &byte_fallback));
  const size_t bytes = (size_t)list->count * sizeof *scores;
  HARK_TRY(hark_allocate(reader->context, bytes, (void **)&scores));
  hark_status status = read_entries(reader, list, scores);
  if (status == HARK_OK)
    status = hark_component_at(reader, "vocab",
                               hark_unigram_fill(reader->context, reader->pipeline, memory, scores, lowest_of(scores, list->count),
                                                 byte_fallback, (int32_t)unknown, false));
  hark_release(reader->context, scores, bytes);
  return status;
}

/* ---- the best path ---- */

static inline void offer(hark_best_path *target, double score, int32_t id, size_t from) {
  if (target->from >= 0 && !(score > target->score)) return;
  *target = (hark_best_path){score, id, (int32_t)from};
}

/* SentencePiece adds floats. */
static inline double sum(const unigram_state *state, double a, double b) { return state->single ? (double)((float)a + (float)b) : a + b; }

static void search(const unigram_state *state, hark_span in, hark_best_path *best) {
  best[0] = (hark_best_path){0, -1, 0};
  for (size_t i = 1; i <= in.bytes; i++) best[i].from = -1;
  for (size_t at = 0, length; at < in.bytes; at += length) {
    const double here = best[at].score;
    bool single = false;
    uint32_t node = HARK_TRIE_ROOT;
    length = hark_character_bytes(in.text + at);
    for (size_t end = at; end < in.bytes; end++) {
      node = hark_trie_step(&state->trie, node, in.text[end]);
      if (node == HARK_TRIE_NONE) break;
      const int32_t id = state->trie.value[node];
      if (id < 0) continue;
      offer(&best[end + 1], sum(state, state->score[id], here), id, at);
      if (end + 1 == at + length) single = true;
    }
    if (!single) offer(&best[at + length], sum(state, state->unknown_score, here), state->unknown, at);
  }
}

/* A text that is not divided further: unknown characters together. */
static hark_status put_unknown(const unigram_state *state, hark_pipeline_work *work, hark_span text) {
  const int32_t found = state->single ? -1 : hark_token_find(&work->pipeline->vocabulary, text.text, text.bytes);
  if (found >= 0) return hark_ids_add(work->context, &work->ids, found);
  bool all = state->byte_fallback;
  for (size_t i = 0; i < text.bytes && all; i++) all = state->byte[(unsigned char)text.text[i]] >= 0;
  for (size_t i = 0; i < text.bytes && all; i++)
    HARK_TRY(hark_ids_add(work->context, &work->ids, state->byte[(unsigned char)text.text[i]]));
  if (all) return HARK_OK;
  if (state->unknown >= 0) return hark_ids_add(work->context, &work->ids, state->unknown);
  return hark_model_fail_unknown(work, text, "unk_id");
}

/* The path from its end, as pairs of a token and an end in work->codes. */
static hark_status trace(hark_pipeline_work *work, const hark_best_path *best, size_t end) {
  hark_ids *const path = &work->codes;
  path->count = 0;
  HARK_TRY(HARK_RESERVE(work->context, path, 2 * end));
  for (; end > 0; end = (size_t)best[end].from) {
    path->data[path->count++] = best[end].id;
    path->data[path->count++] = (int32_t)end;
  }
  return HARK_OK;
}

static hark_status unigram(const void *memory, hark_pipeline_work *work, hark_span in) {
  const unigram_state *const state = memory;
  const hark_ids *const path = &work->codes;
  work->paths.count = 0;
  HARK_TRY(HARK_RESERVE(work->context, &work->paths, in.bytes + 1));
  search(state, in, work->paths.data);
  HARK_TRY(trace(work, work->paths.data, in.bytes));
  for (size_t i = path->count, from = 0; i > 0; i -= 2) {
    const int32_t id = path->data[i - 2];
    const size_t end = (size_t)path->data[i - 1];
    if (id == state->unknown && i > 2 && path->data[i - 4] == id) continue; /* joins the next one */
    HARK_TRY(id == state->unknown ? put_unknown(state, work, (hark_span){in.text + from, end - from})
                                  : hark_ids_add(work->context, &work->ids, id));
    from = end;
  }
  return HARK_OK;
}

const hark_component_kind hark_model_unigram = {.type = "Unigram",
                                                .members = "unk_id|byte_fallback|vocab",
                                                .state_bytes = sizeof(unigram_state),
                                                .read = read_unigram,
                                                .close = close_unigram,
                                                .tokenize = unigram};
