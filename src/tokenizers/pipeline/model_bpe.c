/* model_bpe.c - byte pair encoding (Sennrich et al., arXiv 1508.07909; Gage 1994): of all adjacent pairs of symbols that are a merge, the
 * one of lowest rank, and of those the leftmost, becomes one symbol, until none is left.
 *
 * Short words look for the lowest rank among all pairs at each step, O(n^2) comparisons without memory; long ones keep pairs in a heap,
 * O(n log n). Pairs are found in a table by their two symbols.
 */
#include "tokenizers/pipeline/models.h"

#define SHORT_SYMBOLS 64
#define NO_RANK UINT32_MAX
#define NO_PAIR UINT64_MAX
#define PAGE_CODES 256
#define PAGES (HARK_CODE_POINTS / PAGE_CODES)

typedef struct pair_slot {
  uint64_t pair; /* left << 32 | right; NO_PAIR: empty */
  uint32_t rank;
  int32_t id;
} pair_slot;

typedef struct bpe_state {
  pair_slot *slot; /* [slots], a power of two */
  size_t slots;
  int32_t *page[PAGES]; /* tokens of one character, by code point; made where there are any */
  int32_t byte[256];    /* tokens of bytes; -1 */
  hark_bytes prefix, suffix;
  int32_t unknown;    /* -1: none */
  bool names_unknown; /* a token that the vocabulary lacks: an unknown character is an error, and not left out */
  bool fuse, byte_fallback, whole_words, plain;
} bpe_state;

static void close_bpe(hark_context *context, void *memory) {
  bpe_state *const state = memory;
  hark_release(context, state->slot, state->slots * sizeof *state->slot);
  for (int i = 0; i < PAGES; i++) hark_release(context, state->page[i], PAGE_CODES * sizeof(int32_t));
  HARK_FREE_LIST(context, &state->prefix);
  HARK_FREE_LIST(context, &state->suffix);
}

/* ---- the table of merges ---- */

