/* hierarchical_spread.c - hierarchical attention over a sequence whose rows are spread over processes, with the bits of one process.
 *
 *     process 0 | process 1 | process 2             levels above `shared`: complete in every process, computed by each of them
 *     ----------+-----------+----------   shared    levels up to it: a process has the tokens of its rows, and a halo of its neighbours'
 *     ----------+-----------+----------   level 0
 *
 * Parts begin where two pieces of the backward begin on every level up to `shared` (in the forward: where a tile begins), so that tiles,
 * groups of keys, pieces and windows are those of one process, and each is computed by one process. What is exchanged:
 *
 *     forward     keys and values within Nr of the boundaries, level by level; those of level shared + 1 from all to all, and its queries.
 *                 Levels above it are computed from these by every process.
 *     backward    the same, with the gradients of the rows of level shared + 1; and for every level from `shared` down the gradients of
 *                 keys within 2 Nr of a boundary. Even pieces add to them first: the process after the boundary begins with one. It sends
 *                 them to the process before it, whose last piece is odd, and gets the sums back.
 *
 * Levels 1 .. HARK_WINDOW_LEVELS are not kept: a window computes them from rows, so level 0 has a halo of hark_window_reach() rows, of
 * which the forward needs half.
 *
 * Floats that a process sends in the forward, per key head: (d + dv + 1) (4 Nr + Nr levels) to each neighbour, for levels LOWEST to shared,
 * and 2 d + dv + 2 (with more heads d + 1 for each of them) per own token of level shared + 1 to every other process.
 * Memory: trees of all (sequence, key head)s at the same time, tiles and a window per worker, one exchange's messages.
 */
#include <stdio.h>

#include "hierarchical_stage.h"

#define LOWEST (HARK_WINDOW_LEVELS + 1) /* kept level above 0 */

/* What is sent of a token. */
typedef enum token_part { KEYS, QUERIES, GRADIENTS } token_part;

typedef struct span {
  int level;
  int64_t from, to;
} span;

/* Tokens of all trees that go to a process, or come from it. */
typedef struct shipment {
  int peer, spans;
  bool sends;
  token_part part;
  span span[HARK_HIERARCHY_MAX_LEVELS + 1];
} shipment;

typedef struct spread_work {
  hark_hierarchical_call call;
  hark_attention_call run;
  const hark_attention_peers *peers;
  hark_hierarchy hierarchy;
  int64_t trees;     /* (sequence, key head)s */
  int before, after; /* the next processes with rows; -1: none */
  hark_attention_sequence *sequences;
  hark_tree *tree;    /* [trees] */
  hark_level *own;    /* [trees]: level 0 as it was placed */
  unsigned char *far; /* [size][trees]: some row's log-sum-exp must be recomputed */
  shipment *shipments;
  hark_attention_parcel *parcels;
  int count; /* of shipments */
  float *buffer;
} spread_work;

static bool has_rows(const spread_work *work, int rank) { return work->peers->first[rank] < work->peers->first[rank + 1]; }

static hark_held tokens_of(const spread_work *work, int rank, int level) {
  const int64_t tokens = hark_hierarchy_tokens(&work->hierarchy, level);
  return hark_tokens_of_rows(work->peers->first[rank], work->peers->first[rank + 1], level, tokens);
}
static hark_held own_tokens(const spread_work *work, int level) { return tokens_of(work, work->peers->rank, level); }

static int64_t halo_of(const spread_work *work, int level) { return level == 0 ? work->call.halo_rows : work->call.halo; }

/* ---- messages ---- */

/* An array of a level: numbers of a token. */
typedef struct token_numbers {
  float *data;
  int64_t width;
} token_numbers;

