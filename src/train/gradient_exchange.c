/* gradient_exchange.c - see gradient_exchange.h. */
#include "train/gradient_exchange.h"

#include <string.h>

#include "train/gradient_sum.h"

/* Numbers of a piece: so many that a few rounds are under way when the backward ends, but no tiny messages. */
#define ROUNDS_MEANT 32
#define MOST_PIECE ((int64_t)1 << 17)
#define LEAST_MEANT ((int64_t)1 << 13)
#define LEAST_PIECE 1024
#define ROOM_NUMBERS ((int64_t)1 << 24) /* of all rounds under way, unless pieces are the least */
#define PIECE_MULTIPLE 16               /* numbers of a cache line */

#define UNUSED (INT32_MAX - 1) /* no leaf: the gradient stays as it is once the backward has begun */

/* A round under way has this many messages: subtrees out and in, or sums out and in. */
typedef struct round_place {
  int64_t round; /* -1: none */
  bool joined;   /* the sums are under way */
  int count, landed;
  hark_group_flight *flights;
  float *sent;     /* [own, size, numbers]: what other processes join */
  float *received; /* [blocks, numbers]: what this one joins */
} round_place;

struct hark_gradient_exchange {
  hark_context *context;
  hark_group *group;
  struct hark_gradient_sum *sum;
  size_t bytes; /* of all this */
  int size, rank;
  int own, waiting; /* subtrees of this process, and how many waited while its last part was computed */
  int places, blocks;
  int64_t numbers, rounds;
  hark_sum_block *list; /* [blocks]: the subtrees of all processes, in order */
  int *first;           /* [size + 1]: of each process */
  int64_t *order;       /* [rounds] */
  int32_t *after;       /* [rounds]: the round is final when all nodes from here on are done */
  hark_message *messages;
  float *joined; /* [numbers] */
  round_place place[HARK_EXCHANGE_ROUNDS];
  /* of a step */
  int64_t begun, ended; /* rounds */
  int64_t landed;       /* messages */
  int32_t done;         /* nodes of the last backward from here on */
  bool learned, armed, closed, running;
};

/* ---- sizes and memory ---- */

/* Lists the subtrees of all processes, or without `list` counts them; *most: of one process. */
static int list_blocks(const struct hark_gradient_sum *sum, int size, hark_sum_block *list, int *first, int *most) {
  int count = 0, unused;
  *most = 0;
  for (int rank = 0; rank < size; rank++) {
    const hark_sum_blocks blocks = hark_sum_blocks_of(hark_group_share(sum->parts, rank, size), &unused);
    if (list != NULL) first[rank] = count;
    if (list != NULL) memcpy(list + count, blocks.list, (size_t)blocks.count * sizeof *blocks.list);
    count += blocks.count;
    *most = blocks.count > *most ? blocks.count : *most;
  }
  if (list != NULL) first[size] = count;
  return count;
}

/* The same for all processes: they exchange the same pieces. */
typedef struct exchange_sizes {
  int64_t numbers, rounds, places, messages, sent, received; /* the last two: numbers of a round */
  int blocks;
  size_t bytes;
} exchange_sizes;

static size_t part_bytes(int64_t count, size_t bytes) { return hark_align_up((size_t)count * bytes); }

static exchange_sizes find_sizes(const struct hark_gradient_sum *sum, int size) {
  int most = 0;
  exchange_sizes s = {.blocks = list_blocks(sum, size, NULL, NULL, &most)};
  const int64_t total = sum->gradients.shape[0], pieces = (int64_t)most * size + s.blocks;
  const int64_t meant = hark_min(hark_ceil_div(total, size), hark_max(LEAST_MEANT, hark_ceil_div(total, (int64_t)size * ROUNDS_MEANT)));
  const int64_t piece = hark_min(hark_min(MOST_PIECE, meant), hark_max(LEAST_PIECE, ROOM_NUMBERS / pieces));
  s.numbers = hark_ceil_div(piece, PIECE_MULTIPLE) * PIECE_MULTIPLE;
  s.rounds = hark_ceil_div(total, s.numbers * size);
  s.places = hark_min(hark_min(HARK_EXCHANGE_ROUNDS, s.rounds), hark_max(1, ROOM_NUMBERS / (pieces * s.numbers)));
  s.messages = (int64_t)(most + 2) * size + s.blocks;
  s.sent = (int64_t)most * size * s.numbers;
  s.received = s.blocks * s.numbers;
  s.bytes = part_bytes(1, sizeof(hark_gradient_exchange)) + part_bytes(s.blocks, sizeof(hark_sum_block)) +
            part_bytes(size + 1, sizeof(int)) + part_bytes(s.rounds, sizeof(int64_t)) + part_bytes(s.rounds, sizeof(int32_t)) +
            part_bytes(s.messages, sizeof(hark_message)) + part_bytes(s.numbers, sizeof(float));
  s.bytes += (size_t)s.places * (part_bytes(s.messages, sizeof(hark_group_flight)) + part_bytes(s.sent, sizeof(float)) +
                                 part_bytes(s.received, sizeof(float)));
  return s;
}

