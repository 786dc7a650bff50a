/* decoding_batch.c - several decodings in one pass: weights are read once for all of them.
 *
 * The new tokens of all decodings are the rows of one pass [1, T]. Everything that treats rows separately (embeddings, norms, projections,
 * feed-forward layers, logits) is computed for all of them together; in attention every decoding has its own rows, cache and plan
 * (hark_forward_group). With one token for each decoding a pass costs about as much as one decoding's while memory limits its speed.
 */
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "core/structs.h"
#include "models/decoding.h"

#define DEFAULT_DECODINGS 8
#define MOST_DECODINGS 65536

/* A decoding during a call. */
typedef struct member_state {
  hark_decoding *decoding;
  const int32_t *tokens;
  int64_t count, done, before; /* tokens of the call, how many have been read, length before the call */
  int64_t rows;                /* in the current pass; 0: none */
  hark_forward forward;        /* of the current pass */
} member_state;

struct hark_decoding_batch {
  hark_context *context;
  const hark_model *model;
  int64_t most, capacity, rows; /* decodings in a call, tokens of one of them, rows of a pass */
  hark_tape *tape;
  hark_tensor tokens, positions; /* i32 [1, rows] and [rows] */
  hark_tensor mixed, last;       /* f32 [rows, width of attention]; [1, most, width]: rows whose logits are needed */
  hark_packing packing;
  hark_tensor positions_now;
  hark_forward_group group;
  int32_t *host;                /* tokens and positions of a pass, [2, rows] */
  member_state *states;         /* [most] */
  hark_forward_member *members; /* [most], those of the pass */
  int64_t count, pass_rows;     /* decodings of the call; rows of the pass */
  void *memory;                 /* of the three lists */
  size_t bytes;
};

static const hark_network_config *config_of(const hark_decoding_batch *batch) { return &batch->model->network->config; }

/* ---- one pass ---- */

/* True if one of the decodings is to be cancelled. */
static bool is_cancelled(void *user) {
  const hark_decoding_batch *batch = user;
  for (int64_t i = 0; i < batch->count; i++) {
    const hark_decoding *decoding = batch->states[i].decoding;
    if (decoding->cancel != NULL && decoding->cancel(decoding->cancel_user)) return true;
  }
  return false;
}

/* Appends `rows` tokens of a decoding to the pass. */
static hark_status add_rows(hark_decoding_batch *batch, member_state *state, int64_t rows) {
  hark_decoding *decoding = state->decoding;
  const int64_t first = batch->pass_rows, position = decoding->length;
  HARK_TRY(hark_decoding_cut(decoding, state->tokens + state->done, position, rows));
  state->rows = rows;
  state->forward = hark_decoding_forward(decoding, batch->tape, position, rows);
  batch->members[batch->group.count++] = (hark_forward_member){.forward = &state->forward, .first = first, .count = rows};
  for (int64_t i = 0; i < rows; i++) {
    batch->host[first + i] = state->tokens[state->done + i];
    batch->host[batch->rows + first + i] = (int32_t)(position + i);
  }
  batch->packing.longest = hark_max(batch->packing.longest, position + rows);
  batch->pass_rows += rows;
  return HARK_OK;
}

/* Chooses the rows of the next pass, in the order of the decodings. */
static hark_status choose_rows(hark_decoding_batch *batch) {
  batch->pass_rows = batch->group.count = batch->packing.longest = 0;
  for (int64_t i = 0; i < batch->count; i++) {
    member_state *const state = &batch->states[i];
    const int64_t rows = hark_min(hark_min(state->count - state->done, state->decoding->prefill), batch->rows - batch->pass_rows);
    state->rows = 0;
    if (rows > 0) HARK_TRY(add_rows(batch, state, rows));
  }
  return HARK_OK;
}

static bool finishes(const member_state *state) { return state->rows > 0 && state->done + state->rows == state->count; }

/* The rows of x [1, T, width] whose logits are needed, one after the other. */
static hark_status take_last(hark_decoding_batch *batch, hark_value x, hark_value *out) {
  const hark_tensor *all = hark_tape_tensor(batch->tape, x);
  const size_t row_bytes = (size_t)all->shape[2] * hark_type_bytes(all->type);
  int64_t shape[] = {1, 0, all->shape[2]}, first = 0;
  for (int64_t i = 0; i < batch->count; i++) {
    first += batch->states[i].rows;
    if (!finishes(&batch->states[i])) continue;
    if (all->data != NULL)
      HARK_TRY(hark_backend_copy(batch->context, (char *)batch->last.data + (size_t)shape[1] * row_bytes,
                                 (const char *)all->data + (size_t)(first - 1) * row_bytes, row_bytes));
    shape[1]++;
  }
  const hark_tensor rows = hark_tensor_front(&batch->last, 3, shape);
  *out = 0;
  return shape[1] > 0 ? hark_tape_leaf(batch->tape, &rows, NULL, out) : HARK_OK;
}