/* Lists the arrays of a part; returns their number. */
static int list_numbers(const hark_tree *tree, token_part part, int level, token_numbers *list) {
  const hark_hierarchical_call *call = tree->call;
  const hark_level *at = &tree->level[level];
  int count = 0;
  if (part == KEYS) {
    list[count++] = (token_numbers){at->key.data, call->head_pad};
    list[count++] = (token_numbers){at->value.data, call->value_pad};
    list[count++] = (token_numbers){at->key_count, 1};
    if (call->rbf) list[count++] = (token_numbers){at->key_square, 1};
    if (call->rbf && level > 0) list[count++] = (token_numbers){at->key_low.data, call->head_pad};
  } else if (part == QUERIES) {
    list[count++] = (token_numbers){at->query.data, call->head_pad};
    list[count++] = (token_numbers){at->query_count, 1};
    if (call->query_lows) list[count++] = (token_numbers){at->query_low.data, call->head_pad};
    if (call->query_lows) list[count++] = (token_numbers){at->query_square, 1};
    if (call->backward) list[count++] = (token_numbers){at->g.data, call->value_pad};
    if (call->backward) list[count++] = (token_numbers){at->least, 1};
    if (call->backward) list[count++] = (token_numbers){at->mean_gradient, 1};
    if (tree->is_far) list[count++] = (token_numbers){at->fine_least, HARK_FINE_SUM_FLOATS};
  } else {
    list[count++] = (token_numbers){at->dkey.data, call->head_pad};
    list[count++] = (token_numbers){at->dvalue.data, call->value_pad};
  }
  return count;
}
#define MOST_NUMBERS 8

static size_t floats_of_token(const hark_tree *tree, token_part part, int level) {
  token_numbers list[MOST_NUMBERS];
  const int count = list_numbers(tree, part, level, list);
  size_t floats = 0;
  for (int i = 0; i < count; i++) floats += (size_t)list[i].width;
  return floats;
}

static size_t floats_of(const spread_work *work, const shipment *of) {
  size_t floats = 0;
  for (int64_t t = 0; t < work->trees; t++)
    for (int s = 0; s < of->spans; s++)
      floats += (size_t)(of->span[s].to - of->span[s].from) * floats_of_token(&work->tree[t], of->part, of->span[s].level);
  return floats;
}

/* Copies tokens to the buffer, or with `in` from it; returns the buffer after them. */
static float *move_tokens(const hark_tree *tree, token_part part, const span *of, bool in, float *buffer) {
  token_numbers list[MOST_NUMBERS];
  const int count = list_numbers(tree, part, of->level, list);
  for (int i = 0; i < count; i++) {
    const size_t floats = (size_t)((of->to - of->from) * list[i].width);
    float *const at = list[i].data + of->from * list[i].width;
    memcpy(in ? at : buffer, in ? buffer : at, floats * sizeof *at);
    buffer += floats;
  }
  return buffer;
}

static void move_shipment(const spread_work *work, const shipment *of, float *buffer) {
  for (int64_t t = 0; t < work->trees; t++)
    for (int s = 0; s < of->spans; s++) buffer = move_tokens(&work->tree[t], of->part, &of->span[s], !of->sends, buffer);
}

/* Sends and receives the listed shipments. */
static hark_status ship(spread_work *work) {
  float *next = work->buffer;
  for (int i = 0; i < work->count; i++) {
    const shipment *of = &work->shipments[i];
    const size_t floats = floats_of(work, of);
    work->parcels[i] = (hark_attention_parcel){.data = next, .bytes = floats * sizeof(float), .peer = of->peer, .sends = of->sends};
    if (of->sends) move_shipment(work, of, next);
    next += floats;
  }
  if (work->count == 0) return HARK_OK;
  HARK_TRY(work->peers->exchange(work->call.context, work->peers->user, work->parcels, work->count));
  for (int i = 0; i < work->count; i++)
    if (!work->shipments[i].sends) move_shipment(work, &work->shipments[i], work->parcels[i].data);
  return HARK_OK;
}

static void add_shipment(spread_work *work, const shipment *next) {
  if (next->spans > 0) work->shipments[work->count++] = *next;
}

static void add_span(shipment *to, int level, hark_held tokens) {
  if (tokens.from < tokens.to) to->span[to->spans++] = (span){level, tokens.from, tokens.to};
}

/* Tokens that a process gets. In the forward half a window's reach is enough, and if it is causal nothing after the own rows. */
static hark_held needed_tokens(const spread_work *work, int level, int rank) {
  const hark_held own = tokens_of(work, rank, level);
  const int64_t halo = level == 0 && !work->call.backward ? halo_of(work, level) / 2 : halo_of(work, level);
  return (hark_held){own.from - halo, own.to + (work->call.backward || !work->hierarchy.causal ? halo : 0)};
}

/* Tokens of one process that another one needs. */
static hark_held shared_tokens(const spread_work *work, int level, int owner, int holder) {
  const hark_held own = tokens_of(work, owner, level), needed = needed_tokens(work, level, holder);
  if (level > work->call.shared) return own;
  return (hark_held){hark_max(own.from, needed.from), hark_min(own.to, needed.to)};
}

