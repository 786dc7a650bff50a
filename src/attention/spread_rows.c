/* spread_rows.c - see spread_rows.h. A process computes its own rows of results from more rows than its own:
 *
 *     all             all queries and keys, of short sequences: every process computes everything
 *     window, forward      its queries; keys from `window` before the first one to `window` after the last one (causal: the last one)
 *     window, backward     queries that meet its keys, in whole tiles; and the keys that these meet
 *
 * With whole tiles, and the pieces of the whole sequence (hark_attention_call.part), all sums are those of one process. Results of others'
 * rows are discarded. Bytes: of a window 4 window (H d + ...) per neighbour, whatever the length.
 *
 * A tensor of [outer, rows, inner] is packed: [outer][rows][inner] of the rows that a process sends.
 */
#include "attention/spread_rows.h"

#include <string.h>

/* Rows from .. to of the whole sequence. */
typedef struct row_range {
  int64_t from, to;
} row_range;

/* An argument with rows. */
typedef struct row_tensor {
  const hark_tensor *local; /* of this process */
  hark_tensor *extended;    /* member of the arguments for more rows */
  int axis;                 /* of the rows */
  bool of_keys;
  bool gathered; /* others' rows are needed */
  bool begun;    /* the own rows are */
  bool given;    /* a result */
  char *buffer;  /* messages */
} row_tensor;

#define MOST_TENSORS 12

typedef struct rows_work {
  hark_context *context;
  hark_attention_plan plan; /* for the rows that this process computes with */
  const hark_spread *spread;
  bool backward, near;
  int64_t tile;
  int rank, size;
  hark_attention_args args;
  row_tensor tensors[MOST_TENSORS];
  int count;
  hark_message *messages;
  char *memory; /* NULL: only counted */
  size_t bytes;
} rows_work;

hark_status hark_spread_rows_check(hark_context *context, const hark_attention_plan *plan) {
  const hark_attention_desc *desc = &plan->desc;
  const struct {
    const char *field;
    bool set;
  } refused[] = {{"normalisation cme", desc->normalisation == HARK_NORMALISATION_CME},
                 {"normalisation stick_breaking", desc->normalisation == HARK_NORMALISATION_STICK_BREAKING},
                 {"has_mask", desc->has_mask && desc->structure != HARK_STRUCTURE_HIERARCHICAL},
                 {"has_bias", desc->has_bias},
                 {"has_forget", desc->has_forget},
                 {"contextual_positions", desc->contextual_positions != 0},
                 {"has_segments", desc->has_segments}};
  for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
    if (refused[i].set) return hark_fail(context, HARK_UNSUPPORTED, "attention: %s with rows spread over processes", refused[i].field);
  return HARK_OK;
}

/* ---- rows ---- */

static row_range own_rows(const rows_work *work, int rank) { return (row_range){work->spread->first[rank], work->spread->first[rank + 1]}; }

static row_range query_rows(const rows_work *work, int rank) {
  const row_range own = own_rows(work, rank);
  const int64_t window = work->plan.desc.window, total = work->spread->total;
  if (own.from == own.to) return own;
  if (!work->near) return (row_range){0, total};
  if (!work->backward) return own;
  const int64_t before = work->plan.desc.causal ? own.from : hark_max(own.from - window, 0); /* earlier queries see no own key */
  return (row_range){before / work->tile * work->tile, hark_min(hark_ceil_div(own.to + window, work->tile) * work->tile, total)};
}

static row_range key_rows(const rows_work *work, int rank) {
  const row_range queries = query_rows(work, rank);
  const int64_t window = work->plan.desc.window, total = work->spread->total;
  if (!work->near || queries.from == queries.to) return queries;
  return (row_range){hark_max(queries.from - window, 0), work->plan.desc.causal ? queries.to : hark_min(queries.to + window, total)};
}

static row_range rows_of(const rows_work *work, const row_tensor *of, int rank) {
  return of->of_keys ? key_rows(work, rank) : query_rows(work, rank);
}

