/* moment_share.c - see moment_share.h. */
#include "train/moment_share.h"

#define UNIT 64 /* numbers: bounds of ranges are multiples, whole vectors and cache lines */
#define MOST_PIECE ((int64_t)1 << 18)
#define LEAST_PIECE 1024
#define ROOM_NUMBERS ((int64_t)1 << 22) /* of the pieces of all processes, unless they are the least */

static int message_count(int size) { return 2 * (size - 1); }

hark_share hark_moment_share_range(const hark_moment_share *share, int rank, int size) {
  return share->divided ? hark_group_share_units(share->numbers, UNIT, rank, size) : (hark_share){0, share->numbers};
}

static bool is_before(const hark_moment_share *share, int64_t number, int rank, int size) {
  const hark_share range = hark_moment_share_range(share, rank, size);
  return range.first + range.count <= number;
}

int hark_moment_share_owner(const hark_moment_share *share, int64_t number, int size) {
  int least = 0, most = size - 1;
  while (least < most) {
    const int middle = (least + most) / 2;
    if (is_before(share, number, middle, size))
      least = middle + 1;
    else
      most = middle;
  }
  return least;
}

hark_parameter_group hark_moment_share_part(const hark_moment_share *share, const hark_parameter_group *group) {
  hark_parameter_group part = *group;
  const int64_t first = hark_max(group->first, share->range.first);
  const int64_t end = hark_min(group->first + group->count, share->range.first + share->range.count);
  part.first = first;
  part.count = hark_max(0, end - first);
  return part;
}

int64_t hark_moment_share_places(const hark_moment_share *share) { return hark_max(1, share->range.count); }

static int64_t largest_range(const hark_moment_share *share, int size) {
  int64_t most = 1;
  for (int rank = 0; rank < size; rank++) most = hark_max(most, hark_moment_share_range(share, rank, size).count);
  return most;
}

static int64_t piece_of(const hark_moment_share *share, int size) {
  const int64_t piece = hark_min(hark_min(MOST_PIECE, largest_range(share, size)), hark_max(LEAST_PIECE, ROOM_NUMBERS / size));
  return hark_ceil_div(piece, UNIT) * UNIT;
}

hark_status hark_moment_share_create(hark_context *context, bool divide, int64_t numbers, bool memory, hark_moment_share *out) {
  const int size = hark_group_size(context->group);
  *out = (hark_moment_share){.divided = divide && size > 1, .numbers = numbers};
  out->range = hark_moment_share_range(out, hark_group_rank(context->group), size);
  if (!out->divided) return HARK_OK;
  out->piece = piece_of(out, size);
  out->memory_bytes = (size_t)(out->piece * size) * sizeof(float) + (size_t)message_count(size) * sizeof(hark_message);
  if (!memory) return HARK_OK;
  HARK_TRY(hark_group_reserve(context, context->group, message_count(size)));
  return hark_allocate(context, out->memory_bytes, &out->memory);
}

void hark_moment_share_destroy(hark_context *context, hark_moment_share *share) {
  if (share->memory != NULL) hark_release(context, share->memory, share->memory_bytes);
  share->memory = NULL;
}

/* ---- the weights of all ---- */

typedef struct gathering {
  const hark_moment_share *share;
  float *weights; /* in the backend's memory */
  float *pieces;  /* [size, share->piece] */
  hark_message *messages;
  int size, rank;
} gathering;

/* What a process sends in a round. */
static hark_share piece_in(const gathering *g, int64_t round, int rank) {
  const hark_share range = hark_moment_share_range(g->share, rank, g->size);
  const int64_t at = hark_min(round * g->share->piece, range.count);
  return (hark_share){range.first + at, hark_min(g->share->piece, range.count - at)};
}

static float *place_of(const gathering *g, int rank) { return g->pieces + rank * g->share->piece; }

static hark_status exchange_round(hark_context *context, const gathering *g, int64_t round) {
  const hark_share own = piece_in(g, round, g->rank);
  const size_t own_bytes = (size_t)own.count * sizeof(float);
  int count = 0;
  if (own.count > 0) HARK_TRY(hark_backend_read(context, place_of(g, g->rank), g->weights + own.first, own_bytes));
  for (int peer = 0; peer < g->size; peer++) {
    const hark_share other = piece_in(g, round, peer);
    if (peer == g->rank) continue;
    if (own.count > 0) g->messages[count++] = (hark_message){place_of(g, g->rank), own_bytes, peer, true};
    if (other.count > 0) g->messages[count++] = (hark_message){place_of(g, peer), (size_t)other.count * sizeof(float), peer, false};
  }
  return hark_group_exchange(context, context->group, g->messages, count);
}

static hark_status run_round(hark_context *context, const gathering *g, int64_t round) {
  HARK_TRY(exchange_round(context, g, round));
  for (int peer = 0; peer < g->size; peer++) {
    const hark_share other = piece_in(g, round, peer);
    if (peer == g->rank || other.count == 0) continue;
    HARK_TRY(hark_backend_write(context, g->weights + other.first, place_of(g, peer), (size_t)other.count * sizeof(float)));
  }
  return HARK_OK;
}

hark_status hark_moment_share_gather(hark_context *context, const hark_moment_share *share, const hark_tensor *weights) {
  if (!share->divided) return HARK_OK;
  const int size = hark_group_size(context->group);
  float *const pieces = share->memory;
  const gathering g = {.share = share,
                       .weights = weights->data,
                       .pieces = pieces,
                       .messages = (hark_message *)(pieces + share->piece * size),
                       .size = size,
                       .rank = hark_group_rank(context->group)};
  const int64_t rounds = hark_ceil_div(largest_range(share, size), share->piece);
  for (int64_t round = 0; round < rounds; round++) HARK_TRY(run_round(context, &g, round));
  return HARK_OK;
}
