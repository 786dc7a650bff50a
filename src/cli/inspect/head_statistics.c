/* head_statistics.c - see head_statistics.h. With a = |w|, S = sum a and p = a / S of a query, all means are made from sums over keys,
 * which are added up block by block:
 *
 *     entropy = log S - (sum a log a) / S,    distance = (sum a |n - i|) / S,    ...
 */
#include "cli/inspect/head_statistics.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "models/observe.h"

/* Sums over the keys of a query of a head. */
typedef struct query_sums {
  double weight, log_weight, distance, far, first, negative;
} query_sums;

typedef struct reading {
  hark_context *context;
  const hark_network *network;
  int64_t count, distance;
  hark_model_statistics *out;
  query_sums *sums; /* of a layer: [queries, heads] */
} reading;

static void add_key(query_sums *sums, double weight, int64_t key, int64_t apart, int64_t far) {
  const double size = fabs(weight);
  if (size == 0) return;
  sums->weight += size;
  sums->log_weight += size * log(size);
  sums->distance += size * (double)apart;
  if (apart > far) sums->far += size;
  if (key == 0) sums->first += size;
  if (weight < 0) sums->negative += size;
}

static hark_status add_block(void *user, const hark_weights_block *block) {
  const reading *const r = user;
  const float *weight = block->weights;
  for (int64_t t = 0; t < block->queries; t++)
    for (int64_t h = 0; h < block->heads; h++)
      for (int64_t i = block->first; i < block->first + block->keys; i++)
        add_key(&r->sums[t * block->heads + h], (double)*weight++, i, t < i ? i - t : t - i, r->distance);
  return HARK_OK;
}

static void add_query(const query_sums *sums, hark_head_statistics *head) {
  const double entropy = hark_larger(log(sums->weight) - sums->log_weight / sums->weight, 0); /* rounding could make it negative */
  head->entropy += entropy;
  head->keys += exp(entropy);
  head->distance += sums->distance / sums->weight;
  head->far += sums->far / sums->weight;
  head->first += sums->first / sums->weight;
  head->negative += sums->negative / sums->weight;
}

static void divide(hark_head_statistics *head, double count) {
  double *const numbers[] = {&head->keys, &head->entropy, &head->distance, &head->far, &head->first, &head->negative};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) *numbers[i] /= count;
}

static hark_status finish_head(const reading *r, int64_t layer, int64_t head) {
  hark_head_statistics *const out = &r->out->of_layers[layer].heads[head];
  int64_t queries = 0;
  for (int64_t t = 0; t < r->count; t++) {
    const query_sums *const sums = &r->sums[t * r->out->heads + head];
    if (!isfinite(sums->weight))
      return hark_fail(r->context, HARK_NOT_FINITE,
                       "layer %" PRId64 ", head %" PRId64 ": the weights of token %" PRId64 " are not finite numbers", layer, head, t);
    if (sums->weight == 0) continue;
    add_query(sums, out);
    queries++;
  }
  if (queries > 0) divide(out, (double)queries);
  return HARK_OK;
}

static size_t sum_bytes(const reading *r) { return (size_t)(r->count * r->out->heads) * sizeof *r->sums; }

static hark_status take_layer(void *user, const hark_attention_application *seen) {
  reading *const r = user;
  memset(r->sums, 0, sum_bytes(r));
  HARK_TRY(hark_attention_weights_visit(r->context, seen, add_block, r));
  for (int64_t h = 0; h < r->out->heads; h++) HARK_TRY(finish_head(r, seen->layer, h));
  return HARK_OK;
}

static hark_status make_room(reading *r) {
  hark_model_statistics *const out = r->out;
  const hark_network_config *const config = &r->network->config;
  HARK_TRY(hark_allocate_zero(r->context, (size_t)config->layers * sizeof *out->of_layers, (void **)&out->of_layers));
  out->layers = config->layers;
  out->heads = config->heads;
  HARK_TRY(hark_allocate_zero(r->context, (size_t)(out->layers * out->heads) * sizeof *out->all, (void **)&out->all));
  for (int64_t layer = 0; layer < out->layers; layer++) {
    const hark_self_attention_spec *const spec = &r->network->blocks[layer].attention.spec;
    out->of_layers[layer] =
        (hark_layer_statistics){.structure = spec->structure, .normalisation = spec->normalisation, .heads = out->all + layer * out->heads};
  }
  return hark_allocate(r->context, sum_bytes(r), (void **)&r->sums);
}

hark_status hark_head_statistics_compute(hark_context *context, const hark_model *model, const int32_t *tokens, int64_t count,
                                         int64_t distance, hark_model_statistics *out) {
  reading r = {.context = context, .network = model->network, .count = count, .distance = distance, .out = out};
  *out = (hark_model_statistics){0};
  hark_status status = make_room(&r);
  if (status == HARK_OK) status = hark_network_observe(context, r.network, tokens, count, take_layer, &r);
  if (r.sums != NULL) hark_release(context, r.sums, sum_bytes(&r));
  return status;
}

void hark_model_statistics_free(hark_context *context, hark_model_statistics *statistics) {
  if (statistics->all != NULL)
    hark_release(context, statistics->all, (size_t)(statistics->layers * statistics->heads) * sizeof *statistics->all);
  if (statistics->of_layers != NULL)
    hark_release(context, statistics->of_layers, (size_t)statistics->layers * sizeof *statistics->of_layers);
  *statistics = (hark_model_statistics){0};
}
