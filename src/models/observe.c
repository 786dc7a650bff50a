/* observe.c - see observe.h. */
#include "models/observe.h"

#include <inttypes.h>
#include <math.h>

#include "models/stack.h"

/* ---- the pass ---- */

typedef struct observation {
  hark_context *context;
  const hark_network *network;
  hark_attention_observer *observe;
  void *user;
} observation;

static hark_status take_layer(void *user, const hark_attention_application *seen) {
  const observation *const o = user;
  if (seen->inputs[0].data == NULL) return HARK_OK; /* a shape-only run */
  return o->observe(o->user, seen);
}

static hark_status apply(observation *o, const hark_tensor *tokens, const hark_tensor *types, hark_attention_plan *const *plans) {
  hark_tape *tape;
  hark_value ids = 0, x = 0;
  HARK_TRY(hark_tape_create(o->context, &tape));
  hark_tape_set_recording(tape, false);
  const hark_forward forward = {.tape = tape,
                                .parameters = &o->network->parameters,
                                .types = types->type != HARK_NONE ? types : NULL,
                                .plans = plans,
                                .observe = take_layer,
                                .observe_user = o};
  hark_status status = hark_tape_leaf(tape, tokens, NULL, &ids);
  if (status == HARK_OK) status = hark_stack_apply(o->context, o->network, &forward, ids, &x);
  hark_tape_destroy(&tape);
  return status;
}

hark_status hark_network_observe(hark_context *context, const hark_network *network, const int32_t *tokens, int64_t count,
                                 hark_attention_observer *observe, void *user) {
  observation o = {.context = context, .network = network, .observe = observe, .user = user};
  const int64_t shape[] = {1, count};
  hark_tensor ids = {0}, types = {0};
  hark_attention_plan **plans = NULL;
  hark_status status = hark_tensor_create(context, HARK_I32, 2, shape, &ids);
  if (status == HARK_OK) status = hark_tensor_write(context, &ids, tokens);
  if (status == HARK_OK && network->config.token_types > 0) status = hark_tensor_create(context, HARK_I32, 2, shape, &types);
  if (status == HARK_OK) status = hark_network_plans_rectangular(context, network, 1, count, count, false, &plans);
  if (status == HARK_OK) status = apply(&o, &ids, &types, plans);
  hark_network_plans_destroy(context, network, &plans);
  hark_tensor_destroy(context, &types);
  hark_tensor_destroy(context, &ids);
  return status;
}

/* ---- distances ---- */

typedef struct distance_sums {
  hark_context *context;
  const hark_network *network;
  int64_t length;
  double *distances; /* of all layers */
  double *layer;     /* of the layer that is seen */
} distance_sums;

static hark_status add_weights(void *user, const hark_weights_block *block) {
  const distance_sums *const s = user;
  const float *weight = block->weights;
  for (int64_t t = 0; t < block->queries; t++)
    for (int64_t h = 0; h < block->heads; h++)
      for (int64_t i = block->first; i < block->first + block->keys; i++)
        s->layer[h * s->length + (t < i ? i - t : t - i)] += (double)*weight++;
  return HARK_OK;
}

static hark_status add_layer(void *user, const hark_attention_application *seen) {
  distance_sums *const s = user;
  const int64_t heads = s->network->config.heads;
  s->layer = s->distances + seen->layer * heads * s->length;
  HARK_TRY(hark_attention_weights_visit(s->context, seen, add_weights, s));
  for (int64_t i = 0; i < heads * s->length; i++) {
    if (!isfinite(s->layer[i]))
      return hark_fail(s->context, HARK_NOT_FINITE, "layer %" PRId64 ", head %" PRId64 ": weights are not finite numbers", seen->layer,
                       i / s->length);
  }
  return HARK_OK;
}

hark_status hark_network_add_distances(hark_context *context, const hark_network *network, const int32_t *tokens, int64_t count,
                                       int64_t length, double *distances) {
  distance_sums s = {.context = context, .network = network, .length = length, .distances = distances};
  return hark_network_observe(context, network, tokens, count, add_layer, &s);
}
