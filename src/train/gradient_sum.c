/* gradient_sum.c - see gradient_sum.h. */
#include "train/gradient_sum.h"

#include <hark/operators.h>
#include <string.h>
#include "models/packed_batch.h"

bool hark_sum_blocks_join(const hark_sum_blocks *blocks) {
  if (blocks->count < 2) return false;
  const hark_sum_block *left = &blocks->list[blocks->count - 2], *right = left + 1;
  return left->count == right->count && left->first % (2 * left->count) == 0;
}

void hark_sum_blocks_merge(hark_sum_blocks *blocks) {
  hark_sum_block *const left = &blocks->list[--blocks->count - 1];
  left->count += left[1].count;
}

void hark_sum_blocks_push(hark_sum_blocks *blocks, hark_sum_block block) { blocks->list[blocks->count++] = block; }

/* The subtrees of a share; *most: the largest number that waits while a part is computed. */
static hark_sum_blocks blocks_of(hark_share share, int *most) {
  hark_sum_blocks blocks = {0};
  *most = 0;
  for (int64_t part = share.first; part < share.first + share.count; part++) {
    *most = blocks.count > *most ? blocks.count : *most;
    hark_sum_blocks_push(&blocks, (hark_sum_block){part, 1});
    while (hark_sum_blocks_join(&blocks)) hark_sum_blocks_merge(&blocks);
  }
  return blocks;
}

/* ---- the processes of a group ---- */

/* The gradients are exchanged in pieces: round r has pieces r size .. r size + size - 1, one for each process to join. */
#define MOST_PIECE ((int64_t)1 << 18)
#define LEAST_PIECE 1024
#define ROOM_NUMBERS ((int64_t)1 << 24) /* of all pieces that a process holds, unless they are the least */
#define PIECE_MULTIPLE 16               /* numbers of a cache line */

/* The subtrees of all processes, in order. */
typedef struct all_blocks {
  hark_sum_block *list; /* [count] */
  int *first;           /* [size + 1]: of each process */
  int count, size;
} all_blocks;

/* A step's exchange. */
typedef struct exchange {
  hark_context *context;
  hark_group *group;
  hark_gradient_sum *sum;
  int64_t numbers; /* of a piece */
  all_blocks blocks;
  int own;                /* subtrees of this process */
  float *sent;            /* [own, size, numbers]: what other processes join */
  float *received;        /* [blocks.count, numbers]: what this one joins */
  hark_message *messages; /* room for those of a round */
} exchange;

/* Lists the subtrees of all processes, or without `out` counts them; *most: of one process. */
static int list_blocks(const hark_gradient_sum *sum, int size, all_blocks *out, int *most) {
  int count = 0, unused;
  *most = 0;
  for (int rank = 0; rank < size; rank++) {
    const hark_sum_blocks blocks = blocks_of(hark_group_share(sum->parts, rank, size), &unused);
    if (out != NULL) out->first[rank] = count;
    if (out != NULL) memcpy(out->list + count, blocks.list, (size_t)blocks.count * sizeof *blocks.list);
    count += blocks.count;
    *most = blocks.count > *most ? blocks.count : *most;
  }
  if (out != NULL) out->first[size] = count;
  return count;
}

static int64_t messages_of(const hark_gradient_sum *sum, int64_t count, int64_t size) { return (sum->most_own + 2) * size + count; }

static size_t exchange_bytes(const hark_gradient_sum *sum, int count, int size) {
  return (size_t)((int64_t)sum->most_own * size + count) * (size_t)sum->piece * sizeof(float) + (size_t)count * sizeof(hark_sum_block) +
         (size_t)messages_of(sum, count, size) * sizeof(hark_message) + (size_t)(size + 1) * sizeof(int);
}

/* Sizes and memory of the exchange, the same for all processes. */
static hark_status plan_exchange(hark_context *context, hark_gradient_sum *sum, int size, bool memory) {
  const int count = list_blocks(sum, size, NULL, &sum->most_own);
  const int64_t places = (int64_t)sum->most_own * size + count, share = hark_ceil_div(sum->gradients.shape[0], size);
  const int64_t piece = hark_min(hark_min(MOST_PIECE, share), hark_max(LEAST_PIECE, ROOM_NUMBERS / places));
  sum->piece = hark_ceil_div(piece, PIECE_MULTIPLE) * PIECE_MULTIPLE;
  sum->memory_bytes = exchange_bytes(sum, count, size);
  if (!memory) return HARK_OK;
  HARK_TRY(hark_group_reserve(context, context->group, messages_of(sum, count, size)));
  return hark_allocate(context, sum->memory_bytes, &sum->memory);
}