static void *take(char **memory, int64_t count, size_t bytes) {
  void *const taken = *memory;
  *memory += part_bytes(count, bytes);
  return taken;
}

static void divide_memory(hark_gradient_exchange *x, const exchange_sizes *s, char *memory) {
  x->list = take(&memory, s->blocks, sizeof *x->list);
  x->first = take(&memory, x->size + 1, sizeof *x->first);
  x->order = take(&memory, s->rounds, sizeof *x->order);
  x->after = take(&memory, s->rounds, sizeof *x->after);
  x->messages = take(&memory, s->messages, sizeof *x->messages);
  x->joined = take(&memory, s->numbers, sizeof *x->joined);
  for (int p = 0; p < x->places; p++) {
    round_place *const place = &x->place[p];
    place->round = -1;
    place->flights = take(&memory, s->messages, sizeof *place->flights);
    place->sent = take(&memory, s->sent, sizeof(float));
    place->received = take(&memory, s->received, sizeof(float));
  }
}

static hark_status progress(hark_context *context, void *user);
static hark_status drain(hark_context *context, void *user, int64_t begun);

static void forget_leaves(hark_gradient_exchange *x) {
  for (int64_t round = 0; round < x->rounds; round++) x->after[round] = UNUSED;
}

hark_status hark_gradient_exchange_create(hark_context *context, struct hark_gradient_sum *sum, bool memory, hark_gradient_exchange **out,
                                          size_t *bytes) {
  const int size = hark_group_size(context->group), rank = hark_group_rank(context->group);
  const exchange_sizes s = find_sizes(sum, size);
  void *allocated = NULL;
  int unused = 0;
  *out = NULL;
  *bytes = s.bytes;
  if (!memory) return HARK_OK;
  HARK_TRY(hark_allocate_zero(context, s.bytes, &allocated));
  hark_gradient_exchange *const x = *out = allocated;
  *x = (hark_gradient_exchange){.context = context, .group = context->group, .sum = sum, .bytes = s.bytes, .size = size, .rank = rank};
  x->places = (int)s.places;
  x->blocks = s.blocks;
  x->numbers = s.numbers;
  x->rounds = s.rounds;
  divide_memory(x, &s, (char *)allocated + part_bytes(1, sizeof *x));
  (void)list_blocks(sum, size, x->list, x->first, &unused);
  x->own = x->first[rank + 1] - x->first[rank];
  x->waiting = hark_sum_blocks_of((hark_share){sum->share.first, sum->share.count - 1}, &unused).count;
  for (int64_t i = 0; i < x->rounds; i++) x->order[i] = x->rounds - 1 - i;
  forget_leaves(x);
  x->group->background = (hark_group_background){x, progress, drain};
  return HARK_OK;
}

void hark_gradient_exchange_destroy(hark_context *context, hark_gradient_exchange **exchange) {
  hark_gradient_exchange *const x = *exchange;
  *exchange = NULL;
  if (x == NULL) return;
  if (x->group->background.user == x) x->group->background = (hark_group_background){.user = NULL};
  hark_release(context, x, x->bytes);
}

/* ---- when rounds may begin ---- */

void hark_gradient_exchange_leaf(hark_gradient_exchange *x, int64_t first, int64_t count, int32_t node) {
  const int64_t numbers = x->numbers * x->size;
  if ((x->learned && !x->armed) || x->closed || count < 1) return;
  for (int64_t round = first / numbers; round <= (first + count - 1) / numbers; round++)
    x->after[round] = node < x->after[round] ? node : x->after[round];
}

/* By insertion: they are almost in order. */
static void learn_order(hark_gradient_exchange *x) {
  for (int64_t i = 1; i < x->rounds; i++) {
    const int64_t round = x->order[i];
    int64_t at = i;
    for (; at > 0 && x->after[x->order[at - 1]] < x->after[round]; at--) x->order[at] = x->order[at - 1];
    x->order[at] = round;
  }
  x->learned = true;
}

static bool is_final(const hark_gradient_exchange *x, int64_t round) { return x->closed || (x->armed && x->after[round] >= x->done); }