/* Lists what the owners of tokens send to all that need them: of level 0 and of levels from .. to. */
static void list_tokens(spread_work *work, token_part part, bool rows, int from, int to) {
  const int rank = work->peers->rank;
  work->count = 0;
  for (int peer = 0; peer < work->peers->size; peer++)
    for (int sends = 0; sends < 2 && peer != rank && has_rows(work, peer); sends++) {
      shipment next = {.peer = peer, .sends = sends == 1, .part = part};
      if (rows) add_span(&next, 0, shared_tokens(work, 0, sends ? rank : peer, sends ? peer : rank));
      for (int level = from; level <= to; level++)
        add_span(&next, level, shared_tokens(work, level, sends ? rank : peer, sends ? peer : rank));
      add_shipment(work, &next);
    }
}

/* The tokens on both sides of the boundary before a process. */
static hark_held around_boundary(const spread_work *work, int rank, int level) {
  const int64_t boundary = tokens_of(work, rank, level).from, halo = halo_of(work, level);
  return (hark_held){hark_max(boundary - halo, 0), hark_min(boundary + halo, hark_hierarchy_tokens(&work->hierarchy, level))};
}

/* Lists the gradients around the boundaries: to the process before each of them, or to the one after it. */
static void list_gradients(spread_work *work, int level, bool back) {
  const int rank = work->peers->rank;
  work->count = 0;
  if (work->before >= 0) {
    shipment next = {.peer = work->before, .sends = back, .part = GRADIENTS};
    add_span(&next, level, around_boundary(work, rank, level));
    add_shipment(work, &next);
  }
  if (work->after >= 0) {
    shipment next = {.peer = work->after, .sends = !back, .part = GRADIENTS};
    add_span(&next, level, around_boundary(work, work->after, level));
    add_shipment(work, &next);
  }
}

static size_t listed_floats(const spread_work *work) {
  size_t floats = 0;
  for (int i = 0; i < work->count; i++) floats += floats_of(work, &work->shipments[i]);
  return floats;
}

/* Floats of the largest exchange. */
static size_t most_floats(spread_work *work) {
  const int above = work->call.shared + 1;
  list_tokens(work, KEYS, true, LOWEST, above);
  size_t most = listed_floats(work);
  list_tokens(work, QUERIES, false, above, above);
  if (listed_floats(work) > most) most = listed_floats(work);
  for (int level = 0; level < above; level++)
    for (int back = 0; back < 2; back++) {
      list_gradients(work, level, back == 1);
      if (listed_floats(work) > most) most = listed_floats(work);
    }
  return most;
}

/* ---- work on all trees ---- */

typedef struct stage {
  const spread_work *work;
  hark_stage_kind kind;
  int level;
  int64_t first, step, count; /* pieces */
  bool only_far;
} stage;

static void run_one(const stage *s, int64_t tree, int64_t index, int worker) {
  const hark_tree *of = &s->work->tree[tree];
  if (!s->only_far || of->is_far) HARK_ISA(hark_hierarchical_run_piece)(of, s->kind, s->level, s->first + index * s->step, worker);
}
static void piece_task(void *data, int64_t index, int worker) {
  const stage *s = data;
  run_one(s, index / s->count, index % s->count, worker);
}
/* All pieces of a key head: their gradients of tables have one sum. */
static void key_head_task(void *data, int64_t key_head, int worker) {
  const stage *s = data;
  for (int64_t tree = key_head; tree < s->work->trees; tree += s->work->call.desc->key_heads)
    for (int64_t index = 0; index < s->count; index++) run_one(s, tree, index, worker);
}

static void run_stage(const stage *s) {
  hark_context *context = s->work->call.context;
  stage own = *s;
  if (s->count <= 0) return;
  if (s->work->call.tables.sums != NULL)
    hark_parallel_for(context, s->work->call.desc->key_heads, key_head_task, &own);
  else
    hark_parallel_for(context, s->work->trees * s->count, piece_task, &own);
}

/* Pieces of `length` tokens that begin in from .. to. */
static stage pieces_of(const spread_work *work, hark_stage_kind kind, int level, hark_held tokens, int64_t length) {
  const int64_t first = tokens.from / length;
  return (stage){.work = work, .kind = kind, .level = level, .first = first, .step = 1, .count = hark_ceil_div(tokens.to, length) - first};
}

