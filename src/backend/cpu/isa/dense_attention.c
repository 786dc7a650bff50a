/* dense_attention.c - the algorithm "dense tiled": dense and windowed softmax and stick-breaking attention in f32, O(length) memory.
 *
 *     out[n,:] = sum_i P[n,i] value[i,:],   P[n,:] = softmax over visible i of ( scale query[n].key[i] + terms[n,i] )
 *
 * This file: what is supported, the layout of memory, and the division of the work. dense_forward.c and dense_backward.c contain the loops
 * over tiles, dense_products.h the micro-kernels, dense_terms.c the terms of logits, dense_short.c sequences of few rows, stick_forward.c
 * and stick_backward.c the loops of normalisation stick_breaking, whose backward is divided by queries instead of keys.
 *
 * Scratch: tiles before each sequence | one area per worker | backward: parts of dquery (or of dkey and dvalue), exact rows | the terms'
 * memory, one after another.
 */
#include <math.h>
#include <stdio.h>

#include "backend/cpu/state.h"
#include "core/parallel.h"
#include "dense_contextual.h"
#include "stick_tile.h"

/* The backward is divided into at least this many pieces if there are fewer (sequence, key head) pairs: enough for a small machine's
 * threads, few enough that the parts of dquery stay small. */
#define BACKWARD_PIECES 16

/* Minimum multiply-adds per task, if there are enough: a few microseconds, so that the overhead of a task is small. */
#define TASK_PRODUCTS 2e5
#define PRODUCTS_A_NANOSECOND 30 /* of one thread, for short sequences; three times as many for long ones */

static bool supports(const hark_context *context, const hark_attention_desc *desc, char *why, size_t size) {
  (void)context;
  const char *reason = NULL;
  if (desc->type != HARK_F32)
    reason = "type is not f32";
  else if (desc->structure != HARK_STRUCTURE_DENSE && desc->structure != HARK_STRUCTURE_WINDOW)
    reason = "structure is neither dense nor window";
  else if (desc->kernel != HARK_KERNEL_EXP && desc->kernel != HARK_KERNEL_RBF)
    reason = "kernel is neither exp nor rbf";
  else if (desc->normalisation != HARK_NORMALISATION_SOFTMAX && desc->normalisation != HARK_NORMALISATION_STICK_BREAKING)
    reason = "normalisation is neither softmax nor stick_breaking";
  else if (!HARK_ISA(hark_dense_contextual_fits)(desc))
    reason = "contextual_positions and keys are more than 2^14";
  else if (desc->head_dim > INT32_MAX / HARK_TILE_QUERIES || desc->value_dim > INT32_MAX / HARK_TILE_QUERIES)
    reason = "head_dim or value_dim is too large";
  if (reason != NULL && size > 0) snprintf(why, size, "%s", reason);
  return reason == NULL;
}

/* Offsets of the parts of the scratch memory. */
typedef struct scratch_layout {
  size_t workers, partial, exact, terms[HARK_DENSE_TERM_COUNT], bytes;
  size_t worker_bytes, partial_floats;
} scratch_layout;

/* Number of pieces into which the keys of a (sequence, key head) are divided. */
static int64_t pieces_of(int64_t pairs) { return pairs < BACKWARD_PIECES ? hark_ceil_div(BACKWARD_PIECES, hark_max(pairs, 1)) : 1; }

static hark_status partial_floats(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  size_t most = 0;
  for (int64_t sequences = 1; pieces_of(sequences * desc->key_heads) > 1; sequences++) {
    size_t rows, floats;
    const int64_t each = hark_min(desc->longest, desc->query_length), all = desc->batch * desc->query_length;
    rows = (size_t)(sequences < all / each ? sequences * each : all);
    HARK_TRY(hark_size_multiply(context, rows / HARK_TILE_QUERIES + 1 + (size_t)sequences,
                                (size_t)(pieces_of(sequences * desc->key_heads) * HARK_TILE_QUERIES), &floats));
    HARK_TRY(hark_size_multiply(context, floats, (size_t)desc->heads, &floats));
    HARK_TRY(hark_size_multiply(context, floats, (size_t)desc->head_dim, &floats));
    most = floats > most ? floats : most;
  }
  *out = most;
  return HARK_OK;
}