/* *logits [1, F, vocabulary] of the decodings that have read all of their tokens with this pass; 0 if there are none. */
static hark_status run_pass(hark_decoding_batch *batch, hark_value *logits) {
  const hark_network *network = batch->model->network;
  const int64_t one_row[] = {1, batch->pass_rows};
  hark_tape *tape = batch->tape;
  hark_value tokens = 0, x = 0, last = 0;
  hark_tape_reset(tape);
  hark_tape_set_recording(tape, false);
  batch->positions_now = hark_tensor_front(&batch->positions, 1, &batch->pass_rows);
  batch->packing.positions = &batch->positions_now;
  hark_forward forward = batch->states[0].forward; /* parameters and tables of the model */
  forward.plans = NULL;
  forward.caches = NULL;
  forward.first_position = forward.reach = 0;
  forward.packing = &batch->packing;
  forward.group = &batch->group;
  forward.cancel = is_cancelled;
  forward.cancel_user = batch;
  const hark_tensor rows = hark_tensor_front(&batch->tokens, 2, one_row);
  HARK_TRY(hark_tape_leaf(tape, &rows, NULL, &tokens));
  HARK_TRY(hark_stack_apply(batch->context, network, &forward, tokens, &x));
  HARK_TRY(take_last(batch, x, &last));
  hark_tape_release(tape, x);
  *logits = 0;
  if (last == 0) return HARK_OK;
  return hark_stack_head(network, &forward, last, logits);
}

/* Gives the logits of the pass to its decodings. */
static hark_status give_logits(hark_decoding_batch *batch, hark_value logits) {
  const size_t bytes = (size_t)config_of(batch)->vocabulary * sizeof(float);
  const char *at = logits != 0 ? hark_tape_tensor(batch->tape, logits)->data : NULL;
  for (int64_t i = 0; i < batch->count; i++) {
    member_state *const state = &batch->states[i];
    if (finishes(state)) {
      HARK_TRY(hark_backend_read(batch->context, state->decoding->logits, at, bytes));
      at += bytes;
    }
    state->done += state->rows;
    state->decoding->length += state->rows;
  }
  return HARK_OK;
}

static hark_status next_pass(hark_decoding_batch *batch) {
  hark_value logits = 0;
  HARK_TRY(choose_rows(batch));
  const size_t bytes = (size_t)batch->pass_rows * sizeof *batch->host;
  HARK_TRY(hark_backend_write(batch->context, batch->tokens.data, batch->host, bytes));
  HARK_TRY(hark_backend_write(batch->context, batch->positions.data, batch->host + batch->rows, bytes));
  HARK_TRY(run_pass(batch, &logits));
  return give_logits(batch, logits);
}

/* ---- making ---- */

static hark_status take_options(hark_context *context, const hark_model *model, const hark_decoding_batch_options *given,
                                hark_decoding_batch_options *out, hark_decoding_options *of_each) {
  *out = (hark_decoding_batch_options){.struct_size = sizeof *out};
  if (given != NULL)
    HARK_TRY(hark_take_struct(context, "hark_decoding_batch_options", given, HARK_LEAST_DECODING_BATCH_OPTIONS, out, sizeof *out));
  if (out->decodings == 0) out->decodings = DEFAULT_DECODINGS;
  if (out->decodings < 1 || out->decodings > MOST_DECODINGS)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "batch: %" PRId64 " decodings, expected 1 to %d", out->decodings, MOST_DECODINGS);
  const hark_decoding_options each = {.struct_size = sizeof each, .capacity = out->capacity};
  HARK_TRY(hark_decoding_take_options(context, model, &each, of_each));
  out->capacity = of_each->capacity;
  return HARK_OK;
}

static hark_status make_lists(hark_decoding_batch *batch) {
  const size_t states = (size_t)batch->most * sizeof *batch->states, members = (size_t)batch->most * sizeof *batch->members,
               host = 2 * (size_t)batch->rows * sizeof *batch->host;
  batch->bytes = states + members + host;
  HARK_TRY(hark_allocate_zero(batch->context, batch->bytes, &batch->memory));
  batch->states = batch->memory;
  batch->members = (hark_forward_member *)(void *)(batch->states + batch->most);
  batch->host = (int32_t *)(void *)(batch->members + batch->most);
  batch->group.members = batch->members;
  batch->group.mixed = &batch->mixed;
  return HARK_OK;
}

