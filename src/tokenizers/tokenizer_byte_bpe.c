/* tokenizer_byte_bpe.c - byte-level BPE as in GPT-2: pieces of words, merged from bytes.
 *
 *     token    0 .. 4      reserved
 *              5 .. 260    the bytes 0 .. 255
 *              then        one for each merge, in their order
 *
 * Text is divided into words (word_reader.h). In a word the pair of adjacent tokens with the first merge becomes one token, of equal pairs
 * the first, until no pair has a merge. Merges are learned by frequency (merge_training.h); of pairs of equal frequency the one whose left
 * token is first in this order, then the one whose right token is: the bytes in the order of their characters in GPT-2's vocabulary
 * (hark_byte_character()), then the others by number. No two merges make the same text: the symbols of a text between two ends depend on
 * the text alone.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/checksum.h"
#include "tokenizers/merge_training.h"
#include "tokenizers/pair_table.h"
#include "tokenizers/pipeline/component.h"
#include "tokenizers/tokenizer_kind.h"
#include "tokenizers/word_counts.h"
#include "tokenizers/word_reader.h"

#define BYTE_VALUES 256
#define NO_RANK UINT32_MAX
#define FIRST_MERGED (HARK_TOKEN_RESERVED + BYTE_VALUES)

typedef struct merge_list {
  hark_byte_merge *data;
  size_t count, capacity;
} merge_list;

typedef struct byte_bpe_state {
  int64_t vocabulary; /* tokens to learn */
  hark_regex *regex;
  hark_word_counts words; /* while learning */
  hark_word_counts texts; /* of the tokens after the reserved ones, while they are made */
  merge_list merges;
  hark_pair_table ranks; /* of pairs of tokens: indices of merges */
} byte_bpe_state;

static void byte_bpe_close(hark_context *context, hark_tokenizer *tokenizer) {
  byte_bpe_state *state = tokenizer->state;
  hark_word_counts_free(context, &state->words);
  hark_word_counts_free(context, &state->texts);
  HARK_FREE_LIST(context, &state->merges);
  hark_pair_table_close(context, &state->ranks);
  hark_regex_free(state->regex);
  state->regex = NULL;
}

size_t hark_byte_merges_of(const hark_tokenizer *tokenizer, const hark_byte_merge **merges) {
  const byte_bpe_state *state = tokenizer->state;
  *merges = state->merges.data;
  return state->merges.count;
}

static hark_status need_regex(hark_context *context, byte_bpe_state *state) {
  if (state->regex != NULL) return HARK_OK;
  if (!hark_regex_available)
    return hark_fail(context, HARK_UNSUPPORTED,
                     "byte-level BPE divides text by PCRE2, which this hark was built without (HARK_WITH_PCRE2)");
  return hark_regex_compile(context, HARK_WORD_EXPRESSION, sizeof HARK_WORD_EXPRESSION - 1, &state->regex);
}

/* ---- tokens and their texts ---- */

static hark_status begin_texts(hark_context *context, byte_bpe_state *state) {
  for (int value = 0; value < BYTE_VALUES; value++) {
    const char byte = (char)value;
    HARK_TRY(hark_word_counts_add(context, &state->texts, &byte, 1));
  }
  return HARK_OK;
}

static hark_span text_of(const byte_bpe_state *state, int32_t token) {
  const size_t i = (size_t)(token - HARK_TOKEN_RESERVED), at = state->texts.at[i];
  return (hark_span){state->texts.text + at, state->texts.at[i + 1] - at};
}

static int32_t token_count(const byte_bpe_state *state) { return HARK_TOKEN_RESERVED + (int32_t)state->texts.words; }

