/* part.c - see part.h. */
#include "group/part.h"

#include <string.h>

#include "core/core.h"

#define TAG_SHIFT 1 /* messages of a part have tags of their own */

static hark_group *whole_of(const hark_transport *transport) { return ((hark_group_part *)transport->state)->group.whole; }

static int rank_of(const hark_transport *transport, int member) {
  const hark_group *const group = &((hark_group_part *)transport->state)->group;
  return hark_group_name(group, member);
}

/* The reason is where callers look for it. */
static int pass_on(hark_transport *transport, int failure) {
  if (failure != 0) memcpy(transport->message, whole_of(transport)->transport->message, sizeof transport->message);
  return failure;
}

static int send(hark_transport *transport, int to, int tag, const void *data, size_t bytes, hark_transport_request *request) {
  hark_transport *const below = whole_of(transport)->transport;
  return pass_on(transport, below->send(below, rank_of(transport, to), tag + TAG_SHIFT, data, bytes, request));
}

static int receive(hark_transport *transport, int from, int tag, void *data, size_t bytes, hark_transport_request *request) {
  hark_transport *const below = whole_of(transport)->transport;
  return pass_on(transport, below->receive(below, rank_of(transport, from), tag + TAG_SHIFT, data, bytes, request));
}

static int test(hark_transport *transport, hark_transport_request *request, bool *done) {
  hark_transport *const below = whole_of(transport)->transport;
  return pass_on(transport, below->test(below, request, done));
}

void hark_group_part_open(hark_group *whole, int first, int step, int size, hark_group_part *out) {
  *out = (hark_group_part){
      .group = {.limit = whole->limit, .local = whole->local, .whole = whole, .first = first, .step = step},
      .transport = {.rank = (hark_group_rank(whole) - first) / step, .size = size, .send = send, .receive = receive, .test = test}};
  out->group.transport = &out->transport;
  out->transport.state = out;
}

hark_status hark_group_divide(hark_context *context, int64_t ranks, hark_group_part *out) {
  const int size = hark_group_size(context->group);
  context->sequence = NULL;
  if (ranks <= 1) return HARK_OK;
  if (size % ranks != 0)
    return hark_fail(context, HARK_BAD_CONFIGURATION, "run.sequence_ranks is %d, and %d process%s started, expected a multiple", (int)ranks,
                     size, size == 1 ? " was" : "es were");
  const int replicas = size / (int)ranks;
  hark_group_part_open(context->group, hark_group_rank(context->group) % replicas, replicas, (int)ranks, out);
  context->sequence = &out->group;
  return HARK_OK;
}
