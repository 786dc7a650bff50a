/* subword_search.c - the best division of a unit by its model.
 *
 *     unigram    best(0) = 0;  best(e) = max over pieces text[s .. e) of best(s) + score(piece), and over characters that are not
 *                pieces, with unknown_score. Of equal sums, that of the piece that begins first is kept. O(bytes times the longest piece).
 *     bpe        segments are characters at first. The adjacent pair whose text is a piece with the greatest score is merged, of equal
 *                ones the first, until no pair is a piece. O(segments^2), and units are short.
 *
 *     wordpiece  the longest piece from the beginning on, and so on. O(bytes times the longest piece).
 *
 * Sums are in f32 and in SentencePiece's order, so that divisions agree with SentencePiece's.
 */
#include "tokenizers/subword_search.h"

#include <string.h>

#include "tokenizers/unknown_penalty.h"

#define ROOT 0
#define NODES_LIMIT ((size_t)1 << 24) /* a node and a byte share 32 bits */

static size_t first_edge(const hark_subword_search *search, uint32_t from) {
  return (size_t)((from * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (search->edges - 1);
}

static hark_subword_edge *find_edge(const hark_subword_search *search, uint32_t node, unsigned char byte) {
  const uint32_t from = (node << 8 | byte) + 1;
  size_t at = first_edge(search, from);
  while (search->edge[at].from != 0 && search->edge[at].from != from) at = (at + 1) & (search->edges - 1);
  return &search->edge[at];
}

hark_status hark_subword_search_open(hark_context *context, hark_subword_search *search, hark_subword_model model, size_t pieces,
                                     size_t bytes) {
  if (bytes > NODES_LIMIT - 2) return hark_fail(context, HARK_BAD_FILE, "pieces of %zu bytes, expected fewer than 2^24", bytes);
  *search = (hark_subword_search){.model = model, .edges = 2};
  while (search->edges < 2 * (bytes + 1)) search->edges *= 2;
  HARK_TRY(hark_allocate_zero(context, search->edges * sizeof *search->edge, (void **)&search->edge));
  HARK_TRY(hark_allocate(context, (bytes + 1) * sizeof *search->piece, (void **)&search->piece));
  search->node_capacity = bytes + 1;
  HARK_TRY(hark_allocate(context, pieces * sizeof *search->score, (void **)&search->score));
  search->piece_capacity = pieces;
  search->piece[ROOT] = -1;
  search->nodes = 1;
  search->unknown_score = -HARK_UNKNOWN_PENALTY;
  return HARK_OK;
}

bool hark_subword_search_add(hark_subword_search *search, const char *text, size_t bytes, float score) {
  uint32_t node = ROOT;
  for (size_t i = 0; i < bytes; i++) {
    hark_subword_edge *edge = find_edge(search, node, (unsigned char)text[i]);
    if (edge->from == 0) {
      *edge = (hark_subword_edge){.from = (node << 8 | (unsigned char)text[i]) + 1, .to = (uint32_t)search->nodes};
      search->piece[search->nodes++] = -1;
    }
    node = edge->to;
  }
  if (search->piece[node] >= 0) return false;
  if (search->pieces == 0 || score - HARK_UNKNOWN_PENALTY < search->unknown_score) search->unknown_score = score - HARK_UNKNOWN_PENALTY;
  search->piece[node] = (int32_t)search->pieces;
  search->score[search->pieces++] = score;
  return true;
}

void hark_subword_search_close(hark_context *context, hark_subword_search *search) {
  hark_release(context, search->edge, search->edges * sizeof *search->edge);
  hark_release(context, search->piece, search->node_capacity * sizeof *search->piece);
  hark_release(context, search->score, search->piece_capacity * sizeof *search->score);
  *search = (hark_subword_search){0};
}

/* Bytes of the first character of valid text. */
static int character_bytes(const unsigned char *text) { return text[0] < 0x80 ? 1 : text[0] < 0xE0 ? 2 : text[0] < 0xF0 ? 3 : 4; }

/* ---- unigram ---- */

/* The best way to reach a byte. */
typedef struct arrival {
  float sum;
  int16_t from; /* -1: not reached yet */
  int32_t piece;
} arrival;

static void arrive(arrival *at, float sum, int from, int32_t piece) {
  if (at->from < 0 || sum > at->sum) *at = (arrival){.sum = sum, .from = (int16_t)from, .piece = piece};
}

static void divide_unigram(const hark_subword_search *search, const unsigned char *text, int bytes, hark_subword_segments *out) {
  arrival best[HARK_SUBWORD_UNIT_BYTES + 1];
  for (int i = 0; i <= bytes; i++) best[i] = (arrival){.from = -1};
  for (int from = 0, length; from < bytes; from += length) {
    bool is_piece = false;
    uint32_t node = ROOT;
    length = character_bytes(text + from);
    for (int end = from; end < bytes;) {
      const hark_subword_edge *edge = find_edge(search, node, text[end++]);
      if (edge->from == 0) break;
      node = edge->to;
      const int32_t piece = search->piece[node];
      if (piece < 0) continue;
      arrive(&best[end], search->score[piece] + best[from].sum, from, piece);
      is_piece = is_piece || end - from == length;
    }
    if (!is_piece) arrive(&best[from + length], search->unknown_score + best[from].sum, from, -1);
  }
  int count = 0;
  for (int end = bytes; end > 0; end = best[end].from) count++;
  out->count = count;
  for (int end = bytes; end > 0; end = best[end].from) {
    out->end[--count] = (int16_t)end;
    out->piece[count] = best[end].piece;
  }
}

/* ---- bpe ---- */

/* The piece equal to text[0 .. bytes), or -1. */
static int32_t find_piece(const hark_subword_search *search, const unsigned char *text, int bytes) {
  uint32_t node = ROOT;
  for (int i = 0; i < bytes; i++) {
    const hark_subword_edge *edge = find_edge(search, node, text[i]);
    if (edge->from == 0) return -1;
    node = edge->to;
  }
  return search->piece[node];
}

static void divide_bpe(const hark_subword_search *search, const unsigned char *text, int bytes, hark_subword_segments *out) {
  int32_t joined[HARK_SUBWORD_UNIT_BYTES]; /* the piece that segments i and i + 1 form together, or -1 */
  int count = 0;
  for (int end = 0; end < bytes; count++) {
    const int length = character_bytes(text + end);
    out->piece[count] = find_piece(search, text + end, length);
    end += length;
    out->end[count] = (int16_t)end;
  }
#define BEGIN(i) ((i) > 0 ? out->end[(i)-1] : 0)
#define JOINED(i) find_piece(search, text + BEGIN(i), out->end[(i) + 1] - BEGIN(i))
  for (int i = 0; i + 1 < count; i++) joined[i] = JOINED(i);
  for (;;) {
    int best = -1;
    for (int i = 0; i + 1 < count; i++)
      if (joined[i] >= 0 && (best < 0 || search->score[joined[i]] > search->score[joined[best]])) best = i;
    if (best < 0) break;
    out->piece[best] = joined[best];
    out->end[best] = out->end[best + 1];
    count--;
    const size_t after = (size_t)(count - best - 1);
    memmove(&out->end[best + 1], &out->end[best + 2], after * sizeof *out->end);
    memmove(&out->piece[best + 1], &out->piece[best + 2], after * sizeof *out->piece);
    if (after > 0) memmove(&joined[best + 1], &joined[best + 2], (after - 1) * sizeof *joined);
    if (best > 0) joined[best - 1] = JOINED(best - 1);
    if (best + 1 < count) joined[best] = JOINED(best);
  }
#undef JOINED
#undef BEGIN
  out->count = count;
}

/* ---- wordpiece ---- */

/* The longest piece at the beginning of a text, and its bytes; -1: a character. */
static int32_t longest_piece(const hark_subword_search *search, const unsigned char *text, int bytes, int *length) {
  int32_t longest = -1;
  uint32_t node = ROOT;
  *length = character_bytes(text);
  for (int end = 0; end < bytes;) {
    const hark_subword_edge *edge = find_edge(search, node, text[end++]);
    if (edge->from == 0) break;
    node = edge->to;
    if (search->piece[node] < 0) continue;
    longest = search->piece[node];
    *length = end;
  }
  return longest;
}

static void divide_word_piece(const hark_subword_search *search, const unsigned char *text, int bytes, hark_subword_segments *out) {
  out->count = 0;
  for (int at = 0, length; at < bytes; out->count++) {
    out->piece[out->count] = longest_piece(search, text + at, bytes - at, &length);
    at += length;
    out->end[out->count] = (int16_t)at;
  }
}

void hark_subword_divide(const hark_subword_search *search, const unsigned char *text, int bytes, hark_subword_segments *out) {
  if (search->model == HARK_SUBWORD_BPE)
    divide_bpe(search, text, bytes, out);
  else if (search->model == HARK_SUBWORD_WORD_PIECE)
    divide_word_piece(search, text, bytes, out);
  else
    divide_unigram(search, text, bytes, out);
}