/* ---- a round ---- */

static int64_t first_of(const hark_gradient_exchange *x, int64_t round, int piece) { return (round * x->size + piece) * x->numbers; }

static int64_t numbers_of(const hark_gradient_exchange *x, int64_t round, int piece) {
  const int64_t left = x->sum->gradients.shape[0] - first_of(x, round, piece);
  return left < 0 ? 0 : hark_min(left, x->numbers);
}

static void add_to(float *left, const float *right, int64_t count) {
  for (int64_t i = 0; i < count; i++) left[i] += right[i];
}

static hark_status read_numbers(const hark_gradient_exchange *x, const hark_tensor *from, int64_t first, int64_t count, float *out) {
  return hark_backend_read(x->context, out, (const float *)from->data + first, (size_t)count * sizeof *out);
}

/* A subtree of this process. The last one is the last part, joined with those that waited for it. */
static hark_status read_subtree(const hark_gradient_exchange *x, int block, int64_t first, int64_t count, float *out) {
  const hark_tensor *const saved = x->sum->saved;
  if (block + 1 < x->own) return read_numbers(x, &saved[block], first, count, out);
  HARK_TRY(read_numbers(x, &x->sum->gradients, first, count, out));
  for (int before = x->waiting - 1; before >= block; before--) {
    HARK_TRY(read_numbers(x, &saved[before], first, count, x->joined));
    add_to(out, x->joined, count);
  }
  return HARK_OK;
}

static hark_status begin_messages(hark_gradient_exchange *x, round_place *place, int count) {
  place->count = count;
  place->landed = 0;
  const int channel = (int)((2 * place->round + place->joined) % HARK_GROUP_CHANNELS);
  return hark_group_begin(x->context, x->group, channel, x->messages, count, place->flights);
}

/* Every process's subtrees of the pieces of a round, to the process that joins them. */
static hark_status send_subtrees(hark_gradient_exchange *x, round_place *place) {
  const int rank = x->rank;
  const int64_t own = numbers_of(x, place->round, rank);
  int count = 0;
  for (int peer = 0; peer < x->size; peer++) {
    const int64_t numbers = numbers_of(x, place->round, peer);
    for (int block = 0; block < x->own && numbers > 0; block++) {
      float *const to = peer == rank ? place->received + (x->first[rank] + block) * x->numbers
                                     : place->sent + ((int64_t)block * x->size + peer) * x->numbers;
      HARK_TRY(read_subtree(x, block, first_of(x, place->round, peer), numbers, to));
      if (peer != rank) x->messages[count++] = (hark_message){to, (size_t)numbers * sizeof *to, peer, true};
    }
    for (int block = x->first[peer]; block < x->first[peer + 1] && peer != rank && own > 0; block++)
      x->messages[count++] = (hark_message){place->received + block * x->numbers, (size_t)own * sizeof(float), peer, false};
  }
  return begin_messages(x, place, count);
}

/* The sum of the subtrees of this process's piece, where the first one was. */
static void join_piece(const hark_gradient_exchange *x, const round_place *place) {
  const int64_t numbers = numbers_of(x, place->round, x->rank);
  hark_sum_blocks joined = {.count = 0};
  float *values[HARK_GRADIENT_SUM_DEPTH];
  for (int block = 0; block < x->blocks; block++) {
    values[joined.count] = place->received + block * x->numbers;
    hark_sum_blocks_push(&joined, x->list[block]);
    for (; hark_sum_blocks_join(&joined); hark_sum_blocks_merge(&joined))
      add_to(values[joined.count - 2], values[joined.count - 1], numbers);
  }
  for (; joined.count > 1; hark_sum_blocks_merge(&joined)) add_to(values[joined.count - 2], values[joined.count - 1], numbers);
}

/* The joined pieces of a round, to all processes. */
static hark_status send_sums(hark_gradient_exchange *x, round_place *place) {
  const int64_t own = numbers_of(x, place->round, x->rank);
  int count = 0;
  for (int peer = 0; peer < x->size; peer++) {
    const int64_t numbers = numbers_of(x, place->round, peer);
    if (peer == x->rank) continue;
    if (own > 0) x->messages[count++] = (hark_message){place->received, (size_t)own * sizeof(float), peer, true};
    if (numbers > 0) x->messages[count++] = (hark_message){place->sent + peer * x->numbers, (size_t)numbers * sizeof(float), peer, false};
  }
  place->joined = true;
  return begin_messages(x, place, count);
}