static inline size_t first_slot(const bpe_state *state, uint64_t pair) {
  return (size_t)((pair * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (state->slots - 1);
}

static inline const pair_slot *find_pair(const bpe_state *state, int32_t left, int32_t right) {
  const uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  for (size_t i = first_slot(state, pair);; i = (i + 1) & (state->slots - 1)) {
    if (state->slot[i].pair == pair) return &state->slot[i];
    if (state->slot[i].pair == NO_PAIR) return NULL;
  }
}

static inline uint32_t rank_of(const bpe_state *state, int32_t left, int32_t right, int32_t *id) {
  const pair_slot *const found = find_pair(state, left, right);
  if (found == NULL) return NO_RANK;
  *id = found->id;
  return found->rank;
}

static hark_status open_merges(hark_context *context, bpe_state *state, size_t count) {
  state->slots = 16;
  while (state->slots < 2 * count) state->slots *= 2;
  HARK_TRY(hark_allocate(context, state->slots * sizeof *state->slot, (void **)&state->slot));
  for (size_t i = 0; i < state->slots; i++) state->slot[i].pair = NO_PAIR;
  return HARK_OK;
}

/* Of equal pairs the last one counts. */
static void add_merge(bpe_state *state, hark_bpe_merge merge) {
  const uint64_t pair = (uint64_t)(uint32_t)merge.left << 32 | (uint32_t)merge.right;
  size_t i = first_slot(state, pair);
  while (state->slot[i].pair != NO_PAIR && state->slot[i].pair != pair) i = (i + 1) & (state->slots - 1);
  state->slot[i] = (pair_slot){pair, (uint32_t)merge.rank, merge.id};
}

/* ---- tokens of one character ---- */

static hark_status add_character(hark_context *context, bpe_state *state, uint32_t code, int32_t id) {
  int32_t **const page = &state->page[code / PAGE_CODES];
  if (*page == NULL) {
    HARK_TRY(hark_allocate(context, PAGE_CODES * sizeof **page, (void **)page));
    for (int i = 0; i < PAGE_CODES; i++) (*page)[i] = -1;
  }
  (*page)[code % PAGE_CODES] = id;
  return HARK_OK;
}

static hark_status fill_characters(hark_context *context, const hark_pipeline *pipeline, bpe_state *state) {
  size_t length;
  for (int32_t id = 0; id < pipeline->vocabulary.size; id++) {
    const hark_span text = pipeline->vocabulary.token[id];
    if (text.bytes == 0 || hark_character_bytes(text.text) != text.bytes) continue;
    if (hark_token_find(&pipeline->vocabulary, text.text, text.bytes) != id) continue; /* a later one has the same text */
    HARK_TRY(add_character(context, state, hark_character(text.text, &length), id));
  }
  hark_byte_tokens(&pipeline->vocabulary, state->byte);
  return HARK_OK;
}

hark_status hark_bpe_fill(hark_context *context, const hark_pipeline *pipeline, void *memory, const hark_bpe_merge *merges, size_t count,
                          bool byte_fallback, int32_t unknown) {
  bpe_state *const state = memory;
  state->byte_fallback = byte_fallback;
  state->unknown = unknown;
  state->fuse = state->plain = true;
  HARK_TRY(open_merges(context, state, count));
  for (size_t i = 0; i < count; i++) add_merge(state, merges[i]);
  return fill_characters(context, pipeline, state);
}

/* ---- reading ---- */

/* "a b" or ["a", "b"]. */
static bool parts_of(const hark_json_node *merge, hark_span part[2]) {
  if (merge->kind == HARK_JSON_TEXT) {
    const char *const space = memchr(merge->text, ' ', merge->bytes);
    if (space == NULL) return false;
    part[0] = (hark_span){merge->text, (size_t)(space - merge->text)};
    part[1] = (hark_span){space + 1, merge->bytes - part[0].bytes - 1};
    return memchr(part[1].text, ' ', part[1].bytes) == NULL;
  }
  if (merge->kind != HARK_JSON_LIST || merge->count != 2 || merge->first->kind != HARK_JSON_TEXT ||
      merge->first->next->kind != HARK_JSON_TEXT)
    return false;
  part[0] = (hark_span){merge->first->text, merge->first->bytes};
  part[1] = (hark_span){merge->first->next->text, merge->first->next->bytes};
  return true;
}

static hark_status needed_token(const hark_component_reader *reader, int64_t index, hark_span text, int32_t *id) {
  *id = hark_token_find(&reader->pipeline->vocabulary, text.text, text.bytes);
  if (*id >= 0) return HARK_OK;
  char shown[HARK_SHOWN_BYTES], copy[HARK_SHOWN_BYTES];
  const size_t bytes = text.bytes < sizeof copy ? text.bytes : sizeof copy - 1;
  memcpy(copy, text.text, bytes);
  copy[bytes] = 0;
  return hark_component_fail(reader, "merges", "merge %lld: '%s' is not in the vocabulary", (long long)index, hark_text_shown(copy, shown));
}

/* The token that a merge makes: the right part loses the prefix of parts that continue a word. */
static hark_status read_merge(const hark_component_reader *reader, const hark_json_node *node, int64_t index, bpe_state *state,
                              hark_bytes *joined) {
  hark_span part[2];
  hark_bpe_merge merge = {.rank = (int32_t)index};
  if (!parts_of(node, part)) return hark_component_fail(reader, "merges", "merge %lld: expected two tokens", (long long)index);
  HARK_TRY(needed_token(reader, index, part[0], &merge.left));
  HARK_TRY(needed_token(reader, index, part[1], &merge.right));
  const size_t prefix = state->prefix.count <= part[1].bytes ? state->prefix.count : part[1].bytes;
  joined->count = 0;
  HARK_TRY(hark_bytes_add(reader->context, joined, part[0].text, part[0].bytes));
  HARK_TRY(hark_bytes_add(reader->context, joined, part[1].text + prefix, part[1].bytes - prefix));
  HARK_TRY(needed_token(reader, index, (hark_span){joined->data, joined->count}, &merge.id));
  add_merge(state, merge);
  return HARK_OK;
}

static hark_status read_merges(const hark_component_reader *reader, const hark_json_node *node, bpe_state *state) {
  const hark_json_node *const list = hark_json_member(node, "merges");
  hark_bytes joined = {0};
  int64_t index = 0;
  hark_status status = HARK_OK;
  if (!hark_json_is(list, HARK_JSON_LIST)) return hark_component_fail(reader, "merges", "expected a list");
  HARK_TRY(open_merges(reader->context, state, (size_t)list->count));
  HARK_TRY(HARK_RESERVE(reader->context, &joined, 1));
  for (const hark_json_node *item = list->first; item != NULL && status == HARK_OK; item = item->next)
    status = read_merge(reader, item, index++, state, &joined);
  HARK_FREE_LIST(reader->context, &joined);
  return status;
}

static hark_status read_bpe(hark_component_reader *reader, const hark_json_node *node, void *memory) {
  bpe_state *const state = memory;
  const hark_json_node *const dropout = hark_json_member(node, "dropout");
  const bool drops = dropout != NULL && dropout->kind != HARK_JSON_NULL && !(dropout->kind == HARK_JSON_INTEGER && dropout->integer == 0) &&
                     !(dropout->kind == HARK_JSON_REAL && dropout->real == 0);
  if (drops) return hark_component_unsupported(reader, "dropout", "other than null");
  HARK_TRY(hark_component_text(reader, node, "continuing_subword_prefix", &state->prefix));
  HARK_TRY(hark_component_text(reader, node, "end_of_word_suffix", &state->suffix));
  HARK_TRY(hark_component_boolean(reader, node, "fuse_unk", &state->fuse));
  HARK_TRY(hark_component_boolean(reader, node, "byte_fallback", &state->byte_fallback));
  HARK_TRY(hark_component_boolean(reader, node, "ignore_merges", &state->whole_words));
  HARK_TRY(hark_model_read_vocabulary(reader, node));
  HARK_TRY(hark_model_read_unknown(reader, node, &state->unknown));
  state->names_unknown = state->unknown < 0 && hark_json_is(hark_json_member(node, "unk_token"), HARK_JSON_TEXT);
  HARK_TRY(read_merges(reader, node, state));
  state->plain = state->prefix.count == 0 && state->suffix.count == 0;
  return fill_characters(reader->context, reader->pipeline, state);
}

/* ---- a word as symbols ---- */

typedef struct symbol_maker {
  const bpe_state *state;
  hark_pipeline_work *work;
  int32_t *symbol;
  size_t count;
  bool pending;      /* an unknown symbol has not been written yet */
  hark_span lacking; /* the first character that is left out; text NULL: none */
} symbol_maker;

/* The token of one character with what is around it; -1: none. The word has room for it (bpe()). */
static int32_t decorated(const symbol_maker *make, hark_span character, bool is_first, bool is_last) {
  const bpe_state *const s = make->state;
  hark_bytes *const word = &make->work->word;
  word->count = 0;
  if (!is_first) (void)hark_bytes_add(make->work->context, word, s->prefix.data, s->prefix.count);
  (void)hark_bytes_add(make->work->context, word, character.text, character.bytes);
  if (is_last) (void)hark_bytes_add(make->work->context, word, s->suffix.data, s->suffix.count);
  return hark_token_find(&make->work->pipeline->vocabulary, word->data, word->count);
}

static inline int32_t find_character(const symbol_maker *make, hark_span character, bool is_first, bool is_last) {
  size_t length;
  if (!make->state->plain) return decorated(make, character, is_first, is_last);
  const uint32_t code = hark_character(character.text, &length);
  const int32_t *const page = make->state->page[code / PAGE_CODES];
  return page != NULL ? page[code % PAGE_CODES] : -1;
}

static void flush_unknown(symbol_maker *make) {
  if (make->pending) make->symbol[make->count++] = make->state->unknown;
  make->pending = false;
}

/* The bytes of a character with its prefix and suffix as tokens, if there is one for each. */
static bool put_bytes(symbol_maker *make, hark_span character) {
  if (!make->state->plain) character = (hark_span){make->work->word.data, make->work->word.count};
  for (size_t i = 0; i < character.bytes; i++)
    if (make->state->byte[(unsigned char)character.text[i]] < 0) return false;
  for (size_t i = 0; i < character.bytes; i++) make->symbol[make->count++] = make->state->byte[(unsigned char)character.text[i]];
  return true;
}

static void put_character(symbol_maker *make, hark_span character, bool is_first, bool is_last) {
  const int32_t id = find_character(make, character, is_first, is_last);
  if (id >= 0) {
    flush_unknown(make);
    make->symbol[make->count++] = id;
    return;
  }
  if (make->state->byte_fallback && put_bytes(make, character)) return;
  if (make->state->unknown < 0) { /* the character is left out */
    if (make->lacking.text == NULL) make->lacking = character;
    return;
  }
  if (!make->state->fuse) flush_unknown(make);
  make->pending = true;
}

static hark_status make_symbols(const bpe_state *state, hark_pipeline_work *work, hark_span in, int32_t *symbol, size_t *count) {
  symbol_maker make = {.state = state, .work = work, .symbol = symbol};
  for (size_t at = 0, length; at < in.bytes; at += length) {
    length = hark_character_bytes(in.text + at);
    put_character(&make, (hark_span){in.text + at, length}, at == 0, at + length == in.bytes);
  }
  flush_unknown(&make);
  *count = make.count;
  return state->names_unknown && make.lacking.text != NULL ? hark_model_fail_unknown(work, make.lacking, "unk_token") : HARK_OK;
}

/* ---- merging ---- */

/* All pairs' ranks, then the lowest again and again. Returns the number of symbols left. */
static size_t merge_short(const bpe_state *state, int32_t *symbol, size_t count) {
  uint32_t rank[SHORT_SYMBOLS];
  int32_t made[SHORT_SYMBOLS];
  for (size_t i = 0; i + 1 < count; i++) rank[i] = rank_of(state, symbol[i], symbol[i + 1], &made[i]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == NO_RANK) break;
    symbol[best] = made[best];
    count--;
    memmove(symbol + best + 1, symbol + best + 2, (count - best - 1) * sizeof *symbol);
    if (count > best + 1) {
      memmove(rank + best, rank + best + 1, (count - best - 1) * sizeof *rank);
      memmove(made + best, made + best + 1, (count - best - 1) * sizeof *made);
      rank[best] = rank_of(state, symbol[best], symbol[best + 1], &made[best]);
    }
    if (best > 0) rank[best - 1] = rank_of(state, symbol[best - 1], symbol[best], &made[best - 1]);
  }
  return count;
}

static hark_status push(hark_pipeline_work *work, uint64_t key) {
  hark_queue *const q = &work->queue;
  HARK_TRY(HARK_RESERVE(work->context, q, 1));
  size_t i = q->count++;
  for (; i > 0 && q->data[(i - 1) / 2] > key; i = (i - 1) / 2) q->data[i] = q->data[(i - 1) / 2];
  q->data[i] = key;
  return HARK_OK;
}

static uint64_t pop(hark_queue *q) {
  const uint64_t least = q->data[0], moved = q->data[--q->count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < q->count; i = child) {
    if (child + 1 < q->count && q->data[child + 1] < q->data[child]) child++;
    if (q->data[child] >= moved) break;
    q->data[i] = q->data[child];
  }
  q->data[i] = moved;
  return least;
}

static hark_status push_pair(const bpe_state *state, hark_pipeline_work *work, int32_t left) {
  const hark_symbol *const s = work->symbols.data;
  int32_t id = -1;
  if (left < 0 || s[left].next < 0) return HARK_OK;
  const uint32_t rank = rank_of(state, s[left].id, s[s[left].next].id, &id);
  return rank == NO_RANK ? HARK_OK : push(work, (uint64_t)rank << 32 | (uint32_t)left);
}

/* Merges the pair at `left` if it still has that rank: an entry may be older than its symbols. */
static hark_status merge_pair(const bpe_state *state, hark_pipeline_work *work, int32_t left, uint32_t rank) {
  hark_symbol *const s = work->symbols.data;
  int32_t id = -1;
  if (s[left].id < 0 || s[left].next < 0) return HARK_OK;
  const int32_t right = s[left].next, after = s[right].next;
  if (rank_of(state, s[left].id, s[right].id, &id) != rank) return HARK_OK;
  s[left].id = id;
  s[left].next = after;
  s[right].id = -1;
  if (after >= 0) s[after].previous = left;
  HARK_TRY(push_pair(state, work, s[left].previous));
  return push_pair(state, work, left);
}

static hark_status merge_long(const bpe_state *state, hark_pipeline_work *work, int32_t *symbol, size_t *count) {
  work->symbols.count = work->queue.count = 0;
  HARK_TRY(HARK_RESERVE(work->context, &work->symbols, *count));
  hark_symbol *const s = work->symbols.data;
  const int32_t last = (int32_t)*count - 1;
  for (int32_t i = 0; i <= last; i++) s[i] = (hark_symbol){symbol[i], i - 1, i < last ? i + 1 : -1};
  for (int32_t i = 0; i < last; i++) HARK_TRY(push_pair(state, work, i));
  while (work->queue.count > 0) {
    const uint64_t key = pop(&work->queue);
    HARK_TRY(merge_pair(state, work, (int32_t)(uint32_t)key, (uint32_t)(key >> 32)));
  }
  *count = 0;
  for (int32_t i = 0; i >= 0; i = s[i].next) symbol[(*count)++] = s[i].id;
  return HARK_OK;
}

static hark_status bpe(const void *memory, hark_pipeline_work *work, hark_span in) {
  const bpe_state *const state = memory;
  if (state->whole_words) {
    const int32_t id = hark_token_find(&work->pipeline->vocabulary, in.text, in.bytes);
    if (id >= 0) return hark_ids_add(work->context, &work->ids, id);
  }
  const size_t around = state->byte_fallback ? state->prefix.count + state->suffix.count : 0; /* of every character, at most */
  if (around > 64) return hark_fail(work->context, HARK_UNSUPPORTED, "prefixes and suffixes of more than 64 bytes");
  HARK_TRY(HARK_RESERVE(work->context, &work->ids, in.bytes * (1 + around)));
  work->word.count = 0;
  HARK_TRY(HARK_RESERVE(work->context, &work->word, state->prefix.count + HARK_UTF8_MAX_BYTES + state->suffix.count));
  int32_t *const symbol = work->ids.data + work->ids.count;
  size_t count = 0;
  HARK_TRY(make_symbols(state, work, in, symbol, &count));
  if (count > SHORT_SYMBOLS)
    HARK_TRY(merge_long(state, work, symbol, &count));
  else
    count = merge_short(state, symbol, count);
  work->ids.count += count;
  return HARK_OK;
}

const hark_component_kind hark_model_bpe = {
    .type = "BPE",
    .members = "dropout|unk_token|continuing_subword_prefix|end_of_word_suffix|fuse_unk|byte_fallback|ignore_merges|vocab|merges",
    .state_bytes = sizeof(bpe_state),
    .read = read_bpe,
    .close = close_bpe,
    .tokenize = bpe};