hark_status hark_gradient_sum_create(hark_context *context, const hark_tensor *gradients, int64_t parts, bool memory,
                                     hark_gradient_sum *out) {
  const int size = hark_group_size(context->group);
  int needed = 0;
  *out = (hark_gradient_sum){.gradients = *gradients, .parts = parts};
  const int ranks = hark_group_size(context->sequence), needed_parts = size / ranks;
  if (parts < size)
    return hark_fail(context, HARK_BAD_CONFIGURATION,
                     "train.accumulate is %lld: the micro-batches of a step are shared by %d processes%s, expected at least %d, and "
                     "train.batch smaller for it",
                     (long long)(parts / ranks), size, ranks > 1 ? " in groups of run.sequence_ranks" : "", needed_parts);
  out->share = hark_group_share(parts, hark_group_rank(context->group), size);
  (void)blocks_of(out->share, &needed);
  for (; out->saved_count < needed; out->saved_count++)
    HARK_TRY(hark_tensor_make(context, memory, gradients->type, 1, gradients->shape, &out->saved[out->saved_count]));
  return size > 1 ? plan_exchange(context, out, size, memory) : HARK_OK;
}

void hark_gradient_sum_destroy(hark_context *context, hark_gradient_sum *sum) {
  if (sum->memory != NULL) hark_release(context, sum->memory, sum->memory_bytes);
  sum->memory = NULL;
  for (int i = 0; i < HARK_GRADIENT_SUM_DEPTH; i++) hark_tensor_destroy(context, &sum->saved[i]);
}

static size_t bytes_of(const hark_tensor *tensor) { return (size_t)hark_tensor_count(tensor) * hark_type_bytes(tensor->type); }

size_t hark_gradient_sum_bytes(const hark_gradient_sum *sum) {
  return (sum->saved_count > 0 ? (size_t)sum->saved_count * bytes_of(&sum->gradients) : 0) + sum->memory_bytes;
}

void hark_gradient_sum_begin(hark_gradient_sum *sum) {
  sum->blocks.count = 0;
  sum->next = sum->share.first;
}

hark_status hark_gradient_sum_open(hark_context *context, hark_gradient_sum *sum) {
  const int waiting = sum->blocks.count;
  if (waiting > sum->saved_count) return hark_fail(context, HARK_INVALID_ARGUMENT, "engine: more micro-batches than train.accumulate");
  if (waiting > 0) HARK_TRY(hark_backend_copy(context, sum->saved[waiting - 1].data, sum->gradients.data, bytes_of(&sum->gradients)));
  return hark_tensor_zero(context, &sum->gradients);
}

/* Adds the subtree before the last one to it. */
static hark_status join(hark_context *context, hark_gradient_sum *sum) {
  const hark_call call = {
      .op = &hark_op_add, .input_count = 2, .inputs = {sum->saved[sum->blocks.count - 2], sum->gradients}, .outputs = {sum->gradients}};
  HARK_TRY(hark_operator_forward(context, &call));
  hark_sum_blocks_merge(&sum->blocks);
  return HARK_OK;
}

hark_status hark_gradient_sum_close(hark_context *context, hark_gradient_sum *sum) {
  hark_sum_blocks_push(&sum->blocks, (hark_sum_block){sum->next++, 1});
  while (hark_sum_blocks_join(&sum->blocks)) HARK_TRY(join(context, sum));
  return HARK_OK;
}

/* ---- exchange ---- */

static int64_t first_of(const exchange *x, int64_t round, int piece) { return (round * x->blocks.size + piece) * x->numbers; }

static int64_t numbers_of(const exchange *x, int64_t round, int piece) {
  const int64_t left = x->sum->gradients.shape[0] - first_of(x, round, piece);
  return left < 0 ? 0 : hark_min(left, x->numbers);
}

static const hark_tensor *buffer_of(const hark_gradient_sum *sum, int block) {
  return block + 1 == sum->blocks.count ? &sum->gradients : &sum->saved[block];
}

static hark_status read_numbers(const exchange *x, int block, int64_t first, int64_t count, float *out) {
  const float *const from = (const float *)buffer_of(x->sum, block)->data + first;
  return hark_backend_read(x->context, out, from, (size_t)count * sizeof *out);
}