/* Every second piece, beginning with piece `odd` of them. */
static void run_alternate(const stage *s, int odd) {
  stage half = *s;
  half.first += odd;
  half.step = 2;
  half.count = (s->count + 1 - odd) / 2;
  run_stage(&half);
}

typedef struct token_range {
  const spread_work *work;
  bool keys, only_far;
  int level;
  int64_t from, to, pieces;
} token_range;

static void make_task(void *data, int64_t index, int worker) {
  const token_range *range = data;
  const hark_tree *tree = &range->work->tree[index / range->pieces];
  const hark_hierarchical_call *call = tree->call;
  const int64_t from = range->from + index % range->pieces * HARK_TOKEN_PIECE, to = hark_min(from + HARK_TOKEN_PIECE, range->to);
  if (range->only_far && !tree->is_far) return;
  float *window = (float *)(void *)(call->workers + (size_t)worker * call->worker_bytes + call->tile_bytes);
  if (range->level == LOWEST)
    HARK_ISA(hark_hierarchical_make_through)(tree, range->keys, from, to, window);
  else if (range->keys)
    HARK_ISA(hark_hierarchical_make_keys)(tree, range->level, from, to);
  else
    HARK_ISA(hark_hierarchical_make_queries)(tree, range->level, from, to);
}

static void make_level(const spread_work *work, bool keys, bool only_far, int level, hark_held tokens) {
  const int64_t pieces = hark_ceil_div(tokens.to - tokens.from, HARK_TOKEN_PIECE);
  token_range range = {work, keys, only_far, level, tokens.from, tokens.to, pieces};
  if (pieces > 0) hark_parallel_for(work->call.context, work->trees * pieces, make_task, &range);
}

/* The process's tokens, up to the first level that all have. */
static void make_own(const spread_work *work, bool keys, bool only_far) {
  for (int level = LOWEST; level <= work->call.shared + 1; level++) make_level(work, keys, only_far, level, own_tokens(work, level));
}

/* All tokens of the levels above it. */
static void make_above(const spread_work *work, bool keys) {
  for (int level = work->call.shared + 2; level < work->hierarchy.levels; level++)
    make_level(work, keys, false, level, (hark_held){0, hark_hierarchy_tokens(&work->hierarchy, level)});
}

static hark_status make_keys(spread_work *work) {
  make_own(work, true, false);
  list_tokens(work, KEYS, true, LOWEST, work->call.shared + 1);
  HARK_TRY(ship(work));
  make_above(work, true);
  for (int64_t t = 0; t < work->trees; t++) work->tree[t].finite = HARK_ISA(hark_hierarchical_all_finite)(&work->tree[t]);
  return HARK_OK;
}

static hark_status ship_queries(spread_work *work) {
  list_tokens(work, QUERIES, false, work->call.shared + 1, work->call.shared + 1);
  HARK_TRY(ship(work));
  make_above(work, false);
  return HARK_OK;
}

/* Begins head `member` of every key head's group. */
static void begin_heads(spread_work *work, int64_t member) {
  const hark_hierarchical_call *call = &work->call;
  const int64_t group = call->desc->heads / call->desc->key_heads;
  for (int64_t t = 0; t < work->trees; t++) {
    hark_tree *tree = &work->tree[t];
    tree->head = tree->key_head * group + member;
    tree->add_first = member > 0;
    tree->is_far = false;
    if (hark_has_terms(call->desc)) HARK_ISA(hark_hierarchical_make_terms)(tree, 0);
    /* what all compute counts once */
    for (int level = call->shared + 1; work->before >= 0 && level < tree->hierarchy.levels; level++) tree->level[level].dterms = NULL;
    HARK_ISA(hark_hierarchical_place_head)(tree, &work->own[t]);
  }
}

static hark_status make_queries(spread_work *work, int64_t member) {
  begin_heads(work, member);
  make_own(work, false, false);
  return ship_queries(work);
}

/* ---- forward ---- */

static void run_forward(const spread_work *work) {
  int level = work->call.shared;
  while (level > LOWEST + 1 && work->trees * hark_ceil_div(own_tokens(work, level).to - own_tokens(work, level).from, HARK_TILE_QUERIES) <
                                   4 * hark_workers(work->call.context))
    level--;
  const stage roots = pieces_of(work, FORWARD, level, own_tokens(work, level), HARK_TILE_QUERIES);
  run_stage(&roots);
}