static hark_status make_tensors(hark_decoding_batch *batch) {
  const hark_network_config *config = config_of(batch);
  const int64_t tokens[] = {1, batch->rows}, mixed[] = {batch->rows, config->heads * hark_network_head_dim(config)},
                last[] = {1, batch->most, config->width};
  HARK_TRY(hark_tensor_create(batch->context, HARK_I32, 2, tokens, &batch->tokens));
  HARK_TRY(hark_tensor_create(batch->context, HARK_I32, 1, &batch->rows, &batch->positions));
  HARK_TRY(hark_tensor_create(batch->context, HARK_F32, 2, mixed, &batch->mixed));
  return hark_tensor_create(batch->context, HARK_F32, 3, last, &batch->last);
}

/* A shape-only pass over `count` decodings at the end of their capacity, with `rows` tokens together: as many as possible for the first. */
static hark_status measure_pass(hark_decoding_batch *batch, const hark_decoding *like, int64_t count, int64_t rows) {
  static const int32_t none[HARK_PREFILL_TOKENS] = {0};
  hark_value logits = 0;
  hark_decoding one = *like;
  one.cancel = NULL;
  batch->count = count;
  batch->pass_rows = batch->group.count = batch->packing.longest = 0;
  for (int64_t i = 0; i < count; i++) {
    const int64_t tokens = hark_max(1, hark_min(like->prefill, rows - batch->pass_rows - (count - 1 - i)));
    one.length = batch->capacity - tokens;
    batch->states[i] = (member_state){.decoding = &one, .tokens = none, .count = tokens};
    HARK_TRY(add_rows(batch, &batch->states[i], tokens));
  }
  hark_tape_set_shape_only(batch->tape, true);
  const hark_status status = run_pass(batch, &logits);
  hark_tape_set_shape_only(batch->tape, false);
  batch->count = 0;
  return status;
}

/* The passes that need most memory: a prompt, prompts, and one token for each. */
static hark_status measure(hark_decoding_batch *batch, const hark_decoding *like) {
  HARK_TRY(measure_pass(batch, like, 1, batch->rows));
  HARK_TRY(measure_pass(batch, like, batch->most, batch->rows));
  HARK_TRY(measure_pass(batch, like, batch->most, batch->most));
  return hark_tape_reserve(batch->tape);
}

static hark_status make(hark_decoding_batch *batch, const hark_decoding_options *of_each) {
  hark_decoding like = {0};
  HARK_TRY(make_lists(batch));
  HARK_TRY(make_tensors(batch));
  HARK_TRY(hark_tape_create(batch->context, &batch->tape));
  hark_status status = hark_decoding_describe(batch->context, batch->model, of_each, &like);
  if (status == HARK_OK && !hark_decoding_depends_on_length(&like)) status = measure(batch, &like);
  hark_decoding_close(&like);
  return status;
}

hark_status hark_decoding_batch_create(hark_context *context, const hark_model *model, const hark_decoding_batch_options *given,
                                       hark_decoding_batch **out) {
  hark_decoding_batch_options options;
  hark_decoding_options of_each;
  void *memory = NULL;
  *out = NULL;
  HARK_TRY(take_options(context, model, given, &options, &of_each));
  HARK_TRY(hark_allocate_zero(context, sizeof(hark_decoding_batch), &memory));
  hark_decoding_batch *batch = memory;
  batch->context = context;
  batch->model = model;
  batch->most = options.decodings;
  batch->capacity = options.capacity;
  batch->rows = hark_max(HARK_PREFILL_TOKENS, batch->most);
  const hark_status status = make(batch, &of_each);
  if (status != HARK_OK) {
    hark_decoding_batch_destroy(&batch);
    return status;
  }
  *out = batch;
  return HARK_OK;
}

void hark_decoding_batch_destroy(hark_decoding_batch **batch_pointer) {
  if (batch_pointer == NULL || *batch_pointer == NULL) return;
  hark_decoding_batch *batch = *batch_pointer;
  hark_context *context = batch->context;
  *batch_pointer = NULL;
  hark_tape_destroy(&batch->tape);
  hark_tensor_destroy(context, &batch->tokens);
  hark_tensor_destroy(context, &batch->positions);
  hark_tensor_destroy(context, &batch->mixed);
  hark_tensor_destroy(context, &batch->last);
  hark_release(context, batch->memory, batch->bytes);
  hark_release(context, batch, sizeof *batch);
}

/* ---- calls ---- */