/* Rows of one process that another one needs. */
static row_range shared_rows(const rows_work *work, const row_tensor *of, int owner, int holder) {
  const row_range own = own_rows(work, owner), needed = rows_of(work, of, holder);
  const row_range both = {hark_max(own.from, needed.from), hark_min(own.to, needed.to)};
  return both.from < both.to ? both : (row_range){0, 0};
}

/* ---- tensors ---- */

/* Rows of the other dimensions, and bytes of one. */
static int64_t outer_rows(const row_tensor *of) {
  int64_t count = 1;
  for (int i = 0; i < of->axis; i++) count *= of->local->shape[i];
  return count;
}
static size_t row_bytes(const row_tensor *of) {
  const hark_tensor *tensor = of->local;
  return hark_type_bytes(tensor->type) * (size_t)(of->axis + 1 < tensor->rank ? tensor->shape[of->axis + 1] : 1);
}
static size_t bytes_of(const row_tensor *of, row_range rows) {
  return (size_t)outer_rows(of) * (size_t)(rows.to - rows.from) * row_bytes(of);
}

/* The first element of a row; `outer` counts the dimensions before the axis. */
static char *row_of(const hark_tensor *tensor, int axis, int64_t outer, int64_t row) {
  int64_t at = row * tensor->stride[axis];
  for (int i = axis - 1; i >= 0; i--) {
    at += outer % tensor->shape[i] * tensor->stride[i];
    outer /= tensor->shape[i];
  }
  return (char *)tensor->data + at * (int64_t)hark_type_bytes(tensor->type);
}

/* Copies rows of a tensor that begins with row `first` to packed memory, or with `in` from it. */
static void move_rows(const row_tensor *of, const hark_tensor *tensor, int64_t first, row_range rows, bool in, char *packed) {
  const size_t bytes = row_bytes(of);
  for (int64_t outer = 0; outer < outer_rows(of); outer++)
    for (int64_t row = rows.from; row < rows.to; row++, packed += bytes) {
      char *const at = row_of(tensor, of->axis, outer, row - first);
      memcpy(in ? at : packed, in ? packed : at, bytes);
    }
}

static void move_own(const rows_work *work, const row_tensor *of, bool back) {
  const row_range own = own_rows(work, work->rank);
  const int64_t first = rows_of(work, of, work->rank).from;
  move_rows(of, back ? of->extended : of->local, back ? first : own.from, own, false, of->buffer);
  move_rows(of, back ? of->local : of->extended, back ? own.from : first, own, true, of->buffer);
}

static char *take(rows_work *work, size_t bytes) {
  char *const at = work->memory == NULL ? NULL : work->memory + work->bytes;
  work->bytes += hark_align_up(bytes);
  return at;
}

/* Bytes of all messages of a tensor, or of its own rows, which pass through the buffer too. */
static size_t buffer_bytes(const rows_work *work, const row_tensor *of) {
  size_t bytes = 0;
  for (int peer = 0; of->gathered && peer < work->size; peer++)
    if (peer != work->rank)
      bytes += bytes_of(of, shared_rows(work, of, work->rank, peer)) + bytes_of(of, shared_rows(work, of, peer, work->rank));
  const size_t own = bytes_of(of, own_rows(work, work->rank));
  return bytes > own ? bytes : own;
}

/* The extended tensor, contiguous, and its buffer. */
static void place_tensor(rows_work *work, row_tensor *of) {
  const row_range rows = rows_of(work, of, work->rank);
  hark_tensor *const to = of->extended;
  *to = *of->local;
  to->shape[of->axis] = rows.to - rows.from;
  int64_t stride = 1;
  for (int i = to->rank - 1; i >= 0; i--) {
    to->stride[i] = stride;
    stride *= to->shape[i];
  }
  to->data = take(work, bytes_of(of, rows));
  of->buffer = take(work, buffer_bytes(work, of));
}