static hark_status forward(spread_work *work) {
  const int64_t group = work->call.desc->heads / work->call.desc->key_heads;
  HARK_TRY(make_keys(work));
  for (int64_t member = 0; member < group; member++) {
    HARK_TRY(make_queries(work, member));
    run_forward(work);
  }
  return HARK_OK;
}

/* ---- backward ---- */

/* Sets which trees are far in any process. */
static hark_status agree_about_far(spread_work *work, bool *any) {
  const int rank = work->peers->rank;
  unsigned char *mine = work->far + rank * work->trees;
  int count = 0;
  for (int64_t t = 0; t < work->trees; t++)
    mine[t] = HARK_ISA(hark_hierarchical_any_far)(&work->tree[t], work->call.first_row, work->call.end_row);
  for (int peer = 0; peer < work->peers->size; peer++)
    for (int sends = 0; sends < 2 && peer != rank && has_rows(work, peer); sends++)
      work->parcels[count++] =
          (hark_attention_parcel){sends ? mine : work->far + peer * work->trees, (size_t)work->trees, peer, sends == 1};
  if (count > 0) HARK_TRY(work->peers->exchange(work->call.context, work->peers->user, work->parcels, count));
  *any = false;
  for (int64_t t = 0; t < work->trees; t++) {
    for (int peer = 0; peer < work->peers->size; peer++)
      work->tree[t].is_far = work->tree[t].is_far || (has_rows(work, peer) && work->far[peer * work->trees + t] != 0);
    *any = *any || work->tree[t].is_far;
  }
  return HARK_OK;
}

/* Recomputes log-sum-exp of rows far from 0, and then everything that depends on it. */
static hark_status exact_sums(spread_work *work) {
  bool any;
  HARK_TRY(agree_about_far(work, &any));
  if (!any) return HARK_OK;
  for (int64_t t = 0; t < work->trees; t++)
    if (work->tree[t].is_far) HARK_ISA(hark_hierarchical_begin_far_rows)(&work->tree[t], work->call.first_row, work->call.end_row);
  stage windows = pieces_of(work, EXACT_SUMS_WINDOW, 0, own_tokens(work, 0), HARK_WINDOW_ROWS);
  windows.only_far = true;
  run_stage(&windows);
  make_own(work, false, true);
  return ship_queries(work);
}

/* Even pieces, then odd ones, with the sums of the neighbours between. */
static hark_status run_pieces(spread_work *work, const stage *pieces) {
  run_alternate(pieces, 0);
  list_gradients(work, pieces->level, true);
  HARK_TRY(ship(work));
  run_alternate(pieces, 1);
  list_gradients(work, pieces->level, false);
  return ship(work);
}

static hark_status backward_heads(spread_work *work) {
  const int64_t rows = hark_piece_rows(work->hierarchy.block);
  for (int level = work->hierarchy.levels - 1; level > work->call.shared; level--) {
    const stage all = pieces_of(work, BACKWARD, level, (hark_held){0, hark_hierarchy_tokens(&work->hierarchy, level)}, rows);
    run_alternate(&all, 0);
    run_alternate(&all, 1);
  }
  for (int level = work->call.shared; level >= LOWEST; level--) {
    const stage own = pieces_of(work, BACKWARD, level, own_tokens(work, level), rows);
    HARK_TRY(run_pieces(work, &own));
  }
  const stage windows = pieces_of(work, BACKWARD_WINDOW, 0, own_tokens(work, 0), HARK_WINDOW_ROWS);
  HARK_TRY(run_pieces(work, &windows));
  const stage give = pieces_of(work, GIVE_QUERIES, 0, own_tokens(work, 0), HARK_TOKEN_PIECE);
  run_stage(&give);
  return HARK_OK;
}

static void take_rows(const hark_tensor *from, const hark_tree *tree, int width, const hark_rows *to) {
  const hark_hierarchical_call *call = tree->call;
  const hark_rows rows = hark_rows_of(from, tree->sequence->item, tree->key_head, tree->sequence->key_row);
  for (int64_t row = call->first_row; row < call->end_row; row++)
    memcpy(to->data + row * to->stride, rows.data + row * rows.stride, (size_t)width * sizeof(float));
}

