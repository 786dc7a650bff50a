/* chunks.h - the layout of compressed attention: chunks of rows, their slots, and which of them a query meets.
 *
 *     Chunk c has the rows start[c] .. start[c + 1] - 1 of a sequence, M of them. Its slot i of C has the rows start[c] + floor(i M / C) ..
 *     start[c] + floor((i + 1) M / C) - 1; there are none if M < C. Slots have numbers: c C + i.
 *
 * A query of chunk c meets
 *
 *     near         the rows of the chunks c - 1 and c up to itself
 *     slots        of the slots of the N chunks before those, c - 1 - N .. c - 2, the ones with the highest logits (N = 0: of all chunks)
 *     globals      the slots of all chunks before those, merged: slot number s is part of global slot s mod G. State c - N - 2 of the
 *                  globals has the slots of the chunks 0 .. c - N - 2
 *
 * So every earlier row is near, in one slot, or in one global slot. docs/mathematics/compressed.md.
 */
#ifndef HARK_BACKEND_CHUNKS_H
#define HARK_BACKEND_CHUNKS_H

#include <hark/attention.h>

#include "backend/attention_algorithm.h"
#include "core/core.h"

#define HARK_CHUNK_DEFAULT_SELECTED 16

typedef struct hark_chunks {
  int64_t rows, count;  /* of the sequence */
  const int64_t *start; /* [count + 1] */
  int64_t slots, kept, globals;
} hark_chunks;

/* Rows that a sequence's chunks have: its queries and its keys. */
static inline int64_t hark_chunk_rows(const hark_attention_sequence *sequence) {
  return hark_max(sequence->query_count, sequence->key_count);
}

/* The most chunks of so many rows. */
static inline int64_t hark_chunks_most(const hark_attention_desc *desc, int64_t rows) { return hark_ceil_div(rows, desc->chunk); }

/* Slots that a query of the longest sequence may select, at most, and globals that may have rows: more change nothing. */
static inline int64_t hark_chunk_most_slots(const hark_attention_desc *desc) {
  return hark_max(1, (hark_chunks_most(desc, desc->longest) - 2) * desc->chunk_slots);
}
static inline int64_t hark_chunk_selected(const hark_attention_desc *desc) {
  return hark_min(desc->selected_slots, hark_chunk_most_slots(desc));
}
static inline int64_t hark_chunk_globals(const hark_attention_desc *desc) {
  return hark_min(desc->global_slots, hark_chunk_most_slots(desc));
}

/* Starts of all sequences of a call, those of a sequence followed by its number of rows. */
typedef struct hark_chunk_list {
  int64_t *before; /* [sequences + 1]: entries of `start` before those of a sequence */
  int64_t *start;
} hark_chunk_list;

/* Numbers in the memory of a list: at most. Errors: HARK_TOO_LARGE. */
hark_status hark_chunk_list_numbers(hark_context *context, const hark_attention_desc *desc, size_t *out);

/* Fills a list in this memory. Errors: HARK_INVALID_ARGUMENT if two starts are nearer to each other than desc->chunk. */
hark_status hark_chunk_list_fill(hark_context *context, const hark_attention_call *run, int64_t *memory, hark_chunk_list *out);

static inline hark_chunks hark_chunks_of(const hark_attention_desc *desc, const hark_chunk_list *list, int64_t sequence) {
  const int64_t *start = list->start + list->before[sequence], count = list->before[sequence + 1] - list->before[sequence] - 1;
  return (hark_chunks){.rows = start[count],
                       .count = count,
                       .start = start,
                       .slots = desc->chunk_slots,
                       .kept = desc->kept_chunks,
                       .globals = hark_chunk_globals(desc)};
}

/* Slots that some query may meet: those of all chunks but the last two. */
static inline int64_t hark_chunks_slots(const hark_chunks *chunks) { return hark_max(0, chunks->count - 2) * chunks->slots; }

/* The first row of a slot; that of the next number is where its rows end. */
static inline int64_t hark_chunk_slot_row(const hark_chunks *chunks, int64_t slot) {
  const int64_t chunk = slot / chunks->slots, i = slot % chunks->slots, first = chunks->start[chunk];
  return first + i * (chunks->start[chunk + 1] - first) / chunks->slots;
}

/* The slots from <= number < to of which a query of chunk c meets the best. */
static inline void hark_chunk_candidates(const hark_chunks *chunks, int64_t c, int64_t *from, int64_t *to) {
  *to = hark_max(0, c - 1) * chunks->slots;
  *from = chunks->kept == 0 ? 0 : hark_max(0, c - 1 - chunks->kept) * chunks->slots;
}

/* States of the globals: state s is that of the queries of chunk s + kept + 2. */
static inline int64_t hark_chunks_states(const hark_chunks *chunks) {
  return chunks->globals == 0 ? 0 : hark_max(0, chunks->count - chunks->kept - 2);
}

/* The first row near a query of chunk c. */
static inline int64_t hark_chunk_near(const hark_chunks *chunks, int64_t c) { return chunks->start[hark_max(0, c - 1)]; }

#endif