static bool breaks_sticks(const hark_attention_desc *desc) { return desc->normalisation == HARK_NORMALISATION_STICK_BREAKING; }

static size_t tile_bytes(const hark_attention_desc *desc, bool backward) {
  if (breaks_sticks(desc)) return backward ? HARK_ISA(hark_stick_backward_bytes)(desc) : HARK_ISA(hark_stick_forward_bytes)(desc);
  return backward ? HARK_ISA(hark_dense_backward_bytes)(desc) : HARK_ISA(hark_dense_forward_bytes)(desc);
}

/* The most batch items times ranges of each of them. */
static int64_t most_pieces(const hark_attention_desc *desc, bool backward) {
  int64_t pieces = 1;
  for (int64_t batch = 1; backward && batch <= desc->batch && batch <= BACKWARD_PIECES; batch++)
    pieces = hark_max(pieces, batch * pieces_of(batch * desc->key_heads));
  return hark_max(pieces, desc->batch);
}

/* Parts of dkey and dvalue; none if there is always one range. */
static hark_status stick_floats(hark_context *context, const hark_attention_desc *desc, size_t *out) {
  size_t rows;
  *out = 0;
  if (pieces_of(desc->key_heads) == 1) return HARK_OK;
  HARK_TRY(hark_size_multiply(context, (size_t)most_pieces(desc, true), (size_t)desc->key_heads, &rows));
  HARK_TRY(hark_size_multiply(context, rows, (size_t)desc->key_length, &rows));
  return hark_size_multiply(context, rows, (size_t)(desc->head_dim + desc->value_dim), out);
}

static hark_status lay_out(hark_context *context, const hark_attention_desc *desc, int workers, bool backward, scratch_layout *out) {
  *out = (scratch_layout){0};
  const size_t sequences = (size_t)hark_max(desc->max_sequences, desc->batch);
  size_t bytes;
  HARK_TRY(hark_size_multiply(context, sequences + 1, sizeof(int64_t), &bytes));
  bytes = hark_align_up(bytes);
  out->workers = bytes;
  const size_t tile = tile_bytes(desc, backward);
  const size_t few = HARK_ISA(hark_dense_short_bytes)(desc);
  out->worker_bytes = hark_align_up(tile > few ? tile : few);
  size_t part;
  HARK_TRY(hark_size_multiply(context, out->worker_bytes, (size_t)workers, &part));
  HARK_TRY(hark_size_add(context, bytes, part, &bytes));
  out->partial = bytes;
  if (backward) {
    if (breaks_sticks(desc))
      HARK_TRY(stick_floats(context, desc, &out->partial_floats));
    else if (desc->contextual_positions == 0)
      HARK_TRY(partial_floats(context, desc, &out->partial_floats));
    else
      HARK_TRY(HARK_ISA(hark_dense_contextual_check)(context, desc));
    HARK_TRY(hark_size_multiply(context, out->partial_floats, sizeof(float), &part));
    HARK_TRY(hark_size_add(context, bytes, hark_align_up(part), &bytes));
    out->exact = bytes;
    HARK_TRY(hark_size_multiply(context, (size_t)desc->query_length, (size_t)desc->batch, &part));
    HARK_TRY(hark_size_multiply(context, part, (size_t)desc->heads, &part));
    HARK_TRY(hark_size_multiply(context, part, sizeof(hark_dense_exact_row), &part));
    HARK_TRY(hark_size_add(context, bytes, hark_align_up(part), &bytes));
  }
  /* The terms need at most a few dozen bytes for every row and head, or for every row, head and piece. */
  size_t rows;
  HARK_TRY(hark_size_multiply(context, (size_t)(desc->query_length + desc->key_length), (size_t)desc->batch, &rows));
  HARK_TRY(hark_size_multiply(context, rows, (size_t)desc->heads, &rows));
  HARK_TRY(hark_size_multiply(context, rows, 32 * BACKWARD_PIECES, &rows));
  const int64_t item_pieces = most_pieces(desc, backward);
  for (int i = 0; i < HARK_DENSE_TERM_COUNT; i++) {
    const hark_dense_term *term = HARK_ISA(hark_dense_terms)[i];
    out->terms[i] = bytes;
    if (term->bytes != NULL && term->used(desc, NULL))
      HARK_TRY(hark_size_add(context, bytes, hark_align_up(term->bytes(desc, backward, item_pieces)), &bytes));
  }
  out->bytes = bytes;
  return HARK_OK;
}