/* Sums that are added to the caller's gradient, as one process adds to it in place, begin with it. */
static hark_status begin_gradients(spread_work *work) {
  const hark_hierarchical_call *call = &work->call;
  const hark_attention_args *args = call->args;
  const bool keys = (args->accumulate & HARK_ACCUMULATE_KEY) != 0 && args->dkey.type != HARK_NONE && call->head_dim == call->head_pad;
  const bool values =
      (args->accumulate & HARK_ACCUMULATE_VALUE) != 0 && args->dvalue.type != HARK_NONE && call->value_dim == call->value_pad;
  if (!keys && !values) return HARK_OK;
  for (int64_t t = 0; t < work->trees; t++) {
    if (keys) take_rows(&args->dkey, &work->tree[t], call->head_dim, &work->tree[t].level[0].dkey);
    if (values) take_rows(&args->dvalue, &work->tree[t], call->value_dim, &work->tree[t].level[0].dvalue);
  }
  list_tokens(work, GRADIENTS, true, 1, 0);
  return ship(work);
}

static hark_status backward(spread_work *work) {
  const int64_t group = work->call.desc->heads / work->call.desc->key_heads;
  HARK_TRY(make_keys(work));
  HARK_TRY(begin_gradients(work));
  for (int64_t key_head = 0; work->call.tables.sums != NULL && key_head < work->call.desc->key_heads; key_head++)
    HARK_ISA(hark_hierarchical_tables_begin_slot)(&work->call, 0, key_head);
  for (int64_t member = 0; member < group; member++) {
    HARK_TRY(make_queries(work, member));
    HARK_TRY(exact_sums(work));
    HARK_TRY(backward_heads(work));
  }
  const stage give = pieces_of(work, GIVE_KEYS, 0, own_tokens(work, 0), HARK_TOKEN_PIECE);
  run_stage(&give);
  if (work->call.tables.sums != NULL) HARK_ISA(hark_hierarchical_tables_give)(&work->call);
  return HARK_OK;
}

/* ---- division and memory ---- */

int64_t HARK_ISA(hark_hierarchical_spread_unit)(const hark_attention_desc *desc, int64_t total, char *why, size_t size) {
  const char *reason = NULL;
  if (desc->coarse_query == HARK_COARSE_QUERY_EXACT)
    reason = "coarse_query is exact";
  else if (desc->interpolation != HARK_INTERPOLATION_CONSTANT)
    reason = "interpolation is not constant";
  else if (!hark_windows_fit(desc->hierarchy_block))
    reason = "hierarchy_block is not a power of two up to 64";
  else if (total < HARK_WINDOWED_ROWS)
    reason = "there are fewer than 8192 rows";
  if (reason == NULL) return 2 * hark_piece_rows(desc->hierarchy_block) << LOWEST;
  if (size > 0) (void)snprintf(why, size, "%s", reason);
  return 0;
}

/* The highest level on which parts begin at multiples of `tokens`; at most the second highest of all. */
static int shared_levels(const hark_attention_peers *peers, const hark_hierarchy *h, int64_t tokens) {
  int level = LOWEST;
  for (; level < h->levels - 2; level++)
    for (int rank = 0; rank < peers->size; rank++)
      if (peers->first[rank] < peers->total && peers->first[rank] % (tokens << (level + 1)) != 0) return level;
  return level;
}

static void find_neighbours(spread_work *work) {
  const int rank = work->peers->rank;
  work->before = work->after = -1;
  for (int peer = 0; peer < work->peers->size; peer++) {
    if (!has_rows(work, peer)) continue;
    if (peer < rank) work->before = peer;
    if (peer > rank && work->after < 0) work->after = peer;
  }
}

static void describe(spread_work *work, hark_context *context, const hark_attention_call *run, const hark_attention_peers *peers,
                     bool backward_too) {
  const hark_attention_desc *desc = &run->plan->desc;
  work->peers = peers;
  work->run = *run;
  work->hierarchy = hark_hierarchy_make(desc, peers->total);
  work->trees = run->sequence_count * desc->key_heads;
  hark_hierarchical_call *call = &work->call;
  *call = HARK_ISA(hark_hierarchical_make_call)(context, &work->run, backward_too);
  call->tables.longest = work->hierarchy;
  call->peers = peers;
  call->first_row = peers->first[peers->rank];
  call->end_row = peers->first[peers->rank + 1];
  call->halo = backward_too ? 2 * desc->hierarchy_block : desc->hierarchy_block;
  call->halo_rows = hark_window_reach(desc->hierarchy_block);
  call->shared = shared_levels(peers, &work->hierarchy, backward_too ? 2 * hark_piece_rows(desc->hierarchy_block) : HARK_TILE_QUERIES);
  call->windowed = HARK_WINDOWED_ROWS;
  find_neighbours(work);
}