/* Lists the tensors with rows that the call has. */
static void list_tensors(rows_work *work, const hark_attention_args *args) {
  hark_attention_args *to = &work->args;
  const bool backward = work->backward, forward = !backward, add_query = (args->accumulate & HARK_ACCUMULATE_QUERY) != 0,
             add_key = (args->accumulate & HARK_ACCUMULATE_KEY) != 0, add_value = (args->accumulate & HARK_ACCUMULATE_VALUE) != 0;
  const row_tensor all[] = {
      {&args->query, &to->query, 2, false, true, true, false, NULL},
      {&args->key, &to->key, 2, true, true, true, false, NULL},
      {&args->value, &to->value, 2, true, true, true, false, NULL},
      {&args->mask, &to->mask, 3, true, true, true, false, NULL},
      {&args->query_mask, &to->query_mask, 1, false, true, true, false, NULL},
      {&args->out, &to->out, 2, false, backward, backward, forward, NULL},
      {&args->log_sum_exp, &to->log_sum_exp, 2, false, backward, backward, forward, NULL},
      {&args->dout, &to->dout, 2, false, true, true, false, NULL},
      {&args->dquery, &to->dquery, 2, false, false, add_query, true, NULL},
      {&args->dkey, &to->dkey, 2, true, false, add_key, true, NULL},
      {&args->dvalue, &to->dvalue, 2, true, false, add_value, true, NULL},
  };
  const int count = backward ? (int)(sizeof all / sizeof all[0]) : 7; /* the last four are the backward's */
  work->count = 0;
  for (int i = 0; i < count; i++)
    if (all[i].local->type != HARK_NONE) work->tensors[work->count++] = all[i];
}

static void place_all(rows_work *work) {
  const hark_attention_sizes sizes = work->plan.sizes;
  work->bytes = 0;
  for (int i = 0; i < work->count; i++) place_tensor(work, &work->tensors[i]);
  work->args.workspace = take(work, work->backward ? sizes.backward_workspace : sizes.forward_workspace);
  work->args.saved = take(work, sizes.saved);
  work->messages = (hark_message *)(void *)take(work, (size_t)(2 * work->size * MOST_TENSORS) * sizeof(hark_message));
}

/* ---- exchange ---- */

/* Adds the messages of a tensor; with `unpack` takes the rows that have come from them. */
static void visit_messages(rows_work *work, const row_tensor *of, bool unpack, int *count) {
  char *packed = of->buffer;
  for (int peer = 0; peer < work->size; peer++)
    for (int sends = 0; sends < 2 && peer != work->rank; sends++) {
      const row_range rows = shared_rows(work, of, sends ? work->rank : peer, sends ? peer : work->rank);
      const size_t bytes = bytes_of(of, rows);
      if (bytes == 0) continue;
      if (!unpack && sends) move_rows(of, of->local, own_rows(work, work->rank).from, rows, false, packed);
      if (unpack && !sends) move_rows(of, of->extended, rows_of(work, of, work->rank).from, rows, true, packed);
      if (!unpack) work->messages[(*count)++] = (hark_message){packed, bytes, peer, sends == 1};
      packed += bytes;
    }
}

static hark_status gather(rows_work *work) {
  int count = 0;
  for (int i = 0; i < work->count; i++)
    if (work->tensors[i].begun) move_own(work, &work->tensors[i], false);
  for (int i = 0; i < work->count; i++)
    if (work->tensors[i].gathered) visit_messages(work, &work->tensors[i], false, &count);
  if (count > 0) HARK_TRY(hark_group_exchange(work->context, work->spread->group, work->messages, count));
  for (int i = 0; i < work->count; i++)
    if (work->tensors[i].gathered) visit_messages(work, &work->tensors[i], true, &count);
  return HARK_OK;
}