static hark_status check_decoding(const hark_decoding_batch *batch, hark_decoding *const *decodings, int64_t i) {
  const hark_decoding *decoding = decodings[i];
  hark_context *context = batch->context;
  if (decoding == NULL || decoding->context != context || decoding->model != batch->model)
    return hark_fail(context, HARK_INVALID_ARGUMENT, "batch: decoding %" PRId64 " is %s, expected one of the batch's context and model", i,
                     decoding == NULL               ? "NULL"
                     : decoding->context != context ? "of another context"
                                                    : "of another model");
  if (decoding->capacity > batch->capacity)
    return hark_fail(context, HARK_INVALID_ARGUMENT,
                     "batch: decoding %" PRId64 " has a capacity of %" PRId64 " tokens, expected at most %" PRId64, i, decoding->capacity,
                     batch->capacity);
  for (int64_t k = 0; k < i; k++)
    if (decodings[k] == decoding)
      return hark_fail(context, HARK_INVALID_ARGUMENT, "batch: decodings %" PRId64 " and %" PRId64 " are the same", k, i);
  return HARK_OK;
}

/* `counts` NULL: one token for each, tokens[0][i]. */
static hark_status begin(hark_decoding_batch *batch, hark_decoding *const *decodings, const int32_t *const *tokens, const int64_t *counts,
                         int64_t count) {
  if (count < 1 || count > batch->most)
    return hark_fail(batch->context, HARK_INVALID_ARGUMENT, "batch: %" PRId64 " decodings, expected 1 to %" PRId64, count, batch->most);
  for (int64_t i = 0; i < count; i++) HARK_TRY(check_decoding(batch, decodings, i));
  for (int64_t i = 0; i < count; i++) {
    batch->states[i] = (member_state){.decoding = decodings[i],
                                      .tokens = counts != NULL ? tokens[i] : tokens[0] + i,
                                      .count = counts != NULL ? counts[i] : 1,
                                      .before = decodings[i]->length};
    const hark_status status = hark_decoding_check_tokens(decodings[i], batch->states[i].tokens, batch->states[i].count);
    if (status == HARK_OK) continue;
    hark_fail_prefix(batch->context, "batch: decoding %" PRId64 ": ", i);
    return status;
  }
  batch->count = count;
  return HARK_OK;
}

/* The work of a decoding alone, in its own memory: tables, and earlier tokens that have to be read again. */
static hark_status prepare(hark_decoding_batch *batch, const member_state *state) {
  hark_decoding *decoding = state->decoding;
  hark_arena_begin(batch->context, &decoding->arena);
  const hark_status status = hark_decoding_prepare(decoding, state->count);
  hark_arena_end(batch->context, &decoding->arena);
  return status;
}

static hark_status read_all(hark_decoding_batch *batch) {
  int64_t remaining = 0;
  if (hark_decoding_depends_on_length(batch->states[0].decoding)) { /* rates differ from one to the other */
    for (int64_t i = 0; i < batch->count; i++)
      HARK_TRY(hark_decoding_prefill(batch->states[i].decoding, batch->states[i].tokens, batch->states[i].count));
    return HARK_OK;
  }
  for (int64_t i = 0; i < batch->count; i++) {
    HARK_TRY(prepare(batch, &batch->states[i]));
    remaining += batch->states[i].count;
  }
  for (; remaining > 0; remaining -= batch->pass_rows) HARK_TRY(next_pass(batch));
  for (int64_t i = 0; i < batch->count; i++) hark_decoding_keep(batch->states[i].decoding, batch->states[i].tokens, batch->states[i].count);
  return HARK_OK;
}

static hark_status read(hark_decoding_batch *batch, hark_decoding *const *decodings, const int32_t *const *tokens, const int64_t *counts,
                        int64_t count) {
  HARK_TRY(begin(batch, decodings, tokens, counts, count));
  const hark_status status = read_all(batch);
  for (int64_t i = 0; i < count; i++) {
    decodings[i]->has_logits = status == HARK_OK;
    if (status != HARK_OK) hark_decoding_go_back(decodings[i], batch->states[i].before);
  }
  return status;
}

hark_status hark_decoding_batch_prefill(hark_decoding_batch *batch, hark_decoding *const *decodings, const int32_t *const *tokens,
                                        const int64_t *counts, int64_t count) {
  return read(batch, decodings, tokens, counts, count);
}

hark_status hark_decoding_batch_step(hark_decoding_batch *batch, hark_decoding *const *decodings, const int32_t *tokens, int64_t count) {
  return read(batch, decodings, &tokens, NULL, count);
}