/* Memory in one block, whose parts are laid out twice: to count its bytes, and to place them. */
typedef struct block {
  char *data; /* NULL: only counted */
  size_t bytes;
} block;

static hark_status take_part(spread_work *work, block *from, size_t count, size_t size, char **part) {
  HARK_TRY(hark_size_multiply(work->call.context, count, size, &size));
  *part = from->data == NULL ? NULL : from->data + from->bytes;
  HARK_TRY(hark_size_add(work->call.context, from->bytes, size, &size));
  HARK_TRY(hark_size_add(work->call.context, size, HARK_ALIGNMENT, &size));
  from->bytes = hark_align_up(size - HARK_ALIGNMENT);
  return HARK_OK;
}

/* What must be known before the rest: who sends how much. */
static hark_status place_lists(spread_work *work, block *from) {
  char *parts[6];
  const size_t trees = (size_t)work->trees, peers = (size_t)work->peers->size;
  const size_t sizes[] = {
      sizeof(hark_attention_sequence),          sizeof(hark_tree), sizeof(hark_level), peers, 2 * peers * sizeof(shipment),
      2 * peers * sizeof(hark_attention_parcel)};
  const size_t counts[] = {(size_t)work->run.sequence_count, trees, trees, trees, 1, 1};
  for (int i = 0; i < 6; i++) HARK_TRY(take_part(work, from, counts[i], sizes[i], &parts[i]));
  work->sequences = (hark_attention_sequence *)(void *)parts[0];
  work->tree = (hark_tree *)(void *)parts[1];
  work->own = (hark_level *)(void *)parts[2];
  work->far = (unsigned char *)parts[3];
  work->shipments = (shipment *)(void *)parts[4];
  work->parcels = (hark_attention_parcel *)(void *)parts[5];
  return HARK_OK;
}

static hark_status place_numbers(spread_work *work, block *from) {
  hark_hierarchical_call *call = &work->call;
  const hark_attention_desc *desc = call->desc;
  const int workers = work->run.plan->workers;
  const size_t window = HARK_ISA(hark_hierarchical_window_floats)(desc->hierarchy_block, (size_t)call->head_pad, (size_t)call->value_pad,
                                                                  call->backward, call->rbf);
  size_t tree, tables;
  char *parts[4];
  call->tile_bytes = hark_align_up(HARK_ISA(hark_hierarchical_worker_floats)(desc, call->backward) * sizeof(float));
  call->worker_bytes = call->tile_bytes + hark_align_up(window * sizeof(float));
  HARK_TRY(HARK_ISA(hark_hierarchical_count_spread_tree)(call, &work->hierarchy, &tree));
  HARK_TRY(HARK_ISA(hark_hierarchical_tables_bytes)(call->context, desc, workers, call->backward, &tables));
  HARK_TRY(take_part(work, from, (size_t)work->trees, tree, &parts[0]));
  HARK_TRY(take_part(work, from, (size_t)workers, call->worker_bytes, &parts[1]));
  HARK_TRY(take_part(work, from, 1, tables, &parts[2]));
  HARK_TRY(take_part(work, from, most_floats(work), sizeof(float), &parts[3]));
  call->tree_floats = tree / sizeof(float);
  call->trees = (float *)(void *)parts[0];
  call->workers = parts[1];
  work->buffer = (float *)(void *)parts[3];
  if (from->data == NULL) return HARK_OK;
  const bool gradients = HARK_ISA(hark_hierarchical_tables_requested)(call->args, call->backward);
  HARK_ISA(hark_hierarchical_tables_open)(call, gradients, (double *)(void *)parts[2]);
  call->tables.slots = 1;
  return HARK_OK;
}