/* Gradients that are added to begin with zero in others' rows. */
static void clear_results(rows_work *work) {
  for (int i = 0; i < work->count; i++) {
    const row_tensor *of = &work->tensors[i];
    if (of->given && of->extended->data != NULL) memset(of->extended->data, 0, bytes_of(of, rows_of(work, of, work->rank)));
  }
}

/* Gradients of tables, which all compute, are the first process's. */
static hark_status keep_tables_once(rows_work *work, const hark_attention_args *args) {
  int once = 0;
  while (once + 1 < work->size && own_rows(work, once).from == own_rows(work, once).to) once++;
  if (!work->backward || work->rank == once) return HARK_OK;
  work->args.dlog_kernel = work->args.dhierarchical_bias = (hark_tensor){0};
  return hark_attention_clear(work->context, args, work->plan.desc.causal, true);
}

static hark_status open_memory(rows_work *work) {
  void *memory = NULL;
  if (work->near && work->backward && work->args.dlog_kernel.type != HARK_NONE)
    return hark_fail(work->context, HARK_UNSUPPORTED, "attention: dlog_kernel with structure window and rows spread over processes");
  place_all(work);
  memory = work->spread->memory;
  if (memory == NULL) HARK_TRY(hark_allocate(work->context, work->bytes, &memory));
  work->memory = memory;
  place_all(work);
  return hark_group_reserve(work->context, work->spread->group, 2 * (int64_t)work->size * MOST_TENSORS);
}

static hark_status run(rows_work *work) {
  const row_range queries = query_rows(work, work->rank), keys = key_rows(work, work->rank);
  const hark_attention_part part = {.rows = work->spread->total, .queries_before = queries.from, .keys_before = keys.from};
  work->args.has_query_offset = work->near;
  work->args.query_offset = work->near ? queries.from - keys.from : 0;
  return hark_attention_run_part(work->context, &work->plan, &work->args, work->backward, work->near ? &part : NULL);
}

static hark_status compute(rows_work *work, const hark_attention_args *args) {
  const row_range own = own_rows(work, work->rank);
  clear_results(work);
  HARK_TRY(gather(work));
  HARK_TRY(keep_tables_once(work, args));
  if (own.from < own.to) HARK_TRY(run(work));
  for (int i = 0; i < work->count; i++)
    if (work->tensors[i].given) move_own(work, &work->tensors[i], true);
  return HARK_OK;
}

static hark_status open_work(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                             const hark_spread *spread, bool near, int64_t tile, rows_work *work) {
  *work = (rows_work){.context = context,
                      .plan = *plan,
                      .spread = spread,
                      .backward = backward,
                      .near = near,
                      .tile = tile,
                      .rank = hark_group_rank(spread->group),
                      .size = hark_group_size(spread->group),
                      .args = *args};
  list_tensors(work, args);
  const row_range queries = query_rows(work, work->rank), keys = key_rows(work, work->rank);
  if (!near || queries.from == queries.to) return HARK_OK;
  return hark_attention_plan_part(context, plan, queries.to - queries.from, keys.to - keys.from, &work->plan);
}

hark_status hark_spread_rows(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                             const hark_spread *spread, bool near, int64_t tile) {
  rows_work work;
  hark_status status = open_work(context, plan, args, backward, spread, near, tile, &work);
  if (status == HARK_OK) status = open_memory(&work);
  if (spread->memory == NULL) status = hark_group_agree(context, spread->group, status);
  if (status == HARK_OK) status = compute(&work, args);
  if (spread->memory == NULL) hark_release(context, work.memory, work.memory == NULL ? 0 : work.bytes);
  return status;
}

hark_status hark_spread_rows_bytes(hark_context *context, const hark_attention_plan *plan, const hark_attention_args *args, bool backward,
                                   const hark_spread *spread, bool near, int64_t tile, size_t *bytes) {
  rows_work work;
  HARK_TRY(open_work(context, plan, args, backward, spread, near, tile, &work));
  place_all(&work);
  *bytes = work.bytes;
  return HARK_OK;
}