/* Every process's subtrees of the pieces of a round, at the process that joins them. */
static hark_status send_subtrees(const exchange *x, int64_t round) {
  const int rank = hark_group_rank(x->group), size = x->blocks.size;
  int count = 0;
  for (int peer = 0; peer < size; peer++) {
    const int64_t numbers = numbers_of(x, round, peer), own = numbers_of(x, round, rank);
    for (int block = 0; block < x->own && numbers > 0; block++) {
      float *const to =
          peer == rank ? x->received + (x->blocks.first[rank] + block) * x->numbers : x->sent + (block * size + peer) * x->numbers;
      HARK_TRY(read_numbers(x, block, first_of(x, round, peer), numbers, to));
      if (peer != rank) x->messages[count++] = (hark_message){to, (size_t)numbers * sizeof *to, peer, true};
    }
    for (int block = x->blocks.first[peer]; block < x->blocks.first[peer + 1] && peer != rank && own > 0; block++)
      x->messages[count++] = (hark_message){x->received + block * x->numbers, (size_t)own * sizeof(float), peer, false};
  }
  return hark_group_exchange(x->context, x->group, x->messages, count);
}

static void add_to(float *left, const float *right, int64_t count) {
  for (int64_t i = 0; i < count; i++) left[i] += right[i];
}

/* The sum of the subtrees of this process's piece, where the first one was. */
static void join_piece(const exchange *x, int64_t numbers) {
  hark_sum_blocks joined = {0};
  float *values[HARK_GRADIENT_SUM_DEPTH];
  for (int block = 0; block < x->blocks.count; block++) {
    values[joined.count] = x->received + block * x->numbers;
    hark_sum_blocks_push(&joined, x->blocks.list[block]);
    for (; hark_sum_blocks_join(&joined); hark_sum_blocks_merge(&joined))
      add_to(values[joined.count - 2], values[joined.count - 1], numbers);
  }
  for (; joined.count > 1; hark_sum_blocks_merge(&joined)) add_to(values[joined.count - 2], values[joined.count - 1], numbers);
}

/* The joined pieces of a round at all processes. */
static hark_status share_pieces(const exchange *x, int64_t round) {
  const int rank = hark_group_rank(x->group), size = x->blocks.size;
  const int64_t own = numbers_of(x, round, rank);
  int count = 0;
  for (int peer = 0; peer < size; peer++) {
    const int64_t numbers = numbers_of(x, round, peer);
    if (peer == rank) continue;
    if (own > 0) x->messages[count++] = (hark_message){x->received, (size_t)own * sizeof(float), peer, true};
    if (numbers > 0) x->messages[count++] = (hark_message){x->sent + peer * x->numbers, (size_t)numbers * sizeof(float), peer, false};
  }
  HARK_TRY(hark_group_exchange(x->context, x->group, x->messages, count));
  for (int piece = 0; piece < size; piece++) {
    const float *const from = piece == rank ? x->received : x->sent + piece * x->numbers;
    float *const to = (float *)x->sum->gradients.data + first_of(x, round, piece);
    const size_t bytes = (size_t)numbers_of(x, round, piece) * sizeof *to;
    if (bytes > 0) HARK_TRY(hark_backend_write(x->context, to, from, bytes));
  }
  return HARK_OK;
}

static hark_status run_rounds(const exchange *x) {
  const int64_t rounds = hark_ceil_div(x->sum->gradients.shape[0], x->numbers * x->blocks.size);
  for (int64_t round = 0; round < rounds; round++) {
    HARK_TRY(send_subtrees(x, round));
    join_piece(x, numbers_of(x, round, hark_group_rank(x->group)));
    HARK_TRY(share_pieces(x, round));
  }
  return HARK_OK;
}

/* The sum of the subtrees of all processes, in the gradients of all. */
static hark_status exchange_subtrees(hark_context *context, hark_gradient_sum *sum) {
  const int size = hark_group_size(context->group);
  int most = 0;
  exchange x = {.context = context, .group = context->group, .sum = sum, .numbers = sum->piece, .own = sum->blocks.count};
  x.blocks.size = size;
  x.blocks.count = list_blocks(sum, size, NULL, &most);
  x.sent = sum->memory;
  x.received = x.sent + (int64_t)sum->most_own * size * sum->piece;
  x.blocks.list = (hark_sum_block *)(x.received + x.blocks.count * sum->piece);
  x.messages = (hark_message *)(x.blocks.list + x.blocks.count);
  x.blocks.first = (int *)(x.messages + messages_of(sum, x.blocks.count, size));
  (void)list_blocks(sum, size, &x.blocks, &most);
  const hark_status status = run_rounds(&x);
  sum->blocks = (hark_sum_blocks){.list = {{0, sum->parts}}, .count = 1};
  return status;
}

hark_status hark_gradient_sum_finish(hark_context *context, hark_gradient_sum *sum) {
  if (hark_group_size(context->group) > 1) return exchange_subtrees(context, sum);
  while (sum->blocks.count > 1) HARK_TRY(join(context, sum));
  return HARK_OK;
}