/* Sequences as one process has them; rows of the tensors are those from first_row on. */
static void list_sequences(spread_work *work) {
  for (int64_t s = 0; s < work->run.sequence_count; s++)
    work->sequences[s] = (hark_attention_sequence){.item = work->run.sequences[s].item,
                                                   .query_row = -work->call.first_row,
                                                   .key_row = -work->call.first_row,
                                                   .query_count = work->peers->total,
                                                   .key_count = work->peers->total};
  work->run.sequences = work->sequences;
}

/* Tokens beyond the own ones are masked until they come. */
static void mask_halo(const spread_work *work, const hark_tree *tree) {
  for (int level = 0; level <= work->call.shared; level++) {
    const hark_held held = hark_held_tokens(&work->call, &work->hierarchy, level), own = own_tokens(work, level);
    if (tree->level[level].key_count == NULL) continue;
    for (int64_t b = held.from; b < own.from; b++) tree->level[level].key_count[b] = 0.0f;
    for (int64_t b = own.to; b < held.to; b++) tree->level[level].key_count[b] = 0.0f;
  }
}

static void place_trees(spread_work *work) {
  for (int64_t t = 0; t < work->trees; t++) {
    const int64_t key_heads = work->call.desc->key_heads;
    work->tree[t] = HARK_ISA(hark_hierarchical_place_tree)(&work->call, t / key_heads, t % key_heads, t);
    work->own[t] = work->tree[t].level[0];
    mask_halo(work, &work->tree[t]);
  }
}

/* For most_floats(): a tree that sends everything. */
static void sketch_trees(spread_work *work) {
  for (int64_t t = 0; t < work->trees; t++) work->tree[t] = (hark_tree){.call = &work->call, .is_far = work->call.backward};
}

/* Places the lists, at the front of the given memory if there is any, and counts the rest, which is made from them. */
static hark_status count_memory(spread_work *work, block *lists, block *numbers) {
  void *data = work->peers->memory;
  HARK_TRY(place_lists(work, lists));
  if (data == NULL) HARK_TRY(hark_allocate(work->call.context, lists->bytes, &data));
  *lists = (block){.data = data};
  HARK_TRY(place_lists(work, lists));
  sketch_trees(work);
  return place_numbers(work, numbers);
}

static hark_status open_memory(spread_work *work, block *lists, block *numbers) {
  HARK_TRY(count_memory(work, lists, numbers));
  void *data = work->peers->memory != NULL ? lists->data + lists->bytes : NULL;
  if (data == NULL) HARK_TRY(hark_allocate(work->call.context, numbers->bytes, &data));
  *numbers = (block){.data = data};
  HARK_TRY(place_numbers(work, numbers));
  list_sequences(work);
  place_trees(work);
  return HARK_OK;
}

static void close_memory(hark_context *context, const hark_attention_peers *peers, const block *lists, const block *numbers) {
  if (peers->memory != NULL) return;
  if (numbers->data != NULL) hark_release(context, numbers->data, numbers->bytes);
  if (lists->data != NULL) hark_release(context, lists->data, lists->bytes);
}

static bool is_idle(const spread_work *work) { return work->trees == 0 || !has_rows(work, work->peers->rank); }

hark_status HARK_ISA(hark_hierarchical_spread)(hark_context *context, const hark_attention_call *run, const hark_attention_peers *peers,
                                               bool backward_too) {
  spread_work work = {.count = 0};
  block lists = {.data = NULL}, numbers = {.data = NULL};
  describe(&work, context, run, peers, backward_too);
  const bool idle = is_idle(&work);
  hark_status status = peers->agree(context, peers->user, idle ? HARK_OK : open_memory(&work, &lists, &numbers));
  if (status == HARK_OK && !idle) status = backward_too ? backward(&work) : forward(&work);
  close_memory(context, peers, &lists, &numbers);
  return status;
}

hark_status HARK_ISA(hark_hierarchical_spread_bytes)(hark_context *context, const hark_attention_call *run,
                                                     const hark_attention_peers *peers, bool backward_too, size_t *bytes) {
  spread_work work = {.count = 0};
  block lists = {.data = NULL}, numbers = {.data = NULL};
  *bytes = 0;
  describe(&work, context, run, peers, backward_too);
  if (is_idle(&work)) return HARK_OK;
  hark_status status = count_memory(&work, &lists, &numbers);
  if (status == HARK_OK) status = hark_size_add(context, lists.bytes, numbers.bytes, bytes);
  close_memory(context, peers, &lists, &numbers);
  return status;
}
