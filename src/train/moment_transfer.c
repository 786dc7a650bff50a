/* moment_transfer.c - see moment_transfer.h. */
#include "train/moment_transfer.h"

#include <string.h>

typedef enum request_kind { REQUEST_FINISH, REQUEST_READ, REQUEST_WRITE } request_kind;

/* What rank 0 sends to the process that has the numbers. */
typedef struct moment_request {
  int32_t kind, which;
  int64_t first, count; /* of the flat moments, in the range of the receiver, at most a piece */
} moment_request;

/* A number of this process's range. */
static float *place_of(const hark_engine *engine, int32_t which, int64_t first) {
  const hark_tensor *const moment = which == HARK_MOMENT_FIRST ? &engine->first_moment : &engine->second_moment;
  return (float *)moment->data + (first - engine->share.range.first);
}

static size_t bytes_of(int64_t count) { return (size_t)count * sizeof(float); }

/* ---- rank 0 ---- */

/* The part of [first, first + count) that one process has, at most a piece. */
static int64_t extent_of(const hark_context *context, const hark_engine *engine, int64_t first, int64_t count, int *owner) {
  const hark_moment_share *const share = &engine->share;
  const int size = hark_group_size(context->group);
  if (!share->divided) return count;
  *owner = hark_moment_share_owner(share, first, size);
  const hark_share range = hark_moment_share_range(share, *owner, size);
  return hark_min(hark_min(count, share->piece), range.first + range.count - first);
}

static hark_status fetch(hark_context *context, int owner, const moment_request *request, float *out) {
  int32_t status = HARK_OK;
  moment_request sent = *request;
  const hark_message messages[] = {
      {&sent, sizeof sent, owner, true}, {&status, sizeof status, owner, false}, {out, bytes_of(request->count), owner, false}};
  HARK_TRY(hark_group_exchange(context, context->group, messages, 3));
  return status == HARK_OK ? HARK_OK : hark_fail(context, (hark_status)status, "rank %d cannot read its moments", owner);
}

hark_status hark_moments_read(hark_context *context, const hark_engine *engine, hark_moment which, int64_t first, int64_t count,
                              float *out) {
  int owner = 0;
  for (int64_t here; count > 0; first += here, count -= here, out += here) {
    here = extent_of(context, engine, first, count, &owner);
    const moment_request request = {REQUEST_READ, (int32_t)which, first, here};
    if (owner == 0)
      HARK_TRY(hark_backend_read(context, out, place_of(engine, request.which, first), bytes_of(here)));
    else
      HARK_TRY(fetch(context, owner, &request, out));
  }
  return HARK_OK;
}

static hark_status pass_on(hark_context *context, const hark_engine *engine, int owner, const moment_request *request,
                           const float *numbers) {
  moment_request sent = *request;
  const size_t bytes = bytes_of(request->count);
  memcpy(engine->share.memory, numbers, bytes);
  const hark_message messages[] = {{&sent, sizeof sent, owner, true}, {engine->share.memory, bytes, owner, true}};
  return hark_group_exchange(context, context->group, messages, 2);
}

hark_status hark_moments_write(hark_context *context, const hark_engine *engine, hark_moment which, int64_t first, int64_t count,
                               const float *numbers) {
  int owner = 0;
  for (int64_t here; count > 0; first += here, count -= here, numbers += here) {
    here = extent_of(context, engine, first, count, &owner);
    const moment_request request = {REQUEST_WRITE, (int32_t)which, first, here};
    if (owner == 0)
      HARK_TRY(hark_backend_write(context, place_of(engine, request.which, first), numbers, bytes_of(here)));
    else
      HARK_TRY(pass_on(context, engine, owner, &request, numbers));
  }
  return HARK_OK;
}

hark_status hark_moments_finish(hark_context *context, const hark_engine *engine, hark_status status) {
  moment_request request = {.kind = REQUEST_FINISH};
  if (!engine->share.divided) return status;
  for (int rank = 1; rank < hark_group_size(context->group); rank++) {
    const hark_message message = {&request, sizeof request, rank, true};
    if (context->group->over != HARK_OK && status != HARK_OK) return status;
    HARK_TRY(hark_group_exchange(context, context->group, &message, 1));
  }
  return status;
}

/* ---- the others ---- */

/* Sends numbers even where they could not be read: rank 0 waits for them. */
static hark_status answer(hark_context *context, const hark_engine *engine, const moment_request *request) {
  float *const numbers = engine->share.memory;
  const size_t bytes = bytes_of(request->count);
  const hark_status status = hark_backend_read(context, numbers, place_of(engine, request->which, request->first), bytes);
  int32_t word = (int32_t)status;
  const hark_message messages[] = {{&word, sizeof word, 0, true}, {numbers, bytes, 0, true}};
  HARK_TRY(hark_group_exchange(context, context->group, messages, 2));
  return status;
}

static hark_status receive(hark_context *context, const hark_engine *engine, const moment_request *request) {
  const size_t bytes = bytes_of(request->count);
  const hark_message message = {engine->share.memory, bytes, 0, false};
  HARK_TRY(hark_group_exchange(context, context->group, &message, 1));
  return hark_backend_write(context, place_of(engine, request->which, request->first), engine->share.memory, bytes);
}

hark_status hark_moments_serve(hark_context *context, const hark_engine *engine) {
  moment_request request = {.kind = REQUEST_READ};
  const hark_message message = {&request, sizeof request, 0, false};
  hark_status status = HARK_OK;
  if (!engine->share.divided) return HARK_OK;
  for (;;) {
    HARK_TRY(hark_group_exchange(context, context->group, &message, 1));
    if (request.kind == REQUEST_FINISH) return status;
    const hark_status here = (request.kind == REQUEST_READ ? answer : receive)(context, engine, &request);
    status = status != HARK_OK ? status : here;
    if (context->group->over != HARK_OK) return status;
  }
}