/* Adds a merge of two tokens; its token is the next one. `status` is returned for an invalid one. */
static hark_status add_merge(hark_context *context, byte_bpe_state *state, int32_t left, int32_t right, hark_status status) {
  char joined[HARK_WORD_BYTES];
  const hark_span a = text_of(state, left), b = text_of(state, right);
  const size_t number = state->merges.count, texts = state->texts.words, bytes = a.bytes + b.bytes;
  if (bytes > HARK_WORD_BYTES) return hark_fail(context, status, "merge %zu has more than %d bytes", number, HARK_WORD_BYTES);
  if (state->texts.at[texts] + bytes > HARK_WORD_COUNTS_BYTES)
    return hark_fail(context, HARK_TOO_LARGE, "tokens of more than %zu bytes in all", HARK_WORD_COUNTS_BYTES);
  memcpy(joined, a.text, a.bytes);
  memcpy(joined + a.bytes, b.text, b.bytes);
  HARK_TRY(hark_word_counts_add(context, &state->texts, joined, bytes));
  if (state->texts.words == texts) return hark_fail(context, status, "merge %zu makes a token that is there already", number);
  HARK_TRY(HARK_RESERVE(context, &state->merges, 1));
  HARK_TRY(hark_pair_add(context, &state->ranks, hark_pair(left, right), (uint32_t)number));
  state->merges.data[state->merges.count++] = (hark_byte_merge){left, right};
  return HARK_OK;
}

/* Gives the texts their numbers. */
static hark_status end_texts(hark_context *context, hark_tokenizer *tokenizer) {
  byte_bpe_state *state = tokenizer->state;
  const hark_word_counts *const texts = &state->texts;
  HARK_TRY(hark_tokenizer_reserve(context, tokenizer, (int32_t)texts->words, texts->at[texts->words]));
  for (size_t i = 0; i < texts->words; i++) hark_tokenizer_add(tokenizer, texts->text + texts->at[i], texts->at[i + 1] - texts->at[i]);
  hark_word_counts_free(context, &state->texts);
  return HARK_OK;
}

/* ---- learning ---- */

static hark_status byte_bpe_configure(hark_context *context, hark_tokenizer *tokenizer, const hark_subword_settings *settings) {
  byte_bpe_state *state = tokenizer->state;
  state->vocabulary = settings->vocabulary;
  return need_regex(context, state);
}

static hark_status count_words(hark_context *context, byte_bpe_state *state, hark_word_reader *reader) {
  for (hark_span word;;) {
    HARK_TRY(hark_word_reader_next(reader, &word));
    if (word.bytes == 0) return HARK_OK;
    HARK_TRY(hark_word_counts_add(context, &state->words, word.text, word.bytes));
  }
}

static hark_status byte_bpe_learn(hark_context *context, hark_tokenizer *tokenizer, const unsigned char *text, size_t bytes, bool last,
                                  size_t *consumed, hark_text_fault *fault) {
  byte_bpe_state *state = tokenizer->state;
  hark_word_reader reader;
  (void)fault;
  HARK_TRY(need_regex(context, state));
  HARK_TRY(hark_word_reader_open(context, state->regex, text, bytes, last, &reader));
  const hark_status status = count_words(context, state, &reader);
  *consumed = reader.at;
  hark_word_reader_close(&reader);
  return status;
}

/* Bytes in the order of their characters, and back. */
typedef struct byte_order {
  uint8_t byte[BYTE_VALUES], place[BYTE_VALUES];
} byte_order;

static byte_order order_bytes(void) {
  byte_order order;
  int next = 0;
  for (uint32_t code = 0; next < BYTE_VALUES; code++) {
    const int byte = hark_character_byte(code);
    if (byte < 0) continue;
    order.byte[next] = (uint8_t)byte;
    order.place[byte] = (uint8_t)next++;
  }
  return order;
}

/* Symbols are the bytes' places, then the merged tokens, 256, 257, ... */
typedef struct byte_learning {
  hark_context *context;
  byte_bpe_state *state;
  byte_order order;
} byte_learning;

static int32_t token_of(const byte_learning *learning, int32_t symbol) {
  return HARK_TOKEN_RESERVED + (symbol < BYTE_VALUES ? learning->order.byte[symbol] : symbol);
}