static hark_status store_sums(hark_gradient_exchange *x, const round_place *place) {
  for (int piece = 0; piece < x->size; piece++) {
    const float *const from = piece == x->rank ? place->received : place->sent + piece * x->numbers;
    float *const to = (float *)x->sum->gradients.data + first_of(x, place->round, piece);
    const size_t bytes = (size_t)numbers_of(x, place->round, piece) * sizeof *to;
    if (bytes > 0) HARK_TRY(hark_backend_write(x->context, to, from, bytes));
  }
  return HARK_OK;
}

/* ---- progress ---- */

/* As far as the messages of a round have arrived. */
static hark_status advance_round(hark_gradient_exchange *x, round_place *place) {
  while (place->round >= 0) {
    const int before = place->landed;
    HARK_TRY(hark_group_land(x->context, x->group, place->flights, place->count, &place->landed));
    x->landed += place->landed - before;
    if (place->landed < place->count) return HARK_OK;
    if (!place->joined) {
      join_piece(x, place);
      HARK_TRY(send_sums(x, place));
      continue;
    }
    HARK_TRY(store_sums(x, place));
    place->round = -1;
    x->ended++;
  }
  return HARK_OK;
}

static hark_status begin_round(hark_gradient_exchange *x, round_place *place) {
  place->round = x->order[x->begun++];
  place->joined = false;
  x->group->begun++;
  return send_subtrees(x, place);
}

/* Begins rounds up to number `most` that are final, or with `all` also others. */
static hark_status advance(hark_gradient_exchange *x, int64_t most, bool all) {
  for (int p = 0; p < x->places; p++) {
    HARK_TRY(advance_round(x, &x->place[p]));
    if (x->place[p].round < 0 && x->begun < most && (all || is_final(x, x->order[x->begun]))) HARK_TRY(begin_round(x, &x->place[p]));
  }
  return HARK_OK;
}

/* Not within the backward: a process may wait in an operator, whose backend is in use. */
static hark_status progress(hark_context *context, void *user) {
  hark_gradient_exchange *const x = user;
  (void)context;
  return x->closed && x->running ? advance(x, x->rounds, false) : HARK_OK;
}

/* A process that has not answered: with its subtrees, or at least with its sum. */
static int awaited(const hark_gradient_exchange *x) {
  int peer = x->rank;
  for (int joined = 1; joined >= 0; joined--)
    for (int p = 0; p < x->places; p++) {
      const round_place *const place = &x->place[p];
      if (place->round >= 0 && place->joined == (joined == 1) && place->landed < place->count) peer = place->flights[place->landed].peer;
    }
  return peer;
}

/* Until rounds up to number `most` have ended. */
typedef struct round_wait {
  hark_gradient_exchange *exchange;
  int64_t most;
} round_wait;

static hark_status poll_rounds(hark_context *context, void *user, int64_t *left, int *peer) {
  const round_wait *const w = user;
  (void)context;
  HARK_TRY(advance(w->exchange, w->most, true));
  *left = w->exchange->ended == w->most ? 0 : INT64_MAX - w->exchange->landed;
  *peer = awaited(w->exchange);
  return HARK_OK;
}

static hark_status wait_for_rounds(hark_gradient_exchange *x, int64_t most) {
  round_wait w = {x, most};
  HARK_TRY(hark_group_wait(x->context, x->group, poll_rounds, &w));
  x->running = false;
  return HARK_OK;
}

/* A process that failed before its last part begins them with what its gradients have; nobody uses these sums. */
static hark_status drain(hark_context *context, void *user, int64_t begun) {
  hark_gradient_exchange *const x = user;
  if (!x->running) hark_gradient_exchange_begin(x);
  const int64_t most = x->begun + begun - x->group->begun;
  if (most > x->rounds) return hark_fail(context, HARK_INTERNAL_ERROR, "the processes exchange gradients of different steps");
  return wait_for_rounds(x, most);
}

void hark_gradient_exchange_begin(hark_gradient_exchange *x) {
  if (!x->learned) learn_order(x);
  x->begun = x->ended = x->landed = 0;
  x->armed = x->closed = false;
  x->running = true;
}

void hark_gradient_exchange_arm(hark_gradient_exchange *x) {
  forget_leaves(x);
  x->done = INT32_MAX;
  x->armed = true;
}

hark_status hark_gradient_exchange_advance(hark_gradient_exchange *x, int32_t node) {
  if (!x->armed || x->closed || !x->running) return HARK_OK;
  x->done = node;
  return advance(x, x->rounds, false);
}

void hark_gradient_exchange_close(hark_gradient_exchange *x) { x->closed = true; }

hark_status hark_gradient_exchange_finish(hark_gradient_exchange *x) { return wait_for_rounds(x, x->rounds); }