static hark_status sizes(hark_context *context, const hark_attention_desc *desc, int workers, hark_attention_sizes *out) {
  scratch_layout forward, backward = {0};
  HARK_TRY(lay_out(context, desc, workers, false, &forward));
  if (!desc->forward_only) HARK_TRY(lay_out(context, desc, workers, true, &backward));
  *out = (hark_attention_sizes){.saved = 0, .forward_workspace = forward.bytes, .backward_workspace = backward.bytes};
  return HARK_OK;
}

static hark_status begin(hark_context *context, const hark_attention_call *run, bool backward, hark_dense_call *call) {
  const hark_attention_desc *desc = &run->plan->desc;
  const hark_attention_args *args = run->args;
  scratch_layout layout;
  HARK_TRY(lay_out(context, desc, run->plan->workers, backward, &layout));
  if (hark_workers(context) > run->plan->workers)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "attention: the plan was made for %d threads, the context has %d", run->plan->workers,
                     hark_workers(context));
  const double sigma = desc->sigma;
  *call = (hark_dense_call){
      .context = context,
      .run = run,
      .desc = desc,
      .args = args,
      .backward = backward,
      .batch = args->query.shape[0],
      .heads = args->query.shape[1],
      .key_heads = args->key.shape[1],
      .query_rows = args->query.shape[2],
      .key_rows = args->key.shape[2],
      .head_dim = (int)desc->head_dim,
      .value_dim = (int)desc->value_dim,
      .head_pad = (int)hark_padded(desc->head_dim),
      .value_pad = (int)hark_padded(desc->value_dim),
      .scale = desc->kernel == HARK_KERNEL_RBF ? 1.0 / (sigma * sigma) : desc->scale,
      .window = desc->structure == HARK_STRUCTURE_WINDOW ? desc->window : -1,
      .causal = desc->causal,
      .sticks = breaks_sticks(desc),
      .rbf = desc->kernel == HARK_KERNEL_RBF,
      .contextual = desc->contextual_positions > 0,
      .ranges = run->sequence_count,
      .worker_bytes = layout.worker_bytes,
      .chunks = 1,
  };
  char *scratch = run->scratch;
  call->group = call->heads / hark_max(call->key_heads, 1);
  call->worker_memory = scratch + layout.workers;
  call->tiles_before = (int64_t *)(void *)scratch;
  int64_t most_key_tiles = 1; /* of a sequence; sticks: of queries */
  call->tiles_before[0] = 0;
  for (int64_t s = 0; s < run->sequence_count; s++) {
    call->tiles_before[s + 1] = call->tiles_before[s] + hark_ceil_div(run->sequences[s].query_count, HARK_TILE_QUERIES);
    most_key_tiles = hark_max(most_key_tiles, call->sticks ? call->tiles_before[s + 1] - call->tiles_before[s]
                                                           : hark_ceil_div(run->sequences[s].key_count, HARK_TILE_KEYS));
  }
  call->tile_count = call->tiles_before[run->sequence_count];
  if (run->part != NULL) {
    call->whole_keys = run->part->rows;
    call->queries_before = run->part->queries_before;
    call->keys_before = run->part->keys_before;
    most_key_tiles = hark_max(1, hark_ceil_div(run->part->rows, HARK_TILE_KEYS));
  }
  if (backward) {
    const int64_t pairs = hark_max(run->sequence_count, call->batch) * run->plan->key_heads;
    call->chunks = hark_min(pieces_of(pairs), most_key_tiles);
    const int64_t floats = call->sticks ? call->batch * call->key_heads * call->key_rows * (call->head_dim + call->value_dim)
                                        : call->tile_count * call->heads * call->head_dim * HARK_TILE_QUERIES;
    if (call->sticks && args->dforget.data != NULL) call->chunks = 1; /* its sums are by key, of all queries */
    if (call->contextual) {
      call->chunks = 1; /* its sums are over all farther keys */
      call->ranges = hark_dense_contextual_ranges(run->sequence_count, call->key_heads);
    }
    while (call->chunks > 1 && (size_t)(call->chunks * floats) > layout.partial_floats) call->chunks--;
    call->exact_rows = (hark_dense_exact_row *)(void *)(scratch + layout.exact);
    if (call->chunks > 1) call->partial_dquery = (float *)(void *)(scratch + layout.partial);
  }
  if (desc->dropout > 0.0) {
    call->dropout_threshold = hark_random_threshold(desc->dropout);
    call->dropout_gain = (float)(1.0 / (1.0 - desc->dropout));
    call->hides = true;
  }
  for (int i = 0; i < HARK_DENSE_TERM_COUNT; i++) {
    const hark_dense_term *term = HARK_ISA(hark_dense_terms)[i];
    if (!term->used(desc, args)) continue;
    call->term_memory[call->term_count] = scratch + layout.terms[i];
    call->terms[call->term_count++] = term;
    call->hides = call->hides || term->hides;
    call->starts = call->starts || term->start != NULL;
    call->general = call->general || term->start == NULL;
    call->adds = call->adds || (term != &HARK_ISA(hark_dense_rbf) && term != &HARK_ISA(hark_dense_mask));
  }
  call->general = call->general || call->dropout_threshold > 0;
  if (hark_dense_has_words(desc) && !call->adds && !call->sticks)
    call->arithmetic = hark_cpu_bf16_dots(context) ? HARK_ADD_DOTS : HARK_ADD_EMULATED;
  call->plain =
      call->term_count == 0 && call->dropout_threshold == 0 && !call->causal && call->window < 0 && !call->rbf && call->group == 1;
  return HARK_OK;
}