static hark_status take_merge(void *user, int32_t left, int32_t right, int32_t *symbol, bool *more) {
  const byte_learning *const learning = user;
  byte_bpe_state *const state = learning->state;
  *more = token_count(state) < state->vocabulary;
  if (!*more) return HARK_OK;
  HARK_TRY(add_merge(learning->context, state, token_of(learning, left), token_of(learning, right), HARK_INTERNAL_ERROR));
  *symbol = token_count(state) - 1 - HARK_TOKEN_RESERVED;
  return HARK_OK;
}

static hark_status learn_merges(hark_context *context, byte_bpe_state *state) {
  byte_learning learning = {context, state, order_bytes()};
  const hark_word_counts *const words = &state->words;
  const size_t bytes = words->words > 0 ? words->at[words->words] : 0;
  int32_t *symbol = NULL;
  HARK_TRY(hark_allocate(context, bytes * sizeof *symbol, (void **)&symbol));
  for (size_t i = 0; i < bytes; i++) symbol[i] = learning.order.place[(unsigned char)words->text[i]];
  const hark_merge_job job = {.symbol = symbol, .at = words->at, .count = words->count, .words = words->words};
  const hark_status status = hark_merges_learn(context, &job, take_merge, &learning);
  hark_release(context, symbol, bytes * sizeof *symbol);
  return status;
}

static hark_status byte_bpe_finish(hark_context *context, hark_tokenizer *tokenizer) {
  byte_bpe_state *state = tokenizer->state;
  HARK_TRY(need_regex(context, state));
  if (state->words.words == 0) return hark_fail(context, HARK_BAD_FILE, "a vocabulary of byte-level BPE needs text, and there is none");
  if (state->vocabulary < FIRST_MERGED)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "a vocabulary of %" PRId64 " tokens, expected at least the %d reserved ones and bytes", state->vocabulary,
                     FIRST_MERGED);
  HARK_TRY(begin_texts(context, state));
  HARK_TRY(learn_merges(context, state));
  hark_word_counts_free(context, &state->words);
  if (token_count(state) < state->vocabulary)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "a vocabulary of %" PRId64 " tokens: the text gives %" PRId32 " at most (--subwords %" PRId32 ")", state->vocabulary,
                     token_count(state), token_count(state));
  return end_texts(context, tokenizer);
}

/* ---- encoding ---- */

static uint32_t rank_of(const byte_bpe_state *state, const int32_t *tokens) {
  uint32_t rank;
  return hark_pair_find(&state->ranks, hark_pair(tokens[0], tokens[1]), &rank) ? rank : NO_RANK;
}

/* A word's tokens, at most one for each of its bytes; returns their number. */
static size_t encode_word(const byte_bpe_state *state, hark_span word, int32_t *tokens) {
  uint32_t rank[HARK_WORD_BYTES];
  size_t count = word.bytes;
  for (size_t i = 0; i < count; i++) tokens[i] = HARK_TOKEN_RESERVED + (unsigned char)word.text[i];
  for (size_t i = 0; i + 1 < count; i++) rank[i] = rank_of(state, tokens + i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == NO_RANK) break;
    tokens[best] = FIRST_MERGED + (int32_t)rank[best];
    count--;
    memmove(tokens + best + 1, tokens + best + 2, (count - best - 1) * sizeof *tokens);
    if (count > best + 1) {
      memmove(rank + best, rank + best + 1, (count - best - 1) * sizeof *rank);
      rank[best] = rank_of(state, tokens + best);
    }
    if (best > 0) rank[best - 1] = rank_of(state, tokens + best - 1);
  }
  return count;
}

