/* merge_training.c - see merge_training.h. */
#include "tokenizers/merge_training.h"

#include "tokenizers/pair_table.h"
#include "tokenizers/pipeline/growing.h"

#define NO_ENTRY UINT32_MAX

/* A pair, how often it occurs now, the words that it has occurred in, and the last merge that made it more frequent. */
typedef struct pair_count {
  int32_t left, right;
  int64_t count;
  uint32_t places; /* index of a place, or NO_ENTRY */
  uint32_t risen;  /* the merge in which the count rose last */
} pair_count;

/* One word of a pair's list. */
typedef struct pair_place {
  uint32_t word, next;
} pair_place;

typedef struct queue_entry {
  int64_t count; /* when it was put there */
  uint32_t pair;
} queue_entry;

typedef struct pair_list {
  pair_count *data;
  size_t count, capacity;
} pair_list;

typedef struct place_list {
  pair_place *data;
  size_t count, capacity;
} place_list;

typedef struct entry_list {
  queue_entry *data;
  size_t count, capacity;
} entry_list;

typedef struct index_list {
  uint32_t *data;
  size_t count, capacity;
} index_list;

typedef struct merge_learner {
  hark_context *context;
  const hark_merge_job *job;
  size_t *length; /* [words]: symbols that are left */
  hark_pair_table table;
  pair_list pairs;
  place_list places;
  entry_list queue;
  index_list risen; /* pairs that became more frequent in the present merge */
  uint32_t merge;   /* number of the present merge, from 1 on */
} merge_learner;

/* ---- the queue ---- */

static bool is_before(const merge_learner *m, queue_entry a, queue_entry b) {
  const pair_count *const one = &m->pairs.data[a.pair], *const other = &m->pairs.data[b.pair];
  if (a.count != b.count) return a.count > b.count;
  return one->left != other->left ? one->left < other->left : one->right < other->right;
}

static hark_status push(merge_learner *m, queue_entry entry) {
  HARK_TRY(HARK_RESERVE(m->context, &m->queue, 1));
  queue_entry *const q = m->queue.data;
  size_t i = m->queue.count++;
  for (; i > 0 && is_before(m, entry, q[(i - 1) / 2]); i = (i - 1) / 2) q[i] = q[(i - 1) / 2];
  q[i] = entry;
  return HARK_OK;
}

static queue_entry pop(merge_learner *m) {
  queue_entry *const q = m->queue.data;
  const queue_entry first = q[0], moved = q[--m->queue.count];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < m->queue.count; i = child) {
    if (child + 1 < m->queue.count && is_before(m, q[child + 1], q[child])) child++;
    if (!is_before(m, q[child], moved)) break;
    q[i] = q[child];
  }
  if (m->queue.count > 0) q[i] = moved;
  return first;
}

/* The most frequent pair; NO_ENTRY: there is none. */
static hark_status next_pair(merge_learner *m, uint32_t *out) {
  *out = NO_ENTRY;
  while (m->queue.count > 0 && *out == NO_ENTRY) {
    const queue_entry entry = pop(m);
    const int64_t count = m->pairs.data[entry.pair].count;
    if (count == entry.count)
      *out = entry.pair;
    else if (count > 0 && count < entry.count)
      HARK_TRY(push(m, (queue_entry){count, entry.pair})); /* a pair that has become more frequent has another entry */
  }
  return HARK_OK;
}

/* ---- counts ---- */

static hark_status find_or_add(merge_learner *m, int32_t left, int32_t right, uint32_t *index) {
  const uint64_t pair = hark_pair(left, right);
  if (hark_pair_find(&m->table, pair, index)) return HARK_OK;
  if (m->pairs.count >= NO_ENTRY) return hark_fail(m->context, HARK_TOO_LARGE, "more than %u pairs", NO_ENTRY - 1);
  *index = (uint32_t)m->pairs.count;
  HARK_TRY(HARK_RESERVE(m->context, &m->pairs, 1));
  HARK_TRY(hark_pair_add(m->context, &m->table, pair, *index));
  m->pairs.data[m->pairs.count++] = (pair_count){.left = left, .right = right, .places = NO_ENTRY, .risen = NO_ENTRY};
  return HARK_OK;
}