void HARK_ISA(hark_dense_visible_keys)(const hark_dense_call *call, const hark_attention_sequence *sequence, int64_t query, int64_t queries,
                                       int64_t *from, int64_t *to) {
  const int64_t first = query + sequence->offset, last = first + queries - 1; /* positions */
  *from = 0;
  *to = sequence->key_count;
  if (call->causal) *to = hark_min(*to, call->sticks ? last : last + 1);
  if (call->window >= 0) {
    *from = hark_max(*from, first - call->window);
    if (!call->causal && last < INT64_MAX - call->window) *to = hark_min(*to, last + call->window + 1);
  }
}

/* The sequence of piece `index`; the pieces of sequence s begin at tiles_before[s] * per_tile. */
static int64_t sequence_at(const hark_dense_call *call, int64_t index, int64_t per_tile) {
  int64_t low = 0, high = call->run->sequence_count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (call->tiles_before[middle] * per_tile <= index)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* Pieces of the forward and of summing dquery: (sequence, head, tile of queries). Within a head the last tile is first, because it has the
 * most work with causality. */
static void locate(const hark_dense_call *call, int64_t index, int64_t *sequence, int64_t *head, int64_t *tile) {
  *sequence = sequence_at(call, index, call->heads);
  const int64_t tiles = call->tiles_before[*sequence + 1] - call->tiles_before[*sequence];
  const int64_t local = index - call->tiles_before[*sequence] * call->heads;
  *head = local / tiles;
  *tile = tiles - 1 - local % tiles;
}

static void *memory_of(const hark_dense_call *call, int worker) { return call->worker_memory + (size_t)worker * call->worker_bytes; }

static void forward_piece(const hark_dense_call *call, int64_t index, int worker) {
  int64_t sequence, head, tile;
  locate(call, index, &sequence, &head, &tile);
  if (call->sticks)
    HARK_ISA(hark_stick_forward_tile)(call, sequence, head, tile, memory_of(call, worker));
  else if (HARK_ISA(hark_dense_is_short)(call, call->run->sequences + sequence))
    HARK_ISA(hark_dense_short_forward)(call, call->run->sequences + sequence, head, memory_of(call, worker));
  else
    HARK_ISA(hark_dense_forward_tile)(call, sequence, head, tile, memory_of(call, worker));
}

/* A short sequence is processed completely with its first range of keys. */
static void backward_piece(const hark_dense_call *call, int64_t index, int worker) {
  const int64_t pairs = call->run->sequence_count * call->key_heads;
  const int64_t chunk = index / pairs, pair = index % pairs; /* the first keys first: with causality they have the most work */
  const int64_t sequence = pair / call->key_heads, head = pair % call->key_heads;
  if (!HARK_ISA(hark_dense_is_short)(call, call->run->sequences + sequence))
    HARK_ISA(hark_dense_backward_range)(call, sequence, head, chunk, memory_of(call, worker));
  else if (chunk == 0)
    HARK_ISA(hark_dense_short_backward)(call, call->run->sequences + sequence, head, memory_of(call, worker));
}

/* The last queries first: they have the most work. */
static void stick_piece(const hark_dense_call *call, int64_t index, int worker) {
  const int64_t pairs = call->run->sequence_count * call->key_heads, pair = index % pairs;
  HARK_ISA(hark_stick_backward_range)
  (call, pair / call->key_heads, pair % call->key_heads, call->chunks - 1 - index / pairs, memory_of(call, worker));
}

/* The sequences of a range, one after another. */
static void contextual_piece(const hark_dense_call *call, int64_t index, int worker) {
  const int64_t range = index / call->key_heads, head = index % call->key_heads, sequences = call->run->sequence_count;
  const int64_t end = hark_dense_contextual_first(sequences, call->ranges, range + 1);
  for (int64_t s = hark_dense_contextual_first(sequences, call->ranges, range); s < end; s++)
    HARK_ISA(hark_dense_backward_range)(call, s, head, 0, memory_of(call, worker));
}

static void stick_gather_piece(const hark_dense_call *call, int64_t index, int worker) {
  (void)worker;
  HARK_ISA(hark_stick_gather)(call, index / call->key_heads, index % call->key_heads);
}

static void gather_piece(const hark_dense_call *call, int64_t index, int worker) {
  int64_t sequence, head, tile;
  locate(call, index, &sequence, &head, &tile);
  if (HARK_ISA(hark_dense_is_short)(call, call->run->sequences + sequence)) return; /* already computed */
  HARK_ISA(hark_dense_gather_dquery)(call, sequence, head, tile, memory_of(call, worker));
}

static void exact_piece(const hark_dense_call *call, int64_t index, int worker) {
  int64_t sequence, head, tile;
  locate(call, index, &sequence, &head, &tile);
  if (HARK_ISA(hark_dense_is_short)(call, call->run->sequences + sequence)) return; /* finds them itself */
  HARK_ISA(hark_dense_find_exact_rows)(call, sequence, head, tile, memory_of(call, worker));
}

typedef void piece_function(const hark_dense_call *call, int64_t index, int worker);

typedef struct piece_work {
  const hark_dense_call *call;
  piece_function *piece;
  int64_t pieces, grain;
} piece_work;

static void run_pieces(void *data, int64_t index, int worker) {
  const piece_work *work = data;
  const int64_t end = hark_min(work->pieces, (index + 1) * work->grain);
  for (int64_t i = index * work->grain; i < end; i++) work->piece(work->call, i, worker);
}

/* One task runs several small pieces. */
static void run_all(hark_context *context, const hark_dense_call *call, int64_t pieces, piece_function *piece) {
  double pairs = 0; /* without regard to causality and window */
  for (int64_t s = 0; s < call->run->sequence_count; s++)
    pairs += (double)call->run->sequences[s].query_count * (double)call->run->sequences[s].key_count;
  const double each = pairs * (double)call->heads * (call->head_dim + call->value_dim) / (double)hark_max(pieces, 1);
  piece_work work = {call, piece, pieces, each >= TASK_PRODUCTS ? 1 : (int64_t)(TASK_PRODUCTS / fmax(each, 1)) + 1};
  if (work.grain == 1 && call->causal) /* long ones, of different lengths */
    hark_parallel_for(context, pieces, run_pieces, &work);
  else
    hark_parallel_for_work(context, hark_ceil_div(pieces, work.grain), each * (double)pieces / PRODUCTS_A_NANOSECOND, run_pieces, &work);
}

typedef struct term_work {
  const hark_dense_call *call;
  const hark_dense_term *term;
  void *memory;
} term_work;

static void prepare_piece(void *data, int64_t index, int worker) {
  const term_work *work = data;
  (void)worker;
  work->term->prepare(work->call, work->memory, index);
}

static void finish_piece(void *data, int64_t index, int worker) {
  const term_work *work = data;
  work->term->finish(work->call, work->memory, index, memory_of(work->call, worker));
}

static void prepare_terms(hark_context *context, const hark_dense_call *call) {
  for (int i = 0; i < call->term_count; i++) {
    term_work work = {call, call->terms[i], call->term_memory[i]};
    if (work.term->prepare != NULL) hark_parallel_for(context, work.term->prepare_count(call), prepare_piece, &work);
  }
}

static void finish_terms(hark_context *context, const hark_dense_call *call) {
  for (int i = 0; i < call->term_count; i++) {
    term_work work = {call, call->terms[i], call->term_memory[i]};
    if (work.term->finish != NULL) hark_parallel_for(context, work.term->finish_count(call), finish_piece, &work);
  }
}

static hark_status forward(hark_context *context, const hark_attention_call *run) {
  hark_dense_call call;
  HARK_TRY(begin(context, run, false, &call));
  prepare_terms(context, &call);
  run_all(context, &call, call.tile_count * call.heads, forward_piece);
  return HARK_OK;
}

static bool has_far_rows(const hark_dense_call *call) {
  for (int64_t s = 0; s < call->run->sequence_count; s++)
    for (int64_t head = 0; head < call->heads; head++) {
      const hark_attention_sequence *sequence = call->run->sequences + s;
      const float *log_sum_exp = hark_dense_log_sum_exp(call, sequence, head);
      for (int64_t n = 0; n < sequence->query_count; n++)
        if (hark_dense_is_far(log_sum_exp[n])) return true;
    }
  return false;
}

static hark_status backward(hark_context *context, const hark_attention_call *run) {
  hark_dense_call call;
  HARK_TRY(begin(context, run, true, &call));
  /* logits from bf16 numbers are less exact than any rounding of log_sum_exp */
  if (call.sticks || call.arithmetic != HARK_ADD_NUMBERS || (!call.rbf && !has_far_rows(&call))) call.exact_rows = NULL;
  prepare_terms(context, &call);
  if (call.sticks) {
    const int64_t pairs = run->sequence_count * call.key_heads;
    run_all(context, &call, pairs * call.chunks, stick_piece);
    if (call.partial_dquery != NULL) run_all(context, &call, pairs, stick_gather_piece);
    finish_terms(context, &call);
    return HARK_OK;
  }
  if (call.exact_rows != NULL) run_all(context, &call, call.tile_count * call.heads, exact_piece);
  if (call.contextual)
    run_all(context, &call, call.ranges * call.key_heads, contextual_piece);
  else
    run_all(context, &call, run->sequence_count * call.key_heads * call.chunks, backward_piece);
  if (call.partial_dquery != NULL && run->args->dquery.data != NULL) run_all(context, &call, call.tile_count * call.heads, gather_piece);
  finish_terms(context, &call);
  return HARK_OK;
}

/* Parts begin where tiles of queries begin. */
static int64_t spread_unit(const hark_attention_desc *desc, int64_t total, char *why, size_t size) {
  (void)total;
  if (desc->structure == HARK_STRUCTURE_WINDOW && !breaks_sticks(desc)) return HARK_TILE_QUERIES;
  if (size > 0) (void)snprintf(why, size, "%s", breaks_sticks(desc) ? "normalisation is stick_breaking" : "structure is dense");
  return 0;
}

static int print(const hark_attention_plan *plan, char *text, size_t size) {
  const hark_attention_desc *const desc = &plan->desc;
  const int64_t pieces = desc->contextual_positions > 0 ? hark_dense_contextual_ranges(desc->batch, desc->key_heads) * desc->key_heads
                                                        : pieces_of(desc->batch * desc->key_heads);
  return snprintf(text, size, "tiles of %d queries x %d keys, %d lanes, blocks of %d vectors x %d rows; backward in %d piece%s at least",
                  HARK_TILE_QUERIES, HARK_TILE_KEYS, HARK_LANES, HARK_BLOCK_VECTORS, HARK_BLOCK_ROWS(HARK_BLOCK_VECTORS),
                  (int)hark_min(pieces, INT32_MAX), pieces == 1 ? "" : "s");
}

const hark_attention_algorithm HARK_ISA(hark_cpu_dense) = {.name = "dense tiled",
                                                           .flush = HARK_FLUSH_BACKWARD,
                                                           .supports = supports,
                                                           .sizes = sizes,
                                                           .forward = forward,
                                                           .backward = backward,
                                                           .spread_unit = spread_unit,
                                                           .print = print};