static hark_status byte_bpe_encode(hark_context *context, const hark_tokenizer *tokenizer, hark_unknown unknown, const unsigned char *text,
                                   size_t bytes, bool last, int32_t *tokens, size_t *count, size_t *consumed, hark_text_fault *fault) {
  const byte_bpe_state *state = tokenizer->state;
  hark_word_reader reader;
  hark_span word = {0};
  (void)unknown;
  (void)fault;
  *count = *consumed = 0;
  HARK_TRY(hark_word_reader_open(context, state->regex, text, bytes, last, &reader));
  hark_status status = hark_word_reader_next(&reader, &word);
  while (status == HARK_OK && word.bytes > 0) {
    *count += encode_word(state, word, tokens + *count);
    status = hark_word_reader_next(&reader, &word);
  }
  *consumed = reader.at;
  hark_word_reader_close(&reader);
  return status;
}

/* ---- the vocabulary's file ---- */

static uint64_t byte_bpe_checksum(const hark_tokenizer *tokenizer, uint64_t sum) {
  const byte_bpe_state *state = tokenizer->state;
  for (size_t i = 0; i < state->merges.count; i++)
    sum = hark_checksum_number(sum, hark_pair(state->merges.data[i].left, state->merges.data[i].right));
  return sum;
}

static void byte_bpe_write(const hark_tokenizer *tokenizer, hark_text *text) {
  const byte_bpe_state *state = tokenizer->state;
  hark_text_append(text, ",\n \"merges\": [");
  for (size_t i = 0; i < state->merges.count; i++)
    hark_text_append(text, "%s\n  [%" PRId32 ", %" PRId32 "]", i > 0 ? "," : "", state->merges.data[i].left, state->merges.data[i].right);
  hark_text_append(text, "\n ]");
}

static bool is_token(const hark_json_node *node, int32_t size) {
  return hark_json_is(node, HARK_JSON_INTEGER) && node->integer >= HARK_TOKEN_RESERVED && node->integer < size;
}

static hark_status read_merge(hark_context *context, byte_bpe_state *state, const hark_json_node *item) {
  const hark_json_node *left = hark_json_is(item, HARK_JSON_LIST) && item->count == 2 ? item->first : NULL;
  if (left == NULL || !is_token(left, token_count(state)) || !is_token(left->next, token_count(state)))
    return hark_fail(context, HARK_BAD_FILE, "merge %zu is not a list of two tokens, from %d to %" PRId32, state->merges.count,
                     HARK_TOKEN_RESERVED, token_count(state) - 1);
  return add_merge(context, state, (int32_t)left->integer, (int32_t)left->next->integer, HARK_BAD_FILE);
}

static hark_status byte_bpe_read(hark_context *context, hark_tokenizer *tokenizer, const hark_json_node *object, int64_t *members) {
  byte_bpe_state *state = tokenizer->state;
  const hark_json_node *const merges = hark_json_member(object, "merges");
  *members = 1;
  if (!hark_json_is(merges, HARK_JSON_LIST)) return hark_fail(context, HARK_BAD_FILE, "\"merges\" is missing or not an array");
  HARK_TRY(need_regex(context, state));
  HARK_TRY(begin_texts(context, state));
  for (const hark_json_node *item = merges->first; item != NULL; item = item->next) HARK_TRY(read_merge(context, state, item));
  return end_texts(context, tokenizer);
}

const hark_tokenizer_kind hark_tokenizer_byte_bpe = {
    .name = "byte_bpe",
    .summary = "pieces of words of any text, merged from bytes by their frequency (byte-level BPE)",
    .state_bytes = sizeof(byte_bpe_state),
    .unit_bytes = HARK_WORD_WINDOW + HARK_UTF8_MAX_BYTES,
    .learns = true,
    .available = &hark_regex_available,
    .close = byte_bpe_close,
    .configure = byte_bpe_configure,
    .learn = byte_bpe_learn,
    .finish = byte_bpe_finish,
    .encode = byte_bpe_encode,
    .checksum = byte_bpe_checksum,
    .write = byte_bpe_write,
    .read = byte_bpe_read,
};