/* A place more of a pair in a word. */
static hark_status add_place(merge_learner *m, int32_t left, int32_t right, size_t word) {
  uint32_t index = 0;
  HARK_TRY(find_or_add(m, left, right, &index));
  pair_count *const pair = &m->pairs.data[index];
  pair->count += m->job->count[word];
  if (pair->places == NO_ENTRY || m->places.data[pair->places].word != word) {
    if (m->places.count >= NO_ENTRY) return hark_fail(m->context, HARK_TOO_LARGE, "more than %u places of pairs", NO_ENTRY - 1);
    HARK_TRY(HARK_RESERVE(m->context, &m->places, 1));
    m->places.data[m->places.count] = (pair_place){(uint32_t)word, pair->places};
    pair->places = (uint32_t)m->places.count++;
  }
  if (pair->risen == m->merge) return HARK_OK;
  HARK_TRY(HARK_RESERVE(m->context, &m->risen, 1));
  pair->risen = m->merge;
  m->risen.data[m->risen.count++] = index;
  return HARK_OK;
}

static void remove_place(merge_learner *m, int32_t left, int32_t right, size_t word) {
  uint32_t index;
  if (hark_pair_find(&m->table, hark_pair(left, right), &index)) m->pairs.data[index].count -= m->job->count[word];
}

static hark_status push_risen(merge_learner *m) {
  for (size_t i = 0; i < m->risen.count; i++) {
    const uint32_t pair = m->risen.data[i];
    if (m->pairs.data[pair].count > 0) HARK_TRY(push(m, (queue_entry){m->pairs.data[pair].count, pair}));
  }
  m->risen.count = 0;
  return HARK_OK;
}

static hark_status count_all(merge_learner *m) {
  for (size_t w = 0; w < m->job->words; w++) {
    const int32_t *const s = m->job->symbol + m->job->at[w];
    m->length[w] = m->job->at[w + 1] - m->job->at[w];
    for (size_t i = 1; i < m->length[w]; i++) HARK_TRY(add_place(m, s[i - 1], s[i], w));
  }
  return push_risen(m);
}

/* ---- merging ---- */

/* Merges symbols `made - 1` on the left and s[i], s[i + 1]: counts of the pairs on both sides change. */
static hark_status merge_here(merge_learner *m, const int32_t *s, size_t i, size_t made, int32_t symbol, size_t word) {
  remove_place(m, s[i], s[i + 1], word);
  if (made > 0) {
    remove_place(m, s[made - 1], s[i], word);
    HARK_TRY(add_place(m, s[made - 1], symbol, word));
  }
  if (i + 2 < m->length[word]) {
    remove_place(m, s[i + 1], s[i + 2], word);
    HARK_TRY(add_place(m, symbol, s[i + 2], word));
  }
  return HARK_OK;
}

static hark_status merge_in_word(merge_learner *m, int32_t left, int32_t right, int32_t symbol, size_t word) {
  int32_t *const s = m->job->symbol + m->job->at[word];
  size_t made = 0;
  for (size_t i = 0; i < m->length[word];) {
    if (i + 1 < m->length[word] && s[i] == left && s[i + 1] == right) {
      HARK_TRY(merge_here(m, s, i, made, symbol, word));
      s[made++] = symbol;
      i += 2;
    } else {
      s[made++] = s[i++];
    }
  }
  m->length[word] = made;
  return HARK_OK;
}

static hark_status merge_everywhere(merge_learner *m, uint32_t index, int32_t symbol) {
  const pair_count pair = m->pairs.data[index];
  m->pairs.data[index].places = NO_ENTRY;
  for (uint32_t p = pair.places; p != NO_ENTRY; p = m->places.data[p].next)
    HARK_TRY(merge_in_word(m, pair.left, pair.right, symbol, m->places.data[p].word));
  return push_risen(m);
}

static hark_status learn(merge_learner *m, hark_merge_sink *sink, void *user) {
  HARK_TRY(count_all(m));
  for (bool more = true;;) {
    uint32_t pair;
    int32_t symbol = 0;
    HARK_TRY(next_pair(m, &pair));
    if (pair == NO_ENTRY) return HARK_OK;
    HARK_TRY(sink(user, m->pairs.data[pair].left, m->pairs.data[pair].right, &symbol, &more));
    if (!more) return HARK_OK;
    m->merge++;
    HARK_TRY(merge_everywhere(m, pair, symbol));
  }
}

hark_status hark_merges_learn(hark_context *context, const hark_merge_job *job, hark_merge_sink *sink, void *user) {
  merge_learner m = {.context = context, .job = job};
  hark_status status = hark_allocate(context, job->words * sizeof *m.length, (void **)&m.length);
  if (status == HARK_OK) status = learn(&m, sink, user);
  hark_release(context, m.length, job->words * sizeof *m.length);
  hark_pair_table_close(context, &m.table);
  HARK_FREE_LIST(context, &m.pairs);
  HARK_FREE_LIST(context, &m.places);
  HARK_FREE_LIST(context, &m.queue);
  HARK_FREE_LIST(context, &m.risen);
  return status;
}
